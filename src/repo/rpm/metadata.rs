//! `primary.xml`, `filelists.xml` and `other.xml`: an element for each package.
//!
//! Source: what createrepo_c 0.17 writes, which dnf, zypper and yum read. A piece is written into memory and compressed, or
//! copied, so that no document is held as text.

use std::io;

use sha2::{Digest, Sha256};

use super::record::{Dependency, FileKind, KINDS, Record, is_primary};
use super::xml::{attribute, element, text};
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::repo::brief::{Brief, Package};
use crate::repo::hex;
use crate::repo::pieces::{self, Block, Kept, Packing, Stream, Unpacker};
use crate::repo::record::Part;

/// Which document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Primary,
    Filelists,
    Other,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Primary, Self::Filelists, Self::Other];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Filelists => "filelists",
            Self::Other => "other",
        }
    }

    /// About how many bytes packages have in it.
    pub(super) fn size_of(self, packages: &[&Package]) -> u64 {
        packages.iter().map(|package| u64::from(self.size(&package.part))).sum()
    }

    /// About how many bytes a package has in it.
    fn size(self, brief: &Brief) -> u32 {
        let [primary, filelists, other] = brief.sizes;
        match self {
            Self::Primary => primary,
            Self::Filelists => filelists,
            Self::Other => other,
        }
    }
}

/// How the documents are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Compression {
    /// What dnf and zypper of systems since 2020 read (RHEL 8.2).
    #[default]
    Zstd,
    /// What all read.
    Gzip,
}

impl Compression {
    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::Zstd => "zst",
            Self::Gzip => "gz",
        }
    }

    fn packing(self) -> Packing {
        match self {
            Self::Zstd => Packing::Zstd,
            Self::Gzip => Packing::Gzip,
        }
    }
}

/// A document, compressed.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
    /// SHA-256 of the bytes, in hexadecimal digits.
    pub(super) sha256: String,
    /// SHA-256 of the text.
    pub(super) open_sha256: String,
    /// Size of the text in bytes.
    pub(super) open_size: u64,
    /// The pieces that it is made of.
    pub(super) blocks: Vec<Block>,
}

/// Writes a document of packages. Pieces that are kept are copied; of the others several are made at a time, before they are needed.
pub(super) fn document(
    kind: Kind,
    packages: &[&Package],
    compression: Compression,
    kept: &Kept<'_>,
    jobs: &Jobs,
) -> Result<Document> {
    let packing = compression.packing();
    let mut writer = Writer::new(packing, kind, kept);
    let root = match kind {
        Kind::Primary => "metadata",
        Kind::Filelists => "filelists",
        Kind::Other => "otherdata",
    };
    let mut text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root}").into_bytes();
    if kind == Kind::Primary {
        attribute(&mut text, "xmlns", "http://linux.duke.edu/metadata/common");
        attribute(&mut text, "xmlns:rpm", "http://linux.duke.edu/metadata/rpm");
    } else {
        attribute(&mut text, "xmlns", &format!("http://linux.duke.edu/metadata/{}", kind.name()));
    }
    attribute(&mut text, "packages", &packages.len().to_string());
    text.extend_from_slice(b">\n");
    // The number of packages changes with every one.
    writer.frame(&text)?;
    let weight = |brief: &Brief| kind.size(brief).max(brief.size() / READ);
    let runs = pieces::runs(packages.iter().map(|one| (&one.part.id, weight(&one.part))));
    let keyed: Vec<(pieces::Key, &[&Package])> = runs
        .into_iter()
        .map(|run| {
            let digests = packages[run.clone()].iter().map(|package| &package.part.id);
            (pieces::key(packing, kind.name(), digests), &packages[run])
        })
        .collect();
    let missing: Vec<_> = keyed.iter().filter(|(key, _)| kept.get(key).is_none()).collect();
    let mut batches = missing.chunks(jobs.threads() * AT_A_TIME);
    let mut made = Vec::new().into_iter();
    for (key, _) in &keyed {
        if let Some(block) = kept.get(key) {
            writer.kept(block)?;
            continue;
        }
        let (block, text) = match made.next() {
            Some(piece) => piece,
            None => {
                let batch = batches.next().unwrap_or_default();
                made = jobs
                    .drive(batch, |(key, packages)| piece(packing, kind, *key, packages, kept))
                    .into_iter();
                made.next().expect("it is missing, so it is in a batch")
            }
        }?;
        writer.append(&block, &text);
        writer.blocks.push(block);
    }
    writer.frame(format!("</{root}>\n").as_bytes())?;
    Ok(writer.finish())
}

