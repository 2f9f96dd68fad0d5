//! Output directories: nothing of the user's is lost, whatever is named as output.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    copy_tree, example_config, example_packages, example_shards, fails, gfxpack, ok, run, snapshot,
};
use gfxpack::pipeline::graph::write_whole;
use gfxpack::tree::output::OutputDir;

fn build(shards: &Path, out: &Path) -> Command {
    let mut command = gfxpack();
    command.arg("build").arg("--input-shards-dir").arg(shards);
    command.arg("--config").arg(example_config()).arg("--packages").arg(example_packages());
    command.arg("--output-dir").arg(out).args(["--version", "1", "--release", "1"]);
    command
}

#[test]
fn an_output_that_is_the_input_holds_it_or_lies_in_it_is_refused_even_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("work/shards");
    fs::create_dir(dir.path().join("work")).unwrap();
    copy_tree(&example_shards(), &shards);
    let before = snapshot(dir.path());
    for out in
        ["work/shards", "work", "work/shards/out", "work/shards/gfx1151-build", "work/./shards/."]
    {
        let stderr = fails(build(&shards, &dir.path().join(out)).arg("--force"), 2);
        assert!(stderr.contains("lie in one another"), "{out}: {stderr}");
    }
    std::os::unix::fs::symlink(&shards, dir.path().join("link")).unwrap();
    fails(build(&shards, &dir.path().join("link")).arg("--force"), 2);
    fs::remove_file(dir.path().join("link")).unwrap();
    // The output of one artifact has its name: beside the input is fine, in its place is not.
    let artifact = shards.join("gfx1151-build/sysdeps_lib_generic");
    let stderr = fails(
        gfxpack()
            .args(["split", "--force", "--artifact-prefix", "sysdeps_lib", "--artifact-dir"])
            .arg(&artifact)
            .arg("--output-dir")
            .arg(shards.join("gfx1151-build")),
        2,
    );
    assert!(stderr.contains("lie in one another"), "{stderr}");
    assert_eq!(snapshot(dir.path()), before);
}

#[test]
fn an_output_that_is_no_directory_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
    for (out, words) in [("file", "not a directory"), ("dangling", "leads nowhere")] {
        let stderr = fails(&mut build(&example_shards(), &dir.path().join(out)), 2);
        assert!(stderr.contains(words), "{out}: {stderr}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn an_output_directory_that_may_not_be_written_to_can_be_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let shard = dir.path().join("shard");
    copy_tree(&example_shards().join("gfx1151-build"), &shard);
    ok(Command::new("chmod").args(["-R", "a-w"]).arg(&shard));
    let program = dir.path().join("gfxpack");
    fs::copy(env!("CARGO_BIN_EXE_gfxpack"), &program).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for _ in 0..2 {
        // Root writes everywhere: the program runs as somebody else.
        ok(common::tool("setpriv", "util-linux")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(["split", "--force", "--batch-artifact-parent-dir"])
            .arg(&shard)
            .arg("--output-dir")
            .arg(dir.path().join("out")));
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["gfxpack", "out", "shard"]);
    }
    let stage = "out/fft_lib_generic/math-libs/rocFFT/stage";
    let mode = fs::metadata(dir.path().join(stage)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o555);
}

#[test]
fn an_output_that_is_a_mount_point_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // Mounted in a name space of its own, which is gone with the process.
    for how in ["mount -t tmpfs none", "mount --bind ."] {
        let script = format!(r#"{how} "$1" || exit 77; shift; exec "$@""#);
        let build = build(&example_shards(), &disk);
        let ran = run(common::tool("unshare", "util-linux")
            .current_dir(example_shards())
            .args(["--mount", "--map-root-user", "sh", "-c", &script, "sh"])
            .arg(&disk)
            .arg(build.get_program())
            .args(build.get_args())
            .arg("--force"));
        assert_eq!(ran.status, Some(2), "{}", ran.stderr);
        for words in ["disk: the output is a mount point", "hint: ", "name a directory in it"] {
            assert!(ran.stderr.contains(words), "{}", ran.stderr);
        }
    }
}

#[test]
fn a_full_disk_is_one_error() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // A small file system of its own, which is gone with the process that mounted it.
    let script = r#"mount -t tmpfs -o size=256k none "$1" || exit 77; shift; "$@"; status=$?
        [ -z "$(ls -A "$DISK")" ] || { ls -A "$DISK" >&2; exit 99; }; exit $status"#;
    let ran = run(common::tool("unshare", "util-linux")
        .args(["--mount", "--map-root-user", "sh", "-c", script, "sh"])
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_gfxpack"))
        .args(["split", "--jobs", "1", "--batch-artifact-parent-dir"])
        .arg(example_shards().join("gfx110X-build"))
        .arg("--output-dir")
        .arg(disk.join("out"))
        .env("DISK", &disk));
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("error: ").count(), 1, "{}", ran.stderr);
    for words in ["No space left on device", "hint: free some space"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}

#[test]
fn a_killed_run_leaves_nothing_that_the_next_does_not_clear() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    ok(&mut build(&example_shards(), &dir.path().join("undisturbed")));
    for milliseconds in [5, 15, 30, 50, 80] {
        let mut child = build(&example_shards(), &out).arg("--force").spawn().unwrap();
        thread::sleep(Duration::from_millis(milliseconds));
        let _ = child.kill();
        child.wait().unwrap();
    }
    ok(build(&example_shards(), &out).arg("--force"));
    assert_eq!(snapshot(&out), snapshot(&dir.path().join("undisturbed")));
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["out", "undisturbed"]);
}

