//! Device code out, marker in: the new file as pieces of the old one and a few kilobytes.
//!
//! `layout.rs` decides where everything goes. Here every place that has to know is told:
//!
//! - the wrappers: magic, code-object index, address of the marker, with its relocation;
//! - program headers, section headers, the ELF header;
//! - DT_HASH, DT_GNU_HASH, DT_SYMTAB, DT_STRTAB where those sections moved;
//! - symbols: section numbers behind the new section, addresses in sections that moved.
//!
//! Nothing else changes: addresses of code and data, dynamic entries, notes, the build id.

use super::dynamic::{DT_GNU_HASH, DT_HASH, DT_RELACOUNT, DT_STRTAB, DT_SYMTAB, Dynamic};
use super::edit::Edits;
use super::image::{
    HIP_FATBIN, Image, KPACK_REF, PAGE, PHDR_SIZE, PT_LOAD, PT_PHDR, SHDR_SIZE, SHF_INFO_LINK,
    SHN_ABS, SHN_LORESERVE, SHT_DYNSYM, SHT_GROUP, SHT_NOBITS, SHT_REL, SHT_RELA, SHT_SYMTAB,
    SHT_SYMTAB_SHNDX, Section, Segment, State, read_table,
};
use super::layout::{self, Layout, Mode, PF_W};
use super::pointer::{self, Fixup, R_X86_64_RELATIVE, RELA_SIZE};
use super::verify::{self, MAX_MARKER};
use super::{ElfError, Piece, u16_at, u64_at};
use crate::fatbin::wrapper::{Magic, WRAPPER_SIZE, Wrapper};
use crate::read_at::ReadAt;
use std::ops::Range;

/// The most that is rewritten of symbol tables, in bytes: they are held in memory.
const MAX_SYMBOLS: u64 = 256 << 20;
const SYM_SIZE: usize = 24;
const PF_X: u32 = 1;
const SHF_WRITE: u64 = 1;
const SHF_EXECINSTR: u64 = 4;

/// A converted file.
#[derive(Debug, Clone)]
pub struct Conversion {
    /// The new file. Neighbours are never both of the same kind.
    pub pieces: Vec<Piece>,
    /// Its length in bytes.
    pub len: u64,
    /// Address of the marker.
    pub marker_vaddr: u64,
    /// Bytes of the input that are not in the new file.
    pub removed: u64,
}

/// Why a file cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The file is damaged.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The file is not a fat binary, or is one no longer.
    #[error("not a fat binary: {0}")]
    NotFat(&'static str),
    /// The marker is empty or too long.
    #[error("the marker has {found:#x} bytes, expected 1 to {max:#x}", max = MAX_MARKER)]
    Marker {
        /// Its length in bytes.
        found: u64,
    },
    /// The file uses something that programs and shared libraries do not use.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// The new file would not hold what it has to, which is so where tables of the input overlap.
    #[error(
        "the headers contradict each other: what one describes is changed on the word of another"
    )]
    Contradiction(#[source] ElfError),
    /// The program header table cannot grow.
    #[error(
        "no room for one more program header: the table ends at {table_end:#x}, {free:#x} bytes \
         before {name}, which cannot move"
    )]
    NoRoom {
        /// File offset of the table's end.
        table_end: u64,
        /// What stands in the way.
        name: String,
        /// Bytes between.
        free: u64,
    },
}

/// Takes the device code out of a fat binary. `wrappers` are all of its wrappers, as
/// [`crate::fatbin::wrapper::read`] gives them; each is made to point at `marker` with its place in
/// the array as code-object index. Reads headers, relocations and symbols of `r`, not the code.
///
/// Fails where the file is not a fat binary, is damaged, or has no room for one more segment.
pub fn convert(
    r: &dyn ReadAt,
    image: &Image,
    wrappers: &[Wrapper],
    marker: &[u8],
) -> Result<Conversion, ConvertError> {
    check(image, wrappers, marker)?;
    let layout = layout::plan(image, marker.len() as u64)?;
    let converter = Converter { r, image, layout: &layout, edits: Edits::default() };
    let conversion = converter.run(wrappers, marker)?;
    verify::conversion(r, image, wrappers, &conversion, marker)
        .map_err(ConvertError::Contradiction)?;
    Ok(conversion)
}

