//! The dynamic section: an array of (tag, value) pairs that ends at `DT_NULL`.
//!
//! Read through PT_DYNAMIC, as the loader does; names are offsets into the table at `DT_STRTAB`.
//! Source: gABI chapter 5, "Dynamic Section".

use super::image::{Image, PT_DYNAMIC, read_table};
use super::{ElfError, u64_at};
use crate::read_at::ReadAt;

pub(crate) const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
pub(crate) const DT_STRTAB: u64 = 5;
pub(crate) const DT_SYMTAB: u64 = 6;
pub(crate) const DT_RELA: u64 = 7;
pub(crate) const DT_RELASZ: u64 = 8;
pub(crate) const DT_RELAENT: u64 = 9;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
pub(crate) const DT_RELRSZ: u64 = 35;
pub(crate) const DT_RELR: u64 = 36;
pub(crate) const DT_HASH: u64 = 4;
pub(crate) const DT_GNU_HASH: u64 = 0x6fff_fef5;
pub(crate) const DT_RELACOUNT: u64 = 0x6fff_fff9;

/// Tags whose value is an address: PLTGOT, HASH, STRTAB, SYMTAB, RELA, INIT, FINI, REL, JMPREL, the
/// three arrays, RELR, GNU_HASH, VERSYM, VERDEF, VERNEED.
const POINTERS: [u64; 17] = [
    3,
    DT_HASH,
    DT_STRTAB,
    DT_SYMTAB,
    DT_RELA,
    12,
    13,
    17,
    23,
    25,
    26,
    32,
    DT_RELR,
    DT_GNU_HASH,
    0x6fff_fff0,
    0x6fff_fffc,
    0x6fff_fffe,
];

/// More entries than any library has.
const MAX_ENTRIES: u64 = 1 << 16;
/// The longest name that is read.
const MAX_NAME: u64 = 1 << 16;

/// The names of needed libraries together, since many entries can point at one.
const MAX_NEEDED: u64 = 1 << 20;

/// The dynamic section of a file.
#[derive(Debug, Clone, Default)]
pub struct Dynamic {
    /// File offset of the first entry.
    pub(crate) offset: u64,
    /// Tag and value of each entry before DT_NULL.
    pub(crate) entries: Vec<(u64, u64)>,
    /// The library's own name.
    pub soname: Option<String>,
    /// The libraries that it needs, in order.
    pub needed: Vec<String>,
    /// `DT_RPATH`, as written: folders with `:` between.
    pub rpath: Option<String>,
    /// `DT_RUNPATH`, as written.
    pub runpath: Option<String>,
}

impl Dynamic {
    /// Reads the dynamic section; of a static program, an empty one. Fails where entries or names
    /// lie outside what the segments map.
    pub fn read(r: &dyn ReadAt, image: &Image) -> Result<Self, ElfError> {
        let mut dynamic = Self::read_entries(r, image)?;
        let names = |tag| dynamic.all(tag).collect::<Vec<u64>>();
        let (soname, needed) = (names(DT_SONAME), names(DT_NEEDED));
        let (rpath, runpath) = (names(DT_RPATH), names(DT_RUNPATH));
        let one = |values: &[u64], field| {
            values.first().map(|&at| dynamic.name(r, image, field, at)).transpose()
        };
        let soname = one(&soname, "DT_SONAME")?;
        let rpath = one(&rpath, "DT_RPATH")?;
        let runpath = one(&runpath, "DT_RUNPATH")?;
        let mut libraries = Vec::new();
        let mut bytes = 0;
        for at in needed {
            let name = dynamic.name(r, image, "DT_NEEDED", at)?;
            bytes += name.len() as u64;
            if bytes > MAX_NEEDED {
                let expected = format!("at most {MAX_NEEDED:#x}");
                let field = "the size of all DT_NEEDED names";
                return Err(ElfError::field(field, dynamic.offset, bytes, expected));
            }
            libraries.push(name);
        }
        (dynamic.soname, dynamic.needed) = (soname, libraries);
        (dynamic.rpath, dynamic.runpath) = (rpath, runpath);
        Ok(dynamic)
    }

    /// Reads the entries alone, no names.
    pub(crate) fn read_entries(r: &dyn ReadAt, image: &Image) -> Result<Self, ElfError> {
        let Some(segment) = image.segments.iter().find(|s| s.p_type == PT_DYNAMIC) else {
            return Ok(Self::default());
        };
        let count = segment.p_filesz / 16;
        if count > MAX_ENTRIES {
            let expected = format!("at most {:#x}", MAX_ENTRIES * 16);
            let field = "p_filesz of PT_DYNAMIC";
            return Err(ElfError::field(field, segment.p_offset, segment.p_filesz, expected));
        }
        let table = read_table(r, "the dynamic section", segment.p_offset, count, 16)?;
        let entries = table
            .chunks_exact(16)
            .map(|entry| (u64_at(entry, 0), u64_at(entry, 8)))
            .take_while(|&(tag, _)| tag != DT_NULL)
            .collect();
        Ok(Self { offset: segment.p_offset, entries, ..Self::default() })
    }

    pub(crate) fn get(&self, tag: u64) -> Option<u64> {
        self.all(tag).next()
    }

    fn all(&self, tag: u64) -> impl Iterator<Item = u64> {
        self.entries.iter().filter(move |e| e.0 == tag).map(|e| e.1)
    }

    /// Tag and value of each entry whose value is an address.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = (u64, u64)> {
        self.entries.iter().filter(|(tag, _)| POINTERS.contains(tag)).copied()
    }

    /// File offset of the value of the first entry with this tag.
    pub(crate) fn value_offset(&self, tag: u64) -> Option<u64> {
        let index = self.entries.iter().position(|e| e.0 == tag)?;
        Some(self.offset + index as u64 * 16 + 8)
    }

    fn name(
        &self,
        r: &dyn ReadAt,
        image: &Image,
        field: &str,
        at: u64,
    ) -> Result<String, ElfError> {
        let table = self.get(DT_STRTAB).ok_or_else(|| ElfError::Missing("DT_STRTAB".into()))?;
        let size = self.get(DT_STRSZ).ok_or_else(|| ElfError::Missing("DT_STRSZ".into()))?;
        let start = image
            .offset_of(table, size)
            .ok_or_else(|| ElfError::outside("DT_STRTAB", table, size, "the segments", 0))?;
        if at >= size {
            let expected = format!("less than DT_STRSZ, {size:#x}");
            return Err(ElfError::field(field, self.offset, at, expected));
        }
        let bytes = read_table(r, field, start + at, (size - at).min(MAX_NAME), 1)?;
        let Some(end) = bytes.iter().position(|&b| b == 0) else {
            let expected = "a name with an end";
            return Err(ElfError::field(field, self.offset, at, expected));
        };
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}
