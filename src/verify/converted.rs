//! Comparing a converted binary with the fat one that it was made from, independently of how it was
//! made: section by section.
//!
//! Conversion may change the device code's section, the wrappers with their relocations, and the
//! places of the small tables behind the program headers, with what says where they are. All else
//! must be the same, at the same address.

use std::collections::BTreeMap;

use super::finding::chain;
use crate::elf::image::{HIP_FATBIN, HIP_FATBIN_SEGMENT, KPACK_REF, Section};
use crate::elf::{Dynamic, Image};
use crate::read_at::{ReadAt, read_vec};

const SHT_SYMTAB: u32 = 2;
const SHT_RELA: u32 = 4;
const SHT_DYNAMIC: u32 = 6;
const SHT_DYNSYM: u32 = 11;

/// What is compared at a time: whole entries of 16 and of 24 bytes.
const CHUNK: u64 = 48 * 1024;

/// What differs that may not; `None` where nothing does.
pub(super) fn difference(fat: &dyn ReadAt, converted: &dyn ReadAt) -> Option<String> {
    let image = match Image::read(converted) {
        Ok(image) => image,
        // Said by the check of the file itself.
        Err(_) => return None,
    };
    let original = match Image::read(fat) {
        Ok(image) => image,
        Err(e) => return Some(format!("the input cannot be read: {}", chain(&e))),
    };
    let theirs = by_name(&image);
    for ((name, nth), section) in by_name(&original) {
        let Some(there) = theirs.get(&(name, nth)) else {
            return Some(format!("the section {name} is gone"));
        };
        let pair = Pair { fat, original: &original, converted, section, there };
        if let Some(how) = pair.difference() {
            return Some(format!("the section {name} {how}"));
        }
    }
    let ours = by_name(&original);
    let extra = theirs.keys().find(|key| !ours.contains_key(*key) && key.0 != KPACK_REF);
    if let Some((name, _)) = extra {
        return Some(format!("has a section {name}, which the input does not have"));
    }
    if original.e_type != image.e_type {
        return Some(format!("e_type is {}, in the input {}", image.e_type, original.e_type));
    }
    let names = |image, r| {
        let dynamic = Dynamic::read(r, image).unwrap_or_default();
        (dynamic.soname, dynamic.needed, dynamic.rpath, dynamic.runpath)
    };
    (names(&original, fat) != names(&image, converted))
        .then(|| "SONAME, NEEDED or RUNPATH are not those of the input".into())
}

/// Sections by name and, of one name, by order; without the null section.
fn by_name(image: &Image) -> BTreeMap<(&str, usize), &Section> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let sections = image.sections.iter().filter(|section| section.sh_type != 0);
    sections
        .map(|section| {
            let nth = counts.entry(&section.name).or_default();
            *nth += 1;
            ((section.name.as_str(), *nth), section)
        })
        .collect()
}

/// A section in both files.
struct Pair<'a> {
    fat: &'a dyn ReadAt,
    original: &'a Image,
    converted: &'a dyn ReadAt,
    section: &'a Section,
    there: &'a Section,
}