fn check(image: &Image, wrappers: &[Wrapper], marker: &[u8]) -> Result<(), ConvertError> {
    match image.state() {
        State::Fat => {}
        State::NoSections => return Err(ConvertError::NotFat("it has no section headers")),
        State::Plain => return Err(ConvertError::NotFat("it has no device code")),
        State::Converted => return Err(ConvertError::NotFat("it is converted already")),
    }
    let found = marker.len() as u64;
    if found == 0 || found > MAX_MARKER {
        return Err(ConvertError::Marker { found });
    }
    if wrappers.is_empty() {
        return Err(ElfError::Missing("wrapper for the device code".into()).into());
    }
    if let Some(w) = wrappers.iter().find(|w| w.magic != Magic::Hipf) {
        let field = format!("magic of wrapper {}", w.index);
        let magic = w.magic as u32;
        return Err(ElfError::field(field, w.offset, magic, "0x48495046 (HIPF)").into());
    }
    if image.sections.len() + 1 >= usize::from(SHN_LORESERVE) || u16_at(&image.ehdr, 60) == 0 {
        return Err(ConvertError::Unsupported("extended section numbering".into()));
    }
    for (i, s) in image.sections.iter().enumerate() {
        if matches!(s.sh_type, SHT_GROUP | SHT_SYMTAB_SHNDX) {
            return Err(ConvertError::Unsupported(format!("section {i} of type {}", s.sh_type)));
        }
    }
    let names = image.sections.get(image.e_shstrndx as usize).filter(|s| s.sh_size != 0);
    if names.is_none_or(Section::is_alloc) {
        return Err(ConvertError::Unsupported("a section name table that is loaded".into()));
    }
    Ok(())
}

struct Converter<'a> {
    r: &'a dyn ReadAt,
    image: &'a Image,
    layout: &'a Layout,
    edits: Edits,
}

