//! What the tests share: running the program and outside tools, and the fixtures.

// Each test crate uses some of this; the lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The repository's root.
pub fn repo() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The small prebuilt shards.
pub fn example_shards() -> PathBuf {
    repo().join("examples/shards")
}

/// The groups of the examples.
pub fn example_config() -> PathBuf {
    repo().join("examples/packaging-config.json")
}

/// The definitions of the examples.
pub fn example_packages() -> PathBuf {
    repo().join("examples/packages.json")
}

/// The program under test, without anything of the caller's environment that it reads.
pub fn gfxpack() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gfxpack"));
    for name in ["SOURCE_DATE_EPOCH", "NO_COLOR", "GFXPACK_SIGN_KEY", "GFXPACK_SIGN_KEY_PASSPHRASE"]
    {
        command.env_remove(name);
    }
    command
}

/// An outside tool. Its absence fails the test and says what to install.
pub fn tool(name: &str, debian_package: &str) -> Command {
    let mut dirs: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    dirs.extend(["/usr/sbin".into(), "/sbin".into()]);
    let found = dirs.iter().map(|dir| dir.join(name)).find(|path| path.exists());
    let found =
        found.unwrap_or_else(|| panic!("`{name}` is missing: apt-get install {debian_package}"));
    let mut command = Command::new(found);
    command.env("PATH", std::env::join_paths(dirs).unwrap()).env("LC_ALL", "C.UTF-8");
    command
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    Ran {
        status: status.code(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Runs a command that must succeed; returns its standard output.
#[track_caller]
pub fn ok(command: &mut Command) -> String {
    let ran = run(command);
    assert_eq!(ran.status, Some(0), "{command:?} failed:\n{}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// Runs a command that must succeed; returns the most memory that it had resident, in KiB.
#[track_caller]
pub fn peak_memory(command: &mut Command) -> u64 {
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let mut peak = 0;
    let ended = loop {
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let high = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = high.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    assert!(ended.success(), "{command:?}: {ended}");
    assert!(peak > 0, "{command:?} was over before it was looked at");
    peak
}

/// Runs a command that must end with that status; returns its standard error.
#[track_caller]
pub fn fails(command: &mut Command, status: i32) -> String {
    let ran = run(command);
    assert_eq!(ran.status, Some(status), "{command:?}:\n{}{}", ran.stdout, ran.stderr);
    ran.stderr
}

/// The fixtures, compiled afresh once for each run of a test crate's sources: `runtime/` with the
/// stand-in for the HIP runtime and `load`, `shards/`, and `fourth/` with one shard of another kind.
pub fn fixtures() -> &'static Path {
    static FIXTURES: OnceLock<PathBuf> = OnceLock::new();
    FIXTURES.get_or_init(|| {
        let sources = repo().join("tests/fixtures");
        let stamp = newest(&sources);
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fixtures-{stamp}"));
        // Test crates run side by side: the first one compiles, the others wait.
        let lock = File::create(out.with_extension("lock")).unwrap();
        lock.lock().unwrap();
        if !out.join("shards").exists() {
            let part = out.with_extension("part");
            let _ = fs::remove_dir_all(&part);
            tool("clang++-19", "clang-19 clang-tools-19 lld-19");
            tool("ld.lld-19", "lld-19");
            ok(Command::new("bash").arg(sources.join("build-shards.sh")).arg(&part));
            fs::rename(&part, &out).unwrap();
        }
        out
    })
}

/// A Debian of another release, as a directory to chroot into: `GFXPACK_CHROOT`, or one that is made in
/// the target directory and kept. Needs root and, the first time, the network.
pub fn chroot(suite: &str) -> PathBuf {
    if let Some(dir) = std::env::var_os("GFXPACK_CHROOT") {
        return dir.into();
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chroot-{suite}"));
    let lock = File::create(dir.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !dir.exists() {
        tool("mmdebstrap", "mmdebstrap");
        ok(Command::new("bash").arg(repo().join("tests/chroot/make.sh")).arg(suite).arg(&dir));
    }
    dir
}

/// The newest modification time in a directory, in seconds.
fn newest(dir: &Path) -> i64 {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let times = entries.map(|entry| match entry.metadata().unwrap() {
        meta if meta.is_dir() => newest(&entry.path()),
        meta => meta.mtime(),
    });
    times.max().unwrap_or(0)
}

/// Everything in a directory: path to what is there (mode, link target, or a digest of the content),
/// so that two directories can be compared and a difference be read.
pub fn snapshot(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let meta = path.symlink_metadata().unwrap();
            let mode = meta.permissions().mode() & 0o7777;
            let what = if meta.is_dir() {
                pending.push(path.clone());
                format!("dir {mode:04o}")
            } else if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if !meta.is_file() {
                // Reading a pipe would wait for a writer.
                format!("special {mode:04o}")
            } else {
                let digest = blake3::hash(&fs::read(&path).unwrap());
                format!("file {mode:04o} {} {digest}", meta.len())
            };
            found.insert(path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), what);
        }
    }
    found
}

/// The files and links in a directory, sorted.
pub fn files(root: &Path) -> Vec<String> {
    let all = snapshot(root).into_iter();
    all.filter(|(_, what)| !what.starts_with("dir")).map(|(path, _)| path).collect()
}

/// Copies a directory with all that is in it, as `cp -a` does.
pub fn copy_tree(from: &Path, to: &Path) {
    ok(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// Splits the three shards and recombines them, below `out`: `split/` and `recombined/`.
pub fn split_and_recombine(shards: &Path, out: &Path, split_args: &[&str]) {
    let mut names: Vec<_> = fs::read_dir(shards).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        ok(gfxpack()
            .arg("split")
            .arg("--batch-artifact-parent-dir")
            .arg(shards.join(&name))
            .arg("--output-dir")
            .arg(out.join("split").join(&name))
            .args(split_args));
    }
    ok(gfxpack()
        .arg("recombine")
        .arg("--input-shards-dir")
        .arg(out.join("split"))
        .arg("--config")
        .arg(example_config())
        .arg("--output-dir")
        .arg(out.join("recombined")));
}

/// Lays the prefixes of artifacts over one root, as an install does.
pub fn install(artifacts: &[PathBuf], root: &Path) {
    fs::create_dir_all(root).unwrap();
    for artifact in artifacts {
        let manifest = fs::read_to_string(artifact.join("artifact_manifest.txt")).unwrap();
        for prefix in manifest.lines().filter(|line| !line.trim().is_empty()) {
            let from = artifact.join(prefix);
            if from.exists() {
                ok(Command::new("cp").arg("-a").arg(from.join(".")).arg(root));
            }
        }
    }
}

/// The checker of installed trees, which shares nothing with the crate; originals and options are to be
/// added.
pub fn kernel_checker(root: &Path) -> Command {
    // Not the first python3 in the path, which may be one without Debian's modules.
    let mut command = tool("/usr/bin/python3", "python3 python3-msgpack python3-zstandard");
    command.arg(repo().join("tests/check/kernels.py")).arg("--root").arg(root);
    command
}

/// Artifacts have no installed path in common, but those of manifests of archives. Returns the number of
/// paths.
#[track_caller]
pub fn assert_no_path_twice(artifacts: &[PathBuf]) -> usize {
    let mut owner = BTreeMap::new();
    for artifact in artifacts {
        let manifest = fs::read_to_string(artifact.join("artifact_manifest.txt")).unwrap();
        for prefix in manifest.lines() {
            let base = artifact.join(prefix);
            for file in if base.exists() { files(&base) } else { Vec::new() } {
                if let Some(other) = owner.insert(file.clone(), artifact) {
                    assert!(file.ends_with(".kpm"), "{file}: in {other:?} and {artifact:?}");
                }
            }
        }
    }
    owner.len()
}

/// Two snapshots must be the same; names what is not.
#[track_caller]
pub fn assert_same(what: &str, one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) {
    let paths = one.keys().chain(other.keys());
    let differing: BTreeMap<_, _> = paths
        .filter(|path| one.get(*path) != other.get(*path))
        .map(|path| (path, [one.get(path), other.get(path)]))
        .collect();
    assert!(differing.is_empty(), "{what}: {differing:#?}");
}
