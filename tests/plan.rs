//! `gfxpack plan` and `make`: the graph of a build, run by other engines, gives what `build` gives.

#![allow(clippy::unwrap_used)]

#[path = "common/archives.rs"]
mod archives;
mod common;
#[path = "common/packages.rs"]
mod packages;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use archives::{Order, pack};
use common::{
    assert_same, copy_tree, example_config, example_packages, example_shards, fails, gfxpack, ok,
    repo, run, snapshot, tool,
};

use gfxpack::package::Format;
use gfxpack::package::planned::{MAGIC, PackagePlan};
use gfxpack::tree::TreePath;
use gfxpack::tree::output::OutputDir;
use gfxpack::tree::record::KnownKpack;
use packages::Dice;

/// A name that engines have to escape.
const ODD: &str = "sh $a:rds #1 it's";
const DATE: &str = "1767614400";

/// A directory with a copy of the shards, in which commands are run.
struct Place {
    temp: tempfile::TempDir,
    shards: String,
}

impl Place {
    fn new(shards: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        copy_tree(&example_shards(), &temp.path().join(shards));
        Self { temp, shards: shards.to_owned() }
    }

    fn path(&self) -> &Path {
        self.temp.path()
    }

    fn args(&self, command: &mut Command) {
        command
            .current_dir(self.path())
            .env("SOURCE_DATE_EPOCH", DATE)
            .args(["--quiet", "--config"]);
        command.arg(example_config()).arg("--packages").arg(example_packages());
        command.args(["--version", "7.1.0", "--release", "1", "--input-shards-dir", &self.shards]);
    }

    /// What `build` makes of it now.
    fn built(&self) -> std::collections::BTreeMap<String, String> {
        let mut command = gfxpack();
        self.args(command.arg("build"));
        ok(command.args(["--output-dir", "plain", "--force"]));
        snapshot(&self.path().join("plain"))
    }

    fn plan(&self, args: &[&str]) -> Command {
        let mut command = gfxpack();
        self.args(command.arg("plan"));
        command.args(["--output-dir", "out"]).args(args);
        command
    }

    fn ninja(&self) -> Command {
        let mut command = tool("ninja", "ninja-build");
        command.current_dir(self.path()).env_remove("SOURCE_DATE_EPOCH");
        command
    }

    /// Runs ninja; returns the packages that it made.
    #[track_caller]
    fn makes(&self) -> BTreeSet<String> {
        let said = ok(&mut self.ninja());
        let made = said.lines().filter_map(|line| line.split_once("] make ")).map(|(_, name)| name);
        made.map(str::to_owned).collect()
    }

    fn out(&self) -> std::collections::BTreeMap<String, String> {
        snapshot(&self.path().join("out"))
    }

    fn library(&self) -> PathBuf {
        let below =
            "gfx110X-build/fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage/lib/librocfft.so.0.1";
        self.path().join(&self.shards).join(below)
    }

