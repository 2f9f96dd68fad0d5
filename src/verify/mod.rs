//! Verifying: whether artifacts that were split or recombined hold what users need.
//!
//! | | what must always hold | checked in |
//! |---|---|---|
//! | 1 | every artifact has a manifest; every file lies under one of its prefixes | `read` |
//! | 2 | no fat binary is left in a generic tree: device code gone, wrappers at one valid marker; host code is whole and has the libraries it needs | `host`, `needed` |
//! | 3 | each tree holds its own ISAs only, by code objects, archives and names alike | `isa`, `kpack` |
//! | 4 | every archive opens, every kernel decompresses to its size and is a code object | `kpack`, `kpm` |
//! | 5 | every kernel is found where the marker says, installed, by the runtime's search | `lookup` |
//! | 6 | no host code in device trees, no archive in generic ones, no path in two | `layout` |
//! | 7 | every kernel and file of the input is in the output, byte for byte | `source` |
//! | 8 | packages are whole, say what they hold, and have what they need in the set; so do repositories | `packages`, `repository` |
//!
//! Nothing stops at the first fault: a damaged file becomes a [`Finding`] and the rest is checked.
//! Each check has an id, listed with cause and mend in [`Check`] and `docs/verify.md`.
//!
//! Files are looked at one by one, in parallel; what several files have to do with each other is
//! checked on the facts that remain. Kernels are streamed, so memory does not depend on their size.

mod converted;
mod file;
mod finding;
mod host;
mod isa;
mod junit;
mod kpack;
mod kpm;
mod layout;
mod lookup;
mod needed;
mod packages;
mod read;
mod repository;
mod source;
mod subject;
mod unchecked;

use std::collections::BTreeMap;
use std::path::Path;

use globset::Glob;
use serde::Serialize;

use crate::artifact::{ArtifactTree, Shard};
use crate::config::PackagingConfig;
use crate::database::{Databases, Owner};
use crate::error::Result;
use crate::jobs::Jobs;
use crate::progress::Monitor;
use crate::tree::{EntryKind, Source, TreePath};

pub use finding::{About, Check, Finding, Severity};
pub use junit::junit;
pub use needed::ExternalNeed;
pub use packages::{PackageOptions, packages};
pub use repository::{ExternalRelation, RepositoryOptions, repository};

use file::{Facts, Task};
use finding::Findings;
use subject::Holds;
use unchecked::Unchecked;

/// How to verify.
pub struct Options<'a> {
    /// The databases whose files go with their ISA: those that the split was made with.
    pub databases: Databases,
    /// Which ISAs are in which group; without it, names and archives tell.
    pub config: Option<&'a PackagingConfig>,
    /// What the artifacts were made from, for invariant 7: the one shard of a split, all shards of
    /// what was recombined.
    pub source: Option<&'a [Shard]>,
    /// Findings that are known and accepted.
    pub allow: Vec<Allow>,
    /// SONAMEs of libraries that may come from elsewhere, beside those of the base system. Where there
    /// is any, they are all: what else is needed and not there is an error.
    pub external: Vec<Glob>,
    /// SONAMEs that come from elsewhere as well, as a packages file says of some: what is neither here nor
    /// there is a warning still.
    pub known_external: Vec<Glob>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            databases: Databases::known(),
            config: None,
            source: None,
            allow: Vec::new(),
            external: Vec::new(),
            known_external: Vec::new(),
        }
    }
}

/// Findings that are known and accepted.
#[derive(Debug, Clone)]
pub struct Allow {
    /// Id of the check.
    pub id: String,
    /// Matches `artifact/path`; `*` matches slashes too.
    pub place: Glob,
    /// Why it is accepted: repeated by the report.
    pub reason: String,
}

/// A finding that was accepted.
#[derive(Debug, Clone, Serialize)]
pub struct Allowed {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// Why it was accepted.
    pub reason: String,
}

/// What verifying found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The artifacts (or package files) that were checked, sorted.
    pub artifacts: Vec<String>,
    /// Files and links in them.
    pub files: u64,
    /// Kernels in their archives; nothing where the content of files is not read, as of repositories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<u64>,
    /// Bytes of their files.
    pub bytes: u64,
    /// Sorted by artifact, file and check.
    pub findings: Vec<Finding>,
    /// Findings that were accepted, in the same order.
    pub allowed: Vec<Allowed>,
    /// Libraries that are needed, that no artifact brings, and that nobody has named as external.
    pub needs: Vec<ExternalNeed>,
    /// Of a repository: what packages need that none of it has or provides, and that nobody has named as external.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relations: Vec<ExternalRelation>,
    /// One line for each invariant that was checked.
    pub summary: Vec<InvariantSummary>,
}

