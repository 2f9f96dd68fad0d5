//! Invariant 5: the runtime's search, done in the installed layout.
//!
//! For an ISA the runtime tries its full id, then each subset of its features, then the bare
//! processor, then the generic processor; for each, every search path of the marker, with the id in
//! place of `@GFXARCH@`. It stops at the first archive that lists the id, and asks that one for
//! `kernel_name#co_index`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Checked;
use super::file::Facts;
use super::finding::{Check, Finding};
use super::host::KpackUse;
use super::kpack::{Few, KpackFacts};
use super::layout::{Installed, installed_path};
use super::subject::Holds;
use crate::kpack::marker::{Marker, ParsedMarker, kernel_name};
use crate::target::TargetId;
use crate::tree::TreePath;
use std::os::unix::ffi::OsStrExt;

/// A converted binary, as the runtime sees it.
struct Binary<'a> {
    artifact: usize,
    path: &'a TreePath,
    installed: TreePath,
    name: String,
    kpack: &'a KpackUse,
}

/// An archive: artifact and path in it.
type Place<'a> = (usize, &'a TreePath);

/// Does the search for every kernel and every wrapper of each component.
pub(super) fn check(checked: &[Checked], findings: &mut Vec<Finding>) {
    let mut components: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, artifact) in checked.iter().enumerate() {
        components.entry(artifact.artifact.name.prefix()).or_default().push(i);
    }
    for members in components.values() {
        let search = Search::new(checked, members, findings);
        search.kernels(findings);
        search.binaries(findings);
        search.hidden(findings);
    }
}

struct Search<'c, 'a> {
    checked: &'c [Checked<'a>],
    members: &'c [usize],
    binaries: Vec<Binary<'c>>,
    /// Kernel name to the binaries that ask for it.
    by_name: BTreeMap<String, Vec<usize>>,
    /// For each ISA and kernel name the indexes there are, in all trees.
    filed: BTreeMap<(TargetId, &'c str), BTreeSet<u32>>,
    /// An archive cannot be opened: what it holds is not known.
    damaged: bool,
}

