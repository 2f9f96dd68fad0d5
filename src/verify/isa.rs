//! Invariant 3: whose code it is. Kernels in archives are judged in [`super::kpack`]; here are loose
//! code objects and bundles, and what a tree may hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::Checked;
use super::file::{Facts, Task};
use super::finding::{Check, Finding, Findings, chain};
use super::kpack::{Few, code_object};
use super::subject::Holds;
use crate::database::Owner;
use crate::fatbin::BundleError;
use crate::fatbin::bundle::{self, Bundle, BundleEntry};
use crate::fatbin::code_object::{CodeObjectError, CodeObjectHeader, IsaCheck};
use crate::read_at::{ReadAt, Window};
use crate::target::TargetId;

/// Reads a `.co` or `.hsaco` file, or one that begins like them: a code object or a bundle of them.
pub(super) fn code_file(r: &dyn ReadAt, magic: &[u8], task: &Task, findings: &mut Findings) {
    let owner = task.owner;
    if r.is_empty() {
        return findings.add(Check::DatabaseDamaged, "is empty", "a code object or bundle");
    }
    if bundle::is_bundle(magic) {
        return code_bundle(r, task, findings);
    }
    match CodeObjectHeader::read(r) {
        Ok(header) => {
            if let Some(owner) = owner
                && !owner.runs(&header)
            {
                other(&header, owner, findings);
            }
        }
        Err(CodeObjectError::Io { source, .. }) => {
            findings.add(Check::Unreadable, format!("cannot be read: {source}"), "a readable file");
        }
        Err(e) => {
            let what = format!("is no whole code object: {}", chain(&e));
            findings.add(Check::DatabaseDamaged, what, "an AMDGPU ELF file or a bundle of them");
        }
    }
}

/// What is expected of a database file that begins like a bundle.
const WHOLE_BUNDLE: &str = "a whole bundle of code objects";

/// Reports a bundle that cannot be read.
pub(super) fn damaged_bundle(e: &BundleError, findings: &mut Findings) {
    let what = format!("is a damaged bundle: {}", chain(e));
    findings.add(Check::DatabaseDamaged, what, WHOLE_BUNDLE);
}

fn code_bundle(r: &dyn ReadAt, task: &Task, findings: &mut Findings) {
    let owner = task.owner;
    let expected = WHOLE_BUNDLE;
    let bundle = match Bundle::read(r, 0, r.len()) {
        Ok(bundle) => bundle,
        Err(e) => return damaged_bundle(&e, findings),
    };
    let mut faults = Few::default();
    let mut isas = BTreeSet::new();
    let mut matching = false;
    let mut judge = |entry: &BundleEntry, target: &TargetId, header| match header {
        Err(e) => faults.add(|| format!("entry `{}`: {}", entry.id, chain(&e))),
        Ok(header) => {
            if CodeObjectHeader::check(&header, target) == IsaCheck::Other {
                other(&header, target, findings);
            }
            matching |= owner.is_none_or(|owner| owner.runs(&header));
            isas.insert(target.to_string());
        }
    };
    let looked = task.unchecked.and_then(|(file, unchecked)| {
        unchecked.look(file, &bundle, r, |content| {
            for (target, entry) in bundle.device_entries().filter(|(_, entry)| entry.size > 0) {
                let object = Window::new(&**content, entry.offset, entry.size);
                let object = object.expect("a bundle's entries are in what its header claims");
                judge(entry, target, CodeObjectHeader::read(&object));
            }
        })
    });
    let done = if looked.is_some() {
        Ok(())
    } else {
        bundle.for_each_entry(r, |entry, stream| {
            let Some(target) = &entry.target else { return Ok(()) };
            let offset = bundle.offset.saturating_add(entry.offset);
            let read = code_object(stream, entry.size, false);
            let (header, _) = read.map_err(|source| BundleError::Io { offset, source })?;
            judge(entry, target, header);
            Ok(())
        })
    };
    if let Err(e) = done {
        return damaged_bundle(&e, findings);
    }
    if let Some(what) =
        faults.say("entry is no whole code object", "entries are no whole code objects")
    {
        return findings.add(Check::DatabaseDamaged, what, expected);
    }
    if let Some(owner) = owner.filter(|_| !matching && !isas.is_empty()) {
        findings.add(
            Check::DatabaseIsa,
            format!("is a bundle for {}", isas.into_iter().collect::<Vec<_>>().join(", ")),
            format!("code for {}, as the file's name says", owner.target()),
        );
    }
}

