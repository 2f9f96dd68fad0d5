//! kpack archives that are still to be built, as contents of a tree.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::source::InputFile;
use crate::target::TargetId;

/// Where one code object lies in the input.
#[derive(Debug, Clone)]
pub struct CodeObjectAt {
    /// The fat binary.
    pub input: Arc<InputFile>,
    /// Offset in it.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
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
    /// Where it can be read.
    pub path: Option<PathBuf>,
}

/// An archive to be built.
#[derive(Debug)]
pub struct KpackPlan {
    /// TOC field `group_name`.
    pub group_name: String,
    /// The one ISA in it.
    pub isa: TargetId,
    /// In the order in which they are stored.
    pub kernels: Vec<PlannedKernel>,
    built: OnceLock<BuiltKpack>,
}

impl KpackPlan {
    /// What came of it, once a sink has built it.
    pub fn built(&self) -> Option<&BuiltKpack> {
        self.built.get()
    }

    /// Bytes of all code objects before compression.
    pub fn original_size(&self) -> u64 {
        self.kernels.iter().map(|k| k.code_object.size).sum()
    }
}

/// A `.kpm` manifest over archives to be built.
#[derive(Debug)]
pub struct KpmPlan {}

impl KpmPlan {
    /// The manifest's bytes, once all its archives have been built.
    pub fn render(&self) -> Option<Vec<u8>> {
        None
    }
}
