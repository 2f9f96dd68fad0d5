//! What `repo` says before it does it, what it keeps in mind between runs, and settings that change.

#![allow(clippy::unwrap_used)]

#[path = "common/clients.rs"]
mod clients;
mod common;
#[path = "common/http.rs"]
mod http;
#[path = "common/keys.rs"]
mod keys;
#[path = "common/packages.rs"]
mod packages;
#[path = "common/repositories.rs"]
mod repositories;
#[path = "common/roots.rs"]
mod roots;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use clients::AptGet;
use common::{Ran, fails, files, gfxpack, ok, run, snapshot, tool};
use gfxpack::jobs::Jobs;
use gfxpack::package::Format;
use gfxpack::package::spec::{Kind, Relation, RelationKind};
use gfxpack::progress::Silent;
use gfxpack::repo::store::{Repository, Settings};
use gfxpack::repo::work;
use http::Server;
use repositories::{DAY, DAY_ONE, release, signed, unsigned};
use serde_json::Value;
use tempfile::TempDir;

/// Releases in both formats.
fn both(number: usize, starts: &[&str]) -> Vec<PathBuf> {
    [release(number, "deb", starts), release(number, "rpm", starts)].concat()
}

// ---- dry runs ----

/// Runs this where nobody may write, root neither.
fn without_power(command: &Command) -> Command {
    let mut wrapped = tool("setpriv", "util-linux");
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        wrapped.args(["--bounding-set=-all", "--inh-caps=-all"]);
    }
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}

fn outcome(command: &mut Command) -> Value {
    let json: Value = serde_json::from_str(&ok(command.arg("--json"))).unwrap();
    json["outcome"].clone()
}

#[test]
fn a_dry_run_says_what_the_run_does_and_does_nothing() {
    let temp = TempDir::new().unwrap();
    let (dir, other) = (temp.path().join("repo"), temp.path().join("other"));
    let mut create = signed("create", &dir);
    create.args(both(0, &[])).args(["--keep-publications", "1", "--keep-days", "0"]);
    ok(create.arg("--sign-packages"));
    ok(unsigned("create", &other).args(both(1, &[])));
    let other = other.into_os_string().into_string().unwrap();
    let third: Vec<String> =
        both(2, &[]).iter().map(|path| path.to_str().unwrap().to_owned()).collect();
    let third: Vec<&str> = third.iter().map(String::as_str).collect();
    let steps: [(&str, Vec<&str>, usize, usize); 6] = [
        ("merge", vec![&other], 8, 0),
        ("add", third.clone(), 8, 0),
        // Those that are there already, in bytes that signing makes.
        ("add", [vec!["--sign-packages"], third].concat(), 0, 0),
        ("remove", vec!["*=7.2.0-1"], 0, 8),
        ("prune", vec!["--keep", "1"], 0, 8),
        ("set", vec!["--label", "Other", "--description", "of all"], 0, 0),
    ];
    for (n, (action, args, added, removed)) in steps.iter().enumerate() {
        let sign = if n == 1 { &["--sign-packages"][..] } else { &[] };
        let command = || {
            let mut command = signed(action, &dir);
            command.args(args).args(sign);
            command
        };
        let before = snapshot(&dir);
        let said = outcome(command().arg("--dry-run"));
        assert_eq!(snapshot(&dir), before, "{action}");
        let text = ok(command().arg("--dry-run"));
        assert!(text.contains("would "), "{text}");
        let lines = |sign: &str| text.lines().filter(|line| line.starts_with(sign)).count();
        assert_eq!((lines("+ "), lines("- ")), (*added, *removed), "{text}");
        // No key is needed, but for packages that are to be signed.
        if n > 2 {
            assert_eq!(outcome(unsigned(action, &dir).args(args).arg("--dry-run")), said);
        }
        // The run does that, file by file.
        let there = files(&dir);
        let done = outcome(&mut command());
        assert_eq!(done, said, "{action}");
        let gone = done["published"]["removed_files"].as_array();
        for path in gone.into_iter().flatten() {
            let path = path.as_str().unwrap().to_owned();
            assert!(there.contains(&path) && !dir.join(&path).exists(), "{path}");
        }
        let number = |what: &str| done[what].as_array().unwrap().len();
        assert_eq!((number("added"), number("removed")), (*added, *removed), "{action}");
    }
    // Where nothing would change.
    let said = ok(unsigned("prune", &dir).args(["--keep", "1", "--dry-run"]));
    assert!(said.contains("nothing would be added or removed; it would stay as it is"), "{said}");
}

