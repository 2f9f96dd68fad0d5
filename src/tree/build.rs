//! Building planned kpack archives.
//!
//! Several archives are built side by side from the same fat binaries, one for each ISA: so a
//! compressed bundle is decompressed once for all of them, and a plain one is read from its start to
//! its end. Code objects are compressed in the pool and stored in the order of the plan, whatever the
//! order in which they come; what is in flight is bounded by the pool's budget.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::input::InputFile;
use super::kpack::{BuiltKpack, CodeObjectAt, KpackPlan, PlannedKernel};
use crate::error::Error;
use crate::fatbin::BundleError;
use crate::fatbin::bundle::{Bundle, BundleEntry, Form};
use crate::fatbin::code_object::{CodeObjectHeader, IsaCheck};
use crate::jobs::Jobs;
use crate::kpack::writer::{Compression, FrameCompressor, STREAM_OVER, WriteError, Writer};
use crate::progress::Monitor;
use crate::read_at::ReadAt;
use crate::target::TargetId;

/// Builds archives, each into the file that goes with it: open for writing at its start, and the
/// path by which it can be read later. Every code object is checked to be ELF for its archive's ISA
/// on the way, and of one that occurs several times in an archive the bytes are stored once.
pub fn kpacks(
    plans: &[(&KpackPlan, &File, &Path)],
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<(), Error> {
    let (mut set, items) = Set::new(plans)?;
    jobs.ordered(items, Item::in_flight, Item::pack_from_input, |packed| {
        set.store(packed?, monitor)
    })?;
    set.finish()
}

/// Archives that are being built side by side.
pub(super) struct Set<'a> {
    archives: Vec<Archive<'a>>,
    buffers: Arc<Buffers>,
}

