//! What a run reads, and how often: each byte of the input once for both formats, each archive once for all packages that
//! have room on disk, and nothing but headers for a dry run. System calls are counted, by strace.

#![allow(clippy::unwrap_used)]

#[path = "common/archives.rs"]
mod archives;
mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};

use archives::{Order, pack};
use common::{
    assert_same, copy_tree, example_config, example_packages, example_shards, fails, gfxpack, ok,
    snapshot, tool,
};
use gfxpack::artifact::read_shards;
use gfxpack::config::{PackagesConfig, PackagingConfig};
use gfxpack::jobs::Jobs;
use gfxpack::package::Format;
use gfxpack::package::compress::Compression;
use gfxpack::package::render::Templates;
use gfxpack::package::set::SetOptions;
use gfxpack::pipeline::{plan_build, write_packages};
use gfxpack::progress::{Monitor, Silent};
use gfxpack::tree::TreePath;
use gfxpack::tree::output::OutputDir;
use gfxpack::{split, stage};

/// What a command did with the files below a directory: how often it opened each, and how many bytes it read of it.
fn traced(command: &Command, below: &Path) -> BTreeMap<PathBuf, (u32, u64)> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let calls = "trace=open,openat,read,pread64,readv,preadv,preadv2,copy_file_range,sendfile,mmap";
    let mut strace = tool("strace", "strace");
    strace.args(["-f", "-y", "-s", "0", "-e", calls, "-e", "signal=none", "-o"]).arg(log.path());
    strace.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    ok(&mut strace);
    let mut files: BTreeMap<PathBuf, (u32, u64)> = BTreeMap::new();
    // Calls that another thread's came between: the beginning, by thread.
    let mut begun: BTreeMap<String, String> = BTreeMap::new();
    for line in fs::read_to_string(log.path()).unwrap().lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if let Some(first) = call.strip_suffix("<unfinished ...>") {
            begun.insert(thread.to_owned(), first.to_owned());
            continue;
        }
        let call = match call.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            Some((_, rest)) => begun.remove(thread).unwrap() + rest,
            None => call.to_owned(),
        };
        let Some((name, rest)) = call.split_once('(') else { continue };
        let Some((arguments, result)) = rest.rsplit_once(" = ") else { continue };
        let number: String = result.chars().take_while(char::is_ascii_digit).collect();
        let Ok(number) = number.parse::<u64>() else { continue };
        // Of `open` the result has the path, of the others the first argument (of sendfile the second).
        let shown = match name {
            "open" | "openat" => result,
            "sendfile" => arguments.split_once(", ").unwrap().1,
            "mmap" => {
                arguments.rsplit_once('<').map_or("", |(before, _)| &arguments[before.len()..])
            }
            _ => arguments,
        };
        let Some((_, path)) = shown.split_once('<') else { continue };
        let path = Path::new(path.split_once('>').unwrap().0);
        if !path.starts_with(below) {
            continue;
        }
        let (opened, read) = files.entry(path.to_owned()).or_default();
        match name {
            "open" | "openat" => *opened += 1,
            "mmap" => panic!("{path:?} is mapped: what is read of it is not seen"),
            _ => *read += number,
        }
    }
    files
}

fn random(path: &Path, len: usize) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ len as u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, &bytes[..len]).unwrap();
}

/// Arguments for one artifact, which becomes one package.
fn package(dir: &Path, out: &str) -> Command {
    let groups = r#"{ "primary_shard": "a", "architecture_groups": {
        "gfx90X": { "display_name": "g", "architectures": ["gfx90a"] } } }"#;
    fs::write(dir.join("groups.json"), groups).unwrap();
    let mut command = gfxpack();
    command.args(["package", "--version", "1", "--release", "1", "--no-auto-deps"]);
    command.env("SOURCE_DATE_EPOCH", "1767614400");
    command.arg("--artifacts-dir").arg(dir.join("artifacts"));
    command.arg("--config").arg(dir.join("groups.json"));
    command.arg("--output-dir").arg(dir.join(out));
    command
}

