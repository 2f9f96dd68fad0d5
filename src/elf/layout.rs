//! Where things go in the converted file.
//!
//! ```text
//! before   | Ehdr Phdrs  note hash …  .text … |  .hip_fatbin ················· | .eh_frame …
//! after    | Ehdr Phdrs+ note  …      .text … |  (no bytes: NOBITS)     | kept | .eh_frame …
//!            PT_LOAD, p_memsz over the hole ──────────────────────────┘ └ new PT_LOAD ────
//! ```
//!
//! - The last pages of the device code stay in the file and take the marker and what had to make
//!   room. Keeping the last and not the first leaves symbols that name the bundle in their section.
//! - The program header table stays where it is and needs 56 bytes for one more entry. What stands
//!   behind it and is reached through a header only (notes, the interpreter's name, hash tables, the
//!   dynamic symbols and their names) moves away; notes come back behind the longer table where they fit, since
//!   the kernel writes the first page of a file into core dumps for the sake of the build id.
//! - Where more than a page would have to move away, a shared library gives up its PT_PHDR instead. Only programs use
//!   it: the loader finds the table of a library through the ELF header, and GNU ld makes none for libraries.
//! - Where the device code is the first thing of its segment, the segment simply begins later: GNU strip
//!   cannot keep the offset of a segment without bytes.
//! - Device code too small for a hole is overwritten in place; if not even the marker fits, a new
//!   segment behind all others takes it.

use super::convert::ConvertError;
use super::image::{
    ET_DYN, HIP_FATBIN, Image, KPACK_REF, PAGE, PHDR_SIZE, PT_DYNAMIC, PT_INTERP, PT_LOAD, PT_PHDR,
    SHDR_SIZE, SHF_ALLOC, SHF_TLS, SHT_DYNSYM, SHT_GNU_HASH, SHT_HASH, SHT_NOBITS, SHT_NOTE,
    SHT_PROGBITS, Section, Segment,
};
use super::{ElfError, verify};
use std::ops::Range;

const MAX_UNITS: usize = 32;
pub(crate) const PF_W: u32 = 2;
const PT_NOTE: u32 = 4;
const SHT_STRTAB: u32 = 3;
const SHT_DYNAMIC: u32 = 6;
const PT_GNU_PROPERTY: u32 = 0x6474_e553;
/// The marker's alignment.
pub(crate) const MARKER_ALIGN: u64 = 8;

/// Where the marker goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Into the last pages of the device code, in a PT_LOAD of their own from this address on; the
    /// bytes before are cut.
    Split(u64),
    /// The same where the device code is the first thing of its segment: nothing of it is left before
    /// the pages, so the segment begins at this address, and no program header is added.
    Behead(u64),
    /// Over the device code, which is too small to be cut.
    InPlace,
    /// Into a new PT_LOAD behind all others, of this many bytes.
    Append(u64),
}

/// Sections that move together, because one program header describes them all.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    /// Their places in the section table, in address order.
    pub(crate) sections: Vec<usize>,
    /// Where they are in the input.
    pub(crate) file: Range<u64>,
    /// Their address in the input.
    pub(crate) old: u64,
    /// Their address in the output.
    pub(crate) new: u64,
    /// Whether they stay behind the table instead of leaving with the marker.
    pub(crate) stays: bool,
    align: u64,
    /// Notes and the interpreter's name: better behind the table than away.
    is_note: bool,
    /// The dynamic section, which is written to: cannot go to the device code's segment.
    must_stay: bool,
    movable: bool,
}

impl Unit {
    fn size(&self) -> u64 {
        self.file.end - self.file.start
    }

    /// The new address of an address in it.
    pub(crate) fn moved(&self, vaddr: u64) -> Option<u64> {
        (self.old..self.old + self.size()).contains(&vaddr).then(|| vaddr - self.old + self.new)
    }
}

