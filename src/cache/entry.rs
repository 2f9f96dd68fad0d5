//! The file of an entry: payload, what goes with it, and a checksum over both, keyed by the entry's key.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::key::Key;
use crate::streams;

/// Behind the checksum.
const MAGIC: [u8; 8] = *b"gfxcach1";
/// Size of `extra`, checksum, magic.
const END: u64 = 4 + 32 + 8;
/// No entry has more that goes with it.
const EXTRA_MAX: u64 = 1 << 20;
const CHUNK: usize = 256 << 10;

/// Why an entry could not be copied.
#[derive(Debug)]
pub(super) enum Failure {
    Read(io::Error),
    Write(io::Error),
}

/// An entry that was opened and has a sound end.
pub(super) struct Reader {
    payload: u64,
    extra: Vec<u8>,
    checksum: [u8; 32],
}

impl Reader {
    /// Opens an entry. Fails where there is none, and where its end is not one.
    pub(super) fn open(path: &Path) -> io::Result<(Self, File)> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let mut end = [0; 44];
        file.read_exact_at(&mut end, len.checked_sub(END).ok_or_else(bad)?)?;
        let (size, rest) = end.split_first_chunk::<4>().ok_or_else(bad)?;
        let (checksum, magic) = rest.split_first_chunk::<32>().ok_or_else(bad)?;
        let size = u64::from(u32::from_le_bytes(*size));
        if *magic != MAGIC || size > EXTRA_MAX {
            return Err(bad());
        }
        let payload = len.checked_sub(END + size).ok_or_else(bad)?;
        let mut extra = vec![0; usize::try_from(size).map_err(|_| bad())?];
        file.read_exact_at(&mut extra, payload)?;
        Ok((Self { payload, extra, checksum: *checksum }, file))
    }

    /// Bytes of the payload.
    pub(super) fn payload(&self) -> u64 {
        self.payload
    }

    pub(super) fn into_extra(self) -> Vec<u8> {
        self.extra
    }

    /// Copies the payload. Returns whether its checksum is right: if not, what was copied is not to be used.
    pub(super) fn copy_to(
        &self,
        file: &File,
        key: &Key,
        out: &mut dyn Write,
    ) -> Result<bool, Failure> {
        let mut hasher = blake3::Hasher::new_keyed(key.as_bytes());
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < self.payload {
            let n = usize::try_from(self.payload - at).unwrap_or(CHUNK).min(CHUNK);
            file.read_exact_at(&mut buffer[..n], at).map_err(Failure::Read)?;
            hasher.update(&buffer[..n]);
            out.write_all(&buffer[..n]).map_err(Failure::Write)?;
            at += n as u64;
        }
        Ok(finish(hasher, self.payload, &self.extra) == self.checksum)
    }
}

/// Writes an entry to an empty file; returns its size.
pub(super) fn write(
    mut file: &File,
    key: &Key,
    from: &mut dyn Read,
    extra: &[u8],
) -> io::Result<u64> {
    let size = u32::try_from(extra.len()).ok().filter(|size| u64::from(*size) <= EXTRA_MAX);
    let size = size.ok_or(io::ErrorKind::InvalidInput)?;
    let mut hasher = blake3::Hasher::new_keyed(key.as_bytes());
    let mut buffer = vec![0; CHUNK];
    let payload = streams::pieces(from, &mut buffer, |piece| {
        hasher.update(piece);
        file.write_all(piece)
    })?;
    let mut end = extra.to_vec();
    end.extend(size.to_le_bytes());
    end.extend(finish(hasher, payload, extra));
    end.extend(MAGIC);
    file.write_all(&end)?;
    Ok(payload + end.len() as u64)
}

/// The checksum: of the payload, its length, and what goes with it.
fn finish(mut hasher: blake3::Hasher, payload: u64, extra: &[u8]) -> [u8; 32] {
    hasher.update(&payload.to_le_bytes());
    hasher.update(extra);
    *hasher.finalize().as_bytes()
}

/// Makes a file empty again.
pub(super) fn empty(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0)).map(drop)
}
