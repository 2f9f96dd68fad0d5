//! kpack archives that are still to be built, as contents of a tree.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::source::InputFile;
use crate::error::Error;
use crate::fatbin::bundle::{Bundle, BundleEntry};
use crate::fatbin::code_object::{CodeObjectHeader, IsaCheck};
use crate::jobs::Jobs;
use crate::kpack::kpm::{Kpm, KpmFile};
use crate::kpack::writer::{Compression, FrameCompressor, STREAM_OVER, WriteError, Writer};
use crate::progress::Monitor;
use crate::target::TargetId;

/// Where one code object lies in the input.
#[derive(Debug, Clone)]
pub struct CodeObjectAt {
    /// The fat binary.
    pub input: Arc<InputFile>,
    /// The bundle in it.
    pub bundle: Arc<Bundle>,
    /// Which of the bundle's entries.
    pub entry: usize,
}

impl CodeObjectAt {
    /// The bundle's entry.
    pub fn entry(&self) -> &BundleEntry {
        &self.bundle.entries[self.entry]
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.entry().size
    }

    /// Hands the code object to `read` as a stream.
    pub fn with_stream<T>(
        &self,
        read: impl FnOnce(&mut dyn Read) -> io::Result<T>,
    ) -> io::Result<T> {
        let file = self.input.open()?;
        let mut stream = self.bundle.open_entry(&file, self.entry()).map_err(io::Error::other)?;
        read(&mut stream)
    }

    /// What tells it from every other code object without reading it.
    fn place(&self) -> (PathBuf, u64, usize) {
        (self.input.path().to_owned(), self.bundle.offset, self.entry)
    }
}

/// A kernel of an archive to come.
#[derive(Debug, Clone)]
pub struct PlannedKernel {
    /// The marker's `kernel_name`, without `#index`.
    pub name: String,
    /// The wrapper's `co_index`.
    pub co_index: u32,
    /// The code object.
    pub code_object: CodeObjectAt,
}

/// What is known of an archive once it has been built.
#[derive(Debug, Clone)]
pub struct BuiltKpack {
    /// Size of the file in bytes.
    pub size: u64,
    /// Number of kernels in its TOC.
    pub kernel_count: u64,
    /// Where it can be read, while it is there.
    pub path: PathBuf,
}

/// An archive to be built.
#[derive(Debug)]
pub struct KpackPlan {
    group_name: String,
    isa: TargetId,
    compression: Compression,
    kernels: Vec<PlannedKernel>,
    built: OnceLock<BuiltKpack>,
}

impl KpackPlan {
    /// Plans the archive of one ISA. `group_name` is the artifact prefix. The kernels are put into
    /// the order of their names and indexes.
    pub fn new(
        group_name: String,
        isa: TargetId,
        compression: Compression,
        mut kernels: Vec<PlannedKernel>,
    ) -> Self {
        kernels.sort_by(|a, b| (&a.name, a.co_index).cmp(&(&b.name, b.co_index)));
        Self { group_name, isa, compression, kernels, built: OnceLock::new() }
    }

    /// The ISA of all its kernels.
    pub fn isa(&self) -> &TargetId {
        &self.isa
    }

    /// In the order in which they are stored.
    pub fn kernels(&self) -> &[PlannedKernel] {
        &self.kernels
    }

    /// What came of it, once a sink has built it.
    pub fn built(&self) -> Option<&BuiltKpack> {
        self.built.get()
    }

    /// Bytes of all code objects before compression; one that several kernels share counts once.
    pub fn original_size(&self) -> u64 {
        self.objects().iter().map(|(object, _)| object.size()).sum()
    }

    /// The distinct code objects in stored order, each with the kernels that it is.
    fn objects(&self) -> Vec<(&CodeObjectAt, Vec<&PlannedKernel>)> {
        let mut objects: Vec<(&CodeObjectAt, Vec<&PlannedKernel>)> = Vec::new();
        let mut places = HashMap::new();
        for kernel in &self.kernels {
            let at = *places.entry(kernel.code_object.place()).or_insert(objects.len());
            if at == objects.len() {
                objects.push((&kernel.code_object, Vec::new()));
            }
            objects[at].1.push(kernel);
        }
        objects
    }

