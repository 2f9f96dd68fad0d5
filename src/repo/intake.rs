//! Bringing package files in: each is copied, digested and read, and waits in `.gfxpack/incoming` until the
//! publication is about to be decided. The input is only read.

use std::collections::HashMap;
use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use super::record::Record;
use super::store::{OWN, Places, Settings, Stored, mtime};
use super::{apt, components, publish, rpm};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::package::{Format, sign};
use crate::progress::Monitor;
use crate::read_at::OpenFile;
use crate::sign::Signer;
use crate::streams;

/// How packages are brought in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Make hard links where that is possible, rather than copies.
    pub link: bool,
    /// Signs `.rpm` packages on their way.
    pub rpm_signer: Option<&'a Signer>,
    /// The SHA-256 that files have to have, where it is known.
    pub known: Option<&'a HashMap<PathBuf, [u8; 32]>>,
    /// Only look: nothing is written to the repository, and what waits stays where it is.
    pub only_look: bool,
}

/// A package that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// What is known of it; its place is where it will be.
    pub stored: Stored,
    /// Where it is.
    pub file: PathBuf,
    /// Where it came from.
    pub source: PathBuf,
}

/// A package file of the input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Input {
    path: PathBuf,
    format: Format,
    size: u64,
}

/// Finds the packages: files by name, and those below directories, sorted. Names that end in neither `.deb` nor
/// `.rpm` are passed over in a directory, and refused where they are given.
fn find(paths: &[PathBuf]) -> Result<Vec<Input>> {
    let mut found = Vec::new();
    let mut dirs = Vec::new();
    let mut faults = Vec::new();
    for path in paths {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => dirs.push(path.clone()),
            Ok(metadata) if !metadata.is_file() => faults.push(irregular(path)),
            Ok(metadata) => match format(path) {
                Some(format) => {
                    found.push(Input { path: path.clone(), format, size: metadata.len() });
                }
                None => faults.push(
                    Error::usage("is neither an .rpm nor a .deb package, by its name").at(path),
                ),
            },
            Err(e) => faults.push(Error::io("cannot read", path, e)),
        }
    }
    for dir in dirs {
        let before = found.len() + faults.len();
        walk(&dir, &mut found, &mut faults)?;
        if found.len() + faults.len() == before {
            faults.push(
                Error::failed("has no packages in it")
                    .at(&dir)
                    .hint("name a directory with .deb or .rpm files in it or below it"),
            );
        }
    }
    found.sort();
    found.dedup();
    Errors::check(found, faults)
}

/// Finds the packages in a directory and below it, but for those of repositories.
fn walk(dir: &Path, found: &mut Vec<Input>, faults: &mut Vec<Error>) -> Result<()> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let cannot = |e| Error::io("cannot read the directory", &dir, e);
        for entry in fs::read_dir(&dir).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let path = entry.path();
            let kind = entry.file_type().map_err(cannot)?;
            if kind.is_dir() {
                // A repository's packages are added by `merge`.
                if entry.file_name() != OWN && !path.join(OWN).is_dir() {
                    dirs.push(path);
                }
            } else if let Some(format) = format(&path) {
                let metadata =
                    fs::metadata(&path).map_err(|e| Error::io("cannot read", &path, e))?;
                if metadata.is_file() {
                    found.push(Input { path, format, size: metadata.len() });
                } else if !metadata.is_dir() {
                    faults.push(irregular(&path));
                }
            }
        }
    }
    Ok(())
}

/// Refuses what lies in the repository itself.
fn apart(places: &Places, paths: &[PathBuf]) -> Result<()> {
    let own = fs::canonicalize(&places.dir).ok();
    let within = paths.iter().filter(|path| {
        let path = fs::canonicalize(path).ok();
        own.as_ref().zip(path).is_some_and(|(own, path)| path.starts_with(own))
    });
    let fault = |path: &PathBuf| {
        Error::usage("lies in the repository that it would be added to")
            .at(path)
            .hint("name packages elsewhere; `gfxpack repo list` shows those that are in it")
    };
    Errors::check((), within.map(fault).collect())
}

/// To open a pipe is to wait for who writes to it.
fn irregular(path: &Path) -> Error {
    Error::usage("is a pipe, a socket or a device, not a file")
        .at(path)
        .hint("write the package to a file, and name that")
}

fn format(path: &Path) -> Option<Format> {
    Format::called(path.extension()?.to_str()?)
}

