//! What can be wrong with a package.

use std::io;

/// Why bytes are no package.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The bytes could not be read, or not be decompressed.
    #[error("cannot read {what} at {offset:#x}")]
    Io {
        /// What was being read.
        what: String,
        /// Where, in the file or in the member's decompressed content.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// A field holds what it cannot hold.
    #[error("{what} at {offset:#x} is {found}, expected {expected}")]
    Field {
        /// Which field.
        what: String,
        /// Where, in the file or in the member's decompressed content.
        offset: u64,
        /// Its value.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// Something that every package has is not there.
    #[error("there is no {0}")]
    Missing(String),
}

impl PackageError {
    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers have numbers, texts and borrowed ones"
    )]
    pub(crate) fn field(
        what: impl Into<String>,
        offset: u64,
        found: impl ToString,
        expected: impl ToString,
    ) -> Self {
        let (found, expected) = (found.to_string(), expected.to_string());
        Self::Field { what: what.into(), offset, found, expected }
    }

    pub(crate) fn io(what: impl Into<String>, offset: u64, source: io::Error) -> Self {
        Self::Io { what: what.into(), offset, source }
    }
}
