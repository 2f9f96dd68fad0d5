//! Alternatives and the linker's path, by real installs: dpkg and rpm run the packages' scripts.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/roots.rs"]
mod roots;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use common::{example_config, example_shards, gfxpack, ok, tool};
use roots::as_root;
use tempfile::TempDir;

/// Two alternatives: one of the host package, and one that each group offers.
const PACKAGES: &str = r#"{
  "linker_path": { "package": "rocm-ld-conf" },
  "externals": { "libamdhip64.so.*": null },
  "packages": [{
    "name": "rocblas",
    "contents": [{ "artifact": "blas", "components": ["lib", "run"], "prefixes": ["math-libs/BLAS/rocBLAS/stage"] }],
    "alternatives": [
      { "link": "/usr/bin/rocblas-bench", "name": "rocblas-bench", "path": "{prefix}/bin/rocblas-bench", "priority": 50,
        "followers": [{ "link": "/usr/bin/rocblas-tool", "name": "rocblas-tool", "path": "{prefix}/bin/rocblas-tool" }] },
      { "link": "/usr/share/rocblas-lazy.dat", "name": "rocblas-lazy", "priority": 20, "in": "group",
        "path": "{prefix}/lib/rocblas/library/TensileLibrary_lazy_gfx1100.dat" },
      { "link": "/usr/share/rocblas-lazy.dat", "name": "rocblas-lazy", "priority": 10, "in": "group",
        "path": "{prefix}/lib/rocblas/library/TensileLibrary_lazy_gfx1200.dat" }
    ]
  }]
}"#;

/// Packages of two versions, in one format.
fn built(format: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let packages = dir.path().join("packages.json");
    fs::write(&packages, PACKAGES).unwrap();
    for version in ["7.1.0", "7.2.0"] {
        let mut command = gfxpack();
        command.arg("build").arg("--input-shards-dir").arg(example_shards());
        command.arg("--config").arg(example_config()).arg("--packages").arg(&packages);
        command.arg("--output-dir").arg(dir.path().join(version)).args(["--release", "1"]);
        // No distribution is in the roots that these are installed in.
        ok(command.args(["--version", version, "--format", format, "--no-auto-deps"]));
    }
    dir
}

/// Where a link of update-alternatives leads, in the end of its second step; `None` where it is gone.
fn choice(root: &Path, link: &str) -> Option<String> {
    let through = fs::read_link(root.join(link)).ok()?;
    let through = through.strip_prefix("/").unwrap();
    assert!(through.starts_with("etc/alternatives"), "{}", through.display());
    Some(fs::read_link(root.join(through)).unwrap().to_string_lossy().into_owned())
}

const BENCH: Option<&str> = Some("/opt/rocm/bin/rocblas-bench");
const TOOL: Option<&str> = Some("/opt/rocm/bin/rocblas-tool");
const LAZY_110: Option<&str> =
    Some("/opt/rocm/lib/rocblas/library/TensileLibrary_lazy_gfx1100.dat");
const LAZY_120: Option<&str> =
    Some("/opt/rocm/lib/rocblas/library/TensileLibrary_lazy_gfx1200.dat");

/// A rival for `rocblas-bench`, which the administrator chooses.
fn choose_a_rival(root: &Path) {
    fs::create_dir_all(root.join("usr/local/bin")).unwrap();
    fs::write(root.join("usr/local/bin/my-bench"), "").unwrap();
    let alternatives = |args: &[&str]| {
        // Beside the root where update-alternatives keeps its books in it.
        let mut command = as_root("chroot", "coreutils");
        ok(command.arg(root).arg("/usr/bin/update-alternatives").args(args));
    };
    let rival = "/usr/local/bin/my-bench";
    alternatives(&["--install", "/usr/bin/rocblas-bench", "rocblas-bench", rival, "10"]);
    alternatives(&["--set", "rocblas-bench", rival]);
}

