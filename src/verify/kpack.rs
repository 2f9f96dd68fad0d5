//! Invariant 4, and of 3 what a kpack says of itself: every kernel is read once, as a stream.
//!
//! An archive can be larger than memory and so can one kernel of it: of a large one only the two
//! ends are kept, where the tables of an ELF file are.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use super::finding::{Check, Findings, chain};
use crate::fatbin::code_object::{CodeObjectError, CodeObjectHeader, IsaCheck};
use crate::kpack::kpm::Kpm;
use crate::kpack::reader::{Archive, Entry, KpackError};
use crate::read_at::{Cursor, ReadAt};
use crate::streams;
use crate::target::TargetId;

/// Code objects up to this size are held whole.
const WHOLE: u64 = 8 << 20;
/// What is kept of the beginning of a larger one: program headers stand there.
const HEAD: usize = 1 << 20;
/// What is kept of its end: section headers stand there, at most 65535 × 64 bytes.
const TAIL: usize = 4 << 20;

/// What is known of an archive that could be opened.
#[derive(Debug)]
pub(super) struct KpackFacts {
    pub group_name: String,
    pub gfx_arches: Vec<TargetId>,
    pub kernels: Vec<KernelFacts>,
    pub size: u64,
}

/// One entry of an archive.
#[derive(Debug)]
pub(super) struct KernelFacts {
    pub binary: String,
    pub co_index: u32,
    pub isa: TargetId,
    /// Of the code object's bytes, where it could be read and hashes were asked for.
    pub hash: Option<blake3::Hash>,
}

/// Reads an archive and all its kernels; `None` where it cannot be opened.
pub(super) fn archive(r: &dyn ReadAt, hash: bool, findings: &mut Findings) -> Option<KpackFacts> {
    let archive = match Archive::open(r) {
        Ok(archive) => archive,
        Err(e) => {
            let what = format!("cannot be opened as a kpack: {}", chain(&e));
            findings.add(Check::KpackDamaged, what, "a kpack archive, version 1");
            return None;
        }
    };
    let entries = archive.entries();
    let mut by_ordinal: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        by_ordinal.entry(entry.ordinal).or_default().push(entry);
    }
    unnamed(&archive, &by_ordinal, findings);
    let arches: BTreeSet<_> = archive.gfx_arches().iter().collect();
    let unlisted: BTreeSet<_> =
        entries.iter().map(|entry| &entry.isa).filter(|isa| !arches.contains(isa)).collect();
    for isa in unlisted {
        let what = format!("has kernels for {isa}, but gfx_arches does not list it");
        findings.add(Check::KpackDamaged, what, "every ISA listed: the runtime looks there first");
    }
    let mut damaged = Few::default();
    let mut hashes = BTreeMap::new();
    for (ordinal, entries) in &by_ordinal {
        match kernel(&archive, entries[0], hash) {
            Ok(read) => {
                judge(&read, entries, findings);
                hashes.insert(*ordinal, read.hash);
            }
            Err(e) => damaged.add(|| chain(&e)),
        }
        let sizes: BTreeSet<_> = entries.iter().map(|entry| entry.original_size).collect();
        if sizes.len() > 1 {
            let what = format!(
                "entries of one code object claim {sizes:?} bytes: {}",
                entries.iter().map(|entry| entry.name()).collect::<Vec<_>>().join(", ")
            );
            findings.add(Check::KpackDamaged, what, "one size");
        }
    }
    if let Some(what) = damaged.say("kernel cannot be read", "kernels cannot be read") {
        findings.add(
            Check::KpackDamaged,
            what,
            "every frame whole, with its stated size and its checksum",
        );
    }
    let kernels = entries
        .iter()
        .map(|entry| KernelFacts {
            binary: entry.binary.clone(),
            co_index: entry.co_index,
            isa: entry.isa.clone(),
            hash: hashes.get(&entry.ordinal).copied().flatten(),
        })
        .collect();
    Some(KpackFacts {
        group_name: archive.group_name().to_owned(),
        gfx_arches: archive.gfx_arches().to_vec(),
        kernels,
        size: r.len(),
    })
}

/// Stored code objects that no entry names are what a lost entry leaves behind.
fn unnamed(archive: &Archive, named: &BTreeMap<u32, Vec<&Entry>>, findings: &mut Findings) {
    let stored = archive.unique_count();
    if named.len() < stored {
        let what = format!(
            "of {stored} stored code objects {} are named by no entry of the table of contents",
            stored - named.len()
        );
        findings.add(Check::KpackDamaged, what, "an entry for each: entries were lost");
    }
}

/// A kernel that was read to its end.
struct ReadKernel {
    header: Result<CodeObjectHeader, CodeObjectError>,
    hash: Option<blake3::Hash>,
}

fn kernel(archive: &Archive, entry: &Entry, hash: bool) -> Result<ReadKernel, KpackError> {
    let mut stream = archive.open_entry(entry)?;
    let fail = |source| KpackError::Content { name: entry.name(), source };
    let (header, hash) = code_object(&mut stream, entry.original_size, hash).map_err(fail)?;
    Ok(ReadKernel { header, hash })
}

