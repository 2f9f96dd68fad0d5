//! Recombining: every file of every member is in its group's tree, and the three switches do what they
//! say.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Ran, example_shards, files, gfxpack, ok, run, snapshot};
use serde_json::json;
use tempfile::TempDir;

/// Split shards made by hand, and a configuration.
struct Split {
    dir: TempDir,
}

impl Split {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// Adds files to the artifact `shard/artifact`, all under the prefix `p`.
    fn add(&self, artifact: &str, content: &[(&str, &str)]) -> &Self {
        let dir = self.dir.path().join("split").join(artifact);
        for (path, text) in content {
            let path = dir.join("p").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(dir.join("artifact_manifest.txt"), "p\n").unwrap();
        self
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn recombine(&self, config: &serde_json::Value) -> Ran {
        let path = self.dir.path().join("groups.json");
        fs::write(&path, config.to_string()).unwrap();
        run(gfxpack()
            .args(["recombine", "--verbose", "--input-shards-dir"])
            .arg(self.dir.path().join("split"))
            .arg("--config")
            .arg(path)
            .arg("--output-dir")
            .arg(self.out()))
    }
}

fn config(validation: &serde_json::Value) -> serde_json::Value {
    json!({
        "primary_shard": "a",
        "architecture_groups": {
            "gfx90X": {"display_name": "", "architectures": ["gfx908", "gfx90a"]},
            "gfx110X": {"display_name": "", "architectures": ["gfx1100", "gfx1101"]},
            "gfx115X": {"display_name": "", "architectures": ["gfx1151"]},
        },
        "validation": validation,
    })
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_file_of_every_member_is_in_its_groups_tree_whatever_its_name() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("lib/host", "h")]);
    split
        .add("a/x_lib_gfx1100", &[("lib/rocblas/library/gfx1100/deep/er", "1"), ("odd name", "2")]);
    split.add("b/x_lib_generic", &[("lib/host", "h")]);
    split.add("b/x_lib_gfx1101", &[("k_gfx1101.dat", "3")]);
    split.add("b/x_lib_gfx90a:xnack+", &[("k_gfx90a-xnack+.hsaco", "4")]);
    split.add("b/x_lib_gfx90a:xnack-", &[("k_gfx90a-xnack-.hsaco", "5")]);
    split.add("b/x_lib_gfx90a", &[("k_gfx90a.dat", "6")]);
    split.add("b/x_lib_gfx1030", &[("k_gfx1030.dat", "7")]);
    let ran = split.recombine(&config(&json!({})));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_eq!(names(&split.out()), ["x_lib_generic", "x_lib_gfx110X", "x_lib_gfx90X"]);
    let of = |name: &str| files(&split.out().join(name));
    assert_eq!(of("x_lib_generic"), ["artifact_manifest.txt", "p/lib/host"]);
    assert_eq!(
        of("x_lib_gfx110X"),
        [
            "artifact_manifest.txt",
            "p/k_gfx1101.dat",
            "p/lib/rocblas/library/gfx1100/deep/er",
            "p/odd name"
        ]
    );
    assert_eq!(
        of("x_lib_gfx90X"),
        [
            "artifact_manifest.txt",
            "p/k_gfx90a-xnack+.hsaco",
            "p/k_gfx90a-xnack-.hsaco",
            "p/k_gfx90a.dat"
        ]
    );
    for words in ["gfx1030 is in no architecture group", "group gfx115X has no code for gfx1151"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}

#[test]
fn files_for_a_family_go_to_its_group_or_where_all_groups_have_them() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("lib/host", "h")]);
    split.add("a/x_lib_gfx1100", &[("one", "1")]);
    split.add("a/x_lib_gfx110x", &[("lib/aotriton.images/gfx110x/k", "2")]);
    split.add("a/x_lib_gfx11xx", &[("lib/aotriton.images/gfx11xx/k", "3")]);
    let ran = split.recombine(&config(&json!({})));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let of = |name: &str| files(&split.out().join(name));
    assert_eq!(
        of("x_lib_gfx110X"),
        ["artifact_manifest.txt", "p/lib/aotriton.images/gfx110x/k", "p/one"]
    );
    assert_eq!(
        of("x_lib_generic"),
        ["artifact_manifest.txt", "p/lib/aotriton.images/gfx11xx/k", "p/lib/host"]
    );
    assert!(ran.stderr.contains("gfx11xx belong to the groups gfx110X, gfx115X"), "{}", ran.stderr);
}

