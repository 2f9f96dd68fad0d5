//! What a program or library asks of the loader, and what it offers: its dynamic section, symbol
//! versions, and the symbols that it takes from others.
//!
//! ```text
//! DT_VERNEED   Elf64_Verneed, 16 bytes, for each library: vn_cnt, vn_file, vn_aux, vn_next;
//!              Elf64_Vernaux, 16 bytes, for each version: vna_other (its number), vna_name, vna_next
//! DT_VERDEF    Elf64_Verdef, 20 bytes, for each version: vd_flags, vd_aux, vd_next; the name of the
//!              version is that of its first Elf64_Verdaux, 8 bytes: vda_name, vda_next
//! DT_VERSYM    for each dynamic symbol the number of its version, 2 bytes
//! ```
//!
//! Only these tables are read, never code or data. Each walk is bounded by a count, and each name by a
//! length. Source: gABI chapter 5; Linux Standard Base, "Symbol Versioning".

use std::cell::Cell;
use std::collections::BTreeMap;

use super::dynamic::{DT_GNU_HASH, DT_HASH, DT_STRTAB, DT_SYMTAB, Dynamic};
use super::image::{ET_DYN, Image, PT_INTERP, SHT_DYNAMIC, SHT_DYNSYM, read_table};
use super::{ElfError, u16_at, u32_at};
use crate::read_at::ReadAt;

const DT_STRSZ: u64 = 10;
const DT_DEBUG: u64 = 21;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;

/// The definition that names the library itself.
const VER_FLG_BASE: u16 = 1;
/// Version numbers up to this one stand for "none": local, and global without a version.
const VER_NDX_GLOBAL: u16 = 1;

/// More versions than any library has.
const MAX_VERSIONS: u64 = 1 << 16;
/// Dynamic symbols that are looked at: the largest libraries of the GPU stack have 200,000.
const MAX_SYMBOLS: u64 = 1 << 20;
/// A table of names up to this size is read at once, a larger one name by name.
const WHOLE_NAMES: u64 = 4 << 20;
/// The longest name of a symbol or version that is looked at.
const MAX_NAME: u64 = 16 << 10;
/// All names together, since many entries can point at one: real libraries have some 100 KB of them.
const MAX_NAMES: usize = 16 << 20;
const SYM_SIZE: u64 = 24;

/// What a file asks of the loader, and what it offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether it can be loaded as a library: `ET_DYN`, and no position-independent program (which has
    /// `DT_DEBUG`).
    pub is_library: bool,
    /// Its own name.
    pub soname: Option<String>,
    /// The libraries that it needs, in order.
    pub needed: Vec<String>,
    /// For each library, in order, the versions of it that are needed.
    pub versions_needed: Vec<(String, Vec<String>)>,
    /// The name that its version definitions have as their base; mostly the SONAME.
    pub versions_base: Option<String>,
    /// The versions that it defines, in order, without the base.
    pub versions_defined: Vec<String>,
    /// `DT_RPATH`, as written: folders with `:` between.
    pub rpath: Option<String>,
    /// `DT_RUNPATH`, as written.
    pub runpath: Option<String>,
    /// The loader that a program asks for.
    pub interpreter: Option<String>,
    /// Whether its symbols are found by `DT_HASH`.
    pub hash: bool,
    /// Whether its symbols are found by `DT_GNU_HASH`.
    pub gnu_hash: bool,
    /// The symbols that it takes from others, sorted.
    pub undefined: Vec<Undefined>,
}

/// A symbol that a file takes from a library.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undefined {
    /// Its name, as the compiler wrote it.
    pub name: String,
    /// The library and the version of it that the symbol must have, where it has one.
    pub version: Option<(String, String)>,
}

