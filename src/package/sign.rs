//! Signing package files: `.rpm` within, `.deb` in a file beside it.
//!
//! A release is often built by one job and signed by another that holds the key. Of an `.rpm` only the
//! signature header changes, with its reserved bytes: header and payload stay as they are, and the
//! signature covers the payload through its digest in the header. A `.deb` has no signature that dpkg
//! or apt would look at (apt trusts the repository's index); `FILE.deb.asc` is for those who check files.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::render::hex;
use super::rpm::signature::{self, Entry, INTRO};
use crate::error::{Error, Result};
use crate::sign::Signer;
use crate::tree::whole::{NewFile, dir_of};

const LEAD: usize = 96;
const LEAD_MAGIC: [u8; 4] = [0xed, 0xab, 0xee, 0xdb];
const AR_MAGIC: [u8; 8] = *b"!<arch>\n";
/// The number of SHA-256 among rpm's digests.
const SHA256: u32 = 8;

/// What was signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signed {
    /// The package.
    pub file: PathBuf,
    /// Where the signature is: the package itself, or the file beside it.
    pub signature: PathBuf,
}

/// Signs a package file. An `.rpm` is replaced, once it is whole, by one with the signature; any that it
/// had goes. For a `.deb`, `FILE.deb.asc` is written or replaced. `date` is the time of the signature in
/// seconds since 1970; without it, it is that of the package.
pub fn file(path: &Path, signer: &Signer, date: Option<i64>) -> Result<Signed> {
    let mut input = File::open(path).map_err(|e| Error::io("cannot open", path, e))?;
    let mut magic = Vec::new();
    (&input).take(8).read_to_end(&mut magic).map_err(|e| Error::io("cannot read", path, e))?;
    if magic.starts_with(&LEAD_MAGIC) {
        // A link stays a link: what it leads to is replaced.
        let path = &fs::canonicalize(path).map_err(|e| Error::io("cannot resolve", path, e))?;
        rpm(path, &mut input, signer, date).map_err(|e| e.at(path))?;
        return Ok(Signed { file: path.to_owned(), signature: path.to_owned() });
    }
    if magic == AR_MAGIC {
        let date = date.map_or_else(|| deb_date(&mut input), Ok).map_err(|e| e.at(path))?;
        let name = beside(&mut input, path, signer, date)?;
        return Ok(Signed { file: path.to_owned(), signature: path.with_file_name(name) });
    }
    Err(Error::failed("is neither an .rpm nor a .deb package")
        .at(path)
        .hint("only packages can be signed")
        .into())
}

/// Writes an armored signature of a file beside it, as `NAME.asc`, whose name is returned.
pub(super) fn beside(
    file: &mut File,
    path: &Path,
    signer: &Signer,
    date: i64,
) -> Result<String, Error> {
    let armored = signer.sign_detached(file, date).and_then(|signature| signature.to_armored());
    let armored = armored.map_err(|e| e.at(path))?;
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(".asc");
    let asc = path.with_file_name(&name);
    replace(&asc, None, |out| {
        out.write_all(&armored).map_err(|e| Error::io("cannot write", &asc, e))
    })?;
    Ok(name.to_string_lossy().into_owned())
}

/// Makes a file under a temporary name, and gives it its own when it is whole.
fn replace(
    path: &Path,
    like: Option<&Path>,
    write: impl FnOnce(&mut File) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |e| Error::io("cannot make a file in", dir_of(path), e);
    // For everybody to check the package with.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    let permissions = match like {
        Some(like) => {
            fs::metadata(like).map_err(|e| Error::io("cannot read", like, e))?.permissions()
        }
        None => mode,
    };
    let mut new = NewFile::create(path).map_err(failed)?;
    write(new.file())?;
    new.file().set_permissions(permissions).map_err(failed)?;
    new.replace().map_err(|e| Error::io("cannot replace", path, e))
}

fn damaged(what: impl Into<String>) -> Error {
    Error::failed(what).hint("the package is damaged, and was left as it is")
}

