//! Shards whose libraries are linked of other translation units, or in another order, than the primary shard's:
//! kernels are filed by the place of their unit, and users get the primary shard's host code.

#![allow(clippy::unwrap_used)]

#[path = "common/archives.rs"]
mod archives;
mod common;

use std::fs;
use std::path::{Path, PathBuf};

use archives::{Order, pack};
use common::{Ran, gfxpack, ok, repo, run, tool};
use serde_json::json;
use tempfile::TempDir;

const LIBRARY: &str = "math-libs/x/stage/lib/libx.so.1";

/// Two shards, `a` (gfx1100, the primary one) and `b` (gfx1201), each with one library.
struct Shards {
    dir: TempDir,
}

impl Shards {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Links a shard's library of these units, each with a kernel of its own, one that all units have, and one in a
    /// namespace without a name, or with the last alone where the unit's name begins with `anonymous`; with one more
    /// where it begins with `wide`. `unit@isa` is compiled for that ISA.
    fn library(self, shard: &str, isa: &str, units: &[&str], flags: &[&str]) -> Self {
        let library = self.path("shards").join(shard).join(format!("x_lib_{shard}")).join(LIBRARY);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        let manifest = library.ancestors().nth(5).unwrap().join("artifact_manifest.txt");
        fs::write(manifest, "math-libs/x/stage\n").unwrap();
        let mut objects = Vec::new();
        for unit in units {
            let (name, isa) = unit.split_once('@').unwrap_or((unit, isa));
            let source = self.path(&format!("{name}.hip"));
            let kernels = if name.starts_with("anonymous") {
                String::new()
            } else {
                format!(
                    "template <int> __global__ void common(float *x) {{ *x = 0; }}\n\
                     template __global__ void common<0>(float *);\n\
                     __global__ void {name}_kernel(float *x) {{ *x += 1; }}\n\
                     FIXTURE_EXPORT void {name}(float *x) {{ {name}_kernel<<<dim3(1), dim3(1)>>>(x); }}\n"
                )
            };
            let more = if name.starts_with("wide") {
                format!("__global__ void {name}_more(float *x) {{ *x += 2; }}\n")
            } else {
                String::new()
            };
            let text = format!(
                "#include \"hip_min.h\"\n{kernels}{more}\
                 namespace {{ __global__ void hidden_{name}(float *x) {{ *x -= 1; }} }}\n\
                 FIXTURE_EXPORT void hide_{name}(float *x) {{ hidden_{name}<<<dim3(1), dim3(1)>>>(x); }}\n"
            );
            fs::write(&source, text).unwrap();
            let object = self.path(&format!("{shard}-{name}.o"));
            ok(tool("clang++-19", "clang-19 clang-tools-19 lld-19")
                .args(["-x", "hip", "-nogpuinc", "-nogpulib", "-O1", "-fPIC", "-I"])
                .arg(repo().join("tests/fixtures/hip"))
                .arg(format!("--offload-arch={isa}"))
                .args([format!("-cuid={shard}{name}"), "-c".into()])
                .args(flags)
                .arg(&source)
                .arg("-o")
                .arg(&object));
            objects.push(object);
        }
        let mut link = tool("clang++-19", "clang-19");
        if flags.contains(&"-fgpu-rdc") {
            link.args(["-no-hip-rt", "-fgpu-rdc", "--hip-link"]);
            link.arg(format!("--offload-arch={isa}"));
        }
        ok(link.arg("-shared").args(&objects).arg("-o").arg(&library));
        self
    }

