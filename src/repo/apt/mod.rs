//! The apt side of a repository: `pool/` and `dists/SUITE/`.
//!
//! ```text
//! dists/SUITE/InRelease                         signed: size, SHA256 and SHA512 of every index
//! dists/SUITE/Release, Release.gpg              the same, for clients without InRelease
//! dists/SUITE/COMPONENT/binary-ARCH/Packages    a stanza a package; also as .gz, .xz, .zst
//! dists/SUITE/COMPONENT/Contents-ARCH.gz        which package has which file
//! dists/SUITE/COMPONENT/…/by-hash/SHA256/HASH   the same indices by name of their content
//! ```
//!
//! `Acquire-By-Hash: yes` in the Release tells apt to fetch indices by their hash: whoever has read an older
//! Release still finds what that names. Source: the repository format of the Debian wiki; apt 2.6.
//!
//! Packages of the architecture `all` stand in the index of every architecture.

mod contents;
mod packages;
mod record;
mod release;
mod sources;

use std::collections::BTreeSet;
use std::io;

use crate::error::Result;
use crate::jobs::Jobs;
use crate::sign::Signer;

use super::brief::Package;
use super::pieces::{Kept, Packing};
use super::record::Part;
use super::store::Settings;
use super::{Content, Fixed, Indices, Named, root};
use crate::package::Format;
pub(crate) use record::{OF_INDEX, field_lines};
pub use record::{Record, read};
use release::Entry;

/// Architecture of packages for every machine.
const ALL: &str = "all";

/// A package's place below the root, by its component.
pub fn pool_path(component: &str, name: &str, version: &str, arch: &str) -> String {
    // Libraries are many: Debian's pools part them by a fourth letter, and so do people's scripts.
    let prefix = if name.starts_with("lib") { name.get(..4) } else { name.get(..1) };
    // No name, version or architecture has `_` in it, so that no two packages share a place.
    let version = version.replace(':', "_");
    format!("pool/{component}/{}/{name}/{name}_{version}_{arch}.deb", prefix.unwrap_or(name))
}

/// The component of a package, from its place.
fn component(package: &Package) -> &str {
    package.path.split('/').nth(1).unwrap_or_default()
}

fn ending(packing: Packing) -> &'static str {
    match packing {
        Packing::Gzip => "gz",
        Packing::Xz => "xz",
        Packing::Zstd => "zst",
    }
}

/// An index as the Release lists it, and its bytes where it is served.
type Made = (Entry, Option<Vec<u8>>);

/// Makes all indices of the packages, which are sorted. `date` is that of the Release, in seconds since
/// 1970. Without a signer there are no `InRelease` and `Release.gpg`. Of `kept`, those of the publication before, is taken
/// what has not changed; the bytes do not depend on it.
pub fn indices(
    packages: &[&Package],
    settings: &Settings,
    date: i64,
    signer: Option<&Signer>,
    kept: &Kept<'_>,
    jobs: &Jobs,
) -> Result<Indices> {
    let mut archs: BTreeSet<&str> = settings.architectures.iter().map(String::as_str).collect();
    archs.extend(packages.iter().map(|package| package.arch.as_str()).filter(|arch| *arch != ALL));
    let mut components: BTreeSet<&str> = settings.components().collect();
    components.extend(packages.iter().map(|package| component(package)));

    let mut made: Vec<Made> = Vec::new();
    let mut blocks = Vec::new();
    for name in &components {
        for arch in &archs {
            let of = |package: &&&Package| {
                component(package) == *name && (package.arch == *arch || package.arch == ALL)
            };
            let of: Vec<&Package> = packages.iter().filter(of).copied().collect();
            let path = format!("{name}/binary-{arch}/Packages");
            let of_contents = format!("{name}/Contents-{arch}");
            let (packages, contents) = jobs.both(
                || packages::index(&path, &of, kept, jobs),
                || contents::index(&of_contents, &of, kept),
            );
            let (served, pieces) = packages?;
            made.extend(served.into_iter().map(|(entry, bytes)| (entry, Some(bytes))));
            blocks.extend(pieces);
            let (plain, (entry, bytes), block) = contents?;
            made.extend([(plain, None), (entry, Some(bytes))]);
            blocks.push(block);
        }
    }
    made.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));

    let dist = format!("{}/dists/{}", root(Format::Deb), settings.suite);
    let mut all = Indices { blocks, ..Indices::default() };
    let mut entries = Vec::new();
    for (entry, bytes) in made {
        if let Some(bytes) = bytes {
            let paths: Vec<String> =
                entry.by_hash().iter().map(|path| format!("{dist}/{path}")).collect();
            let content = Content::Of(paths[0].clone());
            all.fixed.push(Fixed { path: format!("{dist}/{}", entry.path), content });
            all.named.push(Named { paths, bytes });
        }
        entries.push(entry);
    }
    let mut fixed = |name: &str, content: Content| {
        all.fixed.push(Fixed { path: format!("{dist}/{name}"), content });
    };
    let text = release::text(settings, date, &archs, &components, &entries);
    let (mut detached, mut inline) = (Content::Gone, Content::Gone);
    if let Some(signer) = signer {
        let signature = signer.sign_detached(&mut io::Cursor::new(text.as_bytes()), date)?;
        detached = Content::Bytes(signature.to_armored()?);
        inline = Content::Bytes(signer.sign_cleartext(text.as_bytes(), date)?);
    }
    // Clients that know InRelease look at nothing else; the two files for others change side by side.
    fixed("Release", Content::Bytes(text.into_bytes()));
    fixed("Release.gpg", detached);
    fixed("InRelease", inline);
    // For people, who copy it: nothing refers to it.
    if let Some(url) = &settings.url {
        let sources = sources::text(settings, url, &archs, &components, signer)?;
        let path = format!("{}/{}.sources", root(Format::Deb), settings.name());
        all.fixed.insert(0, Fixed { path, content: Content::Bytes(sources.into_bytes()) });
    }
    Ok(all)
}
