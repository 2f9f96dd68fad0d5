//! The rpm side of a repository: `repodata/` with primary, filelists, other, and `repomd.xml`.

use serde::{Deserialize, Serialize};

use super::record::Relations;

/// What the metadata say of an `.rpm` beside the common facts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {}

impl Record {
    /// The relations that decide about upgrades.
    pub fn relations(&self) -> Relations {
        Relations::default()
    }
}
