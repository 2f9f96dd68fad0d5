//! Joining artifacts of several shards into one.

use std::sync::Arc;

use super::{MadeArtifact, Report, Warning, compare};
use crate::artifact::{ArtifactName, ArtifactTree, Shard};
use crate::config::Validation;
use crate::error::{Error, Errors, Result};
use crate::kpack::kpm::Kpm;
use crate::target::Family;
use crate::tree::{Entry, EntryKind, KpmPlan, Occupied, Source, TreePath};

/// One artifact of one shard.
pub(super) struct Part<'a> {
    pub shard: &'a Shard,
    pub artifact: &'a ArtifactTree,
}

impl Part<'_> {
    /// `gfx110X-build/blas_lib_gfx1100`
    pub fn label(&self) -> String {
        format!("{}/{}", self.shard.name, self.artifact.name)
    }
}

/// An artifact that is being put together.
pub(super) struct Merge {
    artifact: ArtifactTree,
    from: Vec<String>,
    /// Which part gave the entries, for messages: start index of each part's label.
    givers: std::collections::BTreeMap<TreePath, usize>,
    /// Different contents at one path are an error.
    different_are_errors: bool,
    /// So are the same ones.
    same_are_errors: bool,
    /// Paths that two parts have, the same; by the parts' labels, with whether they are a family's.
    same: std::collections::BTreeMap<(String, String), (bool, Vec<TreePath>)>,
    faults: Vec<Error>,
    warnings: Vec<Warning>,
}

impl Merge {
    /// An artifact with device code; the configuration says what of two parts is an error.
    pub fn new(name: ArtifactName, validation: &Validation) -> Self {
        Self {
            different_are_errors: validation.error_on_duplicate_device_code,
            same_are_errors: validation.error_on_identical_device_code,
            ..Self::generic(name)
        }
    }

