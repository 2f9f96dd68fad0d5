//! Discovering: which ISAs the files of artifacts, shards or libraries have code for, and how much.
//!
//! A path is told apart by looking: a file, an artifact (it has a manifest), a directory of artifacts
//! (a shard, or what splitting and recombining write), a folder of those, or any other directory. An
//! archive that is called like an artifact is one. In it, device code stands in fat binaries, kpack archives, bundles and bare code objects, and in the
//! files of kernel databases. Only headers and tables are read.

mod draft;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::artifact::{
    ArtifactName, ArtifactTree, MANIFEST, archive_stem, passed_over, passed_over_in_shards,
    read_artifact, read_artifacts, read_shards,
};
use crate::database::Databases;
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::progress::Monitor;
use crate::tree::{self, TreePath};

pub use draft::{Draft, draft_config, write_config};

/// What a path was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathKind {
    /// One file.
    File,
    /// A directory with a manifest, or an archive called like an artifact.
    Artifact,
    /// A directory of artifacts: a shard, or what splitting or recombining wrote.
    Artifacts,
    /// A directory of shards.
    Shards,
    /// A directory that is none of these, such as an installed tree.
    Directory,
}

/// How much there is for one ISA.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Content {
    /// Code objects in fat binaries, archives, bundles and files of their own; one that is stored
    /// once counts once.
    pub code_objects: u64,
    /// Their bytes before compression.
    pub code_bytes: u64,
    /// Files and links of kernel databases.
    pub database_files: u64,
    /// Their bytes.
    pub database_bytes: u64,
}

impl Content {
    fn add(&mut self, other: Self) {
        self.code_objects += other.code_objects;
        self.code_bytes = self.code_bytes.saturating_add(other.code_bytes);
        self.database_files += other.database_files;
        self.database_bytes = self.database_bytes.saturating_add(other.database_bytes);
    }
}

/// One place where code for an ISA was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The ISA, or the family of ISAs as a database names it (`gfx11xx`).
    pub isa: String,
    /// The shard, where a folder of shards was looked at.
    pub shard: Option<String>,
    /// The artifact, where it is in one.
    pub artifact: Option<String>,
    /// The file below the artifact or path; of a database, the folder.
    pub file: String,
    /// `fat binary`, `kpack`, `bundle`, `code object`, or `database NAME`.
    pub holder: String,
    /// How much.
    #[serde(flatten)]
    pub content: Content,
}

/// What one path holds.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    /// The path as it was given.
    pub path: PathBuf,
    /// What it was taken for.
    pub kind: PathKind,
    /// The names of its shards, sorted; of a directory of artifacts, its own.
    pub shards: Vec<String>,
    /// How many artifacts it has.
    pub artifacts: usize,
    /// How many files and links.
    pub files: u64,
    /// By ISA.
    pub isas: BTreeMap<String, Content>,
    /// Each place, in the order of the files.
    pub found: Vec<Found>,
    /// What looks as if it might have device code that cannot be told.
    pub notes: Vec<String>,
    /// What beside the artifacts or shards was not looked at, sorted, relative to the path.
    pub passed_over: Vec<String>,
    /// What of the artifacts splitting leaves generic, by artifact prefix (as `blas_lib`) and shard.
    #[serde(skip)]
    pub generic: BTreeMap<String, BTreeMap<String, BTreeSet<TreePath>>>,
}

/// What all paths hold.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// In the order they were given.
    pub paths: Vec<PathReport>,
    /// By ISA, over all paths.
    pub total: BTreeMap<String, Content>,
}

/// Looks through `paths`. All faults in them are reported; nothing is written.
/// `monitor` is told how far archives have been read.
pub fn discover(
    paths: &[PathBuf],
    databases: &Databases,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let mut reports = Vec::new();
    let mut faults = Vec::new();
    for path in paths {
        match one(path, databases, jobs, monitor) {
            Ok(report) => reports.push(report),
            Err(errors) => faults.extend(errors.into_vec()),
        }
    }
    let mut total: BTreeMap<String, Content> = BTreeMap::new();
    for (isa, content) in reports.iter().flat_map(|report| &report.isas) {
        total.entry(isa.clone()).or_default().add(*content);
    }
    Errors::check(Report { paths: reports, total }, faults)
}

