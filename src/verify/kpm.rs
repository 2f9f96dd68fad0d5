//! Invariant 4: kpack manifests name the archives beside them, with their sizes and counts.

use std::collections::{BTreeMap, BTreeSet};

use super::Checked;
use super::file::Facts;
use super::finding::{Check, Finding};
use crate::kpack::kpm::Kpm;
use crate::tree::TreePath;

/// Holds each manifest against the archives that stand in its folder.
pub(super) fn check(checked: &[Checked], findings: &mut Vec<Finding>) {
    for artifact in checked {
        let mut named = BTreeSet::new();
        for (path, facts) in &artifact.facts {
            if let Facts::Kpm(Some(kpm)) = facts {
                named.extend(one(artifact, path, kpm, findings));
            }
        }
        let has_manifest = artifact.facts.values().any(|facts| matches!(facts, Facts::Kpm(_)));
        if has_manifest {
            unnamed(artifact, &named, findings);
        }
    }
}

/// Holds the manifests of packages against the archives in the same folder of any package.
pub(super) fn check_packages(checked: &[Checked], findings: &mut Vec<Finding>) {
    let archives: BTreeMap<&TreePath, &Facts> = checked
        .iter()
        .flat_map(|package| &package.facts)
        .filter(|(_, facts)| matches!(facts, Facts::Kpack(_)))
        .map(|(path, facts)| (*path, facts))
        .collect();
    let mut named = BTreeSet::new();
    let mut manifests = false;
    for package in checked {
        for (path, facts) in &package.facts {
            if let Facts::Kpm(kpm) = facts {
                manifests = true;
                let Some(kpm) = kpm else { continue };
                let mut add = adder(package, path, findings);
                named.extend(list(&|archive| archives.get(archive).copied(), path, kpm, &mut add));
            }
        }
    }
    for package in checked.iter().filter(|_| manifests) {
        unnamed(package, &named, findings);
    }
}

fn adder<'f>(
    artifact: &'f Checked,
    path: &TreePath,
    findings: &'f mut Vec<Finding>,
) -> impl FnMut(String, String) + use<'f> {
    let file = path.to_string();
    move |message, expected| {
        findings.push(Finding::new(Check::KpmStale, &artifact.label, &file, message, expected));
    }
}

/// Archives that no manifest names.
fn unnamed(artifact: &Checked, named: &BTreeSet<TreePath>, findings: &mut Vec<Finding>) {
    for (path, facts) in &artifact.facts {
        let standing = matches!(facts, Facts::Kpack(_)) && path.file_name().ends_with(b".kpack");
        if standing && !named.contains(*path) {
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

/// Checks one manifest; returns the archives that it names.
fn one(
    artifact: &Checked,
    path: &TreePath,
    kpm: &Kpm,
    findings: &mut Vec<Finding>,
) -> Vec<TreePath> {
    let mut add = adder(artifact, path, findings);
    let component = artifact.artifact.name.prefix();
    if kpm.component_name != component {
        add(format!("component_name is `{}`", kpm.component_name), format!("`{component}`"));
    }
    let prefix = artifact.artifact.prefix_of(path).map(ToString::to_string).unwrap_or_default();
    if kpm.prefix != prefix {
        add(format!("prefix is `{}`", kpm.prefix), format!("`{prefix}`, where it stands"));
    }
    list(&|archive| artifact.facts.get(archive), path, kpm, &mut add)
}

/// Holds what a manifest lists against the archives; returns those that it names.
fn list<'f>(
    archive_at: &dyn Fn(&TreePath) -> Option<&'f Facts>,
    path: &TreePath,
    kpm: &Kpm,
    add: &mut dyn FnMut(String, String),
) -> Vec<TreePath> {
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
        match archive_at(&archive) {
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
