//! The repositories that are damaged, and how.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gfxpack::jobs::Jobs;
use gfxpack::package::Format;
use gfxpack::package::spec::{Kind, Package};
use gfxpack::progress::Silent;
use gfxpack::sign::{Signer, Verifier};
use gfxpack::verify::{self, Options, Report, RepositoryOptions};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::common::{self, copy_tree, gfxpack, ok};
use crate::damage::Subject;
use crate::keys;
use crate::packages::{file, sample, write};
use crate::repositories::{public_key, release, secret_key, signed};

/// A format, whose side of the repository is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Deb,
    Rpm,
}
pub use Side::{Deb, Rpm};

pub struct Victim {
    pub side: Side,
    pub dir: TempDir,
}

/// A repository with the first release, and `now` with the second as well.
pub fn good() -> &'static Path {
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

pub fn verify_with(dir: &Path, options: &Options) -> Report {
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
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("now")
    }

    pub fn format(&self) -> Format {
        if self.side == Deb { Format::Deb } else { Format::Rpm }
    }

    /// A file below the root of the format.
    pub fn at(&self, below: &str) -> PathBuf {
        self.path().join(self.format().as_str()).join(below)
    }

    /// A file whose path contains these words, the first in order that is no older index.
    pub fn find(&self, words: &[&str]) -> PathBuf {
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
    pub fn index(&self) -> PathBuf {
        match self.side {
            Deb => self.at("dists/stable/main/binary-amd64/Packages.xz"),
            Rpm => self.find(&["-primary.xml.zst"]),
        }
    }

    /// What refers to all else.
    pub fn top(&self) -> PathBuf {
        self.at(if self.side == Deb { "dists/stable/InRelease" } else { "repodata/repomd.xml" })
    }

    /// A package of the second release.
    pub fn package(&self) -> PathBuf {
        match self.side {
            Deb => self.at("pool/main/r/rocblas-gfx110x/rocblas-gfx110x_7.2.0-1_amd64.deb"),
            Rpm => self.at("Packages/r/rocblas-gfx110X-7.2.0-1.x86_64.rpm"),
        }
    }

    /// Edits the index of the packages, and makes all above it anew.
    pub fn edit(&self, edit: impl Fn(String) -> String) {
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
    pub fn document(&self, old: &Path, opened: &[u8]) {
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
    pub fn top_text(&self, text: &str) {
        self.top_signed_by(text, &fs::read(secret_key()).unwrap());
    }

    pub fn top_signed_by(&self, text: &str, key: &[u8]) {
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
    pub fn text(&self) -> String {
        let file = if self.side == Deb { self.at("dists/stable/Release") } else { self.top() };
        fs::read_to_string(file).unwrap()
    }

    /// Adds packages of this side to the repository.
    pub fn add(&self, packages: &[Package]) {
        self.add_with(packages, &["--sign-packages"]);
    }

    pub fn add_with(&self, packages: &[Package], more: &[&str]) {
        let into = self.dir.path().join("new");
        fs::create_dir(&into).unwrap();
        packages.iter().for_each(|package| drop(write(package, self.format(), &into)));
        ok(signed("add", &self.path()).arg(&into).arg("--allow-partial").args(more));
    }

    /// Makes this side of the repository anew, of these files; the other has what it has.
    pub fn remake(&self, files: &[PathBuf], date: &str) {
        let new = self.dir.path().join("remade");
        let mut create = signed("create", &new);
        create.args(files).args(["--sign-packages", "--allow-partial", "--date", date]);
        ok(&mut create);
        let side = self.format().as_str();
        fs::remove_dir_all(self.at("")).unwrap();
        copy_tree(&new.join(side), &self.path().join(side));
    }

    /// Puts another text into a file below the root of the format.
    pub fn in_file(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.at(name)).unwrap();
        assert!(text.contains(from), "{text}");
        replace(&self.at(name), text.replace(from, to).as_bytes());
    }

    pub fn chmod(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn files(&self, release_number: usize) -> Vec<PathBuf> {
        release(release_number, self.format().as_str(), &[])
    }
}

pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn flip(path: &Path, from_end: usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() - from_end;
    bytes[at] ^= 1;
    replace(path, &bytes);
}

pub fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    replace(path, &bytes[..bytes.len() / 2]);
}

/// A new file: the old one may have several names.
pub fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Another key.
pub fn other_key() -> Vec<u8> {
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
pub fn entry(rpm: &[u8], tag: u32) -> usize {
    let number = |at: usize| u32::from_be_bytes(rpm[at..at + 4].try_into().unwrap());
    let all = (0..number(96 + 8) as usize).map(|n| 96 + 16 + n * 16);
    all.clone().find(|at| number(*at) == tag).unwrap_or_else(|| panic!("no tag {tag}"))
}

/// Calls an entry of the signature header otherwise.
pub fn renumber(path: &Path, from: u32, to: u32) {
    let mut rpm = fs::read(path).unwrap();
    let at = entry(&rpm, from);
    rpm[at..at + 4].copy_from_slice(&to.to_be_bytes());
    fs::write(path, rpm).unwrap();
}

/// A package whose only signature is as rpm 6 has it: base64 in the tag 278, here in the room of the reserved bytes.
pub fn signed_for_rpm6(dir: &Path, key: &[u8]) -> PathBuf {
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
pub fn extra(name: &str, path: &str, content: &str) -> Package {
    let mut package = sample(name, Kind::Plain);
    file(&mut package.tree, path, 0o644, content);
    package
}

pub const LIBRARY: &str = "opt/rocm/lib/librocblas.so.5";
pub const LATE: &str = "1767700000";
/// When the repository is looked at.
pub const NOW: i64 = 1_767_800_000;

pub const BOTH: &[Side] = &[Deb, Rpm];
pub const APT: &[Side] = &[Deb];
pub const RPM: &[Side] = &[Rpm];
