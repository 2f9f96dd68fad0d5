//! Relations of a spec file.
//!
//! ```text
//! glibc >= 2.34, /usr/bin/perl, pkgconfig(zlib), (rocm-core >= 7 if systemd else sysvinit)
//! ```
//!
//! Names, capabilities and files, parted by commas or blanks, each but a file with a version where there is an
//! operator between blanks. In parentheses stands a rich relation of these, with operators that are words;
//! `Provides` and `Obsoletes` cannot have one. rpm takes as part of a name whatever is no blank and no comma, so
//! that `foo>=1` is a name: here, a name outside of parentheses has letters, digits and a few signs. Source:
//! rpm 4.18, "Boolean dependencies" and "Dependencies" of its manual, tried with `rpmspec`.

use std::fmt;

use super::{Cursor, Problem, SyntaxError};
use crate::package::spec::{Op, Relation};

/// Parentheses in each other that are read.
const DEPTH_MAX: usize = 32;

/// A relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    /// A name, with a version or without.
    Simple(Relation),
    /// A rich relation: operands, and the operators between them.
    Rich {
        /// The first.
        first: Box<Expression>,
        /// Each further one behind its operator.
        rest: Vec<(RichOp, Expression)>,
    },
}

/// An operator of a rich relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RichOp {
    /// Both.
    And,
    /// One of them.
    Or,
    /// The first where there is the second.
    If,
    /// The first where there is not the second.
    Unless,
    /// After `if` and `unless`: the third where they do not hold.
    Else,
    /// Both by one package.
    With,
    /// The first by a package that is not the second.
    Without,
}

impl RichOp {
    const ALL: [Self; 7] =
        [Self::And, Self::Or, Self::If, Self::Unless, Self::Else, Self::With, Self::Without];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::And => "and",
            Self::Or => "or",
            Self::If => "if",
            Self::Unless => "unless",
            Self::Else => "else",
            Self::With => "with",
            Self::Without => "without",
        }
    }
}

/// As rpmbuild stores it: one blank between words.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(relation) => f.write_str(&relation.rpm()),
            Self::Rich { first, rest } => {
                write!(f, "({first}")?;
                for (op, operand) in rest {
                    write!(f, " {} {operand}", op.as_str())?;
                }
                f.write_str(")")
            }
        }
    }
}

/// Reads the relations of a tag, in their order.
pub fn parse(text: &str, tag: &str) -> Result<Vec<Expression>, SyntaxError> {
    let mut reader = Reader { cursor: Cursor::new(text), tag: tag.to_ascii_lowercase(), depth: 0 };
    let mut found = Vec::new();
    loop {
        let start = reader.cursor.at;
        let between = reader.cursor.run(|c| c == ',' || c.is_ascii_whitespace());
        match reader.cursor.peek() {
            None if found.is_empty() && text.trim().is_empty() => {
                return reader.cursor.error(0, Problem::NoName);
            }
            None if found.is_empty() => return reader.cursor.error(start, Problem::Comma),
            Some('<' | '=' | '>') if !found.is_empty() && between.contains(',') => {
                return reader.cursor.error(start, Problem::Comma);
            }
            None => return Ok(found),
            Some('(') => {
                let start = reader.cursor.at;
                if matches!(reader.tag.as_str(), "provides" | "obsoletes") {
                    return reader.cursor.error(start, Problem::NoRich);
                }
                let (rich, limits) = reader.rich()?;
                let reverse =
                    matches!(reader.tag.as_str(), "conflicts" | "supplements" | "enhances");
                let outer = if reverse { RichOp::Or } else { RichOp::And };
                limits.check(outer).or_else(|problem| reader.cursor.error(start, problem))?;
                found.push(rich);
            }
            Some(_) => found.push(Expression::Simple(reader.simple()?)),
        }
    }
}

/// What a rich relation keeps those from that it stands in. rpm's solver wants to know the sign of each part
/// ahead: what `if` guards cannot be one of several, what `unless` guards cannot be needed with others, and
/// `with` can only look into one package.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    no_and: bool,
    no_or: bool,
    no_with: bool,
}

