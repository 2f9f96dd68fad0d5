//! The grammar of relations: dpkg's and rpm's own parsers decide what each format takes.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/random.rs"]
mod random;

use std::collections::BTreeSet;
use std::fs;

use common::{ok, run, tool};
use gfxpack::package::grammar::{SyntaxError, deb, rpm};
use random::Random;

/// Texts near what relations are: made of their parts, most in a right order.
fn texts(parts: &[&str], good: &[&str], count: usize, seed: u64) -> Vec<String> {
    let mut random = Random(seed);
    let mut texts = BTreeSet::new();
    while texts.len() < count {
        let mut text = String::new();
        match random.below(3) {
            0 => (0..=random.below(6)).for_each(|_| text += random.pick(parts)),
            _ => {
                text += random.pick(good);
                for _ in 0..random.below(3) {
                    let at = random.below(text.len() + 1);
                    match random.below(3) {
                        0 if at < text.len() => drop(text.remove(at)),
                        1 => text.insert_str(at, random.pick(parts)),
                        _ => {
                            text += random.pick(&[", ", " | ", " ", ","]);
                            text += random.pick(good);
                        }
                    }
                }
            }
        }
        let text = text.trim().to_owned();
        if !text.is_empty() {
            texts.insert(text);
        }
    }
    texts.into_iter().collect()
}

/// Ours and theirs must agree, but where we refuse what [`gfxpack::package::grammar::Problem::is_ours`] names.
#[track_caller]
fn agree(what: &str, decided: &[(String, Result<(), SyntaxError>, bool)]) {
    let mut faults = Vec::new();
    let (mut both, mut neither) = (0, 0);
    for (text, ours, theirs) in decided {
        match (ours, theirs) {
            (Ok(()), true) => both += 1,
            (Err(_), false) => neither += 1,
            (Err(e), true) if e.problem.is_ours() => {}
            (Ok(()), false) => faults.push(format!("`{text}` is refused by {what} alone")),
            (Err(e), true) => faults.push(format!("`{text}` is taken by {what}; ours: {e}")),
        }
    }
    assert!(
        faults.is_empty(),
        "{} differ:\n{}",
        faults.len(),
        faults[..faults.len().min(25)].join("\n")
    );
    let least = decided.len() / 25;
    assert!(both > least && neither > least, "{what}: {both} taken, {neither} refused");
}

const DEB_PARTS: [&str; 24] = [
    "libc6",
    "aa",
    "a.b+c-d",
    "x",
    "a_b",
    "-a",
    "(",
    ")",
    "(>= 1.2)",
    "(= 1:2-3)",
    "(<< 1~)",
    " ",
    " ",
    ", ",
    " | ",
    ":any",
    ":amd64",
    ":",
    "[amd64]",
    "<!nocheck>",
    ">=",
    "(> 1)",
    "(=1)",
    "é",
];
const DEB_GOOD: [&str; 8] = [
    "libc6 (>= 2.34)",
    "perl:any | python3",
    "rocblas-generic (= 7.1.0-1)",
    "aa(<<1:2-3)",
    "x11-common",
    "aa , bb",
    "aa (>= 1.0~rc1+b2)",
    "aa ( = 1 )",
];

#[test]
fn relations_of_debs_are_what_dpkg_takes() {
    let dir = tempfile::tempdir().unwrap();
    for (n, field) in ["Depends", "Provides", "Conflicts"].into_iter().enumerate() {
        let texts = texts(&DEB_PARTS, &DEB_GOOD, 1500, 10 + n as u64);
        // dpkg's library of Perl, which also reads source packages' relations: those are refused before.
        let list = dir.path().join("list");
        fs::write(&list, texts.join("\n") + "\n").unwrap();
        let script = "while (<>) { chomp; my $d = deps_parse($_, build_dep => 0, tests_dep => 0, \
                      virtual => 0, reduce_arch => 0); print defined $d ? 1 : 0, \"\\n\" }";
        let mut perl = tool("perl", "dpkg-dev");
        let printed = ok(perl.args(["-MDpkg::Deps", "-e", script]).arg(&list));
        let perl: Vec<bool> = printed.lines().map(|line| line == "1").collect();
        assert_eq!(perl.len(), texts.len());
        for (text, perl) in texts.iter().zip(&perl) {
            if deb::parse(text, field).is_ok() {
                assert!(*perl, "`{text}` is refused by Dpkg::Deps alone");
            }
        }
        // dpkg itself, one by one.
        let chosen: Vec<&String> = texts.iter().step_by(texts.len() / 80).collect();
        let (one, other) = chosen.split_at(chosen.len() / 2);
        let decide = |texts: &[&String], name: &str| -> Vec<_> {
            let root = dir.path().join(format!("{name}-{field}"));
            fs::create_dir_all(root.join("DEBIAN")).unwrap();
            let decide = |text: &&String| {
                let control = format!(
                    "Package: xx\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b.c>\n\
                     Description: x\n{field}: {text}\n"
                );
                fs::write(root.join("DEBIAN/control"), control).unwrap();
                let mut build = tool("dpkg-deb", "dpkg");
                build.args(["-Znone", "-b"]).arg(&root).arg(dir.path().join(format!("{name}.deb")));
                let ran = run(&mut build);
                ((*text).clone(), deb::parse(text, field).map(drop), ran.status == Some(0))
            };
            texts.iter().map(decide).collect()
        };
        let decided = std::thread::scope(|scope| {
            let second = scope.spawn(|| decide(other, "b"));
            let mut decided = decide(one, "a");
            decided.extend(second.join().unwrap());
            decided
        });
        agree(&format!("dpkg-deb, {field}"), &decided);
    }
}

