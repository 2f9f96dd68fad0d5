//! What must hold of a file that the loader is to load, and of one that was converted.
//!
//! Of every file: segments lie in the file, in ascending order without overlap, at offsets that are
//! congruent to their addresses; PT_PHDR covers the table and a PT_LOAD holds it. Of a converted
//! file: `.hip_fatbin` is NOBITS, every wrapper is HIPK and points at the one marker.

use super::image::{
    HIP_FATBIN, Image, KPACK_REF, PAGE, PHDR_SIZE, PT_LOAD, PT_PHDR, SHT_NOBITS, State, read_table,
};
use super::{Conversion, Dynamic, ElfError, Piece};
use crate::fatbin::wrapper::{self, Magic, Wrapper};
use crate::read_at::ReadAt;
use std::io;

/// The longest marker that the runtime reads.
pub const MAX_MARKER: u64 = 64 * 1024;

/// The marker of a converted file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// Its address.
    pub vaddr: u64,
    /// Its bytes: those of `.rocm_kpack_ref`, or where no such section stands at the address, all
    /// that are mapped from there on, at most 64 KiB.
    pub bytes: Vec<u8>,
}

/// Reads the marker as the runtime does, through the first wrapper. Fails where there is no wrapper,
/// where it is not a HIPK wrapper, or where it points outside of what is mapped from the file.
pub fn marker(r: &dyn ReadAt, image: &Image) -> Result<Marker, ElfError> {
    let wrappers = wrapper::read(r, image)?;
    let first = wrappers.first().ok_or_else(|| ElfError::Missing("wrapper".into()))?;
    if first.magic != Magic::Hipk {
        let magic = first.magic as u32;
        return Err(ElfError::field(
            "magic of wrapper 0",
            first.offset,
            magic,
            "0x4b504948 (HIPK)",
        ));
    }
    let vaddr = first.address();
    let load = image
        .loads()
        .map(|(_, load)| load)
        .find(|load| (load.p_vaddr..load.p_vaddr + load.p_filesz).contains(&vaddr))
        .ok_or_else(|| {
            let expected = "an address that is mapped from the file";
            ElfError::field("marker address of wrapper 0", first.offset + 8, vaddr, expected)
        })?;
    let at = vaddr - load.p_vaddr;
    let mapped = load.p_filesz - at;
    let size = match image.section(KPACK_REF) {
        Some(section) if section.sh_addr == vaddr && section.sh_size <= mapped => section.sh_size,
        _ => mapped.min(MAX_MARKER),
    };
    if size > MAX_MARKER {
        let expected = format!("at most {MAX_MARKER:#x}");
        return Err(ElfError::field("size of the marker", load.p_offset + at, size, expected));
    }
    let bytes = read_table(r, "the marker", load.p_offset + at, size, 1)?;
    Ok(Marker { vaddr, bytes })
}

/// Everything that is wrong with a file: the checks for all files and, for one that holds a marker,
/// those for converted files. What the marker says is not looked at.
pub fn problems(r: &dyn ReadAt, image: &Image) -> Vec<ElfError> {
    let mut found = segment_problems(image);
    found.extend(Dynamic::read(r, image).err());
    if image.state() == State::Converted {
        converted_problems(r, image, &mut found);
    }
    found
}

/// Whether a conversion gives a file that holds `marker`, to which all wrappers of the input lead. Where
/// the tables of an input overlap, what is changed in one can destroy another.
pub(crate) fn conversion(
    r: &dyn ReadAt,
    old: &Image,
    wrappers: &[Wrapper],
    conversion: &Conversion,
    expected: &[u8],
) -> Result<(), ElfError> {
    let new = &NewFile::new(r, conversion);
    let image = Image::read(new)?;
    let mut found = segment_problems(&image);
    converted_problems(new, &image, &mut found);
    // A damaged dynamic section does not keep a file from being converted.
    if Dynamic::read(r, old).is_ok() {
        found.extend(Dynamic::read(new, &image).err());
    }
    if let Some(problem) = found.into_iter().next() {
        return Err(problem);
    }
    let now = wrapper::read(new, &image)?;
    if now.len() != wrappers.len() {
        return Err(ElfError::field("count of wrappers", 0, now.len(), wrappers.len()));
    }
    for (old, new) in wrappers.iter().zip(&now) {
        let field = |name: &str| format!("{name} of wrapper {}", old.index);
        if new.vaddr != old.vaddr {
            let expected = format!("{:#x}", old.vaddr);
            return Err(ElfError::field(field("address"), old.offset, new.vaddr, expected));
        }
        if new.co_index != old.index {
            let at = old.offset + 16;
            return Err(ElfError::field(field("index"), at, new.co_index, old.index));
        }
    }
    let found = marker(new, &image)?;
    if found.bytes != expected {
        let at = image.offset_of(found.vaddr, 1).unwrap_or_default();
        return Err(ElfError::overlap("the marker", "what is changed", at));
    }
    Ok(())
}

/// A converted file that is not written yet.
struct NewFile<'a> {
    r: &'a dyn ReadAt,
    conversion: &'a Conversion,
    /// Where each piece begins.
    starts: Vec<u64>,
}

impl<'a> NewFile<'a> {
    fn new(r: &'a dyn ReadAt, conversion: &'a Conversion) -> Self {
        let starts = conversion.pieces.iter().scan(0, |end, piece| {
            let start = *end;
            *end += piece.len();
            Some(start)
        });
        Self { r, conversion, starts: starts.collect() }
    }
}

