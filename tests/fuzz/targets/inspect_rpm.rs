//! `.rpm` packages.

#![no_main]

use gfxpack::inspect::inspect;
use gfxpack_fuzz::{bounded, file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if data.starts_with(&[0xed, 0xab, 0xee, 0xdb]) {
        let path = file(data);
        if let Ok(report) = bounded(data, 2 << 20, 256, || inspect(&path)) {
            assert_eq!(report.size, data.len() as u64);
        }
    }
});
