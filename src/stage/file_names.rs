//! Names that file systems have no room for while a package is unpacked. Archives of the input can have such names, and
//! those of kernel archives are made of prefixes and file names.
//!
//! dpkg unpacks `name` as `name.dpkg-new`, rpm as `name;` and eight digits, and both rename it then: a name of 247 bytes,
//! which Linux takes by itself, stops the installation (tried with dpkg 1.21 and rpm 4.18).

use super::archives::is_archive;
use crate::error::{Error, Errors, Result};
use crate::package::spec::Package;
use crate::tree::{EntryKind, Source, TreePath};

/// Bytes that dpkg and rpm add to a name while they unpack it.
const ADDED: usize = 9;
/// Linux takes names of 255 bytes.
const MOST_OF_NAME: usize = 255 - ADDED;
/// And paths of 4095.
const MOST_OF_PATH: usize = 4095 - ADDED;

/// Refuses packages that cannot be unpacked because of the length of a name or path in them. What lies below such a path
/// is not named as well.
pub(super) fn check(packages: &[Package]) -> Result<()> {
    let mut faults = Vec::new();
    for package in packages {
        for (path, entry) in package.tree.iter() {
            let fault = match (name_length(path), path_length(path)) {
                (found, _) if found > MOST_OF_NAME => {
                    let fault = too_long(&format!("the name of `/{path}`"), found, MOST_OF_NAME);
                    match &entry.kind {
                        EntryKind::File(Source::File(input) | Source::Pieces { input, .. }) => {
                            fault.at(input.path())
                        }
                        _ => fault,
                    }
                }
                (_, found) if found > MOST_OF_PATH => {
                    if path.parent().is_some_and(|dir| path_length(&dir) > MOST_OF_PATH) {
                        continue;
                    }
                    let begin: String = path.to_string().chars().take(60).collect();
                    too_long(&format!("a path that begins with `/{begin}`"), found, MOST_OF_PATH)
                }
                _ => continue,
            };
            faults.push(fault.of(format!("package `{}`", package.name)).hint(if is_archive(path) {
                "names of kernel archives are made of the artifact's name and, by --kpack-scope, the prefix and the \
                 library's path: `prefix` makes shorter ones than `binary`, and `component` shorter ones than `prefix`"
            } else {
                "dpkg and rpm add 9 bytes while they unpack it, and then the system refuses it: shorten the name, or leave \
                 the file out with `exclude`"
            }));
        }
    }
    Errors::check((), faults)
}

fn name_length(path: &TreePath) -> usize {
    path.file_name().len()
}

fn path_length(path: &TreePath) -> usize {
    path.as_bytes().len() + 1
}

fn too_long(what: &str, found: usize, most: usize) -> Error {
    let limit = format!("package managers can unpack {most} at the most");
    Error::failed(format!("{what} has {found} bytes, and {limit}"))
}
