//! The directory sink: writes trees as directories. That nothing half written is ever seen under a
//! final name is [`super::output`]'s part.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::gather::by_archive;
use super::{
    ArchiveFile, Destination, Entry, EntryKind, Gather, InputFile, KpackPlan, Source, Tree,
    TreePath, build, capabilities,
};
use crate::error::Error;
use crate::jobs::Jobs;
use crate::progress::Monitor;
use crate::streams;

/// Whether files of the input may be shared with the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copying {
    /// Every file gets its own bytes (a reflink where the file system has them).
    #[default]
    Copy,
    /// Unchanged files become hard links to the input where that is possible.
    Link,
}

/// A fault of one of the trees that were to be written.
#[derive(Debug)]
pub struct Fault {
    /// The tree's place in the list.
    pub tree: usize,
    /// What in it could not be written, where that can be told: the entry, or one of those that are
    /// made from the same input.
    pub path: Option<TreePath>,
    /// What is wrong. Of [`Kind::Output`](crate::error::Kind::Output) are those that no tree is to blame for.
    pub error: Error,
}

/// Writes each tree as the directory of its name below `part` (see [`super::output::OutputDir::part`]). Kpacks are
/// built on the way. Goes on after a fault, so that the other trees are whole, and returns all; on a
/// full disk it stops.
pub fn write(
    part: &Path,
    trees: &[(String, Tree)],
    copying: Copying,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<(), Vec<Fault>> {
    let sink = Sink { copying, jobs, monitor };
    let roots: Vec<PathBuf> = trees.iter().map(|(name, _)| part.join(name)).collect();
    let mut faults = Vec::new();
    // Trees that lack something: making links in them could only add faults that follow from it.
    let mut lacking = vec![false; trees.len()];
    let mut outputs = Vec::new();
    // Making directories takes longer than anything that comes before the first code object: trees go side by side.
    let places: Vec<_> = roots.iter().zip(trees.iter().map(|(_, tree)| tree)).collect();
    let made = jobs.drive(&places, |(root, tree)| make_dirs(root, tree));
    for (i, ((root, tree), made)) in places.iter().zip(made).enumerate() {
        if let Err((path, error)) = made {
            faults.push(Fault { tree: i, path, error });
            lacking[i] = true;
            continue;
        }
        outputs.extend(tree.iter().filter_map(|(path, entry)| {
            let source = entry.source()?;
            Some((source, Output { tree: i, to: root.join(path.as_path()), path, entry, source }))
        }));
    }
    let (units, manifests) = units(outputs);
    let work = |unit: &Unit| unit.outputs.iter().map(|output| output.source.work()).sum::<u64>();
    monitor.begin("writing", units.iter().map(work).sum());
    for batch in [units, manifests] {
        // What cannot be rendered lacks an archive that could not be built: that is told already.
        let known = !faults.is_empty();
        let full = AtomicBool::new(false);
        let written = jobs.drive(&batch, |unit| {
            // On a full disk one error says what there is to say.
            if full.load(Ordering::Relaxed) || known && unit.lacks_archives() {
                return Ok(());
            }
            monitor.at(&match &unit.archive {
                Some(archive) => archive.path().display().to_string(),
                None => unit.outputs[0].path.to_string(),
            });
            let written = sink.unit(unit);
            if written.as_ref().is_err_and(Error::is_disk_full) {
                full.store(true, Ordering::Relaxed);
            }
            written
        });
        for (unit, written) in batch.iter().zip(written) {
            let Err(error) = written else { continue };
            let Output { tree, path, .. } = &unit.outputs[0];
            let (tree, path) = (*tree, (*path).clone());
            faults.push(Fault { tree, path: Some(path), error });
            unit.outputs.iter().for_each(|output| lacking[output.tree] = true);
        }
        if full.into_inner() {
            break;
        }
    }
    monitor.end();
    let whole = places.into_iter().enumerate().filter(|(i, _)| !lacking[*i]);
    let whole: Vec<_> = whole.collect();
    let ended = jobs.drive(&whole, |(_, (root, tree))| {
        links(root, tree).and_then(|()| finish_dirs(root, tree))
    });
    for ((tree, _), ended) in whole.into_iter().zip(ended) {
        faults.extend(ended.err().map(|(path, error)| Fault { tree, path, error }));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// What drivers write, the longest first, and the manifests that come after.
fn units<'a>(outputs: Vec<(&'a Source, Output<'a>)>) -> (Vec<Unit<'a>>, Vec<Unit<'a>>) {
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
    units.sort_by_key(|unit| {
        std::cmp::Reverse(unit.outputs.iter().map(|output| output.source.work()).sum::<u64>())
    });
    (units, manifests)
}

/// A fault and the path in the tree that it is about.
type FaultAt = (Option<TreePath>, Error);

fn make_dirs(root: &Path, tree: &Tree) -> Result<(), FaultAt> {
    fs::create_dir_all(root).map_err(|e| (None, Error::output("cannot make", root, e)))?;
    for (path, _) in tree.iter().filter(|(_, entry)| entry.is_dir()) {
        let to = root.join(path.as_path());
        fs::create_dir(&to)
            .map_err(|e| (Some(path.clone()), Error::output("cannot make", &to, e)))?;
    }
    Ok(())
}

fn links(root: &Path, tree: &Tree) -> Result<(), FaultAt> {
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
        .map_err(|e| (Some(path.clone()), Error::output("cannot make the link", &to, e)))?;
    }
    Ok(())
}

/// Modes and times of directories come last, deepest first: writing into one changes its time, and
/// its final mode may forbid writing.
fn finish_dirs(root: &Path, tree: &Tree) -> Result<(), FaultAt> {
    for (path, entry) in tree.iter().rev().filter(|(_, entry)| entry.is_dir()) {
        let to = root.join(path.as_path());
        fs::set_permissions(&to, Permissions::from_mode(entry.mode))
            .and_then(|()| set_mtime(&to, entry.mtime))
            .map_err(|e| (Some(path.clone()), Error::output("cannot set mode and time", &to, e)))?;
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
    tree: usize,
    to: PathBuf,
    path: &'a TreePath,
    entry: &'a Entry,
    source: &'a Source,
}

/// What is written by one driver; never empty.
struct Unit<'a> {
    /// The archive of the input that all of it comes from.
    archive: Option<Arc<ArchiveFile>>,
    outputs: Vec<Output<'a>>,
}

impl Unit<'_> {
    /// Whether it is a manifest of archives that were not built.
    fn lacks_archives(&self) -> bool {
        self.outputs.iter().any(|output| match output.source {
            Source::Kpm(plan) => plan.render().is_none(),
            _ => false,
        })
    }
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
                    let file =
                        File::create_new(to).map_err(|e| Error::output("cannot make", to, e))?;
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
                .map_err(|e| Error::output("cannot set mode and time", to, e))?;
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
        let failed = |e: io::Error| Error::output("cannot write", to, e);
        let unread = |e: io::Error| match origin(source) {
            Some(from) => Error::io("cannot read", from, e),
            // Made of bytes in memory.
            None => failed(e),
        };
        let mut file = File::create_new(to).map_err(failed)?;
        match source {
            Source::File(input) => match input.open_file().map_err(unread)? {
                Some(from) => self.copy_file(from, input.len(), &mut file),
                None => self.copy(source, &file),
            },
            _ => self.copy(source, &file),
        }
        .map_err(|e| match e {
            CopyError::Read(e) => unread(e),
            CopyError::Write(e) => failed(e),
        })?;
        file.set_permissions(Permissions::from_mode(entry.mode)).map_err(failed)?;
        capabilities::set(&file, source).map_err(failed)?;
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

    /// Copies what a source gives.
    fn copy(&self, source: &Source, to: &File) -> Result<(), CopyError> {
        let mut counting = Counting { file: to, sink: self, failed: false };
        let mut out = BufWriter::with_capacity(64 * 1024, &mut counting);
        let copied = source.copy_to(&mut out).and_then(|_| out.flush());
        // What is left in the buffer after a fault is of no use.
        let _ = out.into_parts();
        copied.map_err(|e| match counting.failed {
            true => CopyError::Write(e),
            false => CopyError::Read(e),
        })
    }

    /// Copies a file of the input, sharing its blocks where the file system can.
    fn copy_file(&self, mut from: File, len: u64, to: &mut File) -> Result<(), CopyError> {
        if rustix::fs::ioctl_ficlone(&to, &from).is_ok() {
            self.monitor.advance(len);
            return Ok(());
        }
        // In-kernel copies, in steps so that progress shows.
        let mut left = len;
        while left > 0 {
            let step = left.min(64 << 20);
            match io::copy(&mut Read::take(&mut from, step), to) {
                Ok(0) => return Err(CopyError::Read(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    left -= n;
                    self.monitor.advance(n);
                }
                Err(_) => return copy_rest(&mut from, len, to),
            }
        }
        Ok(())
    }
}

/// Why a copy failed.
enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

/// Ends a copy that the kernel gave up, which does not say at which of the two files.
fn copy_rest(from: &mut File, len: u64, to: &mut File) -> Result<(), CopyError> {
    let done = to.stream_position().map_err(CopyError::Write)?;
    from.seek(SeekFrom::Start(done)).map_err(CopyError::Read)?;
    let mut left = len.saturating_sub(done);
    let mut buffer = vec![0; 64 * 1024];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let n = match streams::some(from, &mut buffer[..most]) {
            Ok(0) => return Err(CopyError::Read(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => n,
            Err(e) => return Err(CopyError::Read(e)),
        };
        to.write_all(&buffer[..n]).map_err(CopyError::Write)?;
        left -= n as u64;
    }
    Ok(())
}

/// The input file that a source reads, for messages.
pub(super) fn origin(source: &Source) -> Option<&Path> {
    match source {
        Source::File(input) | Source::Pieces { input, .. } => Some(input.path()),
        _ => None,
    }
}

/// Tells the monitor what is written, and keeps whether writing failed.
struct Counting<'a, 'b> {
    file: &'a File,
    sink: &'a Sink<'b>,
    failed: bool,
}

impl Write for Counting<'_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self.file.write(buf) {
            Ok(n) => {
                self.sink.monitor.advance(n as u64);
                Ok(n)
            }
            Err(e) => {
                self.failed |= e.kind() != io::ErrorKind::Interrupted;
                Err(e)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_fails_says_at_which_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "0123456789").unwrap();
        let readable = || File::open(&path).unwrap();
        let writable = || File::create(dir.path().join("copy")).unwrap();
        let unreadable = || File::options().write(true).open(&path).unwrap();
        assert!(matches!(
            copy_rest(&mut unreadable(), 10, &mut writable()),
            Err(CopyError::Read(_))
        ));
        assert!(matches!(
            copy_rest(&mut readable(), 10, &mut readable()),
            Err(CopyError::Write(_))
        ));
        // It was cut off meanwhile.
        assert!(matches!(copy_rest(&mut readable(), 11, &mut writable()), Err(CopyError::Read(_))));
        // It goes on where the copy stands.
        let mut to = writable();
        to.write_all(b"abcd").unwrap();
        assert!(copy_rest(&mut readable(), 10, &mut to).is_ok());
        assert_eq!(fs::read(dir.path().join("copy")).unwrap(), b"abcd456789");
    }
}
