//! Reading an archive into a tree: one pass, in which each member's place is noted and what planning
//! needs of it is kept ([`super::keep`]).
//!
//! The tree is what unpacking the archive would give, so whatever would write outside of it, or give
//! another tree with another unpacker, is refused. Memory is bounded whatever the archive claims.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::input::{ArchiveFile, Member as InputMember};
use super::keep::keep;
use super::{Entry, EntryKind, InputFile, Source, Tree, TreePath};
use crate::error::{Error, Result};
use crate::progress::Monitor;
use crate::tarball::decode::{Decoded, Format};
use crate::tarball::{Member, MemberKind, Members, TarError};

/// What the names in an archive may take in memory, with what belongs to each.
const NAMES_MAX: usize = 96 << 20;

/// What an entry takes beside its name, roughly.
const ENTRY: usize = 300;

/// Small files that stages read as a whole are held: manifests, at the top and of kpack archives.
const WHOLE_MAX: u64 = 1 << 20;
const WHOLE_IN_ALL: u64 = 8 << 20;

/// The ending of the file beside an archive that has its digest.
pub(super) const CHECKSUM: &str = ".sha256sum";

/// Reads the archive at `path`; where a file `{path}.sha256sum` is beside it, its bytes are checked
/// against that. With `digests`, each member's content is hashed on the way, so that the files of
/// several archives can be compared without reading them again. The monitor is told of the compressed
/// bytes.
pub(super) fn archive(path: &Path, digests: bool, monitor: &dyn Monitor) -> Result<Tree> {
    let format = path.file_name().and_then(|name| Format::of_name(name.to_str()?));
    let Some((_, format)) = format else {
        return Err(Error::usage("is no archive (expected .tar.zst, .tar.xz or .tar.gz)")
            .at(path)
            .into());
    };
    let expected = checksum(path)?;
    let cannot = |e| Error::io("cannot read", path, e);
    let archive = Arc::new(ArchiveFile::new(path, format).map_err(cannot)?);
    let stream = archive.open(expected.is_some()).map_err(cannot)?;
    let mut reading = Reading {
        archive,
        digests,
        members: Members::new(Told { stream, monitor, told: 0 }),
        tree: Tree::new(),
        listed: BTreeSet::new(),
        first_names: BTreeMap::new(),
        names: 0,
        whole: 0,
    };
    while let Some(member) = reading.members.next_member().map_err(|e| damaged(path, e))? {
        reading.member(&member)?;
    }
    let Reading { members, mut tree, first_names, .. } = reading;
    if let (Some(expected), Some(found)) = (expected, members.into_inner().stream.digest()) {
        check(path, &expected, &found)?;
    }
    first_by_path(&mut tree, first_names);
    Ok(tree)
}

/// The fault of an archive whose first bytes say that it is of another format than its name. Asked where it
/// cannot be read, so that a good archive is opened once.
fn other_format(path: &Path) -> Option<Error> {
    let (_, format) = Format::of_name(path.file_name()?.to_str()?)?;
    let mut begin = Vec::new();
    File::open(path).ok()?.take(512).read_to_end(&mut begin).ok()?;
    let (what, ending) = format.other(&begin)?;
    let hint = match ending {
        "" => "pack it again as .tar.zst, .tar.xz or .tar.gz".to_owned(),
        ending => format!("let its name end in {ending}"),
    };
    let fault = format!("is {what}, though its name says {format}");
    Some(Error::failed(fault).at(path).hint(hint))
}

fn damaged(path: &Path, e: TarError) -> Error {
    if let Some(other) = other_format(path) {
        return other;
    }
    let hint = match &e {
        TarError::Field { .. } => {
            "pack the artifact again, as with `tar --format=pax --sort=name` and zstd"
        }
        _ => "the archive was cut off or damaged: copy or build it again",
    };
    Error::failed("is no archive that can be used").at(path).because(e).hint(hint)
}

