//! Every way to ruin a repository that we could think of, and which check sees it.
//!
//! A repository with two releases is made and signed. Then a file of it is damaged, an index is edited and
//! everything above it made and signed anew, as somebody with the key could do it, or the repository is made of
//! other packages. The undamaged one must give no finding. The table in `docs/verify.md` is made from the one
//! here (`GFXPACK_UPDATE_DOCS=1` writes it).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::semicolon_if_nothing_returned, reason = "damages are expressions in a table")]
#![allow(clippy::enum_glob_use, reason = "the table is to be read")]

mod common;
#[path = "common/damage.rs"]
mod damage;
#[path = "common/keys.rs"]
mod keys;
#[path = "common/packages.rs"]
mod packages;
#[path = "common/repositories.rs"]
mod repositories;

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gfxpack::jobs::Jobs;
use gfxpack::package::Format;
use gfxpack::package::spec::{Kind, Op, Package, Relation, RelationKind};
use gfxpack::progress::Silent;
use gfxpack::sign::{Signer, Verifier};
use gfxpack::verify::{self, Options, Report, RepositoryOptions};
use globset::Glob;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use common::{copy_tree, fails, gfxpack, ok, tool};
use damage::{Damage, Subject, damage_all, damage_table, damages, table_is_on_the_page};
use packages::{file, sample, write};
use repositories::{public_key, release, secret_key, signed};

/// A format, whose side of the repository is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Deb,
    Rpm,
}
use Side::{Deb, Rpm};

struct Victim {
    side: Side,
    dir: TempDir,
}

/// A repository with the first release, and `now` with the second as well.
fn good() -> &'static Path {
    static GOOD: OnceLock<TempDir> = OnceLock::new();
    GOOD.get_or_init(|| {
        let dir = TempDir::new().unwrap();
        let now = dir.path().join("now");
        let all = |number| [release(number, "deb", &[]), release(number, "rpm", &[])].concat();
        let mut create = signed("create", &now);
        // Later than its packages, so that there is a date between.
        create.args(["--url", "https://repo.example.org/rocm"]);
        ok(create.args(all(0)).args(["--sign-packages", "--date", "1767226600"]));
        copy_tree(&now, &dir.path().join("before"));
        ok(signed("add", &now).args(all(1)).arg("--sign-packages"));
        dir
    })
    .path()
}

fn verify_with(dir: &Path, options: &Options) -> Report {
    let keys = Verifier::from_keys(&fs::read(public_key()).unwrap()).unwrap();
    let before = good().join("before");
    let repository =
        RepositoryOptions { previous: Some(&before), keys: Some(&keys), now: Some(NOW) };
    verify::repository(dir, repository, options, &Jobs::new(2, 64 << 20), &Silent).unwrap()
}

impl Subject for Side {
    type Victim = Victim;

    fn words(self) -> &'static str {
        match self {
            Deb => "apt",
            Rpm => "rpm",
        }
    }

    fn victim(self) -> Victim {
        let dir = TempDir::new().unwrap();
        copy_tree(&good().join("now"), &dir.path().join("now"));
        Victim { side: self, dir }
    }

    fn report_on(self, victim: &Victim) -> Report {
        let report = verify_with(&victim.path(), &Options::default());
        // The other format is as it was.
        let other = if self == Deb { "rpm/" } else { "deb/" };
        let wrong = report.findings.iter().find(|finding| finding.artifact.starts_with(other));
        assert!(wrong.is_none(), "{wrong:?}");
        report
    }
}

impl Victim {
    fn path(&self) -> PathBuf {
        self.dir.path().join("now")
    }

    fn format(&self) -> Format {
        if self.side == Deb { Format::Deb } else { Format::Rpm }
    }

    /// A file below the root of the format.
    fn at(&self, below: &str) -> PathBuf {
        self.path().join(self.format().as_str()).join(below)
    }

