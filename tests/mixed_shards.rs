//! Four build jobs that have little in common but the host code: the three of the tutorial, and one with
//! ISAs with features, a generic processor, and folders of kernels for an ISA and for a family. What comes
//! out, through trees and through packages, is the union of what went in.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{
    assert_no_path_twice, assert_same, copy_tree, files, fixtures, gfxpack, kernel_checker, ok,
    repo, run, snapshot, tool,
};
use serde_json::{Value, json};

const SHARDS: [&str; 4] = ["gfx110X-build", "gfx1151-build", "gfx120X-build", "mixed-build"];
/// Where the family's files are in the artifact.
const IMAGES: &str = "ml-libs/aotriton/stage/lib/aotriton.images/gfx11xx/flash";

fn groups() -> Value {
    json!({
        "primary_shard": "gfx110X-build",
        // Only one job makes aotriton.
        "generic_union": true,
        "architecture_groups": {
            "gfx110X": {"display_name": "RDNA 3", "architectures": ["gfx1100", "gfx1101", "gfx1102"]},
            "gfx115X": {"display_name": "RDNA 3.5", "architectures": ["gfx1151", "gfx11-generic"]},
            "gfx120X": {"display_name": "RDNA 4", "architectures": ["gfx1200", "gfx1201"]},
            "gfx9": {"display_name": "CDNA", "architectures": ["gfx90a", "gfx942"]},
        },
    })
}

/// Made once: `shards/`, `groups.json`, `split/`, `recombined/`, and `report.json` of recombining.
fn made() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mixed-shards");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        copy_tree(&fixtures().join("shards"), &dir.join("shards"));
        copy_tree(&fixtures().join("fourth/mixed-build"), &dir.join("shards"));
        fs::write(dir.join("groups.json"), groups().to_string()).unwrap();
        for shard in SHARDS {
            ok(gfxpack()
                .args(["split", "--kpack-scope", "prefix", "--batch-artifact-parent-dir"])
                .arg(dir.join("shards").join(shard))
                .arg("--output-dir")
                .arg(dir.join("split").join(shard)));
        }
        let report = ok(gfxpack()
            .args(["--json", "recombine", "--input-shards-dir"])
            .arg(dir.join("split"))
            .arg("--config")
            .arg(dir.join("groups.json"))
            .arg("--output-dir")
            .arg(dir.join("recombined")));
        fs::write(dir.join("report.json"), report).unwrap();
        dir
    })
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Every kernel and file of all shards is in the root, by a program that shares nothing with the crate.
#[track_caller]
fn assert_union(root: &Path, modes: &[&str]) -> Value {
    let mut checker = kernel_checker(root);
    checker.args(modes);
    checker.arg("--same-files").args(SHARDS.map(|shard| made().join("shards").join(shard)));
    let checked: Value = serde_json::from_str(&ok(&mut checker)).unwrap();
    assert_eq!(checked["mismatches"], 0);
    // 4 wrappers in rocblas, 2 in hipblaslt, 2 in rocfft, one in each of two programs; 9 ISAs each.
    assert_eq!(checked["wrappers"], 10);
    assert_eq!(checked["code_objects"], 90);
    assert_eq!(
        checked["isas"],
        json!([
            "gfx11-generic",
            "gfx1100",
            "gfx1101",
            "gfx1102",
            "gfx1151",
            "gfx1200",
            "gfx1201",
            "gfx90a:xnack+",
            "gfx90a:xnack-"
        ])
    );
    checked
}

