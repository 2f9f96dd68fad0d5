//! One package: what it says of itself, and what its files are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, Write};

use super::relations::{Relation, Wanted};
use super::{PackageFile, PackageOptions};
use crate::artifact::{ArtifactName, ArtifactTree, GENERIC, shared_family};
use crate::config::PackagingConfig;
use crate::database::Owner;
use crate::fatbin::bundle;
use crate::package::read::{FileReport, PackageReport, Visit, deb, rpm};
use crate::package::spec::{check_name, check_version};
use crate::package::{Format, is_library_name};
use crate::read_at::{OpenFile, ReadAt};
use crate::streams;
use crate::target::{Family, TargetId};
use crate::tree::{Entry, EntryKind, Source, TreePath};
use crate::verify::Options;
use crate::verify::file::{self, Facts, Task};
use crate::verify::finding::{Check, Finding, Findings, chain};
use crate::verify::subject::{Holds, Members};

/// Files up to this size are judged in memory.
const SMALL: u64 = 1 << 20;

/// What a file of a package is, for comparing the two formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileIdentity {
    /// Of a file its mode, size and digest, of a link where it leads.
    pub what: String,
}

/// A package that could be read.
pub(super) struct Pack {
    pub file: String,
    pub format: Format,
    pub name: String,
    /// With epoch and release where there are any.
    pub version: String,
    /// What needs what; by the kind of relation.
    pub wants: Vec<Wanted>,
    /// What it is known as: its own name and version, and what it provides.
    pub provides: Vec<Relation>,
    /// Its files below `/`; what they are called says which definition and group they are of.
    pub artifact: ArtifactTree,
    pub facts: Vec<(TreePath, Facts)>,
    /// Every file and link by its path.
    pub files: BTreeMap<String, FileIdentity>,
    /// It could be read to its end.
    pub is_whole: bool,
    /// The ISAs that the package says it is for.
    targets: Vec<TargetId>,
}

impl Pack {
    /// The definition that it is of: `rocblas` of `rocblas-gfx110X`.
    pub fn definition(&self) -> &str {
        &self.artifact.name.artifact
    }

    /// The group, of a package with device code.
    pub fn group(&self) -> Option<&str> {
        Some(self.artifact.name.target.as_str()).filter(|target| *target != GENERIC)
    }

    /// What it may hold.
    pub fn holds<'a>(&'a self, config: Option<&'a PackagingConfig>) -> Holds<'a> {
        holds(self.group(), &self.targets, config)
    }
}

fn holds<'a>(
    group: Option<&'a str>,
    targets: &[TargetId],
    config: Option<&'a PackagingConfig>,
) -> Holds<'a> {
    let Some(group) = group else { return Holds::Generic };
    if let Some(family) = shared_family(group) {
        return Holds::Shared { family, groups: None };
    }
    // Debian knows no capitals. A component with groups of its own cannot be told from a package.
    if let Some(config) = config.filter(|config| config.component_overrides.is_empty())
        && let Some(name) =
            config.architecture_groups.keys().find(|name| name.eq_ignore_ascii_case(group))
    {
        return Holds::Group(Members::Configured(config, String::new(), name));
    }
    if !targets.is_empty() {
        return Holds::Group(Members::Listed(targets.to_vec()));
    }
    let capital = group.strip_suffix('x').map(|stem| format!("{stem}X"));
    let family = Family::parse(group).or_else(|| Family::parse(&capital?));
    let isa = group.parse::<TargetId>().ok().filter(|isa| isa.known().is_some());
    Holds::Group(match (isa, family) {
        (Some(isa), _) => Members::Processor(isa.processor().to_owned()),
        (None, Some(family)) => Members::Family(family),
        (None, None) => Members::Unknown,
    })
}

