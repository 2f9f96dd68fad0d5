//! Reading the payload of an `.rpm` as a stream: cpio in the `newc` form, or in rpm's stripped form.
//!
//! The layout is in [`crate::package::rpm`]'s writer: `070701` (or `070702`, with a sum) and thirteen
//! fields of eight hexadecimal digits, or `07070X` and the file's index in the header. Offsets in
//! errors are those in the decompressed payload.

use std::io::{self, Read};

use super::error::PackageError;

/// The longest name that is read.
const MAX_NAME: u64 = 64 << 10;

/// What a member says of itself.
pub(super) enum Member {
    /// Its name, and the length of its content.
    Named(Vec<u8>, u64),
    /// Its index in the arrays of the header, which say the rest.
    Indexed(u64),
}

struct Stream<'a> {
    inner: &'a mut dyn Read,
    at: u64,
}

impl Stream<'_> {
    fn fill(&mut self, buf: &mut [u8]) -> Result<(), PackageError> {
        self.inner.read_exact(buf).map_err(|e| PackageError::io("the payload", self.at, e))?;
        self.at += buf.len() as u64;
        Ok(())
    }

    fn pad(&mut self) -> Result<(), PackageError> {
        let mut zeros = [0; 4];
        let rest = usize::try_from(self.at.next_multiple_of(4) - self.at).unwrap_or_default();
        self.fill(&mut zeros[..rest])
    }

    fn hex(&mut self) -> Result<u64, PackageError> {
        let at = self.at;
        let mut digits = [0; 8];
        self.fill(&mut digits)?;
        let text = String::from_utf8_lossy(&digits);
        u64::from_str_radix(&text, 16).map_err(|_| {
            PackageError::field("a number of the payload", at, &text, "eight hexadecimal digits")
        })
    }
}

/// Gives each member to `size`, which says how long its content is, and then with a stream of that
/// content to `each`, which need not read all of it. Returns after the trailer.
pub(super) fn for_each(
    inner: &mut dyn Read,
    mut size: impl FnMut(&Member) -> Result<u64, PackageError>,
    mut each: impl FnMut(&Member, u64, &mut dyn Read) -> Result<(), PackageError>,
) -> Result<(), PackageError> {
    let mut stream = Stream { inner, at: 0 };
    loop {
        let at = stream.at;
        let mut magic = [0; 6];
        stream.fill(&mut magic)?;
        let member = match &magic {
            b"070701" | b"070702" => {
                let mut fields = [0; 13];
                for field in &mut fields {
                    *field = stream.hex()?;
                }
                let (size, name_len) = (fields[6], fields[11]);
                if name_len == 0 || name_len > MAX_NAME {
                    let expected = "1 to 65536 bytes";
                    return Err(PackageError::field(
                        "length of a name in the payload",
                        at + 94,
                        name_len,
                        expected,
                    ));
                }
                let mut name = vec![0; usize::try_from(name_len).unwrap_or_default()];
                stream.fill(&mut name)?;
                name.pop();
                stream.pad()?;
                if name == b"TRAILER!!!" {
                    return Ok(());
                }
                Member::Named(name, size)
            }
            b"07070X" => {
                let index = stream.hex()?;
                stream.pad()?;
                Member::Indexed(index)
            }
            other => {
                let found = String::from_utf8_lossy(other).escape_default().to_string();
                let expected = "070701, 070702 or 07070X";
                return Err(PackageError::field("magic of a member", at, found, expected));
            }
        };
        let len = size(&member)?;
        let mut content = (&mut *stream.inner).take(len);
        each(&member, len, &mut content)?;
        let cannot = |e| PackageError::io("the payload", at, e);
        io::copy(&mut content, &mut io::sink()).map_err(cannot)?;
        if content.limit() > 0 {
            return Err(cannot(io::ErrorKind::UnexpectedEof.into()));
        }
        stream.at += len;
        stream.pad()?;
    }
}
