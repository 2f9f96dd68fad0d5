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

use common::ok;
use gfxpack::elf::{self, Kind, Needs};
use gfxpack::package::elfdeps::rpm;
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
