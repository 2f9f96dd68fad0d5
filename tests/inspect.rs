//! `gfxpack inspect` and `gfxpack extract` on the example shards, on trees split from them, and on
//! packages that dpkg-deb and rpmbuild make.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gfxpack::inspect::{ExtractOptions, extract, inspect};
use serde_json::{Value, json};
use tempfile::TempDir;

const BLAS: &str = "blas_lib_gfx110X-dgpu/math-libs/BLAS";

fn example(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shards/gfx110X-build").join(below)
}

fn rocblas() -> PathBuf {
    example(&format!("{BLAS}/rocBLAS/stage/lib/librocblas.so.5.2"))
}

fn rocfft() -> PathBuf {
    example("fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage/lib/librocfft.so.0.1")
}

fn gfxpack(args: &[&OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gfxpack")).args(args).output().unwrap()
}

/// Runs gfxpack, which must succeed; gives its standard output.
#[track_caller]
fn text_of(args: &[&OsStr]) -> String {
    let output = gfxpack(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn inspected(path: &Path) -> Value {
    let text = text_of(&["inspect".as_ref(), "--json".as_ref(), path.as_ref()]);
    // The table must be there as well, and fit.
    let table = text_of(&["inspect".as_ref(), path.as_ref()]);
    let wide = table.lines().skip(1).find(|line| line.chars().count() > 100);
    assert_eq!(wide, None);
    serde_json::from_str(&text).unwrap()
}

/// Runs gfxpack, which must fail with that status; gives its standard error.
#[track_caller]
fn fails(status: i32, args: &[&OsStr]) -> String {
    let output = gfxpack(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    text
}

/// Runs a tool of another package, which must be there.
#[track_caller]
fn tool(package: &str, command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| {
        let name = command.get_program().to_string_lossy().into_owned();
        panic!("cannot run {name}: {e}; install it with `apt-get install {package}`")
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn split(extra: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (example(""), dir.path().join("split"));
    let mut args: Vec<&OsStr> =
        vec!["split".as_ref(), "--batch-artifact-parent-dir".as_ref(), from.as_ref()];
    args.extend(["--output-dir".as_ref(), to.as_os_str()]);
    args.extend(extra.iter().map(|arg| OsStr::new(*arg)));
    text_of(&args);
    dir
}

fn kpack_of(dir: &TempDir, artifact: &str) -> PathBuf {
    let (prefix, isa) = artifact.rsplit_once('_').unwrap();
    dir.path().join(format!("split/{artifact}/kpack/stage/.kpack/{prefix}_{isa}.kpack"))
}

#[test]
fn a_fat_library_shows_wrappers_and_bundles() {
    let report = inspected(&rocblas());
    assert_eq!((&report["kind"], &report["type"]), (&json!("program"), &json!("shared library")));
    assert_eq!((&report["state"], &report["soname"]), (&json!("fat"), &json!("librocblas.so.5")));
    assert_eq!(report["needed"][0], "libamdhip64.so.6");
    assert_eq!(report["problems"], json!([]));
    let wrappers = report["wrappers"].as_array().unwrap();
    assert_eq!(wrappers.len(), 4);
    assert!(wrappers.iter().all(|w| w["magic"] == "HIPF" && w["co_index"].is_null()));
    let bundles = report["bundles"].as_array().unwrap();
    assert_eq!(bundles.len(), 4);
    for (wrapper, bundle) in wrappers.iter().zip(bundles) {
        assert_eq!(wrapper["bundle_offset"], bundle["offset"]);
        assert_eq!(bundle["form"], "plain");
        let ids: Vec<_> =
            bundle["entries"].as_array().unwrap().iter().map(|e| e["isa"].as_str()).collect();
        assert_eq!(ids, [None, Some("gfx1100"), Some("gfx1101"), Some("gfx1102")]);
    }
    assert_eq!(report["isas"]["gfx1102"]["code_objects"], 4);
    // As readelf has it.
    let dynamic = tool("binutils", Command::new("readelf").arg("-dW").arg(rocblas()));
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)")).count();
    assert_eq!(report["needed"].as_array().unwrap().len(), needed);
}

#[test]
fn other_shapes_are_told_apart() {
    let report = inspected(&example(&format!("{BLAS}/hipBLASLt/stage/lib/libhipblaslt.so.0.9")));
    let forms: Vec<_> =
        report["bundles"].as_array().unwrap().iter().map(|b| b["form"].as_str().unwrap()).collect();
    assert_eq!(forms, ["CCOB v2 zstd"; 2]);

    let report = inspected(&rocfft());
    assert_eq!(report["wrappers"].as_array().unwrap().len(), 2);
    assert_eq!(report["bundles"].as_array().unwrap().len(), 1);
    assert_eq!(report["isas"]["gfx1100"]["code_objects"], 1);

    let bin = "blas_run_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/bin";
    for (name, kind) in
        [("rocblas-bench", "position-independent executable"), ("rocblas-tool", "executable")]
    {
        let report = inspected(&example(&format!("{bin}/{name}")));
        assert_eq!((&report["type"], &report["state"]), (&json!(kind), &json!("fat")));
        assert_eq!(report["wrappers"].as_array().unwrap().len(), 1);
    }
    let host = example("support_lib_gfx110X-dgpu/base/support/stage/lib/libsupport.so.1");
    assert_eq!(inspected(&host)["state"], "plain");
}

#[test]
fn code_objects_and_bundles_of_databases() {
    let library = example(&format!("{BLAS}/hipBLASLt/stage/lib/hipblaslt/library"));
    let report = inspected(&library.join("extop_gfx1101.co"));
    assert_eq!((&report["kind"], &report["isa"]), (&json!("code-object"), &json!("gfx1101")));
    assert_eq!((&report["e_flags"], &report["version"]), (&json!("0x46"), &json!(5)));
    assert_eq!(report["metadata_target"], "amdgcn-amd-amdhsa--gfx1101");
    let kernels = report["kernels"].as_array().unwrap();
    assert_eq!((kernels.len(), &kernels[0]["name"]), (1, &json!("extop_softmax")));
    assert!(kernels[0]["vgpr_count"].as_u64().unwrap() > 0);
    assert!(kernels[0]["sgpr_count"].as_u64().unwrap() > 0);

    let report = inspected(&library.join("Kernels.so-000-gfx1101.hsaco"));
    assert_eq!(report["kind"], "bundle");
    assert_eq!(report["bundles"][0]["entries"][1]["isa"], "gfx1101");
    assert_eq!(report["bundles"][0]["stored_size"], report["size"]);
}

#[test]
fn manifests_are_shown() {
    let report = inspected(&example("blas_lib_gfx110X-dgpu/artifact_manifest.txt"));
    assert_eq!(report["kind"], "artifact-manifest");
    assert_eq!(report["prefixes"][0], "math-libs/BLAS/rocBLAS/stage");

    let dir = split(&[]);
    let kpack = kpack_of(&dir, "blas_lib_gfx1100");
    let report = inspected(&kpack.with_file_name("blas_lib.kpm"));
    assert_eq!((&report["kind"], &report["component_name"]), (&json!("kpm"), &json!("blas_lib")));
    let file = &report["kpack_files"]["gfx1100"];
    assert_eq!(file["kernel_count"], 6);
    assert_eq!(file["size"], fs::metadata(&kpack).unwrap().len());
}

#[test]
fn an_archive_shows_its_kernels_by_size() {
    let dir = split(&[]);
    let report = inspected(&kpack_of(&dir, "blas_lib_gfx1100"));
    assert_eq!(
        (&report["group_name"], &report["gfx_arches"]),
        (&json!("blas_lib"), &json!(["gfx1100"]))
    );
    assert_eq!(report["compression"], "zstd-per-kernel");
    assert_eq!((&report["entries"], &report["unique_code_objects"]), (&json!(6), &json!(6)));
    let kernels = report["kernels"].as_array().unwrap();
    assert_eq!(kernels[0]["name"], "math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2#3");
    let sizes: Vec<_> = kernels.iter().map(|k| k["original_size"].as_u64().unwrap()).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b));
    assert_eq!(report["original_bytes"], sizes.iter().sum::<u64>());
    assert!(report["ratio"].as_f64().unwrap() > 2.0);

    // Two names for one code object.
    let report = inspected(&kpack_of(&dir, "fft_lib_gfx1101"));
    assert_eq!((&report["entries"], &report["unique_code_objects"]), (&json!(2), &json!(1)));
    assert_eq!(report["original_bytes"], report["kernels"][0]["original_size"]);

    let stored = split(&["--compression", "none"]);
    let report = inspected(&kpack_of(&stored, "blas_lib_gfx1100"));
    assert_eq!((&report["compression"], &report["ratio"]), (&json!("none"), &json!(1.0)));
}

#[test]
fn a_converted_library_shows_where_its_kernels_are() {
    let dir = split(&[]);
    let so = "split/blas_lib_generic/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2";
    let report = inspected(&dir.path().join(so));
    assert_eq!(report["state"], "converted");
    let indexes: Vec<_> =
        report["wrappers"].as_array().unwrap().iter().map(|w| w["co_index"].as_u64()).collect();
    assert_eq!(indexes, [Some(0), Some(1), Some(2), Some(3)]);
    let marker = &report["marker"];
    assert_eq!(marker["form"], "msgpack");
    assert_eq!(marker["kernel_name"], "math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2");
    assert_eq!(marker["search_paths"], json!(["../.kpack/blas_lib_@GFXARCH@.kpack"]));
    assert_eq!(report["problems"], json!([]));
    let out = dir.path().join("out");
    let so = dir.path().join(so);
    let text = fails(1, &["extract".as_ref(), so.as_ref(), "--output-dir".as_ref(), out.as_ref()]);
    assert!(text.contains("kpack archives") && !out.exists(), "{text}");
}

/// File name to content.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

#[test]
fn extracted_code_is_the_same_from_binary_and_archive() {
    let dir = split(&[]);
    let (from_so, from_kpack) = (dir.path().join("so"), dir.path().join("kpack"));
    let kpack = kpack_of(&dir, "blas_lib_gfx1101");
    let so = rocblas();
    let report = text_of(&[
        "extract".as_ref(),
        "--json".as_ref(),
        so.as_ref(),
        "--isa".as_ref(),
        "gfx1101".as_ref(),
        "--output-dir".as_ref(),
        from_so.as_ref(),
    ]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["files"][3]["file"], "librocblas.so.5.2#3.gfx1101.co");
    assert_eq!(report["files"][3]["kernel"], "librocblas.so.5.2#3");
    text_of(&[
        "extract".as_ref(),
        kpack.as_ref(),
        "--kernel".as_ref(),
        "*librocblas*".as_ref(),
        "--output-dir".as_ref(),
        from_kpack.as_ref(),
    ]);
    let (so, kpack) = (files(&from_so), files(&from_kpack));
    assert_eq!(so.len(), 4);
    for (name, bytes) in so {
        assert_eq!(kpack[&format!("lib+{name}")], bytes);
        assert_eq!(inspected(&from_so.join(name))["isa"], "gfx1101");
    }
    assert_eq!(kpack.len(), 4);

    // A compressed one, and two wrappers on one bundle.
    let lt = example(&format!("{BLAS}/hipBLASLt/stage/lib/libhipblaslt.so.0.9"));
    let options = ExtractOptions { isas: vec!["gfx1102".parse().unwrap()], ..Default::default() };
    let done = extract(&lt, &dir.path().join("lt"), &options).unwrap();
    assert_eq!(done.files.len(), 2);
    let done = extract(&rocfft(), &dir.path().join("fft"), &ExtractOptions::default()).unwrap();
    assert_eq!(done.files.len(), 6);
    let fft = files(&dir.path().join("fft"));
    assert_eq!(fft["librocfft.so.0.1#0.gfx1100.co"], fft["librocfft.so.0.1#1.gfx1100.co"]);
    let archive = kpack_of(&dir, "fft_lib_gfx1100");
    extract(&archive, &dir.path().join("fft2"), &ExtractOptions::default()).unwrap();
    let fft2 = files(&dir.path().join("fft2"));
    assert_eq!(fft2["lib+librocfft.so.0.1#1.gfx1100.co"], fft["librocfft.so.0.1#1.gfx1100.co"]);
}

#[test]
fn extraction_is_all_or_nothing() {
    let dir = split(&["--compression", "none"]);
    let kpack = kpack_of(&dir, "blas_lib_gfx1100");
    let out = dir.path().join("out");
    let run = |file: &Path, extra: &[&str], status: i32| {
        let mut args: Vec<&OsStr> =
            vec!["extract".as_ref(), file.as_ref(), "--output-dir".as_ref(), out.as_ref()];
        args.extend(extra.iter().map(|arg| OsStr::new(*arg)));
        let output = gfxpack(&args);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(run(&kpack, &["--isa", "gfx1200"], 1).contains("it has code for gfx1100"));
    assert!(run(&kpack, &["--kernel", "a{"], 2).contains("glob"));
    assert!(run(&example("blas_lib_gfx110X-dgpu/artifact_manifest.txt"), &[], 1).contains("hint"));

    // Code for another ISA than the archive says: the last kernel's e_flags, in its last place.
    let mut bytes = fs::read(&kpack).unwrap();
    let at = bytes.windows(5).rposition(|w| w == b"\x7fELF\x02").unwrap();
    bytes[at + 48] = 0x48;
    let bad = dir.path().join("bad.kpack");
    fs::write(&bad, &bytes).unwrap();
    let text = run(&bad, &[], 1);
    assert!(text.contains("filed under gfx1100") && text.contains("gfx1200"), "{text}");
    bytes[at] = 0;
    fs::write(&bad, &bytes).unwrap();
    assert!(run(&bad, &[], 1).contains("no code object"));
    assert!(!out.exists());
    let left: Vec<_> =
        files_below(dir.path()).into_iter().filter(|p| p.contains("gfxpack-part")).collect();
    assert_eq!(left, Vec::<String>::new());

    run(&kpack, &[], 0);
    assert!(run(&kpack, &[], 2).contains("--force"));
    run(&kpack, &["--force", "--kernel", "*#0"], 0);
    assert_eq!(files(&out).len(), 2);
}

fn files_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.to_string_lossy().into_owned());
        if path.is_dir() {
            found.extend(files_below(&path));
        }
    }
    found
}

#[test]
fn a_hostile_name_stays_in_the_output_directory() {
    use gfxpack::kpack::reader::Archive;
    let dir = split(&["--compression", "none"]);
    let mut bytes = fs::read(kpack_of(&dir, "fft_lib_gfx1100")).unwrap();
    // A name of the same length that climbs out, for both entries.
    let name = b"math-libs/rocFFT/stage/lib/librocfft.so.0.1";
    let evil = b"../../../../../../../../../tmp/evil/evil.so";
    let places: Vec<_> =
        (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(name)).collect();
    assert_eq!((places.len(), name.len()), (2, evil.len()));
    for at in places {
        bytes[at..at + evil.len()].copy_from_slice(evil);
    }
    let path = dir.path().join("evil.kpack");
    fs::write(&path, &bytes).unwrap();
    // The reader may refuse it; where it does not, the file stays inside.
    if Archive::open(&bytes).is_ok() {
        let out = dir.path().join("out");
        extract(&path, &out, &ExtractOptions::default()).unwrap();
        let names: Vec<_> = files(&out).into_keys().collect();
        assert!(names.iter().all(|name| name.ends_with(".gfx1100.co")), "{names:?}");
        assert_eq!(names.len(), 2);
    }
}

/// A small tree and control files for dpkg-deb.
fn deb_tree(dir: &Path, version: &str, content: &str) -> PathBuf {
    let root = dir.join(format!("tree-{version}"));
    let long = "d".repeat(120);
    fs::create_dir_all(root.join("DEBIAN")).unwrap();
    fs::create_dir_all(root.join("opt/x/lib").join(&long)).unwrap();
    fs::write(root.join("opt/x/lib/a.txt"), content).unwrap();
    fs::hard_link(root.join("opt/x/lib/a.txt"), root.join("opt/x/lib/hard.txt")).unwrap();
    fs::write(root.join("opt/x/lib").join(&long).join("f"), "deep").unwrap();
    symlink("a.txt", root.join("opt/x/lib/link.txt")).unwrap();
    let control = format!(
        "Package: tiny\nVersion: {version}\nArchitecture: amd64\nMaintainer: A <a@b.example>\n\
         Depends: libc6 (>= 2.34),\n foo | bar\nDescription: short\n Long text of {version}.\n"
    );
    fs::write(root.join("DEBIAN/control"), control).unwrap();
    let script = root.join("DEBIAN/postinst");
    fs::write(&script, format!("#!/bin/sh\nset -e\n# {version}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let sums = tool("coreutils", Command::new("md5sum").arg("opt/x/lib/a.txt").current_dir(&root));
    fs::write(root.join("DEBIAN/md5sums"), sums).unwrap();
    root
}

fn deb(root: &Path, to: &Path, compression: &str) {
    let mut command = Command::new("dpkg-deb");
    command.arg(format!("-Z{compression}")).args(["--root-owner-group", "-b"]).arg(root).arg(to);
    tool("dpkg", &mut command);
}

#[test]
fn debian_packages_are_shown_whatever_their_compression() {
    let dir = tempfile::tempdir().unwrap();
    let root = deb_tree(dir.path(), "1.0-1", "hello\n");
    for compression in ["xz", "zstd", "gzip", "none"] {
        let path = dir.path().join(format!("tiny-{compression}.deb"));
        deb(&root, &path, compression);
        let report = inspected(&path);
        assert_eq!((&report["kind"], &report["problems"]), (&json!("deb"), &json!([])));
        let fields = &report["fields"];
        assert_eq!((&fields["Package"], &fields["Version"]), (&json!("tiny"), &json!("1.0-1")));
        assert_eq!(report["relations"]["Depends"], json!(["libc6 (>= 2.34)", "foo | bar"]));
        assert_eq!(report["scripts"][0]["name"], "postinst");
        assert_eq!(report["scripts"][0]["interpreter"], "/bin/sh");
        let names: Vec<_> = report["members"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| (m["name"].as_str().unwrap(), m["compression"].as_str()))
            .collect();
        assert_eq!(names[0], ("debian-binary", None));
        assert!(names[1].0.starts_with("control.tar") && names[2].0.starts_with("data.tar"));
        assert_eq!((names[1].1, names[2].1), (Some(compression), Some(compression)));
        // The same files as dpkg-deb lists, with the same modes, sizes and links.
        let listing = tool("dpkg", Command::new("dpkg-deb").arg("-c").arg(&path));
        let listed: Vec<String> = listing
            .lines()
            .map(|line| {
                let name = line.split_whitespace().skip(5).collect::<Vec<_>>().join(" ");
                name.replace(" link to ./", " -> /").replacen('.', "", 1)
            })
            .map(|name| name.trim_end_matches('/').to_owned())
            .collect();
        let ours: Vec<String> = report["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| {
                let link = file["link"].as_str().map(|link| format!(" -> {link}"));
                let path = file["path"].as_str().unwrap().trim_end_matches('/');
                format!("{path}{}", link.unwrap_or_default())
            })
            .collect();
        assert_eq!(ours, listed);
        let file = |path: &str| {
            let files = report["files"].as_array().unwrap();
            files.iter().find(|f| f["path"] == path).unwrap().clone()
        };
        let a = file("/opt/x/lib/a.txt");
        assert_eq!(
            (&a["mode"], &a["size"], &a["owner"]),
            (&json!("0644"), &json!(6), &json!("root/root"))
        );
        assert_eq!(a["digest"], "b1946ac92492d2347c6235b4d2611184");
        assert_eq!(file("/opt/x/lib/hard.txt")["type"], "hard link");
        assert_eq!(file("/opt/x/lib/link.txt")["type"], "symlink");
    }
}

#[test]
fn what_changed_between_two_debian_packages() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.deb"), dir.path().join("b.deb"));
    deb(&deb_tree(dir.path(), "1.0-1", "hello\n"), &a, "xz");
    let root = deb_tree(dir.path(), "1.1-1", "hullo\n");
    fs::remove_file(root.join("opt/x/lib/link.txt")).unwrap();
    fs::write(root.join("opt/x/new"), "n").unwrap();
    let control = fs::read_to_string(root.join("DEBIAN/control")).unwrap();
    fs::write(root.join("DEBIAN/control"), control.replace("foo | bar", "baz")).unwrap();
    deb(&root, &b, "zstd");
    let args = ["inspect".as_ref(), "--diff".as_ref(), a.as_os_str(), b.as_os_str()];
    let text = text_of(&args);
    for line in ["  - 1.0-1", "  + 1.1-1", "  - foo | bar", "  + baz", "  + /opt/x/new"] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let json: Value =
        serde_json::from_str(&text_of(&[args[0], "--json".as_ref(), args[1], args[2], args[3]]))
            .unwrap();
    assert_eq!(json["same"], false);
    let fields: Vec<_> =
        json["fields"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(fields, ["Description", "Version", "compression of control", "compression of data"]);
    assert_eq!(
        json["relations"],
        json!([{ "name": "Depends", "removed": ["foo | bar"], "added": ["baz"] }])
    );
    let scripts = json["scripts"].as_array().unwrap();
    assert_eq!(scripts.iter().map(|s| &s["name"]).collect::<Vec<_>>(), ["postinst"]);
    let change = |path: &str| {
        let files = json["files"].as_array().unwrap();
        files.iter().find(|f| f["path"] == path).map(|f| f["change"].as_str().unwrap())
    };
    assert_eq!(change("/opt/x/new"), Some("added"));
    assert_eq!(change("/opt/x/lib/link.txt"), Some("removed"));
    assert_eq!(change("/opt/x/lib/a.txt"), Some("changed"));

    let same = text_of(&[args[0], args[1], a.as_ref(), a.as_ref()]);
    assert!(same.contains("the same"), "{same}");
    let other = rocblas();
    let text = fails(2, &[args[0], args[1], a.as_ref(), other.as_ref()]);
    assert!(text.contains("an ELF file"), "{text}");
}

fn rpm(dir: &Path, version: &str, extra: &str) -> PathBuf {
    let spec = dir.join(format!("tiny-{version}.spec"));
    let text = format!(
        "Name: tiny\nVersion: {version}\nRelease: 2\nSummary: short\nLicense: MIT\n\
         AutoReqProv: no\nRequires: foo >= 1.2\nRequires(post): bar\nConflicts: c < 2\n\
         Recommends: (a and b)\n{extra}%description\nLong text.\n%install\n\
         mkdir -p %{{buildroot}}/opt/x/lib\necho {version} > %{{buildroot}}/opt/x/lib/a.txt\n\
         ln %{{buildroot}}/opt/x/lib/a.txt %{{buildroot}}/opt/x/lib/hard.txt\n\
         ln -s a.txt %{{buildroot}}/opt/x/lib/l.txt\necho c > %{{buildroot}}/opt/x/c.conf\n\
         %post\necho {version}\n%preun -p <lua>\nprint('x')\n%files\n%dir /opt/x\n/opt/x/lib\n\
         %config(noreplace) /opt/x/c.conf\n"
    );
    fs::write(&spec, text).unwrap();
    let mut command = Command::new("rpmbuild");
    command
        .args(["-bb", "--target", "x86_64", "--define"])
        .arg(format!("_topdir {}", dir.display()))
        .args(["--define", "_binary_payload w3.zstdio"])
        .arg(&spec);
    tool("rpm", &mut command);
    dir.join(format!("RPMS/x86_64/tiny-{version}-2.x86_64.rpm"))
}

/// What rpm itself says of a package.
fn rpm_query(path: &Path, format: &str) -> String {
    let mut command = Command::new("rpm");
    command.args(["-qp", "--qf", format]).arg(path);
    tool("rpm", &mut command)
}

#[test]
fn rpm_packages_are_shown_as_rpm_shows_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = rpm(dir.path(), "1.0", "");
    let report = inspected(&path);
    assert_eq!((&report["kind"], &report["problems"]), (&json!("rpm"), &json!([])));
    let fields = &report["fields"];
    for (field, tag) in [
        ("Name", "NAME"),
        ("Version", "VERSION"),
        ("Release", "RELEASE"),
        ("Size", "SIZE"),
        ("Architecture", "ARCH"),
        ("Summary", "SUMMARY"),
        ("License", "LICENSE"),
        ("Source RPM", "SOURCERPM"),
        ("Payload compressor", "PAYLOADCOMPRESSOR"),
        ("Build time", "BUILDTIME"),
        ("Description", "DESCRIPTION"),
    ] {
        assert_eq!(fields[field], rpm_query(&path, &format!("%{{{tag}}}")), "{field}");
    }
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
    };
    for (kind, tag) in
        [("Provides", "PROVIDE"), ("Conflicts", "CONFLICT"), ("Recommends", "RECOMMEND")]
    {
        let format = format!("[%{{{tag}NAME}} %{{{tag}FLAGS:depflags}} %{{{tag}VERSION}}\\n]");
        let theirs: Vec<String> =
            rpm_query(&path, &format).lines().map(|line| line.trim().to_owned()).collect();
        assert_eq!(strings(&report["relations"][kind]), theirs, "{kind}");
    }
    let requires = strings(&report["relations"]["Requires"]);
    assert!(requires.contains(&"foo >= 1.2".to_owned()), "{requires:?}");
    assert!(requires.contains(&"bar (post)".to_owned()), "{requires:?}");
    let listing = rpm_query(
        &path,
        "[%{FILENAMES} %{FILEMODES:octal} %{FILESIZES} %{FILEDIGESTS} %{FILELINKTOS}\\n]",
    );
    let files = report["files"].as_array().unwrap();
    assert_eq!(files.len(), listing.lines().count());
    for (file, line) in files.iter().zip(listing.lines()) {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(file["path"], words[0]);
        assert_eq!(file["mode"], format!("0{}", &words[1][words[1].len() - 3..]), "{line}");
        assert_eq!(file["size"].to_string(), words[2]);
        assert_eq!(file["digest"].as_str().unwrap_or_default(), words[3]);
        // rpm has no target for a hard link; the other name of its inode is the first one.
        let link =
            if file["type"] == "hard link" { files[3]["path"].as_str().unwrap() } else { words[4] };
        assert_eq!(file["link"].as_str().unwrap_or_default(), link);
    }
    assert_eq!(files[1]["flags"], json!(["config", "noreplace"]));
    let kinds: Vec<_> = files.iter().map(|f| f["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["directory", "file", "directory", "file", "hard link", "symlink"]);
    let scripts: Vec<_> = report["scripts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["name"].as_str().unwrap(), s["interpreter"].as_str().unwrap()))
        .collect();
    assert_eq!(scripts, [("post", "/bin/sh"), ("preun", "<lua>")]);
    assert_eq!(report["digests"]["header SHA256"], rpm_query(&path, "%{SHA256HEADER}"));
    assert_eq!(report["digests"]["payload SHA256"], rpm_query(&path, "%{PAYLOADDIGEST}"));
    assert_eq!(report["members"][3]["unpacked"].to_string(), rpm_query(&path, "%{ARCHIVESIZE}"));
}

#[test]
fn what_changed_between_two_rpm_packages_and_two_archives() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (rpm(dir.path(), "1.0", ""), rpm(dir.path(), "1.1", "Obsoletes: old < 1\n"));
    let run = |a: &Path, b: &Path| -> Value {
        let args: [&OsStr; 5] =
            ["inspect".as_ref(), "--json".as_ref(), "--diff".as_ref(), a.as_ref(), b.as_ref()];
        serde_json::from_str(&text_of(&args)).unwrap()
    };
    let json = run(&a, &b);
    let relations = json["relations"].as_array().unwrap();
    assert_eq!(relations[0], json!({ "name": "Obsoletes", "removed": [], "added": ["old < 1"] }));
    assert_eq!(relations[1]["name"], "Provides");
    let version = json["fields"].as_array().unwrap().iter().find(|f| f["name"] == "Version");
    assert_eq!(version.unwrap(), &json!({ "name": "Version", "a": "1.0", "b": "1.1" }));
    assert_eq!(json["scripts"][0]["name"], "post");
    let changed = json["files"].as_array().unwrap();
    assert!(changed.iter().any(|f| f["path"] == "/opt/x/lib/a.txt" && f["change"] == "changed"));

    let (zstd, none) = (split(&[]), split(&["--compression", "none"]));
    let json = run(&kpack_of(&zstd, "blas_lib_gfx1100"), &kpack_of(&none, "blas_lib_gfx1100"));
    assert_eq!((&json["kind"], &json["files"]), (&json!("kpack"), &json!([])));
    assert_eq!(json["fields"][0]["name"], "compression");
    let json = run(&kpack_of(&zstd, "blas_lib_gfx1100"), &kpack_of(&zstd, "blas_lib_gfx1101"));
    assert_eq!(json["files"].as_array().unwrap().len(), 12);
}

#[test]
fn damage_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let run = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        fails(1, &["inspect".as_ref(), path.as_ref()])
    };
    assert!(run(b"").contains("it is empty"));
    assert!(run(b"hello").contains("68 65 6c 6c 6f"));
    assert!(run(b"\x7fELF").contains("caused by"));
    assert!(run(b"!<arch>\nx").contains("ar archive"));
    assert!(run(b"KPAK\x01\0\0\0").contains("kpack"));
    assert!(run(b"\x84\xa1").contains(".kpm"));
    let lie = b"!<arch>\ndebian-binary   0           0     0     100644  9999999999`\n2.0\n";
    let text = run(lie);
    assert!(text.contains("0x38 is 9999999999, expected at most 4"), "{text}");
    let mut header = b"\xed\xab\xee\xdb\x03\0".to_vec();
    header.resize(96, 0);
    header.extend(b"\x8e\xad\xe8\x01\0\0\0\0\xff\xff\xff\xff\0\0\0\0");
    let text = run(&header);
    assert!(text.contains("entry count of the signature header at 0x68 is 4294967295"), "{text}");
    let text = fails(2, &["inspect".as_ref(), dir.path().as_ref()]);
    assert!(text.contains("gfxpack discover"), "{text}");
    fails(2, &["inspect".as_ref()]);
}

