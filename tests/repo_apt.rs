//! Repositories through apt: signed, over http, as people use them.

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

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clients::{AptGet, Client};
use common::{Ran, fails, gfxpack, ok, run, tool};
use http::Server;
use repositories::{
    DAY, DAY_ONE, NAMES, RELEASES, other_key, public_key, release, signed, unsigned, versions,
};
use tempfile::TempDir;

/// A repository that is served, and an apt that knows it.
struct Served {
    dir: PathBuf,
    /// Held until the test ends.
    _temp: TempDir,
    client: AptGet,
}

impl Served {
    /// With the first release; further arguments are for `create`.
    fn new(client: AptGet, args: &[&str]) -> Self {
        let temp = TempDir::new().unwrap();
        let dir = temp.path().join("repo");
        let server = Server::new(&dir);
        ok(signed("create", &dir)
            .args(release(0, "deb", &[]))
            .args(["--origin", "Example Packagers", "--url", server.url()])
            .args(args));
        let sources = fs::read_to_string(dir.join("deb/example-packagers.sources")).unwrap();
        assert!(!sources.to_lowercase().contains("trusted"), "{sources}");
        client.apt().use_sources(&sources);
        Self { dir, _temp: temp, client }
    }

    fn update(&self) -> Ran {
        run(self.client.apt().command("apt-get").arg("update"))
    }

    #[track_caller]
    fn updates(&self) {
        let ran = self.update();
        assert_eq!(ran.status, Some(0), "{ran:?}");
        // apt only warns where an index cannot be fetched.
        assert!(!ran.stderr.contains("W:") && !ran.stderr.contains("E:"), "{ran:?}");
    }

    fn apt(&self, args: &[&str]) -> Ran {
        run(self.client.apt().command("apt-get").arg("--yes").args(args))
    }

    #[track_caller]
    fn does(&self, args: &[&str]) -> Ran {
        let ran = self.apt(args);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        ran
    }

    #[track_caller]
    fn has(&self, expected: &BTreeMap<String, String>) {
        assert_eq!(self.client.installed(), *expected);
        assert_eq!(self.client.faults(), "");
    }
}

fn the_whole_life(client: AptGet) {
    let served = Served::new(client, &["--valid-days", "36500"][..0]);
    served.updates();
    // As the documentation has it: apt finds the other spelling by what is provided.
    served.does(&["install", "rocblas-gfx110X"]);
    served.has(&versions(0, &NAMES[..3]));
    let library = served.client.root().join("opt/rocm/lib/librocblas.so.5");
    assert!(fs::read_to_string(&library).unwrap().contains("7.1.0"));

    ok(signed("add", &served.dir).args(release(1, "deb", &[])));
    served.updates();
    served.does(&["upgrade"]);
    served.has(&versions(1, &NAMES[..3]));
    assert!(fs::read_to_string(&library).unwrap().contains("7.2.0"));

    // 7.10.0 is later than 7.2.0, whatever the letters say; an older one that is added later changes nothing.
    ok(signed("remove", &served.dir).arg("*=7.1.0-1"));
    ok(signed("add", &served.dir).args(release(2, "deb", &[])));
    ok(signed("add", &served.dir).args(release(0, "deb", &[])));
    served.updates();
    served.does(&["upgrade"]);
    served.has(&versions(2, &NAMES[..3]));

    // Pruned versions are no longer to be had, and nobody notices.
    ok(signed("prune", &served.dir).args(["--keep", "1"]));
    served.updates();
    served.does(&["install", "rocblas-gfx120X"]);
    served.has(&versions(2, &NAMES));
    let gone = served.apt(&["install", "rocblas-generic=7.1.0-1"]);
    assert!(gone.stderr.contains("was not found"), "{gone:?}");

    served.does(&["remove", "rocblas-gfx110x", "rocblas-gfx120x"]);
    served.does(&["autoremove"]);
    served.has(&BTreeMap::new());
    served.does(&["install", "rocblas-gfx120x"]);
    served.does(&["purge", "rocblas-gfx120x", "rocblas-generic", "hip-runtime"]);
    served.has(&BTreeMap::new());
}

