//! The MD5 (RFC 1321) of several streams or buffers at once.
//!
//! Each step of MD5 needs the one before, so one stream goes at about 600 MB/s whatever the processor.
//! But eight streams fit into the lanes of AVX2's registers and go at 4.6 GB/s together; with AVX-512's
//! instructions for them (a rotation is one, and so is any mix of three words) a quarter faster. Elsewhere they
//! go one after the other, through the `md-5` crate; so they do in builds with debug assertions, where
//! that crate is optimized and this one is not.

use md5::{Digest, Md5};

/// Bytes that one round takes.
pub(crate) const BLOCK: usize = 64;
/// How many streams go at once.
pub(crate) const LANES: usize = 8;

/// The MD5 of a stream, under way.
#[derive(Clone)]
pub(crate) struct Stream(Form);

#[derive(Clone)]
enum Form {
    Alone(Md5),
    /// Only where the processor has the instructions.
    #[cfg(target_arch = "x86_64")]
    Lane(Instructions, State),
}

/// The four words of a digest.
#[cfg(target_arch = "x86_64")]
type State = [u32; 4];

/// What there are functions over lanes for.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instructions {
    Avx512,
    Avx2,
}

#[cfg(target_arch = "x86_64")]
impl Instructions {
    /// The fastest first.
    const ALL: [Self; 2] = [Self::Avx512, Self::Avx2];

    /// Whether this processor has them.
    fn present(self) -> bool {
        let more = match self {
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl")
            }
            Self::Avx2 => true,
        };
        more && is_x86_feature_detected!("avx2")
    }
}

impl Stream {
    /// The digest of nothing.
    pub fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        if !cfg!(debug_assertions)
            && let Some(stream) = Instructions::ALL.into_iter().find_map(Self::in_lane)
        {
            return stream;
        }
        Self::alone()
    }

    /// One that no other helps along.
    fn alone() -> Self {
        Self(Form::Alone(Md5::new()))
    }

    /// One that goes beside others; `None` where the processor lacks the instructions.
    #[cfg(target_arch = "x86_64")]
    fn in_lane(by: Instructions) -> Option<Self> {
        const START: State = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        by.present().then_some(Self(Form::Lane(by, START)))
    }

    /// Goes on with each stream by its piece, all of one length, a multiple of [`BLOCK`]. Best with as
    /// many as [`LANES`]: fewer take as long.
    pub fn update(streams: &mut [&mut Self], pieces: &[&[u8]]) {
        debug_assert!(streams.len() == pieces.len());
        debug_assert!(
            pieces.iter().all(|piece| piece.len() == pieces[0].len() && piece.len() % BLOCK == 0)
        );
        #[cfg(target_arch = "x86_64")]
        let mut lanes: Vec<(Instructions, &mut State, &[u8])> = Vec::with_capacity(streams.len());
        for (stream, piece) in streams.iter_mut().zip(pieces) {
            match &mut stream.0 {
                Form::Alone(md5) => md5.update(piece),
                #[cfg(target_arch = "x86_64")]
                Form::Lane(by, state) => lanes.push((*by, state, piece)),
            }
        }
        #[cfg(target_arch = "x86_64")]
        lanes.chunks_mut(LANES).for_each(update_lanes);
    }

    /// Ends a stream of `len` bytes, the last of which, less than a block, are `rest`.
    pub fn finish(self, len: u64, rest: &[u8]) -> [u8; 16] {
        debug_assert!(rest.len() < BLOCK && len % BLOCK as u64 == rest.len() as u64);
        match self.0 {
            Form::Alone(md5) => md5.chain_update(rest).finalize().into(),
            #[cfg(target_arch = "x86_64")]
            Form::Lane(by, mut state) => {
                let mut last = [0; 2 * BLOCK];
                last[..rest.len()].copy_from_slice(rest);
                last[rest.len()] = 0x80;
                let end = if rest.len() + 1 + 8 <= BLOCK { BLOCK } else { 2 * BLOCK };
                last[end - 8..end].copy_from_slice(&len.wrapping_mul(8).to_le_bytes());
                update_lanes(&mut [(by, &mut state, &last[..end])]);
                let mut digest = [0; 16];
                for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
                digest
            }
        }
    }
}

/// Adds to each state the blocks of its slice. The slices, at most [`LANES`], are equally long, and all go by the same
/// instructions.
#[cfg(target_arch = "x86_64")]
fn update_lanes(lanes: &mut [(Instructions, &mut State, &[u8])]) {
    let Some(&(by, _, first)) = lanes.first() else { return };
    debug_assert!(lanes.iter().all(|(other, ..)| *other == by));
    // A lane without a stream works on the first one's bytes.
    let slices = std::array::from_fn(|i| lanes.get(i).map_or(first, |(_, _, slice)| *slice));
    let mut states = [[0; LANES]; 4];
    for (i, (_, state, _)) in lanes.iter().enumerate() {
        (0..4).for_each(|word| states[word][i] = state[word]);
    }
    // SAFETY: the processor has them: else `Stream::in_lane` makes no state that goes by them.
    #[expect(unsafe_code, reason = "the call of a safe function for another processor")]
    unsafe {
        match by {
            Instructions::Avx512 => vectors::blocks_avx512(&mut states, slices),
            Instructions::Avx2 => vectors::blocks_avx2(&mut states, slices),
        }
    };
    for (i, (_, state, _)) in lanes.iter_mut().enumerate() {
        **state = states.map(|word| word[i]);
    }
}

