//! Tar archives as a stream: what build jobs publish artifacts as.
//!
//! 512-byte headers with a checksum, content padded to 512, two blocks of zeros at the end. Before a
//! member may stand PAX records (`x`: `LEN key=value\n`, values that the header has no room for) or
//! GNU's long names (`L`, `K`). Understood are files, directories, symbolic and hard links; everything
//! else is an error, as is whatever would make two readers see different trees.
//!
//! What holds: memory does not depend on what a header claims; a name has at most [`MAX_NAME`] bytes
//! and no NUL; links and directories have no content. Where a name leads is not known here. Offsets
//! are those in the decompressed archive. [`decode`] has the compression.

pub mod decode;

use std::io::{self, Read};

use crate::streams;

/// The longest name or link target: what Linux takes as a path.
pub const MAX_NAME: u64 = 4095;

/// More than the PAX records of one member ever have.
const MAX_RECORDS: u64 = 1 << 20;

const BLOCK: u64 = 512;

/// What is wrong with an archive.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// It cannot be read or decompressed.
    #[error("cannot be read at {offset:#x} of the decompressed archive{}", after(.member))]
    Read {
        /// Where.
        offset: u64,
        /// The member that was being read, or the last one.
        member: String,
        /// The system's or the decompressor's word.
        source: io::Error,
    },
    /// It ends too early.
    #[error("ends at {offset:#x} of the decompressed archive{}, expected {expected}", after(.member))]
    Truncated {
        /// Where it ends.
        offset: u64,
        /// The member that is cut off, or the last one.
        member: String,
        /// What should come there.
        expected: String,
    },
    /// A field holds what it cannot hold, or what cannot be used.
    #[error("{}{field} at {offset:#x} is {found}, expected {expected}", of(.member))]
    Field {
        /// Name of the member, where it is known.
        member: String,
        /// Name of the field.
        field: String,
        /// Where the header or field is.
        offset: u64,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
}

fn after(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(", in or after the member `{member}`") }
}

fn of(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!("member `{member}`: ") }
}

/// The kinds of member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// Another name of the member called so.
    HardLink(Vec<u8>),
}

/// A member, without its content.
#[derive(Debug, Clone)]
pub struct Member {
    /// The name as it is stored.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: MemberKind,
    /// Permission bits (`0o7777`).
    pub mode: u32,
    /// Modification time in seconds since 1970, rounded down.
    pub mtime: i64,
    /// Bytes of content.
    pub size: u64,
    /// The extended attribute `security.capability`, where it has one (star's record, which GNU tar and bsdtar write as well).
    pub capabilities: Option<Vec<u8>>,
    /// Where its header is.
    pub header: u64,
    /// Where its content begins.
    pub content: u64,
}

impl Member {
    /// The name as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// A fault in this member's header.
    pub fn fault(
        &self,
        field: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> TarError {
        TarError::Field {
            member: self.text(),
            field: field.to_owned(),
            offset: self.header,
            found: found.into(),
            expected: expected.into(),
        }
    }
}

/// Values from PAX records or long-name members, for the next member.
#[derive(Debug, Default)]
struct Extended {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<i64>,
    capabilities: Option<Vec<u8>>,
}

/// Reads the members of an archive one after another.
pub struct Members<R> {
    inner: R,
    at: u64,
    /// Bytes of the current member, padding included, that have not been read.
    left: u64,
    /// Those of them that are content.
    content_left: u64,
    /// The last member's name, for errors.
    last: String,
    /// Modification time from global records.
    mtime: Option<i64>,
}

impl<R: Read> Members<R> {
    /// Reads from a decompressed archive.
    pub fn new(inner: R) -> Self {
        let last = String::new();
        Self { inner, at: 0, left: 0, content_left: 0, last, mtime: None }
    }

    /// The next member, or `None` at the archive's end; then the rest has been read, too. What was not
    /// read of the member before is passed over.
    pub fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        self.pass_over()?;
        let mut extended = Extended::default();
        loop {
            let header_at = self.at;
            let mut block = [0; 512];
            self.fill(&mut block, "a header, or the zeros at the end of an archive")?;
            if block.iter().all(|&b| b == 0) {
                self.end()?;
                return Ok(None);
            }
            let header = Header { bytes: &block, at: header_at };
            header.check_sum()?;
            let size = header.number(124..136, "size")?;
            let size = u64::try_from(size).map_err(|_| {
                header.fault("size", size.to_string(), "a number that is not negative")
            })?;
            match block[156] {
                kind @ (b'L' | b'K') => {
                    let name = self.long_name(&header, size)?;
                    *(if kind == b'L' { &mut extended.name } else { &mut extended.link }) =
                        Some(name);
                }
                b'x' => {
                    let records = self.records(&header, size)?;
                    parse_records(&records, header_at, &mut extended)?;
                }
                b'g' => {
                    let records = self.records(&header, size)?;
                    let mut global = Extended::default();
                    parse_records(&records, header_at, &mut global)?;
                    if global.name.is_some() || global.link.is_some() || global.size.is_some() {
                        let expected = "records that can hold for several members";
                        return Err(header.fault("global record", "a name or size", expected));
                    }
                    self.mtime = global.mtime;
                }
                _ => return self.member(&header, size, extended).map(Some),
            }
        }
    }

