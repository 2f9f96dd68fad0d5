//! Fat binaries of the shapes that a compiler alone does not give: bundles of every form in one section,
//! in any order against their wrappers; device code that looks like bundles; `.hip_fatbin` in every
//! place. One artifact holds them all and goes the whole way: split, verify, install, the real dynamic
//! loader with the stand-in runtime, and the independent checker.
//!
//! The bundles are clang's; the test compresses them anew and an assembler file embeds them.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/embed.rs"]
mod embed;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{fixtures, gfxpack, ok, peak_memory, snapshot, tool};
use embed::{Ccob, Library, bundle_of, compile, compress, compressed, entries, variant};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSegment};
use serde_json::Value;
use tempfile::TempDir;

const PREFIX: &str = "math-libs/shapes/stage";

/// Where `.hip_fatbin` must stand for a library to be of use.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Any,
    /// Smaller than a page.
    Small,
    /// Its end is a page's end.
    OnBoundary,
    /// Nothing behind it in its segment.
    Last,
    /// Something before it and behind it in its segment.
    Middle,
}

struct Shape {
    library: Library,
    place: Place,
}

/// The bundles that clang makes, compiled once.
struct Bundles {
    dir: TempDir,
    /// gfx1100 and gfx1101.
    two: Vec<u8>,
    /// gfx1102, gfx942 and gfx1100, in this order.
    other: Vec<u8>,
    /// gfx90a with xnack on and off, gfx906 with two features.
    features: Vec<u8>,
    /// gfx11-generic and gfx9-4-generic.
    generic: Vec<u8>,
    /// Device data full of bundle magics, for gfx1100 and gfx942.
    magics: Vec<u8>,
    /// gfx1100 and gfx1101 as clang compresses them.
    compressed: Vec<u8>,
}

fn bundles() -> &'static Bundles {
    static BUNDLES: OnceLock<Bundles> = OnceLock::new();
    BUNDLES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let make =
            |name: &str, isas: &[&str], flags: &[&str]| compile(dir.path(), name, isas, flags);
        Bundles {
            two: make("two", &["gfx1100", "gfx1101"], &[]),
            other: make("other", &["gfx1102", "gfx942", "gfx1100"], &[]),
            features: make(
                "features",
                &["gfx90a:xnack+", "gfx90a:xnack-", "gfx906:sramecc+:xnack-"],
                &[],
            ),
            generic: generic_4(&make(
                "generic",
                &["gfx11-generic", "gfx942"],
                &["-mcode-object-version=6"],
            )),
            magics: make("magics", &["gfx1100", "gfx942"], &["-DMAGICS"]),
            compressed: make("compressed", &["gfx1100", "gfx1101"], &["--offload-compress"]),
            dir,
        }
    })
}

/// Makes the gfx942 code of a bundle code for gfx9-4-generic, which is younger than this compiler.
fn generic_4(bundle: &[u8]) -> Vec<u8> {
    let mut entries = entries(bundle);
    let (id, code) = entries.iter_mut().find(|(id, _)| id.ends_with("gfx942")).unwrap();
    *id = id.replace("gfx942", "gfx9-4-generic");
    // e_flags: the processor, and version 1 of its code.
    assert_eq!((code[8], code[48]), (4, 0x4c));
    code[48] = 0x5f;
    code[51] = 1;
    bundle_of(&entries)
}

/// A bundle with a host entry and nothing else.
fn empty() -> Vec<u8> {
    bundle_of(&[("host-x86_64-unknown-linux-gnu-".into(), Vec::new())])
}

