//! `--target-distro` with a table of the user's own.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{
    assert_same, example_config, example_packages, example_shards, fails, gfxpack, ok, repo,
    snapshot, tool,
};

/// Each kind of line, and each kind of relation.
const TABLE: &str = "\
# A table of the tests.
package xx1 3.1-2

library libx.so.1 0.5 xx1 #MINVER#
alternative 1 xx1 (>> 3), xx1 (<< 4)
node V1 1.0
node V2 0|1
symbols V1 1.5 later latest
library liby.so.1 0.1 yy1 #MINVER# | yy-compat
symbols Base 0.7 fresh
library libz.so.1 - zz1 (= 1:2-3)
";

/// Functions of a version node.
type Node = (&'static str, &'static [&'static str]);

/// The libraries of the table, and one beside it: SONAME, functions by version node.
const LIBRARIES: [(&str, &str, &[Node]); 4] = [
    ("x", "libx.so.1", &[("V1", &["early", "later"]), ("V2", &["inner"]), ("V3", &["newest"])]),
    ("y", "liby.so.1", &[("", &["plain", "fresh"])]),
    ("z", "libz.so.1", &[("", &["zed"])]),
    ("w", "libw.so.1", &[("", &["wild"])]),
];

/// A directory with the libraries, and an artifact with a library that calls functions of them.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(bench.library().parent().unwrap()).unwrap();
        fs::write(bench.path("artifacts/user_lib_generic/artifact_manifest.txt"), "user/stage\n")
            .unwrap();
        for (name, soname, nodes) in LIBRARIES {
            let functions = nodes.iter().flat_map(|(_, functions)| *functions);
            let source: String = functions
                .map(|function| format!("int {function}(void) {{ return 1; }}\n"))
                .collect();
            let versions: String = nodes
                .iter()
                .filter(|(node, _)| !node.is_empty())
                .map(|(node, functions)| format!("{node} {{ {}; }};\n", functions.join("; ")))
                .collect();
            let mut cc = bench.cc(&source, &bench.path(&format!("lib{name}.so")));
            cc.arg(format!("-Wl,-soname,{soname}"));
            if !versions.is_empty() {
                fs::write(bench.path("versions"), versions).unwrap();
                cc.arg("-Wl,--version-script,versions");
            }
            ok(&mut cc);
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn library(&self) -> PathBuf {
        self.path("artifacts/user_lib_generic/user/stage/lib/libuser.so.1")
    }

    fn cc(&self, source: &str, output: &Path) -> Command {
        fs::write(self.path("source.c"), source).unwrap();
        let mut cc = tool("gcc", "gcc libc6-dev");
        cc.current_dir(self.0.path()).args(["-shared", "-fPIC", "-nostdlib", "source.c", "-o"]);
        cc.arg(output);
        cc
    }

    /// `gfxpack package --dry-run` with the table, of a library that calls these functions.
    fn package(&self, table: &Path, calls: &[&str]) -> Command {
        let declared: String = calls.iter().map(|f| format!("int {f}(void);\n")).collect();
        let sum = calls.iter().map(|f| format!("{f}()")).collect::<Vec<_>>().join(" + ");
        let source = format!("{declared}int user(void) {{ return {sum}; }}\n");
        let mut cc = self.cc(&source, &self.library());
        ok(cc
            .args(["-Wl,-soname,libuser.so.1", "-Wl,--as-needed", "-L."])
            .args(LIBRARIES.map(|(name, ..)| format!("-l{name}"))));
        let mut command = gfxpack();
        command.current_dir(self.0.path()).args(["package", "--dry-run", "--json"]);
        command.args(["--artifacts-dir", "artifacts", "--output-dir", "out"]);
        command.args(["--version", "1", "--release", "1", "--config"]).arg(example_config());
        command.arg("--target-distro").arg(table);
        command
    }

    /// What the package with such a library depends on.
    #[track_caller]
    fn depends(&self, table: &Path, calls: &[&str]) -> Vec<String> {
        let report: serde_json::Value =
            serde_json::from_str(&ok(&mut self.package(table, calls))).unwrap();
        let packages = report["packages"].as_array().unwrap();
        let depends = packages.iter().filter_map(|p| p["deb_relations"]["depends"].as_array());
        let texts = depends.flatten().map(|text| text.as_str().unwrap().to_owned());
        texts.collect()
    }
}

#[test]
fn a_table_in_a_file_gives_its_relations() {
    let bench = Bench::new();
    let table = bench.path("own.txt");
    fs::write(&table, TABLE).unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["early"], &["xx1 (>= 1.0)"]),
        (&["later"], &["xx1 (>= 1.5)"]),
        (&["early", "inner"], &["xx1 (<< 4)", "xx1 (>= 1.0)", "xx1 (>> 3)"]),
        (&["plain"], &["yy1 (>= 0.1) | yy-compat"]),
        (&["fresh", "zed"], &["yy1 (>= 0.7) | yy-compat", "zz1 (= 1:2-3)"]),
    ];
    for (calls, expected) in cases {
        assert_eq!(bench.depends(&table, calls), *expected, "{calls:?}");
    }
    // A name without `/` is a file where it ends so, and any name is with one; lines may end as on Windows,
    // and words be parted by tabs.
    assert_eq!(bench.depends(Path::new("own.txt"), &["early"]), ["xx1 (>= 1.0)"]);
    let text = TABLE.replace('\n', "\r\n").replace("node V1 ", "node\tV1 \t");
    fs::write(bench.path("debian12"), format!("\u{feff}{text}")).unwrap();
    assert_eq!(bench.depends(Path::new("./debian12"), &["early"]), ["xx1 (>= 1.0)"]);
}

