//! Collecting the code objects of an artifact's fat binaries into archives.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{Layout, MarkerForm, Options, Report, Scope};
use crate::artifact::{ArtifactName, ArtifactTree};
use crate::error::Error;
use crate::fatbin::FatBinary;
use crate::kpack::marker::{ARCH_PLACEHOLDER, Marker, MarkerError, kernel_name, search_path};
use crate::target::TargetId;
use crate::tree::{
    CodeObjectAt, Entry, EntryKind, InputFile, KpackPlan, KpmPlan, PlannedKernel, Source, TreePath,
};

/// The prefix that archives have with [`Layout::Stage`].
const KPACK_PREFIX: &str = "kpack/stage";

/// An archive's name up to its ISA, and the prefix that it stands under.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Stem {
    name: String,
    prefix: TreePath,
}

/// The archives of one artifact.
pub(super) struct Kernels<'a> {
    artifact: &'a ArtifactName,
    origin: &'a Path,
    options: &'a Options,
    archives: BTreeMap<Stem, BTreeMap<TargetId, Vec<PlannedKernel>>>,
    /// Newest modification time of the binaries of an archive.
    newest: BTreeMap<Stem, i64>,
}

impl<'a> Kernels<'a> {
    pub fn new(artifact: &'a ArtifactTree, options: &'a Options) -> Self {
        let (artifact, origin) = (&artifact.name, artifact.origin.as_path());
        Self { artifact, origin, options, archives: BTreeMap::new(), newest: BTreeMap::new() }
    }

    /// Takes in the code objects of one binary (`path` below `prefix`); returns its marker.
    pub fn add(
        &mut self,
        prefix: &TreePath,
        path: &TreePath,
        input: &Arc<InputFile>,
        mtime: Option<i64>,
        fat: &FatBinary,
        report: &mut Report,
    ) -> Result<Vec<u8>, Error> {
        let unnamed = |e: MarkerError| {
            Error::failed("its device code cannot be named").at(input.path()).because(e).hint(
                "kpack archives and markers hold UTF-8 names only: rename the file or its prefix",
            )
        };
        let prefix_text = utf8(prefix).map_err(unnamed)?;
        let name = kernel_name(prefix_text, path.as_path()).map_err(unnamed)?;
        let stem = self.stem(prefix, path).map_err(unnamed)?;
        let newest = self.newest.entry(stem.clone()).or_insert(i64::MIN);
        *newest = (*newest).max(mtime.unwrap_or(i64::MIN));
        let mut counted = std::collections::BTreeSet::new();
        let archives = self.archives.entry(stem.clone()).or_default();
        for (wrapper, bundle) in fat.wrappers() {
            for (entry, target) in device_entries(bundle) {
                let code_object =
                    CodeObjectAt { input: Arc::clone(input), bundle: Arc::clone(bundle), entry };
                let wanted = self.options.wants(target);
                if counted.insert((bundle.offset, entry)) {
                    let counts = if wanted { &mut report.isas } else { &mut report.left_out };
                    let counts = counts.entry(target.to_string()).or_default();
                    counts.code_objects += 1;
                    counts.code_bytes += code_object.size();
                }
                if wanted {
                    let kernel =
                        PlannedKernel { name: name.clone(), co_index: wrapper.index, code_object };
                    archives.entry(target.clone()).or_default().push(kernel);
                }
            }
        }
        let folder = &self.options.folder;
        let archive = format!("{folder}/{}_{ARCH_PLACEHOLDER}.kpack", stem.name);
        let found_at = search_path(path.as_path(), archive.as_ref()).map_err(unnamed)?;
        match self.options.marker {
            MarkerForm::MessagePack => {
                Marker { kpack_search_paths: vec![found_at], kernel_name: name }.to_bytes()
            }
            MarkerForm::Text => {
                // The folder, where it really is, and then the places that descriptions name.
                let folder = search_path(path.as_path(), folder.as_path()).map_err(unnamed)?;
                let mut paths = vec![folder];
                for usual in ["../../../.kpack", "../../.kpack", ".kpack"] {
                    if !paths.iter().any(|path| path == usual) {
                        paths.push(usual.to_owned());
                    }
                }
                let text = Marker { kpack_search_paths: paths, kernel_name: name }.to_text();
                // Text has no length of its own.
                text.map(|text| [text, vec![0]].concat())
            }
        }
        .map_err(unnamed)
    }

