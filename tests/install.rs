//! Installed for real: the packages of the examples through dpkg, apt and rpm, each into a root of its
//! own. Not as root, the tools run in a user namespace.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{
    example_config, example_packages, example_shards, fails, gfxpack, ok, run, snapshot, tool,
};
use tempfile::TempDir;

const VERSION: &str = "7.1.0";
const GROUPS: [&str; 2] = ["gfx110X", "gfx120X"];

/// Each package of the examples that holds files, with all that its relations lead to.
const NEEDS: &[(&str, &[&str])] = &[
    ("rocblas-generic", &[]),
    ("rocblas-gfx110X", &["rocblas-generic"]),
    ("rocblas-gfx115X", &["rocblas-generic"]),
    ("rocblas-gfx120X", &["rocblas-generic"]),
    ("hipblaslt-generic", &["rocblas-generic"]),
    ("hipblaslt-gfx110X", &["hipblaslt-generic", "rocblas-gfx110X", "rocblas-generic"]),
    ("hipblaslt-gfx115X", &["hipblaslt-generic", "rocblas-gfx115X", "rocblas-generic"]),
    ("hipblaslt-gfx120X", &["hipblaslt-generic", "rocblas-gfx120X", "rocblas-generic"]),
    ("rocfft-generic", &[]),
    ("rocfft-gfx110X", &["rocfft-generic"]),
    ("rocfft-gfx115X", &["rocfft-generic"]),
    ("rocfft-gfx120X", &["rocfft-generic"]),
    ("rocblas-dev", &["rocblas-generic"]),
    ("hipblaslt-dev", &["hipblaslt-generic", "rocblas-dev", "rocblas-generic"]),
    ("rocfft-dev", &["rocfft-generic"]),
    ("rocm-support", &[]),
    ("rocm-support-dev", &["rocm-support"]),
    ("rocm-sysdeps", &[]),
    ("rocm-sysdeps-dev", &["rocm-sysdeps"]),
];

/// The packages of definitions that are split, which hold nothing and lead to the generic one.
const META: [&str; 3] = ["hipblaslt", "rocblas", "rocfft"];

/// The packages of the examples in one format.
fn built(format: &str, version: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    ok(gfxpack()
        .arg("build")
        .arg("--input-shards-dir")
        .arg(example_shards())
        .arg("--config")
        .arg(example_config())
        .arg("--packages")
        .arg(example_packages())
        .arg("--output-dir")
        .arg(dir.path().join("packages"))
        // No distribution is in the roots that these are installed in.
        .args(["--version", version, "--release", "1", "--format", format, "--no-auto-deps"]));
    dir
}

fn deb(dir: &TempDir, package: &str) -> PathBuf {
    let package = package.to_lowercase();
    dir.path().join(format!("packages/{package}_{VERSION}-1_amd64.deb"))
}

/// What an rpm is called: development packages have another ending there.
fn rpm_name(package: &str) -> String {
    match package.strip_suffix("-dev") {
        Some(name) => format!("{name}-devel"),
        None => package.to_owned(),
    }
}

fn rpm_file(dir: &TempDir, package: &str) -> PathBuf {
    let package = rpm_name(package);
    dir.path().join(format!("packages/{package}-{VERSION}-1.x86_64.rpm"))
}

/// Both groups of two packages, one of which depends on the other, and their generics.
fn two_groups_of_two_packages() -> Vec<String> {
    let mut names = Vec::new();
    for package in ["rocblas", "hipblaslt"] {
        names.push(format!("{package}-generic"));
        names.extend(GROUPS.map(|group| format!("{package}-{group}")));
    }
    names
}

