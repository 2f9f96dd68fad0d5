//! Archives that are whole, and whose names, dates or numbers would do harm further on: in packages, to the time that a run
//! takes, or to the terminal.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/tarball.rs"]
mod tarball;

use std::fs;
use std::process::Command;

use common::{fails, gfxpack, ok, run, tool};
use serde_json::{Value, json};
use tarball::{header, member, pax};
use tempfile::TempDir;

/// A shard with one artifact, an archive of these members behind its manifest.
fn shard(manifest: &str, members: &[Vec<u8>]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = member(b"artifact_manifest.txt", b'0', manifest.as_bytes());
    tar.extend(members.concat());
    tar.resize(tar.len() + 1024, 0);
    let folder = dir.path().join("shards/s");
    fs::create_dir_all(&folder).unwrap();
    let archive = folder.join("x_lib_generic.tar.zst");
    fs::write(archive, zstd::encode_all(&tar[..], 1).unwrap()).unwrap();
    let config = json!({
        "primary_shard": "s",
        "architecture_groups": {"g": {"display_name": "", "architectures": ["gfx1100"]}},
    });
    fs::write(dir.path().join("groups.json"), config.to_string()).unwrap();
    dir
}

fn build(dir: &TempDir) -> Command {
    let mut command = gfxpack();
    command.current_dir(dir.path());
    command.args(["build", "--no-auto-deps", "--input-shards-dir", "shards"]);
    command.args(["--config", "groups.json", "--output-dir", "out"]);
    command.args(["--version", "1", "--release", "1"]);
    command
}

fn file(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let records = [&[("path", path)], more].concat();
    [pax(&records), member(b"x", b'0', b"content")].concat()
}

#[test]
fn a_date_that_formats_have_no_room_for_is_refused_unless_another_is_given() {
    let late = |mtime: &str| file("p/late", &[("mtime", mtime)]);
    for mtime in ["4294967296", "1000000000000", "9223372036854775807"] {
        let dir = shard("p\n", &[file("p/a", &[]), late(mtime)]);
        for format in ["deb", "rpm"] {
            let text = fails(build(&dir).args(["--format", format]), 1);
            for word in ["p/late", &format!("{mtime} seconds after 1970"), "SOURCE_DATE_EPOCH"] {
                assert!(text.contains(word), "no `{word}` in {text}");
            }
            assert_eq!(text.matches("error: ").count(), 1, "{text}");
        }
        ok(build(&dir).env("SOURCE_DATE_EPOCH", "1767614400"));
        let script = "dpkg-deb -c out/*.deb | grep -c 2026-01-05 && \
                      rpm -qp --qf '[%{FILEMTIMES} ]%{BUILDTIME}' out/*.rpm";
        let listing = ok(tool("bash", "bash").current_dir(dir.path()).args(["-ec", script]));
        assert!(listing.contains("1767614400 1767614400"), "{listing}");
    }
    // The last one that there is room for.
    let dir = shard("p\n", &[late("4294967295")]);
    ok(&mut build(&dir));
    let script = "dpkg-deb -c out/*.deb && rpm -qp --qf '%{BUILDTIME}' out/*.rpm";
    let listing = ok(tool("bash", "bash").current_dir(dir.path()).args(["-ec", script]));
    assert!(listing.contains("2106-02-07") && listing.contains("4294967295"), "{listing}");
}

/// Each directory once had those above it looked up anew: half an hour.
#[test]
fn a_path_that_is_thousands_of_directories_deep_takes_no_time() {
    let path = format!("p/{}f", "d/".repeat(1900));
    let dir = shard("p\n", &[file(&path, &[])]);
    ok(build(&dir).args(["--format", "deb"]));
}

