//! dnf and zypper, with signed packages from a signed repository, over HTTP.

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

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Ran, fails, files, gfxpack, ok, run, snapshot};
use http::Server;
use repositories::{NAMES, release, signed, versions};
use roots::RpmRoot;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const GFX110X: [&str; 3] = ["hip-runtime", "rocblas-generic", "rocblas-gfx110X"];

/// A repository with the first release, and where it is served.
struct Repository {
    dir: TempDir,
    _server: Server,
}

impl Repository {
    fn new(more: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let server = Server::new(dir.path());
        let mut create = signed("create", &dir.path().join("repo"));
        create.args(release(0, "rpm", &[])).arg("--sign-packages").args(more);
        ok(create.arg("--url").arg(format!("{}/repo", server.url())));
        Self { dir, _server: server }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join("repo").join(below)
    }

    fn add(&self, number: usize) {
        ok(signed("add", &self.path("")).args(release(number, "rpm", &[])).arg("--sign-packages"));
    }

    /// The one file whose name ends so, in a directory.
    fn file(&self, below: &str, ending: &str) -> PathBuf {
        let entries = fs::read_dir(self.path(below)).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> =
            entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
        assert_eq!(found.len(), 1, "{ending}: {found:?}");
        found.remove(0)
    }
}

/// A client in a root of its own, which has the `.repo` file as it was published.
struct Client {
    root: RpmRoot,
    program: &'static str,
}

impl Client {
    fn new(program: &'static str, repository: &Repository) -> Self {
        let client = Self { root: RpmRoot::new(), program };
        let file = repository.path("rpm/gfxpack.repo");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey=http://127.0.0.1:"), "{text}");
        if program == "dnf" {
            let conf = format!(
                "[main]\nplugins=0\nmetadata_expire=0\ncachedir={}\nreposdir={}\n",
                client.root.seen("var/cache/dnf").display(),
                client.root.seen("etc/repos.d").display()
            );
            fs::create_dir(client.root.path().join("etc/repos.d")).unwrap();
            fs::copy(&file, client.root.path().join("etc/repos.d/gfxpack.repo")).unwrap();
            fs::write(client.root.path().join("etc/dnf.conf"), conf).unwrap();
        } else {
            ok(client.command().arg("addrepo").arg(&file));
        }
        client
    }

    fn command(&self) -> Command {
        let mut command = self.root.command(self.program, self.program);
        if self.program == "dnf" {
            command.arg("--config").arg(self.root.seen("etc/dnf.conf"));
            command.arg("--installroot").arg(self.root.seen(""));
            command.args(["--releasever=1", "--assumeyes", "--refresh"]);
        } else {
            command.arg("--root").arg(self.root.seen(""));
            command.args(["--non-interactive", "--gpg-auto-import-keys"]);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        if self.program == "zypper" && args != ["remove"] {
            let refreshed = run(self.command().args(["refresh", "--force"]));
            if refreshed.status != Some(0) {
                return refreshed;
            }
        }
        run(self.command().args(args))
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.status, Some(0), "{} {args:?}: {}{}", self.program, ran.stdout, ran.stderr);
        ran.stdout + &ran.stderr
    }

    fn installed(&self) -> BTreeMap<String, String> {
        let mut all = self.root.versions();
        all.remove("gpg-pubkey");
        all.into_iter().map(|(name, version)| (name.to_lowercase(), version)).collect()
    }
}

