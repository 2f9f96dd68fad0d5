//! Files that change packages from one release to the next.
//!
//! A configuration moves an ISA from one group to another, a database becomes known and its files leave the
//! generic package, a component gets device code, a kind of files no longer has a package. dpkg unpacks one package after the other, and stops at a file that another one has,
//! unless the new package `Replaces` that one (Debian policy 7.6.1); then the file changes hands. Where it is the one that is there that
//! replaces the new one, the file stays with it, and goes when it goes. So each
//! package of a definition replaces all that the definition may have been cut into, whether this release has them or not, and in any version, since a user may
//! also go back. It does not
//! break them: exact relations keep releases from being mixed, and `dpkg -i *.deb` refuses what
//! breaks an installed package.
//!
//! rpm looks at the transaction as a whole and needs nothing; `Obsoletes` would remove the other package there.

use std::collections::{BTreeMap, BTreeSet};

use super::names;
use crate::config::{FileKind, PackagingConfig};
use crate::package::spec::Package;

/// Lets the packages of each definition take over files from each other. `starts` has, in order, where in
/// `packages` the packages of a definition begin, and its name; a definition can be there several times.
pub(super) fn relate(packages: &mut [Package], starts: &[(usize, &str)], groups: &PackagingConfig) {
    let mut families: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (nth, &(start, definition)) in starts.iter().enumerate() {
        let end = starts.get(nth + 1).map_or(packages.len(), |&(next, _)| next);
        families.entry(definition).or_default().extend(start..end);
    }
    for (definition, family) in families {
        // One package that is all there is may have been several, but was never in groups that are not known.
        let in_groups = family.iter().any(|&at| packages[at].name == names::generic(definition));
        let made = family.iter().map(|&at| packages[at].name.deb());
        let kinds = std::iter::once(None).chain(FileKind::ALL.map(Some));
        let kinds = kinds.map(|kind| names::own(definition, kind).deb());
        let known = groups.group_names().filter(|_| in_groups);
        let known = known.map(|group| names::group(definition, group).deb());
        let generic = names::generic(definition).deb();
        let all: BTreeSet<String> = made.chain(kinds).chain(known).chain([generic]).collect();
        for at in family {
            let package = &mut packages[at];
            if !package.tree.is_empty() {
                let own = package.name.deb();
                let others = all.iter().filter(|name| **name != own).cloned();
                package.deb.entry("replaces".to_owned()).or_default().extend(others);
            }
        }
    }
}
