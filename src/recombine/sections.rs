//! In which sections two ELF files differ, so that a difference between builds can be told from one
//! that every build has (its id).

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::elf::{self, Image, Piece};
use crate::read_at::{ReadAt, Window};
use crate::tree::{InputFile, OpenInput, Source};

/// The names of the sections that differ, sorted; `None` where the two are not both programs or
/// libraries with sections. Headers that differ where no section does are called `headers`.
pub(super) fn differing(a: &Source, b: &Source) -> io::Result<Option<Vec<String>>> {
    let (Some(a), Some(b)) = (File::open(a)?, File::open(b)?) else { return Ok(None) };
    let (Some(first), Some(other)) = (image(&a), image(&b)) else { return Ok(None) };
    // Several sections can have one name: the first goes with the first. They are read in the order of
    // the first file, since going back in a member of an archive costs its way from the start.
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut theirs: BTreeMap<(&str, usize), Range<u64>> = BTreeMap::new();
    for section in other.sections.iter().skip(1) {
        let nth = seen.entry(&section.name).and_modify(|nth| *nth += 1).or_default();
        theirs.insert((&section.name, *nth), section.file_range());
    }
    seen.clear();
    let mut mine: Vec<(&str, usize, Range<u64>)> = Vec::new();
    for section in first.sections.iter().skip(1) {
        let nth = seen.entry(&section.name).and_modify(|nth| *nth += 1).or_default();
        mine.push((&section.name, *nth, section.file_range()));
    }
    mine.sort_by_key(|(_, _, range)| range.start);
    let mut differing: Vec<String> = Vec::new();
    for (name, nth, range) in mine {
        let size = range.end - range.start;
        let same = match theirs.remove(&(name, nth)) {
            Some(their) if their.end - their.start == size => {
                equal(&a, range.start, &b, their.start, size)?
            }
            _ => false,
        };
        if !same {
            differing.push(name.to_owned());
        }
    }
    differing.extend(theirs.into_keys().map(|(name, _)| name.to_owned()));
    differing.sort();
    differing.dedup();
    if differing.is_empty() {
        differing.push("headers".to_owned());
    }
    Ok(Some(differing))
}

fn image(file: &File) -> Option<Image> {
    match elf::probe(file) {
        Ok(elf::Kind::Program(image)) if !image.sections.is_empty() => Some(image),
        _ => None,
    }
}

fn equal(a: &File, at: u64, b: &File, there: u64, size: u64) -> io::Result<bool> {
    let outside = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let a = Window::new(a, at, size).ok_or_else(outside)?;
    let b = Window::new(b, there, size).ok_or_else(outside)?;
    let (mut left, mut right) = (vec![0; 128 * 1024], vec![0; 128 * 1024]);
    let mut done = 0;
    while done < size {
        let step = usize::try_from(size - done).unwrap_or(usize::MAX).min(left.len());
        a.read_exact_at(&mut left[..step], done)?;
        b.read_exact_at(&mut right[..step], done)?;
        if left[..step] != right[..step] {
            return Ok(false);
        }
        done += step as u64;
    }
    Ok(true)
}

/// The content of a tree's file, read by position.
pub(super) enum File<'a> {
    Whole(OpenInput<'a>),
    Pieces {
        input: OpenInput<'a>,
        /// Each with its start in the output.
        pieces: Vec<(u64, Piece)>,
        len: u64,
    },
}

impl<'a> File<'a> {
    /// `None` where it is made, not read.
    pub(super) fn open(source: &'a Source) -> io::Result<Option<Self>> {
        let pieces = |input: &'a InputFile, pieces: &Arc<[Piece]>| -> io::Result<Self> {
            let mut len = 0;
            let mut placed = Vec::new();
            for piece in pieces.iter() {
                placed.push((len, piece.clone()));
                len += piece.len();
            }
            Ok(Self::Pieces { input: input.open()?, pieces: placed, len })
        };
        Ok(match source {
            Source::File(input) => Some(Self::Whole(input.open()?)),
            Source::Pieces { input, pieces: list } => Some(pieces(input, list)?),
            _ => None,
        })
    }
}

impl ReadAt for File<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Whole(file) => file.len(),
            Self::Pieces { len, .. } => *len,
        }
    }

    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        let (input, pieces) = match self {
            Self::Whole(file) => return file.read_exact_at(buf, offset),
            Self::Pieces { input, pieces, .. } => (input, pieces),
        };
        while !buf.is_empty() {
            let at = pieces.partition_point(|(start, _)| *start <= offset);
            let (start, piece) = at
                .checked_sub(1)
                .and_then(|at| pieces.get(at))
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            let within = offset - start;
            let left = piece.len().saturating_sub(within);
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
            if step == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (now, rest) = buf.split_at_mut(step);
            match piece {
                Piece::Input { offset, .. } => input.read_exact_at(now, offset + within)?,
                Piece::Bytes(bytes) => bytes.read_exact_at(now, within)?,
            }
            buf = rest;
            offset += step as u64;
        }
        Ok(())
    }
}
