//! Runs that do not come to their end: killed, asked to end, out of disk or memory, with an input that cannot be read. What was
//! there before stays whole, nothing half done gets a final name, and a rerun makes what an undisturbed run makes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/embed.rs"]
mod embed;
#[path = "common/mid.rs"]
mod mid;
#[path = "common/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    assert_same, copy_tree, example_config, example_packages, example_shards, fails, gfxpack, ok,
    run, snapshot, tool,
};
use random::Random;
use tempfile::TempDir;

type Snapshot = BTreeMap<String, String>;

/// Puts the arguments of a build in both formats.
fn build_args(command: &mut Command, shards: &Path, out: &Path, version: &str) {
    command.arg("build").arg("--input-shards-dir").arg(shards);
    command.arg("--config").arg(example_config()).arg("--packages").arg(example_packages());
    command.arg("--output-dir").arg(out).args(["--version", version, "--release", "1", "--quiet"]);
}

fn build(shards: &Path, out: &Path, version: &str) -> Command {
    let mut command = gfxpack();
    build_args(&mut command, shards, out, version);
    command
}

/// The same under strace, which does something to system calls: see strace(1), `inject`.
fn traced(injections: &[&str], shards: &Path, out: &Path) -> Command {
    let mut command = tool("strace", "strace");
    command.args(["-f", "-qq", "-o", "/dev/null"]).args(injections);
    command.arg(env!("CARGO_BIN_EXE_gfxpack"));
    build_args(&mut command, shards, out, "1");
    command
}

fn names(dir: &Path) -> Vec<String> {
    let listing = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Shards that take a run long enough to be disturbed, made once.
fn small() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        // Not a temporary one: what is static is never dropped.
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("killed");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        mid::shards(&dir, 30, 4)
    })
}

/// A set of shards, and what undisturbed runs make of it.
struct Set {
    shards: PathBuf,
    /// By version.
    expected: [Snapshot; 2],
    /// How long a run takes.
    takes: Duration,
    dir: TempDir,
}

const VERSIONS: [&str; 2] = ["1", "2"];

impl Set {
    fn new(shards: impl FnOnce(&Path) -> PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let shards = shards(dir.path());
        let begun = Instant::now();
        let expected = VERSIONS.map(|version| {
            let out = tempfile::tempdir().unwrap();
            ok(&mut build(&shards, &out.path().join("out"), version));
            snapshot(&out.path().join("out"))
        });
        let takes = begun.elapsed() / 2;
        fs::create_dir(dir.path().join("work")).unwrap();
        Self { shards, expected, takes, dir }
    }

