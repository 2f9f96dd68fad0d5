//! Whether clients can install and upgrade to what a repository would hold: partial publications.
//!
//! A group's package needs exactly one version of its generic package. Package managers look at the newest
//! version of each package first, apt at nothing else. So where the generic package of a new release is there and
//! the group's is not, `apt install rocblas-gfx110x` fails for new users, and `dnf --best` as well; those who have
//! both are held back. The rules, for each format and architecture:
//!
//! 1. Take the newest version of every package (without those that another of them replaces). Each of their
//!    relations to exact versions that is to a package of this repository must be satisfied by one of these newest
//!    packages, by its name or by what it provides.
//! 2. A package of which no version is left, and whose exact relations the newest packages satisfied before,
//!    and would not any more, would keep those who have it from upgrading: one of the newest packages must replace
//!    it (`Replaces` and `Breaks` or `Conflicts`; `Obsoletes`), or what it needs must stay.
//!
//! Relations to ranges of versions, and to packages that are not here, are for the clients to resolve.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::record::{Record, Relations};
use super::store::Stored;
use crate::error::Error;
use crate::package::Format;
use crate::package::spec::{Op, Relation};
use crate::package::version::{compare, meets};

/// So many faults are told one by one.
const TOLD: usize = 20;

/// The newest packages that one kind of client sees.
struct Newest<'a> {
    format: Format,
    packages: BTreeMap<&'a str, (&'a Record, Relations)>,
    /// Names of packages of any version, and what the newest provide.
    names: HashSet<String>,
    /// Versions by name that the newest ones provide, their own among them.
    provided: HashMap<String, Vec<Option<String>>>,
    /// What the newest ones replace, by name, and which they are.
    replaced: HashMap<String, Vec<(String, Relation)>>,
}

impl<'a> Newest<'a> {
    /// Of packages of one format; `known` are names that count as this repository's as well.
    fn of(packages: &[&'a Record], format: Format, known: HashSet<String>) -> Self {
        let mut newest: BTreeMap<&str, &Record> = BTreeMap::new();
        let mut names = known;
        for &record in packages {
            names.insert(record.name.clone());
            let best = newest.entry(&record.name).or_insert(record);
            if compare(format, &record.version, &best.version).is_gt() {
                *best = record;
            }
        }
        let packages: BTreeMap<&str, (&Record, Relations)> =
            newest.into_iter().map(|(name, record)| (name, (record, record.relations()))).collect();
        let mut provided: HashMap<String, Vec<Option<String>>> = HashMap::new();
        let mut replaced: HashMap<String, Vec<(String, Relation)>> = HashMap::new();
        for (record, relations) in packages.values() {
            let mut give = |name: &str, version: Option<String>| {
                names.insert(name.to_owned());
                provided.entry(name.to_owned()).or_default().push(version);
            };
            give(&record.name, Some(record.version.clone()));
            for other in &relations.provides {
                give(&other.name, other.constraint.as_ref().map(|(_, version)| version.clone()));
            }
            for old in &relations.replaces {
                let by = (record.name.clone(), old.clone());
                replaced.entry(old.name.clone()).or_default().push(by);
            }
        }
        Self { format, packages, names, provided, replaced }
    }

    fn satisfies(&self, relation: &Relation) -> bool {
        let mut versions = self.provided.get(&relation.name).into_iter().flatten();
        versions.any(|have| meets(self.format, have.as_deref(), relation.constraint.as_ref()))
    }

    /// Whether another of the newest packages takes the place of a version of this name.
    fn is_replaced(&self, record: &Record) -> bool {
        self.replaced.get(&record.name).into_iter().flatten().any(|(by, old)| {
            *by != record.name && meets(self.format, Some(&record.version), old.constraint.as_ref())
        })
    }

    /// The exact relations to packages of this repository, each with its alternatives.
    fn exact<'r>(&self, relations: &'r Relations) -> impl Iterator<Item = &'r Vec<Relation>> {
        let is_ours = |alternatives: &&Vec<Relation>| {
            let exact = |one: &Relation| matches!(one.constraint, Some((Op::Equal, _)));
            alternatives.iter().all(exact)
                && alternatives.iter().any(|one| self.names.contains(&one.name))
        };
        relations.needs.iter().filter(is_ours)
    }

    fn is_met(&self, alternatives: &[Relation]) -> bool {
        alternatives.iter().any(|one| self.satisfies(one))
    }

    fn text(&self, alternatives: &[Relation]) -> String {
        let texts = alternatives.iter().map(|one| match self.format {
            Format::Deb => one.deb(),
            Format::Rpm => one.rpm(),
        });
        texts.collect::<Vec<_>>().join(" | ")
    }

    /// What there is of a name, for people.
    fn there(&self, name: &str) -> String {
        match self.packages.get(name) {
            Some((record, _)) => format!("the newest {name} is {}", record.version),
            None => format!("no newest package provides {name} so"),
        }
    }
}

