//! Packages to be published, and a key to publish them with.

// Each test crate uses some of this; the lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use gfxpack::package::Format;
use gfxpack::package::spec::{Kind, Package, Relation, RelationKind};

use crate::common::{gfxpack, ok};
use crate::keys::{Home, KEY_MADE};
use crate::packages::{file, sample, write};

/// 1 January 2026; each release is dated a day after the one before.
pub const DAY_ONE: i64 = 1_767_225_600;
pub const DAY: i64 = 86_400;

/// Releases of a set: a runtime, host code that needs it, and two groups that need the host code of
/// exactly their release.
pub const RELEASES: [&str; 3] = ["7.1.0", "7.2.0", "7.10.0"];
pub const NAMES: [&str; 4] =
    ["hip-runtime", "rocblas-generic", "rocblas-gfx110X", "rocblas-gfx120X"];

fn package(name: &str, release: usize) -> Package {
    let kind = match name.strip_prefix("rocblas-") {
        Some("generic") => Kind::Generic,
        Some(group) => Kind::Group { group: group.to_owned() },
        None => Kind::Plain,
    };
    let version = RELEASES[release];
    let full = format!("{version}-1");
    let mut package = sample(name, kind.clone());
    package.version = version.to_owned();
    package.date = DAY_ONE + DAY * i64::try_from(release).unwrap();
    match kind {
        Kind::Generic => {
            package.relate(RelationKind::Depends, Relation::any("hip-runtime"));
            let content = format!("host code of {version}\n").repeat(500);
            file(&mut package.tree, "opt/rocm/lib/librocblas.so.5", 0o755, content);
            file(&mut package.tree, "opt/rocm/share/doc/a b.txt", 0o644, "text\n");
        }
        Kind::Group { group } => {
            package.gpu_targets = vec!["gfx1100".to_owned()];
            package.relate(RelationKind::Depends, Relation::exactly("rocblas-generic", full));
            let at = format!("opt/rocm/.kpack/blas_lib_{group}.kpack");
            file(&mut package.tree, &at, 0o644, format!("{group} {version}").into_bytes());
        }
        _ => file(&mut package.tree, "opt/rocm/lib/libamdhip64.so.7", 0o755, version),
    }
    package
}

/// The packages of each release, in both formats.
fn made() -> &'static Path {
    static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        for release in 0..RELEASES.len() {
            let into = dir.path().join(release.to_string());
            std::fs::create_dir(&into).unwrap();
            for name in NAMES {
                for format in [Format::Deb, Format::Rpm] {
                    write(&package(name, release), format, &into);
                }
            }
        }
        dir
    })
    .path()
}

/// The files of a release in one format whose names begin so, or all.
pub fn release(release: usize, format: &str, starts: &[&str]) -> Vec<PathBuf> {
    let dir = made().join(release.to_string());
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_lowercase();
        name.ends_with(&format!(".{format}"))
            && (starts.is_empty()
                || starts.iter().any(|start| name.starts_with(&start.to_lowercase())))
    });
    found.sort();
    assert!(!found.is_empty());
    found
}

/// What is installed of a release, by the names that apt has.
pub fn versions(release: usize, names: &[&str]) -> BTreeMap<String, String> {
    let version = format!("{}-1", RELEASES[release]);
    names.iter().map(|name| (name.to_lowercase(), version.clone())).collect()
}

/// An armored secret key: RSA, which every client reads.
pub fn secret_key() -> PathBuf {
    static KEY: OnceLock<tempfile::TempDir> = OnceLock::new();
    made_key(&KEY, "rsa3072")
}

/// Another one.
pub fn other_key() -> PathBuf {
    static KEY: OnceLock<tempfile::TempDir> = OnceLock::new();
    made_key(&KEY, "rsa2048")
}

fn made_key(key: &'static OnceLock<tempfile::TempDir>, algorithm: &str) -> PathBuf {
    let dir = key.get_or_init(|| {
        let home = Home::new();
        let dir = tempfile::tempdir().unwrap();
        let make = ["--quick-gen-key", "r@example.org", algorithm, "sign", "never"];
        ok(home.gpg(KEY_MADE).args(make));
        let secret = ok(home.gpg(KEY_MADE).args(["--armor", "--export-secret-keys"]));
        std::fs::write(dir.path().join("key"), secret).unwrap();
        let public = dir.path().join("public.gpg");
        ok(home.gpg(KEY_MADE).arg("--output").arg(public).arg("--export"));
        dir
    });
    dir.path().join("key")
}

/// Its public part, as gpgv reads it.
pub fn public_key() -> PathBuf {
    secret_key().with_file_name("public.gpg")
}

/// `gfxpack repo ACTION DIR …`, signed.
pub fn signed(action: &str, dir: &Path) -> Command {
    let mut command = unsigned(action, dir);
    command.arg("--sign-key").arg(secret_key());
    command
}

/// The same without a key.
pub fn unsigned(action: &str, dir: &Path) -> Command {
    let mut command = gfxpack();
    command.args(["repo", action]).arg(dir);
    command
}
