//! Keys as gpg exports them: a primary key, user ids and subkeys, with the signatures that bind them.
//!
//! Which of them may sign, until when, and whether they were revoked, stands in those self-signatures;
//! of several the newest counts. A key that cannot be shown to be good is refused.

use std::io::Read;

use ::pgp::composed::{
    ArmorOptions, Deserializable, DetachedSignature, SignedPublicKey, SignedSecretKey,
};
use ::pgp::crypto::public_key::PublicKeyAlgorithm;
use ::pgp::packet::{self, KeyFlags, Signature, SignatureType};
use ::pgp::ser::Serialize;
use ::pgp::types::{
    Fingerprint, KeyDetails, KeyVersion, Password, PublicParams, SecretParams, StringToKey, Tag,
    VerifyingKey,
};
use zeroize::Zeroizing;

use super::{Algorithm, MAX_KEY, config};
use crate::date;
use crate::error::Error;

/// The primary key or a subkey, with what matters when it signs.
#[derive(Debug, Clone)]
pub(super) struct Part {
    fingerprint: Fingerprint,
    pub(super) algorithm: Algorithm,
    /// Seconds since 1970.
    pub(super) created: u32,
    /// Seconds since 1970.
    expires: Option<u64>,
}

impl Part {
    /// 16 hexadecimal digits: the end of the fingerprint.
    pub(super) fn id(&self) -> String {
        let bytes = self.fingerprint.as_bytes();
        let tail = &bytes[bytes.len().saturating_sub(8)..];
        tail.iter().map(|byte| format!("{byte:02X}")).collect()
    }

    pub(super) fn check_at(&self, time: u64) -> Result<(), Error> {
        match self.expires {
            Some(end) if end <= time => Err(Error::usage(format!(
                "the signing key {} expired on {}, and the signature would be of {}",
                self.id(),
                date(end),
                date(time)
            ))
            .hint("extend the key (gpg --quick-set-expire) and export it again, or use another")),
            _ => Ok(()),
        }
    }
}

