//! What packages are planned from artifacts and definitions.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{example_config, example_packages, example_shards, fails, gfxpack, ok, run, tool};
use gfxpack::kpack::kpm::Kpm;
use serde_json::Value;

fn build(out: &Path, packages: &Path) -> Command {
    let mut command = gfxpack();
    command.arg("build").arg("--input-shards-dir").arg(example_shards());
    command.arg("--config").arg(example_config()).arg("--packages").arg(packages);
    command.arg("--output-dir").arg(out).args(["--version", "7.1.0", "--release", "1"]);
    command
}

/// The plan as `--dry-run --json` prints it.
fn plan(packages: &Path) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(build(&dir.path().join("out"), packages).args(["--dry-run", "--json"]));
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "a dry run writes nothing");
    let plan: Value = serde_json::from_str(&text).unwrap();
    plan["packages"].as_array().unwrap().clone()
}

fn package<'a>(plan: &'a [Value], name: &str) -> &'a Value {
    plan.iter().find(|package| package["name"] == name).unwrap()
}

fn relations(package: &Value) -> Vec<&str> {
    package["relations"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect()
}

fn paths(package: &Value) -> BTreeSet<&str> {
    let content = package["content"].as_array().unwrap().iter();
    content
        .filter(|item| item["kind"] != "directory")
        .map(|item| item["path"].as_str().unwrap())
        .collect()
}

/// A packages file with these definitions.
fn definitions(dir: &Path, packages: &str) -> PathBuf {
    let path = dir.join("packages.json");
    let externals = r#"{"libamdhip64.so.*": null, "librocblas.so.*": null}"#;
    let text = format!(r#"{{"externals": {externals}, "packages": [{packages}]}}"#);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_definition_with_device_code_gives_a_package_for_each_group() {
    let plan = plan(&example_packages());
    let names: Vec<_> = plan.iter().map(|package| package["name"].as_str().unwrap()).collect();
    let mut expected = vec!["rocm-support", "rocm-support-dev", "rocm-sysdeps", "rocm-sysdeps-dev"];
    for name in ["hipblaslt", "rocblas", "rocfft"] {
        for part in ["", "-dev", "-generic", "-gfx110X", "-gfx115X", "-gfx120X"] {
            expected.push(Box::leak(format!("{name}{part}").into_boxed_str()));
        }
    }
    expected.sort_unstable();
    assert_eq!(names, expected);

    assert_eq!(relations(package(&plan, "rocblas")), ["Requires: rocblas-generic = 7.1.0-1"]);
    assert!(paths(package(&plan, "rocblas")).is_empty());
    assert_eq!(
        relations(package(&plan, "rocblas-gfx110X")),
        ["Requires: rocblas-generic = 7.1.0-1", "Provides: rocblas-kernels = 7.1.0-1"]
    );
    assert_eq!(
        relations(package(&plan, "hipblaslt-gfx110X")),
        [
            "Requires: hipblaslt-generic = 7.1.0-1",
            "Requires: rocblas-gfx110X >= 7.1.0-1",
            "Provides: hipblaslt-kernels = 7.1.0-1",
        ]
    );
    assert_eq!(
        relations(package(&plan, "hipblaslt-generic")),
        ["Requires: rocblas-generic = 7.1.0-1"],
        "its library needs that of rocblas"
    );
    assert_eq!(relations(package(&plan, "rocblas-dev")), ["Requires: rocblas-generic = 7.1.0-1"]);
}

#[test]
fn no_path_is_in_two_packages_and_all_are_under_the_install_prefix() {
    let plan = plan(&example_packages());
    let mut seen = BTreeSet::new();
    for package in &plan {
        for path in paths(package) {
            assert!(path.starts_with("opt/rocm/"), "{path}");
            assert!(seen.insert(path), "{path} is in two packages");
        }
    }
    // Device code is in the groups' packages only, host code in none of them.
    for (name, part) in ["rocblas", "hipblaslt", "rocfft"]
        .into_iter()
        .flat_map(|name| ["generic", "gfx110X", "gfx115X", "gfx120X"].map(|part| (name, part)))
    {
        let of = paths(package(&plan, &format!("{name}-{part}")));
        let kpacks = of.iter().filter(|path| path.ends_with(".kpack")).count();
        assert_eq!(kpacks > 0, part != "generic", "{name}-{part}");
        assert_eq!(of.iter().any(|path| path.contains("/lib/lib")), part == "generic");
    }
}

#[test]
fn the_manifest_of_all_groups_archives_is_in_the_generic_package() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    ok(build(&out, &example_packages()).args(["--format", "deb"]));
    let extracted = dir.path().join("x");
    let deb = out.join("rocblas-generic_7.1.0-1_amd64.deb");
    ok(tool("dpkg-deb", "dpkg").arg("-x").arg(deb).arg(&extracted));
    let manifest = extracted.join("opt/rocm/.kpack/blas_lib+math-libs+BLAS+rocBLAS.kpm");
    let kpm = Kpm::read(fs::File::open(manifest).unwrap()).unwrap();
    let isas: Vec<_> = kpm.kpack_files.keys().map(ToString::to_string).collect();
    assert_eq!(isas, ["gfx1100", "gfx1101", "gfx1102", "gfx1151", "gfx1200", "gfx1201"]);
    // It is true of the archives in the groups' packages.
    for group in ["gfx110x", "gfx115x", "gfx120x"] {
        let deb = out.join(format!("rocblas-{group}_7.1.0-1_amd64.deb"));
        ok(tool("dpkg-deb", "dpkg").arg("-x").arg(deb).arg(&extracted));
    }
    for file in kpm.kpack_files.values() {
        let path = extracted.join("opt/rocm/.kpack").join(&file.file);
        assert_eq!(fs::metadata(path).unwrap().len(), file.size, "{}", file.file);
        assert_eq!(file.kernel_count, 4);
    }
    assert_eq!(fs::read_dir(extracted.join("opt/rocm/.kpack")).unwrap().count(), 6 + 6 + 2);
}

#[test]
fn without_a_packages_file_each_artifact_and_component_is_a_package() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(gfxpack()
        .args(["build", "--dry-run", "--json", "--version", "1", "--release", "1"])
        .arg("--no-auto-deps")
        .arg("--input-shards-dir")
        .arg(example_shards())
        .arg("--config")
        .arg(example_config())
        .arg("--output-dir")
        .arg(dir.path().join("out")));
    let plan: Value = serde_json::from_str(&text).unwrap();
    let names: Vec<_> = plan["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| package["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.contains(&"blas-lib-gfx110X".to_owned()), "{names:?}");
    assert!(names.contains(&"sysdeps-lib".to_owned()) && names.contains(&"blas-dev".to_owned()));
}

