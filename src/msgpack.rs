//! MessagePack from files that nobody vouches for, and bytes as it has them.

use std::io::Read;

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

/// Decodes a value from a reader, which is left behind it.
pub(crate) fn decode_from<T: DeserializeOwned>(
    reader: impl Read,
) -> Result<T, rmp_serde::decode::Error> {
    let mut deserializer = rmp_serde::Deserializer::new(reader);
    deserializer.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut deserializer)
}

/// Bytes as bytes: serde alone would write a list of numbers. For `#[serde(with)]`.
pub(crate) mod bytes {
    use std::fmt;

    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        bytes: &(impl AsRef<[u8]> + ?Sized),
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes.as_ref())
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T: From<Vec<u8>>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        deserializer.deserialize_byte_buf(Bytes).map(T::from)
    }

    struct Bytes;

    impl<'de> Visitor<'de> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Vec<u8>, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = numbers.next_element()? {
                bytes.push(byte);
            }
            Ok(bytes)
        }
    }
}

/// The same for a digest.
pub(crate) mod digest {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(digest: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(digest)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        deserializer.deserialize_bytes(Digest)
    }

    struct Digest;

    impl Visitor<'_> for Digest {
        type Value = [u8; 32];

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("32 bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<[u8; 32], E> {
            bytes.try_into().map_err(|_| E::invalid_length(bytes.len(), &self))
        }
    }
}
