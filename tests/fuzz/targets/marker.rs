//! The marker of a converted file, in both of its forms.

#![no_main]

use std::path::Path;

use gfxpack::kpack::marker::{Marker, ParsedMarker};
use gfxpack_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(parsed) = bounded(data, 4 << 20, 32, || Marker::parse(data)) else { return };
    match parsed {
        ParsedMarker::Map(marker) => {
            let bytes = marker.to_bytes().expect("what was read can be written");
            assert_eq!(Marker::parse(&bytes).expect("ours"), ParsedMarker::Map(marker.clone()));
            let paths = marker.kpack_search_paths.len();
            let isa = "gfx90a:sramecc+:xnack-".parse().expect("a target id");
            let found = marker.resolve(Path::new("/opt/rocm/lib"), &isa);
            assert!(found.len() <= 4 * paths && found.is_empty() == (paths == 0));
            if let Ok(text) = marker.to_text() {
                let expected = ParsedMarker::Text(marker.kpack_search_paths);
                assert_eq!(Marker::parse(&text).expect("ours"), expected);
            }
        }
        ParsedMarker::Text(paths) => {
            assert!(paths.iter().all(|path| !path.is_empty() && !path.contains([':', '\0'])));
            let marker = Marker { kpack_search_paths: paths.clone(), kernel_name: String::new() };
            // One that begins as a map does, which was behind a colon, is refused.
            if paths
                .first()
                .is_some_and(|path| !path.starts_with(|c| ('\u{780}'..='\u{7ff}').contains(&c)))
            {
                let text = marker.to_text().expect("what was read can be written");
                assert_eq!(Marker::parse(&text).expect("ours"), ParsedMarker::Text(paths));
            }
        }
    }
});
