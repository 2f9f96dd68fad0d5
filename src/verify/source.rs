//! Invariant 7: with the input at hand, every kernel and file of it is in the output, byte for byte.
//!
//! The input can be the fat shards of the build or shards that were split: a file is judged by what
//! it is. Kernels are compared by hash, files byte by byte, converted binaries section by section
//! ([`super::converted`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use super::Checked;
use super::converted;
use super::file::{Facts, open};
use super::finding::{Check, Finding, Findings, chain};
use super::kpack::{self, Few, code_object};
use super::subject::Holds;
use crate::artifact::{ArtifactTree, Shard};
use crate::config::PackagingConfig;
use crate::database::{Databases, Owner};
use crate::elf::{self, State};
use crate::error::{Error, Errors, Result};
use crate::fatbin::{BundleError, FatBinary};
use crate::jobs::Jobs;
use crate::kpack::marker::kernel_name;
use crate::progress::Monitor;
use crate::read_at::ReadAt;
use crate::streams::fill;
use crate::target::TargetId;
use crate::tree::{Entry, EntryKind, Source, Tree, TreePath};

/// One file or link of the input.
struct Origin<'a> {
    shard: &'a str,
    artifact: &'a ArtifactTree,
    path: &'a TreePath,
    entry: &'a Entry,
    owner: Option<Owner>,
    /// The other names of a file in one folder share its kernels.
    second_name: bool,
}

/// What a file of the input is.
enum Content {
    /// It is in the output as it is.
    Same,
    /// It is in the output without its device code, which is this.
    Fat(Vec<Kernel>),
    /// An archive of a split shard: its kernels are in the output.
    Kpack(Vec<Kernel>),
    /// A manifest of archives: made anew.
    Kpm,
}

/// A kernel of the input.
struct Kernel {
    isa: TargetId,
    binary: String,
    co_index: u32,
    hash: blake3::Hash,
}

/// Why content of an ISA is left out, and what to do.
const WITHOUT_GROUP: (&str, &str) =
    ("the ISA is in no architecture group", "add the ISA to a group, if it should be packaged");

type KernelKey = (String, TargetId, String, u32);

/// Compares the artifacts with what they were made from.
pub(super) fn check(
    checked: &[Checked],
    shards: &[Shard],
    databases: &Databases,
    config: Option<&PackagingConfig>,
    (jobs, monitor): (&Jobs, &dyn Monitor),
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let origins = origins(shards, databases);
    let mut order: Vec<usize> = (0..origins.len()).collect();
    let size =
        |&i: &usize| content(&origins[i].artifact.tree, origins[i].path).map_or(0, Source::work);
    order.sort_by_cached_key(|i| std::cmp::Reverse(size(i)));
    monitor.begin("reading the input", order.iter().map(size).sum());
    let read = jobs.drive(&order, |i| {
        let read = classify(&origins[*i]);
        monitor.advance(size(i));
        read
    });
    monitor.end();
    let mut contents: Vec<Content> = origins.iter().map(|_| Content::Same).collect();
    let mut faults = Vec::new();
    for (i, read) in order.iter().zip(read) {
        match read {
            Ok(content) => contents[*i] = content,
            Err(e) => faults.push(e),
        }
    }
    Errors::check((), faults)?;

    let compare = Compare { checked, shards, config, origins: &origins, contents: &contents };
    compare.kernels(findings);
    compare.without_code(findings);
    findings.extend(compare.files(jobs, monitor));
    Ok(())
}

