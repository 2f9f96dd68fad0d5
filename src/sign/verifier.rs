//! Checking signatures against public keys.

use std::io::{Read, Seek};

use ::pgp::packet::SignatureType;

use super::cleartext;
use super::key::PublicKey;
use super::{Signature, SignatureInfo};
use crate::error::Error;

/// Public keys, any of which may have signed.
#[derive(Debug)]
pub struct Verifier(Vec<PublicKey>);

impl Verifier {
    /// `keys` are one or more exported public keys, armored or binary. A key that could not sign
    /// packages (revoked, too short, not for signing) is refused. Errors name no file: the caller does.
    pub fn from_keys(keys: &[u8]) -> Result<Self, Error> {
        Ok(Self(PublicKey::read_all(keys)?))
    }

    /// Whether a detached signature is of all of `data`, which is read from its start, by one of the
    /// keys, made while that key was valid, and strong. The error says what is wrong.
    pub fn verify_detached(
        &self,
        signature: &Signature,
        data: &mut (impl Read + Seek),
    ) -> Result<SignatureInfo, String> {
        self.verify(signature, SignatureType::Binary, data)
    }

    /// Checks a signed text, and returns it as it was signed, with LF as line ends. Of several
    /// signatures one by a known key is enough.
    pub fn verify_cleartext(&self, message: &[u8]) -> Result<(Vec<u8>, SignatureInfo), String> {
        let (text, armor) = cleartext::parse(message)?;
        let mut why = "there is no signature in it".to_owned();
        for signature in Signature::parse_all(&armor)? {
            let mut data = std::io::Cursor::new(&text.canonical);
            match self.verify(&signature, SignatureType::Text, &mut data) {
                Ok(info) => return Ok((text.plain, info)),
                Err(e) => why = e,
            }
        }
        Err(why)
    }

    fn verify(
        &self,
        signature: &Signature,
        typ: SignatureType,
        data: &mut (impl Read + Seek),
    ) -> Result<SignatureInfo, String> {
        signature.check_form(typ)?;
        let mut why = Vec::new();
        for key in &self.0 {
            data.rewind().map_err(|e| format!("what was signed cannot be read: {e}"))?;
            match key.verify(&signature.0, data) {
                Ok(()) => return Ok(signature.info()),
                Err(e) => why.push(e),
            }
        }
        Err(why.join("; "))
    }
}
