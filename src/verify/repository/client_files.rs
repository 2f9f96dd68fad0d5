//! The files that are copied to clients, `*.sources` and `*.repo` beside the indices: what they say is there, and is of the
//! key that they give.
//!
//! Where a repository is served is not known here. But both files name places below one directory, where both formats
//! are in one.
//!
//! Source: sources.list(5) of apt 2.6; dnf.conf(5) of dnf 4.14.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use super::{Listing, Log, limited};
use crate::package::Format;
use crate::repo::apt::field_lines;
use crate::sign::{Signature, Verifier};
use crate::verify::finding::{Check, Finding};

/// No such file has more bytes.
const MOST: u64 = 1 << 20;

/// What client files say that matters elsewhere.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The `.repo` file that says that packages are signed themselves (`gpgcheck=1`).
    pub signed_packages: Option<String>,
}

/// Checks the files of all formats.
pub(super) fn check(listings: &[Listing], findings: &mut Vec<Finding>) -> Told {
    let mut told = Told::default();
    // Addresses of the directory that the formats are in, and who says so.
    let mut served: Vec<(String, String)> = Vec::new();
    for listing in listings {
        let ending = match listing.format {
            Format::Deb => ".sources",
            Format::Rpm => ".repo",
        };
        for name in names(&listing.root, ending) {
            let log = &mut Log { label: &listing.label, findings };
            let Some(text) = text(&listing.root, &name, log) else { continue };
            let urls = match listing.format {
                Format::Deb => sources(listing, &name, &text, log),
                Format::Rpm => repo(listing, &name, &text, &mut told, log),
            };
            let place = format!("{}{name}", listing.label);
            let above = |url: &str| {
                let dir = listing.label.trim_end_matches('/');
                url.trim_end_matches('/').strip_suffix(dir).map(str::to_owned)
            };
            for url in urls {
                match above(&url) {
                    Some(above) => served.push((above, place.clone())),
                    None => {
                        let expected =
                            format!("one that ends in /{}", listing.label.trim_end_matches('/'));
                        log.add(
                            Check::RepoClientFile,
                            &name,
                            format!("says that the repository is at `{url}`"),
                            expected,
                        );
                    }
                }
            }
        }
    }
    let differ =
        served.iter().zip(served.iter().skip(1)).find(|((one, _), (other, _))| one != other);
    if let Some(((one, by), (other, place))) = differ {
        let what = format!("is for what is served at `{other}`");
        let expected = format!("`{one}`, as {by} says");
        findings.push(Finding::new(Check::RepoClientFile, place, "", what, expected));
    }
    told
}

/// Names of files in a directory that end so, sorted.
fn names(root: &Path, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(ending)).collect();
    names.sort();
    names
}

fn text(root: &Path, name: &str, log: &mut Log<'_>) -> Option<String> {
    let read = fs::File::open(root.join(name)).and_then(|file| limited(file, MOST));
    match read {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) => {
            let what = format!("cannot be read: {e}");
            log.add(Check::RepoClientFile, name, what, "a file to be copied to clients");
            None
        }
    }
}

/// The text of a field, which may have several lines.
fn field(stanza: &str, name: &str) -> Option<String> {
    // Source: deb822(5): a lone dot stands for an empty line.
    let lines = field_lines(stanza, name)?.into_iter();
    Some(lines.map(|line| if line == "." { "" } else { line }).collect::<Vec<_>>().join("\n"))
}

