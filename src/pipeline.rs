//! Stages strung together: what each command of the program runs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::artifact::{ArtifactTree, Shard};
use crate::config::{PackagesConfig, PackagingConfig};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::package::set::{PackageFile, SetOptions, write_set};
use crate::package::spec::Package;
use crate::progress::Monitor;
use crate::tree::Tree;
use crate::tree::dir::{self, Copying};
use crate::tree::output::OutputDir;
use crate::{recombine, split, stage};

/// Plans the split of all artifacts of a shard, side by side. Artifacts that give parts of one name
/// (a generic one beside one of a build job) are laid together. The faults of all are reported.
pub fn split_all(
    artifacts: &[ArtifactTree],
    options: &split::Options,
    jobs: &Jobs,
) -> Result<(Vec<ArtifactTree>, Vec<split::Report>)> {
    let mut outputs: BTreeMap<String, ArtifactTree> = BTreeMap::new();
    let mut reports = Vec::new();
    let mut faults = Vec::new();
    for planned in jobs.drive(artifacts, |artifact| split::split(artifact, options)) {
        match planned {
            Ok((parts, report)) => {
                for part in parts {
                    faults.extend(lay_together(&mut outputs, part).err());
                }
                reports.push(report);
            }
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    Errors::check((outputs.into_values().collect(), reports), faults)
}

fn lay_together(
    outputs: &mut BTreeMap<String, ArtifactTree>,
    part: ArtifactTree,
) -> Result<(), Error> {
    let name = part.name.to_string();
    let Some(there) = outputs.get_mut(&name) else {
        outputs.insert(name, part);
        return Ok(());
    };
    for prefix in part.prefixes {
        if !there.prefixes.contains(&prefix) {
            there.prefixes.push(prefix);
        }
    }
    for (path, entry) in part.tree.iter() {
        there.tree.insert(path.clone(), entry.clone()).map_err(|e| {
            Error::failed(format!("two artifacts of the shard give {name}: {e}"))
                .hint("a shard has one artifact of each name and component: leave one of them out")
        })?;
    }
    Ok(())
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
    dir::write(output.part(), &trees, copying, jobs, monitor)?;
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

/// Writes planned packages into an output directory.
pub fn write_packages(
    packages: &[Package],
    options: &SetOptions,
    output: OutputDir,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<PackageFile>> {
    let files = write_set(packages, options, output.part(), jobs, monitor)?;
    output.finish()?;
    Ok(files)
}
