//! Ctrl-C, SIGTERM and SIGHUP: nothing half done is left, and the process ends by the signal, within a second.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gfxpack::tree::output;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, signal_name};

use crate::output::tell;

/// What removing the unfinished output may take. The next run removes what is left.
const REMOVING: Duration = Duration::from_millis(700);

static ENDING: AtomicBool = AtomicBool::new(false);

/// Has these signals end the process cleanly. Those that it was started to ignore (`nohup`, a job in the background of a
/// script) stay ignored.
pub fn end_cleanly() {
    // A file that passes the limit of its size is an error of writing it, with a path, not the end of the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let ignored = ignored();
    let wanted = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|n| ignored >> (n - 1) & 1 == 0);
    // Without it they end the process as ever, and the next run clears up.
    let Ok(mut signals) = Signals::new(wanted) else { return };
    let wait = move || {
        let Some(signal) = signals.forever().next() else { return };
        ENDING.store(true, Ordering::SeqCst);
        output::abandon(REMOVING);
        let name = signal_name(signal).unwrap_or("a signal");
        tell(format_args!("error: ended by {name}; output that was not finished is removed"));
        // The process that waits for this one sees the signal; a shell makes 128 + its number of it.
        let _ = emulate_default_handler(signal);
        // Where even that does not end it, as the first process of a container.
        std::process::exit(128 + signal);
    };
    let _ = thread::Builder::new().spawn(wait);
}

/// Waits for the end, where the process is about to be ended by a signal: what fails then fails because its
/// files were taken away, and is not worth telling.
pub fn wait_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// The signals that are ignored, a bit each, as Linux tells it.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
