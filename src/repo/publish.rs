//! Publishing: clients see the old state or the new one, and what was interrupted is finished or never was.
//!
//! 0. What is to come is noted in `.gfxpack/arrivals` before it comes, from which the next run removes it if this one dies
//!    before it decides.
//! 1. Packages go to their places in the pool, while the indices are made. Nothing refers to them yet.
//! 2. Indices that are called after their content go to theirs. Nothing refers to them yet.
//! 3. Files with fixed names are written into `.gfxpack/next.part`, beside the new state and a plan that says
//!    which goes where, in which order. All that is new is flushed to the disk: packages as soon as they are at their
//!    places, indices while the state is encoded.
//! 4. `next.part` is renamed to `next`. **This decides.** A run that dies before changed nothing that anybody looks
//!    at; what one that dies after has left to do is done by the next run, from `next` alone.
//! 5. Each file of the plan is renamed over the one that was there, what refers to all else last: `InRelease`,
//!    `repomd.xml`.
//! 6. The new state is renamed over the old one, and what no client asks for any more is removed.
//!
//! Who has read the old `InRelease` still finds all that it names, since the old indices and packages stay: for
//! [`Settings::keep_publications`](super::store::Settings) publications and
//! [`keep_days`](super::store::Settings), whichever is longer. Days are counted between the dates of
//! publications, not by the clock.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::closed::Left;
use super::store::{OWN, Old, Places, Repository, Settings, State, Stored, mtime};
use super::{Content, Fixed, Indices, intake, root, store};
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::msgpack;

/// The new state, in the directory of a publication.
pub(super) const STATE: &str = "state";
const PLAN: &str = "plan";

const DAY: i64 = 86_400;
/// Up to so many new files are flushed one by one, which leaves alone what others write to that disk.
const FLUSHED: usize = 256;

/// What is to be done once a publication is decided.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    /// In order; files by number are in the publication's directory.
    places: Vec<(String, Option<u32>)>,
    /// What nobody asks for any more.
    remove: Vec<String>,
}

impl Plan {
    /// Nothing of it is outside of the repository.
    fn check(&self) -> Result<(), Error> {
        let places = self.places.iter().map(|(path, _)| path);
        check_inside(places.chain(&self.remove))
    }
}

/// Refuses paths that lead out of the directory that they are below, or to what is kept there for the next run.
fn check_inside<'a>(paths: impl IntoIterator<Item = &'a String>) -> Result<(), Error> {
    let is_inside = |path: &&String| {
        let mut parts = Path::new(path).components();
        let is_normal = parts.clone().all(|part| matches!(part, Component::Normal(_)));
        is_normal && parts.next().is_some_and(|first| first.as_os_str() != OWN)
    };
    match paths.into_iter().find(|path| !is_inside(path)) {
        None => Ok(()),
        Some(path) => Err(Error::failed(format!(
            "the path `{path}` leads out of the repository, expected one below deb or rpm"
        ))
        .hint("nothing was done with it: somebody edited this file; make the repository anew from its packages")),
    }
}

/// A file that is to go into the pool.
#[derive(Debug)]
pub struct Arrival {
    /// Where it is now, on the same file system.
    pub from: PathBuf,
    /// Where it goes, below the repository's directory.
    pub to: String,
    /// Where it stays, and a second name is to be made: which file it was when it was read, and the SHA-256 of that.
    pub link: Option<(Identity, [u8; 32])>,
}

/// What tells that a file is still the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    dev: u64,
    ino: u64,
    /// In bytes.
    pub(super) size: u64,
    /// In nanoseconds since 1970.
    pub(super) mtime: i64,
}

impl Identity {
    /// That of a file.
    pub fn of(metadata: &fs::Metadata) -> Self {
        let (dev, ino) = (metadata.dev(), metadata.ino());
        Self { dev, ino, size: metadata.len(), mtime: mtime(metadata) }
    }
}

/// What a publication changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Published {
    /// Its number.
    pub publication: u64,
    /// Its date in seconds since 1970.
    pub date: i64,
    /// Files of older publications that went away, sorted, below the repository's directory.
    pub removed_files: Vec<String>,
}

