//! Splitting a batch: each artifact for itself, so that one that cannot be read, planned or written does
//! not take the others with it.
//!
//! Several artifacts of a batch may give parts of one output (a generic artifact beside that of a build
//! job). Where one of them fails while it is written, that output is made again from the others' parts:
//! nothing of what failed remains, and what the others gave is whole.

use std::collections::{BTreeMap, BTreeSet};

use super::{Collision, lay};
use crate::artifact::ArtifactTree;
use crate::error::{Error, Errors, Kind, Result};
use crate::jobs::Jobs;
use crate::progress::Monitor;
use crate::split::{self, Report};
use crate::tree::dir::{self, Copying};
use crate::tree::output::OutputDir;
use crate::tree::{Tree, TreePath};

/// Artifacts that are split side by side, sorted by name.
pub struct Batch {
    items: Vec<Item>,
}

/// One artifact of a batch.
pub struct Item {
    /// What it is called.
    pub name: String,
    report: Option<Report>,
    /// What it was split into; nothing where it failed.
    parts: Vec<ArtifactTree>,
    faults: Vec<Error>,
}

impl Item {
    /// What it was split into, where nothing is wrong with it.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref().filter(|_| self.faults.is_empty())
    }

    /// What is wrong with it; nothing where it was split.
    pub fn faults(&self) -> &[Error] {
        &self.faults
    }

    fn is_good(&self) -> bool {
        self.faults.is_empty()
    }

    fn has(&self, output: &str) -> bool {
        self.parts.iter().any(|part| part.name.to_string() == output)
    }
}

impl Batch {
    /// Plans the split of the artifacts that could be read ([`crate::artifact::read_each`]). Two that
    /// would write one path have both failed.
    pub fn plan(
        read: Vec<(String, Result<ArtifactTree>)>,
        options: &split::Options,
        jobs: &Jobs,
    ) -> Self {
        let mut origins = Vec::new();
        let planned = jobs.drive(&read, |(_, artifact)| {
            artifact.as_ref().ok().map(|artifact| split::split(artifact, options))
        });
        let mut items = Vec::new();
        for ((name, read), planned) in read.into_iter().zip(planned) {
            let mut item = Item { name, report: None, parts: Vec::new(), faults: Vec::new() };
            match read {
                Ok(artifact) => origins.push(artifact.origin),
                Err(e) => {
                    origins.push(std::path::PathBuf::new());
                    item.faults = e.into_vec();
                }
            }
            match planned {
                Some(Ok((parts, report))) => (item.parts, item.report) = (parts, Some(report)),
                Some(Err(e)) => item.faults = e.into_vec(),
                None => {}
            }
            items.push(item);
        }
        let mut batch = Self { items };
        for (output, Collision { parts: [one, other], occupied }) in batch.collisions() {
            for (of, with) in [(one, other), (other, one)] {
                let fault = Error::failed(format!(
                    "gives {output}/{}, and so does {}",
                    occupied.0, batch.items[with].name
                ))
                .at(&origins[of])
                .hint(super::ONE_OF_A_NAME);
                batch.items[of].faults.push(fault);
            }
        }
        for item in &mut batch.items {
            if !item.is_good() {
                item.parts.clear();
            }
        }
        batch
    }

    /// The artifacts, with what came of them.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The names of the outputs of the artifacts that have not failed, sorted.
    pub fn outputs(&self) -> BTreeSet<String> {
        let parts = self.items.iter().flat_map(|item| &item.parts);
        parts.map(|part| part.name.to_string()).collect()
    }

    /// The faults of all its artifacts, together with others.
    pub fn into_faults(self, mut others: Vec<Error>) -> Vec<Error> {
        let mut faults: Vec<_> = self.items.into_iter().flat_map(|item| item.faults).collect();
        faults.append(&mut others);
        faults
    }

