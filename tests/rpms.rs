//! `.rpm` packages held against the real tools: rpmbuild tag by tag, rpm that installs them, cpio, bsdtar.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/packages.rs"]
mod packages;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use common::{fails, gfxpack, ok, run, tool};
use gfxpack::package::compress::Compression;
use gfxpack::package::render::{self, Templates};
use gfxpack::package::spec::{Arch, Kind, Package, Relation, RelationKind};
use gfxpack::package::{self, Format};
use gfxpack::progress::Silent;
use gfxpack::tree::{Entry, EntryKind, Source, TreePath};
use packages::{
    DATE, XZ, ZSTD, below, file, generic, group, lay, options, other, path, rpm_in, sample, silent,
    write, write_with,
};

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
        let refused = fails(rpm_in(root).arg("-i").arg(&x110), 1);
        assert!(refused.contains("rocblas-generic = 7.1.0-1 is needed by"), "{refused}");
        ok(rpm_in(root).args(["-i", "--nosignature"]).args([&generic, &x110, &x120]));
        silent(rpm_in(root).args(["-V", "rocblas-generic", "rocblas-gfx110X"]));
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

/// Names in Latin-1: a directory, a file, a second name of it, a link and what it leads to.
fn latin() -> Package {
    let mut package = sample("latin", Kind::Plain);
    package.arch = Arch::Independent;
    let tree = &mut package.tree;
    let at = |name: &[u8]| TreePath::new([b"opt/caf\xe9/", name].concat()).unwrap();
    let target = b"na\xefve \xff".to_vec();
    for (path, kind) in [
        (TreePath::new(b"opt/caf\xe9").unwrap(), EntryKind::Dir),
        (at(b"link"), EntryKind::Symlink(target.clone())),
        (at(&target), EntryKind::File(Source::bytes(*b"text"))),
        (at(b"\xf0"), EntryKind::File(Source::bytes(*b"plain"))),
        (at(b"\xf1"), EntryKind::HardLink(at(&target))),
    ] {
        let mode = if matches!(kind, EntryKind::Dir) { 0o755 } else { 0o644 };
        tree.insert(path, Entry { mode, mtime: Some(DATE), kind }).unwrap();
    }
    package
}

#[test]
fn names_that_are_not_utf8_are_those_of_rpmbuild() {
    let temp = tempfile::tempdir().unwrap();
    let package = latin();
    let ours = write(&package, Format::Rpm, temp.path());
    let root = temp.path().join("root");
    fs::create_dir(&root).unwrap();
    lay(&package.tree, &root);
    let spec = temp.path().join("a.spec");
    let text = format!(
        "Name: latin\nVersion: 7.1.0\nRelease: 1\nSummary: s\nLicense: MIT\nBuildArch: noarch\n\
         %description\n%install\ncp -a {}/. %{{buildroot}}\n%files\n/opt/*\n",
        root.display()
    );
    fs::write(&spec, text).unwrap();
    ok(tool("rpmbuild", "rpm")
        .args(["-bb", "--define", &format!("_topdir {}", temp.path().join("rpmbuild").display())])
        .args(["--define", "_invalid_encoding_terminates_build 0"])
        .arg(&spec));
    let theirs = temp.path().join("rpmbuild/RPMS/noarch").join(ours.file_name().unwrap());
    // As bytes, and without the licence, which rpmbuild was given none of.
    let names = |rpm: &Path| {
        let format = "%{ENCODING}\n[%{FILENAMES}|%{FILELINKTOS}|%{FILENLINKS}\n]";
        let mut command = tool("rpm", "rpm");
        command.args(["-qp", "--nosignature", "--qf", format]).arg(rpm);
        let said = command.output().unwrap().stdout;
        let lines = said.split(|&b| b == b'\n').map(<[u8]>::to_vec);
        lines.filter(|line| !line.starts_with(b"/usr/share/")).collect::<Vec<_>>()
    };
    let expected: [&[u8]; 7] = [
        b"(none)",
        b"/opt/caf\xe9||1",
        b"/opt/caf\xe9/link|na\xefve \xff|1",
        b"/opt/caf\xe9/na\xefve \xff||2",
        b"/opt/caf\xe9/\xf0||1",
        b"/opt/caf\xe9/\xf1||2",
        b"",
    ];
    assert_eq!(names(&ours), expected);
    assert_eq!(names(&theirs), expected);
    let utf8 = write(&generic(), Format::Rpm, temp.path());
    assert_eq!(names(&utf8)[0], b"utf-8");
}

#[test]
fn names_that_are_not_utf8_are_installed_verified_and_removed() {
    let temp = tempfile::tempdir().unwrap();
    let rpm = write(&latin(), Format::Rpm, temp.path());
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    ok(rpm_in(root).arg("--initdb"));
    ok(rpm_in(root).args(["-i", "--nosignature"]).arg(&rpm));
    silent(rpm_in(root).args(["-V", "latin"]));
    let name = |bytes: &'static [u8]| root.join(OsStr::from_bytes(bytes));
    let file = name(b"opt/caf\xe9/na\xefve \xff");
    assert_eq!(fs::read(&file).unwrap(), b"text");
    assert_eq!(fs::read(name(b"opt/caf\xe9/link")).unwrap(), b"text", "the link leads there");
    assert_eq!(fs::metadata(name(b"opt/caf\xe9/\xf1")).unwrap().nlink(), 2);
    fs::write(&file, "other").unwrap();
    let changed = run(rpm_in(root).args(["-V", "latin"]));
    assert_eq!((changed.status, changed.stdout.lines().count()), (Some(1), 2), "{changed:?}");
    ok(rpm_in(root).args(["-e", "latin"]));
    assert!(!name(b"opt/caf\xe9").exists());
    // Our own readers agree with what it says of itself, and the metadata of repositories are in UTF-8.
    let deb = write(&latin(), Format::Deb, temp.path());
    ok(gfxpack().args(["verify", "--packages-dir"]).arg(temp.path()));
    for package in [&rpm, &deb] {
        let shown = ok(gfxpack().arg("inspect").arg(package));
        for name in [r"/opt/caf\xe9/\xf0", r"/opt/caf\xe9/\xf1", r"na\xefve \xff"] {
            assert!(shown.contains(name), "{name}: {shown}");
        }
    }
    ok(gfxpack().args(["repo", "create"]).arg(temp.path().join("repository")).args([&rpm, &deb]));
}
