//! The order of Debian's versions.
//!
//! `[epoch:]upstream[-revision]`: epochs by number, then upstream and revision in turns of what is no
//! digit and what is a number; in the former `~` sorts before the end, letters before all else. Source:
//! Debian Policy 5.6.12, deb-version(7).

use std::cmp::Ordering;

/// Compares two versions as `dpkg --compare-versions` does.
pub fn compare(one: &str, other: &str) -> Ordering {
    let (one, other) = (parts(one), parts(other));
    number(one.0)
        .cmp(&number(other.0))
        .then_with(|| part(one.1.as_bytes(), other.1.as_bytes()))
        .then_with(|| part(one.2.as_bytes(), other.2.as_bytes()))
}

/// Epoch, upstream version, revision.
fn parts(version: &str) -> (&str, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch, upstream, revision)
}

/// A number of any length, in an order of its own: its length without zeroes at the front, then digits.
fn number(digits: &str) -> (usize, &str) {
    let digits = digits.trim_start_matches('0');
    (digits.len(), digits)
}

fn part(mut one: &[u8], mut other: &[u8]) -> Ordering {
    loop {
        let (text, other_text) = (take(&mut one, false), take(&mut other, false));
        let longest = text.len().max(other_text.len());
        for i in 0..longest {
            let order = weight(text.get(i)).cmp(&weight(other_text.get(i)));
            if order.is_ne() {
                return order;
            }
        }
        let (digits, other_digits) = (take(&mut one, true), take(&mut other, true));
        let text = |digits| std::str::from_utf8(digits).unwrap_or_default();
        let order = number(text(digits)).cmp(&number(text(other_digits)));
        if order.is_ne() || one.is_empty() && other.is_empty() {
            return order;
        }
    }
}

/// Takes the digits, or what is none, from the front.
fn take<'a>(text: &mut &'a [u8], digits: bool) -> &'a [u8] {
    let end = text.iter().position(|b| b.is_ascii_digit() != digits).unwrap_or(text.len());
    let (taken, rest) = text.split_at(end);
    *text = rest;
    taken
}

fn weight(byte: Option<&u8>) -> i32 {
    match byte {
        Some(b'~') => -1,
        None => 0,
        Some(letter) if letter.is_ascii_alphabetic() => i32::from(*letter),
        Some(other) => i32::from(*other) + 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_dpkgs_order() {
        // Each earlier than the next; the order is that of `dpkg --compare-versions`.
        let sorted = [
            "0~~",
            "0~~a",
            "0~",
            "0",
            "0.1",
            "0.131",
            "1.0~rc1",
            "1.0",
            "1.0-1~deb12u1",
            "1.0-1",
            "1.0-1+b1",
            "1.0a",
            "1.0+dfsg",
            "1.2",
            "1.10",
            "2.4.100",
            "10",
            "1:0.5",
        ];
        for (i, one) in sorted.iter().enumerate() {
            for (j, other) in sorted.iter().enumerate() {
                assert_eq!(compare(one, other), i.cmp(&j), "{one} and {other}");
            }
        }
        assert_eq!(compare("1.00", "1.0"), Ordering::Equal);
        assert_eq!(compare("0:1-0", "1"), Ordering::Equal);
    }
}
