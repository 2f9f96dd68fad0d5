//! Versions: the order that each format has, and one text that both order alike.
//!
//! A build says `7.1.0rc1`, `7.1.0a20251126` or `7.1.0.dev0+gabc123`: as they stand, dpkg and rpm take those for
//! later than `7.1.0`, and `-` is not allowed at all. [`map`] writes them so that
//!
//! ```text
//! 7.1.0~dev0 < 7.1.0~nightly20251126 < 7.1.0~pre1 < 7.1.0~rc1 < 7.1.0 < 7.1.0+update1 < 7.1.0.1 < 7.1.1
//! ```
//!
//! by the rules of either format. These differ: after `~`, rpm takes a number for later than letters, dpkg for
//! earlier; rpm skips the signs between parts, dpkg compares them. So what follows the numbers always begins
//! with `~` or `+` and a word, and a number always follows the word.

pub mod deb;
pub mod rpm;

use std::cmp::Ordering;

use super::Format;
use super::spec::Op;

/// A version as packages have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// The text for both formats.
    pub written: String,
    /// Whether it is of one of the forms whose order is the same in both. Any other is written as it was
    /// given.
    pub known: bool,
}

/// What the words after the numbers mean, each with the word that is written. Of one letter, they need a
/// number: `1.1.1a` is no nightly build.
const WORDS: [(&str, &str); 15] = [
    ("dev", "~dev"),
    ("a", "~nightly"),
    ("alpha", "~nightly"),
    ("nightly", "~nightly"),
    ("b", "~pre"),
    ("beta", "~pre"),
    ("pre", "~pre"),
    ("preview", "~pre"),
    ("c", "~rc"),
    ("rc", "~rc"),
    ("u", "+update"),
    ("update", "+update"),
    ("post", "+update"),
    ("p", "+update"),
    ("patch", "+update"),
];

/// Writes the version of a build so that both formats have it in its place among others.
pub fn map(given: &str) -> Mapped {
    match known(given) {
        Some(written) => Mapped { written, known: true },
        None => Mapped { written: given.to_owned(), known: false },
    }
}

fn known(given: &str) -> Option<String> {
    let lower = given.to_ascii_lowercase();
    let base = numbers(&lower)?;
    let mut rest = lower.strip_prefix(base)?;
    let mut written = base.to_owned();
    while !rest.is_empty() {
        let plus = rest.strip_prefix('+');
        if let Some((suffix, after)) = suffix(rest) {
            written += &suffix;
            rest = after;
        } else if let Some(local) = plus {
            // A commit or the like, at the end. Without a letter in front, rpm would take it for later than
            // those that have one, dpkg for earlier.
            let good = |c: char| c.is_ascii_alphanumeric() || c == '.';
            if local.is_empty() || !local.chars().all(good) || local.starts_with('.') {
                return None;
            }
            let letter = if local.starts_with(|c: char| c.is_ascii_digit()) { "g" } else { "" };
            written += &format!("+{letter}{local}");
            rest = "";
        } else {
            return None;
        }
    }
    Some(written)
}

/// One word with its number from the front, as it is written, and what follows.
fn suffix(text: &str) -> Option<(String, &str)> {
    let bare = text.trim_start_matches(['.', '-', '_', '~', '+']);
    let sign = &text[..text.len() - bare.len()];
    if sign.len() > 1 {
        return None;
    }
    let end = bare.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(bare.len());
    let (word, rest) = bare.split_at(end);
    if word.is_empty() {
        // `7.1.0~20251126` is a nightly build, `7.1.0+20251126` a release with something added that day.
        let written = match sign {
            "~" | "-" => "~nightly",
            "+" => "+update",
            _ => return None,
        };
        let date = numbers(rest).filter(|date| is_date(date))?;
        return Some((format!("{written}{date}"), &rest[date.len()..]));
    }
    let (_, written) = WORDS.iter().find(|(known, _)| *known == word)?;
    if sign == "+" && !written.starts_with('+') {
        return None;
    }
    // As in `7.1.0-rc.1`.
    let number = rest.strip_prefix(['.', '-', '_']).and_then(numbers).or_else(|| numbers(rest));
    let Some(number) = number else {
        return (word.len() > 1).then(|| (format!("{written}0"), rest));
    };
    let at = rest.find(number)?;
    Some((format!("{written}{number}"), &rest[at + number.len()..]))
}

/// Numbers with a dot between each two, from the front.
fn numbers(text: &str) -> Option<&str> {
    let mut end = 0;
    for part in text.split('.') {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            break;
        }
        end += usize::from(end > 0) + digits;
        if digits < part.len() {
            break;
        }
    }
    Some(&text[..end]).filter(|numbers| !numbers.is_empty())
}