    /// Writes the outputs of the artifacts that have not failed, each as a directory, and moves them to
    /// their place. What fails meanwhile is left out; where nothing is left, no output is made. An
    /// error is a fault of the whole run, after which nothing is placed.
    pub fn write(
        &mut self,
        output: OutputDir,
        copying: Copying,
        jobs: &Jobs,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let mut to_write = self.outputs();
        while !to_write.is_empty() {
            let trees: Vec<(String, Tree)> =
                to_write.iter().map(|name| (name.clone(), self.lay(name).to_tree())).collect();
            let faults = dir::write(output.part(), &trees, copying, jobs, monitor);
            let faults = faults.err().unwrap_or_default();
            let (of_run, of_artifacts): (Vec<_>, Vec<_>) = faults
                .into_iter()
                .map(|fault| (self.to_blame(&trees[fault.tree].0, &fault), fault.error))
                .partition(|(item, _)| item.is_none());
            let failed: BTreeSet<usize> =
                of_artifacts.iter().filter_map(|(item, _)| *item).collect();
            for (item, fault) in of_artifacts {
                if let Some(item) = item {
                    self.items[item].faults.push(fault);
                }
            }
            Errors::check((), of_run.into_iter().map(|(_, fault)| fault).collect())?;
            to_write = self.take_back(&failed, &output)?;
        }
        match self.items.iter().any(Item::is_good) {
            true => output.finish(),
            false => Ok(()),
        }
    }

    /// Removes what artifacts that failed have in the output. Returns the names of the outputs that
    /// others have parts in.
    fn take_back(
        &mut self,
        failed: &BTreeSet<usize>,
        output: &OutputDir,
    ) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for item in failed {
            let parts = std::mem::take(&mut self.items[*item].parts);
            names.extend(parts.iter().map(|part| part.name.to_string()));
        }
        for name in &names {
            output.discard(name)?;
        }
        names.retain(|name| self.items.iter().any(|item| item.has(name)));
        Ok(names)
    }

    /// The artifact that a fault is of; none where it is of the whole run.
    fn to_blame(&self, output: &str, fault: &dir::Fault) -> Option<usize> {
        let path = fault.path.as_ref().filter(|_| fault.error.kind() != Kind::Output)?;
        self.items.iter().position(|item| item.has_path(output, path))
    }

    /// The parts of an output, with the places of their artifacts.
    fn parts(&self, output: &str) -> impl Iterator<Item = (usize, &ArtifactTree)> {
        self.items.iter().enumerate().flat_map(move |(i, item)| {
            item.parts
                .iter()
                .filter(move |part| part.name.to_string() == output)
                .map(move |part| (i, part))
        })
    }

    fn lay(&self, output: &str) -> ArtifactTree {
        let parts = self.parts(output).map(|(_, part)| part.clone());
        let (laid, collisions) = lay(parts).expect("an output has a part");
        debug_assert!(collisions.is_empty(), "those that collide have failed");
        laid
    }

    /// What two artifacts both give, by the name of the output; the places are those of artifacts.
    fn collisions(&self) -> Vec<(String, Collision)> {
        let mut by_output: BTreeMap<String, Vec<(usize, &ArtifactTree)>> = BTreeMap::new();
        for (i, item) in self.items.iter().enumerate() {
            for part in &item.parts {
                by_output.entry(part.name.to_string()).or_default().push((i, part));
            }
        }
        let mut found = Vec::new();
        for (output, parts) in by_output.into_iter().filter(|(_, parts)| parts.len() > 1) {
            let laid = lay(parts.iter().map(|(_, part)| (*part).clone()));
            for Collision { parts: places, occupied } in laid.into_iter().flat_map(|(_, c)| c) {
                let places = places.map(|place| parts[place].0);
                found.push((output.clone(), Collision { parts: places, occupied }));
            }
        }
        found
    }
}

impl Item {
    fn has_path(&self, output: &str, path: &TreePath) -> bool {
        let mut parts = self.parts.iter().filter(|part| part.name.to_string() == output);
        parts.any(|part| part.tree.get(path).is_some())
    }
}
