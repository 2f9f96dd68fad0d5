//! Writing what comes out of an archive of the input in one pass over it: whole files as they stream
//! by, files made of pieces by positioned writes, and code objects, which go to the pool on the way to
//! their kpack archives.
//!
//! A decompressed archive is one long stretch of bytes, and each want is a range of it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Permissions};
use std::io;
use std::mem;
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, select};

use super::build::{self, Packing, Set};
use super::cached;
use super::capabilities;
use super::dir::set_mtime;
use super::input::ArchiveFile;
use super::keep::Part;
use super::pack::{Fault, Item, Packed};
use super::{Entry, KpackPlan, Source};
use crate::elf::Piece;
use crate::error::Error;
use crate::jobs::Jobs;
use crate::progress::Monitor;
use crate::read_at::ReadAt;

/// Where a file goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination<'a> {
    /// A new file, which gets the entry's mode and time.
    New(&'a Path, &'a Entry),
    /// A stretch of an open file; the path is for messages.
    At(&'a Path, &'a File, u64),
}

impl Destination<'_> {
    fn path(&self) -> &Path {
        match self {
            Self::New(path, _) | Self::At(path, _, _) => path,
        }
    }
}

/// What is wanted of one archive.
#[derive(Default)]
pub(crate) struct Gather<'a> {
    files: Vec<(&'a Source, Destination<'a>)>,
    sets: Vec<Vec<(&'a KpackPlan, &'a File, &'a Path)>>,
}

/// Memory that code objects may take while they stream by. In a sound file one comes after the other.
const HELD_MAX: u64 = 4 * HOLD_UP_TO;

/// Larger code objects and bundles are not held: they are taken as they come.
const HOLD_UP_TO: u64 = 16 << 20;

impl<'a> Gather<'a> {
    /// Wants a file: a source that is a member of the archive, or pieces of one.
    pub fn file(&mut self, source: &'a Source, to: Destination<'a>) {
        self.files.push((source, to));
    }

    /// Wants kpack archives, as [`super::build::kpacks`] makes them, of code objects in the archive.
    pub fn kpacks(&mut self, plans: Vec<(&'a KpackPlan, &'a File, &'a Path)>) {
        self.sets.push(plans);
    }

    /// Goes through the archive. Stops at the first fault.
    pub fn run(
        self,
        archive: &ArchiveFile,
        jobs: &Jobs,
        monitor: &dyn Monitor,
    ) -> Result<(), Error> {
        let _turn = jobs.turn();
        let mut wants = Vec::new();
        let mut files = Vec::new();
        for (source, to) in self.files {
            let mut out = Out { source, to, opened: false, file: None, left: 0 };
            match source {
                Source::Pieces { input, pieces } => {
                    let mut at = 0;
                    for piece in pieces.iter() {
                        if let Piece::Input { offset, len } = piece
                            && *len > 0
                        {
                            let start = place(input)?.saturating_add(*offset);
                            let to = To::File { file: files.len(), at };
                            wants.push(Want { range: start..start.saturating_add(*len), to });
                            out.left += 1;
                        }
                        at += piece.len();
                    }
                }
                Source::File(input) if !input.is_empty() => {
                    let start = place(input)?;
                    let range = start..start.saturating_add(input.len());
                    wants.push(Want { range, to: To::File { file: files.len(), at: 0 } });
                    out.left += 1;
                }
                _ => {}
            }
            if out.left == 0 {
                out.open()?;
                out.close()?;
            }
            files.push(out);
        }
        let mut sets = Vec::new();
        let mut items: BTreeMap<(u64, u64), Vec<(usize, Item)>> = BTreeMap::new();
        let beside: Vec<_> = self.sets.iter().flatten().copied().collect();
        let rooms = build::rooms(&beside, jobs);
        let mut missing = Vec::new();
        for plans in &self.sets {
            let of_set = match jobs.cache() {
                Some(cache) => cached::take(cache, plans, jobs, monitor)?,
                None => Vec::new(),
            };
            let wanted: Vec<_> = match jobs.cache() {
                Some(_) => of_set.iter().map(|missing| missing.plan).collect(),
                None => plans.clone(),
            };
            missing.extend(of_set);
            let (set, of_set) = Set::new(&wanted, false, &rooms)?;
            for item in of_set {
                let range = item.range();
                let start = place(&item.input)?;
                let range = (start.saturating_add(range.start), start.saturating_add(range.end));
                items.entry(range).or_default().push((sets.len(), item));
            }
            sets.push(set);
        }
        let all = items.values().flatten().map(|(_, item)| item);
        let packing = Packing::new(sets, all, jobs, monitor);
        for ((start, end), items) in items {
            wants.push(Want { range: start..end, to: To::Items { items, held: Held::Not } });
        }
        wants.sort_by_key(|want| (want.range.start, want.range.end));

        let mut passing = Passing { files, packing, held: 0, monitor };
        pass(archive, wants, &mut passing)?;
        passing.packing.finish()?;
        if let Some(cache) = jobs.cache() {
            missing.iter().for_each(|missing| missing.keep(cache, &[]));
        }
        Ok(())
    }
}

/// Where a member's content begins in the decompressed archive.
fn place(input: &super::InputFile) -> Result<u64, Error> {
    let place = input.in_archive().map(|(_, offset)| offset);
    place.ok_or_else(|| Error::failed("is not in an archive").at(input.path()))
}

/// A file that is being written.
struct Out<'a> {
    source: &'a Source,
    to: Destination<'a>,
    opened: bool,
    file: Option<File>,
    /// How many ranges are still to come.
    left: usize,
}

