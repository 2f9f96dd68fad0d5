//! Every way to ruin a set of packages that we could think of, and which check sees it.
//!
//! The example shards are packaged. Then a package is edited, or taken apart and packed again by
//! `dpkg-deb`, or its plan is changed and it is written anew; the check that should see the damage must.
//! The undamaged sets must give no finding at all. The table in `docs/verify.md` is made from the one
//! here (`GFXPACK_UPDATE_DOCS=1` writes it).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::semicolon_if_nothing_returned, reason = "damages are expressions in a table")]

mod common;
#[path = "common/damage.rs"]
mod damage;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use gfxpack::artifact::read_artifacts;
use gfxpack::config::{PackagesConfig, PackagingConfig};
use gfxpack::jobs::Jobs;
use gfxpack::package::render::Templates;
use gfxpack::package::spec::{Arch, Op, Package, Relation, RelationKind};
use gfxpack::package::{self, Format, file_name};
use gfxpack::pipeline::plan_packages;
use gfxpack::progress::Silent;
use gfxpack::stage;
use gfxpack::tree::{Entry, EntryKind, Source, TreePath};
use gfxpack::verify::{self, Options, PackageOptions, Report};

use common::{example_config, example_packages, example_shards, gfxpack, ok, tool};
use damage::{
    Damage, Subject, damage_all, damage_table, damages, read_kpack, table_is_on_the_page,
    write_kpack,
};

// ---- the good set ----

/// `packages/` with both formats, made of `recombined/`.
fn good() -> &'static Path {
    static GOOD: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = GOOD.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        // As `build` splits: each package has archives of its own.
        let args = ["--kpack-scope", "prefix"];
        common::split_and_recombine(&example_shards(), dir.path(), &args);
        let to = dir.path().join("packages");
        fs::create_dir(&to).unwrap();
        for package in plans(&dir.path().join("recombined")) {
            write(&package, Format::Deb, &to);
            write(&package, Format::Rpm, &to);
        }
        dir
    });
    dir.path()
}

fn config() -> PackagingConfig {
    PackagingConfig::load(&example_config()).unwrap()
}

fn plans(recombined: &Path) -> Vec<Package> {
    let artifacts = read_artifacts(recombined, &Jobs::new(2, 64 << 20), &Silent).unwrap();
    let definitions = PackagesConfig::load(&example_packages()).unwrap();
    let options = stage::Options {
        version: "7.1.0".into(),
        release: "1".into(),
        install_prefix: path("opt/rocm"),
        source_date: Some(1_767_614_400),
        only: Vec::new(),
        relations: None,
    };
    plan_packages(&artifacts, &config(), Some(&definitions), &options).unwrap().0
}

fn write(package: &Package, format: Format, dir: &Path) -> PathBuf {
    let at = dir.join(file_name(package, format));
    let mut out =
        File::options().read(true).write(true).create(true).truncate(true).open(&at).unwrap();
    let options = package::Options {
        compression: package::compress::Compression::Zstd { level: 1, long: None },
        threads: 1,
        read_ahead: 8 << 20,
        spool_dir: std::env::temp_dir(),
        digest: true,
        signer: None,
    };
    let templates = Templates::built_in();
    package::write(package, format, &templates, &options, &mut out, &Silent)
        .unwrap_or_else(|errors| panic!("{errors}"));
    at
}

fn path(text: &str) -> TreePath {
    TreePath::new(text).unwrap()
}

/// Which formats the set has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Deb,
    Rpm,
    Both,
}

impl Subject for On {
    type Victim = Victim;

    fn words(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
            Self::Both => "both",
        }
    }

    fn victim(self) -> Victim {
        Victim::of(self)
    }

    fn report_on(self, victim: &Victim) -> Report {
        verify(victim.dir.path(), None)
    }
}

impl On {
    fn formats(self) -> &'static [Format] {
        match self {
            Self::Deb => &[Format::Deb],
            Self::Rpm => &[Format::Rpm],
            Self::Both => &[Format::Deb, Format::Rpm],
        }
    }
}

fn verify(dir: &Path, config: Option<&PackagingConfig>) -> Report {
    let packaging =
        PackageOptions { install_prefix: path("opt/rocm"), tmp_dir: std::env::temp_dir() };
    // As the packages file says. It asks nobody for HIP.
    let known_external = vec![globset::Glob::new("libamdhip64.so.*").unwrap()];
    let options = Options { config, known_external, ..Options::default() };
    verify::packages(dir, &packaging, &options, &Jobs::new(2, 64 << 20), &Silent).unwrap()
}

