//! `gfxpack inspect`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use gfxpack::error::{Error, Result};
use gfxpack::fatbin::code_object::Kernel;
use gfxpack::inspect::{
    BundleReport, Change, CodeObjectReport, Content, Difference, FileChange, FileReport,
    Inspection, KpackReport, PackageReport, ProgramReport, Relations, Script, diff, inspect,
};
use gfxpack::kpack::kpm::Kpm;

use super::count;
use crate::args::Inspect;
use crate::output::Ui;
use crate::table::{Table, fields, printable, size};

/// Rows of a list that are shown without `--verbose`.
const SHOWN: usize = 20;

pub fn run(args: &Inspect, ui: &Ui) -> Result<ExitCode> {
    if let Some([a, b]) = args.diff.as_deref() {
        let difference = diff(a, b)?;
        ui.result(&difference, || difference_text(&difference, ui.is_verbose()));
    } else {
        let file = args.file.as_ref().ok_or_else(|| Error::usage("no file is named"))?;
        let inspection = inspect(file)?;
        ui.result(&inspection, || text(&inspection, ui.is_verbose()));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(inspection: &Inspection, full: bool) -> String {
    let (kind, body) = match &inspection.content {
        Content::Kpack(report) => ("kpack archive", kpack(report, full)),
        Content::Kpm(kpm) => ("kpack manifest", manifest(kpm)),
        Content::Program(report) => (report.kind, program(report, full)),
        Content::Object { fat } => {
            let what = if *fat { "device code: yes\n" } else { "device code: none\n" };
            ("object file", what.to_owned())
        }
        Content::Bundle(report) => ("offload bundle", bundles(&report.bundles, full)),
        Content::CodeObject(report) => ("code object", code_object(report, full)),
        Content::Deb(report) => ("Debian package", package(report, full)),
        Content::Rpm(report) => ("RPM package", package(report, full)),
        Content::ArtifactManifest { prefixes } => {
            ("artifact manifest", lines("prefixes", prefixes.iter().cloned(), true))
        }
    };
    let path = inspection.path.display().to_string();
    let body = body.trim_start_matches('\n');
    format!("{}: {kind}, {} bytes\n\n{body}", printable(&path), inspection.size)
}

/// A table with a heading above, and how many rows were left out below.
fn section(heading: &str, all: usize, table: &Table, full: bool) -> String {
    if table.is_empty() {
        return String::new();
    }
    let left = if full { 0 } else { all.saturating_sub(SHOWN) };
    let more = if left > 0 { format!("  and {left} more (--verbose)\n") } else { String::new() };
    format!("\n{heading}:\n{}{more}", table.render(2, full))
}

fn shown(full: bool) -> usize {
    if full { usize::MAX } else { SHOWN }
}

/// A heading, and a line for each item.
fn lines(heading: &str, items: impl Iterator<Item = String>, full: bool) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{heading}:\n");
    for item in items.iter().take(shown(full)) {
        let _ = writeln!(text, "  {}", printable(item));
    }
    if items.len() > shown(full) {
        let _ = writeln!(text, "  and {} more (--verbose)", items.len() - SHOWN);
    }
    text
}

fn kpack(report: &KpackReport, full: bool) -> String {
    let ratio = report.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut text = fields(
        [
            ("group", report.group_name.clone()),
            ("family", report.gfx_arch_family.clone()),
            ("ISAs", report.gfx_arches.join(" ")),
            ("compression", report.compression.to_owned()),
            ("entries", report.entries.to_string()),
            ("code objects", report.unique_code_objects.to_string()),
            ("original", format!("{} ({})", report.original_bytes, size(report.original_bytes))),
            ("stored", format!("{} ({})", report.stored_bytes, size(report.stored_bytes))),
            ("ratio", ratio),
        ],
        full,
    );
    let mut table = Table::new(&[">original", ">stored", ">ordinal", "ISA", "kernel"]);
    for kernel in report.kernels.iter().take(shown(full)) {
        table.row([
            kernel.original_size.to_string(),
            kernel.stored_size.to_string(),
            kernel.ordinal.to_string(),
            kernel.isa.clone(),
            kernel.name.clone(),
        ]);
    }
    text += &section("kernels by size", report.kernels.len(), &table, full);
    text
}

fn manifest(kpm: &Kpm) -> String {
    let mut text =
        fields([("component", kpm.component_name.clone()), ("prefix", kpm.prefix.clone())], true);
    let mut table = Table::new(&["ISA", ">kernels", ">bytes", "file"]);
    for (isa, file) in &kpm.kpack_files {
        table.row([
            isa.to_string(),
            file.kernel_count.to_string(),
            file.size.to_string(),
            file.file.clone(),
        ]);
    }
    text += &section("archives", 0, &table, true);
    text
}

fn program(report: &ProgramReport, full: bool) -> String {
    let optional = |name, value: &Option<String>| value.clone().map(|value| (name, value));
    let mut pairs = vec![("device code", report.state.to_owned())];
    pairs.extend(optional("SONAME", &report.soname));
    pairs.extend((!report.needed.is_empty()).then(|| ("NEEDED", report.needed.join(" "))));
    pairs.extend(optional("RPATH", &report.rpath));
    pairs.extend(optional("RUNPATH", &report.runpath));
    let mut text = fields(pairs, full);
    if let Some(marker) = &report.marker {
        let name = marker.kernel_name.clone().unwrap_or_else(|| "- (text has none)".to_owned());
        let place = format!("{} bytes at {:#x}, {}", marker.size, marker.address, marker.form);
        text.push('\n');
        text += &fields(
            [
                ("marker", place),
                ("kernel name", name),
                ("search paths", marker.search_paths.join("\n")),
            ],
            full,
        );
    }
    let mut table = Table::new(&["ISA", ">code objects", ">bytes"]);
    for (isa, there) in &report.isas {
        table.row([isa.clone(), there.code_objects.to_string(), size(there.bytes)]);
    }
    text += &section("code", 0, &table, true);
    let mut table = Table::new(&[">wrapper", "magic", ">address", ">bundle at", ">co_index"]);
    for wrapper in report.wrappers.iter().take(shown(full)) {
        let bundle = wrapper.bundle_offset.map_or_else(|| "-".into(), |at| format!("{at:#x}"));
        table.row([
            wrapper.index.to_string(),
            wrapper.magic.to_owned(),
            format!("{:#x}", wrapper.address),
            bundle,
            wrapper.co_index.map_or_else(|| "-".into(), |index| index.to_string()),
        ]);
    }
    text += &section("wrappers", report.wrappers.len(), &table, full);
    if !report.bundles.is_empty() {
        text += &bundles(&report.bundles, full);
    }
    text += &relations(&report.relations, full);
    text += &lines("problems", report.problems.iter().cloned(), full);
    text
}

/// What packages with the file have relations from.
fn relations(report: &Relations, full: bool) -> String {
    let mut text = lines("rpm provides", report.rpm_provides.iter().cloned(), full);
    text += &lines("rpm requires", report.rpm_requires.iter().cloned(), full);
    for (distro, deb) in &report.deb_depends {
        let depends = deb.depends.iter().cloned();
        let unknown = deb.unknown.iter().map(|soname| format!("not in {distro}: {soname}"));
        text += &lines(&format!("deb depends, {distro}"), depends.chain(unknown), full);
    }
    text
}

fn bundles(list: &[BundleReport], full: bool) -> String {
    let mut table = Table::new(&[">bundle at", ">stored", "form", ">entry at", ">bytes", "entry"]);
    let mut all = 0;
    for bundle in list {
        for (i, entry) in bundle.entries.iter().enumerate() {
            all += 1;
            if all > shown(full) {
                continue;
            }
            // The bundle stands before its first entry only.
            let first = |text: String| if i == 0 { text } else { String::new() };
            table.row([
                first(format!("{:#x}", bundle.offset)),
                first(bundle.stored_size.to_string()),
                first(bundle.form.clone()),
                format!("{:#x}", entry.offset),
                entry.size.to_string(),
                entry.id.clone(),
            ]);
        }
    }
    section(&count(list.len(), "bundle"), all, &table, full)
}

fn code_object(report: &CodeObjectReport, full: bool) -> String {
    let mut pairs = vec![
        ("ISA", report.isa.clone().unwrap_or_else(|| "unknown".to_owned())),
        ("e_flags", report.e_flags.clone()),
        ("version", format!("code object V{}", report.version)),
    ];
    pairs.extend(report.generic_version.map(|version| ("generic version", version.to_string())));
    pairs.extend(report.metadata_target.clone().map(|target| ("metadata target", target)));
    let kernels = report.kernels.as_ref();
    let known = kernels.map_or_else(|| "no metadata".to_owned(), |list| list.len().to_string());
    pairs.push(("kernels", known));
    let mut text = fields(pairs, full);
    let mut table =
        Table::new(&[">VGPR", ">AGPR", ">SGPR", ">spills", ">LDS", ">scratch", ">args", "kernel"]);
    for kernel in kernels.into_iter().flatten().take(shown(full)) {
        table.row(kernel_row(kernel));
    }
    text += &section("kernels", kernels.map_or(0, Vec::len), &table, full);
    text
}

fn kernel_row(kernel: &Kernel) -> [String; 8] {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let spills = match (kernel.vgpr_spill_count, kernel.sgpr_spill_count) {
        (None, None) => None,
        (vector, scalar) => Some(vector.unwrap_or(0).saturating_add(scalar.unwrap_or(0))),
    };
    [
        number(kernel.vgpr_count),
        number(kernel.agpr_count),
        number(kernel.sgpr_count),
        number(spills),
        number(kernel.group_segment_fixed_size),
        number(kernel.private_segment_fixed_size),
        number(kernel.kernarg_segment_size),
        kernel.name.clone(),
    ]
}

fn package(report: &PackageReport, full: bool) -> String {
    // Lines that go on are marked by a blank in a control file.
    let pairs =
        report.fields.iter().map(|(name, value)| (name.as_str(), value.replace("\n ", "\n")));
    let mut text = fields(pairs, full);
    for (kind, items) in &report.relations {
        text += &lines(kind, items.iter().cloned(), full);
    }
    let mut table = Table::new(&[">bytes", "script", "run by"]);
    for script in &report.scripts {
        let by = script.interpreter.clone().unwrap_or_else(|| "-".to_owned());
        table.row([script.size.to_string(), script.name.clone(), by]);
    }
    text += &section("scripts", 0, &table, true);
    if full {
        text += &script_texts(&report.scripts);
    }
    let mut table = Table::new(&[">bytes", "control file"]);
    for file in &report.control_files {
        table.row([file.size.to_string(), file.name.clone()]);
    }
    text += &section("other control files", 0, &table, true);
    if full {
        text += &script_texts(&report.control_files);
    }
    let mut table = Table::new(&["mode", "owner", ">bytes", "digest", "file"]);
    for file in report.files.iter().take(shown(full)) {
        table.row(file_row(file, full));
    }
    let heading =
        format!("{}, {}", count(report.files.len(), "file"), size(report.installed_bytes));
    text += &section(&heading, report.files.len(), &table, full);
    let mut table = Table::new(&[">offset", ">bytes", ">unpacked", "compression", "part"]);
    for member in &report.members {
        table.row([
            member.offset.to_string(),
            member.size.to_string(),
            member.unpacked.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
            member.compression.clone().unwrap_or_else(|| "-".to_owned()),
            member.name.clone(),
        ]);
    }
    text += &section("parts of the package", 0, &table, true);
    if !report.digests.is_empty() {
        let pairs = report.digests.iter().map(|(name, value)| (name.as_str(), value.clone()));
        text += &format!("\n{}", fields(pairs, true));
    }
    text += &lines("signatures (not checked)", report.signatures.iter().cloned(), true);
    text += &lines("problems", report.problems.iter().cloned(), true);
    text
}

fn script_texts(scripts: &[Script]) -> String {
    let mut text = String::new();
    for script in scripts {
        let _ = writeln!(text, "\n  {}:", printable(&script.name));
        for line in script.text.lines() {
            let _ = writeln!(text, "  | {}", printable(line));
        }
    }
    text
}

fn file_row(file: &FileReport, full: bool) -> [String; 5] {
    let letter = match file.kind {
        "directory" => 'd',
        "symlink" => 'l',
        "hard link" => 'h',
        "device" => 'b',
        "fifo" => 'p',
        "socket" => 's',
        _ => '-',
    };
    let link = file.link.as_ref().map(|link| format!(" -> {link}")).unwrap_or_default();
    let flags = match file.flags.join(",") {
        flags if flags.is_empty() => flags,
        flags => format!(" [{flags}]"),
    };
    let digest = file.digest.as_deref().unwrap_or("-");
    // Enough to tell files apart; all of it with --verbose and in JSON.
    let digest = if full { digest } else { digest.get(..8).unwrap_or(digest) };
    [
        format!("{letter}{}", file.mode),
        file.owner.clone(),
        file.size.to_string(),
        digest.to_owned(),
        format!("{}{link}{flags}", file.path),
    ]
}

fn difference_text(difference: &Difference, full: bool) -> String {
    let (a, b) = (difference.a.display(), difference.b.display());
    if difference.same {
        return format!("{a} and {b} ({}): the same\n", difference.kind);
    }
    let mut text = format!("--- {a}\n+++ {b}\n");
    for field in &difference.fields {
        let _ = writeln!(text, "\n{}:", printable(&field.name));
        line_changes(&mut text, field);
    }
    for relation in &difference.relations {
        let _ = writeln!(text, "\n{}:", printable(&relation.name));
        for (sign, items) in [('-', &relation.removed), ('+', &relation.added)] {
            for item in items {
                let _ = writeln!(text, "  {sign} {}", printable(item));
            }
        }
    }
    for script in &difference.scripts {
        let _ = writeln!(text, "\n{}:", printable(&script.name));
        line_changes(&mut text, script);
    }
    if !difference.files.is_empty() {
        let _ = writeln!(text, "\n{}:", count(difference.files.len(), "changed file"));
        for file in difference.files.iter().take(shown(full)) {
            let _ = writeln!(text, "  {}", file_change(file));
        }
        let left = difference.files.len().saturating_sub(shown(full));
        if left > 0 {
            let _ = writeln!(text, "  and {left} more (--verbose)");
        }
    }
    text
}

/// Lines that only one of two texts has, counted: where they stand is not told.
fn line_changes(text: &mut String, change: &Change) {
    let lines = |text: &Option<String>| -> Vec<String> {
        text.iter().flat_map(|text| text.lines()).map(str::to_owned).collect()
    };
    let (a, b) = (lines(&change.a), lines(&change.b));
    let mut surplus: BTreeMap<&str, i64> = BTreeMap::new();
    a.iter().for_each(|line| *surplus.entry(line).or_default() += 1);
    b.iter().for_each(|line| *surplus.entry(line).or_default() -= 1);
    let mut any = false;
    for (sign, step, lines) in [('-', 1, &a), ('+', -1, &b)] {
        for line in lines {
            let left = surplus.entry(line).or_default();
            if *left * step > 0 {
                *left -= step;
                any = true;
                let _ = writeln!(text, "  {sign} {}", printable(line));
            }
        }
    }
    if !any {
        text.push_str("  the same lines in another order, or other line ends\n");
    }
}

fn file_change(file: &FileChange) -> String {
    let sign = match file.change {
        "added" => '+',
        "removed" => '-',
        _ => '~',
    };
    let value = |value: &Option<String>| match value {
        None => "-".to_owned(),
        Some(text) => one_line(text.get(..12).filter(|_| text.len() > 24).unwrap_or(text)),
    };
    let what: Vec<_> = file
        .what
        .iter()
        .map(|change| format!("{} {} → {}", change.name, value(&change.a), value(&change.b)))
        .collect();
    let what = if what.is_empty() { String::new() } else { format!("  ({})", what.join(", ")) };
    format!("{sign} {}{what}", printable(&file.path))
}

fn one_line(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let dots = if text.lines().count() > 1 { " …" } else { "" };
    format!("{}{dots}", printable(first))
}
