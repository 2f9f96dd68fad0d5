//! Both formats of a package at a time, from one reading of each file of the input.
//!
//! Two writers, each in a thread of its own: the `.deb`'s reads, and hands on each chunk that it takes out of its
//! window ([`super::ahead`]) through a bounded channel; the `.rpm`'s takes the chunks from there. So MD5 goes on one
//! side and SHA-256 on the other, and a single large package keeps two cores busy beside the threads that compress.
//! Where both are compressed alike, pieces of large files are compressed once, on the side that reads, and their blocks
//! ([`super::frame`]) go to both.
//!
//! The formats order files differently: a `.deb` walks directories (`lib/x/a` before `lib/x-y`), an `.rpm` sorts
//! names as bytes (`lib/x-y` before `lib/x/a`) and has files of several names at the end. What stands in one order
//! in both, as many bytes as possible, is handed on; the rest is copied first into a file without a name, from which each
//! writer takes it when its turn comes.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded, unbounded};

use super::ahead::{CHUNK, Content, Piece};
use super::compress::shared_level;
use super::files;
use super::frame::{self, Cut, LARGE, Way};
use super::render::Templates;
use super::spec::Package;
use super::{Options, Report, deb, rpm};
use crate::buffers::Buffers;
use crate::error::{Error, Errors, Result};
use crate::jobs::{Core, Jobs};
use crate::progress::Monitor;
use crate::tree::{EntryKind, InputFile, Source, Tree, TreePath};
use crate::zstd_blocks::Blocks;

/// Chunks that wait for the second writer: about what its compression takes in at a time.
const WAITING: usize = 32;

/// What the channel holds at most, in bytes, with the chunks that the second writer works on and those that wait to be
/// used again.
pub(super) const MEMORY: u64 = 2 * (WAITING * CHUNK) as u64;

/// Writes a package as `.deb` and as `.rpm`, each with its options into its file; returns the reports in this order.
pub(super) fn write(
    package: &Package,
    templates: &Templates,
    of_deb: (&Options, &mut File),
    of_rpm: (&Options, &mut File),
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<[Report; 2]> {
    let (deb_options, deb_out) = of_deb;
    let (rpm_options, rpm_out) = of_rpm;
    let trees = (deb::tree(package, templates)?, rpm::tree(package)?);
    let deb = deb::Plan::new(package, &trees.0, templates, deb_options)?;
    let members = rpm::members(package, &trees.1)?;
    let rpm = rpm::Plan::new(package, &members, templates, rpm_options)?;
    let shared = Shared::new(&deb.contents(), &rpm.contents(), &deb_options.spool_dir)?;

    let level = shared_level(deb_options.compression, rpm_options.compression);
    let (to, from) = bounded(WAITING);
    let (blocks_to, blocks_from) = unbounded();
    let buffers = Arc::new(Buffers::new(WAITING * CHUNK, 1));
    let gone = AtomicBool::new(false);
    let (deb, rpm) = thread::scope(|scope| {
        let shared = &shared;
        let of_give = Arc::clone(&buffers);
        let write_rpm = move || {
            let core = jobs.core();
            let blocks = level.map(|_| blocks_from);
            let take = Take { shared, from, nth: 0, buffers, blocks, core };
            rpm.write(rpm_options, rpm_out, Some(take), monitor)
        };
        let rpm =
            thread::Builder::new().spawn_scoped(scope, write_rpm).map_err(Error::no_thread)?;
        let core = jobs.core();
        let pieces = level.map(|level| Pieces {
            level,
            encoders: frame::blocks(level, deb_options.threads),
            cut: None,
            to: blocks_to,
        });
        let give =
            Give { shared, to, nth: 0, begun: None, buffers: of_give, gone: &gone, pieces, core };
        let deb = deb.write(deb_options, deb_out, Some(give), monitor);
        Ok::<_, Error>((deb, rpm.join().expect("a writer does not panic")))
    })?;
    match (deb, rpm) {
        (Ok(deb), Ok(rpm)) => Ok([deb, rpm]),
        // It stopped since the other one had.
        (Err(_), Err(rpm)) if gone.into_inner() => Err(rpm),
        (Err(fault), _) | (_, Err(fault)) => Err(fault),
    }
}

/// How the files that both formats hold go from one reading to both.
struct Shared<'a> {
    /// Those whose chunks are handed on, which come in one order in both.
    streamed: HashSet<&'a TreePath>,
    /// Those that were read before, and lie in a file without a name.
    kept: HashMap<&'a TreePath, Source>,
}

