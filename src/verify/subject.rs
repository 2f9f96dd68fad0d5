//! What each artifact is for, told from its name and, where there is one, the configuration.

use super::Checked;
use super::finding::{Check, Finding};
use crate::artifact::{ArtifactTree, shared_family, shared_target};
use crate::config::PackagingConfig;
use crate::database::Owner;
use crate::target::{Family, TargetId};

/// Whose files an artifact holds.
#[derive(Debug, Clone)]
pub(super) enum Holds<'a> {
    /// Host code and what is for all GPUs.
    Generic,
    /// One ISA's, as splitting makes it.
    Isa(TargetId),
    /// Database files of a family of ISAs, as splitting makes it.
    Family(Family),
    /// A group's, as recombining makes it.
    Group(Members<'a>),
    /// Database files of a family that several groups share, as recombining makes it.
    Shared {
        family: Family,
        /// The groups, where a configuration says.
        groups: Option<Vec<&'a str>>,
    },
}

/// The ISAs of a group.
#[derive(Debug, Clone)]
pub(super) enum Members<'a> {
    /// Those that the configuration gives the group of this name, of this component.
    Configured(&'a PackagingConfig, String, &'a str),
    /// These, with the feature variants of those without features.
    Listed(Vec<TargetId>),
    /// The name is that of a family: its processors.
    Family(Family),
    /// The name is that of a processor: it and its feature variants.
    Processor(String),
    /// Nothing says: whatever its archives are for.
    Unknown,
}

impl<'a> Holds<'a> {
    /// Tells what an artifact is for. `recombined` says that the artifacts are those of groups.
    pub fn of(
        artifact: &'a ArtifactTree,
        config: Option<&'a PackagingConfig>,
        recombined: bool,
    ) -> Self {
        let target = artifact.name.target.as_str();
        if artifact.name.is_generic() {
            return Self::Generic;
        }
        if let Some(config) = config {
            let component = artifact.name.prefix();
            if config.groups_of(&component).contains_key(target) {
                return Self::Group(Members::Configured(config, component, target));
            }
        }
        if let Some(family) = shared_family(target) {
            let component = artifact.name.prefix();
            let groups = config.map(|config| config.groups_with(&component, &family));
            return Self::Shared { family, groups };
        }
        let isa = target.parse::<TargetId>().ok();
        match (isa, Family::parse(target)) {
            (Some(isa), _) if !recombined => Self::Isa(isa),
            (Some(isa), _) if isa.known().is_some() => {
                Self::Group(Members::Processor(isa.processor().to_owned()))
            }
            (_, Some(family)) if !recombined => Self::Family(family),
            (_, Some(family)) => Self::Group(Members::Family(family)),
            _ => Self::Group(Members::Unknown),
        }
    }

    /// Whether code for an ISA may be in it.
    pub fn allows(&self, isa: &TargetId) -> bool {
        match self {
            // Archives are of one ISA, so no group shares one.
            Self::Generic | Self::Shared { .. } => false,
            Self::Isa(own) => own == isa,
            Self::Family(family) => family.runs(isa),
            Self::Group(Members::Configured(config, component, name)) => {
                config.group_of(component, isa) == Some(name)
            }
            Self::Group(Members::Listed(isas)) => {
                isas.iter().any(|own| isa.search_order().contains(own))
            }
            Self::Group(Members::Family(family)) => family.runs(isa),
            Self::Group(Members::Processor(own)) => own == isa.processor(),
            Self::Group(Members::Unknown) => true,
        }
    }

    /// Whether a database file may be in it.
    pub fn allows_owner(&self, owner: &Owner) -> bool {
        match (self, owner) {
            (Self::Family(own), Owner::Family(family)) => own == family,
            (Self::Isa(_), Owner::Family(_)) | (Self::Family(_), Owner::Isa(_)) => false,
            (Self::Shared { family: own, .. }, Owner::Family(family)) => {
                shared_target(own) == shared_target(family)
            }
            (Self::Group(Members::Configured(config, component, name)), Owner::Family(family)) => {
                config.groups_with(component, family) == [*name]
            }
            (_, Owner::Isa(isa)) => self.allows(isa),
            (_, Owner::Family(family)) => family.members().any(|isa| self.allows(&isa)),
        }
    }

    /// Whether the packages of a group need what is in this one. Without a configuration any may.
    pub fn is_shared_by(&self, group: &str) -> bool {
        match self {
            Self::Shared { groups, .. } => {
                groups.as_ref().is_none_or(|groups| groups.contains(&group))
            }
            _ => false,
        }
    }

