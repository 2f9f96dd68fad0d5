//! Decompressing the parts of a package.

use std::cell::Cell;
use std::io::{self, BufReader, Read};

use zstd::zstd_safe::DCtx;

use super::error::PackageError;

/// What a decompressor may hold: dpkg's own limit for zstd windows, and room for xz -9.
const ZSTD_WINDOW_LOG: u32 = 27;
const XZ_MEMORY: u64 = 256 << 20;

type Raw<'r> = BufReader<Box<dyn Read + 'r>>;

/// A stream that is decompressed as it is read.
pub(super) enum Decoder<'r> {
    None(Raw<'r>),
    Gzip(flate2::bufread::GzDecoder<Raw<'r>>),
    GzipAll(flate2::bufread::MultiGzDecoder<Raw<'r>>),
    Xz(liblzma::bufread::XzDecoder<Raw<'r>>),
    Zstd(zstd::stream::read::Decoder<'r, Raw<'r>>),
}

/// A thread keeps no state of zstd that is larger than this: what packages with small members need.
const KEPT: usize = 4 << 20;

thread_local! {
    static STATE: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
}

/// What decompressors work in. To make it anew for each of thousands of small packages takes longer than to read them.
pub(super) struct Context(Option<DCtx<'static>>);

impl Context {
    /// That of this thread, or a new one.
    pub fn new() -> Self {
        Self(STATE.take())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(state) = self.0.take().filter(|state| state.sizeof() <= KEPT) {
            STATE.set(Some(state));
        }
    }
}

impl<'r> Decoder<'r> {
    /// Decompresses what `raw` gives; `of` names it in errors. `single` stops at the end of the first
    /// zstd frame or xz stream, as dpkg does.
    pub fn new(
        raw: Box<dyn Read + 'r>,
        of: &str,
        compression: &str,
        single: bool,
        context: &'r mut Context,
    ) -> Result<Self, PackageError> {
        let raw = BufReader::with_capacity(64 << 10, raw);
        let cannot = |e| PackageError::io(of, 0, e);
        Ok(match compression {
            "none" => Self::None(raw),
            "gzip" if single => Self::Gzip(flate2::bufread::GzDecoder::new(raw)),
            "gzip" => Self::GzipAll(flate2::bufread::MultiGzDecoder::new(raw)),
            "xz" | "lzma" => {
                const CONCATENATED: u32 = 0x08;
                let flags = if single { 0 } else { CONCATENATED };
                let stream = if compression == "lzma" {
                    liblzma::stream::Stream::new_lzma_decoder(XZ_MEMORY)
                } else {
                    liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, flags)
                };
                let stream = stream.map_err(|e| cannot(e.into()))?;
                Self::Xz(liblzma::bufread::XzDecoder::new_stream(raw, stream))
            }
            "zstd" => {
                let state = context.0.get_or_insert_with(DCtx::create);
                let decoder = zstd::stream::read::Decoder::with_context(raw, state);
                let mut decoder = if single { decoder.single_frame() } else { decoder };
                decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(cannot)?;
                Self::Zstd(decoder)
            }
            other => {
                let expected = "gzip, xz, zstd or none";
                return Err(PackageError::field(
                    format!("compression of {of}"),
                    0,
                    other,
                    expected,
                ));
            }
        })
    }

    /// Whether compressed bytes are left; all of them are read.
    pub fn has_more(self) -> io::Result<bool> {
        let mut raw = match self {
            Self::None(raw) => raw,
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::GzipAll(decoder) => decoder.into_inner(),
            Self::Xz(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
        };
        Ok(io::copy(&mut raw, &mut io::sink())? > 0)
    }
}

impl Read for Decoder<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::None(raw) => raw.read(buf),
            Self::Gzip(decoder) => decoder.read(buf),
            Self::GzipAll(decoder) => decoder.read(buf),
            Self::Xz(decoder) => decoder.read(buf),
            Self::Zstd(decoder) => decoder.read(buf),
        }
    }
}

/// A stream whose bytes are also given to `each` as they are read.
pub(super) struct Tee<R, F> {
    inner: R,
    each: F,
    read: u64,
}

impl<R: Read, F: FnMut(&[u8])> Tee<R, F> {
    pub fn new(inner: R, each: F) -> Self {
        Self { inner, each, read: 0 }
    }

    /// Reads what nobody has read; returns the length of the whole stream.
    pub fn finish(&mut self) -> io::Result<u64> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match self.read(&mut buffer) {
                Ok(0) => return Ok(self.read),
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
    }
}

impl<R: Read, F: FnMut(&[u8])> Read for Tee<R, F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        (self.each)(&buf[..n]);
        self.read += n as u64;
        Ok(n)
    }
}
