//! Code objects: the ELF files for the GPU inside a bundle, and what they say of themselves.
//!
//! ELF64 little-endian, `e_machine` 224 (`EM_AMDGPU`), OSABI 64 (`ELFOSABI_AMDGPU_HSA`), ABI version
//! 1 to 4 for code object V3 to V6. `e_flags` hold the processor and its features: that is what the
//! code really is. Kernels are described in a note (type 32, name `AMDGPU`) by a MessagePack map.
//! Spec: LLVM's AMDGPUUsage.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::msgpack;
use crate::read_at::{ReadAt, read_vec};
use crate::target::TargetId;

/// Length of an ELF64 file header: what [`CodeObjectHeader::parse`] needs.
pub const HEADER_SIZE: usize = 64;

const EM_AMDGPU: u16 = 224;
const ELFOSABI_AMDGPU_HSA: u8 = 64;
const PT_NOTE: u32 = 4;
const SHT_NULL: u32 = 0;
const SHT_NOBITS: u32 = 8;
const PHDR_SIZE: u16 = 56;
const SHDR_SIZE: u16 = 64;
const NT_AMDGPU_METADATA: u32 = 32;

/// More than the metadata of any code object takes; real ones stay under a few megabytes.
const MAX_NOTES: u64 = 64 << 20;

/// Why bytes are no code object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeObjectError {
    /// The bytes could not be read.
    #[error("cannot read at {offset:#x}")]
    Io {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// Fewer bytes than an ELF header.
    #[error("a code object of {found} bytes, expected at least {HEADER_SIZE}")]
    TooShort {
        /// How many there are.
        found: u64,
    },
    /// A field of the ELF header is not that of a code object.
    #[error("{field} at {offset:#x} is {found:#x}, expected {expected}")]
    Field {
        /// Name of the field in the ELF specification.
        field: &'static str,
        /// Where it is.
        offset: u64,
        /// Its value.
        found: u64,
        /// What it should be.
        expected: &'static str,
    },
    /// A table, segment or section lies outside the file.
    #[error(
        "{what} {index} has {size:#x} bytes at {offset:#x}, but the code object has {len:#x} bytes"
    )]
    Range {
        /// What it is.
        what: &'static str,
        /// Which one.
        index: usize,
        /// Its claimed offset.
        offset: u64,
        /// Its claimed size.
        size: u64,
        /// Length of the code object.
        len: u64,
    },
    /// A note that ends behind its segment, or notes that are too long.
    #[error("the notes at {offset:#x} are damaged or too long")]
    Notes {
        /// Where the note or its segment begins.
        offset: u64,
    },
    /// The metadata note does not hold what it should.
    #[error("cannot decode the metadata note at {offset:#x}")]
    Metadata {
        /// Where the note's content begins.
        offset: u64,
        /// Why.
        source: rmp_serde::decode::Error,
    },
}

/// How a code object compares with the target that it is filed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsaCheck {
    /// It is for that target.
    Same,
    /// It is for that processor, but one of them settles a feature that the other leaves open, as
    /// `gfx90a:xnack+` code under `gfx90a`.
    Features,
    /// It is for something else: another processor, or the opposite feature.
    Other,
    /// Its processor is not in the table: not checked.
    Unknown,
}

/// What a code object's ELF header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeObjectHeader {
    /// `e_ident[EI_ABIVERSION]`: 1 to 4 for code object V3 to V6.
    pub abi_version: u8,
    /// The flags as they are.
    pub e_flags: u32,
    /// What the flags say the code is for; `None` for a processor that is not in the table.
    pub target: Option<TargetId>,
    /// Version of a generic processor's code (V6); 0 for others.
    pub generic_version: u8,
    e_phoff: u64,
    e_shoff: u64,
    e_phnum: u16,
    e_shnum: u16,
}

impl CodeObjectHeader {
    /// Reads the header and checks that its segments and sections lie inside the code object.
    pub fn read(r: &dyn ReadAt) -> Result<Self, CodeObjectError> {
        let len = r.len();
        if len < HEADER_SIZE as u64 {
            return Err(CodeObjectError::TooShort { found: len });
        }
        let mut bytes = [0; HEADER_SIZE];
        let fail = |source| CodeObjectError::Io { offset: 0, source };
        r.read_exact_at(&mut bytes, 0).map_err(fail)?;
        let header = Self::parse(&bytes)?;
        header.check_ranges(r)?;
        Ok(header)
    }

