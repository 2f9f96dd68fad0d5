//! Inspecting: what one file says of itself, told by its content, never by its name.
//!
//! Kpack archives and their manifests, fat and converted binaries, offload bundles, code objects,
//! `.deb` and `.rpm` packages, artifact manifests. Files are read by position or as a stream; what a
//! report holds is bounded, whatever a header claims. [`extract()`] takes the code objects out of
//! whatever holds some, and [`diff()`] says what differs between two packages or two archives.

mod code;
mod diff;
mod extract;
mod program;

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::artifact::{MANIFEST, MANIFEST_MAX, parse_manifest};
use crate::elf;
use crate::error::{Error, Errors, Result};
use crate::fatbin::bundle::is_bundle;
use crate::fatbin::code_object::CodeObjectHeader;
use crate::kpack::kpm::Kpm;
use crate::package::read::{Ignore, deb, rpm};
use crate::read_at::{Cursor, OpenFile, ReadAt};

pub use crate::package::read::{FileReport, Member, PackageError, PackageReport, Script};
pub use code::{
    BundleReport, BundlesReport, CodeObjectReport, EntryReport, KernelReport, KpackReport,
};
pub use diff::{Change, Difference, FileChange, ListChange, diff};
pub use extract::{ExtractOptions, Extracted, Extraction, extract};
pub use program::{DebDepends, IsaReport, MarkerReport, ProgramReport, Relations, WrapperReport};

const EM_AMDGPU: u16 = 224;

/// What a file is, and what it says of itself.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// The rest.
    #[serde(flatten)]
    pub content: Content,
}

/// By kind of file.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Content {
    /// A kpack archive.
    Kpack(KpackReport),
    /// A manifest of kpack archives.
    Kpm(Kpm),
    /// A host program or shared library.
    Program(Box<ProgramReport>),
    /// A host object file.
    Object {
        /// Whether it has device code.
        fat: bool,
    },
    /// One or more offload bundles.
    Bundle(BundlesReport),
    /// Code for a GPU.
    CodeObject(CodeObjectReport),
    /// A Debian package.
    Deb(Box<PackageReport>),
    /// An RPM package.
    Rpm(Box<PackageReport>),
    /// An artifact's list of prefixes.
    ArtifactManifest {
        /// In the order of the file.
        prefixes: Vec<String>,
    },
}

/// What the first bytes of a file say that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Magic {
    Kpack,
    Bundle,
    Elf,
    Ar,
    Rpm,
    /// Maybe a `.kpm`: a MessagePack map begins so.
    Map,
    Other,
}

/// A file that is open, with its path for messages.
struct Input {
    path: PathBuf,
    file: OpenFile,
}

impl Input {
    fn open(path: &Path) -> Result<Self, Error> {
        let cannot = |e| Error::io("cannot read", path, e);
        let real = path.canonicalize().map_err(cannot)?;
        let meta = real.symlink_metadata().map_err(cannot)?;
        if meta.is_dir() {
            return Err(Error::usage("is a directory (expected a file)")
                .at(path)
                .hint("`gfxpack discover` looks through directories"));
        }
        if !meta.is_file() {
            return Err(Error::failed("is a device, socket or pipe (expected a file)").at(path));
        }
        let file = File::open(&real).map_err(cannot)?;
        let file = OpenFile::new(file, meta.len());
        Ok(Self { path: path.to_owned(), file })
    }

    fn magic(&self) -> Result<Magic, Error> {
        let mut bytes = [0; 24];
        let known = usize::try_from(self.file.len()).map_or(24, |len| len.min(24));
        self.file
            .read_exact_at(&mut bytes[..known], 0)
            .map_err(|e| Error::io("cannot read", &self.path, e))?;
        let bytes = &bytes[..known];
        Ok(if bytes.starts_with(b"KPAK") {
            Magic::Kpack
        } else if is_bundle(bytes) {
            Magic::Bundle
        } else if bytes.starts_with(b"\x7fELF") {
            Magic::Elf
        } else if bytes.starts_with(deb::AR_MAGIC) {
            Magic::Ar
        } else if bytes.starts_with(&rpm::LEAD_MAGIC) {
            Magic::Rpm
        } else if matches!(bytes.first(), Some(0x80..=0x8f | 0xde | 0xdf)) {
            Magic::Map
        } else {
            Magic::Other
        })
    }