/// A header of a package: its bytes, at the reader's position.
fn read_header(input: &mut File, which: &str) -> Result<Vec<u8>, Error> {
    let cannot = |e| damaged(format!("cannot read the {which}")).because(e);
    let mut intro = [0; INTRO];
    input.read_exact(&mut intro).map_err(cannot)?;
    let size = signature::size(&intro).map_err(|what| damaged(format!("the {which}: {what}")))?;
    let mut bytes = intro.to_vec();
    // A size that is not there takes no memory.
    let rest = (size - INTRO) as u64;
    let read = input.take(rest).read_to_end(&mut bytes).map_err(cannot)?;
    if (read as u64) < rest {
        return Err(damaged(format!("the {which} has {size} bytes, but the file ends before")));
    }
    Ok(bytes)
}

fn rpm(path: &Path, input: &mut File, signer: &Signer, date: Option<i64>) -> Result<(), Error> {
    let cannot = |e| damaged("cannot read the package").because(e);
    let mut lead = [0; LEAD];
    input.rewind().and_then(|()| input.read_exact(&mut lead)).map_err(cannot)?;
    let old = read_header(input, "signature header")?;
    let padding = old.len().next_multiple_of(8) - old.len();
    input.seek(SeekFrom::Current(padding as i64)).map_err(cannot)?;
    let header = read_header(input, "header")?;
    let entries =
        signature::parse(&header).map_err(|what| damaged(format!("the header: {what}")))?;
    let stated =
        signature::parse(&old).map_err(|what| damaged(format!("the signature header: {what}")))?;
    check_header(&stated, &header)?;
    let built =
        find(&entries, 1006).and_then(|data| Some(u32::from_be_bytes(*data.first_chunk()?)));
    let date = date.unwrap_or_else(|| built.unwrap_or_default().into());
    let new = signature::sign(&old, &header, signer, date)?;
    let expected = payload_digest(&entries);
    replace(path, Some(path), |out| {
        let cannot_write = |e| Error::failed("cannot write the signed package").because(e);
        out.write_all(&[&lead[..], &new, &header].concat()).map_err(cannot_write)?;
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 1 << 18];
        loop {
            let n = input.read(&mut buffer).map_err(cannot)?;
            if n == 0 {
                break;
            }
            digest.update(&buffer[..n]);
            out.write_all(&buffer[..n]).map_err(cannot_write)?;
        }
        let actual = hex(&digest.finalize());
        match expected {
            Some(expected) if expected != actual => Err(damaged(format!(
                "the header says SHA256 {expected} of the payload, but it is {actual}"
            ))),
            _ => Ok(()),
        }
    })
}

fn find(entries: &[Entry], tag: u32) -> Option<&[u8]> {
    entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.data.as_slice())
}

/// A string without its NUL.
fn text(data: &[u8]) -> String {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    String::from_utf8_lossy(&data[..end]).into_owned()
}

/// Nothing is signed that was not meant to be: the header must be the one that was made.
fn check_header(stated: &[Entry], header: &[u8]) -> Result<(), Error> {
    let (name, stated, actual) = if let Some(sha256) = find(stated, 273) {
        ("SHA256", text(sha256), hex(&Sha256::digest(header)))
    } else if let Some(sha1) = find(stated, 269) {
        ("SHA1", text(sha1), hex(&Sha1::digest(header)))
    } else {
        return Err(damaged("the package has no digest of its header")
            .hint("packages of rpm before 4.0 cannot be signed: build it again"));
    };
    if stated == actual {
        return Ok(());
    }
    Err(damaged(format!("the package says {name} {stated} of its header, but it is {actual}")))
}

/// The SHA-256 of the payload that a header states.
fn payload_digest(entries: &[Entry]) -> Option<String> {
    let algorithm = find(entries, 5093)?.first_chunk().map(|word| u32::from_be_bytes(*word));
    (algorithm == Some(SHA256)).then(|| find(entries, 5092).map(text))?
}

/// When a `.deb` was made: the time of its first member, `debian-binary`.
fn deb_date(input: &mut File) -> Result<i64, Error> {
    let mut start = [0; 36];
    let read = input.rewind().and_then(|()| input.read_exact(&mut start));
    read.map_err(|e| damaged("cannot read its first member").because(e))?;
    let digits = String::from_utf8_lossy(&start[24..]);
    digits.trim().parse().map_err(|_| {
        damaged(format!("its first member is dated `{}`, expected a number", digits.trim()))
    })
}
