//! Comparing contents, so that what two shards both have is known to be the same.

use std::cmp::Ordering;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kpack::reader::Archive;
use crate::read_at::Cursor;
use crate::streams::fill;
use crate::tree::{
    CodeObjectAt, EntryKind, InputFile, KpackPlan, OpenInput, Source, Tree, TreePath,
};

/// How two trees differ; paths in order, directories not counted.
#[derive(Debug, Default)]
pub struct Difference {
    /// In the first only.
    pub only_first: Vec<TreePath>,
    /// In the other only.
    pub only_other: Vec<TreePath>,
    /// In both, not the same.
    pub content: Vec<TreePath>,
    /// In both, with the same content and other modes: the first's and the other's.
    pub modes: Vec<(TreePath, u32, u32)>,
}

/// Compares two trees' files and links.
pub fn trees(first: &Tree, other: &Tree) -> Result<Difference> {
    let mut difference = Difference::default();
    for (path, entry) in first.iter().filter(|(_, entry)| !entry.is_dir()) {
        match other.get(path) {
            None => difference.only_first.push(path.clone()),
            Some(their) => {
                let same = match (&entry.kind, &their.kind) {
                    (EntryKind::Symlink(a), EntryKind::Symlink(b)) => a == b,
                    _ => match (content(first, path), content(other, path)) {
                        (Some(a), Some(b)) => same(a, b)?.is_none(),
                        _ => false,
                    },
                };
                let link = matches!(entry.kind, EntryKind::Symlink(_));
                if !same {
                    difference.content.push(path.clone());
                } else if !link && entry.mode != their.mode {
                    difference.modes.push((path.clone(), entry.mode, their.mode));
                }
            }
        }
    }
    let theirs = other.iter().filter(|(path, entry)| !entry.is_dir() && first.get(path).is_none());
    difference.only_other.extend(theirs.map(|(path, _)| path.clone()));
    // What is a directory here and something else there was seen in neither way.
    let no_dirs = other.iter().filter(|(path, entry)| {
        !entry.is_dir() && first.get(path).is_some_and(crate::tree::Entry::is_dir)
    });
    difference.content.extend(no_dirs.map(|(path, _)| path.clone()));
    Ok(difference)
}

/// The content of a file, through a hard link.
fn content<'a>(tree: &'a Tree, path: &TreePath) -> Option<&'a Source> {
    match &tree.get(path)?.kind {
        EntryKind::File(source) => Some(source),
        EntryKind::HardLink(first) => tree.get(first)?.source(),
        _ => None,
    }
}

/// The contents of two trees' files at one path, where both are files.
pub fn contents<'a>(
    first: &'a Tree,
    other: &'a Tree,
    path: &TreePath,
) -> Option<(&'a Source, &'a Source)> {
    Some((content(first, path)?, content(other, path)?))
}

/// `None` where two contents are the same, else what differs, in words.
pub fn same(a: &Source, b: &Source) -> Result<Option<String>> {
    match (a, b) {
        (Source::Kpack(a), Source::Kpack(b)) => plans(a, b),
        // Members of archives are hashed while they stream by, so that each is not looked up again.
        (Source::File(a), Source::File(b)) if digests(a, b) && a.len() == b.len() => {
            let equal = digest(a)? == digest(b)?;
            Ok((!equal).then(|| "the same size, other bytes".to_owned()))
        }
        (Source::File(a), Source::File(b)) if is_kpack(a.path()) && is_kpack(b.path()) => {
            kpacks(a, b)
        }
        // Manifests of archives that are still to be built: as good as the archives.
        (Source::Kpm(_), Source::Kpm(_)) => Ok(None),
        _ => {
            if a.len() != b.len() {
                let len = |s: &Source| s.len().map_or("?".into(), |n| n.to_string());
                return Ok(Some(format!("{} bytes and {} bytes", len(a), len(b))));
            }
            let open = |s| Source::open(s).map_err(|e| read_error(s, e));
            let equal = streams(&mut open(a)?, &mut open(b)?).map_err(|e| read_error(a, e))?;
            Ok((!equal).then(|| "the same size, other bytes".to_owned()))
        }
    }
}

/// Whether comparing digests is less work than comparing bytes, and says as much.
fn digests(a: &InputFile, b: &InputFile) -> bool {
    !(is_kpack(a.path()) && is_kpack(b.path())) && (a.digest().is_some() || b.digest().is_some())
}

fn digest(input: &InputFile) -> Result<blake3::Hash, Error> {
    if let Some(known) = input.digest() {
        return Ok(known);
    }
    let mut hasher = blake3::Hasher::new();
    let stream = Cursor::new(open(input)?, 0, input.len());
    let hashed = hasher.update_reader(stream).map(|hasher| hasher.finalize());
    hashed.map_err(|e| Error::io("cannot read", input.path(), e))
}

fn is_kpack(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "kpack")
}