    /// A file whose path contains these words, the first in order that is no older index.
    fn find(&self, words: &[&str]) -> PathBuf {
        let below = self.path().join(self.format().as_str());
        let all = common::files(&below);
        let found = all.iter().filter(|path| words.iter().all(|word| path.contains(word)));
        let mut found: Vec<_> = found.map(|path| below.join(path)).collect();
        // Of documents by digest that which is named now.
        let repomd = fs::read_to_string(self.path().join("rpm/repodata/repomd.xml")).unwrap();
        found.retain(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            !name.contains(".xml.zst") || repomd.contains(name)
        });
        assert!(!found.is_empty(), "{words:?}: {all:?}");
        found.remove(0)
    }

    /// An index of the packages as clients read it.
    fn index(&self) -> PathBuf {
        match self.side {
            Deb => self.at("dists/stable/main/binary-amd64/Packages.xz"),
            Rpm => self.find(&["-primary.xml.zst"]),
        }
    }

    /// What refers to all else.
    fn top(&self) -> PathBuf {
        self.at(if self.side == Deb { "dists/stable/InRelease" } else { "repodata/repomd.xml" })
    }

    /// A package of the second release.
    fn package(&self) -> PathBuf {
        match self.side {
            Deb => self.at("pool/main/r/rocblas-gfx110x/rocblas-gfx110x_7.2.0-1_amd64.deb"),
            Rpm => self.at("Packages/r/rocblas-gfx110X-7.2.0-1.x86_64.rpm"),
        }
    }

    /// Edits the index of the packages, and makes all above it anew.
    fn edit(&self, edit: impl Fn(String) -> String) {
        match self.side {
            Deb => {
                let plain = self.at("dists/stable/main/binary-amd64/Packages");
                let text = edit(fs::read_to_string(&plain).unwrap());
                for entry in fs::read_dir(plain.parent().unwrap()).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() {
                        fs::remove_dir_all(path).unwrap();
                    } else {
                        fs::remove_file(path).unwrap();
                    }
                }
                fs::write(&plain, &text).unwrap();
                let by_hash = plain.with_file_name("by-hash").join("SHA256");
                fs::create_dir_all(&by_hash).unwrap();
                fs::write(by_hash.join(digest(text.as_bytes())), &text).unwrap();
                let release = fs::read_to_string(self.at("dists/stable/Release")).unwrap();
                let fields = release.split("SHA256:\n").next().unwrap();
                let line = format!(
                    " {} {} main/binary-amd64/Packages\n",
                    digest(text.as_bytes()),
                    text.len()
                );
                self.top_text(&format!("{fields}SHA256:\n{line}"));
            }
            Rpm => {
                let old = self.index();
                let opened = zstd::decode_all(&fs::read(&old).unwrap()[..]).unwrap();
                self.document(&old, edit(String::from_utf8(opened).unwrap()).as_bytes());
            }
        }
    }

    /// Puts a document in the place of one.
    fn document(&self, old: &Path, opened: &[u8]) {
        let packed = zstd::encode_all(opened, 3).unwrap();
        let old_packed = fs::read(old).unwrap();
        let old_opened = zstd::decode_all(&old_packed[..]).unwrap();
        let text = fs::read_to_string(self.top()).unwrap();
        let text = text
            .replace(&digest(&old_packed), &digest(&packed))
            .replace(&digest(&old_opened), &digest(opened))
            .replace(&format!("<size>{}<", old_packed.len()), &format!("<size>{}<", packed.len()))
            .replace(
                &format!("<open-size>{}<", old_opened.len()),
                &format!("<open-size>{}<", opened.len()),
            );
        let name = old.file_name().unwrap().to_str().unwrap();
        let kind = name.split_once('-').unwrap().1;
        fs::write(old.with_file_name(format!("{}-{kind}", digest(&packed))), packed).unwrap();
        self.top_text(&text);
    }

    /// Writes and signs the top file.
    fn top_text(&self, text: &str) {
        self.top_signed_by(text, &fs::read(secret_key()).unwrap());
    }

    fn top_signed_by(&self, text: &str, key: &[u8]) {
        let signer = Signer::from_key(key, None).unwrap();
        let detached =
            signer.sign_detached(&mut Cursor::new(text), 0).unwrap().to_armored().unwrap();
        match self.side {
            Deb => {
                let inline = signer.sign_cleartext(text.as_bytes(), 0).unwrap();
                fs::write(self.top(), inline).unwrap();
                fs::write(self.at("dists/stable/Release"), text).unwrap();
                fs::write(self.at("dists/stable/Release.gpg"), detached).unwrap();
            }
            Rpm => {
                fs::write(self.top(), text).unwrap();
                fs::write(self.at("repodata/repomd.xml.asc"), detached).unwrap();
            }
        }
    }

    /// The text of the top file.
    fn text(&self) -> String {
        let file = if self.side == Deb { self.at("dists/stable/Release") } else { self.top() };
        fs::read_to_string(file).unwrap()
    }

    /// Adds packages of this side to the repository.
    fn add(&self, packages: &[Package]) {
        self.add_with(packages, &["--sign-packages"]);
    }

    fn add_with(&self, packages: &[Package], more: &[&str]) {
        let into = self.dir.path().join("new");
        fs::create_dir(&into).unwrap();
        packages.iter().for_each(|package| drop(write(package, self.format(), &into)));
        ok(signed("add", &self.path()).arg(&into).arg("--allow-partial").args(more));
    }

    /// Makes this side of the repository anew, of these files; the other has what it has.
    fn remake(&self, files: &[PathBuf], date: &str) {
        let new = self.dir.path().join("remade");
        let mut create = signed("create", &new);
        create.args(files).args(["--sign-packages", "--allow-partial", "--date", date]);
        ok(&mut create);
        let side = self.format().as_str();
        fs::remove_dir_all(self.at("")).unwrap();
        copy_tree(&new.join(side), &self.path().join(side));
    }

    /// Puts another text into a file below the root of the format.
    fn in_file(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.at(name)).unwrap();
        assert!(text.contains(from), "{text}");
        replace(&self.at(name), text.replace(from, to).as_bytes());
    }

    fn chmod(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn files(&self, release_number: usize) -> Vec<PathBuf> {
        release(release_number, self.format().as_str(), &[])
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn flip(path: &Path, from_end: usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() - from_end;
    bytes[at] ^= 1;
    replace(path, &bytes);
}

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    replace(path, &bytes[..bytes.len() / 2]);
}

/// A new file: the old one may have several names.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Another key.
fn other_key() -> Vec<u8> {
    static KEY: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let home = keys::Home::new();
        let at = keys::KEY_MADE;
        ok(home.gpg(at).args(["--quick-gen-key", "o@example.org", "rsa2048", "sign", "never"]));
        ok(home.gpg(at).args(["--armor", "--export-secret-keys"])).into_bytes()
    };
    KEY.get_or_init(make).clone()
}