fn origins<'a>(shards: &'a [Shard], databases: &Databases) -> Vec<Origin<'a>> {
    let mut origins = Vec::new();
    for shard in shards {
        for artifact in &shard.artifacts {
            for (path, entry) in artifact.tree.iter().filter(|(_, entry)| !entry.is_dir()) {
                // What is called generic is passed on as it is.
                let owner = if artifact.name.is_generic() {
                    None
                } else {
                    databases.owner_in(artifact, path).map(|(_, owner)| owner)
                };
                // But not of one that went whole to its ISA.
                let whole = |first| databases.owner_in(artifact, first).is_some();
                let second_name = match &entry.kind {
                    EntryKind::HardLink(first) => first.parent() == path.parent() && !whole(first),
                    _ => false,
                };
                origins.push(Origin {
                    shard: &shard.name,
                    artifact,
                    path,
                    entry,
                    owner,
                    second_name,
                });
            }
        }
    }
    origins
}

/// The content of a file, also under its other names.
fn content<'a>(tree: &'a Tree, path: &TreePath) -> Option<&'a Source> {
    match &tree.get(path)?.kind {
        EntryKind::File(source) => Some(source),
        EntryKind::HardLink(first) => tree.get(first)?.source(),
        _ => None,
    }
}

/// Says what a file of the input is, and reads its kernels.
fn classify(origin: &Origin) -> Result<Content, Error> {
    let Some(source) = content(&origin.artifact.tree, origin.path) else {
        return Ok(Content::Same);
    };
    let at = origin.artifact.origin.join(origin.path.as_path());
    let name = origin.path.file_name();
    if name.ends_with(b".kpm") {
        return Ok(Content::Kpm);
    }
    let r = open(source).map_err(|e| Error::io("cannot read", &at, e))?;
    let r = &*r;
    if name.ends_with(b".kpack") {
        let mut findings = Findings::new("", "");
        let facts = kpack::archive(r, true, &mut findings);
        let whole = facts.filter(|facts| facts.kernels.iter().all(|kernel| kernel.hash.is_some()));
        let Some(facts) = whole else {
            let what = findings.list.first().map(|f| f.message.clone()).unwrap_or_default();
            return Err(Error::failed(what)
                .at(at)
                .hint("the input itself is damaged: verify it first"));
        };
        let kernels = facts.kernels.into_iter().filter_map(|k| {
            Some(Kernel { isa: k.isa, binary: k.binary, co_index: k.co_index, hash: k.hash? })
        });
        return Ok(Content::Kpack(kernels.collect()));
    }
    if origin.owner.is_some() || origin.artifact.name.is_generic() {
        return Ok(Content::Same);
    }
    let Ok(elf::Kind::Program(image)) = elf::probe(r) else { return Ok(Content::Same) };
    if image.state() != State::Fat {
        return Ok(Content::Same);
    }
    let bad = |e: &dyn std::error::Error| {
        Error::failed(format!("its device code cannot be read: {}", chain(e))).at(&at)
    };
    let fat = FatBinary::read(r, image).map_err(|e| bad(&e))?;
    if fat.wrappers().next().is_none() {
        return Ok(Content::Same);
    }
    if origin.second_name {
        return Ok(Content::Fat(Vec::new()));
    }
    let kernels = kernels_of(origin, r, &fat).map_err(|e| bad(&e))?;
    Ok(Content::Fat(kernels))
}

fn kernels_of(
    origin: &Origin,
    r: &dyn ReadAt,
    fat: &FatBinary,
) -> Result<Vec<Kernel>, BundleError> {
    let prefix = origin.artifact.prefix_of(origin.path);
    let name = prefix.and_then(|prefix| {
        let below = origin.path.strip_prefix(prefix)?;
        kernel_name(prefix.as_str()?, below.as_path()).ok()
    });
    let name = name.unwrap_or_default();
    // Several wrappers can share a bundle, which is read once.
    let mut hashes: BTreeMap<u64, Vec<(TargetId, blake3::Hash)>> = BTreeMap::new();
    for (offset, bundle) in fat.bundles() {
        let list = hashes.entry(*offset).or_default();
        bundle.for_each_entry(r, |entry, stream| {
            if let Some(target) = &entry.target {
                let read = code_object(stream, entry.size, true);
                let offset = bundle.offset.saturating_add(entry.offset);
                let (_, hash) = read.map_err(|source| BundleError::Io { offset, source })?;
                list.extend(hash.map(|hash| (target.clone(), hash)));
            }
            Ok::<(), BundleError>(())
        })?;
    }
    let mut kernels = Vec::new();
    for (wrapper, bundle) in fat.wrappers() {
        for (isa, hash) in hashes.get(&bundle.offset).into_iter().flatten() {
            kernels.push(Kernel {
                isa: isa.clone(),
                binary: name.clone(),
                co_index: wrapper.index,
                hash: *hash,
            });
        }
    }
    Ok(kernels)
}