impl Out<'_> {
    fn failed(&self, e: io::Error) -> Error {
        let what = match super::dir::origin(self.source) {
            Some(from) => format!("cannot write what comes from {}", from.display()),
            None => "cannot write".to_owned(),
        };
        Error::output(&what, self.to.path(), e)
    }

    /// Makes the file, with the bytes that are not from the archive.
    fn open(&mut self) -> Result<(), Error> {
        self.opened = true;
        if let Destination::New(path, _) = self.to {
            self.file = Some(File::create_new(path).map_err(|e| self.failed(e))?);
        }
        if let Source::Pieces { pieces, .. } = self.source {
            let mut at = 0;
            for piece in pieces.iter() {
                if let Piece::Bytes(bytes) = piece {
                    self.write(bytes, at)?;
                }
                at += piece.len();
            }
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), Error> {
        let written = match (&self.to, &self.file) {
            (Destination::At(_, file, start), _) => file.write_all_at(bytes, start + at),
            (Destination::New(..), Some(file)) => file.write_all_at(bytes, at),
            (Destination::New(..), None) => Ok(()),
        };
        written.map_err(|e| self.failed(e))
    }

    fn close(&mut self) -> Result<(), Error> {
        if let (Destination::New(path, entry), Some(file)) = (self.to, self.file.take()) {
            file.set_permissions(Permissions::from_mode(entry.mode))
                .and_then(|()| capabilities::set(&file, self.source))
                .and_then(|()| set_mtime(path, entry.mtime))
                .map_err(|e| self.failed(e))?;
        }
        Ok(())
    }
}

/// A range of the decompressed archive, and what it is for.
struct Want {
    range: Range<u64>,
    to: To,
}

enum To {
    /// A stretch of a file from `at` on.
    File { file: usize, at: u64 },
    /// Items that read exactly this, each with its set.
    Items { items: Vec<(usize, Item)>, held: Held },
}

/// How items get their bytes.
enum Held {
    /// The range has not begun.
    Not,
    /// From memory.
    Here(Vec<u8>),
    /// Each from a thread that reads what is sent.
    Sent(Vec<Reading>),
}

/// A thread that packs an item whose bytes stream by.
struct Reading {
    set: usize,
    chunks: Sender<Arc<[u8]>>,
    packed: Receiver<Packed>,
    thread: JoinHandle<Result<(), Fault>>,
}

struct Passing<'a, 'j> {
    files: Vec<Out<'a>>,
    packing: Packing<'a, 'j>,
    held: u64,
    monitor: &'j dyn Monitor,
}

