//! The listing sink: what a tree would be, for dry runs.

use serde::Serialize;

use super::{EntryKind, Source, Tree};

/// One entry of a listing.
#[derive(Debug, Serialize)]
pub struct Item {
    /// Path in the tree.
    pub path: String,
    /// `directory`, `file`, `symlink`, `hard link`, `kpack`, or `converted` (a binary whose device
    /// code is taken out).
    pub kind: &'static str,
    /// Permission bits in octal.
    pub mode: String,
    /// Size in bytes, where it is known before the file is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// What a link points at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Bytes of the code objects in an archive before compression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_bytes: Option<u64>,
}

/// Everything in a tree, in order.
pub fn items(tree: &Tree) -> Vec<Item> {
    tree.iter()
        .map(|(path, entry)| {
            let (kind, target) = match &entry.kind {
                EntryKind::Dir => ("directory", None),
                EntryKind::Symlink(to) => {
                    ("symlink", Some(String::from_utf8_lossy(to).into_owned()))
                }
                EntryKind::HardLink(to) => ("hard link", Some(to.to_string())),
                EntryKind::File(Source::Kpack(_)) => ("kpack", None),
                EntryKind::File(Source::Pieces { .. }) => ("converted", None),
                EntryKind::File(_) => ("file", None),
            };
            let code_bytes = match entry.source() {
                Some(Source::Kpack(plan)) => Some(plan.original_size()),
                _ => None,
            };
            Item {
                path: path.to_string(),
                kind,
                mode: format!("{:04o}", entry.mode),
                size: entry.source().and_then(Source::len),
                target,
                code_bytes,
            }
        })
        .collect()
}

/// A line for each file and link.
pub fn lines(tree: &Tree) -> Vec<String> {
    items(tree)
        .into_iter()
        .filter(|item| item.kind != "directory")
        .map(|Item { path, kind, mode, size, target, code_bytes }| match (target, size) {
            (Some(target), _) => format!("{mode} {:>12} /{path} -> {target}", ""),
            (None, Some(size)) => format!("{mode} {size:>12} /{path} ({kind})"),
            (None, None) => {
                let code = code_bytes.map_or(String::new(), |n| format!(" of {n} bytes of code"));
                format!("{mode} {:>12} /{path} ({kind}{code})", "?")
            }
        })
        .collect()
}