#[test]
fn files_that_no_definition_takes_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let packages = definitions(
        dir.path(),
        r#"{"name": "rocfft", "contents": [{"artifact": "fft", "components": ["lib"], "exclude": ["lib/*.so"]}]}"#,
    );
    let ran = run(build(&dir.path().join("out"), &packages).args(["--dry-run", "--verbose"]));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let lost = "in no package: fft_lib_generic/math-libs/rocFFT/stage/lib/librocfft.so";
    for words in [lost, "in no package: blas_lib_gfx110X/"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}

#[test]
fn a_file_that_two_definitions_take_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let packages = definitions(
        dir.path(),
        r#"{"name": "rocfft", "contents": [{"artifact": "fft"}]},
           {"name": "fft-all", "contents": [{"artifact": "fft", "components": ["lib"]}]}"#,
    );
    let stderr = fails(&mut build(&dir.path().join("out"), &packages), 2);
    assert!(stderr.contains("librocfft.so") && stderr.contains("rocfft and fft-all"), "{stderr}");
    assert!(!dir.path().join("out").exists());
}

#[test]
fn only_some_packages_are_made_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let all = dir.path().join("all");
    ok(build(&all, &example_packages()).args(["--format", "deb"]));
    let some = dir.path().join("some");
    ok(build(&some, &example_packages()).args([
        "--format",
        "deb",
        "--only",
        "rocfft",
        "rocblas-gfx110X",
    ]));
    let (all, some) = (common::snapshot(&all), common::snapshot(&some));
    assert_eq!(some.len(), 7, "{some:?}");
    assert!(some.iter().all(|(file, what)| all.get(file) == Some(what)), "the bytes are the same");
    let stderr =
        fails(build(&dir.path().join("no"), &example_packages()).args(["--only", "rocff"]), 2);
    assert!(stderr.contains("rocff") && stderr.contains("rocfft-gfx110X"), "{stderr}");
}