impl Limits {
    /// Whether it can stand under that operator.
    fn check(self, op: RichOp) -> Result<(), Problem> {
        match op {
            RichOp::With | RichOp::Without if self.no_with => Err(Problem::Within),
            RichOp::And | RichOp::If if self.no_and => {
                Err(Problem::Context { found: "unless", instead: "or" })
            }
            RichOp::Or | RichOp::Unless if self.no_or => {
                Err(Problem::Context { found: "if", instead: "and" })
            }
            _ => Ok(()),
        }
    }

    fn join(&mut self, other: Self) {
        self.no_and |= other.no_and;
        self.no_or |= other.no_or;
        self.no_with |= other.no_with;
    }
}

struct Reader<'t> {
    cursor: Cursor<'t>,
    /// In lower case.
    tag: String,
    depth: usize,
}

impl<'t> Reader<'t> {
    /// A name and its version.
    fn simple(&mut self) -> Result<Relation, SyntaxError> {
        let start = self.cursor.at;
        let name = self.token();
        self.check_name(start, name)?;
        if self.depth == 0 && self.cursor.peek() == Some(')') {
            return self.cursor.error(self.cursor.at, Problem::OddName(')'));
        }
        let mut ahead = self.cursor;
        ahead.blanks();
        let at = ahead.at;
        let sign = ahead.run(|c| "<>=".contains(c));
        let op = match sign {
            "" => return Ok(Relation::any(name)),
            "<" => Op::Less,
            "<=" => Op::LessEqual,
            "=" | "==" => Op::Equal,
            ">=" => Op::GreaterEqual,
            ">" => Op::Greater,
            "=<" | "=>" => {
                let instead = if sign == "=<" { "<=" } else { ">=" };
                let old = Problem::OldOperator { found: sign.to_owned(), instead };
                return self.cursor.error(at, old);
            }
            _ => {
                let expected = "one of `<`, `<=`, `=`, `>=`, `>`";
                let found = sign.chars().next();
                return self.cursor.error(at, Problem::Unexpected { found, expected });
            }
        };
        if ahead.peek().is_some_and(|c| !c.is_ascii_whitespace() && !",)".contains(c)) {
            self.cursor = ahead;
            return self.cursor.unexpected("a blank behind the operator");
        }
        if name.starts_with('/') {
            return self.cursor.error(at, Problem::VersionedFile);
        }
        if self.tag == "provides" && op != Op::Equal {
            return self.cursor.error(at, Problem::OnlyEqual);
        }
        self.cursor = ahead;
        self.cursor.blanks();
        self.no_comma()?;
        let start = self.cursor.at;
        let version = self.token();
        self.check_version(start, version)?;
        Ok(Relation { name: name.into(), constraint: Some((op, version.to_owned())) })
    }

    fn no_comma(&self) -> Result<(), SyntaxError> {
        match self.cursor.peek() {
            Some(',') => self.cursor.error(self.cursor.at, Problem::Comma),
            _ => Ok(()),
        }
    }

