//! One zstd frame of a package's content, made of blocks that look back at nothing before their text ([`crate::zstd_blocks`]), so
//! that those of a large file are made once and stand in the `.deb` and in the `.rpm`.
//!
//! What a package's archive holds is cut, by its sizes alone:
//! - a file of [`LARGE`] or more into pieces of about [`job`] bytes, each compressed by itself, at a level that costs little where
//!   it is compressed already;
//! - all between, which differs from format to format (headers, small files), into runs of at most that size.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::io::{self, Write};
use std::sync::Arc;

use twox_hash::XxHash64;

use super::compress::is_compressed;
use crate::zstd_blocks::{self, Blocks, END, Effort, MAGIC};

/// From this size on a file's content is compressed by itself. Less would hide from it what is alike in the files beside it:
/// of a kernel database of 1.7 GB, 2.7 % more bytes came of that where all files were compressed by themselves, next to none where the large ones were.
pub(super) const LARGE: u64 = 1 << 20;
/// A run of no more stands as it is: the header of a large file is most of them.
const SHORT: usize = 1 << 10;
/// The size of a frame's sum.
const SUM: usize = 4;

/// About what is compressed at a time at a level, in bytes: twice to four times as far as blocks look back.
fn job(level: i32) -> u64 {
    match level {
        ..=5 => 8 << 20,
        _ => 16 << 20,
    }
}

/// The most that is compressed at a time, in bytes.
fn most(level: i32) -> usize {
    usize::try_from(job(level) + job(level) / 2).unwrap_or(usize::MAX)
}

/// What a frame takes at most, in bytes, measured (see the test in `compress`) and rounded up: for each text that goes at a time the text, its blocks
/// and libzstd's tables.
pub(super) fn memory(level: i32, threads: u64) -> u64 {
    let at_a_time = if threads == 1 { 1 } else { threads + 1 };
    (8 << 20) + at_a_time * (2 * most(level) as u64 + tables(level))
}

fn tables(level: i32) -> u64 {
    match level {
        ..=5 => 8 << 20,
        6..=12 => 24 << 20,
        _ => 90 << 20,
    }
}

/// Encoders for pieces and runs.
pub(super) fn blocks(level: i32, threads: usize) -> Blocks {
    Blocks::new(level, most(level), threads)
}

/// How a file's content goes into the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// With what is around it.
    Run,
    /// In pieces that are compressed by themselves.
    Pieces(Cut),
}

impl Way {
    /// Of a file of `size` bytes that begins with `start` (see [`is_compressed`]).
    pub(super) fn of(start: &[u8], size: u64, level: i32) -> Self {
        match size {
            ..LARGE => Self::Run,
            _ => Self::Pieces(Cut::new(size, level, is_compressed(start))),
        }
    }
}

/// The pieces that a file's content is cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    piece: u64,
    left: u64,
    /// Of the piece.
    left_of_piece: u64,
    /// Whether the file is compressed already.
    compressed: bool,
}

impl Cut {
    fn new(size: u64, level: i32, compressed: bool) -> Self {
        let count = ((size + job(level) / 2) / job(level)).max(1);
        let piece = size.div_ceil(count);
        Self { piece, left: size, left_of_piece: piece.min(size), compressed }
    }

    /// How many pieces are to come, the one that was begun among them.
    pub(super) fn pieces(&self) -> u64 {
        self.left.div_ceil(self.piece)
    }

    /// How the pieces are compressed.
    pub(super) fn effort(&self) -> Effort {
        if self.compressed { Effort::Little } else { Effort::Full }
    }

    /// Cuts content that comes next, and gives parts of pieces to `take`, and whether they are the last of one.
    pub(super) fn each<E>(
        &mut self,
        mut content: &[u8],
        mut take: impl FnMut(&[u8], bool) -> Result<(), E>,
    ) -> Result<(), E> {
        while !content.is_empty() && self.left > 0 {
            let most = usize::try_from(self.left_of_piece).unwrap_or(usize::MAX);
            let (part, rest) = content.split_at(content.len().min(most));
            content = rest;
            self.left -= part.len() as u64;
            self.left_of_piece -= part.len() as u64;
            let last = self.left_of_piece == 0;
            if last {
                self.left_of_piece = self.piece.min(self.left);
            }
            take(part, last)?;
        }
        Ok(())
    }
}

/// Writes the frame to `W`.
pub(super) struct Frame<W> {
    out: W,
    blocks: Blocks,
    level: i32,
    /// Of all content, where the frame has one.
    sum: Option<XxHash64>,
    /// How the file that is being written goes into the frame, and whether its blocks are made elsewhere.
    way: Way,
    given: bool,
    /// The run that is being written: its start, or what of it the encoder has.
    run: Vec<u8>,
    fed: u64,
    /// Parts of the frame that are not in `out`.
    parts: VecDeque<Part>,
    /// Blocks made elsewhere that came before their turn.
    early: VecDeque<Arc<Vec<u8>>>,
}

