//! Compresses and writes in a thread beside the one that reads and digests. One thread that does all in turn is what a large
//! `.rpm` waits for, while the threads that compress rest.

use std::io::{self, Write};
use std::panic;
use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::ahead::CHUNK;
use super::compress::Encoder;

/// How many chunks wait.
const WAITING: usize = 32;
/// From this size on a buffer goes over as it is. Less is copied into a chunk.
const WORTH_ITS_WAY: usize = CHUNK / 4;

/// An [`Encoder`], here or in another thread. The bytes are the same.
pub(super) enum Encoding<'scope, W: Write> {
    Here(Box<Encoder<W>>),
    Beside(Beside<'scope, W>),
}

/// The way to the other thread.
pub(super) struct Beside<'scope, W> {
    to: Sender<Work>,
    /// The way back of chunks, whose memory is used again.
    used: Receiver<Vec<u8>>,
    /// What has not gone over yet.
    chunk: Vec<u8>,
    /// Until it is known how it ended.
    thread: Option<ScopedJoinHandle<'scope, io::Result<W>>>,
}

/// What the encoder is told: see its methods.
enum Work {
    Bytes(Vec<u8>),
    File { start: Vec<u8>, size: u64, given: bool },
    Blocks(Arc<Vec<u8>>),
    Finish,
}

impl<'scope, W: Write + Send + 'scope> Encoding<'scope, W> {
    /// Keeps the encoder.
    pub(super) fn here(encoder: Encoder<W>) -> Self {
        Self::Here(Box::new(encoder))
    }

    /// Lets a thread of `scope` have the encoder. Where the system refuses one, it stays here.
    pub(super) fn beside(scope: &'scope Scope<'scope, '_>, encoder: Encoder<W>) -> Self {
        let (to, from) = bounded(WAITING);
        let (back, used) = unbounded();
        let (hand_over, begin) = bounded(1);
        let run = move || {
            let encoder = begin.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            run(encoder, &from, &back)
        };
        let Ok(thread) = thread::Builder::new().spawn_scoped(scope, run) else {
            return Self::here(encoder);
        };
        match hand_over.send(encoder) {
            Ok(()) => {
                let thread = Some(thread);
                Self::Beside(Beside { to, used, chunk: Vec::new(), thread })
            }
            Err(unsent) => Self::here(unsent.0),
        }
    }

    /// See [`Encoder::file`].
    pub(super) fn file(&mut self, start: &[u8], size: u64, given: bool) -> io::Result<()> {
        match self {
            Self::Here(encoder) => encoder.file(start, size, given),
            Self::Beside(beside) => {
                beside.send_chunk()?;
                // What it is shows in the first bytes.
                let start = start[..start.len().min(CHUNK)].to_vec();
                beside.send(Work::File { start, size, given })
            }
        }
    }

    /// See [`Encoder::give`].
    pub(super) fn give(&mut self, blocks: Arc<Vec<u8>>) -> io::Result<()> {
        match self {
            Self::Here(encoder) => encoder.give(blocks),
            Self::Beside(beside) => {
                beside.send_chunk()?;
                beside.send(Work::Blocks(blocks))
            }
        }
    }

    /// Writes what is in a buffer, and may leave another one in its place.
    pub(super) fn hand_over(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Beside(beside) if buffer.len() >= WORTH_ITS_WAY => {
                beside.send_chunk()?;
                let next = beside.spare();
                beside.send(Work::Bytes(std::mem::replace(buffer, next)))
            }
            _ => self.write_all(buffer),
        }
    }

    /// See [`Encoder::finish`].
    pub(super) fn finish(self) -> io::Result<W> {
        match self {
            Self::Here(encoder) => encoder.finish(),
            Self::Beside(mut beside) => {
                beside.send_chunk()?;
                beside.send(Work::Finish)?;
                beside.join()
            }
        }
    }
}

impl<W: Write + Send> Beside<'_, W> {
    fn send(&mut self, work: Work) -> io::Result<()> {
        match self.to.send(work) {
            Ok(()) => Ok(()),
            // It has stopped, and says why.
            Err(_) => Err(self.join().err().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn send_chunk(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let mut next = self.spare();
        next.clear();
        next.reserve_exact(CHUNK);
        let full = std::mem::replace(&mut self.chunk, next);
        self.send(Work::Bytes(full))
    }

    /// A buffer that came back, or a new one.
    fn spare(&self) -> Vec<u8> {
        self.used.try_recv().unwrap_or_default()
    }

    fn join(&mut self) -> io::Result<W> {
        let thread = self.thread.take().ok_or(io::ErrorKind::BrokenPipe)?;
        thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    }
}

impl<W: Write + Send> Write for Encoding<'_, W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let beside = match self {
            Self::Here(encoder) => return encoder.write(buf),
            Self::Beside(beside) => beside,
        };
        let n = buf.len().min(CHUNK - beside.chunk.len());
        beside.chunk.extend_from_slice(&buf[..n]);
        if beside.chunk.len() == CHUNK {
            beside.send_chunk()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A flush would end a block, and so change the bytes.
        Ok(())
    }
}

/// Encodes until all is there, or nobody sends any more.
fn run<W: Write>(
    mut encoder: Encoder<W>,
    from: &Receiver<Work>,
    back: &Sender<Vec<u8>>,
) -> io::Result<W> {
    for work in from {
        match work {
            Work::Bytes(bytes) => {
                encoder.write_all(&bytes)?;
                // Where the other side has stopped nobody needs it.
                let _ = back.send(bytes);
            }
            Work::File { start, size, given } => encoder.file(&start, size, given)?,
            Work::Blocks(blocks) => encoder.give(blocks)?,
            Work::Finish => return encoder.finish(),
        }
    }
    Err(io::ErrorKind::BrokenPipe.into())
}
