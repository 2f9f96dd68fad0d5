//! zstd blocks that look back at nothing before their text, so that they can stand in any frame.
//!
//! Blocks of one frame cannot simply stand in another: they may name the last offsets and the tables of the blocks before. libzstd makes
//! those that do not in its jobs for several threads, all but the first: so a text is compressed as a job that is not the
//! first of its frame. Source: RFC 8878; zstd.h, `ZSTD_c_nbWorkers`, `ZSTD_c_overlapLog` (1: no overlap).
//!
//! ```text
//! frame    28 b5 2f fd, descriptor, window ([`window_byte`])
//!          blocks of any texts, the last of them END
//!          where the descriptor says so, four bytes of the XXH64 of all text
//! ```

use std::collections::VecDeque;
use std::io;

use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, get_error_name};

/// What a frame begins with.
pub(crate) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The last block of a frame: a raw one, empty.
pub(crate) const END: [u8; 3] = [1, 0, 0];
/// The most text that a block may have.
const MOST: usize = 128 << 10;

/// How far blocks of a level look back, as a logarithm of bytes: libzstd's own choice for text of unknown length.
pub(crate) fn window_log(level: i32) -> u8 {
    match level {
        ..=1 => 19,
        2 => 20,
        3..=8 => 21,
        9..=16 => 22,
        _ => 23,
    }
}

/// The byte of a frame's header that says how far blocks look back: the logarithm, less ten, in the upper five bits.
pub(crate) const fn window_byte(window_log: u8) -> u8 {
    (window_log - 10) << 3
}

/// Appends a text as it is: blocks of type 0, which is in the bits below the size with whether the block is the last.
pub(crate) fn raw(text: &[u8], to: &mut Vec<u8>) {
    for text in text.chunks(MOST) {
        to.extend_from_slice(&(text.len() << 3).to_le_bytes()[..3]);
        to.extend_from_slice(text);
    }
}

/// Blocks of zeros, of which there are three or more and no more than a block may have, that take exactly `size` bytes. `None` for less
/// than a block of zeros takes, four, and for five and six.
pub(crate) fn filling(zeros: usize, size: usize) -> Option<Vec<u8>> {
    debug_assert!((3..=MOST).contains(&zeros));
    let rest = size.checked_sub(4)?;
    // Where headers of empty blocks alone do not fill it, one or two zeros as they are, behind a header of theirs.
    let plain = rest % 3;
    let empty = (rest - plain).checked_sub(if plain > 0 { 3 } else { 0 })? / 3;
    let mut blocks = vec![0; 3 * empty];
    raw(&[0; 2][..plain], &mut blocks);
    // Type 1: the byte that comes again.
    let header = ((zeros - plain) << 3) | (1 << 1);
    blocks.extend_from_slice(&header.to_le_bytes()[..3]);
    blocks.push(0);
    Some(blocks)
}

/// An encoder of one text after the other.
pub(crate) struct BlockEncoder {
    encoder: CCtx<'static>,
    level: i32,
    /// Text that went in since the last beginning.
    since: usize,
}

/// How hard a text is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// At the encoders' level.
    Full,
    /// What is compressed already: nothing is searched for long, so that it costs little more than copying. Frames that
    /// are there twice are found.
    Little,
}

impl Effort {
    fn level(self, full: i32) -> i32 {
        match self {
            Self::Full => full,
            Self::Little => LITTLE,
        }
    }
}

/// The level for [`Effort::Little`].
pub(crate) const LITTLE: i32 = -50;

/// From this much text on it begins anew before the next: libzstd takes fresh memory for each text, as far as its buffers
/// reach, which are four times what a text may have.
const ANEW: usize = 1 << 20;

impl BlockEncoder {
    /// Compresses at a level, into blocks that look back so far, texts of up to `most` bytes.
    pub(crate) fn new(
        level: i32,
        window_log: u8,
        most: usize,
        more: &[CParameter],
    ) -> io::Result<Self> {
        let mut encoder = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        let job = u32::try_from(most).map_err(|_| io::ErrorKind::InvalidInput)?;
        let parameters = [
            CParameter::CompressionLevel(level),
            CParameter::WindowLog(window_log.into()),
            // The thread of the job before may not have come to rest, and libzstd waits for it without sleeping.
            CParameter::NbWorkers(2),
            CParameter::JobSize(job),
            CParameter::OverlapSizeLog(1),
        ];
        for parameter in parameters.iter().chain(more) {
            encoder.set_parameter(*parameter).map_err(failed)?;
        }
        let mut encoder = Self { encoder, level, since: 0 };
        encoder.begin()?;
        Ok(encoder)
    }

