//! Archives as input: what comes out is what comes out of the directories that they were made from, byte
//! for byte; checksums are checked; hostile archives are refused with archive, member, offset, found
//! and expected.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use common::{
    assert_same, copy_tree, example_config, example_packages, example_shards, fails, fixtures,
    gfxpack, ok, snapshot, tool,
};
use gfxpack::progress::{Monitor, Silent};
use gfxpack::read_at::ReadAt;
use gfxpack::tree::Source;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const FORMATS: [&str; 3] = ["zst", "xz", "gz"];

/// In which order the members stand.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// As `tar --sort=name` has them, the manifest first.
    Sorted,
    /// Backwards, as nobody would: files before their directories, libraries from z to a.
    Backwards,
}

/// Packs a directory as `{to}/{its name}.tar.{format}`.
fn pack(dir: &Path, to: &Path, format: &str, order: Order) -> PathBuf {
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
fn everything(root: &Path) -> BTreeMap<String, String> {
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

fn split_one(artifact: &Path, out: &Path, args: &[&str]) -> Command {
    let mut command = gfxpack();
    command.args(["split", "--artifact-prefix", "blas_lib", "--artifact-dir"]).arg(artifact);
    command.arg("--output-dir").arg(out).args(args);
    command
}

fn split_shard(shard: &Path, out: &Path) -> Command {
    let mut command = gfxpack();
    command.args(["split", "--batch-artifact-parent-dir"]).arg(shard);
    command.arg("--output-dir").arg(out);
    command
}

const STAGE: &str = "math-libs/BLAS/rocBLAS/stage";

/// An artifact with fat libraries and everything that a tar has to carry in some special way.
fn odd_artifact(dir: &Path) -> PathBuf {
    let artifact = dir.join("blas_lib_gfx1151");
    copy_tree(&example_shards().join("gfx1151-build/blas_lib_gfx1151"), &artifact);
    let lib = artifact.join(STAGE).join("lib");
    let odd = lib.join("odd names");
    fs::create_dir_all(odd.join("empty dir")).unwrap();
    fs::write(odd.join("empty file"), "").unwrap();
    fs::write(odd.join("back\\slash\nand break"), "x").unwrap();
    fs::write(odd.join(OsStr::from_bytes(b"\xff\xfe not text")), "y").unwrap();
    let long = odd.join("d".repeat(120)).join("e".repeat(200));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("f".repeat(180)), "long").unwrap();
    symlink("g".repeat(300), odd.join("long link")).unwrap();
    symlink("../../../../../../../usr/lib/elsewhere.so", odd.join("leaves the tree")).unwrap();
    symlink("/opt/rocm/lib/absolute.so", odd.join("absolute")).unwrap();
    // Second names: beside and elsewhere, of a fat library and of a plain file, sorting before and
    // behind.
    fs::hard_link(lib.join("librocblas.so.5.2"), lib.join("librocblas-again.so")).unwrap();
    fs::create_dir(artifact.join(STAGE).join("bin")).unwrap();
    fs::hard_link(lib.join("librocblas.so.5.2"), artifact.join(STAGE).join("bin/fat")).unwrap();
    fs::hard_link(odd.join("back\\slash\nand break"), lib.join("z-plain")).unwrap();
    fs::hard_link(odd.join("back\\slash\nand break"), odd.join("a-plain")).unwrap();
    fs::set_permissions(odd.join("empty file"), PermissionsExt::from_mode(0o4751)).unwrap();
    fs::set_permissions(odd.join("empty dir"), PermissionsExt::from_mode(0o2750)).unwrap();
    let fraction = UNIX_EPOCH + Duration::new(1_234_567_890, 987_654_321);
    let before = UNIX_EPOCH - Duration::new(1_000_000, 250_000_000);
    for (path, time) in [(odd.join("empty file"), before), (odd.join("a-plain"), fraction)] {
        let file = File::options().write(true).open(path).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
    artifact
}

#[test]
fn an_archive_is_split_as_its_directory_is() {
    let dir = tempfile::tempdir().unwrap();
    let artifact = odd_artifact(dir.path());
    let ways: [&[&str]; 4] = [
        &[],
        &["--kpack-scope", "binary", "--kpack-layout", "in-place"],
        &["--compression", "none", "--kpack-scope", "prefix"],
        &["--gpu-targets", "gfx1100", "--jobs", "1", "--memory", "1"],
    ];
    let expected: Vec<_> = (0..ways.len())
        .map(|i| {
            let out = dir.path().join(format!("expected-{i}"));
            ok(&mut split_one(&artifact, &out, ways[i]));
            everything(&out)
        })
        .collect();
    assert!(expected[0].keys().any(|path| path.ends_with(".kpack")), "{:#?}", expected[0]);
    for format in FORMATS {
        for order in [Order::Sorted, Order::Backwards] {
            let packed = dir.path().join(format!("{format}-{order:?}"));
            fs::create_dir(&packed).unwrap();
            let archive = pack(&artifact, &packed, format, order);
            for (i, way) in ways.iter().enumerate() {
                let out = packed.join(format!("out-{i}"));
                ok(&mut split_one(&archive, &out, way));
                assert_same(
                    &format!("{format} {order:?} {way:?}"),
                    &expected[i],
                    &everything(&out),
                );
            }
        }
    }
}

/// Bytes that no compressor makes smaller.
fn noise(path: &Path, len: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ len as u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    fs::write(path, &bytes[..len]).unwrap();
    format!("\n#embed \"{}\"\n", path.display())
}

/// Code objects and compressed bundles that are too large to be held while they stream by, and a
/// library with so much data that not all of what planning needs is kept: that is read again.
#[test]
fn large_code_objects_and_large_hosts_come_through() {
    let dir = tempfile::tempdir().unwrap();
    let embed = noise(&dir.path().join("device"), 20 << 20);
    let device = dir.path().join("device.hip");
    let text = format!(
        "#include \"hip_min.h\"\n__device__ __attribute__((used)) const char big[] = {{{embed}}};\n\
         __global__ void kernel(float *x) {{ x[0] = big[1]; }}\n\
         FIXTURE_EXPORT void launch(float *x) {{ kernel<<<1, 1>>>(x); }}\n"
    );
    fs::write(&device, text).unwrap();
    let embed = noise(&dir.path().join("host"), 60 << 20);
    let host = dir.path().join("host.hip");
    let text = format!(
        "#include \"hip_min.h\"\n#ifndef __HIP_DEVICE_COMPILE__\n\
         extern \"C\" __attribute__((visibility(\"default\"), used)) \
         const char data[] = {{{embed}}};\n#endif\n\
         __global__ void kernel(float *x) {{ x[0] = 1; }}\n\
         FIXTURE_EXPORT void launch(float *x) {{ kernel<<<1, 1>>>(x); }}\n"
    );
    fs::write(&host, text).unwrap();
    let artifact = dir.path().join("blas_lib_gfx1151");
    let lib = artifact.join(STAGE).join("lib");
    fs::create_dir_all(&lib).unwrap();
    fs::write(artifact.join("artifact_manifest.txt"), format!("{STAGE}\n")).unwrap();
    let made: [(&str, &Path, &[&str]); 3] = [
        ("libplain.so", &device, &[]),
        ("libcompressed.so", &device, &["--offload-compress"]),
        ("libhost.so", &host, &[]),
    ];
    for (name, source, args) in made {
        ok(tool("clang++-19", "clang-19 clang-tools-19 lld-19")
            .args(["-x", "hip", "-nogpuinc", "-nogpulib", "-O1", "-fPIC", "-shared"])
            .args(["-fuse-ld=lld", "--offload-arch=gfx1100", "--offload-arch=gfx1151", "-w", "-I"])
            .arg(common::repo().join("tests/fixtures/hip"))
            .arg("-L")
            .arg(fixtures().join("runtime"))
            .args(args)
            .arg(source)
            .arg("-o")
            .arg(lib.join(name)));
    }
    let archive = pack(&artifact, dir.path(), "zst", Order::Sorted);
    for way in [&["--compression-level", "1"][..], &["--compression", "none"]] {
        let (expected, out) = (dir.path().join("expected"), dir.path().join("out"));
        ok(split_one(&artifact, &expected, way).arg("--force"));
        ok(split_one(&archive, &out, way).arg("--force"));
        let expected = everything(&expected);
        let converted = expected
            .keys()
            .filter(|path| path.ends_with("1.kpack") || path.ends_with("0.kpack"))
            .count();
        assert_eq!(converted, 2, "{expected:#?}");
        assert_same(&format!("{way:?}"), &expected, &everything(&out));
    }
}

/// Whatever is read of a member in whatever steps is what is there, and going forward is one way
/// through the archive: with one for each step, reading would be given up.
#[test]
fn members_are_read_at_any_place() {
    let dir = tempfile::tempdir().unwrap();
    let stage = dir.path().join("blas_lib_x").join(STAGE);
    fs::create_dir_all(&stage).unwrap();
    noise(&stage.join("noise"), (20 << 20) + 123);
    fs::write(stage.join("before"), [1; 100_000]).unwrap();
    let expected = fs::read(stage.join("noise")).unwrap();
    let archive = pack(&dir.path().join("blas_lib_x"), dir.path(), "zst", Order::Sorted);
    let tree = gfxpack::tree::read::archive(&archive, true, &Silent).unwrap();
    let path = gfxpack::tree::TreePath::new(format!("{STAGE}/noise")).unwrap();
    let Some(Source::File(input)) = tree.get(&path).unwrap().source() else { panic!() };
    assert_eq!(input.digest(), Some(blake3::hash(&expected)));
    for step in [100, 8 << 10, 64 << 10, (64 << 10) + 1, 1 << 20] {
        let file = input.open().unwrap();
        for (i, chunk) in expected.chunks(step).enumerate() {
            let mut read = vec![0; chunk.len()];
            file.read_exact_at(&mut read, (i * step) as u64).unwrap();
            assert!(read == chunk, "{step}, {i}");
        }
    }
    let file = input.open().unwrap();
    for i in (0..60u64).rev() {
        let (offset, len) = (i * 300_000, usize::try_from(i * 1000 % 190_000).unwrap());
        let mut read = vec![0; len];
        file.read_exact_at(&mut read, offset).unwrap();
        assert!(read == expected[usize::try_from(offset).unwrap()..][..len], "{offset}");
    }
    assert!(file.read_exact_at(&mut [0; 2], expected.len() as u64 - 1).is_err());
    assert!(file.read_exact_at(&mut [0; 2], u64::MAX).is_err());
}

/// Copies `shards` with each artifact packed that `wanted` says.
fn packed_shards(shards: &Path, to: &Path, order: Order, wanted: impl Fn(usize) -> bool) {
    let mut count = 0;
    for shard in fs::read_dir(shards).unwrap().map(|e| e.unwrap().path()) {
        let shard_to = to.join(shard.file_name().unwrap());
        fs::create_dir_all(&shard_to).unwrap();
        let mut artifacts: Vec<_> =
            fs::read_dir(&shard).unwrap().map(|e| e.unwrap().path()).collect();
        artifacts.sort();
        for artifact in artifacts {
            if wanted(count) {
                pack(&artifact, &shard_to, FORMATS[count % 3], order);
            } else {
                copy_tree(&artifact, &shard_to.join(artifact.file_name().unwrap()));
            }
            count += 1;
        }
    }
    assert!(count > 5);
}

fn build(shards: &Path, out: &Path, args: &[&str]) -> BTreeMap<String, String> {
    ok(gfxpack()
        .args(["build", "--input-shards-dir"])
        .arg(shards)
        .arg("--config")
        .arg(example_config())
        .arg("--packages")
        .arg(example_packages())
        .arg("--output-dir")
        .arg(out)
        .args(["--version", "7.1.0", "--release", "1"])
        .args(args));
    snapshot(out)
}

#[test]
fn shards_of_archives_are_split_and_built_as_directories_are() {
    let dir = tempfile::tempdir().unwrap();
    let shards = fixtures().join("shards");
    let expected = build(&shards, &dir.path().join("expected"), &[]);
    assert!(expected.keys().any(|name| name.ends_with(".rpm")));
    for (name, every, order) in
        [("all", 1, Order::Sorted), ("backwards", 1, Order::Backwards), ("mixed", 2, Order::Sorted)]
    {
        let packed = dir.path().join(name);
        packed_shards(&shards, &packed, order, |i| i % every == 0);
        let built = build(&packed, &dir.path().join(format!("{name}-packages")), &[]);
        assert_same(&format!("packages, {name}"), &expected, &built);
        for shard in ["gfx110X-build", "gfx1151-build", "gfx120X-build"] {
            let [from_dir, from_archives] =
                ["dir", "arc"].map(|way| dir.path().join(format!("{name}-{shard}-{way}")));
            ok(&mut split_shard(&shards.join(shard), &from_dir));
            ok(&mut split_shard(&packed.join(shard), &from_archives));
            let what = format!("{shard}, {name}");
            assert_same(&what, &everything(&from_dir), &everything(&from_archives));
            // The source of a check may be packed as well.
            ok(gfxpack()
                .args(["verify", "--artifacts-dir"])
                .arg(from_archives)
                .arg("--source")
                .arg(packed.join(shard)));
        }
        let found = |shards: &Path| {
            let json = ok(gfxpack().args(["discover", "--json"]).arg(shards));
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            json["total"].clone()
        };
        assert_eq!(found(&packed), found(&shards), "{name}");
    }
}

#[test]
fn code_that_two_shards_have_is_compared_through_archives() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("shards");
    copy_tree(&example_shards(), &shards);
    copy_tree(&shards.join("gfx1151-build"), &shards.join("again-build"));
    let expected = build(&shards, &dir.path().join("expected"), &[]);
    let packed = dir.path().join("packed");
    packed_shards(&shards, &packed, Order::Sorted, |i| i % 3 != 1);
    assert_same("twice", &expected, &build(&packed, &dir.path().join("out"), &[]));
    // One byte in the code of one of the two: an error either way.
    let library =
        shards.join("again-build/blas_lib_gfx1151").join(STAGE).join("lib/librocblas.so.5.2");
    let mut bytes = fs::read(&library).unwrap();
    let code = bytes.windows(4).rposition(|four| four == b"\x7fELF").unwrap();
    bytes[code + 0x300] ^= 1;
    fs::write(&library, bytes).unwrap();
    let packed = dir.path().join("packed-again");
    packed_shards(&shards, &packed, Order::Sorted, |_| true);
    let mut command = gfxpack();
    command
        .args(["build", "--input-shards-dir"])
        .arg(&packed)
        .arg("--config")
        .arg(example_config());
    command.arg("--output-dir").arg(dir.path().join("out-again"));
    let errors = fails(command.args(["--version", "1", "--release", "1"]), 1);
    assert!(errors.contains("the first differing kernel is"), "{errors}");
}

#[test]
fn host_code_of_shards_is_compared_through_archives() {
    let dir = tempfile::tempdir().unwrap();
    let differences = |shards: &Path| {
        let mut command = gfxpack();
        command
            .args(["--json", "build", "--dry-run", "--no-auto-deps", "--input-shards-dir"])
            .arg(shards);
        command.arg("--config").arg(example_config()).arg("--output-dir").arg(dir.path());
        let json = ok(command.args(["--version", "1", "--release", "1"]));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["report"]["recombine"]["generic_differences"].clone()
    };
    let expected = differences(&example_shards());
    assert!(expected[0]["differing"][0]["sections"].as_array().unwrap().len() > 3, "{expected}");
    let packed = dir.path().join("packed");
    packed_shards(&example_shards(), &packed, Order::Backwards, |i| i % 5 != 3);
    assert_eq!(differences(&packed), expected);
}

#[test]
fn checksums_beside_archives_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let artifact = example_shards().join("gfx1151-build/blas_lib_gfx1151");
    let archive = pack(&artifact, dir.path(), "zst", Order::Sorted);
    let digest: String =
        Sha256::digest(fs::read(&archive).unwrap()).iter().map(|b| format!("{b:02x}")).collect();
    let beside = dir.path().join("blas_lib_gfx1151.tar.zst.sha256sum");
    let wrong = format!("{}{}", if digest.starts_with('f') { 'e' } else { 'f' }, &digest[1..]);
    for (i, good) in [
        format!("{digest}  blas_lib_gfx1151.tar.zst\n"),
        format!("{digest} *./blas_lib_gfx1151.tar.zst\n"),
        format!("{}\n", digest.to_uppercase()),
        digest.clone(),
    ]
    .iter()
    .enumerate()
    {
        fs::write(&beside, good).unwrap();
        ok(&mut split_one(&archive, &dir.path().join(format!("good-{i}")), &[]));
    }
    let out = dir.path().join("out");
    for (bad, words) in [
        (format!("{wrong}  blas_lib_gfx1151.tar.zst\n"), vec![digest.as_str(), wrong.as_str()]),
        (format!("{digest}  other.tar.zst\n"), vec!["is for another file, `other.tar.zst`"]),
        (digest[..63].to_owned(), vec!["no SHA-256", ".sha256sum"]),
        ("\n".to_owned(), vec!["does not have one line"]),
        (format!("{digest}\n{digest}\n"), vec!["does not have one line"]),
        (String::from_utf8_lossy(&[b'f'; 100_000]).into_owned(), vec!["no SHA-256"]),
    ] {
        fs::write(&beside, bad).unwrap();
        let errors = fails(&mut split_one(&archive, &out, &[]), 1);
        for word in words.into_iter().chain(["hint: "]) {
            assert!(errors.contains(word), "no `{word}` in {errors}");
        }
        let left = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("out")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_artifact_comes_in_one_form_only_and_is_called_like_one() {
    let dir = tempfile::tempdir().unwrap();
    let shard = dir.path().join("shard");
    fs::create_dir(&shard).unwrap();
    let artifact = shard.join("blas_lib_gfx1151");
    copy_tree(&example_shards().join("gfx1151-build/blas_lib_gfx1151"), &artifact);
    pack(&artifact, &shard, "zst", Order::Sorted);
    let out = dir.path().join("out");
    let errors = fails(&mut split_shard(&shard, &out), 1);
    assert!(errors.contains("is the artifact blas_lib_gfx1151, as is"), "{errors}");
    fs::remove_dir_all(&artifact).unwrap();
    fs::write(shard.join("other.tar.gz"), "").unwrap();
    let errors = fails(&mut split_shard(&shard, &out), 1);
    assert!(errors.contains("other.tar.gz: is not called like an artifact"), "{errors}");
    fs::remove_file(shard.join("other.tar.gz")).unwrap();
    // The other one was split.
    assert!(out.join("blas_lib_gfx1151").exists());
    fs::remove_dir_all(&out).unwrap();
    // Checksums, hidden and other files are passed over.
    fs::write(shard.join(".hidden.tar.gz"), "").unwrap();
    fs::write(shard.join("build.log"), "").unwrap();
    fs::write(shard.join("blas_lib_gfx1151.tar.zst.sha256sum"), "").unwrap();
    let errors = fails(&mut split_shard(&shard, &out), 1);
    assert!(errors.contains("does not have one line"), "{errors}");
    fs::remove_file(shard.join("blas_lib_gfx1151.tar.zst.sha256sum")).unwrap();
    fs::write(shard.join("blas_dev_gfx1151.tar.zst.sha256sum"), "").unwrap();
    let report = ok(&mut split_shard(&shard, &out));
    let line = "passed over: 3 that are no artifacts \
                (.hidden.tar.gz, blas_dev_gfx1151.tar.zst.sha256sum, build.log)\n";
    assert!(report.contains(line), "{report}");
}

/// Archives that end early, that have another digest than is stated, and that hold a bundle which is
/// found to be damaged when it is taken out: each fails alone.
#[test]
fn a_bad_archive_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let shard = example_shards().join("gfx1151-build");
    let (packed, out) = (dir.path().join("packed"), dir.path().join("out"));
    fs::create_dir(&packed).unwrap();
    for name in ["blas_dev_gfx1151", "blas_run_gfx1151", "fft_lib_gfx1151", "support_lib_gfx1151"] {
        pack(&shard.join(name), &packed, "zst", Order::Sorted);
    }
    let blas = dir.path().join("blas_lib_gfx1151");
    copy_tree(&shard.join("blas_lib_gfx1151"), &blas);
    let library = blas.join("math-libs/BLAS/hipBLASLt/stage/lib/libhipblaslt.so.0.9");
    let mut bytes = fs::read(&library).unwrap();
    let hash = bytes.windows(4).position(|four| four == b"CCOB").unwrap() + 16;
    bytes[hash] ^= 1;
    fs::write(&library, bytes).unwrap();
    pack(&blas, &packed, "gz", Order::Sorted);
    let cut = packed.join("fft_lib_gfx1151.tar.zst");
    let whole = fs::read(&cut).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let digest = packed.join("support_lib_gfx1151.tar.zst.sha256sum");
    fs::write(digest, "0".repeat(64)).unwrap();
    let before = everything(&packed);
    let errors = fails(&mut split_shard(&packed, &out), 1);
    for words in [
        "blas_lib_gfx1151.tar.gz/math-libs/BLAS/hipBLASLt/stage/lib/libhipblaslt.so.0.9: the bundle",
        "the uncompressed bundle's MD5 begins",
        "fft_lib_gfx1151.tar.zst: is no archive that can be used",
        "support_lib_gfx1151.tar.zst: has the SHA-256",
        "2 of 5 artifacts are in it; blas_lib_gfx1151, fft_lib_gfx1151 and support_lib_gfx1151 failed",
    ] {
        assert!(errors.contains(words), "no `{words}` in {errors}");
    }
    let mut names: Vec<_> = fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["blas_dev_generic", "blas_run_generic", "blas_run_gfx1151"]);
    // What is there is what a run over the good ones alone gives.
    for bad in ["blas_lib_gfx1151.tar.gz", "fft_lib_gfx1151.tar.zst", "support_lib_gfx1151.tar.zst"]
    {
        fs::rename(packed.join(bad), dir.path().join(bad)).unwrap();
    }
    ok(&mut split_shard(&packed, &dir.path().join("expected")));
    assert_same("out", &everything(&dir.path().join("expected")), &everything(&out));
    for bad in ["blas_lib_gfx1151.tar.gz", "fft_lib_gfx1151.tar.zst", "support_lib_gfx1151.tar.zst"]
    {
        fs::rename(dir.path().join(bad), packed.join(bad)).unwrap();
    }
    assert_same("input", &before, &everything(&packed));
}

