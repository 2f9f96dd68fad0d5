//! Verifying packages: a set of `.deb` and `.rpm` files, as users install them.
//!
//! Each package is read once, as a stream. What needs random access (archives, programs, code objects) is
//! judged from memory where it is small, and from an unnamed temporary file of its own size where it is
//! not; everything else is only digested. The checks over several files are those of artifacts, on the
//! layout that the packages give once they are installed over one root. Invariant 8 is judged here:
//! what the packages say of themselves and of each other. The two formats are sets of their own, and
//! are compared with each other at the end.

mod pack;
mod relations;
mod set;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Checked, Options, Report, finding::Finding, isa, kpm, layout, lookup, needed, report};
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::package::Format;
use crate::progress::Monitor;
use crate::tree::TreePath;
use pack::Pack;
pub(super) use relations::is_system;

/// How to verify packages, beside [`Options`]; of those, `source` does not count here.
#[derive(Debug, Clone)]
pub struct PackageOptions {
    /// Where everything is installed, without the leading slash: `opt/rocm`.
    pub install_prefix: TreePath,
    /// For unnamed temporary files, each as large as the largest archive or library of a package.
    pub tmp_dir: PathBuf,
}

/// Verifies the `.deb` and `.rpm` files in a directory as one set. Damage is reported, not returned: this
/// fails only where the directory cannot be read or has no package in it.
pub fn packages(
    dir: &Path,
    packaging: &PackageOptions,
    options: &Options,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let files = files(dir)?;
    monitor.begin("verifying", files.iter().map(|file| file.size).sum());
    let read = jobs.drive(&files, |file| {
        monitor.at(&file.name);
        let read = pack::read(file, packaging, options);
        monitor.advance(file.size);
        read
    });
    monitor.end();
    let mut findings = Vec::new();
    let mut packs: Vec<Pack> = Vec::new();
    for (pack, found) in read {
        findings.extend(found);
        packs.extend(pack);
    }
    packs.sort_by(|a, b| a.file.cmp(&b.file));
    let mut facts: Vec<_> = packs.iter_mut().map(|pack| std::mem::take(&mut pack.facts)).collect();
    let mut checked: BTreeMap<Format, Vec<Checked>> = BTreeMap::new();
    for (pack, facts) in packs.iter().zip(&mut facts) {
        let tree = &pack.artifact.tree;
        let owners = tree.iter().filter(|(path, entry)| {
            !entry.is_dir() && path.strip_prefix(&packaging.install_prefix).is_some()
        });
        let owners = owners.filter_map(|(path, _)| {
            let (_, owner) = options.databases.owner_in(&pack.artifact, path)?;
            Some((path, owner))
        });
        let facts = std::mem::take(facts).into_iter().filter_map(|(path, facts)| {
            let (path, _) = tree.get_key_value(&path)?;
            Some((path, facts))
        });
        checked.entry(pack.format).or_default().push(Checked {
            artifact: &pack.artifact,
            label: pack.file.clone(),
            holds: pack.holds(options.config),
            recombined: true,
            packaged: true,
            owners: owners.collect(),
            facts: facts.collect(),
        });
    }
    let mut needs = BTreeMap::new();
    for (format, checked) in &checked {
        isa::check(checked, &mut findings);
        kpm::check_packages(checked, &mut findings);
        lookup::check(checked, &mut findings);
        layout::check(checked, &mut findings);
        layout::kernels_once(checked, &mut findings);
        let of_format: Vec<&Pack> = packs.iter().filter(|pack| pack.format == *format).collect();
        let asked = relations::asked_elsewhere(&of_format);
        let asks =
            |file: &str, soname: &str| asked.get(file).is_some_and(|one| one.can_bring(soname));
        for need in needed::check(checked, options, Some(&asks), &mut findings) {
            needs.entry(need.soname.clone()).or_insert(need);
        }
        set::paths(&of_format, &mut findings);
        relations::check(&of_format, options, &mut findings);
    }
    set::formats(&packs, &packaging.install_prefix, &mut findings);
    let bytes = files.iter().map(|file| file.size).sum();
    let all: Vec<Checked> = checked.into_values().flatten().collect();
    let needs: Vec<_> = needs.into_values().collect();
    needed::tell(&needs, monitor);
    let mut report = report(&all, (bytes, needs), findings, options, &[2, 3, 4, 5, 6, 8]);
    // Those that could not be read count as well.
    report.artifacts = files.into_iter().map(|file| file.name).collect();
    Ok(report)
}

/// A package file.
struct PackageFile {
    path: PathBuf,
    name: String,
    size: u64,
    format: Format,
}

/// The packages of a directory, sorted by name.
fn files(dir: &Path) -> Result<Vec<PackageFile>> {
    let cannot = |e| Error::io("cannot read the directory", dir, e);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let format = match path.extension().and_then(|ending| ending.to_str()) {
            Some("deb") => Format::Deb,
            Some("rpm") => Format::Rpm,
            _ => continue,
        };
        let meta = path.metadata().map_err(|e| Error::io("cannot read", &path, e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if meta.is_file() {
            files.push(PackageFile { path, name, size: meta.len(), format });
        }
    }
    if files.is_empty() {
        return Err(Error::failed("has no package in it")
            .at(dir)
            .hint("expected .deb or .rpm files, as `gfxpack package` writes them; a repository is verified by --repo-dir")
            .into());
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn found(
    findings: &mut Vec<Finding>,
    id: super::Check,
    pack: &Pack,
    what: String,
    expected: String,
) {
    findings.push(Finding::new(id, &pack.file, "", what, expected));
}
