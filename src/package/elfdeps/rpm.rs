//! What rpm's generator, `/usr/lib/rpm/elfdeps`, says of an ELF file: capabilities that libraries
//! provide and that what is linked to them requires.
//!
//! ```text
//! libz.so.1()(64bit)                  the library
//! libc.so.6(GLIBC_2.34)(64bit)        a version of its symbols
//! rtld(GNU_HASH)                      a loader that finds symbols by DT_GNU_HASH
//! ```
//!
//! Names that do not begin with `lib`, `ld-` or `ld.`, or do not hold `.so`, are plugins and the like:
//! nothing is said of them. Source: rpm 4.18, `tools/elfdeps.c`.

use std::collections::BTreeSet;

use crate::elf::Needs;

/// The capability that is a loader for files with `DT_GNU_HASH` alone.
pub const GNU_HASH: &str = "rtld(GNU_HASH)";

/// The capability that is a library, or one version of its symbols; `None` where the name is none that
/// rpm knows as a library's.
pub fn capability(soname: &str, version: Option<&str>) -> Option<String> {
    let library = ["lib", "ld-", "ld."].iter().any(|start| soname.starts_with(start));
    (library && soname.contains(".so"))
        .then(|| format!("{soname}({})(64bit)", version.unwrap_or_default()))
}

/// What a file offers. `file_name` stands for the SONAME where a library has none.
pub fn provides(needs: &Needs, file_name: &str) -> BTreeSet<String> {
    let mut provides = BTreeSet::new();
    if let Some(base) = &needs.versions_base {
        let versions = needs.versions_defined.iter();
        provides.extend(versions.filter_map(|version| capability(base, Some(version))));
    }
    if needs.is_library {
        let soname = needs.soname.as_deref().unwrap_or(file_name);
        provides.extend(capability(soname, None));
    }
    provides
}

/// What a file asks for. A library that could also be run (it names an interpreter) and is not
/// `executable` asks for nothing: a habit of rpm's.
pub fn requires(needs: &Needs, executable: bool) -> BTreeSet<String> {
    let mut requires = BTreeSet::new();
    if needs.interpreter.is_some() && !executable {
        return requires;
    }
    for soname in &needs.needed {
        requires.extend(capability(soname, None));
    }
    for (soname, versions) in &needs.versions_needed {
        requires.extend(versions.iter().filter_map(|version| capability(soname, Some(version))));
    }
    if needs_gnu_hash(needs) {
        requires.insert(GNU_HASH.to_owned());
    }
    requires
}

/// Whether the loader must find symbols by `DT_GNU_HASH`.
pub fn needs_gnu_hash(needs: &Needs) -> bool {
    needs.gnu_hash && !needs.hash
}
