//! The listing sink: what a tree would be, for dry runs.

use serde::Serialize;

#[cfg(doc)]
use super::KpackPlan;
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
    /// About what it will have, where that is not known before: see [`KpackPlan::estimated_size`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_size: Option<u64>,
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
            let plan = match entry.source() {
                Some(Source::Kpack(plan)) => Some(plan),
                _ => None,
            };
            let size = entry.source().and_then(Source::len);
            Item {
                path: path.to_string(),
                kind,
                mode: format!("{:04o}", entry.mode),
                size,
                estimated_size: plan.filter(|_| size.is_none()).map(|plan| plan.estimated_size()),
                target,
                code_bytes: plan.map(|plan| plan.original_size()),
            }
        })
        .collect()
}
