//! Compressed offload bundles: the `CCOB` header and the stream behind it.
//!
//! | version | header |
//! |---|---|
//! | 1 | `CCOB` · u16 version · u16 method · u32 uncompressed size · 8 bytes hash |
//! | 2 | `CCOB` · u16 version · u16 method · u32 total size · u32 uncompressed size · 8 bytes hash |
//! | 3 | `CCOB` · u16 version · u16 method · u64 total size · u64 uncompressed size · 8 bytes hash |
//!
//! Method 0 is zlib, 1 is zstd; the hash is the beginning of the MD5 of the uncompressed bundle.
//! Version 1 does not say where it ends: its zstd frame is walked from block to block, its zlib
//! stream is inflated once. Sizes are claims: a stream that cannot possibly give what the header
//! claims is refused before anything is decompressed, and nothing is allocated by them.

use std::io::{BufReader, Read};

use serde::{Deserialize, Serialize};

use crate::fatbin::error::BundleError;
use crate::read_at::{Cursor, ReadAt, read_vec};

/// The first bytes of a compressed bundle.
pub const MAGIC: &[u8; 4] = b"CCOB";

/// Most that one zstd block can give (128 KiB), for the 4 bytes that a block takes at least: no
/// stream expands by more.
pub(crate) const ZSTD_MAX_RATIO: u64 = 32 * 1024;

/// No deflate stream expands by more.
const ZLIB_MAX_RATIO: u64 = 1032;

/// The largest window that is accepted from a zstd stream: what a decoder takes by default.
pub(crate) const ZSTD_WINDOW_LOG: u32 = 27;

/// More blocks in one frame are no bundle: 2^24 blocks of 128 KiB are 2 TiB.
const MAX_BLOCKS: u32 = 1 << 24;

/// How the bundle is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// Method 0: a zlib stream.
    Zlib,
    /// Method 1: a zstd frame.
    Zstd,
}

/// The header of a compressed bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CcobHeader {
    /// Format version: 1, 2 or 3.
    pub version: u16,
    /// How the bundle is compressed.
    pub method: Method,
    /// Length of the header: the stream begins this many bytes after the bundle's start.
    pub header_size: u64,
    /// Length on disk of header and stream together.
    pub total_size: u64,
    /// Length of the uncompressed bundle, as the header claims it.
    pub uncompressed_size: u64,
    /// First 8 bytes of the MD5 of the uncompressed bundle, as the header claims them.
    pub hash: [u8; 8],
}

impl CcobHeader {
    /// Reads the header at `offset` of `r`; header and stream must end at or before `limit`.
    pub fn read(r: &dyn ReadAt, offset: u64, limit: u64) -> Result<Self, BundleError> {
        let limit = limit.min(r.len());
        let available = limit.saturating_sub(offset);
        let fixed = take(r, offset, 8, available)?;
        if fixed[..4] != *MAGIC {
            return Err(BundleError::Magic { offset, found: fixed[..4].to_vec() });
        }
        let version = u16::from_le_bytes([fixed[4], fixed[5]]);
        let method = match u16::from_le_bytes([fixed[6], fixed[7]]) {
            0 => Method::Zlib,
            1 => Method::Zstd,
            found => return Err(BundleError::Method { offset: offset + 6, found }),
        };
        let header_size = match version {
            1 => 20,
            2 => 24,
            3 => 32,
            found => return Err(BundleError::Version { offset: offset + 4, found }),
        };
        let header = take(r, offset, header_size, available)?;
        let (total_size, uncompressed_size) = match version {
            1 => (None, u32_at(&header, 8)),
            2 => (Some(u32_at(&header, 8)), u32_at(&header, 12)),
            _ => (Some(u64_at(&header, 8)), u64_at(&header, 16)),
        };
        let mut hash = [0; 8];
        hash.copy_from_slice(&header[header.len() - 8..]);
        let checked_total = total_size.unwrap_or(available);
        if checked_total < header_size || checked_total > available {
            return Err(BundleError::TotalSize {
                offset: offset + 8,
                found: checked_total,
                available,
            });
        }
        let mut this = Self {
            version,
            method,
            header_size,
            total_size: checked_total,
            uncompressed_size,
            hash,
        };
        this.check_ratio(offset)?;
        if total_size.is_none() {
            let start = offset + header_size;
            let end = match method {
                Method::Zstd => zstd_frame_end(r, start, limit)?,
                Method::Zlib => zlib_stream_end(r, start, limit, uncompressed_size)?,
            };
            this.total_size = end - offset;
            this.check_ratio(offset)?;
        }
        Ok(this)
    }

    /// Whether its sizes can be those of a compressed bundle of `total_size` bytes.
    pub(super) fn check(&self, total_size: u64) -> Result<(), BundleError> {
        if self.total_size != total_size
            || self.header_size > total_size
            || !matches!(self.header_size, 20 | 24 | 32)
        {
            let (found, available) = (self.total_size, total_size);
            return Err(BundleError::TotalSize { offset: 0, found, available });
        }
        self.check_ratio(0)
    }