#[test]
fn what_the_table_does_not_have_is_told_with_its_path() {
    let bench = Bench::new();
    let table = Path::new("./own");
    fs::write(bench.path("own"), TABLE).unwrap();
    let told = fails(&mut bench.package(table, &["wild"]), 2);
    let expected =
        "needs libw.so.1, which is neither in the set nor in the table of libraries ./own";
    assert!(told.contains(expected), "{told}");
    let told = fails(&mut bench.package(table, &["newest"]), 2);
    let expected = "needs V3 of libx.so.1, which the release of ./own does not have";
    assert!(told.contains(expected), "{told}");
}

/// `gfxpack build` of what is not there: a table is read before any of it is looked for.
fn build_of_nothing(dir: &Path, table: &str) -> Command {
    let mut command = gfxpack();
    command.current_dir(dir).args(["build", "--input-shards-dir", "nowhere", "--dry-run"]);
    command.args(["--version", "1", "--release", "1", "--output-dir", "out", "--config"]);
    command.arg(example_config()).args(["--target-distro", table]);
    command
}

#[test]
fn each_bad_line_is_told_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(5000);
    let cases: &[(&str, &str)] = &[
        (
            "librar liba.so aa",
            "found `librar`, expected `library`, `alternative`, `node`, `symbols`",
        ),
        ("\u{1b}[31m", "found `\\u{1b}[31m`, expected `library`"),
        (&long, &format!("found `{}…`, expected `library`", "x".repeat(60))),
        ("package aa", "found the end of the line, expected a version"),
        ("package aa 1 2", "found `2`, expected the end of the line"),
        ("library", "found the end of the line, expected a SONAME"),
        ("library liba.so", "found the end of the line, expected a version or `-`, and a relation"),
        ("library liba.so -", "found the end of the line, expected a relation"),
        ("library liba.so x aa", "`x` is no version: expected a digit first"),
        ("library liba.so 1:x aa", "`1:x` is no version: expected a digit first"),
        ("library liba.so - aa >= 1", "`aa >= 1`: character 4, at `>= 1`: found `>`"),
        ("library liba.so - aa#MINVER#", "`aa#MINVER#` is no package name"),
        (
            "library liba.so 1 aa #MINVER# (<< 2)",
            "character 13, at `(<< 2)`: found `(`, expected `,`, `|` or the end",
        ),
        ("library liba.so 1 aa #MINVER# #MINVER#", "character 13, at `#MINVER#`: found `#`"),
        (
            "library liba.so - aa\u{2028}",
            "found the character `\\u{2028}`, expected characters of ASCII",
        ),
        (
            &format!("library liba.so - {long}"),
            "found a relation or version of 5000 bytes, expected at most 1024",
        ),
        ("library libx.so.1 - aa", "found the library `libx.so.1` a second time"),
        ("alternative 1 zz1", ""),
        (
            "alternative 2 zz1",
            "found alternative `2`, expected 1, the next alternative of `libz.so.1`",
        ),
        ("alternative 1", "found the end of the line, expected a relation"),
        ("node V1", "found the end of the line, expected a version"),
        ("node V1 1 2", "found `2`, expected the end of the line"),
        (
            "node V1 1|1",
            "found `1` after `|`, expected no `|`: the library has no line `alternative` yet",
        ),
        (
            "alternative 1 aa\nnode V1 1|+1",
            "found `+1` after `|`, expected the number of an alternative, 1 to 1",
        ),
        ("alternative 1 aa\nnode V1 1|0", "found `0` after `|`"),
        ("alternative 1 aa\nnode V1 1|99999999999999999999", "` after `|`"),
        ("node V1 1_0", "`1_0` is no version"),
        ("node Base 1", "found a line `node` for `Base`, expected `symbols` alone"),
        ("node V1 1\nnode V1 2", "found the node `V1` of `libz.so.1` a second time"),
        (
            "symbols V1 1 f",
            "found symbols of `V1`, expected `Base`, or a line `node` for it before them",
        ),
        ("symbols Base 1", "found the end of the line, expected the name of a symbol"),
        ("symbols Base 1 f f", "found the symbol `f` of node `Base` of `libz.so.1` a second time"),
        ("symbols Base 1 f\nsymbols Base 2 g f", "found the symbol `f` of node `Base`"),
    ];
    for (bad, expected) in cases {
        let text = format!("{TABLE}{bad}\n");
        fs::write(dir.path().join("bad.txt"), &text).unwrap();
        if expected.is_empty() {
            // It is good, so that what comes next is told.
            let told = fails(&mut build_of_nothing(dir.path(), "bad.txt"), 1);
            assert!(told.contains("nowhere") && !told.contains("bad.txt"), "{told}");
            continue;
        }
        let told = fails(&mut build_of_nothing(dir.path(), "bad.txt"), 2);
        let line = format!("caused by: line {}: ", text.lines().count());
        assert!(told.starts_with("error: bad.txt: is not a valid table of libraries\n"), "{told}");
        assert!(told.contains(&line) && told.contains(expected), "{bad}: {told}");
        assert!(told.contains("hint: tools/deb-tables/make.sh"), "{told}");
        assert!(!told.contains("nowhere"), "{told}");
    }
    for (text, expected) in [
        ("", "it has no line `library`"),
        ("# nothing\n", "it has no line `library`"),
        ("node V1 1\n", "line 1: found `node` before any `library`, expected the line `library`"),
        ("{\"packages\": []}\n", "line 1: found `{\\\"packages\\\":`, expected `library`"),
    ] {
        fs::write(dir.path().join("bad.txt"), text).unwrap();
        let told = fails(&mut build_of_nothing(dir.path(), "bad.txt"), 2);
        assert!(told.contains(expected), "{text}: {told}");
    }
}