/// What a monitor was told.
#[derive(Default)]
struct Told {
    phases: Mutex<Vec<(String, u64)>>,
    bytes: AtomicU64,
    largest: AtomicU64,
    ended: AtomicU64,
}

impl Monitor for Told {
    fn begin(&self, what: &str, bytes: u64) {
        self.phases.lock().unwrap().push((what.to_owned(), bytes));
    }

    fn advance(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.largest.fetch_max(bytes, Ordering::Relaxed);
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reading archives is one phase, measured in the bytes of the archives, and a large one is told of
/// piece by piece.
#[test]
fn reading_archives_shows_how_far_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let shards = dir.path().join("shards");
    packed_shards(&example_shards(), &shards, Order::Sorted, |i| i % 2 == 0);
    let large = dir.path().join("data_lib_all");
    fs::create_dir_all(large.join(STAGE)).unwrap();
    fs::write(large.join("artifact_manifest.txt"), format!("{STAGE}\n")).unwrap();
    noise(&large.join(STAGE).join("noise"), 8 << 20);
    pack(&large, &shards.join("gfx1151-build"), "zst", Order::Sorted);
    let mut bytes = 0;
    for shard in fs::read_dir(&shards).unwrap().map(|shard| shard.unwrap().path()) {
        for file in fs::read_dir(shard).unwrap().map(|file| file.unwrap()) {
            let meta = file.metadata().unwrap();
            bytes += if meta.is_file() { meta.len() } else { 0 };
        }
    }
    let jobs = gfxpack::jobs::Jobs::new(2, 1 << 20);
    let told = Told::default();
    gfxpack::artifact::read_shards(&shards, &jobs, &told).unwrap();
    assert_eq!(*told.phases.lock().unwrap(), [("reading archives".to_owned(), bytes)]);
    assert_eq!(told.bytes.load(Ordering::Relaxed), bytes);
    assert_eq!(told.ended.load(Ordering::Relaxed), 1);
    // What the decompressing thread is ahead, and not the archive of 8 MiB at once.
    assert!(told.largest.load(Ordering::Relaxed) < 4 << 20, "{:?}", told.largest);
    // Of directories there is nothing to tell.
    let told = Told::default();
    gfxpack::artifact::read_shards(&example_shards(), &jobs, &told).unwrap();
    assert_eq!(told.phases.lock().unwrap().len(), 0);
}

// ---- hostile archives ----

fn octal(field: &mut [u8], value: u64) {
    let text = format!("{value:0width$o}", width = field.len() - 1);
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// A header with a right checksum, changed by `change` before that.
fn header(name: &[u8], kind: u8, size: u64, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    octal(&mut block[100..108], 0o644);
    octal(&mut block[124..136], size);
    octal(&mut block[136..148], 1_700_000_000);
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    change(&mut block);
    block[148..156].fill(b' ');
    let sum = block.iter().map(|&b| u64::from(b)).sum();
    octal(&mut block[148..155], sum);
    block[155] = b' ';
    block
}

fn member(name: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, content.len() as u64, |_| {});
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn link(name: &[u8], kind: u8, target: &[u8]) -> Vec<u8> {
    header(name, kind, 0, |block| block[157..157 + target.len()].copy_from_slice(target))
}

/// PAX records for the next member.
fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let mut len = rest.len() + 1;
        while rest.len() + len.to_string().len() != len {
            len += 1;
        }
        text.extend(format!("{len}{rest}").bytes());
    }
    member(b"pax", b'x', &text)
}