// ---- tools of damage ----

struct Victim {
    dir: tempfile::TempDir,
    on: On,
}

const GENERIC: &str = "rocblas-generic";
const GROUP: &str = "rocblas-gfx110X";
const OTHER: &str = "rocblas-gfx120X";
const LIB: &str = "opt/rocm/lib/librocblas.so.5.2";

impl Victim {
    fn of(on: On) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(good().join("packages")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            let wanted = |format: &Format| Path::new(&name).extension().unwrap() == format.as_str();
            if on.formats().iter().any(wanted) {
                fs::copy(entry.path(), dir.path().join(&name)).unwrap();
            }
        }
        Self { dir, on }
    }

    /// The file of a package.
    fn file(&self, name: &str, format: Format) -> PathBuf {
        let plan = plan(name);
        self.dir.path().join(file_name(&plan, format))
    }

    /// Edits the bytes of the package's file, in each format of the set.
    fn edit(&self, name: &str, edit: impl Fn(&mut Vec<u8>)) {
        for format in self.on.formats() {
            let file = self.file(name, *format);
            let mut bytes = fs::read(&file).unwrap();
            edit(&mut bytes);
            fs::write(file, bytes).unwrap();
        }
    }

    fn remove(&self, name: &str) {
        self.on.formats().iter().for_each(|f| fs::remove_file(self.file(name, *f)).unwrap());
    }

    /// Writes the package anew from a changed plan, in each format of the set.
    fn plan(&self, name: &str, change: impl FnOnce(&mut Package)) {
        self.plan_in(name, self.on.formats(), change);
    }

    fn plan_in(&self, name: &str, formats: &[Format], change: impl FnOnce(&mut Package)) {
        let mut plan = plan(name);
        formats.iter().for_each(|f| fs::remove_file(self.file(name, *f)).unwrap());
        change(&mut plan);
        for format in formats {
            write(&plan, *format, self.dir.path());
        }
    }

    /// Takes a `.deb` apart, changes it, and packs it again.
    fn repack(&self, name: &str, change: impl FnOnce(&Path)) {
        self.repack_with(name, "zstd", change);
    }

    fn repack_with(&self, name: &str, compression: &str, change: impl FnOnce(&Path)) {
        let file = self.file(name, Format::Deb);
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        ok(tool("dpkg-deb", "dpkg").arg("-R").arg(&file).arg(&tree));
        change(&tree);
        ok(tool("dpkg-deb", "dpkg")
            .arg(format!("-Z{compression}"))
            .args(["--root-owner-group", "--nocheck", "-b"])
            .arg(&tree)
            .arg(&file));
    }

    /// Changes the text of a control file.
    fn control(&self, name: &str, file: &str, change: impl FnOnce(String) -> String) {
        self.repack(name, |tree| {
            let at = tree.join("DEBIAN").join(file);
            let text = fs::read_to_string(&at).unwrap();
            let changed = change(text.clone());
            assert_ne!(text, changed);
            fs::write(at, changed).unwrap();
        });
    }

    /// The members of a `.deb`'s ar archive, in an order of their own.
    fn members(&self, name: &str, order: &[usize]) {
        let file = self.file(name, Format::Deb);
        let bytes = fs::read(&file).unwrap();
        let mut members = Vec::new();
        let mut at = 8;
        while at < bytes.len() {
            let digits = std::str::from_utf8(&bytes[at + 48..at + 58]).unwrap();
            let size: usize = digits.trim().parse().unwrap();
            let end = (at + 60 + size + size % 2).min(bytes.len());
            members.push(&bytes[at..end]);
            at = end;
        }
        let chosen = order.iter().flat_map(|&i| members[i].to_vec());
        fs::write(&file, b"!<arch>\n".iter().copied().chain(chosen).collect::<Vec<_>>()).unwrap();
    }
}

fn plan(name: &str) -> Package {
    static PLANS: OnceLock<Mutex<Vec<Package>>> = OnceLock::new();
    let plans = PLANS.get_or_init(|| Mutex::new(plans(&good().join("recombined"))));
    let plans = plans.lock().unwrap();
    plans.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no {name}")).clone()
}

/// The content of a file of a plan.
fn content(package: &Package, at: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    package.tree.get(&path(at)).unwrap().source().unwrap().copy_to(&mut bytes).unwrap();
    bytes
}

