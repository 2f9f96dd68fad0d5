//! Paths inside a tree: relative, clean, bytes rather than text.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why a path cannot stand in a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing is left of it.
    #[error("the path is empty")]
    Empty,
    /// It begins with `/`.
    #[error("`{0}` is absolute (expected a path relative to the tree)")]
    Absolute(String),
    /// It has a `..` component.
    #[error("`{0}` leaves the tree through `..`")]
    Leaves(String),
    /// It has a NUL byte, which no file system takes.
    #[error("`{0}` has a NUL byte")]
    Nul(String),
}

/// A path relative to the root of a tree: no empty, `.` or `..` component, no leading or trailing
/// slash. Any other byte may stand in it; it need not be UTF-8.
///
/// Ordered component by component, so that a directory is followed by all that is in it, as `tar
/// --sort=name` and `dpkg-deb` walk: `a`, `a/b`, `a-b`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TreePath(Box<[u8]>);

/// As bytes, since a path need not be UTF-8; cleaned and checked when it is read.
impl serde::Serialize for TreePath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for TreePath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes: Vec<u8> = crate::msgpack::bytes::deserialize(deserializer)?;
        Self::new(bytes).map_err(serde::de::Error::custom)
    }
}

impl TreePath {
    /// Cleans `path` (double slashes and `.` go) and checks that it stays inside the tree.
    pub fn new(path: impl AsRef<[u8]>) -> Result<Self, PathError> {
        let path = path.as_ref();
        let text = || String::from_utf8_lossy(path).into_owned();
        if path.first() == Some(&b'/') {
            return Err(PathError::Absolute(text()));
        }
        if path.contains(&0) {
            return Err(PathError::Nul(text()));
        }
        let mut clean = Vec::with_capacity(path.len());
        for part in path.split(|&b| b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(PathError::Leaves(text())),
                part => {
                    if !clean.is_empty() {
                        clean.push(b'/');
                    }
                    clean.extend_from_slice(part);
                }
            }
        }
        if clean.is_empty() {
            return Err(PathError::Empty);
        }
        Ok(Self(clean.into()))
    }

    /// The bytes, without a leading or trailing slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a relative path of the file system.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// As text, where it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The components, each without slashes.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/')
    }

    /// The last component.
    pub fn file_name(&self) -> &[u8] {
        self.components().next_back().unwrap_or_default()
    }

    /// The directory that it stands in, or `None` for one at the top.
    pub fn parent(&self) -> Option<Self> {
        let slash = self.0.iter().rposition(|&b| b == b'/')?;
        Some(Self(self.0[..slash].into()))
    }

    /// All directories above it, the nearest first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(self.parent(), Self::parent)
    }

    /// This path with another below it.
    #[must_use]
    pub fn join(&self, below: &Self) -> Self {
        Self([&self.0, &b"/"[..], &below.0].concat().into())
    }

    /// What remains below `prefix`, or `None` where it is not strictly below.
    pub fn strip_prefix(&self, prefix: &Self) -> Option<Self> {
        let rest = self.0.strip_prefix(prefix.as_bytes())?.strip_prefix(b"/")?;
        Some(Self(rest.into()))
    }

    /// Where a symbolic link of this path with that `target` points to inside the tree, or `None`
    /// where it leaves it (or is absolute).
    pub fn resolve_link(&self, target: &[u8]) -> Option<Self> {
        if target.first() == Some(&b'/') {
            return None;
        }
        let mut parts: Vec<&[u8]> = self.components().collect();
        parts.pop();
        for part in target.split(|&b| b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    parts.pop()?;
                }
                part => parts.push(part),
            }
        }
        Self::new(parts.join(&b'/')).ok()
    }
}

impl Ord for TreePath {
    fn cmp(&self, other: &Self) -> Ordering {
        // A slash ends a component, so it sorts before every byte that a component can hold.
        let key = |&b: &u8| if b == b'/' { 0 } else { b };
        // Neighbours in a tree begin alike, and a path may have thousands of bytes: those are passed over in blocks.
        const BLOCK: usize = 32;
        let blocks = self.0.chunks_exact(BLOCK).zip(other.0.chunks_exact(BLOCK));
        let same = BLOCK * blocks.take_while(|(one, other)| one == other).count();
        self.0[same..].iter().map(key).cmp(other.0[same..].iter().map(key))
    }
}

impl PartialOrd for TreePath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl TryFrom<&str> for TreePath {
    type Error = PathError;

    fn try_from(path: &str) -> Result<Self, PathError> {
        Self::new(path)
    }
}

impl From<&TreePath> for PathBuf {
    fn from(path: &TreePath) -> Self {
        path.as_path().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> TreePath {
        TreePath::new(s).unwrap()
    }

    #[test]
    fn a_path_is_cleaned_or_refused() {
        assert_eq!(p("./a//b/./c/").to_string(), "a/b/c");
        assert_eq!(TreePath::new("../x"), Err(PathError::Leaves("../x".into())));
        assert_eq!(TreePath::new("a/../b"), Err(PathError::Leaves("a/../b".into())));
        assert_eq!(TreePath::new("/etc"), Err(PathError::Absolute("/etc".into())));
        assert_eq!(TreePath::new("./"), Err(PathError::Empty));
        assert!(TreePath::new(b"a\0b").is_err());
        assert_eq!(TreePath::new(b"a/\xff").unwrap().as_str(), None);
    }

    #[test]
    fn a_directory_is_followed_by_its_content() {
        let mut paths = [p("a-b"), p("a/b"), p("a"), p("a.c"), p("a/b/c"), p("a/b-c")];
        paths.sort();
        let sorted: Vec<_> = paths.iter().map(ToString::to_string).collect();
        assert_eq!(sorted, ["a", "a/b", "a/b/c", "a/b-c", "a-b", "a.c"]);
        // And behind as many bytes in common as one likes.
        for common in 1..70 {
            let long = |end: &str| p(&("x".repeat(common) + end));
            let mut paths = ["-b", "/b", "", ".c", "/b/c", "/b-c"].map(long);
            paths.sort();
            assert_eq!(paths, ["", "/b", "/b/c", "/b-c", "-b", ".c"].map(long), "{common}");
        }
    }

    #[test]
    fn links_resolve_inside_the_tree_only() {
        assert_eq!(p("lib/x.so").resolve_link(b"x.so.1"), Some(p("lib/x.so.1")));
        assert_eq!(p("lib/x.so").resolve_link(b"../bin/./y"), Some(p("bin/y")));
        assert_eq!(p("lib/x.so").resolve_link(b"../../y"), None);
        assert_eq!(p("lib/x.so").resolve_link(b"/lib/y"), None);
    }
}
