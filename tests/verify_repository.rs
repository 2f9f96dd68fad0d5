//! Every way to ruin a repository that we could think of, and which check sees it.
//!
//! A repository with two releases is made and signed. Then a file of it is damaged, an index is edited and
//! everything above it made and signed anew, as somebody with the key could do it, or the repository is made of
//! other packages. The undamaged one must give no finding. The table in `docs/verify.md` is made from the one in
//! `verify_repository/damages.rs` (`GFXPACK_UPDATE_DOCS=1` writes it).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::semicolon_if_nothing_returned, reason = "damages are expressions in a table")]

mod common;
#[path = "common/damage.rs"]
mod damage;
#[path = "verify_repository/damages.rs"]
mod damages;
#[path = "common/keys.rs"]
mod keys;
#[path = "common/packages.rs"]
mod packages;
#[path = "common/repositories.rs"]
mod repositories;
#[path = "verify_repository/victim.rs"]
mod victim;

use std::fs;

use gfxpack::package::Format;
use gfxpack::package::spec::{Package, Relation, RelationKind};
use gfxpack::tree::{Entry, Source, TreePath};
use gfxpack::verify::{Options, Report};
use globset::Glob;
use tempfile::TempDir;

use common::{fails, gfxpack, ok, tool};
use damage::{Subject, damage_all, damage_table, table_is_on_the_page};
use damages::DAMAGES;
use packages::{DATE, write};
use repositories::{public_key, release, secret_key, signed};
use victim::{Deb, LIBRARY, Rpm, extra, flip, good, renumber, signed_for_rpm6, verify_with};

#[test]
fn damage_to_an_apt_repository_is_caught() {
    damage_all(DAMAGES, Deb);
}

#[test]
fn damage_to_an_rpm_repository_is_caught() {
    damage_all(DAMAGES, Rpm);
}

#[test]
fn the_page_lists_the_damages() {
    table_is_on_the_page("repository damages", &damage_table(DAMAGES));
}

/// Nothing was found.
#[track_caller]
fn assert_silent(report: &Report) {
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    assert_eq!(report.summary.len(), 1);
}

#[test]
fn good_repositories_are_passed() {
    let report = verify_with(&good().join("now"), &Options::default());
    assert_silent(&report);
    assert_eq!(report.artifacts.len(), 16);
    assert!(report.files >= 16 && report.bytes > 10_000, "{report:?}");

    // Files that may be in two packages: those that cannot be installed together, that one takes over, and in .rpm
    // the same bytes.
    for side in [Deb, Rpm] {
        let victim = side.victim();
        let replaces = Relation::any("rocblas-generic");
        let mut rival = extra("rival", LIBRARY, "x");
        rival.relate(RelationKind::Conflicts, replaces.clone());
        let mut all = vec![rival];
        if side == Deb {
            let mut heir = extra("heir", LIBRARY, "y");
            heir.relate(RelationKind::Replaces, replaces);
            heir.relate(RelationKind::Conflicts, Relation::any("rival"));
            all.push(heir);
        } else {
            all.extend(["same1", "same2"].map(|name| extra(name, "opt/same", "the same")));
        }
        // What needs the host code of one release does not meet that of another.
        for (number, version) in ["7.1.0-1", "7.2.0-1"].into_iter().enumerate() {
            let mut package = extra(&format!("of-release-{number}"), "opt/of-release", version);
            package.relate(RelationKind::Depends, Relation::exactly("rocblas-generic", version));
            all.push(package);
        }
        victim.add(&all);
        assert_silent(&side.report_on(&victim));
    }
}

#[test]
fn only_what_was_verified_is_signed() {
    // By the right key, as rpm 6 has it.
    let victim = Rpm.victim();
    let rpm = signed_for_rpm6(victim.dir.path(), &fs::read(secret_key()).unwrap());
    ok(signed("add", &victim.path()).arg(rpm));
    assert_silent(&Rpm.report_on(&victim));

    // Alone in a repository, which does not tell clients that packages are signed.
    let dir = TempDir::new().unwrap();
    let rpm = write(&extra("plain", "opt/plain", "x"), Format::Rpm, dir.path());
    renumber(&rpm, 269, 278);
    let repository = dir.path().join("r");
    ok(signed("create", &repository).arg(rpm).args(["--url", "https://x/y"]));
    let text = fs::read_to_string(repository.join("rpm/gfxpack.repo")).unwrap();
    assert!(text.contains("\ngpgcheck=0\nrepo_gpgcheck=1\n"), "{text}");
    let mut verify = gfxpack();
    verify.args(["--quiet", "verify", "--repo-dir"]).arg(repository).arg("--key").arg(public_key());
    let said = fails(&mut verify, 1);
    assert!(said.contains("[repo-signature] rpm/Packages/p/plain-7.1.0-1"), "{said}");
}

