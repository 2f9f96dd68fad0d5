//! What is known of a package without reading all that is kept of it.
//!
//! To add one package to thousands, nobody needs the file lists of the others. So the state has a [`Brief`] of each, and
//! the [`Part`]s in chunks of packages that stand one after the other: compressed, and read when one of them is asked for.
//! Chunks whose packages have not changed are copied from state to state.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::pieces;
use super::record::{Part, Record, Relations};
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::msgpack;
use crate::package::Format;

/// A package of a repository, as its state has it.
pub type Package = Record<Brief>;

/// What is known at once of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brief {
    /// The format of its file.
    pub format: Format,
    /// SHA-256 of all that indices say of it: two of one `id` have the same stanza.
    #[serde(with = "crate::msgpack::digest")]
    pub id: [u8; 32],
    /// Whether it is an `.rpm` that carries a signature.
    pub is_signed: bool,
    /// About how many bytes it has in each document of its format: `Packages`; `primary`, `filelists`, `other`.
    pub sizes: [u32; 3],
    /// Of a `.deb`, SHA-256 of its name and of what `Contents` says of it.
    #[serde(with = "crate::msgpack::digest")]
    pub listed: [u8; 32],
    /// The relations that decide about upgrades, in MessagePack: of most packages nobody asks.
    #[serde(with = "crate::msgpack::bytes")]
    relations: Box<[u8]>,
    /// The same, once somebody has asked for it.
    #[serde(skip)]
    decoded: Decoded,
    /// Size of the part in MessagePack, in bytes.
    size: u32,
    #[serde(skip)]
    body: Body,
}

/// Where the part is.
#[derive(Debug, Clone, Default)]
enum Body {
    /// It was read from the package, and is as it is kept.
    Read(Arc<(Part, Vec<u8>)>),
    /// In a chunk, and read when somebody asks for it.
    Kept(Arc<Kept>),
    #[default]
    Missing,
}

/// Relations, once they are decoded.
#[derive(Debug, Clone, Default)]
struct Decoded(OnceLock<Relations>);

/// Whether they are makes no difference.
impl PartialEq for Decoded {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Decoded {}

/// Where the part is makes no difference: `id` stands for what it says.
impl PartialEq for Body {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Body {}

/// The parts of packages that stand one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    count: usize,
    /// Size of all in MessagePack, in bytes.
    size: usize,
    /// The same, compressed.
    #[serde(with = "crate::msgpack::bytes")]
    bytes: Vec<u8>,
}

impl Chunk {
    /// Size of the bytes that it is kept in.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// A chunk, and what it has when it is decompressed: the parts in MessagePack, one after the other.
#[derive(Debug)]
struct Shelf {
    chunk: Chunk,
    bytes: OnceLock<Vec<u8>>,
}

/// A part in a chunk.
#[derive(Debug)]
struct Kept {
    shelf: Arc<Shelf>,
    /// Where it is.
    range: Range<usize>,
    part: OnceLock<Part>,
}

/// Level 1: a chunk is read by us alone, and often made.
const LEVEL: i32 = 1;
/// More than any chunk has, and less than memory.
const MOST: usize = 1 << 30;

impl Record<Part> {
    /// The same with its part set aside.
    pub fn brief(self) -> Result<Package> {
        let encoded = |value: std::result::Result<Vec<u8>, rmp_serde::encode::Error>| {
            value.map_err(|e| Error::failed("cannot encode a package").because(e))
        };
        let relations = encoded(rmp_serde::to_vec(&self.relations()))?.into_boxed_slice();
        let bytes = encoded(rmp_serde::to_vec(&self.part))?;
        let size = u32::try_from(bytes.len())
            .map_err(|_| Error::failed("a package says more of itself than 4 GiB"))?;
        let mut id = Sha256::new();
        let head = (&self.name, &self.version, &self.arch, &self.path);
        let head = (head, self.size, self.sha256, self.built);
        id.update(encoded(rmp_serde::to_vec(&head))?);
        id.update(&bytes);
        let (is_signed, sizes, listed) = match &self.part {
            Part::Deb(part) => (false, part.sizes(), part.listed(&self.name)),
            Part::Rpm(part) => (part.is_signed, part.sizes(), [0; 32]),
        };
        let format = self.format();
        let Record { name, version, arch, path, size: file_size, sha256, built, part } = self;
        let part = Brief {
            format,
            id: id.finalize().into(),
            is_signed,
            sizes,
            listed,
            relations,
            decoded: Decoded::default(),
            size,
            body: Body::Read(Arc::new((part, bytes))),
        };
        Ok(Record { name, version, arch, path, size: file_size, sha256, built, part })
    }
}

impl Brief {
    /// Size of the part in MessagePack, in bytes.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// What only its format has. Fails where the state is damaged.
    pub fn part(&self) -> Result<&Part> {
        match &self.body {
            Body::Read(read) => Ok(&read.0),
            Body::Kept(kept) => kept.part(),
            Body::Missing => Err(damaged().into()),
        }
    }

