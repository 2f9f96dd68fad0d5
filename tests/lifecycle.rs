//! The life of packages on a machine: releases of a set through apt, dpkg, rpm, dnf and zypper, each in a
//! root of its own. After each step the client's own checks have nothing to say, and `check/kernels.py`
//! finds every kernel of the groups that are installed, and for the others no archive at all.

#![allow(clippy::unwrap_used)]

#[path = "common/clients.rs"]
mod clients;
mod common;
#[path = "common/roots.rs"]
mod roots;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clients::{AptGet, Client, Dpkg, Resolver, Rpm};
use common::{Ran, copy_tree, example_config, example_shards, gfxpack, kernel_checker, ok};
use roots::installed;
use serde_json::{Value, json};

/// The third has the files of the second, in other groups.
const VERSIONS: [&str; 3] = ["7.1.0", "7.2.0", "7.3.0"];
const SHARDS: [&str; 3] = ["gfx110X-build", "gfx1151-build", "gfx120X-build"];
/// Groups and the ISAs of each. The last is never installed.
const GROUPS: [(&str, &[&str]); 3] = [
    ("gfx110X", &["gfx1100", "gfx1101", "gfx1102"]),
    ("gfx120X", &["gfx1200", "gfx1201"]),
    ("gfx115X", &["gfx1151"]),
];
const FIRST: &[&str] = &["gfx110X"];
const BOTH: &[&str] = &["gfx110X", "gfx120X"];

const GENERICS: [&str; 2] = ["rocblas-generic", "hipblaslt-generic"];
const GFX110X: [&str; 2] = ["rocblas-gfx110X", "hipblaslt-gfx110X"];
const GFX120X: [&str; 2] = ["rocblas-gfx120X", "hipblaslt-gfx120X"];
const BLAS: [&str; 6] = [
    "rocblas-generic",
    "hipblaslt-generic",
    "rocblas-gfx110X",
    "hipblaslt-gfx110X",
    "rocblas-gfx120X",
    "hipblaslt-gfx120X",
];
const SYSDEPS: &str = "rocm-sysdeps";
/// Takes files over from that in the second release.
const TOOLS: &str = "rocm-sysdeps-tools";

const ROCBLAS: &str = "math-libs/BLAS/rocBLAS/stage";

// ---- the releases ----

/// The shards of each release and its packages.
struct Releases {
    dir: PathBuf,
    /// Held while the tests run: they are made anew by each run.
    _lock: File,
}

impl Releases {
    fn shards(&self, release: usize) -> PathBuf {
        self.dir.join(VERSIONS[release]).join("shards")
    }

    /// The packages in one format whose names pass.
    fn packages(
        &self,
        release: usize,
        format: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<PathBuf> {
        let dir = self.dir.join(VERSIONS[release]).join("packages");
        let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|extension| extension == format))
            .filter(|path| wanted(path.file_name().unwrap().to_str().unwrap()))
            .collect();
        found.sort();
        assert!(!found.is_empty());
        found
    }

    /// What is installed beside the packages, as an artifact.
    fn foreign(&self) -> PathBuf {
        self.dir.join("foreign")
    }
}

fn releases() -> &'static Releases {
    static MADE: OnceLock<Releases> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lifecycle");
        let lock = File::create(dir.with_extension("lock")).unwrap();
        lock.lock().unwrap();
        let _ = fs::remove_dir_all(&dir);
        for version in VERSIONS {
            fs::create_dir_all(dir.join(version)).unwrap();
        }
        let made = Releases { dir, _lock: lock };
        copy_tree(&example_shards(), &made.shards(0));
        copy_tree(&example_shards(), &made.shards(1));
        change(&made.shards(1));
        copy_tree(&made.shards(1), &made.shards(2));
        for release in 0..VERSIONS.len() {
            build(&made, release);
        }
        let foreign = made.foreign();
        fs::create_dir_all(foreign.join("p/lib/rocblas")).unwrap();
        fs::write(foreign.join("artifact_manifest.txt"), "p\n").unwrap();
        fs::write(foreign.join("p/lib/rocblas/local.conf"), "of nobody's package\n").unwrap();
        made
    })
}