/// Packages of a library with files for an ISA and for two families that two groups share; one family
/// is called like one of the groups.
fn shared(format: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let artifact = dir.path().join("shards/job/aotriton_lib_any");
    for file in ["host", "gfx1100/k.bin", "gfx110x/k.bin", "gfx11xx/k.bin"] {
        let path = artifact.join("p/lib/aotriton.images").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    fs::write(artifact.join("artifact_manifest.txt"), "p\n").unwrap();
    let groups = r#"{"primary_shard": "job", "architecture_groups": {
        "gfx110X": {"architectures": ["gfx1100", "gfx1101"]}, "gfx1103": {"architectures": ["gfx1103"]}}}"#;
    fs::write(dir.path().join("groups.json"), groups).unwrap();
    ok(gfxpack()
        .args(["build", "--input-shards-dir"])
        .arg(dir.path().join("shards"))
        .arg("--config")
        .arg(dir.path().join("groups.json"))
        .arg("--output-dir")
        .arg(dir.path().join("packages"))
        .args(["--version", VERSION, "--release", "1", "--format", format]));
    dir
}

/// What both groups of [`shared`] need.
const SHARED: [&str; 3] =
    ["aotriton-lib-generic", "aotriton-lib-gfx110x-shared", "aotriton-lib-gfx11xx-shared"];
const SHARING: [&str; 2] = ["aotriton-lib-gfx110X", "aotriton-lib-gfx1103"];
const SHARED_FILE: &str = "opt/rocm/lib/aotriton.images/gfx11xx/k.bin";

/// A tool that gives files to root, and changes its root directory.
fn as_root(name: &str, debian_package: &str) -> Command {
    let wanted = tool(name, debian_package);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        return wanted;
    }
    let mut command = tool("unshare", "util-linux");
    command.arg("--map-root-user").arg(wanted.get_program());
    command
}

/// Every path below a root but what the package managers keep there.
fn installed(root: &Path) -> BTreeMap<String, String> {
    let mut all = snapshot(root);
    all.retain(|path, _| !["var", "etc"].contains(&path.split('/').next().unwrap_or_default()));
    all
}

// ---- dpkg ----

/// A root with dpkg's database, apt's directories, and nothing else: no package is installed.
struct DebRoot(TempDir);

impl DebRoot {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
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
        Self(root)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// What dpkg is told, by apt as well. Images for containers configure it to leave out
    /// documentation: here all is installed.
    fn options(&self) -> Vec<OsString> {
        let mut root = OsString::from("--root=");
        root.push(self.path());
        let others =
            ["--force-not-root", "--force-unsafe-io", "--log=/dev/null", "--path-include=*"];
        [root].into_iter().chain(others.map(OsString::from)).collect()
    }

    fn dpkg(&self) -> Command {
        let mut command = as_root("dpkg", "dpkg");
        command.args(self.options());
        command
    }

    /// Names of the packages that are installed and configured.
    fn packages(&self) -> BTreeSet<String> {
        let mut admin = OsString::from("--admindir=");
        admin.push(self.path().join("var/lib/dpkg"));
        let listed = ok(tool("dpkg-query", "dpkg")
            .arg(admin)
            .args(["--show", "--showformat=${Package} ${db:Status-Abbrev}\n"]));
        let names = listed.lines().filter_map(|line| line.strip_suffix(" ii "));
        names.map(str::to_owned).collect()
    }

    #[track_caller]
    fn assert_clean(&self) {
        assert_eq!(ok(self.dpkg().arg("--verify")), "");
        assert_eq!(ok(self.dpkg().arg("--audit")), "");
    }

    #[track_caller]
    fn assert_no_trace(&self) {
        assert_eq!(installed(self.path()), BTreeMap::new());
        let info = fs::read_dir(self.path().join("var/lib/dpkg/info")).unwrap();
        let info: Vec<_> = info.map(|entry| entry.unwrap().file_name()).collect();
        assert!(info.iter().all(|name| name == "format"), "{info:?}");
        assert_eq!(self.packages(), BTreeSet::new());
    }
}

fn lower(names: &[impl AsRef<str>]) -> BTreeSet<String> {
    names.iter().map(|name| name.as_ref().to_lowercase()).collect()
}

