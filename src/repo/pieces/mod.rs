//! Indices that are compressed in pieces, each for itself, so that those whose text has not changed are copied.
//!
//! A night's packages change a few stanzas of thousands. What clients get is one stream of the format all the same,
//! as its own tools write it: [`gzip`], [`xz`] and [`zstd`] say how pieces make one. The bytes follow from the text alone,
//! whatever was copied.

mod gzip;
mod xz;
mod zstd;

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;

use ::zstd::bulk::Decompressor;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A piece has at least so many bytes, unless it is the last.
const LEAST: usize = 48 << 10;
/// One that has more ends with the next stanza.
const MOST: usize = 768 << 10;
/// In so many bytes one stanza begins a piece. Most pieces end by this, as the others move what comes after them.
const USUAL: u64 = 160 << 10;

/// Whether a piece of `size` bytes ends before a stanza of `next` bytes, of which `dice` is a digest: the more often, the
/// longer it is.
///
/// But for the least and the most, that does not depend on what is before: what comes or goes changes the piece that it is
/// in, and those around it stay what they were.
fn ends(size: usize, next: usize, dice: u64) -> bool {
    size >= MOST || size >= LEAST && dice / (u64::MAX / USUAL) < next as u64
}

/// Cuts a text of stanzas into pieces, of which each is told by its digest and its size.
pub(super) fn runs<'a>(stanzas: impl Iterator<Item = (&'a [u8; 32], u32)>) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let (mut begin, mut end, mut size) = (0, 0, 0_usize);
    for (digest, next) in stanzas {
        let next = next as usize;
        if ends(size, next, dice(digest)) {
            runs.push(begin..end);
            (begin, size) = (end, 0);
        }
        size = size.saturating_add(next);
        end += 1;
    }
    if begin < end {
        runs.push(begin..end);
    }
    runs
}

/// The first bytes of a SHA-256 as a number, which is as good as dice.
fn dice(sha256: &[u8; 32]) -> u64 {
    let mut dice = [0; 8];
    dice.copy_from_slice(&sha256[..8]);
    u64::from_le_bytes(dice)
}

/// What pieces are compressed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Packing {
    Gzip,
    Xz,
    Zstd,
}

/// What a piece of text is: two of one key are compressed the same.
pub(super) type Key = [u8; 32];

/// A piece of text, compressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Of its text: see [`key`].
    #[serde(with = "crate::msgpack::digest")]
    key: Key,
    /// Size of the text in bytes.
    text: u64,
    /// Of xz, the size without padding.
    unpadded: u64,
    /// As the stream has it.
    #[serde(with = "crate::msgpack::bytes")]
    bytes: Vec<u8>,
    /// SHA-256 of all the above: a block is copied into an index that clients read, and nobody looks into it.
    #[serde(with = "crate::msgpack::digest")]
    sum: [u8; 32],
}

impl Block {
    fn new(key: Key, text: u64, unpadded: u64, bytes: Vec<u8>) -> Self {
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

    /// Size of the bytes that it has in a stream.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it is as it was made.
    fn is_whole(&self) -> bool {
        self.sum == self.sum()
    }
}

/// Blocks of the publication before, by what they are, and what others are made with.
#[derive(Debug)]
pub struct Kept<'a> {
    blocks: HashMap<Key, &'a Block>,
    encoders: zstd::Encoders,
}

impl<'a> Kept<'a> {
    /// These, without those that are not as they were made: they are made again.
    pub fn of(blocks: &'a [Block]) -> Self {
        let whole = blocks.iter().filter(|block| block.is_whole());
        let blocks = whole.map(|block| (block.key, block)).collect();
        Self { blocks, encoders: zstd::Encoders::default() }
    }

    /// The piece with this key.
    pub(super) fn get(&self, key: &Key) -> Option<&'a Block> {
        self.blocks.get(key).copied()
    }

    /// Compresses a piece of text that is not there. The bytes follow from it alone.
    pub(super) fn make(&self, packing: Packing, key: Key, text: &[u8]) -> io::Result<Block> {
        let (bytes, unpadded) = match packing {
            Packing::Gzip => (gzip::block(text)?, 0),
            Packing::Xz => xz::block(text)?,
            Packing::Zstd => (self.encoders.block(text)?, 0),
        };
        Ok(Block::new(key, text.len() as u64, unpadded, bytes))
    }
}

/// Changes when other bytes are made of the same packages.
const EDITION: &[u8] = b" 1 ";

