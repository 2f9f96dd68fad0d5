//! From a bundle in the input to code objects as archives store them: reading, checking, compressing.
//!
//! An entry of a plain bundle is read and compressed by one task of the pool. A large compressed bundle is
//! one stream: the driver decompresses it, hashing on the way, and each code object goes to the pool as
//! soon as it is whole. So one bundle keeps all cores busy, however large it is, and memory depends on
//! its code objects, not on the bundle. A smaller one the driver decompresses into memory in one go: its
//! code objects are compressed from there, and its hash is checked later, together with others'.
//!
//! What is stored as it is in the input waits for its turn there, and not in memory.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};

use super::frames::{Frame, FrameWriter, Frames};
use super::input::{InputFile, OpenInput};
use super::keep::Part;
use crate::buffers::{Buffer, Buffers};
use crate::error::Error;
use crate::fatbin::BundleError;
use crate::fatbin::bundle::{Bundle, BundleEntry, Form};
use crate::fatbin::code_object::{CodeObjectHeader, IsaCheck};
use crate::fatbin::content::{self, Content};
use crate::kpack::writer::{Compression, FrameCompressor, STREAM_OVER};
use crate::read_at::ReadAt;
use crate::streams;
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
    /// Whether it is to be stored as it is.
    fn is_stored(&self) -> bool {
        self.how.pack && self.how.compression == Compression::None
    }

    /// Bytes that a code object of this size holds in memory while it is packed from a stream, and
    /// until it is written.
    fn streamed_cost(&self, size: u64) -> u64 {
        match self.how.compression {
            Compression::None => size,
            // Input and frame; a larger one is streamed, and takes no more.
            Compression::Zstd { .. } => size.min(STREAM_OVER).saturating_mul(3) / 2,
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

/// Memory for code objects.
#[derive(Clone)]
pub(super) struct Rooms {
    pub buffers: Arc<Buffers>,
    pub frames: Arc<Frames>,
}

/// What is read in one go: an entry of a plain bundle, or all wanted ones of a compressed bundle.
#[derive(Clone)]
pub(super) struct Item {
    /// Its number among all items: of several faults the first item's is told.
    pub number: usize,
    pub rooms: Rooms,
    pub input: Arc<InputFile>,
    pub bundle: Arc<Bundle>,
    pub wanted: Vec<Wanted>,
}

/// A code object as it is stored in its archive.
pub(super) struct Packed {
    pub archive: usize,
    pub object: usize,
    pub stored: Stored,
    pub hash: Option<blake3::Hash>,
    /// Digest of the code object as it is in the input, where that is wanted.
    pub identity: Option<blake3::Hash>,
}

/// Where the bytes are that are to be stored.
pub(super) enum Stored {
    /// It is not to be packed.
    Not,
    /// A frame, or the code object as it came by.
    Frame(Frame),
    /// The code object, in memory; the buffer can be used again.
    Held(Vec<u8>),
    /// The code object, in a bundle that is in memory.
    Of(Arc<Content>, Range<usize>),
    /// The code object, in the plain bundle of this item.
    Input(Box<Item>),
}

impl Stored {
    /// The same where it has to wait for others: no memory but that of `frames` is held meanwhile.
    pub fn keep(self, rooms: &Rooms) -> Result<Self, Error> {
        let keep = |bytes: &[u8]| {
            let mut writer = rooms.frames.begin(false);
            writer.write_all(bytes).map_err(|e| writer.failed().unwrap_or(e))?;
            writer.finish()
        };
        let kept = match &self {
            Self::Held(bytes) => keep(bytes),
            Self::Of(content, range) => keep(&content[range.clone()]),
            Self::Not | Self::Frame(_) | Self::Input(_) => return Ok(self),
        };
        let (frame, _) = kept.map_err(|e| rooms.frames.cannot_keep(e))?;
        if let Self::Held(bytes) = self {
            rooms.buffers.give_back(bytes);
        }
        Ok(Self::Frame(frame))
    }
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
            // It is read when it is stored.
            None if self.wanted[0].how.compression == Compression::None => (Bytes::Input, 0),
            None => (Bytes::Input, self.wanted[0].streamed_cost(size)),
            Some(part) => (Bytes::Part(part), self.wanted[0].held_cost(size)),
        };
        Task { item: self, bytes, cost }
    }

    /// The bytes that its bundle takes in memory, where it is compressed and best decompressed whole: at most `most`.
    pub fn whole(&self, most: u64) -> Option<usize> {
        let size = Content::size(&self.bundle).filter(|size| *size <= most)?;
        usize::try_from(size).ok()
    }

    /// The content of such a bundle, as [`Content::read`]; `file` is its input, or as much of it as [`Self::range`] says, at its
    /// place.
    pub fn content(&self, file: &dyn ReadAt, buffer: Buffer) -> Option<Content> {
        Content::read(&self.bundle, file, buffer)
    }

    /// The same; it opens its input.
    pub fn read_content(&self, buffer: Buffer) -> Result<Option<Content>, Fault> {
        Ok(self.content(&self.open()?, buffer))
    }

    /// Opens its input.
    pub fn open(&self) -> Result<OpenInput<'_>, Fault> {
        let file = self.input.open();
        Ok(file.map_err(|e| Error::io("cannot read", self.input.path(), e))?)
    }

    /// What a decoder keeps in memory of its bundle at most while that streams, in bytes.
    pub fn window(&self) -> u64 {
        match &self.bundle.form {
            Form::Compressed(header) => header.window(),
            Form::Plain => 0,
        }
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
            // The code object is in the content, and waits there.
            let cost = if wanted.is_stored() { 0 } else { size / 2 };
            push(Task { item: self.only(wanted), bytes, cost })?;
        }
        Ok(())
    }

    /// The item with one wanted code object only.
    fn only(&self, wanted: &Wanted) -> Self {
        Self {
            number: self.number,
            rooms: self.rooms.clone(),
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
                let mut bytes = self.rooms.buffers.take(size);
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
        let hashed = wanted.hashed && wanted.how.pack;
        let made = make(wanted.how, hashed, from, size, self).map_err(|e| match e {
            Cannot::Read(e) => self.unreadable(wanted.entry, e),
            Cannot::Keep(e) => self.rooms.frames.cannot_keep(e).into(),
        })?;
        self.packed(wanted, made)
    }

    /// Checks the one code object of a plain bundle, which is to be stored as it is: then it can stay in
    /// the input until it is.
    fn pack_input(self) -> Result<Packed, Fault> {
        let wanted = &self.wanted[0];
        let digest = wanted.how.identify || wanted.hashed;
        let read = |stream: &mut dyn Read| -> io::Result<_> {
            let mut seen = Seen::new(stream, digest);
            if digest {
                streams::pieces(&mut seen, &mut vec![0; SENT], |_| Ok(()))?;
            } else {
                streams::fill(&mut seen, &mut [0; HEAD])?;
            }
            Ok(seen.end())
        };
        let (head, digest) = self.read(read)?.map_err(|e| self.unreadable(wanted.entry, e))?;
        let hash = digest.filter(|_| wanted.hashed);
        let identity = digest.filter(|_| wanted.how.identify);
        let stored = Stored::Input(Box::new(self.clone()));
        self.packed(wanted, Made { stored, hash, head, identity })
    }

    /// A code object that is for the archive's ISA.
    fn packed(&self, wanted: &Wanted, made: Made) -> Result<Packed, Fault> {
        let failed = |message: &str| self.failed(wanted.entry, message);
        let Made { stored, hash, head, identity } = made;
        let header = CodeObjectHeader::parse(&head)
            .map_err(|e| self.fault(failed("is no code object").because(e)))?;
        if let (IsaCheck::Other, Some(found)) = (header.check(&wanted.isa), &header.target) {
            return Err(self.fault(failed(&format!(
                "a code object is filed under {} but its e_flags say {found}",
                wanted.isa
            ))));
        }
        Ok(Packed { archive: wanted.archive, object: wanted.object, hash, stored, identity })
    }
}

