//! Archives that are whole, that lie, and that are damaged.

use std::collections::BTreeMap;

use super::*;
use crate::kpack::toc::Variants;
use crate::kpack::writer::{Compression, FrameCompressor, WriteError, Writer};

fn isa() -> TargetId {
    "gfx90a:xnack+".parse().unwrap()
}

const ZSTD: Compression = Compression::Zstd { level: 3 };

/// Two objects, three entries.
fn archive(compression: Compression) -> Vec<u8> {
    let out = io::Cursor::new(Vec::new());
    let mut writer = Writer::new(out, "blas_lib", &isa(), compression).unwrap();
    let mut compressor = FrameCompressor::new(3).unwrap();
    for content in contents() {
        let size = content.len() as u64;
        if compression == Compression::None {
            writer.push_stored(&mut content.as_slice(), size).unwrap();
        } else {
            let frame = compressor.compress(content.as_slice(), size).unwrap();
            writer.push_frame(&frame, size).unwrap();
        }
    }
    writer.add_entry("p/lib/b.so", 10, 1, 3000).unwrap();
    writer.add_entry("p/lib/b.so", 2, 0, 500).unwrap();
    writer.add_entry("p/lib/a.so", 0, 1, 3000).unwrap();
    let (out, written) = writer.finish().unwrap();
    let bytes = out.into_inner();
    assert_eq!(written.size, bytes.len() as u64);
    assert_eq!((written.kernel_count, written.unique_count), (3, 2));
    bytes
}

fn contents() -> [Vec<u8>; 2] {
    let noise = |n: u32| (0..n).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    [noise(500), noise(3000)]
}

/// The archive with its table of contents changed.
fn with_toc(bytes: &[u8], change: impl FnOnce(&mut Toc)) -> Vec<u8> {
    let at = usize::try_from(u64::from_le_bytes(bytes[8..16].try_into().unwrap())).unwrap();
    let mut toc = decode_toc(&bytes[at..], 0).unwrap();
    change(&mut toc);
    [&bytes[..at], &rmp_serde::to_vec_named(&toc).unwrap()].concat()
}

fn entry(toc: &mut Toc) -> &mut TocEntry {
    toc.toc.get_mut("p/lib/a.so#0").unwrap().0.get_mut("gfx90a:xnack+").unwrap()
}

fn error(bytes: &[u8]) -> KpackError {
    Archive::open(&bytes).err().expect("the archive should be refused")
}

fn read_all(bytes: &[u8]) -> Result<(), KpackError> {
    let archive = Archive::open(&bytes)?;
    archive.entries().iter().try_for_each(|entry| archive.read(entry).map(|_| ()))
}

