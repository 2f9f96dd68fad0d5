//! Recombining: what two shards both have is held against each other, and the switches say what becomes of a difference.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/recombining.rs"]
mod recombining;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use common::{copy_tree, example_shards, files, gfxpack, ok, run};
use recombining::{Split, config, told};
use serde_json::json;

#[test]
fn the_same_device_code_twice_is_an_error_where_that_is_asked_for() {
    for (asked, status) in [(false, 0), (true, 1)] {
        let split = Split::new();
        split.add("a/x_lib_generic", &[("h", "h")]);
        for shard in ["a", "b"] {
            split.add(&format!("{shard}/x_lib_gfx1100"), &[("k", "same"), ("l", "same")]);
            split.add(&format!("{shard}/x_lib_gfx110x"), &[("f", "same")]);
        }
        let ran = split.recombine(&config(&json!({"error_on_identical_device_code": asked})));
        assert_eq!(ran.status, Some(status), "{}", ran.stderr);
        let what = "a/x_lib_gfx1100 and b/x_lib_gfx1100 both have 2 files, the same: p/k, p/l";
        assert!(ran.stderr.contains(what), "{}", ran.stderr);
        assert_eq!(ran.stderr.contains(&format!("error: {what}")), asked, "{}", ran.stderr);
        // A family's files come from each job that has a member: that is never a fault.
        assert!(!ran.stderr.contains("error: a/x_lib_gfx110x"), "{}", ran.stderr);
        assert_eq!(split.out().exists(), !asked);
    }
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
        for finding in [
            "b/x_lib_generic: 2 generic files differ from the primary shard's: p/lost is missing, p/differs",
            "b/x_lib_generic: 1 generic file that the primary shard does not have: p/extra (left out)",
        ] {
            told(&ran, strict, finding);
        }
        assert_eq!(split.out().exists(), !strict);
    }
}

/// Each way in which generic trees can differ is found by itself.
#[test]
fn each_difference_of_generic_trees_is_enough() {
    let same = [("one", "1"), ("two", "2")];
    type Files<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Files, &str); 3] = [
        (
            "differs",
            &[("one", "1"), ("two", "3")],
            "1 generic file differs from the primary shard's: p/two",
        ),
        (
            "missing",
            &[("one", "1")],
            "1 generic file differs from the primary shard's: p/two is missing",
        ),
        (
            "extra",
            &[("one", "1"), ("two", "2"), ("three", "3")],
            "1 generic file that the primary shard does not have: p/three (left out)",
        ),
    ];
    for strict in [true, false] {
        let with = json!({"verify_generic_artifacts_match": strict});
        for (what, theirs, finding) in cases {
            let split = Split::new();
            split.add("a/x_lib_generic", &same).add("b/x_lib_generic", theirs);
            let ran = split.recombine(&config(&with));
            assert_eq!(ran.status, Some(i32::from(strict)), "{what}: {}", ran.stderr);
            told(&ran, strict, &format!("b/x_lib_generic: {finding}"));
        }
        let split = Split::new();
        split.add("a/x_lib_generic", &same).add("b/x_lib_generic", &same);
        let library = split.dir.path().join("split/b/x_lib_generic/p/two");
        fs::set_permissions(&library, fs::Permissions::from_mode(0o600)).unwrap();
        let mode = fs::metadata(split.dir.path().join("split/a/x_lib_generic/p/two")).unwrap();
        let mode = mode.permissions().mode() & 0o7777;
        let ran = split.recombine(&config(&with));
        assert_eq!(ran.status, Some(i32::from(strict)), "mode: {}", ran.stderr);
        let finding = format!("p/two (mode 0600, not {mode:04o})");
        told(
            &ran,
            strict,
            &format!("b/x_lib_generic: 1 generic file differs from the primary shard's: {finding}"),
        );

        // A folder in one shard, a link in the other: neither is a file that both have.
        let split = Split::new();
        split.add("a/x_lib_generic", &same).add("b/x_lib_generic", &same);
        fs::create_dir(split.dir.path().join("split/a/x_lib_generic/p/lib64")).unwrap();
        symlink("lib", split.dir.path().join("split/b/x_lib_generic/p/lib64")).unwrap();
        let ran = split.recombine(&config(&with));
        assert_eq!(ran.status, Some(i32::from(strict)), "link: {}", ran.stderr);
        let finding = "1 generic file differs from the primary shard's: p/lib64";
        told(&ran, strict, &format!("b/x_lib_generic: {finding}"));

        let split = Split::new();
        split.add("a/x_lib_generic", &same).add("b/x_lib_gfx1100", &[("k", "k")]);
        let ran = split.recombine(&config(&with));
        assert_eq!(ran.status, Some(i32::from(strict)), "no tree: {}", ran.stderr);
        told(&ran, strict, "b/x_lib_generic is not there, but device code of x_lib is");
    }
}

