//! Artifacts in archives: the members of a tar, and where it can be read, the tree that it gives with
//! every file's bytes read again from where they were found. The input is the tar; its checksums are
//! put right.

#![no_main]

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use gfxpack::artifact::{ArtifactName, read_artifact};
use gfxpack::progress::Silent;
use gfxpack::tarball::{MAX_NAME, MemberKind, Members, TarError};
use gfxpack_fuzz::{bounded, fix_sums, named_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut tar = data.to_vec();
    fix_sums(&mut tar);
    if bounded(data, 1 << 20, 16, || walk(&tar)).is_err() {
        return;
    }
    let mut gz = GzEncoder::new(Vec::new(), Compression::none());
    gz.write_all(&tar).expect("a vector takes all");
    let path = named_file(".tar.gz", &gz.finish().expect("a vector takes all"));
    let name = ArtifactName::parse("blas_lib_generic").expect("a good name");
    // What runs beside it has 16 MiB in flight, whatever the input.
    bounded(data, 32 << 20, 256, || {
        let Ok(artifact) = read_artifact(&path, name, &Silent) else { return };
        let mut left = 64;
        for (path, entry) in artifact.tree.iter() {
            assert!(
                path.as_bytes().split(|&b| b == b'/').all(|part| part != b".." && part != b".")
            );
            assert!(!path.as_bytes().starts_with(b"/"));
            assert!(entry.is_dir() || artifact.prefix_of(path).is_some(), "lies under no prefix");
            let Some(source) = entry.source() else { continue };
            let len = source.len().expect("a member's length is known");
            assert!(len <= tar.len() as u64, "no file is larger than its archive");
            if left == 0 {
                continue;
            }
            left -= 1;
            let mut counted = Counted(0);
            source.copy_to(&mut counted).expect("what was read once is there");
            assert_eq!(counted.0, len);
        }
    });
});

fn walk(tar: &[u8]) -> Result<(), TarError> {
    let mut members = Members::new(tar);
    let mut content = vec![0; 4096];
    while let Some(member) = members.next_member()? {
        assert!(member.name.len() as u64 <= MAX_NAME && !member.name.contains(&0));
        let mut read = 0;
        loop {
            match members.read_content(&mut content)? {
                0 => break,
                n => read += n as u64,
            }
        }
        assert_eq!(read, member.size);
        let is_file = member.kind == MemberKind::File;
        assert!(is_file || read == 0, "links and directories have no content");
    }
    Ok(())
}

struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
