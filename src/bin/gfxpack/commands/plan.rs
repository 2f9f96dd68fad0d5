//! `gfxpack plan`

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gfxpack::artifact::Shard;
use gfxpack::error::{Error, Result};
use gfxpack::package::planned::MAGIC;
use gfxpack::pipeline::engines::{Engine, Replan, WRITTEN_BY, depfile, shell};
use gfxpack::pipeline::graph::{Node, graph, write_whole};
use gfxpack::pipeline::stale::{Stale, stale};
use gfxpack::tree::output::apart;
use gfxpack::tree::{EntryKind, Source};
use indicatif::HumanBytes;

use super::build::{Planned, planned};
use super::make::beside;
use super::package::{check_relations, set_options};
use super::{count, packaging_jobs};
use crate::args::{Build, Global, Packaging, Plan, TargetDistro};
use crate::output::Ui;

pub fn run(args: &Plan, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let packaging = &args.build.packaging;
    if packaging.dry_run {
        return Err(Error::usage("--dry-run is of no use here: no package is written")
            .hint("`gfxpack build --dry-run` lists what packages would hold")
            .into());
    }
    if packaging.caching.cache.is_some() {
        return Err(Error::usage(
            "--cache is of no use here: the engine knows what is made already",
        )
        .hint("leave it out; nodes whose inputs have not changed are not made again")
        .into());
    }
    if let (Some(ninja), Some(matrix)) = (&args.ninja, &args.github_matrix)
        && ninja == matrix
    {
        let error = Error::usage("is named for --ninja and for --github-matrix").at(ninja);
        return Err(error.hint("name two files").into());
    }
    let to_output = [&args.ninja, &args.github_matrix].into_iter().flatten().any(|f| is_output(f));
    if to_output && global.json {
        return Err(Error::usage("--json and a graph cannot both go to standard output")
            .hint("name a file for the graph, or leave --json out")
            .into());
    }
    let plan_dir = args.plan_dir.clone().unwrap_or_else(|| beside(&packaging.output_dir, "plans"));
    let sizes_dir =
        args.sizes_dir.clone().unwrap_or_else(|| beside(&packaging.output_dir, "sizes"));
    for dir in [&packaging.output_dir, &plan_dir, &sizes_dir] {
        apart(dir, &[&args.build.input_shards_dir])?;
    }
    for file in [&args.ninja, &args.github_matrix].into_iter().flatten() {
        if !is_output(file) {
            check_file(file, packaging.force)?;
        }
    }
    let Planned { plan, shards, packages, report } =
        planned(&args.build, global, &packaging_jobs(global), ui)?;
    check_relations(&packages, packaging)?;
    let input = &args.build.input_shards_dir;
    let nodes = graph(&packages, &set_options(packaging, &plan, false), input)?;
    let stale = find_stale(packaging, &plan_dir, &nodes)?;

    let mut of_process = std::env::args_os();
    let program = of_process.next().unwrap_or_else(|| "gfxpack".into());
    let options = options(packaging, global);
    let engine = |options| Engine {
        program: &program,
        options,
        plan_dir: &plan_dir,
        output_dir: &packaging.output_dir,
        sizes_dir: &sizes_dir,
    };
    // One thread for each node of many; in a matrix each job has a machine for itself.
    let mut for_ninja: Vec<OsString> = vec!["--quiet".into(), "--jobs".into()];
    for_ninja.push(global.jobs.unwrap_or(1).to_string().into());
    for_ninja.extend(options.iter().cloned());
    let mut for_matrix = options;
    // The input is copied to each machine.
    for_matrix.push("--moved".into());
    for_matrix
        .extend(global.jobs.into_iter().flat_map(|n| ["--jobs".into(), n.to_string().into()]));
    // All is there before the first file is written, and what is no longer wanted goes last: a run that fails takes nothing away.
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut printed = None;
    if args.ninja.as_deref().is_some_and(is_output) {
        printed = Some(engine(&for_ninja).ninja_once(&nodes)?);
    } else if let Some(file) = &args.ninja {
        let command = again(&program, of_process);
        let replan = Replan { file, command: &command, depends: &depends(&args.build, &shards)? };
        let (text, deps) = engine(&for_ninja).ninja(&nodes, &replan)?;
        files.extend([(depfile(file), deps), (file.clone(), text)]);
    }
    if let Some(file) = &args.github_matrix {
        let artifacts = shards.iter().flat_map(|shard| &shard.artifacts);
        let artifacts = artifacts.map(|artifact| artifact.origin.clone()).collect();
        let matrices =
            engine(&for_matrix).matrices(&nodes, &artifacts, usize::from(args.workers))?;
        let text = serde_json::to_string_pretty(&matrices).expect("keys are text") + "\n";
        if is_output(file) {
            printed = Some(text.into_bytes());
        } else {
            files.push((file.clone(), text.into_bytes()));
        }
    }
    let (plans, written) = write_plans(&engine(&for_ninja), &nodes)?;
    files.iter().try_for_each(|(file, bytes)| write_whole(file, bytes))?;
    printed.iter().for_each(|bytes| Ui::print_bytes(bytes));
    let removed = remove_stale(&stale, &packaging.output_dir, ui)?;
    remove_other_plans(&plan_dir, &plans)?;
    let json = serde_json::json!({
        "status": "planned",
        "plans": plan_dir.to_string_lossy(),
        "nodes": nodes.iter().map(node_json).collect::<Vec<_>>(),
        "removed": removed,
        "report": report,
    });
    let bytes: u64 = nodes.iter().map(|node| node.bytes).sum();
    let (nodes, new) = (count(nodes.len(), "node"), count(written, "plan"));
    let line = format!("{nodes} for {}, {new} new or changed", HumanBytes(bytes));
    if to_output {
        ui.remark(&line);
    } else {
        ui.result(&json, || line + "\n");
    }
    Ok(ExitCode::SUCCESS)
}

