//! The front of an `.rpm`: lead, signature header, header.
//!
//! A header is a sorted index of (tag, type, offset, count) and a store of values; the `rpm` crate lays it
//! out. Tag numbers are those of rpm's `rpmtag.h`.

use std::collections::HashMap;
use std::io;

use ::rpm::{Header, HeaderEntry, IndexData, IndexSignatureTag, IndexTag, Lead, PackageMetadata};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::list::{CLASSES, Class, Content, Listed};
use super::preamble::{Dependency, List, Preamble};
use super::signature;
use crate::error::Error;
use crate::package::compress::Compression;
use crate::package::render;
use crate::package::spec::Package;
use crate::sign::Signer;

/// Bytes of the lead.
const LEAD: usize = 96;
/// Room for a signature to be put in later, in place: as much as rpmbuild leaves.
const RESERVED: usize = 4128;
/// The rpmbuild whose tags these are.
const RPM_VERSION: &str = "4.18.0";
/// The number of SHA-256 among rpm's digests.
const SHA256: u32 = 8;

/// What the front says of the content and is known once that was read. Digests are in hexadecimal.
#[derive(Debug, Clone)]
pub(super) struct Digests {
    /// Of each file; empty for what is no regular file.
    pub(super) files: Vec<String>,
    /// Of the archive before compression.
    pub(super) archive: String,
    /// Of the compressed archive.
    pub(super) payload: String,
    /// What the first bytes of each file say.
    pub(super) classes: Vec<Class>,
}

impl Digests {
    /// Of the right lengths.
    pub(super) fn placeholder(list: &[Listed<'_>]) -> Self {
        let zeros = "0".repeat(64);
        Self {
            files: vec![zeros.clone(); list.len()],
            archive: zeros.clone(),
            payload: zeros,
            classes: list.iter().map(Class::of).collect(),
        }
    }
}

/// Sizes in the front, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Of all files.
    pub(super) installed: u64,
    /// Of the archive before compression.
    pub(super) archive: u64,
    /// Of the compressed archive.
    pub(super) payload: u64,
}

/// Builds the front.
#[derive(Clone, Copy)]
pub(super) struct Front<'a> {
    pub(super) package: &'a Package,
    pub(super) preamble: &'a Preamble,
    pub(super) list: &'a [Listed<'a>],
    pub(super) compression: Compression,
}

/// The front as bytes.
pub(super) struct Pieces {
    /// All of it.
    pub(super) bytes: Vec<u8>,
    /// The header alone.
    pub(super) header: Vec<u8>,
}

impl Pieces {
    /// Puts a signature over the header into the signature header, in the room that is reserved for it.
    pub(super) fn sign(&mut self, signer: &Signer, date: i64) -> Result<(), Error> {
        let end = self.bytes.len() - self.header.len();
        let unpadded = self.bytes[LEAD..end].first_chunk().map_or(Ok(0), signature::size);
        let unpadded = unpadded.map_err(Error::failed)?;
        let old = &self.bytes[LEAD..LEAD + unpadded];
        let signed = signature::sign(old, &self.header, signer, date)?;
        if LEAD + signed.len() != end {
            return Err(Error::failed(format!(
                "a signature is larger than the {RESERVED} bytes that are left for it"
            ))
            .hint("sign with an RSA key, best of 4096 bits"));
        }
        self.bytes[LEAD..end].copy_from_slice(&signed);
        Ok(())
    }
}

