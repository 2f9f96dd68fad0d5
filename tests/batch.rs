//! A batch of artifacts: each is split for itself, so that one bad file costs its artifact and no other;
//! what stands beside artifacts and is not read is told of, and reports say what became of all.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{
    assert_same, copy_tree, example_config, example_packages, example_shards, gfxpack, ok, run,
    snapshot,
};
use serde_json::Value;
use tempfile::TempDir;

/// A copy of a shard of the examples.
struct Batch {
    dir: TempDir,
}

const BLAS: &str = "blas_lib_gfx1151";
const FFT: &str = "fft_lib_gfx1151";
const RUN: &str = "blas_run_gfx1151";

impl Batch {
    /// Of these artifacts only.
    fn of(names: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("shard")).unwrap();
        for name in names {
            copy_tree(
                &example_shards().join("gfx1151-build").join(name),
                &dir.path().join("shard"),
            );
        }
        Self { dir }
    }

    fn shard(&self) -> PathBuf {
        self.dir.path().join("shard")
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn split(&self) -> Command {
        let mut command = gfxpack();
        command.arg("split").arg("--batch-artifact-parent-dir").arg(self.shard());
        command.arg("--output-dir").arg(self.out());
        command
    }

    /// What the good artifacts give without the others.
    fn expected(&self, without: &[&str]) -> BTreeMap<String, String> {
        let rest = tempfile::tempdir().unwrap();
        copy_tree(&self.shard(), &rest.path().join("shard"));
        for name in without {
            fs::remove_dir_all(rest.path().join("shard").join(name)).unwrap();
        }
        let mut command = gfxpack();
        command.arg("split").arg("--batch-artifact-parent-dir").arg(rest.path().join("shard"));
        ok(command.arg("--output-dir").arg(rest.path().join("out")));
        snapshot(&rest.path().join("out"))
    }

    /// The end of a library is cut off, which is seen when splitting is planned.
    fn cut_fft(&self) {
        let path = self.shard().join(FFT).join("math-libs/rocFFT/stage/lib/librocfft.so.0.1");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 700]).unwrap();
    }

    /// The digest in a compressed bundle is wrong, which is seen when its code is written.
    fn spoil_blas(&self) {
        let path = "math-libs/BLAS/hipBLASLt/stage/lib/libhipblaslt.so.0.9";
        let path = self.shard().join(BLAS).join(path);
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(4).position(|four| four == b"CCOB").unwrap() + 16;
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }

    /// What lies in the directory around shard and output.
    fn around(&self) -> Vec<String> {
        let listing = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> =
            listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn bad_files_cost_their_own_artifact_whenever_they_are_found() {
    let batch = Batch::of(&[BLAS, FFT, RUN]);
    batch.cut_fft();
    batch.spoil_blas();
    let before = snapshot(&batch.shard());
    for threads in ["1", "2", "8"] {
        let ran = run(batch.split().args(["--force", "--jobs", threads]));
        assert_eq!(ran.status, Some(1), "{}", ran.stderr);
        for words in [
            "libhipblaslt.so.0.9: the bundle at 0x1000: cannot be read",
            "caused by: the uncompressed bundle's MD5 begins",
            "librocfft.so.0.1: is a damaged ELF file",
            "caused by: the section header table at",
            "out: is incomplete: 1 of 3 artifacts is in it; blas_lib_gfx1151 and fft_lib_gfx1151 failed",
            "hint: mend what failed, and split again with --force",
        ] {
            assert!(ran.stderr.contains(words), "no `{words}` in {}", ran.stderr);
        }
        assert_eq!(ran.stderr.matches("error: ").count(), 3, "{}", ran.stderr);
        let rows: Vec<_> = ran.stdout.lines().filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(
            rows,
            [
                "blas_lib_gfx1151: failed, 1 error",
                "blas_run_gfx1151: 2 fat binaries converted, 2 generic files",
                "fft_lib_gfx1151: failed, 1 error",
            ]
        );
        assert_same(threads, &batch.expected(&[BLAS, FFT]), &snapshot(&batch.out()));
        assert_eq!(batch.around(), ["out", "shard"]);
    }
    assert_same("input", &before, &snapshot(&batch.shard()));
}

#[test]
fn the_document_says_what_became_of_each_artifact() {
    let batch = Batch::of(&[BLAS, FFT, RUN]);
    batch.cut_fft();
    batch.spoil_blas();
    let ran = run(batch.split().arg("--json"));
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    let report = json(&ran.stdout);
    assert_eq!(report["status"], "incomplete");
    assert_eq!(report["output"], batch.out().to_str().unwrap());
    assert_eq!(report["artifacts"], serde_json::json!(["blas_run_generic", "blas_run_gfx1151"]));
    let became: Vec<_> = report["split"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["artifact"].as_str().unwrap(), one["status"].as_str().unwrap()))
        .collect();
    assert_eq!(became, [(BLAS, "failed"), (RUN, "done"), (FFT, "failed")]);
    let error = &report["split"][2]["errors"][0];
    assert!(error["path"].as_str().unwrap().ends_with("librocfft.so.0.1"), "{error}");
    assert_eq!(error["message"], "is a damaged ELF file");
    assert!(error["causes"][0].as_str().unwrap().contains("ends outside the file"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("build or copy it again"), "{error}");
    assert_eq!(report["errors"].as_array().unwrap().len(), 2);
    assert_eq!(report["split"][1]["isas"]["gfx1151"]["code_objects"], 2);
}

#[test]
fn where_all_fail_there_is_no_output() {
    for (names, blas) in [(&[BLAS, FFT][..], true), (&[FFT], false)] {
        let batch = Batch::of(names);
        batch.cut_fft();
        if blas {
            batch.spoil_blas();
        }
        let ran = run(batch.split().arg("--json"));
        assert_eq!(ran.status, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("nothing was written: "), "{}", ran.stderr);
        let report = json(&ran.stdout);
        assert_eq!((&report["status"], &report["output"]), (&"failed".into(), &Value::Null));
        assert_eq!(report["artifacts"], serde_json::json!([]));
        assert_eq!(batch.around(), ["shard"]);
        // What is there already stays, even by force.
        fs::create_dir(batch.out()).unwrap();
        fs::write(batch.out().join("kept"), "").unwrap();
        assert_eq!(run(batch.split().arg("--force")).status, Some(1));
        assert_eq!(snapshot(&batch.out()).into_keys().collect::<Vec<_>>(), ["kept"]);
        assert_eq!(batch.around(), ["out", "shard"]);
    }
}

#[test]
fn an_output_that_is_there_is_replaced_by_force_only_and_then_whole() {
    let batch = Batch::of(&[BLAS, FFT, RUN]);
    ok(&mut batch.split());
    let whole = snapshot(&batch.out());
    batch.cut_fft();
    let ran = run(&mut batch.split());
    // Both are told.
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    for words in ["librocfft.so.0.1: is a damaged ELF file", "exists and is not empty"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    assert_same("untouched", &whole, &snapshot(&batch.out()));
    // Nothing of what failed is left from the run before.
    assert_eq!(run(batch.split().arg("--force")).status, Some(1));
    assert_same("replaced", &batch.expected(&[FFT]), &snapshot(&batch.out()));
    assert_eq!(batch.around(), ["out", "shard"]);
}

#[test]
fn one_artifact_alone_is_all_or_nothing() {
    let batch = Batch::of(&[BLAS]);
    batch.spoil_blas();
    let mut split = gfxpack();
    split.args(["split", "--artifact-prefix", "blas_lib", "--artifact-dir"]);
    let ran = run(split.arg(batch.shard().join(BLAS)).arg("--output-dir").arg(batch.out()));
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("libhipblaslt.so.0.9: the bundle"), "{}", ran.stderr);
    assert_eq!(batch.around(), ["shard"]);
}

/// A generic artifact beside that of a build job: both give parts of `fft_lib_generic`.
fn with_generic_part(batch: &Batch, file: &str) {
    let generic = batch.shard().join("fft_lib_generic");
    let path = generic.join("math-libs/rocFFT/stage").join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "text").unwrap();
    fs::write(generic.join("artifact_manifest.txt"), "math-libs/rocFFT/stage\n").unwrap();
}

