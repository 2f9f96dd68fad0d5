//! Verifying a repository: what clients read of it, from the top file down to each package.
//!
//! Only what is published counts, not what `gfxpack repo` keeps for itself, so repositories of other
//! programs can be verified too. Each package is read once: its digest, its headers or its control file, and the
//! names of its files. What packages have to do with each other is checked on the records that remain, which are those
//! that `gfxpack repo` keeps. Nothing looks at the clock: the caller says what time it is.

mod client_files;
mod conflicts;
mod deb;
mod modes;
mod previous;
mod relations;
mod rpm;
mod xml;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::finding::{Check, Finding, chain};
use super::{Options, Report, judged};
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::package::Format;
use crate::progress::Monitor;
use crate::read_at::{OpenFile, ReadAt, read_vec};
use crate::repo::hex;
use crate::repo::record::{Facts, Part, Record};
use crate::sign::Verifier;

pub use relations::ExternalRelation;

/// How to verify a repository, beside [`Options`]; of those, what artifacts are made of does not count here.
#[derive(Debug, Clone, Copy, Default)]
pub struct RepositoryOptions<'a> {
    /// What clients have: another state of the repository.
    pub previous: Option<&'a Path>,
    /// The keys that clients have. Without them signatures are not looked at.
    pub keys: Option<&'a Verifier>,
    /// The time, in seconds since 1970, at which indices have to be valid still. Without it that is not asked.
    pub now: Option<i64>,
}

/// No index of a repository has more bytes, decompressed.
const MAX_INDEX: u64 = 2 << 30;

/// A package, as an index lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    format: Format,
    /// Below the root of the format.
    path: String,
    size: u64,
    /// In hexadecimal digits.
    sha256: String,
    name: String,
    version: String,
    arch: String,
    /// What else the index says, in a form that can be compared: see [`said`].
    says: Vec<String>,
}

/// What the indices of one format say.
#[derive(Debug)]
struct Listing {
    format: Format,
    root: PathBuf,
    /// How findings name the root: `rpm/`, or nothing where the repository's directory is the root.
    label: String,
    /// By path.
    entries: BTreeMap<String, Entry>,
    /// Digests of what `filelists.xml` lists of a package, by the SHA-256 of that: see [`rpm::of_files`].
    files: HashMap<String, [u8; 32]>,
    /// Dates of the top files in seconds since 1970, by their places.
    dates: BTreeMap<String, i64>,
}

/// Collects findings about the files of a format.
struct Log<'a> {
    label: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Log<'_> {
    fn add(&mut self, id: Check, file: &str, what: impl Into<String>, expected: impl Into<String>) {
        let place = format!("{}{file}", self.label);
        self.findings.push(Finding::new(id, &place, "", what, expected));
    }
}

