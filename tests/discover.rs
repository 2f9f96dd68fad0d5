//! `gfxpack discover` on the example shards, and on trees that are split from them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::copy_tree;
use serde_json::{Value, json};

const SHARDS: [&str; 3] = ["gfx110X-build", "gfx1151-build", "gfx120X-build"];
const ISAS: [&str; 6] = ["gfx1100", "gfx1101", "gfx1102", "gfx1151", "gfx1200", "gfx1201"];

fn shards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shards")
}

fn library(artifact: &str) -> PathBuf {
    shards().join("gfx110X-build").join(artifact)
}

fn gfxpack<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gfxpack")).args(args).output().unwrap()
}

/// Runs a command that must succeed; gives its JSON.
#[track_caller]
fn json_of(args: &[&Path]) -> Value {
    let output = gfxpack(args.iter().copied().chain([Path::new("--json")]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn discover(path: &Path) -> Value {
    json_of(&[Path::new("discover"), path])["paths"][0].clone()
}

/// Runs a command that must fail with that status; gives its standard error.
#[track_caller]
fn fails(status: i32, args: &[&Path]) -> String {
    let output = gfxpack(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    text
}

fn split(to: &Path) {
    for shard in SHARDS {
        let output = gfxpack([
            Path::new("split"),
            Path::new("--batch-artifact-parent-dir"),
            &shards().join(shard),
            Path::new("--output-dir"),
            &to.join(shard),
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn isas(report: &Value) -> Vec<&str> {
    report["isas"].as_object().unwrap().keys().map(String::as_str).collect()
}

/// ISA to code objects and database files.
fn counts(report: &Value) -> Vec<(String, u64, u64)> {
    let number = |content: &Value, key: &str| content[key].as_u64().unwrap();
    let all = report["isas"].as_object().unwrap().iter();
    all.map(|(isa, c)| (isa.clone(), number(c, "code_objects"), number(c, "database_files")))
        .collect()
}

#[test]
fn a_folder_of_shards_is_added_up() {
    let report = discover(&shards());
    assert_eq!(report["kind"], "shards");
    assert_eq!(report["shards"], json!(SHARDS));
    assert_eq!(report["artifacts"], 18);
    // Four in rocBLAS, two in hipBLASLt, one in each program, one that two wrappers of rocFFT share.
    let each: Vec<_> = ISAS.iter().map(|isa| ((*isa).to_owned(), 9, 11)).collect();
    assert_eq!(counts(&report), each);
    assert_eq!(report["notes"], json!([]));
}

#[test]
fn what_a_path_is_is_told_by_looking() {
    let shard = shards().join("gfx110X-build");
    let report = discover(&shard);
    assert_eq!(
        (report["kind"].as_str(), report["artifacts"].as_u64()),
        (Some("artifacts"), Some(6))
    );
    assert_eq!(report["shards"], json!(["gfx110X-build"]));
    assert_eq!(isas(&report), ISAS[..3]);

    let report = discover(&shard.join("blas_lib_gfx110X-dgpu"));
    assert_eq!(report["kind"], "artifact");
    assert_eq!(counts(&report)[0], ("gfx1100".to_owned(), 6, 11));

    let stage = library("blas_lib_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage");
    let report = discover(&stage);
    assert_eq!(report["kind"], "directory");
    assert_eq!(counts(&report)[0], ("gfx1100".to_owned(), 4, 5));

    // A link that the user names is followed.
    let report = discover(&stage.join("lib/librocblas.so"));
    assert_eq!(report["kind"], "file");
    assert_eq!(counts(&report)[2], ("gfx1102".to_owned(), 4, 0));
    assert_eq!(report["found"][0]["holder"], "fat binary");

    let object = stage.join("lib/rocblas/library/Kernels.so-000-gfx1101.hsaco");
    let report = discover(&object);
    assert_eq!(counts(&report), [("gfx1101".to_owned(), 1, 0)]);
    assert_eq!(report["found"][0]["holder"], "code object");
    assert_eq!(report["total"]["gfx1101"]["code_bytes"], Value::Null);
    assert_eq!(report["isas"]["gfx1101"]["code_bytes"], fs::metadata(&object).unwrap().len());

    let report = discover(&shards().join("gfx110X-build/sysdeps_lib_generic"));
    assert_eq!(isas(&report), Vec::<&str>::new());
}

#[test]
fn every_kind_of_fat_binary_is_counted() {
    let blas = "blas_lib_gfx110X-dgpu/math-libs/BLAS";
    for (file, each) in [
        (format!("{blas}/hipBLASLt/stage/lib/libhipblaslt.so.0.9"), 2),
        ("fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage/lib/librocfft.so.0.1".to_owned(), 1),
        ("blas_run_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/bin/rocblas-bench".to_owned(), 1),
        ("blas_run_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/bin/rocblas-tool".to_owned(), 1),
        ("support_lib_gfx110X-dgpu/base/support/stage/lib/libsupport.so.1.2".to_owned(), 0),
    ] {
        let report = discover(&library(&file));
        let expected: Vec<_> = ISAS[..3].iter().map(|isa| ((*isa).to_owned(), each, 0)).collect();
        assert_eq!(counts(&report), if each == 0 { Vec::new() } else { expected }, "{file}");
    }
}

#[test]
fn split_trees_hold_what_the_fat_ones_held() {
    let dir = tempfile::tempdir().unwrap();
    split(dir.path());
    let (fat, split) = (discover(&shards()), discover(dir.path()));
    assert_eq!(split["kind"], "shards");
    assert_eq!(split["isas"], fat["isas"]);
    let found = split["found"].as_array().unwrap();
    assert!(found.iter().all(|place| place["holder"] != "fat binary"));
    let one = found.iter().find(|place| place["artifact"] == "fft_lib_gfx1151").unwrap();
    assert_eq!(one["file"], "kpack/stage/.kpack/fft_lib_gfx1151.kpack");
    assert_eq!((&one["holder"], &one["shard"]), (&json!("kpack"), &json!("gfx1151-build")));
}

#[test]
fn verbose_says_where_each_isa_is() {
    let shard = shards().join("gfx1151-build");
    let output = gfxpack([Path::new("discover"), &shard, Path::new("--verbose")]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("librocfft")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    let place = "fft_lib_gfx1151/math-libs/rocFFT/stage/lib/librocfft.so.0.1";
    assert_eq!(words, ["gfx1151", "1", "6.08", "KiB", "fat", "binary", place]);
    let line = text.lines().find(|line| line.contains("lib/rocblas/library")).unwrap();
    assert!(line.contains("database rocblas") && line.contains(" 5 "), "{line}");
}

#[test]
fn several_paths_get_a_total() {
    let (a, b) = (shards().join("gfx110X-build"), shards().join("gfx1151-build"));
    let report = json_of(&[Path::new("discover"), &a, &b]);
    assert_eq!(report["total"].as_object().unwrap().len(), 4);
    let output = gfxpack([Path::new("discover"), &a, &b]);
    let text = String::from_utf8(output.stdout).unwrap();
    let total: Vec<_> = text.lines().skip_while(|line| *line != "all paths:").collect();
    assert_eq!(total.len(), 7, "{text}");
    assert_eq!(total[6].split_whitespace().take(2).collect::<Vec<_>>(), ["all", "36"]);
    assert!(text.lines().all(|line| line.chars().count() <= 100 || line.contains("/examples/")));
}

#[test]
fn a_configuration_is_drafted_and_recombines() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("groups.json");
    let trees = dir.path().join("split");
    split(&trees);
    let write = |extra: &[&str]| {
        let mut args = vec![Path::new("discover"), &trees, Path::new("--write-config"), &config];
        args.extend(extra.iter().map(Path::new));
        args.into_iter().map(Path::to_owned).collect::<Vec<_>>()
    };
    assert!(gfxpack(write(&[])).status.success());
    let text: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    assert_eq!(
        text,
        json!({
            "primary_shard": "gfx110X-build",
            "required_shards": SHARDS,
            "architecture_groups": {
                "gfx110X": {
                    "display_name": "ROCm gfx110X (RX 7900, RX 7700, RX 7600)",
                    "architectures": ["gfx1100", "gfx1101", "gfx1102"],
                },
                "gfx115X": {
                    "display_name": "ROCm gfx115X (8040S)",
                    "architectures": ["gfx1151"],
                },
                "gfx120X": {
                    "display_name": "ROCm gfx120X (RX 9060, RX 9070)",
                    "architectures": ["gfx1200", "gfx1201"],
                },
            },
            "validation": {
                "error_on_duplicate_device_code": true,
                "verify_generic_artifacts_match": false,
                "error_on_missing_architecture": false,
            },
        })
    );

    // What is there is left alone.
    let output = gfxpack(write(&["--primary-shard", "gfx1151-build"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--force"));
    let now: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    assert_eq!(now["primary_shard"], "gfx110X-build");
    assert!(gfxpack(write(&["--primary-shard", "gfx1151-build", "--force"])).status.success());
    let now: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    assert_eq!(now["primary_shard"], "gfx1151-build");
    assert_eq!(gfxpack(write(&["--primary-shard", "none", "--force"])).status.code(), Some(2));

    let combined = dir.path().join("combined");
    let output = gfxpack([
        Path::new("recombine"),
        Path::new("--input-shards-dir"),
        &trees,
        Path::new("--config"),
        &config,
        Path::new("--output-dir"),
        &combined,
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = discover(&combined);
    assert_eq!((report["kind"].as_str(), isas(&report)), (Some("artifacts"), ISAS.to_vec()));
    assert_eq!(report["isas"], discover(&shards())["isas"]);
}

/// A library that only another job builds would be an error of `recombine`, a file that only it has
/// would be left out: the draft takes both, and says so.
#[test]
fn a_drafted_configuration_takes_host_code_that_the_primary_shard_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("shards");
    copy_tree(&shards(), &from);
    let config = dir.path().join("groups.json");
    let draft = |of: &Path| {
        let output = gfxpack([
            Path::new("discover"),
            of,
            Path::new("--write-config"),
            &config,
            Path::new("--force"),
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        (text["generic_union"].clone(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(draft(&from), (Value::Null, String::new()), "all shards have the same files");
    // What only the primary shard has is taken anyhow, and so is a database file of another ISA.
    fs::remove_dir_all(from.join("gfx1151-build/support_lib_gfx1151")).unwrap();
    let stage = "fft_lib_gfx1151/math-libs/rocFFT/stage";
    let database = from.join("gfx1151-build").join(stage).join("lib/rocblas/library/gfx1151");
    fs::create_dir_all(&database).unwrap();
    fs::write(database.join("more_gfx1151.dat"), "database").unwrap();
    assert_eq!(draft(&from), (Value::Null, String::new()));

    fs::remove_dir_all(from.join("gfx110X-build/fft_lib_gfx110X-dgpu")).unwrap();
    let (union, text) = draft(&from);
    assert_eq!(union, true);
    let why = "primary shard gfx110X-build has not all host code: fft_lib is in gfx1151-build, gfx120X-build only";
    assert!(text.contains(why) && text.lines().count() == 1, "{text}");
    // So that it does.
    let trees = dir.path().join("split");
    for shard in SHARDS {
        let [from, to] = [from.join(shard), trees.join(shard)];
        let args =
            [Path::new("--batch-artifact-parent-dir"), &from, Path::new("--output-dir"), &to];
        assert!(gfxpack([&[Path::new("split")], &args[..]].concat()).status.success());
    }
    let combined = dir.path().join("combined");
    let args = [Path::new("recombine"), Path::new("--input-shards-dir"), &trees];
    let to = [Path::new("--config"), &config, Path::new("--output-dir"), &combined];
    let output = gfxpack([&args[..], &to].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(combined.join("fft_lib_generic").is_dir());
    // Split trees say the same.
    assert_eq!(draft(&trees), (union, text));

    copy_tree(&shards(), &dir.path().join("more"));
    let extra = "gfx120X-build/support_lib_gfx120X-all/base/support/stage/lib/libmore.so.1";
    fs::write(dir.path().join("more").join(extra), "text").unwrap();
    let (union, text) = draft(&dir.path().join("more"));
    assert_eq!(union, true);
    let why = "support_lib: only gfx120X-build has base/support/stage/lib/libmore.so.1";
    assert!(text.contains(why), "{text}");
}

#[test]
fn faults_name_their_files_and_all_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let discover = Path::new("discover");
    let gone = dir.path().join("gone");
    assert!(fails(1, &[discover, &gone]).contains("gone"));
    assert_eq!(gfxpack(["discover"]).status.code(), Some(2));

    let fat = library("fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage/lib/librocfft.so.0.1");
    let bytes = fs::read(fat).unwrap();
    let (cut, bad) = (dir.path().join("cut.so"), dir.path().join("bad.hsaco"));
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(&bad, b"__CLANG_OFFLOAD_BUNDLE__\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
    fs::write(dir.path().join("text.txt"), "nothing").unwrap();
    let text = fails(1, &[discover, dir.path()]);
    assert!(text.contains("cut.so") && text.contains("bad.hsaco"), "{text}");

    let config = dir.path().join("groups.json");
    let text = fails(
        1,
        &[
            discover,
            &dir.path().join("text.txt"),
            Path::new("--write-config"),
            &config,
            Path::new("--primary-shard"),
            Path::new("x"),
        ],
    );
    assert!(text.contains("no device code"), "{text}");
    assert!(!config.exists());
    // A single file says nothing of a shard.
    let so = library("blas_lib_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2");
    let text = fails(2, &[discover, &so, Path::new("--write-config"), &config]);
    assert!(text.contains("--primary-shard"), "{text}");

    // What might hide device code is named; an archive of an artifact is looked into.
    let archive = dir.path().join("blas_lib_gfx1100.tar.xz");
    fs::write(&archive, b"\xfd7zXZ\0").unwrap();
    assert!(fails(1, &[discover, &archive]).contains("blas_lib_gfx1100.tar.xz"));
    let archive = dir.path().join("libraries.tar.xz");
    fs::write(&archive, b"\xfd7zXZ\0").unwrap();
    let output = gfxpack([discover, &archive]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("unpack it"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no device code"));

    // Links that lead nowhere, round, or out are no faults.
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    symlink("/nowhere/at/all", tree.join("out")).unwrap();
    symlink("../text.txt", tree.join("up")).unwrap();
    let report = json_of(&[discover, &tree]);
    assert_eq!(report["paths"][0]["files"], 3);
}
