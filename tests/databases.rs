//! Kernel databases: the known ones and those of a user's table, through the whole program.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::{copy_tree, example_shards, fails, gfxpack, ok, repo, snapshot};
use tempfile::TempDir;

/// The JSON of docs/databases.md.
fn table_of_the_page() -> String {
    let page = fs::read_to_string(repo().join("docs/databases.md")).unwrap();
    let from = page.find("```json\n").unwrap() + "```json\n".len();
    page[from..from + page[from..].find("```").unwrap()].to_owned()
}

/// A shard with one artifact of two prefixes, and a table beside it.
struct Shard {
    dir: TempDir,
}

const ONE: &str = "shard/math_lib_fat/math/one/stage";
const TWO: &str = "shard/math_lib_fat/math/two/stage";

impl Shard {
    fn new(table: &str) -> Self {
        let shard = Self { dir: tempfile::tempdir().unwrap() };
        for prefix in [ONE, TWO] {
            fs::create_dir_all(shard.path(prefix)).unwrap();
        }
        let manifest = shard.path("shard/math_lib_fat/artifact_manifest.txt");
        fs::write(manifest, "math/one/stage\nmath/two/stage\n").unwrap();
        fs::write(shard.path("databases.json"), table).unwrap();
        shard
    }

    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(below)
    }

    fn place(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::write(self.place(path), content).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        symlink(target, self.place(path)).unwrap();
    }

    fn split(&self) -> std::process::Command {
        let mut command = gfxpack();
        command.arg("split").arg("--batch-artifact-parent-dir").arg(self.path("shard"));
        command.arg("--output-dir").arg(self.path("out"));
        command.arg("--databases").arg(self.path("databases.json"));
        command
    }

    /// Where each file went: path below the prefix → targets.
    fn went(&self) -> BTreeMap<String, String> {
        let mut went = BTreeMap::new();
        for path in common::files(&self.path("out")) {
            let (artifact, path) = path.split_once('/').unwrap();
            let target = artifact.strip_prefix("math_lib_").unwrap();
            if let Some((_, below)) = path.split_once("/stage/") {
                let before = went.insert(below.to_owned(), target.to_owned());
                assert_eq!(before, None, "{below} is in two artifacts");
            }
        }
        went
    }
}

