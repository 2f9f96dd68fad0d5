//! A group of GPUs that a release has no packages for any more: what `repo` says to do, done to the letter, and
//! what clients then do.

#![allow(clippy::unwrap_used)]

#[path = "common/clients.rs"]
mod clients;
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

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clients::AptGet;
use common::{example_config, example_packages, example_shards, fails, gfxpack, ok, run};
use gfxpack::package::Format;
use gfxpack::package::spec::{Kind, Relation, RelationKind};
use http::Server;
use repositories::{DAY, DAY_ONE, release, unsigned};
use roots::RpmRoot;
use serde_json::Value;
use tempfile::TempDir;

/// A build of the examples; from the second release on without a group.
fn build(temp: &Path, version: &str, packages: &Value) -> PathBuf {
    let mut config: Value =
        serde_json::from_str(&fs::read_to_string(example_config()).unwrap()).unwrap();
    if version != "7.1.0" {
        config["architecture_groups"].as_object_mut().unwrap().remove("gfx120X").unwrap();
    }
    let (groups, definitions) = (temp.join("groups.json"), temp.join("packages.json"));
    fs::write(&groups, config.to_string()).unwrap();
    fs::write(&definitions, packages.to_string()).unwrap();
    let out = temp.join(version);
    let mut build = gfxpack();
    build.args(["--quiet", "build", "--force", "--version", version, "--release", "1"]);
    build.arg("--input-shards-dir").arg(example_shards()).arg("--config").arg(groups);
    build.arg("--packages").arg(definitions).arg("--output-dir").arg(&out);
    ok(&mut build);
    out
}

/// Puts what a hint says into the definitions. Returns how many of them it is about.
fn follow(hint: &str, packages: &mut Value) -> usize {
    let mut followed = 0;
    for line in hint.lines() {
        let Some(rest) = line.trim().strip_prefix("in the definition of ") else { continue };
        let (name, texts) = rest.split_once(": ").unwrap();
        let texts: Value = serde_json::from_str(&format!("{{{texts}}}")).unwrap();
        let all = packages["packages"].as_array_mut().unwrap();
        let definition = all.iter_mut().find(|one| one["name"] == name).unwrap();
        for (format, relations) in texts.as_object().unwrap() {
            definition[format] = relations.clone();
        }
        followed += 1;
    }
    followed
}

#[test]
fn a_group_that_is_no_longer_made_leaves_as_the_hint_says() {
    let temp = TempDir::new().unwrap();
    let mut packages: Value =
        serde_json::from_str(&fs::read_to_string(example_packages()).unwrap()).unwrap();
    let first = build(temp.path(), "7.1.0", &packages);
    let second = build(temp.path(), "7.2.0", &packages);
    let whole = |name: &str| {
        let dir = temp.path().join(name);
        ok(unsigned("create", &dir).arg(&first));
        dir
    };
    // The group is there, or left before.
    let (kept, left, early) = (whole("kept"), whole("left"), temp.path().join("early"));
    ok(unsigned("remove", &left).arg("*-gfx120*"));
    let hints = [&kept, &left].map(|dir| {
        let stderr = fails(unsigned("add", dir).arg(&second), 1);
        assert_eq!(fails(unsigned("add", dir).arg(&second).arg("--dry-run"), 1), stderr);
        assert!(stderr.contains("Where hipblaslt-gfx120X is no longer made"), "{stderr}");
        stderr.split_once("hint: ").unwrap().1.to_owned()
    });
    assert_eq!(hints[0], hints[1]);
    assert_eq!(follow(&hints[0], &mut packages), 3, "{}", hints[0]);

    let second = build(temp.path(), "7.2.0", &packages);
    let verify = |dir: &Path| {
        ok(gfxpack().args(["--quiet", "verify", "--repo-dir"]).arg(dir));
    };
    for dir in [&kept, &left] {
        ok(unsigned("add", dir).arg(&second).arg("--dry-run"));
        ok(unsigned("add", dir).arg(&second));
        verify(dir);
        ok(unsigned("prune", dir).args(["--keep", "1", "--dry-run"]));
        ok(unsigned("prune", dir).args(["--keep", "1"]));
        verify(dir);
    }
    let list = |dir: &Path| ok(&mut unsigned("list", dir));
    // With the version that it needs, the group goes.
    assert_eq!(list(&kept), list(&left));
    assert!(!list(&kept).contains("-gfx120"));
    // It can also be taken out before.
    ok(unsigned("create", &early).arg(&first));
    ok(unsigned("add", &early).arg(&second));
    assert_eq!(list(&early).matches("-gfx120").count(), 6);
    ok(unsigned("remove", &early).args(["*-gfx120*", "--dry-run"]));
    ok(unsigned("remove", &early).arg("*-gfx120*"));
    verify(&early);
    // At once, and at once without the old one.
    for (name, dirs) in [("both", vec![&first, &second]), ("one", vec![&second])] {
        let dir = temp.path().join(name);
        ok(unsigned("create", &dir).args(dirs));
        verify(&dir);
    }
}