/// A root with a shell and update-alternatives, for scripts that are run inside.
fn root() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for dir in [
        "usr/bin",
        "usr/sbin",
        "usr/share",
        "usr/lib/x86_64-linux-gnu",
        "usr/lib64",
        "opt",
        "dev",
        "tmp",
        "etc/alternatives",
        "var/lib/dpkg/alternatives",
        "var/log",
        "var/lib/alternatives",
    ] {
        fs::create_dir_all(root.path().join(dir)).unwrap();
    }
    for (link, to) in
        [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")]
    {
        std::os::unix::fs::symlink(to, root.path().join(link)).unwrap();
    }
    tool("update-alternatives", "dpkg");
    let files = [
        "/bin/sh",
        "/usr/bin/update-alternatives",
        "/sbin/ldconfig",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    ];
    for file in files {
        let to = root.path().join(&file[1..]);
        fs::copy(file, &to).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
    File::create(root.path().join("etc/ld.so.conf")).unwrap();
    fs::write(root.path().join("etc/ld.so.conf"), "include /etc/ld.so.conf.d/*.conf\n").unwrap();
    File::create(root.path().join("dev/null")).unwrap();
    root
}

/// Whether the linker's cache of the root knows a library.
fn cached(root: &Path, library: &str) -> bool {
    let printed =
        ok(as_root("ldconfig", "libc-bin").arg("-p").arg("-C").arg(root.join("etc/ld.so.cache")));
    printed.contains(library)
}

/// What both formats have to do, with the commands of one.
fn life(root: &Path, install: impl Fn(&str, &[&str]), remove: impl Fn(&[&str]), after: impl Fn()) {
    let at = |link: &str| choice(root, link);
    install("7.1.0", &["rocm-ld-conf", "rocblas-generic", "rocblas-gfx110X", "rocblas-gfx120X"]);
    after();
    assert_eq!(at("usr/bin/rocblas-bench").as_deref(), BENCH);
    assert_eq!(at("usr/bin/rocblas-tool").as_deref(), TOOL);
    assert_eq!(at("usr/share/rocblas-lazy.dat").as_deref(), LAZY_110);
    assert!(cached(root, "/opt/rocm/lib/librocblas.so.5"));

    // The administrator's choice stays over an upgrade, and so do both groups' offers.
    choose_a_rival(root);
    install("7.2.0", &["rocm-ld-conf", "rocblas-generic", "rocblas-gfx110X", "rocblas-gfx120X"]);
    assert_eq!(at("usr/bin/rocblas-bench").as_deref(), Some("/usr/local/bin/my-bench"));
    assert_eq!(at("usr/share/rocblas-lazy.dat").as_deref(), LAZY_110);

    // One of two groups goes: the other takes its place.
    remove(&["rocblas-gfx110X"]);
    assert_eq!(at("usr/share/rocblas-lazy.dat").as_deref(), LAZY_120);

    // All go: what was theirs is gone, and what was not is there.
    remove(&["rocblas-gfx120X", "rocblas-generic", "rocm-ld-conf"]);
    after();
    assert_eq!(at("usr/share/rocblas-lazy.dat"), None);
    assert_eq!(at("usr/bin/rocblas-tool"), None);
    assert_eq!(at("usr/bin/rocblas-bench").as_deref(), Some("/usr/local/bin/my-bench"));
    assert!(!cached(root, "librocblas"));
}

#[test]
fn dpkg_keeps_alternatives_over_upgrades_and_takes_them_back() {
    let packages = built("deb");
    let root = root();
    for dir in ["info", "updates", "triggers", "parts"] {
        fs::create_dir_all(root.path().join("var/lib/dpkg").join(dir)).unwrap();
    }
    for file in ["status", "available", "diversions", "statoverride"] {
        File::create(root.path().join("var/lib/dpkg").join(file)).unwrap();
    }
    let dpkg = || {
        let mut command = as_root("dpkg", "dpkg");
        command.arg("--root").arg(root.path());
        command.args([
            "--force-not-root",
            "--force-unsafe-io",
            "--log=/dev/null",
            "--path-include=*",
        ]);
        command
    };
    let file = |version: &str, name: &str| -> PathBuf {
        let arch = if name == "rocm-ld-conf" { "all" } else { "amd64" };
        packages
            .path()
            .join(version)
            .join(format!("{}_{version}-1_{arch}.deb", name.to_lowercase()))
    };
    life(
        root.path(),
        |version, names| {
            ok(dpkg().arg("-i").args(names.iter().map(|name| file(version, name))));
        },
        |names| {
            ok(dpkg().arg("--purge").args(names.iter().map(|name| name.to_lowercase())));
        },
        || {
            // libc's package, which is not here, has the trigger's other end.
            ok(as_root("chroot", "coreutils").arg(root.path()).arg("/sbin/ldconfig"));
        },
    );
    let triggers = |name: &str| {
        let deb = file("7.1.0", name);
        ok(tool("dpkg-deb", "dpkg").arg("-I").arg(deb).arg("triggers"))
    };
    for name in ["rocm-ld-conf", "rocblas-generic"] {
        assert_eq!(triggers(name), "activate-noawait ldconfig\n");
    }
    let has_none =
        tool("dpkg-deb", "dpkg").arg("-I").arg(file("7.1.0", "rocblas-gfx110X")).output();
    assert!(!String::from_utf8(has_none.unwrap().stdout).unwrap().contains("triggers"));
    let recommends = ok(tool("dpkg-deb", "dpkg")
        .arg("-f")
        .arg(file("7.1.0", "rocblas-generic"))
        .arg("Recommends"));
    assert_eq!(recommends, "rocm-ld-conf\n");
}

#[test]
fn rpm_keeps_alternatives_over_upgrades_and_takes_them_back() {
    let packages = built("rpm");
    let root = root();
    let rpm = || {
        let mut command = as_root("rpm", "rpm");
        command.env("HOME", root.path()).arg("--root").arg(root.path());
        command.args(["--define", "_dbpath /var/lib/rpm", "--nosignature"]);
        command
    };
    ok(rpm().arg("--initdb"));
    let file = |version: &str, name: &str| -> PathBuf {
        let arch = if name == "rocm-ld-conf" { "noarch" } else { "x86_64" };
        packages.path().join(version).join(format!("{name}-{version}-1.{arch}.rpm"))
    };
    life(
        root.path(),
        |version, names| {
            // The shell, ldconfig and update-alternatives are files here, of no package.
            ok(rpm().args(["-U", "--nodeps"]).args(names.iter().map(|name| file(version, name))));
        },
        |names| {
            ok(rpm().args(["-e", "--nodeps"]).args(names));
        },
        || {},
    );
    let requires =
        ok(tool("rpm", "rpm").args(["-qp", "--requires"]).arg(file("7.1.0", "rocblas-generic")));
    for needed in ["update-alternatives\n", "/bin/sh\n"] {
        assert!(requires.contains(needed), "{requires}");
    }
    let flags = ok(tool("rpm", "rpm").args(["-qpc"]).arg(file("7.1.0", "rocm-ld-conf")));
    assert_eq!(flags, "/etc/ld.so.conf.d/rocm-ld-conf.conf\n");
}

/// A release that does not have the file any more does not say so: the scripts of the one before do.
#[test]
fn rpm_takes_back_an_alternative_that_a_release_no_longer_has() {
    let packages = built("rpm");
    let dir = packages.path();
    let text: serde_json::Value = serde_json::from_str(PACKAGES).unwrap();
    let mut without = text.clone();
    for package in without["packages"].as_array_mut().unwrap() {
        package.as_object_mut().unwrap().remove("alternatives");
        let contents = package["contents"].as_array_mut().unwrap();
        contents.iter_mut().for_each(|c| c["exclude"] = serde_json::json!(["bin/**"]));
    }
    fs::write(dir.join("without.json"), without.to_string()).unwrap();
    ok(gfxpack()
        .args([
            "build",
            "--version",
            "7.3.0",
            "--release",
            "1",
            "--format",
            "rpm",
            "--no-auto-deps",
        ])
        .arg("--input-shards-dir")
        .arg(example_shards())
        .arg("--config")
        .arg(example_config())
        .arg("--packages")
        .arg(dir.join("without.json"))
        .arg("--output-dir")
        .arg(dir.join("7.3.0")));
    let root = root();
    let rpm = || {
        let mut command = as_root("rpm", "rpm");
        command.env("HOME", root.path()).arg("--root").arg(root.path());
        command.args(["--define", "_dbpath /var/lib/rpm", "--nosignature"]);
        command
    };
    ok(rpm().arg("--initdb"));
    let generic =
        |version: &str| dir.join(version).join(format!("rocblas-generic-{version}-1.x86_64.rpm"));
    ok(rpm().args(["-U", "--nodeps"]).arg(generic("7.2.0")));
    assert_eq!(choice(root.path(), "usr/bin/rocblas-bench").as_deref(), BENCH);
    ok(rpm().args(["-U", "--nodeps"]).arg(generic("7.3.0")));
    assert_eq!(choice(root.path(), "usr/bin/rocblas-bench"), None);
}

#[test]
fn the_linkers_path_is_left_alone_where_it_covers_the_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let packages = dir.path().join("packages.json");
    fs::write(&packages, PACKAGES).unwrap();
    let mut command = gfxpack();
    command.arg("build").arg("--input-shards-dir").arg(example_shards());
    command.arg("--config").arg(example_config()).arg("--packages").arg(&packages);
    command.arg("--output-dir").arg(dir.path().join("out")).args([
        "--version",
        "1",
        "--release",
        "1",
    ]);
    let ran = common::run(command.args(["--install-prefix", "/usr", "--dry-run"]));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("the linker searches /usr/lib without being told"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stdout.contains("rocm-ld-conf"), "{}", ran.stdout);
}
