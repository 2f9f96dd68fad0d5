//! What is kept of an `.rpm`: all that the metadata say of it, read from its headers once.
//!
//! Which relations are listed is a convention that createrepo_c has set: not those to `rpmlib(…)`, which rpm
//! itself has; not those that the package satisfies by a provide of the same text or by a file that the metadata
//! list; each once. Source: rpm's list of tags, createrepo_c 0.17.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::xml;
use crate::package::read::PackageError;
use crate::package::read::rpm::{MAX_PATHS, header_signatures, headers, same_length};
use crate::package::read::rpm_header::Header;
use crate::package::spec::{Op, Relation};
use crate::read_at::{ReadAt, read_vec};
use crate::repo::hex;
use crate::repo::record::{Facts, Part, Relations};

/// So many entries of the changelog are kept, the newest, as createrepo_c keeps.
const CHANGELOGS: usize = 10;

/// What the metadata say of an `.rpm` beside the common facts. Texts are fit for XML:
/// UTF-8, without characters that it has not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// 0 where there is none.
    pub epoch: u32,
    /// `7.1.0`
    pub version: String,
    /// `1`
    pub release: String,
    /// One line.
    pub summary: String,
    /// Several.
    pub description: String,
    /// Who packs it.
    pub packager: String,
    /// Where it is from.
    pub url: String,
    /// `MIT`
    pub license: String,
    /// Who distributes it.
    pub vendor: String,
    /// `System/Libraries`, `Unspecified`
    pub group: String,
    /// Where it was built.
    pub buildhost: String,
    /// The source package that it was built of; empty for one.
    pub sourcerpm: String,
    /// Bytes of all files.
    pub installed: u64,
    /// Bytes of the payload, not compressed.
    pub archive: u64,
    /// Where the main header begins and ends in the file.
    pub header: (u64, u64),
    /// Provides, requires, conflicts, obsoletes, suggests, enhances, recommends, supplements.
    pub relations: [Vec<Dependency>; 8],
    /// Names of directories, with `/` at the end.
    pub folders: Vec<String>,
    /// In the order of the header.
    pub files: Vec<FileName>,
    /// The newest entries, the oldest of them first.
    pub changelogs: Vec<Changelog>,
    /// Whether it carries a signature over its header. It is not checked here.
    pub is_signed: bool,
}

/// A relation to a capability.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dependency {
    /// `rocblas-generic`, `libc.so.6()(64bit)`, `(a if b)`
    pub name: String,
    /// How the version is compared: the sum of 2 (less), 4 (greater) and 8 (equal); 0 where it is not.
    pub sense: u8,
    /// `1:2-3`, or nothing.
    pub version: String,
    /// Needed before the package is installed, or by its scripts.
    pub pre: bool,
}

/// A path that the package has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileName {
    /// Index of its directory.
    pub folder: u32,
    /// Its last part.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
}

/// What a path is, as far as the metadata tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A file, a link.
    File,
    /// A directory.
    Dir,
    /// A file that is the package's but not in it.
    Ghost,
}

/// An entry of the changelog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changelog {
    /// Who, and often which version.
    pub author: String,
    /// Seconds since 1970. Of entries of one time, each but the newest is a second later than the next, which keeps
    /// them in order.
    pub date: i64,
    /// What.
    pub text: String,
}

/// Elements of `primary.xml`; tags of names, flags and versions.
pub(crate) const KINDS: [(&str, [u32; 3]); 8] = [
    ("provides", [1047, 1112, 1113]),
    ("requires", [1049, 1048, 1050]),
    ("conflicts", [1054, 1053, 1055]),
    ("obsoletes", [1090, 1114, 1115]),
    ("suggests", [5049, 5051, 5050]),
    ("enhances", [5055, 5057, 5056]),
    ("recommends", [5046, 5048, 5047]),
    ("supplements", [5052, 5054, 5053]),
];
const PROVIDES: usize = 0;
const REQUIRES: usize = 1;
const CONFLICTS: usize = 2;
const OBSOLETES: usize = 3;
const RECOMMENDS: usize = 6;

