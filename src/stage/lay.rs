//! The trees of a definition's packages, and how a file comes into one.

use std::collections::{BTreeMap, BTreeSet};

use crate::artifact::{ArtifactTree, shared_family};
use crate::config::{Definition, FileKind, PackagingConfig};
use crate::error::{Error, Result};
use crate::tree::{Entry, EntryKind, Tree, TreePath};

/// The files of one definition, or those of one kind of it, laid under the install prefix.
pub(super) struct Staged<'a> {
    pub definition: &'a Definition,
    /// Where these are the files of one kind, which get packages of their own.
    pub kind: Option<FileKind>,
    /// Host code and files for every GPU.
    pub generic: Tree,
    /// By group.
    pub groups: BTreeMap<String, Tree>,
    /// What several groups share, by target (`gfx11xx-shared`).
    pub shared: BTreeMap<String, Shared>,
}

/// Files for a family, and the groups that have ISAs of it.
#[derive(Default)]
pub(super) struct Shared {
    pub tree: Tree,
    pub groups: BTreeSet<String>,
}

/// Where an artifact's files go: the generic tree, that of its group, or what its groups share. A group
/// that has nothing but its share gets a tree all the same: its package leads to the shared one.
pub(super) fn tree_of<'t>(
    staged: &'t mut Staged,
    artifact: &ArtifactTree,
    config: &PackagingConfig,
) -> &'t mut Tree {
    let target = &artifact.name.target;
    if artifact.name.is_generic() {
        return &mut staged.generic;
    }
    let Some(family) = shared_family(target) else {
        return staged.groups.entry(target.clone()).or_default();
    };
    let shared = staged.shared.entry(target.clone()).or_default();
    for group in config.groups_with(&artifact.name.prefix(), &family) {
        shared.groups.insert(group.to_owned());
        staged.groups.entry(group.to_owned()).or_default();
    }
    &mut shared.tree
}

/// Puts an entry under the install prefix. Directories are of mode 0755, whatever the build's umask was:
/// packages share them, and rpm refuses two that do not agree.
pub(super) fn lay(
    tree: &mut Tree,
    artifact: &ArtifactTree,
    prefix: &TreePath,
    root: &TreePath,
    below: &TreePath,
    entry: &Entry,
) -> Result<(), Error> {
    let fault = |e: crate::tree::Occupied| {
        Error::failed(format!("{}: {e}", artifact.name))
            .hint("two prefixes of one package bring the same path: leave one out with `exclude`")
    };
    let to = root.join(below);
    for dir in tree.missing_above(&to) {
        let from = dir.strip_prefix(root).map(|below| prefix.join(&below));
        let mtime = from.and_then(|from| artifact.tree.get(&from)?.mtime);
        tree.insert(dir, Entry { mtime, ..Entry::dir() }).map_err(fault)?;
    }
    let mut entry = entry.clone();
    if entry.is_dir() {
        entry.mode = Entry::dir().mode;
    }
    if let EntryKind::HardLink(first) = &entry.kind {
        let Some(source) = artifact.tree.get(first).and_then(Entry::source) else {
            return Err(Error::failed(format!("{first} is no file")).at(&artifact.origin));
        };
        // The first name may have gone elsewhere, and another artifact's file be in its place; then this is a
        // file of its own.
        let is_first = |there: &TreePath| tree.get(there)?.source().map(|laid| laid.is(source));
        let there = first.strip_prefix(prefix).map(|first| root.join(&first));
        entry.kind = match there.filter(|there| is_first(there) == Some(true)) {
            Some(there) => EntryKind::HardLink(there),
            None => EntryKind::File(source.clone()),
        };
    }
    tree.insert(to, entry).map_err(fault)
}
