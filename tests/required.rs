//! What has to be there: shards, what the configuration and the packages file name of them. A release that
//! lacks some of it must not go out with status 0.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{
    copy_tree, example_config, example_packages, example_shards, fails, gfxpack, ok, run,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A copy of the examples whose parts can be taken away.
struct Bench {
    dir: TempDir,
    groups: Value,
    packages: Value,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy_tree(&example_shards(), &dir.path().join("shards"));
        let read = |path: PathBuf| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        Self { dir, groups: read(example_config()), packages: read(example_packages()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn shard(&self, name: &str) -> PathBuf {
        self.path("shards").join(name)
    }

    /// A dry run of `build`.
    fn build(&self) -> Command {
        fs::write(self.path("groups.json"), self.groups.to_string()).unwrap();
        fs::write(self.path("packages.json"), self.packages.to_string()).unwrap();
        let mut command = gfxpack();
        command.current_dir(self.dir.path()).args(["build", "--dry-run", "--version", "7.1.0"]);
        command.args(["--release", "1", "--input-shards-dir", "shards", "--output-dir", "out"]);
        command.args(["--config", "groups.json", "--packages", "packages.json"]);
        command
    }
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
}

#[test]
fn a_required_shard_that_is_absent_is_an_error() {
    let mut bench = Bench::new();
    bench.groups["required_shards"] = json!(["gfx110X-build", "gfx1151-build"]);
    ok(&mut bench.build());
    fs::rename(bench.shard("gfx1151-build"), bench.shard("gfx1151-bild")).unwrap();
    let text = fails(&mut bench.build(), 2);
    has(
        &text,
        &[
            "error: groups.json: required_shards: there is no shard `gfx1151-build` in shards",
            "hint: the shards there are gfx110X-build, gfx1151-bild, gfx120X-build:",
        ],
    );
    // Nothing was read: what is wrong with a shard is not told before.
    fs::write(bench.shard("gfx110X-build/blas_lib_gfx1200.tar.zst"), "none").unwrap();
    assert_eq!(fails(&mut bench.build(), 2), text);

    // The same of `recombine`, and of a library's caller.
    let mut command = gfxpack();
    command.current_dir(bench.dir.path()).args(["recombine", "--input-shards-dir", "shards"]);
    command.args(["--config", "groups.json", "--output-dir", "out"]);
    assert_eq!(fails(&mut command, 2), text);

    // What half of the input has is no proof that nothing was lost.
    let mut command = gfxpack();
    command.current_dir(bench.dir.path()).args(["verify", "--artifacts-dir", "shards"]);
    command.args(["--source", "shards", "--config", "groups.json"]);
    assert_eq!(fails(&mut command, 2), text);

    bench.groups["required_shards"] = json!(["a", "b", "a"]);
    has(&fails(&mut bench.build(), 2), &["groups.json: required_shards lists `a` twice"]);
}

#[test]
fn a_shard_that_is_empty_or_a_link_to_nothing_is_an_error() {
    let bench = Bench::new();
    fs::remove_dir_all(bench.shard("gfx1151-build")).unwrap();
    fs::create_dir(bench.shard("gfx1151-build")).unwrap();
    has(&fails(&mut bench.build(), 1), &["shards/gfx1151-build: has no artifact in it"]);
    fs::remove_dir(bench.shard("gfx1151-build")).unwrap();
    ok(&mut bench.build());
    symlink("/nowhere/gfx1151", bench.shard("gfx1151-build")).unwrap();
    let told =
        "error: shards/gfx1151-build: is a link to /nowhere/gfx1151, which cannot be reached";
    has(&fails(&mut bench.build(), 1), &[told, "No such file"]);
    fs::remove_file(bench.shard("gfx1151-build")).unwrap();
    // The same of an artifact; a link that is called like none is passed over.
    symlink("nothing", bench.shard("gfx120X-build/latest.log")).unwrap();
    ok(&mut bench.build());
    symlink("nothing", bench.shard("gfx120X-build/rand_lib_gfx120X.tar.zst")).unwrap();
    let told = "shards/gfx120X-build/rand_lib_gfx120X.tar.zst: is a link to nothing, which cannot be reached";
    has(&fails(&mut bench.build(), 1), &[told]);
}

#[test]
fn an_absent_primary_shard_is_told_with_the_folder_and_the_configuration() {
    let mut bench = Bench::new();
    bench.groups["primary_shard"] = json!("gfx110X");
    has(
        &fails(&mut bench.build(), 2),
        &[
            "error: groups.json: primary_shard: there is no shard `gfx110X` in shards",
            "gfx110X-build, gfx1151-build, gfx120X-build",
        ],
    );
    symlink(bench.path("gone"), bench.shard("gfx110X")).unwrap();
    let gone = format!("shards/gfx110X: is a link to {}, which", bench.path("gone").display());
    has(&fails(&mut bench.build(), 1), &[&gone]);
}

#[test]
fn an_artifact_that_no_shard_has_is_an_error_unless_it_is_optional() {
    let mut bench = Bench::new();
    bench.packages["packages"][2]["contents"][0]["artifact"] = json!("ftf");
    let text = fails(&mut bench.build(), 2);
    has(
        &text,
        &[
            "error: package `rocfft`: there is no artifact `ftf`",
            "hint: there are blas, fft, support, sysdeps: correct the name,",
        ],
    );
    // Where only some packages are asked for, the others' artifacts need not be there.
    let ran = run(bench.build().args(["--only", "rocblas"]));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    has(&ran.stderr, &["warning: package rocfft: ", "there is no such artifact"]);
    has(&fails(bench.build().args(["--only", "rocfft-generic"]), 2), &["no artifact `ftf`"]);

    bench.packages["packages"][2]["contents"][0]["artifact"] = json!("fft");
    bench.packages["packages"][0]["contents"] = json!([
        {"artifact": "bals", "optional": true},
        {"artifact": "blas", "components": ["doc"], "optional": true},
        {"artifact": "blas", "components": ["dbg"]},
        {"artifact": "blas", "prefixes": ["nowhere"], "optional": true},
        {"artifact": "blas", "components": ["lib", "run", "dev"],
         "prefixes": ["math-libs/BLAS/rocBLAS/stage"]},
    ]);
    let ran = run(&mut bench.build());
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let of_rocblas = ran.stderr.lines().filter(|line| line.contains("package rocblas:"));
    let ends: Vec<_> = of_rocblas.map(|line| line.rsplit(": ").next().unwrap()).collect();
    assert_eq!(
        ends,
        ["blas has the components dev, lib, run only", "no file is under such a prefix and name",]
    );
}

#[test]
fn a_kind_that_nothing_is_of_is_told() {
    let mut bench = Bench::new();
    let warnings = |bench: &Bench| {
        let stderr = run(&mut bench.build()).stderr;
        stderr
            .lines()
            .filter(|line| line.contains("`kinds`"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(warnings(&bench), [""; 0]);
    // rocfft's artifact has no component of the kinds; links are of the kind dev by their names.
    bench.packages["packages"][2]["kinds"] = json!(["dev", "tests"]);
    assert_eq!(
        warnings(&bench),
        [
            "warning: package rocfft: there is no rocfft-tests, though `kinds` names it: there is no component \
         test of fft",
        ]
    );
    bench.packages["packages"][2]["dev_links"] = json!(false);
    bench.packages["packages"][2]["kinds"] = json!(["dev"]);
    assert_eq!(warnings(&bench).len(), 1);
    bench.packages["packages"][2]["kinds"] = json!([]);

    let rocblas = &mut bench.packages["packages"][0];
    rocblas["dev_links"] = json!(false);
    rocblas["contents"][0]["exclude"] = json!(["include/**", "lib/cmake/**"]);
    assert_eq!(
        warnings(&bench),
        [
            "warning: package rocblas: there is no rocblas-dev, though `kinds` names it: its contents take no file \
         of the component dev",
        ]
    );
    bench.packages["packages"][0]["contents"][0]["components"] = json!(["lib", "run"]);
    assert_eq!(
        warnings(&bench),
        [
            "warning: package rocblas: there is no rocblas-dev, though `kinds` names it: its contents leave out the \
         component dev",
        ]
    );
}

#[test]
fn a_drafted_configuration_requires_the_shards_that_it_was_drafted_from() {
    let mut bench = Bench::new();
    let draft = bench.path("draft.json");
    let discover = |from: &Path| {
        ok(gfxpack().arg("discover").arg(from).arg("--force").arg("--write-config").arg(&draft));
        serde_json::from_slice::<Value>(&fs::read(&draft).unwrap()).unwrap()
    };
    let shards = ["gfx110X-build", "gfx1151-build", "gfx120X-build"];
    let drafted = discover(&bench.path("shards"));
    assert_eq!(drafted["required_shards"], json!(shards));
    assert_eq!(discover(&bench.shard("gfx110X-build"))["required_shards"], Value::Null);
    bench.groups = drafted;
    ok(&mut bench.build());
    fs::remove_dir_all(bench.shard("gfx120X-build")).unwrap();
    has(&fails(&mut bench.build(), 2), &["there is no shard `gfx120X-build` in shards"]);
}
