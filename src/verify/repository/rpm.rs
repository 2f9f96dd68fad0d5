//! The metadata of an rpm repository: `repomd.xml`, and the documents that it names.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::xml::{self, Element};
use super::{Entry, Listing, Log, MAX_INDEX, decompressed, index};
use crate::package::Format;
use crate::repo::hex;
use crate::repo::rpm::{Dependency, FileKind, KINDS, Record};
use crate::sign::{Signature, Verifier};
use crate::verify::finding::Check;

const REPOMD: &str = "repodata/repomd.xml";
const ASC: &str = "repodata/repomd.xml.asc";
const KEY: &str = "repodata/repomd.xml.key";

/// Reads the metadata.
pub(super) fn read(listing: &mut Listing, keys: Option<&Verifier>, log: &mut Log<'_>) {
    let root = listing.root.clone();
    let Some(bytes) = index(&root, REPOMD, log) else { return };
    if let Some(keys) = keys {
        let armored = if root.join(ASC).exists() { index(&root, ASC, log) } else { None };
        match armored {
            None => {
                log.add(
                    Check::RepoSignature,
                    REPOMD,
                    "is not signed",
                    "a signature in repomd.xml.asc",
                );
            }
            Some(armored) => {
                let checked = Signature::parse(&armored)
                    .and_then(|one| keys.verify_detached(&one, &mut Cursor::new(&bytes)));
                if let Err(why) = checked {
                    let what = format!("is no good signature of repomd.xml: {why}");
                    log.add(Check::RepoSignature, ASC, what, "one by one of the keys");
                } else if root.join(KEY).exists() {
                    offered_key(&root, &armored, &bytes, log);
                }
            }
        }
    }
    let mut documents = Vec::new();
    let mut revision = None;
    let read = xml::read(&bytes, |_, element| match &*element.name {
        "revision" => revision = element.text.trim().parse().ok(),
        "data" => documents.push(element),
        _ => {}
    });
    if let Err(why) = read {
        log.add(Check::RepoIndex, REPOMD, why, "the list of the metadata");
        return;
    }
    if let Some(revision) = revision {
        listing.dates.insert(REPOMD.to_owned(), revision);
    }
    let mut ids: Vec<(String, BTreeSet<String>)> = Vec::new();
    for kind in ["primary", "filelists", "other"] {
        let Some(data) = documents.iter().find(|data| data.get("type") == kind) else {
            if kind == "primary" {
                log.add(
                    Check::RepoIndex,
                    REPOMD,
                    "names no primary metadata",
                    "one document of them",
                );
            }
            continue;
        };
        let file = data.child("location").map_or("", |location| location.get("href")).to_owned();
        let Some(opened) = document(&root, &file, data, log) else { continue };
        let mut found = BTreeSet::new();
        let mut stated = None;
        let mut entries = Vec::new();
        let read = xml::read(&opened, |root, package| {
            stated = root.get("packages").parse::<usize>().ok();
            if package.name != "package" {
                return;
            }
            if kind == "primary" {
                let one = entry(&package);
                found.insert(one.sha256.clone());
                entries.push(one);
            } else {
                let id = package.get("pkgid");
                if kind == "filelists" {
                    let files = package.children.iter().filter(|child| child.name == "file");
                    let files = files.map(|file| (file.text.clone(), kind_of(file.get("type"))));
                    listing.files.insert(id.to_owned(), of_files(files));
                }
                found.insert(id.to_owned());
            }
        });
        if let Err(why) = read {
            log.add(Check::RepoIndex, &file, why, "metadata of packages");
            continue;
        }
        if stated.is_some_and(|stated| stated != found.len()) {
            let what = format!("says that it is of {} packages", stated.unwrap_or_default());
            log.add(Check::RepoIndex, &file, what, format!("{}, as there are", found.len()));
        }
        for one in entries {
            match one {
                one if one.size == u64::MAX => {
                    let what = format!("has no size, or no SHA-256, of {}", one.name);
                    log.add(Check::RepoIndex, &file, what, "both");
                }
                one => listing.add(one, &file, log),
            }
        }
        ids.push((file, found));
    }
    if let [(_, primary), others @ ..] = ids.as_slice() {
        for (file, other) in others.iter().filter(|(_, other)| other != primary) {
            let what = format!("is of {} packages", other.len());
            let expected = format!("the {} of the primary metadata", primary.len());
            log.add(Check::RepoIndex, file, what, expected);
        }
    }
}

/// The key beside the signature is the one that made it: zypper offers that to people.
fn offered_key(root: &Path, armored: &[u8], repomd: &[u8], log: &mut Log<'_>) {
    let Some(key) = index(root, KEY, log) else { return };
    let checked = Verifier::from_keys(&key).map_err(|e| e.to_string()).and_then(|keys| {
        let signature = Signature::parse(armored)?;
        keys.verify_detached(&signature, &mut Cursor::new(repomd)).map(drop)
    });
    if let Err(why) = checked {
        let what = format!("is not the key that repomd.xml.asc is by: {why}");
        log.add(Check::RepoSignature, KEY, what, "that key, which zypper offers to people");
    }
}

