//! The threads of a run, the bound on the bytes that they hold at once, and the cache, where the run has one.
//!
//! There is one pool for the whole run. A *driver* (one file being written) cuts its work into items,
//! hands them to the pool, and takes the results back in order; so the output does not depend on the
//! number of threads, and several drivers share the cores without pools inside pools.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, select_biased, unbounded};

use crate::buffers::Bounded;
use crate::cache::Cache;

type Task = Box<dyn FnOnce() + Send>;

/// A pool of threads with a memory bound.
#[derive(Debug)]
pub struct Jobs {
    tasks: Option<Senders>,
    workers: Vec<JoinHandle<()>>,
    budget: Arc<Budget>,
    /// How many archives of the input may be passed over at once.
    passes: Arc<Budget>,
    cache: Option<Cache>,
    bundles: Arc<Bounded>,
    /// A larger bundle is not decompressed into memory whole.
    largest_whole: u64,
    /// As many as threads: each thread that works has one.
    cores: Arc<Budget>,
}

/// Leave to work in a thread beside the pool: so many threads as the run has work at a time, those of the pool among them.
#[derive(Debug)]
pub(crate) struct Core {
    cores: Arc<Budget>,
    permit: Option<Permit>,
}

impl Core {
    /// Waits for something, and lets others work meanwhile.
    pub(crate) fn wait<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.permit = None;
        let waited = wait();
        self.permit = Some(self.cores.wait(1));
        waited
    }
}

/// The two ways to the workers: what is urgent overtakes what waits.
#[derive(Debug)]
struct Senders {
    urgent: Sender<Task>,
    tasks: Sender<Task>,
}

/// Leave to pass over an archive of the input; others wait until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _permit: Permit,
}

impl Jobs {
    /// Starts `threads` (at least one) workers that together hold about `memory` bytes of results
    /// and input. Where the system refuses some of the threads, there are fewer.
    ///
    /// # Panics
    /// Where the system refuses even one thread.
    pub fn new(threads: usize, memory: u64) -> Self {
        let (tasks, queue) = unbounded::<Task>();
        let (urgent, first) = unbounded::<Task>();
        let cores = Budget::new(threads.max(1) as u64);
        let workers: Vec<_> = (0..threads.max(1))
            .map_while(|_| {
                let (first, queue, cores) = (first.clone(), queue.clone(), Arc::clone(&cores));
                thread::Builder::new().spawn(move || work(&first, &queue, &cores)).ok()
            })
            .collect();
        assert!(!workers.is_empty(), "the system refuses to start a thread");
        let passes = Budget::new((threads as u64 / 2).max(1));
        let (tasks, budget) = (Some(Senders { urgent, tasks }), Budget::new(memory));
        let (bundles, largest_whole) = (Bounded::new(memory / 4 * 3), memory / 2);
        Self { tasks, workers, budget, passes, cores, cache: None, bundles, largest_whole }
    }

    /// Has bundles that are decompressed take up to `memory` bytes beside what is in flight, for three quarters of that
    /// otherwise. One of more than half of it is not decompressed into memory whole.
    #[must_use]
    pub fn with_bundles(mut self, memory: u64) -> Self {
        self.bundles = Bounded::new(memory);
        self.largest_whole = memory / 2;
        self
    }

    /// Memory for bundles that are decompressed, and for the windows of decoders.
    pub(crate) fn bundles(&self) -> &Arc<Bounded> {
        &self.bundles
    }

    /// The largest bundle that is decompressed into memory whole, in bytes.
    pub(crate) fn largest_whole(&self) -> u64 {
        self.largest_whole
    }

    /// Has the work of the run use a cache.
    #[must_use]
    pub fn with_cache(mut self, cache: Option<Cache>) -> Self {
        self.cache = cache;
        self
    }

    /// The cache that the run uses.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// Waits for leave to pass over an archive. One pass keeps two cores busy (one decompresses, the
    /// other takes what comes) and has buffers of its own, so there are half as many as workers.
    pub fn turn(&self) -> Turn {
        Turn { _permit: self.passes.wait(1) }
    }

    /// Waits for leave to work beside the pool. Who has it must not wait for the pool.
    pub(crate) fn core(&self) -> Core {
        Core { cores: Arc::clone(&self.cores), permit: Some(self.cores.wait(1)) }
    }

    /// The bound on the bytes that are in flight.
    pub fn in_flight(&self) -> u64 {
        self.budget.limit
    }