#[test]
fn dpkg_wants_the_generic_package_with_a_group() {
    let debs = built("deb", VERSION);
    let root = DebRoot::new();
    let refused = fails(root.dpkg().arg("-i").arg(deb(&debs, "rocblas-gfx110X")), 1);
    let wanted = format!("rocblas-gfx110x depends on rocblas-generic (= {VERSION}-1)");
    assert!(refused.contains(&wanted), "{refused}");
    assert_eq!(root.packages(), BTreeSet::new());
    ok(root.dpkg().arg("-P").arg("rocblas-gfx110x"));
    root.assert_no_trace();

    let both = ["rocblas-gfx110X", "rocblas-generic"];
    ok(root.dpkg().arg("-i").args(both.map(|name| deb(&debs, name))));
    assert_eq!(root.packages(), lower(&both));
    root.assert_clean();
    let refused = fails(root.dpkg().args(["-r", "rocblas-generic"]), 1);
    assert!(refused.contains("rocblas-gfx110x depends on rocblas-generic"), "{refused}");
    ok(root.dpkg().args(["-r", "rocblas-gfx110x"]));
    assert!(root.path().join("opt/rocm/lib/librocblas.so.5").exists());
    ok(root.dpkg().args(["-r", "rocblas-generic"]));
    root.assert_no_trace();
}

#[test]
fn dpkg_installs_groups_side_by_side_and_removes_them_without_a_trace() {
    let debs = built("deb", VERSION);
    let names = two_groups_of_two_packages();
    for remove in ["-r", "-P"] {
        let root = DebRoot::new();
        ok(root.dpkg().arg("-i").args(names.iter().map(|name| deb(&debs, name))));
        assert_eq!(root.packages(), lower(&names));
        root.assert_clean();
        for isa in ["gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1201"] {
            let kpack = format!("opt/rocm/.kpack/blas_lib+math-libs+BLAS+rocBLAS_{isa}.kpack");
            assert!(root.path().join(&kpack).is_file(), "{kpack}");
        }
        // One group goes, all that is of the other stays.
        ok(root.dpkg().arg(remove).args(["rocblas-gfx120x", "hipblaslt-gfx120x"]));
        root.assert_clean();
        let left = installed(root.path());
        assert!(left.keys().any(|path| path.contains("gfx1102")), "{left:#?}");
        assert!(!left.keys().any(|path| path.contains("gfx120")), "{left:#?}");
        let rest = ["rocblas-gfx110x", "hipblaslt-gfx110x", "hipblaslt-generic", "rocblas-generic"];
        ok(root.dpkg().arg(remove).args(rest));
        root.assert_no_trace();
    }
}

#[test]
fn dpkg_sees_a_changed_and_a_lost_file() {
    let debs = built("deb", VERSION);
    let root = DebRoot::new();
    ok(root.dpkg().arg("-i").arg(deb(&debs, "rocm-sysdeps")));
    root.assert_clean();
    fs::write(root.path().join("opt/rocm/bin/sysdeps-info"), "changed").unwrap();
    fs::remove_file(root.path().join("opt/rocm/lib/libsysdeps.so.3")).unwrap();
    let told = run(root.dpkg().arg("--verify")).stdout;
    assert!(told.contains("??5??????   /opt/rocm/bin/sysdeps-info"), "{told}");
    assert!(told.contains("/opt/rocm/lib/libsysdeps.so.3"), "{told}");
}

/// Alone a package that needs others is refused, as it is when one of them is missing.
#[test]
fn dpkg_holds_each_package_to_its_relations() {
    let debs = built("deb", VERSION);
    for (name, needs) in NEEDS {
        let root = DebRoot::new();
        for left_out in *needs {
            let given = needs.iter().filter(|other| *other != left_out).chain([name]);
            let refused = fails(root.dpkg().arg("-i").args(given.map(|name| deb(&debs, name))), 1);
            assert!(refused.contains(&format!("depends on {}", left_out.to_lowercase())));
            let given = needs.iter().filter(|other| *other != left_out).chain([name]);
            ok(root.dpkg().arg("-P").args(given.map(|name| name.to_lowercase())));
        }
        ok(root.dpkg().arg("-i").args(needs.iter().chain([name]).map(|name| deb(&debs, name))));
        root.assert_clean();
    }
}

