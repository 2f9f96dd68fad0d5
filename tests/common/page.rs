//! `docs/shapes.md`: what the conversion matrix found, as a table for each linker.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use super::run;

/// What became of a file and of its conversion under one tool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell(&'static str);

impl Cell {
    pub const BOTH: Self = Self("✓");
    pub const ORIGINAL_ONLY: Self = Self("✗");
    pub const CONVERTED_ONLY: Self = Self("– ✓");
    pub const NEITHER: Self = Self("–");
    pub const NONE: Self = Self("·");
}

/// One shape, and what came of each tool.
pub struct Row {
    shape: String,
    pub cells: Vec<Cell>,
}

impl Row {
    pub fn new(shape: &str) -> Self {
        Self { shape: shape.to_owned(), cells: Vec::new() }
    }
}

/// What the tables depend on beside this crate.
const TOOLS: &[&str] =
    &["ld.bfd", "ld.gold", "ld.lld-19", "mold", "strip", "eu-strip", "llvm-strip-19", "patchelf"];

/// The tools' versions, a list.
fn versions() -> String {
    let mut text = String::new();
    for tool in TOOLS {
        let output = run(Command::new(tool).arg("--version"));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // LLVM's says what it is compatible with first.
        let line = said.lines().find(|line| line.bytes().any(|b| b.is_ascii_digit()));
        text += &format!("- `{tool}`: {}\n", line.unwrap_or_default().trim());
    }
    text
}

fn table(treatments: &[&str], before: &[&str], rows: &[Row]) -> String {
    let mut head = "| shape |".to_owned();
    let mut rule = "|---|".to_owned();
    for name in treatments {
        head += &format!(" {name} |");
        rule += ":-:|";
    }
    for name in before {
        head += &format!(" after {name} |");
        rule += ":-:|";
    }
    let mut text = format!("{head}\n{rule}\n");
    for row in rows {
        let cells: Vec<_> = row.cells.iter().map(|cell| cell.0).collect();
        text += &format!("| {} | {} |\n", row.shape, cells.join(" | "));
    }
    text
}

/// The part of the page between the comments `name` and `end of name`.
fn part<'a>(page: &'a str, name: &str) -> (&'a str, std::ops::Range<usize>) {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let from = page.find(&begin).unwrap_or_else(|| panic!("no `{name}` in the page"));
    let from = from + begin.len();
    let to = from + page[from..].find(&end).unwrap_or_else(|| panic!("`{name}` has no end"));
    (&page[from..to], from..to)
}

/// Holds the page's table for a linker against these rows, or writes it where `GFXPACK_UPDATE_DOCS`
/// is set. Other tools may give other tables: then nothing is compared.
pub fn check(linker: &str, treatments: &[&str], before: &[&str], rows: &[Row]) {
    static LOCK: Mutex<()> = Mutex::new(());
    let _guard = LOCK.lock();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/shapes.md");
    let mut page = fs::read_to_string(&path).unwrap();
    let made = table(treatments, before, rows);
    let versions = versions();
    if std::env::var_os("GFXPACK_UPDATE_DOCS").is_some() {
        for (name, new) in [(linker, &made), ("tools", &versions)] {
            let (_, range) = part(&page, name);
            page.replace_range(range, new);
        }
        fs::write(&path, page).unwrap();
    } else if part(&page, "tools").0 == versions {
        let (old, _) = part(&page, linker);
        assert!(
            old == made,
            "docs/shapes.md is old: run this test with GFXPACK_UPDATE_DOCS=1\n{made}"
        );
    } else {
        println!("docs/shapes.md was made with other tools than these:\n{versions}");
    }
}
