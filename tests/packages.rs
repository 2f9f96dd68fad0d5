//! Packages held against the real tools: dpkg-deb and dpkg, rpm and rpmbuild, cpio, bsdtar.

// The lints allow both in tests, but do not see that helpers of tests are tests.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use gfxpack::package::compress::Compression;
use gfxpack::package::render::{self, Templates};
use gfxpack::package::spec::{Arch, Kind, Package, Relation, RelationKind};
use gfxpack::package::{self, Format, Options, Report};
use gfxpack::progress::Silent;
use gfxpack::tree::{Entry, EntryKind, Source, Tree, TreePath};

/// 2026-01-05.
const DATE: i64 = 1_767_614_400;
const XZ: Compression = Compression::Xz { level: 6 };
const ZSTD: Compression = Compression::Zstd { level: 3, long: None };

/// A command whose absence says what to install.
fn tool(name: &str, debian_package: &str) -> Command {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir: PathBuf| dir.join(name).exists());
    assert!(found, "`{name}` is missing: apt-get install {debian_package}");
    let mut command = Command::new(name);
    // dpkg wants ldconfig, which is not in the path of every user.
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
    command
}

/// Runs it; returns what it printed on both outputs.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

#[track_caller]
fn ok(command: &mut Command) -> String {
    run(command).unwrap_or_else(|text| panic!("{command:?} failed:\n{text}"))
}

fn path(text: &str) -> TreePath {
    TreePath::new(text).unwrap()
}

fn file(tree: &mut Tree, at: &str, mode: u32, content: impl Into<Vec<u8>>) {
    let entry = Entry::file(mode, Some(DATE - 1000), Source::bytes(content.into()));
    tree.insert(path(at), entry).unwrap();
}

fn other(tree: &mut Tree, at: &str, kind: EntryKind) {
    tree.insert(path(at), Entry { mode: 0o755, mtime: None, kind }).unwrap();
}

fn sample(name: &str, kind: Kind) -> Package {
    let mut package = Package::new(name, kind, "7.1.0", "1");
    package.summary = "A package of the tests".to_owned();
    package.description = "Made to be installed and removed.\n\nTwice.".to_owned();
    package.maintainer = "Example Packagers <packages@example.org>".to_owned();
    package.vendor = "Example".to_owned();
    package.homepage = "https://example.org/".to_owned();
    package.date = DATE;
    package
}

/// A package with every kind of member.
fn generic() -> Package {
    let mut package = sample("rocblas-generic", Kind::Generic);
    let tree = &mut package.tree;
    file(tree, "opt/rocm/lib/librocblas.so.5.0", 0o755, fs::read("/bin/true").unwrap());
    other(tree, "opt/rocm/lib/librocblas.so.5", EntryKind::Symlink(b"librocblas.so.5.0".to_vec()));
    other(tree, "opt/rocm/lib/librocblas.so", EntryKind::Symlink(b"librocblas.so.5".to_vec()));
    file(tree, "opt/rocm/lib/rocblas/library/a b.dat", 0o644, vec![7; 70_000]);
    file(tree, "opt/rocm/lib/rocblas/library/empty", 0o600, "");
    other(
        tree,
        "opt/rocm/lib/rocblas/library/z.dat",
        EntryKind::HardLink(path("opt/rocm/lib/rocblas/library/a b.dat")),
    );
    file(tree, "opt/rocm/bin/script", 0o755, "#!/bin/sh\nexit 0\n");
    file(tree, "opt/rocm/share/ünïcode.txt", 0o444, "text\n");
    tree.insert(path("opt/rocm/empty-dir"), Entry::dir()).unwrap();
    package
}

fn group(group: &str) -> Package {
    let mut package = sample(&format!("rocblas-{group}"), Kind::Group { group: group.to_owned() });
    package.gpu_targets = vec!["gfx1100".to_owned(), "gfx1101".to_owned()];
    package.relate(RelationKind::Depends, Relation::exactly("rocblas-generic", "7.1.0-1"));
    package.relate(RelationKind::Provides, Relation::exactly("rocblas-kernels", "7.1.0-1"));
    let at = format!("opt/rocm/.kpack/blas_lib_{group}.kpack");
    file(&mut package.tree, &at, 0o644, group.as_bytes());
    package
}

fn options(compression: Compression, threads: usize) -> Options {
    Options {
        compression,
        threads,
        read_ahead: 8 << 20,
        spool_dir: std::env::temp_dir(),
        signer: None,
    }
}

fn write_with(
    package: &Package,
    format: Format,
    options: &Options,
    dir: &Path,
) -> (PathBuf, Report) {
    let at = dir.join(package::file_name(package, format));
    let mut out =
        File::options().read(true).write(true).create(true).truncate(true).open(&at).unwrap();
    let templates = Templates::built_in();
    let report = package::write(package, format, &templates, options, &mut out, &Silent)
        .unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(report.size, fs::metadata(&at).unwrap().len());
    (at, report)
}

fn write(package: &Package, format: Format, dir: &Path) -> PathBuf {
    write_with(package, format, &options(ZSTD, 2), dir).0
}

/// Lays a tree out on disk, with its times.
fn lay(tree: &Tree, root: &Path) {
    let mut dirs = Vec::new();
    for (path, entry) in tree.iter() {
        let at = root.join(path.as_path());
        match &entry.kind {
            EntryKind::Dir => {
                fs::create_dir_all(&at).unwrap();
                dirs.push((at, entry));
                continue;
            }
            EntryKind::File(source) => {
                source.copy_to(&mut File::create(&at).unwrap()).unwrap();
            }
            EntryKind::Symlink(target) => {
                symlink(OsStr::from_bytes(target), &at).unwrap();
                continue;
            }
            EntryKind::HardLink(to) => {
                fs::hard_link(root.join(to.as_path()), &at).unwrap();
                continue;
            }
        }
        set(&at, entry);
    }
    dirs.iter().rev().for_each(|(at, entry)| set(at, entry));
}