    fn member(
        &mut self,
        header: &Header<'_>,
        size: u64,
        extended: Extended,
    ) -> Result<Member, TarError> {
        let kind = header.bytes[156];
        let name = extended.name.unwrap_or_else(|| header.name());
        let link = extended.link.unwrap_or_else(|| text(&header.bytes[157..257]).to_vec());
        let mtime = match extended.mtime.or(self.mtime) {
            Some(mtime) => mtime,
            None => header.number(136..148, "modification time")?,
        };
        let mode = header.number(100..108, "mode")?;
        let mut member = Member {
            kind: MemberKind::File,
            mode: u32::try_from(mode & 0o7777).unwrap_or_default(),
            mtime,
            size: extended.size.unwrap_or(size),
            capabilities: extended.capabilities,
            header: header.at,
            content: self.at,
            name,
        };
        self.last = member.text();
        for (what, name) in [("name", &member.name), ("link target", &link)] {
            if name.len() as u64 > MAX_NAME {
                let found = format!("{} bytes long", name.len());
                return Err(member.fault(what, found, format!("at most {MAX_NAME} bytes")));
            }
            if name.contains(&0) {
                return Err(member.fault(what, "one with a NUL byte", "one without"));
            }
        }
        member.kind = match kind {
            // Before there was a type for directories, their names ended in a slash.
            0 if member.name.ends_with(b"/") => MemberKind::Dir,
            0 | b'0' | b'7' => MemberKind::File,
            b'5' => MemberKind::Dir,
            b'1' | b'2' if link.is_empty() => {
                return Err(member.fault("link target", "empty", "a path"));
            }
            b'1' => MemberKind::HardLink(link),
            b'2' => MemberKind::Symlink(link),
            other => {
                let found = match other {
                    b'3' | b'4' => "a device".to_owned(),
                    b'6' => "a pipe".to_owned(),
                    b'S' => "a sparse file".to_owned(),
                    other => format!("`{}`", (other as char).escape_default()),
                };
                return Err(member.fault("type", found, "a file, directory or link"));
            }
        };
        if member.kind != MemberKind::File && member.size != 0 {
            let expected = "0, as it is no file";
            return Err(member.fault("size", member.size.to_string(), expected));
        }
        let padded = member.size.checked_next_multiple_of(BLOCK);
        let padded = padded.filter(|padded| self.at.checked_add(*padded).is_some());
        self.left = padded
            .ok_or_else(|| member.fault("size", member.size.to_string(), "a possible size"))?;
        self.content_left = member.size;
        Ok(member)
    }

    /// Reads more of the current member's content; 0 at its end.
    pub fn read_content(&mut self, buf: &mut [u8]) -> Result<usize, TarError> {
        let n = usize::try_from(self.content_left).unwrap_or(usize::MAX).min(buf.len());
        let n = self.some(&mut buf[..n])?;
        if n == 0 && self.content_left > 0 && !buf.is_empty() {
            return Err(self.truncated(format!("{} more bytes of it", self.content_left)));
        }
        self.left -= n as u64;
        self.content_left -= n as u64;
        Ok(n)
    }

    /// What it reads from.
    pub fn into_inner(self) -> R {
        self.inner
    }

    fn pass_over(&mut self) -> Result<(), TarError> {
        let mut buffer = vec![0; 64 * 1024];
        while self.left > 0 {
            let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
            match self.some(&mut buffer[..n])? {
                0 => return Err(self.truncated(format!("{} more bytes of it", self.left))),
                n => self.left -= n as u64,
            }
        }
        self.content_left = 0;
        Ok(())
    }

