//! Reads kpack archives, version 1 (the layout is in [`crate::kpack::writer`]).
//!
//! What holds after [`Archive::open`]: every entry names a code object inside the blob, which its
//! stored bytes can give at all. Whether they do is seen when it is read.

use std::io::{self, BufReader, Read};

use crate::fatbin::ccob::{ZSTD_MAX_RATIO, ZSTD_WINDOW_LOG};
use crate::kpack::toc::{
    BLOB_OFFSET, MAGIC, SCHEME_NONE, SCHEME_ZSTD, TYPE_HSACO, Toc, TocBlob, TocEntry, VERSION,
};
use crate::msgpack;
use crate::read_at::{Cursor, ReadAt, read_vec};
use crate::target::{TargetError, TargetId};

/// A larger table of contents is no archive's: room for some two million entries.
const MAX_TOC: u64 = 256 << 20;

/// Bytes of names of all entries for each byte of the table. A name stands in the table once for all
/// its ISAs, and is held for each of them, which takes 45 bytes of table: names as long as paths can
/// be (4096) have this room, whatever the number of ISAs.
const MAX_NAMES_RATIO: u64 = 100;

/// Why bytes are no archive, or an entry cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KpackError {
    /// The bytes could not be read.
    #[error("cannot read at {offset:#x}")]
    Io {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The magic is not there.
    #[error("no kpack archive: it begins {found:02x?}, expected `KPAK`")]
    Magic {
        /// The bytes there.
        found: Vec<u8>,
    },
    /// A version that is not known, in the header or in the table of contents.
    #[error("kpack version in the {place} is {found}, expected 1")]
    Version {
        /// `header` or `table of contents`.
        place: &'static str,
        /// The version.
        found: u32,
    },
    /// A table of contents outside the archive, or too large.
    #[error(
        "the table of contents is said to begin at {offset:#x}, but the archive has {len:#x} bytes (at most {MAX_TOC:#x} of them for the table)"
    )]
    TocRange {
        /// The claimed offset.
        offset: u64,
        /// Length of the archive.
        len: u64,
    },
    /// A table of contents that cannot be decoded.
    #[error("cannot decode the table of contents at {offset:#x}")]
    Toc {
        /// Where it begins.
        offset: u64,
        /// Why.
        source: rmp_serde::decode::Error,
    },
    /// Bytes after the table of contents.
    #[error("{extra} bytes follow the table of contents")]
    TocTail {
        /// How many.
        extra: u64,
    },
    /// A compression scheme that is not known.
    #[error("compression scheme `{found}`, expected `none` or `zstd-per-kernel`")]
    Scheme {
        /// The scheme.
        found: String,
    },
    /// The scheme asks for a field that is missing.
    #[error("the table of contents lacks `{field}`")]
    Missing {
        /// Which.
        field: &'static str,
    },
    /// The blob, or a code object in it, lies outside the room between header and TOC.
    #[error("{what} has {size:#x} bytes at {offset:#x}, outside {start:#x}..{end:#x}")]
    Range {
        /// What it is.
        what: String,
        /// Its claimed offset.
        offset: u64,
        /// Its claimed size.
        size: u64,
        /// Where the room begins.
        start: u64,
        /// Where it ends.
        end: u64,
    },
    /// Bytes after the last frame of the blob.
    #[error("the blob's {count} frames end at {found:#x}, expected {expected:#x}")]
    BlobTail {
        /// Number of frames.
        count: u32,
        /// Where the last ends.
        found: u64,
        /// Where the blob ends.
        expected: u64,
    },
    /// An entry's name without an index.
    #[error("entry `{name}` has no `#index` at its end")]
    Name {
        /// The name.
        name: String,
    },
    /// Long names, each with entries for many ISAs.
    #[error(
        "the names of all entries have over {most} bytes, expected no more in a table of {toc_size:#x} bytes"
    )]
    Names {
        /// The most that a table of that size is let have.
        most: u64,
        /// Size of the table of contents.
        toc_size: u64,
    },
    /// A name that is no target id, in an entry or in the list of ISAs.
    #[error("`{name}` in the table of contents")]
    Isa {
        /// Name of the entry, or `gfx_arches`.
        name: String,
        /// Why.
        source: TargetError,
    },
    /// An entry of unknown type.
    #[error("entry `{name}` is of type `{found}`, expected `hsaco`")]
    Type {
        /// Name of the entry.
        name: String,
        /// The type.
        found: String,
    },
    /// An entry that names no code object.
    #[error("entry `{name}` names code object {ordinal}, but there are {count}")]
    Ordinal {
        /// Name of the entry.
        name: String,
        /// The ordinal.
        ordinal: u64,
        /// How many there are.
        count: u64,
    },
    /// An entry claims a size that its stored bytes cannot give.
    #[error("entry `{name}` claims {claimed} bytes, but its {stored} stored bytes give {}{possible}", if *compressed { "at most " } else { "" })]
    ClaimedSize {
        /// Name of the entry.
        name: String,
        /// The claimed original size.
        claimed: u64,
        /// Size as stored.
        stored: u64,
        /// The most that they can give.
        possible: u64,
        /// Whether they are compressed.
        compressed: bool,
    },
    /// An entry whose bytes are damaged or not of the claimed size.
    #[error("entry `{name}` cannot be read")]
    Content {
        /// Name of the entry.
        name: String,
        /// What the decompressor says.
        source: io::Error,
    },
}

