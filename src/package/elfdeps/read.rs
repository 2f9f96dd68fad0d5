//! Reading a table of libraries. Every line has to be understood: a table may be a user's own, and one that
//! is passed over in part would give packages that lack relations.
//!
//! Blanks or tabs part the words of a line; empty lines and those that begin with `#` say nothing. A
//! line is of the library that was named last, and speaks only of what lines before it have named.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

use super::table::{BASE, Library, Minimum, Node, Table};
use crate::package::grammar::{self, SyntaxError, deb};

/// The longest relation or version that is taken. Those of Debian have less than a tenth, and each is copied for
/// every file that has it.
const TEXT_MAX: usize = 1024;
/// Stands in a relation for the earliest version that will do.
const MINVER: &str = " #MINVER#";
/// A relation with as many bytes, so that an error points at the same character.
const SOME_VERSION: &str = " (>= 000)";

/// Why a text is no table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableError {
    /// It has no library.
    Empty,
    /// A line says something else than it should.
    Line {
        /// The line, counted from 1.
        number: usize,
        /// What is wrong with it.
        problem: LineProblem,
    },
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineProblem {
    /// Something else than what has to be there.
    Unexpected {
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
    /// A relation or version that no control file can have.
    Syntax(SyntaxError),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it has no line `library`, expected one for each library"),
            Self::Line { number, problem } => match problem {
                LineProblem::Unexpected { found, expected } => {
                    write!(f, "line {number}: found {found}, expected {expected}")
                }
                LineProblem::Syntax(error) => write!(f, "line {number}: {error}"),
            },
        }
    }
}

impl std::error::Error for TableError {}

impl Table {
    /// Reads a table.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut reader = Reader::default();
        for (number, line) in (1..).zip(text.lines()) {
            reader.line(line).map_err(|problem| TableError::Line { number, problem })?;
        }
        reader.close();
        if reader.table.libraries.is_empty() {
            return Err(TableError::Empty);
        }
        Ok(reader.table)
    }
}

#[derive(Default)]
struct Reader<'t> {
    table: Table,
    /// The library that lines are of.
    current: Option<(&'t str, Library)>,
}

impl<'t> Reader<'t> {
    fn line(&mut self, line: &'t str) -> Result<(), LineProblem> {
        let mut words = Words(line);
        match words.next() {
            None => Ok(()),
            Some(word) if word.starts_with('#') => Ok(()),
            Some("package") => {
                words.expect("the name of a package")?;
                words.version()?;
                words.end()
            }
            Some("library") => self.library(words),
            Some("alternative") => self.alternative(words),
            Some("node") => self.node(words),
            Some("symbols") => self.symbols(words),
            Some(other) => Err(unexpected(
                quoted(other),
                "`library`, `alternative`, `node`, `symbols`, `package` or `#`",
            )),
        }
    }

    /// Puts the library into the table that has no further lines.
    fn close(&mut self) {
        if let Some((soname, library)) = self.current.take() {
            self.table.libraries.insert(soname.into(), library);
        }
    }

    /// The library that a line of this kind is of.
    fn current(&mut self, kind: &str) -> Result<(&'t str, &mut Library), LineProblem> {
        match &mut self.current {
            Some((soname, library)) => Ok((soname, library)),
            None => Err(unexpected(
                format!("`{kind}` before any `library`"),
                "the line `library` that it is of before it",
            )),
        }
    }

    /// `SONAME VERSION RELATION`
    fn library(&mut self, mut words: Words<'t>) -> Result<(), LineProblem> {
        self.close();
        let soname = words.expect("a SONAME")?;
        if self.table.libraries.contains_key(soname) {
            let found = format!("the library {} a second time", quoted(soname));
            return Err(unexpected(found, "one line `library` for each"));
        }
        let mut library = Library::default();
        let mut after = words;
        match after.next() {
            None => {
                return Err(unexpected("the end of the line", "a version or `-`, and a relation"));
            }
            Some("-") => words = after,
            _ => library.earliest = Some(words.version()?.into()),
        }
        library.templates.push(words.relation()?);
        self.current = Some((soname, library));
        Ok(())
    }

    /// `NUMBER RELATION`
    fn alternative(&mut self, mut words: Words<'t>) -> Result<(), LineProblem> {
        let (soname, library) = self.current("alternative")?;
        let next = library.templates.len().to_string();
        let number = words.expect("the number of an alternative")?;
        if number != next {
            let expected = format!("{next}, the next alternative of {}", quoted(soname));
            return Err(unexpected(format!("alternative {}", quoted(number)), expected));
        }
        library.templates.push(words.relation()?);
        Ok(())
    }

    /// `NODE MINIMUM`
    fn node(&mut self, mut words: Words<'t>) -> Result<(), LineProblem> {
        let (soname, library) = self.current("node")?;
        let name = words.expect("the name of a node")?;
        if name == BASE {
            let found = format!("a line `node` for `{BASE}`");
            return Err(unexpected(found, "`symbols` alone for symbols without a version"));
        }
        let usual = words.minimum(library)?;
        words.end()?;
        match library.nodes.entry(name.into()) {
            Entry::Vacant(place) => place.insert(Node { usual, others: BTreeMap::new() }),
            Entry::Occupied(_) => {
                let found =
                    format!("the node {} of {} a second time", quoted(name), quoted(soname));
                return Err(unexpected(found, "one line `node` for each"));
            }
        };
        Ok(())
    }

