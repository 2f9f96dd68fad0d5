//! The MD5 (RFC 1321) of several buffers at once.
//!
//! Each step of MD5 needs the one before, so one stream goes at about 600 MB/s whatever the processor.
//! But eight streams fit into the lanes of AVX2's registers and go at 4.6 GB/s together. Elsewhere the
//! buffers are hashed one after the other.

use md5::{Digest, Md5};

/// How many buffers are hashed at once.
pub(super) const LANES: usize = 8;

/// The MD5 of each buffer. Best where the buffers are of about one size, and as many as [`LANES`]: one
/// that is left over goes at the speed of one.
pub(super) fn md5(buffers: &[&[u8]]) -> Vec<[u8; 16]> {
    #[cfg(target_arch = "x86_64")]
    if buffers.len() > 1 && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, which is all that this function asks for.
        #[expect(unsafe_code, reason = "the call of a safe function for another processor")]
        return in_lanes(buffers, |state, blocks| unsafe { avx2::blocks(state, blocks) });
    }
    buffers.iter().map(|buffer| Md5::digest(buffer).into()).collect()
}

/// The four words of the state, each for all lanes.
#[cfg(target_arch = "x86_64")]
type State = [[u32; LANES]; 4];

/// Bytes of a block.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 64;

/// A buffer on its way through a lane.
#[cfg(target_arch = "x86_64")]
struct Lane<'a> {
    buffer: usize,
    /// What is left of its whole blocks.
    body: &'a [u8],
    /// The rest of it with MD5's padding and length, in one or two blocks, of which some are done.
    end: [u8; 2 * BLOCK],
    end_done: usize,
    end_len: usize,
}

#[cfg(target_arch = "x86_64")]
impl<'a> Lane<'a> {
    fn new(buffer: usize, bytes: &'a [u8]) -> Self {
        let (body, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        let mut end = [0; 2 * BLOCK];
        end[..rest.len()].copy_from_slice(rest);
        end[rest.len()] = 0x80;
        let end_len = if rest.len() + 1 + 8 <= BLOCK { BLOCK } else { 2 * BLOCK };
        let bits = (bytes.len() as u64).wrapping_mul(8);
        end[end_len - 8..end_len].copy_from_slice(&bits.to_le_bytes());
        Self { buffer, body, end, end_done: 0, end_len }
    }

    /// The blocks that come next; none where it is through.
    fn next(&self) -> &[u8] {
        if self.body.is_empty() { &self.end[self.end_done..self.end_len] } else { self.body }
    }

    fn advance(&mut self, by: usize) {
        if self.body.is_empty() { self.end_done += by } else { self.body = &self.body[by..] }
    }
}

/// Gives each lane a buffer, and the next one when it is through with it. `blocks` adds to the state
/// the blocks of slices that are equally long.
#[cfg(target_arch = "x86_64")]
fn in_lanes(buffers: &[&[u8]], blocks: impl Fn(&mut State, [&[u8]; LANES])) -> Vec<[u8; 16]> {
    const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut digests = vec![[0; 16]; buffers.len()];
    // The longest first: so the lanes end at about the same time.
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(buffers[i].len()));
    let mut waiting = order.into_iter();
    let mut state: State = INITIAL.map(|word| [word; LANES]);
    let mut lanes: [Option<Lane>; LANES] = [const { None }; LANES];
    loop {
        for (i, lane) in lanes.iter_mut().enumerate() {
            if lane.is_none() {
                *lane = waiting.next().map(|buffer| Lane::new(buffer, buffers[buffer]));
                (0..4).for_each(|word| state[word][i] = INITIAL[word]);
            }
        }
        let Some(len) = lanes.iter().flatten().map(|lane| lane.next().len()).min() else {
            return digests;
        };
        // A lane without a buffer does what another one does.
        let any = lanes.iter().flatten().next().map_or(&[][..], Lane::next);
        let slices = std::array::from_fn(|i| &lanes[i].as_ref().map_or(any, Lane::next)[..len]);
        blocks(&mut state, slices);
        for (i, slot) in lanes.iter_mut().enumerate() {
            let Some(lane) = slot else { continue };
            lane.advance(len);
            if lane.next().is_empty() {
                for (word, bytes) in digests[lane.buffer].chunks_exact_mut(4).enumerate() {
                    bytes.copy_from_slice(&state[word][i].to_le_bytes());
                }
                *slot = None;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    //! The rounds of RFC 1321, section 3.4, on eight lanes.

    use std::arch::x86_64::{
        __m256i as Words, _mm256_add_epi32 as add, _mm256_and_si256 as and,
        _mm256_extract_epi32 as extract, _mm256_or_si256 as or,
        _mm256_permute2x128_si256 as permute, _mm256_set_epi32, _mm256_set_epi64x,
        _mm256_set1_epi32, _mm256_setzero_si256 as zero, _mm256_slli_epi32 as left,
        _mm256_srli_epi32 as right, _mm256_unpackhi_epi32 as high, _mm256_unpackhi_epi64 as high2,
        _mm256_unpacklo_epi32 as low, _mm256_unpacklo_epi64 as low2, _mm256_xor_si256 as xor,
    };

    use super::{BLOCK, LANES, State};

    /// The integer part of 2^32 × |sin(i + 1)|.
    #[rustfmt::skip]
    const SINES: [u32; 64] = [
        0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
        0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
        0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
        0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
        0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
        0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
        0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
        0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
    ];

    /// Adds to the state the blocks of slices that are equally long.
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    pub fn blocks(state: &mut State, slices: [&[u8]; LANES]) {
        let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|i| load(&state[i]));
        let ones = _mm256_set1_epi32(-1);
        for at in (0..slices[0].len()).step_by(BLOCK) {
            // Loops, since `map` of an array is compiled for any processor and calls its closure.
            let mut words = [zero(); 16];
            for (i, words) in words.chunks_exact_mut(8).enumerate() {
                let mut of = [zero(); LANES];
                for (of, slice) in of.iter_mut().zip(slices) {
                    *of = half(&slice[at + i * BLOCK / 2..]);
                }
                words.copy_from_slice(&transposed(of));
            }
            let before = [a, b, c, d];
            macro_rules! step {
                ($mix:ident, $a:ident, $b:ident, $c:ident, $d:ident, $word:expr, $sine:expr, $by:literal) => {
                    let sum = add(
                        $a,
                        add(words[$word % 16], _mm256_set1_epi32(SINES[$sine].cast_signed())),
                    );
                    let sum = add(sum, $mix($b, $c, $d));
                    $a = add(or(left::<$by>(sum), right::<{ 32 - $by }>(sum)), $b);
                };
            }
            // Word `from + i × step` in step i of the round.
            macro_rules! round {
                ($round:literal, $mix:ident, $from:literal, $step:literal, $s0:literal $s1:literal $s2:literal $s3:literal) => {
                    for i in [0, 4, 8, 12] {
                        step!($mix, a, b, c, d, $from + i * $step, $round * 16 + i, $s0);
                        step!($mix, d, a, b, c, $from + (i + 1) * $step, $round * 16 + i + 1, $s1);
                        step!($mix, c, d, a, b, $from + (i + 2) * $step, $round * 16 + i + 2, $s2);
                        step!($mix, b, c, d, a, $from + (i + 3) * $step, $round * 16 + i + 3, $s3);
                    }
                };
            }
            let f = |b, c, d| xor(d, and(b, xor(c, d)));
            let g = |b, c, d| xor(c, and(d, xor(b, c)));
            let h = |b, c, d| xor(b, xor(c, d));
            let i = |b, c, d| xor(c, or(b, xor(d, ones)));
            round!(0, f, 0, 1, 7 12 17 22);
            round!(1, g, 1, 5, 5 9 14 20);
            round!(2, h, 5, 3, 4 11 16 23);
            round!(3, i, 0, 7, 6 10 15 21);
            a = add(a, before[0]);
            b = add(b, before[1]);
            c = add(c, before[2]);
            d = add(d, before[3]);
        }
        *state = [store(a), store(b), store(c), store(d)];
    }

    /// The first half of the block that begins here.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn half(bytes: &[u8]) -> Words {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |i: usize| i64::from_le_bytes(words[i]);
        _mm256_set_epi64x(word(3), word(2), word(1), word(0))
    }

    /// The same of four lanes: the first and fifth words, the second and sixth, and so on.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of_four(a: Words, b: Words, c: Words, d: Words) -> [Words; 4] {
        let [ab, ab_high] = [low(a, b), high(a, b)];
        let [cd, cd_high] = [low(c, d), high(c, d)];
        [low2(ab, cd), high2(ab, cd), low2(ab_high, cd_high), high2(ab_high, cd_high)]
    }

