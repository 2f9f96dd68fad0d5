//! Reading a `.deb`: an `ar` archive of `debian-binary`, `control.tar.*` and `data.tar.*`.
//!
//! An `ar` header is 60 bytes: name (16), time (12), uid and gid (6 each), mode (8), size (10, all in
//! digits), `` `\n ``; content is padded to an even size. Both tars are read as streams, once, so
//! memory does not grow with the package. Source: deb(5), deb-control(5).

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};

use md5::{Digest, Md5};

use super::decode::{Context, Decoder, Tee};
use super::error::PackageError;
use super::report::{
    FileReport, MAX_FILES, Member, PackageReport, Script, installed_path, leaves, readable,
};
use super::{Visit, tar};
use crate::package::render::hex;
use crate::read_at::{Cursor, ReadAt};

/// The first bytes of an `ar` archive.
pub const AR_MAGIC: &[u8] = b"!<arch>\n";
const AR_HEADER: usize = 60;
/// A package has three members, and a signature or two.
const MAX_MEMBERS: usize = 64;
/// All control data that is held at once.
const MAX_CONTROL: u64 = 64 << 20;
/// All names of files that are held at once, in bytes.
const MAX_NAMES: u64 = 256 << 20;

const RELATIONS: &[&str] = &[
    "Pre-Depends",
    "Depends",
    "Recommends",
    "Suggests",
    "Enhances",
    "Provides",
    "Conflicts",
    "Breaks",
    "Replaces",
];
const SCRIPTS: &[&str] = &["preinst", "postinst", "prerm", "postrm", "config"];

/// The table of an `ar` archive.
pub fn members(r: &dyn ReadAt) -> Result<Vec<Member>, PackageError> {
    let mut members = Vec::new();
    let mut at = AR_MAGIC.len() as u64;
    while at < r.len() {
        if members.len() == MAX_MEMBERS {
            let found = format!("member {}", MAX_MEMBERS + 1);
            return Err(PackageError::field("a header", at, found, "no more than 64"));
        }
        let mut header = [0; AR_HEADER];
        let cannot = |e| PackageError::io("the header of a member", at, e);
        r.read_exact_at(&mut header, at).map_err(cannot)?;
        if header[58..] != *b"`\n" {
            let found = format!("{:02x} {:02x}", header[58], header[59]);
            return Err(PackageError::field("the end of a header", at + 58, found, "60 0a"));
        }
        let name = String::from_utf8_lossy(&header[..16]);
        let name = name.trim_end_matches([' ', '/']).to_owned();
        let digits = String::from_utf8_lossy(&header[48..58]).trim_end().to_owned();
        let size: u64 = digits.parse().map_err(|_| {
            PackageError::field(format!("size of `{name}`"), at + 48, &digits, "a number")
        })?;
        let offset = at + AR_HEADER as u64;
        let left = r.len() - offset.min(r.len());
        if size > left {
            let expected = format!("at most {left}, what the file has");
            return Err(PackageError::field(format!("size of `{name}`"), at + 48, size, expected));
        }
        members.push(Member { name, offset, size, compression: None, unpacked: None });
        at = offset + size + size % 2;
    }
    Ok(members)
}

/// Whether the members are those of a package, and not of a static library.
pub fn is_package(members: &[Member]) -> bool {
    members.first().is_some_and(|first| first.name == "debian-binary")
}

/// Reads a package by its members, once and as a stream; `visit` sees its files.
pub fn read(
    r: &dyn ReadAt,
    members: Vec<Member>,
    visit: &mut dyn Visit,
) -> Result<PackageReport, PackageError> {
    let mut report = PackageReport::default();
    if members.is_empty() {
        return Err(PackageError::Missing("member in the archive".into()));
    }
    format_version(r, &members[0], &mut report)?;
    let mut md5sums = HashMap::new();
    let (mut control, mut data) = (false, false);
    for mut member in members {
        if !control && tar_compression(&member.name, "control.tar").is_some() {
            control = true;
            md5sums = read_control(r, &mut member, &mut report)?;
        } else if !data && tar_compression(&member.name, "data.tar").is_some() {
            if !control {
                return Err(PackageError::Missing("control member before the data".into()));
            }
            data = true;
            visit.control(&report);
            read_data(r, &mut member, &mut md5sums, &mut report, visit)?;
        } else if member.name.starts_with("_gpg") {
            report.signatures.push(member.name.clone());
        }
        report.members.push(member);
    }
    if !data {
        let which = if control { "data.tar" } else { "control.tar" };
        return Err(PackageError::Missing(which.into()));
    }
    let mut missing: Vec<_> = md5sums.into_keys().collect();
    missing.sort();
    let missing = missing.into_iter().take(20);
    report.problems.extend(missing.map(|path| format!("md5sums lists {path}, which is not there")));
    Ok(report)
}

