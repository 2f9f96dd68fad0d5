//! `.xz` of blocks that are compressed each for itself, so that those whose text has not changed can be copied.
//!
//! ```text
//! header   FD "7zXZ" 00, flags 00 04 (CRC64), CRC32 of the flags
//! blocks   each as liblzma writes it, padded to four bytes
//! index    00, number of blocks, for each its size without padding and that of its text; padding, CRC32
//! footer   CRC32 of what follows, size of the index / 4 - 1, flags, "YZ"
//! ```
//!
//! That is one stream, as `xz --block-size` writes it. Numbers in the index have seven bits a byte, the lowest first. Source: The
//! .xz File Format 1.2.1.

use std::io::{self, Write};

use liblzma::stream::{Check, Filters, LzmaOptions, MtStreamBuilder};

/// Another dictionary than the level's: decompressors have to hold it.
pub(super) const METHOD: &[u8] = b" xz -6, 2 MiB\n";
const HEADER: [u8; 8] = [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 4];
const FLAGS: [u8; 2] = [0, 4];
const MAGIC_END: &[u8] = b"YZ";
/// Of header and footer.
const ENDS: usize = 12;
/// Bytes of text in which a match is looked for, at most.
const WINDOW: u32 = 2 << 20;

/// Those of level 6, with no larger tables than the text needs: new memory takes longer than what is done in it.
fn options(text: usize) -> io::Result<LzmaOptions> {
    let window = u32::try_from(text.next_power_of_two()).unwrap_or(u32::MAX);
    let mut lzma = LzmaOptions::new_preset(6)?;
    lzma.dict_size(window.clamp(4 << 10, WINDOW));
    Ok(lzma)
}

/// The block of a text with its padding, and its size without.
pub(super) fn block(text: &[u8]) -> io::Result<(Vec<u8>, u64)> {
    let mut filters = Filters::new();
    filters.lzma2(&options(text.len())?);
    // This encoder states sizes at the beginning of a block, which lets readers decompress several at once.
    let stream = MtStreamBuilder::new()
        .filters(filters)
        .check(Check::Crc64)
        .block_size(text.len() as u64)
        .threads(1)
        .encoder()?;
    let mut out = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    out.write_all(text)?;
    let mut bytes = out.finish()?;
    let (end, unpadded) = only_block(&bytes)
        .ok_or_else(|| io::Error::other("liblzma wrote another stream than one of one block"))?;
    bytes.truncate(end);
    bytes.drain(..ENDS);
    Ok((bytes, unpadded))
}

/// Where the only block of a stream ends, and its size without padding, as the index says.
fn only_block(stream: &[u8]) -> Option<(usize, u64)> {
    let footer = stream.len().checked_sub(ENDS)?;
    let backward = stream.get(footer + 4..footer + 8)?.try_into().ok()?;
    let index_size = (u32::from_le_bytes(backward) as usize + 1) * 4;
    let at = footer.checked_sub(index_size)?;
    let index = stream.get(at..footer)?;
    let [0, 1, numbers @ ..] = index else { return None };
    let mut unpadded = 0;
    for (n, byte) in numbers.iter().take(9).enumerate() {
        unpadded |= u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            break;
        }
    }
    // What liblzma says is so.
    (unpadded.next_multiple_of(4) == at.checked_sub(ENDS)? as u64).then_some((at, unpadded))
}

/// What stands before the blocks.
pub(super) fn header() -> Vec<u8> {
    let mut out = HEADER.to_vec();
    out.extend(crc32(&FLAGS));
    out
}

/// What stands behind blocks, of which each has its size without padding, and that of its text.
pub(super) fn end(blocks: &[(u64, u64)]) -> Vec<u8> {
    let mut index = vec![0];
    number(&mut index, blocks.len() as u64);
    for (unpadded, text) in blocks {
        number(&mut index, *unpadded);
        number(&mut index, *text);
    }
    index.resize(index.len().next_multiple_of(4), 0);
    let sum = crc32(&index);
    index.extend(sum);
    let backward = u32::try_from(index.len() / 4 - 1).unwrap_or(u32::MAX).to_le_bytes();
    let mut out = index;
    let footer = [&backward[..], &FLAGS].concat();
    out.extend(crc32(&footer));
    out.extend(footer);
    out.extend_from_slice(MAGIC_END);
    out
}

fn crc32(bytes: &[u8]) -> [u8; 4] {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn liblzma_would_write_the_same() {
        let text = "one piece, and again ".repeat(9);
        let (bytes, unpadded) = block(text.as_bytes()).unwrap();
        let mut filters = Filters::new();
        filters.lzma2(&options(text.len()).unwrap());
        let mut builder = MtStreamBuilder::new();
        builder.filters(filters).check(Check::Crc64).threads(1).block_size(text.len() as u64);
        let mut out = liblzma::write::XzEncoder::new_stream(Vec::new(), builder.encoder().unwrap());
        out.write_all(text.repeat(2).as_bytes()).unwrap();
        let of = (unpadded, text.len() as u64);
        let made = [header(), bytes.clone(), bytes, end(&[of, of])].concat();
        assert_eq!(made, out.finish().unwrap());
    }
}