#[test]
fn apt_installs_upgrades_and_removes() {
    the_whole_life(AptGet::bare());
}

#[test]
#[ignore = "makes a Debian 12: as root, 200 MB over the network, minutes"]
fn apt_of_bookworm() {
    the_whole_life(AptGet::debian("bookworm"));
}

#[test]
#[ignore = "makes a Debian 13: as root, 200 MB over the network, minutes"]
fn apt_of_trixie() {
    the_whole_life(AptGet::debian("trixie"));
}

#[test]
fn a_component_for_each_group() {
    let rules = ["--component", "gfx110x=*-gfx110x", "--component", "gfx120x=*-gfx120x"];
    let served = Served::new(AptGet::bare(), &rules);
    let main = "Components: gfx110x gfx120x main";
    let sources = served.client.root().join("etc/apt/sources.list.d/tested.sources");
    let text = fs::read_to_string(&sources).unwrap();
    assert!(text.contains(main), "{text}");
    fs::write(&sources, text.replace(main, "Components: main gfx110x")).unwrap();
    served.updates();
    served.does(&["install", "rocblas-gfx110X"]);
    served.has(&versions(0, &NAMES[..3]));
    let other = served.apt(&["install", "rocblas-gfx120x"]);
    assert!(other.stderr.contains("Unable to locate package"), "{other:?}");
}

// ---- damage ----

/// Changes a byte in the middle of a file, which is a second name of others.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Every file below a directory whose path has that in it.
fn below(dir: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.to_str().unwrap().contains(part) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_flipped_byte_is_refused() {
    let served = Served::new(AptGet::bare(), &[]);
    served.updates();
    // In a package: apt does not install it, and the next run of ours does not publish it.
    let package = &below(&served.dir, "rocblas-gfx110x_")[0];
    let whole = fs::read(package).unwrap();
    flip(package);
    let refused = served.apt(&["install", "rocblas-gfx110X"]);
    assert_ne!(refused.status, Some(0));
    assert!(refused.stderr.contains("Hash Sum mismatch"), "{refused:?}");
    let stderr = fails(signed("add", &served.dir).args(release(1, "deb", &[])), 1);
    assert!(
        stderr.contains(
            "rocblas-gfx110x_7.1.0-1_amd64.deb: a package of the repository is not what it was"
        ),
        "{stderr}"
    );
    fs::write(package, whole).unwrap();

    // In the indices, of a later publication.
    ok(signed("add", &served.dir).args(release(1, "deb", &[])));
    for index in below(&served.dir, "/by-hash/") {
        flip(&index);
    }
    let refused = served.update();
    assert!(refused.stderr.contains("Hash Sum mismatch"), "{refused:?}");

    // In the file that is signed.
    ok(&mut signed("publish", &served.dir));
    let inrelease = served.dir.join("deb/dists/stable/InRelease");
    let text = fs::read_to_string(&inrelease).unwrap();
    fs::write(&inrelease, text.replace("Label: Example", "Label: Exampel")).unwrap();
    let refused = served.update();
    assert!(refused.stderr.contains("BADSIG") || refused.stderr.contains("invalid"), "{refused:?}");

    // Indices that are damaged are written anew by the next publication.
    ok(&mut signed("publish", &served.dir));
    served.updates();
    served.does(&["install", "rocblas-gfx110X"]);
    served.has(&versions(1, &NAMES[..3]));
}

#[test]
fn gpgv_takes_both_signatures() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(signed("create", &dir).args(release(0, "deb", &[])));
    let dist = dir.join("deb/dists/stable");
    let gpgv = || {
        let mut gpgv = tool("gpgv", "gpgv");
        gpgv.arg("--keyring").arg(public_key());
        gpgv
    };
    ok(gpgv().arg(dist.join("InRelease")));
    ok(gpgv().arg(dist.join("Release.gpg")).arg(dist.join("Release")));
    let text = ok(gpgv().args(["--output", "-"]).arg(dist.join("InRelease")));
    assert_eq!(text, fs::read_to_string(dist.join("Release")).unwrap());
}

