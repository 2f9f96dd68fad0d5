//! Hashes of the compressed bundles that are files of databases. Such a hash is the only sum over a
//! bundle's content, and computing it takes longer than decompressing; but those of eight bundles together
//! take hardly longer than one. So bundles are looked into at once and wait in memory for their hashes.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::buffers::Buffers;
use crate::fatbin::BundleError;
use crate::fatbin::bundle::Bundle;
use crate::fatbin::content::{self, Content};
use crate::read_at::ReadAt;

/// Bundles in memory, each with the number of its file.
pub(super) struct Unchecked {
    /// What may be in memory.
    most: u64,
    buffers: Arc<Buffers>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes of all contents, from before they are decompressed until they are checked.
    held: u64,
    /// Whether a thread is checking hashes.
    checking: bool,
    waiting: Vec<(usize, Content)>,
    damaged: Vec<(usize, BundleError)>,
}

impl Unchecked {
    /// Holds at most `memory` bytes. Freed buffers are used again: as files come by size, the next
    /// bundle mostly fits, and there are no more buffers than were in use at once.
    pub fn new(memory: u64) -> Self {
        let buffers = usize::try_from(memory).unwrap_or(usize::MAX);
        Self {
            most: memory,
            buffers: Arc::new(Buffers::falling(buffers, 2)),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Decompresses a file's bundle, gives it to `look`, and keeps it for its hash. `None`, without a
    /// look, where [`Content::read`] says so or it would take over a third of the memory.
    pub fn look<T>(
        &self,
        file: usize,
        bundle: &Bundle,
        r: &dyn ReadAt,
        look: impl FnOnce(&Content) -> T,
    ) -> Option<T> {
        let size = Content::size(bundle).filter(|size| *size <= self.most / 3)?;
        let room = usize::try_from(size).ok()?;
        self.make_room(size);
        let Some(content) = Content::read(bundle, r, self.buffers.lend(room)) else {
            self.lock().held -= size;
            self.changed.notify_all();
            return None;
        };
        let seen = look(&content);
        let mut state = self.lock();
        state.waiting.push((file, content));
        let full = state.waiting.len() >= Content::TOGETHER && !state.checking;
        drop(state);
        self.changed.notify_all();
        if full {
            self.check();
        }
        Some(seen)
    }

    /// Takes room for so many bytes: where there is none, that of the bundles that wait, or of those
    /// that another thread is checking.
    fn make_room(&self, size: u64) {
        let mut state = self.lock();
        while state.held + size > self.most {
            if state.checking || state.waiting.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                drop(state);
                self.check();
                state = self.lock();
            }
        }
        state.held += size;
    }

    /// Checks the hashes of those that wait.
    fn check(&self) {
        let mut state = self.lock();
        state.checking = true;
        let ready = std::mem::take(&mut state.waiting);
        drop(state);
        let contents: Vec<&Content> = ready.iter().map(|(_, content)| content).collect();
        let hashes = content::check(&contents);
        let size: u64 = contents.iter().map(|content| content.len() as u64).sum();
        let numbers: Vec<usize> = ready.iter().map(|(file, _)| *file).collect();
        drop(ready);
        let mut state = self.lock();
        let faults = numbers.into_iter().zip(hashes);
        state.damaged.extend(faults.filter_map(|(file, hash)| Some((file, hash.err()?))));
        state.held -= size;
        state.checking = false;
        self.changed.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the rest: the files whose bundles are damaged, with what is wrong with them.
    pub fn finish(self) -> Vec<(usize, BundleError)> {
        self.check();
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).damaged
    }
}
