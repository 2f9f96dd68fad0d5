//! Whole packages in the cache: for a run that is repeated on the same files, because it was ended or because only some definitions have changed.
//!
//! The key is made of all that a package is, its version and date among it, and of its files: digests where they are known, else that
//! the file lies where it lay and was not touched. A package is taken in all formats or in none, since all are written
//! from one reading. What is to be signed is always made.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::set::{PackageFile, SetOptions};
use super::spec::{Kind, Package};
use super::{Format, file_name};
use crate::cache::{Cache, Key, Kind as Entry};
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::progress::Monitor;
use crate::tree::{EntryKind, Source, Tree};

/// What is kept beside a package.
#[derive(Debug, Serialize, Deserialize)]
struct Beside {
    installed_size: u64,
    sha256: Option<String>,
    /// Of its archives, in the order of the tree: size and number of kernels, which manifests in other packages state.
    archives: Vec<(u64, u64)>,
}

/// What was looked up in the cache.
#[derive(Debug, Default)]
pub(super) struct Found<'p> {
    /// Files of packages that were taken.
    pub files: Vec<PackageFile>,
    /// What has to be made.
    pub missing: Cow<'p, [Package]>,
    /// What the files of those looked like before they were read, by name of the package. What looked otherwise, or could not be told,
    /// is not kept.
    before: HashMap<String, Key>,
}

/// Takes into `out` what is in the cache.
pub(super) fn take<'p>(
    packages: &'p [Package],
    options: &SetOptions,
    out: &Path,
    jobs: &Jobs,
    monitor: &dyn Monitor,
) -> Result<Found<'p>> {
    let Some(cache) = jobs.cache().filter(|_| options.signer.is_none()) else {
        return Ok(Found { missing: Cow::Borrowed(packages), ..Found::default() });
    };
    let mut taken: Vec<Option<Vec<PackageFile>>> = packages.iter().map(|_| None).collect();
    // Manifests in generic packages state the sizes of the groups' archives.
    for groups in [true, false] {
        let batch: Vec<(usize, &Package)> = (0..)
            .zip(packages)
            .filter(|(_, package)| groups == matches!(package.kind, Kind::Group { .. }))
            .collect();
        let found =
            jobs.drive(&batch, |(_, package)| take_one(cache, package, options, out, monitor));
        for ((number, _), found) in batch.iter().zip(found) {
            taken[*number] = found?;
        }
    }
    let missing = packages.iter().zip(&taken).filter(|(_, taken)| taken.is_none());
    let missing: Vec<Package> = missing.map(|(package, _)| package.clone()).collect();
    let before = missing
        .iter()
        .filter_map(|package| Some((package.name.to_string(), looks(cache, package)?)));
    let before = before.collect();
    let files = taken.into_iter().flatten().flatten().collect();
    Ok(Found { files, missing: Cow::Owned(missing), before })
}

/// What the files of a package look like.
fn looks(cache: &Cache, package: &Package) -> Option<Key> {
    let mut key = cache.key("looks");
    for source in package.tree.iter().filter_map(|(_, entry)| entry.source()) {
        // Manifests are made of archives that are perhaps not there yet, and of nothing else.
        if !matches!(source, Source::Kpm(_)) {
            source.identify(cache, &mut key)?;
        }
    }
    Some(key.finish())
}

fn take_one(
    cache: &Cache,
    package: &Package,
    options: &SetOptions,
    out: &Path,
    monitor: &dyn Monitor,
) -> Result<Option<Vec<PackageFile>>, Error> {
    let Some(keys) = keys(cache, package, options) else { return Ok(None) };
    let mut files = Vec::new();
    let mut archives = Vec::new();
    for (key, (format, _)) in keys.iter().zip(&options.formats) {
        let name = file_name(package, *format);
        let path = out.join(&name);
        let file = File::create_new(&path).map_err(|e| Error::output("cannot make", &path, e))?;
        let found = cache.take(Entry::Package, key, &file, &path)?;
        let beside =
            found.as_ref().and_then(|found| serde_json::from_slice::<Beside>(&found.extra).ok());
        let (Some(found), Some(beside)) = (found, beside) else {
            let made = files.iter().map(|file: &PackageFile| &file.file).chain([&name]);
            for name in made {
                let path = out.join(name);
                fs::remove_file(&path).map_err(|e| Error::output("cannot remove", &path, e))?;
            }
            return Ok(None);
        };
        archives = beside.archives;
        files.push(PackageFile {
            package: package.name.to_string(),
            file: name,
            size: found.size,
            installed_size: beside.installed_size,
            sha256: beside.sha256,
            signature: None,
        });
    }
    for ((_, plan), (size, kernels)) in package.tree.kpacks().zip(archives) {
        plan.set_made(size, kernels);
    }
    monitor.detail(&format!("{} is taken from the cache", package.name));
    Ok(Some(files))
}

/// Keeps what was made of a package.
pub(super) fn keep(
    found: &Found<'_>,
    package: &Package,
    options: &SetOptions,
    files: &[PackageFile],
    out: &Path,
    jobs: &Jobs,
) {
    let Some(cache) = jobs.cache() else { return };
    let looks =
        looks(cache, package).filter(|now| found.before.get(package.name.as_str()) == Some(now));
    let keys = looks.and_then(|_| keys(cache, package, options));
    let archives: Option<Vec<_>> = package
        .tree
        .kpacks()
        .map(|(_, plan)| plan.built().map(|built| (built.size, built.kernel_count)))
        .collect();
    let (Some(keys), Some(archives)) = (keys, archives) else {
        return files.iter().for_each(|_| cache.made(Entry::Package));
    };
    for (key, file) in keys.iter().zip(files) {
        let beside = Beside {
            installed_size: file.installed_size,
            sha256: file.sha256.clone(),
            archives: archives.clone(),
        };
        match serde_json::to_vec(&beside) {
            Ok(beside) => cache.keep(Entry::Package, key, &out.join(&file.file), &beside),
            Err(_) => cache.made(Entry::Package),
        }
    }
}

/// The keys of a package, one for each format. `None` where it is to be signed, or a file of it cannot be told by what is known.
fn keys(cache: &Cache, package: &Package, options: &SetOptions) -> Option<Vec<Key>> {
    if options.signer.is_some() {
        return None;
    }
    let mut key = cache.key("package");
    // All of it but the files, as text: the program is in the key, so that what the text leaves out is the same.
    let mut texts = package.clone();
    texts.tree = Tree::new();
    key.bytes(format!("{texts:?}").as_bytes());
    key.bytes(format!("{:?}", options.templates).as_bytes());
    for (path, entry) in package.tree.iter() {
        key.bytes(path.as_bytes());
        key.number(u64::from(entry.mode));
        key.bytes(format!("{:?}", entry.mtime).as_bytes());
        match &entry.kind {
            EntryKind::Dir => key.bytes(b"directory"),
            EntryKind::Symlink(target) => {
                key.bytes(b"symlink");
                key.bytes(target);
            }
            EntryKind::HardLink(to) => {
                key.bytes(b"link");
                key.bytes(to.as_bytes());
            }
            EntryKind::File(source) => source.identify(cache, &mut key)?,
        }
    }
    let of_format = |(format, how): &(Format, _)| {
        let mut key = key.clone();
        key.bytes(format!("{format:?} {how:?}").as_bytes());
        key.finish()
    };
    Some(options.formats.iter().map(of_format).collect())
}
