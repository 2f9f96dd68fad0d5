//! From a bundle in the input to code objects as archives store them: reading, checking, compressing.
//!
//! An entry of a plain bundle is read and compressed by one task of the pool. A large compressed bundle is
//! one stream: the driver decompresses it, hashing on the way, and each code object goes to the pool as
//! soon as it is whole. So one bundle keeps all cores busy, however large it is, and memory depends on
//! its code objects, not on the bundle. A smaller one the driver decompresses into memory in one go: its
//! code objects are compressed from there, and its hash is checked later, together with others'.

use std::cell::RefCell;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};

use super::input::InputFile;
use super::keep::Part;
use crate::buffers::Buffers;
use crate::error::Error;
use crate::fatbin::BundleError;
use crate::fatbin::bundle::{Bundle, BundleEntry, Form};
use crate::fatbin::code_object::{CodeObjectHeader, IsaCheck};
use crate::fatbin::content::{self, Content};
use crate::kpack::writer::{Compression, FrameCompressor, STREAM_OVER};
use crate::read_at::ReadAt;
use crate::target::TargetId;

/// A code object that one archive wants.
#[derive(Clone)]
pub(super) struct Wanted {
    pub archive: usize,
    pub object: usize,
    pub entry: usize,
    pub isa: TargetId,
    pub how: How,
    pub hashed: bool,
}

/// What is done with a code object.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub compression: Compression,
    /// Its digest is wanted.
    pub identify: bool,
    /// It is wanted to be packed: else the digest alone.
    pub pack: bool,
}

impl Wanted {
    /// Bytes that a code object of this size holds in memory while it is packed from a stream, and
    /// until it is written.
    fn streamed_cost(&self, size: u64) -> u64 {
        match self.how.compression {
            Compression::None => size,
            // Input and frame; a large one is streamed, and its frame rarely passes half its size.
            Compression::Zstd { .. } if size <= STREAM_OVER => size.saturating_mul(3) / 2,
            Compression::Zstd { .. } => size / 2,
        }
    }

    /// The same where its bytes are in memory before.
    fn held_cost(&self, size: u64) -> u64 {
        match self.how.compression {
            Compression::None => size,
            Compression::Zstd { .. } => size.saturating_mul(3) / 2,
        }
    }
}

/// What is read in one go: an entry of a plain bundle, or all wanted ones of a compressed bundle.
#[derive(Clone)]
pub(super) struct Item {
    /// Its number among all items: of several faults the first item's is told.
    pub number: usize,
    pub buffers: Arc<Buffers>,
    pub input: Arc<InputFile>,
    pub bundle: Arc<Bundle>,
    pub wanted: Vec<Wanted>,
}

/// A code object as it is stored in its archive.
pub(super) struct Packed {
    pub archive: usize,
    pub object: usize,
    pub stored: Vec<u8>,
    pub hash: Option<blake3::Hash>,
    /// Digest of the code object as it is in the input, where that is wanted.
    pub identity: Option<blake3::Hash>,
}

/// Why a code object cannot be packed or stored.
pub(super) struct Fault {
    /// The bundle that it is in, and the number of the item, where it is the input's.
    of: Option<(usize, Arc<Bundle>)>,
    error: Error,
}

impl Fault {
    /// Whether a fault of this bundle is the cause.
    pub fn is_of(&self, bundle: &Arc<Bundle>) -> bool {
        self.of.as_ref().is_some_and(|(_, own)| Arc::ptr_eq(own, bundle))
    }

