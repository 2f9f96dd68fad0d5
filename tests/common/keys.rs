//! Keys that gpg makes, once for a test crate.

#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{ok, tool};

/// When most keys were made: Mon, 01 Dec 2025 12:00:00 +0000
pub const KEY_MADE: &str = "20251201T120000";
/// When `late` was: Mon, 01 Jun 2026 12:00:00 +0000
const LATE_MADE: &str = "20260601T120000";
/// What unlocks `locked`.
pub const PASSPHRASE: &str = "correct horse";

/// A home of gpg. Its agent ends with it.
pub struct Home(pub tempfile::TempDir, &'static str);

impl Home {
    /// An empty one.
    pub fn new() -> Self {
        Self::with_passphrase("")
    }

    fn with_passphrase(passphrase: &'static str) -> Self {
        let dir = tempfile::Builder::new().prefix("gpg").tempdir_in("/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        Self(dir, passphrase)
    }

    /// gpg in this home, at a time (`20251201T120000`).
    pub fn gpg(&self, time: &str) -> Command {
        let mut gpg = tool("gpg", "gnupg");
        gpg.arg("--homedir").arg(self.0.path()).args(["--batch", "--yes", "--quiet"]);
        gpg.args(["--pinentry-mode", "loopback", "--passphrase", self.1]);
        gpg.arg("--faked-system-time").arg(format!("{time}!"));
        gpg
    }

    /// Makes a key; returns its fingerprint.
    fn make(&self, name: &str, algorithm: &str, usage: &str, expire: &str, time: &str) -> String {
        let name = format!("{name} <{name}@example.org>");
        ok(self.gpg(time).args(["--quick-gen-key", &name, algorithm, usage, expire]));
        let list = ok(self.gpg(time).args(["--with-colons", "--list-keys", &name]));
        let line = list.lines().find(|line| line.starts_with("fpr:")).unwrap();
        line.split(':').nth(9).unwrap().to_owned()
    }

    fn export(&self, dir: &Path, name: &str, fingerprint: &str) {
        let time = "20261101T000000";
        let secret = ["--armor", "--export-secret-keys", fingerprint];
        fs::write(dir.join(format!("{name}.key")), ok(self.gpg(time).args(secret))).unwrap();
        let public = dir.join(format!("{name}.pub"));
        ok(self.gpg(time).arg("--output").arg(public).args(["--export", fingerprint]));
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = Command::new("gpgconf")
            .arg("--homedir")
            .arg(self.0.path())
            .args(["--kill", "all"])
            .status();
    }
}

/// A directory of keys: `NAME.key`, armored, `NAME.pub`, binary, and `NAME.id`.
pub fn keys() -> &'static Path {
    static KEYS: OnceLock<tempfile::TempDir> = OnceLock::new();
    KEYS.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new();
        let put_from = |home: &Home, name: &str, id: &str| {
            home.export(dir.path(), name, id);
            fs::write(dir.path().join(format!("{name}.id")), &id[24..]).unwrap();
        };
        let put = |name: &str, id: &str| put_from(&home, name, id);
        put("good", &home.make("good", "rsa4096", "sign", "never", KEY_MADE));
        put("late", &home.make("late", "rsa2048", "sign", "never", LATE_MADE));
        put("p256", &home.make("p256", "nistp256", "sign", "never", KEY_MADE));
        put("ed25519", &home.make("ed25519", "ed25519", "sign", "never", KEY_MADE));
        put("expired", &home.make("expired", "rsa2048", "sign", "2026-02-01", KEY_MADE));

        let revoked = home.make("revoked", "rsa2048", "sign", "never", KEY_MADE);
        let certificate = home.0.path().join(format!("openpgp-revocs.d/{revoked}.rev"));
        let text = fs::read_to_string(certificate).unwrap().replace(":-----BEGIN", "-----BEGIN");
        fs::write(dir.path().join("rev"), text).unwrap();
        ok(home.gpg(LATE_MADE).arg("--import").arg(dir.path().join("rev")));
        put("revoked", &revoked);

        // The primary key certifies only; one subkey signs, another encrypts.
        let primary = home.make("subkey", "rsa2048", "cert", "never", KEY_MADE);
        ok(home.gpg(KEY_MADE).args(["--quick-add-key", &primary, "rsa3072", "sign", "never"]));
        ok(home.gpg(KEY_MADE).args(["--quick-add-key", &primary, "rsa2048", "encr", "never"]));
        let list = ok(home.gpg(KEY_MADE).args(["--with-colons", "--list-keys", &primary]));
        let subkey: Vec<&str> = list
            .lines()
            .filter(|line| line.starts_with("sub:"))
            .filter(|line| line.split(':').nth(11) == Some("s"))
            .map(|line| line.split(':').nth(4).unwrap())
            .collect();
        put("subkey", &primary);
        fs::write(dir.path().join("subkey.id"), subkey[0]).unwrap();
        // Without the primary's secret, as it lies in a build machine.
        let alone = ok(home.gpg(LATE_MADE).args(["--armor", "--export-secret-subkeys", &primary]));
        fs::write(dir.path().join("stub.key"), alone).unwrap();
        // A newer subkey for signing, which was revoked, changes nothing. (rpm 4.18 cannot import the key.)
        ok(home.gpg(LATE_MADE).args(["--quick-add-key", &primary, "rsa2048", "sign", "never"]));
        let script = dir.path().join("revoke");
        fs::write(&script, "key 3\nrevkey\ny\n0\n\ny\nsave\n").unwrap();
        let mut revoke = home.gpg(LATE_MADE);
        revoke.args(["--no-tty", "--command-fd", "0", "--edit-key", &primary]);
        ok(revoke.stdin(fs::File::open(&script).unwrap()));
        let list = ok(home.gpg(LATE_MADE).args(["--with-colons", "--list-keys", &primary]));
        assert_eq!(list.lines().filter(|line| line.starts_with("sub:r:")).count(), 1, "{list}");
        put("revoked-subkey", &primary);

        let home = Home::with_passphrase(PASSPHRASE);
        put_from(&home, "locked", &home.make("locked", "rsa2048", "sign", "never", KEY_MADE));
        dir
    })
    .path()
}

/// A file of [`keys`].
pub fn key(name: &str) -> PathBuf {
    keys().join(name)
}

/// The id of a key of [`keys`]: of the part that signs.
pub fn id(name: &str) -> String {
    fs::read_to_string(key(&format!("{name}.id"))).unwrap()
}
