//! The indices of an apt repository: `InRelease` or `Release`, and the `Packages` that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor};
use std::path::Path;

use sha2::{Digest, Sha256, Sha512};

use super::{Entry, Listing, Log, MAX_INDEX, decompressed, index};
use crate::date;
use crate::error::{Error, Result};
use crate::package::Format;
use crate::repo::apt::OF_INDEX;
use crate::repo::hex;
use crate::sign::{Signature, Verifier, signed_text};
use crate::verify::finding::Check;

/// Reads the indices of all suites.
pub(super) fn read(
    listing: &mut Listing,
    keys: Option<&Verifier>,
    now: Option<i64>,
    log: &mut Log<'_>,
) -> Result<()> {
    let dists = listing.root.join("dists");
    let cannot = |e| Error::io("cannot read the directory", &dists, e);
    let mut suites = Vec::new();
    for entry in std::fs::read_dir(&dists).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        if entry.path().is_dir() {
            suites.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    suites.sort();
    for name in suites {
        // Of a suite that was called otherwise, what those clients ask for who have read it.
        if only_old(&dists.join(&name)).map_err(cannot)? {
            continue;
        }
        suite(listing, &name, keys, now, log);
    }
    Ok(())
}

/// Whether there is nothing in a directory or below it but indices by their digests.
fn only_old(dir: &Path) -> io::Result<bool> {
    let mut dirs = vec![dir.to_owned()];
    let mut has_old = false;
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                return Ok(false);
            }
            if entry.file_name() == "by-hash" {
                has_old = true;
            } else {
                dirs.push(entry.path());
            }
        }
    }
    Ok(has_old)
}

/// What the Release says of an index. apt goes by the strongest digest that there is.
#[derive(Clone, Copy)]
struct Stated<'a> {
    size: u64,
    sha256: &'a str,
    sha512: Option<&'a str>,
}

/// A time until which clients trust a Release is one that can be read, and not over.
///
/// Source: apt-pkg/deb/debmetaindex.cc and apt-pkg/acquire-item.cc of apt: one that cannot be parsed is an error, and so is a
/// clock that is past it.
fn valid(until: &str, now: i64, place: &str, log: &mut Log<'_>) {
    match date::parse_rfc2822(until) {
        None => {
            let what = format!("has the Valid-Until `{until}`");
            log.add(Check::RepoIndex, place, what, "a date, as Date has it");
        }
        Some(end) if end < now => {
            let what = format!("is valid until {until}");
            let expected = format!("a time after {}, which it is now", date::rfc2822(now));
            log.add(Check::RepoExpired, place, what, expected);
        }
        Some(_) => {}
    }
}