/// One entry: a code object of one binary for one ISA.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The binary's kernel name: `{prefix}/{path under the prefix}`.
    pub binary: String,
    /// Position of the wrapper in the binary.
    pub co_index: u32,
    /// The ISA that it is filed under.
    pub isa: TargetId,
    /// Number of the code object in the archive; entries can share one.
    pub ordinal: u32,
    /// Size of the code object in bytes.
    pub original_size: u64,
}

impl Entry {
    /// The name in the table of contents: `{binary}#{co_index}`.
    pub fn name(&self) -> String {
        format!("{}#{}", self.binary, self.co_index)
    }
}

/// Whether the first bytes of a file, 76 or more, are those of an archive whose kernels are zstd frames: magic, and at the
/// beginning of the blob (after the number of frames and the first one's size) the magic of a frame.
pub fn is_compressed(start: &[u8]) -> bool {
    let frame = usize::try_from(BLOB_OFFSET).unwrap_or_default() + 8;
    start.starts_with(MAGIC)
        && start.get(frame..).is_some_and(|blob| blob.starts_with(b"\x28\xb5\x2f\xfd"))
}

/// An archive that is open for reading.
pub struct Archive<'r> {
    r: &'r dyn ReadAt,
    group_name: String,
    gfx_arch_family: String,
    gfx_arches: Vec<TargetId>,
    compressed: bool,
    blobs: Vec<TocBlob>,
    entries: Vec<Entry>,
}

impl<'r> Archive<'r> {
    /// Reads and checks header and table of contents.
    pub fn open(r: &'r dyn ReadAt) -> Result<Self, KpackError> {
        let len = r.len();
        let fail = |source| KpackError::Io { offset: 0, source };
        let header = read_vec(r, 0, len.min(16)).map_err(fail)?;
        let Some(header) = header.first_chunk::<16>().filter(|h| h.starts_with(MAGIC)) else {
            return Err(KpackError::Magic { found: header });
        };
        check_version("header", u32_of(&header[4..8]))?;
        let mut offset = [0; 8];
        offset.copy_from_slice(&header[8..16]);
        let offset = u64::from_le_bytes(offset);
        let size = len.checked_sub(offset).filter(|&size| offset >= 16 && size <= MAX_TOC);
        let size = size.ok_or(KpackError::TocRange { offset, len })?;
        let bytes = read_vec(r, offset, size);
        let bytes = bytes.map_err(|source| KpackError::Io { offset, source })?;
        let toc = decode_toc(&bytes, offset)?;
        check_version("table of contents", toc.format_version)?;
        let (compressed, blobs) = match toc.compression_scheme.as_str() {
            SCHEME_NONE => {
                let blobs = toc.blobs.ok_or(KpackError::Missing { field: "blobs" })?;
                for (i, blob) in blobs.iter().enumerate() {
                    check_range(|| format!("code object {i}"), *blob, 16, offset)?;
                }
                (false, blobs)
            }
            SCHEME_ZSTD => {
                let start = toc.zstd_offset.ok_or(KpackError::Missing { field: "zstd_offset" })?;
                let size = toc.zstd_size.ok_or(KpackError::Missing { field: "zstd_size" })?;
                (true, frames(r, TocBlob { offset: start, size }, offset)?)
            }
            _ => return Err(KpackError::Scheme { found: toc.compression_scheme }),
        };
        let isa = |name: &str, isa: &str| {
            isa.parse().map_err(|source| KpackError::Isa { name: name.to_owned(), source })
        };
        let gfx_arches = toc.gfx_arches.iter().map(|a| isa("gfx_arches", a));
        let gfx_arches = gfx_arches.collect::<Result<_, _>>()?;
        let mut entries = Vec::new();
        let most = size.saturating_mul(MAX_NAMES_RATIO);
        let mut held = 0u64;
        for (name, variants) in toc.toc {
            let (binary, co_index) = split_name(&name)?;
            held = held.saturating_add((binary.len() * variants.0.len()) as u64);
            if held > most {
                return Err(KpackError::Names { most, toc_size: size });
            }
            for (id, entry) in variants.0 {
                let ordinal = check_entry(&name, &entry, &blobs, compressed)?;
                entries.push(Entry {
                    binary: binary.to_owned(),
                    co_index,
                    isa: isa(&name, &id)?,
                    ordinal,
                    original_size: entry.original_size,
                });
            }
        }
        entries.sort();
        let Toc { group_name, gfx_arch_family, .. } = toc;
        Ok(Self { r, group_name, gfx_arch_family, gfx_arches, compressed, blobs, entries })
    }

