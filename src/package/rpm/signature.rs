//! The signature header: what stands between an `.rpm`'s lead and its header, outside of what is signed.
//!
//! A header is `8e ad e8 01`, four zeros, the number of entries and the size of the store (big-endian
//! u32), an entry of 16 bytes each (tag, type, offset, count), and the store. The first entry, 62, is the
//! region: its content, at the end of the store, is an entry that points back over all of them. The
//! signature header is padded to 8 bytes.
//!
//! A signature takes its room from the reserved bytes (1008), as with rpmsign, so that what follows stays
//! in its place. Tag numbers are those of rpm's `rpmtag.h`.

use std::io::Cursor;

use crate::error::Error;
use crate::sign::Signer;

const MAGIC: [u8; 8] = [0x8e, 0xad, 0xe8, 0x01, 0, 0, 0, 0];
/// Magic, number of entries, size of the store.
pub(crate) const INTRO: usize = 16;
const ENTRY: usize = 16;
/// More than any signature header has; a header has files, and may be larger.
const MAX_ENTRIES: usize = 1 << 16;
pub(crate) const MAX_STORE: usize = 256 << 20;

const REGION: u32 = 62;
/// Over the header: RSA, and DSA or EdDSA.
const RSA: u32 = 268;
const RESERVED: u32 = 1008;
/// Signatures, which a new one replaces: DSA, RSA, OpenPGP (rpm 6), PGP and GPG over header and payload.
const SIGNATURES: [u32; 5] = [267, RSA, 278, 1002, 1005];

/// One entry with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tag: u32,
    kind: u32,
    count: u32,
    pub(crate) data: Vec<u8>,
}

/// The size of a header with its intro, from the intro; the error says what is wrong with it.
pub(crate) fn size(intro: &[u8; INTRO]) -> Result<usize, String> {
    if intro[..8] != MAGIC {
        return Err("there is no header where one is expected".to_owned());
    }
    let (entries, store) = (number(intro, 8), number(intro, 12));
    if entries > MAX_ENTRIES || store > MAX_STORE {
        return Err(format!(
            "a header says {entries} entries and {store} bytes, expected at most {MAX_ENTRIES} and \
             {MAX_STORE}"
        ));
    }
    Ok(INTRO + entries * ENTRY + store)
}

/// The big-endian number at an offset that is there.
fn number(bytes: &[u8], at: usize) -> usize {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map_or(0, |word| u32::from_be_bytes(*word) as usize)
}

/// The entries of a whole header, without the region.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let intro = bytes.first_chunk().ok_or("the header is cut off")?;
    if size(intro)? != bytes.len() {
        return Err("the header is cut off".to_owned());
    }
    let (entries, store) = bytes[INTRO..].split_at(number(intro, 8) * ENTRY);
    let mut found = Vec::new();
    for entry in entries.chunks_exact(ENTRY) {
        let tag = number(entry, 0);
        let (kind, offset, count) = (number(entry, 4), number(entry, 8), number(entry, 12));
        let bad = || format!("tag {tag} does not lie within its header");
        let rest = store.get(offset..).ok_or_else(bad)?;
        let len = match kind {
            1 | 2 | 7 => Some(count),
            3 => count.checked_mul(2),
            4 => count.checked_mul(4),
            5 => count.checked_mul(8),
            6 | 8 | 9 => {
                let count = if kind == 6 { 1 } else { count };
                let mut ends = rest.iter().enumerate().filter(|(_, byte)| **byte == 0);
                match count {
                    0 => Some(0),
                    n => ends.nth(n - 1).map(|(at, _)| at + 1),
                }
            }
            _ => return Err(format!("tag {tag} is of type {kind}, expected 1 to 9")),
        };
        let data = len.and_then(|len| rest.get(..len)).ok_or_else(bad)?;
        let word = |n: usize| u32::try_from(n).expect("it was read from four bytes");
        let entry =
            Entry { tag: word(tag), kind: word(kind), count: word(count), data: data.to_vec() };
        if entry.tag != REGION {
            found.push(entry);
        }
    }
    Ok(found)
}

/// A signature header of entries, not yet padded.
fn build(mut entries: Vec<Entry>) -> Vec<u8> {
    entries.sort_by_key(|entry| entry.tag);
    let word = |n: usize| u32::try_from(n).expect("signature headers are small").to_be_bytes();
    let (mut table, mut store) = (Vec::new(), Vec::new());
    for entry in &entries {
        let alignment: usize = match entry.kind {
            3 => 2,
            4 => 4,
            5 => 8,
            _ => 1,
        };
        store.resize(store.len().next_multiple_of(alignment), 0);
        for part in [entry.tag, entry.kind] {
            table.extend(part.to_be_bytes());
        }
        table.extend(word(store.len()));
        table.extend(entry.count.to_be_bytes());
        store.extend(&entry.data);
    }
    let all = entries.len() + 1;
    let back = 0_u32.wrapping_sub(u32::from_be_bytes(word(all * ENTRY)));
    let region = |offset: [u8; 4]| [word(REGION as usize), word(7), offset, word(ENTRY)].concat();
    let first = region(word(store.len()));
    store.extend(region(back.to_be_bytes()));
    [&MAGIC[..], &word(all), &word(store.len()), &first, &table, &store].concat()
}

