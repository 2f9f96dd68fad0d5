//! Recombining: from the split artifacts of all shards to one generic artifact and one artifact for
//! each architecture group, a component at a time.
//!
//! The generic tree comes from the primary shard; a group's tree has every file of each member ISA,
//! from whichever shard has it. Where two shards have the same path, the contents must be the same.
//! A family's files (`gfx11xx`) go to the one group that has ISAs of it; where several have some, to a
//! tree that those groups share ([`shared_target`]), since no path can be in two packages.

mod compare;
mod generic;
mod merge;
mod missing;
mod sections;
mod units;
mod warning;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::artifact::{ArtifactName, ArtifactTree, Shard, shared_target};
use crate::config::PackagingConfig;
use crate::error::{Error, Errors, Result};
use crate::target::{Family, TargetId};
use crate::tree::TreePath;
use merge::{Merge, Part};
use missing::Code;

pub use warning::{Warning, told};

/// What recombining found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The artifacts made.
    pub artifacts: Vec<MadeArtifact>,
    /// Those of them that several groups share.
    pub shared: Vec<SharedArtifact>,
    /// How the generic artifacts of the other shards differ from the primary one's.
    pub generic_differences: Vec<GenericDifference>,
    /// What is not as it should be and was not asked to be an error.
    pub warnings: Vec<Warning>,
    /// Details that are as they should be.
    pub notes: Vec<String>,
}

/// One artifact made.
#[derive(Debug, Serialize)]
pub struct MadeArtifact {
    /// Its name.
    pub name: String,
    /// Which shards' artifacts went into it, as `gfx110X-build/blas_lib_gfx1100`.
    pub from: Vec<String>,
    /// Number of files and links.
    pub files: usize,
}

/// An artifact that several groups share: files for a family that all of them have ISAs of.
#[derive(Debug, Serialize)]
pub struct SharedArtifact {
    /// Its name, as `aotriton_lib_gfx11xx-shared`.
    pub name: String,
    /// The groups, sorted.
    pub groups: Vec<String>,
    /// All its files and links, sorted.
    pub files: Vec<String>,
}

/// How one shard's generic artifact differs from the primary shard's. Paths are sorted.
#[derive(Debug, Serialize)]
pub struct GenericDifference {
    /// As `gfx1151-build/blas_lib_generic`.
    pub artifact: String,
    /// Files that it lacks.
    pub missing: Vec<String>,
    /// Files that it has besides.
    pub extra: Vec<String>,
    /// Files that are not the same.
    pub differing: Vec<DifferingFile>,
    /// What of all that the configuration allows.
    pub allowed: Vec<String>,
}

