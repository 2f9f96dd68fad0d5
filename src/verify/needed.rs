//! Invariant 2, between files: the libraries that host code needs (`DT_NEEDED`) are there.
//!
//! A library of the artifacts must be where the loader looks for it: in the folders of `DT_RUNPATH`
//! (of `DT_RPATH`, where there is no other), with `$ORIGIN` for the folder of the file that needs it;
//! then in those that the system's configuration names, for which the `lib` folders of the install
//! prefix stand here. Source: ld.so(8), "DESCRIPTION".
//!
//! A library that no artifact brings is another matter: a build is packaged in pieces, and one piece
//! cannot know the rest. It is an error where it is known to be wrong: the input brings it, or the
//! caller has named all that may come from elsewhere. Otherwise it is a warning, one for each library
//! however many files need it. Packages say by their relations who has it: there it is one where nobody is asked
//! for it, and else only listed.

use std::collections::{BTreeMap, BTreeSet};

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::Serialize;

use super::file::Facts;
use super::finding::{Check, Finding};
use super::host::ProgramFacts;
use super::layout::{Installed, installed_path};
use super::{Checked, Options};
use crate::artifact::Shard;
use crate::progress::Monitor;
use crate::tree::TreePath;

/// The base system's libraries.
const BASE: &str = include_str!("external.txt");

/// Folders below the install prefix that the system's loader is told of, as `/etc/ld.so.conf.d` does
/// or the distribution's default.
const SYSTEM: [&str; 6] =
    ["lib", "lib64", "lib/x86_64-linux-gnu", "usr/lib", "usr/lib64", "usr/lib/x86_64-linux-gnu"];

/// Whether every system has a library of this name.
pub(super) fn is_base(soname: &str) -> bool {
    Externals::new(&[], &[]).has(soname)
}

/// Says who needs the libraries that are only listed.
pub(super) fn tell(needs: &[ExternalNeed], monitor: &dyn Monitor) {
    for ExternalNeed { soname, needed_by, files } in needs {
        let more = if *files > 1 { format!(" and {} more", files - 1) } else { String::new() };
        monitor.detail(&format!("{soname} is in no package; needed by {needed_by}{more}"));
    }
}

/// A library that comes from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExternalNeed {
    /// Its SONAME.
    pub soname: String,
    /// The first file that needs it, as `artifact/path`.
    pub needed_by: String,
    /// How many files need it.
    pub files: usize,
}

/// What may come from elsewhere.
struct Externals {
    base: GlobSet,
    named: GlobSet,
    /// All of it is named: anything else is missing.
    all: bool,
}

impl Externals {
    /// `named` are all that may come from elsewhere, where there is any; `known` are some.
    fn new(named: &[Glob], known: &[Glob]) -> Self {
        let lines = BASE.lines().map(str::trim);
        let base = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let set = |globs: &mut dyn Iterator<Item = Glob>| {
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                set.add(glob);
            }
            set.build().unwrap_or_default()
        };
        Self {
            base: set(&mut base.filter_map(|line| Glob::new(line).ok())),
            named: set(&mut named.iter().chain(known).cloned()),
            all: !named.is_empty(),
        }
    }

    fn has(&self, soname: &str) -> bool {
        self.base.is_match(soname) || self.named.is_match(soname)
    }
}

/// Whether a package (its file) has a relation to something outside of the set that can bring a library.
pub(super) type Asks<'a> = &'a dyn Fn(&str, &str) -> bool;

/// The files that need a library which nobody brings.
#[derive(Default)]
struct Needing<'c> {
    /// The first, as artifact and path.
    first: Option<(&'c str, &'c TreePath)>,
    all: usize,
    /// The first of those that ask nobody for it.
    asking_nobody: Vec<(&'c str, &'c TreePath)>,
    all_asking_nobody: usize,
    /// What is missing is an error of each file already.
    told: bool,
}

/// How many of the files that need a library are named.
const NAMED: usize = 4;

impl<'c> Needing<'c> {
    fn add(&mut self, label: &'c str, path: &'c TreePath, asks: bool) {
        self.first.get_or_insert((label, path));
        self.all += 1;
        if !asks {
            self.all_asking_nobody += 1;
            if self.asking_nobody.len() < NAMED {
                self.asking_nobody.push((label, path));
            }
        }
    }

