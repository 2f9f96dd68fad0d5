//! From laid files to packages: names, texts, and how the packages of a set relate.

use std::collections::{BTreeMap, BTreeSet};

use super::kinds::{self, Parts};
use super::lay::{Shared, Staged};
use super::{Options, handover, names, texts};
use crate::artifact::shared_family;
use crate::config::{Definition, Group, PackagesConfig, PackagingConfig, Relations};
use crate::error::{Error, Errors, Result};
use crate::package::Format;
use crate::package::spec::{Kind, LATEST, Name, Package, Relation, RelationKind};
use crate::target::TargetId;
use crate::tree::{Entry, Source, Tree, TreePath};

/// The longest summary that lintian and rpmlint take, in characters; it names the group where there is no
/// room for what people call it.
const SUMMARY: usize = 79;

/// Which definition each package is of.
pub(super) type Owners<'a> = BTreeMap<Name, &'a str>;

/// Makes the packages of all definitions, sorted by name.
pub(super) fn packages<'a>(
    staged: Vec<Staged<'a>>,
    groups: &PackagingConfig,
    config: &PackagesConfig,
    options: &Options,
) -> Result<(Vec<Package>, Owners<'a>)> {
    let with_groups: BTreeMap<&str, BTreeSet<String>> = staged
        .iter()
        .filter(|s| s.kind.is_none() && !(s.groups.is_empty() && s.generic.is_empty()))
        .map(|s| (s.definition.name.as_str(), s.groups.keys().cloned().collect()))
        .collect();
    let parts = Parts::of(&staged, &options.install_prefix)?;
    let trees = || {
        staged.iter().flat_map(|s| {
            let shared = s.shared.values().map(|shared| &shared.tree);
            std::iter::once(&s.generic).chain(s.groups.values()).chain(shared)
        })
    };
    let date = match options.source_date {
        Some(date) => date,
        None => newest(trees().flat_map(Tree::iter))?,
    };
    let relating =
        Relating { groups, config, options, with_groups: &with_groups, parts: &parts, date };
    let mut made = Vec::new();
    let mut faults = Vec::new();
    let definitions = staged.iter().filter(|staged| staged.kind.is_none());
    faults.extend(definitions.flat_map(|staged| relating.empty(staged.definition)));
    let mut starts = Vec::new();
    for Staged { definition, kind, generic, groups, shared } in staged {
        starts.push((made.len(), definition.name.as_str()));
        if let Some(kind) = kind {
            relating.of_kind(definition, kind, generic, groups, shared, &mut made);
            continue;
        }
        if groups.is_empty() {
            if !generic.is_empty() {
                made.push(relating.plain(definition, generic));
            }
            continue;
        }
        made.push(relating.meta(definition));
        made.push(relating.generic(definition, generic));
        for (group, tree) in groups {
            let shared = shared_by(&shared, &group);
            made.push(relating.group(definition, &group, tree, &shared));
        }
        for (target, shared) in shared {
            made.push(relating.shared(definition, &target, shared));
        }
    }
    handover::relate(&mut made, &starts, relating.groups);
    let mut owners = Owners::new();
    for (nth, (start, definition)) in starts.iter().enumerate() {
        let end = starts.get(nth + 1).map_or(made.len(), |(next, _)| *next);
        owners.extend(made[*start..end].iter().map(|package| (package.name.clone(), *definition)));
    }
    made.sort_by(|a, b| a.name.cmp(&b.name));
    faults.extend(parts.unused_alternatives());
    Errors::check((made, owners), faults)
}

/// The targets of what a group shares with others.
pub(super) fn shared_by<'s>(shared: &'s BTreeMap<String, Shared>, group: &str) -> Vec<&'s str> {
    let of_group = shared.iter().filter(|(_, shared)| shared.groups.contains(group));
    of_group.map(|(target, _)| target.as_str()).collect()
}

/// What the packages are dated by where nobody says: the time of the newest file. The formats have no room
/// for all times that a file can have, and one that is wrong by centuries would date everything.
fn newest<'t>(entries: impl Iterator<Item = (&'t TreePath, &'t Entry)>) -> Result<i64, Error> {
    let files = entries.filter_map(|(path, entry)| Some((entry.mtime?, path, entry.source()?)));
    let Some((newest, path, source)) = files.max_by_key(|(mtime, path, _)| (*mtime, *path)) else {
        return Ok(0);
    };
    if newest <= LATEST {
        return Ok(newest);
    }
    let fault = Error::failed(format!(
        "`/{path}` was last changed {newest} seconds after 1970, and packages can be dated {LATEST} at the latest \
         (in 2106)"
    ))
    .hint(
        "the newest file dates the packages: touch this one, or set SOURCE_DATE_EPOCH to the seconds since 1970 that \
         no file may be newer than",
    );
    Err(match source {
        Source::File(input) | Source::Pieces { input, .. } => fault.at(input.path()),
        _ => fault,
    })
}

