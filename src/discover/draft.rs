//! Drafting a packaging configuration from what was found.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use super::{PathReport, Report};
use crate::config::{Group, PackagingConfig, Validation};
use crate::error::{Error, Result};
use crate::target::TargetId;
use crate::tree::TreePath;
use crate::tree::whole::NewFile;

/// A drafted configuration, and what was left out of it.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The configuration.
    pub config: PackagingConfig,
    /// ISAs that it does not hold, each with the reason.
    pub left_out: Vec<String>,
    /// Why it takes generic files of other shards than the primary one, where it does: each finding
    /// names the artifact prefix and the shard.
    pub union_because: Vec<String>,
}

/// Groups the ISAs of a report by family. A feature variant goes with its processor. The primary
/// shard is the one that is named, else the first of all by name; it is an error where that is not
/// among the report's shards, or nothing says which it is. `generic_union` is set where another shard
/// has generic files that the primary one lacks, and nowhere else. All shards are required, where there are
/// several.
pub fn draft_config(report: &Report, primary_shard: Option<&str>) -> Result<Draft> {
    let shards: BTreeSet<&str> =
        report.paths.iter().flat_map(|path| &path.shards).map(String::as_str).collect();
    let primary_shard = match (primary_shard, shards.first()) {
        (Some(name), Some(_)) if !shards.contains(name) => {
            let known = shards.iter().copied().collect::<Vec<_>>().join(", ");
            return Err(Error::usage(format!("--primary-shard {name}: no such shard"))
                .hint(format!("the shards are {known}"))
                .into());
        }
        (Some(name), _) => name,
        (None, Some(first)) => first,
        (None, None) => {
            return Err(Error::usage("a configuration names a primary shard, and there is none")
                .hint("name it with --primary-shard, or give a shard or a folder of shards")
                .into());
        }
    };
    let mut families: BTreeMap<String, BTreeSet<TargetId>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for isa in report.total.keys() {
        match isa.parse::<TargetId>() {
            // What a database holds for a family goes to each group with an ISA of it.
            Err(_) => {
                left_out.push(format!("{isa} is a family of ISAs: its files follow its ISAs"));
            }
            Ok(id) if id.known().is_none() => {
                left_out.push(format!("{isa} is not a known ISA: no configuration can name it"));
            }
            Ok(id) => {
                families.entry(id.family()).or_default().insert(id.without_features());
            }
        }
    }
    if families.is_empty() {
        let paths = report.paths.iter().map(|PathReport { path, .. }| path.display().to_string());
        return Err(Error::failed("no device code was found to group")
            .at(paths.collect::<Vec<_>>().join(", "))
            .into());
    }
    let groups = families.into_iter().map(|(family, isas)| {
        let display_name = display_name(&family, &isas);
        let architectures = isas.iter().map(ToString::to_string).collect();
        (family, Group { display_name, architectures })
    });
    // The primary shard has to be there anyhow.
    let required_shards = match shards.len() {
        0 | 1 => Vec::new(),
        _ => shards.iter().map(|&name| name.to_owned()).collect(),
    };
    let union_because = only_elsewhere(report, primary_shard);
    let config = PackagingConfig {
        primary_shard: primary_shard.to_owned(),
        architecture_groups: groups.collect(),
        validation: Validation::default(),
        component_overrides: BTreeMap::new(),
        required_shards,
        generic_union: !union_because.is_empty(),
    };
    Ok(Draft { config, left_out, union_because })
}

/// What generic content only other shards than the primary one have.
fn only_elsewhere(report: &Report, primary: &str) -> Vec<String> {
    let mut prefixes: BTreeMap<&str, BTreeMap<&str, BTreeSet<&TreePath>>> = BTreeMap::new();
    for (prefix, shards) in report.paths.iter().flat_map(|path| &path.generic) {
        for (shard, files) in shards {
            prefixes.entry(prefix).or_default().entry(shard).or_default().extend(files);
        }
    }
    let mut found = Vec::new();
    for (prefix, shards) in &prefixes {
        let Some(primary) = shards.get(primary) else {
            let others: Vec<&str> = shards.keys().copied().collect();
            found.push(format!("{prefix} is in {} only", others.join(", ")));
            continue;
        };
        for (shard, files) in shards {
            let mut extra = files.difference(primary);
            let Some(first) = extra.next() else { continue };
            found.push(match extra.count() {
                0 => format!("{prefix}: only {shard} has {first}"),
                more => format!("{prefix}: only {shard} has {first} and {more} more"),
            });
        }
    }
    found
}

