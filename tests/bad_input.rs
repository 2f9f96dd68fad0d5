//! Damaged and hostile input: each a clear error that names the file and what to do, the right exit
//! status, and no output of what is damaged left behind.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{copy_tree, example_packages, example_shards, gfxpack, ok, run, snapshot};
use tempfile::TempDir;

/// A copy of the examples to damage.
struct Damaged {
    dir: TempDir,
}

const LIBRARY: &str =
    "gfx1151-build/blas_lib_gfx1151/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2";
const COMPRESSED: &str =
    "gfx1151-build/blas_lib_gfx1151/math-libs/BLAS/hipBLASLt/stage/lib/libhipblaslt.so.0.9";

impl Damaged {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy_tree(&example_shards(), &dir.path().join("shards"));
        fs::copy(common::example_config(), dir.path().join("groups.json")).unwrap();
        Self { dir }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn shard_file(&self, below: &str) -> PathBuf {
        self.path("shards").join(below)
    }

    fn split(&self) -> Command {
        let mut command = gfxpack();
        command
            .arg("split")
            .arg("--batch-artifact-parent-dir")
            .arg(self.path("shards/gfx1151-build"));
        command.arg("--output-dir").arg(self.path("out"));
        command
    }

    fn build(&self) -> Command {
        let mut command = gfxpack();
        command.arg("build").arg("--input-shards-dir").arg(self.path("shards"));
        command.arg("--config").arg(self.path("groups.json"));
        command.arg("--packages").arg(example_packages());
        command.arg("--output-dir").arg(self.path("out"));
        command.args(["--version", "1", "--release", "1"]);
        command
    }

    fn config(&self, text: &str) {
        fs::write(self.path("groups.json"), text).unwrap();
    }

    /// Runs the command, which must fail with `status`, print all of `words` on standard error with a
    /// hint, leave no output, and not touch the input.
    #[track_caller]
    fn refuses(&self, command: &mut Command, status: i32, words: &[&str]) {
        let before = snapshot(&self.path("shards"));
        let ran = run(command);
        assert_eq!(ran.status, Some(status), "{}", ran.stderr);
        for word in words.iter().chain(&["error: ", "hint: "]) {
            assert!(ran.stderr.contains(word), "no `{word}` in:\n{}", ran.stderr);
        }
        let mut left: Vec<_> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("out"))
            .collect();
        left.sort();
        assert_eq!(left, Vec::<String>::new(), "output was left behind");
        assert_eq!(snapshot(&self.path("shards")), before, "the input was touched");
    }

    /// Splits the shard, of which the artifact `failed` must fail alone: status 1, all of `words` on
    /// standard error with a hint, and the output is that of the shard without it.
    #[track_caller]
    fn splits_all_but(&self, failed: &str, words: &[&str]) {
        self.splits_all_but_these(&[failed], words);
    }

    #[track_caller]
    fn splits_all_but_these(&self, failed: &[&str], words: &[&str]) {
        let before = snapshot(&self.path("shards"));
        let ran = run(&mut self.split());
        assert_eq!(ran.status, Some(1), "{}", ran.stderr);
        let last = format!(" {} failed\n", failed.join(" and "));
        for word in words.iter().chain(&["error: ", "hint: ", &last]) {
            assert!(ran.stderr.contains(word), "no `{word}` in:\n{}", ran.stderr);
        }
        for name in failed {
            assert!(ran.stdout.contains(&format!("\n{name}: failed, ")), "{}", ran.stdout);
        }
        let (rest, expected) = (self.path("rest"), self.path("expected"));
        copy_tree(&self.path("shards/gfx1151-build"), &rest);
        for name in failed {
            fs::remove_dir_all(rest.join(name)).unwrap();
        }
        let mut split = gfxpack();
        split.arg("split").arg("--batch-artifact-parent-dir").arg(&rest);
        ok(split.arg("--output-dir").arg(&expected));
        common::assert_same("out", &snapshot(&expected), &snapshot(&self.path("out")));
        assert_eq!(snapshot(&self.path("shards")), before, "the input was touched");
        for made in ["rest", "expected", "out"] {
            fs::remove_dir_all(self.path(made)).unwrap();
        }
        let hidden = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
        assert!(!fs::read_dir(self.dir.path()).unwrap().any(|entry| hidden(entry.unwrap())));
    }
}

