//! The texts of a package, from handlebars templates.
//!
//! The built-in templates are the files under `templates/`; the user can replace each of them. Nothing is
//! escaped, and a variable that does not exist is an error. What comes out is checked: a control file
//! that dpkg would refuse, or one that names another package, goes nowhere.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::{Compression as GzLevel, GzBuilder};
use handlebars::{Handlebars, RenderErrorReason, no_escape};
use serde::Serialize;

use super::scripts::Alternative;
use super::spec::{DEB_RELATIONS, Package, RPM_RELATIONS, Relation, RelationKind};
use super::{Format, lint};
use crate::date;
use crate::error::{Error, Errors, Result};
use crate::tree::{EntryKind, TreePath};

macro_rules! built_in {
    ($($path:literal),* $(,)?) => {
        [$(($path, include_str!(concat!("../../templates/", $path)))),*]
    };
}

const BUILT_IN: [(&str, &str); 8] = built_in![
    "deb/control.hbs",
    "deb/copyright.hbs",
    "deb/changelog.hbs",
    "deb/preinst.hbs",
    "deb/postinst.hbs",
    "deb/prerm.hbs",
    "deb/postrm.hbs",
    "rpm/preamble.hbs",
];

/// Licences whose text is not written out where the configuration gives none. Debian has the others in
/// full on every system.
const MIT: &str = include_str!("../../templates/licenses/MIT.txt");
const COMMON_LICENSES: [(&str, &str); 5] = [
    ("Apache-2.0", "Apache-2.0"),
    ("GPL-2.0-only", "GPL-2"),
    ("GPL-3.0-only", "GPL-3"),
    ("LGPL-3.0-only", "LGPL-3"),
    ("MPL-2.0", "MPL-2.0"),
];

/// The templates: those that are built in, and those that the user put in their place.
#[derive(Debug, Clone)]
pub struct Templates {
    texts: BTreeMap<&'static str, (String, Option<Box<Path>>)>,
}

impl Templates {
    /// The built-in templates.
    pub fn built_in() -> Self {
        Self { texts: BUILT_IN.map(|(path, text)| (path, (text.to_owned(), None))).into() }
    }

    /// The built-in templates, each replaced by the file of the same path below `dir` (such as
    /// `deb/control.hbs`) where there is one. A `.hbs` file below `dir` that is no template's is refused.
    pub fn with_overrides(dir: &Path) -> Result<Self> {
        let mut templates = Self::built_in();
        let mut faults = Vec::new();
        let mut files = Vec::new();
        list(dir, dir, &mut files)?;
        for path in files {
            let file = dir.join(&path);
            match templates.texts.get_mut(path.as_str()) {
                Some(template) => {
                    let text = fs::read_to_string(&file);
                    let text = text.map_err(|e| Error::io("cannot read the template", &file, e))?;
                    if let Err(e) = handlebars::Template::compile(&text) {
                        // All of it is several lines, with a drawing.
                        let why = match e.pos() {
                            Some((line, column)) => {
                                format!("line {line}, column {column}: {}", e.reason())
                            }
                            None => e.reason().to_string(),
                        };
                        faults
                            .push(Error::usage("is no handlebars template").at(&file).because(why));
                    }
                    *template = (text, Some(file.into()));
                }
                None => {
                    let known = BUILT_IN.map(|(path, _)| path).join("`, `");
                    let error = Error::usage("is no template of gfxpack").at(file);
                    faults.push(error.hint(format!("the templates are `{known}`")));
                }
            }
        }
        Errors::check(templates, faults)
    }

    /// Path and text of those that are not the built-in ones.
    pub fn replaced(&self) -> BTreeMap<String, String> {
        let own = self.texts.iter().filter(|(_, (_, file))| file.is_some());
        own.map(|(path, (text, _))| ((*path).to_owned(), text.clone())).collect()
    }