/// The key of what this document says of packages with these digests, compressed as this program compresses.
pub(super) fn key<'a>(
    packing: Packing,
    document: &str,
    digests: impl IntoIterator<Item = &'a [u8; 32]>,
) -> Key {
    let mut sha256 = Sha256::new();
    sha256.update(env!("CARGO_PKG_VERSION"));
    sha256.update(EDITION);
    sha256.update(document);
    sha256.update(match packing {
        Packing::Gzip => gzip::METHOD,
        Packing::Xz => xz::METHOD,
        Packing::Zstd => zstd::METHOD,
    });
    digests.into_iter().for_each(|digest| sha256.update(digest));
    sha256.finalize().into()
}

/// Takes the text out of blocks, one after the other: what that needs is had once.
#[derive(Default)]
pub(super) struct Unpacker {
    zstd: Option<Decompressor<'static>>,
    text: Vec<u8>,
}

impl Unpacker {
    /// The text of a block, which is not one of xz: what is in that is in a faster packing as well.
    pub fn unpack(&mut self, packing: Packing, block: &Block) -> io::Result<&[u8]> {
        let wrong = || io::Error::other("a kept piece of an index has another size than it says");
        let size = usize::try_from(block.text).map_err(io::Error::other)?;
        // No packing makes more than that of a byte: no memory is had for what is not there.
        if size / (128 << 10) > block.bytes.len() {
            return Err(wrong());
        }
        self.text.clear();
        match packing {
            // Without the trailer, which has a sum of the text.
            Packing::Gzip => {
                let body = io::Cursor::new(&block.bytes).chain(gzip::END);
                let body = flate2::bufread::DeflateDecoder::new(body);
                body.take(block.text + 1).read_to_end(&mut self.text)?;
            }
            Packing::Xz => return Err(io::ErrorKind::Unsupported.into()),
            Packing::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(Decompressor::new()?),
                };
                self.text.reserve(size);
                let frame = [&zstd::HEADER[..], &block.bytes, &zstd::END].concat();
                zstd.decompress_to_buffer(&frame, &mut self.text)?;
            }
        }
        if self.text.len() == size { Ok(&self.text) } else { Err(wrong()) }
    }
}

/// A stream that pieces are appended to.
#[derive(Debug)]
pub(super) struct Stream {
    packing: Packing,
    bytes: Vec<u8>,
    /// Of gzip.
    sum: gzip::Sum,
    /// Of xz.
    sizes: Vec<(u64, u64)>,
}

impl Stream {
    /// One without pieces.
    pub fn new(packing: Packing) -> Self {
        let bytes = match packing {
            Packing::Gzip => gzip::HEADER.to_vec(),
            Packing::Xz => xz::header(),
            Packing::Zstd => zstd::HEADER.to_vec(),
        };
        Self { packing, bytes, sum: gzip::Sum::default(), sizes: Vec::new() }
    }

    /// Appends a piece: `block` is of this text.
    pub fn push(&mut self, block: &Block, text: &[u8]) {
        match self.packing {
            Packing::Gzip => self.sum.update(text),
            Packing::Xz => self.sizes.push((block.unpadded, block.text)),
            Packing::Zstd => {}
        }
        self.bytes.extend_from_slice(&block.bytes);
    }

