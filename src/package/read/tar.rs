//! Reading the tar members of a `.deb` as a stream.
//!
//! 512-byte headers with a checksum, content padded to 512, GNU `L` and `K` members with long names:
//! what dpkg takes. What it does not take (PAX, sparse files) is told. Memory does not depend on what
//! a header claims. Offsets in errors are those in the decompressed tar.

use std::io::{self, Read};

use tar::Header;

use super::error::PackageError;
use crate::streams;

/// The longest name that is read; no file system takes one.
const MAX_NAME: u64 = 64 << 10;
const BLOCK: u64 = 512;

/// A member, without its content.
pub(super) struct TarMember {
    pub header: Header,
    /// The full name, from a long-name member where there is one.
    pub name: Vec<u8>,
    /// Where a link leads to.
    pub link: Option<Vec<u8>>,
    pub size: u64,
    /// Where its header is in the tar.
    pub at: u64,
}

impl TarMember {
    /// The type's byte, that of old headers made a file's.
    pub fn kind(&self) -> u8 {
        match self.header.as_bytes()[156] {
            0 | b'7' => b'0',
            other => other,
        }
    }
}

/// What a pass over a tar stream finds beside its members.
#[derive(Default)]
pub(super) struct TarEnd {
    /// Length of the stream.
    pub len: u64,
    /// Whether there are PAX headers, which dpkg refuses.
    pub pax: bool,
}

struct Stream<'a> {
    inner: &'a mut dyn Read,
    /// Name of the tar, for errors.
    of: &'a str,
    at: u64,
}

impl Stream<'_> {
    /// Fills `buf`; `false` where the stream ended before its first byte.
    fn fill(&mut self, buf: &mut [u8]) -> Result<bool, PackageError> {
        let mut done = 0;
        while done < buf.len() {
            match streams::some(&mut self.inner, &mut buf[done..]) {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(self.fail(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    done += n;
                    self.at += n as u64;
                }
                Err(e) => return Err(self.fail(e)),
            }
        }
        Ok(true)
    }

    fn fail(&self, source: io::Error) -> PackageError {
        PackageError::io(self.of, self.at, source)
    }

    fn skip(&mut self, n: u64) -> Result<(), PackageError> {
        let copied = io::copy(&mut self.inner.take(n), &mut io::sink());
        let copied = copied.map_err(|e| self.fail(e))?;
        self.at += copied;
        if copied == n { Ok(()) } else { Err(self.fail(io::ErrorKind::UnexpectedEof.into())) }
    }

    fn field(&self, what: &str, at: u64, found: impl ToString, expected: &str) -> PackageError {
        PackageError::field(format!("{what} in {}", self.of), at, found, expected)
    }
}

/// Gives each member with a stream of its content to `each`, which need not read all of it.
pub(super) fn for_each(
    inner: &mut dyn Read,
    of: &str,
    mut each: impl FnMut(&TarMember, &mut dyn Read) -> Result<(), PackageError>,
) -> Result<TarEnd, PackageError> {
    let mut stream = Stream { inner, of, at: 0 };
    let mut end = TarEnd::default();
    let (mut long_name, mut long_link) = (None, None);
    let mut block = [0; 512];
    loop {
        let at = stream.at;
        if !stream.fill(&mut block)? || block.iter().all(|&b| b == 0) {
            // The rest is padding; reading it checks the compressor's checksum.
            let rest = io::copy(stream.inner, &mut io::sink()).map_err(|e| stream.fail(e))?;
            end.len = stream.at + rest;
            return Ok(end);
        }
        let header = Header::from_byte_slice(&block).clone();
        check_sum(&stream, &header, at)?;
        let size = header
            .entry_size()
            .map_err(|_| stream.field("size of a member", at + 124, "no number", "one in octal"))?;
        let padding = (BLOCK - size % BLOCK) % BLOCK;
        match header.as_bytes()[156] {
            kind @ (b'L' | b'K') => {
                if size > MAX_NAME {
                    let expected = "at most 65536 bytes";
                    return Err(stream.field("length of a long name", at + 124, size, expected));
                }
                let mut name = vec![0; usize::try_from(size).unwrap_or_default()];
                if !stream.fill(&mut name)? {
                    return Err(stream.fail(io::ErrorKind::UnexpectedEof.into()));
                }
                name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
                *(if kind == b'L' { &mut long_name } else { &mut long_link }) = Some(name);
                stream.skip(padding)?;
            }
            b'x' | b'g' => {
                end.pax = true;
                stream.skip(size.saturating_add(padding))?;
            }
            b'S' => {
                let expected = "a member without holes: dpkg cannot unpack others";
                return Err(stream.field("type of a member", at + 156, "S (sparse)", expected));
            }
            _ => {
                let name = long_name.take().unwrap_or_else(|| header.path_bytes().into_owned());
                let link = long_link
                    .take()
                    .or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned))
                    .filter(|link| !link.is_empty());
                let member = TarMember { header, name, link, size, at };
                let mut content = Counted { inner: stream.inner.take(size), read: 0 };
                each(&member, &mut content)?;
                let read = content.read;
                stream.at += read;
                stream.skip((size - read).saturating_add(padding))?;
            }
        }
    }
}

fn check_sum(stream: &Stream<'_>, header: &Header, at: u64) -> Result<(), PackageError> {
    let bytes = header.as_bytes();
    // The field itself counts as blanks.
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    let sum = sum(bytes) - sum(&bytes[148..156]) + 8 * u32::from(b' ');
    match header.cksum() {
        Ok(stated) if stated == sum => Ok(()),
        Ok(stated) => {
            let expected = format!("{sum}, the sum of the header");
            Err(stream.field("checksum of a member", at + 148, stated, &expected))
        }
        Err(_) => Err(stream.field("checksum of a member", at + 148, "no number", "one in octal")),
    }
}

struct Counted<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.read += n as u64;
        Ok(n)
    }
}
