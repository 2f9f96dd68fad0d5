//! Archives that are damaged, mixed up or hostile: checksums are checked, each bad one fails alone, and
//! what is wrong is told with archive, member, offset, found and expected.

#![allow(clippy::unwrap_used)]

#[path = "common/archives.rs"]
mod archives;
mod common;
#[path = "common/tarball.rs"]
mod tarball;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use archives::{Order, everything, pack, split_one, split_shard};
use common::{assert_same, copy_tree, example_shards, fails, ok};
use gfxpack::progress::Silent;
use sha2::{Digest, Sha256};
use tarball::{header, link, member, octal, pax};
use tempfile::TempDir;

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

// ---- hostile archives ----

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

#[test]
fn an_archive_of_another_format_than_its_name_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let tar = [member(b"artifact_manifest.txt", b'0', b"p/stage\n"), vec![0; 1024]].concat();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &tar).unwrap();
    let path = dir.path().join("blas_lib_x.tar.zst");
    for (bytes, what, hint) in [
        (
            gzip.finish().unwrap(),
            "is gzip, though its name says zstd",
            "let its name end in .tar.gz",
        ),
        (tar, "is tar without compression, though its name says zstd", "pack it again as .tar.zst"),
    ] {
        fs::write(&path, bytes).unwrap();
        refused(&dir, &path, &[what, hint]);
    }
    // What is of no kind that is known is no more than damaged.
    fs::write(&path, "some text").unwrap();
    refused(&dir, &path, &["is no archive that can be used"]);
}

#[test]
fn an_artifact_that_is_packed_with_its_directory_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    copy_tree(&example_shards().join("gfx1151-build/blas_lib_gfx1151"), dir.path());
    let archive = dir.path().join("blas_lib_x.tar.zst");
    let mut tar = common::tool("tar", "tar");
    tar.arg("-C").arg(dir.path()).args(["-c", "blas_lib_gfx1151"]);
    let output = tar.output().unwrap();
    fs::write(&archive, zstd::encode_all(&output.stdout[..], 1).unwrap()).unwrap();
    let inside = "has the artifact one level further in (blas_lib_gfx1151/artifact_manifest.txt)";
    refused(&dir, &archive, &[inside, "tar -C blas_lib_gfx1151 -c ."]);
    // The same of a directory, as unpacking into one makes it.
    let folder = dir.path().join("more/blas_lib_gfx1151");
    fs::create_dir_all(&folder).unwrap();
    fs::rename(dir.path().join("blas_lib_gfx1151"), folder.join("blas_lib_gfx1151")).unwrap();
    let text = fails(&mut split_one(&folder, &dir.path().join("out"), &[]), 1);
    let hint = "blas_lib_gfx1151/blas_lib_gfx1151 one level further in";
    assert!(text.contains(inside) && text.contains(hint), "{text}");
}

#[test]
fn an_archive_without_a_checksum_is_told_where_others_have_one() {
    let dir = tempfile::tempdir().unwrap();
    let [shard, out] = ["shards/gfx1151-build", "out"].map(|name| dir.path().join(name));
    fs::create_dir_all(&shard).unwrap();
    for name in ["blas_dev_gfx1151", "fft_lib_gfx1151", "support_lib_gfx1151"] {
        pack(&example_shards().join("gfx1151-build").join(name), &shard, "zst", Order::Sorted);
    }
    let told = || {
        let ran = common::run(split_shard(&shard, &out).arg("--force"));
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        ran.stderr
    };
    assert_eq!(told(), "", "no archive has one");
    let digest = |name: &str| {
        let archive = format!("{name}.tar.zst");
        let text = ok(common::tool("sha256sum", "coreutils").current_dir(&shard).arg(&archive));
        fs::write(shard.join(archive + ".sha256sum"), text).unwrap();
    };
    digest("fft_lib_gfx1151");
    let text = told();
    let begin = "warning: 2 archives have no .sha256sum beside, and others have one: ";
    assert!(text.starts_with(begin) && text.lines().count() == 1, "{text}");
    assert!(text.contains("blas_dev_gfx1151.tar.zst; ") && !text.contains("fft_lib"), "{text}");
    digest("blas_dev_gfx1151");
    assert!(
        told().starts_with("warning: 1 archive has no .sha256sum beside, and others have one: ")
    );
    // `build` says the same, over all shards.
    let config = serde_json::json!({
        "primary_shard": "gfx1151-build",
        "architecture_groups": {"gfx115X": {"architectures": ["gfx1151"]}},
    });
    fs::write(dir.path().join("groups.json"), config.to_string()).unwrap();
    let ran = common::run(
        common::gfxpack()
            .current_dir(dir.path())
            .args(["build", "--dry-run", "--no-auto-deps", "--input-shards-dir", "shards"])
            .args(["--config", "groups.json", "--version", "1", "--release", "1"])
            .args(["--output-dir", "packages"]),
    );
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let warning = "others have one: shards/gfx1151-build/support_lib_gfx1151.tar.zst\n";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    digest("support_lib_gfx1151");
    assert_eq!(told(), "");
}
