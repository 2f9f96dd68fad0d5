//! Same input, same bytes out: whatever the run, the threads, the order of directory entries, the
//! place of the input or the caller's environment; and one pass gives what the four steps give.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use common::{
    assert_same, copy_tree, example_config, example_packages, example_shards, fails, gfxpack, ok,
    repo, snapshot, tool,
};

const SHARDS: [&str; 3] = ["gfx110X-build", "gfx1151-build", "gfx120X-build"];
/// 2026-01-05 12:00, later than the examples.
const EPOCH: &str = "1767614400";

/// How the program is run.
struct Way {
    what: &'static str,
    program: Box<dyn Fn() -> Command>,
    shards: PathBuf,
}

impl Way {
    fn new(what: &'static str, program: impl Fn() -> Command + 'static) -> Self {
        Self { what, program: Box::new(program), shards: example_shards() }
    }
}

fn split(way: &Way, out: &Path, args: &[&str]) {
    for shard in SHARDS {
        ok((way.program)()
            .arg("split")
            .arg("--batch-artifact-parent-dir")
            .arg(way.shards.join(shard))
            .arg("--output-dir")
            .arg(out.join(shard))
            .args(args));
    }
}

fn recombine(way: &Way, split: &Path, out: &Path) {
    ok((way.program)()
        .arg("recombine")
        .arg("--input-shards-dir")
        .arg(split)
        .arg("--config")
        .arg(example_config())
        .arg("--output-dir")
        .arg(out));
}

/// `package` or `build`, its input's option and place given.
fn packages(way: &Way, action: &str, option: &str, from: &Path, out: &Path) -> Command {
    let mut command = (way.program)();
    command
        .arg(action)
        .arg(option)
        .arg(from)
        .arg("--config")
        .arg(example_config())
        .arg("--packages")
        .arg(example_packages())
        .arg("--output-dir")
        .arg(out)
        .args(["--version", "7.1.0", "--release", "1"]);
    command
}

/// All four commands, their outputs below `out`.
fn all_steps(way: &Way, out: &Path) {
    split(way, &out.join("split"), &["--kpack-scope", "prefix"]);
    recombine(way, &out.join("split"), &out.join("recombined"));
    let recombined = out.join("recombined");
    ok(&mut packages(way, "package", "--artifacts-dir", &recombined, &out.join("packages")));
    ok(&mut packages(way, "build", "--input-shards-dir", &way.shards, &out.join("build")));
}

/// Names, modes and contents, and the times of files. The directories of outputs and artifacts are
/// left out: no tree has them, they get what the user's umask gives.
fn everything(root: &Path) -> BTreeMap<String, String> {
    let mut all = snapshot(root);
    all.retain(|path, what| {
        let outer = if path.starts_with("split") { 3 } else { 2 };
        !what.starts_with("dir") || path.split('/').count() > outer
    });
    for (path, what) in &mut all {
        if what.starts_with("file") {
            *what += &format!(" {}", root.join(path).metadata().unwrap().mtime());
        }
    }
    all
}

/// The sizes and digests of the packages in a directory, which have the caller's mode and the time
/// they were made at.
fn contents(all: &BTreeMap<String, String>, dir: &str) -> BTreeMap<String, String> {
    let below = all.iter().filter_map(|(path, what)| {
        let name = path.strip_prefix(dir)?.strip_prefix('/')?;
        let ["file", _mode, size, digest, _time] = what.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{path} is no file but {what}");
        };
        Some((name.to_owned(), format!("{size} bytes, {digest}")))
    });
    below.collect()
}

/// Gives everything in a directory times of its own, a day apart; directories older ones than files.
fn age(root: &Path, time: &mut u64) {
    let mut paths: Vec<_> = fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_symlink() {
            continue;
        }
        let mut at = *time;
        if meta.is_dir() {
            age(&path, time);
            at -= 50_000_000;
        }
        *time += 86_400;
        File::open(&path).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(at)).unwrap();
    }
}

/// A library that turns directories round when it is preloaded.
fn backwards(dir: &Path) -> PathBuf {
    let library = dir.join("backwards.so");
    ok(tool("cc", "gcc libc6-dev")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .arg(&library)
        .arg(repo().join("tests/fixtures/backwards.c"))
        .args(["-ldl", "-pthread"]));
    library
}

