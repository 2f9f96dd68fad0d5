//! What stages report when something is wrong.
//!
//! A format module has an error enum of its own (offset, field, found, expected; no path). A stage
//! wraps it into an [`Error`], which knows the file, what was being done, and what the user can do
//! about it. A stage that finds several faults returns all of them in [`Errors`]. Only the binary
//! prints: `error:`, `caused by:` and `hint:` are its words.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};

/// Who has to act: decides the exit status (1 or 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The input is damaged, or the system refused something: exit status 1.
    Failed,
    /// The output cannot be written: exit status 1. Such a fault is of the whole run, whatever it was
    /// writing at the time.
    Output,
    /// The command line or a configuration file is wrong: exit status 2.
    Usage,
}

/// One fault.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    path: Option<PathBuf>,
    /// Bytes of the message that say whose fault it is.
    place: usize,
    message: String,
    /// By lines.
    hint: Vec<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A fault in the input or the system: lower case, concrete, no final stop.
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            kind: Kind::Failed,
            path: None,
            place: 0,
            message: message.into(),
            hint: Vec::new(),
            source: None,
        }
    }

    /// A fault in the command line or in a configuration file.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, ..Self::failed(message) }
    }

    /// An operation of the system that failed on `path`, e.g. `cannot read`.
    pub fn io(action: &str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::failed(action).at(path).because(source)
    }

    /// An operation on the output that failed, e.g. `cannot write`. A name that no file can have is the
    /// input's fault, though: another input can be written.
    pub fn output(action: &str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::InvalidFilename => Kind::Failed,
            _ => Kind::Output,
        };
        Self { kind, ..Self::io(action, path, source) }
    }

    /// Names the file or directory that the fault is in.
    #[must_use]
    pub fn at(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().to_owned());
        self
    }

    /// Says whose fault it is, as ``package `rocblas` ``: the message then begins with that. The same fault at
    /// several places can be told once.
    #[must_use]
    pub fn of(mut self, place: impl Into<String>) -> Self {
        let place = place.into();
        self.message = format!("{place}: {}", self.message);
        self.place = place.len();
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = vec![hint.into()];
        self
    }

    /// Adds further lines to what the user can do. A line break within one is part of a name.
    #[must_use]
    pub fn with_hint_lines(mut self, lines: Vec<String>) -> Self {
        self.hint.extend(lines);
        self
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Who has to act.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The file or directory concerned.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whose fault it is, where [`Self::of`] said so.
    pub fn place(&self) -> Option<&str> {
        (self.place > 0).then(|| &self.message[..self.place])
    }

    /// The message without its place.
    pub fn fault(&self) -> &str {
        let rest = &self.message[self.place..];
        if self.place > 0 { rest.strip_prefix(": ").unwrap_or(rest) } else { rest }
    }

    /// The system refuses a thread that is needed.
    pub(crate) fn no_thread(source: std::io::Error) -> Self {
        Self::failed("cannot start a thread").because(source).hint(
            "the system has a limit of threads or memory for this process (`ulimit -u`, `ulimit -v`, a container's): raise it, or lower --jobs",
        )
    }

    /// The message alone, without path and cause.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the user can do, where it is known: what was said with the error, or what follows from
    /// the system's refusal.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.first().map(String::as_str).or_else(|| system_hint(self.system_error()?))
    }

    /// The further lines of the hint.
    pub fn hint_lines(&self) -> &[String] {
        self.hint.get(1..).unwrap_or_default()
    }

    /// Whether the cause is a device without space left.
    pub fn is_disk_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        self.system_error().is_some_and(|e| matches!(e.kind(), StorageFull | QuotaExceeded))
    }

    /// The system's refusal, where one is the cause.
    fn system_error(&self) -> Option<&std::io::Error> {
        let mut cause = StdError::source(self);
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<std::io::Error>() {
                return Some(io);
            }
            cause = error.source();
        }
        None
    }
}

fn system_hint(error: &std::io::Error) -> Option<&'static str> {
    use std::io::ErrorKind;
    // They have no kind.
    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
        return Some("allow more open files (`ulimit -n`), or lower --jobs");
    }
    Some(match error.kind() {
        ErrorKind::StorageFull => "free some space, or put the output on another disk",
        ErrorKind::QuotaExceeded => "raise the quota, or put the output on another disk",
        ErrorKind::PermissionDenied => "run as a user who may, or change the file's permissions",
        ErrorKind::ReadOnlyFilesystem => {
            "the file system is mounted read-only: name another output"
        }
        ErrorKind::NotFound => {
            "check the spelling; a relative path starts at the current directory"
        }
        ErrorKind::UnexpectedEof => {
            "it has fewer bytes than its size says: it became shorter meanwhile, or is one of the system's own, as \
             below /proc and /sys, which cannot be packaged"
        }
        ErrorKind::FileTooLarge => {
            "a file may not be as large here: the shell has a limit (`ulimit -f`), or the file system"
        }
        ErrorKind::InvalidFilename => "shorten the name: the file system of the output has a limit",
        _ => return None,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", path.display(), self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// One or more faults, in a stable order.
#[derive(Debug)]
pub struct Errors(Vec<Error>);

impl Errors {
    /// `Ok(value)` where `faults` is empty, else all of them.
    pub fn check<T>(value: T, faults: Vec<Error>) -> Result<T, Self> {
        if faults.is_empty() { Ok(value) } else { Err(Self(faults)) }
    }

    /// The faults; there is at least one.
    pub fn iter(&self) -> impl Iterator<Item = &Error> {
        self.0.iter()
    }

    /// The faults by value, to be joined with those of others.
    pub fn into_vec(self) -> Vec<Error> {
        self.0
    }

    /// [`Kind::Usage`] where every fault is of that kind.
    pub fn kind(&self) -> Kind {
        if self.0.iter().all(|e| e.kind == Kind::Usage) { Kind::Usage } else { Kind::Failed }
    }
}

impl From<Error> for Errors {
    fn from(error: Error) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl StdError for Errors {}

/// What a stage returns.
pub type Result<T, E = Errors> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_shorter_than_it_says_has_a_hint() {
        let short = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let hint = Error::io("cannot read", "x", short).hint_text().map(str::to_owned);
        assert!(hint.is_some_and(|hint| hint.contains("fewer bytes than its size says")));
        let own = Error::io("x", "x", std::io::ErrorKind::UnexpectedEof.into()).hint("own");
        assert_eq!(own.hint_text(), Some("own"));
    }
}
