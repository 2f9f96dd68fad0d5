//! `.zst` of pieces: one frame, whose blocks look back at nothing before their piece ([`crate::zstd_blocks`]).
//!
//! ```text
//! header   28 b5 2f fd, descriptor 00 (no size, no checksum), window 58 (2 MiB)
//! pieces   the blocks of each
//! end      01 00 00: the last block, empty
//! ```
//!
//! Many readers stop after the first frame, so pieces must not be frames.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zstd::zstd_safe::CParameter;

use crate::zstd_blocks::{self, BlockEncoder, MAGIC};

pub(super) use crate::zstd_blocks::END;

pub(super) const METHOD: &[u8] = b" zstd -6, 2 MiB\n";
/// At level 6 these pieces take less than the whole at level 10, in a third of the time.
const LEVEL: i32 = 6;
const WINDOW_LOG: u8 = 21;
/// Entries of the tables of a job. More do not make less of a piece, and take time to be cleared.
const TABLE_LOG: u32 = 16;
/// Text of a job: longer pieces are several.
const JOB: usize = 4 << 20;
/// Magic, descriptor, and how far blocks look back.
pub(super) const HEADER: [u8; 6] =
    [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], 0, zstd_blocks::window_byte(WINDOW_LOG)];

/// What is shorter stands as it is: a few bytes for the time of an encoder.
const RAW: usize = 512;

/// Encoders, each of which works on one text at a time. One has threads and tables, which take longer to be had than a piece
/// to be compressed.
#[derive(Default)]
pub(super) struct Encoders(Mutex<Vec<BlockEncoder>>);

impl fmt::Debug for Encoders {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Encoders")
    }
}

impl Encoders {
    /// The blocks of a text. They follow from it alone.
    pub fn block(&self, text: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(text.len() / 4 + 4096);
        if text.len() <= RAW {
            zstd_blocks::raw(text, &mut bytes);
            return Ok(bytes);
        }
        let mut encoder = match self.idle().pop() {
            Some(encoder) => encoder,
            None => {
                let tables = [CParameter::HashLog(TABLE_LOG), CParameter::ChainLog(TABLE_LOG)];
                BlockEncoder::new(LEVEL, WINDOW_LOG, JOB, &tables)?
            }
        };
        for text in text.chunks(JOB) {
            encoder.feed(text, true)?;
            encoder.take(&mut bytes)?;
        }
        encoder.rest()?;
        self.idle().push(encoder);
        Ok(bytes)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<BlockEncoder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
