//! Relations that a packages file gives, in the words of each format.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kinds::FileKind;

/// Relations as a Debian control file writes them (`libc6 (>= 2.34)`, `a | b`). `{version}` stands for the
/// version of the packages with the release, `{upstream_version}` for the one without, `{name}` for the package
/// that has the relation, `{group}` for its group.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct DebRelations {
    pub pre_depends: Vec<String>,
    pub depends: Vec<String>,
    pub recommends: Vec<String>,
    pub suggests: Vec<String>,
    pub enhances: Vec<String>,
    pub conflicts: Vec<String>,
    pub breaks: Vec<String>,
    pub replaces: Vec<String>,
    pub provides: Vec<String>,
}

/// Relations as a spec file writes them (`glibc >= 2.34`, `(a or b)`). `{version}` and the others stand for
/// what they do in a Debian package's.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct RpmRelations {
    pub requires: Vec<String>,
    pub recommends: Vec<String>,
    pub suggests: Vec<String>,
    pub supplements: Vec<String>,
    pub enhances: Vec<String>,
    pub provides: Vec<String>,
    pub conflicts: Vec<String>,
    pub obsoletes: Vec<String>,
}

/// Relations of the packages of a definition, but for the one with the host code.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OtherRelations {
    /// Of each group's package.
    pub group: Relations,
    /// Of what several groups share; `{group}` is `gfx11xx-shared`.
    pub shared: Relations,
    /// Of the package that holds nothing and leads to the others.
    pub meta: Relations,
    /// Of the package for building with it.
    pub dev: Relations,
    /// Of the documentation's.
    pub doc: Relations,
    /// Of the tests'; those of groups have their own.
    pub tests: Relations,
    /// Of each group's package of tests, which has their device code.
    pub tests_group: Relations,
    /// Of the debug symbols'.
    pub debug: Relations,
}

/// Relations of one kind of package.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Relations {
    /// In the `.deb` only.
    pub deb: DebRelations,
    /// In the `.rpm` only.
    pub rpm: RpmRelations,
}

impl DebRelations {
    /// Each list with its field of the control file, in lower case.
    pub fn lists(&self) -> [(&'static str, &[String]); 9] {
        [
            ("pre-depends", &self.pre_depends),
            ("depends", &self.depends),
            ("recommends", &self.recommends),
            ("suggests", &self.suggests),
            ("enhances", &self.enhances),
            ("conflicts", &self.conflicts),
            ("breaks", &self.breaks),
            ("replaces", &self.replaces),
            ("provides", &self.provides),
        ]
    }
}

impl RpmRelations {
    /// Each list with its tag of the spec file, in lower case.
    pub fn lists(&self) -> [(&'static str, &[String]); 8] {
        [
            ("requires", &self.requires),
            ("recommends", &self.recommends),
            ("suggests", &self.suggests),
            ("supplements", &self.supplements),
            ("enhances", &self.enhances),
            ("provides", &self.provides),
            ("conflicts", &self.conflicts),
            ("obsoletes", &self.obsoletes),
        ]
    }
}

impl OtherRelations {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All, by the key that they stand under.
    pub fn all(&self) -> [(&'static str, &Relations); 8] {
        [
            ("group", &self.group),
            ("shared", &self.shared),
            ("meta", &self.meta),
            ("dev", &self.dev),
            ("doc", &self.doc),
            ("tests", &self.tests),
            ("tests_group", &self.tests_group),
            ("debug", &self.debug),
        ]
    }

    /// Of the package for a kind of files.
    pub fn of(&self, kind: FileKind) -> &Relations {
        match kind {
            FileKind::Dev => &self.dev,
            FileKind::Doc => &self.doc,
            FileKind::Tests => &self.tests,
            FileKind::Debug => &self.debug,
        }
    }
}
