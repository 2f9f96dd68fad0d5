//! The tables of the distributions' libraries, and what dpkg-shlibdeps would make of them.
//!
//! A table is text, made by `tools/deb-tables/make.sh` of the symbols and shlibs files of a release:
//!
//! ```text
//! package libc6 2.36-9+deb12u10                     a package that was read
//! library libc.so.6 2.2.5 libc6 #MINVER#            SONAME, earliest version, relation
//! alternative 1 libc6 (>> 2.36), libc6 (<< 2.37)    relation of symbols that say `|1`
//! node GLIBC_2.34 2.34                              version for the symbols of a version node
//! symbols GLIBC_2.2.5 2.34 sysconf …                but for these
//! ```
//!
//! `#MINVER#` is the latest of the versions that the symbols in use have; a library with `-` for its
//! version has no symbols file, and its relation is as it stands. `Base` is the node of symbols without
//! a version. Source: deb-symbols(5), deb-shlibs(5), dpkg-shlibdeps(1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::elf::Needs;
use crate::package::version::deb as version;

/// The libraries of one release.
#[derive(Debug, Default)]
pub struct Table {
    pub(super) libraries: BTreeMap<Box<str>, Library>,
}

/// A version, and which of the library's relations it goes with.
#[derive(Debug, Clone)]
pub(super) struct Minimum {
    pub version: Arc<str>,
    pub template: usize,
}

#[derive(Debug, Default)]
pub(super) struct Library {
    pub earliest: Option<Box<str>>,
    /// The relation, then the alternatives.
    pub templates: Vec<Box<str>>,
    pub nodes: BTreeMap<Box<str>, Node>,
    /// Symbols without a version.
    pub base: BTreeMap<Box<str>, Minimum>,
}

/// The symbols of a version node.
#[derive(Debug)]
pub(super) struct Node {
    pub usual: Minimum,
    pub others: BTreeMap<Box<str>, Minimum>,
}

impl Library {
    /// From when on the library has a symbol. Symbols without a version may be any library's, so of them
    /// only those that are listed are known to be of this one.
    fn minimum(&self, node: &str, symbol: &str) -> Option<&Minimum> {
        if node == BASE {
            return self.base.get(symbol);
        }
        let node = self.nodes.get(node)?;
        Some(node.others.get(symbol).unwrap_or(&node.usual))
    }
}

/// What a table has in place of a node for symbols without a version.
pub(super) const BASE: &str = "Base";

impl Table {
    /// Whether the release has the library.
    pub fn has(&self, soname: &str) -> bool {
        self.libraries.contains_key(soname)
    }

    /// Adds what a file that needs the library has to relate to. Returns the versions of the library's
    /// symbols that the file needs and the release's library does not have; `None` where the release
    /// has no such library.
    pub fn relate<'n>(
        &self,
        soname: &str,
        needs: &'n Needs,
        relations: &mut DebDepends,
    ) -> Option<Vec<&'n str>> {
        let library = self.libraries.get(soname)?;
        let mut found = BTreeSet::from([(library.earliest.as_deref(), 0)]);
        let mut add = |node: &str, symbol: &str| {
            let minimum = library.minimum(node, symbol);
            found.extend(minimum.map(|minimum| (Some(&*minimum.version), minimum.template)));
        };
        for symbol in &needs.undefined {
            match &symbol.version {
                Some((file, node)) if file == soname => add(node, &symbol.name),
                Some(_) => {}
                None => add(BASE, &symbol.name),
            }
        }
        let versions = needs.versions_needed.iter().filter(|(file, _)| file == soname);
        let versions: Vec<&str> =
            versions.flat_map(|(_, versions)| versions).map(String::as_str).collect();
        // The loader asks for them, whether a symbol has them or not, as `GLIBC_ABI_DT_RELR`.
        for &node in &versions {
            add(node, node);
        }
        for (version, template) in found {
            if let Some(template) = library.templates.get(template) {
                relations.add(template, version);
            }
        }
        let known = |node: &str| library.nodes.is_empty() || library.nodes.contains_key(node);
        Some(versions.into_iter().filter(|node| !known(node)).collect())
    }
}

/// Relations of a `.deb`, of which the later version is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DebDepends {
    /// By template with `#MINVER#`, or the relation up to its version; the version where there is one.
    relations: BTreeMap<String, Option<String>>,
}

