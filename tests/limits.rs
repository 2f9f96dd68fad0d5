//! What the system allows a process: threads, memory, open files, sizes of files. Where it is too little, that is an error
//! with advice, and nothing is left behind.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{Ran, example_config, example_shards, gfxpack, ok, run, snapshot, tool};

/// Runs gfxpack under a limit, as the shell sets it.
fn limited(limit: &str, stack: Option<u64>, args: &[&str], out: &Path) -> Ran {
    let program = gfxpack().get_program().to_owned();
    let mut command = tool("bash", "bash");
    command.arg("-c").arg(format!("{limit} && exec \"$@\"")).arg("-").arg(program).args(args);
    if let Some(stack) = stack {
        command.env("RUST_MIN_STACK", stack.to_string());
    }
    run(command.arg("--output-dir").arg(out))
}

#[track_caller]
fn build(limit: &str, stack: Option<u64>) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let (shards, config) = (example_shards(), example_config());
    let args = ["build", "--no-auto-deps", "--version", "1", "--release", "1", "--jobs", "64"];
    let args = [
        &args[..],
        &["--input-shards-dir", shards.to_str().unwrap(), "--config", config.to_str().unwrap()],
    ];
    let ran = limited(limit, stack, &args.concat(), &dir.path().join("out"));
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    ran
}

/// Memory for three threads of a gigabyte each.
const MEMORY: &str = "ulimit -v 4000000";
const STACK: Option<u64> = Some(1 << 30);

#[test]
fn a_thread_that_the_system_refuses_is_an_error_where_it_is_needed() {
    let ran = build(MEMORY, STACK);
    assert!(ran.stderr.contains("cannot start a thread"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--jobs"), "{}", ran.stderr);
}

#[test]
fn a_thread_that_the_system_refuses_is_done_without_where_others_can_do_its_work() {
    let dir = tempfile::tempdir().unwrap();
    let shard = example_shards().join("gfx1151-build");
    let args = ["split", "--jobs", "64", "--batch-artifact-parent-dir", shard.to_str().unwrap()];
    let [few, many] = ["few", "many"].map(|name| dir.path().join(name));
    let ran = limited(MEMORY, STACK, &args, &few);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    ok(gfxpack().args(args).arg("--output-dir").arg(&many));
    common::assert_same("few threads", &snapshot(&few), &snapshot(&many));
}

#[test]
fn a_file_that_may_not_be_as_large_is_an_error_and_not_the_end_of_the_process() {
    let ran = build("ulimit -f 4", None);
    assert!(ran.stderr.contains("File too large"), "{}", ran.stderr);
    assert!(ran.stderr.contains("ulimit -f"), "{}", ran.stderr);
}

#[test]
fn too_few_open_files_are_told_with_what_to_do() {
    let ran = build("ulimit -n 12", None);
    assert!(ran.stderr.contains("Too many open files"), "{}", ran.stderr);
    assert!(ran.stderr.contains("ulimit -n"), "{}", ran.stderr);
}
