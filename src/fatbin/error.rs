//! What can be wrong with an offload bundle, plain or compressed.

use std::io;

use crate::fatbin::bundle::{MAX_ENTRIES, MAX_ID_LEN, MAX_TABLES};
use crate::target::{TargetError, TargetId};

/// Why bytes are no bundle, or not a whole one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The bytes could not be read.
    #[error("cannot read at {offset:#x}")]
    Io {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The end comes before the structure is whole.
    #[error("{field} at {offset:#x} is cut off: {available:#x} bytes are left")]
    Truncated {
        /// Where the structure begins.
        offset: u64,
        /// What it is.
        field: &'static str,
        /// Bytes from there to the limit.
        available: u64,
    },
    /// Neither magic is there.
    #[error(
        "no offload bundle begins at {offset:#x}: found {found:02x?}, expected `__CLANG_OFFLOAD_BUNDLE__` or `CCOB`"
    )]
    Magic {
        /// Where.
        offset: u64,
        /// The bytes there.
        found: Vec<u8>,
    },
    /// More entries than a bundle can have.
    #[error("the bundle claims {found} entries, expected at most {MAX_ENTRIES}")]
    Count {
        /// The claimed number.
        found: u64,
    },
    /// The tables of a file's bundles are too large together.
    #[error(
        "with the bundle at {offset:#x} the tables of all bundles take over {MAX_TABLES:#x} bytes, expected a few kilobytes each"
    )]
    Tables {
        /// Where the bundle begins with which they do.
        offset: u64,
    },
    /// An id longer than any target's.
    #[error("the id of bundle entry {entry} claims {found} bytes, expected at most {MAX_ID_LEN}")]
    IdLength {
        /// Which entry.
        entry: usize,
        /// The claimed length.
        found: u64,
    },
    /// An id that does not read `kind-arch-vendor-os-environment-target`.
    #[error(
        "bundle entry {entry} has the id `{id}`, expected `hipv4-amdgcn-amd-amdhsa--` and a target, or `host-…`"
    )]
    Id {
        /// Which entry.
        entry: usize,
        /// The id, with what is not UTF-8 replaced.
        id: String,
    },
    /// An id whose last part is no target id.
    #[error("bundle entry {entry} has the id `{id}`")]
    Target {
        /// Which entry.
        entry: usize,
        /// The id.
        id: String,
        /// Why.
        source: TargetError,
    },
    /// An entry that is not inside the bundle.
    #[error(
        "bundle entry {entry} has {size:#x} bytes at {offset:#x}, but the bundle has {limit:#x} bytes"
    )]
    EntryRange {
        /// Which entry.
        entry: usize,
        /// Its claimed offset from the bundle's start.
        offset: u64,
        /// Its claimed size.
        size: u64,
        /// The most that the bundle can have.
        limit: u64,
    },
    /// An entry that begins inside the entry table.
    #[error(
        "bundle entry {entry} begins at {offset:#x}, inside the entry table, which ends at {table_end:#x}"
    )]
    EntryInTable {
        /// Which entry.
        entry: usize,
        /// Its claimed offset from the bundle's start.
        offset: u64,
        /// Where the table ends.
        table_end: u64,
    },
    /// Two entries share bytes.
    #[error("bundle entries `{first}` and `{second}` overlap at {offset:#x}")]
    Overlap {
        /// Id of the entry that begins first.
        first: String,
        /// Id of the other.
        second: String,
        /// Where the second begins.
        offset: u64,
    },
    /// Two entries for one target.
    #[error("the bundle has two entries for {target}")]
    Duplicate {
        /// The target.
        target: TargetId,
    },
    /// A compressed bundle of an unknown version.
    #[error("compressed bundle version at {offset:#x} is {found}, expected 1, 2 or 3")]
    Version {
        /// Where the field is.
        offset: u64,
        /// The version.
        found: u16,
    },
    /// A compressed bundle of an unknown method.
    #[error("compression method at {offset:#x} is {found}, expected 0 (zlib) or 1 (zstd)")]
    Method {
        /// Where the field is.
        offset: u64,
        /// The method.
        found: u16,
    },
    /// A total size that the section cannot hold.
    #[error(
        "compressed bundle's total size at {offset:#x} is {found:#x}, but {available:#x} bytes are left"
    )]
    TotalSize {
        /// Where the field is.
        offset: u64,
        /// The claimed size, header included.
        found: u64,
        /// Bytes from the bundle's start to the limit.
        available: u64,
    },
    /// An uncompressed size that no stream of this length can give.
    #[error(
        "compressed bundle at {offset:#x} claims {claimed} bytes from {payload} compressed ones, which can give at most {possible}"
    )]
    ClaimedSize {
        /// Where the bundle begins.
        offset: u64,
        /// The claimed uncompressed size.
        claimed: u64,
        /// Length of the stream.
        payload: u64,
        /// The most that such a stream can give.
        possible: u64,
    },
    /// The structure of the compressed stream is wrong.
    #[error("at {offset:#x}: {what}")]
    Frame {
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The stream cannot be decompressed.
    #[error("cannot decompress the bundle at {offset:#x}")]
    Decompress {
        /// Where the bundle or its stream begins.
        offset: u64,
        /// What the decompressor says.
        source: io::Error,
    },
    /// The stream gives more or less than claimed.
    #[error("compressed bundle claims {claimed} bytes but gives {}{actual}", if actual > claimed { "at least " } else { "" })]
    ActualSize {
        /// The claimed uncompressed size.
        claimed: u64,
        /// What came out until it was clear.
        actual: u64,
    },
    /// The hash of the uncompressed bundle is not the stated one.
    #[error("the uncompressed bundle's MD5 begins {found:02x?}, the header says {expected:02x?}")]
    Hash {
        /// Of the bytes that came out.
        found: [u8; 8],
        /// Of the header.
        expected: [u8; 8],
    },
}