impl Pair<'_> {
    fn difference(&self) -> Option<String> {
        let (a, b) = (self.section, self.there);
        let name = a.name.as_str();
        if name == HIP_FATBIN || name == ".shstrtab" {
            return None;
        }
        if a.sh_type != b.sh_type || a.sh_flags != b.sh_flags {
            return Some("has another type or other flags".into());
        }
        if a.sh_size != b.sh_size && a.sh_type != SHT_SYMTAB {
            return Some(format!("has {:#x} bytes, in the input {:#x}", b.sh_size, a.sh_size));
        }
        if a.is_alloc() && a.sh_addr != b.sh_addr && !may_move(a) {
            return Some(format!("is at {:#x}, in the input at {:#x}", b.sh_addr, a.sh_addr));
        }
        match a.sh_type {
            _ if name == HIP_FATBIN_SEGMENT => None,
            _ if a.file_range().is_empty() => None,
            SHT_RELA => self.relocations(),
            SHT_DYNAMIC => self.dynamic(),
            SHT_DYNSYM | SHT_SYMTAB => self.symbols(),
            _ => self.bytes(),
        }
    }

    fn bytes(&self) -> Option<String> {
        self.chunks(|at, a, b| {
            let i = a.iter().zip(b).position(|(a, b)| a != b)?;
            Some(format!("differs from its byte {:#x} on", at + i as u64))
        })
    }

    /// Hands the bytes that both have to `compare` piece by piece, with the place in the section;
    /// stops at the first difference.
    fn chunks(
        &self,
        mut compare: impl FnMut(u64, &[u8], &[u8]) -> Option<String>,
    ) -> Option<String> {
        let size = self.section.sh_size.min(self.there.sh_size);
        let mut at = 0;
        while at < size {
            let n = CHUNK.min(size - at);
            let a = read_vec(self.fat, self.section.sh_offset + at, n);
            let b = read_vec(self.converted, self.there.sh_offset + at, n);
            let (Ok(a), Ok(b)) = (a, b) else { return Some("cannot be read".into()) };
            if let Some(how) = compare(at, &a, &b) {
                return Some(how);
            }
            at += n;
        }
        None
    }

    /// All relocations but those of the wrappers, in any order: sums of their hashes are compared.
    fn relocations(&self) -> Option<String> {
        let wrappers = self
            .original
            .section(HIP_FATBIN_SEGMENT)
            .map_or(0..0, |section| section.memory_range());
        let sum = |table: &[u8]| {
            let entries = table.chunks_exact(24);
            let others = entries.filter(|entry| !wrappers.contains(&word(entry, 0)));
            others.fold(0u128, |sum, entry| {
                let mut half = [0; 16];
                half.copy_from_slice(&blake3::hash(entry).as_bytes()[..16]);
                sum.wrapping_add(u128::from_le_bytes(half))
            })
        };
        let (mut ours, mut theirs) = (0u128, 0u128);
        let unread = self.chunks(|_, a, b| {
            ours = ours.wrapping_add(sum(a));
            theirs = theirs.wrapping_add(sum(b));
            None
        });
        let differ = ours != theirs;
        unread.or(differ.then(|| "has other relocations than those of the wrappers changed".into()))
    }

    fn dynamic(&self) -> Option<String> {
        // DT_HASH, DT_SYMTAB, DT_GNU_HASH say where moved tables are; DT_RELACOUNT counts what the
        // wrappers' relocations became. Whether they are right is a check of every file.
        const CHANGED: [u64; 4] = [4, 6, 0x6fff_fef5, 0x6fff_fff9];
        self.chunks(|at, a, b| {
            let mut pairs = a.chunks_exact(16).zip(b.chunks_exact(16));
            let i = pairs.position(|(a, b)| {
                a != b && (a[..8] != b[..8] || !CHANGED.contains(&word(a, 0)))
            })?;
            Some(format!("has another entry {}", at / 16 + i as u64))
        })
    }

    /// Symbols: names, kinds, sizes; values too, where their section did not move.
    fn symbols(&self) -> Option<String> {
        if self.there.sh_size < self.section.sh_size {
            return Some("has fewer symbols".into());
        }
        self.chunks(|at, a, b| {
            let mut pairs = a.chunks_exact(24).zip(b.chunks_exact(24));
            let i = pairs.position(|(a, b)| {
                let index = usize::from(u16::from_le_bytes([a[6], a[7]]));
                let moved = self
                    .original
                    .sections
                    .get(index)
                    .is_some_and(|section| may_move(section) || section.name == HIP_FATBIN);
                a[..6] != b[..6] || a[16..] != b[16..] || !moved && a[8..16] != b[8..16]
            })?;
            Some(format!("has another symbol {}", at / 24 + i as u64))
        })
    }
}

/// What may be moved to make room behind the program headers: nothing reaches it but headers and the
/// dynamic section.
fn may_move(section: &Section) -> bool {
    let name = section.name.as_str();
    name.starts_with(".note") || matches!(name, ".interp" | ".gnu.hash" | ".hash" | ".dynsym")
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.iter().skip(at).take(8).rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