struct Compare<'c, 'a> {
    checked: &'c [Checked<'a>],
    shards: &'c [Shard],
    config: Option<&'c PackagingConfig>,
    origins: &'c [Origin<'c>],
    contents: &'c [Content],
}

impl Compare<'_, '_> {
    fn recombined(&self) -> bool {
        self.checked.iter().any(|artifact| artifact.recombined)
    }

    /// Whether it may be meant that an ISA's content is not there.
    fn left_out(&self, component: &str, isa: &TargetId) -> bool {
        match self.config {
            Some(config) => config.group_of(component, isa).is_none(),
            None => {
                self.recombined()
                    && !self.devices(component).any(|i| self.checked[i].holds_any(isa))
            }
        }
    }

    fn devices<'s>(&'s self, component: &'s str) -> impl Iterator<Item = usize> + 's {
        let list = self.checked.iter().enumerate();
        list.filter(move |(_, checked)| {
            checked.artifact.name.prefix() == component && !matches!(checked.holds, Holds::Generic)
        })
        .map(|(i, _)| i)
    }

    fn generic(&self, component: &str) -> Option<usize> {
        self.checked.iter().position(|checked| {
            checked.artifact.name.prefix() == component && matches!(checked.holds, Holds::Generic)
        })
    }

    /// Takes back that no archive has kernels of a binary whose bundles hold none in the input.
    fn without_code(&self, findings: &mut Vec<Finding>) {
        let mut codeless: BTreeMap<(String, String), bool> = BTreeMap::new();
        for (origin, content) in self.origins.iter().zip(self.contents) {
            if let Content::Fat(kernels) = content {
                let place = (origin.artifact.name.prefix(), origin.path.to_string());
                *codeless.entry(place).or_insert(true) &= kernels.is_empty() && !origin.second_name;
            }
        }
        findings.retain(|finding| {
            if finding.id != Check::KernelNotFound {
                return true;
            }
            let artifact = self.checked.iter().find(|checked| checked.label == finding.artifact);
            let place =
                artifact.map(|checked| (checked.artifact.name.prefix(), finding.file.clone()));
            place.is_none_or(|place| codeless.get(&place) != Some(&true))
        });
    }