impl DebDepends {
    /// Adds relations in the syntax of a control file, parted by commas, in which `#MINVER#` stands for
    /// "from this version on".
    pub fn add(&mut self, template: &str, version: Option<&str>) {
        // Every version is from 0 on.
        let version = version.filter(|version| *version != "0");
        for relation in template.split(',').map(str::trim).filter(|relation| !relation.is_empty()) {
            // One that is `name (>= version)` is the same thing as `name #MINVER#`.
            let fixed = relation.split_once(" (>= ").and_then(|(name, rest)| {
                let version = rest.strip_suffix(')')?;
                (!relation.contains('|')).then(|| (format!("{name} #MINVER#"), version))
            });
            let (key, version) = match &fixed {
                Some((key, version)) => (key.clone(), Some(*version)),
                None if relation.contains("#MINVER#") => (relation.to_owned(), version),
                None if relation.contains(['|', '(', '[']) => (relation.to_owned(), None),
                None => (format!("{relation} #MINVER#"), None),
            };
            let held = self.relations.entry(key).or_default();
            let later = |held: &String| {
                version.is_some_and(|version| version::compare(version, held).is_gt())
            };
            if held.as_ref().is_none_or(later) && version.is_some() {
                *held = version.map(str::to_owned);
            }
        }
    }

    /// The relations in the syntax of a control file, sorted.
    pub fn list(&self) -> Vec<String> {
        let text = |(template, version): (&String, &Option<String>)| match version {
            Some(version) => template.replace("#MINVER#", &format!("(>= {version})")),
            None => {
                let mut text = template.replace(" #MINVER#", "");
                text.truncate(text.trim_end().len());
                text
            }
        };
        let mut list: Vec<_> = self.relations.iter().map(text).collect();
        list.sort();
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::needs::Undefined;
    use crate::package::elfdeps::Distro;

    fn of(soname: &str, symbols: &[(&str, Option<&str>)]) -> Vec<String> {
        let undefined = symbols.iter().map(|(name, node)| Undefined {
            name: (*name).to_owned(),
            version: node.map(|node| (soname.to_owned(), node.to_owned())),
        });
        let needs = Needs { undefined: undefined.collect(), ..Needs::default() };
        let mut relations = DebDepends::default();
        Distro::Debian12.table().relate(soname, &needs, &mut relations);
        relations.list()
    }

    #[test]
    fn the_latest_of_the_symbols_counts() {
        assert_eq!(of("libc.so.6", &[]), ["libc6 (>= 2.2.5)"]);
        let both = [("printf", Some("GLIBC_2.2.5")), ("dlopen", Some("GLIBC_2.34"))];
        assert_eq!(of("libc.so.6", &both), ["libc6 (>= 2.34)"]);
        // Later than its node.
        assert_eq!(of("libc.so.6", &[("sysconf", Some("GLIBC_2.2.5"))]), ["libc6 (>= 2.34)"]);
        let private = [("__libc_enable_secure", Some("GLIBC_PRIVATE"))];
        assert_eq!(
            of("libc.so.6", &private),
            ["libc6 (<< 2.37)", "libc6 (>= 2.2.5)", "libc6 (>> 2.36)"]
        );
        // A library whose symbols have no versions.
        assert_eq!(of("libdrm.so.2", &[("unknown", None)]), ["libdrm2 (>= 2.3.1)"]);
    }

    #[test]
    fn what_the_release_does_not_have_is_told() {
        let mut relations = DebDepends::default();
        let versions = vec!["GLIBC_2.34".to_owned(), "GLIBC_2.99".to_owned()];
        let needs =
            Needs { versions_needed: vec![("libc.so.6".to_owned(), versions)], ..Needs::default() };
        let table = Distro::Debian12.table();
        assert_eq!(table.relate("libc.so.6", &needs, &mut relations), Some(vec!["GLIBC_2.99"]));
        assert_eq!(table.relate("libnowhere.so.1", &needs, &mut relations), None);
    }

    #[test]
    fn relations_on_one_package_become_one() {
        let mut relations = DebDepends::default();
        relations.add("libm1", None);
        relations.add("libx11-6 #MINVER#", Some("0"));
        relations.add("libm1 #MINVER#", Some("1.9"));
        relations.add("libm1 (>= 1.10)", None);
        relations.add("libgl1 | libgl", None);
        relations.add("libx #MINVER# | libx-1", Some("2"));
        assert_eq!(
            relations.list(),
            ["libgl1 | libgl", "libm1 (>= 1.10)", "libx (>= 2) | libx-1", "libx11-6"]
        );
    }
}
