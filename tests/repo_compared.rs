//! The indices of apt repositories, held against those that other programs make of the same packages.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/keys.rs"]
mod keys;
#[path = "common/packages.rs"]
mod packages;
#[path = "common/repositories.rs"]
mod repositories;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use common::{ok, tool};
use repositories::{release, unsigned};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// Stanzas by name and version, each field by name.
fn stanzas(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for stanza in text.trim().split("\n\n") {
        let mut fields: BTreeMap<String, String> = BTreeMap::new();
        let mut last = String::new();
        for line in stanza.lines() {
            if line.starts_with(' ') {
                let value = fields.get_mut(&last).unwrap();
                value.push('\n');
                value.push_str(line);
            } else {
                let (name, value) = line.split_once(':').unwrap();
                name.clone_into(&mut last);
                fields.insert(last.clone(), value.trim().to_owned());
            }
        }
        let key = format!("{} {}", fields["Package"], fields["Version"]);
        assert!(found.insert(key, fields).is_none());
    }
    found
}

#[test]
fn indices_say_what_those_of_apt_ftparchive_say() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(release(0, "deb", &[])).args(release(1, "deb", &[])));
    let root = dir.join("deb");
    let dist = root.join("dists/stable");
    let ftparchive =
        |args: &[&str]| ok(tool("apt-ftparchive", "apt-utils").current_dir(&root).args(args));

    let ours = stanzas(&fs::read_to_string(dist.join("main/binary-amd64/Packages")).unwrap());
    let theirs = stanzas(&ftparchive(&["packages", "pool"]));
    // Digests that apt trusts no more, and one that the signed index makes up for: each would be another pass over
    // every package.
    let left_out = ["MD5sum", "SHA1", "SHA512"];
    let theirs: BTreeMap<_, _> = theirs
        .into_iter()
        .map(|(key, mut fields)| {
            fields.retain(|name, _| !left_out.contains(&name.as_str()));
            (key, fields)
        })
        .collect();
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 8);

    let mut zcat = tool("zcat", "gzip");
    let contents = ok(zcat.arg(dist.join("main/Contents-amd64.gz")));
    let facts = |text: &str| -> BTreeMap<String, Vec<String>> {
        let lines = text.lines().map(|line| line.rsplit_once([' ', '\t']).unwrap());
        let owners = |list: &str| {
            let mut owners: Vec<String> = list.split(',').map(str::to_owned).collect();
            owners.sort();
            owners.dedup();
            owners
        };
        lines.map(|(path, list)| (path.trim_end().to_owned(), owners(list))).collect()
    };
    // Theirs leaves out sections, which those of Debian have.
    let ours = facts(&contents.replace(" libs/", " "));
    assert_eq!(ours, facts(&ftparchive(&["contents", "pool"])));
    assert!(contents.contains("opt/rocm/share/doc/a b.txt "), "{contents}");

    // The Release names the indices that are there with the digests that they have.
    let release = fs::read_to_string(dist.join("Release")).unwrap();
    let theirs = ftparchive(&["release", "dists/stable"]);
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with(' ') && line.contains("main/"));
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let theirs = lines(&theirs);
    let mut compared = 0;
    for line in lines(&release) {
        // It is served compressed only.
        if line.ends_with("/Contents-amd64") {
            continue;
        }
        assert!(theirs.contains(&line), "{line} in {theirs:#?}");
        compared += 1;
    }
    assert_eq!(compared, 2 * 5);
}

/// Fields of a kind that our own packages do not all have, as dpkg-deb takes them: folded relations, an epoch, names
/// of people in UTF-8, fields that nobody knows.
const EVERYTHING: &str = "\
Package: everything
Version: 2:1.2~rc1+git1-3
Architecture: all
Maintainer: Zażółć <a@example.org>
Installed-Size: 12
Pre-Depends: before
Depends: rocblas-generic (>= 7) | other, libc6:any,
 more (<< 9)
Recommends: nice
Suggests: maybe
Enhances: it
Breaks: old (<< 2)
Replaces: old (<< 2)
Conflicts: evil
Provides: virtual (= 3), plain
Section: contrib/libs
Priority: optional
Multi-Arch: foreign
Homepage: https://example.org/?a=1&b=2
Tag: role::program
X-Of-Ours: something
Built-Using: foo (= 1)
Source: every (1.2)
Description: all that a control file has
 Several lines, and
 .
  one with blanks.
";

