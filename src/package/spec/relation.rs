//! Relations of packages to each other, in the model and in the syntax of each format.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Name;
use crate::package::Format;

/// How a version is compared in a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Op {
    /// Earlier than.
    Less,
    /// Earlier than or equal to.
    LessEqual,
    /// Exactly.
    Equal,
    /// Later than or equal to.
    GreaterEqual,
    /// Later than.
    Greater,
}

impl Op {
    /// Reads an operator of either format.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "<<" | "<" => Self::Less,
            "<=" => Self::LessEqual,
            "=" => Self::Equal,
            ">=" => Self::GreaterEqual,
            ">>" | ">" => Self::Greater,
            _ => return None,
        })
    }

    /// As a control file writes it: `<<`, `<=`, `=`, `>=`, `>>`.
    pub fn deb(self) -> &'static str {
        match self {
            Self::Less => "<<",
            Self::LessEqual => "<=",
            Self::Equal => "=",
            Self::GreaterEqual => ">=",
            Self::Greater => ">>",
        }
    }

    /// As a spec file writes it: `<`, `<=`, `=`, `>=`, `>`.
    pub fn rpm(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::Greater => ">",
            other => other.deb(),
        }
    }
}

/// One package (or capability) that a relation names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Relation {
    /// The name, in each format.
    pub name: Name,
    /// Which versions, as `version-release` or `version`; any where absent.
    pub constraint: Option<(Op, String)>,
}

impl Relation {
    /// Any version of `name`.
    pub fn any(name: impl Into<Name>) -> Self {
        Self { name: name.into(), constraint: None }
    }

    /// Exactly this version of `name`.
    pub fn exactly(name: impl Into<Name>, version: impl Into<String>) -> Self {
        Self { name: name.into(), constraint: Some((Op::Equal, version.into())) }
    }

    /// This version of `name` or a later one.
    pub fn at_least(name: impl Into<Name>, version: impl Into<String>) -> Self {
        Self { name: name.into(), constraint: Some((Op::GreaterEqual, version.into())) }
    }

    /// `name (= 1-1)`, the name in lower case.
    pub fn deb(&self) -> String {
        let name = self.name.deb();
        match &self.constraint {
            Some((op, version)) => format!("{name} ({} {version})", op.deb()),
            None => name,
        }
    }

    /// `name = 1-1`.
    pub fn rpm(&self) -> String {
        match &self.constraint {
            Some((op, version)) => format!("{} {} {version}", self.name.rpm(), op.rpm()),
            None => self.name.rpm().to_owned(),
        }
    }

    /// As the format writes it.
    pub fn in_format(&self, format: Format) -> String {
        match format {
            Format::Deb => self.deb(),
            Format::Rpm => self.rpm(),
        }
    }
}

/// With the name as people write it.
impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.constraint {
            Some((op, version)) => write!(f, "{} {} {version}", self.name, op.rpm()),
            None => write!(f, "{}", self.name),
        }
    }
}

/// The kinds of relation, in the order in which a control file lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RelationKind {
    /// Needed to work.
    Depends,
    /// Installed with it unless the user says otherwise.
    Recommends,
    /// Worth knowing of.
    Suggests,
    /// The reverse of `Suggests`.
    Enhances,
    /// The reverse of `Recommends`; a `.deb` cannot say it, so it is left out there.
    Supplements,
    /// Other names that it satisfies.
    Provides,
    /// Cannot be installed together with it.
    Conflicts,
    /// Stops working with it; an `.rpm` says `Conflicts`.
    Breaks,
    /// Takes over files from, or the place of; an `.rpm` says `Obsoletes`.
    Replaces,
}

impl RelationKind {
    /// The control file's field, where there is one.
    pub fn deb_field(self) -> Option<&'static str> {
        Some(match self {
            Self::Depends => "Depends",
            Self::Recommends => "Recommends",
            Self::Suggests => "Suggests",
            Self::Enhances => "Enhances",
            Self::Supplements => return None,
            Self::Provides => "Provides",
            Self::Conflicts => "Conflicts",
            Self::Breaks => "Breaks",
            Self::Replaces => "Replaces",
        })
    }

    /// The spec file's tag.
    pub fn rpm_tag(self) -> &'static str {
        match self {
            Self::Depends => "Requires",
            Self::Recommends => "Recommends",
            Self::Suggests => "Suggests",
            Self::Enhances => "Enhances",
            Self::Supplements => "Supplements",
            Self::Provides => "Provides",
            Self::Conflicts | Self::Breaks => "Conflicts",
            Self::Replaces => "Obsoletes",
        }
    }
}

/// The order of the relation fields in a control file, and the keys (in lower case) of [`super::Package::deb`].
pub const DEB_RELATIONS: [&str; 9] = [
    "Pre-Depends",
    "Depends",
    "Recommends",
    "Suggests",
    "Enhances",
    "Conflicts",
    "Breaks",
    "Replaces",
    "Provides",
];

/// The order of the relation tags in a spec file, and the keys (in lower case) of [`super::Package::rpm`].
pub const RPM_RELATIONS: [&str; 8] = [
    "Requires",
    "Recommends",
    "Suggests",
    "Supplements",
    "Enhances",
    "Provides",
    "Conflicts",
    "Obsoletes",
];
