//! Reading artifacts and shards. Of directories only names and `lstat` data are read, of archives what
//! planning will need.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::folder::{Folder, dangling};
use super::{ArtifactName, ArtifactTree, MANIFEST, MANIFEST_MAX, Shard, parse_manifest};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::progress::Monitor;
use crate::tarball::decode::Format;
use crate::tree::{TreePath, read as tree_read};

/// What the artifact in a file of this name is called, where it is an archive: what stands before
/// `.tar.zst`, `.tar.xz` or `.tar.gz`.
pub fn archive_stem(file_name: &str) -> Option<&str> {
    Format::of_name(file_name).map(|(stem, _)| stem)
}

/// Reads the artifact in the directory or archive `dir` under the given name.
pub fn read_artifact(
    dir: &Path,
    name: ArtifactName,
    monitor: &dyn Monitor,
) -> Result<ArtifactTree> {
    let phase = Phase::begin([dir], monitor);
    let read = artifact(dir, name, false, monitor);
    phase.end();
    read
}

/// The progress of reading archives. Of directories there is none to tell: only names are read.
struct Phase<'a>(Option<&'a dyn Monitor>);

impl<'a> Phase<'a> {
    fn begin<'p>(paths: impl IntoIterator<Item = &'p Path>, monitor: &'a dyn Monitor) -> Self {
        let sizes = paths.into_iter().filter_map(|path| path.metadata().ok());
        let bytes: u64 = sizes.filter(|meta| meta.is_file()).map(|meta| meta.len()).sum();
        if bytes == 0 {
            return Self(None);
        }
        monitor.begin("reading archives", bytes);
        Self(Some(monitor))
    }

    fn end(self) {
        if let Some(monitor) = self.0 {
            monitor.end();
        }
    }
}

fn artifact(
    dir: &Path,
    name: ArtifactName,
    digests: bool,
    monitor: &dyn Monitor,
) -> Result<ArtifactTree> {
    let mut tree = match dir.is_file() {
        true => {
            monitor.at(&dir.display().to_string());
            tree_read::archive(dir, digests, monitor)?
        }
        false => tree_read::directory(dir)?,
    };
    let manifest_name = TreePath::new(MANIFEST).expect("a plain name");
    let manifest_path = dir.join(MANIFEST);
    let Some(manifest) = tree.remove(&manifest_name) else {
        // The directory itself was packed, or lies in one of its name.
        let mut inside = tree.iter().map(|(path, _)| path);
        if let Some(inside) = inside.find(|path| path.file_name() == MANIFEST.as_bytes())
            && let Some(folder) = inside.parent().filter(|folder| folder.parent().is_none())
        {
            let hint = match dir.is_file() {
                true => format!(
                    "pack what is in the directory, not the directory: tar -C {folder} -c ."
                ),
                false => {
                    format!("name {} one level further in", dir.join(folder.as_path()).display())
                }
            };
            return Err(Error::failed(format!("has the artifact one level further in ({inside})"))
                .at(dir)
                .hint(hint)
                .into());
        }
        return Err(Error::failed(format!("has no {MANIFEST}"))
            .at(dir)
            .hint("an artifact lists its prefixes there, one a line; without it nothing says how to install it")
            .into());
    };
    let source = manifest.source().filter(|source| source.len().is_some_and(|n| n <= MANIFEST_MAX));
    let Some(source) = source else {
        return Err(Error::failed("is no manifest (expected a text file of up to 1 MiB)")
            .at(manifest_path)
            .into());
    };
    let mut text = Vec::new();
    source.copy_to(&mut text).map_err(|e| Error::io("cannot read", &manifest_path, e))?;
    let prefixes = parse_manifest(&text, &manifest_path)?;
    let artifact = ArtifactTree { name, prefixes, tree, origin: dir.to_owned() };
    let mut faults: Vec<Error> = artifact
        .prefixes
        .iter()
        .filter(|prefix| artifact.tree.get(prefix).is_some_and(|entry| !entry.is_dir()))
        .map(|prefix| {
            Error::failed(format!("the prefix `{prefix}` is a file or link"))
                .at(&manifest_path)
                .hint("a prefix is a directory, whose content an install lays over one root")
        })
        .collect();
    let stray = artifact
        .tree
        .iter()
        .filter(|(path, entry)| !entry.is_dir() && artifact.prefix_of(path).is_none())
        .map(|(path, _)| {
            Error::failed(format!("lies under no prefix that {MANIFEST} lists"))
                .at(dir.join(path.as_path()))
                .hint(
                    "add its prefix to the manifest, or remove the file: it would be in no package",
                )
        });
    faults.extend(stray);
    Errors::check(artifact, faults)
}

