//! Reading an `.rpm`: lead (96 bytes), signature header (padded to 8), header, payload.
//!
//! The digests over the header are checked; with [`content`], those over the payload and its files as
//! well. Source: rpm's documentation, "RPM v4 package format" and its list of tags.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read};

use md5::Md5;
use sha2::{Digest, Sha256};

use super::Visit;
use super::cpio;
use super::decode::{Context, Decoder, Tee};
use super::error::PackageError;
use super::report::{FileReport, Member, PackageReport, Script, installed_path, leaves, readable};
use super::rpm_header::Header;
use crate::date;
use crate::package::render::hex;
use crate::read_at::{Cursor, ReadAt, read_vec};
use crate::sign::Signature;

/// The first bytes of a package.
pub const LEAD_MAGIC: [u8; 4] = [0xed, 0xab, 0xee, 0xdb];
const LEAD: u64 = 96;
/// Bytes of all paths: a million of 256.
pub(crate) const MAX_PATHS: usize = 256 << 20;

const FIELDS: &[(&str, u32)] = &[
    ("Name", 1000),
    ("Epoch", 1003),
    ("Version", 1001),
    ("Release", 1002),
    ("Architecture", 1022),
    ("OS", 1021),
    ("Summary", 1004),
    ("Description", 1005),
    ("License", 1014),
    ("Group", 1016),
    ("URL", 1020),
    ("BugURL", 5012),
    ("VCS", 5034),
    ("Vendor", 1011),
    ("Packager", 1015),
    ("Distribution", 1010),
    ("Build host", 1007),
    ("Build time", 1006),
    ("Source RPM", 1044),
    ("Prefixes", 1098),
    ("RPM version", 1064),
    ("Platform", 1132),
    ("Encoding", 5062),
    ("Cookie", 1094),
    ("Payload format", 1124),
    ("Payload compressor", 1125),
    ("Payload flags", 1126),
];

/// Kind of relation; tags of names, flags and versions.
const RELATIONS: &[(&str, [u32; 3])] = &[
    ("Requires", [1049, 1048, 1050]),
    ("Provides", [1047, 1112, 1113]),
    ("Recommends", [5046, 5048, 5047]),
    ("Suggests", [5049, 5051, 5050]),
    ("Supplements", [5052, 5054, 5053]),
    ("Enhances", [5055, 5057, 5056]),
    ("Conflicts", [1054, 1053, 1055]),
    ("Obsoletes", [1090, 1114, 1115]),
];

/// Name; tags of the text and of what runs it.
const SCRIPTS: &[(&str, u32, u32)] = &[
    ("pretrans", 1151, 1153),
    ("pre", 1023, 1085),
    ("post", 1024, 1086),
    ("preun", 1025, 1087),
    ("postun", 1026, 1088),
    ("posttrans", 1152, 1154),
    ("preuntrans", 5103, 5105),
    ("postuntrans", 5104, 5106),
    ("verify", 1079, 1091),
];
const TRIGGERS: &[(&str, u32, u32)] =
    &[("trigger", 1065, 1092), ("filetrigger", 5066, 5067), ("transfiletrigger", 5076, 5077)];

/// Digest algorithms by the number that OpenPGP gives them.
const DIGESTS: &[(u64, &str)] = &[
    (1, "MD5"),
    (2, "SHA1"),
    (8, "SHA256"),
    (9, "SHA384"),
    (10, "SHA512"),
    (11, "SHA224"),
    (12, "SHA3-256"),
    (14, "SHA3-512"),
];

const FILE_FLAGS: &[(u64, &str)] = &[
    (1 << 0, "config"),
    (1 << 1, "doc"),
    (1 << 3, "missingok"),
    (1 << 4, "noreplace"),
    (1 << 6, "ghost"),
    (1 << 7, "license"),
    (1 << 8, "readme"),
    (1 << 12, "artifact"),
];

/// Reads a package, without its payload.
pub fn read(r: &dyn ReadAt) -> Result<PackageReport, PackageError> {
    Ok(front(r)?.2)
}

