//! Files of the input: on disk, or members of an archive.
//!
//! A member is read by position like a file, although an archive is a stream: what planning needs was
//! kept when the archive was read first, and the rest is read from the archive again, which is cheap
//! for one who goes forward and costs the way from the start for each step back. What needs all of a
//! member takes it as it streams by ([`super::gather`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::capabilities;
use crate::elf::{self, ElfError, Needs};
use crate::fatbin::bundle::Bundle;
use crate::read_at::{OpenFile, ReadAt, Window};
use crate::tarball::decode::{Decoded, Format};

/// Seconds. The times of a file are those of the kernel's last tick, and some file systems keep whole seconds: what is written
/// within that time may not show.
const RECENT: i64 = 3;

/// What a file looked like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    /// Device and inode; not known of a file of a plan that was kept.
    file: Option<(u64, u64)>,
    /// Modification time in seconds and nanoseconds, where it matters.
    time: Option<(i64, i64)>,
    len: u64,
}

impl Stamp {
    fn of(meta: &std::fs::Metadata) -> Self {
        Self {
            file: Some((meta.dev(), meta.ino())),
            time: Some((meta.mtime(), meta.mtime_nsec())),
            len: meta.len(),
        }
    }

    /// Refuses a file that is not what it was.
    fn check(&self, meta: &std::fs::Metadata) -> io::Result<()> {
        let now = Self::of(meta);
        if self.len == now.len
            && self.file.is_none_or(|file| Some(file) == now.file)
            && self.time.is_none_or(|time| Some(time) == now.time)
        {
            return Ok(());
        }
        Err(io::Error::other(match (self.file, self.len == now.len) {
            (Some(_), _) => "the file was changed while it was being read".to_owned(),
            (None, true) => "the file has another time than when it was planned with".to_owned(),
            (None, false) => {
                format!("the file has {} bytes; it was planned with {}", now.len, self.len)
            }
        }))
    }
}

/// A file of the input, with what it looked like when it was planned with. It is opened read-only,
/// anew for each use (so that plans over thousands of files hold no descriptors), and a file that
/// has changed since is refused.
#[derive(Debug)]
pub struct InputFile {
    path: PathBuf,
    len: u64,
    place: Place,
    /// Its extended attribute `security.capability`, where it is not on disk.
    capabilities: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Place {
    Disk(Stamp),
    Member(Member),
    /// In a file without a name.
    Spool {
        file: Arc<File>,
        offset: u64,
    },
}

/// A member of an archive.
#[derive(Debug)]
pub(super) struct Member {
    pub archive: Arc<ArchiveFile>,
    /// Where its content begins in the decompressed archive.
    pub offset: u64,
    /// What was kept of it.
    pub kept: Kept,
    /// Digest of its content, where asked for.
    pub digest: Option<blake3::Hash>,
}

/// What is in memory of a member.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Its bytes, by offset.
    pub ranges: Mutex<Ranges>,
    /// The bundles in it that its wrappers point at, so far as they were recognised; of a file that is a bundle that one.
    pub bundles: BTreeMap<u64, Arc<Bundle>>,
    /// What it asks of the loader, where it is a program and that could be told.
    pub needs: Option<Arc<Needs>>,
}

impl InputFile {
    /// Takes the path with its `lstat` data.
    pub fn new(path: PathBuf, metadata: &std::fs::Metadata) -> Self {
        let place = Place::Disk(Stamp::of(metadata));
        Self { path, len: metadata.len(), place, capabilities: None }
    }

    pub(super) fn member(
        path: PathBuf,
        len: u64,
        member: Member,
        capabilities: Option<Vec<u8>>,
    ) -> Self {
        Self { path, len, place: Place::Member(member), capabilities }
    }

    /// A file on disk of a plan that was kept: it must have this length and, where one is given, this
    /// modification time (seconds and nanoseconds).
    pub(super) fn planned(path: PathBuf, len: u64, time: Option<(i64, i64)>) -> Self {
        let place = Place::Disk(Stamp { file: None, time, len });
        Self { path, len, place, capabilities: None }
    }

