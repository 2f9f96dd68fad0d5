//! The order of rpm's versions.
//!
//! `[epoch:]version[-release]`: epochs by number, then version and release in segments, each of digits or of
//! letters; other signs only part them. A number is later than letters, `~` before the end and `^` after it,
//! but before any segment. Source: rpm-version(7), and rpm 4.18, which has two habits that it does not tell:
//! leading zeros do not count, and letters are compared byte by byte.

use std::cmp::Ordering;

/// Compares two versions as rpm does: without an epoch it is 0, one without a release is earlier.
pub fn compare(one: &str, other: &str) -> Ordering {
    let ((epoch, version, release), (other_epoch, other_version, other_release)) =
        (parts(one), parts(other));
    segments(epoch, other_epoch).then_with(|| segments(version, other_version)).then_with(
        || match (release, other_release) {
            (Some(release), Some(other)) => segments(release, other),
            (release, other) => release.is_some().cmp(&other.is_some()),
        },
    )
}

/// Epoch, version, release.
fn parts(text: &str) -> (&str, &str, Option<&str>) {
    let (epoch, rest) = match text.split_once(':') {
        Some((epoch, rest)) if epoch.bytes().all(|b| b.is_ascii_digit()) => {
            (if epoch.is_empty() { "0" } else { epoch }, rest)
        }
        _ => ("0", text),
    };
    match rest.rsplit_once('-') {
        Some((version, release)) => (epoch, version, Some(release)),
        None => (epoch, rest, None),
    }
}

/// Compares one part, as `rpmvercmp` does.
pub fn segments(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        (one, other) = (skip(one), skip(other));
        match (one.first(), other.first()) {
            (None, None) => return Ordering::Equal,
            (Some(b'~'), Some(b'~')) | (Some(b'^'), Some(b'^')) => {
                (one, other) = (&one[1..], &other[1..]);
                continue;
            }
            (Some(b'~'), _) => return Ordering::Less,
            (_, Some(b'~')) => return Ordering::Greater,
            (Some(b'^'), None) => return Ordering::Greater,
            (None, Some(b'^')) => return Ordering::Less,
            (Some(b'^'), _) => return Ordering::Less,
            (_, Some(b'^')) => return Ordering::Greater,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(a), Some(b)) if a.is_ascii_digit() != b.is_ascii_digit() => {
                return a.is_ascii_digit().cmp(&b.is_ascii_digit());
            }
            (Some(a), Some(_)) => {
                let digits = a.is_ascii_digit();
                let (part, rest) = take(one, digits);
                let (other_part, other_rest) = take(other, digits);
                let order = if digits {
                    let (a, b) = (significant(part), significant(other_part));
                    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
                } else {
                    part.cmp(other_part)
                };
                if order.is_ne() {
                    return order;
                }
                (one, other) = (rest, other_rest);
            }
        }
    }
}

fn skip(text: &[u8]) -> &[u8] {
    let counts = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'~' | b'^');
    &text[text.iter().position(counts).unwrap_or(text.len())..]
}

fn take(text: &[u8], digits: bool) -> (&[u8], &[u8]) {
    let of_kind = |b: &u8| if digits { b.is_ascii_digit() } else { b.is_ascii_alphabetic() };
    text.split_at(text.iter().position(|b| !of_kind(b)).unwrap_or(text.len()))
}

fn significant(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().take_while(|b| **b == b'0').count()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_rpms_order() {
        // Each earlier than the next; the order is that of rpm 4.18.
        let sorted = [
            "1.0~dev", "1.0~rc1", "1.0~1", "1.0", "1.0-1", "1.0-1.1", "1.0-2", "1.0^git1", "1.0a",
            "1.0.1", "1.2", "1.10", "2.4.100", "10", "1:0.5",
        ];
        for (i, one) in sorted.iter().enumerate() {
            for (j, other) in sorted.iter().enumerate() {
                assert_eq!(compare(one, other), i.cmp(&j), "{one} and {other}");
            }
        }
        assert_eq!(compare("1.00", "1_0"), Ordering::Equal);
        assert_eq!(compare("0:1-0", "1-00"), Ordering::Equal);
    }
}