impl<'a> Shared<'a> {
    /// `deb` and `rpm` are the contents in the order in which each writer asks for them. Copies what cannot be handed on
    /// into a file in `spool_dir`.
    fn new(deb: &[Content<'a>], rpm: &[Content<'a>], spool_dir: &Path) -> Result<Self> {
        let places: HashMap<&TreePath, usize> =
            rpm.iter().enumerate().map(|(place, content)| (content.path, place)).collect();
        let in_both: Vec<(&Content<'a>, usize)> = deb
            .iter()
            .filter(|content| content.size > 0)
            .filter_map(|content| Some((content, *places.get(content.path)?)))
            .collect();
        let weights: Vec<(usize, u64)> =
            in_both.iter().map(|(content, place)| (*place, content.size)).collect();
        let in_order = heaviest_in_order(&weights);
        let mut shared = Self { streamed: HashSet::new(), kept: HashMap::new() };
        let mut keeping: Option<(Arc<File>, u64)> = None;
        let mut buffer = Vec::new();
        for (nth, (content, _)) in in_both.iter().enumerate() {
            if in_order.contains(&nth) {
                shared.streamed.insert(content.path);
                continue;
            }
            let Some(shown) = on_disk(content.source) else { continue };
            let cannot = |e| Error::io("cannot make a temporary file in", spool_dir, e);
            if keeping.is_none() {
                keeping = Some((Arc::new(tempfile::tempfile_in(spool_dir).map_err(cannot)?), 0));
            }
            let (file, end) = keeping.as_mut().expect("just made");
            let start = *end;
            files::copy(content, &mut buffer, |bytes| {
                let cannot = |e| Error::io("cannot write a temporary file in", spool_dir, e);
                file.write_all_at(bytes, *end).map_err(cannot)?;
                *end += bytes.len() as u64;
                Ok(())
            })?;
            // Its capabilities are in the plans of both.
            let file = Arc::clone(file);
            let kept = InputFile::spooled(shown.to_owned(), file, start, content.size, None);
            shared.kept.insert(content.path, Source::File(Arc::new(kept)));
        }
        Ok(shared)
    }

    /// The content, from where it is to be read.
    fn place<'s>(&'s self, content: Content<'s>) -> Content<'s> {
        Content { source: self.kept.get(content.path).unwrap_or(content.source), ..content }
    }
}

/// How many bytes of a tree, in about, are copied before both formats are written: the `.rpm` has files in the order of their names as bytes,
/// those of several names behind all others.
pub(super) fn copied_first(tree: &Tree) -> u64 {
    let several: HashSet<&TreePath> = tree
        .iter()
        .filter_map(|(_, entry)| match &entry.kind {
            EntryKind::HardLink(to) => Some(to),
            _ => None,
        })
        .collect();
    let files: Vec<(&TreePath, u64)> = tree
        .iter()
        .filter_map(|(path, entry)| {
            on_disk(entry.source()?)?;
            Some((path, entry.source()?.work()))
        })
        .collect();
    let mut of_rpm: Vec<usize> = (0..files.len()).collect();
    of_rpm.sort_by_key(|&nth| (several.contains(files[nth].0), files[nth].0.as_bytes()));
    let mut places = vec![0; files.len()];
    of_rpm.iter().enumerate().for_each(|(place, &nth)| places[nth] = place);
    let items: Vec<(usize, u64)> =
        places.into_iter().zip(&files).map(|(place, (_, size))| (place, *size)).collect();
    let in_order = heaviest_in_order(&items);
    (0..).zip(&items).filter(|(nth, _)| !in_order.contains(nth)).map(|(_, (_, size))| size).sum()
}

/// The path of a file of the input that lies on disk as it is: reading any other source again is no reading of the input.
fn on_disk(source: &Source) -> Option<&Path> {
    match source {
        Source::File(input) | Source::Pieces { input, .. } => input.on_disk(),
        _ => None,
    }
}

/// Of items with a place and a weight those, by number, whose places rise and whose weights have the largest sum.
fn heaviest_in_order(items: &[(usize, u64)]) -> HashSet<usize> {
    let places = items.iter().map(|(place, _)| place + 1).max().unwrap_or(0);
    // A Fenwick tree: of the chains that end before a place, the heaviest weight, and its last item.
    let mut best: Vec<(u64, Option<usize>)> = vec![(0, None); places + 1];
    let mut before: Vec<Option<usize>> = Vec::with_capacity(items.len());
    for (nth, &(place, weight)) in items.iter().enumerate() {
        let mut heaviest = (0, None);
        let mut at = place;
        while at > 0 {
            if best[at].0 > heaviest.0 {
                heaviest = best[at];
            }
            at &= at - 1;
        }
        before.push(heaviest.1);
        let chain = heaviest.0 + weight;
        let mut at = place + 1;
        while at <= places {
            if chain > best[at].0 {
                best[at] = (chain, Some(nth));
            }
            at += at & at.wrapping_neg();
        }
    }
    let mut last = best.into_iter().max_by_key(|(weight, _)| *weight).and_then(|(_, last)| last);
    let mut chosen = HashSet::new();
    while let Some(nth) = last {
        chosen.insert(nth);
        last = before[nth];
    }
    chosen
}

/// A piece of the `nth` file that is handed on.
struct Chunk {
    nth: usize,
    bytes: Arc<Vec<u8>>,
}

/// Where a writer puts what it gets.
type Sink<'t> = &'t mut dyn FnMut(Piece<'_>) -> Result<()>;

/// The writer's side that reads.
pub(super) struct Give<'a> {
    shared: &'a Shared<'a>,
    to: Sender<Chunk>,
    nth: usize,
    /// The size of a file that was begun, of which no chunk came yet.
    begun: Option<u64>,
    buffers: Arc<Buffers>,
    /// Whether the other writer was found to have stopped.
    gone: &'a AtomicBool,
    /// Where both compress alike.
    pieces: Option<Pieces>,
    core: Core,
}

/// The pieces of large files, which are compressed once for both.
struct Pieces {
    level: i32,
    encoders: Blocks,
    /// Of the file that is handed on, where it is compressed in pieces.
    cut: Option<Cut>,
    to: Sender<Arc<Vec<u8>>>,
}

impl Pieces {
    /// Takes in content, and gives blocks that are there.
    fn feed(&mut self, content: &[u8], take: Sink<'_>) -> Result<()> {
        let Some(mut cut) = self.cut.take() else { return Ok(()) };
        let effort = cut.effort();
        cut.each(content, |part, last| {
            while !self.encoders.is_fed() && self.encoders.is_full() {
                self.give(take)?;
            }
            self.encoders.feed(part, last, effort).map_err(cannot_compress)?;
            if last && self.encoders.is_inline() {
                self.give(take)?;
            }
            Ok::<_, Errors>(())
        })?;
        self.cut = Some(cut);
        Ok(())
    }

