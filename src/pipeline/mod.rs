//! Stages strung together: what each command of the program runs.

mod batch;
pub mod engines;
pub mod graph;
mod shards;
pub mod stale;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::artifact::{ArtifactTree, Shard};
use crate::config::{PackagesConfig, PackagingConfig};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::package::room::{self, Room};
use crate::package::set::{PackageFile, SetOptions, write_set};
use crate::package::spec::Package;
use crate::progress::Monitor;

use crate::tree::dir::{self, Copying};
use crate::tree::output::OutputDir;
use crate::tree::{Occupied, Tree, TreePath};
use crate::{recombine, split, stage};

pub use batch::{Batch, Item};
pub use shards::read_required;

/// What to do where two artifacts want one path.
const ONE_OF_A_NAME: &str =
    "a shard has one artifact of each name and component: leave one of them out";

/// Plans the split of all artifacts of a shard, side by side. Artifacts that give parts of one name
/// (a generic one beside one of a build job) are laid together. The faults of all are reported.
pub fn split_all(
    artifacts: &[ArtifactTree],
    options: &split::Options,
    jobs: &Jobs,
) -> Result<(Vec<ArtifactTree>, Vec<split::Report>)> {
    let mut parts: BTreeMap<String, Vec<ArtifactTree>> = BTreeMap::new();
    let mut reports = Vec::new();
    let mut faults = Vec::new();
    for planned in jobs.drive(artifacts, |artifact| split::split(artifact, options)) {
        match planned {
            Ok((of_one, report)) => {
                for part in of_one {
                    parts.entry(part.name.to_string()).or_default().push(part);
                }
                reports.push(report);
            }
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    let mut outputs = Vec::new();
    for (name, parts) in parts {
        let Some((output, collisions)) = lay(parts) else { continue };
        faults.extend(collisions.into_iter().map(|collision| {
            let what = collision.occupied;
            Error::failed(format!("two artifacts of the shard give {name}: {what}"))
                .hint(ONE_OF_A_NAME)
        }));
        outputs.push(output);
    }
    Errors::check((outputs, reports), faults)
}

/// Two parts that want one path.
struct Collision {
    /// Their places in the list of parts.
    parts: [usize; 2],
    occupied: Occupied,
}

/// Lays parts of one name together, and finds which of them collide: of each two the first path.
/// `None` where there are no parts.
fn lay(parts: impl IntoIterator<Item = ArtifactTree>) -> Option<(ArtifactTree, Vec<Collision>)> {
    let mut parts = parts.into_iter();
    let mut laid = parts.next()?;
    let mut collisions: Vec<Collision> = Vec::new();
    // Of what is not the first part's.
    let mut owners: BTreeMap<TreePath, usize> = BTreeMap::new();
    for (place, part) in (1..).zip(parts) {
        for prefix in part.prefixes {
            if !laid.prefixes.contains(&prefix) {
                laid.prefixes.push(prefix);
            }
        }
        for (path, entry) in part.tree.iter() {
            let new = laid.tree.get(path).is_none();
            match laid.tree.insert(path.clone(), entry.clone()) {
                Ok(()) if new => {
                    owners.insert(path.clone(), place);
                }
                Ok(()) => {}
                Err(occupied) => {
                    let parts = [owners.get(&occupied.0).copied().unwrap_or(0), place];
                    if !collisions.iter().any(|known| known.parts == parts) {
                        collisions.push(Collision { parts, occupied });
                    }
                }
            }
        }
    }
    Some((laid, collisions))
}

/// Writes artifacts as directories into an output directory (see [`OutputDir`]).
pub fn write_artifacts(
    artifacts: &[ArtifactTree],
    output: OutputDir,
    copying: Copying,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<()> {
    let trees: Vec<(String, Tree)> =
        artifacts.iter().map(|artifact| (artifact.name.to_string(), artifact.to_tree())).collect();
    if let Err(faults) = dir::write(output.part(), &trees, copying, jobs, monitor) {
        return Errors::check((), faults.into_iter().map(|fault| fault.error).collect());
    }
    output.finish()
}

/// All that was planned on the way from shards to packages.
#[derive(Debug, Serialize)]
pub struct BuildReport {
    /// By shard, then artifact.
    pub split: BTreeMap<String, Vec<split::Report>>,
    /// What regrouping found.
    pub recombine: recombine::Report,
    /// What staging found.
    pub stage: stage::Report,
}

/// Plans the packages of a set of shards: split, recombine and stage. Without `definitions` each
/// artifact prefix is a package.
pub fn plan_build(
    shards: &[Shard],
    groups: &PackagingConfig,
    definitions: Option<&PackagesConfig>,
    splitting: &split::Options,
    staging: &stage::Options,
    jobs: &Jobs,
) -> Result<(Vec<Package>, BuildReport)> {
    let mut split_shards = Vec::new();
    let mut split_reports = BTreeMap::new();
    let mut faults = Vec::new();
    for shard in shards {
        match split_all(&shard.artifacts, splitting, jobs) {
            Ok((artifacts, reports)) => {
                split_shards.push(Shard { name: shard.name.clone(), artifacts });
                split_reports.insert(shard.name.clone(), reports);
            }
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    Errors::check((), faults)?;
    let (artifacts, recombine) = recombine::recombine(&split_shards, groups)?;
    let (packages, stage) = plan_packages(&artifacts, groups, definitions, staging)?;
    Ok((packages, BuildReport { split: split_reports, recombine, stage }))
}

/// Plans the packages of recombined artifacts.
pub fn plan_packages(
    artifacts: &[ArtifactTree],
    groups: &PackagingConfig,
    definitions: Option<&PackagesConfig>,
    staging: &stage::Options,
) -> Result<(Vec<Package>, stage::Report)> {
    let names = artifacts.iter().map(|a| (a.name.artifact.as_str(), a.name.component.as_str()));
    let made;
    let definitions = match definitions {
        Some(definitions) => definitions,
        None => {
            made = PackagesConfig::one_for_each(names);
            &made
        }
    };
    stage::stage(artifacts, groups, definitions, staging)
}

/// Writes planned packages into an output directory. Where the disk is full, one error says so, and what was needed.
pub fn write_packages(
    packages: &[Package],
    options: &SetOptions,
    output: OutputDir,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<PackageFile>> {
    let free = room::free(output.part());
    let files = write_set(packages, options, output.part(), jobs, monitor).map_err(|errors| {
        room::one_error(errors, Room::estimate(packages, &options.formats), free)
    })?;
    output.finish()?;
    Ok(files)
}
