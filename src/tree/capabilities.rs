//! The extended attribute of programs with capabilities, which files keep on their way: what is in it is the matter of
//! [`package`](crate::package), whose `.rpm` has it as text.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{XattrFlags, fsetxattr, getxattr};
use rustix::io::Errno;

use super::Source;

const ATTRIBUTE: &str = "security.capability";

/// The attribute of a file on disk; `None` where it has none, or the file system has no such attributes.
pub(super) fn of_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // The longest that Linux has takes 24 bytes.
    let mut value = [0; 64];
    match getxattr(path, ATTRIBUTE, &mut value) {
        Ok(len) => Ok(Some(value[..len].to_vec())),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Gives a file that was written the attribute of what it was made of.
pub(super) fn set(file: &File, source: &Source) -> io::Result<()> {
    let Some(value) = source.capabilities()? else { return Ok(()) };
    fsetxattr(file, ATTRIBUTE, &value, XattrFlags::empty()).map_err(|e| {
        let why = io::Error::from(e);
        io::Error::new(
            why.kind(),
            format!(
                "its capabilities (setcap) cannot be kept: {why}; root can, where the file system has extended attributes, \
                 and `build` needs no file on disk for them"
            ),
        )
    })
}
