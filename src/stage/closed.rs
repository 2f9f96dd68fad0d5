//! Whether the packages of a set can be installed: what they need of each other is there, and nothing needs
//! itself in the end.
//!
//! What must be there is looked at alone (`Depends`, `Pre-Depends`, `Requires`), in each format. A name that no
//! package of the set has comes from elsewhere, unless it is called as one of a definition's packages would be.
//! Packages that need each other in a circle can be installed in no order; where there are alternatives, one of
//! them is enough.
//!
//! A set is there to be installed whole, so the condition of a rich relation of an `.rpm` holds where the set has what it
//! names: `(a if b)` needs `a` then, though not in a circle, since `b` can be left out. Where `b` comes from elsewhere nobody knows,
//! and nothing is said; nor of `else` and `unless`, which hold where something is not installed.

use std::collections::{BTreeMap, BTreeSet};

use super::names;
use crate::config::{PackagesConfig, PackagingConfig};
use crate::error::{Error, Errors, Result};
use crate::package::grammar::{self, rpm::Expression, rpm::RichOp};
use crate::package::spec::{Name, Package, Relation, RelationKind};
use crate::package::{Format, render, version};

/// What a package needs: one of these.
struct Need {
    text: String,
    any: Vec<Relation>,
    /// Whether it is needed beside another package alone.
    conditional: bool,
}

/// More alternatives than anybody writes, who multiply where `or` stands over `and`.
const MOST: usize = 256;

/// Checks the relations of all packages; all faults are reported.
pub(super) fn check(
    packages: &[Package],
    groups: &PackagingConfig,
    config: &PackagesConfig,
) -> Result<()> {
    let mut told = BTreeSet::new();
    let mut faults = Vec::new();
    for format in Format::ALL {
        let set = Set::new(packages, format);
        let absent = absent(&set, groups, config);
        let mut needs: Vec<Vec<(String, BTreeSet<usize>)>> = Vec::new();
        for (number, package) in packages.iter().enumerate() {
            let mut of_package = Vec::new();
            for need in set.needs(number) {
                match set.meet(&need, &absent) {
                    Met::By(others) if !others.contains(&number) && !need.conditional => {
                        of_package.push((need.text, others));
                    }
                    Met::By(_) | Met::Elsewhere => {}
                    Met::Otherwise(there) => {
                        let message = format!(
                            "package `{}`: needs `{}`, but the set has {there}",
                            package.name, need.text
                        );
                        if told.insert(message.clone()) {
                            faults.push(Error::usage(message).hint(
                                "leave the version out, or write `{version}` for that of the set",
                            ));
                        }
                    }
                    Met::Absent(hint) => {
                        let message = format!(
                            "package `{}`: needs `{}`, which the set does not make",
                            package.name, need.text
                        );
                        if told.insert(message.clone()) {
                            faults.push(Error::usage(message).hint(hint));
                        }
                    }
                }
            }
            needs.push(of_package);
        }
        for (number, package) in packages.iter().enumerate() {
            for (text, other) in set.excluded(number) {
                let message = format!(
                    "package `{}`: `{text}` excludes {} ({}) of the same set",
                    package.name,
                    packages[other].name,
                    packages[other].full_version()
                );
                if told.insert(message.clone()) {
                    faults.push(Error::usage(message).hint(
                        "the packages of a set can be installed together: name versions before it, as with \
                         `{version}`",
                    ));
                }
            }
        }
        for circle in circles(&needs) {
            let names: BTreeSet<usize> = circle.iter().map(|(number, _)| *number).collect();
            if !told.insert(format!("{names:?}")) {
                continue;
            }
            let steps: Vec<String> = circle
                .iter()
                .map(|(number, text)| format!("`{}` needs `{text}`", packages[*number].name))
                .collect();
            faults.push(
                Error::usage(format!("packages need each other in a circle: {}", steps.join(", ")))
                    .hint(
                        "make one package of them, or put files into another; or, where one works without \
                         the other, make its relation weaker in both formats, as \"deb\": {\"recommends\": \
                         [\"NAME\"]}, \"rpm\": {\"recommends\": [\"NAME\"]}",
                    ),
            );
        }
    }
    Errors::check((), faults)
}

/// Checks that no two packages are called the same in one of the formats.
pub(super) fn check_names(packages: &[Package]) -> Result<()> {
    let mut told = BTreeSet::new();
    for format in Format::ALL {
        let mut names = BTreeSet::new();
        let all = packages.iter().map(|package| package.name.in_format(format));
        told.extend(all.filter(|name| !names.insert(name.clone())));
    }
    let fault = |name| {
        Error::usage(format!("two packages would be called `{name}`")).hint(
            "a definition, or the package of `linker_path`, is called like a package of another definition: \
             rename it",
        )
    };
    Errors::check((), told.into_iter().map(fault).collect())
}

