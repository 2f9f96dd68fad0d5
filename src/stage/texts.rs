//! Relations that the packages file gives as texts: their syntax, and the words in braces that stand for
//! something of the package.

use crate::config::{DebRelations, Definition, PackagesConfig, RpmRelations};
use crate::error::{Error, Errors, Result};
use crate::package::Format;
use crate::package::grammar;
use crate::package::spec::{Kind, Name, Package};

/// What the words in braces stand for.
struct Words<'a> {
    name: &'a Name,
    group: Option<&'a str>,
    version: &'a str,
    release: &'a str,
}

impl Words<'_> {
    /// Replaces the words; the error names one that there is not.
    fn fill(&self, text: &str, format: Format) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((word, after)) = after.split_once('}') else {
                return Err("a `{` has no `}`".to_owned());
            };
            filled += before;
            match (word, self.group) {
                ("name", _) => filled += &self.name.in_format(format),
                ("group", Some(group)) => filled += &Name::both(group).in_format(format),
                ("version", _) => filled += &format!("{}-{}", self.version, self.release),
                ("upstream_version", _) => filled += self.version,
                _ => {
                    let group = if self.group.is_some() { ", `{group}`" } else { "" };
                    return Err(format!(
                        "there is no `{{{word}}}` here, but `{{name}}`, `{{version}}`, \
                         `{{upstream_version}}`{group}"
                    ));
                }
            }
            rest = after;
        }
        Ok(filled + rest)
    }
}

/// Adds texts of the packages file to a package.
pub(super) fn add(package: &mut Package, deb: &DebRelations, rpm: &RpmRelations) {
    for (field, texts) in deb.lists() {
        texts.iter().for_each(|text| add_one(package, Format::Deb, field, text));
    }
    for (tag, texts) in rpm.lists() {
        texts.iter().for_each(|text| add_one(package, Format::Rpm, tag, text));
    }
}

/// Adds one text to a package. What cannot be filled in was refused before, by [`check`].
pub(super) fn add_one(package: &mut Package, format: Format, field: &str, text: &str) {
    let group = match &package.kind {
        Kind::Group { group: target } | Kind::Shared { target } => Some(target.as_str()),
        _ => None,
    };
    let Package { name, version, release, .. } = &*package;
    let words = Words { name, group, version, release };
    let text = words.fill(text, format).unwrap_or_else(|_| text.to_owned());
    let map = match format {
        Format::Deb => &mut package.deb,
        Format::Rpm => &mut package.rpm,
    };
    let list = map.entry(field.to_owned()).or_default();
    if !list.contains(&text) {
        list.push(text);
    }
}

/// Checks all texts of the packages file, of both formats, whichever is written, and what `depends` names.
pub(super) fn check(config: &PackagesConfig, version: &str, release: &str) -> Result<()> {
    let mut faults = Vec::new();
    let mut text = |place: String, text: &str, format, field: &str, group| {
        let words = Words { name: &Name::both("name"), group, version, release };
        let filled = words.fill(text, format).map_err(|why| format!("`{text}`: {why}"));
        let checked = filled.and_then(|filled| {
            grammar::check(&filled, format, field).map_err(|why| why.to_string())
        });
        if let Err(why) = checked {
            faults.push(Error::usage(format!("{place}: {why}")).hint(match format {
                Format::Deb => {
                    "a .deb's relations are as `libc6 (>= 2.34), perl | python3`: docs/relations.md"
                }
                Format::Rpm => {
                    "an .rpm's relations are as `glibc >= 2.34, (perl or python3)`: docs/relations.md"
                }
            }));
        }
    };
    let mut lists = |place: &str, deb: &DebRelations, rpm: &RpmRelations, group| {
        let deb = deb.lists().into_iter().map(|(field, texts)| (Format::Deb, field, texts));
        let rpm = rpm.lists().into_iter().map(|(tag, texts)| (Format::Rpm, tag, texts));
        for (format, field, texts) in deb.chain(rpm) {
            for one in texts {
                let key = field.replace('-', "_");
                text(format!("{place}{format}.{key}"), one, format, field, group);
            }
        }
    };
    for definition in &config.packages {
        let place = format!("package `{}`: ", definition.name);
        lists(&place, &definition.deb, &definition.rpm, None);
        for (of, relations) in definition.relations.all() {
            let group = matches!(of, "group" | "shared" | "tests_group").then_some("gfx110X");
            lists(&format!("{place}relations.{of}."), &relations.deb, &relations.rpm, group);
        }
    }
    for (key, external) in config.externals.iter() {
        let Some(external) = external else { continue };
        for (format, field, one) in
            [(Format::Deb, "depends", &external.deb), (Format::Rpm, "requires", &external.rpm)]
        {
            let Some(one) = one.as_ref().filter(|one| !one.is_empty()) else { continue };
            text(format!("externals.{key}.{format}"), one, format, field, None);
        }
    }
    faults.extend(config.packages.iter().flat_map(|definition| unknown(definition, config)));
    Errors::check((), faults)
}

/// What a definition depends on that is neither defined nor known to come from elsewhere.
fn unknown<'a>(
    definition: &'a Definition,
    config: &'a PackagesConfig,
) -> impl Iterator<Item = Error> + 'a {
    let is_known = |name: &String| {
        config.packages.iter().any(|other| other.name == *name)
            || config.externals.named(name).is_some()
    };
    definition.depends.iter().filter(move |name| !is_known(name)).map(|name| {
        let message = format!(
            "package `{}`: depends on `{name}`, which the packages file does not define",
            definition.name
        );
        let close = config.packages.iter().map(|other| other.name.as_str()).find(|other| {
            name.strip_prefix(*other).is_some_and(|rest| rest.starts_with('-'))
        });
        Error::usage(message).hint(match close {
            Some(other) => format!(
                "`depends` names definitions: `{other}` gives each package what it needs of that one"
            ),
            None => format!(
                "if it comes from elsewhere, say so in `externals`: {{\"{name}\": {{}}}} is a package of \
                 that name in both formats, {{\"{name}\": {{\"deb\": \"NAME (>= 1.0)\", \"rpm\": \"NAME >= 1.0\"}}}} \
                 another"
            ),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_braces_are_filled_in() {
        let name = &Name::both("aa-gfx110X");
        let words = Words { name, group: Some("gfx110X"), version: "7.1.0", release: "2" };
        let text = "old-{group} (<< {version}), {name} {upstream_version}";
        assert_eq!(
            words.fill(text, Format::Deb).unwrap(),
            "old-gfx110x (<< 7.1.0-2), aa-gfx110x 7.1.0"
        );
        assert_eq!(words.fill("old-{group}", Format::Rpm).unwrap(), "old-gfx110X");
        let none = Words { group: None, ..words };
        assert!(none.fill("{group}", Format::Deb).unwrap_err().contains("no `{group}` here"));
        assert!(none.fill("{name", Format::Deb).unwrap_err().contains("has no `}`"));
    }
}