fn put(package: &mut Package, at: &str, bytes: impl Into<Vec<u8>>) {
    let at = path(at);
    let mode = package.tree.remove(&at).map_or(0o644, |entry| entry.mode);
    let entry = Entry::file(mode, Some(1_700_000_000), Source::bytes(bytes.into()));
    package.tree.insert(at, entry).unwrap();
}

/// The path of a package's archive for an ISA.
fn kpack(package: &Package, isa: &str) -> String {
    let end = format!("_{isa}.kpack");
    let paths = package.tree.iter().map(|(path, _)| path.to_string());
    paths.into_iter().find(|path| path.ends_with(&end)).unwrap()
}

/// Changes an archive's kernels; `.kpm` still fits in name.
fn rebuild(package: &mut Package, isa: &str, change: impl FnOnce(&mut Vec<damage::Kernel>)) {
    let at = kpack(package, isa);
    let mut kernels = read_kpack(&content(package, &at));
    change(&mut kernels);
    put(package, &at, write_kpack(&isa.parse().unwrap(), &kernels));
}

fn replace(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
}

fn set_generic(package: &mut Package, relations: Vec<Relation>) {
    package.relations.insert(RelationKind::Depends, relations);
}

/// The offset of the main header of an `.rpm`.
fn main_header(bytes: &[u8]) -> usize {
    let be32 = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    (96 + 16 + be32(96 + 8) * 16 + be32(96 + 12)).next_multiple_of(8)
}

const FAT_LIB: &str =
    "gfx110X-build/blas_lib_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2";

// ---- the damages ----

const EACH: &[On] = &[On::Deb, On::Rpm];
const DEB: &[On] = &[On::Deb];
const RPM: &[On] = &[On::Rpm];
const BOTH: &[On] = &[On::Both];

