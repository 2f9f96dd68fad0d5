//! Reading a text that people wrote, or a tool of theirs.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::Error;

/// No configuration comes near it; a device or a wrong file does not fill the memory.
pub(crate) const CONFIGURATION_MAX: u64 = 64 << 20;

/// Reads a file as text. A byte order mark at its beginning, as some editors write, is no part of it. `what` is what the
/// file should be, as `configuration`; `max` is how many bytes are read of it.
pub(crate) fn read(path: &Path, what: &str, max: u64) -> Result<String, Error> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(max + 1).read_to_end(&mut bytes))
        .map_err(|e| Error::io(&format!("cannot read the {what}"), path, e))?;
    let refuse = |found: String| Error::usage(format!("is not a valid {what}: {found}")).at(path);
    if bytes.len() as u64 > max {
        return Err(refuse(format!("it is larger than {} MiB", max >> 20))
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
