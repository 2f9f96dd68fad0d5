//! Archives as input: what comes out is what comes out of the directories that they were made from, byte
//! for byte, with bounded memory and nothing unpacked. Bad ones are in `bad_archives.rs`.

#![allow(clippy::unwrap_used)]

#[path = "common/archives.rs"]
mod archives;
mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use archives::{Order, everything, pack, split_one, split_shard};
use common::{
    assert_same, copy_tree, example_config, example_packages, example_shards, fails, fixtures,
    gfxpack, ok, snapshot, tool,
};
use gfxpack::progress::{Monitor, Silent};
use gfxpack::read_at::ReadAt;
use gfxpack::tree::Source;

const FORMATS: [&str; 3] = ["zst", "xz", "gz"];

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
    // The example's allows what differs here.
    let text = fs::read_to_string(example_config()).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["validation"].as_object_mut().unwrap().remove("allowed_generic_differences").unwrap();
    let groups = dir.path().join("groups.json");
    fs::write(&groups, config.to_string()).unwrap();
    let differences = |shards: &Path| {
        let mut command = gfxpack();
        command
            .args(["--json", "build", "--dry-run", "--no-auto-deps", "--input-shards-dir"])
            .arg(shards);
        command.arg("--config").arg(&groups).arg("--output-dir").arg(dir.path());
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
            // The directory that the output is prepared in goes at the end, and is held open for a moment more.
            if let Ok(to) = fs::read_link(fd.path())
                && to.to_string_lossy().ends_with(" (deleted)")
                && fs::metadata(fd.path()).is_ok_and(|metadata| metadata.is_file())
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
