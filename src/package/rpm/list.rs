//! The file list of an `.rpm`: what the header's arrays say of each file, in rpm's order.

use std::collections::HashMap;

use super::cpio::Stat;
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
    /// The name under which the tree has the content: of a file with several names the first.
    pub(super) file: &'a TreePath,
    pub(super) stat: Stat,
    pub(super) content: Content<'a>,
    /// As libcap reads them.
    pub(super) capabilities: &'a str,
    /// Index of the set of names that it belongs to, where it has several.
    pub(super) set: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Content<'a> {
    Dir,
    File(&'a Source),
    Symlink(&'a [u8]),
}

impl<'a> Listed<'a> {
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
    pub(super) fn split(&self) -> (Vec<u8>, &'a [u8]) {
        let path = self.path.as_bytes();
        match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => ([b"/", &path[..=slash]].concat(), &path[slash + 1..]),
            None => (b"/".to_vec(), path),
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
pub(super) fn list<'a>(members: &'a [Member<'a>]) -> Vec<Listed<'a>> {
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
    let sources: HashMap<&TreePath, (&Source, &str)> = members
        .iter()
        .filter_map(|member| match member.kind {
            MemberKind::File { source, .. } => {
                Some((member.path, (source, member.capabilities.as_str())))
            }
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
            MemberKind::HardLink { to, size } => (0o100_000, size, Content::File(sources[to].0)),
            MemberKind::Symlink(target) => {
                (0o120_000, target.len() as u64, Content::Symlink(target))
            }
        };
        let mode = if kind == 0o120_000 { 0o777 } else { member.mode };
        let number = |n: usize| u32::try_from(n).expect("a header of 256 MiB has fewer files");
        list.push(Listed {
            path: member.path,
            file: target(member),
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
            capabilities: sources.get(target(member)).map_or("", |(_, capabilities)| capabilities),
            set: (links > 1).then_some(set),
        });
    }
    list
}

/// `RPMTAG_CLASSDICT`: the beginnings of what libmagic says. All of them are in each package, so that the header's length is
/// known before the first file is read.
pub(super) const CLASSES: [&str; 10] = [
    // rpmbuild says nothing of links and of what libmagic calls `data`.
    "",
    "directory",
    "empty",
    "ASCII text",
    "POSIX shell script, ASCII text executable",
    "script text executable",
    "ELF 64-bit LSB shared object, x86-64, version 1 (SYSV)",
    "ELF 64-bit LSB executable, x86-64, version 1 (SYSV)",
    "ELF 64-bit LSB relocatable, x86-64, version 1 (SYSV)",
    "ELF 64-bit LSB shared object, AMD GPU architecture version 1",
];

/// What a file's first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Class {
    /// Index in [`CLASSES`].
    pub(super) index: u32,
    /// 2 for 64-bit ELF files: what rpm tells the libraries of two architectures apart by.
    pub(super) color: u32,
}

impl Class {
    /// The class of a directory, a link, or an empty file.
    pub(super) fn of(file: &Listed<'_>) -> Self {
        let index = match file.content {
            Content::Dir => 1,
            Content::File(_) if file.stat.size == 0 => 2,
            _ => 0,
        };
        Self { index, color: 0 }
    }

    /// The class of a file that begins like this; 512 bytes are looked at.
    pub(super) fn of_content(start: &[u8]) -> Self {
        let start = &start[..start.len().min(512)];
        let (index, color) = match start {
            // Class, data and, at 16 and 18, type and machine.
            [0x7f, b'E', b'L', b'F', 2, 1, ..] if start.len() >= 64 => match (start[16], start[18])
            {
                // Device code is no library of the host's architecture.
                (_, 224) => (9, 0),
                (1, _) => (8, 2),
                (2, _) => (7, 2),
                _ => (6, 2),
            },
            [b'#', b'!', b'/', b'b', b'i', b'n', b'/', b's', b'h', b'\n', ..] => (4, 0),
            [b'#', b'!', ..] => (5, 0),
            _ if start.iter().all(|b| matches!(b, b' '..=b'~' | b'\n' | b'\r' | b'\t')) => (3, 0),
            _ => (0, 0),
        };
        Self { index, color }
    }
}
