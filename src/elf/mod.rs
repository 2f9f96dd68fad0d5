//! ELF64 x86-64 files: reading what a fat binary needs, and taking its device code out.
//!
//! The words are those of the ELF specification (`p_vaddr`, `sh_offset`); the byte-level facts are
//! in `docs/formats.md`. Everything is read by position: headers, the dynamic section, relocation
//! and symbol tables, the wrappers; never the device code, so a library of several GB costs little.
//!
//! - [`image`]: headers, segments, sections, and [`probe`], which says what a file is;
//! - [`dynamic`]: the dynamic section: SONAME, NEEDED, RPATH;
//! - [`needs`]: that, symbol versions and undefined symbols: what relations of packages are made of;
//! - [`mod@pointer`]: the address that the loader will leave in a word, and the relocation that says so;
//! - [`mod@convert`]: device code out, marker in, as a list of [`Piece`]s of the new file;
//! - [`ar`]: whether a static archive has device code;
//! - [`verify`]: the marker of a converted file, and what is wrong with a file.
//!
//! An input can lie in every field. Each fault is an [`ElfError`] with place, found and expected.

pub mod ar;
mod build_id;
pub mod convert;
pub mod dynamic;
mod edit;
pub mod image;
mod layout;
pub mod needs;
pub mod pointer;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "the files of the tests are small")]
mod testing;
pub mod verify;

pub use build_id::build_id;
pub use convert::{Conversion, ConvertError, convert};
pub use dynamic::Dynamic;
pub use image::{Image, Kind, Section, Segment, State, probe};
pub use needs::Needs;
pub use verify::{Marker, marker, problems};

use std::fmt::{Display, LowerHex};
use std::io;

/// A stretch of an output file that is made from an input file: how a converted ELF is described
/// without holding it in memory.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Piece {
    /// `len` bytes of the input file from `offset` on.
    Input {
        /// Offset in the input file.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// These bytes.
    #[serde(with = "crate::msgpack::bytes")]
    Bytes(Vec<u8>),
}

impl Piece {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Input { len, .. } => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is wrong with an ELF file.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file cannot be read.
    #[error("cannot read {what} at {offset:#x}")]
    Read {
        /// What was being read.
        what: String,
        /// Offset in the file.
        offset: u64,
        /// The system's word.
        source: io::Error,
    },
    /// Something should lie in something else and does not.
    #[error(
        "{what} at {start:#x} has {size:#x} bytes and ends outside {of}, which ends at {end:#x}"
    )]
    Outside {
        /// What lies outside.
        what: String,
        /// Where it begins: a file offset or an address, as `of` says.
        start: u64,
        /// Its size in bytes.
        size: u64,
        /// What should hold it: `the file`, `.hip_fatbin`.
        of: String,
        /// Where that ends.
        end: u64,
    },
    /// A field holds what it cannot hold.
    #[error("{field} at {offset:#x} is {found}, expected {expected}")]
    Field {
        /// Name of the field.
        field: String,
        /// Offset of the field, or of the header it is in, in the file.
        offset: u64,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
    /// Two things claim the same bytes.
    #[error("{one} overlaps {other} at {at:#x}")]
    Overlap {
        /// The one.
        one: String,
        /// The other.
        other: String,
        /// Offset or address where they meet.
        at: u64,
    },
    /// Something that the file needs is not there.
    #[error("there is no {0}")]
    Missing(String),
}

impl ElfError {
    pub(crate) fn field(
        field: impl Into<String>,
        offset: u64,
        found: impl LowerHex,
        expected: impl Display,
    ) -> Self {
        Self::Field {
            field: field.into(),
            offset,
            found: format!("{found:#x}"),
            expected: expected.to_string(),
        }
    }

    pub(crate) fn outside(
        what: impl Into<String>,
        start: u64,
        size: u64,
        of: impl Into<String>,
        end: u64,
    ) -> Self {
        Self::Outside { what: what.into(), start, size, of: of.into(), end }
    }

    pub(crate) fn overlap(one: impl Into<String>, other: impl Into<String>, at: u64) -> Self {
        Self::Overlap { one: one.into(), other: other.into(), at }
    }
}

/// The little-endian integer at `at`, where the caller knows that the bytes are there.
macro_rules! le {
    ($name:ident, $ty:ty) => {
        pub(crate) fn $name(bytes: &[u8], at: usize) -> $ty {
            const SIZE: usize = size_of::<$ty>();
            let field: [u8; SIZE] =
                bytes[at..at + SIZE].try_into().expect("the slice has the size of the integer");
            <$ty>::from_le_bytes(field)
        }
    };
}
le!(u16_at, u16);
le!(u32_at, u32);
le!(u64_at, u64);