/// Brings the packages in. All faults are told.
pub(super) fn bring(
    places: &Places,
    settings: &Settings,
    paths: &[PathBuf],
    options: Options<'_>,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<Waiting>> {
    if options.known.is_none() {
        apart(places, paths)?;
    }
    let inputs = find(paths)?;
    let mut incoming = places.incoming();
    // What is only looked at is signed elsewhere, for the digest that it will have.
    let mut elsewhere = None;
    if !options.only_look {
        fs::create_dir_all(&incoming).map_err(|e| Error::output("cannot make", &incoming, e))?;
    } else if options.rpm_signer.is_some() {
        let dir =
            tempfile::tempdir().map_err(|e| Error::output("cannot make", env::temp_dir(), e))?;
        dir.path().clone_into(&mut incoming);
        elsewhere = Some(dir);
    }
    let components = components::Rules::new(settings)?;
    monitor.begin("reading packages", inputs.iter().map(|input| input.size).sum());
    let number = AtomicUsize::new(0);
    let done = jobs.drive(&inputs, |input| {
        monitor.at(&input.path.to_string_lossy());
        let file = incoming.join(number.fetch_add(1, Ordering::Relaxed).to_string());
        let waiting = one(input, file, options, &components);
        monitor.advance(input.size);
        waiting
    });
    monitor.end();
    drop(elsewhere);
    let (mut waiting, mut faults) = (Vec::new(), Vec::new());
    for one in done {
        match one {
            Ok(one) => waiting.push(one),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    Errors::check(waiting, faults)
}

fn one(
    input: &Input,
    file: PathBuf,
    options: Options<'_>,
    components: &components::Rules,
) -> Result<Waiting> {
    let Input { path, format, .. } = input;
    let signer = options.rpm_signer.filter(|_| *format == Format::Rpm);
    let stays = options.only_look && signer.is_none();
    let file = if stays { path.clone() } else { file };
    let mut sha256 =
        if stays { digest(&file)? } else { copy(path, &file, options.link && signer.is_none())? };
    if let Some(known) = options.known.and_then(|known| known.get(path))
        && *known != sha256
    {
        return Err(Error::failed(
            "a package of that repository is not what it was when it was added",
        )
        .at(path)
        .hint("restore the file, or remove the package there: gfxpack repo remove")
        .into());
    }
    if let Some(signer) = signer {
        sign::file(&file, signer, None)?;
        sha256 = digest(&file)?;
    }
    let (open, size, mtime) = open(&file)?;
    let reader = OpenFile::new(open, size);
    let facts = match format {
        Format::Deb => apt::read(&reader),
        Format::Rpm => rpm::read(&reader),
    };
    let facts = facts.map_err(|e| {
        Error::failed(format!("is no usable .{} package", format.as_str()))
            .at(path)
            .because(e)
            .hint("build it again, or leave it out")
    })?;
    let place = match format {
        Format::Deb => {
            let component = components.of(&facts.name);
            apt::pool_path(component, &facts.name, &facts.version, &facts.arch)
        }
        Format::Rpm => rpm::pool_path(&facts.name, &facts.version, &facts.arch),
    };
    if options.only_look && signer.is_some() {
        fs::remove_file(&file).map_err(|e| Error::output("cannot remove", &file, e))?;
    }
    let record = Record {
        name: facts.name,
        version: facts.version,
        arch: facts.arch,
        path: place,
        size,
        sha256,
        built: facts.built,
        part: facts.part,
    };
    Ok(Waiting { stored: Stored { record, mtime }, file, source: path.clone() })
}

fn open(file: &Path) -> Result<(File, u64, i64), Error> {
    let cannot = |e| Error::io("cannot read", file, e);
    let open = File::open(file).map_err(cannot)?;
    let metadata = open.metadata().map_err(cannot)?;
    Ok((open, metadata.len(), mtime(&metadata)))
}

/// Links a file that a server of another user may read; of a symbolic link, what that leads to.
fn link_readable(from: &Path, to: &Path) -> io::Result<()> {
    let from = from.canonicalize()?;
    if from.metadata()?.permissions().mode() & 0o004 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    fs::hard_link(from, to)
}

/// Copies or links a file; returns its SHA-256.
fn copy(from: &Path, to: &Path, link: bool) -> Result<[u8; 32], Error> {
    if link && link_readable(from, to).is_ok() {
        return digest(to);
    }
    let cannot = |e| Error::output("cannot write", to, e);
    let mut out = File::create(to).map_err(cannot)?;
    // A server of another user reads it.
    out.set_permissions(Permissions::from_mode(0o644)).map_err(cannot)?;
    sum(from, |bytes| out.write_all(bytes).map_err(cannot))
}

/// The SHA-256 of a file.
pub(super) fn digest(path: &Path) -> Result<[u8; 32], Error> {
    sum(path, |_| Ok(()))
}

/// The SHA-256 of a file, of which `each` gets every part.
fn sum(path: &Path, mut each: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<[u8; 32], Error> {
    let mut input = File::open(path).map_err(|e| Error::io("cannot open", path, e))?;
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = streams::some(&mut input, &mut buffer)
            .map_err(|e| Error::io("cannot read", path, e))?;
        if n == 0 {
            return Ok(sha256.finalize().into());
        }
        sha256.update(&buffer[..n]);
        each(&buffer[..n])?;
    }
}

/// What goes into the pool when it is published.
pub(super) fn arrival(waiting: Waiting) -> publish::Arrival {
    publish::Arrival { from: waiting.file, to: waiting.stored.record.file() }
}
