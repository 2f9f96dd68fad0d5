//! The metadata of rpm repositories, held against createrepo_c over the same packages.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/packages.rs"]
mod packages;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{example_config, example_packages, example_shards, gfxpack, ok, repo, tool};
use gfxpack::package::Format;
use gfxpack::package::spec::{Kind, Package};
use gfxpack::repo::rpm::read;
use gfxpack::tree::{Entry, EntryKind, Source, TreePath};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Packages with all that metadata can say of one, as far as rpmbuild makes it.
const SPECS: [(&str, &str); 3] = [
    (
        "everything",
        r#"
Name: everything
Epoch: 2
Version: 1.2~rc1^git1
Release: 3
Summary: A "quoted" <summary> & more, zażółć
License: MIT and (BSD or Zlib)
Group: System/Libraries
Vendor: Example <vendor>
Packager: Someone <someone@example.org>
URL: https://example.org/?a=1&b=2
BuildArch: noarch
Provides: virtual = 5:1-2, plain, thing(of:kind) = 3
Provides: self = 1
Requires: self = 1, self = 2
Requires: foo >= 1:2-3, bar < 4, baz, baz, qux > 1, quux <= 2-1
Requires: (a or b >= 3), (c if d else e), /usr/bin/everything, /etc/everything.conf, /usr/bin/other
Requires: libc.so.6()(64bit), libc.so.6(GLIBC_2.4)(64bit), libc.so.6(GLIBC_2.34)(64bit)
Requires(pre): before
Requires(post): after = 1
Requires(preun): later
Conflicts: evil <= 6, (bad and worse)
Obsoletes: old < 2
Recommends: nice >= 1, (x if y)
Suggests: maybe
Supplements: modalias(rocblas-generic:pci:v00001002d0000744Csv*sd*bc[01][23]sc*i*)
Supplements: (kernel and driver)
Enhances: other = 2
%description
  Lines, and blanks at the start.

<b>&amp; "quotes" 'and' ]]> more</b>	tab
%install
mkdir -p %{buildroot}/usr/bin %{buildroot}/etc %{buildroot}/opt/a/b %{buildroot}/usr/lib
echo '#!/bin/sh' > %{buildroot}/usr/bin/everything
echo x > %{buildroot}/etc/everything.conf
echo x > "%{buildroot}/opt/a/with blank & <sign>"
echo x > %{buildroot}/opt/a/zażółć
echo x > %{buildroot}/usr/lib/sendmail
ln -s everything %{buildroot}/usr/bin/link
%files
/usr/bin/everything
/usr/bin/link
%config(noreplace) /etc/everything.conf
%ghost /etc/ghost.conf
%ghost /opt/a/ghost
%dir /opt/a
/opt/a/b
"/opt/a/with blank & <sign>"
/opt/a/zażółć
/usr/lib/sendmail
%changelog
* Fri Jan 02 2026 Second <b@example.org> - 1.2-3
- later & <better>
* Thu Jan 01 2026 Fourth <b@example.org> - 1.2-2
- the same day
* Thu Jan 01 2026 Third - 1.2-1
- the same day, earlier
  and a second line
* Mon Dec 01 2025 A <a@example.org> 12
- 12
* Mon Nov 24 2025 A <a@example.org> 11
- 11
* Mon Nov 17 2025 A <a@example.org> 10
- 10
* Mon Nov 10 2025 A <a@example.org> 9
- 9
* Mon Nov 03 2025 A <a@example.org> 8
- 8
* Mon Oct 27 2025 A <a@example.org> 7
- 7
* Mon Oct 20 2025 A <a@example.org> 6
- 6
* Mon Oct 13 2025 A <a@example.org> 5
- 5
* Mon Oct 06 2025 A <a@example.org> 4
- 4
"#,
    ),
    (
        "bare",
        "Name: bare\nVersion: 1\nRelease: 1\nSummary: Next to nothing\nLicense: MIT\n\
         BuildArch: noarch\n%description\n%files\n",
    ),
    (
        "latin",
        // The bytes of `café` in Latin-1 are put in below.
        "Name: latin\nVersion: 1\nRelease: 1\nSummary: caf@ au lait\nLicense: MIT\n\
         BuildArch: noarch\n%description\nUn caf@, s'il vous pla\u{ee}t.\n\
         %install\nmkdir -p %{buildroot}/opt/caf@\n\
         touch %{buildroot}/opt/caf@/cr@me %{buildroot}/opt/caf@/plain\n%files\n/opt/caf@\n",
    ),
];

