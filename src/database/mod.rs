//! Kernel databases: files that a library opens by name for the GPU it finds, and that move whole.
//!
//! Which file is for which ISA is data, not code: a database is a name and a few rules, each a glob
//! over paths below the prefix and where the ISA stands (a folder's name, somewhere in the file's
//! name, or at its start). The table that ships is `packaging-config/databases.json`. A file that no
//! rule finds an ISA for is for all GPUs. Users add databases by a table of the same form.

mod isa_in_name;

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactTree;
use crate::config::{json, text};
use crate::error::Error;
use crate::fatbin::code_object::{CodeObjectHeader, IsaCheck};
use crate::target::{Family, TargetId};
use crate::tree::{EntryKind, TreePath};
use isa_in_name::{folder, in_name, name_start};

/// The table as it is written.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatabasesConfig {
    /// The known databases.
    pub databases: Vec<DatabaseConfig>,
}

/// One database as it is written.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatabaseConfig {
    /// What `--split-databases` calls it.
    pub name: String,
    /// Tried in order; the first that finds an ISA decides.
    pub rules: Vec<RuleConfig>,
}

/// One rule as it is written.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// Glob over paths below the prefix: `*` stays in one folder, `**` does not.
    pub files: String,
    /// Where the ISA stands.
    pub isa: IsaIn,
}

/// Where a rule finds the ISA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IsaIn {
    /// A folder above the file is called like an ISA or a family of them.
    Folder,
    /// The file's name holds the ISA, apart from the rest by `_`, `-` or `.`.
    Name,
    /// The file's name begins with the ISA, often followed by a count of compute units in hex.
    NameStart,
}

/// Whose file it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// One ISA's.
    Isa(TargetId),
    /// That of every ISA of a family.
    Family(Family),
}

impl Owner {
    /// What the artifact with such files has as its target.
    pub fn target(&self) -> String {
        match self {
            Self::Isa(isa) => isa.to_string(),
            Self::Family(family) => family.to_string(),
        }
    }

    /// Whether code of this header runs there: it is for the ISA (or one of the family), or for the
    /// generic processor whose code that runs. Of a processor that is not in the table nothing is
    /// known, and it passes.
    pub fn runs(&self, header: &CodeObjectHeader) -> bool {
        header
            .target
            .as_ref()
            .is_none_or(|found| self.takes(found, &|isa| header.check(isa) != IsaCheck::Other))
    }

    /// The same for code that is filed under a target.
    pub fn runs_target(&self, filed: &TargetId) -> bool {
        self.takes(filed, &|isa| {
            isa.search_order().contains(filed) || filed.search_order().contains(isa)
        })
    }

    fn takes(&self, found: &TargetId, fits: &dyn Fn(&TargetId) -> bool) -> bool {
        let one = |isa: &TargetId| {
            let generic = isa.known().and_then(|known| known.generic);
            fits(isa) || generic == Some(found.processor())
        };
        match self {
            Self::Isa(isa) => one(isa),
            Self::Family(family) => family.contains(found) || family.members().any(|isa| one(&isa)),
        }
    }
}

/// What is wrong with a table of databases.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The JSON does not have the form of a table.
    #[error("not a table of databases")]
    Syntax(#[from] serde_path_to_error::Error<serde_json::Error>),
    /// A rule's glob is not one.
    #[error("database `{0}`: a rule's `files` is no glob")]
    Glob(String, #[source] globset::Error),
    /// A rule's glob can match nothing.
    #[error(
        "database `{name}`: `{glob}` matches no path below a prefix, which begins with no `/`, `./` or \
         `../` (as lib/rocblas/library/*.co)"
    )]
    NeverMatches {
        /// The database.
        name: String,
        /// Its glob.
        glob: String,
    },
    /// A database cannot be called so.
    #[error("a database cannot be called `{0}`")]
    Name(String),
    /// No database is wanted, and one is.
    #[error("`none` and `{0}` cannot both be meant")]
    NoneAndAnother(String),
    /// Two databases of a table have one name.
    #[error("database `{0}` is listed twice")]
    Twice(String),
    /// A name that no database has.
    #[error("unknown database `{name}` (known: {known}; or `none`)")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
}

