//! Converted files under the real loader and after the tools that packagers use.
//!
//! Shapes of fat binary × linkers × tools: each file is converted, treated, and then loaded or run
//! with the stand-in runtime. Wherever the original survives a tool, the converted file must: all
//! its wrappers are HIPK with the right index and readable marker, self-tests pass, and readelf and
//! eu-elflint complain of nothing that they did not complain of in the original. What came of each
//! is the table in `docs/shapes.md` (`GFXPACK_UPDATE_DOCS=1` writes it).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "common/matrix.rs"]
mod matrix;

use gfxpack::elf;
use matrix::page::{Cell, Row};
use matrix::{Use, clang, complaints, convert, execute, image, lab, more, must, page, reader, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A MessagePack map of one entry with a string of 0x7a bytes.
const MARKER: &[u8] = b"\x81\xa4text\xd9\x7aa marker of about the usual length, \
    ../.kpack/blas_lib_@GFXARCH@.kpack, math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2";
const TREATMENTS: &[&str] = &[
    "none",
    "strip",
    "strip-g",
    "objcopy",
    "debuglink",
    "eu-strip",
    "llvm-strip",
    "patchelf-rpath",
    "patchelf-needed",
];
/// What files went through before they were converted.
const BEFORE: &[&str] = &["strip", "eu-strip", "llvm-strip", "patchelf-rpath", "patchelf-needed"];

/// Copies `from` to `to` and lets a tool work on it; false where the tool fails.
fn treat(name: &str, from: &Path, to: &Path) -> bool {
    fs::copy(from, to).unwrap();
    let debug = to.with_extension("debug");
    let long = "/opt/rocm/some/long/folder/name".repeat(12);
    let mut command = match name {
        "none" => return true,
        "strip" => Command::new("strip"),
        "strip-g" => Command::new("strip"),
        "objcopy" => Command::new("objcopy"),
        "debuglink" => Command::new("objcopy"),
        "eu-strip" => Command::new("eu-strip"),
        "llvm-strip" => Command::new("llvm-strip-19"),
        "patchelf-rpath" | "patchelf-needed" => Command::new("patchelf"),
        _ => unreachable!("{name}"),
    };
    match name {
        "strip-g" => drop(command.arg("-g")),
        "debuglink" => {
            must(Command::new("objcopy").arg("--only-keep-debug").arg(from).arg(&debug));
            command.arg(format!("--add-gnu-debuglink={}", debug.display()));
        }
        "patchelf-rpath" => drop(command.args(["--set-rpath", &long])),
        "patchelf-needed" => drop(command.args(["--add-needed", "libm.so.6"])),
        _ => {}
    }
    run(command.arg(to)).status.success()
}

/// A fat binary that was just linked.
struct Shape {
    name: String,
    file: PathBuf,
    how: Use,
    /// Whether whole pages must leave the file.
    shrinks: bool,
}

/// Compiled once for all linkers.
struct Objects {
    plain: Vec<PathBuf>,
    compressed: Vec<PathBuf>,
    rdc: Vec<PathBuf>,
    pie: PathBuf,
    exec: PathBuf,
}

fn objects() -> &'static Objects {
    static OBJECTS: OnceLock<Objects> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let dir = lab().dir.path().join("objects");
        fs::create_dir(&dir).unwrap();
        let jobs: Vec<(&str, &str, Vec<&str>)> = vec![
            ("plain-axpy", "rocblas/axpy.hip", vec!["-fPIC"]),
            ("plain-scal", "rocblas/scal.hip", vec!["-fPIC"]),
            ("plain-dot", "rocblas/dot.hip", vec!["-fPIC"]),
            ("plain-gemm", "rocblas/gemm.hip", vec!["-fPIC"]),
            ("compressed-axpy", "rocblas/axpy.hip", vec!["-fPIC", "--offload-compress"]),
            ("compressed-scal", "rocblas/scal.hip", vec!["-fPIC", "--offload-compress"]),
            ("compressed-dot", "rocblas/dot.hip", vec!["-fPIC", "--offload-compress"]),
            ("compressed-gemm", "rocblas/gemm.hip", vec!["-fPIC", "--offload-compress"]),
            ("rdc-butterfly", "rocfft/butterfly.hip", vec!["-fPIC", "-fgpu-rdc"]),
            ("rdc-twiddle", "rocfft/twiddle.hip", vec!["-fPIC", "-fgpu-rdc"]),
            ("bench", "bench/bench.hip", vec!["-fPIE"]),
            ("tool", "bench/tool.hip", vec!["-fno-pie"]),
        ];
        let object = |name: &str| dir.join(name).with_extension("o");
        for (name, source, flags) in &jobs {
            let cuid = format!("-cuid={name}");
            let hip = ["-O1", "-g", "-fvisibility=hidden", "-x", "hip", "-nogpuinc", "-nogpulib"];
            let mut before = hip.to_vec();
            before.extend(["-I.", "--offload-arch=gfx1100", &cuid, "-c"]);
            before.extend(flags);
            clang(&before, &[Path::new(source)], &object(name), &[]);
        }
        let of = |kind: &str| {
            let names = jobs.iter().map(|job| job.0).filter(|name| name.starts_with(kind));
            names.map(object).collect()
        };
        Objects {
            plain: of("plain"),
            compressed: of("compressed"),
            rdc: of("rdc"),
            pie: object("bench"),
            exec: object("tool"),
        }
    })
}

