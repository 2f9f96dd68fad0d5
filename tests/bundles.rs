//! Offload bundles as clang makes them, with clang-offload-bundler as the oracle.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use gfxpack::fatbin::bundle::{Bundle, Form, is_bundle};
use gfxpack::fatbin::ccob::Method;
use gfxpack::fatbin::code_object::{CodeObjectHeader, IsaCheck, Metadata};
use gfxpack::read_at::{OpenFile, ReadAt};
use md5::{Digest, Md5};

const SOURCE: &str = r#"
#define KERNEL extern "C" __attribute__((global)) void
KERNEL add_one(int *p) { *p += 1; }
KERNEL twice(float *p) { __attribute__((shared)) static volatile float local[64]; local[0] = *p; *p = local[0] * 2; }
"#;

/// Runs a tool of LLVM 19 and gives its standard output.
fn run(tool: &str, args: &[&str]) -> String {
    let output = Command::new(tool).args(args).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{tool} cannot be run ({error}): install the packages clang-19 and clang-tools-19")
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// A device-only bundle of two kernels.
fn compile(dir: &Path, name: &str, targets: &[&str], options: &[&str]) -> PathBuf {
    let source = dir.join("kernels.hip");
    fs::write(&source, SOURCE).unwrap();
    let out = dir.join(name);
    let targets: Vec<_> = targets.iter().map(|t| format!("--offload-arch={t}")).collect();
    let mut args = vec!["-x", "hip", "-nogpuinc", "-nogpulib", "--cuda-device-only", "-O1"];
    // Otherwise a symbol's name depends on the options.
    args.push("-cuid=gfxpack");
    args.extend(targets.iter().map(String::as_str));
    args.extend(options);
    args.extend(["-o", out.to_str().unwrap(), source.to_str().unwrap()]);
    run("clang++-19", &args);
    out
}

fn open(path: &Path) -> OpenFile {
    let file = fs::File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    OpenFile::new(file, len)
}

fn entry(bundle: &Bundle, r: &dyn ReadAt, target: &str) -> Vec<u8> {
    let entry = bundle.entry(&target.parse().unwrap()).unwrap_or_else(|| panic!("no {target}"));
    let mut bytes = Vec::new();
    bundle.open_entry(r, entry).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Holds what we read of a bundle against what the tool reads.
fn same_as_the_tool(dir: &Path, path: &Path, targets: &[&str]) {
    let r = open(path);
    let bundle = Bundle::read(&r, 0, r.len()).unwrap();
    assert_eq!(bundle.total_size, r.len());
    bundle.verify(&r).unwrap();
    let mut ids: Vec<_> = bundle.entries.iter().map(|e| e.id.as_str()).collect();
    ids.sort_unstable();
    let input = format!("--input={}", path.display());
    let listed = run("clang-offload-bundler-19", &["--list", "--type=o", &input]);
    let mut listed: Vec<_> = listed.lines().collect();
    listed.sort_unstable();
    assert_eq!(ids, listed);
    assert_eq!(bundle.device_entries().count(), targets.len());
    for target in targets {
        let out = dir.join("unbundled");
        let output = format!("--output={}", out.display());
        let id = format!("--targets=hipv4-amdgcn-amd-amdhsa--{target}");
        run("clang-offload-bundler-19", &["--unbundle", "--type=o", &id, &input, &output]);
        let code = entry(&bundle, &r, target);
        assert_eq!(code, fs::read(&out).unwrap(), "{target}");
        let header = CodeObjectHeader::read(&code).unwrap();
        assert_eq!(header.check(&target.parse().unwrap()), IsaCheck::Same, "{target}");
        let metadata = Metadata::read(&code, &header).unwrap().expect("a metadata note");
        let kernels: Vec<_> = metadata.kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(kernels, ["add_one", "twice"]);
        let twice = &metadata.kernels[1];
        assert_eq!(twice.symbol.as_deref(), Some("twice.kd"));
        assert_eq!(twice.group_segment_fixed_size, Some(256));
        assert!(twice.vgpr_count.is_some_and(|n| n > 0));
        let long = metadata.target.as_deref();
        assert_eq!(long, Some(format!("amdgcn-amd-amdhsa--{target}").as_str()));
    }
}

#[test]
fn plain_and_compressed_bundles_are_read_as_the_tool_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    for (targets, options) in [
        (&["gfx1100", "gfx1101"][..], &[][..]),
        (&["gfx906:sramecc+:xnack-", "gfx90a:xnack+", "gfx90a:xnack-", "gfx942"], &[]),
        (&["gfx11-generic", "gfx9-generic:xnack+"], &["-mcode-object-version=6"]),
        (&["gfx1030"], &["-mcode-object-version=4"]),
    ] {
        for compress in [false, true] {
            let compressed = if compress { &["--offload-compress"][..] } else { &[] };
            let options = [options, compressed].concat();
            let path = compile(dir.path(), "x.hipfb", targets, &options);
            let bytes = fs::read(&path).unwrap();
            assert!(is_bundle(&bytes));
            assert_eq!(bytes.starts_with(b"CCOB"), compress);
            same_as_the_tool(dir.path(), &path, targets);
        }
    }
}

/// clang 19 writes version 2 of the compressed form; 1 and 3 are made of its parts. The hash and
/// the frame are clang's own.
#[test]
fn other_versions_of_the_compressed_form_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let targets = ["gfx1100", "gfx1101"];
    let plain = fs::read(compile(dir.path(), "p.hipfb", &targets, &[])).unwrap();
    let path = compile(dir.path(), "c.hipfb", &targets, &["--offload-compress"]);
    let two = fs::read(path).unwrap();
    assert_eq!(two[4..6], [2, 0]);
    let (uncompressed, hash, frame) = (&two[12..16], &two[16..24], &two[24..]);
    assert_eq!(Md5::digest(&plain)[..8], *hash);
    let mut zlib = flate2::read::ZlibEncoder::new(plain.as_slice(), flate2::Compression::best());
    let mut deflated = Vec::new();
    zlib.read_to_end(&mut deflated).unwrap();
    for (method, payload) in [(Method::Zstd, frame), (Method::Zlib, &deflated)] {
        let number: u16 = if method == Method::Zstd { 1 } else { 0 };
        for version in [1_u16, 3] {
            let mut bytes = b"CCOB".to_vec();
            bytes.extend(version.to_le_bytes());
            bytes.extend(number.to_le_bytes());
            if version == 3 {
                bytes.extend((32 + payload.len() as u64).to_le_bytes());
            }
            bytes.extend(uncompressed);
            if version == 3 {
                bytes.extend([0; 4]);
            }
            bytes.extend(hash);
            bytes.extend(payload);
            let len = bytes.len() as u64;
            // In a section, padding and another bundle follow.
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
            bytes.extend(&two);
            let bundle = Bundle::read(&bytes, 0, bytes.len() as u64).unwrap();
            assert_eq!(bundle.total_size, len, "{method:?} {version}");
            let Form::Compressed(header) = &bundle.form else { panic!("not compressed") };
            assert_eq!((header.version, header.method), (version, method));
            assert_eq!(header.uncompressed_size, plain.len() as u64);
            bundle.verify(&bytes).unwrap();
            let whole = Bundle::read(&plain, 0, plain.len() as u64).unwrap();
            assert_eq!(bundle.entries, whole.entries);
            for target in targets {
                assert_eq!(entry(&bundle, &bytes, target), entry(&whole, &plain, target));
            }
        }
    }
}

