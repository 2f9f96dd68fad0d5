//! The packages of a set as a graph of work, for other engines to run: a node for each package, which reads
//! its plan and the files of the input that it is made of, and writes the package in all formats.
//!
//! Planning is done once, for all: a node reads no other input than its own, and knows what only the set
//! as a whole shows (relations, the date). Manifests of archives state the archives' sizes, which are known
//! once these are built: so a node with archives leaves their sizes in a small file beside, and the node of
//! the package with the manifest needs that file, not the archives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::write_packages;
use crate::error::{Error, Errors, Result};
use crate::jobs::Jobs;
use crate::package::planned::PackagePlan;
use crate::package::set::{PackageFile, SetOptions};
use crate::package::spec::{Package, check_name};
use crate::package::{Format, file_name};
use crate::progress::Monitor;
use crate::tree::output::{OutputDir, apart};
use crate::tree::record::{KnownKpack, KnownKpacks, KpackPlaces};
use crate::tree::whole::{NewFile, dir_of};
use crate::tree::{Source, TreePath};

/// A package that is to be made.
#[derive(Debug)]
pub struct Node {
    /// The package's name, unique in the graph; it can be a file name.
    pub name: String,
    /// The plan, as a file has it.
    pub plan: Vec<u8>,
    /// The files of the input that it is made of: those on disk, and archives.
    pub inputs: BTreeSet<PathBuf>,
    /// The nodes whose sizes it needs.
    pub needs: BTreeSet<String>,
    /// The names of the files that it gives.
    pub outputs: BTreeSet<String>,
    /// Whether it leaves the sizes of its archives.
    pub has_archives: bool,
    /// Bytes of the input that making it reads, about: what tells large nodes from small ones.
    pub bytes: u64,
}

/// The graph of a set of packages, by name; `input` is the directory that it was made from. All faults of the packages'
/// texts are reported.
pub fn graph(packages: &[Package], set: &SetOptions, input: &Path) -> Result<Vec<Node>> {
    let mut faults = Vec::new();
    let mut places = KpackPlaces::default();
    for package in packages {
        for (format, _) in &set.formats {
            faults.extend(package.check(*format).err().into_iter().flat_map(Errors::into_vec));
        }
        places.add(package.name.as_str(), &package.tree);
    }
    Errors::check((), faults)?;
    let mut nodes = Vec::new();
    for package in packages {
        let plan = PackagePlan::new(package, &places, &set.formats, &set.templates, input);
        let bytes = plan.to_bytes().map_err(|e| {
            Error::failed(format!("the plan of `{}` cannot be kept", package.name)).because(e)
        })?;
        let sources = package.tree.iter().filter_map(|(_, entry)| entry.source());
        nodes.push(Node {
            name: package.name.to_string(),
            plan: bytes,
            inputs: plan.files(),
            needs: plan.needs().into_iter().map(str::to_owned).collect(),
            outputs: outputs(package, set),
            has_archives: package.tree.kpacks().next().is_some(),
            bytes: sources.map(Source::work).sum(),
        });
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(nodes)
}

fn outputs(package: &Package, set: &SetOptions) -> BTreeSet<String> {
    let mut outputs = BTreeSet::new();
    for (format, _) in &set.formats {
        let name = file_name(package, *format);
        if set.signer.is_some() && set.sign_debs && *format == Format::Deb {
            outputs.insert(format!("{name}.asc"));
        }
        outputs.insert(name);
    }
    outputs
}

/// Shares nodes out to at most `workers`, the largest first, each to whoever has least so far: lists of
/// places in `nodes`, sorted. None is empty.
pub fn balance(nodes: &[&Node], workers: usize) -> Vec<Vec<usize>> {
    /// What a node costs beside its bytes, as bytes: starting, planning, a small package.
    const EACH: u64 = 8 << 20;
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by(|&a, &b| (nodes[b].bytes, &nodes[a].name).cmp(&(nodes[a].bytes, &nodes[b].name)));
    let mut bins: Vec<(u64, Vec<usize>)> = vec![(0, Vec::new()); workers.min(nodes.len())];
    for place in order {
        if let Some((load, bin)) = bins.iter_mut().min_by_key(|(load, _)| *load) {
            *load += nodes[place].bytes + EACH;
            bin.push(place);
        }
    }
    let sorted = |(_, mut bin): (u64, Vec<usize>)| {
        bin.sort_unstable();
        bin
    };
    bins.into_iter().map(sorted).collect()
}

/// How plans are carried out.
#[derive(Debug)]
pub struct Make<'a> {
    /// The plans' files.
    pub plans: &'a [PathBuf],
    /// Where packages go, beside others.
    pub output_dir: &'a Path,
    /// Where the files with sizes are and go, each called by its package.
    pub sizes_dir: &'a Path,
    /// Whether the input's files must have the times that they had when they were planned with.
    pub times: bool,
}

/// Sizes of a package's archives, as a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SizesFile {
    /// By where each is installed.
    archives: BTreeMap<String, SizesOf>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SizesOf {
    size: u64,
    kernel_count: u64,
}

/// The name of the file with a package's sizes.
pub fn sizes_name(package: &str) -> String {
    format!("{package}.json")
}

/// A file of sizes is small.
const SIZES_MAX: u64 = 64 << 20;

