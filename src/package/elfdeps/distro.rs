//! The release of a distribution that packages are for, and the table of its libraries: one that is part of
//! the program, or a user's own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::table::Table;
use crate::config::text;
use crate::error::Error;

/// The tables of Debian have a quarter of a MiB.
const FILE_MAX: u64 = 16 << 20;

/// A release whose table is part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distro {
    /// Debian 12, bookworm.
    Debian12,
    /// Debian 13, trixie.
    Debian13,
}

impl Distro {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Debian12, Self::Debian13];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debian12 => "debian12",
            Self::Debian13 => "debian13",
        }
    }

    /// Its table.
    pub fn table(self) -> &'static Table {
        static TABLES: [OnceLock<Table>; 2] = [const { OnceLock::new() }; 2];
        let (place, text) = match self {
            Self::Debian12 => (&TABLES[0], include_str!("tables/debian12.txt")),
            Self::Debian13 => (&TABLES[1], include_str!("tables/debian13.txt")),
        };
        place.get_or_init(|| Table::parse(text).expect("a test reads the program's own tables"))
    }
}

impl fmt::Display for Distro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The release that packages are for.
#[derive(Debug, Clone)]
pub enum Target {
    /// One that the program knows.
    Known(Distro),
    /// One that a user has a table of.
    Table {
        /// Where it was read. Only messages name it.
        path: PathBuf,
        /// What it says.
        table: Arc<Table>,
    },
}

impl Target {
    /// Reads a table from a file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let hint = "tools/deb-tables/make.sh --output FILE makes a table, and docs/relations.md says \
                    what its lines are";
        let text = text::read(path, "table of libraries", FILE_MAX)?;
        let table = Table::parse(&text).map_err(|e| {
            Error::usage("is not a valid table of libraries").at(path).because(e).hint(hint)
        })?;
        Ok(Self::Table { path: path.to_owned(), table: Arc::new(table) })
    }

    /// Its libraries.
    pub fn table(&self) -> &Table {
        match self {
            Self::Known(distro) => distro.table(),
            Self::Table { table, .. } => table,
        }
    }

    /// What messages call the table.
    pub(super) fn table_name(&self) -> String {
        match self {
            Self::Known(distro) => format!("{distro}'s table of libraries"),
            Self::Table { path, .. } => format!("the table of libraries {}", path.display()),
        }
    }
}

/// As messages name the release.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(distro) => distro.fmt(f),
            Self::Table { path, .. } => write!(f, "the release of {}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_program_are_read() {
        for distro in Distro::ALL {
            let table = distro.table();
            assert!(table.has("libc.so.6") && table.has("libstdc++.so.6"), "{distro}");
        }
    }
}