    /// The built-in templates, with these in the place of some ([`Self::replaced`]). One of another name is
    /// no template of gfxpack, and left out.
    pub fn with_texts(texts: BTreeMap<String, String>) -> Self {
        let mut templates = Self::built_in();
        for (path, text) in texts {
            if let Some(template) = templates.texts.get_mut(path.as_str()) {
                *template = (text, Some(Path::new(&path).into()));
            }
        }
        templates
    }

    /// Path and text of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, (text, _))| (*path, text.as_str()))
    }

    fn render(&self, path: &'static str, package: &Package, values: &Values) -> Result<String> {
        let (text, file) = &self.texts[path];
        let mut engine = Handlebars::new();
        engine.set_strict_mode(true);
        engine.register_escape_fn(no_escape);
        engine.render_template(text, values).map_err(|e| {
            let place = e.line_no.map_or(String::new(), |line| format!(" line {line}"));
            let what = match e.reason() {
                RenderErrorReason::MissingVariable(Some(name)) => {
                    format!("there is no variable `{name}`")
                }
                other => other.to_string(),
            };
            let message = format!("template `{path}`{place}, package `{}`: {what}", package.name);
            let error = Error::usage(message).hint(values.hint());
            let error = match file {
                Some(file) => error.at(file),
                None => error,
            };
            error.into()
        })
    }

    fn fault(&self, path: &'static str, package: &Package, what: &str) -> Error {
        let error = Error::usage(format!("template `{path}`, package `{}`: {what}", package.name));
        match &self.texts[path].1 {
            Some(file) => error.at(file),
            None => error,
        }
    }
}

impl Default for Templates {
    fn default() -> Self {
        Self::built_in()
    }
}

