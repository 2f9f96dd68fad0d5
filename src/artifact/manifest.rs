//! The manifest of an artifact, `artifact_manifest.txt`: the artifact's prefixes, one a line. Blank lines, blanks around
//! a line, CRLF and a byte order mark are passed over.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::{Error, Errors, Result};
use crate::tree::{PathError, TreePath};

/// The most bytes of a manifest: one of a build has some dozens of lines, and one over this size is not one.
pub const MANIFEST_MAX: u64 = 1 << 20;

/// The most prefixes of an artifact. What is done with each file, and with each link twice over, goes through all of them.
pub const PREFIXES_MAX: usize = 1000;

/// What is wrong with a line of a manifest.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is no path inside the artifact.
    #[error(transparent)]
    Path(PathError),
    /// The prefix is that of a line before.
    #[error("the prefix `{0}` is listed twice")]
    Twice(TreePath),
    /// It is one more than an artifact may have; the lines behind it are not read.
    #[error("one prefix more than the {PREFIXES_MAX} that an artifact may have")]
    TooMany,
}

/// The lines of a manifest's text that are not blank, in order: the number of each, from 1, with its prefix or what is
/// wrong with it. Nothing behind [`LineError::TooMany`].
pub fn manifest_lines(text: &[u8]) -> Vec<(usize, Result<TreePath, LineError>)> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut seen = BTreeSet::new();
    let mut lines = Vec::new();
    for (i, line) in text.split(|&b| b == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if seen.len() == PREFIXES_MAX {
            lines.push((i + 1, Err(LineError::TooMany)));
            break;
        }
        let prefix = match TreePath::new(line) {
            Err(e) => Err(LineError::Path(e)),
            Ok(prefix) if !seen.insert(prefix.clone()) => Err(LineError::Twice(prefix)),
            Ok(prefix) => Ok(prefix),
        };
        lines.push((i + 1, prefix));
    }
    lines
}

/// Reads a manifest's text, which is that of the file `path`. Every line that leaves the tree, is absolute, or stands
/// there twice is a fault.
pub fn parse_manifest(text: &[u8], path: &Path) -> Result<Vec<TreePath>> {
    let mut prefixes = Vec::new();
    let mut faults = Vec::new();
    for (number, line) in manifest_lines(text) {
        match line {
            Ok(prefix) => prefixes.push(prefix),
            Err(e) => {
                let hint = match e {
                    LineError::Path(_) => {
                        "a manifest lists the artifact's prefixes, as math-libs/BLAS/rocBLAS/stage"
                    }
                    LineError::Twice(_) => "remove one of the two lines",
                    LineError::TooMany => {
                        "a prefix is the root of what one project installs: name these, not each directory in them"
                    }
                };
                faults.push(Error::failed(format!("line {number}: {e}")).at(path).hint(hint));
            }
        }
    }
    Errors::check(prefixes, faults)
}
