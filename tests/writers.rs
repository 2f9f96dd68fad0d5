//! `gfxpack package` within bounds: memory, sizes, old systems.

// The lints allow both in tests, but do not see that helpers of tests are tests.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use common::{fails, gfxpack, ok, peak_memory, snapshot, tool};

/// Artifacts as `package` takes them, in `dir`: a generic one with these files, of zeros but for their first bytes.
fn artifacts(dir: &Path, files: &[(&str, u64)]) {
    let root = dir.join("artifacts/big_lib_generic");
    fs::create_dir_all(root.join("stage/lib")).unwrap();
    fs::write(root.join("artifact_manifest.txt"), "stage\n").unwrap();
    for (name, size) in files {
        let path = root.join("stage/lib").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = File::create(path).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.set_len(*size).unwrap();
    }
    let groups = r#"{ "primary_shard": "a", "architecture_groups": {
        "gfx90X": { "display_name": "g", "architectures": ["gfx90a"] } } }"#;
    fs::write(dir.join("groups.json"), groups).unwrap();
}

fn package(dir: &Path, out: &str) -> Command {
    let mut command = gfxpack();
    command.args(["package", "--quiet", "--version", "1", "--release", "1"]);
    command.env("SOURCE_DATE_EPOCH", "1767614400");
    command.arg("--artifacts-dir").arg(dir.join("artifacts"));
    command.arg("--config").arg(dir.join("groups.json"));
    command.arg("--output-dir").arg(dir.join(out));
    command
}

/// Writes packages; returns the most memory that was resident, in MiB.
fn peak(dir: &Path, out: &str, args: &[&str]) -> u64 {
    let kib = peak_memory(package(dir, out).args(args));
    println!("{args:?}: peak {} MiB", kib / 1024);
    kib / 1024
}

#[test]
fn a_file_over_4_gib_goes_into_an_rpm_within_the_memory_that_is_allowed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    artifacts(dir, &[("four", (4 << 30) + 5), ("small", 70_000)]);
    let used = peak(dir, "out", &["--format", "rpm", "--memory", "256MiB"]);
    assert!(used < 256, "{used} MiB");
    let rpm = dir.join("out/big-lib-1-1.x86_64.rpm");
    ok(tool("rpm", "rpm").args(["-K", "--nosignature"]).arg(&rpm));
    let listing = ok(tool("rpm", "rpm").args(["-qplv", "--nosignature"]).arg(&rpm));
    assert!(listing.contains(" 4294967301 "), "{listing}");
    let requires = ok(tool("rpm", "rpm").args(["-qp", "--nosignature", "--requires"]).arg(&rpm));
    assert!(requires.contains("rpmlib(LargeFiles)"), "{requires}");
}

/// Appends bytes that cannot be compressed.
fn fill(path: &Path, size: usize) {
    let mut state = 88_172_645_463_325_252_u64;
    let mut file = BufWriter::new(File::options().append(true).open(path).unwrap());
    for _ in 0..size / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes()).unwrap();
    }
    file.flush().unwrap();
}

/// What is before the large files in an archive, and between them, is over a kilobyte, and compressed on each side by itself: 300 MB
/// waited for that.
#[test]
fn large_files_go_through_both_formats_within_the_memory_that_is_allowed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    // One that both formats have in one order, and one that stands elsewhere in an .rpm.
    let (long, other) = ("one/large", "one-more/large");
    artifacts(dir, &[("before", 5000), (long, 8), ("one/small", 5000), (other, 8)]);
    let lib = dir.join("artifacts/big_lib_generic/stage/lib");
    fill(&lib.join("before"), 5000);
    fill(&lib.join(long), 250_000_000);
    fill(&lib.join("one/small"), 5000);
    fill(&lib.join(other), 60_000_000);
    let used = peak(dir, "out", &["--memory", "384MiB", "--jobs", "4"]);
    assert!(used < 384, "{used} MiB");
    ok(tool("rpm", "rpm")
        .args(["-K", "--nosignature"])
        .arg(dir.join("out/big-lib-1-1.x86_64.rpm")));
    ok(gfxpack()
        .args(["verify", "--packages-dir"])
        .arg(dir.join("out"))
        .arg("--config")
        .arg(dir.join("groups.json")));
}