/// The life of the packages of a group on a machine.
fn lives(program: &'static str, compression: &str) {
    let repository = Repository::new(&["--rpm-compression", compression]);
    let client = Client::new(program, &repository);
    // What is asked for by name stays when what needs it goes.
    client.ok(&["install", "rocblas-gfx110X", "hip-runtime"]);
    assert_eq!(client.installed(), versions(0, &GFX110X), "{program}");
    // A client asks for the newest when it has read what is newest.
    repository.add(1);
    client.ok(&[if program == "dnf" { "upgrade" } else { "update" }]);
    assert_eq!(client.installed(), versions(1, &GFX110X), "{program}");
    client.ok(&["install", "rocblas-gfx120X"]);
    assert_eq!(client.installed(), versions(1, &NAMES), "{program}");
    repository.add(2);
    // Of one package: the others of its release come along, what any version satisfies stays.
    client.ok(&[if program == "dnf" { "upgrade" } else { "update" }, "rocblas-gfx110X"]);
    let mut expected = versions(2, &NAMES[1..]);
    expected.extend(versions(1, &NAMES[..1]));
    assert_eq!(client.installed(), expected, "{program}");
    client.root.assert_clean();
    // One stays: zypper takes an empty database of rpm for a fault.
    client.ok(&["remove", "rocblas-generic"]);
    assert_eq!(client.installed(), versions(1, &NAMES[..1]), "{program}");
    assert_eq!(files(&client.root.path().join("opt/rocm")), ["lib/libamdhip64.so.7"]);
}

#[test]
fn dnf_installs_upgrades_and_removes() {
    lives("dnf", "zstd");
}

#[test]
fn zypper_installs_upgrades_and_removes() {
    lives("zypper", "zstd");
}

#[test]
fn gzip_is_read_as_well() {
    for program in ["dnf", "zypper"] {
        let repository = Repository::new(&["--rpm-compression", "gzip"]);
        assert!(repository.file("rpm/repodata", "-primary.xml.gz").exists());
        let client = Client::new(program, &repository);
        client.ok(&["install", "rocblas-gfx110X"]);
        assert_eq!(client.installed(), versions(0, &GFX110X), "{program}");
    }
}

#[test]
fn what_is_warned_of_is_refused_by_who_has_the_file_of_before() {
    let repository = Repository::new(&[]);
    let client = Client::new("dnf", &repository);
    client.ok(&["install", "rocblas-gfx110X"]);
    let ran = run(signed("add", &repository.path("")).args(release(1, "rpm", &[])));
    assert!(ran.stderr.contains("that have a .repo file with gpgcheck=1 refuse these"), "{ran:?}");
    let ran = client.run(&["upgrade"]);
    assert!(ran.status != Some(0) && ran.stderr.contains("is not signed"), "{ran:?}");
    // Signed and of a higher version, all is well.
    repository.add(2);
    client.ok(&["upgrade"]);
    assert_eq!(client.installed(), versions(2, &GFX110X));
}

#[test]
fn a_changed_byte_is_refused() {
    let repository = Repository::new(&[]);
    let package = repository.file("rpm/Packages/r", "rocblas-gfx110X-7.1.0-1.x86_64.rpm");
    let repomd = repository.path("rpm/repodata/repomd.xml");
    for (file, from_end) in [
        // Payload; header.
        (&package, 30),
        (&package, usize::MAX),
        (&repository.file("rpm/repodata", "-primary.xml.zst"), 50),
        (&repository.file("rpm/repodata", "-filelists.xml.zst"), 20),
        (&repomd, 10),
        (&repository.path("rpm/repodata/repomd.xml.asc"), 200),
    ] {
        let good = fs::read(file).unwrap();
        let mut bad = good.clone();
        let at = if from_end == usize::MAX { 96 + 5000 } else { bad.len() - from_end };
        // In a text, another text.
        bad[at] ^= if file == &repomd { 0x20 } else { 1 };
        fs::write(file, &bad).unwrap();
        // zypper reads the paths of files only where a relation asks for one.
        let is_read_by_all = !file.to_string_lossy().contains("filelists");
        for program in if is_read_by_all { &["dnf", "zypper"][..] } else { &["dnf"] } {
            let client = Client::new(program, &repository);
            let ran = client.run(&["install", "rocblas-gfx110X"]);
            let what = format!("{program}, {}: {}{}", file.display(), ran.stdout, ran.stderr);
            assert_ne!(ran.status, Some(0), "{what}");
            assert!(!client.installed().contains_key("rocblas-gfx110x"), "{what}");
        }
        fs::write(file, &good).unwrap();
    }
    let client = Client::new("dnf", &repository);
    client.ok(&["install", "rocblas-gfx110X"]);
    assert_eq!(client.installed(), versions(0, &GFX110X));
}

