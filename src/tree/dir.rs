//! The directory sink: writes trees below one directory, all or nothing.
//!
//! Everything is made in `.{name}.gfxpack-part` beside the output and renamed when it is whole. The
//! part directory is locked while a run works in it, so that two runs on one output do not mix, and
//! one that a killed run left behind is recognised and removed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use super::gather::by_archive;
use super::{
    ArchiveFile, Destination, Entry, EntryKind, Gather, InputFile, KpackPlan, Source, Tree,
    TreePath, build,
};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::progress::Monitor;

/// Whether files of the input may be shared with the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copying {
    /// Every file gets its own bytes (a reflink where the file system has them).
    #[default]
    Copy,
    /// Unchanged files become hard links to the input where that is possible.
    Link,
}

/// An output directory that is being filled.
#[derive(Debug)]
pub struct OutputDir {
    output: PathBuf,
    part: PathBuf,
    /// Held open for its lock.
    _lock: File,
    /// Names that will be placed one by one, where `output` already has other things.
    beside: bool,
    finished: bool,
}

impl OutputDir {
    /// Prepares to write `output` as a whole. It may exist where it is an empty directory, or with
    /// `force`, which replaces it when the new one is complete.
    pub fn create(output: &Path, force: bool) -> Result<Self> {
        let occupied = match fs::read_dir(output) {
            Ok(mut listing) => listing.next().is_some(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(Error::io("cannot be the output directory", output, e).into()),
        };
        if occupied && !force {
            return Err(Error::usage("the output directory exists and is not empty")
                .at(output)
                .hint("name another one, remove it, or pass --force to replace it")
                .into());
        }
        Self::open_part(output, false)
    }

    /// Prepares to add the directories `names` to `output`, which may hold others.
    pub fn create_beside<'a>(
        output: &Path,
        names: impl Iterator<Item = &'a str>,
        force: bool,
    ) -> Result<Self> {
        let faults = names
            .map(|name| output.join(name))
            .filter(|path| !force && path.symlink_metadata().is_ok())
            .map(|path| {
                Error::usage("the output directory exists")
                    .at(path)
                    .hint("remove it, or pass --force to replace it")
            })
            .collect();
        Errors::check((), faults)?;
        Self::open_part(output, true)
    }

    fn open_part(output: &Path, beside: bool) -> Result<Self> {
        let Some(name) = output.file_name() else {
            return Err(Error::usage("is no name for an output directory").at(output).into());
        };
        let parent = match output.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(|e| Error::io("cannot make", parent, e))?;
        let mut part_name = OsString::from(".");
        part_name.push(name);
        part_name.push(".gfxpack-part");
        let part = parent.join(part_name);
        let (lock, part) = lock_empty(&part)?;
        Ok(Self { output: output.to_owned(), part, _lock: lock, beside, finished: false })
    }

    /// Where the files are while they are being made.
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Moves what was made to its place.
    pub fn finish(mut self) -> Result<()> {
        let placed = if self.beside { self.place_each() } else { self.place_whole() };
        placed.map_err(|e| {
            Error::io("cannot move the finished output to its place", &self.output, e)
        })?;
        self.finished = true;
        Ok(())
    }

    fn place_whole(&self) -> io::Result<()> {
        // Renaming over an empty directory is one step; a full one (--force) is moved away first.
        match fs::rename(&self.part, &self.output) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {
                let old = self.part.with_extension("gfxpack-old");
                if old.exists() {
                    fs::remove_dir_all(&old)?;
                }
                fs::rename(&self.output, &old)?;
                fs::rename(&self.part, &self.output)?;
                fs::remove_dir_all(&old)
            }
            other => other,
        }
    }

    fn place_each(&self) -> io::Result<()> {
        fs::create_dir_all(&self.output)?;
        let mut names = fs::read_dir(&self.part)?.collect::<io::Result<Vec<_>>>()?;
        names.sort_by_key(fs::DirEntry::file_name);
        for name in names {
            let to = self.output.join(name.file_name());
            if to.symlink_metadata().is_ok() {
                fs::remove_dir_all(&to)?;
            }
            fs::rename(name.path(), to)?;
        }
        fs::remove_dir(&self.part)
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: what cannot be removed now is removed by the next run.
            let _ = fs::remove_dir_all(&self.part);
        }
    }
}

/// Makes `part` an empty directory under our lock.
fn lock_empty(part: &Path) -> Result<(File, PathBuf)> {
    let failed = |e| Error::io("cannot make", part, e);
    loop {
        match fs::create_dir(part) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e).into()),
            _ => {}
        }
        let dir = match File::open(part) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        if let Err(e) = flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            return Err(Error::io("another run is writing the same output", part, e.into())
                .hint("wait for it to end, or name another output")
                .into());
        }
        // Locked, so whatever is in it belongs to a run that is gone. It may itself be gone by now.
        let mut listing = match fs::read_dir(part) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        if listing.next().is_none() {
            return Ok((dir, part.to_owned()));
        }
        fs::remove_dir_all(part).map_err(failed)?;
    }
}

