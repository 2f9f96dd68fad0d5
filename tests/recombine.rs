//! Recombining: every file of every member is in its group's tree. What of several shards is held against each other is in
//! `recombine_compared.rs`.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/recombining.rs"]
mod recombining;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::{files, gfxpack, ok, run, snapshot};
use recombining::{Split, config, told};
use serde_json::json;

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
    for words in
        ["gfx1030 is in no architecture group", "no shard has code for the group gfx115X (gfx1151)"]
    {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}

#[test]
fn files_for_a_family_go_to_its_group_or_to_a_tree_that_its_groups_share() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("lib/host", "h")]);
    split.add("a/x_lib_gfx1100", &[("one", "1")]);
    split.add("a/x_lib_gfx110x", &[("lib/aotriton.images/gfx110x/k", "2")]);
    split.add("a/x_lib_gfx11xx", &[("lib/aotriton.images/gfx11xx/k", "3")]);
    // Both jobs have an ISA of the family, and so its files; one has more of them.
    split.add(
        "b/x_lib_gfx11xx",
        &[("lib/aotriton.images/gfx11xx/k", "3"), ("lib/aotriton.images/gfx11xx/l", "4")],
    );
    split.add("b/x_lib_gfx12_0", &[("lib/aotriton.images/gfx12_0/k", "5")]);
    let ran = split.recombine(&config(&json!({})));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_eq!(names(&split.out()), ["x_lib_generic", "x_lib_gfx110X", "x_lib_gfx11xx-shared"]);
    let of = |name: &str| files(&split.out().join(name));
    assert_eq!(
        of("x_lib_gfx110X"),
        ["artifact_manifest.txt", "p/lib/aotriton.images/gfx110x/k", "p/one"]
    );
    assert_eq!(of("x_lib_generic"), ["artifact_manifest.txt", "p/lib/host"]);
    assert_eq!(
        of("x_lib_gfx11xx-shared"),
        [
            "artifact_manifest.txt",
            "p/lib/aotriton.images/gfx11xx/k",
            "p/lib/aotriton.images/gfx11xx/l"
        ]
    );
    for words in [
        "x_lib_gfx11xx-shared: 2 files that the groups gfx110X, gfx115X share: p/lib/aotriton",
        "a/x_lib_gfx11xx and b/x_lib_gfx11xx both have 1 file, the same",
        "no architecture group has an ISA of gfx12_0: its files are left out",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

#[test]
fn who_shares_a_family_follows_from_the_components_own_groups() {
    let group = |isas: &[&str]| json!({"display_name": "", "architectures": isas});
    // A family in one group of all groups, and in two of the component's own; each with another name.
    let config = json!({
        "primary_shard": "a",
        "architecture_groups": {"rdna4": group(&["gfx1200", "gfx1201"])},
        "component_overrides": {
            "y_lib": {"architecture_groups": {
                "one": group(&["gfx1200"]),
                "two": group(&["gfx1201"]),
                "any": group(&["gfx12-generic"]),
                "other": group(&["gfx90a:xnack+"]),
            }},
        },
    });
    let split = Split::new();
    for component in ["x_lib", "y_lib"] {
        split.add(&format!("a/{component}_generic"), &[("h", "h")]);
        split.add(&format!("a/{component}_gfx12_0"), &[("lib/gfx12_0/k", "k")]);
        split.add(&format!("a/{component}_gfx90x"), &[("lib/gfx90x/k", "k")]);
    }
    let ran = split.recombine(&config);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_eq!(
        names(&split.out()),
        ["x_lib_generic", "x_lib_rdna4", "y_lib_generic", "y_lib_gfx12-0-shared", "y_lib_other"]
    );
    // The generic processor's code runs on members of the family, and wants its files.
    assert!(
        ran.stderr.contains("y_lib_gfx12-0-shared: 1 file that the groups any, one, two share"),
        "{}",
        ran.stderr
    );
}

#[test]
fn no_group_is_called_like_what_groups_share() {
    for (name, status) in [
        ("gfx11xx-shared", 2),
        ("gfx110X-Shared", 2),
        ("gfx12-0-shared", 2),
        ("gfx1100-shared", 0),
        ("all-shared", 0),
    ] {
        let split = Split::new();
        split.add("a/x_lib_generic", &[("h", "h")]).add("a/x_lib_gfx1100", &[("k", "k")]);
        let groups = json!({name: {"display_name": "", "architectures": ["gfx1100"]}});
        let ran = split.recombine(&json!({"primary_shard": "a", "architecture_groups": groups}));
        assert_eq!(ran.status, Some(status), "{name}: {}", ran.stderr);
        if status != 0 {
            assert!(ran.stderr.contains("cannot be a group name"), "{}", ran.stderr);
            assert!(
                ran.stderr.contains("that several groups share are called so"),
                "{}",
                ran.stderr
            );
        }
    }
}

#[test]
fn a_generic_processor_goes_to_the_group_that_lists_it() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("h", "h")]).add("a/x_lib_gfx1100", &[("k", "k")]);
    split.add("a/x_lib_gfx11-generic", &[("g", "g")]);
    let ran = split.recombine(&config(&json!({})));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("gfx11-generic is in no architecture group: its files are left out"),
        "{}",
        ran.stderr
    );
    let mut listed = config(&json!({"error_on_missing_architecture": true}));
    listed["architecture_groups"] = json!({
        "gfx110X": {"display_name": "", "architectures": ["gfx1100", "gfx11-generic"]},
        // Code for the generic processor is no code for gfx1101: it has its own place in the list.
        "more": {"display_name": "", "architectures": ["gfx1101"]},
    });
    let ran = split.recombine(&listed);
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("no shard has code for the group more (gfx1101)"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("group gfx110X"), "{}", ran.stderr);
}

