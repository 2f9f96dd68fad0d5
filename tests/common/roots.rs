//! Roots to install into, with the databases of package managers and nothing else, or with a Debian of
//! another release: each of them is the test's own.

// Each test crate uses some of this; the lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{chroot, ok, snapshot, tool};

/// A tool that gives files to root, and changes its root directory.
pub fn as_root(name: &str, debian_package: &str) -> Command {
    let wanted = tool(name, debian_package);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        return wanted;
    }
    let mut command = tool("unshare", "util-linux");
    command.arg("--map-root-user").arg(wanted.get_program());
    command
}

/// Every path below a root but what the package managers keep there.
pub fn installed(root: &Path) -> BTreeMap<String, String> {
    let mut all = snapshot(root);
    let theirs = ["var", "etc", "run", "tmp"];
    all.retain(|path, _| !theirs.contains(&path.split('/').next().unwrap_or_default()));
    all
}

/// A copy of a Debian to chroot into, which a test may change.
fn debian(suite: &str) -> TempDir {
    let copy = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    ok(Command::new("cp").arg("-a").arg(chroot(suite).join(".")).arg(copy.path()));
    copy
}

/// A tool of the Debian in that directory.
fn tool_in(root: &Path, name: &str) -> Command {
    let mut command = tool("chroot", "coreutils");
    command.arg(root).arg(name);
    command
}

/// A root for dpkg and apt.
pub struct DebRoot {
    dir: TempDir,
    /// Whether it has a dpkg and an apt of its own.
    debian: bool,
}

impl DebRoot {
    /// A root with dpkg's database, apt's directories, and nothing else: no package is installed.
    pub fn new() -> Self {
        let root = Self { dir: TempDir::new().unwrap(), debian: false };
        let below = |path: &str| root.path().join(path);
        for dir in ["info", "updates", "triggers", "alternatives", "parts"] {
            fs::create_dir_all(below("var/lib/dpkg").join(dir)).unwrap();
        }
        for file in ["status", "available", "diversions", "statoverride"] {
            File::create(below("var/lib/dpkg").join(file)).unwrap();
        }
        for dir in ["var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log/apt"] {
            fs::create_dir_all(below(dir)).unwrap();
        }
        for dir in ["apt.conf.d", "preferences.d", "sources.list.d", "trusted.gpg.d"] {
            fs::create_dir_all(below("etc/apt").join(dir)).unwrap();
        }
        root
    }

    /// A Debian, whose own tools are run.
    pub fn debian(suite: &str) -> Self {
        Self { dir: debian(suite), debian: true }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path below the root as its tools know it.
    pub fn seen(&self, path: &str) -> PathBuf {
        if self.debian { Path::new("/").join(path) } else { self.path().join(path) }
    }

    /// What dpkg is told, by apt as well. Images for containers configure it to leave out
    /// documentation: here all is installed.
    fn options(&self) -> Vec<OsString> {
        let mut root = OsString::from("--root=");
        root.push(self.seen(""));
        let others =
            ["--force-not-root", "--force-unsafe-io", "--log=/dev/null", "--path-include=*"];
        [root].into_iter().chain(others.map(OsString::from)).collect()
    }

    /// One of its tools, from apt or dpkg.
    pub fn command(&self, name: &str) -> Command {
        let mut command = match name {
            _ if self.debian => tool_in(self.path(), name),
            "dpkg" | "dpkg-query" => as_root(name, "dpkg"),
            _ => as_root(name, "apt"),
        };
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    pub fn dpkg(&self) -> Command {
        let mut command = self.command("dpkg");
        command.args(self.options());
        command
    }

    /// Names and versions of the packages that are installed and configured, also those that dpkg was told to
    /// remove and would not.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let mut admin = OsString::from("--admindir=");
        admin.push(self.seen("var/lib/dpkg"));
        let format = "--showformat=${Package} ${Version} ${db:Status-Eflag} ${db:Status-Status}\n";
        let listed = ok(self.command("dpkg-query").arg(admin).args(["--show", format]));
        let whole = listed.lines().filter_map(|line| line.strip_suffix(" ok installed"));
        let pairs = whole.map(|line| line.split_once(' ').unwrap());
        pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).collect()
    }

    /// Names of the packages that are installed and configured.
    pub fn packages(&self) -> BTreeSet<String> {
        self.versions().into_keys().collect()
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(ok(self.dpkg().arg("--verify")), "");
        assert_eq!(ok(self.dpkg().arg("--audit")), "");
    }

    #[track_caller]
    pub fn assert_no_trace(&self) {
        assert_eq!(installed(self.path()), BTreeMap::new());
        let info = fs::read_dir(self.path().join("var/lib/dpkg/info")).unwrap();
        let info: Vec<_> = info.map(|entry| entry.unwrap().file_name()).collect();
        assert!(info.iter().all(|name| name == "format"), "{info:?}");
        assert_eq!(self.packages(), BTreeSet::new());
    }
}

/// A root with an apt that knows one repository.
pub struct Apt {
    pub root: DebRoot,
}

/// Where the repository is, below the root.
const REPOSITORY: &str = "var/repository";