#[test]
fn dpkg_installs_two_groups_with_what_they_share() {
    let debs = shared("deb");
    for group in SHARING {
        for left_out in SHARED {
            let root = DebRoot::new();
            let given = SHARED.iter().filter(|name| **name != left_out).chain([&group]);
            let refused = fails(root.dpkg().arg("-i").args(given.map(|name| deb(&debs, name))), 1);
            assert!(
                refused.contains(&format!("depends on {left_out} (= {VERSION}-1)")),
                "{refused}"
            );
        }
    }
    let root = DebRoot::new();
    let all: Vec<&str> = SHARED.into_iter().chain(SHARING).collect();
    ok(root.dpkg().arg("-i").args(all.iter().map(|name| deb(&debs, name))));
    assert_eq!(root.packages(), lower(&all));
    root.assert_clean();
    ok(root.dpkg().args(["-r", "aotriton-lib-gfx110x"]));
    root.assert_clean();
    assert!(root.path().join(SHARED_FILE).exists());
    assert!(!root.path().join("opt/rocm/lib/aotriton.images/gfx1100").exists());
    let refused = fails(root.dpkg().args(["-r", "aotriton-lib-gfx11xx-shared"]), 1);
    assert!(refused.contains("aotriton-lib-gfx1103 depends on"), "{refused}");
    ok(root.dpkg().args(["-r", "aotriton-lib-gfx1103"]).args(SHARED));
    root.assert_no_trace();
}

// ---- apt ----

/// A root with an apt that knows one repository, and the configuration of that apt.
struct Apt {
    root: DebRoot,
    repository: TempDir,
}

impl Apt {
    fn new(repository: TempDir) -> Self {
        let apt = Self { root: DebRoot::new(), repository };
        let at = |path: &str| apt.root.path().join(path).display().to_string();
        let source = format!("deb [trusted=yes] file:{} ./\n", apt.packages_dir().display());
        fs::write(at("etc/apt/sources.list"), source).unwrap();
        let options = apt.root.options().into_iter().map(|option| option.into_string().unwrap());
        let options: String = options.map(|option| format!("\"{option}\"; ")).collect();
        let conf = format!(
            "Dir \"{}\";\nDir::State::status \"{}\";\nAPT::Architecture \"amd64\";\n\
             APT::Architectures {{ \"amd64\"; }};\nAPT::Sandbox::User \"root\";\n\
             Acquire::Languages \"none\";\nDPkg::Options {{ {options} }};\n",
            apt.root.path().display(),
            at("var/lib/dpkg/status"),
        );
        fs::write(at("etc/apt/private.conf"), conf).unwrap();
        apt.scan();
        apt
    }

    fn packages_dir(&self) -> PathBuf {
        self.repository.path().join("packages")
    }

    /// Writes the repository's index, and reads it.
    fn scan(&self) {
        let mut scan = tool("dpkg-scanpackages", "dpkg-dev");
        let index = ok(scan.current_dir(self.packages_dir()).args(["--multiversion", "."]));
        fs::write(self.packages_dir().join("Packages"), index).unwrap();
        let mut update = self.command("apt-get");
        ok(update.arg("update"));
    }

