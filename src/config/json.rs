//! Reading JSON that people wrote: what is wrong is told with line, column and the key that it is at.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::Error;

/// No configuration comes near it; a device or a wrong file does not fill the memory.
const MAX_SIZE: u64 = 64 << 20;

/// What is wrong with a text, and where.
pub(crate) type JsonError = serde_path_to_error::Error<serde_json::Error>;

/// Reads a file as text. A byte order mark at its beginning, as some editors write, is no part of it. `what` is what the
/// file should be, as `configuration`.
pub(crate) fn text(path: &Path, what: &str) -> Result<String, Error> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_SIZE + 1).read_to_end(&mut bytes))
        .map_err(|e| Error::io(&format!("cannot read the {what}"), path, e))?;
    let refuse = |found: String| Error::usage(format!("is not a valid {what}: {found}")).at(path);
    if bytes.len() as u64 > MAX_SIZE {
        return Err(refuse(format!("it is larger than {} MiB", MAX_SIZE >> 20))
            .hint("look whether the name is that of another file"));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    String::from_utf8(bytes).map_err(|e| {
        let (bytes, at) = (e.as_bytes(), e.utf8_error().valid_up_to());
        if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
            return refuse("it is UTF-16".into()).hint("save it as UTF-8");
        }
        let before = &bytes[..at];
        let line = before.split(|&byte| byte == b'\n').next_back().unwrap_or_default();
        let (row, column) =
            (before.iter().filter(|&&byte| byte == b'\n').count() + 1, line.len() + 1);
        let byte = bytes.get(at).copied().unwrap_or_default();
        refuse(format!("the byte {byte:#04x} at line {row} column {column} is not UTF-8"))
            .hint("save it as UTF-8")
    })
}

/// Reads a value; an error says at which key.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let value = T::deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track));
    let value = value.and_then(|value| json.end().map(|()| value));
    value.map_err(|e| JsonError::new(track.path(), e))
}

/// What to do about an error: the name that a wrong key was meant to be, if there is one close to it, and where all are.
pub(crate) fn hint(e: &JsonError, all: &str) -> String {
    // serde gives names in its message only: the wrong one, then all that are right.
    let message = e.inner().to_string();
    let mut names = message.split('`').skip(1).step_by(2);
    let wrong = names
        .next()
        .filter(|_| message.starts_with("unknown field") || message.starts_with("unknown variant"));
    let close = wrong.and_then(|wrong| {
        let near = names.map(|name| (strsim::damerau_levenshtein(wrong, name), name));
        near.filter(|(distance, name)| distance * 3 <= name.len()).min()
    });
    match close {
        Some((_, name)) => format!("did you mean `{name}`? {all}"),
        None => all.to_owned(),
    }
}