#[test]
fn the_union_of_the_trees_is_the_union_of_the_shards() {
    let recombined = made().join("recombined");
    let mut expected = Vec::new();
    for component in ["blas_lib", "blas_run", "fft_lib"] {
        for target in ["generic", "gfx110X", "gfx115X", "gfx120X", "gfx9"] {
            expected.push(format!("{component}_{target}"));
        }
    }
    let one_tree = ["blas_dev_generic", "support_lib_generic", "sysdeps_lib_generic"];
    expected.extend(one_tree.map(str::to_owned));
    expected.extend(
        ["generic", "gfx11xx-shared", "gfx9"].map(|target| format!("aotriton_lib_{target}")),
    );
    expected.sort();
    assert_eq!(names(&recombined), expected);

    // All of them together.
    let trees: Vec<_> = expected.iter().map(|name| recombined.join(name)).collect();
    let root = tempfile::tempdir().unwrap();
    common::install(&trees, root.path());
    assert_eq!(assert_no_path_twice(&trees), files(root.path()).len());
    assert_union(root.path(), &[]);
    // The check can fail: for a file of the family, and for a kernel.
    for lost in ["lib/aotriton.images/gfx11xx/flash/bwd.aks2", "archive"] {
        let archives = files(root.path());
        let archive = archives.iter().find(|file| file.ends_with("_gfx90a:xnack-.kpack")).unwrap();
        let lost = root.path().join(if lost == "archive" { archive } else { lost });
        let kept = root.path().with_extension("kept");
        fs::rename(&lost, &kept).unwrap();
        let mut checker = kernel_checker(root.path());
        checker.arg("--same-files").args(SHARDS.map(|shard| made().join("shards").join(shard)));
        common::fails(&mut checker, 1);
        fs::rename(&kept, &lost).unwrap();
    }

    // Each ISA's files are in the tree of its group, and nowhere else.
    let named = |tree: &str, isa: &str| {
        let files = files(&recombined.join(tree));
        files.iter().filter(|file| file.contains(isa)).count()
    };
    for (isa, group) in [
        ("gfx90a-xnack+", "gfx9"),
        ("gfx90a-xnack-", "gfx9"),
        ("gfx11-generic", "gfx115X"),
        ("gfx1151", "gfx115X"),
        ("gfx1102", "gfx110X"),
    ] {
        for target in ["generic", "gfx110X", "gfx115X", "gfx120X", "gfx9"] {
            // Five files of rocblas, four of hipblaslt and two in a folder there; the archives' names
            // have a colon for the feature.
            let archives = if isa.contains("xnack") { 0 } else { 2 };
            let expected = if target == group { 11 + archives } else { 0 };
            assert_eq!(named(&format!("blas_lib_{target}"), isa), expected, "{isa} {target}");
        }
    }
}

#[test]
fn what_groups_share_is_a_tree_of_its_own_and_in_the_report() {
    let report: Value =
        serde_json::from_str(&fs::read_to_string(made().join("report.json")).unwrap()).unwrap();
    let shared: Vec<String> = ["attn_fwd.hsaco", "bwd.aks2", "latest.aks2", "tuning.aks2"]
        .iter()
        .map(|file| format!("{IMAGES}/{file}"))
        .collect();
    assert_eq!(
        report["recombine"]["shared"],
        json!([{
            "name": "aotriton_lib_gfx11xx-shared",
            "groups": ["gfx110X", "gfx115X"],
            "files": shared,
        }])
    );
    let tree = made().join("recombined/aotriton_lib_gfx11xx-shared");
    let mut there = vec!["artifact_manifest.txt".to_owned()];
    there.extend(shared);
    assert_eq!(files(&tree), there);
    // A family's files are code for its ISAs; without them a group that lists one is told of.
    let warnings = report["recombine"]["warnings"].as_array().unwrap();
    let missing: Vec<_> =
        warnings.iter().filter_map(Value::as_str).filter(|w| w.contains("has no code")).collect();
    assert_eq!(
        missing,
        [
            "aotriton_lib: group gfx120X has no code for gfx1200, gfx1201",
            "aotriton_lib: group gfx9 has no code for gfx90a",
            "blas_lib: group gfx9 has no code for gfx942",
            "blas_run: group gfx9 has no code for gfx942",
            "fft_lib: group gfx9 has no code for gfx942",
        ]
    );
}

fn verify(trees: &Path, config: bool, source: Option<&str>) -> common::Ran {
    let mut command = gfxpack();
    command.args(["--json", "verify", "--warnings-as-errors", "--artifacts-dir"]).arg(trees);
    command.arg("--packages").arg(repo().join("examples/packages.json"));
    if config {
        command.arg("--config").arg(made().join("groups.json"));
    }
    if let Some(source) = source {
        command.arg("--source").arg(made().join(source));
    }
    run(&mut command)
}

