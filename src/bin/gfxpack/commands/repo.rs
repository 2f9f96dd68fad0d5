//! `gfxpack repo`

use std::path::Path;
use std::process::ExitCode;

use gfxpack::error::{Error, Result};
use gfxpack::repo::rpm::Compression;
use gfxpack::repo::store::{Repository, Settings, State};
use gfxpack::repo::work::{self, Action, Options, Outcome, Selector};
use gfxpack::sign::Signer;

use super::{clock, count, jobs, sign, source_date};
use crate::args::{
    Bringing, Global, Publishing, Rehearsal, Repo, RepoAction, RepoSettings, RepoSimple,
};
use crate::output::Ui;
use crate::table::printable;

pub fn run(args: &Repo, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let Some(action) = &args.action else { return simple(&args.simple, global, ui) };
    let changing = |publishing, bringing, rehearsal: Option<&Rehearsal>| {
        let dry_run = rehearsal.is_some_and(|rehearsal| rehearsal.dry_run);
        Changing { publishing, bringing, dry_run, global, ui }
    };
    match action {
        RepoAction::Create(args) => {
            let changing = changing(&args.publishing, Some(&args.bringing), None);
            let settings = settings(&args.settings, None)?;
            let signer = changing.signer()?;
            let mut repository = Repository::create(&args.dir, settings)?;
            warn_of_no_key(signer.as_ref(), ui);
            changing.done(&mut repository, Action::Add(&args.packages), signer.as_ref())
        }
        RepoAction::Add(args) => {
            let bringing = Some(&args.bringing);
            let changing = changing(&args.publishing, bringing, Some(&args.rehearsal));
            changing.change(&args.dir, Action::Add(&args.packages))
        }
        RepoAction::Merge(args) => {
            let bringing = Some(&args.bringing);
            let changing = changing(&args.publishing, bringing, Some(&args.rehearsal));
            changing.change(&args.dir, Action::Merge(&args.others))
        }
        RepoAction::Remove(args) => {
            let selectors = args.packages.iter().map(|text| Selector::new(text));
            let selectors = selectors.collect::<Result<Vec<_>, Error>>()?;
            let changing = changing(&args.publishing, None, Some(&args.rehearsal));
            changing.change(&args.dir, Action::Remove(&selectors, args.format))
        }
        RepoAction::Prune(args) => {
            let changing = changing(&args.publishing, None, Some(&args.rehearsal));
            let keep = args.keep.try_into().unwrap_or(usize::MAX);
            changing.change(&args.dir, Action::Prune(keep))
        }
        RepoAction::Set(args) => {
            if !args.settings.says_something() {
                return Err(Error::usage("there is nothing to set")
                    .hint("give at least one of the options of `create`: gfxpack repo set --help")
                    .into());
            }
            let before = Repository::look(&args.dir, &jobs(global))?.settings;
            let settings = settings(&args.settings, Some(&before))?;
            let changing = changing(&args.publishing, None, Some(&args.rehearsal));
            changing.change(&args.dir, Action::Set(&settings))
        }
        RepoAction::Publish(args) => {
            changing(&args.publishing, None, None).change(&args.dir, Action::Refresh)
        }
        RepoAction::List(args) => list(&args.dir, global, ui),
    }
}

/// Makes a repository or adds to it.
fn simple(args: &RepoSimple, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let (Some(packages), Some(dir)) = (&args.packages_dir, &args.output_dir) else {
        return Err(Error::usage("--packages-dir and --output-dir are needed").into());
    };
    let (publishing, bringing) = (&args.publishing, Some(&args.bringing));
    let changing = Changing { publishing, bringing, dry_run: false, global, ui };
    let action = Action::Add(std::slice::from_ref(packages));
    if dir.join(".gfxpack").exists() {
        return changing.change(dir, action);
    }
    let signer = changing.signer()?;
    let mut repository = Repository::create(dir, Settings::default())?;
    warn_of_no_key(signer.as_ref(), ui);
    changing.done(&mut repository, action, signer.as_ref())
}

fn warn_of_no_key(signer: Option<&Signer>, ui: &Ui) {
    if signer.is_none() {
        ui.warning(
            "the repository is not signed: apt refuses it unless its source says `Trusted: yes`, and dnf and zypper cannot tell whose it is",
        );
    }
}