    /// The artifact prefix that the archive was made for.
    pub fn group_name(&self) -> &str {
        &self.group_name
    }

    /// What the archive calls its family: the ISA.
    pub fn gfx_arch_family(&self) -> &str {
        &self.gfx_arch_family
    }

    /// The ISAs that the archive lists. The runtime stops at the first archive that lists the one it
    /// looks for.
    pub fn gfx_arches(&self) -> &[TargetId] {
        &self.gfx_arches
    }

    /// Whether each code object is a zstd frame.
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Number of code objects stored.
    pub fn unique_count(&self) -> usize {
        self.blobs.len()
    }

    /// The size that a code object takes in the archive, `None` for an ordinal that there is not.
    pub fn stored_size(&self, ordinal: u32) -> Option<u64> {
        self.blobs.get(ordinal as usize).map(|blob| blob.size)
    }

    /// All entries, by binary, index and ISA.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry for exactly that binary, index and ISA.
    pub fn get(&self, binary: &str, co_index: u32, isa: &TargetId) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|e| {
            (e.binary.as_str(), e.co_index, &e.isa).cmp(&(binary, co_index, isa))
        });
        found.ok().and_then(|i| self.entries.get(i))
    }

    /// A stream of the entry's code object. It gives `original_size` bytes or fails; the last of them
    /// come only when the frame's end and checksum have been seen to be right.
    pub fn open_entry(&self, entry: &Entry) -> Result<EntryReader<'r>, KpackError> {
        let blob = self.blobs.get(entry.ordinal as usize).ok_or_else(|| KpackError::Ordinal {
            name: entry.name(),
            ordinal: entry.ordinal.into(),
            count: self.blobs.len() as u64,
        })?;
        let stream = Cursor::new(self.r, blob.offset, blob.size);
        let inner: Box<dyn Read + Send + 'r> = if self.compressed {
            let open = || {
                let stream = BufReader::with_capacity(64 * 1024, stream);
                let mut decoder = zstd::stream::read::Decoder::with_buffer(stream)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Ok(decoder)
            };
            let fail = |source| KpackError::Content { name: entry.name(), source };
            Box::new(open().map_err(fail)?)
        } else {
            Box::new(stream)
        };
        Ok(EntryReader { inner, left: entry.original_size, ended: false })
    }

    /// The entry's code object, whole and checked.
    pub fn read(&self, entry: &Entry) -> Result<Vec<u8>, KpackError> {
        let mut bytes = Vec::new();
        let fail = |source| KpackError::Content { name: entry.name(), source };
        self.open_entry(entry)?.read_to_end(&mut bytes).map_err(fail)?;
        Ok(bytes)
    }
}

/// The bytes of one entry; made by [`Archive::open_entry`].
pub struct EntryReader<'r> {
    inner: Box<dyn Read + Send + 'r>,
    left: u64,
    ended: bool,
}