/// What a plan reads of a file beside its content: the first bytes, for each format.
const HEAD: u64 = 4096;

#[test]
fn both_formats_come_from_one_reading() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let stage = dir.join("artifacts/big_lib_generic/stage");
    random(&stage.join("lib/libbig.so.1"), 5 << 20);
    random(&stage.join("lib/rocblas/library/TensileLibrary.dat"), 300_000);
    fs::write(dir.join("artifacts/big_lib_generic/artifact_manifest.txt"), "stage\n").unwrap();
    // A directory walk has `data/…` before `data-more`, a list that is sorted by bytes behind it.
    for (name, len) in [("data/a", 3_000_000), ("data/b", 700), ("data/c", 1 << 20)] {
        random(&stage.join("share").join(name), len);
    }
    random(&stage.join("share/data-more"), 90_001);
    random(&stage.join("share/data.small"), 63);
    File::create(stage.join("share/data/empty")).unwrap();
    // Names of one file are at the end of an .rpm, wherever they stand; one sorts first, one last.
    random(&stage.join("share/aa"), 400_000);
    fs::hard_link(stage.join("share/aa"), stage.join("share/zz")).unwrap();
    random(&stage.join("share/data/twice"), 250_000);
    fs::hard_link(stage.join("share/data/twice"), stage.join("share/data-twice")).unwrap();

    // Two more that are compressed in pieces, once for both: of several pieces, and compressed already.
    let library = stage.join("lib/rocblas/library");
    let random = fs::read(stage.join("lib/libbig.so.1")).unwrap();
    let pieces: Vec<u8> = random.chunks(1000).flat_map(|part| part.repeat(5)).collect();
    fs::write(library.join("Kernels_gfx90a.dat"), pieces).unwrap();
    fs::write(library.join("a.zst"), [b"\x28\xb5\x2f\xfd", &random[..2 << 20]].concat()).unwrap();

    let mut files = traced(&package(&dir, "both"), &stage);
    files.retain(|path, _| path.is_file());
    assert_eq!(files.len(), 12, "{files:#?}");
    for (path, (_, read)) in &files {
        let size = path.metadata().unwrap().len();
        assert!((size..=size + HEAD).contains(read), "{path:?}: {read} bytes read of {size}");
    }
    // And what comes out is what each format alone is, also with too little memory for both at a time.
    let both = snapshot(&dir.join("both"));
    assert_eq!(both.len(), 2);
    let ways = [
        &["--format", "deb"][..],
        &["--format", "rpm", "--jobs", "5"],
        &["--memory", "128MiB"],
        &["--jobs", "1"],
        &["--jobs", "5"],
    ];
    for args in ways {
        ok(package(&dir, "other").args(args).arg("--force"));
        let other = snapshot(&dir.join("other"));
        let of_both: BTreeMap<_, _> =
            both.clone().into_iter().filter(|(name, _)| other.contains_key(name)).collect();
        assert_same(&format!("{args:?}"), &of_both, &other);
    }
    let names = ok(tool("rpm", "rpm")
        .args(["-qlp", "--nosignature"])
        .arg(dir.join("both/big-lib-1-1.x86_64.rpm")));
    assert!(names.contains("/opt/rocm/share/data-twice\n"), "{names}");
    let deb: fn(&Path, &Path) -> Command = |package, to| {
        let mut command = tool("dpkg-deb", "dpkg");
        command.arg("-x").arg(package).arg(to);
        command
    };
    let rpm: fn(&Path, &Path) -> Command = |package, to| {
        let mut command = tool("bsdtar", "libarchive-tools");
        command.arg("-C").arg(to).arg("-xf").arg(package);
        command
    };
    for (unpack, package) in [(deb, "big-lib_1-1_amd64.deb"), (rpm, "big-lib-1-1.x86_64.rpm")] {
        let to = dir.join(package.replace('.', "-"));
        fs::create_dir(&to).unwrap();
        ok(&mut unpack(&dir.join("both").join(package), &to));
        for path in files.keys() {
            let installed = to.join("opt/rocm").join(path.strip_prefix(&stage).unwrap());
            assert!(fs::read(path).unwrap() == fs::read(&installed).unwrap(), "{installed:?}");
        }
    }
}

