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
//! 2. A package of which no version is left, and whose exact relations the newest packages satisfied when it left,
//!    and would not any more, would keep those who have it from upgrading: one of the newest packages must replace
//!    it (`Replaces` and `Breaks` or `Conflicts`; `Obsoletes`), or what it needs must stay.
//!
//! What clients stumble over already does not keep a repository from being published: that was allowed once, and is told of.
//!
//! What leaves is kept in mind ([`Left`]): a group that leaves first, with what it needs unchanged, and the generic package that
//! goes on later would strand clients as both at once would. It is forgotten when a package of its name comes back, and when
//! its fault was told and published all the same, since it would be told for ever.
//!
//! Relations to ranges of versions, and to packages that are not here, are for the clients to resolve.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::brief::Package;
use super::record::Relations;
use super::store::{State, Stored};
use crate::error::{Error, Result};
use crate::package::Format;
use crate::package::spec::{Op, Relation};
use crate::package::version::{compare, meets};

/// So many faults are told one by one.
const TOLD: usize = 20;

/// A package of which no version is left in the repository, and that clients may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Whether it is an `.rpm`.
    rpm: bool,
    /// Its name.
    name: String,
    /// The newest version that there was.
    version: String,
    /// Its architecture.
    arch: String,
    /// Its relations to exact versions that the newest packages met when it left, each with its alternatives.
    needs: Vec<Vec<Relation>>,
}

impl Left {
    fn format(&self) -> Format {
        if self.rpm { Format::Rpm } else { Format::Deb }
    }

    /// One of those that leave now, unless it needs nothing exactly.
    fn of(record: &Package, needs: Vec<Vec<Relation>>) -> Option<Self> {
        let (name, version, arch) =
            (record.name.clone(), record.version.clone(), record.arch.clone());
        let rpm = record.format() == Format::Rpm;
        (!needs.is_empty()).then_some(Self { rpm, name, version, arch, needs })
    }
}

/// What there is to say of a publication.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Why clients could not upgrade to it, or install what is newest there.
    pub faults: Vec<Error>,
    /// What of that is so in the publication before as well.
    pub known: Vec<String>,
    /// What is to be kept in mind where it is published.
    pub left: Vec<Left>,
}

/// The newest packages that one kind of client sees.
struct Newest<'a> {
    format: Format,
    packages: BTreeMap<&'a str, (&'a Package, &'a Relations)>,
    /// Names of packages of any version, and what the newest provide.
    names: HashSet<&'a str>,
    /// Versions by name that the newest ones provide, their own among them.
    provided: HashMap<&'a str, Vec<Option<&'a str>>>,
    /// What the newest ones replace, by name, and which they are.
    replaced: HashMap<&'a str, Vec<(&'a str, &'a Relation)>>,
}

