//! Invariant 2: host code. What the loader needs, no device code left, a marker that can be read.

use std::collections::BTreeSet;
use std::ops::Range;

use super::file::Task;
use super::finding::{Check, Findings, chain};
use super::subject::Holds;
use crate::elf::{self, Dynamic, Image, State, image::HIP_FATBIN_SEGMENT};
use crate::fatbin::FatBinary;
use crate::fatbin::wrapper::{self, Magic};
use crate::kpack::marker::{Marker, ParsedMarker};
use crate::read_at::{ReadAt, read_vec};
use crate::target::TargetId;

const SHT_NOBITS: u32 = 8;

/// What is known of a program or library.
#[derive(Debug)]
pub(super) struct ProgramFacts {
    /// The libraries that it needs.
    pub needed: Vec<String>,
    /// Where the loader looks for them first: `DT_RUNPATH`, or `DT_RPATH` where there is none.
    pub search: Option<String>,
    /// Its own name as a library.
    pub soname: Option<String>,
    /// Whether it asks for a program interpreter, so that it is run rather than loaded.
    pub interpreted: bool,
    /// Of a converted file with a marker that can be read.
    pub kpack: Option<KpackUse>,
    /// The ISAs in the bundles of a fat one.
    pub isas: BTreeSet<TargetId>,
}

/// How a converted file asks for its kernels.
#[derive(Debug)]
pub(super) struct KpackUse {
    pub marker: ParsedMarker,
    /// The indexes in its wrappers.
    pub co_indexes: BTreeSet<u32>,
}

/// Looks at a program or shared library.
pub(super) fn program(
    r: &dyn ReadAt,
    image: Image,
    task: &Task,
    findings: &mut Findings,
) -> ProgramFacts {
    const PT_INTERP: u32 = 3;
    let state = image.state();
    let dynamic = Dynamic::read(r, &image).unwrap_or_default();
    let mut facts = ProgramFacts {
        needed: dynamic.needed,
        search: dynamic.runpath.or(dynamic.rpath),
        soname: dynamic.soname,
        interpreted: image.segments.iter().any(|segment| segment.p_type == PT_INTERP),
        kpack: None,
        isas: BTreeSet::new(),
    };
    if !task.debug && !is_debug_file(&image) {
        for problem in elf::problems(r, &image) {
            findings.add(
                check_of(state),
                chain(&problem),
                "a file as the loader and the runtime take it",
            );
        }
        tables(r, &image, check_of(state), findings);
    }
    match state {
        State::NoSections => findings.add(
            Check::NotChecked,
            "has no section headers, so that device code in it cannot be seen",
            "section headers",
        ),
        State::Plain => left_wrappers(r, &image, findings),
        State::Converted => facts.kpack = kpack_use(r, &image, findings),
        State::Fat => fat(r, image, task, &mut facts, findings),
    }
    facts
}

fn check_of(state: State) -> Check {
    if state == State::Converted { Check::ConversionBroken } else { Check::HostDamaged }
}

/// The dynamic section leads to the tables that the section headers know, and DT_RELACOUNT counts no
/// more than the relative relocations that stand first: the loader does not look at their types.
fn tables(r: &dyn ReadAt, image: &Image, check: Check, findings: &mut Findings) {
    const DT_HASH: u64 = 4;
    const DT_SYMTAB: u64 = 6;
    const DT_GNU_HASH: u64 = 0x6fff_fef5;
    const DT_RELACOUNT: u64 = 0x6fff_fff9;
    const R_X86_64_RELATIVE: u32 = 8;
    let Ok(dynamic) = Dynamic::read_entries(r, image) else { return };
    for (tag, field, name) in [
        (DT_HASH, "DT_HASH", ".hash"),
        (DT_SYMTAB, "DT_SYMTAB", ".dynsym"),
        (DT_GNU_HASH, "DT_GNU_HASH", ".gnu.hash"),
    ] {
        if let (Some(value), Some(section)) = (dynamic.get(tag), image.section(name))
            && value != section.sh_addr
        {
            let expected = format!("{:#x}, the address of {name}", section.sh_addr);
            findings.add(check, format!("{field} is {value:#x}"), expected);
        }
    }
    if let (Some(count), Some(section)) = (dynamic.get(DT_RELACOUNT), image.section(".rela.dyn")) {
        // At most the section's bytes are read, whatever the count claims.
        let relative = leading(r, section.file_range(), count, R_X86_64_RELATIVE);
        if relative < count {
            let expected = format!("at most {relative}, the relative relocations that stand first");
            findings.add(check, format!("DT_RELACOUNT is {count}"), expected);
        }
    }
}

