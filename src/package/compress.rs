//! Compression of package content: one zstd frame or one xz stream, its bytes the same for any number of
//! threads.
//!
//! dpkg reads one frame or stream and nothing after it, so threads work inside the frame: on blocks of it
//! (module `frame`), or, with a long window or xz, in zstd's and liblzma's own multi-threaded encoders, also for one
//! thread, since they cut the input at places that do not depend on the number of workers.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use zstd::zstd_safe::CParameter;

use super::frame::{self, Frame};
use crate::kpack;
use crate::zstd_blocks::LITTLE;

/// How content is compressed. Parsed from `zstd:10,long=27`, `zstd`, `xz:6`, `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// zstd: small files, fast to write and to read.
    Zstd {
        /// 1 to 19 (22 would need a window that dpkg refuses).
        level: i32,
        /// Base-2 logarithm of the window for long-distance matching, 10 to 27 (dpkg and rpm refuse
        /// more).
        long: Option<u32>,
    },
    /// xz: what installers before 2021 read.
    Xz {
        /// 0 to 9.
        level: u32,
    },
    /// None.
    None,
}

impl Default for Compression {
    /// zstd level 3.
    fn default() -> Self {
        Self::Zstd { level: 3, long: None }
    }
}

/// Why a compression was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("compression `{found}` is not understood: {expected}")]
pub struct CompressionError {
    found: String,
    expected: &'static str,
}

impl FromStr for Compression {
    type Err = CompressionError;

    fn from_str(text: &str) -> Result<Self, CompressionError> {
        let fail = |expected| CompressionError { found: text.to_owned(), expected };
        let (method, rest) = text.split_once(':').map_or((text, None), |(m, r)| (m, Some(r)));
        match (method, rest) {
            ("none", None) => Ok(Self::None),
            ("xz", rest) => {
                let level = rest.unwrap_or("6").parse().ok().filter(|level| *level <= 9);
                Ok(Self::Xz { level: level.ok_or(fail("xz takes a level of 0 to 9"))? })
            }
            ("zstd", rest) => {
                let mut parts = rest.unwrap_or("3").split(',');
                let level = parts.next().and_then(|level| level.parse().ok());
                let level = level.filter(|level| (1..=19).contains(level));
                let level = level.ok_or(fail("zstd takes a level of 1 to 19"))?;
                let long = match parts.next().map(|part| part.strip_prefix("long=")) {
                    None => None,
                    Some(log) => {
                        let log = log.and_then(|log| log.parse().ok());
                        let log = log.filter(|log| (10..=27).contains(log));
                        Some(log.ok_or(fail("after the level comes `long=`, 10 to 27"))?)
                    }
                };
                match parts.next() {
                    None => Ok(Self::Zstd { level, long }),
                    Some(_) => Err(fail("nothing comes after `long=`")),
                }
            }
            _ => Err(fail(
                "expected `zstd`, `zstd:LEVEL`, `zstd:LEVEL,long=LOG`, `xz:LEVEL` or `none`",
            )),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zstd { level, long: None } => write!(f, "zstd:{level}"),
            Self::Zstd { level, long: Some(log) } => write!(f, "zstd:{level},long={log}"),
            Self::Xz { level } => write!(f, "xz:{level}"),
            Self::None => f.write_str("none"),
        }
    }
}

impl Compression {
    /// The ending of a compressed tar file, with its dot.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Zstd { .. } => ".zst",
            Self::Xz { .. } => ".xz",
            Self::None => "",
        }
    }
}

impl Compression {
    /// About the most memory, in bytes, that writing one package with so many threads takes: what a
    /// caller with a bound divides it by. Measured with libzstd 1.5.7 and liblzma 5.8 and rounded up.
    pub fn memory(self, threads: usize) -> u64 {
        const MIB: u64 = 1 << 20;
        let threads = threads.max(1) as u64;
        let buffers = 2 * MIB;
        buffers
            + match self {
                Self::None => 0,
                Self::Zstd { level, long: None } => frame::memory(level, threads),
                Self::Zstd { level, long: Some(log) } => {
                    let (base, each) = match level {
                        ..=5 => (40, 18),
                        6..=12 => (64, 44),
                        _ => (120, 92),
                    };
                    (base + each * threads) * MIB + (3 << log.min(27)) / 2
                }
                Self::Xz { level } => {
                    const DICTIONARY: [u64; 10] = [1, 1, 2, 4, 4, 8, 8, 16, 32, 64];
                    let level = usize::try_from(level).unwrap_or(9).min(9);
                    (16 * DICTIONARY[level] + 8) * MIB * threads
                }
            }
    }
}

