//! Invariant 6: which kind of file is in which tree, and what the trees give when they are installed
//! over one root.

use std::collections::{BTreeMap, BTreeSet};

use super::Checked;
use super::file::Facts;
use super::finding::{Check, Finding};
use super::host::ProgramFacts;
use super::kpack::Few;
use super::subject::Holds;
use crate::database::Owner;
use crate::package::render::is_made;
use crate::tree::{EntryKind, TreePath};

/// Where each file of some artifacts is once installed.
pub(super) struct Installed<'a> {
    /// Installed path to the artifact (its place in the list) and path in it.
    entries: BTreeMap<TreePath, (usize, &'a TreePath)>,
}

impl<'a> Installed<'a> {
    /// Lays the prefixes of artifacts over one root; of two files at one path the first stays.
    pub fn of(checked: &[Checked<'a>], members: impl Iterator<Item = usize>) -> Self {
        let mut entries = BTreeMap::new();
        for i in members {
            for (path, _) in checked[i].artifact.tree.iter() {
                if let Some(installed) = installed_path(&checked[i], path) {
                    entries.entry(installed).or_insert((i, path));
                }
            }
        }
        Self { entries }
    }

    /// What stands at an installed path, through symbolic links: artifact and path in it.
    pub fn find(&self, checked: &[Checked<'a>], path: &TreePath) -> Option<(usize, &'a TreePath)> {
        let mut at = path.clone();
        for _ in 0..40 {
            let Some(&(i, inside)) = self.entries.get(&at) else {
                // A directory above may be a link.
                at = self.through_link(checked, &at)?;
                continue;
            };
            match &checked[i].artifact.tree.get(inside)?.kind {
                EntryKind::Symlink(target) => at = at.resolve_link(target)?,
                EntryKind::HardLink(first) => {
                    let (_, first) =
                        checked[i].artifact.tree.get_key_value(first).map(|(p, _)| (i, p))?;
                    return Some((i, first));
                }
                EntryKind::Dir | EntryKind::File(_) => return Some((i, inside)),
            }
        }
        None
    }

    fn through_link(&self, checked: &[Checked<'a>], path: &TreePath) -> Option<TreePath> {
        path.ancestors().find_map(|above| {
            let &(i, inside) = self.entries.get(&above)?;
            let EntryKind::Symlink(target) = &checked[i].artifact.tree.get(inside)?.kind else {
                return None;
            };
            Some(above.resolve_link(target)?.join(&path.strip_prefix(&above)?))
        })
    }

    /// Every file and link with its artifact, as the path once installed and the place.
    pub fn files<'s>(
        &'s self,
        checked: &'s [Checked<'a>],
    ) -> impl Iterator<Item = (&'s TreePath, String)> {
        self.entries.iter().filter_map(|(installed, &(i, path))| {
            let artifact = &checked[i];
            let entry = artifact.artifact.tree.get(path)?;
            (!entry.is_dir()).then(|| (installed, format!("{}/{path}", artifact.label)))
        })
    }

    /// Whether an installed folder has a file of that name, through links or not.
    pub fn has(&self, checked: &[Checked<'a>], folder: &TreePath, name: &str) -> bool {
        let path = TreePath::new(name).map(|name| folder.join(&name));
        path.is_ok_and(|path| self.find(checked, &path).is_some())
    }

    /// Whether something is installed there.
    pub fn is_there(&self, path: &TreePath) -> bool {
        self.entries.contains_key(path)
    }

    /// The files directly in an installed directory.
    pub fn in_directory<'s>(&'s self, dir: &'s TreePath) -> impl Iterator<Item = &'s TreePath> {
        self.entries.keys().filter(move |path| path.parent().as_ref() == Some(dir))
    }
}

/// The path below its prefix.
pub(super) fn installed_path(checked: &Checked, path: &TreePath) -> Option<TreePath> {
    path.strip_prefix(checked.artifact.prefix_of(path)?)
}

/// Runs all checks of the invariant.
pub(super) fn check(checked: &[Checked], findings: &mut Vec<Finding>) {
    for artifact in checked {
        if matches!(artifact.holds, Holds::Generic) {
            generic(artifact, findings);
        } else {
            device(artifact, findings);
        }
        modes(artifact, findings);
    }
    if !checked.iter().any(|checked| checked.packaged) {
        paths(checked, findings);
    }
    links(checked, findings);
}

fn generic(artifact: &Checked, findings: &mut Vec<Finding>) {
    let mut add = |path: &TreePath, message: String| {
        let expected = "host code and files for all GPUs only";
        let file = path.to_string();
        findings.push(Finding::new(
            Check::DeviceInGenericTree,
            &artifact.label,
            &file,
            message,
            expected,
        ));
    };
    for (path, facts) in &artifact.facts {
        match facts {
            Facts::Kpack(_) => add(path, "is a kpack archive".into()),
            // One manifest speaks of all groups' archives.
            Facts::Kpm(_) if artifact.packaged => {}
            Facts::Kpm(_) => add(path, "is a kpack manifest".into()),
            _ => {}
        }
    }
    for (path, owner) in &artifact.owners {
        match owner {
            Owner::Isa(isa) => add(path, format!("is a database file for {isa}")),
            Owner::Family(family) => {
                add(path, format!("is a database file for the family {family}"));
            }
        }
    }
}

fn device(artifact: &Checked, findings: &mut Vec<Finding>) {
    for (path, entry) in artifact.artifact.tree.iter().filter(|(_, entry)| !entry.is_dir()) {
        let facts = artifact.facts.get(path);
        let of_kpacks = matches!(facts, Some(Facts::Kpack(_) | Facts::Kpm(_)));
        if of_kpacks || artifact.owners.contains_key(path) {
            continue;
        }
        // Licences and changelogs, which lie outside of most prefixes.
        if artifact.packaged && (installed_path(artifact, path).is_none() || is_made(path)) {
            continue;
        }
        let what = match (facts, &entry.kind) {
            (Some(Facts::Program(_)), _) => "is host code",
            (_, EntryKind::Symlink(_)) => "is a link that no database has for an ISA",
            _ => "is a file that no database has for an ISA",
        };
        findings.push(Finding::new(
            Check::HostInDeviceTree,
            &artifact.label,
            &path.to_string(),
            what,
            "kpack archives and database files of an ISA only",
        ));
    }
}

fn modes(artifact: &Checked, findings: &mut Vec<Finding>) {
    for (path, entry) in artifact.artifact.tree.iter() {
        let (wanted, expected) = match (&entry.kind, artifact.facts.get(path)) {
            (EntryKind::Symlink(_) | EntryKind::HardLink(_), _) => continue,
            (EntryKind::Dir, _) => (0o555, "a directory that all can enter (0755)"),
            (EntryKind::File(_), Some(Facts::Program(program)))
                if program.interpreted && !is_library(program, path) =>
            {
                (0o555, "a program that all can run (0755)")
            }
            (EntryKind::File(_), _) => (0o444, "a file that all can read (0644)"),
        };
        if entry.mode & 0o6000 != 0 && !entry.is_dir() {
            findings.push(Finding::new(
                Check::Mode,
                &artifact.label,
                &path.to_string(),
                format!(
                    "has the mode {:04o}: it runs with its owner's or group's rights",
                    entry.mode
                ),
                "no setuid or setgid bit, since packages install files as root's",
            ));
        }
        if entry.mode & wanted != wanted {
            findings.push(Finding::new(
                Check::Mode,
                &artifact.label,
                &path.to_string(),
                format!("has the mode {:04o}", entry.mode),
                expected,
            ));
        }
    }
}

/// Some libraries can be run as well, and need not be.
fn is_library(program: &ProgramFacts, path: &TreePath) -> bool {
    let name = String::from_utf8_lossy(path.file_name());
    program.soname.is_some() || name.ends_with(".so") || name.contains(".so.")
}

/// No path in two trees, all groups being installed together.
fn paths(checked: &[Checked], findings: &mut Vec<Finding>) {
    let mut at: BTreeMap<TreePath, Vec<(usize, &TreePath, bool)>> = BTreeMap::new();
    for (i, artifact) in checked.iter().enumerate() {
        for (path, entry) in artifact.artifact.tree.iter() {
            if let Some(installed) = installed_path(artifact, path) {
                at.entry(installed).or_default().push((i, path, entry.is_dir()));
            }
        }
    }
    let label = |&(i, path, _): &(usize, &TreePath, bool)| format!("{}/{path}", checked[i].label);
    for (installed, places) in &at {
        let dirs = places.iter().filter(|(_, _, dir)| *dir).count();
        if places.len() < 2 || dirs == places.len() {
            continue;
        }
        // Each tree's manifest lists its own archives; packages join them into one.
        let component = |&(i, ..): &(usize, &TreePath, bool)| checked[i].artifact.name.prefix();
        let components: BTreeSet<_> = places.iter().map(component).collect();
        let artifacts: BTreeSet<_> = places.iter().map(|(i, ..)| i).collect();
        if installed.file_name().ends_with(b".kpm")
            && components.len() == 1
            && artifacts.len() == places.len()
        {
            continue;
        }
        let check = if components.len() == 1 { Check::PathTwice } else { Check::PathShared };
        let first = &places[0];
        let all: Vec<_> = places.iter().map(label).collect();
        findings.push(Finding::new(
            check,
            &checked[first.0].label,
            &first.1.to_string(),
            format!("{} install to `{installed}`", all.join(" and ")),
            "each path once",
        ));
    }
}

/// Relative links lead to something that is installed.
fn links(checked: &[Checked], findings: &mut Vec<Finding>) {
    let installed = Installed::of(checked, 0..checked.len());
    for artifact in checked {
        // A `dev` component's links lead to libraries of another that may not be here.
        let apart = matches!(artifact.artifact.name.component.as_str(), "dev" | "dbg");
        for (path, entry) in artifact.artifact.tree.iter() {
            let EntryKind::Symlink(target) = &entry.kind else { continue };
            let absolute = target.first() == Some(&b'/');
            if absolute && !is_of_systems(target) {
                findings.push(Finding::new(
                    Check::DanglingLink,
                    &artifact.label,
                    &path.to_string(),
                    format!(
                        "leads to `{}`, a place of the machine that built it",
                        String::from_utf8_lossy(target)
                    ),
                    "a relative link, or a folder that every system has",
                ));
            }
            let Some(from) = installed_path(artifact, path).filter(|_| !absolute && !apart) else {
                continue;
            };
            // What lies outside of the artifacts is not theirs.
            let inside = from.resolve_link(target).is_some();
            if inside && installed.find(checked, &from).is_none() {
                findings.push(Finding::new(
                    Check::DanglingLink,
                    &artifact.label,
                    &path.to_string(),
                    format!("leads to `{}`, which is not there", String::from_utf8_lossy(target)),
                    "a file of these artifacts",
                ));
            }
        }
    }
}

/// Whether an absolute path is in a folder of the Filesystem Hierarchy Standard that packages' files, or what the system puts
/// there, can be in: not so `/home`, `/root`, `/tmp`, and where else builds are made.
fn is_of_systems(target: &[u8]) -> bool {
    let first = target.split(|&byte| byte == b'/').find(|part| !part.is_empty());
    let first = first.unwrap_or_default();
    let known: [&[u8]; 11] =
        [b"bin", b"boot", b"dev", b"etc", b"opt", b"proc", b"run", b"sbin", b"srv", b"sys", b"usr"];
    known.contains(&first) || first == b"var" || first.starts_with(b"lib")
}

/// One kernel in one archive only.
pub(super) fn kernels_once(checked: &[Checked], findings: &mut Vec<Finding>) {
    let mut first: BTreeMap<(String, &str, u32, String), (usize, &TreePath)> = BTreeMap::new();
    let mut twice: BTreeMap<(usize, &TreePath, usize, &TreePath), Few> = BTreeMap::new();
    for (i, artifact) in checked.iter().enumerate() {
        for (path, facts) in &artifact.facts {
            let Facts::Kpack(Some(kpack)) = facts else { continue };
            for kernel in &kpack.kernels {
                let component = artifact.artifact.name.prefix();
                let key =
                    (component, kernel.binary.as_str(), kernel.co_index, kernel.isa.to_string());
                match first.get(&key) {
                    None => drop(first.insert(key, (i, path))),
                    Some(&(j, other)) => twice.entry((j, other, i, path)).or_default().add(|| {
                        format!("{}#{} for {}", kernel.binary, kernel.co_index, kernel.isa)
                    }),
                }
            }
        }
    }
    for ((j, other, i, path), few) in twice {
        let place = format!("{}/{other}", checked[j].label);
        let what = few.say(
            &format!("kernel is in {place} as well"),
            &format!("kernels are in {place} as well"),
        );
        findings.push(Finding::new(
            Check::KernelTwice,
            &checked[i].label,
            &path.to_string(),
            what.unwrap_or_default(),
            "each kernel in one archive",
        ));
    }
}