/// Keeps the packages of these names or definitions.
pub(super) fn only(
    packages: Vec<Package>,
    names: &[String],
    owners: &Owners,
) -> Result<Vec<Package>> {
    let is_meant = |package: &Package, name: &str| {
        package.name.is(name) || owners.get(&package.name).is_some_and(|owner| *owner == name)
    };
    let faults = names
        .iter()
        .filter(|name| !packages.iter().any(|package| is_meant(package, name)))
        .map(|name| {
            let there: Vec<_> = packages.iter().map(|p| p.name.as_str()).collect();
            Error::usage(format!("there is no package `{name}`"))
                .hint(format!("the set has: {}", there.join(", ")))
        })
        .collect();
    Errors::check((), faults)?;
    let wanted = |package: &Package| names.iter().any(|name| is_meant(package, name));
    Ok(packages.into_iter().filter(wanted).collect())
}

pub(super) struct Relating<'a> {
    groups: &'a PackagingConfig,
    config: &'a PackagesConfig,
    options: &'a Options,
    /// The groups that each definition has packages for.
    with_groups: &'a BTreeMap<&'a str, BTreeSet<String>>,
    /// What each definition gives beside them.
    pub(super) parts: &'a Parts<'a>,
    date: i64,
}

impl<'a> Relating<'a> {
    pub(super) fn package(
        &self,
        definition: &'a Definition,
        name: &Name,
        kind: Kind,
        tree: Tree,
    ) -> Package {
        let defaults = &self.config.defaults;
        let mut package = Package::new(name, kind, &self.options.version, &self.options.release);
        let or_default =
            |own: &Option<String>, default: &String| own.as_ref().unwrap_or(default).clone();
        if !definition.summary.is_empty() {
            package.summary.clone_from(&definition.summary);
        }
        package.description.clone_from(&definition.description);
        package.maintainer.clone_from(&defaults.maintainer);
        package.vendor.clone_from(&defaults.vendor);
        package.homepage.clone_from(&defaults.homepage);
        package.license = or_default(&definition.license, &defaults.license);
        package.section = or_default(&definition.section, &defaults.section);
        package.date = self.date;
        package.tree = tree;
        self.parts.own(definition, &self.options.install_prefix, &mut package);
        package
    }

    /// The one package of a definition without device code.
    fn plain(&self, definition: &'a Definition, tree: Tree) -> Package {
        let name = names::own(&definition.name, None);
        let mut package = self.package(definition, &name, Kind::Plain, tree);
        self.host_relations(definition, &mut package);
        package
    }

    fn generic(&self, definition: &'a Definition, tree: Tree) -> Package {
        let name = names::generic(&definition.name);
        let mut package = self.package(definition, &name, Kind::Generic, tree);
        package.summary += " (host code)";
        self.host_relations(definition, &mut package);
        package
    }

    /// Where the configuration has a group, here or in an override.
    fn known(&self, group: &str) -> Option<&Group> {
        self.groups.architecture_groups.get(group).or_else(|| {
            let mut own = self.groups.component_overrides.values();
            own.find_map(|own| own.architecture_groups.get(group))
        })
    }

    /// A group's package. `shared` are the targets of what it shares with other groups.
    fn group(
        &self,
        definition: &'a Definition,
        group: &str,
        tree: Tree,
        shared: &[&str],
    ) -> Package {
        let own = names::own(&definition.name, None);
        let mut package = self.group_package(definition, &own, group, tree);
        let version = package.full_version();
        let generic = Relation::exactly(names::generic(&definition.name), &version);
        package.relate(RelationKind::Depends, generic);
        for target in shared {
            package.relate(RelationKind::Depends, Relation::exactly(own.with(target), &version));
        }
        for other in &definition.depends {
            if self.with_groups.get(other.as_str()).is_some_and(|groups| groups.contains(group)) {
                let other = Relation::at_least(names::group(other, group), &version);
                package.relate(RelationKind::Depends, other);
            }
        }
        let kernels = Relation::exactly(names::kernels(&own), &version);
        package.relate(RelationKind::Provides, kernels);
        give(&mut package, &definition.relations.group);
        package
    }

    /// The groups that a definition has packages for.
    pub(super) fn groups_of(&self, definition: &'a Definition) -> Option<&BTreeSet<String>> {
        self.with_groups.get(definition.name.as_str())
    }