    /// One warning for a library that may come from elsewhere or was left out.
    fn warning(&self, soname: &str, packaged: bool) -> Option<Finding> {
        let ((artifact, path), others) = self.asking_nobody.split_first()?;
        let mut message = if packaged {
            format!(
                "needs `{soname}`, which no package of the set brings, and asks none from elsewhere for it"
            )
        } else {
            format!("needs `{soname}`, which no artifact brings")
        };
        if !others.is_empty() {
            let names: Vec<_> =
                others.iter().map(|(label, path)| format!("{label}/{path}")).collect();
            let so_do = if self.all_asking_nobody == 2 { "so does" } else { "so do" };
            message = format!("{message}; {so_do} {}", names.join(", "));
            let more = self.all_asking_nobody - self.asking_nobody.len();
            if more > 0 {
                message = format!("{message} and {more} more");
            }
        }
        let expected = if packaged {
            format!(
                "the library in a package of the set, a relation to the one that has it, or --external '{soname}'"
            )
        } else {
            format!(
                "the library in one of the artifacts, or that it comes from elsewhere: --external '{soname}'"
            )
        };
        let path = path.to_string();
        let finding = Finding::new(Check::NeededMissing, artifact, &path, message, expected);
        Some(finding.warning().told(
            "the library was left out, or comes from elsewhere and nobody has said so",
            "bring the library, or name all that come from elsewhere with --external GLOB; those in `externals` of the \
             packages file count with --packages FILE",
        ))
    }
}

/// Finds what each program needs; returns what no artifact brings and no list names. `asks` is of packages, which are
/// not held against an input.
pub(super) fn check(
    checked: &[Checked],
    options: &Options,
    asks: Option<Asks>,
    findings: &mut Vec<Finding>,
) -> Vec<ExternalNeed> {
    let source = if asks.is_some() { None } else { options.source };
    let externals = Externals::new(&options.external, &options.known_external);
    let layout = Installed::of(checked, 0..checked.len());
    // By name, since the loader goes by it, and by SONAME, under which one that is loaded is known.
    let mut brought: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, place) in layout.files(checked) {
        if let Ok(name) = std::str::from_utf8(path.file_name())
            && name.contains(".so")
        {
            brought.entry(name).or_default().insert(place);
        }
    }
    for (artifact, path, program) in programs(checked) {
        if let Some(soname) = &program.soname {
            brought.entry(soname).or_default().insert(format!("{}/{path}", artifact.label));
        }
    }
    let input = source.map(names).unwrap_or_default();
    let mut elsewhere: BTreeMap<&str, Needing> = BTreeMap::new();
    for (artifact, path, program) in programs(checked) {
        let mut add = |check, message: String, expected: String| {
            let file = path.to_string();
            findings.push(Finding::new(check, &artifact.label, &file, message, expected));
        };
        let needed: BTreeSet<&str> = program.needed.iter().map(String::as_str).collect();
        for soname in needed {
            match brought.get(soname) {
                Some(places) => {
                    let folders = search(artifact, path, program, &layout);
                    let found = folders.iter().any(|folder| layout.has(checked, folder, soname));
                    if !found && !externals.has(soname) && !folders.is_empty() {
                        let first = places.first().map(String::as_str).unwrap_or_default();
                        add(
                            Check::NeededUnreachable,
                            format!("needs `{soname}`, which is at {first}, where the loader does not look"),
                            "the library in a lib folder of the prefix, or its folder in DT_RUNPATH"
                                .to_owned(),
                        );
                    }
                }
                None if externals.has(soname) => {}
                None => {
                    let needing = elsewhere.entry(soname).or_default();
                    let asked = asks.is_some_and(|asks| asks(&artifact.label, soname));
                    needing.add(&artifact.label, path, asked);
                    if let Some(origin) = input.get(soname) {
                        add(
                            Check::NeededMissing,
                            format!("needs `{soname}`, which no artifact brings"),
                            format!("the library that the input has at {origin}"),
                        );
                        needing.told = true;
                    } else if externals.all {
                        add(
                            Check::NeededMissing,
                            format!("needs `{soname}`, which no artifact brings"),
                            "a library of these artifacts, or one that --external names".to_owned(),
                        );
                        needing.told = true;
                    }
                }
            }
        }
    }
    let untold = elsewhere.iter().filter(|(_, needing)| !needing.told);
    findings.extend(untold.filter_map(|(soname, needing)| needing.warning(soname, asks.is_some())));
    let need = |(soname, needing): (&str, Needing)| ExternalNeed {
        soname: soname.to_owned(),
        needed_by: needing.first.map(|(label, path)| format!("{label}/{path}")).unwrap_or_default(),
        files: needing.all,
    };
    elsewhere.into_iter().map(need).collect()
}