/// The `.hbs` files below `dir`, as paths with slashes, sorted.
fn list(root: &Path, dir: &Path, files: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let mut entries = entries.map_err(|e| Error::io("cannot list the templates in", dir, e))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            list(root, &path, files)?;
        } else if path.extension().is_some_and(|ext| ext == "hbs") {
            let below = path.strip_prefix(root).expect("it was listed below the root");
            files.push(below.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// What templates can name.
#[derive(Serialize)]
struct Values {
    package: String,
    name: String,
    kind: &'static str,
    group: String,
    version: String,
    upstream_version: String,
    release: String,
    architecture: &'static str,
    maintainer: String,
    copyright_holder: String,
    vendor: String,
    homepage: String,
    license: String,
    license_text: Vec<String>,
    section: String,
    summary: String,
    description: Vec<String>,
    relations: Vec<Field>,
    gpu_targets: String,
    installed_size: u64,
    prefix: String,
    ldconfig: bool,
    build_ids: String,
    alternatives: Vec<Alternative>,
    date: String,
    year: i64,
    changes: Vec<String>,
}

#[derive(Serialize)]
struct Field {
    field: &'static str,
    value: String,
}

impl Values {
    fn new(package: &Package, format: Format, installed_size: u64) -> Self {
        let deb = format == Format::Deb;
        let dots = |lines: Vec<String>| match format {
            // A blank line would end the control file.
            Format::Deb => lines
                .into_iter()
                .map(|line| if line.is_empty() { ".".to_owned() } else { line })
                .collect(),
            Format::Rpm => lines,
        };
        let description = match package.description.trim() {
            "" => package.summary.as_str(),
            description => description,
        };
        let vendor = package.vendor.trim();
        let person = package.maintainer.split('<').next().unwrap_or_default().trim();
        let changes = package.changes.iter().map(|line| line.trim().to_owned());
        let changes: Vec<String> = changes.filter(|line| !line.is_empty()).collect();
        Self {
            package: if deb { package.deb_name() } else { package.rpm_name().to_owned() },
            name: if deb { package.name.to_string() } else { package.rpm_name().to_owned() },
            kind: package.kind.as_str(),
            group: match &package.kind {
                super::spec::Kind::Group { group: target }
                | super::spec::Kind::Shared { target } => target.clone(),
                _ => String::new(),
            },
            version: package.full_version(),
            upstream_version: package.version.clone(),
            release: package.release.clone(),
            architecture: if deb { package.arch.deb() } else { package.arch.rpm() },
            maintainer: package.maintainer.clone(),
            copyright_holder: if vendor.is_empty() { person } else { vendor }.to_owned(),
            vendor: package.vendor.clone(),
            homepage: package.homepage.clone(),
            license: package.license.clone(),
            license_text: dots(license_text(package).lines().map(str::to_owned).collect()),
            section: package.section.clone(),
            summary: package.summary.clone(),
            description: dots(wrap(description)),
            relations: if deb { deb_relations(package) } else { rpm_relations(package) },
            gpu_targets: package.gpu_targets.join(" "),
            installed_size,
            prefix: package.relocatable.as_ref().map_or(String::new(), |path| format!("/{path}")),
            ldconfig: package.tree.iter().any(|(path, entry)| {
                matches!(entry.kind, EntryKind::File(_) | EntryKind::HardLink(_))
                    && super::files::renews_cache(package, path)
            }),
            build_ids: package.build_ids.join(" "),
            alternatives: package.alternatives.clone(),
            date: if deb { date::rfc2822(package.date) } else { date::spec(package.date) },
            year: date::year(package.date),
            changes: if changes.is_empty() {
                vec![format!("Version {}.", package.version)]
            } else {
                changes
            },
        }
    }

    fn hint(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        let names = value.as_object().into_iter().flatten().map(|(name, _)| format!("`{name}`"));
        format!("the variables are {}", names.collect::<Vec<_>>().join(", "))
    }
}

/// The licence's text: the package's own, or what is built in; without final blank lines.
pub(super) fn license_text(package: &Package) -> String {
    if let Some(text) = &package.license_text {
        return text.trim_end().to_owned();
    }
    if package.license == "MIT" {
        return MIT.trim_end().to_owned();
    }
    let common = COMMON_LICENSES.iter().find(|(id, _)| *id == package.license);
    common.map_or(String::new(), |(_, file)| {
        format!("On Debian systems, the text is in /usr/share/common-licenses/{file}.")
    })
}

/// Paragraphs as lines of at most 78 characters; lines that begin with a blank are left as they are.
fn wrap(text: &str) -> Vec<String> {
    const WIDTH: usize = 78;
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.trim_end().lines() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with(char::is_whitespace) {
            lines.push(line.to_owned());
            open = false;
            continue;
        }
        for word in line.split_whitespace() {
            match lines.last_mut() {
                Some(last) if open && last.chars().count() + 1 + word.chars().count() <= WIDTH => {
                    last.push(' ');
                    last.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
            open = true;
        }
    }
    lines
}

fn raw<'a>(more: &'a BTreeMap<String, Vec<String>>, field: &str) -> impl Iterator<Item = &'a str> {
    let values = more.iter().find(|(key, _)| key.eq_ignore_ascii_case(field));
    values.into_iter().flat_map(|(_, values)| values).map(|value| value.trim())
}

fn add(values: &mut Vec<String>, value: String) {
    if !values.contains(&value) {
        values.push(value);
    }
}

fn deb_relations(package: &Package) -> Vec<Field> {
    let mut fields = Vec::new();
    for field in DEB_RELATIONS {
        let mut values = Vec::new();
        if field == "Provides" && package.deb_name() != package.name.as_str() {
            add(&mut values, format!("{} (= {})", package.name, package.full_version()));
        }
        for (_, relations) in
            package.relations.iter().filter(|(kind, _)| kind.deb_field() == Some(field))
        {
            relations.iter().for_each(|relation| add(&mut values, relation.deb()));
        }
        raw(&package.deb, field).for_each(|value| add(&mut values, value.to_owned()));
        if !values.is_empty() {
            fields.push(Field { field, value: values.join(", ") });
        }
    }
    fields
}

fn rpm_relations(package: &Package) -> Vec<Field> {
    let mut fields = Vec::new();
    for field in RPM_RELATIONS {
        let of_kind = |kind: &RelationKind| kind.rpm_tag() == field;
        let relations = package.relations.iter().filter(|(kind, _)| of_kind(kind));
        let relations = relations.flat_map(|(_, relations)| relations).map(Relation::rpm);
        let mut values = Vec::new();
        relations.for_each(|relation| add(&mut values, relation));
        raw(&package.rpm, field).for_each(|value| add(&mut values, value.to_owned()));
        fields.extend(values.into_iter().map(|value| Field { field, value }));
    }
    fields
}

/// The texts in a `.deb`'s control member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebTexts {
    /// The control file.
    pub control: String,
    /// The maintainer scripts that have something to do, by name.
    pub scripts: Vec<(&'static str, String)>,
}

/// Renders the control file and the maintainer scripts. `installed_size` is in KiB.
pub fn deb_texts(
    package: &Package,
    templates: &Templates,
    installed_size: u64,
) -> Result<DebTexts> {
    let values = Values::new(package, Format::Deb, installed_size);
    let control = templates.render("deb/control.hbs", package, &values)?;
    let expected = [
        ("Package", values.package.as_str()),
        ("Version", values.version.as_str()),
        ("Architecture", values.architecture),
    ];
    check_control(&control, &expected)
        .map_err(|what| templates.fault("deb/control.hbs", package, &what))?;
    let mut scripts = Vec::new();
    for (name, path) in [
        ("preinst", "deb/preinst.hbs"),
        ("postinst", "deb/postinst.hbs"),
        ("prerm", "deb/prerm.hbs"),
        ("postrm", "deb/postrm.hbs"),
    ] {
        let script = templates.render(path, package, &values)?;
        let script = script.trim_start();
        if script.is_empty() {
            continue;
        }
        if !script.starts_with("#!") {
            let what = "the script does not begin with `#!`, so dpkg could not run it";
            return Err(templates.fault(path, package, what).into());
        }
        scripts.push((name, script.to_owned()));
    }
    Ok(DebTexts { control, scripts })
}

/// Checks that a control file is one stanza, has what dpkg needs, and names the package that it was
/// rendered for.
fn check_control(control: &str, expected: &[(&str, &str)]) -> Result<(), String> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for (i, line) in control.lines().enumerate() {
        let n = i + 1;
        if line.trim().is_empty() {
            return Err(format!("line {n} of the control file is blank, which would end it"));
        }
        if let Some(more) = line.strip_prefix([' ', '\t']) {
            let (_, value) = fields.last_mut().ok_or("line 1 continues no field")?;
            value.push('\n');
            value.push_str(more);
            continue;
        }
        let (name, value) = line
            .split_once(':')
            .filter(|(name, _)| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic()))
            .ok_or_else(|| {
                format!("line {n} of the control file is no `Field: value`: `{line}`")
            })?;
        if fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Err(format!("line {n} of the control file gives `{name}` again"));
        }
        fields.push((name, value.trim().to_owned()));
    }
    if let Some((name, _)) = fields.iter().find(|(_, value)| value.trim().is_empty()) {
        return Err(format!("field `{name}` of the control file is empty"));
    }
    let get = |name: &str| fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    for name in ["Package", "Version", "Architecture", "Maintainer", "Description"] {
        get(name).ok_or_else(|| format!("the control file has no field `{name}`"))?;
    }
    for (name, expected) in expected {
        let found = get(name).map_or("", |(_, value)| value);
        if found != *expected {
            return Err(format!("field `{name}` is `{found}`, expected `{expected}`"));
        }
    }
    if control.ends_with('\n') {
        Ok(())
    } else {
        Err("the control file does not end with a line break".to_owned())
    }
}

