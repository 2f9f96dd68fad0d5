//! What is reported of a package, whatever its format.

use std::fmt::Write as _;

use serde::Serialize;
use serde::ser::SerializeMap;

/// More files than any package has; few enough to hold in memory.
pub const MAX_FILES: usize = 1 << 20;

/// A package. Lists are in the order of the package.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PackageReport {
    /// Name and value of each field that is not a relation.
    #[serde(serialize_with = "as_map")]
    pub fields: Vec<(String, String)>,
    /// Relations to other packages by kind (`Depends`, `requires`), each as it is written.
    #[serde(serialize_with = "as_map")]
    pub relations: Vec<(String, Vec<String>)>,
    /// Maintainer scripts and triggers.
    pub scripts: Vec<Script>,
    /// Other files of control data, as `conffiles` and `triggers`.
    pub control_files: Vec<Script>,
    /// What is installed.
    pub files: Vec<FileReport>,
    /// The parts of the package's file.
    pub members: Vec<Member>,
    /// Digests over parts of the package, as the package states them.
    #[serde(serialize_with = "as_map")]
    pub digests: Vec<(String, String)>,
    /// The signatures that it holds; they are not checked.
    pub signatures: Vec<String>,
    /// Bytes of all its files.
    pub installed_bytes: u64,
    /// Files that `md5sums` leaves out though there is one, configuration files aside.
    #[serde(skip)]
    pub unlisted: Vec<String>,
    /// What an installer would stumble over, or what does not agree.
    pub problems: Vec<String>,
}

/// A script, or another text that controls the installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Script {
    /// What it is called: `postinst`, `post`.
    pub name: String,
    /// What runs it, with arguments, where the package says so.
    pub interpreter: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// Its text, with `\xff` for a byte that is no UTF-8.
    pub text: String,
}

/// An installed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileReport {
    /// Absolute, with `\xff` for a byte that is no UTF-8.
    pub path: String,
    /// `file`, `directory`, `symlink`, `hard link`, `device`, `fifo`, `socket`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Permission bits in octal.
    pub mode: String,
    /// Size in bytes.
    pub size: u64,
    /// `user/group`.
    pub owner: String,
    /// Seconds since 1970.
    pub mtime: i64,
    /// Where a link leads to.
    pub link: Option<String>,
    /// Digest of its content: MD5 in a `.deb`, computed; in an `.rpm` as the header states it.
    pub digest: Option<String>,
    /// Marks: `config`, `doc`, `ghost`, `license`.
    pub flags: Vec<&'static str>,
}

/// A part of the package's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where its content begins in the package.
    pub offset: u64,
    /// Size in the package, in bytes.
    pub size: u64,
    /// `zstd`, `xz`, `gzip`, `none`; nothing for what cannot be compressed.
    pub compression: Option<String>,
    /// Size before compression, where it is known.
    pub unpacked: Option<u64>,
}

/// Pairs as a JSON object that keeps their order.
fn as_map<S: serde::Serializer, V: Serialize>(
    pairs: &[(String, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

/// A path as it is installed: absolute, without `./`.
pub fn installed_path(name: &[u8]) -> String {
    let below = name.strip_prefix(b".").filter(|rest| rest.is_empty() || rest.starts_with(b"/"));
    let name = below.unwrap_or(name);
    format!("/{}", readable(name).trim_matches('/'))
}

/// A text, with `\xff` for each byte that is no UTF-8, so that names that differ stay different.
pub fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // A string takes all.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Whether a path would leave the place where the package is unpacked.
pub(super) fn leaves(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}