/// The result of one invariant.
#[derive(Debug, Clone, Serialize)]
pub struct InvariantSummary {
    /// Its number.
    pub invariant: u8,
    /// What must hold, in short.
    pub holds: &'static str,
    /// Findings that are errors.
    pub errors: usize,
    /// Findings that are warnings.
    pub warnings: usize,
}

impl Report {
    /// Number of findings that are errors.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// Number of findings that are warnings.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

/// The invariants in short, by number.
const INVARIANTS: [(u8, &str); 8] = [
    (1, "manifests list the prefixes of all files"),
    (2, "host code is whole and without device code"),
    (3, "each tree holds its own ISAs only"),
    (4, "kpacks and kernels are whole"),
    (5, "the runtime finds every kernel"),
    (6, "each file is in the right tree, each path once"),
    (7, "nothing of the input is lost or changed"),
    (8, "packages are whole, and their relations closed"),
];

/// What must hold by the invariant of a number, in short; empty for a number that none has.
pub fn invariant(number: u8) -> &'static str {
    INVARIANTS.iter().find(|(n, _)| *n == number).map_or("", |(_, holds)| holds)
}

/// An artifact with what was found out about its files.
struct Checked<'a> {
    artifact: &'a ArtifactTree,
    label: String,
    holds: Holds<'a>,
    /// The artifacts are those of groups.
    recombined: bool,
    /// It is a package: its paths are those below `/`, and it can have several components in it.
    packaged: bool,
    /// Whose database file or link it is.
    owners: BTreeMap<&'a TreePath, Owner>,
    /// Of every file that can be read; not of links.
    facts: BTreeMap<&'a TreePath, Facts>,
}

/// Verifies the artifacts in a directory. Damage is reported, not returned: this fails only where
/// the directory cannot be read or has no artifact in it.
pub fn directory(
    dir: &Path,
    options: &Options,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let (artifacts, findings) = read::artifacts(dir)?;
    verify(&artifacts, findings, options, jobs, monitor)
}