/// Renders the copyright file and the changelog of a `.deb`, and lintian's overrides where there are some;
/// returns path and bytes of each.
pub fn deb_docs(package: &Package, templates: &Templates) -> Result<Vec<(TreePath, Vec<u8>)>> {
    let values = Values::new(package, Format::Deb, 0);
    let copyright = templates.render("deb/copyright.hbs", package, &values)?;
    let changelog = templates.render("deb/changelog.hbs", package, &values)?;
    let dir = format!("usr/share/doc/{}", values.package);
    let path = |name: &str| {
        TreePath::new(format!("{dir}/{name}")).expect("a checked package name makes a clean path")
    };
    let mut docs = vec![
        (path("changelog.Debian.gz"), gzip(changelog.as_bytes())),
        (path("copyright"), copyright.into_bytes()),
    ];
    docs.extend(lint::lintian(package)?.map(|(path, text)| (path, text.into_bytes())));
    Ok(docs)
}

/// The paths that a package gets beside its own, in either format: no tree can have them.
pub fn made_paths(package: &Package) -> Vec<TreePath> {
    let dir = format!("usr/share/doc/{}", package.deb_name());
    let docs = ["changelog.Debian.gz", "copyright"].map(|name| format!("{dir}/{name}"));
    let docs = docs.into_iter().filter_map(|path| TreePath::new(path).ok());
    // Whether there will be overrides is known when files have been read; the place is theirs.
    let overrides = lint::lintian_path(package);
    docs.chain([overrides]).chain(rpm_license(package).map(|(path, _)| path)).collect()
}

