//! Packages by kind of file: what goes where, what they are called in each format, and how they relate.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/kinds.rs"]
mod shards;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{example_config, fails, gfxpack, ok, run, tool};
use serde_json::Value;
use shards::{DEFINITION, shards_of_all_kinds};
use tempfile::TempDir;

/// Builds the definitions from the shards of all kinds.
struct Build {
    dir: TempDir,
    packages: PathBuf,
}

impl Build {
    fn new(packages: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        shards_of_all_kinds(dir.path());
        let path = dir.path().join("packages.json");
        fs::write(&path, packages).unwrap();
        Self { dir, packages: path }
    }

    fn command(&self) -> std::process::Command {
        let mut command = gfxpack();
        command.arg("build").arg("--input-shards-dir").arg(self.dir.path().join("shards"));
        command.arg("--config").arg(example_config()).arg("--packages").arg(&self.packages);
        command.arg("--output-dir").arg(self.out()).args(["--version", "7.1.0", "--release", "1"]);
        command
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn plan(&self, more: &[&str]) -> Vec<Value> {
        let text = ok(self.command().args(["--dry-run", "--json"]).args(more));
        let plan: Value = serde_json::from_str(&text).unwrap();
        plan["packages"].as_array().unwrap().clone()
    }

    fn write(&self) -> &Self {
        ok(&mut self.command());
        self
    }

    fn field(&self, deb: &str, field: &str) -> String {
        let deb = self.out().join(format!("{deb}_7.1.0-1_amd64.deb"));
        ok(tool("dpkg-deb", "dpkg").arg("-f").arg(deb).arg(field)).trim_end().to_owned()
    }

    fn rpm(&self, rpm: &str, what: &str) -> BTreeSet<String> {
        let rpm = self.out().join(format!("{rpm}-7.1.0-1.x86_64.rpm"));
        let text = ok(tool("rpm", "rpm").arg("-qp").arg(what).arg(rpm));
        text.lines().filter(|line| !line.starts_with("rpmlib(")).map(str::to_owned).collect()
    }
}

fn one(definition: &str) -> String {
    format!(r#"{{"externals": {{"libamdhip64.so.*": null}}, "packages": [{definition}]}}"#)
}

fn names(plan: &[Value]) -> Vec<&str> {
    plan.iter().map(|package| package["name"].as_str().unwrap()).collect()
}

fn paths(plan: &[Value], name: &str) -> Vec<String> {
    let package = plan.iter().find(|package| package["name"] == name);
    let content = package.unwrap_or_else(|| panic!("no {name}"))["content"].as_array().unwrap();
    let files = content.iter().filter(|item| item["kind"] != "directory");
    files.map(|item| item["path"].as_str().unwrap().to_owned()).collect()
}

fn relations(plan: &[Value], name: &str) -> Vec<String> {
    let package = plan.iter().find(|package| package["name"] == name).unwrap();
    let all = package["relations"].as_array().unwrap().iter();
    all.map(|relation| relation.as_str().unwrap().to_owned()).collect()
}

const EXACT: &str = "Requires: rocblas-generic = 7.1.0-1";

#[test]
fn each_kind_is_a_package_that_relates_to_what_it_is_for() {
    let build = Build::new(&one(DEFINITION));
    let plan = build.plan(&[]);
    assert_eq!(
        names(&plan),
        [
            "rocblas",
            "rocblas-dbgsym",
            "rocblas-dev",
            "rocblas-doc",
            "rocblas-generic",
            "rocblas-gfx110X",
            "rocblas-gfx115X",
            "rocblas-gfx120X",
            "rocblas-tests",
            "rocblas-tests-gfx110X",
            "rocblas-tests-gfx115X",
            "rocblas-tests-gfx120X",
        ]
    );
    assert_eq!(relations(&plan, "rocblas-dev"), [EXACT]);
    assert_eq!(relations(&plan, "rocblas-dbgsym"), [EXACT]);
    assert_eq!(relations(&plan, "rocblas-tests"), [EXACT]);
    assert_eq!(relations(&plan, "rocblas-doc"), ["Enhances: rocblas-generic"]);
    assert_eq!(
        relations(&plan, "rocblas-tests-gfx110X"),
        [
            "Requires: rocblas-tests = 7.1.0-1",
            "Requires: rocblas-gfx110X = 7.1.0-1",
            "Provides: rocblas-tests-kernels = 7.1.0-1"
        ]
    );
    assert_eq!(
        paths(&plan, "rocblas-dev"),
        [
            "opt/rocm/include/rocblas/rocblas.h",
            "opt/rocm/lib/cmake/rocblas/rocblas-config.cmake",
            "opt/rocm/lib/librocblas.so"
        ]
    );
    assert_eq!(paths(&plan, "rocblas-doc"), ["opt/rocm/share/doc/rocblas/guide.txt"]);
    assert_eq!(
        paths(&plan, "rocblas-tests"),
        [
            "opt/rocm/.kpack/blas_test+math-libs+BLAS+rocBLAS.kpm",
            "opt/rocm/bin/rocblas-test",
            "opt/rocm/share/rocblas/test.yaml"
        ]
    );
    assert_eq!(
        paths(&plan, "rocblas-tests-gfx120X"),
        ["gfx1200", "gfx1201"]
            .map(|isa| format!("opt/rocm/.kpack/blas_test+math-libs+BLAS+rocBLAS_{isa}.kpack"))
    );
    let debug = paths(&plan, "rocblas-dbgsym");
    let [readme, symbols] = debug.as_slice() else { panic!("{debug:?}") };
    assert_eq!(readme, "opt/rocm/lib/debug/README", "no symbols: it stays where it was");
    let id = symbols.strip_prefix("usr/lib/debug/.build-id/").unwrap();
    let id = id.strip_suffix(".debug").unwrap();
    assert!(id.len() == 41 && id.as_bytes()[2] == b'/', "{id}");
    let generic = paths(&plan, "rocblas-generic");
    assert!(generic.contains(&"opt/rocm/lib/librocblas.so.5".to_owned()), "{generic:?}");
    assert!(generic.contains(&"opt/rocm/lib/libhelper.so.1".to_owned()), "{generic:?}");
    assert!(!generic.contains(&"opt/rocm/lib/librocblas.so".to_owned()), "{generic:?}");

    // No path in two packages, and nothing lost.
    let mut all: Vec<String> = names(&plan).iter().flat_map(|name| paths(&plan, name)).collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
    let selected = build.plan(&["--only", "rocblas"]);
    assert_eq!(names(&selected), names(&plan));
    assert_eq!(names(&build.plan(&["--only", "rocblas-devel"])), ["rocblas-dev"]);
}

#[test]
fn without_kinds_nothing_is_taken_apart() {
    let definition = r#"{ "name": "rocblas",
        "contents": [{ "artifact": "blas", "prefixes": ["math-libs/BLAS/rocBLAS/stage"] }] }"#;
    let plan = Build::new(&one(definition)).plan(&[]);
    assert_eq!(
        names(&plan),
        ["rocblas", "rocblas-generic", "rocblas-gfx110X", "rocblas-gfx115X", "rocblas-gfx120X"]
    );
    let generic = paths(&plan, "rocblas-generic");
    for path in ["include/rocblas/rocblas.h", "lib/librocblas.so", "lib/debug/libhelper.so.1.debug"]
    {
        assert!(generic.contains(&format!("opt/rocm/{path}")), "{path}: {generic:?}");
    }
}

#[test]
fn an_entry_of_the_contents_can_say_the_kind() {
    let definition = r#"{ "name": "rocblas", "kinds": ["dev"], "contents": [
        { "artifact": "blas", "prefixes": ["math-libs/BLAS/rocBLAS/stage"], "components": ["lib", "run", "dev"] },
        { "artifact": "blas", "components": ["lib"], "include": ["lib/libhelper*"], "kind": "tests" },
        { "artifact": "blas", "components": ["dev"], "include": ["**/cmake/**"], "kind": "doc" } ] }"#;
    let plan = Build::new(&one(definition)).plan(&[]);
    assert_eq!(paths(&plan, "rocblas-tests"), ["opt/rocm/lib/libhelper.so.1"]);
    assert_eq!(paths(&plan, "rocblas-dev"), ["opt/rocm/include/rocblas/rocblas.h"]);
    assert_eq!(paths(&plan, "rocblas-doc"), ["opt/rocm/lib/cmake/rocblas/rocblas-config.cmake"]);
}

