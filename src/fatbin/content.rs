//! Compressed bundles that are decompressed into memory whole, with their hashes still to be checked:
//! those of several are checked together, which is up to eight times as fast.

use std::ops::Deref;
use std::sync::Arc;

use super::bundle::{Bundle, BundleError, Form};
use super::ccob::Method;
use crate::buffers::Buffers;
use crate::md5_lanes;
use crate::read_at::{ReadAt, read_vec};

/// The content of a compressed bundle. What is in it is only good when [`check`] says so.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Vec<u8>,
    expected: [u8; 8],
    /// Where the memory goes afterwards.
    buffers: Arc<Buffers>,
}

impl Content {
    /// How many are best checked together.
    pub const TOGETHER: usize = md5_lanes::LANES;

    /// Decompresses a bundle that was read from `r`. `None` where it would take more than `most` bytes,
    /// where it is not compressed by zstd, and where it does not become exactly what its header
    /// claims: [`Bundle::for_each_entry`] then gives it piece by piece, or says what is wrong.
    pub fn read(
        bundle: &Bundle,
        r: &dyn ReadAt,
        most: u64,
        buffers: &Arc<Buffers>,
    ) -> Option<Self> {
        let Form::Compressed(header) = &bundle.form else { return None };
        let size = header.uncompressed_size;
        let stream = header.total_size.checked_sub(header.header_size)?;
        // A stream larger than its content is no use of memory.
        if header.method != Method::Zstd || size > most || stream > size {
            return None;
        }
        let size = usize::try_from(size).ok()?;
        let stream = read_vec(r, bundle.offset + header.header_size, stream).ok()?;
        let mut decompressor = zstd::bulk::Decompressor::new().ok()?;
        let mut bytes = buffers.take(rounded(size));
        bytes.clear();
        let done = decompressor.decompress_to_buffer(&stream, &mut bytes);
        let content = Self { bytes, expected: header.hash, buffers: Arc::clone(buffers) };
        done.is_ok_and(|n| n == size).then_some(content)
    }
}

/// Room for this many bytes and up to a quarter more, in few enough sizes that buffers fit again.
fn rounded(size: usize) -> usize {
    let step = (size.next_power_of_two() / 8).max(1);
    size.checked_next_multiple_of(step).unwrap_or(size)
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.buffers.give_back(std::mem::take(&mut self.bytes));
    }
}

/// Checks the hashes: a result for each, in their order.
pub(crate) fn check(contents: &[&Content]) -> Vec<Result<(), BundleError>> {
    let bytes: Vec<&[u8]> = contents.iter().map(|content| &***content).collect();
    let check = |(content, md5): (&&Content, [u8; 16])| {
        let mut found = [0; 8];
        found.copy_from_slice(&md5[..8]);
        let expected = content.expected;
        if found == expected { Ok(()) } else { Err(BundleError::Hash { found, expected }) }
    };
    contents.iter().zip(md5_lanes::md5(&bytes)).map(check).collect()
}
