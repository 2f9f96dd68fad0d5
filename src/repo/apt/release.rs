//! `Release`: what a repository is, and the digests of its indices.

use std::collections::BTreeSet;
use std::fmt::Write;

use sha2::{Digest, Sha256, Sha512};

use crate::date::rfc2822;
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

impl Entry {
    pub fn of(path: String, bytes: &[u8]) -> Self {
        let (sha256, sha512) = (hex(&Sha256::digest(bytes)), hex(&Sha512::digest(bytes)));
        Self { path, size: bytes.len(), sha256, sha512 }
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
