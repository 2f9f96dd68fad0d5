//! Who has the libraries that the packages of a set need: the package itself, another one of the set, or
//! the distribution.
//!
//! A library is looked for where the loader does: in the folders of DT_RUNPATH (or DT_RPATH), then in those
//! of the linker's path, to which the set's own `lib` folders belong; through symbolic links, in all packages
//! at once. One that lies elsewhere in the set is private to those that find it there: it is offered to
//! nobody. What the set does not have, the distribution has, or the configuration settles; anything else is
//! a fault of the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::distro::Target;
use super::rpm;
use super::table::DebDepends;
use crate::config::Externals;
use crate::elf::Needs;
use crate::error::{Error, Errors, Result};
use crate::package::files::{DEBUG_ROOT, in_linker_path};
use crate::package::grammar::{self, rpm::Expression};
use crate::package::spec::{Name, Package, Relation, RelationKind};
use crate::tree::{Entry, EntryKind, TreePath};

/// How relations are found.
#[derive(Debug, Clone)]
pub struct Options {
    /// The distribution that packages are for.
    pub distro: Target,
    /// Whether there will be `.deb` packages. An `.rpm` can ask for a library that nobody is known to have.
    pub deb: bool,
    /// Where everything is installed: its `lib` and `lib64` are in the linker's path.
    pub install_prefix: TreePath,
}

/// Symbolic links that are followed to one file; Linux gives up after as many.
const LINKS_MAX: usize = 40;

/// Adds what the ELF files of the packages need to their relations. Returns warnings. A relation that
/// the configuration gives itself, on the same name, stands in place of the one that is found. All
/// libraries that nobody has are reported.
pub fn relate(
    packages: &mut [Package],
    externals: &Externals,
    options: &Options,
) -> Result<Vec<String>> {
    let set = Set::read(packages, options)?;
    let mut found = Vec::new();
    let mut faults = Faults::default();
    for number in 0..packages.len() {
        found.push(set.package(number, externals, options, &mut faults));
    }
    let warnings = faults.finish(packages, options)?;
    let offered: Vec<_> = found.iter().map(|found| found.rpm_provides.clone()).collect();
    for (number, found) in found.into_iter().enumerate() {
        apply(packages, number, found, &offered);
    }
    Ok(warnings)
}

/// A program or library in a package.
struct File {
    package: usize,
    path: TreePath,
    needs: Arc<Needs>,
}

/// All packages of a set, laid over each other.
struct Set<'p> {
    entries: BTreeMap<&'p TreePath, (usize, &'p Entry)>,
    files: BTreeMap<TreePath, File>,
    /// The libraries that are found by the linker's path.
    public: BTreeSet<TreePath>,
    /// Libraries by SONAME.
    by_soname: BTreeMap<String, Vec<TreePath>>,
    linker_path: Vec<TreePath>,
}

/// Relations that were found for one package.
#[derive(Default)]
struct Found {
    deb: DebDepends,
    /// Further relations of the `.deb`, as the configuration has them.
    deb_settled: BTreeSet<String>,
    rpm_requires: BTreeSet<String>,
    rpm_provides: BTreeSet<String>,
    /// Packages of the set.
    set: BTreeSet<usize>,
}

/// What does not fit, by library; with the first file that shows it and how many more.
#[derive(Default)]
struct Faults {
    nowhere: BTreeMap<String, (TreePath, usize)>,
    too_new: BTreeMap<(String, String), (TreePath, usize)>,
    /// Libraries of the set that are not where the loader looks: file, SONAME, library.
    astray: BTreeMap<(String, TreePath), (TreePath, usize)>,
}

fn count<K: Ord>(map: &mut BTreeMap<K, (TreePath, usize)>, key: K, path: &TreePath) {
    map.entry(key).or_insert_with(|| (path.clone(), 0)).1 += 1;
}

