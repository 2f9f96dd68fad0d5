//! `gfxpack sign`, and what it shares with the commands that write packages

use std::io;
use std::path::Path;
use std::process::ExitCode;

use gfxpack::error::{Error, Errors, Result};
use gfxpack::package::sign;
use gfxpack::sign::Signer;
use zeroize::Zeroizing;

use super::{clock, jobs, source_date};
use crate::args::{Global, Sign, Signing};
use crate::output::Ui;

pub fn run(args: &Sign, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let Some(signer) = signer(&args.signing)? else {
        return Err(Error::usage("there is no key to sign with")
            .hint("add --sign-key FILE or --sign-command COMMAND, or set GFXPACK_SIGN_KEY")
            .into());
    };
    tell(&signer, ui);
    let date = source_date()?;
    let mut signed = Vec::new();
    let mut faults = Vec::new();
    let mut files = args.files.clone();
    files.sort();
    files.dedup();
    for done in jobs(global).drive(&files, |file| sign::file(file, &signer, date)) {
        match done {
            Ok(done) => signed.push(done),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    // Those that were signed are whole, whatever became of the others.
    Errors::check((), faults)?;
    ui.result(&serde_json::json!({ "status": "done", "signed": signed }), || {
        signed.iter().map(|done| format!("{}\n", done.signature.display())).collect()
    });
    Ok(ExitCode::SUCCESS)
}

/// Who signs, from the arguments and the environment; no one where neither has a key.
pub fn signer(args: &Signing) -> Result<Option<Signer>> {
    let signer = if let Some(command) = &args.sign_command {
        let public = args.sign_key_public.as_deref();
        let bytes = public.map(read).transpose()?;
        let signer = Signer::from_command(command, bytes.as_ref().map(|bytes| bytes.as_slice()));
        signer.map_err(|e| match public {
            Some(path) => e.at(path),
            None => e,
        })?
    } else if let Some(path) = &args.sign_key {
        Signer::from_key(&read(path)?, passphrase(args)?).map_err(|e| e.at(path))?
    } else if let Some(key) = secret_variable("GFXPACK_SIGN_KEY") {
        Signer::from_key(&key, passphrase(args)?).map_err(|e| e.at("GFXPACK_SIGN_KEY"))?
    } else {
        return Ok(None);
    };
    // The clock may refuse, but never changes what is written.
    signer.check_at(u64::try_from(clock()).unwrap_or_default())?;
    Ok(Some(signer))
}

/// Says what there is to know of the key.
pub fn tell(signer: &Signer, ui: &Ui) {
    for warning in signer.warnings() {
        ui.warning(&warning);
    }
    if let (Some(id), Some(algorithm)) = (signer.key_id(), signer.algorithm()) {
        ui.note(&format!("signing with {id} ({algorithm})"));
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    std::fs::read(path).map(Zeroizing::new).map_err(|e| unreadable(path, e))
}

/// A key file that cannot be read.
pub fn unreadable(path: &Path, e: io::Error) -> Error {
    let is_dir = e.kind() == io::ErrorKind::IsADirectory;
    let fault = Error::io("cannot read", path, e);
    if is_dir {
        fault.hint("name a file, as `gpg --armor --output FILE --export-secret-keys KEYID` makes one; of public keys, --export")
    } else {
        fault
    }
}

/// A variable that is set to something.
fn secret_variable(name: &str) -> Option<Zeroizing<Vec<u8>>> {
    use std::os::unix::ffi::OsStringExt;
    let value = std::env::var_os(name).map(|value| Zeroizing::new(value.into_vec()));
    value.filter(|value| !value.is_empty())
}

fn passphrase(args: &Signing) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let Some(path) = &args.sign_key_passphrase_file else {
        return Ok(secret_variable("GFXPACK_SIGN_KEY_PASSPHRASE"));
    };
    let mut bytes = read(path)?;
    for end in [b'\n', b'\r'] {
        if bytes.last() == Some(&end) {
            bytes.pop();
        }
    }
    Ok(Some(bytes))
}