/// `-` is standard output.
fn is_output(file: &Path) -> bool {
    file == Path::new("-")
}

/// Finds packages of older runs, which the nodes would leave in the output: those of the plans before, and with `--force`
/// all others, as `build --force` does. Without it, others are refused.
fn find_stale(packaging: &Packaging, plan_dir: &Path, nodes: &[Node]) -> Result<Vec<PathBuf>> {
    let dir = &packaging.output_dir;
    let Stale { mut planned, others } = stale(dir, plan_dir, nodes)?;
    if let (Some(first), false) = (others.first(), packaging.force) {
        let first = file_name(first);
        let what = match others.len() {
            1 => format!("has a package that this plan does not make: {first}"),
            n => format!("has {n} packages that this plan does not make, as {first}"),
        };
        return Err(Error::usage(what)
            .at(dir)
            .hint("name another directory, or pass --force to have them removed")
            .into());
    }
    planned.extend(others);
    Ok(planned)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Removes packages of older runs from the output. Returns their names.
fn remove_stale(stale: &[PathBuf], dir: &Path, ui: &Ui) -> Result<Vec<String>> {
    let mut removed: Vec<String> = Vec::new();
    for path in stale {
        fs::remove_file(path).map_err(|e| Error::output("cannot remove", path, e))?;
        ui.note(&format!("removed {}", path.display()));
        removed.push(file_name(path));
    }
    if !removed.is_empty() {
        let files = count(removed.len(), "package file");
        ui.remark(&format!("removed {files} of older runs from {}", dir.display()));
    }
    removed.sort();
    Ok(removed)
}

fn node_json(node: &Node) -> serde_json::Value {
    serde_json::json!({
        "name": node.name,
        "inputs": node.inputs.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "needs": node.needs,
        "outputs": node.outputs,
        "bytes": node.bytes,
    })
}

/// A file that somebody else wrote is not replaced without being asked.
fn check_file(file: &Path, force: bool) -> Result<()> {
    let mut head = Vec::new();
    let Ok(open) = File::open(file) else { return Ok(()) };
    let read = open.take(WRITTEN_BY.len() as u64).read_to_end(&mut head);
    let own = head == WRITTEN_BY.as_bytes() || head.starts_with(b"{\n  \"first\": {");
    if force || head.is_empty() || own && read.is_ok() {
        return Ok(());
    }
    Err(Error::usage("exists, and is not of `gfxpack plan`")
        .at(file)
        .hint("name another file, or pass --force to replace it")
        .into())
}

/// Writes the plans that are new or have changed, so that the times of others say that they have not. Returns the paths of all, and how
/// many were written.
fn write_plans(engine: &Engine, nodes: &[Node]) -> Result<(BTreeSet<PathBuf>, usize)> {
    let mut written = 0;
    let mut wanted = BTreeSet::new();
    for node in nodes {
        let path = engine.plan(node);
        if fs::read(&path).ok().is_none_or(|there| there != node.plan) {
            write_whole(&path, &node.plan)?;
            written += 1;
        }
        wanted.insert(path);
    }
    Ok((wanted, written))
}

/// Removes plans of older runs.
fn remove_other_plans(dir: &Path, wanted: &BTreeSet<PathBuf>) -> Result<()> {
    let listing = fs::read_dir(dir).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    for entry in listing.map_err(|e| Error::io("cannot list the plans in", dir, e))? {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "plan")
            && !wanted.contains(&path)
            && is_plan(&path)
        {
            fs::remove_file(&path).map_err(|e| Error::io("cannot remove", &path, e))?;
        }
    }
    Ok(())
}

