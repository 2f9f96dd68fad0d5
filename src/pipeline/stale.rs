//! Packages of older runs in the output directory of a graph.
//!
//! `build` makes an output directory as a whole, so nothing of an older run is left in it. The nodes of a graph add to
//! one, each for itself, so what they no longer make has to be found beside: what the plans before say that they
//! made, and what nobody here can vouch for.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::graph::Node;
use crate::error::{Error, Result};
use crate::package::planned::PackagePlan;
use crate::package::{Format, file_name};

/// Package files in an output directory that the nodes of a graph do not make; sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// What the plans that are there made.
    pub planned: Vec<PathBuf>,
    /// What came from elsewhere.
    pub others: Vec<PathBuf>,
}

/// How the names of package files end: with signatures beside them.
const ENDINGS: [&str; 4] = [".deb", ".rpm", ".deb.asc", ".rpm.asc"];

/// Looks through `output_dir`, which need not exist. `plan_dir` has the plans of the run before, or nothing; plans that cannot
/// be read, as those of other versions, vouch for nothing.
pub fn stale(output_dir: &Path, plan_dir: &Path, nodes: &[Node]) -> Result<Stale> {
    let made: BTreeSet<&str> =
        nodes.iter().flat_map(|node| &node.outputs).map(String::as_str).collect();
    let mut found = Vec::new();
    for (name, path) in listing(output_dir)? {
        let is_package = ENDINGS.iter().any(|ending| name.ends_with(ending));
        if is_package && !made.contains(name.as_str()) && !path.is_dir() {
            found.push((name, path));
        }
    }
    let mut stale = Stale::default();
    if found.is_empty() {
        return Ok(stale);
    }
    let mut planned = BTreeSet::new();
    for (name, path) in listing(plan_dir)? {
        if name.ends_with(".plan")
            && let Ok(file) = File::open(&path)
            && let Ok(plan) = PackagePlan::read(file)
        {
            let package = plan.package_alone();
            planned.extend(Format::ALL.map(|format| file_name(package, format)));
        }
    }
    for (name, path) in found {
        let is_planned = planned.contains(name.strip_suffix(".asc").unwrap_or(&name));
        if is_planned { &mut stale.planned } else { &mut stale.others }.push(path);
    }
    Ok(stale)
}

/// The entries of a directory whose names are text, by name; none where it is not there.
fn listing(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let cannot = |e| Error::io("cannot list", dir, e);
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(cannot)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(cannot)?;
        names.extend(entry.file_name().into_string().ok().map(|name| (name, entry.path())));
    }
    names.sort();
    Ok(names)
}
