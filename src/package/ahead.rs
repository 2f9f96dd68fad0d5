//! Reads the content of files one after the other, some of it ahead, so that the MD5 of several files can be
//! worked out side by side ([`crate::md5_lanes`]). What was read waits in a window of bounded size until its turn comes.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

use super::files::{cannot_read, longer_than_it_was};
use super::together::Give;
use crate::error::Result;
use crate::md5_lanes::{BLOCK, LANES, Stream};
use crate::tree::{Source, TreePath};

/// What is read at a time. A multiple of [`BLOCK`].
pub(super) const CHUNK: usize = 256 * 1024;

/// How many chunks are read ahead where that is for nothing but the next one.
const NEAR: usize = 2;

/// A file to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'a> {
    pub(super) path: &'a TreePath,
    pub(super) source: &'a Source,
    pub(super) size: u64,
}

/// What a writer gets of a file.
pub(super) enum Piece<'c> {
    /// Content that comes next. Where `shared`, its blocks, if it is compressed by itself, come from elsewhere.
    Content { bytes: &'c [u8], shared: bool },
    /// Blocks of a piece of a file: of this one, or of one before it.
    Blocks(Arc<Vec<u8>>),
}

/// What comes next of a file.
pub(super) enum Step {
    Chunk(Vec<u8>),
    /// Its MD5.
    End([u8; 16]),
}

/// Files that are read in order, and the window.
pub(super) struct Ahead<'a> {
    to_come: VecDeque<Content<'a>>,
    /// The file that is being read, which is the last in the window, and what is left of it.
    open: Option<(Content<'a>, Box<dyn Read + Send + 'a>, u64)>,
    window: VecDeque<InWindow<'a>>,
    /// Buffers in the window, and how many there may be.
    held: usize,
    most: usize,
    spare: Vec<Vec<u8>>,
    /// Another writer that takes some of the files as well.
    give: Option<Give<'a>>,
}

/// A file of which some is in the window.
struct InWindow<'a> {
    path: &'a TreePath,
    /// All but the last are whole chunks.
    chunks: VecDeque<Vec<u8>>,
    /// Bytes at the front of `chunks` that are in the digest.
    digested: usize,
    digest: Stream,
    size: u64,
    /// Whether the end was read.
    whole: bool,
}

impl InWindow<'_> {
    /// What of the first chunk that is not in the digest yet can go into it: whole blocks.
    fn ready(&self) -> &[u8] {
        let chunk = self.chunks.get(self.digested / CHUNK).map_or(&[][..], Vec::as_slice);
        let rest = chunk.get(self.digested % CHUNK..).unwrap_or_default();
        &rest[..rest.len() - rest.len() % BLOCK]
    }

    /// Whether the first chunk can go: all of it is in the digest but what [`Stream::finish`] takes.
    fn first_is_done(&self) -> bool {
        self.chunks.front().is_some_and(|chunk| self.digested >= chunk.len() - chunk.len() % BLOCK)
    }
}

impl<'a> Ahead<'a> {
    /// Will read these files, with at most about `memory` bytes waiting. What another writer takes as well is handed on
    /// to it.
    pub(super) fn new(
        files: impl IntoIterator<Item = Content<'a>>,
        memory: u64,
        give: Option<Give<'a>>,
    ) -> Self {
        let place = |content| give.as_ref().map_or(content, |give| give.place(content));
        Self {
            to_come: files.into_iter().map(place).collect(),
            open: None,
            window: VecDeque::new(),
            held: 0,
            most: usize::try_from(memory / CHUNK as u64).unwrap_or(usize::MAX).max(1),
            spare: Vec::new(),
            give,
        }
    }

