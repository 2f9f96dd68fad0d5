//! What is kept of a `.deb`: its control file and the paths of its files.
//!
//! A control file is one stanza of deb822: `Name: value`, and lines that go on begin with a blank. It becomes a
//! stanza of `Packages`, among those of others, so nothing may get through that would end it.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::package::grammar::deb::parse;
use crate::package::read::PackageError;
use crate::package::read::deb::{self, AR_MAGIC};
use crate::package::spec::Relation;
use crate::read_at::ReadAt;
use crate::repo::record::{Facts, Part, Relations};

/// What indices say of a `.deb` beside the common facts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The control file: fields in their order, each with its lines, without an empty line and without what the
    /// index says of the file itself.
    pub control: String,
    /// What it installs but for directories, without the leading slash, in order.
    pub files: Vec<String>,
}

/// Fields that an index adds to a control file, or that dpkg does not let packages have in it.
pub(crate) const OF_INDEX: [&str; 7] =
    ["Filename", "Size", "MD5sum", "SHA1", "SHA256", "SHA512", "Description-md5"];

/// Reads what the index needs of a package file.
pub fn read(r: &dyn ReadAt) -> Result<Facts, PackageError> {
    let mut magic = [0; AR_MAGIC.len()];
    let is_archive = r.read_exact_at(&mut magic, 0).is_ok() && magic == AR_MAGIC;
    if !is_archive {
        return Err(PackageError::Missing("`!<arch>` at the beginning: this is no .deb".into()));
    }
    let outline = deb::outline(r, deb::members(r)?)?;
    let control = stanza(&outline.control)?;
    let needed = |name: &str| {
        field(&control, name)
            .ok_or_else(|| PackageError::Missing(format!("field {name} in control")))
    };
    let (name, version, arch) = (needed("Package")?, needed("Version")?, needed("Architecture")?);
    check("Package", &name, "[a-z0-9][a-z0-9+.-]+", |at, c| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || at > 0 && "+.-".contains(c)
    })?;
    check("Version", &version, "a digit, then letters, digits and `.+~:-`", |at, c| {
        c.is_ascii_digit() || at > 0 && (c.is_ascii_alphanumeric() || ".+~:-".contains(c))
    })?;
    check("Architecture", &arch, "[a-z0-9][a-z0-9-]*", |at, c| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || at > 0 && c == '-'
    })?;
    let files = outline.paths.into_iter();
    // A line of Contents has no room for names that break lines.
    let files = files.filter(|path| !path.contains(char::is_control));
    let mut files: Vec<String> =
        files.map(|path| path.trim_start_matches('/').to_owned()).collect();
    files.sort_unstable();
    files.dedup();
    let part = Part::Deb(Record { control, files });
    Ok(Facts { name, version, arch, built: outline.built, part })
}

fn check(
    field: &str,
    value: &str,
    expected: &str,
    good: impl Fn(usize, char) -> bool,
) -> Result<(), PackageError> {
    if !value.is_empty()
        && value.len() <= 200
        && value.chars().enumerate().all(|(at, c)| good(at, c))
    {
        return Ok(());
    }
    let found = format!("`{}`", value.chars().take(60).collect::<String>());
    Err(PackageError::field(format!("{field} in control"), 0, found, expected))
}

/// The control file as a stanza of an index.
fn stanza(control: &[u8]) -> Result<String, PackageError> {
    let text = std::str::from_utf8(control).map_err(|e| {
        let at = e.valid_up_to();
        PackageError::field("control", at as u64, "no UTF-8", "UTF-8, as Debian's policy has it")
    })?;
    let mut out = String::new();
    let mut seen: Vec<String> = Vec::new();
    let (mut ended, mut dropped) = (false, false);
    let mut at = 0;
    for line in text.split('\n') {
        let begins = at as u64;
        at += line.len() + 1;
        let bad = |expected: &str| {
            let found = format!("`{}`", line.chars().take(60).collect::<String>().escape_debug());
            PackageError::field("a line of control", begins, found, expected)
        };
        if line.trim().is_empty() {
            ended = !out.is_empty();
            continue;
        }
        if ended {
            return Err(bad("nothing after an empty line: a package has one stanza"));
        }
        if line.contains(|c: char| c.is_control() && c != '\t') {
            return Err(bad("no control characters"));
        }
        let line = line.trim_end();
        if line.starts_with([' ', '\t']) {
            if seen.is_empty() {
                return Err(bad("a field before the line that goes on"));
            }
        } else {
            let name = line.split(':').next().unwrap_or_default();
            let good = name.len() < line.len()
                && name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_graphic());
            if !good {
                return Err(bad("Name: value"));
            }
            let lower = name.to_ascii_lowercase();
            if seen.contains(&lower) {
                return Err(bad("each field once"));
            }
            dropped = OF_INDEX.iter().any(|field| field.eq_ignore_ascii_case(name));
            seen.push(lower);
        }
        if !dropped {
            out += line;
            out.push('\n');
        }
    }
    Ok(out)
}

