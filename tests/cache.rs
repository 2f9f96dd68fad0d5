//! The cache: what it gives is what would be made, and whatever is wrong with it costs time and nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/archives.rs"]
mod archives;
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use archives::{Order, pack};
use common::{
    assert_same, copy_tree, example_config, example_packages, example_shards, fails, files,
    gfxpack, ok, repo, run, snapshot, tool,
};
use serde_json::Value;
use tempfile::TempDir;

/// Shards, a cache, and outputs.
struct Bench {
    dir: TempDir,
    shards: PathBuf,
}

impl Bench {
    /// Of files that lie there for long.
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), shards: example_shards() }
    }

    /// Of a copy that is as old as the clock's doubts about it last.
    fn of_copy() -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy_tree(&example_shards(), &dir.path().join("shards"));
        settle();
        Self { shards: dir.path().join("shards"), dir }
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn build(&self, version: &str) -> Command {
        let mut command = gfxpack();
        command.arg("build").arg("--input-shards-dir").arg(&self.shards);
        command.arg("--config").arg(example_config()).arg("--packages").arg(example_packages());
        command.arg("--output-dir").arg(self.out());
        command.args(["--version", version, "--release", "1", "--force", "--json"]);
        command
    }

    /// What a run without a cache makes.
    fn without(&self, version: &str) -> BTreeMap<String, String> {
        ok(&mut self.build(version));
        let made = snapshot(&self.out());
        fs::remove_dir_all(self.out()).unwrap();
        made
    }

    fn cached(&self, version: &str) -> Command {
        let mut command = self.build(version);
        command.arg("--cache").arg(self.cache());
        command
    }

    /// What a run with the cache makes, and what it says of the cache.
    #[track_caller]
    fn with(&self, version: &str, args: &[&str]) -> (BTreeMap<String, String>, Said) {
        let ran = run(self.cached(version).args(args));
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        let made = snapshot(&self.out());
        fs::remove_dir_all(self.out()).unwrap();
        (made, Said::new(&ran.stdout, &ran.stderr))
    }

    fn entries(&self, kind: &str) -> Vec<PathBuf> {
        let root = self.cache().join("v1").join(kind);
        files(&root).iter().map(|file| root.join(file)).collect()
    }
}

/// Waits until files that were just written may be taken for unchanged.
fn settle() {
    thread::sleep(Duration::from_millis(4100));
}

/// What a run said of the cache.
#[derive(Debug)]
struct Said {
    /// Taken and made.
    packages: [u64; 2],
    kpacks: [u64; 2],
    json: Value,
    stderr: String,
}

impl Said {
    fn new(stdout: &str, stderr: &str) -> Self {
        let document: Value = serde_json::from_str(stdout).unwrap();
        let json = document["cache"].clone();
        let of = |kind: &str| {
            ["taken", "made"]
                .map(|what| json[kind][what].as_u64().unwrap_or_else(|| panic!("{json}")))
        };
        // What the examples' shards are warned of is of no interest.
        let lines: Vec<_> = stderr.lines().filter(|line| line.contains("cache")).collect();
        let stderr = lines.join("\n");
        Self { packages: of("packages"), kpacks: of("kpacks"), stderr, json: json.clone() }
    }
}

const PACKAGES: u64 = 44;
const KPACKS: u64 = 24;