/// Three wrappers of two bundles, in C: quick to compile, and of any size.
const SYNTHETIC: &str = r#"
typedef struct { unsigned magic, version; const void *binary; void *unused; } wrapper;
#ifndef FLAGS
#define FLAGS "a"
#endif
#ifndef VISIBILITY
#define VISIBILITY ".hidden"
#endif
#ifndef BSS
#define BSS 10
#endif
#define STRING_(x) #x
#define STRING(x) STRING_(x)
__asm__(".section .hip_fatbin,\"" FLAGS "\",@progbits\n.p2align 12\n"
  ".globl bundle0\n" VISIBILITY " bundle0\nbundle0: .fill " STRING(SIZE0) ",1,0xab\n.p2align 12\n"
  ".globl bundle1\n" ".hidden bundle1\nbundle1: .fill " STRING(SIZE1) ",1,0xcd\n.text\n");
extern const char bundle0[], bundle1[];
__attribute__((section(".hipFatBinSegment"), used)) static wrapper wrappers[] = {
  {0x48495046, 1, bundle1, 0}, {0x48495046, 1, bundle0, 0}, {0x48495046, 1, bundle1, 0}};
extern void **__hipRegisterFatBinary(const void *);
static int registered;
__attribute__((constructor)) static void setup(void) {
  for (int i = 0; i < 3; ++i) { __hipRegisterFatBinary(&wrappers[i]); ++registered; }
}
#ifdef NO_RODATA
static char text[] = "r";
#else
static const char text[] = "read-only data before the device code";
#endif
static const char *volatile reached = text;
static int one(void) { return text[0] == 'r' && reached[0] == 'r'; }
static int two(void) { return 2; }
static int (*volatile table[])(void) = {one, two};
static volatile int zero[BSS];
#ifdef SYMBOLS
#define FOUR(name) __attribute__((visibility("default"))) int name##0, name##1, name##2, name##3;
#define SIXTEEN(name) FOUR(name##0) FOUR(name##1) FOUR(name##2) FOUR(name##3)
#define MANY(name) SIXTEEN(name##0) SIXTEEN(name##1) SIXTEEN(name##2) SIXTEEN(name##3)
MANY(a) MANY(b) MANY(c) MANY(d) MANY(e) MANY(f) MANY(g) MANY(h) MANY(i) MANY(j)
#endif
__attribute__((visibility("default"))) int gfxpack_fixture_selftest(void) {
  int sum = 0;
  for (int i = 0; i < BSS; ++i) sum += zero[i];
  zero[BSS - 1] = 0;
  reached += sum;
  return !(registered == 3 && table[0]() == 1 && table[1]() == 2 && sum == 0);
}
int main(void) { return gfxpack_fixture_selftest(); }
"#;