impl<'p> Set<'p> {
    fn read(packages: &'p [Package], options: &Options) -> Result<Self> {
        let mut entries = BTreeMap::new();
        let mut files = BTreeMap::new();
        let mut by_soname: BTreeMap<String, Vec<TreePath>> = BTreeMap::new();
        let mut faults = Vec::new();
        let debug_root = TreePath::new(DEBUG_ROOT).expect("a clean path");
        for (number, package) in packages.iter().enumerate() {
            // Symbols are not loaded.
            let loaded =
                package.tree.iter().filter(|(path, _)| path.strip_prefix(&debug_root).is_none());
            for (path, entry) in loaded {
                entries.entry(path).or_insert((number, entry));
                let Some(source) = entry.source() else { continue };
                let needs = match source.needs() {
                    Ok(Some(needs)) => needs,
                    Ok(None) => continue,
                    Err(e) => {
                        let message = format!("{path}: what it needs cannot be told");
                        faults.push(Error::failed(message).because(e).hint(
                            "build the file again, leave it out with `exclude`, or give all \
                             relations yourself and use --no-auto-deps",
                        ));
                        continue;
                    }
                };
                if needs.is_library {
                    let name = String::from_utf8_lossy(path.file_name()).into_owned();
                    let soname = needs.soname.clone().unwrap_or(name);
                    by_soname.entry(soname).or_default().push(path.clone());
                }
                let file = File { package: number, path: path.clone(), needs };
                files.insert(path.clone(), file);
            }
        }
        let linker_path = ["lib", "lib64"]
            .into_iter()
            .filter_map(|dir| TreePath::new(dir).ok())
            .map(|dir| options.install_prefix.join(&dir))
            .collect();
        let mut set = Self { entries, files, public: BTreeSet::new(), by_soname, linker_path };
        let public = set.entries.keys().filter(|path| set.in_linker_path(path));
        let public = public.filter_map(|path| Some(set.locate(path)?.real));
        set.public = public.filter(|path| set.files.contains_key(path)).collect();
        Errors::check(set, faults)
    }

    fn in_linker_path(&self, path: &TreePath) -> bool {
        let parent = path.parent();
        let Some(parent) = parent.as_ref() else { return false };
        self.linker_path.contains(parent) || in_linker_path(path)
    }

    /// The file at a path, through symbolic links of names and of folders.
    fn locate(&self, path: &TreePath) -> Option<Located> {
        let mut owners = BTreeSet::new();
        let mut path = path.clone();
        for _ in 0..LINKS_MAX {
            let mut above: Vec<TreePath> = path.ancestors().collect();
            above.reverse();
            above.push(path.clone());
            let link = above.into_iter().find_map(|part| match self.entries.get(&part) {
                Some((owner, Entry { kind: EntryKind::Symlink(target), .. })) => {
                    Some((part, *owner, target))
                }
                _ => None,
            });
            let Some((at, owner, target)) = link else {
                let (owner, entry) = self.entries.get(&path)?;
                owners.insert(*owner);
                let real = match &entry.kind {
                    EntryKind::HardLink(first) => first.clone(),
                    _ => path,
                };
                return Some(Located { real, owners });
            };
            owners.insert(owner);
            let to = match target.strip_prefix(b"/") {
                Some(absolute) => TreePath::new(absolute).ok()?,
                None => at.resolve_link(target)?,
            };
            path = match path.strip_prefix(&at) {
                Some(rest) => to.join(&rest),
                None => to,
            };
        }
        None
    }

