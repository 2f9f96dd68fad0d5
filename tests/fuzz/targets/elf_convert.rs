//! Taking the device code out of an ELF file. The input is either such a file, or a list of changes to
//! the headers of a good one, which gets much further than changed bytes do:
//!
//! ```text
//! u8 which file · n × { u8 what · u8 which · u8 field · u8 how · u64 value }
//! ```

#![no_main]

use std::ops::Range;

use gfxpack::elf::image::{HIP_FATBIN, HIP_FATBIN_SEGMENT, KPACK_REF};
use gfxpack::elf::pointer::Fixup;
use gfxpack::elf::{Image, Kind, Piece, State, marker, probe, problems};
use gfxpack::fatbin::FatBinary;
use gfxpack::fatbin::wrapper::{self, Magic};
use gfxpack_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

macro_rules! shards {
    ($($file:literal)*) => {
        &[$(include_bytes!(concat!("../../../examples/shards/", $file))),*]
    };
}
/// A library with compressed bundles, one with one bundle for two wrappers, and both kinds of program.
const FILES: &[&[u8]] = shards!(
    "gfx1151-build/blas_lib_gfx1151/math-libs/BLAS/hipBLASLt/stage/lib/libhipblaslt.so.0.9"
    "gfx1151-build/fft_lib_gfx1151/math-libs/rocFFT/stage/lib/librocfft.so.0.1"
    "gfx1151-build/blas_run_gfx1151/math-libs/BLAS/rocBLAS/stage/bin/rocblas-tool"
    "gfx1151-build/blas_run_gfx1151/math-libs/BLAS/rocBLAS/stage/bin/rocblas-bench"
);
/// Several bundles, with pages between them to win.
const LARGE: &[u8] = include_bytes!(
    "../../../examples/shards/gfx1151-build/blas_lib_gfx1151/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2"
);

const MARKER: &[u8] = b"\x82\xb2kpack_search_paths\x91\xa1k\xabkernel_name\xa1n";

fuzz_target!(|data: &[u8]| {
    let changed;
    let file = if data.starts_with(b"\x7fELF") {
        data
    } else {
        let Some(bytes) = change(data) else { return };
        changed = bytes;
        &changed
    };
    // Device code is not held; everything else can be, in several forms.
    bounded(file, 4 << 20, 64, || check(file));
});

fn check(file: &[u8]) {
    let Ok(Kind::Program(image)) = probe(&file) else { return };
    let before = problems(&file, &image);
    let _ = marker(&file, &image);
    let was_fat = image.state() == State::Fat;
    let Ok(fat) = FatBinary::read(&file, image) else { return };
    for (wrapper, bundle) in fat.wrappers() {
        assert_eq!(fat.image().offset_of(wrapper.address(), 1), Some(bundle.offset));
        assert!(bundle.offset + bundle.total_size <= file.len() as u64);
    }
    let conversion = fat.convert(&file, MARKER);
    assert!(conversion.is_ok() || !FILES.contains(&file) && file != LARGE);
    let Ok(conversion) = conversion else { return };
    assert!(was_fat);

    let len: u64 = conversion.pieces.iter().map(Piece::len).sum();
    assert_eq!(len, conversion.len);
    let mut out = Vec::new();
    for piece in &conversion.pieces {
        match piece {
            Piece::Input { offset, len } => {
                let start = usize::try_from(*offset).expect("inside the input");
                let len = usize::try_from(*len).expect("inside the input");
                assert!(len > 0);
                out.extend(&file[start..][..len]);
            }
            Piece::Bytes(bytes) => out.extend(bytes),
        }
    }

    let Ok(Kind::Program(new)) = probe(&out) else { panic!("the new file has damaged headers") };
    assert_eq!(new.state(), State::Converted);
    let wrappers = wrapper::read(&out, &new).expect("the wrappers of the new file");
    assert_eq!(wrappers.len(), fat.wrappers().count());
    for (new, (old, _)) in wrappers.iter().zip(fat.wrappers()) {
        assert_eq!(new.magic, Magic::Hipk);
        assert_eq!(new.vaddr, old.vaddr);
        assert_eq!(new.co_index, old.index);
        assert_eq!(new.address(), conversion.marker_vaddr);
    }
    let found = marker(&out, &new).expect("the marker of the new file");
    assert_eq!((found.vaddr, found.bytes.as_slice()), (conversion.marker_vaddr, MARKER));
    // Of the input's, only a damaged dynamic section does not keep it from being converted.
    let after = problems(&out, &new);
    assert!(after.len() <= before.len(), "{before:?}, and then {after:?}");
    same_memory(file, &fat, &out, &new);
}

/// Code and data have to keep their addresses and bytes.
fn same_memory(file: &[u8], fat: &FatBinary, out: &[u8], new: &Image) {
    let image = fat.image();
    let changes = places_that_change(fat);
    for section in &image.sections {
        let range = section.file_range();
        let free = changes.iter().all(|c| c.end <= range.start || range.end <= c.start);
        let named = [HIP_FATBIN, HIP_FATBIN_SEGMENT, KPACK_REF].contains(&section.name.as_str());
        if section.sh_type != 1 || !section.is_alloc() || range.is_empty() || !free || named {
            continue;
        }
        let Some(old_at) = image.offset_of(section.sh_addr, section.sh_size) else { continue };
        if old_at != section.sh_offset {
            continue;
        }
        let new_at = new.offset_of(section.sh_addr, section.sh_size);
        let new_at = new_at.unwrap_or_else(|| panic!("{} is not mapped", section.name));
        let slice = |bytes: &[u8], at: u64| {
            bytes[usize::try_from(at).expect("mapped")..][..(range.end - range.start) as usize]
                .to_vec()
        };
        assert!(slice(file, old_at) == slice(out, new_at), "bytes of {} differ", section.name);
    }
}