    /// Waits for the next blocks and gives them to both; returns whether there were any.
    fn give(&mut self, take: Sink<'_>) -> Result<bool> {
        let Some(blocks) = self.encoders.take().map_err(cannot_compress)? else {
            return Ok(false);
        };
        let blocks = Arc::new(blocks);
        // Where it has stopped, that is found at the next chunk.
        let _ = self.to.send(Arc::clone(&blocks));
        take(Piece::Blocks(blocks))?;
        Ok(true)
    }
}

fn cannot_compress(error: io::Error) -> Errors {
    Error::failed("cannot compress content").because(error).into()
}

impl<'a> Give<'a> {
    /// The content, from where it is to be read.
    pub(super) fn place(&self, content: Content<'a>) -> Content<'a> {
        self.shared.place(content)
    }

    /// The next file comes, of `size` bytes; returns whether its chunks are to be handed on.
    pub(super) fn begin(&mut self, path: &TreePath, size: u64, take: Sink<'_>) -> Result<bool> {
        let streamed = self.shared.streamed.contains(path);
        self.nth += usize::from(streamed);
        self.begun = streamed.then_some(size);
        if !streamed && size >= LARGE {
            // This writer is busy with it, and the other one would wait.
            self.settle(take)?;
            // Its own encoders take as much memory.
            self.pieces.iter_mut().for_each(|pieces| pieces.encoders.shed(0));
        }
        Ok(streamed)
    }

    /// Whether the blocks of files that are handed on are made here for both.
    pub(super) fn shares_blocks(&self) -> bool {
        self.pieces.is_some()
    }

    /// Hands a chunk on, after which both have it. What is there of blocks goes to both as well.
    pub(super) fn chunk(&mut self, bytes: Vec<u8>, take: Sink<'_>) -> Result<Arc<Vec<u8>>> {
        if let Some(pieces) = &mut self.pieces {
            if let Some(size) = self.begun.take() {
                pieces.cut = match Way::of(&bytes, size, pieces.level) {
                    Way::Pieces(cut) => Some(cut),
                    Way::Run => None,
                };
            }
            pieces.feed(&bytes, take)?;
        }
        let bytes = Arc::new(bytes);
        let chunk = Chunk { nth: self.nth, bytes: Arc::clone(&bytes) };
        let sent = match self.to.try_send(chunk) {
            Ok(()) => true,
            Err(TrySendError::Full(chunk)) => {
                // The other one should not have to keep what comes behind blocks meanwhile.
                self.settle(take)?;
                self.core.wait(|| self.to.send(chunk).is_ok())
            }
            Err(TrySendError::Disconnected(_)) => false,
        };
        if !sent {
            self.gone.store(true, Ordering::Relaxed);
            return Err(Error::failed(GONE).into());
        }
        Ok(bytes)
    }

    /// Gives all blocks of pieces whose last was handed on.
    fn settle(&mut self, take: Sink<'_>) -> Result<()> {
        if let Some(pieces) = &mut self.pieces {
            while pieces.give(take)? {}
        }
        Ok(())
    }

    /// Gives all blocks, behind the last file; the other one knows then that there are no more.
    pub(super) fn end(&mut self, take: Sink<'_>) -> Result<()> {
        self.settle(take)?;
        self.pieces = None;
        Ok(())
    }

    /// Takes a chunk back, which the other one may still have.
    pub(super) fn done(&self, chunk: Arc<Vec<u8>>) {
        if let Some(buffer) = Arc::into_inner(chunk) {
            self.buffers.give_back(buffer);
        }
    }

    /// A buffer for a chunk.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.buffers.take(CHUNK)
    }
}

/// The side of the writer that has chunks from the other one.
pub(super) struct Take<'a> {
    shared: &'a Shared<'a>,
    from: Receiver<Chunk>,
    nth: usize,
    buffers: Arc<Buffers>,
    /// The blocks of large files, where the other one makes them.
    blocks: Option<Receiver<Arc<Vec<u8>>>>,
    core: Core,
}

