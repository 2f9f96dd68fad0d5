//! The address that a word of a program will hold once the loader is done with it.
//!
//! | file | the word's value |
//! |---|---|
//! | ET_EXEC, no relocation on the word | what is stored |
//! | `R_X86_64_RELATIVE` | the addend; what is stored may be 0 or the same |
//! | `R_X86_64_64` against a symbol | `st_value` + addend |
//! | DT_RELR | what is stored |
//!
//! All values are addresses of the file, before the load base is added. Relocation tables are read
//! in blocks through DT_RELA and DT_RELR, as the loader does, so section headers cannot mislead.
//! Source: psABI for x86-64, "Relocation"; gABI, "Relative Relocation Table".

use super::dynamic::{DT_RELA, DT_RELAENT, DT_RELASZ, DT_RELR, DT_RELRSZ, DT_SYMTAB, Dynamic};
use super::image::{ET_EXEC, Image, SHN_ABS, read_table};
use super::{ElfError, u16_at, u32_at, u64_at};
use crate::read_at::ReadAt;
use std::ops::Range;

pub(crate) const RELA_SIZE: u64 = 24;
pub(crate) const R_X86_64_RELATIVE: u32 = 8;
const R_X86_64_64: u32 = 1;
const SYM_SIZE: u64 = 24;
/// Entries read at once: a few hundred KiB.
const BLOCK: u64 = 1 << 14;
const BLOCK_STEP: usize = 1 << 14;

/// What makes the address in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fixup {
    /// Nothing: what is stored counts.
    Stored,
    /// A packed relocation: what is stored, moved by the load base.
    Relr,
    /// `R_X86_64_RELATIVE`.
    Relative {
        /// File offset of the relocation.
        rela: u64,
    },
    /// `R_X86_64_64` against a symbol of the file itself.
    Symbol {
        /// File offset of the relocation.
        rela: u64,
        /// Its place in the table at DT_RELA.
        index: u64,
    },
}

/// A word that holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// Address of the word.
    pub vaddr: u64,
    /// Where the word is in the file.
    pub offset: u64,
    /// What the file has there.
    pub stored: u64,
    /// The address it will hold.
    pub value: u64,
    /// What makes it so.
    pub fixup: Fixup,
}

/// Reads the words at these addresses. Fails where one is not in the file, where nothing gives it an
/// address, where several relocations or one of another type are on it, or where the tables lie.
pub fn read(r: &dyn ReadAt, image: &Image, vaddrs: &[u64]) -> Result<Vec<Pointer>, ElfError> {
    let mut pointers = Vec::with_capacity(vaddrs.len());
    for &vaddr in vaddrs {
        let offset = image.offset_of(vaddr, 8).ok_or_else(|| {
            ElfError::outside("the word", vaddr, 8, "what the segments map from the file", 0)
        })?;
        let word = read_table(r, "a word", offset, 1, 8)?;
        let stored = u64_at(&word, 0);
        let fixup = Fixup::Stored;
        pointers.push(Pointer { vaddr, offset, stored, value: stored, fixup });
    }
    // Sorted places into `pointers`, to look relocated addresses up.
    let mut order: Vec<usize> = (0..pointers.len()).collect();
    order.sort_by_key(|&i| vaddrs[i]);
    let find = |vaddr: u64| {
        let at = order.binary_search_by_key(&vaddr, |&i| vaddrs[i]).ok()?;
        Some(order[at])
    };

    let dynamic = Dynamic::read_entries(r, image)?;
    read_rela(r, image, &dynamic, find, &mut pointers)?;
    read_relr(r, image, &dynamic, find, &mut pointers)?;
    if image.e_type != ET_EXEC
        && let Some(bare) = pointers.iter().find(|p| p.fixup == Fixup::Stored)
    {
        let what = format!("relocation for the address in the word at {:#x}", bare.vaddr);
        return Err(ElfError::Missing(what));
    }
    Ok(pointers)
}

/// Whether DT_RELA or DT_RELR has the loader write to a word that has some of these addresses.
pub(crate) fn any_in(r: &dyn ReadAt, image: &Image, range: &Range<u64>) -> Result<bool, ElfError> {
    let dynamic = Dynamic::read_entries(r, image)?;
    let mut any = false;
    let mut look = |vaddr: u64| any |= vaddr < range.end && range.start < vaddr.saturating_add(8);
    for_each_rela(r, image, &dynamic, |_, _, entry| {
        look(u64_at(entry, 0));
        Ok(())
    })?;
    for_each_relr(r, image, &dynamic, |vaddr, _, _| {
        look(vaddr);
        Ok(())
    })?;
    Ok(any)
}

/// Gives `visit` each entry of DT_RELA, with its place in the table and its file offset.
fn for_each_rela(
    r: &dyn ReadAt,
    image: &Image,
    dynamic: &Dynamic,
    mut visit: impl FnMut(u64, u64, &[u8]) -> Result<(), ElfError>,
) -> Result<(), ElfError> {
    let Some((table, size)) = table(image, dynamic, "DT_RELA", DT_RELA, DT_RELASZ)? else {
        return Ok(());
    };
    if let Some(entry) = dynamic.get(DT_RELAENT)
        && entry != RELA_SIZE
    {
        return Err(ElfError::field("DT_RELAENT", dynamic.offset, entry, RELA_SIZE));
    }
    let count = size / RELA_SIZE;
    for first in (0..count).step_by(BLOCK_STEP) {
        let at = table + first * RELA_SIZE;
        let block = read_table(r, "relocations", at, BLOCK.min(count - first), RELA_SIZE)?;
        for (index, entry) in (first..).zip(block.chunks_exact(24)) {
            visit(index, table + index * RELA_SIZE, entry)?;
        }
    }
    Ok(())
}

