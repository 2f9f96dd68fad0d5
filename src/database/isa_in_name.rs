//! Finding an ISA in a file's or folder's name.
//!
//! Names are matched against the known processors, longest first, and what follows is judged: a
//! pattern like `gfx(\d+[a-z]*)` reads ISAs that do not exist out of `gfx90a68` and `gfx942e4`,
//! where a count of compute units in hex follows the processor.

use super::Owner;
use crate::target::{Family, PROCESSORS, TargetId};
use crate::tree::TreePath;

/// The nearest folder of the top that is called like an ISA or a family.
pub(super) fn folder(path: &TreePath) -> Option<Owner> {
    let file_name_last = path.components().count() - 1;
    path.components().take(file_name_last).find_map(|part| {
        let part = std::str::from_utf8(part).ok()?;
        if let Some((isa, "")) = target_at(part) {
            return Some(Owner::Isa(isa));
        }
        Family::parse(part).map(Owner::Family)
    })
}

/// An ISA that stands anywhere in the file's name, apart from the rest by `_`, `-` or `.`.
pub(super) fn in_name(path: &TreePath) -> Option<TargetId> {
    let name = std::str::from_utf8(path.file_name()).ok()?;
    name.match_indices("gfx").find_map(|(at, _)| {
        let before = name[..at].bytes().next_back();
        if before.is_some_and(|b| b.is_ascii_alphanumeric()) {
            return None;
        }
        let (isa, rest) = target_at(&name[at..])?;
        rest.bytes().next().is_none_or(|b| matches!(b, b'_' | b'-' | b'.')).then_some(isa)
    })
}

/// An ISA at the start of the file's name, perhaps with a count of compute units behind it.
pub(super) fn name_start(path: &TreePath) -> Option<TargetId> {
    let name = std::str::from_utf8(path.file_name()).ok()?;
    let (isa, rest) = target_at(name)?;
    let rest = rest.trim_start_matches(|c: char| matches!(c, '0'..='9' | 'a'..='f'));
    rest.bytes().next().is_none_or(|b| matches!(b, b'_' | b'-' | b'.')).then_some(isa)
}

/// The target id that `text` begins with, and what follows it. Features are written `:xnack+` or
/// `-xnack+`.
fn target_at(text: &str) -> Option<(TargetId, &str)> {
    let known = PROCESSORS
        .iter()
        .map(|processor| processor.name)
        .filter(|name| text.starts_with(name))
        .max_by_key(|name| name.len());
    let digits = || text.strip_prefix("gfx")?.find(|c: char| !c.is_ascii_hexdigit()).map(|n| n + 3);
    let length = known.map(str::len).or_else(digits).unwrap_or(text.len());
    let (processor, mut rest) = text.split_at(length);
    let mut id = processor.to_owned();
    for feature in ["sramecc", "xnack"] {
        let after = rest.strip_prefix([':', '-']).and_then(|rest| rest.strip_prefix(feature));
        if let Some(after) = after {
            let sign = after.chars().next().filter(|c| matches!(c, '+' | '-'))?;
            id.push_str(&format!(":{feature}{sign}"));
            rest = &after[1..];
        }
    }
    Some((id.parse().ok()?, rest))
}
