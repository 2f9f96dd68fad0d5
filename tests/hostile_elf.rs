//! ELF files whose headers lie, each found by fuzzing (docs/fuzzing.md): refused, or converted into a
//! file that is sound.

#![allow(clippy::unwrap_used)]

mod common;

use std::error::Error;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use gfxpack::elf::{Kind, Needs, Piece, build_id, probe};
use gfxpack::fatbin::FatBinary;
use gfxpack::read_at::{ReadAt, read_vec};

const PROGRAM: &str =
    "gfx1151-build/blas_run_gfx1151/math-libs/BLAS/rocBLAS/stage/bin/rocblas-tool";
const MARKER: &[u8] = b"\x82\xb2kpack_search_paths\x91\xa1k\xabkernel_name\xa1n";

/// An error with all its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A good file, to be changed.
struct File(Vec<u8>);

impl File {
    fn read(path: &str) -> Self {
        Self(fs::read(common::example_shards().join(path)).unwrap())
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    fn set(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Where the header of a section is.
    fn section(&self, name: &str) -> usize {
        let Kind::Program(image) = probe(&self.0).unwrap() else { panic!("no program") };
        let index = image.sections.iter().position(|s| s.name == name).unwrap();
        usize::try_from(image.e_shoff).unwrap() + index * 64
    }

    /// Where the value of a dynamic entry is.
    fn dynamic(&self, tag: u64) -> usize {
        let header = self.section(".dynamic");
        let start = usize::try_from(self.word(header + 24)).unwrap();
        (start..).step_by(16).find(|&at| self.word(at) == tag).unwrap() + 8
    }

    /// The converted file, or why there is none, with all causes.
    fn convert(&self) -> Result<Vec<u8>, String> {
        let Kind::Program(image) = probe(&self.0).map_err(|e| chain(&e))? else {
            return Err("no program".into());
        };
        let fat = FatBinary::read(&self.0, image).map_err(|e| chain(&e))?;
        let conversion = fat.convert(&self.0, MARKER).map_err(|e| chain(&e))?;
        let mut out = Vec::new();
        for piece in &conversion.pieces {
            match piece {
                Piece::Bytes(bytes) => out.extend(bytes),
                Piece::Input { offset, len } => {
                    out.extend(read_vec(&self.0, *offset, *len).unwrap());
                }
            }
        }
        Ok(out)
    }
}

#[test]
fn the_files_are_good_before_they_are_changed() {
    File::read(PROGRAM).convert().unwrap();
}

/// Relocations that stand in the device code would be gone with it.
#[test]
fn dynamic_tables_in_the_device_code_are_refused() {
    let mut file = File::read(PROGRAM);
    let code = file.word(file.section(".hip_fatbin") + 16);
    for (tag, name) in [(7, "0x7"), (5, "0x5"), (25, "0x19")] {
        let at = file.dynamic(tag);
        let good = file.word(at);
        file.set(at, code + 0x40);
        let error = file.convert().unwrap_err();
        assert!(error.contains(&format!("tag {name} points at overlaps .hip_fatbin")), "{error}");
        file.set(at, good);
    }
}

/// Each of thousands of symbol tables over the same bytes would be rewritten.
#[test]
fn overlapping_symbol_tables_are_not_each_rewritten() {
    let mut file = File::read(PROGRAM);
    let header = usize::try_from(file.word(40)).unwrap();
    let count = usize::from(u16::from_le_bytes([file.0[60], file.0[61]]));
    let mut table = file.0[header..header + count * 64].to_vec();
    // SHT_SYMTAB, over a thousand symbols behind everything.
    let mut symbols = [0; 64];
    symbols[4] = 2;
    symbols[24..32].copy_from_slice(&(file.0.len() as u64).to_le_bytes());
    symbols[32..40].copy_from_slice(&24_000u64.to_le_bytes());
    file.0.resize(file.0.len() + 24_000, 0);
    let more = 60_000;
    table.extend(symbols.repeat(more));
    file.0.resize(file.0.len().next_multiple_of(8), 0);
    file.set(40, file.0.len() as u64);
    file.0.extend(table);
    file.0[60..62].copy_from_slice(&u16::try_from(count + more).unwrap().to_le_bytes());
    let error = file.convert().unwrap_err();
    assert!(error.contains("sh_size of all symbol tables"), "{error}");
}

/// Bytes that count how many of them were read.
struct Counted(Vec<u8>, AtomicU64);

impl ReadAt for Counted {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.0.read_exact_at(buf, offset)
    }
}

/// Each of thousands of sections over the same notes would be read for the build id.
#[test]
fn overlapping_notes_are_not_each_read() {
    const NOTES: usize = 1 << 16;
    let file = |sections: u16| {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[40..48].copy_from_slice(&(64 + NOTES as u64).to_le_bytes());
        file[58..62].copy_from_slice(&[64, 0, 0, 0]);
        file[60..62].copy_from_slice(&sections.to_le_bytes());
        // Notes without a name or description.
        file.resize(64 + NOTES, 0);
        let mut section = [0; 64];
        section[4] = 7;
        section[24..32].copy_from_slice(&64u64.to_le_bytes());
        section[32..40].copy_from_slice(&(NOTES as u64).to_le_bytes());
        file.extend(section.repeat(sections.into()));
        Counted(file, AtomicU64::new(0))
    };
    let all = file(60_000);
    assert_eq!(build_id(&all).unwrap(), None);
    assert!(all.1.load(Ordering::Relaxed) < all.len() + (2 << 20));
}

/// What the file asks of the loader, or why that cannot be told.
fn needs(file: &File) -> Result<Needs, String> {
    match probe(&file.0).map_err(|e| chain(&e))? {
        Kind::Program(image) => Needs::read(&file.0, &image).map_err(|e| chain(&e)),
        _ => Err("no program".into()),
    }
}

/// DT_VERNEED, DT_VERNEEDNUM, DT_STRSZ, DT_SYMTAB, DT_VERSYM.
const OF_NEEDS: [u64; 5] = [0x6fff_fffe, 0x6fff_ffff, 10, 6, 0x6fff_fff0];

#[test]
fn tables_of_what_a_file_needs_can_lie() {
    let good = File::read(PROGRAM);
    let all = needs(&good).unwrap();
    assert!(!all.needed.is_empty() && !all.versions_needed.is_empty());
    assert!(all.undefined.iter().any(|symbol| symbol.version.is_some()), "{all:?}");
    for tag in OF_NEEDS {
        for value in [u64::MAX, 1 << 40] {
            let mut bad = File(good.0.clone());
            let at = bad.dynamic(tag);
            bad.set(at, value);
            let told = needs(&bad).unwrap_err();
            assert!(told.contains(" at 0x") || told.contains("expected"), "{tag:#x}: {told}");
        }
    }
    // Each byte of the version table: whatever it says then, it ends.
    let table = good.section(".gnu.version_r");
    let start = usize::try_from(good.word(table + 24)).unwrap();
    let size = usize::try_from(good.word(table + 32)).unwrap();
    let mut refused = 0;
    for at in start..start + size {
        for byte in [0, 0x7f, 0xff] {
            let mut bad = File(good.0.clone());
            bad.0[at] = byte;
            refused += usize::from(needs(&bad).is_err());
        }
    }
    assert!(refused > 0);
}
