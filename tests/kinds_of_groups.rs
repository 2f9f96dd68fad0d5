//! Packages by kind of file where device code, libraries and relations meet: development files, tests, documentation and
//! symbols of groups, and the names that packages have in each format.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{fails, gfxpack, ok, run, tool};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A shard `one` with plain artifacts, each with the prefix `stage`, and two groups that share the family `gfx11xx`.
struct Shard {
    dir: TempDir,
}

impl Shard {
    fn new(definition: &Value) -> Self {
        let shard = Self { dir: tempfile::tempdir().unwrap() };
        let packages = json!({
            "defaults": { "maintainer": "A <a@example.org>", "license": "MIT" },
            "packages": [definition],
        });
        fs::write(shard.path("packages.json"), packages.to_string()).unwrap();
        let group = |isa: &str| json!({ "display_name": isa, "architectures": [isa] });
        let groups = json!({
            "primary_shard": "one",
            "architecture_groups": { "gfx110X": group("gfx1100"), "gfx115X": group("gfx1151") },
        });
        fs::write(shard.path("groups.json"), groups.to_string()).unwrap();
        shard
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The place of a file of an artifact, whose folders are made.
    fn place(&self, artifact: &str, file: &str) -> PathBuf {
        let artifact = self.path("shards/one").join(artifact);
        let path = artifact.join("stage").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(artifact.join("artifact_manifest.txt"), "stage\n").unwrap();
        path
    }

    fn text(&self, artifact: &str, file: &str, text: &str) {
        fs::write(self.place(artifact, file), text).unwrap();
    }

    /// Compiles a file of an artifact.
    fn compile(&self, artifact: &str, file: &str, options: &[&str]) {
        let source = self.path("source.c");
        fs::write(&source, "int _start(void) { return 0; }\n").unwrap();
        let mut gcc = tool("gcc", "gcc");
        gcc.current_dir(self.dir.path()).args([
            "-g",
            "-nostdlib",
            "-Wl,--build-id=sha1,--hash-style=both",
        ]);
        gcc.args(options).arg("-o").arg(self.place(artifact, file)).arg(source);
        // After the source: libraries that are asked for whether needed or not.
        ok(gcc
            .args(["-Wl,--no-as-needed", "-Llibraries"])
            .args(options.iter().filter(|option| option.starts_with("-l"))));
    }

    /// Makes a library that others can be linked to, as `-l:NAME`.
    fn stub(&self, name: &str) {
        fs::create_dir_all(self.path("libraries")).unwrap();
        let source = self.path("stub.c");
        fs::write(&source, "int stub(void) { return 0; }\n").unwrap();
        let mut gcc = tool("gcc", "gcc");
        gcc.args(["-shared", "-fPIC", "-nostdlib", "-Wl,--hash-style=both"])
            .arg(format!("-Wl,-soname,{name}"));
        ok(gcc.arg("-o").arg(self.path("libraries").join(name)).arg(source));
    }

    fn build(&self) -> Command {
        let mut command = gfxpack();
        command.arg("build").arg("--input-shards-dir").arg(self.path("shards"));
        command.arg("--config").arg(self.path("groups.json"));
        command.arg("--packages").arg(self.path("packages.json"));
        command.arg("--output-dir").arg(self.path("out"));
        command.args(["--version", "1.0", "--release", "1"]);
        command
    }

    fn plan(&self, more: &[&str]) -> Vec<Value> {
        let text = ok(self.build().args(["--dry-run", "--json"]).args(more));
        let plan: Value = serde_json::from_str(&text).unwrap();
        plan["packages"].as_array().unwrap().clone()
    }

    fn requires(&self, rpm: &str) -> Vec<String> {
        let rpm = self.path("out").join(format!("{rpm}-1.0-1.x86_64.rpm"));
        let text = ok(tool("rpm", "rpm").args(["-qp", "--requires"]).arg(rpm));
        text.lines().filter(|line| !line.starts_with("rpmlib(")).map(str::to_owned).collect()
    }

    fn depends(&self, deb: &str) -> String {
        let deb = self.path("out").join(format!("{deb}_1.0-1_amd64.deb"));
        ok(tool("dpkg-deb", "dpkg").arg("-f").arg(deb).arg("Depends")).trim_end().to_owned()
    }
}

fn names(plan: &[Value]) -> Vec<&str> {
    plan.iter().map(|package| package["name"].as_str().unwrap()).collect()
}

/// Every file of the plan, sorted.
fn files(plan: &[Value]) -> Vec<String> {
    let content = plan.iter().flat_map(|package| package["content"].as_array().unwrap());
    let files = content.filter(|item| item["kind"] == "file");
    let mut files: Vec<String> =
        files.map(|item| item["path"].as_str().unwrap().to_owned()).collect();
    files.sort();
    files
}

/// Whether rpm would install these packages together.
fn assert_installable(out: &Path) {
    let root = tempfile::tempdir().unwrap();
    let mut rpms: Vec<PathBuf> = fs::read_dir(out).unwrap().map(|e| e.unwrap().path()).collect();
    rpms.retain(|path| path.extension().is_some_and(|ending| ending == "rpm"));
    ok(tool("rpm", "rpm").arg("--root").arg(root.path()).args(["-i", "--test"]).args(rpms));
}

const COMPONENTS: [&str; 5] = ["lib", "dev", "doc", "test", "dbg"];

/// Files for each group, for both and for every GPU, in a component of each kind.
fn files_of_all_groups() -> Shard {
    let shard = Shard::new(&json!({
        "name": "tri",
        "kinds": ["dev", "doc", "tests", "debug"],
        "contents": [{ "artifact": "tri" }],
    }));
    for component in COMPONENTS {
        let artifact = format!("tri_{component}_gfx11");
        for folder in ["gfx1100", "gfx1151", "gfx11xx"] {
            let file = format!("lib/aotriton.images/{folder}/{component}.aks2");
            shard.text(&artifact, &file, folder);
        }
        shard.text(&artifact, &format!("lib/{component}.txt"), component);
    }
    shard
}

#[test]
fn what_groups_share_of_a_kind_is_in_a_package_that_their_packages_need() {
    let shard = files_of_all_groups();
    let plan = shard.plan(&[]);
    let mut expected: Vec<String> = Vec::new();
    for component in COMPONENTS {
        expected.push(format!("opt/rocm/lib/{component}.txt"));
        for folder in ["gfx1100", "gfx1151", "gfx11xx"] {
            expected.push(format!("opt/rocm/lib/aotriton.images/{folder}/{component}.aks2"));
        }
    }
    expected.sort();
    assert_eq!(files(&plan), expected);
    for kind in ["dev", "doc", "tests", "dbgsym"] {
        let find = |name: String| plan.iter().find(|package| package["name"] == *name).unwrap();
        let shared = find(format!("tri-{kind}-gfx11xx-shared"));
        assert_eq!(shared["kind"], "shared");
        assert_eq!(shared["relations"], json!([format!("Requires: tri-{kind} = 1.0-1")]));
        let mut relations = vec![
            format!("Requires: tri-{kind} = 1.0-1"),
            format!("Requires: tri-{kind}-gfx11xx-shared = 1.0-1"),
        ];
        if kind != "doc" {
            relations.push("Requires: tri-gfx110X = 1.0-1".to_owned());
        }
        relations.push(format!("Provides: tri-{kind}-kernels = 1.0-1"));
        assert_eq!(find(format!("tri-{kind}-gfx110X"))["relations"], json!(relations));
    }
}

#[test]
fn packages_of_kinds_and_groups_can_be_installed_in_both_formats() {
    let shard = files_of_all_groups();
    ok(&mut shard.build());
    let out = shard.path("out");
    assert_installable(&out);
    assert_eq!(
        shard.requires("tri-devel-gfx110X"),
        ["tri-devel = 1.0-1", "tri-devel-gfx11xx-shared = 1.0-1", "tri-gfx110X = 1.0-1"]
    );
    assert_eq!(shard.requires("tri-debuginfo-gfx11xx-shared"), ["tri-debuginfo = 1.0-1"]);
    assert_eq!(
        shard.depends("tri-dbgsym-gfx110x"),
        "tri-dbgsym (= 1.0-1), tri-dbgsym-gfx11xx-shared (= 1.0-1), tri-gfx110x (= 1.0-1)"
    );
    let verify = || {
        let mut verify = gfxpack();
        verify.args(["verify", "--packages-dir"]).arg(&out);
        verify.arg("--config").arg(shard.path("groups.json"));
        run(&mut verify)
    };
    let verified = verify();
    assert_eq!(verified.status, Some(0), "{}{}", verified.stdout, verified.stderr);

    // That a group's package needs its kind's is still asked for, in each format's name.
    fs::remove_file(out.join("tri-devel-1.0-1.x86_64.rpm")).unwrap();
    let verified = verify();
    let unmet = "needs `tri-devel = 1.0-1`, which no package of the set meets";
    assert!(verified.stdout.contains(unmet), "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn only_a_definition_is_all_of_its_packages() {
    let shard = files_of_all_groups();
    let all = shard.plan(&[]);
    assert_eq!(names(&shard.plan(&["--only", "tri"])), names(&all));
    // A package's name in one format is one, too.
    let one = shard.plan(&["--only", "tri-devel-gfx110X"]);
    assert_eq!(names(&one), ["tri-dev-gfx110X"]);
}

#[test]
fn a_name_that_only_the_other_format_has_is_refused() {
    let refused = |relations: Value| {
        let shard = Shard::new(&json!({
            "name": "foo",
            "kinds": ["dev"],
            "contents": [{ "artifact": "foo" }],
            "deb": relations["deb"],
            "rpm": relations["rpm"],
        }));
        shard.text("foo_lib_generic", "share/data", "data");
        shard.text("foo_dev_generic", "include/foo.h", "int foo;\n");
        fails(shard.build().arg("--dry-run"), 2)
    };
    let error = refused(json!({ "deb": {}, "rpm": { "requires": ["foo-dev"] } }));
    assert!(error.contains("needs `foo-dev`, which the set does not make"), "{error}");
    assert!(error.contains("is called `foo-devel`"), "{error}");
    let error = refused(json!({ "deb": { "depends": ["foo-devel"] }, "rpm": {} }));
    assert!(error.contains("is called `foo-dev`"), "{error}");
}

#[test]
fn a_library_in_a_development_package_is_asked_for_by_each_formats_name() {
    let shard = |relations: &Value| {
        let shard = Shard::new(&json!({
            "name": "foo",
            "kinds": ["dev", "tests"],
            "contents": [{ "artifact": "foo" }],
            "relations": { "tests": relations },
        }));
        shard.text("foo_lib_generic", "share/data", "data");
        shard.stub("libfoodev.so.1");
        let library = shard.place("foo_dev_generic", "lib/libfoodev.so.1");
        fs::copy(shard.path("libraries/libfoodev.so.1"), library).unwrap();
        shard.compile("foo_test_generic", "bin/test", &["-l:libfoodev.so.1"]);
        ok(&mut shard.build());
        shard
    };
    let found = shard(&json!({}));
    let requires = found.requires("foo-tests");
    assert!(requires.contains(&"foo-devel = 1.0-1".to_owned()), "{requires:?}");
    assert_eq!(found.depends("foo-tests"), "foo (= 1.0-1), foo-dev (= 1.0-1)");
    assert_installable(&found.path("out"));

    // What the packages file says of it stands in place of that, in the format that it speaks of.
    let given = shard(&json!({ "rpm": { "recommends": ["foo-devel"] } }));
    let requires = given.requires("foo-tests");
    assert!(!requires.iter().any(|one| one.contains("foo-dev")), "{requires:?}");
    assert!(!requires.iter().any(|one| one.contains("libfoodev")), "{requires:?}");
    assert_eq!(given.depends("foo-tests"), "foo (= 1.0-1), foo-dev (= 1.0-1)");
    let given = shard(&json!({ "deb": { "recommends": ["foo-dev"] } }));
    let requires = given.requires("foo-tests");
    assert!(requires.contains(&"foo-devel = 1.0-1".to_owned()), "{requires:?}");
    assert_eq!(given.depends("foo-tests"), "foo (= 1.0-1)");
}

/// A shard with a host library that is of one group by its name.
fn library_of_a_group(needed: &str) -> Shard {
    let shard = Shard::new(&json!({ "name": "miopen", "contents": [{ "artifact": "miopen" }] }));
    shard.text("miopen_lib_gfx11", "share/data", "data");
    shard.stub(needed);
    let needed = format!("-l:{needed}");
    let file = "lib/libMIOpenCKGroupedConv_gfx1100.so";
    shard.compile("miopen_lib_gfx11", file, &["-shared", "-fPIC", &needed]);
    shard
}

#[test]
fn a_library_in_a_groups_package_has_its_needs_looked_at() {
    let shard = library_of_a_group("libz.so.1");
    ok(&mut shard.build());
    let depends = shard.depends("miopen-gfx110x");
    assert!(depends.contains("miopen-generic (= 1.0-1), zlib1g"), "{depends}");
    let requires = shard.requires("miopen-gfx110X");
    assert!(requires.contains(&"libz.so.1()(64bit)".to_owned()), "{requires:?}");

    let error = fails(&mut library_of_a_group("libnowhere.so.1").build(), 2);
    let words = "package `miopen-gfx110X`: opt/rocm/lib/libMIOpenCKGroupedConv_gfx1100.so needs libnowhere.so.1";
    assert!(error.contains(words), "{error}");
}

#[test]
fn symbols_of_one_build_id_that_differ_are_refused() {
    let shard = Shard::new(&json!({
        "name": "foo",
        "kinds": ["debug"],
        "contents": [{ "artifact": "foo" }],
    }));
    shard.text("foo_lib_generic", "share/data", "data");
    shard.compile("foo_dbg_generic", "lib/whole.so", &["-shared", "-fPIC"]);
    let whole = shard.place("foo_dbg_generic", "lib/whole.so");
    let symbols = shard.place("foo_dbg_generic", "lib/symbols.debug");
    // The same content, in a file of its own: one of them is enough.
    fs::copy(&whole, &symbols).unwrap();
    let plan = shard.plan(&[]);
    let debug = plan.iter().find(|package| package["name"] == "foo-dbgsym").unwrap();
    assert_eq!(files(std::slice::from_ref(debug)).len(), 1, "{debug}");

    let mut objcopy = tool("objcopy", "binutils");
    ok(objcopy.arg("--only-keep-debug").arg(&whole).arg(&symbols));
    let error = fails(&mut shard.build(), 1);
    let words = "foo_dbg_generic/stage/lib/whole.so and foo_dbg_generic/stage/lib/symbols.debug have one build id, ";
    assert!(error.contains(words), "{error}");

    // As long as the other, and different in one byte of a name.
    let mut bytes = fs::read(&whole).unwrap();
    let at = bytes.windows(8).position(|part| part == b"source.c").unwrap();
    bytes[at] = b'r';
    fs::write(&symbols, bytes).unwrap();
    assert!(fails(&mut shard.build(), 1).contains(words));
}

#[test]
fn symbols_of_a_group_say_their_build_ids() {
    let shard = files_of_all_groups();
    let symbols = "lib/aotriton.images/gfx1100/loader.debug";
    shard.compile("tri_dbg_gfx11", symbols, &["-shared", "-fPIC"]);
    ok(&mut shard.build());
    let ids = |deb: &str| {
        let deb = shard.path("out").join(format!("{deb}_1.0-1_amd64.deb"));
        ok(tool("dpkg-deb", "dpkg").arg("-f").arg(deb).arg("Build-Ids")).trim_end().len()
    };
    assert_eq!([ids("tri-dbgsym"), ids("tri-dbgsym-gfx110x")], [0, 40]);
}

#[test]
fn documentation_with_programs_is_of_their_machine() {
    let shard = Shard::new(&json!({
        "name": "foo",
        "kinds": ["doc"],
        "contents": [{ "artifact": "foo" }],
    }));
    shard.text("foo_lib_generic", "share/data", "data");
    shard.text("foo_doc_generic", "share/doc/foo/guide.txt", "How to use it.\n");
    let made = |shard: &Shard| {
        let plan = shard.plan(&[]);
        let doc = plan.iter().find(|package| package["name"] == "foo-doc").unwrap().clone();
        doc["files"].clone()
    };
    let any = json!(["foo-doc_1.0-1_all.deb", "foo-doc-1.0-1.noarch.rpm"]);
    let one = json!(["foo-doc_1.0-1_amd64.deb", "foo-doc-1.0-1.x86_64.rpm"]);
    assert_eq!(made(&shard), any);
    shard.compile("foo_doc_generic", "share/doc/foo/example", &[]);
    assert_eq!(made(&shard), one);
    // Objects are code as well, and so are archives of them.
    let example = shard.place("foo_doc_generic", "share/doc/foo/example");
    fs::remove_file(&example).unwrap();
    shard.compile("foo_doc_generic", "share/doc/foo/example.o", &["-c"]);
    assert_eq!(made(&shard), one);
    let object = shard.place("foo_doc_generic", "share/doc/foo/example.o");
    ok(tool("ar", "binutils").arg("rc").arg(object.with_extension("a")).arg(&object));
    fs::remove_file(&object).unwrap();
    assert_eq!(made(&shard), one);
}
