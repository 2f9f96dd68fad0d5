//! Whether the kernels of a shard fit the host code that users get, which is another shard's.
//!
//! A program registers its translation units by their place in the array of wrappers, and kernels are filed
//! under that place. Where a build job links other files, or in another order (sources that are for some GPUs only
//! are common), its kernels stand where the primary shard's host code looks for others, and nothing would tell
//! before a program runs. So two things are held against each other: how many wrappers a binary has in both
//! shards, and the names of the kernels in each place. Units that were linked to one code object (`-fgpu-rdc`) are
//! registered once, by the first of them, so a kernel of any of them is looked for in that one's place; where the code
//! is one and the host code's units are not, each finds its own in its own place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::merge::Part;
use super::sections::File;
use crate::elf::{self, image::HIP_FATBIN_SEGMENT};
use crate::error::{Error, Result};
use crate::fatbin::KernelNames;
use crate::kpack::reader::Archive;
use crate::tree::{EntryKind, InputFile, OpenInput, Source, TreePath};

/// Bytes of a wrapper.
const WRAPPER: u64 = 24;

/// A kernel that more places than this have says nothing of which one is meant.
const COMMON: usize = 16;

/// Names of kernels that are held for one component at most: 128 MiB. Real ones have some hundred thousand; what comes
/// after is not judged, which is told.
const HELD_MAX: usize = 16 << 20;

/// The kernels of one binary, by the place of their wrapper.
type Places = BTreeMap<u32, Option<Arc<KernelNames>>>;

/// What was found of one component.
#[derive(Default)]
pub(super) struct Found {
    /// Binaries and shards that do not fit, in words.
    pub misfits: Vec<String>,
    /// That there are more names of kernels than this, so that not all were compared.
    pub not_all: Option<usize>,
}

/// Looks at all kernels of a component that go into packages. `generic` are its generic artifacts and `device` those
/// with kernels that go somewhere, the primary shard's first in both; `all` has also those that are left out. Gives a
/// finding for each binary and shard that do not fit.
pub(super) fn check(generic: &[&Part], device: &[&Part], all: &[Part]) -> Result<Found> {
    let mut found = Found::default();
    let Some(first) = all.first() else { return Ok(found) };
    if all.iter().all(|part| part.shard.name == first.shard.name) {
        return Ok(found);
    }
    let mut by_shard: BTreeMap<&str, BTreeMap<String, Places>> = BTreeMap::new();
    let mut room = HELD_MAX;
    for part in all {
        kernels(part, by_shard.entry(&part.shard.name).or_default(), &mut room)?;
    }
    let mut shards: Vec<&str> = device.iter().map(|part| part.shard.name.as_str()).collect();
    shards.dedup();
    found.not_all = (room == 0).then_some(HELD_MAX);
    for shard in shards {
        let own = generic.iter().find(|part| part.shard.name == shard);
        for (binary, places) in by_shard.get(shard).into_iter().flatten() {
            // The host code that is taken, if any: that of the first shard that has it.
            let host = generic.iter().find(|part| source(part, binary).is_some());
            let Some(host) = host.filter(|host| host.shard.name != shard) else { continue };
            let theirs = by_shard.get(host.shard.name.as_str()).and_then(|all| all.get(binary));
            let here = own.map_or(Ok(None), |own| wrappers(own, binary))?;
            let how = match (here, wrappers(host, binary)?) {
                (Some(here), Some(there)) if here != there => {
                    Some(format!("it has {here} of them, there it has {there}"))
                }
                _ => theirs.and_then(|theirs| misplaced(places, theirs)),
            };
            if let Some(how) = how {
                found.misfits.push(format!(
                    "{shard}: its kernels of {binary} do not fit the host code, which is that of \
                     {}: a kernel is found by the place of its translation unit in the file, and \
                     {how}",
                    host.label(),
                ));
            }
        }
    }
    Ok(found)
}

fn source<'a>(part: &'a Part, binary: &str) -> Option<&'a Source> {
    let tree = &part.artifact.tree;
    match &tree.get(&TreePath::new(binary).ok()?)?.kind {
        EntryKind::File(source) => Some(source),
        EntryKind::HardLink(first) => tree.get(first)?.source(),
        _ => None,
    }
}

/// How many wrappers a binary has; none where it is no converted program. `None` where it cannot be told.
fn wrappers(part: &Part, binary: &str) -> Result<Option<u64>, Error> {
    let Some(source) = source(part, binary) else { return Ok(None) };
    let fail = |e| Error::io("cannot read", binary, e);
    let Some(file) = File::open(source).map_err(fail)? else { return Ok(None) };
    let Ok(elf::Kind::Program(image)) = elf::probe(&file) else { return Ok(Some(0)) };
    if image.sections.is_empty() {
        return Ok(None);
    }
    let section = image.section(HIP_FATBIN_SEGMENT);
    Ok(Some(section.map_or(0, |section| section.sh_size / WRAPPER)))
}