    /// What is no blank, no comma, and no parenthesis that was opened before it.
    fn token(&mut self) -> &'t str {
        let rest = self.cursor.rest();
        let mut open = 0_usize;
        let end = rest.find(|c: char| match c {
            '(' => {
                open += 1;
                false
            }
            ')' if open == 0 => true,
            ')' => {
                open -= 1;
                false
            }
            c => c.is_ascii_whitespace() || c == ',',
        });
        let token = &rest[..end.unwrap_or(rest.len())];
        self.cursor.at += token.len();
        token
    }

    fn check_name(&self, start: usize, name: &str) -> Result<(), SyntaxError> {
        let fault = |at: usize, problem| self.cursor.error(start + at, problem);
        if name.is_empty() {
            return match self.cursor.peek() {
                Some(')') if self.depth == 0 => {
                    fault(0, Problem::Unexpected { found: Some(')'), expected: "a name" })
                }
                _ => fault(0, Problem::NoName),
            };
        }
        if self.tag == "obsoletes" {
            let good = |c: char| c.is_ascii_alphanumeric() || "+.-_".contains(c);
            if let Some(at) = name.find(|c| !good(c)) {
                return fault(at, Problem::OnlyPackages);
            }
        }
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric() || "_/".contains(c)) {
            return fault(
                0,
                Problem::Unexpected {
                    found: name.chars().next(),
                    expected: "a letter, a digit, `_`, `/` or `(` at the start of a relation",
                },
            );
        }
        if name.starts_with('/') {
            return match name.find(|c: char| c.is_control() || "%(){}".contains(c)) {
                Some(at) => fault(at, odd(name, at)),
                None => Ok(()),
            };
        }
        let mut open = 0_usize;
        for (at, c) in name.char_indices() {
            match c {
                '(' => open += 1,
                ')' => open = open.saturating_sub(1),
                '%' | '{' | '}' => return fault(at, odd(name, at)),
                c if open > 0 && c.is_ascii_graphic() => {}
                c if c.is_ascii_alphanumeric() || "+.-_~^:/".contains(c) => {}
                _ => return fault(at, odd(name, at)),
            }
        }
        if open > 0 {
            return fault(name.find('(').unwrap_or(0), Problem::OddName('('));
        }
        Ok(())
    }

    /// `[epoch:]version[-release]`.
    fn check_version(&self, start: usize, text: &str) -> Result<(), SyntaxError> {
        if text.is_empty() {
            return self.cursor.error(start, Problem::NoVersion);
        }
        let fault = |at: usize, why| {
            let found = text.to_owned();
            self.cursor.error(start + at, Problem::Version { found, why })
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_+:~^".contains(c);
        if let Some(at) = text.find(|c| !allowed(c)) {
            return fault(at, "expected letters, digits and `.-_+:~^`");
        }
        let (epoch, rest) = text.split_once(':').unwrap_or(("0", text));
        if let Some(at) = rest.find(':') {
            return fault(text.len() - rest.len() + at, "expected one `:`");
        }
        if !epoch.bytes().all(|b| b.is_ascii_digit()) {
            return fault(0, "expected a number before `:`");
        }
        let (version, release) = rest.split_once('-').unwrap_or((rest, "1"));
        let at = text.len() - rest.len();
        if release.contains('-') {
            return fault(at + version.len() + 1, "expected one `-`, before the release");
        }
        if !version.starts_with(|c: char| c.is_ascii_digit())
            || epoch.is_empty()
            || release.is_empty()
        {
            return self.cursor.error(start, Problem::VersionStart(text.to_owned()));
        }
        Ok(())
    }

    /// A rich relation, from its parenthesis on.
    fn rich(&mut self) -> Result<(Expression, Limits), SyntaxError> {
        let start = self.cursor.at;
        self.cursor.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.cursor.error(start, Problem::TooDeep);
        }
        let mut limits = Limits::default();
        let (mut first_op, mut last_op, mut chain) = (None, None, None);
        let mut first = None;
        let mut rest = Vec::new();
        loop {
            self.cursor.blanks();
            self.no_comma()?;
            let operand = if self.cursor.peek() == Some('(') {
                let (operand, mut inner) = self.rich()?;
                if matches!(last_op, Some(RichOp::If | RichOp::Unless)) {
                    // The condition itself.
                    (inner.no_and, inner.no_or) = (false, false);
                }
                limits.join(inner);
                operand
            } else {
                if self.cursor.peek().is_none() {
                    return self.cursor.error(start, Problem::Open);
                }
                Expression::Simple(self.simple()?)
            };
            match last_op {
                None => first = Some(Box::new(operand)),
                Some(op) => rest.push((op, operand)),
            }
            self.cursor.blanks();
            self.no_comma()?;
            match self.cursor.peek() {
                None => return self.cursor.error(start, Problem::Open),
                Some(')') => break,
                Some(_) => {}
            }
            let op = self.operator(&mut chain)?;
            first_op = first_op.or(Some(op));
            last_op = Some(op);
        }
        self.cursor.at += 1;
        self.depth -= 1;
        if let Some(op) = first_op {
            limits.check(op).or_else(|problem| self.cursor.error(start, problem))?;
        }
        limits.no_or |= first_op == Some(RichOp::If);
        limits.no_and |= first_op == Some(RichOp::Unless);
        if matches!(last_op, Some(RichOp::And | RichOp::Or)) {
            (limits.no_and, limits.no_or) = (false, false);
        }
        limits.no_with |=
            matches!(last_op, Some(RichOp::And | RichOp::If | RichOp::Unless | RichOp::Else));
        match first {
            Some(first) => Ok((Expression::Rich { first, rest }, limits)),
            None => self.cursor.error(start, Problem::NoName),
        }
    }

    /// The word between two operands. `chain` is the one before it, where there is one in these parentheses.
    fn operator(&mut self, chain: &mut Option<RichOp>) -> Result<RichOp, SyntaxError> {
        let start = self.cursor.at;
        let word = self.cursor.run(|c| !c.is_ascii_whitespace() && c != ')');
        let Some(op) = RichOp::ALL.into_iter().find(|op| op.as_str() == word) else {
            return self.cursor.error(start, Problem::Word(word.to_owned()));
        };
        let conditional = matches!(chain, Some(RichOp::If | RichOp::Unless));
        match *chain {
            Some(_) if op == RichOp::Else && conditional => {}
            None if op == RichOp::Else => return self.cursor.error(start, Problem::Else),
            Some(before) if before != op => {
                let (before, here) = (before.as_str(), op.as_str());
                return self.cursor.error(start, Problem::Mixed { before, here });
            }
            Some(_) if !matches!(op, RichOp::And | RichOp::Or | RichOp::With) => {
                return self.cursor.error(start, Problem::Chain(op.as_str()));
            }
            _ => {}
        }
        *chain = Some(op);
        Ok(op)
    }
}