/// The libraries. Bundles in one library differ in content, so that none can stand for another
/// unseen; where they are equal, that is the shape.
fn shapes() -> Vec<Shape> {
    let Bundles { two, other, features, generic, magics, compressed, .. } = bundles();
    let shape = |name: &str, bundles: Vec<Vec<u8>>, wrappers: &[usize], place| Shape {
        library: Library::new(name, bundles, wrappers),
        place,
    };
    let small = || compress(Ccob::V2, false, &variant(two, 40));
    let mut shapes = vec![
        // Differing sets of ISAs, in another order than the wrappers.
        shape(
            "sets",
            vec![two.clone(), other.clone(), features.clone(), generic.clone()],
            &[2, 0, 3, 1],
            Place::Any,
        ),
        // Wrappers in reverse order of address.
        shape("reverse", (0..5).map(|n| variant(two, n)).collect(), &[4, 3, 2, 1, 0], Place::Any),
        // Several wrappers on one bundle, and two bundles with one content.
        shape(
            "shared",
            vec![variant(two, 7), other.clone(), variant(two, 7)],
            &[1, 1, 0, 1, 2, 0],
            Place::Any,
        ),
        // Every form of bundle in one section.
        shape(
            "mixed",
            vec![
                compress(Ccob::V1, false, &variant(two, 10)),
                variant(two, 11),
                compressed.clone(),
                compress(Ccob::V3, true, &variant(other, 12)),
                compress(Ccob::V1, true, features),
                other.clone(),
                compress(Ccob::V2, false, generic),
                compress(Ccob::V2, true, &variant(two, 13)),
                compress(Ccob::V3, false, &variant(two, 14)),
            ],
            &[8, 0, 5, 3, 4, 1, 7, 2, 6, 3],
            Place::Any,
        ),
        shape(
            "magics",
            vec![magics.clone(), compress(Ccob::V2, true, &variant(magics, 20)), variant(two, 21)],
            &[1, 2, 0],
            Place::Any,
        ),
        // Bundles without device code, alone and among others.
        shape("empty", vec![empty()], &[0], Place::Small),
        shape(
            "partly-empty",
            vec![variant(two, 30), empty(), compress(Ccob::V1, true, &empty())],
            &[1, 0, 2],
            Place::Any,
        ),
        shape("under-a-page", vec![small()], &[0], Place::Small),
        shape("under-a-page-shared", vec![small()], &[0, 0], Place::Small),
        shape("boundary", vec![variant(two, 50), other.clone()], &[1, 0], Place::OnBoundary),
        shape("last", vec![variant(two, 51), other.clone()], &[1, 0], Place::Last),
        shape("middle", vec![variant(two, 52), other.clone()], &[1, 0], Place::Middle),
        // Bundles without anything between, of which those of version 1 do not say where they end.
        shape(
            "close",
            vec![
                compress(Ccob::V1, true, &variant(two, 54)),
                compress(Ccob::V1, false, &variant(two, 55)),
                variant(two, 53),
                small(),
                other.clone(),
            ],
            &[3, 2, 4, 0, 1],
            Place::Any,
        ),
    ];
    for shape in &mut shapes {
        match shape.place {
            Place::OnBoundary => shape.library.pad_end = true,
            Place::Last => {
                shape.library.flags =
                    vec!["-fuse-ld=bfd", "-nostdlib", "-fno-asynchronous-unwind-tables"];
            }
            Place::Middle => {
                shape.library.flags = vec!["-fuse-ld=lld", "-fasynchronous-unwind-tables"];
                shape.library.behind = true;
            }
            Place::Any | Place::Small => {}
        }
        if shape.library.name == "close" {
            shape.library.align = 0;
        }
    }
    shapes
}

/// Makes sure that the linker gave what was asked for.
fn assert_placed(file: &Path, place: Place) {
    let data = fs::read(file).unwrap();
    let elf = ElfFile64::<object::LittleEndian>::parse(&*data).unwrap();
    let section = elf.section_by_name(".hip_fatbin").unwrap();
    let (start, end) = (section.address(), section.address() + section.size());
    let segment = elf.segments().find(|s| (s.address()..s.address() + s.size()).contains(&start));
    let segment = segment.unwrap();
    let segment_end = segment.address() + segment.size();
    let holds = match place {
        Place::Any => true,
        Place::Small => section.size() < 4096,
        Place::OnBoundary => end % 4096 == 0,
        Place::Last => end == segment_end && segment.address() < start,
        Place::Middle => segment.address() < start && end < segment_end,
    };
    assert!(
        holds,
        "{}: {place:?}, but .hip_fatbin is at {start:#x}..{end:#x} of {:#x}..{segment_end:#x}",
        file.display(),
        segment.address()
    );
}

