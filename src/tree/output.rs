//! Output directories: all or nothing.
//!
//! Everything is made in `.{name}.gfxpack-part` beside the output and renamed when it is whole. The
//! part directory is locked while a run works in it, so that two runs on one output do not mix, and
//! one that a killed run left behind is recognised and removed. A run that is asked to end removes its
//! own ([`abandon`]).

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, RenameFlags, StatxAttributes, StatxFlags, flock, renameat_with,
    statx,
};

use crate::error::{Error, Errors, Result};

/// How the names of part directories end.
const PART: &str = ".gfxpack-part";
/// What to do where the output is on another file system than the directory it is in.
const MOUNTED: &str = "an output is made beside its place and renamed, which a mount point cannot be: name a directory in it";
/// Bytes that a file's name may have.
const NAME_MAX: usize = 255;

/// The part directories of this process. Whoever holds the lock may place an output, or remove all of them.
static PARTS: Mutex<Vec<Part>> = Mutex::new(Vec::new());

/// A part directory of this process: where it was made, and which one it is. Its lock is held, so that no other gets its
/// number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl Part {
    /// Whether it is what is there: where it was removed, another run may have made one of the same name.
    fn is_there(&self) -> bool {
        self.path.symlink_metadata().is_ok_and(|there| id(&there) == self.id)
    }

    fn remove(&self) {
        if self.is_there() {
            // Best effort: what cannot be removed now is removed by the next run.
            let _ = remove_tree(&self.path);
        }
    }
}

