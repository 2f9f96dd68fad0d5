//! What is kept of a `.deb`: its control file and the paths of its files.

use serde::{Deserialize, Serialize};

use crate::repo::record::Relations;

/// What indices say of a `.deb` beside the common facts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The control file: fields in their order, each with its lines, without an empty line.
    pub control: String,
    /// What it installs but for directories, without the leading slash, in order.
    pub files: Vec<String>,
}

impl Record {
    /// The relations that decide about upgrades.
    pub fn relations(&self) -> Relations {
        Relations::default()
    }
}
