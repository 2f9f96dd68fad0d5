//! Relations from ELF files, held against the tools that distributions make them with: rpm's elfdeps
//! and dpkg-shlibdeps.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{ok, tool};
use gfxpack::elf::{self, Kind, Needs};
use gfxpack::package::elfdeps::{DebDepends, Distro, rpm};
use gfxpack::read_at::OpenFile;

/// Rpm's generator of relations.
const ELFDEPS: &str = "/usr/lib/rpm/elfdeps";

/// How many files an ordinary run compares.
const SAMPLE: usize = 500;

/// The ELF files below a directory, links left out, sorted.
fn elf_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            elf_files(&path, found);
        } else if meta.is_file() {
            let mut magic = [0; 4];
            let read = File::open(&path).and_then(|mut file| file.read_exact(&mut magic));
            if read.is_ok() && magic == *b"\x7fELF" {
                found.push(path);
            }
        }
    }
}

/// What a file needs; `None` where it is no x86-64 program or library.
fn needs(path: &Path) -> Option<Needs> {
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let file = OpenFile::new(file, len);
    match elf::probe(&file).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
        Kind::Program(image) => {
            Some(Needs::read(&file, &image).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        }
        _ => None,
    }
}

/// What rpm's generator prints.
fn elfdeps(what: &str, path: &Path) -> BTreeSet<String> {
    let printed = ok(Command::new(ELFDEPS).arg(what).arg(path));
    printed.lines().map(str::to_owned).collect()
}

/// How many files were compared, and what differs.
fn differences(paths: &[PathBuf]) -> (usize, Vec<String>) {
    let mut compared = 0;
    let mut different = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(needs) = needs(path) else { continue };
        let executable = path.metadata().unwrap().permissions().mode() & 0o111 != 0;
        let provides = ("--provides", rpm::provides(&needs, name));
        let requires = ("--requires", rpm::requires(&needs, executable));
        compared += 1;
        for (what, ours) in [provides, requires] {
            let theirs = elfdeps(what, path);
            if ours != theirs {
                let path = path.display();
                let (more, less) = (&ours - &theirs, &theirs - &ours);
                different.push(format!("{path} {what}: too much {more:?}, missing {less:?}"));
            }
        }
    }
    (compared, different)
}

/// Of the machine's libraries some hundreds, spread over all of them; with `GFXPACK_TEST_ELF` every one
/// below that directory.
#[test]
fn capabilities_are_those_of_rpm() {
    let dir = std::env::var_os("GFXPACK_TEST_ELF");
    let mut paths = Vec::new();
    elf_files(Path::new(dir.as_deref().unwrap_or("/usr/lib".as_ref())), &mut paths);
    if dir.is_none() {
        let step = paths.len().div_ceil(SAMPLE);
        paths = paths.into_iter().step_by(step.max(1)).collect();
    }
    let half = paths.len() / 2;
    let ((one, mut different), (other, more)) = std::thread::scope(|scope| {
        let second = scope.spawn(|| differences(&paths[half..]));
        (differences(&paths[..half]), second.join().unwrap())
    });
    different.extend(more);
    assert!(one + other > 10, "only {} of {} files are programs", one + other, paths.len());
    println!("{} files compared", one + other);
    assert!(different.is_empty(), "of {}:\n{}", one + other, different.join("\n"));
}