fn id(meta: &fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Gives up all outputs that this process is making: removes what there is of them, and from then on none is placed
/// any more; one that is just being placed is placed as a whole first. For a process that is about to
/// end, whose other threads may still be writing. Takes `within` at the most; what it does not get to the next run removes.
pub fn abandon(within: Duration) {
    let begun = Instant::now();
    let parts = loop {
        match PARTS.try_lock() {
            Ok(parts) => break parts,
            Err(std::sync::TryLockError::Poisoned(parts)) => break parts.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) if begun.elapsed() > within => return,
            Err(std::sync::TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    };
    for part in parts.iter() {
        // Files that are being made meanwhile are in the way of one try; without the directory there are no more.
        while begun.elapsed() < within && part.is_there() {
            part.remove();
        }
    }
    std::mem::forget(parts);
}

fn parts() -> std::sync::MutexGuard<'static, Vec<Part>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a directory of this name has an output that is being made, or that a killed run has left: nothing in it need
/// be whole.
pub fn is_part(name: &OsStr) -> bool {
    name.as_encoded_bytes().ends_with(PART.as_bytes())
}

/// An output directory that is being filled.
#[derive(Debug)]
pub struct OutputDir {
    output: PathBuf,
    part: Part,
    /// Held open for its lock.
    _lock: File,
    /// Names are placed one by one, where `output` may have other things.
    beside: bool,
    /// What is there may be replaced.
    force: bool,
    finished: bool,
}

impl OutputDir {
    /// Prepares to write `output` as a whole. It may exist where it is an empty directory, or with
    /// `force`, which replaces it when the new one is complete. It must lie apart from `inputs`.
    pub fn create(output: &Path, force: bool, inputs: &[&Path]) -> Result<Self> {
        let output = named(output)?;
        apart(&output, inputs)?;
        let made = Self::open_part(&output, "", false, force)?;
        // Under the lock: no other run of ours can fill it now.
        unoccupied(&made.output, force)?;
        Ok(made)
    }

    /// Prepares to add the directories `names` to `output`, which may hold others.
    pub fn create_beside<'a>(
        output: &Path,
        names: impl Iterator<Item = &'a str>,
        force: bool,
        inputs: &[&Path],
    ) -> Result<Self> {
        let output = named(output)?;
        let places: Vec<PathBuf> = names.map(|name| output.join(name)).collect();
        for place in &places {
            apart(place, inputs)?;
        }
        let made = Self::open_part(&output, "", true, force)?;
        let faults = places
            .iter()
            .filter(|place| !force && place.symlink_metadata().is_ok())
            .map(|place| {
                Error::usage("the output directory exists")
                    .at(place)
                    .hint("remove it, or pass --force to replace it")
            })
            .collect();
        Errors::check(made, faults)
    }

    /// Prepares to add files to `output`, which may hold others and may be added to by other runs at
    /// the same time; files of the same names are replaced. Of two runs with one `label`, the second
    /// waits for the first: an engine that was killed may leave one behind. Fails where `label` cannot be
    /// a part of a file's name.
    pub fn create_among(output: &Path, label: &str) -> Result<Self> {
        let output = named(output)?;
        let name = output.file_name().unwrap_or_default();
        // It is removed with all that is in it, so it must not lie elsewhere.
        if label.contains(['/', '\0']) || name.len() + label.len() + 2 + PART.len() > NAME_MAX {
            return Err(Error::usage(format!("cannot be written under the name `{label}`"))
                .at(&output)
                .hint("a name has no `/` and no NUL, and at most 255 bytes with what is put around it")
                .into());
        }
        Self::open_part(&output, label, true, true)
    }

    fn open_part(output: &Path, label: &str, beside: bool, force: bool) -> Result<Self> {
        let parent = output.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(|e| Error::io("cannot make", parent, e))?;
        let mut part_name = OsString::from(".");
        part_name.push(output.file_name().unwrap_or_default());
        if !label.is_empty() {
            part_name.push(".");
            part_name.push(label);
        }
        part_name.push(PART);
        let part = parent.join(part_name);
        let (part, lock) = if label.is_empty() {
            // It is ours from the moment that it is there: nobody may ask this process to end between the two.
            let mut parts = parts();
            let (part, lock) = lock_empty(part, output, false)?;
            parts.push(part.clone());
            (part, lock)
        } else {
            // It may wait long, and whoever asks this process to end meanwhile does not.
            let (part, lock) = lock_empty(part, output, true)?;
            parts().push(part.clone());
            (part, lock)
        };
        let output = output.to_owned();
        Ok(Self { output, part, _lock: lock, beside, force, finished: false })
    }

    /// Where the files are while they are being made.
    pub fn part(&self) -> &Path {
        &self.part.path
    }

    /// Removes what was made under this name.
    pub fn discard(&self, name: &str) -> Result<()> {
        let path = self.part.path.join(name);
        match remove_tree(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::output("cannot remove what failed", &path, e).into())
            }
            _ => Ok(()),
        }
    }

    /// Moves what was made to its place.
    pub fn finish(mut self) -> Result<()> {
        let mut placing = parts();
        let replaced = if self.beside {
            self.place_each()?;
            None
        } else {
            self.place(&self.part.path, &self.output)?
        };
        self.finished = true;
        placing.retain(|part| *part != self.part);
        // What is now where the part was: what was replaced, or the part, from which all was moved.
        let left = match &replaced {
            Some(old) => old.metadata().ok().map(|old| id(&old)),
            None => self.beside.then_some(self.part.id),
        };
        // Where nothing is, the next run may have a part of this name already.
        let Some(id) = left else { return Ok(()) };
        self.part.id = id;
        placing.push(self.part.clone());
        drop(placing);
        // Locked, so no other run's. A next run would remove it as well.
        self.part.remove();
        Ok(())
    }

    fn place_each(&self) -> Result<()> {
        let failed =
            |e| Error::output("cannot move the finished output to its place", &self.output, e);
        fs::create_dir_all(&self.output).map_err(failed)?;
        let listing =
            fs::read_dir(&self.part.path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut names = listing.map_err(failed)?;
        names.sort_by_key(fs::DirEntry::file_name);
        for name in names {
            self.place(&name.path(), &self.output.join(name.file_name()))?;
        }
        Ok(())
    }

    /// Moves a finished directory to its place in one step. What was there is then where the directory was: it is returned,
    /// under our lock where it could be locked.
    fn place(&self, from: &Path, to: &Path) -> Result<Option<File>> {
        let failed = |e: io::Error| {
            let mounted =
                matches!(e.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices);
            let error = Error::output("cannot move the finished output to its place", to, e);
            if mounted { error.hint(MOUNTED) } else { error }
        };
        match fs::rename(from, to) {
            Ok(()) => Ok(None),
            Err(e) if e.kind() != io::ErrorKind::DirectoryNotEmpty => Err(failed(e).into()),
            Err(_) if !self.force => Err(Error::failed("something was put there during the run")
                .at(to)
                .hint("it is left as it is: name another output, or pass --force to replace it")
                .into()),
            Err(_) => {
                let old = File::open(to).map_err(failed)?;
                // Or a run that finds it in place of the part takes it for one that was left behind.
                let _ = flock(&old, FlockOperation::NonBlockingLockExclusive);
                // Both are whole at every moment.
                renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)
                    .map_err(|e| failed(e.into()))?;
                Ok(Some(old))
            }
        }
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        if !self.finished {
            self.part.remove();
        }
        parts().retain(|part| *part != self.part);
    }
}

