//! `.kpm` manifests: which kpack archives belong to a component.
//!
//! A MessagePack map: `format_version` 1, `component_name`, `prefix`, `kpack_files`: { ISA: { `file`,
//! `size`, `kernel_count` } }. It is for people and older loaders; the runtime does not read it.

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::kpack::toc::unique_map;
use crate::target::TargetId;

/// A larger manifest is none.
const MAX_SIZE: u64 = 16 << 20;

/// Why a manifest cannot be read or merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KpmError {
    /// The bytes could not be read.
    #[error("cannot read the manifest")]
    Io(#[from] io::Error),
    /// More bytes than a manifest has.
    #[error("the manifest is larger than {MAX_SIZE} bytes")]
    TooLarge,
    /// The bytes cannot be decoded.
    #[error("cannot decode the manifest")]
    Decode(#[from] rmp_serde::decode::Error),
    /// The manifest cannot be encoded.
    #[error("cannot encode the manifest")]
    Encode(#[from] rmp_serde::encode::Error),
    /// An unknown version.
    #[error("manifest version is {found}, expected 1")]
    Version {
        /// The version.
        found: u32,
    },
    /// Bytes after the map.
    #[error("{extra} bytes follow the manifest's map")]
    Tail {
        /// How many.
        extra: u64,
    },
    /// Manifests of different components or prefixes do not go together.
    #[error("{field} is `{found}` in one manifest, `{expected}` in another")]
    Different {
        /// `component_name` or `prefix`.
        field: &'static str,
        /// In the later one.
        found: String,
        /// In the first one.
        expected: String,
    },
    /// Two manifests name different archives for one ISA.
    #[error("two manifests have an archive for {isa}: `{first}` and `{second}`")]
    Conflict {
        /// The ISA.
        isa: TargetId,
        /// File of the earlier one.
        first: String,
        /// File of the later one.
        second: String,
    },
    /// There was nothing to merge.
    #[error("no manifest to merge")]
    Nothing,
}

/// One archive of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KpmFile {
    /// Name of the archive.
    pub file: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its number of entries.
    pub kernel_count: u64,
}

/// A manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kpm {
    /// Always 1.
    pub format_version: u32,
    /// The artifact prefix (`blas_lib`).
    pub component_name: String,
    /// The prefix (of `artifact_manifest.txt`) that it is for.
    pub prefix: String,
    /// The archives by ISA.
    #[serde(deserialize_with = "unique_map")]
    pub kpack_files: BTreeMap<TargetId, KpmFile>,
}

impl Kpm {
    /// A manifest without archives.
    pub fn new(component_name: &str, prefix: &str) -> Self {
        Self {
            format_version: 1,
            component_name: component_name.to_owned(),
            prefix: prefix.to_owned(),
            kpack_files: BTreeMap::new(),
        }
    }

    /// Reads a manifest to the end of the stream.
    pub fn read(stream: impl Read) -> Result<Self, KpmError> {
        let mut bytes = Vec::new();
        stream.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_SIZE {
            return Err(KpmError::TooLarge);
        }
        let mut cursor = io::Cursor::new(bytes.as_slice());
        let this: Self = rmp_serde::from_read(&mut cursor)?;
        if this.format_version != 1 {
            return Err(KpmError::Version { found: this.format_version });
        }
        let extra = (bytes.len() as u64).saturating_sub(cursor.position());
        if extra > 0 { Err(KpmError::Tail { extra }) } else { Ok(this) }
    }

    /// The manifest's bytes: the same for the same content.
    pub fn to_bytes(&self) -> Result<Vec<u8>, KpmError> {
        Ok(rmp_serde::to_vec_named(self)?)
    }

    /// One manifest with the archives of all. They must be of one component and prefix, and agree
    /// where they name an archive for the same ISA.
    pub fn merge(manifests: impl IntoIterator<Item = Self>) -> Result<Self, KpmError> {
        let mut manifests = manifests.into_iter();
        let mut merged = manifests.next().ok_or(KpmError::Nothing)?;
        for other in manifests {
            for (field, found, expected) in [
                ("component_name", &other.component_name, &merged.component_name),
                ("prefix", &other.prefix, &merged.prefix),
            ] {
                if found != expected {
                    let (found, expected) = (found.clone(), expected.clone());
                    return Err(KpmError::Different { field, found, expected });
                }
            }
            for (isa, file) in other.kpack_files {
                match merged.kpack_files.get(&isa) {
                    Some(first) if *first != file => {
                        let (first, second) = (first.file.clone(), file.file);
                        return Err(KpmError::Conflict { isa, first, second });
                    }
                    _ => merged.kpack_files.insert(isa, file),
                };
            }
        }
        Ok(merged)
    }
}