/// As older releases of hipcc have GNU ld do it.
const BEHIND_BSS: &str = r"SECTIONS {
  .hipFatBinSegment : { *(.hipFatBinSegment) }
  .hip_fatbin : ALIGN(4096) { *(.hip_fatbin) }
} INSERT AFTER .bss;
";

fn synthetic(dir: &Path, linker: &str, shapes: &mut Vec<Shape>) {
    let source = dir.join("synthetic.c");
    fs::write(&source, SYNTHETIC).unwrap();
    let library = |lab: &matrix::Lab| format!("-L{}", lab.runtime.display());
    let search = library(lab());
    let shared = "-shared -fPIC -lamdhip64";
    // Name, whether pages leave, flags.
    let mut cases = vec![
        ("under-a-page", false, "-DSIZE0=0 -DSIZE1=900"),
        ("smaller-than-marker", false, "-DSIZE0=0 -DSIZE1=10"),
        ("page-boundary", true, "-DSIZE0=4096 -DSIZE1=4096"),
        ("page-and-a-bit", true, "-DSIZE0=8192 -DSIZE1=20"),
        (
            "alone",
            true,
            "-DSIZE0=9000 -DSIZE1=16384 -DNO_RODATA -nostdlib -fno-asynchronous-unwind-tables",
        ),
        ("last", true, "-DSIZE0=9000 -DSIZE1=5000 -nostdlib -fno-asynchronous-unwind-tables"),
        ("first", true, "-DSIZE0=9000 -DSIZE1=5000 -DNO_RODATA -nostdlib"),
        ("symbol", true, "-DSIZE0=9000 -DSIZE1=5000 -DVISIBILITY=\".protected\""),
        ("writable", true, "-DSIZE0=9000 -DSIZE1=5000 -DFLAGS=\"aw\""),
        ("large-bss", true, "-DSIZE0=9000 -DSIZE1=5000 -DBSS=20000"),
        ("large-pages", true, "-DSIZE0=90000 -DSIZE1=50000 -Wl,-z,max-page-size=0x10000"),
        ("huge-pages", true, "-DSIZE0=90000 -DSIZE1=50000 -Wl,-z,max-page-size=0x200000"),
        ("no-notes", true, "-DSIZE0=9000 -DSIZE1=5000 -Wl,--build-id=none -Wl,--hash-style=both"),
        ("sysv-hash", true, "-DSIZE0=9000 -DSIZE1=5000 -Wl,--hash-style=sysv"),
        ("relro-now", true, "-DSIZE0=9000 -DSIZE1=5000 -Wl,-z,relro,-z,now"),
        ("many-symbols", true, "-DSIZE0=9000 -DSIZE1=5000 -DSYMBOLS"),
    ];
    if linker != "gold" {
        cases.push(("relr", true, "-DSIZE0=9000 -DSIZE1=5000 -Wl,-z,pack-relative-relocs"));
    }
    let script = dir.join("behind-bss.ld");
    fs::write(&script, BEHIND_BSS).unwrap();
    let behind_bss = format!("-DSIZE0=9000 -DSIZE1=5000 -Wl,-T,{}", script.display());
    if linker == "bfd" {
        cases.push(("no-separate-code", true, "-DSIZE0=9000 -DSIZE1=5000 -Wl,-z,noseparate-code"));
        cases.push(("behind-bss", true, &behind_bss));
    }
    if linker == "lld" {
        let flags = "-DSIZE0=9000 -DSIZE1=5000 -Wl,-z,separate-loadable-segments";
        cases.push(("separate-segments", true, flags));
        cases.push(("no-rosegment", true, "-DSIZE0=9000 -DSIZE1=5000 -Wl,--no-rosegment"));
    }
    let mut link = |name: &str, shrinks, flags: &str, more: &str, inputs: &[&Path], how| {
        let file = dir.join(format!("{name}.bin"));
        let before = ["-x", "c", "-O1", "-g", &format!("-fuse-ld={linker}")];
        let flags: Vec<String> = flags
            .split(' ')
            .chain(more.split(' '))
            .filter(|flag| !flag.is_empty())
            .map(|flag| match flag.split_once("=\"") {
                // A macro that is a string.
                Some((name, value)) => format!("{name}=\"{value}"),
                None => flag.to_owned(),
            })
            .collect();
        let mut after = vec!["-Wl,--build-id=sha1", search.as_str()];
        after.extend(flags.iter().map(String::as_str));
        clang(&before, inputs, &file, &after);
        shapes.push(Shape { name: name.into(), file, how, shrinks });
    };
    for (name, shrinks, flags) in cases {
        link(name, shrinks, flags, shared, &[&source], Use::Load);
    }
    let sizes = "-DSIZE0=9000 -DSIZE1=5000";
    link("c-pie", true, sizes, "-pie -fPIE -lamdhip64", &[&source], Use::Run);
    link("c-exec", true, sizes, "-no-pie -fno-pie -lamdhip64", &[&source], Use::Run);
    let standin = matrix::fixtures().join("runtime/standin.c");
    let both = [source.as_path(), standin.as_path()];
    link("static", true, sizes, "-static -no-pie -pthread", &both, Use::Run);
    if linker != "gold" {
        link("static-pie", true, sizes, "-static-pie -fPIE -pthread", &both, Use::Run);
    }
    let tiny = "-DSIZE0=0 -DSIZE1=10";
    link("c-exec-tiny", false, tiny, "-no-pie -fno-pie -lamdhip64", &[&source], Use::Run);
}