    /// All of it.
    pub fn finish(mut self) -> Vec<u8> {
        let end = match self.packing {
            Packing::Gzip => self.sum.end(),
            Packing::Xz => xz::end(&self.sizes),
            Packing::Zstd => zstd::END.to_vec(),
        };
        self.bytes.extend(end);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    const ALL: [(Packing, &str); 3] =
        [(Packing::Gzip, "gzip"), (Packing::Xz, "xz"), (Packing::Zstd, "zstd")];

    fn text(lines: u32, seed: u32) -> Vec<u8> {
        let line = |n: u32| format!("SHA256: {:08x}{n}\n", (n ^ seed).wrapping_mul(2_654_435_761));
        (0..lines).map(line).collect::<String>().into_bytes()
    }

    fn block(packing: Packing, key: Key, text: &[u8]) -> io::Result<Block> {
        Kept::of(&[]).make(packing, key, text)
    }

    fn made(packing: Packing, pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut stream = Stream::new(packing);
        let kept = Kept::of(&[]);
        for text in pieces {
            stream.push(&kept.make(packing, [0; 32], text).unwrap(), text);
        }
        stream.finish()
    }

    /// What decoders say that end with the first stream, and the format's own program.
    fn is_read(packing: Packing, program: &str, stream: &[u8], expected: &[u8]) {
        let mut text = Vec::new();
        let mut left = stream;
        let reader: Box<dyn Read> = match packing {
            Packing::Gzip => Box::new(flate2::bufread::GzDecoder::new(&mut left)),
            Packing::Xz => Box::new(liblzma::bufread::XzDecoder::new(&mut left)),
            Packing::Zstd => {
                let reader = ::zstd::stream::read::Decoder::with_buffer(&mut left).unwrap();
                Box::new(reader.single_frame())
            }
        };
        { reader }.read_to_end(&mut text).unwrap();
        assert!(text == expected, "{program}");
        assert!(left.is_empty(), "{program}: {} bytes behind the stream", left.len());
        let mut child = Command::new(program)
            .args(["-d", "-c"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, stream) = (child.stdin.take().unwrap(), stream.to_vec());
        let writer = std::thread::spawn(move || stdin.write_all(&stream).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success() && output.stdout == expected, "{program}");
    }

    #[test]
    fn pieces_make_one_stream() {
        // Repeated text, which matches look back to; text of which nothing is in what is before; more than a job of libzstd has.
        let same = text(3000, 1);
        let pieces = [
            same.clone(),
            same.clone(),
            b"\n".to_vec(),
            text(40_000, 7),
            b"ab".repeat(100_000),
            b"ab".repeat(3),
            same,
            text(200_000, 9),
            text(5, 2),
        ];
        for (packing, program) in ALL {
            for pieces in [&pieces[..0], &pieces[2..3], &pieces[..2], &pieces[4..6], &pieces[..]] {
                is_read(packing, program, &made(packing, pieces), &pieces.concat());
            }
        }
    }

    #[test]
    fn a_block_that_is_not_as_it_was_made_is_not_kept() {
        let [one, other] = ["one", "other"].map(|text| {
            let key = key(Packing::Xz, text, []);
            block(Packing::Xz, key, text.as_bytes()).unwrap()
        });
        let is_kept =
            |block: &Block| Kept::of(std::slice::from_ref(block)).get(&block.key).is_some();
        assert!(is_kept(&one) && is_kept(&other));
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
            assert!(!is_kept(&bad));
        }
    }

    #[test]
    fn a_piece_is_the_same_wherever_it_stands() {
        let pieces = [text(4000, 1), text(4000, 2), text(4000, 3)];
        for (packing, _) in ALL {
            let alone = block(packing, [0; 32], &pieces[1]).unwrap();
            let all = made(packing, &pieces);
            assert!(all.windows(alone.bytes.len()).any(|at| at == alone.bytes), "{packing:?}");
            let mut unpacker = Unpacker::default();
            if packing == Packing::Xz {
                unpacker.unpack(packing, &alone).unwrap_err();
                continue;
            }
            assert!(unpacker.unpack(packing, &alone).unwrap() == pieces[1], "{packing:?}");
            for text in [0, alone.text - 1, alone.text + 1, u64::MAX] {
                unpacker.unpack(packing, &Block { text, ..alone.clone() }).unwrap_err();
            }
        }
    }

    #[test]
    fn what_comes_changes_the_piece_that_it_is_in() {
        let stanza = |n: usize, version: &str| -> ([u8; 32], u32) {
            (Sha256::digest(format!("{n} {version}")).into(), 700)
        };
        let cut = |stanzas: &[([u8; 32], u32)]| {
            let runs = runs(stanzas.iter().map(|(digest, size)| (digest, *size)));
            let pieces: Vec<_> = runs.into_iter().map(|run| stanzas[run].to_vec()).collect();
            assert_eq!(pieces.concat(), stanzas);
            pieces
        };
        let size = |piece: &Vec<([u8; 32], u32)>| piece.len() * 700;
        let mut stanzas: Vec<_> = (0..8000).map(|n| stanza(n, "1")).collect();
        let before = cut(&stanzas);
        assert!(before.len() > 15, "{}", before.len());
        let (last, others) = before.split_last().unwrap();
        assert!(others.iter().all(|piece| (LEAST..MOST + 4096).contains(&size(piece))));
        assert!(others.iter().filter(|piece| size(piece) < MOST).count() > others.len() / 2);
        assert!(size(last) < MOST + 4096);
        // In the middle, many of one name.
        stanzas.splice(4000..4000, (0..50).map(|n| stanza(3999, &format!("2.{n}"))));
        let after = cut(&stanzas);
        let changed = after.iter().filter(|piece| !before.contains(piece)).count();
        assert!((1..=2).contains(&changed), "{changed} of {}", after.len());
        assert_eq!(cut(&[]).len(), 0);
    }
}