impl Take<'_> {
    /// Gives the content of a file once, in pieces; see [`files::copy`].
    pub(super) fn copy(
        &mut self,
        content: &Content<'_>,
        buffer: &mut Vec<u8>,
        take: Sink<'_>,
    ) -> Result<()> {
        if !self.shared.streamed.contains(content.path) {
            return files::copy(&self.shared.place(*content), buffer, |bytes| {
                take(Piece::Content { bytes, shared: false })?;
                // What is before it waits for them, and all of it behind that.
                self.blocks_there(take)
            });
        }
        self.nth += 1;
        let mut left = content.size;
        while left > 0 {
            let other =
                |what: &str| Errors::from(Error::failed(format!("/{}: {what}", content.path)));
            let chunk = match self.from.try_recv() {
                Ok(chunk) => Some(chunk),
                Err(TryRecvError::Empty) => self.core.wait(|| self.from.recv().ok()),
                Err(TryRecvError::Disconnected) => None,
            };
            let Some(Chunk { nth, bytes }) = chunk else {
                return Err(other(GONE));
            };
            let rest = left.checked_sub(bytes.len() as u64).filter(|_| nth == self.nth);
            left = rest.ok_or_else(|| other("the writers of both formats are not at one file"))?;
            take(Piece::Content { bytes: &bytes, shared: self.blocks.is_some() })?;
            if let Some(buffer) = Arc::into_inner(bytes) {
                self.buffers.give_back(buffer);
            }
            self.blocks_there(take)?;
        }
        Ok(())
    }

    /// Gives the blocks that have come.
    fn blocks_there(&self, take: Sink<'_>) -> Result<()> {
        let mut come = self.blocks.iter().flat_map(Receiver::try_iter);
        come.try_for_each(|blocks| take(Piece::Blocks(blocks)))
    }

    /// Gives the blocks that did not come so far: to be called behind the last file.
    pub(super) fn settle(&mut self, take: Sink<'_>) -> Result<()> {
        while let Some(from) = &self.blocks {
            let blocks = match from.try_recv() {
                Err(TryRecvError::Empty) => self.core.wait(|| from.recv().ok()),
                // The other one ended them.
                other => other.ok(),
            };
            match blocks {
                Some(blocks) => take(Piece::Blocks(blocks))?,
                None => self.blocks = None,
            }
        }
        Ok(())
    }
}

