//! What the two suites of damage share: kernels of archives, and the tables of `docs/verify.md`.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use gfxpack::kpack::reader::Archive;
use gfxpack::kpack::writer::{Compression, FrameCompressor, Writer};
use gfxpack::target::TargetId;

#[derive(Clone)]
pub struct Kernel {
    pub binary: String,
    pub co_index: u32,
    pub bytes: Vec<u8>,
    /// The frame is stored without an entry that names it.
    pub unnamed: bool,
}

pub fn read_kpack(bytes: &[u8]) -> Vec<Kernel> {
    let archive = Archive::open(&bytes).unwrap();
    let entries = archive.entries().iter();
    entries
        .map(|e| Kernel {
            binary: e.binary.clone(),
            co_index: e.co_index,
            bytes: archive.read(e).unwrap(),
            unnamed: false,
        })
        .collect()
}

pub fn write_kpack(isa: &TargetId, kernels: &[Kernel]) -> Vec<u8> {
    let out = Cursor::new(Vec::new());
    let compression = Compression::Zstd { level: 3 };
    let mut writer = Writer::new(out, "blas_lib", isa, compression).unwrap();
    let mut compressor = FrameCompressor::new(3).unwrap();
    for kernel in kernels {
        let size = kernel.bytes.len() as u64;
        let frame = compressor.compress(&kernel.bytes[..], size).unwrap();
        let ordinal = writer.push_frame(&frame, size).unwrap();
        if !kernel.unnamed {
            writer.add_entry(&kernel.binary, kernel.co_index, ordinal, size).unwrap();
        }
    }
    writer.finish().unwrap().0.into_inner()
}

/// The page's table of that name must be this one; `GFXPACK_UPDATE_DOCS=1` writes it.
#[track_caller]
pub fn table_is_on_the_page(name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/verify.md");
    let page = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let from = page.find(&begin).unwrap() + begin.len();
    let to = page.find(&end).unwrap();
    if std::env::var_os("GFXPACK_UPDATE_DOCS").is_some() {
        let mut made = page;
        made.replace_range(from..to, table);
        fs::write(&path, made).unwrap();
    } else {
        let same = page[from..to] == *table;
        assert!(same, "docs/verify.md is old: run this test with GFXPACK_UPDATE_DOCS=1");
    }
}
