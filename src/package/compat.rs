//! What the package managers of older systems can unpack and understand.

use std::fmt;
use std::str::FromStr;

use super::Format;
use super::compress::Compression;
use super::spec::Package;

/// A system that packages have to install on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct System {
    name: &'static str,
    format: Format,
    /// Its package manager, and whether that reads zstd.
    manager: &'static str,
    zstd: bool,
    /// Of rpm: major and minor version.
    rpm: (u32, u32),
}

/// What of an `.rpm`'s relations came with a version of rpm (its NEWS; `rpmlib(…)` in a header asks for the same).
const RICH: (u32, u32) = (4, 12);
const CARET: (u32, u32) = (4, 15);

/// dpkg reads zstd since 1.21.18; Ubuntu's own does since 21.10. rpm does since 4.14 where it is built with it, which EL 8's
/// is since 8.2 (Red Hat bug 1715799); the first of SLE 15 are not, and its own packages are xz.
const SYSTEMS: [System; 12] = [
    System::deb("debian11", "dpkg 1.20", false),
    System::deb("debian12", "dpkg 1.21.22", true),
    System::deb("debian13", "dpkg 1.22", true),
    System::deb("ubuntu20.04", "dpkg 1.19", false),
    System::deb("ubuntu22.04", "dpkg 1.21.1ubuntu2", true),
    System::deb("ubuntu24.04", "dpkg 1.22", true),
    System::rpm("el7", "rpm 4.11", false, (4, 11)),
    System::rpm("el8", "rpm 4.14 of EL 8.2", true, (4, 14)),
    System::rpm("el9", "rpm 4.16", true, (4, 16)),
    System::rpm("el10", "rpm 4.19", true, (4, 19)),
    System::rpm("sle15", "rpm 4.14", false, (4, 14)),
    System::rpm("sle16", "rpm 4.20", true, (4, 20)),
];

/// A system that is not in the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not known; the systems are {list}", list = System::names().join(", "))]
pub struct UnknownSystem(String);

impl System {
    const fn deb(name: &'static str, manager: &'static str, zstd: bool) -> Self {
        Self { name, format: Format::Deb, manager, zstd, rpm: (0, 0) }
    }

    const fn rpm(name: &'static str, manager: &'static str, zstd: bool, rpm: (u32, u32)) -> Self {
        Self { name, format: Format::Rpm, manager, zstd, rpm }
    }

    /// The names of all that are known.
    pub fn names() -> [&'static str; SYSTEMS.len()] {
        SYSTEMS.map(|system| system.name)
    }

    /// Whether it can unpack a package of this format that is compressed so; if not, why. Of a format that is not its own it
    /// asks nothing.
    pub fn check(&self, format: Format, compression: Compression) -> Result<(), String> {
        match compression {
            Compression::Zstd { .. } if format == self.format && !self.zstd => {
                Err(format!("{self} has {}, which cannot read {compression}", self.manager))
            }
            _ => Ok(()),
        }
    }

    /// Whether it understands the relations of a package in this format; if not, why.
    pub fn check_relations(&self, format: Format, package: &Package) -> Result<(), String> {
        if format != self.format || self.format == Format::Deb {
            return Ok(());
        }
        let rich =
            || package.rpm.values().flatten().find(|text| text.trim_start().starts_with('('));
        let caret = || [&package.version, &package.release].into_iter().find(|v| v.contains('^'));
        for (since, what, found) in [(RICH, "relation", rich()), (CARET, "version", caret())] {
            if let Some(found) = found.filter(|_| self.rpm < since) {
                let (major, minor) = since;
                return Err(format!(
                    "{self} has {}, and the {what} `{found}` needs {major}.{minor}",
                    self.manager
                ));
            }
        }
        Ok(())
    }

    /// The compression of a format that all of these systems read: the default where they do.
    pub fn common(systems: &[Self], format: Format) -> Compression {
        let default = Compression::default();
        let all = systems.iter().all(|system| system.check(format, default).is_ok());
        if all { default } else { Compression::Xz { level: 6 } }
    }
}

impl FromStr for System {
    type Err = UnknownSystem;

    fn from_str(text: &str) -> Result<Self, UnknownSystem> {
        let found = SYSTEMS.into_iter().find(|system| system.name == text);
        found.ok_or_else(|| UnknownSystem(text.to_owned()))
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_decides_and_each_for_its_format() {
        let common = |names: &[&str], format| {
            let systems: Vec<System> = names.iter().map(|name| name.parse().unwrap()).collect();
            System::common(&systems, format).to_string()
        };
        let default = Compression::default().to_string();
        assert_eq!(common(&[], Format::Deb), default);
        assert_eq!(common(&["debian12", "el8"], Format::Deb), default);
        assert_eq!(common(&["debian12", "debian11", "el8"], Format::Deb), "xz:6");
        assert_eq!(common(&["debian11", "el8"], Format::Rpm), default);
        assert_eq!(common(&["el9", "sle15"], Format::Rpm), "xz:6");
        assert!(
            "debian10".parse::<System>().unwrap_err().to_string().contains("debian11, debian12")
        );
    }
}