    /// The modification time that it had, of a file on disk.
    pub(super) fn time(&self) -> Option<(i64, i64)> {
        match &self.place {
            Place::Disk(stamp) => stamp.time,
            _ => None,
        }
    }

    /// A stretch of a file without a name. `path` is for messages, `capabilities` are of what it was copied from.
    pub(crate) fn spooled(
        path: PathBuf,
        file: Arc<File>,
        offset: u64,
        len: u64,
        capabilities: Option<Vec<u8>>,
    ) -> Self {
        Self { path, len, place: Place::Spool { file, offset }, capabilities }
    }

    /// Its extended attribute `security.capability`: from the disk, or from the archive that it is in. `None` where it has none,
    /// or the file system has no such attributes.
    pub fn capabilities(&self) -> io::Result<Option<Vec<u8>>> {
        match &self.place {
            Place::Disk(_) => capabilities::of_file(&self.path),
            _ => Ok(self.capabilities.clone()),
        }
    }

    /// That of an archive's member, which was read with its name.
    pub(super) fn capabilities_of_member(&self) -> Option<&[u8]> {
        self.capabilities.as_deref()
    }

    /// The path, where the file lies on disk as it is.
    pub(crate) fn on_disk(&self) -> Option<&Path> {
        matches!(self.place, Place::Disk(_)).then_some(self.path.as_path())
    }

    /// The path in the file system; of a member, the archive's with the member's below.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What tells it from any other content without reading, for as long as the file lies where it is and is not touched: device,
    /// inode, size, times of its last modification and change. `None` where it is not on disk, is another one than was planned with,
    /// or was touched so recently that it could be touched again without showing.
    pub(crate) fn unchanged(&self) -> Option<[u64; 7]> {
        let Place::Disk(planned) = &self.place else { return None };
        let meta = self.path.symlink_metadata().ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs().cast_signed();
        let newest = meta.mtime().max(meta.ctime());
        let old = newest.checked_add(RECENT).is_some_and(|then| then <= now);
        let sign = i64::cast_unsigned;
        (old && planned.check(&meta).is_ok()).then(|| {
            [
                meta.dev(),
                meta.ino(),
                meta.len(),
                sign(meta.mtime()),
                sign(meta.mtime_nsec()),
                sign(meta.ctime()),
                sign(meta.ctime_nsec()),
            ]
        })
    }

    /// The archive that it is in and where its content begins, decompressed.
    pub(super) fn in_archive(&self) -> Option<(&Arc<ArchiveFile>, u64)> {
        match &self.place {
            Place::Member(member) => Some((&member.archive, member.offset)),
            _ => None,
        }
    }

    /// The offload bundles that are known without reading, by offset. There are some in members of
    /// archives only.
    pub fn bundles(&self) -> &BTreeMap<u64, Arc<Bundle>> {
        static NONE: BTreeMap<u64, Arc<Bundle>> = BTreeMap::new();
        match &self.place {
            Place::Member(member) => &member.kept.bundles,
            _ => &NONE,
        }
    }

    /// The BLAKE3 digest of its content, where it is known without reading.
    pub fn digest(&self) -> Option<blake3::Hash> {
        match &self.place {
            Place::Member(member) => member.digest,
            _ => None,
        }
    }

    /// What the file asks of the loader, and offers; `None` where it is no x86-64 program or library.
    /// Of a member of an archive that is mostly known without reading.
    pub fn needs(&self) -> Result<Option<Arc<Needs>>, ElfError> {
        if let Place::Member(Member { kept: Kept { needs: Some(needs), .. }, .. }) = &self.place {
            return Ok(Some(Arc::clone(needs)));
        }
        let cannot = |source| ElfError::Read { what: "the file".into(), offset: 0, source };
        let open = self.open().map_err(cannot)?;
        Ok(match elf::probe(&open)? {
            elf::Kind::Program(image) => Some(Arc::new(Needs::read(&open, &image)?)),
            _ => None,
        })
    }

