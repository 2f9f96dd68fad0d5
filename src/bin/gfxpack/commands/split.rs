//! `gfxpack split`

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use gfxpack::artifact::{
    ArtifactName, COMPONENTS, archive_stem, passed_over, read_artifact, read_each,
};
use gfxpack::database::Databases;
use gfxpack::error::{Error, Errors, Result};
use gfxpack::jobs::Jobs;
use gfxpack::kpack::writer::Compression;
use gfxpack::pipeline::{Batch, Item, split_all, write_artifacts};
use gfxpack::split::{IsaContent, KPACK_FOLDER, Layout, MarkerForm, Options, Report, Scope};
use gfxpack::tree::TreePath;
use gfxpack::tree::dir::Copying;
use gfxpack::tree::output::OutputDir;
use indicatif::HumanBytes;

use super::{cache, count, passed_over_json, passed_over_line, splitting_jobs, tell_undigested};
use crate::args::{self, Global, Split, Splitting};
use crate::output::{Ui, error_json};
use crate::table::printable;

pub fn run(args: &Split, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let options = options(&args.splitting, Scope::Component, KPACK_FOLDER)?;
    if args.artifact_dir.is_none() {
        cache::apart_from(&args.output_dir, &args.caching)?;
    }
    if let Some(input) = args.artifact_dir.as_ref().or(args.batch_artifact_parent_dir.as_ref()) {
        cache::outside_of(input, &args.caching)?;
    }
    let jobs = cache::with(splitting_jobs(global), &args.caching, false)?;
    match (&args.artifact_dir, &args.batch_artifact_parent_dir) {
        (Some(dir), _) => one(dir, args, &options, &jobs, ui),
        (None, Some(parent)) => batch(parent, args, &options, &jobs, ui),
        (None, None) => Err(Error::usage("no input is named").into()),
    }
}

/// One artifact: all or nothing.
fn one(dir: &Path, args: &Split, options: &Options, jobs: &Jobs, ui: &Ui) -> Result<ExitCode> {
    let prefix = args.artifact_prefix.as_deref().unwrap_or_default();
    let artifacts = [read_artifact(dir, name(dir, prefix)?, ui)?];
    let (outputs, reports) = split_all(&artifacts, options, jobs)?;
    notes(&reports, ui);
    let names: Vec<String> = outputs.iter().map(|output| output.name.to_string()).collect();
    for name in &names {
        cache::apart_from(&args.output_dir.join(name), &args.caching)?;
    }
    let places = names.iter().map(String::as_str);
    let output = OutputDir::create_beside(&args.output_dir, places, args.force, &[dir])?;
    write_artifacts(&outputs, output, Copying::Copy, jobs, ui)?;
    left_out(&reports, ui);
    let mut json = serde_json::json!({
        "status": "done", "output": args.output_dir.to_string_lossy(), "artifacts": names,
        "split": reports.iter().map(report_json).collect::<Vec<_>>(),
    });
    cache::tell(jobs, &mut json, ui);
    ui.result(&json, || table(&reports));
    Ok(ExitCode::SUCCESS)
}

/// A batch: each artifact for itself.
fn batch(parent: &Path, args: &Split, options: &Options, jobs: &Jobs, ui: &Ui) -> Result<ExitCode> {
    let passed = passed_over(parent)?;
    tell_undigested(&[parent.to_owned()], ui)?;
    let mut batch = Batch::plan(read_each(parent, jobs, ui)?, options, jobs);
    notes(batch.items().iter().filter_map(Item::report), ui);
    if !batch.outputs().is_empty() {
        let written = OutputDir::create(&args.output_dir, args.force, &[parent])
            .and_then(|output| batch.write(output, Copying::Copy, jobs, ui));
        if let Err(of_run) = written {
            // What is wrong with artifacts is told as well: it need not be found a second time.
            return Errors::check(ExitCode::SUCCESS, batch.into_faults(of_run.into_vec()));
        }
    }
    left_out(batch.items().iter().filter_map(Item::report), ui);
    let failed: Vec<&str> = batch
        .items()
        .iter()
        .filter(|item| item.report().is_none())
        .map(|item| item.name.as_str())
        .collect();
    let (good, outputs) = (batch.items().len() - failed.len(), batch.outputs());
    let faults = || batch.items().iter().flat_map(Item::faults);
    let status = match (failed.is_empty(), good) {
        (true, _) => "done",
        (false, 0) => "failed",
        (false, _) => "incomplete",
    };
    let mut json = serde_json::json!({
        "status": status,
        "output": (good > 0).then(|| args.output_dir.to_string_lossy()),
        "artifacts": outputs,
        "split": batch.items().iter().map(item_json).collect::<Vec<_>>(),
        "passed_over": passed_over_json(&passed),
    });
    if !failed.is_empty() {
        json["errors"] = faults().map(error_json).collect();
    }
    faults().for_each(|fault| ui.error(fault));
    cache::tell(jobs, &mut json, ui);
    ui.result(&json, || batch_table(&batch) + &passed_over_line(&passed));
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let all = batch.items().len();
    ui.error(&match good {
        0 => Error::failed(format!("nothing was written: {} failed", listed(&failed)))
            .hint("mend what failed, and split again"),
        _ => Error::failed(format!(
            "is incomplete: {good} of {all} artifacts {} in it; {} failed",
            if good == 1 { "is" } else { "are" },
            listed(&failed)
        ))
        .at(&args.output_dir)
        .hint("mend what failed, and split again with --force, which replaces all of the output"),
    });
    Ok(ExitCode::FAILURE)
}