fn set(at: &Path, entry: &Entry) {
    let open = File::open(at).unwrap();
    if let Some(mtime) = entry.mtime {
        let mtime = Duration::from_secs(mtime.try_into().unwrap());
        open.set_modified(SystemTime::UNIX_EPOCH + mtime).unwrap();
    }
    fs::set_permissions(at, Permissions::from_mode(entry.mode)).unwrap();
}

/// The same tree and control member through dpkg-deb.
#[track_caller]
fn assert_equals_dpkg_deb(package: &Package) {
    let temp = tempfile::tempdir().unwrap();
    let (ours, _) = write_with(package, Format::Deb, &options(XZ, 2), temp.path());
    let root = temp.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut tree = package.tree.clone();
    for (path, bytes) in render::deb_docs(package, &Templates::built_in()).unwrap() {
        tree.insert(path, Entry::file(0o644, None, Source::bytes(bytes))).unwrap();
    }
    lay(&tree, &root);
    fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    ok(tool("dpkg-deb", "dpkg").arg("-e").arg(&ours).arg(root.join("DEBIAN")));
    let theirs = temp.path().join("theirs.deb");
    ok(tool("dpkg-deb", "dpkg")
        .env("SOURCE_DATE_EPOCH", package.date.to_string())
        .args(["-Zxz", "-z6", "--root-owner-group", "-b"])
        .args([&root, &theirs]));
    let (ours, theirs) = (fs::read(ours).unwrap(), fs::read(theirs).unwrap());
    let differs = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    assert!(
        ours == theirs,
        "{} and {} bytes, the first difference at {differs:?}",
        ours.len(),
        theirs.len()
    );
}

#[test]
fn a_deb_has_the_bytes_of_dpkg_deb() {
    assert_equals_dpkg_deb(&generic());
    assert_equals_dpkg_deb(&group("gfx110X"));
    assert_equals_dpkg_deb(&sample("rocblas", Kind::Meta));
}

#[test]
fn a_deb_with_long_names_odd_modes_and_many_kinds_has_the_bytes_of_dpkg_deb() {
    let mut package = generic();
    let tree = &mut package.tree;
    // Names and targets around the 100 bytes of a header's field (`./` counts) and beyond 255.
    for len in 92..=103 {
        let name = format!("opt/{}", "n".repeat(len - 4));
        file(tree, &name, 0o644, name.as_bytes());
        let target = "t".repeat(len);
        other(tree, &format!("opt/link{len}"), EntryKind::Symlink(target.into_bytes()));
        other(tree, &format!("opt/z/hard{len}"), EntryKind::HardLink(path(&name)));
        tree.insert(path(&format!("opt/d{}", "d".repeat(len - 5))), Entry::dir()).unwrap();
    }
    let deep = ["p".repeat(120), "q".repeat(120), "r".repeat(250)].join("/");
    file(tree, &deep, 0o644, "deep");
    other(tree, &format!("{deep}.l"), EntryKind::Symlink(deep.clone().into_bytes()));
    other(tree, &format!("{deep}.h"), EntryKind::HardLink(path(&deep)));
    for mode in [0o400, 0o555, 0o640, 0o664, 0o777, 0o4755, 0o2755, 0o6711] {
        file(tree, &format!("opt/mode{mode:o}"), mode, "m");
    }
    let mut sticky = Entry::dir();
    sticky.mode = 0o1777;
    sticky.mtime = Some(DATE - 77);
    tree.insert(path("opt/sticky"), sticky).unwrap();
    // Sorted by component, not by byte; names that are no text; times past the date.
    for name in ["opt/s/x", "opt/s-x", "opt/s.x", "opt/s x", "opt/s\\x", "opt/Z", "etc/x.conf"] {
        file(tree, name, 0o644, name.as_bytes());
    }
    let odd = Entry::file(0o644, Some(DATE + 5000), Source::bytes(*b"odd"));
    tree.insert(TreePath::new(b"opt/\xff\xfe\x01").unwrap(), odd).unwrap();
    file(tree, "usr/lib/libx.so.1", 0o644, "x");
    for size in [0, 1, 511, 512, 513, 9_728, 10_240] {
        file(tree, &format!("opt/size{size}"), 0o644, vec![b'.'; size]);
    }
    assert_equals_dpkg_deb(&package);
}

/// A few numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn debs_of_random_trees_have_the_bytes_of_dpkg_deb() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let mut package = sample(&format!("random-{seed}"), Kind::Plain);
        let mut files: Vec<TreePath> = Vec::new();
        for i in 0..dice.roll(40) {
            let depth = dice.roll(5);
            let mut name = String::from("opt");
            for _ in 0..depth {
                name +=
                    &format!("/d{}{}", dice.roll(3), ["", "-", ".x", "_Y"][dice.roll(4) as usize]);
            }
            name += &format!("/{i}{}", "long".repeat(dice.roll(4).pow(3) as usize));
            let at = path(&name);
            let mode = [0o644, 0o755, 0o600, 0o4755][dice.roll(4) as usize];
            let mtime = Some(DATE - 50 + i64::try_from(dice.roll(100)).unwrap());
            let kind = match dice.roll(5) {
                0 => EntryKind::Dir,
                1 => EntryKind::Symlink("../x".repeat(1 + dice.roll(40) as usize).into()),
                2 if files.iter().any(|to| *to < at) => {
                    EntryKind::HardLink(files.iter().find(|to| **to < at).unwrap().clone())
                }
                _ => {
                    let content = vec![b'a' + (i % 26) as u8; dice.roll(3000) as usize];
                    files.push(at.clone());
                    EntryKind::File(Source::bytes(content))
                }
            };
            let is_dir = matches!(kind, EntryKind::Dir);
            let mtime = mtime.filter(|_| !matches!(kind, EntryKind::Symlink(_)));
            let mode = if is_dir { 0o755 } else { mode };
            package.tree.insert(at, Entry { mode, mtime, kind }).unwrap();
        }
        assert_equals_dpkg_deb(&package);
    }
}

