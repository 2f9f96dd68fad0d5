//! What splitting made, seen from the machine it is installed on: the real ld.so loads the libraries
//! and runs the programs next to a stand-in for the HIP runtime, and `check/kernels.py`, which shares
//! no code with gfxpack, finds every code object of the originals again, byte for byte.

// The lints allow this in tests, but do not see that helpers of tests are tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};
use serde::Deserialize;
use tempfile::TempDir;

const HIPF: u32 = 0x4849_5046;
const HIPK: u32 = 0x4B50_4948;

/// The primary shard, whose host code is installed, first.
const SHARDS: [&str; 3] = ["gfx110X-build", "gfx1151-build", "gfx120X-build"];

/// Host-side files with device code, and how many wrappers each registers when it is loaded. (RDC code
/// registers one of the two that it has: its units share a handle.)
const LIBRARIES: [(&str, usize); 3] =
    [("lib/librocblas.so.5.2", 4), ("lib/libhipblaslt.so.0.9", 2), ("lib/librocfft.so.0.1", 1)];
const PROGRAMS: [(&str, usize); 2] = [("bin/rocblas-bench", 1), ("bin/rocblas-tool", 1)];

/// One line of the stand-in's log.
#[derive(Debug, Deserialize)]
struct Registration {
    object: PathBuf,
    wrapper_vaddr: u64,
    magic: u32,
    version: u32,
    binary_vaddr: Option<u64>,
    co_index: u32,
    marker: Option<String>,
}

/// The marker as the runtime reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Marker {
    kpack_search_paths: Vec<String>,
    kernel_name: String,
}

/// The checker's summary.
#[derive(Debug, Deserialize)]
struct Checked {
    binaries: usize,
    wrappers: usize,
    code_objects: usize,
    files: usize,
    kpacks: usize,
    isas: BTreeSet<String>,
    mismatches: usize,
}

fn shards() -> PathBuf {
    common::fixtures().join("shards")
}

