//! The external signer: a command that has the key, or reaches the device that has it.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::MAX_SIGNATURE;
use crate::error::Error;

/// How much of what the command says on standard error is shown.
const MAX_STDERR: u64 = 4 << 10;

pub(super) struct External {
    command: String,
    /// Devices have one slot, and people one finger: never two at a time.
    turn: Mutex<()>,
}

impl External {
    pub(super) fn new(command: &str) -> Self {
        Self { command: command.to_owned(), turn: Mutex::new(()) }
    }

    /// A fault in what the command gave.
    pub(super) fn fault(&self, what: &str) -> Error {
        Error::failed(format!(
            "the signature from the command `{}` is not usable: {what}",
            self.command
        ))
        .hint(
            "the command has the data on standard input, and writes one detached OpenPGP \
                 signature of it to standard output, and nothing else; of the type text where \
                 GFXPACK_SIGN_TEXT is set (gpg ${GFXPACK_SIGN_TEXT:+--textmode} --detach-sign)",
        )
    }

    /// Runs the command over data; returns what it wrote. `text`: the signature is to be of that type.
    pub(super) fn run(
        &self,
        data: &mut impl Read,
        time: u32,
        text: bool,
    ) -> Result<Vec<u8>, Error> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let cannot = |what: &str, e: io::Error| {
            Error::failed(format!("cannot {what} the signing command `{}`", self.command))
                .because(e)
        };
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command).env("GFXPACK_SIGN_TIME", time.to_string());
        if text {
            command.env("GFXPACK_SIGN_TEXT", "1");
        } else {
            command.env_remove("GFXPACK_SIGN_TEXT");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| cannot("run", e))?;
        let stdout = child.stdout.take().map(|out| reader(out, MAX_SIGNATURE as u64 + 1));
        let stderr = child.stderr.take().map(|out| reader(out, MAX_STDERR));
        let fed = match child.stdin.take() {
            Some(mut stdin) => io::copy(data, &mut stdin),
            None => Ok(0),
        };
        let collect = |from: Option<thread::JoinHandle<io::Result<Vec<u8>>>>| match from {
            Some(from) => from.join().unwrap_or_else(|_| Ok(Vec::new())),
            None => Ok(Vec::new()),
        };
        let (output, said) = (collect(stdout), collect(stderr));
        let status = child.wait().map_err(|e| cannot("wait for", e))?;
        if !status.success() {
            let said = said.unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            let said = said.trim().lines().collect::<Vec<_>>().join("; ");
            let saying = if said.is_empty() { String::new() } else { format!(", saying: {said}") };
            let message =
                format!("the signing command `{}` failed ({status}){saying}", self.command);
            return Err(Error::failed(message).hint("nothing was signed; run the command by hand"));
        }
        // A command that ended well and did not read everything has signed something else.
        fed.map_err(|e| cannot("give the data to", e))?;
        output.map_err(|e| cannot("read from", e))
    }
}

/// Reads up to a limit in a thread of its own, and lets the rest go by.
fn reader(
    mut from: impl Read + Send + 'static,
    limit: u64,
) -> thread::JoinHandle<io::Result<Vec<u8>>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.by_ref().take(limit).read_to_end(&mut bytes)?;
        io::copy(&mut from, &mut io::sink())?;
        Ok(bytes)
    })
}