    /// Number of workers.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Does `work` on each item in the pool and hands the results to `take` in the order of the
    /// items, in the calling thread. `cost` is the bytes that an item and its result hold; an item
    /// that alone passes the bound runs alone. Stops at the first error of `take`.
    ///
    /// # Panics
    /// Where `work` panicked.
    pub fn ordered<T, R, E>(
        &self,
        items: impl IntoIterator<Item = T>,
        cost: impl Fn(&T) -> u64,
        work: impl Fn(T) -> R + Send + Sync + 'static,
        mut take: impl FnMut(R) -> Result<(), E>,
    ) -> Result<(), E>
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        let mut queue = self.queue(work);
        for item in items {
            let cost = cost(&item);
            queue.push(item, cost, &mut take)?;
        }
        queue.finish(&mut take)
    }

    /// The same for items that come one by one: see [`Queue`].
    pub fn queue<T, R>(&self, work: impl Fn(T) -> R + Send + Sync + 'static) -> Queue<'_, T, R> {
        Queue { jobs: self, work: Arc::new(work), under_way: VecDeque::new() }
    }

    /// Has the pool do `work` before anything that waits. What comes of it is received once; where nobody does, it is dropped.
    pub(crate) fn begin<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Receiver<R> {
        let (done, result) = bounded(1);
        self.senders().urgent.send(task(done, work)).expect("workers are alive");
        result
    }

    fn senders(&self) -> &Senders {
        self.tasks.as_ref().expect("open until dropped")
    }

    /// Runs `drive` on each item, as many at a time as there are workers, each in a thread of its own
    /// beside the pool. Returns the results in the order of the items. Items should come with the
    /// longest first.
    pub fn drive<T: Sync, R: Send>(&self, items: &[T], drive: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
        side_by_side(self.threads().min(items.len()), || {
            while let Some((i, item)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
            {
                let result = drive(item);
                results.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(result);
            }
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|r| r.expect("every item was driven")).collect()
    }

    /// The same for items of which `length` tells how long they take, compared to each other: the longest come first, as
    /// everything would have to wait for one of them in the end.
    pub fn drive_longest_first<T: Sync, R: Send>(
        &self,
        items: &[T],
        length: impl Fn(&T) -> u64,
        drive: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        let mut ordered: Vec<(usize, &T)> = items.iter().enumerate().collect();
        ordered.sort_by_cached_key(|(_, item)| Reverse(length(item)));
        let results = self.drive(&ordered, |(i, item)| (*i, drive(item)));
        let sorted: BTreeMap<usize, R> = results.into_iter().collect();
        sorted.into_values().collect()
    }

    /// Does two things side by side, the one in this thread and the other in one of its own beside the pool; one after the
    /// other where the run has one thread, or the system refuses another.
    pub fn both<A, B: Send>(
        &self,
        here: impl FnOnce() -> A,
        beside: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        let beside = Mutex::new(Some(beside));
        let run = || {
            let beside = beside.lock().unwrap_or_else(PoisonError::into_inner).take();
            beside.map(|beside| beside())
        };
        thread::scope(|scope| {
            let start = || thread::Builder::new().spawn_scoped(scope, run).ok();
            let other = (self.threads() > 1).then(start).flatten();
            let a = here();
            let b = match other {
                Some(other) => other.join().unwrap_or_else(|panic| panic::resume_unwind(panic)),
                None => run(),
            };
            (a, b.expect("it is done once"))
        })
    }

    /// Drives items of which some need others: `needs` has for each item the numbers of those. At most `at_once` run at
    /// a time, each in a thread of its own beside the pool; of those that are ready the one with the lowest number comes
    /// first. `drive` gets the number, and what it calls once others may go on that need the item: when it returns at the
    /// latest. What needs an item that failed is not driven: it has `None` among the results, which are in the order of
    /// the items, and `lost` gets its number, once, as soon as that is known: what is held for it is held for nothing.
    pub fn graph<R: Send, E: Send>(
        &self,
        at_once: usize,
        needs: &[Vec<usize>],
        drive: impl Fn(usize, &dyn Fn()) -> Result<R, E> + Sync,
        lost: impl Fn(usize) + Sync,
    ) -> Vec<Option<Result<R, E>>> {
        let graph = Mutex::new(Graph::new(needs));
        let changed = Condvar::new();
        let locked = || graph.lock().unwrap_or_else(PoisonError::into_inner);
        let release = |item| {
            locked().release(item, needs);
            changed.notify_all();
        };
        let next = || {
            let mut graph = locked();
            loop {
                if let Some(item) = graph.ready.pop_first() {
                    graph.running += 1;
                    return Some(item);
                }
                if graph.running == 0 {
                    return None;
                }
                graph = changed.wait(graph).unwrap_or_else(PoisonError::into_inner);
            }
        };
        side_by_side(at_once.min(needs.len()), || {
            while let Some(item) = next() {
                // Also where it panics, or others would wait for ever.
                let running =
                    Running { graph: &graph, changed: &changed, item, needs, lost: &lost };
                let result = drive(item, &|| release(item));
                if result.is_ok() {
                    release(item);
                }
                locked().results[item] = Some(result);
                drop(running);
            }
        });
        graph.into_inner().unwrap_or_else(PoisonError::into_inner).results
    }
}

/// Runs `work` in that many threads, each until there is nothing left to do. Where the system refuses some of them there
/// are fewer; where it refuses all, this thread does the work.
fn side_by_side(threads: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, &work).ok();
        if (0..threads).map_while(start).count() == 0 {
            work();
        }
    });
}