const LESS_GREATER_EQUAL: u64 = 0xe;
/// Needed before: as such, by the script before the installation, by the one after it.
const PRE: u64 = 1 << 6 | 1 << 9 | 1 << 10;
/// How packages of old said that they only recommend.
const MISSING_OK: u64 = 1 << 19;

/// Reads what the metadata need of a package file: its headers, of which the main one must be what the
/// signature header says.
pub fn read(r: &dyn ReadAt) -> Result<Facts, PackageError> {
    let (signature, header) = headers(r)?;
    check_header(r, &signature, &header)?;
    let text =
        |tag| Ok(header.raw_strings(tag)?.first().map_or_else(String::new, |s| xml::clean(s)));
    let word = |tag, what: &str, marks: &str| {
        let text: String = text(tag)?;
        let good = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
        if !text.is_empty() && text.len() <= 200 && !text.starts_with('.') && text.chars().all(good)
        {
            return Ok(text);
        }
        let found = format!("`{}`", text.chars().take(60).collect::<String>());
        let what = format!("{what} in the main header");
        Err(PackageError::field(
            what,
            header.offset,
            found,
            format!("letters, digits and `{marks}`"),
        ))
    };
    // In NAME-VERSION-RELEASE.ARCH the last two `-` and the last `.` part them, so that no two packages share a
    // file.
    let name = word(1000, "the name", "._+~^-")?;
    let (version, release) =
        (word(1001, "the version", "._+~^")?, word(1002, "the release", "._+~^")?);
    let is_source = header.number(1106)?.is_some_and(|n| n != 0);
    let arch = if is_source { "src".to_owned() } else { word(1022, "the architecture", "_+~^-")? };
    let epoch = header.number(1003)?.unwrap_or_default();
    let epoch = u32::try_from(epoch).map_err(|_| {
        PackageError::field("the epoch in the main header", header.offset, epoch, "32 bits")
    })?;
    let full = format!("{version}-{release}");
    let full = if epoch == 0 { full } else { format!("{epoch}:{full}") };
    let built = i64::try_from(header.number(1006)?.unwrap_or_default()).unwrap_or(i64::MAX);
    let (folders, files) = files(&header)?;
    // The larger form is there where the size does not fit the other.
    let installed = header.number(5009)?.or(header.number(1009)?);
    let archive = match signature.number(271)?.or(signature.number(1007)?) {
        None => header.number(271)?.or(header.number(1046)?),
        found => found,
    };
    let mut record = Record {
        epoch,
        version,
        release,
        summary: text(1004)?,
        description: text(1005)?,
        packager: text(1015)?,
        url: text(1020)?,
        license: text(1014)?,
        vendor: text(1011)?,
        group: text(1016)?,
        buildhost: text(1007)?,
        sourcerpm: text(1044)?,
        installed: installed.unwrap_or_default(),
        archive: archive.unwrap_or_default(),
        header: (header.offset, header.end()),
        relations: Default::default(),
        folders,
        files,
        changelogs: changelogs(&header)?,
        is_signed: is_signed(&signature)?,
    };
    record.relations = relations(&header, &record)?;
    Ok(Facts { name, version: full, arch, built, part: Part::Rpm(Box::new(record)) })
}

/// A package whose header was damaged would lie in the metadata.
fn check_header(r: &dyn ReadAt, signature: &Header, header: &Header) -> Result<(), PackageError> {
    let Some(stated) = signature.string(273)? else { return Ok(()) };
    let bytes = read_vec(r, header.offset, header.size)
        .map_err(|e| PackageError::io("the main header", header.offset, e))?;
    let actual = hex(&Sha256::digest(&bytes));
    if stated == actual {
        return Ok(());
    }
    Err(PackageError::field("SHA256 of the main header", header.offset, actual, stated))
}

