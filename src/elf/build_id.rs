//! The build id of a file: the note that ties debug symbols to the program they were taken out of.
//!
//! A note is `namesz`, `descsz`, `type` (4 bytes each), the name and the description, each padded to four
//! bytes. The build id is the description of the note of type 3 (`NT_GNU_BUILD_ID`) by `GNU\0`.
//!
//! A file of debug symbols keeps its notes, while its program headers may speak of bytes that were left
//! out: so only the section headers are believed. Source: gABI chapter 5; `elf.h`.

use super::image::{EHDR_SIZE, SHDR_SIZE, SHT_NOTE, Section, read_table};
use super::{ElfError, u16_at, u32_at, u64_at};
use crate::read_at::ReadAt;

const NT_GNU_BUILD_ID: u32 = 3;
/// Bytes of all notes that are looked at. They are small, the largest real ones have some kilobytes; section headers that
/// lie over one another could have the same ones read thousands of times.
const MAX_NOTES: u64 = 1 << 20;
/// SHA-512 and longer than any linker's.
const MAX_ID: usize = 64;

/// The build id of a 64-bit little-endian ELF file of any machine; `None` where the file is something
/// else or has none (or one of less than 2 or more than 64 bytes, which has no place in a debug tree). Fails where
/// the file cannot be read, or its section headers or notes lie outside it.
pub fn build_id(r: &dyn ReadAt) -> Result<Option<Vec<u8>>, ElfError> {
    if r.len() < EHDR_SIZE {
        return Ok(None);
    }
    let head = read_table(r, "the ELF header", 0, 1, EHDR_SIZE)?;
    if head[..4] != *b"\x7fELF" || head[4..6] != [2, 1] {
        return Ok(None);
    }
    let (shoff, size, count) = (u64_at(&head, 40), u16_at(&head, 58), u16_at(&head, 60));
    if shoff == 0 || count == 0 || u64::from(size) != SHDR_SIZE {
        return Ok(None);
    }
    let table = read_table(r, "the section header table", shoff, count.into(), SHDR_SIZE)?;
    let mut left = MAX_NOTES;
    for header in table.chunks_exact(64) {
        let section = Section::parse(header);
        if section.sh_type != SHT_NOTE || section.sh_size > left {
            continue;
        }
        left -= section.sh_size;
        let notes = read_table(r, "a section of notes", section.sh_offset, section.sh_size, 1)?;
        if let Some(id) = in_notes(&notes) {
            return Ok(Some(id.to_vec()));
        }
    }
    Ok(None)
}

fn in_notes(mut notes: &[u8]) -> Option<&[u8]> {
    while notes.len() >= 12 {
        let (name_size, size) = (u32_at(notes, 0) as usize, u32_at(notes, 4) as usize);
        let kind = u32_at(notes, 8);
        let rest = &notes[12..];
        let name = rest.get(..name_size)?;
        let rest = rest.get(name_size.next_multiple_of(4)..)?;
        let description = rest.get(..size)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && (2..=MAX_ID).contains(&size) {
            return Some(description);
        }
        notes = rest.get(size.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        note.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
        note.extend(u32::try_from(description.len()).unwrap().to_le_bytes());
        note.extend(kind.to_le_bytes());
        for part in [name, description] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let notes = [
            note(b"stapsdt\0", 3, b"x"),
            note(b"GNU\0", 5, b"abcde"),
            note(b"GNU\0", 3, b"1234567"),
        ];
        assert_eq!(in_notes(&notes.concat()), Some(&b"1234567"[..]));
    }

    #[test]
    fn notes_that_lie_end_the_search() {
        let mut long = note(b"GNU\0", 3, b"1234");
        long[4] = 200;
        assert_eq!(in_notes(&long), None);
        long[..4].fill(0xff);
        assert_eq!(in_notes(&long), None);
        assert_eq!(in_notes(&note(b"GNU\0", 3, b"1")), None);
        assert_eq!(in_notes(b"GNU"), None);
    }

    #[test]
    fn what_is_no_elf_file_has_none() {
        assert_eq!(build_id(&&b"#!/bin/sh\n"[..]).unwrap(), None);
        assert_eq!(build_id(&&[0; 200][..]).unwrap(), None);
        let mut elf = [0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[40..48].copy_from_slice(&[0xff; 8]);
        elf[58] = 64;
        elf[60] = 1;
        assert!(build_id(&&elf[..]).is_err());
    }
}
