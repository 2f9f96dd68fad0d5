//! Package managers as people run them, each behind the same few actions: apt, dpkg, rpm, dnf, zypper.
//!
//! Each has a root with the base system's relations in it and a repository, or a shelf of files, that only
//! holds what it was given. Names are those that people write (`rocblas-gfx110X`).

// Each test crate uses some of this; the lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Ran, ok, run, tool};
use crate::roots::{Apt, DebRoot, RpmRoot};

/// What is done with packages. Versions are `7.1.0-1`.
pub trait Client {
    /// `deb` or `rpm`.
    fn format(&self) -> &'static str;

    /// The root, as this machine sees it.
    fn root(&self) -> PathBuf;

    /// Whether it looks for what is needed by itself.
    fn resolves(&self) -> bool;

    /// Makes packages of one version available. They are what is installed from now on.
    fn publish(&mut self, packages: &[PathBuf], version: &str);

    fn install(&self, names: &[&str]) -> Ran;

    /// Brings these to the newest version.
    fn upgrade(&self, names: &[&str]) -> Ran;

    /// Brings all that is installed to the newest version; the names are of those, for who must be told.
    fn upgrade_all(&self, names: &[&str]) -> Ran {
        self.upgrade(names)
    }

    fn reinstall(&self, names: &[&str]) -> Ran;

    /// Goes back to a version, with the option that allows it or without.
    fn downgrade(&self, names: &[&str], version: &str, allowed: bool) -> Ran;

    fn remove(&self, names: &[&str]) -> Ran;

    /// Removes configuration as well, where that is something else.
    fn purge(&self, names: &[&str]) -> Ran {
        self.remove(names)
    }

    /// Name to version of what is installed whole, without the base system.
    fn installed(&self) -> BTreeMap<String, String>;

    /// What its own checks find wrong; empty where nothing is.
    fn faults(&self) -> String;

    /// How it spells a package's name.
    fn spelled(&self, name: &str) -> String {
        if self.format() == "deb" { name.to_lowercase() } else { name.to_owned() }
    }
}

/// All that a command that checks says; nothing where it succeeds and says one of the texts that mean that
/// all is well.
fn complaint(command: &mut Command, well: &[&str]) -> String {
    let ran = run(command);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    let good = ran.status == Some(0) && well.iter().any(|text| said.trim() == *text);
    if good { String::new() } else { format!("{command:?}: {:?}: {said}", ran.status) }
}

/// Files of packages by version, in a directory.
struct Shelf {
    dir: PathBuf,
    newest: String,
}

impl Shelf {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        Self { dir, newest: String::new() }
    }

    fn add(&mut self, packages: &[PathBuf], version: &str) {
        for package in packages {
            fs::copy(package, self.dir.join(package.file_name().unwrap())).unwrap();
        }
        version.clone_into(&mut self.newest);
    }

    /// The names of files of packages, which are called `{name}{separator}{version}` and so on.
    fn files(&self, names: &[String], separator: char, version: &str) -> Vec<String> {
        let there = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().file_name());
        let there: Vec<_> = there.map(|name| name.into_string().unwrap()).collect();
        let file = |name: &String| {
            let start = format!("{name}{separator}{version}");
            let found = there.iter().find(|file| {
                file.strip_prefix(&start).is_some_and(|rest| rest.starts_with(['.', '_']))
            });
            found.unwrap_or_else(|| panic!("no {start} in {there:?}")).clone()
        };
        names.iter().map(file).collect()
    }
}

/// The names and versions of what stands for the base system.
type Base = BTreeMap<String, String>;

fn without(mut all: BTreeMap<String, String>, base: &Base) -> BTreeMap<String, String> {
    all.retain(|name, version| base.get(name) != Some(version));
    all
}

// ---- .deb ----

/// The packages of Debian 12 that relations found in the fixtures name.
const DEBIAN_12: [(&str, &str); 3] =
    [("libc6", "2.36-9+deb12u10"), ("libgcc-s1", "12.2.0-14"), ("libstdc++6", "12.2.0-14")];