/// `20251126`, maybe with the number of the build of that day: `20251126.2`.
fn is_date(numbers: &str) -> bool {
    let date = numbers.split('.').next().unwrap_or_default();
    let part = |range: std::ops::Range<usize>| {
        date.get(range).and_then(|part| part.parse::<u32>().ok()).unwrap_or(0)
    };
    date.len() == 8
        && (1990..2200).contains(&part(0..4))
        && (1..=12).contains(&part(4..6))
        && (1..=31).contains(&part(6..8))
}

/// Compares two versions with their releases by the rules of a format.
pub fn compare(format: Format, one: &str, other: &str) -> Ordering {
    match format {
        Format::Deb => deb::compare(one, other),
        Format::Rpm => rpm::compare(one, other),
    }
}

/// Whether a package of version `have` is what a relation with `op wanted` asks for. In an `.rpm` releases
/// count where both have one; in a `.deb` always: `7.1.0` is earlier than `7.1.0-1` there.
pub fn holds(format: Format, have: &str, op: Op, wanted: &str) -> bool {
    let bare = |version: &str| version.rsplit_once('-').map_or(version, |(v, _)| v).to_owned();
    let order = match format {
        Format::Rpm if !(have.contains('-') && wanted.contains('-')) => {
            rpm::compare(&bare(have), &bare(wanted))
        }
        _ => compare(format, have, wanted),
    };
    match op {
        Op::Less => order.is_lt(),
        Op::LessEqual => order.is_le(),
        Op::Equal => order.is_eq(),
        Op::GreaterEqual => order.is_ge(),
        Op::Greater => order.is_gt(),
    }
}

/// Whether a version is what a relation asks for. Where there is none, only a relation to any version is met.
pub fn meets(format: Format, have: Option<&str>, wanted: Option<&(Op, String)>) -> bool {
    wanted.is_none_or(|(op, wanted)| have.is_some_and(|have| holds(format, have, *op, wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_builds_are_written_for_both_formats() {
        for (given, written) in [
            ("7.1.0", "7.1.0"),
            ("7.1.0.1", "7.1.0.1"),
            ("7.1.0rc1", "7.1.0~rc1"),
            ("7.1.0-rc1", "7.1.0~rc1"),
            ("7.1.0-RC.2", "7.1.0~rc2"),
            ("7.1.0~rc1", "7.1.0~rc1"),
            ("7.9.0rc20251008", "7.9.0~rc20251008"),
            ("7.1.0a20251126", "7.1.0~nightly20251126"),
            ("7.1.0~20251126", "7.1.0~nightly20251126"),
            ("7.1.0-20251126.2", "7.1.0~nightly20251126.2"),
            ("7.1.0.dev0+gabc123", "7.1.0~dev0+gabc123"),
            ("7.1.0.dev0+12ab", "7.1.0~dev0+g12ab"),
            ("7.1.0dev", "7.1.0~dev0"),
            ("7.1.0rc1.dev3", "7.1.0~rc1~dev3"),
            ("7.1.0beta2", "7.1.0~pre2"),
            ("7.1.0-update1", "7.1.0+update1"),
            ("7.1.0.post1", "7.1.0+update1"),
            ("7.1.0+update1", "7.1.0+update1"),
            ("7.1.0+20251126", "7.1.0+update20251126"),
            ("7.1.0+dfsg", "7.1.0+dfsg"),
        ] {
            assert_eq!(map(given), Mapped { written: written.to_owned(), known: true }, "{given}");
            assert_eq!(map(written).written, written, "it is in its form already");
        }
        for given in ["", "v7", "7.1.0-1", "7.1.0~foo1", "1.1.1a", "7.1.0+", "7..1", "7.1.0+rc1~x"]
        {
            assert_eq!(map(given), Mapped { written: given.to_owned(), known: false }, "{given}");
        }
    }

    #[test]
    fn what_a_relation_asks_for() {
        use Format::{Deb, Rpm};
        assert!(holds(Rpm, "7.1.0-1", Op::Equal, "7.1.0"));
        assert!(!holds(Deb, "7.1.0-1", Op::Equal, "7.1.0"), "dpkg compares the revision as well");
        assert!(holds(Deb, "7.1.0-1", Op::Greater, "7.1.0~rc1-5"));
        assert!(holds(Rpm, "7.1.0-1", Op::GreaterEqual, "7.1.0-1"));
        assert!(holds(Rpm, "1:1-1", Op::Greater, "2"));
        assert!(holds(Deb, "7.01-1", Op::Equal, "7.1-1"));
        assert!(holds(Deb, "1-2", Op::Less, "1-10") && holds(Rpm, "1-2", Op::LessEqual, "1-10"));
    }
}
