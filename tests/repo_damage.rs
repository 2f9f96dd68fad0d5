//! Repositories whose own files were damaged, exchanged or lost: nothing broken is published.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/keys.rs"]
mod keys;
#[path = "common/packages.rs"]
mod packages;
#[path = "common/repositories.rs"]
mod repositories;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use common::{copy_tree, fails, files, gfxpack, ok, snapshot};
use repositories::{release, unsigned};
use tempfile::TempDir;

fn both(number: usize) -> Vec<PathBuf> {
    [release(number, "deb", &[]), release(number, "rpm", &[])].concat()
}

/// What clients see is whole.
#[track_caller]
fn verified(dir: &Path) {
    ok(gfxpack().args(["--quiet", "verify", "--repo-dir"]).arg(dir));
}

/// What is published of a repository.
fn published(dir: &Path) -> impl PartialEq + std::fmt::Debug {
    (snapshot(&dir.join("deb")), snapshot(&dir.join("rpm")))
}

/// A new file: the old one may have several names.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A repository with two releases, one after the other, that keeps nothing of older publications.
fn two_releases(dir: &Path) {
    let mut create = unsigned("create", dir);
    create.args(both(0)).args(["--url", "https://repo.example.org/rocm"]);
    ok(create.args(["--keep-publications", "1", "--keep-days", "0"]));
    ok(unsigned("add", dir).args(both(1)));
}

#[test]
fn a_damaged_state_is_refused_and_changes_nothing() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(both(0)));
    let at = dir.join(".gfxpack/state");
    let state = fs::read(&at).unwrap();
    let before = published(&dir);
    let mut damaged: Vec<(String, Vec<u8>)> = Vec::new();
    for n in 0..60 {
        let place = state.len() * n / 60;
        let mut flipped = state.clone();
        flipped[place] ^= 1 << (n % 8);
        damaged.push((format!("flipped at {place}"), flipped));
    }
    for n in 0..20 {
        let place = state.len() * n / 20;
        damaged.push((format!("cut at {place}"), state[..place].to_vec()));
    }
    damaged.push(("cut by a byte".to_owned(), state[..state.len() - 1].to_vec()));
    damaged.push(("with more behind".to_owned(), [&state[..], b"more"].concat()));
    let half = state.len() / 2;
    let mut zeros = state.clone();
    zeros[half..].fill(0);
    damaged.push(("zeros from the middle".to_owned(), zeros));
    for (what, bytes) in damaged {
        fs::write(&at, &bytes).unwrap();
        for action in ["publish", "list"] {
            let stderr = fails(&mut unsigned(action, &dir), 1);
            assert!(stderr.contains("the state of the repository is damaged"), "{what}: {stderr}");
            for words in ["gfxpack repo create NEW DIR", "those that were removed lately"] {
                assert!(stderr.contains(words), "{what}: {stderr}");
            }
        }
        assert_eq!(fs::read(&at).unwrap(), bytes, "{what}");
    }
    assert!(published(&dir) == before);
    // As the hint says.
    let new = temp.path().join("new");
    ok(unsigned("create", &new).arg(&dir));
    verified(&new);
    let list = ok(&mut unsigned("list", &new));
    assert_eq!(list.lines().count(), 8, "{list}");
    fs::write(&at, state).unwrap();
    ok(&mut unsigned("publish", &dir));
    verified(&dir);
    // And as it warns.
    ok(unsigned("remove", &dir).args(["rocblas-gfx120[xX]", "--allow-partial"]));
    assert_eq!(ok(&mut unsigned("list", &dir)).lines().count(), 6);
    fs::write(&at, "").unwrap();
    let newer = temp.path().join("newer");
    ok(unsigned("create", &newer).arg(&dir));
    assert_eq!(ok(&mut unsigned("list", &newer)), list);
}

/// A copy of `bytes` with a bit flipped in each of its places where `part` stands, and how many there were.
fn flipped(bytes: &[u8], part: &[u8]) -> (Vec<u8>, usize) {
    let mut flipped = bytes.to_vec();
    let at: Vec<usize> = bytes
        .windows(part.len())
        .enumerate()
        .filter(|(_, one)| *one == part)
        .map(|(at, _)| at)
        .collect();
    at.iter().for_each(|at| flipped[at + part.len() / 2] ^= 1);
    (flipped, at.len())
}