    /// What is beside the output and begins with a dot.
    fn left_over(&self) -> Vec<String> {
        let names = fs::read_dir(self.path()).unwrap().map(|e| e.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter(|name| name.contains("gfxpack-part")).collect()
    }
}

/// The processes of a session, from what the system lists.
fn of_session(session: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().map(|e| e.unwrap().path());
    let own = |path: PathBuf| {
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let of = fields.split_whitespace().nth(3)?;
        (of == session.to_string()).then(|| path.file_name()?.to_str()?.parse().ok())?
    };
    processes.filter_map(own).collect()
}

fn later(path: &Path) {
    let time = SystemTime::now() + Duration::from_secs(5);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// Packages have times in whole seconds: a second change within one would not show in them.
fn next_second() {
    thread::sleep(Duration::from_millis(1100));
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn ninja_makes_what_build_makes_and_no_more_than_is_needed() {
    let place = Place::new(ODD);
    ok(&mut place.plan(&["--ninja", "build.ninja"]));
    let all = place.makes();
    assert!(all.len() > 15 && all.contains("rocblas-gfx110X"), "{all:?}");
    assert_same("ninja and build", &place.out(), &place.built());
    assert_eq!(place.makes(), names(&[]), "all is done");

    // A file of the input has another time, which its packages have, too: but for the ISA of the group
    // that another shard has.
    later(&place.library());
    assert_eq!(place.makes(), names(&["rocfft-generic", "rocfft-gfx110X"]));
    assert_same("touched", &place.out(), &place.built());
    assert_eq!(place.makes(), names(&[]));

    // A file of a database: the sizes of its group's archives stay what they are, and the generic package
    // with their manifest is not made again.
    let blas = place.path().join(ODD).join("gfx110X-build/blas_lib_gfx110X-dgpu/math-libs/BLAS");
    let library = blas.join("rocBLAS/stage/lib/rocblas/library");
    let names_there = fs::read_dir(&library).unwrap().map(|e| e.unwrap().path());
    let database = names_there.filter(|path| path.to_string_lossy().contains("gfx1101")).min();
    later(&database.unwrap());
    assert_eq!(place.makes(), names(&["rocblas-gfx110X"]));
    assert_same("a database", &place.out(), &place.built());
    assert_eq!(place.makes(), names(&[]));

    // A file comes, and goes: the development package has the directory, which has another time then.
    let header = place.library().with_file_name("new.txt");
    next_second();
    fs::write(&header, "new\n").unwrap();
    assert_eq!(place.makes(), names(&["rocfft-dev", "rocfft-generic"]));
    assert_same("one more file", &place.out(), &place.built());
    next_second();
    fs::remove_file(&header).unwrap();
    assert_eq!(place.makes(), names(&["rocfft-dev", "rocfft-generic"]));
    assert_same("one less file", &place.out(), &place.built());

    // A library that goes takes relations of others' packages with it, and packages.
    fs::remove_file(place.path().join("out/rocm-sysdeps_7.1.0-1_amd64.deb")).unwrap();
    assert_eq!(place.makes(), names(&["rocm-sysdeps"]));
    assert_same("one package again", &place.out(), &place.built());
    assert_eq!(place.left_over(), [""; 0]);
}

/// Planning depends on a table of one's own, and what planning made of it is in the plans.
#[test]
fn a_table_of_libraries_is_of_the_plan_and_not_of_its_nodes() {
    let place = Place::new("shards");
    let table = place.path().join("own.txt");
    let text = fs::read_to_string(repo().join("src/package/elfdeps/tables/debian12.txt")).unwrap();
    fs::write(&table, text.replace(" libstdc++6 #MINVER#", " other-stdc++ #MINVER#")).unwrap();
    ok(&mut place.plan(&["--ninja", "build.ninja", "--target-distro", "own.txt"]));
    let all = place.makes();
    let own = place.out();
    let debian = place.built();
    assert_ne!(own, debian);

    // Another table: those packages are made again that have relations by it.
    next_second();
    fs::write(&table, text).unwrap();
    let again = place.makes();
    assert!(again.contains("rocblas-generic") && again.len() < all.len(), "{again:?}");
    assert_same("the table of Debian", &place.out(), &debian);
    assert_eq!(place.makes(), names(&[]));

    // Nodes do without.
    fs::remove_file(&table).unwrap();
    fs::remove_dir_all(place.path().join("out")).unwrap();
    let plans = fs::read_dir(place.path().join("out.plans")).unwrap();
    let mut make = gfxpack();
    make.current_dir(place.path()).args(["make", "--quiet", "--output-dir", "out"]);
    ok(make.args(plans.map(|plan| plan.unwrap().path())));
    assert_same("without the table", &place.out(), &debian);
}

/// What an older run left in the output goes, as with `build --force`.
#[test]
fn packages_of_older_runs_are_not_left_beside_the_new_ones() {
    let place = Place::new("shards");
    ok(&mut place.plan(&["--ninja", "build.ninja"]));
    place.makes();
    let out = place.path().join("out");
    let before = place.out();
    // Another version, fewer packages, one format.
    let mut plan = gfxpack();
    plan.current_dir(place.path()).env("SOURCE_DATE_EPOCH", DATE).arg("plan");
    plan.arg("--config").arg(example_config()).arg("--packages").arg(example_packages());
    plan.args(["--input-shards-dir", "shards", "--version", "7.2.0", "--release", "1"]);
    plan.args(["--only", "rocfft", "--format", "deb", "--ninja", "build.ninja"]);
    plan.args(["--output-dir", "out", "--json"]);
    fs::write(out.join("notes.txt"), "mine\n").unwrap();
    let json: serde_json::Value = serde_json::from_str(&ok(&mut plan)).unwrap();
    assert_eq!(json["removed"].as_array().unwrap().len(), before.len());
    assert_eq!(place.out().keys().collect::<Vec<_>>(), ["notes.txt"]);
    place.makes();
    let files =
        |place: &Place| place.out().into_keys().filter(|name| name != "notes.txt").collect();
    let made: BTreeSet<String> = files(&place);
    assert!(made.len() > 4 && made.iter().all(|name| name.contains("_7.2.0-1_")), "{made:?}");

    // What nobody here has planned is refused, or asked for to be removed.
    fs::write(out.join("other_1-1_amd64.deb"), "of somebody").unwrap();
    fs::write(out.join("other_1-1_amd64.deb.asc"), "of somebody").unwrap();
    let said = fails(&mut plan, 2);
    let what =
        "error: out: has 2 packages that this plan does not make, as other_1-1_amd64.deb\n  hint: ";
    assert!(said.contains(what) && said.contains("--force"), "{said}");
    assert!(out.join("other_1-1_amd64.deb").exists());
    ok(plan.arg("--force"));
    assert_eq!(files(&place), made);
    assert!(out.join("notes.txt").exists());
    assert_eq!(place.makes(), names(&[]), "what was there and is wanted stays");
}

/// The packages of a run before are of use until there is another plan.
#[test]
fn a_plan_that_cannot_be_written_takes_nothing_away() {
    let place = Place::new("shards");
    ok(&mut place.plan(&["--ninja", "build.ninja"]));
    place.makes();
    let (before, plan) = (place.out(), fs::read(place.path().join("build.ninja")).unwrap());
    // No file for ninja can name it.
    fs::write(place.library().with_file_name("a|b"), "new").unwrap();
    let mut again = place.plan(&["--ninja", "build.ninja", "--only", "rocfft"]);
    let told = fails(&mut again, 1);
    assert!(told.contains("a|b"), "{told}");
    assert_same("packages", &place.out(), &before);
    assert!(fs::read(place.path().join("build.ninja")).unwrap() == plan);
}

#[test]
fn graphs_go_to_standard_output() {
    let place = Place::new("shards");
    let built = place.built();
    let text = ok(&mut place.plan(&["--ninja", "-"]));
    assert!(!text.contains("rule plan") && !place.path().join("-").exists(), "{text}");
    fs::write(place.path().join("once.ninja"), &text).unwrap();
    ok(place.ninja().args(["-f", "once.ninja"]));
    assert_same("once and build", &place.out(), &built);

    ok(&mut place.plan(&["--github-matrix", "matrix.json", "--workers", "4"]));
    let matrix = ok(&mut place.plan(&["--github-matrix", "-", "--workers", "4"]));
    assert_eq!(matrix, fs::read_to_string(place.path().join("matrix.json")).unwrap());
    let said = fails(&mut place.plan(&["--ninja", "-", "--github-matrix", "-"]), 2);
    assert!(said.contains("is named for --ninja and for --github-matrix"), "{said}");
    let said = fails(&mut place.plan(&["--ninja", "-", "--json"]), 2);
    assert!(said.contains("cannot both go to standard output"), "{said}");
}

#[test]
fn a_killed_run_is_started_again() {
    let place = Place::new("shards");
    ok(&mut place.plan(&["--ninja", "build.ninja"]));
    let built = place.built();
    let mut killed = 0;
    for (nth, millis) in [20, 60, 100, 150, 200, 300, 40, 80, 120, 250].into_iter().enumerate() {
        let mut ninja = tool("setsid", "util-linux");
        ninja.arg("ninja").current_dir(place.path()).stdout(Stdio::null());
        let mut child = ninja.spawn().unwrap();
        thread::sleep(Duration::from_millis(millis));
        // Ninja alone, so that what it started goes on beside the next one; or all of them.
        let session = child.id();
        let victims = if nth % 2 == 0 { vec![session] } else { of_session(session) };
        let victims = victims.iter().map(ToString::to_string);
        run(tool("kill", "procps").arg("-KILL").args(victims));
        killed += usize::from(!child.wait().unwrap().success());
        if !place.path().join("out").exists() {
            continue;
        }
        // Whatever has its name is whole.
        for (name, what) in &place.out() {
            assert_eq!(built.get(name), Some(what), "{name}");
        }
        if nth == 4 {
            // Where ninja lived long enough to have one.
            let _ = fs::remove_file(place.path().join(".ninja_log"));
        }
    }
    assert!(killed > 2, "only {killed} runs were killed: they are too fast for this test");
    place.makes();
    assert_same("killed and started again", &place.out(), &built);
    assert_eq!(place.left_over(), [""; 0]);
}

/// The commands of a matrix, run on a machine that has the job's artifacts alone, from archives.
#[test]
fn jobs_of_a_matrix_need_what_they_say_and_no_more() {
    let place = Place::new("fat");
    for shard in fs::read_dir(place.path().join("fat")).unwrap().map(|e| e.unwrap().path()) {
        let to = place.path().join(ODD).join(shard.file_name().unwrap());
        fs::create_dir_all(&to).unwrap();
        for artifact in fs::read_dir(&shard).unwrap().map(|e| e.unwrap().path()) {
            pack(&artifact, &to, "zst", Order::Sorted);
        }
    }
    let place = Place { shards: ODD.to_owned(), ..place };
    let built = place.built();
    let plan = ["--github-matrix", "matrix.json", "--workers", "4"];
    ok(&mut place.plan(&plan));
    let text = fs::read_to_string(place.path().join("matrix.json")).unwrap();
    ok(&mut place.plan(&plan));
    assert_eq!(
        fs::read_to_string(place.path().join("matrix.json")).unwrap(),
        text,
        "deterministic"
    );
    let matrix: serde_json::Value = serde_json::from_str(&text).unwrap();

    let collected = place.path().join("collected");
    fs::create_dir(&collected).unwrap();
    let mut packages = Vec::new();
    for wave in ["first", "then"] {
        let jobs = matrix[wave]["include"].as_array().unwrap();
        assert!((1..=4).contains(&jobs.len()), "{wave}: {}", jobs.len());
        for job in jobs.iter().rev() {
            // Another machine: what is copied there has another time.
            let machine = tempfile::tempdir().unwrap();
            let bring = |path: &serde_json::Value, from: &Path| {
                let path = path.as_str().unwrap();
                let to = machine.path().join(path);
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::copy(from.join(path), to).unwrap();
            };
            for list in ["inputs", "plans"] {
                job[list].as_array().unwrap().iter().for_each(|path| bring(path, place.path()));
            }
            job["sizes"].as_array().unwrap().iter().for_each(|path| bring(path, &collected));
            let command = job["command"].as_str().unwrap();
            ok(Command::new("sh").args(["-c", command]).current_dir(machine.path()));
            for output in job["outputs"].as_array().unwrap() {
                let output = output.as_str().unwrap();
                let to = collected.join(output);
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::rename(machine.path().join(output), to).unwrap();
            }
            assert!(job["bytes"].as_u64().is_some() && job["name"].is_string());
            packages.extend(job["packages"].as_array().unwrap().iter().map(ToString::to_string));
        }
    }
    assert_same("the matrix and build", &snapshot(&collected.join("out")), &built);
    let distinct: BTreeSet<_> = packages.iter().collect();
    assert_eq!(distinct.len(), packages.len(), "each package is made once");
}

/// One run can make packages and those that need their sizes.
#[test]
fn plans_can_be_carried_out_together() {
    let place = Place::new("shards");
    ok(&mut place.plan(&[
        "--ninja",
        "build.ninja",
        "--format",
        "deb",
        "--deb-compression",
        "xz:1",
    ]));
    let plans = fs::read_dir(place.path().join("out.plans")).unwrap().map(|e| e.unwrap().path());
    let mut plans: Vec<_> = plans.collect();
    plans.sort();
    ok(gfxpack().current_dir(place.path()).args(["make", "--output-dir", "out"]).args(&plans));
    let mut build = gfxpack();
    place.args(build.arg("build"));
    ok(build.args(["--output-dir", "plain", "--format", "deb", "--deb-compression", "xz:1"]));
    assert_same("together", &place.out(), &snapshot(&place.path().join("plain")));
    let mut make = gfxpack();
    make.current_dir(place.path()).args(["make", "--output-dir", "out", "--spool", "0"]);
    ok(make.args(&plans));
    assert_same("without room", &place.out(), &snapshot(&place.path().join("plain")));
    let graph = ok(&mut place.plan(&["--ninja", "-", "--spool", "1MiB"]));
    assert!(graph.contains("make --quiet --jobs 1 --spool 1048576 --output-dir out "), "{graph}");
}

#[test]
fn what_is_not_as_planned_is_refused() {
    let place = Place::new("shards");
    ok(&mut place.plan(&["--ninja", "build.ninja"]));
    let make = |name: &str| {
        let mut command = gfxpack();
        command.current_dir(place.path()).args(["make", "--output-dir", "out"]);
        command.arg(format!("out.plans/{name}.plan"));
        command
    };
    let said = fails(&mut make("rocfft-generic"), 1);
    assert!(
        said.contains("out.sizes/rocfft-gfx110X.json") && said.contains("make `rocfft-"),
        "{said}"
    );

    // Also where nothing of the package is read: the next run would take it for a shard or artifact.
    for out in ["shards", "shards/out", "shards/gfx1151-build/out"] {
        let mut inside = gfxpack();
        inside.current_dir(place.path()).args([
            "make",
            "--sizes-dir",
            "sizes",
            "--output-dir",
            out,
        ]);
        let said = fails(inside.arg("out.plans/rocfft-gfx110X.plan"), 2);
        assert!(said.contains("lie in one another"), "{out}: {said}");
    }

    ok(&mut make("rocfft-gfx110X"));
    later(&place.library());
    let said = fails(&mut make("rocfft-gfx110X"), 1);
    assert!(said.contains("another time than when it was planned with"), "{said}");
    ok(make("rocfft-gfx110X").arg("--moved"));
    let library = File::options().append(true).open(place.library()).unwrap();
    library.set_len(library.metadata().unwrap().len() + 1).unwrap();
    let said = fails(make("rocfft-gfx110X").arg("--moved"), 1);
    assert!(said.contains("bytes; it was planned with"), "{said}");

    // Every cut and every flipped byte of a plan is found.
    let at = place.path().join("out.plans/rocblas-dev.plan");
    let plan = fs::read(&at).unwrap();
    for (bytes, why) in [
        (plan[..plan.len() - 1].to_vec(), "its digest is not that of its content"),
        (plan[..20].to_vec(), "its digest is not that of its content"),
        (b"#!/bin/sh\n".to_vec(), "is no plan of a package"),
        (Vec::new(), "is no plan of a package"),
    ] {
        fs::write(&at, bytes).unwrap();
        let said = fails(&mut make("rocblas-dev"), 1);
        assert!(said.contains(why) && said.contains("rocblas-dev.plan"), "{said}");
    }

    fs::write(place.path().join("precious"), "mine\n").unwrap();
    let said = fails(&mut place.plan(&["--ninja", "precious"]), 2);
    assert!(said.contains("precious: exists, and is not of `gfxpack plan`"), "{said}");
    let said = fails(&mut place.plan(&["--github-matrix", "precious"]), 2);
    assert!(said.contains("exists"), "{said}");
    assert_eq!(fs::read_to_string(place.path().join("precious")).unwrap(), "mine\n");
    fails(&mut place.plan(&[]), 2);
    let said = fails(&mut place.plan(&["--ninja", "x", "--dry-run"]), 2);
    assert!(said.contains("--dry-run is of no use here"), "{said}");

    let odd = place.library().with_file_name("a|b");
    fs::write(&odd, "").unwrap();
    let said = fails(&mut place.plan(&["--ninja", "build.ninja"]), 1);
    assert!(said.contains("a|b` has a bar"), "{said}");
    fs::rename(&odd, odd.with_file_name("a\nb")).unwrap();
    let said = fails(&mut place.plan(&["--ninja", "build.ninja"]), 1);
    assert!(said.contains("has a newline"), "{said}");
}

/// A node opens no file of the input but its own.
#[test]
fn a_node_reads_its_own_input_alone() {
    let place = Place::new("shards");
    let said = ok(place.plan(&["--ninja", "build.ninja"]).arg("--json"));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let nodes = said["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["name"] == "rocblas-gfx120X").unwrap();
    let own: Vec<&str> =
        node["inputs"].as_array().unwrap().iter().map(|i| i.as_str().unwrap()).collect();
    assert!(!own.is_empty() && node["needs"].as_array().unwrap().is_empty());
    for (path, what) in snapshot(&place.path().join("shards")) {
        let path = format!("shards/{path}");
        if !what.starts_with("dir") && !own.contains(&path.as_str()) {
            fs::remove_file(place.path().join(path)).unwrap();
        }
    }
    ok(gfxpack().current_dir(place.path()).args([
        "make",
        "--output-dir",
        "out",
        "out.plans/rocblas-gfx120X.plan",
    ]));
    assert_eq!(place.out().len(), 2);
}

#[test]
fn help_completions_and_the_manual_page_have_both_commands() {
    let man = ok(gfxpack().arg("man"));
    let completions = ok(gfxpack().args(["completions", "bash"]));
    let help = ok(gfxpack().args(["plan", "--help"]));
    assert!(man.contains("gfxpack\\-plan") && man.contains("gfxpack\\-make"), "{man}");
    for option in ["--ninja", "--github-matrix", "--workers", "--moved"] {
        assert!(completions.contains(option), "{option}");
    }
    assert!(help.contains("--plan-dir") && !help.contains("--dry-run"), "{help}");
    assert!(help.contains("The text of --sign-command stands in graphs"), "{help}");
}

/// What is made is made beside the output under a name with the plan's in it, and what is there is removed first.
#[test]
fn a_plan_whose_name_leads_elsewhere_is_refused() {
    let place = Place::new("shards");
    ok(&mut place.plan(&["--ninja", "build.ninja"]));
    let plan = fs::read(place.path().join("out.plans/rocblas-gfx110X.plan")).unwrap();
    let name = b"rocblas-gfx110X";
    let at = plan.windows(name.len()).position(|window| window == name).unwrap();
    fs::create_dir_all(place.path().join("deep/.out.a")).unwrap();
    let victim = place.path().join("victim1.gfxpack-part");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("precious"), "mine").unwrap();
    for other in [b"a/../../victim1", b"aaaaaaa\0aaaaaaa", b".aaaaaaaaaaaaaa"] {
        let mut content = plan[40..].to_vec();
        content[at - 40..][..name.len()].copy_from_slice(other);
        let digest = blake3::hash(&content);
        fs::write(
            place.path().join("x.plan"),
            [MAGIC.as_slice(), digest.as_bytes(), &content].concat(),
        )
        .unwrap();
        let mut make = gfxpack();
        make.current_dir(place.path()).args(["make", "--output-dir", "deep/out", "x.plan"]);
        let said = fails(&mut make, 1);
        assert!(said.contains("x.plan: is no plan") && said.contains("it takes letters"), "{said}");
        assert!(victim.join("precious").exists());
        assert_eq!(fs::read_dir(place.path().join("deep")).unwrap().count(), 1);
    }
    let long = "x".repeat(240);
    for label in ["a/../../victim1", "a\0b", &long] {
        let said = OutputDir::create_among(&place.path().join("deep/out"), label).unwrap_err();
        let said = said.iter().map(ToString::to_string).collect::<String>();
        assert!(said.contains("cannot be written under the name"), "{said}");
    }
    assert!(victim.join("precious").exists());
}

/// Whatever a plan says, reading it ends with a plan or an error.
#[test]
fn hostile_plans_are_errors() {
    let place = Place::new("shards");
    ok(&mut place.plan(&["--ninja", "build.ninja"]));
    let mut dice = Dice(7);
    let (mut read, mut packages) = (0, 0);
    for name in ["rocblas-gfx110X", "rocblas-generic"] {
        let plan = fs::read(place.path().join(format!("out.plans/{name}.plan"))).unwrap();
        let content = plan[40..].to_vec();
        for _ in 0..1500 {
            let mut content = content.clone();
            for _ in 0..=dice.roll(3) {
                let at = usize::try_from(dice.roll(content.len() as u64)).unwrap();
                content[at] = match dice.roll(5) {
                    0 => 0,
                    1 => 0x7f,
                    2 => 0x80,
                    3 => 0xff,
                    _ => u8::try_from(dice.roll(256)).unwrap(),
                };
            }
            let mut bytes = MAGIC.to_vec();
            bytes.extend_from_slice(blake3::hash(&content).as_bytes());
            bytes.extend_from_slice(&content);
            let Ok(plan) = PackagePlan::read(bytes.as_slice()) else { continue };
            read += 1;
            let needs: Vec<_> = plan.needs().into_iter().collect();
            assert!(needs.len() < 100 && plan.files().len() < 1000);
            let sizes = ["gfx1100", "gfx1101"].map(|isa| {
                let at = format!("opt/rocm/.kpack/blas_lib+math-libs+BLAS+rocBLAS_{isa}.kpack");
                (TreePath::new(at).unwrap(), KnownKpack::Built { size: 1000, kernel_count: 2 })
            });
            if let Ok(package) = plan.package(true, &sizes.into()) {
                let _ = (package.check(Format::Deb), package.check(Format::Rpm));
                packages += 1;
            }
        }
    }
    assert!(read > 100 && packages > 50, "{read} {packages}");
}