/// From this size on a file is worth the end of a block on either side.
const WORTH_SWITCHING: u64 = 1 << 20;

/// What writing two archives at a time takes at most, in bytes; see [`Compression::memory`]. Where blocks are made for both,
/// encoders of one archive's own content give their memory back before those for both have theirs, and those before it.
pub(super) fn memory_of_both(one: Compression, other: Compression, threads: usize) -> u64 {
    one.memory(threads) + other.memory(threads)
}

/// The level at which the blocks of large files can be made once for two archives, where they can.
pub(super) fn shared_level(one: Compression, other: Compression) -> Option<i32> {
    match one {
        Compression::Zstd { level, long: None } if one == other => Some(level),
        _ => None,
    }
}

/// Whether a file that begins like this is compressed already: a kpack of zstd frames, or a compressed file. `start` should
/// have 128 bytes or the whole file.
pub(super) fn is_compressed(start: &[u8]) -> bool {
    const MAGICS: [&[u8]; 7] = [
        b"\x28\xb5\x2f\xfd",
        b"\xfd7zXZ\0",
        b"\x1f\x8b",
        b"BZh",
        b"CCOB",
        b"\x89PNG\r\n",
        b"PK\x03\x04",
    ];
    kpack::reader::is_compressed(start) || MAGICS.iter().any(|magic| start.starts_with(magic))
}

/// A writer that compresses into `W`; [`finish`](Self::finish) ends the frame or stream.
pub(super) struct Encoder<W: Write> {
    method: Method<W>,
    /// Whether content passes through at the moment.
    passing: bool,
    /// Whether what was taken in is compressed before more is: a writer with one thread takes one core then, not one for itself
    /// and one for zstd's thread.
    inline: bool,
}

enum Method<W: Write> {
    Blocks(Box<Frame<W>>),
    Long(zstd::Encoder<'static, Counted<W>>, i32),
    Xz(liblzma::write::XzEncoder<W>),
    None(W),
}

/// Counts what passes through.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.out.write(buf)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Waits until zstd's threads have nothing to do. It waits for them where it gets nothing to take in and gives something out;
/// what it gives is in `W` after the call that follows.
fn settle<W: Write>(encoder: &mut zstd::Encoder<'static, Counted<W>>) -> io::Result<()> {
    loop {
        let before = encoder.get_ref().bytes;
        // Does not end a block, as a flush would.
        let _ = encoder.write(&[])?;
        let _ = encoder.write(&[])?;
        if encoder.get_ref().bytes == before {
            return Ok(());
        }
    }
}

impl<W: Write> Encoder<W> {
    /// Begins a frame or stream. With a `sum`, a zstd frame ends with one of all content.
    pub(super) fn new(
        out: W,
        compression: Compression,
        threads: usize,
        sum: bool,
    ) -> io::Result<Self> {
        let threads = u32::try_from(threads.clamp(1, 64)).expect("clamped");
        let method = match compression {
            Compression::Zstd { level, long: None } => {
                Method::Blocks(Box::new(Frame::new(out, level, threads as usize, sum)?))
            }
            Compression::Zstd { level, long: Some(log) } => {
                let mut encoder = zstd::Encoder::new(Counted { out, bytes: 0 }, level)?;
                encoder.multithread(threads)?;
                encoder.include_checksum(sum)?;
                encoder.long_distance_matching(true)?;
                encoder.window_log(log)?;
                Method::Long(encoder, level)
            }
            Compression::Xz { level } => {
                // What dpkg-deb sets, so that the bytes are the same: see tests/debs.rs.
                let stream = liblzma::stream::MtStreamBuilder::new()
                    .preset(level)
                    .check(liblzma::stream::Check::Crc64)
                    .threads(threads)
                    .encoder()?;
                Method::Xz(liblzma::write::XzEncoder::new_stream(out, stream))
            }
            Compression::None => Method::None(out),
        };
        Ok(Self { method, passing: false, inline: threads == 1 })
    }