const RPM_PARTS: [&str; 36] = [
    "aa",
    "bb",
    "c",
    "libz.so.1()(64bit)",
    "pkgconfig(x)",
    "/usr/bin/perl",
    "(",
    ")",
    " ",
    " ",
    ", ",
    "(",
    ")",
    " and ",
    " or ",
    " if ",
    " else ",
    " unless ",
    " with ",
    " without ",
    " >= ",
    " = ",
    " < ",
    " == ",
    " => ",
    "1",
    "1.2-3",
    "1-2-3",
    "2:1.0",
    "x:1",
    "1~rc1",
    "1^git",
    ">=",
    "_a",
    "-a",
    "a!b",
];
const RPM_GOOD: [&str; 16] = [
    "glibc >= 2.34",
    "aa bb",
    "libc.so.6(GLIBC_2.34)(64bit)",
    "/bin/sh",
    "(aa and bb)",
    "(aa or bb >= 1)",
    "(aa if bb)",
    "(aa if bb else c)",
    "(aa unless bb)",
    "(aa with bb)",
    "(aa with bb without c)",
    "(aa and (bb or c))",
    "(aa or (bb if c))",
    "((aa unless bb) or c)",
    "(aa if (bb or c))",
    "(aa = 1 with (bb or c) with d)",
];

#[test]
fn relations_of_rpms_are_what_rpm_takes() {
    for (n, tag) in ["Requires", "Provides", "Conflicts", "Obsoletes", "Supplements", "Recommends"]
        .into_iter()
        .enumerate()
    {
        let dir = tempfile::tempdir().unwrap();
        let texts = texts(&RPM_PARTS, &RPM_GOOD, 700, 20 + n as u64);
        let mut specs = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            let spec = dir.path().join(format!("t{i}.spec"));
            let content = format!(
                "Name: t{i}\nVersion: 1\nRelease: 1\nSummary: s\nLicense: MIT\nBuildArch: noarch\n\
                 {tag}: {text}\n%description\nd\n"
            );
            fs::write(&spec, content).unwrap();
            specs.push(spec);
        }
        let format = format!(
            "%{{name}}|[%{{{}}};]\n",
            tag.to_lowercase().trim_end_matches('s').to_owned() + "nevrs"
        );
        let ran = run(tool("rpmspec", "rpm").args(["-q", "--qf", &format]).args(&specs));
        let taken: std::collections::BTreeMap<&str, &str> =
            ran.stdout.lines().filter_map(|line| line.split_once('|')).collect();
        let decided: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(i, text)| {
                let theirs = taken.get(format!("t{i}").as_str());
                let ours = rpm::parse(text, tag);
                if let (Ok(ours), Some(theirs)) = (&ours, theirs) {
                    // And it is stored as we store it.
                    let ours: BTreeSet<String> = ours.iter().map(ToString::to_string).collect();
                    let theirs: BTreeSet<String> = theirs
                        .split(';')
                        .filter(|one| !one.is_empty() && !one.starts_with(&format!("t{i} = ")))
                        .map(str::to_owned)
                        .collect();
                    assert_eq!(ours, theirs, "{tag}: {text}");
                }
                (text.clone(), ours.map(drop), theirs.is_some())
            })
            .collect();
        agree(&format!("rpm, {tag}"), &decided);
    }
}