fn archive_of(dir: &TempDir, members: &[Vec<u8>]) -> PathBuf {
    let mut bytes = member(b"artifact_manifest.txt", b'0', b"p/stage\n");
    bytes.extend(members.concat());
    bytes.resize(bytes.len() + 1024, 0);
    write_archive(dir, &bytes)
}

fn write_archive(dir: &TempDir, tar: &[u8]) -> PathBuf {
    let path = dir.path().join("blas_lib_x.tar.zst");
    fs::write(&path, zstd::encode_all(tar, 1).unwrap()).unwrap();
    path
}

/// Splitting must fail, name the archive, say all of `words`, leave nothing, and be quick about it.
#[track_caller]
fn refused(dir: &TempDir, archive: &Path, words: &[&str]) {
    let out = dir.path().join("out");
    let began = Instant::now();
    let errors = fails(&mut split_one(archive, &out, &[]), 1);
    for word in words.iter().chain(&["error: ", "blas_lib_x.tar.zst", "hint: "]) {
        assert!(errors.contains(word), "no `{word}` in:\n{errors}");
    }
    assert!(!out.exists() && !dir.path().join(".out.gfxpack-part").exists());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// What it is, the members behind the manifest, and words of the error.
type Case = (&'static str, Vec<Vec<u8>>, &'static [&'static str]);

#[test]
fn hostile_archives_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &[u8]| member(name, b'0', b"content");
    // The first member's header and content take 1024 bytes.
    let cases: Vec<Case> = vec![
        ("up", vec![file(b"p/stage/../../../up")], &["`p/stage/../../../up`", "0x400", "`..`"]),
        ("absolute", vec![file(b"/etc/passwd")], &["`/etc/passwd`", "absolute"]),
        ("empty name", vec![file(b"")], &["the path is empty"]),
        ("device", vec![link(b"p/stage/null", b'3', b"")], &["p/stage/null", "a device", "0x400"]),
        ("block device", vec![link(b"p/stage/sda", b'4', b"")], &["a device"]),
        ("pipe", vec![link(b"p/stage/pipe", b'6', b"")], &["a pipe"]),
        ("unknown", vec![link(b"p/stage/volume", b'V', b"")], &["type", "`V`"]),
        ("sparse", vec![file(b"p/stage/a"), link(b"p/stage/s", b'S', b"")], &["sparse", "0x800"]),
        (
            "PAX sparse",
            vec![pax(&[("GNU.sparse.major", "1")]), file(b"p/stage/a")],
            &["GNU.sparse.major"],
        ),
        ("twice", vec![file(b"p/stage/a"), file(b"./p//stage/a")], &["0x800", "taken already"]),
        (
            "directory twice",
            vec![link(b"p/stage/", b'5', b""), link(b"p/stage", b'5', b"")],
            &["there twice"],
        ),
        (
            "below a link",
            vec![link(b"p/stage/l", b'2', b"/tmp"), file(b"p/stage/l/x")],
            &["p/stage/l/x", "below `p/stage/l`, which is no directory"],
        ),
        (
            "a link over a directory",
            vec![file(b"p/stage/l/x"), link(b"p/stage/l", b'2', b"/tmp")],
            &["`p/stage/l`", "taken already"],
        ),
        ("hard link out", vec![link(b"p/stage/h", b'1', b"../../etc/x")], &["p/stage/h", "`..`"]),
        ("hard link to root", vec![link(b"p/stage/h", b'1', b"/etc/passwd")], &["absolute"]),
        (
            "hard link ahead",
            vec![link(b"p/stage/h", b'1', b"p/stage/z"), file(b"p/stage/z")],
            &["`p/stage/z`", "the name of an earlier file"],
        ),
        (
            "hard link to a link",
            vec![link(b"p/stage/l", b'2', b"/etc/passwd"), link(b"p/stage/h", b'1', b"p/stage/l")],
            &["the name of an earlier file"],
        ),
        ("no target", vec![link(b"p/stage/h", b'2', b"")], &["link target", "empty"]),
        (
            "a link with content",
            vec![member(b"p/stage/d", b'5', b"content")],
            &["p/stage/d", "size", "is 7"],
        ),
        (
            "a size past the end",
            vec![header(b"p/stage/big", b'0', 1 << 32, |_| {})],
            &["p/stage/big", "ends at 0xa00", "more bytes of it"],
        ),
        (
            "a size over 64 bits",
            vec![header(b"p/stage/big", b'0', 0, |block| block[124..136].fill(0x8f))],
            &["p/stage/big", "size", "63 bits"],
        ),
        (
            "a size of almost 2^63",
            vec![header(b"p/stage/big", b'0', 0, |block| {
                block[124..136].copy_from_slice(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff");
            })],
            &["p/stage/big"],
        ),
        (
            "a negative size",
            vec![header(b"p/stage/neg", b'0', 0, |block| block[124..136].fill(0xff))],
            &["p/stage/neg", "is -1"],
        ),
        (
            "no number",
            vec![header(b"p/stage/nan", b'0', 0, |block| block[124..128].copy_from_slice(b"9zzz"))],
            &["p/stage/nan", "octal"],
        ),
        (
            "PAX headers of 4 GB",
            vec![header(b"pax", b'x', 4 << 30, |_| {}), file(b"p/stage/a")],
            &["size of the PAX records", "is 4294967296", "at most 1048576"],
        ),
        (
            "a long name of 8 GB",
            vec![header(b"././@LongLink", b'L', (8 << 30) - 1, |_| {}), file(b"p/stage/a")],
            &["size of a long name", "at most 4096"],
        ),
        (
            "a name longer than any",
            vec![pax(&[("path", &"a/".repeat(5000))]), file(b"p/stage/a")],
            &["10000 bytes long", "at most 4095"],
        ),
        ("NUL", vec![pax(&[("path", "p/stage/a\0b")]), file(b"x")], &["NUL"]),
        ("no PAX", vec![member(b"pax", b'x', b"999 path=x\n"), file(b"x")], &["PAX record"]),
        ("wrong PAX size", vec![pax(&[("size", "-5")]), file(b"x")], &["size", "`-5`"]),
        ("a global size", vec![member(b"g", b'g', b"9 size=4\n"), file(b"x")], &["global record"]),
        (
            "damaged header",
            vec![{
                let mut bytes = file(b"p/stage/a");
                bytes[3] ^= 1;
                bytes
            }],
            &["checksum", "0x400", "the sum of the header"],
        ),
        ("two archives", vec![vec![0; 1024], file(b"p/stage/a")], &["behind the end"]),
        ("outside of prefixes", vec![file(b"elsewhere/a")], &["under no prefix"]),
    ];
    for (what, members, words) in cases {
        let archive = archive_of(&dir, &members);
        println!("{what}");
        refused(&dir, &archive, words);
    }
}

#[test]
fn cut_archives_and_bombs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let content = vec![7; 10_000];
    let whole = [
        member(b"artifact_manifest.txt", b'0', b"p/stage\n"),
        member(b"p/stage/file", b'0', &content),
    ]
    .concat();
    // In a header, in content, between members (no zeros at the end).
    for (cut, words) in [
        (1200, &["ends at 0x4b0", "a header"][..]),
        (5000, &["ends at 0x1388", "p/stage/file", "more bytes of it"]),
        (whole.len(), &["the zeros at the end"]),
        (0, &["ends at 0x0"]),
    ] {
        refused(&dir, &write_archive(&dir, &whole[..cut]), words);
    }
    let mut tar = whole.clone();
    tar.resize(whole.len() + 1024, 0);
    let packed = zstd::encode_all(&tar[..], 1).unwrap();
    let path = dir.path().join("blas_lib_x.tar.zst");
    for cut in [packed.len() - 1, packed.len() / 2, 3] {
        fs::write(&path, &packed[..cut]).unwrap();
        refused(&dir, &path, &["cannot be read at"]);
    }
    let junk = [&packed[..], b"junk behind it"].concat();
    fs::write(&path, junk).unwrap();
    refused(&dir, &path, &["cannot be read at"]);
    // A window of 2 GiB would be allocated by a decoder that takes it.
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(31).unwrap();
    encoder.long_distance_matching(true).unwrap();
    std::io::Write::write_all(&mut encoder, &tar).unwrap();
    fs::write(&path, encoder.finish().unwrap()).unwrap();
    refused(&dir, &path, &["cannot be read at 0x0"]);
    // Names without end, each a file: memory is bounded.
    let mut many = member(b"artifact_manifest.txt", b'0', b"p/stage\n");
    for i in 0..40_000u32 {
        let name = format!("p/stage/{}/{i}", "d".repeat(60)).replace("dd", "d/");
        many.extend(pax(&[("path", &format!("{i}/{name}/{}", "x".repeat(3000)))]));
        many.extend(header(b"x", b'0', 0, |_| {}));
    }
    many.resize(many.len() + 1024, 0);
    refused(&dir, &write_archive(&dir, &many), &["names of up to 96 MiB in all"]);
}

/// Whatever is changed in an archive of every kind of member: a tree or an error, no panic.
#[test]
fn changed_archives_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut good = [
        member(b"artifact_manifest.txt", b'0', b"p/stage\n"),
        link(b"p/", b'5', b""),
        pax(&[("path", "p/stage/a long name"), ("mtime", "1700000000.5"), ("size", "7")]),
        member(b"x", b'0', b"content"),
        member(b"././@LongLink", b'L', b"p/stage/another name\0"),
        link(b"x", b'2', b"../elsewhere"),
        link(b"p/stage/hard", b'1', b"p/stage/a long name"),
        member(b"p/stage/lib.so", b'0', &fs::read(env!("CARGO_BIN_EXE_gfxpack")).unwrap()[..8192]),
    ]
    .concat();
    good.resize(good.len() + 1024, 0);
    let path = dir.path().join("a_lib_x.tar.zst");
    let read = |tar: &[u8]| {
        fs::write(&path, zstd::encode_all(tar, 1).unwrap()).unwrap();
        gfxpack::tree::read::archive(&path, true, &Silent)
    };
    assert_eq!(read(&good).unwrap().len(), 7);
    let mut state = 1u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let (mut trees, mut errors) = (0, 0);
    for _ in 0..4000 {
        let mut tar = good.clone();
        // Headers have a checksum: half of the changes keep it right.
        let block = random(tar.len() / 512) * 512;
        for _ in 0..=random(3) {
            let at = block + random(512);
            tar[at] = [0, 0xff, b'7', b'/', tar[at] ^ (1 << random(8))][random(5)];
        }
        if random(2) == 0 {
            tar[block + 148..block + 156].fill(b' ');
            let sum = tar[block..block + 512].iter().map(|&b| u64::from(b)).sum();
            octal(&mut tar[block + 148..block + 155], sum);
        }
        if random(8) == 0 {
            tar.truncate(random(good.len()));
        }
        match read(&tar) {
            Ok(_) => trees += 1,
            Err(_) => errors += 1,
        }
    }
    assert!(trees > 100 && errors > 100, "{trees} trees, {errors} errors");
}

// ---- what a run leaves, and takes ----

/// A fat library with so many zeros behind its sections that it is large, with its artifact.
fn large(dir: &Path) -> PathBuf {
    let artifact = dir.join("blas_lib_gfx1151");
    copy_tree(&example_shards().join("gfx1151-build/blas_lib_gfx1151"), &artifact);
    let big = File::create(artifact.join(STAGE).join("lib/large.bin")).unwrap();
    big.set_len(1 << 30).unwrap();
    pack(&artifact, dir, "zst", Order::Sorted)
}

#[test]
fn a_killed_run_leaves_nothing_under_a_final_name() {
    let dir = tempfile::tempdir().unwrap();
    let archive = large(dir.path());
    let out = dir.path().join("out");
    // In a batch with one that fails as well.
    let shard = dir.path().join("shard");
    fs::create_dir_all(shard.join("fft_lib_gfx1151")).unwrap();
    fs::hard_link(&archive, shard.join(archive.file_name().unwrap())).unwrap();
    for mut split in [split_one(&archive, &out, &[]), split_shard(&shard, &out)] {
        let mut child = split.spawn().unwrap();
        let part = dir.path().join(".out.gfxpack-part");
        while !fs::read_dir(&part).is_ok_and(|mut names| names.next().is_some()) {
            assert!(child.try_wait().unwrap().is_none(), "it was over before it could be killed");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(fs::read_dir(&out).map_or(0, Iterator::count) == 0, "{:?}", snapshot(&out));
        fs::remove_dir_all(&part).unwrap();
    }
}

#[test]
fn nothing_is_unpacked_and_memory_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let archive = large(dir.path());
    let out = dir.path().join("out");
    // No directory for temporary files is needed.
    let mut command = split_one(&archive, &out, &[]);
    let mut child = command.env("TMPDIR", "/nonexistent").spawn().unwrap();
    let mut peak = 0;
    let mut other = Vec::new();
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let high = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = high.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok());
        peak = peak.max(kib.unwrap_or(0u64));
        // Files that it has open for writing and that will not be in the output.
        for fd in fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten() {
            if let Ok(to) = fs::read_link(fd.path())
                && to.to_string_lossy().ends_with(" (deleted)")
            {
                other.push(to);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    assert!(peak > 0 && peak < 160 << 10, "peak of {peak} KiB");
    assert!(other.is_empty(), "{other:?}");
    assert!(
        out.join("blas_lib_generic").join(STAGE).join("lib/large.bin").metadata().unwrap().len()
            == 1 << 30
    );
}