/// Reads a package. What is wrong with it by itself becomes findings; there is no [`Pack`] where nothing
/// can be made of it.
pub(super) fn read(
    file: &PackageFile,
    packaging: &PackageOptions,
    options: &Options,
) -> (Option<Pack>, Vec<Finding>) {
    let mut looker = Looker {
        file,
        packaging,
        options,
        findings: Vec::new(),
        identity: None,
        hashes: BTreeMap::new(),
        facts: Vec::new(),
    };
    let opened = File::open(&file.path).map(|open| OpenFile::new(open, file.size));
    let report = match opened {
        Err(e) => Err(format!("cannot be read: {e}")),
        Ok(open) => match file.format {
            Format::Deb => deb::members(&open)
                .and_then(|members| deb::read(&open, members, &mut looker))
                .map_err(|e| format!("is a damaged .deb package: {}", chain(&e))),
            Format::Rpm => rpm::content(&open, &mut looker)
                .map_err(|e| format!("is a damaged .rpm package: {}", chain(&e))),
        },
    };
    let Looker { identity, hashes, facts, mut findings, .. } = looker;
    let mut add = |check, what: String, expected: &str| {
        findings.push(Finding::new(check, &file.name, "", what, expected));
    };
    let report = match report {
        Ok(report) => report,
        Err(what) => {
            add(Check::PackageDamaged, what, "a whole package");
            // What other packages say of it still counts, if it could be read so far.
            let pack = identity.map(|identity| Pack {
                facts,
                is_whole: false,
                ..pack(file, identity, &PackageReport::default(), &BTreeMap::new(), packaging)
            });
            return (pack, findings);
        }
    };
    for problem in &report.problems {
        add(Check::PackageDamaged, problem.clone(), "content as the package states it");
    }
    for path in report.unlisted.iter().take(20) {
        add(Check::PackageDamaged, format!("md5sums does not list {path}"), "a sum for each file");
    }
    let mut paths = BTreeSet::new();
    for file in report.files.iter().filter(|file| !paths.insert(file.path.as_str())).take(20) {
        add(Check::PackageDamaged, format!("has {} twice", file.path), "each path once");
    }
    let Some(identity) = identity else { return (None, findings) };
    control(file, &identity, &report, &facts, &mut add);
    let mut pack = pack(file, identity, &report, &hashes, packaging);
    pack.facts = facts;
    (Some(pack), findings)
}

/// Names, version, machine and sizes.
fn control(
    file: &PackageFile,
    identity: &Identity,
    report: &PackageReport,
    facts: &[(TreePath, Facts)],
    add: &mut impl FnMut(Check, String, &str),
) {
    let Identity { name, version, arch, .. } = identity;
    if let Err(e) = check_name(name, file.format) {
        add(Check::PackageControl, format!("{e}"), "a name that the format takes");
    }
    if file.format == Format::Deb && name.chars().any(|c| c.is_ascii_uppercase()) {
        add(Check::PackageControl, format!("is called `{name}`"), "a name in lower case");
    }
    let bare = version.split_once(':').map_or(version.as_str(), |(_, version)| version);
    let (upstream, release) = bare.rsplit_once('-').unwrap_or((bare, "1"));
    // Others' versions may hold a `-`; ours do not.
    for (field, text) in [("version", upstream), ("release", release)] {
        let text: String = text.chars().filter(|c| *c != '-').collect();
        if let Err(e) = check_version(field, &text, file.format) {
            add(Check::PackageControl, format!("{e}"), "a version that the format takes");
        }
    }
    let expected = match file.format {
        Format::Deb => format!("{name}_{bare}_{arch}.deb"),
        Format::Rpm => format!("{name}-{bare}.{arch}.rpm"),
    };
    if file.name != expected {
        add(Check::PackageControl, format!("says that it is `{expected}`"), "the file's name");
    }
    let known: &[&str] = match file.format {
        Format::Deb => &["amd64", "all"],
        Format::Rpm => &["x86_64", "noarch"],
    };
    let programs = facts.iter().find(|(_, facts)| matches!(facts, Facts::Program(_)));
    if !known.contains(&arch.as_str()) {
        let what = format!("is for `{arch}`");
        add(Check::PackageArchitecture, what, &format!("{} or {}", known[0], known[1]));
    } else if let (Some((path, _)), true) = (programs, known[1] == arch) {
        let what = format!("is for any machine ({arch}), but has x86-64 code in {path}");
        add(Check::PackageArchitecture, what, known[0]);
    }
    sizes(file.format, report, add);
}

/// What the package says that it takes on disk.
fn sizes(format: Format, report: &PackageReport, add: &mut impl FnMut(Check, String, &str)) {
    let field = |name: &str| {
        let value = report.fields.iter().find(|(field, _)| field == name);
        value.and_then(|(_, value)| value.parse::<u64>().ok())
    };
    match format {
        Format::Deb => {
            let size = |file: &FileReport| match file.kind {
                "file" => file.size.div_ceil(1024),
                "symlink" => file.link.as_ref().map_or(0, |to| (to.len() as u64).div_ceil(1024)),
                "hard link" => 0,
                _ => 1,
            };
            let actual = report.files.iter().map(size).fold(0, u64::saturating_add);
            match field("Installed-Size") {
                Some(stated) if stated == actual => {}
                Some(stated) => add(
                    Check::PackageSize,
                    format!("Installed-Size is {stated}"),
                    &format!("{actual}, the files' KiB, each rounded up"),
                ),
                None => add(
                    Check::PackageSize,
                    "has no Installed-Size".into(),
                    &format!("Installed-Size: {actual}"),
                ),
            }
        }
        Format::Rpm => {
            // Names of one file count once, and what is only claimed not at all.
            let counts = |file: &&FileReport| {
                matches!(file.kind, "file" | "symlink") && !file.flags.contains(&"ghost")
            };
            let sizes = report.files.iter().filter(counts).map(|file| file.size);
            let actual = sizes.fold(0, u64::saturating_add);
            if let Some(stated) = field("Size").filter(|stated| *stated != actual) {
                let expected = format!("{actual}, the sum of its files and links");
                add(Check::PackageSize, format!("SIZE is {stated}"), &expected);
            }
        }
    }
}