fn odd(name: &str, at: usize) -> Problem {
    Problem::OddName(name.get(at..).and_then(|rest| rest.chars().next()).unwrap_or('?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_read_and_written_as_rpmbuild_stores_them() {
        for (text, stored) in [
            ("glibc >= 2.34, /usr/bin/perl", &["glibc >= 2.34", "/usr/bin/perl"][..]),
            ("aa bb == 1-2  cc", &["aa", "bb = 1-2", "cc"]),
            ("libc.so.6(GLIBC_2.34)(64bit)", &["libc.so.6(GLIBC_2.34)(64bit)"]),
            ("modalias(pci:v00001002d*sv*)", &["modalias(pci:v00001002d*sv*)"]),
            ("( a  and   b(x) >= 1 )", &["(a and b(x) >= 1)"]),
            ("(a if (b or c) else d),e", &["(a if (b or c) else d)", "e"]),
            ("(a with b < 2 with c)", &["(a with b < 2 with c)"]),
        ] {
            let read: Vec<String> =
                parse(text, "Requires").unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(read, stored, "{text}");
        }
    }

    #[test]
    fn errors_point_at_the_character() {
        for (tag, text, column, what) in [
            ("Requires", "", 1, "expected a name"),
            ("Requires", "foo >=", 7, "expected a version"),
            ("Requires", "foo>=1", 4, "blanks around"),
            ("Requires", "foo >=1", 7, "a blank behind the operator"),
            ("Requires", "foo => 1", 5, "is written `>=`"),
            ("Requires", "foo = 1-2-3", 9, "expected one `-`"),
            ("Requires", "foo = a:1", 7, "expected a number before `:`"),
            ("Requires", "foo (>= 1)", 6, "at the start of a relation"),
            ("Requires", "/bin/sh = 1", 9, "a file has no version"),
            ("Requires", "foo(bar", 4, "each `(` with its `)`"),
            ("Requires", "(a and b", 1, "a `(` has no `)`"),
            ("Requires", "(a and b))", 10, "found `)`"),
            ("Requires", "(a und b)", 4, "`und` is no operator"),
            ("Requires", "(a and b or c)", 10, "`or` follows `and`"),
            ("Requires", "(a if b if c)", 9, "takes two operands"),
            ("Requires", "(a else b)", 4, "no `if`"),
            ("Requires", "(a unless b)", 1, "write it with `or`"),
            ("Requires", "((a and b) with c)", 1, "can hold `or`"),
            ("Conflicts", "(a if b)", 1, "write it with `and`"),
            ("Provides", "(a or b)", 1, "cannot stand in this tag"),
            ("Provides", "aa >= 1", 4, "expected `=`"),
            ("Obsoletes", "aa(x)", 3, "only packages"),
            ("Requires", "()", 2, "expected a name"),
            ("Requires", "%{name}", 1, "at the start of a relation"),
            ("Requires", "a%{name}", 2, "would be part of the name"),
        ] {
            let error = parse(text, tag).unwrap_err();
            assert_eq!(error.column(), column, "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
        let deep = "(".repeat(10_000);
        assert_eq!(parse(&deep, "Requires").unwrap_err().problem, Problem::TooDeep);
    }
}
