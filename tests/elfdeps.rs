//! Relations from ELF files, held against the tools that distributions make them with: rpm's elfdeps
//! and dpkg-shlibdeps.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{example_config, example_packages, example_shards, fails, gfxpack, ok, run, tool};
use gfxpack::elf::{self, Kind, Needs};
use gfxpack::package::elfdeps::table::Table;
use gfxpack::package::elfdeps::{DebDepends, Distro, rpm};
use gfxpack::read_at::OpenFile;
use serde_json::Value;

/// Rpm's generator of relations.
const ELFDEPS: &str = "/usr/lib/rpm/elfdeps";

/// How many files an ordinary run compares.
const SAMPLE: usize = 500;

/// The ELF files below a directory, links left out, sorted.
fn elf_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            elf_files(&path, found);
        } else if meta.is_file() {
            let mut magic = [0; 4];
            let read = File::open(&path).and_then(|mut file| file.read_exact(&mut magic));
            if read.is_ok() && magic == *b"\x7fELF" {
                found.push(path);
            }
        }
    }
}

/// What a file needs; `None` where it is no x86-64 program or library.
fn needs(path: &Path) -> Option<Needs> {
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let file = OpenFile::new(file, len);
    match elf::probe(&file).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
        Kind::Program(image) => {
            Some(Needs::read(&file, &image).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        }
        _ => None,
    }
}

/// What rpm's generator prints.
fn elfdeps(what: &str, path: &Path) -> BTreeSet<String> {
    let printed = ok(Command::new(ELFDEPS).arg(what).arg(path));
    printed.lines().map(str::to_owned).collect()
}

/// How many files were compared, and what differs.
fn differences(paths: &[PathBuf]) -> (usize, Vec<String>) {
    let mut compared = 0;
    let mut different = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(needs) = needs(path) else { continue };
        let executable = path.metadata().unwrap().permissions().mode() & 0o111 != 0;
        let provides = ("--provides", rpm::provides(&needs, name));
        let requires = ("--requires", rpm::requires(&needs, executable));
        compared += 1;
        for (what, ours) in [provides, requires] {
            let theirs = elfdeps(what, path);
            if ours != theirs {
                let path = path.display();
                let (more, less) = (&ours - &theirs, &theirs - &ours);
                different.push(format!("{path} {what}: too much {more:?}, missing {less:?}"));
            }
        }
    }
    (compared, different)
}

/// Of the machine's libraries some hundreds, spread over all of them; with `GFXPACK_TEST_ELF` every one
/// below that directory.
#[test]
fn capabilities_are_those_of_rpm() {
    let dir = std::env::var_os("GFXPACK_TEST_ELF");
    let mut paths = Vec::new();
    elf_files(Path::new(dir.as_deref().unwrap_or("/usr/lib".as_ref())), &mut paths);
    if dir.is_none() {
        let step = paths.len().div_ceil(SAMPLE);
        paths = paths.into_iter().step_by(step.max(1)).collect();
    }
    let half = paths.len() / 2;
    let ((one, mut different), (other, more)) = std::thread::scope(|scope| {
        let second = scope.spawn(|| differences(&paths[half..]));
        (differences(&paths[..half]), second.join().unwrap())
    });
    different.extend(more);
    assert!(one + other > 10, "only {} of {} files are programs", one + other, paths.len());
    println!("{} files compared", one + other);
    assert!(different.is_empty(), "of {}:\n{}", one + other, different.join("\n"));
}