#[test]
fn verify_finds_nothing_with_or_without_the_input_and_the_groups() {
    for shard in SHARDS {
        let mut command = gfxpack();
        command.args(["verify", "--warnings-as-errors", "--artifacts-dir"]);
        command.arg(made().join("split").join(shard));
        command.arg("--packages").arg(repo().join("examples/packages.json"));
        ok(command.arg("--source").arg(made().join("shards").join(shard)));
    }
    for config in [true, false] {
        for source in [None, Some("split"), Some("shards")] {
            let ran = verify(&made().join("recombined"), config, source);
            assert_eq!(ran.status, Some(0), "{config} {source:?}: {}", ran.stdout);
        }
    }
}

/// The ids of what verifying finds after damage was done.
fn found(damage: impl Fn(&Path), config: bool, source: Option<&str>) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    copy_tree(&made().join("recombined"), dir.path());
    let trees = dir.path().join("recombined");
    damage(&trees);
    let ran = verify(&trees, config, source);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let findings = report["report"]["findings"].as_array().unwrap();
    let mut ids: Vec<_> =
        findings.iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect();
    ids.dedup();
    ids
}

fn rename(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::rename(from, to).unwrap();
}

#[test]
fn verify_sees_what_is_wrong_with_a_shared_tree() {
    let shared = |trees: &Path| trees.join("aotriton_lib_gfx11xx-shared");
    let file = format!("{IMAGES}/bwd.aks2");
    let to_generic = |trees: &Path| {
        rename(&shared(trees).join(&file), &trees.join("aotriton_lib_generic").join(&file));
    };
    for config in [true, false] {
        assert_eq!(found(to_generic, config, None), ["device-in-generic-tree"]);
    }
    let to_group = |trees: &Path| {
        rename(&shared(trees).join(&file), &trees.join("aotriton_lib_gfx9").join(&file));
    };
    assert_eq!(found(to_group, true, None), ["isa-mixed"]);
    let isa_in_shared = |trees: &Path| {
        let file = "ml-libs/aotriton/stage/lib/aotriton.images/gfx942/flash/tuning.aks2";
        rename(&trees.join("aotriton_lib_gfx9").join(file), &shared(trees).join(file));
    };
    let both = found(isa_in_shared, true, None);
    assert!(both.contains(&"isa-mixed".to_owned()), "{both:?}");
    let archive_in_shared = |trees: &Path| {
        let archive = files(&trees.join("fft_lib_gfx9"));
        let archive = archive.iter().find(|file| file.ends_with("xnack+.kpack")).unwrap();
        let to = shared(trees).join(IMAGES).join("fft_lib_gfx90a:xnack+.kpack");
        rename(&trees.join("fft_lib_gfx9").join(archive), &to);
    };
    let archive = found(archive_in_shared, true, None);
    assert!(archive.contains(&"isa-mixed".to_owned()), "{archive:?}");
    let host_code = |trees: &Path| {
        let library = "ml-libs/aotriton/stage/lib/libaotriton_v2.so.0.9";
        rename(&trees.join("aotriton_lib_generic").join(library), &shared(trees).join(library));
    };
    assert!(found(host_code, true, None).contains(&"host-in-device-tree".to_owned()));
    let gone = |trees: &Path| fs::remove_dir_all(shared(trees)).unwrap();
    assert_eq!(found(gone, true, Some("shards")), ["lost"]);
    assert_eq!(found(gone, true, Some("split")), ["lost"]);
    let changed = |trees: &Path| {
        fs::remove_file(shared(trees).join(&file)).unwrap();
        fs::write(shared(trees).join(&file), "other").unwrap();
    };
    assert_eq!(found(changed, true, Some("shards")), ["changed"]);
    // No two groups share this family, and these files are not of it.
    let other = |trees: &Path| rename(&shared(trees), &trees.join("aotriton_lib_gfx12-0-shared"));
    let other = found(other, true, None);
    assert_eq!(other, ["group-unknown", "isa-mixed"]);
    let renamed = |trees: &Path| rename(&shared(trees), &trees.join("aotriton_lib_gfx110x-shared"));
    for config in [true, false] {
        assert!(found(renamed, config, None).contains(&"isa-mixed".to_owned()));
    }
}

fn packages(action: &str, option: &str, from: &str, out: &Path) -> Command {
    let mut command = gfxpack();
    command.args([action, option]).arg(made().join(from));
    command.arg("--config").arg(made().join("groups.json"));
    command.arg("--output-dir").arg(out).args(["--version", "7.1.0", "--release", "1"]);
    // There is no packages file that would say who has the HIP runtime.
    command.arg("--no-auto-deps");
    command
}