    /// Says that a file of `size` bytes comes next, which begins with `start`. One that is compressed already is not worked
    /// on again. Only zstd can change that within a frame; xz has to give the bytes of dpkg-deb. Where `given`, the blocks of a large file
    /// come through [`give`](Self::give).
    pub(super) fn file(&mut self, start: &[u8], size: u64, given: bool) -> io::Result<()> {
        let (encoder, level) = match &mut self.method {
            Method::Long(encoder, level) => (encoder, level),
            Method::Blocks(frame) => return frame.file(start, size, given),
            Method::Xz(_) | Method::None(_) => return Ok(()),
        };
        let passing = size >= WORTH_SWITCHING && is_compressed(start);
        if passing != self.passing {
            // The workers' jobs take the level of the time at which they begin: ended here, all of them, they begin at
            // places that do not depend on how many workers there are.
            encoder.flush()?;
            let level = if passing { LITTLE } else { *level };
            encoder.set_parameter(CParameter::CompressionLevel(level))?;
            self.passing = passing;
        }
        Ok(())
    }

    /// Takes blocks of a large file, which were made elsewhere; see [`shared_level`].
    pub(super) fn give(&mut self, blocks: Arc<Vec<u8>>) -> io::Result<()> {
        match &mut self.method {
            Method::Blocks(frame) => frame.give(blocks),
            _ => Ok(()),
        }
    }

    /// Ends the frame or stream and gives the writer back.
    pub(super) fn finish(self) -> io::Result<W> {
        match self.method {
            Method::Blocks(frame) => frame.finish(),
            Method::Long(encoder, _) => encoder.finish().map(|counted| counted.out),
            Method::Xz(encoder) => encoder.finish(),
            Method::None(out) => Ok(out),
        }
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.method {
            Method::Blocks(frame) => frame.write(buf),
            Method::Long(encoder, _) => {
                let n = encoder.write(buf)?;
                if self.inline {
                    settle(encoder)?;
                }
                Ok(n)
            }
            Method::Xz(encoder) => encoder.write(buf),
            Method::None(out) => out.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // A flush would end a block, and so change the bytes.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressions_are_parsed_and_printed() {
        for text in ["zstd:3", "zstd:10,long=27", "xz:6", "none"] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), text);
        }
        assert_eq!("zstd".parse(), Ok(Compression::default()));
        for text in ["", "gzip", "zstd:20", "zstd:3,long=28", "zstd:3,27", "xz:10", "none:1"] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_memory_estimate_is_above_what_was_measured() {
        for (text, threads, measured_kib) in [
            ("zstd:1", 1, 40_464),
            ("zstd:3", 1, 41_072),
            ("zstd:3", 2, 87_380),
            ("zstd:3", 3, 101_624),
            ("zstd:10", 1, 82_764),
            ("zstd:10", 3, 236_812),
            ("zstd:19", 1, 144_676),
            ("zstd:10,long=27", 2, 253_916),
            ("zstd:19,long=27", 3, 350_796),
            ("xz:6", 1, 129_712),
            ("xz:6", 3, 372_160),
        ] {
            let estimate = text.parse::<Compression>().unwrap().memory(threads);
            assert!(estimate > measured_kib * 1024, "{text} {threads}: {estimate}");
        }
    }

    #[test]
    fn the_number_of_threads_does_not_show() {
        let input: Vec<u8> =
            (0..40_000_000u32).map(|i| (i / 7 % 251 * (i >> 16)).to_le_bytes()[0]).collect();
        let all = [
            Compression::default(),
            Compression::Zstd { level: 1, long: Some(24) },
            Compression::Xz { level: 0 },
        ];
        for compression in all {
            let [one, three] = [(1, 1 << 20), (3, 12345)].map(|(threads, chunk)| {
                let mut encoder = Encoder::new(Vec::new(), compression, threads, true).unwrap();
                input.chunks(chunk).for_each(|chunk| encoder.write_all(chunk).unwrap());
                encoder.finish().unwrap()
            });
            assert!(one == three, "{compression}");
        }
    }
}
