//! A set of shards that takes a build about a second: the examples, with a library of many kernels and some large files.

// Each test crate uses some of this; the lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{copy_tree, example_shards};
use crate::embed::{Library, compile, variant};
use crate::random::Random;

/// Makes the shards below `dir`. Of the library there are `bundles` bundles for two ISAs, of the large files `mebibytes`.
pub fn shards(dir: &Path, bundles: u32, mebibytes: usize) -> PathBuf {
    let shards = dir.join("shards");
    copy_tree(&example_shards(), &shards);
    let lib = shards.join("gfx110X-build/fft_lib_gfx110X-dgpu/math-libs/rocFFT/stage/lib");
    let work = tempfile::tempdir().unwrap();
    let bundle = compile(work.path(), "many", &["gfx1100", "gfx1101"], &[]);
    let variants: Vec<_> = (0..bundles).map(|n| variant(&bundle, n)).collect();
    let wrappers: Vec<_> = (0..variants.len()).collect();
    Library::new("many", variants, &wrappers).link(work.path(), &lib.join("libmany.so"));
    let mut random = Random(7);
    for name in ["data.one", "data.two"] {
        // Bytes of sixteen kinds: compressible, and not so much that they vanish.
        let mut bytes = Vec::with_capacity(mebibytes << 19);
        while bytes.len() < mebibytes << 19 {
            bytes.extend(random.next().to_le_bytes().map(|byte| byte & 0x2d));
        }
        fs::write(lib.join(name), bytes).unwrap();
    }
    shards
}