    /// Goes on at another level, with blocks that look back as far. Between texts it may change.
    fn at(&mut self, level: i32) -> io::Result<()> {
        if self.level == level {
            return Ok(());
        }
        self.level = level;
        self.encoder.reset(ResetDirective::SessionOnly).map_err(failed)?;
        self.encoder.set_parameter(CParameter::CompressionLevel(level)).map_err(failed)?;
        self.begin()
    }

    /// Begins a frame, with a first job, which is not used.
    fn begin(&mut self) -> io::Result<()> {
        self.encoder.reset(ResetDirective::SessionOnly).map_err(failed)?;
        let mut first = Vec::with_capacity(64);
        self.feed(b"-", true)?;
        self.take(&mut first)?;
        self.since = 0;
        Ok(())
    }

    /// Comes to rest before the next text: see [`ANEW`].
    pub(crate) fn rest(&mut self) -> io::Result<()> {
        if self.since >= ANEW { self.begin() } else { Ok(()) }
    }

    /// Takes in some of a text, of which at most as much comes as was said. With the `last` of it a thread of libzstd begins to compress.
    pub(crate) fn feed(&mut self, text: &[u8], last: bool) -> io::Result<()> {
        let directive =
            if last { ZSTD_EndDirective::ZSTD_e_flush } else { ZSTD_EndDirective::ZSTD_e_continue };
        let mut input = InBuffer::around(text);
        loop {
            // With no room for what comes out it does not wait for it.
            let mut none: [u8; 0] = [];
            let mut output = OutBuffer::around(&mut none[..]);
            self.encoder.compress_stream2(&mut output, &mut input, directive).map_err(failed)?;
            if input.pos() == text.len() {
                self.since += text.len();
                return Ok(());
            }
        }
    }

