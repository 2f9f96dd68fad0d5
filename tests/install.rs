//! Installed for real: the packages of the examples through dpkg, apt and rpm, each into a root of its
//! own. Not as root, the tools run in a user namespace.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/roots.rs"]
mod roots;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{
    example_config, example_packages, example_shards, fails, gfxpack, ok, run, snapshot, tool,
};
use roots::{Apt, DebRoot, RpmRoot, installed};
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

// ---- dpkg ----

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

/// The packages in a directory of [`built`], sorted.
fn files_in(dir: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.path().join("packages")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// An apt whose repository has these packages.
fn apt(packages: &TempDir) -> Apt {
    let apt = Apt::new(DebRoot::new());
    apt.publish(files_in(packages));
    apt
}

#[test]
fn apt_installs_a_group_in_either_spelling_with_its_generic() {
    let apt = apt(&built("deb", VERSION));
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
    let apt = apt(&shared("deb"));
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
    let apt = apt(&built("deb", VERSION));
    ok(&mut apt.apt("install", &["hipblaslt-gfx110X", "hipblaslt-gfx120X"]));
    assert_eq!(apt.root.packages(), lower(&two_groups_of_two_packages()));
    apt.root.assert_clean();
    ok(&mut apt.apt("remove", &["rocblas-generic"]));
    apt.root.assert_no_trace();
}

#[test]
fn apt_resolves_what_each_package_needs() {
    let apt = apt(&built("deb", VERSION));
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
    let apt = apt(&built("deb", VERSION));
    ok(&mut apt.apt("install", &["hipblaslt-gfx110X"]));
    apt.publish(files_in(&built("deb", "7.1.1")));
    let before = apt.root.packages();
    ok(&mut apt.apt("upgrade", &[]));
    assert_eq!(apt.root.packages(), before);
    let versions: Vec<_> = apt.root.versions().into_values().collect();
    assert_eq!(versions, ["7.1.1-1"; 4]);
    apt.root.assert_clean();
}

// ---- rpm ----

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
    let left = installed(&root.path());
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
    let (of_deb, mut of_rpm) = (prefix(deb_root.path()), prefix(&rpm_root.path()));
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
