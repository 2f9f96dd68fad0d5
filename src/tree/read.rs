//! Reading a directory into a tree: names and `lstat` data only, no contents.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::{Entry, EntryKind, InputFile, Source, Tree, TreePath};
use crate::error::{Error, Errors, Result};
use crate::progress::Monitor;

/// The ending of the file beside an archive that has its digest.
pub const CHECKSUM: &str = super::members::CHECKSUM;

/// Reads the directory `root` with all that is in it. Symbolic links are not followed; several names
/// of one file become hard links to the first; what is neither directory, file nor link is refused.
/// Every unreadable directory or odd file is reported, not only the first.
pub fn directory(root: &Path) -> Result<Tree> {
    let mut walk = Walk { tree: Tree::new(), faults: Vec::new(), inodes: BTreeMap::new() };
    walk.directory(root, None);
    Errors::check(walk.tree, walk.faults)
}

struct Walk {
    tree: Tree,
    faults: Vec<Error>,
    /// First path of each file that has several.
    inodes: BTreeMap<(u64, u64), TreePath>,
}

impl Walk {
    fn directory(&mut self, dir: &Path, at: Option<&TreePath>) {
        let listing = fs::read_dir(dir).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut names = match listing {
            Ok(listing) => listing.into_iter().map(|e| e.file_name()).collect::<Vec<_>>(),
            Err(e) => {
                self.faults.push(Error::io("cannot read the directory", dir, e));
                return;
            }
        };
        names.sort();
        for name in names {
            let path = dir.join(&name);
            let below = TreePath::new(name.as_bytes()).expect("a name of a directory entry is one");
            let below = at.map_or(below.clone(), |at| at.join(&below));
            if let Err(fault) = self.entry(&path, &below) {
                self.faults.push(fault);
            }
        }
    }

    fn entry(&mut self, path: &Path, at: &TreePath) -> Result<(), Error> {
        let meta = fs::symlink_metadata(path).map_err(|e| Error::io("cannot stat", path, e))?;
        let kind = if meta.is_dir() {
            EntryKind::Dir
        } else if meta.is_symlink() {
            let target =
                fs::read_link(path).map_err(|e| Error::io("cannot read the link", path, e))?;
            EntryKind::Symlink(target.as_os_str().as_bytes().to_vec())
        } else if meta.is_file() {
            let inode = (meta.dev(), meta.ino());
            match self.inodes.get(&inode) {
                Some(first) => EntryKind::HardLink(first.clone()),
                None => {
                    if meta.nlink() > 1 {
                        self.inodes.insert(inode, at.clone());
                    }
                    EntryKind::File(Source::File(Arc::new(InputFile::new(path.to_owned(), &meta))))
                }
            }
        } else {
            return Err(Error::failed(
                "is a device, socket or pipe (expected a file, directory or link)",
            )
            .at(path)
            .hint("remove it from the artifact: it cannot be packaged"));
        };
        let entry = Entry { mode: meta.mode() & 0o7777, mtime: Some(meta.mtime()), kind };
        let is_dir = entry.is_dir();
        self.tree.insert(at.clone(), entry).expect("a directory lists each name once");
        if is_dir {
            self.directory(path, Some(at));
        }
        Ok(())
    }
}

/// Reads the archive at `path` (`.tar.zst`, `.tar.xz` or `.tar.gz`) with all that is in it, as a
/// stream and without unpacking it; the tree is that of the directory it was made from. A file
/// `{path}.sha256sum` beside it is checked. With `digests`, [`InputFile::digest`] is known of its
/// members. `monitor` is told of each byte of the archive that was read; the phase is the caller's.
pub fn archive(path: &Path, digests: bool, monitor: &dyn Monitor) -> Result<Tree> {
    super::members::archive(path, digests, monitor)
}
