//! Relations: closed within the set, or to what comes from elsewhere.
//!
//! A relation to a version of the set itself (`rocblas-generic (= 7.1.0-1)` of `rocblas-gfx110X
//! 7.1.0-1`) can be met by the set alone. Any other may be met by the system, unless the caller has named all
//! that comes from elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use globset::GlobSetBuilder;

use super::found;
use super::pack::Pack;
use crate::config::FileKind;
use crate::package::spec::Op;
use crate::package::{Format, version};
use crate::verify::Options;
use crate::verify::finding::{Check, Finding};
use crate::verify::needed::is_base;

/// A name with, maybe, a constraint on its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Relation {
    pub name: String,
    /// Operator as dpkg or rpm writes it, and version.
    pub version: Option<(String, String)>,
}

/// A relation that wants something: any one of these.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// As the package writes it.
    pub text: String,
    /// A relation that need not be met.
    pub weak: bool,
    pub any: Vec<Relation>,
}

impl Relation {
    /// This version of that name.
    pub fn exactly(name: &str, version: &str) -> Self {
        Self { name: name.to_owned(), version: Some(("=".to_owned(), version.to_owned())) }
    }

    /// `name`, `name (>= 1)` as dpkg writes it or `name >= 1` as rpm does. Nothing for what is more than
    /// that, as rpm's `(a and b)`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('(') {
            return None;
        }
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        // `(post)` after rpm's says when it is needed.
        let rest = rest.trim().trim_start_matches('(').trim_end_matches(')');
        let mut words = rest.split_whitespace();
        let version = match (words.next(), words.next()) {
            (Some(op), Some(version)) if op.chars().all(|c| "<=>".contains(c)) => {
                Some((op.to_owned(), version.to_owned()))
            }
            _ => None,
        };
        // `name:any` is of any architecture; rpm's names hold colons only within brackets.
        let name = name.strip_suffix(":any").unwrap_or(name);
        Some(Self { name: name.to_owned(), version })
    }

    /// Whether what a package is known as meets this.
    fn is_met_by(&self, provided: &Self, format: Format) -> bool {
        if self.name != provided.name {
            return false;
        }
        match (&self.version, &provided.version) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some((op, wanted)), Some((_, have))) => {
                Op::parse(op).is_some_and(|op| version::holds(format, have, op, wanted))
            }
        }
    }
}

impl Wanted {
    pub fn parse(kind: &str, text: &str) -> Self {
        let any = text.split('|').filter_map(Relation::parse).collect();
        Self { text: text.to_owned(), weak: kind == "Recommends", any }
    }
}

/// Checks the relations of one format's packages.
pub(super) fn check(packs: &[&Pack], options: &Options, findings: &mut Vec<Finding>) {
    let external = &options.external;
    let mut set = GlobSetBuilder::new();
    external.iter().chain(&options.known_external).for_each(|glob| {
        set.add(glob.clone());
    });
    let externals = set.build().unwrap_or_default();
    let mut provided: BTreeMap<&str, Vec<&Relation>> = BTreeMap::new();
    for relation in packs.iter().flat_map(|pack| &pack.provides) {
        provided.entry(&relation.name).or_default().push(relation);
    }
    let is_met = |relation: &Relation, format| {
        let list = provided.get(relation.name.as_str());
        list.is_some_and(|list| list.iter().any(|provided| relation.is_met_by(provided, format)))
    };
    for pack in packs {
        for wanted in pack.wants.iter().filter(|wanted| !wanted.weak && !wanted.any.is_empty()) {
            if wanted.any.iter().any(|relation| is_met(relation, pack.format)) {
                continue;
            }
            let of_set = wanted.any.iter().all(|relation| {
                let own = relation.version.as_ref().is_some_and(|(_, v)| *v == pack.version);
                own || provided.contains_key(relation.name.as_str())
            });
            let elsewhere = wanted.any.iter().any(|relation| {
                externals.is_match(&relation.name) || is_system(&relation.name, pack.format)
            });
            if of_set || !external.is_empty() && !elsewhere {
                let there = wanted.any.iter().filter_map(|r| provided.get(r.name.as_str()));
                let there: Vec<_> = there
                    .flatten()
                    .map(|r| format!("{} {}", r.name, r.version.as_ref().map_or("", |v| &v.1)))
                    .collect();
                let expected = if there.is_empty() {
                    "a package of the set that is called so or provides it, or one that --external names"
                        .to_owned()
                } else {
                    format!("what the set has: {}", there.join(", "))
                };
                let what = format!("needs `{}`, which no package of the set meets", wanted.text);
                found(findings, Check::RelationUnmet, pack, what, expected);
            }
        }
        generic(pack, |name| provided.contains_key(name), findings);
    }
}

/// What a package asks of others than those of its set.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct AskedElsewhere {
    /// SONAMEs, which an `.rpm` asks for by themselves: `libz.so.1()(64bit)`.
    libraries: BTreeSet<String>,
    /// A package, which may bring any library, itself or through one of the set that it needs.
    package: bool,
}

impl AskedElsewhere {
    /// Whether something that is asked for can bring the library.
    pub fn can_bring(&self, soname: &str) -> bool {
        self.package || self.libraries.contains(soname)
    }
}

