//! Offload bundles and the code objects in them.

pub mod wrapper;
