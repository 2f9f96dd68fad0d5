//! Joining artifacts of several shards into one.

use std::sync::Arc;

use super::{MadeArtifact, Report, compare};
use crate::artifact::{ArtifactName, ArtifactTree, Shard};
use crate::error::{Error, Errors, Result};
use crate::kpack::kpm::Kpm;
use crate::tree::{Entry, EntryKind, KpmPlan, Source, TreePath};

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
    duplicates_are_errors: bool,
    faults: Vec<Error>,
    warnings: Vec<String>,
    notes: Vec<String>,
}

impl Merge {
    pub fn new(name: ArtifactName, duplicates_are_errors: bool) -> Self {
        Self {
            artifact: ArtifactTree::new(name),
            from: Vec::new(),
            givers: std::collections::BTreeMap::new(),
            duplicates_are_errors,
            faults: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
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
            self.givers.insert(path.clone(), giver);
            let inserted = self.artifact.tree.insert(path.clone(), entry.clone());
            return inserted.map_err(|e| Error::failed(e.to_string()).at(part.label()).into());
        };
        let first = &self.from[self.givers.get(path).copied().unwrap_or(0)];
        let differs = match (&there.kind, &entry.kind) {
            (EntryKind::Dir, EntryKind::Dir) => return Ok(()),
            (EntryKind::File(a), EntryKind::File(b)) if is_kpm(path) => {
                let merged =
                    Entry { kind: EntryKind::File(merge_kpm(path, a, b)?), ..there.clone() };
                self.artifact.tree.remove(path);
                self.artifact.tree.insert(path.clone(), merged).expect("the path was taken out");
                return Ok(());
            }
            (EntryKind::File(a), EntryKind::File(b)) => compare::same(a, b)?,
            (EntryKind::Symlink(a), EntryKind::Symlink(b)) if a == b => None,
            (EntryKind::HardLink(a), EntryKind::HardLink(b)) if a == b => None,
            _ => Some(
                "one is a link or directory and the other is not, or they point elsewhere".into(),
            ),
        };
        let both = format!("{first} and {}", part.label());
        match differs {
            None => self.notes.push(format!("{both} both have {path}, the same")),
            Some(how) if self.duplicates_are_errors => self.faults.push(
                Error::failed(format!("{both} have different files at this path: {how}"))
                    .at(path.as_path())
                    .hint(
                        "two build jobs made code for one ISA: leave one out, or set \
                         validation.error_on_duplicate_device_code to false to take the first",
                    ),
            ),
            Some(how) => {
                self.warnings.push(format!("{path}: {both} differ ({how}); the first is taken"));
            }
        }
        Ok(())
    }

    /// The whole artifact.
    pub fn finish(mut self, report: &mut Report) -> Result<ArtifactTree> {
        Errors::check((), self.faults)?;
        // Archives' prefixes stand last in a manifest, whichever shard they came from.
        self.artifact.prefixes.sort_by_key(|prefix| prefix.as_bytes().starts_with(b"kpack/"));
        report.warnings.append(&mut self.warnings);
        report.notes.append(&mut self.notes);
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
    let merged = Kpm::merge([read(a)?, read(b)?]).and_then(|kpm| kpm.to_bytes());
    merged.map(Source::bytes).map_err(|e| bad(e.into()))
}