#[test]
fn older_metadata_are_served_for_a_while() {
    let repository = Repository::new(&["--keep-publications", "1", "--keep-days", "0"]);
    let of = |path: &Path| {
        let all = snapshot(path).into_keys();
        all.filter(|path| path.contains("primary")).collect::<Vec<_>>()
    };
    let first = of(&repository.path("rpm/repodata"));
    repository.add(1);
    let second = of(&repository.path("rpm/repodata"));
    assert!(second.len() == 2 && second.contains(&first[0]), "{first:?} {second:?}");
    repository.add(2);
    let third = of(&repository.path("rpm/repodata"));
    assert!(third.len() == 2 && !third.contains(&first[0]), "{first:?} {third:?}");
}

#[test]
fn a_partial_publication_is_refused_since_it_holds_clients_back() {
    for program in ["dnf", "zypper"] {
        let repository = Repository::new(&[]);
        let client = Client::new(program, &repository);
        client.ok(&["install", "rocblas-gfx110X"]);
        let add = |starts: &[&str]| {
            let mut add = signed("add", &repository.path(""));
            add.args(release(1, "rpm", starts)).arg("--sign-packages");
            add
        };
        let stderr = fails(&mut add(&["rocblas-generic"]), 1);
        let said = "rocblas-gfx110X 7.1.0-1 x86_64 needs rocblas-generic = 7.1.0-1, and the newest \
                    rocblas-generic is 7.2.0-1";
        assert!(stderr.contains(said), "{stderr}");
        for some in [&["rocblas-gfx"][..], &["rocblas-generic", "rocblas-gfx110x"]] {
            fails(&mut add(some), 1);
        }

        // This is why: what is installed stays whole, and old.
        ok(add(&["rocblas-generic"]).arg("--allow-partial"));
        let upgrade = if program == "dnf" { "upgrade" } else { "update" };
        client.ok(&[upgrade]);
        assert_eq!(client.installed(), versions(0, &GFX110X), "{program}");
        if program == "dnf" {
            // The default on RHEL.
            let best = client.run(&["--best", "upgrade"]);
            assert_ne!(best.status, Some(0), "{best:?}");
        }

        // The rest comes, and all go on.
        repository.add(1);
        client.ok(&[upgrade]);
        assert_eq!(client.installed(), versions(1, &GFX110X), "{program}");
        client.root.assert_clean();
    }
}

#[test]
fn whatever_repomd_is_read_its_documents_and_packages_are_there() {
    let repository = Repository::new(&[]);
    let root = repository.path("rpm");
    let over = AtomicBool::new(false);
    let reads = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            loop {
                // Once more after the last publication.
                let is_last = over.load(Ordering::Relaxed);
                let repomd = fs::read_to_string(root.join("repodata/repomd.xml")).unwrap();
                // A client takes its time between the one file and the next.
                thread::sleep(Duration::from_millis(20));
                let hrefs = repomd.split("href=\"").skip(1);
                let hrefs: Vec<_> = hrefs.map(|rest| rest.split('"').next().unwrap()).collect();
                assert_eq!(hrefs.len(), 3, "{repomd}");
                for href in hrefs {
                    let bytes = fs::read(root.join(href)).unwrap_or_else(|e| panic!("{href}: {e}"));
                    let digest = Sha256::digest(&bytes);
                    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                    assert!(href.contains(&digest), "{href} has {digest}");
                    if !href.contains("primary") {
                        continue;
                    }
                    let text = String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap();
                    for rest in text.split("<location href=\"").skip(1) {
                        let package = root.join(rest.split('"').next().unwrap());
                        assert!(package.exists(), "{}", package.display());
                    }
                }
                reads += 1;
                if is_last {
                    break reads;
                }
            }
        });
        for number in [1, 2] {
            repository.add(number);
            for format in ["rocblas*", "hip-runtime"] {
                let which = format!("{format}={}-1", repositories::RELEASES[number - 1]);
                let mut remove = signed("remove", &repository.path(""));
                ok(remove.args([&which, "--allow-partial"]));
            }
        }
        over.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(reads > 5, "{reads}");
}