impl Front<'_> {
    /// The length depends on neither digests nor sizes.
    pub(super) fn build(&self, digests: &Digests, sizes: &Sizes) -> io::Result<Pieces> {
        let header =
            Header::from_entries(self.entries(digests, sizes), IndexTag::RPMTAG_HEADERIMMUTABLE);
        let name = self.package.rpm_name();
        let lead = Lead::new(&format!("{name}-{}", self.package.full_version()));
        let signature = Header::new_empty();
        let mut metadata = PackageMetadata { lead, signature, header };
        let header = metadata.header_bytes().map_err(io::Error::other)?;
        metadata.signature = signature_header(&header, sizes);
        let mut bytes = Vec::new();
        metadata.write(&mut bytes).map_err(io::Error::other)?;
        Ok(Pieces { bytes, header })
    }

    fn entries(&self, digests: &Digests, sizes: &Sizes) -> Vec<HeaderEntry> {
        let Self { package, preamble, .. } = self;
        let mut entries = Vec::new();
        let mut put = |tag: u32, data: IndexData| entries.push(HeaderEntry::new(tag, data));
        let get = |tag: &str| preamble.get(tag).unwrap_or_default().to_owned();
        let date = u32::try_from(package.date.max(0)).unwrap_or(u32::MAX);
        let arch = get("BuildArch");

        put(100, strings(["C"]));
        put(1000, string(get("Name")));
        put(1001, string(get("Version")));
        put(1002, string(get("Release")));
        put(1004, IndexData::I18NString(vec![get("Summary")]));
        put(1005, IndexData::I18NString(vec![preamble.description.clone()]));
        put(1006, IndexData::Int32(vec![date]));
        put(1007, string("localhost"));
        match u32::try_from(sizes.installed) {
            Ok(size) => put(1009, IndexData::Int32(vec![size])),
            Err(_) => put(5009, IndexData::Int64(vec![sizes.installed])),
        }
        for (tag, name) in [
            (1010, "Distribution"),
            (1011, "Vendor"),
            (1014, "License"),
            (1015, "Packager"),
            (1020, "URL"),
            (5012, "BugURL"),
        ] {
            if let Some(value) = preamble.get(name) {
                put(tag, string(value));
            }
        }
        let group = preamble.get("Group").unwrap_or("Unspecified");
        put(1016, IndexData::I18NString(vec![group.to_owned()]));
        put(1021, string("linux"));
        put(1022, string(&*arch));
        put(1044, string(format!("{}-{}.src.rpm", package.rpm_name(), package.full_version())));
        put(1064, string(RPM_VERSION));
        if !preamble.prefixes.is_empty() {
            put(1098, strings(&preamble.prefixes));
        }
        put(1124, string("cpio"));
        match self.compression {
            Compression::Zstd { level, .. } => {
                put(1125, string("zstd"));
                put(1126, string(level.to_string()));
            }
            Compression::Xz { level } => {
                put(1125, string("xz"));
                put(1126, string(level.to_string()));
            }
            Compression::None => put(1126, string("")),
        }
        put(1132, string(format!("{arch}-linux")));
        put(5062, string("utf-8"));
        put(5092, strings([&digests.payload]));
        put(5093, IndexData::Int32(vec![SHA256]));
        put(5097, strings([&digests.archive]));

        if !preamble.changelog.is_empty() {
            let time = |time: i64| u32::try_from(time).unwrap_or(0);
            put(1080, IndexData::Int32(preamble.changelog.iter().map(|e| time(e.0)).collect()));
            put(1081, strings(preamble.changelog.iter().map(|e| &e.1)));
            put(1082, strings(preamble.changelog.iter().map(|e| &e.2)));
        }
        for script in &preamble.scripts {
            let (text, interpreter) = script.when.tags();
            if !script.text.is_empty() {
                put(text, string(&*script.text));
            }
            match script.interpreter.as_slice() {
                [one] => put(interpreter, string(&**one)),
                many => put(interpreter, strings(many)),
            }
        }
        for (list, _, [names, versions, flags]) in List::ALL {
            let of_list: Vec<&Dependency> =
                preamble.dependencies.iter().filter(|(l, _)| *l == list).map(|(_, d)| d).collect();
            if !of_list.is_empty() {
                put(names, strings(of_list.iter().map(|d| &d.name)));
                put(versions, strings(of_list.iter().map(|d| &d.version)));
                put(flags, IndexData::Int32(of_list.iter().map(|d| d.flags).collect()));
            }
        }
        if !self.list.is_empty() {
            self.file_entries(digests, &mut put);
        }
        entries
    }

    fn file_entries(&self, digests: &Digests, put: &mut impl FnMut(u32, IndexData)) {
        let list = self.list;
        let numbers =
            |of: &dyn Fn(&Listed<'_>) -> u32| IndexData::Int32(list.iter().map(of).collect());
        if list.iter().any(|file| file.stat.size >= u64::from(u32::MAX)) {
            put(5008, IndexData::Int64(list.iter().map(|file| file.stat.size).collect()));
        } else {
            put(1028, numbers(&|file| u32::try_from(file.stat.size).expect("compared above")));
        }
        let modes = list.iter().map(|file| u16::try_from(file.stat.mode).expect("16 bits of mode"));
        put(1030, IndexData::Int16(modes.collect()));
        put(1033, IndexData::Int16(vec![0; list.len()]));
        put(1034, numbers(&|file| file.stat.mtime));
        put(
            1035,
            strings(list.iter().zip(&digests.files).map(|(file, digest)| match file.content {
                Content::File(_) => digest.as_str(),
                _ => "",
            })),
        );
        put(
            1036,
            strings(list.iter().map(|file| match file.content {
                Content::Symlink(target) => target,
                _ => "",
            })),
        );
        put(1037, numbers(&|file| file.flags()));
        put(1039, strings(list.iter().map(|_| "root")));
        put(1040, strings(list.iter().map(|_| "root")));
        put(1045, numbers(&|_| u32::MAX));
        put(1095, numbers(&|_| 1));
        put(1096, numbers(&|file| file.stat.inode));
        put(1097, strings(list.iter().map(|_| "")));
        let (mut dirs, mut dir_indexes) = (Dictionary::default(), Vec::new());
        let mut names = Vec::new();
        for file in list {
            let (dir, name) = file.split();
            dir_indexes.push(dirs.index(&dir));
            names.push(name);
        }
        put(1116, IndexData::Int32(dir_indexes));
        put(1117, strings(names));
        put(1118, IndexData::StringArray(dirs.strings));
        if list.iter().any(|file| !file.capabilities.is_empty()) {
            put(5010, strings(list.iter().map(|file| file.capabilities)));
        }
        put(1140, IndexData::Int32(digests.classes.iter().map(|class| class.color).collect()));
        put(1141, IndexData::Int32(digests.classes.iter().map(|class| class.index).collect()));
        put(1142, strings(CLASSES));
        put(5011, IndexData::Int32(vec![SHA256]));
    }
}

