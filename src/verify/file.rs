//! Looking at one file: what it is, and what is wrong with it by itself. Each file is opened and read
//! once; what the checks over several files need is kept as [`Facts`].

use std::io;

use super::finding::{Check, Findings, chain};
use super::host::{self, ProgramFacts};
use super::isa;
use super::kpack::{self, KpackFacts};
use super::subject::Holds;
use super::unchecked::Unchecked;
use crate::database::Owner;
use crate::elf;
use crate::fatbin::bundle;
use crate::kpack::kpm::Kpm;
use crate::read_at::ReadAt;
use crate::tree::{Source, TreePath};

/// What is known of a file.
#[derive(Debug)]
pub(super) enum Facts {
    /// A kpack archive, whatever it is called; `None` where it cannot be opened.
    Kpack(Option<KpackFacts>),
    /// A kpack manifest.
    Kpm(Option<Kpm>),
    /// An x86-64 program or shared library.
    Program(ProgramFacts),
    /// Code objects outside of a program.
    DeviceCode,
    /// Anything else.
    Other,
}

/// What a file is read for.
pub(super) struct Task<'a> {
    pub path: &'a TreePath,
    pub holds: &'a Holds<'a>,
    /// Whose database file it is.
    pub owner: Option<&'a Owner>,
    /// Component `dbg`: files that hold debug information of others.
    pub debug: bool,
    /// Kernels are to be hashed.
    pub hash: bool,
    /// Where compressed bundles wait for their hashes, with the file's number there; without, each is
    /// hashed by itself.
    pub unchecked: Option<(usize, &'a Unchecked)>,
}

/// Reads a file. `None` where it cannot be read at all.
pub(super) fn look(source: &Source, task: &Task, findings: &mut Findings) -> Option<Facts> {
    match open(source) {
        Ok(r) => look_at(&*r, task, findings),
        Err(e) => {
            findings.add(Check::Unreadable, format!("cannot be read: {e}"), "a readable file");
            None
        }
    }
}

/// The same with a file that is open.
pub(super) fn look_at(r: &dyn ReadAt, task: &Task, findings: &mut Findings) -> Option<Facts> {
    let mut magic = [0; 24];
    let known = usize::try_from(r.len()).map_or(24, |len| len.min(24));
    if let Err(e) = r.read_exact_at(&mut magic[..known], 0) {
        findings.add(Check::Unreadable, format!("cannot be read: {e}"), "a readable file");
        return None;
    }
    let name = task.path.file_name();
    let ends = |ending: &str| name.ends_with(ending.as_bytes());
    Some(if ends(".kpack") || magic.starts_with(b"KPAK") {
        Facts::Kpack(kpack::archive(r, task.hash, findings))
    } else if ends(".kpm") {
        Facts::Kpm(kpack::manifest(r, findings))
    } else if ends(".co") || ends(".hsaco") || bundle::is_bundle(&magic) {
        isa::code_file(r, &magic, task, findings);
        Facts::DeviceCode
    } else {
        match elf::probe(r) {
            Ok(elf::Kind::Program(image)) => {
                Facts::Program(host::program(r, image, task, findings))
            }
            Ok(elf::Kind::Other { machine: 224, .. }) => {
                isa::code_file(r, &magic, task, findings);
                Facts::DeviceCode
            }
            Ok(_) => {
                if r.is_empty() {
                    empty(task, findings);
                }
                Facts::Other
            }
            Err(e) => {
                let what = format!("is an x86-64 ELF file with damaged headers: {}", chain(&e));
                findings.add(
                    Check::HostDamaged,
                    what,
                    "headers, segments and sections in the file",
                );
                Facts::Other
            }
        }
    })
}

/// Empty files are fine, but not as libraries, and in a database worth a look.
fn empty(task: &Task, findings: &mut Findings) {
    let name = String::from_utf8_lossy(task.path.file_name());
    if name.ends_with(".so") || name.contains(".so.") {
        findings.add(Check::HostDamaged, "is empty", "a shared library");
    } else if task.owner.is_some() && !matches!(task.holds, Holds::Generic) {
        findings.add(Check::DatabaseEmpty, "is empty", "a database file with content");
    }
}

/// Opens a file's content for reading at any place.
pub(super) fn open(source: &Source) -> io::Result<Box<dyn ReadAt + '_>> {
    Ok(match source {
        Source::File(file) => Box::new(file.open()?),
        Source::Bytes(bytes) => Box::new(&bytes[..]),
        _ => return Err(io::Error::other("the file has not been written yet")),
    })
}