#[test]
fn a_plain_package_has_kinds_too_and_development_packages_need_those_of_what_they_depend_on() {
    let support = r#"{ "name": "rocm-support", "dev_links": true,
        "contents": [{ "artifact": "support", "components": ["lib"] }], "depends": ["rocblas"],
        "relations": { "dev": { "deb": { "provides": ["{name}-static (= {version})"] },
                                "rpm": { "provides": ["{name}-static = {version}"] } } } }"#;
    let build = Build::new(&one(&format!("{DEFINITION}, {support}")));
    build.write();
    assert_eq!(
        build.field("rocm-support-dev", "Depends"),
        "rocm-support (= 7.1.0-1), rocblas-dev (>= 7.1.0-1)"
    );
    assert_eq!(
        build.rpm("rocm-support-devel", "--requires"),
        BTreeSet::from(["rocm-support = 7.1.0-1", "rocblas-devel >= 7.1.0-1"].map(str::to_owned))
    );
    let provides = build.rpm("rocm-support-devel", "--provides");
    assert!(provides.contains("rocm-support-devel = 7.1.0-1"), "{provides:?}");
    // `{name}` is the name in the format.
    assert!(provides.contains("rocm-support-devel-static = 7.1.0-1"), "{provides:?}");
    let provides = build.field("rocm-support-dev", "Provides");
    assert_eq!(provides, "rocm-support-dev-static (= 7.1.0-1)");
    assert_eq!(build.field("rocm-support-dev", "Section"), "libdevel");

    // The debug package as dpkg's and gdb's habits have it.
    assert_eq!(build.field("rocblas-dbgsym", "Section"), "debug");
    assert_eq!(build.field("rocblas-dbgsym", "Auto-Built-Package"), "debug-symbols");
    let id = build.field("rocblas-dbgsym", "Build-Ids");
    let library = build.dir.path().join("helper/libhelper.so.1");
    let notes = ok(tool("readelf", "binutils").arg("-n").arg(library));
    assert!(notes.contains(&format!("Build ID: {id}\n")), "{id}: {notes}");
    assert!(build.out().join("rocblas-debuginfo-7.1.0-1.x86_64.rpm").exists());
    assert!(build.out().join("rocblas-doc_7.1.0-1_all.deb").exists());
    assert!(build.out().join("rocblas-doc-7.1.0-1.noarch.rpm").exists());

    let verified = run(gfxpack().arg("verify").arg("--packages-dir").arg(build.out()));
    assert_eq!(verified.status, Some(0), "{}{}", verified.stdout, verified.stderr);

    // The licence's text, from the artifact.
    let unpacked = build.dir.path().join("unpacked");
    let deb = build.out().join("rocblas-gfx110x_7.1.0-1_amd64.deb");
    ok(tool("dpkg-deb", "dpkg").arg("-x").arg(deb).arg(&unpacked));
    let copyright = unpacked.join("usr/share/doc/rocblas-gfx110x/copyright");
    let copyright = fs::read_to_string(copyright).unwrap();
    assert!(copyright.contains("\n Do what you like,\n at your own risk.\n"), "{copyright}");
    let licenses = build.rpm("rocblas-generic", "-L");
    assert!(licenses.contains("/usr/share/licenses/rocblas-generic/LICENSE"), "{licenses:?}");
}

