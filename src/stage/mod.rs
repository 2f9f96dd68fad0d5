//! Staging: from regrouped artifacts to packages, as the definitions of a packages file say.
//!
//! A definition with device code gives `{name}-generic` (host code), `{name}-{group}` for each group
//! that has code for it, and `{name}`, which holds nothing and leads to the rest. One without gives
//! `{name}` alone. What groups share for a family of ISAs gives `{name}-{family}-shared`, which the
//! packages of those groups need. Kinds of files that the definition names (development, documentation,
//! tests, debug symbols) get packages of their own. Files are laid under the install prefix; no path is
//! in two packages.

mod archives;
mod assign;
mod closed;
mod file_names;
mod handover;
mod kinds;
mod lay;
mod linker;
mod names;
mod relate;
mod texts;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::artifact::{ArtifactTree, shared_family};
use crate::config::{PackagesConfig, PackagingConfig};
use crate::error::{Error, Result};
use crate::package::elfdeps;
use crate::package::spec::Package;
use crate::package::version::{Mapped, map};
use crate::target::TargetId;
use crate::tree::TreePath;

/// How packages are made from artifacts.
#[derive(Debug, Clone)]
pub struct Options {
    /// Upstream version, as the build has it: it is written by [`map`].
    pub version: String,
    /// The packaging's number.
    pub release: String,
    /// Where everything is installed, without the leading slash: `opt/rocm`.
    pub install_prefix: TreePath,
    /// `SOURCE_DATE_EPOCH`, where it is set.
    pub source_date: Option<i64>,
    /// Definitions (or packages) to make, where not all.
    pub only: Vec<String>,
    /// How the relations that follow from programs and libraries are found, where they are.
    pub relations: Option<elfdeps::Options>,
}

/// Checks that a directory can be the install prefix: what maintainer scripts, the linker's configuration and spec files say
/// of it is not quoted. Returns what is wrong with it.
pub fn check_install_prefix(prefix: &TreePath) -> Result<(), String> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"+-._@/:~".contains(b);
    match prefix.as_bytes().iter().find(|b| !plain(b)) {
        None => Ok(()),
        Some(b) => Err(format!("it has `{}`", b.escape_ascii())),
    }
}

/// What staging found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The version that was given and the one that packages have, where that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Files that no definition takes, as `artifact/path`.
    pub unclaimed: Vec<String>,
    /// What is worth knowing.
    pub warnings: Vec<String>,
}

/// A version that is written in another way than it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// As it was given: `7.1.0rc1`.
    pub given: String,
    /// As packages have it: `7.1.0~rc1`.
    pub written: String,
}

/// Makes the packages of a set, sorted by name. `artifacts` are what recombining made (or read again
/// from disk). All faults of the plan are reported.
pub fn stage(
    artifacts: &[ArtifactTree],
    groups: &PackagingConfig,
    definitions: &PackagesConfig,
    options: &Options,
) -> Result<(Vec<Package>, Report)> {
    let mut report = Report::default();
    let written = version(&options.version, &mut report);
    let options = &Options { version: written, ..options.clone() };
    check_install_prefix(&options.install_prefix).map_err(|why| {
        Error::usage(format!("`/{}` cannot be the install prefix: {why}", options.install_prefix))
    })?;
    texts::check(definitions, &options.version, &options.release)?;
    let of_no_group: Vec<&ArtifactTree> = artifacts
        .iter()
        .filter(|a| !a.name.is_generic())
        .filter(|a| !groups.groups_of(&a.name.prefix()).contains_key(&a.name.target))
        .filter(|a| !is_shared(a, groups))
        .collect();
    if !of_no_group.is_empty() {
        return Err(not_of_a_group(&of_no_group).into());
    }
    let staged = assign::assign(artifacts, definitions, groups, options, &mut report)?;
    let (mut packages, of) = relate::packages(staged, groups, definitions, options)?;
    linker::add(&mut packages, definitions, options, &mut report);
    closed::check_names(&packages)?;
    if packages.is_empty() {
        return Err(Error::usage("no package has anything in it")
            .hint("compare `contents` of the packages file with the artifacts' names, components and prefixes")
            .into());
    }
    if let Some(relations) = &options.relations {
        report.warnings.extend(elfdeps::relate(&mut packages, &definitions.externals, relations)?);
    }
    closed::check_made_paths(&packages)?;
    file_names::check(&packages)?;
    closed::check(&packages, groups, definitions)?;
    if !options.only.is_empty() {
        packages = relate::only(packages, &options.only, &of)?;
    }
    Ok((packages, report))
}

/// One fault for all artifacts that are of no group: they mostly have one cause. There is at least one.
fn not_of_a_group(artifacts: &[&ArtifactTree]) -> Error {
    let targets: BTreeSet<&str> = artifacts.iter().map(|a| a.name.target.as_str()).collect();
    let isas = targets.iter().all(|target| target.parse::<TargetId>().is_ok());
    let some: Vec<_> = targets.iter().take(3).map(|target| format!("`{target}`")).collect();
    let more = if targets.len() > some.len() { ", …" } else { "" };
    let error = match artifacts {
        [one] => Error::failed(format!(
            "`{}` is neither `generic` nor a group of the configuration, nor shared by some of them",
            one.name.target
        ))
        .at(&one.origin),
        several => Error::failed(format!(
            "{} artifacts are neither `generic` nor of a group of the configuration, nor shared by some of them: they \
             are of {}{more}",
            several.len(),
            some.join(", ")
        ))
        .at(several[0].origin.parent().unwrap_or(&several[0].origin)),
    };
    error.hint(if isas {
        "these are split and not recombined: run `gfxpack recombine` by the same --config, and package what it writes"
    } else {
        "packages are made of what `gfxpack recombine` wrote by the same --config"
    })
}

/// The version that packages have.
fn version(given: &str, report: &mut Report) -> String {
    let Mapped { written, known } = map(given);
    if !known {
        report.warnings.push(format!(
            "version `{given}`: dpkg and rpm may put it in a different order among others; versions as 7.1.0, \
             7.1.0rc1, 7.1.0a20251126, 7.1.0.dev0+gabc123 and 7.1.0-update1 have the same in both"
        ));
    } else if written != given {
        report.version = Some(Version { given: given.to_owned(), written: written.clone() });
    }
    written
}

/// Whether an artifact holds what several groups of the configuration share.
fn is_shared(artifact: &ArtifactTree, groups: &PackagingConfig) -> bool {
    let family = shared_family(&artifact.name.target);
    family.is_some_and(|family| groups.groups_with(&artifact.name.prefix(), &family).len() > 1)
}