impl<'a> Set<'a> {
    /// Begins the archives; returns the items that they are made of, best taken in this order.
    pub fn new(plans: &[(&'a KpackPlan, &'a File, &'a Path)]) -> Result<(Self, Vec<Item>), Error> {
        let archives = plans.iter().map(|(plan, file, path)| Archive::new(plan, file, path));
        let archives = archives.collect::<Result<Vec<_>, _>>()?;
        let buffers = Arc::new(Buffers::default());
        let items = items(&archives, &buffers);
        Ok((Self { archives, buffers }, items))
    }

    /// Stores what came of an item.
    pub fn store(&mut self, packed: Vec<Packed>, monitor: &dyn Monitor) -> Result<(), Error> {
        for Packed { archive, object, stored, hash } in packed {
            let archive = &mut self.archives[archive];
            let size = archive.objects[object].0.size();
            archive.offer(object, &stored, hash)?;
            self.buffers.give_back(stored);
            monitor.advance(size);
        }
        Ok(())
    }

    /// Ends the archives, of which all items have been stored.
    pub fn finish(self) -> Result<(), Error> {
        self.archives.into_iter().try_for_each(Archive::finish)
    }
}

/// Buffers that go round: fresh memory for each code object would cost about as much as copying it.
#[derive(Default)]
struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Those for the rare large code objects are not kept.
    const MAX_KEPT: usize = 4 << 20;
    const MOST: usize = 16;

    fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < Self::MOST && buffer.capacity() <= Self::MAX_KEPT {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

/// An archive that is being built.
struct Archive<'a> {
    plan: &'a KpackPlan,
    path: &'a Path,
    objects: Vec<(&'a CodeObjectAt, Vec<&'a PlannedKernel>)>,
    writer: Writer<BufWriter<&'a File>>,
    /// Code objects that are stored already, of those that were hashed.
    ordinals: HashMap<blake3::Hash, u32>,
    /// The object whose turn it is.
    next: usize,
    /// Objects that came before their turn, in the spool.
    early: BTreeMap<usize, Early>,
    spool: Option<(File, u64)>,
}

/// A stored form in the spool.
struct Early {
    range: Range<u64>,
    hash: Option<blake3::Hash>,
}

impl<'a> Archive<'a> {
    fn new(plan: &'a KpackPlan, file: &'a File, path: &'a Path) -> Result<Self, Error> {
        let out = BufWriter::with_capacity(256 * 1024, file);
        let writer = Writer::new(out, plan.group_name(), plan.isa(), plan.compression())
            .map_err(|e| failed(path, e))?;
        Ok(Self {
            plan,
            path,
            objects: plan.objects(),
            writer,
            ordinals: HashMap::new(),
            next: 0,
            early: BTreeMap::new(),
            spool: None,
        })
    }

    /// Takes an object's stored form: writes it if it is its turn, and then those whose turn it is by
    /// that; else keeps it in a file without a name beside the archive.
    fn offer(
        &mut self,
        object: usize,
        stored: &[u8],
        hash: Option<blake3::Hash>,
    ) -> Result<(), Error> {
        let path = self.path;
        let cannot = |e| Error::output("cannot keep a code object for its turn in", path, e);
        if object != self.next {
            if self.spool.is_none() {
                let dir = path.parent().unwrap_or(Path::new("."));
                self.spool = Some((tempfile::tempfile_in(dir).map_err(cannot)?, 0));
            }
            let (spool, end) = self.spool.as_mut().expect("just made");
            spool.write_all_at(stored, *end).map_err(cannot)?;
            let range = *end..*end + stored.len() as u64;
            *end = range.end;
            self.early.insert(object, Early { range, hash });
            return Ok(());
        }
        self.store(object, stored, hash)?;
        self.next += 1;
        while let Some(Early { range, hash }) = self.early.remove(&self.next) {
            let mut stored = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
            if let Some((spool, _)) = &self.spool {
                spool.read_exact_at(&mut stored, range.start).map_err(cannot)?;
            }
            self.store(self.next, &stored, hash)?;
            self.next += 1;
        }
        Ok(())
    }

    fn store(
        &mut self,
        object: usize,
        stored: &[u8],
        hash: Option<blake3::Hash>,
    ) -> Result<(), Error> {
        let (at, kernels) = &self.objects[object];
        let size = at.size();
        let ordinal = match hash.and_then(|hash| self.ordinals.get(&hash).copied()) {
            Some(ordinal) => ordinal,
            None => self.writer.push_frame(stored, size).map_err(|e| failed(self.path, e))?,
        };
        if let Some(hash) = hash {
            self.ordinals.insert(hash, ordinal);
        }
        for kernel in kernels {
            self.writer
                .add_entry(&kernel.name, kernel.co_index, ordinal, size)
                .map_err(|e| failed(self.path, e))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        assert_eq!(self.next, self.objects.len(), "every object is stored");
        let (mut out, written) = self.writer.finish().map_err(|e| failed(self.path, e))?;
        out.flush().map_err(|e| Error::output("cannot write", self.path, e))?;
        self.plan.set_built(BuiltKpack {
            size: written.size,
            kernel_count: written.kernel_count,
            path: self.path.to_owned(),
        });
        Ok(())
    }
}

fn failed(path: &Path, e: WriteError) -> Error {
    match e {
        // The writer reads nothing: what it gets is in memory.
        WriteError::Io(e) => Error::output("cannot write", path, e),
        e => Error::failed("cannot build the kpack").at(path).because(e),
    }
}

/// A code object that one archive wants.
struct Wanted {
    archive: usize,
    object: usize,
    entry: usize,
    isa: TargetId,
    compression: Compression,
    hashed: bool,
}

/// What one task reads: an entry of a plain bundle, or all wanted ones of a compressed bundle.
pub(super) struct Item {
    buffers: Arc<Buffers>,
    pub input: Arc<InputFile>,
    bundle: Arc<Bundle>,
    wanted: Vec<Wanted>,
}

/// Cuts the archives' objects into tasks. Bundles come in the order in which the archives' sorted
/// kernels name them first, so each archive gets its objects in its own order.
fn items(archives: &[Archive], buffers: &Arc<Buffers>) -> Vec<Item> {
    let mut objects: Vec<(&PlannedKernel, &CodeObjectAt, Wanted)> = Vec::new();
    for (archive, built) in archives.iter().enumerate() {
        // Only code objects of one size can be equal, so only those are hashed.
        let mut of_size: HashMap<u64, u32> = HashMap::new();
        for (at, _) in &built.objects {
            *of_size.entry(at.size()).or_default() += 1;
        }
        for (object, (at, kernels)) in built.objects.iter().enumerate() {
            let wanted = Wanted {
                archive,
                object,
                entry: at.entry,
                isa: built.plan.isa().clone(),
                compression: built.plan.compression(),
                hashed: of_size[&at.size()] > 1,
            };
            objects.push((kernels[0], at, wanted));
        }
    }
    objects.sort_by(|(a, at_a, w_a), (b, at_b, w_b)| {
        (&a.name, a.co_index, at_a.entry, w_a.archive).cmp(&(
            &b.name,
            b.co_index,
            at_b.entry,
            w_b.archive,
        ))
    });
    let mut items: Vec<Item> = Vec::new();
    let mut compressed: HashMap<(PathBuf, u64), usize> = HashMap::new();
    for (_, at, wanted) in objects {
        let item = match at.bundle.form {
            Form::Plain => None,
            Form::Compressed(_) => {
                let key = (at.input.path().to_owned(), at.bundle.offset);
                let known = compressed.get(&key).copied();
                // An entry is given once in a pass: for a second archive with it there is another.
                let fits =
                    |item: &usize| items[*item].wanted.iter().all(|w| w.entry != wanted.entry);
                let item = known.filter(fits);
                if item.is_none() {
                    compressed.insert(key, items.len());
                }
                item
            }
        };
        match item {
            Some(item) => items[item].wanted.push(wanted),
            None => items.push(Item {
                buffers: Arc::clone(buffers),
                input: Arc::clone(&at.input),
                bundle: Arc::clone(&at.bundle),
                wanted: vec![wanted],
            }),
        }
    }
    items
}

/// A code object as it is stored in its archive.
pub(super) struct Packed {
    archive: usize,
    object: usize,
    stored: Vec<u8>,
    hash: Option<blake3::Hash>,
}

impl Item {
    /// What it reads of its input: of a plain bundle the entry, of a compressed one all.
    pub fn range(&self) -> Range<u64> {
        let Bundle { offset, total_size, form, entries } = &*self.bundle;
        match form {
            Form::Compressed(_) => *offset..offset.saturating_add(*total_size),
            Form::Plain => {
                let BundleEntry { offset: at, size, .. } = &entries[self.wanted[0].entry];
                let start = offset.saturating_add(*at);
                start..start.saturating_add(*size)
            }
        }
    }

    /// Bytes that it holds in memory while it is packed and until it is written, with what it reads.
    pub fn in_flight_held(&self) -> u64 {
        let Range { start, end } = self.range();
        self.in_flight() + (end - start)
    }

    /// Bytes that it holds in memory while it is packed and until it is written.
    fn in_flight(&self) -> u64 {
        let one = |wanted: &Wanted| {
            let size = self.bundle.entries[wanted.entry].size;
            match wanted.compression {
                Compression::None => size,
                // Input and frame; a large one is streamed, and its frame rarely passes half its size.
                Compression::Zstd { .. } if size <= STREAM_OVER => size * 3 / 2,
                Compression::Zstd { .. } => size / 2,
            }
        };
        match self.wanted.as_slice() {
            [wanted] => one(wanted),
            // One input at a time, and all the frames.
            several => several.iter().map(|wanted| one(wanted) / 2).sum(),
        }
    }

    fn pack_from_input(self) -> Result<Vec<Packed>, Error> {
        let input = Arc::clone(&self.input);
        let file = input.open().map_err(|e| Error::io("cannot read", input.path(), e))?;
        self.pack(&file)
    }

    /// Reads, checks and compresses its code objects. `file` is its input, or as much of it as
    /// [`Self::range`] says, at its place.
    pub fn pack(self, file: &dyn ReadAt) -> Result<Vec<Packed>, Error> {
        let Self { buffers, input, bundle, wanted } = self;
        let mut packed = Vec::new();
        let mut fault = None;
        let mut pack = |entry: &BundleEntry, stream: &mut dyn Read| -> Result<(), BundleError> {
            for wanted in wanted.iter().filter(|w| bundle.entries[w.entry] == *entry) {
                match pack_one(wanted, entry.size, stream, buffers.take()) {
                    Ok(one) => packed.push(one),
                    Err(e) => fault = fault.take().or(Some((wanted.entry, e))),
                }
            }
            Ok(())
        };
        let read = match bundle.form {
            Form::Compressed(_) => bundle.for_each_entry(file, pack),
            Form::Plain => {
                let entry = &bundle.entries[wanted[0].entry];
                bundle.open_entry(file, entry).and_then(|mut stream| pack(entry, &mut stream))
            }
        };
        let place = |entry: Option<usize>| match entry {
            Some(entry) => format!("the bundle at {:#x}, entry {entry}: ", bundle.offset),
            None => format!("the bundle at {:#x}: ", bundle.offset),
        };
        // A damaged bundle explains whatever is wrong with the code objects in it.
        let hint = "the input is damaged: build or copy it again";
        read.map_err(|e| {
            Error::failed(place(None) + "cannot be read").at(input.path()).because(e).hint(hint)
        })?;
        match fault {
            None => Ok(packed),
            Some((entry, Fault { message, source })) => {
                let error =
                    Error::failed(place(Some(entry)) + &message).at(input.path()).hint(hint);
                Err(match source {
                    Some(source) => error.because(source),
                    None => error,
                })
            }
        }
    }
}

struct Fault {
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Checks and compresses one code object.
fn pack_one(
    wanted: &Wanted,
    size: u64,
    stream: &mut dyn Read,
    mut stored: Vec<u8>,
) -> Result<Packed, Fault> {
    thread_local! {
        static COMPRESSOR: RefCell<Option<(i32, FrameCompressor)>> = const { RefCell::new(None) };
    }
    let fault = |message: &str, source: Box<dyn std::error::Error + Send + Sync>| Fault {
        message: message.to_owned(),
        source: Some(source),
    };
    let mut seen = Seen { stream, head: Vec::new() };
    let read = match wanted.compression {
        Compression::None => {
            stored.clear();
            seen.read_to_end(&mut stored).map(|_| ())
        }
        Compression::Zstd { level } => COMPRESSOR.with_borrow_mut(|slot| {
            if slot.as_ref().is_none_or(|(at, _)| *at != level) {
                *slot = Some((level, FrameCompressor::new(level)?));
            }
            let (_, compressor) = slot.as_mut().expect("just filled");
            compressor.compress_into(&mut seen, size, &mut stored)
        }),
    };
    read.map_err(|e| fault("cannot read the code object", e.into()))?;
    let header =
        CodeObjectHeader::parse(&seen.head).map_err(|e| fault("is no code object", e.into()))?;
    match (header.check(&wanted.isa), &header.target) {
        (IsaCheck::Other, Some(found)) => Err(Fault {
            message: format!(
                "a code object is filed under {} but its e_flags say {found}",
                wanted.isa
            ),
            source: None,
        }),
        _ => Ok(Packed {
            archive: wanted.archive,
            object: wanted.object,
            // Equal code objects make equal frames, which are smaller to hash.
            hash: wanted.hashed.then(|| blake3::hash(&stored)),
            stored,
        }),
    }
}

/// Passes a stream on, keeping its first bytes.
struct Seen<'a> {
    stream: &'a mut dyn Read,
    head: Vec<u8>,
}

impl Read for Seen<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(buf)?;
        let wanted = 64usize.saturating_sub(self.head.len()).min(n);
        self.head.extend_from_slice(&buf[..wanted]);
        Ok(n)
    }
}
