//! The file that tells a machine of the repository, for `/etc/apt/sources.list.d/`.
//!
//! The key is in it, so that there is one file to copy: apt reads such since 2.4 (Debian 12, Ubuntu 22.04).

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::error::Error;
use crate::package::Format;
use crate::repo::root;
use crate::repo::store::Settings;
use crate::sign::Signer;

/// The file, for a repository that clients find at `url`.
pub(super) fn text(
    settings: &Settings,
    url: &str,
    archs: &BTreeSet<&str>,
    components: &BTreeSet<&str>,
    signer: Option<&Signer>,
) -> Result<String, Error> {
    let list = |words: &BTreeSet<&str>| words.iter().copied().collect::<Vec<_>>().join(" ");
    let mut out = format!(
        "Types: deb\nURIs: {}/{}\nSuites: {}\nComponents: {}\nArchitectures: {}\n",
        url.trim_end_matches('/'),
        root(Format::Deb),
        settings.suite,
        list(components),
        list(archs)
    );
    match signer.and_then(Signer::public_key) {
        Some(key) => {
            out += "Signed-By:\n";
            let armored = key.to_armored()?;
            for line in String::from_utf8_lossy(&armored).lines() {
                let line = line.trim_end();
                // An empty line would end the stanza. Writing to a string cannot fail.
                let _ = writeln!(out, " {}", if line.is_empty() { "." } else { line });
            }
        }
        // Whose command signs knows where the key is.
        None if signer.is_some() => {
            let _ = writeln!(out, "Signed-By: /etc/apt/keyrings/{}.asc", settings.name());
        }
        None => {}
    }
    Ok(out)
}