#[test]
fn the_output_is_the_same_with_and_without() {
    let bench = Bench::new();
    let [one, two] = ["1", "2"].map(|version| bench.without(version));
    for args in [&["--jobs", "1"][..], &["--jobs", "3"]] {
        let _ = fs::remove_dir_all(bench.cache());
        let (made, said) = bench.with("1", args);
        assert_same("cold", &one, &made);
        assert_eq!((said.packages, said.kpacks), ([0, PACKAGES], [0, KPACKS]), "{said:?}");
        let (made, said) = bench.with("1", args);
        assert_same("warm", &one, &made);
        assert_eq!((said.packages, said.kpacks), ([PACKAGES, 0], [0, 0]), "{said:?}");
        assert!(said.stderr.contains("cache: 44 of 44 packages taken ("), "{}", said.stderr);
        let (made, said) = bench.with("2", args);
        assert_same("a new version", &two, &made);
        assert_eq!((said.packages, said.kpacks), ([0, PACKAGES], [KPACKS, 0]), "{said:?}");
        assert!(said.stderr.contains("24 of 24 kpack archives taken ("), "{}", said.stderr);
    }
    // What is not asked for in the same way is made: a package in all formats or in none, one without archives not because of those.
    for (args, packages, kpacks) in [
        (&["--compression-level", "4"][..], [20, 24], [0, KPACKS]),
        (&["--deb-compression", "zstd:1"], [0, PACKAGES], [KPACKS, 0]),
    ] {
        ok(bench.build("1").args(args));
        let expected = snapshot(&bench.out());
        let (made, said) = bench.with("1", args);
        assert_same(&format!("{args:?}"), &expected, &made);
        assert_eq!((said.packages, said.kpacks), (packages, kpacks), "{args:?}: {said:?}");
    }
}

/// Files with other times, as after a download, are read for their digests; and kernels that have changed are packed anew, those of the
/// other components are not.
/// A package is known by its relations, wherever the table that gave them lies.
#[test]
fn packages_are_known_by_the_relations_that_a_table_gives() {
    let bench = Bench::new();
    let table = bench.dir.path().join("own.txt");
    let text = fs::read_to_string(repo().join("src/package/elfdeps/tables/debian12.txt")).unwrap();
    fs::write(&table, text.replace(" libstdc++6 #MINVER#", " other-stdc++ #MINVER#")).unwrap();
    let debian = bench.without("1");
    bench.with("1", &[]);
    let own = ["--target-distro", table.to_str().unwrap()];
    let (made, said) = bench.with("1", &own);
    assert_ne!(made, debian);
    assert!(said.packages[0] > 0 && said.packages[1] > 0, "{said:?}");
    ok(bench.build("1").args(own));
    assert_same("with the cache", &snapshot(&bench.out()), &made);

    fs::write(&table, text).unwrap();
    let (made, said) = bench.with("1", &own);
    assert_eq!(said.packages, [PACKAGES, 0], "{said:?}");
    assert_same("the table of Debian", &made, &debian);
}

#[test]
fn files_are_known_by_their_content() {
    let bench = Bench::of_copy();
    let one = bench.without("1");
    bench.with("1", &[]);
    // Another copy, with all times of today.
    fs::rename(&bench.shards, bench.dir.path().join("before")).unwrap();
    ok(Command::new("cp").arg("-a").arg(bench.dir.path().join("before")).arg(&bench.shards));
    let (made, said) = bench.with("1", &[]);
    assert_same("a copy", &one, &made);
    // Packages without files are not made of any.
    assert_eq!((said.packages, said.kpacks), ([14, 30], [KPACKS, 0]), "{said:?}");
    // Kernels of one library change, in place, without its size or its times.
    let path = bench
        .shards
        .join("gfx110X-build/fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage/lib/librocfft.so.0.1");
    let bytes = fs::read(&path).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let mut changed = bytes.clone();
    // In the second code object of a plain bundle: text of a note or code, which nobody reads here.
    let at = find_code(&bytes);
    changed[at] ^= 1;
    fs::write(&path, &changed).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let expected = bench.without("1");
    assert_ne!(expected, one);
    let (made, said) = bench.with("1", &[]);
    assert_same("changed", &expected, &made);
    assert_eq!(said.kpacks, [KPACKS - 1, 1], "{said:?}");
}

/// A place in the code of the last code object of a library.
fn find_code(bytes: &[u8]) -> usize {
    let magic = b"__CLANG_OFFLOAD_BUNDLE__";
    let bundle = bytes.windows(magic.len()).rposition(|window| window == magic).unwrap();
    let elf = bytes[bundle..].windows(4).rposition(|window| window == b"\x7fELF").unwrap();
    // Behind ELF header and program headers, in the dynamic symbols or notes.
    bundle + elf + 0x3f0
}

