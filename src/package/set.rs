//! Writing a set of packages into one directory.
//!
//! Each package is a step, and so is what fills the spools of several (`package::spool`); `package::schedule` says which
//! step needs which, and which is the most urgent. Manifests of archives stand in generic packages, which need the groups'
//! archives built, and do not wait for anything else.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::compress::Compression;
use super::render::{Templates, hex};
use super::schedule::{Node, schedule};
use super::share::{Bound, Share};
use super::spec::Package;
use super::spool::{Spooled, Wants};
use super::{Format, Options, cached, file_name, sign, together, write};
use crate::error::{Error, Errors, Result};
use crate::jobs::{Budget, Jobs};
use crate::progress::Monitor;
use crate::sign::Signer;

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
    /// Bytes that may wait on disk for packages because they come out of archives of the input, kpacks counted as before
    /// compression. With more, an archive is passed over less often; once is enough where all that packages take from it, and
    /// from others that they take from, is not more than this. Where it is left out, as much as the package has that takes
    /// most. A single package may have more. Does not change the bytes.
    pub spool: Option<u64>,
    /// Who signs `.rpm` packages.
    pub signer: Option<Arc<Signer>>,
    /// Whether each file is read once more, for its own SHA-256. It is where there is a cache.
    pub digests: bool,
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
    /// SHA-256 of the file, in hex, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
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
    let packages = &*found.missing;
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

    let formats = options.formats.len();
    let (wants, items) = Wants::new(packages, formats as u64);
    let largest = items.iter().map(|item| item.bytes).max().unwrap_or(0);
    let room = options.spool.unwrap_or(largest);
    let schedule = schedule(&items, room);
    let room = Budget::new(room);
    let share = bound.share(packages.len())?;
    let works: Vec<u64> = items.iter().map(|item| item.work).collect();
    let threads = share.threads(&works, jobs.threads());
    monitor.begin("writing packages", works.iter().sum());
    // `None` once it is known that the package will not be written.
    let spooled: Vec<Mutex<Option<Spooled>>> =
        packages.iter().map(|_| Mutex::new(Some(Spooled::default()))).collect();
    let locked = |package: usize| spooled[package].lock().unwrap_or_else(PoisonError::into_inner);
    let drive = |step: usize, release: &dyn Fn()| -> Result<_> {
        match &schedule.nodes[step] {
            Node::Spool(batch) => {
                let bytes = batch.iter().map(|&package| items[package].bytes).sum();
                let mut permit = room.wait(bytes);
                let filled = wants.spool(batch, packages, &spool, jobs, monitor)?;
                for (&package, mut filled) in batch.iter().zip(filled) {
                    filled.room = Some(permit.split(items[package].bytes));
                    if let Some(place) = &mut *locked(package) {
                        *place = filled;
                    }
                }
                Ok(Vec::new())
            }
            Node::Write(number) => {
                let package = &packages[*number];
                monitor.at(package.name.as_str());
                let mut spooled = locked(*number).take().unwrap_or_default();
                let name = package.name.as_str();
                wants.by_itself(*number, name, &mut spooled, &spool, jobs, monitor)?;
                release();
                monitor.foresee(Wants::unforeseen(package).saturating_mul(formats as i64));
                let share = Share { threads: threads[*number], ..share };
                let package = spooled.substitute(package);
                let files = one(&package, options, out, &spool, share, jobs, monitor)?;
                drop(package);
                spooled.remove()?;
                cached::keep(&found, &packages[*number], options, &files, out, jobs);
                Ok(files)
            }
        }
    };
    // The room that its spools take is what others wait for.
    let lost = |step: usize| {
        if let Node::Write(package) = schedule.nodes[step] {
            *locked(package) = None;
        }
    };
    let done = jobs.graph(share.at_once, &schedule.needs, drive, lost);
    monitor.end();
    // In the order of the packages, so that faults are told in one order, too.
    let mut done: Vec<_> = schedule.nodes.iter().zip(done).collect();
    done.sort_by_key(|(node, _)| match node {
        Node::Spool(batch) => (batch.iter().min().copied(), false),
        Node::Write(package) => (Some(*package), true),
    });
    let mut faults = Vec::new();
    for (_, result) in done {
        match result {
            Some(Ok(files)) => written.extend(files),
            Some(Err(e)) => faults.extend(e.into_vec()),
            // What it needed failed.
            None => {}
        }
    }
    Errors::check((), faults)?;
    fs::remove_dir(&spool).map_err(|e| Error::io("cannot remove", &spool, e))?;
    written.sort_by(|a: &PackageFile, b| a.file.cmp(&b.file));
    Ok(written)
}

/// Writes a package in all formats.
fn one(
    package: &Package,
    options: &SetOptions,
    out: &Path,
    spool: &Path,
    share: Share,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<PackageFile>> {
    let mut files = Vec::new();
    for (format, compression) in &options.formats {
        let name = file_name(package, *format);
        let path = out.join(&name);
        let how = Options {
            compression: *compression,
            threads: share.threads,
            read_ahead: share.read_ahead,
            spool_dir: spool.to_owned(),
            digest: options.digests || jobs.cache().is_some(),
            signer: options.signer.clone(),
        };
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|e| Error::io("cannot make", &path, e))?;
        files.push(Writing { format: *format, how, name, path, file });
    }
    let templates = &options.templates;
    let reports = match files.as_mut_slice() {
        [deb, rpm] if share.together && (deb.format, rpm.format) == (Format::Deb, Format::Rpm) => {
            let (of_deb, of_rpm) = ((&deb.how, &mut deb.file), (&rpm.how, &mut rpm.file));
            together::write(package, templates, of_deb, of_rpm, jobs, monitor)?.into()
        }
        files => files
            .iter_mut()
            .map(|Writing { format, how, file, .. }| {
                let _core = jobs.core();
                write(package, *format, templates, how, file, monitor)
            })
            .collect::<Result<Vec<_>>>()?,
    };
    let mut written = Vec::new();
    for (Writing { format, name, path, mut file, .. }, report) in files.into_iter().zip(reports) {
        let signature = match &options.signer {
            Some(signer) if options.sign_debs && format == Format::Deb => {
                Some(sign::beside(&mut file, &path, signer, package.date)?)
            }
            _ => None,
        };
        written.push(PackageFile {
            package: package.name.to_string(),
            file: name,
            size: report.size,
            installed_size: report.installed_size,
            sha256: report.sha256.map(|sha256| hex(&sha256)),
            signature,
        });
    }
    Ok(written)
}

/// A file that is being written.
struct Writing {
    format: Format,
    how: Options,
    name: String,
    path: PathBuf,
    file: File,
}