    /// A package with a group's device code beside the package `own`, without relations.
    pub(super) fn group_package(
        &self,
        definition: &'a Definition,
        own: &Name,
        group: &str,
        tree: Tree,
    ) -> Package {
        let kind = Kind::Group { group: group.to_owned() };
        let mut package = self.package(definition, &own.with(group), kind, tree);
        let known = self.known(group);
        let display = known.map_or("", |known| known.display_name.as_str());
        let with = |what: &str| format!("{} (GPU code for {what})", package.summary);
        package.summary = match display {
            "" => with(group),
            display if with(display).chars().count() <= SUMMARY => with(display),
            _ => with(group),
        };
        package.gpu_targets = known.map(|known| known.architectures.clone()).unwrap_or_default();
        if !package.gpu_targets.is_empty() {
            // Summaries of groups are long, and rpmlint wants descriptions to say more.
            let text = format!(
                "This package has the device code for these GPUs: {}.",
                package.gpu_targets.join(", ")
            );
            kinds::add_paragraph(&mut package, &text);
        }
        package
    }

    /// What several groups share.
    fn shared(&self, definition: &'a Definition, target: &str, shared: Shared) -> Package {
        let own = names::own(&definition.name, None);
        let mut package = self.shared_package(definition, &own, target, shared);
        let version = package.full_version();
        let generic = Relation::exactly(names::generic(&definition.name), version);
        package.relate(RelationKind::Depends, generic);
        give(&mut package, &definition.relations.shared);
        package
    }

    /// A package with what several groups share beside the package `own`, without relations. It provides no kernels:
    /// alone it makes no GPU work.
    pub(super) fn shared_package(
        &self,
        definition: &'a Definition,
        own: &Name,
        target: &str,
        shared: Shared,
    ) -> Package {
        let kind = Kind::Shared { target: target.to_owned() };
        let mut package = self.package(definition, &own.with(target), kind, shared.tree);
        let family = shared_family(target);
        let of_family = |isa: &&String| {
            let isa = isa.parse::<TargetId>();
            family.as_ref().is_some_and(|family| isa.is_ok_and(|isa| family.runs(&isa)))
        };
        let groups = shared.groups.iter().filter_map(|group| self.known(group));
        let isas: BTreeSet<&String> =
            groups.flat_map(|group| &group.architectures).filter(of_family).collect();
        package.gpu_targets = isas.into_iter().cloned().collect();
        let called = family.map(|family| family.to_string()).unwrap_or_default();
        package.summary += &format!(" (GPU code that groups share for {called})");
        package
    }

    /// The package that holds nothing and leads to the rest.
    fn meta(&self, definition: &'a Definition) -> Package {
        let name = names::own(&definition.name, None);
        let mut package = self.package(definition, &name, Kind::Meta, Tree::new());
        kinds::add_paragraph(
            &mut package,
            "This metapackage holds nothing and leads to the packages that do.",
        );
        let version = package.full_version();
        let generic = Relation::exactly(names::generic(&definition.name), version);
        package.relate(RelationKind::Depends, generic);
        give(&mut package, &definition.relations.meta);
        package
    }

    /// What a definition depends on though there is no file for it.
    fn empty(&self, definition: &Definition) -> Vec<Error> {
        let is_made = self.with_groups.contains_key(definition.name.as_str());
        let defined = |name: &String| self.config.packages.iter().any(|d| d.name == *name);
        let absent =
            |name: &&String| defined(name) && !self.with_groups.contains_key(name.as_str());
        let absent = definition.depends.iter().filter(absent).filter(|_| is_made);
        absent
            .map(|name| {
                let message = format!(
                    "package `{}`: depends on `{name}`, of which no package is made",
                    definition.name
                );
                Error::usage(message)
                    .hint(format!("no artifact has a file for `{name}`: see its `contents`"))
            })
            .collect()
    }

    /// What the libraries of a definition need.
    fn host_relations(&self, definition: &'a Definition, package: &mut Package) {
        for name in &definition.depends {
            if let Some(groups) = self.with_groups.get(name.as_str()) {
                let other = match groups.is_empty() {
                    true => names::own(name, None),
                    false => names::generic(name),
                };
                let other = Relation::at_least(other, package.full_version());
                package.relate(RelationKind::Depends, other);
            } else if let Some(Some(external)) = self.config.externals.named(name) {
                for (format, field, text) in [
                    (Format::Deb, "depends", &external.deb),
                    (Format::Rpm, "requires", &external.rpm),
                ] {
                    let text = text.as_ref().unwrap_or(name);
                    if !text.is_empty() {
                        texts::add_one(package, format, field, text);
                    }
                }
            }
        }
        texts::add(package, &definition.deb, &definition.rpm);
    }
}

/// Adds relations of the packages file.
pub(super) fn give(package: &mut Package, relations: &Relations) {
    texts::add(package, &relations.deb, &relations.rpm);
}