fn pack(
    file: &PackageFile,
    identity: Identity,
    report: &PackageReport,
    hashes: &BTreeMap<String, blake3::Hash>,
    packaging: &PackageOptions,
) -> Pack {
    let mut artifact = ArtifactTree::new(identity.role);
    artifact.prefixes = vec![packaging.install_prefix.clone()];
    artifact.origin.clone_from(&file.path);
    let mut files = BTreeMap::new();
    for entry in &report.files {
        let Ok(path) = TreePath::new(entry.path.trim_matches('/')) else { continue };
        let mode = u32::from_str_radix(&entry.mode, 8).unwrap_or_default();
        let link = entry.link.as_deref().unwrap_or_default();
        let kind = match entry.kind {
            "directory" => EntryKind::Dir,
            "file" => EntryKind::File(Source::bytes(Vec::new())),
            "symlink" => EntryKind::Symlink(link.as_bytes().to_vec()),
            "hard link" => match TreePath::new(link.trim_matches('/')) {
                Ok(first) => EntryKind::HardLink(first),
                Err(_) => continue,
            },
            _ => continue,
        };
        let what = match entry.kind {
            "symlink" => Some(format!("a link to {link}")),
            "file" | "hard link" => {
                let first = if entry.kind == "file" { &entry.path } else { link };
                let hash = hashes.get(first).map(ToString::to_string).unwrap_or_default();
                // Libraries are executable in an .rpm, and in a .deb are not.
                let mode = if is_library_name(&path) { mode & !0o111 } else { mode };
                Some(format!("a file of mode {mode:04o} with the digest {hash}"))
            }
            _ => None,
        };
        files.extend(what.map(|what| (entry.path.clone(), FileIdentity { what })));
        // That a path comes twice is a finding of its own.
        let _ = artifact.tree.insert(path, Entry { mode, mtime: None, kind });
    }
    Pack {
        file: file.name.clone(),
        format: file.format,
        name: identity.name,
        version: identity.version,
        wants: identity.wants,
        provides: identity.provides,
        artifact,
        facts: Vec::new(),
        files,
        is_whole: true,
        targets: identity.targets,
    }
}

/// What the control data say.
struct Identity {
    name: String,
    version: String,
    arch: String,
    wants: Vec<Wanted>,
    provides: Vec<Relation>,
    targets: Vec<TargetId>,
    /// The definition and what of it this is.
    role: ArtifactName,
}

impl Identity {
    fn of(format: Format, report: &PackageReport) -> Self {
        let field = |name: &str| {
            let value = report.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
            value.map(|(_, value)| value.clone())
        };
        let or_empty = |name: &str| field(name).unwrap_or_default();
        let (name, version) = match format {
            Format::Deb => (or_empty("Package"), or_empty("Version")),
            Format::Rpm => {
                let epoch = field("Epoch").filter(|epoch| epoch != "0");
                let epoch = epoch.map(|epoch| format!("{epoch}:")).unwrap_or_default();
                let version = format!("{epoch}{}-{}", or_empty("Version"), or_empty("Release"));
                (or_empty("Name"), version)
            }
        };
        let mut provides = vec![Relation::exactly(&name, &version)];
        let mut wants = Vec::new();
        for (kind, items) in &report.relations {
            match kind.as_str() {
                "Provides" => {
                    provides.extend(items.iter().filter_map(|item| Relation::parse(item)));
                }
                "Depends" | "Pre-Depends" | "Requires" | "Recommends" => {
                    wants.extend(items.iter().map(|item| Wanted::parse(kind, item)));
                }
                _ => {}
            }
        }
        let targets = field("X-ROCm-GPU-Architecture").unwrap_or_default();
        let targets = targets.split([' ', ',']).filter_map(|isa| isa.parse().ok()).collect();
        let role = role(&name, &provides);
        Self { name, version, arch: or_empty("Architecture"), wants, provides, targets, role }
    }
}