    /// Parses the header from a code object's first 64 (or more) bytes, for a caller that streams
    /// it. Segments and sections are not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, CodeObjectError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_SIZE>() else {
            return Err(CodeObjectError::TooShort { found: bytes.len() as u64 });
        };
        let number = |at: usize, len: usize| little_endian(&bytes[at..at + len]);
        let expect = |field, at: usize, len: usize, good: &dyn Fn(u64) -> bool, expected| {
            let found = number(at, len);
            let error = CodeObjectError::Field { field, offset: at as u64, found, expected };
            if good(found) { Ok(()) } else { Err(error) }
        };
        expect("e_ident magic", 0, 4, &|v| v == 0x464c_457f, "0x464c457f (ELF)")?;
        expect("EI_CLASS", 4, 1, &|v| v == 2, "2 (64-bit)")?;
        expect("EI_DATA", 5, 1, &|v| v == 1, "1 (little-endian)")?;
        expect("EI_OSABI", 7, 1, &|v| v == u64::from(ELFOSABI_AMDGPU_HSA), "0x40 (AMDGPU_HSA)")?;
        expect("EI_ABIVERSION", 8, 1, &|v| (1..=4).contains(&v), "1 to 4 (code object V3 to V6)")?;
        expect("e_machine", 18, 2, &|v| v == u64::from(EM_AMDGPU), "0xe0 (AMDGPU)")?;
        let abi_version = bytes[8];
        let e_flags = u32_of(&bytes[48..52]);
        let e_phnum = u16_of(&bytes[56..58]);
        let e_shnum = u16_of(&bytes[60..62]);
        if e_phnum > 0 {
            expect("e_phentsize", 54, 2, &|v| v == u64::from(PHDR_SIZE), "56")?;
        }
        if e_shnum > 0 {
            expect("e_shentsize", 58, 2, &|v| v == u64::from(SHDR_SIZE), "64")?;
        }
        // V3 has the features in other bits, where off and any cannot be told apart.
        let target =
            TargetId::from_e_flags(if abi_version == 1 { e_flags & 0xff } else { e_flags });
        let generic_version = if abi_version == 4 { e_flags.to_le_bytes()[3] } else { 0 };
        let (e_phoff, e_shoff) = (number(32, 8), number(40, 8));
        Ok(Self {
            abi_version,
            e_flags,
            target,
            generic_version,
            e_phoff,
            e_shoff,
            e_phnum,
            e_shnum,
        })
    }

    /// Code object version as the documentation counts: 3 to 6.
    pub fn version(&self) -> u8 {
        self.abi_version + 2
    }

    /// Whether this is code for the target that it is filed under. A feature that an id leaves out
    /// means "any", here as in the flags.
    pub fn check(&self, filed: &TargetId) -> IsaCheck {
        let Some(found) = &self.target else { return IsaCheck::Unknown };
        if found == filed {
            IsaCheck::Same
        } else if filed.without_features() == *found && self.abi_version == 1 {
            // The flags of V3 do not give the features.
            IsaCheck::Same
        } else if found.search_order().contains(filed) || filed.search_order().contains(found) {
            IsaCheck::Features
        } else {
            IsaCheck::Other
        }
    }

    fn check_ranges(&self, r: &dyn ReadAt) -> Result<(), CodeObjectError> {
        let len = r.len();
        let inside = |what, index, offset: u64, size: u64| {
            let good = offset.checked_add(size).is_some_and(|end| end <= len);
            let error = CodeObjectError::Range { what, index, offset, size, len };
            if good { Ok(()) } else { Err(error) }
        };
        for (i, segment) in self.segments(r)?.chunks_exact(PHDR_SIZE.into()).enumerate() {
            inside("segment", i, little_endian(&segment[8..16]), little_endian(&segment[32..40]))?;
        }
        for (i, section) in self.sections(r)?.chunks_exact(SHDR_SIZE.into()).enumerate() {
            if !matches!(u32_of(&section[4..8]), SHT_NULL | SHT_NOBITS) {
                let (offset, size) = (&section[24..32], &section[32..40]);
                inside("section", i, little_endian(offset), little_endian(size))?;
            }
        }
        Ok(())
    }

    /// Where the table of segments ends.
    pub(super) fn table_end(&self) -> u64 {
        self.e_phoff.saturating_add(u64::from(self.e_phnum) * u64::from(PHDR_SIZE))
    }

    /// Where the last segment with notes ends; 0 where there is none.
    pub(super) fn notes_end(&self, r: &dyn ReadAt) -> Result<u64, CodeObjectError> {
        let segments = self.segments(r)?;
        let notes = segments.chunks_exact(PHDR_SIZE.into()).filter(|s| u32_of(&s[..4]) == PT_NOTE);
        let ends = notes.map(|segment| {
            little_endian(&segment[8..16]).saturating_add(little_endian(&segment[32..40]))
        });
        Ok(ends.max().unwrap_or_default())
    }

    fn segments(&self, r: &dyn ReadAt) -> Result<Vec<u8>, CodeObjectError> {
        table(r, "program header table", self.e_phoff, self.e_phnum, PHDR_SIZE)
    }

    fn sections(&self, r: &dyn ReadAt) -> Result<Vec<u8>, CodeObjectError> {
        table(r, "section header table", self.e_shoff, self.e_shnum, SHDR_SIZE)
    }
}

