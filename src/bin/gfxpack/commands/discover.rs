//! `gfxpack discover`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use gfxpack::discover::{
    Content, Found, PathKind, PathReport, Report, discover, draft_config, write_config,
};
use gfxpack::error::Result;

use super::{count, jobs, passed_over_line, some, split};
use crate::args::{Discover, Global};
use crate::output::Ui;
use crate::table::{Table, printable, size};

pub fn run(args: &Discover, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let databases = split::all_databases(args.databases.as_deref())?;
    let report = discover(&args.paths, &databases, &jobs(global), ui)?;
    for path in &report.paths {
        for note in path.notes.iter().map(|note| printable(note)) {
            // Where nothing was found, it may be why.
            if path.isas.is_empty() { ui.warning(&note) } else { ui.note(&note) }
        }
    }
    let mut json = serde_json::json!({ "paths": report.paths, "total": report.total });
    let mut written = String::new();
    if let Some(path) = &args.write_config {
        let draft = draft_config(&report, args.primary_shard.as_deref())?;
        for left_out in &draft.left_out {
            ui.warning(left_out);
        }
        write_config(path, &draft.config, args.force)?;
        if !draft.union_because.is_empty() {
            ui.remark(&format!(
                "set \"generic_union\": true, since the primary shard {} has not all host code: {}",
                draft.config.primary_shard,
                some(&draft.union_because),
            ));
        }
        json["config"] = serde_json::json!({
            "path": path, "content": draft.config, "left_out": draft.left_out,
            "union_because": draft.union_because,
        });
        written = format!(
            "wrote {}: {}, primary shard {}\n",
            path.display(),
            count(draft.config.architecture_groups.len(), "architecture group"),
            draft.config.primary_shard,
        );
    }
    ui.result(&json, || text(&report, ui.is_verbose()) + &written);
    Ok(ExitCode::SUCCESS)
}

fn text(report: &Report, verbose: bool) -> String {
    let mut text = String::new();
    for path in &report.paths {
        let _ = writeln!(text, "{}: {}", path.path.display(), taken_for(path));
        text.push_str(&contents(&path.isas));
        let passed: Vec<_> = path.passed_over.iter().map(PathBuf::from).collect();
        let strays = passed_over_line(&passed);
        if !strays.is_empty() {
            text.push_str("  ");
            text.push_str(&strays);
        }
        if verbose && !path.found.is_empty() {
            text.push('\n');
            text.push_str(&places(&path.found));
        }
        text.push('\n');
    }
    if report.paths.len() > 1 {
        text.push_str("all paths:\n");
        text.push_str(&contents(&report.total));
    } else {
        text.pop();
    }
    text
}

fn taken_for(path: &PathReport) -> String {
    let artifacts = count(path.artifacts, "artifact");
    let files = count(usize::try_from(path.files).unwrap_or(usize::MAX), "file");
    match path.kind {
        PathKind::File => "a file".to_owned(),
        PathKind::Artifact => format!("an artifact with {files}"),
        PathKind::Artifacts => {
            format!("a directory of artifacts (a shard): {artifacts} with {files}")
        }
        PathKind::Shards => {
            let shards = count(path.shards.len(), "shard");
            format!("a directory of shards: {shards}, {artifacts} with {files}")
        }
        PathKind::Directory => format!("a directory with {files}"),
    }
}

fn contents(isas: &BTreeMap<String, Content>) -> String {
    if isas.is_empty() {
        return "  no device code\n".to_owned();
    }
    let mut table = Table::new(&["ISA", ">code objects", ">bytes", ">database files", ">bytes"]);
    let mut row = |name: &str, content: &Content| {
        table.row([
            name.to_owned(),
            content.code_objects.to_string(),
            size(content.code_bytes),
            content.database_files.to_string(),
            size(content.database_bytes),
        ]);
    };
    let mut sum = Content::default();
    for (isa, content) in isas {
        row(isa, content);
        sum.code_objects += content.code_objects;
        sum.code_bytes = sum.code_bytes.saturating_add(content.code_bytes);
        sum.database_files += content.database_files;
        sum.database_bytes = sum.database_bytes.saturating_add(content.database_bytes);
    }
    if isas.len() > 1 {
        row("all", &sum);
    }
    table.render(2, true)
}

/// Where each ISA is.
fn places(found: &[Found]) -> String {
    let mut places: Vec<&Found> = found.iter().collect();
    places.sort_by(|a, b| {
        (&a.isa, &a.shard, &a.artifact, &a.file).cmp(&(&b.isa, &b.shard, &b.artifact, &b.file))
    });
    let mut table = Table::new(&["ISA", ">count", ">bytes", "in", "place"]);
    for place in places {
        let content = place.content;
        let parts = [place.shard.as_deref(), place.artifact.as_deref(), Some(place.file.as_str())];
        table.row([
            place.isa.clone(),
            (content.code_objects + content.database_files).to_string(),
            size(content.code_bytes.saturating_add(content.database_bytes)),
            place.holder.clone(),
            parts.into_iter().flatten().collect::<Vec<_>>().join("/"),
        ]);
    }
    table.render(2, true)
}
