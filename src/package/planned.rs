//! A planned package as a file, for another run to write: what `gfxpack plan` leaves and `gfxpack make` takes.
//!
//! `GFXPLAN` · u8 version of the format (1) · BLAKE3 of all that follows (32 bytes) · MessagePack: the version of gfxpack
//! (another may plan otherwise, so it is refused), the package, its tree ([`TreeRecord`]), formats with their
//! compressions, templates that are not the built-in ones, the directory that all of the input is in. The same plan gives the same bytes: so a build engine sees by them
//! whether a package has to be made again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Format;
use super::compress::Compression;
use super::render::Templates;
use super::spec::Package;
use crate::msgpack;
use crate::tree::record::{KnownKpacks, KpackPlaces, RecordError, TreeRecord};

/// The first bytes of a plan: name and version of the format.
pub const MAGIC: &[u8; 8] = b"GFXPLAN\x01";
const DIGEST: usize = 32;
/// A larger plan is none: 100 000 files take some 20 MB.
const MAX_SIZE: u64 = 1 << 30;

/// Why bytes are no plan of a package.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// They could not be read.
    #[error("cannot read the plan")]
    Io(#[from] std::io::Error),
    /// They begin with something else.
    #[error("is no plan of a package (expected GFXPLAN and the version 1)")]
    Magic,
    /// There are too many of them.
    #[error("has more than {MAX_SIZE} bytes")]
    TooLarge,
    /// They are not what was written.
    #[error("is damaged: its digest is not that of its content")]
    Digest,
    /// They cannot be decoded.
    #[error("cannot be decoded")]
    Decode(#[from] rmp_serde::decode::Error),
    /// The plan cannot be encoded.
    #[error("cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
    /// Another gfxpack made it.
    #[error("was made by gfxpack {found}; this is {}", env!("CARGO_PKG_VERSION"))]
    Version {
        /// Its version.
        found: String,
    },
    /// A format or compression that does not exist.
    #[error("has the format `{0}`")]
    Format(String),
    /// Its tree is none.
    #[error("has a tree that is none")]
    Tree(#[from] RecordError),
}

/// A planned package and how it is written, to be kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct PackagePlan {
    program: String,
    package: Package,
    tree: TreeRecord,
    /// Formats and their compressions, as text.
    formats: Vec<(String, String)>,
    templates: BTreeMap<String, String>,
    #[serde(with = "crate::msgpack::bytes")]
    input: Vec<u8>,
}

impl PackagePlan {
    /// Records a package of a set. `places` has the archives of all packages of the set, `input` is the directory that the set
    /// was made from.
    pub fn new(
        package: &Package,
        places: &KpackPlaces,
        formats: &[(Format, Compression)],
        templates: &Templates,
        input: &Path,
    ) -> Self {
        let tree = TreeRecord::new(&package.tree, places);
        let formats = formats.iter();
        Self {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            package: Package { tree: crate::tree::Tree::new(), ..package.clone() },
            tree,
            formats: formats.map(|(f, how)| (f.as_str().to_owned(), how.to_string())).collect(),
            templates: templates.replaced(),
            input: input.as_os_str().as_bytes().to_vec(),
        }
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PlanError> {
        let content = rmp_serde::to_vec(self)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(blake3::hash(&content).as_bytes());
        bytes.extend_from_slice(&content);
        Ok(bytes)
    }

    /// Reads a plan to the end of the stream.
    pub fn read(stream: impl Read) -> Result<Self, PlanError> {
        let mut bytes = Vec::new();
        stream.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_SIZE {
            return Err(PlanError::TooLarge);
        }
        let content = bytes.strip_prefix(MAGIC).ok_or(PlanError::Magic)?;
        let (digest, content) = content.split_first_chunk::<DIGEST>().ok_or(PlanError::Digest)?;
        if *blake3::hash(content).as_bytes() != *digest {
            return Err(PlanError::Digest);
        }
        // The version comes first, and is all of a plan of another version that can be relied on.
        if let Some((0x90..=0x9f, fields)) = content.split_first() {
            let (found, _): (String, _) = msgpack::decode(fields)?;
            if found != env!("CARGO_PKG_VERSION") {
                return Err(PlanError::Version { found });
            }
        }
        let (plan, _): (Self, _) = msgpack::decode(content)?;
        Ok(plan)
    }

    /// The package's name as people write it.
    pub fn name(&self) -> &str {
        self.package.name.as_str()
    }

    /// The package without its content.
    pub fn package_alone(&self) -> &Package {
        &self.package
    }

    /// The files of the input that writing it reads: those on disk, and archives.
    pub fn files(&self) -> BTreeSet<PathBuf> {
        self.tree.files()
    }

    /// The directory that all of the input is in, of which the files are a part.
    pub fn input(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.input))
    }

    /// The packages with kpack archives whose sizes it needs.
    pub fn needs(&self) -> BTreeSet<&str> {
        self.tree.needs()
    }

    /// The formats that it is written in, with their compressions.
    pub fn formats(&self) -> Result<Vec<(Format, Compression)>, PlanError> {
        let read = |(format, how): &(String, String)| {
            let format = Format::called(format).ok_or_else(|| PlanError::Format(format.clone()))?;
            let how = how.parse().map_err(|_| PlanError::Format(how.clone()))?;
            Ok((format, how))
        };
        self.formats.iter().map(read).collect()
    }

    /// The templates that it is written with.
    pub fn templates(&self) -> Templates {
        Templates::with_texts(self.templates.clone())
    }

    /// The package; see [`TreeRecord::tree`] for what is checked.
    pub fn package(&self, times: bool, known: &KnownKpacks) -> Result<Package, PlanError> {
        let tree = self.tree.tree(times, known)?;
        Ok(Package { tree, ..self.package.clone() })
    }
}
