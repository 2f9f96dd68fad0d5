//! A cache of what is expensive to make, for the next run: by content, checked whenever it is used, bounded in size.
//!
//! ```text
//! DIR/CACHEDIR.TAG        for backup programs
//! DIR/v1/lock             each run holds it shared; who gets it alone clears tmp/
//! DIR/v1/tmp/             entries that are being written
//! DIR/v1/KIND/ab/cd…      an entry, by its key in hex: payload · extra · u32 size of extra · checksum · magic
//! ```
//!
//! A [`Key`] is the BLAKE3 digest of everything that the payload depends on, the program itself among it; so an entry is never
//! out of date, only unused. The checksum is keyed by the key: damage is seen, and so is an entry under another's name. An entry gets
//! its name when it is whole. A cache that cannot be read or written costs time and nothing else: what goes wrong in it is in the
//! [`Report`], and is no error.

mod entry;
mod key;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

pub use key::{Key, KeyBuilder};

use crate::error::{Error, Result};

/// What an entry is of: a folder each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A kpack archive.
    Kpack,
    /// A whole package.
    Package,
    /// Another key, or nothing: that there is something.
    Hint,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Kpack, Self::Package, Self::Hint];

    fn folder(self) -> &'static str {
        match self {
            Self::Kpack => "kpack",
            Self::Package => "package",
            Self::Hint => "hint",
        }
    }
}

/// What came of the entries of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Entries that were there, and used.
    pub taken: u64,
    /// Their bytes.
    pub taken_bytes: u64,
    /// What had to be made.
    pub made: u64,
    /// Bytes of it that were kept for the next run.
    pub kept_bytes: u64,
}

/// What a run had of the cache.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Kpack archives.
    pub kpacks: Counts,
    /// Whole packages.
    pub packages: Counts,
    /// Entries whose checksum was wrong: they are removed, and made again.
    pub damaged: Vec<PathBuf>,
    /// Entries that were removed, the least recently used first, to keep within the size.
    pub evicted: u64,
    /// Why nothing more was kept, where something went wrong.
    pub problem: Option<String>,
}

/// An open cache. Several runs may have one open at the same time.
#[derive(Debug)]
pub struct Cache {
    /// `DIR/v1`.
    root: PathBuf,
    /// Bytes that entries may take together.
    limit: u64,
    /// Digest of the program: another one may make other bytes.
    maker: [u8; 32],
    /// Held open for its lock.
    _lock: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Bytes of all entries, so far as this run knows.
    held: u64,
    report: Report,
}

/// What an entry had.
#[derive(Debug)]
pub struct Taken {
    /// Bytes of the payload.
    pub size: u64,
    /// What was kept with it.
    pub extra: Vec<u8>,
}

/// What a directory entry takes beside its content, roughly: small entries are many.
const OVERHEAD: u64 = 4 << 10;

impl Cache {
    /// Opens the cache in `dir`, which is made where it does not exist. Its entries together take at most `limit` bytes.
    /// Of one that may only be read entries are taken and none kept, which is in the report. Fails where the directory cannot be
    /// made or locked, or is full of something else.
    pub fn open(dir: &Path, limit: u64) -> Result<Self, Error> {
        let failed = |e| Error::io("cannot be used as a cache", dir, e);
        let root = dir.join("v1");
        if !root.exists() && fs::read_dir(dir).is_ok_and(|mut listing| listing.next().is_some()) {
            return Err(Error::usage("has other things in it, and is no cache")
                .at(dir)
                .hint("name a directory of its own, which need not exist yet"));
        }
        let (lock, problem) = match Self::occupy(dir, &root) {
            Ok(lock) => (lock, None),
            // One that others filled, as of an image or a mount, still gives what it has.
            Err(e) if is_read_only(&e) && root.is_dir() => {
                let lock = File::open(root.join("lock")).map_err(failed)?;
                (lock, Some(format!("{}: {e}", dir.display())))
            }
            Err(e) => return Err(failed(e)),
        };
        flock(&lock, FlockOperation::LockShared).map_err(|e| failed(e.into()))?;
        let maker = key::program().map_err(failed)?;
        let state = State { held: 0, report: Report { problem, ..Report::default() } };
        let cache = Self { root, limit, maker, _lock: lock, state: Mutex::new(state) };
        cache.evict(0);
        Ok(cache)
    }

