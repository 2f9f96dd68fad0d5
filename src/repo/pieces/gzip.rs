//! `.gz` of pieces: one member, whose parts end at bytes and look back at nothing before them.
//!
//! ```text
//! header   1f 8b 08 00, time 0, 00, system ff (unknown)
//! pieces   each deflated for itself and flushed, which ends it with an empty stored block (00 00 ff ff)
//! end      03 00: the last block, empty
//! trailer  CRC32 of the text, its size modulo 2^32
//! ```
//!
//! So does pigz with `--independent`. Source: RFC 1951, RFC 1952.

use std::io;

use flate2::{Compress, Compression, Crc, FlushCompress, Status};

pub(super) const METHOD: &[u8] = b" deflate 6\n";
pub(super) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
pub(super) const END: &[u8] = &[3, 0];

/// The deflated text.
pub(super) fn block(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut deflate = Compress::new(Compression::new(6), false);
    let mut bytes = Vec::with_capacity(text.len() / 4 + 4096);
    loop {
        let read = usize::try_from(deflate.total_in()).unwrap_or(text.len());
        let status = deflate.compress_vec(&text[read..], &mut bytes, FlushCompress::Full);
        match status.map_err(io::Error::other)? {
            Status::StreamEnd => return Err(io::Error::other("deflate ended without being told")),
            // A flush is complete when there was room for more.
            _ if deflate.total_in() == text.len() as u64 && bytes.len() < bytes.capacity() => {
                return Ok(bytes);
            }
            _ => bytes.reserve(bytes.len().max(4096)),
        }
    }
}

/// A member under way.
#[derive(Debug, Default)]
pub(super) struct Sum {
    crc: Crc,
    size: u64,
}

impl Sum {
    pub fn update(&mut self, text: &[u8]) {
        self.crc.update(text);
        self.size += text.len() as u64;
    }

    /// What stands behind the pieces.
    pub fn end(&self) -> Vec<u8> {
        let mut out = END.to_vec();
        out.extend(self.crc.sum().to_le_bytes());
        // The format has the low 32 bits of the size.
        out.extend_from_slice(&self.size.to_le_bytes()[..4]);
        out
    }
}