/// Written to while nobody looks: the size is the same, the time of modification is put back. Only the time of change tells.
#[test]
fn a_file_that_was_changed_behind_its_times_is_seen() {
    let bench = Bench::of_copy();
    bench.with("1", &[]);
    let lib = "gfx110X-build/sysdeps_lib_generic";
    let file =
        files(&bench.shards.join(lib)).into_iter().find(|file| file.contains("lib/")).unwrap();
    let path = bench.shards.join(lib).join(file);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    settle();
    let expected = bench.without("1");
    let (made, said) = bench.with("1", &[]);
    assert_same("changed", &expected, &made);
    assert!(said.packages[1] > 0 && said.packages[0] > 0, "{said:?}");
}

/// What was written just now may be written again without its times showing it.
#[test]
fn files_that_are_just_written_are_not_taken_for_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    copy_tree(&example_shards(), &dir.path().join("shards"));
    let bench = Bench { shards: dir.path().join("shards"), dir };
    // Of all files, also of those that were copied first.
    ok(Command::new("find")
        .arg(&bench.shards)
        .args(["-type", "f", "-exec", "chmod", "u+w", "{}", "+"]));
    let (_, said) = bench.with("1", &[]);
    assert!((bench.entries("package").len() as u64) < PACKAGES, "{said:?}");
    settle();
    let (_, said) = bench.with("1", &[]);
    assert_eq!(said.kpacks[1], 0, "by their content: {said:?}");
}

#[test]
fn each_damaged_entry_is_told_removed_and_made_again() {
    let bench = Bench::new();
    let [one, two] = ["1", "2"].map(|version| bench.without(version));
    bench.with("1", &[]);
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 4] = [
        ("a bit", |bytes| {
            let at = bytes.len() / 3;
            bytes[at] ^= 4;
        }),
        ("the size of what goes with it", |bytes| {
            let at = bytes.len() - 44;
            bytes[at] ^= 1;
        }),
        ("cut", |bytes| bytes.truncate(bytes.len() / 2)),
        ("empty", Vec::clear),
    ];
    for (what, damage) in damages {
        for (kind, version, expected) in [("kpack", "2", &two), ("package", "1", &one)] {
            if kind == "kpack" {
                // Nothing else is between.
                fs::remove_dir_all(bench.cache().join("v1/package")).unwrap();
            }
            let entries = bench.entries(kind);
            assert!(entries.len() > 20, "{kind}");
            for entry in &entries {
                let mut bytes = fs::read(entry).unwrap();
                damage(&mut bytes);
                fs::write(entry, bytes).unwrap();
            }
            let (made, said) = bench.with(version, &[]);
            let what = format!("{kind}, {what}");
            assert_same(&what, expected, &made);
            let damaged = said.json["damaged"].as_array().unwrap().len();
            // Of a package, the first format is enough to see it; and a generic one is not looked for before the sizes of the groups'
            // archives are known, which stand in it.
            let told = if kind == "kpack" { 24 } else { 19 };
            assert_eq!(damaged, told, "{what}: {said:?}");
            assert!(said.packages[1] >= 19 && said.json["problem"].is_null(), "{what}: {said:?}");
            assert!(
                said.stderr.contains("was damaged in the cache: it is removed, and was made again")
            );
            // The next run finds all of it good.
            let (made, said) = bench.with(version, &[]);
            assert_same(&what, expected, &made);
            assert_eq!(said.json["damaged"].as_array().unwrap().len(), 0, "{what}: {said:?}");
            bench.with("1", &[]);
        }
    }
    // Each under another's name.
    let entries = bench.entries("package");
    let contents: Vec<_> = entries.iter().map(|entry| fs::read(entry).unwrap()).collect();
    for (entry, content) in entries.iter().zip(contents.iter().cycle().skip(1)) {
        fs::write(entry, content).unwrap();
    }
    let (made, said) = bench.with("1", &[]);
    assert_same("exchanged", &one, &made);
    assert_eq!(said.json["damaged"].as_array().unwrap().len(), 19, "{said:?}");
    // Hints.
    for hint in bench.entries("hint") {
        let mut bytes = fs::read(&hint).unwrap();
        bytes[3] ^= 1;
        fs::write(hint, bytes).unwrap();
    }
    let (made, said) = bench.with("2", &["--compression-level", "3"]);
    assert_same("hints", &two, &made);
    assert!(said.json["damaged"].as_array().unwrap().len() > 10, "{said:?}");
}

