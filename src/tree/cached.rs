//! Kpack archives in the cache.
//!
//! The key of an archive is made of what stands in it: names, ISA, compression, and the digest of each code object. To have the digests,
//! code objects must be read, and each byte is to be read once; so there are hints on the way to the key.
//!
//! - *Unchanged*: the key for these files of the input, as long as they lie where they are and were not touched, as git's
//!   index has it. Nothing is read.
//! - *Alike*: whether there ever was an archive of these names and sizes. Where there was none, which is so in an empty cache and mostly where
//!   kernels have changed, the archive is built, and the digests are taken on the way. Where there was, the code objects are read for
//!   their digests, and most probably the archive need not be built.
//!
//! Of files in archives of the input the digests are known from reading those.

use std::collections::HashMap;

use super::build::{self, Wish};
use super::kpack::{BuiltKpack, KpackPlan};
use super::{InputFile, Source};
use crate::cache::{Cache, Key, KeyBuilder, Kind};
use crate::elf::Piece;
use crate::error::Error;
use crate::jobs::Jobs;
use crate::kpack::writer::Compression;
use crate::progress::Monitor;

/// An archive that has to be built.
pub(super) struct Missing<'a> {
    pub plan: Wish<'a>,
    keys: Keys,
}

/// What an archive is looked up by.
struct Keys {
    /// Of names and sizes.
    alike: KeyBuilder,
    /// Of the files that it is made from.
    unchanged: Option<Key>,
    /// The archive's, where it is known without reading the code objects.
    known: Option<Key>,
}

/// Takes what is in the cache, and gives what is not.
pub(super) fn take<'a>(
    cache: &Cache,
    plans: &[Wish<'a>],
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<Missing<'a>>, Error> {
    let mut missing = Vec::new();
    let mut alike = Vec::new();
    for plan in plans {
        let keys = Keys::new(cache, plan.0);
        let hinted = keys.unchanged.and_then(|unchanged| cache.hint(&unchanged));
        let key = keys.known.or(hinted);
        if let Some(key) = key
            && take_one(cache, plan, &key, monitor)?
        {
            continue;
        }
        // Where the key is known, reading tells nothing new.
        let worth_reading = key.is_none() && cache.knows(&keys.alike.finish());
        let one = Missing { plan: *plan, keys };
        if worth_reading { alike.push(one) } else { missing.push(one) }
    }
    if alike.is_empty() {
        return Ok(missing);
    }
    let read: Vec<_> = alike.iter().map(|one| one.plan.0).collect();
    for (one, identities) in alike.into_iter().zip(build::identify(&read, jobs)?) {
        let key = one.keys.of(&identities);
        if take_one(cache, &one.plan, &key, monitor)? {
            one.hint(cache, &key);
        } else {
            missing.push(one);
        }
    }
    // As they were planned: what is built together has one order.
    missing.sort_by_key(|one| plans.iter().position(|plan| std::ptr::eq(plan.0, one.plan.0)));
    Ok(missing)
}

fn take_one(
    cache: &Cache,
    (plan, file, path): &Wish<'_>,
    key: &Key,
    monitor: &dyn Monitor,
) -> Result<bool, Error> {
    let Some(taken) = cache.take(Kind::Kpack, key, file, path)? else { return Ok(false) };
    let kernels = taken.extra.try_into().map(u64::from_le_bytes);
    let kernel_count = kernels.unwrap_or(plan.kernels().len() as u64);
    plan.set_built(BuiltKpack { size: taken.size, kernel_count, path: (*path).to_owned() });
    monitor.advance(plan.original_size());
    Ok(true)
}

