//! Invariant 1: reading artifacts without giving up where one is damaged.
//!
//! The readers of [`crate::artifact`] refuse a damaged artifact, as they should for a stage that
//! works on it. Here the damage is what is looked for: it becomes findings, and what can be read is
//! checked further.

use std::fs;
use std::path::Path;

use super::finding::{Check, Finding, chain};
use crate::artifact::{
    ArtifactName, ArtifactTree, LineError, MANIFEST, MANIFEST_MAX, manifest_lines,
};
use crate::error::{Error, Result};
use crate::tree::{EntryKind, Source, Tree, TreePath, read as tree_read};

/// Reads all artifacts in `parent`, sorted by name, with what is wrong with their manifests. Fails
/// where `parent` cannot be read or has no artifact in it.
pub(super) fn artifacts(parent: &Path) -> Result<(Vec<ArtifactTree>, Vec<Finding>)> {
    let mut artifacts = Vec::new();
    let mut findings = Vec::new();
    for name in directories(parent)? {
        let dir = parent.join(&name);
        match ArtifactName::parse(&name) {
            Err(e) => findings.push(Finding::new(
                Check::ArtifactName,
                &name,
                "",
                e.to_string(),
                "a directory called artifact_component_target",
            )),
            Ok(name) => artifacts.extend(artifact(&dir, name, &mut findings)),
        }
    }
    if artifacts.is_empty() && findings.is_empty() {
        return Err(Error::failed("has no artifact in it")
            .at(parent)
            .hint("expected directories called artifact_component_target, as blas_lib_generic")
            .into());
    }
    Ok((artifacts, findings))
}

/// The names of the directories in `parent`, sorted; hidden ones are left out.
fn directories(parent: &Path) -> Result<Vec<String>> {
    let listed = fs::read_dir(parent).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let listed = listed.map_err(|e| Error::io("cannot read the directory", parent, e))?;
    let mut names: Vec<String> = listed
        .iter()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    Ok(names)
}

fn artifact(dir: &Path, name: ArtifactName, findings: &mut Vec<Finding>) -> Option<ArtifactTree> {
    let label = name.to_string();
    let mut tree = match tree_read::directory(dir) {
        Ok(tree) => tree,
        Err(faults) => {
            findings.extend(faults.into_vec().iter().map(|fault| {
                let file = fault.path().and_then(|path| path.strip_prefix(dir).ok());
                let file = file.map(|file| file.display().to_string()).unwrap_or_default();
                let message = std::error::Error::source(fault)
                    .map_or(fault.message().to_owned(), |why| {
                        format!("{}: {}", fault.message(), chain(why))
                    });
                let expected = "a file, directory or link that can be read";
                Finding::new(Check::Unreadable, &label, &file, message, expected)
            }));
            return None;
        }
    };
    let text = manifest(&mut tree).unwrap_or_else(|fault| {
        let expected = "a text file with one prefix a line";
        findings.push(Finding::new(Check::Manifest, &label, MANIFEST, fault, expected));
        Vec::new()
    });
    let prefixes = prefixes(&text, &label, &tree, findings);
    let artifact = ArtifactTree { name, prefixes, tree, origin: dir.to_owned() };
    // Without any prefix the manifest is the finding, not each file.
    if !artifact.prefixes.is_empty() || text.is_empty() && artifact.tree.has_files() {
        under_prefixes(&artifact, &label, findings);
    }
    Some(artifact)
}

/// Takes the manifest out of the tree and reads it.
fn manifest(tree: &mut Tree) -> Result<Vec<u8>, String> {
    let path = TreePath::new(MANIFEST).expect("a plain name");
    let entry = tree.remove(&path).ok_or("the artifact has no manifest")?;
    let EntryKind::File(source) = &entry.kind else {
        return Err("the manifest is no file".into());
    };
    match source {
        Source::File(file) if file.len() > MANIFEST_MAX => Err(format!(
            "the manifest has {} bytes, and at most {MANIFEST_MAX} make sense",
            file.len()
        )),
        source => {
            let mut text = Vec::new();
            let read = source.copy_to(&mut text);
            read.map(|_| text).map_err(|e| format!("the manifest cannot be read: {e}"))
        }
    }
}

/// The prefixes that a manifest lists.
fn prefixes(text: &[u8], label: &str, tree: &Tree, findings: &mut Vec<Finding>) -> Vec<TreePath> {
    let mut prefixes: Vec<TreePath> = Vec::new();
    let mut found = |message: String, expected: &str| {
        findings.push(Finding::new(Check::Manifest, label, MANIFEST, message, expected));
    };
    for (number, line) in manifest_lines(text) {
        match line {
            Err(e) => {
                let expected = match e {
                    LineError::Path(_) => "a prefix of the artifact",
                    LineError::Twice(_) => "each prefix once",
                    LineError::TooMany => "no more prefixes than that",
                };
                found(format!("line {number}: {e}"), expected);
            }
            Ok(prefix) => {
                if tree.get(&prefix).is_some_and(|entry| !entry.is_dir()) {
                    found(
                        format!("line {number}: `{prefix}` is no directory"),
                        "a prefix of the artifact",
                    );
                }
                let nested = prefixes.iter().find(|other| {
                    prefix.strip_prefix(other).is_some() || other.strip_prefix(&prefix).is_some()
                });
                if let Some(other) = nested {
                    found(
                        format!(
                            "line {number}: of the prefixes `{prefix}` and `{other}` one lies in the other"
                        ),
                        "prefixes beside each other: a file under both would be installed twice",
                    );
                }
                prefixes.push(prefix);
            }
        }
    }
    prefixes
}

/// Every file under a prefix, and in device artifacts a file under every prefix.
fn under_prefixes(artifact: &ArtifactTree, label: &str, findings: &mut Vec<Finding>) {
    for (path, entry) in artifact.tree.iter() {
        if !entry.is_dir() && artifact.prefix_of(path).is_none_or(|prefix| prefix == path) {
            findings.push(Finding::new(
                Check::ManifestShort,
                label,
                &path.to_string(),
                format!("lies under no prefix that {MANIFEST} lists"),
                listed(&artifact.prefixes),
            ));
        }
    }
    // Generic trees keep the prefixes of the build, which may have nothing under them.
    if !artifact.name.is_generic() {
        for prefix in &artifact.prefixes {
            if artifact.tree.below(prefix).all(|(_, entry)| entry.is_dir()) {
                findings.push(Finding::new(
                    Check::ManifestUnused,
                    label,
                    MANIFEST,
                    format!("nothing is under the prefix `{prefix}`"),
                    "prefixes with files only, in the artifact of an ISA or group",
                ));
            }
        }
    }
}

fn listed(prefixes: &[TreePath]) -> String {
    match prefixes {
        [] => "a prefix above it".to_owned(),
        few if few.len() <= 4 => {
            let names: Vec<_> = few.iter().map(ToString::to_string).collect();
            format!("a path under {}", names.join(" or "))
        }
        many => format!("a path under one of the {} prefixes", many.len()),
    }
}
