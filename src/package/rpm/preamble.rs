//! Reads a rendered preamble back: the part of a spec file that says what a package is.
//!
//! Tags (`Name: value`), then sections that begin with `%description`, `%pre`, `%post`, `%preun`, `%postun`,
//! `%pretrans`, `%posttrans` or `%changelog`. Nothing is expanded: a macro is an error, as is a tag that is not
//! known here, one that is given twice, and a section that says what to build.

use crate::date;
use crate::package::grammar::rpm::{self as grammar, Expression};
use crate::package::spec::{Op, Relation};

/// Bits of a dependency's flags.
pub(super) mod sense {
    pub(in super::super) const LESS: u32 = 1 << 1;
    pub(in super::super) const GREATER: u32 = 1 << 2;
    pub(in super::super) const EQUAL: u32 = 1 << 3;
    pub(in super::super) const PRETRANS: u32 = 1 << 7;
    pub(in super::super) const INTERP: u32 = 1 << 8;
    pub(in super::super) const PRE: u32 = 1 << 9;
    pub(in super::super) const POST: u32 = 1 << 10;
    pub(in super::super) const PREUN: u32 = 1 << 11;
    pub(in super::super) const POSTUN: u32 = 1 << 12;
    pub(in super::super) const POSTTRANS: u32 = 1 << 5;
    pub(in super::super) const RPMLIB: u32 = 1 << 24;
}

/// A dependency as the header stores it. Ordered by name, as rpmbuild sorts them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) flags: u32,
}

/// A scriptlet's place in the life of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    Pre,
    Post,
    Preun,
    Postun,
    Pretrans,
    Posttrans,
}

impl When {
    const ALL: [(&str, Self); 6] = [
        ("pre", Self::Pre),
        ("post", Self::Post),
        ("preun", Self::Preun),
        ("postun", Self::Postun),
        ("pretrans", Self::Pretrans),
        ("posttrans", Self::Posttrans),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, when)| *when)
    }

    /// The bit of a dependency that this scriptlet has.
    pub(super) fn sense(self) -> u32 {
        match self {
            Self::Pre => sense::PRE,
            Self::Post => sense::POST,
            Self::Preun => sense::PREUN,
            Self::Postun => sense::POSTUN,
            Self::Pretrans => sense::PRETRANS,
            Self::Posttrans => sense::POSTTRANS,
        }
    }

    /// The tags of its text and of its interpreter.
    pub(super) fn tags(self) -> (u32, u32) {
        match self {
            Self::Pre => (1023, 1085),
            Self::Post => (1024, 1086),
            Self::Preun => (1025, 1087),
            Self::Postun => (1026, 1088),
            Self::Pretrans => (1151, 1153),
            Self::Posttrans => (1152, 1154),
        }
    }
}

/// A scriptlet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) when: When,
    /// With arguments.
    pub(super) interpreter: Vec<String>,
    /// May be empty: `%post -p /sbin/ldconfig`.
    pub(super) text: String,
}

/// The lists of dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Requires,
    Provides,
    Conflicts,
    Obsoletes,
    Recommends,
    Suggests,
    Supplements,
    Enhances,
}

impl List {
    /// Each with its tag in a spec file and the header's tags for name, version and flags.
    pub(super) const ALL: [(Self, &str, [u32; 3]); 8] = [
        (Self::Requires, "Requires", [1049, 1050, 1048]),
        (Self::Provides, "Provides", [1047, 1113, 1112]),
        (Self::Conflicts, "Conflicts", [1054, 1055, 1053]),
        (Self::Obsoletes, "Obsoletes", [1090, 1115, 1114]),
        (Self::Recommends, "Recommends", [5046, 5047, 5048]),
        (Self::Suggests, "Suggests", [5049, 5050, 5051]),
        (Self::Supplements, "Supplements", [5052, 5053, 5054]),
        (Self::Enhances, "Enhances", [5055, 5056, 5057]),
    ];
}

/// What a preamble says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Preamble {
    /// Single-valued tags, as they are spelt in [`TAGS`].
    tags: Vec<(&'static str, String)>,
    pub(super) prefixes: Vec<String>,
    pub(super) dependencies: Vec<(List, Dependency)>,
    pub(super) description: String,
    pub(super) scripts: Vec<Script>,
    /// Time, author and text of each entry.
    pub(super) changelog: Vec<(i64, String, String)>,
}

const TAGS: [&str; 12] = [
    "Name",
    "Version",
    "Release",
    "Summary",
    "License",
    "BuildArch",
    "Group",
    "Vendor",
    "Packager",
    "URL",
    "Distribution",
    "BugURL",
];

enum Section {
    Tags,
    Description,
    Script(Script),
    Changelog,
}

impl Preamble {
    /// The value of a tag of [`TAGS`], where it is given.
    pub(super) fn get(&self, tag: &str) -> Option<&str> {
        self.tags.iter().find(|(known, _)| *known == tag).map(|(_, value)| value.as_str())
    }