    /// `NODE MINIMUM SYMBOL…`
    fn symbols(&mut self, mut words: Words<'t>) -> Result<(), LineProblem> {
        let (soname, library) = self.current("symbols")?;
        let name = words.expect("the name of a node")?;
        let minimum = words.minimum(library)?;
        let symbols = match library.nodes.get_mut(name) {
            _ if name == BASE => &mut library.base,
            Some(node) => &mut node.others,
            None => {
                let found = format!("symbols of {}", quoted(name));
                let expected = format!("`{BASE}`, or a line `node` for it before them");
                return Err(unexpected(found, expected));
            }
        };
        let mut symbol = words.expect("the name of a symbol")?;
        loop {
            if symbols.insert(symbol.into(), minimum.clone()).is_some() {
                let place = format!("{} of {}", quoted(name), quoted(soname));
                let found = format!("the symbol {} of node {place} a second time", quoted(symbol));
                return Err(unexpected(found, "each symbol of a node once"));
            }
            match words.next() {
                Some(next) => symbol = next,
                None => return Ok(()),
            }
        }
    }
}

/// What is left of a line.
#[derive(Clone, Copy)]
struct Words<'t>(&'t str);

impl<'t> Words<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let blank = [' ', '\t'];
        let rest = self.0.trim_start_matches(blank);
        let (word, rest) = rest.split_at(rest.find(blank).unwrap_or(rest.len()));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    fn expect(&mut self, what: &str) -> Result<&'t str, LineProblem> {
        self.next().ok_or_else(|| unexpected("the end of the line", what))
    }

    fn end(mut self) -> Result<(), LineProblem> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(unexpected(quoted(word), "the end of the line")),
        }
    }

    fn version(&mut self) -> Result<&'t str, LineProblem> {
        let word = self.expect("a version")?;
        version(word)?;
        Ok(word)
    }

    /// `2.34`, or `2.34|1` for the first alternative.
    fn minimum(&mut self, library: &Library) -> Result<Minimum, LineProblem> {
        let word = self.expect("a version")?;
        let (text, template) = match word.split_once('|') {
            None => (word, 0),
            Some((text, number)) => {
                let known = 1..library.templates.len();
                let digits = number.bytes().all(|byte| byte.is_ascii_digit());
                let read = number.parse().ok().filter(|number| digits && known.contains(number));
                let template = read.ok_or_else(|| {
                    let expected = match known.end - 1 {
                        0 => "no `|`: the library has no line `alternative` yet".to_owned(),
                        last => format!("the number of an alternative, 1 to {last}"),
                    };
                    unexpected(format!("{} after `|`", quoted(number)), expected)
                })?;
                (text, template)
            }
        };
        version(text)?;
        Ok(Minimum { version: Arc::from(text), template })
    }

    /// The rest of the line, as a relation of a control file in which `#MINVER#` may stand for a version.
    fn relation(self) -> Result<Box<str>, LineProblem> {
        let text = self.0.trim_matches([' ', '\t']);
        if text.is_empty() {
            return Err(unexpected("the end of the line", "a relation, as `libc6 #MINVER#`"));
        }
        bounded(text)?;
        deb::parse(&text.replace(MINVER, SOME_VERSION), "depends").map_err(|mut error| {
            error.text = text.to_owned();
            if let grammar::Problem::Unexpected { found, .. } = &mut error.problem {
                *found = text.get(error.at..).and_then(|rest| rest.chars().next());
            }
            LineProblem::Syntax(error)
        })?;
        Ok(text.into())
    }
}

fn version(text: &str) -> Result<(), LineProblem> {
    bounded(text)?;
    deb::version(text).map_err(LineProblem::Syntax)
}

fn bounded(text: &str) -> Result<(), LineProblem> {
    if let Some(strange) = text.chars().find(|c| !matches!(c, '\t' | ' '..='~')) {
        let found = format!("the character `{}`", strange.escape_default());
        return Err(unexpected(found, "characters of ASCII in relations and versions"));
    }
    if text.len() > TEXT_MAX {
        let found = format!("a relation or version of {} bytes", text.len());
        return Err(unexpected(found, format!("at most {TEXT_MAX}")));
    }
    Ok(())
}

fn unexpected(found: impl Into<String>, expected: impl Into<String>) -> LineProblem {
    LineProblem::Unexpected { found: found.into(), expected: expected.into() }
}

/// A word of the file for a message, which has neither all of a long one nor what terminals act upon.
fn quoted(word: &str) -> String {
    let mut characters = word.chars();
    let start: String = characters.by_ref().take(60).collect();
    let more = if characters.next().is_some() { "…" } else { "" };
    format!("`{}{more}`", start.escape_debug())
}