/// An artifact in a shard, with everything in it. Libraries that ask for no linker are linked by this
/// one.
fn shard(dir: &Path, linker: &'static str) -> PathBuf {
    let shard = dir.join("shard");
    let lib = shard.join("shapes_lib_fat").join(PREFIX).join("lib");
    fs::create_dir_all(&lib).unwrap();
    fs::write(shard.join("shapes_lib_fat/artifact_manifest.txt"), format!("{PREFIX}\n")).unwrap();
    let work = dir.join("work");
    fs::create_dir(&work).unwrap();
    for mut shape in shapes() {
        if shape.library.flags.is_empty() {
            shape.library.flags = vec![linker];
        }
        let file = lib.join(format!("lib{}.so", shape.library.name));
        shape.library.link(&work, &file);
        assert_placed(&file, shape.place);
    }
    keep_whole(&lib, &work);
    shard
}

/// What stays as it is, with words of the reason.
const KEPT: &[(&str, &str)] = &[
    ("lib/libconverted.so", "is converted already"),
    ("lib/libdevice.a", "is a static archive with device code"),
    ("lib/libno-sections.so", "has no section headers"),
    ("lib/libunwrapped.so", "has a .hip_fatbin that no wrapper points into"),
    ("lib/unit.o", "is an object file with device code"),
];

/// Adds the files of [`KEPT`], and some like them without device code, which are not worth a word.
fn keep_whole(lib: &Path, work: &Path) {
    let two = &bundles().two;
    let mut library = Library::new("unwrapped", vec![two.clone()], &[]);
    library.link(work, &lib.join("libunwrapped.so"));
    library = Library::new("no-sections", vec![variant(two, 60)], &[0]);
    let whole = work.join("whole.so");
    library.link(work, &whole);
    let mut strip = tool("llvm-strip-19", "llvm-19");
    let stripped = lib.join("libno-sections.so");
    ok(strip.arg("--strip-sections").arg(&whole).arg("-o").arg(&stripped));

    library = Library::new("unit", vec![variant(two, 61)], &[0]);
    library.assemble(work, &lib.join("unit.o"));
    let archive = |name: &str, members: &[PathBuf]| {
        ok(tool("ar", "binutils").arg("rcsD").arg(lib.join(name)).args(members));
    };
    let host = work.join("host.c");
    fs::write(&host, "int answer(void) { return 42; }\n").unwrap();
    let host_object = lib.join("host.o");
    ok(Command::new("clang-19").arg("-c").arg(&host).arg("-o").arg(&host_object));
    archive("libdevice.a", &[host_object.clone(), lib.join("unit.o")]);
    archive("libhost.a", &[host_object]);

    // What a split made of a library before.
    let before = work.join("before/x_lib_fat");
    fs::create_dir_all(before.join("x/lib")).unwrap();
    fs::write(before.join("artifact_manifest.txt"), "x\n").unwrap();
    fs::copy(&whole, before.join("x/lib/libconverted.so")).unwrap();
    let out = work.join("before-out");
    ok(gfxpack()
        .args(["split", "--artifact-prefix", "x_lib", "--artifact-dir"])
        .arg(&before)
        .arg("--output-dir")
        .arg(&out));
    fs::copy(out.join("x_lib_generic/x/lib/libconverted.so"), lib.join("libconverted.so")).unwrap();
}