/// What is read of a package to make its part of a piece counts for one in so many bytes of the piece: of `other`, which has
/// little to say of each package, pieces would be of thousands of packages, all of which are read when one of them changes.
const READ: u32 = 2;

/// So many pieces for each thread are made before they are appended, and in memory as text.
const AT_A_TIME: usize = 4;

/// A piece, and its text.
fn piece(
    packing: Packing,
    kind: Kind,
    key: pieces::Key,
    packages: &[&Package],
    kept: &Kept<'_>,
) -> Result<(Block, Vec<u8>)> {
    let mut text = Vec::new();
    for package in packages {
        let Part::Rpm(record) = package.part.part()? else { continue };
        match kind {
            Kind::Primary => primary(&mut text, package, record),
            Kind::Filelists => filelists(&mut text, package, record),
            Kind::Other => other(&mut text, package, record),
        }
    }
    Ok((kept.make(packing, key, &text).map_err(cannot)?, text))
}

/// A document under way.
struct Writer<'a> {
    kept: &'a Kept<'a>,
    packing: Packing,
    kind: Kind,
    unpacker: Unpacker,
    stream: Stream,
    blocks: Vec<Block>,
    sha256: Sha256,
    size: u64,
}

impl<'a> Writer<'a> {
    fn new(packing: Packing, kind: Kind, kept: &'a Kept<'_>) -> Self {
        let (stream, unpacker) = (Stream::new(packing), Unpacker::default());
        let (sha256, blocks) = (Sha256::new(), Vec::new());
        Self { kept, packing, kind, unpacker, stream, blocks, sha256, size: 0 }
    }

    /// Appends a piece that is kept.
    fn kept(&mut self, block: &Block) -> Result<()> {
        let text = self.unpacker.unpack(self.packing, block).map_err(cannot)?;
        self.sha256.update(text);
        self.size += text.len() as u64;
        self.stream.push(block, text);
        self.blocks.push(block.clone());
        Ok(())
    }

    /// Appends the beginning or the end, which is not kept.
    fn frame(&mut self, text: &[u8]) -> Result<()> {
        let block = self.kept.make(self.packing, pieces::Key::default(), text).map_err(cannot)?;
        self.append(&block, text);
        Ok(())
    }

    /// Appends a block of this text.
    fn append(&mut self, block: &Block, text: &[u8]) {
        self.sha256.update(text);
        self.size += text.len() as u64;
        self.stream.push(block, text);
    }

    fn finish(self) -> Document {
        let bytes = self.stream.finish();
        Document {
            kind: self.kind,
            sha256: hex(&Sha256::digest(&bytes)),
            bytes,
            open_sha256: hex(&self.sha256.finalize()),
            open_size: self.size,
            blocks: self.blocks,
        }
    }
}

fn cannot(e: io::Error) -> Error {
    Error::failed("cannot compress metadata").because(e)
}

fn version(out: &mut Vec<u8>, record: &Record) {
    out.extend_from_slice(b"  <version");
    attribute(out, "epoch", &record.epoch.to_string());
    attribute(out, "ver", &record.version);
    attribute(out, "rel", &record.release);
    out.extend_from_slice(b"/>\n");
}