/// Makes the second release of the first: other kernels for two ISAs, in a library and in a database, and a
/// file that moves.
fn change(shards: &Path) {
    let replace = |path: PathBuf| {
        let mut bytes = fs::read(&path).unwrap();
        // The compiler's name in the first code object of a file: no code depends on it.
        let at = bytes.windows(12).position(|w| w == b"Debian clang").unwrap();
        bytes[at] = b'd';
        fs::write(path, bytes).unwrap();
    };
    let lib = |shard: &str, target: &str| {
        shards.join(shard).join(format!("blas_lib_{target}")).join(ROCBLAS).join("lib")
    };
    let gfx110x = lib("gfx110X-build", "gfx110X-dgpu");
    replace(gfx110x.join("librocblas.so.5.2"));
    let database = "rocblas/library/TensileLibrary_Type_SS_Contraction_l_Ailk_Bjlk_Cijk_Dijk";
    let gfx120x = lib("gfx120X-build", "gfx120X-all");
    replace(gfx120x.join(format!("{database}_gfx1201.co")));
    for lib in [gfx110x, gfx120x, lib("gfx1151-build", "gfx1151")] {
        fs::create_dir(lib.join("rocblas/manifest")).unwrap();
        let from = lib.join("rocblas/library/TensileManifest.txt");
        fs::rename(from, lib.join("rocblas/manifest/Tensile.txt")).unwrap();
    }
}

/// Builds the packages of a release in both formats, with the relations that follow from the files.
fn build(releases: &Releases, release: usize) {
    let dir = releases.dir.join(VERSIONS[release]);
    let sysdeps = |name: &str, more: Value| {
        let mut contents = json!({"artifact": "sysdeps", "components": ["lib"]});
        contents.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"name": name, "summary": "What comes along", "contents": [contents]})
    };
    let mut packages = json!([
        {
            "name": "rocblas",
            "summary": "Linear algebra",
            "contents": [{"artifact": "blas", "components": ["lib", "run"], "prefixes": [ROCBLAS]}],
        },
        {
            "name": "hipblaslt",
            "summary": "More of it",
            "contents": [{
                "artifact": "blas", "components": ["lib"],
                "prefixes": ["math-libs/BLAS/hipBLASLt/stage"],
            }],
            "depends": ["rocblas"],
        },
    ]);
    let list = packages.as_array_mut().unwrap();
    if release == 0 {
        list.push(sysdeps(SYSDEPS, json!({})));
    } else {
        let mut rest = sysdeps(SYSDEPS, json!({"exclude": ["bin/**"]}));
        rest["depends"] = json!([TOOLS]);
        let mut tools = sysdeps(TOOLS, json!({"include": ["bin/**"]}));
        let earlier = format!("{SYSDEPS} (<< {}-1)", VERSIONS[1]);
        tools["deb"] = json!({"breaks": [earlier], "replaces": [earlier]});
        tools["rpm"] = json!({"conflicts": [format!("{SYSDEPS} < {}-1", VERSIONS[1])]});
        list.extend([rest, tools]);
    }
    let config = json!({"externals": {"libamdhip64.so.*": null}, "packages": packages});
    fs::write(dir.join("packages.json"), config.to_string()).unwrap();
    let text = fs::read_to_string(example_config()).unwrap();
    let mut groups: Value = serde_json::from_str(&text).unwrap();
    if release == 2 {
        // One ISA goes to a group that comes later in every order, one to an earlier.
        let groups = groups["architecture_groups"].as_object_mut().unwrap();
        groups["gfx110X"]["architectures"] = json!(["gfx1100", "gfx1101", "gfx1200"]);
        groups["gfx120X"]["architectures"] = json!(["gfx1102", "gfx1201"]);
    }
    fs::write(dir.join("groups.json"), groups.to_string()).unwrap();
    ok(gfxpack()
        .arg("build")
        .arg("--input-shards-dir")
        .arg(releases.shards(release))
        .arg("--config")
        .arg(dir.join("groups.json"))
        .arg("--packages")
        .arg(dir.join("packages.json"))
        .arg("--output-dir")
        .arg(dir.join("packages"))
        .args(["--version", VERSIONS[release], "--release", "1"])
        .args(["--format", "deb", "--format", "rpm"]));
    ok(gfxpack()
        .arg("verify")
        .arg("--packages-dir")
        .arg(dir.join("packages"))
        .args(["--external", "libamdhip64.so.*", "--config"])
        .arg(dir.join("groups.json")));
}