    /// Builds the archive into `out`, which is the file at `path`. Code objects are compressed in
    /// the pool and stored in order, each distinct one once. Each is checked to be ELF for the
    /// archive's ISA on the way.
    pub fn build(
        &self,
        out: &mut File,
        path: &Path,
        jobs: &Jobs,
        monitor: &dyn Monitor,
    ) -> Result<(), Error> {
        let failed = |e: WriteError| Error::failed("cannot build the kpack").at(path).because(e);
        let out = BufWriter::with_capacity(256 * 1024, out);
        let mut writer =
            Writer::new(out, &self.group_name, &self.isa, self.compression).map_err(failed)?;

        let objects = self.objects();
        // Only code objects of one size can be equal, so only those are hashed.
        let mut of_size: HashMap<u64, u32> = HashMap::new();
        for (object, _) in &objects {
            *of_size.entry(object.size()).or_default() += 1;
        }
        let items: Vec<_> = objects
            .iter()
            .map(|(object, _)| ((*object).clone(), of_size[&object.size()] > 1))
            .collect();
        let mut kernels = objects.iter().map(|(object, kernels)| (object.size(), kernels));
        let mut ordinals: HashMap<blake3::Hash, u32> = HashMap::new();
        let (isa, compression) = (self.isa.clone(), self.compression);
        jobs.ordered(
            items,
            |(object, _)| in_flight(object.size(), compression),
            move |(object, hashed)| pack(&object, hashed, &isa, compression),
            |packed| -> Result<(), Error> {
                let Packed { stored, hash } = packed?;
                let (size, kernels) = kernels.next().expect("one result for each object");
                let ordinal = match hash.and_then(|hash| ordinals.get(&hash).copied()) {
                    Some(ordinal) => ordinal,
                    None => writer.push_frame(&stored, size).map_err(failed)?,
                };
                if let Some(hash) = hash {
                    ordinals.insert(hash, ordinal);
                }
                for kernel in kernels {
                    writer
                        .add_entry(&kernel.name, kernel.co_index, ordinal, size)
                        .map_err(failed)?;
                }
                monitor.advance(size);
                Ok(())
            },
        )?;
        let (mut out, written) = writer.finish().map_err(failed)?;
        out.flush().map_err(|e| Error::io("cannot write", path, e))?;
        let path = path.to_owned();
        let built = BuiltKpack { size: written.size, kernel_count: written.kernel_count, path };
        // Building twice gives the same archive; the first one's place is kept.
        let _ = self.built.set(built);
        Ok(())
    }
}

/// Bytes that one code object holds in memory while it is packed.
fn in_flight(size: u64, compression: Compression) -> u64 {
    match compression {
        Compression::None => size,
        // Input and frame; a large one is streamed, and its frame rarely passes half its size.
        Compression::Zstd { .. } if size <= STREAM_OVER => size * 3 / 2,
        Compression::Zstd { .. } => size / 2,
    }
}

struct Packed {
    stored: Vec<u8>,
    hash: Option<blake3::Hash>,
}

/// Reads one code object, checks what it is, and compresses it.
fn pack(
    object: &CodeObjectAt,
    hashed: bool,
    isa: &TargetId,
    compression: Compression,
) -> Result<Packed, Error> {
    thread_local! {
        static COMPRESSOR: RefCell<Option<(i32, FrameCompressor)>> = const { RefCell::new(None) };
    }
    let fault = |message: String| {
        let place = format!("the bundle at {:#x}, entry {}: ", object.bundle.offset, object.entry);
        Error::failed(place + &message).at(object.input.path())
    };
    let size = object.size();
    let packed = object.with_stream(|stream| {
        let mut seen = Seen { stream, head: Vec::new(), hasher: hashed.then(blake3::Hasher::new) };
        let stored = match compression {
            Compression::None => {
                let mut bytes = Vec::new();
                seen.read_to_end(&mut bytes)?;
                bytes
            }
            Compression::Zstd { level } => COMPRESSOR.with_borrow_mut(|slot| {
                if slot.as_ref().is_none_or(|(at, _)| *at != level) {
                    *slot = Some((level, FrameCompressor::new(level)?));
                }
                let (_, compressor) = slot.as_mut().expect("just filled");
                compressor.compress(&mut seen, size)
            })?,
        };
        Ok((Packed { stored, hash: seen.hasher.map(|h| h.finalize()) }, seen.head))
    });
    let (packed, head) =
        packed.map_err(|e| fault("cannot read the code object".into()).because(e))?;
    let header =
        CodeObjectHeader::parse(&head).map_err(|e| fault("is no code object".into()).because(e))?;
    match (header.check(isa), &header.target) {
        (IsaCheck::Other, Some(found)) => {
            Err(fault(format!("a code object is filed under {isa} but its e_flags say {found}"))
                .hint("the input is damaged or was put together wrongly: build it again"))
        }
        _ => Ok(packed),
    }
}

/// Passes a stream on, keeping its first bytes and hashing it where asked.
struct Seen<'a> {
    stream: &'a mut dyn Read,
    head: Vec<u8>,
    hasher: Option<blake3::Hasher>,
}

impl Read for Seen<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(buf)?;
        let wanted = 64usize.saturating_sub(self.head.len()).min(n);
        self.head.extend_from_slice(&buf[..wanted]);
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buf[..n]);
        }
        Ok(n)
    }
}

/// A `.kpm` manifest over archives to be built.
#[derive(Debug, Clone)]
pub struct KpmPlan {
    /// The artifact prefix, as `blas_lib`.
    pub component_name: String,
    /// The prefix that the archives are under.
    pub prefix: String,
    /// ISA to file name and archive.
    pub archives: BTreeMap<TargetId, (String, Arc<KpackPlan>)>,
}

impl KpmPlan {
    /// The manifest's bytes, once all its archives have been built.
    pub fn render(&self) -> Option<Vec<u8>> {
        let mut kpm = Kpm::new(&self.component_name, &self.prefix);
        for (isa, (file, plan)) in &self.archives {
            let built = plan.built()?;
            let entry =
                KpmFile { file: file.clone(), size: built.size, kernel_count: built.kernel_count };
            kpm.kpack_files.insert(isa.clone(), entry);
        }
        kpm.to_bytes().ok()
    }
}
