//! Artifacts: a tree of files under *prefixes*, which an install lays over one root.
//!
//! `{artifact}_{component}_{target}/artifact_manifest.txt` lists the prefixes, one a line; every
//! file of the artifact lies under one of them. A listed prefix may be absent. In place of the
//! directory there may be an archive of the same name (`.tar.zst`, `.tar.xz`, `.tar.gz`). A *shard* is
//! a directory of artifacts from one build job.

mod folder;
mod manifest;
mod name;
mod read;

use std::path::PathBuf;
use std::sync::Arc;

pub use folder::{passed_over, passed_over_in_shards, without_digest};
pub use manifest::{LineError, MANIFEST_MAX, manifest_lines, parse_manifest};
pub use name::{ArtifactName, COMPONENTS, GENERIC, NameError, shared_family, shared_target};
pub use read::{
    archive_stem, read_artifact, read_artifacts, read_each, read_shard, read_shards, shard_names,
};

use crate::tree::{Entry, EntryKind, Source, Tree, TreePath};

/// The manifest's file name.
pub const MANIFEST: &str = "artifact_manifest.txt";

/// An artifact: its name, its prefixes and its files.
#[derive(Debug, Clone)]
pub struct ArtifactTree {
    /// What it is called.
    pub name: ArtifactName,
    /// In the order of the manifest.
    pub prefixes: Vec<TreePath>,
    /// Everything but the manifest itself; paths are relative to the artifact.
    pub tree: Tree,
    /// Where it was read, for messages; empty for one that a stage made.
    pub origin: PathBuf,
}

impl ArtifactTree {
    /// An artifact without files.
    pub fn new(name: ArtifactName) -> Self {
        Self { name, prefixes: Vec::new(), tree: Tree::new(), origin: PathBuf::new() }
    }

    /// The prefix that a path lies under (or is), the longest where one is inside another.
    pub fn prefix_of(&self, path: &TreePath) -> Option<&TreePath> {
        self.prefixes
            .iter()
            .filter(|prefix| *prefix == path || path.strip_prefix(prefix).is_some())
            .max_by_key(|prefix| prefix.as_bytes().len())
    }

    /// What a symbolic link leads to once all prefixes are installed over one root: the path of a file
    /// or directory of this artifact, links on the way followed. `None` where it leads to nothing here,
    /// leaves the root, or runs in circles.
    pub fn follow(&self, link: &TreePath) -> Option<TreePath> {
        let prefix = self.prefix_of(link);
        let below = match prefix {
            Some(prefix) => link.strip_prefix(prefix)?,
            None => link.clone(),
        };
        // Where a path below the root stands in the artifact, in the link's own prefix first.
        let stands = |parts: &[Vec<u8>]| -> Option<TreePath> {
            let below = TreePath::new(parts.join(&b'/')).ok()?;
            let Some(prefix) = prefix else {
                return self.tree.get(&below).is_some().then_some(below);
            };
            let mut places = [prefix].into_iter().chain(&self.prefixes).map(|p| p.join(&below));
            places.find(|place| self.tree.get(place).is_some())
        };
        let mut ahead: Vec<Vec<u8>> = below.components().rev().map(<[u8]>::to_vec).collect();
        let mut walked: Vec<Vec<u8>> = Vec::new();
        // As many links as the kernel follows before it gives up on a circle.
        let mut links = 40_u32;
        while let Some(part) = ahead.pop() {
            match part.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    walked.pop()?;
                    continue;
                }
                _ => walked.push(part),
            }
            let Some(Entry { kind: EntryKind::Symlink(target), .. }) =
                self.tree.get(&stands(&walked)?)
            else {
                continue;
            };
            links = links.checked_sub(1)?;
            if target.first() == Some(&b'/') {
                return None;
            }
            walked.pop();
            ahead.extend(target.split(|&b| b == b'/').rev().map(<[u8]>::to_vec));
        }
        stands(&walked)
    }

    /// The files, the manifest included, as a directory of this name holds them.
    pub fn to_tree(&self) -> Tree {
        let mut tree = self.tree.clone();
        let mut manifest = Vec::new();
        for prefix in &self.prefixes {
            manifest.extend_from_slice(prefix.as_bytes());
            manifest.push(b'\n');
        }
        let mtime = self.tree.newest_mtime();
        let entry = Entry::file(0o644, mtime, Source::Bytes(Arc::from(manifest)));
        let path = TreePath::new(MANIFEST).expect("a plain name");
        tree.insert(path, entry).expect("no prefix is called like the manifest");
        tree
    }
}

/// The artifacts of one build job.
#[derive(Debug, Clone)]
pub struct Shard {
    /// The directory's name.
    pub name: String,
    /// Sorted by name.
    pub artifacts: Vec<ArtifactTree>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_where_they_do_once_installed() {
        let path = |path: &str| TreePath::new(path).unwrap();
        let mut artifact = ArtifactTree::new(ArtifactName::parse("x_lib_fat").unwrap());
        artifact.prefixes = vec![path("one/stage"), path("two/stage")];
        let link = |target: &str| Entry {
            kind: EntryKind::Symlink(target.as_bytes().into()),
            ..Entry::dir()
        };
        let file = || Entry::file(0o644, None, Source::Bytes(Arc::from(&b""[..])));
        for (at, entry) in [
            ("one/stage/lib/file", file()),
            ("one/stage/lib/near", link("file")),
            ("one/stage/lib/chain", link("./near")),
            ("one/stage/folder", link("lib")),
            ("one/stage/through", link("folder//chain")),
            ("one/stage/other", link("share/here")),
            ("two/stage/share/here", file()),
            ("two/stage/share/away", link("../../file")),
            ("two/stage/gone", link("nothing")),
            ("two/stage/absolute", link("/lib/file")),
            ("two/stage/round", link("about")),
            ("two/stage/about", link("round")),
        ] {
            artifact.tree.insert(path(at), entry).unwrap();
        }
        for (at, end) in [
            ("one/stage/lib/near", Some("one/stage/lib/file")),
            ("one/stage/lib/chain", Some("one/stage/lib/file")),
            ("one/stage/folder", Some("one/stage/lib")),
            ("one/stage/through", Some("one/stage/lib/file")),
            ("one/stage/other", Some("two/stage/share/here")),
            ("two/stage/share/away", None),
            ("two/stage/gone", None),
            ("two/stage/absolute", None),
            ("two/stage/round", None),
        ] {
            assert_eq!(artifact.follow(&path(at)), end.map(path), "{at}");
        }
    }
}