/// Whether a signature over the header is there that can be read.
fn is_signed(signature: &Header) -> Result<bool, PackageError> {
    Ok(header_signatures(signature)?.iter().any(|(_, one)| one.is_ok()))
}

fn files(header: &Header) -> Result<(Vec<String>, Vec<FileName>), PackageError> {
    let names = header.raw_strings(1117)?;
    let folders: Vec<String> = header.raw_strings(1118)?.into_iter().map(xml::clean).collect();
    let (places, modes, flags) =
        (header.numbers(1116)?, header.numbers(1030)?, header.numbers(1037)?);
    let counts = [("folders", places.len()), ("modes", modes.len()), ("flags", flags.len())];
    same_length("files", names.len(), &counts)?;
    let mut left = MAX_PATHS;
    let mut files = Vec::new();
    for (i, (((name, place), mode), flags)) in
        names.iter().zip(places).zip(modes).zip(flags).enumerate()
    {
        let folder = usize::try_from(place).ok().and_then(|place| folders.get(place));
        let size = folder.map(|folder| folder.len() + name.iter().len()).ok_or_else(|| {
            let expected = format!("less than {}", folders.len());
            PackageError::field(format!("folder of file {i}"), header.offset, place, expected)
        })?;
        left = left.checked_sub(size).ok_or_else(|| {
            let found = format!("over {MAX_PATHS} up to file {i}");
            let expected = format!("at most {MAX_PATHS}");
            PackageError::field("bytes of all paths", header.offset, found, expected)
        })?;
        let kind = match (mode & 0o170_000, flags & 1 << 6) {
            (0o040_000, _) => FileKind::Dir,
            (_, 0) => FileKind::File,
            _ => FileKind::Ghost,
        };
        let folder = u32::try_from(place).unwrap_or(u32::MAX);
        files.push(FileName { folder, name: xml::clean(name), kind });
    }
    Ok((folders, files))
}

fn relations(header: &Header, record: &Record) -> Result<[Vec<Dependency>; 8], PackageError> {
    let mut all: [Vec<Dependency>; 8] = Default::default();
    for (kind, (what, [names, flags, versions])) in KINDS.into_iter().enumerate() {
        let names = header.raw_strings(names)?;
        let (flags, versions) = (header.numbers(flags)?, header.raw_strings(versions)?);
        same_length(what, names.len(), &[("flags", flags.len()), ("versions", versions.len())])?;
        let mut seen: HashSet<Dependency> = HashSet::new();
        // What the package itself has.
        let own: HashSet<Dependency> = match kind {
            REQUIRES => all[PROVIDES].iter().cloned().collect(),
            _ => HashSet::new(),
        };
        for ((name, flags), version) in names.into_iter().zip(flags).zip(versions) {
            let (name, version) = (xml::clean(name), xml::clean(version));
            let sense = u8::try_from(flags & LESS_GREATER_EQUAL).unwrap_or_default();
            let mut one = Dependency { name, sense, version, pre: false };
            if kind != REQUIRES {
                all[kind].push(one);
                continue;
            }
            if one.name.starts_with("rpmlib(") || own.contains(&one) {
                continue;
            }
            one.pre = flags & PRE != 0;
            if seen.insert(one.clone()) {
                let to = if flags & MISSING_OK == 0 { kind } else { RECOMMENDS };
                all[to].push(one);
            }
        }
    }
    if all[REQUIRES].iter().any(|one| is_primary(&one.name)) {
        let own: HashSet<String> = record.paths().map(|(path, _)| path).collect();
        all[REQUIRES].retain(|one| !is_primary(&one.name) || !own.contains(&one.name));
    }
    Ok(all)
}