/// Reads a package with its payload, once and as a stream: digests of the payload and of each file are
/// held against it, and `visit` sees the files.
pub fn content(r: &dyn ReadAt, visit: &mut dyn Visit) -> Result<PackageReport, PackageError> {
    let (signature, header, mut report) = front(r)?;
    visit.control(&report);
    payload(r, &signature, &header, &mut report, visit)?;
    Ok(report)
}

/// The signature header and the main header.
pub(crate) fn headers(r: &dyn ReadAt) -> Result<(Header, Header), PackageError> {
    let lead = read_vec(r, 0, LEAD).map_err(|e| PackageError::io("the lead", 0, e))?;
    if !lead.starts_with(&LEAD_MAGIC) {
        return Err(PackageError::field("the lead's magic", 0, hex(&lead[..4]), "edabeedb"));
    }
    if !matches!(lead[4], 3 | 4) {
        return Err(PackageError::field("major version of the lead", 4, lead[4], "3"));
    }
    let signature = Header::read(r, "signature", LEAD)?;
    let header = Header::read(r, "main", signature.end().next_multiple_of(8))?;
    Ok((signature, header))
}

fn front(r: &dyn ReadAt) -> Result<(Header, Header, PackageReport), PackageError> {
    let (signature, header) = headers(r)?;
    let mut report = PackageReport::default();
    for &(name, tag) in FIELDS {
        let value = match name {
            "Epoch" | "Build time" => header.number(tag)?.map(|n| n.to_string()),
            "Prefixes" => Some(header.strings(tag)?.join(" ")).filter(|text| !text.is_empty()),
            _ => header.string(tag)?,
        };
        report.fields.extend(value.map(|value| (name.to_owned(), value)));
    }
    for needed in ["Name", "Version", "Release"] {
        if !report.fields.iter().any(|(name, _)| name == needed) {
            return Err(PackageError::Missing(format!("tag {needed} in the main header")));
        }
    }
    let size = header.number(5009)?.or(header.number(1009)?);
    report.fields.extend(size.map(|size| ("Size".to_owned(), size.to_string())));
    relations(&header, &mut report)?;
    scripts(&header, &mut report)?;
    files(&header, &mut report)?;
    digests(r, &signature, &header, &mut report)?;
    members(r, &signature, &header, &mut report)?;
    Ok((signature, header, report))
}

/// What is known of a file's content while the payload is read.
struct Filled {
    /// The name under which the file is visited: the first of its names.
    first: usize,
    seen: bool,
}

fn payload(
    r: &dyn ReadAt,
    signature: &Header,
    header: &Header,
    report: &mut PackageReport,
    visit: &mut dyn Visit,
) -> Result<(), PackageError> {
    if header.string(1124)?.is_some_and(|format| format != "cpio") {
        report.problems.push("the payload is no cpio archive: it was not read".into());
        return Ok(());
    }
    let compression = header.string(1125)?.unwrap_or_else(|| "none".to_owned());
    // Over header and payload.
    let mut md5 = Md5::new();
    let cannot = |e| PackageError::io("the main header", header.offset, e);
    md5.update(&read_vec(r, header.offset, header.size).map_err(cannot)?);
    let sums = RefCell::new((md5, Sha256::new()));
    let start = header.end().min(r.len());
    let raw = Tee::new(Cursor::new(r, start, r.len() - start), |bytes: &[u8]| {
        let mut sums = sums.borrow_mut();
        sums.0.update(bytes);
        sums.1.update(bytes);
    });
    let mut context = Context::new();
    let mut decoder =
        Decoder::new(Box::new(raw), "the payload", &compression, false, &mut context)?;
    let mut unpacked = Sha256::new();
    let mut tee = Tee::new(&mut decoder, |bytes: &[u8]| unpacked.update(bytes));
    members_of(&mut tee, header, report, visit)?;
    tee.finish().map_err(|e| PackageError::io("the payload", 0, e))?;
    decoder.has_more().map_err(|e| PackageError::io("the payload", 0, e))?;
    let (md5, sha256) = sums.into_inner();
    let stated_md5 = signature.bytes(1004)?.map(hex);
    let of_sha256 = header.number(5093)?.unwrap_or(8) == 8;
    let stated = |tag| header.string(tag).map(|value| value.filter(|_| of_sha256));
    for (what, stated, actual) in [
        ("the header says SHA256 {} of the payload", stated(5092)?, hex(&sha256.finalize())),
        (
            "the header says SHA256 {} of the unpacked payload",
            stated(5097)?,
            hex(&unpacked.finalize()),
        ),
        (
            "the signature header says MD5 {} of header and payload",
            stated_md5,
            hex(&md5.finalize()),
        ),
    ] {
        if let Some(stated) = stated.filter(|stated| *stated != actual) {
            report.problems.push(format!("{}, but it is {actual}", what.replace("{}", &stated)));
        }
    }
    Ok(())
}