#[test]
fn packages_that_clients_would_refuse_are_told_with_the_right_cause() {
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("r");
    ok(signed("create", &at).args(release(0, "rpm", &[])).args(["--url", "https://x/y"]));
    let verify = |more: &[&str]| {
        let mut verify = gfxpack();
        verify.args(["verify", "--repo-dir"]).arg(&at).args(more);
        verify
    };
    let key = public_key();
    let key = ["--key", key.to_str().unwrap()];
    // Metadata vouch for them, and clients are told so.
    ok(&mut verify(&key));
    let file = at.join("rpm/gfxpack.repo");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\ngpgcheck=0\nrepo_gpgcheck=1\n"), "{text}");
    fs::write(&file, text.replace("\ngpgcheck=0", "\ngpgcheck=1")).unwrap();
    for more in [&key[..], &[]] {
        let ran = common::run(&mut verify(more));
        assert_eq!(ran.status, Some(1), "{ran:?}");
        assert!(ran.stdout.contains("error [repo-unsigned] 4 findings\n"), "{}", ran.stdout);
        let ran = common::run(verify(more).arg("--json"));
        let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let findings = json["report"]["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 4, "{json}");
        let first = &findings[0];
        assert_eq!(first["artifact"], "rpm/Packages/h/hip-runtime-7.1.0-1.x86_64.rpm");
        assert_eq!(first["message"], "is not signed itself");
        assert_eq!(first["expected"], "a signature, as rpm/gfxpack.repo says gpgcheck=1");
        assert!(first["mend"].as_str().unwrap().contains("--sign-packages"), "{first}");
    }
}

#[test]
fn what_comes_from_elsewhere_can_be_named() {
    let victim = Rpm.victim();
    let mut package = extra("more", "opt/more", "x");
    package.relate(RelationKind::Depends, Relation::any("elsewhere"));
    victim.add(&[package]);
    assert_silent(&verify_with(&victim.path(), &Options::default()));
    let with = |glob: &str| {
        let external = vec![Glob::new(glob).unwrap()];
        verify_with(&victim.path(), &Options { external, ..Options::default() })
    };
    assert_silent(&with("else*"));
    let found = with("none").findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].id.id(), "relation-unmet");
}

