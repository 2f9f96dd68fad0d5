//! The tables of the distributions' libraries, and what dpkg-shlibdeps would make of them.
//!
//! A table is text, made by `tools/deb-tables/make.sh` of the symbols and shlibs files of a release:
//!
//! ```text
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
use std::fmt;
use std::sync::OnceLock;

use crate::elf::Needs;
use crate::package::version::deb as version;

/// A release of a distribution, whose base packages are related to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distro {
    /// Debian 12, bookworm.
    Debian12,
    /// Debian 13, trixie.
    Debian13,
}

impl Distro {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Debian12, Self::Debian13];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debian12 => "debian12",
            Self::Debian13 => "debian13",
        }
    }

    /// Its table.
    pub fn table(self) -> &'static Table {
        static TABLES: [OnceLock<Table>; 2] = [const { OnceLock::new() }; 2];
        let (place, text) = match self {
            Self::Debian12 => (&TABLES[0], include_str!("tables/debian12.txt")),
            Self::Debian13 => (&TABLES[1], include_str!("tables/debian13.txt")),
        };
        place.get_or_init(|| Table::parse(text))
    }
}

impl fmt::Display for Distro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The libraries of one release.
#[derive(Debug, Default)]
pub struct Table {
    libraries: BTreeMap<&'static str, Library>,
}

/// A version, and which of the library's relations it goes with.
type Minimum = (&'static str, usize);

#[derive(Debug, Default)]
struct Library {
    earliest: Option<&'static str>,
    /// The relation, then the alternatives.
    templates: Vec<&'static str>,
    nodes: BTreeMap<&'static str, Minimum>,
    symbols: BTreeMap<(&'static str, &'static str), Minimum>,
}

impl Table {
    /// Reads a table; lines of other kinds are passed over. The tables are part of the program: a test
    /// checks that each line of them is understood.
    fn parse(text: &'static str) -> Self {
        let mut table = Self::default();
        let mut current = Library::default();
        let mut name = "";
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            match kind {
                "library" => {
                    if !name.is_empty() {
                        table.libraries.insert(name, std::mem::take(&mut current));
                    }
                    let mut words = rest.splitn(3, ' ');
                    name = words.next().unwrap_or_default();
                    current.earliest = words.next().filter(|version| *version != "-");
                    current.templates.push(words.next().unwrap_or_default());
                }
                "alternative" => {
                    current.templates.push(rest.split_once(' ').map_or("", |(_, text)| text));
                }
                "node" => {
                    if let Some((node, minimum)) = rest.split_once(' ') {
                        current.nodes.insert(node, self::minimum(minimum));
                    }
                }
                "symbols" => {
                    let mut words = rest.split(' ');
                    if let (Some(node), Some(minimum)) = (words.next(), words.next()) {
                        let minimum = self::minimum(minimum);
                        current.symbols.extend(words.map(|name| ((node, name), minimum)));
                    }
                }
                _ => {}
            }
        }
        if !name.is_empty() {
            table.libraries.insert(name, current);
        }
        table
    }

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
        let mut found = BTreeSet::from([(library.earliest, 0)]);
        let mut add = |(version, template): Minimum| {
            found.insert((Some(version), template));
        };
        for symbol in &needs.undefined {
            let node = match &symbol.version {
                Some((file, node)) if file == soname => node,
                Some(_) => continue,
                None => "Base",
            };
            let own = library.symbols.get(&(node, symbol.name.as_str()));
            if let Some(minimum) = own.or_else(|| library.nodes.get(node)) {
                add(*minimum);
            }
        }
        let versions = needs.versions_needed.iter().filter(|(file, _)| file == soname);
        let versions: Vec<&str> =
            versions.flat_map(|(_, versions)| versions).map(String::as_str).collect();
        // The loader asks for them, whether a symbol has them or not, as `GLIBC_ABI_DT_RELR`.
        for &node in &versions {
            let own = library.symbols.get(&(node, node)).or_else(|| library.nodes.get(node));
            if let Some(minimum) = own {
                add(*minimum);
            }
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

/// `2.34` or `2.34|1`.
fn minimum(text: &'static str) -> Minimum {
    let (version, template) = text.split_once('|').unwrap_or((text, "0"));
    (version, template.parse().unwrap_or_default())
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

    #[test]
    fn every_line_of_the_tables_is_understood() {
        for distro in Distro::ALL {
            let text = match distro {
                Distro::Debian12 => include_str!("tables/debian12.txt"),
                Distro::Debian13 => include_str!("tables/debian13.txt"),
            };
            let kinds = ["#", "package", "library", "alternative", "node", "symbols"];
            for line in text.lines() {
                let words: Vec<_> = line.split(' ').collect();
                assert!(kinds.contains(&words[0]) && words.len() > 2, "{distro}: {line}");
            }
            for (soname, library) in &distro.table().libraries {
                let minimums = library.nodes.values().chain(library.symbols.values());
                for (version, template) in minimums {
                    assert!(*template < library.templates.len(), "{distro}: {soname} {version}");
                }
                assert!(
                    library.templates.iter().all(|text| !text.is_empty()),
                    "{distro}: {soname}"
                );
            }
            assert!(distro.table().has("libc.so.6") && distro.table().has("libstdc++.so.6"));
        }
    }

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