#[test]
fn a_familys_files_are_code_for_its_members_where_no_archive_is_missing() {
    for (archive, missing) in [(None, false), (Some("p/.kpack/x_lib_gfx1100.kpack"), true)] {
        let split = Split::new();
        split.add("a/x_lib_generic", &[("h", "h")]);
        split.add("a/x_lib_gfx1100", &[(archive.unwrap_or("k"), "k")]);
        split.add("a/x_lib_gfx11xx", &[("lib/gfx11xx/k", "k")]);
        let ran = split.recombine(&config(&json!({})));
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        let told = ran.stderr.contains("no shard has code for the group gfx115X (gfx1151)");
        assert_eq!(told, missing, "{}", ran.stderr);
        assert!(ran.stderr.contains("no shard has code for the group gfx90X (gfx908, gfx90a)"));
    }
}

#[test]
fn what_is_taken_from_one_shard_is_not_missing_in_the_next() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("same", "s")]).add("c/x_lib_generic", &[("same", "s")]);
    split.add("b/x_lib_generic", &[("same", "s"), ("extra", "e")]);
    let mut config = config(&json!({"verify_generic_artifacts_match": true}));
    config["generic_union"] = true.into();
    let ran = split.recombine(&config);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    // It is as asked: no warning, but a note.
    let taken =
        "b/x_lib_generic: 1 generic file that the primary shard does not have: p/extra (taken)";
    assert!(ran.stderr.lines().any(|line| line == taken), "{}", ran.stderr);
    assert_eq!(
        files(&split.out().join("x_lib_generic")),
        ["artifact_manifest.txt", "p/extra", "p/same"]
    );
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
    for strict in [true, false] {
        let split = Split::new();
        split.add("a/x_lib_generic", &[("h", "h")]).add("a/x_lib_gfx1100", &[("k", "k")]);
        let ran = split.recombine(&config(&json!({"error_on_missing_architecture": strict})));
        assert_eq!(ran.status, Some(i32::from(strict)), "{}", ran.stderr);
        for finding in [
            "no shard has code for gfx1101, of the group gfx110X",
            "no shard has code for the group gfx115X (gfx1151)",
            "no shard has code for the group gfx90X (gfx908, gfx90a)",
        ] {
            told(&ran, strict, finding);
        }
        assert_eq!(split.out().exists(), !strict);

        // What some other component has is missing in this one only.
        split.add("a/y_lib_generic", &[("h", "h")]).add("a/y_lib_gfx1151", &[("k", "k")]);
        let _ = fs::remove_dir_all(split.out());
        let ran = split.recombine(&config(&json!({"error_on_missing_architecture": strict})));
        told(&ran, strict, "x_lib: group gfx115X has no code for gfx1151");
        told(&ran, strict, "y_lib: group gfx110X has no code for gfx1100");
        told(&ran, strict, "no shard has code for gfx1101, of the group gfx110X");
        assert!(!ran.stderr.contains("group gfx115X (gfx1151)"), "{}", ran.stderr);
    }
}