/// The tag of an entry of the signature header, which begins at 96: 16 bytes, then entries of 16 bytes.
fn entry(rpm: &[u8], tag: u32) -> usize {
    let number = |at: usize| u32::from_be_bytes(rpm[at..at + 4].try_into().unwrap());
    let all = (0..number(96 + 8) as usize).map(|n| 96 + 16 + n * 16);
    all.clone().find(|at| number(*at) == tag).unwrap_or_else(|| panic!("no tag {tag}"))
}

/// Calls an entry of the signature header otherwise.
fn renumber(path: &Path, from: u32, to: u32) {
    let mut rpm = fs::read(path).unwrap();
    let at = entry(&rpm, from);
    rpm[at..at + 4].copy_from_slice(&to.to_be_bytes());
    fs::write(path, rpm).unwrap();
}

/// A package whose only signature is as rpm 6 has it: base64 in the tag 278, here in the room of the reserved bytes.
fn signed_for_rpm6(dir: &Path, key: &[u8]) -> PathBuf {
    let secret = dir.join("six.key");
    fs::write(&secret, key).unwrap();
    let path = write(&extra("six", "opt/six", "x"), Format::Rpm, dir);
    ok(gfxpack().arg("sign").arg(&path).arg("--sign-key").arg(secret));
    let mut rpm = fs::read(&path).unwrap();
    let word =
        |rpm: &[u8], at: usize| u32::from_be_bytes(rpm[at..at + 4].try_into().unwrap()) as usize;
    let store = 96 + 16 + word(&rpm, 96 + 8) * 16;
    let (rsa, reserved) = (entry(&rpm, 268), entry(&rpm, 1008));
    let packet = store + word(&rpm, rsa + 8);
    let packet = rpm[packet..packet + word(&rpm, rsa + 12)].to_vec();
    let raw = dir.join("packet");
    fs::write(&raw, packet).unwrap();
    let mut base64 = ok(std::process::Command::new("base64").arg("--wrap=0").arg(raw)).into_bytes();
    base64.push(0);
    let at = store + word(&rpm, reserved + 8);
    assert!(base64.len() < word(&rpm, reserved + 12));
    rpm[at..at + base64.len()].copy_from_slice(&base64);
    // An array of one string.
    for (n, value) in [(0, 278_u32), (4, 8), (12, 1)] {
        rpm[reserved + n..reserved + n + 4].copy_from_slice(&value.to_be_bytes());
    }
    fs::write(&path, rpm).unwrap();
    // What nobody reads.
    renumber(&path, 268, 260);
    path
}