#[test]
fn a_command_signs_both_formats() {
    let home = keys::Home::new();
    ok(home.gpg(keys::KEY_MADE).arg("--import").arg(repositories::secret_key()));
    let command = format!(
        "gpg --homedir {} --batch --faked-system-time \"$GFXPACK_SIGN_TIME!\" \
         ${{GFXPACK_SIGN_TEXT:+--textmode}} --detach-sign",
        home.0.path().display()
    );
    let dir = TempDir::new().unwrap();
    for (name, public) in [("known", true), ("unknown", false)] {
        let repository = dir.path().join(name);
        let mut create = repositories::unsigned("create", &repository);
        create.args(release(0, "rpm", &[])).args(release(0, "deb", &[])).arg("--sign-packages");
        create.args(["--url", "https://repo.example.org/rocm", "--sign-command", &command]);
        if public {
            create.arg("--sign-key-public").arg(repositories::public_key());
        }
        ok(&mut create);
        let mut verify = gfxpack();
        verify.arg("verify").arg("--repo-dir").arg(&repository);
        ok(verify.arg("--key").arg(repositories::public_key()));
        // The key is published where it is known.
        let key = repository.join("rpm/repodata/repomd.xml.key");
        let repo = fs::read_to_string(repository.join("rpm/gfxpack.repo")).unwrap();
        assert_eq!(key.exists(), public);
        let line = if public {
            "gpgkey=https://repo.example.org/rocm/rpm/repodata/repomd.xml.key\n"
        } else {
            "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-gfxpack\n"
        };
        assert!(repo.contains("\ngpgcheck=1\nrepo_gpgcheck=1\n") && repo.contains(line), "{repo}");
        // It does not stay where it is known no more.
        let mut again = repositories::unsigned("publish", &repository);
        ok(again.args(["--sign-command", &command]));
        assert!(!key.exists());
    }
}

/// Another text of the same length in the header of an `.rpm`, with its digest made anew.
fn edit_header(path: &Path, from: &str, to: &str) {
    let mut rpm = fs::read(path).unwrap();
    let ends = |rpm: &[u8], at: usize| {
        let word = |at: usize| u32::from_be_bytes(rpm[at..at + 4].try_into().unwrap()) as usize;
        at + 16 + word(at + 8) * 16 + word(at + 12)
    };
    let header = ends(&rpm, 96).next_multiple_of(8);
    let end = ends(&rpm, header);
    let digest = |rpm: &[u8]| -> String {
        Sha256::digest(&rpm[header..end]).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let replace = |part: &mut [u8], from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let found: Vec<usize> =
            (0..part.len()).filter(|n| part[*n..].starts_with(from.as_bytes())).collect();
        assert!(!found.is_empty(), "{from}");
        found.into_iter().for_each(|n| part[n..n + to.len()].copy_from_slice(to.as_bytes()));
    };
    let before = digest(&rpm);
    replace(&mut rpm[header..end], from, to);
    let after = digest(&rpm);
    replace(&mut rpm[96..header], &before, &after);
    fs::write(path, rpm).unwrap();
}

#[test]
fn names_that_two_packages_could_share_are_refused() {
    let temp = TempDir::new().unwrap();
    for (from, to, what) in
        [("7.1.0", "7-1.0", "the version"), ("x86_64", "x86.64", "the architecture")]
    {
        let rpm = temp.path().join("p.rpm");
        fs::copy(&release(0, "rpm", &["hip"])[0], &rpm).unwrap();
        edit_header(&rpm, from, to);
        let dir = temp.path().join("r");
        let stderr = fails(repositories::unsigned("create", &dir).arg(&rpm), 1);
        assert!(stderr.contains(what) && stderr.contains(to), "{stderr}");
    }
}