/// What the stand-in saw of each library: index of the wrapper → magic and `co_index`.
fn registered(root: &Path, names: &[String]) -> BTreeMap<String, BTreeMap<u64, (u64, u64)>> {
    let root = root.canonicalize().unwrap();
    let log = root.with_extension("log");
    let _ = fs::remove_file(&log);
    let mut load = Command::new(fixtures().join("runtime/load"));
    load.args(names.iter().map(|name| root.join(name)));
    load.env("LD_LIBRARY_PATH", fixtures().join("runtime")).env("GFXPACK_STANDIN_LOG", &log);
    ok(&mut load);
    let mut seen: BTreeMap<String, BTreeMap<u64, (u64, u64)>> = BTreeMap::new();
    for line in fs::read_to_string(&log).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| line[key].as_u64().unwrap();
        let object = PathBuf::from(line["object"].as_str().unwrap());
        let data = fs::read(&object).unwrap();
        let elf = ElfFile64::<object::LittleEndian>::parse(&*data).unwrap();
        let first = elf.section_by_name(".hipFatBinSegment").unwrap().address();
        let name = object.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let index = (number("wrapper_vaddr") - first) / 24;
        let values = (number("magic"), number("co_index"));
        let before = seen.entry(name).or_default().insert(index, values);
        assert_eq!(before, None, "wrapper {index} is registered twice");
        assert_eq!(values.0 == HIPK, line["marker"].is_string(), "{line}");
    }
    seen
}

const HIPF: u64 = 0x4849_5046;
const HIPK: u64 = 0x4B50_4948;

/// The whole way for a shard, with these arguments of split. Returns what split reports.
fn the_whole_way(dir: &Path, shard: &Path, split_args: &[&str]) -> Value {
    let out = dir.join("out");
    let before = snapshot(shard);
    let mut split = gfxpack();
    split.args(["split", "--json", "--batch-artifact-parent-dir"]).arg(shard);
    let said = ok(split.arg("--output-dir").arg(&out).args(split_args));
    assert_eq!(snapshot(shard), before, "the input was touched");
    let report: Value = serde_json::from_str(&said).unwrap();

    let mut verify = gfxpack();
    verify.arg("verify").arg("--artifacts-dir").arg(&out).arg("--source").arg(shard);
    for check in ["marker-name", "kernel-not-found"] {
        let allowed = format!("{check}:*/**/libconverted.so=its archives are another artifact's");
        verify.arg("--allow").arg(allowed);
    }
    ok(&mut verify);

    let root = dir.join("root");
    let artifacts: Vec<_> = fs::read_dir(&out).unwrap().map(|e| e.unwrap().path()).collect();
    common::install(&artifacts, &root);
    let original = dir.join("original");
    let fat: Vec<_> = fs::read_dir(shard).unwrap().map(|e| e.unwrap().path()).collect();
    common::install(&fat, &original);
    let converted = report["split"][0]["converted"].as_array().unwrap();
    let names: Vec<_> = converted
        .iter()
        .map(|binary| {
            binary["path"].as_str().unwrap().strip_prefix(PREFIX).unwrap()[1..].to_owned()
        })
        .collect();
    let (was, is) = (registered(&original, &names), registered(&root, &names));
    assert_eq!(was.len(), names.len());
    for (binary, name) in converted.iter().zip(&names) {
        let wrappers = binary["wrappers"].as_u64().unwrap();
        assert_eq!(was[name], (0..wrappers).map(|i| (i, (HIPF, 0))).collect(), "{name}");
        assert_eq!(is[name], (0..wrappers).map(|i| (i, (HIPK, i))).collect(), "{name}");
    }

    let mut checker = tool("/usr/bin/python3", "python3 python3-msgpack python3-zstandard");
    checker.arg(common::repo().join("tests/check/kernels.py")).arg("--root").arg(&root).arg(shard);
    let checked: Value = serde_json::from_str(&ok(&mut checker)).unwrap();
    assert_eq!(checked["mismatches"], 0);
    assert_eq!(checked["binaries"].as_u64(), Some(names.len() as u64));
    let wrappers: u64 = converted.iter().map(|binary| binary["wrappers"].as_u64().unwrap()).sum();
    assert_eq!(checked["wrappers"].as_u64(), Some(wrappers));
    report
}