#[test]
fn shards_in_archives_and_split_have_the_cache_too() {
    let bench = Bench::new();
    let shards = bench.dir.path().join("packed");
    for shard in ["gfx110X-build", "gfx1151-build", "gfx120X-build"] {
        fs::create_dir_all(shards.join(shard)).unwrap();
        for artifact in fs::read_dir(example_shards().join(shard)).unwrap() {
            pack(&artifact.unwrap().path(), &shards.join(shard), "zst", Order::Sorted);
        }
    }
    let bench = Bench { shards, ..bench };
    let [one, two] = ["1", "2"].map(|version| bench.without(version));
    assert_same("cold", &one, &bench.with("1", &[]).0);
    let (made, said) = bench.with("1", &[]);
    assert_same("warm", &one, &made);
    assert_eq!((said.packages, said.kpacks), ([PACKAGES, 0], [0, 0]), "{said:?}");
    let (made, said) = bench.with("2", &[]);
    assert_same("a new version", &two, &made);
    assert_eq!((said.packages, said.kpacks), ([0, PACKAGES], [KPACKS, 0]), "{said:?}");

    let split = |out: &str, cache: bool| {
        let mut command = gfxpack();
        command.args(["split", "--json", "--batch-artifact-parent-dir"]);
        command.arg(example_shards().join("gfx110X-build"));
        command.arg("--output-dir").arg(bench.dir.path().join(out));
        if cache {
            command.arg("--cache").arg(bench.dir.path().join("of-split"));
        }
        serde_json::from_str::<Value>(&ok(&mut command)).unwrap()
    };
    split("without", false);
    assert_eq!(split("cold", true)["cache"]["kpacks"]["taken"], 0);
    let warm = split("warm", true);
    assert!(warm["cache"]["kpacks"]["taken"].as_u64().unwrap() > 3, "{warm}");
    assert_eq!(warm["cache"]["kpacks"]["made"], 0);
    let without = snapshot(&bench.dir.path().join("without"));
    for out in ["cold", "warm"] {
        assert_same(out, &without, &snapshot(&bench.dir.path().join(out)));
    }
}

#[test]
fn the_size_is_kept_and_what_was_used_last_stays() {
    let bench = Bench::new();
    let one = bench.without("1");
    bench.with("1", &[]);
    let used = |entry: &Path| fs::metadata(entry).unwrap().modified().unwrap();
    // As if half of the kpacks had not been used for a day.
    let kpacks = bench.entries("kpack");
    let (old, new) = kpacks.split_at(12);
    for entry in old {
        let yesterday = SystemTime::now() - Duration::from_secs(86_400);
        fs::File::options().write(true).open(entry).unwrap().set_modified(yesterday).unwrap();
    }
    let held: u64 = ["kpack", "package", "hint"]
        .iter()
        .flat_map(|kind| bench.entries(kind))
        .map(|entry| fs::metadata(entry).unwrap().len() + 4096)
        .sum();
    let first = used(&bench.entries("package")[0]);
    let (made, said) = bench.with("1", &["--cache-size", &format!("{}", held - 20_000)]);
    assert_same("evicted", &one, &made);
    assert!(said.json["evicted"].as_u64().unwrap() >= 2, "{said:?}");
    assert!(old.iter().any(|entry| !entry.exists()), "the oldest go first");
    assert!(new.iter().all(|entry| entry.exists()), "what is newer stays");
    assert_eq!(said.packages, [PACKAGES, 0], "{said:?}");
    assert!(used(&bench.entries("package")[0]) > first, "being taken is being used");
    // So small that nothing stays.
    let (made, _) = bench.with("1", &["--cache-size", "1KiB"]);
    assert_same("tiny", &one, &made);
    assert_eq!(bench.entries("kpack").len() + bench.entries("package").len(), 0);
}

