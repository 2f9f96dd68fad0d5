//! Writing a set of packages into one directory.
//!
//! A package's kpack archives are built into a spool first, since a package states the length of a
//! file before its bytes; both formats then read them from there, and they are removed when the
//! package is done. Manifests of archives stand in generic packages, which come after the groups'.
//!
//! What a package takes out of archives of the input (`.tar.zst`) is needed in the order of the package,
//! and an archive is a stream: so it is spooled, too, in a file without a name that is as large as those
//! files of one package, by one pass over each archive.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::compress::Compression;
use super::render::Templates;
use super::share::{Bound, Share};
use super::spec::{Kind, Package};
use super::{Format, Options, cached, file_name, sign, write};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::progress::Monitor;
use crate::sign::Signer;
use crate::tree::{
    ArchiveFile, Destination, EntryKind, Gather, InputFile, KpackPlan, Source, TreePath, build,
    by_archive,
};

/// How a set is written.
#[derive(Debug)]
pub struct SetOptions {
    /// The formats, each with its compression.
    pub formats: Vec<(Format, Compression)>,
    /// The texts of control files.
    pub templates: Templates,
    /// The memory that the run may take, in bytes: fewer packages are written at once, with fewer threads, until
    /// all fits. Where it is left out, all threads are used. Does not change the bytes.
    pub memory: Option<u64>,
    /// Who signs `.rpm` packages.
    pub signer: Option<Arc<Signer>>,
    /// Whether the signer also signs each `.deb`, in a file beside it (see [`super::sign`]).
    pub sign_debs: bool,
}

