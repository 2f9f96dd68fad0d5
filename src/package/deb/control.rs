//! The control member of a `.deb`, which stands before the content and holds the MD5 sums of it.
//!
//! So that content can be written to where it is to be before those sums are known, the member's size is foreseen: by sums that
//! are made up, which take as much room as others do but for a few bytes. A tar file that is not compressed has that
//! very size. A zstd frame is filled up to it ([`Frame::finish_filled`](super::super::frame::Frame::finish_filled)), where there is so much content that it pays.
//! Of xz, or of little content, the member comes as it comes, and the content is moved by the difference.

use std::io;

use md5::{Digest, Md5};

use super::super::compress::{Compression, Encoder};
use super::super::files::{self, Member, MemberKind};
use super::super::frame::Frame;
use super::super::spec::Package;
use super::super::{render, shlibs};
use super::tar;
use crate::tree::TreePath;

/// From this much compressed content on the member is filled up to the size that was foreseen, since moving the content would
/// take longer than it is worth.
const WORTH_FILLING: u64 = 8 << 20;

/// What is in the member, but for `md5sums`.
pub(super) struct Control<'a> {
    members: &'a [Member<'a>],
    files: Vec<(&'static str, u32, Vec<u8>)>,
    mtime: i64,
    compression: Compression,
}

impl<'a> Control<'a> {
    pub(super) fn new(
        package: &Package,
        texts: &render::DebTexts,
        members: &'a [Member<'a>],
        compression: Compression,
    ) -> Self {
        let mut files = vec![("control", 0o644, texts.control.clone().into_bytes())];
        let mut conffiles = Vec::new();
        for path in contents(members).map(|(path, _)| path.as_bytes()) {
            if path.starts_with(b"etc/") {
                conffiles.extend_from_slice(&[b"/", path, b"\n"].concat());
            }
        }
        if !conffiles.is_empty() {
            files.push(("conffiles", 0o644, conffiles));
        }
        if contents(members).any(|(path, _)| files::renews_cache(package, path)) {
            files.push(("triggers", 0o644, b"activate-noawait ldconfig\n".to_vec()));
        }
        let shlibs = shlibs::shlibs(package, members);
        if !shlibs.is_empty() {
            files.push(("shlibs", 0o644, shlibs.into_bytes()));
        }
        for (name, script) in &texts.scripts {
            files.push((name, 0o755, script.clone().into_bytes()));
        }
        // It needs no window over all that is there.
        let compression = match compression {
            Compression::Zstd { level, long: _ } => Compression::Zstd { level, long: None },
            other => other,
        };
        Self { members, files, mtime: package.date.max(0), compression }
    }

    /// The size that is foreseen where there are so many bytes of content, not compressed; for little content any does.
    pub(super) fn foreseen(&self, content: u64) -> io::Result<u64> {
        if content < WORTH_FILLING {
            return Ok(0);
        }
        let made_up = |path: &TreePath| Md5::digest(path.as_bytes()).into();
        let size = self.member(made_up)?.len() as u64;
        Ok(match self.compression {
            // Sums differ in how well they are compressed.
            Compression::Zstd { .. } => size + size / 128 + 64,
            _ => size,
        })
    }

    /// The member, where `size` was foreseen and there are so many bytes of content.
    pub(super) fn finish(
        &self,
        sum: impl Fn(&TreePath) -> [u8; 16],
        size: u64,
        content: u64,
    ) -> io::Result<Vec<u8>> {
        if let Compression::Zstd { level, .. } = self.compression
            && content >= WORTH_FILLING
        {
            let frame = Frame::new(Vec::new(), level, 1, true)?;
            let (frame, zeros) = self.tar(&sum, frame)?.into_end();
            if let Some(filled) = frame.finish_filled(zeros, usize::try_from(size).unwrap_or(0))? {
                return Ok(filled);
            }
        }
        self.member(sum)
    }

    fn member(&self, sum: impl Fn(&TreePath) -> [u8; 16]) -> io::Result<Vec<u8>> {
        let encoder = Encoder::new(Vec::new(), self.compression, 1, true)?;
        self.tar(sum, encoder)?.finish()?.finish()
    }

    /// The tar file, but for its end.
    fn tar<W: io::Write>(
        &self,
        sum: impl Fn(&TreePath) -> [u8; 16],
        out: W,
    ) -> io::Result<tar::Writer<W>> {
        let mut md5sums = Vec::new();
        for (path, content) in contents(self.members) {
            md5sums.extend_from_slice(render::hex(&sum(content)).as_bytes());
            md5sums.extend_from_slice(b"  ");
            md5sums.extend_from_slice(path.as_bytes());
            md5sums.push(b'\n');
        }
        let md5sums = ("md5sums", 0o644, md5sums);
        let sums = Some(&md5sums).filter(|(.., sums)| !sums.is_empty());
        let mut files: Vec<_> = self.files.iter().chain(sums).collect();
        files.sort_by_key(|(name, ..)| *name);

        let mut tar = tar::Writer::new(out);
        tar.member(tar::Type::Dir, b"./", b"", 0o755, self.mtime, 0)?;
        for (name, mode, content) in files {
            let name = format!("./{name}");
            let size = content.len() as u64;
            tar.member(tar::Type::File, name.as_bytes(), b"", *mode, self.mtime, size)?;
            tar.content(content)?;
            tar.pad()?;
        }
        Ok(tar)
    }
}

/// The paths that have content, and under which it was written.
fn contents<'a>(members: &'a [Member<'a>]) -> impl Iterator<Item = (&'a TreePath, &'a TreePath)> {
    members.iter().filter_map(|member| match member.kind {
        MemberKind::File { .. } => Some((member.path, member.path)),
        MemberKind::HardLink { to, .. } => Some((member.path, to)),
        _ => None,
    })
}
