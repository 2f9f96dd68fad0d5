//! The kpack format's table of contents, as it stands at the end of an archive.
//!
//! A MessagePack map; see [`crate::kpack::writer`] for the layout around it. Reader and writer
//! share these definitions only.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};

/// The first bytes of an archive.
pub(super) const MAGIC: &[u8; 4] = b"KPAK";
/// The only version of the format.
pub(super) const VERSION: u32 = 1;
/// Where the blob begins.
pub(super) const BLOB_OFFSET: u64 = 64;
/// `compression_scheme` of stored archives.
pub(super) const SCHEME_NONE: &str = "none";
/// `compression_scheme` of archives with a zstd frame for each kernel.
pub(super) const SCHEME_ZSTD: &str = "zstd-per-kernel";
/// The only `type` of an entry.
pub(super) const TYPE_HSACO: &str = "hsaco";

/// The whole map. Order of the fields = order of the keys in the file.
#[derive(Debug, Serialize, DeriveDeserialize)]
pub(super) struct Toc {
    pub format_version: u32,
    pub group_name: String,
    pub gfx_arch_family: String,
    pub gfx_arches: Vec<String>,
    pub compression_scheme: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blobs: Option<Vec<TocBlob>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zstd_offset: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zstd_size: Option<u64>,
    #[serde(deserialize_with = "unique_map")]
    pub toc: BTreeMap<String, Variants>,
}

/// Where one stored code object lies.
#[derive(Debug, Clone, Copy, Serialize, DeriveDeserialize)]
pub(super) struct TocBlob {
    pub offset: u64,
    pub size: u64,
}

/// The entries of one name by ISA.
#[derive(Debug, Default, Serialize, DeriveDeserialize)]
#[serde(transparent)]
pub(super) struct Variants(
    #[serde(deserialize_with = "unique_map")] pub BTreeMap<String, TocEntry>,
);

/// One entry. What others put into `metadata` is skipped.
#[derive(Debug, Clone, Serialize, DeriveDeserialize)]
pub(super) struct TocEntry {
    #[serde(rename = "type")]
    pub kind: String,
    pub ordinal: u64,
    pub original_size: u64,
}

/// Reads a map in which no key may occur twice: readers disagree on which of two counts.
pub(super) fn unique_map<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord + fmt::Display,
    V: Deserialize<'de>,
{
    struct Unique<K, V>(PhantomData<(K, V)>);

    impl<'de, K, V> Visitor<'de> for Unique<K, V>
    where
        K: Deserialize<'de> + Ord + fmt::Display,
        V: Deserialize<'de>,
    {
        type Value = BTreeMap<K, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map with each key once")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some(key) = access.next_key::<K>()? {
                if map.contains_key(&key) {
                    return Err(A::Error::custom(format_args!("the key `{key}` occurs twice")));
                }
                let value = access.next_value()?;
                map.insert(key, value);
            }
            Ok(map)
        }
    }

    deserializer.deserialize_map(Unique(PhantomData))
}