/// Installs packages without files under those names into a root that has no Debian.
fn debian_12(root: &DebRoot) {
    let temp = TempDir::new().unwrap();
    for (name, version) in DEBIAN_12 {
        let dir = temp.path().join(name);
        fs::create_dir_all(dir.join("DEBIAN")).unwrap();
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: amd64\n\
             Maintainer: Nobody <nobody@localhost>\nDescription: stands for the base system\n"
        );
        fs::write(dir.join("DEBIAN/control"), control).unwrap();
        let deb = temp.path().join(format!("{name}.deb"));
        let mut build = tool("dpkg-deb", "dpkg");
        ok(build.args(["--root-owner-group", "--build"]).arg(&dir).arg(&deb));
        ok(root.dpkg().arg("-i").arg(&deb));
    }
}

/// dpkg, which is given files.
pub struct Dpkg {
    /// Only looks for what dpkg lets happen to relations.
    apt: Apt,
    base: Base,
    shelf: Shelf,
}

impl Dpkg {
    /// In a root with stand-ins for Debian 12.
    pub fn new() -> Self {
        let root = DebRoot::new();
        debian_12(&root);
        Self::on(root)
    }

    /// That of a Debian of its own.
    pub fn debian(suite: &str) -> Self {
        Self::on(DebRoot::debian(suite))
    }

    fn on(root: DebRoot) -> Self {
        let shelf = Shelf::new(root.path().join("var/shelf"));
        Self { base: root.versions(), apt: Apt::new(root), shelf }
    }

    fn with_files(&self, args: &[&str], names: &[&str], version: &str) -> Ran {
        let names: Vec<_> = names.iter().map(|name| self.spelled(name)).collect();
        let files = self.shelf.files(&names, '_', version).into_iter();
        let files = files.map(|file| self.apt.root.seen("var/shelf").join(file));
        run(self.apt.root.dpkg().args(args).args(files))
    }

    fn with_names(&self, action: &str, names: &[&str]) -> Ran {
        run(self.apt.root.dpkg().arg(action).args(names.iter().map(|name| self.spelled(name))))
    }
}

impl Client for Dpkg {
    fn format(&self) -> &'static str {
        "deb"
    }

    fn root(&self) -> PathBuf {
        self.apt.root.path().to_owned()
    }

    fn resolves(&self) -> bool {
        false
    }

    fn publish(&mut self, packages: &[PathBuf], version: &str) {
        self.shelf.add(packages, version);
    }

    fn install(&self, names: &[&str]) -> Ran {
        self.with_files(&["-i"], names, &self.shelf.newest)
    }

    fn upgrade(&self, names: &[&str]) -> Ran {
        self.install(names)
    }

    fn reinstall(&self, names: &[&str]) -> Ran {
        self.install(names)
    }

    fn downgrade(&self, names: &[&str], version: &str, allowed: bool) -> Ran {
        let option = if allowed { "--force-downgrade" } else { "--refuse-downgrade" };
        self.with_files(&[option, "-i"], names, version)
    }

    fn remove(&self, names: &[&str]) -> Ran {
        self.with_names("-r", names)
    }

    fn purge(&self, names: &[&str]) -> Ran {
        self.with_names("-P", names)
    }

    fn installed(&self) -> BTreeMap<String, String> {
        without(self.apt.root.versions(), &self.base)
    }

    fn faults(&self) -> String {
        deb_faults(&self.apt, &self.base)
    }
}

/// What apt finds wrong in relations, and dpkg in packages that are not the base system's.
fn deb_faults(apt: &Apt, base: &Base) -> String {
    let root = &apt.root;
    let mut found = complaint(apt.command("apt-get").args(["-qq", "check"]), &[""]);
    for name in without(root.versions(), base).keys() {
        found += &complaint(root.dpkg().args(["--verify", name]), &[""]);
    }
    found + &complaint(root.dpkg().arg("--audit"), &[""])
}

/// apt with a repository.
pub struct AptGet {
    apt: Apt,
    base: Base,
}