/// How many relocations of one type, up to `most`, a table begins with.
fn leading(r: &dyn ReadAt, table: Range<u64>, most: u64, kind: u32) -> u64 {
    const ENTRY: u64 = 24;
    let entries = most.min((table.end - table.start) / ENTRY);
    let mut seen = 0;
    while seen < entries {
        let n = (entries - seen).min(2048);
        let Ok(bytes) = read_vec(r, table.start + seen * ENTRY, n * ENTRY) else { break };
        // r_info at 8: the type is its low half.
        let same = |entry: &&[u8]| entry[8..12] == kind.to_le_bytes();
        let run = bytes.chunks_exact(24).take_while(same).count() as u64;
        seen += run;
        if run < n {
            break;
        }
    }
    seen
}

/// A file that holds the debug information of another has its headers and not its bytes.
fn is_debug_file(image: &Image) -> bool {
    let code = |name: &str| name == ".text" || name == ".init";
    image.sections.iter().any(|section| code(&section.name) && section.sh_type == SHT_NOBITS)
}

fn fat(
    r: &dyn ReadAt,
    image: Image,
    task: &Task,
    facts: &mut ProgramFacts,
    findings: &mut Findings,
) {
    match FatBinary::read(r, image) {
        Err(e) => findings.add(
            Check::FatBinaryLeft,
            format!("has device code that cannot be taken apart: {}", chain(&e)),
            "no device code, or whole bundles",
        ),
        Ok(fat) => {
            for (_, bundle) in fat.wrappers() {
                let code = bundle.device_entries().filter(|(_, entry)| entry.size > 0);
                facts.isas.extend(code.map(|(isa, _)| isa.clone()));
            }
            // A section that no wrapper points into is not what a program runs: it stays.
            let wrappers = fat.wrappers().count();
            if wrappers > 0 && matches!(task.holds, Holds::Generic) {
                let isas: Vec<_> = facts.isas.iter().map(ToString::to_string).collect();
                findings.add(
                    Check::FatBinaryLeft,
                    format!("still has device code: {wrappers} wrappers, for {}", isas.join(", ")),
                    "the device code in a kpack, and a marker in its place",
                );
            }
        }
    }
}

/// Wrappers of a converted file whose marker is gone.
fn left_wrappers(r: &dyn ReadAt, image: &Image, findings: &mut Findings) {
    if image.section(HIP_FATBIN_SEGMENT).is_none() {
        return;
    }
    if let Ok(wrappers) = wrapper::read(r, image)
        && wrappers.iter().any(|wrapper| wrapper.magic == Magic::Hipk)
    {
        findings.add(
            Check::ConversionBroken,
            "has HIPK wrappers but no .rocm_kpack_ref section",
            "the marker that the wrappers point at",
        );
    }
}

fn kpack_use(r: &dyn ReadAt, image: &Image, findings: &mut Findings) -> Option<KpackUse> {
    let expected = "a MessagePack map of kpack_search_paths and kernel_name";
    let mut bad = |e: &dyn std::error::Error| {
        findings.add(Check::Marker, format!("its marker cannot be read: {}", chain(e)), expected);
    };
    let bytes = elf::marker(r, image).inspect_err(|e| bad(e)).ok()?.bytes;
    let marker = Marker::parse(&bytes).inspect_err(|e| bad(e)).ok()?;
    if matches!(marker, ParsedMarker::Text(_)) {
        findings.add(Check::MarkerText, "its marker is plain text", expected);
    }
    // That all wrappers can be read is known from reading the marker through the first.
    let wrappers = wrapper::read(r, image).unwrap_or_default();
    let co_indexes = wrappers.iter().map(|wrapper| wrapper.co_index).collect();
    Some(KpackUse { marker, co_indexes })
}
