//! What a package is: names, version, relations, content; the same for both formats.
//!
//! Names are kept as people write them (`rocblas-gfx110X`). A `.deb` has it in lower case, since dpkg
//! knows no other, and provides the other spelling; an `.rpm` keeps it. A version is the upstream one
//! with the packaging's `release`, `7.1.0-1`, in both; `~` sorts before the end in both.

use std::collections::BTreeMap;
use std::fmt;

use super::Format;
use super::lint::Override;
use super::scripts::Alternative;
use crate::error::{Error, Errors, Result};
use crate::tree::{Tree, TreePath};

/// What a package is for.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// How a version is compared in a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Relation {
    /// The name as people write it.
    pub name: String,
    /// Which versions, as `version-release` or `version`; any where absent.
    pub constraint: Option<(Op, String)>,
}

impl Relation {
    /// Any version of `name`.
    pub fn any(name: impl Into<String>) -> Self {
        Self { name: name.into(), constraint: None }
    }

    /// Exactly this version of `name`.
    pub fn exactly(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), constraint: Some((Op::Equal, version.into())) }
    }

    /// `name (= 1-1)`, the name in lower case.
    pub fn deb(&self) -> String {
        let name = self.name.to_ascii_lowercase();
        match &self.constraint {
            Some((op, version)) => format!("{name} ({} {version})", op.deb()),
            None => name,
        }
    }

    /// `name = 1-1`.
    pub fn rpm(&self) -> String {
        match &self.constraint {
            Some((op, version)) => format!("{} {} {version}", self.name, op.rpm()),
            None => self.name.clone(),
        }
    }
}

/// The kinds of relation, in the order in which a control file lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// The order of the relation fields in a control file, and the keys (in lower case) of [`Package::deb`].
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

/// The order of the relation tags in a spec file, and the keys (in lower case) of [`Package::rpm`].
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

