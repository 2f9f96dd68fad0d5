//! SHA-256 (FIPS 180-4) of two streams at once.
//!
//! The processor's instructions for SHA-256 each wait for the one before, about twice as long as the unit that does them is busy. A second
//! stream between them costs little: one goes at 1.7 GB/s, two at 3 together. An `.rpm` has two digests of nearly the same bytes,
//! the file's and that of the archive around it. Where the instructions are missing, and in builds with debug assertions, where the
//! `sha2` crate is optimized and this is not, the streams go through that crate one after the other.

use sha2::digest::generic_array::GenericArray;

/// Bytes that the function takes at a time.
const BLOCK: usize = 64;

/// The eight words of a digest.
type State = [u32; 8];

/// The SHA-256 of a stream, under way.
#[derive(Debug, Clone)]
pub(crate) struct Sha256 {
    state: State,
    /// Bytes that are no whole block yet, at the front.
    pending: [u8; BLOCK],
    filled: usize,
    len: u64,
}

impl Sha256 {
    /// The digest of nothing.
    pub(crate) fn new() -> Self {
        const START: State = [
            0x6a09_e667,
            0xbb67_ae85,
            0x3c6e_f372,
            0xa54f_f53a,
            0x510e_527f,
            0x9b05_688c,
            0x1f83_d9ab,
            0x5be0_cd19,
        ];
        Self { state: START, pending: [0; BLOCK], filled: 0, len: 0 }
    }

    /// Goes on with what comes next.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let blocks = self.fill(bytes);
        let (whole, rest) = blocks.split_at(blocks.len() - blocks.len() % BLOCK);
        one(&mut self.state, whole);
        self.keep(rest);
    }

    /// Goes on with two streams.
    pub(crate) fn update_both(first: (&mut Self, &[u8]), second: (&mut Self, &[u8])) {
        let ((first, of_first), (second, of_second)) = (first, second);
        let (of_first, of_second) = (first.fill(of_first), second.fill(of_second));
        let both = of_first.len().min(of_second.len());
        let both = both - both % BLOCK;
        two([&mut first.state, &mut second.state], [&of_first[..both], &of_second[..both]]);
        for (stream, rest) in [(first, &of_first[both..]), (second, &of_second[both..])] {
            let (whole, rest) = rest.split_at(rest.len() - rest.len() % BLOCK);
            one(&mut stream.state, whole);
            stream.keep(rest);
        }
    }

    /// Ends the stream.
    pub(crate) fn finish(mut self) -> [u8; 32] {
        let mut last = [0; 2 * BLOCK];
        last[..self.filled].copy_from_slice(&self.pending[..self.filled]);
        last[self.filled] = 0x80;
        let end = if self.filled + 1 + 8 <= BLOCK { BLOCK } else { 2 * BLOCK };
        last[end - 8..end].copy_from_slice(&self.len.wrapping_mul(8).to_be_bytes());
        one(&mut self.state, &last[..end]);
        let mut digest = [0; 32];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }

    /// Takes in what completes the block that was begun; returns the rest.
    fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        self.len += bytes.len() as u64;
        if self.filled == 0 {
            return bytes;
        }
        let (front, rest) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
        self.pending[self.filled..self.filled + front.len()].copy_from_slice(front);
        self.filled += front.len();
        if self.filled == BLOCK {
            let block = self.pending;
            one(&mut self.state, &block);
            self.filled = 0;
        }
        rest
    }

    /// Keeps less than a block. Nothing is kept where [`fill`](Self::fill) left nothing.
    fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.pending[..rest.len()].copy_from_slice(rest);
            self.filled = rest.len();
        }
    }
}

/// Goes on with one stream by whole blocks.
fn one(state: &mut State, blocks: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if !cfg!(debug_assertions) && instructions::present() {
        return instructions::update([state], [blocks]);
    }
    for block in blocks.chunks_exact(BLOCK) {
        sha2::compress256(state, &[*GenericArray::from_slice(block)]);
    }
}

