//! What a package is called, in each format.
//!
//! A `.deb` has names in lower case, since dpkg knows no other. An `.rpm` keeps capitals, and has endings of its own:
//! `rocblas-dev` is `rocblas-devel` there. So a name is no text: who writes one says for which format.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::package::Format;

/// The name of a package, or of a capability that stands for some.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name {
    /// As people write it: `rocblas-gfx110X`.
    text: String,
    /// In an `.rpm`, where that is another one.
    rpm: Option<String>,
}

impl Name {
    /// A name that both formats have, but for capitals.
    pub fn both(text: impl Into<String>) -> Self {
        Self { text: text.into(), rpm: None }
    }

    /// A name that each format has its own of.
    pub fn each(text: impl Into<String>, rpm: impl Into<String>) -> Self {
        let (text, rpm) = (text.into(), rpm.into());
        Self { rpm: (rpm != text).then_some(rpm), text }
    }

    /// The name with `-` and something more: `rocblas-dev-gfx110X`, in an `.rpm` `rocblas-devel-gfx110X`.
    #[must_use]
    pub fn with(&self, more: &str) -> Self {
        let join = |name: &String| format!("{name}-{more}");
        Self { text: join(&self.text), rpm: self.rpm.as_ref().map(join) }
    }

    /// As people write it, and messages.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// In a `.deb`: in lower case.
    pub fn deb(&self) -> String {
        self.text.to_ascii_lowercase()
    }

    /// In an `.rpm`.
    pub fn rpm(&self) -> &str {
        self.rpm.as_deref().unwrap_or(&self.text)
    }

    /// In a format.
    pub fn in_format(&self, format: Format) -> Cow<'_, str> {
        match format {
            Format::Deb => Cow::Owned(self.deb()),
            Format::Rpm => Cow::Borrowed(self.rpm()),
        }
    }

    /// Whether it is one of the ways to write the name.
    pub fn is(&self, text: &str) -> bool {
        self.text == text || self.rpm() == text || self.deb() == text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A name that both formats have.
impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::both(text)
    }
}

impl From<&Self> for Name {
    fn from(name: &Self) -> Self {
        name.clone()
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, text: &&str) -> bool {
        self.text == *text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_own_name() {
        let name = Name::each("rocblas-dev", "rocblas-devel").with("gfx110X");
        assert_eq!(name.deb(), "rocblas-dev-gfx110x");
        assert_eq!(name.rpm(), "rocblas-devel-gfx110X");
        assert_eq!(name.to_string(), "rocblas-dev-gfx110X");
        assert_eq!(Name::each("same", "same"), Name::both("same"));
    }
}