/// A package, ready to be written in either format.
#[derive(Debug, Clone)]
pub struct Package {
    /// The name as people write it: `rocblas-gfx110X`.
    pub name: String,
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
    /// The content; paths are relative to `/`.
    pub tree: Tree,
    /// `SOURCE_DATE_EPOCH`, or the newest modification time in the set of packages
    /// ([`Tree::newest_mtime`]).
    /// The date of the changelog entry and of files that have none; no file is dated later.
    pub date: i64,
    /// What changed in this version, one item a line.
    pub changes: Vec<String>,
    /// The directory that an `.rpm` can be relocated from, where it can be.
    pub relocatable: Option<TreePath>,
    /// The name in the `.rpm`, where it is another one: `rocblas-devel` of `rocblas-dev`.
    pub rpm_name: Option<String>,
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
    pub fn new(name: &str, kind: Kind, version: &str, release: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            version: version.to_owned(),
            release: release.to_owned(),
            arch: Arch::X86_64,
            summary: name.to_owned(),
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
            rpm_name: None,
            build_ids: Vec::new(),
            alternatives: Vec::new(),
            linker_dirs: Vec::new(),
            lintian_overrides: Vec::new(),
        }
    }

    /// The name in the `.deb`: lower case.
    pub fn deb_name(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// The name in the `.rpm`.
    pub fn rpm_name(&self) -> &str {
        self.rpm_name.as_deref().unwrap_or(&self.name)
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

    /// Checks everything that can be told from the texts: that names and versions are valid in the
    /// format, that no field would break out of its line, that raw relations have known keys. Returns
    /// all faults.
    pub fn check(&self, format: Format) -> Result<()> {
        let mut faults = Vec::new();
        let mut fault = |what: Result<(), SpecError>, hint: &str| {
            if let Err(error) = what {
                let error = Error::usage(format!("package `{}`: {error}", self.name));
                faults.push(if hint.is_empty() { error } else { error.hint(hint) });
            }
        };
        let name = if format == Format::Rpm { self.rpm_name() } else { &self.name };
        fault(check_name(name, format), "");
        let hint =
            "separate with `~` what sorts before a release (`7.2.0~rc1`), with `.` what follows";
        fault(check_version("version", &self.version, format), hint);
        fault(check_version("release", &self.release, format), hint);
        let required = [
            ("summary", &self.summary),
            ("maintainer", &self.maintainer),
            ("license", &self.license),
            ("section", &self.section),
        ];
        for (field, text) in required {
            if text.trim().is_empty() {
                fault(
                    Err(SpecError::Empty { field }),
                    "give it in the packages file, or in its `defaults`",
                );
            }
        }
        let lines =
            required.into_iter().chain([("vendor", &self.vendor), ("homepage", &self.homepage)]);
        for (field, text) in lines {
            fault(check_line(field, text), "");
        }
        let (keys, raw) = match format {
            Format::Deb => (&DEB_RELATIONS[..], &self.deb),
            Format::Rpm => (&RPM_RELATIONS[..], &self.rpm),
        };
        for (key, values) in raw {
            if !keys.iter().any(|known| known.eq_ignore_ascii_case(key)) {
                let keys = keys.join("`, `").to_ascii_lowercase();
                fault(
                    Err(SpecError::UnknownRelation { format, key: key.clone() }),
                    &format!("the keys are `{keys}`"),
                );
            }
            for value in values {
                fault(check_line("relation", value), "");
                if value.trim().is_empty() {
                    fault(Err(SpecError::Empty { field: "relation" }), "");
                } else if format == Format::Deb && !value.split([',', '|']).all(is_deb_relation) {
                    // What an rpm's say is checked when the preamble is read back.
                    fault(
                        Err(SpecError::Relation { found: value.clone(), format }),
                        "a relation is `name` or `name (>= version)` with one of << <= = >= >>; \
                         alternatives are parted by `|`",
                    );
                }
            }
        }
        let written = |kind: &RelationKind| format == Format::Rpm || kind.deb_field().is_some();
        let relations = self.relations.iter().filter(|(kind, _)| written(kind));
        for relation in relations.flat_map(|(_, relations)| relations) {
            fault(check_relation(relation, format), "");
        }
        Errors::check((), faults)
    }
}

/// Why a package cannot be described in a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A name has a byte that the format does not take.
    #[error("`{name}` is no {format} package name: {expected}")]
    Name {
        /// The name.
        name: String,
        /// The format.
        format: Format,
        /// What it takes.
        expected: &'static str,
    },
    /// A version or release has a byte that the format does not take.
    #[error("{field} `{found}` has `{byte}`, which a {format} version cannot hold")]
    VersionByte {
        /// `version` or `release`.
        field: &'static str,
        /// The text.
        found: String,
        /// The first such character.
        byte: char,
        /// The format.
        format: Format,
    },
    /// A version that does not begin with a digit.
    #[error("version `{found}` begins with no digit")]
    VersionStart {
        /// The text.
        found: String,
    },
    /// Something that has to be there.
    #[error("{field} is empty")]
    Empty {
        /// What.
        field: &'static str,
    },
    /// A line break or another control character in a field of one line.
    #[error("{field} has a line break or control character: {found:?}")]
    ManyLines {
        /// What.
        field: &'static str,
        /// The text.
        found: String,
    },
    /// A relation that is not written as the format has them.
    #[error("`{found}` is no relation of a {format} package")]
    Relation {
        /// The text.
        found: String,
        /// The format.
        format: Format,
    },
    /// A key of the configuration that is no relation of the format.
    #[error("`{key}` is no relation of a {format} package")]
    UnknownRelation {
        /// The format.
        format: Format,
        /// The key.
        key: String,
    },
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(crate) fn check_name(name: &str, format: Format) -> Result<(), SpecError> {
    let extra: &[u8] = match format {
        Format::Deb => b"+.-",
        Format::Rpm => b"+.-_~^",
    };
    let good = name.len() >= 2
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || extra.contains(&b));
    let expected = match format {
        Format::Deb => {
            "it takes letters, digits, `+`, `.` and `-`, two or more, a letter or digit first"
        }
        Format::Rpm => {
            "it takes letters, digits and `+.-_~^`, two or more, a letter or digit first"
        }
    };
    if good { Ok(()) } else { Err(SpecError::Name { name: name.to_owned(), format, expected }) }
}

/// Checks what a set of packages is versioned as. The first thing to check, since it would be wrong in
/// each package of the set.
pub fn check_versions(version: &str, release: &str, format: Format) -> Result<()> {
    let faults = [("version", version), ("release", release)]
        .into_iter()
        .filter_map(|(field, text)| Some((field, text, check_version(field, text, format).err()?)))
        .map(|(field, text, e)| {
            Error::usage(format!("--{field} `{text}`: {e}")).hint(if text.is_empty() {
                "give one, as --version 7.1.0 --release 1"
            } else {
                "letters, digits, `.`, `+` and `~`, which sorts before the end (`7.2.0~rc1`); no epoch"
            })
        })
        .collect();
    Errors::check((), faults)
}

pub(crate) fn check_version(
    field: &'static str,
    text: &str,
    format: Format,
) -> Result<(), SpecError> {
    let extra = match format {
        Format::Deb => "+.~",
        Format::Rpm => "+.~^_",
    };
    if text.is_empty() {
        return Err(SpecError::Empty { field });
    }
    if let Some(byte) = text.chars().find(|&c| !c.is_ascii_alphanumeric() && !extra.contains(c)) {
        return Err(SpecError::VersionByte { field, found: text.to_owned(), byte, format });
    }
    if field == "version" && !text.as_bytes()[0].is_ascii_digit() {
        return Err(SpecError::VersionStart { found: text.to_owned() });
    }
    Ok(())
}

