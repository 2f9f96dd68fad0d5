//! Single files: whole or not at all. For directories of them see [`super::output`].

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// A file that is made under a name of its own beside its place, and takes its place when it is whole. Of two runs that
/// make one file at a time, each writes its own. Where it does not come to that, it is removed.
#[derive(Debug)]
pub struct NewFile<'a> {
    part: NamedTempFile,
    path: &'a Path,
}

impl<'a> NewFile<'a> {
    /// Begins the file `path`, whose directory has to be there. Its permissions are those of any new file.
    pub fn create(path: &'a Path) -> io::Result<Self> {
        let part = tempfile::Builder::new()
            .prefix(".gfxpack-")
            // The umask is applied to them.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(dir_of(path))?;
        Ok(Self { part, path })
    }

    /// The file, to be written to.
    pub fn file(&mut self) -> &mut File {
        self.part.as_file_mut()
    }

    /// Puts it into its place, where another file may be.
    pub fn replace(self) -> io::Result<()> {
        self.part.persist(self.path).map(drop).map_err(|e| e.error)
    }

    /// Puts it into its place; fails with [`io::ErrorKind::AlreadyExists`] where something is there.
    pub fn place(self) -> io::Result<()> {
        self.part.persist_noclobber(self.path).map(drop).map_err(|e| e.error)
    }
}

/// The directory that a path is in.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