/// The relations that dpkg-shlibdeps gives a file.
fn shlibdeps(dir: &Path, path: &Path) -> BTreeSet<String> {
    let mut command = tool("dpkg-shlibdeps", "dpkg-dev");
    let printed = ok(command
        .current_dir(dir)
        .args(["-O", "--ignore-missing-info", "--warnings=0"])
        .arg(path));
    let list = printed.trim().strip_prefix("shlibs:Depends=").unwrap_or_default();
    list.split(", ").filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// A relation's package, without the version.
fn package(relation: &str) -> String {
    relation.split(" (").next().unwrap().to_owned()
}

/// Programs and libraries whose relations an ordinary run compares; with `GFXPACK_TEST_SHLIBDEPS` all.
const SHLIBDEPS: usize = 64;

/// What the loader asks of a library though no symbol has it: dpkg-shlibdeps looks at symbols alone, and
/// lets such a file be installed where it cannot be loaded.
const NO_SYMBOLS: &str = "GLIBC_ABI_DT_RELR";

/// Both read the symbols files of Debian 12: ours those of the table, dpkg-shlibdeps those of the packages
/// that are installed.
#[test]
fn relations_are_those_of_dpkg_shlibdeps() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("debian")).unwrap();
    let control = "Source: x\n\nPackage: x\nArchitecture: any\n";
    fs::write(dir.path().join("debian/control"), control).unwrap();
    let mut paths = Vec::new();
    for known in ["/usr/bin", "/usr/lib/x86_64-linux-gnu"] {
        let mut below = Vec::new();
        elf_files(Path::new(known), &mut below);
        // Not the many plugins in folders: they are all alike.
        paths.extend(below.into_iter().filter(|path| path.parent() == Some(Path::new(known))));
    }
    let ours = |path: &PathBuf| {
        let needs = needs(path)?;
        let mut relations = DebDepends::default();
        for soname in &needs.needed {
            let missing = Distro::Debian12.table().relate(soname, &needs, &mut relations)?;
            assert!(missing.is_empty(), "{}: {missing:?}", path.display());
        }
        let versions = needs.versions_needed.iter().flat_map(|(_, versions)| versions);
        let stricter = versions.into_iter().any(|version| version == NO_SYMBOLS);
        let relations = BTreeSet::from_iter(relations.list());
        (!needs.needed.is_empty()).then_some((path.clone(), relations, stricter))
    };
    let known: Vec<_> = paths.iter().filter_map(ours).collect();
    let all = std::env::var_os("GFXPACK_TEST_SHLIBDEPS").is_some();
    let count = if all { known.len() } else { known.len().min(SHLIBDEPS) };
    // Spread over all of them.
    let chosen: Vec<_> = (0..count).map(|i| known[i * known.len() / count].clone()).collect();
    assert!(chosen.len() >= 60, "only {} files are of libraries in the table", chosen.len());
    let compare = |files: &[(PathBuf, BTreeSet<String>, bool)]| -> (Vec<String>, Vec<String>) {
        let (mut packages, mut versions) = (Vec::new(), Vec::new());
        for (path, ours, stricter) in files {
            let theirs = shlibdeps(dir.path(), path);
            let names = |relations: &BTreeSet<String>| -> BTreeSet<String> {
                relations.iter().map(|relation| package(relation)).collect()
            };
            let line =
                format!("{}: {:?}, not {:?}", path.display(), ours - &theirs, &theirs - ours);
            if names(ours) != names(&theirs) {
                packages.push(line);
            } else if *ours != theirs {
                let libc = |relation: &&String| package(relation) != "libc6";
                let rest = |relations: &BTreeSet<String>| -> BTreeSet<String> {
                    relations.iter().filter(libc).cloned().collect()
                };
                if *stricter && rest(ours) == rest(&theirs) {
                    continue;
                }
                versions.push(line);
            }
        }
        (packages, versions)
    };
    let (one, other) = chosen.split_at(chosen.len() / 2);
    let ((mut packages, mut versions), more) = std::thread::scope(|scope| {
        let second = scope.spawn(|| compare(other));
        (compare(one), second.join().unwrap())
    });
    packages.extend(more.0);
    versions.extend(more.1);
    println!("{} compared, other versions:\n{}", chosen.len(), versions.join("\n"));
    assert!(packages.is_empty(), "other packages:\n{}", packages.join("\n"));
    assert!(versions.is_empty(), "other versions:\n{}", versions.join("\n"));
}

// ---- Resolution in a set ----

/// Two artifacts: `core` with a library in the linker's path and a private one beside it, `tool` with a
/// program that needs both, a library of its own, and `libnowhere.so.1`, which nobody has.
struct Artifacts(tempfile::TempDir);

