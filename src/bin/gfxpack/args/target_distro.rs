//! `--target-distro`: the name of a release, or the path of a file with the table of another one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::builder::{PossibleValue, StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use gfxpack::package::elfdeps::Distro;

use super::one_of;

/// Whose table gives relations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetDistro {
    Known(Distro),
    Table(PathBuf),
}

/// Help and completion know the names.
pub fn parser() -> impl TypedValueParser<Value = TargetDistro> {
    let called = |name: &str| {
        let known = Distro::ALL.into_iter().find(|distro| distro.as_str() == name);
        known.map(TargetDistro::Known)
    };
    NameOrPath(one_of(Distro::ALL.map(Distro::as_str), called))
}

/// Whether a value is a path, whatever names there are now or later.
fn is_path(value: &OsStr) -> bool {
    let bytes = value.as_bytes();
    bytes.contains(&b'/') || bytes.ends_with(b".txt")
}

#[derive(Clone)]
struct NameOrPath<P>(P);

impl<P: TypedValueParser<Value = TargetDistro>> TypedValueParser for NameOrPath<P> {
    type Value = TargetDistro;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<TargetDistro, clap::Error> {
        if is_path(value) {
            return Ok(TargetDistro::Table(value.into()));
        }
        self.0.parse_ref(command, arg, value).map_err(|mut error| {
            let tip = "a table in a file is named by a path with a `/` in it or `.txt` at its end, as \
                       ./ubuntu24.04.txt";
            let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
            error.insert(ContextKind::Suggested, tips);
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}
