//! What a set of packages will take on disk, estimated from the plan: for the warning before and the message after a disk is full.

use std::path::Path;

use rustix::fs::statvfs;

use super::Format;
use super::compress::Compression;
use super::spec::Package;
use super::together;
use crate::error::{Error, Errors};
use crate::tree::Source;

/// What content takes once compressed, in percent: device code of ROCm's libraries takes 15 to 30 at zstd's level 3, host code and
/// kernel databases 15 to 40.
const COMPRESSED: u64 = 30;

/// What a package takes beside its content.
const FRONT: u64 = 8 << 10;

/// An estimate of what writing packages takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// All packages in all formats.
    pub packages: u64,
    /// What one package at a time needs beside: archives that are built, and what both formats copy first.
    pub spool: u64,
}

impl Room {
    /// Estimates it.
    pub fn estimate(packages: &[Package], formats: &[(Format, Compression)]) -> Self {
        let mut room = Self { packages: 0, spool: 0 };
        for package in packages {
            let sources = package.tree.iter().filter_map(|(_, entry)| entry.source());
            let (mut plain, mut archives) = (0u64, 0u64);
            for source in sources {
                match source {
                    Source::Kpack(plan) => archives += plan.estimated_size(),
                    other => plain += other.work(),
                }
            }
            let size =
                |how: &Compression| archives + percent(plain, *how != Compression::None) + FRONT;
            room.packages += formats.iter().map(|(_, how)| size(how)).sum::<u64>();
            let both = [Format::Deb, Format::Rpm]
                .iter()
                .all(|both| formats.iter().any(|(format, _)| format == both));
            let copied = if both { together::copied_first(&package.tree) } else { 0 };
            room.spool = room.spool.max(archives + copied);
        }
        room
    }

    /// Both together.
    pub fn total(&self) -> u64 {
        self.packages.saturating_add(self.spool)
    }
}

fn percent(bytes: u64, compressed: bool) -> u64 {
    if compressed { bytes / 100 * COMPRESSED + bytes % 100 * COMPRESSED / 100 } else { bytes }
}

/// Bytes that are free where `path` is, or will be.
pub fn free(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|dir| dir.exists()).filter(|dir| *dir != Path::new(""));
    let fs = statvfs(there.unwrap_or(Path::new("."))).ok()?;
    Some(fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// Makes one error of those that a full disk is the cause of, which says what was needed. `free` is what was free before.
pub(crate) fn one_error(errors: Errors, room: Room, free: Option<u64>) -> Errors {
    let (full, mut others): (Vec<_>, Vec<_>) =
        errors.into_vec().into_iter().partition(Error::is_disk_full);
    if let Some(first) = full.into_iter().next() {
        let Room { packages, spool } = room;
        let there = free.map_or_else(String::new, |free| format!("; {} were free", human(free)));
        let needed = format!(
            "the disk is full: from the plan, the packages take an estimated {}, and while they are written {} beside them{there}",
            human(packages),
            human(spool)
        );
        let hint = first.hint_text().unwrap_or_default().to_owned();
        others.insert(0, Error::failed(needed).hint(hint).because(first));
    }
    Errors::check((), others).expect_err("there was an error")
}

fn human(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..0x10_0000 => (1 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1u64 << 30, "GiB"),
    };
    let tenths = bytes.saturating_mul(10).div_ceil(unit);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}