#[test]
fn every_shape_goes_the_whole_way() {
    let dir = tempfile::tempdir().unwrap();
    let shard = shard(dir.path(), "-fuse-ld=lld");
    let report = the_whole_way(dir.path(), &shard, &["--kpack-scope", "binary"]);
    let report = &report["split"][0];
    assert_eq!(report["converted"].as_array().unwrap().len(), shapes().len());
    let isas: BTreeSet<_> =
        report["isas"].as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "gfx1100",
        "gfx1101",
        "gfx1102",
        "gfx942",
        "gfx90a:xnack+",
        "gfx90a:xnack-",
        "gfx906:sramecc+:xnack-",
        "gfx11-generic",
        "gfx9-4-generic",
    ];
    assert_eq!(isas, BTreeSet::from(expected));
    for (name, pages) in [("sets", true), ("mixed", true), ("under-a-page", false)] {
        let path = format!("{PREFIX}/lib/lib{name}.so");
        let binaries = report["converted"].as_array().unwrap();
        let binary = binaries.iter().find(|binary| binary["path"] == path.as_str()).unwrap();
        let [before, after] =
            ["size_before", "size_after"].map(|key| binary[key].as_u64().unwrap());
        assert_eq!(after < before, pages, "{binary}");
    }

    // What stays as it is, is told, and nothing else.
    let notes: Vec<_> = report["notes"].as_array().unwrap().iter().map(Value::to_string).collect();
    for (file, reason) in KEPT {
        assert!(notes.iter().any(|n| n.contains(file) && n.contains(reason)), "{file}: {notes:#?}");
        let [was, is] = [shard.join("shapes_lib_fat"), dir.path().join("out/shapes_lib_generic")]
            .map(|artifact| fs::read(artifact.join(PREFIX).join(file)).unwrap());
        assert!(was == is, "{file} was changed");
    }
    assert_eq!(notes.len(), KEPT.len(), "{notes:#?}");
    let mut split = gfxpack();
    split.args(["split", "--batch-artifact-parent-dir"]).arg(&shard);
    split.arg("--output-dir").arg(dir.path().join("again"));
    let said = ok(&mut split);
    assert!(said.contains("5 files that may have device code stay as they are"), "{said}");
    let verbose = common::run(split.args(["--verbose", "--force"]));
    for (file, reason) in KEPT {
        assert!(verbose.stderr.contains(file) && verbose.stderr.contains(reason), "{file}");
    }

    // Equal code objects are stored once: three wrappers on one bundle, and its content a second time.
    let archive =
        dir.path().join("root/.kpack/shapes_lib+math-libs+shapes+lib+libshared.so_gfx1100.kpack");
    let said = ok(gfxpack().args(["inspect", "--json"]).arg(archive));
    let inspected: Value = serde_json::from_str(&said).unwrap();
    let count = |key: &str| inspected[key].as_u64().unwrap_or_else(|| panic!("{key} in {said}"));
    assert_eq!((count("entries"), count("unique_code_objects")), (6, 2));
}

