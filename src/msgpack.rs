//! MessagePack from files that nobody vouches for.

use serde::de::DeserializeOwned;

/// Maps and arrays inside one another: the formats here have four levels, notes of compilers a few
/// more. The decoder recurses, and its own limit of 1024 is more than a thread's stack can hold.
const MAX_DEPTH: usize = 64;

/// Decodes the value that `bytes` begins with. Gives the number of bytes that it took, too; what
/// follows is for the caller to judge.
pub(crate) fn decode<T: DeserializeOwned>(
    bytes: &[u8],
) -> Result<(T, usize), rmp_serde::decode::Error> {
    let mut deserializer = rmp_serde::Deserializer::new(bytes);
    deserializer.set_max_depth(MAX_DEPTH);
    let value = T::deserialize(&mut deserializer)?;
    Ok((value, bytes.len() - deserializer.get_ref().len()))
}
