//! The tutorial of the public tools, step by step, with gfxpack in their place: the same options give
//! the same trees.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::{example_config, example_shards, fails, files, fixtures, gfxpack, ok, run};
use gfxpack::kpack::kpm::Kpm;
use gfxpack::kpack::reader::Archive;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Step 2: one artifact into a directory that is there already, with all the options of the scripts.
#[test]
fn discovery_splits_one_artifact() {
    let dir = tempfile::tempdir().unwrap();
    for (shard, artifact, isas) in [
        ("gfx110X-build", "blas_lib_gfx110X-dgpu", &["gfx1100", "gfx1101", "gfx1102"][..]),
        ("gfx1151-build", "blas_lib_gfx1151", &["gfx1151"]),
        ("gfx120X-build", "blas_lib_gfx120X-all", &["gfx1200", "gfx1201"]),
    ] {
        let out = dir.path().join("discovery").join(shard);
        fs::create_dir_all(&out).unwrap();
        ok(gfxpack()
            .arg("split")
            .arg("--artifact-dir")
            .arg(example_shards().join(shard).join(artifact))
            .arg("--output-dir")
            .arg(&out)
            .args(["--artifact-prefix", "blas_lib"])
            .arg("--tmp-dir")
            .arg(dir.path())
            .args(["--split-databases", "rocblas", "hipblaslt"])
            .args(["--clang-offload-bundler", "/opt/rocm/llvm/bin/clang-offload-bundler"])
            .arg("--verbose"));
        let mut expected = vec!["blas_lib_generic".to_owned()];
        expected.extend(isas.iter().map(|isa| format!("blas_lib_{isa}")));
        assert_eq!(names(&out), expected);
    }
}

/// Steps 4 to 7: batch mode, verify, recombine, and what the results must look like.
#[test]
fn shards_are_split_verified_and_recombined() {
    let dir = tempfile::tempdir().unwrap();
    let shards = fixtures().join("shards");
    let split = dir.path().join("split-artifacts");
    for shard in names(&shards) {
        ok(gfxpack()
            .arg("split")
            .arg("--batch-artifact-parent-dir")
            .arg(shards.join(&shard))
            .arg("--output-dir")
            .arg(split.join(&shard))
            .args(["--split-databases", "rocblas", "hipblaslt", "--clang-offload-bundler", "x"])
            .args(["--tmp-dir", "/tmp", "--verbose"]));
        ok(gfxpack().arg("verify").arg("--artifacts-dir").arg(split.join(&shard)).args([
            "--clang-offload-bundler",
            "x",
            "--verbose",
        ]));
    }
    let everywhere = ["blas_dev_generic", "support_lib_generic", "sysdeps_lib_generic"];
    for (shard, isas) in [
        ("gfx110X-build", &["gfx1100", "gfx1101", "gfx1102"][..]),
        ("gfx1151-build", &["gfx1151"]),
        ("gfx120X-build", &["gfx1200", "gfx1201"]),
    ] {
        let mut expected: Vec<String> = everywhere.map(str::to_owned).into();
        for component in ["blas_lib", "blas_run", "fft_lib"] {
            expected.push(format!("{component}_generic"));
            expected.extend(isas.iter().map(|isa| format!("{component}_{isa}")));
        }
        expected.sort();
        assert_eq!(names(&split.join(shard)), expected, "{shard}");
    }

    let recombined = dir.path().join("recombined-artifacts");
    ok(gfxpack()
        .arg("recombine")
        .arg("--input-shards-dir")
        .arg(&split)
        .arg("--config")
        .arg(example_config())
        .arg("--output-dir")
        .arg(&recombined)
        .arg("--verbose"));
    let mut expected: Vec<String> = everywhere.map(str::to_owned).into();
    for component in ["blas_lib", "blas_run", "fft_lib"] {
        for target in ["generic", "gfx110X", "gfx115X", "gfx120X"] {
            expected.push(format!("{component}_{target}"));
        }
    }
    expected.sort();
    assert_eq!(names(&recombined), expected);
    ok(gfxpack().arg("verify").arg("--artifacts-dir").arg(&recombined));

    let generic = recombined.join("blas_lib_generic");
    assert_eq!(
        fs::read_to_string(generic.join("artifact_manifest.txt")).unwrap(),
        "math-libs/BLAS/rocBLAS/stage\nmath-libs/BLAS/hipBLASLt/stage\nmath-libs/BLAS/hipSPARSELt/stage\n"
    );
    assert_eq!(
        files(&generic.join("math-libs/BLAS")),
        [
            "hipBLASLt/stage/lib/libhipblaslt.so",
            "hipBLASLt/stage/lib/libhipblaslt.so.0",
            "hipBLASLt/stage/lib/libhipblaslt.so.0.9",
            "rocBLAS/stage/lib/librocblas.so",
            "rocBLAS/stage/lib/librocblas.so.5",
            "rocBLAS/stage/lib/librocblas.so.5.2",
            "rocBLAS/stage/lib/rocblas/library/TensileLibrary_Type_SS_fallback.dat",
            "rocBLAS/stage/lib/rocblas/library/TensileManifest.txt",
        ]
    );
    let group = recombined.join("blas_lib_gfx110X");
    assert_eq!(
        fs::read_to_string(group.join("artifact_manifest.txt")).unwrap(),
        "math-libs/BLAS/rocBLAS/stage\nmath-libs/BLAS/hipBLASLt/stage\nkpack/stage\n"
    );
    assert_eq!(
        files(&group.join("kpack")),
        [
            "stage/.kpack/blas_lib.kpm",
            "stage/.kpack/blas_lib_gfx1100.kpack",
            "stage/.kpack/blas_lib_gfx1101.kpack",
            "stage/.kpack/blas_lib_gfx1102.kpack",
        ]
    );
    let of_group = files(&group.join("math-libs"));
    assert!(
        of_group.iter().all(|file| !file.contains(".so") || file.contains("Kernels.so-000-gfx110"))
    );
    for isa in ["gfx1100", "gfx1101", "gfx1102"] {
        let mine = of_group.iter().filter(|file| file.contains(isa)).count();
        assert_eq!(mine, 11, "{isa}: {of_group:?}");
    }
    assert_eq!(of_group.len(), 33);
    manifests_are_true(&recombined);
}