/// Checks a `.sources` file, and returns where it says that the repository is.
fn sources(listing: &Listing, name: &str, text: &str, log: &mut Log<'_>) -> Vec<String> {
    let mut urls = Vec::new();
    let add = |log: &mut Log<'_>, what: String, expected: &str| {
        log.add(Check::RepoClientFile, name, what, expected);
    };
    for stanza in text.split("\n\n").filter(|stanza| !stanza.trim().is_empty()) {
        let words = |name| {
            let value = field(stanza, name).unwrap_or_default();
            value.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let uris = words("URIs");
        if uris.is_empty() {
            add(log, "has no URIs".to_owned(), "where the repository is");
        }
        urls.extend(uris);
        let key = field(stanza, "Signed-By").filter(|key| key.contains("-----BEGIN"));
        for suite in words("Suites") {
            let dir = listing.root.join("dists").join(&suite);
            // A path with an end of its own is that of a repository without suites.
            if suite.ends_with('/') || suite.split('/').any(|part| matches!(part, "" | "." | ".."))
            {
                continue;
            }
            if !dir.join("Release").exists() && !dir.join("InRelease").exists() {
                add(log, format!("names the suite `{suite}`"), "one that the repository has");
                continue;
            }
            for component in words("Components") {
                let is_there = !component.contains("..") && dir.join(&component).is_dir();
                if !is_there {
                    let what = format!("names the component `{component}` of {suite}");
                    add(log, what, "one that the suite has");
                }
            }
            let Ok(message) = fs::File::open(dir.join("InRelease"))
                .and_then(|file| limited(file, super::MAX_INDEX))
            else {
                continue;
            };
            let Some(key) = &key else { continue };
            let checked = Verifier::from_keys(key.trim_start().as_bytes())
                .map_err(|e| e.to_string())
                .and_then(|keys| keys.verify_cleartext(&message).map(drop));
            if let Err(why) = checked {
                let what = format!(
                    "has another key in it than the one that dists/{suite}/InRelease is by: {why}"
                );
                add(log, what, "that key");
            }
        }
    }
    urls
}

/// Checks a `.repo` file, and returns where it says that the repository is.
fn repo(
    listing: &Listing,
    name: &str,
    text: &str,
    told: &mut Told,
    log: &mut Log<'_>,
) -> Vec<String> {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    let is_set = |key: &str| {
        let value = value(key).unwrap_or_default().to_ascii_lowercase();
        matches!(&*value, "1" | "yes" | "true" | "on")
    };
    let mut add =
        |what: String, expected: &str| log.add(Check::RepoClientFile, name, what, expected);
    let asc = listing.root.join("repodata/repomd.xml.asc");
    if is_set("repo_gpgcheck") && !asc.exists() {
        add("says repo_gpgcheck=1".to_owned(), "0, as there is no repodata/repomd.xml.asc");
    }
    if is_set("gpgcheck") {
        told.signed_packages = Some(format!("{}{name}", listing.label));
    }
    let Some(url) = value("baseurl") else {
        add("has no baseurl".to_owned(), "where the repository is");
        return Vec::new();
    };
    let key = value("gpgkey").unwrap_or_default();
    let below = key.strip_prefix(url.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
    if key.is_empty() && (is_set("repo_gpgcheck") || is_set("gpgcheck")) {
        add("names no gpgkey".to_owned(), "the key that signatures are by");
    } else if key.starts_with("http") && below.is_none() {
        add(format!("has the key at `{key}`"), "a place below its baseurl");
    }
    if let Some(below) = below.filter(|path| !path.split('/').any(|part| part == "..")) {
        let is_by = |file: fs::File| -> Result<(), String> {
            let key = limited(file, MOST).map_err(|e| e.to_string())?;
            let keys = Verifier::from_keys(&key).map_err(|e| e.to_string())?;
            let read = |path: &Path| fs::File::open(path).and_then(|file| limited(file, MOST));
            let repomd = read(&listing.root.join("repodata/repomd.xml"));
            let (Ok(armored), Ok(repomd)) = (read(&asc), repomd) else {
                return Ok(());
            };
            let signature = Signature::parse(&armored)?;
            keys.verify_detached(&signature, &mut Cursor::new(repomd)).map(drop)
        };
        let checked =
            fs::File::open(listing.root.join(below)).map_err(|e| e.to_string()).and_then(is_by);
        if let Err(why) = checked {
            add(format!("has the key at {below}: {why}"), "the one that repomd.xml.asc is by");
        }
    }
    vec![url]
}
