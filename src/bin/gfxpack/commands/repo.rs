//! `gfxpack repo`

use std::path::Path;
use std::process::ExitCode;

use gfxpack::error::{Error, Result};
use gfxpack::repo::store::{Repository, Settings, State};
use gfxpack::repo::work::{self, Action, Options, Outcome, Selector};
use gfxpack::sign::Signer;

use super::{count, jobs, sign, source_date};
use crate::args::{Bringing, Global, Publishing, Repo, RepoAction, RepoCreate, RepoSimple};
use crate::output::Ui;
use crate::table::printable;

pub fn run(args: &Repo, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let Some(action) = &args.action else { return simple(&args.simple, global, ui) };
    match action {
        RepoAction::Create(args) => {
            let bringing = Some(&args.bringing);
            let signer = signer(&args.publishing, bringing, ui)?;
            warn_of_no_key(signer.as_ref(), ui);
            let repository = Repository::create(&args.dir, settings(args))?;
            let action = Action::Add(&args.packages);
            change(repository, action, &args.publishing, bringing, signer.as_ref(), global, ui)
        }
        RepoAction::Add(args) => {
            let bringing = Some(&args.bringing);
            let signer = signer(&args.publishing, bringing, ui)?;
            let action = Action::Add(&args.packages);
            let repository = Repository::open(&args.dir)?;
            change(repository, action, &args.publishing, bringing, signer.as_ref(), global, ui)
        }
        RepoAction::Merge(args) => {
            let bringing = Some(&args.bringing);
            let signer = signer(&args.publishing, bringing, ui)?;
            let action = Action::Merge(&args.others);
            let repository = Repository::open(&args.dir)?;
            change(repository, action, &args.publishing, bringing, signer.as_ref(), global, ui)
        }
        RepoAction::Remove(args) => {
            let selectors = args.packages.iter().map(|text| Selector::new(text));
            let selectors = selectors.collect::<Result<Vec<_>, Error>>()?;
            let signer = signer(&args.publishing, None, ui)?;
            let action = Action::Remove(&selectors, args.format);
            let repository = Repository::open(&args.dir)?;
            change(repository, action, &args.publishing, None, signer.as_ref(), global, ui)
        }
        RepoAction::Prune(args) => {
            let signer = signer(&args.publishing, None, ui)?;
            let action = Action::Prune(args.keep.try_into().unwrap_or(usize::MAX));
            let repository = Repository::open(&args.dir)?;
            change(repository, action, &args.publishing, None, signer.as_ref(), global, ui)
        }
        RepoAction::Publish(args) => {
            let signer = signer(&args.publishing, None, ui)?;
            let repository = Repository::open(&args.dir)?;
            let action = Action::Refresh;
            change(repository, action, &args.publishing, None, signer.as_ref(), global, ui)
        }
        RepoAction::List(args) => list(&args.dir, ui),
    }
}

/// Makes a repository or adds to it.
fn simple(args: &RepoSimple, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let (Some(packages), Some(dir)) = (&args.packages_dir, &args.output_dir) else {
        return Err(Error::usage("--packages-dir and --output-dir are needed").into());
    };
    let bringing = Some(&args.bringing);
    let signer = signer(&args.publishing, bringing, ui)?;
    let repository = if dir.join(".gfxpack").exists() {
        Repository::open(dir)?
    } else {
        warn_of_no_key(signer.as_ref(), ui);
        Repository::create(dir, Settings::default())?
    };
    let action = Action::Add(std::slice::from_ref(packages));
    change(repository, action, &args.publishing, bringing, signer.as_ref(), global, ui)
}

fn warn_of_no_key(signer: Option<&Signer>, ui: &Ui) {
    if signer.is_none() {
        ui.warning(
            "the repository is not signed: clients refuse it unless they are told to trust it",
        );
    }
}

fn settings(args: &RepoCreate) -> Settings {
    Settings {
        suite: args.suite.clone(),
        codename: args.codename.clone(),
        origin: args.origin.clone(),
        label: args.label.clone().unwrap_or_else(|| args.origin.clone()),
        rules: args.component.clone(),
        architectures: args.arch.clone(),
        valid_days: args.valid_days,
        url: args.url.clone(),
        keep_publications: args.keep_publications,
        keep_days: args.keep_days,
        rpm_compression: args.rpm_compression,
    }
}

