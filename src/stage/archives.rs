//! Giving kpack archives to the packages whose binaries use them, and their manifests to the generic
//! package, where one manifest can speak of all groups' archives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Report;
use super::lay::{Staged, lay, tree_of};
use super::names;
use crate::artifact::ArtifactTree;
use crate::config::PackagingConfig;
use crate::error::Error;
use crate::kpack::kpm::Kpm;
use crate::kpack::reader::Archive as KpackReader;
use crate::tree::{Entry, EntryKind, KpmPlan, Source, TreePath};

/// An archive or a manifest of some.
pub(super) struct Archive<'a> {
    pub artifact: &'a ArtifactTree,
    pub prefix: &'a TreePath,
    pub path: &'a TreePath,
    /// The path below the prefix: where it is installed.
    pub below: TreePath,
    pub entry: &'a Entry,
}

/// Whether this is an archive, or a manifest of some, in a folder of such.
pub(super) fn is_archive(path: &TreePath) -> bool {
    let name = path.file_name();
    let in_folder = path.parent().is_some_and(|dir| dir.file_name() == b".kpack");
    in_folder && (name.ends_with(b".kpack") || is_manifest(path))
}

fn is_manifest(path: &TreePath) -> bool {
    path.file_name().ends_with(b".kpm")
}

/// Lays the archives into the trees of their packages. `takes` says whether a definition takes a path
/// of an artifact. Returns the faults.
pub(super) fn place(
    pending: &[Archive],
    artifacts: &[ArtifactTree],
    staged: &mut [Staged],
    takes: impl Fn(usize, &ArtifactTree, &TreePath) -> bool,
    groups: &PackagingConfig,
    root: &TreePath,
    report: &mut Report,
) -> Vec<Error> {
    let mut faults = Vec::new();
    // Which definition an archive went to, by artifact prefix and file name.
    let mut owner_of: BTreeMap<(String, Vec<u8>), usize> = BTreeMap::new();
    // Definitions that share archives: the first archive, who uses it, and how many there are.
    let mut shared: BTreeMap<Vec<usize>, (String, String, usize)> = BTreeMap::new();
    for archive in pending.iter().filter(|archive| !is_manifest(archive.path)) {
        let label = format!("{}/{}", archive.artifact.name, archive.path);
        let binaries = match binaries(archive.entry) {
            Ok(binaries) => binaries,
            Err(e) => {
                faults.push(Error::failed(format!("{label} cannot be read")).because(e));
                continue;
            }
        };
        let generic = artifacts
            .iter()
            .find(|a| a.name.prefix() == archive.artifact.name.prefix() && a.name.is_generic());
        let mut owners: BTreeMap<usize, &str> = BTreeMap::new();
        for binary in &binaries {
            let Ok(path) = TreePath::new(binary) else { continue };
            let artifact = generic.unwrap_or(archive.artifact);
            for definition in (0..staged.len()).filter(|&d| takes(d, artifact, &path)) {
                owners.entry(definition).or_insert(binary);
            }
        }
        match owners.keys().copied().collect::<Vec<_>>().as_slice() {
            [] => report.unclaimed.push(label),
            [owner] => {
                let key = (archive.artifact.name.prefix(), archive.path.file_name().to_vec());
                owner_of.insert(key, *owner);
                let tree = tree_of(&mut staged[*owner], archive.artifact, groups);
                let Archive { artifact, prefix, below, entry, .. } = archive;
                faults.extend(lay(tree, artifact, prefix, root, below, entry).err());
            }
            several => {
                let uses: Vec<_> = owners
                    .iter()
                    .map(|(&d, binary)| {
                        let name = names::own(&staged[d].definition.name, staged[d].kind);
                        format!("{name} (for {binary})")
                    })
                    .collect();
                shared.entry(several.to_vec()).or_insert((label, uses.join(", "), 0)).2 += 1;
            }
        }
    }
    for (label, uses, count) in shared.into_values() {
        let what = match count {
            1 => format!("{label} has kernels"),
            _ => format!("{label} and {} more archives have kernels", count - 1),
        };
        faults.push(Error::failed(format!("{what} of several packages: {uses}")).hint(
            "an archive can be in one package only: split again with `--kpack-scope prefix` \
             (or `binary`), or use `gfxpack build`, which does so by itself",
        ));
    }
    if faults.is_empty() {
        faults.extend(manifests(pending, &owner_of, staged, root, report));
    }
    faults
}

