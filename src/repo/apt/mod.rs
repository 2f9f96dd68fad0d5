//! The apt side of a repository: `pool/` and `dists/SUITE/`.
//!
//! ```text
//! dists/SUITE/InRelease                         signed: size, SHA256 and SHA512 of every index
//! dists/SUITE/Release, Release.gpg              the same, for clients without InRelease
//! dists/SUITE/COMPONENT/binary-ARCH/Packages    a stanza a package; also as .gz, .xz, .zst
//! dists/SUITE/COMPONENT/Contents-ARCH.gz        which package has which file
//! dists/SUITE/COMPONENT/…/by-hash/SHA256/HASH   the same indices by name of their content
//! ```
//!
//! `Acquire-By-Hash: yes` in the Release tells apt to fetch indices by their hash: whoever has read an older
//! Release still finds what that names. Source: the repository format of the Debian wiki; apt 2.6.

mod record;

pub use record::Record;