    /// Reads a preamble. The error names the line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut preamble = Self::default();
        let mut section = Section::Tags;
        let mut body = String::new();
        for (i, line) in text.lines().enumerate() {
            let at = |what: String| format!("line {} of the preamble {what}", i + 1);
            let begins = line
                .strip_prefix('%')
                .filter(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
            match begins {
                Some(header) => {
                    preamble.end_section(section, &body).map_err(at)?;
                    body.clear();
                    section = begin_section(header).map_err(at)?;
                }
                None if matches!(section, Section::Tags) => {
                    preamble.tag(line.trim()).map_err(at)?;
                }
                None => {
                    body.push_str(line);
                    body.push('\n');
                }
            }
        }
        preamble.end_section(section, &body)?;
        for tag in ["Name", "Version", "Release", "Summary", "License", "BuildArch"] {
            preamble.get(tag).ok_or_else(|| format!("the preamble has no `{tag}:`"))?;
        }
        if preamble.description.is_empty() {
            return Err("the preamble has no `%description`, or an empty one".to_owned());
        }
        Ok(preamble)
    }

    fn tag(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (tag, value) =
            line.split_once(':').ok_or_else(|| format!("is no `Tag: value`: `{line}`"))?;
        let (tag, value) = (tag.trim(), value.trim());
        if value.contains("%{") || value.contains("%(") {
            return Err(format!("has a macro, which is not expanded here: `{value}`"));
        }
        if value.is_empty() {
            return Err(format!("gives `{tag}` no value"));
        }
        if let Some(known) = TAGS.iter().find(|known| known.eq_ignore_ascii_case(tag)) {
            if self.get(known).is_some() {
                return Err(format!("gives `{known}` again"));
            }
            self.tags.push((known, value.to_owned()));
            return Ok(());
        }
        if tag.eq_ignore_ascii_case("Prefix") || tag.eq_ignore_ascii_case("Prefixes") {
            for prefix in value.split_whitespace() {
                if !prefix.starts_with('/') || (prefix.len() > 1 && prefix.ends_with('/')) {
                    return Err(format!(
                        "has the prefix `{prefix}`, expected an absolute path without a final slash"
                    ));
                }
                self.prefixes.push(prefix.to_owned());
            }
            return Ok(());
        }
        let (base, scripts) = match tag.split_once('(') {
            Some((base, rest)) => {
                (base, rest.strip_suffix(')').ok_or("has a `(` without its `)`")?)
            }
            None => (tag, ""),
        };
        let list = List::ALL.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(base));
        let Some((list, ..)) = list else {
            let known = TAGS.into_iter().chain(["Prefix"]);
            let known = known.chain(List::ALL.map(|(_, name, _)| name));
            let known = known.collect::<Vec<_>>().join("`, `");
            return Err(format!("has the unknown tag `{tag}`; the tags are `{known}`"));
        };
        let mut sense = 0;
        for script in scripts.split(',').map(str::trim).filter(|script| !script.is_empty()) {
            let when = When::named(script).filter(|_| *list == List::Requires);
            sense |= when.ok_or_else(|| format!("has the unknown qualifier `({script})`"))?.sense();
        }
        for mut dependency in dependencies(value, base)? {
            dependency.flags |= sense;
            self.dependencies.push((*list, dependency));
        }
        Ok(())
    }

    fn end_section(&mut self, section: Section, body: &str) -> Result<(), String> {
        match section {
            Section::Tags => {}
            Section::Description => body.trim().clone_into(&mut self.description),
            Section::Script(mut script) => {
                body.trim_end().clone_into(&mut script.text);
                if script.text.is_empty() && script.interpreter == ["/bin/sh"] {
                    return Ok(());
                }
                if self.scripts.iter().any(|known| known.when == script.when) {
                    return Err("ends a scriptlet that was given before".to_owned());
                }
                self.scripts.push(script);
            }
            Section::Changelog => self.changelog = changelog(body)?,
        }
        Ok(())
    }
}

fn begin_section(header: &str) -> Result<Section, String> {
    let mut words = header.split_whitespace();
    let name = words.next().unwrap_or_default();
    let rest: Vec<String> = words.map(str::to_owned).collect();
    let section = match (name, When::named(name)) {
        ("description", _) => Section::Description,
        ("changelog", _) => Section::Changelog,
        (_, Some(when)) => {
            let interpreter = match rest.as_slice() {
                [] => vec!["/bin/sh".to_owned()],
                [flag, program, ..]
                    if flag == "-p" && (program.starts_with('/') || program == "<lua>") =>
                {
                    rest[1..].to_vec()
                }
                _ => return Err(format!("has options after `%{name}` other than `-p /PROGRAM`")),
            };
            return Ok(Section::Script(Script { when, interpreter, text: String::new() }));
        }
        _ => return Err(format!("begins the section `%{name}`, which a preamble cannot have")),
    };
    if rest.is_empty() { Ok(section) } else { Err(format!("has options after `%{name}`")) }
}

