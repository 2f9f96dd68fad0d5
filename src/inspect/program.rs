//! The report of a host program or shared library.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;

use serde::Serialize;

use super::code::{self, BundleReport};
use crate::elf::image::{ET_EXEC, PT_INTERP};
use crate::elf::{self, Dynamic, Image, Needs, State};
use crate::fatbin::FatBinary;
use crate::fatbin::wrapper::{self, Magic};
use crate::kpack::marker::{Marker, ParsedMarker};
use crate::package::elfdeps::{self, Distro};
use crate::read_at::ReadAt;

/// A program or shared library.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ProgramReport {
    /// `shared library`, `position-independent executable` or `executable`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `plain`, `fat`, `converted` or `no section headers`.
    pub state: &'static str,
    /// Its own name.
    pub soname: Option<String>,
    /// The libraries that it needs, in order.
    pub needed: Vec<String>,
    /// Where it looks for them, as it is written.
    pub rpath: Option<String>,
    /// The same, in the newer tag.
    pub runpath: Option<String>,
    /// What packages that hold it have relations from.
    pub relations: Relations,
    /// What it registers with the runtime, in order.
    pub wrappers: Vec<WrapperReport>,
    /// The bundles that the wrappers point at, by place.
    pub bundles: Vec<BundleReport>,
    /// Code objects and their bytes by ISA; one that several wrappers share counts once.
    pub isas: BTreeMap<String, IsaReport>,
    /// Where the kernels of a converted file are.
    pub marker: Option<MarkerReport>,
    /// What is wrong with the file.
    pub problems: Vec<String>,
}

/// The relations that follow from what a program asks of the loader, where nothing else is in the set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Relations {
    /// What an `.rpm` with it provides.
    pub rpm_provides: Vec<String>,
    /// What an `.rpm` with it requires.
    pub rpm_requires: Vec<String>,
    /// What a `.deb` with it depends on, by distribution.
    pub deb_depends: BTreeMap<&'static str, DebDepends>,
}

/// What a `.deb` for one distribution depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DebDepends {
    /// Relations to packages of the distribution.
    pub depends: Vec<String>,
    /// The libraries that the distribution does not have, or not in the versions that are needed.
    pub unknown: Vec<String>,
}

/// What there is for one ISA.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IsaReport {
    /// How many code objects.
    pub code_objects: u64,
    /// Their bytes before compression.
    pub bytes: u64,
}

/// An entry of `.hipFatBinSegment`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrapperReport {
    /// Its place.
    pub index: u32,
    /// `HIPF` or `HIPK`.
    pub magic: &'static str,
    /// Address of the bundle or marker.
    pub address: u64,
    /// Where the bundle is in the file.
    pub bundle_offset: Option<u64>,
    /// Code-object index of a converted file.
    pub co_index: Option<u32>,
}

/// A marker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MarkerReport {
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// `msgpack` or `text`.
    pub form: &'static str,
    /// The file's name in the archives; text has none.
    pub kernel_name: Option<String>,
    /// Where the archives are, relative to the file's own folder once installed.
    pub search_paths: Vec<String>,
}

/// Looks at a program. What is damaged is told in the report, beside what is not. `file_name` is its name.
pub(super) fn report(r: &dyn ReadAt, image: &Image, file_name: &str) -> ProgramReport {
    let interpreted = image.segments.iter().any(|segment| segment.p_type == PT_INTERP);
    let mut report = ProgramReport {
        kind: match image.e_type {
            ET_EXEC => "executable",
            _ if interpreted => "position-independent executable",
            _ => "shared library",
        },
        state: match image.state() {
            State::NoSections => "no section headers",
            State::Plain => "plain",
            State::Fat => "fat",
            State::Converted => "converted",
        },
        ..ProgramReport::default()
    };
    let mut problems: Vec<String> = elf::problems(r, image).iter().map(chain).collect();
    if let Ok(dynamic) = Dynamic::read(r, image) {
        report.soname = dynamic.soname;
        report.needed = dynamic.needed;
        report.rpath = dynamic.rpath;
        report.runpath = dynamic.runpath;
    }
    match Needs::read(r, image) {
        Ok(needs) => report.relations = relations(&needs, file_name),
        Err(e) => problems.push(chain(&e)),
    }
    match image.state() {
        State::Converted => converted(r, image, &mut report, &mut problems),
        State::Fat => fat(r, image, &mut report, &mut problems),
        State::NoSections | State::Plain => {}
    }
    let mut seen = BTreeSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    report.problems = problems;
    report
}

