//! Trees: a sorted map from path to entry, in which a file's content is a [`Source`].
//!
//! Stages map trees to trees; nothing is read or written until a sink does it. Every directory above
//! an entry is an entry itself.

mod cached;
mod capabilities;
mod frames;
mod gather;
mod input;
mod keep;
mod kpack;
mod members;
mod pack;
mod path;
mod source;

pub mod build;
pub mod dir;
pub mod list;
pub mod output;
pub mod read;
pub mod record;
pub mod whole;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

pub(crate) use gather::{Destination, Gather};
pub use input::{ArchiveFile, InputFile, OpenInput};
pub use kpack::{BuiltKpack, CodeObjectAt, KpackPlan, KpmPlan, PlannedKernel};
pub use path::{PathError, TreePath};
pub use source::Source;

/// What stands at one path.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Permission bits (`0o7777`).
    pub mode: u32,
    /// Modification time in seconds since 1970, where something gives one.
    pub mtime: Option<i64>,
    /// Directory, file or link.
    pub kind: EntryKind,
}

/// The kinds of entry.
#[derive(Debug, Clone)]
pub enum EntryKind {
    /// A directory.
    Dir,
    /// A regular file.
    File(Source),
    /// A symbolic link with this target, as it is written in the link.
    Symlink(Vec<u8>),
    /// Another name for the file at this path of the same tree, which is a [`EntryKind::File`] and
    /// sorts before it.
    HardLink(TreePath),
}

impl Entry {
    /// A directory of mode 0755.
    pub fn dir() -> Self {
        Self { mode: 0o755, mtime: None, kind: EntryKind::Dir }
    }

    /// A file.
    pub fn file(mode: u32, mtime: Option<i64>, source: Source) -> Self {
        Self { mode, mtime, kind: EntryKind::File(source) }
    }

    /// The content, where it is a file.
    pub fn source(&self) -> Option<&Source> {
        match &self.kind {
            EntryKind::File(source) => Some(source),
            _ => None,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.kind, EntryKind::Dir)
    }
}

/// Two entries want one path.
#[derive(Debug, thiserror::Error)]
#[error("two files want the path `{0}`")]
pub struct Occupied(pub TreePath);

/// A sorted map from path to entry.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    entries: BTreeMap<TreePath, Entry>,
}

impl Tree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry and, as mode 0755, the directories above it that are not there yet. A directory
    /// may come again (the later mode and time win); anything else at a taken path is refused.
    pub fn insert(&mut self, path: TreePath, entry: Entry) -> Result<(), Occupied> {
        for above in path.ancestors() {
            match self.entries.get(&above) {
                None => {
                    self.entries.insert(above, Entry::dir());
                }
                Some(entry) if entry.is_dir() => break,
                Some(_) => return Err(Occupied(above)),
            }
        }
        match self.entries.get(&path) {
            Some(old) if !(old.is_dir() && entry.is_dir()) => Err(Occupied(path)),
            _ => {
                self.entries.insert(path, entry);
                Ok(())
            }
        }
    }

    /// Takes an entry out; the directories above it stay.
    pub fn remove(&mut self, path: &TreePath) -> Option<Entry> {
        self.entries.remove(path)
    }

    /// The entry at a path.
    pub fn get(&self, path: &TreePath) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// The tree's own path with its entry.
    pub fn get_key_value(&self, path: &TreePath) -> Option<(&TreePath, &Entry)> {
        self.entries.get_key_value(path)
    }

    /// All entries in the order of their paths: a directory before its content.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&TreePath, &Entry)> {
        self.entries.iter()
    }

    /// The kpack archives that are to be built, in order.
    pub fn kpacks(&self) -> impl Iterator<Item = (&TreePath, &Arc<KpackPlan>)> {
        self.iter().filter_map(|(path, entry)| match entry.source()? {
            Source::Kpack(plan) => Some((path, plan)),
            _ => None,
        })
    }

    /// The directories above a path that are not there, the outermost first. Where one is, those above it are: a path may
    /// have thousands.
    pub fn missing_above(&self, path: &TreePath) -> Vec<TreePath> {
        let mut missing: Vec<_> =
            path.ancestors().take_while(|dir| self.get(dir).is_none()).collect();
        missing.reverse();
        missing
    }

    /// The entries strictly below a directory, in order.
    pub fn below<'a>(
        &'a self,
        dir: &'a TreePath,
    ) -> impl Iterator<Item = (&'a TreePath, &'a Entry)> {
        self.entries
            .range((Bound::Excluded(dir.clone()), Bound::Unbounded))
            .take_while(|(path, _)| path.strip_prefix(dir).is_some())
    }

    /// Number of entries, directories included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The newest modification time of its files. Times of directories say when they were filled, which
    /// is another at every run.
    pub fn newest_mtime(&self) -> Option<i64> {
        let files = self.entries.values().filter(|entry| entry.source().is_some());
        files.filter_map(|entry| entry.mtime).max()
    }

    /// Whether it has anything but directories.
    pub fn has_files(&self) -> bool {
        self.entries.values().any(|entry| !entry.is_dir())
    }
}
