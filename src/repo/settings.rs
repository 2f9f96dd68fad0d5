//! What clients notice when a repository comes to be called otherwise.
//!
//! apt remembers `Origin`, `Label`, `Suite` and `Codename` of each Release, since people pin packages by them; where the first, the
//! second or the last is another, it refuses the new indices until somebody confirms (apt 2.6, `Acquire::AllowReleaseInfoChange`). `Suite` is
//! part of the address here, so clients that know the old one find nothing.

use super::rpm::Compression;
use super::store::{Settings, State};
use super::work::is_published;
use crate::package::Format;

/// What the user should know of these settings in the place of those that a repository is published with.
pub(super) fn warnings(before: &State, now: &Settings) -> Vec<String> {
    let old = &before.settings;
    if before.publication == 0 || old == now {
        return Vec::new();
    }
    let mut all = Vec::new();
    if is_published(before, Format::Deb) {
        of_apt(old, now, &mut all);
    }
    if is_published(before, Format::Rpm) {
        of_rpm(old, now, &mut all);
    }
    if let (Some(was), true) = (&old.url, old.url != now.url) {
        all.push(format!("clients go on asking at {was}: serve the repository there until all have the new address"));
    }
    all
}

fn of_apt(old: &Settings, now: &Settings, all: &mut Vec<String>) {
    fn codename(settings: &Settings) -> &str {
        settings.codename.as_deref().unwrap_or(&settings.suite)
    }
    let fields = [
        ("Origin", &*old.origin, &*now.origin),
        ("Label", &old.label, &now.label),
        ("Codename", codename(old), codename(now)),
    ];
    let changed = fields.iter().filter(|(_, was, is)| was != is);
    let changed: Vec<String> =
        changed.map(|(field, was, is)| format!("{field} from `{was}` to `{is}`")).collect();
    if !changed.is_empty() {
        all.push(format!(
            "{}: `apt update` refuses the repository until each client confirms: apt-get update --allow-releaseinfo-change",
            changed.join(", ")
        ));
    }
    if old.suite != now.suite {
        all.push(format!(
            "clients whose sources say `Suites: {}` find nothing any more: dists/{0} goes away; they need `Suites: {}`",
            old.suite, now.suite
        ));
    }
    if old.rules != now.rules {
        all.push(
            "components are those of packages that come from now on; those that are there stay where they are, and \
             clients see the components that their sources name"
                .to_owned(),
        );
    }
    for arch in old.architectures.iter().filter(|arch| !now.architectures.contains(arch)) {
        all.push(format!(
            "without packages for {arch} there is no index for it: `apt update` fails where sources name it"
        ));
    }
}

fn of_rpm(old: &Settings, now: &Settings, all: &mut Vec<String>) {
    if old.rpm_compression != now.rpm_compression && now.rpm_compression == Compression::Zstd {
        all.push(
            "dnf of systems before RHEL 8.2 reads no metadata that are compressed with zstd"
                .to_owned(),
        );
    }
    if old.url.is_some() && old.name() != now.name() {
        all.push(format!(
            "the repository is called [{}] in its .repo file, and was [{}]: who copies the new file removes the old one",
            now.name(),
            old.name()
        ));
    }
}
