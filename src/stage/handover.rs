//! Files that change packages from one release to the next.
//!
//! A configuration moves an ISA from one group to another, a database becomes known and its files leave the
//! generic package. dpkg unpacks one package after the other, and stops at a file that another one has,
//! unless the new package `Replaces` that one (Debian policy 7.6.1); then the file changes hands. So each
//! package of a definition replaces the others, in any version, since a user may also go back. It does not
//! break them: exact relations keep releases from being mixed, and `dpkg -i *.deb` refuses what
//! breaks an installed package.
//!
//! rpm looks at the transaction as a whole and needs nothing; `Obsoletes` would remove the other package there.

use std::collections::BTreeMap;

use crate::package::spec::Package;

/// Lets the packages of each definition take over files from each other. `starts` has, in order, where in
/// `packages` the packages of a definition begin, and its name; a definition can be there several times.
pub(super) fn relate(packages: &mut [Package], starts: &[(usize, &str)]) {
    let mut families: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (nth, &(start, definition)) in starts.iter().enumerate() {
        let end = starts.get(nth + 1).map_or(packages.len(), |&(next, _)| next);
        let with_files = (start..end).filter(|&at| !packages[at].tree.is_empty());
        families.entry(definition).or_default().extend(with_files);
    }
    for family in families.values() {
        for &at in family {
            let others = family.iter().filter(|&&other| other != at);
            let mut names: Vec<_> = others.map(|&other| packages[other].deb_name()).collect();
            if !names.is_empty() {
                names.sort();
                packages[at].deb.entry("replaces".to_owned()).or_default().extend(names);
            }
        }
    }
}