/// A tree to look through, and how it is called.
struct Root {
    shard: Option<String>,
    artifact: Option<String>,
    tree: ArtifactTree,
}

fn one(
    path: &Path,
    databases: &Databases,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<PathReport> {
    let kind = look(path)?;
    let mut roots = Vec::new();
    let mut shards = Vec::new();
    let mut passed = Vec::new();
    let mut add = |shard: Option<&str>, artifact: ArtifactTree| {
        let name = Some(artifact.name.to_string());
        roots.push(Root { shard: shard.map(str::to_owned), artifact: name, tree: artifact });
    };
    match kind {
        PathKind::File => return scan::file(path),
        PathKind::Artifact => {
            let called = own_name(path);
            let called = archive_stem(&called).map(str::to_owned).unwrap_or(called);
            // A name that is none is no fault here: nothing depends on it.
            let name = ArtifactName::parse(&called).ok();
            let artifact = read_artifact(path, name.clone().unwrap_or_else(unnamed), monitor)?;
            let artifact_name = name.map_or(called, |name| name.to_string());
            roots.push(Root { shard: None, artifact: Some(artifact_name), tree: artifact });
            let parent = path.canonicalize().ok().and_then(|path| path.parent().map(own_name));
            shards.extend(parent.filter(|name| !name.is_empty()));
        }
        PathKind::Artifacts => {
            let artifacts = read_artifacts(path, jobs, monitor)?;
            artifacts.into_iter().for_each(|artifact| add(None, artifact));
            passed = passed_over(path)?;
            shards.push(own_name(path));
        }
        PathKind::Shards => {
            passed = passed_over_in_shards(path)?;
            for shard in read_shards(path, jobs, monitor)? {
                shard.artifacts.into_iter().for_each(|a| add(Some(&shard.name), a));
                shards.push(shard.name);
            }
        }
        PathKind::Directory => {
            let mut tree = ArtifactTree::new(unnamed());
            tree.tree = tree::read::directory(path)?;
            roots.push(Root { shard: None, artifact: None, tree });
        }
    }
    let mut report = scan::roots(path, kind, shards, &roots, databases, jobs)?;
    report.passed_over = passed.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    Ok(report)
}

/// A stand-in where no artifact's name is known; it is never shown.
fn unnamed() -> ArtifactName {
    let [artifact, component, target] = ["unnamed", "lib", "unnamed"].map(str::to_owned);
    ArtifactName { artifact, component, target }
}

/// What a directory is called, also where it is given as `.`.
fn own_name(path: &Path) -> String {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Tells what a path is.
fn look(path: &Path) -> Result<PathKind, Error> {
    let meta = fs::metadata(path).map_err(|e| Error::io("cannot read", path, e))?;
    if is_artifact(path) {
        return Ok(PathKind::Artifact);
    }
    if meta.is_file() {
        return Ok(PathKind::File);
    }
    if !meta.is_dir() {
        return Err(
            Error::failed("is a device, socket or pipe (expected a file or directory)").at(path)
        );
    }
    let below = children(path).map_err(|e| Error::io("cannot read the directory", path, e))?;
    if below.iter().any(|dir| is_artifact(dir)) {
        return Ok(PathKind::Artifacts);
    }
    // What cannot be read two levels down is reported when it is read.
    let two_below = below.iter().flat_map(|dir| children(dir).unwrap_or_default());
    for dir in two_below {
        if is_artifact(&dir) {
            return Ok(PathKind::Shards);
        }
    }
    Ok(PathKind::Directory)
}

fn is_artifact(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| archive_stem(name.to_str()?));
    let called = name.is_some_and(|name| ArtifactName::parse(name).is_ok());
    path.join(MANIFEST).is_file() || called && path.is_file()
}

/// The directories and archives in a directory.
fn children(parent: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        if path.is_dir() || is_artifact(&path) {
            found.push(path);
        }
    }
    Ok(found)
}
