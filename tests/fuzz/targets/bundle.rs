//! A bundle as it is, and the same bytes as a compressed one: both must say the same.

#![no_main]

use std::io::{self, Read, Write};

use gfxpack::fatbin::bundle::{Bundle, Form};
use gfxpack::fatbin::read_bundles;
use gfxpack_fuzz::bounded;
use libfuzzer_sys::fuzz_target;
use md5::{Digest, Md5};

fuzz_target!(|data: &[u8]| {
    bounded(data, 4 << 20, 64, || {
        if let Ok(bundles) = read_bundles(&data) {
            let mut end = 0;
            for bundle in &bundles {
                assert!(bundle.offset >= end, "bundles are in order and share nothing");
                end = bundle.offset + bundle.total_size;
            }
            assert!(end <= data.len() as u64);
        }
        let Ok(bundle) = Bundle::read(&data, 0, data.len() as u64) else { return };
        let contents = contents(data, &bundle);
        if bundle.form == Form::Plain {
            bundle.verify(&data).expect("a bundle whose table is good can be read");
            let len = usize::try_from(bundle.total_size).expect("it is in memory");
            for version in 1..=3 {
                for zstd in [false, true] {
                    let packed = compressed(&data[..len], version, zstd);
                    let other = Bundle::read(&packed, 0, packed.len() as u64);
                    let other = other.expect("a compressed bundle of a good one");
                    assert_eq!(other.entries, bundle.entries);
                    assert_eq!(other.total_size, packed.len() as u64);
                    other.verify(&packed).expect("its hash is right");
                    assert_eq!(self::contents(&packed, &other), contents);
                }
            }
        }
    });
});

/// The contents of all entries, read one by one; `None` for what cannot be read.
fn contents(data: &[u8], bundle: &Bundle) -> Vec<Option<Vec<u8>>> {
    assert!(bundle.total_size <= data.len() as u64);
    let mut left = 1 << 20;
    let mut all = Vec::new();
    for entry in &bundle.entries {
        assert_eq!(entry.target.is_none(), entry.id.starts_with("host-"));
        if let Some(target) = &entry.target {
            assert_eq!(bundle.entry(target), Some(entry), "no target is there twice");
        }
        if entry.size > left {
            // Of a compressed bundle; it is told by the size that is claimed.
            continue;
        }
        left -= entry.size;
        let mut bytes = Vec::new();
        let read = bundle.open_entry(&data, entry).map_err(io::Error::other);
        let read = read.and_then(|mut stream| stream.read_to_end(&mut bytes));
        assert!(read.as_ref().is_ok_and(|&n| n as u64 == entry.size) || read.is_err());
        assert!(bundle.form != Form::Plain || read.is_ok());
        all.push(read.is_ok().then_some(bytes));
    }
    all
}

fn compressed(bundle: &[u8], version: u16, zstd: bool) -> Vec<u8> {
    let stream = if zstd {
        zstd::bulk::compress(bundle, 1).expect("in memory")
    } else {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bundle).expect("in memory");
        encoder.finish().expect("in memory")
    };
    let mut bytes = b"CCOB".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(u16::from(zstd).to_le_bytes());
    let header = [20, 24, 32][usize::from(version) - 1];
    for size in [header + stream.len(), bundle.len()].iter().skip(usize::from(version == 1)) {
        let size = *size as u64;
        bytes.extend(&size.to_le_bytes()[..if version == 3 { 8 } else { 4 }]);
    }
    bytes.extend(&Md5::digest(bundle)[..8]);
    assert_eq!(bytes.len(), header);
    bytes.extend(stream);
    bytes
}