#[test]
fn runs_share_a_cache_and_may_be_killed_in_it() {
    let bench = Bench::new();
    let one = bench.without("1");
    // Several at once, each with an output of its own, some of them killed.
    let children: Vec<_> = (0..6)
        .map(|i| {
            let mut command = bench.cached("1");
            let out = bench.dir.path().join(format!("out{i}"));
            // The last one counts.
            command.arg("--output-dir").arg(&out);
            let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            let at = args.iter().position(|arg| arg == "--output-dir").unwrap();
            let mut command = gfxpack();
            command.args(&args[..at]).args(&args[at + 2..]);
            (i, out, command.stdout(std::process::Stdio::null()).spawn().unwrap())
        })
        .collect();
    thread::sleep(Duration::from_millis(300));
    for (i, out, mut child) in children {
        if i % 2 == 0 {
            let _ = child.kill();
            child.wait().unwrap();
        } else {
            assert!(child.wait().unwrap().success());
            assert_same("beside others", &one, &snapshot(&out));
        }
    }
    // What the killed ones left in tmp is cleared by a run that is alone.
    fs::write(bench.cache().join("v1/tmp/1-1"), "left").unwrap();
    let (made, said) = bench.with("1", &[]);
    assert_same("afterwards", &one, &made);
    assert_eq!(said.json["damaged"].as_array().unwrap().len(), 0, "{said:?}");
    assert_eq!(files(&bench.cache().join("v1/tmp")), [""; 0]);
}

/// As in containers, of which each has a process 1.
#[test]
fn runs_with_the_same_process_number_share_a_cache() {
    let bench = Bench::new();
    let tmp = bench.cache().join("v1/tmp");
    fs::create_dir_all(&tmp).unwrap();
    let lock = fs::File::create(bench.cache().join("v1/lock")).unwrap();
    lock.lock_shared().unwrap();
    // What the other run is writing: one of the names is the process's own number with that of an entry.
    let script = r#"for n in 0 1 2 3; do echo other > "$0/$$-$n"; done; exec "$@""#;
    let mut command = tool("sh", "dash");
    command.args(["-c", script]).arg(&tmp);
    let build = bench.cached("1");
    let ran = run(command.arg(build.get_program()).args(build.get_args()));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(!ran.stderr.contains("the cache could not be used"), "{}", ran.stderr);
    assert!(bench.entries("kpack").len() > 5 && bench.entries("package").len() > 5);
    let left = files(&tmp);
    assert_eq!(left.len(), 4, "{left:?}");
    // Whoever may read the directory may read an entry, as far as the umask says.
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&bench.entries("kpack")[0]), mode(&bench.cache().join("v1/lock")));
}

#[test]
fn a_cache_that_cannot_be_written_costs_nothing_but_time() {
    let bench = Bench::new();
    let one = bench.without("1");
    // A file system of its own that is too small.
    fs::create_dir(bench.cache()).unwrap();
    let script = r#"mount -t tmpfs -o size=200k none "$1" || exit 77; shift; exec "$@""#;
    let mut command = tool("unshare", "util-linux");
    command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]).arg(bench.cache());
    let build = bench.cached("1");
    let ran = run(command.arg(build.get_program()).args(build.get_args()));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_same("a full cache", &one, &snapshot(&bench.out()));
    for words in ["warning: the cache could not be used as it should", "No space left on device"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}