/// An item that is being driven.
struct Running<'a, R, E> {
    graph: &'a Mutex<Graph<R, E>>,
    changed: &'a Condvar,
    item: usize,
    needs: &'a [Vec<usize>],
    lost: &'a dyn Fn(usize),
}

impl<R, E> Drop for Running<'_, R, E> {
    fn drop(&mut self) {
        let mut graph = self.graph.lock().unwrap_or_else(PoisonError::into_inner);
        graph.running -= 1;
        let lost = graph.lose(self.item, self.needs);
        drop(graph);
        self.changed.notify_all();
        lost.into_iter().for_each(self.lost);
    }
}

/// What [`Jobs::graph`] knows of its items.
struct Graph<R, E> {
    /// For each item how many of those that it needs are not there yet.
    missing: Vec<usize>,
    ready: BTreeSet<usize>,
    running: usize,
    /// Whether what others need of an item is there.
    released: Vec<bool>,
    /// Whether something that the item needs failed.
    lost: Vec<bool>,
    results: Vec<Option<Result<R, E>>>,
}

impl<R, E> Graph<R, E> {
    fn new(needs: &[Vec<usize>]) -> Self {
        let missing: Vec<usize> = needs.iter().map(Vec::len).collect();
        Self {
            ready: (0..needs.len()).filter(|&item| missing[item] == 0).collect(),
            missing,
            running: 0,
            released: vec![false; needs.len()],
            lost: vec![false; needs.len()],
            results: needs.iter().map(|_| None).collect(),
        }
    }

    /// What others need of the item is there.
    fn release(&mut self, item: usize, needs: &[Vec<usize>]) {
        if mem::replace(&mut self.released[item], true) {
            return;
        }
        for (other, needs) in needs.iter().enumerate() {
            let met = needs.iter().filter(|&&need| need == item).count();
            if met > 0 {
                self.missing[other] -= met;
                if self.missing[other] == 0 {
                    self.ready.insert(other);
                }
            }
        }
    }

    /// The item is at its end. Where others do not have what they need of it, returns all that can never run because of
    /// that, but for those that were returned before.
    fn lose(&mut self, item: usize, needs: &[Vec<usize>]) -> Vec<usize> {
        let mut lost = Vec::new();
        let mut ends = if self.released[item] { vec![] } else { vec![item] };
        while let Some(end) = ends.pop() {
            for (other, needs) in needs.iter().enumerate() {
                if needs.contains(&end) && !mem::replace(&mut self.lost[other], true) {
                    lost.push(other);
                    ends.push(other);
                }
            }
        }
        lost
    }
}

/// A task that sends what comes of it.
fn task<R: Send + 'static>(done: Sender<R>, work: impl FnOnce() -> R + Send + 'static) -> Task {
    Box::new(move || {
        // The driver may have given up: then nobody wants the result.
        let _ = done.send(work());
    })
}

/// Does tasks until there are no more senders, those that are urgent first.
fn work(urgent: &Receiver<Task>, tasks: &Receiver<Task>, cores: &Arc<Budget>) {
    loop {
        let next = select_biased! {
            recv(urgent) -> task => task.or_else(|_| tasks.recv()),
            recv(tasks) -> task => task.or_else(|_| urgent.recv()),
        };
        match next {
            Ok(task) => {
                let _core = cores.wait(1);
                task();
            }
            Err(_) => return,
        }
    }
}