/// The `.kpm` of each group lists its archives with their sizes and counts.
fn manifests_are_true(recombined: &Path) {
    for (group, isas) in [
        ("gfx110X", &["gfx1100", "gfx1101", "gfx1102"][..]),
        ("gfx115X", &["gfx1151"]),
        ("gfx120X", &["gfx1200", "gfx1201"]),
    ] {
        let folder = recombined.join(format!("blas_lib_{group}/kpack/stage/.kpack"));
        let kpm = Kpm::read(fs::File::open(folder.join("blas_lib.kpm")).unwrap()).unwrap();
        assert_eq!((kpm.component_name.as_str(), kpm.prefix.as_str()), ("blas_lib", "kpack/stage"));
        let listed: Vec<_> = kpm.kpack_files.keys().map(ToString::to_string).collect();
        assert_eq!(listed, isas);
        for (isa, file) in kpm.kpack_files {
            assert_eq!(file.file, format!("blas_lib_{isa}.kpack"));
            let bytes = fs::read(folder.join(&file.file)).unwrap();
            let archive = Archive::open(&bytes).unwrap();
            // Four translation units of rocblas and two of hipblaslt.
            assert_eq!((file.size, file.kernel_count), (bytes.len() as u64, 6));
            assert_eq!(archive.entries().len(), 6);
        }
    }
}

#[test]
fn a_generic_artifact_passes_through_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let shard = example_shards().join("gfx1151-build");
    ok(gfxpack()
        .arg("split")
        .arg("--batch-artifact-parent-dir")
        .arg(&shard)
        .arg("--output-dir")
        .arg(&out));
    let before = common::snapshot(&shard.join("sysdeps_lib_generic"));
    assert_eq!(common::snapshot(&out.join("sysdeps_lib_generic")), before);
}

#[test]
fn the_text_marker_is_the_tutorials() {
    let dir = tempfile::tempdir().unwrap();
    ok(gfxpack()
        .args(["split", "--kpack-ref", "text", "--artifact-prefix", "fft_lib", "--artifact-dir"])
        .arg(example_shards().join("gfx1151-build/fft_lib_gfx1151"))
        .arg("--output-dir")
        .arg(dir.path()));
    let library = dir.path().join("fft_lib_generic/math-libs/rocFFT/stage/lib/librocfft.so.0.1");
    let dump = ok(common::tool("readelf", "binutils").arg("-p.rocm_kpack_ref").arg(library));
    assert!(dump.contains("../.kpack:../../../.kpack:../../.kpack:.kpack"), "{dump}");
}

#[test]
fn an_output_that_is_there_is_refused_unless_forced() {
    let dir = tempfile::tempdir().unwrap();
    let split = || {
        let mut command = gfxpack();
        command.arg("split").arg("--batch-artifact-parent-dir");
        command.arg(example_shards().join("gfx1151-build"));
        command.arg("--output-dir").arg(dir.path().join("out"));
        command
    };
    ok(&mut split());
    let before = common::snapshot(&dir.path().join("out"));
    let stderr = fails(&mut split(), 2);
    assert!(stderr.contains("--force"), "{stderr}");
    fs::write(dir.path().join("out/stale"), "x").unwrap();
    ok(split().arg("--force"));
    assert_eq!(common::snapshot(&dir.path().join("out")), before);
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn json_is_one_document_and_says_what_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run(gfxpack()
        .args(["split", "--json", "--artifact-prefix", "blas_lib", "--artifact-dir"])
        .arg(example_shards().join("gfx110X-build/blas_lib_gfx110X-dgpu"))
        .arg("--output-dir")
        .arg(dir.path()));
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["status"], "done");
    let report = &json["split"][0];
    let wrappers: BTreeMap<_, _> = report["converted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["path"].as_str().unwrap().rsplit('/').next().unwrap(), c["wrappers"].as_u64()))
        .collect();
    assert_eq!(wrappers["libhipblaslt.so.0.9"], Some(2));
    assert_eq!(wrappers["librocblas.so.5.2"], Some(4));
    assert_eq!(report["isas"]["gfx1100"]["code_objects"], 6);
    assert_eq!(report["isas"]["gfx1100"]["database_files"], 11);
}

#[test]
fn gpu_targets_keeps_a_subset_and_says_what_it_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ran = run(gfxpack()
        .args(["split", "--gpu-targets", "gfx1100,gfx1102", "--batch-artifact-parent-dir"])
        .arg(example_shards().join("gfx110X-build"))
        .arg("--output-dir")
        .arg(&out));
    assert_eq!(ran.status, Some(0));
    assert!(!out.join("blas_lib_gfx1101").exists() && out.join("blas_lib_gfx1102").exists());
    assert!(
        ran.stderr
            .contains("gfx1101 is not among --gpu-targets: 9 code objects and 11 database files"),
        "{}",
        ran.stderr
    );
}
