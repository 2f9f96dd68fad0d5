//! The generic artifact of a component: the primary shard's, held against those of the others.

use globset::GlobSet;

use super::merge::{Merge, Part};
use super::{DifferingFile, GenericDifference, Report, Warning, compare, sections};
use crate::artifact::{ArtifactTree, GENERIC, Shard};
use crate::config::PackagingConfig;
use crate::error::{Error, Errors, Result};
use crate::tree::TreePath;

/// Sections that a warning names of a file; the report has all.
const SECTIONS: usize = 3;

/// The generic artifact: the primary shard's, and on request what only other shards have. `parts` are
/// the shards' generic artifacts, `has_code` says whether a shard has device code of the component,
/// and the first of the `shards` is the primary one.
pub(super) fn tree(
    component: &str,
    parts: &[&Part],
    has_code: impl Fn(&Shard) -> bool,
    shards: &[&Shard],
    config: &PackagingConfig,
    report: &mut Report,
) -> Result<Option<ArtifactTree>> {
    let Some(first) = parts.first() else { return Ok(None) };
    let is_primary = |part: &Part| part.shard.name == config.primary_shard;
    let primary = parts.iter().find(|part| is_primary(part));
    if primary.is_none() && !config.generic_union {
        return Err(Error::failed(format!(
            "{component}: the primary shard {} has no generic artifact, but {} has",
            config.primary_shard,
            first.label()
        ))
        .hint("name a primary shard that has it, or set \"generic_union\": true to take it from another")
        .into());
    }
    let mut merge = Merge::generic(first.artifact.name.with_target(GENERIC));
    if let Some(primary) = primary {
        merge.add(primary)?;
    }
    let mut findings = Vec::new();
    for other in parts.iter().filter(|part| !is_primary(part)) {
        let found = compare_with(other, primary.map(|part| part.artifact), &merge, config)?;
        let extra: Vec<TreePath> = found.extra;
        let allowed = &found.told.allowed;
        if !allowed.is_empty() {
            report.notes.push(format!(
                "{}: {} as allowed: {}",
                other.label(),
                match allowed.len() {
                    1 => "1 difference".to_owned(),
                    n => format!("{n} differences"),
                },
                compare::some(allowed)
            ));
        }
        if !found.told.extra.is_empty() {
            let finding = format!(
                "{}: {} that the primary shard does not have",
                other.label(),
                compare::count(found.told.extra.len(), "generic file")
            );
            if config.generic_union {
                let some = compare::some(&found.told.extra);
                report.notes.push(format!("{finding}: {some} (taken)"));
            } else {
                findings.push((finding, found.told.extra.clone(), " (left out)"));
            }
        }
        if config.generic_union {
            merge.add_only(other, &extra)?;
        }
        let differing = found.told.missing.iter().map(|path| format!("{path} is missing"));
        let mut differing: Vec<String> = differing.collect();
        // An error ends the run, and has to say all.
        let strict = config.validation.verify_generic_artifacts_match;
        let sections = if strict { usize::MAX } else { SECTIONS };
        differing.extend(found.told.differing.iter().map(|file| file.told(sections)));
        if !differing.is_empty() {
            let finding = format!(
                "{}: {} from the primary shard's",
                other.label(),
                match differing.len() {
                    1 => "1 generic file differs".to_owned(),
                    n => format!("{n} generic files differ"),
                }
            );
            findings.push((finding, differing, ""));
        }
        if !found.told.is_empty() {
            report.generic_differences.push(found.told);
        }
    }
    for shard in shards.iter().filter(|shard| has_code(shard)) {
        if !parts.iter().any(|part| part.shard.name == shard.name) {
            let artifact = format!("{}/{component}_{GENERIC}", shard.name);
            let finding = format!("{artifact} is not there, but device code of {component} is");
            findings.push((finding, Vec::new(), ""));
        }
    }
    let mut faults = Vec::new();
    for (finding, files, what_then) in findings {
        // An error ends the run and leaves no other report: it names all files.
        let strict = config.validation.verify_generic_artifacts_match;
        let files = match files.as_slice() {
            [] => String::new(),
            _ if strict => format!(": {}", files.join(", ")),
            _ => format!(": {}", compare::some(&files)),
        };
        let finding = format!("{finding}{files}{what_then}");
        if strict {
            faults.push(Error::failed(finding).hint(
                "the builds differ beyond their GPU targets: allow what they cannot avoid by \
                 validation.allowed_generic_differences, or make this a warning by \
                 validation.verify_generic_artifacts_match",
            ));
        } else {
            report.warnings.push(Warning::new(finding));
        }
    }
    Errors::check((), faults)?;
    merge.finish(report).map(Some)
}