impl Needs {
    /// Reads them. A file without a dynamic section (a static program, or a file with debug
    /// information alone) needs and offers nothing. Fails where a table or name lies outside what the
    /// segments map.
    pub fn read(r: &dyn ReadAt, image: &Image) -> Result<Self, ElfError> {
        if !image.sections.is_empty() {
            // A separate debug file has the segments of its program, and none of their bytes.
            let dynamic = image.sections.iter().find(|s| s.sh_type == SHT_DYNAMIC);
            if dynamic.is_none_or(|section| section.sh_size == 0) {
                return Ok(Self::default());
            }
        }
        let dynamic = Dynamic::read(r, image)?;
        let reader = Reader { r, image, names: Names::open(r, image, &dynamic)? };
        let mut needs = Self {
            is_library: image.e_type == ET_DYN && dynamic.get(DT_DEBUG).is_none(),
            hash: dynamic.get(DT_HASH).is_some(),
            gnu_hash: dynamic.get(DT_GNU_HASH).is_some(),
            interpreter: interpreter(r, image)?,
            ..Self::default()
        };
        let numbers = reader.versions_needed(&dynamic, &mut needs)?;
        reader.versions_defined(&dynamic, &mut needs)?;
        needs.undefined = reader.undefined(&dynamic, &needs, &numbers)?;
        (needs.soname, needs.needed) = (dynamic.soname, dynamic.needed);
        (needs.rpath, needs.runpath) = (dynamic.rpath, dynamic.runpath);
        Ok(needs)
    }
}

impl Needs {
    /// Roughly what it takes in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let text = |text: &String| text.len() + size_of::<String>();
        let option = |name: &Option<String>| name.as_ref().map_or(0, text);
        let undefined = |symbol: &Undefined| {
            let version = symbol.version.as_ref();
            text(&symbol.name)
                + size_of::<Undefined>()
                + version.map_or(0, |(file, node)| file.len() + node.len())
        };
        let versions = |(file, versions): &(String, Vec<String>)| {
            text(file) + versions.iter().map(text).sum::<usize>()
        };
        size_of::<Self>()
            + [&self.soname, &self.versions_base, &self.rpath, &self.runpath, &self.interpreter]
                .into_iter()
                .map(option)
                .sum::<usize>()
            + self.needed.iter().chain(&self.versions_defined).map(text).sum::<usize>()
            + self.versions_needed.iter().map(versions).sum::<usize>()
            + self.undefined.iter().map(undefined).sum::<usize>()
    }
}

fn interpreter(r: &dyn ReadAt, image: &Image) -> Result<Option<String>, ElfError> {
    let Some(segment) = image.segments.iter().find(|s| s.p_type == PT_INTERP) else {
        return Ok(None);
    };
    let size = segment.p_filesz.min(MAX_NAME);
    let bytes = read_table(r, "the interpreter's name", segment.p_offset, size, 1)?;
    Ok(Some(text(&bytes)))
}

/// The bytes up to the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Places in [`Needs::versions_needed`] by the number that symbols refer to.
type Numbers = BTreeMap<u16, (usize, usize)>;

struct Reader<'a> {
    r: &'a dyn ReadAt,
    image: &'a Image,
    names: Names<'a>,
}

