//! The state of a repository between runs.

use serde::{Deserialize, Serialize};

/// What was said when the repository was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `Suite` and `Codename` of the Release, and the directory below `dists/`.
    pub suite: String,
    /// `Codename`, where it is another.
    pub codename: Option<String>,
    /// `Origin`, who publishes; the name of `.sources` and `.repo` files as well.
    pub origin: String,
    /// `Label`, for people and for pinning.
    pub label: String,
    /// Component of packages.
    pub component: String,
    /// Whether packages of an architecture group have a component of their own, called after the group.
    pub group_components: bool,
    /// Days after which a Release is no longer to be trusted; never where it is left out.
    pub valid_days: Option<u32>,
    /// Where clients find the repository's directory: `https://repo.example.org/rocm`.
    pub url: Option<String>,
}
