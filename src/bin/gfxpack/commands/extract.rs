//! `gfxpack extract`

use std::process::ExitCode;

use gfxpack::error::Result;
use gfxpack::inspect::{ExtractOptions, extract};

use super::count;
use crate::args::Extract;
use crate::output::Ui;
use crate::table::{Table, size};

/// Lines that are shown without `--verbose`.
const SHOWN: usize = 20;

pub fn run(args: &Extract, ui: &Ui) -> Result<ExitCode> {
    let options =
        ExtractOptions { isas: args.isa.clone(), kernel: args.kernel.clone(), force: args.force };
    let done = extract(&args.file, &args.output_dir, &options)?;
    ui.result(&done, || {
        let mut table = Table::new(&[">bytes", "file"]);
        let shown = if ui.is_verbose() { usize::MAX } else { SHOWN };
        for file in done.files.iter().take(shown) {
            table.row([file.size.to_string(), file.file.clone()]);
        }
        let left = done.files.len().saturating_sub(shown);
        let more =
            if left > 0 { format!("  and {left} more (--verbose)\n") } else { String::new() };
        let bytes = done.files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
        format!(
            "{}{more}{} in {}, {}\n",
            table.render(2, ui.is_verbose()),
            count(done.files.len(), "code object"),
            args.output_dir.display(),
            size(bytes),
        )
    });
    Ok(ExitCode::SUCCESS)
}