    /// The relations that decide about upgrades. Fails where the state is damaged.
    pub fn relations(&self) -> Result<&Relations> {
        if let Some(relations) = self.decoded.0.get() {
            return Ok(relations);
        }
        let (relations, _) = msgpack::decode(&self.relations).map_err(|e| damaged().because(e))?;
        Ok(self.decoded.0.get_or_init(|| relations))
    }

    /// The part in MessagePack.
    fn encoded(&self) -> Result<&[u8]> {
        match &self.body {
            Body::Read(read) => Ok(&read.1),
            Body::Kept(kept) => kept.bytes(),
            Body::Missing => Err(damaged().into()),
        }
    }
}

/// What is said of a state that does not hold what it has to.
pub(super) fn damaged() -> Error {
    Error::failed("the state of the repository is damaged").hint(
        "restore it from a copy, or make the repository anew: gfxpack repo create NEW DIR takes all packages below DIR, \
         also those that were removed lately, whose files stay for a while: remove them again",
    )
}

impl Shelf {
    fn bytes(&self) -> Result<&[u8]> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes);
        }
        let Chunk { size, bytes, .. } = &self.chunk;
        if *size > MOST {
            return Err(damaged().into());
        }
        let bytes = zstd::bulk::decompress(bytes, *size).map_err(|e| damaged().because(e))?;
        // Where another thread was faster, its are the same.
        Ok(self.bytes.get_or_init(|| bytes))
    }
}

impl Kept {
    fn bytes(&self) -> Result<&[u8]> {
        Ok(self.shelf.bytes()?.get(self.range.clone()).ok_or_else(damaged)?)
    }

    fn part(&self) -> Result<&Part> {
        if let Some(part) = self.part.get() {
            return Ok(part);
        }
        let (part, _) = msgpack::decode(self.bytes()?).map_err(|e| damaged().because(e))?;
        Ok(self.part.get_or_init(|| part))
    }
}

/// Gives packages the parts that chunks have of them, in their order.
pub(super) fn shelve<'a>(
    mut packages: impl Iterator<Item = &'a mut Brief>,
    chunks: Vec<Chunk>,
) -> Result<()> {
    for chunk in chunks {
        let (count, mut at) = (chunk.count, 0);
        let shelf = Arc::new(Shelf { chunk, bytes: OnceLock::new() });
        for _ in 0..count {
            let brief = packages.next().ok_or_else(damaged)?;
            let range = at..at + brief.size as usize;
            at = range.end;
            let (shelf, part) = (Arc::clone(&shelf), OnceLock::new());
            brief.body = Body::Kept(Arc::new(Kept { shelf, range, part }));
        }
    }
    match packages.next() {
        None => Ok(()),
        Some(_) => Err(damaged().into()),
    }
}

/// Puts the parts of packages into chunks; those that are there are copied.
pub(super) fn chunks(packages: &[&Brief], jobs: &Jobs) -> Result<Vec<Chunk>> {
    let runs = pieces::runs(packages.iter().map(|brief| (&brief.id, brief.size)));
    let made = jobs.drive(&runs, |run| chunk(&packages[run.clone()]));
    made.into_iter().collect()
}

/// The chunk that has these and no others, in their order.
fn whole<'a>(packages: &[&'a Brief]) -> Option<&'a Chunk> {
    let (mut shelf, mut at) = (None, 0);
    for brief in packages {
        let Body::Kept(kept) = &brief.body else { return None };
        let shelf = *shelf.get_or_insert(&kept.shelf);
        if !Arc::ptr_eq(shelf, &kept.shelf) || kept.range.start != at {
            return None;
        }
        at = kept.range.end;
    }
    shelf.map(|shelf| &shelf.chunk).filter(|chunk| chunk.size == at)
}

