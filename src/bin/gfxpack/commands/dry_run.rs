//! What `--dry-run` prints: the packages that would be made, as a tree or as JSON.

use std::collections::BTreeMap;

use gfxpack::package::spec::{Kind, Package, Relation};
use gfxpack::package::{Format, file_name};
use gfxpack::tree::list::{self, Item};
use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::count;
use crate::table::printable;

/// As many files of a directory are named, more are counted.
const NAMED: usize = 8;

/// Content of a package, and its size.
struct Content {
    items: Vec<Item>,
    files: usize,
    bytes: u64,
    /// Whether some of `bytes` is an estimate.
    estimated: bool,
}

impl Content {
    fn new(package: &Package) -> Self {
        let items = list::items(&package.tree);
        let files = items.iter().filter(|item| item.kind != "directory").count();
        let bytes = items.iter().map(bytes).sum();
        let estimated = items.iter().any(|item| item.estimated_size.is_some());
        Self { items, files, bytes, estimated }
    }
}

/// Bytes of an item, an estimate where they are not known yet. A second name has none of its own.
fn bytes(item: &Item) -> u64 {
    match item.kind {
        "hard link" => 0,
        _ => item.size.or(item.estimated_size).unwrap_or(0),
    }
}

/// `28 MiB`, or `about 28 MiB`.
fn size(bytes: u64, estimated: bool) -> String {
    format!("{}{}", if estimated { "about " } else { "" }, HumanBytes(bytes))
}

/// All of it as text. `report` is what planning found; all files are named where `full` is set.
pub fn text(packages: &[Package], formats: &[Format], report: &Value, full: bool) -> String {
    let mut text = String::new();
    let (mut files, mut bytes, mut estimated) = (0, 0, false);
    for package in packages {
        let content = Content::new(package);
        text += &package_text(package, &content, formats, full);
        files += content.files;
        bytes += content.bytes;
        estimated |= content.estimated;
    }
    let left_out = left_out(report);
    if !left_out.is_empty() {
        text += &format!("left out\n{}", branches(&left_out_text(&left_out, full)));
    }
    let packages = count(packages.len(), "package");
    let files = count(files, "file");
    text + &format!("{packages}, {files}, {} installed\n", size(bytes, estimated))
}

fn package_text(package: &Package, content: &Content, formats: &[Format], full: bool) -> String {
    let code = match package.gpu_targets.as_slice() {
        [] => String::new(),
        isas => format!(", code for {}", isas.join(" ")),
    };
    let what = match &package.kind {
        Kind::Group { group } => format!("group {group}"),
        kind => kind.as_str().to_owned(),
    };
    let version = package.full_version();
    let name = &package.name;
    let size = size(content.bytes, content.estimated);
    let files = count(content.files, "file");
    let head = format!("{name} {version} ({what}{code}): {files}, {size} installed\n");
    let mut lines: Vec<String> = formats.iter().map(|format| file_name(package, *format)).collect();
    for (kind, relations) in package.relations.iter().filter(|(_, all)| !all.is_empty()) {
        let all: Vec<String> = relations.iter().map(Relation::to_string).collect();
        lines.push(format!("{}: {}", kind.rpm_tag(), all.join(", ")));
    }
    for (format, own) in own_relations(package, formats) {
        for (kind, relations) in own.iter().filter(|(_, all)| !all.is_empty()) {
            lines.push(format!("{format} {kind}: {}", relations.join(", ")));
        }
    }
    lines.extend(content_text(&content.items, full));
    head + &branches(&lines)
}

/// A line for each file and link, or for a directory with many.
fn content_text(items: &[Item], full: bool) -> Vec<String> {
    let mut dirs: BTreeMap<&str, Vec<&Item>> = BTreeMap::new();
    for item in items.iter().filter(|item| item.kind != "directory") {
        let dir = item.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        dirs.entry(dir).or_default().push(item);
    }
    let mut lines = Vec::new();
    for (dir, items) in dirs {
        if full || items.len() <= NAMED {
            lines.extend(items.into_iter().map(line));
            continue;
        }
        let all = items.iter().map(|item| bytes(item)).sum();
        let estimated = items.iter().any(|item| item.estimated_size.is_some());
        let files = count(items.len(), "file");
        let dir = printable(dir);
        lines.push(format!("/{dir}/: {files}, {} (--verbose names them)", size(all, estimated)));
    }
    lines
}

