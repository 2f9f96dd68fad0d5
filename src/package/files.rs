//! What both writers do with a tree: the members with everything resolved, checked before the first byte
//! is written, and the copying of content.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::Format;
use super::ahead::{CHUNK, Content};
use super::capabilities;
use super::compress::is_compressed;
use super::spec::Package;
use crate::error::{Error, Errors, Result};
use crate::sha256_pair::Sha256;
use crate::tree::{EntryKind, Source, Tree, TreePath};

/// One member of a package.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) path: &'a TreePath,
    /// Permission bits.
    pub(super) mode: u32,
    /// Seconds since 1970, clamped.
    pub(super) mtime: i64,
    /// As libcap reads them; empty where it has none.
    pub(super) capabilities: String,
    pub(super) kind: MemberKind<'a>,
}

impl<'a> Member<'a> {
    /// The content, where it is a file.
    pub(super) fn content(&self) -> Option<Content<'a>> {
        match self.kind {
            MemberKind::File { source, size } => Some(Content { path: self.path, source, size }),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum MemberKind<'a> {
    Dir,
    File {
        source: &'a Source,
        size: u64,
    },
    Symlink(&'a [u8]),
    /// The path that has the content, and its size.
    HardLink {
        to: &'a TreePath,
        size: u64,
    },
}

/// The longest target of a symbolic link that Linux takes.
const LONGEST_LINK: usize = 4095;

/// The members in the order of the tree. Names all that cannot be packaged.
pub(super) fn members<'a>(
    package: &Package,
    tree: &'a Tree,
    format: Format,
) -> Result<Vec<Member<'a>>> {
    let mut members = Vec::with_capacity(tree.len());
    // Of libraries whose mode is another one here.
    let mut modes: BTreeMap<&TreePath, u32> = BTreeMap::new();
    let mut faults = Vec::new();
    let mut fault = |path: &TreePath, what: String| {
        faults.push(Error::failed(format!("package `{}`: `/{path}` {what}", package.name)));
    };
    let clamp = |mtime: Option<i64>| mtime.unwrap_or(package.date).clamp(0, package.date.max(0));
    for (path, entry) in tree.iter() {
        if path.as_bytes().contains(&b'\n') {
            fault(path, "has a line break in its name, which package managers refuse".to_owned());
            continue;
        }
        let mut member = Member {
            path,
            mode: entry.mode & 0o7777,
            mtime: clamp(entry.mtime),
            capabilities: String::new(),
            kind: MemberKind::Dir,
        };
        member.kind = match &entry.kind {
            EntryKind::Dir => MemberKind::Dir,
            EntryKind::File(source) => match source.len() {
                Some(size) => {
                    match capabilities(source) {
                        Ok(text) if text.is_empty() || format == Format::Rpm => {
                            member.capabilities = text;
                        }
                        Ok(text) => {
                            fault(
                                path,
                                format!(
                                    "has the capabilities `{text}`, for which a .deb has no place: write \
                                     an .rpm only, or take them away (setcap -r) and give them in a \
                                     postinst template"
                                ),
                            );
                            continue;
                        }
                        Err(e) => {
                            fault(path, format!("has capabilities that cannot be packaged: {e}"));
                            continue;
                        }
                    }
                    MemberKind::File { source, size }
                }
                None => {
                    fault(path, "is a kpack that has not been built yet".to_owned());
                    continue;
                }
            },
            EntryKind::Symlink(target) => {
                if target.is_empty() || target.len() > LONGEST_LINK || target.contains(&0) {
                    let target = String::from_utf8_lossy(target);
                    fault(
                        path,
                        format!("is a symbolic link to `{target}`, which is no valid target"),
                    );
                    continue;
                }
                MemberKind::Symlink(target)
            }
            EntryKind::HardLink(to) => {
                let target = tree.get_key_value(to).filter(|(to, _)| *to < path);
                let size = target.and_then(|(_, entry)| entry.source()?.len());
                match (target, size) {
                    (Some((to, target)), Some(size)) => {
                        // Names of one file have one mode and one time.
                        member.mode = modes.get(to).copied().unwrap_or(target.mode & 0o7777);
                        member.mtime = clamp(target.mtime);
                        MemberKind::HardLink { to, size }
                    }
                    _ => {
                        fault(
                            path,
                            format!("is a hard link to `/{to}`, which is no file before it"),
                        );
                        continue;
                    }
                }
            }
        };
        // Debian's policy (8.1): libraries are not executable. RPM's tools pass over those that are not.
        let mode = match format {
            Format::Deb => member.mode & !0o111,
            Format::Rpm => member.mode | (member.mode & 0o444) >> 2,
        };
        if let MemberKind::File { source, .. } = &member.kind
            && mode != member.mode
            && is_library(path, source)
        {
            member.mode = mode;
            modes.insert(path, member.mode);
        }
        members.push(member);
    }
    Errors::check(members, faults)
}

/// The capabilities of a program that lies on disk, as libcap reads them.
fn capabilities(source: &Source) -> io::Result<String> {
    let value = source.capabilities()?;
    value.map_or(Ok(String::new()), |value| capabilities::text(&value))
}

/// Bytes that reading all of it will go through.
pub(super) fn work(members: &[Member<'_>]) -> u64 {
    let size = |member: &Member<'_>| match &member.kind {
        MemberKind::File { size, .. } => *size,
        _ => 0,
    };
    members.iter().map(size).sum()
}