    /// What a decoder keeps in memory of what it gave, at most.
    pub(crate) fn window(&self) -> u64 {
        match self.method {
            Method::Zlib => 32 << 10,
            Method::Zstd => self.uncompressed_size.min(1 << ZSTD_WINDOW_LOG),
        }
    }

    fn check_ratio(&self, offset: u64) -> Result<(), BundleError> {
        let payload = self.total_size - self.header_size;
        let ratio = match self.method {
            Method::Zlib => ZLIB_MAX_RATIO,
            Method::Zstd => ZSTD_MAX_RATIO,
        };
        let possible = payload.saturating_mul(ratio);
        if self.uncompressed_size > possible {
            let claimed = self.uncompressed_size;
            return Err(BundleError::ClaimedSize { offset, claimed, payload, possible });
        }
        Ok(())
    }

    /// The uncompressed bundle, as a stream; `offset` is where the compressed one begins. The
    /// stream is not cut at the claimed size.
    pub fn decoder<'r>(
        &self,
        r: &'r dyn ReadAt,
        offset: u64,
    ) -> std::io::Result<Box<dyn Read + Send + 'r>> {
        let stream = Cursor::new(r, offset + self.header_size, self.total_size - self.header_size);
        let stream = BufReader::with_capacity(64 * 1024, stream);
        Ok(match self.method {
            Method::Zlib => Box::new(flate2::bufread::ZlibDecoder::new(stream)),
            Method::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(stream)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Box::new(decoder)
            }
        })
    }
}

fn take(r: &dyn ReadAt, offset: u64, len: u64, available: u64) -> Result<Vec<u8>, BundleError> {
    if available < len {
        return Err(BundleError::Truncated {
            offset,
            field: "compressed bundle header",
            available,
        });
    }
    read_vec(r, offset, len).map_err(|source| BundleError::Io { offset, source })
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u64::from(u32::from_le_bytes(value))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

/// Where the zstd frame that begins at `start` ends, found by walking its block headers (RFC 8878).
fn zstd_frame_end(r: &dyn ReadAt, start: u64, limit: u64) -> Result<u64, BundleError> {
    let read = |offset: u64, buf: &mut [u8]| {
        let available = limit.saturating_sub(offset);
        if available < buf.len() as u64 {
            return Err(BundleError::Truncated { offset, field: "zstd frame", available });
        }
        r.read_exact_at(buf, offset).map_err(|source| BundleError::Io { offset, source })
    };
    let mut head = [0; 5];
    read(start, &mut head)?;
    if head[..4] != [0x28, 0xb5, 0x2f, 0xfd] {
        return Err(BundleError::Frame { offset: start, what: "no zstd frame begins here" });
    }
    let descriptor = head[4];
    let single_segment = descriptor & 0x20 != 0;
    let window = u64::from(!single_segment);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content_size = match descriptor >> 6 {
        0 => u64::from(single_segment),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    let mut at = start + 5 + window + dictionary + content_size;
    for _ in 0..MAX_BLOCKS {
        let mut block = [0; 3];
        read(at, &mut block)?;
        let block = u32::from_le_bytes([block[0], block[1], block[2], 0]);
        let size = match block >> 1 & 3 {
            // A run-length block stores one byte, whatever its size.
            1 => 1,
            3 => return Err(BundleError::Frame { offset: at, what: "a reserved zstd block type" }),
            _ => u64::from(block >> 3),
        };
        at += 3 + size;
        if block & 1 == 1 {
            at += if descriptor & 4 != 0 { 4 } else { 0 };
            if at > limit {
                return Err(BundleError::Truncated {
                    offset: start,
                    field: "zstd frame",
                    available: limit.saturating_sub(start),
                });
            }
            return Ok(at);
        }
    }
    Err(BundleError::Frame { offset: start, what: "a zstd frame of over 2^24 blocks" })
}

/// Where the zlib stream that begins at `start` ends, found by inflating it.
fn zlib_stream_end(
    r: &dyn ReadAt,
    start: u64,
    limit: u64,
    claimed: u64,
) -> Result<u64, BundleError> {
    let stream = BufReader::with_capacity(64 * 1024, Cursor::new(r, start, limit - start));
    let mut decoder = flate2::bufread::ZlibDecoder::new(stream);
    let mut sink = vec![0; 64 * 1024];
    loop {
        match decoder.read(&mut sink) {
            Ok(0) => return Ok(start + decoder.total_in()),
            Ok(_) if decoder.total_out() > claimed => {
                return Err(BundleError::ActualSize { claimed, actual: decoder.total_out() });
            }
            Ok(_) => {}
            Err(source) => return Err(BundleError::Decompress { offset: start, source }),
        }
    }
}
