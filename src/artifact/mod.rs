//! Artifacts: a tree of files under *prefixes*, which an install lays over one root.
//!
//! `{artifact}_{component}_{target}/artifact_manifest.txt` lists the prefixes, one a line; every
//! file of the artifact lies under one of them. A listed prefix may be absent. In place of the
//! directory there may be an archive of the same name (`.tar.zst`, `.tar.xz`, `.tar.gz`). A *shard* is
//! a directory of artifacts from one build job.

mod name;
mod read;

use std::path::PathBuf;
use std::sync::Arc;

pub use name::{ArtifactName, COMPONENTS, GENERIC, NameError};
pub use read::{
    archive_stem, parse_manifest, read_artifact, read_artifacts, read_shard, read_shards,
};

use crate::tree::{Entry, Source, Tree, TreePath};

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
