//! Deciding where each file of an artifact goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::kernels::Kernels;
use super::{ConvertedBinary, Options, Report, code_file};
use crate::artifact::{ArtifactTree, GENERIC};
use crate::database::Owner;
use crate::elf::ar::{self, DeviceCode};
use crate::elf::{self, State};
use crate::error::{Error, Errors, Result};
use crate::fatbin::FatBinary;
use crate::tree::{Entry, EntryKind, InputFile, Source, TreePath};

/// Splits one artifact: its generic part first, then one artifact for each ISA, sorted. An artifact
/// that is generic already passes through as it is. All faults in its files are reported.
pub fn split(artifact: &ArtifactTree, options: &Options) -> Result<(Vec<ArtifactTree>, Report)> {
    let mut plan = Plan {
        artifact,
        options,
        outputs: BTreeMap::new(),
        kernels: Kernels::new(artifact, options),
        report: Report { artifact: artifact.name.to_string(), ..Report::default() },
    };
    let archive = |path: &TreePath| {
        path.file_name().ends_with(b".kpack")
            && path.parent().is_some_and(|dir| dir.file_name() == b".kpack")
    };
    if let Some((path, _)) = artifact.tree.iter().find(|(path, _)| archive(path)) {
        return Err(Error::failed(format!("was split already: it has {path}"))
            .at(&artifact.origin)
            .hint("split takes what the build made; split artifacts go to `gfxpack recombine`")
            .into());
    }
    plan.output(GENERIC).prefixes.clone_from(&artifact.prefixes);
    let mut faults = Vec::new();
    for (path, entry) in artifact.tree.iter() {
        if let Err(fault) = plan.entry(path, entry) {
            faults.push(fault);
        }
    }
    Errors::check((), faults)?;
    plan.finish()
}

struct Plan<'a> {
    artifact: &'a ArtifactTree,
    options: &'a Options,
    /// By target.
    outputs: BTreeMap<String, ArtifactTree>,
    kernels: Kernels<'a>,
    report: Report,
}