#[test]
fn a_deb_of_several_xz_blocks_has_the_bytes_of_dpkg_deb() {
    let mut package = sample("big", Kind::Plain);
    let content: Vec<u8> = (0..60_000_000_u32).map(|i| (i >> 12) as u8).collect();
    file(&mut package.tree, "opt/big", 0o644, content);
    assert_equals_dpkg_deb(&package);
}

/// A root with dpkg's database and nothing else.
fn dpkg_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let admin = root.path().join("var/lib/dpkg");
    for dir in ["info", "updates", "triggers", "alternatives", "parts"] {
        fs::create_dir_all(admin.join(dir)).unwrap();
    }
    for file in ["status", "available", "diversions", "statoverride"] {
        File::create(admin.join(file)).unwrap();
    }
    root
}

fn dpkg(root: &Path) -> Command {
    let mut command = tool("dpkg", "dpkg");
    command.arg("--root").arg(root).arg("--force-not-root").arg("--log=/dev/null");
    command
}

/// Every path below a root but those of the package manager's database.
fn below(root: &Path, but: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            if name.starts_with(but) || but.starts_with(&name) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                dirs.push(path);
            }
            found.push(name);
        }
    }
    found.sort();
    found
}

#[test]
fn debs_install_verify_and_go_without_a_trace() {
    let temp = tempfile::tempdir().unwrap();
    let debs = [generic(), group("gfx110X"), group("gfx120X")];
    for compression in [ZSTD, XZ, Compression::None, "zstd:10,long=27".parse().unwrap()] {
        let [generic, x110, x120] = debs.each_ref().map(|package| {
            write_with(package, Format::Deb, &options(compression, 2), temp.path()).0
        });
        let root = dpkg_root();
        let root = root.path();
        let refused = run(dpkg(root).arg("-i").arg(&x110)).unwrap_err();
        assert!(
            refused.contains("rocblas-gfx110x depends on rocblas-generic (= 7.1.0-1)"),
            "{refused}"
        );
        ok(dpkg(root).args(["-P", "rocblas-gfx110x"]));
        ok(dpkg(root).arg("-i").args([&generic, &x110, &x120]));
        assert_eq!(ok(dpkg(root).arg("--verify")), "");
        assert_eq!(ok(dpkg(root).arg("--audit")), "");
        let library = root.join("opt/rocm/lib/librocblas.so");
        assert_eq!(fs::read(&library).unwrap(), fs::read("/bin/true").unwrap());
        assert_eq!(
            fs::read(root.join("opt/rocm/.kpack/blas_lib_gfx110X.kpack")).unwrap(),
            b"gfx110X"
        );
        fs::write(root.join("opt/rocm/bin/script"), "changed").unwrap();
        let changed = run(dpkg(root).arg("--verify")).unwrap_or_else(|text| text);
        assert!(changed.contains("/opt/rocm/bin/script"), "{changed}");
        ok(dpkg(root).args(["-r", "rocblas-gfx110x", "rocblas-gfx120x", "rocblas-generic"]));
        assert_eq!(below(root, "var/lib/dpkg"), [""; 0]);
    }
}

#[test]
fn a_debs_fields_are_read_back() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = group("gfx110X");
    package.deb.insert("depends".to_owned(), vec!["libc6 (>= 2.34)".to_owned()]);
    let deb = write(&package, Format::Deb, temp.path());
    assert!(deb.ends_with("rocblas-gfx110x_7.1.0-1_amd64.deb"));
    let field = |name: &str| ok(tool("dpkg-deb", "dpkg").arg("-f").arg(&deb).arg(name));
    assert_eq!(field("Package"), "rocblas-gfx110x\n");
    assert_eq!(field("Version"), "7.1.0-1\n");
    assert_eq!(field("Depends"), "rocblas-generic (= 7.1.0-1), libc6 (>= 2.34)\n");
    // dpkg-deb -f would lower it; apt reads the file as it is.
    let control = ok(tool("dpkg-deb", "dpkg").arg("-I").arg(&deb).arg("control"));
    let provides = "\nProvides: rocblas-gfx110X (= 7.1.0-1), rocblas-kernels (= 7.1.0-1)\n";
    assert!(control.contains(provides), "{control}");
    assert_eq!(field("X-ROCm-GPU-Architecture"), "gfx1100 gfx1101\n");
    let listing = ok(tool("dpkg-deb", "dpkg").arg("-c").arg(&deb));
    assert!(listing.contains("./opt/rocm/.kpack/blas_lib_gfx110X.kpack"), "{listing}");
    let bsdtar = ok(tool("bsdtar", "libarchive-tools").arg("-tf").arg(&deb));
    assert_eq!(bsdtar, "debian-binary\ncontrol.tar.zst\ndata.tar.zst\n");
}

/// An rpm command over a database of its own.
fn rpm_in(root: &Path) -> Command {
    let mut command = tool("rpm", "rpm");
    command.arg("--root").arg(root);
    command
}