#[test]
fn a_cache_that_may_only_be_read_gives_what_it_has() {
    let bench = Bench::new();
    settle();
    let (one, _) = bench.with("1", &[]);
    let before = snapshot(&bench.cache());
    let script =
        r#"mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 77; shift; exec "$@""#;
    let mut command = tool("unshare", "util-linux");
    command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]).arg(bench.cache());
    let build = bench.cached("1");
    let ran = run(command.arg(build.get_program()).args(build.get_args()));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_same("a read-only cache", &one, &snapshot(&bench.out()));
    assert!(ran.stderr.contains("Read-only file system"), "{}", ran.stderr);
    assert_eq!(Said::new(&ran.stdout, &ran.stderr).packages, [PACKAGES, 0], "{}", ran.stderr);
    assert_same("nothing was kept", &before, &snapshot(&bench.cache()));
}

#[test]
fn a_directory_that_is_no_cache_is_refused() {
    let bench = Bench::new();
    fs::create_dir(bench.cache()).unwrap();
    fs::write(bench.cache().join("photo"), "").unwrap();
    let stderr = fails(&mut bench.cached("1"), 2);
    assert!(stderr.contains("cache: has other things in it, and is no cache"), "{stderr}");
    fs::remove_dir_all(bench.cache()).unwrap();
    ok(bench.cached("1").arg("--dry-run"));
    assert!(!bench.cache().exists(), "a dry run makes nothing");
    let mut inside = bench.build("1");
    let stderr = fails(inside.arg("--cache").arg(bench.out().join("cache")), 2);
    let cache = bench.out().join("cache");
    let what = format!("the output and the cache {} lie in one another", cache.display());
    assert!(stderr.contains(&what), "{stderr}");
    assert!(!bench.out().exists());
    let mut split = gfxpack();
    split.args(["split", "--batch-artifact-parent-dir"]);
    split.arg(example_shards().join("gfx1151-build")).args(["--force", "--output-dir"]);
    let stderr = fails(split.arg(bench.out()).arg("--cache").arg(&cache), 2);
    assert!(stderr.contains(&what), "{stderr}");
    // In the input it would be taken for a shard or an artifact.
    let shard = bench.shards.join("gfx1151-build");
    let mut split = gfxpack();
    split.args(["split", "--batch-artifact-parent-dir"]).arg(&shard);
    split.arg("--output-dir").arg(bench.out());
    for (mut command, input) in [(bench.build("1"), &bench.shards), (split, &shard)] {
        let stderr = fails(command.arg("--cache").arg(input.join("cache")), 2);
        let what = format!("the cache and {} lie in one another", input.display());
        assert!(stderr.contains(&what) && !input.join("cache").exists(), "{stderr}");
    }
    let stderr = fails(bench.build("1").args(["--cache-size", "1GiB"]), 2);
    assert!(stderr.contains("--cache <DIR>"), "{stderr}");
}

#[test]
fn what_is_signed_is_made_and_its_kernels_are_taken() {
    let bench = Bench::new();
    bench.with("1", &[]);
    let key = bench.dir.path().join("key");
    let home = bench.dir.path().join("gnupg");
    fs::create_dir(&home).unwrap();
    ok(Command::new("chmod").arg("700").arg(&home));
    let gpg = || {
        let mut gpg = tool("gpg", "gnupg");
        gpg.arg("--homedir").arg(&home).args(["--batch", "--quiet"]);
        gpg
    };
    ok(gpg().args([
        "--passphrase",
        "",
        "--quick-gen-key",
        "A <a@example.org>",
        "rsa2048",
        "sign",
        "0",
    ]));
    ok(gpg().arg("--armor").arg("--output").arg(&key).arg("--export-secret-keys"));
    let (_, said) = bench.with("1", &["--sign-key", key.to_str().unwrap()]);
    assert_eq!((said.packages, said.kpacks), ([0, PACKAGES], [KPACKS, 0]), "{said:?}");
}