#[test]
fn every_file_goes_with_its_isa() {
    let shard = Shard::new(&table_of_the_page());
    let fat = "gfx1151-build/blas_lib_gfx1151/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2";
    let fat = fs::read(example_shards().join(fat)).unwrap();
    let files: &[(&str, &str, &[u8])] = &[
        // The page's examples.
        ("lib/mykernels/gfx1101/index.json", "gfx1101", b"1"),
        ("lib/mykernels/gfx11xx/common.bin", "gfx11xx", b"2"),
        ("lib/mykernels/add_gfx1100.bin", "gfx1100", b"3"),
        ("lib/mykernels/add_gfx90a-xnack+.bin", "gfx90a:xnack+", b"4"),
        ("share/mykernels/tuned/gfx942e4.db", "gfx942", b"5"),
        ("lib/mykernels/index.json", "generic", b"6"),
        ("lib/mykernels/add_gfx1100.txt", "generic", b"7"),
        // More of each kind.
        ("lib/mykernels/add_gfx906-sramecc+-xnack-.bin", "gfx906:sramecc+:xnack-", b"8"),
        ("lib/mykernels/gfx12_0/deep/er/x", "gfx12_0", b"9"),
        ("lib/mykernels/empty_gfx1100.bin", "gfx1100", b""),
        ("lib/mykernels/gfx1101/empty.bin", "gfx1101", b""),
        // Those that are known without the table, and no files of any.
        ("lib/rocblas/library/TensileLibrary_lazy_gfx90a-xnack-.dat", "gfx90a:xnack-", b"10"),
        ("lib/rocblas/library/Manifest.txt", "generic", b"11"),
        ("lib/libMIOpenCKGroupedConv_gfx1151.so", "gfx1151", &fat),
        ("lib/other/add_gfx1100.bin", "generic", b"12"),
    ];
    let mut expected = BTreeMap::new();
    for (path, target, content) in files {
        shard.file(&format!("{ONE}/{path}"), content);
        expected.insert((*path).to_owned(), (*target).to_owned());
    }
    // In another prefix, which an install lays over the same root.
    shard.file(&format!("{TWO}/lib/hipblaslt/library/gfx1101/k.dat"), "13");
    expected.insert("lib/hipblaslt/library/gfx1101/k.dat".into(), "gfx1101".into());
    for (path, to, target) in [
        ("lib/mykernels/plain.bin", "add_gfx1100.bin", "gfx1100"),
        ("lib/mykernels/chain.bin", "./plain.bin", "gfx1100"),
        ("lib/mykernels/up.bin", "../mykernels//add_gfx90a-xnack+.bin", "gfx90a:xnack+"),
        ("lib/mykernels/gone_gfx1101.bin", "nowhere.bin", "gfx1101"),
        ("lib/mykernels/gone.bin", "nowhere.bin", "generic"),
        ("lib/mykernels/round_gfx1101.bin", "round_gfx1101.bin", "gfx1101"),
        ("lib/mykernels/absolute_gfx1101.bin", "/lib/mykernels/index.json", "gfx1101"),
        ("lib/mykernels/for-all_gfx1100.bin", "index.json", "generic"),
        ("lib/mykernels/folder", "gfx1101", "gfx1101"),
        ("lib/mykernels/through.json", "folder/index.json", "gfx1101"),
        ("lib/mykernels/other-prefix.dat", "../hipblaslt/library/gfx1101/k.dat", "gfx1101"),
        ("lib/mykernels/all-of-it", "../mykernels", "generic"),
        ("lib/libck.so", "libMIOpenCKGroupedConv_gfx1151.so", "gfx1151"),
    ] {
        shard.link(&format!("{ONE}/{path}"), to);
        expected.insert(path.into(), target.into());
    }
    // Names of one file: each goes by its own.
    for (path, target) in [
        ("lib/mykernels/add_gfx1102.bin", "gfx1102"),
        ("lib/mykernels/add_gfx1102-too.bin", "gfx1102"),
        ("lib/mykernels/add.bin", "generic"),
    ] {
        let first = shard.path(format!("{ONE}/lib/mykernels/add_gfx1100.bin"));
        fs::hard_link(first, shard.path(format!("{ONE}/{path}"))).unwrap();
        expected.insert(path.into(), target.into());
    }
    fs::hard_link(
        shard.path(format!("{ONE}/lib/libMIOpenCKGroupedConv_gfx1151.so")),
        shard.path(format!("{ONE}/lib/libplain.so")),
    )
    .unwrap();
    expected.insert("lib/libplain.so".into(), "generic".into());

    let before = snapshot(&shard.path("shard"));
    ok(&mut shard.split());
    assert_eq!(snapshot(&shard.path("shard")), before, "the input was touched");
    let mut went = shard.went();
    went.retain(|path, _| !path.starts_with(".kpack/"));
    assert_eq!(went, expected);

    let out = |target: &str, path: &str| {
        shard.path(format!("out/math_lib_{target}/math/one/stage/{path}"))
    };
    for (path, target, content) in files {
        assert_eq!(fs::read(out(target, path)).unwrap(), *content, "{path}");
    }
    assert_eq!(fs::read(out("gfx1102", "lib/mykernels/add_gfx1102.bin")).unwrap(), b"3");
    // The other name of the library that moves whole is a library like others.
    let plain = fs::read(out("generic", "lib/libplain.so")).unwrap();
    assert!(plain.len() < fat.len(), "libplain.so was not converted");

    let mut verify = gfxpack();
    verify.arg("verify").arg("--artifacts-dir").arg(shard.path("out"));
    verify.arg("--source").arg(shard.path("shard"));
    ok(verify.arg("--databases").arg(shard.path("databases.json")));

    let mut discover = gfxpack();
    discover.args(["discover", "--json"]).arg(shard.path("shard"));
    let said = ok(discover.arg("--databases").arg(shard.path("databases.json")));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(said["total"]["gfx90a:xnack+"]["database_files"].as_u64() == Some(2), "{said:#}");
    let holders = said["paths"][0]["found"].as_array().unwrap();
    assert!(holders.iter().any(|found| found["holder"] == "database mykernels"), "{said:#}");
}

#[test]
fn databases_of_the_table_are_chosen_by_name_like_the_known_ones() {
    let shard = Shard::new(&table_of_the_page());
    shard.file(&format!("{ONE}/lib/mykernels/add_gfx1100.bin"), "x");
    shard.file(&format!("{ONE}/lib/rocblas/library/x_gfx1101.dat"), "x");
    let said = fails(shard.split().args(["--split-databases", "mykernel"]), 2);
    for word in ["--split-databases", "unknown database `mykernel`", "mykernels, rocblas"] {
        assert!(said.contains(word), "no `{word}` in {said}");
    }
    let said = fails(shard.split().args(["--split-databases", "none", "rocblas"]), 2);
    assert!(said.contains("`none` and `rocblas` cannot both be meant"), "{said}");
    let went = |names: &[&str]| {
        ok(shard.split().arg("--force").arg("--split-databases").args(names));
        let went = shard.went();
        [&went["lib/mykernels/add_gfx1100.bin"], &went["lib/rocblas/library/x_gfx1101.dat"]]
            .map(ToString::to_string)
    };
    assert_eq!(went(&["mykernels"]), ["gfx1100", "generic"]);
    assert_eq!(went(&["rocblas"]), ["generic", "gfx1101"]);
    assert_eq!(went(&["rocblas", "mykernels"]), ["gfx1100", "gfx1101"]);
    assert_eq!(went(&["none"]), ["generic", "generic"]);
}

