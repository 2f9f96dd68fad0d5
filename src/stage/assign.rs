//! Giving each file to the one definition that takes it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::Report;
use super::archives::{self, Archive};
use super::kinds;
use super::lay::{Staged, lay, tree_of};
use crate::artifact::ArtifactTree;
use crate::config::{Contents, FileKind, PackagesConfig, PackagingConfig};
use crate::error::{Error, Errors, Result};
use crate::tree::{Tree, TreePath};

struct Selector<'a> {
    contents: &'a Contents,
    /// Whether it took any file.
    used: Cell<bool>,
    prefixes: Option<GlobSet>,
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
}

impl<'a> Selector<'a> {
    fn new(contents: &'a Contents) -> Result<Self, Error> {
        let set = |globs: &[String]| -> Result<Option<GlobSet>, Error> {
            if globs.is_empty() {
                return Ok(None);
            }
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                let glob = GlobBuilder::new(glob).literal_separator(true).build();
                set.add(glob.map_err(|e| Error::usage("is not a glob").because(e))?);
            }
            set.build().map(Some).map_err(|e| Error::usage("these globs cannot be used").because(e))
        };
        Ok(Self {
            contents,
            used: Cell::new(false),
            prefixes: set(&contents.prefixes)?,
            include: set(&contents.include)?,
            exclude: set(&contents.exclude)?,
        })
    }

    fn artifact(&self, artifact: &ArtifactTree) -> bool {
        let components = &self.contents.components;
        artifact.name.artifact == self.contents.artifact
            && (components.is_empty() || components.contains(&artifact.name.component))
    }

    fn file(&self, prefix: &TreePath, below: &TreePath) -> bool {
        let takes = self.prefixes.as_ref().is_none_or(|set| set.is_match(prefix.as_path()))
            && self.include.as_ref().is_none_or(|set| set.is_match(below.as_path()))
            && !self.exclude.as_ref().is_some_and(|set| set.is_match(below.as_path()));
        self.used.set(self.used.get() || takes);
        takes
    }
}

/// The entry of a definition's contents that takes a file: one with a kind before one without.
fn taking<'a>(
    selectors: &[Selector<'a>],
    artifact: &ArtifactTree,
    prefix: &TreePath,
    below: &TreePath,
) -> Option<&'a Contents> {
    let takes = |s: &&Selector| s.artifact(artifact) && s.file(prefix, below);
    let with_kind = selectors.iter().filter(|s| s.contents.kind.is_some()).find(takes);
    let without = || selectors.iter().filter(|s| s.contents.kind.is_none()).find(takes);
    with_kind.or_else(without).map(|selector| selector.contents)
}

