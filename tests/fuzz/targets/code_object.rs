//! Code objects: their header, and the metadata note.

#![no_main]

use gfxpack::fatbin::code_object::{CodeObjectHeader, Metadata};
use gfxpack_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    bounded(data, 4 << 20, 128, || {
        let Ok(header) = CodeObjectHeader::read(&data) else { return };
        if let Some(target) = &header.target {
            header.check(target);
        }
        let _ = Metadata::read(&data, &header);
    });
});
