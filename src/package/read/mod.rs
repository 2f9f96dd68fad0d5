//! Reading packages, ours and others': what a file says of itself, and whether its content agrees.
//!
//! Each package is read once, as a stream, so memory does not grow with it; what a [`PackageReport`]
//! holds is bounded, whatever a header claims.

mod cpio;
pub mod deb;
mod decode;
mod error;
mod report;
pub mod rpm;
pub(crate) mod rpm_header;
mod tar;

use std::io::{self, Read};

pub use error::PackageError;
pub use report::{FileReport, Member, PackageReport, Script};

/// Sees a package while it is read.
pub trait Visit {
    /// Called before the content comes: fields and relations are known, and of an `.rpm` its files.
    fn control(&mut self, report: &PackageReport);

    /// A regular file, by its installed path (absolute), with its length in bytes. Not all of the
    /// content has to be read. An error ends the reading.
    fn file(&mut self, path: &str, len: u64, content: &mut dyn Read) -> io::Result<()>;
}

/// Looks at nothing.
#[derive(Debug, Clone, Copy)]
pub struct Ignore;

impl Visit for Ignore {
    fn control(&mut self, _: &PackageReport) {}

    fn file(&mut self, _: &str, _: u64, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }
}
