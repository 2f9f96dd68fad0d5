//! `Contents-ARCH`: which packages have which file, for `apt-file` and people with `zgrep`.
//!
//! ```text
//! opt/rocm/lib/librocblas.so.5        libs/rocblas-generic,libs/rocblas-dev
//! ```
//!
//! A path without the leading slash, blanks, then packages with their section, sorted by path.

use super::packages::Served;
use super::release::Entry;
use super::{Part, ending};
use crate::error::{Error, Result};
use crate::repo::brief::Package;
use crate::repo::pieces::{self, Block, Kept, Packing, Stream, Unpacker};

/// A list of all files is read by few, and is long: it is served compressed alone, while the Release has the digests of both, as
/// apt-file checks what it has decompressed.
const PACKING: Packing = Packing::Gzip;

/// The index of these packages, sorted by name: as text, of which only the entry is needed, and as it is served; and the
/// block that it is made of.
pub(super) fn index(
    path: &str,
    packages: &[&Package],
    kept: &Kept<'_>,
) -> Result<(Entry, Served, Block)> {
    let cannot = |e| Error::failed("cannot compress an index").because(e);
    // Versions of a package have mostly the same files.
    let mut different = packages.to_vec();
    different.dedup_by_key(|package| package.part.listed);
    let key = pieces::key(PACKING, "Contents", different.iter().map(|one| &one.part.listed));
    let (mut unpacker, made);
    let (text, block) = match kept.get(&key) {
        Some(block) => {
            unpacker = Unpacker::default();
            (unpacker.unpack(PACKING, block).map_err(cannot)?, block.clone())
        }
        None => {
            made = text(&different)?;
            (made.as_slice(), kept.make(PACKING, key, &made).map_err(cannot)?)
        }
    };
    let mut stream = Stream::new(PACKING);
    stream.push(&block, text);
    let bytes = stream.finish();
    let served = (Entry::of(format!("{path}.{}", ending(PACKING)), &bytes), bytes);
    Ok((Entry::of(path.to_owned(), text), served, block))
}

/// Several versions of one package count once.
fn text(packages: &[&Package]) -> Result<Vec<u8>> {
    let mut of = Vec::new();
    for package in packages {
        let Part::Deb(part) = package.part.part()? else { continue };
        let owner = match part.field("Section") {
            Some(section) if !section.is_empty() => format!("{section}/{}", package.name),
            _ => package.name.clone(),
        };
        of.push((owner, &part.files));
    }
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for (owner, files) in &of {
        lines.extend(files.iter().map(|path| (path.as_str(), owner.as_str())));
    }
    // Each package's paths are sorted, which a stable sort makes use of.
    lines.sort();
    lines.dedup();
    let mut out = Vec::new();
    let mut lines = lines.into_iter().peekable();
    while let Some((path, owner)) = lines.next() {
        out.extend_from_slice(path.as_bytes());
        // As wide as those of Debian, for people's eyes.
        out.extend(std::iter::repeat_n(b' ', 1 + 59_usize.saturating_sub(path.len())));
        out.extend_from_slice(owner.as_bytes());
        while let Some((_, other)) = lines.next_if(|(next, _)| *next == path) {
            out.push(b',');
            out.extend_from_slice(other.as_bytes());
        }
        out.push(b'\n');
    }
    Ok(out)
}
