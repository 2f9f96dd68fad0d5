//! Bringing package files in: each is copied, digested and read, and waits in `.gfxpack/incoming` until the
//! publication is about to be decided; one that is to have a second name waits where it is. The input is only read.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::env;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{self, AtomicUsize};

use super::publish::Identity;
use super::record::{Facts, Record};
use super::store::{OWN, Places, Settings, Stored, mtime};
use super::{apt, components, publish, rpm};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::package::read::PackageError;
use crate::package::{Format, sign};
use crate::progress::Monitor;
use crate::read_at::{OpenFile, ReadAt};
use crate::sha256_pair::Sha256;
use crate::sign::Signer;
use crate::streams;
use crate::tree::output::is_part;

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
    /// Whether it stays there, and a second name of it is to be made: of which file.
    link: Option<Identity>,
    /// Where it came from.
    pub source: PathBuf,
}

/// A package file of the input.
#[derive(Debug)]
struct Input {
    path: PathBuf,
    format: Format,
    size: u64,
    /// What the file is that has this name, where that is known and the name no link.
    metadata: Option<fs::Metadata>,
}

/// Packages that were looked for.
#[derive(Debug, Default)]
struct Found {
    inputs: Vec<Input>,
    /// What is no package, or was not looked into, and should be.
    faults: Vec<Error>,
    /// What was not looked into and need not be, with the reason.
    passed_over: Vec<String>,
}

/// Finds the packages: files by name, and those below directories, sorted. Names that end in neither `.deb` nor
/// `.rpm` are passed over in a directory, and refused where they are given. Gives what else was passed over, too.
fn find(paths: &[PathBuf], jobs: &Jobs) -> Result<(Vec<Input>, Vec<String>)> {
    let mut all = Found::default();
    let Found { inputs: found, faults, .. } = &mut all;
    let mut dirs = Vec::new();
    for path in paths {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() && path.file_name().is_some_and(is_part) => {
                faults.push(
                    Error::usage("is of a run that has not finished, or was killed")
                        .at(path)
                        .hint("name what the run makes of it, once it has ended"),
                );
            }
            Ok(metadata) if metadata.is_dir() => dirs.push(path.clone()),
            Ok(metadata) if !metadata.is_file() => faults.push(irregular(path)),
            Ok(metadata) => match format(path) {
                Some(format) => {
                    let (path, size) = (path.clone(), metadata.len());
                    found.push(Input { path, format, size, metadata: None });
                }
                None => faults.push(
                    Error::usage("is neither an .rpm nor a .deb package, by its name").at(path),
                ),
            },
            Err(e) => faults.push(Error::io("cannot read", path, e)),
        }
    }
    for dir in dirs {
        let before = all.inputs.len() + all.faults.len();
        let passed_over = all.passed_over.len();
        walk(&dir, &mut all, jobs)?;
        if all.inputs.len() + all.faults.len() == before {
            // What was passed over is told with a change, and here is none.
            let what = match &all.passed_over[passed_over..] {
                [] => "has no packages in it".to_owned(),
                told => format!(
                    "has no packages in it beside what was passed over: {}",
                    told.join("; ")
                ),
            };
            all.faults.push(
                Error::failed(what)
                    .at(&dir)
                    .hint("name a directory with .deb or .rpm files in it or below it"),
            );
        }
    }
    let Found { inputs: mut found, faults, mut passed_over } = all;
    found.sort_by(Input::order);
    found.dedup_by(|one, other| one.path == other.path);
    passed_over.sort();
    passed_over.dedup();
    Errors::check((found, passed_over), faults)
}

impl Input {
    /// That of paths, part by part. Most have one directory, whose parts are not looked at over and over.
    fn order(&self, other: &Self) -> Ordering {
        let [(dir, name), (other_dir, other_name)] = [self, other].map(|one| {
            let path = one.path.as_os_str().as_bytes();
            path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1))
        });
        if dir == other_dir { name.cmp(other_name) } else { self.path.cmp(&other.path) }
    }
}

