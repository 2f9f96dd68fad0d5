//! `gfxpack build`

use std::process::ExitCode;

use gfxpack::artifact::{Shard, passed_over_in_shards};
use gfxpack::error::Result;
use gfxpack::jobs::Jobs;
use gfxpack::package::spec::Package;
use gfxpack::pipeline::{plan_build, read_required};
use gfxpack::split::{KPACK_FOLDER, Scope};

use super::package::{Plan, finish};
use super::{
    cache, package, packaging_jobs, passed_over_json, passed_over_line, recombine, shard_folders,
    split, tell_undigested,
};
use crate::args::{Build, Global};
use crate::output::Ui;

pub fn run(args: &Build, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let packaging = &args.packaging;
    package::check_output(packaging, &args.input_shards_dir)?;
    let jobs = cache::with(packaging_jobs(global), &packaging.caching, packaging.dry_run)?;
    let Planned { plan, packages, report, .. } = planned(args, global, &jobs, ui)?;
    let input = &args.input_shards_dir;
    finish(&packages, &report, packaging, &plan, input, &jobs, ui)
}

/// All that is known before anything is written.
pub struct Planned {
    pub plan: Plan,
    pub shards: Vec<Shard>,
    pub packages: Vec<Package>,
    /// What planning found, by stage.
    pub report: serde_json::Value,
}

/// Plans the packages, and tells what that finds.
pub fn planned(args: &Build, global: &Global, jobs: &Jobs, ui: &Ui) -> Result<Planned> {
    let plan = Plan::load(&args.packaging, global.memory)?;
    let in_usr = plan.staging.install_prefix.as_bytes() == b"usr";
    let kpack_dir = if in_usr { "lib/.kpack" } else { KPACK_FOLDER };
    let splitting = split::options(&args.splitting, Scope::Prefix, kpack_dir)?;
    let config = &args.packaging.config;
    let shards = read_required(&args.input_shards_dir, &plan.groups, config, jobs, ui)?;
    let passed = passed_over_in_shards(&args.input_shards_dir)?;
    tell_undigested(&shard_folders(&args.input_shards_dir)?, ui)?;
    let definitions = plan.definitions.as_ref();
    let (packages, report) =
        plan_build(&shards, &plan.groups, definitions, &splitting, &plan.staging, jobs)?;
    split::unmatched(&args.splitting, report.split.values().flatten(), ui)?;
    for reports in report.split.values() {
        split::left_out(reports, ui);
        split::notes(reports, ui);
    }
    if let Some(line) = split::kept_whole(report.split.values().flatten()) {
        ui.remark(&line);
    }
    let strays = passed_over_line(&passed);
    if !strays.is_empty() {
        ui.remark(strays.trim_end());
    }
    recombine::tell(&report.recombine, ui);
    package::tell(&report.stage, ui);
    // Of splitting the same as `split` says.
    let split: serde_json::Map<_, _> = report
        .split
        .iter()
        .map(|(shard, reports)| (shard.clone(), reports.iter().map(split::report_json).collect()))
        .collect();
    let mut report = serde_json::json!(report);
    report["split"] = split.into();
    report["passed_over"] = passed_over_json(&passed);
    Ok(Planned { plan, shards, packages, report })
}
