//! What a package is: names, version, relations, content; the same for both formats.
//!
//! Names are kept as people write them (`rocblas-gfx110X`). A `.deb` has it in lower case, since dpkg
//! knows no other, and provides the other spelling; an `.rpm` keeps it, or has one of its own ([`Name`]). A version is the
//! upstream one with the packaging's `release`, `7.1.0-1`, in both; `~` sorts before the end in both.

mod check;
mod name;
mod relation;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use check::{SpecError, check_versions};
pub(crate) use check::{check_name, check_version};
pub use name::Name;
pub use relation::{DEB_RELATIONS, Op, RPM_RELATIONS, Relation, RelationKind};

use super::lint::Override;
use super::scripts::Alternative;
use crate::tree::{Tree, TreePath};

/// What a package is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Host code, and files for every GPU.
    Generic,
    /// Device code of one architecture group.
    Group {
        /// The group as the configuration calls it, e.g. `gfx110X`.
        group: String,
    },
    /// Device code for a family of ISAs that several groups share.
    Shared {
        /// What it is called behind the definition's name, e.g. `gfx11xx-shared`.
        target: String,
    },
    /// Relations alone.
    Meta,
    /// A package that has nothing to do with the split.
    Plain,
    /// Headers and links: what building needs.
    Dev,
    /// Documentation.
    Doc,
    /// Tests.
    Tests,
    /// Debug symbols.
    Debug,
}

impl Kind {
    /// One word, for templates.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Group { .. } => "group",
            Self::Shared { .. } => "shared",
            Self::Meta => "meta",
            Self::Plain => "plain",
            Self::Dev => "dev",
            Self::Doc => "doc",
            Self::Tests => "tests",
            Self::Debug => "debug",
        }
    }
}

/// The machines that a package is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arch {
    /// x86-64: `amd64`, `x86_64`.
    X86_64,
    /// Any: `all`, `noarch`. For packages without programs and libraries.
    Independent,
}

impl Arch {
    /// Debian's name.
    pub fn deb(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Independent => "all",
        }
    }

    /// RPM's name.
    pub fn rpm(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Independent => "noarch",
        }
    }
}

/// The last date that a package can have, in seconds since 1970 (in 2106): an `.rpm` has 32 bits for it.
pub const LATEST: i64 = u32::MAX as i64;

/// A package, ready to be written in either format.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Package {
    /// The name, in each format.
    pub name: Name,
    /// What it is for.
    pub kind: Kind,
    /// Upstream version, without `-`: `7.1.0`, `7.2.0~rc1`.
    pub version: String,
    /// The packaging's number, without `-`: `1`.
    pub release: String,
    /// Machines that it is for.
    pub arch: Arch,
    /// One line, without a final stop.
    pub summary: String,
    /// The long description; paragraphs are parted by blank lines.
    pub description: String,
    /// `Name <address>`.
    pub maintainer: String,
    /// Who publishes it; may be empty.
    pub vendor: String,
    /// Address of the project's page; may be empty.
    pub homepage: String,
    /// SPDX expression: `MIT`.
    pub license: String,
    /// The licence's text; where absent, the built-in text of that licence if there is one.
    pub license_text: Option<String>,
    /// Debian's section: `libs`.
    pub section: String,
    /// Relations that both formats have.
    pub relations: BTreeMap<RelationKind, Vec<Relation>>,
    /// More relations for the `.deb` alone: a field of [`DEB_RELATIONS`] in lower case, and relations in
    /// the control file's syntax.
    pub deb: BTreeMap<String, Vec<String>>,
    /// More relations for the `.rpm` alone: a tag of [`RPM_RELATIONS`] in lower case, and relations in
    /// the spec file's syntax.
    pub rpm: BTreeMap<String, Vec<String>>,
    /// The ISAs that it holds device code for, in order.
    pub gpu_targets: Vec<String>,
    /// The content; paths are relative to `/`. A file has it in a form of its own ([`crate::tree::record`]).
    #[serde(skip)]
    pub tree: Tree,
    /// `SOURCE_DATE_EPOCH`, or the newest modification time in the set of packages
    /// ([`Tree::newest_mtime`]).
    /// The date of the changelog entry and of files that have none; no file is dated later. [`LATEST`] at the most.
    pub date: i64,
    /// What changed in this version, one item a line.
    pub changes: Vec<String>,
    /// The directory that an `.rpm` can be relocated from, where it can be.
    pub relocatable: Option<TreePath>,
    /// Build ids of the programs whose debug symbols it has, in hex, in order.
    pub build_ids: Vec<String>,
    /// Names that it offers a file for, among others.
    pub alternatives: Vec<Alternative>,
    /// Directories in the dynamic linker's path beside those that it always searches.
    pub linker_dirs: Vec<TreePath>,
    /// Findings of lintian that are accepted beside those of [`super::lint`].
    pub lintian_overrides: Vec<Override>,
}

impl Package {
    /// A package with a name and a version, and nothing else yet.
    pub fn new(name: impl Into<Name>, kind: Kind, version: &str, release: &str) -> Self {
        let name = name.into();
        Self {
            summary: name.to_string(),
            name,
            kind,
            version: version.to_owned(),
            release: release.to_owned(),
            arch: Arch::X86_64,
            description: String::new(),
            maintainer: String::new(),
            vendor: String::new(),
            homepage: String::new(),
            license: "MIT".to_owned(),
            license_text: None,
            section: "libs".to_owned(),
            relations: BTreeMap::new(),
            deb: BTreeMap::new(),
            rpm: BTreeMap::new(),
            gpu_targets: Vec::new(),
            tree: Tree::new(),
            date: 0,
            changes: Vec::new(),
            relocatable: None,
            build_ids: Vec::new(),
            alternatives: Vec::new(),
            linker_dirs: Vec::new(),
            lintian_overrides: Vec::new(),
        }
    }

    /// The name in the `.deb`: lower case.
    pub fn deb_name(&self) -> String {
        self.name.deb()
    }

    /// The name in the `.rpm`.
    pub fn rpm_name(&self) -> &str {
        self.name.rpm()
    }

    /// `version-release`, the version that relations compare, in both formats.
    pub fn full_version(&self) -> String {
        format!("{}-{}", self.version, self.release)
    }

    /// Adds a relation, unless it is there.
    pub fn relate(&mut self, kind: RelationKind, relation: Relation) {
        let relations = self.relations.entry(kind).or_default();
        if !relations.contains(&relation) {
            relations.push(relation);
        }
    }
}
