//! Names of artifact directories: `{artifact}_{component}_{target}`.

use std::fmt;

use crate::target::Family;

/// The components that a build can install apart.
pub const COMPONENTS: &[&str] = &["lib", "run", "dev", "doc", "dbg", "test"];

/// What the target of an artifact without device code is called.
pub const GENERIC: &str = "generic";

/// What the target of a recombined artifact ends with whose files several groups share.
const SHARED: &str = "-shared";

/// The target of the recombined artifact for a family's files that several groups share:
/// `gfx11xx-shared`. It is part of package names, so `gfx12_0` and `gfx110X` become
/// `gfx12-0-shared` and `gfx110x-shared`. It names the family and not the groups: it stays short and
/// the same however many groups share, and no group of the configuration can be called so.
pub fn shared_target(family: &Family) -> String {
    family.to_string().to_ascii_lowercase().replace('_', "-") + SHARED
}

/// The family in a target that [`shared_target`] made; `None` for any other.
pub fn shared_family(target: &str) -> Option<Family> {
    let family = Family::parse(&target.strip_suffix(SHARED)?.replace('-', "_"))?;
    (shared_target(&family) == target).then_some(family)
}

/// Why a directory name is no artifact name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not three parts.
    #[error(
        "`{0}` is no artifact name (expected artifact_component_target, as blas_lib_gfx110X-dgpu)"
    )]
    Parts(String),
    /// The middle part is not a component.
    #[error(
        "`{name}` has the component `{component}` (expected one of lib, run, dev, doc, dbg, test)"
    )]
    Component {
        /// The whole name.
        name: String,
        /// What stands where the component should.
        component: String,
    },
}

/// A parsed artifact name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactName {
    /// `blas`
    pub artifact: String,
    /// `lib`
    pub component: String,
    /// Before splitting the build job's name or `generic`, then an ISA or a family, then a group or
    /// what groups share ([`shared_target`]).
    pub target: String,
}

impl ArtifactName {
    /// Takes `blas_lib_gfx110X-dgpu` apart. No part holds a `_`, except that a target may be a family
    /// of ISAs (`gfx12_0`).
    pub fn parse(name: &str) -> Result<Self, NameError> {
        let mut parts = name.splitn(3, '_');
        let (Some(artifact), Some(component), Some(target)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(NameError::Parts(name.to_owned()));
        };
        let target_good =
            !target.is_empty() && (!target.contains('_') || target.starts_with("gfx"));
        if artifact.is_empty() || !target_good {
            return Err(NameError::Parts(name.to_owned()));
        }
        if !COMPONENTS.contains(&component) {
            let component = component.to_owned();
            return Err(NameError::Component { name: name.to_owned(), component });
        }
        Ok(Self { artifact: artifact.into(), component: component.into(), target: target.into() })
    }

    /// Artifact and component together: `blas_lib`.
    pub fn prefix(&self) -> String {
        format!("{}_{}", self.artifact, self.component)
    }

    /// Whether it holds host code and data for all GPUs only.
    pub fn is_generic(&self) -> bool {
        self.target == GENERIC
    }

    /// The same artifact and component for another target.
    #[must_use]
    pub fn with_target(&self, target: impl Into<String>) -> Self {
        Self { target: target.into(), ..self.clone() }
    }
}

impl fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", self.artifact, self.component, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_three_parts() {
        let name = ArtifactName::parse("blas_lib_gfx110X-dgpu").unwrap();
        assert_eq!((name.prefix().as_str(), name.target.as_str()), ("blas_lib", "gfx110X-dgpu"));
        assert_eq!(ArtifactName::parse("rand_lib_gfx90a:xnack+").unwrap().target, "gfx90a:xnack+");
        assert_eq!(ArtifactName::parse("aotriton_lib_gfx12_0").unwrap().target, "gfx12_0");
        assert_eq!(
            ArtifactName::parse("aotriton_lib_gfx12-0-shared").unwrap().target,
            "gfx12-0-shared"
        );
        for bad in
            ["blas_lib", "blas", "_lib_x", "blas_lib_", "a_b_lib_generic", "blas_libs_generic"]
        {
            assert!(ArtifactName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_groups_share_is_called_like_the_family() {
        for (family, target) in [
            ("gfx11xx", "gfx11xx-shared"),
            ("gfx110X", "gfx110x-shared"),
            ("gfx12_0", "gfx12-0-shared"),
        ] {
            let made = shared_target(&Family::parse(family).unwrap());
            assert_eq!(made, target);
            assert_eq!(shared_family(target).as_ref().map(shared_target), Some(made));
        }
        for other in ["gfx11xx", "gfx1100-shared", "gfx110X-shared", "gfx12_0-shared", "-shared"] {
            assert_eq!(shared_family(other), None, "{other}");
        }
    }
}
