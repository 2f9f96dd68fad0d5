//! The header structure of `.rpm` files, read strictly: the `rpm` crate believes the counts in it.
//!
//! ```text
//! 8e ad e8 01 · 4 reserved · u32 entries · u32 store size     (all numbers big-endian)
//! entries × { u32 tag · u32 type · u32 offset in the store · u32 count }
//! store
//! ```
//! Types: 1 char, 2 int8, 3 int16, 4 int32, 5 int64, 6 string, 7 bytes, 8 string array, 9 string array
//! by locale. Source: rpm's documentation, "RPM v4 package format".

use super::error::PackageError;
use super::report::MAX_FILES;
use crate::read_at::{ReadAt, read_vec};

const MAGIC: [u8; 4] = [0x8e, 0xad, 0xe8, 0x01];
const INTRO: u64 = 16;
const ENTRY: u64 = 16;
/// rpm's own limit.
const MAX_ENTRIES: u32 = 0xffff;
/// rpm's own limit is 256 MiB; what a million files take is less than this.
const MAX_STORE: u32 = 128 << 20;

struct Entry {
    tag: u32,
    kind: u32,
    offset: usize,
    count: u32,
    /// Where the entry stands in the file.
    at: u64,
}

/// A header whose entries have been checked to lie in its store.
pub(crate) struct Header {
    name: &'static str,
    entries: Vec<Entry>,
    store: Vec<u8>,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its size in the file.
    pub size: u64,
}

impl Header {
    /// Reads the header that begins at `offset`.
    pub fn read(r: &dyn ReadAt, name: &'static str, offset: u64) -> Result<Self, PackageError> {
        let what = || format!("the {name} header");
        let read = |at, len| read_vec(r, at, len).map_err(|e| PackageError::io(what(), at, e));
        let intro = read(offset, INTRO)?;
        if intro[..4] != MAGIC {
            let found = intro[..4].iter().map(|b| format!("{b:02x}")).collect::<String>();
            return Err(PackageError::field(what(), offset, found, "8eade801"));
        }
        let (count, store_size) = (be32(&intro, 8), be32(&intro, 12));
        for (field, at, found, most) in
            [("entry count", 8, count, MAX_ENTRIES), ("store size", 12, store_size, MAX_STORE)]
        {
            if found > most {
                let field = format!("{field} of the {name} header");
                return Err(PackageError::field(
                    field,
                    offset + at,
                    found,
                    format!("at most {most}"),
                ));
            }
        }
        let table_size = u64::from(count) * ENTRY;
        let table = read(offset + INTRO, table_size)?;
        let store = read(offset + INTRO + table_size, store_size.into())?;
        let mut entries = Vec::new();
        for (i, bytes) in table.chunks_exact(16).enumerate() {
            let at = offset + INTRO + i as u64 * ENTRY;
            let (tag, kind) = (be32(bytes, 0), be32(bytes, 4));
            let start = be32(bytes, 8);
            if start > store_size {
                let field = format!("offset of tag {tag} of the {name} header");
                let expected = format!("at most {store_size}");
                return Err(PackageError::field(field, at + 8, start, expected));
            }
            entries.push(Entry { tag, kind, offset: start as usize, count: be32(bytes, 12), at });
        }
        let size = INTRO + table_size + u64::from(store_size);
        Ok(Self { name, entries, store, offset, size })
    }

    /// Where the next part begins.
    pub fn end(&self) -> u64 {
        self.offset + self.size
    }

    fn find(&self, tag: u32) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.tag == tag)
    }

    /// Whether there is such a tag.
    pub fn has(&self, tag: u32) -> bool {
        self.find(tag).is_some()
    }

    fn bad(&self, entry: &Entry, field: &str, found: u32, expected: &str) -> PackageError {
        let what = format!("{field} of tag {} of the {} header", entry.tag, self.name);
        PackageError::field(what, entry.at, found, expected)
    }

    fn content(&self, entry: &Entry, width: usize) -> Result<&[u8], PackageError> {
        let tail = &self.store[entry.offset..];
        (entry.count as usize)
            .checked_mul(width)
            .and_then(|size| tail.get(..size))
            .ok_or_else(|| self.bad(entry, "count", entry.count, "what the store holds"))
    }

    /// The numbers of a tag, of any width; none where there is no such tag.
    pub fn numbers(&self, tag: u32) -> Result<Vec<u64>, PackageError> {
        let Some(entry) = self.find(tag) else { return Ok(Vec::new()) };
        let width = match entry.kind {
            1 | 2 => 1,
            3 => 2,
            4 => 4,
            5 => 8,
            other => return Err(self.bad(entry, "type", other, "1 to 5, numbers")),
        };
        if entry.count as usize > MAX_FILES {
            return Err(self.bad(entry, "count", entry.count, "at most 1048576"));
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        Ok(self.content(entry, width)?.chunks_exact(width).map(number).collect())
    }

    /// The first number of a tag.
    pub fn number(&self, tag: u32) -> Result<Option<u64>, PackageError> {
        Ok(self.numbers(tag)?.first().copied())
    }

    /// The strings of a tag, with other bytes than UTF-8 replaced; none where there is no such tag.
    pub fn strings(&self, tag: u32) -> Result<Vec<String>, PackageError> {
        let raw = self.raw_strings(tag)?.into_iter();
        Ok(raw.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect())
    }

    /// The strings of a tag as they are, without their NUL; none where there is no such tag.
    pub fn raw_strings(&self, tag: u32) -> Result<Vec<&[u8]>, PackageError> {
        let Some(entry) = self.find(tag) else { return Ok(Vec::new()) };
        let count = match entry.kind {
            6 => 1,
            8 | 9 => entry.count as usize,
            other => return Err(self.bad(entry, "type", other, "6, 8 or 9, strings")),
        };
        if count > MAX_FILES {
            return Err(self.bad(entry, "count", entry.count, "at most 1048576"));
        }
        let mut rest = &self.store[entry.offset..];
        let mut strings = Vec::new();
        for _ in 0..count {
            let end = rest
                .iter()
                .position(|&b| b == 0)
                .ok_or_else(|| self.bad(entry, "count", entry.count, "what the store holds"))?;
            strings.push(&rest[..end]);
            rest = &rest[end + 1..];
        }
        Ok(strings)
    }

    /// The first string of a tag.
    pub fn string(&self, tag: u32) -> Result<Option<String>, PackageError> {
        Ok(self.strings(tag)?.into_iter().next())
    }

    /// The bytes of a tag.
    pub fn bytes(&self, tag: u32) -> Result<Option<&[u8]>, PackageError> {
        let Some(entry) = self.find(tag) else { return Ok(None) };
        match entry.kind {
            7 => self.content(entry, 1).map(Some),
            other => Err(self.bad(entry, "type", other, "7, bytes")),
        }
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}
