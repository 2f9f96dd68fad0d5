//! The package that adds library directories to the dynamic linker's path, and how the packages with
//! libraries in them relate to it.

use super::{Options, Report};
use crate::config::{LinkerPath, LinkerPathRelation, PackagesConfig};
use crate::package::spec::{Arch, Kind, Package, Relation, RelationKind};
use crate::package::{is_library_name, is_searched};
use crate::tree::{Entry, Source, TreePath};

/// Adds the package where the configuration has one, and relates the others to it.
pub(super) fn add(
    packages: &mut Vec<Package>,
    config: &PackagesConfig,
    options: &Options,
    report: &mut Report,
) {
    let Some(LinkerPath { package: name, directories, relation }) = &config.linker_path else {
        return;
    };
    let below = |dir: &String| Some(options.install_prefix.join(&TreePath::new(dir).ok()?));
    let (searched, dirs): (Vec<_>, Vec<_>) = directories
        .iter()
        .filter_map(below)
        .partition(|dir: &TreePath| dir.as_str().is_some_and(is_searched));
    for dir in searched {
        report.warnings.push(format!("linker_path: the linker searches /{dir} without being told"));
    }
    if dirs.is_empty() || packages.is_empty() {
        return;
    }
    let kind = match relation {
        LinkerPathRelation::Depends => Some(RelationKind::Depends),
        LinkerPathRelation::Recommends => Some(RelationKind::Recommends),
        LinkerPathRelation::None => None,
    };
    for package in packages.iter_mut() {
        let has_library = package.tree.iter().any(|(path, entry)| {
            !entry.is_dir()
                && is_library_name(path)
                && path.parent().is_some_and(|parent| dirs.contains(&parent))
        });
        // Links for linking are in the linker's path, and in nobody's way.
        if has_library && package.kind != Kind::Dev {
            package.linker_dirs.clone_from(&dirs);
            if let Some(kind) = kind {
                package.relate(kind, Relation::any(name.as_str()));
            }
        }
    }
    let defaults = &config.defaults;
    let mut package = Package::new(name.as_str(), Kind::Plain, &options.version, &options.release);
    let listed: Vec<String> = dirs.iter().map(|dir| format!("/{dir}")).collect();
    package.arch = Arch::Independent;
    package.summary = format!("Dynamic linker's path to {}", listed.join(" and "));
    package.description =
        "Programs find the libraries there without a search path of their own where this \
                           package is installed."
            .to_owned();
    package.maintainer.clone_from(&defaults.maintainer);
    package.vendor.clone_from(&defaults.vendor);
    package.homepage.clone_from(&defaults.homepage);
    package.license.clone_from(&defaults.license);
    package.section.clone_from(&defaults.section);
    package.date = packages[0].date;
    let conf = TreePath::new(format!("etc/ld.so.conf.d/{name}.conf")).expect("a checked name");
    let text = listed.join("\n") + "\n";
    for dir in ["etc", "etc/ld.so.conf.d"] {
        let dir = TreePath::new(dir).expect("a clean path");
        package.tree.insert(dir, Entry::dir()).expect("an empty tree");
    }
    let entry = Entry::file(0o644, None, Source::bytes(text.into_bytes()));
    package.tree.insert(conf, entry).expect("an empty tree");
    packages.push(package);
    packages.sort_by(|a, b| a.name.cmp(&b.name));
}
