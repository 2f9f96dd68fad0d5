//! What the two suites of damage share: doing every damage of a table, kernels of archives, and the tables
//! of `docs/verify.md`.

// Each test crate uses some of this.
#![allow(dead_code)]

use std::fs;
use std::io::Cursor;
use std::path::Path;

use gfxpack::kpack::reader::Archive;
use gfxpack::kpack::writer::{Compression, FrameCompressor, Writer};
use gfxpack::target::TargetId;
use gfxpack::verify::{Check, Report};

/// What damages are tried on: something good, verified in one way.
pub trait Subject: Copy + PartialEq + 'static {
    /// A copy of it, to be damaged.
    type Victim;

    /// What the page calls it.
    fn words(self) -> &'static str;

    fn victim(self) -> Self::Victim;

    fn report_on(self, victim: &Self::Victim) -> Report;
}

/// One way to ruin it, and the id of the check that must see that.
pub struct Damage<S: Subject> {
    pub what: &'static str,
    pub on: &'static [S],
    pub caught_by: &'static str,
    pub damage: fn(&S::Victim),
}

/// A table of damages: what it is, what it is tried on, the id of the check, and what is done.
macro_rules! damages {
    ($($what:literal $on:ident $id:literal |$v:ident| $damage:expr;)*) => {
        &[$($crate::damage::Damage {
            what: $what, on: $on, caught_by: $id, damage: |$v| { $damage; },
        },)*]
    };
}
pub(crate) use damages;

/// Does every damage that is for this subject; each must be caught by its check.
#[track_caller]
pub fn damage_all<'a, S: Subject>(damages: impl IntoIterator<Item = &'a Damage<S>>, on: S) {
    let mut missed = Vec::new();
    let mut tried = 0;
    for damage in damages.into_iter().filter(|damage| damage.on.contains(&on)) {
        tried += 1;
        let victim = on.victim();
        (damage.damage)(&victim);
        let report = on.report_on(&victim);
        if !report.findings.iter().any(|finding| finding.id.id() == damage.caught_by) {
            let found =
                report.findings.iter().map(|f| format!("{} {} {}", f.id, f.place(), f.message));
            missed.push(format!(
                "{}: {} expected, found {:#?}",
                damage.what,
                damage.caught_by,
                found.collect::<Vec<_>>()
            ));
        }
        for finding in &report.findings {
            assert!(!finding.message.is_empty() && !finding.expected.is_empty(), "{finding:?}");
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(tried > 0, "no damage is for {}", on.words());
}

/// The damages as the page has them; each names a check that there is.
#[track_caller]
pub fn damage_table<S: Subject>(damages: &[Damage<S>]) -> String {
    let mut text = String::from("| damage | tried on | caught by |\n|---|---|---|\n");
    for damage in damages {
        let id = damage.caught_by;
        assert!(Check::ALL.iter().any(|check| check.id() == id), "{id}");
        let on: Vec<_> = damage.on.iter().map(|on| on.words()).collect();
        text += &format!("| {} | {} | `{id}` |\n", damage.what, on.join("; "));
    }
    text
}

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
