//! Versions: the order of what `map` writes, held against dpkg's and rpm's own comparisons.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/random.rs"]
mod random;

use std::cmp::Ordering;
use std::fs;
use std::path::Path;

use common::{ok, run, tool};
use gfxpack::package::Format;
use gfxpack::package::version::{self, compare, map};
use random::Random;

/// The order of pairs by rpm, in one process.
fn by_rpm(dir: &Path, pairs: &[(String, String)]) -> Vec<Ordering> {
    let list = dir.join("pairs");
    let lines: String = pairs.iter().map(|(a, b)| format!("{a} {b}\n")).collect();
    fs::write(&list, lines).unwrap();
    let script = dir.join("compare.lua");
    let text = format!(
        "for line in io.lines('{}') do\n local a, b = line:match('^(%S+) (%S+)$')\n \
         print(rpm.vercmp(a, b))\nend\n",
        list.display()
    );
    fs::write(&script, text).unwrap();
    let printed = ok(tool("rpmlua", "rpm").arg(script));
    orders(&printed, pairs.len())
}

/// The order of pairs by dpkg's library of Perl, in one process.
fn by_dpkg_perl(dir: &Path, pairs: &[(String, String)]) -> Vec<Ordering> {
    let list = dir.join("pairs");
    let lines: String = pairs.iter().map(|(a, b)| format!("{a} {b}\n")).collect();
    fs::write(&list, lines).unwrap();
    let script = "while (<>) { my ($a, $b) = split; print version_compare($a, $b), \"\\n\" }";
    let printed = ok(tool("perl", "dpkg-dev").args(["-MDpkg::Version", "-e", script]).arg(&list));
    orders(&printed, pairs.len())
}

fn orders(printed: &str, count: usize) -> Vec<Ordering> {
    let orders: Vec<_> =
        printed.lines().map(|line| line.trim().parse::<i32>().unwrap().cmp(&0)).collect();
    assert_eq!(orders.len(), count);
    orders
}

/// Whether dpkg itself finds the first earlier.
fn dpkg_says_earlier(one: &str, other: &str) -> bool {
    run(tool("dpkg", "dpkg").args(["--compare-versions", one, "lt", other])).status == Some(0)
}

#[test]
fn versions_are_compared_as_the_formats_compare_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(1);
    let parts = [
        "0", "1", "00", "10", "7", "a", "b", "rc", "dev", ".", ".", "~", "+", "~~", "Z", "20251126",
    ];
    let mut version = |more: &[&str], epochs: bool| {
        let mut text = String::new();
        if epochs && random.below(4) == 0 {
            text += random.pick(&["0:", "1:", "02:"]);
        }
        text += random.pick(&["0", "1", "7"]);
        for _ in 0..random.below(6) {
            text += match random.below(4) {
                0 if !more.is_empty() => random.pick(more),
                _ => random.pick(&parts),
            };
        }
        let end = text.trim_end_matches('-').len();
        text.truncate(end);
        if random.below(2) == 0 {
            text += "-";
            text += random.pick(&["0", "1", "2~x", "10", "1.el9"]);
        }
        text
    };
    for (format, more, oracle) in [
        (Format::Rpm, &["^", "_", "^git"][..], by_rpm as fn(&Path, &[_]) -> Vec<Ordering>),
        (Format::Deb, &["-"], by_dpkg_perl),
    ] {
        let pairs: Vec<(String, String)> =
            (0..6000).map(|_| (version(more, true), version(more, true))).collect();
        let theirs = oracle(dir.path(), &pairs);
        let mut different = Vec::new();
        for ((one, other), theirs) in pairs.iter().zip(theirs) {
            let ours = compare(format, one, other);
            if ours != theirs {
                different.push(format!("{one} {other}: {ours:?}, {format} says {theirs:?}"));
            }
        }
        assert!(different.is_empty(), "{} differ: {:#?}", different.len(), &different[..5]);
    }
    // dpkg's two implementations could differ.
    for _ in 0..60 {
        let (one, other) = (version(&[], true), version(&[], true));
        let ours = version::deb::compare(&one, &other).is_lt();
        assert_eq!(ours, dpkg_says_earlier(&one, &other), "{one} and {other}");
    }
}

