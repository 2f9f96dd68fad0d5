//! What lintian finds in packages of this kind and is right so: overrides, each with its reason.
//!
//! A `.deb` with such findings has `/usr/share/lintian/overrides/PACKAGE`: a line `PACKAGE: TAG CONTEXT`
//! for each, `*` standing for anything, after a comment that says why. Only what the package's layout and
//! the model make inevitable is here; what is to be said of a library's own content is the packager's to
//! accept (`lintian_overrides` in the packages file). docs/lint.md lists them; tests/lint.rs holds the
//! two against each other, and against lintian.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::Format;
use super::files::{MemberKind, in_linker_path, is_library_name, members};
use super::spec::Package;
use crate::error::Result;
use crate::tree::{Source, TreePath};

/// A finding of lintian that is accepted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Override {
    /// As `dir-or-file-in-opt`.
    pub tag: String,
    /// What lintian says behind the tag, `*` for anything; empty for every context.
    pub context: String,
    /// Why, in one line.
    pub reason: String,
}

/// Tag and reason of each finding that is overridden without being asked, where a package has it.
pub const REASONS: [(&str, &str); 14] = [
    (
        "dir-or-file-in-opt",
        "Software that is not of the distribution is installed below /opt (FHS 3.13); --install-prefix /usr puts it elsewhere.",
    ),
    (
        "bad-provided-package-name",
        "The group's name as GPU people write it, so that apt finds the package in that spelling, too.",
    ),
    (
        "binary-from-other-architecture",
        "Device code: ELF files for the GPU, which the GPU's runtime loads, and not the system.",
    ),
    (
        "unstripped-binary-or-object",
        "Device code is shipped as it was built: the runtime finds kernels by their symbols.",
    ),
    (
        "shared-library-lacks-prerequisites",
        "Device code links to nothing: there is no C library on the GPU.",
    ),
    (
        "unknown-field",
        "X-ROCm-GPU-Architecture says which GPUs the package is for, as in Debian's own ROCm packages.",
    ),
    ("initial-upload-closes-no-bugs", "The package is not uploaded to Debian: no bug asks for it."),
    (
        "file-in-unusual-dir",
        "The runtime looks for archives of device code in .kpack beside lib: the place is written into the libraries.",
    ),
    (
        "non-standard-dir-in-usr",
        "The runtime looks for archives of device code in .kpack beside lib: the place is written into the libraries.",
    ),
    (
        "package-name-doesnt-match-sonames",
        "Host code and device code of a library are packages of one name, with -generic and the group behind it.",
    ),
    ("no-manual-page", "The build makes no manual page for this program."),
    (
        "package-modifies-ld.so-search-path",
        "What the package is for: programs find the libraries of the prefix without a RUNPATH where it is installed.",
    ),
    (
        "package-has-unnecessary-activation-of-ldconfig-trigger",
        "A package of the set adds the libraries' directory to the linker's path.",
    ),
    (
        "non-debug-file-in-debug-package",
        "Every package of the set has its copyright file and changelog, so that it can stand alone.",
    ),
];

/// The override file of a `.deb`: path and text; `None` where nothing has to be said. Reads the
/// beginnings of files.
pub fn lintian(package: &Package) -> Result<Option<(TreePath, String)>> {
    let found = overrides(package)?;
    if found.is_empty() {
        return Ok(None);
    }
    let name = package.deb_name();
    let mut text = String::new();
    let mut reason = "";
    for Override { tag, context, reason: this } in &found {
        if reason != this {
            text += &format!("# {this}\n");
            reason = this;
        }
        let blank = if context.is_empty() { "" } else { " " };
        text += &format!("{name}: {tag}{blank}{context}\n");
    }
    Ok(Some((lintian_path(package), text)))
}

/// Where the override file of a `.deb` is.
pub(super) fn lintian_path(package: &Package) -> TreePath {
    TreePath::new(format!("usr/share/lintian/overrides/{}", package.deb_name()))
        .expect("a checked package name makes a clean path")
}

