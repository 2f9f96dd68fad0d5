//! OpenPGP signatures: of rpm headers, of packages, of a repository's indices.
//!
//! A [`Signer`] has a secret key, or runs a command that has one. Signatures are version 4, of type
//! "binary" where they are detached and "text" in a signed text, over SHA-256, with two hashed
//! subpackets (fingerprint of the key, time) and the key's id: what gpg, rpm since 4.6 and apt read.
//! With an RSA key the same data and time give the same bytes (PKCS #1 v1.5 has no random part). A
//! [`Verifier`] has public keys. Source: RFC 4880, RFC 9580.
//!
//! The clock is never read: the caller says the time, and a signature that would be older than its
//! key, which rpm 4.20 calls BAD, is dated by the key. Secrets are wiped when a signer is dropped; what
//! the OpenPGP library copies while it reads a key is out of reach.

mod cleartext;
mod command;
mod key;
mod verifier;

use std::fmt;
use std::io::{self, Cursor, Read, Seek};

use ::pgp::composed::{ArmorOptions, Deserializable, DetachedSignature};
use ::pgp::crypto::hash::HashAlgorithm;
use ::pgp::crypto::public_key::PublicKeyAlgorithm;
use ::pgp::packet::{SignatureConfig, SignatureType, SignatureVersion, Subpacket, SubpacketData};
use ::pgp::ser::Serialize;
use ::pgp::types::{KeyDetails, Timestamp};
use zeroize::Zeroizing;

use crate::error::Error;
use cleartext::Text;
use command::External;
pub use key::PublicKey;
use key::SecretKey;
pub use verifier::Verifier;

/// More than any key, with all its certifications, or signature has.
const MAX_KEY: usize = 4 << 20;
const MAX_SIGNATURE: usize = 64 << 10;

/// What kind of key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA, with the length of its modulus in bits.
    Rsa(u16),
    /// EdDSA over Curve25519.
    Ed25519,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "RSA-{bits}"),
            Self::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

/// Makes signatures. Its `Debug` shows no secret.
pub struct Signer(By);

enum By {
    Key(Box<SecretKey>),
    Command(External, Option<Box<PublicKey>>),
}

impl Signer {
    /// A signer that has the secret key itself. `key` is one exported OpenPGP key, armored or binary;
    /// where it has subkeys that sign, the newest of them signs, as with gpg. `passphrase` is needed
    /// where the key is locked; it is unlocked here, so that a wrong one is noticed before anything
    /// else is done. Errors name no file: the caller does.
    pub fn from_key(key: &[u8], passphrase: Option<Zeroizing<Vec<u8>>>) -> Result<Self, Error> {
        Ok(Self(By::Key(Box::new(SecretKey::read(key, passphrase)?))))
    }

    /// A signer that runs `command` through `/bin/sh -c` for each signature, one at a time. It has the
    /// data on standard input and the time for the signature, in seconds since 1970, in
    /// `GFXPACK_SIGN_TIME`; it writes a detached signature, armored or binary, to standard output.
    /// Where it is to be of the type "text", `GFXPACK_SIGN_TEXT` is `1`, else it is not set.
    /// `public` is the exported public key that signatures are checked against; without one, only
    /// their form is.
    pub fn from_command(command: &str, public: Option<&[u8]>) -> Result<Self, Error> {
        let public = public.map(PublicKey::read).transpose()?.map(Box::new);
        Ok(Self(By::Command(External::new(command), public)))
    }

    /// What kind of key signs, where that is known: a command says so only with its public key.
    pub fn algorithm(&self) -> Option<Algorithm> {
        match &self.0 {
            By::Key(key) => Some(key.part().algorithm),
            By::Command(_, public) => public.as_ref().map(|key| key.newest().algorithm),
        }
    }

    /// The id of the key that signs, 16 hexadecimal digits, where it is known.
    pub fn key_id(&self) -> Option<String> {
        match &self.0 {
            By::Key(key) => Some(key.part().id()),
            By::Command(_, public) => public.as_ref().map(|key| key.newest().id()),
        }
    }

    /// What the user should know of the key.
    pub fn warnings(&self) -> Vec<String> {
        match self.algorithm() {
            Some(Algorithm::Rsa(bits)) if bits < 3072 => vec![format!(
                "the signing key is RSA-{bits}: verifiers will refuse less than 3072 bits before \
                 long, and 4096 are recommended"
            )],
            _ => Vec::new(),
        }
    }

    /// Refuses a key whose signatures on packages rpm would not accept everywhere: other than RSA.
    pub fn check_for_rpm(&self) -> Result<(), Error> {
        match self.algorithm() {
            None | Some(Algorithm::Rsa(_)) => Ok(()),
            Some(other) => Err(Error::usage(format!(
                "the signing key is {other}, which not every rpm in use verifies"
            ))
            .hint("sign .rpm packages with an RSA key, best of 4096 bits")),
        }
    }