impl ReadAt for NewFile<'_> {
    fn len(&self) -> u64 {
        self.conversion.len
    }

    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        let mut place = self.starts.partition_point(|&start| start <= offset).saturating_sub(1);
        while !buf.is_empty() {
            let piece = self.conversion.pieces.get(place).ok_or(io::ErrorKind::UnexpectedEof)?;
            let at = offset - self.starts[place];
            let left = piece.len().checked_sub(at).ok_or(io::ErrorKind::UnexpectedEof)?;
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
            let (now, rest) = buf.split_at_mut(n);
            match piece {
                Piece::Input { offset, .. } => self.r.read_exact_at(now, offset + at)?,
                Piece::Bytes(bytes) => bytes.as_slice().read_exact_at(now, at)?,
            }
            (buf, offset, place) = (rest, offset + n as u64, place + 1);
        }
        Ok(())
    }
}

/// What is wrong with the program headers.
pub(crate) fn segment_problems(image: &Image) -> Vec<ElfError> {
    let mut found = Vec::new();
    let header = |i: usize| image.e_phoff + i as u64 * PHDR_SIZE;
    for (i, s) in image.segments.iter().enumerate() {
        if s.file_range().end > image.file_len {
            let what = format!("segment {i}");
            found.push(ElfError::outside(what, s.p_offset, s.p_filesz, "the file", image.file_len));
        }
    }
    let mut before: Option<(usize, &super::Segment)> = None;
    for (i, s) in image.loads() {
        let align = s.p_align.max(PAGE);
        if s.p_offset % align != s.p_vaddr % align {
            let expected = format!("congruent to {:#x} modulo {align:#x}", s.p_vaddr);
            let field = format!("p_offset of segment {i}");
            found.push(ElfError::field(field, header(i) + 8, s.p_offset, expected));
        }
        if let Some((j, last)) = before {
            let end = last.memory_range().end;
            if s.p_vaddr < end {
                let expected = format!("at least {end:#x}, the end of segment {j}");
                let field = format!("p_vaddr of segment {i}");
                found.push(ElfError::field(field, header(i) + 16, s.p_vaddr, expected));
            }
        }
        before = Some((i, s));
    }
    // Sorted, so that a table of many headers costs no square.
    let mut ranges: Vec<_> =
        image.loads().map(|(i, s)| (s.file_range(), i)).filter(|(r, _)| !r.is_empty()).collect();
    ranges.sort_by_key(|(range, _)| range.start);
    for pair in ranges.windows(2) {
        if let [(a, i), (b, j)] = pair
            && b.start < a.end
        {
            found.push(ElfError::overlap(format!("segment {j}"), format!("segment {i}"), b.start));
        }
    }
    if let Some((i, phdr)) = image.segments.iter().enumerate().find(|(_, s)| s.p_type == PT_PHDR) {
        let size = image.segments.len() as u64 * PHDR_SIZE;
        if phdr.p_offset != image.e_phoff || phdr.p_filesz < size {
            let expected = format!("{:#x}, for {size:#x} bytes", image.e_phoff);
            found.push(ElfError::field(
                "p_offset of PT_PHDR",
                header(i) + 8,
                phdr.p_offset,
                expected,
            ));
        }
        if image.offset_of(phdr.p_vaddr, phdr.p_filesz) != Some(phdr.p_offset) {
            let expected = "the address at which a PT_LOAD maps the table";
            found.push(ElfError::field(
                "p_vaddr of PT_PHDR",
                header(i) + 16,
                phdr.p_vaddr,
                expected,
            ));
        }
        if image.segments[..i].iter().any(|s| s.p_type == PT_LOAD) {
            let expected = "before every PT_LOAD";
            found.push(ElfError::field("place of PT_PHDR", header(i), i, expected));
        }
    }
    found
}

fn converted_problems(r: &dyn ReadAt, image: &Image, found: &mut Vec<ElfError>) {
    if let Some(code) = image.section(HIP_FATBIN)
        && code.sh_type != SHT_NOBITS
    {
        let field = format!("sh_type of {HIP_FATBIN}");
        found.push(ElfError::field(field, code.sh_offset, code.sh_type, "8 (NOBITS)"));
    }
    let wrappers = match wrapper::read(r, image) {
        Ok(wrappers) => wrappers,
        Err(error) => return found.push(error),
    };
    if wrappers.is_empty() {
        found.push(ElfError::Missing("wrapper".into()));
    }
    let marker = image.section(KPACK_REF).map_or(0, |section| section.sh_addr);
    for w in &wrappers {
        let field = |name: &str| format!("{name} of wrapper {}", w.index);
        if w.magic != Magic::Hipk {
            let magic = w.magic as u32;
            found.push(ElfError::field(field("magic"), w.offset, magic, "0x4b504948 (HIPK)"));
        } else if w.address() != marker {
            let expected = format!("{marker:#x}, the address of {KPACK_REF}");
            found.push(ElfError::field(
                field("marker address"),
                w.offset + 8,
                w.address(),
                expected,
            ));
        }
    }
    if let Some(section) = image.section(KPACK_REF) {
        let (vaddr, size) = (section.sh_addr, section.sh_size);
        if size == 0 || size > MAX_MARKER {
            let field = format!("sh_size of {KPACK_REF}");
            let expected = format!("1 to {MAX_MARKER:#x}");
            found.push(ElfError::field(field, section.sh_offset, size, expected));
        }
        if !section.is_alloc() || image.offset_of(vaddr, size) != Some(section.sh_offset) {
            let field = format!("sh_offset of {KPACK_REF}");
            let expected = format!("where a segment maps {vaddr:#x}");
            found.push(ElfError::field(field, section.sh_offset, section.sh_offset, expected));
        }
    }
}
