//! The directory sink: writes trees as directories. That nothing half written is ever seen under a
//! final name is [`super::output`]'s part.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Writes each tree as the directory of its name below `part` (see [`super::output::OutputDir::part`]). Kpacks are
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
        let full = AtomicBool::new(false);
        let faults = jobs
            .drive(&batch, |unit| {
                // On a full disk one error says what there is to say.
                if full.load(Ordering::Relaxed) {
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
            Some(from) => {
                Error::io(&format!("cannot write what is read from {}", from.display()), to, e)
            }
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