fn other(header: &CodeObjectHeader, filed: &impl Named, findings: &mut Findings) {
    let found = header.target.as_ref().map(ToString::to_string).unwrap_or_default();
    findings.add(
        Check::DatabaseIsa,
        format!("is code for {found} (e_flags {:#x})", header.e_flags),
        format!("code for {}, as its name says", filed.named()),
    );
}

trait Named {
    fn named(&self) -> String;
}

impl Named for Owner {
    fn named(&self) -> String {
        self.target()
    }
}

impl Named for TargetId {
    fn named(&self) -> String {
        self.to_string()
    }
}

/// What each device tree may hold: the ISAs of its archives and database files.
pub(super) fn check(checked: &[Checked], findings: &mut Vec<Finding>) {
    for artifact in checked.iter().filter(|checked| !matches!(checked.holds, Holds::Generic)) {
        let label = artifact.label.as_str();
        let mut add = |id: Check, file: &dyn Display, message: String, expected: String| {
            findings.push(Finding::new(id, label, &file.to_string(), message, expected));
        };
        for (path, facts) in &artifact.facts {
            let Facts::Kpack(Some(kpack)) = facts else { continue };
            let mut counts: BTreeMap<&TargetId, usize> =
                kpack.gfx_arches.iter().map(|isa| (isa, 0)).collect();
            for kernel in &kpack.kernels {
                *counts.entry(&kernel.isa).or_default() += 1;
            }
            for (isa, count) in counts.into_iter().filter(|(isa, _)| !artifact.holds.allows(isa)) {
                let what = format!("is an archive for {isa}, with {count} kernels for it");
                add(Check::IsaMixed, path, what, artifact.holds.expected());
            }
            let group = artifact.artifact.name.prefix();
            if kpack.group_name != group && !artifact.packaged {
                let what = format!("is an archive of `{}`", kpack.group_name);
                add(Check::KpackName, path, what, format!("one of `{group}`"));
            }
            let name = String::from_utf8_lossy(path.file_name()).into_owned();
            let isas: Vec<_> = kpack.gfx_arches.iter().map(ToString::to_string).collect();
            let good = name.starts_with(&kpack.group_name)
                && isas.iter().any(|isa| name.ends_with(&format!("_{isa}.kpack")));
            if !good {
                let what = format!(
                    "is called so, but holds `{}` for {}",
                    kpack.group_name,
                    isas.join(", ")
                );
                let expected =
                    isas.iter().map(|isa| format!("`{}…_{isa}.kpack`", kpack.group_name));
                add(Check::KpackName, path, what, expected.collect::<Vec<_>>().join(" or "));
            }
        }
        for (path, owner) in &artifact.owners {
            if !artifact.holds.allows_owner(owner) {
                let what = format!("is a database file for {}", owner.target());
                add(Check::IsaMixed, path, what, artifact.holds.expected());
            }
            if let (Owner::Isa(isa), Some(Facts::Program(program))) =
                (owner, artifact.facts.get(path))
            {
                let fits = program.isas.iter().any(|found| found.processor() == isa.processor());
                if !program.isas.is_empty() && !fits {
                    let isas: Vec<_> = program.isas.iter().map(ToString::to_string).collect();
                    let what = format!("has code for {}", isas.join(", "));
                    add(
                        Check::DatabaseIsa,
                        path,
                        what,
                        format!("code for {isa}, as its name says"),
                    );
                }
            }
        }
    }
    twice(checked, findings);
}

/// ISAs that two trees of one component have files for.
fn twice(checked: &[Checked], findings: &mut Vec<Finding>) {
    let mut trees: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
    for artifact in checked.iter().filter(|checked| !matches!(checked.holds, Holds::Generic)) {
        let component = artifact.artifact.name.prefix();
        let kpacks = artifact.facts.values().filter_map(|facts| match facts {
            Facts::Kpack(Some(kpack)) => Some(kpack),
            _ => None,
        });
        // What a tree must not hold at all has been said already.
        let of_kpacks = kpacks
            .flat_map(|kpack| &kpack.gfx_arches)
            .filter(|isa| artifact.holds.allows(isa))
            .map(ToString::to_string);
        let of_files = artifact.owners.values().filter(|owner| artifact.holds.allows_owner(owner));
        for isa in of_kpacks.chain(of_files.map(Owner::target)) {
            trees.entry((component.clone(), isa)).or_default().insert(&artifact.label);
        }
    }
    for ((component, isa), trees) in trees.into_iter().filter(|(_, trees)| trees.len() > 1) {
        let trees: Vec<_> = trees.into_iter().collect();
        findings.push(Finding::new(
            Check::IsaTwice,
            trees[0],
            "",
            format!("files of `{component}` for {isa} are in {}", trees.join(" and ")),
            "all files of an ISA in one tree",
        ));
    }
}
