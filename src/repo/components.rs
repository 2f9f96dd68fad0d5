//! Which component of an apt repository a package is in.

use std::path::Path;

use globset::{Glob, GlobMatcher};

use super::store::Settings;
use crate::error::Error;

/// The rules of a repository: the first whose glob matches a package's name counts.
#[derive(Debug)]
pub(super) struct Rules(Vec<(String, GlobMatcher)>);

impl Rules {
    /// Those of the settings of the repository in `dir`.
    pub fn new(settings: &Settings, dir: &Path) -> Result<Self, Error> {
        let rules = settings.rules.iter().map(|(component, glob)| {
            let matcher = Glob::new(glob).map_err(|e| {
                Error::usage(format!("the component {component} has a glob that is none"))
                    .at(dir)
                    .because(e)
                    .hint("give all components anew: gfxpack repo set DIR --component NAME=GLOB")
            })?;
            Ok((component.clone(), matcher.compile_matcher()))
        });
        rules.collect::<Result<_, Error>>().map(Self)
    }

    /// The component of a package by its name.
    pub fn of(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(_, glob)| glob.is_match(name));
        found.map_or(Settings::MAIN, |(component, _)| component)
    }
}