/// Finds the packages in a directory and below it, but for those of repositories, those that are being made, and those
/// that links lead to.
fn walk(dir: &Path, found: &mut Found, jobs: &Jobs) -> Result<()> {
    /// Files that one thread looks at: to look at one is to ask the system once.
    const TOGETHER: usize = 256;
    let mut named: Vec<(PathBuf, Format, bool)> = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let cannot = |e| Error::io("cannot read the directory", &dir, e);
        for entry in fs::read_dir(&dir).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let path = entry.path();
            let kind = entry.file_type().map_err(cannot)?;
            let mut passed_over = |why: &str| {
                found.passed_over.push(format!("{} ({why})", path.display()));
            };
            if kind.is_dir() {
                if is_part(&entry.file_name()) {
                    passed_over("of a run that has not finished, or was killed");
                } else if path.join(OWN).is_dir() {
                    passed_over("a repository: gfxpack repo merge adds its packages");
                } else if entry.file_name() != OWN {
                    dirs.push(path);
                }
            } else if let Some(format) = format(&path) {
                named.push((path, format, kind.is_file()));
            } else if kind.is_symlink() && path.is_dir() {
                passed_over("a link to a directory: name that to add what is in it");
            }
        }
    }
    let chunks: Vec<_> = named.chunks(TOGETHER).collect();
    let looked_at = jobs.drive(&chunks, |chunk| {
        chunk.iter().map(|(path, ..)| fs::metadata(path)).collect::<Vec<_>>()
    });
    let looked_at = looked_at.into_iter().flatten();
    for ((path, format, is_no_link), metadata) in named.into_iter().zip(looked_at) {
        let metadata = metadata.map_err(|e| Error::io("cannot read", &path, e))?;
        if metadata.is_file() {
            let (size, metadata) = (metadata.len(), is_no_link.then_some(metadata));
            found.inputs.push(Input { path, format, size, metadata });
        } else if !metadata.is_dir() {
            found.faults.push(irregular(&path));
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

/// Brings the packages in, and gives what was passed over on the way, for a warning each. All faults are told.
pub(super) fn bring(
    places: &Places,
    settings: &Settings,
    paths: &[PathBuf],
    options: Options<'_>,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<(Vec<Waiting>, Vec<String>)> {
    if options.known.is_none() {
        apart(places, paths)?;
    }
    let (inputs, passed_over) = find(paths, jobs)?;
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
    let components = components::Rules::new(settings, &places.dir)?;
    monitor.begin("reading packages", inputs.iter().map(|input| input.size).sum());
    let dev = fs::metadata(&places.dir).ok().map(|metadata| metadata.dev());
    let number = AtomicUsize::new(0);
    let begin = |input: &Input| {
        monitor.at(&input.path.to_string_lossy());
        let file = incoming.join(number.fetch_add(1, atomic::Ordering::Relaxed).to_string());
        Begun::read(input, file, options, dev)
    };
    let finish = |(input, begun): (&Input, Result<Begun>)| {
        let waiting = begun.and_then(|begun| begun.finish(input, options, &components));
        monitor.advance(input.size);
        waiting
    };
    // By twos, whose digests are made side by side.
    let pairs: Vec<&[Input]> = inputs.chunks(2).collect();
    let done = jobs.drive(&pairs, |pair| {
        let mut begun: Vec<Result<Begun>> = pair.iter().map(begin).collect();
        if let [Ok(one), Ok(other)] = &mut begun[..] {
            one.read.digest_both(&mut other.read);
        }
        pair.iter().zip(begun).map(finish).collect::<Vec<_>>()
    });
    monitor.end();
    drop(elsewhere);
    let (mut waiting, mut faults) = (Vec::new(), Vec::new());
    for one in done.into_iter().flatten() {
        match one {
            Ok(one) => waiting.push(one),
            Err(e) => faults.extend(e.into_vec()),
        }
    }
    Errors::check((waiting, passed_over), faults)
}

/// A package that was read, of which nothing is known yet.
struct Begun {
    /// Where it is, and whether that is where it was.
    file: PathBuf,
    stays: bool,
    read: Read,
}

impl Begun {
    /// Reads a package, and copies it to `file` where it cannot stay where it is.
    fn read(input: &Input, file: PathBuf, options: Options<'_>, dev: Option<u64>) -> Result<Self> {
        let Input { path, format, metadata, .. } = input;
        let signer = options.rpm_signer.filter(|_| *format == Format::Rpm);
        let is_whole = signer.is_none();
        let target = (options.link && is_whole).then(|| linkable(path, metadata.as_ref(), dev?));
        let target = target.flatten();
        let stays = target.is_some() || options.only_look && is_whole;
        let file = match target {
            Some(target) => target,
            None if stays => path.clone(),
            None => file,
        };
        let mut read = if stays { Read::of(&file, |_| Ok(()))? } else { copy(path, &file)? };
        if let Some(known) = options.known.and_then(|known| known.get(path))
            && *known != read.sha256()
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
            read = Read::of(&file, |_| Ok(()))?;
        }
        Ok(Self { file, stays, read })
    }

    /// Finds out what it says of itself.
    fn finish(
        self,
        input: &Input,
        options: Options<'_>,
        components: &components::Rules,
    ) -> Result<Waiting> {
        let Input { path, format, .. } = input;
        let Self { file, stays, mut read } = self;
        let sha256 = read.sha256();
        let Read { size, seen, content, .. } = read;
        let (mtime, facts) = match content {
            Some(bytes) if stays => (seen.mtime, facts(*format, &bytes)),
            Some(bytes) => (file_time(&file)?, facts(*format, &bytes)),
            None => {
                let (open, size, mtime) = open(&file)?;
                (mtime, facts(*format, &OpenFile::new(open, size)))
            }
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
        if options.only_look && !stays {
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
        let record = record.brief()?.into();
        let link = (stays && !options.only_look).then_some(seen);
        Ok(Waiting { stored: Stored { record, mtime }, file, link, source: path.clone() })
    }
}

fn facts(format: Format, reader: &dyn ReadAt) -> Result<Facts, PackageError> {
    match format {
        Format::Deb => apt::read(reader),
        Format::Rpm => rpm::read(reader),
    }
}

fn file_time(file: &Path) -> Result<i64, Error> {
    let metadata = fs::metadata(file).map_err(|e| Error::io("cannot read", file, e))?;
    Ok(mtime(&metadata))
}

fn open(file: &Path) -> Result<(File, u64, i64), Error> {
    let cannot = |e| Error::io("cannot read", file, e);
    let open = File::open(file).map_err(cannot)?;
    let metadata = open.metadata().map_err(cannot)?;
    Ok((open, metadata.len(), mtime(&metadata)))
}

/// The file to make a second name of, if that is possible on the device `dev`: one that a server of another user may read; of
/// a symbolic link, what that leads to. `known` is what the name's file is known to be.
fn linkable(from: &Path, known: Option<&fs::Metadata>, dev: u64) -> Option<PathBuf> {
    let mut metadata = match known {
        Some(known) => known.clone(),
        None => fs::symlink_metadata(from).ok()?,
    };
    let mut target = from.to_owned();
    if metadata.is_symlink() {
        target = from.canonicalize().ok()?;
        metadata = target.metadata().ok()?;
    }
    if metadata.permissions().mode() & 0o004 == 0 {
        return None;
    }
    (metadata.dev() == dev).then_some(target)
}

/// Copies a file, and reads it.
fn copy(from: &Path, to: &Path) -> Result<Read, Error> {
    let cannot = |e| Error::output("cannot write", to, e);
    let mut out = File::create(to).map_err(cannot)?;
    // A server of another user reads it.
    out.set_permissions(Permissions::from_mode(0o644)).map_err(cannot)?;
    Read::of(from, |bytes| out.write_all(bytes).map_err(cannot))
}

/// The SHA-256 of a file.
pub(super) fn digest(path: &Path) -> Result<[u8; 32], Error> {
    Read::of(path, |_| Ok(())).map(|mut read| read.sha256())
}

/// A file that was read from its beginning to its end.
struct Read {
    size: u64,
    /// The SHA-256, of one that is not small always.
    sha256: Option<[u8; 32]>,
    /// Which file it was before it was read.
    seen: Identity,
    /// Its content, where that is small: it need not be read again.
    content: Option<Vec<u8>>,
}

/// Files are read in pieces of this size; what fits into one is small.
const PIECE: usize = 256 << 10;

impl Read {
    /// Reads a file, of which `each` gets every part.
    fn of(path: &Path, mut each: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<Self, Error> {
        let cannot = |e| Error::io("cannot read", path, e);
        let mut input = File::open(path).map_err(|e| Error::io("cannot open", path, e))?;
        // No more memory than is needed: thousands of large pieces are given to the system and taken back. One byte
        // more shows the end.
        let seen = Identity::of(&input.metadata().map_err(cannot)?);
        let room = usize::try_from(seen.size).unwrap_or(PIECE).min(PIECE) + 1;
        let mut buffer = vec![0; room];
        let (mut sha256, mut size, mut filled) = (Sha256::new(), 0_u64, 0);
        loop {
            let n = streams::some(&mut input, &mut buffer[filled..]).map_err(cannot)?;
            each(&buffer[filled..filled + n])?;
            size += n as u64;
            filled += n;
            let is_small = size == filled as u64;
            if n == 0 {
                buffer.truncate(filled);
                return Ok(if is_small {
                    Self { size, sha256: None, seen, content: Some(buffer) }
                } else {
                    sha256.update(&buffer);
                    Self { size, sha256: Some(sha256.finish()), seen, content: None }
                });
            }
            if filled == buffer.len() {
                // More than was expected, or than a piece: what is read is not kept.
                sha256.update(&buffer);
                filled = 0;
                buffer.resize(PIECE, 0);
            }
        }
    }

    /// The SHA-256.
    fn sha256(&mut self) -> [u8; 32] {
        let content = self.content.as_deref().unwrap_or_default();
        *self.sha256.get_or_insert_with(|| {
            let mut sha256 = Sha256::new();
            sha256.update(content);
            sha256.finish()
        })
    }

    /// Makes the SHA-256 of two small files side by side.
    fn digest_both(&mut self, other: &mut Self) {
        if let (None, None, Some(one), Some(two)) =
            (self.sha256, other.sha256, &self.content, &other.content)
        {
            let mut sums = (Sha256::new(), Sha256::new());
            Sha256::update_both((&mut sums.0, one), (&mut sums.1, two));
            (self.sha256, other.sha256) = (Some(sums.0.finish()), Some(sums.1.finish()));
        }
    }
}

/// What goes into the pool when it is published.
pub(super) fn arrival(waiting: Waiting) -> publish::Arrival {
    let Waiting { stored, file, link, .. } = waiting;
    let (to, sha256) = (stored.record.file(), stored.record.sha256);
    publish::Arrival { from: file, to, link: link.map(|seen| (seen, sha256)) }
}
