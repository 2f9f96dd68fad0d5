//! Signed texts (`InRelease`), detached signatures and exported keys, held against gpg, gpgv and sqv.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/keys.rs"]
mod keys;

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use common::{Ran, ok, run, tool};
use gfxpack::sign::{Signature, Signer, Verifier};
use keys::{Home, KEY_MADE, PASSPHRASE, id, key};

/// Mon, 05 Jan 2026 12:00:00 +0000
const DATE: i64 = 1_767_614_400;
const RELEASE: &str = "Origin: Example\nSuite: stable\nSHA256:\n 00ff 12 main/Packages\n";

fn signer(name: &str) -> Signer {
    let bytes = fs::read(key(&format!("{name}.key"))).unwrap();
    let passphrase = (name == "locked").then(|| PASSPHRASE.as_bytes().to_vec().into());
    Signer::from_key(&bytes, passphrase).unwrap()
}

fn verifier(name: &str) -> Verifier {
    Verifier::from_keys(&fs::read(key(&format!("{name}.pub"))).unwrap()).unwrap()
}

fn gpgv(name: &str) -> Command {
    let mut gpgv = tool("gpgv", "gpgv");
    gpgv.arg("--keyring").arg(key(&format!("{name}.pub")));
    gpgv
}

#[track_caller]
fn assert_good(ran: &Ran) {
    assert!(ran.status == Some(0) && ran.stderr.contains("Good signature"), "{ran:?}");
}

#[test]
fn texts_are_signed_as_gpg_signs_them() {
    let temp = tempfile::tempdir().unwrap();
    let [file, out] = ["InRelease", "out"].map(|name| temp.path().join(name));
    let home = Home::new();
    ok(home.gpg(KEY_MADE).arg("--import").arg(key("good.key")));
    let (signer, verifier) = (signer("good"), verifier("good"));
    let long = format!("Architectures: {}\nend\n", "x".repeat(18_980));
    for (text, read) in [
        (RELEASE, RELEASE),
        ("one line", "one line\n"),
        // Dashes, the lines of the message itself, and what mail programs used to change.
        (
            "-----BEGIN PGP SIGNATURE-----\n- -\n-\nFrom me\n.\n",
            "-----BEGIN PGP SIGNATURE-----\n- -\n-\nFrom me\n.\n",
        ),
        ("space \ttab\t\n \n\t\nend  ", "space \ttab\n\n\nend\n"),
        ("CR LF\r\nand \r\nLF\n\r\n", "CR LF\nand\nLF\n\n"),
        ("\n\nempty lines around\n\n", "\n\nempty lines around\n\n"),
        ("zażółć gęślą jaźń\n", "zażółć gęślą jaźń\n"),
        (&long, &long),
    ] {
        let message = signer.sign_cleartext(text.as_bytes(), DATE).unwrap();
        fs::write(&file, &message).unwrap();
        let _ = fs::remove_file(&out);
        let ran = run(gpgv("good").arg("--output").arg(&out).arg(&file));
        assert_good(&ran);
        let says = fs::read_to_string(&out).unwrap();
        assert_eq!(says, read, "gpgv reads another text");
        let (ours, info) = verifier.verify_cleartext(&message).unwrap();
        assert_eq!(String::from_utf8(ours).unwrap(), read);
        assert_eq!((info.key_id, info.created), (Some(id("good")), u32::try_from(DATE).ok()));

        // What gpg makes of the text is read by us, and is the same text.
        fs::write(&out, text).unwrap();
        let message =
            ok(home.gpg("20260105T120000").args(["--clear-sign", "--output", "-"]).arg(&out));
        let (theirs, _) = verifier.verify_cleartext(message.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(theirs).unwrap(), read);
    }
}