/// The plan of a conversion.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Place of `.hip_fatbin` in the section table.
    pub(crate) fatbin: usize,
    /// Place of its PT_LOAD in the program header table.
    pub(crate) load: usize,
    pub(crate) mode: Mode,
    /// Bytes of the input that go.
    pub(crate) cut: Range<u64>,
    /// Bytes of the input that become zero before anything is put there.
    pub(crate) zero: Vec<Range<u64>>,
    /// Address up to which the segment before the hole reaches, in [`Mode::Split`].
    pub(crate) hole_end: u64,
    /// Address of the marker.
    pub(crate) marker: u64,
    /// Size of the NOBITS section that remains of `.hip_fatbin`.
    pub(crate) nobits: u64,
    /// What moves.
    pub(crate) units: Vec<Unit>,
    /// Place of the PT_PHDR that gives its entry to the new segment, where nothing moves for it.
    pub(crate) spare: Option<usize>,
}

/// Plans the conversion of a fat binary.
pub(crate) fn plan(image: &Image, marker_len: u64) -> Result<Layout, ConvertError> {
    if let Some(problem) = verify::segment_problems(image).into_iter().next() {
        return Err(problem.into());
    }
    let fatbin = image
        .section_index(HIP_FATBIN)
        .ok_or_else(|| ElfError::Missing(format!("section {HIP_FATBIN}")))?;
    let section = &image.sections[fatbin];
    let load = check_device_code(image, fatbin)?;
    let segment = &image.segments[load];
    let code = section.memory_range();
    let offset_of = |vaddr: u64| segment.p_offset + (vaddr - segment.p_vaddr);
    let hole = code.start.next_multiple_of(PAGE);
    let mut layout = Layout {
        fatbin,
        load,
        mode: Mode::InPlace,
        cut: 0..0,
        zero: vec![section.file_range()],
        hole_end: 0,
        marker: code.start.next_multiple_of(MARKER_ALIGN),
        nobits: 0,
        units: Vec::new(),
        spare: None,
    };

    // Without anything to make room for, would a page be won?
    let page_won = code.end.saturating_sub(marker_len) / PAGE * PAGE > hole;
    let first = !image.sections.iter().any(|s| {
        s.is_alloc() && (segment.p_vaddr..code.start).contains(&s.sh_addr) && s.sh_size != 0
    });
    if page_won && first && !overlaps(&headers(image), &segment.file_range()) {
        let kept = (code.end - marker_len) / PAGE * PAGE;
        layout.cut = offset_of(hole)..offset_of(kept);
        layout.zero =
            vec![offset_of(code.start)..offset_of(hole), offset_of(kept)..offset_of(code.end)];
        layout.marker = kept;
        layout.mode = Mode::Behead(kept);
        return Ok(layout);
    }
    if page_won {
        let (mut units, spare) = room(image, marker_len)?;
        let need = place(&mut units, 0, marker_len);
        let kept = code.end.saturating_sub(need) / PAGE * PAGE;
        if kept > hole {
            place(&mut units, kept, marker_len);
            layout.cut = offset_of(hole)..offset_of(kept);
            layout.zero =
                vec![offset_of(code.start)..offset_of(hole), offset_of(kept)..offset_of(code.end)];
            layout.marker = kept;
            layout.hole_end = hole_end(image, segment, &layout.cut, kept);
            layout.nobits = layout.hole_end - code.start;
            (layout.units, layout.spare) = (units, spare);
            layout.mode = Mode::Split(kept);
            return Ok(layout);
        }
    }
    if layout.marker + marker_len <= code.end {
        return Ok(layout);
    }
    let (mut units, spare) = room(image, marker_len)?;
    let end = image.loads().map(|(_, load)| load.memory_range().end).max().unwrap_or(0);
    let base = end.next_multiple_of(PAGE);
    let size = place(&mut units, base, marker_len);
    layout.marker = base;
    (layout.units, layout.spare) = (units, spare);
    layout.mode = Mode::Append(size);
    Ok(layout)
}

/// Puts the units that leave behind a marker at `base`; returns the size of all.
fn place(units: &mut [Unit], base: u64, marker_len: u64) -> u64 {
    let mut end = base + marker_len;
    for unit in units.iter_mut().filter(|unit| !unit.stays) {
        unit.new = end.next_multiple_of(unit.align);
        end = unit.new + unit.size();
    }
    end - base
}