#[test]
fn rpms_install_verify_and_go_without_a_trace() {
    let temp = tempfile::tempdir().unwrap();
    let rpms = [generic(), group("gfx110X"), group("gfx120X")];
    for compression in [ZSTD, XZ, Compression::None, "zstd:10,long=27".parse().unwrap()] {
        let [generic, x110, x120] = rpms.each_ref().map(|package| {
            write_with(package, Format::Rpm, &options(compression, 2), temp.path()).0
        });
        for rpm in [&generic, &x110, &x120] {
            for command in ["rpm", "rpmkeys"] {
                let checked = ok(tool(command, "rpm").args(["-Kv", "--nosignature"]).arg(rpm));
                for what in ["Header SHA256", "Header SHA1", "Payload SHA256"] {
                    let line = checked.lines().find(|line| line.contains(what));
                    assert!(line.is_some_and(|l| l.ends_with(": OK")), "{what}:\n{checked}");
                }
            }
        }
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        ok(rpm_in(root).arg("--initdb"));
        let database = below(root, "none")[0].clone();
        let refused = run(rpm_in(root).arg("-i").arg(&x110)).unwrap_err();
        assert!(refused.contains("rocblas-generic = 7.1.0-1 is needed by"), "{refused}");
        ok(rpm_in(root).args(["-i", "--nosignature"]).args([&generic, &x110, &x120]));
        assert_eq!(ok(rpm_in(root).args(["-V", "rocblas-generic", "rocblas-gfx110X"])), "");
        let library = root.join("opt/rocm/lib/librocblas.so");
        assert_eq!(fs::read(&library).unwrap(), fs::read("/bin/true").unwrap());
        let linked = fs::read(root.join("opt/rocm/lib/rocblas/library/z.dat")).unwrap();
        assert_eq!(linked, [7; 70_000]);
        ok(rpm_in(root).args(["-e", "rocblas-gfx110X", "rocblas-gfx120X", "rocblas-generic"]));
        let left: Vec<String> = below(root, "none")
            .into_iter()
            .filter(|path| !path.starts_with(&database) && !path.contains("/lib/rpm"))
            .filter(|path| path.contains("opt/") || path.contains("licenses/"))
            .collect();
        assert_eq!(left, [""; 0]);
    }
}

#[test]
fn an_rpms_tags_are_read_back() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = group("gfx110X");
    package.rpm.insert("requires".to_owned(), vec!["glibc >= 2.34".to_owned()]);
    package
        .rpm
        .insert("supplements".to_owned(), vec!["(rocblas-generic and gpu(gfx1100))".to_owned()]);
    package.relate(RelationKind::Replaces, Relation::any("old"));
    package.relocatable = Some(path("opt/rocm"));
    let at = write(&package, Format::Rpm, temp.path());
    assert!(at.ends_with("rocblas-gfx110X-7.1.0-1.x86_64.rpm"));
    let query = |args: &[&str]| ok(tool("rpm", "rpm").args(args).arg(&at));
    let info = query(&["-qpi"]);
    for line in [
        "Name        : rocblas-gfx110X",
        "Architecture: x86_64",
        "License     : MIT",
        "Source RPM  : rocblas-gfx110X-7.1.0-1.src.rpm",
        "Build Host  : localhost",
        "Relocations : /opt/rocm ",
    ] {
        assert!(info.contains(line), "{line}:\n{info}");
    }
    assert_eq!(
        query(&["-qp", "--requires"]),
        "glibc >= 2.34\nrocblas-generic = 7.1.0-1\nrpmlib(CompressedFileNames) <= 3.0.4-1\n\
         rpmlib(FileDigests) <= 4.6.0-1\nrpmlib(PayloadFilesHavePrefix) <= 4.0-1\n\
         rpmlib(PayloadIsZstd) <= 5.4.18-1\nrpmlib(RichDependencies) <= 4.12.0-1\n"
    );
    assert_eq!(
        query(&["-qp", "--provides"]),
        "rocblas-gfx110X = 7.1.0-1\nrocblas-gfx110X(x86-64) = 7.1.0-1\n\
         rocblas-kernels = 7.1.0-1\n"
    );
    assert_eq!(query(&["-qp", "--supplements"]), "(rocblas-generic and gpu(gfx1100))\n");
    assert_eq!(query(&["-qp", "--obsoletes"]), "old\n");
    assert_eq!(query(&["-qpL"]), "/usr/share/licenses/rocblas-gfx110X/LICENSE\n");
    assert_eq!(
        query(&["-qpl"]),
        "/opt/rocm\n/opt/rocm/.kpack\n/opt/rocm/.kpack/blas_lib_gfx110X.kpack\n\
         /usr/share/licenses/rocblas-gfx110X\n/usr/share/licenses/rocblas-gfx110X/LICENSE\n"
    );
    assert!(query(&["-qp", "--changelog"]).starts_with("* Mon Jan 05 2026 Example Packagers"));
}

#[test]
fn an_rpms_payload_is_read_by_others() {
    let temp = tempfile::tempdir().unwrap();
    let at = write(&generic(), Format::Rpm, temp.path());
    let names = ok(tool("rpm", "rpm").arg("-qpl").arg(&at));
    tool("rpm2cpio", "rpm2cpio");
    tool("cpio", "cpio");
    let cpio = ok(Command::new("sh").args(["-c", "rpm2cpio \"$0\" | cpio -t --quiet"]).arg(&at));
    let bsdtar = ok(tool("bsdtar", "libarchive-tools").arg("-tf").arg(&at));
    let sorted = |text: &str, strip: &str| {
        let strip = |line: &str| line.trim_start_matches(strip).trim_end_matches('/').to_owned();
        let mut lines: Vec<String> = text.lines().map(strip).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&cpio, "./"), sorted(&names, "/"));
    assert_eq!(sorted(&bsdtar, "./"), sorted(&names, "/"));
    assert!(!names.lines().any(|line| line == "/opt" || line == "/usr"), "{names}");
}