/// At most 65535 × 64 bytes: needs no other cap.
fn table(
    r: &dyn ReadAt,
    what: &'static str,
    offset: u64,
    count: u16,
    entry_size: u16,
) -> Result<Vec<u8>, CodeObjectError> {
    let size = u64::from(count) * u64::from(entry_size);
    if size == 0 {
        return Ok(Vec::new());
    }
    if offset.checked_add(size).is_none_or(|end| end > r.len()) {
        return Err(CodeObjectError::Range { what, index: 0, offset, size, len: r.len() });
    }
    read_vec(r, offset, size).map_err(|source| CodeObjectError::Io { offset, source })
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::try_from(little_endian(bytes)).unwrap_or(u32::MAX)
}

fn u16_of(bytes: &[u8]) -> u16 {
    u16::try_from(little_endian(bytes)).unwrap_or(u16::MAX)
}

/// One kernel, as the metadata note describes it. Sizes are in bytes; what the note leaves out is
/// `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The name in the source, mangled.
    #[serde(rename(deserialize = ".name"))]
    pub name: String,
    /// The symbol of its descriptor, e.g. `k1.kd`.
    #[serde(default, rename(deserialize = ".symbol"))]
    pub symbol: Option<String>,
    /// Vector registers for a work-item.
    #[serde(default, rename(deserialize = ".vgpr_count"))]
    pub vgpr_count: Option<u64>,
    /// Accumulation registers for a work-item.
    #[serde(default, rename(deserialize = ".agpr_count"))]
    pub agpr_count: Option<u64>,
    /// Scalar registers for a wavefront.
    #[serde(default, rename(deserialize = ".sgpr_count"))]
    pub sgpr_count: Option<u64>,
    /// Stores to spill vector registers.
    #[serde(default, rename(deserialize = ".vgpr_spill_count"))]
    pub vgpr_spill_count: Option<u64>,
    /// Stores to spill scalar registers.
    #[serde(default, rename(deserialize = ".sgpr_spill_count"))]
    pub sgpr_spill_count: Option<u64>,
    /// Local memory (LDS) for a work-group.
    #[serde(default, rename(deserialize = ".group_segment_fixed_size"))]
    pub group_segment_fixed_size: Option<u64>,
    /// Scratch memory for a work-item.
    #[serde(default, rename(deserialize = ".private_segment_fixed_size"))]
    pub private_segment_fixed_size: Option<u64>,
    /// Size of the arguments.
    #[serde(default, rename(deserialize = ".kernarg_segment_size"))]
    pub kernarg_segment_size: Option<u64>,
    /// Largest work-group.
    #[serde(default, rename(deserialize = ".max_flat_workgroup_size"))]
    pub max_flat_workgroup_size: Option<u64>,
    /// Work-items in a wavefront: 32 or 64.
    #[serde(default, rename(deserialize = ".wavefront_size"))]
    pub wavefront_size: Option<u64>,
}

/// What the metadata note says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// Target as the compiler named it, e.g. `amdgcn-amd-amdhsa--gfx1100`.
    #[serde(default, rename(deserialize = "amdhsa.target"))]
    pub target: Option<String>,
    /// Metadata version: major, minor.
    #[serde(default, rename(deserialize = "amdhsa.version"))]
    pub version: Vec<u64>,
    /// The kernels, in the order of the note.
    #[serde(default, rename(deserialize = "amdhsa.kernels"))]
    pub kernels: Vec<Kernel>,
}

