//! Signatures on packages, held against rpm, gpgv and gpg.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/keys.rs"]
mod keys;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{
    Ran, chroot, example_config, example_packages, example_shards, fails, gfxpack, ok, run, tool,
};
use gfxpack::sign::Signature;
use keys::{Home, KEY_MADE, PASSPHRASE, id, key};

/// Mon, 05 Jan 2026 12:00:00 +0000
const DATE: i64 = 1_767_614_400;
/// When `late` was made: Mon, 01 Jun 2026 12:00:00 +0000, after `DATE`
const LATE: i64 = 1_780_315_200;

/// Builds one package of the examples.
fn build(out: &Path, format: &str) -> Command {
    let mut command = gfxpack();
    command.arg("build").arg("--input-shards-dir").arg(example_shards());
    command.arg("--config").arg(example_config()).arg("--packages").arg(example_packages());
    command.arg("--output-dir").arg(out).args(["--version", "7.1.0", "--release", "1"]);
    command.args(["--only", "rocblas-gfx110X", "--format", format]);
    command.env("SOURCE_DATE_EPOCH", DATE.to_string());
    command
}

/// The one file with that ending.
fn made(dir: &Path, ending: &str) -> PathBuf {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found = entries.filter(|path| path.to_string_lossy().ends_with(ending));
    let one = found.next().unwrap_or_else(|| panic!("nothing ends with {ending}"));
    assert_eq!(found.next(), None);
    one
}

/// A package without a signature, in a directory of its own.
fn unsigned() -> (tempfile::TempDir, PathBuf) {
    static UNSIGNED: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = UNSIGNED.get_or_init(|| {
        let temp = tempfile::tempdir().unwrap();
        ok(&mut build(&temp.path().join("out"), "rpm"));
        fs::read(made(&temp.path().join("out"), ".rpm")).unwrap()
    });
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("package.rpm");
    fs::write(&path, bytes).unwrap();
    (temp, path)
}

fn sign(path: &Path, key_name: &str) -> Command {
    let mut command = gfxpack();
    command.arg("sign").arg(path).arg("--sign-key").arg(key(key_name));
    command
}

/// A database of rpm that knows these keys.
fn database(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    ok(tool("rpmdb", "rpm").arg("--dbpath").arg(dir.path()).arg("--initdb"));
    for name in names {
        // rpm takes armored keys only.
        let armored = dir.path().join(name);
        ok(tool("gpg", "gnupg")
            .arg("--yes")
            .arg("--output")
            .arg(&armored)
            .arg("--enarmor")
            .arg(key(name)));
        let text = fs::read_to_string(&armored).unwrap();
        fs::write(&armored, text.replace("ARMORED FILE", "PUBLIC KEY BLOCK")).unwrap();
        ok(tool("rpmkeys", "rpm").arg("--dbpath").arg(dir.path()).arg("--import").arg(&armored));
    }
    dir
}

fn check(database: &Path, rpm: &Path) -> Ran {
    run(tool("rpm", "rpm").arg("--dbpath").arg(database).arg("-Kv").arg(rpm))
}

#[track_caller]
fn assert_verifies(name: &str, rpm: &Path) {
    let database = database(&[&format!("{name}.pub")]);
    let checked = check(database.path(), rpm);
    let short = id(name)[8..].to_lowercase();
    let line = format!("Signature, key ID {short}: OK");
    assert!(checked.status == Some(0) && checked.stdout.contains(&line), "{line}:\n{checked:?}");
    assert!(!checked.stdout.contains("BAD") && !checked.stdout.contains("NO"), "{checked:?}");
    let short = ok(tool("rpm", "rpm").arg("--dbpath").arg(database.path()).arg("-K").arg(rpm));
    assert!(short.contains("digests signatures OK"), "{short}");
}

/// What inspect says of the signature.
fn signature(rpm: &Path) -> String {
    let json = ok(gfxpack().arg("--json").arg("inspect").arg(rpm));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let found = json.pointer("/signatures").or_else(|| json.pointer("/package/signatures"));
    let all = found.unwrap_or_else(|| panic!("{json}")).as_array().unwrap();
    assert!(all.len() < 2, "{all:?}");
    all.first().map_or_else(String::new, |text| text.as_str().unwrap().to_owned())
}