    /// What may be in it, in words.
    pub fn expected(&self) -> String {
        match self {
            Self::Generic => "no code of any GPU".into(),
            Self::Isa(isa) => format!("{isa} only"),
            Self::Family(family) | Self::Group(Members::Family(family)) => {
                format!("ISAs of the family {family} only")
            }
            Self::Group(Members::Configured(config, component, name)) => {
                let group = config.groups_of(component).get(*name);
                let isas = group.map(|group| group.architectures.join(", ")).unwrap_or_default();
                format!("the ISAs of the group {name} only ({isas})")
            }
            Self::Group(Members::Listed(isas)) => {
                let isas: Vec<_> = isas.iter().map(ToString::to_string).collect();
                format!("the ISAs that the package lists only ({})", isas.join(", "))
            }
            Self::Group(Members::Processor(own)) => format!("{own} and its feature variants only"),
            Self::Group(Members::Unknown) => "the group's ISAs only".into(),
            Self::Shared { family, groups } => {
                let groups = groups.as_ref().map(|groups| groups.join(", "));
                let groups = groups.map_or("several groups".into(), |g| format!("the groups {g}"));
                format!("database files for the family {family} only, which {groups} share")
            }
        }
    }
}

/// Whether the artifacts are those of groups. Without a configuration their names tell: a target that
/// is neither an ISA nor a family, a family with archives in it, or an ISA with those of its feature
/// variants, is a group.
pub(super) fn are_recombined(artifacts: &[ArtifactTree], config: Option<&PackagingConfig>) -> bool {
    let device = || artifacts.iter().filter(|artifact| !artifact.name.is_generic());
    let variants = device().any(|artifact| artifact.name.target.contains(':'));
    device().any(|artifact| {
        let target = artifact.name.target.as_str();
        let component = artifact.name.prefix();
        let configured =
            config.is_some_and(|config| config.groups_of(&component).contains_key(target));
        let archive = |end: &str| {
            let mut names = artifact.tree.iter().map(|(path, _)| path.file_name());
            names.any(|name| String::from_utf8_lossy(name).contains(end))
        };
        let group = match target.parse::<TargetId>() {
            // A chip that the table does not know, unless the archives are for others.
            Ok(isa) if isa.known().is_none() => {
                archive(".kpack") && !archive(&format!("_{target}.kpack"))
            }
            Ok(_) => !variants && archive(&format!("_{target}:")),
            Err(_) => Family::parse(target).is_none() || archive(".kpack"),
        };
        configured || group
    })
}

/// Artifacts as the build made them. Splitting leaves host code to a generic artifact and makes the others
/// of archives and database files alone: one with other files and no generic artifact beside it was not split.
pub(super) fn not_split(checked: &[Checked]) -> Vec<Finding> {
    let generic = |prefix: &str| {
        let mut names = checked.iter().map(|checked| &checked.artifact.name);
        names.any(|name| name.is_generic() && name.prefix() == prefix)
    };
    let mut findings = Vec::new();
    for Checked { artifact, label, owners, .. } in checked {
        let prefix = artifact.name.prefix();
        if artifact.name.is_generic() || generic(&prefix) {
            continue;
        }
        let of_host = artifact.tree.iter().find(|(path, entry)| {
            let name = path.file_name();
            let device = name.ends_with(b".kpack") || name.ends_with(b".kpm");
            !entry.is_dir() && !device && !owners.contains_key(path)
        });
        if let Some((path, _)) = of_host {
            let message =
                format!("is not split yet: it has {path}, and there is no {prefix}_generic");
            let expected = "artifacts that `gfxpack split` or `gfxpack recombine` wrote";
            findings.push(Finding::new(Check::NotSplit, label, "", message, expected));
        }
    }
    findings
}

/// Every tree of a group is one of the configuration's.
pub(super) fn check_groups(
    checked: &[Checked],
    config: Option<&PackagingConfig>,
    findings: &mut Vec<Finding>,
) {
    let Some(config) = config else { return };
    for artifact in checked.iter().filter(|checked| checked.recombined) {
        let groups = config.groups_of(&artifact.artifact.name.prefix());
        let target = &artifact.artifact.name.target;
        if let Holds::Shared { family, groups: Some(sharing) } = &artifact.holds {
            if sharing.len() < 2 {
                findings.push(Finding::new(
                    Check::GroupUnknown,
                    &artifact.label,
                    "",
                    match sharing.first() {
                        Some(one) => format!("only the group {one} has ISAs of {family}"),
                        None => format!("no group of the configuration has ISAs of {family}"),
                    },
                    "what two or more groups of the configuration share",
                ));
            }
            continue;
        }
        if !matches!(artifact.holds, Holds::Generic) && !groups.contains_key(target) {
            let names: Vec<_> = groups.keys().map(String::as_str).collect();
            findings.push(Finding::new(
                Check::GroupUnknown,
                &artifact.label,
                "",
                format!("the configuration has no group `{target}`"),
                format!("one of its groups: {}", names.join(", ")),
            ));
        }
    }
}