/// Where the segment before the hole ends: at the kept pages. Checkers look NOBITS sections up by file
/// offset, and a large `.bss` whose offset has sunk below that segment's `p_offset + p_memsz`, but
/// which does not fit there, would look like a part of it that sticks out: then earlier.
fn hole_end(image: &Image, load: &Segment, cut: &Range<u64>, kept: u64) -> u64 {
    let start = load.p_offset;
    let mut end = start + (kept - load.p_vaddr);
    for s in &image.sections {
        if s.sh_type != SHT_NOBITS || s.sh_flags & SHF_TLS != 0 || s.sh_offset < cut.end {
            continue;
        }
        let offset = s.sh_offset - (cut.end - cut.start);
        if offset < end && offset + s.sh_size > end {
            end = (offset / PAGE * PAGE).max(cut.start);
        }
    }
    load.p_vaddr + (end - start)
}

/// Checks that nothing but `.hip_fatbin` has its bytes, and returns the place of the segment that
/// maps them.
fn check_device_code(image: &Image, fatbin: usize) -> Result<usize, ConvertError> {
    let code = &image.sections[fatbin];
    if code.sh_type != SHT_PROGBITS || !code.is_alloc() {
        let field = format!("sh_type of {HIP_FATBIN}");
        let at = image.e_shoff + fatbin as u64 * SHDR_SIZE + 4;
        return Err(ElfError::field(field, at, code.sh_type, "1 (PROGBITS), allocated").into());
    }
    let file = code.file_range();
    let Some((load, segment)) =
        image.loads().find(|(_, load)| contains(&load.memory_range(), code.sh_addr))
    else {
        let end = code.memory_range().end;
        return Err(ElfError::outside(
            HIP_FATBIN,
            code.sh_addr,
            code.sh_size,
            "every PT_LOAD",
            end,
        )
        .into());
    };
    let mapped = image.offset_of(code.sh_addr, code.sh_size);
    if mapped.is_none() {
        let of = format!("the file part of segment {load}");
        let end = segment.p_vaddr + segment.p_filesz;
        return Err(ElfError::outside(HIP_FATBIN, code.sh_addr, code.sh_size, of, end).into());
    }
    if mapped != Some(code.sh_offset) {
        let at = image.e_shoff + fatbin as u64 * SHDR_SIZE + 24;
        let expected = format!("where segment {load} maps {:#x}", code.sh_addr);
        return Err(ElfError::field(
            format!("sh_offset of {HIP_FATBIN}"),
            at,
            code.sh_offset,
            expected,
        )
        .into());
    }
    let overlap = |what: String, range: Range<u64>, of: &Range<u64>| match overlaps(&range, of) {
        true => {
            Err(ConvertError::from(ElfError::overlap(what, HIP_FATBIN, range.start.max(of.start))))
        }
        false => Ok(()),
    };
    let table = image.segments.len() as u64 * PHDR_SIZE;
    overlap("the ELF header".into(), 0..64, &file)?;
    overlap("the program header table".into(), image.e_phoff..image.e_phoff + table, &file)?;
    let table = image.sections.len() as u64 * SHDR_SIZE;
    overlap("the section header table".into(), image.e_shoff..image.e_shoff + table, &file)?;
    for (i, other) in image.sections.iter().enumerate().skip(1).filter(|(i, _)| *i != fatbin) {
        let what = || format!("section {i} ({})", other.name);
        if other.sh_type != 0 {
            overlap(what(), other.file_range(), &file)?;
        }
        // Thread-local NOBITS sections have addresses that belong to others.
        if other.is_alloc() && other.sh_type != SHT_NOBITS {
            overlap(what(), other.memory_range(), &code.memory_range())?;
        }
    }
    for (i, other) in image.segments.iter().enumerate().filter(|(i, _)| *i != load) {
        overlap(format!("segment {i}"), other.file_range(), &file)?;
    }
    Ok(load)
}

