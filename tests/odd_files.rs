//! Names and modes that no careful build has, through both formats: what goes in comes out, and `verify` reads it as it is.

#![allow(clippy::unwrap_used)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use common::{Ran, copy_tree, example_config, example_shards, fails, gfxpack, ok, run, tool};
use serde_json::json;

const NAMES: [&[u8]; 20] = [
    b"-dash",
    b"co:lon",
    b"per%cent",
    b"per%%{name}",
    b"%(touch pwned)",
    b"%{lua:print(1)}",
    b"quo\"te",
    b"back\\slash",
    b" sp ace ",
    b"$(touch pwned)",
    b"qu'ote",
    b"tab\t",
    b"return\r",
    b"#hash",
    b"a=b",
    b"*",
    b"[x]",
    b"~",
    b"bad\xff",
    b"\x01ctl",
];

fn build(dir: &Path) -> Ran {
    let config = json!({
        "primary_shard": "s",
        "architecture_groups": {"g": {"display_name": "", "architectures": ["gfx1100"]}},
    });
    fs::write(dir.join("groups.json"), config.to_string()).unwrap();
    ok(gfxpack()
        .current_dir(dir)
        .args([
            "build",
            "--no-auto-deps",
            "--input-shards-dir",
            "shards",
            "--config",
            "groups.json",
        ])
        .args(["--output-dir", "out", "--version", "1", "--release", "1"]));
    run(gfxpack().current_dir(dir).args(["verify", "--verbose", "--packages-dir", "out"]))
}

fn lib(dir: &Path) -> std::path::PathBuf {
    let artifact = dir.join("shards/s/x_lib_one");
    fs::create_dir_all(artifact.join("p/lib")).unwrap();
    fs::write(artifact.join("artifact_manifest.txt"), "p\n").unwrap();
    artifact.join("p/lib")
}

#[test]
fn odd_names_are_packaged_and_verified_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let lib = lib(dir.path());
    for name in NAMES {
        fs::write(lib.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let verified = build(dir.path());
    assert_eq!(verified.status, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert!(!verified.stdout.contains("error ["), "{}", verified.stdout);
    let script = "dpkg-deb -x out/x-lib_1-1_amd64.deb deb && mkdir rpm && cd rpm && \
                  rpm2cpio ../out/x-lib-1-1.x86_64.rpm | cpio -idm --quiet && cd .. && \
                  diff -r shards/s/x_lib_one/p/lib deb/opt/rocm/lib && \
                  diff -r shards/s/x_lib_one/p/lib rpm/opt/rocm/lib";
    ok(tool("bash", "bash").current_dir(dir.path()).args(["-ec", script]));
    assert!(!dir.path().join("pwned").exists());
}

#[test]
fn a_file_that_would_run_as_root_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let tool = lib(dir.path()).join("tool");
    fs::write(&tool, "x").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).unwrap();
    let verified = build(dir.path());
    for package in ["x-lib-1-1.x86_64.rpm", "x-lib_1-1_amd64.deb"] {
        let finding = format!("warning [mode] {package}/opt/rocm/lib/tool");
        assert!(verified.stdout.contains(&finding), "{}", verified.stdout);
    }
    assert!(verified.stdout.contains("has the mode 4755"), "{}", verified.stdout);
}

#[test]
fn a_link_to_a_place_of_the_building_machine_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let lib = lib(dir.path());
    fs::write(lib.join("libx.so.1"), "x").unwrap();
    symlink("/home/builder/stage/lib/libx.so.1", lib.join("libx.so")).unwrap();
    symlink("/usr/lib/libc.so.6", lib.join("libc.so")).unwrap();
    let verified = build(dir.path());
    for package in ["x-lib-1-1.x86_64.rpm", "x-lib_1-1_amd64.deb"] {
        let finding = format!("warning [dangling-link] {package}/opt/rocm/lib/libx.so");
        assert!(verified.stdout.contains(&finding), "{}", verified.stdout);
    }
    assert!(verified.stdout.contains("/home/builder/stage/lib/libx.so.1"), "{}", verified.stdout);
    assert!(!verified.stdout.contains("libc.so"), "{}", verified.stdout);
}

/// Names of archives are made of prefixes, which may be long.
#[test]
fn an_archive_whose_name_package_managers_cannot_unpack_says_which_option_makes_a_shorter_one() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("shards");
    copy_tree(&example_shards(), &shards);
    let artifact = shards.join("gfx110X-build/fft_lib_gfx110X-dgpu");
    let long = format!("{0}/{0}/{0}/{0}", "p".repeat(58));
    fs::create_dir_all(artifact.join(&long)).unwrap();
    fs::rename(artifact.join("math-libs/rocFFT/stage"), artifact.join(&long).join("stage"))
        .unwrap();
    fs::write(artifact.join("artifact_manifest.txt"), long + "/stage\n").unwrap();
    let build = || {
        let mut build = gfxpack();
        build.args(["build", "--dry-run", "--no-auto-deps", "--input-shards-dir"]).arg(&shards);
        build.arg("--config").arg(example_config());
        build.args(["--output-dir", "out", "--version", "1", "--release", "1"]);
        build
    };
    let text = fails(&mut build(), 1);
    for words in
        ["_gfx1100.kpack` has 2", "can unpack 246 at the most", "--kpack-scope", "`component`"]
    {
        assert!(text.contains(words), "no {words} in {text}");
    }
    ok(build().args(["--kpack-scope", "component"]));
}
