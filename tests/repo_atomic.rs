//! Repositories that change while clients read them, and runs that are killed.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/http.rs"]
mod http;
#[path = "common/keys.rs"]
mod keys;
#[path = "common/packages.rs"]
mod packages;
#[path = "common/repositories.rs"]
mod repositories;
#[path = "common/roots.rs"]
mod roots;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{ok, run};
use http::Server;
use repositories::{release, signed, unsigned};
use roots::{Apt, DebRoot};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

fn sha256(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All that `InRelease` or `Release` names is there with the digest that it says, by hash, and all packages
/// that the indices name. Returns their versions.
fn assert_whole(dir: &Path, top: &str) -> BTreeSet<String> {
    let root = dir.join("deb");
    let dist = root.join("dists/stable");
    let text = fs::read_to_string(dist.join(top)).unwrap();
    let (_, digests) = text.split_once("\nSHA256:\n").unwrap();
    let mut packages = None;
    for line in digests.lines().take_while(|line| line.starts_with(' ')) {
        let [digest, size, path]: [&str; 3] =
            line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        if path.ends_with("/Contents-amd64") {
            continue;
        }
        let (folder, _) = path.rsplit_once('/').unwrap();
        let by_hash = dist.join(folder).join("by-hash/SHA256").join(digest);
        assert_eq!(sha256(&by_hash), digest);
        assert_eq!(fs::metadata(&by_hash).unwrap().len().to_string(), size);
        if path.ends_with("/Packages") {
            packages = Some(fs::read_to_string(by_hash).unwrap());
        }
    }
    let mut versions = BTreeSet::new();
    for stanza in packages.unwrap().split("\n\n").filter(|stanza| !stanza.is_empty()) {
        let field = |name: &str| {
            let start = format!("{name}: ");
            stanza.lines().find_map(|line| line.strip_prefix(&start)).unwrap()
        };
        assert_eq!(sha256(&root.join(field("Filename"))), field("SHA256"));
        versions.insert(field("Version").to_owned());
    }
    versions
}

#[test]
fn a_run_that_is_killed_leaves_the_old_or_the_new_state() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(release(0, "deb", &[])).args(["--keep-days", "0"]));
    // How long a run takes, to kill others within it.
    let whole = (0..3).map(|_| {
        let begun = Instant::now();
        ok(unsigned("add", &dir).args(release(1, "deb", &[])));
        let whole = begun.elapsed();
        ok(unsigned("remove", &dir).arg("*=7.2.0-1"));
        whole
    });
    // Other tests may have slowed one of them.
    let whole = whole.min().unwrap();
    ok(unsigned("add", &dir).args(release(1, "deb", &[])));
    let (old, new) = (BTreeSet::from(["7.1.0-1".to_owned()]), "7.2.0-1".to_owned());
    let mut killed = 0;
    for n in 0..16_u32 {
        let adds = n % 2 == 1;
        let mut command = if adds {
            let mut command = unsigned("add", &dir);
            command.args(release(1, "deb", &[]));
            command
        } else {
            let mut command = unsigned("remove", &dir);
            command.arg("*=7.2.0-1");
            command
        };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(whole * n / 16);
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        // The same again does what is left; nothing of it is there twice or in the way.
        let versions = assert_whole(&dir, "Release");
        assert!(versions.is_superset(&old), "{versions:?}");
        // What was done may have been all of it, in which case there is nothing to remove.
        let ended = run(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let done = ended.status == Some(0) || ended.stderr.contains("no package is called");
        assert!(done, "{ended:?}");
        assert_eq!(assert_whole(&dir, "Release").contains(&new), adds);
    }
    assert!(killed > 4, "{killed} were killed");
    let left: Vec<_> =
        fs::read_dir(dir.join(".gfxpack")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn two_runs_do_not_mix() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(release(0, "deb", &[])));
    let lock = fs::File::options().append(true).open(dir.join(".gfxpack/lock")).unwrap();
    lock.lock().unwrap();
    let stderr = common::fails(unsigned("add", &dir).args(release(1, "deb", &[])), 1);
    assert!(stderr.contains("another run is changing the repository"), "{stderr}");
    // Who only looks need not wait.
    assert_eq!(ok(&mut unsigned("list", &dir)).lines().count(), 4);
    drop(lock);
    ok(unsigned("add", &dir).args(release(1, "deb", &[])));
}

