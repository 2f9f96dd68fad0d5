//! The headers of an ELF64 little-endian x86-64 file.
//!
//! ```text
//! 0        Elf64_Ehdr, 64 bytes: e_phoff, e_shoff, e_phnum, e_shnum, e_shstrndx
//! e_phoff  e_phnum × Elf64_Phdr, 56 bytes: what the loader maps
//! e_shoff  e_shnum × Elf64_Shdr, 64 bytes: what tools see; may be missing
//! ```
//!
//! [`Image::read`] holds what it accepts to this: the tables and every section's bytes lie in the
//! file, and no range wraps. It does not check that segments lie in the file (those of a separate
//! debug file do not), are in order or free of overlap: [`super::verify`] and [`mod@super::convert`]
//! do, where it matters.
//!
//! Source: System V gABI chapters 4 and 5, psABI for x86-64.

use super::{ElfError, u16_at, u32_at, u64_at};
use crate::read_at::{ReadAt, read_vec};
use std::ops::Range;

pub(crate) const EHDR_SIZE: u64 = 64;
pub(crate) const PHDR_SIZE: u64 = 56;
pub(crate) const SHDR_SIZE: u64 = 64;
/// What x86-64 machines map by, whatever `p_align` says.
pub(crate) const PAGE: u64 = 4096;

/// Name of the section with the device code.
pub const HIP_FATBIN: &str = ".hip_fatbin";
/// Name of the section with the wrappers.
pub const HIP_FATBIN_SEGMENT: &str = ".hipFatBinSegment";
/// Name of the section with the marker of a converted file.
pub const KPACK_REF: &str = ".rocm_kpack_ref";

pub(crate) const ET_REL: u16 = 1;
pub(crate) const ET_EXEC: u16 = 2;
pub(crate) const ET_DYN: u16 = 3;
pub(crate) const EM_X86_64: u16 = 62;

pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_INTERP: u32 = 3;
pub(crate) const PT_PHDR: u32 = 6;

pub(crate) const SHT_NULL: u32 = 0;
pub(crate) const SHT_PROGBITS: u32 = 1;
pub(crate) const SHT_SYMTAB: u32 = 2;
pub(crate) const SHT_RELA: u32 = 4;
pub(crate) const SHT_HASH: u32 = 5;
pub(crate) const SHT_DYNAMIC: u32 = 6;
pub(crate) const SHT_NOTE: u32 = 7;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHT_REL: u32 = 9;
pub(crate) const SHT_DYNSYM: u32 = 11;
pub(crate) const SHT_GROUP: u32 = 17;
pub(crate) const SHT_SYMTAB_SHNDX: u32 = 18;
pub(crate) const SHT_GNU_HASH: u32 = 0x6fff_fff6;
pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const SHF_TLS: u64 = 0x400;
pub(crate) const SHF_INFO_LINK: u64 = 0x40;
pub(crate) const SHN_LORESERVE: u16 = 0xff00;
pub(crate) const SHN_ABS: u16 = 0xfff1;

/// More section headers than any linked program has, few enough to hold in memory.
const MAX_SECTIONS: u64 = 1 << 18;
/// The same for the names of all sections together.
const MAX_NAMES: u64 = 64 << 20;

/// A program header.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of Elf64_Phdr under the names of the specification")]
pub struct Segment {
    pub p_type: u32,
    pub p_flags: u32,
    pub p_offset: u64,
    pub p_vaddr: u64,
    pub p_paddr: u64,
    pub p_filesz: u64,
    pub p_memsz: u64,
    pub p_align: u64,
}

impl Segment {
    fn parse(b: &[u8]) -> Self {
        Self {
            p_type: u32_at(b, 0),
            p_flags: u32_at(b, 4),
            p_offset: u64_at(b, 8),
            p_vaddr: u64_at(b, 16),
            p_paddr: u64_at(b, 24),
            p_filesz: u64_at(b, 32),
            p_memsz: u64_at(b, 40),
            p_align: u64_at(b, 48),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.p_type.to_le_bytes());
        out.extend(self.p_flags.to_le_bytes());
        for word in
            [self.p_offset, self.p_vaddr, self.p_paddr, self.p_filesz, self.p_memsz, self.p_align]
        {
            out.extend(word.to_le_bytes());
        }
    }

