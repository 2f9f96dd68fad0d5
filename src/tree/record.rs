//! A tree as a file has it: entries, and where their bytes are in the input, so that another run writes
//! what this one planned, perhaps on another machine and without the rest of the input.
//!
//! Nothing of the input's content is in it but what planning changed (headers of converted ELF files) or
//! made. Files of the input are named by the paths that they were read by, with their length and time; a
//! manifest of archives (`.kpm`) names archives of other packages, whose sizes the reader has to bring.
//! What is read is checked as if it were the input: ranges lie in their files, bundles are as
//! [`Bundle::read`] has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::input::{ArchiveFile, InputFile, Kept, Member};
use super::kpack::{CodeObjectAt, KpackPlan, KpmPlan, PlannedKernel};
use super::{Entry, EntryKind, Source, Tree, TreePath};
use crate::elf::Piece;
use crate::fatbin::bundle::Bundle;
use crate::kpack::writer::Compression;
use crate::target::TargetId;

/// Why a record is no tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A number that stands for nothing.
    #[error("{what} {number} is not there (there are {count})")]
    Number {
        /// `input file`, `bundle`, `archive` or `entry`.
        what: &'static str,
        /// Which one is asked for.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// A stretch that is not in its file.
    #[error("{path}: {len} bytes at {offset} are not in its {size}")]
    Range {
        /// The file.
        path: String,
        /// Where the stretch begins.
        offset: u64,
        /// Its length.
        len: u64,
        /// The file's length.
        size: u64,
    },
    /// A bundle that cannot be one.
    #[error("{path}: the bundle at {offset:#x} cannot be one")]
    Bundle {
        /// The file.
        path: String,
        /// Where the bundle begins.
        offset: u64,
        /// Why.
        source: crate::fatbin::bundle::BundleError,
    },
    /// An archive of the input whose name has no known ending.
    #[error("{0} is no archive (expected .tar.zst, .tar.xz or .tar.gz)")]
    Archive(String),
    /// Two entries at one path.
    #[error(transparent)]
    Occupied(#[from] super::Occupied),
    /// A hard link to nothing.
    #[error("{path} is a hard link to {to}, which is no file before it")]
    HardLink {
        /// The link.
        path: TreePath,
        /// Where it leads.
        to: TreePath,
    },
    /// The size of an archive that a manifest lists is not known.
    #[error("the manifest {path} lists /{archive}, whose size is not known")]
    Size {
        /// The manifest.
        path: TreePath,
        /// The archive, as it is installed.
        archive: TreePath,
    },
}

/// Archives of other trees, for manifests that list them, by the path where each is installed.
pub type KnownKpacks = BTreeMap<TreePath, KnownKpack>;

/// What is known of an archive of another tree.
#[derive(Debug, Clone)]
pub enum KnownKpack {
    /// It was built by another run.
    Built {
        /// Its size in bytes.
        size: u64,
        /// The number of its kernels.
        kernel_count: u64,
    },
    /// It is built in this run, before the manifest is written.
    Planned(Arc<KpackPlan>),
}

/// A tree, to be kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct TreeRecord {
    archives: Vec<FileRecord>,
    inputs: Vec<InputRecord>,
    bundles: Vec<(usize, Bundle)>,
    entries: Vec<EntryRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FileRecord {
    #[serde(with = "crate::msgpack::bytes")]
    path: Vec<u8>,
    len: u64,
    time: Option<(i64, i64)>,
}

impl FileRecord {
    fn path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.path))
    }

    fn shown(&self) -> String {
        self.path().display().to_string()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct InputRecord {
    file: FileRecord,
    /// The archive that it is in, and where its content begins there.
    within: Option<(usize, u64)>,
    /// Of a file in an archive: see [`InputFile::capabilities`].
    capabilities: Option<Vec<u8>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct EntryRecord {
    path: TreePath,
    mode: u32,
    mtime: Option<i64>,
    kind: KindRecord,
}

#[derive(Debug, Serialize, Deserialize)]
enum KindRecord {
    Dir,
    #[serde(with = "crate::msgpack::bytes")]
    Symlink(Vec<u8>),
    HardLink(TreePath),
    #[serde(with = "crate::msgpack::bytes")]
    Bytes(Vec<u8>),
    File(usize),
    Pieces(usize, Vec<Piece>),
    Kpack(KpackRecord),
    Kpm(KpmRecord),
}

#[derive(Debug, Serialize, Deserialize)]
struct KpackRecord {
    set: String,
    group_name: String,
    isa: TargetId,
    compression: Compression,
    kernels: Vec<KernelRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KernelRecord {
    name: String,
    co_index: u32,
    bundle: usize,
    entry: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct KpmRecord {
    component_name: String,
    prefix: String,
    /// ISA, file name, and the archive.
    archives: Vec<(TargetId, String, ListedRecord)>,
}

#[derive(Debug, Serialize, Deserialize)]
enum ListedRecord {
    /// Of another package, by its name, which installs it there.
    Of(String, TreePath),
    /// In no package: it is built for its size alone.
    Nowhere(KpackRecord),
}

/// Where archives that are to be built stand, in any package: for [`TreeRecord::new`].
#[derive(Debug, Default)]
pub struct KpackPlaces(HashMap<*const KpackPlan, (String, TreePath)>);

impl KpackPlaces {
    /// Adds the archives in the tree of the package `of`.
    pub fn add(&mut self, of: &str, tree: &Tree) {
        for (path, plan) in tree.kpacks() {
            self.0.insert(Arc::as_ptr(plan), (of.to_owned(), path.clone()));
        }
    }

    /// Where an archive stands, in which package; nowhere where none has it.
    fn of(&self, plan: &Arc<KpackPlan>) -> Option<&(String, TreePath)> {
        self.0.get(&Arc::as_ptr(plan))
    }
}

/// Numbers for what is shared, in the order in which it is met.
#[derive(Default)]
struct Numbers(HashMap<*const u8, usize>);

impl Numbers {
    /// The number of a shared value, and whether it is new.
    fn of<T>(&mut self, shared: &Arc<T>) -> (usize, bool) {
        let next = self.0.len();
        let number = *self.0.entry(Arc::as_ptr(shared).cast()).or_insert(next);
        (number, number == next)
    }
}

struct Recording<'a> {
    record: TreeRecord,
    places: &'a KpackPlaces,
    archives: Numbers,
    inputs: Numbers,
    bundles: Numbers,
}

impl Recording<'_> {
    fn input(&mut self, input: &Arc<InputFile>) -> usize {
        let (number, new) = self.inputs.of(input);
        if new {
            let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
            let within = input.in_archive().map(|(archive, offset)| {
                let (number, new) = self.archives.of(archive);
                if new {
                    let (len, time) = archive.looks();
                    let path = bytes(archive.path());
                    self.record.archives.push(FileRecord { path, len, time });
                }
                (number, offset)
            });
            let (path, len, time) = (bytes(input.path()), input.len(), input.time());
            let capabilities = input.capabilities_of_member().map(<[u8]>::to_vec);
            let file = FileRecord { path, len, time };
            self.record.inputs.push(InputRecord { file, within, capabilities });
        }
        number
    }

    fn kind(&mut self, kind: &EntryKind) -> KindRecord {
        let source = match kind {
            EntryKind::Dir => return KindRecord::Dir,
            EntryKind::Symlink(target) => return KindRecord::Symlink(target.clone()),
            EntryKind::HardLink(to) => return KindRecord::HardLink(to.clone()),
            EntryKind::File(source) => source,
        };
        match source {
            Source::Bytes(bytes) => KindRecord::Bytes(bytes.to_vec()),
            Source::File(input) => KindRecord::File(self.input(input)),
            Source::Pieces { input, pieces } => {
                KindRecord::Pieces(self.input(input), pieces.to_vec())
            }
            Source::Kpack(plan) => KindRecord::Kpack(self.kpack(plan)),
            Source::Kpm(plan) => {
                let archives = plan.archives.iter().map(|(isa, (file, archive))| {
                    let listed = match self.places.of(archive) {
                        Some((package, place)) => ListedRecord::Of(package.clone(), place.clone()),
                        None => ListedRecord::Nowhere(self.kpack(archive)),
                    };
                    (isa.clone(), file.clone(), listed)
                });
                let archives = archives.collect();
                let KpmPlan { component_name, prefix, .. } = &**plan;
                let (component_name, prefix) = (component_name.clone(), prefix.clone());
                KindRecord::Kpm(KpmRecord { component_name, prefix, archives })
            }
        }
    }

    fn kpack(&mut self, plan: &KpackPlan) -> KpackRecord {
        let kernels = plan.kernels().iter().map(|kernel| {
            let CodeObjectAt { input, bundle, entry } = &kernel.code_object;
            let (number, new) = self.bundles.of(bundle);
            if new {
                let input = self.input(input);
                self.record.bundles.push((input, (**bundle).clone()));
            }
            let (name, co_index) = (kernel.name.clone(), kernel.co_index);
            KernelRecord { name, co_index, bundle: number, entry: *entry }
        });
        let kernels = kernels.collect();
        KpackRecord {
            set: plan.set().to_owned(),
            group_name: plan.group_name().to_owned(),
            isa: plan.isa().clone(),
            compression: plan.compression(),
            kernels,
        }
    }
}

impl TreeRecord {
    /// Records a tree. `places` has the archives that its manifests list.
    pub fn new(tree: &Tree, places: &KpackPlaces) -> Self {
        let (archives, inputs, bundles, entries) = Default::default();
        let mut recording = Recording {
            record: Self { archives, inputs, bundles, entries },
            places,
            archives: Numbers::default(),
            inputs: Numbers::default(),
            bundles: Numbers::default(),
        };
        for (path, entry) in tree.iter() {
            let kind = recording.kind(&entry.kind);
            let Entry { mode, mtime, .. } = *entry;
            recording.record.entries.push(EntryRecord { path: path.clone(), mode, mtime, kind });
        }
        recording.record
    }

    /// The files of the input that writing the tree reads: those on disk, and archives.
    pub fn files(&self) -> BTreeSet<PathBuf> {
        let on_disk = self.inputs.iter().filter(|input| input.within.is_none());
        on_disk
            .map(|input| input.file.path())
            .chain(self.archives.iter().map(FileRecord::path))
            .collect()
    }

    /// The packages with archives whose sizes it needs.
    pub fn needs(&self) -> BTreeSet<&str> {
        let manifests = self.entries.iter().filter_map(|entry| match &entry.kind {
            KindRecord::Kpm(kpm) => Some(kpm.archives.iter()),
            _ => None,
        });
        let installed = manifests.flatten().filter_map(|(_, _, listed)| match listed {
            ListedRecord::Of(package, _) => Some(package.as_str()),
            ListedRecord::Nowhere(_) => None,
        });
        installed.collect()
    }

    /// The tree. Files of the input are refused later where they do not have their length or, with
    /// `times`, their time of modification. `known` has the archives of other trees that are listed.
    pub fn tree(&self, times: bool, known: &KnownKpacks) -> Result<Tree, RecordError> {
        let inputs = self.open(times)?;
        let bundles = self.bundles.iter().map(|(input, bundle)| {
            let file = at("input file", &inputs, *input)?;
            bundle.check(file.len()).map_err(|source| RecordError::Bundle {
                path: file.path().display().to_string(),
                offset: bundle.offset,
                source,
            })?;
            Ok((Arc::clone(file), Arc::new(bundle.clone())))
        });
        let reading =
            Reading { bundles: bundles.collect::<Result<_, RecordError>>()?, inputs, known };
        let mut tree = Tree::new();
        for EntryRecord { path, mode, mtime, kind } in &self.entries {
            let kind = reading.kind(kind, path, &tree)?;
            tree.insert(path.clone(), Entry { mode: *mode & 0o7777, mtime: *mtime, kind })?;
        }
        Ok(tree)
    }

    fn open(&self, times: bool) -> Result<Vec<Arc<InputFile>>, RecordError> {
        let time = |file: &FileRecord| file.time.filter(|_| times);
        let archive = |file: &FileRecord| {
            let planned = ArchiveFile::planned(file.path(), file.len, time(file));
            planned.map(Arc::new).ok_or_else(|| RecordError::Archive(file.shown()))
        };
        let archives = self.archives.iter().map(archive).collect::<Result<Vec<_>, _>>()?;
        let input = |input: &InputRecord| {
            let (path, len) = (input.file.path(), input.file.len);
            Ok(Arc::new(match input.within {
                None => InputFile::planned(path, len, time(&input.file)),
                Some((archive, offset)) => {
                    let archive = Arc::clone(at("archive", &archives, archive)?);
                    let kept = Kept::default();
                    let member = Member { archive, offset, kept, digest: None };
                    InputFile::member(path, len, member, input.capabilities.clone())
                }
            }))
        };
        self.inputs.iter().map(input).collect()
    }
}

fn at<'a, T>(what: &'static str, all: &'a [T], number: usize) -> Result<&'a T, RecordError> {
    all.get(number).ok_or(RecordError::Number { what, number, count: all.len() })
}

struct Reading<'a> {
    inputs: Vec<Arc<InputFile>>,
    bundles: Vec<(Arc<InputFile>, Arc<Bundle>)>,
    known: &'a KnownKpacks,
}

impl Reading<'_> {
    fn kind(
        &self,
        kind: &KindRecord,
        path: &TreePath,
        before: &Tree,
    ) -> Result<EntryKind, RecordError> {
        let source = match kind {
            KindRecord::Dir => return Ok(EntryKind::Dir),
            KindRecord::Symlink(target) => return Ok(EntryKind::Symlink(target.clone())),
            KindRecord::HardLink(to) => {
                if before.get(to).and_then(Entry::source).is_none() {
                    return Err(RecordError::HardLink { path: path.clone(), to: to.clone() });
                }
                return Ok(EntryKind::HardLink(to.clone()));
            }
            KindRecord::Bytes(bytes) => Source::bytes(bytes.as_slice()),
            KindRecord::File(input) => Source::File(Arc::clone(self.input(*input)?)),
            KindRecord::Pieces(input, pieces) => {
                let input = self.input(*input)?;
                for piece in pieces {
                    if let Piece::Input { offset, len } = *piece
                        && offset.checked_add(len).is_none_or(|end| end > input.len())
                    {
                        let (path, size) = (input.path().display().to_string(), input.len());
                        return Err(RecordError::Range { path, offset, len, size });
                    }
                }
                Source::Pieces { input: Arc::clone(input), pieces: pieces.as_slice().into() }
            }
            KindRecord::Kpack(record) => Source::Kpack(Arc::new(self.kpack(record)?)),
            KindRecord::Kpm(record) => Source::Kpm(Arc::new(self.kpm(record, path)?)),
        };
        Ok(EntryKind::File(source))
    }

    fn input(&self, number: usize) -> Result<&Arc<InputFile>, RecordError> {
        at("input file", &self.inputs, number)
    }

    fn kpack(&self, record: &KpackRecord) -> Result<KpackPlan, RecordError> {
        let kernel = |kernel: &KernelRecord| {
            let (input, bundle) = at("bundle", &self.bundles, kernel.bundle)?;
            at("entry", &bundle.entries, kernel.entry)?;
            let (input, bundle) = (Arc::clone(input), Arc::clone(bundle));
            let code_object = CodeObjectAt { input, bundle, entry: kernel.entry };
            let (name, co_index) = (kernel.name.clone(), kernel.co_index);
            Ok(PlannedKernel { name, co_index, code_object })
        };
        let kernels = record.kernels.iter().map(kernel).collect::<Result<_, RecordError>>()?;
        let KpackRecord { set, group_name, isa, compression, .. } = record;
        Ok(KpackPlan::new(set.clone(), group_name.clone(), isa.clone(), *compression, kernels))
    }

    /// A manifest of archives, most of which are in other trees.
    fn kpm(&self, record: &KpmRecord, path: &TreePath) -> Result<KpmPlan, RecordError> {
        let mut archives = BTreeMap::new();
        for (isa, file, listed) in &record.archives {
            let plan = match listed {
                ListedRecord::Nowhere(record) => Arc::new(self.kpack(record)?),
                ListedRecord::Of(_, place) => match self.known.get(place) {
                    Some(KnownKpack::Planned(plan)) => Arc::clone(plan),
                    Some(&KnownKpack::Built { size, kernel_count }) => {
                        let (set, group_name) = (String::new(), record.component_name.clone());
                        let none = Compression::None;
                        let plan = KpackPlan::new(set, group_name, isa.clone(), none, Vec::new());
                        plan.set_made(size, kernel_count);
                        Arc::new(plan)
                    }
                    None => {
                        let (path, archive) = (path.clone(), place.clone());
                        return Err(RecordError::Size { path, archive });
                    }
                },
            };
            archives.insert(isa.clone(), (file.clone(), plan));
        }
        let KpmRecord { component_name, prefix, .. } = record;
        Ok(KpmPlan { component_name: component_name.clone(), prefix: prefix.clone(), archives })
    }
}