    /// Refuses a key that has expired at a time, in seconds since 1970. [`Self::sign_detached`] does so
    /// for the time of the signature; a program should for the present, too, since some verifiers look
    /// at that.
    pub fn check_at(&self, time: u64) -> Result<(), Error> {
        match &self.0 {
            By::Key(key) => key.part().check_at(time),
            By::Command(_, public) => public.as_ref().map_or(Ok(()), |k| k.newest().check_at(time)),
        }
    }

    /// Signs all of `data`, which is read from its start. `date` is the time for the signature, in
    /// seconds since 1970; where it is before the key's creation, that is the time.
    pub fn sign_detached(
        &self,
        data: &mut (impl Read + Seek),
        date: i64,
    ) -> Result<Signature, Error> {
        self.sign(SignatureType::Binary, data, date)
    }

    /// Signs a text and returns it with the signature, as `InRelease` is. Line ends become LF, and spaces
    /// and tabs before them go, since no signature covers them: readers of the message get what was
    /// signed. Refused are bytes that no text has (NUL, CR within a line) and lines of more than
    /// 19,000 bytes, which gpg cuts off. `date` is as in [`Self::sign_detached`].
    pub fn sign_cleartext(&self, text: &[u8], date: i64) -> Result<Vec<u8>, Error> {
        let text = Text::new(text)?;
        let signature = self.sign(SignatureType::Text, &mut Cursor::new(&text.canonical), date)?;
        let hash = signature.0.signature.hash_alg().unwrap_or(HashAlgorithm::Sha256);
        Ok(text.with(&hash.to_string(), &signature.to_armored()?))
    }

    /// The public part of the key, to be published. A command has it where it was given.
    pub fn public_key(&self) -> Option<&PublicKey> {
        match &self.0 {
            By::Key(key) => Some(key.public()),
            By::Command(_, public) => public.as_deref(),
        }
    }

    fn sign(
        &self,
        typ: SignatureType,
        data: &mut (impl Read + Seek),
        date: i64,
    ) -> Result<Signature, Error> {
        let date = u32::try_from(date.max(0)).unwrap_or(u32::MAX);
        match &self.0 {
            By::Key(key) => {
                let time = date.max(key.part().created);
                key.part().check_at(u64::from(time))?;
                data.rewind().map_err(cannot_read)?;
                key.sign(typ, data, time).map(Signature)
            }
            By::Command(command, public) => {
                let time = public.as_ref().map_or(date, |key| date.max(key.newest().created));
                self.check_at(u64::from(time))?;
                data.rewind().map_err(cannot_read)?;
                let output = command.run(data, time, typ == SignatureType::Text)?;
                let signature = Signature::parse(&output).map_err(|what| command.fault(&what))?;
                signature.check_form(typ).map_err(|what| command.fault(&what))?;
                if let Some(public) = public {
                    data.rewind().map_err(cannot_read)?;
                    public.verify(&signature.0, data).map_err(|what| command.fault(&what))?;
                }
                Ok(signature)
            }
        }
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.0 {
            By::Key(_) => "key",
            By::Command(..) => "command",
        };
        f.debug_struct("Signer").field("by", &how).field("key_id", &self.key_id()).finish()
    }
}

/// The text of a signed message, as its readers get it. Its signature is not checked: see
/// [`Verifier::verify_cleartext`]. The error says what is wrong with it.
pub fn signed_text(message: &[u8]) -> Result<Vec<u8>, String> {
    Ok(cleartext::parse(message)?.0.plain)
}

fn cannot_read(e: io::Error) -> Error {
    Error::failed("cannot read what is to be signed").because(e)
}

/// A detached signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature(DetachedSignature);