fn relations(needs: &Needs, file_name: &str) -> Relations {
    let deb = |distro: Distro| {
        let mut relations = elfdeps::DebDepends::default();
        let mut unknown = Vec::new();
        for soname in &needs.needed {
            match distro.table().relate(soname, needs, &mut relations) {
                Some(missing) => {
                    unknown.extend(missing.iter().map(|version| format!("{soname} ({version})")));
                }
                None => unknown.push(soname.clone()),
            }
        }
        (distro.as_str(), DebDepends { depends: relations.list(), unknown })
    };
    Relations {
        rpm_provides: elfdeps::rpm::provides(needs, file_name).into_iter().collect(),
        rpm_requires: elfdeps::rpm::requires(needs, true).into_iter().collect(),
        deb_depends: Distro::ALL.into_iter().map(deb).collect(),
    }
}

fn wrappers(list: &[(&wrapper::Wrapper, Option<u64>)]) -> Vec<WrapperReport> {
    let report = |(wrapper, bundle_offset): &(&wrapper::Wrapper, Option<u64>)| {
        let converted = wrapper.magic == Magic::Hipk;
        WrapperReport {
            index: wrapper.index,
            magic: if converted { "HIPK" } else { "HIPF" },
            address: wrapper.address(),
            bundle_offset: *bundle_offset,
            co_index: converted.then_some(wrapper.co_index),
        }
    };
    list.iter().map(report).collect()
}

fn fat(r: &dyn ReadAt, image: &Image, report: &mut ProgramReport, problems: &mut Vec<String>) {
    let fat = match FatBinary::read(r, image.clone()) {
        Ok(fat) => fat,
        Err(e) => {
            problems.push(chain(&e));
            // The wrappers alone may be good.
            if let Ok(list) = wrapper::read(r, image) {
                report.wrappers = wrappers(&list.iter().map(|w| (w, None)).collect::<Vec<_>>());
            }
            return;
        }
    };
    let list: Vec<_> = fat.wrappers().map(|(w, bundle)| (w, Some(bundle.offset))).collect();
    report.wrappers = wrappers(&list);
    for bundle in fat.bundles().values() {
        for (target, entry) in bundle.device_entries().filter(|(_, entry)| entry.size > 0) {
            let isa = report.isas.entry(target.to_string()).or_default();
            isa.code_objects += 1;
            isa.bytes = isa.bytes.saturating_add(entry.size);
        }
        report.bundles.push(code::bundle(bundle));
    }
}

fn converted(
    r: &dyn ReadAt,
    image: &Image,
    report: &mut ProgramReport,
    problems: &mut Vec<String>,
) {
    if let Ok(list) = wrapper::read(r, image) {
        report.wrappers = wrappers(&list.iter().map(|w| (w, None)).collect::<Vec<_>>());
    }
    let marker = match elf::marker(r, image) {
        Ok(marker) => marker,
        Err(e) => return problems.push(chain(&e)),
    };
    let (form, kernel_name, search_paths) = match Marker::parse(&marker.bytes) {
        Ok(ParsedMarker::Map(map)) => ("msgpack", Some(map.kernel_name), map.kpack_search_paths),
        Ok(ParsedMarker::Text(paths)) => ("text", None, paths),
        Err(e) => return problems.push(chain(&e)),
    };
    let (address, size) = (marker.vaddr, marker.bytes.len() as u64);
    report.marker = Some(MarkerReport { address, size, form, kernel_name, search_paths });
}

/// An error with its causes on one line.
fn chain(error: &impl StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}