/// What of each architecture's packages clients see together.
fn views(packages: &[Stored]) -> BTreeMap<(Format, &str), Vec<&Record>> {
    let common = |format| match format {
        Format::Deb => "all",
        Format::Rpm => "noarch",
    };
    let of_format: BTreeSet<Format> =
        packages.iter().map(|stored| stored.record.format()).collect();
    let mut views: BTreeMap<(Format, &str), Vec<&Record>> = BTreeMap::new();
    for format in of_format {
        let of: Vec<&Record> =
            packages.iter().map(|one| &one.record).filter(|one| one.format() == format).collect();
        let mut archs: BTreeSet<&str> = of.iter().map(|record| record.arch.as_str()).collect();
        if archs.len() > 1 {
            archs.remove(common(format));
        }
        for arch in archs {
            let seen =
                of.iter().copied().filter(|one| one.arch == arch || one.arch == common(format));
            views.insert((format, arch), seen.collect());
        }
    }
    views
}

/// Why clients could not upgrade from `before` to `after`, or install what is newest there.
pub(super) fn check(before: &[Stored], after: &[Stored]) -> Vec<Error> {
    let mut told: BTreeSet<String> = BTreeSet::new();
    let old_views = views(before);
    for ((format, arch), packages) in views(after) {
        let nothing = Vec::new();
        let old = old_views.get(&(format, arch)).unwrap_or(&nothing);
        let old = Newest::of(old, format, HashSet::new());
        // What was here and is not any more does not come from elsewhere.
        let newest = Newest::of(&packages, format, old.names.clone());
        for (record, relations) in newest.packages.values() {
            if newest.is_replaced(record) {
                continue;
            }
            for need in newest.exact(relations).filter(|need| !newest.is_met(need)) {
                let there = need.first().map(|one| newest.there(&one.name)).unwrap_or_default();
                told.insert(format!(
                    "{} needs {}, and {there}",
                    record.called(),
                    newest.text(need)
                ));
            }
        }
        let names: HashSet<&str> = packages.iter().map(|record| record.name.as_str()).collect();
        for (record, relations) in old.packages.values() {
            if names.contains(record.name.as_str()) || newest.is_replaced(record) {
                continue;
            }
            let stuck = newest
                .exact(relations)
                .filter(|need| old.is_met(need))
                .find(|need| !newest.is_met(need));
            if let Some(need) = stuck {
                told.insert(format!(
                    "{} is gone and nothing replaces it: who has it keeps {}",
                    record.called(),
                    newest.text(need)
                ));
            }
        }
    }
    let more = told.len().saturating_sub(TOLD);
    let mut faults: Vec<Error> = told.into_iter().take(TOLD).map(Error::failed).collect();
    if more > 0 {
        faults.push(Error::failed(format!("and {more} more like these")));
    }
    if let Some(last) = faults.pop() {
        faults.push(last.hint(
            "clients could not install or upgrade these: publish all packages of a release in one run, \
             or, where this is meant, pass --allow-partial",
        ));
    }
    faults
}