    /// The bytes of the file that it maps.
    pub fn file_range(&self) -> Range<u64> {
        self.p_offset..self.p_offset.saturating_add(self.p_filesz)
    }

    /// The addresses that it covers.
    pub fn memory_range(&self) -> Range<u64> {
        self.p_vaddr..self.p_vaddr.saturating_add(self.p_memsz)
    }
}

/// A section header and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of Elf64_Shdr under the names of the specification")]
pub struct Section {
    /// The name; bytes that are not UTF-8 are replaced.
    pub name: String,
    pub sh_name: u32,
    pub sh_type: u32,
    pub sh_flags: u64,
    pub sh_addr: u64,
    pub sh_offset: u64,
    pub sh_size: u64,
    pub sh_link: u32,
    pub sh_info: u32,
    pub sh_addralign: u64,
    pub sh_entsize: u64,
}

impl Section {
    pub(super) fn parse(b: &[u8]) -> Self {
        Self {
            name: String::new(),
            sh_name: u32_at(b, 0),
            sh_type: u32_at(b, 4),
            sh_flags: u64_at(b, 8),
            sh_addr: u64_at(b, 16),
            sh_offset: u64_at(b, 24),
            sh_size: u64_at(b, 32),
            sh_link: u32_at(b, 40),
            sh_info: u32_at(b, 44),
            sh_addralign: u64_at(b, 48),
            sh_entsize: u64_at(b, 56),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.sh_name.to_le_bytes());
        out.extend(self.sh_type.to_le_bytes());
        for word in [self.sh_flags, self.sh_addr, self.sh_offset, self.sh_size] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.sh_link.to_le_bytes());
        out.extend(self.sh_info.to_le_bytes());
        out.extend(self.sh_addralign.to_le_bytes());
        out.extend(self.sh_entsize.to_le_bytes());
    }

    /// Whether it takes part in the running program.
    pub fn is_alloc(&self) -> bool {
        self.sh_flags & SHF_ALLOC != 0
    }

    /// The bytes of the file that it has: none for a NOBITS section.
    pub fn file_range(&self) -> Range<u64> {
        let size = if self.sh_type == SHT_NOBITS { 0 } else { self.sh_size };
        // A section of type NULL can hold anything: its fields are not checked.
        self.sh_offset..self.sh_offset.saturating_add(size)
    }

    /// The addresses that it covers.
    pub fn memory_range(&self) -> Range<u64> {
        self.sh_addr..self.sh_addr.saturating_add(self.sh_size)
    }
}

/// The headers of an ELF64 x86-64 file.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields of Elf64_Ehdr under the names of the specification")]
pub struct Image {
    /// The 64 bytes of the ELF header.
    pub(crate) ehdr: [u8; 64],
    pub e_type: u16,
    /// Where a program begins; 0 in a library.
    pub e_entry: u64,
    pub e_phoff: u64,
    pub e_shoff: u64,
    pub e_shstrndx: u32,
    /// The program headers, in the order of the file.
    pub segments: Vec<Segment>,
    /// The section headers, the null section first; empty where the file has none.
    pub sections: Vec<Section>,
    /// Length of the file in bytes.
    pub file_len: u64,
}

/// What a file is, as far as this crate handles it.
#[derive(Debug, Clone)]
pub enum Kind {
    /// No ELF file.
    NotElf,
    /// An ELF file of another class, byte order, machine or type; device code is of this kind.
    Other {
        /// `EI_CLASS`: 1 for 32 bits, 2 for 64.
        class: u8,
        /// `EI_DATA`: 1 for little-endian.
        data: u8,
        /// `e_machine`.
        machine: u16,
        /// `e_type`.
        file_type: u16,
    },
    /// An x86-64 object file (`.o`), with device code or without.
    Relocatable {
        /// Whether it has a `.hip_fatbin` section that is not empty.
        fat: bool,
    },
    /// An x86-64 program or shared library. [`Image::state`] says more.
    Program(Image),
}

