//! Against what clients have: nothing becomes older, nothing changes under its name.

use std::collections::{BTreeMap, HashMap};

use super::{Entry, Listing};
use crate::date;
use crate::package::Format;
use crate::package::spec::Op;
use crate::package::version::{compare, meets};
use crate::repo::record::Record;
use crate::verify::finding::{Check, Finding};

/// Compares the newest versions, the bytes of what has one name, and the dates of the top files.
pub(super) fn check(
    before: &[Listing],
    now: &[Listing],
    records: &BTreeMap<Format, Vec<Record>>,
    findings: &mut Vec<Finding>,
) {
    let mut add = |id, place: String, what: String, expected: String| {
        findings.push(Finding::new(id, &place, "", what, expected));
    };
    for old in before {
        let Some(new) = now.iter().find(|new| new.format == old.format) else {
            let what =
                format!("there is no repository of .{} packages any more", old.format.as_str());
            add(Check::RepoDowngrade, old.label.clone(), what, "one, as before".to_owned());
            continue;
        };
        for (file, date) in &old.dates {
            match new.dates.get(file) {
                Some(now) if now < date => {
                    let what = format!("is of {}", date::iso(*now));
                    let expected = format!("no earlier than {}, as before", date::iso(*date));
                    add(Check::RepoDowngrade, format!("{}{file}", new.label), what, expected);
                }
                Some(_) => {}
                None => {
                    let place = format!("{}{file}", new.label);
                    add(
                        Check::RepoDowngrade,
                        place,
                        "is gone".to_owned(),
                        "one, as before".to_owned(),
                    );
                }
            }
        }
        let key = |entry: &Entry| (entry.name.clone(), entry.version.clone(), entry.arch.clone());
        let had: HashMap<_, _> = old.entries.values().map(|entry| (key(entry), entry)).collect();
        for entry in new.entries.values() {
            if let Some(other) = had.get(&key(entry)).filter(|other| other.sha256 != entry.sha256) {
                let what = format!("has the SHA256 {}", entry.sha256);
                let expected = format!("{}, as {} before", other.sha256, other.path);
                add(Check::RepoChanged, format!("{}{}", new.label, entry.path), what, expected);
            }
        }
        let (was, is) = (newest(old), newest(new));
        let mut replaced: HashMap<String, Vec<Option<(Op, String)>>> = HashMap::new();
        for record in records.get(&old.format).into_iter().flatten() {
            for one in record.relations().replaces {
                replaced.entry(one.name.to_string()).or_default().push(one.constraint);
            }
        }
        let is_replaced = |entry: &Entry| {
            let mut by = replaced.get(&entry.name).into_iter().flatten();
            by.any(|wanted| meets(old.format, Some(&entry.version), wanted.as_ref()))
        };
        for ((name, arch), entry) in was {
            let (what, expected) = match is.get(&(name, arch)) {
                Some(now) if compare(old.format, &now.version, &entry.version).is_ge() => continue,
                Some(now) => (
                    format!("the newest {name} for {arch} is {}", now.version),
                    format!("no earlier than {}, as before", entry.version),
                ),
                None if is_replaced(entry) => continue,
                // A package can come to be for all machines, or for each of several.
                None if is.iter().any(|((other, _), now)| {
                    other == &name && compare(old.format, &now.version, &entry.version).is_gt()
                }) =>
                {
                    continue;
                }
                None => (
                    format!("{name} for {arch} is gone"),
                    format!("{} as before, or a package that replaces it", entry.version),
                ),
            };
            add(Check::RepoDowngrade, format!("{}{}", new.label, entry.path), what, expected);
        }
    }
}

/// The newest version of each name and architecture.
fn newest(listing: &Listing) -> BTreeMap<(&str, &str), &Entry> {
    let mut newest: BTreeMap<(&str, &str), &Entry> = BTreeMap::new();
    for entry in listing.entries.values() {
        let best = newest.entry((&entry.name, &entry.arch)).or_insert(entry);
        if compare(listing.format, &entry.version, &best.version).is_gt() {
            *best = entry;
        }
    }
    newest
}
