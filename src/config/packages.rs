//! The packages file: which artifacts' files make which package.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use globset::Glob;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kinds::{Alternative, FileKind, LinkerPath, LintianOverride};
use super::relations::{DebRelations, OtherRelations, RpmRelations};
use super::{read_json, unique_keys};
use crate::artifact::COMPONENTS;
use crate::error::{Error, Errors, Result};
use crate::tree::TreePath;

/// What packages are made, and from what.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackagesConfig {
    /// What every package says of itself unless its definition says otherwise.
    #[serde(default)]
    pub defaults: Defaults,
    /// One definition makes a package, or a generic one and one for each group of ISAs.
    pub packages: Vec<Definition>,
    /// A package that adds library directories to the dynamic linker's path. Without it programs find
    /// libraries outside `/usr/lib` by their RUNPATH alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linker_path: Option<LinkerPath>,
    /// What the packages need and do not have: libraries, by SONAME or by a glob over SONAMEs, and
    /// packages from elsewhere that `depends` names. The value says whom to ask for it; `null` asks for
    /// nothing.
    #[serde(default, skip_serializing_if = "Externals::is_empty")]
    pub externals: Externals,
}

/// Whom to ask for what the packages do not have.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Externals(#[serde(deserialize_with = "unique_keys")] BTreeMap<String, Option<External>>);

/// Whom to ask for a library or package, in each format. What is left out is, of a library, found as for any
/// other: by the distribution's table in a `.deb`, as the library's capability in an `.rpm`. Of a package in
/// `depends` it is the package of that name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// A relation as a control file writes it, `libfoo1 (>= 1.2)`; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deb: Option<String>,
    /// A relation as a spec file writes it, `libfoo >= 1.2`; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<String>,
}

impl Externals {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is said of a library: the entry of its SONAME, else of the longest glob that it matches, where
    /// there is one. `None` in it asks for nothing.
    pub fn of(&self, soname: &str) -> Option<&Option<External>> {
        self.0.get(soname).or_else(|| {
            let matching = self.0.iter().filter(|(glob, _)| {
                Glob::new(glob).is_ok_and(|glob| glob.compile_matcher().is_match(soname))
            });
            matching.max_by_key(|(glob, _)| glob.len()).map(|(_, entry)| entry)
        })
    }

    /// What is said of a package that `depends` names.
    pub fn named(&self, package: &str) -> Option<&Option<External>> {
        self.0.get(package)
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Option<External>)> {
        self.0.iter().map(|(key, external)| (key.as_str(), external))
    }

    fn faults(&self) -> impl Iterator<Item = Error> {
        self.0.keys().filter_map(|glob| {
            let e = Glob::new(glob).err()?;
            Some(Error::usage(format!("`externals`: {e}")))
        })
    }
}

/// Fields that are the same in most packages.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Defaults {
    /// `Name <address>`
    pub maintainer: String,
    /// Who distributes the packages.
    pub vendor: String,
    /// An URL.
    pub homepage: String,
    /// An SPDX expression.
    pub license: String,
    /// The archive section, as `libs`.
    pub section: String,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            maintainer: "Unknown Maintainer <unknown@localhost>".into(),
            vendor: String::new(),
            homepage: String::new(),
            license: "Unknown".into(),
            section: "libs".into(),
        }
    }
}

/// One library, or what belongs to one.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The package's name without `-generic` or a group.
    pub name: String,
    /// One line.
    #[serde(default)]
    pub summary: String,
    /// Paragraphs, apart by blank lines.
    #[serde(default)]
    pub description: String,
    /// What goes into it.
    pub contents: Vec<Contents>,
    /// What it needs: other definitions (then their generic packages, and for a group's package the same
    /// group's), or entries of `externals`.
    #[serde(default)]
    pub depends: Vec<String>,
    /// Relations in the `.deb` only, of the package with the host code.
    #[serde(default)]
    pub deb: DebRelations,
    /// Relations in the `.rpm` only, of the package with the host code.
    #[serde(default)]
    pub rpm: RpmRelations,
    /// Relations of the other packages that the definition makes.
    #[serde(default, skip_serializing_if = "OtherRelations::is_empty")]
    pub relations: OtherRelations,
    /// Instead of the default's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Instead of the default's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// Kinds of files that get a package of their own, by the component that they are of. Files of other
    /// kinds stay in the definition's package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<FileKind>,
    /// Whether `lib*.so` links to libraries with a version in their name, which only linking needs, are
    /// of kind `dev`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dev_links: bool,
    /// The licence's text: a file below the install prefix that the definition takes, as
    /// `share/doc/rocblas/LICENSE.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_file: Option<String>,
    /// Names that other packages can provide as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// Findings of lintian about the content that are accepted. Those that the layout makes inevitable
    /// are overridden without being asked (docs/lint.md).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lintian_overrides: Vec<LintianOverride>,
}

