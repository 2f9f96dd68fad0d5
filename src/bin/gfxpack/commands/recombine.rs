//! `gfxpack recombine`

use std::process::ExitCode;

use gfxpack::artifact::passed_over_in_shards;
use gfxpack::config::PackagingConfig;
use gfxpack::error::Result;
use gfxpack::pipeline::{read_required, write_artifacts};
use gfxpack::recombine::{Report, recombine, told};
use gfxpack::tree::dir::Copying;
use gfxpack::tree::output::OutputDir;

use super::{count, jobs, passed_over_json, passed_over_line, shard_folders, tell_undigested};
use crate::args::{Global, Recombine};
use crate::output::Ui;

pub fn run(args: &Recombine, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let config = PackagingConfig::load(&args.config)?;
    let jobs = jobs(global);
    let shards = read_required(&args.input_shards_dir, &config, &args.config, &jobs, ui)?;
    let passed = passed_over_in_shards(&args.input_shards_dir)?;
    tell_undigested(&shard_folders(&args.input_shards_dir)?, ui)?;
    let (artifacts, report) = recombine(&shards, &config)?;
    tell(&report, ui);
    let output = OutputDir::create(&args.output_dir, args.force, &[&args.input_shards_dir])?;
    let copying = if args.copy { Copying::Copy } else { Copying::Link };
    write_artifacts(&artifacts, output, copying, &jobs, ui)?;
    let output = args.output_dir.to_string_lossy();
    let json = serde_json::json!({
        "status": "done", "output": output, "recombine": report,
        "passed_over": passed_over_json(&passed),
    });
    ui.result(&json, || {
        let lines = report.artifacts.iter().map(|made| {
            format!(
                "{:<32} {:>8}   from {}\n",
                made.name,
                count(made.files, "file"),
                made.from.join(", ")
            )
        });
        lines.collect::<String>() + &passed_over_line(&passed)
    });
    Ok(ExitCode::SUCCESS)
}

/// Prints what recombining found.
pub fn tell(report: &Report, ui: &Ui) {
    if ui.is_verbose() {
        report.warnings.iter().for_each(|warning| ui.warning(warning.text()));
    } else {
        told(&report.warnings).iter().for_each(|warning| ui.warning(warning));
    }
    for note in &report.notes {
        ui.note(note);
    }
}
