//! What packages have on disk while they are written.
//!
//! A package's kpack archives are built into the spool directory first, since a package states the length of a
//! file before its bytes; both formats then read them from there, and they are removed when the package is done.
//!
//! What a package takes out of archives of the input (`.tar.zst`) is needed in the order of the package, and an archive
//! is a stream: so it is spooled, too, in a file without a name that is as large as those files of the package. One pass over
//! an archive serves all packages of a batch ([`super::schedule`]). So does decompressing a compressed bundle that several
//! packages have code objects of.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::schedule::Item;
use super::spec::Package;
use crate::error::Error;
use crate::jobs::{Jobs, Permit};
use crate::progress::Monitor;
use crate::tree::{
    ArchiveFile, Destination, EntryKind, Gather, InputFile, KpackPlan, Source, TreePath, build,
};

/// What is gone through as a whole, for all packages of a batch.
enum Origin {
    /// An archive of the input.
    Archive(Arc<ArchiveFile>),
    /// The compressed bundles of a set of binaries.
    Bundles,
}

/// What all packages want to have in spools.
pub(super) struct Wants<'p> {
    origins: Vec<Origin>,
    packages: Vec<OfPackage<'p>>,
}

/// What one package wants.
#[derive(Default)]
struct OfPackage<'p> {
    /// Archives that it builds when its turn comes.
    by_itself: Vec<Arc<KpackPlan>>,
    /// What it has from each origin.
    from: BTreeMap<usize, FromOrigin<'p>>,
}

#[derive(Default)]
struct FromOrigin<'p> {
    kpacks: Vec<Arc<KpackPlan>>,
    files: Vec<(&'p Source, &'p TreePath)>,
}

impl<'p> Wants<'p> {
    /// Looks through the packages, which are written in so many formats; returns what the schedule has to know of
    /// each, too.
    pub(super) fn new(packages: &'p [Package], formats: u64) -> (Self, Vec<Item>) {
        let mut looking = Looking::default();
        for (number, package) in packages.iter().enumerate() {
            for (_, plan) in package.tree.kpacks() {
                looking.owners.insert(Arc::as_ptr(plan), number);
                let owners = looking.sets.entry(plan.set().to_owned()).or_default();
                owners.push(number);
                owners.dedup();
            }
        }
        for package in packages {
            looking.package(package, formats);
        }
        let Looking { origins, packages, items, .. } = looking;
        (Self { origins, packages }, items)
    }

    /// Puts into spools what the packages of a batch want: one pass over each archive that one of them takes from.
    /// Returns what each has, in the order of the batch.
    pub(super) fn spool(
        &self,
        batch: &[usize],
        packages: &[Package],
        spool: &Path,
        jobs: &Jobs,
        monitor: &dyn Monitor,
    ) -> Result<Vec<Spooled>, Error> {
        let mut spooled: Vec<Spooled> = batch.iter().map(|_| Spooled::default()).collect();
        let mut origins: BTreeMap<usize, Vec<(usize, &FromOrigin<'p>)>> = BTreeMap::new();
        for (at, &package) in batch.iter().enumerate() {
            for (&origin, from) in &self.packages[package].from {
                origins.entry(origin).or_default().push((at, from));
            }
        }
        for (origin, parts) in origins {
            let mut made = Vec::new();
            let mut stretches = Vec::new();
            for (at, from) in &parts {
                let name = packages[batch[*at]].name.as_str();
                for plan in &from.kpacks {
                    made.push(spooled[*at].make(plan, name, spool)?);
                }
                if !from.files.is_empty() {
                    let file = tempfile::tempfile_in(spool);
                    let file = file.map_err(|e| Error::io("cannot make a file in", spool, e))?;
                    stretches.push((*at, Arc::new(file), &from.files));
                }
            }
            match &self.origins[origin] {
                Origin::Bundles => {
                    for set in in_sets(&made) {
                        build::kpacks(&set, jobs, monitor)?;
                    }
                }
                Origin::Archive(archive) => {
                    let names = parts.iter().map(|(at, _)| packages[batch[*at]].name.as_str());
                    let names: Vec<&str> = names.collect();
                    let shown = archive.path().display();
                    monitor.detail(&format!("one pass over {shown} for {}", names.join(", ")));
                    let mut gather = Gather::default();
                    for (at, file, sources) in &stretches {
                        let mut offset = 0;
                        for (source, path) in *sources {
                            let len = source.len().unwrap_or_default();
                            gather.file(source, Destination::At(spool, file, offset));
                            let shown = archive.path().join(path.as_path());
                            let capabilities = source.capabilities().ok().flatten();
                            let file = Arc::clone(file);
                            let input = InputFile::spooled(shown, file, offset, len, capabilities);
                            spooled[*at].files.push(((*path).clone(), input));
                            offset += len;
                        }
                    }
                    in_sets(&made).into_iter().for_each(|set| gather.kpacks(set));
                    gather.run(archive, jobs, monitor)?;
                }
            }
        }
        Ok(spooled)
    }

    /// Builds the archives that a package builds by itself.
    pub(super) fn by_itself(
        &self,
        package: usize,
        name: &str,
        spooled: &mut Spooled,
        spool: &Path,
        jobs: &Jobs,
        monitor: &dyn Monitor,
    ) -> Result<(), Error> {
        let plans = self.packages[package].by_itself.iter();
        let made =
            plans.map(|plan| spooled.make(plan, name, spool)).collect::<Result<Vec<_>, _>>()?;
        in_sets(&made).iter().try_for_each(|set| build::kpacks(set, jobs, monitor))
    }

    /// By how many bytes the archives of a package, once built, are more than was foreseen.
    pub(super) fn unforeseen(package: &Package) -> i64 {
        let plans = package.tree.kpacks().map(|(_, plan)| plan);
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        plans
            .filter_map(|plan| Some(signed(plan.built()?.size) - signed(plan.estimated_size())))
            .sum()
    }
}

/// Archives that go with their files, by set: those of one set are best built together.
fn in_sets<'m>(
    made: &'m [(&'m KpackPlan, File, PathBuf)],
) -> Vec<Vec<(&'m KpackPlan, &'m File, &'m Path)>> {
    let mut sets: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (plan, file, path) in made {
        sets.entry(plan.set()).or_default().push((*plan, file, path.as_path()));
    }
    sets.into_values().collect()
}

