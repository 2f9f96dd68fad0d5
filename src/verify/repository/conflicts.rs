//! No file is in two packages that can be installed together.
//!
//! Two packages cannot be where they have the same name; where one says so (`Conflicts`, `Breaks`; `Conflicts`,
//! `Obsoletes`); or where what they need in exactly one version contradicts, themselves or through what
//! that needs: kernels of two releases need host code of two. A `.deb` may take over a file (`Replaces`), and two
//! `.rpm` may have the same file, byte for byte, with the same mode.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;

use super::Log;
use super::relations::share_machine;
use crate::package::Format;
use crate::package::grammar::deb::parse;
use crate::package::read::FileReport;
use crate::package::spec::{Op, Relation};
use crate::package::version::{compare, meets};
use crate::read_at::OpenFile;
use crate::repo::record::{Part, Record};
use crate::repo::rpm::FileKind;
use crate::verify::finding::Check;

/// So many files of one pair of packages are told.
const TOLD: usize = 3;
/// Of packages that have one file so many are held against each other: their pairs are as the square.
const MAX_OWNERS: usize = 200;
/// So far exact relations are followed.
const MAX_EXACT: usize = 256;

/// Versions of names that have to be installed with a package.
type Exact = BTreeMap<String, String>;

/// Checks the files of one format's packages. Returns how many there are.
pub(super) fn check(records: &[Record], root: &Path, log: &mut Log<'_>) -> u64 {
    let mut owners: HashMap<String, Vec<usize>> = HashMap::new();
    let mut count = 0;
    for (i, record) in records.iter().enumerate() {
        for path in installed(record) {
            count += 1;
            owners.entry(path).or_default().push(i);
        }
    }
    let mut pairs: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
    for (path, owners) in owners {
        // Versions of one package are the most, and take each other's place.
        if owners.iter().all(|&i| records[i].name == records[owners[0]].name) {
            continue;
        }
        let owners = &owners[..owners.len().min(MAX_OWNERS)];
        for (n, &one) in owners.iter().enumerate() {
            for &other in &owners[n + 1..] {
                if records[one].name != records[other].name {
                    pairs.entry((one, other)).or_default().insert(path.clone());
                }
            }
        }
    }
    let contested: BTreeSet<String> = pairs.values().flatten().cloned().collect();
    let mut exact: HashMap<usize, Exact> = HashMap::new();
    let mut read: HashMap<usize, HashMap<String, Vec<FileReport>>> = HashMap::new();
    for ((one, other), mut paths) in pairs {
        let (a, b) = (&records[one], &records[other]);
        if !share_machine(&a.arch, &b.arch) || excludes(a, b) || excludes(b, a) {
            continue;
        }
        for i in [one, other] {
            exact.entry(i).or_insert_with(|| needed_exactly(&records[i], records));
        }
        if contradict(&exact[&one], &exact[&other], a.format()) {
            continue;
        }
        if a.format() == Format::Rpm {
            for i in [one, other] {
                read.entry(i).or_insert_with(|| files(&records[i], root, &contested));
            }
            paths.retain(|path| match (read[&one].get(path), read[&other].get(path)) {
                (Some(ones), Some(others)) => ones.iter().any(|one| {
                    others.iter().any(|other| one.path == other.path && !is_same(one, other))
                }),
                _ => true,
            });
        }
        let more = paths.len().saturating_sub(TOLD);
        for (n, path) in paths.iter().take(TOLD).enumerate() {
            let and =
                if n == 0 && more > 0 { format!(", and {more} more files") } else { String::new() };
            let what = format!("{path} is in {} as well{and}", b.path);
            let expected = "each file in one of the packages that can be installed together";
            log.add(Check::FileConflict, &a.path, what, expected);
        }
    }
    count
}

fn matches(relation: &Relation, record: &Record) -> bool {
    relation.name.as_str() == record.name
        && meets(record.format(), Some(&record.version), relation.constraint.as_ref())
}

/// Whether one does not go together with the other, or may take over its files.
fn excludes(one: &Record, other: &Record) -> bool {
    let excluded = excluded(one);
    if excluded.is_empty() {
        return false;
    }
    let provided = other.relations().provides;
    excluded.iter().any(|relation| {
        let is_any = relation.constraint.is_none();
        matches(relation, other) || is_any && provided.iter().any(|one| one.name == relation.name)
    })
}

/// What a package needs in exactly one version, and what that needs, with itself.
fn needed_exactly(record: &Record, records: &[Record]) -> Exact {
    let mut all = Exact::new();
    let mut pending = vec![(record.name.clone(), record.version.clone())];
    while let Some((name, version)) = pending.pop() {
        if all.contains_key(&name) || all.len() >= MAX_EXACT {
            continue;
        }
        let of_name = records.iter().filter(|one| one.name == name && one.version == version);
        let found = of_name.min_by_key(|one| !share_machine(&one.arch, &record.arch));
        all.insert(name, version);
        for any in found.into_iter().flat_map(|found| found.relations().needs) {
            if let [Relation { name, constraint: Some((Op::Equal, version)) }] = any.as_slice() {
                pending.push((name.to_string(), version.clone()));
            }
        }
    }
    all
}

fn contradict(one: &Exact, other: &Exact, format: Format) -> bool {
    one.iter().any(|(name, version)| {
        other.get(name).is_some_and(|theirs| compare(format, version, theirs).is_ne())
    })
}

/// Those of the files of an `.rpm` that are wanted, with their digests, by the path that its record has. Names that
/// are no UTF-8 are in a record as they are in XML, where several can be one; a report tells them apart.
fn files(
    record: &Record,
    root: &Path,
    wanted: &BTreeSet<String>,
) -> HashMap<String, Vec<FileReport>> {
    let read = || {
        let file = File::open(root.join(&record.path)).ok()?;
        crate::package::read::rpm::read(&OpenFile::new(file, record.size)).ok()
    };
    let files = read().map(|report| report.files).unwrap_or_default();
    let mut by_path: HashMap<String, Vec<FileReport>> = HashMap::new();
    if let Part::Rpm(part) = &record.part {
        // Both are in the header's order.
        for ((path, _), file) in part.paths().zip(files) {
            if wanted.contains(&path) {
                by_path.entry(path).or_default().push(file);
            }
        }
    }
    by_path
}

fn is_same(one: &FileReport, other: &FileReport) -> bool {
    let of = |file: &FileReport| {
        let kind = if file.kind == "symlink" { "symlink" } else { "file" };
        let link = file.link.clone().filter(|_| kind == "symlink");
        (kind, file.mode.clone(), file.size, file.owner.clone(), file.digest.clone(), link)
    };
    of(one) == of(other)
}

/// Paths that are not directories, absolute.
fn installed(record: &Record) -> Vec<String> {
    match &record.part {
        Part::Deb(part) => part.files.iter().map(|path| format!("/{path}")).collect(),
        Part::Rpm(part) => {
            let files = part.paths().filter(|(_, kind)| *kind != FileKind::Dir);
            files.map(|(path, _)| path).collect()
        }
    }
}

/// What a package cannot be installed with, or whose files it may take over.
fn excluded(record: &Record) -> Vec<Relation> {
    match &record.part {
        Part::Deb(part) => ["Conflicts", "Breaks", "Replaces"]
            .iter()
            .filter_map(|name| Some((name, part.field(name).filter(|text| !text.is_empty())?)))
            // What our parser does not take is dpkg's affair.
            .flat_map(|(name, text)| parse(&text, name).unwrap_or_default())
            .flatten()
            .collect(),
        Part::Rpm(part) => part.excluded(),
    }
}
