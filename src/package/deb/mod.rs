//! Writes `.deb` files: an `ar` archive of `debian-binary`, `control.tar.*` and `data.tar.*`.
//!
//! The `ar` header of a member is 60 bytes: name (16), time (12), uid and gid (6 each), mode (8, octal),
//! size (10 decimal digits), `` `\n ``; members are padded to an even size. The data member is written
//! first, behind room for the control member (module `control`), which holds its files' MD5 sums.
//!
//! For the same tree and control member, with xz, the file is byte for byte what `dpkg-deb -Zxz
//! --root-owner-group` makes: tests/debs.rs holds them against each other.

mod control;
mod tar;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::thread;

use super::ahead::{Ahead, Content, Piece};
use super::beside::Contents;
use super::compress::{Compression, Encoder};
use super::files::{self, Member, MemberKind};
use super::render::{self, Templates};
use super::spec::{Kind, Package};
use super::together::Give;
use super::{Format, Options, Report};
use crate::error::{Error, Errors, Result};
use crate::progress::Monitor;
use crate::tree::{Entry, Source, Tree, TreePath};
use control::Control;

/// Ten decimal digits: the first size that an `ar` header cannot say.
const AR_LIMIT: u64 = 10_000_000_000;

/// Writes a package as `.deb`; see [`super::write`].
pub fn write(
    package: &Package,
    templates: &Templates,
    options: &Options,
    out: &mut File,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let tree = tree(package, templates)?;
    Plan::new(package, &tree, templates, options)?.write(options, out, None, monitor)
}

/// What the package installs: its tree, and what Debian's policy asks for.
pub(super) fn tree(package: &Package, templates: &Templates) -> Result<Tree> {
    package.check(Format::Deb)?;
    let mut tree = package.tree.clone();
    for (path, bytes) in render::deb_docs(package, templates)? {
        let entry = Entry::file(0o644, None, Source::bytes(bytes));
        tree.insert(path, entry).map_err(|occupied| {
            Error::failed(format!("package `{}`: {occupied}", package.name))
                .hint("the copyright file, the changelog and lintian's overrides are made by gfxpack: leave them out")
        })?;
    }
    Ok(tree)
}

/// All that can fail without I/O is done.
pub(super) struct Plan<'a> {
    package: &'a Package,
    members: Vec<Member<'a>>,
    texts: render::DebTexts,
}

impl<'a> Plan<'a> {
    /// Plans the file; `tree` is of [`tree`].
    pub(super) fn new(
        package: &'a Package,
        tree: &'a Tree,
        templates: &Templates,
        options: &Options,
    ) -> Result<Self> {
        let members = files::members(package, tree, Format::Deb)?;
        let texts = render::deb_texts(package, templates, installed_size(&members))?;
        refuse_too_large(package, &members, options.compression)?;
        Ok(Self { package, members, texts })
    }

    /// The contents in the order in which they are written.
    pub(super) fn contents(&self) -> Vec<Content<'a>> {
        self.members.iter().filter_map(Member::content).collect()
    }

    /// Writes the file. What another writer takes as well goes to it through `give`.
    pub(super) fn write(
        &self,
        options: &Options,
        out: &mut File,
        give: Option<Give<'_>>,
        monitor: &dyn Monitor,
    ) -> Result<Report> {
        let Self { package, members, texts } = self;
        let cannot_write = |e| Errors::from(files::cannot_write(package, Format::Deb, e));
        let control = Control::new(package, texts, members, options.compression);
        let foreseen = control.foreseen(files::work(members)).map_err(cannot_write)?;
        let start = content_at(foreseen);
        out.seek(SeekFrom::Start(start)).map_err(cannot_write)?;
        // Lives to the end: it has the leave to work.
        let mut here = None;
        let (sums, content) = thread::scope(|scope| {
            let (files, memory) = (self.contents(), options.read_ahead);
            let mut beside;
            let contents = match give {
                // Gone before the scope ends, which waits for the thread that reads.
                None if options.threads > 1 => {
                    beside = Contents::beside(scope, files, memory);
                    &mut beside
                }
                give => here.insert(Contents::Here(Box::new(Ahead::new(files, memory, give)))),
            };
            write_data(package, members, contents, options, out, monitor)
        })?;
        let control = control.finish(|path| sums[path], foreseen, content).map_err(cannot_write)?;
        let front = front(package.date.max(0), options.compression, &control, content);
        let put = || {
            shift(out, start, content, front.len() as u64)?;
            out.write_all_at(&front, 0)?;
            let end = front.len() as u64 + content;
            if content % 2 == 1 {
                out.write_all_at(b"\n", end)?;
            }
            Ok(end + content % 2)
        };
        let size = put().map_err(cannot_write)?;
        let sha256 = options.digest.then(|| files::digest(out, size));
        let sha256 = sha256.transpose().map_err(cannot_write)?;
        let bytes = files::work(members);
        Ok(Report { size, installed_size: bytes, sha256, members: members.len() })
    }
}

