//! Writes kpack archives, version 1.
//!
//! ```text
//! KPAK · u32 version · u64 TOC offset · zeros up to 64 · blob · TOC (MessagePack) to the end
//! blob, stored:     the code objects one after another; the TOC's `blobs` says where each lies
//! blob, compressed: u32 count · count × { u32 frame size · zstd frame }
//! ```
//! Code objects are numbered (ordinals) in the order in which they are pushed; entries name them,
//! and several entries may name one. Bytes depend on the order of the pushes and on what is pushed
//! alone: entries are sorted by name.
//!
//! Compressing is the caller's, in as many threads as it likes, by a [`FrameCompressor`] each.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Read, Seek, SeekFrom, Write};

use zstd::zstd_safe;

use crate::kpack::toc::{
    BLOB_OFFSET, MAGIC, SCHEME_NONE, SCHEME_ZSTD, TYPE_HSACO, Toc, TocBlob, TocEntry, VERSION,
    Variants,
};
use crate::streams;
use crate::target::TargetId;

/// Objects up to this size are held in memory while they are compressed; larger ones are streamed, in about as much
/// memory (at level 3 a window of 2 MiB and tables). So what compressing takes depends on no object's size.
pub const STREAM_OVER: u64 = 2 << 20;

/// What is read of a streamed object in one go.
const PIECE: usize = 256 << 10;

/// The longest header of a zstd frame (RFC 8878, 3.1.1), which states the content's size.
const FRAME_HEAD: usize = 18;

/// Why an archive cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The output could not be written, or the input not be read.
    #[error("cannot write the kpack archive")]
    Io(#[from] io::Error),
    /// A blob that the runtime cannot take.
    #[error(
        "the blob of `{group}` for {isa} has {size} bytes, and the runtime takes at most {}; split it by `--kpack-scope prefix` or `--kpack-scope binary`",
        u32::MAX
    )]
    TooLarge {
        /// Name of the group.
        group: String,
        /// The ISA of the archive.
        isa: TargetId,
        /// Size that the blob would have.
        size: u64,
    },
    /// A frame that does not say that it holds the original size.
    #[error("code object {ordinal} has {found:?} bytes in its frame, expected {expected}")]
    FrameSize {
        /// The ordinal that it would get.
        ordinal: u32,
        /// What the zstd frame header or the stored bytes say.
        found: Option<u64>,
        /// The original size that was given.
        expected: u64,
    },
    /// A stored object was pushed to a compressed archive.
    #[error("a stored code object was given to a compressed archive")]
    NotStored,
    /// An entry names an object that was not pushed.
    #[error("entry `{name}` names code object {ordinal}, but there are {count}")]
    Ordinal {
        /// Name of the entry.
        name: String,
        /// The ordinal.
        ordinal: u32,
        /// Number of objects pushed so far.
        count: usize,
    },
    /// An entry's size is not its object's.
    #[error("entry `{name}` has {found} bytes, but code object {ordinal} has {expected}")]
    EntrySize {
        /// Name of the entry.
        name: String,
        /// The ordinal.
        ordinal: u32,
        /// The entry's size.
        found: u64,
        /// The object's size.
        expected: u64,
    },
    /// Two entries with one name.
    #[error("entry `{name}` is added twice")]
    Duplicate {
        /// The name, index included.
        name: String,
    },
    /// More objects than an archive can number.
    #[error("more code objects than a kpack archive can number")]
    Count,
    /// The table of contents could not be encoded.
    #[error("cannot encode the table of contents")]
    Encode(#[from] rmp_serde::encode::Error),
}

/// How code objects are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Compression {
    /// As they are.
    None,
    /// One zstd frame for each.
    Zstd {
        /// The level, 1 to 22.
        level: i32,
    },
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Size of the archive in bytes.
    pub size: u64,
    /// Number of entries.
    pub kernel_count: u64,
    /// Number of code objects stored.
    pub unique_count: u64,
}