/// Copies the example's shards with each artifact as an archive.
fn packed(to: &Path) {
    for shard in fs::read_dir(example_shards()).unwrap().map(|e| e.unwrap().path()) {
        let shard_to = to.join(shard.file_name().unwrap());
        fs::create_dir_all(&shard_to).unwrap();
        for artifact in fs::read_dir(&shard).unwrap().map(|e| e.unwrap().path()) {
            pack(&artifact, &shard_to, "zst", Order::Sorted);
        }
    }
}

fn build(shards: &Path, out: &Path, args: &[&str]) -> Command {
    let mut command = gfxpack();
    command.args(["build", "--input-shards-dir"]).arg(shards);
    command.arg("--config").arg(example_config()).arg("--packages").arg(example_packages());
    command.arg("--output-dir").arg(out).args(["--version", "7.1.0", "--release", "1"]).args(args);
    command
}

#[test]
fn an_archive_is_gone_through_once_for_the_plan_and_once_for_all_packages() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let shards = dir.join("shards");
    packed(&shards);
    let opened = |out: &str, args: &[&str]| -> BTreeMap<PathBuf, u32> {
        let files = traced(&build(&shards, &dir.join(out), args), &shards).into_iter();
        let archives = files.filter(|(path, _)| path.extension().is_some_and(|e| e == "zst"));
        archives.map(|(path, (opened, _))| (path, opened)).collect()
    };
    // Planning reads some again, to compare host code that differs between shards.
    let planning = opened("plan", &["--dry-run"]);
    assert_eq!(planning.len(), 18);
    let passes = |out: &str, args: &[&str]| -> Vec<u32> {
        opened(out, args).into_iter().map(|(path, opened)| opened - planning[&path]).collect()
    };
    let with_room = passes("room", &["--spool", "1GiB"]);
    assert!(with_room.iter().all(|&passes| passes <= 1), "{with_room:?}");
    assert!(with_room.iter().sum::<u32>() > 8, "{with_room:?}");
    let [with_default, without] =
        [("default", &[][..]), ("none", &["--spool", "0"])].map(|(out, args)| passes(out, args));
    let sum = |all: &[u32]| all.iter().sum::<u32>();
    assert!(sum(&with_default) < sum(&without), "{with_default:?} {without:?}");
    assert!(with_default.iter().all(|&passes| passes <= 3), "{with_default:?}");
    let expected = snapshot(&dir.join("room"));
    assert_eq!(expected.len(), 44);
    for out in ["default", "none"] {
        assert_same(out, &expected, &snapshot(&dir.join(out)));
    }
    ok(&mut build(&example_shards(), &dir.join("directories"), &["--jobs", "1"]));
    assert_same("directories", &expected, &snapshot(&dir.join("directories")));
}

/// Many plans in one run, as the jobs of a matrix have them: no archive is gone through more often than by `build`.
#[test]
fn plans_that_are_carried_out_together_share_the_passes_over_archives() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let shards = dir.join("shards");
    packed(&shards);
    let opened = |command: &Command| -> BTreeMap<PathBuf, u32> {
        let files = traced(command, &shards).into_iter();
        files.map(|(path, (opened, _))| (path, opened)).collect()
    };
    let planning = opened(&build(&shards, &dir.join("none"), &["--dry-run"]));
    let mut building = opened(&build(&shards, &dir.join("built"), &[]));
    for (path, opened) in &mut building {
        *opened -= planning.get(path).copied().unwrap_or(0);
    }
    building.retain(|_, passes| *passes > 0);

    ok(gfxpack()
        .args(["plan", "--input-shards-dir"])
        .arg(&shards)
        .args(["--version", "7.1.0", "--release", "1", "--config"])
        .arg(example_config())
        .arg("--packages")
        .arg(example_packages())
        .arg("--output-dir")
        .arg(dir.join("made"))
        .arg("--ninja")
        .arg(dir.join("build.ninja")));
    let plans = fs::read_dir(dir.join("made.plans")).unwrap().map(|e| e.unwrap().path());
    let mut make = gfxpack();
    make.args(["make", "--output-dir"]).arg(dir.join("made")).args(plans);
    assert_eq!(opened(&make), building);
    assert_same("made", &snapshot(&dir.join("built")), &snapshot(&dir.join("made")));
}