#[test]
fn a_definition_that_takes_nothing_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let fft = r#"{"name": "rocfft", "contents": [{"artifact": "fft"}]}"#;
    for (contents, words) in [
        (
            r#"{"artifact": "blas", "components": ["doc"]}"#,
            "blas has the components dev, lib, run only",
        ),
        (r#"{"artifact": "blas", "prefixes": ["nope"]}"#, "no file is under such a prefix"),
        (r#"{"artifact": "blas", "include": ["*.nope"]}"#, "no file is under such a prefix"),
    ] {
        let packages = definitions(
            dir.path(),
            &format!(r#"{fft}, {{"name": "other", "contents": [{contents}]}}"#),
        );
        let ran = run(build(&dir.path().join("out"), &packages).arg("--dry-run"));
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        assert!(
            ran.stderr.contains(words) && ran.stderr.contains("package other"),
            "{}",
            ran.stderr
        );
    }
    let packages = definitions(
        dir.path(),
        r#"{"name": "xx", "contents": [{"artifact": "nope", "optional": true}]}"#,
    );
    let stderr = fails(&mut build(&dir.path().join("out"), &packages), 2);
    assert!(stderr.contains("no package has anything in it"), "{stderr}");
}

#[test]
fn directories_are_the_same_in_all_packages_whatever_the_builds_umask() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("shards");
    common::copy_tree(&example_shards(), &shards);
    let stage = shards.join("gfx110X-build/fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage");
    ok(Command::new("chmod").arg("750").arg(stage.join("lib")));
    let text = ok(gfxpack()
        .args(["build", "--dry-run", "--json", "--version", "1", "--release", "1"])
        .arg("--no-auto-deps")
        .arg("--input-shards-dir")
        .arg(&shards)
        .arg("--config")
        .arg(example_config())
        .arg("--output-dir")
        .arg(dir.path().join("out")));
    let plan: Value = serde_json::from_str(&text).unwrap();
    for package in plan["packages"].as_array().unwrap() {
        for item in package["content"].as_array().unwrap() {
            assert!(item["kind"] != "directory" || item["mode"] == "0755", "{item}");
        }
    }
}

#[test]
fn a_path_that_is_a_directory_in_one_package_and_a_link_in_another() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("shards");
    common::copy_tree(&example_shards(), &shards);
    let stage = shards.join("gfx110X-build/fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage");
    fs::rename(stage.join("lib"), stage.join("lib64")).unwrap();
    std::os::unix::fs::symlink("lib64", stage.join("lib")).unwrap();
    let stderr = fails(
        gfxpack()
            .args(["build", "--version", "1", "--release", "1", "--input-shards-dir"])
            .arg(&shards)
            .arg("--config")
            .arg(example_config())
            .arg("--output-dir")
            .arg(dir.path().join("out")),
        1,
    );
    assert!(stderr.contains("/opt/rocm/lib would be a directory in one and not"), "{stderr}");
}

/// Artifacts with a file each, as recombining names them, and a configuration in which `y_lib` has groups
/// of its own.
fn recombined(dir: &Path, names: &[&str]) -> (PathBuf, PathBuf) {
    let artifacts = dir.join("artifacts");
    for name in names {
        let file = artifacts.join(name).join("p").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, name).unwrap();
        fs::write(artifacts.join(name).join("artifact_manifest.txt"), "p\n").unwrap();
    }
    let config = dir.join("groups.json");
    let groups = serde_json::json!({
        "primary_shard": "a",
        "architecture_groups": {
            "gfx110X": {"architectures": ["gfx1100", "gfx1030"]},
            "gfx115X": {"architectures": ["gfx1151"]},
            "gfx94X": {"architectures": ["gfx942"]},
        },
        "component_overrides": {"y_lib": {"architecture_groups": {
            "one": {"architectures": ["gfx1100"]}, "two": {"architectures": ["gfx1101"]},
        }}},
    });
    fs::write(&config, groups.to_string()).unwrap();
    (artifacts, config)
}

fn package_plan(dir: &Path, names: &[&str], packages: &str) -> common::Ran {
    let (artifacts, config) = recombined(dir, names);
    run(gfxpack()
        .args(["package", "--dry-run", "--json", "--artifacts-dir"])
        .arg(artifacts)
        .arg("--config")
        .arg(config)
        .arg("--packages")
        .arg(definitions(dir, packages))
        .arg("--output-dir")
        .arg(dir.join("out"))
        .args(["--version", "1", "--release", "1"]))
}

