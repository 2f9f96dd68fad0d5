//! The file list of an `.rpm`: what the header's arrays say of each file, in rpm's order.

use std::collections::HashMap;
use std::io::Read;

use super::cpio::Stat;
use crate::error::{Error, Result};
use crate::package::files::{Member, MemberKind};
use crate::tree::{Source, TreePath};

/// Directories of the system: never owned, since their own packages have them. `%` is any one component.
const SYSTEM: [&str; 40] = [
    "etc",
    "etc/ld.so.conf.d",
    "etc/profile.d",
    "etc/OpenCL",
    "etc/OpenCL/vendors",
    "lib",
    "lib64",
    "opt",
    "run",
    "usr",
    "usr/bin",
    "usr/include",
    "usr/lib",
    "usr/lib/debug",
    "usr/lib/debug/.build-id",
    "usr/lib/modules-load.d",
    "usr/lib/pkgconfig",
    "usr/lib/sysusers.d",
    "usr/lib/tmpfiles.d",
    "usr/lib/udev",
    "usr/lib/udev/rules.d",
    "usr/lib64",
    "usr/lib64/cmake",
    "usr/lib64/pkgconfig",
    "usr/libexec",
    "usr/local",
    "usr/sbin",
    "usr/share",
    "usr/share/bash-completion",
    "usr/share/bash-completion/completions",
    "usr/share/cmake",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/licenses",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/man/%",
    "usr/share/pkgconfig",
    "usr/src",
    "var",
];

/// One file of the list.
#[derive(Debug)]
pub(super) struct Listed<'a> {
    pub(super) path: &'a TreePath,
    pub(super) stat: Stat,
    pub(super) content: Content<'a>,
    pub(super) class: &'static str,
    /// 2 for 64-bit ELF files: what rpm tells the libraries of two architectures apart by.
    pub(super) color: u32,
    /// Index of the set of names that it belongs to, where it has several.
    pub(super) set: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Content<'a> {
    Dir,
    File(&'a Source),
    Symlink(&'a str),
}

impl Listed<'_> {
    /// `RPMTAG_FILEFLAGS`.
    pub(super) fn flags(&self) -> u32 {
        const CONFIG_NOREPLACE: u32 = 1 | 1 << 4;
        const DOC: u32 = 1 << 1;
        const LICENSE: u32 = 1 << 7;
        if matches!(self.content, Content::Dir) {
            return 0;
        }
        let path = self.path.as_bytes();
        match path {
            _ if path.starts_with(b"usr/share/licenses/") => LICENSE,
            _ if path.starts_with(b"usr/share/doc/") => DOC,
            _ if path.starts_with(b"usr/share/man/") => DOC,
            _ if path.starts_with(b"etc/") => CONFIG_NOREPLACE,
            _ => 0,
        }
    }

    /// Directory (with slashes on both sides) and name.
    pub(super) fn split(&self) -> (String, &str) {
        let path = self.path.as_str().expect("names were checked to be UTF-8");
        match path.rsplit_once('/') {
            Some((dir, name)) => (format!("/{dir}/"), name),
            None => ("/".to_owned(), path),
        }
    }
}

fn is_system(path: &TreePath) -> bool {
    let path = path.as_str().unwrap_or_default();
    SYSTEM.iter().any(|known| match known.strip_suffix("/%") {
        None => path == *known,
        Some(dir) => path
            .strip_prefix(dir)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|rest| !rest.contains('/')),
    })
}

/// The list, sorted by path as bytes, without the system's directories.
pub(super) fn list<'a>(members: &'a [Member<'a>]) -> Result<Vec<Listed<'a>>> {
    let mut members: Vec<&Member<'_>> = members
        .iter()
        .filter(|member| !(matches!(member.kind, MemberKind::Dir) && is_system(member.path)))
        .collect();
    members.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));

    // Names of one file share the inode, which is the number of the first of them.
    let target = |member: &Member<'a>| match member.kind {
        MemberKind::HardLink { to, .. } => to,
        _ => member.path,
    };
    let sources: HashMap<&TreePath, &Source> = members
        .iter()
        .filter_map(|member| match member.kind {
            MemberKind::File { source, .. } => Some((member.path, source)),
            _ => None,
        })
        .collect();
    let mut first: HashMap<&TreePath, (usize, u32)> = HashMap::new();
    for (i, member) in members.iter().enumerate() {
        first.entry(target(member)).or_insert((i, 0)).1 += 1;
    }

    let mut list = Vec::with_capacity(members.len());
    for (i, member) in members.iter().enumerate() {
        let (set, links) = first[target(member)];
        let (kind, size, content) = match member.kind {
            MemberKind::Dir => (0o040_000, 0, Content::Dir),
            MemberKind::File { source, size } => (0o100_000, size, Content::File(source)),
            MemberKind::HardLink { to, size } => (0o100_000, size, Content::File(sources[to])),
            MemberKind::Symlink(target) => {
                let text = std::str::from_utf8(target).expect("targets were checked to be UTF-8");
                (0o120_000, target.len() as u64, Content::Symlink(text))
            }
        };
        let mode = if kind == 0o120_000 { 0o777 } else { member.mode };
        let (class, color) = classify(member.path, content, size)?;
        let number = |n: usize| u32::try_from(n).expect("a header of 256 MiB has fewer files");
        list.push(Listed {
            path: member.path,
            stat: Stat {
                index: number(i),
                inode: number(set) + 1,
                mode: kind | mode,
                links,
                // Beyond 2106, which a date in a header cannot say.
                mtime: u32::try_from(member.mtime).unwrap_or(u32::MAX),
                size,
            },
            content,
            class,
            color,
            set: (links > 1).then_some(set),
        });
    }
    Ok(list)
}

/// What `RPMTAG_FILECLASS` says: the beginning of what libmagic would, told from the first bytes.
fn classify(path: &TreePath, content: Content<'_>, size: u64) -> Result<(&'static str, u32)> {
    let source = match content {
        Content::Dir => return Ok(("directory", 0)),
        Content::Symlink(_) => return Ok(("", 0)),
        Content::File(_) if size == 0 => return Ok(("empty", 0)),
        Content::File(source) => source,
    };
    let mut start = Vec::with_capacity(512);
    source
        .open()
        .and_then(|reader| reader.take(512).read_to_end(&mut start))
        .map_err(|e| Error::failed(format!("cannot read the content of `/{path}`")).because(e))?;
    let elf = start.strip_prefix(b"\x7fELF").filter(|_| start.len() >= 64);
    Ok(match elf {
        Some([2, 1, ..]) => {
            let class = match (start[16], start[18]) {
                (_, 224) => "ELF 64-bit LSB shared object, AMD GPU architecture version 1",
                (1, _) => "ELF 64-bit LSB relocatable, x86-64, version 1 (SYSV)",
                (2, _) => "ELF 64-bit LSB executable, x86-64, version 1 (SYSV)",
                (3, _) => "ELF 64-bit LSB shared object, x86-64, version 1 (SYSV)",
                _ => "ELF 64-bit LSB",
            };
            // Device code is no library of the host's architecture.
            (class, if start[18] == 224 { 0 } else { 2 })
        }
        _ if start.starts_with(b"#!/bin/sh\n") => ("POSIX shell script, ASCII text executable", 0),
        _ if start.starts_with(b"#!") => ("script text executable", 0),
        _ if start.iter().all(|b| matches!(b, b' '..=b'~' | b'\n' | b'\r' | b'\t')) => {
            ("ASCII text", 0)
        }
        // rpmbuild says nothing of what libmagic calls `data`.
        _ => ("", 0),
    })
}