impl Artifacts {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let below = |path: &str| dir.path().join("artifacts").join(path);
        let core = below("core_lib_generic/core/stage/lib");
        let private = core.join("rocm_sysdeps/lib");
        let tool = below("tool_run_generic/tool/stage");
        let nowhere = dir.path().join("nowhere");
        for made in [&private, &tool.join("bin"), &tool.join("lib"), &nowhere] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(below("core_lib_generic/artifact_manifest.txt"), "core/stage\n").unwrap();
        fs::write(below("tool_run_generic/artifact_manifest.txt"), "tool/stage\n").unwrap();
        library(&core.join("libcore.so.1.2"), "libcore.so.1", "core", &[]);
        symlink("libcore.so.1.2", core.join("libcore.so.1")).unwrap();
        library(&private.join("libprivate.so.1"), "libprivate.so.1", "private", &[]);
        library(&tool.join("lib/libown.so.1"), "libown.so.1", "own", &[]);
        library(&nowhere.join("libnowhere.so.1"), "libnowhere.so.1", "nowhere", &[]);
        let main = dir.path().join("main.c");
        let calls = ["core", "private", "own", "nowhere"];
        let declared: String = calls.iter().map(|f| format!("int {f}(void);\n")).collect();
        let sum = calls.map(|f| format!("{f}()")).join(" + ");
        fs::write(&main, format!("{declared}int main(void) {{ return {sum}; }}\n")).unwrap();
        ok(tool_cc()
            .arg("-o")
            .arg(tool.join("bin/tool"))
            .arg(&main)
            .arg(core.join("libcore.so.1.2"))
            .arg(private.join("libprivate.so.1"))
            .arg(tool.join("lib/libown.so.1"))
            .arg(nowhere.join("libnowhere.so.1"))
            .arg("-Wl,-rpath,$ORIGIN/../lib64:$ORIGIN/../lib/rocm_sysdeps/lib")
            .arg("-Wl,--enable-new-dtags"));
        // The way of DT_RUNPATH leads through a link of a folder, in another package.
        symlink("lib", core.with_file_name("lib64")).unwrap();
        Self(dir)
    }

    /// `gfxpack package --dry-run` with the definitions of both, and what else the packages file says.
    fn package(&self, externals: &Value, tool: &Value) -> Command {
        let contents = |artifact: &str| serde_json::json!([{ "artifact": artifact }]);
        let mut tool = tool.clone();
        tool["name"] = "tool".into();
        tool["contents"] = contents("tool");
        let packages = serde_json::json!({
            "externals": externals,
            "packages": [{ "name": "core", "contents": contents("core") }, tool],
        });
        let file = self.0.path().join("packages.json");
        fs::write(&file, packages.to_string()).unwrap();
        let mut command = gfxpack();
        command
            .args(["package", "--dry-run", "--json", "--version", "1.5", "--release", "2"])
            .arg("--artifacts-dir")
            .arg(self.0.path().join("artifacts"))
            .arg("--config")
            .arg(example_config())
            .arg("--packages")
            .arg(file)
            .arg("--output-dir")
            .arg(self.0.path().join("out"));
        command
    }
}

fn tool_cc() -> Command {
    tool("gcc", "gcc libc6-dev")
}

fn library(path: &Path, soname: &str, function: &str, args: &[&str]) {
    let source = path.with_extension("c");
    fs::write(&source, format!("int {function}(void) {{ return 1; }}\n")).unwrap();
    ok(tool_cc()
        .args(["-shared", "-fPIC", "-nostdlib"])
        .arg(format!("-Wl,-soname,{soname}"))
        .args(args)
        .arg("-o")
        .args([path, &source]));
    fs::remove_file(source).unwrap();
}

/// The package of that name in a dry run's report.
fn planned<'v>(report: &'v Value, name: &str) -> &'v Value {
    let packages = report["packages"].as_array().unwrap();
    packages.iter().find(|package| package["name"] == name).unwrap()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn a_library_is_of_the_set_the_distribution_or_settled() {
    let artifacts = Artifacts::new();
    let settled = serde_json::json!({ "libnowhere.so.*": { "deb": "nowhere1 (>= 3)" } });
    let none = serde_json::json!({});
    let report = parsed(&ok(&mut artifacts.package(&settled, &none)));
    let tool = planned(&report, "tool");
    assert_eq!(tool["relations"], serde_json::json!(["Requires: core = 1.5-2"]));
    assert_eq!(
        tool["deb_relations"]["depends"],
        serde_json::json!(["libc6 (>= 2.34)", "nowhere1 (>= 3)"])
    );
    // Neither what the package has itself, nor what is private in another one.
    assert_eq!(
        tool["rpm_relations"],
        serde_json::json!({
            "provides": ["libown.so.1()(64bit)"],
            "requires": [
                "libc.so.6()(64bit)",
                "libc.so.6(GLIBC_2.2.5)(64bit)",
                "libc.so.6(GLIBC_2.34)(64bit)",
                "libcore.so.1()(64bit)",
                "libnowhere.so.1()(64bit)",
                "rtld(GNU_HASH)",
            ],
        })
    );
    let core = planned(&report, "core");
    assert_eq!(core["relations"], serde_json::json!([]));
    assert_eq!(core["deb_relations"]["depends"], Value::Null);
    assert_eq!(core["rpm_relations"]["provides"], serde_json::json!(["libcore.so.1()(64bit)"]));
}

