//! Relations of a control file.
//!
//! ```text
//! libc6 (>= 2.34), perl:any | python3
//! ```
//!
//! Names in a list, each with alternatives, an architecture and a version. `Provides`, `Conflicts`, `Breaks`
//! and `Replaces` have no alternatives, and `Provides` has `=` alone. Source: Debian Policy 7.1,
//! deb-control(5); dpkg 1.21, which refuses what source packages may say beside it.

use super::{Cursor, Problem, SyntaxError};
use crate::package::spec::{Op, Relation};

/// Fields that name packages one by one.
const WITHOUT_ALTERNATIVES: [&str; 4] = ["provides", "conflicts", "breaks", "replaces"];

/// Reads the relations of a field: a list, all of which hold, of alternatives. Architectures are checked and
/// left out.
pub fn parse(text: &str, field: &str) -> Result<Vec<Vec<Relation>>, SyntaxError> {
    let field = field.to_ascii_lowercase();
    let mut cursor = Cursor::new(text);
    let mut list = vec![Vec::new()];
    loop {
        cursor.blanks();
        let relation = relation(&mut cursor, &field)?;
        let has_version = relation.constraint.is_some();
        if let Some(alternatives) = list.last_mut() {
            alternatives.push(relation);
        }
        match cursor.peek() {
            None => return Ok(list),
            Some('|') if WITHOUT_ALTERNATIVES.contains(&field.as_str()) => {
                return cursor.error(cursor.at, Problem::NoAlternatives);
            }
            Some('|') => {}
            Some(',') => list.push(Vec::new()),
            Some('[' | '<') => return cursor.error(cursor.at, Problem::SourceOnly),
            Some('=' | '>') => return cursor.unexpected("the operator in `(…)`"),
            Some(_) if has_version => return cursor.unexpected("`,`, `|` or the end"),
            Some(_) => return cursor.unexpected("`(`, `,`, `|` or the end"),
        }
        cursor.at += 1;
    }
}

/// Checks a version that stands alone.
pub fn version(text: &str) -> Result<(), SyntaxError> {
    check_version(&Cursor::new(text), 0, text)
}

fn relation(cursor: &mut Cursor<'_>, field: &str) -> Result<Relation, SyntaxError> {
    let start = cursor.at;
    let name = cursor.run(|c| !c.is_whitespace() && !":(,|[<>=".contains(c));
    check_name(cursor, start, name)?;
    if cursor.take(':') {
        let start = cursor.at;
        let arch = cursor.run(|c| !c.is_whitespace() && !"(,|[<".contains(c));
        let good = arch.starts_with(|c: char| c.is_ascii_alphanumeric())
            && arch.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !good {
            return cursor.error(start, Problem::Architecture);
        }
    }
    cursor.blanks();
    let mut constraint = None;
    if cursor.take('(') {
        let open = cursor.at - 1;
        cursor.blanks();
        let op = operator(cursor, field)?;
        cursor.blanks();
        let start = cursor.at;
        let version = cursor.run(|c| !c.is_whitespace() && c != '(' && c != ')');
        check_version(cursor, start, version)?;
        cursor.blanks();
        if !cursor.take(')') {
            return match cursor.peek() {
                None => cursor.error(open, Problem::Open),
                Some(_) => cursor.unexpected("`)`"),
            };
        }
        cursor.blanks();
        constraint = Some((op, version.to_owned()));
    }
    Ok(Relation { name: name.into(), constraint })
}

fn check_name(cursor: &Cursor<'_>, start: usize, name: &str) -> Result<(), SyntaxError> {
    if name.is_empty() {
        return cursor.error(start, Problem::NoName);
    }
    let good = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !starts || !name.chars().all(|c| good(c) || c == '_') {
        let bad = if starts { name.find(|c| !good(c) && c != '_') } else { None };
        return cursor.error(start + bad.unwrap_or(0), Problem::Name(name.to_owned()));
    }
    if name.len() < 2 || name.contains('_') {
        let at = name.find('_').unwrap_or(0);
        return cursor.error(start + at, Problem::Policy(name.to_owned()));
    }
    Ok(())
}