/// Waits until a run has come to open a file that it has to wait for, as a pipe that nobody reads.
fn wait_until_it_opens(child: &mut Child) {
    let syscall = format!("/proc/{}/syscall", child.id());
    let opens = format!("{} ", libc::SYS_openat);
    let begun = Instant::now();
    let mut same = (String::new(), 0);
    // Other files are open at once: a call that is seen several times is that one.
    while same.1 < 5 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        assert!(begun.elapsed() < Duration::from_secs(60), "it does {} instead", same.0);
        let now = fs::read_to_string(&syscall).unwrap();
        let again = now == same.0 && now.starts_with(&opens);
        same = (now, if again { same.1 + 1 } else { 0 });
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn of_two_that_make_a_repository_the_later_is_refused() {
    use std::os::unix::fs::OpenOptionsExt;
    let temp = TempDir::new().unwrap();
    let (dir, other) = (temp.path().join("repo"), temp.path().join("other"));
    // A run that has found the directory empty waits for its lock, as long as nobody reads that.
    let lock = dir.join(".gfxpack/lock");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    ok(std::process::Command::new("mkfifo").arg(&lock));
    let mut late = unsigned("create", &dir);
    late.args(release(1, "deb", &[]));
    let mut late = late.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_it_opens(&mut late);
    // Meanwhile another one publishes.
    ok(unsigned("create", &other).args(release(0, "deb", &[])));
    fs::rename(other.join(".gfxpack/state"), dir.join(".gfxpack/state")).unwrap();
    fs::rename(other.join("deb"), dir.join("deb")).unwrap();
    // O_NONBLOCK
    let reader = fs::File::options().read(true).custom_flags(0o4000).open(&lock).unwrap();
    let ended = late.wait_with_output().unwrap();
    drop(reader);
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("the directory of the new repository is not empty"), "{stderr}");
    assert_eq!(assert_whole(&dir, "Release"), BTreeSet::from(["7.1.0-1".to_owned()]));
}

#[test]
fn a_directory_that_was_there_stays_when_nothing_comes_of_it() {
    let temp = TempDir::new().unwrap();
    for was_there in [true, false] {
        let dir = temp.path().join(was_there.to_string());
        if was_there {
            fs::create_dir(&dir).unwrap();
        }
        let bad = temp.path().join("bad.deb");
        fs::write(&bad, "bad").unwrap();
        common::fails(unsigned("create", &dir).arg(bad), 1);
        assert_eq!(dir.exists(), was_there);
        assert!(!was_there || fs::read_dir(&dir).unwrap().next().is_none());
    }
}

#[test]
fn a_plan_that_leads_out_of_the_repository_is_refused() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(release(0, "deb", &[])));
    let outside = temp.path().join("outside");
    fs::write(&outside, "x").unwrap();
    let next = dir.join(".gfxpack/next");
    fs::create_dir(&next).unwrap();
    // MessagePack: files to move, files to remove.
    let absolute = outside.to_str().unwrap();
    let removing = |path: &str| {
        let len = u8::try_from(path.len()).unwrap();
        [&[0x92, 0x90, 0x91, 0xd9, len][..], path.as_bytes()].concat()
    };
    let moving = b"\x92\x91\x92\xaa../outside\x00\x90".to_vec();
    let gone = b"\x92\x91\x92\xaa../outside\xc0\x90".to_vec();
    for plan in
        [removing("../outside"), removing(absolute), removing("deb/../../outside"), moving, gone]
    {
        fs::write(next.join("plan"), plan).unwrap();
        fs::write(next.join("0"), "y").unwrap();
        let stderr = common::fails(&mut unsigned("publish", &dir), 1);
        assert!(stderr.contains("leads out of the repository"), "{stderr}");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "x");
    }
    fs::remove_dir_all(next).unwrap();
    ok(&mut unsigned("publish", &dir));
}

