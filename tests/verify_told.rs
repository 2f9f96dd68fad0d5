//! How `gfxpack verify` tells what it found: once what follows from one cause, and each where that is asked
//! for.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{
    Ran, copy_tree, example_config, example_shards, fails, gfxpack, ok, run, split_and_recombine,
};
use serde_json::Value;

fn verify(dir: &Path, args: &[&str]) -> Ran {
    run(gfxpack().args(["verify", "--artifacts-dir"]).arg(dir).args(args))
}

/// A shard as the build made it is no damaged split tree.
#[test]
fn a_shard_that_is_not_split_is_told_so() {
    for shard in ["gfx110X-build", "gfx1151-build"] {
        let shard = example_shards().join(shard);
        let ran = verify(&shard, &["--json", "--source", shard.to_str().unwrap()]);
        assert_eq!(ran.status, Some(1));
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let findings = report["report"]["findings"].as_array().unwrap();
        assert!(findings.iter().all(|finding| finding["id"] == "not-split"), "{findings:?}");
        // All but what is generic as it was built.
        assert_eq!(findings.len(), 5);
        let text = verify(&shard, &[]).stdout;
        let told = ["error [not-split] 5 findings", "mend: run `gfxpack split` on it"];
        assert!(told.iter().all(|told| text.contains(told)), "{text}");
        assert!(
            text.contains("blas_lib_gfx1") && text.contains("is not split yet: it has math-libs")
        );
        let headings = text.lines().filter(|line| line.starts_with("error")).count();
        assert_eq!(headings, 1, "{text}");
    }
}

