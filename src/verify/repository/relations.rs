//! Relations are closed within the repository, or to what comes from elsewhere.
//!
//! The rule is that of sets of packages: a relation to a name that some package of the repository has, or
//! provides, must be met by one of them; any other may be met by the system, unless the caller has named
//! all that comes from elsewhere.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use globset::{Glob, GlobSetBuilder};
use serde::Serialize;

use super::Log;
use crate::package::Format;
use crate::package::spec::Relation;
use crate::package::version;
use crate::repo::record::{Part, Record};
use crate::verify::finding::Check;
use crate::verify::packages::is_system;

/// What packages of a repository need from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExternalRelation {
    /// The format of the packages: `deb` or `rpm`.
    pub format: &'static str,
    /// The name, without a version; where any of several does, all of them, with ` | ` between.
    pub name: String,
    /// The first package that needs it: its path below the root of the format.
    pub needed_by: String,
    /// How many packages need it.
    pub packages: usize,
}

/// What packages of one architecture, and those for all, have by name: versions, where they say one.
pub(super) struct Provided {
    format: Format,
    names: HashMap<String, Vec<Option<String>>>,
}

impl Provided {
    pub(super) fn of<'a>(format: Format, records: impl Iterator<Item = &'a Record>) -> Self {
        let mut names: HashMap<String, Vec<Option<String>>> = HashMap::new();
        for record in records {
            names.entry(record.name.clone()).or_default().push(Some(record.version.clone()));
            for one in record.relations().provides {
                let version = one.constraint.map(|(_, version)| version);
                names.entry(one.name.to_string()).or_default().push(version);
            }
            // A relation can name a path: to rpm it is a capability.
            if let Part::Rpm(part) = &record.part {
                for (path, _) in part.paths() {
                    names.entry(path).or_default().push(None);
                }
            }
        }
        Self { format, names }
    }

    fn meets(&self, wanted: &Relation) -> bool {
        let mut versions = self.names.get(wanted.name.as_str()).into_iter().flatten();
        versions
            .any(|have| version::meets(self.format, have.as_deref(), wanted.constraint.as_ref()))
    }
}

/// Whether two packages are for one machine.
pub(super) fn share_machine(one: &str, other: &str) -> bool {
    let for_all = |arch: &str| matches!(arch, "all" | "noarch");
    one == other || for_all(one) || for_all(other)
}

/// Checks the relations of one format's packages; returns what none of them meets and no list names, by name.
pub(super) fn check(
    records: &[Record],
    external: &[Glob],
    log: &mut Log<'_>,
) -> Vec<ExternalRelation> {
    let Some(format) = records.first().map(Record::format) else { return Vec::new() };
    let mut elsewhere: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut set = GlobSetBuilder::new();
    external.iter().for_each(|glob| {
        set.add(glob.clone());
    });
    let externals = set.build().unwrap_or_default();
    let mut archs: Vec<&str> = records.iter().map(|record| record.arch.as_str()).collect();
    archs.sort_unstable();
    archs.dedup();
    for arch in archs {
        let seen = records.iter().filter(|record| share_machine(&record.arch, arch));
        let provided = Provided::of(format, seen);
        for record in records.iter().filter(|record| record.arch == arch) {
            for any in record.relations().needs {
                if any.is_empty() || any.iter().any(|one| provided.meets(one)) {
                    continue;
                }
                let known = |one: &Relation| provided.names.contains_key(one.name.as_str());
                let named = |one: &Relation| {
                    externals.is_match(one.name.as_str()) || is_system(one.name.as_str(), format)
                };
                if any.iter().any(named) {
                    continue;
                }
                if external.is_empty() && !any.iter().all(known) {
                    let names: Vec<&str> = any.iter().map(|one| one.name.as_str()).collect();
                    elsewhere.entry(names.join(" | ")).or_default().insert(&record.path);
                    continue;
                }
                let texts = any.iter().map(|one| match format {
                    Format::Deb => one.deb(),
                    Format::Rpm => one.rpm(),
                });
                let texts: Vec<String> = texts.collect();
                let what = format!(
                    "needs `{}`, which no package of the repository meets",
                    texts.join(" | ")
                );
                let there = any.iter().flat_map(|one| {
                    let versions =
                        provided.names.get(one.name.as_str()).into_iter().flatten().flatten();
                    versions.map(|version| format!("{} {version}", one.name))
                });
                let there: Vec<String> = there.take(5).collect();
                let expected = if there.is_empty() {
                    "a package of that name, or one that --external names".to_owned()
                } else {
                    format!("what the repository has: {}", there.join(", "))
                };
                log.add(Check::RelationUnmet, &record.path, what, expected);
            }
        }
    }
    let needs = elsewhere.into_iter().map(|(name, by)| ExternalRelation {
        format: format.as_str(),
        name,
        needed_by: by.first().copied().unwrap_or_default().to_owned(),
        packages: by.len(),
    });
    needs.collect()
}