/// Packages of a release, and one with all that a control file can have.
fn all_kinds(temp: &Path) -> Vec<PathBuf> {
    let tree = temp.join("tree");
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    fs::create_dir_all(tree.join("opt/rocm/share/doc")).unwrap();
    fs::write(tree.join("DEBIAN/control"), EVERYTHING).unwrap();
    fs::write(tree.join("opt/every thing"), "x").unwrap();
    // Other packages have the directory as well.
    fs::write(tree.join("opt/rocm/share/doc/every"), "x").unwrap();
    std::os::unix::fs::symlink("every thing", tree.join("opt/link")).unwrap();
    let deb = temp.join("everything.deb");
    let mut build = tool("dpkg-deb", "dpkg");
    ok(build.args(["--root-owner-group", "--build"]).arg(tree).arg(&deb));
    let mut debs = release(0, "deb", &[]);
    debs.push(deb);
    debs
}

/// A repository that a program made: where its packages are looked for from, its distribution, and what of ours it has
/// not and we have not of it.
struct Theirs {
    root: PathBuf,
    dist: PathBuf,
    /// Fields of `Packages` that we leave out.
    more_fields: &'static [&'static str],
    /// Fields of the Release that we leave out, and those that it leaves out.
    more_of_release: &'static [&'static str],
    less_of_release: &'static [&'static str],
    /// Indices that we leave out, and those that it leaves out, by how their names end.
    more_indices: &'static [&'static str],
    less_indices: &'static [&'static str],
}

/// One version of each package, which is what reprepro keeps.
fn by_reprepro(temp: &Path, debs: &[PathBuf]) -> Theirs {
    let root = temp.join("reprepro");
    fs::create_dir_all(root.join("conf")).unwrap();
    let distribution = "Origin: Example\nLabel: Packages\nSuite: stable\nCodename: cosmic\nArchitectures: amd64\n\
                        Components: main\nContents: percomponent nocompatsymlink\n\
                        DebIndices: Packages Release . .gz .xz\nValidFor: 10d\n";
    fs::write(root.join("conf/distributions"), distribution).unwrap();
    let mut include = tool("reprepro", "reprepro");
    ok(include.arg("--silent").arg("-b").arg(&root).args(["includedeb", "cosmic"]).args(debs));
    Theirs {
        dist: root.join("dists/cosmic"),
        root,
        more_fields: &["MD5sum", "SHA1"],
        more_of_release: &["MD5Sum", "SHA1"],
        less_of_release: &["SHA512", "Acquire-By-Hash"],
        more_indices: &["/Release"],
        less_indices: &[".zst"],
    }
}

fn by_aptly(temp: &Path, debs: &[PathBuf]) -> Theirs {
    let at = temp.join("aptly");
    let conf = temp.join("aptly.conf");
    let settings = serde_json::json!({
        "rootDir": at, "gpgDisableSign": true, "architectures": ["amd64"],
    });
    fs::write(&conf, settings.to_string()).unwrap();
    let aptly = |args: &[&str]| {
        let mut aptly = tool("aptly", "aptly");
        aptly.arg(format!("-config={}", conf.display())).args(args);
        aptly
    };
    ok(&mut aptly(&["repo", "create", "-distribution=cosmic", "-component=main", "made"]));
    ok(aptly(&["repo", "add", "made"]).args(debs));
    let named = ["-acquire-by-hash", "-origin=Example", "-label=Packages", "-suite=stable", "made"];
    ok(aptly(&["publish", "repo", "-skip-signing"]).args(named));
    let root = at.join("public");
    Theirs {
        dist: root.join("dists/cosmic"),
        root,
        more_fields: &["MD5sum", "SHA1", "SHA512"],
        more_of_release: &["MD5Sum", "SHA1", "Description"],
        less_of_release: &["Valid-Until"],
        // The lists of files are also there for all components together.
        more_indices: &["/Release", "Packages.bz2", "^Contents-amd64", "^Contents-amd64.gz"],
        less_indices: &[".zst", ".xz"],
    }
}

/// Relations may be folded: their lines are one list.
fn unfolded(name: &str, value: &str) -> String {
    if name == "Description" {
        return value.to_owned();
    }
    value.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// What `Packages` say, but for the places of files, which are looked up instead.
fn facts(root: &Path, text: &str, left_out: &[&str]) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all = stanzas(text);
    for fields in all.values_mut() {
        let at = root.join(fields.remove("Filename").unwrap());
        let bytes = fs::read(&at).unwrap_or_else(|e| panic!("{}: {e}", at.display()));
        let digest: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(fields["SHA256"], digest, "{}", at.display());
        for name in left_out {
            assert!(fields.remove(*name).is_some(), "{name} is not in {fields:?}");
        }
        // Names mean the same in capitals and without.
        let own = std::mem::take(fields).into_iter();
        fields.extend(own.map(|(name, value)| {
            let value = unfolded(&name, &value);
            (name.to_lowercase(), value)
        }));
    }
    all
}

