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
mod xz;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::ops::Range;

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
pub use xz::Block;

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

/// How an index is compressed as a whole. In pieces there is [`xz`] beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Gzip,
    Zstd,
}

impl How {
    fn ending(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }

    /// Compresses an index as a whole.
    fn compress(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        Ok(match self {
            Self::Plain => bytes.to_vec(),
            Self::Gzip => {
                let mut out =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
                out.write_all(bytes)?;
                out.finish()?
            }
            Self::Zstd => zstd::bulk::compress(bytes, 10)?,
        })
    }
}

/// An index, and the pieces that it is compressed in, where it is in pieces.
struct Text {
    path: String,
    bytes: Vec<u8>,
    pieces: Vec<(Range<usize>, [u8; 32])>,
}

impl Text {
    fn packages(path: String, (bytes, pieces): (Vec<u8>, Vec<Range<usize>>)) -> Self {
        let pieces = pieces.into_iter().map(|piece| (piece.clone(), xz::key(&bytes[piece])));
        let pieces = pieces.collect();
        Self { path, bytes, pieces }
    }

    fn is_packages(&self) -> bool {
        self.path.ends_with("/Packages")
    }
}

/// Something to compress: what takes longest comes first.
enum Work<'a> {
    Piece(&'a [u8], [u8; 32]),
    Whole(&'a Text, How),
}

/// It compressed.
enum Done {
    Piece(Block),
    Whole(Entry, Vec<u8>, How),
}

/// Compresses indices, and gives each with how it is served, and the blocks that they have.
fn compress(texts: &[Text], kept: &[Block], jobs: &Jobs) -> io::Result<(Vec<Made>, Vec<Block>)> {
    let mut blocks: HashMap<[u8; 32], Block> =
        kept.iter().filter(|one| one.is_whole()).map(|one| (one.key, one.clone())).collect();
    let mut wanted = Vec::new();
    let mut seen = HashSet::new();
    for text in texts {
        for (piece, key) in &text.pieces {
            if !blocks.contains_key(key) && seen.insert(*key) {
                wanted.push(Work::Piece(&text.bytes[piece.clone()], *key));
            }
        }
    }
    for text in texts {
        let ways: &[How] = if text.is_packages() {
            &[How::Zstd, How::Gzip, How::Plain]
        } else {
            &[How::Gzip, How::Plain]
        };
        wanted.extend(ways.iter().map(|how| Work::Whole(text, *how)));
    }
    let done = jobs.drive(&wanted, |work| match work {
        Work::Piece(text, key) => xz::block(*key, text).map(Done::Piece),
        Work::Whole(text, how) => {
            let bytes = how.compress(&text.bytes)?;
            let path = format!("{}{}", text.path, how.ending());
            // A list of all files is read by few, and is long: it is served compressed alone, while the Release
            // has the digests of both, as apt-file checks what it has decompressed.
            io::Result::Ok(Done::Whole(Entry::of(path, &bytes), bytes, *how))
        }
    });
    let mut made = Vec::new();
    for one in done {
        match one? {
            Done::Piece(block) => drop(blocks.insert(block.key, block)),
            Done::Whole(entry, bytes, how) => {
                let is_served = how != How::Plain || entry.path.ends_with("/Packages");
                made.push((entry, is_served.then_some(bytes)));
            }
        }
    }
    let mut used = BTreeMap::new();
    for text in texts.iter().filter(|text| text.is_packages()) {
        let of: Option<Vec<&Block>> = text.pieces.iter().map(|(_, key)| blocks.get(key)).collect();
        let of = of.ok_or_else(|| io::Error::other("a piece of an index was not compressed"))?;
        let bytes = xz::stream(&of);
        made.push((Entry::of(format!("{}.xz", text.path), &bytes), Some(bytes)));
        used.extend(of.into_iter().map(|block| (block.key, block.clone())));
    }
    made.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
    Ok((made, used.into_values().collect()))
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
    kept: &[Block],
    jobs: &Jobs,
) -> Result<Indices> {
    let mut archs: BTreeSet<&str> = settings.architectures.iter().map(String::as_str).collect();
    archs.extend(packages.iter().map(|package| package.arch.as_str()).filter(|arch| *arch != ALL));
    let mut components: BTreeSet<&str> = settings.components().collect();
    components.extend(packages.iter().map(|package| component(package)));

    // Each index as text, and how it is to be served.
    let mut texts: Vec<Text> = Vec::new();
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
            let path = format!("{name}/binary-{arch}/Packages");
            texts.push(Text::packages(path, packages::index(&of)));
            let path = format!("{name}/Contents-{arch}");
            texts.push(Text { path, bytes: contents::index(&of), pieces: Vec::new() });
        }
    }
    let (made, blocks) = compress(&texts, kept, jobs)
        .map_err(|e| Error::failed("cannot compress an index").because(e))?;

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