impl<'a> Newest<'a> {
    /// Of packages of one format; `known` are names that count as this repository's as well.
    fn of(packages: &[&'a Package], format: Format, known: HashSet<&'a str>) -> Result<Self> {
        let mut newest: BTreeMap<&str, &Package> = BTreeMap::new();
        // Versions of a package stand one after the other.
        for versions in packages.chunk_by(|one, other| one.name == other.name) {
            let Some((&first, others)) = versions.split_first() else { continue };
            let best = newest.entry(&first.name).or_insert(first);
            for &record in std::iter::once(&first).chain(others) {
                if compare(format, &record.version, &best.version).is_gt() {
                    *best = record;
                }
            }
        }
        let mut names = known;
        let mut packages: BTreeMap<&str, (&Package, &Relations)> = BTreeMap::new();
        let mut provided: HashMap<&str, Vec<Option<&str>>> = HashMap::new();
        let mut replaced: HashMap<&str, Vec<(&str, &Relation)>> = HashMap::new();
        for (name, record) in newest {
            let relations = record.part.relations()?;
            packages.insert(name, (record, relations));
            let mut give = |name: &'a str, version: Option<&'a str>| {
                names.insert(name);
                provided.entry(name).or_default().push(version);
            };
            give(name, Some(&record.version));
            for other in &relations.provides {
                give(
                    other.name.as_str(),
                    other.constraint.as_ref().map(|(_, version)| version.as_str()),
                );
            }
            for old in &relations.replaces {
                replaced.entry(old.name.as_str()).or_default().push((name, old));
            }
        }
        Ok(Self { format, packages, names, provided, replaced })
    }

    fn satisfies(&self, relation: &Relation) -> bool {
        let mut versions = self.provided.get(relation.name.as_str()).into_iter().flatten();
        versions.any(|have| meets(self.format, *have, relation.constraint.as_ref()))
    }

    /// Whether another of the newest packages takes the place of a version of this name.
    fn is_replaced(&self, name: &str, version: &str) -> bool {
        let mut by = self.replaced.get(name).into_iter().flatten();
        by.any(|(by, old)| {
            *by != name && meets(self.format, Some(version), old.constraint.as_ref())
        })
    }

    /// The newest package that a version of this name needed in an older version, and that could take its place.
    fn heir(
        &self,
        name: &str,
        version: &str,
        need: &[Relation],
    ) -> Option<(Format, String, String)> {
        let is_newer = |one: &&Relation| {
            let now = self.packages.get(one.name.as_str());
            now.is_some_and(|(now, _)| compare(self.format, &now.version, version).is_gt())
        };
        let heir = need.iter().find(is_newer)?;
        Some((self.format, name.to_owned(), heir.name.to_string()))
    }

    /// The exact relations to packages of this repository, each with its alternatives.
    fn exact<'r>(&self, relations: &'r Relations) -> impl Iterator<Item = &'r Vec<Relation>> {
        let is_ours = |alternatives: &&Vec<Relation>| {
            let exact = |one: &Relation| matches!(one.constraint, Some((Op::Equal, _)));
            alternatives.iter().all(exact)
                && alternatives.iter().any(|one| self.names.contains(one.name.as_str()))
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

/// What clients stumble over, in the order in which it is told.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Obstacle {
    text: String,
    /// The format, the package that stays behind, and the newest one that it needed and that could take its place.
    behind: Option<(Format, String, String)>,
}

/// The architecture of packages for every machine.
fn common(format: Format) -> &'static str {
    match format {
        Format::Deb => "all",
        Format::Rpm => "noarch",
    }
}