impl AptGet {
    /// In a root with stand-ins for Debian 12.
    pub fn new() -> Self {
        let root = DebRoot::new();
        debian_12(&root);
        Self::on(root)
    }

    /// That of a Debian of its own.
    pub fn debian(suite: &str) -> Self {
        Self::on(DebRoot::debian(suite))
    }

    fn on(root: DebRoot) -> Self {
        Self { base: root.versions(), apt: Apt::new(root) }
    }

    /// In a root where nothing is installed.
    pub fn bare() -> Self {
        Self::on(DebRoot::new())
    }

    /// The apt itself.
    pub fn apt(&self) -> &Apt {
        &self.apt
    }

    fn get(&self, args: &[&str], names: impl IntoIterator<Item = String>) -> Ran {
        run(self.apt.command("apt-get").arg("--yes").args(args).args(names))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }
}

impl Client for AptGet {
    fn format(&self) -> &'static str {
        "deb"
    }

    fn root(&self) -> PathBuf {
        self.apt.root.path().to_owned()
    }

    fn resolves(&self) -> bool {
        true
    }

    fn publish(&mut self, packages: &[PathBuf], _: &str) {
        self.apt.publish(packages.iter().cloned());
    }

    fn install(&self, names: &[&str]) -> Ran {
        self.get(&["install"], Self::names(names))
    }

    fn upgrade(&self, names: &[&str]) -> Ran {
        self.get(&["install", "--only-upgrade"], Self::names(names))
    }

    fn upgrade_all(&self, _: &[&str]) -> Ran {
        self.get(&["upgrade", "--with-new-pkgs"], [])
    }

    fn reinstall(&self, names: &[&str]) -> Ran {
        self.get(&["install", "--reinstall"], Self::names(names))
    }

    fn downgrade(&self, names: &[&str], version: &str, allowed: bool) -> Ran {
        let args = ["install", "--allow-downgrades"];
        let args = if allowed { &args[..] } else { &args[..1] };
        self.get(args, names.iter().map(|name| format!("{name}={version}")))
    }

    // apt installs what provides a name, and only removes what is called so.
    fn remove(&self, names: &[&str]) -> Ran {
        self.get(&["remove"], names.iter().map(|name| self.spelled(name)))
    }

    fn purge(&self, names: &[&str]) -> Ran {
        self.get(&["purge"], names.iter().map(|name| self.spelled(name)))
    }

    fn installed(&self) -> BTreeMap<String, String> {
        without(self.apt.root.versions(), &self.base)
    }

    fn faults(&self) -> String {
        deb_faults(&self.apt, &self.base)
    }
}

// ---- .rpm ----

/// The libraries of this machine whose capabilities the base system has.
const LIBRARIES: [&str; 5] =
    ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libgcc_s.so.1", "libstdc++.so.6"];

/// Makes an rpm without files that provides what rpm's own generator finds in this machine's libraries,
/// and that asks for nothing.
fn base_system(dir: &Path) -> PathBuf {
    let mut spec =
        "Name: base-system\nVersion: 1\nRelease: 1\nSummary: Stands for the base system\n\
                    License: MIT\nBuildArch: x86_64\nProvides: rtld(GNU_HASH)\n"
            .to_owned();
    for library in LIBRARIES {
        let path = Path::new("/lib/x86_64-linux-gnu").join(library).canonicalize().unwrap();
        let provided = ok(Command::new("/usr/lib/rpm/elfdeps").arg("--provides").arg(path));
        for capability in provided.lines() {
            spec += &format!("Provides: {capability}\n");
        }
    }
    spec += "\n%description\nStands for the base system.\n\n%files\n";
    let file = dir.join("base.spec");
    fs::write(&file, spec).unwrap();
    let mut build = tool("rpmbuild", "rpm");
    ok(build.arg("-bb").arg("--define").arg(format!("_topdir {}", dir.display())).arg(&file));
    dir.join("RPMS/x86_64/base-system-1-1.x86_64.rpm")
}