/// Finds an entry for one more segment: what moves for a longer table, or the place of a PT_PHDR that can go. A symbol
/// table that moves away leaves as many bytes behind as it takes, and can be larger than the device code.
fn room(image: &Image, marker_len: u64) -> Result<(Vec<Unit>, Option<usize>), ConvertError> {
    let is = |kind| move |s: &Segment| s.p_type == kind;
    // A static program has no interpreter either, and its start-up code may look for PT_PHDR, as musl's does.
    let is_library =
        image.e_type == ET_DYN && image.e_entry == 0 && !image.segments.iter().any(is(PT_INTERP));
    let spare = image.segments.iter().position(is(PT_PHDR)).filter(|_| is_library);
    let mut units = match (make_room(image, marker_len), spare) {
        (Err(ConvertError::NoRoom { .. }), Some(_)) => return Ok((Vec::new(), spare)),
        (units, _) => units?,
    };
    if spare.is_some() && place(&mut units, 0, marker_len) > marker_len + PAGE {
        return Ok((Vec::new(), spare));
    }
    Ok((units, None))
}

/// Whether patchelf would be harmed, pages that stay for it, whether notes leave, bytes that leave.
type Cost = (bool, u64, bool, u64);

/// Finds what has to move for the program header table to grow by one entry, and puts back what fits
/// behind it. The rest is still without an address.
fn make_room(image: &Image, marker_len: u64) -> Result<Vec<Unit>, ConvertError> {
    let table = image.e_phoff..image.e_phoff + image.segments.len() as u64 * PHDR_SIZE;
    let longer = table.end + PHDR_SIZE;
    let Some((_, load)) = image.loads().find(|(_, load)| {
        load.file_range().start <= table.start && load.file_range().end >= table.end
    }) else {
        return Err(ElfError::Missing("PT_LOAD that maps the program header table".into()).into());
    };
    let limit = load.file_range().end;
    let units = units(image, &table, load);
    let end_of = |k: usize| units.get(k).map_or(limit, |unit| unit.file.start);
    if end_of(0) >= longer {
        return Ok(Vec::new());
    }

    // The first `k` units are taken up; the first `stay` of them come back behind the table. The more
    // are taken up, the more can come back, and what does not costs pages. That a section moves away
    // only with all behind it is for patchelf: it saves what its own longer table will cover, looking
    // no further than the first section, in the order of the section table, that is far away.
    let notes = image.sections.iter().filter(|s| s.sh_type == SHT_NOTE).count() as u64;
    let patchelf_end = match image.e_type {
        ET_DYN => longer + (notes + 2) * PHDR_SIZE,
        _ => 0,
    };
    let at = |offset: u64| load.p_vaddr + (offset - load.p_offset);
    let mut best: Option<(Cost, Vec<Unit>)> = None;
    for k in 1..=units.len() {
        if !units[k - 1].movable {
            break;
        }
        for stay in 0..k {
            let mut tried = units[..k].to_vec();
            let mut end = at(longer);
            for unit in &mut tried[..stay] {
                unit.new = end.next_multiple_of(unit.align);
                unit.stays = true;
                end = unit.new + unit.size();
            }
            if end > at(end_of(k)) || tried[stay..].iter().any(|unit| unit.must_stay) {
                continue;
            }
            let out = place(&mut tried, 0, marker_len);
            let notes_leave = tried[stay..].iter().any(|unit| unit.is_note);
            let cost = (end_of(k) <= patchelf_end, out.div_ceil(PAGE), notes_leave, out);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, tried));
            }
        }
    }
    if let Some((_, units)) = best {
        return Ok(units);
    }
    let blocker = units.iter().find(|unit| !unit.movable);
    let name = blocker
        .and_then(|unit| unit.sections.first())
        .map_or("a segment".to_owned(), |&i| image.sections[i].name.clone());
    let free = blocker.map_or(limit, |unit| unit.file.start).saturating_sub(table.end);
    Err(ConvertError::NoRoom { table_end: table.end, name, free })
}