#[test]
fn a_shared_package_is_needed_by_the_groups_of_each_component_that_brings_it() {
    let dir = tempfile::tempdir().unwrap();
    let ran = package_plan(
        dir.path(),
        &[
            "x_lib_generic",
            "x_lib_gfx110X",
            "x_lib_gfx11xx-shared",
            "x_lib_gfx94X",
            "y_lib_generic",
            "y_lib_gfx11xx-shared",
        ],
        r#"{"name": "xx", "contents": [{"artifact": "x"}]},
           {"name": "both", "contents": [{"artifact": "y"}], "depends": ["xx"]}"#,
    );
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
    let plan = plan["packages"].as_array().unwrap();
    let names: Vec<_> = plan.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "both",
            "both-generic",
            "both-gfx11xx-shared",
            "both-one",
            "both-two",
            "xx",
            "xx-generic",
            "xx-gfx110X",
            "xx-gfx115X",
            "xx-gfx11xx-shared",
            "xx-gfx94X"
        ]
    );
    for (group, shares) in [
        ("xx-gfx110X", true),
        ("xx-gfx115X", true),
        ("xx-gfx94X", false),
        ("both-one", true),
        ("both-two", true),
    ] {
        let (name, _) = group.split_once('-').unwrap();
        let needs = format!("Requires: {name}-gfx11xx-shared = 1-1");
        assert_eq!(relations(package(plan, group)).contains(&needs.as_str()), shares, "{group}");
    }
    // One definition with both components: the groups of both need it.
    let dir = tempfile::tempdir().unwrap();
    let ran = package_plan(
        dir.path(),
        &["x_lib_generic", "x_lib_gfx11xx-shared", "y_lib_generic", "y_lib_gfx11xx-shared"],
        r#"{"name": "all", "contents": [{"artifact": "x"}, {"artifact": "y"}]}"#,
    );
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
    let plan = plan["packages"].as_array().unwrap();
    for group in ["gfx110X", "gfx115X", "one", "two"] {
        let package = package(plan, &format!("all-{group}"));
        assert_eq!(
            relations(package),
            [
                "Requires: all-generic = 1-1",
                "Requires: all-gfx11xx-shared = 1-1",
                "Provides: all-kernels = 1-1"
            ]
        );
    }
    assert_eq!(
        paths(package(plan, "all-gfx11xx-shared")),
        BTreeSet::from(["opt/rocm/x_lib_gfx11xx-shared", "opt/rocm/y_lib_gfx11xx-shared"])
    );
}

#[test]
fn what_the_configuration_does_not_share_is_refused() {
    for name in ["x_lib_gfx94x-shared", "x_lib_gfx90x-shared", "x_lib_gfx11xx"] {
        let dir = tempfile::tempdir().unwrap();
        let ran = package_plan(
            dir.path(),
            &["x_lib_generic", name],
            r#"{"name": "xx", "contents": [{"artifact": "x"}]}"#,
        );
        assert_eq!(ran.status, Some(1), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains("nor shared by some of them"), "{}", ran.stderr);
    }
}

/// Another artifact of the package can have a file where a hard link's first name would be.
#[test]
fn a_hard_link_has_the_content_of_its_own_artifact() {
    let dir = tempfile::tempdir().unwrap();
    let (artifacts, config) = recombined(dir.path(), &["x_dev_generic", "x_lib_generic"]);
    for (artifact, names, content) in [
        ("x_dev_generic", ["lib/p", "lib/p2"], "DEV's own"),
        ("x_lib_generic", ["lib/p", "lib/q"], "LIB"),
    ] {
        let below = artifacts.join(artifact).join("p");
        fs::create_dir(below.join("lib")).unwrap();
        fs::write(below.join(names[0]), content).unwrap();
        fs::hard_link(below.join(names[0]), below.join(names[1])).unwrap();
    }
    let contents = r#"[
        {"artifact": "x", "components": ["dev"]},
        {"artifact": "x", "components": ["lib"], "exclude": ["lib/p"]}
    ]"#;
    let packages = format!(r#"{{"name": "xlib", "summary": "x", "contents": {contents}}}"#);
    let out = dir.path().join("out");
    ok(gfxpack()
        .args(["package", "--format", "deb", "--artifacts-dir"])
        .arg(artifacts)
        .arg("--config")
        .arg(config)
        .arg("--packages")
        .arg(definitions(dir.path(), &packages))
        .arg("--output-dir")
        .arg(&out)
        .args(["--version", "1", "--release", "1"]));
    let root = dir.path().join("root");
    ok(Command::new("dpkg-deb").arg("-x").arg(out.join("xlib_1-1_amd64.deb")).arg(&root));
    let installed = |name: &str| fs::read_to_string(root.join("opt/rocm/lib").join(name)).unwrap();
    assert_eq!(["p", "p2", "q"].map(installed), ["DEV's own", "DEV's own", "LIB"]);
}
