//! `Packages`: a stanza for each package, its control file and where its file is.

use std::fmt::Write;
use std::ops::Range;

use super::{Package, Record};

/// A piece has at least so many bytes, unless it is the last.
const LEAST: usize = 512 << 10;
/// One that has more ends with the next stanza.
const MOST: usize = 2 << 20;
/// Of so many names one begins a piece, where the one before has its least.
const ONE_OF: u64 = 64;

/// The index of these packages, in their order, and the pieces that it is compressed in.
///
/// Where a piece begins depends on the name of a package, not on how many bytes are before: what comes or goes changes the
/// piece that it is in, and those around it stay what they were.
pub(super) fn index(packages: &[(&Package, &Record)]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut out = String::new();
    let mut pieces = Vec::new();
    let (mut begin, mut before) = (0, "");
    for (package, part) in packages {
        let size = out.len() - begin;
        let begins = package.name != before && hash(&package.name) % ONE_OF == 0;
        if size >= MOST || size >= LEAST && begins {
            pieces.push(begin..out.len());
            begin = out.len();
        }
        before = &package.name;
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

/// FNV-1a.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