/// Builds the specs with rpmbuild, and the packages of the examples with gfxpack.
fn make_packages(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let temp = tempfile::tempdir().unwrap();
    for (name, text) in SPECS {
        let file = temp.path().join(format!("{name}.spec"));
        let bytes: Vec<u8> = text
            .bytes()
            .map(|byte| if name == "latin" && byte == b'@' { 0xe9 } else { byte })
            .collect();
        fs::write(&file, bytes).unwrap();
        let mut build = tool("rpmbuild", "rpm");
        build.arg("--define").arg(format!("_topdir {}", temp.path().display()));
        build.args(["--define", "_invalid_encoding_terminates_build 0"]);
        // Not by the clock: a package that is dated later than its repository is refused.
        build.args(["--define", "use_source_date_epoch_as_buildtime 1"]);
        build.args(["--define", "_source_payload w1.gzdio", "-ba"]).arg(&file);
        ok(build.env("SOURCE_DATE_EPOCH", "1767614400"));
    }
    for part in ["RPMS/noarch", "SRPMS"] {
        for entry in fs::read_dir(temp.path().join(part)).unwrap().map(Result::unwrap) {
            // One source package will do.
            if part == "RPMS/noarch" || entry.file_name().to_str().unwrap().starts_with("every") {
                fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
            }
        }
    }
    let out = temp.path().join("out");
    ok(gfxpack()
        .arg("build")
        .arg("--input-shards-dir")
        .arg(example_shards())
        .arg("--config")
        .arg(example_config())
        .arg("--packages")
        .arg(example_packages())
        .arg("--output-dir")
        .arg(&out)
        .args(["--version", "7.1.0", "--release", "1", "--format", "rpm"])
        .env("SOURCE_DATE_EPOCH", "1767614400"));
    for entry in fs::read_dir(out).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
}

/// The facts of a repository's metadata.
fn facts(dir: &Path) -> Value {
    let mut check = tool("/usr/bin/python3", "python3 python3-zstandard");
    let json = ok(check.arg(repo().join("tests/check/repodata.py")).arg(dir));
    serde_json::from_str(&json).unwrap()
}

fn create(dir: &Path, packages: &Path, more: &[&str]) -> PathBuf {
    let mut create = gfxpack();
    create.args(["repo", "create"]).arg(dir).arg(packages).args(more);
    ok(create.env("SOURCE_DATE_EPOCH", "1767700000"));
    dir.join("rpm")
}

/// Takes out of the facts what is allowed to differ; docs/repositories.md gives the reasons.
fn comparable(facts: &Value) -> Value {
    let mut packages = facts["packages"].clone();
    for package in packages.as_object_mut().unwrap().values_mut() {
        let primary = package["primary"].as_object_mut().unwrap();
        // Another layout: the file is the same by its digest.
        primary.remove("location").unwrap();
        // When the file was last written, where ours is the date of the package.
        primary["time"].as_object_mut().unwrap().remove("file").unwrap();
        // createrepo_c lists only the highest of the C library's versions.
        if let Some(requires) = primary.get_mut("requires") {
            let is_libc = |one: &Value| one["name"].as_str().unwrap().starts_with("libc.so.6");
            requires.as_array_mut().unwrap().retain(|one| !is_libc(one));
        }
    }
    packages
}