/// Whether a member is a library in a directory that the dynamic linker searches by itself or because of
/// another package of the set, or names such a directory: then its cache has to be renewed.
pub(super) fn renews_cache(package: &Package, path: &TreePath) -> bool {
    let parent = path.parent();
    let added = parent.as_ref().is_some_and(|parent| package.linker_dirs.contains(parent));
    let names_directories = parent.is_some_and(|dir| dir.as_bytes() == b"etc/ld.so.conf.d");
    ((added || in_linker_path(path)) && is_library_name(path))
        || (names_directories && path.file_name().ends_with(b".conf"))
}

/// Bytes of files that are compressed already, which a package cannot make smaller.
pub(super) fn compressed_already(members: &[Member<'_>]) -> Result<u64> {
    let mut sum = 0;
    for content in members.iter().filter_map(Member::content) {
        let mut start = Vec::with_capacity(128);
        let read =
            content.source.open().and_then(|reader| reader.take(128).read_to_end(&mut start));
        read.map_err(|e| cannot_read(&content, e))?;
        sum += if is_compressed(&start) { content.size } else { 0 };
    }
    Ok(sum)
}

/// Whether a path is in a directory that the dynamic linker searches by itself.
pub(super) fn in_linker_path(path: &TreePath) -> bool {
    let parent = path.parent();
    is_searched(parent.as_ref().and_then(TreePath::as_str).unwrap_or_default())
}

/// Whether the dynamic linker searches a directory, as `usr/lib`, without being told.
pub fn is_searched(dir: &str) -> bool {
    const DIRECTORIES: [&str; 7] = [
        "lib",
        "lib64",
        "lib/x86_64-linux-gnu",
        "usr/lib",
        "usr/lib64",
        "usr/lib/x86_64-linux-gnu",
        "usr/local/lib",
    ];
    DIRECTORIES.contains(&dir)
}

/// Where debuggers look for symbols.
pub const DEBUG_ROOT: &str = "usr/lib/debug";

/// Whether it is called as libraries are: `librocblas.so.5`.
pub fn is_library_name(path: &TreePath) -> bool {
    let name = path.file_name();
    name.starts_with(b"lib") && name.windows(3).any(|part| part == b".so")
}

/// Whether it is a shared library of this machine, and no program: those begin with an interpreter.
fn is_library(path: &TreePath, source: &Source) -> bool {
    if !is_library_name(path) || matches!(source, Source::Kpack(_) | Source::Kpm(_)) {
        return false;
    }
    // Program headers follow the ELF header; PT_INTERP is among the first.
    let mut head = Vec::with_capacity(1024);
    let read = source.open().and_then(|reader| reader.take(1024).read_to_end(&mut head));
    let interpreter = |header: &[u8]| header[..4] == [3, 0, 0, 0];
    read.is_ok()
        && head.starts_with(b"\x7fELF\x02\x01")
        && head.get(16..20) == Some(&[3, 0, 62, 0])
        && !head.get(64..).unwrap_or_default().chunks_exact(56).any(interpreter)
}

/// The largest files, for the message that a package is too large.
pub(super) fn largest(members: &[Member<'_>]) -> String {
    let mut files: Vec<(u64, &TreePath)> = members
        .iter()
        .filter_map(|member| match &member.kind {
            MemberKind::File { size, .. } => Some((*size, member.path)),
            _ => None,
        })
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    let list: Vec<String> =
        files.iter().take(5).map(|(size, path)| format!("/{path} ({size} bytes)")).collect();
    list.join(", ")
}

/// A failed write to a package.
pub(super) fn cannot_write(package: &Package, format: Format, error: io::Error) -> Error {
    Error::failed(format!("cannot write the {format} of package `{}`", package.name)).because(error)
}

/// Reads the content of a member once, in pieces of bounded size. `buffer` is lent so that it is
/// allocated once; who takes a piece may leave another buffer in its place.
pub(super) fn copy(
    content: &Content<'_>,
    buffer: &mut Vec<u8>,
    mut take: impl FnMut(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut reader = content.source.open().map_err(|e| cannot_read(content, e))?;
    let mut left = content.size;
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK);
        buffer.resize(wanted, 0);
        reader.read_exact(buffer).map_err(|e| cannot_read(content, e))?;
        left -= wanted as u64;
        take(buffer)?;
    }
    longer_than_it_was(content, &mut reader)
}

/// The SHA-256 of a package's file, which has `size` bytes.
pub(super) fn digest(file: &File, size: u64) -> io::Result<[u8; 32]> {
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < size {
        let wanted = usize::try_from(size - at).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact_at(&mut buffer[..wanted], at)?;
        sha256.update(&buffer[..wanted]);
        at += wanted as u64;
    }
    Ok(sha256.finish())
}

/// A failed read of a member's content.
pub(super) fn cannot_read(content: &Content<'_>, error: io::Error) -> Errors {
    match content.source {
        Source::File(input) | Source::Pieces { input, .. } => {
            Error::io("cannot read", input.path(), error)
        }
        _ => {
            let path = content.path;
            Error::failed(format!("cannot read the content of `/{path}`")).because(error)
        }
    }
    .into()
}

/// Refuses a file that has more than it had when the package was planned.
pub(super) fn longer_than_it_was(content: &Content<'_>, reader: &mut dyn Read) -> Result<()> {
    match reader.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(cannot_read(content, io::Error::other("the file is longer than it was"))),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => longer_than_it_was(content, reader),
        Err(e) => Err(cannot_read(content, e)),
    }
}
