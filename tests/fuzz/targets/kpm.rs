//! Manifests of kpack archives.

#![no_main]

use gfxpack::kpack::kpm::Kpm;
use gfxpack_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(kpm) = bounded(data, 4 << 20, 64, || Kpm::read(data)) else { return };
    let bytes = kpm.to_bytes().expect("what was read can be written");
    assert_eq!(Kpm::read(bytes.as_slice()).expect("ours"), kpm);
    let merged = Kpm::merge([kpm.clone(), kpm.clone()]).expect("equal manifests agree");
    assert_eq!(merged, kpm);
});