#[test]
fn a_dry_run_fails_where_the_run_does() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(release(0, "deb", &[])));
    let generic = release(1, "deb", &["rocblas-generic"]);
    let stderr = fails(unsigned("add", &dir).args(&generic).arg("--dry-run"), 1);
    assert!(stderr.contains("rocblas-gfx110x 7.1.0-1 amd64 needs rocblas-generic"), "{stderr}");
    let mut allowed = unsigned("add", &dir);
    let ran = run(allowed.args(&generic).args(["--dry-run", "--allow-partial"]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("warning: rocblas-gfx110x 7.1.0-1"), "{ran:?}");
    let absent = temp.path().join("absent");
    fails(unsigned("prune", &absent).args(["--keep", "1", "--dry-run"]), 1);
    assert!(!absent.exists());
}

#[test]
fn a_dry_run_needs_no_right_to_write() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(both(0, &[])));
    ok(tool("chmod", "coreutils").args(["-R", "a-w"]).arg(&dir));
    let mut add = unsigned("add", &dir);
    add.args(both(1, &[]));
    // Nothing can be written there.
    let ran = run(&mut without_power(&add));
    assert_ne!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("Permission denied"), "{ran:?}");
    for (action, args) in [
        ("add", vec![]),
        ("prune", vec!["--keep", "1"]),
        ("remove", vec!["*"]),
        ("set", vec!["--keep-days", "9"]),
    ] {
        let mut rehearsal = unsigned(action, &dir);
        if action == "add" {
            rehearsal.args(both(1, &[]));
        }
        ok(&mut without_power(rehearsal.args(args).arg("--dry-run")));
    }
    ok(tool("chmod", "coreutils").args(["-R", "u+w"]).arg(&dir));
}

// ---- two publications that are one partial release ----

#[test]
fn a_partial_release_in_two_steps_is_refused_as_well() {
    for format in ["deb", "rpm"] {
        let temp = TempDir::new().unwrap();
        let dir = temp.path().join("repo");
        ok(unsigned("create", &dir).args(release(0, format, &[])));
        // A group leaves: alone, that holds nobody back.
        let group = if format == "deb" { "rocblas-gfx120x" } else { "rocblas-gfx120X" };
        ok(unsigned("remove", &dir).arg(group));
        // Something else happens.
        ok(unsigned("add", &dir).args(release(1, format, &["hip-runtime"])));
        ok(&mut unsigned("publish", &dir));
        // Now what it needs goes on.
        let rest = release(1, format, &["rocblas-generic", "rocblas-gfx110x"]);
        let add = || {
            let mut add = unsigned("add", &dir);
            add.args(&rest);
            add
        };
        let stderr = fails(&mut add(), 1);
        assert!(
            stderr.contains(group) && stderr.contains("is gone and nothing replaces it"),
            "{stderr}"
        );
        // With a new one of its name all is well.
        let state = fs::read(dir.join(".gfxpack/state")).unwrap();
        let whole = ok(add().args(release(1, format, &["rocblas-gfx120x"])).arg("--dry-run"));
        assert!(whole.contains("3 packages would be added"), "{whole}");
        // With one that replaces it as well, and then it is not to go.
        let kind = if format == "deb" { Format::Deb } else { Format::Rpm };
        let mut heir = packages::sample("rocblas-heir", Kind::Plain);
        heir.date = DAY_ONE + DAY;
        packages::file(&mut heir.tree, "opt/heir", 0o644, "x");
        for relation in ["replaces", "conflicts"] {
            let kind = match relation {
                "replaces" => RelationKind::Replaces,
                _ => RelationKind::Conflicts,
            };
            heir.relate(kind, Relation::any(group));
        }
        let heir = packages::write(&heir, kind, temp.path());
        ok(add().arg(&heir));
        let stderr = fails(unsigned("remove", &dir).arg("rocblas-heir"), 1);
        assert!(stderr.contains(group), "{stderr}");
        // Once it is said and published all the same, it is not said again.
        ok(unsigned("remove", &dir).args(["rocblas-heir", "--allow-partial"]));
        ok(unsigned("add", &dir).args(release(
            2,
            format,
            &["hip", "rocblas-gen", "rocblas-gfx110x"],
        )));
        assert_ne!(fs::read(dir.join(".gfxpack/state")).unwrap(), state);
    }
}