/// Writes each tree as the directory of its name below `part` (see [`OutputDir::part`]). Kpacks are
/// built on the way. Reports every file that could not be written.
pub fn write(
    part: &Path,
    trees: &[(String, Tree)],
    copying: Copying,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<()> {
    let sink = Sink { copying, jobs, monitor };
    let roots: Vec<PathBuf> = trees.iter().map(|(name, _)| part.join(name)).collect();
    let mut outputs = Vec::new();
    for (root, (_, tree)) in roots.iter().zip(trees) {
        make_dirs(root, tree)?;
        outputs.extend(tree.iter().filter_map(|(path, entry)| {
            let source = entry.source()?;
            Some((source, Output { to: root.join(path.as_path()), path, entry, source }))
        }));
    }
    let found = by_archive(outputs.into_iter());
    let mut units = Vec::new();
    let mut manifests = Vec::new();
    let mut archives: BTreeMap<&str, Vec<Output>> = BTreeMap::new();
    for (archive, outputs) in found.archives {
        let outputs = outputs.into_iter().map(|(_, output)| output).collect();
        units.push(Unit { archive: Some(archive), outputs });
    }
    for (source, output) in found.others {
        match source {
            // Archives of the same binaries are built together.
            Source::Kpack(plan) => archives.entry(plan.set()).or_default().push(output),
            // Manifests need the sizes of the archives, which are known once they are built.
            Source::Kpm(_) => manifests.push(Unit { archive: None, outputs: vec![output] }),
            _ => units.push(Unit { archive: None, outputs: vec![output] }),
        }
    }
    units.extend(archives.into_values().map(|outputs| Unit { archive: None, outputs }));
    let work = |unit: &Unit| unit.outputs.iter().map(|output| output.source.work()).sum::<u64>();
    units.sort_by_key(|unit| std::cmp::Reverse(work(unit)));
    monitor.begin("writing", units.iter().map(work).sum());
    for batch in [units, manifests] {
        let faults = jobs
            .drive(&batch, |unit| {
                monitor.at(&match &unit.archive {
                    Some(archive) => archive.path().display().to_string(),
                    None => unit.outputs[0].path.to_string(),
                });
                sink.unit(unit)
            })
            .into_iter()
            .filter_map(Result::err)
            .collect();
        Errors::check((), faults)?;
    }
    monitor.end();
    for (root, (_, tree)) in roots.iter().zip(trees) {
        links(root, tree)?;
        finish_dirs(root, tree)?;
    }
    Ok(())
}

fn make_dirs(root: &Path, tree: &Tree) -> Result<(), Error> {
    fs::create_dir_all(root).map_err(|e| Error::io("cannot make", root, e))?;
    for (path, _) in tree.iter().filter(|(_, entry)| entry.is_dir()) {
        let to = root.join(path.as_path());
        fs::create_dir(&to).map_err(|e| Error::io("cannot make", &to, e))?;
    }
    Ok(())
}

fn links(root: &Path, tree: &Tree) -> Result<(), Error> {
    let at = |path: &TreePath| root.join(path.as_path());
    for (path, entry) in tree.iter() {
        let to = at(path);
        match &entry.kind {
            EntryKind::HardLink(first) => fs::hard_link(at(first), &to),
            EntryKind::Symlink(target) => {
                use std::os::unix::ffi::OsStrExt;
                symlink(std::ffi::OsStr::from_bytes(target), &to)
                    .and_then(|()| set_mtime(&to, entry.mtime))
            }
            _ => Ok(()),
        }
        .map_err(|e| Error::io("cannot make the link", &to, e))?;
    }
    Ok(())
}

/// Modes and times of directories come last, deepest first: writing into one changes its time, and
/// its final mode may forbid writing.
fn finish_dirs(root: &Path, tree: &Tree) -> Result<(), Error> {
    for (path, entry) in tree.iter().rev().filter(|(_, entry)| entry.is_dir()) {
        let to = root.join(path.as_path());
        fs::set_permissions(&to, Permissions::from_mode(entry.mode))
            .and_then(|()| set_mtime(&to, entry.mtime))
            .map_err(|e| Error::io("cannot set mode and time", &to, e))?;
    }
    Ok(())
}

pub(super) fn set_mtime(path: &Path, mtime: Option<i64>) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let Some(tv_sec) = mtime else { return Ok(()) };
    let time = Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// A file to be written.
struct Output<'a> {
    to: PathBuf,
    path: &'a TreePath,
    entry: &'a Entry,
    source: &'a Source,
}

