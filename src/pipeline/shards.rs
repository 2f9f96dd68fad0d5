//! Reading the shards of a build, held against those that its configuration asks for.

use std::path::Path;

use crate::artifact::{Shard, read_shards, shard_names};
use crate::config::PackagingConfig;
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::progress::Monitor;

/// Reads all shards in the directory `dir` (see [`read_shards`]). That the configuration's primary shard
/// and all of its `required_shards` are there is asked first: reading archives takes its time. `file` is
/// where the configuration was read, for messages.
pub fn read_required(
    dir: &Path,
    config: &PackagingConfig,
    file: &Path,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<Shard>> {
    let there = shard_names(dir)?;
    // Where there is nothing at all, reading says what is wrong.
    if !there.is_empty() {
        let faults = config.missing_shards(&there).into_iter().map(|(key, name)| {
            Error::usage(format!("{key}: there is no shard `{name}` in {}", dir.display()))
                .at(file)
                .hint(format!(
                    "the shards there are {}: bring the missing one, or correct its name, or take it out of `required_shards` where it is no longer built",
                    there.join(", ")
                ))
        });
        Errors::check((), faults.collect())?;
    }
    read_shards(dir, jobs, monitor)
}
