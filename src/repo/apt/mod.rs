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
use std::io::{self, Write};

use liblzma::stream::{Check, Filters, LzmaOptions, MtStreamBuilder};

use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::sign::Signer;

use super::record::{Part, Record as Package};
use super::store::Settings;
use super::{Content, Fixed, Indices, Named, root};
use crate::package::Format;
pub(crate) use record::OF_INDEX;
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

/// Bytes of an index that are compressed apart from the rest, by a thread of their own. `Packages` of 5,000 packages is
/// 1.4 % larger than in one piece, the first 12 MB of Debian's 5 %, and takes 40 % less time even with one thread.
const XZ_BLOCK: u32 = 2 << 20;

/// How an index is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Gzip,
    Xz,
    Zstd,
}

impl How {
    fn ending(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Gzip => ".gz",
            Self::Xz => ".xz",
            Self::Zstd => ".zst",
        }
    }

    /// The bytes are the same for any number of threads.
    fn compress(self, bytes: &[u8], threads: usize) -> io::Result<Vec<u8>> {
        Ok(match self {
            Self::Plain => bytes.to_vec(),
            Self::Gzip => {
                let mut out =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
                out.write_all(bytes)?;
                out.finish()?
            }
            Self::Xz => {
                let mut lzma = LzmaOptions::new_preset(6)?;
                // No match is further away than its block is long.
                lzma.dict_size(XZ_BLOCK);
                let mut filters = Filters::new();
                filters.lzma2(&lzma);
                let stream = MtStreamBuilder::new()
                    .filters(filters)
                    .check(Check::Crc64)
                    .block_size(XZ_BLOCK.into())
                    .threads(u32::try_from(threads.clamp(1, 64)).expect("clamped"))
                    .encoder()?;
                let mut out = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
                out.write_all(bytes)?;
                out.finish()?
            }
            Self::Zstd => zstd::bulk::compress(bytes, 10)?,
        })
    }
}

/// Makes all indices of the packages, which are sorted. `date` is that of the Release, in seconds since
/// 1970. Without a signer there are no `InRelease` and `Release.gpg`.
pub fn indices(
    packages: &[&Package],
    settings: &Settings,
    date: i64,
    signer: Option<&Signer>,
    jobs: &Jobs,
) -> Result<Indices> {
    let mut archs: BTreeSet<&str> = settings.architectures.iter().map(String::as_str).collect();
    archs.extend(packages.iter().map(|package| package.arch.as_str()).filter(|arch| *arch != ALL));
    let mut components: BTreeSet<&str> = settings.components().collect();
    components.extend(packages.iter().map(|package| component(package)));

    // Each index as text, and how it is to be served.
    let mut texts: Vec<(String, Vec<u8>)> = Vec::new();
    for name in &components {
        for arch in &archs {
            let of = |package: &&&Package| {
                component(package) == *name && (package.arch == *arch || package.arch == ALL)
            };
            let of: Vec<(&Package, &Record)> = packages
                .iter()
                .filter(of)
                .filter_map(|package| match &package.part {
                    Part::Deb(part) => Some((*package, part)),
                    Part::Rpm(_) => None,
                })
                .collect();
            texts.push((format!("{name}/binary-{arch}/Packages"), packages::index(&of)));
            texts.push((format!("{name}/Contents-{arch}"), contents::index(&of)));
        }
    }
    let mut wanted = Vec::new();
    for (path, text) in &texts {
        let ways: &[How] = if path.ends_with("/Packages") {
            // The slowest first.
            &[How::Xz, How::Zstd, How::Gzip, How::Plain]
        } else {
            &[How::Gzip, How::Plain]
        };
        wanted.extend(ways.iter().map(|how| (path, text, *how)));
    }
    let done = jobs.drive(&wanted, |(path, text, how)| {
        let bytes = how.compress(text, jobs.threads())?;
        let path = format!("{path}{}", how.ending());
        io::Result::Ok((Entry::of(path, &bytes), bytes, *how))
    });
    let mut made = Vec::new();
    for one in done {
        made.push(one.map_err(|e| Error::failed("cannot compress an index").because(e))?);
    }
    made.sort_by(|(a, ..), (b, ..)| a.path.cmp(&b.path));

    let dist = format!("{}/dists/{}", root(Format::Deb), settings.suite);
    let mut all = Indices::default();
    let mut entries = Vec::new();
    for (entry, bytes, how) in made {
        // A list of all files is read by few, and is long: it is served compressed alone, while the Release
        // has the digests of both, as apt-file checks what it has decompressed.
        if how != How::Plain || entry.path.ends_with("/Packages") {
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn an_index_in_several_blocks_is_the_same_for_any_number_of_threads() {
        let mut text = String::new();
        for n in 0..100_000_u32 {
            writeln!(text, "SHA256: {:08x}{n}", n.wrapping_mul(2_654_435_761)).unwrap();
        }
        assert!(text.len() > XZ_BLOCK as usize);
        let made = How::Xz.compress(text.as_bytes(), 1).unwrap();
        assert!(How::Xz.compress(text.as_bytes(), 3).unwrap() == made);
        // One stream, as all readers take it.
        let mut read = String::new();
        liblzma::read::XzDecoder::new(&made[..]).read_to_string(&mut read).unwrap();
        assert!(read == text);
    }
}