/// The raw tags of a package's header, from rpm itself.
fn tags(at: &Path) -> BTreeMap<String, String> {
    let names = ok(tool("rpm", "rpm").arg("--querytags"));
    let mut tags = BTreeMap::new();
    for name in names.lines().filter(|name| !name.starts_with("HEADER")) {
        let format = format!("[%{{{name}}}\\n]");
        let value = ok(tool("rpm", "rpm").args(["-qp", "--nosignature", "--qf", &format]).arg(at));
        if value.trim() != "(none)" && !value.is_empty() {
            tags.insert(name.to_owned(), value);
        }
    }
    tags
}

#[test]
fn an_rpm_has_the_tags_of_rpmbuild() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = generic();
    package.relate(RelationKind::Depends, Relation::any("hip"));
    package.relate(RelationKind::Conflicts, Relation::exactly("other", "1-1"));
    package.relate(RelationKind::Recommends, Relation::any("rocblas-kernels"));
    file(&mut package.tree, "etc/rocm.conf", 0o644, "a = b\n");
    // rpmbuild takes what its user may read, as it is.
    let ours = write(&package, Format::Rpm, temp.path());
    let preamble = render::rpm_preamble(&package, &Templates::built_in(), 0).unwrap();
    let mut tree = package.tree.clone();
    let (license, text) = render::rpm_license(&package).unwrap();
    tree.insert(license, Entry::file(0o644, None, Source::bytes(text.into_bytes()))).unwrap();
    let root = temp.path().join("root");
    fs::create_dir(&root).unwrap();
    lay(&tree, &root);
    let owned = ok(tool("rpm", "rpm").args(["-qpl"]).arg(&ours));
    let mut list = String::new();
    for line in owned.lines() {
        let at = root.join(line.trim_start_matches('/'));
        let dir = if at.is_dir() && !at.is_symlink() { "%dir " } else { "" };
        let kind = if line.contains("/licenses/") && dir.is_empty() { "%license " } else { "" };
        let config = if line.starts_with("/etc/") { "%config(noreplace) " } else { "" };
        let mode = if dir.is_empty() && !at.is_symlink() {
            format!(
                "%attr({:04o},root,root) ",
                fs::metadata(&at).unwrap().permissions().mode() & 0o7777
            )
        } else {
            "%attr(-,root,root) ".to_owned()
        };
        list += &format!("{mode}{dir}{kind}{config}\"{line}\"\n");
    }
    let section = preamble.find("%changelog").unwrap();
    let (head, changelog) = preamble.split_at(section);
    let spec = format!(
        "AutoReqProv: no\n{head}\n%install\ncp -a {}/. %{{buildroot}}\n%files\n{list}\n{changelog}",
        root.display()
    );
    let spec_file = temp.path().join("a.spec");
    fs::write(&spec_file, &spec).unwrap();
    ok(tool("rpmbuild", "rpm")
        .env("SOURCE_DATE_EPOCH", DATE.to_string())
        .args(["-bb", "--target", "x86_64", "--nodebuginfo"])
        .args(["--define", &format!("_topdir {}", temp.path().join("rpmbuild").display())])
        .args(["--define", "_build_id_links none", "--define", "__os_install_post %{nil}"])
        .args(["--define", "_binary_payload w3.zstdio", "--define", "_buildhost localhost"])
        .args(["--define", "clamp_mtime_to_source_date_epoch 1"])
        .args(["--define", "use_source_date_epoch_as_buildtime 1"])
        .arg(&spec_file));
    let theirs = temp.path().join("rpmbuild/RPMS/x86_64").join(ours.file_name().unwrap());
    let (ours, theirs) = (tags(&ours), tags(&theirs));
    // Each with the reason for which it may differ.
    let allowed = [
        ("OPTFLAGS", "nothing is compiled"),
        ("PLATFORM", "names the distribution that rpmbuild ran on"),
        ("FILECLASS", "libmagic says more of an ELF file"),
        ("CLASSDICT", "has all classes that there are, so that its length is known beforehand"),
        ("PAYLOADDIGEST", "another version of libzstd"),
        ("PAYLOADSHA256", "the same"),
        ("SHA1HEADER", "follows"),
        ("SHA256HEADER", "follows"),
        (
            "SIGMD5",
            "left out: it is over header and payload, so that the payload would be read again",
        ),
        ("SIGSIZE", "follows"),
        ("LONGSIGSIZE", "follows"),
        ("PKGID", "is SIGMD5"),
        ("HDRID", "follows"),
    ];
    for (tag, reason) in allowed {
        if ours.get(tag) != theirs.get(tag) {
            println!("{tag} ({reason}): {:?}, {:?}", ours.get(tag), theirs.get(tag));
        }
    }
    println!("{} tags", ours.len());
    let mut differences = String::new();
    for name in ours.keys().chain(theirs.keys()).collect::<std::collections::BTreeSet<_>>() {
        if ours.get(name) != theirs.get(name) && !allowed.iter().any(|(tag, _)| tag == name) {
            differences +=
                &format!("{name}: {:?}, rpmbuild {:?}\n", ours.get(name), theirs.get(name));
        }
    }
    assert!(differences.is_empty(), "{differences}");
    // The archive itself is the same, byte for byte.
    assert!(ours.contains_key("PAYLOADDIGESTALT"));
}