    /// What orders faults: those of the output first, then by item.
    pub fn order(&self) -> Option<usize> {
        self.of.as_ref().map(|(number, _)| *number)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { of: None, error }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}

/// What ends the way through a bundle.
enum Stop {
    Damage(BundleError),
    Packing(Fault),
}

impl From<BundleError> for Stop {
    fn from(e: BundleError) -> Self {
        Self::Damage(e)
    }
}

impl Item {
    /// What it reads of its input: of a plain bundle the entry, of a compressed one all.
    pub fn range(&self) -> Range<u64> {
        let Bundle { offset, total_size, form, entries, .. } = &*self.bundle;
        match form {
            Form::Compressed(_) => *offset..offset.saturating_add(*total_size),
            Form::Plain => {
                let BundleEntry { offset: at, size, .. } = &entries[self.wanted[0].entry];
                let start = offset.saturating_add(*at);
                start..start.saturating_add(*size)
            }
        }
    }

    pub fn is_plain(&self) -> bool {
        self.bundle.form == Form::Plain
    }

    /// The task for the one code object of a plain bundle: it reads its input itself, or has `part`,
    /// which is exactly what [`Self::range`] says.
    pub fn task(self, part: Option<Part<Arc<Vec<u8>>>>) -> Task {
        let size = self.bundle.entries[self.wanted[0].entry].size;
        let (bytes, cost) = match part {
            None => (Bytes::Input, self.wanted[0].streamed_cost(size)),
            Some(part) => (Bytes::Part(part), self.wanted[0].held_cost(size)),
        };
        Task { item: self, bytes, cost }
    }

    /// The content of a compressed bundle that takes at most `most` bytes, as [`Content::read`].
    pub fn content(&self, file: &dyn ReadAt, most: u64) -> Option<Content> {
        Content::read(&self.bundle, file, most, &self.buffers)
    }

    /// Hands each wanted code object of a bundle that is in memory to `push`, as a task of its own.
    pub fn tasks(
        &self,
        content: &Arc<Content>,
        push: &mut dyn FnMut(Task) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut wanted: Vec<&Wanted> = self.wanted.iter().collect();
        wanted.sort_by_key(|wanted| self.bundle.entries[wanted.entry].offset);
        for wanted in wanted {
            let size = self.bundle.entries[wanted.entry].size;
            let bytes = Bytes::Of(Arc::clone(content));
            let frame = if wanted.how.compression == Compression::None { size } else { size / 2 };
            push(Task { item: self.only(wanted), bytes, cost: size.saturating_add(frame) })?;
        }
        Ok(())
    }

    /// The item with one wanted code object only.
    fn only(&self, wanted: &Wanted) -> Self {
        Self {
            number: self.number,
            buffers: Arc::clone(&self.buffers),
            input: Arc::clone(&self.input),
            bundle: Arc::clone(&self.bundle),
            wanted: vec![wanted.clone()],
        }
    }

    /// Decompresses a compressed bundle once and hands each wanted code object to `push`, as a task
    /// of its own. `file` is the input, or as much of it as [`Self::range`] says, at its place.
    /// Code objects that would hold more than `most` bytes stream to their task, which so must be
    /// able to run meanwhile.
    pub fn decompress(
        &self,
        file: &dyn ReadAt,
        most: u64,
        push: &mut dyn FnMut(Task) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let fail = |source| BundleError::Decompress { offset: self.bundle.offset, source };
        let done = self.bundle.for_each_entry(file, |entry, stream| {
            let Some(wanted) = self.of_entry(entry) else { return Ok(()) };
            let cost = wanted.held_cost(entry.size);
            let item = self.only(wanted);
            if let Ok(size) = usize::try_from(entry.size)
                && cost <= most
            {
                let mut bytes = self.buffers.take(size);
                bytes.resize(size, 0);
                stream.read_exact(&mut bytes).map_err(fail)?;
                let task = Task { item, bytes: Bytes::Held(bytes), cost };
                return push(task).map_err(Stop::Packing);
            }
            let (send, received) = bounded(4);
            let cost = wanted.streamed_cost(entry.size);
            push(Task { item, bytes: Bytes::Sent(received), cost }).map_err(Stop::Packing)?;
            let mut left = entry.size;
            while left > 0 {
                let size = usize::try_from(left).unwrap_or(SENT).min(SENT);
                let mut chunk = vec![0; size];
                stream.read_exact(&mut chunk).map_err(fail)?;
                left -= size as u64;
                if send.send(chunk).is_err() {
                    // It failed, and will say so.
                    break;
                }
            }
            Ok(())
        });
        match done {
            Ok(()) => Ok(()),
            Err(Stop::Damage(e)) => Err(self.damage(e)),
            Err(Stop::Packing(fault)) if !fault.is_of(&self.bundle) => Err(fault),
            // A damaged bundle explains whatever is wrong with the code objects in it.
            Err(Stop::Packing(fault)) => match self.bundle.verify(file) {
                Ok(()) => Err(fault),
                Err(e) => Err(self.damage(e)),
            },
        }
    }

