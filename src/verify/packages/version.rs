//! Comparing versions, by dpkg's rules: `epoch:upstream-revision`, runs of digits as numbers, letters
//! before other signs, `~` before the end. rpm's rules differ from it in what no version of one set has
//! (which signs part the runs). Source: deb-version(7).

use std::cmp::Ordering;

/// Whether `have op wanted` holds.
pub(super) fn holds(have: &str, op: &str, wanted: &str) -> bool {
    // A wanted version without a release takes any.
    let have =
        if wanted.contains('-') { have } else { have.rsplit_once('-').map_or(have, |h| h.0) };
    let order = compare(have, wanted);
    match op {
        "=" => order == Ordering::Equal,
        "<<" | "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">>" | ">" => order == Ordering::Greater,
        ">=" => order != Ordering::Less,
        _ => false,
    }
}

fn compare(a: &str, b: &str) -> Ordering {
    let parts = |text| {
        let (epoch, rest) = str::split_once(text, ':').unwrap_or(("0", text));
        let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
        (epoch.parse::<u64>().unwrap_or(0), upstream.to_owned(), revision.to_owned())
    };
    let ((e1, u1, r1), (e2, u2, r2)) = (parts(a), parts(b));
    e1.cmp(&e2).then_with(|| part(&u1, &u2)).then_with(|| part(&r1, &r2))
}

/// One part: other signs and numbers by turns.
fn part(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while !a.is_empty() || !b.is_empty() {
        let (text_a, rest_a) = run(a, false);
        let (text_b, rest_b) = run(b, false);
        let keys = |text: &[u8]| text.iter().map(|&c| key(c)).chain([key(0)]).collect::<Vec<_>>();
        let order = keys(text_a).cmp(&keys(text_b));
        if order != Ordering::Equal {
            return order;
        }
        let (digits_a, rest_a) = run(rest_a, true);
        let (digits_b, rest_b) = run(rest_b, true);
        let number = |digits: &[u8]| {
            let zeros = digits.iter().take_while(|&&c| c == b'0').count();
            digits[zeros..].to_vec()
        };
        let (n, m) = (number(digits_a), number(digits_b));
        let order = n.len().cmp(&m.len()).then_with(|| n.cmp(&m));
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    Ordering::Equal
}

fn run(text: &[u8], digits: bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|c| c.is_ascii_digit() == digits).count())
}

fn key(c: u8) -> u32 {
    match c {
        b'~' => 0,
        0 => 1,
        c if c.is_ascii_alphabetic() => u32::from(c) + 2,
        c => u32::from(c) + 1024,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_dpkg_sorts_them() {
        let sorted = [
            "1.0~rc1-1",
            "1.0-1",
            "1.0-1.1",
            "1.0-2",
            "1.0a-1",
            "1.0+b-1",
            "1.2-1",
            "1.10-1",
            "1:0-1",
        ];
        for pair in sorted.windows(2) {
            assert!(holds(pair[0], "<<", pair[1]), "{pair:?}");
            assert!(holds(pair[1], ">=", pair[0]) && !holds(pair[0], "=", pair[1]), "{pair:?}");
        }
        assert!(holds("7.1.0-1", "=", "7.1.0") && holds("7.01-1", "=", "7.1-1"));
    }
}
