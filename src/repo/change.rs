//! Which packages a repository is to have: adding, removing, pruning. Nothing is written here.
//!
//! A name, version and architecture mean the same bytes for ever: clients cache packages by name, and mirrors
//! and people compare them. So other bytes under a name that is taken are refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use globset::Glob;

use super::brief::Package;
use super::intake::Waiting;
use super::record::Relations;
use super::store::{State, Stored};
use crate::error::{Error, Errors, Result};
use crate::package::Format;
use crate::package::spec::{Op, Relation};
use crate::package::version::meets;

/// The packages of a repository to be, and how it comes to them.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// All packages, sorted.
    pub packages: Vec<Stored>,
    /// Which of them are new.
    pub added: Vec<Waiting>,
    /// Which are left out.
    pub removed: Vec<Arc<Package>>,
    /// How many of those to add were there.
    pub same: usize,
    /// What was not looked into for packages to add, with the reason.
    pub passed_over: Vec<String>,
}

fn sorted(mut packages: Vec<Stored>) -> Vec<Stored> {
    packages.sort_by(|a, b| a.record.order(&b.record));
    packages
}

type Key<'a> = (Format, &'a str, &'a str, &'a str);

fn key(record: &Package) -> Key<'_> {
    (record.format(), &record.name, &record.version, &record.arch)
}

/// Adds packages. All conflicts are told.
pub(super) fn add(state: &State, waiting: Vec<Waiting>) -> Result<Change> {
    let mut same = 0;
    let mut faults = Vec::new();
    // Of those that wait, which come.
    let mut come = Vec::with_capacity(waiting.len());
    let mut taken = Taken::of(state, &waiting);
    for one in &waiting {
        let fault = taken.refuse(one, &mut same);
        come.push(matches!(fault, Ok(true)));
        faults.extend(fault.err());
    }
    let waiting = waiting.into_iter().zip(come);
    let added: Vec<Waiting> = waiting.filter(|(_, comes)| *comes).map(|(one, _)| one).collect();
    let new = added.iter().map(|one| one.stored.clone());
    let packages = sorted(state.packages.iter().cloned().chain(new).collect());
    Errors::check(Change { packages, added, same, ..Change::default() }, faults)
}

/// What packages that come must not be.
struct Taken<'a> {
    /// Packages by what they are called, and where one comes from, unless the repository has it.
    names: HashMap<Key<'a>, ([u8; 32], Option<&'a Path>)>,
    /// One record a file, whatever names are made of.
    paths: HashMap<(Format, &'a str), &'a Package>,
    /// Packages that were removed, and that clients still ask for.
    old: HashMap<&'a str, [u8; 32]>,
}

impl<'a> Taken<'a> {
    /// By the packages of the repository, of which only those are looked at that meet one that waits.
    fn of(state: &'a State, waiting: &[Waiting]) -> Self {
        let room = waiting.len();
        let (mut names, mut paths) = (HashMap::with_capacity(room), HashMap::with_capacity(room));
        if !state.packages.is_empty() {
            let records = || waiting.iter().map(|one| &one.stored.record);
            let coming: HashSet<_> =
                records().map(|record| (record.format(), &*record.name)).collect();
            let coming_to: HashSet<_> =
                records().map(|record| (record.format(), &*record.path)).collect();
            for Stored { record, .. } in &state.packages {
                let format = record.format();
                if coming.contains(&(format, &*record.name)) {
                    names.insert(key(record), (record.sha256, None));
                }
                if coming_to.contains(&(format, &*record.path)) {
                    paths.insert((format, &*record.path), &**record);
                }
            }
        }
        let old = state.old.iter().filter_map(|old| Some((old.path.as_str(), old.sha256?)));
        Self { names, paths, old: old.collect() }
    }

    /// Whether a package comes; else it is there, and counted, or refused.
    fn refuse(&mut self, one: &'a Waiting, same: &mut usize) -> Result<bool, Error> {
        let record = &*one.stored.record;
        let fault = |what: String, hint: &str| Err(Error::failed(what).at(&one.source).hint(hint));
        if let Some((sha256, by)) = self.names.get(&key(record)) {
            if *sha256 == record.sha256 {
                *same += 1;
                return Ok(false);
            }
            let by = by.map_or("the repository".to_owned(), |by| by.display().to_string());
            let what =
                format!("{} has other bytes than the one of that name in {by}", record.called());
            return fault(
                what,
                "clients that have the one would refuse the other: build it with a higher release",
            );
        }
        let is_other = |sha256: &[u8; 32]| *sha256 != record.sha256;
        if !self.old.is_empty() && self.old.get(&*record.file()).is_some_and(is_other) {
            return fault(
                format!("{} has other bytes than the one that was removed", record.called()),
                "clients with an older index still ask for that: build it with a higher release",
            );
        }
        if let Some(other) = self.paths.insert((record.format(), &record.path), record) {
            let (called, other) = (record.called(), other.called());
            return fault(
                format!("{called} would have the same file name as {other}"),
                "build one of them under another name",
            );
        }
        self.names.insert(key(record), (record.sha256, Some(&one.source)));
        Ok(true)
    }
}

/// Which packages to remove: `NAME` or `NAME=VERSION`, where `*` in the name stands for anything.
#[derive(Debug, Clone)]
pub struct Selector {
    text: String,
    name: globset::GlobMatcher,
    version: Option<String>,
}

