//! A small fat library for the unit tests, made by hand so that every field can be made to lie.
//!
//! ```text
//! 0x0000  Ehdr, 4 Phdrs, .note, .dynsym, .rela.dyn        LOAD R  0x0000
//! 0x1000  .hip_fatbin, then .tail
//!         .dynamic, .hipFatBinSegment                     LOAD RW
//!         .shstrtab, section headers
//! ```

use super::image::{PHDR_SIZE, Section, Segment};
use super::pointer::{R_X86_64_RELATIVE, RELA_SIZE};
use crate::read_at::ReadAt;
use std::io;

pub(crate) const CODE: u64 = 0x1000;
const TAIL: u64 = 0x20;

/// How the second wrapper's address is given.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Second {
    Relative,
    Symbol,
    Nothing,
}

/// A file with device code of `code` bytes that are not stored: they read as `0xcc`.
pub(crate) struct Library {
    head: Vec<u8>,
    code: u64,
    tail: Vec<u8>,
}

impl ReadAt for Library {
    fn len(&self) -> u64 {
        CODE + self.code + self.tail.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset + buf.len() as u64 > self.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (at, byte) in (offset..).zip(buf) {
            *byte = if at < CODE {
                self.head[at as usize]
            } else if at < CODE + self.code {
                0xcc
            } else {
                self.tail[(at - CODE - self.code) as usize]
            };
        }
        Ok(())
    }
}

impl Library {
    /// All bytes of a small one.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        crate::read_at::read_vec(self, 0, self.len()).unwrap()
    }

    /// Where the second segment begins.
    fn data(code: u64) -> u64 {
        (CODE + code + TAIL).next_multiple_of(0x1000)
    }

    pub(crate) fn new(code: u64, second: Second) -> Self {
        let note = 64 + 4 * PHDR_SIZE;
        let dynsym = note + 36;
        let (symbols, relocations) = (2, 2);
        let rela = (dynsym + symbols * 24).next_multiple_of(8);
        let data = Self::data(code);
        let (dynamic_len, wrappers) = (6 * 16, data + 6 * 16);
        let names = wrappers + 48;
        let name_bytes =
            b"\0.note\0.dynsym\0.rela.dyn\0.hip_fatbin\0.tail\0.dynamic\0.hipFatBinSegment\0.shstrtab\0";
        let e_shoff = (names + name_bytes.len() as u64).next_multiple_of(8);

        let segment = |p_type, p_flags, p_offset: u64, size, p_align| Segment {
            p_type,
            p_flags,
            p_offset,
            p_vaddr: p_offset,
            p_paddr: p_offset,
            p_filesz: size,
            p_memsz: size,
            p_align,
        };
        let mut file = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0");
        for word in [0, 64, e_shoff] {
            file.extend(u64::to_le_bytes(word));
        }
        for half in [0u16, 0, 64, 56, 4, 64, 9, 8] {
            file.extend(half.to_le_bytes());
        }
        segment(1, 4, 0, CODE + code + TAIL, 0x1000).write(&mut file);
        segment(1, 6, data, names - data, 0x1000).write(&mut file);
        segment(2, 6, data, dynamic_len, 8).write(&mut file);
        segment(4, 4, note, 36, 4).write(&mut file);
        file.extend([4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0]);
        file.extend(b"GNU\0");
        file.extend([0xbb; 20]);
        file.extend([0; 24]);
        // A symbol for the start of the device code, section 4.
        file.extend([0, 0, 0, 0, 0x11, 0, 4, 0]);
        file.extend(CODE.to_le_bytes());
        file.extend(0u64.to_le_bytes());
        file.resize(rela as usize, 0);
        let target = CODE + code / 0x2000 * 0x1000;
        let (kind, addend) = match second {
            Second::Relative => (u64::from(R_X86_64_RELATIVE), target),
            Second::Symbol => (1 << 32 | 1, target - CODE),
            Second::Nothing => (0, 0),
        };
        // The table begins with the second wrapper's, as if DT_RELACOUNT were 0.
        for word in [wrappers + 32, kind, addend, wrappers + 8, R_X86_64_RELATIVE.into(), CODE] {
            file.extend(word.to_le_bytes());
        }
        file.resize(CODE as usize, 0);

        let mut tail = vec![0xee; TAIL as usize];
        tail.resize((data - CODE - code) as usize, 0);
        let dynamic = [
            (6, dynsym),
            (7, rela),
            (8, relocations * RELA_SIZE),
            (9, RELA_SIZE),
            (0x6fff_fff9, u64::from(second == Second::Relative) * 2),
            (0, 0),
        ];
        for (tag, value) in dynamic {
            tail.extend(u64::to_le_bytes(tag));
            tail.extend(u64::to_le_bytes(value));
        }
        for stored in [0, target] {
            tail.extend(0x4849_5046u32.to_le_bytes());
            tail.extend(1u32.to_le_bytes());
            tail.extend(u64::to_le_bytes(stored));
            tail.extend([0; 8]);
        }
        tail.extend(name_bytes);
        tail.resize((e_shoff - CODE - code) as usize, 0);
        let mut name = 1;
        tail.extend([0; 64]);
        let sections = [
            ("note", 7, 2, note, 36, 0, 4),
            ("dynsym", 11, 2, dynsym, symbols * 24, 0, 4),
            ("rela.dyn", 4, 2, rela, relocations * RELA_SIZE, 2, 8),
            ("hip_fatbin", 1, 2, CODE, code, 0, 4096),
            ("tail", 1, 2, CODE + code, TAIL, 0, 1),
            ("dynamic", 6, 3, data, dynamic_len, 0, 8),
            ("hipFatBinSegment", 1, 3, wrappers, 48, 0, 8),
            ("shstrtab", 3, 0, names, name_bytes.len() as u64, 0, 1),
        ];
        for (text, sh_type, sh_flags, at, sh_size, sh_link, sh_addralign) in sections {
            let section = Section {
                name: String::new(),
                sh_name: name,
                sh_type,
                sh_flags,
                sh_addr: if sh_flags == 0 { 0 } else { at },
                sh_offset: at,
                sh_size,
                sh_link,
                sh_info: 0,
                sh_addralign,
                sh_entsize: 0,
            };
            section.write(&mut tail);
            name += text.len() as u32 + 2;
        }
        Self { head: file, code, tail }
    }
}

