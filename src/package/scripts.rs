//! Alternatives: what maintainer scripts say to update-alternatives.
//!
//! A `.deb` adds its alternatives in `postinst` and takes them back in `prerm`, when it is removed and not
//! when it is upgraded: the administrator's choice stays. An `.rpm` does the same in `%post` and, when the
//! last version goes (`$1` is 0), in `%postun`, as Fedora's and openSUSE's guidelines have it; so do those whose file a new version
//! no longer has. Taking one of
//! several back leaves the others, and update-alternatives then chooses the best of them.

use serde::{Deserialize, Serialize};

/// A file that a package offers under a name that others can provide as well. Templates see the fields
/// under their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternative {
    /// The generic name, an absolute path.
    pub link: String,
    /// What the choice is called.
    pub name: String,
    /// The file, an absolute path.
    pub path: String,
    /// The highest is chosen where nobody chose.
    pub priority: i32,
    /// Links that go with it.
    pub followers: Vec<Follower>,
}

/// A link that goes with an alternative's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follower {
    /// The generic name, an absolute path.
    pub link: String,
    /// What it is called.
    pub name: String,
    /// The file, an absolute path.
    pub path: String,
}
