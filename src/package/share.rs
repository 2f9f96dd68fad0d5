//! How many packages are written at once, and with how many threads each, so that all of it stays within the memory that
//! the user allows. Neither changes the bytes of a package.

use std::cmp::Reverse;

use super::compress::{Compression, memory_of_both};
use super::together;
use crate::error::{Error, Result};

/// What is read ahead without a bound, all packages together: enough for the digests of eight files of a kernel
/// database side by side.
const READ_AHEAD: u64 = 64 << 20;
/// The least that is read ahead.
const LEAST_AHEAD: u64 = 1 << 20;
/// The program, its configuration, the names of what it packages: see [`Bound::entries`].
const PROGRAM: u64 = 24 << 20;
/// An entry of a tree, its copies in a package's list and header.
const ENTRY: u64 = 2 << 10;

/// What there is to share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound<'a> {
    /// The memory that the run may take, in bytes.
    pub(super) memory: Option<u64>,
    /// What of it is in flight between the threads that build archives.
    pub(super) in_flight: u64,
    /// Files, links and directories in all packages.
    pub(super) entries: usize,
    /// Threads of the run.
    pub(super) threads: usize,
    /// Compressions that a package is written with, one for each format.
    pub(super) compressions: &'a [Compression],
}

/// What each package gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// How many packages are written at once.
    pub(super) at_once: usize,
    /// Threads that compress one of them, in each format.
    pub(super) threads: usize,
    /// How many more there may be for large ones, all together.
    pub(super) spare: usize,
    /// Bytes that each reads ahead.
    pub(super) read_ahead: u64,
    /// Whether both formats are written at a time, from one reading; else one after the other.
    pub(super) together: bool,
}

impl Bound<'_> {
    /// Shares it between `packages`. Fails where not even one package at a time with one thread has room.
    pub(super) fn share(&self, packages: usize) -> Result<Share> {
        let widest = self.threads.min(packages).max(1);
        let each = (self.threads / widest).max(1);
        let several = self.compressions.len() > 1;
        let Some(memory) = self.memory else {
            let read_ahead = READ_AHEAD / widest as u64;
            let (threads, spare, together) = (each, self.threads, several);
            return Ok(Share { at_once: widest, threads, spare, read_ahead, together });
        };
        let fixed = PROGRAM + ENTRY * self.entries as u64 + self.in_flight;
        let left = memory.saturating_sub(fixed);
        // Reading the input once comes first. Then rather many packages than many threads for one: so reading and digests
        // go side by side, too.
        let ways = [true, false].into_iter().filter(|together| several || !together);
        let candidates = ways.flat_map(|together| {
            (1..=widest).rev().flat_map(move |at_once| {
                let threads = (1..=(self.threads / at_once).max(1)).rev();
                threads.map(move |threads| (at_once, threads, together))
            })
        });
        let mut fitting = candidates.filter_map(|(at_once, threads, together)| {
            let room = (left / at_once as u64).checked_sub(self.compressing(threads, together))?;
            let read_ahead = room.min(READ_AHEAD / at_once as u64);
            let one_more = self.compressing(threads + 1, together);
            let one_more = one_more - self.compressing(threads, together);
            let spare = (room - read_ahead) * at_once as u64;
            let spare = spare.checked_div(one_more).map_or(self.threads, |n| {
                usize::try_from(n).unwrap_or(usize::MAX).min(self.threads)
            });
            let share = Share { at_once, threads, spare, read_ahead, together };
            (room >= LEAST_AHEAD).then_some(share)
        });
        fitting.next().ok_or_else(|| self.too_little(memory, fixed).into())
    }

    /// What compressing one package takes at most, in all formats at a time or in one after the other.
    fn compressing(&self, threads: usize, together: bool) -> u64 {
        match self.compressions {
            [one, other] if together => memory_of_both(*one, *other, threads) + together::MEMORY,
            each => each.iter().map(|how| how.memory(threads)).max().unwrap_or(0),
        }
    }

    fn too_little(&self, memory: u64, fixed: u64) -> Error {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        // What is in flight is a part of the bound, so that it grows with it.
        let needed = fixed - self.in_flight + self.compressing(1, false) + LEAST_AHEAD;
        let needed = needed + in_flight(needed + needed / 3);
        let costly = self.compressions.iter().max_by_key(|how| how.memory(1));
        let how = costly.map(ToString::to_string).unwrap_or_default();
        Error::usage(format!(
            "a bound of {} MiB on memory is too little: writing a package with {how} takes {} MiB",
            mib(memory),
            mib(needed)
        ))
        .hint(format!(
            "allow {}MiB, or compress at a lower level or with a smaller window; none takes least",
            mib(needed)
        ))
    }
}