struct Found {
    told: GenericDifference,
    /// All that only this shard has, also what is allowed.
    extra: Vec<TreePath>,
}

/// Compares a shard's generic artifact with what is there so far.
fn compare_with(
    other: &Part,
    primary: Option<&ArtifactTree>,
    merge: &Merge,
    config: &PackagingConfig,
) -> Result<Found> {
    let allowed = config.validation.allowed_differences();
    let difference = compare::trees(merge.tree(), &other.artifact.tree)?;
    let mut told = GenericDifference {
        artifact: other.label(),
        missing: Vec::new(),
        extra: Vec::new(),
        differing: Vec::new(),
        allowed: Vec::new(),
    };
    for path in &difference.only_first {
        // What was taken from a third shard is no more missing here than in the primary one.
        if primary.is_some_and(|primary| primary.tree.get(path).is_none()) {
            continue;
        }
        match is_allowed(&allowed, path, "") {
            true => told.allowed.push(format!("{path} is missing")),
            false => told.missing.push(path.to_string()),
        }
    }
    for path in &difference.only_other {
        match is_allowed(&allowed, path, "") {
            true => told.allowed.push(format!("{path} is only here")),
            false => told.extra.push(path.to_string()),
        }
    }
    for path in &difference.content {
        let differs = match compare::contents(merge.tree(), &other.artifact.tree, path) {
            Some((first, other)) => sections::differing(first, other)
                .map_err(|e| Error::io("cannot compare", path.as_path(), e))?,
            None => None,
        };
        // A file is allowed to differ as a whole, or in some of its sections.
        let sections = differs.unwrap_or_default();
        if sections.is_empty() || is_allowed(&allowed, path, "") {
            match is_allowed(&allowed, path, "") {
                true => told.allowed.push(format!("{path} differs")),
                false => told.differs(path, Vec::new(), None),
            }
            continue;
        }
        let (ignored, sections): (Vec<_>, Vec<_>) =
            sections.into_iter().partition(|section| is_allowed(&allowed, path, section));
        if !ignored.is_empty() {
            told.allowed.push(format!("{path} differs in {}", ignored.join(" ")));
        }
        if !sections.is_empty() {
            told.differs(path, sections, None);
        }
    }
    for (path, here, there) in &difference.modes {
        match is_allowed(&allowed, path, "") {
            true => told.allowed.push(format!("{path} has another mode")),
            false => told.differs(path, Vec::new(), Some(format!("{there:04o}, not {here:04o}"))),
        }
    }
    told.differing.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Found { told, extra: difference.only_other })
}

fn is_allowed(allowed: &GlobSet, path: &TreePath, section: &str) -> bool {
    match section {
        "" => allowed.is_match(path.to_string()),
        section => allowed.is_match(format!("{path}#{section}")),
    }
}

impl GenericDifference {
    fn differs(&mut self, path: &TreePath, sections: Vec<String>, mode: Option<String>) {
        self.differing.push(DifferingFile { path: path.to_string(), sections, mode });
    }

    fn is_empty(&self) -> bool {
        self.missing.is_empty()
            && self.extra.is_empty()
            && self.differing.is_empty()
            && self.allowed.is_empty()
    }
}

impl DifferingFile {
    /// In words, with at most so many sections.
    fn told(&self, sections: usize) -> String {
        let mut text = self.path.clone();
        if !self.sections.is_empty() {
            let shown = &self.sections[..sections.min(self.sections.len())];
            let more = match self.sections.len() - shown.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            text += &format!(" (in {}{more})", shown.join(" "));
        }
        if let Some(mode) = &self.mode {
            text += &format!(" (mode {mode})");
        }
        text
    }
}