/// Checks that no package has what gfxpack itself puts into one, as its copyright file: that is possible where
/// everything is installed below `/usr`.
pub(super) fn check_made_paths(packages: &[Package]) -> Result<()> {
    let mut faults = Vec::new();
    for made_for in packages {
        for path in render::made_paths(made_for) {
            let holders = packages.iter().filter(|package| package.tree.get(&path).is_some());
            faults.extend(holders.map(|holder| {
                Error::failed(format!(
                    "/{path} of the package {} is made by gfxpack for {}",
                    holder.name, made_for.name
                ))
                .hint("leave it out with `exclude`")
            }));
        }
    }
    Errors::check((), faults)
}

/// How a need is met.
enum Met {
    /// By any of these packages.
    By(BTreeSet<usize>),
    /// By what is not of the set.
    Elsewhere,
    /// By nothing: the set does not make it. What to do about it.
    Absent(String),
    /// The set has it in another version alone.
    Otherwise(String),
}

/// The packages by what they are known as.
struct Set<'p> {
    format: Format,
    /// By name: package and version, where it has one.
    provided: BTreeMap<String, Vec<(usize, Option<String>)>>,
    packages: &'p [Package],
}

impl<'p> Set<'p> {
    fn new(packages: &'p [Package], format: Format) -> Self {
        let mut provided: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for (number, package) in packages.iter().enumerate() {
            let mut add = |name: &Name, version: Option<String>| {
                let name = name.in_format(format).into_owned();
                provided.entry(name).or_default().push((number, version));
            };
            add(&package.name, Some(package.full_version()));
            let of_model = package.relations.get(&RelationKind::Provides).into_iter().flatten();
            let own = texts(package, format, &["provides"]).filter_map(|one| match one {
                Expression::Simple(relation) => Some(relation),
                Expression::Rich { .. } => None,
            });
            for relation in of_model.cloned().chain(own) {
                add(&relation.name, relation.constraint.map(|(_, version)| version));
            }
        }
        Self { format, provided, packages }
    }

    /// What a package cannot be installed without.
    fn needs(&self, number: usize) -> Vec<Need> {
        let package = &self.packages[number];
        let of_model = package.relations.get(&RelationKind::Depends).into_iter().flatten();
        let mut needs: Vec<Need> = of_model
            .map(|relation| Need {
                text: relation.in_format(self.format),
                any: vec![relation.clone()],
                conditional: false,
            })
            .collect();
        let written = |alternatives: &[Relation]| {
            alternatives.iter().map(Relation::deb).collect::<Vec<_>>().join(" | ")
        };
        match self.format {
            Format::Deb => {
                let texts = ["pre-depends", "depends"].into_iter();
                for text in texts.filter_map(|key| package.deb.get(key)).flatten() {
                    let list = grammar::deb::parse(text, "depends").unwrap_or_default();
                    needs.extend(list.into_iter().map(|any| Need {
                        text: written(&any),
                        any,
                        conditional: false,
                    }));
                }
            }
            Format::Rpm => {
                for text in package.rpm.get("requires").into_iter().flatten() {
                    for expression in grammar::rpm::parse(text, "requires").unwrap_or_default() {
                        let text = expression.to_string();
                        let all = self.all_of(&expression, number).into_iter();
                        needs.extend(all.map(|Clause { any, conditional }| Need {
                            text: text.clone(),
                            any,
                            conditional,
                        }));
                    }
                }
            }
        }
        needs
    }

    /// Packages of the set that a package cannot be installed with, and by which of its relations. An `.rpm`
    /// obsoletes by name alone.
    fn excluded(&self, number: usize) -> Vec<(String, usize)> {
        let keys: &[&str] = match self.format {
            Format::Deb => &["conflicts", "breaks"],
            Format::Rpm => &["conflicts", "obsoletes"],
        };
        let package = &self.packages[number];
        let mut excluded = Vec::new();
        for key in keys {
            for expression in texts(package, self.format, &[key]) {
                let text = match &expression {
                    Expression::Simple(relation) if self.format == Format::Deb => relation.deb(),
                    other => other.to_string(),
                };
                for other in self.holds(&expression) {
                    let by_name = match &expression {
                        Expression::Simple(relation) => {
                            self.packages[other].name.rpm() == relation.name.rpm()
                        }
                        Expression::Rich { .. } => false,
                    };
                    if other != number && (*key != "obsoletes" || by_name) {
                        excluded.push((text.clone(), other));
                    }
                }
            }
        }
        excluded
    }