/// Packages of one batch need each other: where one fails, the other is never written, and what it has in spools must not
/// keep the next batch waiting.
#[test]
fn a_package_that_cannot_be_written_any_more_gives_its_room_back() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let shards = dir.join("shards");
    copy_tree(&example_shards(), &shards);
    let libraries = fs::read_dir(&shards).unwrap().map(|shard| {
        let mut artifacts = fs::read_dir(shard.unwrap().path()).unwrap().map(|e| e.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        artifacts.find(|path| name(path).starts_with("blas_lib_gfx")).unwrap()
    });
    for library in libraries {
        let blas = library.join("math-libs/BLAS");
        let mut bytes = fs::read(blas.join("hipBLASLt/stage/lib/libhipblaslt.so.0.9")).unwrap();
        if library.ends_with("blas_lib_gfx110X-dgpu") {
            // Behind the magic, the version, the method and two sizes is the checksum of what is compressed.
            let bundle = bytes.windows(6).position(|window| window == b"CCOB\x02\0").unwrap();
            bytes[bundle + 16] ^= 0xff;
            // It is the most that a package has, so it comes first.
            random(&blas.join("rocBLAS/stage/share/doc/large"), 3 << 20);
        }
        fs::write(blas.join("rocBLAS/stage/lib/libother.so"), bytes).unwrap();
    }
    let shard = shards.join("gfx110X-build");
    for (artifact, prefix, waits) in [
        ("blas_run_gfx110X-dgpu", "math-libs/BLAS/rocBLAS", "waits-blas"),
        ("fft_lib_gfx110X-dgpu", "math-libs/rocFFT", "waits-fft"),
    ] {
        let artifact = shard.join(artifact);
        random(&artifact.join(prefix).join("stage/share/doc").join(waits), 600_000);
        pack(&artifact, &shard, "zst", Order::Sorted);
        fs::remove_dir_all(&artifact).unwrap();
    }
    for jobs in ["1", "2"] {
        let args = ["--jobs", jobs, "--spool", "1MiB", "--no-auto-deps"];
        let build = build(&shards, &dir.join("out"), &args);
        // Where it does not end, it is ended, by status 124.
        let mut limited = tool("timeout", "coreutils");
        limited.args(["-k", "1", "60"]).arg(build.get_program()).args(build.get_args());
        let told = fails(&mut limited, 1);
        assert!(told.contains("libother.so: the bundle at "), "{told}");
        assert!(!dir.join("out").exists());
    }
}

/// Of one shard alone, since host code that differs between shards is compared, which reads it. A database's files are
/// bundles, of which planning needs the tables.
#[test]
fn planning_goes_through_an_archive_once() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    packed(&dir.join("all"));
    let shards = dir.join("shards");
    fs::create_dir(&shards).unwrap();
    copy_tree(&dir.join("all/gfx110X-build"), &shards.join("gfx110X-build"));
    let files = traced(&build(&shards, &dir.join("out"), &["--dry-run"]), &shards);
    let opened: Vec<_> = files.iter().filter(|(path, _)| path.is_file()).collect();
    assert_eq!(opened.len(), 6, "{opened:#?}");
    assert!(opened.iter().all(|(_, (times, _))| *times == 1), "{opened:#?}");
}

