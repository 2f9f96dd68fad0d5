//! Repositories: from packages to `apt install`, `dnf install`, `zypper install`.
//!
//! A repository is a directory with a root for each format, which share nothing but the moment of publishing:
//!
//! ```text
//! DIR/deb/pool/…  DIR/deb/dists/…        what apt reads
//! DIR/rpm/Packages/…  DIR/rpm/repodata/… what dnf and zypper read
//! DIR/.gfxpack/                          what the next run needs: clients do not
//! ```
//!
//! [`work`] does one thing after the other: [`store`] reads the [`record`]s that are kept of each package, so that
//! no package is read again; `intake` brings new ones in; `change` says which records there are to be (add,
//! remove, prune, merge); `closed` refuses a set that clients could not upgrade to; [`apt`] and [`rpm`] make the
//! [`Indices`] of their format from the records, in memory and without looking at a file; [`publish`] brings
//! packages and indices to their places, so that clients see the old state or the new one.
//!
//! Nothing here looks at the clock: the date of a publication is given, or follows from the packages.

pub mod apt;
pub mod brief;
mod change;
mod closed;
mod components;
mod intake;
mod pieces;
pub mod publish;
pub mod record;
pub mod rpm;
mod settings;
mod state_file;
pub mod store;
mod trust;
pub mod work;

pub(crate) use crate::package::render::hex;

pub use pieces::{Block, Kept};

use crate::package::Format;

/// Directory of a format below that of the repository.
pub fn root(format: Format) -> &'static str {
    format.as_str()
}

/// The indices of one format, ready to be written. Paths are below the repository's directory
/// (`deb/dists/stable/InRelease`), with `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indices {
    /// Files whose names follow from their content. They are written first, harm nobody who reads older
    /// ones, and stay for a while after they are no longer referred to.
    pub named: Vec<Named>,
    /// Files with names that stay the same, in the order in which they are to be replaced: what refers to
    /// everything else last (`InRelease`, `repomd.xml`).
    pub fixed: Vec<Fixed>,
    /// Pieces of compressed indices, which those of the next publication may have as well.
    pub blocks: Vec<Block>,
}

/// An index whose name follows from its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its names; all but the first are links to that.
    pub paths: Vec<String>,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// A file that is replaced when the repository is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// Where it is.
    pub path: String,
    /// Its content.
    pub content: Content,
}

/// Content of a [`Fixed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Those of the [`Named`] with this path.
    Of(String),
    /// The file goes away: nothing has that name from now on.
    Gone,
}