/// What a publication consists of, beside its indices.
#[derive(Debug)]
pub struct Next {
    /// What the repository is called, and how long old files stay.
    pub settings: Settings,
    /// All packages, sorted.
    pub packages: Vec<Stored>,
    /// Packages that are to be kept in mind.
    pub left: Vec<Left>,
    /// Its date in seconds since 1970.
    pub date: i64,
    /// By whom it is signed.
    pub signed: Signed,
}

/// Whether a publication is signed, and the fingerprint of the key where that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signed {
    /// Whether it is.
    pub signed: bool,
    /// In hexadecimal digits, as [`crate::sign::PublicKey::fingerprint`] says.
    pub key: Option<String>,
}

/// Publishes what is next, with the indices that are made of the state of before and of it. Packages go to their places
/// meanwhile.
pub fn publish(
    repository: &mut Repository,
    next: Next,
    indices: impl FnOnce(&State, &Next) -> Result<Vec<Indices>>,
    arrivals: Vec<Arrival>,
    jobs: &Jobs,
) -> Result<Published> {
    let places = repository.places.clone();
    let date = next.date;
    let mut coming = Coming::default();
    let (indices, brought) = jobs.both(
        || indices(&repository.state, &next),
        || {
            bring(&places, arrivals, &mut coming, jobs)?;
            store::chunks(&next.packages, jobs)
        },
    );
    let (mut indices, chunks) = (indices?, brought?);
    indices.push(gone(&repository.state, &indices));
    let (state, remove) = next_state(&repository.state, next, &indices);
    let named = indices.iter().flat_map(|one| &one.named).flat_map(|named| &named.paths);
    coming.intend(&places, named)?;
    let mut plan = Plan { places: Vec::new(), remove };
    let staged = places.part().join(STATE);
    let (written, prepared) = jobs.both(
        || write(&staged, &state.encode(&chunks, jobs)?),
        || prepare(&places, indices, &mut plan, coming.many, jobs),
    );
    written?;
    prepared?;
    flush(&places, &[staged, places.part().join(PLAN)], coming.many, jobs)?;
    decide(&places)?;
    finish(&places)?;
    let published = Published { publication: state.publication, date, removed_files: plan.remove };
    // First, so that nothing of it is taken for what was not decided.
    repository.state = state;
    remove_file(&places.arrivals())?;
    Ok(published)
}

/// What [`publish`] would make of `before`. Nothing is looked at or written.
pub(super) fn foresee(before: &State, next: Next, indices: &[Indices]) -> Published {
    let date = next.date;
    let (state, removed_files) = next_state(before, next, indices);
    Published { publication: state.publication, date, removed_files }
}

/// What is about to come to places where nothing is.
#[derive(Debug, Default)]
struct Coming {
    /// As it is noted, below the repository's directory.
    noted: BTreeSet<String>,
    /// Whether so many packages came that the whole disk is flushed.
    many: bool,
}

impl Coming {
    /// Notes more of it, packages or indices called after their content, before any of that comes.
    fn intend<'a>(
        &mut self,
        places: &Places,
        paths: impl Iterator<Item = &'a String>,
    ) -> Result<()> {
        // In a directory that is not there nothing is. Most of what comes to a new repository comes to few directories.
        let mut dirs: HashMap<&str, bool> = HashMap::new();
        let mut is_there = |path: &'a str| {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            *dirs.entry(dir).or_insert_with(|| places.dir.join(dir).exists())
                && fs::symlink_metadata(places.dir.join(path)).is_ok()
        };
        let new = paths.filter(|path| !is_there(path));
        let before = self.noted.len();
        self.noted.extend(new.cloned());
        let part = places.part();
        fs::create_dir_all(&part).map_err(|e| Error::output("cannot make", &part, e))?;
        if self.noted.len() == before {
            return Ok(());
        }
        check_inside(&self.noted)?;
        let bytes = rmp_serde::to_vec(&self.noted)
            .map_err(|e| Error::failed("cannot encode what the publication brings").because(e))?;
        // Whole or not at all.
        let temporary = part.join("arrivals");
        write(&temporary, &bytes)?;
        let synced = File::open(&temporary).and_then(|file| file.sync_all());
        synced.map_err(|e| Error::output("cannot write", &temporary, e))?;
        put(&temporary, &places.arrivals())
    }
}