    fn kernels(&self, findings: &mut Vec<Finding>) {
        let mut wanted: BTreeMap<KernelKey, Vec<(blake3::Hash, &str)>> = BTreeMap::new();
        for (origin, content) in self.origins.iter().zip(self.contents) {
            let (Content::Fat(kernels) | Content::Kpack(kernels)) = content else { continue };
            for kernel in kernels {
                let component = origin.artifact.name.prefix();
                let key = (component, kernel.isa.clone(), kernel.binary.clone(), kernel.co_index);
                wanted.entry(key).or_default().push((kernel.hash, origin.shard));
            }
        }
        let mut there: BTreeSet<KernelKey> = BTreeSet::new();
        let mut damaged: BTreeSet<String> = BTreeSet::new();
        for artifact in self.checked {
            let component = artifact.artifact.name.prefix();
            for (path, facts) in &artifact.facts {
                let kpack = match facts {
                    Facts::Kpack(Some(kpack)) => kpack,
                    Facts::Kpack(None) => {
                        damaged.insert(component.clone());
                        continue;
                    }
                    _ => continue,
                };
                let (mut changed, mut extra) = (Few::default(), Few::default());
                for kernel in &kpack.kernels {
                    let name =
                        || format!("{}#{} for {}", kernel.binary, kernel.co_index, kernel.isa);
                    let key = (
                        component.clone(),
                        kernel.isa.clone(),
                        kernel.binary.clone(),
                        kernel.co_index,
                    );
                    match (wanted.get(&key), kernel.hash) {
                        (None, _) => extra.add(name),
                        (Some(inputs), Some(hash))
                            if inputs.iter().all(|(wanted, _)| *wanted != hash) =>
                        {
                            changed.add(|| format!("{} (input of {})", name(), inputs[0].1));
                        }
                        _ => {}
                    }
                    there.insert(key);
                }
                let file = path.to_string();
                let mut add = |check, few: &Few, one: &str, several: &str, expected: &str| {
                    if let Some(what) = few.say(one, several) {
                        findings.push(Finding::new(check, &artifact.label, &file, what, expected));
                    }
                };
                let one = "kernel is not the input's";
                add(
                    Check::Changed,
                    &changed,
                    one,
                    "kernels are not the input's",
                    "the bytes of the input's bundles",
                );
                let one = "kernel is not in the input";
                add(
                    Check::Extra,
                    &extra,
                    one,
                    "kernels are not in the input",
                    "the input's kernels only",
                );
            }
        }
        let mut lost: BTreeMap<(&str, &TargetId), Few> = BTreeMap::new();
        for (key, inputs) in wanted.iter().filter(|(key, _)| !there.contains(*key)) {
            let (component, isa, binary, co_index) = key;
            lost.entry((component, isa))
                .or_default()
                .add(|| format!("{binary}#{co_index} of {}", inputs[0].1));
        }
        for ((component, isa), few) in lost {
            // Kernels of an archive that cannot be opened are not known to be lost.
            if damaged.contains(component) {
                continue;
            }
            let check = if self.left_out(component, isa) { Check::LeftOut } else { Check::Lost };
            let what = few.say(
                &format!("kernel for {isa} is in no archive"),
                &format!("kernels for {isa} are in no archive"),
            );
            let expected = format!("all kernels of the input for {isa}");
            let label = self.label_for(component, isa);
            let finding = Finding::new(check, &label, "", what.unwrap_or_default(), expected);
            findings.push(match check {
                Check::LeftOut => finding.told(WITHOUT_GROUP.0, WITHOUT_GROUP.1),
                _ => finding,
            });
        }
    }

    /// The artifact in which an ISA's content should be.
    fn label_for(&self, component: &str, isa: &TargetId) -> String {
        let tree = self.devices(component).find(|&i| self.checked[i].holds_any(isa));
        tree.map_or_else(|| format!("{component}_{isa}"), |i| self.checked[i].label.clone())
    }

