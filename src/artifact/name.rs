//! Names of artifact directories: `{artifact}_{component}_{target}`.

use std::fmt;

/// The components that a build can install apart.
pub const COMPONENTS: &[&str] = &["lib", "run", "dev", "doc", "dbg", "test"];

/// What the target of an artifact without device code is called.
pub const GENERIC: &str = "generic";

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
    /// Before splitting the build job's name or `generic`, then an ISA, then a group.
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
        for bad in
            ["blas_lib", "blas", "_lib_x", "blas_lib_", "a_b_lib_generic", "blas_libs_generic"]
        {
            assert!(ArtifactName::parse(bad).is_err(), "{bad}");
        }
    }
}