// ---- settings ----

/// An apt that knows the repository, and the address of that.
struct Served {
    dir: PathBuf,
    client: AptGet,
    _server: Server,
    _temp: TempDir,
}

impl Served {
    fn new() -> Self {
        let temp = TempDir::new().unwrap();
        let dir = temp.path().join("repo");
        let server = Server::new(&dir);
        let mut create = signed("create", &dir);
        create.args(both(0, &[])).args(["--origin", "Example", "--url", server.url()]);
        ok(&mut create);
        let served = Self { dir, client: AptGet::bare(), _server: server, _temp: temp };
        served.use_sources();
        served.updates(&[]);
        served
    }

    fn use_sources(&self) {
        let sources = files(&self.dir.join("deb"));
        let sources: Vec<_> = sources.iter().filter(|path| path.ends_with(".sources")).collect();
        assert_eq!(sources.len(), 1, "{sources:?}");
        let text = fs::read_to_string(self.dir.join("deb").join(sources[0])).unwrap();
        self.client.apt().use_sources(&text);
    }

    fn update(&self, args: &[&str]) -> Ran {
        run(self.client.apt().command("apt-get").arg("update").args(args))
    }

    #[track_caller]
    fn updates(&self, args: &[&str]) {
        let ran = self.update(args);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(!ran.stderr.contains("W:") && !ran.stderr.contains("E:"), "{ran:?}");
    }

    /// Sets something, and gives the warnings.
    #[track_caller]
    fn set(&self, args: &[&str]) -> String {
        let ran = run(signed("set", &self.dir).args(args));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let warnings = ran.stderr.lines().filter(|line| line.starts_with("warning:"));
        warnings.collect::<Vec<_>>().join("\n")
    }

    fn release(&self, suite: &str) -> String {
        fs::read_to_string(self.dir.join("deb/dists").join(suite).join("Release")).unwrap()
    }

    fn settings(&self) -> Value {
        let list = ok(unsigned("list", &self.dir).arg("--json"));
        serde_json::from_str::<Value>(&list).unwrap()["settings"].clone()
    }

    /// All is as clients want to have it.
    fn verify(&self) {
        let mut verify = gfxpack();
        verify.args(["--quiet", "verify", "--repo-dir"]).arg(&self.dir);
        ok(verify.arg("--key").arg(repositories::public_key()));
    }
}