/// `ROCm gfx110X (RX 7900, RX 7700, RX 7600)`: the first product of each ISA.
fn display_name(family: &str, isas: &BTreeSet<TargetId>) -> String {
    let mut products: Vec<&str> = Vec::new();
    for isa in isas {
        let first = isa.known().and_then(|known| known.products.split(", ").next());
        if let Some(product) = first.filter(|p| !p.is_empty() && !products.contains(p)) {
            products.push(product);
        }
    }
    if products.is_empty() {
        format!("ROCm {family}")
    } else {
        format!("ROCm {family} ({})", products.join(", "))
    }
}

/// Writes a configuration to `path`, whole or not at all. A file that is there is replaced with
/// `force` only.
pub fn write_config(path: &Path, config: &PackagingConfig, force: bool) -> Result<()> {
    let exists = || {
        Error::usage("exists already")
            .at(path)
            .hint("name another file, or pass --force to replace it")
    };
    if !force && path.symlink_metadata().is_ok() {
        return Err(exists().into());
    }
    let cannot = |e| Error::io("cannot write", path, e);
    let mut text = serde_json::to_string_pretty(config).expect("a configuration is JSON");
    text.push('\n');
    let mut new = NewFile::create(path).map_err(cannot)?;
    new.file().write_all(text.as_bytes()).and_then(|()| new.file().sync_all()).map_err(cannot)?;
    let placed = if force { new.replace() } else { new.place() };
    placed.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => exists(),
        _ => cannot(e),
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::{Content, PathKind};

    fn report(isas: &[&str], shards: &[&str]) -> Report {
        let total: BTreeMap<_, _> =
            isas.iter().map(|isa| ((*isa).to_owned(), Content::default())).collect();
        let path = PathReport {
            path: "x".into(),
            kind: PathKind::Shards,
            shards: shards.iter().map(|s| (*s).to_owned()).collect(),
            artifacts: 0,
            files: 0,
            isas: total.clone(),
            found: Vec::new(),
            notes: Vec::new(),
            passed_over: Vec::new(),
            generic: BTreeMap::new(),
        };
        Report { paths: vec![path], total }
    }

    #[test]
    fn variants_go_with_their_processor_and_families_apart() {
        let isas = [
            "gfx90a:xnack+",
            "gfx90a",
            "gfx1100",
            "gfx1102",
            "gfx11-generic",
            "gfx11xx",
            "gfx7777",
        ];
        let draft = draft_config(&report(&isas, &["b", "a"]), None).unwrap();
        assert_eq!(draft.config.primary_shard, "a");
        let groups: Vec<_> = draft
            .config
            .architecture_groups
            .iter()
            .map(|(name, group)| {
                format!("{name}: {} [{}]", group.display_name, group.architectures.join(" "))
            })
            .collect();
        assert_eq!(
            groups,
            [
                "gfx11-generic: ROCm gfx11-generic [gfx11-generic]",
                "gfx110X: ROCm gfx110X (RX 7900, RX 7600) [gfx1100 gfx1102]",
                "gfx90a: ROCm gfx90a (MI210) [gfx90a]",
            ]
        );
        assert_eq!(draft.left_out.len(), 2);
    }

    #[test]
    fn the_primary_shard_must_be_one() {
        let known = report(&["gfx1100"], &["a", "b"]);
        assert_eq!(draft_config(&known, Some("b")).unwrap().config.primary_shard, "b");
        assert!(draft_config(&known, Some("c")).is_err());
        let none = report(&["gfx1100"], &[]);
        assert!(draft_config(&none, None).is_err());
        assert_eq!(draft_config(&none, Some("c")).unwrap().config.primary_shard, "c");
        assert!(draft_config(&report(&[], &["a"]), None).is_err());
    }

    #[test]
    fn a_file_is_replaced_only_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("groups.json");
        let draft = draft_config(&report(&["gfx1100"], &["a"]), None).unwrap();
        write_config(&path, &draft.config, false).unwrap();
        assert_eq!(PackagingConfig::load(&path).unwrap(), draft.config);
        assert!(write_config(&path, &draft.config, false).is_err());
        write_config(&path, &draft.config, true).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