#[test]
fn the_union_of_the_packages_is_the_union_of_the_shards_and_one_pass_makes_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (steps, pass) = (dir.path().join("steps"), dir.path().join("pass"));
    ok(&mut packages("package", "--artifacts-dir", "recombined", &steps));
    ok(packages("build", "--input-shards-dir", "shards", &pass).args(["--jobs", "1"]));
    let digests = |dir: &Path| -> BTreeMap<String, String> {
        let sums = ok(Command::new("sh").arg("-c").arg("cd \"$0\" && sha256sum *").arg(dir));
        let lines = sums.lines().filter_map(|line| line.split_once("  "));
        lines.map(|(sum, name)| (name.to_owned(), sum.to_owned())).collect()
    };
    let sums = digests(&steps);
    // Three definitions with four groups, aotriton with three and what they share, three without.
    assert_eq!(sums.len(), 2 * (3 * 6 + 6 + 3));
    assert_same("four steps and one pass", &sums, &digests(&pass));

    let (deb, rpm) = (dir.path().join("deb"), dir.path().join("rpm"));
    for root in [&deb, &rpm] {
        fs::create_dir(root).unwrap();
    }
    let mut paths = BTreeMap::new();
    for name in sums.keys() {
        let file = steps.join(name);
        if name.ends_with(".deb") {
            ok(tool("dpkg-deb", "dpkg").arg("-x").arg(&file).arg(&deb));
            continue;
        }
        let list = ok(tool("rpm", "rpm").arg("-qlp").arg("--nodigest").arg(&file));
        for path in list.lines().filter(|path| path.starts_with("/opt/rocm/lib/aotriton")) {
            paths.entry(path.to_owned()).or_insert_with(Vec::new).push(name.clone());
        }
        let unpack = "rpm2cpio \"$0\" | (cd \"$1\" && cpio -idmu --quiet)";
        ok(tool("sh", "dash").arg("-c").arg(unpack).arg(&file).arg(&rpm));
    }
    assert_union(&deb.join("opt/rocm"), &["--debian-modes"]);
    assert_union(&rpm.join("opt/rocm"), &[]);
    let owners = &paths["/opt/rocm/lib/aotriton.images/gfx11xx/flash/bwd.aks2"];
    assert_eq!(owners, &["aotriton-lib-gfx11xx-shared-7.1.0-1.x86_64.rpm"]);
    assert!(
        paths.iter().all(|(path, owners)| owners.len() == 1 || path.ends_with("images")),
        "{paths:?}"
    );
}

#[test]
fn each_sharing_group_needs_exactly_this_version_of_what_it_shares() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = packages("build", "--input-shards-dir", "shards", &dir.path().join("out"));
    let plan: Value = serde_json::from_str(&ok(command.args(["--dry-run", "--json"]))).unwrap();
    let relations = |name: &str| -> Vec<String> {
        let packages = plan["packages"].as_array().unwrap();
        let package = packages.iter().find(|package| package["name"] == name);
        let package = package.unwrap_or_else(|| panic!("no {name}"));
        let relations = package["relations"].as_array().unwrap();
        relations.iter().map(|relation| relation.as_str().unwrap().to_owned()).collect()
    };
    let shared = "Requires: aotriton-lib-gfx11xx-shared = 7.1.0-1";
    let generic = "Requires: aotriton-lib-generic = 7.1.0-1";
    for (package, depends) in [
        ("aotriton-lib-gfx110X", [generic, shared].as_slice()),
        ("aotriton-lib-gfx115X", &[generic, shared]),
        ("aotriton-lib-gfx9", &[generic]),
        ("aotriton-lib-gfx11xx-shared", &[generic]),
    ] {
        let relations = relations(package);
        let found: Vec<_> = relations.iter().filter(|r| r.starts_with("Requires")).collect();
        assert_eq!(found, depends, "{package}");
    }
    assert!(relations("aotriton-lib-gfx11xx-shared").iter().all(|r| !r.starts_with("Provides")));
    assert_eq!(snapshot(dir.path()), BTreeMap::new());
}
