//! `Release`: what a repository is, and the digests of its indices.

use std::collections::BTreeSet;
use std::fmt::Write;

use sha2::{Digest, Sha256, Sha512};

use crate::date::rfc2822;
use crate::jobs::Jobs;
use crate::package::render::hex;
use crate::repo::store::Settings;

/// An index, as the Release has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Below `dists/SUITE`.
    pub path: String,
    size: usize,
    sha256: String,
    sha512: String,
}

/// A digest of a file, and how long it takes compared to the other, where the processor helps with SHA-256.
#[derive(Debug, Clone, Copy)]
enum Pass {
    Sha256 = 1,
    Sha512 = 2,
}

impl Entry {
    pub fn of(path: String, bytes: &[u8]) -> Self {
        let (sha256, sha512) = (hex(&Sha256::digest(bytes)), hex(&Sha512::digest(bytes)));
        Self { path, size: bytes.len(), sha256, sha512 }
    }

    /// Those of several files, paths and content.
    pub fn all(files: &[(&str, &[u8])], jobs: &Jobs) -> Vec<Self> {
        // Each digest of a file is a pass over it.
        let passes = [Pass::Sha256, Pass::Sha512]
            .map(|pass| files.iter().map(move |(_, bytes)| (pass, *bytes)));
        let passes: Vec<(Pass, &[u8])> = passes.into_iter().flatten().collect();
        let mut digests = jobs.drive_longest_first(
            &passes,
            |(pass, bytes)| bytes.len() as u64 * *pass as u64,
            |(pass, bytes)| match pass {
                Pass::Sha256 => hex(&Sha256::digest(bytes)),
                Pass::Sha512 => hex(&Sha512::digest(bytes)),
            },
        );
        let sha512 = digests.split_off(files.len());
        let digests = digests.into_iter().zip(sha512);
        let entries = files.iter().zip(digests).map(|((path, bytes), (sha256, sha512))| Self {
            path: (*path).to_owned(),
            size: bytes.len(),
            sha256,
            sha512,
        });
        entries.collect()
    }

    /// Its names by content, below `dists/SUITE`: apt asks for the strongest digest that it knows, others
    /// may know one only.
    pub fn by_hash(&self) -> [String; 2] {
        let dir = self.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        [
            format!("{dir}/by-hash/SHA256/{}", self.sha256),
            format!("{dir}/by-hash/SHA512/{}", self.sha512),
        ]
    }
}

/// The file. `date` is in seconds since 1970.
pub(super) fn text(
    settings: &Settings,
    date: i64,
    archs: &BTreeSet<&str>,
    components: &BTreeSet<&str>,
    entries: &[Entry],
) -> String {
    let list = |words: &BTreeSet<&str>| words.iter().copied().collect::<Vec<_>>().join(" ");
    let mut out = String::new();
    let mut field = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name}: {value}");
    };
    field("Origin", &settings.origin);
    field("Label", &settings.label);
    field("Suite", &settings.suite);
    field("Codename", settings.codename.as_deref().unwrap_or(&settings.suite));
    field("Date", &rfc2822(date));
    if let Some(end) = settings.valid_until(date) {
        field("Valid-Until", &rfc2822(end));
    }
    if let Some(description) = &settings.description {
        field("Description", description);
    }
    field("Acquire-By-Hash", "yes");
    field("Architectures", &list(archs));
    field("Components", &list(components));
    let mut digests = |name: &str, digest: fn(&Entry) -> &str| {
        let _ = writeln!(out, "{name}:");
        for entry in entries {
            let _ = writeln!(out, " {} {} {}", digest(entry), entry.size, entry.path);
        }
    };
    digests("SHA256", |entry| &entry.sha256);
    digests("SHA512", |entry| &entry.sha512);
    out
}