#[test]
fn what_comes_from_elsewhere_is_listed_by_format_and_name() {
    let victim = Rpm.victim();
    for name in ["more", "most"] {
        let mut package = extra(name, &format!("opt/{name}"), "x");
        for needs in ["elsewhere", "libc.so.6()(64bit)", "hip-runtime"] {
            package.relate(RelationKind::Depends, Relation::any(needs));
        }
        victim.add(&[package]);
        fs::remove_dir_all(victim.dir.path().join("new")).unwrap();
    }
    let mut verify = gfxpack();
    verify.args(["verify", "--repo-dir"]).arg(victim.path());
    let text = ok(&mut verify);
    let end = "\nneeded from elsewhere (rpm): elsewhere\npassed: 18 packages, ";
    assert!(text.contains(end), "{text}");
    // The content of files is not read.
    assert!(!text.contains("kernel"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&ok(verify.arg("--json"))).unwrap();
    let report = &json["report"];
    let needed_by = "Packages/m/more-7.1.0-1.x86_64.rpm";
    let expected = serde_json::json!([
        { "format": "rpm", "name": "elsewhere", "needed_by": needed_by, "packages": 2 }
    ]);
    assert_eq!(report["relations"], expected);
    assert_eq!(report.get("kernels"), None);

    // Named, it is no news.
    let json = ok(verify.args(["--external", "else*"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["report"].get("relations"), None);
}

#[test]
fn a_repository_expires_by_source_date_epoch_or_the_clock() {
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("r");
    let mut create = signed("create", &at);
    ok(create.args(release(0, "deb", &[])).args(["--valid-days", "1", "--date", "1767226600"]));
    let verify = |time: Option<&str>| {
        let mut verify = gfxpack();
        verify.args(["verify", "--repo-dir"]).arg(&at);
        match time {
            Some(time) => verify.env("SOURCE_DATE_EPOCH", time),
            None => verify.env_remove("SOURCE_DATE_EPOCH"),
        };
        verify
    };
    // To the second: apt refuses what is over, not what ends now.
    ok(&mut verify(Some("1767313000")));
    for time in [Some("1767313001"), None] {
        let ran = common::run(&mut verify(time));
        assert_eq!(ran.status, Some(1), "{time:?}");
        let finding = "error [repo-expired] deb/dists/stable/Release\n  found: is valid until Fri, 02 Jan 2026 00:16:40";
        assert!(ran.stdout.contains(finding), "{}", ran.stdout);
    }
}

#[test]
fn indices_that_say_anything_are_read_without_harm() {
    for side in [Deb, Rpm] {
        let victim = side.victim();
        let mut seed = 1_u32;
        let mut random = move |below: usize| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as usize % below
        };
        let text = match side {
            Deb => {
                fs::read_to_string(victim.at("dists/stable/main/binary-amd64/Packages")).unwrap()
            }
            Rpm => {
                let packed = fs::read(victim.index()).unwrap();
                String::from_utf8(zstd::decode_all(&packed[..]).unwrap()).unwrap()
            }
        };
        for _ in 0..20 {
            let mut lines: Vec<&str> = text.lines().collect();
            for _ in 0..random(8) {
                let (from, to) = (random(lines.len()), random(lines.len()));
                match random(4) {
                    0 => drop(lines.remove(from)),
                    1 => lines.swap(from, to),
                    2 => lines[from] = &lines[to][..lines[to].len() / 2],
                    _ => lines[from] = "<!DOCTYPE a [<!ENTITY b \"c\">]><a x='&b;'>: &#0; &lt",
                }
            }
            let victim = side.victim();
            victim.edit(|_| lines.join("\n"));
            side.report_on(&victim);
        }
    }
}

#[test]
fn repositories_of_other_programs_are_verified() {
    let dir = TempDir::new().unwrap();
    for path in release(0, "rpm", &[]) {
        fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    ok(tool("createrepo_c", "createrepo-c").arg("--quiet").arg(dir.path()));
    let json = ok(gfxpack().args(["--json", "verify", "--repo-dir"]).arg(dir.path()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["status"], "passed", "{json}");
    assert_eq!(json["report"]["artifacts"].as_array().unwrap().len(), 4);

    flip(&dir.path().join("rocblas-generic-7.1.0-1.x86_64.rpm"), 10);
    let mut verify = gfxpack();
    verify.args(["--quiet", "verify", "--repo-dir"]).arg(dir.path());
    let said = fails(&mut verify, 1);
    assert!(said.contains("[repo-file] rocblas-generic-7.1.0-1.x86_64.rpm\n"), "{said}");
    let said = fails(verify.arg("--key").arg(public_key()), 1);
    assert!(
        said.contains("[repo-signature] repodata/repomd.xml\n  found: is not signed"),
        "{said}"
    );
    assert!(!said.contains("repo-index"), "{said}");
}

/// Names that are no UTF-8 can be one in the metadata, which have to be text. The files are two.
#[test]
fn names_of_files_are_compared_as_the_bytes_that_they_are() {
    let odd = |name: &str, path: &[u8], content: &str| {
        let mut package = extra(name, "opt/own", "x");
        package.tree.remove(&packages::path("opt/own"));
        let entry = Entry::file(0o644, Some(DATE), Source::bytes(content.as_bytes().to_vec()));
        package.tree.insert(TreePath::new(path).unwrap(), entry).unwrap();
        package
    };
    let report = |all: &[Package]| {
        let victim = Rpm.victim();
        victim.add(all);
        Rpm.report_on(&victim)
    };
    // All are `/opt/é` in the metadata: createrepo_c reads what is no UTF-8 as Latin-1.
    let latin1 = odd("latin1", b"opt/\xe9", "one");
    let utf8 = odd("utf8", "opt/é".as_bytes(), "two");
    let more = odd("more", b"opt/\xe9\x80", "three");
    assert_silent(&report(&[latin1.clone(), utf8, more, odd("same", b"opt/\xe9", "one")]));
    let two = report(&[latin1, odd("rival", b"opt/\xe9", "another")]);
    let ids: Vec<_> = two.findings.iter().map(|finding| finding.id.id()).collect();
    assert_eq!(ids, ["file-conflict"], "{:#?}", two.findings);
}