struct Rule {
    files: GlobMatcher,
    isa: IsaIn,
}

struct Database {
    name: String,
    rules: Vec<Rule>,
}

/// The databases that a run knows.
pub struct Databases(Vec<Database>);

impl Databases {
    /// The table that ships with the program.
    pub fn known() -> Self {
        Self::parse(include_str!("../../packaging-config/databases.json"))
            .expect("the table that ships is tested")
    }

    /// None: every file that is no fat binary is for all GPUs.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Reads a table.
    pub fn parse(text: &str) -> Result<Self, DatabaseError> {
        let config: DatabasesConfig = json::parse(text)?;
        let mut databases: Vec<Database> = Vec::new();
        for DatabaseConfig { name, rules } in config.databases {
            if name.trim().is_empty() || name == "none" {
                return Err(DatabaseError::Name(name));
            }
            if databases.iter().any(|there| there.name == name) {
                return Err(DatabaseError::Twice(name));
            }
            let never = |glob: &str| {
                glob.is_empty() || ["/", "./", "../"].iter().any(|start| glob.starts_with(start))
            };
            if let Some(rule) = rules.iter().find(|rule| never(&rule.files)) {
                return Err(DatabaseError::NeverMatches { name, glob: rule.files.clone() });
            }
            let rules = rules
                .into_iter()
                .map(|rule| {
                    let glob = GlobBuilder::new(&rule.files).literal_separator(true).build();
                    glob.map(|glob| Rule { files: glob.compile_matcher(), isa: rule.isa })
                })
                .collect::<Result<_, _>>()
                .map_err(|e| DatabaseError::Glob(name.clone(), e))?;
            databases.push(Database { name, rules });
        }
        Ok(Self(databases))
    }

