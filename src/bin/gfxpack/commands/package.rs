//! `gfxpack package`, and what it shares with `gfxpack build`

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use gfxpack::artifact::read_artifacts;
use gfxpack::config::{PackagesConfig, PackagingConfig};
use gfxpack::error::{Error, Errors, Result};
use gfxpack::jobs::Jobs;
use gfxpack::package::compat::System;
use gfxpack::package::compress::Compression;
use gfxpack::package::elfdeps::Target;
use gfxpack::package::render::Templates;
use gfxpack::package::room::{self, Room};
use gfxpack::package::set::{PackageFile, SetOptions};
use gfxpack::package::spec::{Package as Planned, check_versions};
use gfxpack::package::{Format, elfdeps, version};
use gfxpack::pipeline::{plan_packages, write_packages};
use gfxpack::sign::Signer;
use gfxpack::stage::{self, Options};
use gfxpack::tree::TreePath;
use gfxpack::tree::output::{OutputDir, check_free};
use indicatif::HumanBytes;

use super::{cache, dry_run, packaging_jobs, sign, source_date};
use crate::args::{Global, Package, Packaging, TargetDistro};
use crate::output::Ui;

pub fn run(args: &Package, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let plan = Plan::load(&args.packaging, global.memory)?;
    let packaging = &args.packaging;
    check_output(packaging, &args.artifacts_dir)?;
    let jobs = cache::with(packaging_jobs(global), &packaging.caching, packaging.dry_run)?;
    let artifacts = read_artifacts(&args.artifacts_dir, &jobs, ui)?;
    let (packages, report) =
        plan_packages(&artifacts, &plan.groups, plan.definitions.as_ref(), &plan.staging)?;
    tell(&report, ui);
    let report = serde_json::json!({ "stage": report });
    let input = &args.artifacts_dir;
    finish(&packages, &report, &args.packaging, &plan, input, &jobs, ui)
}

/// Refuses an output that is in the way before anything else takes its time, and one that is not apart from the input or
/// the cache, nor these from each other.
pub fn check_output(args: &Packaging, input: &Path) -> Result<()> {
    if args.dry_run {
        return Ok(());
    }
    cache::apart_from(&args.output_dir, &args.caching)?;
    cache::outside_of(input, &args.caching)?;
    check_free(&args.output_dir, args.force, &[input])
}

/// What the arguments and configuration files say about packaging.
pub struct Plan {
    pub groups: PackagingConfig,
    pub definitions: Option<PackagesConfig>,
    pub staging: Options,
    templates: Templates,
    /// Of `--memory`.
    memory: Option<u64>,
    signer: Option<Arc<Signer>>,
}

impl Plan {
    pub fn load(args: &Packaging, memory: Option<u64>) -> Result<Self> {
        let templates = match &args.templates {
            Some(dir) => Templates::with_overrides(dir)?,
            None => Templates::built_in(),
        };
        let install_prefix = install_prefix(&args.install_prefix)?;
        check_compat(args)?;
        let written = version::map(&args.version).written;
        for format in formats(args) {
            // A .deb's is the narrower one: one fault is not told of both.
            check_versions(&written, &args.release, format)?;
        }
        let relations = elfdeps::Options {
            distro: match &args.target_distro {
                TargetDistro::Known(distro) => Target::Known(*distro),
                TargetDistro::Table(path) => Target::load(path)?,
            },
            deb: args.format.contains(&Format::Deb),
            install_prefix: install_prefix.clone(),
        };
        let signer = signer_for(args)?;
        Ok(Self {
            groups: PackagingConfig::load(&args.config)?,
            definitions: args.packages.as_deref().map(PackagesConfig::load).transpose()?,
            staging: Options {
                version: args.version.clone(),
                release: args.release.clone(),
                install_prefix,
                source_date: source_date()?,
                only: args.only.clone(),
                relations: (!args.no_auto_deps).then_some(relations),
            },
            templates,
            memory,
            signer,
        })
    }
}

/// `--install-prefix` without its slash.
pub fn install_prefix(text: &str) -> Result<TreePath, Error> {
    let prefix = match text.strip_prefix('/') {
        Some(below) => TreePath::new(below).map_err(|e| e.to_string()),
        None => Err("it does not begin with `/`".to_owned()),
    };
    let checked = prefix.and_then(|prefix| {
        stage::check_install_prefix(&prefix)?;
        Ok(prefix)
    });
    checked.map_err(|why| {
        Error::usage(format!("--install-prefix {text} cannot be one: {why}")).hint(
            "expected the absolute path of a directory below /, as /opt/rocm, of letters, digits and `+-._@/:~`",
        )
    })
}

/// Who signs, where something is to be signed.
fn signer_for(args: &Packaging) -> Result<Option<Arc<Signer>>> {
    let rpm = args.format.contains(&Format::Rpm);
    let deb = args.deb_detached_signature && args.format.contains(&Format::Deb);
    let Some(signer) = sign::signer(&args.signing)? else {
        if args.deb_detached_signature {
            return Err(Error::usage("--deb-detached-signature has no key to sign with")
                .hint("add --sign-key FILE or --sign-command COMMAND, or set GFXPACK_SIGN_KEY")
                .into());
        }
        return Ok(None);
    };
    if !rpm && !deb {
        // A key in the environment may be meant for other runs.
        if args.signing.sign_key.is_none() && args.signing.sign_command.is_none() {
            return Ok(None);
        }
        return Err(Error::usage("there is a key, but nothing that it would sign")
            .hint("a .deb has no signature within: --deb-detached-signature writes one beside it")
            .into());
    }
    if rpm {
        signer.check_for_rpm()?;
    }
    Ok(Some(Arc::new(signer)))
}

