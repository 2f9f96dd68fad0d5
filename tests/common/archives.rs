//! Artifacts packed as archives, and splitting of what was packed.

// Each test crate uses some of this; the lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{gfxpack, ok, snapshot, tool};

/// In which order the members stand.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// As `tar --sort=name` has them, the manifest first.
    Sorted,
    /// Backwards, as nobody would: files before their directories, libraries from z to a.
    Backwards,
}

/// Packs a directory as `{to}/{its name}.tar.{format}`.
pub fn pack(dir: &Path, to: &Path, format: &str, order: Order) -> PathBuf {
    let name = dir.file_name().unwrap().to_str().unwrap();
    let archive = to.join(format!("{name}.tar.{format}"));
    let tar = archive.with_extension("");
    let mut command = tool("tar", "tar");
    command.arg("--format=pax").arg("-C").arg(dir).arg("-cf").arg(&tar);
    match order {
        Order::Sorted => {
            let mut names: Vec<_> =
                fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names.sort_by_key(|name| name != "artifact_manifest.txt");
            ok(command.arg("--sort=name").args(names));
        }
        Order::Backwards => {
            let list = archive.with_extension("list");
            let script = "cd \"$1\" && find . -mindepth 1 -print0 | sort -rz > \"$2\"";
            ok(tool("bash", "bash").args(["-c", script, "-"]).arg(dir).arg(&list));
            ok(command.args(["--no-recursion", "--null", "-T"]).arg(&list));
            fs::remove_file(list).unwrap();
        }
    }
    match format {
        "zst" => ok(tool("zstd", "zstd").args(["-q", "--rm"]).arg(&tar).arg("-o").arg(&archive)),
        "xz" => ok(tool("xz", "xz-utils").args(["-0"]).arg(&tar)),
        _ => ok(tool("gzip", "gzip").arg("-1").arg(&tar)),
    };
    assert!(archive.is_file() && !tar.exists());
    archive
}

/// Names, modes, contents, and times of everything.
pub fn everything(root: &Path) -> BTreeMap<String, String> {
    let mut all = snapshot(root);
    for (path, what) in &mut all {
        // The outermost directory of an artifact is not part of it, those of archives are new, and a
        // name that is no text cannot be looked up by what is shown of it.
        let new = !path.contains('/') || what.starts_with("dir") && path.contains("kpack");
        if !new && !path.contains('\u{fffd}') {
            *what += &format!(" {}", root.join(path).symlink_metadata().unwrap().mtime());
        }
    }
    all
}

pub fn split_one(artifact: &Path, out: &Path, args: &[&str]) -> Command {
    let mut command = gfxpack();
    command.args(["split", "--artifact-prefix", "blas_lib", "--artifact-dir"]).arg(artifact);
    command.arg("--output-dir").arg(out).args(args);
    command
}

pub fn split_shard(shard: &Path, out: &Path) -> Command {
    let mut command = gfxpack();
    command.args(["split", "--batch-artifact-parent-dir"]).arg(shard);
    command.arg("--output-dir").arg(out);
    command
}
