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
        let names = Names::of(self.list);
        let entries = self.entries(digests, sizes, &names);
        let header = Header::from_entries(entries, IndexTag::RPMTAG_HEADERIMMUTABLE);
        let name = self.package.rpm_name();
        let lead = Lead::new(&format!("{name}-{}", self.package.full_version()));
        let signature = Header::new_empty();
        let mut metadata = PackageMetadata { lead, signature, header };
        let mut header = metadata.header_bytes().map_err(io::Error::other)?;
        names.put_into(&mut header)?;
        metadata.signature = signature_header(&header, sizes);
        let mut bytes = Vec::new();
        metadata.write(&mut bytes).map_err(io::Error::other)?;
        let start = bytes.len() - header.len();
        bytes[start..].copy_from_slice(&header);
        Ok(Pieces { bytes, header })
    }

    fn entries(&self, digests: &Digests, sizes: &Sizes, names: &Names<'_>) -> Vec<HeaderEntry> {
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
        // As rpmbuild: it says what all texts of the header are in, and nothing where one is not.
        if names.are_utf8() {
            put(5062, string("utf-8"));
        }
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
            self.file_entries(digests, names, &mut put);
        }
        entries
    }

    fn file_entries(
        &self,
        digests: &Digests,
        names: &Names<'_>,
        put: &mut impl FnMut(u32, IndexData),
    ) {
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
        put(LINK_TARGETS, stand_ins(&names.link_targets));
        put(1037, numbers(&|file| file.flags()));
        put(1039, strings(list.iter().map(|_| "root")));
        put(1040, strings(list.iter().map(|_| "root")));
        put(1045, numbers(&|_| u32::MAX));
        put(1095, numbers(&|_| 1));
        put(1096, numbers(&|file| file.stat.inode));
        put(1097, strings(list.iter().map(|_| "")));
        put(1116, IndexData::Int32(names.dir_indexes.clone()));
        put(BASE_NAMES, stand_ins(&names.base_names));
        put(DIR_NAMES, stand_ins(&names.dir_names));
        if list.iter().any(|file| !file.capabilities.is_empty()) {
            put(5010, strings(list.iter().map(|file| file.capabilities)));
        }
        put(1140, IndexData::Int32(digests.classes.iter().map(|class| class.color).collect()));
        put(1141, IndexData::Int32(digests.classes.iter().map(|class| class.index).collect()));
        put(1142, strings(CLASSES));
        put(5011, IndexData::Int32(vec![SHA256]));
    }
}

/// `RPMTAG_FILELINKTOS`, `RPMTAG_BASENAMES`, `RPMTAG_DIRNAMES`: the texts that can have other bytes than UTF-8.
const LINK_TARGETS: u32 = 1036;
const BASE_NAMES: u32 = 1117;
const DIR_NAMES: u32 = 1118;

/// The names of the files, as bytes. Linux has no encoding of names, and rpm takes them as they are.
struct Names<'a> {
    base_names: Vec<&'a [u8]>,
    /// Each once.
    dir_names: Vec<Vec<u8>>,
    /// Of each file, in `dir_names`.
    dir_indexes: Vec<u32>,
    /// Empty for what is no symbolic link.
    link_targets: Vec<&'a [u8]>,
}

impl<'a> Names<'a> {
    fn of(list: &[Listed<'a>]) -> Self {
        let mut names = Self {
            base_names: Vec::with_capacity(list.len()),
            dir_names: Vec::new(),
            dir_indexes: Vec::with_capacity(list.len()),
            link_targets: Vec::with_capacity(list.len()),
        };
        let mut indexes: HashMap<Vec<u8>, u32> = HashMap::new();
        for file in list {
            let (dir, name) = file.split();
            let next = u32::try_from(indexes.len()).expect("a header has fewer strings");
            let index = *indexes.entry(dir).or_insert_with_key(|dir| {
                names.dir_names.push(dir.clone());
                next
            });
            names.dir_indexes.push(index);
            names.base_names.push(name);
            names.link_targets.push(match file.content {
                Content::Symlink(target) => target,
                _ => b"",
            });
        }
        names
    }

    fn are_utf8(&self) -> bool {
        all_utf8(&self.base_names) && all_utf8(&self.dir_names) && all_utf8(&self.link_targets)
    }

    /// Puts names that are not UTF-8 in the place of their stand-ins.
    fn put_into(&self, header: &mut [u8]) -> io::Result<()> {
        put_names(header, LINK_TARGETS, &self.link_targets)?;
        put_names(header, BASE_NAMES, &self.base_names)?;
        put_names(header, DIR_NAMES, &self.dir_names)
    }
}

fn all_utf8<T: AsRef<[u8]>>(names: &[T]) -> bool {
    names.iter().all(|name| std::str::from_utf8(name.as_ref()).is_ok())
}

/// The names as the `rpm` crate takes them, whose texts are UTF-8: others with `?` for each byte that is not ASCII, which
/// keeps their length.
fn stand_ins<T: AsRef<[u8]>>(names: &[T]) -> IndexData {
    strings(names.iter().map(|name| {
        let name = name.as_ref();
        std::str::from_utf8(name).map_or_else(
            |_| name.iter().map(|&b| if b.is_ascii() { char::from(b) } else { '?' }).collect(),
            str::to_owned,
        )
    }))
}

/// Puts the names of a tag in the place of their stand-ins. A header begins with eight bytes of magic, the number of
/// entries of its index and the size of its store; an entry is tag, type, offset in the store, count.
fn put_names<T: AsRef<[u8]>>(header: &mut [u8], tag: u32, names: &[T]) -> io::Result<()> {
    if all_utf8(names) {
        return Ok(());
    }
    let text: Vec<u8> = names.iter().flat_map(|name| [name.as_ref(), b"\0"].concat()).collect();
    let place = (|| {
        let word =
            |at: usize| header.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
        let entries = word(8)? as usize;
        let entry = (0..entries).map(|i| 16 + i * 16).find(|&at| word(at) == Some(tag))?;
        let start = 16 + entries * 16 + word(entry + 8)? as usize;
        Some(start..start + text.len())
    })();
    let place = place.and_then(|place| header.get_mut(place)).filter(|place| {
        let same =
            |(found, name): (&u8, &u8)| found == name || (*found == b'?' && !name.is_ascii());
        place.iter().zip(&text).all(same)
    });
    let wrong = || io::Error::other(format!("the names of tag {tag} are not where they should be"));
    place.ok_or_else(wrong)?.copy_from_slice(&text);
    Ok(())
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
