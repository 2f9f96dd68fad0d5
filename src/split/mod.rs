//! Splitting: one artifact becomes a generic artifact (host code, with the device code taken out and
//! a marker put in) and one artifact for each ISA (kpack archives and kernel databases).
//!
//! Planning reads headers, bundle tables and names, a small part of the input; the code objects are
//! read when a sink builds the archives.

mod code_file;
mod kernels;
mod plan;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::database::Databases;
use crate::kpack::writer::Compression;
use crate::target::TargetId;
use crate::tree::TreePath;

pub use plan::split;

/// The folder of archives unless another is asked for: where runtimes and descriptions expect it.
pub const KPACK_FOLDER: &str = ".kpack";

/// Which kernels share an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Those of one artifact and component: `blas_lib_gfx1100.kpack`.
    #[default]
    Component,
    /// Those of one prefix, so that packages can take prefixes apart.
    Prefix,
    /// Those of one binary.
    Binary,
}

/// Where archives stand in an artifact. Installed they are in one folder either way, mostly `.kpack/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Under a prefix of their own, `kpack/stage`.
    #[default]
    Stage,
    /// Under the prefix of the binaries.
    InPlace,
}

/// What a marker is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MarkerForm {
    /// The MessagePack map that the runtime reads.
    #[default]
    MessagePack,
    /// The search paths alone as text, as older descriptions have it.
    Text,
}

/// How to split.
pub struct Options {
    /// The databases whose files go with their ISA.
    pub databases: Databases,
    /// Which kernels share an archive.
    pub scope: Scope,
    /// Where archives stand.
    pub layout: Layout,
    /// The folder of archives below a prefix, and once installed below the install prefix: `.kpack`, or
    /// another that ends in it.
    pub folder: TreePath,
    /// How archives hold their kernels.
    pub compression: Compression,
    /// Keep the code of these ISAs only (a processor stands for its feature variants too).
    pub gpu_targets: Option<BTreeSet<TargetId>>,
    /// What a marker is written as.
    pub marker: MarkerForm,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            databases: Databases::known(),
            scope: Scope::default(),
            layout: Layout::default(),
            folder: TreePath::new(KPACK_FOLDER).expect("a clean path"),
            compression: Compression::Zstd { level: 3 },
            gpu_targets: None,
            marker: MarkerForm::default(),
        }
    }
}

impl Options {
    fn wants(&self, isa: &TargetId) -> bool {
        self.gpu_targets
            .as_ref()
            .is_none_or(|wanted| wanted.contains(isa) || wanted.contains(&isa.without_features()))
    }
}

/// What one artifact was split into.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The artifact's name.
    pub artifact: String,
    /// The converted binaries, by path.
    pub converted: Vec<ConvertedBinary>,
    /// By ISA (or family of ISAs).
    pub isas: BTreeMap<String, IsaContent>,
    /// Files and links of the generic artifact.
    pub generic_files: u64,
    /// What `gpu_targets` left out, by ISA.
    pub left_out: BTreeMap<String, IsaContent>,
    /// What stays as it is although it looks as if it might not, each with the reason.
    pub notes: Vec<String>,
}

/// A binary whose device code was taken out.
#[derive(Debug, Serialize)]
pub struct ConvertedBinary {
    /// Path in the artifact.
    pub path: String,
    /// Wrappers in `.hipFatBinSegment`.
    pub wrappers: usize,
    /// Bundles that they point at.
    pub bundles: usize,
    /// Size before, in bytes.
    pub size_before: u64,
    /// Size after, in bytes.
    pub size_after: u64,
}

/// What there is for one ISA.
#[derive(Debug, Default, Clone, Serialize)]
pub struct IsaContent {
    /// Code objects in archives.
    pub code_objects: u64,
    /// Their bytes before compression.
    pub code_bytes: u64,
    /// Files of kernel databases, links included.
    pub database_files: u64,
    /// Their bytes.
    pub database_bytes: u64,
}