/// The digest that the file beside the archive states.
fn checksum(archive: &Path) -> Result<Option<String>, Error> {
    let mut path = archive.as_os_str().to_owned();
    path.push(CHECKSUM);
    let path = PathBuf::from(path);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("cannot read", &path, e)),
    };
    let mut text = Vec::new();
    file.take(16 << 10).read_to_end(&mut text).map_err(|e| Error::io("cannot read", &path, e))?;
    let malformed = |found: String| {
        Error::failed(format!(
            "{found} (expected 64 hex digits, and the archive's name or nothing)"
        ))
        .at(&path)
        .hint("make it with `sha256sum ARCHIVE > ARCHIVE.sha256sum`")
    };
    let mut lines = text.split(|&b| b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(malformed("does not have one line".into()));
    };
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (digest, name) = line.split_at(end);
    if digest.len() != 64 || !digest.iter().all(u8::is_ascii_hexdigit) {
        let shown: String = digest[..end.min(80)].escape_ascii().to_string();
        return Err(malformed(format!("begins with `{shown}`, which is no SHA-256")));
    }
    // Names follow two blanks, or a blank and an asterisk.
    let name = name.trim_ascii_start();
    let name = name.strip_prefix(b"*").unwrap_or(name);
    let last = name.rsplit(|&b| b == b'/').next().unwrap_or_default();
    if !name.is_empty() && archive.file_name().is_some_and(|own| own.as_bytes() != last) {
        return Err(malformed(format!("is for another file, `{}`", String::from_utf8_lossy(name))));
    }
    Ok(Some(String::from_utf8_lossy(digest).to_ascii_lowercase()))
}

fn check(path: &Path, expected: &str, found: &[u8; 32]) -> Result<(), Error> {
    let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
    if found == expected {
        return Ok(());
    }
    let message = format!("has the SHA-256 {found}, but {CHECKSUM} beside it says {expected}");
    Err(Error::failed(message).at(path).hint(
        "the archive was cut off or damaged, or the digest is an older one's: copy both again",
    ))
}

/// A stream whose progress is told to a monitor.
struct Told<'a> {
    stream: Decoded,
    monitor: &'a dyn Monitor,
    told: u64,
}

impl Read for Told<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(buf)?;
        let taken = self.stream.taken();
        if taken > self.told {
            self.monitor.advance(taken - self.told);
            self.told = taken;
        }
        Ok(n)
    }
}

struct Reading<'a> {
    archive: Arc<ArchiveFile>,
    digests: bool,
    members: Members<Told<'a>>,
    tree: Tree,
    /// Directories that the archive lists; others come with what is in them.
    listed: BTreeSet<TreePath>,
    /// For each hard link the name with the content.
    first_names: BTreeMap<TreePath, TreePath>,
    names: usize,
    whole: u64,
}

