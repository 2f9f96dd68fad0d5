//! Looking into files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::{Content, Found, PathKind, PathReport, Root};
use crate::database::{Databases, Owner};
use crate::elf::{self, State};
use crate::error::{Error, Errors, Result};
use crate::fatbin::bundle::{Bundle, is_bundle};
use crate::fatbin::code_object::CodeObjectHeader;
use crate::fatbin::{FatBinary, read_bundles};
use crate::jobs::Jobs;
use crate::kpack::reader::Archive;
use crate::read_at::ReadAt;
use crate::tree::{EntryKind, InputFile, Source, TreePath};

const EM_AMDGPU: u16 = 224;

/// What the content of one file gives.
#[derive(Default)]
struct Seen {
    holder: &'static str,
    isas: BTreeMap<String, Content>,
    note: Option<&'static str>,
}

impl Seen {
    fn new(holder: &'static str) -> Self {
        Self { holder, ..Self::default() }
    }

    fn note(note: &'static str) -> Self {
        Self { note: Some(note), ..Self::default() }
    }

    fn code(&mut self, isa: String, bytes: u64) {
        let content = Content { code_objects: 1, code_bytes: bytes, ..Content::default() };
        self.isas.entry(isa).or_default().add(content);
    }

    fn bundle(&mut self, bundle: &Bundle) {
        for (target, entry) in bundle.device_entries().filter(|(_, entry)| entry.size > 0) {
            self.code(target.to_string(), entry.size);
        }
    }
}

/// Looks into a single file.
pub(super) fn file(path: &Path) -> Result<PathReport> {
    let cannot = |e| Error::io("cannot read", path, e);
    let real = path.canonicalize().map_err(cannot)?;
    let input = InputFile::new(real.clone(), &real.symlink_metadata().map_err(cannot)?);
    let seen = content(&input)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut report = PathReport {
        path: path.to_owned(),
        kind: PathKind::File,
        shards: Vec::new(),
        artifacts: 0,
        files: 1,
        isas: seen.isas.clone(),
        found: Vec::new(),
        notes: seen.note.map(|note| format!("{name} {note}")).into_iter().collect(),
        passed_over: Vec::new(),
        generic: BTreeMap::new(),
    };
    report.found = found(&seen, None, None, &name).collect();
    Ok(report)
}

fn found<'a>(
    seen: &'a Seen,
    shard: Option<&'a String>,
    artifact: Option<&'a String>,
    file: &'a str,
) -> impl Iterator<Item = Found> + 'a {
    seen.isas.iter().map(move |(isa, content)| Found {
        isa: isa.clone(),
        shard: shard.cloned(),
        artifact: artifact.cloned(),
        file: file.to_owned(),
        holder: seen.holder.to_owned(),
        content: *content,
    })
}

/// Looks through trees.
pub(super) fn roots(
    path: &Path,
    kind: PathKind,
    shards: Vec<String>,
    roots: &[Root],
    databases: &Databases,
    jobs: &Jobs,
) -> Result<PathReport> {
    let mut report = PathReport {
        path: path.to_owned(),
        kind,
        shards,
        artifacts: roots.iter().filter(|root| root.artifact.is_some()).count(),
        files: 0,
        isas: BTreeMap::new(),
        found: Vec::new(),
        notes: Vec::new(),
        passed_over: Vec::new(),
        generic: BTreeMap::new(),
    };
    // Files whose content says what they are, with the places of their roots.
    let mut items: Vec<(usize, &TreePath, &Arc<InputFile>)> = Vec::new();
    let mut database: BTreeMap<(usize, String, String, String), Content> = BTreeMap::new();
    for (i, root) in roots.iter().enumerate() {
        let mut generic = BTreeSet::new();
        let mut split = false;
        for (path, entry) in root.tree.tree.iter().filter(|(_, entry)| !entry.is_dir()) {
            report.files += 1;
            if let Some((name, owner)) = owner(root, path, databases) {
                let folder = path.parent().map_or_else(|| ".".to_owned(), |dir| dir.to_string());
                let content = Content {
                    database_files: 1,
                    database_bytes: entry.source().and_then(Source::len).unwrap_or(0),
                    ..Content::default()
                };
                let key = (i, folder, format!("database {name}"), owner.target());
                database.entry(key).or_default().add(content);
                continue;
            }
            if let EntryKind::File(Source::File(input)) = &entry.kind {
                items.push((i, path, input));
            }
            let name = path.file_name();
            split |= name.ends_with(b".kpack");
            if !name.ends_with(b".kpack") && !name.ends_with(b".kpm") {
                generic.insert(path.clone());
            }
        }
        // Each artifact has a generic part, but those that splitting made for an ISA.
        if root.artifact.is_some() && !split {
            let shard = root.shard.as_ref().or(report.shards.first()).cloned().unwrap_or_default();
            let of_prefix = report.generic.entry(root.tree.name.prefix()).or_default();
            of_prefix.entry(shard).or_default().extend(generic);
        }
    }
    let mut faults = Vec::new();
    let results = jobs.drive(&items, |(_, _, input)| content(input));
    for ((i, path, _), result) in items.iter().zip(results) {
        let root = &roots[*i];
        match result {
            Err(fault) => faults.push(fault),
            Ok(seen) => {
                let file = path.to_string();
                if let Some(note) = seen.note {
                    let of = root.artifact.as_ref().map(|name| format!("{name}/"));
                    report.notes.push(format!("{}{file} {note}", of.unwrap_or_default()));
                }
                let places = found(&seen, root.shard.as_ref(), root.artifact.as_ref(), &file);
                report.found.extend(places);
            }
        }
    }
    for ((i, file, holder, isa), content) in database {
        let Root { shard, artifact, .. } = &roots[i];
        let (shard, artifact) = (shard.clone(), artifact.clone());
        report.found.push(Found { isa, shard, artifact, file, holder, content });
    }
    for place in &report.found {
        report.isas.entry(place.isa.clone()).or_default().add(place.content);
    }
    Errors::check(report, faults)
}