/// One pass gives what opening each entry gives.
#[test]
fn one_pass_over_a_compressed_bundle_gives_every_entry() {
    let dir = tempfile::tempdir().unwrap();
    let targets = ["gfx1030", "gfx1100", "gfx1201"];
    let r = open(&compile(dir.path(), "c.hipfb", &targets, &["--offload-compress"]));
    let bundle = Bundle::read(&r, 0, r.len()).unwrap();
    let mut seen = Vec::new();
    bundle
        .for_each_entry::<Box<dyn std::error::Error>>(&r, |found, stream| {
            let target = found.target.as_ref().ok_or("a host entry with content")?.to_string();
            let mut bytes = Vec::new();
            // The second is not read to its end, which must not shift the third.
            let limit = if seen.len() == 1 { 100 } else { u64::MAX };
            stream.take(limit).read_to_end(&mut bytes)?;
            let whole = entry(&bundle, &r, &target);
            assert!(if seen.len() == 1 { whole.starts_with(&bytes) } else { whole == bytes });
            seen.push(target);
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, targets);
}

/// Damage anywhere in a code object is an error or goes unseen, but never more than that.
#[test]
fn damaged_code_objects_do_not_panic() {
    let dir = tempfile::tempdir().unwrap();
    let r = open(&compile(dir.path(), "p.hipfb", &["gfx1100"], &[]));
    let bundle = Bundle::read(&r, 0, r.len()).unwrap();
    let code = entry(&bundle, &r, "gfx1100");
    let look = |bytes: &[u8]| {
        if let Ok(header) = CodeObjectHeader::read(&bytes) {
            let _ = Metadata::read(&bytes, &header);
        }
    };
    for at in 0..code.len() {
        for value in [0x00, 0x7f, 0x80, 0xdd, 0xff] {
            let mut bad = code.clone();
            bad[at] = value;
            look(&bad);
        }
        look(&code[..at]);
    }
    // The section headers stand at the end: any cut is seen.
    assert!(CodeObjectHeader::read(&&code[..code.len() - 1]).is_err());
}