    /// Reads what comes behind the last member: nothing but zeros.
    fn end(&mut self) -> Result<(), TarError> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let at = self.at;
            let n = self.some(&mut buffer)?;
            if n == 0 {
                return Ok(());
            }
            if let Some(i) = buffer[..n].iter().position(|&b| b != 0) {
                return Err(TarError::Field {
                    member: String::new(),
                    field: "a byte behind the end of the archive".into(),
                    offset: at + i as u64,
                    found: format!("{:#04x}", buffer[i]),
                    expected: "zeros only: readers differ on whether members behind it count"
                        .into(),
                });
            }
        }
    }

    fn some(&mut self, buf: &mut [u8]) -> Result<usize, TarError> {
        let n = streams::some(&mut self.inner, buf).map_err(|source| TarError::Read {
            offset: self.at,
            member: self.last.clone(),
            source,
        })?;
        self.at += n as u64;
        Ok(n)
    }

    fn fill(&mut self, buf: &mut [u8], expected: &str) -> Result<(), TarError> {
        let mut done = 0;
        while done < buf.len() {
            match self.some(&mut buf[done..])? {
                0 => return Err(self.truncated(expected.to_owned())),
                n => done += n,
            }
        }
        Ok(())
    }

    fn truncated(&self, expected: String) -> TarError {
        TarError::Truncated { offset: self.at, member: self.last.clone(), expected }
    }

    fn long_name(&mut self, header: &Header<'_>, size: u64) -> Result<Vec<u8>, TarError> {
        // The size counts a NUL at the end.
        if size > MAX_NAME + 1 {
            let expected = format!("at most {} bytes", MAX_NAME + 1);
            return Err(header.fault("size of a long name", size.to_string(), expected));
        }
        let mut name = self.extra(size, "a long name")?;
        name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
        Ok(name)
    }

    fn records(&mut self, header: &Header<'_>, size: u64) -> Result<Vec<u8>, TarError> {
        if size > MAX_RECORDS {
            let expected = format!("at most {MAX_RECORDS} bytes");
            return Err(header.fault("size of the PAX records", size.to_string(), expected));
        }
        self.extra(size, "PAX records")
    }

    /// The padded content of a member that belongs to the next one.
    fn extra(&mut self, size: u64, what: &str) -> Result<Vec<u8>, TarError> {
        let mut bytes = vec![0; usize::try_from(size.next_multiple_of(BLOCK)).unwrap_or_default()];
        self.fill(&mut bytes, what)?;
        bytes.truncate(usize::try_from(size).unwrap_or_default());
        Ok(bytes)
    }
}

/// A header block.
struct Header<'a> {
    bytes: &'a [u8; 512],
    at: u64,
}

impl Header<'_> {
    fn fault(
        &self,
        field: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> TarError {
        TarError::Field {
            member: String::from_utf8_lossy(&self.name()).into_owned(),
            field: field.to_owned(),
            offset: self.at,
            found: found.into(),
            expected: expected.into(),
        }
    }

    fn check_sum(&self) -> Result<(), TarError> {
        let field = 148..156;
        let sum = (0..512).map(|i| if field.contains(&i) { 32 } else { i64::from(self.bytes[i]) });
        let sum: i64 = sum.sum();
        match self.number(field, "checksum")? {
            stated if stated == sum => Ok(()),
            stated => {
                let expected = format!("{sum}, the sum of the header");
                Err(self.fault("checksum", stated.to_string(), expected))
            }
        }
    }

    /// The name without PAX records: of POSIX headers, in two parts.
    fn name(&self) -> Vec<u8> {
        let name = text(&self.bytes[..100]);
        let prefix = text(&self.bytes[345..500]);
        if self.bytes[257..263] == *b"ustar\0" && !prefix.is_empty() {
            return [prefix, b"/", name].concat();
        }
        name.to_vec()
    }

    /// A number in octal, or big-endian behind a byte with the high bit set.
    fn number(&self, field: std::ops::Range<usize>, what: &str) -> Result<i64, TarError> {
        let bytes = &self.bytes[field];
        let bad =
            |expected: &str| Err(self.fault(what, format!("`{}`", bytes.escape_ascii()), expected));
        if bytes[0] & 0x80 != 0 {
            let negative = bytes[0] == 0xff;
            if !negative && bytes[0] != 0x80 {
                return bad("a number of at most 63 bits");
            }
            let mut value: i64 = if negative { -1 } else { 0 };
            for &byte in &bytes[1..] {
                match value.checked_mul(256) {
                    Some(shifted) => value = shifted | i64::from(byte),
                    None => return bad("a number of at most 63 bits"),
                }
            }
            return Ok(value);
        }
        let digits = text(bytes).trim_ascii();
        if digits.is_empty() {
            return Ok(0);
        }
        let digits = std::str::from_utf8(digits).ok();
        match digits.and_then(|digits| i64::from_str_radix(digits, 8).ok()) {
            Some(value) if value >= 0 => Ok(value),
            _ => bad("a number in octal"),
        }
    }
}