/// Brings packages to their places, and flushes them to the disk.
fn bring(places: &Places, arrivals: Vec<Arrival>, coming: &mut Coming, jobs: &Jobs) -> Result<()> {
    coming.intend(places, arrivals.iter().map(|arrival| &arrival.to))?;
    coming.many = arrivals.len() > FLUSHED;
    let mut new = Vec::new();
    for arrival in arrivals {
        let to = places.dir.join(&arrival.to);
        match arrival.link {
            None => put(&arrival.from, &to)?,
            Some((seen, sha256)) => second_name(places, &arrival.from, &to, seen, sha256)?,
        }
        new.push(to);
    }
    flush(places, &new, coming.many, jobs)
}

/// Removes what a run has brought that did not get to its decision: of what it noted, all that the state does not
/// name.
pub(super) fn withdraw(places: &Places, state: &State) -> Result<()> {
    let path = places.arrivals();
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io("cannot read", &path, e).into()),
    };
    let (new, _): (Vec<String>, _) = msgpack::decode(&bytes).map_err(|e| {
        Error::failed("the list of files that a publication was to bring is damaged")
            .at(&path)
            .because(e)
            .hint("remove it; the files that it listed stay, and nothing refers to them")
    })?;
    check_inside(&new).map_err(|e| e.at(&path))?;
    let old = state.old.iter().map(|old| old.path.clone());
    let pool = state.packages.iter().map(|stored| stored.record.file());
    let needed: HashSet<String> = pool.chain(state.named.iter().cloned()).chain(old).collect();
    for path in new.iter().filter(|path| !needed.contains(*path)) {
        remove_with_dirs(places, path)?;
    }
    remove_file(&path)
}

/// Files with fixed names that were published and that these indices have not: of an architecture whose last package
/// went, of a key that is no longer known. They go last, when nothing refers to them any more.
fn gone(before: &State, indices: &[Indices]) -> Indices {
    let now: HashSet<&str> =
        indices.iter().flat_map(|one| &one.fixed).map(|fixed| fixed.path.as_str()).collect();
    let gone = before.fixed.iter().filter(|path| !now.contains(path.as_str()));
    let gone = gone.map(|path| Fixed { path: path.clone(), content: Content::Gone });
    Indices { fixed: gone.collect(), ..Indices::default() }
}

/// The state after a publication, and the files that go away with it.
fn next_state(before: &State, next: Next, indices: &[Indices]) -> (State, Vec<String>) {
    let Next { settings, packages, left: in_mind, date, signed } = next;
    let publication = before.publication + 1;
    let blocks = indices.iter().flat_map(|one| one.blocks.iter().cloned()).collect();
    let named: Vec<String> = indices
        .iter()
        .flat_map(|indices| &indices.named)
        .flat_map(|named| named.paths.iter().cloned())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let fixed = indices.iter().flat_map(|one| &one.fixed);
    let fixed = fixed.filter(|one| one.content != Content::Gone).map(|one| one.path.clone());
    let fixed = fixed.collect::<BTreeSet<_>>().into_iter().collect();
    let pool: HashSet<(&str, &str)> =
        packages.iter().map(|one| (root(one.record.format()), &*one.record.path)).collect();
    let named_now: HashSet<&str> = named.iter().map(String::as_str).collect();
    let gone = |path: &String| {
        let of_pool = path.split_once('/').is_some_and(|place| pool.contains(&place));
        !of_pool && !named_now.contains(path.as_str())
    };
    let since_now = |path, sha256| Old { path, sha256, since: publication, date };
    let mut olds: Vec<Old> = before.old.iter().filter(|old| gone(&old.path)).cloned().collect();
    let indices = before.named.iter().filter(|path| gone(path));
    olds.extend(indices.map(|path| since_now(path.clone(), None)));
    let left = before.packages.iter().map(|stored| &stored.record);
    let left = left.filter(|one| !pool.contains(&(root(one.format()), &*one.path)));
    olds.extend(left.map(|one| since_now(one.file(), Some(one.sha256))));
    let is_kept = |old: &Old| {
        publication - old.since < settings.keep_publications
            || date - old.date < i64::from(settings.keep_days) * DAY
    };
    let (mut kept, over): (Vec<Old>, Vec<Old>) = olds.into_iter().partition(is_kept);
    kept.sort_by(|a, b| a.path.cmp(&b.path));
    let mut remove: Vec<String> = over.into_iter().map(|old| old.path).collect();
    remove.sort();
    let Signed { signed, key } = signed;
    let (old, left) = (kept, in_mind);
    let state = State {
        settings,
        publication,
        date,
        signed,
        packages,
        named,
        old,
        fixed,
        key,
        left,
        blocks,
    };
    (state, remove)
}

