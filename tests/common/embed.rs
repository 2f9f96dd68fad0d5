//! Bundles made by clang, compressed anew where wanted, and put into libraries by an assembler file.

// Each test crate uses some of this.
#![allow(dead_code)]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use md5::{Digest, Md5};

use crate::common::{fixtures, ok};

/// Two kernels and data that no other compilation has. `variant` changes the text between the marks.
const DEVICE: &str = r#"
#define KERNEL extern "C" __attribute__((global)) void
__attribute__((device)) const char name[] = "<variant ...>" NAME;
KERNEL add_one(int *p) { *p += name[*p & 15]; }
KERNEL twice(float *p) { *p *= 2; }
#ifdef MAGICS
// A reader that looks for magics finds them here, aligned like bundles and not.
__attribute__((device, aligned(4096))) const char plain[4200] =
  "__CLANG_OFFLOAD_BUNDLE__\2\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0 and __CLANG_OFFLOAD_BUNDLE__";
__attribute__((device, aligned(4096))) const char packed[4200] = "CCOB\2\0\1\0\xff\xff\xff\x7f and CCOB\3\0\1\0";
KERNEL magics(char *p) { *p = plain[*p & 127] + packed[*p & 63]; }
#endif
"#;
const MARK: &[u8] = b"<variant ...>";

/// Compiles device code into a bundle.
pub fn compile(dir: &Path, name: &str, isas: &[&str], flags: &[&str]) -> Vec<u8> {
    let (source, out) = (dir.join(format!("{name}.hip")), dir.join(name));
    fs::write(&source, DEVICE).unwrap();
    let mut clang = Command::new("clang++-19");
    clang.args(["-x", "hip", "-nogpuinc", "-nogpulib", "--cuda-device-only", "-O1"]);
    clang.arg("--gpu-bundle-output").arg(format!("-cuid={name}"));
    clang.arg(format!("-DNAME=\"{name}\""));
    clang.args(isas.iter().map(|isa| format!("--offload-arch={isa}")));
    ok(clang.args(flags).arg(&source).arg("-o").arg(&out));
    fs::read(out).unwrap()
}

/// The same plain bundle with other data in each of its code objects.
pub fn variant(bundle: &[u8], number: u32) -> Vec<u8> {
    let mut changed = bundle.to_vec();
    let mark = format!("<variant {number:03}>");
    assert_eq!(mark.len(), MARK.len());
    let mut count = 0;
    for at in 0..bundle.len() - MARK.len() {
        if &bundle[at..at + MARK.len()] == MARK {
            changed[at..at + MARK.len()].copy_from_slice(mark.as_bytes());
            count += 1;
        }
    }
    assert!(count > 0, "no mark in the bundle");
    changed
}

fn number(bundle: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(bundle[at..at + 8].try_into().unwrap())).unwrap()
}

/// What is in a plain bundle: ids and contents.
pub fn entries(bundle: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut at = 32;
    let entries = (0..number(bundle, 24)).map(|_| {
        let [offset, size, length] = [0, 8, 16].map(|field| number(bundle, at + field));
        let id = &bundle[at + 24..at + 24 + length];
        at += 24 + length;
        (String::from_utf8(id.to_vec()).unwrap(), bundle[offset..offset + size].to_vec())
    });
    entries.collect()
}

/// A plain bundle of these entries, their contents aligned to pages.
pub fn bundle_of(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut table = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    table.extend((entries.len() as u64).to_le_bytes());
    let mut end = table.len() + entries.iter().map(|(id, _)| 24 + id.len()).sum::<usize>();
    let mut contents = Vec::new();
    for (id, content) in entries {
        if !content.is_empty() {
            end = end.next_multiple_of(4096);
            contents.push((end, content));
        }
        for field in [end, content.len(), id.len()] {
            table.extend((field as u64).to_le_bytes());
        }
        table.extend(id.bytes());
        end += content.len();
    }
    for (at, content) in contents {
        table.resize(at, 0);
        table.extend(content);
    }
    table
}

/// Versions of the compressed form.
#[derive(Clone, Copy)]
pub enum Ccob {
    V1 = 1,
    V2 = 2,
    V3 = 3,
}

/// A plain bundle, compressed.
pub fn compress(version: Ccob, zstd: bool, plain: &[u8]) -> Vec<u8> {
    assert!(plain.starts_with(b"__CLANG_OFFLOAD_BUNDLE__"));
    let stream = if zstd {
        zstd::encode_all(plain, 3).unwrap()
    } else {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    };
    compressed(version, zstd, plain, &stream)
}

