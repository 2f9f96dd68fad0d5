//! The packaging configuration: which ISAs are packaged together.

use std::collections::BTreeMap;
use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{read_json, unique_keys};
use crate::artifact::{GENERIC, shared_family};
use crate::error::{Error, Errors, Result};
use crate::target::{Family, TargetId};

/// Which ISAs are packaged together, and how strict recombining is.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackagingConfig {
    /// The shard whose generic (host-code) artifacts are taken.
    pub primary_shard: String,
    /// Group name (as `gfx110X`) to group.
    #[serde(deserialize_with = "unique_keys")]
    pub architecture_groups: BTreeMap<String, Group>,
    /// Rules for what recombining can meet.
    #[serde(default)]
    pub validation: Validation,
    /// Artifact prefix (as `blas_lib`) to groups of its own, instead of those above.
    #[serde(default, deserialize_with = "unique_keys", skip_serializing_if = "BTreeMap::is_empty")]
    pub component_overrides: BTreeMap<String, ComponentOverride>,
    /// Shards that must be there, by name: a build from fewer is an error. Without it any shard but the
    /// primary one can be absent, and so what only it has. More may be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_shards: Vec<String>,
    /// Take generic files that only a shard other than the primary one has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub generic_union: bool,
}

/// One group: what becomes one package of each library.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// For people, as `ROCm gfx110X (RDNA3)`.
    #[serde(default)]
    pub display_name: String,
    /// Target ids. A processor takes its feature variants with it, unless some group names them.
    pub architectures: Vec<String>,
}

/// Rules for what recombining can meet. A finding whose rule is off is a warning.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Validation {
    /// Two shards have different device code for one component and ISA.
    pub error_on_duplicate_device_code: bool,
    /// Two shards have the same device code for one component and ISA, so that one of them built it
    /// for nothing. Off, it is a note.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub error_on_identical_device_code: bool,
    /// A shard's kernels do not stand where the host code, which is another shard's, looks for them.
    pub error_on_misplaced_kernels: bool,
    /// The generic trees of the shards differ.
    pub verify_generic_artifacts_match: bool,
    /// A component has no code for an ISA of a group.
    pub error_on_missing_architecture: bool,
    /// Globs over the paths of generic files that may differ between shards, as `**/build-info.txt`,
    /// or of ELF sections in them, as `**#.note.gnu.build-id`. What they match is no finding.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_generic_differences: Vec<String>,
}

impl Validation {
    /// The globs of `allowed_generic_differences`; those that are none were refused by
    /// [`PackagingConfig::load`].
    pub fn allowed_differences(&self) -> GlobSet {
        let mut globs = GlobSetBuilder::new();
        for glob in self.allowed_generic_differences.iter().filter_map(|g| Glob::new(g).ok()) {
            globs.add(glob);
        }
        globs.build().unwrap_or_default()
    }
}

impl Default for Validation {
    fn default() -> Self {
        Self {
            error_on_duplicate_device_code: true,
            error_on_identical_device_code: false,
            error_on_misplaced_kernels: true,
            verify_generic_artifacts_match: false,
            error_on_missing_architecture: false,
            allowed_generic_differences: Vec::new(),
        }
    }
}

/// Groups of one component.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComponentOverride {
    /// As at the top level.
    #[serde(deserialize_with = "unique_keys")]
    pub architecture_groups: BTreeMap<String, Group>,
}