fn overrides(package: &Package) -> Result<Vec<Override>> {
    let mut contexts: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut say = |tag: &'static str, context: String| {
        contexts.entry(tag).or_default().insert(context);
    };
    if package.deb_name() != package.name.as_str() {
        say("bad-provided-package-name", package.name.to_string());
    }
    if !package.gpu_targets.is_empty() {
        say("unknown-field", "X-ROCm-GPU-Architecture".to_owned());
    }
    if package.full_version().ends_with("-1") {
        say("initial-upload-closes-no-bugs", format!("[usr/share/doc/{}/*]", package.deb_name()));
    }
    // lintian knows such a package by its `Auto-Built-Package`.
    if !package.build_ids.is_empty() {
        say("non-debug-file-in-debug-package", "[usr/share/*]".to_owned());
    }
    let mut has_library = false;
    let in_added =
        |path: &TreePath| path.parent().is_some_and(|parent| package.linker_dirs.contains(&parent));
    for member in members(package, &package.tree, Format::Deb)? {
        let path = member.path;
        let text = path.to_string();
        let parent = path.parent().map_or(String::new(), |parent| parent.to_string());
        let is_dir = matches!(member.kind, MemberKind::Dir);
        if text.starts_with("opt/") {
            say("dir-or-file-in-opt", "[opt/*]".to_owned());
        }
        if text == "usr/.kpack" {
            say("non-standard-dir-in-usr", "[usr/.kpack/]".to_owned());
        }
        if parent == "usr/.kpack" {
            say("file-in-unusual-dir", "[usr/.kpack/*]".to_owned());
        }
        if parent == "etc/ld.so.conf.d" {
            say("package-modifies-ld.so-search-path", format!("[{text}]"));
            say("package-has-unnecessary-activation-of-ldconfig-trigger", String::new());
        }
        if in_added(path) && is_library_name(path) {
            say("package-has-unnecessary-activation-of-ldconfig-trigger", String::new());
        }
        if !is_dir && ["bin", "sbin", "usr/bin", "usr/sbin"].contains(&&*parent) {
            let name = String::from_utf8_lossy(path.file_name());
            let manual = |other: &TreePath| {
                let other = other.to_string();
                other.starts_with("usr/share/man/")
                    && other
                        .rsplit('/')
                        .next()
                        .is_some_and(|page| page.starts_with(&format!("{name}.")))
            };
            if !package.tree.iter().any(|(other, _)| manual(other)) {
                say("no-manual-page", format!("[{text}]"));
            }
        }
        let MemberKind::File { source, .. } = &member.kind else { continue };
        has_library |= is_library_name(path) && in_linker_path(path);
        if is_device_code(source) {
            // One line for a folder's files of one ending.
            let dot = text.rfind('.').filter(|dot| *dot > parent.len() + 1);
            let pattern = match dot {
                Some(dot) => format!("[{parent}/*{}]", &text[dot..]),
                None => format!("[{text}]"),
            };
            say("binary-from-other-architecture", pattern.clone());
            say("unstripped-binary-or-object", pattern.clone());
            say("shared-library-lacks-prerequisites", pattern);
        }
    }
    if has_library {
        say("package-name-doesnt-match-sonames", "*".to_owned());
    }
    let mut found = Vec::new();
    for (tag, reason) in REASONS {
        for context in contexts.remove(tag).unwrap_or_default() {
            let (tag, reason) = (tag.to_owned(), reason.to_owned());
            found.push(Override { tag, context, reason });
        }
    }
    found.extend(package.lintian_overrides.iter().cloned());
    Ok(found)
}

/// Whether it is an ELF file for AMD's GPUs (`e_machine` 224). A file that cannot be read is none:
/// copying it will tell.
fn is_device_code(source: &Source) -> bool {
    if matches!(source, Source::Kpack(_) | Source::Kpm(_)) {
        return false;
    }
    let mut head = Vec::with_capacity(20);
    let read = source.open().and_then(|reader| reader.take(20).read_to_end(&mut head));
    read.is_ok() && head.starts_with(b"\x7fELF\x02\x01") && head.get(18..20) == Some(&[224, 0])
}