/// Reads the archive up to the last want.
fn pass(
    archive: &ArchiveFile,
    wants: Vec<Want>,
    passing: &mut Passing<'_, '_>,
) -> Result<(), Error> {
    if wants.is_empty() {
        return Ok(());
    }
    let cannot = |e| Error::io("cannot read", archive.path(), e);
    let mut stream = archive.open(false).map_err(cannot)?;
    let mut wants = wants.into_iter().peekable();
    let mut active: Vec<Want> = Vec::new();
    let mut at = 0;
    while wants.peek().is_some() || !active.is_empty() {
        let chunk = stream.chunk().map_err(cannot)?;
        if chunk.is_empty() {
            return Err(cannot(io::ErrorKind::UnexpectedEof.into()));
        }
        let end = at + chunk.len() as u64;
        while let Some(mut want) = wants.next_if(|want| want.range.start < end) {
            passing.begin(&mut want)?;
            active.push(want);
        }
        for want in &mut active {
            let from = want.range.start.max(at);
            let to = want.range.end.min(end);
            if from < to {
                let index = |at_byte: u64| usize::try_from(at_byte - at).unwrap_or(usize::MAX);
                let bytes = &chunk[index(from)..index(to)];
                passing.bytes(want, from - want.range.start, bytes)?;
            }
        }
        let mut i = 0;
        while i < active.len() {
            if active[i].range.end <= end {
                passing.end(active.remove(i))?;
            } else {
                i += 1;
            }
        }
        let n = chunk.len();
        stream.consume(n);
        at = end;
    }
    Ok(())
}

impl Passing<'_, '_> {
    fn begin(&mut self, want: &mut Want) -> Result<(), Error> {
        let size = want.range.end - want.range.start;
        match &mut want.to {
            To::File { file, .. } => {
                let out = &mut self.files[*file];
                if out.opened { Ok(()) } else { out.open() }
            }
            To::Items { items, held } if size > HOLD_UP_TO => {
                // Each is large: let go of what is held before.
                self.packing.settle()?;
                let readings = items.drain(..).map(|(set, item)| read(set, item));
                *held = Held::Sent(readings.collect::<Result<_, _>>()?);
                Ok(())
            }
            To::Items { items, held } => {
                self.held += size;
                if self.held > HELD_MAX {
                    let path = items.first().map(|(_, item)| item.input.path().to_owned());
                    return Err(Error::failed(format!(
                        "its code objects overlap: {} MiB of them at one place, expected at most {}",
                        self.held >> 20,
                        HELD_MAX >> 20
                    ))
                    .at(path.unwrap_or_default())
                    .hint("the file is damaged; unpacked, as a directory, it can be split"));
                }
                let size = usize::try_from(size).unwrap_or_default();
                let buffer = items.first().map(|(_, item)| item.rooms.buffers.take(size));
                let mut buffer = buffer.unwrap_or_default();
                buffer.clear();
                *held = Held::Here(buffer);
                Ok(())
            }
        }
    }

    fn bytes(&mut self, want: &mut Want, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        match &mut want.to {
            To::File { file, at } => {
                self.files[*file].write(bytes, *at + offset)?;
                self.monitor.advance(bytes.len() as u64);
            }
            To::Items { held: Held::Here(held), .. } => held.extend_from_slice(bytes),
            To::Items { held: Held::Sent(readings), .. } => {
                let chunk: Arc<[u8]> = bytes.into();
                for Reading { set, chunks, packed, .. } in readings {
                    loop {
                        select! {
                            // One that is through with it, or has failed, takes no more.
                            send(chunks, Arc::clone(&chunk)) -> _ => break,
                            recv(packed) -> packed => match packed {
                                Ok(packed) => self.packing.store(*set, packed)?,
                                Err(_) => break,
                            },
                        }
                    }
                }
            }
            To::Items { held: Held::Not, .. } => {}
        }
        Ok(())
    }

