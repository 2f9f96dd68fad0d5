//! The file of a repository's state, `.gfxpack/state`: one or two megabytes for thousands of packages.
//!
//! ```text
//! gfxpack repository 3\n    what it is
//! MessagePack of an array:
//!   bin                     the state but for its packages and pieces of indices
//!   [bin, …]                packages, a few hundred each
//!   [Chunk, …]              what only their indices say (see super::brief)
//!   [Block, …]              pieces of indices (see super::pieces)
//! XXH64 of all the above    8 bytes, the lowest first
//! ```
//!
//! Each `bin` is a zstd frame of MessagePack, so that several are read at a time. Chunks and blocks are compressed already:
//! they are copied, and a chunk is not looked into before somebody asks.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;
use zstd::zstd_safe;

use super::brief::{self, Chunk, damaged};
use super::pieces::Block;
use super::store::{State, Stored};
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::msgpack;

const OLD_MAGICS: [&[u8]; 2] = [b"gfxpack repository 1\n", b"gfxpack repository 2\n"];
const MAGIC: &[u8] = b"gfxpack repository 3\n";
/// Size of the sum at the end, in bytes.
const SUM: usize = size_of::<u64>();
/// As small as at level 1, which takes half as long again.
const LEVEL: i32 = -1;
/// Packages of one frame: so few that all threads have some, so many that names like each other stand together.
const TOGETHER: usize = 512;
/// The most that is read from one frame, in bytes: more than any has, and less than memory.
const MOST: u64 = 1 << 30;
/// The most that a frame's word is taken for, in bytes, when room is made for what it holds.
const BELIEVED: u64 = 16 << 20;

/// A value in MessagePack, compressed.
#[derive(Debug, Serialize, Deserialize)]
struct Frame(#[serde(with = "crate::msgpack::bytes")] Vec<u8>);

impl Frame {
    fn of(value: &impl Serialize) -> Result<Self> {
        let bytes = rmp_serde::to_vec(value).map_err(|e| cannot().because(e))?;
        let frame = zstd::bulk::compress(&bytes, LEVEL).map_err(|e| cannot().because(e))?;
        Ok(Self(frame))
    }

    fn value<T: DeserializeOwned>(&self) -> Result<T> {
        // The frame says how much it holds: so much room is had at once.
        let said = zstd_safe::get_frame_content_size(&self.0).ok().flatten().unwrap_or(0);
        let mut bytes = Vec::with_capacity(usize::try_from(said.min(BELIEVED)).unwrap_or(0));
        zstd::stream::read::Decoder::with_buffer(&self.0[..])
            .and_then(|decoder| decoder.take(MOST).read_to_end(&mut bytes))
            .map_err(|e| damaged().because(e))?;
        let (value, _) = msgpack::decode(&bytes).map_err(|e| damaged().because(e))?;
        Ok(value)
    }
}

fn cannot() -> Error {
    Error::failed("cannot encode the state")
}

impl State {
    pub(super) fn read(path: &Path, jobs: &Jobs) -> Result<Self> {
        let damaged = || damaged().at(path);
        let file = File::open(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::failed("there is no repository here")
                .at(path)
                .hint("make one with gfxpack repo create DIR"),
            _ => Error::io("cannot read", path, e),
        })?;
        let size = file.metadata().map_err(|e| Error::io("cannot read", path, e))?.len();
        let body = size.checked_sub(SUM as u64).ok_or_else(damaged)?;
        let mut file = BufReader::with_capacity(256 << 10, Summed::new(file.take(body)));
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic).map_err(|e| damaged().because(e))?;
        if OLD_MAGICS.contains(&&magic[..]) {
            return Err(Error::failed(
                "the repository was made by an older gfxpack, whose state this one does not read",
            )
            .at(path)
            .hint("make it anew: gfxpack repo create NEW DIR takes all packages below DIR")
            .into());
        }
        if magic != MAGIC {
            return Err(damaged().into());
        }
        let value = msgpack::decode_from(&mut file).map_err(|e| damaged().because(e))?;
        let (head, groups, chunks, blocks): (Frame, Vec<Frame>, Vec<Chunk>, Vec<Block>) = value;
        let is_all = file.fill_buf().map_err(|e| damaged().because(e))?.is_empty();
        let (sum, mut sum_is) = (file.get_ref().sum.finish(), [0; SUM]);
        let mut file = file.into_inner().reader.into_inner();
        file.read_exact(&mut sum_is).map_err(|e| damaged().because(e))?;
        if !is_all || sum != u64::from_le_bytes(sum_is) {
            return Err(damaged().into());
        }
        let mut state: Self = head.value()?;
        for group in jobs.drive(&groups, Frame::value::<Vec<Stored>>) {
            state.packages.append(&mut group?);
        }
        state.blocks = blocks;
        let records = state.packages.iter_mut().map(|stored| Arc::make_mut(&mut stored.record));
        brief::shelve(records.map(|record| &mut record.part), chunks)?;
        Ok(state)
    }

    /// The content of its file, with the [`chunks`](super::store::chunks) of its packages.
    pub(super) fn encode(&self, chunks: &[Chunk], jobs: &Jobs) -> Result<Vec<u8>> {
        let groups: Vec<&[Stored]> = self.packages.chunks(TOGETHER).collect();
        let groups = jobs.drive(&groups, Frame::of);
        let groups = groups.into_iter().collect::<Result<Vec<Frame>>>()?;
        let head = Frame::of(self)?;
        // Most of it are bytes that are copied: room for them is had at once.
        let copied = chunks.iter().map(Chunk::size).chain(self.blocks.iter().map(Block::size));
        let packed = groups.iter().chain([&head]).map(|frame| frame.0.len());
        let mut out = Vec::with_capacity(copied.chain(packed).sum::<usize>() + (64 << 10));
        out.extend_from_slice(MAGIC);
        rmp_serde::encode::write(&mut out, &(&head, &groups, chunks, &self.blocks))
            .map_err(|e| cannot().because(e))?;
        let sum = XxHash64::oneshot(0, &out);
        out.extend(sum.to_le_bytes());
        Ok(out)
    }
}

/// Adds up what is read through it.
struct Summed<R> {
    reader: R,
    sum: XxHash64,
}

impl<R> Summed<R> {
    fn new(reader: R) -> Self {
        Self { reader, sum: XxHash64::with_seed(0) }
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buf)?;
        self.sum.write(&buf[..count]);
        Ok(count)
    }
}
