//! Markers (`.rocm_kpack_ref`): what a converted binary holds in place of its device code.
//!
//! A MessagePack map { `kpack_search_paths`: [str], `kernel_name`: str } of at most 64 KiB, in a
//! section that may be longer: zeros follow. Older descriptions have the search paths alone, as
//! text with colons between. Text that begins as a map does, with a letter from U+0780 to U+07FF, is
//! not written, and read as a map.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::msgpack;
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
    /// Text that would be read as a map.
    #[error("`{text}` cannot be written as text: its first byte is one that a map begins with")]
    TextLikeMap {
        /// The text.
        text: String,
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
        let text = self.kpack_search_paths.join(":");
        match text.as_bytes().first() {
            None => Err(MarkerError::Empty),
            Some(&first) if begins_map(first) => Err(MarkerError::TextLikeMap { text }),
            Some(_) => checked(text.into_bytes()),
        }
    }

    /// Reads a marker of either form from the bytes of its section; zeros may follow it.
    pub fn parse(bytes: &[u8]) -> Result<ParsedMarker, MarkerError> {
        let within = &bytes[..bytes.len().min(MAX_SIZE)];
        let (parsed, end) = match bytes.first() {
            None | Some(0) => return Err(MarkerError::Empty),
            Some(&first) if begins_map(first) => {
                let (marker, end) = msgpack::decode(within)?;
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
        // A marker has room for thousands of paths: each is not compared with all others.
        let mut seen = HashSet::new();
        for id in isa.search_order() {
            for path in &self.kpack_search_paths {
                let candidate = dir.join(path.replace(ARCH_PLACEHOLDER, &id.to_string()));
                if seen.insert(candidate.clone()) {
                    candidates.push(candidate);
                }
            }
        }
        candidates
    }
}

/// Whether a MessagePack map begins with that byte.
fn begins_map(first: u8) -> bool {
    matches!(first, 0x80..=0x8f | 0xde | 0xdf)
}

fn checked(bytes: Vec<u8>) -> Result<Vec<u8>, MarkerError> {
    match bytes.len() {
        found if found > MAX_SIZE => Err(MarkerError::TooLarge { found }),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn marker() -> Marker {
        Marker {
            kpack_search_paths: vec!["../.kpack/blas_lib_@GFXARCH@.kpack".to_owned()],
            kernel_name: "math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.4".to_owned(),
        }
    }

    #[test]
    fn a_map_comes_back_with_and_without_padding() {
        let mut bytes = marker().to_bytes().unwrap();
        assert!(bytes.starts_with(b"\x82\xb2kpack_search_paths\x91"));
        for cut in 0..bytes.len() {
            assert!(Marker::parse(&bytes[..cut]).is_err());
        }
        assert_eq!(Marker::parse(&bytes).unwrap(), ParsedMarker::Map(marker()));
        bytes.resize(100_000, 0);
        assert_eq!(Marker::parse(&bytes).unwrap(), ParsedMarker::Map(marker()));
        bytes[99_999] = 1;
        assert!(matches!(Marker::parse(&bytes), Err(MarkerError::Padding { offset: 99_999, .. })));
    }

    #[test]
    fn text_comes_back_with_and_without_padding() {
        let paths = ["../../../.kpack", "../../.kpack", ".kpack"].map(str::to_owned).to_vec();
        let text = Marker { kpack_search_paths: paths.clone(), ..marker() }.to_text().unwrap();
        assert_eq!(text, b"../../../.kpack:../../.kpack:.kpack");
        for tail in [&b""[..], b"\0", b"\n\0\0\0"] {
            let bytes = [&text, tail].concat();
            assert_eq!(Marker::parse(&bytes).unwrap(), ParsedMarker::Text(paths.clone()));
        }
        assert!(matches!(Marker::parse(b"a\x01b"), Err(MarkerError::NoText { offset: 1, .. })));
        assert!(matches!(
            Marker::parse(b"a\xffb"),
            Err(MarkerError::NoText { offset: 1, found: 0xff })
        ));
        assert!(matches!(Marker::parse(b"a\0b"), Err(MarkerError::Padding { offset: 2, .. })));
        assert!(matches!(Marker::parse(&[0; 10]), Err(MarkerError::Empty)));
        let colon = Marker { kpack_search_paths: vec!["a:b".to_owned()], ..marker() };
        assert!(matches!(colon.to_text(), Err(MarkerError::NotText { .. })));
        // In UTF-8 this letter begins with 0xdf.
        assert_eq!(Marker::parse(":ߊ".as_bytes()).unwrap(), ParsedMarker::Text(vec!["ߊ".into()]));
        let like_map = Marker { kpack_search_paths: vec!["ߊ".to_owned()], ..marker() };
        assert!(matches!(like_map.to_text(), Err(MarkerError::TextLikeMap { .. })));
    }

    #[test]
    fn nothing_over_64_kib_is_written_or_read() {
        let long = Marker { kernel_name: "x".repeat(MAX_SIZE), ..marker() };
        assert!(matches!(long.to_bytes(), Err(MarkerError::TooLarge { .. })));
        assert!(Marker::parse(&rmp_serde::to_vec_named(&long).unwrap()).is_err());
        assert!(matches!(
            Marker::parse(&vec![b'x'; MAX_SIZE + 1]),
            Err(MarkerError::TooLarge { .. })
        ));
    }

    #[test]
    fn no_changed_byte_panics() {
        let bytes = marker().to_bytes().unwrap();
        for at in 0..bytes.len() {
            for value in 0..=255 {
                let mut bad = bytes.clone();
                bad[at] = value;
                let _ = Marker::parse(&bad);
            }
        }
        let deep = [b"\x81\xa1x".as_slice(), &[0x91; 60_000]].concat();
        assert!(Marker::parse(&deep).is_err());
    }

    #[test]
    fn the_runtimes_search_is_followed() {
        let paths = |isa: &str| -> Vec<_> {
            let found = marker().resolve(Path::new("/opt/rocm/lib"), &isa.parse().unwrap());
            found.into_iter().map(|p| p.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(paths("gfx1100"), ["/opt/rocm/lib/../.kpack/blas_lib_gfx1100.kpack"]);
        assert_eq!(
            paths("gfx90a:xnack+"),
            [
                "/opt/rocm/lib/../.kpack/blas_lib_gfx90a:xnack+.kpack",
                "/opt/rocm/lib/../.kpack/blas_lib_gfx90a.kpack",
            ]
        );
        let fixed = Marker { kpack_search_paths: vec!["/k.kpack".to_owned()], ..marker() };
        let found = fixed.resolve(Path::new("/lib"), &"gfx90a:xnack+".parse().unwrap());
        assert_eq!(found, [Path::new("/k.kpack")]);
    }

    #[test]
    fn a_marker_full_of_paths_is_resolved_in_no_time() {
        let kpack_search_paths: Vec<_> = (0..12_000).map(|i| format!("{i:x}")).collect();
        let full = Marker { kpack_search_paths, kernel_name: String::new() };
        assert!(full.to_bytes().unwrap().len() > MAX_SIZE / 2);
        let started = std::time::Instant::now();
        let found = full.resolve(Path::new("/lib"), &"gfx90a:sramecc+:xnack-".parse().unwrap());
        assert_eq!(found.len(), 12_000);
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }

    #[test]
    fn names_and_paths_are_made() {
        assert_eq!(kernel_name("a/stage", Path::new("lib/x.so")).unwrap(), "a/stage/lib/x.so");
        let bad = Path::new(OsStr::from_bytes(b"lib/\xff.so"));
        assert!(matches!(kernel_name("a", bad), Err(MarkerError::NonUtf8Path { .. })));
        let archive = Path::new(".kpack/b_@GFXARCH@.kpack");
        for (binary, path) in [
            ("lib/librocblas.so", "../.kpack/b_@GFXARCH@.kpack"),
            ("top", ".kpack/b_@GFXARCH@.kpack"),
            ("./lib/a/b/x.so", "../../../.kpack/b_@GFXARCH@.kpack"),
            (".kpack/x.so", "b_@GFXARCH@.kpack"),
        ] {
            assert_eq!(search_path(Path::new(binary), archive).unwrap(), path);
        }
    }
}