/// Verifies a repository. Damage is reported, not returned: this fails only where there is none.
pub fn repository(
    dir: &Path,
    repository: RepositoryOptions<'_>,
    options: &Options,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let mut findings = Vec::new();
    let listings = listings(dir, repository.keys, repository.now, &mut findings)?;
    for listing in &listings {
        let log = &mut Log { label: &listing.label, findings: &mut findings };
        named_once(listing, log);
        modes::check(listing, log);
    }
    let told = client_files::check(&listings, &mut findings);
    let entries: Vec<(&Listing, &Entry)> = listings
        .iter()
        .flat_map(|one| one.entries.values().map(move |entry| (one, entry)))
        .collect();
    let bytes = entries.iter().map(|(_, entry)| entry.size).sum();
    monitor.begin("verifying", bytes);
    let looked = jobs.drive(&entries, |(listing, entry)| {
        let mut found = Vec::new();
        let mut log = Log { label: &listing.label, findings: &mut found };
        let record = package(listing, entry, repository.keys, &mut log);
        monitor.advance(entry.size);
        (record, found)
    });
    monitor.end();
    let mut records: BTreeMap<Format, Vec<Record>> = BTreeMap::new();
    for ((listing, _), (record, found)) in entries.iter().zip(looked) {
        findings.extend(found);
        if let Some(record) = record {
            records.entry(listing.format).or_default().push(record);
        }
    }
    let mut files = 0;
    let mut elsewhere = Vec::new();
    for listing in &listings {
        let records = records.entry(listing.format).or_default();
        records.sort_by(Record::order);
        let log = &mut Log { label: &listing.label, findings: &mut findings };
        let are_signed = told.signed_packages.as_deref();
        signed_alike(records, repository.keys, are_signed, log);
        elsewhere.extend(relations::check(records, &options.external, log));
        files += conflicts::check(records, &listing.root, log);
    }
    if let Some(previous) = repository.previous {
        let before = self::listings(previous, None, None, &mut Vec::new())?;
        previous::check(&before, &listings, &records, &mut findings);
    }
    for one in &elsewhere {
        let more = if one.packages > 1 {
            format!(" and {} more", one.packages - 1)
        } else {
            String::new()
        };
        monitor.detail(&format!(
            "{} is not in the repository; needed by {}{more}",
            one.name, one.needed_by
        ));
    }
    let artifacts =
        entries.iter().map(|(listing, entry)| format!("{}{}", listing.label, entry.path));
    Ok(Report {
        artifacts: artifacts.collect(),
        files,
        bytes,
        relations: elsewhere,
        ..judged(findings, options, &[8])
    })
}

/// A name, version and architecture are one package: clients take either of two, and may get the other's bytes from a cache.
fn named_once(listing: &Listing, log: &mut Log<'_>) {
    let mut seen: HashMap<(&str, &str, &str), &Entry> = HashMap::new();
    for entry in listing.entries.values() {
        let other = seen.insert((&entry.name, &entry.version, &entry.arch), entry);
        if let Some(other) = other.filter(|other| other.sha256 != entry.sha256) {
            let what = format!("is {} {} as {} is", entry.name, entry.version, other.path);
            log.add(Check::RepoEntry, &entry.path, what, "one package of a name and version");
        }
    }
}

