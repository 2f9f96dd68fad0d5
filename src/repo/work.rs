//! What is done to a repository: each a change, the check of it, and its publication.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Serialize;

use super::change::{self, Change};
use super::intake;
use super::publish::{self, Published};
use super::record::Record;
use super::store::{Repository, Stored, mtime};
use super::{apt, closed, rpm};
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

impl From<&Record> for Listed {
    fn from(record: &Record) -> Self {
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
    /// The publication; nothing where there was nothing to publish.
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
    let key = options.signer.and_then(Signer::public_key).map(PublicKey::fingerprint);
    if let (Some(before), Some(now)) = (&repository.state.key, &key)
        && before != now
        && !options.new_key
    {
        let what = format!("the repository is signed by the key {before}; this one is {now}");
        return Err(Error::usage(what)
            .at(repository.dir())
            .hint("give that key; or pass --new-key: clients refuse the repository until they have the new one")
            .into());
    }
    let rpm_signer = options.signer.filter(|_| options.sign_packages);
    let intake_options = intake::Options { link: options.link, rpm_signer, known: None };
    let state = &repository.state;
    let change = match action {
        Action::Add(paths) => {
            let waiting = intake::bring(repository, paths, intake_options, jobs, monitor)?;
            change::add(state, waiting)?
        }
        Action::Merge(dirs) => {
            let mut known = HashMap::new();
            for dir in dirs {
                let other = Repository::look(dir)?;
                known.extend(other.packages.iter().map(|stored| {
                    let record = &stored.record;
                    (dir.join(record.file()), record.sha256)
                }));
            }
            let files: Vec<PathBuf> = known.keys().cloned().collect();
            // Digests are those of the files as they are there: signing changes them.
            let options = intake::Options { known: Some(&known), ..intake_options };
            let waiting = intake::bring(repository, &files, options, jobs, monitor)?;
            change::add(state, waiting)?
        }
        Action::Remove(selectors, format) => change::remove(state, selectors, format)?,
        Action::Prune(keep) => change::prune(state, keep),
        Action::Refresh => Change { packages: state.packages.clone(), ..Change::default() },
    };
    let mut outcome = Outcome {
        added: change.added.iter().map(|one| (&one.stored.record).into()).collect(),
        removed: change.removed.iter().map(Listed::from).collect(),
        same: change.same,
        packages: change.packages.len(),
        published: None,
        warnings: Vec::new(),
    };
    let is_new = state.publication == 0 || matches!(action, Action::Refresh);
    if change.added.is_empty() && change.removed.is_empty() && !is_new {
        return Ok(outcome);
    }
    Errors::check((), dated(&change, options.date))?;
    let partial = closed::check(&state.packages, &change.packages);
    if options.allow_partial {
        outcome.warnings.extend(partial.iter().map(ToString::to_string));
    } else {
        Errors::check((), partial)?;
    }
    let date = date(repository, &change.packages, options.date, &mut outcome.warnings)?;
    let mut packages = change.packages;
    unchanged(repository, &mut packages, &change.added)?;
    let indices = {
        let of = |format| {
            let of = packages.iter().map(|stored| &stored.record);
            of.filter(|record| record.format() == format).collect::<Vec<_>>()
        };
        let (debs, rpms) = (of(Format::Deb), of(Format::Rpm));
        let settings = &state.settings;
        let mut indices = Vec::new();
        // Without packages it is not known for whom it is to be.
        let is_empty = packages.is_empty();
        if is_empty || is_published(repository, Format::Deb) || !debs.is_empty() {
            indices.push(apt::indices(&debs, settings, date, options.signer, jobs)?);
        }
        if is_empty || is_published(repository, Format::Rpm) || !rpms.is_empty() {
            indices.push(rpm::indices(&rpms, settings, date, options.signer, jobs)?);
        }
        indices
    };
    let arrivals = change.added.into_iter().map(intake::arrival).collect();
    let signed = publish::Signed { signed: options.signer.is_some(), key };
    let published = publish::publish(repository, packages, indices, arrivals, date, signed)?;
    outcome.published = Some(published);
    Ok(outcome)
}

/// Whether there are indices of a format, which stay when its last package goes.
fn is_published(repository: &Repository, format: Format) -> bool {
    let root = format!("{}/", super::root(format));
    repository.state.named.iter().any(|path| path.starts_with(&root))
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
    repository: &Repository,
    packages: &[Stored],
    given: Option<i64>,
    warnings: &mut Vec<String>,
) -> Result<i64> {
    let newest = packages.iter().map(|stored| stored.record.built).max().unwrap_or_default();
    let date = given.unwrap_or(newest).max(0);
    let before = &repository.state;
    if date.max(before.date) >= LATEST {
        return Err(Error::failed(format!(
            "the publication would be dated {}, past 2106-02-07, which clients cannot read",
            date.max(before.date)
        ))
        .at(repository.dir())
        .hint(
            "give the right --date; where the repository has that date already, make a new one and merge this into \
             it: gfxpack repo create NEW, gfxpack repo merge NEW OLD",
        )
        .into());
    }
    if given.is_none() && before.settings.valid_days.is_some() {
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
/// content where the time is another.
fn unchanged(
    repository: &Repository,
    packages: &mut [Stored],
    added: &[intake::Waiting],
) -> Result<()> {
    let new: std::collections::HashSet<&str> =
        added.iter().map(|one| one.stored.record.path.as_str()).collect();
    let mut faults = Vec::new();
    for stored in packages.iter_mut() {
        let record = &stored.record;
        if new.contains(record.path.as_str()) {
            continue;
        }
        let path = repository.file(record);
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(e) => {
                faults.push(Error::io("a package of the repository cannot be read", &path, e));
                continue;
            }
        };
        if metadata.len() == record.size && mtime(&metadata) == stored.mtime {
            continue;
        }
        let is_same = metadata.len() == record.size && intake::digest(&path)? == record.sha256;
        if is_same {
            stored.mtime = mtime(&metadata);
        } else {
            faults.push(
                Error::failed("a package of the repository is not what it was when it was added")
                    .at(&path)
                    .hint("restore the file, or remove the package: gfxpack repo remove"),
            );
        }
    }
    Errors::check((), faults)
}

/// The packages of a repository, for people and programs.
pub fn list(packages: &[Stored]) -> Vec<Listed> {
    packages.iter().map(|stored| (&stored.record).into()).collect()
}
