//! Tables and lists for people: aligned, and no wider than 100 columns where that can be.

use std::fmt::Write as _;

use indicatif::HumanBytes;

/// What is read without scrolling sideways.
pub const WIDTH: usize = 100;
const GAP: usize = 2;

/// A table whose cells are lined up when it is rendered.
pub struct Table {
    columns: Vec<(&'static str, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns by their headings; one that begins with `>` holds numbers and is set to the right.
    pub fn new(headings: &[&'static str]) -> Self {
        let columns = headings
            .iter()
            .map(|heading| match heading.strip_prefix('>') {
                Some(heading) => (heading, true),
                None => (*heading, false),
            })
            .collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row; what is longer than the headings is left out.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each indented by so many blanks. The last column is cut in its middle where a line
    /// would be wider than it should, unless `full`.
    pub fn render(&self, indent: usize, full: bool) -> String {
        let last = self.columns.len().saturating_sub(1);
        let width = |i: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(i)).map(|cell| length(cell));
            cells.chain([length(self.columns[i].0)]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let before: usize = widths.iter().take(last).map(|width| width + GAP).sum();
        let room = WIDTH.saturating_sub(indent + before).max(20);
        let mut text = String::new();
        let headings = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = " ".repeat(indent);
            for (i, (&(_, right), cell)) in self.columns.iter().zip(row).enumerate() {
                let shown = if i == last && !full { middle_cut(cell, room) } else { cell.clone() };
                let pad = " ".repeat(widths[i].saturating_sub(length(&shown)));
                let _ = match (right, i == last) {
                    (true, _) => write!(line, "{pad}{shown}"),
                    (false, true) => write!(line, "{shown}"),
                    (false, false) => write!(line, "{shown}{pad}"),
                };
                if i != last {
                    line.push_str(&" ".repeat(GAP));
                }
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

/// `name:  value` lines with the values in one column; a value of several lines goes on below.
pub fn fields<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>, full: bool) -> String {
    let pairs: Vec<_> = pairs.into_iter().collect();
    let width = pairs.iter().map(|(name, _)| length(name) + 1).max().unwrap_or(0) + 1;
    let mut text = String::new();
    for (name, value) in pairs {
        let mut name = format!("{}:", printable(name));
        let lines = if value.is_empty() { vec![""] } else { value.lines().collect() };
        for line in lines {
            let line = printable(line);
            let line =
                if full { line } else { middle_cut(&line, WIDTH.saturating_sub(width).max(20)) };
            let _ = writeln!(text, "{}", format!("{name:<width$}{line}").trim_end());
            name.clear();
        }
    }
    text
}

/// Sizes for people: `28.83 KiB`.
pub fn size(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// What is in a file must not steer the terminal, nor look like a line of ours: `\x1b`, `\n`.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match u8::try_from(c) {
            Ok(b) if b.is_ascii_control() => {
                shown.extend(std::ascii::escape_default(b).map(char::from));
            }
            _ if c.is_control() => shown.extend(c.escape_default()),
            _ => shown.push(c),
        }
    }
    shown
}

/// Beginning and end of what is too long: both tell names apart.
fn middle_cut(text: &str, room: usize) -> String {
    let count = length(text);
    if count <= room {
        return text.to_owned();
    }
    let front = room.saturating_sub(1) / 2;
    let back = room.saturating_sub(1) - front;
    let begin: String = text.chars().take(front).collect();
    let end: String = text.chars().skip(count - back).collect();
    format!("{begin}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_stay_narrow() {
        let mut table = Table::new(&["ISA", ">bytes", "name"]);
        table.row(["gfx90a:xnack+".to_owned(), "7".to_owned(), "x".repeat(200)]);
        table.row(["gfx942".to_owned(), "1234567".to_owned(), "a\x1b[1m".to_owned()]);
        let text = table.render(2, false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "  ISA              bytes  name");
        assert_eq!(lines[1].chars().count(), WIDTH);
        assert_eq!(lines[2], "  gfx942         1234567  a\\x1b[1m");
        assert!(table.render(2, true).contains(&"x".repeat(200)));
    }

    #[test]
    fn fields_go_on_below() {
        assert_eq!(
            fields([("a", "1\n2".to_owned()), ("long", String::new())], false),
            "a:    1\n      2\nlong:\n"
        );
    }
}