#[test]
fn what_a_killed_run_has_brought_does_not_stay() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    let pool = |dir: &Path| common::files(&dir.join("deb/pool"));
    // As if the run had been killed right before it decides: what it noted, packages at their places.
    let killed = |whole: &Path, dir: &Path| {
        let new: Vec<String> = common::files(&whole.join("deb"))
            .into_iter()
            .filter(|path| path.starts_with("pool/") || path.contains("/by-hash/"))
            .filter(|path| !dir.join("deb").join(path).exists())
            .map(|path| format!("deb/{path}"))
            .collect();
        assert!(!new.is_empty());
        for path in &new {
            fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            fs::copy(whole.join(path), dir.join(path)).unwrap();
        }
        // A list of MessagePack.
        let len = u16::try_from(new.len()).unwrap().to_be_bytes();
        let mut noted = [&[0xdc][..], &len].concat();
        for path in &new {
            noted.extend([0xd9, u8::try_from(path.len()).unwrap()]);
            noted.extend(path.as_bytes());
        }
        fs::create_dir_all(dir.join(".gfxpack")).unwrap();
        fs::write(dir.join(".gfxpack/arrivals"), noted).unwrap();
    };
    let (one, two) = (temp.path().join("one"), temp.path().join("two"));
    ok(unsigned("create", &one).args(release(0, "deb", &[])));
    ok(unsigned("create", &two).args(release(1, "deb", &[])));
    // One that was to make the repository.
    killed(&two, &dir);
    ok(unsigned("create", &dir).args(release(0, "deb", &[])));
    let before = pool(&dir);
    assert_eq!(before, pool(&one));
    let indices = common::files(&dir.join("deb/dists"));
    assert_eq!(indices, common::files(&one.join("deb/dists")));
    // One that was to add to it.
    killed(&two, &dir);
    assert_ne!(pool(&dir), before);
    common::fails(unsigned("remove", &dir).arg("no-such"), 2);
    assert_eq!(pool(&dir), before);
    assert_eq!(common::files(&dir.join("deb/dists")), indices);
    assert!(!dir.join(".gfxpack/arrivals").exists());
    // What the state names stays, whatever was noted.
    killed(&two, &dir);
    fs::copy(two.join(".gfxpack/state"), dir.join(".gfxpack/state")).unwrap();
    ok(&mut unsigned("publish", &dir));
    assert_eq!(assert_whole(&dir, "Release"), BTreeSet::from(["7.2.0-1".to_owned()]));
}

/// So many clients update over and over while there are so many publications: none fails.
fn clients_and_publications(clients: usize, publications: usize) {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    let server = Server::new(&dir);
    ok(signed("create", &dir).args(release(0, "deb", &[])).args(["--url", server.url()]));
    let sources = fs::read_to_string(dir.join("deb/gfxpack.sources")).unwrap();
    let over = AtomicBool::new(false);
    let updates = AtomicUsize::new(0);
    thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            for n in 0..publications {
                ok(&mut match n % 4 {
                    0 => {
                        let mut add = signed("add", &dir);
                        add.args(release(1, "deb", &[]));
                        add
                    }
                    1 => {
                        let mut add = signed("add", &dir);
                        add.args(release(2, "deb", &[]));
                        add
                    }
                    2 => {
                        let mut prune = signed("prune", &dir);
                        prune.args(["--keep", "1"]);
                        prune
                    }
                    _ => {
                        // What is new goes, and what was before comes back.
                        let mut add = signed("add", &dir);
                        add.args(release(0, "deb", &[])).arg("--allow-partial");
                        ok(&mut add);
                        let mut remove = signed("remove", &dir);
                        remove.args(["*=7.10.0-1"]);
                        remove
                    }
                });
                // Clients get to read it.
                let seen = updates.load(Ordering::Relaxed);
                let begun = Instant::now();
                while updates.load(Ordering::Relaxed) < seen + clients / 10 + 1
                    && begun.elapsed() < Duration::from_secs(60)
                {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let loops: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let apt = Apt::new(DebRoot::new());
                    apt.use_sources(&sources);
                    let mut faults = Vec::new();
                    while !over.load(Ordering::Relaxed) && faults.is_empty() {
                        let ran = run(apt.command("apt-get").arg("update"));
                        let fine = ran.status == Some(0)
                            && !ran.stderr.contains("W:")
                            && !ran.stderr.contains("E:");
                        if !fine {
                            faults.push(ran);
                        }
                        updates.fetch_add(1, Ordering::Relaxed);
                    }
                    faults
                })
            })
            .collect();
        let published = publisher.join();
        over.store(true, Ordering::Relaxed);
        let faults: Vec<_> = loops.into_iter().flat_map(|one| one.join().unwrap()).collect();
        assert!(faults.is_empty(), "{} clients failed, as {:?}", faults.len(), faults[0]);
        published.unwrap();
    });
    let state = ok(unsigned("list", &dir).arg("--json"));
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    assert!(state["publication"].as_u64().unwrap() > publications as u64, "{state}");
    let updates = updates.into_inner();
    assert!(updates > clients.max(publications), "{updates}");
    println!("{clients} clients made {updates} updates during {publications} publications");
    assert_whole(&dir, "InRelease");
}

#[test]
fn clients_update_while_it_is_published() {
    clients_and_publications(4, 8);
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_clients_update_during_fifty_publications() {
    clients_and_publications(100, 50);
}