impl Share {
    /// Threads for each package: those that are a large part of all `works`, in bytes, get a like part of the
    /// threads of the run, since the others will be written long before.
    pub(super) fn threads(&self, works: &[u64], threads: usize) -> Vec<usize> {
        let all = u128::from(works.iter().sum::<u64>().max(1));
        let mut spare = self.spare;
        let mut order: Vec<usize> = (0..works.len()).collect();
        order.sort_by_key(|&package| Reverse(works[package]));
        let mut given = vec![self.threads; works.len()];
        for package in order {
            let part = (u128::from(works[package]) * threads as u128 + all / 2) / all;
            let wanted = usize::try_from(part).unwrap_or(threads).min(threads);
            let more = wanted.saturating_sub(self.threads).min(spare);
            given[package] += more;
            spare -= more;
        }
        given
    }
}

/// What of a bound on memory is for data in flight between threads, where packages are written as well: a quarter, up to the
/// 64 MiB that are the default elsewhere.
pub fn in_flight(memory: u64) -> u64 {
    (memory / 4).min(64 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn share(memory: Option<u64>, how: &str, threads: usize, packages: usize) -> Result<Share> {
        let in_flight = memory.map_or(64 * MIB, in_flight);
        let compressions = [how.parse().unwrap()];
        Bound { memory, in_flight, entries: 1000, threads, compressions: &compressions }
            .share(packages)
    }

    #[test]
    fn without_a_bound_all_threads_are_used() {
        let shared = |threads, packages| {
            let share = share(None, "zstd:19,long=27", threads, packages).unwrap();
            (share.at_once, share.threads)
        };
        assert_eq!(
            [shared(1, 9), shared(8, 2), shared(8, 1), shared(2, 9)],
            [(1, 1), (2, 4), (1, 8), (2, 1)]
        );
    }

    #[test]
    fn a_bound_takes_packages_then_threads_away() {
        let shared = |memory, how, threads| {
            let share = share(Some(memory * MIB), how, threads, 9).ok()?;
            assert!(share.read_ahead >= LEAST_AHEAD);
            Some((share.at_once, share.threads))
        };
        assert_eq!(shared(256, "zstd:3", 2), Some((2, 1)));
        assert_eq!(shared(190, "zstd:3,long=20", 2), Some((1, 2)));
        assert_eq!(shared(128, "zstd:3", 2), Some((1, 1)));
        assert_eq!(shared(256, "zstd:3", 64), Some((3, 1)));
        assert_eq!(shared(256, "zstd:3,long=20", 64), Some((2, 2)));
        assert_eq!(shared(256, "zstd:10,long=27", 2), None);
    }

    #[test]
    fn two_formats_go_together_where_there_is_room() {
        let compressions = ["zstd:3".parse().unwrap(), "zstd:3".parse().unwrap()];
        let shared = |memory: Option<u64>| {
            let memory = memory.map(|memory| memory * MIB);
            let in_flight = memory.map_or(64 * MIB, in_flight);
            let bound =
                Bound { memory, in_flight, entries: 1000, threads: 2, compressions: &compressions };
            let share = bound.share(9).unwrap();
            (share.at_once, share.threads, share.together)
        };
        assert_eq!(shared(None), (2, 1, true));
        assert_eq!(shared(Some(512)), (2, 1, true));
        assert_eq!(shared(Some(256)), (1, 1, true));
        assert_eq!(shared(Some(128)), (1, 1, false));
    }

    #[test]
    fn a_large_package_gets_threads_of_its_part_of_the_work() {
        let share = share(None, "zstd:3", 8, 9).unwrap();
        assert_eq!(share.threads(&[10, 60, 10, 20], 8), [1, 5, 1, 2]);
        assert_eq!(share.threads(&[100], 8), [8]);
        assert_eq!(Share { spare: 3, ..share }.threads(&[10, 60, 10, 20], 8), [1, 4, 1, 1]);
        assert_eq!(share.threads(&[0, 0], 8), [1, 1]);
    }

    #[test]
    fn what_is_said_to_be_enough_is() {
        for how in ["zstd:3", "zstd:10", "zstd:19,long=27", "xz:6", "none"] {
            let errors = share(Some(MIB), how, 8, 3).unwrap_err();
            let hint = errors.iter().next().unwrap().hint_text().unwrap().to_owned();
            let mib: u64 = hint.split(&[' ', 'M'][..]).nth(1).unwrap().parse().unwrap();
            assert!(share(Some(mib * MIB), how, 8, 3).is_ok(), "{how}: {hint}");
            assert!(share(Some((mib - mib / 8) * MIB), how, 8, 3).is_err(), "{how}: {hint}");
        }
    }
}
