//! The payload of an `.rpm`: a cpio archive in the `newc` form, or in rpm's stripped form.
//!
//! A `newc` header is `070701` and thirteen fields of eight hexadecimal digits: inode, mode, uid, gid, link
//! count, time, size, device (2), the device that it is (2), length of the name, checksum (0). Name with its
//! NUL and content follow, each padded so that the next begins at a multiple of four. A size of 4 GiB or more
//! does not fit: then every header is `07070X` and the file's index in the rpm header, eight digits, and all else
//! is in that header. Names of one file come last and together, the content with the last of them.

use std::io::{self, Write};

const ZEROS: [u8; 4] = [0; 4];

/// What a header says of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stat {
    /// Index in the rpm header's arrays.
    pub(super) index: u32,
    pub(super) inode: u32,
    /// With the bits for the kind of file.
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) mtime: u32,
    /// Of the content that follows.
    pub(super) size: u64,
}

/// Writes a payload.
pub(super) struct Writer<W> {
    out: W,
    written: u64,
    stripped: bool,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W, stripped: bool) -> Self {
        Self { out, written: 0, stripped }
    }

    /// What the archive is written to.
    pub(super) fn encoder(&mut self) -> &mut W {
        &mut self.out
    }

    /// Begins a member; its content follows through [`content`](Self::content), then [`pad`](Self::pad).
    pub(super) fn member(&mut self, name: &[u8], stat: &Stat) -> io::Result<()> {
        if self.stripped {
            self.content(format!("07070X{:08x}", stat.index).as_bytes())?;
            return self.pad();
        }
        self.newc(name, stat)
    }

    pub(super) fn content(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.count(bytes.len() as u64).write_all(bytes)
    }

    /// Where the caller writes so many bytes of content.
    pub(super) fn count(&mut self, size: u64) -> &mut W {
        self.written += size;
        &mut self.out
    }

    pub(super) fn pad(&mut self) -> io::Result<()> {
        let rest = usize::try_from(self.written.next_multiple_of(4) - self.written)
            .expect("less than four");
        self.content(&ZEROS[..rest])
    }

    /// Ends the archive; returns its size too.
    pub(super) fn finish(mut self) -> io::Result<(W, u64)> {
        self.newc(b"TRAILER!!!", &Stat { links: 1, ..Stat::default() })?;
        Ok((self.out, self.written))
    }

    fn newc(&mut self, name: &[u8], stat: &Stat) -> io::Result<()> {
        let Stat { inode, mode, links, mtime, size, .. } = stat;
        let len = name.len() + 1;
        let header = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{links:08x}{mtime:08x}{size:08x}{0:08x}{0:08x}{0:08x}\
             {0:08x}{len:08x}{0:08x}",
            0
        );
        debug_assert_eq!(header.len(), 110);
        self.content(header.as_bytes())?;
        self.content(name)?;
        self.content(&[0])?;
        self.pad()
    }
}