    fn examples() -> Self {
        Self::new(|_| example_shards())
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn out(&self) -> PathBuf {
        self.work().join("out")
    }

    /// What is at the output: nothing, or one of the versions, whole.
    #[track_caller]
    fn holds(&self, what: &str) -> Option<usize> {
        if !self.out().exists() {
            return None;
        }
        let found = snapshot(&self.out());
        let version = self.expected.iter().position(|expected| *expected == found);
        assert!(version.is_some(), "{what}: half an output: {:#?}", found.keys());
        version
    }

    /// A rerun makes version `to`, and leaves nothing else.
    #[track_caller]
    fn rerun(&self, what: &str, to: usize) {
        ok(build(&self.shards, &self.out(), VERSIONS[to]).arg("--force"));
        assert_same(what, &self.expected[to], &snapshot(&self.out()));
        assert_eq!(names(&self.work()), ["out"], "{what}");
    }

    /// Kills so many runs at random moments, over an earlier output or over none, and runs again each time. Runs that are over
    /// before do not count.
    fn kill(&self, times: usize) {
        let mut random = Random(20);
        let (mut killed, mut over, mut takes) = (0, 0, self.takes);
        let mut there: Option<usize> = None;
        while killed < times {
            let to = (killed + over) % 2;
            if (killed + over) % 3 == 0 && there.is_some() {
                fs::remove_dir_all(self.out()).unwrap();
                there = None;
            }
            let most = usize::try_from(takes.as_micros()).unwrap() * 11 / 10;
            let after = Duration::from_micros(random.below(most) as u64);
            let begun = Instant::now();
            let mut child =
                build(&self.shards, &self.out(), VERSIONS[to]).arg("--force").spawn().unwrap();
            thread::sleep(after);
            let _ = child.kill();
            let what = format!("run {}, killed after {after:?}", killed + over);
            let whole = child.wait().unwrap().success();
            let holds = self.holds(&what);
            assert!(holds == there || holds == Some(to), "{what}: {holds:?}, before: {there:?}");
            assert!(!whole || holds == Some(to), "{what}");
            self.rerun(&what, to);
            there = Some(to);
            if whole {
                over += 1;
                // Other work slows some runs down: the moments are those of a fast one.
                takes = takes.min(begun.elapsed());
                assert!(over <= times, "most runs were over before they were killed");
                continue;
            }
            killed += 1;
            // Where it is stopped from outside, this says how far it came.
            if killed % 20 == 0 {
                eprintln!("{killed} of {times} killed, {over} were over before");
            }
        }
        eprintln!("{killed} runs killed, {over} were over before; a run takes {takes:?}");
    }
}

#[test]
fn runs_killed_at_any_moment_leave_nothing_half_done() {
    Set::new(|_| small().to_owned()).kill(12);
}

/// Takes some minutes: cargo test --release --test killed -- --ignored --nocapture two_hundred
#[test]
#[ignore = "takes some minutes"]
fn two_hundred_runs_killed_at_any_moment() {
    Set::new(|dir| mid::shards(dir, 150, 48)).kill(200);
}

/// Before the output gets its name, when it gets it in place of another, and while that other is removed.
#[test]
fn a_run_killed_while_the_output_gets_its_name_leaves_the_old_one_or_the_new_one() {
    let set = Set::examples();
    for (injection, force, after) in [
        ("inject=rename:signal=KILL:when=1", false, None),
        ("inject=rename:signal=KILL:when=1", true, Some(1)),
        ("inject=renameat2:signal=KILL:when=1", true, Some(1)),
        ("inject=unlinkat:signal=KILL:when=1", true, Some(0)),
        ("inject=unlinkat:signal=KILL:when=9", true, Some(0)),
    ] {
        let _ = fs::remove_dir_all(set.out());
        let mut command = traced(&["-e", injection], &set.shards, &set.out());
        if force {
            ok(&mut build(&set.shards, &set.out(), VERSIONS[1]));
            command.arg("--force");
        }
        let status = command.status().unwrap();
        assert!(!status.success(), "{injection} was over before it was killed");
        assert_eq!(set.holds(injection), after, "{injection}");
        assert_eq!(names(&set.work()).len(), 1 + usize::from(after.is_some()), "{injection}");
        set.rerun(injection, 0);
    }
}

/// A run that is asked to end does so within a second, on a machine that has the time for it. Others run beside these tests.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Sends a signal by its name.
fn send(child: &Child, signal: &str) {
    ok(tool("kill", "procps").arg(format!("-{signal}")).arg(child.id().to_string()));
}

#[test]
fn a_run_that_is_asked_to_end_does_so_at_once_and_leaves_nothing() {
    let set = Set::new(|_| small().to_owned());
    let signals = [("TERM", 15), ("INT", 2), ("HUP", 1), ("TERM", 15)];
    for (i, (signal, number)) in (1..).zip(signals) {
        // The output of before stays.
        let before = (i % 2 == 0).then_some(1);
        if before.is_some() {
            ok(build(&set.shards, &set.out(), VERSIONS[1]).arg("--force"));
        }
        let mut child = build(&set.shards, &set.out(), VERSIONS[0])
            .arg("--force")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        thread::sleep(set.takes * i / 6);
        let asked = Instant::now();
        send(&child, signal);
        let status = child.wait().unwrap();
        let took = asked.elapsed();
        let stderr = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        let what = format!("{signal} at {i}/6");
        assert!(took < AT_ONCE, "{what}: took {took:?}");
        assert_eq!(status.signal(), Some(number), "{what}: {status}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{what}: {stderr}");
        assert!(stderr.contains(&format!("error: ended by SIG{signal}")), "{what}: {stderr}");
        assert_eq!(set.holds(&what), before, "{what}");
        assert_eq!(names(&set.work()).len(), usize::from(before.is_some()), "{what}");
        let _ = fs::remove_dir_all(set.out());
    }
    // A shell makes 143 of it.
    let script = r#""$@" & sleep 0.1; kill $!; wait $!; echo $? >&2"#;
    let mut shell = tool("bash", "bash");
    shell.args(["-c", script, "-", env!("CARGO_BIN_EXE_gfxpack")]);
    build_args(&mut shell, &set.shards, &set.out(), "1");
    assert!(run(&mut shell).stderr.ends_with("\n143\n"));
}

/// Who read what it says may be gone, as with a pipe into `head`.
#[test]
fn a_run_that_cannot_say_so_ends_as_well() {
    let set = Set::examples();
    let mut command = build(&set.shards, &set.out(), VERSIONS[0]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    thread::sleep(set.takes / 3);
    let asked = Instant::now();
    send(&child, "TERM");
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if asked.elapsed() > AT_ONCE => {
                child.kill().unwrap();
                panic!("it runs on: {}", child.wait().unwrap());
            }
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    assert_eq!(status.signal(), Some(15), "{status}");
    assert_eq!(names(&set.work()), [""; 0]);
}

#[test]
fn a_signal_that_the_run_was_started_to_ignore_does_not_end_it() {
    let set = Set::new(|_| small().to_owned());
    let mut shell = tool("sh", "dash");
    shell.args(["-c", r#"trap "" HUP; exec "$@""#, "-", env!("CARGO_BIN_EXE_gfxpack")]);
    build_args(&mut shell, &set.shards, &set.out(), "1");
    let mut child = shell.spawn().unwrap();
    thread::sleep(set.takes / 3);
    send(&child, "HUP");
    assert!(child.wait().unwrap().success());
    assert_eq!(set.holds("ignored"), Some(0));
}

/// Runs a build with its output on a file system of that size, which is gone with the process that mounted it. What is there
/// afterwards is printed.
fn on_small_disk(size: &str, shards: &Path, jobs: &str) -> common::Ran {
    let disk = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size="$1" none "$2" || exit 77; shift 2
        mkdir "$DISK/out" && echo 1 > "$DISK/out/before"
        "$@"; status=$?; ls -A "$DISK" "$DISK/out"; exit $status"#;
    let mut command = tool("unshare", "util-linux");
    command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh", size]).arg(disk.path());
    command.arg(env!("CARGO_BIN_EXE_gfxpack"));
    build_args(&mut command, shards, &disk.path().join("out"), "1");
    command.args(["--force", "--jobs", jobs]).env("DISK", disk.path());
    let mut ran = run(&mut command);
    ran.stdout = ran.stdout.replace(disk.path().to_str().unwrap(), "DISK");
    ran
}

#[test]
fn a_full_disk_is_one_error_that_says_how_much_was_needed() {
    for (size, jobs) in [("64k", "1"), ("200k", "2"), ("700k", "1"), ("2m", "2"), ("3m", "8")] {
        let ran = on_small_disk(size, small(), jobs);
        let stderr = &ran.stderr;
        assert_eq!(ran.status, Some(1), "{size}: {stderr}");
        assert_eq!(stderr.matches("error: ").count(), 1, "{size}: {stderr}");
        for words in [
            "the disk is full: from the plan, the packages take an estimated ",
            " beside them; ",
            " were free",
            "caused by: ",
            "No space left on device",
            "hint: free some space, or put the output on another disk",
        ] {
            assert!(stderr.contains(words), "{size}: no `{words}` in {stderr}");
        }
        assert_eq!(ran.stdout, "DISK:\nout\n\nDISK/out:\nbefore\n", "{size}");
    }
    let ran = on_small_disk("100m", small(), "2");
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "where there is room");
}

/// A library of the examples that is in a generic package, converted, and whose kernels are in others.
const LIBRARY: &str =
    "gfx110X-build/fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage/lib/librocfft.so.0.1";

#[test]
fn an_input_that_the_disk_does_not_give_is_an_error_that_names_it() {
    let set = Set::new(|dir| {
        copy_tree(&example_shards(), &dir.join("shards"));
        dir.join("shards")
    });
    let library = set.shards.join(LIBRARY);
    let path = library.to_str().unwrap();
    // Of each thread the first read, which is the plan's, or later ones.
    for when in ["1", "9+", "25+"] {
        let call = format!("pread64:error=EIO:when={when}");
        let injection = format!("inject={call}");
        let mut command = traced(&["-P", path, "-e", &injection], &set.shards, &set.out());
        let ran = run(command.arg("--force"));
        let stderr = &ran.stderr;
        assert_eq!(ran.status, Some(1), "{call}: {stderr}");
        for words in [path, "Input/output error"] {
            assert!(stderr.contains(words), "{call}: no `{words}` in {stderr}");
        }
        assert_eq!(
            stderr.matches("error: ").count(),
            stderr.matches("Input/output error").count(),
            "{call}: {stderr}"
        );
        assert_eq!(names(&set.work()), [""; 0], "{call}");
    }
    set.rerun("afterwards", 0);
}

/// Runs a build that waits before it writes, does `meanwhile`, and gives what came of it.
#[track_caller]
fn while_it_waits(shards: &Path, out: &Path, meanwhile: impl FnOnce()) -> common::Ran {
    let mut command = traced(&["-e", "inject=mkdir:delay_enter=700000"], shards, out);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let part = out.with_file_name(".out.gfxpack-part");
    let begun = Instant::now();
    while !part.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not begin to write");
        thread::sleep(Duration::from_millis(1));
    }
    meanwhile();
    let output = child.wait_with_output().unwrap();
    common::Ran {
        status: output.status.code(),
        stdout: String::new(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn an_input_that_changes_between_plan_and_writing_is_an_error() {
    let set = Set::new(|dir| {
        copy_tree(&example_shards(), &dir.join("shards"));
        dir.join("shards")
    });
    let library = set.shards.join(LIBRARY);
    let whole = fs::read(&library).unwrap();
    let ran = while_it_waits(&set.shards, &set.out(), || {
        fs::write(&library, &whole[..whole.len() / 2]).unwrap();
    });
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    for words in [LIBRARY, "the file was changed while it was being read"] {
        assert!(ran.stderr.contains(words), "no `{words}` in {}", ran.stderr);
    }
    assert_eq!(names(&set.work()), [""; 0]);
}

#[test]
fn of_two_runs_on_one_output_the_second_is_refused() {
    let set = Set::examples();
    let ran = while_it_waits(&set.shards, &set.out(), || {
        let stderr = fails(build(&set.shards, &set.out(), VERSIONS[1]).arg("--force"), 1);
        for words in [
            "another run is writing the same output",
            "hint: wait for it to end, or name another output",
        ] {
            assert!(stderr.contains(words), "no `{words}` in {stderr}");
        }
    });
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_eq!(set.holds("the first"), Some(0));
    assert_eq!(names(&set.work()), ["out"]);
}

#[test]
fn with_too_little_memory_a_run_fails_and_another_has_what_it_needs() {
    let set = Set::new(|_| small().to_owned());
    let mut failed = 0;
    for mebibytes in [48, 96, 160, 256] {
        let mut command = tool("prlimit", "util-linux");
        command.arg(format!("--as={}", mebibytes << 20)).arg("--core=0");
        command.arg(env!("CARGO_BIN_EXE_gfxpack"));
        build_args(&mut command, &set.shards, &set.out(), VERSIONS[0]);
        let output = command.args(["--force", "--jobs", "2"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let what = format!("{mebibytes} MiB: {stderr}");
        if output.status.success() {
            assert_eq!(set.holds(&what), Some(0), "{what}");
        } else {
            failed += 1;
            assert!(
                stderr.to_lowercase().contains("memory") || stderr.contains("thread"),
                "{what}"
            );
            assert_eq!(set.holds(&what), None, "{what}");
        }
        set.rerun(&what, 0);
        fs::remove_dir_all(set.out()).unwrap();
    }
    assert!(failed > 1, "no bound was too little");
}