impl Item {
    fn failed(&self, entry: usize, message: &str) -> Error {
        let offset = self.bundle.offset;
        Error::failed(format!("the bundle at {offset:#x}, entry {entry}: {message}"))
    }

    fn unreadable(&self, entry: usize, e: io::Error) -> Fault {
        self.fault(self.failed(entry, "cannot read the code object").because(e))
    }

    /// What became of reading the code object of its plain bundle: see [`Stored::Input`].
    pub fn read<T>(&self, read: impl FnOnce(&mut dyn Read) -> T) -> Result<T, Fault> {
        let cannot = |e| Error::io("cannot read", self.input.path(), e);
        let file = self.input.open().map_err(cannot)?;
        let entry = self.wanted[0].entry;
        let stream = self.bundle.open_entry(&file, &self.bundle.entries[entry]);
        let stream = stream.map_err(|e| self.damage(e))?;
        let mut stream = Told { stream, failed: None };
        let done = read(&mut stream);
        match stream.failed {
            Some(e) => Err(self.unreadable(entry, e)),
            None => Ok(done),
        }
    }
}

/// A stream that keeps why it could not be read.
struct Told<R> {
    stream: R,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Told<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buf).map_err(|e| {
            let error = e.kind().into();
            self.failed = Some(e);
            error
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
            Bytes::Input if item.wanted[0].is_stored() => item.pack_input(),
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
                let range = range.map(|(at, size)| at..at.saturating_add(size));
                let range = range.filter(|range| range.end <= content.len());
                let range = range.expect("a bundle's entries are in what its header claims");
                let packed = item.pack_one(&item.wanted[0], Origin::Of(&content, range));
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
    Of(&'a Arc<Content>, Range<usize>),
}

/// What [`make`] makes of a code object.
struct Made {
    stored: Stored,
    /// The digest of what is stored, where it is wanted. Equal code objects make equal frames, which are
    /// smaller to hash.
    hash: Option<blake3::Hash>,
    /// The first bytes.
    head: Vec<u8>,
    /// The digest of the code object, where it is wanted.
    identity: Option<blake3::Hash>,
}

/// Why [`make`] cannot.
enum Cannot {
    Read(io::Error),
    Keep(io::Error),
}

/// The stored form of a code object of an item.
fn make(how: How, hashed: bool, from: Origin, size: u64, item: &Item) -> Result<Made, Cannot> {
    let (identify, frames) = (how.identify, &item.rooms.frames);
    // The digest of the code object serves for both where it is stored as it is.
    let seen = |bytes: &[u8], digest: bool| {
        let head = bytes[..bytes.len().min(HEAD)].to_vec();
        (head, digest.then(|| blake3::hash(bytes)))
    };
    let as_it_is = |stored, (head, digest): (Vec<u8>, Option<blake3::Hash>)| {
        let (hash, identity) = (digest.filter(|_| hashed), digest.filter(|_| identify));
        Made { stored, hash, head, identity }
    };
    let frame = |write: &mut dyn FnMut(&mut FrameWriter) -> io::Result<()>| {
        let mut writer = frames.begin(hashed);
        if let Err(e) = write(&mut writer) {
            return Err(writer.failed().map_or(Cannot::Read(e), Cannot::Keep));
        }
        writer.finish().map_err(Cannot::Keep)
    };
    let framed = |(frame, hash), (head, identity)| Made {
        stored: Stored::Frame(frame),
        hash,
        head,
        identity,
    };
    let short = || Cannot::Read(io::ErrorKind::UnexpectedEof.into());
    Ok(match (how.pack.then_some(how.compression), from) {
        (None, Origin::Held(bytes)) => {
            let seen = seen(&bytes, identify);
            item.rooms.buffers.give_back(bytes);
            as_it_is(Stored::Not, seen)
        }
        (None, Origin::Of(content, range)) => {
            as_it_is(Stored::Not, seen(&content[range], identify))
        }
        (None, Origin::Stream(stream)) => {
            let mut seen = Seen::new(stream, identify);
            if io::copy(&mut seen, &mut io::sink()).map_err(Cannot::Read)? != size {
                return Err(short());
            }
            as_it_is(Stored::Not, seen.end())
        }
        (Some(Compression::None), Origin::Held(bytes)) => {
            let seen = seen(&bytes, identify || hashed);
            as_it_is(Stored::Held(bytes), seen)
        }
        (Some(Compression::None), Origin::Of(content, range)) => {
            let seen = seen(&content[range.clone()], identify || hashed);
            as_it_is(Stored::Of(Arc::clone(content), range), seen)
        }
        (Some(Compression::None), Origin::Stream(stream)) => {
            let mut seen = Seen::new(stream, identify);
            let kept = frame(&mut |writer| io::copy(&mut seen, writer).map(drop))?;
            if kept.0.len() != size {
                return Err(short());
            }
            framed(kept, seen.end())
        }
        (Some(Compression::Zstd { level }), Origin::Of(content, range)) => {
            let bytes = &content[range];
            let kept = frame(&mut |writer| {
                with_compressor(level, |compressor| compressor.compress_held_to(bytes, writer))
            })?;
            framed(kept, seen(bytes, identify))
        }
        (Some(Compression::Zstd { level }), Origin::Held(bytes)) => {
            let kept = frame(&mut |writer| {
                with_compressor(level, |compressor| compressor.compress_held_to(&bytes, writer))
            })?;
            let seen = seen(&bytes, identify);
            item.rooms.buffers.give_back(bytes);
            framed(kept, seen)
        }
        (Some(Compression::Zstd { level }), Origin::Stream(stream)) => {
            let mut seen = Seen::new(stream, identify);
            let kept = frame(&mut |writer| {
                with_compressor(level, |compressor| compressor.compress_to(&mut seen, size, writer))
            })?;
            framed(kept, seen.end())
        }
    })
}

/// Lends this thread's compressor for the level.
fn with_compressor(
    level: i32,
    compress: impl FnOnce(&mut FrameCompressor) -> io::Result<()>,
) -> io::Result<()> {
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