fn version(release: usize) -> String {
    format!("{}-1", VERSIONS[release])
}

// ---- what must be so after each step ----

/// The prefix of the packages in a client's root.
fn prefix(client: &dyn Client) -> PathBuf {
    client.root().join("opt/rocm")
}

/// Exactly these packages are installed, the client has nothing to complain of, and the loader's side finds
/// all kernels of a release that these groups have, and clearly none of the others.
#[track_caller]
fn assert_state(
    client: &dyn Client,
    packages: &[(&[&str], usize)],
    release: usize,
    groups: &[&str],
) {
    let mut expected = BTreeMap::new();
    for (names, release) in packages {
        for name in *names {
            expected.insert(client.spelled(name), version(*release));
        }
    }
    assert_eq!(client.installed(), expected);
    assert_eq!(client.faults(), "");
    assert_kernels(client, release, groups);
}

#[track_caller]
fn assert_kernels(client: &dyn Client, release: usize, groups: &[&str]) {
    let mut checker = kernel_checker(&prefix(client));
    if client.format() == "deb" {
        checker.arg("--debian-modes");
    }
    let mut expected = BTreeSet::new();
    let mut absent = 0;
    for (group, isas) in GROUPS {
        if groups.contains(&group) {
            expected.extend(isas.iter().map(|isa| (*isa).to_owned()));
        } else {
            absent += isas.len();
            checker.args(isas.iter().flat_map(|isa| ["--absent", isa]));
        }
    }
    let releases = releases();
    for shard in SHARDS {
        for entry in fs::read_dir(releases.shards(release).join(shard)).unwrap() {
            let artifact = entry.unwrap().path();
            let name = artifact.file_name().unwrap().to_str().unwrap();
            if ["blas_lib_", "blas_run_", "sysdeps_"].iter().any(|start| name.starts_with(start)) {
                checker.arg(artifact);
            }
        }
    }
    let checked: Value = serde_json::from_str(&ok(checker.arg(releases.foreign()))).unwrap();
    let isas: BTreeSet<String> = serde_json::from_value(checked["isas"].clone()).unwrap();
    assert_eq!(isas, expected);
    // Four wrappers in one library, two in the other, one in each of two programs.
    assert_eq!(checked["code_objects"], 8 * expected.len());
    // Of each ISA that is absent those, and files of its database.
    assert!(checked["absent"].as_u64().unwrap() > 8 * absent as u64, "{checked}");
}

/// Warnings that say nothing of the packages.
const EXPECTED_WARNINGS: [&str; 5] = [
    // It was told to.
    "dpkg: warning: downgrading ",
    // There is a file of nobody's package.
    "directory '/opt/rocm",
    // Of a plugin of rpm 4.20.
    "private mounts in chroot not implemented",
    // Of zypper, which downloads one after the other.
    "had to be excluded from file conflicts check",
    "GPG checking is disabled in configuration of repository",
];