/// The value of a field, its lines put together with blanks.
fn field(stanza: &str, name: &str) -> Option<String> {
    Some(field_lines(stanza, name)?.join(" ").trim().to_owned())
}

/// The lines of a field's value, without blanks at their ends: that behind the name, and those that go on.
pub(crate) fn field_lines<'a>(stanza: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let mut lines = stanza.lines();
    let value = loop {
        let (found, value) = lines.next()?.split_once(':')?;
        if found.eq_ignore_ascii_case(name) {
            break value;
        }
        // Lines that go on belong to the field before.
        let rest = lines.clone().take_while(|line| line.starts_with([' ', '\t'])).count();
        if rest > 0 {
            lines.nth(rest - 1);
        }
    };
    let more = lines.take_while(|line| line.starts_with([' ', '\t']));
    Some(std::iter::once(value).chain(more).map(str::trim).collect())
}

impl Record {
    /// About how many bytes it has in `Packages`.
    pub(in crate::repo) fn sizes(&self) -> [u32; 3] {
        let place = 160;
        [u32::try_from(self.control.len() + place).unwrap_or(u32::MAX), 0, 0]
    }

    /// SHA-256 of what `Contents` says of the package with this name.
    pub(in crate::repo) fn listed(&self, name: &str) -> [u8; 32] {
        let mut sha256 = Sha256::new();
        sha256.update(name);
        sha256.update(b"\n");
        for line in self.field("Section").iter().chain(&self.files) {
            sha256.update(line);
            sha256.update(b"\n");
        }
        sha256.finalize().into()
    }

    /// The relations that decide about upgrades.
    pub fn relations(&self) -> Relations {
        // What our parser does not take is dpkg's affair: such a relation is left out.
        let read = |name: &str| {
            let text = field(&self.control, name).unwrap_or_default();
            if text.is_empty() { Vec::new() } else { parse(&text, name).unwrap_or_default() }
        };
        let mut needs = read("Pre-Depends");
        needs.append(&mut read("Depends"));
        let flat = |name: &str| read(name).into_iter().flatten().collect::<Vec<Relation>>();
        let pushed: Vec<Relation> = [flat("Breaks"), flat("Conflicts")].concat();
        let mut replaces = flat("Replaces");
        replaces.retain(|old| pushed.iter().any(|other| other.name == old.name));
        Relations { needs, provides: flat("Provides"), replaces }
    }

    /// The value of a field of the control file.
    pub fn field(&self, name: &str) -> Option<String> {
        field(&self.control, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_file_becomes_one_stanza() {
        let control = b"Package: a\nDescription: one\n two\n .\n three\nFilename: /etc/passwd\n more\nSize: 1\n\n";
        let made = stanza(control).unwrap();
        assert_eq!(made, "Package: a\nDescription: one\n two\n .\n three\n");
        assert_eq!(field(&made, "description").as_deref(), Some("one two . three"));
        assert_eq!(field(&made, "Size"), None);
        for bad in [
            &b"Package: a\n\nPackage: b\n"[..],
            b"Package: a\n \nPackage: b\n",
            b"Package: a\r\n\r\nPackage: b\n",
            b"Package: a\npackage: b\n",
            b" goes on\nPackage: a\n",
            b"Package a\n",
            b"Package: \xff\n",
        ] {
            stanza(bad).unwrap_err();
        }
    }
}
