//! The header and the stream of a compressed bundle.

#![no_main]

use std::io::{self, Read};

use gfxpack::fatbin::bundle::Bundle;
use gfxpack::fatbin::ccob::{CcobHeader, Method};
use gfxpack_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // A table of 4096 entries with ids of 1024 bytes can come out of very few.
    bounded(data, 24 << 20, 16, || {
        let len = data.len() as u64;
        let Ok(header) = CcobHeader::read(&data, 0, len) else {
            assert!(Bundle::read(&data, 0, len).is_err() || !data.starts_with(b"CCOB"));
            return;
        };
        assert!(header.header_size <= header.total_size && header.total_size <= len);
        let ratio = if header.method == Method::Zstd { 32 << 10 } else { 1032 };
        let payload = header.total_size - header.header_size;
        assert!(header.uncompressed_size <= payload * ratio);
        let Ok(bundle) = Bundle::read(&data, 0, len) else { return };
        assert_eq!(bundle.total_size, header.total_size);
        for entry in &bundle.entries {
            assert!(entry.size == 0 || entry.offset + entry.size <= header.uncompressed_size);
        }
        let verified = bundle.verify(&data);
        for entry in bundle.entries.iter().filter(|e| e.size > 0).take(4) {
            let stream = bundle.open_entry(&data, entry).map_err(io::Error::other);
            let read = stream.and_then(|s| io::copy(&mut s.take(1 << 20), &mut io::sink()));
            if verified.is_ok() {
                assert_eq!(read.expect("verified"), entry.size.min(1 << 20));
            }
        }
    });
});