/// What stands behind the table, in the order of the file: sections, and those that one program
/// header describes in one.
fn units(image: &Image, table: &Range<u64>, load: &Segment) -> Vec<Unit> {
    let limit = load.file_range().end;
    let bias = load.p_vaddr.wrapping_sub(load.p_offset);
    // The linker never puts the dynamic section there; patchelf does, in a writable segment, and then
    // nothing but PT_DYNAMIC knows where it is. It is also patchelf that gets lost where `.dynstr` is
    // moved out of a file that it has not seen before.
    let by_patchelf = load.p_flags & PF_W != 0;
    let unit = |file: Range<u64>, sections: Vec<usize>, align: u64, movable, is_note| Unit {
        sections,
        old: file.start.wrapping_add(bias),
        file,
        new: 0,
        stays: false,
        align: align.clamp(1, PAGE),
        is_note,
        must_stay: false,
        movable,
    };
    let behind = |range: &Range<u64>| range.end > table.end && range.start < limit;
    let interpreter =
        image.segments.iter().find(|p| p.p_type == PT_INTERP).map(Segment::file_range);
    let mut units = Vec::new();
    for (i, s) in image.sections.iter().enumerate().skip(1) {
        let range = s.file_range();
        if s.sh_type == 0 || range.is_empty() || !behind(&range) {
            continue;
        }
        let interp = interpreter.as_ref() == Some(&range);
        let movable = s.is_alloc()
            && range.start >= table.end
            && range.end <= limit
            && s.sh_addr == range.start.wrapping_add(bias)
            && (interp
                || by_patchelf && matches!(s.sh_type, SHT_DYNAMIC | SHT_STRTAB)
                || matches!(s.sh_type, SHT_NOTE | SHT_HASH | SHT_GNU_HASH | SHT_DYNSYM));
        let is_note = interp || s.sh_type == SHT_NOTE;
        units.push(unit(range, vec![i], s.sh_addralign, movable, is_note));
    }
    for p in &image.segments {
        let range = p.file_range();
        if matches!(p.p_type, PT_LOAD | PT_PHDR) || range.is_empty() || !behind(&range) {
            continue;
        }
        let dynamic = by_patchelf && p.p_type == PT_DYNAMIC;
        let movable = dynamic || matches!(p.p_type, PT_NOTE | PT_GNU_PROPERTY | PT_INTERP);
        units.push(unit(range, Vec::new(), p.p_align, movable, true));
        units[..].last_mut().expect("it was just pushed").must_stay = dynamic;
    }
    let shdrs = image.e_shoff..image.e_shoff + image.sections.len() as u64 * SHDR_SIZE;
    if behind(&shdrs) {
        units.push(unit(shdrs, Vec::new(), 8, false, false));
    }
    units.sort_by_key(|unit| (unit.file.start, unit.file.end));

    let mut merged: Vec<Unit> = Vec::new();
    for unit in units {
        match merged.last_mut() {
            Some(last) if unit.file.start < last.file.end => {
                last.file.end = last.file.end.max(unit.file.end);
                last.align = last.align.max(unit.align);
                last.movable &= unit.movable;
                last.is_note &= unit.is_note;
                last.must_stay |= unit.must_stay;
                last.sections.extend(unit.sections);
            }
            _ => merged.push(unit),
        }
    }
    // Bytes that only a program header speaks of would move without a section header that says so.
    // Units are searched for each section and symbol: thousands of sections in one are refused.
    for unit in &mut merged {
        unit.movable &= (1..=MAX_UNITS).contains(&unit.sections.len())
            && unit.file.start >= table.end
            && unit.file.end <= limit
            && unit.old.is_multiple_of(unit.align);
    }
    // Far more than stand before something that cannot move.
    merged.truncate(MAX_UNITS);
    merged
}

/// The header of the marker's section.
pub(crate) fn marker_section(sh_name: u32, sh_addr: u64, sh_offset: u64, sh_size: u64) -> Section {
    Section {
        name: KPACK_REF.into(),
        sh_name,
        sh_type: SHT_PROGBITS,
        sh_flags: SHF_ALLOC,
        sh_addr,
        sh_offset,
        sh_size,
        sh_link: 0,
        sh_info: 0,
        sh_addralign: MARKER_ALIGN,
        sh_entsize: 0,
    }
}

/// The ELF header and, in most files, the program headers.
fn headers(image: &Image) -> Range<u64> {
    0..64.max(if image.e_phoff == 64 { 64 + image.segments.len() as u64 * PHDR_SIZE } else { 0 })
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

fn contains(range: &Range<u64>, at: u64) -> bool {
    range.contains(&at)
}
