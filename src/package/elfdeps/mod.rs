//! Relations that follow from ELF files: what programs and libraries need, and what libraries provide.
//!
//! [`crate::elf::Needs`] says what one file asks of the loader. In an `.rpm` that becomes capabilities
//! ([`rpm`]), in a `.deb` relations to packages of a release of the distribution ([`table`]). A library
//! that is in the set itself becomes a relation to its package ([`relate`]).

mod distro;
mod read;
mod resolve;
pub mod rpm;
pub mod table;

pub use distro::{Distro, Target};
pub use read::{LineProblem, TableError};
pub use resolve::{Options, relate};
pub use table::DebDepends;