/// The fault of a writer that stops since the other one did.
const GONE: &str = "the other format cannot be written";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Entry;

    fn chosen(items: &[(usize, u64)]) -> Vec<usize> {
        let mut chosen: Vec<usize> = heaviest_in_order(items).into_iter().collect();
        chosen.sort_unstable();
        chosen
    }

    #[test]
    fn what_the_formats_have_in_another_order_is_foreseen() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::new();
        let put = |tree: &mut Tree, path: &str, size: u64| {
            let on_disk = dir.path().join(path.replace('/', "+"));
            File::create(&on_disk).unwrap().set_len(size).unwrap();
            let metadata = on_disk.metadata().unwrap();
            let source = Source::File(Arc::new(InputFile::new(on_disk, &metadata)));
            tree.insert(TreePath::new(path).unwrap(), Entry::file(0o644, None, source)).unwrap();
        };
        put(&mut tree, "lib/x/a", 10);
        put(&mut tree, "lib/x/b", 20);
        put(&mut tree, "lib/y", 1000);
        assert_eq!(copied_first(&tree), 0);
        put(&mut tree, "lib/x-y", 7);
        assert_eq!(copied_first(&tree), 7);
        let link = EntryKind::HardLink(TreePath::new("lib/x/b").unwrap());
        let link = Entry { mode: 0o644, mtime: None, kind: link };
        tree.insert(TreePath::new("lib/z").unwrap(), link).unwrap();
        assert_eq!(copied_first(&tree), 27);
    }

    #[test]
    fn the_most_bytes_that_stand_in_one_order_are_chosen() {
        assert!(chosen(&[]).is_empty());
        assert_eq!(chosen(&[(0, 5), (1, 5), (2, 5)]), [0, 1, 2]);
        // A large directory before or behind a small file.
        assert_eq!(chosen(&[(1, 100), (2, 100), (0, 5)]), [0, 1]);
        assert_eq!(chosen(&[(1, 10), (2, 10), (0, 50)]), [2]);
        assert_eq!(chosen(&[(3, 1), (0, 2), (4, 9), (1, 3), (2, 3)]), [1, 2]);
        assert_eq!(chosen(&[(3, 1), (0, 2), (4, 9), (1, 6), (2, 6)]), [1, 3, 4]);
    }
}