    /// Makes what is not there yet, and clears up where nobody else has it; gives the file to lock.
    fn occupy(dir: &Path, root: &Path) -> io::Result<File> {
        fs::create_dir_all(root.join("tmp"))?;
        fs::write(dir.join("CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n")?;
        let lock =
            File::options().create(true).truncate(false).write(true).open(root.join("lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Nobody else is here: what is in tmp/ was left by runs that were killed.
            for file in fs::read_dir(root.join("tmp"))?.flatten() {
                let _ = fs::remove_file(file.path());
            }
        }
        Ok(lock)
    }

    /// Begins a key. `what` says what kind of key it is.
    pub fn key(&self, what: &str) -> KeyBuilder {
        let mut key = KeyBuilder::new(what);
        key.bytes(&self.maker);
        key
    }

    /// Whether there is a hint of this key.
    pub fn knows(&self, key: &Key) -> bool {
        self.hint(key).is_some()
    }

    /// The key that was kept as a hint.
    pub fn hint(&self, key: &Key) -> Option<Key> {
        let path = self.path(Kind::Hint, key);
        let (entry, file) = entry::Reader::open(&path).ok()?;
        let mut bytes = Vec::new();
        if !entry.copy_to(&file, key, &mut bytes).is_ok_and(|whole| whole) {
            self.damaged(&path);
            return None;
        }
        touch(&file);
        Key::from_slice(&bytes)
    }

    /// Keeps a key as a hint.
    pub fn keep_hint(&self, key: &Key, hint: &Key) {
        self.keep_as(Kind::Hint, key, &mut hint.as_bytes().as_slice(), &[]);
    }

    /// Copies an entry to `out`, an empty file that is open for writing, and checks it. `None`, with `out` empty again, where there
    /// is none or it is damaged. Fails where `out` cannot be written.
    pub fn take(
        &self,
        kind: Kind,
        key: &Key,
        out: &File,
        out_path: &Path,
    ) -> Result<Option<Taken>, Error> {
        let path = self.path(kind, key);
        let Ok((entry, file)) = entry::Reader::open(&path) else {
            if path.exists() {
                self.damaged(&path);
            }
            return Ok(None);
        };
        let failed = |e| Error::output("cannot write", out_path, e);
        let mut writer = out;
        match entry.copy_to(&file, key, &mut writer) {
            Ok(true) => {}
            Ok(false) => {
                self.damaged(&path);
                entry::empty(out).map_err(failed)?;
                return Ok(None);
            }
            Err(entry::Failure::Write(e)) => return Err(failed(e)),
            Err(entry::Failure::Read(e)) => {
                self.problem(&path, &e);
                entry::empty(out).map_err(failed)?;
                return Ok(None);
            }
        }
        touch(&file);
        let taken = Taken { size: entry.payload(), extra: entry.into_extra() };
        self.count(kind, |counts| {
            counts.taken += 1;
            counts.taken_bytes += taken.size;
        });
        Ok(Some(taken))
    }

    /// Keeps the content of a file, which is read from its start, with `extra`, which [`Self::take`] gives back.
    pub fn keep(&self, kind: Kind, key: &Key, path: &Path, extra: &[u8]) {
        self.count(kind, |counts| counts.made += 1);
        match File::open(path) {
            Ok(mut file) => self.keep_as(kind, key, &mut file, extra),
            Err(e) => self.problem(path, &e),
        }
    }

    /// Counts something that was made and cannot be kept.
    pub fn made(&self, kind: Kind) {
        self.count(kind, |counts| counts.made += 1);
    }

    /// What the run had of it so far.
    pub fn report(&self) -> Report {
        self.state().report.clone()
    }

    fn keep_as(&self, kind: Kind, key: &Key, from: &mut dyn io::Read, extra: &[u8]) {
        if self.state().report.problem.is_some() {
            return;
        }
        let path = self.path(kind, key);
        // A name by chance: runs on several machines, or in several containers, may have the same process number. Others may
        // read it, as far as the umask lets them.
        let part = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(self.root.join("tmp"));
        let kept = part.and_then(|part| {
            let size = entry::write(part.as_file(), key, from, extra)?;
            if size > self.limit {
                return Ok(0);
            }
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            part.persist(&path)?;
            Ok(size)
        });
        match kept {
            Ok(size) => {
                self.count(kind, |counts| counts.kept_bytes += size);
                let mut state = self.state();
                state.held = state.held.saturating_add(size + OVERHEAD);
                let full = state.held > self.limit;
                drop(state);
                if full {
                    // Room for some more, so that not every entry looks at all of them.
                    self.evict(self.limit / 10);
                }
            }
            Err(e) => self.problem(&path, &e),
        }
    }

    /// Removes entries, the least recently used first, until all take at most the limit, and `room` less where they take more.
    fn evict(&self, room: u64) {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for kind in Kind::ALL {
            let folders =
                fs::read_dir(self.root.join(kind.folder())).into_iter().flatten().flatten();
            for file in
                folders.filter_map(|folder| fs::read_dir(folder.path()).ok()).flatten().flatten()
            {
                if let Ok(meta) = file.metadata()
                    && let Ok(used) = meta.modified()
                {
                    entries.push((used, meta.len() + OVERHEAD, file.path()));
                }
            }
        }
        let mut held: u64 = entries.iter().map(|(_, size, _)| size).sum();
        let mut evicted = 0;
        if held > self.limit {
            entries.sort();
            for (_, size, path) in entries {
                if held <= self.limit - room {
                    break;
                }
                // Who has it open reads on.
                if fs::remove_file(path).is_ok() {
                    held -= size;
                    evicted += 1;
                }
            }
        }
        let mut state = self.state();
        state.held = held;
        state.report.evicted += evicted;
    }

    fn path(&self, kind: Kind, key: &Key) -> PathBuf {
        let hex = key.to_hex();
        let (folder, name) = hex.split_at(2);
        self.root.join(kind.folder()).join(folder).join(name)
    }

    fn damaged(&self, path: &Path) {
        let _ = fs::remove_file(path);
        self.state().report.damaged.push(path.to_owned());
    }

    fn problem(&self, path: &Path, e: &io::Error) {
        self.state().report.problem.get_or_insert_with(|| format!("{}: {e}", path.display()));
    }

    fn count(&self, kind: Kind, count: impl FnOnce(&mut Counts)) {
        let report = &mut self.state().report;
        match kind {
            Kind::Kpack => count(&mut report.kpacks),
            Kind::Package => count(&mut report.packages),
            Kind::Hint => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_read_only(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// Notes that an entry was used.
fn touch(file: &File) {
    let _ = file.set_modified(SystemTime::now());
}