// ---- partial publications ----

#[test]
fn a_partial_publication_is_refused_since_it_breaks_clients() {
    let served = Served::new(AptGet::bare(), &[]);
    let before = fs::read(served.dir.join("deb/dists/stable/InRelease")).unwrap();
    served.updates();
    served.does(&["install", "rocblas-gfx110X"]);

    // Generic new, groups old.
    let generic = release(1, "deb", &["rocblas-generic"]);
    let stderr = fails(signed("add", &served.dir).args(&generic), 1);
    let said = "rocblas-gfx110x 7.1.0-1 amd64 needs rocblas-generic (= 7.1.0-1), and the newest \
                rocblas-generic is 7.2.0-1";
    assert!(stderr.contains(said) && stderr.contains("--allow-partial"), "{stderr}");
    // Groups new, generic old; or one group alone.
    for some in [&["rocblas-gfx"][..], &["rocblas-generic", "rocblas-gfx110x"]] {
        fails(signed("add", &served.dir).args(release(1, "deb", some)), 1);
    }
    assert_eq!(fs::read(served.dir.join("deb/dists/stable/InRelease")).unwrap(), before);
    assert_eq!(below(&served.dir, "7.2.0"), Vec::<PathBuf>::new());
    // What nothing needs exactly may come alone.
    ok(signed("add", &served.dir).args(release(1, "deb", &["hip-runtime"])));

    // This is why.
    ok(signed("add", &served.dir).args(&generic).arg("--allow-partial"));
    served.updates();
    let upgrade = served.does(&["upgrade"]);
    assert!(upgrade.stdout.contains("rocblas-generic"), "{upgrade:?}");
    let mut kept = versions(0, &NAMES[..3]);
    kept.insert("hip-runtime".into(), "7.2.0-1".into());
    served.has(&kept);
    served.does(&["purge", "rocblas-gfx110x", "rocblas-generic"]);
    let broken = served.apt(&["install", "rocblas-gfx120x"]);
    assert!(broken.stdout.contains("unmet dependencies"), "{broken:?}");

    // All three.
    ok(signed("add", &served.dir).args(release(1, "deb", &[])));
    served.updates();
    served.does(&["install", "rocblas-gfx120x"]);
    served.has(&versions(1, &["hip-runtime", "rocblas-generic", "rocblas-gfx120X"]));
}

#[test]
fn a_group_goes_only_where_nothing_is_held_back() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(signed("create", &dir).args(release(0, "deb", &[])));
    // Without its group, the generic package can go on.
    ok(signed("remove", &dir).arg("rocblas-gfx120x"));
    // One whose group would be left is refused; the version that all have may go.
    let stderr = fails(signed("remove", &dir).arg("rocblas-generic"), 1);
    assert!(stderr.contains("rocblas-gfx110x 7.1.0-1 amd64 needs rocblas-generic"), "{stderr}");
    // But not later either: whoever has it would be held back.
    let rest = release(1, "deb", &["hip", "rocblas-gen", "rocblas-gfx110x"]);
    let stderr = fails(signed("add", &dir).args(&rest), 1);
    assert!(
        stderr.contains("rocblas-gfx120x 7.1.0-1 amd64 is gone and nothing replaces it"),
        "{stderr}"
    );
    ok(signed("add", &dir).args(&rest).arg("--allow-partial"));
    ok(signed("remove", &dir).arg("rocblas-*=7.2.0-1"));
    fails(signed("remove", &dir).arg("no-such"), 2);
}

// ---- what is taken ----