/// The MD5 of each buffer. Best where the buffers are of about one size, and as many as [`LANES`]: one
/// that is left over goes at the speed of one.
pub(crate) fn md5(buffers: &[&[u8]]) -> Vec<[u8; 16]> {
    of_buffers(buffers, Stream::new)
}

/// Gives each lane a buffer, and the next one when it is through with it.
fn of_buffers(buffers: &[&[u8]], new: impl Fn() -> Stream) -> Vec<[u8; 16]> {
    struct Lane<'a> {
        buffer: usize,
        stream: Stream,
        /// What is not in the stream yet.
        rest: &'a [u8],
    }
    let mut digests = vec![[0; 16]; buffers.len()];
    // The longest first: so the lanes end at about the same time.
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(buffers[i].len()));
    let mut waiting = order.into_iter();
    let mut lanes: Vec<Lane> = Vec::with_capacity(LANES);
    loop {
        let free = LANES - lanes.len();
        lanes.extend(waiting.by_ref().take(free).map(|buffer| Lane {
            buffer,
            stream: new(),
            rest: buffers[buffer],
        }));
        let Some(shortest) = lanes.iter().map(|lane| lane.rest.len()).min() else {
            return digests;
        };
        let len = shortest - shortest % BLOCK;
        let (mut streams, mut pieces) = (Vec::new(), Vec::new());
        for lane in &mut lanes {
            let (piece, rest) = lane.rest.split_at(len);
            streams.push(&mut lane.stream);
            pieces.push(piece);
            lane.rest = rest;
        }
        Stream::update(&mut streams, &pieces);
        for lane in lanes.extract_if(.., |lane| lane.rest.len() < BLOCK) {
            let len = buffers[lane.buffer].len() as u64;
            digests[lane.buffer] = lane.stream.finish(len, lane.rest);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod vectors {
    //! The rounds of RFC 1321, section 3.4, on eight lanes.

    use std::arch::x86_64::{
        __m256i as Words, _mm256_add_epi32 as add, _mm256_and_si256 as and,
        _mm256_extract_epi32 as extract, _mm256_or_si256 as or,
        _mm256_permute2x128_si256 as permute, _mm256_rol_epi32 as rotate, _mm256_set_epi32,
        _mm256_set_epi64x, _mm256_set1_epi32, _mm256_setzero_si256 as zero,
        _mm256_slli_epi32 as left, _mm256_srli_epi32 as right, _mm256_ternarylogic_epi32 as mixed,
        _mm256_unpackhi_epi32 as high, _mm256_unpackhi_epi64 as high2,
        _mm256_unpacklo_epi32 as low, _mm256_unpacklo_epi64 as low2, _mm256_xor_si256 as xor,
    };

    use super::{BLOCK, LANES};

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

    /// Step of a round: `$turn` rotates, `$mix` is the round's function.
    macro_rules! step {
        ($turn:ident $mix:ident $words:ident, $a:ident $b:ident $c:ident $d:ident, $word:expr, $sine:expr, $by:literal) => {
            let sum =
                add($a, add($words[$word % 16], _mm256_set1_epi32(SINES[$sine].cast_signed())));
            let sum = add(sum, $mix($b, $c, $d));
            $a = add($turn!(sum, $by), $b);
        };
    }

    /// A round: step i takes word `$from + i × $by`.
    macro_rules! round {
        ($round:literal, $turn:ident $mix:ident $words:ident, $a:ident $b:ident $c:ident $d:ident, $from:literal $by:literal, $s0:literal $s1:literal $s2:literal $s3:literal) => {
            for i in [0, 4, 8, 12] {
                let (word, sine) = ($from + i * $by, $round * 16 + i);
                step!($turn $mix $words, $a $b $c $d, word, sine, $s0);
                step!($turn $mix $words, $d $a $b $c, word + $by, sine + 1, $s1);
                step!($turn $mix $words, $c $d $a $b, word + 2 * $by, sine + 2, $s2);
                step!($turn $mix $words, $b $c $d $a, word + 3 * $by, sine + 3, $s3);
            }
        };
    }

    /// Makes a function that adds to the states the blocks of slices that are equally long. A word of
    /// the state stands beside that word of the other lanes.
    macro_rules! blocks {
        ($name:ident for $feature:literal, $turn:ident, $f:expr, $g:expr, $h:expr, $i:expr) => {
            #[inline(never)]
            #[target_feature(enable = $feature)]
            pub fn $name(state: &mut [[u32; LANES]; 4], slices: [&[u8]; LANES]) {
                let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|i| load(&state[i]));
                let (f, g, h, i) = ($f, $g, $h, $i);
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
                    round!(0, $turn f words, a b c d, 0 1, 7 12 17 22);
                    round!(1, $turn g words, a b c d, 1 5, 5 9 14 20);
                    round!(2, $turn h words, a b c d, 5 3, 4 11 16 23);
                    round!(3, $turn i words, a b c d, 0 7, 6 10 15 21);
                    a = add(a, before[0]);
                    b = add(b, before[1]);
                    c = add(c, before[2]);
                    d = add(d, before[3]);
                }
                *state = [store(a), store(b), store(c), store(d)];
            }
        };
    }

    macro_rules! shifted {
        ($sum:expr, $by:literal) => {
            or(left::<$by>($sum), right::<{ 32 - $by }>($sum))
        };
    }

    macro_rules! rotated {
        ($sum:expr, $by:literal) => {
            rotate::<$by>($sum)
        };
    }

    blocks!(
        blocks_avx2 for "avx2",
        shifted,
        |b, c, d| xor(d, and(b, xor(c, d))),
        |b, c, d| xor(c, and(d, xor(b, c))),
        |b, c, d| xor(b, xor(c, d)),
        |b, c, d| xor(c, or(b, xor(d, _mm256_set1_epi32(-1))))
    );

    // Bit `4b + 2c + d` of each number is the mix of the bits b, c and d.
    blocks!(
        blocks_avx512 for "avx2,avx512f,avx512vl",
        rotated,
        |b, c, d| mixed::<0xca>(b, c, d),
        |b, c, d| mixed::<0xe4>(b, c, d),
        |b, c, d| mixed::<0x96>(b, c, d),
        |b, c, d| mixed::<0x39>(b, c, d)
    );

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

    /// What makes a stream in each form that this processor can do. It says which it cannot.
    fn forms() -> Vec<Box<dyn Fn() -> Stream>> {
        let mut forms: Vec<Box<dyn Fn() -> Stream>> =
            vec![Box::new(Stream::new), Box::new(Stream::alone)];
        #[cfg(target_arch = "x86_64")]
        for by in Instructions::ALL {
            match Stream::in_lane(by) {
                Some(stream) => forms.push(Box::new(move || stream.clone())),
                None => eprintln!("not tried, since this processor lacks it: {by:?}"),
            }
        }
        forms
    }

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

    fn digests(buffers: &[&[u8]]) -> Vec<[u8; 16]> {
        buffers.iter().map(|buffer| Md5::digest(buffer).into()).collect()
    }

    #[test]
    fn each_buffer_has_the_md5_that_it_has_alone() {
        // All lengths around the padding's, and counts that leave lanes empty or refill them.
        let all: Vec<Vec<u8>> = (0..300u32).map(|len| bytes(len as usize, len + 1)).collect();
        for count in [0, 1, 2, 7, 8, 9, 16, 17, 300] {
            for from in [0, 37, 120, 300 - count].into_iter().filter(|from| from + count <= 300) {
                let buffers: Vec<&[u8]> =
                    all[from..from + count].iter().map(Vec::as_slice).collect();
                let expected = digests(&buffers);
                assert_eq!(md5(&buffers), expected, "{count} from {from}");
                for new in forms() {
                    assert_eq!(of_buffers(&buffers, new), expected, "{count} from {from}");
                }
            }
        }
    }

    #[test]
    fn lengths_need_not_be_alike() {
        let all: Vec<Vec<u8>> = (0..23u32)
            .map(|i| bytes((i.wrapping_mul(7_919).wrapping_mul(i + 3) % 200_000) as usize, i + 1))
            .collect();
        let buffers: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        for new in forms() {
            assert_eq!(of_buffers(&buffers, new), digests(&buffers));
        }
    }

    #[test]
    fn each_stream_has_the_md5_that_it_has_alone() {
        for new in forms() {
            for count in (1..=LANES).chain([LANES + 1, 2 * LANES + 3]) {
                for (whole, rest) in [(0, 0), (0, 1), (64, 55), (128, 56), (64 * 37, 63), (4096, 0)]
                {
                    let files: Vec<Vec<u8>> =
                        (1u32..).take(count).map(|seed| bytes(whole + rest, seed)).collect();
                    let mut streams: Vec<Stream> = files.iter().map(|_| new()).collect();
                    // In two pieces: the state goes into the lanes and out again.
                    let half = whole / 2 / BLOCK * BLOCK;
                    for range in [0..half, half..whole] {
                        let mut streams: Vec<&mut Stream> = streams.iter_mut().collect();
                        let pieces: Vec<&[u8]> =
                            files.iter().map(|file| &file[range.clone()]).collect();
                        Stream::update(&mut streams, &pieces);
                    }
                    for (file, stream) in files.iter().zip(streams) {
                        let expected: [u8; 16] = Md5::digest(file).into();
                        let found = stream.finish(file.len() as u64, &file[whole..]);
                        assert_eq!(found, expected, "{count} streams of {whole} + {rest} bytes");
                    }
                }
            }
        }
    }
}