#[test]
fn duplicate_device_code_is_no_conflict_where_it_is_the_same() {
    for (theirs, strict, status) in
        [("same", true, 0), ("other", true, 1), ("other", false, 0), ("longer!", true, 1)]
    {
        let split = Split::new();
        split.add("a/x_lib_generic", &[("h", "h")]).add("a/x_lib_gfx1100", &[("k", "same")]);
        split.add("b/x_lib_gfx1100", &[("k", theirs), ("more", "m")]);
        let ran = split.recombine(&config(&json!({"error_on_duplicate_device_code": strict})));
        assert_eq!(ran.status, Some(status), "{theirs} {strict}: {}", ran.stderr);
        let both = "a/x_lib_gfx1100 and b/x_lib_gfx1100";
        assert!(ran.stderr.contains(both), "{theirs} {strict}: {}", ran.stderr);
        assert_eq!(ran.stderr.contains("warning: p/k:"), theirs != "same" && !strict);
        if status == 0 {
            let group = split.out().join("x_lib_gfx110X");
            assert_eq!(fs::read_to_string(group.join("p/k")).unwrap(), "same");
            assert_eq!(files(&group), ["artifact_manifest.txt", "p/k", "p/more"]);
        } else {
            assert!(!split.out().exists());
        }
    }
}

#[test]
fn generic_trees_are_compared() {
    for strict in [true, false] {
        let split = Split::new();
        split.add("a/x_lib_generic", &[("same", "s"), ("differs", "1"), ("lost", "l")]);
        split.add("a/x_lib_gfx1100", &[("k", "k")]);
        split.add("b/x_lib_generic", &[("same", "s"), ("differs", "2"), ("extra", "e")]);
        let ran = split.recombine(&config(&json!({"verify_generic_artifacts_match": strict})));
        assert_eq!(ran.status, Some(i32::from(strict)), "{}", ran.stderr);
        for words in [
            "b/x_lib_generic: 2 generic files differ from the primary shard's: p/lost is missing, p/differs",
            "b/x_lib_generic: 1 generic file that the primary shard does not have: p/extra (left out)",
        ] {
            assert!(strict || ran.stderr.contains(words), "{}", ran.stderr);
        }
        let kind = if strict { "error: " } else { "warning: " };
        assert!(
            ran.stderr.contains(&format!("{kind}b/x_lib_generic: 2 generic")),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn differences_that_builds_cannot_avoid_can_be_allowed() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("build-info.txt", "1")]).add("a/x_lib_gfx1100", &[("k", "k")]);
    split.add("b/x_lib_generic", &[("build-info.txt", "2")]);
    let ran = split.recombine(&config(&json!({
        "verify_generic_artifacts_match": true,
        "allowed_generic_differences": ["**/build-info.txt"],
    })));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("p/build-info.txt differs as allowed"), "{}", ran.stderr);
    let ran = split.recombine(&config(&json!({"allowed_generic_differences": ["a{"]})));
    assert_eq!(ran.status, Some(2), "{}", ran.stderr);
}

#[test]
fn libraries_are_compared_by_section() {
    let dir = tempfile::tempdir().unwrap();
    let split = dir.path().join("split");
    for shard in ["gfx110X-build", "gfx1151-build"] {
        ok(gfxpack()
            .args(["split", "--artifact-prefix", "support_lib", "--artifact-dir"])
            .arg(example_shards().join(format!(
                "{shard}/support_lib_{}",
                if shard == "gfx1151-build" { "gfx1151" } else { "gfx110X-dgpu" }
            )))
            .arg("--output-dir")
            .arg(split.join(shard)));
    }
    let library = "support_lib_generic/base/support/stage/lib/libsupport.so.1.2";
    let path = split.join("gfx1151-build").join(library);
    let mut bytes = fs::read(&path).unwrap();
    let note = bytes.windows(4).position(|window| window == b"GNU\0").unwrap();
    bytes[note + 4] ^= 1;
    fs::write(&path, bytes).unwrap();
    let recombine = |allowed: &str| {
        let config = json!({
            "primary_shard": "gfx110X-build",
            "architecture_groups": {"g": {"display_name": "", "architectures": ["gfx1100"]}},
            "validation": {
                "verify_generic_artifacts_match": true,
                "allowed_generic_differences": [allowed],
            },
        });
        let path = dir.path().join("groups.json");
        fs::write(&path, config.to_string()).unwrap();
        run(gfxpack()
            .args(["recombine", "--verbose", "--input-shards-dir"])
            .arg(&split)
            .arg("--config")
            .arg(path)
            .arg("--output-dir")
            .arg(dir.path().join("out")))
    };
    let ran = recombine("nothing");
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("libsupport.so.1.2 (in .note.gnu.build-id)"), "{}", ran.stderr);
    let ran = recombine("**#.note.gnu.build-id");
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
}

