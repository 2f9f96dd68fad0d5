//! Compressed bundles that are decompressed into memory whole, with their hashes still to be checked:
//! those of several are checked together, which is up to eight times as fast.

use std::cell::RefCell;
use std::ops::Deref;

use super::bundle::{Bundle, BundleError, Form};
use super::ccob::Method;
use crate::buffers::Buffer;
use crate::md5_lanes;
use crate::read_at::ReadAt;

/// What a thread needs to decompress, kept for the next bundle: new memory is cleared by the system, page by page.
#[derive(Default)]
struct Reader {
    context: Option<zstd::bulk::Decompressor<'static>>,
    input: Vec<u8>,
}

thread_local! {
    static READER: RefCell<Reader> = RefCell::default();
}

/// Input of more bytes is not kept.
const KEPT: usize = 2 << 20;

/// The content of a compressed bundle. What is in it is only good when [`check`] says so.
#[derive(Debug)]
pub(crate) struct Content {
    buffer: Buffer,
    expected: [u8; 8],
}

impl Content {
    /// How many are best checked together.
    pub const TOGETHER: usize = md5_lanes::LANES;

    /// The bytes that [`Self::read`] needs for a bundle. `None` for one that it is not for: one that is not compressed by zstd,
    /// or is larger than its content, which is no use of memory.
    pub fn size(bundle: &Bundle) -> Option<u64> {
        let Form::Compressed(header) = &bundle.form else { return None };
        let stream = header.total_size.checked_sub(header.header_size)?;
        let size = header.uncompressed_size;
        (header.method == Method::Zstd && stream <= size).then_some(size)
    }

    /// Decompresses a bundle that was read from `r` into a buffer, which is empty and has room for [`Self::size`] bytes. `None`
    /// where it does not become exactly what its header claims: [`Bundle::for_each_entry`] then gives it piece by piece, or says
    /// what is wrong.
    pub fn read(bundle: &Bundle, r: &dyn ReadAt, mut buffer: Buffer) -> Option<Self> {
        let Form::Compressed(header) = &bundle.form else { return None };
        let size = usize::try_from(Self::size(bundle)?).ok()?;
        let stream = usize::try_from(header.total_size.checked_sub(header.header_size)?).ok()?;
        let start = bundle.offset.checked_add(header.header_size)?;
        if buffer.bytes.capacity() < size {
            return None;
        }
        let n = READER.with_borrow_mut(|reader| {
            let input = &mut reader.input;
            input.resize(input.len().max(stream), 0);
            r.read_exact_at(&mut input[..stream], start).ok()?;
            let context = match &mut reader.context {
                Some(context) => context,
                none => none.insert(zstd::bulk::Decompressor::new().ok()?),
            };
            let n = context.decompress_to_buffer(&input[..stream], &mut buffer.bytes).ok();
            if input.capacity() > KEPT {
                *input = Vec::new();
            }
            n
        })?;
        (n == size).then_some(Self { buffer, expected: header.hash })
    }

    /// Whether three quarters of the lanes would be busy while contents of these sizes are checked together: that takes as long as
    /// the longest does alone.
    pub fn lanes_filled(sizes: impl Iterator<Item = u64> + Clone) -> bool {
        let longest = sizes.clone().max().unwrap_or(0);
        sizes.sum::<u64>() >= longest.saturating_mul(Self::TOGETHER as u64 / 4 * 3)
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer.bytes
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