/// What of each architecture's packages clients see together.
fn views(packages: &[Stored]) -> BTreeMap<(Format, &str), Vec<&Package>> {
    let of_format: BTreeSet<Format> =
        packages.iter().map(|stored| stored.record.format()).collect();
    let mut views: BTreeMap<(Format, &str), Vec<&Package>> = BTreeMap::new();
    for format in of_format {
        let of: Vec<&Package> =
            packages.iter().map(|one| &*one.record).filter(|one| one.format() == format).collect();
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

/// Checks what would become of `before` with these packages.
pub(super) fn check(before: &State, after: &[Stored]) -> Result<Checked> {
    let mut told: BTreeSet<Obstacle> = BTreeSet::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    let key = |one: &Left| (one.format(), one.name.clone(), one.arch.clone());
    let mut left: BTreeMap<_, Left> =
        before.left.iter().map(|one| (key(one), one.clone())).collect();
    let mut forgotten = BTreeSet::new();
    let (old_views, new_views) = (views(&before.packages), views(after));
    let seen: BTreeSet<(Format, &str)> =
        old_views.keys().chain(new_views.keys()).copied().collect();
    let nothing = Vec::new();
    for (format, arch) in seen {
        let old = old_views.get(&(format, arch)).unwrap_or(&nothing);
        let packages = new_views.get(&(format, arch)).unwrap_or(&nothing);
        let old = Newest::of(old, format, HashSet::new())?;
        // What was here and is not any more does not come from elsewhere.
        let newest = Newest::of(packages, format, old.names.clone())?;
        for (record, relations) in newest.packages.values() {
            if newest.is_replaced(&record.name, &record.version) {
                continue;
            }
            for need in newest.exact(relations).filter(|need| !newest.is_met(need)) {
                let there =
                    need.first().map(|one| newest.there(one.name.as_str())).unwrap_or_default();
                let text = format!("{} needs {}, and {there}", record.called(), newest.text(need));
                let was = old.packages.get(&*record.name).filter(|(was, _)| was == record);
                if was.is_some() && !old.is_met(need) {
                    known.insert(text);
                    continue;
                }
                let behind = was.and_then(|_| newest.heir(&record.name, &record.version, need));
                told.insert(Obstacle { text, behind });
            }
        }
        let names: HashSet<&str> = packages.iter().map(|record| record.name.as_str()).collect();
        for (record, relations) in old.packages.values() {
            let needs = newest.exact(relations).filter(|need| old.is_met(need));
            if let Some(one) = Left::of(record, needs.cloned().collect())
                && !names.contains(record.name.as_str())
            {
                left.insert(key(&one), one);
            }
        }
        let is_seen = |one: &&Left| {
            one.format() == format && (one.arch == arch || one.arch == common(format))
        };
        for one in left.values().filter(is_seen) {
            if names.contains(one.name.as_str()) {
                forgotten.insert(key(one));
                continue;
            }
            // Where nothing is left, there is nothing to go on to.
            if packages.is_empty() || newest.is_replaced(&one.name, &one.version) {
                continue;
            }
            if let Some(need) = one.needs.iter().find(|need| !newest.is_met(need)) {
                let text = format!(
                    "{} {} {} is gone and nothing replaces it: who has it keeps {}",
                    one.name,
                    one.version,
                    one.arch,
                    newest.text(need)
                );
                let behind = newest.heir(&one.name, &one.version, need);
                told.insert(Obstacle { text, behind });
                forgotten.insert(key(one));
            }
        }
    }
    left.retain(|key, _| !forgotten.contains(key));
    let left = left.into_values().collect();
    Ok(Checked { faults: faults(told), known: known.into_iter().collect(), left })
}

/// Faults, the first of them one by one.
fn faults(told: BTreeSet<Obstacle>) -> Vec<Error> {
    let more = told.len().saturating_sub(TOLD);
    let hint = hint(&told);
    let texts = told.into_iter().map(|one| one.text);
    let mut faults: Vec<Error> = texts.take(TOLD).map(Error::failed).collect();
    if more > 0 {
        faults.push(Error::failed(format!("and {more} more like these")));
    }
    if let Some(last) = faults.pop() {
        let (first, lines) = hint;
        faults.push(last.hint(first).with_hint_lines(lines));
    }
    faults
}

/// What to do: a line, and further ones. A package that is no longer made looks as one that was forgotten: both are said.
fn hint(told: &BTreeSet<Obstacle>) -> (String, Vec<String>) {
    let mut heirs: BTreeMap<&str, BTreeMap<Format, BTreeSet<&str>>> = BTreeMap::new();
    let behind = told.iter().filter_map(|one| one.behind.as_ref());
    for (format, name, heir) in behind.clone() {
        heirs.entry(heir).or_default().entry(*format).or_default().insert(name);
    }
    let mut hint =
        "clients could not install or upgrade these: publish all packages of a release in one run"
            .to_owned();
    let mut lines = Vec::new();
    if let Some((_, name, _)) = behind.clone().next() {
        hint += &format!(
            ". Where {name} is no longer made, what it needed has to take its place: say so in the packages file, and build \
             and publish the release with that (with a higher --release where some of it is published already)"
        );
        for (heir, formats) in heirs.iter().take(TOLD) {
            let texts = formats.iter().map(|(format, names)| taking_the_place(*format, names));
            let texts: Vec<String> = texts.collect();
            // What is in its package goes by the definition's name.
            let definition = heir.strip_suffix("-generic").unwrap_or(heir);
            lines.push(format!("in the definition of {definition}: {}", texts.join(", ")));
        }
        if let Some(more) = heirs.len().checked_sub(TOLD).filter(|more| *more > 0) {
            lines.push(format!("and {more} more so"));
        }
        lines.push("where clients may be left behind, pass --allow-partial".to_owned());
    } else {
        hint += ", or, where this is meant, pass --allow-partial";
    }
    (hint, lines)
}

/// The relations of a definition in the packages file by which its package takes the place of others.
fn taking_the_place(format: Format, names: &BTreeSet<&str>) -> String {
    let all = |operator: &str, close: &str| {
        let all = names.iter().map(|name| format!("\"{name} {operator} {{version}}{close}\""));
        all.collect::<Vec<_>>().join(", ")
    };
    match format {
        Format::Deb => {
            let all = all("(<<", ")");
            format!("\"deb\": {{ \"breaks\": [{all}], \"replaces\": [{all}] }}")
        }
        Format::Rpm => format!("\"rpm\": {{ \"obsoletes\": [{}] }}", all("<", "")),
    }
}
