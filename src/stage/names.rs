//! What the packages of a definition are called. All names of packages of the set are made here, so that each format has
//! its own in every relation.

use crate::config::FileKind;
use crate::package::spec::Name;

/// A definition's own package, or that of one kind of its files: `rocblas`, `rocblas-dev` (in an `.rpm`
/// `rocblas-devel`). Packages of groups, and what groups share, add the group or target to it.
pub(super) fn own(definition: &str, kind: Option<FileKind>) -> Name {
    match kind {
        Some(kind) => Name::each(
            format!("{definition}-{}", kind.suffix()),
            format!("{definition}-{}", kind.rpm_suffix()),
        ),
        None => Name::both(definition),
    }
}

/// The package with host code of a definition that has device code.
pub(super) fn generic(definition: &str) -> Name {
    own(definition, None).with("generic")
}

/// A group's package with a definition's device code, or what groups share of it.
pub(super) fn group(definition: &str, group: &str) -> Name {
    own(definition, None).with(group)
}

/// What the packages with device code stand for, of a definition or of one kind of its files.
pub(super) fn kernels(own: &Name) -> Name {
    own.with("kernels")
}