#[test]
fn two_names_of_one_file_of_symbols_and_files_without_a_build_id() {
    let build = Build::new(&one(DEFINITION));
    for shard in fs::read_dir(build.dir.path().join("shards")).unwrap() {
        let shard = shard.unwrap().path();
        let dbg = fs::read_dir(&shard).unwrap().map(|e| e.unwrap().path());
        let dbg = dbg.into_iter().find(|p| p.to_string_lossy().contains("/blas_dbg_")).unwrap();
        let debug = dbg.join("math-libs/BLAS/rocBLAS/stage/lib/debug");
        let symbols = debug.join("libhelper.so.1.debug");
        fs::hard_link(&symbols, debug.join("a-second-name.debug")).unwrap();
        let mut objcopy = tool("objcopy", "binutils");
        ok(objcopy
            .args(["--remove-section", ".note.gnu.build-id"])
            .arg(&symbols)
            .arg(debug.join("none.debug")));
    }
    let debug = paths(&build.plan(&[]), "rocblas-dbgsym");
    assert_eq!(debug.len(), 3, "{debug:?}");
    assert!(debug[1].starts_with("usr/lib/debug/.build-id/"), "{debug:?}");
    assert_eq!(debug[2], "usr/lib/debug/opt/rocm/lib/debug/none.debug");
}