/// Run with `cargo test --release --test writers -- --ignored --nocapture`, which also prints the peaks.
#[test]
#[ignore = "reads 30 GB of zeros: minutes"]
fn nine_gigabytes_and_a_set_over_five_go_through_both_formats_in_256_mib() {
    let temp = tempfile::tempdir().unwrap();
    for (name, files) in [
        ("nine", &[("nine", 9_000_000_000_u64)][..]),
        ("set", &[("a", 2_000_000_000), ("b", 2_000_000_000), ("c", 1_500_000_000)]),
    ] {
        let dir = temp.path().join(name);
        artifacts(&dir, files);
        let used = peak(&dir, "out", &["--memory", "256MiB"]);
        assert!(used < 256, "{used} MiB");
        let rpm = dir.join("out/big-lib-1-1.x86_64.rpm");
        ok(tool("rpm", "rpm").args(["-K", "--nosignature"]).arg(&rpm));
        let deb = dir.join("out/big-lib_1-1_amd64.deb");
        ok(Command::new("sh")
            .args(["-c", "dpkg-deb --fsys-tarfile \"$0\" | tar -t >/dev/null"])
            .arg(deb));
    }
}

#[test]
fn a_bound_on_memory_changes_no_byte_and_one_that_is_too_small_says_what_is_needed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    artifacts(dir, &[("a", 30_000_000), ("b", 50), ("c", 7_000_000)]);
    let mut written: Vec<BTreeMap<String, String>> = Vec::new();
    for (i, args) in
        [&["--jobs", "4"][..], &["--memory", "160MiB"], &["--memory", "1GiB", "--jobs", "1"]]
            .iter()
            .enumerate()
    {
        let out = format!("out{i}");
        ok(package(dir, &out).args(*args));
        written.push(snapshot(&dir.join(out)));
    }
    assert_eq!(written[0], written[1]);
    assert_eq!(written[0], written[2]);
    let error = fails(
        package(dir, "no").args(["--memory", "64MiB", "--deb-compression", "zstd:10,long=27"]),
        2,
    );
    assert!(
        error.contains(
            "a bound of 64 MiB on memory is too little: writing a package with zstd:10,long=27"
        ),
        "{error}"
    );
    assert!(!dir.join("no").exists());
    let needed = error.split("allow ").nth(1).unwrap().split(',').next().unwrap();
    ok(package(dir, "yes").args(["--memory", needed, "--deb-compression", "zstd:10,long=27"]));
}

#[test]
fn old_systems_get_what_they_can_unpack() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    artifacts(dir, &[("a", 3000)]);
    ok(package(dir, "out").args(["--compat", "debian11,el8"]));
    let members = |out: &str| {
        let deb = dir.join(out).join("big-lib_1-1_amd64.deb");
        ok(tool("bsdtar", "libarchive-tools").arg("-tf").arg(deb))
    };
    let payload = |out: &str| {
        let rpm = dir.join(out).join("big-lib-1-1.x86_64.rpm");
        let format = "%{PAYLOADCOMPRESSOR}";
        ok(tool("rpm", "rpm").args(["-qp", "--nosignature", "--qf", format]).arg(rpm))
    };
    assert_eq!(members("out"), "debian-binary\ncontrol.tar.xz\ndata.tar.xz\n");
    assert_eq!(payload("out"), "zstd");
    ok(package(dir, "sle").args(["--compat", "debian12", "--compat", "sle15"]));
    assert_eq!(members("sle"), "debian-binary\ncontrol.tar.zst\ndata.tar.zst\n");
    assert_eq!(payload("sle"), "xz");
    ok(package(dir, "none").args(["--compat", "debian11", "--deb-compression", "none"]));
    let error = fails(
        package(dir, "no")
            .args(["--compat", "ubuntu20.04", "--compat", "el7"])
            .args(["--deb-compression", "zstd:10"]),
        2,
    );
    assert!(
        error.contains("--deb-compression zstd:10 and --compat ubuntu20.04: ubuntu20.04 has dpkg 1.19, which cannot read zstd:10"),
        "{error}"
    );
    let mut told = gfxpack();
    told.args(["package", "--version", "1", "--release", "1", "--artifacts-dir"]);
    told.arg(dir.join("artifacts")).arg("--config").arg(dir.join("groups.json"));
    told.args(["--format", "deb", "--rpm-compression", "xz:6", "--output-dir"]);
    let told = common::run(told.arg(dir.join("one")));
    assert_eq!(told.status, Some(0));
    let what = "--rpm-compression is of no use: no .rpm is made";
    assert!(told.stderr.contains(what), "{}", told.stderr);
    let error = fails(package(dir, "no").args(["--compat", "debian10"]), 2);
    assert!(
        error.contains("'debian10'") && error.contains("[possible values: debian11, debian12, "),
        "{error}"
    );
    let error = fails(package(dir, "no").args(["--deb-compression", "zstd:3,long=28"]), 2);
    assert!(error.contains("10 to 27"), "{error}");
}