#[rustfmt::skip]
const DAMAGES: &[Damage<On>] = damages! {
    "fat library left in the generic package" EACH "fat-binary-left" |v| v.plan(GENERIC, |p| put(p, LIB, fs::read(example_shards().join(FAT_LIB)).unwrap()));
    "host library cut in half" EACH "host-damaged" |v| v.plan(GENERIC, |p| { let mut b = content(p, LIB); b.truncate(b.len() / 2); put(p, LIB, b) });
    "marker that leads to another library's kernels" EACH "marker-name" |v| v.plan(GENERIC, |p| { let mut b = content(p, LIB); replace(&mut b, "lib/librocblas.so.5.2", "lib/librocblas.so.5.3"); put(p, LIB, b) });
    "library where the loader does not look" EACH "needed-unreachable" |v| v.plan(GENERIC, |p| {
        for name in ["librocblas.so.5.2", "librocblas.so.5"] {
            let entry = p.tree.remove(&path(&format!("opt/rocm/lib/{name}"))).unwrap();
            p.tree.insert(path(&format!("opt/rocm/lib/private/{name}")), entry).unwrap();
        }
    });
    "library left out with its links that another package needs: a warning" EACH "needed-missing" |v| v.plan(GENERIC, |p| {
        let names = ["librocblas.so.5.2", "librocblas.so.5"];
        for name in names { p.tree.remove(&path(&format!("opt/rocm/lib/{name}"))).unwrap(); }
    });
    "kpack of another group's ISA" EACH "isa-mixed" |v| { let other = plan(OTHER); let at = kpack(&other, "gfx1200"); let bytes = content(&other, &at); v.plan(GROUP, |p| put(p, &at, bytes)) };
    "kpack under another ISA's name" EACH "kpack-name" |v| v.plan(GROUP, |p| { let b = content(p, &kpack(p, "gfx1101")); let at = kpack(p, "gfx1100"); put(p, &at, b) });
    "kernel's bytes are another ISA's" EACH "kernel-isa" |v| { let b = read_kpack(&content(&plan(OTHER), &kpack(&plan(OTHER), "gfx1200")))[0].bytes.clone(); v.plan(GROUP, |p| rebuild(p, "gfx1100", |k| k[0].bytes = b)) };
    "database file of another ISA under the right name" EACH "database-isa" |v| v.plan(GROUP, |p| {
        let dir = "opt/rocm/lib/rocblas/library/Kernels.so-000";
        let b = content(p, &format!("{dir}-gfx1101.hsaco"));
        put(p, &format!("{dir}-gfx1100.hsaco"), b)
    });
    "bit flipped in a kernel before it was packaged" EACH "kpack-damaged" |v| v.plan(GROUP, |p| { let at = kpack(p, "gfx1100"); let mut b = content(p, &at); b[200] ^= 4; put(p, &at, b) });
    "kpack cut in half before it was packaged" EACH "kpack-damaged" |v| v.plan(GROUP, |p| { let at = kpack(p, "gfx1100"); let mut b = content(p, &at); b.truncate(b.len() / 2); put(p, &at, b) });
    "kpack left out" EACH "kpm-stale" |v| v.plan(GROUP, |p| { let at = kpack(p, "gfx1100"); p.tree.remove(&path(&at)).unwrap(); });
    "group's package missing from the set" EACH "kpm-stale" |v| v.remove(GROUP);
    ".kpm overwritten" EACH "kpm-stale" |v| v.plan(GENERIC, |p| {
        let at = p.tree.iter().map(|(path, _)| path.to_string()).find(|path| path.ends_with(".kpm")).unwrap();
        put(p, &at, "x")
    });
    "kpack in another folder" EACH "kernel-not-found" |v| v.plan(GROUP, |p| { let at = kpack(p, "gfx1100"); let entry = p.tree.remove(&path(&at)).unwrap(); p.tree.insert(path(&at.replace("/.kpack/", "/kpack/")), entry).unwrap() });
    "kpack of another build: a kernel less" EACH "kernel-missing" |v| v.plan(GROUP, |p| rebuild(p, "gfx1100", |k| { k.remove(0); }));
    "kpack of another build: another library's kernels" EACH "kernel-orphan" |v| v.plan(GROUP, |p| rebuild(p, "gfx1100", |k| k[0].binary += ".7"));
    "kpack of another build: indexes that no wrapper has" EACH "kernel-orphan" |v| v.plan(GROUP, |p| rebuild(p, "gfx1100", |k| k[0].co_index = 77));
    "host library in a group's package" EACH "host-in-device-tree" |v| { let b = content(&plan(GENERIC), LIB); v.plan(GROUP, |p| put(p, "opt/rocm/lib/libother.so", b)) };
    "kpack in the generic package" EACH "device-in-generic-tree" |v| { let at = kpack(&plan(GROUP), "gfx1100"); let b = content(&plan(GROUP), &at); v.plan(GENERIC, |p| put(p, &at, b)) };
    "group's package that does not say whose kernels it has" EACH "device-in-generic-tree" |v| v.plan(GROUP, |p| { p.relations.remove(&RelationKind::Provides); });
    "path in two packages" EACH "path-twice" |v| { let at = kpack(&plan(GROUP), "gfx1100"); let b = content(&plan(GROUP), &at); v.plan(OTHER, |p| put(p, &at, b)) };
    "path a file in one package and a directory in another" EACH "path-twice" |v| v.plan(OTHER, |p| { p.tree.insert(path("opt/rocm/lib/librocblas.so.5.2"), Entry::dir()).unwrap() });
    "link to a library that was left out" EACH "dangling-link" |v| v.plan(GENERIC, |p| { p.tree.remove(&path(LIB)).unwrap(); });
    "program without its x bits" EACH "mode" |v| v.plan(GENERIC, |p| {
        let at = path("opt/rocm/bin/rocblas-bench");
        let mut entry = p.tree.remove(&at).unwrap();
        entry.mode = 0o644;
        p.tree.insert(at, entry).unwrap()
    });

    "package cut in half" EACH "package-damaged" |v| v.edit(GROUP, |b| b.truncate(b.len() / 2));
    "package without its last bytes" EACH "package-damaged" |v| v.edit(GROUP, |b| b.truncate(b.len() - 100));
    "package emptied" EACH "package-damaged" |v| v.edit(GROUP, Vec::clear);
    "package of zeros" EACH "package-damaged" |v| v.edit(GROUP, |b| b.fill(0));
    "bit flipped in the payload" EACH "package-damaged" |v| v.edit(GROUP, |b| { let at = b.len() * 3 / 4; b[at] ^= 1 });
    "bytes behind the package's end" EACH "package-damaged" |v| v.edit(GROUP, |b| b.extend([1; 200]));
    "package file renamed" EACH "package-control" |v| for format in v.on.formats() {
        let file = v.file(GROUP, *format);
        fs::rename(&file, file.with_file_name(format!("x.{}", format.as_str()))).unwrap();
    };
    "host code in a package for any machine" EACH "package-architecture" |v| v.plan(GENERIC, |p| p.arch = Arch::Independent);
    "generic package missing from the set" EACH "relation-unmet" |v| v.remove(GENERIC);
    "generic package of another version" EACH "relation-unmet" |v| v.plan(GENERIC, |p| p.version = "7.0.9".into());
    "generic package of another release" EACH "relation-unmet" |v| v.plan(GENERIC, |p| p.release = "2".into());
    "group's package without its generic one" EACH "generic-relation" |v| v.plan(GROUP, |p| set_generic(p, Vec::new()));
    "group's package with any version of its generic one" EACH "generic-relation" |v| v.plan(GROUP, |p| set_generic(p, vec![Relation::any(GENERIC)]));
    "group's package with a later version of its generic one" EACH "generic-relation" |v| v.plan(GROUP, |p| set_generic(p, vec![Relation { name: GENERIC.into(), constraint: Some((Op::GreaterEqual, "7.1.0-1".into())) }]));
    "group's package with an older version of its generic one" EACH "relation-unmet" |v| v.plan(GROUP, |p| set_generic(p, vec![Relation::exactly(GENERIC, "7.0.9-1")]));
    "package that needs another of the set in a version that it does not have" EACH "relation-unmet" |v| v.plan("hipblaslt-generic", |p| set_generic(p, vec![Relation { name: GENERIC.into(), constraint: Some((Op::Greater, "7.1.0-1".into())) }]));

    "members of the ar archive in another order" DEB "package-damaged" |v| v.members(GROUP, &[0, 2, 1]);
    "debian-binary not first" DEB "package-damaged" |v| v.members(GROUP, &[1, 0, 2]);
    "no control member" DEB "package-damaged" |v| v.members(GROUP, &[0, 2]);
    "file twice in the data member" DEB "package-damaged" |v| v.twice(GENERIC);
    "no data member" DEB "package-damaged" |v| v.members(GROUP, &[0, 1]);
    "file left out that md5sums lists" DEB "package-damaged" |v| v.repack(GROUP, |tree| fs::remove_file(tree.join("opt/rocm/lib/rocblas/library/Kernels.so-000-gfx1100.hsaco")).unwrap());
    "file added that md5sums does not list" DEB "package-damaged" |v| v.repack(GROUP, |tree| fs::write(tree.join("opt/rocm/lib/rocblas/library/new_gfx1100.dat"), "x").unwrap());
    "file changed" DEB "package-damaged" |v| v.repack(GENERIC, |tree| fs::write(tree.join("opt/rocm/lib/rocblas/library/TensileManifest.txt"), "x").unwrap());
    "sum in md5sums edited" DEB "package-damaged" |v| v.control(GENERIC, "md5sums", |text| text.replacen(|c: char| c.is_ascii_hexdigit(), "z", 1));
    "control without a version" DEB "package-damaged" |v| v.edit_control_raw(GROUP, "Version: 7.1.0-1\n", "");
    "Installed-Size too small" DEB "package-size" |v| v.control(GROUP, "control", |text| text.replace("Installed-Size: ", "Installed-Size: 1"));
    "Installed-Size left out" DEB "package-size" |v| v.control(GROUP, "control", |text| text.lines().filter(|line| !line.starts_with("Installed-Size")).map(|line| format!("{line}\n")).collect());
    "Package in capitals" DEB "package-control" |v| v.edit_control_raw(GROUP, "Package: rocblas-gfx110x", "Package: rocblas-gfx110X");
    "Version with a character that none has" DEB "package-control" |v| v.edit_control_raw(GROUP, "Version: 7.1.0-1", "Version: 7_1.0-1");
    "Version that is another than the file's name says" DEB "package-control" |v| v.control(GROUP, "control", |text| text.replace("Version: 7.1.0-1", "Version: 7.1.1-1"));
    "Architecture of another machine" DEB "package-architecture" |v| v.control(GENERIC, "control", |text| text.replace("Architecture: amd64", "Architecture: arm64"));
    "Depends of a .deb loosened by hand" DEB "generic-relation" |v| v.control(GROUP, "control", |text| text.replace("Depends: rocblas-generic (= ", "Depends: rocblas-generic (>= "));
    "kernels named as of another definition" DEB "device-in-generic-tree" |v| v.control(GROUP, "control", |text| text.replace("rocblas-kernels", "rocfft-kernels"));

    "lead without its magic" RPM "package-damaged" |v| v.edit(GROUP, |b| b[0] = 0);
    "signature header without its magic" RPM "package-damaged" |v| v.edit(GROUP, |b| b[96] = 0);
    "main header without its magic" RPM "package-damaged" |v| v.edit(GROUP, |b| { let at = main_header(b); b[at] = 0 });
    "bit flipped in the main header" RPM "package-damaged" |v| v.edit(GROUP, |b| { let at = main_header(b); let end = b.len().min(at + 4000); replace(&mut b[at..end], "GPU code", "GPU codx") });
    "digest of a file edited in the header" RPM "package-damaged" |v| { let sum = sha256(&content(&plan(GENERIC), LIB)); v.edit(GENERIC, |b| replace(b, &sum, &sum.chars().rev().collect::<String>())) };
    "count of the header's entries too high" RPM "package-damaged" |v| v.edit(GROUP, |b| { let at = main_header(b); b[at + 8] = 0x7f });
    "architecture of another machine in the header" RPM "package-architecture" |v| v.edit(GENERIC, |b| { let at = main_header(b); replace(&mut b[at..], "\0x86_64\0", "\0x86_32\0") });

    "library of another build in the .deb" BOTH "formats-differ" |v| v.plan_in(GENERIC, &[Format::Deb], |p| { let mut b = content(p, LIB); let at = b.len() - 1; b[at] ^= 1; put(p, LIB, b) });
    "file left out of the .rpm" BOTH "formats-differ" |v| v.plan_in(GENERIC, &[Format::Rpm], |p| { p.tree.remove(&path("opt/rocm/lib/rocblas/library/TensileManifest.txt")).unwrap(); });
    "link that leads elsewhere in the .rpm" BOTH "formats-differ" |v| v.plan_in(GENERIC, &[Format::Rpm], |p| {
        let at = path("opt/rocm/lib/librocblas.so.5");
        let old = p.tree.remove(&at).unwrap();
        p.tree.insert(at, Entry { kind: EntryKind::Symlink(b"./librocblas.so.5.2".to_vec()), ..old }).unwrap()
    });
    "mode of a file another in the .deb" BOTH "formats-differ" |v| v.plan_in(GENERIC, &[Format::Deb], |p| {
        let at = path(LIB);
        let mut entry = p.tree.remove(&at).unwrap();
        entry.mode = 0o555;
        p.tree.insert(at, entry).unwrap()
    });
    ".rpm of a package missing" BOTH "formats-differ" |v| fs::remove_file(v.file("rocm-support", Format::Rpm)).unwrap();
    ".deb of another release" BOTH "formats-differ" |v| v.plan_in("rocm-support", &[Format::Deb], |p| p.release = "2".into());
};