    fn command(&self, name: &str) -> Command {
        let mut command = as_root(name, "apt");
        command
            .env("APT_CONFIG", self.root.path().join("etc/apt/private.conf"))
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    fn apt(&self, action: &str, packages: &[&str]) -> Command {
        let mut command = self.command("apt");
        command.args([action, "--yes"]).args(packages);
        command
    }

    /// The packages that an install would bring.
    fn would_install(&self, package: &str) -> BTreeSet<String> {
        let plan = ok(self.command("apt-get").args(["--simulate", "install", package]));
        let lines = plan.lines().filter_map(|line| line.strip_prefix("Inst "));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }
}

#[test]
fn apt_installs_a_group_in_either_spelling_with_its_generic() {
    let apt = Apt::new(built("deb", VERSION));
    let root = &apt.root;
    ok(&mut apt.apt("install", &["rocblas-gfx110X"]));
    assert_eq!(root.packages(), lower(&["rocblas-gfx110x", "rocblas-generic"]));
    root.assert_clean();
    ok(&mut apt.apt("install", &["rocblas-gfx120x"]));
    assert_eq!(root.packages(), lower(&["rocblas-gfx110x", "rocblas-gfx120x", "rocblas-generic"]));
    root.assert_clean();
    ok(&mut apt.apt("remove", &["rocblas-gfx110x"]));
    assert_eq!(root.packages(), lower(&["rocblas-gfx120x", "rocblas-generic"]));
    root.assert_clean();
    // The generic package came for the groups' sake, and goes with the last.
    ok(&mut apt.apt("autoremove", &["rocblas-gfx120x"]));
    root.assert_no_trace();
}

#[test]
fn apt_brings_what_groups_share_and_takes_it_away_with_the_last() {
    let apt = Apt::new(shared("deb"));
    for group in SHARING {
        let all: Vec<_> = SHARED.iter().chain([&group]).collect();
        assert_eq!(apt.would_install(group), lower(&all), "{group}");
    }
    ok(&mut apt.apt("install", &SHARING));
    apt.root.assert_clean();
    ok(&mut apt.apt("autoremove", &["aotriton-lib-gfx1103"]));
    assert!(apt.root.path().join(SHARED_FILE).exists());
    ok(&mut apt.apt("autoremove", &["aotriton-lib-gfx110x"]));
    apt.root.assert_no_trace();
}

#[test]
fn apt_takes_a_group_along_when_its_generic_is_removed() {
    let apt = Apt::new(built("deb", VERSION));
    ok(&mut apt.apt("install", &["hipblaslt-gfx110X", "hipblaslt-gfx120X"]));
    assert_eq!(apt.root.packages(), lower(&two_groups_of_two_packages()));
    apt.root.assert_clean();
    ok(&mut apt.apt("remove", &["rocblas-generic"]));
    apt.root.assert_no_trace();
}

#[test]
fn apt_resolves_what_each_package_needs() {
    let apt = Apt::new(built("deb", VERSION));
    for (name, needs) in NEEDS {
        let all: Vec<_> = needs.iter().chain([name]).collect();
        assert_eq!(apt.would_install(name), lower(&all), "{name}");
        assert_eq!(apt.would_install(&name.to_lowercase()), lower(&all), "{name}");
    }
    for name in META {
        let all = apt.would_install(name);
        assert!(all.contains(&format!("{name}-generic")), "{name}: {all:?}");
    }
    // Which of the groups, only the user knows.
    let refused = fails(&mut apt.apt("install", &["rocblas-kernels"]), 100);
    assert!(refused.contains("rocblas-kernels"), "{refused}");
}

#[test]
fn apt_upgrades_generic_and_groups_together() {
    let apt = Apt::new(built("deb", VERSION));
    ok(&mut apt.apt("install", &["hipblaslt-gfx110X"]));
    let newer = built("deb", "7.1.1");
    for entry in fs::read_dir(newer.path().join("packages")).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, apt.packages_dir().join(from.file_name().unwrap())).unwrap();
    }
    apt.scan();
    let before = apt.root.packages();
    ok(&mut apt.apt("upgrade", &[]));
    assert_eq!(apt.root.packages(), before);
    let status = fs::read_to_string(apt.root.path().join("var/lib/dpkg/status")).unwrap();
    let versions: Vec<_> = status.lines().filter(|line| line.starts_with("Version: ")).collect();
    assert_eq!(versions, ["Version: 7.1.1-1"; 4]);
    apt.root.assert_clean();
}

// ---- rpm ----

/// A root with rpm's database and the directories that every system has.
struct RpmRoot {
    root: TempDir,
    empty: BTreeMap<String, String>,
}