/// A generic file that is not the same in two shards.
#[derive(Debug, Serialize)]
pub struct DifferingFile {
    /// Where.
    pub path: String,
    /// In which ELF sections; empty where it is no program or library, or only its mode differs.
    pub sections: Vec<String>,
    /// The mode here and the primary shard's, where they differ: `0755, not 0644`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// Whose files a split artifact holds, from its name.
enum Owner {
    Generic,
    Isa(TargetId),
    Family(Family),
}

/// Regroups the split artifacts of all shards. Every fault is reported.
pub fn recombine(
    shards: &[Shard],
    config: &PackagingConfig,
) -> Result<(Vec<ArtifactTree>, Report)> {
    let there: Vec<_> = shards.iter().map(|shard| shard.name.as_str()).collect();
    let absent = config.missing_shards(&there).into_iter().map(|(key, name)| {
        Error::usage(format!("{key}: there is no shard `{name}`"))
            .hint(format!("the shards are {}", there.join(", ")))
    });
    Errors::check((), absent.collect())?;
    // The primary shard comes first, so that where two have the same file its is taken.
    let mut ordered: Vec<&Shard> = shards.iter().collect();
    ordered.sort_by_key(|shard| shard.name != config.primary_shard);

    let mut components: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    for shard in &ordered {
        for artifact in &shard.artifacts {
            components.entry(artifact.name.prefix()).or_default().push(Part { shard, artifact });
        }
    }
    let mut made = Vec::new();
    let mut report = Report::default();
    let mut faults = Vec::new();
    let mut code = BTreeMap::new();
    for (component, parts) in &components {
        match recombine_component(component, parts, &ordered, config, &mut report) {
            Ok((artifacts, of_component)) => {
                made.extend(artifacts);
                code.insert(component.as_str(), of_component);
            }
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    faults.extend(missing::architectures(&code, config, &mut report));
    Errors::check((made, report), faults)
}

fn recombine_component(
    component: &str,
    parts: &[Part],
    shards: &[&Shard],
    config: &PackagingConfig,
    report: &mut Report,
) -> Result<(Vec<ArtifactTree>, Code)> {
    let mut generic = Vec::new();
    let mut groups: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
    let mut device = Vec::new();
    let mut families = Vec::new();
    let mut code = Code::default();
    let mut faults = Vec::new();
    for part in parts {
        match owner(&part.artifact.name) {
            Ok(Owner::Generic) => generic.push(part),
            Ok(Owner::Family(family)) => families.push((family, part)),
            Ok(Owner::Isa(isa)) => {
                match config.group_of(component, &isa) {
                    Some(group) => {
                        device.push(part);
                        groups.entry(group).or_default().push(part);
                    }
                    None => {
                        let why = match isa.is_generic() {
                            true => " (a generic processor goes to the group that lists it)",
                            false => "",
                        };
                        report.warnings.push(Warning::of(
                            isa.to_string(),
                            format!("in no architecture group, so that files are left out: {{}}{why}"),
                            format!(
                                "{}: {isa} is in no architecture group: its files are left out{why}",
                                part.label()
                            ),
                        ));
                    }
                }
                code.archives |= part.artifact.tree.iter().any(|(path, _)| is_archive(path));
                code.isas.insert(isa);
            }
            Err(e) => faults.push(e.at(&part.artifact.origin)),
        }
    }
    Errors::check((), std::mem::take(&mut faults))?;
    code.families.extend(families.iter().map(|(family, _)| family.clone()));
    let shared = place_families(component, families, config, &mut groups, report);
    let found = units::check(&generic, &device, parts)?;
    if let Some(most) = found.not_all {
        report.warnings.push(Warning::new(format!(
            "{component}: it has more than {most} names of kernels: whether all fit the host code was not looked at"
        )));
    }
    misplaced(found.misfits, config, report)?;

    let mut made = Vec::new();
    let has_code = |shard: &Shard| {
        parts.iter().any(|part| part.shard.name == shard.name && !part.artifact.name.is_generic())
    };
    match generic::tree(component, &generic, has_code, shards, config, report) {
        Ok(artifact) => made.extend(artifact),
        Err(e) => faults.extend(e.into_vec()),
    }
    for (group, parts) in &groups {
        match merged(group, parts, config, report) {
            Ok(artifact) => made.push(artifact),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    for (target, (groups, parts)) in &shared {
        match merged(target, parts, config, report) {
            Ok(artifact) => {
                tell_shared(&artifact, groups, report);
                made.push(artifact);
            }
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    Errors::check((made, code), faults)
}

/// Tells of kernels that do not stand where the host code looks for them.
fn misplaced(findings: Vec<String>, config: &PackagingConfig, report: &mut Report) -> Result<()> {
    let mut faults = Vec::new();
    for finding in findings {
        if config.validation.error_on_misplaced_kernels {
            faults.push(Error::failed(finding).hint(
                "on that shard's GPUs the program would not find its kernels, or run others: build \
                 the file from the same sources, linked in the same order, for all GPUs; or set \
                 validation.error_on_misplaced_kernels to false to package it as it is",
            ));
        } else {
            report.warnings.push(Warning::new(finding));
        }
    }
    Errors::check((), faults)
}

/// The artifact of that target, from all its parts; there is at least one.
fn merged(
    target: &str,
    parts: &[&Part],
    config: &PackagingConfig,
    report: &mut Report,
) -> Result<ArtifactTree> {
    let name = parts[0].artifact.name.with_target(target);
    let mut merge = Merge::new(name, &config.validation);
    for part in parts {
        merge.add(part)?;
    }
    merge.finish(report)
}

fn is_archive(path: &TreePath) -> bool {
    path.file_name().ends_with(b".kpack")
}

fn owner(name: &ArtifactName) -> Result<Owner, Error> {
    if name.is_generic() {
        return Ok(Owner::Generic);
    }
    if let Some(family) = Family::parse(&name.target) {
        return Ok(Owner::Family(family));
    }
    name.target.parse().map(Owner::Isa).map_err(|e| {
        Error::failed(format!("the target `{}` is neither `generic` nor an ISA", name.target))
            .because(e)
            .hint("recombine takes what `gfxpack split` wrote: split the shard first")
    })
}

/// What several groups share: target to the groups and the parts.
type Shared<'a, 'c> = BTreeMap<String, (Vec<&'c str>, Vec<&'a Part<'a>>)>;

/// Gives the files for a family to the one group that has ISAs of it; returns those that several
/// groups would own.
fn place_families<'a, 'c>(
    component: &str,
    families: Vec<(Family, &'a Part<'a>)>,
    config: &'c PackagingConfig,
    groups: &mut BTreeMap<&'c str, Vec<&'a Part<'a>>>,
    report: &mut Report,
) -> Shared<'a, 'c> {
    let mut shared = Shared::new();
    for (family, part) in families {
        match config.groups_with(component, &family).as_slice() {
            [] => report.warnings.push(Warning::of(
                family.to_string(),
                "no architecture group has an ISA of these families, so that files are left out: {}",
                format!(
                    "{}: no architecture group has an ISA of {family}: its files are left out",
                    part.label()
                ),
            )),
            [one] => groups.entry(one).or_default().push(part),
            several => {
                let owned = || (several.to_vec(), Vec::new());
                shared.entry(shared_target(&family)).or_insert_with(owned).1.push(part);
            }
        }
    }
    shared
}

fn tell_shared(artifact: &ArtifactTree, groups: &[&str], report: &mut Report) {
    let files = artifact.tree.iter().filter(|(_, entry)| !entry.is_dir());
    let files: Vec<String> = files.map(|(path, _)| path.to_string()).collect();
    report.notes.push(format!(
        "{}: {} that the groups {} share: {}",
        artifact.name,
        compare::count(files.len(), "file"),
        groups.join(", "),
        compare::some(&files)
    ));
    report.shared.push(SharedArtifact {
        name: artifact.name.to_string(),
        groups: groups.iter().map(ToString::to_string).collect(),
        files,
    });
}
