//! kpack archives that are still to be built, as contents of a tree. [`super::build`] builds them.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::input::{ArchiveFile, InputFile};
use crate::fatbin::bundle::{Bundle, BundleEntry, Form};
use crate::kpack::kpm::{Kpm, KpmFile};
use crate::kpack::writer::Compression;
use crate::read_at::ReadAt;
use crate::target::TargetId;

/// Where one code object lies in the input.
#[derive(Debug, Clone)]
pub struct CodeObjectAt {
    /// The fat binary.
    pub input: Arc<InputFile>,
    /// The bundle in it.
    pub bundle: Arc<Bundle>,
    /// Which of the bundle's entries.
    pub entry: usize,
}

impl CodeObjectAt {
    /// The bundle's entry.
    pub fn entry(&self) -> &BundleEntry {
        &self.bundle.entries[self.entry]
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.entry().size
    }

    /// The code object as a stream; `file` is its input, open.
    pub fn open_in<'r>(&self, file: &'r dyn ReadAt) -> io::Result<impl Read + use<'r>> {
        self.bundle.open_entry(file, self.entry()).map_err(io::Error::other)
    }

    /// What tells it from every other code object without reading it: the file, the bundle's offset
    /// and the entry.
    pub(super) fn place(&self) -> (&Path, u64, usize) {
        (self.input.path(), self.bundle.offset, self.entry)
    }
}

/// A kernel of an archive to come.
#[derive(Debug, Clone)]
pub struct PlannedKernel {
    /// The marker's `kernel_name`, without `#index`.
    pub name: String,
    /// The wrapper's `co_index`.
    pub co_index: u32,
    /// The code object.
    pub code_object: CodeObjectAt,
}

/// What is known of an archive once it has been built.
#[derive(Debug, Clone)]
pub struct BuiltKpack {
    /// Size of the file in bytes.
    pub size: u64,
    /// Number of kernels in its TOC.
    pub kernel_count: u64,
    /// Where it can be read, while it is there.
    pub path: PathBuf,
}

/// An archive to be built.
#[derive(Debug)]
pub struct KpackPlan {
    set: String,
    group_name: String,
    isa: TargetId,
    compression: Compression,
    kernels: Vec<PlannedKernel>,
    built: OnceLock<BuiltKpack>,
}

impl KpackPlan {
    /// Plans the archive of one ISA. `set` is the same for archives of the same binaries, which are
    /// best built together; `group_name` is the artifact prefix. The kernels are put into the order
    /// of their names and indexes.
    pub fn new(
        set: String,
        group_name: String,
        isa: TargetId,
        compression: Compression,
        mut kernels: Vec<PlannedKernel>,
    ) -> Self {
        kernels.sort_by(|a, b| (&a.name, a.co_index).cmp(&(&b.name, b.co_index)));
        Self { set, group_name, isa, compression, kernels, built: OnceLock::new() }
    }

    /// The ISA of all its kernels.
    pub fn isa(&self) -> &TargetId {
        &self.isa
    }

    /// In the order in which they are stored.
    pub fn kernels(&self) -> &[PlannedKernel] {
        &self.kernels
    }

    /// What came of it, once a sink has built it.
    pub fn built(&self) -> Option<&BuiltKpack> {
        self.built.get()
    }

    /// Bytes of all code objects before compression; one that several kernels share counts once.
    pub fn original_size(&self) -> u64 {
        self.objects().iter().map(|(object, _)| object.size()).sum()
    }

    /// About the size that the file will have, in bytes: code objects of libraries compress to a quarter, more or less.
    pub fn estimated_size(&self) -> u64 {
        match self.compression {
            Compression::None => self.original_size(),
            Compression::Zstd { .. } => self.original_size() / 4,
        }
    }

    /// The distinct code objects in stored order, each with the kernels that it is.
    pub(super) fn objects(&self) -> Vec<(&CodeObjectAt, Vec<&PlannedKernel>)> {
        let mut objects: Vec<(&CodeObjectAt, Vec<&PlannedKernel>)> = Vec::new();
        let mut places = HashMap::new();
        for kernel in &self.kernels {
            let at = *places.entry(kernel.code_object.place()).or_insert(objects.len());
            if at == objects.len() {
                objects.push((&kernel.code_object, Vec::new()));
            }
            objects[at].1.push(kernel);
        }
        objects
    }

    /// The same for archives of the same binaries.
    pub fn set(&self) -> &str {
        &self.set
    }

    /// Whether some of its code objects are in compressed bundles: of those all that is wanted is best taken at a time.
    pub(crate) fn is_from_compressed(&self) -> bool {
        let mut bundles = self.kernels.iter().map(|kernel| &kernel.code_object.bundle);
        bundles.any(|bundle| matches!(bundle.form, Form::Compressed(_)))
    }

    /// The archive of the input that all its code objects are in, where there is one.
    pub(crate) fn archive(&self) -> Option<&Arc<ArchiveFile>> {
        let mut archives =
            self.kernels.iter().map(|kernel| kernel.code_object.input.in_archive().map(|(a, _)| a));
        let first = archives.next()??;
        archives.all(|other| other.is_some_and(|other| Arc::ptr_eq(first, other))).then_some(first)
    }

    pub(super) fn group_name(&self) -> &str {
        &self.group_name
    }

    /// How its code objects are stored.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Says what came of it where nobody needed to build it: the package that it is in was made before.
    pub(crate) fn set_made(&self, size: u64, kernel_count: u64) {
        self.set_built(BuiltKpack { size, kernel_count, path: PathBuf::new() });
    }

    /// Keeps what came of it. Building twice gives the same archive; the first one's place is kept.
    pub(super) fn set_built(&self, built: BuiltKpack) {
        let _ = self.built.set(built);
    }
}

/// A `.kpm` manifest over archives to be built.
#[derive(Debug, Clone)]
pub struct KpmPlan {
    /// The artifact prefix, as `blas_lib`.
    pub component_name: String,
    /// The prefix that the archives are under.
    pub prefix: String,
    /// ISA to file name and archive.
    pub archives: BTreeMap<TargetId, (String, Arc<KpackPlan>)>,
}

impl KpmPlan {
    /// The archives that have yet to be built.
    pub fn unbuilt(&self) -> impl Iterator<Item = Arc<KpackPlan>> {
        let archives = self.archives.values().map(|(_, plan)| plan);
        archives.filter(|plan| plan.built().is_none()).cloned()
    }

    /// The manifest's bytes, once all its archives have been built.
    pub fn render(&self) -> Option<Vec<u8>> {
        let mut kpm = Kpm::new(&self.component_name, &self.prefix);
        for (isa, (file, plan)) in &self.archives {
            let built = plan.built()?;
            let entry =
                KpmFile { file: file.clone(), size: built.size, kernel_count: built.kernel_count };
            kpm.kpack_files.insert(isa.clone(), entry);
        }
        kpm.to_bytes().ok()
    }
}