/// Reads the archive's members and holds each against what the header says of the file.
fn members_of(
    archive: &mut dyn Read,
    header: &Header,
    report: &mut PackageReport,
    visit: &mut dyn Visit,
) -> Result<(), PackageError> {
    let sha256 = header.number(5011)? == Some(8);
    let files = &report.files;
    let by_path: HashMap<&str, usize> =
        files.iter().enumerate().map(|(i, file)| (file.path.as_str(), i)).collect();
    let mut filled: Vec<Filled> = files
        .iter()
        .enumerate()
        .map(|(i, file)| {
            let first = file.link.as_deref().filter(|_| file.kind == "hard link");
            let first = first.and_then(|first| by_path.get(first)).copied().unwrap_or(i);
            Filled { first, seen: false }
        })
        .collect();
    let index = |member: &cpio::Member| match member {
        cpio::Member::Named(name, _) => by_path.get(installed_path(name).as_str()).copied(),
        cpio::Member::Indexed(index) => usize::try_from(*index).ok().filter(|i| *i < files.len()),
    };
    let mut problems = Vec::new();
    // Enough to see what is wrong; what a hostile payload says costs memory.
    let mut add = |problem: String| {
        if problems.len() < 100 {
            problems.push(problem);
        }
    };
    // In the stripped form, the content of several names comes with the last of them.
    let last: HashMap<usize, usize> =
        filled.iter().enumerate().map(|(i, filled)| (filled.first, i)).collect();
    let firsts: Vec<usize> = filled.iter().map(|filled| filled.first).collect();
    let size = |member: &cpio::Member| match (member, index(member)) {
        (cpio::Member::Named(_, size), _) => Ok(*size),
        (cpio::Member::Indexed(_), Some(i)) => {
            let has = matches!(files[i].kind, "file" | "hard link" | "symlink");
            Ok(if has && last.get(&firsts[i]) == Some(&i) { files[i].size } else { 0 })
        }
        (cpio::Member::Indexed(index), None) => {
            let expected = format!("less than {}", files.len());
            Err(PackageError::field("index of a member of the payload", 0, index, expected))
        }
    };
    cpio::for_each(archive, size, |member, len, content| {
        let Some(i) = index(member) else {
            if let cpio::Member::Named(name, _) = member {
                add(format!(
                    "the payload has {}, which the header does not list",
                    installed_path(name)
                ));
            }
            return Ok(());
        };
        let file = &files[i];
        if !matches!(file.kind, "file" | "hard link") {
            filled[i].seen = true;
            return Ok(());
        }
        // Of several names only one has the content.
        if len != file.size {
            if len != 0 || last.get(&filled[i].first) == Some(&i) {
                add(format!(
                    "{} has {len} bytes in the payload, but the header says {}",
                    file.path, file.size
                ));
            }
            if len == 0 {
                return Ok(());
            }
        } else if len == 0 && filled[filled[i].first].seen {
            return Ok(());
        }
        let cannot = |e| PackageError::io(format!("{} in the payload", file.path), 0, e);
        let mut sum = Sha256::new();
        let mut summed = Tee::new(content, |bytes: &[u8]| sum.update(bytes));
        let first = filled[i].first;
        visit.file(&files[first].path, len, &mut summed).map_err(cannot)?;
        if summed.finish().map_err(cannot)? != len {
            return Err(cannot(io::ErrorKind::UnexpectedEof.into()));
        }
        filled[first].seen = true;
        let actual = hex(&sum.finalize());
        if let Some(stated) = file.digest.as_ref().filter(|stated| sha256 && **stated != actual) {
            add(format!("the header says SHA256 {stated} of {}, but it is {actual}", file.path));
        }
        Ok(())
    })?;
    for (i, file) in files.iter().enumerate() {
        let expected = matches!(file.kind, "file" | "symlink") && !file.flags.contains(&"ghost");
        if expected && !filled[i].seen {
            add(format!("the header lists {}, which the payload lacks", file.path));
        }
    }
    report.problems.append(&mut problems);
    Ok(())
}