#[test]
fn another_key_and_directories_without_new_packages_are_refused() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(signed("create", &dir).args(release(0, "deb", &[])));
    let before = fs::read(dir.join("deb/dists/stable/InRelease")).unwrap();
    let key = other_key();
    let with = |action: &str| {
        let mut command = unsigned(action, &dir);
        command.arg("--sign-key").arg(&key);
        command
    };
    for action in ["add", "publish"] {
        let mut command = with(action);
        if action == "add" {
            command.args(release(1, "deb", &[]));
        }
        let stderr = fails(&mut command, 2);
        assert!(
            stderr.contains("is signed by the key") && stderr.contains("--new-key"),
            "{stderr}"
        );
    }
    let empty = temp.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let stderr = fails(signed("add", &dir).arg(&empty), 1);
    assert!(stderr.contains("empty: has no packages in it"), "{stderr}");
    let stderr = fails(signed("add", &dir).arg(dir.join("deb")), 2);
    assert!(stderr.contains("lies in the repository that it would be added to"), "{stderr}");
    // A repository that lies among packages is not packages.
    let stderr = fails(signed("create", &temp.path().join("second")).arg(temp.path()), 1);
    assert!(stderr.contains("has no packages in it"), "{stderr}");
    assert_eq!(fs::read(dir.join("deb/dists/stable/InRelease")).unwrap(), before);
    ok(with("publish").arg("--new-key"));
    ok(&mut with("publish"));
    fails(&mut signed("publish", &dir), 2);
}

#[test]
fn other_bytes_under_a_name_that_is_taken_are_refused() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(signed("create", &dir).args(release(0, "deb", &[])));
    let before = fs::read(dir.join("deb/dists/stable/InRelease")).unwrap();
    let same = ok(signed("add", &dir).args(release(0, "deb", &[])));
    assert!(same.contains("4 there already; it stays as it is"), "{same}");
    let other = temp.path().join("other.deb");
    let mut bytes = fs::read(&release(0, "deb", &["hip-runtime"])[0]).unwrap();
    // The time of the first member.
    bytes[24..34].copy_from_slice(b"1767225601");
    fs::write(&other, bytes).unwrap();
    for _ in 0..2 {
        let stderr = fails(signed("add", &dir).arg(&other), 1);
        assert!(
            stderr.contains("other.deb: hip-runtime 7.1.0-1 amd64 has other bytes"),
            "{stderr}"
        );
        // Once more, when it is gone and clients may still ask for it.
        ok(signed("remove", &dir).args(["hip-runtime"]));
        ok(signed("add", &dir).args(release(1, "deb", &["hip-runtime"])));
    }
    assert_ne!(fs::read(dir.join("deb/dists/stable/InRelease")).unwrap(), before);
    // A key that is forgotten does not make a signed repository an unsigned one.
    let stderr = fails(unsigned("add", &dir).args(release(1, "deb", &[])), 2);
    assert!(stderr.contains("the repository is signed, and there is no key"), "{stderr}");
}

#[test]
fn links_lead_to_files_that_a_server_can_read() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let temp = TempDir::new().unwrap();
    let files = release(0, "deb", &["rocblas"]);
    let into = temp.path().join("in");
    fs::create_dir(&into).unwrap();
    for (file, mode) in files.iter().zip([0o644, 0o600, 0o644]) {
        let at = into.join(file.file_name().unwrap());
        fs::copy(file, &at).unwrap();
        fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
    }
    // The last by a symbolic link alone.
    let last = into.join(files[2].file_name().unwrap());
    fs::rename(&last, temp.path().join("kept")).unwrap();
    symlink("../kept", &last).unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).arg(&into).args(["--link", "--allow-partial"]));
    for (n, file) in files.iter().enumerate() {
        let name = file.file_name().unwrap().to_str().unwrap();
        let pooled = &below(&dir.join("deb/pool"), name)[0];
        let metadata = fs::symlink_metadata(pooled).unwrap();
        assert!(metadata.is_file(), "{name}");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o644, "{name}");
        let source = fs::metadata(into.join(name)).unwrap();
        assert_eq!(metadata.ino() == source.ino(), n != 1, "{name}");
    }
}

