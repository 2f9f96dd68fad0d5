//! Markers (`.rocm_kpack_ref`): what a converted binary holds in place of its device code.
//!
//! A MessagePack map { `kpack_search_paths`: [str], `kernel_name`: str } of at most 64 KiB, in a
//! section that may be longer: zeros follow. Older descriptions have the search paths alone, as
//! text with colons between; no text begins with a byte that a MessagePack map begins with.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::target::TargetId;

/// A marker is not larger.
pub const MAX_SIZE: usize = 64 << 10;

/// What the runtime replaces by the ISA in a search path.
pub const ARCH_PLACEHOLDER: &str = "@GFXARCH@";

/// Why a marker cannot be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkerError {
    /// The bytes cannot be decoded.
    #[error("cannot decode the marker")]
    Decode(#[from] rmp_serde::decode::Error),
    /// The marker cannot be encoded.
    #[error("cannot encode the marker")]
    Encode(#[from] rmp_serde::encode::Error),
    /// A marker that the runtime would not read.
    #[error("the marker has {found} bytes, expected at most {MAX_SIZE}")]
    TooLarge {
        /// Its size.
        found: usize,
    },
    /// Neither a map nor text.
    #[error("byte {offset:#x} of the marker is {found:#04x}, expected a MessagePack map, or text")]
    NoText {
        /// Which byte.
        offset: usize,
        /// Its value.
        found: u8,
    },
    /// Nothing but zeros.
    #[error("the marker is empty")]
    Empty,
    /// Something other than zeros follows.
    #[error("byte {offset:#x}, after the marker's end, is {found:#04x}, expected 0")]
    Padding {
        /// Which byte.
        offset: usize,
        /// Its value.
        found: u8,
    },
    /// A path that the format cannot hold.
    #[error("`{}` is not UTF-8, and a marker can hold nothing else", path.display())]
    NonUtf8Path {
        /// The path.
        path: PathBuf,
    },
    /// A search path that cannot be written as text.
    #[error(
        "search path `{path}` cannot be written as text: it is empty or holds `:` or a control character"
    )]
    NotText {
        /// The path.
        path: String,
    },
}

/// A marker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Where to look for archives, in order; relative to the binary's own directory.
    pub kpack_search_paths: Vec<String>,
    /// The binary's name in the archives: `{prefix}/{path under the prefix}`, without an index.
    pub kernel_name: String,
}

/// A marker of either form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedMarker {
    /// A MessagePack map.
    Map(Marker),
    /// Plain text: the search paths alone.
    Text(Vec<String>),
}

/// The name under which a binary's kernels are filed: `{prefix}/{path}`, `path` being that under the
/// prefix. Fails for a path that is not UTF-8.
pub fn kernel_name(prefix: &str, path: &Path) -> Result<String, MarkerError> {
    let text = path.to_str().ok_or_else(|| MarkerError::NonUtf8Path { path: path.to_owned() })?;
    Ok(if prefix.is_empty() { text.to_owned() } else { format!("{prefix}/{text}") })
}

/// The search path from a binary to an archive, both relative to one root:
/// `lib/librocblas.so`, `.kpack/blas_lib_@GFXARCH@.kpack` → `../.kpack/blas_lib_@GFXARCH@.kpack`.
/// Fails for a path that is not UTF-8.
pub fn search_path(binary: &Path, archive: &Path) -> Result<String, MarkerError> {
    let non_utf8 = |path: &Path| MarkerError::NonUtf8Path { path: path.to_owned() };
    let normal = |path: &'_ Path| -> Vec<PathBuf> {
        let parts = path.components().filter(|c| matches!(c, Component::Normal(_)));
        parts.map(|c| PathBuf::from(c.as_os_str())).collect()
    };
    let from = normal(binary.parent().unwrap_or(Path::new("")));
    let to = normal(archive);
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let mut parts = vec!["..".to_owned(); from.len() - common];
    for part in &to[common..] {
        parts.push(part.to_str().ok_or_else(|| non_utf8(archive))?.to_owned());
    }
    Ok(parts.join("/"))
}

impl Marker {
    /// The marker's bytes: the same for the same content.
    pub fn to_bytes(&self) -> Result<Vec<u8>, MarkerError> {
        checked(rmp_serde::to_vec_named(self)?)
    }

    /// The older form: the search paths as text, with colons between. Does not hold the name.
    pub fn to_text(&self) -> Result<Vec<u8>, MarkerError> {
        let bad = |p: &&String| p.is_empty() || p.contains(|c: char| c == ':' || c.is_control());
        if let Some(path) = self.kpack_search_paths.iter().find(bad) {
            return Err(MarkerError::NotText { path: path.clone() });
        }
        match self.kpack_search_paths.join(":") {
            text if text.is_empty() => Err(MarkerError::Empty),
            text => checked(text.into_bytes()),
        }
    }

    /// Reads a marker of either form from the bytes of its section; zeros may follow it.
    pub fn parse(bytes: &[u8]) -> Result<ParsedMarker, MarkerError> {
        let within = &bytes[..bytes.len().min(MAX_SIZE)];
        let (parsed, end) = match bytes.first() {
            None | Some(0) => return Err(MarkerError::Empty),
            Some(0x80..=0x8f | 0xde | 0xdf) => {
                let mut cursor = std::io::Cursor::new(within);
                let marker = rmp_serde::from_read(&mut cursor)?;
                let end = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
                (ParsedMarker::Map(marker), end)
            }
            Some(_) => {
                let end = within.iter().position(|&b| b == 0).unwrap_or(within.len());
                let text = &within[..end];
                let no_text = |offset: usize| {
                    let found = text.get(offset).copied().unwrap_or_default();
                    MarkerError::NoText { offset, found }
                };
                let text = std::str::from_utf8(text).map_err(|e| no_text(e.valid_up_to()))?;
                // A line end is what an editor or `echo` leaves.
                let text = text.trim_end_matches('\n');
                if let Some((offset, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
                    return Err(no_text(offset));
                }
                let paths = text.split(':').filter(|p| !p.is_empty());
                (ParsedMarker::Text(paths.map(str::to_owned).collect()), end)
            }
        };
        let padding = bytes.get(end..).unwrap_or_default();
        match padding.iter().position(|&b| b != 0) {
            Some(i) if end == MAX_SIZE => Err(MarkerError::TooLarge { found: end + i + 1 }),
            Some(i) => Err(MarkerError::Padding { offset: end + i, found: padding[i] }),
            None => Ok(parsed),
        }
    }

    /// The archives where the runtime looks for kernels of `isa`, in its order: for the full id, each
    /// subset of its features and the bare processor, each search path. `dir` is the binary's own.
    /// Paths are not normalised: `..` goes through symbolic links as the system has it.
    pub fn resolve(&self, dir: &Path, isa: &TargetId) -> Vec<PathBuf> {
        let mut candidates = Vec::new();
        for id in isa.search_order() {
            for path in &self.kpack_search_paths {
                let candidate = dir.join(path.replace(ARCH_PLACEHOLDER, &id.to_string()));
                if !candidates.contains(&candidate) {
                    candidates.push(candidate);
                }
            }
        }
        candidates
    }
}

fn checked(bytes: Vec<u8>) -> Result<Vec<u8>, MarkerError> {
    match bytes.len() {
        found if found > MAX_SIZE => Err(MarkerError::TooLarge { found }),
        _ => Ok(bytes),
    }
}