fn line(item: &Item) -> String {
    let path = printable(&item.path);
    let size = size(bytes(item), item.estimated_size.is_some());
    match (item.kind, &item.target) {
        (_, Some(target)) => format!("/{path} -> {} ({})", printable(target), item.kind),
        ("kpack", None) => {
            let code = HumanBytes(item.code_bytes.unwrap_or(0));
            format!("/{path}: {size} (kpack of {code} of code)")
        }
        ("file", None) if item.size.is_none() => format!("/{path} (manifest of kpacks)"),
        ("file", None) => format!("/{path}: {size}"),
        (kind, None) => format!("/{path}: {size} ({kind})"),
    }
}

fn branches(lines: &[String]) -> String {
    let last = lines.len().saturating_sub(1);
    let branch = |i: usize| if i == last { "└─" } else { "├─" };
    lines.iter().enumerate().map(|(i, line)| format!("{} {line}\n", branch(i))).collect()
}

/// What of the input is in no package: what it is, and why.
fn left_out(report: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let texts = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten();
        texts.filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    };
    let because = |paths: Vec<String>, why: &'static str| {
        paths.into_iter().map(move |path| (path, why.to_owned()))
    };
    all.extend(because(texts(&report["stage"]["unclaimed"]), "no definition takes it"));
    all.extend(because(texts(&report["passed_over"]), "is no artifact"));
    let shards = report["split"].as_object().into_iter().flatten();
    for (shard, artifacts) in shards {
        for artifact in artifacts.as_array().into_iter().flatten() {
            for (isa, content) in artifact["left_out"].as_object().into_iter().flatten() {
                let name = artifact["artifact"].as_str().unwrap_or_default();
                let number = |what: &str| content[what].as_u64().unwrap_or(0);
                all.push((
                    format!(
                        "{shard}/{name}: {} code objects and {} database files for {isa}",
                        number("code_objects"),
                        number("database_files")
                    ),
                    "not among --gpu-targets".to_owned(),
                ));
            }
        }
    }
    all
}

/// A line for each, or for each reason with many.
fn left_out_text(all: &[(String, String)], full: bool) -> Vec<String> {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (what, why) in all {
        reasons.entry(why).or_default().push(what);
    }
    let mut lines = Vec::new();
    for (why, what) in reasons {
        let shown = if full { what.len() } else { NAMED };
        lines.extend(what.iter().take(shown).map(|what| format!("{}: {why}", printable(what))));
        if let more @ 1.. = what.len().saturating_sub(shown) {
            lines.push(format!("{more} more: {why} (--verbose names them)"));
        }
    }
    lines
}

/// The relations that one format alone has.
fn own_relations<'p>(
    package: &'p Package,
    formats: &[Format],
) -> Vec<(Format, &'p BTreeMap<String, Vec<String>>)> {
    let both = [(Format::Deb, &package.deb), (Format::Rpm, &package.rpm)];
    both.into_iter().filter(|(format, _)| formats.contains(format)).collect()
}

/// All of it for programs.
pub fn json(packages: &[Package], formats: &[Format], report: &Value) -> Value {
    let (mut files, mut bytes, mut estimated) = (0, 0, false);
    let mut all = Vec::new();
    for package in packages {
        let content = Content::new(package);
        files += content.files;
        bytes += content.bytes;
        estimated |= content.estimated;
        all.push(package_json(package, &content, formats));
    }
    let left_out: Vec<Value> = left_out(report)
        .into_iter()
        .map(|(what, why)| json!({ "what": what, "why": why }))
        .collect();
    json!({
        "status": "planned",
        "packages": all,
        "left_out": left_out,
        "totals": {
            "packages": packages.len(),
            "files": files,
            "installed_size": bytes,
            "installed_size_is_estimate": estimated,
        },
    })
}

fn package_json(package: &Package, content: &Content, formats: &[Format]) -> Value {
    let names: Vec<_> = formats.iter().map(|format| file_name(package, *format)).collect();
    let relations = package.relations.iter();
    let relations: Vec<_> = relations
        .flat_map(|(kind, all)| all.iter().map(|r| format!("{}: {r}", kind.rpm_tag())))
        .collect();
    let mut json = json!({
        "name": package.name.as_str(),
        "kind": package.kind.as_str(),
        "version": package.full_version(),
        "summary": package.summary,
        "gpu_targets": package.gpu_targets,
        "files": names,
        "relations": relations,
        "installed_size": content.bytes,
        "installed_size_is_estimate": content.estimated,
        "content": content.items,
    });
    if let Kind::Group { group } = &package.kind {
        json["group"] = json!(group);
    }
    for (format, own) in own_relations(package, formats) {
        json[format!("{format}_relations")] = json!(own);
    }
    json
}
