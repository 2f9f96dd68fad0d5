//! Reading streams to their end, in pieces.
//!
//! `io::copy` reads eight kilobytes at a time, and `Read::read_exact` does not say how far it came.

use std::io::{self, Read};

/// Reads once, as [`Read::read`], and again where a signal came between.
pub(crate) fn some(stream: &mut (impl Read + ?Sized), buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buf) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Reads until `buf` is full or the stream at its end; returns how many bytes there are.
pub(crate) fn fill(stream: &mut (impl Read + ?Sized), buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match some(stream, &mut buf[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// Gives all that is left of a stream to `take`, in pieces of up to the buffer's length; returns the number of bytes.
pub(crate) fn pieces(
    stream: &mut (impl Read + ?Sized),
    buffer: &mut [u8],
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut total = 0;
    loop {
        match some(stream, buffer)? {
            0 => return Ok(total),
            n => {
                take(&buffer[..n])?;
                total += n as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time, and a signal before each.
    struct Slow<'a>(&'a [u8], bool);

    impl Read for Slow<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let len = buf.len().min(1);
            self.0.read(&mut buf[..len])
        }
    }

    #[test]
    fn a_slow_stream_is_read_to_its_end() {
        let mut buf = [0; 4];
        let mut stream = Slow(b"seven..", false);
        assert_eq!((fill(&mut stream, &mut buf).unwrap(), &buf), (4, b"seve"));
        assert_eq!((fill(&mut stream, &mut buf).unwrap(), &buf[..3]), (3, &b"n.."[..]));
        let mut all = Vec::new();
        let total = pieces(&mut Slow(b"seven..", false), &mut buf, |piece| {
            all.extend_from_slice(piece);
            Ok(())
        });
        assert_eq!((total.unwrap(), all.as_slice()), (7, &b"seven.."[..]));
    }
}
