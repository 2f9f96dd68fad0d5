//! Writes `.rpm` files, version 4: lead (96 bytes), signature header, header, compressed cpio archive.
//!
//! The header comes first and holds digests of what follows, so its room is left free (digests have one
//! length), the payload is streamed behind it, and the front is written then. The tags are those that
//! rpmbuild writes; tests/rpms.rs holds them against each other. Left out: `OPTFLAGS` (nothing was
//! compiled), the dictionaries that say which file needs what, and `SIGMD5`: the one digest that begins in the
//! header and ends in the payload, for which a payload would have to be read again. What rpm 4.14 and later (the first
//! with zstd) check is there: SHA-256 of header and payload.

mod cpio;
mod header;
mod list;
mod preamble;
pub(super) mod signature;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::thread;

use super::ahead::{self, Piece};
use super::compress::{Compression, Encoder};
use super::compress_beside::Encoding;
use super::files;
use super::render::{self, Templates};
use super::spec::{Arch, Package};
use super::together::Take;
use super::{Format, Options, Report};
use crate::error::{Error, Errors, Result};
use crate::progress::Monitor;
use crate::sha256_pair::Sha256;
use crate::tree::{Entry, Source, Tree};
use header::{Digests, Front, Sizes};
use list::{Class, Content, Listed};
use preamble::{Dependency, List, Preamble, sense};

/// Writes a package as `.rpm`; see [`super::write`].
pub fn write(
    package: &Package,
    templates: &Templates,
    options: &Options,
    out: &mut File,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let tree = tree(package)?;
    let members = members(package, &tree)?;
    Plan::new(package, &members, templates, options)?.write(options, out, None, monitor)
}

/// What the package installs: its tree, and the licence.
pub(super) fn tree(package: &Package) -> Result<Tree> {
    package.check(Format::Rpm)?;
    let mut tree = package.tree.clone();
    if let Some((path, text)) = render::rpm_license(package) {
        let entry = Entry::file(0o644, None, Source::bytes(text.into_bytes()));
        tree.insert(path, entry).map_err(|occupied| {
            Error::failed(format!("package `{}`: {occupied}", package.name))
                .hint("the licence file is made by gfxpack: leave it out")
        })?;
    }
    Ok(tree)
}

/// The members of the tree; see [`files::members`].
pub(super) fn members<'a>(package: &Package, tree: &'a Tree) -> Result<Vec<files::Member<'a>>> {
    files::members(package, tree, Format::Rpm)
}

/// All that can fail without I/O is done.
pub(super) struct Plan<'a> {
    package: &'a Package,
    list: Vec<Listed<'a>>,
    preamble: Preamble,
    /// Bytes of all files, those with several names once.
    installed: u64,
    /// Whether a file is too large for the headers of the archive.
    large: bool,
}

impl<'a> Plan<'a> {
    /// Plans the file.
    pub(super) fn new(
        package: &'a Package,
        members: &'a [files::Member<'a>],
        templates: &Templates,
        options: &Options,
    ) -> Result<Self> {
        let list = list::list(members);
        let installed: u64 = {
            let counted =
                |file: &&Listed<'_>| file.set.is_none_or(|set| set == file.stat.index as usize);
            list.iter().filter(counted).map(|file| file.stat.size).sum()
        };
        let large = list.iter().any(|file| file.stat.size >= u64::from(u32::MAX));
        let preamble =
            read_preamble(package, templates, installed, &list, large, options.compression)?;
        Ok(Self { package, list, preamble, installed, large })
    }

    /// The contents in the order in which they are written.
    pub(super) fn contents(&self) -> Vec<ahead::Content<'a>> {
        let in_order = in_order(&self.list).into_iter();
        in_order.filter(|(_, with_content)| *with_content).filter_map(|(f, _)| content(f)).collect()
    }

    /// Writes the file. What another writer reads comes from there through `take`.
    pub(super) fn write(
        &self,
        options: &Options,
        out: &mut File,
        mut take: Option<Take<'_>>,
        monitor: &dyn Monitor,
    ) -> Result<Report> {
        let Self { package, list, preamble, installed, large } = self;
        let installed = *installed;
        let failed = |e: io::Error| Errors::from(files::cannot_write(package, Format::Rpm, e));
        let front = Front { package, preamble, list, compression: options.compression };
        let sizes = Sizes { installed, archive: 0, payload: 0 };
        let empty = front.build(&Digests::placeholder(list), &sizes).map_err(failed)?;
        let start = empty.bytes.len() as u64;
        out.seek(SeekFrom::Start(start)).map_err(failed)?;
        let (digests, archive, payload) =
            write_payload(package, list, *large, options, take.as_mut(), &mut *out, monitor)?;
        let sizes = Sizes { installed, archive, payload };
        let mut pieces = front.build(&digests, &sizes).map_err(failed)?;
        if let Some(signer) = &options.signer {
            pieces.sign(signer, package.date)?;
        }
        if pieces.bytes.len() as u64 != start {
            let what = "the header came out with another length than was foreseen";
            return Err(failed(io::Error::other(what)));
        }
        out.write_all_at(&pieces.bytes, 0).map_err(failed)?;
        let size = start + payload;
        let sha256 = options.digest.then(|| files::digest(out, size));
        let sha256 = sha256.transpose().map_err(failed)?;
        Ok(Report { size, installed_size: installed, sha256, members: list.len() })
    }
}

