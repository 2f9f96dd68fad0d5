//! The data member of a `.deb`, read with its files' content. The first byte says how the member comes: the rest of the
//! input is its tar, as it is or compressed here, whose checksums are put right, or the compressed bytes themselves.

#![no_main]

use std::io::{self, Read, Write};

use gfxpack::package::read::{PackageReport, Visit, deb};
use gfxpack_fuzz::{bounded, fix_sums, one_file};
use libfuzzer_sys::fuzz_target;

const CONTROL: &str = "Package: p\nVersion: 1\nArchitecture: all\n";

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mut tar = data.to_vec();
    if how % 8 < 3 {
        fix_sums(&mut tar);
    }
    let (name, bytes) = match how % 8 {
        0 => ("data.tar", tar),
        1 => ("data.tar.gz", gzip(&tar)),
        2 => ("data.tar.zst", zstd::bulk::compress(&tar, 1).expect("memory takes all")),
        3 => ("data.tar.gz", tar),
        4 => ("data.tar.zst", tar),
        5 => ("data.tar.xz", tar),
        6 => ("data.tar.lzma", tar),
        _ => ("data.tar.bz2", tar),
    };
    let control = one_file("./control", CONTROL.as_bytes());
    let members: [(&str, &[u8]); 3] =
        [("debian-binary", b"2.0\n"), ("control.tar", &control), (name, &bytes)];
    let mut package = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let size = bytes.len();
        package.extend(format!("{name:<16}{0:<12}{0:<6}{0:<6}{0:<8}{size:<10}`\n", 0).bytes());
        package.extend(bytes);
        package.resize(package.len().next_multiple_of(2), b'\n');
    }
    let members = deb::members(&&*package).expect("an archive was made");
    // A dictionary of xz is not Rust's; a compressed tar of many members comes out of few bytes.
    bounded(&package, 128 << 20, 64, || {
        let mut seen = Seen { most: u64::from(how / 8) * 64, of: 0 };
        if let Ok(report) = deb::read(&&*package, members.clone(), &mut seen) {
            assert_eq!(report.members.len(), 3);
            assert!(seen.of <= report.installed_bytes, "what was seen is installed");
        }
    });
    bounded(&package, 128 << 20, 64, || drop(deb::outline(&&*package, members)));
});

/// Reads some of each file.
struct Seen {
    most: u64,
    of: u64,
}

impl Visit for Seen {
    fn control(&mut self, _: &PackageReport) {}

    fn file(&mut self, path: &str, len: u64, content: &mut dyn Read) -> io::Result<()> {
        assert!(path.starts_with('/'));
        let read = io::copy(&mut content.take(self.most), &mut io::sink())?;
        assert!(read <= len);
        self.of += read;
        Ok(())
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all")
}
