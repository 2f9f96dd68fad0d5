//! What a repository keeps between runs below `.gfxpack`: its [`State`], which `state_file` reads and writes.
//!
//! A run that changes the repository holds the lock `.gfxpack/lock`. What a run that was killed had under way is
//! finished or dropped by the next one that changes something: see [`super::publish`].

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::brief::{self, Chunk, Package};
use super::closed::Left;
use super::pieces::Block;
use super::publish;
use super::rpm::Compression;
use crate::date;
use crate::error::{Error, Result};
use crate::jobs::Jobs;

/// The directory with what the next run needs, in that of the repository.
pub(super) const OWN: &str = ".gfxpack";

/// What was said when the repository was made, or later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `Suite` of the Release, and the directory below `dists/`.
    pub suite: String,
    /// `Codename`, where it is another than the suite.
    pub codename: Option<String>,
    /// `Origin`: who publishes. The `.sources` and `.repo` files are called after it.
    pub origin: String,
    /// `Label`, for people and for pinning.
    pub label: String,
    /// Components and the globs of their packages' names, the first that matches; all others are in
    /// [`Settings::MAIN`].
    pub rules: Vec<(String, String)>,
    /// Architectures of Debian that have an index even without packages.
    pub architectures: Vec<String>,
    /// Days after which a Release is no longer to be trusted; never where it is left out.
    pub valid_days: Option<u32>,
    /// Where clients find the repository's directory: `https://repo.example.org/rocm`.
    pub url: Option<String>,
    /// Publications whose indices and packages stay, beside the newest.
    pub keep_publications: u64,
    /// Days, counted between the dates of publications, for which they stay as well.
    pub keep_days: u32,
    /// How the documents of `rpm/repodata` are compressed.
    pub rpm_compression: Compression,
    /// `Description` of the Release, for people; nothing where it is left out.
    #[serde(default)]
    pub description: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            suite: "stable".to_owned(),
            codename: None,
            origin: "gfxpack".to_owned(),
            label: "gfxpack".to_owned(),
            rules: Vec::new(),
            architectures: vec!["amd64".to_owned()],
            valid_days: None,
            url: None,
            keep_publications: 3,
            keep_days: 2,
            rpm_compression: Compression::Zstd,
            description: None,
        }
    }
}

impl Settings {
    /// The component of packages that no rule is for.
    pub const MAIN: &str = "main";

    /// The names of the components.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        std::iter::once(Self::MAIN).chain(self.rules.iter().map(|(name, _)| name.as_str()))
    }

    /// Until when a publication of a date is to be trusted, both in seconds since 1970; nothing where that is for ever.
    pub(super) fn valid_until(&self, date: i64) -> Option<i64> {
        self.valid_days.map(|days| date.saturating_add(i64::from(days) * 86_400))
    }

    /// The origin as a part of file names: lower case, letters, digits and `-`.
    pub fn name(&self) -> String {
        let words = self.origin.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<String> =
            words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
        if words.is_empty() { "repository".to_owned() } else { words.join("-") }
    }
}

/// A package of the repository, and how to see that its file is still the one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// What is known of it. Lists of packages share it.
    pub record: Arc<Package>,
    /// When the file was last written, in nanoseconds since 1970, as the file system says.
    pub mtime: i64,
}

/// A file that the newest publication does not refer to, and that those may still ask for who have read an
/// older one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Old {
    /// Below the repository's directory.
    pub path: String,
    /// The digest of a package, whose name must not come back with other bytes.
    pub sha256: Option<[u8; 32]>,
    /// The first publication that does not refer to it.
    pub since: u64,
    /// The date of that, in seconds since 1970.
    pub date: i64,
}

/// All that is known of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What it is called and how it is published.
    pub settings: Settings,
    /// Number of the newest publication; 0 before the first.
    pub publication: u64,
    /// Its date in seconds since 1970.
    pub date: i64,
    /// Whether it is signed.
    pub signed: bool,
    /// The packages, sorted ([`Package::order`](super::record::Record::order)). Its file has them apart.
    #[serde(skip)]
    pub packages: Vec<Stored>,
    /// Indices that are called after their content, below the repository's directory.
    pub named: Vec<String>,
    /// What is only there for those who have read an older publication.
    pub old: Vec<Old>,
    /// Files with fixed names of the newest publication, below the repository's directory.
    #[serde(default)]
    pub fixed: Vec<String>,
    /// Fingerprint of the key that it is signed with, where that is known.
    #[serde(default)]
    pub key: Option<String>,
    /// Packages of which no version is left and that clients may have, as far as these would be held back by others.
    #[serde(default)]
    pub left: Vec<Left>,
    /// Pieces of compressed indices of the newest publication. Its file has them apart.
    #[serde(skip)]
    pub blocks: Vec<Block>,
}

impl State {
    /// The date of the newest publication, as `2026-01-05T12:00:00Z`; nothing before the first.
    pub fn published(&self) -> Option<String> {
        (self.publication > 0).then(|| date::iso(self.date))
    }

    /// A repository without packages, never published.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            publication: 0,
            date: 0,
            signed: false,
            packages: Vec::new(),
            named: Vec::new(),
            old: Vec::new(),
            fixed: Vec::new(),
            key: None,
            left: Vec::new(),
            blocks: Vec::new(),
        }
    }
}

/// What a state has of its packages beside a [`Brief`](brief::Brief) of each.
pub(super) fn chunks(packages: &[Stored], jobs: &Jobs) -> Result<Vec<Chunk>> {
    let briefs: Vec<_> = packages.iter().map(|stored| &stored.record.part).collect();
    brief::chunks(&briefs, jobs)
}