/// Reads the indices of both formats.
fn listings(
    dir: &Path,
    keys: Option<&Verifier>,
    now: Option<i64>,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Listing>> {
    let mut all = Vec::new();
    for (format, mark) in [(Format::Deb, "dists"), (Format::Rpm, "repodata")] {
        let below = format.as_str();
        let found = [(dir.join(below), format!("{below}/")), (dir.to_owned(), String::new())]
            .into_iter()
            .find(|(root, _)| root.join(mark).is_dir());
        let Some((root, label)) = found else { continue };
        let (entries, dates, files) = (BTreeMap::new(), BTreeMap::new(), HashMap::new());
        let mut listing = Listing { format, root, label: label.clone(), entries, files, dates };
        let mut log = Log { label: &label, findings };
        match format {
            Format::Deb => deb::read(&mut listing, keys, now, &mut log)?,
            Format::Rpm => rpm::read(&mut listing, keys, &mut log),
        }
        all.push(listing);
    }
    if all.is_empty() {
        return Err(Error::failed("is no repository")
            .at(dir)
            .hint("expected deb/dists or rpm/repodata in it, as `gfxpack repo create` makes them")
            .into());
    }
    Ok(all)
}

impl Listing {
    /// Adds what an index says. Of a package that is in several, as one for all architectures is, all must
    /// say the same.
    fn add(&mut self, entry: Entry, index: &str, log: &mut Log<'_>) {
        let good = !entry.path.is_empty()
            && entry.path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !good {
            let what = format!("lists a package at `{}`", entry.path);
            log.add(Check::RepoIndex, index, what, "a path below the repository's root");
            return;
        }
        match self.entries.get(&entry.path) {
            Some(other) if *other != entry => {
                let what = format!("says of {} something else than another index", entry.path);
                log.add(Check::RepoEntry, index, what, "the same");
            }
            Some(_) => {}
            None => drop(self.entries.insert(entry.path.clone(), entry)),
        }
    }
}

/// Reads a file of a repository, whole. What cannot be read is a finding.
fn index(root: &Path, file: &str, log: &mut Log<'_>) -> Option<Vec<u8>> {
    let read = File::open(root.join(file)).and_then(|file| limited(file, MAX_INDEX));
    match read {
        Ok(bytes) => Some(bytes),
        Err(e) => {
            log.add(
                Check::RepoIndex,
                file,
                format!("cannot be read: {e}"),
                "an index of the repository",
            );
            None
        }
    }
}

/// All of a reader, unless it has more than `most` bytes.
fn limited(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Decompresses an index by the ending of its name.
fn decompressed(file: &str, bytes: &[u8], most: u64) -> io::Result<Vec<u8>> {
    match file.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "gz" => limited(flate2::read::MultiGzDecoder::new(bytes), most),
        "xz" => limited(liblzma::read::XzDecoder::new_multi_decoder(bytes), most),
        "zst" => limited(zstd::stream::read::Decoder::with_buffer(bytes)?, most),
        "bz2" | "lzma" | "zck" => {
            Err(io::Error::other("is compressed in a way that is not read here"))
        }
        _ => limited(bytes, most),
    }
}

/// Checks a package of the repository, and reads what is needed of it.
fn package(
    listing: &Listing,
    entry: &Entry,
    keys: Option<&Verifier>,
    log: &mut Log<'_>,
) -> Option<Record> {
    let path = listing.root.join(&entry.path);
    let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (size, mut file) = match opened {
        Ok(opened) => opened,
        Err(e) => {
            log.add(Check::RepoFile, &entry.path, format!("cannot be read: {e}"), "the package");
            return None;
        }
    };
    if size != entry.size {
        let what = format!("has {size} bytes");
        log.add(Check::RepoFile, &entry.path, what, format!("{}, as the index says", entry.size));
        return None;
    }
    let mut sha256 = Sha256::new();
    if let Err(e) = io::copy(&mut file, &mut sha256) {
        log.add(Check::RepoFile, &entry.path, format!("cannot be read: {e}"), "the package");
        return None;
    }
    let sha256: [u8; 32] = sha256.finalize().into();
    if hex(&sha256) != entry.sha256 {
        let what = format!("has the SHA256 {}", hex(&sha256));
        let expected = format!("{}, as the index says", entry.sha256);
        log.add(Check::RepoFile, &entry.path, what, expected);
        return None;
    }
    let reader = OpenFile::new(file, size);
    let facts = match listing.format {
        Format::Deb => crate::repo::apt::read(&reader),
        Format::Rpm => crate::repo::rpm::read(&reader),
    };
    let facts = match facts {
        Ok(facts) => facts,
        Err(e) => {
            let expected = format!("a whole .{} package", listing.format.as_str());
            log.add(Check::PackageDamaged, &entry.path, chain(&e), expected);
            return None;
        }
    };
    compare(entry, &facts, log);
    if let (Part::Rpm(part), Some(listed)) = (&facts.part, listing.files.get(&entry.sha256))
        && rpm::of_files(part.paths()) != *listed
    {
        let what = "has other files than the list of files says";
        log.add(Check::RepoEntry, &entry.path, what, "those that it has");
    }
    let Facts { name, version, arch, built, mut part } = facts;
    if let (Part::Rpm(part), Some(keys)) = (&mut part, keys) {
        // Of what was read, only a signature by one of the keys makes it signed.
        part.is_signed = header_signature(&reader, entry, keys, log);
    }
    Some(Record { name, version, arch, path: entry.path.clone(), size, sha256, built, part })
}

/// The index says what the package says.
fn compare(entry: &Entry, facts: &Facts, log: &mut Log<'_>) {
    let mut differ = |what: &str, index: &str, package: &str| {
        if index != package {
            let found = format!("the index says {what} `{index}` of it");
            log.add(
                Check::RepoEntry,
                &entry.path,
                found,
                format!("`{package}`, as the package says"),
            );
        }
    };
    differ("the name", &entry.name, &facts.name);
    differ("the version", &entry.version, &facts.version);
    differ("the architecture", &entry.arch, &facts.arch);
    let package = said(&facts.part);
    let missing = |from: &[String], other: &[String]| {
        from.iter().find(|line| !other.contains(line)).cloned().unwrap_or_default()
    };
    if entry.says != package {
        let (index, package) = (missing(&entry.says, &package), missing(&package, &entry.says));
        differ("", &index, &package);
    }
}

/// What an index says of a package beside its name and version, a line each, sorted.
fn said(part: &Part) -> Vec<String> {
    let mut lines: Vec<String> = match part {
        Part::Deb(part) => deb::lines(&part.control),
        Part::Rpm(part) => rpm::lines(part),
    };
    lines.sort();
    lines.dedup();
    lines
}

/// The signatures over the header of an `.rpm`, where there are any, are by the keys: of the OpenPGP ones of rpm 6 one
/// is, as a package may carry those of several signers, and each of all others. Returns whether one was verified.
fn header_signature(
    reader: &dyn ReadAt,
    entry: &Entry,
    keys: &Verifier,
    log: &mut Log<'_>,
) -> bool {
    let check = || -> Result<bool, String> {
        let (signature, header) =
            crate::package::read::rpm::headers(reader).map_err(|e| chain(&e))?;
        let all =
            crate::package::read::rpm::header_signatures(&signature).map_err(|e| chain(&e))?;
        if all.is_empty() {
            return Ok(false);
        }
        let bytes = read_vec(reader, header.offset, header.size).map_err(|e| e.to_string())?;
        // By tag, how the first went that is bad, unless another of the tag is good.
        let mut tags: BTreeMap<u32, Result<(), String>> = BTreeMap::new();
        for (tag, one) in all {
            let done =
                one.and_then(|one| keys.verify_detached(&one, &mut Cursor::new(&bytes)).map(drop));
            match tags.get(&tag) {
                Some(Err(_)) if done.is_ok() => drop(tags.insert(tag, Ok(()))),
                Some(_) => {}
                None => drop(tags.insert(tag, done)),
            }
        }
        tags.into_iter()
            .try_for_each(|(tag, done)| done.map_err(|why| format!("tag {tag}: {why}")))?;
        Ok(true)
    };
    check().unwrap_or_else(|why| {
        let what = format!("its signature is not good: {why}");
        log.add(Check::RepoSignature, &entry.path, what, "a signature by one of the keys");
        false
    })
}

/// Either all `.rpm` packages are signed or none: clients that check packages check all, and those do whose `.repo` file says
/// so, which is `told_by`. Packages whose signature is not good were told of.
fn signed_alike(
    records: &[Record],
    keys: Option<&Verifier>,
    told_by: Option<&str>,
    log: &mut Log<'_>,
) {
    let is_unsigned = |record: &&Record| matches!(&record.part, Part::Rpm(part) if !part.is_signed);
    let is_signed = |record: &Record| matches!(&record.part, Part::Rpm(part) if part.is_signed);
    let are_signed = keys.is_some() && records.iter().any(is_signed);
    let expected = match told_by {
        Some(file) => format!("a signature, as {file} says gpgcheck=1"),
        None if are_signed => "a signature, as other packages of the repository have".to_owned(),
        None => return,
    };
    let told: BTreeSet<String> = log
        .findings
        .iter()
        .filter(|finding| finding.id == Check::RepoSignature)
        .map(|finding| finding.artifact.clone())
        .collect();
    for record in records.iter().filter(is_unsigned) {
        if !told.contains(&format!("{}{}", log.label, record.path)) {
            log.add(Check::RepoUnsigned, &record.path, "is not signed itself", &*expected);
        }
    }
}
