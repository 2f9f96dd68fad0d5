//! Files that go from one package of a definition to another, when the definition changes: dpkg, which unpacks one package after
//! the other, lets them go.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/roots.rs"]
mod roots;

use std::fs;
use std::path::{Path, PathBuf};

use common::{example_config, example_shards, gfxpack, ok};
use roots::DebRoot;
use serde_json::json;

const HEADER: &str = "opt/rocm/include/rocblas/rocblas.h";

/// Packages of a release of rocBLAS, from these components, with packages for these kinds.
fn build(dir: &Path, version: &str, components: &[&str], kinds: &[&str]) -> Vec<PathBuf> {
    let config = dir.join(format!("{version}.json"));
    let contents = json!([{"artifact": "blas", "components": components,
                           "prefixes": ["math-libs/BLAS/rocBLAS/stage"]}]);
    let package = json!({"name": "rocblas", "summary": "Linear algebra", "contents": contents, "kinds": kinds});
    fs::write(&config, json!({"packages": [package]}).to_string()).unwrap();
    let out = dir.join(version);
    ok(gfxpack()
        .args([
            "build",
            "--no-auto-deps",
            "--format",
            "deb",
            "--version",
            version,
            "--release",
            "1",
        ])
        .arg("--input-shards-dir")
        .arg(example_shards())
        .arg("--config")
        .arg(example_config())
        .arg("--packages")
        .arg(config)
        .arg("--output-dir")
        .arg(&out));
    let mut debs: Vec<_> = fs::read_dir(out).unwrap().map(|e| e.unwrap().path()).collect();
    debs.sort();
    debs
}

/// Who has the header.
fn owner(root: &DebRoot) -> String {
    let found = ok(root.dpkg().arg("--search").arg(format!("/{HEADER}")));
    found.split(':').next().unwrap().to_owned()
}

#[test]
fn a_definition_that_gets_device_code_or_loses_it_is_upgraded() {
    let dir = tempfile::tempdir().unwrap();
    let root = DebRoot::new();
    for (version, components, expected) in [
        ("1.0", &["dev"][..], "rocblas"),
        ("2.0", &["dev", "lib"], "rocblas-generic"),
        ("3.0", &["dev"], "rocblas"),
    ] {
        ok(root.dpkg().arg("-i").args(build(dir.path(), version, components, &[])));
        assert_eq!(owner(&root), expected, "{version}");
        assert!(root.path().join(HEADER).exists());
    }
}

#[test]
fn a_package_of_a_kind_that_is_no_more_keeps_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let root = DebRoot::new();
    let with = build(dir.path(), "1.0", &["dev", "lib"], &["dev"]);
    ok(root.dpkg().arg("-i").args(&with));
    assert_eq!(owner(&root), "rocblas-dev");
    let without = build(dir.path(), "2.0", &["dev", "lib"], &[]);
    ok(root.dpkg().args(["--force-depends", "-i"]).args(&without));
    assert_eq!(owner(&root), "rocblas-generic");
    ok(root.dpkg().args(["-r", "rocblas-dev"]));
    root.assert_clean();
    assert!(root.path().join(HEADER).exists());
    // And back.
    ok(root.dpkg().args(["--force-downgrade", "-i"]).args(&with));
    assert_eq!(owner(&root), "rocblas-dev");
    root.assert_clean();
}