fn relations(header: &Header, report: &mut PackageReport) -> Result<(), PackageError> {
    for &(kind, [names, flags, versions]) in RELATIONS {
        let names = header.strings(names)?;
        if names.is_empty() {
            continue;
        }
        let (flags, versions) = (header.numbers(flags)?, header.strings(versions)?);
        same_length(kind, names.len(), &[("flags", flags.len()), ("versions", versions.len())])?;
        let items = names.into_iter().zip(flags).zip(versions).map(|((name, flags), version)| {
            let less = if flags & 2 != 0 { "<" } else { "" };
            let greater = if flags & 4 != 0 { ">" } else { "" };
            let equal = if flags & 8 != 0 { "=" } else { "" };
            // What scripts need while they run comes apart from what the installed package needs.
            let when: Vec<_> = [(9, "pre"), (10, "post"), (11, "preun"), (12, "postun")]
                .iter()
                .filter(|(bit, _)| kind == "Requires" && flags >> bit & 1 == 1)
                .map(|(_, when)| *when)
                .collect();
            let when =
                if when.is_empty() { String::new() } else { format!(" ({})", when.join(",")) };
            if version.is_empty() {
                format!("{name}{when}")
            } else {
                format!("{name} {less}{greater}{equal} {version}{when}")
            }
        });
        report.relations.push((kind.to_owned(), items.collect()));
    }
    Ok(())
}

/// Arrays that describe the same things have the same length.
pub(crate) fn same_length(
    what: &str,
    expected: usize,
    found: &[(&str, usize)],
) -> Result<(), PackageError> {
    match found.iter().find(|(_, len)| *len != expected) {
        None => Ok(()),
        Some((name, len)) => {
            let field = format!("count of {name} of {what}");
            Err(PackageError::field(field, 0, len, expected))
        }
    }
}

fn scripts(header: &Header, report: &mut PackageReport) -> Result<(), PackageError> {
    let mut add = |name: String, interpreter: String, text: String| {
        let interpreter = Some(interpreter).filter(|text| !text.is_empty());
        report.scripts.push(Script { name, interpreter, size: text.len() as u64, text });
    };
    for &(name, text, program) in SCRIPTS {
        if header.has(text) || header.has(program) {
            let text = header.string(text)?.unwrap_or_default();
            add(name.to_owned(), header.strings(program)?.join(" "), text);
        }
    }
    for &(name, texts, programs) in TRIGGERS {
        let programs = header.strings(programs)?;
        for (i, text) in header.strings(texts)?.into_iter().enumerate() {
            add(format!("{name} {}", i + 1), programs.get(i).cloned().unwrap_or_default(), text);
        }
    }
    Ok(())
}