    /// Reads, checks and compresses its code objects, and gives each to `done` as long as that says
    /// so. `file` is its input, or as much of it as [`Self::range`] says, at its place.
    pub fn pack(
        &self,
        file: &dyn ReadAt,
        done: &mut dyn FnMut(Packed) -> bool,
    ) -> Result<(), Fault> {
        let mut fault = None;
        let mut pack = |entry: &BundleEntry, stream: &mut dyn Read| -> Result<(), BundleError> {
            if let Some(wanted) = self.of_entry(entry)
                && fault.is_none()
            {
                fault = match self.pack_one(wanted, Origin::Stream(stream)) {
                    Ok(packed) => (!done(packed)).then(|| Error::failed("was given up").into()),
                    Err(fault) => Some(fault),
                };
            }
            Ok(())
        };
        let read = match self.bundle.form {
            Form::Compressed(_) => self.bundle.for_each_entry(file, pack),
            Form::Plain => {
                let entry = &self.bundle.entries[self.wanted[0].entry];
                let stream = self.bundle.open_entry(file, entry);
                stream.and_then(|mut stream| pack(entry, &mut stream))
            }
        };
        match (read, fault) {
            // A damaged bundle explains whatever is wrong with the code objects in it.
            (Err(e), _) => Err(self.damage(e)),
            (Ok(()), Some(fault)) => Err(fault),
            (Ok(()), None) => Ok(()),
        }
    }

    /// Checks the hash of its bundle.
    fn check(&self, content: &Content) -> Result<(), Fault> {
        content::check(&[content]).into_iter().try_for_each(|hash| hash.map_err(|e| self.damage(e)))
    }

    fn of_entry(&self, entry: &BundleEntry) -> Option<&Wanted> {
        self.wanted.iter().find(|wanted| self.bundle.entries[wanted.entry] == *entry)
    }

    fn damage(&self, e: BundleError) -> Fault {
        let message = format!("the bundle at {:#x}: cannot be read", self.bundle.offset);
        self.fault(Error::failed(message).because(e))
    }

    fn fault(&self, error: Error) -> Fault {
        let hint = "the input is damaged: build or copy it again";
        let error = error.at(self.input.path()).hint(hint);
        Fault { of: Some((self.number, Arc::clone(&self.bundle))), error }
    }