    /// Waits for the blocks of a text of which the last was fed, and appends them.
    pub(crate) fn take(&mut self, to: &mut Vec<u8>) -> io::Result<()> {
        let mut input = InBuffer::around(&[]);
        loop {
            if to.len() == to.capacity() {
                to.reserve(to.len().max(4096));
            }
            let at = to.len();
            let mut output = OutBuffer::around_pos(to, at);
            let flush = ZSTD_EndDirective::ZSTD_e_flush;
            let left =
                self.encoder.compress_stream2(&mut output, &mut input, flush).map_err(failed)?;
            if left == 0 {
                return Ok(());
            }
        }
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

/// Encoders of several texts at a time; the blocks come in the order of the texts, and do not depend on how many go at a time.
pub(crate) struct Blocks {
    level: i32,
    /// The most that a text may have.
    most: usize,
    /// How many texts go at a time; one goes while the caller waits.
    threads: usize,
    /// The one that is being fed.
    current: Option<BlockEncoder>,
    under_way: VecDeque<BlockEncoder>,
    idle: Vec<BlockEncoder>,
}

impl Blocks {
    /// Compresses at a level, with so many threads, texts of up to `most` bytes.
    pub(crate) fn new(level: i32, most: usize, threads: usize) -> Self {
        let (under_way, idle) = (VecDeque::new(), Vec::new());
        Self { level, most, threads, current: None, under_way, idle }
    }

    /// Whether blocks have to be taken before more texts are fed.
    pub(crate) fn is_full(&self) -> bool {
        // One more than threads, so that none rests while the blocks of another are taken.
        let most = if self.threads == 1 { 1 } else { self.threads + 1 };
        self.under_way.len() >= most
    }

    /// Whether the caller is to take a text's blocks before it goes on: one thread works then, here or in libzstd.
    pub(crate) fn is_inline(&self) -> bool {
        self.threads == 1
    }

    /// Gives the memory of encoders that rest back, but of so many.
    pub(crate) fn shed(&mut self, keep: usize) {
        self.idle.truncate(keep);
    }

    /// Whether some of a text was fed, and not the last of it.
    pub(crate) fn is_fed(&self) -> bool {
        self.current.is_some()
    }

    /// Takes in some of a text, or the last of it.
    pub(crate) fn feed(&mut self, text: &[u8], last: bool, effort: Effort) -> io::Result<()> {
        let mut encoder = match self.current.take().or_else(|| self.idle.pop()) {
            Some(encoder) => encoder,
            None => BlockEncoder::new(self.level, window_log(self.level), self.most, &[])?,
        };
        // That of a text which goes on is the one that it has.
        encoder.at(effort.level(self.level))?;
        encoder.feed(text, last)?;
        if last {
            self.under_way.push_back(encoder);
        } else {
            self.current = Some(encoder);
        }
        Ok(())
    }

    /// Waits for the blocks of the first text whose blocks were not taken. `None` where all were.
    pub(crate) fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(mut encoder) = self.under_way.pop_front() else { return Ok(None) };
        let mut blocks = Vec::with_capacity(encoder.since / 4 + 4096);
        encoder.take(&mut blocks)?;
        encoder.rest()?;
        self.idle.push(encoder);
        Ok(Some(blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text in which some comes again.
    fn text(seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut bytes = Vec::new();
        while bytes.len() < 150_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            let from = (state >> 40) as usize % (bytes.len() + 1);
            let to = (from + (state >> 58) as usize).min(bytes.len());
            bytes.extend_from_within(from..to);
            bytes.extend_from_slice(&state.to_le_bytes()[5..]);
        }
        bytes
    }

    fn frame(level: i32, blocks: &[Vec<u8>]) -> Vec<u8> {
        let start = [&MAGIC[..], &[0, window_byte(window_log(level))]].concat();
        [start, blocks.concat(), END.to_vec()].concat()
    }

    #[test]
    fn blocks_follow_from_their_text_whatever_an_encoder_had_before() {
        let texts: Vec<Vec<u8>> = (1..=12).map(text).collect();
        let effort = |nth| if nth % 5 == 3 { Effort::Little } else { Effort::Full };
        for level in [1, 3, 6, 10, 19] {
            let made: Vec<Vec<Vec<u8>>> = [1, 2, 5]
                .map(|threads| {
                    let mut blocks = Blocks::new(level, 1 << 20, threads);
                    let mut made = Vec::new();
                    for (nth, text) in texts.iter().enumerate() {
                        while blocks.is_full() {
                            made.extend(blocks.take().unwrap());
                        }
                        text.chunks(70_000)
                            .for_each(|part| blocks.feed(part, false, effort(nth)).unwrap());
                        blocks.feed(&[], true, effort(nth)).unwrap();
                    }
                    while let Some(last) = blocks.take().unwrap() {
                        made.push(last);
                    }
                    made
                })
                .into();
            let alone: Vec<Vec<u8>> = texts
                .iter()
                .enumerate()
                .map(|(nth, text)| {
                    let mut blocks = Blocks::new(level, 1 << 20, 1);
                    blocks.feed(text, true, effort(nth)).unwrap();
                    blocks.take().unwrap().unwrap()
                })
                .collect();
            assert!(made.iter().all(|made| *made == alone), "level {level}");
            assert!(zstd::decode_all(&frame(level, &alone)[..]).unwrap() == texts.concat());
            // In another order they are as good.
            let backwards: Vec<Vec<u8>> = alone.into_iter().rev().collect();
            let expected: Vec<u8> = texts.iter().rev().flatten().copied().collect();
            assert!(zstd::decode_all(&frame(level, &backwards)[..]).unwrap() == expected);
        }
    }

    #[test]
    fn blocks_of_zeros_take_any_size_that_they_can() {
        for (zeros, size) in (0..40).map(|size| (1024 + size, size)).chain([(MOST, 5000)]) {
            let blocks = filling(zeros, size);
            assert_eq!(blocks.is_some(), size == 4 || size >= 7, "{size}");
            let Some(blocks) = blocks else { continue };
            assert_eq!(blocks.len(), size);
            let decoded = zstd::decode_all(&frame(3, &[blocks])[..]).unwrap();
            assert!(decoded == vec![0; zeros], "{size}");
        }
    }

    #[test]
    fn text_stands_as_it_is_in_raw_blocks() {
        let text = text(7);
        let mut blocks = Vec::new();
        raw(&text, &mut blocks);
        assert_eq!(blocks.len(), text.len() + 2 * 3); // two blocks
        assert!(zstd::decode_all(&frame(3, &[blocks])[..]).unwrap() == text);
    }
}