/// Goes on with two streams by as many whole blocks each.
fn two(states: [&mut State; 2], blocks: [&[u8]; 2]) {
    #[cfg(target_arch = "x86_64")]
    if !cfg!(debug_assertions) && instructions::present() {
        return instructions::update(states, blocks);
    }
    for (state, blocks) in states.into_iter().zip(blocks) {
        one(state, blocks);
    }
}

/// The processor's instructions (Intel's manual, SHA256RNDS2, SHA256MSG1, SHA256MSG2), over as many streams as there are.
#[cfg(target_arch = "x86_64")]
mod instructions {
    #![allow(unsafe_code)] // Functions for instructions that not every processor has, and loads from slices.

    use std::arch::x86_64::{
        _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_loadu_si128, _mm_set_epi64x,
        _mm_setzero_si128, _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32,
        _mm_shuffle_epi8, _mm_shuffle_epi32, _mm_storeu_si128,
    };

    use super::{BLOCK, State};

    #[rustfmt::skip]
    static ROUNDS: [u32; 64] = [
        0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
        0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
        0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
        0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
        0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
        0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
        0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
        0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
    ];

    /// Whether this processor has them.
    pub(super) fn present() -> bool {
        is_x86_feature_detected!("sha")
            && is_x86_feature_detected!("sse4.1")
            && is_x86_feature_detected!("ssse3")
    }

    /// Goes on with the streams by as many whole blocks each. Only where they are [`present`].
    pub(super) fn update<const N: usize>(states: [&mut State; N], blocks: [&[u8]; N]) {
        let len = blocks.iter().map(|blocks| blocks.len()).min().unwrap_or(0);
        debug_assert!(present() && blocks.iter().all(|b| b.len() == len) && len % BLOCK == 0);
        // SAFETY: the caller saw that the processor has the instructions, and each slice has `len` bytes or more.
        unsafe { rounds(states, blocks.map(<[u8]>::as_ptr), len / BLOCK) }
    }

    /// # Safety
    /// The processor has the instructions, and behind each pointer are `count` blocks.
    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    unsafe fn rounds<const N: usize>(
        states: [&mut State; N],
        mut blocks: [*const u8; N],
        count: usize,
    ) {
        let swap = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
        let load = |from: *const u8| unsafe { _mm_loadu_si128(from.cast()) };
        let zero = [_mm_setzero_si128(); N];
        // The instructions want the words in this order: a, b, e, f and c, d, g, h.
        let (mut abef, mut cdgh) = (zero, zero);
        for lane in 0..N {
            let from: *const u8 = states[lane].as_ptr().cast();
            let dcba = _mm_shuffle_epi32(load(from), 0xb1);
            let efgh = _mm_shuffle_epi32(load(unsafe { from.add(16) }), 0x1b);
            abef[lane] = _mm_alignr_epi8(dcba, efgh, 8);
            cdgh[lane] = _mm_blend_epi16(efgh, dcba, 0xf0);
        }
        for _ in 0..count {
            let before = (abef, cdgh);
            let mut words = [zero; 4];
            // Four rounds each, all streams side by side.
            macro_rules! four {
                ($($group:literal)*) => {$(
                    let round = load(ROUNDS.as_ptr().cast::<u8>().wrapping_add(16 * $group));
                    for lane in 0..N {
                        let word = if $group < 4 {
                            let from = blocks[lane].wrapping_add(16 * $group);
                            _mm_shuffle_epi8(load(from), swap)
                        } else {
                            let [first, second, third, fourth] = [
                                words[$group % 4][lane],
                                words[($group + 1) % 4][lane],
                                words[($group + 2) % 4][lane],
                                words[($group + 3) % 4][lane],
                            ];
                            let sum = _mm_sha256msg1_epu32(first, second);
                            let sum = _mm_add_epi32(sum, _mm_alignr_epi8(fourth, third, 4));
                            _mm_sha256msg2_epu32(sum, fourth)
                        };
                        words[$group % 4][lane] = word;
                        let sum = _mm_add_epi32(word, round);
                        cdgh[lane] = _mm_sha256rnds2_epu32(cdgh[lane], abef[lane], sum);
                        let sum = _mm_shuffle_epi32(sum, 0x0e);
                        abef[lane] = _mm_sha256rnds2_epu32(abef[lane], cdgh[lane], sum);
                    }
                )*};
            }
            four!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            for lane in 0..N {
                abef[lane] = _mm_add_epi32(abef[lane], before.0[lane]);
                cdgh[lane] = _mm_add_epi32(cdgh[lane], before.1[lane]);
                blocks[lane] = blocks[lane].wrapping_add(BLOCK);
            }
        }
        for (lane, state) in states.into_iter().enumerate() {
            let feba = _mm_shuffle_epi32(abef[lane], 0x1b);
            let dchg = _mm_shuffle_epi32(cdgh[lane], 0xb1);
            let to: *mut u8 = state.as_mut_ptr().cast();
            // SAFETY: a state has 32 bytes.
            unsafe {
                _mm_storeu_si128(to.cast(), _mm_blend_epi16(feba, dchg, 0xf0));
                _mm_storeu_si128(to.add(16).cast(), _mm_alignr_epi8(dchg, feba, 8));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * i % 251 + i / 300).to_le_bytes()[0]).collect()
    }

