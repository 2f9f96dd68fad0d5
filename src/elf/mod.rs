//! ELF64 x86-64 files: reading what a fat binary needs, and taking its device code out.

/// A stretch of an output file that is made from an input file: how a converted ELF is described
/// without holding it in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// `len` bytes of the input file from `offset` on.
    Input {
        /// Offset in the input file.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// These bytes.
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

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
