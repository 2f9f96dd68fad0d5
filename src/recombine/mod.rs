//! Recombining: from the split artifacts of all shards to one generic artifact and one artifact for
//! each architecture group, a component at a time.
//!
//! The generic tree comes from the primary shard; a group's tree has every file of each member ISA,
//! from whichever shard has it. Where two shards have the same path, the contents must be the same.

mod compare;
mod merge;
mod sections;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::artifact::{ArtifactName, ArtifactTree, Shard};
use crate::config::PackagingConfig;
use crate::error::{Error, Errors, Result};
use crate::target::{Family, TargetId};
use merge::{Merge, Part};

/// What recombining found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The artifacts made.
    pub artifacts: Vec<MadeArtifact>,
    /// What is not as it should be and was not asked to be an error.
    pub warnings: Vec<String>,
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
    let Some(primary) = shards.iter().find(|shard| shard.name == config.primary_shard) else {
        let there: Vec<_> = shards.iter().map(|shard| shard.name.as_str()).collect();
        return Err(Error::usage(format!("there is no shard `{}`", config.primary_shard))
            .hint(format!("primary_shard must be one of: {}", there.join(", ")))
            .into());
    };
    // The primary shard comes first, so that where two have the same file its is taken.
    let others = shards.iter().filter(|shard| shard.name != primary.name);
    let ordered: Vec<&Shard> = std::iter::once(primary).chain(others).collect();

    let mut components: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    for shard in &ordered {
        for artifact in &shard.artifacts {
            components.entry(artifact.name.prefix()).or_default().push(Part { shard, artifact });
        }
    }
    let mut made = Vec::new();
    let mut report = Report::default();
    let mut faults = Vec::new();
    for (component, parts) in &components {
        match recombine_component(component, parts, primary, config, &mut report) {
            Ok(artifacts) => made.extend(artifacts),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    Errors::check((made, report), faults)
}

fn recombine_component(
    component: &str,
    parts: &[Part],
    primary: &Shard,
    config: &PackagingConfig,
    report: &mut Report,
) -> Result<Vec<ArtifactTree>> {
    let mut generic = Vec::new();
    let mut groups: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
    let mut families = Vec::new();
    let mut isas = BTreeSet::new();
    let mut faults = Vec::new();
    for part in parts {
        match owner(&part.artifact.name) {
            Ok(Owner::Generic) => generic.push(part),
            Ok(Owner::Family(family)) => families.push((family, part)),
            Ok(Owner::Isa(isa)) => {
                match config.group_of(component, &isa) {
                    Some(group) => groups.entry(group).or_default().push(part),
                    None => report.warnings.push(format!(
                        "{}: {isa} is in no architecture group: its files are left out",
                        part.label()
                    )),
                }
                isas.insert(isa);
            }
            Err(e) => faults.push(e.at(&part.artifact.origin)),
        }
    }
    Errors::check((), std::mem::take(&mut faults))?;
    let shared = place_families(component, families, config, &mut groups, report);
    missing(component, &isas, config, report)?;

    let mut made = Vec::new();
    let strict = &config.validation;
    match generic_tree(component, &generic, &shared, primary, config, report) {
        Ok(artifact) => made.extend(artifact),
        Err(e) => faults.extend(e.into_vec()),
    }
    for (group, parts) in &groups {
        let name = parts[0].artifact.name.with_target(*group);
        let mut merge = Merge::new(name, strict.error_on_duplicate_device_code);
        for part in parts {
            merge.add(part)?;
        }
        match merge.finish(report) {
            Ok(artifact) => made.push(artifact),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    Errors::check(made, faults)
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

/// Gives the files for a family to the one group that has members of it; those that several groups
/// would own go with the generic files, since no path may be in two packages.
fn place_families<'a, 'c>(
    component: &str,
    families: Vec<(Family, &'a Part<'a>)>,
    config: &'c PackagingConfig,
    groups: &mut BTreeMap<&'c str, Vec<&'a Part<'a>>>,
    report: &mut Report,
) -> Vec<&'a Part<'a>> {
    let mut shared = Vec::new();
    for (family, part) in families {
        let owners: BTreeSet<&str> =
            family.members().filter_map(|isa| config.group_of(component, &isa)).collect();
        match Vec::from_iter(owners).as_slice() {
            [] => report.warnings.push(format!(
                "{}: no architecture group has an ISA of {family}: its files are left out",
                part.label()
            )),
            [one] => groups.entry(one).or_default().push(part),
            several => {
                report.notes.push(format!(
                    "{}: the files for {family} belong to the groups {}: they go with the generic ones",
                    part.label(),
                    several.join(", ")
                ));
                shared.push(part);
            }
        }
    }
    shared
}

/// Looks for ISAs of groups that a component with device code has none for.
fn missing(
    component: &str,
    isas: &BTreeSet<TargetId>,
    config: &PackagingConfig,
    report: &mut Report,
) -> Result<()> {
    if isas.is_empty() {
        return Ok(());
    }
    let mut faults = Vec::new();
    for (name, group) in config.groups_of(component) {
        let missing: Vec<&str> = group
            .architectures
            .iter()
            .filter(|wanted| {
                // A processor is there where one of its feature variants is.
                !isas.iter().any(|isa| isa.to_string() == **wanted || isa.processor() == **wanted)
            })
            .map(String::as_str)
            .collect();
        if missing.is_empty() {
            continue;
        }
        let finding = format!("{component}: group {name} has no code for {}", missing.join(", "));
        if config.validation.error_on_missing_architecture {
            faults.push(Error::failed(finding).hint(
                "add a shard that has it, or set validation.error_on_missing_architecture to false",
            ));
        } else {
            report.warnings.push(finding);
        }
    }
    Errors::check((), faults)
}

/// The generic artifact: the primary shard's, with what families share, and on request what only
/// other shards have.
fn generic_tree(
    component: &str,
    generic: &[&Part],
    shared: &[&Part],
    primary: &Shard,
    config: &PackagingConfig,
    report: &mut Report,
) -> Result<Option<ArtifactTree>> {
    let from_primary = generic.iter().find(|part| part.shard.name == primary.name);
    let mut merge = match (from_primary, generic.first().or(shared.first())) {
        (Some(part), _) => {
            let mut merge = Merge::new(part.artifact.name.clone(), true);
            merge.add(part)?;
            merge
        }
        (None, None) => return Ok(None),
        (None, Some(other)) if config.generic_union || generic.is_empty() => {
            Merge::new(other.artifact.name.with_target(crate::artifact::GENERIC), true)
        }
        (None, Some(other)) => {
            return Err(Error::failed(format!(
                "{component}: the primary shard {} has no generic artifact, but {} has",
                primary.name,
                other.label()
            ))
            .hint("name a primary shard that has it, or set \"generic_union\": true to take it from another")
            .into());
        }
    };
    for part in shared {
        merge.add(part)?;
    }
    let mut faults = Vec::new();
    for other in generic.iter().filter(|part| part.shard.name != primary.name) {
        let difference = compare::trees(merge.tree(), &other.artifact.tree)?;
        if !difference.only_other.is_empty() {
            report.warnings.push(format!(
                "{}: {} that the primary shard does not have: {}{}",
                other.label(),
                compare::count(difference.only_other.len(), "generic file"),
                compare::some(&difference.only_other),
                if config.generic_union { " (taken)" } else { " (left out)" },
            ));
            if config.generic_union {
                merge.add_only(other, &difference.only_other)?;
            }
        }
        let allowed = config.validation.allowed_differences();
        let mut findings = Vec::new();
        for path in &difference.only_first {
            findings.push(format!("{path} is missing"));
        }
        for path in &difference.content {
            let differs = match compare::contents(merge.tree(), &other.artifact.tree, path) {
                Some((first, other)) => sections::differing(first, other)
                    .map_err(|e| Error::io("cannot compare", path.as_path(), e))?,
                None => None,
            };
            // A file is allowed to differ as a whole, or in some of its sections.
            let sections = match differs {
                None => Vec::from([String::new()]),
                Some(sections) => sections.iter().map(|section| format!("#{section}")).collect(),
            };
            let (ignored, told): (Vec<_>, Vec<_>) = sections.into_iter().partition(|section| {
                allowed.is_match(path.to_string()) || allowed.is_match(format!("{path}{section}"))
            });
            if !ignored.is_empty() {
                report.notes.push(format!(
                    "{}: {path} differs as allowed {}",
                    other.label(),
                    ignored.join(" ")
                ));
            }
            if !told.is_empty() {
                let sections: Vec<_> = told.iter().filter_map(|s| s.strip_prefix('#')).collect();
                findings.push(if sections.is_empty() {
                    path.to_string()
                } else {
                    format!("{path} (in {})", sections.join(" "))
                });
            }
        }
        if findings.is_empty() {
            continue;
        }
        let finding = format!(
            "{}: {} from the primary shard's: {}",
            other.label(),
            match findings.len() {
                1 => "1 generic file differs".to_owned(),
                n => format!("{n} generic files differ"),
            },
            compare::some(&findings)
        );
        if config.validation.verify_generic_artifacts_match {
            faults.push(Error::failed(finding).hint(
                "the builds differ beyond their GPU targets: allow what they cannot avoid by \
                 validation.allowed_generic_differences, or make this a warning by \
                 validation.verify_generic_artifacts_match",
            ));
        } else {
            report.warnings.push(finding);
        }
    }
    Errors::check((), faults)?;
    merge.finish(report).map(Some)
}