/// A package of its own, with a file.
fn extra(name: &str, path: &str, content: &str) -> Package {
    let mut package = sample(name, Kind::Plain);
    file(&mut package.tree, path, 0o644, content);
    package
}

const LIBRARY: &str = "opt/rocm/lib/librocblas.so.5";
const LATE: &str = "1767700000";
/// When the repository is looked at.
const NOW: i64 = 1_767_800_000;

const BOTH: &[Side] = &[Deb, Rpm];
const APT: &[Side] = &[Deb];
const RPM: &[Side] = &[Rpm];

const DAMAGES: &[Damage<Side>] = damages! {
    "index of the packages deleted" RPM "repo-index" |v| fs::remove_file(v.index()).unwrap();
    "index of the packages cut in half" BOTH "repo-index" |v| cut(&v.index());
    "bit flipped in the index of the packages" BOTH "repo-index" |v| flip(&v.index(), 20);
    "bit flipped in the list of files" RPM "repo-index" |v| flip(&v.find(&["-filelists.xml"]), 20);
    "bit flipped in Contents" APT "repo-index" |v| flip(&v.at("dists/stable/main/Contents-amd64.gz"), 20);
    "all forms of an index deleted" APT "repo-index" |v| {
        fs::remove_dir_all(v.at("dists/stable/main/binary-amd64")).unwrap()
    };
    "index of an older publication under its old name" APT "repo-index" |v| {
        let old = good().join("before/deb/dists/stable/main/binary-amd64/Packages.gz");
        replace(&v.at("dists/stable/main/binary-amd64/Packages.gz"), &fs::read(old).unwrap())
    };
    "index missing under its digest" APT "repo-index" |v| {
        let digest = digest(&fs::read(v.index()).unwrap());
        fs::remove_file(v.find(&["by-hash", &digest])).unwrap()
    };
    "compressed index of another text, signed" APT "repo-index" |v| {
        let text = v.text();
        let packed = zstd::encode_all(&b"Package: x\n"[..], 3).unwrap();
        let path = "main/binary-amd64/Packages.zst";
        let line = text.lines().find(|line| line.ends_with(path) && line.len() < 120).unwrap();
        let by_hash = v.at("dists/stable/main/binary-amd64/by-hash/SHA256").join(digest(&packed));
        fs::write(by_hash, &packed).unwrap();
        replace(&v.at("dists/stable").join(path), &packed);
        v.top_text(&text.replace(line, &format!(" {} {} {path}", digest(&packed), packed.len())))
    };
    "top file deleted" RPM "repo-index" |v| fs::remove_file(v.top()).unwrap();
    "Release and InRelease deleted" APT "repo-index" |v| {
        fs::remove_file(v.top()).unwrap();
        fs::remove_file(v.at("dists/stable/Release")).unwrap()
    };
    "Release of an older publication beside InRelease" APT "repo-index" |v| {
        for name in ["Release", "Release.gpg"] {
            let old = fs::read(good().join("before/deb/dists/stable").join(name)).unwrap();
            replace(&v.at("dists/stable").join(name), &old);
        }
    };
    "Release without a date, signed" APT "repo-index" |v| {
        let text = v.text();
        let line = text.lines().find(|line| line.starts_with("Date:")).unwrap().to_owned();
        v.top_text(&text.replace(&format!("{line}\n"), ""))
    };
    "Valid-Until that is no date, signed" APT "repo-index" |v| {
        v.top_text(&v.text().replacen("Date:", "Valid-Until: soon\nDate:", 1))
    };
    "metadata that are no XML, signed" RPM "repo-index" |v| v.edit(|text| text.replace("</package>", ""));
    "metadata that say another number of packages, signed" RPM "repo-index" |v| {
        v.edit(|text| text.replacen("packages=\"8\"", "packages=\"9\"", 1))
    };
    "list of files without a package, signed" RPM "repo-index" |v| {
        let old = v.find(&["-filelists.xml"]);
        let text = String::from_utf8(zstd::decode_all(&fs::read(&old).unwrap()[..]).unwrap()).unwrap();
        let (start, end) = (text.find("<package ").unwrap(), text.find("</package>\n").unwrap() + 11);
        let text = text.replace(&text[start..end], "").replace("packages=\"8\"", "packages=\"7\"");
        v.document(&old, text.as_bytes())
    };
    "package at a path that leaves the repository, signed" BOTH "repo-index" |v| {
        v.edit(|text| text.replacen("Filename: pool/", "Filename: ../deb/pool/", 1)
            .replacen("href=\"Packages/", "href=\"../rpm/Packages/", 1))
    };

    "index missing under its SHA512" APT "repo-index" |v| {
        fs::remove_dir_all(v.at("dists/stable/main/binary-amd64/by-hash/SHA512")).unwrap()
    };
    "another SHA512 of an index than of its SHA256, signed" APT "repo-index" |v| {
        let text = v.text();
        let (before, after) = text.split_once("SHA512:\n").unwrap();
        v.top_text(&format!("{before}SHA512:\n{}", after.replace(['1', '2'], "3")))
    };
    "component without an index, signed" APT "repo-index" |v| {
        v.top_text(&v.text().replace("Components: main", "Components: main more"))
    };
    "valid until before its date, signed" APT "repo-index" |v| {
        let until = "Valid-Until: Thu, 01 Jan 2015 00:00:00 +0000\nAcquire-By-Hash";
        v.top_text(&v.text().replace("Acquire-By-Hash", until))
    };
    "package for another architecture in an index, signed" APT "repo-entry" |v| {
        v.edit(|text| text.replacen("Architecture: amd64", "Architecture: arm64", 1))
    };
    "two packages of one name and version, signed" BOTH "repo-entry" |v| {
        let (path, other) = (v.package(), v.package().with_file_name("other"));
        let (good, mut bytes) = (fs::read(&path).unwrap(), fs::read(&path).unwrap());
        // A signature, or the time of a member.
        let at = if v.side == Deb { 27 } else { 30 };
        bytes[at] ^= 1;
        fs::write(other, &bytes).unwrap();
        v.edit(|text| {
            let ends = if v.side == Deb { "\n\n" } else { "</package>\n" };
            let mine = digest(&good);
            let one = text.split_inclusive(ends).find(|one| one.contains(&mine)).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            let second = one.replace(&mine, &digest(&bytes)).replace(name, "other");
            let begins = one.find(if v.side == Deb { "Package:" } else { "<package " }).unwrap();
            text.replacen(one, &format!("{one}{}", &second[begins..]), 1)
        })
    };
    "file left out of the list of files, signed" RPM "repo-entry" |v| {
        let old = v.find(&["-filelists.xml"]);
        let text = String::from_utf8(zstd::decode_all(&fs::read(&old).unwrap()[..]).unwrap()).unwrap();
        let from = text.find("  <file>").unwrap();
        let to = from + text[from..].find('\n').unwrap() + 1;
        v.document(&old, [&text[..from], &text[to..]].concat().as_bytes())
    };
    "repomd.xml.key of another key" RPM "repo-signature" |v| {
        let other = Signer::from_key(&other_key(), None).unwrap();
        fs::write(v.at("repodata/repomd.xml.key"), other.public_key().unwrap().to_armored().unwrap()).unwrap()
    };

    "package deleted" BOTH "repo-file" |v| fs::remove_file(v.package()).unwrap();
    "package cut in half" BOTH "repo-file" |v| cut(&v.package());
    "bit flipped in a package" BOTH "repo-file" |v| flip(&v.package(), 30);
    "package replaced by that of another release" BOTH "repo-file" |v| {
        let path = v.package();
        let other = path.to_string_lossy().replace("7.2.0", "7.1.0");
        replace(&path, &fs::read(other).unwrap())
    };
    "digest of a package edited, signed" BOTH "repo-file" |v| {
        let digest = digest(&fs::read(v.package()).unwrap());
        v.edit(|text| text.replace(&digest, &digest.replace(['1', '2'], "3")))
    };

    "version edited in the index, signed" BOTH "repo-entry" |v| {
        v.edit(|text| text.replacen("Version: 7.2.0-1", "Version: 7.3.0-1", 1)
            .replacen("ver=\"7.2.0\"", "ver=\"7.3.0\"", 1))
    };
    "name edited in the index, signed" BOTH "repo-entry" |v| {
        v.edit(|text| text.replacen("Package: hip-runtime", "Package: hip-runtime2", 1)
            .replacen("<name>hip-runtime<", "<name>hip-runtime2<", 1))
    };
    "relation edited in the index, signed" BOTH "repo-entry" |v| {
        v.edit(|text| text.replacen("rocblas-generic (= 7.2.0-1)", "rocblas-generic (>= 7.2.0-1)", 1)
            .replacen("name=\"rocblas-generic\" flags=\"EQ\" epoch=\"0\" ver=\"7.2.0\" rel=\"1\"/>\n    </rpm:requires",
                "name=\"rocblas-generic\" flags=\"GE\" epoch=\"0\" ver=\"7.2.0\" rel=\"1\"/>\n    </rpm:requires", 1))
    };
    "package of garbage, with its digest in the index, signed" BOTH "package-damaged" |v| {
        let path = v.package();
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[..8].copy_from_slice(b"garbage!");
        replace(&path, &bad);
        v.edit(|text| text.replace(&digest(&good), &digest(&bad)))
    };
    "header of a package damaged, with its digest in the index, signed" RPM "package-damaged" |v| {
        let path = v.package();
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        let at = good.windows(15).rposition(|w| w == b"rocblas-gfx110X").unwrap();
        bad[at] = b'R';
        replace(&path, &bad);
        v.edit(|text| text.replace(&digest(&good), &digest(&bad)))
    };

    "top file edited" BOTH "repo-signature" |v| {
        let text = fs::read_to_string(v.top()).unwrap();
        replace(&v.top(), text.replacen("stable", "stab1e", 1).replacen("<revision>", "<revision>1", 1).as_bytes())
    };
    "Release edited" APT "repo-signature" |v| {
        let text = v.text();
        replace(&v.at("dists/stable/Release"), text.replacen("Suite", "suite", 1).as_bytes())
    };
    "top file signed by another key" BOTH "repo-signature" |v| v.top_signed_by(&v.text(), &other_key());
    "repomd.xml.asc deleted" RPM "repo-signature" |v| {
        fs::remove_file(v.at("repodata/repomd.xml.asc")).unwrap()
    };
    "repomd.xml.asc of an older publication" RPM "repo-signature" |v| {
        let old = good().join("before/rpm/repodata/repomd.xml.asc");
        replace(&v.at("repodata/repomd.xml.asc"), &fs::read(old).unwrap())
    };
    "InRelease and Release.gpg deleted" APT "repo-signature" |v| {
        fs::remove_file(v.top()).unwrap();
        fs::remove_file(v.at("dists/stable/Release.gpg")).unwrap()
    };
    "text before a signed message" APT "repo-signature" |v| {
        let text = fs::read_to_string(v.top()).unwrap();
        replace(&v.top(), format!("Suite: other\n{text}").as_bytes())
    };
    "package without a signature among signed ones" RPM "repo-unsigned" |v| {
        v.add_with(&[extra("plain", "opt/plain", "x")], &[])
    };
    "package signed by another key" RPM "repo-signature" |v| {
        let key = v.dir.path().join("other.key");
        fs::write(&key, other_key()).unwrap();
        let rpm = write(&extra("other", "opt/other", "x"), Format::Rpm, v.dir.path());
        ok(gfxpack().arg("sign").arg(&rpm).arg("--sign-key").arg(key));
        ok(signed("add", &v.path()).arg(rpm))
    };

    "text that is no signature where rpm 6 has its signatures" RPM "repo-signature" |v| {
        // Of a package that is not signed the SHA1 of the header.
        let rpm = write(&extra("plain", "opt/plain", "x"), Format::Rpm, v.dir.path());
        renumber(&rpm, 269, 278);
        ok(signed("add", &v.path()).arg(rpm))
    };
    "signature of rpm 6 by another key" RPM "repo-signature" |v| {
        let rpm = signed_for_rpm6(v.dir.path(), &other_key());
        ok(signed("add", &v.path()).arg(rpm))
    };

    "suite that is not there in .sources" APT "repo-client-file" |v| {
        v.in_file("gfxpack.sources", "Suites: stable", "Suites: nightly")
    };
    "component that is not there in .sources" APT "repo-client-file" |v| {
        v.in_file("gfxpack.sources", "Components: main", "Components: main more")
    };
    ".sources of another place" APT "repo-client-file" |v| {
        v.in_file("gfxpack.sources", "example.org/rocm/deb", "example.org/rocm")
    };
    ".sources with another key" APT "repo-client-file" |v| {
        let other = Signer::from_key(&other_key(), None).unwrap();
        let key = String::from_utf8(other.public_key().unwrap().to_armored().unwrap()).unwrap();
        let lines = key.lines().map(|line| format!(" {}\n", if line.is_empty() { "." } else { line }));
        let text = fs::read_to_string(v.at("gfxpack.sources")).unwrap();
        let start = text.find(" -----BEGIN").unwrap();
        replace(&v.at("gfxpack.sources"), (text[..start].to_owned() + &lines.collect::<String>()).as_bytes())
    };
    ".sources with half a key" APT "repo-client-file" |v| cut(&v.at("gfxpack.sources"));
    ".repo of another place than .sources" RPM "repo-client-file" |v| {
        v.in_file("gfxpack.repo", "https://repo.example.org", "https://mirror.example.org")
    };
    ".repo with a key elsewhere" RPM "repo-client-file" |v| {
        v.in_file("gfxpack.repo", "gpgkey=https://repo", "gpgkey=https://mirror")
    };
    ".repo without a key" RPM "repo-client-file" |v| v.in_file("gfxpack.repo", "gpgkey=", "#=");
    ".repo without an address" RPM "repo-client-file" |v| v.in_file("gfxpack.repo", "baseurl=", "url=");
    "key of .repo deleted" RPM "repo-client-file" |v| {
        fs::remove_file(v.at("repodata/repomd.xml.key")).unwrap()
    };

    "package that only its owner may read" BOTH "repo-mode" |v| v.chmod(&v.package(), 0o600);
    "directory of packages that only its owner may enter" BOTH "repo-mode" |v| {
        v.chmod(v.package().parent().unwrap(), 0o700)
    };
    "index that only its owner may read" BOTH "repo-mode" |v| v.chmod(&v.index(), 0o640);
    "directory of indices that only its owner may enter" BOTH "repo-mode" |v| {
        v.chmod(v.top().parent().unwrap(), 0o700)
    };

    "Valid-Until that is over, signed" APT "repo-expired" |v| {
        let until = "Valid-Until: Wed, 07 Jan 2026 15:33:19 UTC\n";
        v.top_text(&v.text().replacen("Date:", &format!("{until}Date:"), 1))
    };

    "generic package removed" BOTH "relation-unmet" |v| {
        ok(signed("remove", &v.path()).args(["rocblas-generic=7.2.0-1", "--allow-partial"])
            .args(["--format", v.format().as_str()]))
    };
    "package that needs a version which is not there" BOTH "relation-unmet" |v| {
        let mut package = extra("more", "opt/more", "x");
        let version = Some((Op::GreaterEqual, "8".to_owned()));
        package.relate(RelationKind::Depends, Relation { name: "hip-runtime".into(), constraint: version });
        v.add(&[package])
    };

    "library in another package as well" BOTH "file-conflict" |v| {
        v.add(&[extra("copycat", LIBRARY, "x")])
    };
    "file in two new packages" BOTH "file-conflict" |v| {
        v.add(&[extra("one", "opt/same", "1"), extra("two", "opt/same", "2")])
    };

    "repository of the older release alone" BOTH "repo-downgrade" |v| v.remake(&v.files(0), "1767226000");
    "packages of an older release than clients have" BOTH "repo-downgrade" |v| {
        let mut older = Vec::new();
        for name in ["hip-runtime", "rocblas-generic"] {
            let mut package = extra(name, &format!("opt/{name}"), "x");
            package.version = "7.0.0".into();
            older.push(write(&package, v.format(), v.dir.path()));
        }
        v.remake(&older, LATE)
    };
    "package gone" BOTH "repo-downgrade" |v| {
        let mut files = v.files(1);
        files.retain(|path| !path.to_string_lossy().to_lowercase().contains("gfx120x"));
        v.remake(&files, LATE)
    };
    "one of the two formats gone" BOTH "repo-downgrade" |v| fs::remove_dir_all(v.at("")).unwrap();
    "older date, signed" BOTH "repo-downgrade" |v| {
        let text = v.text();
        let line = text.lines().find(|line| line.starts_with("Date:") || line.contains("<revision>")).unwrap();
        let new = match v.side {
            Deb => "Date: Thu, 01 Jan 2015 00:00:00 UTC",
            Rpm => "  <revision>1420070400</revision>",
        };
        v.top_text(&text.replace(line, new))
    };
    "package built again under the same version" BOTH "repo-changed" |v| {
        let again = extra("hip-runtime", "opt/again", "x");
        let mut files = v.files(1);
        files.push(write(&again, v.format(), v.dir.path()));
        v.remake(&files, LATE)
    };
};

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