fn kind_of(kind: &str) -> FileKind {
    match kind {
        "dir" => FileKind::Dir,
        "ghost" => FileKind::Ghost,
        _ => FileKind::File,
    }
}

/// A digest of paths and what they are, in any order.
pub(super) fn of_files(files: impl Iterator<Item = (String, FileKind)>) -> [u8; 32] {
    let mut lines: Vec<String> = files.map(|(path, kind)| format!("{kind:?} {path}\n")).collect();
    lines.sort_unstable();
    let mut sha256 = Sha256::new();
    lines.iter().for_each(|line| sha256.update(line));
    sha256.finalize().into()
}

/// Reads a document, and holds it against what `repomd.xml` says of it.
fn document(root: &Path, file: &str, data: &Element, log: &mut Log<'_>) -> Option<Vec<u8>> {
    if file.split('/').any(|part| matches!(part, "" | "." | "..")) {
        let what = format!("names metadata at `{file}`");
        log.add(Check::RepoIndex, REPOMD, what, "a path below the repository's root");
        return None;
    }
    let packed = index(root, file, log)?;
    let agrees = |bytes: &[u8], size: &str, checksum: &str, log: &mut Log<'_>| {
        let (stated_size, stated) = (data.text_of(size), data.text_of(checksum));
        let kind = data.child(checksum).map_or("", |one| one.get("type"));
        let actual = hex(&Sha256::digest(bytes));
        let is_size = stated_size.is_empty() || stated_size == bytes.len().to_string();
        // Older repositories have other digests of what is decompressed; clients use the first.
        if is_size && (kind != "sha256" && size == "open-size" || stated == actual) {
            return true;
        }
        let what = format!("has {} bytes with the SHA256 {actual} ({size})", bytes.len());
        let expected = format!("{stated_size} bytes with {kind} {stated}, as repomd.xml says");
        log.add(Check::RepoIndex, file, what, expected);
        false
    };
    if !agrees(&packed, "size", "checksum", log) {
        return None;
    }
    let opened = match decompressed(file, &packed, MAX_INDEX) {
        Ok(opened) => opened,
        Err(e) => {
            log.add(Check::RepoIndex, file, format!("cannot be decompressed: {e}"), "metadata");
            return None;
        }
    };
    agrees(&opened, "open-size", "open-checksum", log).then_some(opened)
}

/// What primary metadata say of a package. Without a size or a SHA-256 the size is `u64::MAX`.
fn entry(package: &Element) -> Entry {
    let get = |child: &str, attribute: &str| {
        package.child(child).map_or("", |child| child.get(attribute)).to_owned()
    };
    let (epoch, version) = (get("version", "epoch"), get("version", "ver"));
    let version = format!("{version}-{}", get("version", "rel"));
    let is_zero = matches!(&*epoch, "" | "0");
    let version = if is_zero { version } else { format!("{epoch}:{version}") };
    let is_sha256 = get("checksum", "type") == "sha256";
    let size = get("size", "package").parse().ok().filter(|_| is_sha256);
    let mut says = Vec::new();
    for (kind, _) in KINDS {
        let format = package.child("format");
        let list = format.and_then(|format| format.child(kind));
        for one in list.iter().flat_map(|list| &list.children) {
            let (epoch, release) = (one.get("epoch"), one.get("rel"));
            let mut version = one.get("ver").to_owned();
            if !release.is_empty() {
                version = format!("{version}-{release}");
            }
            if !matches!(epoch, "" | "0") {
                version = format!("{epoch}:{version}");
            }
            let is_pre = if one.get("pre") == "1" { " (pre)" } else { "" };
            let text = format!("{} {} {version}", one.get("name"), one.get("flags"));
            let line = format!("{kind}: {}{is_pre}", text.trim_end());
            if is_said_alike(&line) {
                says.push(line);
            }
        }
    }
    says.sort();
    says.dedup();
    Entry {
        format: Format::Rpm,
        path: get("location", "href"),
        size: size.unwrap_or(u64::MAX),
        sha256: package.text_of("checksum").trim().to_owned(),
        name: package.text_of("name").to_owned(),
        version,
        arch: package.text_of("arch").to_owned(),
        says,
    }
}

/// The relations of a package, a line each.
pub(super) fn lines(record: &Record) -> Vec<String> {
    let of = |kind: &str, one: &Dependency| {
        let flags = one.flags();
        // A version without a comparison says nothing, and 0 is the epoch of none.
        let version = if flags.is_empty() { "" } else { one.version.as_str() };
        let version = version.strip_prefix("0:").unwrap_or(version);
        let is_pre = if one.pre { " (pre)" } else { "" };
        let text = format!("{} {flags} {version}", one.name);
        format!("{kind}: {}{is_pre}", text.trim_end())
    };
    let named = KINDS.iter().zip(&record.relations);
    named
        .flat_map(|((kind, _), all)| {
            let all = all.iter().filter(|one| !one.name.is_empty());
            all.map(move |one| of(kind, one))
        })
        .filter(|line| is_said_alike(line))
        .collect()
}

/// Of the C library's versions createrepo_c lists the highest, and others list all.
fn is_said_alike(line: &str) -> bool {
    !line.starts_with("requires: libc.so.6")
}
