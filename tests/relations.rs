//! Relations and versions, held against the tools of both formats: dpkg's and rpm's own parsers and
//! comparisons decide.

#![allow(clippy::unwrap_used)]

mod common;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{example_config, fails, gfxpack, ok, run, tool};
use gfxpack::package::grammar::{SyntaxError, deb, rpm};
use gfxpack::package::version::{self, map};
use gfxpack::package::{Format, version::compare};
use serde_json::Value;

/// Numbers that look random and are the same in each run: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

// ---- Versions ----

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

// ---- Syntax ----

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

// ---- What the packages file says ----

/// Artifacts with a text file each, recombined, and packages of them.
struct Made {
    dir: tempfile::TempDir,
    packages: PathBuf,
}

/// Definitions by name, each of the artifact of its name; `more` is what else they say.
fn made(artifacts: &[&str], externals: &Value, definitions: &[(&str, Value)]) -> Made {
    let dir = tempfile::tempdir().unwrap();
    for name in artifacts {
        let file = dir.path().join("artifacts").join(name).join("p").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, name).unwrap();
        let manifest = dir.path().join("artifacts").join(name).join("artifact_manifest.txt");
        fs::write(manifest, "p\n").unwrap();
    }
    let definitions: Vec<Value> = definitions
        .iter()
        .map(|(name, more)| {
            let mut definition = more.clone();
            definition["name"] = (*name).into();
            definition["contents"] = serde_json::json!([{ "artifact": name }]);
            definition
        })
        .collect();
    let defaults = serde_json::json!({ "maintainer": "A <a@example.org>", "license": "MIT" });
    let config = serde_json::json!({
        "defaults": defaults, "externals": externals, "packages": definitions,
    });
    let packages = dir.path().join("packages.json");
    fs::write(&packages, config.to_string()).unwrap();
    Made { dir, packages }
}

impl Made {
    fn package(&self, version: &str, args: &[&str]) -> std::process::Command {
        let mut command = gfxpack();
        command.arg("package").arg("--artifacts-dir").arg(self.dir.path().join("artifacts"));
        command.arg("--config").arg(example_config()).arg("--packages").arg(&self.packages);
        command.arg("--output-dir").arg(self.dir.path().join("out"));
        command.args(["--version", version, "--release", "2"]).args(args);
        command
    }

    /// The plan of each package by its name, and the report of planning.
    fn plan(&self) -> (Value, Value) {
        let text = ok(&mut self.package("7.1.0", &["--dry-run", "--json"]));
        let json: Value = serde_json::from_str(&text).unwrap();
        let mut packages = serde_json::json!({});
        for package in json["packages"].as_array().unwrap() {
            packages[package["name"].as_str().unwrap()] = package.clone();
        }
        (packages, json["report"].clone())
    }

    /// The messages of a plan that does not hold; nothing is written.
    #[track_caller]
    fn refused(&self) -> String {
        let told = fails(&mut self.package("7.1.0", &[]), 2);
        assert!(!self.dir.path().join("out").exists(), "{told}");
        told
    }
}

fn none() -> Value {
    serde_json::json!({})
}

