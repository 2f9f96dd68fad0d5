//! `--cache`: opening it, and saying what came of it.

use std::path::Path;

use gfxpack::cache::{Cache, Counts};
use gfxpack::error::{Error, Result};
use gfxpack::jobs::Jobs;
use gfxpack::tree::output::overlap;
use indicatif::HumanBytes;

use crate::args::Caching;
use crate::output::Ui;

/// Has a run use the cache that the arguments name, unless it makes nothing (`--dry-run`).
pub fn with(jobs: Jobs, args: &Caching, dry_run: bool) -> Result<Jobs> {
    let dir = args.cache.as_deref().filter(|_| !dry_run);
    let cache = dir.map(|dir| Cache::open(dir, args.cache_size)).transpose()?;
    Ok(jobs.with_cache(cache))
}

/// Refuses a cache in the input, which holds what a build made and nothing else, and one that holds it.
pub fn outside_of(input: &Path, args: &Caching) -> Result<()> {
    let Some(cache) = args.cache.as_deref().filter(|cache| overlap(input, cache)) else {
        return Ok(());
    };
    let what = format!("the cache and {} lie in one another", input.display());
    Err(Error::usage(what)
        .at(cache)
        .hint("what is read is never written to: name a cache outside of it")
        .into())
}

/// Refuses an output that is the cache, holds it, or lies in it: the one is replaced, the other kept.
pub fn apart_from(output: &Path, args: &Caching) -> Result<()> {
    let Some(cache) = args.cache.as_deref().filter(|cache| overlap(output, cache)) else {
        return Ok(());
    };
    let what = format!("the output and the cache {} lie in one another", cache.display());
    Err(Error::usage(what)
        .at(output)
        .hint("the cache is kept for other runs, and the output is replaced as a whole: name one outside of the other")
        .into())
}

/// Says what the run had of the cache, and puts it into its document.
pub fn tell(jobs: &Jobs, json: &mut serde_json::Value, ui: &Ui) {
    let Some(cache) = jobs.cache() else { return };
    let report = cache.report();
    for path in &report.damaged {
        ui.warning(&format!(
            "{}: was damaged in the cache: it is removed, and was made again",
            path.display()
        ));
    }
    if let Some(problem) = &report.problem {
        ui.warning(&format!(
            "the cache could not be used as it should, and keeps no more: {problem}"
        ));
    }
    let of = |what: &str, counts: &Counts| {
        let Counts { taken, taken_bytes, made, kept_bytes } = *counts;
        let [taken_bytes, kept_bytes] = [taken_bytes, kept_bytes].map(HumanBytes);
        (taken + made > 0).then(|| {
            format!("{taken} of {} {what} taken ({taken_bytes}), {kept_bytes} kept", taken + made)
        })
    };
    let parts = [of("packages", &report.packages), of("kpack archives", &report.kpacks)];
    let line: Vec<String> = parts.into_iter().flatten().collect();
    if !line.is_empty() {
        ui.remark(&format!("cache: {}", line.join("; ")));
    }
    json["cache"] = serde_json::json!(report);
}
