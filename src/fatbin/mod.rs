//! Offload bundles and the code objects in them.

pub mod bundle;
pub mod ccob;
pub mod code_object;
mod error;