#[test]
fn indices_of_an_architecture_go_with_its_last_package() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    let tree = temp.path().join("tree");
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    let control = "Package: arm-tool\nVersion: 1\nArchitecture: arm64\nMaintainer: A <a@example.org>\n\
                   Description: for another machine\n";
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    let arm = temp.path().join("arm-tool.deb");
    let mut build = tool("dpkg-deb", "dpkg");
    ok(build.args(["--root-owner-group", "--build"]).arg(tree).arg(&arm));
    let mut create = unsigned("create", &dir);
    create.args(release(0, "deb", &[])).arg(arm).args(["--keep-publications", "1"]);
    ok(create.args(["--keep-days", "0"]));
    let of_arm = || below(&dir.join("deb/dists"), "arm64");
    assert!(of_arm().iter().any(|path| path.ends_with("main/binary-arm64/Packages.gz")));
    ok(unsigned("remove", &dir).arg("arm-tool"));
    // By hash, for those that have read the older Release.
    let left = of_arm();
    let by_hash = |path: &PathBuf| path.to_str().unwrap().contains("/by-hash/");
    assert!(!left.is_empty() && left.iter().all(by_hash), "{left:?}");
    ok(&mut unsigned("publish", &dir));
    assert_eq!(of_arm(), Vec::<PathBuf>::new());
    assert!(!dir.join("deb/dists/stable/main/binary-arm64").exists());
}

#[test]
fn a_package_from_the_future_does_not_date_the_repository() {
    let temp = TempDir::new().unwrap();
    let late = |name: &str, format, date| {
        let mut package = packages::sample(name, gfxpack::package::spec::Kind::Plain);
        packages::file(&mut package.tree, "opt/tool", 0o644, "x");
        package.date = date;
        packages::write(&package, format, temp.path())
    };
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(release(0, "deb", &[])));
    let now = (DAY_ONE + 9 * DAY).to_string();
    for format in [gfxpack::package::Format::Deb, gfxpack::package::Format::Rpm] {
        let package = late("late", format, DAY_ONE + 10 * DAY);
        let said = "late 7.1.0-1";
        let stderr = fails(unsigned("add", &dir).arg(&package).args(["--date", &now]), 1);
        assert!(
            stderr.contains(said) && stderr.contains("is dated later than the publication"),
            "{stderr}"
        );
        let stderr = fails(unsigned("add", &dir).arg(&package).env("SOURCE_DATE_EPOCH", &now), 1);
        assert!(stderr.contains("is dated later than the publication"), "{stderr}");
    }
    // The last second that 32 bits have, after which no publication could follow.
    let end = late("end", gfxpack::package::Format::Rpm, u32::MAX.into());
    let stderr = fails(unsigned("add", &dir).arg(&end), 1);
    assert!(stderr.contains("past 2106-02-07"), "{stderr}");
    let list = ok(unsigned("list", &dir).arg("--json"));
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!((&list["publication"], &list["date"]), (&1.into(), &DAY_ONE.into()), "{list}");
    // As the hint says.
    let later = (DAY_ONE + 10 * DAY).to_string();
    ok(unsigned("add", &dir)
        .arg(temp.path().join("late_7.1.0-1_amd64.deb"))
        .args(["--date", &later]));
}

#[test]
fn a_pipe_is_no_package() {
    let temp = TempDir::new().unwrap();
    let pipe = temp.path().join("x.deb");
    ok(std::process::Command::new("mkfifo").arg(&pipe));
    for path in [&pipe, temp.path()] {
        let dir = temp.path().join("repo");
        let stderr = fails(unsigned("create", &dir).arg(path), 2);
        assert!(stderr.contains("x.deb: is a pipe, a socket or a device"), "{stderr}");
    }
}

#[test]
fn files_of_removed_packages_stay_for_as_long_as_was_said() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    let mut create = unsigned("create", &dir);
    create.args(release(0, "deb", &[])).args(release(1, "deb", &[]));
    ok(create.args(["--keep-publications", "1", "--keep-days", "0"]));
    ok(unsigned("prune", &dir).args(["--keep", "1"]));
    // Of clients that have read the index before.
    assert_eq!(below(&dir, "7.1.0-1").len(), 4);
    ok(&mut unsigned("publish", &dir));
    assert_eq!(below(&dir, "7.1.0-1"), Vec::<PathBuf>::new());
    assert_eq!(below(&dir, "7.2.0-1").len(), 4);
    ok(unsigned("add", &dir).args(release(0, "deb", &[])));
    assert_eq!(below(&dir, "7.1.0-1").len(), 4);
}

