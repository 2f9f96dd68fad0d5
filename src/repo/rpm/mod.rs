//! The rpm side of a repository: `repodata/` with primary, filelists, other, and `repomd.xml`.

use serde::{Deserialize, Serialize};

use super::Indices;
use super::record::{Facts, Record as Package, Relations};
use super::store::Settings;
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::package::read::PackageError;
use crate::read_at::ReadAt;
use crate::sign::Signer;

/// What the metadata say of an `.rpm` beside the common facts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {}

impl Record {
    /// The relations that decide about upgrades.
    pub fn relations(&self) -> Relations {
        Relations::default()
    }
}

/// A package's place below the root.
pub fn pool_path(name: &str, version: &str, arch: &str) -> String {
    let first = name.get(..1).unwrap_or("_");
    format!("Packages/{first}/{name}-{version}.{arch}.rpm")
}

/// Reads what the metadata need of a package file.
pub fn read(_: &dyn ReadAt) -> Result<Facts, PackageError> {
    Err(PackageError::Missing("support for .rpm yet".into()))
}

/// Makes the metadata of the packages, which are sorted.
pub fn indices(
    _: &[&Package],
    _: &Settings,
    _: i64,
    _: Option<&Signer>,
    _: &Jobs,
) -> Result<Indices> {
    Err(Error::failed("there is no support for .rpm yet").into())
}