/// The artifacts in a recombined tree that are generic or of one of the groups.
fn artifacts(recombined: &Path, groups: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(recombined).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let target = name.rsplit_once('_').unwrap().1;
        if target == "generic" || groups.contains(&target) {
            found.push(entry.path());
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

/// Splits and recombines the shards below `out`, and installs the primary shard's group.
fn installed(out: &Path, split_args: &[&str]) -> PathBuf {
    common::split_and_recombine(&shards(), out, split_args);
    let root = out.join("root");
    common::install(&artifacts(&out.join("recombined"), &["gfx110X"]), &root);
    root
}

/// Runs a command with the stand-in, and gives what it registered.
#[track_caller]
fn logged(log: &Path, command: &mut Command) -> (String, Vec<Registration>) {
    let _ = fs::remove_file(log);
    command
        .env("LD_LIBRARY_PATH", common::fixtures().join("runtime"))
        .env("LD_BIND_NOW", "1")
        .env("GFXPACK_STANDIN_LOG", log);
    let printed = common::ok(command);
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (printed, lines.collect())
}

/// Where a file's wrappers begin, and how many there are.
fn wrappers(file: &Path) -> (u64, u64) {
    let data = fs::read(file).unwrap();
    let elf = ElfFile64::<object::LittleEndian>::parse(&*data).unwrap();
    let section = elf.section_by_name(".hipFatBinSegment").unwrap();
    (section.address(), section.size() / 24)
}

/// Loads and runs all that has device code; each registration must be a converted one, and come from
/// the file expected.
fn load_and_run(root: &Path, scratch: &Path) {
    let root = root.canonicalize().unwrap();
    let log = scratch.join("log");
    let load = common::fixtures().join("runtime/load");
    let mut seen = BTreeMap::<PathBuf, Vec<Registration>>::new();
    let mut note = |registrations: Vec<Registration>| {
        for registration in registrations {
            seen.entry(registration.object.clone()).or_default().push(registration);
        }
    };
    let all = LIBRARIES.map(|(library, _)| root.join(library));
    note(logged(&log, Command::new(&load).args(&all)).1);
    for (program, _) in PROGRAMS {
        let (printed, registered) = logged(&log, &mut Command::new(root.join(program)));
        assert_eq!(printed, "ok\n", "{program}");
        note(registered);
    }

    for (file, count) in LIBRARIES.into_iter().chain(PROGRAMS) {
        let path = root.join(file);
        let registered = seen.remove(&path).unwrap_or_default();
        assert_eq!(registered.len(), count, "{file}");
        let (start, total) = wrappers(&path);
        let mut indexes = BTreeSet::new();
        for found in registered {
            assert_eq!(found.magic, HIPK, "{file}: {found:?}");
            assert_eq!(found.version, 1, "{file}: {found:?}");
            let position = (found.wrapper_vaddr - start) / 24;
            assert_eq!((found.wrapper_vaddr - start) % 24, 0, "{file}: {found:?}");
            assert!(position < total, "{file}: {found:?}");
            assert_eq!(u64::from(found.co_index), position, "{file}: {found:?}");
            assert!(indexes.insert(position), "{file}: wrapper {position} registered twice");
            assert!(found.binary_vaddr.is_some(), "{file}: {found:?}");
            let marker = found.marker.as_deref().unwrap_or_else(|| panic!("{file}: no marker"));
            let marker: Marker = rmp_serde::from_slice(&unhex(marker)).unwrap();
            assert!(marker.kernel_name.ends_with(file), "{marker:?}");
            for search in &marker.kpack_search_paths {
                let archive = path.parent().unwrap().join(search.replace("@GFXARCH@", "gfx1100"));
                assert!(archive.exists(), "{file}: {search} leads nowhere");
            }
        }
    }
    assert!(seen.is_empty(), "registered by others: {:?}", seen.keys());

    // The program finds the library that is installed beside it.
    let mut bench = Command::new(root.join("bin/rocblas-bench"));
    let (printed, registered) = logged(&log, bench.arg("--with-library"));
    assert_eq!(printed, "ok\n");
    assert_eq!(registered.len(), 5);
    assert!(registered.iter().all(|r| r.object.starts_with(&root) && r.magic == HIPK));
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

/// The checker on a root and the originals in some shards.
fn checker(root: &Path, originals: &[&str]) -> Command {
    let mut command = common::kernel_checker(root);
    command.args(originals.iter().map(|shard| shards().join(shard)));
    command
}

#[track_caller]
fn check(root: &Path, originals: &[&str]) -> Checked {
    checked(&mut checker(root, originals))
}

/// Of what came from a `.deb`.
#[track_caller]
fn check_deb(prefix: &Path, originals: &[&str]) -> Checked {
    checked(checker(prefix, originals).arg("--debian-modes"))
}

#[track_caller]
fn checked(checker: &mut Command) -> Checked {
    let checked: Checked = serde_json::from_str(&common::ok(checker)).unwrap();
    assert_eq!(checked.mismatches, 0);
    assert_eq!(checked.binaries, LIBRARIES.len() + PROGRAMS.len());
    // 4 and 2, 2 of RDC code, and 1 in each program.
    assert_eq!(checked.wrappers, 10);
    checked
}

fn isas(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// From shards to an installed root, loaded and compared: first with one group, then with all.
fn the_whole_way(split_args: &[&str]) {
    let scratch = TempDir::new().unwrap();
    let root = installed(scratch.path(), split_args);
    load_and_run(&root, scratch.path());

    let one = check(&root, &SHARDS[..1]);
    assert_eq!(one.code_objects, 3 * 10);
    assert_eq!(one.isas, isas(&["gfx1100", "gfx1101", "gfx1102"]));

    let groups = ["gfx110X", "gfx115X", "gfx120X"];
    let trees = artifacts(&scratch.path().join("recombined"), &groups);
    let everywhere = scratch.path().join("all");
    common::install(&trees, &everywhere);
    let all = check(&everywhere, &SHARDS);
    assert_eq!(all.code_objects, 6 * 10);
    assert_eq!(all.isas, isas(&["gfx1100", "gfx1101", "gfx1102", "gfx1151", "gfx1200", "gfx1201"]));
    assert!(all.files > one.files && all.kpacks == 2 * one.kpacks);
    load_and_run(&everywhere, scratch.path());

    // No file went into two trees: what is laid over the root hides nothing but manifests of kpacks.
    assert_eq!(common::assert_no_path_twice(&trees), common::files(&everywhere).len());
}

#[test]
fn the_originals_load_and_run_too() {
    // What the stand-in says of fat files: otherwise the other tests might hold for any file.
    let scratch = TempDir::new().unwrap();
    let root = scratch.path().join("root");
    let shard = shards().join(SHARDS[0]);
    let parts = fs::read_dir(shard).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    common::install(&parts, &root);
    let mut load = Command::new(common::fixtures().join("runtime/load"));
    let log = scratch.path().join("log");
    let (_, registered) = logged(&log, load.args(LIBRARIES.map(|(library, _)| root.join(library))));
    assert_eq!(registered.len(), 4 + 2 + 1);
    assert!(registered.iter().all(|r| r.magic == HIPF && r.marker.is_none()));
    for (program, _) in PROGRAMS {
        let (printed, registered) = logged(&log, &mut Command::new(root.join(program)));
        assert_eq!((printed.as_str(), registered.len()), ("ok\n", 1));
        assert_eq!(registered[0].magic, HIPF);
    }
}

#[test]
fn with_an_archive_for_each_component() {
    the_whole_way(&[]);
}

#[test]
fn with_an_archive_for_each_prefix() {
    the_whole_way(&["--kpack-scope", "prefix"]);
}

#[test]
fn with_an_archive_for_each_binary() {
    the_whole_way(&["--kpack-scope", "binary"]);
}

#[test]
fn with_archives_that_are_not_compressed() {
    the_whole_way(&["--compression", "none"]);
}

#[test]
fn with_archives_beside_the_binaries() {
    the_whole_way(&["--kpack-layout", "in-place"]);
}

/// Unpacks the packages whose name passes; returns how many did.
fn unpack(packages: &Path, root: &Path, wanted: impl Fn(&str) -> bool) -> usize {
    let mut count = 0;
    for file in common::files(packages) {
        let name = file.rsplit('/').next().unwrap();
        if name.ends_with(".deb") && wanted(name) {
            let mut dpkg_deb = common::tool("dpkg-deb", "dpkg");
            common::ok(dpkg_deb.arg("-x").arg(packages.join(&file)).arg(root));
            count += 1;
        }
    }
    count
}

#[test]
fn from_the_packages_of_build() {
    let scratch = TempDir::new().unwrap();
    let packages = scratch.path().join("packages");
    common::ok(
        common::gfxpack()
            .args(["build", "--version", "7.1.0", "--release", "1", "--format", "deb"])
            .args(["--install-prefix", "/opt/rocm", "--input-shards-dir"])
            .arg(shards())
            .arg("--config")
            .arg(common::example_config())
            .arg("--packages")
            .arg(common::example_packages())
            .arg("--output-dir")
            .arg(&packages),
    );

    let one = scratch.path().join("one");
    let primary = |name: &str| !name.contains("gfx115") && !name.contains("gfx120");
    let some = unpack(&packages, &one, primary);
    let prefix = one.join("opt/rocm");
    load_and_run(&prefix, scratch.path());
    assert_eq!(check_deb(&prefix, &SHARDS[..1]).code_objects, 3 * 10);

    let all = scratch.path().join("all");
    assert!(unpack(&packages, &all, |_| true) > some);
    let prefix = all.join("opt/rocm");
    load_and_run(&prefix, scratch.path());
    assert_eq!(check_deb(&prefix, &SHARDS).code_objects, 6 * 10);
}

#[test]
fn the_checker_sees_damage() {
    let scratch = TempDir::new().unwrap();
    let whole = installed(scratch.path(), &["--compression", "none"]);
    check(&whole, &SHARDS[..1]);
    type Damage = fn(&Path);
    let cases: [(&str, &str, Damage); 8] = [
        ("a flipped bit in a kernel", "are not the", |root| {
            flip_bit(&root.join(".kpack/blas_lib_gfx1101.kpack"), 5000);
        }),
        ("an archive that is gone", "no archive lists gfx1102", |root| {
            fs::remove_file(root.join(".kpack/fft_lib_gfx1102.kpack")).unwrap();
        }),
        ("archives of two ISAs swapped", "no archive lists", |root| {
            let archive = |isa: &str| root.join(format!(".kpack/blas_run_{isa}.kpack"));
            fs::copy(archive("gfx1100"), archive("gfx1101")).unwrap();
        }),
        ("a co_index of another wrapper", "co_index is 1", |root| {
            let library = root.join("lib/librocblas.so.5.2");
            flip_bit(&library, wrapper_offset(&library) + 16);
        }),
        ("a wrapper that is not converted", "magic", |root| {
            let library = root.join("lib/librocfft.so.0.1");
            flip_bit(&library, wrapper_offset(&library));
        }),
        ("a database file that is gone", "it is not there", |root| {
            let library = root.join("lib/rocblas/library");
            fs::remove_file(library.join("TensileLibrary_lazy_gfx1100.dat")).unwrap();
        }),
        ("a file from nowhere", "no original has it", |root| {
            fs::write(root.join("lib/rocblas/library/copy.dat"), "").unwrap();
        }),
        ("a fat library put back", "device code is left", |root| {
            let fat = "fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage/lib/librocfft.so.0.1";
            let fat = shards().join(SHARDS[0]).join(fat);
            fs::copy(fat, root.join("lib/librocfft.so.0.1")).unwrap();
        }),
    ];
    for (what, expected, damage) in cases {
        let root = scratch.path().join("damaged");
        let _ = fs::remove_dir_all(&root);
        common::copy_tree(&whole, &root);
        damage(&root);
        let said = common::fails(&mut checker(&root, &SHARDS[..1]), 1);
        assert!(said.contains(expected), "{what}: {said}");
    }
}

/// Of originals for all groups, with one group installed.
#[test]
fn the_checker_sees_what_must_be_absent() {
    let scratch = TempDir::new().unwrap();
    let whole = installed(scratch.path(), &["--compression", "none"]);
    const ABSENT: [&str; 3] = ["gfx1151", "gfx1200", "gfx1201"];
    let without = |root: &Path, absent: &[&str]| {
        let mut command = checker(root, &SHARDS);
        command.args(absent.iter().flat_map(|isa| ["--absent", isa]));
        command
    };
    let checked: Checked =
        serde_json::from_str(&common::ok(&mut without(&whole, &ABSENT))).unwrap();
    assert_eq!(checked.code_objects, 3 * 10);
    assert_eq!(checked.isas, isas(&["gfx1100", "gfx1101", "gfx1102"]));

    let mut said = common::fails(&mut without(&whole, &ABSENT[..2]), 1);
    assert!(said.contains("gfx1201: no archive lists gfx1201"), "{said}");
    said = common::fails(&mut without(&whole, &["gfx1151", "gfx1200", "gfx1201", "gfx1102"]), 1);
    assert!(said.contains("gfx1102: it is not installed, but there is"), "{said}");
    said = common::fails(&mut without(&whole, &["gfx1151", "gfx1200", "gfx1201", "gfx942"]), 1);
    assert!(said.contains("--absent gfx942: no original has anything for it"), "{said}");

    // What a removal could leave: an archive, a link to none, a file of the database.
    let archive = whole.join(".kpack/fft_lib_gfx1200.kpack");
    fs::write(&archive, "").unwrap();
    said = common::fails(&mut without(&whole, &ABSENT), 1);
    assert!(said.contains("gfx1200: it is not installed, but there is"), "{said}");
    fs::remove_file(&archive).unwrap();
    std::os::unix::fs::symlink("gone", &archive).unwrap();
    said = common::fails(&mut without(&whole, &ABSENT), 1);
    assert!(said.contains("gfx1200: it is not installed, but there is"), "{said}");
    fs::remove_file(&archive).unwrap();
    fs::write(whole.join("lib/rocblas/library/TensileLibrary_lazy_gfx1201.dat"), "").unwrap();
    said = common::fails(&mut without(&whole, &ABSENT), 1);
    assert!(said.contains("it is of an ISA that is not installed"), "{said}");
}

fn flip_bit(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Where a file's first wrapper stands in the file.
fn wrapper_offset(path: &Path) -> usize {
    let data = fs::read(path).unwrap();
    let elf = ElfFile64::<object::LittleEndian>::parse(&*data).unwrap();
    let (offset, _) = elf.section_by_name(".hipFatBinSegment").unwrap().file_range().unwrap();
    usize::try_from(offset).unwrap()
}