#[test]
fn the_same_package_gives_the_same_bytes() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = generic();
    let content: Vec<u8> = (0..30_000_000_u32).map(|i| (i.wrapping_mul(i) >> 9) as u8).collect();
    file(&mut package.tree, "opt/big", 0o644, content);
    package
        .tree
        .insert(path("opt/any-time"), Entry::file(0o644, None, Source::bytes(*b"x")))
        .unwrap();
    for format in [Format::Deb, Format::Rpm] {
        for compression in [ZSTD, "zstd:1,long=27".parse().unwrap(), Compression::Xz { level: 0 }] {
            let [one, many] = [1, 5].map(|threads| {
                let (at, report) =
                    write_with(&package, format, &options(compression, threads), temp.path());
                (fs::read(at).unwrap(), report)
            });
            assert!(one == many, "{format} {compression}");
            let sum = ok(tool("sha256sum", "coreutils")
                .arg(temp.path().join(package::file_name(&package, format))));
            let sha256: String = one.1.sha256.iter().map(|b| format!("{b:02x}")).collect();
            assert!(sum.starts_with(&sha256));
        }
    }
}

#[test]
fn architecture_independent_packages() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = sample("rocblas-dev", Kind::Plain);
    package.arch = Arch::Independent;
    file(&mut package.tree, "opt/rocm/include/rocblas.h", 0o644, "#pragma once\n");
    let deb = write(&package, Format::Deb, temp.path());
    assert!(deb.ends_with("rocblas-dev_7.1.0-1_all.deb"));
    let rpm = write(&package, Format::Rpm, temp.path());
    assert!(rpm.ends_with("rocblas-dev-7.1.0-1.noarch.rpm"));
    let arch = ok(tool("rpm", "rpm").args(["-qp", "--qf", "%{ARCH}"]).arg(&rpm));
    assert_eq!(arch, "noarch");
}

#[test]
fn what_cannot_be_packaged_is_refused_with_all_reasons() {
    let mut package = generic();
    let tree = &mut package.tree;
    tree.insert(TreePath::new(b"opt/line\nbreak").unwrap(), Entry::dir()).unwrap();
    tree.insert(TreePath::new(b"opt/\xff").unwrap(), Entry::dir()).unwrap();
    other(tree, "opt/nowhere", EntryKind::HardLink(path("opt/missing")));
    other(tree, "opt/nul", EntryKind::Symlink(b"a\0b".to_vec()));
    let faults = |format| {
        let mut out = tempfile::tempfile().unwrap();
        let templates = Templates::built_in();
        let result =
            package::write(&package, format, &templates, &options(ZSTD, 1), &mut out, &Silent);
        assert_eq!(out.metadata().unwrap().len(), 0);
        result.unwrap_err().iter().count()
    };
    assert_eq!(faults(Format::Deb), 3);
    assert_eq!(faults(Format::Rpm), 4);
}

#[test]
fn templates_can_be_replaced_one_by_one() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("templates");
    fs::create_dir_all(dir.join("deb")).unwrap();
    fs::write(dir.join("deb/postinst.hbs"), "#!/bin/sh\necho \"{{name}} & co\"\n").unwrap();
    let templates = Templates::with_overrides(&dir).unwrap();
    let texts = render::deb_texts(&generic(), &templates, 1).unwrap();
    assert_eq!(
        texts.scripts,
        [("postinst", "#!/bin/sh\necho \"rocblas-generic & co\"\n".to_owned())]
    );

    fs::write(dir.join("deb/controll.hbs"), "").unwrap();
    fs::write(dir.join("deb/control.hbs"), "{{#if}").unwrap();
    let errors = Templates::with_overrides(&dir).unwrap_err();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert!(errors[0].ends_with("control.hbs: is no handlebars template"), "{errors:#?}");
    assert!(errors[1].ends_with("controll.hbs: is no template of gfxpack"), "{errors:#?}");
}

#[test]
fn libraries_in_the_linkers_path_renew_its_cache() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = generic();
    file(&mut package.tree, "usr/lib/libx.so.1", 0o755, "x");
    let deb = write(&package, Format::Deb, temp.path());
    let triggers = ok(tool("dpkg-deb", "dpkg").arg("-I").arg(&deb).arg("triggers"));
    assert_eq!(triggers, "activate-noawait ldconfig\n");
    let rpm = write(&package, Format::Rpm, temp.path());
    let scripts = ok(tool("rpm", "rpm").args(["-qp", "--scripts"]).arg(&rpm));
    assert_eq!(
        scripts,
        "postinstall program: /sbin/ldconfig\npostuninstall program: /sbin/ldconfig\n"
    );
    let requires = ok(tool("rpm", "rpm").args(["-qp", "--requires"]).arg(&rpm));
    assert!(requires.contains("/sbin/ldconfig\n"), "{requires}");
    let names = ok(tool("rpm", "rpm").args(["-qpl"]).arg(&rpm));
    assert!(!names.lines().any(|line| line == "/usr/lib"), "{names}");
}