#[test]
fn what_only_another_shard_has_is_taken_on_request() {
    for union in [false, true] {
        let split = Split::new();
        split.add("a/x_lib_generic", &[("same", "s")]).add("a/x_lib_gfx1100", &[("k", "k")]);
        split.add("b/x_lib_generic", &[("same", "s"), ("extra", "e")]);
        split.add("b/y_lib_generic", &[("y", "y")]);
        let mut config = config(&json!({}));
        config["generic_union"] = union.into();
        let ran = split.recombine(&config);
        assert_eq!(ran.status, Some(if union { 0 } else { 1 }), "{}", ran.stderr);
        if union {
            let of = |name: &str| files(&split.out().join(name));
            assert_eq!(of("x_lib_generic"), ["artifact_manifest.txt", "p/extra", "p/same"]);
            assert_eq!(of("y_lib_generic"), ["artifact_manifest.txt", "p/y"]);
        } else {
            assert!(
                ran.stderr.contains("y_lib: the primary shard a has no generic"),
                "{}",
                ran.stderr
            );
        }
    }
}

#[test]
fn a_missing_architecture_is_an_error_on_request() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("h", "h")]).add("a/x_lib_gfx1100", &[("k", "k")]);
    let ran = split.recombine(&config(&json!({"error_on_missing_architecture": true})));
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    for words in ["group gfx110X has no code for gfx1101", "group gfx115X has no code for gfx1151"]
    {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    assert!(!split.out().exists());
}

#[test]
fn a_component_can_have_groups_of_its_own() {
    let split = Split::new();
    for component in ["x_lib", "y_lib"] {
        split.add(&format!("a/{component}_generic"), &[(&format!("{component}.h"), "h")]);
        for isa in ["gfx1100", "gfx1101"] {
            split.add(&format!("a/{component}_{isa}"), &[(&format!("{component}-{isa}"), "k")]);
        }
    }
    let mut config = config(&json!({}));
    config["component_overrides"] = json!({"y_lib": {"architecture_groups": {
        "one": {"display_name": "", "architectures": ["gfx1100"]},
        "two": {"display_name": "", "architectures": ["gfx1101"]},
    }}});
    let ran = split.recombine(&config);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_eq!(
        names(&split.out()),
        ["x_lib_generic", "x_lib_gfx110X", "y_lib_generic", "y_lib_one", "y_lib_two"]
    );
}

#[test]
fn copies_are_links_only_where_that_is_asked_for() {
    use std::os::unix::fs::MetadataExt;
    let split = Split::new();
    split.add("a/x_lib_generic", &[("h", "h")]).add("a/x_lib_gfx1100", &[("k", "k")]);
    let ran = split.recombine(&config(&json!({})));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let links = |path: &Path| fs::metadata(path).unwrap().nlink();
    assert_eq!(links(&split.out().join("x_lib_gfx110X/p/k")), 2);
    let before = snapshot(&split.out());
    ok(gfxpack()
        .args(["recombine", "--copy", "--force", "--input-shards-dir"])
        .arg(split.dir.path().join("split"))
        .arg("--config")
        .arg(split.dir.path().join("groups.json"))
        .arg("--output-dir")
        .arg(split.out()));
    assert_eq!(links(&split.out().join("x_lib_gfx110X/p/k")), 1);
    assert_eq!(snapshot(&split.out()), before);
}