/// Prints what staging found.
pub fn tell(report: &stage::Report, ui: &Ui) {
    if let Some(stage::Version { given, written }) = &report.version {
        ui.remark(&format!(
            "version {given} → {written}, which dpkg and rpm put in the same order"
        ));
    }
    for warning in &report.warnings {
        ui.warning(warning);
    }
    let unclaimed = &report.unclaimed;
    if !unclaimed.is_empty() {
        let (n, first) = (unclaimed.len(), &unclaimed[0]);
        ui.warning(&format!("{n} files are in no package, as {first}: no definition takes them"));
        for path in unclaimed {
            ui.note(&format!("in no package: {path}"));
        }
    }
}

/// Writes (or with `--dry-run` lists) planned packages. `report` is what planning found, by stage: it goes
/// into the JSON document beside the packages.
pub fn finish(
    packages: &[Planned],
    report: &serde_json::Value,
    args: &Packaging,
    plan: &Plan,
    input: &Path,
    jobs: &Jobs,
    ui: &Ui,
) -> Result<ExitCode> {
    check_relations(packages, args)?;
    for (format, asked) in
        [(Format::Deb, args.deb_compression), (Format::Rpm, args.rpm_compression)]
    {
        if asked.is_some() && !args.format.contains(&format) {
            ui.warning(&format!(
                "--{format}-compression is of no use: no .{format} is made (--format)"
            ));
        }
    }
    if let Some(signer) = &plan.signer {
        sign::tell(signer, ui);
    }
    if args.dry_run {
        let formats = formats(args);
        let json = with_report(dry_run::json(packages, &formats, report), report);
        ui.result(&json, || dry_run::text(packages, &formats, report, ui.is_verbose()));
        return Ok(ExitCode::SUCCESS);
    }
    let options = set_options(args, plan, ui.is_json());
    let output = OutputDir::create(&args.output_dir, args.force, &[input])?;
    warn_of_little_room(&Room::estimate(packages, &options.formats), output.part(), ui);
    let files = write_packages(packages, &options, output, jobs, ui)?;
    let output = args.output_dir.to_string_lossy();
    let json = serde_json::json!({ "status": "done", "output": output, "packages": files });
    let mut json = with_report(json, report);
    cache::tell(jobs, &mut json, ui);
    ui.result(&json, || {
        let line = |size, file: &str| format!("{:>11}  {file}\n", HumanBytes(size).to_string());
        let signature = |name: &String| format!("{:>11}  {name}\n", "");
        let lines = |file: &PackageFile| {
            line(file.size, &file.file)
                + &file.signature.as_ref().map_or_else(String::new, signature)
        };
        files.iter().map(lines).collect()
    });
    ui.made(files.iter().map(|file| file.size), &args.output_dir);
    Ok(ExitCode::SUCCESS)
}

/// The formats, each once.
fn formats(args: &Packaging) -> Vec<Format> {
    let mut formats = args.format.clone();
    formats.sort();
    formats.dedup();
    formats
}

/// How the packages are written, and whether with digests of their files.
pub fn set_options(args: &Packaging, plan: &Plan, digests: bool) -> SetOptions {
    SetOptions {
        formats: formats(args)
            .into_iter()
            .map(|format| (format, compression(args, format)))
            .collect(),
        templates: plan.templates.clone(),
        memory: plan.memory,
        spool: args.spool,
        signer: plan.signer.clone(),
        digests,
        sign_debs: args.deb_detached_signature,
    }
}

/// Says ahead where the disk may be too small. No more than that: it is an estimate.
fn warn_of_little_room(room: &Room, out: &Path, ui: &Ui) {
    if let Some(free) = room::free(out)
        && free < room.total()
    {
        let [free, packages, spool] = [free, room.packages, room.spool].map(HumanBytes);
        ui.warning(&format!(
            "the disk may become full: {free} are free, and the packages take an estimated {packages}, and while they \
             are written {spool} beside them"
        ));
    }
}

/// The compression of a format: what is asked for, or what all systems of `--compat` read.
fn compression(args: &Packaging, format: Format) -> Compression {
    let asked = match format {
        Format::Deb => args.deb_compression,
        Format::Rpm => args.rpm_compression,
    };
    asked.unwrap_or_else(|| System::common(&args.compat, format))
}

/// Refuses a compression that a system of `--compat` cannot read.
fn check_compat(args: &Packaging) -> Result<()> {
    let mut faults = Vec::new();
    for &format in &args.format {
        let how = compression(args, format);
        for system in &args.compat {
            if let Err(why) = system.check(format, how) {
                let option = format!("--{format}-compression {how}");
                faults.push(Error::usage(format!("{option} and --compat {system}: {why}")).hint(
                    format!(
                        "leave --{format}-compression out, or say xz:6 or none, or drop the system"
                    ),
                ));
            }
        }
    }
    Errors::check((), faults)
}

/// Refuses relations and versions that a system of `--compat` does not understand.
pub fn check_relations(packages: &[Planned], args: &Packaging) -> Result<()> {
    let mut faults = Vec::new();
    for (package, system) in packages.iter().flat_map(|p| args.compat.iter().map(move |s| (p, s))) {
        for format in formats(args) {
            if let Err(why) = system.check_relations(format, package) {
                let what = format!("package `{}` and --compat {system}: {why}", package.name);
                faults
                    .push(Error::usage(what).hint(
                        "say it in plain relations in the packages file, or drop the system",
                    ));
            }
        }
    }
    Errors::check((), faults)
}

fn with_report(mut json: serde_json::Value, report: &serde_json::Value) -> serde_json::Value {
    json["report"] = report.clone();
    json
}
