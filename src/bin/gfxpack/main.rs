//! The command line of gfxpack: arguments in, one library call, a report out. Only this program
//! prints, exits, or knows clap.

#![deny(
    clippy::print_stderr,
    reason = "it panics where nobody reads standard error any more: `output::tell`"
)]

mod args;
mod commands;
mod output;
mod signals;
mod table;

use std::process::ExitCode;

use clap::Parser;

use args::Args;

/// Gives large blocks back to the system when they are freed. The C library keeps those that are
/// smaller than the largest one freed so far, up to 32 MiB, for each thread: twice the peak memory. Of what a thread has
/// freed of smaller ones it keeps 2 MiB, not 128 KiB: what is given back is had and cleared again soon.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_memory_back() {
    // SAFETY: it only sets a number, before there are other threads.
    #[expect(unsafe_code, reason = "a call of the C library")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 << 20);
    }
}

fn main() -> ExitCode {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    give_memory_back();
    // A reader that goes away (`gfxpack inspect … | head`) is no reason for a message.
    let args = Args::parse();
    signals::end_cleanly();
    let ui = output::Ui::new(&args.global);
    match commands::run(&args, &ui) {
        Ok(code) => code,
        Err(errors) => ui.fail(&errors),
    }
}
