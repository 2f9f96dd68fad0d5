//! What holds for packages of both formats: the same bytes from any number of threads, what is refused,
//! templates, compression. `debs.rs` and `rpms.rs` hold each format against its tools.

// The lints allow both in tests, but do not see that helpers of tests are tests.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod common;
#[path = "common/packages.rs"]
mod packages;

use std::fs;
use std::io;
use std::path::Path;

use common::{ok, tool};
use gfxpack::package::compress::Compression;
use gfxpack::package::render::{self, Templates};
use gfxpack::package::spec::{Arch, Kind};
use gfxpack::package::{self, Format};
use gfxpack::progress::Silent;
use gfxpack::tree::{Entry, EntryKind, Source, TreePath};
use packages::{
    Dice, ZSTD, dpkg, dpkg_root, file, generic, options, other, path, rpm_in, sample, silent,
    sparse, write, write_with,
};

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
            let sha256: String =
                one.1.sha256.iter().flatten().map(|b| format!("{b:02x}")).collect();
            assert!(sum.starts_with(&sha256));
        }
    }
}

#[test]
fn a_file_that_lost_its_end_is_an_error_however_many_threads_there_are() {
    let temp = tempfile::tempdir().unwrap();
    let mut package = sample("short", Kind::Plain);
    let source = sparse(temp.path(), 40 << 20, b"begin");
    package.tree.insert(path("opt/large"), Entry::file(0o644, None, source)).unwrap();
    file(&mut package.tree, "opt/z", 0o644, "z");
    let at = temp.path().read_dir().unwrap().next().unwrap().unwrap().path();
    fs::File::options().write(true).open(at).unwrap().set_len(20 << 20).unwrap();
    for format in [Format::Deb, Format::Rpm] {
        for threads in [1, 5] {
            let mut out = tempfile::tempfile().unwrap();
            let (templates, options) = (Templates::built_in(), options(ZSTD, threads));
            let errors = package::write(&package, format, &templates, &options, &mut out, &Silent)
                .unwrap_err();
            let error = errors.iter().next().unwrap().to_string();
            assert!(error.contains("cannot read"), "{error}");
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
    assert_eq!(faults(Format::Rpm), 3);
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
    silent(dpkg(root.path()).arg("--verify"));
    let root = tempfile::tempdir().unwrap();
    ok(rpm_in(root.path()).arg("--initdb"));
    let rpm = write(&package, Format::Rpm, temp.path());
    ok(rpm_in(root.path()).args(["-i", "--nosignature"]).arg(&rpm));
    silent(rpm_in(root.path()).args(["-V", "mixed"]));
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
    silent(rpm_in(root.path()).args(["-V", "tools"]));
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
    silent(rpm_in(root.path()).args(["-V", "huge"]));
    let root = dpkg_root();
    ok(dpkg(root.path()).arg("-i").arg(&deb));
    silent(dpkg(root.path()).arg("--verify"));
    Ok(())
}