fn changelogs(header: &Header) -> Result<Vec<Changelog>, PackageError> {
    let (times, names, texts) =
        (header.numbers(1080)?, header.raw_strings(1081)?, header.raw_strings(1082)?);
    let counts = [("times", times.len()), ("texts", texts.len())];
    same_length("changelogs", names.len(), &counts)?;
    let mut entries: Vec<Changelog> = Vec::new();
    // The newest come first.
    for ((time, name), text) in times.into_iter().zip(names).zip(texts).take(CHANGELOGS) {
        let date = i64::try_from(time).unwrap_or(i64::MAX);
        let author = xml::clean(name).trim_end_matches(' ').to_owned();
        // Those before of the same time make room, one second each.
        let mut later = date;
        for entry in entries.iter_mut().rev() {
            if entry.date != later {
                break;
            }
            later = later.saturating_add(1);
            entry.date = later;
        }
        entries.push(Changelog { author, date, text: xml::clean(text) });
    }
    entries.reverse();
    Ok(entries)
}

/// Whether a path is listed in `primary.xml`, for clients that resolve relations to files without the
/// list of all: anything with `bin/` in it, `/etc/`, and one more of old.
pub(super) fn is_primary(path: &str) -> bool {
    path.starts_with("/etc/") || path.contains("bin/") || path == "/usr/lib/sendmail"
}

impl Record {
    /// The paths, in the order of the header.
    pub fn paths(&self) -> impl Iterator<Item = (String, FileKind)> {
        self.parts().map(|(folder, name, kind)| (format!("{folder}{name}"), kind))
    }

    /// The same, as folder and name.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&str, &str, FileKind)> {
        self.files.iter().map(|file| {
            let folder = self.folders.get(file.folder as usize).map_or("", String::as_str);
            (folder, file.name.as_str(), file.kind)
        })
    }

    /// About how many bytes it has in `primary`, `filelists` and `other`.
    pub(in crate::repo) fn sizes(&self) -> [u32; 3] {
        let relations = self.relations.iter().flatten();
        let relations: usize = relations.map(|one| 60 + one.name.len() + one.version.len()).sum();
        let paths: usize =
            self.parts().map(|(folder, name, _)| folder.len() + name.len() + 16).sum();
        let changes: usize =
            self.changelogs.iter().map(|one| 60 + one.author.len() + one.text.len()).sum();
        let texts = self.summary.len() + self.description.len();
        [900 + texts + relations, 180 + paths, 180 + changes]
            .map(|size| u32::try_from(size).unwrap_or(u32::MAX))
    }

    /// What it cannot be installed with: conflicts, and what it replaces. Rich ones are left out.
    pub fn excluded(&self) -> Vec<Relation> {
        let both = [CONFLICTS, OBSOLETES].into_iter().flat_map(|kind| &self.relations[kind]);
        both.filter(|one| !one.name.starts_with('(')).map(Dependency::relation).collect()
    }

    /// The relations that decide about upgrades.
    pub fn relations(&self) -> Relations {
        let of = |kind: usize| self.relations[kind].iter();
        let simple = |one: &&Dependency| !one.name.starts_with('(');
        Relations {
            needs: of(REQUIRES).filter(simple).map(|one| vec![one.relation()]).collect(),
            provides: of(PROVIDES).map(Dependency::relation).collect(),
            replaces: of(OBSOLETES).map(Dependency::relation).collect(),
        }
    }
}

impl Dependency {
    /// How the version is compared, as the metadata write it; empty where it is not.
    pub fn flags(&self) -> &'static str {
        match self.sense {
            2 => "LT",
            4 => "GT",
            8 => "EQ",
            10 => "LE",
            12 => "GE",
            _ => "",
        }
    }

    fn relation(&self) -> Relation {
        let op = match self.sense {
            2 => Op::Less,
            4 => Op::Greater,
            8 => Op::Equal,
            10 => Op::LessEqual,
            12 => Op::GreaterEqual,
            _ => return Relation::any(self.name.as_str()),
        };
        let constraint = Some((op, self.version.clone()));
        Relation { name: self.name.as_str().into(), constraint }
    }
}
