//! `Packages`: a stanza for each package, its control file and where its file is.

use std::fmt::Write;
use std::ops::Range;

use super::{Package, Record};

/// A piece has at least so many bytes, unless it is the last.
const LEAST: usize = 64 << 10;
/// One that has more ends with the next stanza.
const MOST: usize = 1536 << 10;
/// In so many bytes one stanza begins a piece. Most pieces end by this, as the others move what comes after them.
const USUAL: u64 = 512 << 10;

/// The index of these packages, in their order, and the pieces that it is compressed in.
///
/// Whether a piece begins with a stanza depends on that, not on how many bytes are before: what comes or goes changes the
/// piece that it is in, and those around it stay what they were.
pub(super) fn index(packages: &[(&Package, &Record)]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut out = String::new();
    let mut pieces = Vec::new();
    let mut begin = 0;
    for (package, part) in packages {
        let size = out.len() - begin;
        if size >= MOST || size >= LEAST && begins(package, part) {
            pieces.push(begin..out.len());
            begin = out.len();
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out += &part.control;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "Filename: {}", package.path);
        let _ = writeln!(out, "Size: {}", package.size);
        out += "SHA256: ";
        out += &crate::package::render::hex(&package.sha256);
        out.push('\n');
    }
    if begin < out.len() {
        pieces.push(begin..out.len());
    }
    (out.into_bytes(), pieces)
}

/// Whether a piece may begin with this package: the more often, the longer its stanza is.
fn begins(package: &Package, part: &Record) -> bool {
    // The digest of its file is as good as dice.
    let mut dice = [0; 8];
    dice.copy_from_slice(&package.sha256[..8]);
    u64::from_le_bytes(dice) / (u64::MAX / USUAL) < part.control.len() as u64
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::super::super::record::Part;
    use super::*;

    fn package(n: usize, version: &str) -> Package {
        let name = format!("bench{n:05}");
        let control = format!("Package: {name}\nDescription: {}\n", "word ".repeat(120));
        Package {
            name,
            version: version.into(),
            arch: "amd64".into(),
            path: format!("pool/{n}_{version}"),
            size: 1,
            sha256: Sha256::digest(format!("{n} {version}")).into(),
            built: 0,
            part: Part::Deb(Record { control, files: Vec::new() }),
        }
    }

    fn pieces(packages: &[Package]) -> Vec<String> {
        let of = packages.iter().filter_map(|package| match &package.part {
            Part::Deb(part) => Some((package, part)),
            Part::Rpm(_) => None,
        });
        let (text, pieces) = index(&of.collect::<Vec<_>>());
        let pieces: Vec<String> =
            pieces.into_iter().map(|at| String::from_utf8(text[at].to_vec()).unwrap()).collect();
        assert_eq!(pieces.concat().into_bytes(), text);
        pieces
    }

    #[test]
    fn what_comes_changes_the_piece_that_it_is_in() {
        let mut packages: Vec<Package> = (0..8000).map(|n| package(n, "1")).collect();
        let before = pieces(&packages);
        assert!(before.len() > 5, "{}", before.len());
        let (last, others) = before.split_last().unwrap();
        assert!(others.iter().all(|piece| (LEAST..MOST + 4096).contains(&piece.len())));
        assert!(others.iter().filter(|piece| piece.len() < MOST).count() > others.len() / 2);
        assert!(last.len() < MOST + 4096);
        // In the middle, many of one name.
        packages.splice(4000..4000, (0..50).map(|n| package(3999, &format!("2.{n}"))));
        let after = pieces(&packages);
        let changed = after.iter().filter(|piece| !before.contains(piece)).count();
        assert!((1..=2).contains(&changed), "{changed} of {}", after.len());
        assert_eq!(pieces(&[]), Vec::<String>::new());
    }
}