impl Plan<'_> {
    fn output(&mut self, target: &str) -> &mut ArtifactTree {
        let name = &self.artifact.name;
        let made = || ArtifactTree::new(name.with_target(target));
        self.outputs.entry(target.to_owned()).or_insert_with(made)
    }

    fn entry(&mut self, path: &TreePath, entry: &Entry) -> Result<(), Error> {
        if self.artifact.name.is_generic() {
            return self.generic(path, entry.clone());
        }
        if entry.is_dir() {
            // Directories come with what is in them; only an empty one comes for itself.
            let empty = self.artifact.tree.below(path).next().is_none();
            return if empty { self.generic(path, entry.clone()) } else { Ok(()) };
        }
        let artifact = self.artifact;
        if let Some((_, owner)) = self.options.databases.owner_in(artifact, path) {
            return self.database_file(path, entry, &owner);
        }
        match &entry.kind {
            EntryKind::File(Source::File(input)) => {
                let converted = self.program(path, entry, input)?;
                let source = converted.unwrap_or_else(|| Source::File(Arc::clone(input)));
                self.generic(path, Entry { kind: EntryKind::File(source), ..entry.clone() })
            }
            EntryKind::HardLink(first) => self.hard_link(path, entry, first),
            _ => self.generic(path, entry.clone()),
        }
    }

    fn database_file(
        &mut self,
        path: &TreePath,
        entry: &Entry,
        owner: &Owner,
    ) -> Result<(), Error> {
        if let EntryKind::File(Source::File(input)) = &entry.kind {
            code_file::check(path, input, owner)?;
        }
        let wanted = match owner {
            Owner::Isa(isa) => self.options.wants(isa),
            Owner::Family(family) => family.members().any(|isa| self.options.wants(&isa)),
        };
        let counts = if wanted { &mut self.report.isas } else { &mut self.report.left_out };
        let counts = counts.entry(owner.target()).or_default();
        counts.database_files += 1;
        counts.database_bytes += entry.source().and_then(Source::len).unwrap_or(0);
        if wanted { self.place(&owner.target(), path, entry.clone()) } else { Ok(()) }
    }

    fn generic(&mut self, path: &TreePath, entry: Entry) -> Result<(), Error> {
        self.report.generic_files += u64::from(!entry.is_dir());
        self.place(GENERIC, path, entry)
    }

    /// Puts an entry into an output, with the directories above it as the input has them.
    fn place(&mut self, target: &str, path: &TreePath, entry: Entry) -> Result<(), Error> {
        let artifact = self.artifact;
        let output = self.output(target);
        let entry = match entry.kind {
            // The file that a hard link names may have gone elsewhere: then this is a file.
            EntryKind::HardLink(ref first) if output.tree.get(first).is_none() => {
                let source = artifact.tree.get(first).and_then(Entry::source).cloned();
                let source = source.expect("a hard link names a file");
                Entry { kind: EntryKind::File(source), ..entry }
            }
            _ => entry,
        };
        for dir in output.tree.missing_above(path) {
            let as_read = artifact.tree.get(&dir).cloned().unwrap_or_else(Entry::dir);
            output.tree.insert(dir, as_read).map_err(|e| occupied(artifact, &e))?;
        }
        output.tree.insert(path.clone(), entry).map_err(|e| occupied(artifact, &e))
    }

    /// A second name of a file. A fat binary's marker is made for one folder, so a name in another
    /// folder becomes a file of its own with a marker of its own.
    fn hard_link(&mut self, path: &TreePath, entry: &Entry, first: &TreePath) -> Result<(), Error> {
        let source = self.artifact.tree.get(first).and_then(Entry::source);
        let Some(Source::File(input)) = source else {
            return self.generic(path, entry.clone());
        };
        // A file that went with its ISA was not converted.
        let whole = self.options.databases.owner_in(self.artifact, first).is_some();
        if path.parent() == first.parent() && !whole {
            return self.generic(path, entry.clone());
        }
        match self.program(path, entry, &Arc::clone(input))? {
            Some(converted) => {
                self.generic(path, Entry { kind: EntryKind::File(converted), ..entry.clone() })
            }
            None => self.generic(path, entry.clone()),
        }
    }

    /// Looks at a file that may be a fat binary; the converted content where it is one.
    fn program(
        &mut self,
        path: &TreePath,
        entry: &Entry,
        input: &Arc<InputFile>,
    ) -> Result<Option<Source>, Error> {
        let at = |e: Error| e.at(input.path());
        let file = input.open().map_err(|e| Error::io("cannot read", input.path(), e))?;
        let damaged = |e: elf::ElfError| {
            at(Error::failed("is a damaged ELF file").because(e))
                .hint("it may have been cut off or changed after linking: build or copy it again")
        };
        let image = match elf::probe(&file).map_err(damaged)? {
            elf::Kind::NotElf | elf::Kind::Other { .. } => {
                self.note_archive(path, &file);
                return Ok(None);
            }
            elf::Kind::Relocatable { fat } => {
                if fat {
                    self.note(path, "is an object file with device code: it stays as it is");
                }
                return Ok(None);
            }
            elf::Kind::Program(image) => image,
        };
        match image.state() {
            State::Plain => return Ok(None),
            State::NoSections => {
                self.note(path, "has no section headers, so device code in it cannot be found: it stays as it is");
                return Ok(None);
            }
            State::Converted => {
                self.note(path, "is converted already: it stays as it is");
                return Ok(None);
            }
            State::Fat => {}
        }
        let fat = FatBinary::read_with(&file, image, input.bundles()).map_err(|e| {
            at(Error::failed("its device code cannot be taken apart").because(e))
                .hint("the file is damaged: build or copy it again")
        })?;
        if fat.wrappers().next().is_none() {
            self.note(path, "has a .hip_fatbin that no wrapper points into: it stays as it is");
            return Ok(None);
        }
        let prefix = self.artifact.prefix_of(path).expect("every file is under a prefix").clone();
        let below = path.strip_prefix(&prefix).expect("the prefix is above it");
        let marker =
            self.kernels.add(&prefix, &below, input, entry.mtime, &fat, &mut self.report)?;
        let conversion = fat.convert(&file, &marker).map_err(|e| {
            at(Error::failed("cannot be converted").because(e))
                .hint("please report this file's shape (readelf -lSW) to the authors of gfxpack")
        })?;
        self.report.converted.push(ConvertedBinary {
            path: path.to_string(),
            wrappers: fat.wrappers().count(),
            bundles: fat.bundles().len(),
            size_before: input.len(),
            size_after: conversion.len,
        });
        Ok(Some(Source::Pieces { input: Arc::clone(input), pieces: conversion.pieces.into() }))
    }

    fn note(&mut self, path: &TreePath, what: &str) {
        self.report.notes.push(format!("{}/{path} {what}", self.artifact.name));
    }

    fn note_archive(&mut self, path: &TreePath, file: &dyn crate::read_at::ReadAt) {
        let what = match ar::device_code(file) {
            DeviceCode::None => return,
            DeviceCode::Found => "is a static archive with device code: it stays as it is",
            DeviceCode::Unknown => {
                "is a static archive that cannot be looked through, so device code in it is not \
                 found: it stays as it is"
            }
        };
        self.note(path, what);
    }

    fn finish(mut self) -> Result<(Vec<ArtifactTree>, Report)> {
        let kernels =
            std::mem::replace(&mut self.kernels, Kernels::new(self.artifact, self.options));
        let mut kpack_prefixes: BTreeMap<String, Vec<TreePath>> = BTreeMap::new();
        for (isa, prefix, path, entry) in kernels.finish() {
            let target = isa.to_string();
            self.place(&target, &path, entry)?;
            kpack_prefixes.entry(target).or_default().push(prefix);
        }
        let generic = self.outputs.remove(GENERIC);
        let order = &self.artifact.prefixes;
        for (target, output) in &mut self.outputs {
            // The input's prefixes in their order, as far as this ISA has files there; then those of
            // the archives.
            let has = |prefix: &&TreePath| output.tree.below(prefix).next().is_some();
            let mut prefixes: Vec<_> = order.iter().filter(has).cloned().collect();
            for prefix in kpack_prefixes.remove(target).unwrap_or_default() {
                if !prefixes.contains(&prefix) {
                    prefixes.push(prefix);
                }
            }
            output.prefixes = prefixes;
        }
        let outputs = generic.into_iter().chain(self.outputs.into_values()).collect();
        Ok((outputs, self.report))
    }
}

fn occupied(artifact: &ArtifactTree, e: &crate::tree::Occupied) -> Error {
    Error::failed(e.to_string())
        .at(&artifact.origin)
        .hint("the artifact itself has a file where an archive should go: rename it")
}