fn shapes(dir: &Path, linker: &str) -> Vec<Shape> {
    let objects = objects();
    let mut shapes = Vec::new();
    let search = format!("-L{}", lab().runtime.display());
    let with = format!("-fuse-ld={linker}");
    let mut link = |name: &str, inputs: &[PathBuf], flags: &[&str], how| {
        let file = dir.join(format!("{name}.bin"));
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let mut after = flags.to_vec();
        after.extend(["-Wl,--build-id=sha1", &search, "-lamdhip64", "-ldl"]);
        clang(&[&with], &inputs, &file, &after);
        shapes.push(Shape { name: name.into(), file, how, shrinks: true });
    };
    link("bundles", &objects.plain, &["-shared", "-Wl,-soname,libbundles.so.1"], Use::Load);
    link("compressed", &objects.compressed, &["-shared"], Use::Load);
    let rdc = ["-shared", "-fgpu-rdc", "--hip-link", "--offload-arch=gfx1100"];
    link("rdc", &objects.rdc, &rdc, Use::Load);
    link("pie", std::slice::from_ref(&objects.pie), &["-pie"], Use::Run);
    link("exec", std::slice::from_ref(&objects.exec), &["-no-pie"], Use::Run);
    synthetic(dir, linker, &mut shapes);
    shapes
}

/// What is not put right, in shapes that real programs do not have.
fn known_complaint(name: &str, line: &str) -> bool {
    let unloaded = line.ends_with("alloc flag set but section not in any loaded segment");
    // Nothing before the device code in its segment: the empty section that is left is in no segment.
    let first = name.contains("alone, llvm-strip") || name.contains("first, llvm-strip");
    // Device code of ten bytes: eu-strip loses the offsets that mold does not give to NOBITS sections.
    let tiny = name == "mold smaller-than-marker, eu-strip" || name == "mold c-exec-tiny, eu-strip";
    // Device code in the writable segment behind that of RELRO: GNU strip gives NOBITS sections an
    // offset that eu-elflint takes for one in the segment before.
    let writable = (name.starts_with("lld writable") || name.starts_with("mold writable"))
        && line == "section '.hip_fatbin' not fully contained in segment of program header entry";
    // mold's padding of nearly 2 MiB, larger than the hole.
    let padding = name.starts_with("mold huge-pages")
        && line
            == "section '.relro_padding' not fully contained in segment of program header entry";
    unloaded && (first || tiny) || writable || padding
}

