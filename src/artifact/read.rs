//! Reading artifacts and shards. Of directories only names and `lstat` data are read, of archives what
//! planning will need.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::{ArtifactName, ArtifactTree, MANIFEST, Shard};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::tarball::decode::Format;
use crate::tree::{TreePath, read as tree_read};

/// A manifest of a build has some dozens of lines; one over this size is not one.
const MANIFEST_MAX: u64 = 1 << 20;

/// Reads a manifest's text: one prefix a line, blank lines ignored. Every line that leaves the tree,
/// is absolute, or stands there twice is a fault.
pub fn parse_manifest(text: &[u8], path: &Path) -> Result<Vec<TreePath>> {
    let mut prefixes = Vec::new();
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for (number, line) in text.split(|&b| b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii();
        if line.is_empty() {
            continue;
        }
        let at = |e: Error| e.at(path);
        match TreePath::new(line) {
            Err(e) => faults.push(at(Error::failed(format!("line {}: {e}", number + 1)).hint(
                "a manifest lists the artifact's prefixes, as math-libs/BLAS/rocBLAS/stage",
            ))),
            Ok(prefix) if !seen.insert(prefix.clone()) => {
                faults.push(at(Error::failed(format!(
                    "line {}: the prefix `{prefix}` is listed twice",
                    number + 1
                ))
                .hint("remove one of the two lines")));
            }
            Ok(prefix) => prefixes.push(prefix),
        }
    }
    Errors::check(prefixes, faults)
}

/// What the artifact in a file of this name is called, where it is an archive: what stands before
/// `.tar.zst`, `.tar.xz` or `.tar.gz`.
pub fn archive_stem(file_name: &str) -> Option<&str> {
    Format::of_name(file_name).map(|(stem, _)| stem)
}

/// Reads the artifact in the directory or archive `dir` under the given name.
pub fn read_artifact(dir: &Path, name: ArtifactName) -> Result<ArtifactTree> {
    artifact(dir, name, false)
}

fn artifact(dir: &Path, name: ArtifactName, digests: bool) -> Result<ArtifactTree> {
    let mut tree = match dir.is_file() {
        true => tree_read::archive(dir, digests)?,
        false => tree_read::directory(dir)?,
    };
    let manifest_name = TreePath::new(MANIFEST).expect("a plain name");
    let manifest_path = dir.join(MANIFEST);
    let Some(manifest) = tree.remove(&manifest_name) else {
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
/// that begin with a dot are passed over.
pub fn read_artifacts(parent: &Path, jobs: &Jobs) -> Result<Vec<ArtifactTree>> {
    artifacts(parent, jobs, false)
}

fn artifacts(parent: &Path, jobs: &Jobs, digests: bool) -> Result<Vec<ArtifactTree>> {
    let mut faults = Vec::new();
    let mut found: BTreeMap<String, (PathBuf, ArtifactName)> = BTreeMap::new();
    for file_name in artifact_names(parent)? {
        let path = parent.join(&file_name);
        let called = file_name.to_string_lossy();
        let called = archive_stem(&called).filter(|_| !path.is_dir()).unwrap_or(&called);
        match ArtifactName::parse(called) {
            Err(e) => faults.push(
                Error::failed("is not called like an artifact").at(path).because(e).hint(
                    "rename it, or move it out of the shard: what is no artifact cannot be packaged",
                ),
            ),
            Ok(name) => match found.get(called) {
                Some((other, _)) => faults.push(
                    Error::failed(format!("is the artifact {called}, as is {}", other.display()))
                        .at(path)
                        .hint("leave one of them out: an artifact is a directory or one archive"),
                ),
                None => {
                    found.insert(called.to_owned(), (path, name));
                }
            },
        }
    }
    let found: Vec<_> = found.into_values().collect();
    let read = jobs.drive(&found, |(path, name)| artifact(path, name.clone(), digests));
    let mut artifacts = Vec::new();
    for read in read {
        match read {
            Ok(artifact) => artifacts.push(artifact),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    if artifacts.is_empty() && faults.is_empty() {
        faults.push(Error::failed("has no artifact in it").at(parent).hint(
            "expected directories called artifact_component_target, as blas_lib_gfx110X-dgpu, or \
             archives, as blas_lib_gfx110X-dgpu.tar.zst",
        ));
    }
    Errors::check(artifacts, faults)
}

/// Reads the artifacts in the directory `dir` as a shard; see [`read_shards`].
pub fn read_shard(dir: &Path, jobs: &Jobs) -> Result<Shard> {
    let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
    Ok(Shard { name, artifacts: artifacts(dir, jobs, true)? })
}

/// Reads all shards in the directory `parent`, sorted by name. Of what is in archives, the digests
/// are known, so that shards can be compared.
pub fn read_shards(parent: &Path, jobs: &Jobs) -> Result<Vec<Shard>> {
    let mut shards = Vec::new();
    let mut faults = Vec::new();
    let directories = names(parent, Path::is_dir)?;
    let is_artifact = |name: &OsString| ArtifactName::parse(&name.to_string_lossy()).is_ok();
    if directories.iter().any(is_artifact) {
        return Err(Error::usage("is a shard, not a directory of shards: it has artifacts in it")
            .at(parent)
            .hint("name the directory that the shards are in")
            .into());
    }
    for name in directories {
        match read_shard(&parent.join(&name), jobs) {
            Ok(shard) => shards.push(shard),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    if shards.is_empty() && faults.is_empty() {
        faults.push(
            Error::failed("has no shard in it")
                .at(parent)
                .hint("expected a directory for each build job, with its artifacts in it"),
        );
    }
    Errors::check(shards, faults)
}

/// The names of the directories and archives in `parent`, sorted; hidden ones are left out.
fn artifact_names(parent: &Path) -> Result<Vec<OsString>> {
    names(parent, |path| {
        let archive = path.file_name().and_then(|name| archive_stem(name.to_str()?));
        path.is_dir() || archive.is_some() && path.is_file()
    })
}

/// The names in `parent` that are wanted, sorted; hidden ones are left out.
fn names(parent: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<OsString>> {
    let listed = fs::read_dir(parent).and_then(|listing| {
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry?;
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            // A link to a directory counts: shards are often laid together by links.
            if !hidden && wanted(&entry.path()) {
                names.push(entry.file_name());
            }
        }
        Ok(names)
    });
    let mut names = listed.map_err(|e| Error::io("cannot read the directory", parent, e))?;
    names.sort();
    Ok(names)
}