/// The binaries whose kernels an archive has, as its TOC names them: prefix and path.
fn binaries(entry: &Entry) -> Result<BTreeSet<String>, Box<dyn std::error::Error + Send + Sync>> {
    match entry.source() {
        Some(Source::Kpack(plan)) => Ok(plan.kernels().iter().map(|k| k.name.clone()).collect()),
        Some(Source::File(input)) => {
            let file = input.open()?;
            let archive = KpackReader::open(&file)?;
            Ok(archive.entries().iter().map(|entry| entry.binary.clone()).collect())
        }
        _ => Err("not a file of its own".into()),
    }
}

/// Joins the manifests of one name over all groups and lays them into the generic packages.
fn manifests(
    pending: &[Archive],
    owner_of: &BTreeMap<(String, Vec<u8>), usize>,
    staged: &mut [Staged],
    root: &TreePath,
    report: &mut Report,
) -> Vec<Error> {
    let mut faults = Vec::new();
    let mut joined: BTreeMap<(usize, TreePath), Vec<&Archive>> = BTreeMap::new();
    for manifest in pending.iter().filter(|archive| is_manifest(archive.path)) {
        let label = format!("{}/{}", manifest.artifact.name, manifest.path);
        let files = match files(manifest.entry) {
            Ok(files) => files,
            Err(e) => {
                faults.push(Error::failed(format!("{label} cannot be read")).because(e));
                continue;
            }
        };
        let component = manifest.artifact.name.prefix();
        let owner = files
            .iter()
            .find_map(|file| owner_of.get(&(component.clone(), file.clone().into_bytes())));
        match owner {
            Some(&owner) => {
                joined.entry((owner, manifest.below.clone())).or_default().push(manifest);
            }
            None => report.unclaimed.push(label),
        }
    }
    for ((owner, below), parts) in joined {
        let first = parts[0];
        match join(&parts) {
            Ok(source) => {
                let entry = Entry { kind: EntryKind::File(source), ..first.entry.clone() };
                let tree = &mut staged[owner].generic;
                let artifact = first.artifact;
                faults.extend(lay(tree, artifact, first.prefix, root, &below, &entry).err());
            }
            Err(e) => faults.push(
                Error::failed(format!("the manifests {below} of {} cannot be joined", parts.len()))
                    .because(e),
            ),
        }
    }
    faults
}

/// The names of the archives that a manifest lists.
fn files(entry: &Entry) -> Result<Vec<String>, Box<dyn std::error::Error + Send + Sync>> {
    match entry.source() {
        Some(Source::Kpm(plan)) => {
            Ok(plan.archives.values().map(|(file, _)| file.clone()).collect())
        }
        Some(source) => {
            let kpm = Kpm::read(source.open()?)?;
            Ok(kpm.kpack_files.into_values().map(|file| file.file).collect())
        }
        None => Err("not a file".into()),
    }
}

fn join(parts: &[&Archive]) -> Result<Source, Box<dyn std::error::Error + Send + Sync>> {
    let sources: Vec<&Source> = parts.iter().filter_map(|part| part.entry.source()).collect();
    if let Some(Source::Kpm(first)) = sources.first() {
        let mut plan: KpmPlan = (**first).clone();
        for source in &sources {
            if let Source::Kpm(other) = source {
                plan.archives.extend(other.archives.clone());
            }
        }
        return Ok(Source::Kpm(Arc::new(plan)));
    }
    let read = |source: &&Source| -> Result<Kpm, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Kpm::read(source.open()?)?)
    };
    let kpms = sources.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(Source::bytes(Kpm::merge(kpms)?.to_bytes()?))
}