impl RpmRoot {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["opt", "usr/share/doc", "usr/share/licenses"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let made = Self { empty: installed(root.path()), root };
        ok(made.rpm().arg("--initdb"));
        made
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    /// rpm with its database in the root, wherever this system or this user has it.
    fn rpm(&self) -> Command {
        let mut command = as_root("rpm", "rpm");
        command.env("HOME", self.path()).arg("--root").arg(self.path()).args([
            "--define",
            "_dbpath /var/lib/rpm",
            "--nosignature",
        ]);
        command
    }

    fn packages(&self) -> BTreeSet<String> {
        let names = ok(self.rpm().args(["-qa", "--qf", "%{NAME}\n"]));
        names.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn assert_clean(&self) {
        assert_eq!(ok(self.rpm().arg("-Va")), "");
    }

    #[track_caller]
    fn assert_no_trace(&self) {
        assert_eq!(installed(self.path()), self.empty);
        assert_eq!(self.packages(), BTreeSet::new());
    }
}

fn set(names: &[impl AsRef<str>]) -> BTreeSet<String> {
    names.iter().map(|name| name.as_ref().to_owned()).collect()
}

#[test]
fn rpm_wants_the_generic_package_with_a_group() {
    let rpms = built("rpm", VERSION);
    let root = RpmRoot::new();
    let refused = fails(root.rpm().arg("-i").arg(rpm_file(&rpms, "rocblas-gfx110X")), 1);
    let wanted = format!("rocblas-generic = {VERSION}-1 is needed by rocblas-gfx110X");
    assert!(refused.contains(&wanted), "{refused}");
    root.assert_no_trace();

    let both = ["rocblas-gfx110X", "rocblas-generic"];
    ok(root.rpm().arg("-i").args(both.map(|name| rpm_file(&rpms, name))));
    assert_eq!(root.packages(), set(&both));
    root.assert_clean();
    let refused = fails(root.rpm().args(["-e", "rocblas-generic"]), 1);
    assert!(refused.contains("is needed by (installed) rocblas-gfx110X"), "{refused}");
    ok(root.rpm().args(["-e", "rocblas-gfx110X"]));
    assert!(root.path().join("opt/rocm/lib/librocblas.so.5").exists());
    ok(root.rpm().args(["-e", "rocblas-generic"]));
    root.assert_no_trace();
}

#[test]
fn rpm_installs_groups_side_by_side_and_removes_them_without_a_trace() {
    let rpms = built("rpm", VERSION);
    let names = two_groups_of_two_packages();
    let root = RpmRoot::new();
    ok(root.rpm().arg("-i").args(names.iter().map(|name| rpm_file(&rpms, name))));
    assert_eq!(root.packages(), set(&names));
    ok(root.rpm().arg("-V").args(&names));
    root.assert_clean();
    ok(root.rpm().args(["-e", "rocblas-gfx120X", "hipblaslt-gfx120X"]));
    root.assert_clean();
    let left = installed(root.path());
    assert!(left.keys().any(|path| path.contains("gfx1102")), "{left:#?}");
    assert!(!left.keys().any(|path| path.contains("gfx120")), "{left:#?}");
    let rest = ["rocblas-gfx110X", "hipblaslt-gfx110X", "hipblaslt-generic", "rocblas-generic"];
    ok(root.rpm().arg("-e").args(rest));
    root.assert_no_trace();
}

#[test]
fn rpm_installs_two_groups_with_what_they_share() {
    let rpms = shared("rpm");
    let root = RpmRoot::new();
    for group in SHARING {
        for left_out in SHARED {
            let given = SHARED.iter().filter(|name| **name != left_out).chain([&group]);
            let given = given.map(|name| rpm_file(&rpms, name));
            let refused = run(root.rpm().args(["-i", "--test"]).args(given));
            assert_ne!(refused.status, Some(0), "{group} without {left_out}");
            let wanted = format!("{left_out} = {VERSION}-1 is needed by {group}");
            assert!(refused.stderr.contains(&wanted), "{}", refused.stderr);
        }
    }
    let all: Vec<&str> = SHARED.into_iter().chain(SHARING).collect();
    ok(root.rpm().arg("-i").args(all.iter().map(|name| rpm_file(&rpms, name))));
    assert_eq!(root.packages(), set(&all));
    root.assert_clean();
    ok(root.rpm().args(["-e", "aotriton-lib-gfx110X"]));
    root.assert_clean();
    assert!(root.path().join(SHARED_FILE).exists());
    ok(root.rpm().args(["-e", "aotriton-lib-gfx1103"]).args(SHARED));
    root.assert_no_trace();
}

#[test]
fn rpm_sees_a_changed_and_a_lost_file() {
    let rpms = built("rpm", VERSION);
    let root = RpmRoot::new();
    ok(root.rpm().arg("-i").arg(rpm_file(&rpms, "rocm-sysdeps")));
    root.assert_clean();
    fs::write(root.path().join("opt/rocm/bin/sysdeps-info"), "changed").unwrap();
    fs::remove_file(root.path().join("opt/rocm/lib/libsysdeps.so.3")).unwrap();
    let told = run(root.rpm().args(["-V", "rocm-sysdeps"])).stdout;
    assert!(told.contains("S.5....T.    /opt/rocm/bin/sysdeps-info"), "{told}");
    assert!(told.contains("missing     /opt/rocm/lib/libsysdeps.so.3"), "{told}");
}

#[test]
fn rpm_holds_each_package_to_its_relations() {
    let rpms = built("rpm", VERSION);
    let root = RpmRoot::new();
    for (name, needs) in NEEDS {
        for left_out in *needs {
            let given = needs.iter().filter(|other| *other != left_out).chain([name]);
            let given = given.map(|name| rpm_file(&rpms, name));
            // rpm exits with the number of packages that it does not install.
            let refused = run(root.rpm().args(["-i", "--test"]).args(given));
            assert_ne!(refused.status, Some(0), "{name} without {left_out}");
            let refused = refused.stderr;
            assert!(refused.contains(&format!("\t{} ", rpm_name(left_out))), "{refused}");
        }
        let given = needs.iter().chain([name]).map(|name| rpm_file(&rpms, name));
        ok(root.rpm().args(["-i", "--test"]).args(given));
    }
    root.assert_no_trace();
}

#[test]
fn rpm_finds_every_digest_right() {
    let rpms = built("rpm", VERSION);
    let all: Vec<_> = NEEDS.iter().map(|(name, _)| *name).chain(META).collect();
    let files: Vec<_> = all.iter().map(|name| rpm_file(&rpms, name)).collect();
    let there = fs::read_dir(rpms.path().join("packages")).unwrap().count();
    assert_eq!(there, files.len(), "packages that the list does not know");
    for mut command in [tool("rpm", "rpm"), tool("rpmkeys", "rpm")] {
        let told = ok(command.args(["-K", "--nosignature"]).args(&files));
        assert_eq!(told.lines().filter(|l| l.ends_with(": digests OK")).count(), files.len());
    }
}

// ---- both ----

/// All packages at once, and the two package managers leave the same things in the prefix.
#[test]
fn dpkg_and_rpm_install_the_same() {
    let (debs, rpms) = (built("deb", VERSION), built("rpm", VERSION));
    let all: Vec<_> = NEEDS.iter().map(|(name, _)| *name).chain(META).collect();
    let (deb_root, rpm_root) = (DebRoot::new(), RpmRoot::new());
    ok(deb_root.dpkg().arg("-i").args(all.iter().map(|name| deb(&debs, name))));
    ok(rpm_root.rpm().arg("-i").args(all.iter().map(|name| rpm_file(&rpms, name))));
    deb_root.assert_clean();
    rpm_root.assert_clean();
    let prefix = |root: &Path| snapshot(&root.join("opt/rocm"));
    let (of_deb, mut of_rpm) = (prefix(deb_root.path()), prefix(rpm_root.path()));
    // Libraries are executable where rpm's tools look into them, and are not by Debian's policy.
    for (path, what) in &mut of_rpm {
        if path.starts_with("lib/lib") && path.contains(".so") {
            *what = what.replacen("file 0755 ", "file 0644 ", 1);
        }
    }
    assert_eq!(of_deb, of_rpm);
    ok(deb_root.dpkg().arg("-r").args(lower(&all)));
    ok(rpm_root.rpm().arg("-e").args(all.iter().map(|name| rpm_name(name))));
    deb_root.assert_no_trace();
    rpm_root.assert_no_trace();
}