#[test]
fn signed_rpms_are_the_same_each_time_verify_and_install() {
    let temp = tempfile::tempdir().unwrap();
    let [one, two] = ["1", "3"].map(|jobs| {
        let out = temp.path().join(jobs);
        ok(build(&out, "rpm").args(["--jobs", jobs]).arg("--sign-key").arg(key("good.key")));
        made(&out, ".rpm")
    });
    assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap(), "two runs gave different bytes");
    assert_verifies("good", &one);
    assert_eq!(
        signature(&one),
        format!("RSA/SHA256, key {}, made 2026-01-05T12:00:00Z, over the header", id("good"))
    );

    // Nothing else changed, and what comes later is where it was.
    let (_temp, plain) = unsigned();
    let (plain_bytes, bytes) = (fs::read(&plain).unwrap(), fs::read(&one).unwrap());
    assert_eq!(plain_bytes.len(), bytes.len());
    let last = plain_bytes.iter().zip(&bytes).rposition(|(a, b)| a != b).unwrap();
    assert!(last < 96 + 4500, "byte {last} differs");
    assert_eq!(signature(&plain), "");
    // Signing later is signing at once.
    ok(&mut sign(&plain, "good.key"));
    assert!(fs::read(&plain).unwrap() == bytes, "`sign` and `build` gave different bytes");

    // Without the key, or with another, rpm says so.
    for names in [&[][..], &["late.pub"]] {
        let checked = check(database(names).path(), &one);
        assert!(checked.status != Some(0) && checked.stdout.contains("NOKEY"), "{checked:?}");
    }

    // Where only signed packages may be installed.
    let database = database(&["good.pub"]);
    let root = temp.path().join("root");
    let install = |rpm: &Path| {
        let mut command = tool("rpm", "rpm");
        command.arg("--root").arg(&root).arg("--dbpath").arg("/db");
        command.args(["--define", "_pkgverify_level all", "-i", "--nodeps"]).arg(rpm);
        command
    };
    fs::create_dir_all(&root).unwrap();
    ok(Command::new("cp").arg("-r").arg(database.path()).arg(root.join("db")));
    let (_temp, plain) = unsigned();
    let refused = run(&mut install(&plain));
    assert!(refused.status != Some(0) && refused.stderr.contains("no signature"), "{refused:?}");
    ok(&mut install(&one));
    assert!(root.join("opt/rocm").is_dir());
}

#[test]
fn a_changed_byte_is_noticed_by_rpm_and_never_signed() {
    let (_temp, path) = unsigned();
    ok(&mut sign(&path, "good.key"));
    let good = fs::read(&path).unwrap();
    let database = database(&["good.pub"]);
    let header = 96 + 4500_usize.next_multiple_of(8);
    // In the header, the name of a directory; in the payload.
    let name = good[header..].windows(10).position(|bytes| bytes == b"/opt/rocm/").unwrap();
    for (at, what) in [(header + name + 5, "header"), (good.len() - 20, "payload")] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let checked = check(database.path(), &path);
        assert!(checked.status != Some(0) && checked.stdout.contains("BAD"), "{what}: {checked:?}");
        let refused = fails(&mut sign(&path, "good.key"), 1);
        assert!(refused.contains("but it is") && refused.contains(what), "{refused}");
        assert!(fs::read(&path).unwrap() == bytes, "a refused package was changed");
    }
    for len in [0, 4, 95, 100, 200, header + 8, header + 100] {
        fs::write(&path, &good[..len]).unwrap();
        fails(&mut sign(&path, "good.key"), 1);
        assert_eq!(fs::read(&path).unwrap(), &good[..len]);
    }
    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_signature_is_never_older_than_its_key() {
    let (_temp, path) = unsigned();
    ok(&mut sign(&path, "late.key"));
    assert_verifies("late", &path);
    assert!(signature(&path).contains(", made 2026-06-01T12:00:00Z,"), "{}", signature(&path));
    assert_eq!(LATE, 1_780_315_200);
    // SOURCE_DATE_EPOCH stands above the package's date; the new signature takes the place of the old, and
    // a link to the package stays one.
    let link = path.with_extension("link");
    std::os::unix::fs::symlink("package.rpm", &link).unwrap();
    ok(sign(&link, "good.key").env("SOURCE_DATE_EPOCH", (DATE + 60).to_string()));
    assert_verifies("good", &path);
    assert!(signature(&path).contains(", made 2026-01-05T12:01:00Z,"), "{}", signature(&path));
}

