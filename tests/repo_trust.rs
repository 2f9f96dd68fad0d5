//! What `repo` says of packages and keys that clients would not trust.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/keys.rs"]
mod keys;
#[path = "common/packages.rs"]
mod packages;
#[path = "common/repositories.rs"]
mod repositories;

use std::fs;
use std::process::Command;

use common::{fails, ok, run, snapshot};
use repositories::{public_key, release, signed, unsigned};
use tempfile::TempDir;

/// The warnings of a run that does it.
#[track_caller]
fn warnings(command: &mut Command) -> Vec<String> {
    let ran = run(command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let lines = ran.stderr.lines().filter(|line| line.starts_with("warning: "));
    lines.map(str::to_owned).collect()
}

#[test]
fn packages_without_a_signature_are_told_where_the_repository_has_one() {
    let temp = TempDir::new().unwrap();
    let (dir, other) = (temp.path().join("repo"), temp.path().join("other"));
    let none = "hip-runtime 7.1.0-1 x86_64 and 3 more .rpm are not signed themselves: clients with gpgcheck=1 refuse them; \
                the .repo file says gpgcheck=0";
    let mut create = signed("create", &dir);
    let said = warnings(create.args(release(0, "rpm", &[])).args(["--url", "https://x/y"]));
    assert!(said.len() == 1 && said[0].contains(none), "{said:?}");
    assert!(said[0].contains("--sign-packages"), "{said:?}");
    assert!(warnings(&mut signed("publish", &dir))[0].contains(none));
    // What brings nothing says nothing.
    assert!(warnings(signed("set", &dir).args(["--keep-days", "3"])).is_empty());
    assert!(warnings(signed("prune", &dir).args(["--keep", "1"])).is_empty());

    // Beside packages that are signed.
    let mixed = "hip-runtime 7.1.0-1 x86_64 and 3 more .rpm are not signed themselves: others here are signed, and clients \
                 that have a .repo file with gpgcheck=1 refuse these";
    let add = |more: &[&str]| {
        let mut add = signed("add", &dir);
        add.args(release(1, "rpm", &[])).args(more);
        add
    };
    let mut rehearsal = unsigned("add", &dir);
    rehearsal.args(release(1, "rpm", &[])).arg("--dry-run");
    assert!(warnings(&mut rehearsal)[0].contains("hip-runtime 7.2.0-1"));
    assert!(warnings(&mut add(&["--sign-packages"])).is_empty());
    assert!(warnings(&mut signed("publish", &dir))[0].contains(mixed));
    let one = release(2, "rpm", &["hip"]);
    let said = warnings(signed("add", &dir).args(&one));
    assert!(
        said[0].contains("hip-runtime 7.10.0-1 x86_64 is not signed itself: others"),
        "{said:?}"
    );

    // With those of another repository, which has no key.
    let said = warnings(unsigned("create", &other).args(release(0, "rpm", &[])));
    assert!(said.iter().all(|warning| !warning.contains("signed themselves")), "{said:?}");
    let into = temp.path().join("into");
    ok(&mut signed("create", &into));
    let merge = |more: &str| warnings(signed("merge", &into).arg(&other).arg(more));
    assert!(merge("--dry-run")[0].contains("3 more .rpm"));
    assert!(merge("--sign-packages").is_empty());
    // dpkg looks at no signature of a package.
    assert!(warnings(signed("add", &into).args(release(0, "deb", &[]))).is_empty());
}

#[test]
fn a_repository_without_packages_promises_no_signatures_of_them() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(signed("create", &dir).args(["--url", "https://x/y"]));
    let check = || {
        let text = fs::read_to_string(dir.join("rpm/gfxpack.repo")).unwrap();
        text.lines().find_map(|line| line.strip_prefix("gpgcheck=")).unwrap().to_owned()
    };
    assert_eq!(check(), "0");
    ok(signed("add", &dir).args(release(0, "rpm", &[])).arg("--sign-packages"));
    assert_eq!(check(), "1");
}

#[test]
fn a_key_that_cannot_sign_is_told_as_what_it_is() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    let armored = temp.path().join("armored");
    let home = keys::Home::new();
    ok(home.gpg(keys::KEY_MADE).arg("--import").arg(public_key()));
    let text = ok(home.gpg(keys::KEY_MADE).args(["--armor", "--export"]));
    fs::write(&armored, text).unwrap();
    for key in [public_key(), armored] {
        let stderr = fails(unsigned("create", &dir).arg("--sign-key").arg(&key), 2);
        assert!(
            stderr.contains("this is a public key, and only a secret one can sign"),
            "{stderr}"
        );
        assert!(stderr.contains("--export-secret-keys"), "{stderr}");
    }
    let nothing = temp.path().join("nothing");
    fs::write(&nothing, "").unwrap();
    let stderr = fails(unsigned("create", &dir).arg("--sign-key").arg(nothing), 2);
    assert!(stderr.contains("there is no OpenPGP key in it"), "{stderr}");
    let stderr = fails(unsigned("create", &dir).arg("--sign-key").arg(temp.path()), 1);
    assert!(stderr.contains("hint: name a file, as `gpg --armor"), "{stderr}");
    assert!(!dir.exists());
}

#[test]
fn what_is_there_already_is_not_warned_of_first() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(signed("create", &dir).args(release(0, "deb", &[])));
    let before = snapshot(&dir);
    let stderr = fails(&mut unsigned("create", &dir), 2);
    assert!(stderr.starts_with("error: ") && stderr.contains("is not empty"), "{stderr}");
    assert_eq!(snapshot(&dir), before);
}