/// Installs it, and gives what it is.
fn with_base(root: &RpmRoot) -> Base {
    let temp = TempDir::new().unwrap();
    let base = base_system(temp.path());
    fs::copy(base, root.path().join("var/base.rpm")).unwrap();
    ok(root.rpm().arg("-i").arg(root.seen("var/base.rpm")));
    root.versions()
}

/// What rpm finds wrong: relations, too.
fn rpm_faults(root: &RpmRoot) -> String {
    complaint(root.rpm().arg("-Va"), &[""])
}

fn versioned(names: &[&str], separator: char, version: &str) -> Vec<String> {
    names.iter().map(|name| format!("{name}{separator}{version}")).collect()
}

/// rpm, which is given files.
pub struct Rpm {
    root: RpmRoot,
    base: Base,
    shelf: Shelf,
}

impl Rpm {
    /// This machine's.
    pub fn new() -> Self {
        Self::on(RpmRoot::new())
    }

    /// That of another Debian.
    pub fn debian(suite: &str) -> Self {
        Self::on(RpmRoot::debian(suite))
    }

    fn on(root: RpmRoot) -> Self {
        let shelf = Shelf::new(root.path().join("var/shelf"));
        Self { base: with_base(&root), root, shelf }
    }

    fn with_files(&self, args: &[&str], names: &[&str], version: &str) -> Ran {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let files = self.shelf.files(&names, '-', version).into_iter();
        let files = files.map(|file| self.root.seen("var/shelf").join(file));
        run(self.root.rpm().args(args).args(files))
    }
}

impl Client for Rpm {
    fn format(&self) -> &'static str {
        "rpm"
    }

    fn root(&self) -> PathBuf {
        self.root.path()
    }

    fn resolves(&self) -> bool {
        false
    }

    fn publish(&mut self, packages: &[PathBuf], version: &str) {
        self.shelf.add(packages, version);
    }

    fn install(&self, names: &[&str]) -> Ran {
        self.with_files(&["-i"], names, &self.shelf.newest)
    }

    fn upgrade(&self, names: &[&str]) -> Ran {
        self.with_files(&["-U"], names, &self.shelf.newest)
    }

    fn reinstall(&self, names: &[&str]) -> Ran {
        self.with_files(&["--reinstall"], names, &self.shelf.newest)
    }

    fn downgrade(&self, names: &[&str], version: &str, allowed: bool) -> Ran {
        let args = ["-U", "--oldpackage"];
        self.with_files(if allowed { &args } else { &args[..1] }, names, version)
    }

    fn remove(&self, names: &[&str]) -> Ran {
        run(self.root.rpm().arg("-e").args(names))
    }

    fn installed(&self) -> BTreeMap<String, String> {
        without(self.root.versions(), &self.base)
    }

    fn faults(&self) -> String {
        rpm_faults(&self.root)
    }
}

/// A root, and a repository that createrepo_c makes.
struct Repository {
    root: RpmRoot,
    base: Base,
    dir: TempDir,
}

impl Repository {
    fn new() -> Self {
        let root = RpmRoot::new();
        Self { base: with_base(&root), root, dir: TempDir::new().unwrap() }
    }

    fn add(&self, packages: &[PathBuf]) {
        for package in packages {
            fs::copy(package, self.dir.path().join(package.file_name().unwrap())).unwrap();
        }
        ok(tool("createrepo_c", "createrepo-c").arg("--quiet").arg(self.dir.path()));
    }
}

/// What dnf and zypper call the same actions.
struct Words {
    upgrade: &'static [&'static str],
    reinstall: &'static [&'static str],
    /// Installs an older version: without the option that allows it, and with.
    older: [&'static [&'static str]; 2],
    /// What stands between a name and its version.
    before_version: char,
    /// Reads the repository anew, where not every command does.
    refresh: &'static [&'static str],
    /// Checks what is installed, and says this where all is well.
    check: (&'static str, &'static str),
}