#[test]
fn a_file_that_is_no_text_of_a_tables_size_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bad.txt"), b"library liba.so - aa\nlibrary \xff").unwrap();
    let told = fails(&mut build_of_nothing(dir.path(), "bad.txt"), 2);
    assert!(told.contains("the byte 0xff at line 2 column 9 is not UTF-8"), "{told}");
    File::create(dir.path().join("bad.txt")).unwrap().set_len((16 << 20) + 1).unwrap();
    let told = fails(&mut build_of_nothing(dir.path(), "bad.txt"), 2);
    assert!(told.contains("it is larger than 16 MiB"), "{told}");
    // What cannot be read is no fault of the words.
    for missing in ["no.txt", "./no", "/"] {
        let told = fails(&mut build_of_nothing(dir.path(), missing), 1);
        let expected = format!("error: {missing}: cannot read the table of libraries");
        assert!(told.starts_with(&expected), "{told}");
    }
    // A table is checked though nothing would be taken from it.
    fs::write(dir.path().join("bad.txt"), "x").unwrap();
    let told = fails(build_of_nothing(dir.path(), "bad.txt").arg("--no-auto-deps"), 2);
    assert!(told.contains("line 1: found `x`"), "{told}");
}

#[test]
fn a_name_that_is_none_is_told_how_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("ubuntu24.04"), TABLE).unwrap();
    let told = fails(&mut build_of_nothing(dir.path(), "ubuntu24.04"), 2);
    assert!(told.contains("[possible values: debian12, debian13]"), "{told}");
    let tip = "a table in a file is named by a path with a `/` in it or `.txt` at its end";
    assert!(told.contains(tip), "{told}");
}

/// The packages of the examples with what `--target-distro` says.
fn built(dir: &Path, distro: &str) -> std::collections::BTreeMap<String, String> {
    let mut command = gfxpack();
    command.current_dir(dir).args(["build", "--input-shards-dir"]).arg(example_shards());
    command.arg("--config").arg(example_config()).arg("--packages").arg(example_packages());
    command.args(["--version", "1", "--release", "1", "--output-dir", "out", "--force"]);
    ok(command.args(["--target-distro", distro]));
    snapshot(&dir.join("out"))
}

#[test]
fn a_table_gives_the_same_packages_wherever_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let by_name = built(dir.path(), "debian13");
    let table = repo().join("src/package/elfdeps/tables/debian13.txt");
    assert_same("by path", &by_name, &built(dir.path(), table.to_str().unwrap()));
    fs::create_dir(dir.path().join("elsewhere")).unwrap();
    fs::copy(table, dir.path().join("elsewhere/any name")).unwrap();
    assert_same("elsewhere", &by_name, &built(dir.path(), "elsewhere/any name"));
    // The other release's are not the same, so there is something to compare.
    fs::write(dir.path().join("own.txt"), OTHER).unwrap();
    let other = built(dir.path(), "own.txt");
    assert_ne!(by_name, other);
    let deb = dir.path().join("out/rocblas-generic_1-1_amd64.deb");
    let depends = ok(tool("dpkg-deb", "dpkg").arg("--field").arg(deb).arg("Depends"));
    assert_eq!(depends.trim(), "other-c (>= 7)");
}

/// The libraries that the examples need, all in one package.
const OTHER: &str = "\
library ld-linux-x86-64.so.2 - other-c
library libc.so.6 7 other-c #MINVER#
library libgcc_s.so.1 6 other-c #MINVER#
library libm.so.6 5 other-c #MINVER#
library libstdc++.so.6 - other-c
";