    fn files(&self, jobs: &Jobs, monitor: &dyn Monitor) -> Vec<Finding> {
        // The same path of several shards is one file of the output.
        let mut groups: BTreeMap<(String, &TreePath), Vec<usize>> = BTreeMap::new();
        for (i, origin) in self.origins.iter().enumerate() {
            if !matches!(self.contents[i], Content::Kpack(_) | Content::Kpm) {
                groups.entry((origin.artifact.name.prefix(), origin.path)).or_default().push(i);
            }
        }
        let groups: Vec<_> = groups.into_iter().collect();
        let size = |list: &[usize]| {
            let origin = &self.origins[list[0]];
            content(&origin.artifact.tree, origin.path).map_or(0, Source::work)
        };
        let mut order: Vec<_> = groups.iter().collect();
        order.sort_by_cached_key(|(_, list)| std::cmp::Reverse(size(list)));
        monitor.begin("comparing with the input", order.iter().map(|(_, list)| size(list)).sum());
        let compared = jobs.drive(&order, |((component, path), list)| {
            let found = self.file(component, path, list);
            monitor.advance(size(list));
            found
        });
        monitor.end();
        let mut findings = Vec::new();
        let mut explained: BTreeSet<(usize, &TreePath)> = BTreeSet::new();
        for (((_, path), _), (place, found)) in order.iter().zip(compared) {
            explained.extend(place.map(|i| (i, *path)));
            findings.extend(found);
        }
        for (i, artifact) in self.checked.iter().enumerate() {
            for (path, entry) in artifact.artifact.tree.iter().filter(|(_, entry)| !entry.is_dir())
            {
                let made =
                    matches!(artifact.facts.get(path), Some(Facts::Kpack(_) | Facts::Kpm(_)));
                if !made && !entry.is_dir() && !explained.contains(&(i, path)) {
                    let file = path.to_string();
                    let what = "is not in the input";
                    let expected = "the input's files only";
                    findings.push(Finding::new(
                        Check::Extra,
                        &artifact.label,
                        &file,
                        what,
                        expected,
                    ));
                }
            }
        }
        findings
    }

    /// Compares one file of the output with those of the input at its path. Returns the artifact that
    /// it is in.
    fn file(
        &self,
        component: &str,
        path: &TreePath,
        list: &[usize],
    ) -> (Option<usize>, Vec<Finding>) {
        let owner = list.iter().find_map(|&i| self.origins[i].owner.as_ref());
        let has = |&i: &usize| self.checked[i].artifact.tree.get(path).is_some_and(|e| !e.is_dir());
        let place = match owner {
            None => self.generic(component).filter(has),
            Some(_) => self.devices(component).find(has),
        };
        let first = &self.origins[list[0]];
        let Some(place) = place else {
            return (None, vec![self.lost(component, path, list, owner)]);
        };
        // Of host code the primary shard's is taken, where it has the file.
        let primary = self.config.map(|config| config.primary_shard.as_str());
        let of_primary: Vec<usize> =
            list.iter().copied().filter(|&i| Some(self.origins[i].shard) == primary).collect();
        let candidates = if owner.is_none() && !of_primary.is_empty() { &of_primary } else { list };
        let mut difference = None;
        for &i in candidates {
            match self.differs(place, path, i) {
                Ok(None) => return (Some(place), Vec::new()),
                Ok(Some(how)) => difference = difference.or(Some(how)),
                Err(e) => difference = difference.or(Some(format!("cannot be compared: {e}"))),
            }
        }
        let how = difference.unwrap_or_default();
        let file = path.to_string();
        let label = &self.checked[place].label;
        let expected = format!("the content of {}/{}", first.shard, first.artifact.name);
        (Some(place), vec![Finding::new(Check::Changed, label, &file, how, expected)])
    }

    fn lost(
        &self,
        component: &str,
        path: &TreePath,
        list: &[usize],
        owner: Option<&Owner>,
    ) -> Finding {
        let first = &self.origins[list[0]];
        let primary = self.config.map(|config| config.primary_shard.as_str());
        let meant = match owner {
            Some(Owner::Isa(isa)) => self.left_out(component, isa),
            Some(Owner::Family(family)) => match self.config {
                Some(config) => config.groups_with(component, family).is_empty(),
                None => family.members().all(|isa| self.left_out(component, &isa)),
            },
            // A file that only some shards have is taken from the primary one.
            None => {
                let union = self.config.is_some_and(|config| config.generic_union);
                self.recombined()
                    && !union
                    && list.iter().all(|&i| Some(self.origins[i].shard) != primary)
                    && (primary.is_some() || list.len() < self.shards.len())
            }
        };
        let label = match owner {
            None => format!("{component}_generic"),
            Some(Owner::Isa(isa)) => self.label_for(component, isa),
            Some(owner) => format!("{component}_{}", owner.target()),
        };
        let what = format!("the file of {}/{} is not there", first.shard, first.artifact.name);
        let check = if meant { Check::LeftOut } else { Check::Lost };
        let finding =
            Finding::new(check, &label, &path.to_string(), what, "every file of the input");
        match (meant, owner) {
            (false, _) => finding,
            (true, Some(_)) => finding.told(WITHOUT_GROUP.0, WITHOUT_GROUP.1),
            (true, None) => finding.told(
                "only a shard that is not the primary one has the file",
                "set generic_union, if it should be packaged",
            ),
        }
    }

