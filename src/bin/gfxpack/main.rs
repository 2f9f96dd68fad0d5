//! The command line of gfxpack: arguments in, one library call, a report out. Only this program
//! prints, exits, or knows clap.

mod args;
mod commands;
mod output;
mod table;

use std::process::ExitCode;

use clap::Parser;

use args::Args;

fn main() -> ExitCode {
    // A reader that goes away (`gfxpack inspect … | head`) is no reason for a message.
    let args = Args::parse();
    let ui = output::Ui::new(&args.global);
    match commands::run(&args, &ui) {
        Ok(code) => code,
        Err(errors) => ui.fail(&errors),
    }
}