    /// Checks and compresses one code object.
    fn pack_one(&self, wanted: &Wanted, from: Origin) -> Result<Packed, Fault> {
        let size = self.bundle.entries[wanted.entry].size;
        let failed = |message: &str| {
            let Wanted { entry, .. } = wanted;
            Error::failed(format!(
                "the bundle at {:#x}, entry {entry}: {message}",
                self.bundle.offset
            ))
        };
        let Stored { stored, head, identity } = store(wanted.how, from, size, &self.buffers)
            .map_err(|e| self.fault(failed("cannot read the code object").because(e)))?;
        let header = CodeObjectHeader::parse(&head)
            .map_err(|e| self.fault(failed("is no code object").because(e)))?;
        if let (IsaCheck::Other, Some(found)) = (header.check(&wanted.isa), &header.target) {
            return Err(self.fault(failed(&format!(
                "a code object is filed under {} but its e_flags say {found}",
                wanted.isa
            ))));
        }
        Ok(Packed {
            archive: wanted.archive,
            object: wanted.object,
            // Equal code objects make equal frames, which are smaller to hash.
            hash: (wanted.hashed && wanted.how.pack).then(|| blake3::hash(&stored)),
            stored,
            identity,
        })
    }
}

/// Checks the hashes of bundles, all at once.
pub(super) fn check(bundles: &[(Item, Arc<Content>)]) -> Result<(), Fault> {
    let contents: Vec<&Content> = bundles.iter().map(|(_, content)| &**content).collect();
    let checked = bundles.iter().zip(content::check(&contents));
    checked.into_iter().try_for_each(|((item, _), hash)| hash.map_err(|e| item.damage(e)))
}

/// What goes to a task at once of a code object that streams to it.
const SENT: usize = 256 << 10;

/// A task for the pool: one code object.
pub(super) struct Task {
    item: Item,
    bytes: Bytes,
    /// Bytes that it holds in memory until its result is written.
    pub cost: u64,
}

/// Where a task has its bytes from.
enum Bytes {
    /// It reads the input.
    Input,
    /// A part of the input that is in memory.
    Part(Part<Arc<Vec<u8>>>),
    /// The code object is in memory.
    Held(Vec<u8>),
    /// The bundle is in memory.
    Of(Arc<Content>),
    /// The code object comes piece by piece.
    Sent(Receiver<Vec<u8>>),
}

impl Task {
    /// Does it.
    pub fn run(self) -> Result<Packed, Fault> {
        let Self { item, bytes, .. } = self;
        match bytes {
            Bytes::Input => {
                let cannot = |e| Error::io("cannot read", item.input.path(), e);
                let file = item.input.open().map_err(cannot)?;
                let mut packed = None;
                item.pack(&file, &mut |one| {
                    packed = Some(one);
                    true
                })?;
                Ok(packed.expect("an entry that could be read was packed"))
            }
            Bytes::Part(Part { bytes, .. }) => match Arc::try_unwrap(bytes) {
                Ok(bytes) => item.pack_one(&item.wanted[0], Origin::Held(bytes)),
                // Another archive wants it too.
                Err(shared) => {
                    item.pack_one(&item.wanted[0], Origin::Stream(&mut shared.as_slice()))
                }
            },
            Bytes::Held(bytes) => item.pack_one(&item.wanted[0], Origin::Held(bytes)),
            Bytes::Of(content) => {
                let BundleEntry { offset, size, .. } = item.bundle.entries[item.wanted[0].entry];
                let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
                let range = range.and_then(|(at, size)| content.get(at..)?.get(..size));
                let bytes = range.expect("a bundle's entries are in what its header claims");
                let packed = item.pack_one(&item.wanted[0], Origin::Slice(bytes));
                // A damaged bundle explains whatever is wrong with the code objects in it.
                packed.map_err(|fault| item.check(&content).err().unwrap_or(fault))
            }
            Bytes::Sent(chunks) => {
                let mut stream = Coming { chunks, current: Vec::new(), used: 0 };
                item.pack_one(&item.wanted[0], Origin::Stream(&mut stream))
            }
        }
    }
}

/// A code object to be packed.
enum Origin<'a> {
    Stream(&'a mut dyn Read),
    Held(Vec<u8>),
    Slice(&'a [u8]),
}

/// What [`store`] makes of a code object.
struct Stored {
    /// The stored form; empty where it is not to be packed.
    stored: Vec<u8>,
    /// The first bytes.
    head: Vec<u8>,
    /// The digest, where it is wanted.
    identity: Option<blake3::Hash>,
}

/// The stored form of a code object.
fn store(how: How, from: Origin, size: u64, buffers: &Buffers) -> io::Result<Stored> {
    let of = |bytes: &[u8]| {
        let head = bytes[..bytes.len().min(HEAD)].to_vec();
        (head, how.identify.then(|| blake3::hash(bytes)))
    };
    let (stored, (head, identity)) = match (how.pack.then_some(how.compression), from) {
        (None, Origin::Held(bytes)) => {
            let of = of(&bytes);
            buffers.give_back(bytes);
            (Vec::new(), of)
        }
        (None, Origin::Slice(bytes)) => (Vec::new(), of(bytes)),
        (None, Origin::Stream(stream)) => {
            let mut seen = Seen::new(stream, how.identify);
            if io::copy(&mut seen, &mut io::sink())? != size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (Vec::new(), seen.end())
        }
        (Some(Compression::None), Origin::Held(bytes)) => {
            let of = of(&bytes);
            (bytes, of)
        }
        (Some(Compression::None), Origin::Slice(bytes)) => {
            let mut stored = buffers.take(bytes.len());
            stored.clear();
            stored.extend_from_slice(bytes);
            (stored, of(bytes))
        }
        (Some(Compression::Zstd { level }), Origin::Slice(bytes)) => {
            (with_compressor(level, |compressor| compressor.compress_held(bytes))?, of(bytes))
        }
        (Some(Compression::None), Origin::Stream(stream)) => {
            let mut stored = buffers.take(usize::try_from(size).map_err(io::Error::other)?);
            stored.clear();
            stream.read_to_end(&mut stored)?;
            let of = of(&stored);
            (stored, of)
        }
        (Some(Compression::Zstd { level }), Origin::Held(bytes)) => {
            let frame = with_compressor(level, |compressor| compressor.compress_held(&bytes))?;
            let of = of(&bytes);
            buffers.give_back(bytes);
            (frame, of)
        }
        (Some(Compression::Zstd { level }), Origin::Stream(stream)) => {
            let mut seen = Seen::new(stream, how.identify);
            let frame = with_compressor(level, |compressor| compressor.compress(&mut seen, size))?;
            (frame, seen.end())
        }
    };
    Ok(Stored { stored, head, identity })
}

/// Lends this thread's compressor for the level.
fn with_compressor(
    level: i32,
    compress: impl FnOnce(&mut FrameCompressor) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    thread_local! {
        static COMPRESSOR: RefCell<Option<(i32, FrameCompressor)>> = const { RefCell::new(None) };
    }
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|(at, _)| *at != level) {
            *slot = Some((level, FrameCompressor::new(level)?));
        }
        let (_, compressor) = slot.as_mut().expect("just filled");
        compress(compressor)
    })
}