fn chunk(packages: &[&Brief]) -> Result<Chunk> {
    if let Some(chunk) = whole(packages) {
        return Ok(chunk.clone());
    }
    let mut all = Vec::new();
    for brief in packages {
        all.extend_from_slice(brief.encoded()?);
    }
    let bytes = zstd::bulk::compress(&all, LEVEL)
        .map_err(|e| Error::failed("cannot compress what is kept of packages").because(e))?;
    Ok(Chunk { count: packages.len(), size: all.len(), bytes })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::store::{self, Settings, State, Stored};
    use super::super::{Indices, apt, rpm};
    use super::*;

    fn jobs() -> Jobs {
        Jobs::new(2, 64 << 20)
    }

    fn text(seed: usize, words: usize) -> String {
        let word = |n: usize| format!("{:x} ", (n * seed).wrapping_mul(2_654_435_761) % 99_991);
        (0..words).map(word).collect()
    }

    fn package(format: Format, n: usize, version: usize) -> Package {
        let name = format!("bench{n:04}");
        let version = format!("{version}-1");
        let paths = (0..8 + n % 5).map(|file| format!("opt/rocm/lib/{name}/kernels_{file}.co"));
        let part = match format {
            Format::Deb => {
                let mut files: Vec<String> = paths.collect();
                files.push("opt/rocm/share/all".to_owned());
                let control = format!(
                    "Package: {name}\nVersion: {version}\nSection: libs\nDepends: bench0000 (= {version})\nDescription: {}\n",
                    text(n + 7, 250)
                );
                Part::Deb(apt::Record { control, files })
            }
            Format::Rpm => {
                let file =
                    |name: String| rpm::FileName { folder: 0, name, kind: rpm::FileKind::File };
                Part::Rpm(Box::new(rpm::Record {
                    version: version.clone(),
                    release: "1".to_owned(),
                    description: text(n + 7, 250),
                    folders: vec!["/".to_owned()],
                    files: paths.map(file).collect(),
                    ..rpm::Record::default()
                }))
            }
        };
        let record = Record {
            path: format!("pool/{name}_{version}"),
            arch: "amd64".to_owned(),
            size: 1000,
            sha256: Sha256::digest(format!("{name} {version}")).into(),
            built: 0,
            name,
            version,
            part,
        };
        record.brief().unwrap()
    }

    fn indices(packages: &[Stored], kept: &[pieces::Block]) -> Vec<Indices> {
        let of = |format| {
            let of = packages.iter().map(|stored| &*stored.record);
            of.filter(|record| record.part.format == format).collect::<Vec<_>>()
        };
        let settings = Settings::default();
        let kept = &pieces::Kept::of(kept);
        let (debs, rpms) = (of(Format::Deb), of(Format::Rpm));
        vec![
            apt::indices(&debs, &settings, 9, None, kept, &jobs()).unwrap(),
            rpm::indices(&rpms, &settings, 9, None, kept, &jobs()).unwrap(),
        ]
    }

    fn through_a_file(state: &State, path: &Path) -> State {
        let chunks = store::chunks(&state.packages, &jobs()).unwrap();
        std::fs::write(path, state.encode(&chunks, &jobs()).unwrap()).unwrap();
        State::read(path, &jobs()).unwrap()
    }

    /// Fails where something is copied that has changed, or what is read again is not what was written.
    #[test]
    fn what_is_copied_is_what_would_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut state = State::new(Settings::default());
        for format in [Format::Deb, Format::Rpm] {
            let stored = |n| Stored { record: package(format, n, 1).into(), mtime: 0 };
            state.packages.extend((0..400).map(stored));
        }
        let all = |indices: &[Indices]| -> Vec<pieces::Block> {
            indices.iter().flat_map(|one| one.blocks.clone()).collect()
        };
        state.blocks = all(&indices(&state.packages, &[]));
        let mut later = through_a_file(&state, &path);
        assert_eq!(later, state);
        // In four steps, each from the state of the one before: one in the middle of others, one less, one of another version, none.
        for step in 0..4 {
            let before = state.blocks.len();
            for state in [&mut state, &mut later] {
                let at = |name: usize| {
                    state
                        .packages
                        .iter()
                        .position(|one| one.record.name == format!("bench{name:04}"))
                };
                match step {
                    0 => {
                        let at = at(200).unwrap();
                        let record = package(Format::Deb, 200, 2).into();
                        state.packages.insert(at + 1, Stored { record, mtime: 0 });
                    }
                    1 => drop(state.packages.remove(at(30).unwrap())),
                    2 => {
                        let at = state.packages.len() - 40;
                        state.packages[at].record = package(Format::Rpm, 360, 3).into();
                    }
                    _ => {}
                }
            }
            let made = indices(&state.packages, &[]);
            assert!(indices(&later.packages, &later.blocks) == made, "step {step}");
            let kept: Vec<pieces::Block> = later.blocks.clone();
            (state.blocks, later.blocks) = (all(&made), all(&made));
            let same = later.blocks.iter().filter(|block| kept.contains(block)).count();
            assert!(before > 20 && same + 12 >= before, "step {step}: {same} of {before}");
            later = through_a_file(&later, &path);
            assert_eq!(later, state, "step {step}");
            for (one, other) in state.packages.iter().zip(&later.packages) {
                let (one, other) = (&one.record.part, &other.record.part);
                assert_eq!(one.part().unwrap(), other.part().unwrap());
                assert_eq!(one.relations().unwrap(), other.relations().unwrap());
            }
        }
    }
}