/// One file written.
#[derive(Debug, Clone, Serialize)]
pub struct PackageFile {
    /// The package's name as people write it.
    pub package: String,
    /// The file's name.
    pub file: String,
    /// Its size in bytes.
    pub size: u64,
    /// What it takes once installed, in bytes.
    pub installed_size: u64,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
    /// The name of the file with its signature, where that is a file of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// Writes each package in each format into the directory `out`. Returns the files, sorted by name. All
/// faults are reported; nothing is written where a package's texts are not valid.
pub fn write_set(
    packages: &[Package],
    options: &SetOptions,
    out: &Path,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<PackageFile>> {
    let mut faults = Vec::new();
    for package in packages {
        for (format, _) in &options.formats {
            faults.extend(package.check(*format).err().into_iter().flat_map(Errors::into_vec));
        }
    }
    Errors::check((), faults)?;
    let mut found = cached::take(packages, options, out, jobs, monitor)?;
    let mut written = std::mem::take(&mut found.files);
    let packages = found.missing.as_slice();
    let compressions: Vec<Compression> = options.formats.iter().map(|(_, how)| *how).collect();
    let bound = Bound {
        memory: options.memory,
        in_flight: jobs.in_flight(),
        entries: packages.iter().map(|package| package.tree.len()).sum(),
        threads: jobs.threads(),
        compressions: &compressions,
    };
    bound.share(1)?;
    let spool = out.join(".spool");
    fs::create_dir(&spool).map_err(|e| Error::io("cannot make", &spool, e))?;

    let (mut first, mut then): (Vec<&Package>, Vec<&Package>) =
        packages.iter().partition(|package| matches!(package.kind, Kind::Group { .. }));
    let formats = options.formats.len() as u64;
    let total = packages.iter().map(|package| work(package) * formats + spooling(package)).sum();
    monitor.begin("writing packages", total);
    let mut faults = Vec::new();
    for batch in [&mut first, &mut then] {
        batch.sort_by_key(|package| Reverse(work(package)));
        let share = bound.share(batch.len())?;
        for done in jobs.drive_at_most(share.at_once, batch, |package| -> Result<_> {
            monitor.at(&package.name);
            let files = one(package, options, out, &spool, share, jobs, monitor)?;
            cached::keep(&found, package, options, &files, out, jobs);
            Ok(files)
        }) {
            match done {
                Ok(files) => written.extend(files),
                Err(e) => faults.extend(e.into_vec()),
            }
        }
        if !faults.is_empty() {
            break;
        }
    }
    monitor.end();
    Errors::check((), faults)?;
    fs::remove_dir(&spool).map_err(|e| Error::io("cannot remove", &spool, e))?;
    written.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(written)
}

fn work(package: &Package) -> u64 {
    package.tree.iter().filter_map(|(_, entry)| entry.source()).map(Source::work).sum()
}

/// Bytes that are read once more, because they are spooled.
fn spooling(package: &Package) -> u64 {
    let sources = package.tree.iter().filter_map(|(_, entry)| entry.source());
    let spooled = sources.filter(|source| source.archive().is_some());
    spooled.filter(|source| !matches!(source, Source::Kpack(_))).map(Source::work).sum()
}

fn one(
    package: &Package,
    options: &SetOptions,
    out: &Path,
    spool: &Path,
    share: Share,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<PackageFile>> {
    let (spooled, package) = Spooled::build(package, spool, jobs, monitor)?;
    let package = &package;
    let mut files = Vec::new();
    for (format, compression) in &options.formats {
        let name = file_name(package, *format);
        let path = out.join(&name);
        let how = Options {
            compression: *compression,
            threads: share.threads,
            read_ahead: share.read_ahead,
            spool_dir: spool.to_owned(),
            signer: options.signer.clone(),
        };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| Error::io("cannot make", &path, e))?;
        let report = write(package, *format, &options.templates, &how, &mut file, monitor)?;
        let signature = match &options.signer {
            Some(signer) if options.sign_debs && *format == Format::Deb => {
                Some(sign::beside(&mut file, &path, signer, package.date)?)
            }
            _ => None,
        };
        files.push(PackageFile {
            package: package.name.clone(),
            file: name,
            size: report.size,
            installed_size: report.installed_size,
            sha256: report.sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
            signature,
        });
    }
    spooled.remove()?;
    Ok(files)
}

/// The archives of one package, on disk while it is written.
struct Spooled(Vec<PathBuf>);

impl Spooled {
    /// Makes the package's archives, and gives the package with all that it takes out of archives of
    /// the input in the spool instead.
    fn build<'p>(
        package: &'p Package,
        spool: &Path,
        jobs: &Jobs,
        monitor: &dyn Monitor,
    ) -> Result<(Self, Cow<'p, Package>), Error> {
        let sources =
            || package.tree.iter().filter_map(|(path, entry)| Some((entry.source()?, path)));
        // A manifest states the sizes of archives of group packages that are perhaps not written.
        let unbuilt: Vec<(Source, &TreePath)> = sources()
            .filter_map(|(source, path)| match source {
                Source::Kpm(kpm) => {
                    Some(kpm.unbuilt().map(move |plan| (Source::Kpack(plan), path)))
                }
                _ => None,
            })
            .flatten()
            .collect();
        let unbuilt = unbuilt.iter().map(|(source, path)| (source, *path));
        let found = by_archive(sources().chain(unbuilt));
        let mut paths = Vec::new();
        let mut make = |plan| -> Result<(&KpackPlan, File, PathBuf), Error> {
            let path = spool.join(format!("{}.{}.kpack", package.name, paths.len()));
            let file = File::create_new(&path).map_err(|e| Error::io("cannot make", &path, e))?;
            paths.push(path.clone());
            Ok((plan, file, path))
        };
        let mut sets: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (source, _) in found.others {
            if let Source::Kpack(plan) = source {
                sets.entry(plan.set()).or_default().push(make(plan)?);
            }
        }
        for set in sets.values() {
            build::kpacks(&of_set(set), jobs, monitor)?;
        }
        let mut substituted = Cow::Borrowed(package);
        for (archive, sources) in found.archives {
            let mut files = Vec::new();
            let mut sets: BTreeMap<&str, Vec<_>> = BTreeMap::new();
            for (source, path) in sources {
                match source {
                    Source::Kpack(plan) => {
                        sets.entry(plan.set()).or_default().push(make(plan)?);
                    }
                    source => files.push((source, path)),
                }
            }
            let sets: Vec<_> = sets.values().map(|set| of_set(set)).collect();
            substitute(&mut substituted, &archive, &files, sets, spool, jobs, monitor)?;
        }
        Ok((Self(paths), substituted))
    }

    fn remove(self) -> Result<(), Error> {
        for path in &self.0 {
            fs::remove_file(path).map_err(|e| Error::io("cannot remove", path, e))?;
        }
        Ok(())
    }
}

fn of_set<'s>(
    set: &'s [(&'s KpackPlan, File, PathBuf)],
) -> Vec<(&'s KpackPlan, &'s File, &'s Path)> {
    set.iter().map(|(plan, file, path)| (*plan, file, path.as_path())).collect()
}

/// Passes over an archive of the input: builds the `sets`, and spools the `files`, which the package
/// then has from there.
fn substitute(
    package: &mut Cow<'_, Package>,
    archive: &ArchiveFile,
    files: &[(&Source, &TreePath)],
    sets: Vec<Vec<(&KpackPlan, &File, &Path)>>,
    spool: &Path,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<(), Error> {
    let file =
        tempfile::tempfile_in(spool).map_err(|e| Error::io("cannot make a file in", spool, e))?;
    let file = Arc::new(file);
    let mut gather = Gather::default();
    let mut places = Vec::new();
    let mut at = 0;
    for (source, path) in files {
        let len = source.len().unwrap_or_default();
        gather.file(source, Destination::At(spool, &file, at));
        places.push(((*path).clone(), at, len));
        at += len;
    }
    sets.into_iter().for_each(|set| gather.kpacks(set));
    gather.run(archive, jobs, monitor)?;
    let tree = &mut package.to_mut().tree;
    for (path, offset, len) in places {
        let Some(mut entry) = tree.remove(&path) else { continue };
        let shown = archive.path().join(path.as_path());
        let input = InputFile::spooled(shown, Arc::clone(&file), offset, len);
        entry.kind = EntryKind::File(Source::File(Arc::new(input)));
        tree.insert(path, entry).expect("the path was taken out");
    }
    Ok(())
}
