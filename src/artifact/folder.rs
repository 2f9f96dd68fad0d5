//! What stands in a folder of artifacts or of shards: what is read, and what is passed over.
//!
//! A directory is read, and so is an archive where artifacts are expected. Plain files (logs, lists of
//! the build) and what is hidden are passed over; a user should hear of it, since an artifact may have
//! a wrong name.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::archive_stem;
use crate::error::{Error, Result};
use crate::tree::read::CHECKSUM;

/// The names in a folder, sorted.
pub(super) struct Folder {
    /// Those that are read.
    pub wanted: Vec<OsString>,
    passed_over: Vec<OsString>,
    /// Links among what is passed over that lead to nothing, whose target may have been wanted.
    pub dangling: Vec<OsString>,
}

/// The fault of a link that leads to nothing.
pub(super) fn dangling(path: &Path) -> Error {
    let target = fs::read_link(path).unwrap_or_default();
    let what = format!("is a link to {}, which cannot be reached", target.display());
    let error = match path.metadata() {
        Err(e) => Error::failed(what).because(e),
        Ok(_) => Error::failed(what),
    };
    error.at(path).hint("mend the link, or remove it: what it leads to would be left out")
}

impl Folder {
    /// Lists a folder of artifacts.
    pub fn of_artifacts(parent: &Path) -> Result<Self> {
        let mut folder = Self::list(parent, |path| {
            let archive = path.file_name().and_then(|name| archive_stem(name.to_str()?));
            path.is_dir() || archive.is_some() && path.is_file()
        })?;
        // A digest belongs to the archive that it is beside.
        let wanted = &folder.wanted;
        folder.passed_over.retain(|name| {
            let of = name.to_str().and_then(|name| name.strip_suffix(CHECKSUM));
            !of.is_some_and(|of| wanted.iter().any(|wanted| wanted == of))
        });
        Ok(folder)
    }

    /// Lists a folder of shards.
    pub fn of_shards(parent: &Path) -> Result<Self> {
        Self::list(parent, Path::is_dir)
    }

    fn list(parent: &Path, wants: impl Fn(&Path) -> bool) -> Result<Self> {
        let cannot = |e| Error::io("cannot read the directory", parent, e);
        let mut folder = Self { wanted: Vec::new(), passed_over: Vec::new(), dangling: Vec::new() };
        for entry in fs::read_dir(parent).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name();
            let hidden = name.as_encoded_bytes().starts_with(b".");
            // A link to a directory counts: shards are often laid together by links.
            let path = parent.join(&name);
            let wanted = !hidden && wants(&path);
            if !hidden && !wanted && path.is_symlink() && path.metadata().is_err() {
                folder.dangling.push(name.clone());
            }
            if wanted { &mut folder.wanted } else { &mut folder.passed_over }.push(name);
        }
        folder.wanted.sort();
        folder.passed_over.sort();
        folder.dangling.sort();
        Ok(folder)
    }
}

/// Archives in folders of artifacts that have no digest beside them, where others have: somebody meant all of
/// them to be checked. Sorted; none where no archive has one.
pub fn without_digest(folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut without = Vec::new();
    let mut some_have = false;
    for folder in folders {
        for name in Folder::of_artifacts(folder)?.wanted {
            let archive = folder.join(&name);
            if !archive.is_file() {
                continue;
            }
            let mut digest = archive.clone().into_os_string();
            digest.push(CHECKSUM);
            if Path::new(&digest).exists() {
                some_have = true;
            } else {
                without.push(archive);
            }
        }
    }
    without.sort();
    Ok(if some_have { without } else { Vec::new() })
}

/// What [`super::read_artifacts`] passes over in the folder `parent`: paths relative to it, sorted.
pub fn passed_over(parent: &Path) -> Result<Vec<PathBuf>> {
    Ok(Folder::of_artifacts(parent)?.passed_over.into_iter().map(PathBuf::from).collect())
}

/// What [`super::read_shards`] passes over in the folder `parent` and in the shards: paths relative to
/// it, sorted.
pub fn passed_over_in_shards(parent: &Path) -> Result<Vec<PathBuf>> {
    let Folder { wanted, passed_over, .. } = Folder::of_shards(parent)?;
    let mut paths: Vec<PathBuf> = passed_over.into_iter().map(PathBuf::from).collect();
    for shard in wanted {
        let in_shard = self::passed_over(&parent.join(&shard))?;
        paths.extend(in_shard.into_iter().map(|name| Path::new(&shard).join(name)));
    }
    paths.sort();
    Ok(paths)
}