impl Reading<'_> {
    fn member(&mut self, member: &Member) -> Result<(), Error> {
        let root = self.archive.path().to_owned();
        let bad = |e| damaged(&root, e);
        let is_root = member.name.iter().all(|b| b"./".contains(b))
            && !member.name.windows(2).any(|two| two == b"..")
            && !member.name.starts_with(b"/");
        if is_root && member.kind == MemberKind::Dir {
            return Ok(());
        }
        let path = TreePath::new(&member.name)
            .map_err(|e| bad(member.fault("name", e.to_string(), "a path inside the artifact")))?;
        let before = self.tree.len();
        let entry = match &member.kind {
            MemberKind::Dir => {
                if !self.listed.insert(path.clone()) {
                    return Err(bad(member.fault("name", "there twice", "each member once")));
                }
                Entry { mode: member.mode, mtime: Some(member.mtime), kind: EntryKind::Dir }
            }
            MemberKind::Symlink(target) => {
                // Links have no mode of their own; this is what the system says.
                let kind = EntryKind::Symlink(target.clone());
                Entry { mode: 0o777, mtime: Some(member.mtime), kind }
            }
            MemberKind::HardLink(target) => self.hard_link(member, &path, target).map_err(bad)?,
            MemberKind::File => {
                let source = self.content(member, &path).map_err(bad)?;
                Entry::file(member.mode, Some(member.mtime), source)
            }
        };
        self.tree.insert(path.clone(), entry).map_err(|e| {
            let (found, expected) = if e.0 == path {
                ("one that is taken already".to_owned(), "each member once")
            } else {
                (format!("one below `{}`, which is no directory", e.0), "a path below directories")
            };
            bad(member.fault("name", found, expected))
        })?;
        let made = self.tree.len().saturating_sub(before).max(1);
        self.names += made * (2 * path.as_bytes().len() + ENTRY);
        if self.names > NAMES_MAX {
            let found = format!("one more after {} others", self.tree.len());
            let expected = format!("names of up to {} MiB in all", NAMES_MAX >> 20);
            return Err(bad(member.fault("name", found, expected)));
        }
        Ok(())
    }

    fn hard_link(
        &mut self,
        member: &Member,
        path: &TreePath,
        target: &[u8],
    ) -> Result<Entry, TarError> {
        let expected = "the name of an earlier file of the archive";
        let shown = || format!("`{}`", String::from_utf8_lossy(target));
        let to = TreePath::new(target)
            .map_err(|e| member.fault("target of the hard link", e.to_string(), expected))?;
        let to = self.first_names.get(&to).cloned().unwrap_or(to);
        let Some(Entry { mode, mtime, kind: EntryKind::File(_) }) = self.tree.get(&to) else {
            return Err(member.fault("target of the hard link", shown(), expected));
        };
        let entry = Entry { mode: *mode, mtime: *mtime, kind: EntryKind::HardLink(to.clone()) };
        self.first_names.insert(path.clone(), to);
        Ok(entry)
    }

    /// Goes through a file's content.
    fn content(&mut self, member: &Member, path: &TreePath) -> Result<Source, TarError> {
        let digests = self.digests;
        let members = &mut self.members;
        let small = member.size <= WHOLE_MAX.min(WHOLE_IN_ALL - self.whole);
        if small && (path.parent().is_none() || path.as_bytes().ends_with(b".kpm")) {
            self.whole += member.size;
            let mut bytes = vec![0; usize::try_from(member.size).unwrap_or_default()];
            let mut done = 0;
            while done < bytes.len() {
                done += members.read_content(&mut bytes[done..])?;
            }
            return Ok(Source::bytes(bytes));
        }
        let mut hasher = digests.then(blake3::Hasher::new);
        let kept = keep(member.size, &mut |buf| {
            let n = members.read_content(buf)?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&buf[..n]);
            }
            Ok(n)
        })?;
        let member_of_archive = InputMember {
            archive: Arc::clone(&self.archive),
            offset: member.content,
            kept,
            digest: hasher.map(|hasher| hasher.finalize()),
        };
        let shown = self.archive.path().join(path.as_path());
        Ok(Source::File(Arc::new(InputFile::member(
            shown,
            member.size,
            member_of_archive,
            member.capabilities.clone(),
        ))))
    }
}

/// Makes the name that sorts first the one with the content, as in a directory that was read: an
/// archive need not be sorted.
fn first_by_path(tree: &mut Tree, first_names: BTreeMap<TreePath, TreePath>) {
    let mut files: BTreeMap<TreePath, Vec<TreePath>> = BTreeMap::new();
    for (name, first) in first_names {
        files.entry(first).or_default().push(name);
    }
    for (with_content, mut names) in files {
        names.push(with_content.clone());
        names.sort();
        let first = names[0].clone();
        if first == with_content {
            continue;
        }
        let entry = tree.remove(&with_content).expect("links were checked to name a file");
        for name in names {
            tree.remove(&name);
            let kind = match name == first {
                true => entry.kind.clone(),
                false => EntryKind::HardLink(first.clone()),
            };
            tree.insert(name, Entry { kind, ..entry.clone() }).expect("the name was taken out");
        }
    }
}