fn ar_header(name: &str, size: usize) -> Vec<u8> {
    format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, "100644").into_bytes()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

impl Victim {
    /// Writes a data member that holds a file two times.
    fn twice(&self, name: &str) {
        let file = self.file(name, Format::Deb);
        let dir = tempfile::tempdir().unwrap();
        ok(tool("dpkg-deb", "dpkg").arg("-x").arg(&file).arg(dir.path().join("tree")));
        let tar = dir.path().join("data.tar");
        ok(tool("tar", "tar")
            .args(["--format=gnu", "--hard-dereference", "-C"])
            .arg(dir.path().join("tree"))
            .arg("-cf")
            .arg(&tar)
            .args([".", &format!("./{LIB}")]));
        self.members(name, &[0, 1]);
        let content = fs::read(tar).unwrap();
        let mut bytes = fs::read(&file).unwrap();
        bytes.extend(ar_header("data.tar", content.len()));
        bytes.extend(content);
        fs::write(file, bytes).unwrap();
    }

    /// Changes the control file without dpkg-deb, which refuses such a one.
    fn edit_control_raw(&self, name: &str, from: &str, to: &str) {
        let file = self.file(name, Format::Deb);
        let dir = tempfile::tempdir().unwrap();
        let (tree, parts) = (dir.path().join("tree"), dir.path().join("parts"));
        ok(tool("dpkg-deb", "dpkg").arg("-R").arg(&file).arg(&tree));
        fs::create_dir(&parts).unwrap();
        let control = fs::read_to_string(tree.join("DEBIAN/control")).unwrap();
        assert!(control.contains(from));
        fs::write(tree.join("DEBIAN/control"), control.replace(from, to)).unwrap();
        let tar = parts.join("control.tar");
        ok(tool("tar", "tar")
            .args(["--format=gnu", "-C"])
            .arg(tree.join("DEBIAN"))
            .arg("-cf")
            .arg(&tar)
            .arg("."));
        let bytes = fs::read(&file).unwrap();
        let size = |at: usize| -> usize {
            std::str::from_utf8(&bytes[at + 48..at + 58]).unwrap().trim().parse().unwrap()
        };
        // `debian-binary` is four bytes long; the control member follows, then the data.
        let control_at = 8 + 60 + 4;
        let data_at = control_at + 60 + size(control_at).next_multiple_of(2);
        let tar = fs::read(tar).unwrap();
        let mut made = bytes[..control_at].to_vec();
        made.extend(ar_header("control.tar", tar.len()));
        made.extend(tar);
        made.extend(&bytes[data_at..]);
        fs::write(file, made).unwrap();
    }
}

