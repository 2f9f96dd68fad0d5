//! One file a command: from arguments to options, one call, a report.

mod build;
mod cache;
mod discover;
mod dry_run;
mod extract;
mod inspect;
mod make;
mod meta;
mod package;
mod plan;
mod recombine;
mod repo;
mod sign;
mod split;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use gfxpack::error::{Error, Result};
use gfxpack::jobs::Jobs;
use gfxpack::package::spec::LATEST;

use crate::args::{Args, Command, Global};
use crate::output::Ui;
use crate::table::printable;

pub fn run(args: &Args, ui: &Ui) -> Result<ExitCode> {
    let global = &args.global;
    match &args.command {
        Command::Discover(args) => discover::run(args, global, ui),
        Command::Split(args) => split::run(args, global, ui),
        Command::Recombine(args) => recombine::run(args, global, ui),
        Command::Verify(args) => verify::run(args, global, ui),
        Command::Package(args) => package::run(args, global, ui),
        Command::Build(args) => build::run(args, global, ui),
        Command::Plan(args) => plan::run(args, global, ui),
        Command::Make(args) => make::run(args, global, ui),
        Command::Sign(args) => sign::run(args, global, ui),
        Command::Repo(args) => repo::run(args, global, ui),
        Command::Inspect(args) => inspect::run(args, ui),
        Command::Extract(args) => extract::run(args, ui),
        Command::Schema(args) => meta::schema(args),
        Command::Completions(args) => meta::completions(args),
        Command::Man(args) => meta::man(args),
    }
}

/// Bytes in flight between threads where no bound is given.
const IN_FLIGHT: u64 = 64 << 20;

/// The threads and the memory bound of this run.
fn jobs(global: &Global) -> Jobs {
    jobs_with(global, |memory| memory)
}

/// The same where artifacts are split: bundles that are decompressed take more than twice as much as elsewhere (112 MiB by
/// default), so that more of their hashes are computed together.
fn splitting_jobs(global: &Global) -> Jobs {
    let jobs = jobs(global);
    let bundles = (jobs.in_flight() / 4).saturating_mul(7);
    jobs.with_bundles(bundles)
}

/// The same where packages are written: the bound is for that as well.
fn packaging_jobs(global: &Global) -> Jobs {
    jobs_with(global, gfxpack::package::in_flight)
}

fn jobs_with(global: &Global, in_flight: fn(u64) -> u64) -> Jobs {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = global.jobs.map_or_else(cores, usize::from);
    Jobs::new(threads, global.memory.map_or(IN_FLIGHT, in_flight))
}

/// The time, in seconds since 1970. A check may ask for it and refuse: nothing that is made depends on the answer.
fn clock() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// `SOURCE_DATE_EPOCH`, where it is set.
fn source_date() -> Result<Option<i64>> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let date = value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|date| (0..=LATEST).contains(date));
    date.map(Some).ok_or_else(|| {
        Error::usage(format!("SOURCE_DATE_EPOCH is `{}`", value.to_string_lossy()))
            .hint(
                "it is the number of seconds since 1970 that the packages are dated by, below 2^32",
            )
            .into()
    })
}

/// `1 file`, `3 files`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The first few of a list, in a line.
fn some(all: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = all.iter().take(SHOWN).map(|one| printable(one)).collect::<Vec<_>>().join("; ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// Says which archives are not checked though others are.
fn tell_undigested(folders: &[PathBuf], ui: &Ui) -> Result<()> {
    let without = gfxpack::artifact::without_digest(folders)?;
    if !without.is_empty() {
        let names = without.iter().map(|path| path.to_string_lossy().into_owned());
        let names: Vec<_> = names.collect();
        let are = if without.len() == 1 { "archive has" } else { "archives have" };
        ui.warning(&format!(
            "{} {are} no .sha256sum beside, and others have one: {}",
            without.len(),
            some(&names)
        ));
    }
    Ok(())
}

/// The folders of the shards in a directory, sorted.
fn shard_folders(parent: &Path) -> Result<Vec<PathBuf>> {
    let names = gfxpack::artifact::shard_names(parent)?;
    Ok(names.into_iter().map(|name| parent.join(name)).collect())
}

/// What stands beside the artifacts and was not read, in a line; nothing where there is nothing.
fn passed_over_line(paths: &[PathBuf]) -> String {
    const SHOWN: usize = 5;
    if paths.is_empty() {
        return String::new();
    }
    let names = paths.iter().take(SHOWN).map(|path| printable(&path.to_string_lossy()));
    let mut names: Vec<String> = names.collect();
    if paths.len() > SHOWN {
        names.push("…".to_owned());
    }
    let what = if paths.len() == 1 { "that is no artifact" } else { "that are no artifacts" };
    format!("passed over: {} {what} ({})\n", paths.len(), names.join(", "))
}

/// The same for programs: all of it.
fn passed_over_json(paths: &[PathBuf]) -> serde_json::Value {
    paths.iter().map(|path| path.to_string_lossy()).collect()
}