    /// Gives the content of the next file in pieces, and returns its MD5.
    pub(super) fn next(
        &mut self,
        mut take: impl FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<[u8; 16]> {
        let mut rest = Vec::new();
        self.fill()?;
        let file = self.window.front().expect("the caller asks for as many files as there are");
        let (path, size) = (file.path, file.size);
        let handed_on = match &mut self.give {
            Some(give) => give.begin(path, size, &mut take)?,
            None => false,
        };
        loop {
            let chunk = match self.step(&mut rest)? {
                Step::Chunk(chunk) => chunk,
                Step::End(md5) => return Ok(md5),
            };
            match self.give.as_mut().filter(|_| handed_on) {
                None => {
                    take(Piece::Content { bytes: &chunk, shared: false })?;
                    self.give_back(chunk);
                }
                Some(give) => {
                    let chunk = give.chunk(chunk, &mut take)?;
                    take(Piece::Content { bytes: &chunk, shared: give.shares_blocks() })?;
                    give.done(chunk);
                }
            }
        }
    }

    /// Whether there is another file.
    pub(super) fn has_next(&mut self) -> Result<bool> {
        self.fill()?;
        Ok(!self.window.is_empty())
    }

    /// The next chunk of the next file, or its end. `rest` is empty before its first chunk, and keeps what is not in the digest yet.
    pub(super) fn step(&mut self, rest: &mut Vec<u8>) -> Result<Step> {
        loop {
            self.fill()?;
            let file = self.window.front_mut().expect("it is there until its end");
            if file.first_is_done() {
                let chunk = file.chunks.pop_front().expect("there is a first");
                file.digested = file.digested.saturating_sub(chunk.len());
                let end = chunk.len() - chunk.len() % BLOCK;
                rest.extend_from_slice(&chunk[end..]);
                self.held -= 1;
                return Ok(Step::Chunk(chunk));
            }
            if file.chunks.is_empty() && file.whole {
                let digest = file.digest.clone().finish(file.size, rest);
                self.window.pop_front();
                return Ok(Step::End(digest));
            }
            self.digest();
        }
    }

    /// Takes a chunk back, whose memory is used again.
    pub(super) fn give_back(&mut self, chunk: Vec<u8>) {
        self.spare.push(chunk);
    }

    /// Gives what is still to come of the files before: to be called behind the last.
    pub(super) fn rest(&mut self, mut take: impl FnMut(Piece<'_>) -> Result<()>) -> Result<()> {
        self.give.as_mut().map_or(Ok(()), |give| give.end(&mut take))
    }

    /// How many chunks the window should have. Within a file of which more is left than the window has room for, what is read far ahead
    /// shares no digest with another file, and is no longer in the processor's cache when its turn comes.
    fn wanted(&self) -> usize {
        match &self.open {
            Some((_, _, left))
                if self.window.len() == 1 && *left / CHUNK as u64 >= self.most as u64 =>
            {
                self.most.min(NEAR)
            }
            _ => self.most,
        }
    }

    /// Reads until the window is full.
    fn fill(&mut self) -> Result<()> {
        while self.held < self.wanted() {
            let Some((content, reader, left)) = &mut self.open else {
                let Some(content) = self.to_come.pop_front() else { break };
                let reader = content.source.open().map_err(|e| cannot_read(&content, e))?;
                self.open = Some((content, reader, content.size));
                self.window.push_back(InWindow {
                    path: content.path,
                    chunks: VecDeque::new(),
                    digested: 0,
                    digest: Stream::new(),
                    size: content.size,
                    whole: false,
                });
                continue;
            };
            let file = self.window.back_mut().expect("an open file is in it");
            let mut chunk = match (&self.give, self.spare.pop()) {
                (Some(give), None) => give.buffer(),
                (_, spare) => spare.unwrap_or_default(),
            };
            let wanted = usize::try_from(*left).unwrap_or(CHUNK).min(CHUNK);
            chunk.resize(wanted, 0);
            reader.read_exact(&mut chunk).map_err(|e| cannot_read(content, e))?;
            *left -= wanted as u64;
            if wanted > 0 {
                file.chunks.push_back(chunk);
                self.held += 1;
            }
            if *left == 0 {
                longer_than_it_was(content, reader)?;
                file.whole = true;
                self.open = None;
            }
        }
        Ok(())
    }

    /// Goes on with the digests of the first file and of those after it.
    fn digest(&mut self) {
        let mut lanes: Vec<&mut InWindow<'_>> =
            self.window.iter_mut().filter(|file| !file.ready().is_empty()).take(LANES).collect();
        let Some(len) = lanes.iter().map(|file| file.ready().len()).min() else { return };
        let mut digests: Vec<Stream> = lanes.iter().map(|file| file.digest.clone()).collect();
        {
            let mut digests: Vec<&mut Stream> = digests.iter_mut().collect();
            let pieces: Vec<&[u8]> = lanes.iter().map(|file| &file.ready()[..len]).collect();
            Stream::update(&mut digests, &pieces);
        }
        for (file, digest) in lanes.iter_mut().zip(digests) {
            file.digest = digest;
            file.digested += len;
        }
    }
}