    /// The error for a file that is of a kind but does not hold what that kind must.
    fn damaged(&self, what: &str, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::failed(format!("is a damaged {what}"))
            .at(&self.path)
            .because(e)
            .hint("it may have been cut off or changed: build or copy it again")
    }

    fn unknown(&self) -> Error {
        let mut bytes = [0; 8];
        let known = usize::try_from(self.file.len()).map_or(8, |len| len.min(8));
        let read = self.file.read_exact_at(&mut bytes[..known], 0).is_ok();
        let found = match &bytes[..known] {
            b"" => "nothing: it is empty".to_owned(),
            bytes if read => bytes.iter().map(|b| format!("{b:02x} ")).collect(),
            _ => "bytes that cannot be read".to_owned(),
        };
        Error::failed(format!("is of no kind that is known here: it begins with {}", found.trim()))
            .at(&self.path)
            .hint("known: .kpack, .kpm, ELF files for the host, offload bundles, code objects, .deb, .rpm, artifact_manifest.txt")
    }
}

/// Says what the file at `path` is and what is in it. Nothing is written.
pub fn inspect(path: &Path) -> Result<Inspection> {
    let input = Input::open(path)?;
    let content = match input.magic()? {
        Magic::Kpack => Content::Kpack(code::kpack(&input)?),
        Magic::Bundle => Content::Bundle(code::bundles(&input)?),
        Magic::Elf => elf_content(&input)?,
        Magic::Ar => Content::Deb(Box::new(read_deb(&input)?)),
        Magic::Rpm => Content::Rpm(Box::new(read_rpm(&input)?)),
        Magic::Map => {
            let stream = Cursor::new(&input.file, 0, input.file.len());
            Content::Kpm(Kpm::read(stream).map_err(|e| input.damaged(".kpm manifest", e))?)
        }
        Magic::Other => other_content(&input)?,
    };
    Ok(Inspection { path: path.to_owned(), size: input.file.len(), content })
}

fn read_deb(input: &Input) -> Result<PackageReport, Error> {
    let members = deb::members(&input.file).map_err(|e| input.damaged("ar archive", e))?;
    if !deb::is_package(&members) {
        return Err(Error::failed("is an ar archive, and no .deb package").at(&input.path).hint(
            "the first member of a .deb is `debian-binary`; static libraries are left alone",
        ));
    }
    deb::read(&input.file, members, &mut Ignore).map_err(|e| input.damaged(".deb package", e))
}

/// Without its payload.
fn read_rpm(input: &Input) -> Result<PackageReport, Error> {
    rpm::read(&input.file).map_err(|e| input.damaged(".rpm package", e))
}

fn elf_content(input: &Input) -> Result<Content, Error> {
    match elf::probe(&input.file).map_err(|e| input.damaged("ELF file", e))? {
        elf::Kind::Program(image) => {
            let name = input.path.file_name().unwrap_or_default().to_string_lossy();
            Ok(Content::Program(Box::new(program::report(&input.file, &image, &name))))
        }
        elf::Kind::Relocatable { fat } => Ok(Content::Object { fat }),
        elf::Kind::Other { class: 2, data: 1, machine: EM_AMDGPU, .. } => {
            let header = CodeObjectHeader::read(&input.file)
                .map_err(|e| input.damaged("code object", e))?;
            Ok(Content::CodeObject(code::code_object(input, &header)?))
        }
        elf::Kind::Other { class, machine, .. } => Err(Error::failed(format!(
            "is an ELF file of class {class} for machine {machine} (expected class 2, 64 bits, for 62, x86-64, or {EM_AMDGPU}, AMDGPU)"
        ))
        .at(&input.path)),
        elf::Kind::NotElf => Err(input.unknown()),
    }
}

/// A manifest is plain text: nothing but its name says that it is one.
fn other_content(input: &Input) -> Result<Content> {
    let named = input.path.file_name().is_some_and(|name| name == MANIFEST);
    if !named || input.file.len() > MANIFEST_MAX {
        return Err(input.unknown().into());
    }
    let text = crate::read_at::read_vec(&input.file, 0, input.file.len())
        .map_err(|e| Errors::from(Error::io("cannot read", &input.path, e)))?;
    let prefixes = parse_manifest(&text, &input.path)?;
    let prefixes = prefixes.iter().map(ToString::to_string).collect();
    Ok(Content::ArtifactManifest { prefixes })
}
