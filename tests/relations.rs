//! What the packages file says of relations and versions: the plan that comes of it, what the tools of both
//! formats read back, and the errors of plans that do not hold.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{example_config, fails, gfxpack, ok, run, tool};
use serde_json::Value;

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
            if definition["contents"].is_null() {
                definition["contents"] = serde_json::json!([{ "artifact": name }]);
            }
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
        let mut deb = aa["deb_relations"].clone();
        deb.as_object_mut().unwrap().remove("replaces");
        (aa["relations"].clone(), deb, aa["rpm_relations"].clone())
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
    let may_be_absent = serde_json::json!({ "contents": [{ "artifact": "bb", "optional": true }] });
    let empty =
        made(&artifacts[..1], &externals, &[depends("bb"), ("bb", may_be_absent)]).refused();
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
        serde_json::json!({
            "pre-depends": ["dpkg (>= 1.19)"], "enhances": ["cc"],
            // What a release before this one may have been cut into, and a later one is.
            "replaces": [
                "aa", "aa-dbgsym", "aa-dev", "aa-doc", "aa-gfx110x", "aa-gfx115x", "aa-gfx120x", "aa-tests",
            ],
        })
    );
    assert_eq!(
        own("aa-generic", "rpm_relations"),
        serde_json::json!({ "supplements": ["(cc and dd)"], "enhances": ["cc"] })
    );
    assert_eq!(
        own("aa-gfx110X", "deb_relations"),
        serde_json::json!({
            "breaks": ["old-gfx110x (<< 7.1.0-2)"],
            "replaces": [
                "old-gfx110x", "aa", "aa-dbgsym", "aa-dev", "aa-doc", "aa-generic", "aa-gfx115x", "aa-gfx120x",
                "aa-tests",
            ],
        })
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
    assert_eq!(
        dev["deb_relations"],
        serde_json::json!({
            "replaces": ["old-dev (<< 7.1.0-2)", "aa", "aa-dbgsym", "aa-doc", "aa-generic", "aa-tests"],
        })
    );
    assert_eq!(dev["rpm_relations"], serde_json::json!({ "obsoletes": ["old-devel < 7.1.0-2"] }));
    assert_eq!(
        plan["aa"]["deb_relations"],
        serde_json::json!({ "replaces": ["aa-dbgsym", "aa-dev", "aa-doc", "aa-generic", "aa-tests"] })
    );
}

#[test]
fn tests_with_device_code_have_relations_of_their_own() {
    let more = serde_json::json!({
        "kinds": ["tests"],
        "relations": {
            "tests": { "deb": { "suggests": ["hw-data"] }, "rpm": { "suggests": ["hw-data"] } },
            "tests_group": {
                "deb": { "breaks": ["old-tests-{group} (<< {version})"] },
                "rpm": { "obsoletes": ["old-tests-{group} < {version}"] },
            },
        },
    });
    let artifacts = ["aa_lib_generic", "aa_test_generic", "aa_test_gfx110X"];
    let (plan, _) = made(&artifacts, &none(), &[("aa", more.clone())]).plan();
    let own = |name: &str, key: &str, list: &str| plan[name][key][list].clone();
    let suggests = serde_json::json!(["hw-data"]);
    assert_eq!(own("aa-tests", "deb_relations", "suggests"), suggests);
    assert_eq!(own("aa-tests", "rpm_relations", "suggests"), suggests);
    assert_eq!(own("aa-tests", "deb_relations", "breaks"), Value::Null);
    assert_eq!(
        own("aa-tests-gfx110X", "deb_relations", "breaks"),
        serde_json::json!(["old-tests-gfx110x (<< 7.1.0-2)"])
    );
    assert_eq!(
        plan["aa-tests-gfx110X"]["rpm_relations"],
        serde_json::json!({ "obsoletes": ["old-tests-gfx110X < 7.1.0-2"] })
    );
    // There is one package of tests without a group.
    let mut wrong = more;
    wrong["relations"]["tests"] = serde_json::json!({ "rpm": { "requires": ["{group}"] } });
    let told = made(&artifacts, &none(), &[("aa", wrong)]).refused();
    assert!(told.contains("relations.tests.rpm.requires: `{group}`: there is no"), "{told}");
}

