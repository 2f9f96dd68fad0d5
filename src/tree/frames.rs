//! Code objects as archives store them, from when they are made until it is their turn: in memory as far as
//! there is room, what is over in a file without a name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Error;

/// Frames are kept in chunks of up to this many bytes, and the file has a slot of this size for each.
const CHUNK: usize = 256 << 10;

/// Room for frames.
#[derive(Debug)]
pub(super) struct Frames {
    /// Where the file is made.
    dir: PathBuf,
    /// Bytes that may be in memory.
    most: usize,
    room: Mutex<Room>,
    file: OnceLock<File>,
}

#[derive(Debug, Default)]
struct Room {
    /// Bytes in memory.
    held: usize,
    /// Slots that are free again.
    free: Vec<u64>,
    /// Slots that there are.
    slots: u64,
}

impl Frames {
    /// Room with at most `most` bytes in memory; the file, if one is needed, is made in `dir`.
    pub fn new(dir: &Path, most: usize) -> Arc<Self> {
        let (room, file) = (Mutex::default(), OnceLock::new());
        Arc::new(Self { dir: dir.to_owned(), most, room, file })
    }

    /// What to say where a frame cannot be kept.
    pub fn cannot_keep(&self, e: io::Error) -> Error {
        Error::output("cannot keep a code object for its turn in", &self.dir, e)
    }

    /// A frame to be written; with `hashed` its digest is taken on the way.
    pub fn begin(self: &Arc<Self>, hashed: bool) -> FrameWriter {
        let frame = Frame { frames: Arc::clone(self), len: 0, chunks: Vec::new() };
        let hasher = hashed.then(blake3::Hasher::new);
        FrameWriter { frame, current: Vec::new(), hasher, failed: None }
    }

    fn room(&self) -> std::sync::MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a chunk; it is copied where it stays in memory.
    fn keep(&self, bytes: &[u8]) -> io::Result<Chunk> {
        let slot = {
            let mut room = self.room();
            if room.held + bytes.len() <= self.most {
                room.held += bytes.len();
                None
            } else {
                Some(room.free.pop().unwrap_or_else(|| {
                    room.slots += 1;
                    room.slots - 1
                }))
            }
        };
        let Some(slot) = slot else { return Ok(Chunk::Here(bytes.into())) };
        self.file()?.write_all_at(bytes, slot * CHUNK as u64)?;
        Ok(Chunk::There { slot, len: bytes.len() })
    }

    fn file(&self) -> io::Result<&File> {
        if self.file.get().is_none() {
            // Of two that are made at once, one is closed again.
            let _ = self.file.set(tempfile::tempfile_in(&self.dir)?);
        }
        Ok(self.file.get().expect("just set"))
    }
}

#[derive(Debug)]
enum Chunk {
    Here(Box<[u8]>),
    There { slot: u64, len: usize },
}

/// A frame that waits for its turn.
#[derive(Debug)]
pub(super) struct Frame {
    frames: Arc<Frames>,
    len: u64,
    chunks: Vec<Chunk>,
}

impl Frame {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Its bytes.
    pub fn reader(&self) -> impl Read + use<'_> {
        Reader { frame: self, chunk: 0, used: 0 }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let mut room = self.frames.room();
        for chunk in &self.chunks {
            match chunk {
                Chunk::Here(bytes) => room.held -= bytes.len(),
                Chunk::There { slot, .. } => room.free.push(*slot),
            }
        }
    }
}

struct Reader<'a> {
    frame: &'a Frame,
    chunk: usize,
    used: usize,
}

impl Read for Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(chunk) = self.frame.chunks.get(self.chunk) else { return Ok(0) };
        let (n, len) = match chunk {
            Chunk::Here(bytes) => ((&bytes[self.used..]).read(buf)?, bytes.len()),
            Chunk::There { slot, len } => {
                let n = buf.len().min(*len - self.used);
                let at = slot * CHUNK as u64 + self.used as u64;
                self.frame.frames.file()?.read_exact_at(&mut buf[..n], at)?;
                (n, *len)
            }
        };
        self.used += n;
        if self.used == len {
            (self.chunk, self.used) = (self.chunk + 1, 0);
        }
        Ok(n)
    }
}

/// Takes a frame as it is made.
pub(super) struct FrameWriter {
    frame: Frame,
    current: Vec<u8>,
    hasher: Option<blake3::Hasher>,
    failed: Option<io::Error>,
}

impl FrameWriter {
    /// The frame, and its digest where that was wanted.
    pub fn finish(mut self) -> io::Result<(Frame, Option<blake3::Hash>)> {
        self.end_chunk()?;
        Ok((self.frame, self.hasher.map(|hasher| hasher.finalize())))
    }

    /// Why it could not be kept, where that is what made a write fail.
    pub fn failed(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        if !self.current.is_empty() {
            let chunk = self.frame.frames.keep(&self.current)?;
            self.frame.chunks.push(chunk);
            self.current.clear();
        }
        Ok(())
    }

    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // What comes in one go need not be gathered.
            if self.current.is_empty() && bytes.len() >= CHUNK {
                let (chunk, rest) = bytes.split_at(CHUNK);
                let chunk = self.frame.frames.keep(chunk)?;
                self.frame.chunks.push(chunk);
                bytes = rest;
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - self.current.len()));
            self.current.extend_from_slice(now);
            bytes = later;
            if self.current.len() == CHUNK {
                self.end_chunk()?;
            }
        }
        Ok(())
    }
}

impl Write for FrameWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        self.frame.len += bytes.len() as u64;
        if let Err(e) = self.take(bytes) {
            let error = io::Error::from(e.kind());
            self.failed = Some(e);
            return Err(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(frames: &Arc<Frames>, bytes: &[u8], step: usize) -> Frame {
        let mut writer = frames.begin(true);
        bytes.chunks(step).for_each(|part| writer.write_all(part).unwrap());
        let (frame, hash) = writer.finish().unwrap();
        assert_eq!(hash, Some(blake3::hash(bytes)));
        frame
    }

    #[test]
    fn frames_are_given_back_whether_there_is_room_in_memory_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> =
            (0..300_000u32).flat_map(|i| (i.wrapping_mul(i) >> 7).to_le_bytes()).collect();
        for most in [0, 3 * CHUNK / 2, usize::MAX] {
            let frames = Frames::new(dir.path(), most);
            for _ in 0..2 {
                let of = |len: usize, step| written(&frames, &bytes[..len], step);
                let lens = [0, 1, CHUNK, CHUNK + 1, bytes.len()];
                let kept: Vec<Frame> = lens.iter().map(|len| of(*len, 10_007)).collect();
                let more: Vec<Frame> = lens.iter().map(|len| of(*len, bytes.len())).collect();
                for (frame, len) in kept.iter().chain(&more).zip(lens.iter().cycle()) {
                    let mut found = Vec::new();
                    frame.reader().read_to_end(&mut found).unwrap();
                    assert!(found == bytes[..*len] && frame.len() == *len as u64, "{most} {len}");
                }
                assert!(frames.room().held <= most);
            }
            let room = frames.room();
            assert_eq!((room.held, room.free.len() as u64), (0, room.slots));
            assert_eq!(frames.file.get().is_some(), most != usize::MAX);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