#[test]
fn merging_loses_no_version() {
    let temp = TempDir::new().unwrap();
    let (one, other) = (temp.path().join("one"), temp.path().join("other"));
    ok(unsigned("create", &one).args(release(0, "deb", &[])).args(release(2, "deb", &[])));
    ok(unsigned("create", &other).args(release(1, "deb", &[])).args(release(0, "deb", &[])));
    let merged = ok(unsigned("merge", &one).arg(&other));
    assert!(merged.contains("4 packages added, 4 there already"), "{merged}");
    let list = ok(&mut unsigned("list", &one));
    let generic: Vec<&str> = list.lines().filter(|line| line.contains("rocblas-generic")).collect();
    let line = |version: &str| format!("deb rocblas-generic {version}-1 amd64");
    assert_eq!(generic, RELEASES.map(line));
    // What is damaged over there does not come along.
    flip(&below(&other, "rocblas-generic_7.2.0")[0]);
    let stderr = fails(unsigned("merge", &one).arg(&other), 1);
    assert!(stderr.contains("a package of that repository is not what it was"), "{stderr}");
    ok(unsigned("prune", &one).args(["--keep", "2"]));
    let list = ok(&mut unsigned("list", &one));
    assert!(!list.contains("7.1.0-1") && list.lines().count() == 8, "{list}");
}

#[test]
fn a_control_file_that_ends_a_stanza_is_refused() {
    let temp = TempDir::new().unwrap();
    let tree = temp.path().join("tree");
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    let head = "Package: evil\nVersion: 1-1\nArchitecture: amd64\nMaintainer: N <n@localhost>\n";
    let control = format!("{head}Description: good\n more\n");
    let deb = temp.path().join("evil.deb");
    let make = |control: &str| {
        fs::write(tree.join("DEBIAN/control"), control).unwrap();
        ok(tool("dpkg-deb", "dpkg").args(["--nocheck", "--build"]).arg(&tree).arg(&deb));
    };
    make(&control);
    ok(unsigned("create", &temp.path().join("good")).arg(&deb));
    for (n, (bad, said)) in [
        (format!("{control}\nPackage: libc6\nVersion: 99\nArchitecture: amd64\n"), "one stanza"),
        (control.replace("evil", "../evil"), "Package in control"),
        (control.replace("1-1", "1/../1"), "Version in control"),
        (control.replace("amd64", "a b"), "Architecture in control"),
        (control.replace("good", "go\rod"), "no control characters"),
        (format!("{control}package: other\n"), "each field once"),
    ]
    .into_iter()
    .enumerate()
    {
        make(&bad);
        let stderr = fails(unsigned("create", &temp.path().join(n.to_string())).arg(&deb), 1);
        assert!(stderr.contains(said) && stderr.contains("evil.deb"), "{bad}: {stderr}");
    }
    fs::write(&deb, "!<arch>\nnothing").unwrap();
    let cut = temp.path().join("cut");
    fails(unsigned("create", &cut).arg(&deb), 1);
    assert!(!cut.exists());
    // It can be made then, and be empty.
    ok(&mut unsigned("create", &cut));
    let index = fs::read_to_string(cut.join("deb/dists/stable/main/binary-amd64/Packages"));
    assert_eq!(index.unwrap(), "");
    assert!(cut.join("rpm/repodata/repomd.xml").exists());
    fails(&mut unsigned("create", &cut), 2);
}