#[test]
fn an_error_names_all_generic_files_and_the_report_does_where_it_is_none() {
    let names: Vec<String> = (0..9).map(|i| format!("file{i}")).collect();
    let with = |text| names.iter().map(|name| (name.as_str(), text)).collect::<Vec<_>>();
    let split = Split::new();
    split.add("a/x_lib_generic", &with("1")).add("b/x_lib_generic", &with("2"));
    let ran = split.recombine(&config(&json!({"verify_generic_artifacts_match": true})));
    assert!(names.iter().all(|name| ran.stderr.contains(name)), "{}", ran.stderr);
    let ran = split.recombine(&config(&json!({})));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("p/file2 and 6 more"), "{}", ran.stderr);
    let report = ok(gfxpack()
        .args(["--json", "recombine", "--force", "--input-shards-dir"])
        .arg(split.dir.path().join("split"))
        .arg("--config")
        .arg(split.dir.path().join("groups.json"))
        .arg("--output-dir")
        .arg(split.out()));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let difference = &report["recombine"]["generic_differences"][0];
    assert_eq!(difference["artifact"], "b/x_lib_generic");
    assert_eq!(difference["differing"].as_array().unwrap().len(), names.len());
    assert_eq!(difference["differing"][8], json!({"path": "p/file8", "sections": []}));
}

#[test]
fn differences_that_builds_cannot_avoid_can_be_allowed() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("build-info.txt", "1"), ("log/a", "")]);
    split.add("a/x_lib_gfx1100", &[("k", "k")]);
    split.add("b/x_lib_generic", &[("build-info.txt", "2"), ("log/b", "")]);
    let ran = split.recombine(&config(&json!({
        "verify_generic_artifacts_match": true,
        "allowed_generic_differences": ["**/build-info.txt", "p/log/*"],
    })));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let allowed = "b/x_lib_generic: 3 differences as allowed: p/log/a is missing, p/log/b is only here, \
                   p/build-info.txt differs";
    assert!(ran.stderr.contains(allowed), "{}", ran.stderr);
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
fn a_file_in_one_shard_and_a_folder_in_another_are_told_with_both_shards() {
    let split = Split::new();
    split.add("a/x_lib_generic", &[("data", "1")]).add("b/x_lib_generic", &[("data/f", "2")]);
    let mut with = config(&json!({}));
    with["generic_union"] = json!(true);
    let ran = split.recombine(&with);
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    let finding = "p/data: a/x_lib_generic has a file or link here, b/x_lib_generic a directory";
    assert!(ran.stderr.contains(finding), "{}", ran.stderr);
}

/// Archives are compared by their kernels: the same ones, compressed in another way, are no conflict, and
/// the manifest has the size of the archive that is there.
#[test]
fn the_same_kernels_compressed_in_another_way_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let split = dir.path().join("split");
    for (shard, compression) in [("a", "zstd"), ("b", "none")] {
        ok(gfxpack()
            .args(["split", "--artifact-prefix", "fft_lib", "--compression", compression])
            .arg("--artifact-dir")
            .arg(example_shards().join("gfx1151-build/fft_lib_gfx1151"))
            .arg("--output-dir")
            .arg(split.join(shard)));
    }
    let groups = dir.path().join("groups.json");
    let config = json!({
        "primary_shard": "b",
        "architecture_groups": {"g": {"display_name": "", "architectures": ["gfx1151"]}},
    });
    fs::write(&groups, config.to_string()).unwrap();
    let out = dir.path().join("out");
    let ran = run(gfxpack()
        .args(["recombine", "--verbose", "--input-shards-dir"])
        .arg(&split)
        .arg("--config")
        .arg(&groups)
        .arg("--output-dir")
        .arg(&out));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("b/fft_lib_gfx1151 and a/fft_lib_gfx1151 both have 1 file, the same"),
        "{}",
        ran.stderr
    );
    ok(gfxpack().arg("verify").arg("--artifacts-dir").arg(&out));
}