/// `a, b and c`, not more than a line can show.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = names.iter().map(|name| printable(name)).collect();
    match names.split_at_checked(SHOWN) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} more", first.join(", "), rest.len())
        }
        _ => match names.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, first)) => format!("{} and {last}", first.join(", ")),
            None => String::new(),
        },
    }
}

/// Says with `--verbose` what stays as it is.
pub fn notes<'a>(reports: impl IntoIterator<Item = &'a Report>, ui: &Ui) {
    for note in reports.into_iter().flat_map(|report| &report.notes) {
        ui.note(note);
    }
}

/// What became of an artifact of a batch.
fn item_json(item: &Item) -> serde_json::Value {
    match item.report() {
        Some(report) => report_json(report),
        None => serde_json::json!({
            "artifact": item.name,
            "status": "failed",
            "errors": item.faults().iter().map(error_json).collect::<Vec<_>>(),
        }),
    }
}

/// What became of an artifact that was split.
pub fn report_json(report: &Report) -> serde_json::Value {
    let mut json = serde_json::json!(report);
    json["status"] = "done".into();
    json
}

/// The name of the artifact in `dir`: the prefix as it was given, the target from the directory's or
/// archive's name where that goes with the prefix.
fn name(dir: &Path, prefix: &str) -> Result<ArtifactName> {
    let called = dir.canonicalize().ok().and_then(|dir| Some(dir.file_name()?.to_owned()));
    let called = called.unwrap_or_default().to_string_lossy().into_owned();
    let called = archive_stem(&called).unwrap_or(&called);
    let target = called.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
    let target = target.filter(|target| !target.is_empty()).unwrap_or("fat");
    ArtifactName::parse(&format!("{prefix}_{target}")).map_err(|e| {
        Error::usage(format!("--artifact-prefix {prefix} is no artifact's name and component"))
            .because(e)
            .hint(format!("expected as blas_lib; components are {}", COMPONENTS.join(", ")))
            .into()
    })
}

/// The known databases and those of the user's table.
pub fn all_databases(table: Option<&Path>) -> Result<Databases> {
    let known = Databases::known();
    Ok(match table {
        Some(table) => known.and(Databases::load(table)?),
        None => known,
    })
}

/// Of these the ones that are named; all where none are.
pub fn databases(args: &args::Databases) -> Result<Databases> {
    let all = all_databases(args.databases.as_deref())?;
    let Some(names) = &args.split_databases else { return Ok(all) };
    all.select(names).map_err(|e| {
        Error::usage("--split-databases")
            .because(e)
            .hint("name some of the known ones, or `none`")
            .into()
    })
}