/// Writes all that the publication consists of but for the state; nothing that anybody looks at changes. The plan, which is
/// written last, is not flushed, nor is anything where `later` is said.
fn prepare(
    places: &Places,
    indices: Vec<Indices>,
    plan: &mut Plan,
    later: bool,
    jobs: &Jobs,
) -> Result<()> {
    let part = places.part();
    let mut new = Vec::new();
    let mut number = 0;
    for indices in indices {
        for named in indices.named {
            let Some((first, others)) = named.paths.split_first() else { continue };
            let first = places.dir.join(first);
            // One that is there has this content: its name says so, unless the disk lost it.
            if fs::read(&first).ok().as_ref() != Some(&named.bytes) {
                let temporary = part.join("index");
                write(&temporary, &named.bytes)?;
                put(&temporary, &first)?;
                new.push(first.clone());
            }
            for other in others {
                let temporary = part.join("index");
                link(&first, &temporary)?;
                let other = places.dir.join(other);
                put(&temporary, &other)?;
                new.push(other);
            }
        }
        for fixed in indices.fixed {
            let staged = part.join(number.to_string());
            let from = match fixed.content {
                Content::Bytes(bytes) => write(&staged, &bytes).map(|()| Some(number))?,
                Content::Of(path) => {
                    link(&places.dir.join(path), &staged).map(|()| Some(number))?
                }
                Content::Gone => None,
            };
            if from.is_some() {
                new.push(staged);
            }
            plan.places.push((fixed.path, from));
            number += 1;
        }
    }
    // What cannot be done must not be decided.
    plan.check()?;
    let bytes = rmp_serde::to_vec(&plan)
        .map_err(|e| Error::failed("cannot encode the plan of the publication").because(e))?;
    write(&part.join(PLAN), &bytes)?;
    if later { Ok(()) } else { flush(places, &new, false, jobs) }
}

/// Flushes new files and their directories to the disk; where there are many, or `all` is said, all that is to go to it.
fn flush(places: &Places, new: &[PathBuf], all: bool, jobs: &Jobs) -> Result<()> {
    let cannot = |path: &Path, e| Error::output("cannot flush to the disk", path, e);
    if all || new.len() > FLUSHED {
        // Thousands of packages one by one would take minutes.
        let own = places.own();
        let synced = File::open(&own).and_then(|own| Ok(rustix::fs::syncfs(&own)?));
        return synced.map_err(|e| cannot(&own, e).into());
    }
    let dirs: BTreeSet<&Path> = new.iter().filter_map(|path| path.parent()).collect();
    let paths: Vec<&Path> = new.iter().map(PathBuf::as_path).chain(dirs).collect();
    // File systems write down side by side what is asked for side by side.
    let synced = jobs.drive(&paths, |path| {
        File::open(path).and_then(|file| file.sync_all()).map_err(|e| cannot(path, e))
    });
    Errors::check((), synced.into_iter().filter_map(Result::err).collect())
}