/// Whether a converted file loads and has its kernels found, where there is no original to compare
/// with.
fn sound(converted: &Path, how: Use) -> bool {
    let marker: String = MARKER.iter().map(|b| format!("{b:02x}")).collect();
    let right = |seen: &matrix::Registered| {
        seen.magic == 0x4b50_4948 && seen.marker.as_deref() == Some(&marker)
    };
    execute(converted, how).is_ok_and(|seen| !seen.is_empty() && seen.iter().all(right))
}

/// Checks a converted file against what the original did; whether all is well.
fn check(
    name: &str,
    original: &Path,
    converted: &Path,
    how: Use,
    faults: &mut Vec<String>,
) -> Cell {
    let count = faults.len();
    compare(name, original, converted, how, faults);
    if faults.len() == count { Cell::BOTH } else { Cell::ORIGINAL_ONLY }
}

fn compare(name: &str, original: &Path, converted: &Path, how: Use, faults: &mut Vec<String>) {
    let before = match execute(original, how) {
        Ok(before) => before,
        Err(error) => return faults.push(format!("{name}: the original: {error}")),
    };
    let after = match execute(converted, how) {
        Ok(after) => after,
        Err(error) => return faults.push(format!("{name}: {error}")),
    };
    let bytes = reader(converted);
    let image = image(&bytes);
    let first = image.section(".hipFatBinSegment").unwrap().sh_addr;
    let marker: String = MARKER.iter().map(|b| format!("{b:02x}")).collect();
    for (a, b) in before.iter().zip(&after) {
        let index = (b.wrapper - first) / 24;
        let right = b.magic == 0x4b50_4948 && b.co_index == index && a.wrapper == b.wrapper;
        if !right || b.marker.as_deref() != Some(&marker) {
            faults.push(format!("{name}: wrapper {index} is seen as {b:x?}"));
        }
    }
    if before.len() != after.len() {
        faults.push(format!("{name}: {} wrappers, then {}", before.len(), after.len()));
    }
    let old = reader(original);
    let known: Vec<String> =
        elf::problems(&old, &matrix::image(&old)).iter().map(ToString::to_string).collect();
    for problem in elf::problems(&bytes, &image).iter().map(ToString::to_string) {
        if known.is_empty() {
            faults.push(format!("{name}: {problem}"));
        }
    }
    match elf::marker(&bytes, &image) {
        Ok(marker) if marker.bytes == MARKER => {}
        other => faults.push(format!("{name}: marker is {other:x?}")),
    }
    let mut more = more(&complaints(original), &complaints(converted));
    more.retain(|line| !known_complaint(name, line));
    if !more.is_empty() {
        faults.push(format!("{name}: new complaints: {more:#?}"));
    }
}