fn suite(
    listing: &mut Listing,
    name: &str,
    keys: Option<&Verifier>,
    now: Option<i64>,
    log: &mut Log<'_>,
) {
    let dir = format!("dists/{name}");
    let root = listing.root.clone();
    let Some(text) = release(&root, &dir, keys, log) else { return };
    let text = String::from_utf8_lossy(&text).into_owned();
    let place = format!("{dir}/Release");
    let field = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    match field("Date").and_then(date::parse_rfc2822) {
        Some(date) => {
            listing.dates.insert(place.clone(), date);
            let until = field("Valid-Until").and_then(date::parse_rfc2822);
            if until.is_some_and(|until| until <= date) {
                let what = "is valid until a time that is not after its Date";
                log.add(Check::RepoIndex, &place, what, "a later one, or none");
            }
        }
        None => log.add(Check::RepoIndex, &place, "has no Date that can be read", "a date"),
    }
    if let (Some(until), Some(now)) = (field("Valid-Until"), now) {
        valid(until, now, &place, log);
    }
    let by_hash = field("Acquire-By-Hash").is_some_and(|value| value == "yes");
    let mut stated: BTreeMap<&str, Stated<'_>> = BTreeMap::new();
    for line in section(&text, "SHA256") {
        let mut words = line.split_whitespace();
        let (sha256, size, path) = (words.next(), words.next(), words.next());
        match (sha256, size.and_then(|size| size.parse().ok()), path) {
            (Some(sha256), Some(size), Some(path)) if !leaves(path) => {
                stated.insert(path, Stated { size, sha256, sha512: None });
            }
            _ => log.add(
                Check::RepoIndex,
                &place,
                format!("has the line `{line}`"),
                "digest, size, path",
            ),
        }
    }
    if stated.is_empty() {
        log.add(
            Check::RepoIndex,
            &place,
            "lists no index with its SHA256",
            "the indices of the suite",
        );
    }
    for line in section(&text, "SHA512") {
        let mut words = line.split_whitespace();
        let (sha512, size, path) = (words.next(), words.next(), words.next());
        let one = path.and_then(|path| stated.get_mut(path));
        if let Some(one) = one.filter(|one| size == Some(&*one.size.to_string())) {
            one.sha512 = sha512;
        } else {
            let what = format!("has the line `{line}` among its SHA512");
            log.add(Check::RepoIndex, &place, what, "size and path as among its SHA256");
        }
    }
    let words = |name| field(name).unwrap_or_default().split_whitespace();
    for arch in words("Architectures").filter(|arch| !matches!(*arch, "all" | "source")) {
        for component in words("Components") {
            // Of Debian's `updates/main` the last part is the directory.
            let dir = component.rsplit('/').next().unwrap_or(component);
            let index = format!("{dir}/binary-{arch}/Packages");
            if !stated.is_empty() && !stated.keys().any(|path| plain(path) == index) {
                let what = format!("names no index of {component} for {arch}");
                log.add(Check::RepoIndex, &place, what, "one for each component and architecture");
            }
        }
    }
    let mut there: BTreeMap<&str, bool> = BTreeMap::new();
    let mut read: BTreeSet<&str> = BTreeSet::new();
    for (path, one) in &stated {
        let plain = plain(path);
        let file = format!("{dir}/{path}");
        let is_there = root.join(&file).exists();
        *there.entry(plain).or_default() |= is_there;
        if !is_there {
            continue;
        }
        let Some(bytes) = index(&root, &file, log) else { continue };
        if !agrees(&file, &bytes, *one, log) {
            continue;
        }
        if by_hash {
            let (folder, _) = path.rsplit_once('/').unwrap_or(("", path));
            let sha512 = one.sha512.map(|sha512| ("SHA512", sha512));
            for (kind, digest) in [("SHA256", one.sha256)].into_iter().chain(sha512) {
                let named = format!("{dir}/{folder}/by-hash/{kind}/{digest}");
                if !leaves(digest)
                    && let Some(bytes) = index(&root, &named, log)
                {
                    agrees(&named, &bytes, *one, log);
                }
            }
        }
        let opened = match decompressed(&file, &bytes, MAX_INDEX) {
            Ok(opened) => opened,
            Err(e) => {
                log.add(
                    Check::RepoIndex,
                    &file,
                    format!("cannot be decompressed: {e}"),
                    "an index",
                );
                continue;
            }
        };
        if let Some(one) = stated.get(plain) {
            // Whatever client reads which, all have these bytes: they are looked into once.
            if !agrees(&file, &opened, *one, log) || !read.insert(plain) {
                continue;
            }
        }
        if plain.ends_with("/Packages") {
            packages(listing, &file, &opened, log);
        }
    }
    for (path, _) in there.iter().filter(|(_, there)| !**there) {
        let what = "is not there, compressed or not";
        log.add(
            Check::RepoIndex,
            &format!("{dir}/{path}"),
            what,
            "an index that the Release names",
        );
    }
}

fn leaves(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "" | "." | ".."))
}

/// A name without the ending of a compression.
fn plain(path: &str) -> &str {
    let endings = [".gz", ".xz", ".zst", ".bz2", ".lzma", ".lz4"];
    endings.iter().find_map(|ending| path.strip_suffix(ending)).unwrap_or(path)
}

fn agrees(file: &str, bytes: &[u8], stated: Stated<'_>, log: &mut Log<'_>) -> bool {
    let Stated { size, sha256, sha512 } = stated;
    let actual = hex(&Sha256::digest(bytes));
    if bytes.len() as u64 != size || actual != sha256 {
        let what = format!("has {} bytes with the SHA256 {actual}", bytes.len());
        let expected = format!("{size} bytes with {sha256}, as the Release says");
        log.add(Check::RepoIndex, file, what, expected);
        return false;
    }
    let Some(sha512) = sha512 else { return true };
    let actual = hex(&Sha512::digest(bytes));
    if actual != sha512 {
        let what = format!("has the SHA512 {actual}");
        log.add(Check::RepoIndex, file, what, format!("{sha512}, as the Release says"));
    }
    actual == sha512
}