#[test]
fn what_clients_stumbled_over_before_is_told_and_allowed() {
    for format in ["deb", "rpm"] {
        let temp = TempDir::new().unwrap();
        let dir = temp.path().join("repo");
        ok(unsigned("create", &dir).args(release(0, format, &[])));
        let without = ["hip", "rocblas-generic", "rocblas-gfx110x"];
        let add = |number| {
            let mut add = unsigned("add", &dir);
            add.args(release(number, format, &without));
            add
        };
        fails(&mut add(1), 1);
        ok(add(1).arg("--allow-partial"));
        let mut prune = unsigned("prune", &dir);
        prune.args(["--keep", "3"]);
        for mut command in [add(2), prune, unsigned("publish", &dir)] {
            let ran = run(&mut command);
            assert_eq!(ran.status, Some(0), "{ran:?}");
            let said = ran.stderr.to_lowercase();
            assert!(
                said.contains("as before: rocblas-gfx120x 7.1.0-1")
                    || ran.stdout.contains("stays as it is"),
                "{ran:?}"
            );
        }
        // What is new is refused as ever.
        let newer = release(1, format, &["rocblas-gfx120x"]);
        let stderr = fails(unsigned("add", &dir).args(newer), 1);
        assert!(stderr.to_lowercase().contains("rocblas-gfx120x 7.2.0-1"), "{stderr}");
        assert!(!stderr.contains("no longer made"), "{stderr}");
        // With what it needs the one that nobody can install goes.
        let ran = run(unsigned("prune", &dir).args(["--keep", "1"]));
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""));
        let left = ok(&mut unsigned("list", &dir));
        assert!(!left.to_lowercase().contains("gfx120x") && left.lines().count() == 3, "{left}");
    }
}

/// A release without a group, whose place is taken.
fn next(format: &str, dir: &Path) -> Vec<PathBuf> {
    let kind = if format == "deb" { Format::Deb } else { Format::Rpm };
    let mut generic = packages::sample("rocblas-generic", Kind::Generic);
    "7.2.0".clone_into(&mut generic.version);
    generic.date = DAY_ONE + DAY;
    packages::file(&mut generic.tree, "opt/rocm/lib/librocblas.so.5", 0o755, "host code");
    generic.relate(RelationKind::Depends, Relation::any("hip-runtime"));
    let text = if format == "deb" {
        "rocblas-gfx120x (<< {version})"
    } else {
        "rocblas-gfx120X < {version}"
    };
    let keys: &[&str] = if format == "deb" { &["breaks", "replaces"] } else { &["obsoletes"] };
    let relations = if format == "deb" { &mut generic.deb } else { &mut generic.rpm };
    for key in keys {
        relations.insert((*key).to_owned(), vec![text.replace("{version}", "7.2.0-1")]);
    }
    let mut all = release(1, format, &["hip", "rocblas-gfx110x"]);
    all.push(packages::write(&generic, kind, dir));
    all
}

#[test]
fn apt_takes_the_group_away_in_a_full_upgrade() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    let server = Server::new(&dir);
    ok(unsigned("create", &dir).args(release(0, "deb", &[])).args(["--url", server.url()]));
    let client = AptGet::bare();
    let sources = fs::read_to_string(dir.join("deb/gfxpack.sources")).unwrap();
    client.apt().use_sources(&(sources + "Trusted: yes\n"));
    let get = |args: &[&str]| {
        let ran = run(client.apt().command("apt-get").arg("--yes").args(args));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        client.apt().root.versions()
    };
    get(&["update"]);
    get(&["install", "rocblas-gfx110x", "rocblas-gfx120x"]);
    ok(unsigned("add", &dir).args(next("deb", temp.path())));
    get(&["update"]);
    // It never removes: what would break the group waits.
    let kept = get(&["upgrade"]);
    assert_eq!(kept.get("rocblas-generic").map(String::as_str), Some("7.1.0-1"), "{kept:?}");
    let now = get(&["full-upgrade"]);
    assert_eq!(
        now,
        repositories::versions(1, &["hip-runtime", "rocblas-generic", "rocblas-gfx110x"])
    );
}

#[test]
fn dnf_takes_the_group_away_in_an_upgrade() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(release(0, "rpm", &[])));
    let root = RpmRoot::new();
    let conf = format!(
        "[main]\ngpgcheck=0\nplugins=0\ncachedir={}\nreposdir=/nonexistent\n[tested]\nname=tested\nbaseurl=file://{}\n",
        root.seen("var/cache/dnf").display(),
        dir.join("rpm").display(),
    );
    fs::write(root.path().join("etc/dnf.conf"), conf).unwrap();
    let dnf = |args: &[&str]| {
        let mut command: Command = root.command("dnf", "dnf");
        command.arg("--config").arg(root.seen("etc/dnf.conf"));
        command.arg("--installroot").arg(root.seen(""));
        ok(command.args(["--releasever=1", "--assumeyes", "--refresh"]).args(args));
        root.versions()
    };
    dnf(&["install", "rocblas-gfx110X", "rocblas-gfx120X"]);
    ok(unsigned("add", &dir).args(next("rpm", temp.path())));
    let now = dnf(&["upgrade"]);
    let now: Vec<(String, String)> =
        now.into_iter().map(|(name, version)| (name.to_lowercase(), version)).collect();
    let expected =
        repositories::versions(1, &["hip-runtime", "rocblas-generic", "rocblas-gfx110x"]);
    assert_eq!(now, expected.into_iter().collect::<Vec<_>>());
}