/// Items that are worked on in the pool while more of them are found; results come in the order of the
/// items.
pub struct Queue<'a, T, R> {
    jobs: &'a Jobs,
    work: Arc<dyn Fn(T) -> R + Send + Sync>,
    under_way: VecDeque<(Receiver<R>, Permit)>,
}

impl<T: Send + 'static, R: Send + 'static> Queue<'_, T, R> {
    /// Hands an item to the pool, once there is room for the `cost` bytes that it and its result hold;
    /// meanwhile results are given to `take`.
    ///
    /// # Panics
    /// Where the work on an item panicked.
    pub fn push<E>(
        &mut self,
        item: T,
        cost: u64,
        take: &mut impl FnMut(R) -> Result<(), E>,
    ) -> Result<(), E> {
        self.push_on(|senders| &senders.tasks, item, cost, take)
    }

    /// The same for an item that is to overtake others: a long one, at which everything would have to
    /// wait in the end. Its result comes in its order all the same.
    ///
    /// # Panics
    /// Where the work on an item panicked.
    pub fn push_urgent<E>(
        &mut self,
        item: T,
        cost: u64,
        take: &mut impl FnMut(R) -> Result<(), E>,
    ) -> Result<(), E> {
        self.push_on(|senders| &senders.urgent, item, cost, take)
    }

    fn push_on<E>(
        &mut self,
        way: impl Fn(&Senders) -> &Sender<Task>,
        item: T,
        cost: u64,
        take: &mut impl FnMut(R) -> Result<(), E>,
    ) -> Result<(), E> {
        let permit = self.permit(cost, take)?;
        let (done, result) = bounded(1);
        let work = Arc::clone(&self.work);
        let task = task(done, move || work(item));
        way(self.jobs.senders()).send(task).expect("workers are alive");
        self.under_way.push_back((result, permit));
        Ok(())
    }

    fn permit<E>(
        &mut self,
        cost: u64,
        take: &mut impl FnMut(R) -> Result<(), E>,
    ) -> Result<Permit, E> {
        let most = self.jobs.threads() * 64;
        loop {
            if self.under_way.is_empty() {
                // Only then may this thread wait for others: it holds nothing they could need.
                return Ok(self.jobs.budget.wait(cost));
            }
            let room = self.under_way.len() < most;
            match room.then(|| self.jobs.budget.try_now(cost)).flatten() {
                Some(permit) => return Ok(permit),
                None => self.take_first(take)?,
            }
        }
    }

    /// Takes the result of the first item that is under way, once it is there. Whether there was one.
    ///
    /// # Panics
    /// Where the work on the item panicked.
    pub fn take_one<E>(&mut self, take: &mut impl FnMut(R) -> Result<(), E>) -> Result<bool, E> {
        if self.under_way.is_empty() {
            return Ok(false);
        }
        self.take_first(take).map(|()| true)
    }

    /// Takes the results of all items so far.
    ///
    /// # Panics
    /// Where the work on an item panicked.
    pub fn finish<E>(&mut self, take: &mut impl FnMut(R) -> Result<(), E>) -> Result<(), E> {
        while !self.under_way.is_empty() {
            self.take_first(take)?;
        }
        Ok(())
    }

    fn take_first<E>(&mut self, take: &mut impl FnMut(R) -> Result<(), E>) -> Result<(), E> {
        let (result, permit) = self.under_way.pop_front().expect("the caller saw one");
        let taken = take(result.recv().expect("a worker thread panicked"));
        drop(permit);
        taken
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.tasks = None;
        for worker in self.workers.drain(..) {
            // A worker that panicked has been noticed where its result was missing.
            let _ = worker.join();
        }
    }
}

/// So many bytes, or other things, of which what is left is waited for.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

impl Budget {
    /// Nothing of it is taken.
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: Mutex::new(0), freed: Condvar::new() })
    }

    fn try_now(self: &Arc<Self>, bytes: u64) -> Option<Permit> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        (*used == 0 || used.saturating_add(bytes) <= self.limit).then(|| {
            *used += bytes;
            Permit { budget: Arc::clone(self), bytes }
        })
    }

    /// Takes so much once it is there, or nothing is taken: then it may be more than there is.
    pub(crate) fn wait(self: &Arc<Self>, bytes: u64) -> Permit {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while *used != 0 && used.saturating_add(bytes) > self.limit {
            used = self.freed.wait(used).unwrap_or_else(PoisonError::into_inner);
        }
        *used += bytes;
        Permit { budget: Arc::clone(self), bytes }
    }
}