#[test]
fn pieces_of_indices_that_are_kept_are_not_published_when_they_are_damaged() {
    let temp = TempDir::new().unwrap();
    let good = temp.path().join("good");
    ok(unsigned("create", &good).args(both(0)).args(["--component", "gfx110x=*-gfx110x"]));
    let state = fs::read(good.join(".gfxpack/state")).unwrap();
    let (payload, _) = state.split_at(state.len() - 8);
    let mut tried = 0;
    for component in ["main", "gfx110x"] {
        for ending in ["xz", "gz", "zst"] {
            let index = format!("deb/dists/stable/{component}/binary-amd64/Packages.{ending}");
            let index = fs::read(good.join(index)).unwrap();
            for n in 1..4 {
                let middle = index.len() * n / 4;
                // Where a piece of the index is kept, it stands in the state as it is; the sum of all is right again.
                let (mut damaged, places) = flipped(payload, &index[middle - 8..middle + 8]);
                if places == 0 {
                    continue;
                }
                tried += 1;
                let dir = temp.path().join(tried.to_string());
                copy_tree(&good, &dir);
                damaged.extend(twox_hash::XxHash64::oneshot(0, &damaged).to_le_bytes());
                fs::write(dir.join(".gfxpack/state"), damaged).unwrap();
                ok(&mut unsigned("publish", &dir));
                verified(&dir);
                ok(unsigned("add", &dir).args(both(1)));
                verified(&dir);
            }
        }
    }
    assert!(tried >= 6, "{tried}");
}

#[test]
fn a_state_that_is_not_of_what_is_published_is_refused() {
    let temp = TempDir::new().unwrap();
    let (dir, other) = (temp.path().join("repo"), temp.path().join("other"));
    ok(unsigned("create", &dir).args(both(0)));
    let state = |dir: &Path| dir.join(".gfxpack/state");
    let old = fs::read(state(&dir)).unwrap();
    ok(unsigned("add", &dir).args(both(1)));
    let new = fs::read(state(&dir)).unwrap();
    let before = published(&dir);
    // Of a publication before: what came since would be lost.
    fs::write(state(&dir), &old).unwrap();
    let late = ["--date", "1790000000"];
    for (action, args) in [("publish", &late[..]), ("publish", &[]), ("set", &["--label", "x"])] {
        let stderr = fails(unsigned(action, &dir).args(args), 1);
        assert!(
            stderr.contains(
                "deb/dists/stable/Release is of 2026-01-02T00:00:00Z, later than the state"
            ),
            "{stderr}"
        );
    }
    fails(unsigned("add", &dir).args(both(2)).arg("--dry-run"), 1);
    // Where Release is lost, repomd.xml says so.
    let release = dir.join("deb/dists/stable/Release");
    let text = fs::read(&release).unwrap();
    fs::remove_file(&release).unwrap();
    let stderr = fails(&mut unsigned("publish", &dir), 1);
    assert!(stderr.contains("rpm/repodata/repomd.xml is of 2026-01-02"), "{stderr}");
    fs::write(&release, text).unwrap();
    assert!(published(&dir) == before);

    // Of another repository, with the same packages in other files and with others.
    for (number, what) in
        [(1, "a package of the repository"), (2, "a package of the repository cannot be read")]
    {
        ok(unsigned("create", &other).args(both(number)).args(["--date", "1780000000"]));
        fs::remove_dir_all(dir.join("deb/pool/main/h")).unwrap();
        fs::copy(state(&other), state(&dir)).unwrap();
        let stderr = fails(&mut unsigned("publish", &dir), 1);
        assert!(stderr.contains(what), "{stderr}");
        fs::remove_dir_all(&other).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        ok(unsigned("create", &dir).args(both(0)));
        ok(unsigned("add", &dir).args(both(1)));
    }
    fs::write(state(&dir), new).unwrap();
    ok(&mut unsigned("publish", &dir));
    verified(&dir);
}

#[test]
fn each_index_that_is_damaged_or_lost_is_made_again() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    two_releases(&dir);
    let indices: Vec<String> = files(&dir)
        .into_iter()
        .filter(|path| {
            !path.contains("/pool/") && !path.contains("/Packages/") && !path.starts_with('.')
        })
        .collect();
    assert!(indices.len() > 15, "{indices:?}");
    for (n, path) in indices.iter().enumerate() {
        let at = dir.join(path);
        let Ok(bytes) = fs::read(&at) else {
            // It was called after a content that is of the past.
            continue;
        };
        match n % 3 {
            0 => fs::remove_file(&at).unwrap(),
            1 => replace(&at, &bytes[..bytes.len() / 2]),
            // In place: what is a second name of it is damaged as well.
            _ => {
                let mut flipped = bytes.clone();
                flipped[bytes.len() / 2] ^= 4;
                fs::write(&at, flipped).unwrap();
            }
        }
        ok(&mut unsigned("publish", &dir));
        verified(&dir);
    }
}