mod tests {
    use super::super::{
        Conversion, ConvertError, ElfError, Image, Kind, Piece, State, convert, verify,
    };
    use super::super::{marker, probe, problems};
    use super::*;
    use crate::fatbin::wrapper::{self, Magic, Wrapper};
    use crate::read_at::read_vec;

    const MARKER: &[u8] = b"\x81\xa1k\xa6marker";

    fn assemble(r: &dyn ReadAt, pieces: &[Piece]) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => out.extend(bytes),
                Piece::Input { offset, len } => out.extend(read_vec(r, *offset, *len).unwrap()),
            }
        }
        out
    }

    /// Probes, reads and converts; whatever comes of it, nothing may panic.
    fn everything(r: &dyn ReadAt) -> Result<Vec<u8>, ConvertError> {
        let Kind::Program(image) = probe(r)? else { return Err(ConvertError::NotFat("another")) };
        problems(r, &image).len();
        let _ = marker(r, &image);
        let wrappers = wrapper::read(r, &image)?;
        let converted = convert(r, &image, &wrappers, MARKER)?;
        assert_eq!(converted.pieces.iter().map(Piece::len).sum::<u64>(), converted.len);
        assert!(converted.len <= r.len() + 0x10000, "a converted file grows");
        for pair in converted.pieces.windows(2) {
            assert!(!matches!(pair, [Piece::Bytes(_), Piece::Bytes(_)]));
        }
        Ok(assemble(r, &converted.pieces))
    }

    fn wrappers(r: &dyn ReadAt) -> (Image, Vec<Wrapper>) {
        let image = Image::read(r).unwrap();
        let wrappers = wrapper::read(r, &image).unwrap();
        (image, wrappers)
    }

    #[test]
    fn converts_and_reads_back() {
        for second in [Second::Relative, Second::Symbol] {
            for code in [0x20, 0x900, 0x1000, 0x1010, 0x2fff, 0x3000, 0x12345] {
                let input = Library::new(code, second);
                let (image, before) = wrappers(&input);
                assert_eq!(image.state(), State::Fat);
                assert_eq!(before[1].address(), CODE + code / 0x2000 * 0x1000);
                assert!(problems(&input, &image).is_empty());
                let output = everything(&input).unwrap();
                let (image, after) = wrappers(&output);
                assert_eq!(image.state(), State::Converted);
                assert_eq!(problems(&output, &image).len(), 0, "code {code:#x}");
                let marker = marker(&output, &image).unwrap();
                assert_eq!(marker.bytes, MARKER);
                for (i, w) in (0..).zip(&after) {
                    assert_eq!((w.magic, w.co_index, w.address()), (Magic::Hipk, i, marker.vaddr));
                    assert_eq!(w.vaddr, before[i as usize].vaddr);
                }
                // What follows the code keeps its address and bytes.
                let at = image.offset_of(CODE + code, TAIL).unwrap() as usize;
                assert_eq!(output[at..at + TAIL as usize], [0xee; TAIL as usize]);
                assert!(!output.contains(&0xcc), "device code is left");
                assert_eq!(image.e_phoff, 64);
            }
        }
    }

    #[test]
    fn three_gigabytes_cost_nothing() {
        let code = 3 << 30;
        let input = Library::new(code, Second::Relative);
        let (image, wrappers) = wrappers(&input);
        let converted = convert(&input, &image, &wrappers, MARKER).unwrap();
        assert!(converted.len < 0x4000);
        assert_eq!(converted.removed, code - 0x1000);
        let output = assemble(&input, &converted.pieces);
        assert!(problems(&output, &Image::read(&output).unwrap()).is_empty());
    }

    #[test]
    fn a_second_conversion_is_refused() {
        let output = everything(&Library::new(0x5000, Second::Relative)).unwrap();
        let image = Image::read(&output).unwrap();
        let wrappers = wrapper::read(&output, &image).unwrap();
        let again = convert(&output, &image, &wrappers, MARKER);
        assert!(matches!(again, Err(ConvertError::NotFat(_))));
    }

    #[test]
    fn other_files_are_told_apart() {
        assert!(matches!(probe(&b"!<arch>\n".to_vec()), Ok(Kind::NotElf)));
        assert!(matches!(probe(&Vec::new()), Ok(Kind::NotElf)));
        let mut bytes = Library::new(0x1000, Second::Relative).bytes();
        bytes[18] = 224;
        assert!(matches!(probe(&bytes), Ok(Kind::Other { machine: 224, .. })));
        let mut bytes = Library::new(0x1000, Second::Relative).bytes();
        bytes[40..48].fill(0);
        let Ok(Kind::Program(image)) = probe(&bytes) else { panic!("not a program") };
        assert_eq!(image.state(), State::NoSections);
        let mut bytes = Library::new(0x1000, Second::Relative).bytes();
        bytes[16] = 1;
        assert!(matches!(probe(&bytes), Ok(Kind::Relocatable { fat: true })));
    }

    #[test]
    fn every_wrapper_needs_an_address_in_the_device_code() {
        let input = Library::new(0x5000, Second::Nothing);
        let image = Image::read(&input).unwrap();
        let error = wrapper::read(&input, &image).unwrap_err().to_string();
        assert!(error.contains("r_info type"), "{error}");
        let mut bytes = Library::new(0x5000, Second::Relative).bytes();
        // The addend of the first wrapper's relocation.
        let rela = image.section(".rela.dyn").unwrap().sh_offset as usize;
        bytes[rela + 40..rela + 48].copy_from_slice(&0x9999u64.to_le_bytes());
        let error = wrapper::read(&bytes, &image).unwrap_err().to_string();
        assert!(error.contains("is 0x9999, expected in .hip_fatbin, 0x1000 to 0x6000"), "{error}");
    }

    #[test]
    fn truncated_files_are_errors() {
        let bytes = Library::new(0x2100, Second::Symbol).bytes();
        for len in (4..bytes.len()).step_by(7) {
            assert!(everything(&bytes[..len].to_vec()).is_err(), "{len:#x} bytes");
        }
    }

    /// Every 2-, 4- and 8-byte field of everything but the code, with the values that break things.
    #[test]
    fn lying_fields_never_panic() {
        for (code, second) in [(0x2100, Second::Symbol), (0x30, Second::Relative)] {
            let original = Library::new(code, second).bytes();
            let len = original.len() as u64;
            let code = CODE..CODE + code;
            let mut converted = 0;
            let mut bytes = original.clone();
            for at in (0..original.len() - 8).step_by(2) {
                if code.contains(&(at as u64)) || original[at..at + 8] == [0; 8] && at % 64 != 0 {
                    continue;
                }
                for value in
                    [0, 1, 7, 0x1000, code.end, len - 1, len, 1 << 32, u64::MAX >> 1, u64::MAX]
                {
                    for size in [2, 4, 8] {
                        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
                        converted += u32::from(everything(&bytes).is_ok());
                        bytes[at..at + size].copy_from_slice(&original[at..at + size]);
                    }
                }
            }
            assert_ne!(converted, 0);
        }
    }

    #[test]
    fn a_new_file_that_does_not_hold_what_it_has_to_is_seen() {
        let input = Library::new(0x5000, Second::Relative);
        let (image, wrappers) = wrappers(&input);
        let good = convert(&input, &image, &wrappers, MARKER).unwrap();
        let check = |changed: &Conversion, marker: &[u8]| {
            verify::conversion(&input, &image, &wrappers, changed, marker)
        };
        check(&good, MARKER).unwrap();
        assert!(check(&good, b"another").is_err());
        let mut swapped = wrappers.clone();
        swapped.swap(0, 1);
        assert!(verify::conversion(&input, &image, &swapped, &good, MARKER).is_err());
        assert!(verify::conversion(&input, &image, &wrappers[1..], &good, MARKER).is_err());
        let mut short = good.clone();
        short.pieces.pop();
        assert!(check(&short, MARKER).is_err());
        // Any wrapper that is not changed, or the marker.
        for (i, piece) in good.pieces.iter().enumerate() {
            let Piece::Bytes(bytes) = piece else { continue };
            for needle in [&b"HIPK"[..], MARKER] {
                for at in (0..bytes.len()).filter(|&at| bytes[at..].starts_with(needle)) {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= 1;
                    let mut bad = good.clone();
                    bad.pieces[i] = Piece::Bytes(bytes);
                    assert!(check(&bad, MARKER).is_err());
                }
            }
        }
    }

    #[test]
    fn sections_that_overlap_the_code_are_refused() {
        let input = Library::new(0x5000, Second::Relative);
        let (mut image, wrappers) = wrappers(&input);
        image.sections[1].sh_offset = 0x3000;
        let error = convert(&input, &image, &wrappers, MARKER).unwrap_err();
        let overlap = matches!(error, ConvertError::Elf(ElfError::Overlap { at: 0x3000, .. }));
        assert!(overlap, "{error}");
        let (mut image, wrappers) = self::wrappers(&input);
        image.segments[2].p_offset = 0x2000;
        assert!(convert(&input, &image, &wrappers, MARKER).is_err());
        assert!(verify::segment_problems(&image).is_empty(), "only loads are looked at");
    }
}