/// The list in the order of the archive, and whether the content comes with this name: names of one file come after all
/// others, and together, and the last of them has the content.
fn in_order<'l, 'a>(list: &'l [Listed<'a>]) -> Vec<(&'l Listed<'a>, bool)> {
    let (alone, mut together): (Vec<_>, Vec<_>) = list.iter().partition(|file| file.set.is_none());
    together.sort_by_key(|file| (file.set, file.stat.index));
    let last: HashMap<usize, u32> =
        together.iter().filter_map(|file| Some((file.set?, file.stat.index))).collect();
    let with_content = |file: &Listed<'_>| file.set.is_none_or(|set| last[&set] == file.stat.index);
    alone.into_iter().chain(together).map(|file| (file, with_content(file))).collect()
}

/// What is read for a file.
fn content<'a>(file: &Listed<'a>) -> Option<ahead::Content<'a>> {
    match file.content {
        Content::File(source) => {
            Some(ahead::Content { path: file.file, source, size: file.stat.size })
        }
        _ => None,
    }
}

/// Renders the preamble, reads it back, checks that it is this package's, and adds what rpmbuild adds.
fn read_preamble(
    package: &Package,
    templates: &Templates,
    installed: u64,
    list: &[Listed<'_>],
    large: bool,
    compression: Compression,
) -> Result<Preamble> {
    let text = render::rpm_preamble(package, templates, installed)?;
    let fault = |what: &str| render::preamble_fault(package, templates, what);
    let mut preamble = Preamble::parse(&text).map_err(|what| fault(&what))?;
    for (tag, expected) in [
        ("Name", package.rpm_name()),
        ("Version", &package.version),
        ("Release", &package.release),
        ("BuildArch", package.arch.rpm()),
    ] {
        let found = preamble.get(tag).unwrap_or_default();
        if found != expected {
            return Err(fault(&format!("`{tag}` is `{found}`, expected `{expected}`")).into());
        }
    }
    let version = package.full_version();
    let mut provide = |name: String| {
        let itself = Dependency { name, version: version.clone(), flags: sense::EQUAL };
        preamble.dependencies.push((List::Provides, itself));
    };
    provide(package.rpm_name().to_owned());
    if package.arch == Arch::X86_64 {
        provide(format!("{}(x86-64)", package.rpm_name()));
    }
    let mut features = vec![
        ("CompressedFileNames", "3.0.4-1"),
        ("FileDigests", "4.6.0-1"),
        ("PayloadFilesHavePrefix", "4.0-1"),
    ];
    match compression {
        Compression::Zstd { .. } => features.push(("PayloadIsZstd", "5.4.18-1")),
        Compression::Xz { .. } => features.push(("PayloadIsXz", "5.2-1")),
        Compression::None => {}
    }
    if list.iter().any(|file| file.set.is_some()) {
        features.push(("PartialHardlinkSets", "4.0.4-1"));
    }
    if list.iter().any(|file| !file.capabilities.is_empty()) {
        features.push(("FileCaps", "4.6.1-1"));
    }
    if large {
        features.push(("LargeFiles", "4.12.0-1"));
    }
    let texts = || {
        let versions = preamble.dependencies.iter().map(|(_, dependency)| &dependency.version);
        versions.chain([&package.version, &package.release])
    };
    if texts().any(|text| text.contains('~')) {
        features.push(("TildeInVersions", "4.10.0-1"));
    }
    if texts().any(|text| text.contains('^')) {
        features.push(("CaretInVersions", "4.15.0-1"));
    }
    if preamble.dependencies.iter().any(|(_, dependency)| dependency.name.starts_with('(')) {
        features.push(("RichDependencies", "4.12.0-1"));
    }
    let mut requires = Vec::new();
    for script in &preamble.scripts {
        let interpreter = &script.interpreter[0];
        if interpreter == "<lua>" {
            features.push(("BuiltinLuaScripts", "4.2.2-1"));
            continue;
        }
        let flags = sense::INTERP | script.when.sense();
        requires.push(Dependency { name: interpreter.clone(), version: String::new(), flags });
    }
    let feature_flags = sense::RPMLIB | sense::LESS | sense::EQUAL;
    requires.extend(features.into_iter().map(|(name, version)| Dependency {
        name: format!("rpmlib({name})"),
        version: version.to_owned(),
        flags: feature_flags,
    }));
    preamble
        .dependencies
        .extend(requires.into_iter().map(|dependency| (List::Requires, dependency)));
    preamble.dependencies.sort();
    preamble.dependencies.dedup();
    Ok(preamble)
}

/// Counts and digests what passes through.
struct Tee<W> {
    out: W,
    digest: Sha256,
    written: u64,
}

impl<W: Write> Tee<W> {
    fn new(out: W) -> Self {
        Self { out, digest: Sha256::new(), written: 0 }
    }
}

impl<W: Write> Write for Tee<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.out.write(buf)?;
        self.digest.update(&buf[..n]);
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Streams the payload to `out`; returns the digests, and the archive's size before and after compression.
fn write_payload(
    package: &Package,
    list: &[Listed<'_>],
    stripped: bool,
    options: &Options,
    take: Option<&mut Take<'_>>,
    out: &mut File,
    monitor: &dyn Monitor,
) -> Result<(Digests, u64, u64)> {
    let failed = |e: io::Error| Errors::from(files::cannot_write(package, Format::Rpm, e));
    let compressed = Tee::new(BufWriter::with_capacity(1 << 18, out));
    // The header has digests of all that a frame could have a sum of. Neither has rpmbuild's.
    let encoder = Encoder::new(compressed, options.compression, options.threads, false);
    let encoder = encoder.map_err(failed)?;
    thread::scope(|scope| {
        // Beside another writer this thread only digests what that one reads.
        let encoding = if take.is_none() && options.threads > 1 {
            Encoding::beside(scope, encoder)
        } else {
            Encoding::here(encoder)
        };
        write_archive(package, list, stripped, take, encoding, monitor)
    })
}

/// The same into an encoder.
fn write_archive<W: Write + Send>(
    package: &Package,
    list: &[Listed<'_>],
    stripped: bool,
    mut take: Option<&mut Take<'_>>,
    encoding: Encoding<'_, Tee<W>>,
    monitor: &dyn Monitor,
) -> Result<(Digests, u64, u64)> {
    let failed = |e: io::Error| Errors::from(files::cannot_write(package, Format::Rpm, e));
    let mut archive = cpio::Writer::new(Tee::new(encoding), stripped);
    let mut digests = Digests::placeholder(list);
    let mut buffer = Vec::new();

    let mut of_sets: HashMap<usize, (String, Class)> = HashMap::new();
    for (file, with_content) in in_order(list) {
        let name = [b"./", file.path.as_bytes()].concat();
        let mut stat = file.stat;
        if !with_content {
            stat.size = 0;
        }
        archive.member(&name, &stat).map_err(failed)?;
        match file.content {
            Content::Dir => {}
            Content::Symlink(target) => archive.content(target).map_err(failed)?,
            Content::File(_) if !with_content => {}
            Content::File(source) => {
                let mut sha256 = Sha256::new();
                let content = ahead::Content { path: file.file, source, size: stat.size };
                let mut class = None;
                // Counts and digests what is then written beside them.
                let mut seen = |archive: &mut cpio::Writer<_>, bytes: &[u8], shared| {
                    let Tee { out, digest, written } = archive.count(bytes.len() as u64);
                    if class.is_none() {
                        class = Some(Class::of_content(bytes));
                        Encoding::file(out, bytes, stat.size, shared)?;
                    }
                    monitor.advance(bytes.len() as u64);
                    Sha256::update_both((digest, bytes), (&mut sha256, bytes));
                    *written += bytes.len() as u64;
                    Ok(())
                };
                match &mut take {
                    Some(take) => take.copy(&content, &mut buffer, &mut |piece| match piece {
                        Piece::Content { bytes, shared } => {
                            seen(&mut archive, bytes, shared).map_err(failed)?;
                            archive.encoder().out.write_all(bytes).map_err(failed)
                        }
                        Piece::Blocks(blocks) => archive.encoder().out.give(blocks).map_err(failed),
                    })?,
                    None => files::copy(&content, &mut buffer, |buffer| {
                        seen(&mut archive, buffer, false).map_err(failed)?;
                        archive.encoder().out.hand_over(buffer).map_err(failed)
                    })?,
                }
                let digest = render::hex(&sha256.finish());
                let class = class.unwrap_or_else(|| Class::of(file));
                match file.set {
                    None => {
                        digests.files[file.stat.index as usize] = digest;
                        digests.classes[file.stat.index as usize] = class;
                    }
                    Some(set) => drop(of_sets.insert(set, (digest, class))),
                }
            }
        }
        archive.pad().map_err(failed)?;
    }
    for file in list {
        if let Some((digest, class)) = file.set.and_then(|set| of_sets.get(&set)) {
            digests.files[file.stat.index as usize].clone_from(digest);
            digests.classes[file.stat.index as usize] = *class;
        }
    }
    if let Some(take) = take {
        take.settle(&mut |piece| match piece {
            Piece::Blocks(blocks) => archive.encoder().out.give(blocks).map_err(failed),
            Piece::Content { .. } => Ok(()),
        })?;
    }
    let (plain, size) = archive.finish().map_err(failed)?;
    digests.archive = render::hex(&plain.digest.finish());
    let mut compressed = plain.out.finish().map_err(failed)?;
    compressed.flush().map_err(failed)?;
    digests.payload = render::hex(&compressed.digest.finish());
    Ok((digests, size, compressed.written))
}
