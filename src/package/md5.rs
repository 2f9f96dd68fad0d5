//! MD5 of several files side by side.
//!
//! Each step of MD5 (RFC 1321) waits for the one before, so one stream uses a fraction of a core: 0.6 GB/s, half of all
//! that writing a `.deb` at zstd level 3 costs. Up to eight streams that do not depend on each other take hardly
//! longer than one: their words stand beside each other in vectors.
//!
//! Without optimization this would be slower than any disk. Such a build (tests) takes the `md-5` crate instead, which
//! is optimized even there; the tests below hold the two against each other.

#![cfg_attr(debug_assertions, allow(dead_code, reason = "only optimized builds use the lanes"))]

use std::array;
use std::ops::{BitAnd, BitOr, BitXor, Not};

use wide::u32x4;

/// Bytes that one round takes.
pub(super) const BLOCK: usize = 64;
/// Most streams that [`update`] takes at once.
pub(super) const LANES: usize = 8;

/// The digest of one stream, under way.
#[derive(Clone)]
pub(super) struct Stream {
    #[cfg(debug_assertions)]
    md5: ::md5::Md5,
    #[cfg(not(debug_assertions))]
    state: State,
}

impl Stream {
    /// The digest of nothing.
    pub(super) fn new() -> Self {
        Self {
            #[cfg(debug_assertions)]
            md5: ::md5::Digest::new(),
            #[cfg(not(debug_assertions))]
            state: START,
        }
    }

    /// Goes on with up to [`LANES`] streams by a piece each, all of one length, a multiple of [`BLOCK`].
    pub(super) fn update(streams: &mut [&mut Self], data: &[&[u8]]) {
        #[cfg(debug_assertions)]
        for (stream, piece) in streams.iter_mut().zip(data) {
            ::md5::Digest::update(&mut stream.md5, piece);
        }
        #[cfg(not(debug_assertions))]
        {
            let mut states: Vec<&mut State> =
                streams.iter_mut().map(|stream| &mut stream.state).collect();
            update(&mut states, data);
        }
    }

    /// Ends a stream of `len` bytes, the last of which, less than a block, are `rest`.
    #[cfg_attr(debug_assertions, allow(unused_variables))]
    pub(super) fn finish(self, len: u64, rest: &[u8]) -> [u8; 16] {
        #[cfg(debug_assertions)]
        {
            ::md5::Digest::finalize(::md5::Digest::chain_update(self.md5, rest)).into()
        }
        #[cfg(not(debug_assertions))]
        {
            finish(self.state, len, rest)
        }
    }
}

/// The four words of a digest.
type State = [u32; 4];

const START: State = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// `floor(2^32 × |sin(i + 1)|)`.
const K: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// Words of several streams that are worked on as one: a vector, or a plain word.
trait Word:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// How many streams.
    const WIDTH: usize;
    fn gather(word: impl Fn(usize) -> u32) -> Self;
    fn lane(self, lane: usize) -> u32;
    fn plus(self, other: Self) -> Self;
    fn rotate(self, by: u32) -> Self;
}

impl Word for u32 {
    const WIDTH: usize = 1;

    #[inline(always)]
    fn gather(word: impl Fn(usize) -> u32) -> Self {
        word(0)
    }

    fn lane(self, _: usize) -> u32 {
        self
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn rotate(self, by: u32) -> Self {
        self.rotate_left(by)
    }
}

impl Word for u32x4 {
    const WIDTH: usize = 4;

    #[inline(always)]
    fn gather(word: impl Fn(usize) -> u32) -> Self {
        Self::new(array::from_fn(word))
    }

