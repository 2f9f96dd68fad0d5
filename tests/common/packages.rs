//! Packages of every kind of member, written to files, and roots to install them in.

// Each test crate uses some of this; the lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use gfxpack::package::compress::Compression;
use gfxpack::package::render::Templates;
use gfxpack::package::spec::{Kind, Package, Relation, RelationKind};
use gfxpack::package::{self, Format, Options, Report};
use gfxpack::progress::Silent;
use gfxpack::tree::{Entry, EntryKind, Source, Tree, TreePath};

use crate::common::{run, tool};

/// 2026-01-05.
pub const DATE: i64 = 1_767_614_400;
pub const XZ: Compression = Compression::Xz { level: 6 };
pub const ZSTD: Compression = Compression::Zstd { level: 3, long: None };

pub fn path(text: &str) -> TreePath {
    TreePath::new(text).unwrap()
}

pub fn file(tree: &mut Tree, at: &str, mode: u32, content: impl Into<Vec<u8>>) {
    let entry = Entry::file(mode, Some(DATE - 1000), Source::bytes(content.into()));
    tree.insert(path(at), entry).unwrap();
}

pub fn other(tree: &mut Tree, at: &str, kind: EntryKind) {
    tree.insert(path(at), Entry { mode: 0o755, mtime: None, kind }).unwrap();
}

pub fn sample(name: &str, kind: Kind) -> Package {
    let mut package = Package::new(name, kind, "7.1.0", "1");
    package.summary = "A package of the tests".to_owned();
    package.description = "Made to be installed and removed.\n\nTwice.".to_owned();
    package.maintainer = "Example Packagers <packages@example.org>".to_owned();
    package.vendor = "Example".to_owned();
    package.homepage = "https://example.org/".to_owned();
    package.date = DATE;
    package
}

/// A package with every kind of member.
pub fn generic() -> Package {
    let mut package = sample("rocblas-generic", Kind::Generic);
    let tree = &mut package.tree;
    file(tree, "opt/rocm/lib/librocblas.so.5.0", 0o755, fs::read("/bin/true").unwrap());
    other(tree, "opt/rocm/lib/librocblas.so.5", EntryKind::Symlink(b"librocblas.so.5.0".to_vec()));
    other(tree, "opt/rocm/lib/librocblas.so", EntryKind::Symlink(b"librocblas.so.5".to_vec()));
    file(tree, "opt/rocm/lib/rocblas/library/a b.dat", 0o644, vec![7; 70_000]);
    file(tree, "opt/rocm/lib/rocblas/library/empty", 0o600, "");
    other(
        tree,
        "opt/rocm/lib/rocblas/library/z.dat",
        EntryKind::HardLink(path("opt/rocm/lib/rocblas/library/a b.dat")),
    );
    file(tree, "opt/rocm/bin/script", 0o755, "#!/bin/sh\nexit 0\n");
    file(tree, "opt/rocm/share/ünïcode.txt", 0o444, "text\n");
    tree.insert(path("opt/rocm/empty-dir"), Entry::dir()).unwrap();
    package
}

pub fn group(group: &str) -> Package {
    let mut package = sample(&format!("rocblas-{group}"), Kind::Group { group: group.to_owned() });
    package.gpu_targets = vec!["gfx1100".to_owned(), "gfx1101".to_owned()];
    package.relate(RelationKind::Depends, Relation::exactly("rocblas-generic", "7.1.0-1"));
    package.relate(RelationKind::Provides, Relation::exactly("rocblas-kernels", "7.1.0-1"));
    let at = format!("opt/rocm/.kpack/blas_lib_{group}.kpack");
    file(&mut package.tree, &at, 0o644, group.as_bytes());
    package
}

pub fn options(compression: Compression, threads: usize) -> Options {
    Options {
        compression,
        threads,
        read_ahead: 8 << 20,
        spool_dir: std::env::temp_dir(),
        digest: true,
        signer: None,
    }
}

pub fn write_with(
    package: &Package,
    format: Format,
    options: &Options,
    dir: &Path,
) -> (PathBuf, Report) {
    let at = dir.join(package::file_name(package, format));
    let mut out =
        File::options().read(true).write(true).create(true).truncate(true).open(&at).unwrap();
    let templates = Templates::built_in();
    let report = package::write(package, format, &templates, options, &mut out, &Silent)
        .unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(report.size, fs::metadata(&at).unwrap().len());
    (at, report)
}

pub fn write(package: &Package, format: Format, dir: &Path) -> PathBuf {
    write_with(package, format, &options(ZSTD, 2), dir).0
}

/// Lays a tree out on disk, with its times.
pub fn lay(tree: &Tree, root: &Path) {
    let mut dirs = Vec::new();
    for (path, entry) in tree.iter() {
        let at = root.join(path.as_path());
        match &entry.kind {
            EntryKind::Dir => {
                fs::create_dir_all(&at).unwrap();
                dirs.push((at, entry));
                continue;
            }
            EntryKind::File(source) => {
                source.copy_to(&mut File::create(&at).unwrap()).unwrap();
            }
            EntryKind::Symlink(target) => {
                symlink(OsStr::from_bytes(target), &at).unwrap();
                continue;
            }
            EntryKind::HardLink(to) => {
                fs::hard_link(root.join(to.as_path()), &at).unwrap();
                continue;
            }
        }
        set(&at, entry);
    }
    dirs.iter().rev().for_each(|(at, entry)| set(at, entry));
}

pub fn set(at: &Path, entry: &Entry) {
    let open = File::open(at).unwrap();
    if let Some(mtime) = entry.mtime {
        let mtime = Duration::from_secs(mtime.try_into().unwrap());
        open.set_modified(SystemTime::UNIX_EPOCH + mtime).unwrap();
    }
    fs::set_permissions(at, Permissions::from_mode(entry.mode)).unwrap();
}

/// A few numbers that look random and are always the same.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A root with dpkg's database and nothing else.
pub fn dpkg_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let admin = root.path().join("var/lib/dpkg");
    for dir in ["info", "updates", "triggers", "alternatives", "parts"] {
        fs::create_dir_all(admin.join(dir)).unwrap();
    }
    for file in ["status", "available", "diversions", "statoverride"] {
        File::create(admin.join(file)).unwrap();
    }
    root
}

pub fn dpkg(root: &Path) -> Command {
    let mut command = tool("dpkg", "dpkg");
    command.arg("--root").arg(root).arg("--force-not-root").arg("--log=/dev/null");
    command
}

/// Every path below a root but those of the package manager's database.
pub fn below(root: &Path, but: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            if name.starts_with(but) || but.starts_with(&name) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                dirs.push(path);
            }
            found.push(name);
        }
    }
    found.sort();
    found
}

/// An rpm command over a database of its own.
pub fn rpm_in(root: &Path) -> Command {
    let mut command = tool("rpm", "rpm");
    command.arg("--root").arg(root);
    command
}

/// A file that reads as zeros and takes no room.
pub fn sparse(dir: &Path, size: u64, begin: &[u8]) -> Source {
    let at = dir.join(format!("sparse{size}"));
    let mut out = File::create(&at).unwrap();
    out.write_all(begin).unwrap();
    out.set_len(size).unwrap();
    drop(out);
    let metadata = fs::metadata(&at).unwrap();
    Source::File(gfxpack::tree::InputFile::new(at, &metadata).into())
}

/// Runs a command that must succeed and find nothing to say.
#[track_caller]
pub fn silent(command: &mut Command) {
    let ran = run(command);
    let said = (ran.status, ran.stdout.as_str(), ran.stderr.as_str());
    assert_eq!(said, (Some(0), "", ""), "{command:?}");
}