#[test]
fn settings_that_clients_do_not_notice_are_changed_without_a_word() {
    let served = Served::new();
    let date = (DAY_ONE + DAY).to_string();
    for (args, shown) in [
        (vec!["--description", "Packages for all"], ("description", "Packages for all".into())),
        (vec!["--keep-days", "9"], ("keep_days", 9.into())),
        (vec!["--keep-publications", "7"], ("keep_publications", 7.into())),
        (vec!["--rpm-compression", "gzip"], ("rpm_compression", "gzip".into())),
        (vec!["--arch", "amd64,arm64"], ("arch", serde_json::json!(["amd64", "arm64"]))),
        (vec!["--valid-days", "3650", "--date", &date], ("valid_days", Value::from(3650))),
    ] {
        assert_eq!(served.set(&args), "", "{args:?}");
        assert_eq!(served.settings()[shown.0], shown.1, "{args:?}");
        served.verify();
    }
    let text = served.release("stable");
    for line in [
        "Description: Packages for all\n",
        "Origin: Example\n",
        "Label: Example\n",
        "Architectures: amd64 arm64\n",
        "Valid-Until: ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let repomd = fs::read_to_string(served.dir.join("rpm/repodata/repomd.xml")).unwrap();
    assert!(repomd.contains("-primary.xml.gz\"") && !repomd.contains(".zst"), "{repomd}");
    // Back to what it was; and the same once more is no publication.
    served.set(&["--valid-days", "0"]);
    assert!(!served.release("stable").contains("Valid-Until"));
    let again = ok(signed("set", &served.dir).args(["--valid-days", "0"]));
    assert!(again.contains("it stays as it is"), "{again}");
    served.updates(&[]);
}

#[test]
fn settings_that_break_clients_are_told_and_do() {
    let served = Served::new();
    for (option, field, text) in [
        ("--label", "Label", "of its own"),
        ("--origin", "Origin", "another"),
        ("--codename", "Codename", "another"),
    ] {
        let said = served.set(&[option, text]);
        assert!(said.contains(&format!("{field} from `")), "{said}");
        assert!(said.contains("--allow-releaseinfo-change"), "{said}");
        let ran = served.update(&[]);
        assert_ne!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stderr.contains(&format!("changed its '{field}' value")), "{ran:?}");
        served.update(&["--allow-releaseinfo-change"]);
        served.updates(&[]);
        served.verify();
    }
    // Files to be copied are called after the origin.
    assert_eq!(files(&served.dir.join("rpm")).iter().filter(|p| p.ends_with(".repo")).count(), 1);
    assert!(served.dir.join("rpm/another.repo").exists());

    let said = served.set(&["--suite", "nightly", "--codename", "another"]);
    assert!(
        said.contains("clients whose sources say `Suites: stable` find nothing any more"),
        "{said}"
    );
    assert!(!said.contains("--allow-releaseinfo-change"), "{said}");
    assert!(!served.dir.join("deb/dists/stable/InRelease").exists());
    assert_ne!(served.update(&[]).status, Some(0));
    served.use_sources();
    served.updates(&[]);
    served.verify();

    let said = served.set(&["--url", "http://localhost:1/elsewhere"]);
    assert!(said.contains("clients go on asking at http://127.0.0.1:"), "{said}");
    let said = served.set(&["--component", "gfx110x=*-gfx110x"]);
    assert!(said.contains("components are those of packages that come from now on"), "{said}");
    ok(signed("add", &served.dir).args(both(1, &[])));
    let index = |component: &str| {
        let at = format!("deb/dists/nightly/{component}/binary-amd64/Packages");
        fs::read_to_string(served.dir.join(at))
            .unwrap()
            .matches("Package: rocblas-gfx110x\n")
            .count()
    };
    assert_eq!((index("main"), index("gfx110x")), (1, 1));
    served.verify();
}

#[test]
fn a_set_that_says_nothing_is_refused() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(release(0, "deb", &[])));
    let before = snapshot(&dir);
    let stderr = fails(&mut unsigned("set", &dir), 2);
    assert!(stderr.contains("there is nothing to set"), "{stderr}");
    fails(unsigned("set", &dir).args(["--suite", "../x"]), 2);
    fails(unsigned("set", &dir).args(["--keep-publications", "0"]), 2);
    assert_eq!(snapshot(&dir), before);
}

#[test]
fn a_label_that_follows_the_origin_goes_with_it() {
    let served = Served::new();
    let said = served.set(&["--origin", "Other Inc."]);
    assert!(
        said.contains("Origin from `Example` to `Other Inc.`, Label from `Example` to `Other"),
        "{said}"
    );
    let repo = fs::read_to_string(served.dir.join("rpm/other-inc.repo")).unwrap();
    assert!(repo.starts_with("[other-inc]\nname=Other Inc.\n"), "{repo}");
    assert!(served.release("stable").contains("Label: Other Inc.\n"));
    served.verify();
    // One of its own stays.
    served.set(&["--label", "Ours"]);
    served.set(&["--origin", "Third"]);
    assert_eq!(served.settings()["label"], "Ours");
    served.verify();
}

#[test]
fn an_empty_text_takes_back_what_was_set() {
    let served = Served::new();
    served.set(&["--codename", "cosmic", "--description", "Packages for all"]);
    assert!(served.release("stable").contains("Codename: cosmic\nDate"));
    let said = served.set(&["--codename", "", "--description", "", "--url", ""]);
    assert!(said.contains("Codename from `cosmic` to `stable`"), "{said}");
    assert!(said.contains("clients go on asking at http://127.0.0.1:"), "{said}");
    let text = served.release("stable");
    assert!(text.contains("Codename: stable\n") && !text.contains("Description"), "{text}");
    let of_clients = files(&served.dir);
    let of_clients =
        of_clients.iter().filter(|path| path.ends_with(".repo") || path.ends_with(".sources"));
    assert_eq!(of_clients.count(), 0);
    let settings = served.settings();
    assert_eq!((&settings["url"], &settings["description"]), (&Value::Null, &Value::Null));
    served.verify();

    // Of a new one, an empty text is a variable that was not set.
    let dir = served.dir.with_file_name("new");
    let stderr = fails(unsigned("create", &dir).args(["--url", ""]), 2);
    assert!(stderr.contains("the text of --url is empty") && !dir.exists(), "{stderr}");
    for option in ["--suite", "--origin", "--label"] {
        fails(signed("set", &served.dir).args([option, ""]), 2);
    }
}

