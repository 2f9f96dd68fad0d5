//! ISAs of groups that there is no code for.

use std::collections::{BTreeMap, BTreeSet};

use super::{Report, Warning};
use crate::config::{Group, PackagingConfig};
use crate::error::Error;
use crate::target::{Family, TargetId};

/// What device code a component has.
#[derive(Default)]
pub(super) struct Code {
    pub isas: BTreeSet<TargetId>,
    pub families: Vec<Family>,
    /// There are kernels of host binaries among it, which a family's files cannot stand in for.
    pub archives: bool,
}

impl Code {
    /// Whether there is some for an architecture of a group. A processor is there where one of its
    /// feature variants is; a generic processor stands for itself only.
    fn has(&self, wanted: &str) -> bool {
        let of_family = || {
            let isa = wanted.parse::<TargetId>();
            isa.is_ok_and(|isa| self.families.iter().any(|family| family.runs(&isa)))
        };
        self.isas.iter().any(|isa| isa.to_string() == wanted || isa.processor() == wanted)
            || !self.archives && of_family()
    }
}

/// Looks for ISAs of groups that components with device code have none for. What no component has any
/// for is told once, for no shard brings it. Gives the faults, where the configuration makes them such.
pub(super) fn architectures(
    components: &BTreeMap<&str, Code>,
    config: &PackagingConfig,
    report: &mut Report,
) -> Vec<Error> {
    let with_code = || {
        let all = components.iter();
        all.filter(|(_, code)| !code.isas.is_empty() || !code.families.is_empty())
    };
    let nowhere = |isa: &str| !with_code().any(|(_, code)| code.has(isa));
    let mut findings: BTreeMap<String, Warning> = BTreeMap::new();
    let mut of_components = Vec::new();
    for (component, code) in with_code() {
        for (name, Group { architectures, .. }) in config.groups_of(component) {
            let isas = || architectures.iter().map(String::as_str);
            let gone: Vec<&str> = isas().filter(|isa| nowhere(isa)).collect();
            if !gone.is_empty() {
                let text = match gone.len() == architectures.len() {
                    true => format!("no shard has code for the group {name} ({})", gone.join(", ")),
                    false => {
                        format!("no shard has code for {}, of the group {name}", gone.join(", "))
                    }
                };
                findings.entry(text.clone()).or_insert_with(|| Warning::new(text));
            }
            let missing: Vec<&str> = isas().filter(|isa| !code.has(isa) && !nowhere(isa)).collect();
            if !missing.is_empty() {
                let what = format!("group {name} has no code for {}", missing.join(", "));
                let text = format!("{component}: {what}");
                of_components.push(Warning::of(*component, format!("{what}: {{}}"), text));
            }
        }
    }
    let all = findings.into_values().chain(of_components);
    if !config.validation.error_on_missing_architecture {
        report.warnings.extend(all);
        return Vec::new();
    }
    let hint = "add a shard that has it, or set validation.error_on_missing_architecture to false";
    all.map(|finding| Error::failed(finding.text()).hint(hint)).collect()
}