/// What was given, and of what was not that of before, or what is usual.
fn settings(args: &RepoSettings, before: Option<&Settings>) -> Result<Settings, Error> {
    let args = args.clone();
    let mut settings = before.cloned().unwrap_or_default();
    // A text that follows from another one.
    let is_own = before.is_some_and(|before| before.label != before.origin);
    if let Some(suite) = args.suite {
        settings.suite = suite;
    }
    if let Some(origin) = args.origin {
        settings.origin = origin;
    }
    if let Some(label) = args.label.or_else(|| (!is_own).then(|| settings.origin.clone())) {
        settings.label = label;
    }
    for (option, given, setting) in [
        ("--codename", args.codename, &mut settings.codename),
        ("--description", args.description, &mut settings.description),
        ("--url", args.url, &mut settings.url),
    ] {
        match given {
            // A variable of a script that is not set, rather than a wish.
            Some(text) if text.is_empty() && before.is_none() => {
                return Err(Error::usage(format!("the text of {option} is empty"))
                    .hint("give one, or leave the option out"));
            }
            Some(text) => *setting = Some(text).filter(|text| !text.is_empty()),
            None => {}
        }
    }
    if !args.component.is_empty() {
        settings.rules = args.component;
    }
    if !args.arch.is_empty() {
        settings.architectures = args.arch;
    }
    if let Some(days) = args.valid_days {
        settings.valid_days = Some(days).filter(|days| *days > 0);
    }
    settings.keep_publications = args.keep_publications.unwrap_or(settings.keep_publications);
    settings.keep_days = args.keep_days.unwrap_or(settings.keep_days);
    settings.rpm_compression = args.rpm_compression.unwrap_or(settings.rpm_compression);
    Ok(settings)
}

/// How repositories are changed.
struct Changing<'a> {
    publishing: &'a Publishing,
    bringing: Option<&'a Bringing>,
    dry_run: bool,
    global: &'a Global,
    ui: &'a Ui,
}

impl Changing<'_> {
    /// Changes a repository that is there, or says how it would be.
    fn change(&self, dir: &Path, action: Action<'_>) -> Result<ExitCode> {
        let signer = self.signer()?;
        if !self.dry_run {
            let mut repository = Repository::open(dir, &jobs(self.global))?;
            return self.done(&mut repository, action, signer.as_ref());
        }
        let options = self.options(signer.as_ref())?;
        let outcome = work::rehearse(dir, action, options, &jobs(self.global), self.ui)?;
        self.tell(&outcome, dir);
        Ok(ExitCode::SUCCESS)
    }

    fn done(
        &self,
        repository: &mut Repository,
        action: Action<'_>,
        signer: Option<&Signer>,
    ) -> Result<ExitCode> {
        let options = self.options(signer)?;
        let outcome = work::run(repository, action, options, &jobs(self.global), self.ui)?;
        self.tell(&outcome, repository.dir());
        // The run ends: to give back hundreds of thousands of texts one by one takes longer than to add a package.
        std::mem::forget(std::mem::take(&mut repository.state.packages));
        std::mem::forget(outcome);
        Ok(ExitCode::SUCCESS)
    }

    fn signer(&self) -> Result<Option<Signer>> {
        let signer = sign::signer(&self.publishing.signing)?;
        if let Some(signer) = &signer {
            sign::tell(signer, self.ui);
        } else if self.bringing.is_some_and(|bringing| bringing.sign_packages) {
            return Err(Error::usage("there is no key to sign packages with")
                .hint("add --sign-key FILE or --sign-command COMMAND, or set GFXPACK_SIGN_KEY")
                .into());
        }
        Ok(signer)
    }

    fn options<'s>(&self, signer: Option<&'s Signer>) -> Result<Options<'s>> {
        let date = match self.publishing.date {
            Some(date) => Some(date),
            None => source_date()?,
        };
        Ok(Options {
            date,
            signer,
            sign_packages: self.bringing.is_some_and(|bringing| bringing.sign_packages),
            link: self.bringing.is_some_and(|bringing| bringing.link),
            allow_partial: self.publishing.allow_partial,
            new_key: self.publishing.new_key,
            now: Some(clock()),
            // Who gives a date by hand may mean one of the past; a variable that a job has set is not looked at again.
            allow_expired: self.publishing.date.is_some(),
        })
    }

    fn tell(&self, outcome: &Outcome, dir: &Path) {
        for warning in &outcome.warnings {
            self.ui.warning(warning);
        }
        let status = if self.dry_run { "planned" } else { "done" };
        // Of thousands of packages it is not made for nothing.
        let json = || serde_json::json!({ "status": status, "outcome": outcome });
        let json = self.ui.is_json().then(json);
        self.ui.result(&json, || {
            if self.dry_run {
                rehearsed(outcome, dir, self.ui.is_verbose())
            } else {
                text(outcome, dir, self.ui.is_verbose())
            }
        });
    }
}