fn check_line(field: &'static str, text: &str) -> Result<(), SpecError> {
    if text.chars().any(char::is_control) {
        return Err(SpecError::ManyLines { field, found: text.to_owned() });
    }
    Ok(())
}

/// Relations of the model name packages, or (in an `.rpm`) capabilities such as
/// `amdgpu-target(gfx1100)`.
fn check_relation(relation: &Relation, format: Format) -> Result<(), SpecError> {
    let name = &relation.name;
    let bare = match format {
        Format::Deb => name.as_str(),
        Format::Rpm => name.split_once('(').map_or(name.as_str(), |(bare, _)| bare),
    };
    if name.contains(char::is_whitespace) {
        let expected = "it has a blank";
        return Err(SpecError::Name { name: name.clone(), format, expected });
    }
    check_name(bare, format)?;
    if let Some((_, version)) = &relation.constraint {
        let (version, release) = match version.rsplit_once('-') {
            Some((version, release)) => (version, Some(release)),
            None => (version.as_str(), None),
        };
        check_version("version", version, format)?;
        if let Some(release) = release {
            check_version("release", release, format)?;
        }
    }
    Ok(())
}

/// Whether it is one alternative of a control file's relation: `name`, `name:any`, `name (>= 1.2)`, either
/// followed by `[amd64]`.
fn is_deb_relation(text: &str) -> bool {
    let text = text.trim();
    let text = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
        Some((relation, arches)) if !arches.trim().is_empty() => relation.trim_end(),
        Some(_) => return false,
        None => text,
    };
    let (name, version) = match text.split_once('(') {
        Some((name, rest)) => match rest.trim_end().strip_suffix(')') {
            Some(version) => (name.trim_end(), Some(version.trim())),
            None => return false,
        },
        None => (text, None),
    };
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    let version = version.map(|version| {
        let op = ["<<", "<=", "=", ">=", ">>"].into_iter().find(|op| version.starts_with(op));
        let version = op.map_or("", |op| version[op.len()..].trim());
        !version.is_empty()
            && version.bytes().all(|b| b.is_ascii_alphanumeric() || b".+-~:".contains(&b))
    });
    check_name(name, Format::Deb).is_ok() && version != Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> Package {
        let mut package = Package::new("rocblas-gfx110X", Kind::Meta, "7.1.0~rc1", "1");
        package.maintainer = "A <a@example.org>".to_owned();
        package
    }

    fn faults(package: &Package, format: Format) -> Vec<String> {
        let errors = package.check(format).err();
        errors.iter().flat_map(Errors::iter).map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_package_passes_in_both_formats() {
        assert_eq!(faults(&package(), Format::Deb), [""; 0]);
        assert_eq!(faults(&package(), Format::Rpm), [""; 0]);
    }

    #[test]
    fn every_fault_is_told() {
        let mut bad = package();
        bad.name = "roc_blas".to_owned();
        bad.version = "7.1.0-rc1".to_owned();
        bad.summary = "two\nlines".to_owned();
        bad.maintainer.clear();
        bad.deb.insert("requires".to_owned(), vec!["xx".to_owned()]);
        bad.relate(RelationKind::Depends, Relation::exactly("hip", "1 2"));
        let faults = faults(&bad, Format::Deb);
        assert_eq!(faults.len(), 6, "{faults:#?}");
        assert!(faults[0].contains("`roc_blas` is no deb package name"), "{faults:#?}");
        assert!(faults[1].contains("version `7.1.0-rc1` has `-`"), "{faults:#?}");
    }

    #[test]
    fn raw_relations_of_a_deb_are_checked() {
        for good in
            ["libc6", "libc6 (>= 2.34)", "aa | bb (<<1:2-3)", "aa:any, bb [amd64]", "aa(=1)"]
        {
            assert!(good.split([',', '|']).all(is_deb_relation), "{good}");
        }
        for bad in
            ["", "libc6 >= 2.34", "libc6 (2.34)", "aa (> 1", "aa (>= )", "aa bb", "aa,,bb", "a_b"]
        {
            assert!(!bad.split([',', '|']).all(is_deb_relation), "{bad}");
        }
    }

    #[test]
    fn what_a_deb_cannot_say_does_not_stop_it() {
        let mut package = package();
        package.relate(RelationKind::Supplements, Relation::any("modalias(pci:v1*)"));
        assert_eq!(faults(&package, Format::Deb), [""; 0]);
        assert_eq!(faults(&package, Format::Rpm), [""; 0]);
    }

    #[test]
    fn relations_are_written_in_the_syntax_of_the_format() {
        let relation =
            Relation { name: "a-gfx110X".into(), constraint: Some((Op::Less, "2-1".into())) };
        assert_eq!(relation.deb(), "a-gfx110x (<< 2-1)");
        assert_eq!(relation.rpm(), "a-gfx110X < 2-1");
    }
}