/// What builds call their versions, each earlier than the next.
const STAGES: [&[&str]; 6] = [
    &["7.1.0.dev0", "7.1.0dev0", "7.1.0.dev0+12ab34c", "7.1.0-dev3", "7.1.0~dev20251126"],
    &["7.1.0a20251126", "7.1.0~20251126", "7.1.0-20251126", "7.1.0~nightly20260101", "7.1.0a1"],
    &["7.1.0b1", "7.1.0-beta.2", "7.1.0~pre3"],
    &["7.1.0rc1", "7.1.0-rc2", "7.1.0~rc20251008", "7.1.0rc1.post1"],
    &["7.1.0", "7.1.0"],
    &["7.1.0-update1", "7.1.0.post2", "7.1.0+20251126", "7.1.0.1", "7.1.0u3"],
];

#[test]
fn the_stages_of_a_version_come_in_their_order_in_both_formats() {
    let dir = tempfile::tempdir().unwrap();
    let mut pairs = Vec::new();
    let mut expected = Vec::new();
    for (i, earlier) in STAGES.iter().enumerate() {
        for later in &STAGES[i + 1..] {
            for (one, other) in earlier.iter().flat_map(|one| later.iter().map(move |o| (one, o))) {
                for release in ["-1", "-2"] {
                    let (one, other) = (map(one), map(other));
                    assert!(one.known && other.known, "{one:?} {other:?}");
                    pairs.push((one.written + release, other.written + "-1"));
                    expected.push(Ordering::Less);
                }
            }
        }
    }
    assert_eq!(by_rpm(dir.path(), &pairs), expected);
    assert_eq!(by_dpkg_perl(dir.path(), &pairs), expected);
    for (one, other) in pairs.iter().step_by(20) {
        assert!(dpkg_says_earlier(one, other), "{one} and {other}");
    }
}

/// Any two versions that are written as `map` writes them are in the same order in both formats, but those
/// that differ in their commit alone, which are in none.
#[test]
fn written_versions_have_one_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(2);
    let mut version = || {
        let mut text = random.pick(&["7", "7.1", "7.1.0", "7.1.1", "7.10.0", "7.1.0.1"]).to_owned();
        let suffixes = [
            "dev0",
            ".dev1",
            "a20251126",
            "~20251126",
            "~20251126.2",
            "b1",
            "-pre2",
            "rc1",
            "~rc2",
            "-rc10",
            "rc1.2",
            "-update1",
            ".post2",
            "+20251126",
            "u3",
            "-nightly",
            "-rc",
        ];
        for _ in 0..random.below(3) {
            text += random.pick(&suffixes);
        }
        if random.below(4) == 0 {
            let hash = random.next();
            text += &format!("+{:.7}", format!("{hash:x}"));
        }
        text
    };
    let mut pairs = Vec::new();
    while pairs.len() < 20_000 {
        let (one, other) = (map(&version()), map(&version()));
        // Not every suffix follows every other.
        if !(one.known && other.known) {
            continue;
        }
        assert_eq!(map(&one.written), one, "it is in its form already");
        let stem = |written: &str| match written.rsplit_once('+') {
            Some((stem, local)) if !local.starts_with("update") => stem.to_owned(),
            _ => written.to_owned(),
        };
        if one != other && stem(&one.written) == stem(&other.written) {
            continue;
        }
        pairs.push((one.written, other.written));
    }
    for (one, other) in &pairs {
        let (deb, rpm) = (compare(Format::Deb, one, other), compare(Format::Rpm, one, other));
        assert_eq!(deb, rpm, "{one} and {other}");
    }
    let some = &pairs[..4000];
    assert_eq!(by_rpm(dir.path(), some), by_dpkg_perl(dir.path(), some));
}