    /// The library that the loader would load for a file, in the set.
    fn find(&self, file: &File, soname: &str) -> Option<Located> {
        let library = |path: &TreePath| {
            self.locate(path).filter(|located| self.files.contains_key(&located.real))
        };
        if soname.contains('/') {
            return library(&expand(file, soname)?);
        }
        let own = file.needs.runpath.as_deref().or(file.needs.rpath.as_deref()).unwrap_or("");
        let own = own.split(':').filter(|dir| !dir.is_empty());
        let own = own.flat_map(|dir| match dir.contains("$LIB") || dir.contains("${LIB}") {
            // What it stands for is the distribution's choice.
            true => ["lib", "lib64", "lib/x86_64-linux-gnu"]
                .map(|lib| dir.replace("${LIB}", lib).replace("$LIB", lib))
                .to_vec(),
            false => vec![dir.to_owned()],
        });
        let own = own.filter_map(|dir| expand(file, &dir));
        let name = TreePath::new(soname).ok()?;
        let system = ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "lib64", "lib"];
        let system = system.into_iter().filter_map(|dir| TreePath::new(dir).ok());
        own.chain(self.linker_path.iter().cloned())
            .chain(system)
            .find_map(|dir| library(&dir.join(&name)))
    }

    /// The relations of one package.
    fn package(
        &self,
        number: usize,
        externals: &Externals,
        options: &Options,
        faults: &mut Faults,
    ) -> Found {
        let mut found = Found::default();
        for file in self.files.values().filter(|file| file.package == number) {
            if self.public.contains(&file.path) {
                let name = String::from_utf8_lossy(file.path.file_name());
                found.rpm_provides.extend(rpm::provides(&file.needs, &name));
            }
            if rpm::needs_gnu_hash(&file.needs) {
                found.rpm_requires.insert(rpm::GNU_HASH.to_owned());
            }
            let mut wanted: Vec<&str> = file.needs.needed.iter().map(String::as_str).collect();
            for (soname, _) in &file.needs.versions_needed {
                if !wanted.contains(&soname.as_str()) {
                    wanted.push(soname);
                }
            }
            for soname in wanted {
                self.library(file, soname, externals, options, &mut found, faults);
            }
        }
        found
    }

    fn library(
        &self,
        file: &File,
        soname: &str,
        externals: &Externals,
        options: &Options,
        found: &mut Found,
        faults: &mut Faults,
    ) {
        if let Some(located) = self.find(file, soname) {
            return self.in_set(file, soname, &located, found);
        }
        let entry = externals.of(soname);
        if entry == Some(&None) {
            // Nothing is to be asked for.
            return;
        }
        let entry = entry.and_then(Option::as_ref);
        let table = options.distro.table();
        if entry.is_none()
            && !table.has(soname)
            && let Some(library) = self.by_soname.get(soname).and_then(|all| all.first())
        {
            // Another library may have loaded it before, or LD_LIBRARY_PATH lead there.
            count(&mut faults.astray, (soname.to_owned(), library.clone()), &file.path);
            let located = Located { real: library.clone(), owners: BTreeSet::new() };
            return self.in_set(file, soname, &located, found);
        }
        match entry.and_then(|entry| entry.rpm.as_deref()) {
            Some("") => {}
            Some(relation) => {
                found.rpm_requires.insert(relation.to_owned());
            }
            None => capabilities(file, soname, found),
        }
        match entry.and_then(|entry| entry.deb.as_deref()) {
            _ if !options.deb => {}
            Some("") => {}
            Some(relation) => {
                found.deb_settled.insert(relation.to_owned());
            }
            None => match table.relate(soname, &file.needs, &mut found.deb) {
                Some(missing) => {
                    for version in missing {
                        let key = (soname.to_owned(), version.to_owned());
                        count(&mut faults.too_new, key, &file.path);
                    }
                }
                None => count(&mut faults.nowhere, soname.to_owned(), &file.path),
            },
        }
    }

    /// A library that the set has.
    fn in_set(&self, file: &File, soname: &str, located: &Located, found: &mut Found) {
        let holder = self.files.get(&located.real).map(|library| library.package);
        let elsewhere = holder.is_some_and(|holder| holder != file.package);
        if elsewhere && self.public.contains(&located.real) {
            capabilities(file, soname, found);
        }
        // Those of links on the way to it as well.
        let others = located.owners.iter().copied().chain(holder);
        found.set.extend(others.filter(|owner| *owner != file.package));
    }
}

/// A file that was found, and the packages on the way to it.
struct Located {
    real: TreePath,
    owners: BTreeSet<usize>,
}

/// What an `.rpm` requires for one library of a file.
fn capabilities(file: &File, soname: &str, found: &mut Found) {
    if file.needs.needed.iter().any(|needed| needed == soname) {
        found.rpm_requires.extend(rpm::capability(soname, None));
    }
    let of_it = file.needs.versions_needed.iter().filter(|(name, _)| name == soname);
    for version in of_it.flat_map(|(_, versions)| versions) {
        found.rpm_requires.extend(rpm::capability(soname, Some(version)));
    }
}

/// A folder of DT_RUNPATH, or a needed path, without `$ORIGIN`; `None` where it is relative to wherever the
/// program is started, or outside of any package.
fn expand(file: &File, text: &str) -> Option<TreePath> {
    let text = text.trim_end_matches('/');
    for origin in ["$ORIGIN", "${ORIGIN}"] {
        if let Some(rest) = text.strip_prefix(origin) {
            // As a link would lead there from beside the file.
            return match rest.trim_start_matches('/') {
                "" => file.path.parent(),
                rest => file.path.resolve_link(rest.as_bytes()),
            };
        }
    }
    let absolute = text.strip_prefix('/')?;
    // The file's name is no part of what an absolute path leads from.
    let mut parts: Vec<&str> = Vec::new();
    for part in absolute.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    TreePath::new(parts.join("/")).ok()
}

impl Faults {
    /// The faults as errors; else the warnings.
    fn finish(self, packages: &[Package], options: &Options) -> Result<Vec<String>> {
        let distro = &options.distro;
        let in_package = |path: &TreePath| {
            let package = packages.iter().find(|package| package.tree.get(path).is_some());
            package.map_or("", |package| package.name.as_str())
        };
        let more = |all: usize| match all {
            1 => String::new(),
            _ => format!(" (and {} more files)", all - 1),
        };
        let mut errors = Vec::new();
        for (soname, (path, all)) in &self.nowhere {
            let (package, more) = (in_package(path), more(*all));
            errors.push(
                Error::usage(format!(
                    "package `{package}`: {path}{more} needs {soname}, which is neither in the set nor in {}",
                    distro.table_name()
                ))
                .hint(format!(
                    "say who has it in `externals` of the packages file, as {{\"{soname}\": {{\"deb\": \
                     \"PACKAGE\"}}}}, or {{\"{soname}\": null}} to ask for nothing; --no-auto-deps looks at no \
                     library"
                )),
            );
        }
        for ((soname, version), (path, all)) in &self.too_new {
            let (package, more) = (in_package(path), more(*all));
            errors.push(
                Error::usage(format!(
                    "package `{package}`: {path}{more} needs {version} of {soname}, which {distro} does not have"
                ))
                .hint(format!(
                    "it was built on a later system: build it on {distro}, name the distribution that the \
                     packages are for with --target-distro, or settle {soname} in `externals`"
                )),
            );
        }
        let warn = |((soname, library), (path, all)): (&(String, TreePath), &(TreePath, usize))| {
            format!(
                "{path}{} needs {soname}, and the loader finds it neither by DT_RUNPATH nor in the linker's \
                 path: {library} is taken to be loaded before",
                more(*all)
            )
        };
        Errors::check(self.astray.iter().map(warn).collect(), errors)
    }
}

