//! Capabilities of programs on every way from an artifact to a package: a directory, an archive, a plan, and directories in between.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{example_config, fails, gfxpack, ok, tool};
use serde_json::json;

/// A shard in which an artifact has a program with a capability, and where its packages are defined.
fn shards(dir: &Path) {
    let bin = dir.join("shards/gfx110X-build/tools_run_generic/p/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("../../artifact_manifest.txt"), "p\n").unwrap();
    fs::copy("/bin/true", bin.join("ping")).unwrap();
    ok(tool("setcap", "libcap2-bin").arg("cap_net_raw=ep").arg(bin.join("ping")));
    let contents = json!([{"artifact": "tools", "components": ["run"]}]);
    let package = json!({"name": "tools", "summary": "A tool", "contents": contents});
    fs::write(dir.join("packages.json"), json!({"packages": [package]}).to_string()).unwrap();
}

/// Packs the artifact, and removes it as a directory.
fn pack(dir: &Path) {
    let shard = dir.join("shards/gfx110X-build");
    ok(tool("tar", "tar")
        .args(["--format=pax", "--xattrs", "--xattrs-include=security.capability", "--zstd"])
        .args(["-cf", "tools_run_generic.tar.zst", "-C", "tools_run_generic", "."])
        .current_dir(&shard));
    fs::remove_dir_all(shard.join("tools_run_generic")).unwrap();
}

fn step(dir: &Path, name: &str, input: &str, output: &str) {
    ok(gfxpack()
        .current_dir(dir)
        .arg(name)
        .args(["--input-shards-dir", input, "--output-dir", output, "--config"])
        .arg(example_config())
        .args(["--packages", "packages.json", "--version", "1.0", "--release", "1"])
        .args(["--format", "rpm", "--no-auto-deps"]));
}

#[track_caller]
fn assert_kept(dir: &Path, output: &str) {
    let rpm = dir.join(output).join("tools-1.0-1.x86_64.rpm");
    let query = ["-qp", "--nosignature", "--qf", "[%{FILENAMES}|%{FILECAPS}\n]"];
    let listed = ok(tool("rpm", "rpm").args(query).arg(rpm));
    assert!(listed.contains("/opt/rocm/bin/ping|cap_net_raw=ep\n"), "{listed}");
}

#[test]
fn a_build_keeps_them_from_directories_and_archives() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    shards(dir);
    step(dir, "build", "shards", "of-directory");
    assert_kept(dir, "of-directory");
    pack(dir);
    step(dir, "build", "shards", "of-archive");
    assert_kept(dir, "of-archive");
    let same = |name: &str| fs::read(dir.join(name).join("tools-1.0-1.x86_64.rpm")).unwrap();
    assert!(same("of-directory") == same("of-archive"));
}

#[test]
fn a_plan_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    shards(dir);
    pack(dir);
    ok(gfxpack()
        .current_dir(dir)
        .args(["plan", "--input-shards-dir", "shards", "--output-dir", "out", "--config"])
        .arg(example_config())
        .args(["--packages", "packages.json", "--version", "1.0", "--release", "1"])
        .args(["--format", "rpm", "--no-auto-deps", "--ninja", "build.ninja"]));
    let path = Path::new(env!("CARGO_BIN_EXE_gfxpack")).parent().unwrap().to_owned();
    let path = std::env::join_paths([path, "/usr/bin".into(), "/bin".into()]).unwrap();
    ok(tool("ninja", "ninja-build").args(["-f", "build.ninja"]).env("PATH", path).current_dir(dir));
    assert_kept(dir, "out");
}

#[test]
fn files_on_disk_in_between_have_them() {
    for archive in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        shards(dir);
        if archive {
            pack(dir);
        }
        ok(gfxpack()
            .current_dir(dir)
            .args(["split", "--batch-artifact-parent-dir", "shards/gfx110X-build"])
            .args(["--output-dir", "split/gfx110X-build"]));
        ok(gfxpack()
            .current_dir(dir)
            .args(["recombine", "--copy", "--input-shards-dir", "split", "--config"])
            .arg(example_config())
            .args(["--output-dir", "recombined"]));
        ok(gfxpack()
            .current_dir(dir)
            .args(["package", "--artifacts-dir", "recombined", "--config"])
            .arg(example_config())
            .args(["--packages", "packages.json", "--version", "1.0", "--release", "1"])
            .args(["--format", "rpm", "--no-auto-deps", "--output-dir", "out"]));
        assert_kept(dir, "out");
    }
}

#[test]
fn verify_finds_those_that_got_lost() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    shards(dir);
    let batch = ["split", "--batch-artifact-parent-dir", "shards/gfx110X-build"];
    ok(gfxpack().current_dir(dir).args(batch).args(["--output-dir", "split/gfx110X-build"]));
    let verify = || {
        let mut command = gfxpack();
        command.current_dir(dir).args(["verify", "--artifacts-dir", "split/gfx110X-build"]);
        command.args(["--source", "shards/gfx110X-build"]);
        command
    };
    ok(&mut verify());
    let ping = dir.join("split/gfx110X-build/tools_run_generic/p/bin/ping");
    ok(tool("setcap", "libcap2-bin").arg("-r").arg(&ping));
    let told = common::run(&mut verify());
    assert_eq!(told.status, Some(1));
    assert!(told.stdout.contains("has other capabilities"), "{}{}", told.stdout, told.stderr);
}

#[test]
fn an_archives_damaged_ones_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    shards(dir);
    let shard = dir.join("shards/gfx110X-build");
    fs::remove_dir_all(shard.join("tools_run_generic/p/bin")).unwrap();
    let script = "import tarfile, io
t = tarfile.open('t.tar', 'w', format=tarfile.PAX_FORMAT)
def add(name, text, pax={}):
    i = tarfile.TarInfo(name); i.size = len(text); i.mode = 0o755; i.pax_headers = pax
    t.addfile(i, io.BytesIO(text))
add('artifact_manifest.txt', b'p\\n')
add('p/bin/ping', b'x', {'SCHILY.xattr.security.capability': 'abc'})
t.close()";
    ok(tool("python3", "python3").args(["-c", script]).current_dir(&shard));
    fs::remove_dir_all(shard.join("tools_run_generic")).unwrap();
    ok(tool("zstd", "zstd")
        .args(["-q", "--rm", "t.tar", "-o", "tools_run_generic.tar.zst"])
        .current_dir(&shard));
    let told = fails(
        gfxpack()
            .current_dir(dir)
            .args(["build", "--input-shards-dir", "shards", "--output-dir", "out", "--config"])
            .arg(example_config())
            .args(["--packages", "packages.json", "--version", "1.0", "--release", "1"])
            .args(["--format", "rpm", "--no-auto-deps"]),
        1,
    );
    assert!(told.contains("bin/ping") && told.contains("has 3 bytes"), "{told}");
}
