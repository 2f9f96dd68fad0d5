//! What differs between two packages of one format, or two kpack archives.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{FileReport, Input, Magic, PackageReport, Script, read_deb, read_rpm};
use crate::error::{Error, Result};
use crate::kpack::reader::{Archive, Entry};
use crate::streams;

/// What differs, in the order of names.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// The first file.
    pub a: PathBuf,
    /// The second.
    pub b: PathBuf,
    /// `deb`, `rpm` or `kpack`.
    pub kind: &'static str,
    /// Whether nothing of what is compared differs. Two files can still have other bytes, by
    /// another level of compression.
    pub same: bool,
    /// Fields, compression among them.
    pub fields: Vec<Change>,
    /// Relations of packages.
    pub relations: Vec<ListChange>,
    /// Scripts and other control files of packages.
    pub scripts: Vec<Change>,
    /// Files of packages, entries of archives.
    pub files: Vec<FileChange>,
}

/// A value that differs; nothing where one side has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What it is called.
    pub name: String,
    /// In the first file.
    pub a: Option<String>,
    /// In the second.
    pub b: Option<String>,
}

/// A list that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListChange {
    /// What it is called.
    pub name: String,
    /// What only the first file has.
    pub removed: Vec<String>,
    /// What only the second has.
    pub added: Vec<String>,
}

/// A file that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// Its path; of an archive's entry, name and ISA.
    pub path: String,
    /// `added`, `removed` or `changed`.
    pub change: &'static str,
    /// What changed of it.
    pub what: Vec<Change>,
}

/// Compares two files of one kind.
pub fn diff(a: &Path, b: &Path) -> Result<Difference> {
    let (input_a, input_b) = (Input::open(a)?, Input::open(b)?);
    let (magic_a, magic_b) = (input_a.magic()?, input_b.magic()?);
    let mut difference = match (magic_a, magic_b) {
        (Magic::Ar, Magic::Ar) => packages("deb", &read_deb(&input_a)?, &read_deb(&input_b)?),
        (Magic::Rpm, Magic::Rpm) => packages("rpm", &read_rpm(&input_a)?, &read_rpm(&input_b)?),
        (Magic::Kpack, Magic::Kpack) => archives(&input_a, &input_b)?,
        _ => {
            let names = (name(magic_a), name(magic_b));
            return Err(Error::usage(format!(
                "{} is {} and {} is {}",
                a.display(),
                names.0,
                b.display(),
                names.1
            ))
            .hint("two .deb, two .rpm or two .kpack files can be compared")
            .into());
        }
    };
    difference.a = a.to_owned();
    difference.b = b.to_owned();
    Ok(difference)
}

fn name(magic: Magic) -> &'static str {
    match magic {
        Magic::Kpack => "a kpack archive",
        Magic::Bundle => "an offload bundle",
        Magic::Elf => "an ELF file",
        Magic::Ar => "a .deb or another ar archive",
        Magic::Rpm => "an .rpm package",
        Magic::Map | Magic::Other => "something else",
    }
}

impl Difference {
    fn new(
        kind: &'static str,
        fields: Vec<Change>,
        relations: Vec<ListChange>,
        scripts: Vec<Change>,
        files: Vec<FileChange>,
    ) -> Self {
        let same =
            fields.is_empty() && relations.is_empty() && scripts.is_empty() && files.is_empty();
        let (a, b) = (PathBuf::new(), PathBuf::new());
        Self { a, b, kind, same, fields, relations, scripts, files }
    }
}

/// The keys of both maps in order, with what each has.
fn both<'a, K: Ord, V>(
    a: &'a BTreeMap<K, V>,
    b: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, Option<&'a V>, Option<&'a V>)> {
    let keys: BTreeSet<&K> = a.keys().chain(b.keys()).collect();
    keys.into_iter().map(|key| (key, a.get(key), b.get(key)))
}

fn changes(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<Change> {
    both(a, b)
        .filter(|(_, a, b)| a != b)
        .map(|(name, a, b)| Change { name: name.clone(), a: a.cloned(), b: b.cloned() })
        .collect()
}

fn packages(kind: &'static str, a: &PackageReport, b: &PackageReport) -> Difference {
    let fields = |package: &PackageReport| {
        let mut fields: BTreeMap<String, String> = package.fields.iter().cloned().collect();
        // What the file's layout says is compared under names that no field has.
        for member in &package.members {
            let compression = member.compression.clone();
            // The member's name ends in what it is compressed by.
            let part = member.name.split(".tar").next().unwrap_or_default();
            fields.extend(compression.map(|how| (format!("compression of {part}"), how)));
        }
        fields
    };
    let relations = |package: &PackageReport| -> BTreeMap<String, Vec<String>> {
        package.relations.iter().cloned().collect()
    };
    let scripts = |package: &PackageReport| -> BTreeMap<String, String> {
        let all = package.scripts.iter().chain(&package.control_files);
        let text = |script: &Script| match &script.interpreter {
            Some(interpreter) if !script.text.starts_with("#!") => {
                format!("#!{interpreter}\n{}", script.text)
            }
            _ => script.text.clone(),
        };
        all.map(|script| (script.name.clone(), text(script))).collect()
    };
    let empty = Vec::new();
    let (relations_a, relations_b) = (relations(a), relations(b));
    let relation_changes = both(&relations_a, &relations_b).filter_map(|(name, a, b)| {
        let (a, b) = (a.unwrap_or(&empty), b.unwrap_or(&empty));
        let only = |these: &[String], others: &[String]| -> Vec<String> {
            let others: BTreeSet<&String> = others.iter().collect();
            these.iter().filter(|item| !others.contains(item)).cloned().collect()
        };
        let change = ListChange { name: name.clone(), removed: only(a, b), added: only(b, a) };
        (!change.removed.is_empty() || !change.added.is_empty()).then_some(change)
    });
    let relation_changes = relation_changes.collect();
    let files = |package: &PackageReport| -> BTreeMap<String, BTreeMap<String, String>> {
        package.files.iter().map(|file| (file.path.clone(), attributes(file))).collect()
    };
    Difference::new(
        kind,
        changes(&fields(a), &fields(b)),
        relation_changes,
        changes(&scripts(a), &scripts(b)),
        file_changes(&files(a), &files(b)),
    )
}

fn attributes(file: &FileReport) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::from([
        ("type".to_owned(), file.kind.to_owned()),
        ("mode".to_owned(), file.mode.clone()),
        ("owner".to_owned(), file.owner.clone()),
        ("mtime".to_owned(), file.mtime.to_string()),
    ]);
    // The sizes of directories in an .rpm are those of the build machine's file system.
    if file.kind == "file" {
        attributes.insert("size".into(), file.size.to_string());
    }
    let flags = (!file.flags.is_empty()).then(|| file.flags.join(","));
    let optional = [("link", file.link.clone()), ("digest", file.digest.clone()), ("flags", flags)];
    for (name, value) in optional {
        attributes.extend(value.map(|value| (name.to_owned(), value)));
    }
    attributes
}

