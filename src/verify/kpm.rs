//! Invariant 4: kpack manifests name the archives beside them, with their sizes and counts.

use super::Checked;
use super::file::Facts;
use super::finding::{Check, Finding};
use crate::kpack::kpm::Kpm;
use crate::tree::TreePath;

/// Holds each manifest against the archives that stand in its folder.
pub(super) fn check(checked: &[Checked], findings: &mut Vec<Finding>) {
    for artifact in checked {
        let mut named = Vec::new();
        for (path, facts) in &artifact.facts {
            if let Facts::Kpm(Some(kpm)) = facts {
                named.extend(one(artifact, path, kpm, findings));
            }
        }
        let has_manifest = artifact.facts.values().any(|facts| matches!(facts, Facts::Kpm(_)));
        for (path, facts) in &artifact.facts {
            let standing =
                matches!(facts, Facts::Kpack(_)) && path.file_name().ends_with(b".kpack");
            if standing && has_manifest && !named.contains(*path) {
                findings.push(Finding::new(
                    Check::KpmStale,
                    &artifact.label,
                    &path.to_string(),
                    "no manifest beside the archive names it",
                    "each archive in the .kpm of its folder",
                ));
            }
        }
    }
}

/// Checks one manifest; returns the archives that it names.
fn one(
    artifact: &Checked,
    path: &TreePath,
    kpm: &Kpm,
    findings: &mut Vec<Finding>,
) -> Vec<TreePath> {
    let file = path.to_string();
    let mut add = |message: String, expected: String| {
        findings.push(Finding::new(Check::KpmStale, &artifact.label, &file, message, expected));
    };
    let component = artifact.artifact.name.prefix();
    if kpm.component_name != component {
        add(format!("component_name is `{}`", kpm.component_name), format!("`{component}`"));
    }
    let prefix = artifact.artifact.prefix_of(path).map(ToString::to_string).unwrap_or_default();
    if kpm.prefix != prefix {
        add(format!("prefix is `{}`", kpm.prefix), format!("`{prefix}`, where it stands"));
    }
    let mut named = Vec::new();
    for (isa, listed) in &kpm.kpack_files {
        let Some(archive) = TreePath::new(&listed.file).ok().and_then(|name| {
            let name = Some(name).filter(|name| name.parent().is_none())?;
            Some(path.parent().map_or(name.clone(), |dir| dir.join(&name)))
        }) else {
            add(
                format!("`{}`, listed for {isa}, is no file name", listed.file),
                "the name of an archive beside it".into(),
            );
            continue;
        };
        match artifact.facts.get(&archive) {
            Some(Facts::Kpack(Some(kpack))) => {
                if listed.size != kpack.size {
                    let what = format!("lists {} with {} bytes", listed.file, listed.size);
                    add(what, format!("{} bytes", kpack.size));
                }
                let count = kpack.kernels.len() as u64;
                if listed.kernel_count != count {
                    let what =
                        format!("lists {} with {} kernels", listed.file, listed.kernel_count);
                    add(what, format!("{count} kernels"));
                }
                if !kpack.gfx_arches.contains(isa) {
                    let isas: Vec<_> = kpack.gfx_arches.iter().map(ToString::to_string).collect();
                    let what = format!("lists {} for {isa}", listed.file);
                    add(what, format!("{}, which the archive is for", isas.join(", ")));
                }
            }
            // Said of the archive already.
            Some(Facts::Kpack(None)) => {}
            _ => add(
                format!("lists {}, for {isa}, which is not there", listed.file),
                "archives that stand beside it".into(),
            ),
        }
        named.push(archive);
    }
    named
}
