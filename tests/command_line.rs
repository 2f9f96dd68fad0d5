//! The command line: what it says of itself, and what it refuses.

mod common;

use std::fs;

use common::{fails, gfxpack, ok, repo};

#[test]
fn each_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    ok(gfxpack().arg("man").arg("--output-dir").arg(dir.path()));
    for page in ["gfxpack.1", "gfxpack-build.1", "gfxpack-repo.1", "gfxpack-repo-add.1"] {
        let text = fs::read_to_string(dir.path().join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let page = ok(gfxpack().args(["man", "repo", "add"]));
    assert!(page.contains("\\-\\-allow\\-partial"), "{page}");
    let said = fails(gfxpack().args(["man", "repo", "ad"]), 2);
    assert!(said.contains("`repo` has no command `ad`") && said.contains("create"), "{said}");
}

#[test]
fn verify_says_all_that_it_can_look_at() {
    let said = fails(gfxpack().arg("verify"), 2);
    for option in ["--artifacts-dir", "--packages-dir", "--repo-dir"] {
        assert!(said.contains(option), "{said}");
    }
}

#[test]
fn an_architecture_that_nothing_has_is_refused_and_one_of_several_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let build = |targets: &str, output: &str| {
        let mut command = gfxpack();
        let examples = repo().join("examples");
        command.arg("build").arg("--input-shards-dir").arg(examples.join("shards"));
        command.arg("--config").arg(examples.join("packaging-config.json"));
        command.args(["--version", "1", "--release", "1", "--format", "deb", "--no-auto-deps"]);
        command.args(["--gpu-targets", targets]).arg("--output-dir").arg(dir.path().join(output));
        command
    };
    let said = fails(&mut build("gfx9999", "none"), 2);
    assert!(said.contains("nothing has code for gfx9999") && said.contains("gfx1100"), "{said}");
    assert!(!dir.path().join("none").exists());
    let output = build("gfx9999,gfx1100", "one").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("nothing has code for gfx9999, which"), "{said}");
    assert!(!said.contains("nothing has code for gfx1100"), "{said}");
}

#[test]
fn a_plan_refuses_what_would_have_no_effect_or_hit_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let plan = |options: &[&str]| {
        let mut command = gfxpack();
        command.current_dir(dir.path()).args(["plan", "--version", "1", "--release", "1"]);
        command.args(["--output-dir", "out", "--input-shards-dir"]);
        command.arg(repo().join("examples/shards"));
        command.arg("--config").arg(repo().join("examples/packaging-config.json")).args(options);
        fails(&mut command, 2)
    };
    let said = plan(&["--ninja", "a.ninja", "--cache", "c"]);
    assert!(said.contains("--cache is of no use here"), "{said}");
    let said = plan(&["--ninja", "a", "--github-matrix", "a"]);
    assert!(said.contains("is named for --ninja and for --github-matrix"), "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