    /// Reads a user's table.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = text::read(path, "table of databases", text::CONFIGURATION_MAX)?;
        Self::parse(&text).map_err(|e| {
            let error = Error::usage("is not a valid table of databases").at(path);
            let all =
                "docs/databases.md has an example; `gfxpack schema databases` prints the JSON Schema";
            match e {
                DatabaseError::Syntax(e) => {
                    let hint = json::hint(&e, all);
                    error.because(e).hint(hint)
                }
                e => error.because(e).hint(all),
            }
        })
    }

    /// These databases and those of a user's table, which are asked first. One that is called like one
    /// of these takes its place.
    #[must_use]
    pub fn and(mut self, user: Self) -> Self {
        self.0.retain(|known| !user.names().any(|name| name == known.name));
        let Self(mut databases) = user;
        databases.append(&mut self.0);
        Self(databases)
    }

    /// Keeps the databases of these names; `none` keeps none.
    pub fn select(mut self, names: &[impl AsRef<str>]) -> Result<Self, DatabaseError> {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        if let (true, Some(other)) = (names.contains(&"none"), names.iter().find(|n| **n != "none"))
        {
            return Err(DatabaseError::NoneAndAnother((*other).to_owned()));
        }
        for name in &names {
            if *name != "none" && !self.names().any(|known| known == *name) {
                let known = self.names().collect::<Vec<_>>().join(", ");
                return Err(DatabaseError::Unknown { name: (*name).to_owned(), known });
            }
        }
        self.0.retain(|database| names.contains(&database.name.as_str()));
        Ok(self)
    }

    /// The databases' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|database| database.name.as_str())
    }

    /// Whose the file at `path` (below its prefix) is: the database's name and the ISA, or `None`
    /// where no rule finds one.
    pub fn owner(&self, path: &TreePath) -> Option<(&str, Owner)> {
        self.0.iter().find_map(|database| {
            let mut matching =
                database.rules.iter().filter(|rule| rule.files.is_match(path.as_path()));
            let owner = matching.find_map(|rule| match rule.isa {
                IsaIn::Folder => folder(path),
                IsaIn::Name => in_name(path).map(Owner::Isa),
                IsaIn::NameStart => name_start(path).map(Owner::Isa),
            })?;
            Some((database.name.as_str(), owner))
        })
    }

    /// Whose the entry at `path` of an artifact is. A symbolic link is that of the file or folder it
    /// leads to; one that leads to nothing in the artifact, what its own name says. A hard link is a
    /// file: its own name says.
    pub fn owner_in(&self, artifact: &ArtifactTree, path: &TreePath) -> Option<(&str, Owner)> {
        let link = matches!(artifact.tree.get(path)?.kind, EntryKind::Symlink(_));
        let end = if link { artifact.follow(path) } else { None };
        let folder =
            end.as_ref().is_some_and(|end| artifact.tree.get(end).is_some_and(|e| e.is_dir()));
        let end = end.unwrap_or_else(|| path.clone());
        let below = match artifact.prefix_of(&end) {
            Some(prefix) => end.strip_prefix(prefix)?,
            None => end,
        };
        if folder {
            // A folder is whose the files in it are, for all that their names say.
            return self.owner(&below.join(&TreePath::new("_").expect("a plain name")));
        }
        self.owner(&below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn owner(path: &str) -> Option<String> {
        let databases = Databases::known();
        let owner = databases.owner(&TreePath::new(path).unwrap());
        owner.map(|(name, owner)| format!("{name} {}", owner.target()))
    }

    #[test]
    fn files_are_whose_their_names_say() {
        let cases = [
            ("lib/rocblas/library/Kernels.so-000-gfx1100.hsaco", "rocblas gfx1100"),
            ("lib/rocblas/library/Kernels.so-000-gfx90a-xnack+.hsaco", "rocblas gfx90a:xnack+"),
            (
                "lib/rocblas/library/TensileLibrary_X_fallback_gfx90a-xnack-.hsaco",
                "rocblas gfx90a:xnack-",
            ),
            ("lib/rocblas/library/TensileLibrary_X_CU104_gfx90a.dat", "rocblas gfx90a"),
            ("lib/rocblas/5.2.0/library/TensileLibrary_X_gfx942.co", "rocblas gfx942"),
            ("lib/rocblas/library/gfx942/TensileManifest.txt", "rocblas gfx942"),
            ("lib/rocblas/library/gfx942/TensileLibrary_X_fallback.dat", "rocblas gfx942"),
            ("lib/rocblas/library/gfx90a:xnack+/x.dat", "rocblas gfx90a:xnack+"),
            ("lib/hipblaslt/library/extop_gfx1100.co", "hipblaslt gfx1100"),
            ("lib/hipblaslt/library/gfx950/deep/er/x", "hipblaslt gfx950"),
            ("lib/hipsparselt/library/Kernels_gfx942.hsaco", "hipsparselt gfx942"),
            ("share/miopen/db/gfx90a68.HIP.fdb.txt", "miopen gfx90a"),
            ("share/miopen/db/gfx942130.db.txt", "miopen gfx942"),
            ("share/miopen/db/gfx942e4.kdb", "miopen gfx942"),
            ("share/miopen/db/gfx1030_36.db.txt", "miopen gfx1030"),
            ("share/miopen/db/gfx942.tn.model", "miopen gfx942"),
            ("share/miopen/db/gfx908_ConvAsm1x1U_decoder.ktn.model", "miopen gfx908"),
            ("lib/libMIOpenCKGroupedConv_gfx942.so", "miopen gfx942"),
            ("lib/aotriton.images/gfx942/flash/attn.aks2", "aotriton gfx942"),
            ("lib/aotriton.images/gfx11xx/flash/attn.aks2", "aotriton gfx11xx"),
            ("aotriton/kernels/gfx12_0/x.zip", "aotriton gfx12_0"),
            (
                "lib/hipdnn_plugins/engines/arch_content/conv/gfx950/x.bin",
                "hipkernelprovider gfx950",
            ),
            ("hip_kernel_provider/asm_kernels/gfx942/fmha.co", "hipkernelprovider gfx942"),
            // A new chip that the table of processors does not know yet.
            ("lib/rocblas/library/TensileLibrary_X_gfx1399.dat", "rocblas gfx1399"),
        ];
        for (path, expected) in cases {
            assert_eq!(owner(path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn tables_that_cannot_be_meant_are_refused() {
        let rule = |files: &str| {
            format!(r#"{{"name": "x", "rules": [{{"files": "{files}", "isa": "name"}}]}}"#)
        };
        let good = rule("lib/*");
        for (databases, words) in [
            (rule("lib/[a"), "no glob"),
            (rule("/opt/rocm/lib/*"), "matches no path"),
            (rule("./lib/*"), "matches no path"),
            (rule(""), "matches no path"),
            (format!("{good}, {good}"), "listed twice"),
            (good.replace("\"x\"", "\"none\""), "cannot be called `none`"),
            (good.replace("isa", "isas"), "not a table"),
            (good.replace("\"name\"}", "\"suffix\"}"), "not a table"),
        ] {
            let table = format!(r#"{{"databases": [{databases}]}}"#);
            let error = Databases::parse(&table).err().unwrap().to_string();
            assert!(error.contains(words), "{table}: {error}");
        }
    }

    #[test]
    fn code_runs_where_its_flags_say() {
        let owner = |isa: &str| Owner::Isa(isa.parse().unwrap());
        let family = Owner::Family(Family::parse("gfx11xx").unwrap());
        for (owner, code, runs) in [
            (owner("gfx1100"), "gfx1100", true),
            (owner("gfx1100"), "gfx1101", false),
            (owner("gfx1100"), "gfx11-generic", true),
            (owner("gfx11-generic"), "gfx1100", false),
            (owner("gfx90a:xnack+"), "gfx90a:xnack-", false),
            (owner("gfx90a"), "gfx90a:xnack-", true),
            (family.clone(), "gfx1151", true),
            (family.clone(), "gfx11-generic", true),
            (family, "gfx1200", false),
        ] {
            assert_eq!(owner.runs_target(&code.parse().unwrap()), runs, "{owner:?} {code}");
        }
    }

    #[test]
    fn files_for_all_gpus_have_no_owner() {
        for path in [
            "lib/rocblas/library/TensileLibrary_Type_SS_fallback.dat",
            "lib/rocblas/library/TensileManifest.txt",
            "lib/librocblas.so.5.2",
            "share/miopen/db/miopen.db",
            "lib/rocfft/rocfft_kernel_cache.db",
            "lib/rocblas/library/README_gfx942.txt",
            "share/doc/gfx942/notes",
        ] {
            assert_eq!(owner(path), None, "{path}");
        }
    }

    #[test]
    fn databases_are_chosen_by_name() {
        assert!(Databases::known().select(&["none"]).unwrap().0.is_empty());
        let two = Databases::known().select(&["rocblas", "hipblaslt"]).unwrap();
        assert_eq!(two.names().collect::<Vec<_>>(), ["rocblas", "hipblaslt"]);
        let mine = r#"{"databases": [{"name": "mine", "rules": [{"files": "lib/mine/*", "isa": "name"}]},
            {"name": "rocblas", "rules": [{"files": "lib/rocblas/special/*", "isa": "name"}]}]}"#;
        let all = Databases::known().and(Databases::parse(mine).unwrap());
        assert_eq!(all.names().take(3).collect::<Vec<_>>(), ["mine", "rocblas", "hipblaslt"]);
        let owner = |path: &str| all.owner(&TreePath::new(path).unwrap()).map(|(name, _)| name);
        assert_eq!(owner("lib/mine/x_gfx942"), Some("mine"));
        assert_eq!(owner("lib/rocblas/special/x_gfx942.co"), Some("rocblas"));
        assert_eq!(owner("lib/rocblas/library/x_gfx942.co"), None);
        let error = Databases::known().select(&["rocblass"]).err().unwrap().to_string();
        assert!(error.contains("rocblass") && error.contains("aotriton"), "{error}");
    }
}
