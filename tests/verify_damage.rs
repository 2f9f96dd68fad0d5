//! Every way to ruin a tree that we could think of, and which check sees it.
//!
//! A good tree (the example shards, split and recombined) is copied, damaged in one way, and verified;
//! the check that should see the damage must. The undamaged trees must give no finding at all. The
//! table in `docs/verify.md` is made from the one in `verify_damage/damages.rs` (`GFXPACK_UPDATE_DOCS=1`
//! writes it).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::semicolon_if_nothing_returned, reason = "damages are expressions in a table")]

#[path = "common/damage.rs"]
mod damage;
#[path = "verify_damage/damages.rs"]
mod damages;
#[path = "verify_damage/trees.rs"]
mod trees;

use gfxpack::jobs::Jobs;
use gfxpack::kpack::writer::Compression;
use gfxpack::progress::Silent;
use gfxpack::recombine;
use gfxpack::split::{self, Layout, Scope};
use gfxpack::verify::{self, Allow, Check, Options, Report, Severity};

use damage::{damage_all, damage_table, table_is_on_the_page};
use damages::{DAMAGES, NO_GROUP};
use trees::{
    LIB, On, TOOL, Victim, config, good, options, read_shards, shards, split_shard, write_artifacts,
};

fn ids(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|finding| finding.id.id()).collect()
}

#[test]
fn undamaged_trees_raise_nothing() {
    for on in [
        On::Split,
        On::Recombined,
        On::RecombinedAlone,
        On::SplitWithSource,
        On::RecombinedWithSource,
        On::SplitWithExternals,
        On::RecombinedWithExternals,
    ] {
        let report = on.verify(&good().join(on.folder()));
        assert_eq!(report.findings, [], "{on:?}");
        assert!(report.kernels > Some(0) && report.files > 50);
    }
    // Split trees of every shard, and against shards that were split already.
    for shard in shards() {
        let dir = good().join("all").join(&shard.name);
        let source = [shard];
        let options = Options { source: Some(&source), ..options() };
        let report = verify::directory(&dir, &options, &Jobs::new(1, 1 << 20), &Silent).unwrap();
        assert_eq!(report.findings, []);
    }
    // Every way to split.
    let shards = shards();
    for (scope, layout, compression) in [
        (Scope::Prefix, Layout::Stage, Compression::None),
        (Scope::Binary, Layout::InPlace, Compression::Zstd { level: 1 }),
        (Scope::Component, Layout::InPlace, Compression::Zstd { level: 1 }),
    ] {
        let how = split::Options { scope, layout, compression, ..split::Options::default() };
        let dir = tempfile::tempdir().unwrap();
        write_artifacts(&dir.path().join("out"), &split_shard(&shards[0], &how));
        let options = Options { source: Some(&shards[..1]), ..options() };
        let jobs = Jobs::new(2, 64 << 20);
        let report = verify::directory(&dir.path().join("out"), &options, &jobs, &Silent).unwrap();
        assert_eq!(report.findings, [], "{scope:?} {layout:?}");
    }
    let split = read_shards(&good().join("all"));
    let config = config();
    let options = Options { source: Some(&split), config: Some(&config), ..options() };
    let jobs = Jobs::new(2, 64 << 20);
    let report = verify::directory(&good().join("recombined"), &options, &jobs, &Silent).unwrap();
    assert_eq!(report.findings, []);
}

/// Does every damage that is for this kind of tree.
fn every_damage_is_caught(on: On) {
    damage_all(DAMAGES.iter().filter(|damage| damage.what != NO_GROUP), on);
}

#[test]
fn every_damage_of_a_split_tree_is_caught() {
    every_damage_is_caught(On::Split);
}

#[test]
fn every_damage_of_a_recombined_tree_is_caught() {
    every_damage_is_caught(On::Recombined);
    every_damage_is_caught(On::RecombinedAlone);
}

#[test]
fn every_damage_is_caught_with_the_shard_at_hand() {
    every_damage_is_caught(On::SplitWithSource);
}