/// The lines of a field that has several.
fn section<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = text.lines().position(|line| line.strip_suffix(':') == Some(name));
    let lines = text.lines().skip(start.map_or(usize::MAX, |start| start + 1));
    lines.take_while(|line| line.starts_with(' '))
}

/// The text of the Release that clients trust, with its signatures checked.
fn release(root: &Path, dir: &str, keys: Option<&Verifier>, log: &mut Log<'_>) -> Option<Vec<u8>> {
    let file = |name: &str| format!("{dir}/{name}");
    let has = |name: &str| root.join(file(name)).exists();
    if !has("InRelease") && !has("Release") {
        log.add(
            Check::RepoIndex,
            &file("InRelease"),
            "is not there, nor is Release",
            "one of them",
        );
        return None;
    }
    let release = if has("Release") { index(root, &file("Release"), log) } else { None };
    let mut inline = None;
    if has("InRelease")
        && let Some(message) = index(root, &file("InRelease"), log)
    {
        let read = match keys {
            Some(keys) => keys.verify_cleartext(&message).map(|(text, _)| text),
            None => signed_text(&message),
        };
        match read {
            Ok(text) => inline = Some(text),
            Err(why) => {
                let what = format!("its signature is not good: {why}");
                log.add(
                    Check::RepoSignature,
                    &file("InRelease"),
                    what,
                    "a text signed by one of the keys",
                );
                inline = signed_text(&message).ok();
            }
        }
    }
    if let (Some(keys), Some(release)) = (keys, &release) {
        if has("Release.gpg") {
            let armored = index(root, &file("Release.gpg"), log).unwrap_or_default();
            let checked = Signature::parse(&armored)
                .and_then(|one| keys.verify_detached(&one, &mut Cursor::new(release)));
            if let Err(why) = checked {
                let what = format!("is no good signature of Release: {why}");
                log.add(Check::RepoSignature, &file("Release.gpg"), what, "one by one of the keys");
            }
        } else if !has("InRelease") {
            log.add(
                Check::RepoSignature,
                &file("Release"),
                "is not signed",
                "InRelease, or Release.gpg",
            );
        }
    }
    if let (Some(inline), Some(release)) = (&inline, &release)
        && inline != release
    {
        let what = "says something else than InRelease";
        log.add(Check::RepoIndex, &file("Release"), what, "the same text");
    }
    inline.or(release)
}

fn packages(listing: &mut Listing, file: &str, text: &[u8], log: &mut Log<'_>) {
    let text = String::from_utf8_lossy(text);
    let of = file.split('/').find_map(|part| part.strip_prefix("binary-")).unwrap_or_default();
    for stanza in text.split("\n\n").filter(|stanza| !stanza.trim().is_empty()) {
        let field = |name: &str| {
            let mut lines = stanza.lines();
            let value = lines.find_map(|line| {
                let (found, value) = line.split_once(':')?;
                found.eq_ignore_ascii_case(name).then(|| value.trim())
            });
            value.unwrap_or_default().to_owned()
        };
        let size = field("Size");
        let Ok(size) = size.parse() else {
            let what = format!("has the size `{size}` for {}", field("Package"));
            log.add(Check::RepoIndex, file, what, "a number");
            continue;
        };
        let mut says = lines(stanza);
        says.sort();
        says.dedup();
        let entry = Entry {
            format: Format::Deb,
            path: field("Filename").trim_start_matches("./").to_owned(),
            size,
            sha256: field("SHA256"),
            name: field("Package"),
            version: field("Version"),
            arch: field("Architecture"),
            says,
        };
        if !of.is_empty() && entry.arch != of && entry.arch != "all" {
            let what = format!("lists {}, which is for {}", entry.path, entry.arch);
            log.add(Check::RepoEntry, file, what, format!("packages for {of} and for all"));
        }
        listing.add(entry, file, log);
    }
}

/// The fields of a stanza but for those of the index, each on one line.
pub(super) fn lines(stanza: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in stanza.lines().filter(|line| !line.trim().is_empty()) {
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => {
                last.push('\n');
                last.push_str(line.trim_end());
            }
            _ => lines.push(line.trim_end().to_owned()),
        }
    }
    lines.retain(|line| {
        let name = line.split(':').next().unwrap_or_default();
        !OF_INDEX.iter().any(|field| field.eq_ignore_ascii_case(name))
    });
    lines
}