#[test]
fn a_suite_that_is_renamed_to_and_fro_is_whole_each_time() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(both(0)).args(["--url", "https://repo.example.org/rocm"]));
    for (n, suite) in ["nightly", "stable", "nightly", "stable", "stable"].into_iter().enumerate() {
        ok(unsigned("set", &dir).args(["--suite", suite]));
        verified(&dir);
        if n == 1 {
            ok(unsigned("add", &dir).args(both(1)));
            verified(&dir);
        }
        let text = fs::read_to_string(dir.join("deb/gfxpack.sources")).unwrap();
        assert!(text.contains(&format!("Suites: {suite}\n")), "{text}");
        let release =
            fs::read_to_string(dir.join("deb/dists").join(suite).join("Release")).unwrap();
        assert!(release.contains(&format!("Suite: {suite}\nCodename: {suite}\n")), "{release}");
        let other = if suite == "stable" { "nightly" } else { "stable" };
        assert!(!dir.join("deb/dists").join(other).join("Release").exists());
    }
    // Of the other name nothing stays when nobody can ask for it any more.
    ok(unsigned("set", &dir).args(["--keep-publications", "1", "--keep-days", "0"]));
    assert!(!dir.join("deb/dists/nightly").exists());
    verified(&dir);
}

/// Kills runs of something at all times of their lives: the run after such a one does what it was to do, and leaves nothing
/// else behind. That clients see nothing half done meanwhile is for `repo_atomic`.
fn killed(args: &[&str], packages: &[PathBuf]) {
    let temp = TempDir::new().unwrap();
    let (good, dir) = (temp.path().join("good"), temp.path().join("repo"));
    two_releases(&good);
    let command = || {
        let mut command = unsigned(args[0], &dir);
        command.args(&args[1..]).args(packages);
        command
    };
    copy_tree(&good, &dir);
    let begun = Instant::now();
    ok(&mut command());
    let mut whole = begun.elapsed();
    let expected = published(&dir);
    let mut unfinished = 0;
    for n in 0_u32.. {
        if n >= 16 && unfinished > 2 {
            break;
        }
        assert!(n < 64, "{unfinished} were killed");
        let n = n % 16;
        fs::remove_dir_all(&dir).unwrap();
        copy_tree(&good, &dir);
        let mut child = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let after = whole * n / 16;
        thread::sleep(after);
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            // Other work may have slowed the first one down: the moments are those of a fast one.
            whole = whole.min(after);
        } else {
            unfinished += 1;
        }
        ok(&mut command());
        assert!(published(&dir) == expected, "{args:?} after {n}/16");
        assert_eq!(fs::read_dir(dir.join(".gfxpack")).unwrap().count(), 2);
        verified(&dir);
    }
}

#[test]
fn a_set_that_is_killed_is_done_by_the_next() {
    killed(&["set", "--suite", "nightly", "--origin", "Other"], &[]);
}

#[test]
fn a_prune_that_is_killed_is_done_by_the_next() {
    killed(&["prune", "--keep", "1"], &[]);
}

#[test]
fn an_add_that_is_killed_is_done_by_the_next() {
    killed(&["add"], &both(2));
}

#[test]
fn of_two_that_add_at_a_time_both_come_in_or_one_is_told_to_wait() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(both(0)));
    let adding: Vec<_> = (1..3)
        .map(|number| {
            let mut add = unsigned("add", &dir);
            add.args(both(number)).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in adding {
        let ended = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        let told = stderr.contains("another run is changing the repository")
            && stderr.contains("hint: wait for it to end, and run this again");
        assert!(ended.status.success() || told && ended.status.code() == Some(1), "{stderr}");
    }
    verified(&dir);
    for number in 1..3 {
        ok(unsigned("add", &dir).args(both(number)));
    }
    assert_eq!(ok(&mut unsigned("list", &dir)).lines().count(), 24);
    verified(&dir);
}