/// Files of one artifact.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    /// As `blas`.
    pub artifact: String,
    /// Some of `lib`, `run`, `dev`, `doc`, `dbg`, `test`; all where it is left out.
    #[serde(default)]
    pub components: Vec<String>,
    /// Globs over the artifact's prefixes; all where it is left out.
    #[serde(default)]
    pub prefixes: Vec<String>,
    /// Globs over paths below the prefix: only these files.
    #[serde(default)]
    pub include: Vec<String>,
    /// Globs over paths below the prefix: not these files.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// The kind of these files, whatever their component: they go into that kind's package. Where two
    /// entries of a definition take a file, one with a kind comes before one without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// Whether the artifact or these components of it may be absent. Where it is left out, an artifact that
    /// is not there is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl PackagesConfig {
    /// Reads and checks a packages file; all faults are reported.
    pub fn load(path: &Path) -> Result<Self> {
        let config: Self = read_json(path)?;
        let faults = config.faults().into_iter().map(|fault| fault.at(path)).collect();
        Errors::check(config, faults)
    }

    /// The configuration that is meant where there is no packages file: a package for each artifact
    /// prefix, `blas_lib` → `blas-lib`.
    pub fn one_for_each<'a>(artifacts: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let unique: BTreeSet<_> = artifacts.collect();
        let packages = unique
            .into_iter()
            .map(|(artifact, component)| Definition {
                name: format!("{artifact}-{component}"),
                summary: format!("The {component} component of {artifact}"),
                contents: vec![Contents {
                    artifact: artifact.to_owned(),
                    components: vec![component.to_owned()],
                    prefixes: Vec::new(),
                    include: Vec::new(),
                    exclude: Vec::new(),
                    kind: None,
                    optional: false,
                }],
                ..Definition::default()
            })
            .collect();
        Self {
            defaults: Defaults::default(),
            packages,
            externals: Externals::default(),
            linker_path: None,
        }
    }

    fn faults(&self) -> Vec<Error> {
        let mut faults = Vec::new();
        let mut names = BTreeSet::new();
        if self.packages.is_empty() {
            faults.push(Error::usage("defines no package").hint("add a definition to `packages`"));
        }
        faults.extend(self.externals.faults());
        for definition in &self.packages {
            let name = &definition.name;
            faults.extend(name_fault(name));
            if !names.insert(name) {
                faults.push(
                    Error::usage(format!("the package `{name}` is defined twice"))
                        .hint("join the two definitions' contents, or rename one"),
                );
            }
            if definition.contents.is_empty() {
                faults.push(
                    Error::usage(format!("the package `{name}` has no contents"))
                        .hint("say which artifact it takes, as {\"artifact\": \"blas\", \"components\": [\"lib\"]}"),
                );
            }
            for contents in &definition.contents {
                for component in &contents.components {
                    if !COMPONENTS.contains(&component.as_str()) {
                        faults.push(
                            Error::usage(format!(
                                "package `{name}`: unknown component `{component}`"
                            ))
                            .hint(format!("expected one of {}", COMPONENTS.join(", "))),
                        );
                    }
                }
                let globs = [&contents.prefixes, &contents.include, &contents.exclude];
                for glob in globs.into_iter().flatten() {
                    if let Err(e) = Glob::new(glob) {
                        faults.push(Error::usage(format!("package `{name}`: {e}")));
                    }
                }
            }
            if definition.depends.contains(name) {
                faults.push(Error::usage(format!("the package `{name}` depends on itself")));
            }
            if let Some(file) = &definition.license_file
                && let Err(e) = TreePath::new(file)
            {
                faults.push(Error::usage(format!("package `{name}`: license_file: {e}")));
            }
            faults.extend(definition.alternatives.iter().flat_map(|a| a.faults(name)));
            faults.extend(definition.lintian_overrides.iter().flat_map(|o| o.faults(name)));
        }
        if let Some(LinkerPath { package, directories, .. }) = &self.linker_path {
            faults.extend(name_fault(package));
            if !names.insert(package) {
                faults.push(Error::usage(format!("the package `{package}` is defined twice")));
            }
            if directories.is_empty() {
                faults.push(
                    Error::usage("linker_path: there are no directories").hint("as [\"lib\"]"),
                );
            }
            for dir in directories {
                if let Err(e) = TreePath::new(dir) {
                    faults.push(Error::usage(format!("linker_path: {e}")));
                }
            }
        }
        faults
    }
}

fn name_fault(name: &str) -> Option<Error> {
    let good = name.len() > 1
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.bytes().all(|b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'+' | b'-')
        });
    (!good).then(|| {
        Error::usage(format!("`{name}` cannot be a package name")).hint(
            "two or more lower-case letters, digits, `.`, `+` and `-`, a letter or digit first",
        )
    })
}