fn read_rela(
    r: &dyn ReadAt,
    image: &Image,
    dynamic: &Dynamic,
    find: impl Fn(u64) -> Option<usize>,
    pointers: &mut [Pointer],
) -> Result<(), ElfError> {
    for_each_rela(r, image, dynamic, |index, rela, entry| {
        let Some(found) = find(u64_at(entry, 0)) else { return Ok(()) };
        let pointer = &mut pointers[found];
        if pointer.fixup != Fixup::Stored {
            let found = format!("a second relocation on the word at {:#x}", pointer.vaddr);
            let expected = "one".to_owned();
            return Err(ElfError::Field {
                field: "r_offset".into(),
                offset: rela,
                found,
                expected,
            });
        }
        let addend = u64_at(entry, 16);
        let (kind, symbol) = (u32_at(entry, 8), u32_at(entry, 12));
        (pointer.value, pointer.fixup) = match kind {
            R_X86_64_RELATIVE => (addend, Fixup::Relative { rela }),
            R_X86_64_64 => {
                let value = symbol_value(r, image, dynamic, symbol, rela)?;
                (value.wrapping_add(addend), Fixup::Symbol { rela, index })
            }
            _ => {
                let expected = "R_X86_64_RELATIVE or R_X86_64_64";
                return Err(ElfError::field("r_info type", rela + 8, kind, expected));
            }
        };
        Ok(())
    })
}

fn symbol_value(
    r: &dyn ReadAt,
    image: &Image,
    dynamic: &Dynamic,
    symbol: u32,
    rela: u64,
) -> Result<u64, ElfError> {
    if symbol == 0 {
        return Ok(0);
    }
    let table = dynamic.get(DT_SYMTAB).ok_or_else(|| ElfError::Missing("DT_SYMTAB".into()))?;
    let vaddr = table.checked_add(u64::from(symbol) * SYM_SIZE);
    let offset = vaddr.and_then(|vaddr| image.offset_of(vaddr, SYM_SIZE)).ok_or_else(|| {
        let expected = "a symbol in what the segments map from the file";
        ElfError::field("r_info symbol", rela + 8, symbol, expected)
    })?;
    let entry = read_table(r, "a symbol", offset, 1, SYM_SIZE)?;
    let st_shndx = u16_at(&entry, 6);
    if st_shndx == 0 || st_shndx == SHN_ABS {
        let field = format!("st_shndx of symbol {symbol}");
        return Err(ElfError::field(field, offset + 6, st_shndx, "a section of this file"));
    }
    Ok(u64_at(&entry, 8))
}

/// Gives `visit` each word that DT_RELR is for, with the file offset of the entry and what that is.
///
/// An entry is an address when its lowest bit is 0: the word there, and the next word is where the
/// bit maps that follow begin; else a map of the next 63 words.
fn for_each_relr(
    r: &dyn ReadAt,
    image: &Image,
    dynamic: &Dynamic,
    mut visit: impl FnMut(u64, u64, u64) -> Result<(), ElfError>,
) -> Result<(), ElfError> {
    let Some((table, size)) = table(image, dynamic, "DT_RELR", DT_RELR, DT_RELRSZ)? else {
        return Ok(());
    };
    let count = size / 8;
    let mut next = 0u64;
    for first in (0..count).step_by(BLOCK_STEP) {
        let at = table + first * 8;
        let block = read_table(r, "packed relocations", at, BLOCK.min(count - first), 8)?;
        for (i, entry) in block.chunks_exact(8).enumerate() {
            let (at, entry) = (at + i as u64 * 8, u64_at(entry, 0));
            if entry & 1 == 0 {
                visit(entry, at, entry)?;
                next = entry.wrapping_add(8);
            } else {
                for bit in (0..63).filter(|bit| entry >> (bit + 1) & 1 == 1) {
                    visit(next.wrapping_add(bit * 8), at, entry)?;
                }
                next = next.wrapping_add(63 * 8);
            }
        }
    }
    Ok(())
}

fn read_relr(
    r: &dyn ReadAt,
    image: &Image,
    dynamic: &Dynamic,
    find: impl Fn(u64) -> Option<usize>,
    pointers: &mut [Pointer],
) -> Result<(), ElfError> {
    for_each_relr(r, image, dynamic, |vaddr, at, entry| {
        let Some(found) = find(vaddr) else { return Ok(()) };
        if pointers[found].fixup != Fixup::Stored {
            let expected = format!("no second relocation on the word at {vaddr:#x}");
            return Err(ElfError::field("packed relocation", at, entry, expected));
        }
        pointers[found].fixup = Fixup::Relr;
        Ok(())
    })
}

/// File offset and size of a table that two entries of the dynamic section describe.
fn table(
    image: &Image,
    dynamic: &Dynamic,
    what: &str,
    address: u64,
    size: u64,
) -> Result<Option<(u64, u64)>, ElfError> {
    let Some(vaddr) = dynamic.get(address) else { return Ok(None) };
    let size = dynamic.get(size).ok_or_else(|| ElfError::Missing(format!("size to {what}")))?;
    if size == 0 {
        return Ok(None);
    }
    let offset = image.offset_of(vaddr, size).ok_or_else(|| {
        ElfError::outside(what, vaddr, size, "what the segments map from the file", 0)
    })?;
    Ok(Some((offset, size)))
}