fn files(header: &Header, report: &mut PackageReport) -> Result<(), PackageError> {
    let texts =
        |tag| Ok(header.raw_strings(tag)?.into_iter().map(readable).collect::<Vec<String>>());
    let names = texts(1117)?;
    let count = names.len();
    let (folders, places) = (texts(1118)?, header.numbers(1116)?);
    let modes = header.numbers(1030)?;
    let sizes = if header.has(5008) { header.numbers(5008)? } else { header.numbers(1028)? };
    let (mtimes, flags) = (header.numbers(1034)?, header.numbers(1037)?);
    let (digests, links) = (header.strings(1035)?, texts(1036)?);
    let (users, groups) = (header.strings(1039)?, header.strings(1040)?);
    let (devices, inodes) = (header.numbers(1095)?, header.numbers(1096)?);
    same_length(
        "files",
        count,
        &[
            ("folders", places.len()),
            ("modes", modes.len()),
            ("sizes", sizes.len()),
            ("times", mtimes.len()),
            ("flags", flags.len()),
            ("digests", digests.len()),
            ("links", links.len()),
            ("users", users.len()),
            ("groups", groups.len()),
        ],
    )?;
    let mut firsts: HashMap<(u64, u64), usize> = HashMap::new();
    // A folder's name stands in the header once, and in the path of each of its files.
    let mut left = MAX_PATHS;
    for i in 0..count {
        let folder = usize::try_from(places[i]).ok().and_then(|place| folders.get(place));
        let folder = folder.ok_or_else(|| {
            let expected = format!("less than {}", folders.len());
            PackageError::field(format!("folder of file {i}"), 0, places[i], expected)
        })?;
        left = left.checked_sub(folder.len() + names[i].len()).ok_or_else(|| {
            let found = format!("over {MAX_PATHS} up to file {i}");
            PackageError::field("bytes of all paths", 0, found, format!("at most {MAX_PATHS}"))
        })?;
        let path = format!("{folder}{}", names[i]);
        if leaves(&path) {
            report.problems.push(format!("the path {path} leaves the tree"));
        }
        let mode = modes[i];
        let kind = match mode & 0o170_000 {
            0o040_000 => "directory",
            0o120_000 => "symlink",
            0o020_000 | 0o060_000 => "device",
            0o010_000 => "fifo",
            0o140_000 => "socket",
            _ => "file",
        };
        // Names of one inode are one file, whose bytes are installed once.
        let inode = devices.get(i).zip(inodes.get(i));
        let first = inode.filter(|_| kind == "file");
        let first = first.map_or(i, |(&dev, &ino)| *firsts.entry((dev, ino)).or_insert(i));
        let again = first != i;
        if kind == "file" && !again && flags[i] & (1 << 6) == 0 {
            report.installed_bytes = report.installed_bytes.saturating_add(sizes[i]);
        }
        let marks = FILE_FLAGS.iter().filter(|(bit, _)| flags[i] & bit != 0);
        report.files.push(FileReport {
            path,
            kind: if again { "hard link" } else { kind },
            mode: format!("{:04o}", mode & 0o7777),
            size: sizes[i],
            owner: format!("{}/{}", users[i], groups[i]),
            mtime: mtimes[i].try_into().unwrap_or(i64::MAX),
            link: match report.files.get(first) {
                Some(first) if again => Some(first.path.clone()),
                _ => Some(links[i].clone()).filter(|link| !link.is_empty()),
            },
            digest: Some(digests[i].clone()).filter(|digest| !digest.is_empty()),
            flags: marks.map(|(_, name)| *name).collect(),
        });
    }
    report.problems.truncate(100);
    Ok(())
}

fn algorithm(number: Option<u64>, default: &'static str) -> String {
    let Some(number) = number else { return default.to_owned() };
    let known = DIGESTS.iter().find(|(n, _)| *n == number);
    known.map_or_else(|| format!("algorithm {number}"), |(_, name)| (*name).to_owned())
}

