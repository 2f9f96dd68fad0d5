//! Decompressing an archive in a thread of its own, with a digest of the compressed bytes.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use sha2::{Digest, Sha256};

/// How an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// zstd.
    Zstd,
    /// xz.
    Xz,
    /// gzip.
    Gzip,
}

/// The endings of archives' names.
const ENDINGS: [(&str, Format); 3] =
    [(".tar.zst", Format::Zstd), (".tar.xz", Format::Xz), (".tar.gz", Format::Gzip)];

/// How streams begin (RFC 8878, the .xz file format, RFC 1952), and the bytes behind the first of a zstd
/// frame that is to be skipped.
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const ZSTD_SKIPPED: [u8; 3] = *b"\x2a\x4d\x18";
const XZ: &[u8] = b"\xfd7zXZ\0";
const GZIP: &[u8] = b"\x1f\x8b";

/// The largest zstd window, as a power of two: what dpkg and rpm take as well.
const ZSTD_WINDOW_LOG: u32 = 27;

/// What an xz decoder may hold: a dictionary of 128 MiB and a bit.
const XZ_MEMORY: u64 = 136 << 20;

/// What goes through the channel at once.
const CHUNK: usize = 256 * 1024;

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Gzip => "gzip",
        })
    }
}

impl Format {
    /// Takes a file name apart: what stands before `.tar.zst`, `.tar.xz` or `.tar.gz`, and the format.
    pub fn of_name(name: &str) -> Option<(&str, Self)> {
        ENDINGS.iter().find_map(|(ending, format)| {
            let stem = name.strip_suffix(ending)?;
            (!stem.is_empty()).then_some((stem, *format))
        })
    }

    /// What a stream is that begins with these bytes (the first 262 or more, where it has so many), if it is
    /// not of this format: in words, and the ending that its name should have. `None` where it is, or is of
    /// no kind that is known.
    pub fn other(self, begin: &[u8]) -> Option<(&'static str, &'static str)> {
        let of_own = match self {
            // Also a frame that is to be skipped.
            Self::Zstd => begin.starts_with(ZSTD) || begin.get(1..4) == Some(&ZSTD_SKIPPED[..]),
            Self::Xz => begin.starts_with(XZ),
            Self::Gzip => begin.starts_with(GZIP),
        };
        if of_own {
            return None;
        }
        let known: [(&[u8], _); 5] = [
            (ZSTD, ("zstd", ".tar.zst")),
            (XZ, ("xz", ".tar.xz")),
            (GZIP, ("gzip", ".tar.gz")),
            (b"BZh", ("bzip2", "")),
            (b"PK\x03\x04", ("a zip archive", "")),
        ];
        let known = known.into_iter().find(|(magic, _)| begin.starts_with(magic));
        let tar = || (begin.get(257..262)? == b"ustar").then_some(("tar without compression", ""));
        known.map(|(_, what)| what).or_else(tar)
    }

    fn decoder(self, stream: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(stream)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Box::new(decoder)
            }
            Self::Xz => {
                let concatenated = liblzma::stream::CONCATENATED;
                let decoder = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, concatenated)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(stream, decoder))
            }
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stream)),
        })
    }
}

/// A decompressed archive as a stream.
pub struct Decoded {
    chunks: Receiver<io::Result<Vec<u8>>>,
    used: Sender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
    digest: Arc<Mutex<Option<Sha256>>>,
    taken: Arc<AtomicU64>,
}

impl Decoded {
    /// Begins to decompress `file`. With `digest`, the compressed bytes are hashed.
    pub fn new(file: impl Read + Send + 'static, format: Format, digest: bool) -> Self {
        let (send, chunks) = bounded(4);
        let (used, free) = bounded(8);
        let hasher = Arc::new(Mutex::new(digest.then(Sha256::new)));
        let taken = Arc::new(AtomicU64::new(0));
        let seen = Seen { file, hasher: Arc::clone(&hasher), taken: Arc::clone(&taken) };
        thread::spawn(move || decode(seen, format, &send, &free));
        Self { chunks, used, current: Vec::new(), at: 0, digest: hasher, taken }
    }

    /// How many compressed bytes have been read, a little ahead of what was taken out.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The SHA-256 of the compressed bytes, once the stream has ended and where it was asked for.
    pub fn digest(self) -> Option<[u8; 32]> {
        let hasher = self.digest.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(hasher.finalize().into())
    }

    /// What was decompressed and not read yet; empty at the end.
    pub fn chunk(&mut self) -> io::Result<&[u8]> {
        if self.at == self.current.len() {
            self.at = 0;
            let used = std::mem::take(&mut self.current);
            // Where the other side is gone or has enough buffers, this one is freed.
            let _ = self.used.try_send(used);
            // The sender closes the channel when it is through.
            self.current = self.chunks.recv().unwrap_or_else(|_| Ok(Vec::new()))?;
        }
        Ok(&self.current[self.at..])
    }