#[test]
fn depends_names_definitions_and_externals() {
    let artifacts = ["aa_lib_generic", "bb_lib_generic"];
    let depends = |name: &str| ("aa", serde_json::json!({ "depends": [name] }));
    let externals = serde_json::json!({
        "hip": {}, "comgr": { "deb": "comgr3 (>= 3)", "rpm": "" }, "loader": null,
    });
    let with = |name: &str| {
        let (plan, _) = made(&artifacts, &externals, &[depends(name), ("bb", none())]).plan();
        let aa = &plan["aa"];
        (aa["relations"].clone(), aa["deb_relations"].clone(), aa["rpm_relations"].clone())
    };
    let json = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    let all = |model: &str, deb: &str, rpm: &str| (json(model), json(deb), json(rpm));
    assert_eq!(with("bb"), all(r#"["Requires: bb >= 7.1.0-2"]"#, "{}", "{}"));
    assert_eq!(with("hip"), all("[]", r#"{"depends": ["hip"]}"#, r#"{"requires": ["hip"]}"#));
    assert_eq!(with("comgr"), all("[]", r#"{"depends": ["comgr3 (>= 3)"]}"#, "{}"));
    assert_eq!(with("loader"), all("[]", "{}", "{}"));

    let unknown = made(&artifacts, &externals, &[depends("hpi"), ("bb", none())]).refused();
    assert!(
        unknown.contains("package `aa`: depends on `hpi`, which the packages file does not define")
    );
    assert!(unknown.contains(r#"say so in `externals`: {"hpi": {}}"#), "{unknown}");
    let part = made(&artifacts, &externals, &[depends("bb-generic"), ("bb", none())]).refused();
    assert!(part.contains("`depends` names definitions: `bb` gives each package"), "{part}");
    // Of `bb` there is no file, so no package either.
    let empty = made(&artifacts[..1], &externals, &[depends("bb"), ("bb", none())]).refused();
    assert!(empty.contains("depends on `bb`, of which no package is made"), "{empty}");
}

#[test]
fn each_kind_of_package_has_its_relations() {
    let artifacts = ["aa_lib_generic", "aa_lib_gfx110X", "aa_lib_gfx120X"];
    let more = serde_json::json!({
        "deb": { "pre_depends": ["dpkg (>= 1.19)"], "enhances": ["cc"] },
        "rpm": { "supplements": ["(cc if dd)"], "enhances": ["cc"] },
        "relations": {
            "group": {
                "deb": { "breaks": ["old-{group} (<< {version})"], "replaces": ["old-{group}"] },
                "rpm": { "obsoletes": ["old-{group} < {upstream_version}"], "recommends": ["{name}-x"] },
            },
            "meta": { "deb": { "recommends": ["aa-kernels | cc"] } },
        },
    });
    // `if` cannot stand where packages ask for others in reverse.
    let told = made(&artifacts, &none(), &[("aa", more.clone())]).refused();
    assert!(
        told.contains(
            "package `aa`: rpm.supplements: `(cc if dd)`: character 1, at `(cc if dd)`: `if` \
                       cannot stand here: write it with `and`"
        ),
        "{told}"
    );
    let mut good = more;
    good["rpm"]["supplements"] = serde_json::json!(["(cc and dd)"]);
    let (plan, _) = made(&artifacts, &none(), &[("aa", good)]).plan();
    let own = |name: &str, format: &str| plan[name][format].clone();
    assert_eq!(
        own("aa-generic", "deb_relations"),
        serde_json::json!({ "pre-depends": ["dpkg (>= 1.19)"], "enhances": ["cc"] })
    );
    assert_eq!(
        own("aa-generic", "rpm_relations"),
        serde_json::json!({ "supplements": ["(cc and dd)"], "enhances": ["cc"] })
    );
    assert_eq!(
        own("aa-gfx110X", "deb_relations"),
        serde_json::json!({ "breaks": ["old-gfx110x (<< 7.1.0-2)"], "replaces": ["old-gfx110x"] })
    );
    assert_eq!(
        own("aa-gfx120X", "rpm_relations"),
        serde_json::json!({ "obsoletes": ["old-gfx120X < 7.1.0"], "recommends": ["aa-gfx120X-x"] })
    );
    assert_eq!(
        own("aa", "deb_relations"),
        serde_json::json!({ "recommends": ["aa-kernels | cc"] })
    );
}

#[test]
fn packages_of_kinds_have_theirs() {
    let more = serde_json::json!({
        "kinds": ["dev"],
        "relations": { "dev": {
            "deb": { "replaces": ["old-dev (<< {version})"] },
            "rpm": { "obsoletes": ["old-devel < {version}"] },
        } },
    });
    let (plan, _) = made(&["aa_lib_generic", "aa_dev_generic"], &none(), &[("aa", more)]).plan();
    let dev = &plan["aa-dev"];
    assert_eq!(dev["relations"], serde_json::json!(["Requires: aa = 7.1.0-2"]));
    assert_eq!(dev["deb_relations"], serde_json::json!({ "replaces": ["old-dev (<< 7.1.0-2)"] }));
    assert_eq!(dev["rpm_relations"], serde_json::json!({ "obsoletes": ["old-devel < 7.1.0-2"] }));
    assert_eq!(plan["aa"]["deb_relations"], none());
}

#[test]
fn all_faults_of_relations_are_told_with_their_place() {
    let more = serde_json::json!({
        "deb": { "depends": ["libc6 >= 2.34", "aa [amd64]"], "provides": ["bb (>= 1)"] },
        "rpm": { "requires": ["(aa and bb", "foo>=1"] },
        "relations": { "meta": { "rpm": { "requires": ["{group}"] } } },
    });
    let externals = serde_json::json!({ "libx.so.1": { "deb": "x1 (>=)" } });
    let told = made(&["aa_lib_generic"], &externals, &[("aa", more)]).refused();
    for words in [
        "package `aa`: deb.depends: `libc6 >= 2.34`: character 7, at `>= 2.34`: found `>`",
        "package `aa`: deb.depends: `aa [amd64]`: character 4, at `[amd64]`: architectures in `[]`",
        "package `aa`: deb.provides: `bb (>= 1)`",
        "package `aa`: rpm.requires: `(aa and bb`: character 1",
        "package `aa`: rpm.requires: `foo>=1`: character 4",
        "package `aa`: relations.meta.rpm.requires: `{group}`: there is no `{group}` here",
        "externals.libx.so.1.deb: `x1 (>=)`",
    ] {
        assert!(told.contains(words), "{words}\n{told}");
    }
}

#[test]
fn what_the_set_does_not_make_is_an_error_of_the_plan() {
    let artifacts = ["aa_lib_generic", "aa_lib_gfx110X", "bb_lib_generic"];
    let with = |more: Value| made(&artifacts, &none(), &[("aa", none()), ("bb", more)]);
    for (more, words) in [
        (
            serde_json::json!({ "deb": { "depends": ["aa-gfx120X"] } }),
            "package `bb`: needs `aa-gfx120x`, which the set does not make",
        ),
        (
            serde_json::json!({ "rpm": { "requires": ["(bb-generic and cc)"] } }),
            "package `bb`: needs `(bb-generic and cc)`, which the set does not make",
        ),
        (
            serde_json::json!({ "deb": { "pre_depends": ["aa-generic (<< 7)"] } }),
            "package `bb`: needs `aa-generic (<< 7)`, but the set has aa-generic (7.1.0-2)",
        ),
        (
            // Without a release, dpkg takes it for earlier than any with one.
            serde_json::json!({ "deb": { "depends": ["aa-generic (= 7.1.0)"] } }),
            "needs `aa-generic (= 7.1.0)`, but the set has",
        ),
    ] {
        let told = with(more).refused();
        assert!(told.contains(words), "{words}\n{told}");
    }
    // What installs with the rest of the set does not exclude it.
    for more in [
        serde_json::json!({ "deb": { "breaks": ["aa (<< 7.2)"] } }),
        serde_json::json!({ "rpm": { "obsoletes": ["aa <= {version}"] } }),
        serde_json::json!({ "rpm": { "conflicts": ["aa-kernels"] } }),
    ] {
        let told = with(more).refused();
        assert!(told.contains("(7.1.0-2) of the same set"), "{told}");
    }
    with(serde_json::json!({
        "deb": { "breaks": ["aa (<< {version})"] },
        "rpm": { "obsoletes": ["aa-kernels", "aa < {version}"] },
    }))
    .plan();
    let good = serde_json::json!({
        "deb": { "depends": ["aa-gfx120X | cc", "aa-generic (= {version})", "aa-kernels", "aa-gfx110X"] },
        "rpm": { "requires": ["aa-generic = 7.1.0", "(aa-gfx120X or cc)", "(aa-gfx120X if cc)"] },
    });
    with(good).plan();
}

#[test]
fn packages_that_need_each_other_in_a_circle_are_an_error_of_the_plan() {
    let artifacts = ["aa_lib_generic", "bb_lib_generic", "cc_lib_generic", "cc_lib_gfx110X"];
    let on = |name: &str| serde_json::json!({ "depends": [name] });
    let set = made(&artifacts, &none(), &[("aa", on("bb")), ("bb", on("cc")), ("cc", on("aa"))]);
    let told = set.refused();
    assert!(
        told.contains(
            "packages need each other in a circle: `aa` needs `bb (>= 7.1.0-2)`, `bb` needs \
             `cc-generic (>= 7.1.0-2)`, `cc-generic` needs `aa (>= 7.1.0-2)`"
        ),
        "{told}"
    );
    assert_eq!(told.matches("in a circle").count(), 1, "once for both formats:\n{told}");
    // All that provides the kernels leads back to who asks for them.
    let kernels = serde_json::json!({ "deb": { "depends": ["cc-kernels"] } });
    let told = made(&artifacts, &none(), &[("cc", kernels)]).refused();
    assert!(
        told.contains("`cc-generic` needs `cc-kernels`, `cc-gfx110X` needs `cc-generic"),
        "{told}"
    );
    let either = serde_json::json!({ "deb": { "depends": ["cc-kernels | other"] } });
    made(&artifacts, &none(), &[("cc", either)]).plan();
    let meta = serde_json::json!({
        "relations": { "meta": { "deb": { "depends": ["cc-kernels"] } } },
    });
    made(&artifacts, &none(), &[("cc", meta)]).plan();
}

#[test]
fn the_version_is_written_for_both_formats_and_told() {
    let set = made(&["aa_lib_generic"], &none(), &[("aa", none())]);
    let ran = run(&mut set.package("7.1.0rc1", &["--json", "--dry-run"]));
    assert!(ran.stderr.contains("version 7.1.0rc1 → 7.1.0~rc1"), "{}", ran.stderr);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        json["report"]["stage"]["version"],
        serde_json::json!({ "given": "7.1.0rc1", "written": "7.1.0~rc1" })
    );
    assert_eq!(json["packages"][0]["files"][0], "aa_7.1.0~rc1-2_amd64.deb");
    let same = run(&mut set.package("7.1.0~rc1", &["--json", "--dry-run"]));
    assert!(!same.stderr.contains("version"), "{}", same.stderr);
    assert!(!same.stdout.contains("written"), "{}", same.stdout);
    let unknown = run(&mut set.package("7.1.0~foo", &["--dry-run"]));
    assert_eq!(unknown.status, Some(0));
    assert!(
        unknown.stderr.contains("dpkg and rpm may put it in a different order"),
        "{}",
        unknown.stderr
    );
    let told = fails(&mut set.package("7.1.0-1", &[]), 2);
    assert!(told.contains("the packaging's number is --release"), "{told}");
}

/// What both formats' tools read back of packages with every kind of relation, rich ones too.
#[test]
fn relations_are_written_as_the_tools_read_them() {
    let more = serde_json::json!({
        "deb": {
            "pre_depends": ["dpkg (>= 1.19)"], "depends": ["perl:any | python3 (>= 3.9)"],
            "recommends": ["cc"], "suggests": ["dd"], "enhances": ["ee"], "conflicts": ["ff (<< 2)"],
            "breaks": ["gg (<< {version})"], "replaces": ["gg (<< {version})"], "provides": ["hh (= 1)"],
        },
        "rpm": {
            "requires": ["( perl  or python3 >= 3.9 )", "bb >= 1"], "recommends": ["cc"],
            "suggests": ["(dd with dd-extra)"], "supplements": ["(xx and yy)"], "enhances": ["ee"],
            "conflicts": ["ff < 2"], "obsoletes": ["gg < {version}"], "provides": ["hh = 1"],
        },
    });
    let set = made(&["aa_lib_generic"], &none(), &[("aa", more.clone())]);
    ok(&mut set.package("7.1.0", &[]));
    let out = set.dir.path().join("out");
    let fields =
        "Pre-Depends Depends Recommends Suggests Enhances Conflicts Breaks Replaces Provides";
    let deb = ok(tool("dpkg-deb", "dpkg")
        .arg("--field")
        .arg(out.join("aa_7.1.0-2_amd64.deb"))
        .args(fields.split(' ')));
    for line in [
        "Pre-Depends: dpkg (>= 1.19)",
        "Depends: perl:any | python3 (>= 3.9)",
        "Breaks: gg (<< 7.1.0-2)",
        "Replaces: gg (<< 7.1.0-2)",
        "Provides: hh (= 1)",
    ] {
        assert!(deb.lines().any(|have| have == line), "{line}\n{deb}");
    }
    // A spec file with the same, built by rpmbuild: the same relations with the same flags.
    let rpm = out.join("aa-7.1.0-2.x86_64.rpm");
    let top = set.dir.path().join("rpmbuild");
    let mut spec = "Name: aa\nVersion: 7.1.0\nRelease: 2\nSummary: s\nLicense: MIT\n".to_owned();
    for (tag, texts) in more["rpm"].as_object().unwrap() {
        for text in texts.as_array().unwrap() {
            spec += &format!("{tag}: {}\n", text.as_str().unwrap().replace("{version}", "7.1.0-2"));
        }
    }
    spec += "%description\nd\n%files\n";
    fs::create_dir(&top).unwrap();
    fs::write(top.join("aa.spec"), spec).unwrap();
    ok(tool("rpmbuild", "rpm")
        .args(["-bb", "--target", "x86_64", "--define"])
        .arg(format!("_topdir {}", top.display()))
        .arg(top.join("aa.spec")));
    let query = |path: &Path| -> BTreeSet<String> {
        let mut format = String::new();
        for (list, tag) in [
            ("REQUIRE", "REQUIRE"),
            ("PROVIDE", "PROVIDE"),
            ("CONFLICT", "CONFLICT"),
            ("OBSOLETE", "OBSOLETE"),
            ("RECOMMEND", "RECOMMEND"),
            ("SUGGEST", "SUGGEST"),
            ("SUPPLEMENT", "SUPPLEMENT"),
            ("ENHANCE", "ENHANCE"),
        ] {
            format += &format!("[{list} %{{{tag}NAME}} %{{{tag}FLAGS}} %{{{tag}VERSION}}\\n]");
        }
        let printed = ok(tool("rpm", "rpm").args(["-qp", "--qf", &format]).arg(path));
        // How the payload and the files are stored depends on what there is in a package.
        let of_files = |line: &&str| !line.contains("rpmlib(") || line.contains("Rich");
        printed.lines().filter(of_files).map(str::to_owned).collect()
    };
    let theirs = query(&top.join("RPMS/x86_64/aa-7.1.0-2.x86_64.rpm"));
    let ours = query(&rpm);
    assert_eq!(ours, theirs);
    assert!(ours.iter().any(|line| line.contains("rpmlib(RichDependencies)")), "{ours:#?}");
    assert!(ours.contains("REQUIRE (perl or python3 >= 3.9) 0 "), "{ours:#?}");
}

#[test]
fn what_gfxpack_makes_itself_is_in_no_artifact() {
    let set =
        made(&["aa_lib_generic", "bb_lib_generic"], &none(), &[("aa", none()), ("bb", none())]);
    let doc = set.dir.path().join("artifacts/aa_lib_generic/p/share/doc/bb");
    fs::create_dir_all(&doc).unwrap();
    fs::write(doc.join("copyright"), "text").unwrap();
    let told = fails(&mut set.package("1", &["--install-prefix", "/usr"]), 1);
    let words = "/usr/share/doc/bb/copyright of the package aa is made by gfxpack for bb";
    assert!(told.contains(words), "{told}");
    assert!(!set.dir.path().join("out").exists());
}

#[test]
fn a_path_is_in_one_package_and_of_one_kind() {
    let set =
        made(&["aa_lib_generic", "bb_lib_generic"], &none(), &[("aa", none()), ("bb", none())]);
    let base = |name: &str| set.dir.path().join(format!("artifacts/{name}_lib_generic/p"));
    for name in ["aa", "bb"] {
        fs::write(base(name).join("same"), name).unwrap();
        std::os::unix::fs::symlink("same", base(name).join("zlink")).unwrap();
    }
    let told = fails(&mut set.package("1", &[]), 1);
    assert!(told.contains("/opt/rocm/same would be in both of the packages aa and bb"), "{told}");
    for name in ["aa", "bb"] {
        fs::remove_file(base(name).join("same")).unwrap();
    }
    // A link to the same place is a path of both all the same.
    let told = fails(&mut set.package("1", &[]), 1);
    assert!(told.contains("/opt/rocm/zlink would be in both of the packages aa and bb"), "{told}");
    fs::remove_file(base("aa").join("zlink")).unwrap();
    fs::create_dir(base("aa").join("zlink")).unwrap();
    let told = fails(&mut set.package("1", &[]), 1);
    let words = "/opt/rocm/zlink would be a directory in one and not in the other of the packages aa and bb";
    assert!(told.contains(words), "{told}");
}