/// The fields of a Release and the names of the indices that it lists with each kind of digest.
fn release_facts(text: &str) -> (BTreeMap<String, String>, BTreeSet<String>) {
    let mut fields = stanzas(&format!("Package: Release\nVersion: 1\n{text}"));
    let mut fields = fields.remove("Release 1").unwrap();
    fields.retain(|name, _| !matches!(&**name, "Package" | "Version"));
    let mut indices: Option<BTreeSet<String>> = None;
    for (name, value) in &mut fields {
        if name.starts_with("SHA") || name == "MD5Sum" {
            let lines = value.lines().filter(|line| !line.trim().is_empty());
            let paths = lines.map(|line| line.split_whitespace().nth(2).unwrap().to_owned());
            let paths: BTreeSet<String> = paths.collect();
            // Each digest is there of each index.
            assert_eq!(indices.get_or_insert_with(|| paths.clone()), &paths, "{name}");
            "digests".clone_into(value);
        }
    }
    (fields, indices.unwrap())
}

/// The lists of files: who owns which path.
fn owners(contents: &str) -> BTreeMap<String, BTreeSet<String>> {
    let lines = contents.lines().filter(|line| *line != "FILE LOCATION");
    let lines = lines.map(|line| line.rsplit_once([' ', '\t']).unwrap());
    let all = lines.map(|(path, list)| {
        (path.trim_end().to_owned(), list.split(',').map(str::to_owned).collect())
    });
    all.collect()
}

fn zcat(path: &Path) -> String {
    ok(tool("zcat", "gzip").arg(path))
}

fn compare(temp: &Path, theirs: &Theirs, debs: &[PathBuf]) {
    let dir = temp.join("ours");
    let mut create = unsigned("create", &dir);
    create.args(debs).args(["--allow-partial", "--origin", "Example", "--label", "Packages"]);
    create.args(["--suite", "stable", "--codename", "cosmic", "--valid-days", "10"]);
    ok(&mut create);
    let (root, dist) = (dir.join("deb"), dir.join("deb/dists/stable"));
    let read = |dist: &Path, file: &str| fs::read_to_string(dist.join(file)).unwrap();

    let packages = "main/binary-amd64/Packages";
    let ours = facts(&root, &read(&dist, packages), &[]);
    let expected = facts(&theirs.root, &read(&theirs.dist, packages), theirs.more_fields);
    assert_eq!(ours.len(), debs.len());
    assert_eq!(ours, expected);
    let contents = "main/Contents-amd64.gz";
    let ours = owners(&zcat(&dist.join(contents)));
    assert_eq!(ours, owners(&zcat(&theirs.dist.join(contents))));
    assert!(ours.contains_key("opt/every thing"), "{ours:?}");

    let (mut ours, mut our_indices) = release_facts(&read(&dist, "Release"));
    let (mut expected, mut indices) = release_facts(&read(&theirs.dist, "Release"));
    for (fields, left_out) in
        [(&mut expected, theirs.more_of_release), (&mut ours, theirs.less_of_release)]
    {
        for name in left_out {
            assert!(fields.remove(*name).is_some(), "{name} is not in {fields:?}");
        }
    }
    for fields in [&mut ours, &mut expected] {
        // Theirs is by the clock.
        assert!(fields.remove("Date").is_some());
        fields.remove("Valid-Until");
    }
    assert_eq!(ours, expected);
    for (indices, left_out) in
        [(&mut indices, theirs.more_indices), (&mut our_indices, theirs.less_indices)]
    {
        for ending in left_out {
            let before = indices.len();
            indices.retain(|path| match ending.strip_prefix('^') {
                Some(name) => path != name,
                None => !path.ends_with(ending),
            });
            assert!(indices.len() < before, "{ending} is not in {indices:?}");
        }
    }
    assert_eq!(our_indices, indices);
    assert!(indices.contains("main/binary-amd64/Packages.gz"), "{indices:?}");
}

#[test]
fn indices_say_what_those_of_reprepro_say() {
    let temp = TempDir::new().unwrap();
    let debs = all_kinds(temp.path());
    compare(temp.path(), &by_reprepro(temp.path(), &debs), &debs);
}

#[test]
fn indices_say_what_those_of_aptly_say() {
    let temp = TempDir::new().unwrap();
    // It calls files as it finds them.
    let debs = all_kinds(temp.path());
    compare(temp.path(), &by_aptly(temp.path(), &debs), &debs);
}