/// `Installed-Size`: kibibytes, each file and symbolic link rounded up, hard links once, one for any
/// other object, the root directory among them.
fn installed_size(members: &[Member<'_>]) -> u64 {
    let size = |member: &Member<'_>| match &member.kind {
        MemberKind::Dir => 1,
        MemberKind::File { size, .. } => size.div_ceil(1024),
        MemberKind::Symlink(target) => (target.len() as u64).div_ceil(1024),
        MemberKind::HardLink { .. } => 0,
    };
    1 + members.iter().map(size).sum::<u64>()
}

fn too_large(package: &Package, members: &[Member<'_>]) -> Error {
    let of_group = match &package.kind {
        Kind::Group { group } => format!(" of the group `{group}`"),
        _ => String::new(),
    };
    Error::failed(format!(
        "package `{}`{of_group} does not fit into a .deb: its content has {AR_LIMIT} bytes or more, and \
         the format has 10 digits for it",
        package.name
    ))
    .hint(format!(
        "put fewer architectures into the group, or compress better; the largest files are {}",
        files::largest(members)
    ))
}

/// Refuses what is sure to be too large before the first byte is written: content that is not
/// compressed here, or was before, as kpacks.
fn refuse_too_large(
    package: &Package,
    members: &[Member<'_>],
    compression: Compression,
) -> Result<()> {
    if files::work(members) < AR_LIMIT && compression != Compression::None {
        return Ok(());
    }
    let least: u64 = if compression == Compression::None {
        let name = |member: &Member<'_>| tar::member_size(&stored_name(member), link(member), 0);
        tar::file_size(members.iter().map(name).sum::<u64>() + files::work(members))
    } else {
        surely_left(files::compressed_already(members)?, compression)
    };
    if least < AR_LIMIT { Ok(()) } else { Err(too_large(package, members).into()) }
}

/// What compressing bytes that are compressed already leaves of them at least. Frames of kernels hide likeness, but a kernel that is
/// there twice gives the same frame twice, which a window over both finds: measured (docs/compression.md), a thousandth goes
/// without a long window, and up to a seventh with one.
fn surely_left(bytes: u64, compression: Compression) -> u64 {
    match compression {
        Compression::None => bytes,
        Compression::Zstd { long: None, .. } => bytes - bytes / 50,
        Compression::Zstd { long: Some(_), .. } | Compression::Xz { .. } => bytes / 2,
    }
}

/// `./path`, with a slash after a directory.
fn stored_name(member: &Member<'_>) -> Vec<u8> {
    let slash: &[u8] = if matches!(member.kind, MemberKind::Dir) { b"/" } else { b"" };
    [b"./", member.path.as_bytes(), slash].concat()
}

fn link<'a>(member: &Member<'a>) -> &'a [u8] {
    match member.kind {
        MemberKind::Symlink(target) => target,
        MemberKind::HardLink { to, .. } => to.as_bytes(),
        _ => b"",
    }
}

/// Writes the data member to where `out` stands; returns the MD5 of each content by its path, and how many bytes were written.
fn write_data<'a>(
    package: &Package,
    members: &[Member<'a>],
    contents: &mut Contents<'_>,
    options: &Options,
    out: &mut File,
    monitor: &dyn Monitor,
) -> Result<(HashMap<&'a TreePath, [u8; 16]>, u64)> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::FileTooLarge => Errors::from(too_large(package, members)),
        _ => files::cannot_write(package, Format::Deb, e).into(),
    };
    let limited = Limited { out: io::BufWriter::with_capacity(1 << 18, out), left: AR_LIMIT - 1 };
    // dpkg does not look at `md5sums` when it unpacks: its frames have a sum.
    let encoder = Encoder::new(limited, options.compression, options.threads, true);
    let encoder = encoder.map_err(failed)?;
    let mut tar = tar::Writer::new(encoder);
    let mut sums: HashMap<&TreePath, [u8; 16]> = HashMap::new();
    // Symbolic links last, as dpkg-deb has them: what they point at is then there when they come.
    let is_link = |member: &&Member<'_>| matches!(member.kind, MemberKind::Symlink(_));
    tar.member(tar::Type::Dir, b"./", b"", 0o755, package.date.max(0), 0).map_err(failed)?;
    let links = members.iter().filter(is_link);
    for member in members.iter().filter(|member| !is_link(member)).chain(links) {
        let name = stored_name(member);
        let Member { mode, mtime, .. } = *member;
        match &member.kind {
            MemberKind::Dir => tar.member(tar::Type::Dir, &name, b"", mode, mtime, 0),
            MemberKind::Symlink(target) => {
                tar.member(tar::Type::Symlink, &name, target, 0o777, mtime, 0)
            }
            MemberKind::HardLink { to, .. } => {
                let to = [b"./", to.as_bytes()].concat();
                tar.member(tar::Type::HardLink, &name, &to, mode, mtime, 0)
            }
            MemberKind::File { size, .. } => {
                tar.member(tar::Type::File, &name, b"", mode, mtime, *size).map_err(failed)?;
                let mut begun = false;
                let md5 = contents.next(|piece| match piece {
                    Piece::Content { bytes, shared } => {
                        if !begun {
                            tar.encoder().file(bytes, *size, shared).map_err(failed)?;
                            begun = true;
                        }
                        monitor.advance(bytes.len() as u64);
                        tar.content(bytes).map_err(failed)
                    }
                    Piece::Blocks(blocks) => tar.encoder().give(blocks).map_err(failed),
                })?;
                sums.insert(member.path, md5);
                tar.pad()
            }
        }
        .map_err(failed)?;
    }
    contents.rest(|piece| match piece {
        Piece::Blocks(blocks) => tar.encoder().give(blocks).map_err(failed),
        Piece::Content { .. } => Ok(()),
    })?;
    let limited = tar.finish().and_then(Encoder::finish).map_err(failed)?;
    let written = AR_LIMIT - 1 - limited.left;
    limited.out.into_inner().map_err(|e| failed(e.into_error()))?;
    Ok((sums, written))
}