fn run_matrix(linker: &str) {
    let dir = lab().dir.path().join(linker);
    fs::create_dir(&dir).unwrap();
    let mut faults = Vec::new();
    let mut survived = 0;
    let mut rows = Vec::new();
    for shape in shapes(&dir, linker) {
        let mut row = Row::new(&shape.name);
        let name = format!("{linker} {}", shape.name);
        let path = |suffix: &str| dir.join(format!("{}.{suffix}", shape.name.replace('.', "-")));
        let converted = path("converted");
        if let Err(error) = execute(&shape.file, shape.how) {
            // mold before 2.0 makes RELR files that this C library refuses.
            assert!(
                error.contains("DT_RELR without"),
                "{name}: the original does not run: {error}"
            );
            continue;
        }
        match convert(&shape.file, &converted, MARKER) {
            Ok(removed) if (removed != 0) == shape.shrinks => {}
            Ok(removed) => faults.push(format!("{name}: {removed} bytes left the file")),
            Err(error) => {
                faults.push(format!("{name}: {error}"));
                continue;
            }
        }
        for treatment in TREATMENTS {
            let (a, b) = (path("treated-a"), path("treated-b"));
            if !treat(treatment, &shape.file, &a) || execute(&a, shape.how).is_err() {
                println!("{name}: the original does not survive {treatment}");
                let good = treat(treatment, &converted, &b) && sound(&b, shape.how);
                row.cells.push(if good { Cell::CONVERTED_ONLY } else { Cell::NEITHER });
                continue;
            }
            survived += 1;
            let name = format!("{name}, {treatment}");
            row.cells.push(if treat(treatment, &converted, &b) {
                check(&name, &a, &b, shape.how, &mut faults)
            } else {
                faults.push(format!("{name}: the tool fails"));
                Cell::ORIGINAL_ONLY
            });
        }
        // Files that went through a tool before.
        for first in BEFORE {
            let (a, b, c, d) = (path("first"), path("second"), path("third"), path("fourth"));
            if !treat(first, &shape.file, &a) || execute(&a, shape.how).is_err() {
                row.cells.push(Cell::NONE);
                continue;
            }
            let name = format!("{name}, {first} before");
            if let Err(error) = convert(&a, &b, MARKER) {
                faults.push(format!("{name}: {error}"));
                row.cells.push(Cell::ORIGINAL_ONLY);
                continue;
            }
            row.cells.push(check(&name, &a, &b, shape.how, &mut faults));
            for second in ["strip", "patchelf-rpath"] {
                // It reads NOBITS sections of a file that it has worked on, past the end.
                let overreads = first.starts_with("patchelf")
                    && second.starts_with("patchelf")
                    && name.starts_with("mold huge-pages");
                if !overreads && treat(second, &a, &c) && execute(&c, shape.how).is_ok() {
                    survived += 1;
                    let name = format!("{name}, {second}");
                    if treat(second, &b, &d) {
                        check(&name, &c, &d, shape.how, &mut faults);
                    } else {
                        faults.push(format!("{name}: the tool fails"));
                    }
                }
            }
        }
        rows.push(row);
    }
    println!("{linker}: {survived} treated files");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    page::check(linker, TREATMENTS, BEFORE, &rows);
}

#[test]
fn linked_by_ld() {
    run_matrix("bfd");
}

#[test]
fn linked_by_gold() {
    run_matrix("gold");
}

#[test]
fn linked_by_lld() {
    run_matrix("lld");
}

#[test]
fn linked_by_mold() {
    run_matrix("mold");
}

#[test]
fn file_and_gdb_see_no_difference() {
    let objects = objects();
    let dir = lab().dir.path().join("seen");
    fs::create_dir(&dir).unwrap();
    let (old, new) = (dir.join("tool"), dir.join("new").join("tool"));
    fs::create_dir(dir.join("new")).unwrap();
    let search = format!("-L{}", lab().runtime.display());
    let after = ["-no-pie", "-Wl,--build-id=sha1", &search, "-lamdhip64", "-ldl"];
    clang(&[], &[&objects.exec], &old, &after);
    convert(&old, &new, MARKER).unwrap();
    let said = |command: &mut Command, file: &Path| {
        let output = run(command.arg(file).env("LD_LIBRARY_PATH", &lab().runtime));
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).replace(&*file.to_string_lossy(), "FILE")
    };
    let both = |make: &dyn Fn() -> Command| {
        assert_eq!(said(&mut make(), &old), said(&mut make(), &new));
    };
    both(&|| {
        let mut command = Command::new("file");
        command.arg("-b");
        command
    });
    both(&|| {
        let mut command = Command::new("readelf");
        command.arg("--notes");
        command
    });
    both(&|| {
        let mut command = Command::new("gdb");
        command.args([
            "-nx",
            "-batch",
            "-ex",
            "set debuginfod enabled off",
            "-ex",
            "info line main",
        ]);
        command.args(["-ex", "break main", "-ex", "info functions main"]);
        command
    });
}