/// Every cut, and every byte changed in some ways, of each kind of file: no panic, and memory and time
/// that a small file may take.
#[test]
fn no_damage_panics() {
    let dir = tempfile::tempdir().unwrap();
    let root = deb_tree(dir.path(), "1.0-1", "hello\n");
    let (plain, xz) = (dir.path().join("plain.deb"), dir.path().join("xz.deb"));
    deb(&root, &plain, "none");
    deb(&root, &xz, "xz");
    let rpm = rpm(dir.path(), "1.0", "");
    let trees = split(&[]);
    let library = example(&format!("{BLAS}/hipBLASLt/stage/lib/hipblaslt/library"));
    let examples = [
        plain,
        xz,
        rpm,
        kpack_of(&trees, "fft_lib_gfx1100"),
        kpack_of(&trees, "fft_lib_gfx1100").with_file_name("fft_lib.kpm"),
        library.join("extop_gfx1101.co"),
        library.join("Kernels.so-000-gfx1101.hsaco"),
        example(&format!("{BLAS}/hipBLASLt/stage/lib/libhipblaslt.so.0.9")),
        trees.path().join("split/fft_lib_generic/math-libs/rocFFT/stage/lib/librocfft.so.0.1"),
    ];
    let path = dir.path().join("damaged");
    let write = |bytes: &[u8]| {
        // A file of its own each time: some file systems flush one that is written over.
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
    };
    let out = dir.path().join("out");
    for example in examples {
        let good = fs::read(&example).unwrap();
        // Some hundred places, the first of them all.
        let step = (good.len() / 400).max(1);
        let places = (0..good.len().min(200)).chain((200..good.len()).step_by(step));
        for at in places {
            write(&good[..at]);
            let _ = inspect(&path);
            for change in [|_| 0xff, |_| 0, |byte: u8| byte ^ 1, |byte: u8| byte ^ 0x80] {
                let mut bad = good.clone();
                bad[at] = change(bad[at]);
                write(&bad);
                let _ = inspect(&path);
            }
            if at % 16 == 0 {
                let options = ExtractOptions { force: true, ..Default::default() };
                let _ = extract(&path, &out, &options);
            }
        }
    }
}

/// Sections of type NULL are not checked when headers are read: whatever they claim must not count.
#[test]
fn a_null_section_with_a_name_is_no_section() {
    let dir = tempfile::tempdir().unwrap();
    let good = fs::read(rocfft()).unwrap();
    let number = |at: usize, len: usize| {
        good[at..at + len].iter().rev().fold(0usize, |n, &byte| n << 8 | usize::from(byte))
    };
    let (table, count) = (number(40, 8), number(60, 2));
    for section in 1..count {
        let mut bad = good.clone();
        let header = table + section * 64;
        bad[header + 4..header + 8].fill(0);
        bad[header + 16..header + 40].fill(0xff);
        let path = dir.path().join(format!("{section}.so"));
        fs::write(&path, bad).unwrap();
        let _ = inspect(&path);
    }
}