impl<'c, 'a> Search<'c, 'a> {
    fn new(checked: &'c [Checked<'a>], members: &'c [usize], findings: &mut Vec<Finding>) -> Self {
        let mut this = Self {
            checked,
            members,
            binaries: Vec::new(),
            by_name: BTreeMap::new(),
            filed: BTreeMap::new(),
            damaged: false,
        };
        for &i in members {
            for (path, facts) in &checked[i].facts {
                match facts {
                    Facts::Program(program) if matches!(checked[i].holds, Holds::Generic) => {
                        if let Some(kpack) = &program.kpack {
                            this.binary(i, path, kpack, findings);
                        }
                    }
                    Facts::Kpack(None) => this.damaged = true,
                    Facts::Kpack(Some(kpack)) => {
                        for kernel in &kpack.kernels {
                            let key = (kernel.isa.clone(), kernel.binary.as_str());
                            this.filed.entry(key).or_default().insert(kernel.co_index);
                        }
                    }
                    _ => {}
                }
            }
        }
        this
    }

    fn binary(
        &mut self,
        i: usize,
        path: &'c TreePath,
        kpack: &'c KpackUse,
        findings: &mut Vec<Finding>,
    ) {
        let artifact = &self.checked[i];
        let prefix = artifact.artifact.prefix_of(path).and_then(TreePath::as_str);
        let Some(installed) = installed_path(artifact, path) else { return };
        let Some(expected) = prefix.and_then(|p| kernel_name(p, installed.as_path()).ok()) else {
            return;
        };
        let name = match &kpack.marker {
            ParsedMarker::Map(marker) => marker.kernel_name.clone(),
            ParsedMarker::Text(_) => expected.clone(),
        };
        // A package does not say which prefix of the build its files come from.
        let right = if artifact.packaged {
            name.ends_with(&format!("/{installed}"))
        } else {
            name == expected
        };
        let expected = if artifact.packaged { format!("…/{installed}") } else { expected };
        if !right && matches!(kpack.marker, ParsedMarker::Map(_)) {
            findings.push(Finding::new(
                Check::MarkerName,
                &artifact.label,
                &path.to_string(),
                format!("its marker's kernel_name is `{name}`"),
                format!("`{expected}`"),
            ));
        }
        self.by_name.entry(name.clone()).or_default().push(self.binaries.len());
        self.binaries.push(Binary { artifact: i, path, installed, name, kpack });
    }

    /// The archives of one artifact.
    fn archives(&self, i: usize) -> impl Iterator<Item = (&'c TreePath, &'c KpackFacts)> {
        let checked = self.checked;
        checked[i].facts.iter().filter_map(|(path, facts)| match facts {
            Facts::Kpack(Some(kpack)) => Some((*path, kpack)),
            _ => None,
        })
    }

    fn devices(&self) -> impl Iterator<Item = usize> {
        self.members.iter().copied().filter(|&i| !matches!(self.checked[i].holds, Holds::Generic))
    }

    fn generics(&self) -> impl Iterator<Item = usize> {
        self.members.iter().copied().filter(|&i| matches!(self.checked[i].holds, Holds::Generic))
    }

    /// The archive at which the search for an id stops, with the generic part and some device trees
    /// installed.
    fn stop(&self, layout: &Installed<'a>, binary: &Binary, id: &TargetId) -> Option<Place<'a>> {
        let candidates = match &binary.kpack.marker {
            ParsedMarker::Map(marker) => candidates(marker, id),
            ParsedMarker::Text(folders) => {
                let dirs =
                    folders.iter().filter_map(|f| binary.installed.resolve_link(f.as_bytes()));
                let files =
                    dirs.flat_map(|dir| layout.in_directory(&dir).cloned().collect::<Vec<_>>());
                return files.filter_map(|file| self.archive_at(layout, &file, id)).find(
                    |&place| {
                        let kpack = self.facts(place);
                        kpack.is_some_and(|k| {
                            k.kernels.iter().any(|kernel| kernel.binary == binary.name)
                        })
                    },
                );
            }
        };
        let at = candidates.iter().filter_map(|path| binary.installed.resolve_link(path));
        at.filter_map(|path| self.archive_at(layout, &path, id)).next()
    }

    /// The archive at an installed path, where it lists the id.
    fn archive_at(
        &self,
        layout: &Installed<'a>,
        path: &TreePath,
        id: &TargetId,
    ) -> Option<Place<'a>> {
        let place = layout.find(self.checked, path)?;
        self.facts(place)?.gfx_arches.contains(id).then_some(place)
    }

    fn facts(&self, (i, path): Place<'a>) -> Option<&'c KpackFacts> {
        match self.checked[i].facts.get(path)? {
            Facts::Kpack(kpack) => kpack.as_ref(),
            _ => None,
        }
    }

    /// Every kernel of every archive is asked for by a binary, and found where its marker says.
    fn kernels(&self, findings: &mut Vec<Finding>) {
        for device in self.devices() {
            let group = self.checked[device].artifact.name.target.as_str();
            let shared = self.members.iter().copied();
            let shared = shared.filter(|&i| self.checked[i].holds.is_shared_by(group));
            let layout = Installed::of(self.checked, self.generics().chain([device]).chain(shared));
            let label = &self.checked[device].label;
            for (path, kpack) in self.archives(device) {
                let mut found = |check, few: &Few, one: &str, several: &str, expected: String| {
                    if let Some(what) = few.say(one, several) {
                        findings.push(Finding::new(
                            check,
                            label,
                            &path.to_string(),
                            what,
                            expected,
                        ));
                    }
                };
                let mut orphans: BTreeMap<&str, Few> = BTreeMap::new();
                let mut unknown_index: BTreeMap<&str, Few> = BTreeMap::new();
                let mut not_found: BTreeMap<(&str, &TargetId), Few> = BTreeMap::new();
                let mut stops: BTreeMap<(usize, &TargetId), Option<Place>> = BTreeMap::new();
                for kernel in &kpack.kernels {
                    let name =
                        || format!("{}#{} for {}", kernel.binary, kernel.co_index, kernel.isa);
                    let Some(askers) = self.by_name.get(&kernel.binary) else {
                        orphans.entry(&kernel.binary).or_default().add(name);
                        continue;
                    };
                    for &asker in askers {
                        let binary = &self.binaries[asker];
                        if !binary.kpack.co_indexes.contains(&kernel.co_index) {
                            unknown_index.entry(&kernel.binary).or_default().add(name);
                        }
                        let stop = stops
                            .entry((asker, &kernel.isa))
                            .or_insert_with(|| self.stop(&layout, binary, &kernel.isa));
                        if *stop != Some((device, path)) {
                            not_found.entry((&kernel.binary, &kernel.isa)).or_default().add(name);
                        }
                    }
                }
                for (binary, few) in &orphans {
                    let one = "kernel is of a binary that is not there";
                    let several = "kernels are of a binary that is not there";
                    let expected = format!("`{binary}`, converted, in the generic tree");
                    found(Check::KernelOrphan, few, one, several, expected);
                }
                for (binary, few) in &unknown_index {
                    let one = "kernel has an index that no wrapper of the binary has";
                    let several = "kernels have an index that no wrapper of the binary has";
                    found(Check::KernelOrphan, few, one, several, self.indexes(binary));
                }
                for ((name, isa), few) in &not_found {
                    let one = "kernel is not where the marker leads";
                    let several = "kernels are not where the marker leads";
                    found(Check::KernelNotFound, few, one, several, self.search_of(name, isa));
                }
            }
        }
    }

    fn indexes(&self, name: &str) -> String {
        let binary = self.by_name.get(name).and_then(|list| self.binaries.get(*list.first()?));
        match binary.and_then(|binary| binary.kpack.co_indexes.last()) {
            Some(last) => format!("indexes up to {last}, as the wrappers have"),
            None => "an index of its wrappers".into(),
        }
    }

    /// Where the marker leads, for messages.
    fn search_of(&self, name: &str, isa: &TargetId) -> String {
        let binary = self.by_name.get(name).and_then(|list| self.binaries.get(*list.first()?));
        let Some(Binary { installed, kpack: KpackUse { marker, .. }, .. }) = binary else {
            return "an archive that a marker leads to".into();
        };
        let paths = match marker {
            ParsedMarker::Map(marker) => candidates(marker, isa),
            ParsedMarker::Text(folders) => folders.iter().map(|f| f.clone().into_bytes()).collect(),
        };
        let paths = paths.iter().map(|path| {
            let at = installed.resolve_link(path);
            at.map_or(String::from_utf8_lossy(path).into_owned(), |at| at.to_string())
        });
        format!("installed as {}", paths.collect::<Vec<_>>().join(" or "))
    }

    /// Every wrapper has a kernel for each ISA that its binary has any for.
    fn binaries(&self, findings: &mut Vec<Finding>) {
        for binary in &self.binaries {
            let of_binary =
                |((isa, name), indexes): (&'_ (TargetId, &'c str), &'_ BTreeSet<u32>)| {
                    (*name == binary.name).then(|| (isa.clone(), indexes.clone()))
                };
            let isas: BTreeMap<TargetId, BTreeSet<u32>> =
                self.filed.iter().filter_map(of_binary).collect();
            let label = &self.checked[binary.artifact].label;
            let mut add = |check, message: String, expected: &str| {
                findings.push(Finding::new(
                    check,
                    label,
                    &binary.path.to_string(),
                    message,
                    expected,
                ));
            };
            if self.damaged {
                continue;
            }
            if isas.is_empty() {
                let what = format!("no archive has a kernel of `{}`", binary.name);
                add(
                    Check::KernelNotFound,
                    what,
                    "an archive for each ISA, in the trees of its component",
                );
                continue;
            }
            for (isa, indexes) in &isas {
                let missing: Vec<u32> =
                    binary.kpack.co_indexes.difference(indexes).copied().collect();
                if missing.is_empty() {
                    continue;
                }
                let fallback = fallbacks(isa).into_iter().find(|id| {
                    isas.get(id).is_some_and(|indexes| missing.iter().any(|i| indexes.contains(i)))
                });
                let wrappers = some(&missing);
                match fallback {
                    Some(id) => add(
                        Check::KernelHidden,
                        format!(
                            "its kernels for {wrappers} are there for {id}, but others are for {isa}, where the search stops"
                        ),
                        "kernels of all wrappers for the same ISAs",
                    ),
                    None => add(
                        Check::KernelMissing,
                        format!(
                            "no kernel for {isa} for {wrappers}, of {}",
                            binary.kpack.co_indexes.len()
                        ),
                        "a kernel for each wrapper, for each ISA that the binary has any for",
                    ),
                }
            }
        }
    }

    /// Archives at which the search stops although the kernel is in one that would come later.
    fn hidden(&self, findings: &mut Vec<Finding>) {
        let layout = Installed::of(self.checked, self.members.iter().copied());
        let mut hidden: BTreeMap<(Place, TargetId), Few> = BTreeMap::new();
        let listed: BTreeSet<&TargetId> = self
            .devices()
            .flat_map(|i| self.archives(i))
            .flat_map(|(_, k)| &k.gfx_arches)
            .collect();
        for binary in &self.binaries {
            for isa in &listed {
                let has =
                    |id: &TargetId| self.filed.contains_key(&(id.clone(), binary.name.as_str()));
                if has(isa) {
                    continue;
                }
                let Some(later) = fallbacks(isa).into_iter().find(has) else { continue };
                if let Some(place) = self.stop(&layout, binary, isa) {
                    let few = hidden.entry((place, later)).or_default();
                    few.add(|| format!("{} (the search for {isa} stops here)", binary.path));
                }
            }
        }
        for (((i, path), later), few) in hidden {
            let one =
                format!("binary has its kernels in the archive for {later}, which this one hides");
            let several = format!(
                "binaries have their kernels in the archive for {later}, which this one hides"
            );
            let what = few.say(&one, &several).unwrap_or_default();
            let expected =
                "archives that list an ISA only where they have the kernels of every binary for it";
            findings.push(Finding::new(
                Check::KernelHidden,
                &self.checked[i].label,
                &path.to_string(),
                what,
                expected,
            ));
        }
    }
}

/// The ids that the runtime tries after this one.
fn fallbacks(isa: &TargetId) -> Vec<TargetId> {
    let mut ids = isa.search_order();
    ids.remove(0);
    let generic = isa.known().and_then(|known| known.generic);
    ids.extend(generic.and_then(|generic| TargetId::bare(generic).ok()));
    ids
}

/// The search paths for one id, relative to the binary's folder.
fn candidates(marker: &Marker, id: &TargetId) -> Vec<Vec<u8>> {
    // The marker's own order covers the subsets of the id, of which the full one comes first.
    let all = marker.resolve(Path::new(""), id);
    let own = all.into_iter().take(marker.kpack_search_paths.len());
    own.map(|path| path.as_os_str().as_bytes().to_vec()).collect()
}

/// `wrapper 3`, `wrappers 1, 2, 5 and 7 more`.
fn some(indexes: &[u32]) -> String {
    let shown: Vec<_> = indexes.iter().take(4).map(ToString::to_string).collect();
    let more = indexes.len() - shown.len();
    let word = if indexes.len() == 1 { "wrapper" } else { "wrappers" };
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word} {}{tail}", shown.join(", "))
}