/// Where the file may be changed: everything that headers lead to, and what the loader writes.
fn places_that_change(fat: &FatBinary) -> Vec<Range<u64>> {
    let image = fat.image();
    let phdrs = image.e_phoff..image.e_phoff + (image.segments.len() as u64 + 1) * 56;
    let shdrs = image.e_shoff..image.e_shoff + image.sections.len() as u64 * 64;
    let mut ranges = vec![0..64, phdrs, shdrs];
    // PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_GNU_PROPERTY.
    let moved = image.segments.iter().filter(|s| matches!(s.p_type, 2..=4 | 0x6474_e553));
    ranges.extend(moved.map(|s| s.file_range()));
    ranges.extend(
        image
            .sections
            .iter()
            .enumerate()
            .filter(|(i, s)| {
                let names = *i == image.e_shstrndx as usize;
                names || s.sh_type != 1 || s.name == HIP_FATBIN || s.name == HIP_FATBIN_SEGMENT
            })
            .filter(|(_, s)| s.sh_type != 0)
            .map(|(_, s)| s.file_range()),
    );
    for (wrapper, _) in fat.wrappers() {
        match wrapper.target.fixup {
            Fixup::Relative { rela } => ranges.push(rela..rela + 24),
            Fixup::Symbol { rela, index } => ranges.push(rela - index * 24..rela + 24),
            Fixup::Stored | Fixup::Relr => {}
        }
    }

    ranges
}

fn change(data: &[u8]) -> Option<Vec<u8>> {
    let (&which, changes) = data.split_first()?;
    let which = usize::from(which) % (FILES.len() + 1);
    let mut file = FILES.get(which).copied().unwrap_or(LARGE).to_vec();
    let good = file.clone();
    let word = |at: usize| u64::from_le_bytes(good[at..at + 8].try_into().expect("8 bytes"));
    let (phoff, shoff) = (word(32) as usize, word(40) as usize);
    let (phnum, shnum) = (word(56) as u16 as usize, (word(56) >> 32) as u16 as usize);
    let place = |name: &[u8]| {
        // The places of a few tables in the good file, by the type or name of their section.
        let names = word(shoff + 64 * (word(56) >> 48) as usize + 24) as usize;
        (0..shnum)
            .map(|i| shoff + 64 * i)
            .find(|&at| {
                let name_at = names + word(at) as u32 as usize;
                good[name_at..].starts_with(name) && good[name_at + name.len()] == 0
            })
            .map(|at| (word(at + 24) as usize, word(at + 32) as usize))
    };
    for change in changes.chunks_exact(12).take(16) {
        let &[what, index, field, how, ..] = change else { return None };
        let value = u64::from_le_bytes(change[4..].try_into().expect("8 bytes"));
        let (index, field) = (usize::from(index), usize::from(field));
        let table = |name: &[u8], entry: usize| {
            let (at, size) = place(name)?;
            Some((at + index % (size / entry).max(1) * entry + field * 8 % entry, 8))
        };
        const EHDR: &[(usize, usize)] =
            &[(16, 2), (32, 8), (40, 8), (54, 2), (56, 2), (58, 2), (60, 2), (62, 2)];
        const PHDR: &[(usize, usize)] =
            &[(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8)];
        const SHDR: &[(usize, usize)] = &[
            (0, 4),
            (4, 4),
            (8, 8),
            (16, 8),
            (24, 8),
            (32, 8),
            (40, 4),
            (44, 4),
            (48, 8),
            (56, 8),
        ];
        let found = match what % 8 {
            0 => Some(EHDR[field % EHDR.len()]),
            1 => {
                let (at, len) = PHDR[field % PHDR.len()];
                Some((phoff + index % phnum * 56 + at, len))
            }
            2 => {
                let (at, len) = SHDR[field % SHDR.len()];
                Some((shoff + index % shnum * 64 + at, len))
            }
            3 => table(b".dynamic", 16),
            4 => table(b".hipFatBinSegment", 24),
            5 => table(b".rela.dyn", 24),
            6 => table(b".dynsym", 24),
            _ => Some((value as usize % (good.len() - 8), 2)),
        };
        let Some((at, len)) = found else { continue };
        let mut old = [0; 8];
        old[..len].copy_from_slice(&file[at..at + len]);
        let old = u64::from_le_bytes(old);
        let new = match how % 5 {
            0 => value,
            1 => old.wrapping_add(value as i16 as u64),
            2 => old.wrapping_add((value as i16 as u64).wrapping_mul(4096)),
            3 => 1u64 << (value % 64),
            // The same field of another entry, or another field.
            _ => {
                let other =
                    (at as i64 + i64::from(value as i8) * 8).clamp(0, good.len() as i64 - 8);
                word(other as usize)
            }
        };
        let new = if what % 8 == 7 { value >> 32 } else { new };
        file[at..at + len].copy_from_slice(&new.to_le_bytes()[..len]);
    }
    Some(file)
}