/// What each of one format's packages asks of others, by the packages' files.
pub(super) fn asked_elsewhere<'p>(packs: &[&'p Pack]) -> BTreeMap<&'p str, AskedElsewhere> {
    let mut providers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pack in packs {
        for relation in &pack.provides {
            providers.entry(&relation.name).or_default().push(&pack.file);
        }
    }
    let mut asked: BTreeMap<&str, AskedElsewhere> = BTreeMap::new();
    let mut needed_by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pack in packs {
        let own = asked.entry(&pack.file).or_default();
        for relation in pack.wants.iter().filter(|wanted| !wanted.weak).flat_map(|one| &one.any) {
            if let Some(there) = providers.get(relation.name.as_str()) {
                for there in there {
                    needed_by.entry(there).or_default().push(&pack.file);
                }
            } else if let Some((soname, _)) = relation.name.split_once('(')
                && pack.format == Format::Rpm
                && soname.contains(".so")
            {
                own.libraries.insert(soname.to_owned());
            } else if !is_system(&relation.name, pack.format) {
                own.package = true;
            }
        }
    }
    let mut pending: Vec<&str> =
        asked.iter().filter(|(_, one)| one.package).map(|(file, _)| *file).collect();
    while let Some(file) = pending.pop() {
        for needing in needed_by.remove(file).unwrap_or_default() {
            let one = asked.entry(needing).or_default();
            if !std::mem::replace(&mut one.package, true) {
                pending.push(needing);
            }
        }
    }
    asked
}

/// A group's package needs exactly its generic one: the two are of one build. `is_there` says whether the set has a
/// name.
fn generic(pack: &Pack, is_there: impl Fn(&str) -> bool, findings: &mut Vec<Finding>) {
    if pack.group().is_none() {
        return;
    }
    let definition = pack.definition();
    let generic = format!("{definition}-generic");
    // What tests, development files and the like have for every GPU is in the package that has their name. A
    // definition can be called so as well.
    let host = if is_of_kind(definition, pack.format) && !is_there(&generic) {
        definition.to_owned()
    } else {
        generic
    };
    let exactly = Relation::exactly(&host, &pack.version);
    let has = pack.wants.iter().any(|wanted| !wanted.weak && wanted.any == [exactly.clone()]);
    if !has {
        let ours = pack.wants.iter().find(|w| w.any.iter().any(|r| r.name == exactly.name));
        let what = match ours {
            Some(wanted) => format!("needs `{}`", wanted.text),
            None => format!("does not need `{}`", exactly.name),
        };
        let expected = format!("`{}` of exactly the version {}", exactly.name, pack.version);
        found(findings, Check::GenericRelation, pack, what, expected);
    }
}

/// Whether a name is that of the package of one kind of a definition's files.
fn is_of_kind(name: &str, format: Format) -> bool {
    FileKind::ALL.into_iter().any(|kind| {
        let suffix = match format {
            Format::Deb => kind.suffix(),
            Format::Rpm => kind.rpm_suffix(),
        };
        name.strip_suffix(suffix).is_some_and(|stem| stem.ends_with('-'))
    })
}

/// What Debian's releases call the packages of the libraries in `external.txt`.
const BASE_DEBS: [&str; 18] = [
    "libatomic1",
    "libc6",
    "libdrm-amdgpu1",
    "libdrm2",
    "libdw1",
    "libdw1t64",
    "libelf1",
    "libelf1t64",
    "libgcc-s1",
    "libgfortran5",
    "libgomp1",
    "liblzma5",
    "libnuma1",
    "libquadmath0",
    "libstdc++6",
    "libtinfo6",
    "libzstd1",
    "zlib1g",
];

/// What every system has: rpm's own features, files, and the base libraries.
pub(in crate::verify) fn is_system(name: &str, format: Format) -> bool {
    match format {
        Format::Deb => name == "dpkg" || BASE_DEBS.contains(&name),
        Format::Rpm => {
            let soname = name.split_once('(').map_or(name, |(soname, _)| soname);
            name.starts_with("rpmlib(")
                || name.starts_with("rtld(")
                || name.starts_with('/')
                || is_base(soname)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_of_both_formats_are_read() {
        let read = |text| Relation::parse(text).map(|r| (r.name, r.version));
        let version = |op: &str, version: &str| Some((op.to_owned(), version.to_owned()));
        let name = |name: &str| name.to_owned();
        assert_eq!(read("a-generic (= 1-1)"), Some((name("a-generic"), version("=", "1-1"))));
        assert_eq!(read("a-generic = 1-1"), Some((name("a-generic"), version("=", "1-1"))));
        assert_eq!(read("python3:any"), Some((name("python3"), None)));
        assert_eq!(read("/sbin/ldconfig (post,postun)"), Some((name("/sbin/ldconfig"), None)));
        assert_eq!(read("libc.so.6(GLIBC_2.34)(64bit)").unwrap().0, "libc.so.6(GLIBC_2.34)(64bit)");
        assert_eq!(read("(a and b)"), None);
        assert_eq!(Wanted::parse("Depends", "a (>> 2) | b").any.len(), 2);
    }
}