fn primary(out: &mut Vec<u8>, package: &Package, record: &Record) {
    out.extend_from_slice(b"<package type=\"rpm\">\n");
    element(out, 2, "name", &package.name);
    element(out, 2, "arch", &package.arch);
    version(out, record);
    let numbers = |out: &mut Vec<u8>, start: &str, all: &[(&str, String)]| {
        out.extend_from_slice(start.as_bytes());
        for (name, value) in all {
            attribute(out, name, value);
        }
        out.extend_from_slice(b"/>\n");
    };
    out.extend_from_slice(b"  <checksum type=\"sha256\" pkgid=\"YES\">");
    out.extend_from_slice(hex(&package.sha256).as_bytes());
    out.extend_from_slice(b"</checksum>\n");
    element(out, 2, "summary", &record.summary);
    element(out, 2, "description", &record.description);
    element(out, 2, "packager", &record.packager);
    element(out, 2, "url", &record.url);
    // A file's own time says when it was copied, and differs from run to run.
    let built = package.built.to_string();
    numbers(out, "  <time", &[("file", built.clone()), ("build", built)]);
    let sizes = [
        ("package", package.size.to_string()),
        ("installed", record.installed.to_string()),
        ("archive", record.archive.to_string()),
    ];
    numbers(out, "  <size", &sizes);
    numbers(out, "  <location", &[("href", package.path.clone())]);
    out.extend_from_slice(b"  <format>\n");
    element(out, 4, "rpm:license", &record.license);
    element(out, 4, "rpm:vendor", &record.vendor);
    element(out, 4, "rpm:group", &record.group);
    element(out, 4, "rpm:buildhost", &record.buildhost);
    element(out, 4, "rpm:sourcerpm", &record.sourcerpm);
    let (start, end) = record.header;
    let range = [("start", start.to_string()), ("end", end.to_string())];
    numbers(out, "    <rpm:header-range", &range);
    for ((kind, _), entries) in KINDS.iter().zip(&record.relations) {
        relations(out, kind, entries);
    }
    files(out, record, 4, |folder, name| {
        // Most are told by the folder.
        folder.starts_with("/etc/") || folder.contains("bin/") || {
            let rare = name.contains('/') || !folder.ends_with('/') || name == "sendmail";
            rare && is_primary(&format!("{folder}{name}"))
        }
    });
    out.extend_from_slice(b"  </format>\n</package>\n");
}

fn relations(out: &mut Vec<u8>, kind: &str, entries: &[Dependency]) {
    if entries.is_empty() {
        return;
    }
    out.extend_from_slice(format!("    <rpm:{kind}>\n").as_bytes());
    for one in entries.iter().filter(|one| !one.name.is_empty()) {
        out.extend_from_slice(b"      <rpm:entry");
        attribute(out, "name", &one.name);
        let flags = one.flags();
        if !flags.is_empty() {
            attribute(out, "flags", flags);
            if !one.version.is_empty() {
                let (epoch, rest) = epoch(&one.version);
                attribute(out, "epoch", epoch);
                let (version, release) = rest.split_once('-').unwrap_or((rest, ""));
                for (name, value) in [("ver", version), ("rel", release)] {
                    if !value.is_empty() {
                        attribute(out, name, value);
                    }
                }
            }
        }
        if one.pre {
            attribute(out, "pre", "1");
        }
        out.extend_from_slice(b"/>\n");
    }
    out.extend_from_slice(format!("    </rpm:{kind}>\n").as_bytes());
}

/// A version's epoch, and the rest. What is no number is no epoch.
fn epoch(version: &str) -> (&str, &str) {
    match version.split_once(':') {
        Some((epoch, rest)) if !epoch.is_empty() && epoch.bytes().all(|b| b.is_ascii_digit()) => {
            (epoch, rest)
        }
        _ => ("0", version),
    }
}

fn files(out: &mut Vec<u8>, record: &Record, indent: usize, wanted: impl Fn(&str, &str) -> bool) {
    for (folder, name, kind) in record.parts().filter(|(folder, name, _)| wanted(folder, name)) {
        out.extend(std::iter::repeat_n(b' ', indent));
        out.extend_from_slice(match kind {
            FileKind::File => b"<file>",
            FileKind::Dir => b"<file type=\"dir\">",
            FileKind::Ghost => b"<file type=\"ghost\">",
        });
        text(out, folder);
        text(out, name);
        out.extend_from_slice(b"</file>\n");
    }
}

fn start(out: &mut Vec<u8>, package: &Package, record: &Record) {
    out.extend_from_slice(b"<package");
    attribute(out, "pkgid", &hex(&package.sha256));
    attribute(out, "name", &package.name);
    attribute(out, "arch", &package.arch);
    out.extend_from_slice(b">\n");
    version(out, record);
}

fn filelists(out: &mut Vec<u8>, package: &Package, record: &Record) {
    start(out, package, record);
    files(out, record, 2, |_, _| true);
    out.extend_from_slice(b"</package>\n");
}

fn other(out: &mut Vec<u8>, package: &Package, record: &Record) {
    start(out, package, record);
    for entry in &record.changelogs {
        out.extend_from_slice(b"  <changelog");
        attribute(out, "author", &entry.author);
        attribute(out, "date", &entry.date.to_string());
        out.push(b'>');
        text(out, &entry.text);
        out.extend_from_slice(b"</changelog>\n");
    }
    out.extend_from_slice(b"</package>\n");
}