/// The place of `needle` in a file.
fn find(path: &Path, needle: &[u8]) -> usize {
    let bytes = fs::read(path).unwrap();
    bytes.windows(needle.len()).position(|window| window == needle).unwrap()
}

/// Overwrites bytes of a file.
fn poke(path: &Path, offset: usize, new: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset..offset + new.len()].copy_from_slice(new);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_missing_manifest() {
    let input = Damaged::new();
    fs::remove_file(input.shard_file("gfx1151-build/blas_lib_gfx1151/artifact_manifest.txt"))
        .unwrap();
    input.splits_all_but("blas_lib_gfx1151", &["blas_lib_gfx1151", "has no artifact_manifest.txt"]);
    input.refuses(&mut input.build(), 1, &["blas_lib_gfx1151", "has no artifact_manifest.txt"]);
}

#[test]
fn prefixes_that_leave_the_tree_and_all_other_bad_lines_are_told() {
    let input = Damaged::new();
    let manifest = input.shard_file("gfx1151-build/fft_lib_gfx1151/artifact_manifest.txt");
    fs::write(&manifest, "../x\n\n/etc\nmath-libs/rocFFT/stage\nmath-libs/rocFFT/stage\n").unwrap();
    let words = ["artifact_manifest.txt: line 1", "`../x` leaves", "line 3", "line 5", "twice"];
    input.splits_all_but("fft_lib_gfx1151", &words);
}

#[test]
fn a_file_under_no_prefix() {
    let input = Damaged::new();
    let stray = input.shard_file("gfx1151-build/fft_lib_gfx1151/stray.txt");
    fs::write(&stray, "x").unwrap();
    input.splits_all_but("fft_lib_gfx1151", &["stray.txt", "under no prefix"]);
}

#[test]
fn a_config_with_an_unknown_key() {
    let input = Damaged::new();
    input.config(r#"{"primary_shard": "gfx110X-build", "architecture_group": {}}"#);
    let words = ["groups.json", "unknown field `architecture_group`", "architecture_groups"];
    input.refuses(&mut input.build(), 2, &words);
}

#[test]
fn a_config_is_told_with_line_column_and_key() {
    let input = Damaged::new();
    let group = |rest: &str| {
        format!(
            "{{\"primary_shard\": \"gfx110X-build\",\n \"architecture_groups\": {{\"g\": {{{rest}}}}}}}"
        )
    };
    let of_group = "\"display_name\": \"\", \"architectures\": [\"gfx1100\"]";
    let cases = [
        (
            group("\"display_name\": 5, \"architectures\": []"),
            vec![
                "architecture_groups.g.display_name: invalid type: integer `5`, expected a string at line 2 column 48",
            ],
        ),
        (
            group("\"display_name\": \"\", \"architectures\": [\"gfx1100\", {}]"),
            vec![
                "architecture_groups.g.architectures[1]: invalid type: map, expected a string at line 2",
            ],
        ),
        (
            group(&of_group.replace("display_name", "dispaly_name")),
            vec!["unknown field `dispaly_name`", "line 2 column", "did you mean `display_name`?"],
        ),
        (group(of_group) + "}", vec!["trailing characters at line 2"]),
    ];
    for (text, words) in cases {
        input.config(&text);
        input.refuses(&mut input.build(), 2, &[&["groups.json"], &words[..]].concat());
    }
    // What some editors write.
    let path = input.path("groups.json");
    let utf16: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(&path, utf16).unwrap();
    input.refuses(&mut input.build(), 2, &["groups.json", "UTF-16", "save it as UTF-8"]);
    fs::write(&path, b"{\n \"\xff\": 1}").unwrap();
    input.refuses(&mut input.build(), 2, &["the byte 0xff at line 2 column 3 is not UTF-8"]);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    input.refuses(&mut input.build(), 2, &["groups.json", "larger than 64 MiB"]);
    fs::remove_file(&path).unwrap();
    fs::write(&path, format!("\u{feff}{}", group(of_group))).unwrap();
    ok(input.build().arg("--dry-run"));
}

#[test]
fn faults_of_groups_are_all_told() {
    let input = Damaged::new();
    input.config(
        r#"{"primary_shard": "gfx110X-build", "architecture_groups": {
            "a": {"display_name": "", "architectures": ["gfx1100", "gfx9999", "gfx1101", "gfx1101"]},
            "b": {"display_name": "", "architectures": ["gfx1100", "navi31"]}}}"#,
    );
    let words = [
        "unknown ISA `gfx9999`",
        "group `a` lists `gfx1101` twice",
        "`gfx1100` is in two groups, `a` and `b`",
        "`navi31` is not a GPU architecture",
    ];
    input.refuses(&mut input.build(), 2, &words);
}