    /// Says that so many bytes of [`Self::chunk`] were used.
    pub fn consume(&mut self, n: usize) {
        self.at = (self.at + n).min(self.current.len());
    }
}

impl Read for Decoded {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let chunk = self.chunk()?;
        let n = chunk.len().min(buf.len());
        buf[..n].copy_from_slice(&chunk[..n]);
        self.consume(n);
        Ok(n)
    }
}

/// Sends chunks until the end, an error, or nobody wants more.
fn decode(
    file: Seen<impl Read + Send + 'static>,
    format: Format,
    send: &Sender<io::Result<Vec<u8>>>,
    free: &Receiver<Vec<u8>>,
) {
    let mut decoder = match format.decoder(BufReader::with_capacity(CHUNK, file)) {
        Ok(decoder) => decoder,
        Err(e) => {
            let _ = send.send(Err(e));
            return;
        }
    };
    loop {
        let mut buffer = free.try_recv().unwrap_or_default();
        buffer.resize(CHUNK, 0);
        let mut filled = 0;
        let ended = loop {
            if filled == CHUNK {
                break Ok(false);
            }
            match decoder.read(&mut buffer[filled..]) {
                Ok(0) => break Ok(true),
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        buffer.truncate(filled);
        if filled > 0 && send.send(Ok(buffer)).is_err() {
            return;
        }
        match ended {
            Ok(false) => {}
            Ok(true) => return,
            Err(e) => {
                let _ = send.send(Err(e));
                return;
            }
        }
    }
}

/// Counts and hashes what is read.
struct Seen<R> {
    file: R,
    hasher: Arc<Mutex<Option<Sha256>>>,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Seen<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        self.taken.fetch_add(n as u64, Ordering::Relaxed);
        if let Some(hasher) = &mut *self.hasher.lock().unwrap_or_else(PoisonError::into_inner) {
            hasher.update(&buf[..n]);
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_format() {
        assert_eq!(Format::of_name("blas_lib_all.tar.zst"), Some(("blas_lib_all", Format::Zstd)));
        assert_eq!(Format::of_name("a.tar.xz"), Some(("a", Format::Xz)));
        assert_eq!(Format::of_name("a.tar.gz"), Some(("a", Format::Gzip)));
        for other in [".tar.gz", "a.tar", "a.tar.zst.sha256sum", "a.tgz"] {
            assert_eq!(Format::of_name(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_of_another_format_is_told_by_its_first_bytes() {
        let tar = [vec![b'a'; 257], b"ustar\0".to_vec()].concat();
        for (begin, what) in [
            (&b"\x1f\x8b\x08"[..], Some("gzip")),
            (b"\xfd7zXZ\0\0", Some("xz")),
            (b"PK\x03\x04", Some("a zip archive")),
            (&tar, Some("tar without compression")),
            (b"\x28\xb5\x2f\xfd", None),
            (b"\x52\x2a\x4d\x18", None),
            (b"text", None),
            (b"", None),
        ] {
            assert_eq!(Format::Zstd.other(begin).map(|(what, _)| what), what, "{begin:?}");
        }
        assert_eq!(Format::Xz.other(b"\x28\xb5\x2f\xfd"), Some(("zstd", ".tar.zst")));
        assert_eq!(Format::Gzip.other(b"\x1f\x8b\x08"), None);
    }

    #[test]
    fn every_format_is_decompressed_and_digested_whole() {
        let bytes: Vec<u8> =
            (0..750_000u32).flat_map(|i| (i.wrapping_mul(i) >> 7).to_le_bytes()).collect();
        let zst = zstd::encode_all(&bytes[..], 1).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
        io::Write::write_all(&mut xz, &bytes).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gz, &bytes).unwrap();
        let made = [
            (Format::Zstd, zst),
            (Format::Xz, xz.finish().unwrap()),
            (Format::Gzip, gz.finish().unwrap()),
        ];
        for (format, packed) in made {
            let mut read = Vec::new();
            let mut decoded = Decoded::new(io::Cursor::new(packed.clone()), format, true);
            decoded.read_to_end(&mut read).unwrap();
            assert!(read == bytes, "{format:?}");
            assert_eq!(decoded.digest(), Some(Sha256::digest(&packed).into()));
            // Twice the stream is the stream twice; a cut one is an error.
            let twice = [&packed[..], &packed].concat();
            let mut decoded = Decoded::new(io::Cursor::new(twice), format, false);
            assert_eq!(io::copy(&mut decoded, &mut io::sink()).unwrap(), 2 * bytes.len() as u64);
            let cut = packed[..packed.len() - 9].to_vec();
            let mut decoded = Decoded::new(io::Cursor::new(cut), format, false);
            assert!(io::copy(&mut decoded, &mut io::sink()).is_err(), "{format:?}");
        }
    }
}
