//! Packages: one model, written as `.deb` and as `.rpm`.
//!
//! [`spec::Package`] says what a package is called, relates to, and holds, in the formats' [`grammar`] and with
//! a [`version`] that both order alike; [`render`] turns it into the
//! texts that either format carries (handlebars templates, each of which the user can replace);
//! [`deb`] and [`rpm`] write the files, streaming: no content is held in memory, and each source is read
//! once; [`read`] reads them back. The same package gives the same bytes, whatever the number of threads.

mod ahead;
mod beside;
mod cached;
mod capabilities;
pub mod compat;
pub mod compress;
mod compress_beside;
pub mod deb;
pub mod elfdeps;
mod files;
mod frame;
pub mod grammar;
pub mod lint;
pub mod planned;
pub mod read;
pub mod render;
pub mod room;
pub mod rpm;
mod schedule;
pub mod scripts;
pub mod set;
mod share;
mod shlibs;
pub mod sign;
pub mod spec;
mod spool;
mod together;
pub mod version;

pub use files::{DEBUG_ROOT, is_library_name, is_searched};

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Result;
use crate::progress::Monitor;
use crate::sign::Signer;
use compress::Compression;
use render::Templates;
pub use share::in_flight;
use spec::Package;

/// The two package formats.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Format {
    /// Debian's.
    Deb,
    /// RPM, version 4 of the file format.
    Rpm,
}

impl Format {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Deb, Self::Rpm];

    /// The format that is called so; see [`Self::as_str`].
    pub fn called(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// The ending of its files, without the dot; also its name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
        }
    }
}

/// How packages are written.
#[derive(Debug, Clone)]
pub struct Options {
    /// Compression of the content.
    pub compression: Compression,
    /// Threads that compress one package. Does not change the bytes.
    pub threads: usize,
    /// Bytes of content that may be read ahead, so that the digests of several files can be worked out
    /// side by side. Does not change the bytes.
    pub read_ahead: u64,
    /// Directory for an unnamed temporary file with what both formats hold in different orders, where they are written together.
    pub spool_dir: PathBuf,
    /// Whether the file is read once more, for its own SHA-256.
    pub digest: bool,
    /// Signs the header of an `.rpm`. A `.deb` has no place for a signature: see [`sign`].
    pub signer: Option<Arc<Signer>>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Size of the package file in bytes.
    pub size: u64,
    /// Bytes that its files have once installed, hard links counted once.
    pub installed_size: u64,
    /// SHA-256 of the package file, where it was asked for.
    pub sha256: Option<[u8; 32]>,
    /// Number of members, directories included.
    pub members: usize,
}

/// The name of the package's file: `rocblas-gfx110x_7.1.0-1_amd64.deb`,
/// `rocblas-gfx110X-7.1.0-1.x86_64.rpm`.
pub fn file_name(package: &Package, format: Format) -> String {
    let Package { version, release, arch, .. } = package;
    match format {
        Format::Deb => format!("{}_{version}-{release}_{}.deb", package.deb_name(), arch.deb()),
        Format::Rpm => {
            format!("{}-{version}-{release}.{}.rpm", package.rpm_name(), arch.rpm())
        }
    }
}

/// Writes a package. `out` is an empty file, open for reading and writing; the caller gives it its
/// name once it is whole. Content of unknown length (a kpack that has not been built) is refused, as is
/// what the format cannot hold, before anything is written.
pub fn write(
    package: &Package,
    format: Format,
    templates: &Templates,
    options: &Options,
    out: &mut File,
    monitor: &dyn Monitor,
) -> Result<Report> {
    match format {
        Format::Deb => deb::write(package, templates, options, out, monitor),
        Format::Rpm => rpm::write(package, templates, options, out, monitor),
    }
}