/// Reads a code object of `size` bytes from a stream to its end: its checked header, and on request
/// its hash. The header's check is left out where the tables of a very large one stand in its middle.
pub(super) fn code_object(
    stream: &mut dyn Read,
    size: u64,
    hash: bool,
) -> io::Result<(Result<CodeObjectHeader, CodeObjectError>, Option<blake3::Hash>)> {
    let mut hasher = hash.then(blake3::Hasher::new);
    let mut ends = Ends::new(size);
    let mut buffer = vec![0; 64 * 1024];
    streams::pieces(stream, &mut buffer, |piece| {
        if let Some(hasher) = &mut hasher {
            hasher.update(piece);
        }
        ends.push(piece);
        Ok(())
    })?;
    ends.finish();
    let header = match CodeObjectHeader::read(&ends) {
        Err(CodeObjectError::Io { .. }) => CodeObjectHeader::parse(&ends.head),
        other => other,
    };
    Ok((header, hasher.map(|hasher| hasher.finalize())))
}

/// What the content of one code object says against the ISAs that it is filed under.
fn judge(read: &ReadKernel, entries: &[&Entry], findings: &mut Findings) {
    let first = entries[0];
    let header = match &read.header {
        Ok(header) => header,
        Err(e) => {
            let what = format!("kernel `{}` for {}: {}", first.name(), first.isa, chain(e));
            return findings.add(Check::KernelDamaged, what, "a whole AMDGPU code object");
        }
    };
    let Some(found) = &header.target else { return };
    for entry in entries {
        let what = || {
            format!(
                "kernel `{}` is filed under {} but its e_flags ({:#x}) say {found}",
                entry.name(),
                entry.isa,
                header.e_flags
            )
        };
        match header.check(&entry.isa) {
            IsaCheck::Other => {
                findings.add(Check::KernelIsa, what(), format!("code for {}", entry.isa));
            }
            // Code that leaves a feature open runs wherever the id is right; the reverse does not.
            IsaCheck::Features if !entry.isa.search_order().contains(found) => {
                findings.add(Check::KernelFeatures, what(), format!("code for {}", entry.isa));
            }
            _ => {}
        }
    }
}

/// A `.kpm` manifest; `None` where it cannot be read.
pub(super) fn manifest(r: &dyn ReadAt, findings: &mut Findings) -> Option<Kpm> {
    match Kpm::read(Cursor::new(r, 0, r.len())) {
        Ok(kpm) => Some(kpm),
        Err(e) => {
            findings.add(
                Check::KpmStale,
                format!("cannot be read: {}", chain(&e)),
                "a kpack manifest, version 1",
            );
            None
        }
    }
}

/// Several faults of one kind: the first in words, the rest counted.
#[derive(Default)]
pub(super) struct Few {
    count: usize,
    first: String,
}

impl Few {
    pub fn add(&mut self, what: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = what();
        }
        self.count += 1;
    }

    /// `1 kernel cannot be read: …`, `3 kernels cannot be read, the first: …`, or nothing.
    pub fn say(&self, one: &str, several: &str) -> Option<String> {
        match self.count {
            0 => None,
            1 => Some(format!("1 {one}: {}", self.first)),
            n => Some(format!("{n} {several}, the first: {}", self.first)),
        }
    }
}

/// The two ends of a code object, seen as if all of it were there.
struct Ends {
    len: u64,
    seen: u64,
    head: Vec<u8>,
    /// The last bytes; up to twice as many while they come in.
    tail: Vec<u8>,
}

impl Ends {
    fn new(len: u64) -> Self {
        Self { len, seen: 0, head: Vec::new(), tail: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        let room = if self.len <= WHOLE { usize::MAX } else { HEAD };
        let (head, rest) = bytes.split_at(bytes.len().min(room - self.head.len().min(room)));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
    }

    fn finish(&mut self) {
        self.len = self.seen;
    }
}

impl ReadAt for Ends {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let tail_start = self.len - self.tail.len() as u64;
        match offset.checked_sub(tail_start) {
            Some(at) if !self.tail.is_empty() => self.tail.read_exact_at(buf, at),
            _ => self.head.read_exact_at(buf, offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_large_code_object_both_ends_can_be_read() {
        let len = WHOLE + 12_345_678;
        let byte = |i: u64| (i % 251) as u8;
        let mut ends = Ends::new(len);
        let mut at = 0;
        while at < len {
            let n = 100_003.min(len - at);
            ends.push(&(at..at + n).map(byte).collect::<Vec<_>>());
            at += n;
        }
        ends.finish();
        let mut buf = [0; 64];
        for start in [0, HEAD as u64 - 64, len - TAIL as u64, len - 64] {
            ends.read_exact_at(&mut buf, start).unwrap();
            assert_eq!(buf.to_vec(), (start..start + 64).map(byte).collect::<Vec<_>>());
        }
        assert!(ends.read_exact_at(&mut buf, HEAD as u64 + 1).is_err());
        assert!(ends.read_exact_at(&mut buf, len - 63).is_err());
        assert!(ends.tail.len() <= 2 * TAIL);
    }
}