    /// Opens it for reading at any place.
    pub fn open(&self) -> io::Result<OpenInput<'_>> {
        Ok(OpenInput(match &self.place {
            Place::Disk(_) => Opened::File(OpenFile::new(self.open_disk()?, self.len)),
            Place::Member(member) => {
                let forward = Mutex::new(Forward::default());
                Opened::Member(MemberReader { member, len: self.len, forward })
            }
            Place::Spool { file, offset } => {
                let end = offset.saturating_add(self.len);
                let file = OpenFile::new(file.try_clone()?, end);
                let window = Window::new(file, *offset, self.len);
                Opened::Spool(window.ok_or(io::ErrorKind::UnexpectedEof)?)
            }
        }))
    }

    /// Opens it as a plain file, positioned at its start, where it is one.
    pub(super) fn open_file(&self) -> io::Result<Option<File>> {
        match &self.place {
            Place::Disk(_) => self.open_disk().map(Some),
            _ => Ok(None),
        }
    }

    fn open_disk(&self) -> io::Result<File> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = File::options().read(true).custom_flags(no_follow).open(&self.path)?;
        match &self.place {
            Place::Disk(stamp) => stamp.check(&file.metadata()?)?,
            _ => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(file)
    }
}

/// An open [`InputFile`].
pub struct OpenInput<'a>(Opened<'a>);

enum Opened<'a> {
    File(OpenFile),
    Member(MemberReader<'a>),
    Spool(Window<OpenFile>),
}

impl ReadAt for OpenInput<'_> {
    fn len(&self) -> u64 {
        match &self.0 {
            Opened::File(file) => file.len(),
            Opened::Member(member) => member.len,
            Opened::Spool(window) => window.len(),
        }
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.0 {
            Opened::File(file) => file.read_exact_at(buf, offset),
            Opened::Member(member) => member.read_exact_at(buf, offset),
            Opened::Spool(window) => window.read_exact_at(buf, offset),
        }
    }
}

/// An archive of the input, with what it looked like when it was read first.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ArchiveFile {
    path: PathBuf,
    format: Format,
    stamp: Stamp,
}

impl ArchiveFile {
    /// Takes the path, which says the format by its ending.
    pub(super) fn new(path: &Path, format: Format) -> io::Result<Self> {
        let stamp = Stamp::of(&path.metadata()?);
        Ok(Self { path: path.to_owned(), format, stamp })
    }

    /// One of a plan that was kept, as [`InputFile::planned`]. `None` where its name is no archive's.
    pub(super) fn planned(path: PathBuf, len: u64, time: Option<(i64, i64)>) -> Option<Self> {
        let (_, format) = Format::of_name(path.file_name()?.to_str()?)?;
        Some(Self { path, format, stamp: Stamp { file: None, time, len } })
    }

    /// Length in bytes, compressed, and the modification time that it had.
    pub(super) fn looks(&self) -> (u64, Option<(i64, i64)>) {
        (self.stamp.len, self.stamp.time)
    }

    /// The path in the file system.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to decompress it; with `digest` for [`Decoded::digest`].
    pub(super) fn open(&self, digest: bool) -> io::Result<Decoded> {
        let file = File::open(&self.path)?;
        self.stamp.check(&file.metadata()?)?;
        Ok(Decoded::new(file, self.format, digest))
    }
}

/// What a stretch takes beside its bytes, roughly.
const STRETCH: u64 = 96;

/// Stretches of a file in memory.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    by_offset: BTreeMap<u64, Vec<u8>>,
    held: u64,
}

impl Ranges {
    /// Adds bytes, to the last stretch where they follow it.
    pub fn push(&mut self, offset: u64, bytes: &[u8]) {
        self.held += bytes.len() as u64;
        if let Some((start, last)) = self.by_offset.range_mut(..=offset).next_back()
            && start + last.len() as u64 == offset
        {
            last.extend_from_slice(bytes);
            return;
        }
        self.held += STRETCH;
        self.by_offset.insert(offset, bytes.to_vec());
    }

