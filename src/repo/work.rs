//! What is done to a repository: each a change, the check of it, and its publication.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;
use serde::Serialize;

use super::brief::Package;
use super::change::{self, Change};
use super::intake;
use super::publish::{self, Next, Published};
use super::store::{Places, Repository, Settings, State, Stored, nanoseconds};
use super::{Indices, Kept, apt, closed, components, rpm, settings, trust};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::package::Format;
use crate::progress::Monitor;
use crate::sign::{PublicKey, Signer};

pub use super::change::Selector;

/// How to change and publish a repository.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// The date of the publication in seconds since 1970. Without one it is that of the newest package.
    pub date: Option<i64>,
    /// Signs the indices. One that was signed is not published without.
    pub signer: Option<&'a Signer>,
    /// Sign `.rpm` packages as well, on their way in.
    pub sign_packages: bool,
    /// Make hard links to packages where that is possible and all may read them, rather than copies.
    pub link: bool,
    /// Publish what clients could not install or upgrade to.
    pub allow_partial: bool,
    /// Sign with another key than before, which clients have to get first.
    pub new_key: bool,
    /// What time it is, in seconds since 1970: a publication that apt would not trust any more is refused. Without it that
    /// is not looked at, as nothing here looks at the clock.
    pub now: Option<i64>,
    /// Warn of such a publication rather than refuse it.
    pub allow_expired: bool,
}