impl Signature {
    /// Reads one signature, armored or binary. The error says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut all = Self::parse_all(bytes)?;
        match (all.pop(), all.len()) {
            (Some(one), 0) => Ok(one),
            (None, _) => Err("there is no signature in it".to_owned()),
            (Some(_), more) => Err(format!("there are {} signatures in it, not one", more + 1)),
        }
    }

    fn parse_all(bytes: &[u8]) -> Result<Vec<Self>, String> {
        if bytes.is_empty() {
            return Err("it is empty".to_owned());
        }
        if bytes.len() > MAX_SIGNATURE {
            return Err(format!("it has more than {MAX_SIGNATURE} bytes"));
        }
        // Each packet begins with a byte whose highest bit is set; armor is ASCII.
        let all = if bytes[0] & 0x80 == 0 {
            let start = bytes
                .windows(10)
                .position(|w| w == b"-----BEGIN")
                .ok_or("it is no OpenPGP data")?;
            DetachedSignature::from_armor_many_buf(&bytes[start..])
                .and_then(|(all, _)| all.collect::<Result<Vec<_>, _>>())
        } else {
            DetachedSignature::from_bytes_many(bytes).and_then(Iterator::collect)
        };
        let all = all.map_err(|e| e.to_string())?;
        Ok(all.into_iter().map(Self).collect())
    }

    /// The OpenPGP packet.
    pub fn to_binary(&self) -> Result<Vec<u8>, Error> {
        self.0.to_bytes().map_err(|e| Error::failed("cannot encode a signature").because(e))
    }

    /// The packet as text, between `BEGIN` and `END PGP SIGNATURE`.
    pub fn to_armored(&self) -> Result<Vec<u8>, Error> {
        let armored = self.0.to_armored_bytes(ArmorOptions::default());
        armored.map_err(|e| Error::failed("cannot encode a signature").because(e))
    }

    /// What it says of itself.
    pub fn info(&self) -> SignatureInfo {
        let signature = &self.0.signature;
        let algorithm = signature.config().map(|config| match config.pub_alg {
            PublicKeyAlgorithm::RSA | PublicKeyAlgorithm::RSASign => "RSA".to_owned(),
            PublicKeyAlgorithm::DSA => "DSA".to_owned(),
            PublicKeyAlgorithm::ECDSA => "ECDSA".to_owned(),
            PublicKeyAlgorithm::EdDSALegacy | PublicKeyAlgorithm::Ed25519 => "EdDSA".to_owned(),
            other => format!("algorithm {}", u8::from(other)),
        });
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        let id = signature.issuer_key_id().first().map(|id| hex(id.as_ref()));
        // The id of a version 4 key is the end of its fingerprint.
        let of_fingerprint = || {
            let fingerprint = signature.issuer_fingerprint();
            let bytes = fingerprint.first()?.as_bytes();
            Some(hex(bytes.get(bytes.len().checked_sub(8)?..)?))
        };
        SignatureInfo {
            algorithm: algorithm.unwrap_or_else(|| "unknown".to_owned()),
            digest: signature.hash_alg().map(|hash| hash.to_string()),
            key_id: id.or_else(of_fingerprint),
            created: signature.created().map(Timestamp::as_secs),
        }
    }

    /// What this signer would make: all that verifiers need is there.
    fn check_form(&self, typ: SignatureType) -> Result<(), String> {
        let signature = &self.0.signature;
        if signature.version() != SignatureVersion::V4 {
            return Err(format!("its version is {:?}, expected 4", signature.version()));
        }
        if signature.typ() != Some(typ) {
            let name = |typ| match typ {
                SignatureType::Binary => "binary".to_owned(),
                SignatureType::Text => "text".to_owned(),
                other => format!("{other:?}"),
            };
            let found = signature.typ().map_or_else(|| "unknown".to_owned(), name);
            return Err(format!("its type is {found}, expected {}", name(typ)));
        }
        let strong = [HashAlgorithm::Sha256, HashAlgorithm::Sha384, HashAlgorithm::Sha512];
        match signature.hash_alg() {
            Some(hash) if strong.contains(&hash) => {}
            Some(hash) => return Err(format!("its digest is {hash}, expected SHA256 or more")),
            None => return Err("it does not say its digest".to_owned()),
        }
        let info = self.info();
        if info.key_id.is_none() {
            return Err("it does not say which key made it".to_owned());
        }
        if info.created.is_none() {
            return Err("it does not say when it was made".to_owned());
        }
        Ok(())
    }

    /// Whether rpm reads it from the tag for RSA.
    pub fn is_rsa(&self) -> bool {
        self.0.signature.config().is_some_and(|config| {
            matches!(config.pub_alg, PublicKeyAlgorithm::RSA | PublicKeyAlgorithm::RSASign)
        })
    }
}

/// What a signature says of itself. None of it is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureInfo {
    /// `RSA`, `EdDSA`, `algorithm 99`.
    pub algorithm: String,
    /// `SHA256`.
    pub digest: Option<String>,
    /// 16 hexadecimal digits, in capitals.
    pub key_id: Option<String>,
    /// Seconds since 1970.
    pub created: Option<u32>,
}

/// The signature's fields before it is made.
fn config(
    typ: SignatureType,
    key: &impl KeyDetails,
    time: u32,
) -> ::pgp::errors::Result<SignatureConfig> {
    let mut config = SignatureConfig::v4(typ, key.algorithm(), HashAlgorithm::Sha256);
    let fingerprint = SubpacketData::IssuerFingerprint(key.fingerprint());
    let created = SubpacketData::SignatureCreationTime(Timestamp::from_secs(time));
    config.hashed_subpackets = vec![Subpacket::regular(fingerprint)?, Subpacket::regular(created)?];
    config.unhashed_subpackets =
        vec![Subpacket::regular(SubpacketData::IssuerKeyId(key.legacy_key_id()))?];
    Ok(config)
}