/// What a package is, told from its name and from what group packages provide: `rocblas-kernels`.
fn role(name: &str, provides: &[Relation]) -> ArtifactName {
    let group = provides.iter().find_map(|provided| {
        let definition = provided.name.strip_suffix("-kernels")?;
        let group = name.strip_prefix(definition)?.strip_prefix('-')?;
        Some((definition, group))
    });
    // What several groups share: `aotriton-gfx11xx-shared`.
    let shared = || {
        let parts = name.match_indices("-gfx").map(|(at, _)| (&name[..at], &name[at + 1..]));
        parts.into_iter().find(|(_, target)| shared_family(target).is_some())
    };
    let (definition, target) = group
        .or_else(shared)
        .unwrap_or_else(|| (name.strip_suffix("-generic").unwrap_or(name), GENERIC));
    let component = match definition.rsplit('-').next() {
        Some("dev" | "devel") => "dev",
        Some("dbg" | "dbgsym" | "debuginfo") => "dbg",
        _ => "lib",
    };
    ArtifactName {
        artifact: definition.to_owned(),
        component: component.to_owned(),
        target: target.to_owned(),
    }
}

/// Looks at a package's files as they come.
struct Looker<'a> {
    file: &'a PackageFile,
    packaging: &'a PackageOptions,
    options: &'a Options<'a>,
    findings: Vec<Finding>,
    identity: Option<Identity>,
    hashes: BTreeMap<String, blake3::Hash>,
    facts: Vec<(TreePath, Facts)>,
}

impl Visit for Looker<'_> {
    fn control(&mut self, report: &PackageReport) {
        self.identity = Some(Identity::of(self.file.format, report));
    }

    fn file(&mut self, path: &str, len: u64, content: &mut dyn Read) -> io::Result<()> {
        let mut hasher = blake3::Hasher::new();
        let mut head = Vec::new();
        content.take(SMALL).read_to_end(&mut head)?;
        hasher.update(&head);
        let tree_path = TreePath::new(path.trim_matches('/')).ok();
        let mut spool = None;
        if len > SMALL && tree_path.as_ref().is_some_and(|path| is_judged(path, &head)) {
            let mut file = tempfile::tempfile_in(&self.packaging.tmp_dir)?;
            file.write_all(&head)?;
            spool = Some(file);
        }
        let mut buffer = vec![0; 256 << 10];
        streams::pieces(content, &mut buffer, |piece| {
            hasher.update(piece);
            spool.as_mut().map_or(Ok(()), |file| file.write_all(piece))
        })?;
        self.hashes.insert(path.to_owned(), hasher.finalize());
        let Some(tree_path) = tree_path else { return Ok(()) };
        match spool {
            Some(mut file) => {
                let len = file.stream_position()?;
                self.look(&tree_path, &OpenFile::new(file, len));
            }
            None if len <= SMALL => self.look(&tree_path, &head),
            None => self.facts.push((tree_path, Facts::Other)),
        }
        Ok(())
    }
}

impl Looker<'_> {
    fn look(&mut self, path: &TreePath, r: &dyn ReadAt) {
        let Some(identity) = &self.identity else { return };
        let group = Some(identity.role.target.as_str()).filter(|target| *target != GENERIC);
        let holds = holds(group, &identity.targets, self.options.config);
        let below = path.strip_prefix(&self.packaging.install_prefix);
        let owner: Option<Owner> =
            below.and_then(|below| Some(self.options.databases.owner(&below)?.1));
        let name = path.to_string();
        let mut findings = Findings::new(&self.file.name, &name);
        let task = Task {
            path,
            holds: &holds,
            owner: owner.as_ref(),
            debug: identity.role.component == "dbg",
            hash: false,
            unchecked: None,
        };
        let facts = file::look_at(r, &task, &mut findings);
        self.findings.append(&mut findings.list);
        self.facts.extend(facts.map(|facts| (path.clone(), facts)));
    }
}

/// Whether a file has a structure that is checked.
fn is_judged(path: &TreePath, head: &[u8]) -> bool {
    let name = path.file_name();
    let endings: BTreeSet<&[u8]> = [&b".kpack"[..], b".kpm", b".co", b".hsaco"].into();
    endings.iter().any(|ending| name.ends_with(ending))
        || head.starts_with(b"KPAK")
        || head.starts_with(b"\x7fELF")
        || bundle::is_bundle(head)
}