/// Whether a path is one of [`made_paths`] of some package.
pub(crate) fn is_made(path: &TreePath) -> bool {
    let parts: Vec<&[u8]> = path.as_bytes().split(|&b| b == b'/').collect();
    let Some(parts) = parts.strip_prefix(&[&b"usr"[..], b"share"]) else { return false };
    match parts {
        [b"doc", _, file] => [&b"changelog.Debian.gz"[..], b"copyright"].contains(file),
        [b"lintian", b"overrides", _] | [b"licenses", _, b"LICENSE"] => true,
        _ => false,
    }
}

/// As `gzip -9n`: no name and no time, so the same text gives the same bytes.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    // 3 is Unix; the default says which system flate2 was built on.
    let mut gz = GzBuilder::new().mtime(0).operating_system(3).write(Vec::new(), GzLevel::best());
    gz.write_all(bytes).and_then(|()| gz.finish()).expect("memory takes all")
}

/// The file name and text of an `.rpm`'s licence, where there is a text.
pub fn rpm_license(package: &Package) -> Option<(TreePath, String)> {
    let text = license_text(package);
    if text.is_empty() || text.contains("/usr/share/common-licenses/") {
        return None;
    }
    let path = TreePath::new(format!("usr/share/licenses/{}/LICENSE", package.rpm_name()));
    Some((path.expect("a checked package name makes a clean path"), text + "\n"))
}

/// Renders an `.rpm`'s preamble. `installed_size` is in bytes.
pub fn rpm_preamble(
    package: &Package,
    templates: &Templates,
    installed_size: u64,
) -> Result<String> {
    let values = Values::new(package, Format::Rpm, installed_size);
    templates.render("rpm/preamble.hbs", package, &values)
}