#[test]
fn metadata_hold_what_createrepo_c_finds() {
    let temp = tempfile::tempdir().unwrap();
    let theirs = temp.path().join("theirs");
    make_packages(&theirs);
    ok(tool("createrepo_c", "createrepo-c").arg("--quiet").arg(&theirs));
    let expected = facts(&theirs);
    let names = expected["packages"].as_object().unwrap().values();
    let mut names: Vec<_> = names.map(|one| one["primary"]["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert!(names.len() > 8 && names.contains(&"rocblas-gfx110X"), "{names:?}");
    for compression in ["zstd", "gzip"] {
        let ours = temp.path().join(compression);
        let ours = create(&ours, &theirs, &["--allow-partial", "--rpm-compression", compression]);
        let found = facts(&ours);
        assert_eq!(found["revision"], "1767700000");
        let (found, expected) = (comparable(&found), comparable(&expected));
        for (id, package) in expected.as_object().unwrap() {
            assert_eq!(found[id], *package, "{}", package["primary"]["name"]);
        }
        assert_eq!(found.as_object().unwrap().len(), expected.as_object().unwrap().len());
    }

    // What is taken out above is there, and is right.
    let ours = facts(&temp.path().join("zstd/rpm"));
    let ours = ours["packages"].as_object().unwrap();
    let everything = ours
        .values()
        .find(|one| one["primary"]["name"] == "everything" && one["primary"]["arch"] == "noarch");
    let primary = &everything.unwrap()["primary"];
    let requires = primary["requires"].as_array().unwrap();
    let libc: Vec<_> = requires
        .iter()
        .filter_map(|one| one["name"].as_str().unwrap().strip_prefix("libc.so.6"))
        .collect();
    assert_eq!(libc.len(), 3, "{libc:?}");
    assert_eq!(
        primary["location"]["href"],
        "Packages/e/epoch-2/everything-1.2~rc1^git1-3.noarch.rpm"
    );
    assert_eq!(primary["time"]["file"], primary["time"]["build"]);
    let latin = ours.values().find(|one| one["primary"]["name"] == "latin").unwrap();
    assert_eq!(latin["primary"]["summary"], "café au lait");
    assert!(latin["filelists"].to_string().contains("/opt/café/créme"), "{latin}");
}

/// A package of thousands of names, most of them no UTF-8, in folders of either kind; or with `mixed` those of which one part
/// is UTF-8 with other letters than ASCII and the other is no UTF-8.
fn odd_names(name: &str, mixed: bool, dir: &Path) {
    let mut package = packages::sample(name, Kind::Plain);
    let put = |package: &mut Package, at: Vec<u8>, kind: EntryKind| {
        package
            .tree
            .insert(TreePath::new(at).unwrap(), Entry { mode: 0o644, mtime: None, kind })
            .unwrap();
    };
    // ASCII, with what the writer has in the place of other bytes; UTF-8, with the sign that readers put there; Latin-1; bytes
    // of no encoding; a character cut short.
    let words: [&[u8]; 7] = [
        b"plain",
        b"?",
        "ü".as_bytes(),
        "\u{fffd}".as_bytes(),
        b"\xfc",
        b"\xff\xfe\x80",
        b"\xe2\x82",
    ];
    let below: &[u8] = if mixed { b"opt/mixed/" } else { b"opt/" };
    for folder in words {
        for n in 0..100 {
            for word in words {
                let is_utf8 = |part| std::str::from_utf8(part).is_ok();
                let is_mixed =
                    !folder.is_ascii() && !word.is_ascii() && is_utf8(folder) != is_utf8(word);
                if mixed != is_mixed {
                    continue;
                }
                let at = [below, folder, b"/", word, format!("-{n}").as_bytes()].concat();
                put(&mut package, at.clone(), EntryKind::File(Source::bytes(vec![1; n])));
                if n % 25 == 0 {
                    let other = [&at[..], b"~"].concat();
                    put(&mut package, other, EntryKind::HardLink(TreePath::new(at).unwrap()));
                }
            }
        }
        if !mixed {
            let link = [below, folder, b"/link"].concat();
            put(&mut package, link, EntryKind::Symlink(b"\xfc-1".to_vec()));
        }
    }
    packages::write(&package, Format::Rpm, dir);
}

#[test]
fn names_of_any_bytes_are_what_createrepo_c_makes_of_them_and_dnf_lists_them() {
    let temp = tempfile::tempdir().unwrap();
    let theirs = temp.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    odd_names("odd-names", false, &theirs);
    ok(tool("createrepo_c", "createrepo-c").arg("--quiet").arg(&theirs));
    let ours = create(&temp.path().join("ours"), &theirs, &[]);
    let (found, expected) = (comparable(&facts(&ours)), comparable(&facts(&theirs)));
    let paths = |facts: &Value| {
        let package = facts.as_object().unwrap().values().next().unwrap().clone();
        let list = package["filelists"]["files"].as_array().unwrap().clone();
        list.iter().map(ToString::to_string).collect::<BTreeSet<_>>()
    };
    let (one, other) = (paths(&found), paths(&expected));
    assert!(one == other, "{:?}", one.symmetric_difference(&other).take(9).collect::<Vec<_>>());
    assert_eq!(found, expected);
    let (dir, more) = (ours.parent().unwrap(), temp.path().join("more"));
    let verify = || ok(gfxpack().args(["--quiet", "verify", "--repo-dir"]).arg(dir));
    verify();

    // Each part is read for itself, where createrepo_c reads the whole path as Latin-1.
    fs::create_dir(&more).unwrap();
    odd_names("mixed-names", true, &more);
    ok(gfxpack().args(["repo", "add"]).arg(dir).arg(&more));
    verify();
    let both = facts(&ours).to_string();
    assert!(both.contains("\"/opt/mixed/ü/ü-1\"") && !both.contains("\"/opt/mixed/Ã/ü-1\""));

    let cache = temp.path().join("cache");
    let mut dnf = tool("dnf", "dnf");
    dnf.args(["--quiet", "--disableplugin=*", "--setopt=reposdir=/nonexistent", "--releasever=1"]);
    dnf.arg(format!("--setopt=cachedir={}", cache.display()));
    dnf.arg(format!("--installroot={}", temp.path().join("root").display()));
    dnf.arg(format!("--repofrompath=ours,{}", ours.display())).arg("--nogpgcheck");
    let listed = ok(dnf.args(["repoquery", "--list", "odd-names"]));
    let listed: Vec<&str> = listed.lines().filter(|line| line.starts_with('/')).collect();
    assert_eq!(listed.len(), one.len());
}

#[test]
fn damaged_headers_are_refused_and_nothing_worse() {
    let temp = tempfile::tempdir().unwrap();
    make_packages(temp.path());
    let good = fs::read(temp.path().join("everything-1.2~rc1^git1-3.noarch.rpm")).unwrap();
    let magic = [0x8e, 0xad, 0xe8, 1];
    let mut headers = good.windows(4).enumerate().filter(|(_, w)| *w == magic).map(|(at, _)| at);
    let (signature, main) = (headers.next().unwrap(), headers.next().unwrap());
    let word = |at: usize| u32::from_be_bytes(good[at..at + 4].try_into().unwrap()) as usize;
    let size = 16 + 16 * word(main + 8) + word(main + 12);
    let hex =
        |bytes: &[u8]| Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let stated = hex(&good[main..main + size]);
    let digest_at = good.windows(64).position(|w| w == stated.as_bytes()).unwrap();
    read(&&good[..]).unwrap();
    let (mut refused, mut tried) = (0, 0);
    // In the tables all of it; in the stores every few bytes.
    let ranges = (signature..main).step_by(3).chain((main..main + size).step_by(5));
    for at in ranges {
        for value in [0, 1, 0x7f, 0xff, good[at].wrapping_add(1)] {
            let mut bad = good.clone();
            bad[at] = value;
            if at >= main {
                let digest = hex(&bad[main..main + size]);
                bad[digest_at..digest_at + 64].copy_from_slice(digest.as_bytes());
            }
            tried += 1;
            refused += usize::from(read(&&bad[..]).is_err());
        }
    }
    assert!(refused > 500 && tried > 3 * refused, "{refused} of {tried}");
    for len in (0..main + size).step_by(7) {
        read(&&good[..len]).unwrap_err();
    }
    // Without a digest that fits, no byte of the main header can be another.
    let mut bad = good;
    bad[main + size - 2] ^= 1;
    let error = read(&&bad[..]).unwrap_err().to_string();
    assert!(error.contains("SHA256 of the main header"), "{error}");
}