    fn end(&mut self, want: Want) -> Result<(), Error> {
        let Want { range, to } = want;
        match to {
            To::File { file, .. } => {
                let out = &mut self.files[file];
                out.left -= 1;
                if out.left == 0 {
                    out.close()?;
                }
            }
            To::Items { items, held: Held::Here(held) } => {
                self.held -= held.len() as u64;
                let mut bytes = Arc::new(held);
                let last = items.len().saturating_sub(1);
                for (i, (set, item)) in items.into_iter().enumerate() {
                    let base = item.range().start;
                    let len = item.input.len();
                    // The last one has it to itself, so that it need not copy it.
                    let bytes = if i == last { mem::take(&mut bytes) } else { Arc::clone(&bytes) };
                    let part = Part { base, bytes, len };
                    self.packing.item(set, item, part)?;
                }
            }
            To::Items { held: Held::Sent(readings), .. } => {
                for Reading { set, chunks, packed, thread } in readings {
                    drop(chunks);
                    for packed in packed {
                        self.packing.store(set, packed)?;
                    }
                    thread.join().expect("a thread that packs does not panic")?;
                }
            }
            To::Items { held: Held::Not, .. } => debug_assert!(range.is_empty()),
        }
        Ok(())
    }
}

/// Begins to pack an item whose bytes will be sent.
fn read(set: usize, item: Item) -> Result<Reading, Error> {
    let (chunks, received) = bounded(4);
    let at = item.range().start;
    let coming = Coming { chunks: received, current: Arc::from([]), used: 0, at };
    let sent = Sent { len: item.input.len(), coming: Mutex::new(coming) };
    let (done, packed) = bounded(1);
    let pack = move || item.pack(&sent, &mut |one| done.send(one).is_ok());
    let thread = thread::Builder::new().spawn(pack).map_err(Error::no_thread)?;
    Ok(Reading { set, chunks, packed, thread })
}

/// A stretch of a file that is being sent, read from its start to its end.
struct Sent {
    len: u64,
    coming: Mutex<Coming>,
}

struct Coming {
    chunks: Receiver<Arc<[u8]>>,
    current: Arc<[u8]>,
    used: usize,
    at: u64,
}

impl ReadAt for Sent {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        let mut skip = offset
            .checked_sub(coming.at)
            .ok_or_else(|| io::Error::other("what streams by can be read forward only"))?;
        let mut done = 0;
        while skip > 0 || done < buf.len() {
            if coming.used == coming.current[..].len() {
                let ended = |_| io::Error::from(io::ErrorKind::UnexpectedEof);
                coming.current = coming.chunks.recv().map_err(ended)?;
                coming.used = 0;
            }
            let there = coming.current[..].len() - coming.used;
            let n = if skip > 0 {
                let n = usize::try_from(skip).unwrap_or(usize::MAX).min(there);
                skip -= n as u64;
                n
            } else {
                let n = there.min(buf.len() - done);
                let from = coming.used;
                buf[done..done + n].copy_from_slice(&coming.current[from..from + n]);
                done += n;
                n
            };
            coming.used += n;
            coming.at += n as u64;
        }
        Ok(())
    }
}

/// Sources, each with what the caller knows it by.
pub(crate) type Sources<'a, T> = Vec<(&'a Source, T)>;

/// Sources by the archive of the input that they are made from.
pub(crate) struct ByArchive<'a, T> {
    /// In the order in which they come first.
    pub archives: Vec<(Arc<ArchiveFile>, Sources<'a, T>)>,
    /// Those that are made from something else.
    pub others: Sources<'a, T>,
}

/// Tells which sources are made from archives of the input.
pub(crate) fn by_archive<'a, T>(
    sources: impl Iterator<Item = (&'a Source, T)>,
) -> ByArchive<'a, T> {
    let mut found = ByArchive { archives: Vec::new(), others: Vec::new() };
    let mut places: HashMap<*const ArchiveFile, usize> = HashMap::new();
    for (source, what) in sources {
        match source.archive() {
            None => found.others.push((source, what)),
            Some(archive) => {
                let next = found.archives.len();
                let at = *places.entry(Arc::as_ptr(archive)).or_insert(next);
                if at == next {
                    found.archives.push((Arc::clone(archive), Vec::new()));
                }
                found.archives[at].1.push((source, what));
            }
        }
    }
    found
}