/// The names that relations of a control file speak of.
fn deb_names(relations: &[String]) -> impl Iterator<Item = String> {
    let read = relations.iter().filter_map(|text| grammar::deb::parse(text, "depends").ok());
    read.flatten().flatten().map(|relation| relation.name.deb())
}

/// The names that relations of a spec file speak of. What a rich one says of a name is not the whole of it.
fn rpm_names(relations: &[String]) -> impl Iterator<Item = String> {
    let read = relations.iter().filter_map(|text| grammar::rpm::parse(text, "requires").ok());
    read.flatten().filter_map(|expression| match expression {
        Expression::Simple(relation) => Some(relation.name.rpm().to_owned()),
        Expression::Rich { .. } => None,
    })
}

/// Puts what was found into a package, but for what the configuration speaks of itself. `offered` are the
/// capabilities of each package's libraries.
fn apply(packages: &mut [Package], number: usize, mut found: Found, offered: &[BTreeSet<String>]) {
    let names: Vec<Name> = found.set.iter().map(|&other| packages[other].name.clone()).collect();
    let Some(package) = packages.get_mut(number) else { return };
    let given = |map: &BTreeMap<String, Vec<String>>, keys: &[&str]| -> Vec<String> {
        keys.iter().filter_map(|key| map.get(*key)).flatten().cloned().collect()
    };
    let deb_given = given(&package.deb, &["pre-depends", "depends", "recommends", "suggests"]);
    let deb_given: BTreeSet<String> = deb_names(&deb_given).collect();
    let rpm_given = given(&package.rpm, &["requires", "recommends", "suggests"]);
    let rpm_given: BTreeSet<String> = rpm_names(&rpm_given).collect();

    // A package that is only recommended is no longer needed for its libraries either.
    let weak: BTreeSet<String> =
        rpm_names(&given(&package.rpm, &["recommends", "suggests"])).collect();
    for (&other, name) in found.set.iter().zip(&names) {
        if weak.contains(name.rpm()) {
            found.rpm_requires.retain(|capability| !offered[other].contains(capability));
        }
    }

    let version = package.full_version();
    let depends = package.relations.entry(RelationKind::Depends).or_default();
    for name in names {
        let exactly = Relation::exactly(name, version.clone());
        match (deb_given.contains(&exactly.name.deb()), rpm_given.contains(exactly.name.rpm())) {
            (true, true) => continue,
            (true, false) => {
                found.rpm_requires.insert(exactly.rpm());
                continue;
            }
            (false, true) => {
                found.deb_settled.insert(exactly.deb());
                continue;
            }
            (false, false) => {}
        }
        // More than what `depends` of the definition says of it.
        depends.retain(|relation| relation.name != exactly.name);
        depends.push(exactly);
    }
    if depends.is_empty() {
        package.relations.remove(&RelationKind::Depends);
    }
    let found_deb = found.deb.list().into_iter().chain(found.deb_settled);
    add(&mut package.deb, "depends", found_deb, |relation| {
        let relation = [relation.clone()];
        deb_names(&relation).any(|name| deb_given.contains(&name))
    });
    let replaced = |relation: &String| {
        rpm_names(std::slice::from_ref(relation)).any(|name| rpm_given.contains(&name))
    };
    add(&mut package.rpm, "requires", found.rpm_requires.into_iter(), replaced);
    add(&mut package.rpm, "provides", found.rpm_provides.into_iter(), |_| false);
}

fn add(
    map: &mut BTreeMap<String, Vec<String>>,
    key: &str,
    found: impl Iterator<Item = String>,
    replaced: impl Fn(&String) -> bool,
) {
    let mut list = map.remove(key).unwrap_or_default();
    for relation in found {
        if !list.contains(&relation) && !replaced(&relation) {
            list.push(relation);
        }
    }
    if !list.is_empty() {
        map.insert(key.to_owned(), list);
    }
}
