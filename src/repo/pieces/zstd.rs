//! `.zst` of pieces: one frame, whose blocks look back at nothing before their piece.
//!
//! ```text
//! header   28 b5 2f fd, descriptor 00 (no size, no checksum), window 58 (2 MiB)
//! pieces   the blocks of each
//! end      01 00 00: the last block, empty
//! ```
//!
//! Many readers stop after the first frame, so pieces must not be frames. Blocks of one frame cannot simply stand in another: they
//! may name the last offsets and the tables of the blocks before. libzstd makes those that do not in its jobs for several
//! threads, all but the first: a piece is made as the second job of a frame. Source: RFC 8878; zstd.h, `ZSTD_c_nbWorkers`,
//! `ZSTD_c_overlapLog` (1: no overlap).

use std::io;

use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, get_error_name};

pub(super) const METHOD: &[u8] = b" zstd -6, 2 MiB\n";
/// At level 6 these pieces take less than the whole at level 10, in a third of the time.
const LEVEL: i32 = 6;
const WINDOW_LOG: u8 = 21;
/// Entries of the tables of a job. More do not make less of a piece, and take time to be cleared.
const TABLE_LOG: u32 = 16;
/// Text of a job: longer pieces are several.
const JOB: u32 = 4 << 20;
/// Magic, descriptor, and the window's size: 2 to the power of 10 and what is in the upper five bits.
pub(super) const HEADER: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0, (WINDOW_LOG - 10) << 3];
pub(super) const END: [u8; 3] = [1, 0, 0];

/// What is shorter stands as it is: a few bytes for the time of an encoder.
const RAW: usize = 512;

/// The blocks of a text.
pub(super) fn block(text: &[u8]) -> io::Result<Vec<u8>> {
    if text.len() <= RAW {
        // Its type, 0, and whether it is the last are in the three bits below the size.
        let size = text.len() << 3;
        return Ok([&size.to_le_bytes()[..3], text].concat());
    }
    let mut encoder = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
    for parameter in [
        CParameter::CompressionLevel(LEVEL),
        CParameter::WindowLog(WINDOW_LOG.into()),
        CParameter::HashLog(TABLE_LOG),
        CParameter::ChainLog(TABLE_LOG),
        // The thread of the first job may not have come to rest, and libzstd waits for it without sleeping.
        CParameter::NbWorkers(2),
        CParameter::JobSize(JOB),
        CParameter::OverlapSizeLog(1),
    ] {
        encoder.set_parameter(parameter).map_err(failed)?;
    }
    let mut first = Vec::with_capacity(64);
    job(&mut encoder, b"-", &mut first)?;
    let mut bytes = Vec::with_capacity(text.len() / 4 + 4096);
    job(&mut encoder, text, &mut bytes)?;
    Ok(bytes)
}

/// Appends all that becomes of a text.
fn job(encoder: &mut CCtx<'_>, text: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
    let mut input = InBuffer::around(text);
    loop {
        let at = to.len();
        let mut output = OutBuffer::around_pos(to, at);
        let left = encoder
            .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_flush)
            .map_err(failed)?;
        if left == 0 && input.pos() == text.len() {
            return Ok(());
        }
        if to.len() == to.capacity() {
            to.reserve(to.len());
        }
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}