#[test]
fn a_preamble_that_renames_the_package_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir_all(temp.path().join("rpm")).unwrap();
    let at = temp.path().join("rpm/preamble.hbs");
    for (text, what) in [
        ("Name: x\n", "the preamble has no `Version:`"),
        ("Name: {{name}}\nRequires: %{name}\n", "line 2 of the preamble has a macro"),
        (
            "Name: x\nVersion: 1\nRelease: 1\nSummary: s\nLicense: MIT\nBuildArch: noarch\n%description\nd\n",
            "`Name` is `x`, expected `rocblas-generic`",
        ),
        ("Name: {{nam}}\n", "there is no variable `nam`"),
    ] {
        fs::write(&at, text).unwrap();
        let templates = Templates::with_overrides(temp.path()).unwrap();
        let mut out = tempfile::tempfile().unwrap();
        let (package, options) = (generic(), options(ZSTD, 1));
        let errors = package::write(&package, Format::Rpm, &templates, &options, &mut out, &Silent)
            .unwrap_err();
        let error = errors.iter().next().unwrap();
        assert!(error.message().contains(what), "{error}");
        assert_eq!(error.path(), Some(at.as_path()));
    }
}

/// A file that reads as zeros and takes no room.
fn sparse(dir: &Path, size: u64, begin: &[u8]) -> Source {
    let at = dir.join(format!("sparse{size}"));
    let mut out = File::create(&at).unwrap();
    out.write_all(begin).unwrap();
    out.set_len(size).unwrap();
    drop(out);
    let metadata = fs::metadata(&at).unwrap();
    Source::File(gfxpack::tree::InputFile::new(at, &metadata).into())
}

#[test]
fn a_deb_that_is_sure_to_be_too_large_is_refused_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = sample("huge", Kind::Plain);
    let entry = Entry::file(0o644, None, sparse(temp.path(), 10_000_000_000, b"begin"));
    package.tree.insert(path("opt/huge"), entry).unwrap();
    let mut out = tempfile::tempfile().unwrap();
    let errors = package::write(
        &package,
        Format::Deb,
        &Templates::built_in(),
        &options(Compression::None, 1),
        &mut out,
        &Silent,
    )
    .unwrap_err();
    let error = errors.iter().next().unwrap();
    assert!(error.to_string().contains("does not fit into a .deb"), "{error}");
    assert!(error.hint_text().unwrap().contains("/opt/huge (10000000000 bytes)"));
    assert_eq!(out.metadata().unwrap().len(), 0);
}

#[test]
fn a_deb_of_archives_that_is_sure_to_be_too_large_is_refused_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = group("gfx110X");
    for (name, size) in [("a", 6_000_000_000_u64), ("b", 4_000_000_000)] {
        let header =
            [b"KPAK\x01\0\0\0".as_slice(), &[0; 60], &[9, 0, 0, 0], b"\x28\xb5\x2f\xfd"].concat();
        let entry = Entry::file(0o644, None, sparse(temp.path(), size, &header));
        package.tree.insert(path(&format!("opt/rocm/.kpack/{name}.kpack")), entry).unwrap();
    }
    let mut out = tempfile::tempfile().unwrap();
    let begun = std::time::Instant::now();
    let (templates, options) = (Templates::built_in(), options(ZSTD, 1));
    let result = package::write(&package, Format::Deb, &templates, &options, &mut out, &Silent);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let errors = result.unwrap_err();
    let error = errors.iter().next().unwrap();
    assert!(
        error.to_string().contains("of the group `gfx110X` does not fit into a .deb"),
        "{error}"
    );
    let hint = error.hint_text().unwrap();
    assert!(hint.contains("/opt/rocm/.kpack/a.kpack (6000000000 bytes), /opt/"), "{hint}");
    assert_eq!(out.metadata().unwrap().len(), 0);
}

/// Bytes of four bits of entropy each and no repetition: half as large compressed, as large as before passed through.
fn half(seed: u64, size: usize) -> Vec<u8> {
    let mut dice = Dice(seed);
    (0..size).map(|_| b'a' + dice.roll(16) as u8).collect()
}

#[test]
fn what_is_compressed_already_is_not_worked_on_again() {
    const SIZE: usize = 3 << 20;
    let temp = tempfile::tempdir().unwrap();
    let mut package = sample("mixed", Kind::Plain);
    for (i, name) in
        ["opt/a", "opt/b.gz", "opt/c", "opt/d.gz", "opt/e.gz", "opt/f"].iter().enumerate()
    {
        let mut content = half(i as u64, SIZE + i);
        if name.ends_with(".gz") {
            content[..2].copy_from_slice(b"\x1f\x8b");
        }
        file(&mut package.tree, name, 0o644, content);
    }
    for format in [Format::Deb, Format::Rpm] {
        for compression in ["zstd:3", "zstd:10,long=24"].map(|how| how.parse().unwrap()) {
            let [one, many] = [1, 5].map(|threads| {
                let options = options(compression, threads);
                fs::read(write_with(&package, format, &options, temp.path()).0).unwrap()
            });
            assert!(one == many, "{format} {compression}");
            let expected = 3 * SIZE + 3 * SIZE / 2;
            let close = one.len() > expected - SIZE / 4 && one.len() < expected + SIZE / 4;
            assert!(close, "{format} {compression}: {}, expected {expected}", one.len());
        }
    }
    let root = dpkg_root();
    ok(dpkg(root.path()).arg("-i").arg(write(&package, Format::Deb, temp.path())));
    assert_eq!(ok(dpkg(root.path()).arg("--verify")), "");
    let root = tempfile::tempdir().unwrap();
    ok(rpm_in(root.path()).arg("--initdb"));
    let rpm = write(&package, Format::Rpm, temp.path());
    ok(rpm_in(root.path()).args(["-i", "--nosignature"]).arg(&rpm));
    assert_eq!(ok(rpm_in(root.path()).args(["-V", "mixed"])), "");
}