/// An ELF header's length.
const HEAD: usize = 64;

/// Passes a stream on, keeping its first bytes, and its digest where that is wanted.
struct Seen<'a> {
    stream: &'a mut dyn Read,
    head: Vec<u8>,
    hasher: Option<blake3::Hasher>,
}

impl<'a> Seen<'a> {
    fn new(stream: &'a mut dyn Read, identify: bool) -> Self {
        Self { stream, head: Vec::new(), hasher: identify.then(blake3::Hasher::new) }
    }

    fn end(self) -> (Vec<u8>, Option<blake3::Hash>) {
        (self.head, self.hasher.map(|hasher| hasher.finalize()))
    }
}

impl Read for Seen<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(buf)?;
        let wanted = HEAD.saturating_sub(self.head.len()).min(n);
        self.head.extend_from_slice(&buf[..wanted]);
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buf[..n]);
        }
        Ok(n)
    }
}

/// A code object that comes piece by piece.
struct Coming {
    chunks: Receiver<Vec<u8>>,
    current: Vec<u8>,
    used: usize,
}

impl Read for Coming {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.used == self.current.len() {
            // The end is where the sender is gone.
            let Ok(chunk) = self.chunks.recv() else { return Ok(0) };
            (self.current, self.used) = (chunk, 0);
        }
        let n = buf.len().min(self.current.len() - self.used);
        buf[..n].copy_from_slice(&self.current[self.used..self.used + n]);
        self.used += n;
        Ok(n)
    }
}
