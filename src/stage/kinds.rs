//! Files by kind: which of a definition's files are for development, documentation, tests or debugging,
//! and the packages that these get, with what belongs to any of a definition's packages alone: licence
//! text, alternatives, accepted findings of lintian.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use super::lay::Shared;
use super::lay::{Staged, lay};
use super::names;
use super::relate::{Relating, give, shared_by};
use crate::artifact::ArtifactTree;
use crate::config::{Contents, Definition, FileKind, PackageOf};
use crate::elf::{self, ElfError};
use crate::error::{Error, Errors, Result};
use crate::package::lint::Override;
use crate::package::render::hex;
use crate::package::scripts::{Alternative, Follower};
use crate::package::spec::{Arch, Kind, Name, Package, Relation, RelationKind};
use crate::package::{DEBUG_ROOT, is_library_name};
use crate::read_at::ReadAt;
use crate::tree::{Entry, EntryKind, Source, Tree, TreePath};

/// What a definition's files fall into: those of no kind of their own first.
pub(super) const PARTS: [Option<FileKind>; 5] =
    [None, Some(FileKind::Dev), Some(FileKind::Doc), Some(FileKind::Tests), Some(FileKind::Debug)];

/// As much of two files is compared at a time.
const COMPARED: u64 = 256 << 10;
/// The longest licence text.
const LICENSE_MAX: u64 = 1 << 20;

/// The index among the staged of a definition's part.
pub(super) fn part(definition: usize, kind: Option<FileKind>) -> usize {
    let at = PARTS.iter().position(|part| *part == kind).unwrap_or_default();
    definition * PARTS.len() + at
}

/// The kind of a file that an entry of a definition's contents takes; `None` where it belongs into the
/// definition's own packages. `below` is its path under the prefix.
pub(super) fn of(
    definition: &Definition,
    contents: &Contents,
    component: &str,
    below: &TreePath,
    entry: Option<&Entry>,
) -> Option<FileKind> {
    let by_component = || {
        FileKind::ALL
            .into_iter()
            .find(|kind| kind.component() == component && definition.kinds.contains(kind))
    };
    let by_name = || {
        let is_link = entry.is_some_and(|entry| is_dev_link(below, entry));
        (definition.dev_links && is_link).then_some(FileKind::Dev)
    };
    contents.kind.or_else(by_component).or_else(by_name)
}

/// Whether it is a link as `librocblas.so` → `librocblas.so.5`, which only a linker needs.
fn is_dev_link(below: &TreePath, entry: &Entry) -> bool {
    let EntryKind::Symlink(target) = &entry.kind else { return false };
    let target = target.rsplit(|&b| b == b'/').next().unwrap_or_default();
    is_library_name(below)
        && below.file_name().ends_with(b".so")
        && target.starts_with(b"lib")
        && target.windows(4).any(|part| part == b".so.")
}

/// Puts debug symbols where debuggers look: by build id, or, where a file has none, by the path of what
/// it was taken out of. What is no ELF file stays under the install prefix. `artifacts` are all that are laid.
pub(super) fn lay_debug(
    tree: &mut Tree,
    artifacts: &[ArtifactTree],
    artifact: &ArtifactTree,
    prefix: &TreePath,
    root: &TreePath,
    below: &TreePath,
    entry: &Entry,
) -> Result<(), Error> {
    let source = match &entry.kind {
        EntryKind::HardLink(first) => artifact.tree.get(first).and_then(Entry::source),
        _ => entry.source(),
    };
    let Some(source) = source else { return lay(tree, artifact, prefix, root, below, entry) };
    let label = || format!("{}/{}", artifact.name, prefix.join(below));
    let id = match symbols(source) {
        Ok(Symbols::Elf(id)) => id,
        Ok(Symbols::NotElf) => return lay(tree, artifact, prefix, root, below, entry),
        Err(e) => {
            let what = format!("{}: the build id cannot be read", label());
            return Err(Error::failed(what).because(e));
        }
    };
    let debug = TreePath::new(DEBUG_ROOT).expect("a clean path");
    let to = match &id {
        Some(id) => {
            let hex = hex(id);
            let (first, rest) = hex.split_at(2);
            TreePath::new(format!(".build-id/{first}/{rest}.debug"))
                .expect("hex makes a clean path")
        }
        None => root.join(below),
    };
    let there = id.as_ref().and_then(|_| tree.get(&debug.join(&to))?.source());
    if let Some(there) = there {
        let is_same = is_same(source, there).map_err(|e| {
            Error::failed(format!("{}: cannot be compared with the file of its build id", label()))
                .because(e)
        })?;
        if is_same {
            // The same symbols under a second name.
            return Ok(());
        }
        let name = |artifact: &ArtifactTree| {
            let mut entries = artifact.tree.iter();
            let is_first = |entry: &Entry| entry.source().is_some_and(|source| source.is(there));
            let (path, _) = entries.find(|(_, entry)| is_first(entry))?;
            Some(format!("{}/{path}", artifact.name))
        };
        let first = artifacts.iter().find_map(name).unwrap_or_default();
        let message = format!(
            "{} and {first} have one build id, {}, and are different",
            label(),
            hex(&id.unwrap_or_default())
        );
        return Err(Error::failed(message).hint(
            "debuggers look for one file by a build id: leave the other out with `exclude`, or link the two so that \
             their build ids differ",
        ));
    }
    let entry = Entry { mode: 0o644, mtime: entry.mtime, kind: EntryKind::File(source.clone()) };
    lay(tree, artifact, prefix, &debug, &to, &entry)
}