    /// An artifact with host code, whose parts have no path in common.
    pub fn generic(name: ArtifactName) -> Self {
        Self {
            artifact: ArtifactTree::new(name),
            from: Vec::new(),
            givers: std::collections::BTreeMap::new(),
            different_are_errors: true,
            same_are_errors: false,
            same: std::collections::BTreeMap::new(),
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub fn tree(&self) -> &crate::tree::Tree {
        &self.artifact.tree
    }

    /// Adds all of a part.
    pub fn add(&mut self, part: &Part) -> Result<()> {
        self.add_where(part, |_| true)
    }

    /// Adds these files of a part, with the directories above them.
    pub fn add_only(&mut self, part: &Part, paths: &[TreePath]) -> Result<()> {
        self.add_where(part, |path| {
            paths.iter().any(|wanted| wanted == path || wanted.strip_prefix(path).is_some())
        })
    }

    fn add_where(&mut self, part: &Part, wanted: impl Fn(&TreePath) -> bool) -> Result<()> {
        let giver = self.from.len();
        self.from.push(part.label());
        for prefix in &part.artifact.prefixes {
            if !self.artifact.prefixes.contains(prefix) {
                self.artifact.prefixes.push(prefix.clone());
            }
        }
        for (path, entry) in part.artifact.tree.iter().filter(|(path, _)| wanted(path)) {
            self.entry(part, giver, path, entry)?;
        }
        Ok(())
    }

    fn entry(&mut self, part: &Part, giver: usize, path: &TreePath, entry: &Entry) -> Result<()> {
        let Some(there) = self.artifact.tree.get(path) else {
            let entry = self.here(part, entry)?;
            self.givers.insert(path.clone(), giver);
            let inserted = self.artifact.tree.insert(path.clone(), entry);
            return inserted.map_err(|e| self.no_room(part, &e).into());
        };
        let first = &self.from[self.givers.get(path).copied().unwrap_or(0)];
        // A hard link is its content: what it is called is a matter of each tree.
        let contents = compare::contents(&self.artifact.tree, &part.artifact.tree, path);
        let differs = match (&there.kind, &entry.kind) {
            (EntryKind::Dir, EntryKind::Dir) => return Ok(()),
            (EntryKind::Symlink(a), EntryKind::Symlink(b)) if a == b => None,
            _ => match contents {
                Some((a, b)) if is_kpm(path) => {
                    let merged =
                        Entry { kind: EntryKind::File(merge_kpm(path, a, b)?), ..there.clone() };
                    self.artifact.tree.remove(path);
                    let inserted = self.artifact.tree.insert(path.clone(), merged);
                    inserted.expect("the path was taken out");
                    return Ok(());
                }
                Some((a, b)) => compare::same(a, b)?,
                None => Some(
                    "one is a link or directory and the other is not, or they point elsewhere"
                        .into(),
                ),
            },
        };
        let both = format!("{first} and {}", part.label());
        match differs {
            None => {
                let labels = (first.clone(), part.label());
                let of_family = Family::parse(&part.artifact.name.target).is_some();
                let same = self.same.entry(labels).or_insert((of_family, Vec::new()));
                same.1.push(path.clone());
            }
            Some(how) if self.different_are_errors => self.faults.push(
                Error::failed(format!("{both} have different files at this path: {how}"))
                    .at(path.as_path())
                    .hint(
                        "two build jobs made code for one ISA: leave one out, or set \
                         validation.error_on_duplicate_device_code to false to take the first",
                    ),
            ),
            Some(how) => {
                self.warnings.push(Warning::of(
                    path.to_string(),
                    format!("{both} differ in files, of which the first's are taken: {{}}"),
                    format!("{path}: {both} differ ({how}); the first is taken"),
                ));
            }
        }
        Ok(())
    }

    /// A part's entry as it goes into this tree. A hard link stays one where the file that it names is that part's
    /// here, or the same; where it is another part's, this is a file of its own.
    fn here(&self, part: &Part, entry: &Entry) -> Result<Entry> {
        let EntryKind::HardLink(first) = &entry.kind else { return Ok(entry.clone()) };
        let Some(own) = part.artifact.tree.get(first).and_then(Entry::source) else {
            let fault = Error::failed(format!("{first} is no file")).at(&part.artifact.origin);
            return Err(fault.into());
        };
        let same = match self.artifact.tree.get(first) {
            Some(Entry { kind: EntryKind::File(there), .. }) if there.is(own) => true,
            // Names of one file have one mode.
            Some(Entry { kind: EntryKind::File(there), mode, .. }) if *mode == entry.mode => {
                compare::same(there, own)?.is_none()
            }
            _ => false,
        };
        let kind = if same { entry.kind.clone() } else { EntryKind::File(own.clone()) };
        Ok(Entry { kind, ..entry.clone() })
    }

    /// An entry below what is no directory in another part, or the reverse.
    fn no_room(&self, part: &Part, e: &Occupied) -> Error {
        let giver = self.givers.get(&e.0).and_then(|giver| self.from.get(*giver));
        let first = giver.map_or("another artifact", String::as_str);
        Error::failed(format!("{first} has a file or link here, {} a directory", part.label()))
            .at(e.0.as_path())
            .hint("no path can be both: make the build jobs agree, or leave one out")
    }

    /// The whole artifact.
    pub fn finish(mut self, report: &mut Report) -> Result<ArtifactTree> {
        for ((first, other), (of_family, paths)) in &self.same {
            let what = format!(
                "{first} and {other} both have {}, the same: {}",
                compare::count(paths.len(), "file"),
                compare::some(paths)
            );
            // Every job whose ISA is of a family makes that family's files: that several shards have
            // them is as it should be.
            if self.same_are_errors && !of_family {
                self.faults.push(Error::failed(what).hint(
                    "two build jobs made the same code for one ISA: build it in one of them, or \
                     set validation.error_on_identical_device_code to false",
                ));
            } else {
                report.notes.push(what);
            }
        }
        Errors::check((), self.faults)?;
        // Archives' prefixes stand last in a manifest, whichever shard they came from.
        self.artifact.prefixes.sort_by_key(|prefix| prefix.as_bytes().starts_with(b"kpack/"));
        report.warnings.append(&mut self.warnings);
        report.artifacts.push(MadeArtifact {
            name: self.artifact.name.to_string(),
            from: self.from,
            files: self.artifact.tree.iter().filter(|(_, entry)| !entry.is_dir()).count(),
        });
        Ok(self.artifact)
    }
}

fn is_kpm(path: &TreePath) -> bool {
    path.file_name().ends_with(b".kpm")
}

/// Joins two manifests of one component.
fn merge_kpm(path: &TreePath, a: &Source, b: &Source) -> Result<Source, Error> {
    if let (Source::Kpm(a), Source::Kpm(b)) = (a, b) {
        // The first one's archives are in the tree, so they are what the manifest speaks of.
        let mut archives = b.archives.clone();
        archives.extend(a.archives.clone());
        return Ok(Source::Kpm(Arc::new(KpmPlan { archives, ..(**a).clone() })));
    }
    let bad = |e: Box<dyn std::error::Error + Send + Sync>| {
        Error::failed("cannot be merged").at(path.as_path()).because(e)
    };
    let read = |source: &Source| -> Result<Kpm, Error> {
        let stream = source.open().map_err(|e| bad(e.into()))?;
        Kpm::read(stream).map_err(|e| bad(e.into()))
    };
    let (first, mut other) = (read(a)?, read(b)?);
    // Of two archives at one path the first one's is in the tree, so its size and count are true.
    other
        .kpack_files
        .retain(|isa, file| first.kpack_files.get(isa).is_none_or(|there| there.file != file.file));
    let merged = Kpm::merge([first, other]).and_then(|kpm| kpm.to_bytes());
    merged.map(Source::bytes).map_err(|e| bad(e.into()))
}