#[test]
fn an_artifact_of_thousands_of_prefixes_is_refused() {
    let manifest = |n: usize| (0..n).map(|i| format!("p{i}/stage\n")).collect::<String>();
    let dir = shard(&manifest(1001), &[file("p7/stage/a", &[])]);
    let text = fails(&mut build(&dir), 1);
    let fault = "artifact_manifest.txt: line 1001: one prefix more than the 1000";
    assert!(text.contains(fault) && text.contains("hint: "), "{text}");
    let dir = shard(&manifest(1000), &[file("p7/stage/a", &[])]);
    ok(build(&dir).arg("--dry-run"));
}

#[test]
fn what_is_in_the_input_does_not_steer_the_terminal() {
    let evil = "p/\x1b[31mred\nerror: forged\r\x7f\u{9b}";
    let shown = r"p/\x1b[31mred\nerror: forged\r\x7f\u{9b}";
    // In an error, and in its JSON as it is.
    let pipe = [pax(&[("path", evil)]), header(b"x", b'6', 0, |_| {})].concat();
    let dir = shard("p\n", &[pipe]);
    let ran = run(build(&dir).arg("--json"));
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains(shown), "{}", ran.stderr);
    let plain = |text: &str| !text.contains(|c: char| c.is_control() && c != '\n');
    assert!(plain(&ran.stderr) && !ran.stderr.contains("\nerror: forged"), "{}", ran.stderr);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(json["errors"][0]["causes"][0].as_str().unwrap().contains(evil), "{json}");
    // In warnings, notes and results: a file that no definition takes.
    let dir = shard("p\n", &[file(evil, &[]), file("p/other", &[])]);
    let definitions = json!({
        "defaults": {"maintainer": "A <a@example.org>"},
        "packages": [{"name": "xx", "contents": [{"artifact": "x", "include": ["other"]}]}],
    });
    fs::write(dir.path().join("packages.json"), definitions.to_string()).unwrap();
    let more = ["--packages", "packages.json", "--verbose", "--dry-run"];
    let ran = run(build(&dir).args(more));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    for told in ["warning: 1 files are in no package, as ", "\nin no package: "] {
        assert!(ran.stderr.contains(&format!("{told}x_lib_generic/{shown}")), "{}", ran.stderr);
    }
    assert!(plain(&ran.stderr) && plain(&ran.stdout), "{}{}", ran.stderr, ran.stdout);
}

/// dpkg and rpm add nine bytes to a name while they unpack it.
#[test]
fn a_name_that_package_managers_cannot_unpack_is_refused_when_it_is_planned() {
    let name = |n: usize| format!("p/lib/{}", "n".repeat(n));
    let deep = "p/".to_owned() + &"d/".repeat(2040);
    for (path, words) in [
        (name(247), "has 247 bytes, and package managers can unpack 246 at the most"),
        (name(300) + "/file", "has 300 bytes"),
        (deep + "file", "d/d` has 4087 bytes, and package managers can unpack 4086 at the"),
    ] {
        let dir = shard("p\n", &[file(&path, &[])]);
        let text = fails(build(&dir).arg("--dry-run"), 1);
        assert!(text.contains(words) && text.contains("hint: ") && text.len() < 1500, "{text}");
        assert_eq!(text.matches("error: ").count(), 1, "{text}");
    }
    let dir = shard("p\n", &[file(&name(246), &[])]);
    ok(&mut build(&dir));
    let root = dir.path().join("root");
    let script = r#"mkdir -p "$0"/deb/var/lib/dpkg/info "$0"/deb/var/lib/dpkg/updates "$0"/rpm
        touch "$0"/deb/var/lib/dpkg/status "$0"/deb/var/lib/dpkg/available
        dpkg --root="$0"/deb --force-not-root --force-depends --log=/dev/null -i out/*.deb
        rpm --root="$0"/rpm --nodeps -i out/*.rpm"#;
    ok(tool("bash", "bash").current_dir(dir.path()).args(["-ec", script]).arg(&root));
    for format in ["deb", "rpm"] {
        let there = root.join(format).join("opt/rocm").join(name(246).strip_prefix("p/").unwrap());
        assert_eq!(fs::read(there).unwrap(), b"content");
    }
}
