//! Changes to an input file, kept by offset until the new file is described as pieces.

use super::image::read_table;
use super::{ElfError, Piece};
use crate::read_at::ReadAt;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes that replace those of the input. Offsets are those of the input.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    /// Disjoint buffers by offset.
    buffers: BTreeMap<u64, Vec<u8>>,
}

impl Edits {
    /// Replaces the bytes from `offset` on; later writes win.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        let touched: Vec<u64> = self
            .buffers
            .range(..end)
            .rev()
            .take_while(|(at, buffer)| *at + buffer.as_slice().len() as u64 > offset)
            .map(|(&at, _)| at)
            .collect();
        let first = touched.last().map_or(offset, |&at| at.min(offset));
        let mut union = Vec::new();
        for at in touched.iter().rev() {
            let buffer = self.buffers.remove(at).expect("the key was found in the map");
            let gap = index(at - first);
            union.resize(union.len().max(gap), 0);
            union.extend(buffer);
        }
        let start = index(offset - first);
        union.resize(union.len().max(start + bytes.len()), 0);
        union[start..start + bytes.len()].copy_from_slice(bytes);
        self.buffers.insert(first, union);
    }

    /// Replaces the bytes of a range by zeros.
    pub(crate) fn zero(&mut self, range: Range<u64>) {
        self.write(range.start, &vec![0; index(range.end.saturating_sub(range.start))]);
    }

    /// Reads the input with the changes so far.
    pub(crate) fn read(
        &self,
        r: &dyn ReadAt,
        what: &str,
        range: Range<u64>,
    ) -> Result<Vec<u8>, ElfError> {
        let mut bytes = read_table(r, what, range.start, range.end - range.start, 1)?;
        for (&at, buffer) in self.buffers.range(..range.end) {
            let from = at.max(range.start);
            let to = (at + buffer.len() as u64).min(range.end);
            if from < to {
                bytes[index(from - range.start)..index(to - range.start)]
                    .copy_from_slice(&buffer[index(from - at)..index(to - at)]);
            }
        }
        Ok(bytes)
    }

    /// The input up to `end` without the bytes of `cut`, with all changes, and then `tail`. No change
    /// lies in `cut` or behind `end`.
    pub(crate) fn into_pieces(self, cut: Range<u64>, end: u64, tail: Vec<u8>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = 0;
        for (offset, buffer) in self.buffers {
            debug_assert!(offset >= cut.end || offset + buffer.len() as u64 <= cut.start);
            push_input(&mut pieces, at..offset, &cut);
            at = offset + buffer.len() as u64;
            push_bytes(&mut pieces, buffer);
        }
        push_input(&mut pieces, at..end, &cut);
        push_bytes(&mut pieces, tail);
        pieces
    }
}

fn push_input(pieces: &mut Vec<Piece>, range: Range<u64>, cut: &Range<u64>) {
    let before = range.start..range.end.min(cut.start);
    let after = range.start.max(cut.end)..range.end;
    let parts = if cut.is_empty() { [range, 0..0] } else { [before, after] };
    for part in parts {
        if part.start < part.end {
            pieces.push(Piece::Input { offset: part.start, len: part.end - part.start });
        }
    }
}

fn push_bytes(pieces: &mut Vec<Piece>, bytes: Vec<u8>) {
    match pieces.last_mut() {
        Some(Piece::Bytes(last)) => last.extend(bytes),
        _ if bytes.is_empty() => {}
        _ => pieces.push(Piece::Bytes(bytes)),
    }
}

fn index(n: u64) -> usize {
    usize::try_from(n).expect("edits are in memory")
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "the files of the tests are small")]
mod tests {
    use super::*;

    fn assemble(input: &[u8], pieces: &[Piece]) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Input { offset, len } => {
                    out.extend(&input[*offset as usize..(*offset + *len) as usize]);
                }
                Piece::Bytes(bytes) => out.extend(bytes),
            }
        }
        out
    }

    #[test]
    fn overlapping_writes_become_one_buffer() {
        let input = *b"0123456789abcdef";
        let mut edits = Edits::default();
        edits.write(2, b"CDE");
        edits.write(6, b"GHI");
        edits.write(4, b"xyz");
        edits.write(12, b"MN");
        edits.zero(13..15);
        let seen = edits.read(input.as_slice().as_read(), "bytes", 1..16).unwrap();
        assert_eq!(seen, b"1CDxyzHI9abM\0\0f");
        let pieces = edits.into_pieces(9..11, 16, b"!".to_vec());
        assert_eq!(assemble(&input, &pieces), b"01CDxyzHIbM\0\0f!");
    }

    #[test]
    fn untouched_input_is_one_piece() {
        let pieces = Edits::default().into_pieces(0..0, 16, Vec::new());
        assert_eq!(pieces, [Piece::Input { offset: 0, len: 16 }]);
    }

    trait AsRead {
        fn as_read(&self) -> &dyn ReadAt;
    }

    impl AsRead for [u8] {
        fn as_read(&self) -> &dyn ReadAt {
            // A slice is unsized; a reference to it is a reader that can be a trait object.
            Box::leak(Box::new(self.to_vec()))
        }
    }
}