    fn lane(self, lane: usize) -> u32 {
        self.to_array()[lane]
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    fn rotate(self, by: u32) -> Self {
        (self << by) | (self >> (32 - by))
    }
}

/// `R` of them, whose steps do not wait for each other.
type Row<W, const R: usize> = [W; R];

/// One step: `a = b + rotate(a + word + k + f(b, c, d))`.
macro_rules! step {
    ($f:ident, $a:ident, $b:ident, $c:ident, $d:ident, $word:expr, $k:expr, $shift:literal) => {
        let k = W::gather(|_| $k);
        $a = array::from_fn(|r| {
            let sum = $a[r].plus($word[r].plus(k)).plus($f($b[r], $c[r], $d[r]));
            sum.rotate($shift).plus($b[r])
        });
    };
}

/// The sixteen steps of a round, whose words are those at `i × by + from`.
macro_rules! round {
    ($f:ident, $w:ident, $at:literal, $by:literal, $from:literal, $a:ident $b:ident $c:ident $d:ident,
     $s0:literal $s1:literal $s2:literal $s3:literal) => {
        round!(@4 $f, $w, $at, 0, $by, $from, $a $b $c $d, $s0 $s1 $s2 $s3);
        round!(@4 $f, $w, $at, 4, $by, $from, $a $b $c $d, $s0 $s1 $s2 $s3);
        round!(@4 $f, $w, $at, 8, $by, $from, $a $b $c $d, $s0 $s1 $s2 $s3);
        round!(@4 $f, $w, $at, 12, $by, $from, $a $b $c $d, $s0 $s1 $s2 $s3);
    };
    (@4 $f:ident, $w:ident, $at:literal, $i:literal, $by:literal, $from:literal,
     $a:ident $b:ident $c:ident $d:ident, $s0:literal $s1:literal $s2:literal $s3:literal) => {
        step!($f, $a, $b, $c, $d, $w[($i * $by + $from) % 16], K[$at + $i], $s0);
        step!($f, $d, $a, $b, $c, $w[(($i + 1) * $by + $from) % 16], K[$at + $i + 1], $s1);
        step!($f, $c, $d, $a, $b, $w[(($i + 2) * $by + $from) % 16], K[$at + $i + 2], $s2);
        step!($f, $b, $c, $d, $a, $w[(($i + 3) * $by + $from) % 16], K[$at + $i + 3], $s3);
    };
}

#[inline(always)]
fn f1<W: Word>(b: W, c: W, d: W) -> W {
    d ^ (b & (c ^ d))
}

/// The two parts have no bit in common: adding them lets the first wait for `b` alone.
#[inline(always)]
fn f2<W: Word>(b: W, c: W, d: W) -> W {
    (c & !d).plus(b & d)
}

#[inline(always)]
fn f3<W: Word>(b: W, c: W, d: W) -> W {
    b ^ (c ^ d)
}

#[inline(always)]
fn f4<W: Word>(b: W, c: W, d: W) -> W {
    c ^ (b | !d)
}

/// Goes on with `R × W::WIDTH` streams, or fewer (the places left over repeat the first).
fn compress<W: Word, const R: usize>(states: &mut [&mut State], data: &[&[u8]]) {
    let lane = |row: usize, lane: usize| {
        let lane = row * W::WIDTH + lane;
        if lane < data.len() { lane } else { 0 }
    };
    let count = data[0].len() / BLOCK;
    let blocks: [&[[u8; BLOCK]]; LANES] = array::from_fn(|i| {
        let piece = data[if i < data.len() { i } else { 0 }];
        &piece.as_chunks().0[..count]
    });
    let [mut a, mut b, mut c, mut d]: [Row<W, R>; 4] =
        array::from_fn(|word| array::from_fn(|row| W::gather(|l| states[lane(row, l)][word])));
    #[allow(clippy::needless_range_loop, reason = "the same place in several slices")]
    for i in 0..count {
        let w: [Row<W, R>; 16] = array::from_fn(|word| {
            array::from_fn(|row| {
                W::gather(|l| {
                    let bytes = &blocks[row * W::WIDTH + l][i];
                    let at = 4 * word;
                    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
                })
            })
        });
        let before = [a, b, c, d];
        round!(f1, w, 0, 1, 0, a b c d, 7 12 17 22);
        round!(f2, w, 16, 5, 1, a b c d, 5 9 14 20);
        round!(f3, w, 32, 3, 5, a b c d, 4 11 16 23);
        round!(f4, w, 48, 7, 0, a b c d, 6 10 15 21);
        let sum = |x: Row<W, R>, y: Row<W, R>| array::from_fn(|row| x[row].plus(y[row]));
        [a, b, c, d] = [sum(a, before[0]), sum(b, before[1]), sum(c, before[2]), sum(d, before[3])];
    }
    for (i, state) in states.iter_mut().enumerate() {
        let (row, lane) = (i / W::WIDTH, i % W::WIDTH);
        **state = [a, b, c, d].map(|words| words[row].lane(lane));
    }
}

/// Goes on with up to [`LANES`] streams by a piece each, all of one length, a multiple of [`BLOCK`].
fn update(states: &mut [&mut State], data: &[&[u8]]) {
    debug_assert!(states.len() == data.len() && states.len() <= LANES);
    debug_assert!(
        data.iter().all(|piece| piece.len() == data[0].len() && piece.len() % BLOCK == 0)
    );
    match states.len() {
        0 => {}
        1 => compress::<u32, 1>(states, data),
        2 => compress::<u32, 2>(states, data),
        3..=4 => compress::<u32x4, 1>(states, data),
        _ => compress::<u32x4, 2>(states, data),
    }
}

/// Ends a stream of `len` bytes, the last of which, less than a block, are `rest`.
fn finish(mut state: State, len: u64, rest: &[u8]) -> [u8; 16] {
    debug_assert!(rest.len() < BLOCK);
    let mut last = [0; 2 * BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let end = if rest.len() < BLOCK - 8 { BLOCK } else { 2 * BLOCK };
    last[end - 8..end].copy_from_slice(&(len << 3).to_le_bytes());
    update(&mut [&mut state], &[&last[..end]]);
    let mut digest = [0; 16];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_le_bytes();
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::md5::{Digest, Md5};

    #[test]
    fn each_stream_has_the_digest_of_the_crate() {
        let content = |seed: usize, len: usize| -> Vec<u8> {
            (0..len).map(|i| (i * 31 + seed * 17 + i / 251).to_le_bytes()[0]).collect()
        };
        for streams in 1..=LANES {
            for (whole, rest) in [(0, 0), (0, 1), (64, 55), (128, 56), (64 * 37, 63), (4096, 0)] {
                let files: Vec<_> = (0..streams).map(|seed| content(seed, whole + rest)).collect();
                let mut states = vec![START; streams];
                let mut lanes: Vec<&mut State> = states.iter_mut().collect();
                let pieces: Vec<&[u8]> = files.iter().map(|file| &file[..whole]).collect();
                update(&mut lanes, &pieces);
                for (file, state) in files.iter().zip(states) {
                    let expected: [u8; 16] = Md5::digest(file).into();
                    let found = finish(state, file.len() as u64, &file[whole..]);
                    assert_eq!(found, expected, "{streams} streams of {whole} + {rest} bytes");
                }
            }
        }
    }
}