/// What to do to a repository.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// Add package files, and those below directories.
    Add(&'a [PathBuf]),
    /// Remove packages, of one format or of both.
    Remove(&'a [Selector], Option<Format>),
    /// Keep so many versions of each package.
    Prune(usize),
    /// Add the packages of other repositories.
    Merge(&'a [PathBuf]),
    /// Publish what there is, with another date or key.
    Refresh,
    /// Publish what there is, called or kept otherwise.
    Set(&'a Settings),
}

/// A package, as it is told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// `deb` or `rpm`.
    pub format: &'static str,
    /// Its name.
    pub name: String,
    /// Its version with release.
    pub version: String,
    /// Its architecture.
    pub arch: String,
    /// Its file, below the repository's directory.
    pub path: String,
}

impl From<&Package> for Listed {
    fn from(record: &Package) -> Self {
        Self {
            format: record.format().as_str(),
            name: record.name.clone(),
            version: record.version.clone(),
            arch: record.arch.clone(),
            path: record.file(),
        }
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Packages that came.
    pub added: Vec<Listed>,
    /// Packages that went.
    pub removed: Vec<Listed>,
    /// How many of those to add were there before, the same byte for byte.
    pub same: usize,
    /// Packages of the repository now.
    pub packages: usize,
    /// The publication, or the one that would be; nothing where there was nothing to publish.
    pub published: Option<Published>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Does it. Where that fails, the repository is published as it was.
pub fn run(
    repository: &mut Repository,
    action: Action<'_>,
    options: Options<'_>,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    if repository.state.signed && options.signer.is_none() {
        return Err(Error::usage("the repository is signed, and there is no key")
            .at(repository.dir())
            .hint("add --sign-key FILE or --sign-command COMMAND, or set GFXPACK_SIGN_KEY")
            .into());
    }
    let run = Run { options, is_rehearsal: false, jobs, monitor };
    let (mut outcome, planned) = run.plan(&repository.places, &repository.state, action)?;
    if let Some(Planned { next, arrivals }) = planned {
        let arrivals = arrivals.into_iter().map(intake::arrival).collect();
        let indices = |state: &State, next: &Next| run.indices(state, next);
        outcome.published = Some(publish::publish(repository, next, indices, arrivals, jobs)?);
    }
    Ok(outcome)
}

/// Says what [`run`] would do to a repository, and fails where that would. Nothing is written, and no lock is held: the
/// repository may belong to somebody else. No key is needed.
pub fn rehearse(
    dir: &Path,
    action: Action<'_>,
    options: Options<'_>,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    let state = Repository::look(dir, jobs)?;
    let places = Places { dir: dir.to_owned() };
    let run = Run { options, is_rehearsal: true, jobs, monitor };
    let (mut outcome, planned) = run.plan(&places, &state, action)?;
    if let Some(Planned { next, .. }) = planned {
        let indices = run.indices(&state, &next)?;
        outcome.published = Some(publish::foresee(&state, next, &indices));
    }
    Ok(outcome)
}

/// What all steps of a run need.
struct Run<'a> {
    options: Options<'a>,
    is_rehearsal: bool,
    jobs: &'a Jobs,
    monitor: &'a dyn Monitor,
}

/// What is to be published.
struct Planned {
    next: Next,
    arrivals: Vec<intake::Waiting>,
}

impl Run<'_> {
    /// Finds out what becomes of the repository; nothing where it stays as it is. Nothing that is published changes.
    fn plan(
        &self,
        places: &Places,
        state: &State,
        action: Action<'_>,
    ) -> Result<(Outcome, Option<Planned>)> {
        let options = self.options;
        let key = self.key(places, state)?;
        trust::outdated(&places.dir, state)?;
        let settings = match action {
            Action::Set(settings) => {
                components::Rules::new(settings, &places.dir)?;
                settings
            }
            _ => &state.settings,
        };
        let change = self.change(places, state, action)?;
        let mut outcome = Outcome {
            added: change.added.iter().map(|one| (&*one.stored.record).into()).collect(),
            removed: change.removed.iter().map(|record| (&**record).into()).collect(),
            same: change.same,
            packages: change.packages.len(),
            published: None,
            warnings: change
                .passed_over
                .iter()
                .map(|what| format!("passed over: {what}"))
                .collect(),
        };
        outcome.warnings.extend(settings::warnings(state, settings));
        let is_new = state.publication == 0
            || matches!(action, Action::Refresh)
            || *settings != state.settings;
        if change.added.is_empty() && change.removed.is_empty() && !is_new {
            return Ok((outcome, None));
        }
        Errors::check((), dated(&change, options.date))?;
        let (checked, times) = self.jobs.both(
            || closed::check(state, &change.packages),
            || times(places, &change.packages, &change.added, self.jobs),
        );
        let checked = checked?;
        let known = checked.known.iter().map(|text| format!("as before: {text}"));
        outcome.warnings.extend(known);
        if options.allow_partial {
            outcome.warnings.extend(checked.faults.iter().map(ToString::to_string));
        } else {
            Errors::check((), checked.faults)?;
        }
        let signs = options.signer.is_some() || state.signed;
        let of_all = matches!(action, Action::Refresh);
        outcome.warnings.extend(trust::unsigned(state, &change, of_all, signs));
        let warnings = &mut outcome.warnings;
        let date = date(places, state, settings, &change.packages, options.date, warnings)?;
        if let (Some(now), Some(end)) = (options.now, settings.valid_until(date))
            && end < now
            && has_indices(state, Format::Deb, &change.packages)
        {
            let fault = trust::expired(&places.dir, date, end, now);
            if !options.allow_expired {
                return Err(fault.into());
            }
            warnings.push(format!("{}: apt refuses it", fault.fault()));
        }
        let mut packages = change.packages;
        for (stored, time) in packages.iter_mut().zip(times?) {
            stored.mtime = time;
        }
        let signed = publish::Signed { signed: options.signer.is_some(), key };
        let settings = settings.clone();
        let next = Next { settings, packages, left: checked.left, date, signed };
        Ok((outcome, Some(Planned { next, arrivals: change.added })))
    }

    /// The fingerprint of the key, which is that of before.
    fn key(&self, places: &Places, state: &State) -> Result<Option<String>> {
        let key = self.options.signer.and_then(Signer::public_key).map(PublicKey::fingerprint);
        if let (Some(before), Some(now)) = (&state.key, &key)
            && before != now
            && !self.options.new_key
        {
            let what = format!("the repository is signed by the key {before}; this one is {now}");
            return Err(Error::usage(what)
                .at(&places.dir)
                .hint(
                    "give that key; or pass --new-key: clients refuse the repository until they have the new one",
                )
                .into());
        }
        Ok(key)
    }

    fn change(&self, places: &Places, state: &State, action: Action<'_>) -> Result<Change> {
        let options = self.options;
        let rpm_signer = options.signer.filter(|_| options.sign_packages);
        let only_look = self.is_rehearsal;
        let intake_options =
            intake::Options { link: options.link, rpm_signer, known: None, only_look };
        let bring = |paths: &[PathBuf], options: intake::Options<'_>| -> Result<Change> {
            let (waiting, passed_over) =
                intake::bring(places, &state.settings, paths, options, self.jobs, self.monitor)?;
            Ok(Change { passed_over, ..change::add(state, waiting)? })
        };
        Ok(match action {
            Action::Add(paths) => bring(paths, intake_options)?,
            Action::Merge(dirs) => {
                let mut known = HashMap::new();
                for dir in dirs {
                    let other = Repository::look(dir, self.jobs)?;
                    known.extend(other.packages.iter().map(|stored| {
                        let record = &stored.record;
                        (dir.join(record.file()), record.sha256)
                    }));
                }
                let files: Vec<PathBuf> = known.keys().cloned().collect();
                // Digests are those of the files as they are there: signing changes them.
                let options = intake::Options { known: Some(&known), ..intake_options };
                bring(&files, options)?
            }
            Action::Remove(selectors, format) => change::remove(state, selectors, format)?,
            Action::Prune(keep) => change::prune(state, keep)?,
            Action::Refresh | Action::Set(_) => {
                Change { packages: state.packages.clone(), ..Change::default() }
            }
        })
    }

    fn indices(&self, state: &State, next: &Next) -> Result<Vec<Indices>> {
        let Next { settings, packages, date, .. } = next;
        let of = |format| {
            let of = packages.iter().map(|stored| &*stored.record);
            of.filter(|record| record.format() == format).collect::<Vec<_>>()
        };
        // What would be signed is not: a key may be asked for, or its use be noted down.
        let signer = self.options.signer.filter(|_| !self.is_rehearsal);
        let kept = &Kept::of(&state.blocks);
        let mut indices = Vec::new();
        if has_indices(state, Format::Deb, packages) {
            let debs = of(Format::Deb);
            indices.push(apt::indices(&debs, settings, *date, signer, kept, self.jobs)?);
        }
        if has_indices(state, Format::Rpm, packages) {
            let rpms = of(Format::Rpm);
            indices.push(rpm::indices(&rpms, settings, *date, signer, kept, self.jobs)?);
        }
        Ok(indices)
    }
}

