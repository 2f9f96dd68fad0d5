//! `.deb` packages held against the real tools: dpkg-deb byte for byte, dpkg that installs them, bsdtar.

// The lints allow both in tests, but do not see that helpers of tests are tests.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod common;
#[path = "common/packages.rs"]
mod packages;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use common::{fails, ok, run, tool};
use gfxpack::package::compress::Compression;
use gfxpack::package::render::{self, Templates};
use gfxpack::package::spec::{Kind, Package};
use gfxpack::package::{self, Format};
use gfxpack::progress::Silent;
use gfxpack::tree::{Entry, EntryKind, Source, TreePath};
use packages::{
    DATE, Dice, XZ, ZSTD, below, dpkg, dpkg_root, file, generic, group, lay, options, other, path,
    sample, silent, sparse, write, write_with,
};

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

/// Content is written before it is known how large the control member becomes, which holds its digests.
#[test]
fn the_control_member_fits_before_content_that_was_written_first() {
    let dir = tempfile::tempdir().unwrap();
    for (files, size) in [(1, 12 << 20), (3000, 4000), (3000, 10)] {
        let mut package = sample("large", Kind::Generic);
        for nth in 0..files {
            let mut state = nth as u64 + 1;
            let noise = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            });
            let noise: Vec<u8> = noise.take(size).collect();
            file(&mut package.tree, &format!("opt/{nth}"), 0o644, noise);
        }
        // As it comes, in the room that was foreseen, and moved.
        for compression in [Compression::None, ZSTD, Compression::Xz { level: 0 }] {
            let (deb, _) = write_with(&package, Format::Deb, &options(compression, 2), dir.path());
            let members = ok(tool("ar", "binutils").arg("t").arg(&deb));
            assert_eq!(members.lines().count(), 3, "{members}");
            let out = dir.path().join("out");
            ok(tool("dpkg-deb", "dpkg").arg("-R").args([&deb, &out]));
            let check = ["--check", "--quiet", "DEBIAN/md5sums"];
            ok(tool("md5sum", "coreutils").args(check).current_dir(&out));
            let sums = fs::read_to_string(out.join("DEBIAN/md5sums")).unwrap();
            assert!(sums.lines().count() >= files, "{sums}");
            fs::remove_dir_all(&out).unwrap();
        }
    }
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
        let refused = fails(dpkg(root).arg("-i").arg(&x110), 1);
        assert!(
            refused.contains("rocblas-gfx110x depends on rocblas-generic (= 7.1.0-1)"),
            "{refused}"
        );
        ok(dpkg(root).args(["-P", "rocblas-gfx110x"]));
        ok(dpkg(root).arg("-i").args([&generic, &x110, &x120]));
        silent(dpkg(root).arg("--verify"));
        silent(dpkg(root).arg("--audit"));
        let library = root.join("opt/rocm/lib/librocblas.so");
        assert_eq!(fs::read(&library).unwrap(), fs::read("/bin/true").unwrap());
        assert_eq!(
            fs::read(root.join("opt/rocm/.kpack/blas_lib_gfx110X.kpack")).unwrap(),
            b"gfx110X"
        );
        fs::write(root.join("opt/rocm/bin/script"), "changed").unwrap();
        let changed = run(dpkg(root).arg("--verify")).stdout;
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
    let long = Compression::Zstd { level: 3, long: Some(27) };
    for (compression, a, b) in [
        (ZSTD, 6_200_000_000, 4_100_000_000),
        (long, 12_000_000_000, 8_000_000_000),
        (XZ, 12_000_000_000, 8_000_000_000),
    ] {
        refused_with_archives(compression, a, b);
    }
}

/// Of two archives with these sizes.
fn refused_with_archives(compression: Compression, a: u64, b: u64) {
    let temp = tempfile::tempdir().unwrap();
    let mut package = group("gfx110X");
    for (name, size) in [("a", a), ("b", b)] {
        let header =
            [b"KPAK\x01\0\0\0".as_slice(), &[0; 60], &[9, 0, 0, 0], b"\x28\xb5\x2f\xfd"].concat();
        let entry = Entry::file(0o644, None, sparse(temp.path(), size, &header));
        package.tree.insert(path(&format!("opt/rocm/.kpack/{name}.kpack")), entry).unwrap();
    }
    let mut out = tempfile::tempfile().unwrap();
    let begun = std::time::Instant::now();
    let (templates, options) = (Templates::built_in(), options(compression, 1));
    let result = package::write(&package, Format::Deb, &templates, &options, &mut out, &Silent);
    // To read ten gigabytes takes longer.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let errors = result.unwrap_err();
    let error = errors.iter().next().unwrap();
    assert!(
        error.to_string().contains("of the group `gfx110X` does not fit into a .deb"),
        "{error}"
    );
    let hint = error.hint_text().unwrap();
    let largest = format!("/opt/rocm/.kpack/a.kpack ({a} bytes), /opt/");
    assert!(hint.contains(&largest), "{hint}");
    assert_eq!(out.metadata().unwrap().len(), 0);
}