fn date(seconds: u64) -> String {
    date::iso(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn bad(what: impl Into<String>) -> Error {
    Error::usage(what)
}

/// Reads keys, one or more.
fn all<K: Deserializable>(bytes: &[u8], hint: &str) -> Result<Vec<K>, Error> {
    if bytes.len() > MAX_KEY {
        return Err(bad(format!("the key has more than {MAX_KEY} bytes")).hint(hint));
    }
    let armor = bytes.windows(10).position(|window| window == b"-----BEGIN");
    let all = match armor {
        Some(start) if bytes[0] & 0x80 == 0 => K::from_armor_many_buf(&bytes[start..])
            .and_then(|(all, _)| all.collect::<Result<Vec<_>, _>>()),
        _ => K::from_bytes_many(bytes).and_then(Iterator::collect),
    };
    let all = all.map_err(|e| bad("this is no usable OpenPGP key").because(e).hint(hint))?;
    if all.is_empty() {
        return Err(bad("there is no OpenPGP key in it").hint(hint));
    }
    Ok(all)
}

/// Reads exactly one key.
fn one<K: Deserializable>(bytes: &[u8], option: &str) -> Result<K, Error> {
    let hint = format!("expected one key as `gpg --armor {option} KEYID` writes it");
    let mut all = all(bytes, &hint)?;
    match (all.pop(), all.len()) {
        (Some(key), 0) => Ok(key),
        (_, more) => Err(bad(format!("there are {} keys in it", more + 1)).hint(hint)),
    }
}

/// Which parts of a key may sign: subkeys, the newest first, then the primary key.
fn parts(key: &SignedPublicKey) -> Result<Vec<Part>, Error> {
    let primary = &key.primary_key;
    if primary.version() != KeyVersion::V4 {
        return Err(bad(format!("the key is of version {:?}", primary.version()))
            .hint("version 4 is what rpm and apt in use can read: gpg makes such keys"));
    }
    let whole = key.legacy_key_id();
    if !key.details.revocation_signatures.is_empty() {
        return Err(bad(format!("the key {whole} was revoked")).hint("sign with another key"));
    }
    let by_itself = |sig: &Signature| {
        sig.issuer_fingerprint().contains(&&key.fingerprint())
            || sig.issuer_key_id().contains(&&whole)
    };
    let users = key.details.users.iter().flat_map(|user| {
        let good = move |sig: &&Signature| {
            sig.is_certification()
                && by_itself(sig)
                && sig.verify_certification(primary, Tag::UserId, &user.id).is_ok()
        };
        user.signatures.iter().filter(good)
    });
    let direct = key.details.direct_signatures.iter().filter(|sig| sig.verify_key(primary).is_ok());
    let Some(of_primary) = users.chain(direct).max_by_key(|sig| sig.created()) else {
        return Err(bad(format!("the key {whole} has no valid signature by itself"))
            .hint("export it again with its user ids"));
    };
    let primary_end = end(primary.created_at().as_secs(), of_primary);

    let mut parts = Vec::new();
    let mut why_not = Vec::new();
    for subkey in &key.public_subkeys {
        let id = subkey.key.legacy_key_id();
        let is = |sig: &&Signature, typ| sig.typ() == Some(typ);
        if subkey.signatures.iter().any(|sig| is(&sig, SignatureType::SubkeyRevocation)) {
            why_not.push(format!("{id} was revoked"));
            continue;
        }
        let bindings = subkey.signatures.iter().filter(|sig| {
            is(sig, SignatureType::SubkeyBinding)
                && sig.verify_subkey_binding(primary, &subkey.key).is_ok()
        });
        let Some(binding) = bindings.max_by_key(|sig| sig.created()) else { continue };
        if !binding.key_flags().sign() {
            continue;
        }
        // A subkey that signs has signed that it belongs here: otherwise anyone could adopt it.
        let back = binding.embedded_signature();
        if back.is_none_or(|back| back.verify_primary_key_binding(&subkey.key, primary).is_err()) {
            why_not.push(format!("{id} has no valid back signature"));
            continue;
        }
        let own_end = end(subkey.key.created_at().as_secs(), binding);
        let expires = [own_end, primary_end].into_iter().flatten().min();
        match part(&subkey.key, expires) {
            Ok(part) => parts.push(part),
            Err(why) => why_not.push(why),
        }
    }
    parts.sort_by_key(|part| std::cmp::Reverse(part.created));
    // A self-signature from before there were flags says nothing of them.
    let flags = of_primary.key_flags();
    if flags.sign() || flags == KeyFlags::default() {
        match part(primary, primary_end) {
            Ok(part) => parts.push(part),
            Err(why) => why_not.push(why),
        }
    }
    if parts.is_empty() {
        let why =
            if why_not.is_empty() { "none is for signing".to_owned() } else { why_not.join("; ") };
        return Err(bad(format!("the key {whole} cannot sign packages: {why}")).hint(
            "use an RSA key of 4096 bits (gpg --quick-gen-key NAME rsa4096 sign), or Ed25519 where \
             nothing but .deb packages is signed",
        ));
    }
    Ok(parts)
}

fn end(created: u32, signature: &Signature) -> Option<u64> {
    let valid = signature.key_expiration_time()?.as_secs();
    // Zero means for ever.
    (valid != 0).then(|| u64::from(created) + u64::from(valid))
}

fn part(key: &(impl KeyDetails + Serialize), expires: Option<u64>) -> Result<Part, String> {
    let id = key.legacy_key_id();
    let algorithm = match (key.algorithm(), key.public_params()) {
        (PublicKeyAlgorithm::RSA | PublicKeyAlgorithm::RSASign, PublicParams::RSA(params)) => {
            // The modulus comes first, as a number of bits and then the bits.
            let bytes = params.to_bytes().map_err(|e| e.to_string())?;
            let bits = bytes.first_chunk().map_or(0, |bits| u16::from_be_bytes(*bits));
            if bits < 2048 {
                return Err(format!(
                    "{id} is RSA-{bits}, and verifiers refuse less than 2048 bits"
                ));
            }
            Algorithm::Rsa(bits)
        }
        (PublicKeyAlgorithm::EdDSALegacy, _) => Algorithm::Ed25519,
        (other, _) => {
            return Err(format!("{id} is {other:?}, which rpm 4.18 or apt would not verify"));
        }
    };
    let (fingerprint, created) = (key.fingerprint(), key.created_at().as_secs());
    Ok(Part { fingerprint, algorithm, created, expires })
}

/// The part of a secret key that signs, unlocked.
pub(super) struct SecretKey {
    secret: Secret,
    part: Part,
    public: PublicKey,
}

// One of them exists at a time; the sizes do not matter.
#[allow(clippy::large_enum_variant)]
enum Secret {
    Primary(packet::SecretKey),
    Subkey(packet::SecretSubkey),
}

impl SecretKey {
    pub(super) fn read(
        bytes: &[u8],
        passphrase: Option<Zeroizing<Vec<u8>>>,
    ) -> Result<Self, Error> {
        let key: SignedSecretKey = match one(bytes, "--export-secret-keys") {
            Ok(key) => key,
            Err(_) if all::<SignedPublicKey>(bytes, "").is_ok() => {
                return Err(bad("this is a public key, and only a secret one can sign").hint(
                    "export that: `gpg --armor --export-secret-keys KEYID`; public keys are for verifying, and for clients",
                ));
            }
            Err(e) => return Err(e),
        };
        let public = PublicKey::of(key.to_public_key())?;
        let mut parts = public.parts.iter();
        let found = parts.find_map(|part| Some((secret_of(&key, part)?, part.clone())));
        let Some((mut secret, part)) = found else {
            return Err(bad("the secret part of the key that signs is not in it")
                .hint("export the signing subkey too: gpg --armor --export-secret-subkeys KEYID"));
        };
        if secret.params().is_encrypted() {
            let Some(passphrase) = passphrase else {
                return Err(bad(format!(
                    "the signing key {} is locked by a passphrase",
                    part.id()
                ))
                .hint(
                    "give it in a file with --sign-key-passphrase-file, or in \
                         GFXPACK_SIGN_KEY_PASSPHRASE",
                ));
            };
            let password = Password::Static(passphrase);
            secret.unlock(&password).map_err(|e| {
                bad(format!("the passphrase does not unlock the signing key {}", part.id()))
                    .because(e)
            })?;
        }
        Ok(Self { secret, part, public })
    }

    pub(super) fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(super) fn part(&self) -> &Part {
        &self.part
    }

    pub(super) fn sign(
        &self,
        typ: SignatureType,
        data: &mut impl Read,
        time: u32,
    ) -> Result<DetachedSignature, Error> {
        let none = Password::empty();
        let made = match &self.secret {
            Secret::Primary(key) => config(typ, key, time).and_then(|c| c.sign(key, &none, data)),
            Secret::Subkey(key) => config(typ, key, time).and_then(|c| c.sign(key, &none, data)),
        };
        made.map(DetachedSignature::new)
            .map_err(|e| Error::failed(format!("cannot sign with {}", self.part.id())).because(e))
    }
}

impl Secret {
    fn params(&self) -> &SecretParams {
        match self {
            Self::Primary(key) => key.secret_params(),
            Self::Subkey(key) => key.secret_params(),
        }
    }

    fn unlock(&mut self, password: &Password) -> ::pgp::errors::Result<()> {
        match self {
            Self::Primary(key) => key.remove_password(password),
            Self::Subkey(key) => key.remove_password(password),
        }
    }
}

/// The secret of a part, where it is there: gpg exports a primary key that is kept elsewhere, or one
/// on a card, as a stub.
fn secret_of(key: &SignedSecretKey, part: &Part) -> Option<Secret> {
    let secret = if key.primary_key.fingerprint() == part.fingerprint {
        Secret::Primary(key.primary_key.clone())
    } else {
        let subkeys = &key.secret_subkeys;
        let subkey = subkeys.iter().find(|subkey| subkey.key.fingerprint() == part.fingerprint)?;
        Secret::Subkey(subkey.key.clone())
    };
    let is_stub = match secret.params() {
        SecretParams::Plain(_) => false,
        SecretParams::Encrypted(locked) => {
            use ::pgp::types::S2kParams::{Aead, Cfb, MalleableCfb};
            match locked.string_to_key_params() {
                Aead { s2k, .. } | Cfb { s2k, .. } | MalleableCfb { s2k, .. } => {
                    matches!(s2k, StringToKey::Private { .. })
                }
                _ => false,
            }
        }
    };
    (!is_stub).then_some(secret)
}

/// A public key: it is published, and signatures are checked against it.
#[derive(Debug)]
pub struct PublicKey {
    key: SignedPublicKey,
    parts: Vec<Part>,
}

impl PublicKey {
    /// Reads exactly one key.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Error> {
        Self::of(one(bytes, "--export")?)
    }

    /// Reads keys, one or more.
    pub(super) fn read_all(bytes: &[u8]) -> Result<Vec<Self>, Error> {
        let hint = "expected public keys as `gpg --armor --export KEYID…` writes them";
        all(bytes, hint)?.into_iter().map(Self::of).collect()
    }

    fn of(key: SignedPublicKey) -> Result<Self, Error> {
        let parts = parts(&key)?;
        Ok(Self { key, parts })
    }

    /// The fingerprint of the primary key, 40 hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        let fingerprint = self.key.primary_key.fingerprint();
        fingerprint.as_bytes().iter().map(|byte| format!("{byte:02X}")).collect()
    }

    /// The key with its user ids, subkeys and all signatures on them, as `gpg --export` gives it: what
    /// gpgv and apt's `Signed-By:` take from a file `*.gpg`.
    pub fn to_binary(&self) -> Result<Vec<u8>, Error> {
        self.key.to_bytes().map_err(|e| Error::failed("cannot encode a public key").because(e))
    }

    /// The same as text, as `gpg --armor --export` gives it: what rpm imports, and apt takes from a
    /// file `*.asc`.
    pub fn to_armored(&self) -> Result<Vec<u8>, Error> {
        let armored = self.key.to_armored_bytes(ArmorOptions::default());
        armored.map_err(|e| Error::failed("cannot encode a public key").because(e))
    }

    /// The part that gpg would sign with.
    pub(super) fn newest(&self) -> &Part {
        self.parts.first().expect("a key without parts that sign is refused when it is read")
    }

    /// Checks a signature over data; the error says why it is refused.
    pub(super) fn verify(
        &self,
        signature: &DetachedSignature,
        data: &mut impl Read,
    ) -> Result<(), String> {
        let signature = &signature.signature;
        let says = |part: &&Part| {
            signature.issuer_fingerprint().contains(&&part.fingerprint)
                || signature
                    .issuer_key_id()
                    .iter()
                    .any(|id| part.fingerprint.as_bytes().ends_with(id.as_ref()))
        };
        let Some(part) = self.parts.iter().find(says) else {
            let id =
                signature.issuer_key_id().first().map_or_else(String::new, ToString::to_string);
            let known: Vec<String> = self.parts.iter().map(Part::id).collect();
            return Err(format!(
                "it is by the key {}, expected {}",
                id.to_uppercase(),
                known.join(" or ")
            ));
        };
        let created = signature.created().map_or(0, ::pgp::types::Timestamp::as_secs);
        if created < part.created {
            return Err(format!(
                "it is dated {}, before its key was made ({}), which newer rpm refuses",
                date(created.into()),
                date(part.created.into())
            ));
        }
        part.check_at(u64::from(created)).map_err(|e| e.to_string())?;
        let checked = if self.key.primary_key.fingerprint() == part.fingerprint {
            check(signature, &self.key.primary_key, data)
        } else {
            let subkeys = &self.key.public_subkeys;
            let subkey = subkeys.iter().find(|subkey| subkey.key.fingerprint() == part.fingerprint);
            subkey.map_or_else(
                || Err("its key is gone".to_owned()),
                |s| check(signature, &s.key, data),
            )
        };
        checked.map_err(|e| format!("it is not of these data by the key {} ({e})", part.id()))
    }
}

fn check(
    signature: &Signature,
    key: &impl VerifyingKey,
    data: &mut impl Read,
) -> Result<(), String> {
    signature.verify(key, data).map_err(|e| e.to_string())
}