#[test]
fn a_package_of_rpmbuild_is_signed_and_signed_again() {
    let temp = tempfile::tempdir().unwrap();
    let spec = temp.path().join("a.spec");
    let text = "Name: a\nVersion: 1\nRelease: 1\nSummary: a\nLicense: MIT\nBuildArch: noarch\n\
                %description\na\n%install\nmkdir -p %{buildroot}/opt/a\n%files\n/opt/a\n";
    fs::write(&spec, text).unwrap();
    let top = format!("_topdir {}", temp.path().join("top").display());
    ok(tool("rpmbuild", "rpm").args(["-bb", "--define", &top]).arg(&spec));
    let rpm = temp.path().join("top/RPMS/noarch/a-1-1.noarch.rpm");
    fs::set_permissions(&rpm, fs::Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(&rpm).unwrap().len();
    for name in ["subkey", "good", "locked"] {
        let mut command = sign(&rpm, &format!("{name}.key"));
        ok(command.env("GFXPACK_SIGN_KEY_PASSPHRASE", PASSPHRASE));
        if name != "locked" {
            assert_verifies(name, &rpm);
        }
        let meta = fs::metadata(&rpm).unwrap();
        assert_eq!((meta.len(), meta.permissions().mode() & 0o777), (before, 0o640), "{name}");
    }
}

#[test]
fn a_subkey_signs_also_where_the_primary_key_is_kept_elsewhere() {
    for name in ["subkey.key", "stub.key"] {
        let (_temp, path) = unsigned();
        ok(&mut sign(&path, name));
        assert_verifies("subkey", &path);
        assert!(signature(&path).contains(&id("subkey")));
    }
    let (_temp, path) = unsigned();
    ok(&mut sign(&path, "revoked-subkey.key"));
    assert!(signature(&path).contains(&id("subkey")));
}

#[test]
fn keys_that_verifiers_refuse_are_refused_before_anything_is_written() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("out");
    for (name, what) in [
        ("p256.key", "rpm 4.18 or apt would not verify"),
        ("ed25519.key", "the signing key is Ed25519, which not every rpm in use verifies"),
        ("expired.key", " expired on 2026-02-01T12:00:00Z, "),
        ("revoked.key", "was revoked"),
        ("locked.key", "is locked by a passphrase"),
        ("good.pub", "this is a public key, and only a secret one can sign"),
        ("rev", "hint: expected one key"),
        ("missing.key", "cannot read"),
    ] {
        let ran = run(build(&out, "rpm").arg("--sign-key").arg(key(name)));
        assert!(ran.status == Some(2) || name == "missing.key", "{name}: {ran:?}");
        assert!(
            ran.stderr.contains(what) && ran.stderr.contains("hint:"),
            "{name}: {}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("PRIVATE") && !out.exists());
    }
    let refused = fails(build(&out, "deb").arg("--sign-key").arg(key("good.key")), 2);
    assert!(refused.contains("nothing that it would sign"), "{refused}");
    let refused = fails(build(&out, "deb").arg("--deb-detached-signature"), 2);
    assert!(refused.contains("no key to sign with"), "{refused}");
    // A key in the environment is for those who have use for it.
    let armored = fs::read_to_string(key("good.key")).unwrap();
    ok(build(&out, "deb").env("GFXPACK_SIGN_KEY", &armored));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
}

#[test]
fn a_passphrase_comes_from_a_file_or_the_environment() {
    let (_temp, path) = unsigned();
    let file = path.with_extension("pass");
    fs::write(&file, format!("{PASSPHRASE}\n")).unwrap();
    ok(sign(&path, "locked.key").arg("--sign-key-passphrase-file").arg(&file));
    let first = fs::read(&path).unwrap();
    assert!(signature(&path).starts_with("RSA/SHA256, key "));
    let (_temp, path) = unsigned();
    let armored = fs::read_to_string(key("locked.key")).unwrap();
    let environment =
        [("GFXPACK_SIGN_KEY", &*armored), ("GFXPACK_SIGN_KEY_PASSPHRASE", PASSPHRASE)];
    ok(gfxpack().arg("sign").arg(&path).envs(environment));
    assert!(fs::read(&path).unwrap() == first);
    fs::write(&file, "wrong").unwrap();
    let refused = fails(sign(&path, "locked.key").arg("--sign-key-passphrase-file").arg(&file), 2);
    assert!(refused.contains("does not unlock") && !refused.contains("wrong"), "{refused}");
}

#[test]
fn debs_are_signed_beside_themselves() {
    let temp = tempfile::tempdir().unwrap();
    let [plain, out] = ["plain", "out"].map(|name| temp.path().join(name));
    ok(&mut build(&plain, "deb"));
    // An Ed25519 key will do: no rpm looks at it.
    for name in ["good", "ed25519"] {
        let mut command = build(&out, "deb");
        command.args(["--force", "--deb-detached-signature"]);
        let json = ok(command.arg("--json").arg("--sign-key").arg(key(&format!("{name}.key"))));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let file = |field: &str| out.join(json["packages"][0][field].as_str().unwrap());
        let (deb, asc) = (file("file"), file("signature"));
        assert_eq!(asc.to_str().unwrap(), format!("{}.asc", deb.display()));
        assert!(fs::read(&deb).unwrap() == fs::read(made(&plain, ".deb")).unwrap());
        let verify = |deb: &Path| {
            let mut gpgv = tool("gpgv", "gpgv");
            gpgv.arg("--keyring").arg(key(&format!("{name}.pub"))).arg(&asc).arg(deb);
            gpgv
        };
        let said = run(&mut verify(&deb));
        assert!(said.status == Some(0) && said.stderr.contains("Good signature"), "{said:?}");
        let first = fs::read(&asc).unwrap();
        fs::remove_file(&asc).unwrap();
        ok(&mut sign(&deb, &format!("{name}.key")));
        assert!(fs::read(&asc).unwrap() == first, "`sign` and `build` gave different signatures");
        assert_eq!(fs::metadata(&asc).unwrap().permissions().mode() & 0o777, 0o644);
        let mut bytes = fs::read(&deb).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(&deb, bytes).unwrap();
        assert!(run(&mut verify(&deb)).stderr.contains("BAD signature"));
    }
}

#[test]
fn a_command_signs() {
    let home = Home::new();
    ok(home.gpg(KEY_MADE).arg("--import").arg(key("good.key")));
    let gpg = |time: &str, more: &str| {
        format!(
            "gpg --homedir {} --batch --faked-system-time \"{time}!\" {more} --detach-sign",
            home.0.path().display()
        )
    };
    let signing = |path: &Path, command: &str, public: Option<&str>| {
        let mut gfxpack = gfxpack();
        gfxpack.arg("sign").arg(path).arg("--sign-command").arg(command);
        public.map(|name| gfxpack.arg("--sign-key-public").arg(key(name)));
        gfxpack
    };
    for (more, public) in [("", None), ("--armor", Some("good.pub")), ("--armor", None)] {
        let (_temp, path) = unsigned();
        ok(&mut signing(&path, &gpg("$GFXPACK_SIGN_TIME", more), public));
        assert_verifies("good", &path);
        assert!(signature(&path).contains(", made 2026-01-05T12:00:00Z,"), "{}", signature(&path));
    }

    let (_temp, path) = unsigned();
    let before = fs::read(&path).unwrap();
    let good = gpg("$GFXPACK_SIGN_TIME", "");
    let other_data = format!("cat >/dev/null; echo other | {good}");
    let twice = format!("d=$(mktemp); cat >$d; {good} <$d; {good} <$d; rm $d");
    let weak = gpg("$GFXPACK_SIGN_TIME", "--digest-algo SHA1");
    let old = gpg("20251201T110000", "--ignore-time-conflict --ignore-valid-from");
    for (command, public, what) in [
        (
            "echo no token in slot 0 >&2; exit 3",
            None,
            "exit status: 3), saying: no token in slot 0",
        ),
        ("exec no-such-program", None, "not found"),
        ("cat >/dev/null", None, "it is empty"),
        ("cat >/dev/null; echo hello", None, "no OpenPGP data"),
        ("cat >/dev/null; head -c 200000 /dev/zero", None, "more than 65536 bytes"),
        (&twice, None, "there are 2 signatures"),
        (&weak, None, "its digest is SHA1"),
        (&good, Some("late.pub"), "it is by the key"),
        (&other_data, Some("good.pub"), "it is not of these data"),
        (&old, Some("good.pub"), "before its key was made"),
    ] {
        let refused = fails(&mut signing(&path, command, public), 1);
        assert!(refused.contains(what) && refused.contains("hint:"), "{command}: {refused}");
        assert!(fs::read(&path).unwrap() == before, "{command}");
    }
}

#[test]
fn a_signature_that_lies_is_refused_and_nothing_worse() {
    let (_temp, path) = unsigned();
    ok(&mut sign(&path, "good.key"));
    let bytes = fs::read(&path).unwrap();
    // The packet: tag 2 with a length of two bytes, or of the new form.
    let found =
        bytes.windows(8).position(|w| w[0] & 0x80 != 0 && w.ends_with(&[4, 0, 1, 8])).unwrap();
    let start = (0..=found + 4).rfind(|&at| matches!(bytes[at], 0x88..=0x8a | 0xc2)).unwrap();
    let good = (start + 500..start + 800).find_map(|end| {
        Signature::parse(&bytes[start..end]).ok().map(|_| bytes[start..end].to_vec())
    });
    let good = good.unwrap();
    for at in 0..good.len().min(64) {
        for value in 0..=255 {
            let mut damaged = good.clone();
            damaged[at] = value;
            if let Ok(signature) = Signature::parse(&damaged) {
                signature.info();
            }
        }
        assert!(Signature::parse(&good[..at]).is_err());
    }
}

#[test]
#[ignore = "makes a Debian with a newer rpm: as root, 200 MB over the network, minutes"]
fn newer_rpm_verifies() {
    let root = chroot("trixie");
    let inside = tempfile::Builder::new().prefix("signing").tempdir_in(root.join("tmp")).unwrap();
    let inside_path = Path::new("/").join(inside.path().strip_prefix(&root).unwrap());
    let rpm = |args: &[&str], file: &str| {
        let mut command = tool("chroot", "coreutils");
        command.arg(&root).arg("rpmkeys").arg("--dbpath").arg(inside_path.join("db"));
        command.args(args).arg(inside_path.join(file));
        command
    };
    println!("{}", ok(tool("chroot", "coreutils").arg(&root).args(["rpm", "--version"])));
    for name in ["good", "late", "subkey"] {
        let (_temp, path) = unsigned();
        ok(&mut sign(&path, &format!("{name}.key")));
        fs::copy(&path, inside.path().join("signed.rpm")).unwrap();
        let before = run(&mut rpm(&["-Kv"], "signed.rpm"));
        assert!(before.status != Some(0) && before.stdout.contains("NOKEY"), "{before:?}");
        let database = database(&[&format!("{name}.pub")]);
        fs::copy(database.path().join(format!("{name}.pub")), inside.path().join("key")).unwrap();
        ok(&mut rpm(&["--import"], "key"));
        let checked = ok(&mut rpm(&["-Kv"], "signed.rpm"));
        println!("{checked}");
        // `Signature` in rpm 4, `signature` in rpm 6.
        let line = checked.lines().find(|line| line.contains("ignature"));
        assert!(line.is_some_and(|line| line.ends_with(": OK")), "{checked}");
        assert!(!checked.contains("BAD") && !checked.contains("NO"), "{checked}");
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.len() - 20;
        bytes[at] ^= 1;
        fs::write(inside.path().join("changed.rpm"), bytes).unwrap();
        let changed = run(&mut rpm(&["-Kv"], "changed.rpm"));
        assert!(changed.status != Some(0) && changed.stdout.contains("BAD"), "{changed:?}");
        fs::remove_dir_all(inside.path().join("db")).unwrap();
    }
}