impl PackagingConfig {
    /// The names of all groups, those of overrides among them, each at least once.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        let own = self.component_overrides.values().map(|own| &own.architecture_groups);
        let all = std::iter::once(&self.architecture_groups).chain(own);
        all.flat_map(BTreeMap::keys).map(String::as_str)
    }

    /// Reads and checks a configuration; all faults are reported.
    pub fn load(path: &Path) -> Result<Self> {
        let config: Self = read_json(path)?;
        let faults = config.faults().into_iter().map(|fault| fault.at(path)).collect();
        Errors::check(config, faults)
    }

    /// What is wrong with it beyond its syntax.
    fn faults(&self) -> Vec<Error> {
        let mut faults = group_faults("", &self.architecture_groups);
        for glob in &self.validation.allowed_generic_differences {
            if let Err(e) = Glob::new(glob) {
                faults.push(
                    Error::usage("validation.allowed_generic_differences")
                        .because(e)
                        .hint("globs over paths, as `**/build-info.txt`, or over path#section"),
                );
            }
        }
        for (i, shard) in self.required_shards.iter().enumerate() {
            if self.required_shards[..i].contains(shard) {
                faults.push(
                    Error::usage(format!("required_shards lists `{shard}` twice"))
                        .hint("remove one of the two"),
                );
            }
        }
        for (component, groups) in &self.component_overrides {
            let context = format!("component_overrides.{component}: ");
            faults.extend(group_faults(&context, &groups.architecture_groups));
        }
        faults
    }

    /// Which shards have to be there and are not among `there`: each with the key that names it.
    pub fn missing_shards(&self, there: &[impl AsRef<str>]) -> Vec<(&'static str, &str)> {
        let missing = |name: &str| !there.iter().any(|there| there.as_ref() == name);
        let primary = std::iter::once(("primary_shard", self.primary_shard.as_str()));
        let required = self.required_shards.iter().map(|name| ("required_shards", name.as_str()));
        let required = required.filter(|(_, name)| *name != self.primary_shard);
        primary.chain(required).filter(|(_, name)| missing(name)).collect()
    }

    /// The groups of a component (an artifact prefix, as `blas_lib`).
    pub fn groups_of(&self, component: &str) -> &BTreeMap<String, Group> {
        self.component_overrides
            .get(component)
            .map_or(&self.architecture_groups, |own| &own.architecture_groups)
    }

    /// The group of a component that an ISA belongs to: the one that names it, else the one that
    /// names its bare processor.
    pub fn group_of(&self, component: &str, isa: &TargetId) -> Option<&str> {
        let groups = self.groups_of(component);
        let find = |wanted: &str| {
            groups
                .iter()
                .find(|(_, group)| group.architectures.iter().any(|isa| isa == wanted))
                .map(|(name, _)| name.as_str())
        };
        find(&isa.to_string()).or_else(|| find(isa.processor()))
    }

    /// The groups of a component that have ISAs of a family, sorted: those whose users need its files.
    pub fn groups_with(&self, component: &str, family: &Family) -> Vec<&str> {
        let runs = |isa: &String| isa.parse().is_ok_and(|isa| family.runs(&isa));
        let groups = self.groups_of(component).iter();
        groups
            .filter(|(_, group)| group.architectures.iter().any(runs))
            .map(|(name, _)| name.as_str())
            .collect()
    }
}

fn group_faults(context: &str, groups: &BTreeMap<String, Group>) -> Vec<Error> {
    let mut faults = Vec::new();
    let mut owner: BTreeMap<&str, &str> = BTreeMap::new();
    let mut fault = |message: String, hint: &str| {
        faults.push(Error::usage(format!("{context}{message}")).hint(hint));
    };
    if groups.is_empty() {
        fault("has no architecture group".into(), "`gfxpack discover --write-config` drafts some");
    }
    let mut spelled: BTreeMap<String, &str> = BTreeMap::new();
    for (name, group) in groups {
        if let Some(other) = spelled.insert(name.to_ascii_lowercase(), name) {
            fault(
                format!("the groups `{other}` and `{name}` differ in upper and lower case only"),
                "Debian knows lower-case package names only: rename one",
            );
        }
        let good = name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-'));
        if !good || name == GENERIC {
            fault(
                format!("`{name}` cannot be a group name"),
                "it becomes part of package names: letters, digits, `.`, `+` and `-`, and not `generic`",
            );
        }
        if let Some(family) = shared_family(&name.to_ascii_lowercase()) {
            fault(
                format!("`{name}` cannot be a group name"),
                &format!(
                    "files for {family} that several groups share are called so: rename the group"
                ),
            );
        }
        if group.architectures.is_empty() {
            fault(format!("the group `{name}` has no architecture"), "list its ISAs or remove it");
        }
        for isa in &group.architectures {
            match isa.parse::<TargetId>() {
                Err(e) => fault(format!("group `{name}`: {e}"), "correct the name of the ISA"),
                Ok(id) if id.known().is_none() => fault(
                    format!("group `{name}`: unknown ISA `{isa}`"),
                    "correct it; `gfxpack discover` shows the ISAs that the artifacts have",
                ),
                Ok(_) => {}
            }
            match owner.insert(isa, name) {
                Some(other) if other == name => {
                    fault(format!("group `{name}` lists `{isa}` twice"), "remove one of the two");
                }
                Some(other) => fault(
                    format!("`{isa}` is in two groups, `{other}` and `{name}`"),
                    "an ISA's files can be in one package only: remove it from one of the groups",
                ),
                None => {}
            }
        }
    }
    faults
}