#[test]
fn every_damage_is_caught_with_all_shards_at_hand() {
    every_damage_is_caught(On::RecombinedWithSource);
}

#[test]
fn every_library_that_is_not_there_is_told_with_all_others_named() {
    every_damage_is_caught(On::SplitWithExternals);
    every_damage_is_caught(On::RecombinedWithExternals);
}

#[test]
fn content_of_an_isa_without_a_group_is_left_out() {
    let mut config = config();
    config
        .architecture_groups
        .get_mut("gfx110X")
        .unwrap()
        .architectures
        .retain(|isa| isa != "gfx1102");
    let split = read_shards(&good().join("all"));
    let (groups, _) = recombine::recombine(&split, &config).unwrap();
    let dir = tempfile::tempdir().unwrap();
    write_artifacts(&dir.path().join("out"), &groups);
    let shards = shards();
    let options = Options { source: Some(&shards), config: Some(&config), ..options() };
    let jobs = Jobs::new(2, 64 << 20);
    let report = verify::directory(&dir.path().join("out"), &options, &jobs, &Silent).unwrap();
    assert!(ids(&report).contains(&"left-out"), "{:?}", report.findings);
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Warning));
}

#[test]
fn text_markers_are_searched_and_warned_of() {
    let options = options();
    let jobs = Jobs::new(2, 64 << 20);
    let report = verify::directory(&good().join("text"), &options, &jobs, &Silent).unwrap();
    assert!(!report.findings.is_empty());
    assert!(
        report.findings.iter().all(|finding| finding.id == Check::MarkerText),
        "{:?}",
        report.findings
    );
}

#[test]
fn an_allowed_finding_is_reported_with_its_reason() {
    let victim = Victim::of("split");
    victim.mode(TOOL, 0o644);
    victim.write("blas_lib_generic/stray", "x");
    let allow = Allow {
        id: "mode".into(),
        place: globset::Glob::new("blas_run_*/**").unwrap(),
        reason: "the bench is for us".into(),
    };
    let options = Options { allow: vec![allow], ..options() };
    let report =
        verify::directory(victim.dir.path(), &options, &Jobs::new(1, 1 << 20), &Silent).unwrap();
    assert_eq!(ids(&report), ["manifest-short"]);
    assert_eq!(report.allowed.len(), 1);
    assert_eq!(report.allowed[0].reason, "the bench is for us");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["findings"][0]["id"], "manifest-short");
    assert_eq!(json["findings"][0]["severity"], "error");
    assert_eq!(json["allowed"][0]["id"], "mode");
}

/// Findings do not depend on the number of threads.
#[test]
fn a_report_is_the_same_for_any_number_of_threads() {
    let victim = Victim::of("split");
    victim.remove(LIB);
    victim.write(&victim.kpack("gfx1101"), "x");
    victim.write("blas_lib_generic/stray", "x");
    let report = |threads| {
        let jobs = Jobs::new(threads, 1 << 20);
        let report = verify::directory(victim.dir.path(), &options(), &jobs, &Silent);
        serde_json::to_string(&report.unwrap()).unwrap()
    };
    assert_eq!(report(1), report(7));
}

// ---- the page ----

fn check_table() -> String {
    let mut text = String::from(
        "| id | invariant | severity | protects from | likely cause | mend |\n|---|---|---|---|---|---|\n",
    );
    for check in Check::ALL {
        let about = check.about();
        let severity = match (check, about.severity) {
            (Check::NeededMissing, _) => "error, or warning (above)",
            (_, Severity::Error) => "error",
            (_, Severity::Warning) => "warning",
        };
        text += &format!(
            "| `{}` | {} | {severity} | {} | {} | {} |\n",
            about.id, about.invariant, about.protects, about.cause, about.mend
        );
    }
    text
}

#[test]
fn the_page_has_every_check_and_every_damage() {
    assert!(DAMAGES.len() >= 40);
    table_is_on_the_page("checks", &check_table());
    table_is_on_the_page("damages", &damage_table(DAMAGES));
}
