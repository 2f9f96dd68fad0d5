//! `gfxpack build`

use std::process::ExitCode;

use gfxpack::artifact::read_shards;
use gfxpack::error::Result;
use gfxpack::pipeline::plan_build;
use gfxpack::split::{KPACK_FOLDER, Scope};

use super::package::{Plan, finish};
use super::{jobs, package, recombine, split};
use crate::args::{Build, Global};
use crate::output::Ui;

pub fn run(args: &Build, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let plan = Plan::load(&args.packaging)?;
    let in_usr = plan.staging.install_prefix.as_bytes() == b"usr";
    let kpack_dir = if in_usr { "lib/.kpack" } else { KPACK_FOLDER };
    let splitting = split::options(&args.splitting, Scope::Prefix, kpack_dir)?;
    let jobs = jobs(global);
    let shards = read_shards(&args.input_shards_dir, &jobs)?;
    let definitions = plan.definitions.as_ref();
    let (packages, report) =
        plan_build(&shards, &plan.groups, definitions, &splitting, &plan.staging, &jobs)?;
    for reports in report.split.values() {
        split::left_out(reports, ui);
        for note in reports.iter().flat_map(|report| &report.notes) {
            ui.note(note);
        }
    }
    if let Some(line) = split::kept_whole(report.split.values().flatten()) {
        ui.remark(&line);
    }
    recombine::tell(&report.recombine, ui);
    package::tell(&report.stage, ui);
    finish(&packages, &args.packaging, &plan, &args.input_shards_dir, &jobs, ui)
}