impl Source {
    /// Puts into a key what the content is, without reading: what the cache's archives are called by, digests that are known,
    /// and of files on disk that they are unchanged. `None` where that cannot be told.
    pub(crate) fn identify(&self, cache: &Cache, key: &mut KeyBuilder) -> Option<()> {
        let input = |input: &InputFile, key: &mut KeyBuilder| {
            match input.digest() {
                Some(digest) => {
                    key.bytes(digest.as_bytes());
                    key.bytes(&input.capabilities().ok()?.unwrap_or_default());
                }
                None => input.unchanged()?.iter().for_each(|number| key.number(*number)),
            }
            Some(())
        };
        match self {
            Self::Bytes(bytes) => {
                key.bytes(b"bytes");
                key.bytes(bytes);
            }
            Self::File(file) => {
                key.bytes(b"file");
                input(file, key)?;
            }
            Self::Pieces { input: of, pieces } => {
                key.bytes(b"pieces");
                input(of, key)?;
                for piece in pieces.iter() {
                    match piece {
                        Piece::Bytes(bytes) => key.bytes(bytes),
                        Piece::Input { offset, len } => {
                            key.number(u64::MAX);
                            key.number(*offset);
                            key.number(*len);
                        }
                    }
                }
            }
            Self::Kpack(plan) => {
                let keys = Keys::new(cache, plan);
                key.bytes(keys.known.or(keys.unchanged)?.as_bytes());
            }
            Self::Kpm(plan) => {
                key.bytes(b"manifest");
                key.bytes(&plan.render()?);
            }
        }
        Some(())
    }
}

impl Missing<'_> {
    /// Keeps it, now that it is built. `identities` are the digests of its code objects, where its key was not known before.
    pub fn keep(&self, cache: &Cache, identities: &[blake3::Hash]) {
        let (plan, _, path) = self.plan;
        let objects = plan.objects().len();
        let read = (identities.len() == objects).then(|| self.keys.of(identities));
        let (Some(key), Some(built)) = (self.keys.known.or(read), plan.built()) else {
            return cache.made(Kind::Kpack);
        };
        cache.keep(Kind::Kpack, &key, path, &built.kernel_count.to_le_bytes());
        self.hint(cache, &key);
    }

    fn hint(&self, cache: &Cache, key: &Key) {
        cache.keep_hint(&self.keys.alike.finish(), key);
        // Also after it was read: who touched a file meanwhile has touched it recently.
        if let Some(unchanged) = self.keys.unchanged
            && self.keys.unchanged_of(self.plan.0) == Some(unchanged)
        {
            cache.keep_hint(&unchanged, key);
        }
    }
}

impl Keys {
    fn new(cache: &Cache, plan: &KpackPlan) -> Self {
        let mut alike = cache.key("kpack");
        alike.bytes(plan.group_name().as_bytes());
        alike.bytes(plan.isa().to_string().as_bytes());
        alike.number(match plan.compression() {
            Compression::None => u64::MAX,
            Compression::Zstd { level } => u64::from(level.unsigned_abs()),
        });
        let objects = plan.objects();
        alike.number(objects.len() as u64);
        for (object, kernels) in &objects {
            alike.number(object.size());
            alike.number(kernels.len() as u64);
            for kernel in kernels {
                alike.bytes(kernel.name.as_bytes());
                alike.number(u64::from(kernel.co_index));
            }
        }
        let mut keys = Self { alike, unchanged: None, known: None };
        keys.unchanged = keys.unchanged_of(plan);
        keys.known = keys.known_of(plan);
        keys
    }

    /// The key of the archive of code objects with these digests, in the plan's order.
    fn of(&self, identities: &[blake3::Hash]) -> Key {
        let mut key = self.alike.clone();
        key.bytes(b"digests");
        identities.iter().for_each(|identity| key.bytes(identity.as_bytes()));
        key.finish()
    }

    /// The key of all that is known of the files.
    fn unchanged_of(&self, plan: &KpackPlan) -> Option<Key> {
        let mut key = self.alike.clone();
        key.bytes(b"unchanged");
        let mut files = HashMap::new();
        for (object, _) in plan.objects() {
            let (path, offset, entry) = object.place();
            let next = files.len() as u64;
            let number = match files.get(path) {
                Some(number) => *number,
                None => {
                    object.input.unchanged()?.iter().for_each(|number| key.number(*number));
                    files.insert(path, next);
                    next
                }
            };
            key.number(number);
            key.number(offset);
            key.number(entry as u64);
        }
        Some(key.finish())
    }

    /// The archive's key by the digests of the files, where those are known: they are in an archive.
    fn known_of(&self, plan: &KpackPlan) -> Option<Key> {
        let mut key = self.alike.clone();
        key.bytes(b"members");
        for (object, _) in plan.objects() {
            let (_, offset, entry) = object.place();
            key.bytes(object.input.digest()?.as_bytes());
            key.number(offset);
            key.number(entry as u64);
        }
        Some(key.finish())
    }
}
