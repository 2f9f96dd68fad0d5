//! The configuration files: JSON, unknown keys refused, keys that come twice refused, a JSON Schema
//! made from the types.

mod groups;
pub(crate) mod json;
mod kinds;
mod packages;
mod relations;
pub(crate) mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};

pub use groups::{ComponentOverride, Group, PackagingConfig, Validation};
pub use kinds::{
    Alternative, FileKind, Follower, LinkerPath, LinkerPathRelation, LintianOverride, PackageOf,
};
pub use packages::{Contents, Defaults, Definition, External, Externals, PackagesConfig};
pub use relations::{DebRelations, OtherRelations, Relations, RpmRelations};

use crate::error::{Error, Result};

/// Reads one configuration file as JSON; what it means is checked by the type's own `load`.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = text::read(path, "configuration", text::CONFIGURATION_MAX)?;
    json::parse(&text).map_err(|e| {
        let all =
            "`gfxpack schema` prints the JSON Schema of each configuration file, with every key";
        let hint = json::hint(&e, all);
        Error::usage("is not a valid configuration").at(path).because(e).hint(hint)
    })
}

/// Deserialises a JSON object as a map and refuses a key that comes twice, of which serde's own map
/// would keep the last without a word.
fn unique_keys<'de, D, V>(deserializer: D) -> std::result::Result<BTreeMap<String, V>, D::Error>
where
    D: Deserializer<'de>,
    V: serde::Deserialize<'de>,
{
    struct Unique<V>(PhantomData<V>);

    impl<'de, V: serde::Deserialize<'de>> Visitor<'de> for Unique<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((key, value)) = access.next_entry::<String, V>()? {
                if map.contains_key(&key) {
                    return Err(A::Error::custom(format_args!("`{key}` is listed twice")));
                }
                map.insert(key, value);
            }
            Ok(map)
        }
    }

    deserializer.deserialize_map(Unique(PhantomData))
}