#[test]
fn the_same_packages_and_date_give_the_same_bytes() {
    let temp = TempDir::new().unwrap();
    let text = |name: &str, jobs: &str, order: &[usize]| {
        let dir = temp.path().join(name);
        let packages: Vec<_> = order.iter().flat_map(|n| release(*n, "deb", &[])).collect();
        ok(signed("create", &dir).args(&packages).args(["--jobs", jobs]));
        fs::read_to_string(dir.join("deb/dists/stable/InRelease")).unwrap()
    };
    let one = text("one", "1", &[0, 1]);
    assert_eq!(one, text("other", "4", &[1, 0]));
    // Of the newest package.
    assert!(one.contains("Date: Fri, 02 Jan 2026 00:00:00 +0000\n"), "{one}");
    // Grown one by one, at a date that is given, as made at once at that date.
    let (grown, once) = (temp.path().join("grown"), temp.path().join("once"));
    let date = (DAY_ONE + 9 * DAY).to_string();
    ok(signed("create", &grown).args(release(0, "deb", &[])));
    ok(signed("add", &grown).args(release(1, "deb", &[])).env("SOURCE_DATE_EPOCH", &date));
    ok(signed("create", &once)
        .args(release(1, "deb", &[]))
        .args(release(0, "deb", &[]))
        .args(["--date", &date]));
    let inrelease = |dir: &Path| fs::read(dir.join("deb/dists/stable/InRelease")).unwrap();
    assert_eq!(inrelease(&grown), inrelease(&once));
}

#[test]
fn two_directories_are_enough() {
    let temp = TempDir::new().unwrap();
    let (out, dir) = (temp.path().join("out"), temp.path().join("repo"));
    for n in 0..2 {
        fs::create_dir_all(&out).unwrap();
        for format in ["deb", "rpm"] {
            for package in release(n, format, &[]) {
                fs::copy(&package, out.join(package.file_name().unwrap())).unwrap();
            }
        }
        let mut publish = gfxpack();
        publish.args(["repo", "--packages-dir"]).arg(&out).arg("--output-dir").arg(&dir);
        let said = ok(publish.args(["--json", "--sign-key"]).arg(repositories::secret_key()));
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["outcome"]["added"].as_array().unwrap().len(), 8, "{said}");
        assert_eq!(said["outcome"]["same"], 8 * n, "{said}");
        assert_eq!(said["outcome"]["published"]["publication"], n + 1, "{said}");
        for top in ["deb/dists/stable/InRelease", "rpm/repodata/repomd.xml.asc"] {
            assert!(dir.join(top).exists(), "{top}");
        }
    }
    assert_eq!(ok(&mut unsigned("list", &dir)).lines().count(), 16);
    fails(gfxpack().args(["repo", "--output-dir"]).arg(&dir), 2);
}

#[test]
fn a_list_says_what_the_repository_is() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("r");
    let mut create = signed("create", &dir);
    create.args(["--suite", "stable", "--codename", "seven", "--component", "gfx110x=*-gfx110x"]);
    ok(create.args(release(0, "deb", &[])).args(["--date", &DAY_ONE.to_string()]));
    let ran = run(gfxpack().args(["repo", "list"]).arg(&dir));
    let gpg = ok(tool("gpg", "gnupg").args(["--with-colons", "--show-keys"]).arg(public_key()));
    let fingerprint = gpg.lines().find_map(|line| line.strip_prefix("fpr:::::::::")).unwrap();
    let key = fingerprint.trim_end_matches(':');
    let about = format!(
        "suite: stable (codename seven)\ncomponents: main gfx110x\n\
         published: 2026-01-01T00:00:00Z (publication 1)\nsigned: by {key}\npackages: 4\n"
    );
    assert_eq!((ran.status, ran.stderr), (Some(0), about));
    assert_eq!(ran.stdout.lines().count(), 4, "{}", ran.stdout);
    let json = ok(gfxpack().args(["repo", "list", "--json"]).arg(&dir));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["components"], serde_json::json!(["main", "gfx110x"]));
    let said = [&json["suite"], &json["codename"], &json["published"], &json["key"]];
    assert_eq!(said, ["stable", "seven", "2026-01-01T00:00:00Z", key]);
}
