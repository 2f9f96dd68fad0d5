//! Building planned kpack archives.
//!
//! Several archives are built side by side from the same fat binaries, one for each ISA: so a
//! compressed bundle is decompressed once for all of them, and a plain one is read from its start to
//! its end. Code objects are compressed in the pool and stored in the order of the plan, whatever the
//! order in which they come; what is in flight is bounded by the pool's budget.
//!
//! Where the run has a cache, archives are taken from there, and kept there (`tree::cached`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_channel::Receiver;

use super::cached;
use super::frames::Frames;
use super::keep::Part;
use super::kpack::{BuiltKpack, CodeObjectAt, KpackPlan, PlannedKernel};
use super::pack::{self, Fault, How, Item, Packed, Rooms, Stored, Task, Wanted};
use crate::buffers::{Buffer, Buffers, Expected};
use crate::error::Error;
use crate::fatbin::bundle::Form;
use crate::fatbin::content::Content;
use crate::jobs::{Jobs, Queue};
use crate::kpack::writer::{Compression, WriteError, Writer};
use crate::progress::{Monitor, Silent};
use crate::read_at::ReadAt;

/// Builds archives, each into the file that goes with it: open for writing at its start, and the
/// path by which it can be read later. Every code object is checked to be ELF for its archive's ISA
/// on the way, and of one that occurs several times in an archive the bytes are stored once.
pub fn kpacks(
    plans: &[(&KpackPlan, &File, &Path)],
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<(), Error> {
    let Some(cache) = jobs.cache() else {
        return build(plans, false, jobs, monitor).map(drop);
    };
    let missing = cached::take(cache, plans, jobs, monitor)?;
    let plans: Vec<_> = missing.iter().map(|missing| missing.plan).collect();
    let identities = build(&plans, true, jobs, monitor)?;
    for (missing, identities) in missing.iter().zip(identities) {
        missing.keep(cache, &identities);
    }
    Ok(())
}

/// Builds them; with `identify` gives the digests of the code objects of each, in the plan's order.
fn build(
    plans: &[Wish<'_>],
    identify: bool,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<Vec<blake3::Hash>>, Error> {
    let (set, items) = Set::new(plans, identify, &rooms(plans, jobs))?;
    let mut packing = Packing::new(vec![set], items.iter(), jobs, monitor);
    packing.items(0, items)?;
    Ok(packing.finish()?.remove(0))
}

/// The digests of the code objects of each plan, in its order: they are read, and no more.
pub(super) fn identify(plans: &[&KpackPlan], jobs: &Jobs) -> Result<Vec<Vec<blake3::Hash>>, Error> {
    let archives = plans.iter().map(|plan| Archive::without_file(plan)).collect();
    let (set, items) = Set::of(archives, true, &rooms(&[], jobs));
    let mut packing = Packing::new(vec![set], items.iter(), jobs, &Silent);
    packing.items(0, items)?;
    Ok(packing.finish()?.remove(0))
}

/// An archive to be built, the file for it, and its path.
pub(super) type Wish<'a> = (&'a KpackPlan, &'a File, &'a Path);

/// Sets of archives, and the queue of the code objects that go into them.
pub(super) struct Packing<'a, 'j> {
    sets: Vec<Set<'a>>,
    queue: Queue<'j, Work, Done>,
    /// Bundles that are being decompressed for items to come.
    ahead: VecDeque<Receiver<Result<Option<Content>, Fault>>>,
    /// Items so far, and how many there will be.
    items: usize,
    expected: usize,
    /// Bundles that will be decompressed whole: after the last one no hash waits for others.
    coming: Expected,
    /// Bundles whose hashes are still to be checked. Hashes of several together go up to eight times as
    /// fast, and are a third of the work otherwise; so bundles wait until the lanes are well filled, or there is no more room.
    unchecked: Vec<(Item, Arc<Content>)>,
    with: (&'j Jobs, &'j dyn Monitor),
}

/// How many bundles are decompressed ahead at most.
const AHEAD: usize = 32;

/// Bytes of buffers that may wait for their next use.
const BUFFERS: usize = 4 << 20;

/// The part of the memory in flight that frames may take until it is their turn.
const FRAMES: u64 = 32;

/// Memory for the archives of a pass. What is over of frames will be in a file beside the first of them.
pub(super) fn rooms(plans: &[Wish<'_>], jobs: &Jobs) -> Rooms {
    let beside = plans.first().and_then(|(_, _, path)| path.parent());
    let beside = beside.filter(|dir| !dir.as_os_str().is_empty());
    let most = usize::try_from(jobs.in_flight() / FRAMES).unwrap_or(usize::MAX);
    Rooms {
        // What is in flight counts by its size: so no buffer is larger.
        buffers: Arc::new(Buffers::falling(BUFFERS, 4)),
        frames: Frames::new(beside.unwrap_or(Path::new(".")), most),
    }
}

/// A task for the pool.
enum Work {
    /// A code object for a set.
    Pack(usize, Task),
    /// The hashes of bundles whose code objects are packed already, or on the way.
    Check(Vec<(Item, Arc<Content>)>),
}

/// What came of a task: a code object, with the number of its set.
type Done = Result<Option<(usize, Packed)>, Fault>;

impl Work {
    fn run(self) -> Done {
        match self {
            Self::Pack(set, task) => Ok(Some((set, task.run()?))),
            Self::Check(bundles) => pack::check(&bundles).map(|()| None),
        }
    }
}

/// Stores what came of a task.
fn take(sets: &mut [Set], done: Done, (jobs, monitor): (&Jobs, &dyn Monitor)) -> Result<(), Fault> {
    match done? {
        Some((set, packed)) => {
            let _core = jobs.core();
            sets[set].store(packed, monitor)
        }
        None => Ok(()),
    }
}

impl<'a, 'j> Packing<'a, 'j> {
    /// `items` are those that will be taken.
    pub fn new<'i>(
        sets: Vec<Set<'a>>,
        items: impl Iterator<Item = &'i Item>,
        jobs: &'j Jobs,
        monitor: &'j dyn Monitor,
    ) -> Self {
        let (mut expected, mut whole) = (0, 0);
        for item in items {
            expected += 1;
            whole += usize::from(item.whole(jobs.largest_whole()).is_some());
        }
        Self {
            sets,
            queue: jobs.queue(Work::run),
            ahead: VecDeque::new(),
            items: 0,
            expected,
            coming: jobs.bundles().expect(whole),
            unchecked: Vec::new(),
            with: (jobs, monitor),
        }
    }

    /// Takes items of a set, which are read from their input.
    pub fn items(&mut self, set: usize, items: Vec<Item>) -> Result<(), Error> {
        let done = self.try_items(set, items);
        done.map_err(|fault| self.first(fault))
    }

    /// Bundles are decompressed ahead in the pool, as far as there is room, one after the other: what is held for one item
    /// never waits for room for another.
    fn try_items(&mut self, set: usize, items: Vec<Item>) -> Result<(), Fault> {
        let most = self.with.0.largest_whole();
        let mut items: VecDeque<Item> = items.into();
        loop {
            if self.ahead.is_empty()
                && let Some(item) = items.front()
                && let Some(size) = item.whole(most)
            {
                let buffer = self.buffer(size)?;
                self.read_ahead(item, buffer);
            }
            while (1..AHEAD).contains(&self.ahead.len())
                && let Some(item) = items.get(self.ahead.len())
                && let Some(size) = item.whole(most)
                && let Some(buffer) = self.with.0.bundles().try_lend(size, &mut self.coming)
            {
                self.read_ahead(item, buffer);
            }
            let Some(mut item) = items.pop_front() else { return Ok(()) };
            item.number = self.items;
            self.items += 1;
            let read = self.ahead.pop_front().map(|read| read.recv().expect("a worker panicked"));
            match read.transpose()?.flatten() {
                Some(content) => self.whole(set, &item, content)?,
                None => {
                    // It may have to wait for room, and must not hold any then.
                    self.ahead.clear();
                    self.not_whole(set, item, None)?;
                }
            }
        }
    }

    /// Has a bundle decompressed. It comes before what waits, so that more of them share the lanes of their hashes.
    fn read_ahead(&mut self, item: &Item, buffer: Buffer) {
        let item = item.clone();
        self.ahead.push_back(self.with.0.begin(move || item.read_content(buffer)));
    }

    /// Takes an item of a set. Its bytes are in `part`, or read from its input.
    pub fn item(
        &mut self,
        set: usize,
        mut item: Item,
        part: Part<Arc<Vec<u8>>>,
    ) -> Result<(), Error> {
        item.number = self.items;
        self.items += 1;
        let done = self.try_item(set, item, part);
        done.map_err(|fault| self.first(fault))
    }

    fn try_item(&mut self, set: usize, item: Item, part: Part<Arc<Vec<u8>>>) -> Result<(), Fault> {
        if let Some(size) = item.whole(self.with.0.largest_whole()) {
            let buffer = self.buffer(size)?;
            if let Some(content) = item.content(&part, buffer) {
                return self.whole(set, &item, content);
            }
        }
        self.not_whole(set, item, Some(part))
    }

    /// Takes an item whose bundle is not in memory whole.
    fn not_whole(
        &mut self,
        set: usize,
        item: Item,
        part: Option<Part<Arc<Vec<u8>>>>,
    ) -> Result<(), Fault> {
        let most = self.with.0.in_flight() / 2;
        if item.is_plain() {
            return self.push(set, item.task(part));
        }
        let opened;
        let file: &dyn ReadAt = match &part {
            Some(part) => part,
            None => {
                opened = item.open()?;
                &opened
            }
        };
        let _window = self.window(item.window())?;
        item.decompress(file, most, &mut |task| self.push(set, task))
    }

    /// Takes an item whose bundle is in memory whole.
    fn whole(&mut self, set: usize, item: &Item, content: Content) -> Result<(), Fault> {
        let content = Arc::new(content);
        // A hash is a long task that cannot be shared, so it begins before what is compressed meanwhile.
        self.unchecked.push((item.clone(), Arc::clone(&content)));
        let sizes = self.unchecked.iter().map(|(_, content)| content.len() as u64);
        if Content::lanes_filled(sizes) || self.items == self.expected {
            self.check()?;
        }
        item.tasks(&content, &mut |task| self.push(set, task))
    }

    fn push(&mut self, set: usize, task: Task) -> Result<(), Fault> {
        let Self { sets, queue, with, .. } = self;
        let cost = task.cost;
        queue.push(Work::Pack(set, task), cost, &mut |done| take(sets, done, *with))
    }

    /// Waits until there is room for a bundle of this size.
    fn buffer(&mut self, size: usize) -> Result<Buffer, Fault> {
        let bundles = Arc::clone(self.with.0.bundles());
        loop {
            if let Some(buffer) = bundles.try_lend(size, &mut self.coming) {
                return Ok(buffer);
            }
            if !self.let_go()? {
                return Ok(bundles.lend(size, &mut self.coming));
            }
        }
    }

    /// Waits until there is room for a decoder's window.
    fn window(&mut self, size: u64) -> Result<Buffer, Fault> {
        let bundles = Arc::clone(self.with.0.bundles());
        loop {
            if let Some(room) = bundles.try_room(size) {
                return Ok(room);
            }
            if !self.let_go()? {
                return Ok(bundles.room(size));
            }
        }
    }

    /// Lets go of one of the bundles that are held, or makes that it will be. Whether there was anything to do.
    fn let_go(&mut self) -> Result<bool, Fault> {
        if !self.unchecked.is_empty() {
            self.check()?;
        }
        let Self { sets, queue, with, .. } = self;
        queue.take_one(&mut |done| take(sets, done, *with))
    }

    /// Has the hashes of bundles checked.
    fn check(&mut self) -> Result<(), Fault> {
        let Self { sets, queue, unchecked, with, .. } = self;
        let bundles = std::mem::take(unchecked);
        queue.push_urgent(Work::Check(bundles), 0, &mut |done| take(sets, done, *with))
    }

    /// Of a fault and of those in what is under way, the one to tell: whatever came to light first, it is
    /// that of the item that came first. Nothing more can be packed then.
    fn first(&mut self, fault: Fault) -> Error {
        let Self { sets, queue, unchecked, with, .. } = self;
        let mut first = fault;
        let mut tell = |fault: Fault| {
            if fault.order() < first.order() {
                first = fault;
            }
        };
        while let Err(fault) = queue.finish(&mut |done| take(sets, done, *with)) {
            tell(fault);
        }
        if let Err(fault) = pack::check(&std::mem::take(unchecked)) {
            tell(fault);
        }
        first.into()
    }

    /// Stores what was packed elsewhere.
    pub fn store(&mut self, set: usize, packed: Packed) -> Result<(), Error> {
        Ok(self.sets[set].store(packed, self.with.1)?)
    }

    /// Waits until everything so far is stored, and good.
    pub fn settle(&mut self) -> Result<(), Error> {
        let checked = self.check();
        let Self { sets, queue, with, .. } = self;
        let settled = checked.and_then(|()| queue.finish(&mut |done| take(sets, done, *with)));
        settled.map_err(|fault| self.first(fault))
    }

    /// Ends the archives. Gives the digests of their code objects, by set and archive, where they were wanted.
    pub fn finish(mut self) -> Result<Vec<Vec<Vec<blake3::Hash>>>, Error> {
        self.settle()?;
        self.sets.into_iter().map(Set::finish).collect()
    }
}

/// Archives that are being built side by side.
pub(super) struct Set<'a> {
    archives: Vec<Archive<'a>>,
    rooms: Rooms,
}

impl<'a> Set<'a> {
    /// Begins the archives; returns the items that they are made of, best taken in this order.
    /// With `identify`, [`Packing::finish`] gives the digests of their code objects.
    pub fn new(
        plans: &[Wish<'a>],
        identify: bool,
        rooms: &Rooms,
    ) -> Result<(Self, Vec<Item>), Error> {
        let archives = plans.iter().map(|(plan, file, path)| Archive::new(plan, file, path));
        Ok(Self::of(archives.collect::<Result<Vec<_>, _>>()?, identify, rooms))
    }

    fn of(archives: Vec<Archive<'a>>, identify: bool, rooms: &Rooms) -> (Self, Vec<Item>) {
        let items = items(&archives, identify, rooms);
        (Self { archives, rooms: rooms.clone() }, items)
    }

    fn store(&mut self, packed: Packed, monitor: &dyn Monitor) -> Result<(), Fault> {
        let Packed { archive, object, stored, hash, identity } = packed;
        let archive = &mut self.archives[archive];
        let size = archive.objects[object].0.size();
        archive.identities[object] = identity;
        if archive.writer.is_none() {
            return Ok(());
        }
        archive.offer(object, stored, hash, &self.rooms)?;
        monitor.advance(size);
        Ok(())
    }

    /// Ends the archives, of which all items have been stored.
    fn finish(self) -> Result<Vec<Vec<blake3::Hash>>, Error> {
        self.archives.into_iter().map(Archive::finish).collect()
    }
}

/// An archive that is being built.
struct Archive<'a> {
    plan: &'a KpackPlan,
    path: &'a Path,
    objects: Vec<(&'a CodeObjectAt, Vec<&'a PlannedKernel>)>,
    /// `None` where the digests of the code objects are wanted, and not the archive.
    writer: Option<Writer<BufWriter<&'a File>>>,
    /// Digests of the objects, where they are wanted.
    identities: Vec<Option<blake3::Hash>>,
    /// Code objects that are stored already, of those that were hashed.
    ordinals: HashMap<blake3::Hash, u32>,
    /// The object whose turn it is.
    next: usize,
    /// Objects that came before their turn, none of them in memory that others wait for.
    early: BTreeMap<usize, (Stored, Option<blake3::Hash>)>,
}

impl<'a> Archive<'a> {
    fn new(plan: &'a KpackPlan, file: &'a File, path: &'a Path) -> Result<Self, Error> {
        // Frames come in one go; what is stored as it is goes through the buffer.
        let size = if plan.compression() == Compression::None { 256 << 10 } else { 64 << 10 };
        let out = BufWriter::with_capacity(size, file);
        let writer = Writer::new(out, plan.group_name(), plan.isa(), plan.compression())
            .map_err(|e| failed(path, e))?;
        Ok(Self { path, writer: Some(writer), ..Self::without_file(plan) })
    }

    fn without_file(plan: &'a KpackPlan) -> Self {
        let objects = plan.objects();
        Self {
            plan,
            path: Path::new(""),
            identities: vec![None; objects.len()],
            objects,
            writer: None,
            ordinals: HashMap::new(),
            next: 0,
            early: BTreeMap::new(),
        }
    }

    /// Takes an object's stored form: writes it if it is its turn, and then those whose turn it is by
    /// that; else keeps it.
    fn offer(
        &mut self,
        object: usize,
        stored: Stored,
        hash: Option<blake3::Hash>,
        rooms: &Rooms,
    ) -> Result<(), Fault> {
        if object != self.next {
            self.early.insert(object, (stored.keep(rooms)?, hash));
            return Ok(());
        }
        self.store(object, stored, hash, rooms)?;
        self.next += 1;
        while let Some((stored, hash)) = self.early.remove(&self.next) {
            self.store(self.next, stored, hash, rooms)?;
            self.next += 1;
        }
        Ok(())
    }

    fn store(
        &mut self,
        object: usize,
        stored: Stored,
        hash: Option<blake3::Hash>,
        rooms: &Rooms,
    ) -> Result<(), Fault> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let (at, kernels) = &self.objects[object];
        let size = at.size();
        let ordinal = match hash.and_then(|hash| self.ordinals.get(&hash).copied()) {
            Some(ordinal) => ordinal,
            None => {
                let pushed = match &stored {
                    Stored::Not => writer.push_frame(&[], size),
                    Stored::Frame(frame) => {
                        writer.push_frame_from(&mut frame.reader(), frame.len(), size)
                    }
                    Stored::Held(bytes) => writer.push_frame(bytes, size),
                    Stored::Of(content, range) => writer.push_frame(&content[range.clone()], size),
                    Stored::Input(item) => item.read(|stream| writer.push_stored(stream, size))?,
                };
                pushed.map_err(|e| failed(self.path, e))?
            }
        };
        if let Stored::Held(bytes) = stored {
            rooms.buffers.give_back(bytes);
        }
        if let Some(hash) = hash {
            self.ordinals.insert(hash, ordinal);
        }
        for kernel in kernels {
            writer
                .add_entry(&kernel.name, kernel.co_index, ordinal, size)
                .map_err(|e| failed(self.path, e))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<blake3::Hash>, Error> {
        let identities = self.identities.into_iter().flatten().collect();
        let Some(writer) = self.writer else { return Ok(identities) };
        assert_eq!(self.next, self.objects.len(), "every object is stored");
        let (mut out, written) = writer.finish().map_err(|e| failed(self.path, e))?;
        out.flush().map_err(|e| Error::output("cannot write", self.path, e))?;
        self.plan.set_built(BuiltKpack {
            size: written.size,
            kernel_count: written.kernel_count,
            path: self.path.to_owned(),
        });
        Ok(identities)
    }
}

fn failed(path: &Path, e: WriteError) -> Error {
    match e {
        // What cannot be read of the input is told before.
        WriteError::Io(e) => Error::output("cannot write", path, e),
        e => Error::failed("cannot build the kpack").at(path).because(e),
    }
}

/// Cuts the archives' objects into tasks. Bundles come in the order in which the archives' sorted
/// kernels name them first, so each archive gets its objects in its own order.
fn items(archives: &[Archive], identify: bool, rooms: &Rooms) -> Vec<Item> {
    let mut objects: Vec<(&PlannedKernel, &CodeObjectAt, Wanted)> = Vec::new();
    for (archive, built) in archives.iter().enumerate() {
        // Only code objects of one size can be equal, so only those are hashed.
        let mut of_size: HashMap<u64, u32> = HashMap::new();
        for (at, _) in &built.objects {
            *of_size.entry(at.size()).or_default() += 1;
        }
        for (object, (at, kernels)) in built.objects.iter().enumerate() {
            let wanted = Wanted {
                archive,
                object,
                entry: at.entry,
                isa: built.plan.isa().clone(),
                how: How {
                    compression: built.plan.compression(),
                    identify,
                    pack: built.writer.is_some(),
                },
                hashed: of_size[&at.size()] > 1,
            };
            objects.push((kernels[0], at, wanted));
        }
    }
    objects.sort_by(|(a, at_a, w_a), (b, at_b, w_b)| {
        (&a.name, a.co_index, at_a.entry, w_a.archive).cmp(&(
            &b.name,
            b.co_index,
            at_b.entry,
            w_b.archive,
        ))
    });
    let mut items: Vec<Item> = Vec::new();
    let mut compressed: HashMap<(PathBuf, u64), usize> = HashMap::new();
    for (_, at, wanted) in objects {
        let item = match at.bundle.form {
            Form::Plain => None,
            Form::Compressed(_) => {
                let key = (at.input.path().to_owned(), at.bundle.offset);
                let known = compressed.get(&key).copied();
                // An entry is given once in a pass: for a second archive with it there is another.
                let fits =
                    |item: &usize| items[*item].wanted.iter().all(|w| w.entry != wanted.entry);
                let item = known.filter(fits);
                if item.is_none() {
                    compressed.insert(key, items.len());
                }
                item
            }
        };
        match item {
            Some(item) => items[item].wanted.push(wanted),
            None => items.push(Item {
                number: 0,
                rooms: rooms.clone(),
                input: Arc::clone(&at.input),
                bundle: Arc::clone(&at.bundle),
                wanted: vec![wanted],
            }),
        }
    }
    items
}
