//! `.kpm` manifests: which kpack archives belong to a component.
//!
//! A MessagePack map: `format_version` 1, `component_name`, `prefix`, `kpack_files`: { ISA: { `file`,
//! `size`, `kernel_count` } }. It is for people and older loaders; the runtime does not read it.

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::kpack::toc::unique_map;
use crate::msgpack;
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
        let (this, used): (Self, _) = msgpack::decode(&bytes)?;
        if this.format_version != 1 {
            return Err(KpmError::Version { found: this.format_version });
        }
        let extra = (bytes.len() - used) as u64;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kpm(isas: &[(&str, u64)]) -> Kpm {
        let mut kpm = Kpm::new("blas_lib", "math-libs/BLAS/rocBLAS/stage");
        for &(isa, size) in isas {
            let file = format!("blas_lib_{isa}.kpack");
            let file = KpmFile { file, size, kernel_count: 3 };
            kpm.kpack_files.insert(isa.parse().unwrap(), file);
        }
        kpm
    }

    #[test]
    fn a_manifest_comes_back() {
        let kpm = kpm(&[("gfx90a:xnack+", 5), ("gfx1100", 1 << 40)]);
        let bytes = kpm.to_bytes().unwrap();
        assert_eq!(Kpm::read(bytes.as_slice()).unwrap(), kpm);
        // A map of four with string keys, `format_version` first.
        assert!(bytes.starts_with(b"\x84\xaeformat_version\x01\xaecomponent_name\xa8blas_lib"));
        for cut in 0..bytes.len() {
            assert!(Kpm::read(&bytes[..cut]).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(matches!(Kpm::read(longer.as_slice()), Err(KpmError::Tail { extra: 1 })));
        let at = bytes.iter().position(|&b| b == 1).unwrap();
        let mut newer = bytes.clone();
        newer[at] = 2;
        assert!(matches!(Kpm::read(newer.as_slice()), Err(KpmError::Version { found: 2 })));
    }

    #[test]
    fn merging_unites_and_finds_conflicts() {
        let (a, b) =
            (kpm(&[("gfx1101", 1), ("gfx1100", 2)]), kpm(&[("gfx1102", 3), ("gfx1100", 2)]));
        let merged = Kpm::merge([a.clone(), b.clone()]).unwrap();
        assert_eq!(merged, Kpm::merge([b, a.clone()]).unwrap());
        assert_eq!(merged, kpm(&[("gfx1100", 2), ("gfx1101", 1), ("gfx1102", 3)]));
        let other = kpm(&[("gfx1100", 9)]);
        assert!(matches!(Kpm::merge([a.clone(), other]), Err(KpmError::Conflict { .. })));
        let other = Kpm::new("fft_lib", "math-libs/BLAS/rocBLAS/stage");
        assert!(matches!(Kpm::merge([a, other]), Err(KpmError::Different { .. })));
        assert!(matches!(Kpm::merge([]), Err(KpmError::Nothing)));
    }

    #[test]
    fn no_changed_byte_panics() {
        let bytes = kpm(&[("gfx1100", 1), ("gfx1101", 1)]).to_bytes().unwrap();
        for at in 0..bytes.len() {
            for value in 0..=255 {
                let mut bad = bytes.clone();
                bad[at] = value;
                let _ = Kpm::read(bad.as_slice());
            }
        }
    }

    #[test]
    fn an_isa_twice_is_refused() {
        let mut bytes = kpm(&[("gfx1100", 1), ("gfx1101", 1)]).to_bytes().unwrap();
        let at = bytes.windows(8).position(|w| w == b"\xa7gfx1101").unwrap();
        bytes[at + 7] = b'0';
        let error = Kpm::read(bytes.as_slice()).unwrap_err();
        assert!(matches!(error, KpmError::Decode(_)), "{error}");
    }
}