#[test]
fn a_library_of_the_set_that_the_loader_does_not_find_is_told() {
    let artifacts = Artifacts::new();
    let program = artifacts.0.path().join("artifacts/tool_run_generic/tool/stage/bin/tool");
    ok(tool("patchelf", "patchelf").arg("--remove-rpath").arg(program));
    let ignored = serde_json::json!({ "libnowhere.so.1": null });
    let none = serde_json::json!({});
    let ran = run(&mut artifacts.package(&ignored, &none));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let warning = "opt/rocm/bin/tool needs libprivate.so.1, and the loader finds it neither by \
                   DT_RUNPATH nor in the linker's path: \
                   opt/rocm/lib/rocm_sysdeps/lib/libprivate.so.1 is taken to be loaded before";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    // The others are in the linker's path.
    assert_eq!(ran.stderr.matches("the loader finds it neither").count(), 1, "{}", ran.stderr);
    let report = parsed(&ran.stdout);
    let tool = planned(&report, "tool");
    assert_eq!(tool["relations"], serde_json::json!(["Requires: core = 1.5-2"]));
    assert!(!tool["rpm_relations"].to_string().contains("libprivate"), "{tool}");
    // The .rpm is the same without a .deb beside it.
    let alone = parsed(&ok(artifacts.package(&ignored, &none).args(["--format", "rpm"])));
    assert_eq!(planned(&alone, "tool")["rpm_relations"], tool["rpm_relations"]);
}

