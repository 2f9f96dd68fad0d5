//! What a packages file says beside names and contents: files by kind, alternatives, the linker's path,
//! findings of lintian that a packager accepts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Kinds of files that can have a package of their own beside the definition's. What is of a group, as tests' device code, is in a
/// package of that group and kind: `NAME-tests-GROUP`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// What building against it needs: component `dev`; `NAME-dev`, in an rpm `NAME-devel`.
    Dev,
    /// Documentation: component `doc`; `NAME-doc`.
    Doc,
    /// Tests and what they need: component `test`; `NAME-tests`.
    Tests,
    /// Debug symbols: component `dbg`; `NAME-dbgsym`, in an rpm `NAME-debuginfo`. A file with a build id
    /// is installed where debuggers look: `/usr/lib/debug/.build-id/xx/yyyy.debug`.
    Debug,
}

impl FileKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Dev, Self::Doc, Self::Tests, Self::Debug];

    /// The component whose files are of this kind unless the configuration says otherwise.
    pub fn component(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Doc => "doc",
            Self::Tests => "test",
            Self::Debug => "dbg",
        }
    }

    /// What stands behind the definition's name, in a `.deb`'s.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Doc => "doc",
            Self::Tests => "tests",
            Self::Debug => "dbgsym",
        }
    }

    /// What stands behind the definition's name, in an `.rpm`'s.
    pub fn rpm_suffix(self) -> &'static str {
        match self {
            Self::Dev => "devel",
            Self::Debug => "debuginfo",
            other => other.suffix(),
        }
    }
}

/// Which of a definition's packages something belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PackageOf {
    /// The one with host code: `NAME-generic`, or `NAME` where there is no device code.
    #[default]
    Host,
    /// Each group's: `NAME-GROUP`.
    Group,
    /// The one that holds nothing and leads to the others: `NAME`.
    Meta,
    /// `NAME-dev`.
    Dev,
    /// `NAME-doc`.
    Doc,
    /// `NAME-tests`.
    Tests,
    /// `NAME-dbgsym`.
    Debug,
}

impl From<FileKind> for PackageOf {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Dev => Self::Dev,
            FileKind::Doc => Self::Doc,
            FileKind::Tests => Self::Tests,
            FileKind::Debug => Self::Debug,
        }
    }
}

/// A name that several packages can provide, of which the system's administrator chooses one: see
/// update-alternatives(1).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// The generic name, which becomes a link: `/usr/bin/rocblas-bench`.
    pub link: String,
    /// What the choice is called: `rocblas-bench`.
    pub name: String,
    /// What this package offers: a file of it, as `{prefix}/bin/rocblas-bench`. `{prefix}` is the install
    /// prefix, `{group}` the group.
    pub path: String,
    /// The highest is chosen where nobody chose.
    pub priority: i32,
    /// Links that go with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followers: Vec<Follower>,
    /// The package that has the file. In each group's, the one with the highest priority (of equal ones
    /// any) is chosen, and another takes its place when it is removed.
    #[serde(default, rename = "in")]
    pub package: PackageOf,
}

/// A link that points where its leader's choice says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Follower {
    /// The generic name: `/usr/share/man/man1/rocblas-bench.1.gz`.
    pub link: String,
    /// What it is called: `rocblas-bench.1.gz`.
    pub name: String,
    /// A file of this package.
    pub path: String,
}

impl Alternative {
    /// Leader and followers: link, name and path of each.
    pub fn links(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let followers = self.followers.iter().map(|f| (&*f.link, &*f.name, &*f.path));
        std::iter::once((&*self.link, &*self.name, &*self.path)).chain(followers)
    }

    /// What cannot be said to update-alternatives, or would be taken apart by the shell.
    pub(super) fn faults(&self, definition: &str) -> Vec<Error> {
        let plain = |text: &str, more: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        let mut faults = Vec::new();
        for (link, name, path) in self.links() {
            let fault = |what: String| {
                Error::usage(format!("package `{definition}`: alternative `{name}`: {what}"))
            };
            if !plain(name, "+-._@") {
                faults.push(fault("the name has to be of letters, digits and `+-._@`".into()));
            }
            if !plain(link, "+-._@/:~") || !link.starts_with('/') || link.ends_with('/') {
                faults.push(fault(format!(
                    "the link `{link}` has to be an absolute path of letters, digits and `+-._@/:~`"
                )));
            }
            if !plain(path, "+-._@/:~{}") || !path.starts_with(['/', '{']) {
                faults.push(
                    fault(format!(
                        "the path `{path}` has to be absolute, of letters, digits and `+-._@/:~`"
                    ))
                    .hint("as {prefix}/bin/rocblas-bench"),
                );
            }
        }
        faults
    }
}

/// A small package that adds library directories of the install prefix to the dynamic linker's path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkerPath {
    /// Its name, which the file in `/etc/ld.so.conf.d` has, too.
    pub package: String,
    /// Directories below the install prefix.
    #[serde(default = "lib")]
    pub directories: Vec<String>,
    /// What the packages with libraries in these directories say of it.
    #[serde(default)]
    pub relation: LinkerPathRelation,
}

/// How packages with libraries relate to the one that has the linker find them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkerPathRelation {
    /// They need it.
    Depends,
    /// It comes along unless the user says otherwise.
    #[default]
    Recommends,
    /// Nothing: who wants it installs it.
    None,
}

fn lib() -> Vec<String> {
    vec!["lib".to_owned()]
}

/// A finding of lintian that the packager accepts, with the reason, which stands in the package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LintianOverride {
    /// As `hardening-no-pie`.
    pub tag: String,
    /// What lintian says behind the tag, `*` for anything: `[*/bin/rocblas-tool]`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// Why it is right so.
    pub reason: String,
    /// Which package it is of.
    #[serde(default, rename = "in")]
    pub package: PackageOf,
}

impl LintianOverride {
    pub(super) fn faults(&self, definition: &str) -> Vec<Error> {
        let mut faults = Vec::new();
        let mut fault = |what: &str| {
            faults.push(Error::usage(format!(
                "package `{definition}`: lintian override `{}`: {what}",
                self.tag
            )));
        };
        let tag = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
        if self.tag.is_empty() || !self.tag.bytes().all(tag) {
            fault("is no tag of lintian: lower-case letters, digits, `-` and `.`");
        }
        if self.reason.trim().is_empty() {
            fault("has no reason");
        }
        if [&self.context, &self.reason].iter().any(|text| text.chars().any(char::is_control)) {
            fault("has a line break or control character");
        }
        faults
    }
}