#[test]
fn the_help_of_set_says_nothing_of_defaults() {
    // Where lines end does not matter.
    let of = |action: &str| {
        let help = ok(gfxpack().args(["repo", action, "-h"]));
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let settings = |action: &str| {
        let help = of(action);
        let from = help.find(" The repository: ").unwrap();
        let to = help[from..].find(" Signing: ").unwrap();
        help[from..from + to].to_owned()
    };
    assert!(settings("create").contains("[default: 3]"), "{}", settings("create"));
    let set = settings("set");
    assert!(!set.contains("[default") && set.contains("[possible values: zstd, gzip]"), "{set}");
    // What belongs to publishing has its default in both.
    assert!(of("set").contains("[default: SOURCE_DATE_EPOCH,"));
}

// ---- dates that are over ----

#[test]
fn what_has_expired_already_is_not_published() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(both(0, &[])));
    let before = snapshot(&dir);
    let past = (DAY_ONE + 10 * DAY).to_string();
    for more in [&[][..], &["--dry-run"]] {
        for epoch in [Some(&past), None] {
            let mut set = unsigned("set", &dir);
            set.args(["--valid-days", "14"]).args(more);
            epoch.map(|epoch| set.env("SOURCE_DATE_EPOCH", epoch));
            let stderr = fails(&mut set, 1);
            let day = if epoch.is_some() { "11" } else { "01" };
            assert!(
                stderr.contains(&format!("has expired already: it is dated 2026-01-{day}T")),
                "{stderr}"
            );
            assert!(
                stderr.contains(" and now it is 20") && stderr.contains("SOURCE_DATE_EPOCH"),
                "{stderr}"
            );
        }
    }
    assert_eq!(snapshot(&dir), before);
    // A date that is given by hand is meant.
    let ran = run(unsigned("set", &dir).args(["--valid-days", "14", "--date", &past]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("warning: the publication has expired already"), "{ran:?}");
    let text = fs::read_to_string(dir.join("deb/dists/stable/Release")).unwrap();
    assert!(text.contains("Valid-Until: Sun, 25 Jan 2026 00:00:00 +0000\n"), "{text}");
    // It stays so for what comes after.
    for (action, args) in [("publish", &[][..]), ("remove", &["hip-runtime", "--allow-partial"])] {
        fails(unsigned(action, &dir).args(args), 1);
    }
    ok(unsigned("set", &dir).args(["--valid-days", "0"]));
    // Nothing of rpm expires.
    let rpm = temp.path().join("rpm");
    ok(unsigned("create", &rpm).args(release(0, "rpm", &[])).args(["--valid-days", "1"]));
    fails(
        unsigned("create", &temp.path().join("deb"))
            .args(release(0, "deb", &[]))
            .args(["--valid-days", "1"]),
        1,
    );
    assert!(!temp.path().join("deb").exists());
}

// ---- what is refused when it is given, rather than when clients or later runs stumble over it ----

#[test]
fn a_glob_that_is_none_is_refused() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    ok(unsigned("create", &dir).args(release(0, "deb", &[])));
    let before = snapshot(&dir);
    for (rule, told) in
        [("x=[", "unclosed character class"), ("x=", "expected a glob"), ("x", "NAME=GLOB")]
    {
        for more in [&[][..], &["--dry-run"]] {
            let stderr = fails(unsigned("set", &dir).args(["--component", rule]).args(more), 2);
            assert!(stderr.contains("--component") && stderr.contains(told), "{stderr}");
        }
        fails(unsigned("create", &temp.path().join("new")).args(["--component", rule]), 2);
    }
    assert_eq!(snapshot(&dir), before);
    assert!(!temp.path().join("new").exists());
}