    fn config(&self, strict: bool) -> PathBuf {
        let config = json!({
            "primary_shard": "a",
            "architecture_groups": {
                "gfx110X": {"display_name": "", "architectures": ["gfx1100"]},
                "gfx120X": {"display_name": "", "architectures": ["gfx1201"]},
            },
            "validation": {"error_on_misplaced_kernels": strict},
        });
        let path = self.path("groups.json");
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    fn build(&self, shards: &Path, strict: bool) -> Ran {
        run(gfxpack()
            .args(["build", "--version", "1", "--release", "1", "--no-auto-deps", "--force"])
            .arg("--config")
            .arg(self.config(strict))
            .arg("--input-shards-dir")
            .arg(shards)
            .arg("--output-dir")
            .arg(self.path("packages")))
    }

    /// What directories, archives and split trees of the shards give, which is the same.
    fn ways(&self, strict: bool) -> Vec<Ran> {
        let mut ran = vec![self.build(&self.path("shards"), strict)];
        let _ = fs::remove_dir_all(self.path("archives"));
        for shard in ["a", "b"] {
            let artifact = self.path("shards").join(shard).join(format!("x_lib_{shard}"));
            let to = self.path("archives").join(shard);
            fs::create_dir_all(&to).unwrap();
            pack(&artifact, &to, "zst", Order::Sorted);
            ok(gfxpack()
                .args(["split", "--force", "--batch-artifact-parent-dir"])
                .arg(self.path("shards").join(shard))
                .arg("--output-dir")
                .arg(self.path("split").join(shard)));
        }
        ran.push(self.build(&self.path("archives"), strict));
        ran.push(run(gfxpack()
            .args(["recombine", "--force", "--input-shards-dir"])
            .arg(self.path("split"))
            .arg("--config")
            .arg(self.config(strict))
            .arg("--output-dir")
            .arg(self.path("recombined"))));
        ran
    }

    #[track_caller]
    fn refused(&self, finding: &str) {
        for (strict, status, word) in [(true, 1, "error: "), (false, 0, "warning: ")] {
            for (way, ran) in self.ways(strict).iter().enumerate() {
                assert_eq!(ran.status, Some(status), "{way}: {}", ran.stderr);
                let about = |line: &&str| line.starts_with(word) && line.contains(LIBRARY);
                let said: Vec<_> = ran.stderr.lines().filter(about).collect();
                assert!(said.iter().any(|line| line.contains(finding)), "{way}: {said:?}");
            }
        }
    }

    #[track_caller]
    fn fits(&self) {
        for (way, ran) in self.ways(true).iter().enumerate() {
            assert_eq!(ran.status, Some(0), "{way}: {}", ran.stderr);
            assert!(!ran.stderr.contains("do not fit"), "{way}: {}", ran.stderr);
        }
    }
}

#[test]
fn units_linked_in_another_order_are_an_error() {
    let shards = Shards::new().library("a", "gfx1100", &["axpy", "scal", "dot"], &[]).library(
        "b",
        "gfx1201",
        &["axpy", "dot", "scal"],
        &["--offload-compress"],
    );
    shards.refused("place 1 has kernels as _Z10dot_kernelPf, which are in place 2 there");
}

#[test]
fn a_unit_more_or_less_is_an_error() {
    Shards::new()
        .library("a", "gfx1100", &["scal"], &[])
        .library("b", "gfx1201", &["axpy", "scal"], &[])
        .refused("it has 2 of them, there it has 1");
}

#[test]
fn another_unit_in_the_place_of_one_is_an_error() {
    Shards::new()
        .library("a", "gfx1100", &["scal", "anonymous_wmma"], &["--offload-compress"])
        .library("b", "gfx1201", &["scal", "anonymous_mfma"], &[])
        .refused("place 1 has kernels as _ZN12_GLOBAL__N_121hidden_anonymous_mfmaEPf, there it has others, as _ZN12");
}

#[test]
fn the_same_units_fit_though_names_differ_by_build_and_one_is_for_another_gpu() {
    Shards::new()
        .library("a", "gfx1100", &["scal", "anonymous", "axpy@gfx906"], &["--offload-compress"])
        .library("b", "gfx1201", &["scal", "anonymous", "axpy"], &[])
        .fits();
}

/// Units that are one code object are registered once, by the first of them.
#[test]
fn units_that_are_one_code_object_in_the_host_codes_shard_have_to_be_in_all() {
    let rdc = &["-fgpu-rdc"];
    Shards::new()
        .library("a", "gfx1100", &["scal", "wide"], rdc)
        .library("b", "gfx1201", &["scal", "wide"], &[])
        .refused("place 1 has kernels, as _Z11wide_kernelPf, that are looked for in place 0: the units are one");
    Shards::new()
        .library("a", "gfx1100", &["scal", "wide"], rdc)
        .library("b", "gfx1201", &["scal", "wide"], rdc)
        .fits();
    // Host code that looks into each place finds all kernels in all.
    Shards::new()
        .library("a", "gfx1100", &["scal", "wide"], &[])
        .library("b", "gfx1201", &["scal", "wide"], rdc)
        .fits();
}