fn read_error(source: &Source, e: io::Error) -> Error {
    let path = match source {
        Source::File(input) | Source::Pieces { input, .. } => input.path().to_owned(),
        _ => PathBuf::from("(generated)"),
    };
    Error::io("cannot read", path, e)
}

/// Opens the input of a code object, unless it is what is open: a member of an archive is read forward.
fn keep_open<'o, 'a>(
    open: &'o mut Option<(&'a InputFile, OpenInput<'a>)>,
    object: &'a CodeObjectAt,
) -> Result<&'o OpenInput<'a>, Error> {
    let input = &*object.input;
    match open {
        Some((opened, _)) if std::ptr::eq(*opened, input) => {}
        _ => *open = Some((input, self::open(input)?)),
    }
    Ok(&open.as_ref().expect("just opened").1)
}

/// Two archives to be built: the same kernels with the same code.
fn plans(a: &Arc<KpackPlan>, b: &Arc<KpackPlan>) -> Result<Option<String>> {
    let name = |kernel: &crate::tree::PlannedKernel| format!("{}#{}", kernel.name, kernel.co_index);
    let (mut left_open, mut right_open) = (None, None);
    for (first, second) in a.kernels().iter().zip(b.kernels()) {
        match (&first.name, first.co_index).cmp(&(&second.name, second.co_index)) {
            Ordering::Equal => {}
            Ordering::Less => return Ok(Some(lone(&name(first)))),
            Ordering::Greater => return Ok(Some(lone(&name(second)))),
        }
        let (x, y) = (&first.code_object, &second.code_object);
        let equal = x.size() == y.size() && {
            let x_file = keep_open(&mut left_open, x)?;
            let y_file = keep_open(&mut right_open, y)?;
            let cannot = |e: io::Error| Error::io("cannot read", x.input.path(), e);
            let mut s = x.open_in(x_file).map_err(cannot)?;
            let mut t = y.open_in(y_file).map_err(cannot)?;
            streams(&mut s, &mut t).map_err(cannot)?
        };
        if !equal {
            return Ok(Some(format!("the first differing kernel is {}", name(first))));
        }
    }
    Ok(longer(a.kernels().get(b.kernels().len()), b.kernels().get(a.kernels().len()), name))
}

fn open(input: &InputFile) -> Result<OpenInput<'_>, Error> {
    input.open().map_err(|e| Error::io("cannot read", input.path(), e))
}

/// Two archives on disk: the same, whatever their compression.
fn kpacks(a: &InputFile, b: &InputFile) -> Result<Option<String>> {
    let (file_a, file_b) = (open(a)?, open(b)?);
    let bad = |path: &Path| {
        let path = path.to_owned();
        move |e| Error::failed("is no valid kpack archive").at(path).because(e)
    };
    let left = Archive::open(&file_a).map_err(bad(a.path()))?;
    let right = Archive::open(&file_b).map_err(bad(b.path()))?;
    let name = |e: &crate::kpack::reader::Entry| format!("{} ({})", e.name(), e.isa);
    for (x, y) in left.entries().iter().zip(right.entries()) {
        match (&x.binary, x.co_index, &x.isa).cmp(&(&y.binary, y.co_index, &y.isa)) {
            Ordering::Equal => {}
            Ordering::Less => return Ok(Some(lone(&name(x)))),
            Ordering::Greater => return Ok(Some(lone(&name(y)))),
        }
        let equal = x.original_size == y.original_size && {
            let mut s = left.open_entry(x).map_err(bad(a.path()))?;
            let mut t = right.open_entry(y).map_err(bad(b.path()))?;
            streams(&mut s, &mut t).map_err(|e| Error::io("cannot read", a.path(), e))?
        };
        if !equal {
            return Ok(Some(format!("the first differing kernel is {}", name(x))));
        }
    }
    let (n, m) = (left.entries().len(), right.entries().len());
    Ok(longer(left.entries().get(m), right.entries().get(n), name))
}

fn longer<T>(a: Option<&T>, b: Option<&T>, name: impl Fn(&T) -> String) -> Option<String> {
    a.or(b).map(|one| lone(&name(one)))
}

fn lone(kernel: &str) -> String {
    format!("the first differing kernel is {kernel}: only one has it")
}

/// Whether two streams give the same bytes.
fn streams(a: &mut dyn Read, b: &mut dyn Read) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 128 * 1024], vec![0; 128 * 1024]);
    loop {
        let n = fill(a, &mut left)?;
        let m = fill(b, &mut right)?;
        if left[..n] != right[..m] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

/// `1 file`, `3 files`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The first few of many.
pub fn some(paths: &[impl ToString]) -> String {
    let shown: Vec<_> = paths.iter().take(3).map(ToString::to_string).collect();
    let more = paths.len() - shown.len();
    shown.join(", ") + &(if more > 0 { format!(" and {more} more") } else { String::new() })
}