#[test]
fn classes_and_colours_of_files_are_those_of_their_first_bytes() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = generic();
    let tree = &mut package.tree;
    other(tree, "opt/rocm/lib/z.so", EntryKind::HardLink(path("opt/rocm/lib/librocblas.so.5.0")));
    let rpm = write(&package, Format::Rpm, temp.path());
    let format = "[%{FILENAMES}|%{FILECLASS}|%{FILECOLORS}\n]";
    let listed = ok(tool("rpm", "rpm").args(["-qp", "--nosignature", "--qf", format]).arg(&rpm));
    let elf = "ELF 64-bit LSB shared object, x86-64, version 1 (SYSV)|2";
    for expected in [
        &format!("/opt/rocm/lib/librocblas.so.5.0|{elf}"),
        &format!("/opt/rocm/lib/z.so|{elf}"),
        "/opt/rocm/lib/librocblas.so|symbolic link to `librocblas.so.5'|0",
        "/opt/rocm/lib/rocblas/library|directory|0",
        "/opt/rocm/lib/rocblas/library/empty|empty|0",
        "/opt/rocm/lib/rocblas/library/a b.dat||0",
        "/opt/rocm/bin/script|POSIX shell script, ASCII text executable|0",
        "/opt/rocm/share/ünïcode.txt|ASCII text|0",
    ] {
        assert!(listed.lines().any(|line| line == expected), "{expected}:\n{listed}");
    }
}

#[test]
fn capabilities_are_kept_in_an_rpm_and_refused_for_a_deb() {
    let temp = tempfile::tempdir().unwrap();
    let program = temp.path().join("program");
    fs::copy("/bin/true", &program).unwrap();
    ok(tool("setcap", "libcap2-bin").arg("cap_perfmon,cap_sys_nice=ep").arg(&program));
    let source = |at: &Path| {
        let input = gfxpack::tree::InputFile::new(at.to_owned(), &fs::metadata(at).unwrap());
        Source::File(input.into())
    };
    let mut package = sample("tools", Kind::Plain);
    let tree = &mut package.tree;
    tree.insert(path("opt/bin/prof"), Entry::file(0o755, None, source(&program))).unwrap();
    other(tree, "opt/bin/profiler", EntryKind::HardLink(path("opt/bin/prof")));
    file(tree, "opt/bin/other", 0o755, "other");
    let rpm = write(&package, Format::Rpm, temp.path());
    let format = "[%{FILENAMES}|%{FILECAPS}\n]";
    let listed = ok(tool("rpm", "rpm").args(["-qp", "--nosignature", "--qf", format]).arg(&rpm));
    for name in ["prof", "profiler"] {
        let line = format!("/opt/bin/{name}|cap_sys_nice,cap_perfmon=ep\n");
        assert!(listed.contains(&line), "{listed}");
    }
    assert!(listed.contains("/opt/bin/other|\n"), "{listed}");
    let requires = ok(tool("rpm", "rpm").args(["-qp", "--nosignature", "--requires"]).arg(&rpm));
    assert!(requires.contains("rpmlib(FileCaps) <= 4.6.1-1"), "{requires}");
    let root = tempfile::tempdir().unwrap();
    ok(rpm_in(root.path()).arg("--initdb"));
    ok(rpm_in(root.path()).args(["-i", "--nosignature"]).arg(&rpm));
    assert_eq!(ok(rpm_in(root.path()).args(["-V", "tools"])), "");
    let installed = ok(tool("getcap", "libcap2-bin").arg(root.path().join("opt/bin/profiler")));
    assert!(installed.contains("cap_sys_nice,cap_perfmon=ep"), "{installed}");

    let mut out = tempfile::tempfile().unwrap();
    let (templates, options) = (Templates::built_in(), options(ZSTD, 1));
    let errors =
        package::write(&package, Format::Deb, &templates, &options, &mut out, &Silent).unwrap_err();
    let error = errors.iter().next().unwrap().to_string();
    let expected =
        "`/opt/bin/prof` has the capabilities `cap_sys_nice,cap_perfmon=ep`, for which a .deb";
    assert!(error.contains(expected), "{error}");
}

#[test]
#[ignore = "reads 18 GB of zeros and installs them: minutes, and 19 GB of disk"]
fn files_over_four_and_eight_gigabytes() -> io::Result<()> {
    let temp = tempfile::tempdir()?;
    let mut package = sample("huge", Kind::Plain);
    let entry = Entry::file(0o644, None, sparse(temp.path(), 9 << 30, b"begin"));
    package.tree.insert(path("opt/huge/nine"), entry).unwrap();
    other(&mut package.tree, "opt/huge/z", EntryKind::HardLink(path("opt/huge/nine")));
    file(&mut package.tree, "opt/huge/small", 0o644, "small");
    let deb = write(&package, Format::Deb, temp.path());
    let listing = ok(tool("dpkg-deb", "dpkg").arg("-c").arg(&deb));
    assert!(listing.contains(" 9663676416 "), "{listing}");
    let rpm = write(&package, Format::Rpm, temp.path());
    ok(tool("rpm", "rpm").args(["-K", "--nosignature"]).arg(&rpm));
    let listing = ok(tool("rpm", "rpm").args(["-qplv"]).arg(&rpm));
    assert!(listing.contains(" 9663676416 "), "{listing}");
    let root = tempfile::tempdir()?;
    ok(rpm_in(root.path()).arg("--initdb"));
    ok(rpm_in(root.path()).args(["-i", "--nosignature"]).arg(&rpm));
    assert_eq!(ok(rpm_in(root.path()).args(["-V", "huge"])), "");
    let root = dpkg_root();
    ok(dpkg(root.path()).arg("-i").arg(&deb));
    assert_eq!(ok(dpkg(root.path()).arg("--verify")), "");
    Ok(())
}