// ---- the tests ----

#[test]
fn undamaged_sets_raise_nothing() {
    let config = config();
    for on in [On::Deb, On::Rpm, On::Both] {
        let victim = Victim::of(on);
        for config in [None, Some(&config)] {
            let report = verify(victim.dir.path(), config);
            assert_eq!(report.findings, [], "{on:?}");
            assert!(report.kernels > Some(50) && report.files > 100, "{report:?}");
        }
    }
}

/// What dpkg-deb writes, in each of its compressions, is as good as ours.
#[test]
fn sets_that_dpkg_packed_again_raise_nothing() {
    for compression in ["none", "gzip", "xz", "zstd"] {
        let victim = Victim::of(On::Deb);
        for package in [GENERIC, GROUP, "hipblaslt-generic"] {
            victim.repack_with(package, compression, |_| {});
        }
        let report = verify(victim.dir.path(), None);
        assert_eq!(report.findings, [], "{compression}");
    }
}

#[test]
fn the_program_verifies_packages() {
    let dir = good().join("packages");
    let text = ok(gfxpack()
        .args(["verify", "--external", "libamdhip64.so.*", "--packages-dir"])
        .arg(&dir));
    assert!(text.contains("8  packages are whole"), "{text}");
    let victim = Victim::of(On::Both);
    victim.remove(GENERIC);
    let report =
        common::run(gfxpack().args(["verify", "--json", "--packages-dir"]).arg(victim.dir.path()));
    assert_eq!(report.status, Some(1));
    assert!(report.stdout.contains("relation-unmet"), "{}", report.stdout);
    let none = tempfile::tempdir().unwrap();
    let error = common::fails(gfxpack().args(["verify", "--packages-dir"]).arg(none.path()), 1);
    assert!(error.contains("no package"), "{error}");
}