/// Whose database file this is. A link goes with the file that it leads to.
fn owner<'a>(root: &Root, path: &TreePath, databases: &'a Databases) -> Option<(&'a str, Owner)> {
    if root.artifact.is_some() {
        return databases.owner_in(&root.tree, path);
    }
    // In an installed tree nothing says where the prefix ends.
    let end = root.tree.follow(path).unwrap_or_else(|| path.clone());
    let parts: Vec<_> = end.components().collect();
    (0..parts.len())
        .find_map(|from| databases.owner(&TreePath::new(parts[from..].join(&b'/')).ok()?))
}

/// Looks into one file.
fn content(input: &InputFile) -> Result<Seen, Error> {
    let file = input.open().map_err(|e| Error::io("cannot read", input.path(), e))?;
    let mut magic = [0; 24];
    let known = usize::try_from(input.len()).map_or(24, |len| len.min(24));
    file.read_exact_at(&mut magic[..known], 0)
        .map_err(|e| Error::io("cannot read", input.path(), e))?;
    let damaged = |what: &str, e: Box<dyn std::error::Error + Send + Sync>| {
        Error::failed(format!("is a damaged {what}"))
            .at(input.path())
            .because(e)
            .hint("it may have been cut off or changed: build or copy it again")
    };
    if magic.starts_with(b"KPAK") {
        let archive = Archive::open(&file).map_err(|e| damaged("kpack archive", e.into()))?;
        return Ok(kpack(&archive));
    }
    if is_bundle(&magic) {
        let bundles = read_bundles(&file).map_err(|e| damaged("offload bundle", e.into()))?;
        let mut seen = Seen::new("bundle");
        bundles.iter().for_each(|bundle| seen.bundle(bundle));
        return Ok(seen);
    }
    let compressed: [&[u8]; 3] = [b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"\x1f\x8b"];
    let name = input.path().file_name().unwrap_or_default().to_string_lossy();
    if name.contains(".tar.") && compressed.iter().any(|begin| magic.starts_with(begin)) {
        return Ok(Seen::note("is an archive: unpack it to look into it"));
    }
    if magic.starts_with(b"!<arch>\n") && name.ends_with(".deb") {
        return Ok(Seen::note("is a package: `gfxpack inspect` shows it"));
    }
    if magic.starts_with(b"!<arch>\n") {
        return Ok(Seen::note("is a static archive: device code in it is not looked for"));
    }
    match elf::probe(&file).map_err(|e| damaged("ELF file", e.into()))? {
        elf::Kind::Other { class: 2, data: 1, machine: EM_AMDGPU, .. } => {
            let header =
                CodeObjectHeader::read(&file).map_err(|e| damaged("code object", e.into()))?;
            let Some(target) = header.target else {
                return Ok(Seen::note("is a code object for a processor that is not known"));
            };
            let mut seen = Seen::new("code object");
            seen.code(target.to_string(), input.len());
            Ok(seen)
        }
        elf::Kind::NotElf | elf::Kind::Other { .. } => Ok(Seen::default()),
        elf::Kind::Relocatable { fat: true } => {
            Ok(Seen::note("is an object file: device code in it is not looked for"))
        }
        elf::Kind::Relocatable { fat: false } => Ok(Seen::default()),
        elf::Kind::Program(image) => match image.state() {
            State::NoSections => {
                Ok(Seen::note("has no section headers, so device code in it cannot be found"))
            }
            State::Plain | State::Converted => Ok(Seen::default()),
            State::Fat => {
                let fat = FatBinary::read_with(&file, image, input.bundles())
                    .map_err(|e| damaged("fat binary", e.into()))?;
                let mut seen = Seen::new("fat binary");
                fat.bundles().values().for_each(|bundle| seen.bundle(bundle));
                if fat.bundles().is_empty() {
                    seen.note = Some("has a .hip_fatbin that no wrapper points into");
                }
                Ok(seen)
            }
        },
    }
}

fn kpack(archive: &Archive<'_>) -> Seen {
    let mut seen = Seen::new("kpack");
    let mut counted = BTreeSet::new();
    for entry in archive.entries() {
        if counted.insert((&entry.isa, entry.ordinal)) {
            seen.code(entry.isa.to_string(), entry.original_size);
        }
    }
    seen
}