/// What the index of a repository says of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// The control file as it is.
    pub control: Vec<u8>,
    /// What it installs but for directories, absolute, in the order of the package.
    pub paths: Vec<String>,
    /// When it was built, in seconds since 1970: the time of its first member.
    pub built: i64,
}

/// Reads the control file and the names of the files by the package's members. Content is passed over,
/// and digests are not looked at.
pub fn outline(r: &dyn ReadAt, members: Vec<Member>) -> Result<Outline, PackageError> {
    let mut report = PackageReport::default();
    let first = members.first().ok_or_else(|| PackageError::Missing("member".into()))?;
    format_version(r, first, &mut report)?;
    let mut time = [0; 12];
    r.read_exact_at(&mut time, AR_MAGIC.len() as u64 + 16)
        .map_err(|e| PackageError::io("the time of debian-binary", 24, e))?;
    let time = String::from_utf8_lossy(&time);
    let built = time.trim_end().parse().map_err(|_| {
        PackageError::field("the time of debian-binary", 24, format!("`{time}`"), "a number")
    })?;
    let (mut control, mut paths) = (None, None);
    for mut member in members {
        if control.is_none() && tar_compression(&member.name, "control.tar").is_some() {
            control = control_file(r, &mut member)?;
        } else if paths.is_none() && tar_compression(&member.name, "data.tar").is_some() {
            paths = Some(data_paths(r, &mut member)?);
        }
    }
    let control = control.ok_or_else(|| PackageError::Missing("control file".into()))?;
    let paths = paths.ok_or_else(|| PackageError::Missing("data.tar".into()))?;
    Ok(Outline { control, paths, built })
}

fn control_file(r: &dyn ReadAt, member: &mut Member) -> Result<Option<Vec<u8>>, PackageError> {
    let mut control = None;
    read_tar(r, member, "control.tar", &mut Vec::new(), |entry, content| {
        let is_control = entry.kind() == b'0' && installed_path(&entry.name) == "/control";
        if !is_control || control.is_some() {
            return Ok(());
        }
        if entry.size > MAX_CONTROL {
            let expected = format!("no more than {MAX_CONTROL} bytes");
            return Err(PackageError::field(
                "size of control",
                entry.at + 124,
                entry.size,
                expected,
            ));
        }
        let mut bytes = Vec::new();
        let cannot = |e| PackageError::io("control in control.tar", entry.at, e);
        content.read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 != entry.size {
            return Err(cannot(io::ErrorKind::UnexpectedEof.into()));
        }
        control = Some(bytes);
        Ok(())
    })?;
    Ok(control)
}

fn data_paths(r: &dyn ReadAt, member: &mut Member) -> Result<Vec<String>, PackageError> {
    let mut paths = Vec::new();
    let mut left = MAX_NAMES;
    read_tar(r, member, "data.tar", &mut Vec::new(), |entry, _| {
        let path = installed_path(&entry.name);
        left = left.saturating_sub(path.len() as u64);
        if paths.len() >= MAX_FILES || left == 0 {
            return Err(too_many_names(entry, paths.len()));
        }
        if entry.kind() != b'5' {
            paths.push(path);
        }
        Ok(())
    })?;
    Ok(paths)
}

fn too_many_names(entry: &tar::TarMember, n: usize) -> PackageError {
    let expected = format!("at most {MAX_FILES} files, with at most 256 MiB of names");
    PackageError::field("a member of data.tar", entry.at, format!("number {}", n + 1), expected)
}

fn format_version(
    r: &dyn ReadAt,
    member: &Member,
    report: &mut PackageReport,
) -> Result<(), PackageError> {
    let mut text = String::new();
    Cursor::new(r, member.offset, member.size.min(64))
        .read_to_string(&mut text)
        .map_err(|e| PackageError::io("debian-binary", member.offset, e))?;
    let version = text.trim_end().to_owned();
    if !version.starts_with("2.") {
        return Err(PackageError::field("debian-binary", member.offset, version, "2.0"));
    }
    report.fields.push(("Format".into(), version));
    Ok(())
}

/// How the tar of that name is compressed, or `None` where the member is another.
fn tar_compression(name: &str, tar: &str) -> Option<&'static str> {
    match name.strip_prefix(tar)? {
        "" => Some("none"),
        ".gz" => Some("gzip"),
        ".xz" => Some("xz"),
        ".zst" => Some("zstd"),
        ".bz2" => Some("bzip2"),
        ".lzma" => Some("lzma"),
        _ => None,
    }
}