impl Reader<'_> {
    /// Reads `size` bytes at an address.
    fn at(&self, what: &str, address: u64, size: u64) -> Result<Vec<u8>, ElfError> {
        let offset = self
            .image
            .offset_of(address, size)
            .ok_or_else(|| ElfError::outside(what, address, size, "the segments", 0))?;
        read_table(self.r, what, offset, size, 1)
    }

    fn versions_needed(&self, dynamic: &Dynamic, needs: &mut Needs) -> Result<Numbers, ElfError> {
        const WHAT: &str = "a version that is needed";
        let mut numbers = Numbers::new();
        let Some(mut address) = dynamic.get(DT_VERNEED) else { return Ok(numbers) };
        let files = count(dynamic, DT_VERNEEDNUM, "DT_VERNEEDNUM")?;
        let mut left = MAX_VERSIONS;
        for _ in 0..files {
            let entry = self.at(WHAT, address, 16)?;
            let mut versions = Vec::new();
            let mut aux = address.saturating_add(u32_at(&entry, 8).into());
            for _ in 0..u16_at(&entry, 2) {
                left = left.checked_sub(1).ok_or_else(|| too_many(WHAT, aux))?;
                let version = self.at(WHAT, aux, 16)?;
                // Bit 15 says that the version is hidden.
                let number = u16_at(&version, 6) & 0x7fff;
                numbers.insert(number, (needs.versions_needed.len(), versions.len()));
                versions.push(self.names.get(u32_at(&version, 8).into())?);
                match u32_at(&version, 12) {
                    0 => break,
                    next => aux = aux.saturating_add(next.into()),
                }
            }
            needs.versions_needed.push((self.names.get(u32_at(&entry, 4).into())?, versions));
            match u32_at(&entry, 12) {
                0 => break,
                next => address = address.saturating_add(next.into()),
            }
        }
        Ok(numbers)
    }

    fn versions_defined(&self, dynamic: &Dynamic, needs: &mut Needs) -> Result<(), ElfError> {
        const WHAT: &str = "a version that is defined";
        let Some(mut address) = dynamic.get(DT_VERDEF) else { return Ok(()) };
        for _ in 0..count(dynamic, DT_VERDEFNUM, "DT_VERDEFNUM")? {
            let entry = self.at(WHAT, address, 20)?;
            if u16_at(&entry, 6) > 0 {
                // Further names are the versions that this one builds on.
                let aux = address.saturating_add(u32_at(&entry, 12).into());
                let name = self.names.get(u32_at(&self.at(WHAT, aux, 8)?, 0).into())?;
                if u16_at(&entry, 2) & VER_FLG_BASE != 0 {
                    needs.versions_base = Some(name);
                } else {
                    needs.versions_defined.push(name);
                }
            }
            match u32_at(&entry, 16) {
                0 => break,
                next => address = address.saturating_add(next.into()),
            }
        }
        Ok(())
    }

    /// How many dynamic symbols to look at: all, as the section headers or `DT_HASH` have it; without
    /// them, or of many, those before the first that `DT_GNU_HASH` finds, which are the undefined ones.
    fn symbols(&self, dynamic: &Dynamic) -> Result<u64, ElfError> {
        const MANY: u64 = 1 << 16;
        let section = self.image.sections.iter().find(|s| s.sh_type == SHT_DYNSYM);
        let all = match (section, dynamic.get(DT_HASH)) {
            (Some(section), _) => Some(section.sh_size / SYM_SIZE),
            (None, Some(hash)) => Some(u32_at(&self.at("DT_HASH", hash, 8)?, 4).into()),
            (None, None) => None,
        };
        if let Some(all) = all.filter(|all| *all <= MANY) {
            return Ok(all);
        }
        let before = match dynamic.get(DT_GNU_HASH) {
            Some(hash) => Some(u64::from(u32_at(&self.at("DT_GNU_HASH", hash, 8)?, 4))),
            None => None,
        };
        Ok(before.or(all).unwrap_or(0).min(MAX_SYMBOLS))
    }

    fn undefined(
        &self,
        dynamic: &Dynamic,
        needs: &Needs,
        numbers: &Numbers,
    ) -> Result<Vec<Undefined>, ElfError> {
        let Some(table) = dynamic.get(DT_SYMTAB) else { return Ok(Vec::new()) };
        let count = self.symbols(dynamic)?;
        let symbols = self.at("DT_SYMTAB", table, count * SYM_SIZE)?;
        let versions = match dynamic.get(DT_VERSYM) {
            Some(versions) => self.at("DT_VERSYM", versions, count * 2)?,
            None => Vec::new(),
        };
        let mut found = Vec::new();
        for (i, symbol) in symbols.chunks_exact(24).enumerate() {
            // st_shndx is SHN_UNDEF, and st_name says something.
            if u16_at(symbol, 6) != 0 || u32_at(symbol, 0) == 0 {
                continue;
            }
            let number = versions.get(2 * i..2 * i + 2).map_or(0, |b| u16_at(b, 0) & 0x7fff);
            let version = numbers.get(&number).filter(|_| number > VER_NDX_GLOBAL);
            let version = version.and_then(|&(file, version)| {
                let (file, versions) = needs.versions_needed.get(file)?;
                Some((file.clone(), versions.get(version)?.clone()))
            });
            let name = self.names.get(u32_at(symbol, 0).into())?;
            if let Some((file, node)) = &version {
                self.names.count(file.len() + node.len())?;
            }
            found.push(Undefined { name, version });
        }
        found.sort();
        found.dedup();
        Ok(found)
    }
}