#[test]
fn a_group_listed_twice() {
    let input = Damaged::new();
    input.config(
        r#"{"primary_shard": "gfx110X-build", "architecture_groups": {
            "a": {"display_name": "", "architectures": ["gfx1100"]},
            "a": {"display_name": "", "architectures": ["gfx1101"]}}}"#,
    );
    input.refuses(&mut input.build(), 2, &["groups.json", "`a` is listed twice"]);
}

#[test]
fn a_primary_shard_that_is_not_there() {
    let input = Damaged::new();
    let config = fs::read_to_string(input.path("groups.json")).unwrap();
    input.config(&config.replace("gfx110X-build", "gfx90X-build"));
    input.refuses(&mut input.build(), 2, &["gfx90X-build", "gfx110X-build", "gfx120X-build"]);
}

/// A second shard with gfx1151, of which one byte of device code is not the same.
fn with_second_shard(input: &Damaged) {
    copy_tree(&input.path("shards/gfx1151-build"), &input.path("shards/gfx1151-again"));
    let library = input.path("shards").join(LIBRARY.replace("gfx1151-build", "gfx1151-again"));
    let bytes = fs::read(&library).unwrap();
    // The metadata of a kernel: its name is there once more in the symbol table.
    let at = bytes.windows(4).rposition(|w| w == b".kd\0").unwrap();
    poke(&library, at - 1, &[bytes[at - 1] ^ 1]);
}

#[test]
fn duplicate_device_code() {
    let input = Damaged::new();
    with_second_shard(&input);
    let words = [
        "gfx1151-again/blas_lib_gfx1151",
        "gfx1151-build/blas_lib_gfx1151",
        "first differing kernel is math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2#",
    ];
    input.refuses(&mut input.build(), 1, &words);

    let config = fs::read_to_string(input.path("groups.json")).unwrap();
    input.config(&config.replace("device_code\": true", "device_code\": false"));
    let ran = run(&mut input.build());
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: ") && ran.stderr.contains("first differing kernel"));
}

#[test]
fn the_same_device_code_twice_is_no_conflict() {
    let input = Damaged::new();
    copy_tree(&input.path("shards/gfx1151-build"), &input.path("shards/gfx1151-again"));
    ok(&mut input.build());
}

#[test]
fn a_truncated_bundle() {
    let input = Damaged::new();
    let library = input.shard_file(LIBRARY);
    let at = find(&library, b"__CLANG_OFFLOAD_BUNDLE__");
    // The last entry's size: it ends past the section.
    poke(&library, at + 24 + 8 + 8, &0x10_0000u64.to_le_bytes());
    input.splits_all_but("blas_lib_gfx1151", &["librocblas.so.5.2", "bundle of wrapper"]);
}

#[test]
fn bundles_whose_sizes_lie() {
    // Of the whole: the count; of the first entry with code: offset, size, length of the id.
    for (field, value) in [("count", 1u64 << 60), ("24", 1 << 61), ("16", 1 << 62), ("8", 1 << 60)]
    {
        let input = Damaged::new();
        let library = input.shard_file(LIBRARY);
        let at = match field.parse::<usize>() {
            Ok(before) => find(&library, b"hipv4-amdgcn-amd-amdhsa--gfx1151") - before,
            Err(_) => find(&library, b"__CLANG_OFFLOAD_BUNDLE__") + 24,
        };
        poke(&library, at, &value.to_le_bytes());
        input.splits_all_but("blas_lib_gfx1151", &["librocblas.so.5.2", "bundle of wrapper"]);
    }
    for (field, value) in [(8usize, u32::MAX), (12, u32::MAX), (12, 1)] {
        let input = Damaged::new();
        let library = input.shard_file(COMPRESSED);
        let at = find(&library, b"CCOB");
        poke(&library, at + field, &value.to_le_bytes());
        input.splits_all_but("blas_lib_gfx1151", &["libhipblaslt.so.0.9"]);
    }
}