fn read_tar(
    r: &dyn ReadAt,
    member: &mut Member,
    tar: &str,
    problems: &mut Vec<String>,
    each: impl FnMut(&tar::TarMember, &mut dyn Read) -> Result<(), PackageError>,
) -> Result<(), PackageError> {
    let compression = tar_compression(&member.name, tar).unwrap_or("none");
    let raw = Cursor::new(r, member.offset, member.size);
    let mut context = Context::new();
    let mut decoder = Decoder::new(Box::new(raw), &member.name, compression, true, &mut context)?;
    let end = tar::for_each(&mut decoder, tar, each)?;
    let mut problem = |what: &str| problems.push(format!("{} {what}", member.name));
    if end.pax {
        problem("has PAX headers: dpkg does not install such a package");
    }
    if decoder.has_more().map_err(|e| PackageError::io(&member.name, 0, e))? {
        problem("has more than one compressed stream: dpkg reads the first only");
    }
    member.compression = Some(compression.to_owned());
    member.unpacked = Some(end.len);
    Ok(())
}

/// Reads the control member into the report; gives the MD5 sums by installed path.
fn read_control(
    r: &dyn ReadAt,
    member: &mut Member,
    report: &mut PackageReport,
) -> Result<HashMap<String, String>, PackageError> {
    let mut texts: Vec<(String, Vec<u8>)> = Vec::new();
    let mut left = MAX_CONTROL;
    read_tar(r, member, "control.tar", &mut report.problems, |entry, content| {
        if entry.kind() != b'0' {
            return Ok(());
        }
        let name = installed_path(&entry.name).trim_start_matches('/').to_owned();
        // An empty file costs memory as well.
        let cost = entry.size.saturating_add(1024);
        if cost > left {
            let what = format!("size of {name} in control.tar");
            let expected = format!("no more than {MAX_CONTROL} bytes of control data");
            return Err(PackageError::field(what, entry.at + 124, entry.size, expected));
        }
        left -= cost;
        let mut bytes = Vec::new();
        content
            .read_to_end(&mut bytes)
            .map_err(|e| PackageError::io("control.tar", entry.at, e))?;
        if bytes.len() as u64 != entry.size {
            let cut = io::ErrorKind::UnexpectedEof.into();
            return Err(PackageError::io(format!("{name} in control.tar"), entry.at, cut));
        }
        texts.push((name, bytes));
        Ok(())
    })?;
    let mut md5sums = HashMap::new();
    let mut has_control = false;
    for (name, bytes) in texts {
        let text = readable(&bytes);
        match name.as_str() {
            "control" => {
                has_control = true;
                control_fields(&text, report)?;
            }
            "md5sums" => {
                // Not `lines()`: a name may end with a carriage return.
                let lines = text.split('\n').filter_map(|line| line.split_once("  "));
                md5sums.extend(lines.take(MAX_FILES).map(|(sum, path)| {
                    (installed_path(path.as_bytes()), sum.to_ascii_lowercase())
                }));
            }
            _ => {
                let is_script = SCRIPTS.contains(&name.as_str());
                let first = text.lines().next().and_then(|line| line.strip_prefix("#!"));
                let interpreter = first.filter(|_| is_script).map(|line| line.trim().to_owned());
                let (size, text) = (bytes.len() as u64, text.clone());
                let script = Script { name, interpreter, size, text };
                let list = if is_script { &mut report.scripts } else { &mut report.control_files };
                list.push(script);
            }
        }
    }
    if has_control { Ok(md5sums) } else { Err(PackageError::Missing("control file".into())) }
}

/// A field is `Name: value`, and lines that go on begin with a blank.
fn control_fields(text: &str, report: &mut PackageReport) -> Result<(), PackageError> {
    let mut fields: Vec<(String, String)> = Vec::new();
    let mut at = 0;
    for line in text.lines() {
        let begins = at;
        at += line.len() as u64 + 1;
        if line.trim().is_empty() {
            continue;
        }
        if line.starts_with([' ', '\t'])
            && let Some((_, value)) = fields.last_mut()
        {
            value.push('\n');
            value.push_str(line.trim_end());
            continue;
        }
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| !name.contains(' '))
        else {
            let found = format!("`{}`", line.chars().take(60).collect::<String>());
            return Err(PackageError::field("a line of control", begins, found, "Name: value"));
        };
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
    for (name, value) in fields {
        match RELATIONS.iter().find(|relation| relation.eq_ignore_ascii_case(&name)) {
            None => report.fields.push((name, value)),
            Some(relation) => {
                // Line ends within a relation mean nothing.
                let items = value
                    .split(',')
                    .map(|item| item.split_whitespace().collect::<Vec<_>>().join(" "));
                let items = items.filter(|item| !item.is_empty()).collect();
                report.relations.push(((*relation).to_owned(), items));
            }
        }
    }
    for needed in ["Package", "Version", "Architecture"] {
        if !report.fields.iter().any(|(name, _)| name == needed) {
            return Err(PackageError::Missing(format!("field {needed} in control")));
        }
    }
    Ok(())
}

