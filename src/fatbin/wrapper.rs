//! The wrappers: what a program hands to the HIP runtime for each bundle that it registers.
//!
//! `.hipFatBinSegment` is an array of 24-byte entries:
//!
//! | off | size | field |
//! |---|---|---|
//! | 0 | 4 | magic: HIPF `0x48495046`, after conversion HIPK `0x4b504948` |
//! | 4 | 4 | version, 1 |
//! | 8 | 8 | address of the bundle; after conversion, of the marker |
//! | 16 | 8 | unused; after conversion its first 4 bytes hold the code-object index |
//!
//! The address is read through its relocation ([`crate::elf::pointer`]): what is stored may be 0.
//! Several wrappers can point at one bundle, in any order.
//! Source: clang's `CGCUDANV.cpp`, ROCm's `hip_fatbin.cpp`.

use crate::elf::image::{HIP_FATBIN, HIP_FATBIN_SEGMENT, Image, read_table};
use crate::elf::pointer::{self, Pointer};
use crate::elf::{ElfError, u32_at};
use crate::read_at::ReadAt;

/// Size of a wrapper in bytes.
pub const WRAPPER_SIZE: u64 = 24;
/// More wrappers than any library has translation units.
const MAX_WRAPPERS: u64 = 1 << 20;

/// What a wrapper points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Magic {
    /// A bundle in the file.
    Hipf = 0x4849_5046,
    /// A marker, which names an archive.
    Hipk = 0x4b50_4948,
}

/// An entry of `.hipFatBinSegment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrapper {
    /// Place in the array: the code-object index that the converted file asks the archive for.
    pub index: u32,
    /// Address of the wrapper.
    pub vaddr: u64,
    /// Where the wrapper is in the file.
    pub offset: u64,
    /// What it points at.
    pub magic: Magic,
    /// The word with the address; `target.value` is that of the bundle or marker.
    pub target: Pointer,
    /// The code-object index; means something for [`Magic::Hipk`] only.
    pub co_index: u32,
}

impl Wrapper {
    /// Address of the bundle or, in a converted file, the marker.
    pub fn address(&self) -> u64 {
        self.target.value
    }
}

/// Reads all wrappers; none where the file has no `.hipFatBinSegment`. Fails where the section is not
/// an array of wrappers, no relocation gives an address, or the address of a bundle is not in
/// `.hip_fatbin`.
pub fn read(r: &dyn ReadAt, image: &Image) -> Result<Vec<Wrapper>, ElfError> {
    let Some(section) = image.section(HIP_FATBIN_SEGMENT) else { return Ok(Vec::new()) };
    let (size, start) = (section.sh_size, section.sh_offset);
    if section.file_range().is_empty() {
        return Ok(Vec::new());
    }
    let count = size / WRAPPER_SIZE;
    if size % WRAPPER_SIZE != 0 || count > MAX_WRAPPERS {
        let expected = format!("a multiple of {WRAPPER_SIZE}, for at most {MAX_WRAPPERS} wrappers");
        let field = format!("sh_size of {HIP_FATBIN_SEGMENT}");
        return Err(ElfError::field(field, start, size, expected));
    }
    if image.offset_of(section.sh_addr, size) != Some(start) {
        let field = format!("sh_offset of {HIP_FATBIN_SEGMENT}");
        let expected = format!("where a segment maps {:#x}", section.sh_addr);
        return Err(ElfError::field(field, start, start, expected));
    }
    let bytes = read_table(r, HIP_FATBIN_SEGMENT, start, size, 1)?;
    let words: Vec<u64> = (0..count).map(|i| section.sh_addr + i * WRAPPER_SIZE + 8).collect();
    let targets = pointer::read(r, image, &words)?;

    let mut wrappers = Vec::with_capacity(targets.len());
    for (index, (entry, target)) in (0..).zip(bytes.chunks_exact(24).zip(targets)) {
        let at = u64::from(index) * WRAPPER_SIZE;
        let field = |name: &str| format!("{name} of wrapper {index}");
        let magic = match u32_at(entry, 0) {
            m if m == Magic::Hipf as u32 => Magic::Hipf,
            m if m == Magic::Hipk as u32 => Magic::Hipk,
            m => {
                let expected = "0x48495046 (HIPF) or 0x4b504948 (HIPK)";
                return Err(ElfError::field(field("magic"), start + at, m, expected));
            }
        };
        let version = u32_at(entry, 4);
        if version != 1 {
            return Err(ElfError::field(field("version"), start + at + 4, version, 1));
        }
        if magic == Magic::Hipf {
            let range = image.section(HIP_FATBIN).map_or(0..0, |s| s.memory_range());
            if !range.contains(&target.value) {
                let expected = format!("in {HIP_FATBIN}, {:#x} to {:#x}", range.start, range.end);
                let name = field("bundle address");
                return Err(ElfError::field(name, start + at + 8, target.value, expected));
            }
        }
        wrappers.push(Wrapper {
            index,
            vaddr: section.sh_addr + at,
            offset: start + at,
            magic,
            target,
            co_index: u32_at(entry, 16),
        });
    }
    Ok(wrappers)
}