/// What is written by one driver.
struct Unit<'a> {
    /// The archive of the input that all of it comes from.
    archive: Option<Arc<ArchiveFile>>,
    outputs: Vec<Output<'a>>,
}

struct Sink<'a> {
    copying: Copying,
    jobs: &'a Jobs,
    monitor: &'a dyn Monitor,
}

impl Sink<'_> {
    /// Writes one file, or the archives of the same binaries, or all that comes from an archive.
    fn unit(&self, unit: &Unit) -> Result<(), Error> {
        let mut gather = Gather::default();
        let mut sets: BTreeMap<&str, Vec<(&KpackPlan, File, &Path, &Entry)>> = BTreeMap::new();
        for Output { to, entry, source, .. } in &unit.outputs {
            match source {
                Source::Kpack(plan) => {
                    let file = File::create_new(to).map_err(|e| Error::io("cannot make", to, e))?;
                    sets.entry(plan.set()).or_default().push((plan, file, to, entry));
                }
                source if unit.archive.is_some() => {
                    gather.file(source, Destination::New(to, entry));
                }
                source => self.file(to, entry, source)?,
            }
        }
        for set in sets.values() {
            let plans: Vec<_> = set.iter().map(|(plan, file, to, _)| (*plan, file, *to)).collect();
            match unit.archive {
                Some(_) => gather.kpacks(plans),
                None => build::kpacks(&plans, self.jobs, self.monitor)?,
            }
        }
        if let Some(archive) = &unit.archive {
            gather.run(archive, self.jobs, self.monitor)?;
        }
        for (_, file, to, entry) in sets.values().flatten() {
            file.set_permissions(Permissions::from_mode(entry.mode))
                .and_then(|()| set_mtime(to, entry.mtime))
                .map_err(|e| Error::io("cannot set mode and time", to, e))?;
        }
        Ok(())
    }

    fn file(&self, to: &Path, entry: &Entry, source: &Source) -> Result<(), Error> {
        if let (Copying::Link, Source::File(input)) = (self.copying, source)
            && self.hard_link(to, entry, input)
        {
            self.monitor.advance(input.len());
            return Ok(());
        }
        let failed = |e: io::Error| match origin(source) {
            Some(from) => Error::io("cannot write", to, e)
                .hint(format!("its content comes from {}", from.display())),
            None => Error::io("cannot write", to, e),
        };
        let mut file = File::create_new(to).map_err(failed)?;
        match source {
            Source::File(input) => self.copy_whole(input, &mut file).map_err(failed)?,
            other => {
                let mut out =
                    BufWriter::with_capacity(64 * 1024, Counting { file: &file, sink: self });
                other.copy_to(&mut out).and_then(|_| out.flush()).map_err(failed)?;
            }
        }
        file.set_permissions(Permissions::from_mode(entry.mode)).map_err(failed)?;
        set_mtime(to, entry.mtime).map_err(failed)
    }

    /// Shares the input's file where that gives the same file as a copy would.
    fn hard_link(&self, to: &Path, entry: &Entry, input: &InputFile) -> bool {
        let same = input.path().symlink_metadata().is_ok_and(|meta| {
            use std::os::unix::fs::MetadataExt;
            meta.mode() & 0o7777 == entry.mode && Some(meta.mtime()) == entry.mtime
        });
        same && fs::hard_link(input.path(), to).is_ok()
    }

    fn copy_whole(&self, input: &Arc<InputFile>, to: &mut File) -> io::Result<()> {
        let Some(mut from) = input.open_file()? else {
            return Source::File(Arc::clone(input)).copy_to(to).map(|n| self.monitor.advance(n));
        };
        if rustix::fs::ioctl_ficlone(&to, &from).is_ok() {
            self.monitor.advance(input.len());
            return Ok(());
        }
        // In-kernel copies, in steps so that progress shows.
        let mut left = input.len();
        while left > 0 {
            let step = left.min(64 << 20);
            let n = io::copy(&mut io::Read::take(&mut from, step), to)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= n;
            self.monitor.advance(n);
        }
        Ok(())
    }
}

/// The input file that a source reads, for messages.
pub(super) fn origin(source: &Source) -> Option<&Path> {
    match source {
        Source::File(input) | Source::Pieces { input, .. } => Some(input.path()),
        _ => None,
    }
}

/// Tells the monitor what is written.
struct Counting<'a, 'b> {
    file: &'a File,
    sink: &'a Sink<'b>,
}

impl Write for Counting<'_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.file.write(buf)?;
        self.sink.monitor.advance(n as u64);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