    /// Of eight words of each lane the first words, the second ones, and so on.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn transposed(of: [Words; LANES]) -> [Words; 8] {
        let [a, b, c, d, e, f, g, h] = of;
        let i = of_four(a, b, c, d);
        let j = of_four(e, f, g, h);
        [
            permute::<0x20>(i[0], j[0]),
            permute::<0x20>(i[1], j[1]),
            permute::<0x20>(i[2], j[2]),
            permute::<0x20>(i[3], j[3]),
            permute::<0x31>(i[0], j[0]),
            permute::<0x31>(i[1], j[1]),
            permute::<0x31>(i[2], j[2]),
            permute::<0x31>(i[3], j[3]),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(lanes: &[u32; LANES]) -> Words {
        let [a, b, c, d, e, f, g, h] = lanes.map(u32::cast_signed);
        _mm256_set_epi32(h, g, f, e, d, c, b, a)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(words: Words) -> [u32; LANES] {
        [
            extract::<0>(words),
            extract::<1>(words),
            extract::<2>(words),
            extract::<3>(words),
            extract::<4>(words),
            extract::<5>(words),
            extract::<6>(words),
            extract::<7>(words),
        ]
        .map(i32::cast_unsigned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize, seed: u32) -> Vec<u8> {
        let mut x = seed.wrapping_mul(2_654_435_761) | 1;
        (0..len)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 17;
                x ^= x << 5;
                (x >> 24) as u8
            })
            .collect()
    }

    #[test]
    fn each_buffer_has_the_md5_that_it_has_alone() {
        // All lengths around the padding's, and counts that leave lanes empty or refill them.
        let all: Vec<Vec<u8>> = (0..300u32).map(|len| bytes(len as usize, len + 1)).collect();
        for count in [0, 1, 2, 7, 8, 9, 16, 17, 300] {
            for from in [0, 37, 120, 300 - count].into_iter().filter(|from| from + count <= 300) {
                let buffers: Vec<&[u8]> =
                    all[from..from + count].iter().map(Vec::as_slice).collect();
                let expected: Vec<[u8; 16]> =
                    buffers.iter().map(|buffer| Md5::digest(buffer).into()).collect();
                assert_eq!(md5(&buffers), expected, "{count} from {from}");
            }
        }
    }

    #[test]
    fn lengths_need_not_be_alike() {
        let all: Vec<Vec<u8>> = (0..23u32)
            .map(|i| bytes((i.wrapping_mul(7_919).wrapping_mul(i + 3) % 200_000) as usize, i + 1))
            .collect();
        let buffers: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let expected: Vec<[u8; 16]> =
            buffers.iter().map(|buffer| Md5::digest(buffer).into()).collect();
        assert_eq!(md5(&buffers), expected);
    }
}