/// The compressed bundle with this stream.
pub fn compressed(version: Ccob, zstd: bool, plain: &[u8], stream: &[u8]) -> Vec<u8> {
    let mut bytes = b"CCOB".to_vec();
    bytes.extend((version as u16).to_le_bytes());
    bytes.extend(u16::from(zstd).to_le_bytes());
    let word = |size: usize| u32::try_from(size).unwrap().to_le_bytes();
    match version {
        Ccob::V1 => bytes.extend(word(plain.len())),
        Ccob::V2 => {
            bytes.extend(word(24 + stream.len()));
            bytes.extend(word(plain.len()));
        }
        Ccob::V3 => {
            bytes.extend((32 + stream.len() as u64).to_le_bytes());
            bytes.extend((plain.len() as u64).to_le_bytes());
        }
    }
    bytes.extend(&Md5::digest(plain)[..8]);
    bytes.extend(stream);
    bytes
}

/// A shared library with bundles and wrappers as they are wanted.
pub struct Library {
    pub name: String,
    bundles: Vec<Vec<u8>>,
    /// Which bundle each wrapper has.
    wrappers: Vec<usize>,
    /// Power of two that bundles are aligned to.
    pub align: u32,
    /// Fill the last page.
    pub pad_end: bool,
    /// Zeros before the last bundle.
    pub gap: u64,
    /// A section of read-only data behind the device code.
    pub behind: bool,
    /// For compiler and linker.
    pub flags: Vec<&'static str>,
}

/// Registers all wrappers, and says whether it did.
const HOST: &str = r#"
typedef struct { unsigned magic, version; const void *binary; void *unused; } wrapper;
extern const wrapper wrappers[] __attribute__((visibility("hidden")));
extern void **__hipRegisterFatBinary(const void *);
static int registered;
__attribute__((constructor)) static void setup(void) {
  for (int i = 0; i < COUNT; ++i) { __hipRegisterFatBinary(&wrappers[i]); ++registered; }
}
static const char text[] = "read-only data";
static const char *volatile reached = text;
__attribute__((visibility("default"))) int gfxpack_fixture_selftest(void) {
  return !(registered == COUNT && reached[0] == 'r');
}
"#;

impl Library {
    pub fn new(name: &str, bundles: Vec<Vec<u8>>, wrappers: &[usize]) -> Self {
        Self {
            name: name.to_owned(),
            bundles,
            wrappers: wrappers.to_vec(),
            align: 12,
            pad_end: false,
            gap: 0,
            behind: false,
            flags: Vec::new(),
        }
    }

    /// Makes an object file of the bundles and wrappers.
    pub fn assemble(&self, work: &Path, object: &Path) {
        let Self { name, align, .. } = self;
        // A section marked as large stands apart from what the code reaches with 32 bits.
        let flags = if self.gap > 0 { "al" } else { "a" };
        let mut text = format!(".section .hip_fatbin,\"{flags}\",@progbits\n.p2align 12\n");
        for (i, bundle) in self.bundles.iter().enumerate() {
            let file = work.join(format!("{name}-{i}.bundle"));
            fs::write(&file, bundle).unwrap();
            if i > 0 && i + 1 == self.bundles.len() && self.gap > 0 {
                text += &format!(".zero {}\n", self.gap);
            }
            text += &format!(".p2align {align}\nbundle{i}: .incbin \"{}\"\n", file.display());
        }
        if self.pad_end {
            text += ".p2align 12\n";
        }
        if !self.wrappers.is_empty() {
            text += ".section .hipFatBinSegment,\"aw\",@progbits\n.p2align 3\n";
            text += ".globl wrappers\n.hidden wrappers\nwrappers:\n";
        }
        for bundle in &self.wrappers {
            text += &format!(".long 0x48495046, 1\n.quad bundle{bundle}, 0\n");
        }
        if self.behind {
            text += ".section .zz_behind,\"a\",@progbits\n.zero 100\n";
        }
        text += ".section .note.GNU-stack,\"\",@progbits\n";
        let source = work.join(format!("{name}.s"));
        fs::write(&source, text).unwrap();
        ok(Command::new("clang-19").arg("-c").arg(&source).arg("-o").arg(object));
    }

    /// Links it, with a constructor that registers every wrapper.
    pub fn link(&self, work: &Path, to: &Path) {
        let name = &self.name;
        let (object, host) = (work.join(format!("{name}.o")), work.join(format!("{name}.c")));
        self.assemble(work, &object);
        fs::write(&host, HOST).unwrap();
        let mut clang = Command::new("clang-19");
        clang.args(["-shared", "-fPIC", "-O1"]).arg(format!("-DCOUNT={}", self.wrappers.len()));
        if self.wrappers.is_empty() {
            // Nothing to register: without wrappers there is no array of them.
            fs::write(&host, "int answer(void) { return 42; }\n").unwrap();
        }
        clang.arg(&host).arg(&object).arg("-o").arg(to).args(&self.flags);
        clang.arg(format!("-L{}", fixtures().join("runtime").display()));
        ok(clang.args(["-lamdhip64", "-Wl,--build-id=sha1"]));
    }
}