/// dnf or zypper, with a repository.
pub struct Resolver {
    repository: Repository,
    /// The program with the options that lead it to a root.
    program: fn(&RpmRoot) -> Command,
    words: Words,
}

impl Resolver {
    /// dnf, with `--installroot`.
    pub fn dnf() -> Self {
        let repository = Repository::new();
        let conf = format!(
            "[main]\ngpgcheck=0\nplugins=0\nmetadata_expire=0\ncachedir={}\nreposdir=/nonexistent\n\
             [tested]\nname=tested\nbaseurl=file://{}\n",
            repository.root.seen("var/cache/dnf").display(),
            repository.dir.path().display(),
        );
        fs::write(repository.root.path().join("etc/dnf.conf"), conf).unwrap();
        let program = |root: &RpmRoot| {
            let mut command = root.command("dnf", "dnf");
            command.arg("--config").arg(root.seen("etc/dnf.conf"));
            command.arg("--installroot").arg(root.seen(""));
            // Without --refresh, what was read in this second is taken to be new, whatever metadata_expire says.
            command.args(["--releasever=1", "--assumeyes", "--refresh"]);
            command
        };
        let words = Words {
            upgrade: &["upgrade"],
            reinstall: &["reinstall"],
            // To install an older version is to ask for it, to dnf.
            older: [&["upgrade"], &["downgrade"]],
            before_version: '-',
            refresh: &[],
            check: ("check", ""),
        };
        Self { repository, program, words }
    }

    /// zypper, with `--root`.
    pub fn zypper() -> Self {
        let program = |root: &RpmRoot| {
            let mut command = root.command("zypper", "zypper");
            command.arg("--root").arg(root.seen(""));
            command.args(["--non-interactive", "--no-gpg-checks"]);
            command
        };
        let well = "Loading repository data...\nReading installed packages...\n\
                    Dependencies of all installed packages are satisfied.";
        let words = Words {
            upgrade: &["update"],
            reinstall: &["install", "--force"],
            older: [&["install"], &["install", "--oldpackage"]],
            before_version: '=',
            refresh: &["refresh", "--force"],
            check: ("verify", well),
        };
        let zypper = Self { repository: Repository::new(), program, words };
        let url = format!("file://{}", zypper.repository.dir.path().display());
        ok(zypper.command().args(["addrepo", "--no-gpgcheck", &url, "tested"]));
        zypper
    }

    fn command(&self) -> Command {
        (self.program)(&self.repository.root)
    }

    fn with(&self, args: &[&str], names: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
        run(self.command().args(args).args(names))
    }
}

impl Client for Resolver {
    fn format(&self) -> &'static str {
        "rpm"
    }

    fn root(&self) -> PathBuf {
        self.repository.root.path()
    }

    fn resolves(&self) -> bool {
        true
    }

    fn publish(&mut self, packages: &[PathBuf], _: &str) {
        self.repository.add(packages);
        if !self.words.refresh.is_empty() {
            ok(self.command().args(self.words.refresh));
        }
    }

    fn install(&self, names: &[&str]) -> Ran {
        self.with(&["install"], names)
    }

    fn upgrade(&self, names: &[&str]) -> Ran {
        self.with(self.words.upgrade, names)
    }

    fn upgrade_all(&self, _: &[&str]) -> Ran {
        self.with(self.words.upgrade, [""; 0])
    }

    fn reinstall(&self, names: &[&str]) -> Ran {
        self.with(self.words.reinstall, names)
    }

    fn downgrade(&self, names: &[&str], version: &str, allowed: bool) -> Ran {
        let names = versioned(names, self.words.before_version, version);
        self.with(self.words.older[usize::from(allowed)], names)
    }

    fn remove(&self, names: &[&str]) -> Ran {
        self.with(&["remove"], names)
    }

    fn installed(&self) -> BTreeMap<String, String> {
        without(self.repository.root.versions(), &self.repository.base)
    }

    fn faults(&self) -> String {
        let (check, well) = self.words.check;
        complaint(self.command().arg(check), &[well]) + &rpm_faults(&self.repository.root)
    }
}