impl Metadata {
    /// Reads the metadata note of a code object; `None` where it has none.
    pub fn read(
        r: &dyn ReadAt,
        header: &CodeObjectHeader,
    ) -> Result<Option<Self>, CodeObjectError> {
        Self::read_as(r, header)
    }

    /// The same, as another type that takes what it wants of the note.
    pub(super) fn read_as<T: DeserializeOwned>(
        r: &dyn ReadAt,
        header: &CodeObjectHeader,
    ) -> Result<Option<T>, CodeObjectError> {
        // Of all segments together: thousands of them can show the same bytes.
        let mut left = MAX_NOTES;
        for segment in header.segments(r)?.chunks_exact(PHDR_SIZE.into()) {
            if u32_of(&segment[..4]) != PT_NOTE {
                continue;
            }
            let (offset, size) = (little_endian(&segment[8..16]), little_endian(&segment[32..40]));
            left = left.checked_sub(size).ok_or(CodeObjectError::Notes { offset })?;
            let fail = |source| CodeObjectError::Io { offset, source };
            let notes = read_vec(r, offset, size).map_err(fail)?;
            if let Some(metadata) = Self::find(&notes, offset)? {
                return Ok(Some(metadata));
            }
        }
        Ok(None)
    }

    /// Finds the note in a segment's bytes. A note: u32 name size · u32 content size · u32 type ·
    /// name · content, both padded to 4.
    fn find<T: DeserializeOwned>(
        mut notes: &[u8],
        segment: u64,
    ) -> Result<Option<T>, CodeObjectError> {
        let all = notes.len();
        while notes.len() >= 12 {
            let at = segment + (all - notes.len()) as u64;
            let bad = || CodeObjectError::Notes { offset: at };
            let name_size = u32_of(&notes[..4]) as usize;
            let size = u32_of(&notes[4..8]) as usize;
            let kind = u32_of(&notes[8..12]);
            let name = notes[12..].get(..name_size).ok_or_else(bad)?;
            let content_at = 12 + name_size.next_multiple_of(4);
            let content = notes.get(content_at..).and_then(|c| c.get(..size)).ok_or_else(bad)?;
            if kind == NT_AMDGPU_METADATA && name == b"AMDGPU\0" {
                let offset = at + content_at as u64;
                let fail = |source| CodeObjectError::Metadata { offset, source };
                return msgpack::decode(content).map(|(note, _)| Some(note)).map_err(fail);
            }
            notes = notes.get(content_at + size.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with no tables.
    fn header(abi_version: u8, e_flags: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_SIZE];
        bytes[..9].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 64, abi_version]);
        bytes[18] = 224;
        bytes[48..52].copy_from_slice(&e_flags.to_le_bytes());
        bytes
    }

    fn check(abi_version: u8, e_flags: u32, filed: &str) -> IsaCheck {
        let header = CodeObjectHeader::read(&header(abi_version, e_flags)).unwrap();
        header.check(&filed.parse().unwrap())
    }