impl Selector {
    /// Reads one.
    pub fn new(text: &str) -> Result<Self, Error> {
        let (name, version) = match text.split_once('=') {
            Some((name, version)) => (name, Some(version.to_owned())),
            None => (text, None),
        };
        let name = Glob::new(name).map_err(|e| {
            Error::usage(format!("`{text}` names no packages"))
                .because(e)
                .hint("write NAME or NAME=VERSION, with * in the name for anything")
        })?;
        Ok(Self { text: text.to_owned(), name: name.compile_matcher(), version })
    }

    fn is_of(&self, record: &Package) -> bool {
        let version = self.version.as_ref();
        self.name.is_match(&record.name) && version.is_none_or(|version| *version == record.version)
    }
}

/// Removes packages, of one format or of both. Each selector has to mean something.
pub(super) fn remove(
    state: &State,
    selectors: &[Selector],
    format: Option<Format>,
) -> Result<Change> {
    let mut used = vec![false; selectors.len()];
    let mut change = Change::default();
    for stored in &state.packages {
        let record = &stored.record;
        let mut goes = false;
        if format.is_none_or(|format| format == record.format()) {
            for (selector, used) in selectors.iter().zip(&mut used) {
                if selector.is_of(record) {
                    (goes, *used) = (true, true);
                }
            }
        }
        if goes {
            change.removed.push(Arc::clone(record));
        } else {
            change.packages.push(stored.clone());
        }
    }
    let unused = selectors.iter().zip(used).filter(|(_, used)| !used);
    let faults = unused.map(|(selector, _)| {
        Error::usage(format!("no package is called `{}`", selector.text))
            .hint("gfxpack repo list shows what there is; a .deb has its name in lower case, and a version its release (7.1.0-1)")
    });
    Errors::check((), faults.collect())?;
    Ok(change)
}

/// Keeps the `keep` newest versions of each name and architecture, and of those what can still be installed: what needs exactly a
/// version that goes, goes with it, as the last version of a package that is no longer made.
pub(super) fn prune(state: &State, keep: usize) -> Result<Change> {
    let mut count: BTreeMap<(Format, &str, &str), usize> = BTreeMap::new();
    let mut goes = vec![false; state.packages.len()];
    // Versions of a name come in their order, so the newest are last.
    for (stored, goes) in state.packages.iter().zip(&mut goes).rev() {
        let record = &stored.record;
        let seen = count.entry((record.format(), &record.name, &record.arch)).or_default();
        *seen += 1;
        *goes = *seen > keep;
    }
    if goes.contains(&true) {
        follow(&state.packages, &mut goes)?;
    }
    let mut change = Change::default();
    for (stored, goes) in state.packages.iter().zip(goes) {
        if goes {
            change.removed.push(Arc::clone(&stored.record));
        } else {
            change.packages.push(stored.clone());
        }
    }
    Ok(change)
}

/// Lets go what needs exactly a version of which the last package goes.
fn follow(packages: &[Stored], goes: &mut [bool]) -> Result<()> {
    let relations = packages.iter().map(|stored| stored.record.part.relations());
    let relations = relations.collect::<Result<Vec<&Relations>>>()?;
    // Packages by what they are called and provide, with the version that they have so.
    let mut met_by: HashMap<_, Vec<_>> = HashMap::new();
    for (number, (stored, relations)) in packages.iter().zip(&relations).enumerate() {
        let record = &stored.record;
        let format = record.format();
        met_by.entry((format, &*record.name)).or_default().push((number, Some(&*record.version)));
        for one in &relations.provides {
            let version = one.constraint.as_ref().map(|(_, version)| version.as_str());
            met_by.entry((format, one.name.as_str())).or_default().push((number, version));
        }
    }
    let is_exact = |one: &Relation| matches!(one.constraint, Some((Op::Equal, _)));
    // Each exact need: who has it, and how many are left that meet it; by each of these, the needs that it meets.
    let mut needs: Vec<(usize, usize)> = Vec::new();
    let mut meets_needs: Vec<Vec<usize>> = vec![Vec::new(); packages.len()];
    for (number, (stored, relations)) in packages.iter().zip(&relations).enumerate() {
        let format = stored.record.format();
        for need in relations.needs.iter().filter(|need| need.iter().all(is_exact)) {
            let by = need.iter().flat_map(|one| {
                let by = met_by.get(&(format, one.name.as_str())).into_iter().flatten();
                by.filter(|(_, version)| meets(format, *version, one.constraint.as_ref()))
            });
            let by: BTreeSet<usize> = by.map(|(number, _)| *number).collect();
            by.iter().for_each(|by| meets_needs[*by].push(needs.len()));
            needs.push((number, by.len()));
        }
    }
    let mut going: Vec<usize> = (0..packages.len()).filter(|number| goes[*number]).collect();
    while let Some(number) = going.pop() {
        for need in &meets_needs[number] {
            let (who, left) = &mut needs[*need];
            *left -= 1;
            // What nothing here ever met comes from elsewhere, and does not get here.
            if *left == 0 && !goes[*who] {
                goes[*who] = true;
                going.push(*who);
            }
        }
    }
    Ok(())
}