#[test]
fn what_two_artifacts_give_parts_of_loses_the_part_of_the_one_that_fails() {
    let batch = Batch::of(&[FFT, RUN]);
    with_generic_part(&batch, "share/notice.txt");
    ok(&mut batch.split());
    assert!(batch.out().join("fft_lib_generic/math-libs/rocFFT/stage/share/notice.txt").exists());
    fs::remove_dir_all(batch.out()).unwrap();
    // Filed under another ISA, which is seen when the code is written.
    let library = batch.shard().join(FFT).join("math-libs/rocFFT/stage/lib/librocfft.so.0.1");
    let mut bytes = fs::read(&library).unwrap();
    let id = b"hipv4-amdgcn-amd-amdhsa--gfx1151";
    let at = bytes.windows(id.len()).position(|window| window == id).unwrap();
    bytes[at + id.len() - 1] = b'0';
    fs::write(library, bytes).unwrap();
    let ran = run(&mut batch.split());
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    for words in ["is filed under gfx1150", "2 of 3 artifacts are in it; fft_lib_gfx1151 failed"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    assert_same("out", &batch.expected(&[FFT]), &snapshot(&batch.out()));
}

#[test]
fn two_artifacts_that_give_one_path_have_both_failed() {
    let batch = Batch::of(&[FFT, RUN]);
    with_generic_part(&batch, "lib/librocfft.so.0");
    let ran = run(&mut batch.split());
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    let path = "fft_lib_generic/math-libs/rocFFT/stage/lib/librocfft.so.0";
    for words in [
        &format!("shard/fft_lib_generic: gives {path}, and so does {FFT}\n"),
        &format!("shard/{FFT}: gives {path}, and so does fft_lib_generic\n"),
        "1 of 3 artifacts is in it; fft_lib_generic and fft_lib_gfx1151 failed",
    ] {
        assert!(ran.stderr.contains(words), "no `{words}` in {}", ran.stderr);
    }
    assert_same("out", &batch.expected(&[FFT, "fft_lib_generic"]), &snapshot(&batch.out()));
}

/// What no file can be called is found when it is written, and is the artifact's fault.
#[test]
fn a_name_that_the_output_cannot_hold_is_a_fault_of_its_artifact() {
    let batch = Batch::of(&[RUN]);
    let artifact = batch.dir.path().join("long_lib_all");
    fs::create_dir(&artifact).unwrap();
    fs::write(artifact.join("artifact_manifest.txt"), "stage\n").unwrap();
    fs::create_dir(artifact.join("stage")).unwrap();
    fs::write(artifact.join("stage/name"), "").unwrap();
    let rename = format!("s,stage/name,stage/{},", "n".repeat(300));
    ok(common::tool("tar", "tar")
        .args(["--format=pax", "--transform", &rename, "-C"])
        .arg(&artifact)
        .arg("-czf")
        .arg(batch.shard().join("long_lib_all.tar.gz"))
        .args(["artifact_manifest.txt", "stage"]));
    let ran = run(&mut batch.split());
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    for words in ["File name too long", "hint: shorten the name", "long_lib_all failed"] {
        assert!(ran.stderr.contains(words), "no `{words}` in {}", ran.stderr);
    }
    let names: Vec<_> = snapshot(&batch.out()).into_keys().filter(|n| !n.contains('/')).collect();
    assert_eq!(names, ["blas_run_generic", "blas_run_gfx1151"]);
}

#[test]
fn the_outputs_of_a_full_disk_are_none_also_beside_a_bad_artifact() {
    let batch = Batch::of(&[BLAS, FFT, RUN]);
    batch.cut_fft();
    let disk = batch.dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // A small file system of its own, which is gone with the process that mounted it.
    let script = r#"mount -t tmpfs -o size=64k none "$1" || exit 77; shift; "$@"; status=$?
        [ -z "$(ls -A "$DISK")" ] || { ls -A "$DISK" >&2; exit 99; }; exit $status"#;
    let ran = run(common::tool("unshare", "util-linux")
        .args(["--mount", "--map-root-user", "sh", "-c", script, "sh"])
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_gfxpack"))
        .args(["split", "--jobs", "1", "--batch-artifact-parent-dir"])
        .arg(batch.shard())
        .arg("--output-dir")
        .arg(disk.join("out"))
        .env("DISK", &disk));
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    for words in ["No space left on device", "librocfft.so.0.1: is a damaged ELF file"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    assert!(!ran.stderr.contains("is incomplete"), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("error: ").count(), 2, "{}", ran.stderr);
}

/// Shards with things in and beside them that are no artifacts.
fn with_strays(dir: &Path) -> PathBuf {
    let shards = dir.join("shards");
    copy_tree(&example_shards(), &shards);
    fs::write(shards.join("README"), "").unwrap();
    let shard = shards.join("gfx1151-build");
    fs::create_dir(shard.join(".cache")).unwrap();
    for i in 0..9 {
        fs::write(shard.join(format!("log-{i}\n")), "").unwrap();
    }
    shards
}

#[test]
fn what_is_passed_over_is_told_by_all_that_read_shards() {
    let dir = tempfile::tempdir().unwrap();
    let shards = with_strays(dir.path());
    let shard = shards.join("gfx1151-build");
    let [split, recombined, packages] =
        ["split", "recombined", "packages"].map(|name| dir.path().join(name));
    let in_shard =
        r"passed over: 10 that are no artifacts (.cache, log-0\n, log-1\n, log-2\n, log-3\n, …)";
    let in_shards =
        "passed over: 11 that are no artifacts (README, gfx1151-build/.cache, gfx1151-build/log-0";
    let told = |command: &mut Command, words: &str| {
        let ran = run(command);
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        let text = ran.stdout + &ran.stderr;
        assert_eq!(text.matches("passed over").count(), 1, "{text}");
        assert!(text.contains(words), "no `{words}` in {text}");
    };
    let listed = |command: &mut Command, n: usize, first: &str| {
        let document = json(&ok(command.args(["--json", "--force"])));
        let at = if document.get("report").is_some() { &document["report"] } else { &document };
        let passed = at["passed_over"].as_array().unwrap().clone();
        assert_eq!((passed.len(), passed[0].as_str().unwrap()), (n, first));
    };

    let mut command = gfxpack();
    command.arg("split").arg("--batch-artifact-parent-dir").arg(&shard);
    command.arg("--output-dir").arg(split.join("gfx1151-build"));
    told(&mut command, in_shard);
    listed(&mut command, 10, ".cache");

    fs::write(split.join("gfx1151-build/stray"), "").unwrap();
    let mut command = gfxpack();
    command.args(["recombine", "--config"]).arg(example_config()).arg("--input-shards-dir");
    command.arg(dir.path().join("all")).arg("--output-dir").arg(&recombined);
    common::split_and_recombine(&example_shards(), &dir.path().join("clean"), &[]);
    copy_tree(&dir.path().join("clean/split"), &dir.path().join("all"));
    fs::write(dir.path().join("all/gfx1151-build/stray"), "").unwrap();
    told(&mut command, "passed over: 1 that is no artifact (gfx1151-build/stray)");
    listed(&mut command, 1, "gfx1151-build/stray");

    let mut command = gfxpack();
    command.args(["build", "--config"]).arg(example_config()).arg("--packages");
    command.arg(example_packages()).arg("--input-shards-dir").arg(&shards);
    command.arg("--output-dir").arg(&packages).args(["--version", "1", "--release", "1"]);
    told(&mut command, in_shards);
    listed(&mut command, 11, "README");

    told(gfxpack().arg("discover").arg(&shard), in_shard);
    told(gfxpack().arg("discover").arg(&shards), in_shards);
    let document = json(&ok(gfxpack().args(["discover", "--json"]).arg(&shards)));
    let passed = document["paths"][0]["passed_over"].as_array().unwrap();
    assert_eq!((passed.len(), &passed[10]), (11, &"gfx1151-build/log-8\n".into()));
    // Where there is nothing, nothing is said.
    let clean = run(gfxpack().arg("discover").arg(example_shards()));
    assert!(!clean.stdout.contains("passed over") && !clean.stderr.contains("passed over"));
}

/// The document of `build` has what that of `split` has, by shard: files that stay as they are with
/// the reason, and ISAs that were left out.
#[test]
fn build_says_what_splitting_left() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("shards");
    copy_tree(&example_shards(), &shards);
    let lib = "gfx110X-build/blas_lib_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/lib";
    let library = fs::read(shards.join(lib).join("librocblas.so.5.2")).unwrap();
    // Without section headers: e_shoff, e_shnum and e_shstrndx are 0.
    let mut headless = library;
    headless[40..48].fill(0);
    headless[60..64].fill(0);
    fs::write(shards.join(lib).join("libheadless.so"), headless).unwrap();
    let options = ["--kpack-scope", "prefix", "--gpu-targets", "gfx1100,gfx1151", "--json"];
    let mut by_shard = serde_json::Map::new();
    for shard in ["gfx110X-build", "gfx1151-build", "gfx120X-build"] {
        let mut split = gfxpack();
        split.arg("split").arg("--batch-artifact-parent-dir").arg(shards.join(shard));
        split.arg("--output-dir").arg(dir.path().join(shard)).args(options);
        by_shard.insert(shard.to_owned(), json(&ok(&mut split))["split"].clone());
    }
    for more in [&["--dry-run"][..], &[]] {
        let mut build = gfxpack();
        build.args(["build", "--config"]).arg(example_config()).arg("--packages");
        build.arg(example_packages()).arg("--input-shards-dir").arg(&shards);
        build.arg("--output-dir").arg(dir.path().join("packages"));
        build.args(["--version", "1", "--release", "1"]).args(options).args(more);
        let document = json(&ok(&mut build));
        assert_eq!(document["report"]["split"], Value::Object(by_shard.clone()));
        let fat = &document["report"]["split"]["gfx110X-build"][1];
        assert_eq!(fat["artifact"], "blas_lib_gfx110X-dgpu");
        let note = fat["notes"][0].as_str().unwrap();
        assert!(note.contains("libheadless.so has no section headers"), "{note}");
        assert!(fat["left_out"]["gfx1101"]["code_objects"].as_u64().unwrap() > 0, "{fat}");
        assert!(document["packages"].as_array().unwrap().len() > 3);
        assert_eq!(document["report"]["passed_over"], serde_json::json!([]));
    }
}

#[test]
fn help_says_what_a_bad_artifact_does() {
    for (command, words) in [
        ("split", "each artifact is split for itself"),
        ("recombine", "All or nothing: "),
        ("build", "All or nothing: "),
        ("verify", "docs/verify.md explains each check"),
    ] {
        let help = ok(gfxpack().args([command, "--help"]));
        assert!(help.contains(words), "{help}");
    }
}
