//! Writes `.rpm` files.

use super::*;

/// Writes a package as `.rpm`; see [`super::write`].
pub fn write(
    package: &Package,
    templates: &Templates,
    options: &Options,
    out: &mut File,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let _ = (package, templates, options, out, monitor);
    Err(crate::error::Error::failed("not written yet").into())
}