/// A repository that has such a glob from before says where it is and how to go on.
#[test]
fn a_glob_that_is_none_and_is_there_is_told_with_what_to_do() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    let jobs = Jobs::new(1, 64 << 20);
    let settings =
        Settings { rules: vec![("x".to_owned(), "[".to_owned())], ..Settings::default() };
    let mut made = Repository::create(&dir, settings.clone()).unwrap();
    let options = work::Options::default();
    work::run(&mut made, work::Action::Refresh, options, &jobs, &Silent).unwrap();
    // The library does not set one either.
    let set = work::Action::Set(&settings);
    work::run(&mut made, set, options, &jobs, &Silent).unwrap_err();
    drop(made);
    let stderr = fails(unsigned("add", &dir).args(release(0, "deb", &[])), 2);
    for part in
        [&format!("{}: the component x has a glob that is none", dir.display()), "gfxpack repo set"]
    {
        assert!(stderr.contains(part), "{stderr}");
    }
    ok(unsigned("set", &dir).args(["--component", "x=x-*"]));
    ok(unsigned("add", &dir).args(release(0, "deb", &[])));
}

#[test]
fn an_address_is_one_and_has_a_scheme() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("repo");
    for (url, told) in [
        ("http://x y", "without blanks"),
        ("http://x\ty", "without blanks"),
        ("http://x\u{7}y", "without blanks"),
        ("x/y", "scheme://"),
        ("://x", "scheme://"),
        ("https://", "scheme://"),
        ("9p://x", "scheme://"),
    ] {
        let stderr = fails(unsigned("create", &dir).args(["--url", url]), 2);
        assert!(stderr.contains("--url") && stderr.contains(told) && !dir.exists(), "{stderr}");
    }
    ok(unsigned("create", &dir).args(release(0, "deb", &[])).args(["--url", "file:///srv/a%20b"]));
    let sources = fs::read_to_string(dir.join("deb/gfxpack.sources")).unwrap();
    assert!(sources.contains("URIs: file:///srv/a%20b/deb\n"), "{sources}");
}

// ---- what is passed over ----

#[test]
fn what_is_not_looked_into_is_told() {
    let temp = TempDir::new().unwrap();
    let at = |name: &str| temp.path().join(name);
    let put = |into: &str, packages: &[PathBuf]| {
        fs::create_dir_all(at(into)).unwrap();
        for package in packages {
            fs::copy(package, at(into).join(package.file_name().unwrap())).unwrap();
        }
    };
    let [ours, others] = [release(0, "deb", &["rocblas"]), release(0, "rpm", &[])];
    put("in/below", &ours);
    put("in/.7.1.gfxpack-part/below", &others);
    // Half written.
    fs::write(at("in/.7.1.gfxpack-part/half_1_amd64.deb"), "!<arch>\n").unwrap();
    ok(unsigned("create", &at("in/nested")).args(&others));
    put("elsewhere", &others);
    std::os::unix::fs::symlink("../elsewhere", at("in/link")).unwrap();
    let dir = at("repo");
    let told = [
        ("in/.7.1.gfxpack-part", "of a run that has not finished, or was killed"),
        ("in/link", "a link to a directory"),
        ("in/nested", "a repository: gfxpack repo merge adds its packages"),
    ];
    for (action, added) in [("create", ours.len()), ("add", 0)] {
        let ran = run(unsigned(action, &dir).arg(at("in")).arg("--json"));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let json: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(json["outcome"]["added"].as_array().unwrap().len(), added, "{json}");
        for (path, why) in told {
            let warning = format!("warning: passed over: {} ({why}", at(path).display());
            assert_eq!(ran.stderr.matches(&warning).count(), 1, "{warning}\n{}", ran.stderr);
        }
    }
    // Where there is nothing else, that is the reason why.
    fs::remove_dir_all(at("in/below")).unwrap();
    let stderr = fails(unsigned("add", &dir).arg(at("in")), 1);
    for (path, why) in told {
        assert!(stderr.contains(&format!("{} ({why}", at(path).display())), "{stderr}");
    }
    let stderr = fails(unsigned("add", &dir).arg(at("in/.7.1.gfxpack-part")), 2);
    assert!(stderr.contains(".7.1.gfxpack-part: is of a run that has not finished"), "{stderr}");
    // What they say to do.
    ok(unsigned("merge", &dir).arg(at("in/nested")));
    let before = snapshot(&dir);
    ok(unsigned("add", &dir).arg(at("elsewhere")));
    assert_eq!(snapshot(&dir), before);
}