fn signer(publishing: &Publishing, bringing: Option<&Bringing>, ui: &Ui) -> Result<Option<Signer>> {
    let signer = sign::signer(&publishing.signing)?;
    if let Some(signer) = &signer {
        sign::tell(signer, ui);
    } else if bringing.is_some_and(|bringing| bringing.sign_packages) {
        return Err(Error::usage("there is no key to sign packages with")
            .hint("add --sign-key FILE or --sign-command COMMAND, or set GFXPACK_SIGN_KEY")
            .into());
    }
    Ok(signer)
}

fn change(
    mut repository: Repository,
    action: Action<'_>,
    publishing: &Publishing,
    bringing: Option<&Bringing>,
    signer: Option<&Signer>,
    global: &Global,
    ui: &Ui,
) -> Result<ExitCode> {
    let date = match publishing.date {
        Some(date) => Some(date),
        None => source_date()?,
    };
    let options = Options {
        date,
        signer,
        sign_packages: bringing.is_some_and(|bringing| bringing.sign_packages),
        link: bringing.is_some_and(|bringing| bringing.link),
        allow_partial: publishing.allow_partial,
        new_key: publishing.new_key,
    };
    let outcome = work::run(&mut repository, action, options, &jobs(global), ui)?;
    for warning in &outcome.warnings {
        ui.warning(warning);
    }
    let json = serde_json::json!({ "status": "done", "outcome": outcome });
    ui.result(&json, || text(&outcome, repository.dir(), ui.is_verbose()));
    Ok(ExitCode::SUCCESS)
}

fn text(outcome: &Outcome, dir: &Path, verbose: bool) -> String {
    let mut out = String::new();
    if verbose {
        for (sign, packages) in [('+', &outcome.added), ('-', &outcome.removed)] {
            for package in packages {
                out += &format!("{sign} {}\n", printable(&package.path));
            }
        }
    }
    let mut parts = Vec::new();
    for (packages, what) in [(outcome.added.len(), "added"), (outcome.removed.len(), "removed")] {
        if packages > 0 {
            parts.push(format!("{} {what}", count(packages, "package")));
        }
    }
    if outcome.same > 0 {
        parts.push(format!("{} there already", outcome.same));
    }
    if parts.is_empty() {
        parts.push("nothing added or removed".to_owned());
    }
    out += &format!("{}: {}", dir.display(), parts.join(", "));
    out += &match &outcome.published {
        Some(published) => format!(
            "; publication {} with {}\n",
            published.publication,
            count(outcome.packages, "package")
        ),
        None => "; it stays as it is\n".to_owned(),
    };
    out
}

fn list(dir: &Path, ui: &Ui) -> Result<ExitCode> {
    let state = Repository::look(dir)?;
    let settings = &state.settings;
    let packages = work::list(&state.packages);
    let json = serde_json::json!({
        "suite": settings.suite,
        "codename": settings.codename,
        "components": settings.components().collect::<Vec<_>>(),
        "publication": state.publication,
        "date": state.date,
        "published": state.published(),
        "signed": state.signed,
        "key": state.key,
        "packages": packages,
    });
    ui.result(&json, || {
        // Beside the list: what reads that has a package on each line.
        ui.remark(&about(&state));
        let line = |package: &work::Listed| {
            let work::Listed { format, name, version, arch, .. } = package;
            format!("{format} {name} {version} {arch}\n")
        };
        packages.iter().map(line).collect()
    });
    Ok(ExitCode::SUCCESS)
}

/// What a repository is, in a few lines.
fn about(state: &State) -> String {
    let Settings { suite, codename, .. } = &state.settings;
    let codename = codename.as_ref().map_or_else(String::new, |name| format!(" (codename {name})"));
    let components: Vec<&str> = state.settings.components().collect();
    let published = match state.published() {
        Some(date) => format!("{date} (publication {})", state.publication),
        None => "not yet".to_owned(),
    };
    let signed = match (&state.key, state.signed) {
        (Some(key), true) => format!("by {key}"),
        (None, true) => "by a key that was not named (--sign-key-public)".to_owned(),
        (_, false) => "no".to_owned(),
    };
    format!(
        "suite: {suite}{codename}\ncomponents: {}\npublished: {published}\nsigned: {signed}\n\
         packages: {}",
        components.join(" "),
        state.packages.len(),
    )
}