#[test]
fn a_dry_run_reads_headers_alone() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let shards = dir.join("shards");
    copy_tree(&example_shards(), &shards);
    let lib = shards.join("gfx110X-build/blas_lib_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/lib");
    assert!(lib.is_dir());
    let mut large = File::create(lib.join("large.bin")).unwrap();
    large.write_all(b"no program").unwrap();
    large.set_len(1 << 30).unwrap();
    let files = traced(&build(&shards, &dir.join("out"), &["--dry-run"]), &shards);
    let read: u64 = files.values().map(|(_, read)| read).sum();
    assert!(files.len() > 20 && read < 4 << 20, "{read} bytes read: {files:#?}");
    assert!(!dir.join("out").exists());
}

#[test]
fn a_dry_run_says_what_would_be_made_and_what_is_left_out() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let shards = dir.join("shards");
    copy_tree(&example_shards(), &shards);
    fs::write(shards.join("gfx1151-build/build.log"), "no artifact").unwrap();
    let library = "blas_lib_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/lib/rocblas/library";
    for i in 0..9 {
        fs::write(
            shards.join("gfx110X-build").join(library).join(format!("many{i}.txt")),
            "1234567",
        )
        .unwrap();
    }
    let definitions = dir.join("packages.json");
    let text = fs::read_to_string(example_packages()).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let packages = json["packages"].as_array_mut().unwrap();
    packages.retain(|package| package["name"] == "rocblas");
    fs::write(&definitions, json.to_string()).unwrap();
    let mut command = gfxpack();
    command.args(["build", "--dry-run", "--no-auto-deps", "--version", "7.1.0", "--release", "1"]);
    command.args(["--gpu-targets", "gfx1100"]).arg("--input-shards-dir").arg(&shards);
    command.arg("--config").arg(example_config()).arg("--packages").arg(&definitions);
    command.arg("--output-dir").arg(dir.join("out"));
    let text = ok(&mut command);
    for words in [
        "rocblas-gfx110X 7.1.0-1 (group gfx110X, code for gfx1100",
        "─ rocblas-gfx110x_7.1.0-1_amd64.deb\n",
        "─ rocblas-gfx110X-7.1.0-1.x86_64.rpm\n",
        "─ Requires: rocblas-generic = 7.1.0-1\n",
        "_gfx1100.kpack: about ",
        ".kpm (manifest of kpacks)\n",
        "librocblas.so.5 -> librocblas.so.5.2 (symlink)\n",
        "/opt/rocm/lib/rocblas/library/: ",
        "left out\n",
        " database files for gfx1151: not among --gpu-targets\n",
        "build.log: is no artifact\n",
        ": no definition takes it\n",
    ] {
        assert!(text.contains(words), "`{words}` is not in:\n{text}");
    }
    assert!(!text.contains("many3.txt"), "{text}");
    assert!(ok(command.arg("--verbose")).contains("library/many3.txt: 7 B\n"));
    let json: serde_json::Value = serde_json::from_str(&ok(command.arg("--json"))).unwrap();
    let packages = json["packages"].as_array().unwrap();
    assert_eq!(json["totals"]["packages"], packages.len());
    let package = |name: &str| packages.iter().find(|package| package["name"] == name).unwrap();
    let group = package("rocblas-gfx110X");
    assert_eq!((&group["group"], &group["kind"]), (&"gfx110X".into(), &"group".into()));
    let content = group["content"].as_array().unwrap();
    let kpack = content.iter().find(|item| item["kind"] == "kpack").unwrap();
    let sizes = content.iter().map(|item| {
        let size = item["size"].as_u64().or(item["estimated_size"].as_u64());
        size.unwrap_or(0)
    });
    assert_eq!(sizes.sum::<u64>(), group["installed_size"].as_u64().unwrap());
    assert!(kpack["estimated_size"].as_u64() < kpack["code_bytes"].as_u64(), "{kpack}");
    assert_eq!(group["installed_size_is_estimate"], true);
    assert_eq!(package("rocblas-generic")["installed_size_is_estimate"], false);
    let left_out = json["left_out"].as_array().unwrap();
    for why in ["is no artifact", "no definition takes it", "not among --gpu-targets"] {
        assert!(left_out.iter().any(|one| one["why"] == why), "{left_out:#?}");
    }
    assert!(!dir.join("out").exists());
}

