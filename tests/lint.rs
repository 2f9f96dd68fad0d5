//! lintian and rpmlint on packages of the examples, the fixtures, and of every kind: no error, no warning, but
//! those that are overridden with a reason; and docs/lint.md, which lists these.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/kinds.rs"]
mod shards;

use std::fs;
use std::path::{Path, PathBuf};

use common::{
    example_config, example_packages, example_shards, fixtures, gfxpack, ok, repo, run, tool,
};
use gfxpack::package::lint::REASONS;
use serde_json::{Value, json};
use shards::{DEFINITION, shards_of_all_kinds};

/// The definitions of the examples.
fn definitions() -> Value {
    let text = fs::read_to_string(example_packages()).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Builds packages, and holds them against both linters. `filters` are for rpmlint, beside those of
/// packaging-config/rpmlint.toml and examples/rpmlint.toml.
fn lint(shards: &Path, config: &Value, prefix: &str, filters: &str) {
    let dir = tempfile::tempdir().unwrap();
    let packages = dir.path().join("packages.json");
    fs::write(&packages, config.to_string()).unwrap();
    let out = dir.path().join("out");
    let mut command = gfxpack();
    command.arg("build").arg("--input-shards-dir").arg(shards);
    command.arg("--config").arg(example_config()).arg("--packages").arg(&packages);
    command.arg("--output-dir").arg(&out).args(["--version", "7.1.0", "--release", "1"]);
    // Debian 12's lintian takes members in zstd for damaged.
    ok(command.args(["--install-prefix", prefix, "--deb-compression", "xz:6"]));

    let of = |ending: &str| -> Vec<PathBuf> {
        let all = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            all.filter(|p| p.extension().is_some_and(|e| e == ending)).collect();
        files.sort();
        files
    };
    let mut lintian = tool("lintian", "lintian");
    lintian.args(["--allow-root", "--no-cfg", "--fail-on", "error,warning", "--display-info"]);
    let ran = run(lintian.args(["--tag-display-limit", "0"]).args(of("deb")));
    let findings: Vec<&str> = ran
        .stdout
        .lines()
        .filter(|line| {
            // An override that is not needed is too wide, or for a package that has no such finding.
            let unused = line.contains("unused-override");
            line.starts_with("E:") || line.starts_with("W:") || unused
        })
        .collect();
    assert!(findings.is_empty(), "{prefix}: {findings:#?}");
    assert_eq!(ran.status, Some(0), "{prefix}: {}{}", ran.stdout, ran.stderr);
    let overrides = dir.path().join("unpacked");
    for deb in of("deb") {
        ok(tool("dpkg-deb", "dpkg").arg("-x").arg(deb).arg(&overrides));
    }
    let mut layout = Vec::new();
    for file in fs::read_dir(overrides.join("usr/share/lintian/overrides")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let places = ["dir-or-file-in-opt", "file-in-unusual-dir", "non-standard-dir-in-usr"];
        let of_places = |line: &&str| places.iter().any(|tag| line.contains(tag));
        layout.extend(text.lines().filter(of_places).map(str::to_owned));
    }
    assert_eq!(layout.is_empty(), prefix == "/usr", "{prefix}: {layout:#?}");

    let configuration = dir.path().join("rpmlint");
    fs::create_dir(&configuration).unwrap();
    for file in ["packaging-config/rpmlint.toml", "examples/rpmlint.toml"] {
        let name = file.replace('/', "-");
        fs::copy(repo().join(file), configuration.join(name)).unwrap();
    }
    fs::write(configuration.join("test.toml"), format!("Filters = [{filters}]\n")).unwrap();
    let mut rpmlint = tool("rpmlint", "rpmlint");
    let ran = run(rpmlint.arg("--config").arg(&configuration).args(of("rpm")));
    let clean = ran.stdout.contains("; 0 errors, 0 warnings, 0 badness");
    assert!(clean && ran.status == Some(0), "{prefix}: {}{}", ran.stdout, ran.stderr);
}

#[test]
fn packages_of_the_examples_below_opt() {
    lint(&example_shards(), &definitions(), "/opt/rocm", "");
}

#[test]
fn packages_of_the_examples_in_usr_need_no_override_for_their_layout() {
    lint(&example_shards(), &definitions(), "/usr", "");
}

#[test]
fn packages_of_the_fixtures() {
    let mut config = definitions();
    for definition in config["packages"].as_array_mut().unwrap() {
        let all = definition.as_object_mut().unwrap().entry("lintian_overrides");
        all.or_insert_with(|| json!([])).as_array_mut().unwrap().push(json!({
            "tag": "unstripped-binary-or-object",
            "reason": "The fixtures keep their symbols: tests look at them."
        }));
    }
    lint(&fixtures().join("shards"), &config, "/opt/rocm", "': W: unstripped-binary-or-object '");
}

#[test]
fn packages_of_every_kind_with_alternatives_and_a_path_for_the_linker() {
    let dir = tempfile::tempdir().unwrap();
    let shards = shards_of_all_kinds(dir.path());
    let mut definition: Value = serde_json::from_str(DEFINITION).unwrap();
    definition["alternatives"] = json!([{
        "link": "/usr/bin/rocblas-bench", "name": "rocblas-bench",
        "path": "{prefix}/bin/rocblas-bench", "priority": 50
    }]);
    definition["lintian_overrides"] = json!([
        { "tag": "hardening-no-pie", "context": "[*/bin/rocblas-tool]", "reason": "As in the examples." },
        { "tag": "shared-library-lacks-prerequisites", "context": "[*/lib/libhelper.so.1]",
          "reason": "It calls nothing." },
        { "tag": "non-debug-file-in-debug-package", "context": "[*/README]", "in": "debug",
          "reason": "A file of the build among its symbols." }
    ]);
    let mut config = definitions();
    config["packages"] = json!([definition]);
    config["linker_path"] = json!({ "package": "rocm-ld-conf" });
    let filters = r"'shared-library-without-dependency-information .*/libhelper\.so\.1$',";
    lint(&shards, &config, "/opt/rocm", filters);
}

/// The filters of a configuration of rpmlint, each with the comment above it.
fn filters(file: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(repo().join(file)).unwrap();
    let (_, list) = text.split_once("Filters = [\n").unwrap();
    let mut reason = Vec::new();
    let mut found = Vec::new();
    for line in list.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("# ") {
            reason.push(comment.to_owned());
        } else if let Some(filter) = line.strip_prefix('\'') {
            assert!(!reason.is_empty(), "{file}: a filter without a reason: {line}");
            found.push((filter.trim_end_matches("',").to_owned(), reason.join(" ")));
            reason.clear();
        }
    }
    found
}

#[test]
fn the_page_lists_every_override_with_its_reason() {
    let page = fs::read_to_string(repo().join("docs/lint.md")).unwrap();
    let table = |head: &str, rows: Vec<(String, String)>| {
        let mut table = format!("| {head} | why it is right so |\n|---|---|\n");
        for (what, why) in rows {
            table += &format!("| `{}` | {why} |\n", what.replace('|', "\\|"));
        }
        table
    };
    let own = |(tag, why): &(&str, &str)| ((*tag).to_owned(), (*why).to_owned());
    for table in [
        table("lintian's tag", REASONS.iter().map(own).collect()),
        table("rpmlint's filter", filters("packaging-config/rpmlint.toml")),
        table("filter for the examples", filters("examples/rpmlint.toml")),
    ] {
        assert!(page.contains(&table), "docs/lint.md lacks this table:\n\n{table}");
    }
}