/// The output as `parent/name`, where that can be a directory of ours.
fn named(output: &Path) -> Result<PathBuf> {
    let no_name = || {
        Error::usage("is no name for an output directory")
            .at(output)
            .hint("name a directory that does not exist yet, as out")
    };
    let name = output.file_name().ok_or_else(no_name)?;
    let parent = match output.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let output = parent.join(name);
    match output.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => {
            // A link to a directory stands for it.
            let real = output.canonicalize().map_err(|e| {
                Error::usage("the output is a link that leads nowhere").at(&output).because(e)
            })?;
            if real.is_dir() { Ok(real) } else { Err(not_a_directory(&output).into()) }
        }
        Ok(meta) if !meta.is_dir() => Err(not_a_directory(&output).into()),
        Ok(_) if is_mount_point(&output) => {
            Err(Error::usage("the output is a mount point").at(&output).hint(MOUNTED).into())
        }
        _ => Ok(output),
    }
}

/// Whether something is mounted there, where the system says so.
fn is_mount_point(path: &Path) -> bool {
    let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE);
    stat.is_ok_and(|stat| {
        (stat.stx_attributes & stat.stx_attributes_mask).contains(StatxAttributes::MOUNT_ROOT)
    })
}

fn not_a_directory(output: &Path) -> Error {
    Error::usage("the output exists and is not a directory").at(output).hint("name another output")
}

/// Refuses an output that is there already, unless it is empty or `force` replaces it, and one that is not apart from the
/// `inputs`: what [`OutputDir::create`] refuses, for those who want to know before there is anything to write.
pub fn check_free(output: &Path, force: bool, inputs: &[&Path]) -> Result<()> {
    let output = named(output)?;
    apart(&output, inputs)?;
    unoccupied(&output, force)
}

fn unoccupied(output: &Path, force: bool) -> Result<()> {
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
    Ok(())
}

/// Refuses an output that is an input, holds one, or lies in one: writing it would touch the input.
pub fn apart(output: &Path, inputs: &[&Path]) -> Result<()> {
    for input in inputs {
        if overlap(output, input) {
            return Err(Error::usage(format!(
                "the output and {} lie in one another",
                input.display()
            ))
            .at(output)
            .hint("what is read is never written to: name an output outside of it")
            .into());
        }
    }
    Ok(())
}

/// Whether two directories are one, or one lies in the other. They need not exist.
pub fn overlap(one: &Path, other: &Path) -> bool {
    let (one, other) = (real(one), real(other));
    one.starts_with(&other) || other.starts_with(&one)
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent == Path::new("") { Path::new(".") } else { parent };
            real(parent).join(name)
        }
        _ => path.to_owned(),
    }
}

/// Makes `path` an empty directory under our lock. Where another run has it, that is an error unless
/// `wait`. `output` is what it is made for.
fn lock_empty(path: PathBuf, output: &Path, wait: bool) -> Result<(Part, File)> {
    let part = path.as_path();
    let how = match wait {
        true => FlockOperation::LockExclusive,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let failed = |e| Error::io("cannot make", part, e);
    loop {
        match fs::create_dir(part) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let parent = match output.parent() {
                    Some(parent) if parent != Path::new(".") => parent.display().to_string(),
                    _ => "the current directory".to_owned(),
                };
                let why =
                    "the output is made in it under another name, and renamed when it is whole";
                return Err(Error::io("cannot make the output", output, e)
                    .hint(format!("{parent} has to be writable: {why}"))
                    .into());
            }
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("cannot make the output", output, e).into());
            }
            _ => {}
        }
        let dir = match File::open(part) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        if let Err(e) = flock(&dir, how) {
            return Err(Error::io("another run is writing the same output", part, e.into())
                .hint("wait for it to end, or name another output")
                .into());
        }
        // Who had it may have removed it meanwhile, and a third have made another, which is in use: that one's lock counts.
        let locked = dir.metadata().map_err(failed)?;
        match fs::symlink_metadata(part) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(failed(e).into()),
            Ok(there) if !there.is_dir() => {
                return Err(failed(io::ErrorKind::NotADirectory.into()).into());
            }
            Ok(there) if id(&there) != id(&locked) => continue,
            Ok(_) => {}
        }
        // Locked, so whatever is in it belongs to a run that is gone.
        let mut listing = match fs::read_dir(part) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        if listing.next().is_none() {
            return Ok((Part { id: id(&locked), path }, dir));
        }
        remove_tree(part).map_err(failed)?;
    }
}

/// Removes a directory with all that is in it, also directories that may not be written to.
fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(path)?;
            fs::remove_dir_all(path)
        }
        other => other,
    }
}

fn make_writable(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}