#[test]
fn an_archive_comes_back() {
    for compression in [Compression::None, ZSTD] {
        let bytes = archive(compression);
        assert_eq!(bytes, archive(compression));
        let archive = Archive::open(&bytes).unwrap();
        assert_eq!(archive.group_name(), "blas_lib");
        assert_eq!(archive.gfx_arch_family(), "gfx90a:xnack+");
        assert_eq!(archive.gfx_arches(), [isa()]);
        assert_eq!(archive.unique_count(), 2);
        let names: Vec<_> = archive.entries().iter().map(Entry::name).collect();
        assert_eq!(names, ["p/lib/a.so#0", "p/lib/b.so#2", "p/lib/b.so#10"]);
        let [small, large] = contents();
        let get = |name, i| archive.read(archive.get(name, i, &isa()).unwrap()).unwrap();
        assert_eq!(get("p/lib/a.so", 0), large);
        assert_eq!(get("p/lib/b.so", 2), small);
        assert_eq!(get("p/lib/b.so", 10), large);
        assert_eq!(archive.get("p/lib/b.so", 1, &isa()), None);
        assert_eq!(archive.get("p/lib/b.so", 2, &"gfx90a".parse().unwrap()), None);
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let bytes = archive(ZSTD);
    assert_eq!(bytes[..8], *b"KPAK\x01\0\0\0");
    assert_eq!(bytes[16..64], [0; 48]);
    assert_eq!(bytes[64..68], 2_u32.to_le_bytes());
    let first = u32::from_le_bytes(bytes[68..72].try_into().unwrap()) as usize;
    assert_eq!(zstd::decode_all(&bytes[72..72 + first]).unwrap(), contents()[0]);
    // Content checksum and size are there.
    assert_eq!(bytes[76] & 4, 4);
    let at = usize::try_from(u64::from_le_bytes(bytes[8..16].try_into().unwrap())).unwrap();
    let toc = String::from_utf8_lossy(&bytes[at..]);
    let keys = [
        "format_version",
        "group_name",
        "gfx_arch_family",
        "gfx_arches",
        "compression_scheme",
        "zstd_offset",
        "zstd_size",
        "p/lib/a.so#0",
        "gfx90a:xnack+",
        "type",
        "ordinal",
        "original_size",
        "p/lib/b.so#10",
        "p/lib/b.so#2",
    ];
    let mut rest = &*toc;
    for key in keys {
        let found = rest.find(key).unwrap_or_else(|| panic!("{key} out of order"));
        rest = &rest[found + key.len()..];
    }
    assert!(!toc.contains("blobs"));
}

#[test]
fn truncation_is_always_seen_and_nothing_panics() {
    for compression in [Compression::None, ZSTD] {
        let bytes = archive(compression);
        for cut in 0..bytes.len() {
            assert!(Archive::open(&&bytes[..cut]).is_err(), "{cut}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_frame_is_seen() {
    let bytes = archive(ZSTD);
    let end = usize::try_from(u64::from_le_bytes(bytes[8..16].try_into().unwrap())).unwrap();
    for at in 64 * 8..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[at / 8] ^= 1 << (at % 8);
        let Ok(archive) = Archive::open(&bad) else { continue };
        for entry in archive.entries() {
            // Some bits do not matter: the TOC has no checksum, a descriptor has an unused one,
            // and a match can be found at two places.
            if let Ok(content) = archive.read(entry) {
                assert!(at / 8 >= end || contents().contains(&content), "{}", at / 8);
            }
        }
    }
}

#[test]
fn no_changed_byte_panics() {
    for compression in [Compression::None, ZSTD] {
        let bytes = archive(compression);
        let toc = usize::try_from(u64::from_le_bytes(bytes[8..16].try_into().unwrap())).unwrap();
        for at in (0..80).chain(toc..bytes.len()) {
            for value in [0, 1, 0x7f, 0x80, 0x90, 0xc0, 0xc6, 0xcf, 0xdb, 0xdd, 0xdf, 0xff] {
                let mut bad = bytes.clone();
                bad[at] = value;
                let _ = read_all(&bad);
            }
        }
    }
}

#[test]
fn lies_are_told() {
    for compression in [Compression::None, ZSTD] {
        let good = archive(compression);
        let zstd = compression != Compression::None;
        let toc = |change: &dyn Fn(&mut Toc)| error(&with_toc(&good, change));
        assert!(matches!(toc(&|t| entry(t).ordinal = 2), KpackError::Ordinal { ordinal: 2, .. }));
        assert!(matches!(toc(&|t| entry(t).ordinal = 1 << 32), KpackError::Ordinal { .. }));
        let large = |t: &mut Toc| entry(t).original_size = 1 << 60;
        assert!(matches!(toc(&large), KpackError::ClaimedSize { .. }));
        assert!(matches!(toc(&|t| entry(t).kind = "elf".into()), KpackError::Type { .. }));
        assert!(matches!(toc(&|t| t.format_version = 2), KpackError::Version { found: 2, .. }));
        let scheme = |t: &mut Toc| t.compression_scheme = "lz4".into();
        assert!(matches!(toc(&scheme), KpackError::Scheme { .. }));
        let other = if zstd { SCHEME_NONE } else { SCHEME_ZSTD };
        let scheme = |t: &mut Toc| t.compression_scheme = other.into();
        assert!(matches!(toc(&scheme), KpackError::Missing { .. }));
        assert!(matches!(toc(&|t| t.gfx_arches = vec!["x".into()]), KpackError::Isa { .. }));
        for name in ["p/lib/a.so", "p#", "#0", "p#-1", "p#01", "p#4294967296"] {
            let variants = || Variants(BTreeMap::new());
            let named = |t: &mut Toc| drop(t.toc.insert(name.to_owned(), variants()));
            assert!(matches!(toc(&named), KpackError::Name { .. }), "{name}");
        }
        // One byte more or less than the object has.
        for size in [2999, 3001] {
            let bad = with_toc(&good, |t| entry(t).original_size = size);
            assert!(read_all(&bad).is_err());
        }
        for offset in [0, 15, good.len() as u64, good.len() as u64 + 1, u64::MAX] {
            let mut bad = good.clone();
            bad[8..16].copy_from_slice(&offset.to_le_bytes());
            let found = error(&bad);
            assert!(matches!(found, KpackError::TocRange { .. } | KpackError::Toc { .. }));
        }
        let mut bad = good.clone();
        bad[4] = 2;
        assert!(matches!(error(&bad), KpackError::Version { place: "header", found: 2 }));
        bad[0] = b'X';
        assert!(matches!(error(&bad), KpackError::Magic { .. }));
        let bad = [good.as_slice(), &[0]].concat();
        assert!(matches!(error(&bad), KpackError::TocTail { extra: 1 }));
    }
}

#[test]
fn lies_about_the_blob_are_told() {
    let stored = archive(Compression::None);
    for (offset, size) in [(1 << 40, 1), (64, u64::MAX), (u64::MAX, 2), (0, 8)] {
        let bad = with_toc(&stored, |t| {
            t.blobs.as_mut().unwrap()[1] = TocBlob { offset, size };
        });
        assert!(matches!(error(&bad), KpackError::Range { .. }));
    }
    let zstd = archive(ZSTD);
    let bad = with_toc(&zstd, |t| t.zstd_size = Some(u64::MAX));
    assert!(matches!(error(&bad), KpackError::Range { .. }));
    let bad = with_toc(&zstd, |t| t.zstd_size = Some(3));
    assert!(matches!(error(&bad), KpackError::Range { .. }));
    for (at, value) in [(64, u32::MAX), (68, u32::MAX), (64, 3), (68, 0)] {
        let mut bad = zstd.clone();
        bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert!(matches!(error(&bad), KpackError::Range { .. }), "{at}");
    }
    let mut bad = zstd.clone();
    bad[64] = 1;
    assert!(matches!(error(&bad), KpackError::BlobTail { count: 1, .. }));
}

#[test]
fn a_long_name_for_many_isas_is_refused() {
    let many = |toc: &mut Toc, name_len: usize| {
        let entry = toc.toc["p/lib/a.so#0"].0["gfx90a:xnack+"].clone();
        let variants = (0..5_000).map(|i| (format!("gfx1{i}"), entry.clone())).collect();
        toc.toc.insert(format!("{}#0", "n".repeat(name_len)), Variants(variants));
    };
    // Some 200 KB, of which 500 MB of names would come.
    let bytes = with_toc(&archive(Compression::None), |toc| many(toc, 100_000));
    assert!(bytes.len() < 500_000);
    assert!(matches!(error(&bytes), KpackError::Names { .. }));
    let bytes = with_toc(&archive(Compression::None), |toc| many(toc, 4096));
    assert_eq!(Archive::open(&bytes).unwrap().entries().len(), 5_003);
}

#[test]
fn a_name_twice_is_refused() {
    let mut bytes = archive(ZSTD);
    let at = bytes.windows(12).position(|w| w == b"p/lib/b.so#2").unwrap();
    // `b.so#10` and `b.so#2` become `a.so#0` too: the same length is needed for one of them.
    bytes[at + 6] = b'a';
    bytes[at + 11] = b'0';
    let found = error(&bytes);
    let KpackError::Toc { source, .. } = &found else { panic!("{found}") };
    assert!(source.to_string().contains("occurs twice"), "{source}");
}

#[test]
fn the_writer_refuses_what_would_lie() {
    let new =
        |compression| Writer::new(io::Cursor::new(Vec::new()), "g", &isa(), compression).unwrap();
    let mut writer = new(ZSTD);
    let frame = FrameCompressor::new(1).unwrap().compress(&b"abc"[..], 3).unwrap();
    assert!(matches!(writer.push_frame(&frame, 4), Err(WriteError::FrameSize { .. })));
    assert!(matches!(writer.push_frame(b"no frame", 4), Err(WriteError::FrameSize { .. })));
    assert!(matches!(writer.push_stored(&mut &b"abc"[..], 3), Err(WriteError::NotStored)));
    assert_eq!(writer.push_frame(&frame, 3).unwrap(), 0);
    assert!(matches!(writer.add_entry("p", 0, 1, 3), Err(WriteError::Ordinal { .. })));
    assert!(matches!(writer.add_entry("p", 0, 0, 4), Err(WriteError::EntrySize { .. })));
    writer.add_entry("p", 0, 0, 3).unwrap();
    assert!(matches!(writer.add_entry("p", 0, 0, 3), Err(WriteError::Duplicate { .. })));
    for size in [2, 4] {
        let mut writer = new(Compression::None);
        let pushed = writer.push_stored(&mut &b"abc"[..], size);
        assert!(matches!(pushed, Err(WriteError::FrameSize { .. })), "{size}");
        let mut compressor = FrameCompressor::new(1).unwrap();
        assert!(compressor.compress(&b"abc"[..], size).is_err(), "{size}");
    }
}

#[test]
fn a_blob_over_4_gib_is_refused_with_advice() {
    /// Counts and forgets.
    struct Counter(u64);
    impl io::Write for Counter {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0 += buf.len() as u64;
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl io::Seek for Counter {
        fn seek(&mut self, _: io::SeekFrom) -> io::Result<u64> {
            Ok(self.0)
        }
    }
    let mut writer = Writer::new(Counter(0), "blas_lib", &isa(), ZSTD).unwrap();
    // 64 MiB that no one looks into behind a frame's header.
    let mut frame = FrameCompressor::new(1).unwrap().compress(&b"abc"[..], 3).unwrap();
    frame.resize(64 << 20, 0);
    for _ in 0..63 {
        writer.push_frame(&frame, 3).unwrap();
    }
    let error = writer.push_frame(&frame, 3).unwrap_err();
    assert!(matches!(error, WriteError::TooLarge { .. }));
    assert!(error.to_string().contains("--kpack-scope prefix"), "{error}");
    // The archive is still whole without it.
    assert_eq!(writer.finish().unwrap().1.unique_count, 63);
}

#[test]
fn large_objects_are_streamed_and_checked_all_the_same() {
    let size = (16 << 20) + 1;
    let mut compressor = FrameCompressor::new(1).unwrap();
    let frame = compressor.compress(io::repeat(7).take(size), size).unwrap();
    assert_eq!(frame, compressor.compress(io::repeat(7).take(size), size).unwrap());
    assert!(compressor.compress(io::repeat(7).take(size - 1), size).is_err());
    assert!(compressor.compress(io::repeat(7).take(size + 1), size).is_err());
    assert_eq!(frame[4] & 4, 4, "content checksum");
    let out = io::Cursor::new(Vec::new());
    let mut writer = Writer::new(out, "g", &isa(), ZSTD).unwrap();
    let ordinal = writer.push_frame(&frame, size).unwrap();
    writer.add_entry("p", 0, ordinal, size).unwrap();
    let bytes = writer.finish().unwrap().0.into_inner();
    let archive = Archive::open(&bytes).unwrap();
    let mut stream = archive.open_entry(&archive.entries()[0]).unwrap();
    assert_eq!(io::copy(&mut stream, &mut io::sink()).unwrap(), size);
    // A bomb: more comes out than the entry says.
    let bad = with_toc(&bytes, |t| {
        t.toc.get_mut("p#0").unwrap().0.get_mut("gfx90a:xnack+").unwrap().original_size = 1000;
    });
    assert!(read_all(&bad).is_err());
}

#[test]
fn metadata_of_others_is_skipped() {
    let bytes = b"\x81\xa7gfx1100\x84\xa4type\xa5hsaco\xa8metadata\x81\xa1x\x93\x01\xc0\xa1y\
        \xa7ordinal\x03\xadoriginal_size\xcd\x01\x00";
    let (variants, used): (Variants, _) = msgpack::decode(bytes).unwrap();
    assert_eq!(used, bytes.len());
    let entry = &variants.0["gfx1100"];
    assert_eq!((entry.ordinal, entry.original_size), (3, 256));
}