fn operator(cursor: &mut Cursor<'_>, field: &str) -> Result<Op, SyntaxError> {
    let start = cursor.at;
    let sign = cursor.run(|c| "<>=".contains(c));
    let op = match sign {
        "<<" => Op::Less,
        "<=" => Op::LessEqual,
        "=" => Op::Equal,
        ">=" => Op::GreaterEqual,
        ">>" => Op::Greater,
        "" if cursor.peek().is_some_and(|c| c.is_ascii_alphanumeric()) => {
            let old = Problem::OldOperator { found: "(1.0)".to_owned(), instead: "(= 1.0)" };
            return cursor.error(start, old);
        }
        "<" | ">" => {
            let instead = if sign == "<" { "<<` or `<=" } else { ">>` or `>=" };
            let old = Problem::OldOperator { found: sign.to_owned(), instead };
            return cursor.error(start, old);
        }
        "" => return cursor.unexpected("one of `<<`, `<=`, `=`, `>=`, `>>`"),
        _ => return cursor.error(start, Problem::Operator(sign.to_owned())),
    };
    if field == "provides" && op != Op::Equal {
        return cursor.error(start, Problem::OnlyEqual);
    }
    Ok(op)
}

/// `[epoch:]upstream[-revision]`.
fn check_version(cursor: &Cursor<'_>, start: usize, text: &str) -> Result<(), SyntaxError> {
    if text.is_empty() {
        return cursor.error(start, Problem::NoVersion);
    }
    let fault = |at: usize, why| {
        let found = text.to_owned();
        cursor.error(start + at, Problem::Version { found, why })
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+.~-:".contains(c);
    if let Some(at) = text.find(|c| !allowed(c)) {
        return fault(at, "expected letters, digits and `+.~-:`");
    }
    let (epoch, rest) = match text.split_once(':') {
        Some((epoch, rest)) => (Some(epoch), rest),
        None => (None, text),
    };
    if epoch.is_some_and(|epoch| epoch.parse::<i32>().is_err() || epoch.starts_with('+')) {
        return fault(0, "expected a number before `:`");
    }
    let at = text.len() - rest.len();
    let (upstream, revision) = match rest.rsplit_once('-') {
        Some((upstream, revision)) => (upstream, Some(revision)),
        None => (rest, None),
    };
    if upstream.is_empty() {
        return fault(at, "expected the upstream version");
    }
    if revision.is_some_and(str::is_empty) {
        return fault(text.len(), "expected a revision after `-`");
    }
    if let Some(colon) = revision.and_then(|revision| revision.find(':')) {
        return fault(at + upstream.len() + 1 + colon, "expected no `:` in the revision");
    }
    if !upstream.starts_with(|c: char| c.is_ascii_digit()) {
        return cursor.error(start + at, Problem::VersionStart(text.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str, field: &str) -> String {
        parse(text, field).unwrap_err().to_string()
    }

    #[test]
    fn relations_are_read() {
        let read =
            parse("libc6 (>= 2.34), perl:any | python3 (<<3.12),x11-common(= 1:7.7+23)", "depends");
        let relation = |name: &str, op, version: &str| Relation {
            name: name.into(),
            constraint: Some((op, version.to_owned())),
        };
        assert_eq!(
            read.unwrap(),
            [
                vec![relation("libc6", Op::GreaterEqual, "2.34")],
                vec![Relation::any("perl"), relation("python3", Op::Less, "3.12")],
                vec![relation("x11-common", Op::Equal, "1:7.7+23")],
            ]
        );
    }

    #[test]
    fn errors_point_at_the_character() {
        for (text, column, what) in [
            ("", 1, "expected a name"),
            ("libc6 >= 2.34", 7, "expected the operator in `(…)`"),
            ("libc6 (2.34)", 8, "is written `(= 1.0)`"),
            ("libc6 (> 2.34)", 8, "`>` is written `>>` or `>=`"),
            ("libc6 (=> 2.34)", 8, "`=>` is no operator"),
            ("libc6 (>= 2.34", 7, "a `(` has no `)`"),
            ("libc6 (>= )", 11, "expected a version"),
            ("libc6 (>= 2_3)", 12, "expected letters, digits and"),
            ("libc6 (>= 1-)", 13, "expected a revision"),
            ("libc6 (>= v1)", 11, "expected a digit first"),
            ("libc6 (>= 1 2)", 13, "found `2`, expected `)`"),
            ("aa bb", 4, "found `b`, expected `(`, `,`, `|` or the end"),
            ("aa (= 1) (= 2)", 10, "found `(`, expected `,`, `|` or the end"),
            ("aa,,bb", 4, "expected a name"),
            ("aa,", 4, "expected a name"),
            ("a_b", 2, "is no package name"),
            ("aa [amd64]", 4, "source packages only"),
            ("aa <!nocheck>", 4, "source packages only"),
            ("aa: (= 1)", 4, "expected an architecture"),
        ] {
            let error = parse(text, "depends").unwrap_err();
            assert_eq!(error.column(), column, "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
        assert_eq!(
            error("aa, bb | cc", "conflicts"),
            "`aa, bb | cc`: character 8, at `| cc`: alternatives cannot stand in this field"
        );
        assert!(error("aa (>= 1)", "provides").contains("expected `=`"));
    }
}