fn digests(
    r: &dyn ReadAt,
    signature: &Header,
    header: &Header,
    report: &mut PackageReport,
) -> Result<(), PackageError> {
    let mut add = |name: String, value: Option<String>| {
        report.digests.extend(value.map(|value| (name, value)));
    };
    let sha256 = signature.string(273)?;
    add("header SHA256".into(), sha256.clone());
    add("header SHA1".into(), signature.string(269)?);
    add("header and payload MD5".into(), signature.bytes(1004)?.map(hex));
    let payload = algorithm(header.number(5093)?, "SHA256");
    add(format!("payload {payload}"), header.string(5092)?);
    add(format!("payload {payload}, uncompressed"), header.string(5097)?);
    if !report.files.is_empty() {
        add("files".into(), Some(algorithm(header.number(5011)?, "MD5")));
    }
    for (tag, name) in [(267, "DSA"), (268, "RSA"), (278, "OpenPGP"), (1002, "PGP"), (1005, "GPG")]
    {
        if signature.has(tag) {
            report.signatures.push(signed_by(signature, tag, name)?);
        }
    }
    if let Some(stated) = sha256 {
        let cannot = |e| PackageError::io("the main header", header.offset, e);
        let bytes = read_vec(r, header.offset, header.size).map_err(cannot)?;
        let actual = hex(&Sha256::digest(&bytes));
        if stated != actual {
            report.problems.push(format!(
                "the signature header says SHA256 {stated} of the header, but it is {actual}"
            ));
        }
    }
    Ok(())
}

/// Tags of signatures over the main header: RSA, DSA or EdDSA, and OpenPGP of rpm 6. Those of old over header and
/// payload (1002, 1005) are none of them: rpm 4.14 and later do without. Source: rpm's `rpmtag.h`.
const HEADER_SIGNATURES: [u32; 3] = [268, 267, OPENPGP];
/// Strings in base64, one a signature.
const OPENPGP: u32 = 278;
/// More than any package has.
const MAX_SIGNATURES: usize = 64;

/// The tag of a signature, and that or what is wrong with it.
pub(crate) type TaggedSignature = (u32, Result<Signature, String>);

/// The signatures over the main header, with their tags; what is wrong with one in place of it. They are not
/// checked. Both what counts as signed and what is verified goes by this list.
pub(crate) fn header_signatures(signature: &Header) -> Result<Vec<TaggedSignature>, PackageError> {
    let mut found = Vec::new();
    for tag in HEADER_SIGNATURES {
        if tag != OPENPGP {
            let packet = signature.bytes(tag)?;
            found.extend(packet.map(|packet| (tag, Signature::parse(packet))));
            continue;
        }
        let texts = signature.raw_strings(tag)?;
        if texts.len() > MAX_SIGNATURES {
            let (what, most) = ("number of signatures in tag 278", "at most 64");
            return Err(PackageError::field(what, signature.offset, texts.len(), most));
        }
        if signature.has(tag) && texts.is_empty() {
            found.push((tag, Err("there is no signature in it".to_owned())));
        }
        found.extend(texts.into_iter().map(|text| (tag, openpgp(text))));
    }
    Ok(found)
}

/// A signature in base64.
fn openpgp(text: &[u8]) -> Result<Signature, String> {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    if text.is_empty() || !text.iter().all(is_base64) {
        return Err("it is not base64".to_owned());
    }
    // As armor has it, without whose lines it is the same.
    let mut armor = b"-----BEGIN PGP SIGNATURE-----\n\n".to_vec();
    for line in text.chunks(64) {
        armor.extend(line);
        armor.push(b'\n');
    }
    armor.extend(b"-----END PGP SIGNATURE-----\n");
    Signature::parse(&armor)
}