/// Whether two files have the same content.
fn is_same(one: &Source, other: &Source) -> io::Result<bool> {
    if one.is(other) || one.len() != other.len() {
        return Ok(one.is(other));
    }
    let (mut ones, mut others) = (one.open()?, other.open()?);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    loop {
        here.clear();
        there.clear();
        ones.by_ref().take(COMPARED).read_to_end(&mut here)?;
        others.by_ref().take(COMPARED).read_to_end(&mut there)?;
        if here != there || here.is_empty() {
            return Ok(here == there);
        }
    }
}

/// What a file of the kind `debug` is.
enum Symbols {
    NotElf,
    Elf(Option<Vec<u8>>),
}

fn symbols(source: &Source) -> Result<Symbols, ElfError> {
    let of = |r: &dyn ReadAt| {
        let mut magic = [0; 4];
        if r.len() < 4 {
            return Ok(Symbols::NotElf);
        }
        r.read_exact_at(&mut magic, 0).map_err(unreadable)?;
        if magic == *b"\x7fELF" { Ok(Symbols::Elf(elf::build_id(r)?)) } else { Ok(Symbols::NotElf) }
    };
    match source {
        Source::File(input) | Source::Pieces { input, .. } => {
            of(&input.open().map_err(unreadable)?)
        }
        Source::Bytes(bytes) => of(&&**bytes),
        Source::Kpack(_) | Source::Kpm(_) => Ok(Symbols::NotElf),
    }
}

fn unreadable(source: io::Error) -> ElfError {
    ElfError::Read { what: "the ELF header".into(), offset: 0, source }
}

/// What definitions give beside packages for host and device code.
pub(super) struct Parts<'a> {
    /// The package with host code (or the only one) of each definition that has one.
    hosts: BTreeMap<&'a str, Name>,
    /// The kinds that each definition has files of.
    kinds: BTreeMap<&'a str, BTreeSet<FileKind>>,
    /// Licence texts by definition.
    licenses: BTreeMap<&'a str, String>,
    /// Alternatives whose file no package had so far: definition and path.
    unused: RefCell<BTreeSet<(&'a str, &'a str)>>,
}

