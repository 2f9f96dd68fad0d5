//! Walking over a tar, as the members of a `.deb` are. The first byte says which of the two it becomes;
//! then comes the tar. Checksums are put right, which no mutation could.

#![no_main]

use gfxpack::inspect::{Content, inspect};
use gfxpack_fuzz::{bounded, file, fix_sums, one_file};
use libfuzzer_sys::fuzz_target;

const CONTROL: &str = "Package: p\nVersion: 1\nArchitecture: all\n";

fuzz_target!(|data: &[u8]| {
    let Some((&which, tar)) = data.split_first() else { return };
    let mut tar = tar.to_vec();
    fix_sums(&mut tar);
    let control = one_file("./control", CONTROL.as_bytes());
    let (control, content) = if which == b'c' { (&tar, &Vec::new()) } else { (&control, &tar) };
    let mut deb = b"!<arch>\n".to_vec();
    let members: [(&str, &[u8]); 3] =
        [("debian-binary", b"2.0\n"), ("control.tar", control), ("data.tar", content)];
    for (name, bytes) in members {
        let size = bytes.len();
        deb.extend(format!("{name:<16}{0:<12}{0:<6}{0:<6}{0:<8}{size:<10}`\n", 0).bytes());
        deb.extend(bytes);
        deb.resize(deb.len().next_multiple_of(2), b'\n');
    }
    let path = file(&deb);
    let inspected = bounded(&deb, 1 << 20, 64, || inspect(&path));
    if let Ok(inspection) = inspected {
        let Content::Deb(report) = inspection.content else { panic!("a .deb was made") };
        for file in &report.files {
            assert!(file.path.starts_with('/'));
            let told = report.problems.iter().any(|problem| problem.contains("leaves"));
            assert!(told || !file.path.split('/').any(|part| part == ".."), "{}", file.path);
        }
        assert!(report.installed_bytes <= tar.len() as u64, "no file is larger than its tar");
    }
});