/// Whether a repository with these packages has indices of a format. Without packages it is not known for whom it is to be.
fn has_indices(before: &State, format: Format, packages: &[Stored]) -> bool {
    packages.is_empty()
        || is_published(before, format)
        || packages.iter().any(|stored| stored.record.format() == format)
}

/// Whether there are indices of a format, which stay when its last package goes.
pub(super) fn is_published(state: &State, format: Format) -> bool {
    let root = format!("{}/", super::root(format));
    state.named.iter().any(|path| path.starts_with(&root))
}

/// Faults of packages that come and are dated after the publication, where its date is given, or after every date that
/// an index can have. One such package would date the repository for good, as no Release may be older than the one before.
fn dated(change: &Change, given: Option<i64>) -> Vec<Error> {
    let latest = given.unwrap_or(LATEST);
    let late = change.added.iter().filter(|one| one.stored.record.built > latest);
    let fault = |one: &intake::Waiting| {
        let record = &one.stored.record;
        let (called, built) = (record.called(), record.built);
        let than = if given.is_some() { "the publication" } else { "an index can tell" };
        Error::failed(format!("{called} is dated later than {than}: {built}, expected at most {latest}"))
            .at(&one.source)
            .hint(
                "give a later --date or SOURCE_DATE_EPOCH, or, where the package is dated in the future, build it \
                 again with the right SOURCE_DATE_EPOCH",
            )
    };
    late.map(fault).collect()
}