/// Blocks of a text, once they are there.
enum Part {
    /// Made here.
    Own(Option<Vec<u8>>),
    /// Made elsewhere.
    Given(Option<Arc<Vec<u8>>>),
}

impl<W: Write> Frame<W> {
    /// Begins a frame, which ends with a `sum` or without.
    pub(super) fn new(mut out: W, level: i32, threads: usize, sum: bool) -> io::Result<Self> {
        // The descriptor: no size; whether there is a sum at the end.
        let window = zstd_blocks::window_byte(zstd_blocks::window_log(level));
        out.write_all(&[&MAGIC[..], &[u8::from(sum) << 2, window]].concat())?;
        Ok(Self {
            out,
            blocks: blocks(level, threads),
            level,
            sum: sum.then(|| XxHash64::with_seed(0)),
            way: Way::Run,
            given: false,
            run: Vec::new(),
            fed: 0,
            parts: VecDeque::new(),
            early: VecDeque::new(),
        })
    }

    /// A file of `size` bytes comes next, which begins with `start`. Where `given`, and it is compressed in pieces, their blocks come
    /// through [`give`](Self::give).
    pub(super) fn file(&mut self, start: &[u8], size: u64, given: bool) -> io::Result<()> {
        self.way = Way::of(start, size, self.level);
        self.given = given;
        if self.way == Way::Run {
            return Ok(());
        }
        self.end_run()?;
        if given {
            // Others work meanwhile, who take as much memory.
            self.blocks.shed(1);
        }
        Ok(())
    }

    /// Takes blocks of the first piece whose blocks were not given.
    pub(super) fn give(&mut self, blocks: Arc<Vec<u8>>) -> io::Result<()> {
        match self.parts.iter_mut().find(|part| matches!(part, Part::Given(None))) {
            Some(part) => *part = Part::Given(Some(blocks)),
            None => self.early.push_back(blocks),
        }
        self.put_given()
    }

    /// Ends the frame, once all blocks were given.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.end_parts()?;
        self.end()
    }

    fn end_parts(&mut self) -> io::Result<()> {
        self.end_run()?;
        while self.take()? {}
        if !self.parts.is_empty() {
            let what = "blocks of content that another writer compresses did not come";
            return Err(io::Error::other(what));
        }
        Ok(())
    }

    fn end(mut self) -> io::Result<W> {
        self.out.write_all(&END)?;
        if let Some(sum) = self.sum {
            self.out.write_all(&sum.finish().to_le_bytes()[..SUM])?;
        }
        Ok(self.out)
    }

    /// Puts into a run. What becomes of it does not depend on how many bytes come at a time.
    fn run(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.fed == 0 {
                if self.run.len() + bytes.len() <= SHORT {
                    self.run.extend_from_slice(bytes);
                    return Ok(());
                }
                self.room()?;
                let start = std::mem::take(&mut self.run);
                if !start.is_empty() {
                    self.blocks.feed(&start, false, Effort::Full)?;
                    self.fed = start.len() as u64;
                }
            }
            let most = usize::try_from(job(self.level) - self.fed).unwrap_or(usize::MAX);
            let (part, rest) = bytes.split_at(bytes.len().min(most));
            bytes = rest;
            self.fed += part.len() as u64;
            let last = self.fed == job(self.level);
            self.blocks.feed(part, last, Effort::Full)?;
            if last {
                self.fed = 0;
                self.ended()?;
            }
        }
        Ok(())
    }

    fn end_run(&mut self) -> io::Result<()> {
        if self.fed > 0 {
            self.blocks.feed(&[], true, Effort::Full)?;
            self.fed = 0;
            return self.ended();
        }
        if !self.run.is_empty() {
            let mut blocks = Vec::with_capacity(self.run.len() + 3);
            zstd_blocks::raw(&self.run, &mut blocks);
            self.run.clear();
            self.parts.push_back(Part::Own(Some(blocks)));
        }
        self.put()
    }

    /// Makes room for a text in the encoders.
    fn room(&mut self) -> io::Result<()> {
        while self.blocks.is_full() {
            self.take()?;
        }
        Ok(())
    }

    /// The last of a text is with the encoders.
    fn ended(&mut self) -> io::Result<()> {
        self.parts.push_back(Part::Own(None));
        if self.blocks.is_inline() {
            self.take()?;
        }
        Ok(())
    }

    /// Waits for the next blocks that are made here; returns whether there were any.
    fn take(&mut self) -> io::Result<bool> {
        let Some(blocks) = self.blocks.take()? else { return Ok(false) };
        if let Some(part) = self.parts.iter_mut().find(|part| matches!(part, Part::Own(None))) {
            *part = Part::Own(Some(blocks));
        }
        self.put()?;
        Ok(true)
    }

    /// Puts out blocks that were given, and waits for those made here that stand before them: all that is given would wait as well,
    /// and nobody else takes them until more runs are under way than encoders.
    fn put_given(&mut self) -> io::Result<()> {
        self.put()?;
        while matches!(self.parts.front(), Some(Part::Own(None))) && self.take()? {}
        Ok(())
    }

    /// Puts out what is there.
    fn put(&mut self) -> io::Result<()> {
        while let Some(part) = self.parts.front() {
            match part {
                Part::Own(None) | Part::Given(None) => break,
                Part::Own(Some(blocks)) => self.out.write_all(blocks)?,
                Part::Given(Some(blocks)) => self.out.write_all(blocks)?,
            }
            self.parts.pop_front();
        }
        Ok(())
    }
}

