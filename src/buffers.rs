//! Memory for large pieces of data, which goes round: fresh memory for each would cost about as much as
//! copying it, since the system clears it page by page.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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

    /// The same where a buffer is never larger than what it is for: the rest is freed.
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

    /// A buffer with room for `size` bytes, empty, that comes back when it is dropped.
    pub fn lend(self: &Arc<Self>, size: usize) -> Buffer {
        let mut bytes = self.take(size);
        bytes.clear();
        Buffer { bytes, home: Home::Pool(Arc::clone(self)) }
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

/// Buffers within a bound: those in use and those that wait for their next use take no more together, but for one
/// that is alone.
#[derive(Debug)]
pub(crate) struct Bounded {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes in use.
    used: u64,
    waiting: Vec<Vec<u8>>,
    /// How many buffers will still be taken: with none to come, nothing waits for it.
    coming: usize,
}

impl State {
    fn waiting(&self) -> u64 {
        self.waiting.iter().map(|buffer| buffer.capacity() as u64).sum()
    }
}

impl Bounded {
    /// None so far.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), freed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that so many buffers will be taken by the one who asks.
    pub fn expect(self: &Arc<Self>, buffers: usize) -> Expected {
        self.lock().coming += buffers;
        Expected { of: Arc::clone(self), left: buffers }
    }

    /// A buffer with room for `size` bytes, empty, if there is room now.
    pub fn try_lend(self: &Arc<Self>, size: usize, expected: &mut Expected) -> Option<Buffer> {
        let lent = self.lend_of(&mut self.lock(), size)?;
        expected.came();
        Some(lent)
    }

    /// The same once there is room. Who waits must hold nothing that others wait for.
    pub fn lend(self: &Arc<Self>, size: usize, expected: &mut Expected) -> Buffer {
        let mut state = self.lock();
        loop {
            if let Some(lent) = self.lend_of(&mut state, size) {
                drop(state);
                expected.came();
                return lent;
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Room for so many bytes that are not in a buffer of ours, if there is room now.
    pub fn try_room(self: &Arc<Self>, size: u64) -> Option<Buffer> {
        self.room_of(&mut self.lock(), size)
    }

    /// The same once there is room. Who waits must hold nothing that others wait for.
    pub fn room(self: &Arc<Self>, size: u64) -> Buffer {
        let mut state = self.lock();
        loop {
            if let Some(room) = self.room_of(&mut state, size) {
                return room;
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn room_of(self: &Arc<Self>, state: &mut State, size: u64) -> Option<Buffer> {
        if state.used != 0 && state.used.saturating_add(size) > self.limit {
            return None;
        }
        state.used = state.used.saturating_add(size);
        while !state.waiting.is_empty() && state.used + state.waiting() > self.limit {
            state.waiting.pop();
        }
        Some(Buffer { bytes: Vec::new(), home: Home::Bounded(Arc::clone(self), size) })
    }

    fn lend_of(self: &Arc<Self>, state: &mut State, size: usize) -> Option<Buffer> {
        let room = if state.used == 0 { u64::MAX } else { self.limit.saturating_sub(state.used) };
        let fits = |buffer: &Vec<u8>| {
            let capacity = buffer.capacity();
            capacity >= size && capacity / 2 <= size && capacity as u64 <= room
        };
        let fitting = (0..state.waiting.len()).filter(|&i| fits(&state.waiting[i]));
        let mut bytes = match fitting.min_by_key(|&i| state.waiting[i].capacity()) {
            Some(i) => state.waiting.swap_remove(i),
            None => Vec::new(),
        };
        let counted = (bytes.capacity() as u64).max(size as u64);
        let mut lent = self.room_of(state, counted)?;
        bytes.clear();
        bytes.reserve_exact(size);
        lent.bytes = bytes;
        Some(lent)
    }

    fn give_back(&self, bytes: Vec<u8>, counted: u64) {
        let mut state = self.lock();
        state.used -= counted;
        let keep = state.coming > 0 && bytes.capacity() > 0;
        let gone = if keep {
            state.waiting.push(bytes);
            None
        } else {
            Some(bytes)
        };
        drop(state);
        self.freed.notify_all();
        drop(gone);
    }
}

/// Buffers that somebody will still take.
#[derive(Debug)]
pub(crate) struct Expected {
    of: Arc<Bounded>,
    left: usize,
}

impl Expected {
    /// One of them was taken, or is not needed after all.
    fn came(&mut self) {
        if self.left > 0 {
            self.left -= 1;
            self.less(1);
        }
    }

    fn less(&self, buffers: usize) {
        let mut state = self.of.lock();
        state.coming -= buffers;
        let gone = if state.coming == 0 { std::mem::take(&mut state.waiting) } else { Vec::new() };
        drop(state);
        drop(gone);
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.less(self.left);
    }
}

/// A buffer that goes back where it is from.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// What is in it.
    pub bytes: Vec<u8>,
    home: Home,
}

#[derive(Debug)]
enum Home {
    Pool(Arc<Buffers>),
    /// Of whose bound so many bytes are taken.
    Bounded(Arc<Bounded>, u64),
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        match &self.home {
            Home::Pool(buffers) => buffers.give_back(bytes),
            Home::Bounded(bounded, counted) => bounded.give_back(bytes, *counted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_in_use_and_waiting_stay_within_the_bound_and_one_alone_need_not() {
        let bounded = Bounded::new(100);
        let held = || {
            let state = bounded.lock();
            (state.used, state.waiting())
        };
        let mut expected = bounded.expect(9);
        let mut lend = |size| bounded.try_lend(size, &mut expected);
        let (a, b) = (lend(60).unwrap(), lend(30).unwrap());
        assert!(lend(20).is_none() && bounded.try_room(11).is_none());
        drop(bounded.try_room(10).unwrap());
        let place = a.bytes.as_ptr();
        drop(a);
        assert_eq!(held(), (30, 60));
        // The one that waits fits, and is given again; not for what is far smaller.
        let (c, d) = (lend(50).unwrap(), lend(10).unwrap());
        assert!(c.bytes.as_ptr() == place && c.bytes.is_empty() && c.bytes.capacity() >= 60);
        assert!(d.bytes.capacity() >= 10 && d.bytes.as_ptr() != place);
        drop((b, c, d));
        assert_eq!(held(), (0, 100));
        // What waits makes way.
        let alone = bounded.try_room(500).unwrap();
        assert_eq!(held(), (500, 0));
        assert!(lend(1).is_none());
        let waiter = std::thread::spawn({
            let bounded = Arc::clone(&bounded);
            move || drop(bounded.room(1))
        });
        drop(alone);
        waiter.join().unwrap();
        let last = lend(10).unwrap();
        // With none to come nothing waits.
        drop(expected);
        drop(last);
        assert_eq!(held(), (0, 0));
    }
}