fn same_bytes_always(epoch: Option<&'static str>) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().to_owned();
    let program = move || {
        let mut command = gfxpack();
        command.envs(epoch.map(|epoch| ("SOURCE_DATE_EPOCH", epoch)));
        command
    };
    let with = move |args: &'static [&str]| {
        move || {
            let mut command = program();
            command.args(args);
            command
        }
    };

    let (library, log) = (backwards(&dir), dir.join("backwards.log"));
    let turned_round = {
        let log = log.clone();
        move || {
            let mut command = program();
            command.env("LD_PRELOAD", &library).env("BACKWARDS_LOG", &log);
            command
        }
    };
    // A checkout's files are as old as the checkout, these are of many ages.
    let shards = dir.join("shards");
    copy_tree(&example_shards(), &shards);
    age(&shards, &mut 1_600_000_000);
    let elsewhere = dir.join("an other place");
    copy_tree(&shards, &elsewhere);
    let environment = move || {
        let plain = program();
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077; cd /; exec \"$@\"", "sh"]).arg(plain.get_program());
        command.env("TZ", "Pacific/Auckland").env("LC_ALL", "C").env_remove("SOURCE_DATE_EPOCH");
        command.envs(epoch.map(|epoch| ("SOURCE_DATE_EPOCH", epoch)));
        command
    };

    let mut ways = [
        Way::new("first run", program),
        Way::new("second run", program),
        // In the first both formats of a package go together, in the second one after the other.
        Way::new("--jobs 1", with(&["--jobs", "1", "--memory", "256MiB"])),
        Way::new("--jobs 4", with(&["--jobs", "4", "--memory", "128MiB"])),
        Way::new("directories backwards", turned_round),
        Way::new("another place and environment", environment),
    ];
    ways.iter_mut().for_each(|way| way.shards.clone_from(&shards));
    ways[5].shards = elsewhere;

    let mut first = None;
    for (index, way) in ways.iter().enumerate() {
        let out = dir.join(format!("out{index}"));
        fs::create_dir(&out).unwrap();
        all_steps(way, &out);
        let made = everything(&out);
        fs::remove_dir_all(&out).unwrap();
        let (package, build) = (contents(&made, "packages"), contents(&made, "build"));
        assert_eq!(package.len(), 44);
        assert_same(&format!("{}: four steps and one pass", way.what), &package, &build);
        let trees: BTreeMap<_, _> = ["split", "recombined"]
            .iter()
            .flat_map(|tree| made.iter().filter(move |(path, _)| path.starts_with(tree)))
            .map(|(path, what)| (path.clone(), what.clone()))
            .collect();
        match &first {
            None => first = Some((trees, build)),
            Some((first_trees, first_build)) => {
                assert_same(way.what, first_trees, &trees);
                assert_same(way.what, first_build, &build);
            }
        }
    }
    assert!(fs::metadata(&log).unwrap().len() > 100, "directories were read past the preload");
}

#[test]
fn bytes_follow_from_the_input_alone() {
    same_bytes_always(None);
}

#[test]
fn bytes_follow_from_the_input_and_the_source_date() {
    same_bytes_always(Some(EPOCH));
}

/// The kpack of a component speaks for several packages: it cannot be in both.
/// The generic package's manifests state the sizes of archives in packages that are not written.
#[test]
fn a_package_built_alone_is_the_one_of_the_set() {
    let dir = tempfile::tempdir().unwrap();
    let way = Way::new("once", gfxpack);
    let build = |out: &str| {
        packages(&way, "build", "--input-shards-dir", &way.shards, &dir.path().join(out))
    };
    ok(&mut build("all"));
    ok(build("alone").args(["--only", "rocblas-generic"]));
    let mut names: Vec<_> = fs::read_dir(dir.path().join("alone"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["rocblas-generic-7.1.0-1.x86_64.rpm", "rocblas-generic_7.1.0-1_amd64.deb"]);
    for name in names {
        let bytes = |out: &str| fs::read(dir.path().join(out).join(&name)).unwrap();
        assert!(bytes("alone") == bytes("all"), "{name}");
    }
}

#[test]
fn packages_that_would_share_a_kpack_are_refused_with_the_way_out() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let way = Way::new("", gfxpack);
    split(&way, &dir.join("split"), &[]);
    recombine(&way, &dir.join("split"), &dir.join("recombined"));
    let before = snapshot(dir);
    let recombined = dir.join("recombined");
    let out = dir.join("packages");
    let told = fails(&mut packages(&way, "package", "--artifacts-dir", &recombined, &out), 1);
    for said in ["blas_lib", ".kpack", "rocblas", "hipblaslt", "hint: ", "--kpack-scope prefix"] {
        assert!(told.contains(said), "`{said}` is not in:\n{told}");
    }
    assert_eq!(snapshot(dir), before, "something was left behind, or changed");
    // The way out that it names.
    split(&way, &dir.join("split-again"), &["--kpack-scope", "prefix"]);
    recombine(&way, &dir.join("split-again"), &dir.join("recombined-again"));
    let recombined = dir.join("recombined-again");
    ok(&mut packages(&way, "package", "--artifacts-dir", &recombined, &out));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 44);
}