/// An action that must succeed, without a warning.
#[track_caller]
fn fine(ran: &Ran) {
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.status, Some(0), "{said}");
    for line in said.lines().filter(|line| line.to_lowercase().contains("warning")) {
        assert!(EXPECTED_WARNINGS.iter().any(|known| line.contains(known)), "{line}\n{said}");
    }
}

// ---- the scenario ----

fn all(lists: &[&[&'static str]]) -> Vec<&'static str> {
    lists.concat()
}

/// Installs, reinstalls, upgrades, downgrades and removes, and checks after each step.
fn the_whole_life(client: &mut dyn Client) {
    let releases = releases();
    let format = client.format();
    let everything = |_: &str| true;
    fs::create_dir_all(client.root().join("opt")).unwrap();
    copy_tree(&releases.foreign().join("p"), &prefix(client));
    let before = installed(&client.root());
    client.publish(&releases.packages(0, format, everything), &version(0));

    // A group alone: refused, or with all that it needs.
    if client.resolves() {
        fine(&client.install(&["hipblaslt-gfx110X", SYSDEPS]));
    } else {
        let refused = client.install(&["hipblaslt-gfx110X", SYSDEPS]);
        assert_ne!(refused.status, Some(0), "{refused:?}");
        if format == "deb" {
            // dpkg has unpacked it by then.
            fine(&client.purge(&["hipblaslt-gfx110X", SYSDEPS]));
        }
        assert_eq!(client.installed(), BTreeMap::new());
        fine(&client.install(&all(&[&GENERICS, &GFX110X, &[SYSDEPS]])));
    }
    assert_state(client, &[(&GENERICS, 0), (&GFX110X, 0), (&[SYSDEPS], 0)], 0, FIRST);

    fine(&client.install(&GFX120X));
    let first: [(&[&str], usize); 2] = [(&BLAS, 0), (&[SYSDEPS], 0)];
    assert_state(client, &first, 0, BOTH);

    // What was damaged is seen, and whole again.
    let library = prefix(client).join("lib/librocblas.so.5.2");
    fs::write(&library, "damaged").unwrap();
    let archives = prefix(client).join(".kpack");
    let lost = fs::read_dir(&archives).unwrap().map(|entry| entry.unwrap().path());
    let lost = lost.filter(|path| path.to_str().unwrap().contains("gfx1101")).min().unwrap();
    fs::remove_file(&lost).unwrap();
    let faults = client.faults();
    for path in [&library, &lost] {
        assert!(faults.contains(path.file_name().unwrap().to_str().unwrap()), "{faults}");
    }
    fine(&client.reinstall(&BLAS));
    assert_state(client, &first, 0, BOTH);

    // A repository that has the new generic packages and not yet the groups', or half of the files.
    let generic = |name: &str| name.contains("-generic");
    client.publish(&releases.packages(1, format, generic), &version(1));
    if client.resolves() {
        fine(&client.upgrade_all(&[]));
        assert_state(client, &first, 0, BOTH);
    } else {
        half_an_upgrade_by_hand(client, &first);
    }

    let all_names = all(&[&BLAS, &[SYSDEPS, TOOLS]]);

    // One package by name takes along what belongs to it.
    client.publish(&releases.packages(1, format, everything), &version(1));
    if client.resolves() {
        fine(&client.upgrade(&["rocblas-generic"]));
        let now = client.installed();
        assert_eq!(now.len(), BLAS.len() + 1, "{now:?}");
        for name in BLAS.iter().filter(|name| name.starts_with("rocblas")) {
            assert_eq!(now[&client.spelled(name)], version(1), "{now:?}");
        }
        assert_eq!(client.faults(), "");
        // The second release of hipblaslt has the same files.
        assert_kernels(client, 1, BOTH);
    }
    fine(&client.upgrade_all(&all_names));
    let second: [(&[&str], usize); 2] = [(&BLAS, 1), (&[SYSDEPS, TOOLS], 1)];
    assert_state(client, &second, 1, BOTH);

    // Back only if that is asked for.
    client.downgrade(&BLAS, &version(0), false);
    assert_state(client, &second, 1, BOTH);
    fine(&client.downgrade(&BLAS, &version(0), true));
    assert_state(client, &[(&BLAS, 0), (&[SYSDEPS, TOOLS], 1)], 0, BOTH);
    fine(&client.upgrade_all(&BLAS));
    assert_state(client, &second, 1, BOTH);

    // ISAs change groups, and change back.
    client.publish(&releases.packages(2, format, everything), &version(2));
    fine(&client.upgrade_all(&all_names));
    assert_state(client, &[(&all_names, 2)], 2, BOTH);
    fine(&client.downgrade(&all_names, &version(1), true));
    assert_state(client, &second, 1, BOTH);

    // One group goes, the other stays.
    fine(&client.remove(&GFX120X));
    let one: [(&[&str], usize); 3] = [(&GENERICS, 1), (&GFX110X, 1), (&[SYSDEPS, TOOLS], 1)];
    assert_state(client, &one, 1, FIRST);

    // The host code does not go alone.
    if client.resolves() {
        fine(&client.purge(&["rocblas-generic", SYSDEPS, TOOLS]));
    } else {
        let refused = client.remove(&["rocblas-generic"]);
        assert_ne!(refused.status, Some(0), "{refused:?}");
        assert_state(client, &one, 1, FIRST);
        fine(&client.purge(&all(&[&GENERICS, &GFX110X, &[SYSDEPS, TOOLS]])));
    }
    assert_eq!(client.installed(), BTreeMap::new());
    assert_eq!(client.faults(), "");
    assert_eq!(installed(&client.root()), before);
}

/// Those who are given files get a new generic package alone. rpm refuses. dpkg looks at what the package
/// needs and not at who needs it: it leaves groups of another version, and apt's check finds them.
fn half_an_upgrade_by_hand(client: &mut dyn Client, first: &[(&[&str], usize)]) {
    let half = client.upgrade(&["rocblas-generic"]);
    let needed = "rocblas-generic = 7.1.0-1 is needed by (installed) rocblas-gfx110X";
    if client.format() == "rpm" {
        assert_ne!(half.status, Some(0), "{half:?}");
        assert!(half.stderr.contains(needed), "{half:?}");
    } else {
        fine(&half);
        let faults = client.faults();
        assert!(faults.contains("Unmet dependencies"), "{faults}");
        fine(&client.downgrade(&["rocblas-generic"], &version(0), true));
    }
    assert_state(client, first, 0, BOTH);
}

#[test]
fn dpkg() {
    the_whole_life(&mut Dpkg::new());
}

#[test]
fn apt() {
    the_whole_life(&mut AptGet::new());
}

#[test]
fn rpm() {
    the_whole_life(&mut Rpm::new());
}

#[test]
fn dnf() {
    the_whole_life(&mut Resolver::dnf());
}

#[test]
fn zypper() {
    the_whole_life(&mut Resolver::zypper());
}

// ---- in another Debian, whose libraries the relations name ----

#[test]
#[ignore = "makes a Debian 12: as root, 200 MB over the network, minutes"]
fn apt_and_dpkg_of_bookworm() {
    the_whole_life(&mut Dpkg::debian("bookworm"));
    the_whole_life(&mut AptGet::debian("bookworm"));
}

#[test]
#[ignore = "makes a Debian 13: as root, 200 MB over the network, minutes"]
fn apt_and_dpkg_of_trixie() {
    the_whole_life(&mut Dpkg::debian("trixie"));
    the_whole_life(&mut AptGet::debian("trixie"));
}

/// rpm 4.20, which reads other databases and checks more than that of Debian 12.
#[test]
#[ignore = "makes a Debian 13: as root, 200 MB over the network, minutes"]
fn rpm_of_trixie() {
    the_whole_life(&mut Rpm::debian("trixie"));
}