/// Reads all artifacts in the directory `parent`, directories and archives, sorted by name. One that
/// is not called like an artifact is a fault: leaving it out would lose files. Other files and names
/// that begin with a dot are passed over ([`super::passed_over`]).
pub fn read_artifacts(
    parent: &Path,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<ArtifactTree>> {
    all(read_each(parent, jobs, monitor)?)
}

/// Reads the artifacts in `parent` as [`read_artifacts`] does, each for itself: its name, and the
/// artifact or its faults. Fails as a whole where the directory cannot be read or has none in it.
pub fn read_each(
    parent: &Path,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<(String, Result<ArtifactTree>)>> {
    let found = Found::look(parent)?;
    let phase = Phase::begin(found.paths(), monitor);
    let read = found.read(false, jobs, monitor);
    phase.end();
    Ok(read)
}

/// What an artifact is called, and how reading it went.
type Outcome = (String, Result<ArtifactTree>);

/// All of the artifacts, or all of their faults.
fn all(read: Vec<Outcome>) -> Result<Vec<ArtifactTree>> {
    let mut artifacts = Vec::new();
    let mut faults = Vec::new();
    for (_, read) in read {
        match read {
            Ok(artifact) => artifacts.push(artifact),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    Errors::check(artifacts, faults)
}

/// What artifacts there are in a directory, by what they are called.
#[derive(Default)]
struct Found {
    artifacts: BTreeMap<String, (PathBuf, ArtifactName)>,
    /// Those that cannot be read.
    faults: BTreeMap<String, Vec<Error>>,
}

impl Found {
    fn look(parent: &Path) -> Result<Self> {
        let mut found = Self::default();
        let folder = Folder::of_artifacts(parent)?;
        for file_name in folder.dangling {
            let called = file_name.to_string_lossy();
            let called = archive_stem(&called).unwrap_or(&called);
            if ArtifactName::parse(called).is_ok() {
                let fault = dangling(&parent.join(&file_name));
                found.faults.entry(called.to_owned()).or_default().push(fault);
            }
        }
        for file_name in folder.wanted {
            let path = parent.join(&file_name);
            let called = file_name.to_string_lossy();
            let called = archive_stem(&called).filter(|_| !path.is_dir()).unwrap_or(&called);
            let fault = match (ArtifactName::parse(called), found.artifacts.get(called)) {
                (Err(e), _) => {
                    Error::failed("is not called like an artifact").at(path).because(e).hint(
                        "rename it, or move it out of the shard: what is no artifact cannot be \
                         packaged; where this is itself a shard, name the folder one level further in",
                    )
                }
                (Ok(_), Some((other, _))) => {
                    Error::failed(format!("is the artifact {called}, as is {}", other.display()))
                        .at(path)
                        .hint("leave one of them out: an artifact is a directory or one archive")
                }
                (Ok(name), None) => {
                    found.artifacts.insert(called.to_owned(), (path, name));
                    continue;
                }
            };
            found.faults.entry(called.to_owned()).or_default().push(fault);
        }
        found.artifacts.retain(|called, _| !found.faults.contains_key(called));
        if found.artifacts.is_empty() && found.faults.is_empty() {
            return Err(Error::failed("has no artifact in it")
                .at(parent)
                .hint(
                    "expected directories called artifact_component_target, as \
                     blas_lib_gfx110X-dgpu, or archives, as blas_lib_gfx110X-dgpu.tar.zst",
                )
                .into());
        }
        Ok(found)
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.artifacts.values().map(|(path, _)| path.as_path())
    }

    fn read(self, digests: bool, jobs: &Jobs, monitor: &dyn Monitor) -> Vec<Outcome> {
        let artifacts: Vec<_> = self.artifacts.into_iter().collect();
        let read = jobs
            .drive(&artifacts, |(_, (path, name))| artifact(path, name.clone(), digests, monitor));
        let called = artifacts.into_iter().map(|(called, _)| called);
        let mut outcomes: Vec<Outcome> = called.zip(read).collect();
        let failed = self.faults.into_iter();
        outcomes.extend(failed.filter_map(|(called, faults)| {
            Errors::check((), faults).err().map(|faults| (called, Err(faults)))
        }));
        outcomes.sort_by(|(a, _), (b, _)| a.cmp(b));
        outcomes
    }
}

/// Reads the artifacts in the directory `dir` as a shard; see [`read_shards`].
pub fn read_shard(dir: &Path, jobs: &Jobs, monitor: &dyn Monitor) -> Result<Shard> {
    let found = Found::look(dir)?;
    let phase = Phase::begin(found.paths(), monitor);
    let artifacts = all(found.read(true, jobs, monitor));
    phase.end();
    Ok(Shard { name: shard_name(dir), artifacts: artifacts? })
}

fn shard_name(dir: &Path) -> String {
    dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned()
}

/// The names of the shards in the directory `parent`, sorted. A link that leads to nothing is a fault: it
/// stands for a shard.
pub fn shard_names(parent: &Path) -> Result<Vec<String>> {
    let directories = shard_directories(parent)?;
    Ok(directories.iter().map(|name| name.to_string_lossy().into_owned()).collect())
}

fn shard_directories(parent: &Path) -> Result<Vec<OsString>> {
    let folder = Folder::of_shards(parent)?;
    let faults = folder.dangling.iter().map(|name| dangling(&parent.join(name))).collect();
    let is_artifact = |name: &OsString| ArtifactName::parse(&name.to_string_lossy()).is_ok();
    if folder.wanted.iter().any(is_artifact) {
        return Err(Error::usage("is a shard, not a directory of shards: it has artifacts in it")
            .at(parent)
            .hint("name the directory that the shards are in")
            .into());
    }
    Errors::check(folder.wanted, faults)
}

/// Reads all shards in the directory `parent`, sorted by name. Of what is in archives, the digests
/// are known, so that shards can be compared. What is no directory or begins with a dot is passed over
/// ([`super::passed_over_in_shards`]).
pub fn read_shards(parent: &Path, jobs: &Jobs, monitor: &dyn Monitor) -> Result<Vec<Shard>> {
    let directories = shard_directories(parent)?;
    let found: Vec<(PathBuf, Result<Found>)> = directories
        .iter()
        .map(|name| parent.join(name))
        .map(|dir| (dir.clone(), Found::look(&dir)))
        .collect();
    let mut shards = Vec::new();
    let mut faults = Vec::new();
    let paths = found.iter().flat_map(|(_, found)| found.iter().flat_map(Found::paths));
    let phase = Phase::begin(paths, monitor);
    for (dir, found) in found {
        match found.and_then(|found| all(found.read(true, jobs, monitor))) {
            Ok(artifacts) => shards.push(Shard { name: shard_name(&dir), artifacts }),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    phase.end();
    if shards.is_empty() && faults.is_empty() {
        faults.push(
            Error::failed("has no shard in it")
                .at(parent)
                .hint("expected a directory for each build job, with its artifacts in it"),
        );
    }
    Errors::check(shards, faults)
}