#[test]
fn an_output_whose_name_is_not_utf8() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join(std::ffi::OsStr::from_bytes(b"o\xff"));
    ok(build(&example_shards(), &out).arg("--json"));
    assert!(out.is_dir());
}

#[test]
fn what_cannot_be_printed_is_an_error_unless_the_reader_went_away() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let stderr = fails(gfxpack().arg("schema").stdout(full), 1);
    assert!(stderr.contains("standard output"), "{stderr}");
    let ran = run(Command::new("sh")
        .arg("-c")
        .arg(r#"("$0" schema; echo $? >&2) | true"#)
        .arg(env!("CARGO_BIN_EXE_gfxpack")));
    assert_eq!(ran.stderr, "0\n");
}

/// How many threads of this process wait for a lock on a file, as Linux tells it.
fn waiting() -> usize {
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let own = format!(" {} ", std::process::id());
    locks.lines().filter(|lock| lock.contains("-> FLOCK") && lock.contains(&own)).count()
}

#[track_caller]
fn until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(1));
    }
}

/// The first run ends, and a third begins before the second, which waited, goes on.
#[test]
fn a_run_that_waited_leaves_the_part_of_another_alone() {
    let temp = tempfile::tempdir().unwrap();
    let (out, part) = (temp.path().join("out"), temp.path().join(".out.name.gfxpack-part"));
    let begin = || {
        fs::create_dir(&part).unwrap();
        let lock = File::open(&part).unwrap();
        lock.lock().unwrap();
        lock
    };
    let first = begin();
    let second = thread::spawn(move || OutputDir::create_among(&out, "name"));
    until(|| waiting() == 1);
    fs::remove_dir(&part).unwrap();
    let third = begin();
    fs::write(part.join("live"), "x").unwrap();
    drop(first);
    // It goes on, and waits for the third.
    until(|| waiting() == 1 || second.is_finished());
    assert!(part.join("live").exists(), "what the third makes is gone");
    drop(third);
    let second = second.join().unwrap().unwrap();
    assert_eq!(fs::read_dir(second.part()).unwrap().count(), 0);
}

/// A run that is ended by a signal removes its part while a thread of it still holds it, and the next run may have begun.
#[test]
fn a_run_whose_part_is_gone_leaves_that_of_the_next_alone() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("out");
    let of_all = || OutputDir::create(&out, false, &[]).unwrap();
    let of_one = || OutputDir::create_among(&out, "name").unwrap();
    for begin in [&of_all as &dyn Fn() -> OutputDir, &of_one] {
        let run = begin();
        let part = run.part().to_owned();
        fs::remove_dir(&part).unwrap();
        let next = begin();
        fs::write(next.part().join("live"), "x").unwrap();
        assert_eq!(next.part(), part);
        drop(run);
        assert!(part.join("live").exists(), "what the next one makes is gone");
        next.finish().unwrap();
        assert_eq!(fs::read_to_string(out.join("live")).unwrap(), "x");
        assert!(!part.exists());
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn a_link_in_place_of_the_part_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let elsewhere = temp.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("precious"), "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, temp.path().join(".out.gfxpack-part")).unwrap();
    let refused = OutputDir::create(&temp.path().join("out"), false, &[]).unwrap_err();
    let told: String = refused.iter().map(ToString::to_string).collect();
    assert!(told.contains(".out.gfxpack-part"), "{told}");
    assert!(elsewhere.join("precious").exists());
}

/// What is made beside the output is ours to know: an error names what the user gave.
#[test]
fn an_output_that_cannot_be_made_is_told_by_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("gfxpack");
    fs::copy(env!("CARGO_BIN_EXE_gfxpack"), &program).unwrap();
    copy_tree(&example_shards().join("gfx1151-build"), &dir.path().join("shard"));
    fs::create_dir(dir.path().join("shut")).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (output, name, folder) in
        [("shut/out", "shut/out", "shut"), ("new", "./new", "the current directory")]
    {
        // Root writes everywhere: the program runs as somebody else.
        let text = fails(
            common::tool("setpriv", "util-linux")
                .current_dir(dir.path())
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "./gfxpack", "split"])
                .args(["--batch-artifact-parent-dir", "shard", "--output-dir", output]),
            1,
        );
        let said = format!(
            "error: {name}: cannot make the output\n  caused by: Permission denied (os error 13)\n  \
             hint: {folder} has to be writable"
        );
        assert!(text.starts_with(&said) && !text.contains("gfxpack-part"), "{text}");
    }
    let long = "o".repeat(250);
    let text = fails(&mut build(&example_shards(), &dir.path().join(&long)), 1);
    assert!(text.contains(&format!("/{long}: cannot make the output\n")), "{text}");
    assert!(text.contains("hint: shorten the name"), "{text}");
}

/// Nodes of a graph, and jobs that plan, write small files beside each other: none writes to what another one renames.
#[test]
fn files_that_two_write_at_a_time_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("below/sizes.json");
    let contents = [vec![b'a'; 100_000], vec![b'b'; 50_000], b"c".to_vec()];
    thread::scope(|scope| {
        for content in &contents {
            scope.spawn(|| {
                for _ in 0..300 {
                    write_whole(&path, content).unwrap();
                    assert!(contents.contains(&fs::read(&path).unwrap()));
                }
            });
        }
    });
    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    // Its permissions are those of any new file.
    let plain = dir.path().join("plain");
    fs::write(&plain, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&plain));
    // What cannot take its place does not stay beside it.
    fs::create_dir(dir.path().join("folder")).unwrap();
    write_whole(&dir.path().join("folder"), b"text").unwrap_err();
    let names = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
    let names: std::collections::BTreeSet<_> = names.collect();
    assert_eq!(names, ["below", "folder", "plain"].map(Into::into).into());
}