/// What a format makes for itself, as licences and changelogs, is then below the prefix.
#[test]
fn packages_for_usr_raise_nothing() {
    let dir = tempfile::tempdir().unwrap();
    ok(gfxpack()
        .args(["build", "--version", "7.1.0", "--release", "1", "--install-prefix", "/usr"])
        .arg("--input-shards-dir")
        .arg(example_shards())
        .arg("--config")
        .arg(example_config())
        .arg("--packages")
        .arg(example_packages())
        .arg("--output-dir")
        .arg(dir.path().join("out")));
    ok(gfxpack()
        .args(["verify", "--warnings-as-errors", "--install-prefix", "/usr", "--packages-dir"])
        .arg(dir.path().join("out"))
        .arg("--config")
        .arg(example_config())
        .arg("--packages")
        .arg(example_packages()));
}

/// A package outside of the set is unmet only where all that comes from elsewhere is named.
#[test]
fn what_comes_from_elsewhere_can_be_named() {
    let victim = Victim::of(On::Deb);
    victim.plan(GENERIC, |p| p.relate(RelationKind::Depends, Relation::any("hip-runtime")));
    let packaging =
        PackageOptions { install_prefix: path("opt/rocm"), tmp_dir: std::env::temp_dir() };
    let findings = |globs: &[&str]| {
        let external = globs.iter().map(|glob| globset::Glob::new(glob).unwrap()).collect();
        let options = Options { external, ..Options::default() };
        let jobs = Jobs::new(1, 1 << 20);
        let report = verify::packages(victim.dir.path(), &packaging, &options, &jobs, &Silent);
        report.unwrap().findings.iter().map(|f| f.id.id()).collect::<Vec<_>>()
    };
    // rocFFT still asks nobody for HIP.
    assert_eq!(findings(&[]), ["needed-missing"]);
    assert_eq!(findings(&["libamdhip64.so.*"]), ["relation-unmet"]);
    assert_eq!(findings(&["libamdhip64.so.*", "hip-*"]), [""; 0]);
}