fn is_plan(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *MAGIC
}

/// What each `gfxpack make` is given of this run's arguments.
fn options(packaging: &Packaging, global: &Global) -> Vec<OsString> {
    let mut options: Vec<OsString> = Vec::new();
    if let Some(memory) = global.memory {
        options.extend(["--memory".into(), memory.to_string().into()]);
    }
    if let Some(spool) = packaging.spool {
        options.extend(["--spool".into(), spool.to_string().into()]);
    }
    let signing = &packaging.signing;
    for (option, value) in [
        ("--sign-key", signing.sign_key.as_ref().map(OsString::from)),
        (
            "--sign-key-passphrase-file",
            signing.sign_key_passphrase_file.as_ref().map(OsString::from),
        ),
        ("--sign-command", signing.sign_command.as_ref().map(OsString::from)),
        ("--sign-key-public", signing.sign_key_public.as_ref().map(OsString::from)),
    ] {
        options.extend(value.into_iter().flat_map(|value| [option.into(), value]));
    }
    if packaging.deb_detached_signature {
        options.push("--deb-detached-signature".into());
    }
    options
}

/// The command of this run, for a shell.
fn again(program: &OsString, args: impl Iterator<Item = OsString>) -> Vec<u8> {
    let mut words = Vec::new();
    if let Some(date) = std::env::var_os("SOURCE_DATE_EPOCH") {
        words.extend(["env".into(), {
            let mut set = OsString::from("SOURCE_DATE_EPOCH=");
            set.push(date);
            set
        }]);
    }
    words.push(program.clone());
    words.extend(args);
    shell(words.iter().map(OsString::as_os_str))
}

/// What planning depends on: the configuration's files, and all directories and files of the input, which
/// change when something is added to them.
fn depends(build: &Build, shards: &[Shard]) -> Result<BTreeSet<PathBuf>> {
    let packaging = &build.packaging;
    let mut paths = BTreeSet::from([packaging.config.clone(), build.input_shards_dir.clone()]);
    paths.extend(packaging.packages.clone());
    if let TargetDistro::Table(table) = &packaging.target_distro {
        paths.insert(table.clone());
    }
    paths.extend(build.splitting.databases.databases.clone());
    if let Some(dir) = &packaging.templates {
        below(dir, &mut paths)?;
    }
    for artifact in shards.iter().flat_map(|shard| &shard.artifacts) {
        let origin = &artifact.origin;
        paths.extend(origin.parent().map(Path::to_owned));
        paths.insert(origin.clone());
        if origin.is_file() {
            let mut checksum = origin.clone().into_os_string();
            checksum.push(gfxpack::tree::read::CHECKSUM);
            paths.extend(Some(PathBuf::from(checksum)).filter(|path| path.exists()));
            continue;
        }
        paths.insert(origin.join(gfxpack::artifact::MANIFEST));
        for (path, entry) in artifact.tree.iter() {
            // Of a link ninja would look at what it leads to; a new one changes the directory.
            let seen = match &entry.kind {
                EntryKind::Symlink(_) => false,
                EntryKind::File(source) => matches!(source, Source::File(_)),
                EntryKind::Dir | EntryKind::HardLink(_) => true,
            };
            paths.extend(seen.then(|| origin.join(path.as_path())));
        }
    }
    Ok(paths)
}

fn below(dir: &Path, paths: &mut BTreeSet<PathBuf>) -> Result<()> {
    paths.insert(dir.to_owned());
    let listing = fs::read_dir(dir).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    for entry in listing.map_err(|e| Error::io("cannot list", dir, e))? {
        let path = entry.path();
        if path.is_dir() {
            below(&path, paths)?;
        } else {
            paths.insert(path);
        }
    }
    Ok(())
}