/// Writes one archive. `W` must stand at its beginning (offset 0) and is best buffered.
pub struct Writer<W> {
    out: W,
    group_name: String,
    isa: TargetId,
    compression: Compression,
    position: u64,
    blobs: Vec<TocBlob>,
    original_sizes: Vec<u64>,
    /// By binary the ordinal for each index. The table of contents has a hundred times the bytes, and is made in the end.
    entries: BTreeMap<String, BTreeMap<u32, u32>>,
}

impl<W: Write + Seek> Writer<W> {
    /// Starts an archive for one ISA; `group_name` is the artifact prefix (`blas_lib`).
    pub fn new(
        mut out: W,
        group_name: &str,
        isa: &TargetId,
        compression: Compression,
    ) -> Result<Self, WriteError> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        // The TOC's offset, and the count of a compressed blob, are filled in by `finish`.
        header.resize(64, 0);
        if compression != Compression::None {
            header.extend([0; 4]);
        }
        out.write_all(&header)?;
        Ok(Self {
            out,
            group_name: group_name.to_owned(),
            isa: isa.clone(),
            compression,
            position: header.len() as u64,
            blobs: Vec::new(),
            original_sizes: Vec::new(),
            entries: BTreeMap::new(),
        })
    }

    /// Appends a code object as it is to be stored: a frame made by [`FrameCompressor::compress`], or
    /// the bytes themselves where the archive is not compressed. Gives its ordinal.
    pub fn push_frame(&mut self, frame: &[u8], original_size: u64) -> Result<u32, WriteError> {
        self.push_frame_from(&mut { frame }, frame.len() as u64, original_size)
    }

    /// The same where the frame, of `size` bytes, comes as a stream.
    pub fn push_frame_from(
        &mut self,
        frame: &mut dyn Read,
        size: u64,
        original_size: u64,
    ) -> Result<u32, WriteError> {
        let ordinal = self.next_ordinal()?;
        let mut head = [0; FRAME_HEAD];
        let mut filled = 0;
        let stated = match self.compression {
            Compression::None => Some(size),
            Compression::Zstd { .. } => {
                filled = streams::fill(&mut frame.take(size), &mut head)?;
                zstd_safe::get_frame_content_size(&head[..filled]).unwrap_or_default()
            }
        };
        if stated != Some(original_size) {
            return Err(WriteError::FrameSize { ordinal, found: stated, expected: original_size });
        }
        if self.compression != Compression::None {
            let blob = self.position + 4 + size - BLOB_OFFSET;
            let prefix = u32::try_from(size).ok().filter(|_| u32::try_from(blob).is_ok());
            let prefix = prefix.ok_or_else(|| self.too_large(blob))?;
            self.out.write_all(&prefix.to_le_bytes())?;
            self.position += 4;
        }
        self.out.write_all(&head[..filled])?;
        let rest = size - filled as u64;
        if io::copy(&mut frame.take(rest), &mut self.out)? != rest {
            return Err(WriteError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        self.pushed(size, original_size);
        Ok(ordinal)
    }

    /// Appends a code object of `size` bytes from a stream to an archive that is not compressed.
    /// Gives its ordinal.
    pub fn push_stored(&mut self, stream: &mut dyn Read, size: u64) -> Result<u32, WriteError> {
        if self.compression != Compression::None {
            return Err(WriteError::NotStored);
        }
        let ordinal = self.next_ordinal()?;
        let copied = io::copy(&mut stream.take(size), &mut self.out)?;
        let extra = stream.read(&mut [0])? as u64;
        if copied + extra != size {
            let found = Some(copied + extra);
            return Err(WriteError::FrameSize { ordinal, found, expected: size });
        }
        self.pushed(size, size);
        Ok(ordinal)
    }

    /// Files a pushed code object under `{binary}#{co_index}`. `binary` is the marker's kernel name:
    /// `{prefix}/{path under the prefix}`.
    pub fn add_entry(
        &mut self,
        binary: &str,
        co_index: u32,
        ordinal: u32,
        original_size: u64,
    ) -> Result<(), WriteError> {
        let name = || format!("{binary}#{co_index}");
        let Some(&expected) = self.original_sizes.get(ordinal as usize) else {
            let count = self.original_sizes.len();
            return Err(WriteError::Ordinal { name: name(), ordinal, count });
        };
        if expected != original_size {
            let (name, found) = (name(), original_size);
            return Err(WriteError::EntrySize { name, ordinal, found, expected });
        }
        if !self.entries.contains_key(binary) {
            self.entries.insert(binary.to_owned(), BTreeMap::new());
        }
        let of_binary = self.entries.get_mut(binary);
        match of_binary.map(|indexes| indexes.entry(co_index)) {
            Some(Entry::Vacant(vacant)) => vacant.insert(ordinal),
            _ => return Err(WriteError::Duplicate { name: name() }),
        };
        Ok(())
    }

    /// Writes the table of contents, fills in the header, flushes, and gives the output back,
    /// standing at its end.
    pub fn finish(mut self) -> Result<(W, Written), WriteError> {
        let compressed = self.compression != Compression::None;
        let isa = self.isa.to_string();
        let toc = self.toc();
        let kernel_count = toc.len() as u64;
        let unique_count = self.original_sizes.len() as u64;
        let toc_offset = self.position;
        let toc = Toc {
            format_version: VERSION,
            group_name: self.group_name,
            gfx_arch_family: isa.clone(),
            gfx_arches: vec![isa],
            compression_scheme: if compressed { SCHEME_ZSTD } else { SCHEME_NONE }.to_owned(),
            blobs: (!compressed).then_some(self.blobs),
            zstd_offset: compressed.then_some(BLOB_OFFSET),
            zstd_size: compressed.then_some(toc_offset - BLOB_OFFSET),
            toc,
        };
        let toc = rmp_serde::to_vec_named(&toc)?;
        self.out.write_all(&toc)?;
        self.out.seek(SeekFrom::Start(8))?;
        self.out.write_all(&toc_offset.to_le_bytes())?;
        if compressed {
            let count = u32::try_from(unique_count).map_err(|_| WriteError::Count)?;
            self.out.seek(SeekFrom::Start(BLOB_OFFSET))?;
            self.out.write_all(&count.to_le_bytes())?;
        }
        let size = toc_offset + toc.len() as u64;
        self.out.seek(SeekFrom::Start(size))?;
        self.out.flush()?;
        Ok((self.out, Written { size, kernel_count, unique_count }))
    }

    fn toc(&self) -> BTreeMap<String, Variants> {
        let isa = self.isa.to_string();
        let of_binary = |(binary, indexes): (&String, &BTreeMap<u32, u32>)| {
            let of_index = |(index, &ordinal): (&u32, &u32)| {
                let original_size = self.original_sizes[ordinal as usize];
                let entry = TocEntry {
                    kind: TYPE_HSACO.to_owned(),
                    ordinal: ordinal.into(),
                    original_size,
                };
                (format!("{binary}#{index}"), Variants(BTreeMap::from([(isa.clone(), entry)])))
            };
            indexes.iter().map(of_index).collect::<Vec<_>>()
        };
        self.entries.iter().flat_map(of_binary).collect()
    }

    fn next_ordinal(&self) -> Result<u32, WriteError> {
        u32::try_from(self.original_sizes.len()).map_err(|_| WriteError::Count)
    }

    fn pushed(&mut self, size: u64, original_size: u64) {
        // A compressed archive finds its frames by their size prefixes.
        if self.compression == Compression::None {
            self.blobs.push(TocBlob { offset: self.position, size });
        }
        self.position += size;
        self.original_sizes.push(original_size);
    }

    fn too_large(&self, size: u64) -> WriteError {
        WriteError::TooLarge { group: self.group_name.clone(), isa: self.isa.clone(), size }
    }
}

/// Makes zstd frames for archives, one after another; one for each thread.
///
/// A frame has its content size and zstd's checksum: without that, nobody notices a flipped bit. It
/// depends on the content and the level only.
pub struct FrameCompressor {
    context: zstd_safe::CCtx<'static>,
    /// Input and frame of the objects that are held, kept for the next one.
    input: Vec<u8>,
    output: Vec<u8>,
}

impl FrameCompressor {
    /// A compressor for a level from 1 to 22.
    pub fn new(level: i32) -> io::Result<Self> {
        let context = zstd_safe::CCtx::try_create();
        let mut context = context.ok_or(io::ErrorKind::OutOfMemory)?;
        for parameter in [
            zstd_safe::CParameter::CompressionLevel(level),
            zstd_safe::CParameter::ChecksumFlag(true),
            zstd_safe::CParameter::ContentSizeFlag(true),
        ] {
            context.set_parameter(parameter).map_err(of_zstd)?;
        }
        Ok(Self { context, input: Vec::new(), output: Vec::new() })
    }

    /// Compresses the `size` bytes that the stream gives to one frame. Fails with `InvalidData` where it
    /// gives more, with `UnexpectedEof` where it gives less.
    pub fn compress(&mut self, stream: impl Read, size: u64) -> io::Result<Vec<u8>> {
        let mut frame = Vec::new();
        self.compress_to(stream, size, &mut frame)?;
        Ok(frame)
    }

    /// The same with the frame written to `out`. Of an object over [`STREAM_OVER`] neither that nor its
    /// frame is ever in memory whole.
    pub fn compress_to(
        &mut self,
        mut stream: impl Read,
        size: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if size <= STREAM_OVER {
            let input = read_exactly(&mut stream, size, &mut self.input)?;
            return bulk(&mut self.context, input, &mut self.output, out);
        }
        // After a frame that was given up, the context is in its midst.
        self.context.reset(zstd_safe::ResetDirective::SessionOnly).map_err(of_zstd)?;
        let mut encoder = zstd::stream::write::Encoder::with_context(out, &mut self.context);
        encoder.set_pledged_src_size(Some(size))?;
        self.input.resize(self.input.len().max(PIECE), 0);
        let piece = &mut self.input[..PIECE];
        let object = &mut stream.by_ref().take(size);
        let copied = streams::pieces(object, piece, |piece| encoder.write_all(piece))?;
        check_end(&mut stream, copied, size)?;
        encoder.finish().map(drop)
    }

    /// Compresses an object that is in memory to the frame that [`Self::compress`] would make.
    pub fn compress_held_to(&mut self, object: &[u8], out: &mut dyn Write) -> io::Result<()> {
        if object.len() as u64 > STREAM_OVER {
            return self.compress_to(object, object.len() as u64, out);
        }
        bulk(&mut self.context, object, &mut self.output, out)
    }
}

/// Compresses in one go, by way of a buffer with room for the worst.
fn bulk(
    context: &mut zstd_safe::CCtx<'static>,
    input: &[u8],
    output: &mut Vec<u8>,
    out: &mut dyn Write,
) -> io::Result<()> {
    output.clear();
    output.reserve(zstd_safe::compress_bound(input.len()));
    context.compress2(output, input).map_err(of_zstd)?;
    out.write_all(output)
}

fn of_zstd(code: zstd_safe::ErrorCode) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

/// Reads the `size` bytes of a stream, at most [`STREAM_OVER`], in as few steps as it gives them, to the
/// front of a buffer that is not cleared between uses.
fn read_exactly<'b>(
    stream: &mut impl Read,
    size: u64,
    buffer: &'b mut Vec<u8>,
) -> io::Result<&'b [u8]> {
    let len = usize::try_from(size).map_err(io::Error::other)?;
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    let filled = streams::fill(stream, &mut buffer[..len])?;
    check_end(stream, filled as u64, size)?;
    Ok(&buffer[..len])
}

fn check_end(stream: &mut impl Read, copied: u64, size: u64) -> io::Result<()> {
    if copied < size {
        let message = format!("the code object ends after {copied} bytes, expected {size}");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    if stream.read(&mut [0])? > 0 {
        let message = format!("the code object has more than the expected {size} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(())
}