/// A field up to its first NUL.
fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|&b| b == 0).unwrap_or(field.len())]
}

/// Reads `LEN key=value\n` records. Those that this crate has no use for (owners, extended
/// attributes) are passed over, as reading a directory passes them over.
fn parse_records(mut records: &[u8], at: u64, extended: &mut Extended) -> Result<(), TarError> {
    let bad = |field: &str, found: &[u8], expected: &str| TarError::Field {
        member: String::new(),
        field: field.to_owned(),
        offset: at,
        found: format!("`{}`", found[..found.len().min(80)].escape_ascii()),
        expected: expected.to_owned(),
    };
    while !records.is_empty() {
        let malformed = || bad("PAX record", records, "`LENGTH KEY=VALUE` and a line break");
        let space = records.iter().take(20).position(|&b| b == b' ').ok_or_else(malformed)?;
        let length = std::str::from_utf8(&records[..space]).ok();
        let length: usize = length.and_then(|n| n.parse().ok()).ok_or_else(malformed)?;
        let record = records.get(space + 1..length).and_then(|r| r.strip_suffix(b"\n"));
        let record = record.ok_or_else(malformed)?;
        let equals = record.iter().position(|&b| b == b'=').ok_or_else(malformed)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => extended.name = Some(value.to_vec()),
            b"linkpath" => extended.link = Some(value.to_vec()),
            b"size" => {
                let size = std::str::from_utf8(value).ok().and_then(|n| n.parse().ok());
                let size = size.filter(|_| value.first().is_some_and(u8::is_ascii_digit));
                extended.size = Some(size.ok_or_else(|| bad("size", value, "a decimal number"))?);
            }
            b"mtime" => {
                let mtime = seconds(value);
                extended.mtime =
                    Some(mtime.ok_or_else(|| bad("mtime", value, "a time in seconds"))?);
            }
            b"SCHILY.xattr.security.capability" => extended.capabilities = Some(value.to_vec()),
            key if key.starts_with(b"GNU.sparse.") => {
                return Err(bad("PAX record", key, "a member without holes"));
            }
            _ => {}
        }
        records = &records[length..];
    }
    Ok(())
}

/// A time in decimal, rounded down.
fn seconds(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let below = whole.starts_with('-') && fraction.bytes().any(|b| b != b'0');
    seconds.checked_sub(i64::from(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_down() {
        let times: [(&[u8], Option<i64>); 6] = [
            (b"1700000000", Some(1_700_000_000)),
            (b"1700000000.987654321", Some(1_700_000_000)),
            (b"-1.5", Some(-2)),
            (b"-1.0", Some(-1)),
            (b"1e9", None),
            (b"1.x", None),
        ];
        for (text, expected) in times {
            assert_eq!(seconds(text), expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn numbers_are_octal_or_big_endian_and_never_cut() {
        let number = |field: &[u8]| {
            let mut bytes = [0; 512];
            bytes[124..124 + field.len()].copy_from_slice(field);
            Header { bytes: &bytes, at: 0 }.number(124..136, "size").ok()
        };
        assert_eq!(number(b"00000000017\0"), Some(15));
        assert_eq!(number(b"   17 \0"), Some(15));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Some(1 << 33));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        // Twelve bytes hold more than 64 bits.
        assert_eq!(number(b"\x80\x01\0\0\0\0\0\0\0\0\0\x01"), None);
        assert_eq!(number(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(number(b"-17\0"), None);
        assert_eq!(number(b"99\0"), None);
    }

    #[test]
    fn records_are_checked() {
        let parse = |text: &[u8]| {
            let mut extended = Extended::default();
            parse_records(text, 0, &mut extended).map(|()| extended)
        };
        let good = parse(b"12 path=a b\n20 mtime=12345.6789\n12 size=123\n").unwrap();
        assert_eq!(good.name.as_deref(), Some(&b"a b"[..]));
        assert_eq!((good.size, good.mtime), (Some(123), Some(12345)));
        for bad in [
            &b"11 path=a b\n"[..],
            b"99 path=a b\n",
            b"path=a\n",
            b"0 \n",
            b"3 \n",
            b"18446744073709551616 path=a\n",
            b"13 size=-123\n",
            b"13 size=+123\n",
            b"22 GNU.sparse.major=1\n",
        ] {
            assert!(parse(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