#[test]
fn a_library_that_nobody_has_stops_the_plan() {
    let artifacts = Artifacts::new();
    let none = serde_json::json!({});
    let told = fails(&mut artifacts.package(&none, &none), 2);
    let expected = "package `tool`: opt/rocm/bin/tool needs libnowhere.so.1, which is neither in the \
                    set nor in debian12's table of libraries";
    assert!(told.contains(expected), "{told}");
    assert!(told.contains(r#"`externals` of the packages file, as {"libnowhere.so.1""#), "{told}");

    // An .rpm can ask for any library.
    let report = parsed(&ok(artifacts.package(&none, &none).args(["--format", "rpm"])));
    let requires = &planned(&report, "tool")["rpm_relations"]["requires"];
    assert!(
        requires.as_array().unwrap().contains(&"libnowhere.so.1()(64bit)".into()),
        "{requires}"
    );

    // An entry of the name counts, whatever the globs say.
    let both = serde_json::json!({ "lib*": { "deb": "wrong" }, "libnowhere.so.1": null });
    let report = parsed(&ok(&mut artifacts.package(&both, &none)));
    let tool = planned(&report, "tool");
    assert_eq!(tool["deb_relations"]["depends"], serde_json::json!(["wrong"]));
    assert!(!tool.to_string().contains("nowhere"), "{tool}");

    let unknown = serde_json::json!({ "libnowhere.so.1": { "debian": "x" } });
    let told = fails(&mut artifacts.package(&unknown, &none), 2);
    assert!(told.contains("unknown field `debian`"), "{told}");
}

#[test]
fn relations_of_the_packages_file_stand_in_place_of_what_is_found() {
    let artifacts = Artifacts::new();
    let ignored = serde_json::json!({ "libnowhere.so.1": null });
    let own = serde_json::json!({
        "depends": ["core"],
        "deb": { "depends": ["libc6 (>= 2.36)", "perl"] },
        "rpm": { "recommends": ["libcore.so.1()(64bit)"], "requires": ["perl"] },
    });
    let report = parsed(&ok(&mut artifacts.package(&ignored, &own)));
    let tool = planned(&report, "tool");
    // The exact version, which says more than `depends`.
    assert_eq!(tool["relations"], serde_json::json!(["Requires: core = 1.5-2"]));
    let depends = &tool["deb_relations"]["depends"];
    assert_eq!(*depends, serde_json::json!(["libc6 (>= 2.36)", "perl"]));
    let requires = tool["rpm_relations"]["requires"].as_array().unwrap();
    assert_eq!(requires[0], "perl");
    assert!(!requires.contains(&"libcore.so.1()(64bit)".into()), "{requires:?}");

    // In one format alone: the other has what was found.
    let weaker = serde_json::json!({ "deb": { "recommends": ["core"] } });
    let report = parsed(&ok(&mut artifacts.package(&ignored, &weaker)));
    let tool = planned(&report, "tool");
    assert_eq!(tool["relations"], serde_json::json!([]));
    assert_eq!(tool["deb_relations"]["depends"], serde_json::json!(["libc6 (>= 2.34)"]));
    let requires = tool["rpm_relations"]["requires"].to_string();
    assert!(requires.contains(r#""core = 1.5-2""#) && requires.contains("libcore"), "{requires}");
    // A package that is only recommended is not needed for its libraries.
    let weaker = serde_json::json!({ "rpm": { "recommends": ["core"] } });
    let report = parsed(&ok(&mut artifacts.package(&ignored, &weaker)));
    let tool = planned(&report, "tool");
    let depends = tool["deb_relations"]["depends"].to_string();
    assert!(depends.contains("core (= 1.5-2)"), "{depends}");
    let requires = tool["rpm_relations"]["requires"].to_string();
    assert!(!requires.contains("core") && requires.contains("libc.so.6"), "{requires}");

    let report = parsed(&ok(artifacts.package(&ignored, &own).arg("--no-auto-deps")));
    let tool = planned(&report, "tool");
    assert_eq!(tool["relations"], serde_json::json!(["Requires: core >= 1.5-2"]));
    assert_eq!(tool["rpm_relations"]["requires"], serde_json::json!(["perl"]));
}

#[test]
fn the_tables_are_those_of_the_release() {
    let bookworm = Distro::Debian12.table();
    let trixie = Distro::Debian13.table();
    let needs = Needs::default();
    let of = |table: &Table, soname: &str| {
        let mut relations = DebDepends::default();
        table.relate(soname, &needs, &mut relations).map(|_| relations.list())
    };
    assert_eq!(of(bookworm, "libelf.so.1"), Some(vec!["libelf1 (>= 0.131)".to_owned()]));
    assert_eq!(of(trixie, "libelf.so.1"), Some(vec!["libelf1t64 (>= 0.131)".to_owned()]));
    assert_eq!(of(bookworm, "libamdhip64.so.5"), Some(vec!["libamdhip64-5 (>= 4.5.2)".to_owned()]));
    assert_eq!(of(trixie, "libicudata.so.72"), None);
}

/// The packages of the examples find all that they depend on, but for each other, on Debian 12 itself.
#[test]
fn apt_finds_what_the_packages_depend_on() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("packages");
    ok(gfxpack()
        .args([
            "build",
            "--format",
            "deb",
            "--version",
            "1",
            "--release",
            "1",
            "--input-shards-dir",
        ])
        .arg(example_shards())
        .arg("--config")
        .arg(example_config())
        .arg("--packages")
        .arg(example_packages())
        .arg("--output-dir")
        .arg(&out));
    let generic = ["rocblas", "hipblaslt"].map(|n| out.join(format!("{n}-generic_1-1_amd64.deb")));
    let fields = ok(tool("dpkg-deb", "dpkg").arg("--field").arg(&generic[0]).arg("Depends"));
    assert_eq!(fields.trim(), "libc6 (>= 2.34), libgcc-s1 (>= 3.0), libstdc++6 (>= 5)");
    let planned = ok(tool("apt-get", "apt")
        .args(["--simulate", "-o", "Debug::NoLocking=1", "install"])
        .args(&generic));
    assert!(planned.contains("Inst rocblas-generic (1-1 local-deb"), "{planned}");
}