/// What there is to do about a program or shared library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No section headers: whether there is device code cannot be told.
    NoSections,
    /// No device code, and no marker.
    Plain,
    /// Device code in `.hip_fatbin`.
    Fat,
    /// Already converted: there is a marker.
    Converted,
}

/// Says what a file is. Reads the 64 bytes of the ELF header and, of x86-64 files, the other
/// headers. Fails where the file cannot be read or says that it is an x86-64 program and has
/// damaged headers.
pub fn probe(r: &dyn ReadAt) -> Result<Kind, ElfError> {
    let mut head = [0; 64];
    let known = usize::try_from(r.len()).map_or(64, |len| len.min(64));
    r.read_exact_at(&mut head[..known], 0).map_err(|source| ElfError::Read {
        what: "the ELF header".into(),
        offset: 0,
        source,
    })?;
    if head[..4] != *b"\x7fELF" {
        return Ok(Kind::NotElf);
    }
    if r.len() < EHDR_SIZE {
        return Err(ElfError::outside("the ELF header", 0, EHDR_SIZE, "the file", r.len()));
    }
    let (class, data) = (head[4], head[5]);
    let (file_type, machine) = if data == 2 {
        (u16_at(&head, 16).swap_bytes(), u16_at(&head, 18).swap_bytes())
    } else {
        (u16_at(&head, 16), u16_at(&head, 18))
    };
    match (class, data, machine, file_type) {
        (2, 1, EM_X86_64, ET_EXEC | ET_DYN) => Image::read(r).map(Kind::Program),
        (2, 1, EM_X86_64, ET_REL) => {
            let image = Image::read(r)?;
            Ok(Kind::Relocatable { fat: image.has_device_code() })
        }
        _ => Ok(Kind::Other { class, data, machine, file_type }),
    }
}

impl Image {
    /// Reads the headers. Fails where the file is no ELF64 little-endian x86-64 file, where a table
    /// or the bytes of a section or segment lie outside the file, or where an address range wraps.
    pub fn read(r: &dyn ReadAt) -> Result<Self, ElfError> {
        let file_len = r.len();
        let head = read_table(r, "the ELF header", 0, 1, EHDR_SIZE)?;
        let mut ehdr = [0; 64];
        ehdr.copy_from_slice(&head);
        if ehdr[..4] != *b"\x7fELF" {
            let found = u32::from_be_bytes([ehdr[0], ehdr[1], ehdr[2], ehdr[3]]);
            return Err(ElfError::field("e_ident magic", 0, found, "0x7f454c46"));
        }
        for (field, at, expected) in [("EI_CLASS", 4, 2), ("EI_DATA", 5, 1)] {
            if ehdr[at] != expected {
                return Err(ElfError::field(field, at as u64, ehdr[at], expected));
            }
        }
        let machine = u16_at(&ehdr, 18);
        if machine != EM_X86_64 {
            return Err(ElfError::field("e_machine", 18, machine, "62 (x86-64)"));
        }
        let e_phoff = u64_at(&ehdr, 32);
        let e_shoff = u64_at(&ehdr, 40);
        let e_phnum = u16_at(&ehdr, 56);
        let mut image = Self {
            ehdr,
            e_type: u16_at(&ehdr, 16),
            e_entry: u64_at(&ehdr, 24),
            e_phoff,
            e_shoff,
            e_shstrndx: u16_at(&ehdr, 62).into(),
            segments: Vec::new(),
            sections: Vec::new(),
            file_len,
        };
        if e_phnum != 0 {
            image.read_segments(r, e_phnum)?;
        }
        if e_shoff != 0 {
            image.read_sections(r)?;
        }
        Ok(image)
    }