/// Two jobs built one ISA from other sources: the first kernel that differs is named.
#[test]
fn different_kernels_of_two_shards_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("shards");
    let library = "math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2";
    for name in ["a", "b"] {
        let to = shards.join(name);
        fs::create_dir_all(&to).unwrap();
        copy_tree(&example_shards().join("gfx1151-build/blas_lib_gfx1151"), &to);
    }
    let path = shards.join("b/blas_lib_gfx1151").join(library);
    let mut bytes = fs::read(&path).unwrap();
    // Padding in the header of the second and third code object.
    let objects: Vec<usize> = (0..bytes.len() - 20)
        .filter(|&at| bytes[at..].starts_with(b"\x7fELF") && bytes[at + 18..at + 20] == [224, 0])
        .collect();
    assert_eq!(objects.len(), 4);
    for at in &objects[1..3] {
        bytes[at + 9] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    for shard in ["a", "b"] {
        ok(gfxpack()
            .args(["split", "--batch-artifact-parent-dir"])
            .arg(shards.join(shard))
            .arg("--output-dir")
            .arg(dir.path().join("split").join(shard)));
    }
    for strict in [true, false] {
        let config = json!({
            "primary_shard": "a",
            "architecture_groups": {"g": {"display_name": "", "architectures": ["gfx1151"]}},
            "validation": {"error_on_duplicate_device_code": strict},
        });
        let groups = dir.path().join("groups.json");
        fs::write(&groups, config.to_string()).unwrap();
        // From archives on disk, and from such as are still to be built.
        for (action, input) in [("recombine", "split"), ("build", "shards")] {
            let out = dir.path().join(format!("{action}-{strict}"));
            let mut command = gfxpack();
            command.arg(action).arg("--input-shards-dir").arg(dir.path().join(input));
            command.arg("--config").arg(&groups).arg("--output-dir").arg(&out);
            if action == "build" {
                command.args(["--version", "1", "--release", "1", "--no-auto-deps"]);
            }
            let ran = run(&mut command);
            assert_eq!(ran.status, Some(i32::from(strict)), "{action}: {}", ran.stderr);
            let finding: Vec<_> = ran
                .stderr
                .lines()
                .filter(|line| line.starts_with(if strict { "error: " } else { "warning: " }))
                .filter(|line| line.contains(".kpack"))
                .collect();
            assert_eq!(finding.len(), 1, "{action}: {}", ran.stderr);
            let kernel = format!("the first differing kernel is {library}#1");
            for words in ["a/blas_lib_gfx1151 and b/blas_lib_gfx1151", kernel.as_str()] {
                assert!(finding[0].contains(words), "{words}: {}", finding[0]);
            }
            if action == "recombine" && !strict {
                // The manifest speaks of the archive that was taken.
                ok(gfxpack().arg("verify").arg("--artifacts-dir").arg(&out));
            }
        }
    }
}

/// Two names of a file in one shard may be two files in another: what counts is the content.
#[test]
fn a_hard_link_is_compared_by_its_content() {
    // What the shards have as `A` and `B`; where both are one text, they are one file.
    let linked = |text: &'static str| (text, None);
    let apart = |one: &'static str, other: &'static str| (one, Some(other));
    for (a, b, differing) in [
        (linked("same"), apart("same", "same"), [].as_slice()),
        (apart("same", "same"), linked("same"), &[]),
        (linked("same"), linked("same"), &[]),
        (linked("same"), apart("same", "diff"), &["p/B"]),
        (apart("diff", "same"), linked("same"), &["p/A"]),
        (linked("same"), linked("diff"), &["p/A", "p/B"]),
    ] {
        let split = Split::new();
        split.add("a/x_lib_generic", &[("h", "h")]).add("b/x_lib_generic", &[("h", "h")]);
        for (artifact, (one, other)) in [("a/x_lib_gfx1100", a), ("b/x_lib_gfx1100", b)] {
            split.add(artifact, &[("A", one)]);
            match other {
                Some(other) => split.add(artifact, &[("B", other)]),
                None => split.link(artifact, "A", "B"),
            };
        }
        let ran = split.recombine(&config(&json!({})));
        let told = |path: &&str| {
            ran.stderr
                .contains(&format!("{path}: a/x_lib_gfx1100 and b/x_lib_gfx1100 have different"))
        };
        let found: Vec<&str> = ["p/A", "p/B"].into_iter().filter(told).collect();
        assert_eq!(found, differing, "{a:?} {b:?}\n{}", ran.stderr);
        assert_eq!(ran.status, Some(i32::from(!differing.is_empty())), "{}", ran.stderr);
        if differing.is_empty() {
            assert!(ran.stderr.contains("both have 2 files, the same: p/A, p/B"), "{}", ran.stderr);
        }
    }
}

/// A kernel that only one of two shards has is named, and not the one that comes after it in the other.
#[test]
fn a_kernel_that_one_shard_lacks_is_named() {
    use gfxpack::kpack::writer::{Compression, Writer};
    let archive = |indexes: &[u32]| {
        let isa = "gfx1100".parse().unwrap();
        let out = std::io::Cursor::new(Vec::new());
        let mut writer = Writer::new(out, "x_lib", &isa, Compression::None).unwrap();
        for index in indexes {
            let ordinal = writer.push_frame(b"code", 4).unwrap();
            writer.add_entry("lib/libx.so", *index, ordinal, 4).unwrap();
        }
        writer.finish().unwrap().0.into_inner()
    };
    for (theirs, lone) in [(&[0, 1, 10][..], 2), (&[0, 1, 2], 10), (&[0, 1, 2, 10, 11], 11)] {
        let split = Split::new();
        split.add("a/x_lib_generic", &[("h", "h")]);
        for (shard, indexes) in [("a", &[0, 1, 2, 10][..]), ("b", theirs)] {
            let artifact = format!("{shard}/x_lib_gfx1100");
            split.add(&artifact, &[(".kpack/x_lib_gfx1100.kpack", "")]);
            let at = split.dir.path().join("split").join(artifact);
            fs::write(at.join("p/.kpack/x_lib_gfx1100.kpack"), archive(indexes)).unwrap();
        }
        let ran = split.recombine(&config(&json!({})));
        let said =
            format!("the first differing kernel is lib/libx.so#{lone} (gfx1100): only one has it");
        assert_eq!(ran.status, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(&said), "{said}: {}", ran.stderr);
    }
}
