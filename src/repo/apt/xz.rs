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
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const HEADER: [u8; 8] = [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 4];
const FLAGS: [u8; 2] = [0, 4];
const MAGIC_END: &[u8] = b"YZ";
/// Of header and footer.
const ENDS: usize = 12;
/// Bytes of text in which a match is looked for, which decompressors have to hold.
const WINDOW: u32 = 2 << 20;

/// A piece of text, compressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Of what it is: see [`key`].
    pub(super) key: [u8; 32],
    /// Size of the text in bytes.
    text: u64,
    /// Size without padding.
    unpadded: u64,
    /// With padding.
    #[serde(with = "crate::msgpack::bytes")]
    bytes: Vec<u8>,
    /// SHA-256 of all the above: a block is copied into an index that clients read, and nobody looks into it.
    #[serde(default)]
    sum: [u8; 32],
}

impl Block {
    fn new(key: [u8; 32], text: u64, unpadded: u64, bytes: Vec<u8>) -> Self {
        let mut block = Self { key, text, unpadded, bytes, sum: [0; 32] };
        block.sum = block.sum();
        block
    }

    fn sum(&self) -> [u8; 32] {
        let mut sha256 = Sha256::new();
        sha256.update(self.key);
        sha256.update(self.text.to_le_bytes());
        sha256.update(self.unpadded.to_le_bytes());
        sha256.update(&self.bytes);
        sha256.finalize().into()
    }

    /// Whether it is as it was made. One that is not is made again.
    pub(super) fn is_whole(&self) -> bool {
        self.sum == self.sum()
    }
}

/// What tells whether a block is of this text, and made as this program makes it.
pub(super) fn key(text: &[u8]) -> [u8; 32] {
    let mut sha256 = Sha256::new();
    sha256.update(env!("CARGO_PKG_VERSION"));
    sha256.update(b" xz -6, 2 MiB\n");
    sha256.update(text);
    sha256.finalize().into()
}

/// Compresses a piece of text, which is not empty. The bytes follow from it alone.
pub(super) fn block(key: [u8; 32], text: &[u8]) -> io::Result<Block> {
    let mut lzma = LzmaOptions::new_preset(6)?;
    lzma.dict_size(WINDOW);
    let mut filters = Filters::new();
    filters.lzma2(&lzma);
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
    Ok(Block::new(key, text.len() as u64, unpadded, bytes))
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

/// The stream of these blocks.
pub(super) fn stream(blocks: &[&Block]) -> Vec<u8> {
    let mut out = HEADER.to_vec();
    out.extend(crc32(&FLAGS));
    for block in blocks {
        out.extend_from_slice(&block.bytes);
    }
    let mut index = vec![0];
    number(&mut index, blocks.len() as u64);
    for block in blocks {
        number(&mut index, block.unpadded);
        number(&mut index, block.text);
    }
    index.resize(index.len().next_multiple_of(4), 0);
    let sum = crc32(&index);
    index.extend(sum);
    let backward = u32::try_from(index.len() / 4 - 1).unwrap_or(u32::MAX).to_le_bytes();
    out.append(&mut index);
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
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    fn text(lines: u32) -> String {
        (0..lines).map(|n| format!("SHA256: {:08x}{n}\n", n.wrapping_mul(2_654_435_761))).collect()
    }

    #[test]
    fn blocks_make_one_stream_that_xz_takes() {
        let pieces = [text(100_000), text(1), text(40_000)];
        for pieces in [&pieces[..0], &pieces[1..2], &pieces[..]] {
            let blocks = pieces.iter().map(|text| block(key(text.as_bytes()), text.as_bytes()));
            let blocks: Vec<Block> = blocks.collect::<Result<_, _>>().unwrap();
            let made = stream(&blocks.iter().collect::<Vec<_>>());
            // Not a decoder that goes on after the end of a stream.
            let mut read = String::new();
            liblzma::read::XzDecoder::new(&made[..]).read_to_string(&mut read).unwrap();
            assert!(read == pieces.concat());
            let mut xz = Command::new("xz");
            xz.args(["--test", "--no-warn", "-"]).stdin(Stdio::piped());
            let mut xz = xz.spawn().unwrap();
            xz.stdin.take().unwrap().write_all(&made).unwrap();
            assert!(xz.wait().unwrap().success());
        }
    }

    #[test]
    fn a_block_that_is_not_as_it_was_made_is_found_out() {
        let [one, other] =
            ["one", "other"].map(|text| block(key(text.as_bytes()), text.as_bytes()).unwrap());
        assert!(one.is_whole() && other.is_whole());
        let mut bytes = one.bytes.clone();
        bytes[9] ^= 1;
        for bad in [
            Block { key: other.key, ..one.clone() },
            Block { text: other.text, ..one.clone() },
            Block { unpadded: one.unpadded + 4, ..one.clone() },
            Block { bytes: other.bytes.clone(), ..one.clone() },
            Block { bytes, ..one.clone() },
            Block { sum: other.sum, ..one.clone() },
        ] {
            assert!(!bad.is_whole());
        }
    }

    #[test]
    fn liblzma_would_write_the_same() {
        let text = text(10);
        let one = block([0; 32], text.as_bytes()).unwrap();
        let mut lzma = LzmaOptions::new_preset(6).unwrap();
        lzma.dict_size(WINDOW);
        let mut filters = Filters::new();
        filters.lzma2(&lzma);
        let mut builder = MtStreamBuilder::new();
        builder.filters(filters).check(Check::Crc64).threads(1).block_size(text.len() as u64);
        let mut out = liblzma::write::XzEncoder::new_stream(Vec::new(), builder.encoder().unwrap());
        out.write_all(text.repeat(2).as_bytes()).unwrap();
        assert_eq!(stream(&[&one, &one]), out.finish().unwrap());
    }
}
