//! Where a file's bytes come from.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;

use super::input::{ArchiveFile, InputFile, OpenInput};
use super::kpack::{KpackPlan, KpmPlan};
use crate::elf::{self, ElfError, Needs, Piece};
use crate::read_at::Cursor;
use crate::streams;

/// The content of a file in a tree.
#[derive(Debug, Clone)]
pub enum Source {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// A whole file of the input.
    File(Arc<InputFile>),
    /// An input file with some stretches replaced: a converted ELF.
    Pieces {
        /// The file that [`Piece::Input`] speaks of.
        input: Arc<InputFile>,
        /// The output, in order.
        pieces: Arc<[Piece]>,
    },
    /// A kpack archive that is to be built from code objects of the input.
    Kpack(Arc<KpackPlan>),
    /// The manifest of kpack archives that are to be built.
    Kpm(Arc<KpmPlan>),
}

impl Source {
    /// A source of bytes in memory.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// Length in bytes; `None` for a kpack (and its manifest) that has not been built yet.
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::File(file) => Some(file.len()),
            Self::Pieces { pieces, .. } => Some(pieces.iter().map(Piece::len).sum()),
            Self::Kpack(plan) => plan.built().map(|built| built.size),
            Self::Kpm(plan) => plan.render().map(|bytes| bytes.len() as u64),
        }
    }

    /// Whether it is the other one or a copy of it, which needs no reading. Two that were read or made apart are not,
    /// also where their bytes are the same.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => Arc::ptr_eq(a, b),
            (Self::File(a), Self::File(b)) => Arc::ptr_eq(a, b),
            (Self::Pieces { pieces: a, .. }, Self::Pieces { pieces: b, .. }) => Arc::ptr_eq(a, b),
            (Self::Kpack(a), Self::Kpack(b)) => Arc::ptr_eq(a, b),
            (Self::Kpm(a), Self::Kpm(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Whether it is known to be of length 0.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Bytes that writing it will read: what progress is measured in.
    pub fn work(&self) -> u64 {
        match self {
            Self::Kpack(plan) => plan.original_size(),
            other => other.len().unwrap_or(0),
        }
    }

    /// The archive that all of it is made from, where it is one of the input.
    pub(crate) fn archive(&self) -> Option<&Arc<ArchiveFile>> {
        match self {
            Self::File(input) | Self::Pieces { input, .. } => Some(input.in_archive()?.0),
            Self::Kpack(plan) => plan.archive(),
            Self::Bytes(_) | Self::Kpm(_) => None,
        }
    }

    /// What a program or library asks of the loader, and offers; `None` where it is something else. A
    /// converted one asks for what it was converted from: taking device code out leaves the loader's
    /// tables as they were.
    pub fn needs(&self) -> Result<Option<Arc<Needs>>, ElfError> {
        match self {
            Self::File(input) | Self::Pieces { input, .. } => input.needs(),
            Self::Bytes(bytes) => match elf::probe(&&**bytes)? {
                elf::Kind::Program(image) => Ok(Some(Arc::new(Needs::read(&&**bytes, &image)?))),
                _ => Ok(None),
            },
            Self::Kpack(_) | Self::Kpm(_) => Ok(None),
        }
    }

    /// The extended attribute `security.capability` of what it is made of; see [`InputFile::capabilities`].
    pub fn capabilities(&self) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::File(input) | Self::Pieces { input, .. } => input.capabilities(),
            Self::Bytes(_) | Self::Kpack(_) | Self::Kpm(_) => Ok(None),
        }
    }

    /// Opens it for reading from the start. A kpack can be read once a sink has built it.
    pub fn open(&self) -> io::Result<Box<dyn Read + Send + '_>> {
        let not_built = || io::Error::other("the kpack has not been built yet");
        Ok(match self {
            Self::Bytes(bytes) => Box::new(&bytes[..]),
            Self::File(file) => match file.open_file()? {
                Some(plain) => Box::new(plain.take(file.len())),
                None => Box::new(Cursor::new(file.open()?, 0, file.len())),
            },
            Self::Pieces { input, pieces } => {
                Box::new(PieceReader { input: Arc::new(input.open()?), pieces, at: None })
            }
            Self::Kpack(plan) => Box::new(File::open(&plan.built().ok_or_else(not_built)?.path)?),
            Self::Kpm(plan) => Box::new(io::Cursor::new(plan.render().ok_or_else(not_built)?)),
        })
    }

    /// Copies all of it to `out`; returns the number of bytes.
    pub fn copy_to(&self, out: &mut dyn Write) -> io::Result<u64> {
        let mut reader = self.open()?;
        let mut buffer = vec![0; COPY_BUFFER];
        let total = streams::pieces(&mut reader, &mut buffer, |piece| out.write_all(piece))?;
        if self.len().is_some_and(|len| len != total) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(total)
    }
}

/// One copy's buffer: large enough that system calls do not show.
pub(super) const COPY_BUFFER: usize = 256 * 1024;

/// Reads pieces one after the other.
struct PieceReader<'a> {
    input: Arc<OpenInput<'a>>,
    pieces: &'a [Piece],
    at: Option<Box<dyn Read + Send + 'a>>,
}

impl Read for PieceReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(reader) = &mut self.at {
                let n = reader.read(buf)?;
                if n > 0 || buf.is_empty() {
                    return Ok(n);
                }
            }
            let Some((piece, rest)) = self.pieces.split_first() else { return Ok(0) };
            self.pieces = rest;
            self.at = Some(match piece {
                Piece::Bytes(bytes) => Box::new(&bytes[..]),
                Piece::Input { offset, len } => {
                    Box::new(Cursor::new(Arc::clone(&self.input), *offset, *len))
                }
            });
        }
    }
}