/// Adds what one artifact has of each binary.
fn kernels(
    part: &Part,
    binaries: &mut BTreeMap<String, Places>,
    room: &mut usize,
) -> Result<(), Error> {
    for (_, entry) in part.artifact.tree.iter().filter(|(path, _)| super::is_archive(path)) {
        match entry.source() {
            Some(Source::Kpack(plan)) => {
                let mut open: Option<(&Arc<InputFile>, OpenInput)> = None;
                for kernel in plan.kernels() {
                    let places = binaries.entry(kernel.name.clone()).or_default();
                    let names = places.entry(kernel.co_index).or_default();
                    if names.is_some() || *room == 0 {
                        continue;
                    }
                    let input = &kernel.code_object.input;
                    if open.as_ref().is_none_or(|(opened, _)| !Arc::ptr_eq(opened, input)) {
                        let opened = input.open();
                        let opened =
                            opened.map_err(|e| Error::io("cannot read", input.path(), e))?;
                        open = Some((input, opened));
                    }
                    *names = open
                        .as_ref()
                        .and_then(|(_, file)| kernel.code_object.bundle.kernel_names(file));
                    // The bundle has them, and this place: what other places share is held once.
                    if let Some(names) =
                        names.as_ref().filter(|names| Arc::strong_count(names) == 2)
                    {
                        *room = room.saturating_sub(names.hashes().len());
                    }
                }
            }
            Some(Source::File(input)) => {
                let file = input.open().map_err(|e| Error::io("cannot read", input.path(), e))?;
                // One that is damaged is told by those who take code from it.
                let Ok(archive) = Archive::open(&file) else { continue };
                let mut known: HashMap<u32, Option<Arc<KernelNames>>> = HashMap::new();
                for kernel in archive.entries() {
                    let places = binaries.entry(kernel.binary.clone()).or_default();
                    let names = places.entry(kernel.co_index).or_default();
                    if names.is_some() || *room == 0 {
                        continue;
                    }
                    // Many kernels can be one code object.
                    let found = known.entry(kernel.ordinal).or_insert_with(|| {
                        let stream = archive.open_entry(kernel).ok()?;
                        let found = KernelNames::read(stream, kernel.original_size).ok()??;
                        *room = room.saturating_sub(found.hashes().len());
                        Some(Arc::new(found))
                    });
                    names.clone_from(found);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// What does not stand where the host code's own shard has it, in words. Jobs compile the same file to other kernels
/// for other GPUs, so that names need only meet, and meet here more than elsewhere.
fn misplaced(here: &Places, there: &Places) -> Option<String> {
    let mut homes: HashMap<u64, Vec<u32>> = HashMap::new();
    for (place, names) in there {
        for hash in names.iter().flat_map(|names| names.hashes()) {
            let homes = homes.entry(*hash).or_default();
            if homes.len() <= COMMON {
                homes.push(*place);
            }
        }
    }
    for (place, names) in here {
        let Some(names) = names else { continue };
        let is_same = |other: &u32| {
            let other = here.get(other).and_then(Option::as_ref);
            other.is_some_and(|other| Arc::ptr_eq(other, names))
        };
        let expected = there.get(place).and_then(Option::as_ref);
        let mut met: BTreeMap<u32, usize> = BTreeMap::new();
        for hash in names.hashes() {
            let homes = homes.get(hash).filter(|homes| homes.len() <= COMMON);
            for home in homes.into_iter().flatten() {
                *met.entry(*home).or_default() += 1;
            }
        }
        let own = met.remove(place).unwrap_or_default();
        // What is one code object here is in all of its places.
        let elsewhere = met.iter().filter(|(home, n)| **n > own && !is_same(home));
        if let Some((home, _)) = elsewhere.max_by_key(|(_, n)| **n) {
            return Some(format!(
                "place {place} has kernels as {}, which are in place {home} there",
                names.first()
            ));
        }
        if let Some(expected) = expected
            && !names.meets(expected)
        {
            return Some(format!(
                "place {place} has kernels as {}, there it has others, as {}",
                names.first(),
                expected.first()
            ));
        }
    }
    apart(here, there)
}

/// What is looked for in the code of several units there, and here is in the code of one, in words.
fn apart(here: &Places, there: &Places) -> Option<String> {
    let mut first_of: HashMap<*const KernelNames, u32> = HashMap::new();
    for (place, names) in there {
        let Some(names) = names else { continue };
        let first = *first_of.entry(Arc::as_ptr(names)).or_insert(*place);
        let Some(Some(own)) = here.get(place) else { continue };
        let looked_in = match here.get(&first) {
            // It names no kernels, or not all were read.
            Some(None) => continue,
            Some(Some(looked_in)) => looked_in.hashes(),
            None => &[],
        };
        let is_lost = |hash: &u64| {
            names.hashes().binary_search(hash).is_ok() && looked_in.binary_search(hash).is_err()
        };
        if own.hashes().iter().any(is_lost) {
            return Some(format!(
                "place {place} has kernels, as {}, that are looked for in place {first}: the units are \
                 one code object there (-fgpu-rdc), and are not here",
                own.first()
            ));
        }
    }
    None
}