/// What stands before the content: the beginning of the `ar` archive with its other members, and the header of `data.tar`.
fn front(mtime: i64, compression: Compression, control: &[u8], content: u64) -> Vec<u8> {
    let mut front = b"!<arch>\n".to_vec();
    let version: &[u8] = b"2.0\n";
    front.extend(ar_header("debian-binary", mtime, version.len() as u64));
    front.extend_from_slice(version);
    let suffix = compression.suffix();
    front.extend(ar_header(&format!("control.tar{suffix}"), mtime, control.len() as u64));
    front.extend_from_slice(control);
    if control.len() % 2 == 1 {
        front.push(b'\n');
    }
    front.extend(ar_header(&format!("data.tar{suffix}"), mtime, content));
    front
}

/// Where content begins behind a control member of this size.
fn content_at(control: u64) -> u64 {
    const HEADER: u64 = 60;
    8 + HEADER + 4 + HEADER + control.next_multiple_of(2) + HEADER
}

/// Moves what is in a file from a place on to another one.
fn shift(file: &File, from: u64, len: u64, to: u64) -> io::Result<()> {
    const PIECE: u64 = 1 << 20;
    if from == to {
        return Ok(());
    }
    let mut buffer = vec![0; usize::try_from(PIECE.min(len)).expect("a mebibyte")];
    let mut left = len;
    while left > 0 {
        let piece = left.min(PIECE);
        // What lies in the way is moved first.
        let at = if to < from { len - left } else { left - piece };
        let bytes = &mut buffer[..usize::try_from(piece).expect("a mebibyte")];
        file.read_exact_at(bytes, from + at)?;
        file.write_all_at(bytes, to + at)?;
        left -= piece;
    }
    file.set_len(to + len)
}

fn ar_header(name: &str, mtime: i64, size: u64) -> Vec<u8> {
    let mut header = String::with_capacity(60);
    writeln!(header, "{name:<16}{mtime:<12}{:<6}{:<6}{:<8}{size:<10}`", 0, 0, "100644")
        .expect("a string takes all");
    debug_assert_eq!(header.len(), 60);
    header.into_bytes()
}

/// Fails with `FileTooLarge` past a number of bytes.
struct Limited<W> {
    out: W,
    left: u64,
}

impl<W: Write> Write for Limited<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.out.write(buf)?;
        self.left = self.left.checked_sub(n as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_moved_as_it_is_and_nothing_stays_behind_it() {
        let content: Vec<u8> =
            (0..2_500_000u32).map(|i| (i.wrapping_mul(2_654_435_761)).to_le_bytes()[3]).collect();
        for to in [0, 1, 5000, 5001, 9999, 3_000_000] {
            let file = tempfile::tempfile().unwrap();
            let from = 5000;
            file.write_all_at(&content, from).unwrap();
            shift(&file, from, content.len() as u64, to).unwrap();
            let mut moved = vec![0; content.len()];
            file.read_exact_at(&mut moved, to).unwrap();
            assert!(moved == content, "{to}");
            assert_eq!(file.metadata().unwrap().len(), to + content.len() as u64);
        }
    }

    #[test]
    fn what_may_still_fit_is_not_taken_for_too_large() {
        let refused =
            |bytes, how: &str| surely_left(bytes, how.parse().expect("a compression")) >= AR_LIMIT;
        for (how, fits, does_not) in [
            ("none", 9_999_999_999, 10_000_000_000),
            ("zstd:3", 10_100_000_000, 10_300_000_000),
            // 142 MB of kernels became 121 MB.
            ("zstd:10,long=27", 11_700_000_000, 20_000_000_000),
            ("xz:6", 11_700_000_000, 20_000_000_000),
        ] {
            assert!(!refused(fits, how), "{how}");
            assert!(refused(does_not, how), "{how}");
        }
    }
}