#[test]
fn what_was_changed_is_noticed() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("InRelease");
    let good = signer("good").sign_cleartext(RELEASE.as_bytes(), DATE).unwrap();
    let verifier = verifier("good");
    let text = String::from_utf8(good.clone()).unwrap();
    for (changed, what) in [
        (text.replace("stable", "stab1e"), "not of these data"),
        (text.replace("SHA256:\n", "SHA256:\n\n"), "not of these data"),
        (text.replace("Suite", "- Suite").replace("- Suite: stable\n", ""), "not of these data"),
    ] {
        fs::write(&file, &changed).unwrap();
        let ran = run(gpgv("good").arg(&file));
        assert!(ran.status != Some(0) && ran.stderr.contains("BAD signature"), "{ran:?}");
        let refused = verifier.verify_cleartext(changed.as_bytes()).unwrap_err();
        assert!(refused.contains(what), "{refused}");
    }
    let refused = Verifier::from_keys(&fs::read(key("late.pub")).unwrap())
        .unwrap()
        .verify_cleartext(&good)
        .unwrap_err();
    assert!(refused.contains("it is by the key"), "{refused}");
    // Any damage is an error, and nothing worse.
    for at in 0..good.len() {
        let mut damaged = good.clone();
        damaged[at] ^= 0x55;
        let read = verifier.verify_cleartext(&damaged);
        assert!(read.is_err() || read.unwrap().0 == RELEASE.as_bytes(), "byte {at}");
        let _ = verifier.verify_cleartext(&good[..at]);
        if at % 16 != 0 {
            continue;
        }
        assert!(verifier.verify_cleartext(&good[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn indices_are_verified_by_other_programs_with_the_exported_key() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    fs::write(at("Release"), RELEASE).unwrap();
    for name in ["good", "subkey", "ed25519", "locked", "stub"] {
        let (signer, id) = (signer(name), if name == "stub" { "subkey" } else { name });
        let public = signer.public_key().unwrap();
        // Our export is gpg's. (That of the whole key has the subkey for encryption, too.)
        if name != "stub" {
            assert!(public.to_binary().unwrap() == fs::read(key(&format!("{name}.pub"))).unwrap());
        }
        fs::write(at("key.gpg"), public.to_binary().unwrap()).unwrap();
        fs::write(at("key.asc"), public.to_armored().unwrap()).unwrap();
        assert!(!fs::read_to_string(at("key.asc")).unwrap().contains("PRIVATE"));

        let detached = signer.sign_detached(&mut Cursor::new(RELEASE), DATE).unwrap();
        fs::write(at("Release.gpg"), detached.to_armored().unwrap()).unwrap();
        let message = signer.sign_cleartext(RELEASE.as_bytes(), DATE).unwrap();
        fs::write(at("InRelease"), &message).unwrap();

        let mut gpgv = tool("gpgv", "gpgv");
        gpgv.arg("--keyring").arg(at("key.gpg"));
        assert_good(&run(gpgv.arg(at("Release.gpg")).arg(at("Release"))));
        let mut gpgv = tool("gpgv", "gpgv");
        assert_good(&run(gpgv.arg("--keyring").arg(at("key.gpg")).arg(at("InRelease"))));
        for keyring in ["key.gpg", "key.asc"] {
            let mut sqv = tool("sqv", "sqv");
            sqv.arg("--keyring").arg(at(keyring)).arg(at("Release.gpg")).arg(at("Release"));
            let said = ok(&mut sqv);
            assert!(said.trim().len() == 40, "{said}");
        }
        let home = Home::new();
        ok(home.gpg("20261101T000000").arg("--import").arg(at("key.asc")));
        for files in [&["Release.gpg", "Release"][..], &["InRelease"]] {
            let mut gpg = home.gpg("20261101T000000");
            assert_good(&run(gpg.arg("--verify").args(files.iter().map(|name| at(name)))));
        }
        assert_accepted_by_apt(temp.path(), id);
        // Twice the same, but for a kind of key with a random part.
        if name != "ed25519" {
            assert!(signer.sign_cleartext(RELEASE.as_bytes(), DATE).unwrap() == message);
        }
    }
}

/// apt takes `InRelease`, and `Release` with its signature, with the key in either form.
fn assert_accepted_by_apt(dir: &Path, name: &str) {
    for (keyring, signed) in
        [("key.asc", "InRelease"), ("key.gpg", "InRelease"), ("key.asc", "Release")]
    {
        let signature = if signed == "Release" { "Release.gpg" } else { signed };
        let at = |name| dir.join(name).display().to_string();
        // The method is what `apt update` runs.
        let script = format!(
            "printf '600 URI Acquire\\nURI: gpgv:{}\\nFilename: {}\\nSigned-By: {}\\n\\n' \
             | /usr/lib/apt/methods/gpgv",
            at(signature),
            at(signed),
            at(keyring)
        );
        let ran = run(Command::new("/bin/sh").arg("-c").arg(script));
        assert!(ran.stdout.contains("201 URI Done") && ran.stdout.contains("GOODSIG"), "{ran:?}");
        assert!(ran.stdout.contains(&id(name)), "{ran:?}");
    }
}

#[test]
fn a_command_signs_texts() {
    let home = Home::new();
    ok(home.gpg(KEY_MADE).arg("--import").arg(key("good.key")));
    let gpg = |more: &str| {
        format!(
            "gpg --homedir {} --batch --faked-system-time \"$GFXPACK_SIGN_TIME!\" {more} --detach-sign",
            home.0.path().display()
        )
    };
    let public = fs::read(key("good.pub")).unwrap();
    let textmode = gpg("${GFXPACK_SIGN_TEXT:+--textmode}");
    let text = "a \r\n\n-b\n\n";
    let message = signer("good").sign_cleartext(text.as_bytes(), DATE).unwrap();
    for public in [None, Some(&public[..])] {
        let command = Signer::from_command(&textmode, public).unwrap();
        let theirs = command.sign_cleartext(text.as_bytes(), DATE).unwrap();
        let (read, _) = verifier("good").verify_cleartext(&theirs).unwrap();
        assert_eq!(read, b"a\n\n-b\n\n");
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("InRelease"), &theirs).unwrap();
        assert_good(&run(gpgv("good").arg(temp.path().join("InRelease"))));
        // The same command makes detached signatures of data.
        let detached = command.sign_detached(&mut Cursor::new(text), DATE).unwrap();
        verifier("good").verify_detached(&detached, &mut Cursor::new(text)).unwrap();
        assert_eq!(command.public_key().is_some(), public.is_some());
    }
    let command = Signer::from_command(&gpg(""), Some(&public)).unwrap();
    let refused = command.sign_cleartext(text.as_bytes(), DATE).unwrap_err();
    assert!(refused.to_string().contains("its type is binary, expected text"), "{refused}");
    assert!(format!("{refused:?}").contains("GFXPACK_SIGN_TEXT:+--textmode"), "{refused:?}");
    let command = Signer::from_command(&gpg("--textmode"), Some(&public)).unwrap();
    let refused = command.sign_detached(&mut Cursor::new(text), DATE).unwrap_err();
    assert!(refused.to_string().contains("its type is text, expected binary"), "{refused}");
    assert!(message.starts_with(b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\na\n"));
}

#[test]
fn a_verifier_has_several_keys_and_takes_no_weak_signature() {
    let mut both = fs::read(key("late.pub")).unwrap();
    both.extend(fs::read(key("good.pub")).unwrap());
    let both = Verifier::from_keys(&both).unwrap();
    let data = &b"data"[..];
    let good = signer("good").sign_detached(&mut Cursor::new(data), DATE).unwrap();
    assert_eq!(
        both.verify_detached(&good, &mut Cursor::new(data)).unwrap().key_id,
        Some(id("good"))
    );
    let refused = both.verify_detached(&good, &mut Cursor::new("other")).unwrap_err();
    assert!(refused.contains("it is not of these data"), "{refused}");
    let home = Home::new();
    ok(home.gpg(KEY_MADE).arg("--import").arg(key("good.key")));
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("data");
    fs::write(&file, data).unwrap();
    let mut weak = home.gpg("20260105T120000");
    ok(weak.args(["--digest-algo", "SHA1", "--detach-sign"]).arg(&file));
    let weak = Signature::parse(&fs::read(temp.path().join("data.sig")).unwrap()).unwrap();
    let refused = both.verify_detached(&weak, &mut Cursor::new(data)).unwrap_err();
    assert!(refused.contains("its digest is SHA1"), "{refused}");
    for name in ["revoked.pub", "p256.pub", "good.key"] {
        let refused = Verifier::from_keys(&fs::read(key(name)).unwrap()).unwrap_err();
        assert!(!refused.to_string().contains("PRIVATE"), "{refused}");
    }
}
