//! The `shlibs` file of a `.deb`: which package a library in the linker's path is in, for those who
//! build against it (deb-shlibs(5)).
//!
//! A line is `library version dependency`, from a SONAME of the form `librocblas.so.5` (`librocblas 5`)
//! or `libfoo-1.2.so` (`libfoo 1.2`).

use std::collections::BTreeSet;

use super::files::{Member, MemberKind, renews_cache};
use super::spec::Package;

/// The file's text; empty where the package has no library that the linker finds by itself.
pub(super) fn shlibs(package: &Package, members: &[Member<'_>]) -> String {
    let mut lines = BTreeSet::new();
    for member in members.iter().filter(|member| renews_cache(package, member.path)) {
        let MemberKind::File { source, .. } = &member.kind else { continue };
        // A file that cannot be read has none here: copying it will tell.
        let needs = source.needs().ok().flatten();
        let soname = needs.as_ref().and_then(|needs| needs.soname.as_deref());
        if let Some((library, version)) = soname.and_then(parse) {
            let (name, package_version) = (package.deb_name(), package.full_version());
            lines.insert(format!("{library} {version} {name} (>= {package_version})\n"));
        }
    }
    lines.into_iter().collect()
}

fn parse(soname: &str) -> Option<(&str, &str)> {
    let parts = soname.split_once(".so.").or_else(|| {
        let (name, version) = soname.strip_suffix(".so")?.rsplit_once('-')?;
        version.starts_with(|c: char| c.is_ascii_digit()).then_some((name, version))
    });
    parts.filter(|(name, version)| {
        [name, version]
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_graphic()))
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sonames_are_taken_apart_as_deb_shlibs_says() {
        assert_eq!(parse("librocblas.so.5"), Some(("librocblas", "5")));
        assert_eq!(parse("libfoo.so.1.2"), Some(("libfoo", "1.2")));
        assert_eq!(parse("libfoo-1.2.so"), Some(("libfoo", "1.2")));
        for none in ["libfoo.so", "libfoo-bar.so", ".so.1", "libfoo.so.", "lib foo.so.1", ""] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