/// The way through the packages.
#[derive(Default)]
struct Looking<'p> {
    /// Which package an archive is in, or is built by.
    owners: HashMap<*const KpackPlan, usize>,
    /// Which packages archives of a set are in.
    sets: HashMap<String, Vec<usize>>,
    /// Equal ones are one, though each plan that was kept has its own.
    archives: HashMap<Arc<ArchiveFile>, usize>,
    bundles: HashMap<String, usize>,
    origins: Vec<Origin>,
    packages: Vec<OfPackage<'p>>,
    items: Vec<Item>,
}

impl<'p> Looking<'p> {
    fn package(&mut self, package: &'p Package, formats: u64) {
        let number = self.packages.len();
        self.packages.push(OfPackage::default());
        self.items.push(Item::default());
        let mut written = 0;
        for (path, entry) in package.tree.iter() {
            match entry.source() {
                None => {}
                Some(Source::Kpack(plan)) => {
                    written += plan.estimated_size();
                    self.kpack(number, Arc::clone(plan));
                }
                // A manifest states the sizes of archives of other packages, which are perhaps not written.
                Some(Source::Kpm(kpm)) => {
                    for plan in kpm.unbuilt() {
                        match self.owners.get(&Arc::as_ptr(&plan)) {
                            Some(owner) if *owner == number => {}
                            Some(owner) => drop(self.items[number].needs.insert(*owner)),
                            None => {
                                self.owners.insert(Arc::as_ptr(&plan), number);
                                self.kpack(number, plan);
                            }
                        }
                    }
                }
                Some(source) => {
                    written += source.work();
                    if let Some(archive) = source.archive() {
                        let origin = self.archive(archive);
                        let of_package = &mut self.packages[number];
                        of_package.from.entry(origin).or_default().files.push((source, path));
                        let item = &mut self.items[number];
                        item.from.insert(origin);
                        item.bytes += source.work();
                        item.work += source.work();
                    }
                }
            }
        }
        self.items[number].work += written * formats;
    }

    fn kpack(&mut self, number: usize, plan: Arc<KpackPlan>) {
        let size = plan.original_size();
        self.items[number].work += size;
        let of_several = self.sets.get(plan.set()).is_some_and(|owners| owners.len() > 1);
        let origin = match plan.archive() {
            Some(archive) => self.archive(archive),
            None if of_several && plan.is_from_compressed() => {
                let next = self.origins.len();
                let at = *self.bundles.entry(plan.set().to_owned()).or_insert(next);
                if at == next {
                    self.origins.push(Origin::Bundles);
                }
                at
            }
            None => {
                self.packages[number].by_itself.push(plan);
                self.items[number].builds = true;
                return;
            }
        };
        self.packages[number].from.entry(origin).or_default().kpacks.push(plan);
        self.items[number].from.insert(origin);
        self.items[number].bytes += size;
    }

    fn archive(&mut self, archive: &Arc<ArchiveFile>) -> usize {
        let next = self.origins.len();
        let at = *self.archives.entry(Arc::clone(archive)).or_insert(next);
        if at == next {
            self.origins.push(Origin::Archive(Arc::clone(archive)));
        }
        at
    }
}

/// What one package has in the spool directory.
#[derive(Default)]
pub(super) struct Spooled {
    /// Its archives.
    archives: Vec<PathBuf>,
    /// What it takes out of archives of the input.
    files: Vec<(TreePath, InputFile)>,
    /// The room that it takes.
    pub(super) room: Option<Permit>,
}

impl Spooled {
    /// Makes the file of an archive.
    fn make<'k>(
        &mut self,
        plan: &'k Arc<KpackPlan>,
        name: &str,
        spool: &Path,
    ) -> Result<(&'k KpackPlan, File, PathBuf), Error> {
        let path = spool.join(format!("{name}.{}.kpack", self.archives.len()));
        let file = File::create_new(&path).map_err(|e| Error::io("cannot make", &path, e))?;
        self.archives.push(path.clone());
        Ok((plan.as_ref(), file, path))
    }

    /// The package, with what is in the spool from there.
    pub(super) fn substitute<'p>(&mut self, package: &'p Package) -> Cow<'p, Package> {
        let mut package = Cow::Borrowed(package);
        for (path, input) in self.files.drain(..) {
            let tree = &mut package.to_mut().tree;
            let Some(mut entry) = tree.remove(&path) else { continue };
            entry.kind = EntryKind::File(Source::File(Arc::new(input)));
            tree.insert(path, entry).expect("the path was taken out");
        }
        package
    }

    /// Removes the package's archives: it is written.
    pub(super) fn remove(self) -> Result<(), Error> {
        for path in &self.archives {
            fs::remove_file(path).map_err(|e| Error::io("cannot remove", path, e))?;
        }
        Ok(())
    }
}