/// 2106-02-07 06:28:15 UTC, the last second of 32 bits, which is what packages and signatures have for dates.
const LATEST: i64 = u32::MAX as i64;

/// The date of the publication. apt takes no Release that is older than the one it has, so it is later than
/// that of the publication before.
fn date(
    places: &Places,
    before: &State,
    settings: &Settings,
    packages: &[Stored],
    given: Option<i64>,
    warnings: &mut Vec<String>,
) -> Result<i64> {
    let newest = packages.iter().map(|stored| stored.record.built).max().unwrap_or_default();
    let date = given.unwrap_or(newest).max(0);
    if date.max(before.date) >= LATEST {
        return Err(Error::failed(format!(
            "the publication would be dated {}, past 2106-02-07, which clients cannot read",
            date.max(before.date)
        ))
        .at(&places.dir)
        .hint(
            "give the right --date; where the repository has that date already, make a new one and merge this into \
             it: gfxpack repo create NEW, gfxpack repo merge NEW OLD",
        )
        .into());
    }
    if given.is_none() && settings.valid_days.is_some() {
        warnings.push(
            "the time until which the repository is valid counts from its newest package, for want of a date: \
             pass --date, or set SOURCE_DATE_EPOCH"
                .to_owned(),
        );
    }
    if before.publication == 0 || date > before.date {
        return Ok(date);
    }
    // A job that does two things gives both one date.
    if given.is_some() && date < before.date {
        warnings.push(format!(
            "the date {date} is earlier than that of the publication before, {}: clients would keep that; \
             taking one second more",
            before.date
        ));
    }
    Ok(before.date + 1)
}

/// Checks that the files of packages that stay are those that were read: by size and time, and by their
/// content where the time is another. Gives the times of all packages, in their order.
fn times(
    places: &Places,
    packages: &[Stored],
    added: &[intake::Waiting],
    jobs: &Jobs,
) -> Result<Vec<i64>> {
    /// Packages that one thread looks at: to look at one is to ask the system once.
    const TOGETHER: usize = 256;
    if added.len() == packages.len() {
        return Ok(packages.iter().map(|stored| stored.mtime).collect());
    }
    let new: std::collections::HashSet<&str> =
        added.iter().map(|one| one.stored.record.path.as_str()).collect();
    // From here the way to a file is shorter than from the root, and the system looks up less of it each time.
    let dir = &File::open(&places.dir)
        .map_err(|e| Error::io("cannot read the repository", &places.dir, e))?;
    let chunks: Vec<&[Stored]> = packages.chunks(TOGETHER).collect();
    let times = jobs.drive(&chunks, |chunk| {
        let time = |stored: &Stored| match new.contains(stored.record.path.as_str()) {
            true => Ok(stored.mtime),
            false => time(places, dir, stored),
        };
        chunk.iter().map(time).collect::<Vec<_>>()
    });
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for time in times.into_iter().flatten() {
        match time {
            Ok(time) => all.push(time),
            Err(fault) => faults.push(fault),
        }
    }
    Errors::check(all, faults)
}

/// When the file of a package was last written, which is the one that was read. `dir` is the repository's.
fn time(places: &Places, dir: &File, stored: &Stored) -> Result<i64, Error> {
    let record = &stored.record;
    let stat = rustix::fs::statat(dir, record.file(), AtFlags::empty()).map_err(|e| {
        Error::io("a package of the repository cannot be read", places.file(record), e.into())
    })?;
    let time = nanoseconds(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0));
    let has_its_size = u64::try_from(stat.st_size) == Ok(record.size);
    if has_its_size && time == stored.mtime {
        return Ok(time);
    }
    let path = places.file(record);
    if has_its_size && intake::digest(&path)? == record.sha256 {
        return Ok(time);
    }
    Err(Error::failed("a package of the repository is not what it was when it was added")
        .at(&path)
        .hint("restore the file, or remove the package: gfxpack repo remove"))
}

/// The packages of a repository, for people and programs.
pub fn list(packages: &[Stored]) -> Vec<Listed> {
    packages.iter().map(|stored| (&*stored.record).into()).collect()
}
