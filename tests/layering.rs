//! The layers of the crate: dependencies run one way, and only the binary prints, exits or knows clap.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules of the library by layer; each may use those of the layers below it and of its own layer,
/// except that stages never use each other.
const LAYERS: &[&[&str]] = &[
    &[
        "error",
        "date",
        "read_at",
        "streams",
        "buffers",
        "progress",
        "cache",
        "jobs",
        "md5_lanes",
        "msgpack",
        "sha256_pair",
        "sign",
        "zstd_blocks",
    ],
    &["target", "elf", "fatbin", "kpack", "tarball"],
    &["tree", "artifact", "config", "database"],
    &["package"],
    &["repo"],
    &["split", "recombine", "stage", "verify", "discover", "inspect"],
    &["pipeline"],
];
const STAGES: usize = 5;

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A file's code without its comments and without the tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// The top-level modules that a file uses through `crate::`.
fn used(code: &str) -> BTreeSet<&str> {
    code.match_indices("crate::")
        .map(|(at, word)| {
            let rest = &code[at + word.len()..];
            &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())]
        })
        .filter(|module| !module.is_empty() && module.starts_with(|c: char| c.is_lowercase()))
        .collect()
}

#[test]
fn dependencies_run_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut faults = Vec::new();
    let mut seen = 0;
    for path in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let module = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = module.strip_suffix(".rs").unwrap_or(module);
        if matches!(module, "bin" | "lib") {
            continue;
        }
        let Some(own) = layer(module) else {
            faults.push(format!("{} is in no layer", inside.display()));
            continue;
        };
        for other in used(&code(&path)) {
            let Some(theirs) = layer(other) else { continue };
            seen += 1;
            if theirs > own || (own == STAGES && theirs == STAGES && other != module) {
                faults.push(format!("{} uses crate::{other}", inside.display()));
            }
        }
    }
    assert!(seen > 50, "the test looks at the wrong place: {seen} uses");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn only_the_binary_prints_exits_and_knows_the_command_line() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let words = ["println!", "print!(", "eprint", "dbg!", "process::exit", "clap", "indicatif"];
    for path in sources(&src).iter().filter(|path| !path.starts_with(src.join("bin"))) {
        let code = code(path);
        for word in words {
            assert!(!code.contains(word), "{} has `{word}`", path.display());
        }
    }
}
