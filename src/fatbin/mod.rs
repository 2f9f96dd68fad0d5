//! Fat binaries: wrappers, offload bundles (plain and compressed), and the code objects in them.

mod binary;
pub mod bundle;
pub mod ccob;
pub mod code_object;
pub(crate) mod content;
mod error;
mod hashing;
mod names;
mod sequence;
pub mod wrapper;

pub use binary::{FatBinary, FatBinaryError};
pub use error::BundleError;
pub use names::KernelNames;
pub use sequence::read_bundles;