#[test]
fn a_damaged_compressed_bundle() {
    let input = Damaged::new();
    let library = input.shard_file(COMPRESSED);
    let at = find(&library, b"CCOB");
    let bytes = fs::read(&library).unwrap();
    poke(&library, at + 700, &[bytes[at + 700] ^ 0x55]);
    input.splits_all_but("blas_lib_gfx1151", &["libhipblaslt.so.0.9"]);
}

#[test]
fn a_code_object_filed_under_another_isa() {
    let input = Damaged::new();
    let library = input.shard_file(LIBRARY);
    let at = find(&library, b"hipv4-amdgcn-amd-amdhsa--gfx1151");
    poke(&library, at, b"hipv4-amdgcn-amd-amdhsa--gfx1150");
    let words = ["librocblas.so.5.2", "filed under gfx1150", "e_flags say gfx1151"];
    input.splits_all_but("blas_lib_gfx1151", &words);
}

const BUNDLE: &str = "Kernels.so-000-gfx1151.hsaco";

/// A file of the example's databases for gfx1151.
fn database_file(of: &str, name: &str) -> String {
    format!("gfx1151-build/blas_lib_gfx1151/math-libs/BLAS/{of}/{name}")
}

#[test]
fn database_files_whose_content_is_for_another_isa() {
    let code = database_file(
        "rocBLAS/stage/lib/rocblas/library",
        "TensileLibrary_Type_SS_Contraction_l_Ailk_Bjlk_Cijk_Dijk_gfx1151.co",
    );
    let bundle = database_file("hipBLASLt/stage/lib/hipblaslt/library", BUNDLE);
    let input = Damaged::new();
    let [code, bundle] = [input.shard_file(&code), input.shard_file(&bundle)];
    let whole = fs::read(&bundle).unwrap();
    assert!(whole.starts_with(b"__CLANG_OFFLOAD_BUNDLE__") && whole.len() > 200);
    // The processor in e_flags: 0x4a is gfx1151, 0x41 is gfx1100.
    assert_eq!(fs::read(&code).unwrap()[48], 0x4a);
    poke(&code, 48, &[0x41]);
    let at = find(&bundle, b"gfx1151");
    poke(&bundle, at, b"gfx1150");
    // All are told at once, by split and build.
    let words = [
        "_gfx1151.co: is a database file for gfx1151 by its name",
        "say gfx1100",
        BUNDLE,
        "its bundle holds code for gfx1150 only",
    ];
    input.splits_all_but("blas_lib_gfx1151", &words);
    input.refuses(&mut input.build(), 1, &words);

    // A bundle that is damaged.
    poke(&code, 48, &[0x4a]);
    fs::write(&bundle, &whole[..whole.len() / 2]).unwrap();
    input.splits_all_but("blas_lib_gfx1151", &[BUNDLE, "is a damaged offload bundle"]);

    // Without databases these are files like others; and so is what is no code at all.
    ok(input.split().args(["--split-databases", "none"]));
    fs::write(&bundle, "").unwrap();
    fs::write(&code, "text").unwrap();
    ok(input.split().arg("--force"));
}

#[test]
fn an_elf_without_its_end() {
    let input = Damaged::new();
    let library = input.shard_file(LIBRARY);
    let bytes = fs::read(&library).unwrap();
    fs::write(&library, &bytes[..bytes.len() - 700]).unwrap();
    input.splits_all_but(
        "blas_lib_gfx1151",
        &["librocblas.so.5.2", "damaged ELF", "section header"],
    );
}

#[test]
fn several_bad_files_are_all_told() {
    let input = Damaged::new();
    for library in [LIBRARY, COMPRESSED] {
        let library = input.shard_file(library);
        let bytes = fs::read(&library).unwrap();
        fs::write(&library, &bytes[..bytes.len() - 700]).unwrap();
    }
    input.splits_all_but("blas_lib_gfx1151", &["librocblas.so.5.2", "libhipblaslt.so.0.9"]);
}