/// A static program has no interpreter either, but its start-up code may look for PT_PHDR. What tells it from a library is that
/// it has an entry.
#[test]
fn a_program_keeps_its_pt_phdr() {
    const PT_PHDR: u32 = 6;
    let dir = lab().dir.path().join("entry");
    fs::create_dir(&dir).unwrap();
    let source = dir.join("synthetic.c");
    fs::write(&source, SYNTHETIC).unwrap();
    let [library, program, converted] =
        ["library", "program", "converted"].map(|name| dir.join(name));
    let search = format!("-L{}", lab().runtime.display());
    let sizes = ["-DSIZE0=9000", "-DSIZE1=5000", "-DSYMBOLS"];
    let before = ["-x", "c", "-fuse-ld=gold", "-shared", "-fPIC"];
    clang(
        &[&before[..], &sizes].concat(),
        &[&source],
        &library,
        &["-Wl,--build-id=sha1", &search, "-lamdhip64"],
    );
    let mut bytes = reader(&library);
    bytes[24..32].copy_from_slice(&0x1000_u64.to_le_bytes());
    fs::write(&program, &bytes).unwrap();
    for (file, keeps) in [(&library, false), (&program, true)] {
        let has = |file: &Path| image(&reader(file)).segments.iter().any(|s| s.p_type == PT_PHDR);
        assert!(has(file));
        let removed = convert(file, &converted, MARKER).unwrap();
        assert_eq!((has(&converted), removed == 0), (keeps, keeps), "{}", file.display());
    }
}

/// Behind the device code, in its segment, is a word that the loader writes to, in a section that says nobody does: the segment
/// that is left of it has to stay writable.
#[test]
fn what_the_loader_writes_to_stays_writable() {
    const PF_W: u32 = 2;
    let dir = lab().dir.path().join("written");
    fs::create_dir(&dir).unwrap();
    let [source, script, library, converted] =
        ["synthetic.c", "script.ld", "library", "converted"].map(|name| dir.join(name));
    let word =
        "__attribute__((section(\".after\"), used)) static const char *const after = text;\n";
    let (before, main) = SYNTHETIC.split_once("static int one(void)").unwrap();
    let main = main.replacen("text[0] == 'r'", "text[0] == 'r' && after[0] == 'r'", 1);
    fs::write(&source, format!("{before}{word}static int one(void){main}")).unwrap();
    let behind = "  .after : { *(.after) }\n} INSERT AFTER .bss;";
    fs::write(&script, BEHIND_BSS.replace("} INSERT AFTER .bss;", behind)).unwrap();
    let search = format!("-L{}", lab().runtime.display());
    let with = format!("-Wl,-T,{}", script.display());
    clang(
        &["-x", "c", "-fuse-ld=bfd", "-shared", "-fPIC", "-DSIZE0=9000", "-DSIZE1=5000"],
        &[&source],
        &library,
        &["-Wl,--build-id=sha1", &search, "-lamdhip64", &with],
    );
    // A linker that sees such a section says DT_TEXTREL, and the loader makes segments writable for a while.
    let mut bytes = reader(&library);
    let seen = image(&bytes);
    let place = seen.sections.iter().position(|s| s.name == ".after").unwrap();
    let flags = usize::try_from(seen.e_shoff).unwrap() + place * 64 + 8;
    assert_eq!(bytes[flags] & 3, 3);
    bytes[flags] &= !1;
    fs::write(&library, &bytes).unwrap();
    assert!(execute(&library, Use::Load).is_ok());
    assert!(convert(&library, &converted, MARKER).unwrap() > 0);
    let after = seen.section(".after").unwrap().sh_addr;
    let new = image(&reader(&converted));
    let (_, load) = new.loads().find(|(_, load)| load.memory_range().contains(&after)).unwrap();
    assert!(load.memory_range().start > seen.section(".hip_fatbin").unwrap().sh_addr);
    assert_eq!(load.p_flags & PF_W, PF_W);
    assert!(sound(&converted, Use::Load));
}