/// What was taken of a [`Budget`], until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Permit {
    /// Takes a part out, which can be given back apart.
    pub(crate) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: Arc::clone(&self.budget), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.budget.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_whatever_the_threads_and_the_bound() {
        for (threads, memory) in [(1, 1), (3, 10), (8, 1 << 20)] {
            let jobs = Jobs::new(threads, memory);
            let mut got = Vec::new();
            let done: Result<(), ()> = jobs.ordered(
                0..200u64,
                |i| i % 7,
                |i| {
                    if i % 13 == 0 {
                        thread::sleep(std::time::Duration::from_micros(200));
                    }
                    i * i
                },
                |r| {
                    got.push(r);
                    Ok(())
                },
            );
            assert_eq!(done, Ok(()));
            assert_eq!(got, (0..200).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn several_drivers_share_one_bound_without_waiting_for_ever() {
        let jobs = Jobs::new(2, 4);
        let sums = jobs.drive(&[1u64, 2, 3, 4, 5], |&n| {
            let mut sum = 0;
            let done: Result<(), ()> = jobs.ordered(
                0..50,
                |_| 3,
                move |i| i * n,
                |r| {
                    sum += r;
                    Ok(())
                },
            );
            done.map(|()| sum)
        });
        assert_eq!(sums, [1, 2, 3, 4, 5].map(|n| Ok(1225 * n)));
    }

    #[test]
    fn what_an_item_needs_comes_before_it_and_nothing_after_a_failure() {
        // 4 needs 0 and 2, which is ready early; 5 needs 1, which fails; 6 needs 5.
        let needs = [vec![], vec![], vec![0], vec![], vec![0, 2], vec![1], vec![5, 0]];
        for threads in [1, 2, 5] {
            let (order, lost) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
            let jobs = Jobs::new(threads, 1);
            let drive = |item, release: &dyn Fn()| {
                order.lock().unwrap().push(item);
                if item == 2 {
                    release();
                    thread::sleep(std::time::Duration::from_millis(5));
                }
                if item == 1 { Err("one") } else { Ok(item * 10) }
            };
            let results =
                jobs.graph(threads, &needs, drive, |item| lost.lock().unwrap().push(item));
            assert_eq!(lost.into_inner().unwrap(), [5, 6]);
            let expected = [
                Some(Ok(0)),
                Some(Err("one")),
                Some(Ok(20)),
                Some(Ok(30)),
                Some(Ok(40)),
                None,
                None,
            ];
            assert_eq!(results, expected);
            let order = order.into_inner().unwrap();
            let at = |item| order.iter().position(|&other| other == item).unwrap();
            assert!(at(0) < at(2) && at(2) < at(4), "{order:?}");
            if threads == 1 {
                assert_eq!(order, [0, 1, 2, 3, 4]);
            }
        }
    }

    #[test]
    fn the_longest_come_first_and_results_in_the_order_of_the_items() {
        let begun = Mutex::new(Vec::new());
        let drive = |n: &u64| {
            begun.lock().unwrap().push(*n);
            n * 10
        };
        let results = Jobs::new(1, 1).drive_longest_first(&[3, 9, 1, 9, 4], |n| *n, drive);
        assert_eq!(results, [30, 90, 10, 90, 40]);
        assert_eq!(begun.into_inner().unwrap(), [9, 9, 4, 3, 1]);
    }

    #[test]
    fn both_are_done_whatever_the_threads() {
        for threads in [1, 2] {
            let jobs = Jobs::new(threads, 1);
            let text = "one".to_owned();
            let (one, sum) =
                jobs.both(|| text.as_str(), || jobs.drive(&[1, 2], |n| n + text.len()));
            assert_eq!((one, sum), ("one", vec![4, 5]));
        }
    }

    #[test]
    fn the_first_error_stops() {
        let jobs = Jobs::new(2, 100);
        let mut taken = 0;
        let done = jobs.ordered(
            0..1000,
            |_| 1,
            |i| i,
            |i| {
                taken += 1;
                if i == 5 { Err("five") } else { Ok(()) }
            },
        );
        assert_eq!((done, taken), (Err("five"), 6));
    }
}
