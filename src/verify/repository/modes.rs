//! What is served can be read by a server that is another user.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Listing, Log};
use crate::package::Format;
use crate::verify::finding::Check;

/// Checks packages, indices, and the directories that they are in. What cannot be looked at is left to those who read it.
pub(super) fn check(listing: &Listing, log: &mut Log<'_>) {
    let mut paths: BTreeSet<String> = listing.entries.keys().cloned().collect();
    let mark = match listing.format {
        Format::Deb => "dists",
        Format::Rpm => "repodata",
    };
    let mut dirs = vec![mark.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(listing.root.join(&dir)).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{dir}/{name}");
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                dirs.push(path);
            } else {
                paths.insert(path);
            }
        }
    }
    let above: Vec<String> = paths.iter().flat_map(|path| parents(path)).collect();
    paths.extend(above);
    for path in paths {
        one(&listing.root, &path, log);
    }
}

/// The directories that a path is in, below the root; that itself is the empty path.
fn parents(path: &str) -> impl Iterator<Item = String> {
    Path::new(path).ancestors().skip(1).map(|dir| dir.to_string_lossy().into_owned())
}

fn one(root: &Path, path: &str, log: &mut Log<'_>) {
    let Ok(metadata) = fs::metadata(root.join(path)) else { return };
    let (needed, usual) = if metadata.is_dir() { (0o5, "0755") } else { (0o4, "0644") };
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & needed != needed {
        let expected = format!("one that everybody may read, as {usual}");
        log.add(Check::RepoMode, path, format!("has the mode {mode:04o}"), expected);
    }
}