    #[test]
    fn notes_that_thousands_of_segments_show_are_read_once() {
        let mut bytes = header(2, 0x41);
        let (count, size) = (60_000u16, 1u64 << 20);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56..58].copy_from_slice(&count.to_le_bytes());
        let mut segment = [0; 56];
        segment[0] = 4;
        segment[32..40].copy_from_slice(&size.to_le_bytes());
        segment[8..16].copy_from_slice(&(64 + u64::from(count) * 56).to_le_bytes());
        bytes.extend(segment.repeat(count.into()));
        bytes.resize(bytes.len() + (1 << 20), 0);
        let header = CodeObjectHeader::read(&bytes).unwrap();
        let error = Metadata::read(&bytes, &header).unwrap_err();
        assert!(matches!(error, CodeObjectError::Notes { .. }), "{error}");
    }

    #[test]
    fn flags_are_held_against_the_filed_target() {
        assert_eq!(check(2, 0x41, "gfx1100"), IsaCheck::Same);
        assert_eq!(check(2, 0x41, "gfx1101"), IsaCheck::Other);
        assert_eq!(check(2, 0x53f, "gfx90a"), IsaCheck::Same);
        assert_eq!(check(2, 0x73f, "gfx90a:xnack+"), IsaCheck::Same);
        assert_eq!(check(2, 0x73f, "gfx90a"), IsaCheck::Features);
        assert_eq!(check(2, 0x53f, "gfx90a:xnack+"), IsaCheck::Features);
        assert_eq!(check(2, 0x73f, "gfx90a:xnack-"), IsaCheck::Other);
        assert_eq!(check(2, 0xff, "gfx1100"), IsaCheck::Unknown);
        assert_eq!(check(1, 0x33f, "gfx90a:xnack+"), IsaCheck::Same);
        assert_eq!(check(4, 0x0100_0054, "gfx11-generic"), IsaCheck::Same);
        let generic = CodeObjectHeader::parse(&header(4, 0x0100_0054)).unwrap();
        assert_eq!((generic.version(), generic.generic_version), (6, 1));
    }

    #[test]
    fn what_is_no_code_object_is_refused() {
        for (at, value) in [(0, 0), (4, 1), (5, 2), (7, 0), (8, 0), (8, 5), (18, 62)] {
            let mut bytes = header(2, 0x41);
            bytes[at] = value;
            let error = CodeObjectHeader::read(&bytes).unwrap_err();
            assert!(matches!(error, CodeObjectError::Field { .. }), "{at}");
        }
        let short = header(2, 0x41)[..63].to_vec();
        assert!(matches!(CodeObjectHeader::read(&short), Err(CodeObjectError::TooShort { .. })));
    }

    #[test]
    fn tables_and_what_they_list_lie_inside() {
        let mut bytes = header(2, 0x41);
        bytes[32] = 64; // e_phoff
        bytes[54] = 56; // e_phentsize
        bytes[56] = 1; // e_phnum
        assert!(matches!(CodeObjectHeader::read(&bytes), Err(CodeObjectError::Range { .. })));
        bytes.resize(64 + 56, 0);
        CodeObjectHeader::read(&bytes).unwrap();
        bytes[64 + 8] = 100; // p_offset
        bytes[64 + 32] = 20; // p_filesz
        CodeObjectHeader::read(&bytes).unwrap();
        bytes[64 + 32] = 21;
        assert!(matches!(CodeObjectHeader::read(&bytes), Err(CodeObjectError::Range { .. })));
        bytes[64 + 8..64 + 16].fill(0xff);
        assert!(matches!(CodeObjectHeader::read(&bytes), Err(CodeObjectError::Range { .. })));
        // Section headers are looked at in the same way.
        let mut bytes = header(2, 0x41);
        bytes[40] = 64; // e_shoff
        bytes[58] = 64; // e_shentsize
        bytes[60] = 1; // e_shnum
        bytes.resize(128, 0);
        bytes[64 + 4] = 1; // SHT_PROGBITS
        bytes[64 + 24] = 64; // sh_offset
        bytes[64 + 32] = 65; // sh_size
        assert!(matches!(CodeObjectHeader::read(&bytes), Err(CodeObjectError::Range { .. })));
        bytes[64 + 4] = 8; // SHT_NOBITS takes no room in the file
        CodeObjectHeader::read(&bytes).unwrap();
    }

    #[test]
    fn notes_that_lie_are_told() {
        let note = |name_size: u32, size: u32, content: &[u8]| {
            let mut bytes = Vec::new();
            for word in [name_size, size, NT_AMDGPU_METADATA] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(b"AMDGPU\0\0");
            bytes.extend(content);
            bytes
        };
        let find = |bytes: &[u8]| Metadata::find::<Metadata>(bytes, 0);
        assert_eq!(find(&note(7, 1, &[0x80])).unwrap(), Some(Metadata::default()));
        assert!(matches!(find(&note(7, 2, &[0x80])), Err(CodeObjectError::Notes { .. })));
        assert!(matches!(find(&note(u32::MAX, 1, &[0x80])), Err(CodeObjectError::Notes { .. })));
        // Arrays of 2^32 elements, and nested a million deep.
        let kernels = b"\x81\xaeamdhsa.kernels\xdd\xff\xff\xff\xff";
        let long = note(7, u32::try_from(kernels.len()).unwrap(), kernels);
        assert!(matches!(find(&long), Err(CodeObjectError::Metadata { .. })));
        let mut deep = b"\x81\xa1x".to_vec();
        deep.extend(vec![0x91; 1 << 20]);
        let deep = note(7, u32::try_from(deep.len()).unwrap(), &deep);
        assert!(matches!(find(&deep), Err(CodeObjectError::Metadata { .. })));
        assert_eq!(find(&[0; 11]).unwrap(), None);
    }
}