/// Strings that are stored once.
#[derive(Default)]
struct Dictionary {
    strings: Vec<String>,
    indexes: HashMap<String, u32>,
}

impl Dictionary {
    fn index(&mut self, text: &str) -> u32 {
        if let Some(index) = self.indexes.get(text) {
            return *index;
        }
        let index = u32::try_from(self.strings.len()).expect("a header has fewer strings");
        self.strings.push(text.to_owned());
        self.indexes.insert(text.to_owned(), index);
        index
    }
}

fn signature_header(header: &[u8], sizes: &Sizes) -> Header<IndexSignatureTag> {
    let content = header.len() as u64 + sizes.payload;
    let build = |long: bool, reserved: usize| {
        let mut entries = vec![
            (269, string(render::hex(&Sha1::digest(header)))),
            (273, string(render::hex(&Sha256::digest(header)))),
            (1008, IndexData::Bin(vec![0; reserved])),
        ];
        if long {
            entries.push((270, IndexData::Int64(vec![content])));
            entries.push((271, IndexData::Int64(vec![sizes.archive])));
        } else {
            let small = |n: u64| u32::try_from(n).expect("the caller saw that it is small");
            entries.push((1000, IndexData::Int32(vec![small(content)])));
            entries.push((1007, IndexData::Int32(vec![small(sizes.archive)])));
        }
        let entries = entries.into_iter().map(|(tag, data)| HeaderEntry::new(tag, data));
        Header::from_entries(entries, IndexSignatureTag::HEADER_SIGNATURES)
    };
    let small = u64::from(u32::MAX);
    if content <= small && sizes.archive <= small {
        build(false, RESERVED)
    } else {
        // In eight bytes each, they and their alignment take more of the store: less is left in reserve,
        // so that the length stays. The store begins with two digests and their NULs: 41 + 65 bytes.
        let before = 41 + 65_usize;
        let short = before.next_multiple_of(4) + 4 + 4;
        let long = 41_usize.next_multiple_of(8) + 16 + 65;
        build(true, RESERVED + short - long)
    }
}

fn string(text: impl Into<String>) -> IndexData {
    IndexData::StringTag(text.into())
}

fn strings<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> IndexData {
    IndexData::StringArray(texts.into_iter().map(Into::into).collect())
}
