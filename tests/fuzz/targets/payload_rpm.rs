//! The payload of an `.rpm`, read with its files' content and held against a header that lists a file of each kind. The first
//! byte says how it comes: the rest of the input is the cpio archive, as it is or compressed here, or the compressed bytes
//! themselves.

#![no_main]

use std::io::{self, Read, Write};

use gfxpack::package::read::{PackageReport, Visit, rpm};
use gfxpack_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

/// Path below `/opt/`, mode, size, inode, target.
const FILES: [(&str, u16, u32, u32, &str); 7] = [
    ("dir", 0o040_755, 0, 1, ""),
    ("a", 0o100_644, 5, 2, ""),
    ("b", 0o100_644, 3, 3, ""),
    ("c", 0o100_644, 3, 3, ""),
    ("empty", 0o100_600, 0, 4, ""),
    ("link", 0o120_777, 1, 5, "a"),
    ("large", 0o100_644, 70_000, 6, ""),
];

fuzz_target!(|data: &[u8]| {
    let Some((&how, archive)) = data.split_first() else { return };
    let (compression, payload) = match how % 8 {
        0 => ("none", archive.to_vec()),
        1 => ("gzip", gzip(archive)),
        2 => ("zstd", zstd::bulk::compress(archive, 1).expect("memory takes all")),
        3 => ("gzip", archive.to_vec()),
        4 => ("zstd", archive.to_vec()),
        5 => ("xz", archive.to_vec()),
        6 => ("lzma", archive.to_vec()),
        _ => ("bzip2", archive.to_vec()),
    };
    let mut package = vec![0xed, 0xab, 0xee, 0xdb, 3];
    package.resize(96, 0);
    package.extend(header(&[]));
    package.extend(main_header(compression));
    package.extend(payload);
    bounded(&package, 128 << 20, 64, || {
        let mut seen = Seen { most: u64::from(how / 8) * 64, paths: Vec::new() };
        if let Ok(report) = rpm::content(&&*package, &mut seen) {
            assert_eq!(report.files.len(), FILES.len());
            // What is not told was there as the header says.
            if report.problems.is_empty() {
                seen.paths.sort_unstable();
                seen.paths.dedup();
                assert_eq!(seen.paths, ["/opt/a", "/opt/b", "/opt/large"]);
            }
        }
    });
});

/// Reads some of each file.
struct Seen {
    most: u64,
    paths: Vec<String>,
}

impl Visit for Seen {
    fn control(&mut self, _: &PackageReport) {}

    fn file(&mut self, path: &str, len: u64, content: &mut dyn Read) -> io::Result<()> {
        let read = io::copy(&mut content.take(self.most), &mut io::sink())?;
        assert!(read <= len);
        if len > 0 && self.paths.len() < 100 {
            self.paths.push(path.to_owned());
        }
        Ok(())
    }
}

/// A header of entries: tag, type, count, content.
fn header(entries: &[(u32, u32, u32, Vec<u8>)]) -> Vec<u8> {
    let (mut index, mut store) = (Vec::new(), Vec::new());
    let number = |n: usize| u32::try_from(n).expect("a small header");
    for (tag, kind, count, content) in entries {
        if *kind == 4 {
            store.resize(store.len().next_multiple_of(4), 0);
        }
        for word in [*tag, *kind, number(store.len()), *count] {
            index.extend(word.to_be_bytes());
        }
        store.extend(content);
    }
    let mut bytes = vec![0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0];
    bytes.extend(number(entries.len()).to_be_bytes());
    bytes.extend(number(store.len()).to_be_bytes());
    [bytes, index, store].concat()
}

fn main_header(compression: &str) -> Vec<u8> {
    type File = (&'static str, u16, u32, u32, &'static str);
    let count = u32::try_from(FILES.len()).expect("a few");
    let text = |text: &str| [text.as_bytes(), b"\0"].concat();
    let texts = |of: fn(&File) -> &'static str| FILES.iter().flat_map(|f| text(of(f))).collect();
    let words = |of: fn(&File) -> u32| FILES.iter().flat_map(|f| of(f).to_be_bytes()).collect();
    let modes = FILES.iter().flat_map(|f| f.1.to_be_bytes()).collect();
    header(&[
        (1000, 6, 1, text("x")),
        (1001, 6, 1, text("1")),
        (1002, 6, 1, text("1")),
        (1124, 6, 1, text("cpio")),
        (1125, 6, 1, text(compression)),
        (1118, 8, 1, text("/opt/")),
        (1117, 8, count, texts(|f| f.0)),
        (1035, 8, count, texts(|_| "")),
        (1036, 8, count, texts(|f| f.4)),
        (1039, 8, count, texts(|_| "root")),
        (1040, 8, count, texts(|_| "root")),
        (1030, 3, count, modes),
        (1028, 4, count, words(|f| f.2)),
        (1034, 4, count, words(|_| 0)),
        (1037, 4, count, words(|_| 0)),
        (1095, 4, count, words(|_| 1)),
        (1096, 4, count, words(|f| f.3)),
        (1116, 4, count, words(|_| 0)),
    ])
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all")
}