/// A fault in what came out of the preamble's template.
pub(super) fn preamble_fault(package: &Package, templates: &Templates, what: &str) -> Error {
    templates.fault("rpm/preamble.hbs", package, what)
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        hex.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::super::spec::Kind;
    use super::*;

    fn package() -> Package {
        let mut package = Package::new(
            "rocblas-gfx110X",
            Kind::Group { group: "gfx110X".to_owned() },
            "7.1.0",
            "1",
        );
        package.maintainer = "Ex & Co <a@example.org>".to_owned();
        package.description = "First paragraph.\n\nSecond one.".to_owned();
        package.relate(RelationKind::Depends, Relation::exactly("rocblas-generic", "7.1.0-1"));
        package.deb.insert("depends".to_owned(), vec!["libc6".to_owned()]);
        package.rpm.insert("requires".to_owned(), vec!["glibc".to_owned()]);
        package.gpu_targets = vec!["gfx1100".to_owned(), "gfx1101".to_owned()];
        package.date = 1_767_614_400;
        package
    }

    fn with(path: &'static str, text: &str) -> Templates {
        let mut templates = Templates::built_in();
        templates.texts.insert(path, (text.to_owned(), None));
        templates
    }

    #[test]
    fn the_control_file() {
        let texts = deb_texts(&package(), &Templates::built_in(), 12).unwrap();
        assert_eq!(
            texts.control,
            "Package: rocblas-gfx110x\nVersion: 7.1.0-1\nArchitecture: amd64\n\
             Maintainer: Ex & Co <a@example.org>\nInstalled-Size: 12\n\
             Depends: rocblas-generic (= 7.1.0-1), libc6\n\
             Provides: rocblas-gfx110X (= 7.1.0-1)\nSection: libs\nPriority: optional\n\
             X-ROCm-GPU-Architecture: gfx1100 gfx1101\nDescription: rocblas-gfx110X\n\
             \x20First paragraph.\n .\n Second one.\n"
        );
        assert_eq!(texts.scripts, []);
    }

    #[test]
    fn the_preamble() {
        let preamble = rpm_preamble(&package(), &Templates::built_in(), 12).unwrap();
        assert_eq!(
            preamble,
            "Name: rocblas-gfx110X\nVersion: 7.1.0\nRelease: 1\nSummary: rocblas-gfx110X\n\
             License: MIT\nGroup: System/Libraries\nBuildArch: x86_64\nPackager: Ex & Co <a@example.org>\n\
             Requires: rocblas-generic = 7.1.0-1\nRequires: glibc\n\n\
             %description\nFirst paragraph.\n\nSecond one.\n\n\
             %changelog\n* Mon Jan 05 2026 Ex & Co <a@example.org> - 7.1.0-1\n- Version 7.1.0.\n"
        );
    }

    #[test]
    fn faults_of_templates_name_template_and_variable() {
        let error = |templates: &Templates| {
            deb_texts(&package(), templates, 1).unwrap_err().iter().next().unwrap().to_string()
        };
        let unknown = error(&with("deb/control.hbs", "Package: {{package}}\nX: {{pakage}}\n"));
        assert_eq!(
            unknown,
            "template `deb/control.hbs` line 2, package `rocblas-gfx110X`: there is no variable \
             `pakage`"
        );
        for (text, what) in [
            ("Package: x\n\nVersion: 1\n", "line 2 of the control file is blank"),
            ("Package: x\nfoo\n", "line 2 of the control file is no `Field: value`"),
            ("Package: x\nPackage: y\n", "gives `Package` again"),
            ("Package: x\nHomepage:\n", "`Homepage` of the control file is empty"),
            ("Package: {{package}}\n", "no field `Version`"),
        ] {
            let error = error(&with("deb/control.hbs", text));
            assert!(error.contains(what), "{error}");
        }
        let script = error(&with("deb/postinst.hbs", "echo {{name}}\n"));
        assert!(script.contains("does not begin with `#!`"), "{script}");
    }

    #[test]
    fn text_is_wrapped_and_lists_are_kept() {
        let text = format!("{}\n* no\n  * a list\n\nend", "word ".repeat(20));
        let lines = wrap(&text);
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert!(lines.iter().all(|line| line.len() <= 78));
        assert_eq!(lines[2..], ["  * a list", "", "end"]);
    }

    #[test]
    fn the_docs_of_a_deb() {
        let docs = deb_docs(&package(), &Templates::built_in()).unwrap();
        assert_eq!(docs[0].0.to_string(), "usr/share/doc/rocblas-gfx110x/changelog.Debian.gz");
        assert_eq!(docs[0].1[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3]);
        let copyright = String::from_utf8(docs[1].1.clone()).unwrap();
        assert!(copyright.contains("Copyright: 2026 Ex & Co\nLicense: MIT\n Permission is"));
        assert!(copyright.contains("\n .\n The above copyright notice"));
    }
}