impl Apt {
    /// Makes an empty repository the only one of that root.
    pub fn new(root: DebRoot) -> Self {
        let apt = Self { root };
        let at = |path: &str| apt.root.path().join(path);
        fs::create_dir(at(REPOSITORY)).unwrap();
        for entry in fs::read_dir(at("etc/apt/sources.list.d")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let repository = apt.root.seen(REPOSITORY);
        let source = format!("deb [trusted=yes] file:{} ./\n", repository.display());
        fs::write(at("etc/apt/sources.list"), source).unwrap();
        let options = apt.root.options().into_iter().map(|option| option.into_string().unwrap());
        let options: String = options.map(|option| format!("\"{option}\"; ")).collect();
        // Its caches are as old as the files that they are made of, in seconds, and tests are faster.
        let conf = format!(
            "Dir \"{}\";\nDir::State::status \"{}\";\nAPT::Architecture \"amd64\";\n\
             APT::Architectures {{ \"amd64\"; }};\nAPT::Sandbox::User \"root\";\n\
             Acquire::Languages \"none\";\nDir::Cache::pkgcache \"\";\n\
             Dir::Cache::srcpkgcache \"\";\nDPkg::Options {{ {options} }};\n",
            apt.root.seen("").display(),
            apt.root.seen("var/lib/dpkg/status").display(),
        );
        fs::write(at("etc/apt/private.conf"), conf).unwrap();
        apt
    }

    /// Adds packages to the repository, writes its index, and reads it.
    pub fn publish(&self, debs: impl IntoIterator<Item = PathBuf>) {
        let repository = self.root.path().join(REPOSITORY);
        for deb in debs {
            fs::copy(&deb, repository.join(deb.file_name().unwrap())).unwrap();
        }
        let mut scan = tool("dpkg-scanpackages", "dpkg-dev");
        let index = ok(scan.current_dir(&repository).args(["--multiversion", "."]));
        fs::write(repository.join("Packages"), index).unwrap();
        ok(self.command("apt-get").arg("update"));
    }

    /// Makes what a `.sources` file says the only repository of that root.
    pub fn use_sources(&self, sources: &str) {
        let etc = self.root.path().join("etc/apt");
        let _ = fs::remove_file(etc.join("sources.list"));
        fs::write(etc.join("sources.list.d/tested.sources"), sources).unwrap();
    }

    pub fn command(&self, name: &str) -> Command {
        let mut command = self.root.command(name);
        command.env("APT_CONFIG", self.root.seen("etc/apt/private.conf"));
        command
    }

    pub fn apt(&self, action: &str, packages: &[&str]) -> Command {
        let mut command = self.command("apt");
        command.args([action, "--yes"]).args(packages);
        command
    }

    /// The packages that an install would bring.
    pub fn would_install(&self, package: &str) -> BTreeSet<String> {
        let plan = ok(self.command("apt-get").args(["--simulate", "install", package]));
        let lines = plan.lines().filter_map(|line| line.strip_prefix("Inst "));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }
}

/// A root with rpm's database and the directories that every system has.
pub struct RpmRoot {
    dir: TempDir,
    /// Where the root is, below the directory.
    below: &'static str,
    empty: BTreeMap<String, String>,
}

impl RpmRoot {
    /// A root for this machine's tools.
    pub fn new() -> Self {
        Self::made(TempDir::new().unwrap(), "")
    }

    /// A root inside of a Debian, for its tools. Debian's rpm only takes packages into another root.
    pub fn debian(suite: &str) -> Self {
        Self::made(debian(suite), "var/rpm-root")
    }

    fn made(holder: TempDir, below: &'static str) -> Self {
        let mut made = Self { dir: holder, below, empty: BTreeMap::new() };
        for dir in ["opt", "usr/share/doc", "usr/share/licenses", "etc", "var/home"] {
            fs::create_dir_all(made.path().join(dir)).unwrap();
        }
        // Debian's default is in the home directory.
        let macros = made.path().join("var/home/.rpmmacros");
        fs::write(macros, "%_dbpath /var/lib/rpm\n").unwrap();
        made.empty = installed(&made.path());
        ok(made.rpm().arg("--initdb"));
        made
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join(self.below)
    }

    /// A path below the root as its tools know it.
    pub fn seen(&self, path: &str) -> PathBuf {
        let root =
            if self.below.is_empty() { self.path() } else { Path::new("/").join(self.below) };
        root.join(path)
    }

    /// One of the tools, with its database in the root.
    pub fn command(&self, name: &str, debian_package: &str) -> Command {
        let mut command = match self.below {
            "" => as_root(name, debian_package),
            _ => tool_in(self.dir.path(), name),
        };
        command.env("HOME", self.seen("var/home"));
        command
    }

    pub fn rpm(&self) -> Command {
        let mut command = self.command("rpm", "rpm");
        command.arg("--root").arg(self.seen("")).arg("--nosignature");
        command
    }

    /// Names and versions of what is installed.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let listed = ok(self.rpm().args(["-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n"]));
        let pairs = listed.lines().map(|line| line.split_once(' ').unwrap());
        pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).collect()
    }

    pub fn packages(&self) -> BTreeSet<String> {
        self.versions().into_keys().collect()
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(ok(self.rpm().arg("-Va")), "");
    }

    #[track_caller]
    pub fn assert_no_trace(&self) {
        assert_eq!(installed(&self.path()), self.empty);
        assert_eq!(self.packages(), BTreeSet::new());
    }
}
