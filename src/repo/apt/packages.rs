//! `Packages`: a stanza for each package, its control file and where its file is.

use std::fmt::Write;

use super::{Package, Record};

/// The index of these packages, in their order.
pub(super) fn index(packages: &[(&Package, &Record)]) -> Vec<u8> {
    let mut out = String::new();
    for (package, part) in packages {
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
    out.into_bytes()
}