/// Where a repository is, and where its own files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// The repository's directory.
    pub dir: PathBuf,
}

impl Places {
    /// What the program keeps.
    pub fn own(&self) -> PathBuf {
        self.dir.join(OWN)
    }

    /// Where a package's file is.
    pub fn file(&self, record: &Package) -> PathBuf {
        self.dir.join(record.file())
    }

    pub fn state(&self) -> PathBuf {
        self.own().join("state")
    }

    /// Files on their way into the repository. Nobody needs them after a run.
    pub fn incoming(&self) -> PathBuf {
        self.own().join("incoming")
    }

    /// What a run is about to bring to places where nothing is.
    pub fn arrivals(&self) -> PathBuf {
        self.own().join("arrivals")
    }

    /// A publication that is being prepared.
    pub fn part(&self) -> PathBuf {
        self.own().join("next.part")
    }

    /// A publication that is decided.
    pub fn next(&self) -> PathBuf {
        self.own().join("next")
    }
}

/// A repository that this run may change.
#[derive(Debug)]
pub struct Repository {
    pub(super) places: Places,
    /// What is published.
    pub state: State,
    /// Whether this run made the directory.
    made: bool,
    /// Held open for its lock.
    _lock: File,
}

impl Repository {
    /// Makes a repository in a directory that is empty or does not exist. Nothing is published yet.
    pub fn create(dir: &Path, settings: Settings) -> Result<Self> {
        let places = Places { dir: dir.to_owned() };
        let own = places.own();
        // Before anything is made in a directory that is of something else. What a run has left that was killed is removed
        // when the lock is held.
        if !places.arrivals().exists() || places.state().exists() {
            vacant(&places)?;
        }
        let made = !dir.exists();
        fs::create_dir_all(&own).map_err(|e| Error::output("cannot make", &own, e))?;
        let lock = lock(&own)?;
        // Another run may have published until now.
        if !places.state().exists() && !places.next().exists() {
            publish::withdraw(&places, &State::new(settings.clone()))?;
        }
        vacant(&places)?;
        let made = Self { places, state: State::new(settings), made, _lock: lock };
        publish::clear(&made.places)?;
        Ok(made)
    }

    /// Opens a repository to change it. A publication that was decided and not finished is finished first.
    pub fn open(dir: &Path, jobs: &Jobs) -> Result<Self> {
        let places = Places { dir: dir.to_owned() };
        let own = places.own();
        if !own.is_dir() {
            return Err(Error::failed("there is no repository here")
                .at(dir)
                .hint("make one with gfxpack repo create DIR")
                .into());
        }
        let lock = lock(&own)?;
        publish::finish(&places)?;
        publish::clear(&places)?;
        let state = State::read(&places.state(), jobs)?;
        publish::withdraw(&places, &state)?;
        Ok(Self { places, state, made: false, _lock: lock })
    }

    /// Reads what is published, without a lock. Only looks.
    pub fn look(dir: &Path, jobs: &Jobs) -> Result<State> {
        let places = Places { dir: dir.to_owned() };
        // Of a publication that is decided and not finished the state is the one to come.
        let next = places.next().join(publish::STATE);
        if next.exists()
            && let Ok(state) = State::read(&next, jobs)
        {
            return Ok(state);
        }
        State::read(&places.state(), jobs)
    }

    /// The repository's directory.
    pub fn dir(&self) -> &Path {
        &self.places.dir
    }
}

impl Drop for Repository {
    /// Best effort: what cannot be removed now is removed by the next run.
    fn drop(&mut self) {
        let _ = publish::clear(&self.places);
        // What is decided stays, and is finished.
        if !self.places.next().exists() {
            let _ = publish::withdraw(&self.places, &self.state);
        }
        // One that was not published is none.
        if !self.places.state().exists() && !self.places.next().exists() {
            let _ = fs::remove_file(self.places.own().join("lock"));
            let _ = fs::remove_dir(self.places.own());
            if self.made {
                let _ = fs::remove_dir(self.dir());
            }
        }
    }
}

/// Nanoseconds since 1970 when a file was last written.
pub(super) fn mtime(metadata: &fs::Metadata) -> i64 {
    nanoseconds(metadata.mtime(), metadata.mtime_nsec())
}

/// A time of a file system in nanoseconds.
pub(super) fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// Refuses a directory that something is in, beside what a run left that was killed before its first publication.
fn vacant(places: &Places) -> Result<()> {
    let occupied = match fs::read_dir(&places.dir) {
        Ok(mut listing) => {
            listing.any(|entry| entry.map_or(true, |entry| entry.file_name() != OWN))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(Error::io("cannot be a repository", &places.dir, e).into()),
    };
    if occupied || places.state().exists() || places.next().exists() {
        return Err(Error::usage("the directory of the new repository is not empty")
            .at(&places.dir)
            .hint("name another one; gfxpack repo add adds packages to a repository")
            .into());
    }
    Ok(())
}

fn lock(own: &Path) -> Result<File> {
    let path = own.join("lock");
    let cannot = |e| Error::output("cannot make", &path, e);
    let file = File::options().create(true).append(true).open(&path).map_err(cannot)?;
    let other = |e| {
        Error::io("another run is changing the repository", own, e)
            .hint("wait for it to end, and run this again")
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| other(e.into()))?;
    // A run that made no repository has removed the file meanwhile: whose lock this is nobody else asks for.
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (held, named) = (file.metadata().map(identity), fs::metadata(&path).map(identity));
    if held.map_err(other)? != named.map_err(other)? {
        return Err(other(io::ErrorKind::WouldBlock.into()).into());
    }
    Ok(file)
}