/// What is wrong with many ISAs or components in the same way is one line; `--verbose` and JSON have each.
#[test]
fn findings_that_say_the_same_are_one_line() {
    let split = Split::new();
    for component in ["x_lib", "y_lib"] {
        split.add(&format!("a/{component}_generic"), &[(component, "h")]);
        for isa in ["gfx1030", "gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036", "gfx1100"] {
            split.add(&format!("a/{component}_{isa}"), &[(&format!("{component}_{isa}"), "k")]);
        }
    }
    split.add("a/z_lib_generic", &[("z", "h")]).add("a/z_lib_gfx1101", &[("z_gfx1101", "k")]);
    let each = split.recombine(&config(&json!({}))).stderr;
    assert_eq!(each.matches("is in no architecture group: its files are left out").count(), 12);
    assert!(each.contains("warning: y_lib: group gfx110X has no code for gfx1101"), "{each}");
    let joined = |args: &[&str]| {
        fs::remove_dir_all(split.out()).unwrap();
        let dir = split.dir.path();
        let shards = dir.join("split");
        run(gfxpack()
            .args(args)
            .args(["recombine", "--input-shards-dir"])
            .arg(shards)
            .arg("--config")
            .arg(dir.join("groups.json"))
            .arg("--output-dir")
            .arg(split.out()))
    };
    let ran = joined(&[]);
    let lines: Vec<_> = ran.stderr.lines().collect();
    for line in [
        "warning: in no architecture group, so that files are left out: gfx1030, gfx1031, gfx1032, gfx1034, \
         gfx1035 and 1 more (6 in all)",
        "warning: group gfx110X has no code for gfx1101: x_lib, y_lib",
        "warning: z_lib: group gfx110X has no code for gfx1100",
    ] {
        assert!(lines.contains(&line), "{line}\n{}", ran.stderr);
    }
    assert_eq!(lines.len(), 5, "{}", ran.stderr);
    let report: serde_json::Value = serde_json::from_str(&joined(&["--json"]).stdout).unwrap();
    assert_eq!(report["recombine"]["warnings"].as_array().unwrap().len(), 12 + 2 + 3);
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

/// The first name of a hard link can be another shard's file: the link has its own shard's content.
#[test]
fn a_hard_link_has_the_content_of_its_own_shard() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("lib/p", "AAAA"), ("lib/same", "same")]);
    split.add("a/x_lib_gfx1100", &[("X_gfx1100.dat", "aaaa"), ("Z_gfx1100.dat", "zzzz")]);
    split.add("b/x_lib_generic", &[("lib/p", "BBBB-from-other"), ("lib/same", "same")]);
    split.link("b/x_lib_generic", "lib/p", "lib/q").link("b/x_lib_generic", "lib/p", "lib/r");
    split.link("b/x_lib_generic", "lib/same", "lib/same-too");
    split.add("b/x_lib_gfx1100", &[("X_gfx1100.dat", "bbbb"), ("A_gfx1100.dat", "own")]);
    split.link("b/x_lib_gfx1100", "X_gfx1100.dat", "Y_gfx1100.dat");
    split.link("b/x_lib_gfx1100", "A_gfx1100.dat", "B_gfx1100.dat");
    let mut config = config(&json!({"error_on_duplicate_device_code": false}));
    config["generic_union"] = true.into();
    let ran = split.recombine(&config);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_eq!(split.made("x_lib_generic/p/lib/p"), "AAAA");
    assert_eq!(split.made("x_lib_generic/p/lib/q"), "BBBB-from-other");
    assert_eq!(split.made("x_lib_generic/p/lib/r"), "BBBB-from-other");
    assert_eq!(split.made("x_lib_gfx110X/p/X_gfx1100.dat"), "aaaa");
    assert_eq!(split.made("x_lib_gfx110X/p/Y_gfx1100.dat"), "bbbb");
    // What is the same, or the shard's own, is still one file.
    let inode = |path: &str| fs::metadata(split.out().join(path)).unwrap().ino();
    for (first, second) in [
        ("x_lib_generic/p/lib/same", "x_lib_generic/p/lib/same-too"),
        ("x_lib_gfx110X/p/A_gfx1100.dat", "x_lib_gfx110X/p/B_gfx1100.dat"),
    ] {
        assert_eq!(inode(first), inode(second), "{second}");
    }
}