    /// The packages that a relation is about, where all of the set is installed; none where it does not hold for sure.
    fn holds(&self, expression: &Expression) -> BTreeSet<usize> {
        let (first, rest) = match expression {
            Expression::Simple(relation) => {
                let provided = self.named(relation).into_iter().flatten();
                let met = |have: &Option<String>| {
                    version::meets(self.format, have.as_deref(), relation.constraint.as_ref())
                };
                return provided.filter(|(_, have)| met(have)).map(|(number, _)| *number).collect();
            }
            Expression::Rich { first, rest } => (first, rest),
        };
        let mut found = self.holds(first);
        for (op, operand) in rest {
            let other = self.holds(operand);
            match op {
                RichOp::Or => found.extend(other),
                RichOp::And | RichOp::If if found.is_empty() || other.is_empty() => {
                    return BTreeSet::new();
                }
                RichOp::And | RichOp::If => found.extend(other),
                RichOp::With => found.retain(|number| other.contains(number)),
                RichOp::Without => found.retain(|number| !other.contains(number)),
                // Whether something else is not installed is not known here.
                RichOp::Unless | RichOp::Else => return BTreeSet::new(),
            }
        }
        found
    }

    /// What a relation of an `.rpm` needs, each with its alternatives: all of them, where all of the set is installed.
    fn all_of(&self, expression: &Expression, number: usize) -> Vec<Clause> {
        let (first, rest) = match expression {
            Expression::Simple(relation) => {
                return vec![Clause { any: vec![relation.clone()], conditional: false }];
            }
            Expression::Rich { first, rest } => (first, rest),
        };
        let mut all = self.all_of(first, number);
        for (op, operand) in rest {
            match op {
                RichOp::And | RichOp::With => all.extend(self.all_of(operand, number)),
                RichOp::Or => {
                    let other = self.all_of(operand, number);
                    if all.len() * other.len() > MOST {
                        return Vec::new();
                    }
                    let pairs = all.iter().flat_map(|one| other.iter().map(move |two| (one, two)));
                    all = pairs.map(|(one, two)| one.or(two)).collect();
                }
                RichOp::Without => {}
                RichOp::If => {
                    let by = self.holds(operand);
                    if by.is_empty() {
                        return Vec::new();
                    }
                    let by_itself = by.contains(&number);
                    all.iter_mut().for_each(|clause| clause.conditional |= !by_itself);
                }
                RichOp::Unless => return Vec::new(),
                // Of a condition that holds.
                RichOp::Else => {}
            }
        }
        all
    }

    /// The packages that are known as what a relation names.
    fn named(&self, relation: &Relation) -> Option<&Vec<(usize, Option<String>)>> {
        self.provided.get(&*relation.name.in_format(self.format))
    }

    fn meet(&self, need: &Need, absent: &BTreeMap<String, String>) -> Met {
        let mut met = BTreeSet::new();
        let mut there = BTreeSet::new();
        let mut hint = None;
        for relation in &need.any {
            let Some(provided) = self.named(relation) else {
                match absent.get(&*relation.name.in_format(self.format)) {
                    Some(found) => hint = hint.or_else(|| Some(found.clone())),
                    None => return Met::Elsewhere,
                }
                continue;
            };
            for (number, have) in provided {
                if version::meets(self.format, have.as_deref(), relation.constraint.as_ref()) {
                    met.insert(*number);
                } else {
                    let have = have.as_deref().unwrap_or("no version of it");
                    there.insert(format!("{} ({have})", self.packages[*number].name));
                }
            }
        }
        match (met.is_empty(), hint) {
            (false, _) => Met::By(met),
            (true, Some(hint)) if there.is_empty() => Met::Absent(hint),
            _ => Met::Otherwise(there.into_iter().collect::<Vec<_>>().join(", ")),
        }
    }
}

/// The relations in texts of a package.
fn texts<'p>(
    package: &'p Package,
    format: Format,
    keys: &'p [&'p str],
) -> impl Iterator<Item = Expression> {
    let map = match format {
        Format::Deb => &package.deb,
        Format::Rpm => &package.rpm,
    };
    let all = keys.iter().filter_map(|key| Some((*key, map.get(*key)?)));
    all.flat_map(move |(key, texts)| {
        texts.iter().flat_map(move |text| -> Vec<Expression> {
            match format {
                Format::Deb => {
                    let read = grammar::deb::parse(text, key).unwrap_or_default();
                    read.into_iter().flatten().map(Expression::Simple).collect()
                }
                Format::Rpm => grammar::rpm::parse(text, key).unwrap_or_default(),
            }
        })
    })
}

/// Alternatives, one of which is needed.
struct Clause {
    any: Vec<Relation>,
    /// Whether it is needed beside another package alone.
    conditional: bool,
}

