//! The syntax of relations, as a control file ([`deb`]) and a spec file ([`rpm`]) have them.
//!
//! What is taken here, dpkg and rpm take as well. They take more: obsolete operators, names with any sign in
//! them. Such is refused where it is hardly ever what was meant ([`Problem::is_ours`]).

pub mod deb;
pub mod rpm;

use std::fmt;

use super::Format;

/// Where a relation leaves the syntax of its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// The relation as a whole.
    pub text: String,
    /// Offset into it, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// No name where one has to be.
    NoName,
    /// A name that the format does not take.
    Name(String),
    /// A name of one character, or with `_`: dpkg takes it, Debian's policy does not.
    Policy(String),
    /// A sign in a name, which rpm takes for a part of it: `foo>=1` is one name.
    OddName(char),
    /// No architecture behind `:`, or one that cannot be.
    Architecture,
    /// `[amd64]` or `<!nocheck>`, which stand in source packages only.
    SourceOnly,
    /// No operator where one has to be, or one that there is not.
    Operator(String),
    /// An operator that has another spelling by now.
    OldOperator {
        /// As it is written.
        found: String,
        /// As it should be.
        instead: &'static str,
    },
    /// Another operator than `=` in a field that can have that alone.
    OnlyEqual,
    /// No version where one has to be.
    NoVersion,
    /// A version that the format does not take.
    Version {
        /// The version.
        found: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A version that begins with no digit.
    VersionStart(String),
    /// A file with a version.
    VersionedFile,
    /// `|` in a field without alternatives.
    NoAlternatives,
    /// Parentheses where only names can be.
    NoRich,
    /// More parentheses in each other than anybody reads.
    TooDeep,
    /// An operator of a rich relation that there is not.
    Word(String),
    /// Operators of a rich relation that cannot stand side by side.
    Mixed {
        /// The one before.
        before: &'static str,
        /// The one here.
        here: &'static str,
    },
    /// An operator that takes two operands, with a third.
    Chain(&'static str),
    /// `else` without an `if` before it.
    Else,
    /// What `with` and `without` cannot hold.
    Within,
    /// `if` or `unless` where rpm could not solve it.
    Context {
        /// The operator.
        found: &'static str,
        /// What can stand there.
        instead: &'static str,
    },
    /// A comma where none parts two relations; rpm takes it for a blank.
    Comma,
    /// A parenthesis that is opened and not closed.
    Open,
    /// Something else than what has to follow.
    Unexpected {
        /// The character; nothing at the end.
        found: Option<char>,
        /// What is expected.
        expected: &'static str,
    },
    /// A capability where only a package can be.
    OnlyPackages,
}

impl Problem {
    /// Whether the format's own tools would take it, perhaps with a warning.
    pub fn is_ours(&self) -> bool {
        matches!(
            self,
            Self::Policy(_)
                | Self::OddName(_)
                | Self::OldOperator { .. }
                | Self::OnlyEqual
                | Self::VersionStart(_)
                | Self::Else
                | Self::Comma
                | Self::TooDeep
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoName => f.write_str("expected a name"),
            Self::Name(name) | Self::Policy(name) => write!(
                f,
                "`{name}` is no package name: expected letters, digits, `+`, `.` and `-`, two or more, a \
                 letter or digit first"
            ),
            Self::OddName(c) => write!(
                f,
                "`{c}` would be part of the name: expected letters, digits and `+.-_~^:/`, blanks around \
                 an operator, and each `(` with its `)`"
            ),
            Self::Architecture => f.write_str("expected an architecture, as `:any`"),
            Self::SourceOnly => f.write_str(
                "architectures in `[]` and profiles in `<>` are for source packages only",
            ),
            Self::Operator(found) => {
                write!(f, "`{found}` is no operator: expected one of `<<`, `<=`, `=`, `>=`, `>>`")
            }
            Self::OldOperator { found, instead } => write!(f, "`{found}` is written `{instead}`"),
            Self::OnlyEqual => f.write_str("what a package provides has one version: expected `=`"),
            Self::NoVersion => f.write_str("expected a version"),
            Self::Version { found, why } => write!(f, "`{found}` is no version: {why}"),
            Self::VersionStart(found) => {
                write!(f, "`{found}` is no version: expected a digit first")
            }
            Self::VersionedFile => f.write_str("a file has no version"),
            Self::NoAlternatives => f.write_str("alternatives cannot stand in this field"),
            Self::NoRich => f.write_str("`(…)` cannot stand in this tag"),
            Self::TooDeep => f.write_str("there are too many parentheses in each other"),
            Self::Word(found) => write!(
                f,
                "`{found}` is no operator: expected `and`, `or`, `if`, `unless`, `else`, `with` or `without`"
            ),
            Self::Mixed { before, here } => {
                write!(f, "`{here}` follows `{before}`: put one of them in parentheses of its own")
            }
            Self::Chain(op) => {
                write!(f, "`{op}` takes two operands: put two of them in parentheses")
            }
            Self::Else => f.write_str("`else` has no `if` or `unless` before it"),
            Self::Within => {
                f.write_str("`with` and `without` can hold `or`, `with` and `without` alone")
            }
            Self::Context { found, instead } => {
                write!(f, "`{found}` cannot stand here: write it with `{instead}`")
            }
            Self::Comma => f.write_str("expected no comma here"),
            Self::Open => f.write_str("a `(` has no `)`"),
            Self::Unexpected { found: Some(found), expected } => {
                write!(f, "found `{found}`, expected {expected}")
            }
            Self::Unexpected { found: None, expected } => write!(f, "it ends, expected {expected}"),
            Self::OnlyPackages => {
                f.write_str("only packages can be obsoleted: expected a package's name")
            }
        }
    }
}

impl SyntaxError {
    /// The character that it is at, counted from 1.
    pub fn column(&self) -> usize {
        self.text.get(..self.at).map_or(0, |before| before.chars().count()) + 1
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.text.get(self.at..).unwrap_or_default();
        write!(f, "`{}`: ", self.text)?;
        match rest {
            "" => write!(f, "at its end: ")?,
            rest => write!(f, "character {}, at `{rest}`: ", self.column())?,
        }
        write!(f, "{}", self.problem)
    }
}

impl std::error::Error for SyntaxError {}

/// Checks a relation of a field (`Depends`) or tag (`Requires`) of the format.
pub fn check(text: &str, format: Format, field: &str) -> Result<(), SyntaxError> {
    match format {
        Format::Deb => deb::parse(text, field).map(|_| ()),
        Format::Rpm => rpm::parse(text, field).map(|_| ()),
    }
}

/// A place in a text.
#[derive(Debug, Clone, Copy)]
struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.at += wanted.len_utf8();
        }
        is_there
    }

    /// Takes characters as long as they are such.
    fn run(&mut self, such: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !such(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn blanks(&mut self) {
        self.run(|c| c == ' ' || c == '\t');
    }

    fn error<T>(&self, at: usize, problem: Problem) -> Result<T, SyntaxError> {
        Err(SyntaxError { text: self.text.to_owned(), at, problem })
    }

    fn unexpected<T>(&self, expected: &'static str) -> Result<T, SyntaxError> {
        self.error(self.at, Problem::Unexpected { found: self.peek(), expected })
    }
}
