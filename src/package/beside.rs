//! Reads and digests content in a thread beside the one that writes. One thread that does both in turn, for a large package in one
//! format, lets those that compress rest while it digests several files at once.

use std::thread::{self, Scope};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::ahead::{Ahead, Content, Piece, Step};
use crate::error::{Error, Errors, Result};

/// Chunks that wait for the writer.
const WAITING: usize = 32;

/// Contents that are read here or in another thread.
pub(super) enum Contents<'a> {
    Here(Box<Ahead<'a>>),
    Beside(Beside),
}

/// What comes from the other thread.
pub(super) struct Beside {
    from: Receiver<Event>,
    /// The way back of chunks, whose memory is used again.
    used: Sender<Vec<u8>>,
}

enum Event {
    Chunk(Vec<u8>),
    /// The MD5 of a file.
    End([u8; 16]),
    Failed(Errors),
}

impl<'a> Contents<'a> {
    /// Begins to read in a thread of `scope`. Where the system refuses it, the caller's thread reads.
    pub(super) fn beside<'scope>(
        scope: &'scope Scope<'scope, '_>,
        files: Vec<Content<'a>>,
        memory: u64,
    ) -> Self
    where
        'a: 'scope,
    {
        let (to, from) = bounded(WAITING);
        let (used, back) = unbounded();
        let all = files.clone();
        let read = move || {
            if let Err(fault) = read(&mut Ahead::new(all, memory, None), &to, &back) {
                // Where the writer has stopped it has said why.
                let _ = to.send(Event::Failed(fault));
            }
        };
        match thread::Builder::new().spawn_scoped(scope, read) {
            Ok(_) => Self::Beside(Beside { from, used }),
            Err(_) => Self::Here(Box::new(Ahead::new(files, memory, None))),
        }
    }

    /// See [`Ahead::next`].
    pub(super) fn next(
        &mut self,
        mut take: impl FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<[u8; 16]> {
        let Beside { from, used } = match self {
            Self::Here(ahead) => return ahead.next(take),
            Self::Beside(beside) => beside,
        };
        loop {
            match from.recv() {
                Ok(Event::Chunk(chunk)) => {
                    take(Piece::Content { bytes: &chunk, shared: false })?;
                    let _ = used.send(chunk);
                }
                Ok(Event::End(md5)) => return Ok(md5),
                Ok(Event::Failed(fault)) => return Err(fault),
                Err(_) => return Err(Error::failed("the thread that reads has stopped").into()),
            }
        }
    }

    /// See [`Ahead::rest`].
    pub(super) fn rest(&mut self, take: impl FnMut(Piece<'_>) -> Result<()>) -> Result<()> {
        match self {
            Self::Here(ahead) => ahead.rest(take),
            Self::Beside(_) => Ok(()),
        }
    }
}

/// Reads all files, until the writer stops.
fn read(ahead: &mut Ahead<'_>, to: &Sender<Event>, back: &Receiver<Vec<u8>>) -> Result<()> {
    while ahead.has_next()? {
        let mut rest = Vec::new();
        loop {
            let event = match ahead.step(&mut rest)? {
                Step::Chunk(chunk) => Event::Chunk(chunk),
                Step::End(md5) => Event::End(md5),
            };
            let last = matches!(event, Event::End(_));
            if to.send(event).is_err() {
                return Ok(());
            }
            back.try_iter().for_each(|chunk| ahead.give_back(chunk));
            if last {
                break;
            }
        }
    }
    Ok(())
}