    fn expected(bytes: &[u8]) -> [u8; 32] {
        sha2::Sha256::digest(bytes).into()
    }

    #[test]
    fn each_of_two_streams_has_its_digest_wherever_they_are_cut() {
        let (one, two) = (bytes(5000), bytes(5001)[1..].to_vec());
        for (head_of_one, head_of_two) in [(0, 0), (0, 1), (63, 64), (64, 1), (110, 512), (200, 7)]
        {
            for step in [1, 55, 64, 65, 1000, 5000] {
                let (mut first, mut second) = (Sha256::new(), Sha256::new());
                first.update(&one[..head_of_one]);
                second.update(&two[..head_of_two]);
                let (mut at_one, mut at_two) = (head_of_one, head_of_two);
                while at_one < one.len() || at_two < two.len() {
                    let to_one = (at_one + step).min(one.len());
                    let to_two = (at_two + step + 3).min(two.len());
                    Sha256::update_both(
                        (&mut first, &one[at_one..to_one]),
                        (&mut second, &two[at_two..to_two]),
                    );
                    (at_one, at_two) = (to_one, to_two);
                }
                assert_eq!(first.finish(), expected(&one), "{head_of_one} {step}");
                assert_eq!(second.finish(), expected(&two), "{head_of_two} {step}");
            }
        }
    }

    #[test]
    fn every_length_is_padded_right() {
        for len in 0..200 {
            let mut stream = Sha256::new();
            stream.update(&bytes(len));
            assert_eq!(stream.finish(), expected(&bytes(len)), "{len}");
        }
    }

    #[test]
    fn both_ways_come_to_the_same() {
        let (one_text, two_text) = (bytes(640), bytes(1280)[640..].to_vec());
        let states = |blocks: fn([&mut State; 2], [&[u8]; 2])| {
            let [mut one, mut two] = [Sha256::new().state; 2];
            blocks([&mut one, &mut two], [&one_text, &two_text]);
            [one, two]
        };
        let alone = states(|[first, second], [of_first, of_second]| {
            for (state, blocks) in [(first, of_first), (second, of_second)] {
                for block in blocks.chunks_exact(BLOCK) {
                    sha2::compress256(state, &[*GenericArray::from_slice(block)]);
                }
            }
        });
        assert_eq!(states(two), alone);
        // Builds with debug assertions take the other way by themselves.
        #[cfg(target_arch = "x86_64")]
        if instructions::present() {
            assert_eq!(states(instructions::update), alone);
            let by_one = states(|[first, second], [of_first, of_second]| {
                instructions::update([first], [of_first]);
                instructions::update([second], [of_second]);
            });
            assert_eq!(by_one, alone);
        }
    }
}
