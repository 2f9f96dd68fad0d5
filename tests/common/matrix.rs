//! What the conversion matrix works with: compilers, tools, and programs that run.

#[path = "page.rs"]
pub mod page;

use gfxpack::elf::{self, Image, Kind, Piece};
use gfxpack::fatbin::wrapper;
use gfxpack::read_at::ReadAt;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Makes a folder for one test file and keeps it until the process ends.
pub struct Lab {
    pub dir: tempfile::TempDir,
    pub runtime: PathBuf,
}

/// The Debian package that has a tool, for the message when it is missing.
const PACKAGES: &[(&str, &str)] = &[
    ("clang++-19", "clang-19"),
    ("ld.lld", "lld-19"),
    ("ld.bfd", "binutils"),
    ("ld.gold", "binutils"),
    ("mold", "mold"),
    ("strip", "binutils"),
    ("objcopy", "binutils"),
    ("readelf", "binutils"),
    ("eu-strip", "elfutils"),
    ("eu-elflint", "elfutils"),
    ("llvm-strip-19", "llvm-19"),
    ("patchelf", "patchelf"),
    ("gdb", "gdb"),
    ("file", "file"),
];

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub fn lab() -> &'static Lab {
    static LAB: OnceLock<Lab> = OnceLock::new();
    LAB.get_or_init(|| {
        let path = std::env::var_os("PATH").expect("PATH is set");
        for (tool, package) in PACKAGES {
            let mut folders = std::env::split_paths(&path).chain(["/usr/lib/llvm-19/bin".into()]);
            let found = folders.any(|folder| folder.join(tool).exists());
            assert!(found, "{tool} not found: install the package {package}");
        }
        let dir = tempfile::tempdir().unwrap();
        let runtime = dir.path().join("runtime");
        fs::create_dir(&runtime).unwrap();
        let c = ["-O1", "-fPIC", "-x", "c", "-std=gnu11"];
        let library = runtime.join("libamdhip64.so.6");
        let source = fixtures().join("runtime/standin.c");
        clang(&c, &[&source], &library, &["-shared", "-Wl,-soname,libamdhip64.so.6", "-pthread"]);
        symlink("libamdhip64.so.6", runtime.join("libamdhip64.so")).unwrap();
        let source = fixtures().join("runtime/load.c");
        clang(&c, &[&source], &runtime.join("load"), &["-ldl"]);
        Lab { dir, runtime }
    })
}

pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"))
}

pub fn must(command: &mut Command) {
    let output = run(command);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
}

pub fn clang(before: &[&str], inputs: &[&Path], output: &Path, after: &[&str]) {
    let hip = fixtures().join("hip");
    must(
        Command::new("clang++-19")
            .current_dir(hip)
            .args(before)
            .args(inputs)
            .arg("-o")
            .arg(output)
            .args(after),
    );
}

/// Whether the file is run or loaded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Use {
    Run,
    Load,
}

/// A wrapper as the runtime saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Registered {
    pub wrapper: u64,
    pub magic: u64,
    pub co_index: u64,
    pub marker: Option<String>,
}

/// Runs a program, or loads a library with its self-test, under the real loader. `Err` says how it
/// failed.
pub fn execute(file: &Path, how: Use) -> Result<Vec<Registered>, String> {
    let runtime = &lab().runtime;
    let log = file.with_extension("log");
    let _ = fs::remove_file(&log);
    let mut command = match how {
        Use::Run => Command::new(file),
        Use::Load => {
            let mut command = Command::new(runtime.join("load"));
            command.arg(file);
            command
        }
    };
    command.env("LD_LIBRARY_PATH", runtime).env("GFXPACK_STANDIN_LOG", &log);
    // Another thread's child can hold the file open for writing until it calls exec.
    let output = loop {
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => break other.map_err(|error| error.to_string())?,
        }
    };
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&text)));
    }
    let text = fs::read_to_string(&log).map_err(|error| format!("nothing registered: {error}"))?;
    let mut seen: Vec<Registered> = text
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            Registered {
                wrapper: line["wrapper_vaddr"].as_u64().unwrap(),
                magic: line["magic"].as_u64().unwrap(),
                co_index: line["co_index"].as_u64().unwrap(),
                marker: line["marker"].as_str().map(str::to_owned),
            }
        })
        .collect();
    seen.sort_by_key(|registered| registered.wrapper);
    Ok(seen)
}

/// Reads a whole file: the reader of the tests.
pub fn reader(file: &Path) -> Vec<u8> {
    fs::read(file).unwrap()
}

pub fn image(bytes: &[u8]) -> Image {
    match elf::probe(&bytes).unwrap() {
        Kind::Program(image) => image,
        other => panic!("{other:?}"),
    }
}

/// Converts `from` into `to`; both hold the same mode bits. Returns how many bytes went.
pub fn convert(from: &Path, to: &Path, marker: &[u8]) -> Result<u64, String> {
    let bytes = reader(from);
    let image = image(&bytes);
    let wrappers = wrapper::read(&bytes, &image).map_err(|error| error.to_string())?;
    let converted =
        elf::convert(&bytes, &image, &wrappers, marker).map_err(|error| error.to_string())?;
    let out = assemble(&bytes, &converted.pieces);
    assert_eq!(out.len() as u64, converted.len);
    fs::write(to, &out).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
    Ok(converted.removed)
}

pub fn assemble(input: &dyn ReadAt, pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => out.extend(bytes),
            Piece::Input { offset, len } => {
                out.extend(gfxpack::read_at::read_vec(input, *offset, *len).unwrap());
            }
        }
    }
    out
}

/// What eu-elflint and readelf complain of, without the numbers that a conversion changes.
pub fn complaints(file: &Path) -> Vec<String> {
    let lint = run(Command::new("eu-elflint").arg("--gnu-ld").arg(file));
    let readelf = run(Command::new("readelf").arg("-aW").arg(file));
    let lines = [lint.stdout, lint.stderr, readelf.stderr].concat();
    let mut lines: Vec<String> = String::from_utf8_lossy(&lines)
        .lines()
        .filter(|line| *line != "No errors")
        .map(|line| {
            let line = line.replace(&*file.to_string_lossy(), "FILE");
            let mut words: Vec<&str> = Vec::new();
            for word in line.split([' ', '[', ']']).filter(|word| !word.is_empty()) {
                // Section and segment numbers, and addresses.
                let word = word.trim_end_matches(':');
                let number = word.bytes().all(|b| b.is_ascii_digit());
                if !number && !word.starts_with("0x") {
                    words.push(word);
                }
            }
            words.join(" ")
        })
        .collect();
    lines.sort();
    lines
}

/// The lines of `new` that are not in `old`, which is sorted as well.
pub fn more(old: &[String], new: &[String]) -> Vec<String> {
    let mut old = old.to_vec();
    let mut more = Vec::new();
    for line in new {
        match old.iter().position(|known| known == line) {
            Some(at) => drop(old.swap_remove(at)),
            None => more.push(line.clone()),
        }
    }
    more
}