#[test]
fn every_shape_of_other_linkers_goes_the_whole_way() {
    for (linker, split_args) in [
        ("-fuse-ld=bfd", ["--compression", "none"]),
        ("-fuse-ld=gold", ["--kpack-layout", "in-place"]),
        ("-fuse-ld=mold", ["--kpack-scope", "prefix"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let shard = shard(dir.path(), linker);
        the_whole_way(dir.path(), &shard, &split_args);
    }
}

#[test]
fn a_compressed_bundle_need_not_fit_into_memory() {
    let dir = tempfile::tempdir().unwrap();
    let isas = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1200"];
    let mut all = entries(&compile(dir.path(), "large", &isas, &[]));
    for (_, content) in all.iter_mut().filter(|(_, content)| !content.is_empty()) {
        content.resize(16 << 20, 0);
    }
    let plain = bundle_of(&all);
    assert!(plain.len() > 110 << 20);
    let packed = compress(Ccob::V3, true, &plain);
    let mut kpacks = Vec::new();
    for (form, bundle) in [("plain", plain), ("packed", packed)] {
        let artifact = dir.path().join(form).join("large_lib_all");
        let lib = artifact.join(PREFIX).join("lib");
        fs::create_dir_all(&lib).unwrap();
        fs::write(artifact.join("artifact_manifest.txt"), format!("{PREFIX}\n")).unwrap();
        Library::new("large", vec![bundle], &[0]).link(dir.path(), &lib.join("liblarge.so"));
        // The second bound is less than one code object.
        let runs: [&[&str]; 3] = [
            &["--memory=24MiB"],
            &["--memory=8MiB", "--jobs=3"],
            &["--memory=24MiB", "--compression=none"],
        ];
        for (i, args) in runs.into_iter().enumerate() {
            let out = dir.path().join(format!("{form}-{i}"));
            let mut split = gfxpack();
            split.args(["split", "--quiet", "--artifact-prefix", "large_lib", "--artifact-dir"]);
            split.arg(&artifact).arg("--output-dir").arg(&out).args(args);
            let peak = peak_memory(&mut split);
            assert!(peak < 100 << 10, "{form} {args:?}: a peak of {peak} KiB");
            let mut made = snapshot(&out);
            made.retain(|path, what| path.ends_with(".kpack") && what.starts_with("file"));
            assert_eq!(made.len(), isas.len(), "{made:?}");
            fs::remove_dir_all(out).unwrap();
            kpacks.push(made);
        }
    }
    // Neither the form nor the bound changes what is stored.
    assert_eq!(kpacks[0], kpacks[1]);
    assert_eq!(kpacks[..3], kpacks[3..]);
}

/// Those of up to 56 MiB are in memory whole; the window of a larger one has 128 MiB, as clang makes it.
#[test]
fn compressed_bundles_in_memory_and_the_window_of_a_large_one_share_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let isas = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1200"];
    let code = entries(&compile(dir.path(), "large", &isas, &[]));
    let bundle = |mib: usize| {
        let mut all = code.clone();
        for (_, content) in all.iter_mut().filter(|(_, content)| !content.is_empty()) {
            content.resize(mib << 20, 0);
        }
        let plain = bundle_of(&all);
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.long_distance_matching(true).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&plain).unwrap();
        let stream = encoder.finish().unwrap();
        compressed(Ccob::V3, true, &plain, &stream)
    };
    let (small, large) = (bundle(7), bundle(20));
    let artifact = dir.path().join("large_lib_all");
    let lib = artifact.join(PREFIX).join("lib");
    fs::create_dir_all(&lib).unwrap();
    fs::write(artifact.join("artifact_manifest.txt"), format!("{PREFIX}\n")).unwrap();
    let packed = vec![small.clone(), small.clone(), large, small];
    Library::new("large", packed, &[0, 1, 2, 3]).link(dir.path(), &lib.join("liblarge.so"));
    for compression in ["zstd", "none"] {
        let out = dir.path().join(compression);
        let mut split = gfxpack();
        split.args(["split", "--quiet", "--artifact-prefix", "large_lib", "--artifact-dir"]);
        split.arg(&artifact).arg("--output-dir").arg(&out).args(["--compression", compression]);
        let peak = peak_memory(&mut split);
        assert!(peak < 256 << 10, "{compression}: a peak of {peak} KiB");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1 + isas.len());
        fs::remove_dir_all(out).unwrap();
    }
}