/// Verifies artifacts that were read from disk (so that their manifests are good already).
pub fn artifacts(
    artifacts: &[ArtifactTree],
    options: &Options,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Report> {
    verify(artifacts, Vec::new(), options, jobs, monitor)
}

fn verify(
    artifacts: &[ArtifactTree],
    mut findings: Vec<Finding>,
    options: &Options,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let recombined = subject::are_recombined(artifacts, options.config);
    let mut checked: Vec<Checked> = artifacts
        .iter()
        .map(|artifact| {
            let files = artifact.tree.iter().filter(|(_, entry)| !entry.is_dir());
            let owners = files.filter_map(|(path, _)| {
                options.databases.owner_in(artifact, path).map(|(_, owner)| (path, owner))
            });
            Checked {
                artifact,
                label: artifact.name.to_string(),
                holds: Holds::of(artifact, options.config, recombined),
                recombined,
                packaged: false,
                owners: owners.collect(),
                facts: BTreeMap::new(),
            }
        })
        .collect();
    let not_split = subject::not_split(&checked);
    if !not_split.is_empty() {
        // All else that would be found of them follows from it.
        findings.retain(|finding| finding.id != Check::ManifestUnused);
        findings.extend(not_split);
        return Ok(report(&checked, (0, Vec::new()), findings, options, &[1, 2]));
    }
    subject::check_groups(&checked, options.config, &mut findings);
    let bytes = look_at_files(&mut checked, options, &mut findings, jobs, monitor);
    isa::check(&checked, &mut findings);
    kpm::check(&checked, &mut findings);
    lookup::check(&checked, &mut findings);
    layout::check(&checked, &mut findings);
    layout::kernels_once(&checked, &mut findings);
    if let Some(shards) = options.source {
        let run = (jobs, monitor);
        source::check(&checked, shards, &options.databases, options.config, run, &mut findings)?;
    }
    let needs = needed::check(&checked, options, None, &mut findings);
    let invariants: &[u8] =
        if options.source.is_some() { &[1, 2, 3, 4, 5, 6, 7] } else { &[1, 2, 3, 4, 5, 6] };
    Ok(report(&checked, (bytes, needs), findings, options, invariants))
}

/// How much more memory bundles may take that wait for their hashes, than other data in flight. Those
/// of real databases have 60 to 80 MiB of code, and eight are hashed together.
const BUNDLES: u64 = 8;

/// Opens every file once and keeps what is found out. Returns the bytes of all files.
fn look_at_files(
    checked: &mut [Checked],
    options: &Options,
    findings: &mut Vec<Finding>,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> u64 {
    let mut files: Vec<(usize, &TreePath, &Source)> = Vec::new();
    for (i, artifact) in checked.iter().enumerate() {
        for (path, entry) in artifact.artifact.tree.iter() {
            if let EntryKind::File(source) = &entry.kind {
                files.push((i, path, source));
            }
        }
    }
    let bytes = |(_, _, source): &(usize, &TreePath, &Source)| source.len().unwrap_or(0);
    files.sort_by_key(|file| std::cmp::Reverse(bytes(file)));
    let total = files.iter().map(bytes).sum();
    monitor.begin("verifying", total);
    let unchecked = Unchecked::new(jobs.in_flight().saturating_mul(BUNDLES));
    let numbered: Vec<_> = files.iter().enumerate().collect();
    let mut looked = jobs.drive(&numbered, |&(number, &(i, path, source))| {
        let artifact = &checked[i];
        monitor.at(&artifact.label);
        let file = path.to_string();
        let mut found = Findings::new(&artifact.label, &file);
        let task = Task {
            path,
            holds: &artifact.holds,
            owner: artifact.owners.get(path),
            debug: artifact.artifact.name.component == "dbg",
            hash: options.source.is_some(),
            unchecked: Some((number, &unchecked)),
        };
        let facts = file::look(source, &task, &mut found);
        monitor.advance(source.len().unwrap_or(0));
        (facts, found.list)
    });
    for (number, e) in unchecked.finish() {
        let (i, path, _) = files[number];
        let file = path.to_string();
        // Damage explains whatever else was found in it.
        let mut found = Findings::new(&checked[i].label, &file);
        isa::damaged_bundle(&e, &mut found);
        looked[number].1 = found.list;
    }
    monitor.end();
    for (&(i, path, _), (facts, found)) in files.iter().zip(looked) {
        findings.extend(found);
        if let Some(facts) = facts {
            checked[i].facts.insert(path, facts);
        }
    }
    total
}

fn report(
    checked: &[Checked],
    (bytes, needs): (u64, Vec<ExternalNeed>),
    findings: Vec<Finding>,
    options: &Options,
    invariants: &[u8],
) -> Report {
    let kernels =
        checked.iter().flat_map(|artifact| artifact.facts.values()).map(|facts| match facts {
            Facts::Kpack(Some(kpack)) => kpack.kernels.len() as u64,
            _ => 0,
        });
    let files = checked.iter().flat_map(|artifact| artifact.artifact.tree.iter());
    Report {
        artifacts: checked.iter().map(|artifact| artifact.label.clone()).collect(),
        files: files.filter(|(_, entry)| !entry.is_dir()).count() as u64,
        kernels: Some(kernels.sum()),
        bytes,
        needs,
        ..judged(findings, options, invariants)
    }
}

/// What was found, without what was accepted, and the sums.
fn judged(mut findings: Vec<Finding>, options: &Options, invariants: &[u8]) -> Report {
    findings.sort();
    findings.dedup();
    let matchers: Vec<_> =
        options.allow.iter().map(|allow| (allow, allow.place.compile_matcher())).collect();
    let mut allowed = Vec::new();
    findings.retain(|finding| {
        let by = matchers
            .iter()
            .find(|(allow, place)| allow.id == finding.id.id() && place.is_match(finding.place()));
        if let Some((allow, _)) = by {
            allowed.push(Allowed { finding: finding.clone(), reason: allow.reason.clone() });
        }
        by.is_none()
    });
    let summary = INVARIANTS.iter().filter(|(number, _)| invariants.contains(number)).map(
        |&(invariant, holds)| {
            let count = |severity| {
                findings
                    .iter()
                    .filter(|f| f.invariant == invariant && f.severity == severity)
                    .count()
            };
            let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
            InvariantSummary { invariant, holds, errors, warnings }
        },
    );
    Report {
        artifacts: Vec::new(),
        files: 0,
        kernels: None,
        bytes: 0,
        needs: Vec::new(),
        relations: Vec::new(),
        summary: summary.collect(),
        findings,
        allowed,
    }
}
