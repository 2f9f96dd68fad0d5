//! `gfxpack split`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use gfxpack::artifact::{ArtifactName, COMPONENTS, archive_stem, read_artifact, read_artifacts};
use gfxpack::database::Databases;
use gfxpack::error::{Error, Result};
use gfxpack::kpack::writer::Compression;
use gfxpack::pipeline::{split_all, write_artifacts};
use gfxpack::split::{IsaContent, KPACK_FOLDER, Layout, MarkerForm, Options, Report, Scope};
use gfxpack::tree::TreePath;
use gfxpack::tree::dir::Copying;
use gfxpack::tree::output::OutputDir;
use indicatif::HumanBytes;

use super::{count, jobs};
use crate::args::{self, Global, Split, Splitting};
use crate::output::Ui;

pub fn run(args: &Split, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let options = options(&args.splitting, Scope::Component, KPACK_FOLDER)?;
    let jobs = jobs(global);
    let (artifacts, input, beside) = match (&args.artifact_dir, &args.batch_artifact_parent_dir) {
        (Some(dir), _) => {
            let prefix = args.artifact_prefix.as_deref().unwrap_or_default();
            (vec![read_artifact(dir, name(dir, prefix)?)?], dir, true)
        }
        (None, Some(parent)) => (read_artifacts(parent, &jobs)?, parent, false),
        (None, None) => return Err(Error::usage("no input is named").into()),
    };
    let (outputs, reports) = split_all(&artifacts, &options, &jobs)?;
    for note in reports.iter().flat_map(|report| &report.notes) {
        ui.note(note);
    }
    let output = if beside {
        let names: Vec<String> = outputs.iter().map(|output| output.name.to_string()).collect();
        let names = names.iter().map(String::as_str);
        OutputDir::create_beside(&args.output_dir, names, args.force, &[input])?
    } else {
        OutputDir::create(&args.output_dir, args.force, &[input])?
    };
    write_artifacts(&outputs, output, Copying::Copy, &jobs, ui)?;
    left_out(&reports, ui);
    let names: Vec<_> = outputs.iter().map(|output| output.name.to_string()).collect();
    let json = serde_json::json!({
        "status": "done", "output": args.output_dir.to_string_lossy(), "artifacts": names, "split": reports,
    });
    ui.result(&json, || table(&reports));
    Ok(ExitCode::SUCCESS)
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

/// Says what `--gpu-targets` left out.
pub fn left_out(reports: &[Report], ui: &Ui) {
    let mut all: BTreeMap<&str, IsaContent> = BTreeMap::new();
    for (isa, content) in reports.iter().flat_map(|report| &report.left_out) {
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

fn table(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let _ = writeln!(
            text,
            "{}: {}, {}",
            report.artifact,
            count(report.converted.len(), "fat binary converted")
                .replace("converteds", "converted"),
            count(usize::try_from(report.generic_files).unwrap_or(usize::MAX), "generic file"),
        );
        for (isa, content) in &report.isas {
            let _ = writeln!(
                text,
                "  {isa:<24} {:>20} {:>11}   {:>21} {:>11}",
                count(usize::try_from(content.code_objects).unwrap_or(usize::MAX), "code object"),
                HumanBytes(content.code_bytes).to_string(),
                count(
                    usize::try_from(content.database_files).unwrap_or(usize::MAX),
                    "database file"
                ),
                HumanBytes(content.database_bytes).to_string(),
            );
        }
    }
    if let Some(line) = kept_whole(reports) {
        text += &line;
        text.push('\n');
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