/// Packages that come and go, a line each.
fn lines(outcome: &Outcome) -> String {
    let mut out = String::new();
    for (sign, packages) in [('+', &outcome.added), ('-', &outcome.removed)] {
        for package in packages {
            out += &format!("{sign} {}\n", printable(&package.path));
        }
    }
    out
}

/// What a run would do.
fn rehearsed(outcome: &Outcome, dir: &Path, verbose: bool) -> String {
    let mut out = lines(outcome);
    let dir = dir.display();
    let Some(published) = &outcome.published else {
        let same = match outcome.same {
            0 => String::new(),
            same => format!(", {same} there already"),
        };
        return out
            + &format!("{dir}: nothing would be added or removed{same}; it would stay as it is\n");
    };
    if verbose {
        for path in &published.removed_files {
            out += &format!("  {}\n", printable(path));
        }
    }
    let mut parts = vec![
        format!("{} would be added", count(outcome.added.len(), "package")),
        format!("{} removed", outcome.removed.len()),
    ];
    if outcome.same > 0 {
        parts.push(format!("{} there already", outcome.same));
    }
    if !published.removed_files.is_empty() {
        let files = count(published.removed_files.len(), "file");
        parts.push(format!("{files} of older publications deleted"));
    }
    let (number, packages) = (published.publication, count(outcome.packages, "package"));
    out + &format!("{dir}: {}; publication {number} would have {packages}\n", parts.join(", "))
}

fn text(outcome: &Outcome, dir: &Path, verbose: bool) -> String {
    let mut out = if verbose { lines(outcome) } else { String::new() };
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

/// The settings by the names of their options.
fn shown(settings: &Settings) -> serde_json::Value {
    let components = settings.rules.iter().map(|(name, glob)| format!("{name}={glob}"));
    let components: Vec<String> = components.collect();
    serde_json::json!({
        "suite": settings.suite,
        "codename": settings.codename.as_ref().unwrap_or(&settings.suite),
        "origin": settings.origin,
        "label": settings.label,
        "description": settings.description,
        "component": components,
        "arch": settings.architectures,
        "valid_days": settings.valid_days,
        "url": settings.url,
        "keep_publications": settings.keep_publications,
        "keep_days": settings.keep_days,
        "rpm_compression": match settings.rpm_compression {
            Compression::Zstd => "zstd",
            Compression::Gzip => "gzip",
        },
    })
}

fn list(dir: &Path, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let state = Repository::look(dir, &jobs(global))?;
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
        "settings": shown(settings),
        "packages": packages,
    });
    ui.result(&json, || {
        // Beside the list: what reads that has a package on each line.
        about(&state).iter().for_each(|line| ui.remark(line));
        let line = |package: &work::Listed| {
            let work::Listed { format, name, version, arch, .. } = package;
            format!("{format} {name} {version} {arch}\n")
        };
        packages.iter().map(line).collect()
    });
    Ok(ExitCode::SUCCESS)
}

/// What a repository is, in a few lines.
fn about(state: &State) -> [String; 5] {
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
    [
        format!("suite: {suite}{codename}"),
        format!("components: {}", components.join(" ")),
        format!("published: {published}"),
        format!("signed: {signed}"),
        format!("packages: {}", state.packages.len()),
    ]
}