#[test]
fn conditions_of_rich_relations_hold_where_the_set_has_what_they_name() {
    let artifacts = ["aa_lib_generic", "aa_lib_gfx110X", "bb_lib_generic"];
    let with = |requires: &str| {
        let more = serde_json::json!({ "rpm": { "requires": [requires] } });
        made(&artifacts, &none(), &[("aa", none()), ("bb", more)])
    };
    // The group gfx120X is configured, and no artifact has code for it.
    for text in [
        "(aa-gfx120X if aa-generic)",
        "(aa-gfx120X if (aa-generic and aa-gfx110X))",
        "(aa-gfx120X if (cc or aa-kernels) else cc)",
        "(aa-gfx120X or (aa-gfx120X and cc))",
        "(aa-gfx110X or aa-gfx120X) (cc and aa-gfx120X)",
        "(aa-gfx120X without cc)",
    ] {
        let told = with(text).refused();
        assert!(told.contains("`, which the set does not make"), "{text}: {told}");
        assert!(told.contains("package `bb`: needs `("), "{text}: {told}");
    }
    let told = with("(aa-gfx110X < 7 if aa-generic)").refused();
    assert!(told.contains("but the set has aa-gfx110X (7.1.0-2)"), "{told}");
    for text in [
        "(aa-gfx120X if cc)",
        "(aa-gfx120X if (aa-generic and cc))",
        "(aa-gfx120X if aa-generic < 7)",
        "(aa-gfx120X or (aa-gfx110X and cc))",
        "(cc if aa-generic else aa-gfx120X)",
        "(aa-generic if aa-gfx110X)",
    ] {
        with(text).plan();
    }
    // In a circle stands what is needed in any case alone.
    let circle = |requires: &str| {
        let [aa, bb] = [requires, "aa-generic"]
            .map(|text| serde_json::json!({ "rpm": { "requires": [text] } }));
        made(&artifacts, &none(), &[("aa", aa), ("bb", bb)])
    };
    circle("(bb if aa-gfx110X)").plan();
    assert!(circle("(bb if aa-generic)").refused().contains("in a circle"), "it is aa-generic");
    assert!(circle("(bb and cc)").refused().contains("in a circle"));

    let conflicts = |text: &str| {
        let more = serde_json::json!({ "rpm": { "conflicts": [text] } });
        made(&artifacts, &none(), &[("aa", none()), ("bb", more)])
    };
    for text in [
        "(aa-generic and aa-gfx110X)",
        "(cc or aa-generic)",
        "(aa-kernels with aa-gfx110X)",
        "(aa-generic without aa-kernels)",
    ] {
        let told = conflicts(text).refused();
        assert!(told.contains(&format!("`{text}` excludes aa-g")), "{text}: {told}");
    }
    for text in [
        "(aa-generic and cc)",
        "(aa-generic with aa-kernels)",
        "(aa-gfx110X without aa-kernels)",
        "(aa-generic unless cc)",
        "(aa-generic < 7 or cc)",
    ] {
        conflicts(text).plan();
    }
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

/// rpm reads relations in parentheses since 4.12.
#[test]
fn relations_that_an_old_rpm_does_not_read_are_refused_for_it() {
    let more = serde_json::json!({ "rpm": { "requires": ["(bash or zsh)"] } });
    let set = made(&["aa_lib_generic"], &none(), &[("aa", more)]);
    ok(&mut set.package("7.1.0", &["--dry-run", "--compat", "el8"]));
    ok(&mut set.package("7.1.0", &["--dry-run", "--compat", "el7", "--format", "deb"]));
    let told = fails(&mut set.package("7.1.0", &["--dry-run", "--compat", "el7"]), 2);
    let what = "package `aa` and --compat el7: el7 has rpm 4.11, and the relation `(bash or zsh)` needs 4.12";
    assert!(told.contains(what), "{told}");
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
        "Replaces: gg (<< 7.1.0-2), aa-dbgsym, aa-dev, aa-doc, aa-generic, aa-tests",
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
