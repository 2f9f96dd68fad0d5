//! `Contents-ARCH`: which packages have which file, for `apt-file` and people with `zgrep`.
//!
//! ```text
//! opt/rocm/lib/librocblas.so.5        libs/rocblas-generic,libs/rocblas-dev
//! ```
//!
//! A path without the leading slash, blanks, then packages with their section, sorted by path.

use super::{Package, Record};

/// The index of these packages. Several versions of one package count once.
pub(super) fn index(packages: &[(&Package, &Record)]) -> Vec<u8> {
    let owners: Vec<String> = packages
        .iter()
        .map(|(package, part)| match part.field("Section") {
            Some(section) if !section.is_empty() => format!("{section}/{}", package.name),
            _ => package.name.clone(),
        })
        .collect();
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for ((_, part), owner) in packages.iter().zip(&owners) {
        lines.extend(part.files.iter().map(|path| (path.as_str(), owner.as_str())));
    }
    lines.sort_unstable();
    lines.dedup();
    let mut out = String::new();
    let mut before = None;
    for (path, owner) in lines {
        if before == Some(path) {
            out.push(',');
        } else {
            if before.is_some() {
                out.push('\n');
            }
            out += path;
            // As wide as those of Debian, for people's eyes.
            out.push(' ');
            out.extend(std::iter::repeat_n(' ', 59_usize.saturating_sub(path.len())));
        }
        out += owner;
        before = Some(path);
    }
    if before.is_some() {
        out.push('\n');
    }
    out.into_bytes()
}