    fn read_segments(&mut self, r: &dyn ReadAt, e_phnum: u16) -> Result<(), ElfError> {
        let size = u16_at(&self.ehdr, 54);
        if u64::from(size) != PHDR_SIZE {
            return Err(ElfError::field("e_phentsize", 54, size, PHDR_SIZE));
        }
        if e_phnum == 0xffff {
            return Err(ElfError::field("e_phnum", 56, e_phnum, "less than 0xffff"));
        }
        let table =
            read_table(r, "the program header table", self.e_phoff, e_phnum.into(), PHDR_SIZE)?;
        for (i, bytes) in table.chunks_exact(56).enumerate() {
            let segment = Segment::parse(bytes);
            let what = || format!("segment {i}");
            no_wrap(what, segment.p_offset, segment.p_filesz)?;
            no_wrap(what, segment.p_vaddr, segment.p_memsz)?;
            let header = self.e_phoff + i as u64 * PHDR_SIZE;
            if segment.p_type == PT_LOAD && segment.p_filesz > segment.p_memsz {
                let expected = format!("at most p_memsz, {:#x}", segment.p_memsz);
                let field = format!("p_filesz of segment {i}");
                return Err(ElfError::field(field, header + 32, segment.p_filesz, expected));
            }
            if segment.p_align > 1 && !segment.p_align.is_power_of_two() {
                let field = format!("p_align of segment {i}");
                return Err(ElfError::field(field, header + 48, segment.p_align, "a power of two"));
            }
            self.segments.push(segment);
        }
        Ok(())
    }

    fn read_sections(&mut self, r: &dyn ReadAt) -> Result<(), ElfError> {
        let size = u16_at(&self.ehdr, 58);
        if u64::from(size) != SHDR_SIZE {
            return Err(ElfError::field("e_shentsize", 58, size, SHDR_SIZE));
        }
        let what = "the section header table";
        let mut count = u64::from(u16_at(&self.ehdr, 60));
        if count == 0 || self.e_shstrndx == 0xffff {
            // Too many sections for the header: the null section has the numbers.
            let null = Section::parse(&read_table(r, what, self.e_shoff, 1, SHDR_SIZE)?);
            if count == 0 {
                count = null.sh_size;
            }
            if self.e_shstrndx == 0xffff {
                self.e_shstrndx = null.sh_link;
            }
        }
        if count > MAX_SECTIONS {
            let expected = format!("at most {MAX_SECTIONS} sections");
            return Err(ElfError::field("e_shnum", 60, count, expected));
        }
        let table = read_table(r, what, self.e_shoff, count, SHDR_SIZE)?;
        for (i, bytes) in table.chunks_exact(64).enumerate() {
            let section = Section::parse(bytes);
            // The null section's fields hold the extended numbers, no range.
            if i != 0 && section.sh_type != 0 {
                let what = || format!("section {i}");
                let range = if section.sh_type == SHT_NOBITS { 0 } else { section.sh_size };
                // The linkers leave any offset at all to sections without bytes.
                if range != 0 {
                    inside_file(what, section.sh_offset, range, self.file_len)?;
                }
                no_wrap(what, section.sh_addr, section.sh_size)?;
                no_wrap(what, section.sh_offset, range)?;
            }
            self.sections.push(section);
        }
        self.read_names(r)
    }

