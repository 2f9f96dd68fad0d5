//! The names of a code object's kernels, as its metadata note has them, for telling whether two code
//! objects came from one source file. The note stands in front of the code, so a stream is read up to its end only.

use std::io::{self, Read};

use serde::Deserialize;

use super::code_object::{CodeObjectError, CodeObjectHeader, HEADER_SIZE, Metadata};
use crate::read_at::ReadAt;
use crate::streams::fill;

/// How much of a code object is read for its note at most; real notes end within a few megabytes.
const MAX_READ: u64 = 16 << 20;

/// How much is read at first, which is enough for most.
const FIRST_READ: u64 = 32 << 10;

/// What clang puts between the name of a kernel that only its file knows (`static`, or in a namespace without a
/// name) and the id of the compilation, which differs between builds; in the second form for assemblers that know no dots.
const LOCAL: [&str; 4] = [".static.", ".intern.", "__static__", "__intern__"];

/// The kernels of one code object: hashes of their names, and one name to tell people. That is 8 bytes a kernel, of
/// which a library can have a hundred thousand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelNames {
    hashes: Box<[u64]>,
    first: Box<str>,
}

#[derive(Deserialize)]
struct Note {
    #[serde(default, rename = "amdhsa.kernels")]
    kernels: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = ".name")]
    name: String,
}

impl KernelNames {
    /// Reads a code object of `size` bytes up to the end of its notes. `None` where it names no kernel, or its notes
    /// do not end within the first 16 MiB.
    pub fn read(mut stream: impl Read, size: u64) -> Result<Option<Self>, CodeObjectError> {
        let mut start = Start { bytes: Vec::new(), len: size };
        start.read_to(&mut stream, FIRST_READ)?;
        let header = CodeObjectHeader::parse(&start.bytes)?;
        let end = header.table_end();
        if end > MAX_READ {
            return Ok(None);
        }
        start.read_to(&mut stream, end)?;
        let end = header.notes_end(&start)?;
        if end > MAX_READ {
            return Ok(None);
        }
        start.read_to(&mut stream, end)?;
        let note: Option<Note> = Metadata::read_as(&start, &header)?;
        Ok(note.and_then(|note| Self::new(note.kernels.iter().map(|kernel| kernel.name.as_str()))))
    }

    /// The kernels of these names; `None` where there are none.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut first: Option<&str> = None;
        let mut hashes = Vec::new();
        for name in names {
            let cut = LOCAL.iter().filter_map(|mark| name.find(mark)).min();
            let name = &name[..cut.unwrap_or(name.len())];
            first = Some(first.map_or(name, |first| first.min(name)));
            let mut hash = [0; 8];
            hash.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..8]);
            hashes.push(u64::from_le_bytes(hash));
        }
        hashes.sort_unstable();
        hashes.dedup();
        Some(Self { hashes: hashes.into(), first: first?.into() })
    }

    /// The hashes, in order; there is at least one.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The first name in alphabetical order, without what differs between builds.
    pub fn first(&self) -> &str {
        &self.first
    }

    /// Whether some kernel is in both.
    pub fn meets(&self, other: &Self) -> bool {
        self.hashes.iter().any(|hash| other.hashes.binary_search(hash).is_ok())
    }
}

/// The beginning of a code object, at its length.
struct Start {
    bytes: Vec<u8>,
    len: u64,
}

impl Start {
    fn read_to(&mut self, stream: &mut dyn Read, end: u64) -> Result<(), CodeObjectError> {
        let (held, end) = (self.bytes.len(), end.max(HEADER_SIZE as u64).min(self.len));
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        if end > held {
            self.bytes.resize(end, 0);
            let n = fill(stream, &mut self.bytes[held..])
                .map_err(|source| CodeObjectError::Io { offset: held as u64, source })?;
            self.bytes.truncate(held + n);
        }
        Ok(())
    }
}

impl ReadAt for Start {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.read_exact_at(buf, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> KernelNames {
        KernelNames::new(list.iter().copied()).unwrap()
    }

    #[test]
    fn what_differs_between_builds_is_no_part_of_a_name() {
        let one = names(&["_ZN12_GLOBAL__N_11kEv.intern.bf5f3091a343172c", "b"]);
        let other = names(&["_ZN12_GLOBAL__N_11kEv__intern__00", "c"]);
        assert_eq!(one.first(), "_ZN12_GLOBAL__N_11kEv");
        assert!(one.meets(&other));
        assert!(!names(&["b"]).meets(&other));
        assert_eq!(names(&["k.static.1", "k.static.2"]).hashes().len(), 1);
        assert_eq!(KernelNames::new(std::iter::empty()), None);
    }

    #[test]
    fn a_code_object_that_ends_early_or_lies_is_an_error_or_names_nothing() {
        let mut bytes = [0; 64 + 56];
        bytes[..9].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 64, 2]);
        bytes[18] = 224;
        assert!(KernelNames::read(&bytes[..], 120).unwrap().is_none());
        bytes[32] = 64; // e_phoff
        bytes[54] = 56; // e_phentsize
        bytes[56] = 1; // e_phnum
        bytes[64] = 4; // PT_NOTE
        bytes[64 + 8] = 120; // p_offset
        bytes[64 + 32] = 16; // p_filesz
        assert!(KernelNames::read(&bytes[..], 120).is_err());
        assert!(KernelNames::read(&bytes[..], 1 << 30).is_err());
        bytes[64 + 8..64 + 16].fill(0xff);
        assert!(KernelNames::read(&bytes[..], 120).unwrap().is_none());
        assert!(KernelNames::read(&bytes[..63], 120).is_err());
    }
}