/// Decides that the publication takes place, all of which is on the disk.
fn decide(places: &Places) -> Result<()> {
    let (part, next, own) = (places.part(), places.next(), places.own());
    let cannot = |e: io::Error| Error::output("cannot publish", &next, e);
    let own = File::open(&own).map_err(cannot)?;
    fs::rename(&part, &next).map_err(cannot)?;
    own.sync_all().map_err(cannot)?;
    Ok(())
}

/// Does what a publication that is decided has left to do. Nothing where there is none.
pub(super) fn finish(places: &Places) -> Result<()> {
    let next = places.next();
    let bytes = match fs::read(next.join(PLAN)) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // Its plan goes first of what is removed at the end.
            return remove_dir(&next);
        }
        Err(e) => return Err(Error::io("cannot read", next.join(PLAN), e).into()),
    };
    let (plan, _): (Plan, _) = msgpack::decode(&bytes).map_err(|e| {
        Error::failed("the plan of a publication is damaged")
            .at(next.join(PLAN))
            .because(e)
            .hint("the repository is as it was, or partly new: publish it anew from its packages")
    })?;
    plan.check().map_err(|e| e.at(next.join(PLAN)))?;
    for (path, from) in &plan.places {
        let to = places.dir.join(path);
        match from {
            // What is not there any more has gone to its place before.
            Some(number) => match put(&next.join(number.to_string()), &to) {
                Err(_) if !next.join(number.to_string()).exists() && to.exists() => {}
                other => other?,
            },
            None => remove_with_dirs(places, path)?,
        }
    }
    if next.join(STATE).exists() {
        put(&next.join(STATE), &places.state())?;
    }
    for path in &plan.remove {
        remove_with_dirs(places, path)?;
    }
    remove_file(&next.join(PLAN))?;
    remove_dir(&next)
}

/// Removes what a run that did not get to its decision has left.
pub(super) fn clear(places: &Places) -> Result<()> {
    remove_dir(&places.part())?;
    remove_dir(&places.incoming())
}

/// Moves a file to its place in one step, whatever is there.
fn put(from: &Path, to: &Path) -> Result<()> {
    let dir = to.parent().unwrap_or(Path::new("."));
    match fs::rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !dir.exists() => {
            fs::create_dir_all(dir).map_err(|e| Error::output("cannot make", dir, e))?;
            fs::rename(from, to)
        }
        other => other,
    }
    .map_err(|e| Error::output("cannot move a file to its place", to, e).into())
}

/// Makes a second name of a package, or a copy where the file system has none.
fn second_name(
    places: &Places,
    from: &Path,
    to: &Path,
    seen: Identity,
    sha256: [u8; 32],
) -> Result<()> {
    let mut linked = fs::hard_link(from, to);
    match linked.as_ref().map_err(io::Error::kind) {
        Err(io::ErrorKind::AlreadyExists) => {
            remove_file(to)?;
            linked = fs::hard_link(from, to);
        }
        Err(io::ErrorKind::NotFound) => {
            let dir = to.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(dir).map_err(|e| Error::output("cannot make", dir, e))?;
            linked = fs::hard_link(from, to);
        }
        _ => {}
    }
    let is_same = if linked.is_ok() {
        fs::metadata(to).is_ok_and(|metadata| Identity::of(&metadata) == seen)
    } else {
        let copy = places.incoming().join("copy");
        fs::copy(from, &copy).map_err(|e| Error::output("cannot copy to", &copy, e))?;
        let is_same = intake::digest(&copy)? == sha256;
        put(&copy, to)?;
        is_same
    };
    if is_same {
        return Ok(());
    }
    remove_file(to)?;
    Err(Error::failed("was changed while it was added")
        .at(from)
        .hint("add it again when nobody writes it any more")
        .into())
}

/// Writes a new file. One that is there may be a second name of a published one, and is not touched.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    remove_file(path)?;
    fs::write(path, bytes).map_err(|e| Error::output("cannot write", path, e).into())
}

/// A second name, or a copy where the file system has no second names.
pub(super) fn link(from: &Path, to: &Path) -> Result<()> {
    remove_file(to)?;
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(|_| ()).map_err(|e| Error::output("cannot copy to", to, e).into())
}