fn file_changes(
    a: &BTreeMap<String, BTreeMap<String, String>>,
    b: &BTreeMap<String, BTreeMap<String, String>>,
) -> Vec<FileChange> {
    both(a, b)
        .filter(|(_, a, b)| a != b)
        .map(|(path, a, b)| {
            let (change, what) = match (a, b) {
                (Some(a), Some(b)) => ("changed", changes(a, b)),
                (None, _) => ("added", Vec::new()),
                (_, None) => ("removed", Vec::new()),
            };
            FileChange { path: path.clone(), change, what }
        })
        .collect()
}

fn archives(input_a: &Input, input_b: &Input) -> Result<Difference, Error> {
    let open = |input: &'_ Input| input.path.clone();
    let (path_a, path_b) = (open(input_a), open(input_b));
    let a = Archive::open(&input_a.file).map_err(|e| input_a.damaged("kpack archive", e))?;
    let b = Archive::open(&input_b.file).map_err(|e| input_b.damaged("kpack archive", e))?;
    let fields = |archive: &Archive<'_>| -> BTreeMap<String, String> {
        let isas: Vec<_> = archive.gfx_arches().iter().map(ToString::to_string).collect();
        let compression = if archive.is_compressed() { "zstd-per-kernel" } else { "none" };
        BTreeMap::from([
            ("group_name".to_owned(), archive.group_name().to_owned()),
            ("gfx_arch_family".to_owned(), archive.gfx_arch_family().to_owned()),
            ("gfx_arches".to_owned(), isas.join(" ")),
            ("compression".to_owned(), compression.to_owned()),
            ("unique code objects".to_owned(), archive.unique_count().to_string()),
        ])
    };
    let mut digests_a = Digests::new(&a, &path_a);
    let mut digests_b = Digests::new(&b, &path_b);
    let key = |entry: &Entry| format!("{} {}", entry.name(), entry.isa);
    let entries_a: BTreeMap<_, _> = a.entries().iter().map(|e| (key(e), e)).collect();
    let entries_b: BTreeMap<_, _> = b.entries().iter().map(|e| (key(e), e)).collect();
    let mut files = Vec::new();
    for (path, entry_a, entry_b) in both(&entries_a, &entries_b) {
        let (change, what) = match (entry_a, entry_b) {
            (Some(entry_a), Some(entry_b)) => {
                let (size_a, size_b) = (entry_a.original_size, entry_b.original_size);
                let (name, values) = if size_a == size_b {
                    ("content (BLAKE3)", (digests_a.of(entry_a)?, digests_b.of(entry_b)?))
                } else {
                    ("size", (size_a.to_string(), size_b.to_string()))
                };
                if values.0 == values.1 {
                    continue;
                }
                let (a, b) = (Some(values.0), Some(values.1));
                ("changed", vec![Change { name: name.into(), a, b }])
            }
            (None, _) => ("added", Vec::new()),
            (_, None) => ("removed", Vec::new()),
        };
        files.push(FileChange { path: path.clone(), change, what });
    }
    Ok(Difference::new("kpack", changes(&fields(&a), &fields(&b)), Vec::new(), Vec::new(), files))
}

/// Digests of an archive's code objects, each made once.
struct Digests<'a> {
    archive: &'a Archive<'a>,
    path: &'a Path,
    known: BTreeMap<u32, String>,
}

impl<'a> Digests<'a> {
    fn new(archive: &'a Archive<'a>, path: &'a Path) -> Self {
        Self { archive, path, known: BTreeMap::new() }
    }

    fn of(&mut self, entry: &Entry) -> Result<String, Error> {
        if let Some(known) = self.known.get(&entry.ordinal) {
            return Ok(known.clone());
        }
        let bad = |e: Box<dyn std::error::Error + Send + Sync>| {
            let message =
                format!("the code object of {} for {} is damaged", entry.name(), entry.isa);
            Error::failed(message).at(self.path).because(e)
        };
        let mut stream = self.archive.open_entry(entry).map_err(|e| bad(e.into()))?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 64 << 10];
        let read = streams::pieces(&mut stream, &mut buffer, |piece| {
            hasher.update(piece);
            Ok(())
        });
        read.map_err(|e| bad(e.into()))?;
        let digest = hasher.finalize().to_hex().to_string();
        self.known.insert(entry.ordinal, digest.clone());
        Ok(digest)
    }
}
