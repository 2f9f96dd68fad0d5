//! kpack archives: the table of contents, and every entry.

#![no_main]

use std::collections::BTreeSet;
use std::io::{self, Read};

use gfxpack::kpack::reader::Archive;
use gfxpack_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    bounded(data, 4 << 20, 128, || {
        let Ok(archive) = Archive::open(&data) else { return };
        let mut names = BTreeSet::new();
        let mut left: u64 = 16 << 20;
        for entry in archive.entries() {
            assert!(names.insert((entry.name(), &entry.isa)), "an entry is there twice");
            assert_eq!(archive.get(&entry.binary, entry.co_index, &entry.isa), Some(entry));
            let stored = archive.stored_size(entry.ordinal).expect("the ordinal was checked");
            assert!(stored <= data.len() as u64);
            assert!(archive.is_compressed() || stored == entry.original_size);
            if left == 0 {
                continue;
            }
            let Ok(stream) = archive.open_entry(entry) else { continue };
            let most = entry.original_size.min(left);
            match io::copy(&mut stream.take(left), &mut io::sink()) {
                Ok(n) => {
                    assert_eq!(n, most, "a stream that does not fail gives what the entry says");
                    left -= n;
                }
                Err(_) => {
                    assert!(archive.is_compressed(), "stored bytes can be read");
                    left = left.saturating_sub(1 << 20);
                }
            }
        }
    });
});