/// Host code that is loaded; files that hold debug information say what their originals need.
fn programs<'c>(
    checked: &'c [Checked],
) -> impl Iterator<Item = (&'c Checked<'c>, &'c TreePath, &'c ProgramFacts)> {
    let loaded = checked.iter().filter(|checked| checked.artifact.name.component != "dbg");
    loaded.flat_map(|artifact| {
        artifact.facts.iter().filter_map(move |(path, facts)| match facts {
            Facts::Program(program) => Some((artifact, *path, program)),
            _ => None,
        })
    })
}

/// The installed folders in which the loader looks for what a file needs, in order; empty where the
/// file is not installed.
fn search(
    artifact: &Checked,
    path: &TreePath,
    program: &ProgramFacts,
    layout: &Installed,
) -> Vec<TreePath> {
    let Some(installed) = installed_path(artifact, path) else { return Vec::new() };
    let mut folders = Vec::new();
    for entry in program.search.iter().flat_map(|list| list.split(':')) {
        let below = ["$ORIGIN", "${ORIGIN}"].iter().find_map(|word| entry.strip_prefix(word));
        match below {
            // A path relative to the file is what a link beside it would say.
            Some(rest) => {
                folders.extend(installed.resolve_link(format!(".{rest}").as_bytes()));
            }
            // The prefix is not known here: `/opt/rocm/lib` is `lib` below it.
            None => {
                let mut rest = entry.trim_matches('/');
                while let Ok(folder) = TreePath::new(rest) {
                    if layout.is_there(&folder) {
                        folders.push(folder);
                        break;
                    }
                    rest = rest.split_once('/').map_or("", |(_, below)| below);
                }
            }
        }
    }
    folders.extend(SYSTEM.iter().filter_map(|folder| TreePath::new(folder).ok()));
    // Whoever loads a library from a folder of its own (a plugin, a program with DT_RPATH, which its
    // libraries inherit) finds the one beside it in the same way.
    folders.extend(installed.parent());
    folders
}

/// The names of the input's libraries and of the links to them, with the first place of each.
fn names(shards: &[Shard]) -> BTreeMap<&str, String> {
    let mut names = BTreeMap::new();
    for shard in shards {
        for artifact in &shard.artifacts {
            for (path, _) in artifact.tree.iter().filter(|(_, entry)| !entry.is_dir()) {
                if let Ok(name) = std::str::from_utf8(path.file_name())
                    && name.contains(".so")
                {
                    let place = || format!("{}/{}/{path}", shard.name, artifact.name);
                    names.entry(name).or_insert_with(place);
                }
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_a_glob() {
        let lines = BASE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            assert!(Glob::new(line).is_ok(), "{line}");
        }
        let externals = Externals::new(&[], &[]);
        for (name, base) in [
            ("libc.so.6", true),
            ("libgfortran.so.5", true),
            ("libdrm_amdgpu.so.1", true),
            ("libamdhip64.so.6", false),
            ("librocm_sysdeps_z.so.1", false),
            ("libssl.so.3", false),
        ] {
            assert_eq!(externals.has(name), base, "{name}");
        }
        let named = Externals::new(&[Glob::new("libamdhip64.so.*").unwrap()], &[]);
        assert!(named.has("libamdhip64.so.6") && named.has("libm.so.6"));
    }

    /// Every library of the list is in all tables of distributions that packages are made for, and its
    /// package counts as the base system's too.
    #[test]
    fn the_list_is_what_distributions_have() {
        use crate::package::Format;
        use crate::verify::packages::is_system;
        let lines = BASE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for table in [
            include_str!("../package/elfdeps/tables/debian12.txt"),
            include_str!("../package/elfdeps/tables/debian13.txt"),
        ] {
            let libraries: BTreeMap<&str, &str> = table
                .lines()
                .filter_map(|line| {
                    let mut words = line.strip_prefix("library ")?.split(' ');
                    Some((words.next()?, words.nth(1)?))
                })
                .collect();
            for line in lines.clone().filter(|line| !line.contains('*')) {
                let package = libraries.get(line).unwrap_or_else(|| panic!("{line} is not in it"));
                assert!(is_system(package, Format::Deb), "{line}: {package}");
                assert!(is_system(&format!("{line}()(64bit)"), Format::Rpm), "{line}");
            }
        }
    }
}
