//! Giving each file to the one definition that takes it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::archives::{self, Archive};
use super::kinds;
use super::lay::{Staged, lay, tree_of};
use super::{Options, Report, names};
use crate::artifact::ArtifactTree;
use crate::config::{Contents, Definition, FileKind, PackagesConfig, PackagingConfig};
use crate::error::{Error, Errors, Result};
use crate::package::spec::Name;
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
    options: &Options,
    report: &mut Report,
) -> Result<Vec<Staged<'a>>> {
    let root = &options.install_prefix;
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
                        kinds::lay_debug(tree, artifacts, artifact, prefix, root, &below, entry)
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
    Errors::check((), std::mem::take(&mut faults))?;
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
    let components = components(artifacts);
    for (definition, selectors) in config.packages.iter().zip(&selectors) {
        let wanted =
            options.only.is_empty() || options.only.iter().any(|o| concerns(o, definition));
        for selector in selectors.iter().filter(|selector| !selector.used.get()) {
            let contents = selector.contents;
            let there = components.get(contents.artifact.as_str());
            let why = match there {
                Some(_) if artifacts.iter().any(|artifact| selector.artifact(artifact)) => {
                    "no file is under such a prefix and name".to_owned()
                }
                _ if contents.optional => continue,
                Some(there) => {
                    format!("{} has the components {} only", contents.artifact, join(there))
                }
                None if wanted => {
                    let fault = format!("there is no artifact `{}`", contents.artifact);
                    let all = components.keys().copied();
                    faults.push(
                        Error::usage(fault).of(format!("package `{}`", definition.name)).hint(
                            format!(
                                "there are {}: correct the name, add the shard that has it, or say \
                             \"optional\": true where it may be absent",
                                join(all)
                            ),
                        ),
                    );
                    continue;
                }
                None => "there is no such artifact".to_owned(),
            };
            report.warnings.push(format!(
                "package {}: {} takes nothing: {why}",
                definition.name,
                serde_json::to_string(contents).unwrap_or_default(),
            ));
        }
    }
    faults.extend(archives::place(&pending, artifacts, &mut staged, takes, groups, root, report));
    Errors::check((), faults)?;
    no_path_twice(&staged)?;
    for (selectors, parts) in selectors.iter().zip(staged.chunks(kinds::PARTS.len())) {
        report.warnings.extend(kinds_of_nothing(selectors, parts, artifacts));
    }
    Ok(staged)
}

/// The components that there are of each artifact.
fn components(artifacts: &[ArtifactTree]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut components: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ArtifactTree { name, .. } in artifacts {
        components.entry(&name.artifact).or_default().insert(&name.component);
    }
    components
}

fn join<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
    names.join(", ")
}

/// Whether what `--only` names is a definition, or may be a package of it.
fn concerns(name: &str, definition: &Definition) -> bool {
    let rest = name.strip_prefix(definition.name.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Kinds that a definition names and has no file of: there is no package of them, and nobody is told by the
/// packages that there are. `parts` are what is staged of the definition.
fn kinds_of_nothing(
    selectors: &[Selector],
    parts: &[Staged],
    artifacts: &[ArtifactTree],
) -> Vec<String> {
    let empty =
        |part: &Staged| part.generic.is_empty() && part.groups.is_empty() && part.shared.is_empty();
    // That it takes nothing at all was said.
    if parts.iter().all(empty) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for part in parts.iter().filter(|part| empty(part)) {
        let (definition, Some(kind)) = (part.definition, part.kind) else { continue };
        if !definition.kinds.contains(&kind) {
            continue;
        }
        let component = kind.component();
        let mut of_component = artifacts.iter().filter(|a| a.name.component == component);
        let named =
            |a: &&ArtifactTree| selectors.iter().any(|s| s.contents.artifact == a.name.artifact);
        let why = if of_component.clone().any(|a| selectors.iter().any(|s| s.artifact(a))) {
            format!("its contents take no file of the component {component}")
        } else if of_component.any(|a| named(&a)) {
            format!("its contents leave out the component {component}")
        } else {
            let names: BTreeSet<_> =
                selectors.iter().map(|s| s.contents.artifact.as_str()).collect();
            format!("there is no component {component} of {}", join(names))
        };
        warnings.push(format!(
            "package {}: there is no {}, though `kinds` names it: {why}",
            definition.name,
            names::own(&definition.name, Some(kind)),
        ));
    }
    warnings
}

/// Two definitions may bring one path from different artifacts, or one a directory where the other has
/// a file or link: that cannot be installed together.
fn no_path_twice(staged: &[Staged]) -> Result<()> {
    let mut owner: BTreeMap<&TreePath, (Name, bool)> = BTreeMap::new();
    let mut faults = Vec::new();
    let mut told = BTreeSet::new();
    for Staged { definition, kind, generic, groups, shared } in staged {
        let name = names::own(&definition.name, *kind);
        let plain = groups.is_empty();
        let generic = std::iter::once(("generic", generic));
        let groups = groups.iter().map(|(name, tree)| (name.as_str(), tree));
        let shared = shared.iter().map(|(name, shared)| (name.as_str(), &shared.tree));
        for (part, tree) in generic.chain(groups).chain(shared) {
            let package = match (kind, part) {
                (Some(_), "generic") => name.clone(),
                (None, "generic") if plain => name.clone(),
                _ => name.with(part),
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