/// The library's options from the arguments that `split` and `build` share, and what is meant where an
/// argument is left out.
pub fn options(args: &Splitting, scope: Scope, kpack_dir: &str) -> Result<Options> {
    Ok(Options {
        databases: databases(&args.databases)?,
        scope: match args.kpack_scope {
            None => scope,
            Some(args::Scope::Component) => Scope::Component,
            Some(args::Scope::Prefix) => Scope::Prefix,
            Some(args::Scope::Binary) => Scope::Binary,
        },
        layout: match args.kpack_layout {
            args::Layout::Stage => Layout::Stage,
            args::Layout::InPlace => Layout::InPlace,
        },
        folder: match &args.kpack_dir {
            Some(dir) => dir.clone(),
            None => TreePath::new(kpack_dir).expect("a clean path"),
        },
        compression: match args.compression {
            args::KpackCompression::Zstd => Compression::Zstd { level: args.compression_level },
            args::KpackCompression::None => Compression::None,
        },
        gpu_targets: args.gpu_targets.as_ref().map(|isas| isas.iter().cloned().collect()),
        marker: match args.kpack_ref {
            args::KpackRef::Msgpack => MarkerForm::MessagePack,
            args::KpackRef::Text => MarkerForm::Text,
        },
    })
}

/// Says which of `--gpu-targets` nothing in a set of shards has code for. Fails where that is so for all of them. (A
/// single artifact may well have none of them.)
pub fn unmatched<'a>(
    args: &Splitting,
    reports: impl IntoIterator<Item = &'a Report>,
    ui: &Ui,
) -> Result<()> {
    let Some(wanted) = &args.gpu_targets else { return Ok(()) };
    let mut there = BTreeSet::new();
    let mut others = BTreeSet::new();
    for report in reports {
        for isa in report.isas.keys() {
            there.insert(isa.as_str());
            // A processor stands for its feature variants.
            there.extend(isa.split(':').next());
        }
        others.extend(report.left_out.keys().map(String::as_str));
    }
    let names: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    let missing: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !there.contains(name)).collect();
    if missing.len() == names.len() && !others.is_empty() {
        let others: Vec<&str> = others.into_iter().collect();
        return Err(Error::usage(format!("nothing has code for {}", missing.join(", ")))
            .hint(format!("--gpu-targets: there is code for {}", others.join(", ")))
            .into());
    }
    for name in missing {
        ui.warning(&format!("nothing has code for {name}, which --gpu-targets names"));
    }
    Ok(())
}

/// Says what `--gpu-targets` left out.
pub fn left_out<'a>(reports: impl IntoIterator<Item = &'a Report>, ui: &Ui) {
    let mut all: BTreeMap<&str, IsaContent> = BTreeMap::new();
    for (isa, content) in reports.into_iter().flat_map(|report| &report.left_out) {
        let sum = all.entry(isa).or_default();
        sum.code_objects += content.code_objects;
        sum.database_files += content.database_files;
    }
    for (isa, content) in all {
        ui.warning(&format!(
            "{isa} is not among --gpu-targets: {} code objects and {} database files are left out",
            content.code_objects, content.database_files
        ));
    }
}

fn batch_table(batch: &Batch) -> String {
    let mut text = String::new();
    for item in batch.items() {
        match item.report() {
            Some(report) => text += &rows(report),
            None => {
                let faults = count(item.faults().len(), "error");
                let _ = writeln!(text, "{}: failed, {faults}", printable(&item.name));
            }
        }
    }
    text + &kept_whole(batch.items().iter().filter_map(Item::report)).map_or_else(String::new, line)
}

fn table(reports: &[Report]) -> String {
    let rows: String = reports.iter().map(rows).collect();
    rows + &kept_whole(reports).map_or_else(String::new, line)
}

fn line(text: String) -> String {
    text + "\n"
}

fn rows(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: {} converted, {}",
        report.artifact,
        match report.converted.len() {
            1 => "1 fat binary".to_owned(),
            n => format!("{n} fat binaries"),
        },
        count(usize::try_from(report.generic_files).unwrap_or(usize::MAX), "generic file"),
    );
    for (isa, content) in &report.isas {
        let _ = writeln!(
            text,
            "  {isa:<24} {:>20} {:>11}   {:>21} {:>11}",
            count(usize::try_from(content.code_objects).unwrap_or(usize::MAX), "code object"),
            HumanBytes(content.code_bytes).to_string(),
            count(usize::try_from(content.database_files).unwrap_or(usize::MAX), "database file"),
            HumanBytes(content.database_bytes).to_string(),
        );
    }
    text
}

/// How many files stay as they are although they may have device code, in a line.
pub fn kept_whole<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Option<String> {
    let (verb, files) = match reports.into_iter().map(|report| report.notes.len()).sum() {
        0 => return None,
        1 => ("stays as it is", count(1, "file")),
        n => ("stay as they are", count(n, "file")),
    };
    Some(format!("{files} that may have device code {verb} (--verbose says which and why)"))
}