fn count(dynamic: &Dynamic, tag: u64, field: &str) -> Result<u64, ElfError> {
    let count = dynamic.get(tag).unwrap_or(0);
    if count > MAX_VERSIONS {
        let expected = format!("at most {MAX_VERSIONS:#x}");
        return Err(ElfError::field(field, dynamic.offset, count, expected));
    }
    Ok(count)
}

fn too_many(what: &str, address: u64) -> ElfError {
    ElfError::field(what, address, MAX_VERSIONS + 1, format!("at most {MAX_VERSIONS:#x} of them"))
}

/// The table of names at `DT_STRTAB`.
struct Names<'a> {
    r: &'a dyn ReadAt,
    /// Where it is in the file.
    start: u64,
    size: u64,
    /// All of it, where it is small.
    whole: Option<Vec<u8>>,
    /// Bytes that names may still have.
    left: Cell<usize>,
}

impl<'a> Names<'a> {
    fn open(r: &'a dyn ReadAt, image: &Image, dynamic: &Dynamic) -> Result<Self, ElfError> {
        let (Some(table), Some(size)) = (dynamic.get(DT_STRTAB), dynamic.get(DT_STRSZ)) else {
            return Ok(Self { r, start: 0, size: 0, whole: None, left: Cell::new(0) });
        };
        let start = image
            .offset_of(table, size)
            .ok_or_else(|| ElfError::outside("DT_STRTAB", table, size, "the segments", 0))?;
        let whole = (size <= WHOLE_NAMES)
            .then(|| read_table(r, "DT_STRTAB", start, size, 1))
            .transpose()?;
        Ok(Self { r, start, size, whole, left: Cell::new(MAX_NAMES) })
    }

    fn get(&self, at: u64) -> Result<String, ElfError> {
        let name = self.read(at)?;
        self.count(name.len())?;
        Ok(name)
    }

    fn count(&self, bytes: usize) -> Result<(), ElfError> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| {
            let expected = format!("at most {MAX_NAMES:#x} bytes in all");
            ElfError::field("the size of all names", self.start, MAX_NAMES + bytes, expected)
        })?;
        self.left.set(left);
        Ok(())
    }

    fn read(&self, at: u64) -> Result<String, ElfError> {
        const WHAT: &str = "the offset of a name";
        if at >= self.size {
            let expected = format!("less than DT_STRSZ, {:#x}", self.size);
            return Err(ElfError::field(WHAT, self.start, at, expected));
        }
        let size = (self.size - at).min(MAX_NAME);
        if let Some(whole) = &self.whole {
            let tail = usize::try_from(at).ok().and_then(|at| whole.get(at..)).unwrap_or_default();
            let end = usize::try_from(size).map_or(tail.len(), |size| size.min(tail.len()));
            return Ok(text(&tail[..end]));
        }
        // Most names are short; the few long ones cost a second read.
        let short = read_table(self.r, "a name", self.start + at, size.min(256), 1)?;
        if short.contains(&0) {
            return Ok(text(&short));
        }
        Ok(text(&read_table(self.r, "a name", self.start + at, size, 1)?))
    }
}