/// Whatever byte is changed, and wherever a package ends, the readers say what is wrong or read on.
#[test]
fn damaged_bytes_are_errors_and_nothing_worse() {
    use package::read::{Ignore, deb, rpm};
    let read = |format: Format, bytes: &[u8]| match format {
        Format::Deb => deb::members(&bytes)
            .and_then(|members| deb::read(&bytes, members, &mut Ignore))
            .is_ok_and(|report| report.problems.is_empty()),
        Format::Rpm => {
            rpm::content(&bytes, &mut Ignore).is_ok_and(|report| report.problems.is_empty())
        }
    };
    for format in [Format::Deb, Format::Rpm] {
        let file = good().join("packages").join(file_name(&plan("rocfft-generic"), format));
        let good = fs::read(file).unwrap();
        assert!(read(format, &good));
        let mut seen = 0;
        let places = (0..good.len()).step_by(41);
        for at in places.clone() {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            seen += usize::from(!read(format, &bytes));
            assert!(!read(format, &good[..at]), "{format:?} cut at {at}");
        }
        // What is left: times and owners in `ar` headers, the lead, the room for a signature.
        let all = places.count();
        assert!(seen * 2 > all, "{format:?}: {seen} of {all}");
    }
}

#[test]
fn every_damage_of_debs_is_caught() {
    damage_all(DAMAGES, On::Deb);
}

#[test]
fn every_damage_of_rpms_is_caught() {
    damage_all(DAMAGES, On::Rpm);
}

#[test]
fn every_damage_between_the_formats_is_caught() {
    damage_all(DAMAGES, On::Both);
}

#[test]
fn the_page_has_every_damage_of_packages() {
    table_is_on_the_page("package damages", &damage_table(DAMAGES));
}

/// A library that no package brings is no finding where one is asked for that may have it.
#[test]
fn a_library_that_nobody_is_asked_for_is_a_warning() {
    let packages = example_packages();
    let missing = |dir: &Path, args: &[&str]| {
        let mut command = gfxpack();
        command.args(["--json", "verify", "--packages-dir"]).arg(dir).args(args);
        let report: serde_json::Value = serde_json::from_str(&ok(&mut command)).unwrap();
        let findings = report["report"]["findings"].as_array().unwrap().iter();
        let findings = findings.map(|one| {
            assert_eq!(
                (&one["id"], &one["severity"]),
                (&"needed-missing".into(), &"warning".into())
            );
            one["message"].as_str().unwrap().to_owned()
        });
        findings.collect::<Vec<_>>()
    };
    for on in [On::Deb, On::Rpm] {
        let victim = Victim::of(on);
        let dir = victim.dir.path();
        let found = missing(dir, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        let words = "needs `libamdhip64.so.6`, which no package of the set brings, and asks none from elsewhere for it; so do ";
        assert!(found[0].starts_with(words), "{found:?}");
        assert_eq!(missing(dir, &["--packages", packages.to_str().unwrap()]), [""; 0]);
        // The base system's does not bring it, another may, also to those that need this one.
        victim.plan(GENERIC, |p| {
            p.relate(
                RelationKind::Depends,
                Relation::any(match on {
                    On::Deb => "zlib1g",
                    _ => "libz.so.1()(64bit)",
                }),
            )
        });
        assert_eq!(missing(dir, &[]), found);
        victim.plan(GENERIC, |p| p.relate(RelationKind::Recommends, Relation::any("hip-runtime")));
        assert_eq!(missing(dir, &[]), found);
        victim.plan(GENERIC, |p| p.relate(RelationKind::Depends, Relation::any("hip-runtime")));
        let left = missing(dir, &[]);
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(!left[0].contains("so do"), "{left:?}");
        victim.plan("rocfft-generic", |p| {
            p.relate(
                RelationKind::Depends,
                Relation::any(match on {
                    On::Deb => "hip-runtime",
                    _ => "libamdhip64.so.6()(64bit)",
                }),
            )
        });
        assert_eq!(missing(dir, &[]), [""; 0]);
    }
}
