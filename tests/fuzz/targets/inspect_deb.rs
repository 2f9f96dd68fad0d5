//! `.deb` packages.

#![no_main]

use gfxpack::inspect::inspect;
use gfxpack_fuzz::{bounded, file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"!<arch>\n") {
        let path = file(data);
        // A compressed tar of many members comes out of few bytes.
        if let Ok(report) = bounded(data, 128 << 20, 64, || inspect(&path)) {
            assert_eq!(report.size, data.len() as u64);
        }
    }
});