    fn stem(&self, prefix: &TreePath, path: &TreePath) -> Result<Stem, MarkerError> {
        let component = self.artifact.prefix();
        let name = match self.options.scope {
            Scope::Component => component,
            Scope::Prefix => component + "+" + &flat(prefix)?,
            Scope::Binary => component + "+" + &flat(prefix)? + "+" + &flat(path)?,
        };
        let prefix = match self.options.layout {
            Layout::Stage => TreePath::new(KPACK_PREFIX).expect("a clean path"),
            Layout::InPlace => prefix.clone(),
        };
        // An archive over several prefixes stands under the first of them that has code.
        let of_component = (self.options.scope == Scope::Component)
            .then(|| self.archives.keys().next().map(|stem| stem.prefix.clone()))
            .flatten();
        Ok(Stem { name, prefix: of_component.unwrap_or(prefix) })
    }

    /// The archives and their manifests: for each ISA, prefix, path and entry.
    pub fn finish(self) -> Vec<(TargetId, TreePath, TreePath, Entry)> {
        let mut made = Vec::new();
        for (stem, isas) in self.archives {
            let mtime = self.newest.get(&stem).copied().filter(|&newest| newest != i64::MIN);
            for (isa, kernels) in isas {
                let plan = Arc::new(KpackPlan::new(
                    format!("{}/{}/{}", self.origin.display(), stem.prefix, stem.name),
                    self.artifact.prefix(),
                    isa.clone(),
                    self.options.compression,
                    kernels,
                ));
                let file = format!("{}_{isa}.kpack", stem.name);
                let manifest = KpmPlan {
                    component_name: self.artifact.prefix(),
                    prefix: stem.prefix.to_string(),
                    archives: BTreeMap::from([(isa.clone(), (file.clone(), Arc::clone(&plan)))]),
                };
                let manifest_file = format!("{}.kpm", stem.name);
                for (file, source) in
                    [(file, Source::Kpack(plan)), (manifest_file, Source::Kpm(Arc::new(manifest)))]
                {
                    let file = TreePath::new(file).expect("made of names without slashes");
                    let path = stem.prefix.join(&self.options.folder.join(&file));
                    let entry = Entry { mode: 0o644, mtime, kind: EntryKind::File(source) };
                    made.push((isa.clone(), stem.prefix.clone(), path, entry));
                }
            }
        }
        made
    }
}

/// The device entries of a bundle that have content, with their places in its table.
fn device_entries(
    bundle: &crate::fatbin::bundle::Bundle,
) -> impl Iterator<Item = (usize, &TargetId)> {
    let entries = bundle.entries.iter().enumerate();
    entries.filter_map(|(i, e)| e.target.as_ref().filter(|_| e.size > 0).map(|t| (i, t)))
}

fn utf8(path: &TreePath) -> Result<&str, MarkerError> {
    path.as_str().ok_or_else(|| MarkerError::NonUtf8Path { path: path.into() })
}

/// A path as part of a file name: `math-libs/BLAS/rocBLAS/stage` → `math-libs+BLAS+rocBLAS`. No two
/// paths give one name.
fn flat(path: &TreePath) -> Result<String, MarkerError> {
    let text = utf8(path)?;
    let text = text.strip_suffix("/stage").unwrap_or(text);
    Ok(text.replace('%', "%25").replace('+', "%2B").replace('/', "+"))
}