impl Clause {
    fn or(&self, other: &Self) -> Self {
        let any = self.any.iter().chain(&other.any).cloned().collect();
        Self { any, conditional: self.conditional || other.conditional }
    }
}

/// Names that packages of the set would have, or have in the other format alone, with what to do about one that is needed
/// and not there.
fn absent(
    set: &Set<'_>,
    groups: &PackagingConfig,
    config: &PackagesConfig,
) -> BTreeMap<String, String> {
    let mut absent = BTreeMap::new();
    let of_all = groups.architecture_groups.keys();
    let own = groups.component_overrides.values().flat_map(|own| own.architecture_groups.keys());
    let known: BTreeSet<&String> = of_all.chain(own).collect();
    for definition in &config.packages {
        let name = &definition.name;
        let own = names::own(name, None);
        let mut add = |package: Name, hint: String| {
            for package in [package.in_format(set.format).into_owned(), package.deb()] {
                if !set.provided.contains_key(&package) {
                    absent.insert(package, hint.clone());
                }
            }
        };
        add(own.clone(), format!("no artifact has a file for `{name}`: see its `contents`"));
        let plain = set.provided.contains_key(&*own.in_format(set.format));
        add(
            names::generic(name),
            match plain {
                true => format!("`{name}` has no device code: its one package is `{name}`"),
                false => format!("no artifact has a file for `{name}`: see its `contents`"),
            },
        );
        for group in &known {
            add(
                names::group(name, group),
                format!("no shard has code of `{name}` for the group {group}"),
            );
        }
        add(names::kernels(&own), format!("no shard has device code of `{name}`"));
    }
    for Package { name, .. } in set.packages {
        let here = name.in_format(set.format);
        let of_the_other = match set.format {
            Format::Deb => vec![name.rpm().to_ascii_lowercase()],
            Format::Rpm => vec![name.to_string(), name.deb()],
        };
        for other in of_the_other.into_iter().filter(|other| !set.provided.contains_key(other)) {
            absent.insert(other, format!("in this format the package is called `{here}`"));
        }
    }
    absent
}

/// Circles of needs. A package can be installed once all that it needs can; what is left cannot.
fn circles(needs: &[Vec<(String, BTreeSet<usize>)>]) -> Vec<Vec<(usize, &str)>> {
    let mut done = vec![false; needs.len()];
    loop {
        let ready = |of: &Vec<(String, BTreeSet<usize>)>, done: &[bool]| {
            of.iter().all(|(_, others)| others.iter().any(|&other| done[other]))
        };
        let next: Vec<usize> =
            (0..needs.len()).filter(|&n| !done[n] && ready(&needs[n], &done)).collect();
        if next.is_empty() {
            break;
        }
        next.into_iter().for_each(|n| done[n] = true);
    }
    let mut circles = Vec::new();
    let mut seen = vec![false; needs.len()];
    for start in (0..needs.len()).filter(|&n| !done[n]) {
        let mut way: Vec<(usize, &str)> = Vec::new();
        let mut at = start;
        while !seen[at] {
            seen[at] = true;
            // Of what cannot be installed, each needs another such one.
            let stuck = needs[at].iter().find(|(_, others)| !others.iter().any(|&o| done[o]));
            let Some((text, others)) = stuck else { break };
            let Some(&next) = others.first() else { break };
            way.push((at, text));
            at = next;
        }
        if let Some(from) = way.iter().position(|(number, _)| *number == at) {
            circles.push(way.split_off(from));
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(of: &[&[&[usize]]]) -> Vec<Vec<(String, BTreeSet<usize>)>> {
        let need = |any: &&[usize]| (format!("{any:?}"), any.iter().copied().collect());
        of.iter().map(|needs| needs.iter().map(need).collect()).collect()
    }

    fn found(of: &[&[&[usize]]]) -> Vec<Vec<usize>> {
        let needs = needs(of);
        let circles = circles(&needs).into_iter();
        circles.map(|circle| circle.into_iter().map(|(number, _)| number).collect()).collect()
    }

    #[test]
    fn circles_are_found_and_alternatives_lead_out() {
        assert_eq!(found(&[&[&[1]], &[&[2]], &[]]), [[0; 0]; 0]);
        assert_eq!(found(&[&[&[1]], &[&[2]], &[&[1]]]), [[1, 2]]);
        assert_eq!(found(&[&[&[1]], &[&[0, 2]], &[]]), [[0; 0]; 0], "2 is enough");
        assert_eq!(found(&[&[&[1, 2]], &[&[0]], &[&[0]]]).len(), 1, "both lead back");
        assert_eq!(found(&[&[&[1]], &[&[0]], &[&[3]], &[&[2]]]), [[0, 1], [2, 3]]);
    }
}