/// The dependencies of a tag.
fn dependencies(text: &str, tag: &str) -> Result<Vec<Dependency>, String> {
    let read = grammar::parse(text, tag).map_err(|e| format!("has no relation: {e}"))?;
    let dependency = |expression| match expression {
        Expression::Simple(Relation { name, constraint }) => {
            let (flags, version) = match constraint {
                Some((op, version)) => (sense_of(op), version),
                None => (0, String::new()),
            };
            Dependency { name: name.rpm().to_owned(), version, flags }
        }
        rich => Dependency { name: rich.to_string(), version: String::new(), flags: 0 },
    };
    Ok(read.into_iter().map(dependency).collect())
}

fn sense_of(op: Op) -> u32 {
    match op {
        Op::Less => sense::LESS,
        Op::LessEqual => sense::LESS | sense::EQUAL,
        Op::Equal => sense::EQUAL,
        Op::GreaterEqual => sense::GREATER | sense::EQUAL,
        Op::Greater => sense::GREATER,
    }
}

fn changelog(body: &str) -> Result<Vec<(i64, String, String)>, String> {
    let mut entries: Vec<(i64, String, String)> = Vec::new();
    for line in body.lines() {
        if let Some(header) = line.strip_prefix('*') {
            let words: Vec<&str> = header.split_whitespace().collect();
            let (day, author) = words
                .split_at_checked(4)
                .ok_or_else(|| format!("changelog: `{line}` has no date"))?;
            let time = date::parse_spec(&day.join(" ")).ok_or_else(|| {
                format!("changelog: `{}` is no date such as `Mon Jan 05 2026`", day.join(" "))
            })?;
            entries.push((time, author.join(" "), String::new()));
        } else if let Some((_, _, text)) = entries.last_mut() {
            text.push_str(line);
            text.push('\n');
        } else if !line.trim().is_empty() {
            return Err(format!(
                "changelog: `{line}` comes before the first entry (`* DATE AUTHOR`)"
            ));
        }
    }
    for (_, _, text) in &mut entries {
        *text = text.trim().to_owned();
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "Name: a\nVersion: 1\nRelease: 2\nSummary: s\nLicense: MIT\nBuildArch: noarch\n";

    fn parse(more: &str) -> Result<Preamble, String> {
        Preamble::parse(&format!("{GOOD}{more}"))
    }

    #[test]
    fn a_preamble_is_read() {
        let preamble = parse(
            "Requires(post,postun): foo >= 1.2-3, bar\nSupplements: (a and b(x))\n\
             Provides: libx.so.1()(64bit) = 1\n\n%description\n one\n\ntwo\n\n%post -p /sbin/ldconfig\n\
             %preun\n\n%postun\necho $1\n\n%changelog\n* Mon Jan 05 2026 A <a@b> - 1-2\n- first\n- more\n",
        )
        .unwrap();
        assert_eq!(preamble.get("BuildArch"), Some("noarch"));
        let dependency = |name: &str, version: &str, flags| Dependency {
            name: name.to_owned(),
            version: version.to_owned(),
            flags,
        };
        let scripts = sense::POST | sense::POSTUN;
        assert_eq!(
            preamble.dependencies,
            [
                (
                    List::Requires,
                    dependency("foo", "1.2-3", sense::GREATER | sense::EQUAL | scripts)
                ),
                (List::Requires, dependency("bar", "", scripts)),
                (List::Supplements, dependency("(a and b(x))", "", 0)),
                (List::Provides, dependency("libx.so.1()(64bit)", "1", sense::EQUAL)),
            ]
        );
        assert_eq!(preamble.description, "one\n\ntwo");
        let script = |when, interpreter: &str, text: &str| Script {
            when,
            interpreter: vec![interpreter.to_owned()],
            text: text.to_owned(),
        };
        assert_eq!(
            preamble.scripts,
            [script(When::Post, "/sbin/ldconfig", ""), script(When::Postun, "/bin/sh", "echo $1")]
        );
        assert_eq!(
            preamble.changelog,
            [(1_767_614_400, "A <a@b> - 1-2".to_owned(), "- first\n- more".to_owned())]
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, what) in [
            ("Foo: 1\n", "line 7 of the preamble has the unknown tag `Foo`"),
            ("Name: b\n", "gives `Name` again"),
            ("URL:\n", "gives `URL` no value"),
            ("Requires: %{name}\n", "has a macro"),
            ("Requires: foo >=\n", "at its end: expected a version"),
            ("Requires: >= 1\n", "found `>`, expected a letter"),
            ("Requires: (a and b\n", "a `(` has no `)`"),
            ("Provides: a > 1\n", "expected `=`"),
            ("Requires(foo): a\n", "unknown qualifier `(foo)`"),
            ("word\n", "is no `Tag: value`"),
            ("%build\n", "begins the section `%build`"),
            ("%post -e\n", "has options after `%post`"),
            ("%description\nx\n%changelog\n* Foo\n", "has no date"),
            ("", "no `%description`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(what), "{text:?}: {error}");
        }
        assert!(Preamble::parse("Name: a\n").unwrap_err().contains("no `Version:`"));
    }
}