impl Converter<'_> {
    fn run(mut self, wrappers: &[Wrapper], marker: &[u8]) -> Result<Conversion, ConvertError> {
        let order = self.section_order();
        let mut numbers = vec![0u32; self.image.sections.len()];
        for (new, old) in (0..).zip(&order) {
            if let Some(old) = old {
                numbers[*old] = new;
            }
        }

        // The bytes behind the input: first the new segment, if there is one.
        let end = self.input_end();
        let mut tail = Vec::new();
        let tail_start = end - (self.layout.cut.end - self.layout.cut.start);
        let mut append = 0;
        if let Mode::Append(size) = self.layout.mode {
            append = tail_start.next_multiple_of(PAGE);
            tail.resize(to_index(append - tail_start + size), 0);
        }

        let mut sections = self.sections(&numbers);
        self.symbols(&numbers)?;
        self.dynamic()?;
        self.wrappers(wrappers)?;
        self.move_bytes(marker, append, tail_start, &mut tail)?;
        let segments = self.segments(append)?;
        for (i, section) in sections.iter_mut().enumerate() {
            if let Some(offset) = self.moved_offset(section.sh_addr, i, append) {
                section.sh_offset = offset;
            }
        }

        let names = &self.image.sections[self.image.e_shstrndx as usize];
        let what = "the section names";
        let mut name_bytes = read_table(self.r, what, names.sh_offset, names.sh_size, 1)?;
        if name_bytes.last() != Some(&0) {
            name_bytes.push(0);
        }
        let Ok(sh_name) = u32::try_from(name_bytes.len()) else {
            return Err(ConvertError::Unsupported("a section name table of 4 GiB".into()));
        };
        name_bytes.extend(KPACK_REF.as_bytes());
        name_bytes.push(0);
        let shstrtab = &mut sections[self.image.e_shstrndx as usize];
        shstrtab.sh_offset = tail_start + tail.len() as u64;
        shstrtab.sh_size = name_bytes.len() as u64;
        tail.extend(name_bytes);
        let e_shoff = (tail_start + tail.len() as u64).next_multiple_of(8);
        tail.resize(to_index(e_shoff - tail_start), 0);

        let marker_offset = self.new_offset(self.layout.marker, append);
        let vaddr = self.layout.marker;
        let marker_section =
            layout::marker_section(sh_name, vaddr, marker_offset, marker.len() as u64);
        for old in &order {
            old.map_or(&marker_section, |old| &sections[old]).write(&mut tail);
        }

        let mut table = Vec::new();
        segments.iter().for_each(|segment| segment.write(&mut table));
        self.edits.write(self.image.e_phoff, &table);
        let count = |n: usize| u16::try_from(n).expect("the counts were checked");
        self.edits.write(40, &e_shoff.to_le_bytes());
        self.edits.write(56, &count(segments.len()).to_le_bytes());
        self.edits.write(60, &count(order.len()).to_le_bytes());
        let e_shstrndx = numbers[self.image.e_shstrndx as usize];
        self.edits.write(62, &count(e_shstrndx as usize).to_le_bytes());

        let len = tail_start + tail.len() as u64;
        let removed = self.layout.cut.end - self.layout.cut.start;
        let pieces = self.edits.into_pieces(self.layout.cut.clone(), end, tail);
        debug_assert_eq!(pieces.iter().map(Piece::len).sum::<u64>(), len);
        Ok(Conversion { pieces, len, marker_vaddr: vaddr, removed })
    }

    /// The new section table as places in the old one; `None` is the marker's, in address order.
    /// Sections that move keep their places: GNU strip goes through the table along `sh_link`, and
    /// would number the sections anew, but not those in dynamic symbols.
    fn section_order(&self) -> Vec<Option<usize>> {
        let after = match self.layout.mode {
            Mode::Append(_) => self.image.sections.iter().rposition(Section::is_alloc),
            _ => None,
        };
        let mut order: Vec<Option<usize>> = (0..self.image.sections.len()).map(Some).collect();
        order.insert(after.unwrap_or(self.layout.fatbin) + 1, None);
        order
    }

    /// Where the input ends, for the section headers and their names, which are written anew, are not
    /// needed where nothing stands behind them.
    fn input_end(&self) -> u64 {
        let image = self.image;
        let names = image.e_shstrndx as usize;
        let table_end = image.e_shoff + image.sections.len() as u64 * SHDR_SIZE;
        let phdrs_end = image.e_phoff + image.segments.len() as u64 * PHDR_SIZE;
        let sections = image.sections.iter().enumerate().skip(1);
        let sections = sections.filter(|(i, s)| *i != names && s.sh_type != 0);
        let used = sections
            .map(|(_, s)| s.file_range())
            .chain(image.segments.iter().map(Segment::file_range))
            .filter(|range| !range.is_empty())
            .map(|range| range.end)
            .fold(phdrs_end.max(64), u64::max);
        let names = image.sections[names].file_range();
        if table_end != image.file_len || used > image.e_shoff || names.end > image.e_shoff {
            return image.file_len;
        }
        if used <= names.start && image.e_shoff - names.end < 16 {
            names.start
        } else {
            image.e_shoff
        }
    }

    /// The file offset, in the new file, of a byte of the input.
    fn sunk(&self, offset: u64) -> u64 {
        let cut = &self.layout.cut;
        if offset >= cut.end { offset - (cut.end - cut.start) } else { offset.min(cut.start) }
    }

    /// Where the input has the byte of an address in the segment of the device code.
    fn code_offset(&self, vaddr: u64) -> u64 {
        let load = &self.image.segments[self.layout.load];
        load.p_offset + (vaddr - load.p_vaddr)
    }

    /// The offset, in the new file, of an address where the marker is put. `append` is the offset of
    /// the appended segment.
    fn new_offset(&self, vaddr: u64, append: u64) -> u64 {
        match self.layout.mode {
            Mode::Append(_) => append + (vaddr - self.layout.marker),
            _ => self.sunk(self.code_offset(vaddr)),
        }
    }

    /// The new file offset of a section that moved.
    fn moved_offset(&self, new_addr: u64, section: usize, append: u64) -> Option<u64> {
        let unit = self.layout.units.iter().find(|unit| unit.sections.contains(&section))?;
        Some(if unit.stays {
            unit.file.start.wrapping_add(new_addr.wrapping_sub(unit.old))
        } else {
            self.new_offset(new_addr, append)
        })
    }

    fn moved_addr(&self, vaddr: u64) -> Option<u64> {
        self.layout.units.iter().find_map(|unit| unit.moved(vaddr))
    }

    /// The section headers in their old order, with everything but offsets of moved sections.
    fn sections(&self, numbers: &[u32]) -> Vec<Section> {
        let renumber = |n: u32| numbers.get(n as usize).copied().unwrap_or(n);
        let mut sections = self.image.sections.clone();
        for (i, s) in sections.iter_mut().enumerate().skip(1) {
            s.sh_link = renumber(s.sh_link);
            if matches!(s.sh_type, SHT_RELA | SHT_REL) || s.sh_flags & SHF_INFO_LINK != 0 {
                s.sh_info = renumber(s.sh_info);
            }
            if i == self.layout.fatbin {
                s.sh_type = SHT_NOBITS;
                s.sh_size = self.layout.nobits;
            } else if self.layout.units.iter().any(|unit| unit.sections.contains(&i)) {
                s.sh_addr = self.moved_addr(s.sh_addr).expect("the section is in a unit");
            } else {
                s.sh_offset = self.sunk(s.sh_offset);
            }
        }
        sections
    }

    fn segments(&self, append: u64) -> Result<Vec<Segment>, ElfError> {
        let layout = self.layout;
        let mut segments = self.image.segments.clone();
        for s in &mut segments {
            let moved = layout.units.iter().find(|unit| {
                let file = s.file_range();
                s.p_type != PT_LOAD && !file.is_empty() && unit.file.contains(&file.start)
            });
            if let Some(unit) = moved {
                let new = s.p_offset - unit.file.start + unit.new;
                s.p_offset = if unit.stays {
                    s.p_offset.wrapping_add(unit.new.wrapping_sub(unit.old))
                } else {
                    self.new_offset(new, append)
                };
                (s.p_vaddr, s.p_paddr) = (new, s.p_paddr.wrapping_add(new.wrapping_sub(s.p_vaddr)));
            } else {
                s.p_offset = self.sunk(s.p_offset);
            }
        }
        match layout.mode {
            Mode::InPlace => {}
            Mode::Behead(kept) => {
                let s = &mut segments[layout.load];
                let gone = kept - s.p_vaddr;
                (s.p_vaddr, s.p_paddr) = (kept, s.p_paddr.wrapping_add(gone));
                (s.p_filesz, s.p_memsz) = (s.p_filesz - gone, s.p_memsz - gone);
                s.p_offset = layout.cut.start;
            }
            Mode::Split(kept) => {
                let old = &self.image.segments[layout.load];
                let first = &mut segments[layout.load];
                let hole = layout.cut.start - old.p_offset;
                let before = kept - old.p_vaddr;
                (first.p_filesz, first.p_memsz) = (hole, layout.hole_end - old.p_vaddr);
                first.p_offset = old.p_offset;
                // eu-elflint does not like executable segments without code, nor writable ones where nothing is written.
                let has = |flag: u64, from: u64, to: u64| {
                    let with = self
                        .image
                        .sections
                        .iter()
                        .filter(|s| s.is_alloc() && s.sh_flags & flag != 0);
                    with.map(|s| self.moved_addr(s.sh_addr).unwrap_or(s.sh_addr))
                        .any(|at| (from..to).contains(&at))
                };
                if !has(SHF_EXECINSTR, old.p_vaddr, kept) {
                    first.p_flags &= !PF_X;
                }
                let end = old.memory_range().end;
                let mut flags = old.p_flags;
                if !has(SHF_EXECINSTR, kept, end) {
                    flags &= !PF_X;
                }
                // Linkers give relocations to sections that nobody is to write to, where the segment is writable.
                if !has(SHF_WRITE, kept, end) && !pointer::any_in(self.r, self.image, &(kept..end))?
                {
                    flags &= !PF_W;
                }
                let rest = Segment {
                    p_flags: flags,
                    p_offset: layout.cut.start,
                    p_vaddr: kept,
                    p_paddr: old.p_paddr.wrapping_add(before),
                    p_filesz: old.p_filesz - before,
                    p_memsz: old.p_memsz - before,
                    ..old.clone()
                };
                segments.insert(layout.load + 1, rest);
            }
            Mode::Append(size) => {
                let last = segments.iter().rposition(|s| s.p_type == PT_LOAD);
                let new = Segment {
                    p_type: PT_LOAD,
                    p_flags: 4,
                    p_offset: append,
                    p_vaddr: layout.marker,
                    p_paddr: layout.marker,
                    p_filesz: size,
                    p_memsz: size,
                    p_align: PAGE,
                };
                segments.insert(last.map_or(0, |i| i + 1), new);
            }
        }
        // It stands before every PT_LOAD, so nothing that was inserted has moved it.
        if let Some(spare) = layout.spare {
            segments.remove(spare);
        }
        let table = segments.len() as u64 * PHDR_SIZE;
        for s in &mut segments {
            if s.p_type == PT_PHDR {
                (s.p_filesz, s.p_memsz) = (s.p_filesz.max(table), s.p_memsz.max(table));
            }
            // Offsets sink by pages of 4096, which is what x86-64 maps by.
            while s.p_type == PT_LOAD
                && s.p_align > PAGE
                && !s.p_vaddr.wrapping_sub(s.p_offset).is_multiple_of(s.p_align)
            {
                s.p_align /= 2;
            }
        }
        Ok(segments)
    }

    /// Renumbers the sections of symbols, and moves symbols that stand for moved sections.
    fn symbols(&mut self, numbers: &[u32]) -> Result<(), ConvertError> {
        let code = &self.image.sections[self.layout.fatbin];
        let nobits_end = code.sh_addr + self.layout.nobits;
        // Thousands of sections can show the same bytes.
        let is_table = |s: &&Section| matches!(s.sh_type, SHT_SYMTAB | SHT_DYNSYM);
        let tables = self.image.sections.iter().filter(is_table);
        let all = tables.fold(0, |all: u64, table| all.saturating_add(table.sh_size));
        if all > MAX_SYMBOLS {
            let expected = format!("at most {MAX_SYMBOLS:#x}");
            let field = "sh_size of all symbol tables";
            return Err(ElfError::field(field, self.image.e_shoff, all, expected).into());
        }
        for (i, table) in self.image.sections.iter().enumerate() {
            if !matches!(table.sh_type, SHT_SYMTAB | SHT_DYNSYM) {
                continue;
            }
            let field = |name: &str| format!("{name} of section {i} ({})", table.name);
            if !table.sh_size.is_multiple_of(SYM_SIZE as u64) {
                let at = self.image.e_shoff + i as u64 * SHDR_SIZE + 32;
                let size = table.sh_size;
                return Err(ElfError::field(field("sh_size"), at, size, "a multiple of 24").into());
            }
            let mut bytes = self.edits.read(self.r, &table.name, table.file_range())?;
            for symbol in bytes.chunks_exact_mut(SYM_SIZE) {
                let (st_shndx, st_value) = (u16_at(symbol, 6), u64_at(symbol, 8));
                if st_shndx >= SHN_LORESERVE {
                    continue;
                }
                let old = usize::from(st_shndx);
                let Some(&new) = numbers.get(old) else { continue };
                let mut new = u16::try_from(new).expect("the count of sections was checked");
                if old != 0
                    && self.is_moved(old)
                    && let Some(moved) = self.moved_addr(st_value)
                {
                    symbol[8..16].copy_from_slice(&moved.to_le_bytes());
                } else if old == self.layout.fatbin
                    && st_value > nobits_end
                    && table.sh_type == SHT_SYMTAB
                {
                    // It names a bundle where other things are now.
                    new = SHN_ABS;
                }
                symbol[6..8].copy_from_slice(&new.to_le_bytes());
            }
            self.edits.write(table.sh_offset, &bytes);
        }
        Ok(())
    }

    fn is_moved(&self, section: usize) -> bool {
        self.layout.units.iter().any(|unit| unit.sections.contains(&section))
    }

    fn dynamic(&mut self) -> Result<(), ConvertError> {
        let dynamic = Dynamic::read_entries(self.r, self.image)?;
        let code = self.image.sections[self.layout.fatbin].memory_range();
        if let Some((tag, at)) = dynamic.pointers().find(|(_, at)| code.contains(at)) {
            let what = format!("what the dynamic entry with tag {tag:#x} points at");
            return Err(ElfError::overlap(what, HIP_FATBIN, at).into());
        }
        for tag in [DT_HASH, DT_GNU_HASH, DT_SYMTAB, DT_STRTAB] {
            if let Some(value) = dynamic.get(tag)
                && let Some(moved) = self.moved_addr(value)
                && let Some(at) = dynamic.value_offset(tag)
            {
                self.edits.write(at, &moved.to_le_bytes());
            }
        }
        Ok(())
    }

    fn wrappers(&mut self, wrappers: &[Wrapper]) -> Result<(), ConvertError> {
        let marker = self.layout.marker.to_le_bytes();
        let mut symbols = Vec::new();
        for w in wrappers {
            self.inside(w.offset..w.offset + WRAPPER_SIZE, "a wrapper")?;
            self.edits.write(w.offset, &(Magic::Hipk as u32).to_le_bytes());
            self.edits.write(w.offset + 16, &w.index.to_le_bytes());
            match w.target.fixup {
                Fixup::Stored | Fixup::Relr => self.edits.write(w.target.offset, &marker),
                Fixup::Relative { rela } => {
                    self.inside(rela..rela + RELA_SIZE, "a relocation")?;
                    self.edits.write(rela + 16, &marker);
                }
                Fixup::Symbol { rela, index } => symbols.push((index, rela, w.target.vaddr)),
            }
            // Some linkers store the address as well, others leave 0.
            if w.target.stored == w.target.value {
                self.edits.write(w.target.offset, &marker);
            }
        }

        // DT_RELACOUNT promises that so many relocations from the first on are RELATIVE, and no
        // others: a relocation that becomes one changes places with the first that is not. In
        // ascending order, so that none is moved before its turn.
        symbols.sort_unstable();
        let dynamic = Dynamic::read_entries(self.r, self.image)?;
        let mut count = dynamic.get(DT_RELACOUNT);
        for (index, rela, vaddr) in symbols {
            self.inside(rela..rela + RELA_SIZE, "a relocation")?;
            let mut at = rela;
            if let Some(first) = count.filter(|&first| first <= index) {
                at = rela - (index - first) * RELA_SIZE;
                self.inside(at..at + RELA_SIZE, "a relocation")?;
                let other = self.edits.read(self.r, "a relocation", at..at + RELA_SIZE)?;
                self.edits.write(rela, &other);
                count = Some(first + 1);
            }
            let mut relocation = vaddr.to_le_bytes().to_vec();
            relocation.extend(u64::from(R_X86_64_RELATIVE).to_le_bytes());
            relocation.extend(marker);
            self.edits.write(at, &relocation);
        }
        if let (Some(count), Some(at)) = (count, dynamic.value_offset(DT_RELACOUNT)) {
            self.edits.write(at, &count.to_le_bytes());
        }
        Ok(())
    }

    /// What is changed must not be device code, of which nothing stays.
    fn inside(&self, range: Range<u64>, what: &str) -> Result<(), ElfError> {
        let code = self.image.sections[self.layout.fatbin].file_range();
        if range.start < code.end && code.start < range.end {
            return Err(ElfError::overlap(what, HIP_FATBIN, range.start));
        }
        Ok(())
    }

    /// Moves sections and puts the marker in its place.
    fn move_bytes(
        &mut self,
        marker: &[u8],
        append: u64,
        tail_start: u64,
        tail: &mut [u8],
    ) -> Result<(), ConvertError> {
        let mut contents = Vec::new();
        for unit in &self.layout.units {
            contents.push(self.edits.read(self.r, "a section", unit.file.clone())?);
        }
        for range in &self.layout.zero {
            self.edits.zero(range.clone());
        }
        for unit in &self.layout.units {
            self.edits.zero(unit.file.clone());
        }
        let placed = self.layout.units.iter().zip(&contents).map(|(unit, bytes)| {
            let stays = unit.stays.then(|| unit.file.start + unit.new - unit.old);
            (stays, unit.new, bytes.as_slice())
        });
        for (stays, vaddr, bytes) in placed.chain([(None, self.layout.marker, marker)]) {
            if let Some(offset) = stays {
                self.edits.write(offset, bytes);
            } else if matches!(self.layout.mode, Mode::Append(_)) {
                let at = to_index(append - tail_start + (vaddr - self.layout.marker));
                tail[at..at + bytes.len()].copy_from_slice(bytes);
            } else {
                let offset = self.code_offset(vaddr);
                self.edits.write(offset, bytes);
            }
        }
        Ok(())
    }
}

fn to_index(n: u64) -> usize {
    usize::try_from(n).expect("the end of the file is in memory")
}
