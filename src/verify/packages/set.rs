//! What the packages of a set have to do with each other's files.

use std::collections::{BTreeMap, BTreeSet};

use super::found;
use super::pack::Pack;
use crate::config::FileKind;
use crate::package::Format;
use crate::package::render::is_made;
use crate::tree::TreePath;
use crate::verify::finding::{Check, Finding};

/// No path is in two packages of one format.
pub(super) fn paths(packs: &[&Pack], findings: &mut Vec<Finding>) {
    let mut owners: BTreeMap<&TreePath, (&Pack, bool)> = BTreeMap::new();
    for pack in packs {
        for (path, entry) in pack.artifact.tree.iter() {
            match owners.get(path) {
                None => drop(owners.insert(path, (pack, entry.is_dir()))),
                Some((_, true)) if entry.is_dir() => {}
                Some((other, _)) => findings.push(Finding::new(
                    Check::PathTwice,
                    &other.file,
                    &path.to_string(),
                    format!("/{path} is in {} as well", pack.file),
                    "each path in one package",
                )),
            }
        }
    }
}

/// What a package is called in both formats: in lower case, with Debian's endings, behind which a group's name may stand.
fn in_both(pack: &Pack) -> String {
    let (name, group) = match pack.group() {
        Some(group) => (pack.definition(), format!("-{group}")),
        None => (pack.name.as_str(), String::new()),
    };
    let ending = FileKind::ALL.into_iter().find_map(|kind| {
        let stem = name.strip_suffix(kind.rpm_suffix()).filter(|stem| stem.ends_with('-'))?;
        Some(format!("{stem}{}", kind.suffix()))
    });
    (ending.unwrap_or_else(|| name.to_owned()) + &group).to_ascii_lowercase()
}

/// A package in both formats is the same package: version, and the files below the install prefix.
/// What each format has of its own (changelogs, licences) is left out.
pub(super) fn formats(packs: &[Pack], prefix: &TreePath, findings: &mut Vec<Finding>) {
    let of = |format: Format| -> BTreeMap<String, &Pack> {
        let list = packs.iter().filter(|pack| pack.format == format);
        list.map(|pack| (in_both(pack), pack)).collect()
    };
    let (debs, rpms) = (of(Format::Deb), of(Format::Rpm));
    if debs.is_empty() || rpms.is_empty() {
        return;
    }
    for (ours, theirs, other) in [(&debs, &rpms, "rpm"), (&rpms, &debs, "deb")] {
        for (name, pack) in ours.iter().filter(|(name, _)| !theirs.contains_key(*name)) {
            let what = format!("there is no .{other} of `{name}`");
            found(
                findings,
                Check::FormatsDiffer,
                pack,
                what,
                "each package in both formats".into(),
            );
        }
    }
    let root = format!("/{prefix}/");
    for (name, deb) in &debs {
        let Some(rpm) = rpms.get(name) else { continue };
        if deb.version != rpm.version {
            let what = format!("is of version {}", deb.version);
            let expected = format!("{}, as {}", rpm.version, rpm.file);
            found(findings, Check::FormatsDiffer, deb, what, expected);
        }
        // Of a package that could not be read to its end nothing is known.
        if !deb.is_whole || !rpm.is_whole {
            continue;
        }
        let paths: BTreeSet<&String> = deb.files.keys().chain(rpm.files.keys()).collect();
        let of_both = |path: &&String| {
            let inside = path.trim_start_matches('/');
            path.starts_with(&root) && !TreePath::new(inside).is_ok_and(|path| is_made(&path))
        };
        for path in paths.into_iter().filter(of_both) {
            let (a, b) = (deb.files.get(path), rpm.files.get(path));
            if a == b {
                continue;
            }
            let say = |file: Option<&super::pack::FileIdentity>| {
                file.map_or("nothing".to_owned(), |file| file.what.clone())
            };
            findings.push(Finding::new(
                Check::FormatsDiffer,
                &deb.file,
                path.trim_start_matches('/'),
                format!("is {}", say(a)),
                format!("{}, as in {}", say(b), rpm.file),
            ));
        }
    }
}
