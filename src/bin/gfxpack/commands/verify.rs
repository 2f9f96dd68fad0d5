//! `gfxpack verify`

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use gfxpack::artifact::{ArtifactName, Shard, archive_stem, read_shard, read_shards};
use gfxpack::config::{PackagesConfig, PackagingConfig};
use gfxpack::error::{Error, Result};
use gfxpack::jobs::Jobs;
use gfxpack::pipeline::read_required;
use gfxpack::sign::Verifier;
use gfxpack::verify::{
    Allow, Finding, Options, PackageOptions, Report, RepositoryOptions, Severity, directory,
    invariant, junit, packages, repository,
};
use globset::Glob;

use super::package::install_prefix;
use super::{clock, count, jobs, sign, source_date, split};
use crate::args::{Global, Verify};
use crate::output::{Ui, tell};
use crate::table::printable;

pub fn run(args: &Verify, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let config = args.config.as_deref().map(PackagingConfig::load).transpose()?;
    let jobs = jobs(global);
    let of_config = config.as_ref().zip(args.config.as_deref());
    let source = args.source.as_deref().map(|dir| source(dir, of_config, &jobs, ui)).transpose()?;
    let options = Options {
        databases: split::databases(&args.databases)?,
        config: config.as_ref(),
        source: source.as_deref(),
        known_external: args.packages.as_deref().map(externals).transpose()?.unwrap_or_default(),
        external: args.external.iter().map(|text| external(text)).collect::<Result<_>>()?,
        allow: args.allow.iter().map(|text| allow(text)).collect::<Result<_>>()?,
    };
    let keys = args.key.as_deref().map(keys).transpose()?;
    if keys.is_none() && args.repo_dir.is_some() {
        ui.note("no --key: signatures are not checked");
    }
    let of_repository = RepositoryOptions {
        previous: args.previous.as_deref(),
        keys: keys.as_ref(),
        now: Some(source_date()?.unwrap_or_else(clock)),
    };
    let report = match (&args.packages_dir, &args.artifacts_dir) {
        _ if args.repo_dir.is_some() => {
            let dir = args.repo_dir.as_deref().unwrap_or(Path::new("."));
            repository(dir, of_repository, &options, &jobs, ui)?
        }
        (Some(dir), _) => packages(dir, &packaging(args)?, &options, &jobs, ui)?,
        (None, Some(dir)) => directory(dir, &options, &jobs, ui)?,
        (None, None) => return Err(Error::usage("there is nothing to verify").into()),
    };
    if let Some(path) = &args.junit {
        std::fs::write(path, junit(&report, args.warnings_as_errors))
            .map_err(|e| Error::io("cannot write", path, e))?;
    }
    let failed = report.errors() > 0 || args.warnings_as_errors && report.warnings() > 0;
    let status = if failed { "failed" } else { "passed" };
    if failed && global.quiet && !global.json {
        // Quiet is not silent about what is wrong.
        let mut findings = String::new();
        write_findings(&mut findings, &report.findings, ui.is_verbose());
        tell(format_args!("{}", findings.trim_end_matches('\n')));
    }
    ui.result(&serde_json::json!({ "status": status, "report": report }), || {
        text(&report, failed, args.artifacts_dir.is_none(), ui.is_verbose())
    });
    Ok(ExitCode::from(u8::from(failed)))
}

/// What the artifacts were made from: a shard, or a directory of shards, of which those have to be there that
/// the configuration requires: against half the input nothing is lost that the other half had.
fn source(
    dir: &Path,
    config: Option<(&PackagingConfig, &Path)>,
    jobs: &Jobs,
    ui: &Ui,
) -> Result<Vec<Shard>> {
    let listing =
        std::fs::read_dir(dir).map_err(|e| Error::io("cannot read the source", dir, e))?;
    let is_artifact = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_str().map(|name| archive_stem(name).unwrap_or(name));
        name.is_some_and(|name| ArtifactName::parse(name).is_ok())
    };
    if listing.flatten().any(is_artifact) {
        return Ok(vec![read_shard(dir, jobs, ui)?]);
    }
    match config {
        Some((config, file)) => read_required(dir, config, file, jobs, ui),
        None => read_shards(dir, jobs, ui),
    }
}

/// The keys that signatures are checked against.
fn keys(path: &Path) -> Result<Verifier> {
    let bytes = std::fs::read(path).map_err(|e| sign::unreadable(path, e))?;
    Ok(Verifier::from_keys(&bytes).map_err(|e| e.at(path))?)
}

fn packaging(args: &Verify) -> Result<PackageOptions> {
    Ok(PackageOptions {
        install_prefix: install_prefix(&args.install_prefix)?,
        tmp_dir: args.tmp_dir.clone().unwrap_or_else(std::env::temp_dir),
    })
}

fn external(text: &str) -> Result<Glob> {
    let wrong = |e| Error::usage(format!("--external {text}: the glob is none")).because(e);
    Ok(Glob::new(text).map_err(wrong)?)
}

/// The libraries that a packages file says come from elsewhere. Its globs were read already.
fn externals(path: &Path) -> Result<Vec<Glob>> {
    let config = PackagesConfig::load(path)?;
    Ok(config.externals.iter().filter_map(|(key, _)| Glob::new(key).ok()).collect())
}