fn refused(packages: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("packages.json");
    fs::write(&path, packages).unwrap();
    let mut command = gfxpack();
    command.arg("build").arg("--input-shards-dir").arg(common::example_shards());
    command.arg("--config").arg(example_config()).arg("--packages").arg(path);
    command.arg("--output-dir").arg(dir.path().join("out"));
    fails(command.args(["--version", "1", "--release", "1", "--dry-run"]), 2)
}

#[test]
fn a_licence_may_be_another_name_of_a_file() {
    let build = Build::new(&one(DEFINITION));
    let of = "shards/gfx110X-build/blas_run_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage";
    let dir = build.dir.path().join(of).join("share/doc/rocblas");
    fs::hard_link(dir.join("LICENSE.md"), dir.join("COPYING")).unwrap();
    build.write();
    let deb = build.out().join("rocblas-generic_7.1.0-1_amd64.deb");
    let script =
        "dpkg-deb --fsys-tarfile \"$0\" | tar -xO ./usr/share/doc/rocblas-generic/copyright";
    let copyright = ok(tool("bash", "bash").args(["-ec", script]).arg(deb));
    assert!(copyright.contains("Do what you like,"), "{copyright}");
}

#[test]
fn faults_of_the_configuration_are_told() {
    let with = |more: &str| {
        refused(&one(&format!(
            r#"{{ "name": "rocblas", "contents": [{{ "artifact": "blas", "components": ["lib"] }}], {more} }}"#
        )))
    };
    let error = with(r#""kinds": ["devel"]"#);
    assert!(error.contains("unknown variant `devel`, expected one of `dev`"), "{error}");
    let error = with(r#""license_file": "share/LICENSE""#);
    assert!(
        error.contains("`rocblas` has no file share/LICENSE to take the licence from"),
        "{error}"
    );
    let error = with(r#""license_file": "../LICENSE""#);
    assert!(error.contains("license_file: "), "{error}");
    let alternative = |link: &str, path: &str| {
        with(&format!(
            r#""alternatives": [{{ "link": "{link}", "name": "x", "path": "{path}", "priority": 1 }}]"#
        ))
    };
    let error = alternative("/usr/bin/x", "{prefix}/bin/none");
    assert!(
        error.contains("no package has the file of the alternative {prefix}/bin/none"),
        "{error}"
    );
    for (link, path) in [("usr/bin/x", "/x"), ("/usr/bin/$(x)", "/x"), ("/usr/bin/x y", "/x")] {
        assert!(
            alternative(link, path).contains(&format!("the link `{link}` has to be")),
            "{link}"
        );
    }
    assert!(alternative("/x", "x;y").contains("the path `x;y` has to be absolute"));
    let error = with(r#""lintian_overrides": [{ "tag": "Some Tag", "reason": " " }]"#);
    assert!(error.contains("is no tag of lintian") && error.contains("has no reason"), "{error}");
    let linker = |what: &str| {
        refused(&format!(
            r#"{{"linker_path": {what}, "packages": [{{ "name": "rocblas", "contents": [{{ "artifact": "blas" }}] }}] }}"#
        ))
    };
    let error = linker(r#"{ "package": "rocblas", "directories": [] }"#);
    assert!(
        error.contains("`rocblas` is defined twice") && error.contains("no directories"),
        "{error}"
    );
    // A definition that is called like another's development package.
    let error = refused(
        r#"{"packages": [
            { "name": "rocblas", "kinds": ["dev"], "contents": [{ "artifact": "blas", "prefixes": ["**/rocBLAS/stage"] }] },
            { "name": "rocblas-dev", "contents": [{ "artifact": "support" }] } ]}"#,
    );
    assert!(error.contains("two packages would be called `rocblas-dev`"), "{error}");
    // The same in an .rpm alone, and the linker's package like a group's.
    let error = refused(
        r#"{"packages": [
            { "name": "rocblas", "kinds": ["dev"], "contents": [{ "artifact": "blas", "prefixes": ["**/rocBLAS/stage"] }] },
            { "name": "rocblas-devel", "contents": [{ "artifact": "support" }] } ]}"#,
    );
    assert!(error.contains("two packages would be called `rocblas-devel`"), "{error}");
    let error = linker(r#"{ "package": "rocblas-gfx110x", "directories": ["lib"] }"#);
    assert!(error.contains("two packages would be called `rocblas-gfx110x`"), "{error}");
}

#[test]
fn the_place_of_lintians_overrides_is_gfxpacks() {
    let build = Build::new(&one(DEFINITION));
    for shard in fs::read_dir(build.dir.path().join("shards")).unwrap() {
        let shard = shard.unwrap().path();
        let doc = fs::read_dir(&shard).unwrap().map(|e| e.unwrap().path());
        let doc = doc.into_iter().find(|p| p.to_string_lossy().contains("/blas_doc_")).unwrap();
        let overrides = doc.join("math-libs/BLAS/rocBLAS/stage/share/lintian/overrides");
        fs::create_dir_all(&overrides).unwrap();
        fs::write(overrides.join("rocblas-generic"), "rocblas-generic: no-manual-page\n").unwrap();
    }
    let error = fails(build.command().args(["--dry-run", "--install-prefix", "/usr"]), 1);
    let words = "/usr/share/lintian/overrides/rocblas-generic of the package rocblas-doc is made by \
                 gfxpack for rocblas-generic";
    assert!(error.contains(words), "{error}");
}

#[test]
fn archives_stand_where_they_are_asked_to() {
    let build = Build::new(&one(DEFINITION));
    let plan = build.plan(&["--install-prefix", "/usr"]);
    let kpacks = |plan: &[Value]| -> Vec<String> {
        names(plan)
            .iter()
            .flat_map(|name| paths(plan, name))
            .filter(|p| p.ends_with(".kpack"))
            .collect()
    };
    let all = kpacks(&plan);
    assert!(!all.is_empty() && all.iter().all(|p| p.starts_with("usr/lib/.kpack/")), "{all:?}");
    let plan = build.plan(&["--install-prefix", "/usr", "--kpack-dir", ".kpack"]);
    assert!(kpacks(&plan).iter().all(|p| p.starts_with("usr/.kpack/")));
    fails(build.command().args(["--kpack-dir", "lib/kpack"]), 2);

    // Markers lead there.
    let out = build.dir.path().join("split");
    let shard = build.dir.path().join("shards/gfx1151-build");
    let mut split = gfxpack();
    split.arg("split").arg("--batch-artifact-parent-dir").arg(&shard).arg("--output-dir").arg(&out);
    ok(split.args(["--kpack-dir", "lib/.kpack", "--kpack-scope", "prefix"]));
    let library = out.join("blas_lib_generic/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2");
    let shown = ok(gfxpack().arg("inspect").arg("--json").arg(library));
    assert!(shown.contains(".kpack/blas_lib+math-libs+BLAS+rocBLAS_@GFXARCH@.kpack"), "{shown}");
    let verified =
        run(gfxpack().args(["verify", "--artifacts-dir"]).arg(&out).arg("--source").arg(&shard));
    assert_eq!(verified.status, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert!(Path::new(&out).join("blas_lib_gfx1151/kpack/stage/lib/.kpack").is_dir());
}