/// Removes a file, and the directories that are empty then, up to the repository's own.
fn remove_with_dirs(places: &Places, path: &str) -> Result<()> {
    let path = places.dir.join(path);
    remove_file(&path)?;
    let mut dir = path.parent();
    while let Some(parent) = dir.filter(|dir| *dir != places.dir) {
        if fs::remove_dir(parent).is_err() {
            break;
        }
        dir = parent.parent();
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::output("cannot remove", path, e).into())
        }
        _ => Ok(()),
    }
}

fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::output("cannot remove", path, e).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Named;
    use super::*;

    fn jobs() -> Jobs {
        Jobs::new(1, 64 << 20)
    }

    fn settings() -> Settings {
        Settings { keep_publications: 1, keep_days: 0, ..Settings::default() }
    }

    /// Two files with fixed names, one of which goes and comes, and an index that is called after them.
    fn indices(text: &str) -> Indices {
        let index = format!("deb/by-hash/{text}");
        let fixed = |path: &str, content| Fixed { path: path.into(), content };
        let release = if text == "two" { Content::Gone } else { Content::Bytes(text.into()) };
        Indices {
            named: vec![Named { paths: vec![index.clone()], bytes: text.into() }],
            fixed: vec![
                fixed("deb/dists/Packages", Content::Of(index)),
                fixed("deb/dists/Release", release),
                fixed("deb/dists/InRelease", Content::Bytes(text.into())),
            ],
            blocks: Vec::new(),
        }
    }

    fn seen(dir: &Path) -> [Option<String>; 3] {
        ["Packages", "Release", "InRelease"]
            .map(|name| fs::read_to_string(dir.join("deb/dists").join(name)).ok())
    }

    #[test]
    fn a_second_name_is_that_of_the_file_that_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { dir: dir.path().to_owned() };
        let (from, to) = (dir.path().join("a.deb"), dir.path().join("deb/pool/a.deb"));
        fs::write(&from, "one").unwrap();
        let seen = Identity::of(&fs::metadata(&from).unwrap());
        second_name(&places, &from, &to, seen, [0; 32]).unwrap();
        assert_eq!(Identity::of(&fs::metadata(&to).unwrap()), seen);
        second_name(&places, &from, &to, seen, [0; 32]).unwrap();
        // Another file of its size under its name.
        let other = dir.path().join("other");
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &from).unwrap();
        let error = second_name(&places, &from, &to, seen, [0; 32]).unwrap_err().to_string();
        assert!(error.contains("was changed while it was added"), "{error}");
        assert!(!to.exists() && from.exists());
    }

    fn is(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn next(repository: &mut Repository, text: &str, date: i64) {
        let next = to_come(&repository.state, date);
        let made = |_: &State, _: &Next| Ok(vec![indices(text)]);
        publish(repository, next, made, Vec::new(), &jobs()).unwrap();
    }

    /// A publication without packages.
    fn to_come(state: &State, date: i64) -> Next {
        let (settings, signed) = (state.settings.clone(), Signed::default());
        Next { settings, packages: Vec::new(), left: Vec::new(), date, signed }
    }

    /// A repository with one publication.
    fn published(dir: &Path) -> Repository {
        let mut repository = Repository::create(dir, settings()).unwrap();
        next(&mut repository, "one", 1);
        repository
    }

    fn prepared(repository: &Repository) -> Plan {
        let indices = vec![indices("two")];
        let next = to_come(&repository.state, 2);
        let (state, remove) = next_state(&repository.state, next, &indices);
        let mut plan = Plan { places: Vec::new(), remove };
        let places = &repository.places;
        fs::create_dir_all(places.part()).unwrap();
        let chunks = store::chunks(&state.packages, &jobs()).unwrap();
        write(&places.part().join(STATE), &state.encode(&chunks, &jobs()).unwrap()).unwrap();
        prepare(places, indices, &mut plan, false, &jobs()).unwrap();
        plan
    }

    #[test]
    fn a_publication_that_is_not_decided_never_was() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("r");
        let repository = published(&dir);
        prepared(&repository);
        drop(repository);
        assert_eq!(seen(&dir), [is("one"), is("one"), is("one")]);
        let again = Repository::open(&dir, &jobs()).unwrap();
        assert_eq!(seen(&dir), [is("one"), is("one"), is("one")]);
        assert_eq!(again.state.publication, 1);
        assert!(!again.places.part().exists());
    }

    #[test]
    fn packages_that_came_before_it_failed_go_away() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("r");
        let mut repository = published(&dir);
        let (from, to) = (dir.join(OWN).join("waiting"), "deb/pool/a.deb".to_owned());
        fs::write(&from, "a").unwrap();
        let place = dir.join(&to);
        let arrivals = vec![Arrival { from, to, link: None }];
        let next = to_come(&repository.state, 2);
        let fails = |_: &State, _: &Next| Err(Error::failed("no index").into());
        publish(&mut repository, next, fails, arrivals, &jobs()).unwrap_err();
        assert!(place.exists());
        drop(repository);
        assert!(!place.exists() && !dir.join("deb/pool").exists());
        assert_eq!(seen(&dir), [is("one"), is("one"), is("one")]);
    }

    #[test]
    fn one_that_is_decided_is_finished_from_wherever_it_stopped() {
        // What was done before the run died: files at their places, the state, what is old removed.
        for steps in 0..=6 {
            let temp = tempfile::tempdir().unwrap();
            let dir = temp.path().join("r");
            let repository = published(&dir);
            let plan = prepared(&repository);
            let places = repository.places.clone();
            decide(&places).unwrap();
            let next = places.next();
            for (path, from) in plan.places.iter().take(steps) {
                match from {
                    Some(n) => fs::rename(next.join(n.to_string()), dir.join(path)).unwrap(),
                    None => fs::remove_file(dir.join(path)).unwrap(),
                }
            }
            if steps > 3 {
                fs::rename(next.join(STATE), places.state()).unwrap();
            }
            if steps > 4 {
                fs::remove_file(dir.join("deb/by-hash/one")).ok();
            }
            if steps > 5 {
                fs::remove_file(next.join(PLAN)).unwrap();
            }
            drop(repository);
            assert_eq!(Repository::look(&dir, &jobs()).unwrap().publication, 2);
            let again = Repository::open(&dir, &jobs()).unwrap();
            assert_eq!(again.state.publication, 2, "after {steps} steps");
            assert_eq!(seen(&dir), [is("two"), None, is("two")], "after {steps} steps");
            assert!(!next.exists());
            assert_eq!(Repository::open(&dir, &jobs()).map(|_| ()).unwrap_err().iter().count(), 1);
        }
    }

    #[test]
    fn old_indices_stay_for_as_long_as_was_said() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("r");
        let mut repository = published(&dir);
        let there = |name: &str| dir.join("deb/by-hash").join(name).exists();
        repository.state.settings.keep_publications = 2;
        for (text, date) in [("two", DAY), ("three", 2 * DAY)] {
            next(&mut repository, text, date);
            assert!(there("one") && there(text));
        }
        next(&mut repository, "four", 3 * DAY);
        assert_eq!(["one", "two", "three", "four"].map(there), [false, true, true, true]);
        // Three days, though only two publications.
        repository.state.settings.keep_days = 3;
        for (n, text) in ["five", "six", "seven"].iter().enumerate() {
            let date = 4 * DAY + i64::try_from(n).unwrap();
            next(&mut repository, text, date);
        }
        assert_eq!(["two", "three", "four", "five", "six"].map(there), [true; 5]);
        // One that comes back is no longer old.
        next(&mut repository, "five", 9 * DAY);
        assert_eq!(["two", "five", "seven"].map(there), [false, true, true]);
        let old: Vec<_> = repository.state.old.iter().map(|old| old.path.as_str()).collect();
        assert_eq!(old, ["deb/by-hash/seven", "deb/by-hash/six"]);
    }
}