/// Hashes of small bundles are checked together, after their code objects are packed.
#[test]
fn of_several_bundles_with_wrong_hashes_the_first_is_told_and_nothing_is_left() {
    let Bundles { dir, two, .. } = bundles();
    let artifact = dir.path().join("several_lib_all");
    let lib = artifact.join(PREFIX).join("lib");
    fs::create_dir_all(&lib).unwrap();
    fs::write(artifact.join("artifact_manifest.txt"), format!("{PREFIX}\n")).unwrap();
    let packed = vec![compress(Ccob::V3, true, two); 12];
    let file = lib.join("libseveral.so");
    Library::new("several", packed, &(0..12).collect::<Vec<_>>()).link(dir.path(), &file);
    let good = fs::read(&file).unwrap();
    let at: Vec<_> = (0..good.len()).filter(|&i| good[i..].starts_with(b"CCOB")).collect();
    assert_eq!(at.len(), 12);
    for damaged in [&[][..], &[11], &[3, 10], &[9, 10]] {
        let mut bad = good.clone();
        damaged.iter().for_each(|&i| bad[at[i] + 24] ^= 1);
        fs::write(&file, bad).unwrap();
        let out = dir.path().join(format!("several-{}", damaged.len()));
        let mut split = gfxpack();
        split.args(["split", "--quiet", "--artifact-prefix", "several_lib", "--artifact-dir"]);
        split.arg(&artifact).arg("--output-dir").arg(&out);
        let Some(first) = damaged.first() else {
            ok(&mut split);
            continue;
        };
        let said = common::run(&mut split).stderr;
        assert!(
            said.contains(&format!("the bundle at {:#x}: cannot be read", at[*first])),
            "{said}"
        );
        assert!(said.contains("MD5 begins"), "{said}");
        assert!(!out.exists(), "{damaged:?}");
    }
}

/// The bundles of the test are bundles for others too.
#[test]
fn the_bundler_reads_what_the_test_compresses() {
    let Bundles { dir, two, .. } = bundles();
    let file = dir.path().join("again");
    // Version 3 is younger than this bundler.
    for (version, zstd) in
        [(Ccob::V1, true), (Ccob::V1, false), (Ccob::V2, true), (Ccob::V2, false)]
    {
        fs::write(&file, compress(version, zstd, two)).unwrap();
        let mut bundler = tool("clang-offload-bundler-19", "clang-tools-19");
        // It looks for llvm-objcopy by that name, which only another package than ours has in /usr/bin.
        bundler.env("PATH", "/usr/lib/llvm-19/bin:/usr/bin:/bin");
        let input = format!("--input={}", file.display());
        let said = ok(bundler.args(["--list", "--type=o", &input]));
        assert!(said.contains("gfx1100") && said.contains("gfx1101"), "{said}");
    }
}

/// A `.hip_fatbin` of more than 2 GiB, with a bundle at either end. Writes about 5 GB below the
/// temporary directory, and takes half a minute: `cargo test --test shapes -- --ignored`.
#[test]
#[ignore = "needs 5 GB of disk"]
fn more_than_two_gigabytes() {
    let dir = tempfile::tempdir().unwrap();
    let shard = dir.path().join("shard");
    let lib = shard.join("shapes_lib_fat").join(PREFIX).join("lib");
    fs::create_dir_all(&lib).unwrap();
    fs::write(shard.join("shapes_lib_fat/artifact_manifest.txt"), format!("{PREFIX}\n")).unwrap();
    let Bundles { two, other, .. } = bundles();
    let mut library = Library::new("large", vec![two.clone(), other.clone()], &[1, 0]);
    library.gap = 0x9000_0000;
    library.flags = vec!["-fuse-ld=lld"];
    library.link(dir.path(), &lib.join("liblarge.so"));
    let report = the_whole_way(dir.path(), &shard, &[]);
    let binary = &report["split"][0]["converted"][0];
    assert!(binary["size_before"].as_u64().unwrap() > 2 << 30, "{binary}");
    assert!(binary["size_after"].as_u64().unwrap() < 1 << 20, "{binary}");
}