/// Both writers stop, and the fault is told once.
#[test]
fn a_file_that_changes_on_the_way_is_one_error() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let shards = dir.join("shards");
    copy_tree(&example_shards(), &shards);
    let jobs = Jobs::new(2, 64 << 20);
    let groups = PackagingConfig::load(&example_config()).unwrap();
    let definitions = PackagesConfig::load(&example_packages()).unwrap();
    let splitting = split::Options { scope: split::Scope::Prefix, ..split::Options::default() };
    let read = read_shards(&shards, &jobs, &Silent).unwrap();
    let staging = staging(vec!["rocm-sysdeps".to_owned()]);
    let (packages, _) =
        plan_build(&read, &groups, Some(&definitions), &splitting, &staging, &jobs).unwrap();
    let input = shards.join("gfx110X-build/sysdeps_lib_generic");
    let changed = snapshot(&input);
    let name = changed.keys().find(|name| name.ends_with("NOTICE.txt")).unwrap();
    fs::write(input.join(name), "another text").unwrap();
    let output = OutputDir::create(&dir.join("out"), false, &[]).unwrap();
    let faults = write_packages(&packages, &options(), output, &jobs, &Silent).unwrap_err();
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 1, "{faults:#?}");
    assert!(faults[0].contains("NOTICE.txt"), "{faults:#?}");
    assert!(!dir.join("out").exists());
}

fn staging(only: Vec<String>) -> stage::Options {
    stage::Options {
        version: "7.1.0".to_owned(),
        release: "1".to_owned(),
        install_prefix: TreePath::new("opt/rocm").unwrap(),
        source_date: None,
        only,
        relations: None,
    }
}

fn options() -> SetOptions {
    let zstd = Compression::default();
    SetOptions {
        formats: vec![(Format::Deb, zstd), (Format::Rpm, zstd)],
        templates: Templates::built_in(),
        memory: None,
        spool: None,
        signer: None,
        digests: false,
        sign_debs: false,
    }
}

/// What a monitor was told, in bytes.
#[derive(Default)]
struct Told {
    foreseen: AtomicI64,
    done: AtomicI64,
}

impl Monitor for Told {
    fn begin(&self, _: &str, bytes: u64) {
        self.foreseen.store(bytes.try_into().unwrap(), Ordering::Relaxed);
    }

    fn foresee(&self, more: i64) {
        self.foreseen.fetch_add(more, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes.try_into().unwrap(), Ordering::Relaxed);
    }
}

/// Also where a generic package is written alone, and the archives of others are built for its manifests.
#[test]
fn progress_ends_where_it_was_foreseen() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    packed(&dir.join("packed"));
    let jobs = Jobs::new(2, 64 << 20);
    let groups = PackagingConfig::load(&example_config()).unwrap();
    let definitions = PackagesConfig::load(&example_packages()).unwrap();
    let splitting = split::Options { scope: split::Scope::Prefix, ..split::Options::default() };
    for (i, (shards, only)) in [
        (example_shards(), vec![]),
        (example_shards(), vec!["rocblas-generic".to_owned()]),
        (dir.join("packed"), vec![]),
        (dir.join("packed"), vec!["rocblas-generic".to_owned()]),
    ]
    .into_iter()
    .enumerate()
    {
        let staging = staging(only);
        let shards = read_shards(&shards, &jobs, &Silent).unwrap();
        let (packages, _) =
            plan_build(&shards, &groups, Some(&definitions), &splitting, &staging, &jobs).unwrap();
        let told = Told::default();
        let output = OutputDir::create(&dir.join(format!("out{i}")), false, &[]).unwrap();
        write_packages(&packages, &options(), output, &jobs, &told).unwrap();
        let (foreseen, done) = (told.foreseen.into_inner(), told.done.into_inner());
        // Manifests, texts that formats add, and what a conversion changes, are not foreseen: of small packages much.
        let tenth = foreseen / 10;
        assert!((foreseen - done).abs() < tenth, "{i}: {done} of {foreseen}");
        assert!(done > 100_000, "{done}");
    }
}