/// The relations that dpkg-shlibdeps gives a file.
fn shlibdeps(dir: &Path, path: &Path) -> BTreeSet<String> {
    let mut command = tool("dpkg-shlibdeps", "dpkg-dev");
    let printed = ok(command
        .current_dir(dir)
        .args(["-O", "--ignore-missing-info", "--warnings=0"])
        .arg(path));
    let list = printed.trim().strip_prefix("shlibs:Depends=").unwrap_or_default();
    list.split(", ").filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// A relation's package, without the version.
fn package(relation: &String) -> String {
    relation.split(" (").next().unwrap().to_owned()
}

/// Programs and libraries whose relations an ordinary run compares; with `GFXPACK_TEST_SHLIBDEPS` all.
const SHLIBDEPS: usize = 64;

/// What the loader asks of a library though no symbol has it: dpkg-shlibdeps looks at symbols alone, and
/// lets such a file be installed where it cannot be loaded.
const NO_SYMBOLS: &str = "GLIBC_ABI_DT_RELR";

/// Both read the symbols files of Debian 12: ours those of the table, dpkg-shlibdeps those of the packages
/// that are installed.
#[test]
fn relations_are_those_of_dpkg_shlibdeps() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("debian")).unwrap();
    let control = "Source: x\n\nPackage: x\nArchitecture: any\n";
    fs::write(dir.path().join("debian/control"), control).unwrap();
    let mut paths = Vec::new();
    for known in ["/usr/bin", "/usr/lib/x86_64-linux-gnu"] {
        let mut below = Vec::new();
        elf_files(Path::new(known), &mut below);
        // Not the many plugins in folders: they are all alike.
        paths.extend(below.into_iter().filter(|path| path.parent() == Some(Path::new(known))));
    }
    let ours = |path: &PathBuf| {
        let needs = needs(path)?;
        let mut relations = DebDepends::default();
        for soname in &needs.needed {
            let missing = Distro::Debian12.table().relate(soname, &needs, &mut relations)?;
            assert!(missing.is_empty(), "{}: {missing:?}", path.display());
        }
        let versions = needs.versions_needed.iter().flat_map(|(_, versions)| versions);
        let stricter = versions.into_iter().any(|version| version == NO_SYMBOLS);
        let relations = BTreeSet::from_iter(relations.list());
        (!needs.needed.is_empty()).then_some((path.clone(), relations, stricter))
    };
    let known: Vec<_> = paths.iter().filter_map(ours).collect();
    let all = std::env::var_os("GFXPACK_TEST_SHLIBDEPS").is_some();
    let count = if all { known.len() } else { known.len().min(SHLIBDEPS) };
    // Spread over all of them.
    let chosen: Vec<_> = (0..count).map(|i| known[i * known.len() / count].clone()).collect();
    assert!(chosen.len() >= 60, "only {} files are of libraries in the table", chosen.len());
    let compare = |files: &[(PathBuf, BTreeSet<String>, bool)]| -> (Vec<String>, Vec<String>) {
        let (mut packages, mut versions) = (Vec::new(), Vec::new());
        for (path, ours, stricter) in files {
            let theirs = shlibdeps(dir.path(), path);
            let names = |relations: &BTreeSet<String>| -> BTreeSet<String> {
                relations.iter().map(package).collect()
            };
            let line =
                format!("{}: {:?}, not {:?}", path.display(), ours - &theirs, &theirs - ours);
            if names(ours) != names(&theirs) {
                packages.push(line);
            } else if *ours != theirs {
                let libc = |relation: &&String| package(relation) != "libc6";
                let rest = |relations: &BTreeSet<String>| -> BTreeSet<String> {
                    relations.iter().filter(libc).cloned().collect()
                };
                if *stricter && rest(ours) == rest(&theirs) {
                    continue;
                }
                versions.push(line);
            }
        }
        (packages, versions)
    };
    let (one, other) = chosen.split_at(chosen.len() / 2);
    let ((mut packages, mut versions), more) = std::thread::scope(|scope| {
        let second = scope.spawn(|| compare(other));
        (compare(one), second.join().unwrap())
    });
    packages.extend(more.0);
    versions.extend(more.1);
    println!("{} compared, other versions:\n{}", chosen.len(), versions.join("\n"));
    assert!(packages.is_empty(), "other packages:\n{}", packages.join("\n"));
    assert!(versions.is_empty(), "other versions:\n{}", versions.join("\n"));
}