#[test]
fn findings_of_one_cause_are_told_together() {
    let dir = tempfile::tempdir().unwrap();
    split_and_recombine(&example_shards(), dir.path(), &[]);
    let text = fs::read_to_string(example_config()).unwrap();
    let config = dir.path().join("groups.json");
    fs::write(&config, text.replace(r#""gfx1100", "gfx1101", "gfx1102""#, r#""gfx1100""#)).unwrap();
    let trees = dir.path().join("trees");
    ok(gfxpack()
        .args(["recombine", "--input-shards-dir"])
        .arg(dir.path().join("split"))
        .arg("--config")
        .arg(&config)
        .arg("--output-dir")
        .arg(&trees));
    let (shards, packages) = (example_shards(), common::repo().join("examples/packages.json"));
    let source = [
        "--config",
        config.to_str().unwrap(),
        "--source",
        shards.to_str().unwrap(),
        "--packages",
        packages.to_str().unwrap(),
    ];
    let args = |more: &[&'static str]| [&source[..], more].concat();
    let report: Value = serde_json::from_str(&verify(&trees, &args(&["--json"])).stdout).unwrap();
    let each = report["report"]["findings"].as_array().unwrap().len();
    assert!(each > 10, "{each}");
    let mend = "mend: add the ISA to a group, if it should be packaged";
    let ran = verify(&trees, &source);
    assert_eq!(ran.status, Some(0), "{}", ran.stdout);
    assert!(
        ran.stdout
            .starts_with(&format!("warning [left-out] {each} findings\n  found: blas_lib_gfx1101"))
    );
    assert_eq!(ran.stdout.matches(mend).count(), 1);
    assert_eq!(ran.stdout.matches("  found: ").count(), 5);
    assert!(ran.stdout.contains(&format!("  and {} more (--verbose shows each)\n", each - 5)));
    let ran = verify(&trees, &args(&["--verbose"]));
    assert_eq!(ran.stdout.matches(mend).count(), each);
    // As docs/verify.md says.
    let allow = "--allow=left-out:*gfx110[12]*=these have ended";
    let ran = verify(&trees, &args(&["--warnings-as-errors", allow]));
    assert_eq!(ran.status, Some(0), "{}", ran.stdout);
    assert_eq!(ran.stdout.matches("allowed [left-out]").count(), each);
    let told =
        fails(gfxpack().args(["verify", "--artifacts-dir", "x", "--allow", "left:*=why"]), 2);
    assert!(told.contains("no check is called `left`"), "{told}");
}

/// With `generic_union` what only another shard has should be there: without it, it is left out.
#[test]
fn generic_union_is_not_advised_where_it_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("shards");
    copy_tree(&example_shards(), &shards);
    let extra = "base/support/stage/lib/extra.txt";
    fs::write(shards.join("gfx1151-build/support_lib_gfx1151").join(extra), "extra").unwrap();
    split_and_recombine(&shards, dir.path(), &[]);
    let text = fs::read_to_string(example_config()).unwrap();
    let config = dir.path().join("groups.json");
    let told = |union: bool| {
        let union = format!("{{ \"generic_union\": {union},");
        fs::write(&config, text.replacen('{', &union, 1)).unwrap();
        let trees = dir.path().join("recombined");
        let args = ["--config", config.to_str().unwrap(), "--source", shards.to_str().unwrap()];
        verify(&trees, &args).stdout
    };
    let left_out = told(false);
    assert!(
        left_out.contains(&format!("warning [left-out] support_lib_generic/{extra}\n")),
        "{left_out}"
    );
    assert!(left_out.contains("mend: set generic_union, if it should be packaged\n"), "{left_out}");
    let lost = told(true);
    assert!(lost.contains(&format!("error [lost] support_lib_generic/{extra}\n")), "{lost}");
    assert!(!lost.contains("generic_union"), "{lost}");
}

/// A library that no artifact brings is told once, whoever needs it; who has it is said with --packages or
/// --external.
#[test]
fn a_library_that_nobody_brings_is_one_warning() {
    let dir = tempfile::tempdir().unwrap();
    split_and_recombine(&example_shards(), dir.path(), &[]);
    let trees = dir.path().join("recombined");
    let ran = verify(&trees, &[]);
    assert_eq!(ran.status, Some(0), "{}", ran.stdout);
    let found = "warning [needed-missing] blas_lib_generic/math-libs/BLAS/hipBLASLt/stage/lib/libhipblaslt.so.0.9\n  \
         found: needs `libamdhip64.so.6`, which no artifact brings; so do blas_lib_generic/";
    assert!(ran.stdout.starts_with(found), "{}", ran.stdout);
    assert!(ran.stdout.contains(" and 1 more\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n  invariant: 2, host code is whole and without device code\n"));
    assert!(ran.stdout.contains("comes from elsewhere: --external 'libamdhip64.so.6'\n"));
    assert_eq!(ran.stdout.matches("[needed-missing]").count(), 1, "{}", ran.stdout);
    let summary = ran.stdout.lines().find(|line| line.starts_with("2  host code")).unwrap();
    assert!(summary.ends_with(" 1 warning"), "{summary}");
    assert_eq!(verify(&trees, &["--warnings-as-errors"]).status, Some(1));

    let junit = dir.path().join("verify.xml");
    let report = verify(&trees, &["--json", "--junit", junit.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let findings = report["report"]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(
        (&findings[0]["id"], &findings[0]["severity"]),
        (&"needed-missing".into(), &"warning".into())
    );
    assert_eq!(report["report"]["needs"][0]["soname"], "libamdhip64.so.6");
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains("libamdhip64.so.6"), "{junit}");

    // The same names as for the relations of packages.
    let packages = common::repo().join("examples/packages.json");
    let shards = example_shards();
    let known = ["--packages", packages.to_str().unwrap(), "--warnings-as-errors"];
    for more in [&[][..], &["--source", shards.to_str().unwrap()]] {
        let ran = verify(&trees, &[&known[..], more].concat());
        assert_eq!(ran.status, Some(0), "{}", ran.stdout);
    }
    // They leave open what else there is; --external does not.
    let tree = "blas_lib_generic/math-libs/BLAS/rocBLAS/stage/lib";
    for name in ["librocblas.so.5.2", "librocblas.so.5", "librocblas.so"] {
        fs::remove_file(trees.join(tree).join(name)).unwrap();
    }
    let missing = |args: &[&str]| {
        let report = verify(&trees, &[&["--json"], args].concat()).stdout;
        let report: Value = serde_json::from_str(&report).unwrap();
        let findings = report["report"]["findings"].as_array().unwrap().iter();
        let missing = findings.filter(|finding| finding["id"] == "needed-missing");
        let say =
            |finding: &Value| (finding["severity"].to_string(), finding["message"].to_string());
        missing.map(say).collect::<Vec<_>>()
    };
    let one = |severity: &str| {
        let message = "\"needs `librocblas.so.5`, which no artifact brings\"";
        vec![(format!("\"{severity}\""), message.to_owned())]
    };
    assert_eq!(missing(&known), one("warning"));
    assert_eq!(missing(&["--external", "libamdhip64.so.*"]), one("error"));
    assert_eq!(missing(&["--external", "librocblas.so.*", known[0], known[1]]), []);
}

/// Each invariant is a suite, what fails a failure, a warning output, and what was accepted is skipped with its reason.
#[test]
fn a_junit_report_says_what_the_others_say() {
    let dir = tempfile::tempdir().unwrap();
    split_and_recombine(&example_shards(), dir.path(), &[]);
    let trees = dir.path().join("recombined");
    fs::write(trees.join("blas_lib_generic/stray"), "x").unwrap();
    let tool = trees.join("blas_run_generic/math-libs/BLAS/rocBLAS/stage/bin/rocblas-bench");
    let bytes = fs::read(&tool).unwrap();
    fs::remove_file(&tool).unwrap();
    fs::write(&tool, bytes).unwrap();
    let junit = dir.path().join("verify.xml");
    let report = |args: &[&str]| {
        let mut all = vec!["--junit", junit.to_str().unwrap()];
        all.extend(args);
        verify(&trees, &all);
        let script = "import sys, xml.etree.ElementTree as e\n\
                      for s in e.parse(sys.argv[1]).getroot():\n\
                      \x20   cases = s.findall('testcase')\n\
                      \x20   assert int(s.get('tests')) == len(cases)\n\
                      \x20   for kind in 'failure', 'skipped':\n\
                      \x20       n = sum(len(c.findall(kind)) for c in cases)\n\
                      \x20       assert n == int(s.get({'failure': 'failures'}.get(kind, kind)))\n\
                      \x20   for c in cases:\n\
                      \x20       for x in c: print(s.get('name')[0], c.get('name'), x.tag, x.get('message'))\n";
        ok(common::tool("python3", "python3").args(["-c", script]).arg(&junit))
    };
    let stray =
        "1 blas_lib_generic failure lies under no prefix that artifact_manifest.txt lists\n";
    let needed = "2 blas_lib_generic system-out None\n";
    let place = "blas_run_generic/math-libs/BLAS/rocBLAS/stage/bin/rocblas-bench";
    let allow = "--allow=mode:*/rocblas-bench=it is <ours> & \"no\" one's";
    let allowed = format!("6 mode {place} skipped allowed: it is <ours> & \"no\" one's\n");
    assert_eq!(report(&[allow]), format!("{stray}{needed}{allowed}"));
    let strict = report(&["--warnings-as-errors"]);
    assert!(strict.contains("2 blas_lib_generic failure needs `libamdhip64.so.6`"), "{strict}");
    assert!(strict.contains("\n6 blas_run_generic failure has the mode"), "{strict}");
}