#[test]
fn a_database_of_a_known_name_takes_its_place() {
    let table = r#"{"databases": [{"name": "rocblas", "rules": []}, {"name": "miopen", "rules": [
        {"files": "share/miopen/db/*.txt", "isa": "name"}]}]}"#;
    let shard = Shard::new(table);
    for path in ["lib/rocblas/library/x_gfx1101.dat", "share/miopen/db/gfx942.db"] {
        shard.file(&format!("{ONE}/{path}"), "x");
    }
    shard.file(&format!("{ONE}/share/miopen/db/gfx942.txt"), "x");
    shard.file(&format!("{ONE}/lib/hipblaslt/library/x_gfx1101.dat"), "x");
    ok(&mut shard.split());
    let went = shard.went();
    assert_eq!(went["lib/rocblas/library/x_gfx1101.dat"], "generic");
    assert_eq!(went["share/miopen/db/gfx942.db"], "generic");
    assert_eq!(went["share/miopen/db/gfx942.txt"], "gfx942");
    assert_eq!(went["lib/hipblaslt/library/x_gfx1101.dat"], "gfx1101");
}

#[test]
fn build_takes_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("shards");
    copy_tree(&example_shards(), &shards);
    let library = "gfx110X-build/blas_lib_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/lib/rocblas";
    let folder = shards.join(library).join("mykernels");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("add_gfx1102.bin"), "x").unwrap();
    let table = table_of_the_page().replace("lib/mykernels", "lib/rocblas/mykernels");
    fs::write(dir.path().join("databases.json"), table).unwrap();
    let packages = |more: &[&str]| {
        let mut build = gfxpack();
        build.current_dir(dir.path()).args(["build", "--dry-run", "--json", "--format", "deb"]);
        build.args(["--input-shards-dir", "shards", "--output-dir", "out"]);
        build.args(["--version", "1", "--release", "1"]).args(more);
        build.arg("--config").arg(common::example_config());
        let said = ok(build.arg("--packages").arg(common::example_packages()));
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let packages = said["packages"].as_array().unwrap().iter();
        let with = packages.filter(|p| p["content"].to_string().contains("add_gfx1102.bin"));
        with.map(|p| p["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(packages(&[]), ["rocblas-generic"]);
    assert_eq!(packages(&["--databases", "databases.json"]), ["rocblas-gfx110X"]);
}

#[test]
fn bad_tables_are_refused() {
    let good = table_of_the_page();
    for (table, words) in [
        (
            good.replace("lib/mykernels/**", "lib/{mykernels"),
            &["mykernels", "no glob", "{mykernels"][..],
        ),
        (good.replace("lib/mykernels/**", "/opt/x/**"), &["`/opt/x/**` matches no path"]),
        (good.replace("\"isa\"", "\"isas\""), &["unknown field `isas`", "line"]),
        (good.replace("\"rules\"", "\"rule\""), &["unknown field `rule`"]),
        (good.replace("name-start", "name-end"), &["unknown variant `name-end`", "name-start"]),
        (good.replace("\"mykernels\"", "\"none\""), &["cannot be called `none`"]),
        (good.replace("[", "7"), &["not a valid table"]),
        (String::new(), &["not a valid table"]),
    ] {
        let shard = Shard::new(&table);
        shard.file(&format!("{ONE}/lib/file"), "x");
        let said = fails(&mut shard.split(), 2);
        for word in words.iter().chain(&["databases.json", "hint: ", "docs/databases.md"]) {
            assert!(said.contains(word), "no `{word}` in {said}");
        }
        assert!(!shard.path("out").exists());
        for command in ["verify", "discover"] {
            let mut command_line = gfxpack();
            command_line.arg(command).arg("--databases").arg(shard.path("databases.json"));
            match command {
                "verify" => command_line.arg("--artifacts-dir").arg(shard.path("shard")),
                _ => command_line.arg(shard.path("shard")),
            };
            assert!(fails(&mut command_line, 2).contains("databases.json"), "{command}");
        }
    }
    let shard = Shard::new("");
    fs::remove_file(shard.path("databases.json")).unwrap();
    assert!(fails(&mut shard.split(), 1).contains("cannot read the table of databases"));
}

#[test]
fn the_schema_has_every_key_of_the_table() {
    let said = ok(gfxpack().args(["schema", "databases"]));
    serde_json::from_str::<serde_json::Value>(&said).unwrap();
    for key in ["databases", "name", "rules", "files", "isa", "folder", "name-start"] {
        assert!(said.contains(&format!("\"{key}\"")), "no {key} in {said}");
    }
}
