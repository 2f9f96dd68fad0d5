//! Positioned reads: how every format module of this crate looks at bytes.
//!
//! A fat library can be larger than memory, so nothing is slurped and nothing is mapped (mapped
//! pages count as resident): a reader asks for the few header bytes it needs at an offset. Slices
//! and files are readers, and a [`Window`] is a reader over a part of one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Something with a known length that can be read at any offset, by several threads at once.
pub trait ReadAt: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Fills `buf` with the bytes from `offset` on; fails with `UnexpectedEof` past the end.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..)?.get(..buf.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        ReadAt::len(self.as_slice())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(buf, offset)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, offset)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for std::sync::Arc<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, offset)
    }
}

/// An open file with the length it had when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    len: u64,
}

impl OpenFile {
    /// Takes an open file; `len` is its length in bytes as the caller has it from `fstat`.
    pub fn new(file: File, len: u64) -> Self {
        Self { file, len }
    }
}

impl ReadAt for OpenFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(&self.file, buf, offset)
    }
}

/// A part of another reader, seen as a reader of its own.
#[derive(Debug, Clone, Copy)]
pub struct Window<R> {
    inner: R,
    offset: u64,
    len: u64,
}

impl<R: ReadAt> Window<R> {
    /// The `len` bytes of `inner` from `offset` on, or `None` where `inner` does not hold them all.
    pub fn new(inner: R, offset: u64, len: u64) -> Option<Self> {
        (offset.checked_add(len)? <= inner.len()).then_some(Self { inner, offset, len })
    }
}

impl<R: ReadAt> ReadAt for Window<R> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.inner.read_exact_at(buf, self.offset + offset)
    }
}

/// Reads `len` bytes from `offset` on into memory. The range is checked against the reader's length
/// before anything is allocated, so that a length from a hostile header costs nothing.
pub fn read_vec(r: &(impl ReadAt + ?Sized), offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let end = offset.checked_add(len);
    let size = usize::try_from(len).ok().filter(|_| end.is_some_and(|end| end <= r.len()));
    let mut bytes = vec![0; size.ok_or(io::ErrorKind::UnexpectedEof)?];
    r.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// A sequential [`io::Read`] over a range of a reader.
#[derive(Debug)]
pub struct Cursor<R> {
    inner: R,
    offset: u64,
    end: u64,
}

impl<R: ReadAt> Cursor<R> {
    /// Reads `inner` from `offset` for at most `len` bytes (and not past its end).
    pub fn new(inner: R, offset: u64, len: u64) -> Self {
        let end = offset.saturating_add(len).min(inner.len());
        Self { inner, offset, end }
    }
}

impl<R: ReadAt> io::Read for Cursor<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_sub(self.offset);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        self.inner.read_exact_at(&mut buf[..n], self.offset)?;
        self.offset += n as u64;
        Ok(n)
    }
}