impl Frame<Vec<u8>> {
    /// Ends the frame with so many zeros more, in blocks that make it `size` bytes long. `None` where it does not come out so.
    pub(super) fn finish_filled(
        mut self,
        zeros: usize,
        size: usize,
    ) -> io::Result<Option<Vec<u8>>> {
        self.end_parts()?;
        let sum = self.sum.as_mut().map_or(0, |sum| {
            sum.write(&vec![0; zeros]);
            SUM
        });
        let left = size.checked_sub(self.out.len() + END.len() + sum);
        let Some(blocks) = left.and_then(|left| zstd_blocks::filling(zeros, left)) else {
            return Ok(None);
        };
        self.out.extend_from_slice(&blocks);
        self.end().map(Some)
    }
}

impl<W: Write> Write for Frame<W> {
    /// Takes no more at a time than is left of the file that was announced.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = match self.way {
            Way::Run => bytes.len(),
            Way::Pieces(cut) => {
                usize::try_from(cut.left).map_or(bytes.len(), |left| bytes.len().min(left))
            }
        };
        let bytes = &bytes[..taken];
        if let Some(sum) = &mut self.sum {
            sum.write(bytes);
        }
        match self.way {
            Way::Run => self.run(bytes)?,
            Way::Pieces(mut cut) => {
                let effort = cut.effort();
                cut.each(bytes, |part, last| {
                    if self.given {
                        if last {
                            self.parts.push_back(Part::Given(self.early.pop_front()));
                        }
                        return self.put_given();
                    }
                    if !self.blocks.is_fed() {
                        self.room()?;
                    }
                    self.blocks.feed(part, last, effort)?;
                    if last { self.ended() } else { Ok(()) }
                })?;
                self.way = if cut.pieces() == 0 { Way::Run } else { Way::Pieces(cut) };
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // A flush would end a run, and so change the bytes.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVEL: i32 = 1;

    /// Text in which much comes again, from near and from far.
    fn text(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let mut bytes = Vec::with_capacity(len + 64);
        while bytes.len() < len {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let back = 1 + (state >> 33) as usize % 100_000;
            match bytes.len().checked_sub(back) {
                Some(from) if state >> 60 > 3 => {
                    let len = 60.min(bytes.len() - from);
                    bytes.extend_from_within(from..from + len);
                }
                _ => bytes.extend_from_slice(&state.to_be_bytes()),
            }
        }
        bytes.truncate(len);
        bytes
    }

    /// What is written one after the other: heads of members, which differ between formats, and files.
    fn content(heads: &[u8]) -> Vec<(Vec<u8>, bool)> {
        let mut zstd_file = text(5, (2 << 20) + 7);
        zstd_file[..4].copy_from_slice(&MAGIC);
        let files = [
            text(1, 3000),
            text(2, 1 << 20),
            // Cut into two, since more than one and a half pieces.
            text(3, 13 << 20),
            // It begins as a fresh decoder's state would have it: one byte over and over.
            vec![7; 1 << 21],
            text(4, 40),
            zstd_file,
            vec![],
            text(6, (12 << 20) - 1),
        ];
        let mut parts = Vec::new();
        for (nth, file) in files.into_iter().enumerate() {
            parts.push((heads[..nth * 400 % heads.len()].to_vec(), false));
            parts.push((file, true));
        }
        parts
    }

    fn write(parts: &[(Vec<u8>, bool)], threads: usize, chunk: usize) -> Vec<u8> {
        let mut frame = Frame::new(Vec::new(), LEVEL, threads, true).unwrap();
        let put = |frame: &mut Frame<Vec<u8>>, bytes: &mut Vec<u8>| {
            bytes.chunks(chunk).for_each(|bytes| frame.write_all(bytes).unwrap());
            bytes.clear();
        };
        // The end of a file and what is behind it may come at once.
        let mut waiting = Vec::new();
        for (bytes, file) in parts {
            if *file {
                put(&mut frame, &mut waiting);
                frame.file(&bytes[..bytes.len().min(128)], bytes.len() as u64, false).unwrap();
            }
            waiting.extend_from_slice(bytes);
        }
        put(&mut frame, &mut waiting);
        frame.finish().unwrap()
    }

    #[test]
    fn a_frame_holds_what_was_written_however_many_threads_there_are() {
        let parts = content(&text(9, 3000));
        let all: Vec<u8> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let frame = write(&parts, 1, 1 << 18);
        assert!(zstd::decode_all(&frame[..]).unwrap() == all);
        assert!(frame.len() < all.len() / 2, "{} of {}", frame.len(), all.len());
        assert!(write(&parts, 3, 1 << 18) == frame);
        assert!(write(&parts, 2, 12345) == frame);
        // Its sum is checked.
        let mut damaged = frame;
        *damaged.last_mut().unwrap() ^= 1;
        assert!(zstd::decode_all(&damaged[..]).is_err());
    }

    #[test]
    fn a_frame_follows_from_its_content_however_that_comes() {
        // A run that fills its most, and leaves so little that it stands as it is.
        let most = usize::try_from(job(LEVEL)).unwrap();
        for rest in [1, 5, SHORT, SHORT + 1] {
            let parts = [(text(8, most + rest), false)];
            let frame = write(&parts, 1, usize::MAX);
            assert!(zstd::decode_all(&frame[..]).unwrap() == parts[0].0);
            for chunk in [1 << 18, 100_003, most] {
                assert!(write(&parts, 2, chunk) == frame, "{rest} {chunk}");
            }
        }
    }

    #[test]
    fn blocks_of_large_files_stand_in_another_frame_as_well() {
        let one = content(&text(9, 3000));
        let other = content(&text(10, 900));
        let mut frame = Frame::new(Vec::new(), LEVEL, 1, true).unwrap();
        let mut made = blocks(LEVEL, 2);
        let mut late = Vec::new();
        for (nth, ((bytes, file), (of_one, _))) in other.iter().zip(&one).enumerate() {
            if *file {
                let way = Way::of(bytes, bytes.len() as u64, LEVEL);
                frame.file(bytes, bytes.len() as u64, true).unwrap();
                if let Way::Pieces(mut cut) = way {
                    // Made of the other's content, given before it comes or after it.
                    let effort = cut.effort();
                    cut.each(of_one, |part, last| {
                        made.feed(part, last, effort)?;
                        let blocks = if last { made.take()?.map(Arc::new) } else { None };
                        late.extend(blocks);
                        Ok::<_, io::Error>(())
                    })
                    .unwrap();
                    if nth % 4 == 1 {
                        late.drain(..).for_each(|blocks| frame.give(blocks).unwrap());
                    }
                }
            }
            frame.write_all(bytes).unwrap();
        }
        late.drain(..).for_each(|blocks| frame.give(blocks).unwrap());
        let frame = frame.finish().unwrap();
        let all: Vec<u8> = other.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        assert!(zstd::decode_all(&frame[..]).unwrap() == all);
        assert!(frame == write(&other, 1, 1 << 18));
    }

    #[test]
    fn what_was_not_given_is_missed() {
        let file = text(1, 1 << 20);
        let mut frame = Frame::new(Vec::new(), LEVEL, 1, true).unwrap();
        frame.file(&file, 1 << 20, true).unwrap();
        frame.write_all(&file).unwrap();
        assert!(frame.finish().is_err());
    }

    #[test]
    fn files_are_cut_into_pieces_of_about_one_size() {
        let pieces = |size| {
            let cut = Cut::new(size, 3, false);
            (cut.pieces(), cut.piece)
        };
        const MIB: u64 = 1 << 20;
        assert_eq!(pieces(1), (1, 1));
        assert_eq!(pieces(12 * MIB - 1), (1, 12 * MIB - 1));
        assert_eq!(pieces(12 * MIB), (2, 6 * MIB));
        assert_eq!(pieces(20 * MIB + 1), (3, 6_990_507));
        for level in [3, 10, 19] {
            let largest = job(level) + job(level) / 2 - 1;
            assert!(Cut::new(largest, level, false).piece <= most(level) as u64);
        }
    }
}