/// Makes a signature over `header` and puts it into a signature header (not padded) instead of any that
/// is there. The result is padded to 8 bytes, and as long as what it replaces where the reserved bytes
/// suffice. `date` is the time for the signature, in seconds since 1970.
pub(crate) fn sign(
    signature_header: &[u8],
    header: &[u8],
    signer: &Signer,
    date: i64,
) -> Result<Vec<u8>, Error> {
    let damaged = |what: String| Error::failed(format!("the signature header is damaged: {what}"));
    let entries = parse(signature_header).map_err(damaged)?;
    signer.check_for_rpm()?;
    let signature = signer.sign_detached(&mut Cursor::new(header), date)?;
    if !signature.is_rsa() {
        let made = signature.info().algorithm;
        return Err(Error::failed(format!(
            "the signature is {made}, which not every rpm verifies"
        ))
        .hint("sign .rpm packages with an RSA key, best of 4096 bits"));
    }
    Ok(with_signature(entries, signature.to_binary()?, signature_header.len()))
}

/// A signature header with a signature instead of any that is there: as long as before (`len`, not
/// padded) where the reserved bytes suffice, and then padded.
fn with_signature(mut entries: Vec<Entry>, data: Vec<u8>, len: usize) -> Vec<u8> {
    let count = u32::try_from(data.len()).expect("a signature is small");
    entries.retain(|entry| !SIGNATURES.contains(&entry.tag));
    entries.push(Entry { tag: RSA, kind: 7, count, data });
    let mut bytes = build(entries.clone());
    if let Some(reserved) = entries.iter_mut().find(|entry| entry.tag == RESERVED) {
        // It comes last and is not aligned: the header is shorter by as much as it is.
        let left = (reserved.data.len() + len).saturating_sub(bytes.len());
        reserved.data.resize(left, 0);
        reserved.count = u32::try_from(left).expect("at most the header's size");
        if left == 0 {
            entries.retain(|entry| entry.tag != RESERVED);
        }
        bytes = build(entries);
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u32, kind: u32, count: u32, data: &[u8]) -> Entry {
        Entry { tag, kind, count, data: data.to_vec() }
    }

    #[test]
    fn a_header_is_read_back_and_laid_out_as_rpm_does() {
        let entries = vec![
            entry(269, 6, 1, b"abc\0"),
            entry(270, 5, 1, &7_u64.to_be_bytes()),
            entry(1000, 4, 2, &[0, 0, 0, 1, 0, 0, 0, 2]),
            entry(1004, 7, 3, b"xyz"),
        ];
        let bytes = build(entries.clone());
        assert_eq!(parse(&bytes), Ok(entries));
        // Five entries, and in the store: 4, 4 to align, 8, 8, 3, and the region's 16.
        assert_eq!(bytes[8..16], [0, 0, 0, 5, 0, 0, 0, 43]);
        assert_eq!(bytes[bytes.len() - 16..], bytes_of([62, 7, 0xffff_ffb0, 16]));
        assert_eq!(bytes[16..32], bytes_of([62, 7, 27, 16]));
    }

    fn bytes_of(words: [u32; 4]) -> [u8; 16] {
        words.map(u32::to_be_bytes).concat().try_into().unwrap()
    }

    #[test]
    fn a_signature_takes_its_room_from_the_reserved_bytes() {
        // Of a package over 4 GiB: numbers of eight bytes, which are aligned anew.
        let before = vec![
            entry(269, 6, 1, &[&[b'1'; 40][..], b"\0"].concat()),
            entry(270, 5, 1, &(5_u64 << 30).to_be_bytes()),
            entry(271, 5, 1, &(6_u64 << 30).to_be_bytes()),
            entry(273, 6, 1, &[&[b'2'; 64][..], b"\0"].concat()),
            entry(1004, 7, 16, &[4; 16]),
            entry(RESERVED, 7, 4128, &[0; 4128]),
        ];
        let len = build(before.clone()).len();
        for size in [70, 287, 310, 566, 567, 568, 3000] {
            let signed = with_signature(before.clone(), vec![7; size], len);
            assert_eq!(signed.len(), len.next_multiple_of(8), "{size}");
            let entries = parse(&signed[..len]).unwrap();
            assert_eq!(entries[0], entry(RSA, 7, u32::try_from(size).unwrap(), &vec![7; size]));
            assert_eq!(entries[1..6], before[..5]);
            // Another one takes its place, and the room comes back.
            let again = with_signature(entries, vec![8; 70], len);
            assert_eq!(again, with_signature(before.clone(), vec![8; 70], len));
        }
        // More than was reserved: the header grows.
        let signed = with_signature(before.clone(), vec![7; 5000], len);
        assert!(signed.len() > len);
        // The signature came, the reserved bytes went.
        assert_eq!(parse_padded(&signed).len(), before.len());
    }

    fn parse_padded(bytes: &[u8]) -> Vec<Entry> {
        let size = size(bytes.first_chunk().unwrap()).unwrap();
        parse(&bytes[..size]).unwrap()
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        let good = build(vec![entry(269, 6, 1, b"abc\0"), entry(1004, 7, 3, b"xyz")]);
        for cut in 0..good.len() {
            assert!(parse(&good[..cut]).is_err(), "{cut}");
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let _ = parse(&bytes);
            }
        }
        let mut strings = good.clone();
        strings[32 + 4..32 + 8].copy_from_slice(&8_u32.to_be_bytes());
        strings[32 + 12..32 + 16].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(parse(&strings), Err("tag 269 does not lie within its header".to_owned()));
    }
}
