//! The rpm side of a repository: `Packages/` and `repodata/`.
//!
//! ```text
//! repodata/repomd.xml                       size and SHA-256 of each document, compressed and not
//! repodata/repomd.xml.asc                   signature of it; repomd.xml.key, the key that zypper looks for
//! repodata/SHA256-primary.xml.zst           names, versions, relations, what people read
//! repodata/SHA256-filelists.xml.zst         paths
//! repodata/SHA256-other.xml.zst             changelogs
//! ```
//!
//! The documents are called after their content, so that who has read an older `repomd.xml` still finds
//! what that names. `repomd.xml` and its signature are two files, and a client asks for the one and then the other.
//! They are replaced in this order, one right after the other: a client then fails only when both replacements
//! fall between its two requests (or both requests between them). In the other order it would also fail when one
//! of them did.

mod metadata;
mod record;
mod xml;

use std::fmt::Write;
use std::io::Cursor;

use super::brief::Package;
use super::pieces::Kept;
use super::store::Settings;
use super::{Content, Fixed, Indices, Named, root};
use crate::error::Result;
use crate::jobs::Jobs;
use crate::package::Format;
use crate::sign::Signer;
pub use metadata::Compression;
use metadata::{Document, Kind};
pub(crate) use record::KINDS;
pub use record::{Changelog, Dependency, FileKind, FileName, Record, read};

/// A package's place below the root. `version` is with release and epoch, which has no place in file names.
pub fn pool_path(name: &str, version: &str, arch: &str) -> String {
    let first = name.get(..1).unwrap_or("_").to_ascii_lowercase();
    match version.split_once(':') {
        Some((epoch, version)) => {
            format!("Packages/{first}/epoch-{epoch}/{name}-{version}.{arch}.rpm")
        }
        None => format!("Packages/{first}/{name}-{version}.{arch}.rpm"),
    }
}

/// Makes the metadata of the packages, which are sorted. `date` is that of the publication, in seconds since
/// 1970: revision and timestamps. Without a signer there is no `repomd.xml.asc`. Of `kept`, those of the
/// publication before, is taken what has not changed; the bytes do not depend on it.
pub fn indices(
    packages: &[&Package],
    settings: &Settings,
    date: i64,
    signer: Option<&Signer>,
    kept: &Kept<'_>,
    jobs: &Jobs,
) -> Result<Indices> {
    let compression = settings.rpm_compression;
    let made = jobs.drive_longest_first(
        &Kind::ALL,
        |kind| kind.size_of(packages),
        |kind| metadata::document(*kind, packages, compression, kept, jobs),
    );
    let documents = made.into_iter().collect::<Result<Vec<Document>>>()?;
    let repodata = |name: &str| format!("{}/repodata/{name}", root(Format::Rpm));
    let repomd = repomd(&documents, date, compression).into_bytes();
    let mut all = Indices::default();
    let mut fixed = |path: String, bytes: Vec<u8>| {
        all.fixed.push(Fixed { path, content: Content::Bytes(bytes) });
    };
    if let Some(url) = &settings.url {
        let name = format!("{}/{}.repo", root(Format::Rpm), settings.name());
        // Nothing is promised of packages that are to come: clients keep the file.
        let are_signed =
            !packages.is_empty() && packages.iter().all(|package| package.part.is_signed);
        fixed(name, repo_file(settings, url, signer, are_signed).into_bytes());
    }
    if let Some(key) = signer.and_then(Signer::public_key) {
        fixed(repodata("repomd.xml.key"), key.to_armored()?);
    }
    let signature = match signer {
        Some(signer) => Some(signer.sign_detached(&mut Cursor::new(&repomd), date)?.to_armored()?),
        None => None,
    };
    fixed(repodata("repomd.xml"), repomd);
    if let Some(signature) = signature {
        fixed(repodata("repomd.xml.asc"), signature);
    }
    for document in documents {
        let path = format!("{}/{}", root(Format::Rpm), href(&document, compression));
        all.named.push(Named { paths: vec![path], bytes: document.bytes });
        all.blocks.extend(document.blocks);
    }
    Ok(all)
}

/// A document's place below the root.
fn href(document: &Document, compression: Compression) -> String {
    let name = document.kind.name();
    format!("repodata/{}-{name}.xml.{}", document.sha256, compression.ending())
}

// Writing to a string cannot fail.
fn repomd(documents: &[Document], date: i64, compression: Compression) -> String {
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <repomd xmlns=\"http://linux.duke.edu/metadata/repo\" \
         xmlns:rpm=\"http://linux.duke.edu/metadata/rpm\">\n  <revision>{date}</revision>\n"
    );
    for document in documents {
        let _ = write!(
            out,
            "  <data type=\"{}\">\n    <checksum type=\"sha256\">{}</checksum>\n    \
             <open-checksum type=\"sha256\">{}</open-checksum>\n    <location href=\"{}\"/>\n    \
             <timestamp>{date}</timestamp>\n    <size>{}</size>\n    <open-size>{}</open-size>\n  \
             </data>\n",
            document.kind.name(),
            document.sha256,
            document.open_sha256,
            href(document, compression),
            document.bytes.len(),
            document.open_size
        );
    }
    out += "</repomd>\n";
    out
}

/// What is to be copied to `/etc/yum.repos.d` or `/etc/zypp/repos.d`.
fn repo_file(
    settings: &Settings,
    url: &str,
    signer: Option<&Signer>,
    packages_are_signed: bool,
) -> String {
    let url = format!("{}/{}", url.trim_end_matches('/'), root(Format::Rpm));
    let flag = |value: bool| if value { '1' } else { '0' };
    // Where the metadata are signed, they vouch for packages without a signature by their digests.
    let is_signed = signer.is_some();
    let mut out = format!(
        "[{}]\nname={}\nbaseurl={url}\nenabled=1\ntype=rpm-md\ngpgcheck={}\nrepo_gpgcheck={}\n",
        settings.name(),
        settings.label,
        flag(is_signed && packages_are_signed),
        flag(is_signed)
    );
    match signer.map(Signer::public_key) {
        Some(Some(_)) => {
            let _ = writeln!(out, "gpgkey={url}/repodata/repomd.xml.key");
        }
        // Whose command signs knows where the key is.
        Some(None) => {
            let _ = writeln!(out, "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-{}", settings.name());
        }
        None => {}
    }
    out
}