impl EntryReader<'_> {
    /// Checks that nothing follows, which also makes zstd compare the checksum.
    fn check_end(&mut self) -> io::Result<()> {
        if self.inner.read(&mut [0])? > 0 {
            let message = "the code object has more bytes than its entry says";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.ended = true;
        Ok(())
    }
}

impl Read for EntryReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        let mut n = 0;
        if len > 0 {
            n = self.inner.read(&mut buf[..len])?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.left -= n as u64;
        }
        if self.left == 0 && !self.ended {
            self.check_end()?;
        }
        Ok(n)
    }
}

fn check_version(place: &'static str, found: u32) -> Result<(), KpackError> {
    if found == VERSION { Ok(()) } else { Err(KpackError::Version { place, found }) }
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

fn check_range(
    what: impl FnOnce() -> String,
    blob: TocBlob,
    start: u64,
    end: u64,
) -> Result<(), KpackError> {
    let TocBlob { offset, size } = blob;
    if offset >= start && offset.checked_add(size).is_some_and(|e| e <= end) {
        return Ok(());
    }
    Err(KpackError::Range { what: what(), offset, size, start, end })
}

fn decode_toc(bytes: &[u8], offset: u64) -> Result<Toc, KpackError> {
    let (toc, used) =
        msgpack::decode(bytes).map_err(|source| KpackError::Toc { offset, source })?;
    let extra = (bytes.len() - used) as u64;
    if extra > 0 { Err(KpackError::TocTail { extra }) } else { Ok(toc) }
}

/// Finds the frames of a compressed blob, by walking from size to size.
fn frames(r: &dyn ReadAt, blob: TocBlob, toc_offset: u64) -> Result<Vec<TocBlob>, KpackError> {
    check_range(|| "the blob".to_owned(), blob, 16, toc_offset)?;
    let end = blob.offset + blob.size;
    let word = |what: &dyn Fn() -> String, offset: u64| {
        check_range(what, TocBlob { offset, size: 4 }, blob.offset, end)?;
        let mut word = [0; 4];
        r.read_exact_at(&mut word, offset).map_err(|source| KpackError::Io { offset, source })?;
        Ok(u32::from_le_bytes(word))
    };
    let count = word(&|| "the count of the blob".to_owned(), blob.offset)?;
    // No room is reserved by `count`: each turn has 4 bytes of the file behind it.
    let mut frames = Vec::new();
    let mut at = blob.offset + 4;
    for i in 0..count {
        let size = u64::from(word(&|| format!("the size of frame {i}"), at)?);
        let frame = TocBlob { offset: at + 4, size };
        check_range(|| format!("frame {i}"), frame, blob.offset, end)?;
        frames.push(frame);
        at = frame.offset + size;
    }
    if at != end {
        return Err(KpackError::BlobTail { count, found: at, expected: end });
    }
    Ok(frames)
}

fn split_name(name: &str) -> Result<(&str, u32), KpackError> {
    let split = name.rsplit_once('#').and_then(|(binary, index)| {
        // `+1` and `01` parse too, but are other names.
        let number: u32 = index.parse().ok().filter(|n: &u32| n.to_string() == index)?;
        (!binary.is_empty()).then_some((binary, number))
    });
    split.ok_or_else(|| KpackError::Name { name: name.to_owned() })
}

fn check_entry(
    name: &str,
    entry: &TocEntry,
    blobs: &[TocBlob],
    compressed: bool,
) -> Result<u32, KpackError> {
    let name = || name.to_owned();
    if entry.kind != TYPE_HSACO {
        return Err(KpackError::Type { name: name(), found: entry.kind.clone() });
    }
    let found = u32::try_from(entry.ordinal).ok().and_then(|o| Some((o, blobs.get(o as usize)?)));
    let (ordinal, blob) = found.ok_or_else(|| KpackError::Ordinal {
        name: name(),
        ordinal: entry.ordinal,
        count: blobs.len() as u64,
    })?;
    let (claimed, stored) = (entry.original_size, blob.size);
    let possible = if compressed { stored.saturating_mul(ZSTD_MAX_RATIO) } else { stored };
    if claimed > possible || !compressed && claimed < stored {
        return Err(KpackError::ClaimedSize {
            name: name(),
            claimed,
            stored,
            possible,
            compressed,
        });
    }
    Ok(ordinal)
}

#[cfg(test)]
mod tests;
