//! The example shards with artifacts of every kind of file: documentation, tests with device code, debug
//! symbols, a licence.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{copy_tree, example_shards, ok, tool};

const PREFIX: &str = "math-libs/BLAS/rocBLAS/stage";

/// An artifact directory in a shard, with one prefix.
fn artifact(shard: &Path, name: &str) -> std::path::PathBuf {
    let artifact = shard.join(name);
    fs::create_dir_all(artifact.join(PREFIX)).unwrap();
    fs::write(artifact.join("artifact_manifest.txt"), format!("{PREFIX}\n")).unwrap();
    artifact.join(PREFIX)
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Copies the example shards to `dir/shards`, and adds to them:
///
/// - `blas_doc`: `share/doc/rocblas/guide.txt`;
/// - `blas_test`: `bin/rocblas-test` with device code, and data;
/// - `blas_run`: `share/doc/rocblas/LICENSE.md`;
/// - `blas_lib`: `lib/libhelper.so.1` with a build id;
/// - `blas_dbg`: the symbols of that, in `lib/debug/`.
pub fn shards_of_all_kinds(dir: &Path) -> std::path::PathBuf {
    let shards = dir.join("shards");
    copy_tree(&example_shards(), &shards);
    let made = dir.join("helper");
    fs::create_dir(&made).unwrap();
    write(&made.join("helper.c"), "int helper(int n) { return n + 1; }\n");
    let whole = made.join("libhelper.so.1");
    ok(tool("gcc", "gcc")
        .current_dir(&made)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .args(["-g", "-O1", "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id=sha1"])
        .args(["-Wl,-soname,libhelper.so.1", "-o", "libhelper.so.1", "helper.c"]));
    let symbols = made.join("libhelper.so.1.debug");
    let mut objcopy = tool("objcopy", "binutils");
    ok(objcopy.args(["--only-keep-debug", "--compress-debug-sections"]).arg(&whole).arg(&symbols));
    ok(tool("strip", "binutils").args(["-g", "--strip-unneeded"]).arg(&whole));
    for (shard, target) in [
        ("gfx110X-build", "gfx110X-dgpu"),
        ("gfx1151-build", "gfx1151"),
        ("gfx120X-build", "gfx120X-all"),
    ] {
        let shard = shards.join(shard);
        let of = |component: &str| artifact(&shard, &format!("blas_{component}_{target}"));
        write(&of("doc").join("share/doc/rocblas/guide.txt"), "How to use it.\n");
        let run = shard.join(format!("blas_run_{target}")).join(PREFIX);
        write(&run.join("share/doc/rocblas/LICENSE.md"), "Do what you like,\nat your own risk.\n");
        let test = of("test");
        fs::create_dir(test.join("bin")).unwrap();
        ok(Command::new("cp")
            .arg("-p")
            .arg(run.join("bin/rocblas-bench"))
            .arg(test.join("bin/rocblas-test")));
        write(&test.join("share/rocblas/test.yaml"), "- gemm\n");
        let lib = shard.join(format!("blas_lib_{target}")).join(PREFIX).join("lib");
        ok(Command::new("cp").arg("-p").arg(&whole).arg(&lib));
        let debug = of("dbg").join("lib/debug");
        fs::create_dir_all(&debug).unwrap();
        ok(Command::new("cp").arg("-p").arg(&symbols).arg(&debug));
        write(&debug.join("README"), "Symbols of the build.\n");
    }
    shards
}

/// A definition that takes all of it, in pieces by kind.
pub const DEFINITION: &str = r#"{
    "name": "rocblas",
    "summary": "Basic linear algebra on the GPU",
    "description": "An example library with files of every kind, made by the tests from small pieces.",
    "contents": [{ "artifact": "blas", "prefixes": ["math-libs/BLAS/rocBLAS/stage"] }],
    "kinds": ["dev", "doc", "tests", "debug"],
    "dev_links": true,
    "license_file": "share/doc/rocblas/LICENSE.md"
}"#;