impl<'a> Parts<'a> {
    /// Looks through the staged trees.
    pub(super) fn of(staged: &[Staged<'a>], root: &TreePath) -> Result<Self> {
        let mut parts = Self {
            hosts: BTreeMap::new(),
            kinds: BTreeMap::new(),
            licenses: BTreeMap::new(),
            unused: RefCell::default(),
        };
        let mut faults = Vec::new();
        for Staged { definition, kind, generic, groups, .. } in staged {
            let name = definition.name.as_str();
            match kind {
                None if !groups.is_empty() => {
                    parts.hosts.insert(name, names::generic(name));
                }
                None if !generic.is_empty() => {
                    parts.hosts.insert(name, names::own(name, None));
                }
                Some(kind) if !generic.is_empty() || !groups.is_empty() => {
                    parts.kinds.entry(name).or_default().insert(*kind);
                }
                _ => {}
            }
            let alternatives = definition.alternatives.iter();
            parts.unused.borrow_mut().extend(alternatives.map(|a| (name, a.path.as_str())));
            let Some(file) = &definition.license_file else { continue };
            let at = TreePath::new(file).ok().map(|file| root.join(&file));
            if let Some(entry) = at.and_then(|at| generic.get(&at)) {
                // Another name of a file that the definition takes as well.
                let entry = match &entry.kind {
                    EntryKind::HardLink(first) => generic.get(first).unwrap_or(entry),
                    _ => entry,
                };
                match license(entry) {
                    Ok(text) => drop(parts.licenses.insert(name, text)),
                    Err(what) => faults.push(Error::failed(format!(
                        "package `{name}`: the licence {file} {what}"
                    ))),
                }
            }
        }
        let all = staged.iter().filter(|s| s.kind.is_none());
        let empty = |s: &&Staged| {
            !parts.hosts.contains_key(&*s.definition.name)
                && !parts.kinds.contains_key(&*s.definition.name)
        };
        for Staged { definition, .. } in all.filter(|s| !empty(s)) {
            let Some(file) = &definition.license_file else { continue };
            if !parts.licenses.contains_key(&*definition.name) && faults.is_empty() {
                let what = format!(
                    "package `{}` has no file {file} to take the licence from",
                    definition.name
                );
                faults.push(Error::usage(what).hint(
                    "license_file is a path below the install prefix, of a file for every GPU that the definition takes",
                ));
            }
        }
        Errors::check(parts, faults)
    }

    /// Gives a package what the configuration has for it: licence text, alternatives, overrides.
    pub(super) fn own(&self, definition: &'a Definition, root: &TreePath, package: &mut Package) {
        package.license_text = self.licenses.get(&*definition.name).cloned();
        let (of, group) = match &package.kind {
            Kind::Generic | Kind::Plain => (PackageOf::Host, ""),
            Kind::Group { group } => (PackageOf::Group, group.as_str()),
            // What groups share is nobody's alone.
            Kind::Shared { .. } => return,
            Kind::Meta => (PackageOf::Meta, ""),
            Kind::Dev => (PackageOf::Dev, ""),
            Kind::Doc => (PackageOf::Doc, ""),
            Kind::Tests => (PackageOf::Tests, ""),
            Kind::Debug => (PackageOf::Debug, ""),
        };
        let full =
            |path: &str| path.replace("{prefix}", &format!("/{root}")).replace("{group}", group);
        let has = |path: &str| {
            let path = TreePath::new(path.trim_start_matches('/'));
            path.is_ok_and(|path| package.tree.get(&path).is_some_and(|entry| !entry.is_dir()))
        };
        let mut alternatives = Vec::new();
        for config in definition.alternatives.iter().filter(|a| a.package == of) {
            let path = full(&config.path);
            if !has(&path) {
                continue;
            }
            self.unused.borrow_mut().remove(&(definition.name.as_str(), config.path.as_str()));
            // update-alternatives passes over a follower whose file is not there.
            let followers = config.followers.iter().map(|follower| Follower {
                link: follower.link.clone(),
                name: follower.name.clone(),
                path: full(&follower.path),
            });
            alternatives.push(Alternative {
                link: config.link.clone(),
                name: config.name.clone(),
                path,
                priority: config.priority,
                followers: followers.collect(),
            });
        }
        package.alternatives = alternatives;
        let overrides = definition.lintian_overrides.iter().filter(|o| o.package == of);
        package.lintian_overrides = overrides
            .map(|o| Override {
                tag: o.tag.clone(),
                context: o.context.clone(),
                reason: o.reason.clone(),
            })
            .collect();
    }

    /// Alternatives that no package has a file for.
    pub(super) fn unused_alternatives(&self) -> Vec<Error> {
        let fault = |(name, path): &(&str, &str)| {
            Error::usage(format!("package `{name}`: no package has the file of the alternative {path}"))
                .hint("`in` says which of the definition's packages has it: host (where it is left out), group, dev, doc, tests")
        };
        self.unused.borrow().iter().map(fault).collect()
    }
}

fn license(entry: &Entry) -> Result<String, String> {
    let source = entry.source().ok_or("is no file")?;
    if source.len().is_none_or(|len| len > LICENSE_MAX) {
        return Err(format!("is longer than {LICENSE_MAX} bytes"));
    }
    let mut text = Vec::new();
    source.copy_to(&mut text).map_err(|e| format!("cannot be read: {e}"))?;
    let text = String::from_utf8(text).map_err(|_| "is not UTF-8".to_owned())?;
    if text.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    // A tab or form feed would not do in a control file's paragraph.
    let clean = |line: &str| line.replace('\t', "    ").replace(char::is_control, "");
    Ok(text.lines().map(clean).collect::<Vec<_>>().join("\n"))
}

/// Adds a paragraph to a package's description.
pub(super) fn add_paragraph(package: &mut Package, text: &str) {
    let description = package.description.trim_end();
    package.description = match description {
        "" => text.to_owned(),
        description => format!("{description}\n\n{text}"),
    };
}

impl<'a> Relating<'a> {
    /// Adds the packages of one kind: one, one for each group that has device code of that kind, and what such groups share.
    pub(super) fn of_kind(
        &self,
        definition: &'a Definition,
        kind: FileKind,
        generic: Tree,
        groups: BTreeMap<String, Tree>,
        shared: BTreeMap<String, Shared>,
        made: &mut Vec<Package>,
    ) {
        if generic.is_empty() && groups.is_empty() {
            return;
        }
        let own = names::own(&definition.name, Some(kind));
        let (spec, suffix, section, text) = match kind {
            FileKind::Dev => (
                Kind::Dev,
                " (development files)",
                Some("libdevel"),
                "This package has what building programs with it needs.",
            ),
            FileKind::Doc => {
                (Kind::Doc, " (documentation)", Some("doc"), "This package has the documentation.")
            }
            FileKind::Tests => (Kind::Tests, " (tests)", None, "This package has the tests."),
            FileKind::Debug => (
                Kind::Debug,
                " (debug symbols)",
                Some("debug"),
                "This package has the debug symbols.",
            ),
        };
        let host = self.parts.hosts.get(&*definition.name);
        let describe = |package: &mut Package| {
            package.summary += suffix;
            if definition.section.is_none()
                && let Some(section) = section
            {
                package.section = section.to_owned();
            }
            add_paragraph(package, text);
            if kind == FileKind::Debug {
                package.build_ids = build_ids(&package.tree);
            }
        };
        for (group, tree) in groups {
            let mut package = self.group_package(definition, &own, &group, tree);
            describe(&mut package);
            let version = package.full_version();
            package.relate(RelationKind::Depends, Relation::exactly(&own, &version));
            for target in shared_by(&shared, &group) {
                package
                    .relate(RelationKind::Depends, Relation::exactly(own.with(target), &version));
            }
            // Documentation is read without the library, too.
            let has_main = self.groups_of(definition).is_some_and(|all| all.contains(&group));
            if has_main && kind != FileKind::Doc {
                let main = Relation::exactly(names::group(&definition.name, &group), &version);
                package.relate(RelationKind::Depends, main);
            }
            let kernels = Relation::exactly(names::kernels(&own), &version);
            package.relate(RelationKind::Provides, kernels);
            if kind == FileKind::Tests {
                give(&mut package, &definition.relations.tests_group);
            }
            made.push(package);
        }
        for (target, shared) in shared {
            let mut package = self.shared_package(definition, &own, &target, shared);
            describe(&mut package);
            let version = package.full_version();
            package.relate(RelationKind::Depends, Relation::exactly(&own, version));
            made.push(package);
        }
        let mut package = self.package(definition, &own, spec, generic);
        describe(&mut package);
        let version = package.full_version();
        if let Some(host) = host {
            // Documentation is read without the library, too.
            let relation = match kind {
                FileKind::Doc => (RelationKind::Enhances, Relation::any(host)),
                _ => (RelationKind::Depends, Relation::exactly(host, &version)),
            };
            package.relate(relation.0, relation.1);
        }
        match kind {
            FileKind::Dev => {
                let with_dev = definition.depends.iter().filter(|other| {
                    self.parts.kinds.get(other.as_str()).is_some_and(|k| k.contains(&FileKind::Dev))
                });
                for other in with_dev {
                    let other = Relation::at_least(names::own(other, Some(kind)), &version);
                    package.relate(RelationKind::Depends, other);
                }
            }
            FileKind::Doc if !has_machine_code(&package.tree) => package.arch = Arch::Independent,
            FileKind::Doc | FileKind::Debug | FileKind::Tests => {}
        }
        give(&mut package, definition.relations.of(kind));
        made.push(package);
    }
}

/// Whether a tree has programs, libraries, objects or archives of objects, for whatever machine: a package for any machine
/// must have none (Debian policy 5.6.8; rpmbuild refuses them). A file that cannot be read has none: copying it will tell.
fn has_machine_code(tree: &Tree) -> bool {
    let is_code = |source: &Source| {
        let mut head = Vec::with_capacity(8);
        let read = source.open().and_then(|reader| reader.take(8).read_to_end(&mut head));
        read.is_ok() && (head.starts_with(b"\x7fELF") || head == b"!<arch>\n")
    };
    tree.iter().filter_map(|(_, entry)| entry.source()).any(is_code)
}

/// The build ids in a tree of debug symbols, in hex.
fn build_ids(tree: &Tree) -> Vec<String> {
    let folder = format!("{DEBUG_ROOT}/.build-id/");
    let ids = tree.iter().filter_map(|(path, _)| {
        let path = path.as_str()?.strip_prefix(&folder)?.strip_suffix(".debug")?;
        Some(path.replace('/', ""))
    });
    ids.collect()
}
