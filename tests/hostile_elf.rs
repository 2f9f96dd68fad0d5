//! ELF files whose headers lie, each found by fuzzing (docs/fuzzing.md): refused, or converted into a
//! file that is sound.

#![allow(clippy::unwrap_used)]

mod common;

use std::error::Error;
use std::fs;

use gfxpack::elf::{Kind, Piece, probe};
use gfxpack::fatbin::FatBinary;
use gfxpack::read_at::read_vec;

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
