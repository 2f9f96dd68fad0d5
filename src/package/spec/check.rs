//! What can be told of a package from its texts alone: names, versions, lines, relations.

use std::fmt;

use super::{DEB_RELATIONS, LATEST, Package, RPM_RELATIONS, Relation, RelationKind};
use crate::error::{Error, Errors, Result};
use crate::package::Format;
use crate::package::grammar::{self, SyntaxError};

impl Package {
    /// Checks everything that can be told from the texts: that names and versions are valid in the
    /// format, that no field would break out of its line, that raw relations have known keys. Returns
    /// all faults.
    pub fn check(&self, format: Format) -> Result<()> {
        let mut faults = Vec::new();
        let mut fault = |what: Result<(), SpecError>, hint: &str| {
            if let Err(error) = what {
                let error = Error::usage(error.to_string()).of(format!("package `{}`", self.name));
                faults.push(if hint.is_empty() { error } else { error.hint(hint) });
            }
        };
        // Capitals are no fault: a `.deb` has the name in lower case.
        let name = if format == Format::Rpm { self.name.rpm() } else { self.name.as_str() };
        fault(check_name(name, format), "");
        let hint =
            "separate with `~` what sorts before a release (`7.2.0~rc1`), with `.` what follows";
        fault(check_version("version", &self.version, format), hint);
        fault(check_version("release", &self.release, format), hint);
        if self.date > LATEST {
            fault(Err(SpecError::Date { found: self.date }), "");
        }
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
                } else {
                    let checked = grammar::check(value, format, key);
                    fault(checked.map_err(|why| SpecError::Relation { format, why }), "");
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
    /// A date that the formats have no room for.
    #[error("is dated {found} seconds after 1970, and {LATEST} (in 2106) is the latest")]
    Date {
        /// The date.
        found: i64,
    },
    /// A relation that is not written as the format has them.
    #[error("relation of a {format} package: {why}")]
    Relation {
        /// The format.
        format: Format,
        /// Where it leaves the syntax.
        why: SyntaxError,
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
            // The fault begins with the field, which is called like the option.
            Error::usage(format!("--{e}")).hint(match field {
                _ if text.is_empty() => "give one, as --version 7.1.0 --release 1",
                "version" if text.contains(':') => {
                    "leave out what stands up to the `:`: packages are made without an epoch"
                }
                "version" => {
                    "a version is as `7.1.0`, `7.1.0rc1`, `7.1.0a20251126`, `7.1.0.dev0+gabc123` or \
                     `7.1.0-update1`, or of letters, digits, `.`, `+` and `~`; the packaging's number is \
                     --release"
                }
                _ => "a release is the packaging's number, as `1` or `1.el9`: letters, digits, `.`, `+` and `~`",
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
    let name = match format {
        Format::Deb => relation.name.as_str(),
        Format::Rpm => relation.name.rpm(),
    };
    let bare = match format {
        Format::Deb => name,
        Format::Rpm => name.split_once('(').map_or(name, |(bare, _)| bare),
    };
    if name.contains(char::is_whitespace) {
        let expected = "it has a blank";
        return Err(SpecError::Name { name: name.to_owned(), format, expected });
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

#[cfg(test)]
mod tests {
    use super::super::{Kind, Op};
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
        bad.name = "roc_blas".into();
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
    fn raw_relations_are_checked_in_the_format_they_are_for() {
        let mut bad = package();
        bad.deb.insert("depends".to_owned(), vec!["libc6 >= 2.34".to_owned()]);
        bad.rpm.insert("provides".to_owned(), vec!["(aa or bb)".to_owned()]);
        assert_eq!(
            faults(&bad, Format::Deb),
            [
                "package `rocblas-gfx110X`: relation of a deb package: `libc6 >= 2.34`: character 7, at \
              `>= 2.34`: found `>`, expected the operator in `(…)`"
            ]
        );
        assert_eq!(
            faults(&bad, Format::Rpm),
            [
                "package `rocblas-gfx110X`: relation of a rpm package: `(aa or bb)`: character 1, at \
              `(aa or bb)`: `(…)` cannot stand in this tag"
            ]
        );
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