fn read_sizes(dir: &Path, package: &str, known: &mut KnownKpacks) -> Result<(), Error> {
    let path = dir.join(sizes_name(package));
    if package.contains('/') || package.starts_with('.') {
        return Err(Error::failed(format!(
            "a plan needs the sizes of `{package}`, which is no package"
        )));
    }
    let file = File::open(&path).map_err(|e| {
        Error::io("cannot read the sizes of archives in", &path, e)
            .hint(format!("make `{package}` first, in this run or into the same --sizes-dir"))
    })?;
    let bad = |e: serde_json::Error| {
        Error::failed("has no sizes of archives")
            .at(&path)
            .because(e)
            .hint(format!("remove it and make `{package}` again"))
    };
    let file: SizesFile =
        serde_json::from_reader(std::io::BufReader::new(std::io::Read::take(file, SIZES_MAX)))
            .map_err(bad)?;
    for (place, of) in file.archives {
        let place = TreePath::new(&place)
            .map_err(|e| Error::failed("names no place").at(&path).because(e))?;
        let SizesOf { size, kernel_count } = of;
        known.insert(place, KnownKpack::Built { size, kernel_count });
    }
    Ok(())
}

/// Writes the packages of plans. A plan that needs the sizes of another of them comes after it.
/// `options` gives what plans do not have: the memory bound and who signs.
pub fn make(
    making: &Make,
    options: SetOptions,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Vec<PackageFile>> {
    let mut plans = Vec::new();
    let mut faults = Vec::new();
    for path in making.plans {
        let read = File::open(path).map_err(Into::into).and_then(PackagePlan::read);
        match read {
            Ok(plan) => plans.push((path, plan)),
            Err(e) => faults.push(
                Error::failed("cannot be carried out")
                    .at(path)
                    .because(e)
                    .hint("make the plan again, with `gfxpack plan` of this version"),
            ),
        }
    }
    Errors::check((), faults)?;
    plans.sort_by(|(_, a), (_, b)| a.name().cmp(b.name()));
    plans.dedup_by(|(_, a), (_, b)| a.name() == b.name());
    let Some((first, plan)) = plans.first() else {
        return Err(Error::usage("no plan is named").into());
    };
    let bad = |path: &Path, e| -> Errors { Error::failed("is no plan").at(path).because(e).into() };
    let options = SetOptions {
        formats: plan.formats().map_err(|e| bad(first, e))?,
        templates: plan.templates(),
        ..options
    };
    if let Some(signer) = &options.signer
        && options.formats.iter().any(|(format, _)| *format == Format::Rpm)
    {
        signer.check_for_rpm()?;
    }
    // They become parts of paths.
    let faults = plans.iter().flat_map(|(path, plan)| {
        let names = options.formats.iter().map(|(format, _)| check_name(plan.name(), *format));
        let fault = names.filter_map(Result::err).next();
        fault.map(|e| Error::failed("is no plan").at(path).because(e))
    });
    Errors::check((), faults.collect())?;
    let label = match plans.len() {
        1 => plan.name().to_owned(),
        n => format!("{}+{}", plan.name(), n - 1),
    };
    let files: BTreeSet<PathBuf> = plans.iter().flat_map(|(_, plan)| plan.files()).collect();
    let directories = plans.iter().map(|(_, plan)| plan.input());
    let inputs: BTreeSet<&Path> = files.iter().map(PathBuf::as_path).chain(directories).collect();
    let inputs: Vec<&Path> = inputs.into_iter().collect();
    apart(making.output_dir, &inputs)?;
    apart(making.sizes_dir, &inputs)?;
    let output = OutputDir::create_among(making.output_dir, &label)?;
    let names: BTreeSet<String> = plans.iter().map(|(_, plan)| plan.name().to_owned()).collect();
    // Archives before manifests that list them.
    let (after, now): (Vec<_>, Vec<_>) =
        plans.iter().partition(|(_, plan)| plan.needs().iter().any(|need| names.contains(*need)));
    let mut known = KnownKpacks::new();
    let mut packages = Vec::new();
    for (path, plan) in now.into_iter().chain(after) {
        for need in plan.needs().into_iter().filter(|need| !names.contains(*need)) {
            read_sizes(making.sizes_dir, need, &mut known)?;
        }
        if plan.formats().map_err(|e| bad(path, e))? != options.formats {
            return Err(Error::usage("has other formats or compressions than the plans beside it")
                .at(path)
                .hint("name plans of one run of `gfxpack plan`")
                .into());
        }
        let package = plan.package(making.times, &known).map_err(|e| bad(path, e))?;
        for (place, plan) in package.tree.kpacks() {
            known.insert(place.clone(), KnownKpack::Planned(Arc::clone(plan)));
        }
        packages.push(package);
    }
    let files = write_packages(&packages, &options, output, jobs, monitor)?;
    for package in &packages {
        let archives: BTreeMap<String, SizesOf> = package
            .tree
            .kpacks()
            .filter_map(|(place, plan)| {
                let built = plan.built()?;
                let (size, kernel_count) = (built.size, built.kernel_count);
                let place = String::from_utf8_lossy(place.as_bytes()).into_owned();
                Some((place, SizesOf { size, kernel_count }))
            })
            .collect();
        if archives.is_empty() {
            continue;
        }
        let sizes = SizesFile { archives };
        let text = serde_json::to_string_pretty(&sizes).expect("keys are text") + "\n";
        // A file that is as it was keeps its time: then nobody who needs it has to be made again.
        let path = making.sizes_dir.join(sizes_name(package.name.as_str()));
        if fs::read(&path).ok().is_none_or(|there| there != text.as_bytes()) {
            write_whole(&path, text.as_bytes())?;
        }
    }
    Ok(files)
}

/// Writes a file under a temporary name beside its place and renames it. Its directory is made.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let dir = dir_of(path);
    fs::create_dir_all(dir).map_err(|e| Error::io("cannot make", dir, e))?;
    let write = || {
        let mut new = NewFile::create(path)?;
        new.file().write_all(bytes)?;
        new.replace()
    };
    write().map_err(|e| Error::output("cannot write", path, e))
}
