//! `Packages`: a stanza for each package, its control file and where its file is.

use std::io::{self, Write};
use std::ops::Range;

use super::release::Entry;
use super::{Part, ending};
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::repo::brief::Package;
use crate::repo::pieces::{self, Block, Kept, Key, Packing, Stream, Unpacker};

/// How it is served beside the text; what takes longest first.
const PACKINGS: [Packing; 3] = [Packing::Xz, Packing::Zstd, Packing::Gzip];

/// A piece of it in each packing.
type Blocks = [Block; 3];

/// A file as the Release has it, and its bytes.
pub(super) type Served = (Entry, Vec<u8>);

/// The index of these packages, in their order, in all the ways in which it is served, and the blocks that it is made of.
pub(super) fn index(
    path: &str,
    packages: &[&Package],
    kept: &Kept<'_>,
    jobs: &Jobs,
) -> Result<(Vec<Served>, Vec<Block>)> {
    let runs = pieces::runs(packages.iter().map(|one| (&one.part.id, one.part.sizes[0])));
    // What has changed is made, the others are copied.
    let keys: Vec<[Key; 3]> = runs.iter().map(|run| keys(&packages[run.clone()])).collect();
    let is_kept = |keys: &[Key; 3]| keys.iter().all(|key| kept.get(key).is_some());
    let changed: Vec<(&Range<usize>, &[Key; 3])> =
        runs.iter().zip(&keys).filter(|(_, keys)| !is_kept(keys)).collect();
    let size = |run: &Range<usize>| -> u64 {
        packages[run.clone()].iter().map(|one| u64::from(one.part.sizes[0])).sum()
    };
    let made = jobs.drive_longest_first(
        &changed,
        |(run, _)| size(run),
        |(run, keys)| piece(&packages[(*run).clone()], keys, kept),
    );
    let mut made = made.into_iter();
    let mut unpacker = Unpacker::default();
    let mut text = Vec::new();
    let mut streams = PACKINGS.map(Stream::new);
    let mut all = Vec::new();
    for keys in &keys {
        let begin = text.len();
        let blocks = if let [Some(xz), Some(zstd), Some(gzip)] = keys.map(|key| kept.get(&key)) {
            text.extend_from_slice(unpacker.unpack(Packing::Zstd, zstd).map_err(cannot)?);
            [xz.clone(), zstd.clone(), gzip.clone()]
        } else {
            let (new, blocks) =
                made.next().ok_or_else(|| Error::failed("a piece is missing"))??;
            text.extend(new);
            blocks
        };
        for (stream, block) in streams.iter_mut().zip(&blocks) {
            stream.push(block, &text[begin..]);
        }
        all.extend(blocks);
    }
    let mut served = vec![(path.to_owned(), text)];
    served.extend(
        PACKINGS
            .into_iter()
            .zip(streams)
            .map(|(packing, stream)| (format!("{path}.{}", ending(packing)), stream.finish())),
    );
    let of: Vec<(&str, &[u8])> = served.iter().map(|(path, bytes)| (&**path, &**bytes)).collect();
    let entries = Entry::all(&of, jobs);
    let served = entries.into_iter().zip(served).map(|(entry, (_, bytes))| (entry, bytes));
    Ok((served.collect(), all))
}

fn cannot(e: io::Error) -> Error {
    Error::failed("cannot compress an index").because(e)
}

/// What these packages are in each packing.
fn keys(packages: &[&Package]) -> [Key; 3] {
    let digests = packages.iter().map(|package| &package.part.id);
    PACKINGS.map(|packing| pieces::key(packing, "Packages", digests.clone()))
}

/// The text of packages, and its blocks.
fn piece(packages: &[&Package], keys: &[Key; 3], kept: &Kept<'_>) -> Result<(Vec<u8>, Blocks)> {
    let mut text = Vec::new();
    for package in packages {
        stanza(&mut text, package)?;
    }
    let block = |at: usize| kept.make(PACKINGS[at], keys[at], &text).map_err(cannot);
    let blocks = [block(0)?, block(1)?, block(2)?];
    Ok((text, blocks))
}

/// Writes a stanza, and the empty line that ends it.
fn stanza(out: &mut Vec<u8>, package: &Package) -> Result<()> {
    let Part::Deb(part) = package.part.part()? else { return Ok(()) };
    out.extend_from_slice(part.control.as_bytes());
    // Writing to memory cannot fail.
    let _ = writeln!(out, "Filename: {}", package.path);
    let _ = writeln!(out, "Size: {}", package.size);
    let _ = writeln!(out, "SHA256: {}\n", crate::package::render::hex(&package.sha256));
    Ok(())
}