    /// How a file of the output differs from one of the input; `None` where it does not.
    fn differs(&self, place: usize, path: &TreePath, origin: usize) -> io::Result<Option<String>> {
        let (input, output) = (&self.origins[origin], &self.checked[place]);
        let Some(entry) = output.artifact.tree.get(path) else { return Ok(None) };
        match (&input.entry.kind, &entry.kind) {
            (EntryKind::Symlink(a), EntryKind::Symlink(b)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let same = a == b;
                return Ok((!same).then(|| {
                    format!("is a link to `{}`, in the input to `{}`", text(b), text(a))
                }));
            }
            (EntryKind::Symlink(_), _) => {
                return Ok(Some("is no link, as it is in the input".into()));
            }
            (_, EntryKind::Symlink(_)) => {
                return Ok(Some("is a link, and a file in the input".into()));
            }
            _ => {}
        }
        if input.entry.mode != entry.mode {
            return Ok(Some(format!(
                "has the mode {:04o}, in the input {:04o}",
                entry.mode, input.entry.mode
            )));
        }
        let (Some(a), Some(b)) =
            (content(&input.artifact.tree, path), content(&output.artifact.tree, path))
        else {
            return Ok(None);
        };
        if a.capabilities()? != b.capabilities()? {
            return Ok(Some("has other capabilities (getcap) than in the input".into()));
        }
        if let Content::Fat(_) = self.contents[origin] {
            let (a, b) = (open(a)?, open(b)?);
            return Ok(converted::difference(&*a, &*b));
        }
        if a.len() != b.len() {
            let len = |source: &Source| source.len().unwrap_or(0);
            return Ok(Some(format!("has {} bytes, in the input {}", len(b), len(a))));
        }
        // Of a member of an archive the digest is known: reading it again is for what differs.
        if let Source::File(file) = a
            && let Some(known) = file.digest()
            && blake3::Hasher::new().update_reader(b.open()?)?.finalize() == known
        {
            return Ok(None);
        }
        let at = first_difference(&mut *a.open()?, &mut *b.open()?)?;
        Ok(at.map(|at| format!("differs from the input from byte {at:#x} on")))
    }
}

impl Checked<'_> {
    /// Whether content for an ISA belongs here or is here.
    fn holds_any(&self, isa: &TargetId) -> bool {
        let archives = self.facts.values().any(
            |facts| matches!(facts, Facts::Kpack(Some(kpack)) if kpack.gfx_arches.contains(isa)),
        );
        let unknown = matches!(self.holds, Holds::Group(super::subject::Members::Unknown));
        archives
            || !unknown && self.holds.allows(isa)
            || self.owners.values().any(|owner| matches!(owner, Owner::Isa(own) if own == isa))
    }
}

/// Where two streams of one length differ.
fn first_difference(a: &mut dyn Read, b: &mut dyn Read) -> io::Result<Option<u64>> {
    let (mut left, mut right) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut at = 0;
    loop {
        let (n, m) = (fill(a, &mut left)?, fill(b, &mut right)?);
        let differ = left[..n].iter().zip(&right[..m]).position(|(a, b)| a != b);
        if let Some(i) = differ.or((n != m).then_some(n.min(m))) {
            return Ok(Some(at + i as u64));
        }
        if n == 0 {
            return Ok(None);
        }
        at += n as u64;
    }
}