#[test]
fn an_unreadable_file() {
    let input = Damaged::new();
    let library = input.shard_file(LIBRARY);
    // Root reads everything: the program runs as somebody else.
    let program = input.path("gfxpack");
    fs::copy(env!("CARGO_BIN_EXE_gfxpack"), &program).unwrap();
    fs::set_permissions(input.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let shard = input.path("shards/gfx1151-build");
    let mut split = common::tool("setpriv", "util-linux");
    split.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    split.arg("split").arg("--batch-artifact-parent-dir").arg(shard);
    split.arg("--output-dir").arg(input.path("out"));
    let library_unread = "librocblas.so.5.2: cannot read";
    let database = "rocBLAS/stage/lib/rocblas/library";
    let database = input.shard_file(&database_file(database, "TensileLibrary_lazy_gfx1151.dat"));
    // One is opened when splitting is planned, the other not before it is copied.
    for (unread, words) in [(library, library_unread), (database, "gfx1151.dat: cannot read")] {
        fs::set_permissions(&unread, fs::Permissions::from_mode(0o000)).unwrap();
        let ran = run(&mut split);
        assert_eq!(ran.status, Some(1), "{}", ran.stderr);
        for word in [words, "ermission denied", "hint: ", "blas_lib_gfx1151 failed"] {
            assert!(ran.stderr.contains(word), "no `{word}` in:\n{}", ran.stderr);
        }
        assert!(!input.path("out/blas_lib_generic").exists());
        assert!(!input.path("out/blas_lib_gfx1151").exists());
        assert!(input.path("out/fft_lib_gfx1151").exists());
        fs::remove_dir_all(input.path("out")).unwrap();
        fs::set_permissions(&unread, fs::Permissions::from_mode(0o644)).unwrap();
    }
}

#[test]
fn a_pipe_in_an_artifact() {
    let input = Damaged::new();
    let pipe = input.shard_file("gfx1151-build/fft_lib_gfx1151/math-libs/rocFFT/stage/lib/pipe");
    ok(common::tool("mkfifo", "coreutils").arg(pipe));
    input.splits_all_but("fft_lib_gfx1151", &["stage/lib/pipe", "device, socket or pipe"]);
}

#[test]
fn a_directory_that_is_no_artifact() {
    let input = Damaged::new();
    fs::create_dir(input.shard_file("gfx1151-build/notes")).unwrap();
    input.splits_all_but("notes", &["gfx1151-build/notes", "artifact_component_target"]);
}

#[test]
fn an_unknown_database() {
    let input = Damaged::new();
    let words = ["--split-databases", "unknown database `rocblass`", "hipblaslt"];
    input.refuses(input.split().args(["--split-databases", "rocblass"]), 2, &words);
}

#[test]
fn an_archive_that_several_packages_would_need() {
    let input = Damaged::new();
    let words = ["hipblaslt", "rocblas", "blas_lib_gfx1100.kpack", "--kpack-scope prefix"];
    input.refuses(input.build().args(["--kpack-scope", "component"]), 1, &words);
}

#[test]
fn a_prefix_that_is_a_file_or_link() {
    for prefix in ["lib/librocfft.so.0", "lib/librocfft.so.0.1"] {
        let input = Damaged::new();
        let manifest = input.shard_file("gfx1151-build/fft_lib_gfx1151/artifact_manifest.txt");
        let text = format!("math-libs/rocFFT/stage\nmath-libs/rocFFT/stage/{prefix}\n");
        fs::write(manifest, text).unwrap();
        input.splits_all_but(
            "fft_lib_gfx1151",
            &["artifact_manifest.txt", prefix, "is a file or link"],
        );
    }
}

#[test]
fn an_artifact_that_was_split_already() {
    let input = Damaged::new();
    let split = input.path("split");
    ok(gfxpack()
        .args(["split", "--batch-artifact-parent-dir"])
        .arg(input.path("shards/gfx1151-build"))
        .arg("--output-dir")
        .arg(&split));
    let mut again = gfxpack();
    again.arg("split").arg("--batch-artifact-parent-dir").arg(&split);
    again.arg("--output-dir").arg(input.path("out"));
    let ran = run(&mut again);
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    for words in ["blas_lib_gfx1151: was split already", "gfxpack recombine"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    // What was generic passes through.
    let out = input.path("out");
    let mut names: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| !name.ends_with("_generic"));
    assert_eq!(names, Vec::<String>::new());
    fs::remove_dir_all(out).unwrap();
    // And it is nothing to make packages of: an ISA is no group.
    let mut package = gfxpack();
    package.arg("package").arg("--artifacts-dir").arg(&split);
    package.arg("--config").arg(input.path("groups.json"));
    package.arg("--output-dir").arg(input.path("out")).args(["--version", "1", "--release", "1"]);
    input.refuses(
        &mut package,
        1,
        &["3 artifacts are neither `generic` nor of a group", "not recombined"],
    );
}

#[test]
fn a_shard_in_place_of_the_directory_of_shards() {
    let input = Damaged::new();
    let mut build = gfxpack();
    build.arg("build").arg("--input-shards-dir").arg(input.path("shards/gfx1151-build"));
    build.arg("--config").arg(input.path("groups.json"));
    build.arg("--output-dir").arg(input.path("out")).args(["--version", "1", "--release", "1"]);
    input.refuses(&mut build, 2, &["is a shard, not a directory of shards"]);
}

#[test]
fn groups_that_differ_in_case_only() {
    let input = Damaged::new();
    let config = fs::read_to_string(input.path("groups.json")).unwrap();
    input.config(&config.replace("\"gfx115X\"", "\"gfx110x\""));
    input.refuses(
        &mut input.build(),
        2,
        &["`gfx110X` and `gfx110x` differ in upper and lower case"],
    );
}

#[test]
fn versions_that_no_package_can_have() {
    let input = Damaged::new();
    for (version, release, words) in
        [("1-2", "1", "--version `1-2`"), ("", "1", "--version"), ("1", "a:b", "--release `a:b`")]
    {
        let mut build = gfxpack();
        build.arg("build").arg("--input-shards-dir").arg(input.path("shards"));
        build.arg("--config").arg(input.path("groups.json"));
        build.arg("--output-dir").arg(input.path("out"));
        build.args(["--version", version, "--release", release]);
        input.refuses(&mut build, 2, &[words]);
    }
    for date in ["x", "-1", "99999999999999"] {
        input.refuses(
            input.build().env("SOURCE_DATE_EPOCH", date),
            2,
            &["SOURCE_DATE_EPOCH", date],
        );
    }
    input.refuses(input.build().args(["--install-prefix", "/"]), 2, &["--install-prefix /"]);
    input.refuses(input.build().args(["--install-prefix", "/a/../b"]), 2, &["leaves the tree"]);
    input.refuses(input.build().args(["--install-prefix", "opt"]), 2, &["does not begin with `/`"]);
    // Nothing quotes it in maintainer scripts, the linker's configuration and spec files.
    for (prefix, found) in [("/opt/a b", "` `"), ("/opt/$(id)", "`$`"), ("/opt/%{x}", "`%`")] {
        input.refuses(input.build().args(["--install-prefix", prefix]), 2, &[prefix, found]);
    }
}

/// What is read by the stages is read by `verify`: a byte order mark, CRLF, blank lines and blanks.
#[test]
fn a_manifest_as_some_editors_write_it_is_one_to_all() {
    let dir = tempfile::tempdir().unwrap();
    let artifact = dir.path().join("artifacts/x_lib_generic");
    fs::create_dir_all(artifact.join("p/lib")).unwrap();
    fs::create_dir_all(artifact.join("q")).unwrap();
    fs::write(artifact.join("p/lib/file"), "text").unwrap();
    fs::write(artifact.join("q/file2"), "text").unwrap();
    let manifest = artifact.join("artifact_manifest.txt");
    fs::write(&manifest, "\u{feff}p\r\n\r\n q \r\n").unwrap();
    let verify =
        || run(gfxpack().args(["verify", "--artifacts-dir"]).arg(dir.path().join("artifacts")));
    let ran = verify();
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let inspected = ok(gfxpack().arg("inspect").arg(&manifest));
    assert!(inspected.ends_with("prefixes:\n  p\n  q\n"), "{inspected}");
    // What is wrong is wrong to all.
    fs::write(&manifest, "\u{feff}p\r\nq\r\np\r\n../x\r\n").unwrap();
    let ran = verify();
    assert_eq!(ran.status, Some(1), "{ran:?}");
    for told in ["line 3: the prefix `p` is listed twice", "line 4: "] {
        assert!(ran.stdout.contains(told), "{ran:?}");
        let ran = run(gfxpack().arg("inspect").arg(&manifest));
        assert!(ran.status == Some(1) && ran.stderr.contains(told), "{ran:?}");
    }
}