/// A signature as `RSA/SHA256, key 0123456789ABCDEF, made 2026-01-05T12:00:00Z, over the header`; as the
/// name of its tag where it cannot be read.
fn signed_by(header: &Header, tag: u32, name: &str) -> Result<String, PackageError> {
    // rpm 6 has them as text.
    let packet = match tag {
        278 => return Ok(name.to_owned()),
        _ => header.bytes(tag)?.unwrap_or_default(),
    };
    let Ok(signature) = Signature::parse(packet) else {
        return Ok(format!("{name} (not readable)"));
    };
    let info = signature.info();
    let mut text = info.algorithm;
    if let Some(digest) = info.digest {
        text += &format!("/{digest}");
    }
    if let Some(key) = info.key_id {
        text += &format!(", key {key}");
    }
    if let Some(created) = info.created {
        text += &format!(", made {}", date::iso(created.into()));
    }
    let over = if tag > 1000 { "header and payload" } else { "the header" };
    Ok(format!("{text}, over {over}"))
}

fn members(
    r: &dyn ReadAt,
    signature: &Header,
    header: &Header,
    report: &mut PackageReport,
) -> Result<(), PackageError> {
    let mut add = |name: &str, offset, size, compression: Option<String>, unpacked| {
        report.members.push(Member { name: name.into(), offset, size, compression, unpacked });
    };
    add("lead", 0, LEAD, None, None);
    add("signature", signature.offset, signature.size, None, None);
    add("header", header.offset, header.size, None, None);
    let payload = r.len().saturating_sub(header.end());
    let compression = header.string(1125)?.unwrap_or_else(|| "none".to_owned());
    let unpacked = signature.number(271)?.or(signature.number(1007)?).or(header.number(271)?);
    add("payload", header.end(), payload, Some(compression), unpacked);
    let stated = signature.number(270)?.or(signature.number(1000)?);
    let actual = r.len().saturating_sub(header.offset);
    if let Some(stated) = stated.filter(|&stated| stated != actual) {
        report.problems.push(format!(
            "the signature header says that {stated} bytes follow it, but {actual} do"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of entries (tag, type, count) with their contents.
    fn header(entries: &[(u32, u32, u32, Vec<u8>)]) -> Vec<u8> {
        let (mut table, mut store) = (Vec::new(), Vec::new());
        for (tag, kind, count, content) in entries {
            let offset = u32::try_from(store.len()).unwrap();
            for word in [*tag, *kind, offset, *count] {
                table.extend(word.to_be_bytes());
            }
            store.extend(content);
        }
        let mut bytes = vec![0x8e, 0xad, 0xe8, 0x01, 0, 0, 0, 0];
        for len in [entries.len(), store.len()] {
            bytes.extend(u32::try_from(len).unwrap().to_be_bytes());
        }
        [bytes, table, store].concat()
    }

    /// A package with `count` files without names in one folder.
    fn in_folder(folder: &str, count: u32) -> Vec<u8> {
        let mut bytes = LEAD_MAGIC.to_vec();
        bytes.extend([3]);
        bytes.resize(96, 0);
        bytes.extend(header(&[]));
        let text = |text: &str| [text.as_bytes(), b"\0"].concat();
        let mut entries: Vec<_> = [1000, 1001, 1002].map(|tag| (tag, 6, 1, text("x"))).to_vec();
        entries.push((1118, 8, 1, text(folder)));
        entries.extend([1117, 1035, 1036, 1039, 1040].map(|tag| (tag, 8, count, Vec::new())));
        let numbers = [1116, 1028, 1034, 1037].map(|tag| (tag, 4, count, Vec::new()));
        entries.extend(numbers);
        // What all of them share.
        entries.push((1030, 3, count, vec![0; count as usize * 4]));
        bytes.extend(header(&entries));
        bytes
    }

    #[test]
    fn a_long_folder_with_many_files_is_refused() {
        let report = read(&in_folder("/usr/", 1000)).unwrap();
        assert_eq!((report.files.len(), report.files[7].path.as_str()), (1000, "/usr/"));
        let folder = format!("/{}/", "n".repeat(100_000));
        // Half a megabyte, from which ten gigabytes would come.
        let bytes = in_folder(&folder, 100_000);
        assert!(bytes.len() < 600_000);
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains("bytes of all paths"), "{error}");
    }
}