    /// Bytes that they take.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// The bytes from `offset` on, where one stretch has them all.
    pub fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let (start, bytes) = self.by_offset.range(..=offset).next_back()?;
        let from = usize::try_from(offset - start).ok()?;
        bytes.get(from..from.checked_add(len)?)
    }
}

/// Reads a member at any place.
struct MemberReader<'a> {
    member: &'a Member,
    len: u64,
    forward: Mutex<Forward>,
}

/// A way through an archive, and how often it was begun.
#[derive(Default)]
struct Forward {
    stream: Option<Decoded>,
    /// Where the stream stands, in the decompressed archive.
    at: u64,
    /// What was read last, up to there.
    last: Vec<u8>,
    begun: u32,
}

/// What is read of a member at once at least, and what is kept of it when it is read at single places.
const AHEAD: u64 = 64 << 10;
const KEPT_MAX: u64 = 16 << 20;

/// No plan goes back so often: a file that makes one do so is made to waste time.
const BEGUN_MAX: u32 = 256;

impl MemberReader<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.len);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if self.kept(buf, offset) {
            return Ok(());
        }
        let mut forward = self.forward.lock().unwrap_or_else(PoisonError::into_inner);
        let Member { archive, offset: start, kept, .. } = self.member;
        forward.read(archive, start + offset, start + self.len, buf)?;
        // Headers are often read again, by another reader.
        let mut ranges = kept.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if buf.len() as u64 <= AHEAD && ranges.held() < KEPT_MAX {
            ranges.push(offset, buf);
        }
        Ok(())
    }

    fn kept(&self, buf: &mut [u8], offset: u64) -> bool {
        let ranges = self.member.kept.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let there = ranges.get(offset, buf.len());
        if let Some(there) = there {
            buf.copy_from_slice(there);
        }
        there.is_some()
    }
}

impl Forward {
    /// Fills `buf` from this place of the decompressed archive. Small reads are answered from larger
    /// ones, which end before `limit`.
    fn read(
        &mut self,
        archive: &ArchiveFile,
        place: u64,
        limit: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let mut there = 0;
        if let Some(back) = self.at.checked_sub(place)
            && let Some(from) = (self.last.len() as u64).checked_sub(back)
        {
            let last = &self.last[usize::try_from(from).unwrap_or_default()..];
            there = last.len().min(buf.len());
            buf[..there].copy_from_slice(&last[..there]);
        }
        let (place, rest) = (place + there as u64, &mut buf[there..]);
        if rest.is_empty() {
            return Ok(());
        }
        let size = limit.saturating_sub(place).min(AHEAD);
        if rest.len() as u64 >= size {
            self.last.clear();
            return self.go(archive, place, rest);
        }
        let mut block = vec![0; usize::try_from(size).unwrap_or_default()];
        self.go(archive, place, &mut block)?;
        rest.copy_from_slice(&block[..rest.len()]);
        self.last = block;
        Ok(())
    }

    fn go(&mut self, archive: &ArchiveFile, place: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.at > place || self.stream.is_none() {
            self.begun += 1;
            if self.begun > BEGUN_MAX {
                return Err(io::Error::other(format!(
                    "reading it would make the archive be read more than {BEGUN_MAX} times"
                )));
            }
            self.at = 0;
            self.last.clear();
            self.stream = Some(archive.open(false)?);
        }
        let stream = self.stream.as_mut().expect("just opened");
        let read = skip(stream, place - self.at).and_then(|()| stream.read_exact(buf));
        self.at = place + buf.len() as u64;
        if read.is_err() {
            self.stream = None;
            self.at = 0;
        }
        read
    }
}

fn skip(stream: &mut Decoded, mut n: u64) -> io::Result<()> {
    while n > 0 {
        let chunk = stream.chunk()?.len();
        if chunk == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let step = usize::try_from(n).unwrap_or(usize::MAX).min(chunk);
        stream.consume(step);
        n -= step as u64;
    }
    Ok(())
}