fn read_data(
    r: &dyn ReadAt,
    member: &mut Member,
    md5sums: &mut HashMap<String, String>,
    report: &mut PackageReport,
    visit: &mut dyn Visit,
) -> Result<(), PackageError> {
    let listed = !md5sums.is_empty();
    let conffiles = report.control_files.iter().find(|file| file.name == "conffiles");
    let conffiles: HashSet<String> = conffiles
        .map(|file| file.text.lines().map(|line| line.trim().to_owned()).collect())
        .unwrap_or_default();
    let PackageReport { files, problems, installed_bytes, unlisted, .. } = report;
    let mut found = Vec::new();
    // Names are held: hostile ones are long.
    let mut left = MAX_NAMES;
    read_tar(r, member, "data.tar", problems, |entry, content| {
        let path = installed_path(&entry.name);
        let names = path.len() + entry.link.as_ref().map_or(0, Vec::len);
        left = left.saturating_sub(names as u64);
        if files.len() >= MAX_FILES || left == 0 {
            return Err(too_many_names(entry, files.len()));
        }
        if leaves(&path) {
            found.push(format!("the path {path} leaves the tree"));
        }
        let file = data_file(entry, path, content, visit)?;
        if let Some(stated) = md5sums.remove(&file.path) {
            let actual = file.digest.as_deref().unwrap_or("of nothing: it is no file");
            // A hard link's content stands at its first name.
            if stated != actual && file.kind != "hard link" {
                found.push(format!("md5sums says {stated} of {}, but it is {actual}", file.path));
            }
        } else if listed && file.kind == "file" && !conffiles.contains(&file.path) {
            unlisted.push(file.path.clone());
        }
        *installed_bytes = installed_bytes.saturating_add(file.size);
        files.push(file);
        Ok(())
    })?;
    // Enough to see what is wrong.
    found.truncate(100);
    report.problems.append(&mut found);
    Ok(())
}

fn data_file(
    entry: &tar::TarMember,
    path: String,
    content: &mut dyn Read,
    visit: &mut dyn Visit,
) -> Result<FileReport, PackageError> {
    let kind = match entry.kind() {
        b'0' => "file",
        b'1' => "hard link",
        b'2' => "symlink",
        b'3' | b'4' => "device",
        b'5' => "directory",
        b'6' => "fifo",
        other => {
            let found = char::from(other).escape_default();
            let expected = "a file, directory, link, device or pipe";
            let what = format!("type of {path} in data.tar");
            return Err(PackageError::field(what, entry.at + 156, found, expected));
        }
    };
    let mut digest = None;
    if kind == "file" {
        let mut md5 = Md5::new();
        let cannot = |e| PackageError::io(format!("{path} in data.tar"), entry.at, e);
        let mut summed = Tee::new(content, |bytes: &[u8]| md5.update(bytes));
        visit.file(&path, entry.size, &mut summed).map_err(cannot)?;
        let copied = summed.finish().map_err(cannot)?;
        if copied != entry.size {
            let cut = io::ErrorKind::UnexpectedEof.into();
            return Err(PackageError::io(format!("{path} in data.tar"), entry.at, cut));
        }
        digest = Some(hex(&md5.finalize()));
    }
    let header = &entry.header;
    let number = |what: &str, at: u64| {
        let what = format!("{what} of {path} in data.tar");
        PackageError::field(what, entry.at + at, "no number", "one in octal")
    };
    let named = |name: Option<&[u8]>, id: io::Result<u64>| match name {
        Some(name) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
        _ => id.map_or_else(|_| "?".into(), |id| id.to_string()),
    };
    Ok(FileReport {
        kind,
        mode: format!("{:04o}", header.mode().map_err(|_| number("mode", 100))? & 0o7777),
        size: if kind == "file" { entry.size } else { 0 },
        owner: format!(
            "{}/{}",
            named(header.username_bytes(), header.uid()),
            named(header.groupname_bytes(), header.gid())
        ),
        mtime: header.mtime().map_err(|_| number("time", 136))?.try_into().unwrap_or(i64::MAX),
        link: entry.link.as_ref().filter(|_| matches!(kind, "symlink" | "hard link")).map(|link| {
            match kind {
                "hard link" => installed_path(link),
                _ => readable(link),
            }
        }),
        digest,
        flags: Vec::new(),
        path,
    })
}