    fn read_names(&mut self, r: &dyn ReadAt) -> Result<(), ElfError> {
        if self.sections.is_empty() || self.e_shstrndx == 0 {
            return Ok(());
        }
        let count = self.sections.len();
        let Some(names) = self.sections.get(self.e_shstrndx as usize) else {
            let expected = format!("less than the section count, {count}");
            return Err(ElfError::field("e_shstrndx", 62, self.e_shstrndx, expected));
        };
        if names.sh_type == SHT_NOBITS || names.sh_size > MAX_NAMES {
            let expected = format!("at most {MAX_NAMES:#x}, in the file");
            let at = self.e_shoff + u64::from(self.e_shstrndx) * SHDR_SIZE + 32;
            return Err(ElfError::field(
                "sh_size of the section names",
                at,
                names.sh_size,
                expected,
            ));
        }
        let names = read_table(r, "the section names", names.sh_offset, names.sh_size, 1)?;
        for (i, section) in self.sections.iter_mut().enumerate() {
            let Some(tail) = names.get(section.sh_name as usize..) else {
                let at = self.e_shoff + i as u64 * SHDR_SIZE;
                let expected = format!("less than the size of the names, {:#x}", names.len());
                let field = format!("sh_name of section {i}");
                return Err(ElfError::field(field, at, section.sh_name, expected));
            };
            // No name that matters is longer; a hostile table must not be copied for each section.
            let tail = &tail[..tail.len().min(128)];
            let end = tail.iter().position(|&b| b == 0).unwrap_or(tail.len());
            section.name = String::from_utf8_lossy(&tail[..end]).into_owned();
        }
        Ok(())
    }

    /// The first section of this name that is in use.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.section_index(name).map(|i| &self.sections[i])
    }

    pub(crate) fn section_index(&self, name: &str) -> Option<usize> {
        self.sections.iter().position(|s| s.sh_type != SHT_NULL && s.name == name)
    }

    fn has_device_code(&self) -> bool {
        self.sections.iter().any(|s| {
            s.name == HIP_FATBIN && !matches!(s.sh_type, SHT_NULL | SHT_NOBITS) && s.sh_size != 0
        })
    }

    /// What there is to do about the file.
    pub fn state(&self) -> State {
        let marker = self.section(KPACK_REF).is_some_and(|s| s.sh_type != SHT_NOBITS);
        if self.sections.is_empty() {
            State::NoSections
        } else if marker {
            State::Converted
        } else if self.has_device_code() {
            State::Fat
        } else {
            State::Plain
        }
    }

    /// The PT_LOAD segments with their places in the table.
    pub fn loads(&self) -> impl Iterator<Item = (usize, &Segment)> {
        self.segments.iter().enumerate().filter(|(_, s)| s.p_type == PT_LOAD)
    }

    /// Where the `size` bytes at an address are in the file, or `None` where no PT_LOAD maps them
    /// all from the file.
    pub fn offset_of(&self, vaddr: u64, size: u64) -> Option<u64> {
        self.loads().find_map(|(_, load)| {
            let at = vaddr.checked_sub(load.p_vaddr)?;
            (at.checked_add(size)? <= load.p_filesz).then(|| load.p_offset + at)
        })
    }
}

/// Reads `count` entries of `size` bytes, after checking that the file has them.
pub(crate) fn read_table(
    r: &dyn ReadAt,
    what: &str,
    offset: u64,
    count: u64,
    size: u64,
) -> Result<Vec<u8>, ElfError> {
    let outside = |bytes| ElfError::outside(what, offset, bytes, "the file", r.len());
    let bytes = count.checked_mul(size).ok_or_else(|| outside(u64::MAX))?;
    if offset.checked_add(bytes).is_none_or(|end| end > r.len()) {
        return Err(outside(bytes));
    }
    read_vec(r, offset, bytes).map_err(|source| ElfError::Read {
        what: what.into(),
        offset,
        source,
    })
}

fn inside_file(
    what: impl Fn() -> String,
    start: u64,
    size: u64,
    file_len: u64,
) -> Result<(), ElfError> {
    match start.checked_add(size) {
        Some(end) if end <= file_len => Ok(()),
        _ => Err(ElfError::outside(what(), start, size, "the file", file_len)),
    }
}

/// Leaves room above for rounding up to any page size.
fn no_wrap(what: impl Fn() -> String, start: u64, size: u64) -> Result<(), ElfError> {
    const END: u64 = 1 << 62;
    match start.checked_add(size) {
        Some(end) if end <= END => Ok(()),
        _ => Err(ElfError::outside(what(), start, size, "the address space", END)),
    }
}
