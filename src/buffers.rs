//! Memory for large pieces of data, which goes round: fresh memory for each would cost about as much as
//! copying it, since the system clears it page by page.

use std::sync::{Mutex, PoisonError};

/// Buffers that wait to be used again, by several threads.
#[derive(Debug)]
pub(crate) struct Buffers {
    kept: Mutex<Vec<Vec<u8>>>,
    most: usize,
    times: usize,
    cut: bool,
}

impl Buffers {
    /// None so far; at most `most` bytes will wait here. Nobody gets a buffer over `times` as large as
    /// what it is for.
    pub fn new(most: usize, times: usize) -> Self {
        Self { kept: Mutex::default(), most, times, cut: false }
    }

    /// The same where sizes fall: what a buffer has over its size is freed, since nothing larger will come.
    pub fn falling(most: usize, times: usize) -> Self {
        Self { cut: true, ..Self::new(most, times) }
    }

    /// A buffer with room for `size` bytes. It may hold something.
    pub fn take(&self, size: usize) -> Vec<u8> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = size..=size.saturating_mul(self.times);
        let fitting = (0..kept.len()).filter(|&i| fits.contains(&kept[i].capacity()));
        match fitting.min_by_key(|&i| kept[i].capacity()) {
            Some(i) => {
                let mut buffer = kept.swap_remove(i);
                if self.cut {
                    buffer.truncate(size);
                    buffer.shrink_to(size);
                }
                buffer
            }
            None => {
                // One that does not fit makes room for the new one.
                kept.pop();
                Vec::with_capacity(size)
            }
        }
    }

    /// Takes a buffer back for the next use, or frees it where enough are waiting.
    pub fn give_back(&self, buffer: Vec<u8>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = kept.iter().map(Vec::capacity).sum();
        if buffer.capacity() <= self.most.saturating_sub(held) {
            kept.push(buffer);
        }
    }
}