/// Lays every file into the tree of its definition.
pub(super) fn assign<'a>(
    artifacts: &[ArtifactTree],
    config: &'a PackagesConfig,
    groups: &PackagingConfig,
    root: &TreePath,
    report: &mut Report,
) -> Result<Vec<Staged<'a>>> {
    let mut faults = Vec::new();
    let mut selectors = Vec::new();
    let mut staged = Vec::new();
    for definition in &config.packages {
        let these = definition.contents.iter().map(Selector::new).collect::<Result<Vec<_>, _>>()?;
        selectors.push(these);
        for kind in kinds::PARTS {
            let (generic, groups, shared) = (Tree::new(), BTreeMap::new(), BTreeMap::new());
            staged.push(Staged { definition, kind, generic, groups, shared });
        }
    }

    let mut pending = Vec::new();
    // Definitions that want the same files: the first of the files, and how many.
    let mut contested: BTreeMap<Vec<usize>, (String, usize)> = BTreeMap::new();
    for artifact in artifacts {
        let takers: Vec<usize> = (0..selectors.len())
            .filter(|&d| selectors[d].iter().any(|selector| selector.artifact(artifact)))
            .collect();
        for (path, entry) in artifact.tree.iter() {
            let Some(prefix) = artifact.prefix_of(path) else { continue };
            let Some(below) = path.strip_prefix(prefix) else { continue };
            if entry.is_dir() && artifact.tree.below(path).next().is_some() {
                // Comes with what is in it.
                continue;
            }
            if archives::is_archive(path) {
                pending.push(Archive { artifact, prefix, path, below, entry });
                continue;
            }
            let taken = |d: usize| {
                let contents = taking(&selectors[d], artifact, prefix, &below)?;
                let component = &artifact.name.component;
                let definition = &config.packages[d];
                Some(kinds::part(
                    d,
                    kinds::of(definition, contents, component, &below, Some(entry)),
                ))
            };
            let owners: Vec<usize> = takers.iter().filter_map(|&d| taken(d)).collect();
            match owners.as_slice() {
                [] => report.unclaimed.push(format!("{}/{path}", artifact.name)),
                [owner] => {
                    let debug = staged[*owner].kind == Some(FileKind::Debug);
                    let tree = tree_of(&mut staged[*owner], artifact, groups);
                    let laid = if debug {
                        kinds::lay_debug(tree, artifact, prefix, root, &below, entry)
                    } else {
                        lay(tree, artifact, prefix, root, &below, entry)
                    };
                    faults.extend(laid.err());
                }
                several => {
                    let label = || format!("{}/{path}", artifact.name);
                    contested.entry(several.to_vec()).or_insert_with(|| (label(), 0)).1 += 1;
                }
            }
        }
    }
    for (owners, (first, count)) in contested {
        let names: Vec<_> = owners.iter().map(|&p| staged[p].definition.name.as_str()).collect();
        let what = if count == 1 { first } else { format!("{first} and {} more files", count - 1) };
        faults.push(
            Error::usage(format!("{what} would be in the packages {}", names.join(" and "))).hint(
                "a path can be in one package only: narrow the `prefixes`, `include` or `exclude` of one",
            ),
        );
    }
    Errors::check((), faults)?;
    let parts: Vec<_> = staged.iter().map(|s| (s.definition, s.kind)).collect();
    let takes = |part: usize, artifact: &ArtifactTree, path: &TreePath| {
        let taken = || {
            let prefix = artifact.prefix_of(path)?;
            let below = path.strip_prefix(prefix)?;
            let (definition, d) = (parts[part].0, part / kinds::PARTS.len());
            let contents = taking(&selectors[d], artifact, prefix, &below)?;
            let (component, entry) = (&artifact.name.component, artifact.tree.get(path));
            Some(kinds::of(definition, contents, component, &below, entry))
        };
        taken() == Some(parts[part].1)
    };
    for (definition, selectors) in config.packages.iter().zip(&selectors) {
        for selector in selectors.iter().filter(|selector| !selector.used.get()) {
            report.warnings.push(format!(
                "package {}: {} takes nothing: {}",
                definition.name,
                serde_json::to_string(selector.contents).unwrap_or_default(),
                if artifacts.iter().any(|artifact| selector.artifact(artifact)) {
                    "no file is under such a prefix and name"
                } else {
                    "there is no such artifact and component"
                },
            ));
        }
    }
    let faults = archives::place(&pending, artifacts, &mut staged, takes, groups, root, report);
    Errors::check((), faults)?;
    no_path_twice(&staged)?;
    Ok(staged)
}

/// Two definitions may bring one path from different artifacts, or one a directory where the other has
/// a file or link: that cannot be installed together.
fn no_path_twice(staged: &[Staged]) -> Result<()> {
    let mut owner: BTreeMap<&TreePath, (String, bool)> = BTreeMap::new();
    let mut faults = Vec::new();
    let mut told = BTreeSet::new();
    for Staged { definition, kind, generic, groups, shared } in staged {
        let name = kinds::name(&definition.name, *kind);
        let plain = groups.is_empty();
        let generic = std::iter::once(("generic", generic));
        let groups = groups.iter().map(|(name, tree)| (name.as_str(), tree));
        let shared = shared.iter().map(|(name, shared)| (name.as_str(), &shared.tree));
        for (part, tree) in generic.chain(groups).chain(shared) {
            let package = match (kind, part) {
                (Some(_), "generic") => name.clone(),
                (None, "generic") if plain => name.clone(),
                _ => format!("{name}-{part}"),
            };
            for (path, entry) in tree.iter() {
                let Some((other, dir)) = owner.insert(path, (package.clone(), entry.is_dir()))
                else {
                    continue;
                };
                if dir && entry.is_dir() || !told.insert((other.clone(), package.clone())) {
                    continue;
                }
                let what = match (dir, entry.is_dir()) {
                    (false, false) => "would be in both",
                    _ => "would be a directory in one and not in the other",
                };
                faults.push(
                    Error::failed(format!(
                        "/{path} {what} of the packages {other} and {package}"
                    ))
                    .hint("packages of one set can be installed together, so each path is in one only"),
                );
            }
        }
    }
    Errors::check((), faults)
}
