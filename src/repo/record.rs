//! What is kept of a package, so that its file need not be read again.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::brief::Brief;
use super::{apt, root, rpm};
use crate::package::Format;
use crate::package::spec::Relation;
use crate::package::version;

/// A package of a repository. What indices say of it beside is all there ([`Part`]), or in a [`Brief`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<P = Part> {
    /// As the format spells it: `rocblas-gfx110x` in a `.deb`, `rocblas-gfx110X` in an `.rpm`.
    pub name: String,
    /// With release, and with the epoch where there is one other than 0: `7.1.0-1`, `1:2-3`.
    pub version: String,
    /// As the format spells it: `amd64`, `all`; `x86_64`, `noarch`.
    pub arch: String,
    /// The file below the root of its format, with `/`: `pool/main/r/rocblas-generic/….deb`, `Packages/r/….rpm`.
    pub path: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// SHA-256 of the file.
    #[serde(with = "crate::msgpack::digest")]
    pub sha256: [u8; 32],
    /// When the package was built, in seconds since 1970, as it says itself.
    pub built: i64,
    /// What only its format has.
    pub part: P,
}

/// What a package says of itself, before it has a place in a repository. See [`Record`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// As the format spells it.
    pub name: String,
    /// With release and epoch.
    pub version: String,
    /// As the format spells it.
    pub arch: String,
    /// When it was built, in seconds since 1970.
    pub built: i64,
    /// What only its format has.
    pub part: Part,
}

/// What indices of one format say of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Of a `.deb`.
    Deb(apt::Record),
    /// Of an `.rpm`.
    Rpm(Box<rpm::Record>),
}

/// The relations that decide who can be installed with whom, in one form for both formats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relations {
    /// All of these are needed (`Pre-Depends`, `Depends`; `Requires`), each with its alternatives. What cannot be
    /// said so (rich relations of an `.rpm`, capabilities of rpm itself) is left out.
    pub needs: Vec<Vec<Relation>>,
    /// What it provides, its own name left out.
    pub provides: Vec<Relation>,
    /// Whose place it takes (`Replaces` together with `Breaks` or `Conflicts`; `Obsoletes`).
    pub replaces: Vec<Relation>,
}

/// What tells the format of a package.
pub trait HasFormat {
    /// The format of its file.
    fn format(&self) -> Format;
}

impl HasFormat for Part {
    fn format(&self) -> Format {
        match self {
            Self::Deb(_) => Format::Deb,
            Self::Rpm(_) => Format::Rpm,
        }
    }
}

impl HasFormat for Brief {
    fn format(&self) -> Format {
        self.format
    }
}

impl Record<Part> {
    /// The relations that decide about upgrades.
    pub fn relations(&self) -> Relations {
        match &self.part {
            Part::Deb(part) => part.relations(),
            Part::Rpm(part) => part.relations(),
        }
    }
}

impl<P: HasFormat> Record<P> {
    /// The format of its file.
    pub fn format(&self) -> Format {
        self.part.format()
    }

    /// Its file below the repository's directory, with `/`: `deb/pool/main/r/…`.
    pub fn file(&self) -> String {
        format!("{}/{}", root(self.format()), self.path)
    }

    /// The order of records in a repository and in its indices: by format, name, version in the format's own
    /// order, architecture, and at last by what tells any two versions apart.
    pub fn order(&self, other: &Self) -> Ordering {
        let format = self.format();
        (format, &self.name)
            .cmp(&(other.format(), &other.name))
            .then_with(|| version::compare(format, &self.version, &other.version))
            .then_with(|| (&self.arch, &self.version).cmp(&(&other.arch, &other.version)))
    }

    /// `rocblas-generic 7.1.0-1 amd64`.
    pub fn called(&self) -> String {
        format!("{} {} {}", self.name, self.version, self.arch)
    }
}
