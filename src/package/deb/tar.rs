//! The tar files inside a `.deb`: GNU format, and nothing of it but what dpkg installs.
//!
//! A 512-byte header for each member, its fields in octal with a NUL after them:
//!
//! | off | size | field |
//! |---|---|---|
//! | 0 | 100 | name, `./opt/rocm/lib/`; directories end in `/` |
//! | 100 | 8 | mode, then uid and gid (8 each, 0) |
//! | 124 | 12 | size; over 8 GiB in base 256 with the top bit set |
//! | 136 | 12 | modification time |
//! | 148 | 8 | sum of the header's bytes, with this field as blanks: `%06o\0 ` |
//! | 156 | 1 | type: `0` file, `1` hard link, `2` symbolic link, `5` directory |
//! | 157 | 100 | target of a link |
//! | 257 | 8 | `ustar  \0` |
//! | 265 | 32 | owner, then group (32): `root` |
//!
//! A target or a name over 100 bytes comes before its member as the content of a member of type `K` or
//! `L`, NUL included. Content is padded to 512 bytes, the file to 10240. These are the bytes of GNU tar
//! as dpkg-deb runs it.

use std::io::{self, Write};

/// The size of a header, and what content is padded to.
const BLOCK: usize = 512;
/// What the whole file is padded to.
const RECORD: usize = 20 * BLOCK;
const ZEROS: [u8; RECORD] = [0; RECORD];
/// Longest name and target that a header holds.
const SHORT: usize = 100;

/// What kind of member a header begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Type {
    File = b'0',
    HardLink = b'1',
    Symlink = b'2',
    Dir = b'5',
}

/// Writes a tar file.
pub(super) struct Writer<W> {
    out: W,
    written: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, written: 0 }
    }

    /// What the file is written to.
    pub(super) fn encoder(&mut self) -> &mut W {
        &mut self.out
    }

    /// Begins a member; a file's `size` bytes follow through [`content`](Self::content), then
    /// [`pad`](Self::pad). `link` is the target of a link.
    pub(super) fn member(
        &mut self,
        kind: Type,
        name: &[u8],
        link: &[u8],
        mode: u32,
        mtime: i64,
        size: u64,
    ) -> io::Result<()> {
        for (long, kind) in [(link, b'K'), (name, b'L')] {
            if long.len() > SHORT {
                let header = header(kind, b"././@LongLink", b"", 0o644, 0, long.len() as u64 + 1);
                self.content(&header)?;
                self.content(long)?;
                self.content(&[0])?;
                self.pad()?;
            }
        }
        self.content(&header(kind as u8, name, link, mode, mtime, size))
    }

    /// Writes content of the member that was begun last.
    pub(super) fn content(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Ends a member's content.
    pub(super) fn pad(&mut self) -> io::Result<()> {
        self.pad_to(BLOCK)
    }

    /// Ends the file: two empty blocks, and zeros up to a whole record.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.content(&ZEROS[..2 * BLOCK])?;
        self.pad_to(RECORD)?;
        Ok(self.out)
    }

    /// The writer, and how many zeros end the file.
    pub(super) fn into_end(self) -> (W, usize) {
        let record = RECORD as u64;
        let end = (self.written + 2 * BLOCK as u64).next_multiple_of(record);
        (self.out, usize::try_from(end - self.written).expect("less than two records"))
    }

    fn pad_to(&mut self, unit: usize) -> io::Result<()> {
        let unit = unit as u64;
        let rest = usize::try_from(self.written.next_multiple_of(unit) - self.written)
            .expect("less than a record");
        self.content(&ZEROS[..rest])
    }
}

/// The size in the tar file of a member: headers, names, content, padding.
pub(super) fn member_size(name: &[u8], link: &[u8], size: u64) -> u64 {
    let long = |text: &[u8]| match text.len() {
        0..=SHORT => 0,
        len => BLOCK + (len + 1).next_multiple_of(BLOCK),
    };
    (long(name) + long(link) + BLOCK) as u64 + size.next_multiple_of(BLOCK as u64)
}

/// The size of a tar file whose members have this size together.
pub(super) fn file_size(members: u64) -> u64 {
    (members + 2 * BLOCK as u64).next_multiple_of(RECORD as u64)
}

fn header(kind: u8, name: &[u8], link: &[u8], mode: u32, mtime: i64, size: u64) -> [u8; 512] {
    let mut header = [0; BLOCK];
    let mut put = |offset: usize, bytes: &[u8]| {
        header[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    put(0, &name[..name.len().min(SHORT)]);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000\x000000000");
    put(124, &number(size));
    put(136, &number(u64::try_from(mtime).expect("times are clamped to 1970 and later")));
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &link[..link.len().min(SHORT)]);
    put(257, b"ustar  \0root");
    put(297, b"root");
    let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Eleven octal digits, or base 256 for what they do not hold.
fn number(n: u64) -> [u8; 12] {
    let mut field = [0; 12];
    if n < 1 << 33 {
        field[..11].copy_from_slice(format!("{n:011o}").as_bytes());
    } else {
        field[0] = 0x80;
        field[4..].copy_from_slice(&n.to_be_bytes());
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_foreseen() {
        let mut tar = Writer::new(Vec::new());
        let mut foreseen = 0;
        for (name, link, size) in [(3, 0, 0), (100, 101, 0), (101, 0, 513), (512, 511, 512)] {
            let (name, link) = (vec![b'n'; name], vec![b'l'; link]);
            let size = size as usize;
            tar.member(Type::File, &name, &link, 0o644, 0, size as u64).unwrap();
            tar.content(&vec![1; size]).unwrap();
            tar.pad().unwrap();
            foreseen += member_size(&name, &link, size as u64);
            assert_eq!(tar.written, foreseen);
        }
        assert_eq!(tar.finish().unwrap().len() as u64, file_size(foreseen));
    }

    #[test]
    fn large_numbers_are_in_base_256() {
        assert_eq!(&number((1 << 33) - 1), b"77777777777\0");
        assert_eq!(number(1 << 33), [0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    }
}