/// `ID:GLOB=REASON`
fn allow(text: &str) -> Result<Allow> {
    let wrong = |what: &str| {
        Error::usage(format!("--allow {text}: {what}")).hint(
            "expected the id of a check, a glob over artifact/path and a reason, as \
             mode:blas_run_*/**=installed setuid on purpose; docs/verify.md lists the ids",
        )
    };
    let (id, rest) = text.split_once(':').ok_or_else(|| wrong("there is no `:`"))?;
    let (glob, reason) =
        rest.split_once('=').ok_or_else(|| wrong("there is no `=` with a reason"))?;
    if !gfxpack::verify::Check::ALL.iter().any(|check| check.about().id == id) {
        return Err(wrong(&format!("no check is called `{id}`")).into());
    }
    if reason.trim().is_empty() {
        return Err(wrong("the reason is empty").into());
    }
    let place = Glob::new(glob).map_err(|e| wrong("the glob is none").because(e))?;
    Ok(Allow { id: id.to_owned(), place, reason: reason.to_owned() })
}

fn text(report: &Report, failed: bool, packages: bool, verbose: bool) -> String {
    let mut text = String::new();
    write_findings(&mut text, &report.findings, verbose);
    for allowed in &report.allowed {
        let Finding { id, artifact, file, .. } = &allowed.finding;
        let place = printable(&format!("{artifact}/{file}"));
        let _ = writeln!(text, "allowed [{id}] {place}: {}", printable(&allowed.reason));
    }
    for summary in &report.summary {
        let verdict = match (summary.errors, summary.warnings) {
            (0, 0) => "ok".to_owned(),
            (0, warnings) => count(warnings, "warning"),
            (errors, 0) => count(errors, "error"),
            (errors, warnings) => {
                format!("{}, {}", count(errors, "error"), count(warnings, "warning"))
            }
        };
        let _ = writeln!(text, "{}  {:<52} {verdict}", summary.invariant, summary.holds);
    }
    // Of artifacts, each is a finding.
    if packages && !report.needs.is_empty() {
        let names: Vec<_> = report.needs.iter().map(|need| printable(&need.soname)).collect();
        let _ = writeln!(text, "needed from elsewhere: {}", names.join(", "));
    }
    for format in ["deb", "rpm"] {
        let of_format = report.relations.iter().filter(|one| one.format == format);
        let names: Vec<_> = of_format.map(|one| printable(&one.name)).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "needed from elsewhere ({format}): {}", names.join(", "));
        }
    }
    let mut parts = vec![
        count(report.artifacts.len(), if packages { "package" } else { "artifact" }),
        count(usize::try_from(report.files).unwrap_or(usize::MAX), "file"),
    ];
    // Of a repository, what is in the files is not looked at.
    let kernels = report.kernels.map(|kernels| usize::try_from(kernels).unwrap_or(usize::MAX));
    parts.extend(kernels.map(|kernels| count(kernels, "kernel")));
    let verdict = if failed { "failed" } else { "passed" };
    let _ = writeln!(text, "{verdict}: {}", parts.join(", "));
    text
}

/// Findings of one kind that are told each for itself.
const APART: usize = 3;

/// Writes the findings; of more than a few that are of one check and have one cause, what they have in
/// common once, where the first of them stands.
fn write_findings(text: &mut String, findings: &[Finding], verbose: bool) {
    let kind = |finding: &Finding| (finding.id, finding.cause, finding.mend);
    let mut kinds: HashMap<_, Vec<&Finding>> = HashMap::new();
    for finding in findings {
        kinds.entry(kind(finding)).or_default().push(finding);
    }
    for finding in findings {
        let Some(alike) = kinds.get(&kind(finding)) else { continue };
        if verbose || alike.len() <= APART {
            write_finding(text, finding);
        } else {
            write_alike(text, alike);
            kinds.remove(&kind(finding));
        }
    }
}

fn write_alike(text: &mut String, alike: &[&Finding]) {
    let (first, shown) = (alike[0], if alike[0].severity == Severity::Error { 20 } else { 5 });
    let severity = severity(first);
    let _ = writeln!(text, "{severity} [{}] {} findings", first.id, alike.len());
    for finding in alike.iter().take(shown) {
        let message = printable(&finding.message);
        let _ = writeln!(text, "  found: {}: {message}", place(finding));
    }
    if alike.len() > shown {
        let _ = writeln!(text, "  and {} more (--verbose shows each)", alike.len() - shown);
    }
    write_meaning(text, first);
}

fn severity(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn place(finding: &Finding) -> String {
    printable(&finding.place())
}

fn write_finding(text: &mut String, finding: &Finding) {
    let severity = severity(finding);
    let _ = writeln!(
        text,
        "{severity} [{}] {}\n  found: {}\n  expected: {}",
        finding.id,
        place(finding),
        printable(&finding.message),
        printable(&finding.expected),
    );
    write_meaning(text, finding);
}

fn write_meaning(text: &mut String, finding: &Finding) {
    let Finding { invariant: number, cause, mend, .. } = finding;
    let holds = invariant(*number);
    let _ =
        writeln!(text, "  invariant: {number}, {holds}\n  likely cause: {cause}\n  mend: {mend}");
}
