//! kpack archives, their manifests (`.kpm`), and the marker that leads a binary to them.

pub mod kpm;
pub mod marker;
pub mod reader;
mod toc;
pub mod writer;
