//! What the user sees: progress and messages on standard error, results on standard output.
//!
//! Messages and results are escaped here ([`printable`]), since names and texts of the input are in them; JSON has them as
//! they are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error as StdError;
use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gfxpack::error::{Error, Errors, Kind};
use gfxpack::progress::Monitor;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::args::{Color, Global};
use crate::table::printable;

/// On no terminal a line of progress comes this often.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub struct Ui {
    quiet: bool,
    verbose: bool,
    json: bool,
    color: bool,
    terminal: bool,
    phase: Mutex<Option<Phase>>,
    done: AtomicU64,
    /// Bytes of the phase.
    all: AtomicU64,
    begun: Instant,
}

struct Phase {
    bar: Option<ProgressBar>,
    what: String,
    begun: Instant,
    last_line: Instant,
    /// What is being worked on.
    at: String,
}

impl Phase {
    /// How far it is, for a log: bytes, rate, time left, what is being worked on.
    fn line(&self, done: u64, all: u64, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs().max(1);
        let rate = done / seconds;
        let left = all.saturating_sub(done).checked_div(rate).map_or_else(String::new, |left| {
            format!(", {} left", HumanDuration(Duration::from_secs(left)))
        });
        let at = if self.at.is_empty() { String::new() } else { format!(" ({})", self.at) };
        let (done, all, rate) = (HumanBytes(done), HumanBytes(all), HumanBytes(rate));
        format!("{}: {done} of {all}, {rate}/s{left}{at}", self.what)
    }
}

impl Ui {
    pub fn new(global: &Global) -> Self {
        let terminal = io::stderr().is_terminal();
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none(),
        };
        Self {
            quiet: global.quiet,
            verbose: global.verbose,
            json: global.json,
            color,
            terminal,
            phase: Mutex::new(None),
            done: AtomicU64::new(0),
            all: AtomicU64::new(0),
            begun: Instant::now(),
        }
    }

    /// Says at the end of a run what was made: how many files of which sizes, and where.
    pub fn made(&self, sizes: impl Iterator<Item = u64>, output: &Path) {
        let sizes: Vec<u64> = sizes.collect();
        let packages = match sizes.len() {
            1 => "1 package".to_owned(),
            n => format!("{n} packages"),
        };
        let bytes = HumanBytes(sizes.iter().sum());
        let took = took(self.begun.elapsed());
        self.remark(&format!("{packages} ({bytes}) in {}, made in {took}", output.display()));
    }

    /// Prints errors with their causes and hints; returns the exit status.
    pub fn fail(&self, errors: &Errors) -> ExitCode {
        crate::signals::wait_if_ending();
        self.clear();
        let told = told_once(errors);
        for (error, places) in &told {
            self.error(error);
            self.also(places);
        }
        if self.json {
            let errors: Vec<_> =
                told.iter().map(|(error, places)| fault_json(error, places)).collect();
            self.print_json(&serde_json::json!({ "status": "failed", "errors": errors }));
        }
        match errors.kind() {
            Kind::Failed | Kind::Output => ExitCode::from(1),
            Kind::Usage => ExitCode::from(2),
        }
    }

    /// Prints an error with its causes and hint.
    pub fn error(&self, error: &Error) {
        crate::signals::wait_if_ending();
        let message = printable(&error.to_string());
        tell(format_args!("{} {message}", self.paint("31;1", "error:")));
        for cause in causes(error) {
            tell(format_args!("  {} {}", self.paint("1", "caused by:"), printable(&cause)));
        }
        if let Some(hint) = error.hint_text() {
            tell(format_args!("  {} {}", self.paint("36;1", "hint:"), printable(hint)));
        }
        for line in error.hint_lines() {
            tell(format_args!("    {}", printable(line)));
        }
    }

    /// Says where else an error is.
    fn also(&self, places: &[&str]) {
        const SHOWN: usize = 3;
        let shown = if self.verbose { places.len() } else { SHOWN.min(places.len()) };
        if shown > 0 {
            let more = match places.len() - shown {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let all = places.len() + 1;
            let names = printable(&places[..shown].join(", "));
            tell(format_args!("  {} {names}{more}; {all} places in all", self.paint("1", "also:")));
        }
    }

    pub fn warning(&self, message: &str) {
        if !self.quiet {
            self.line(&format!("{} {}", self.paint("33;1", "warning:"), printable(message)));
        }
    }

    /// What is worth knowing and no reason to worry.
    pub fn remark(&self, message: &str) {
        if !self.quiet {
            self.line(&printable(message));
        }
    }

    pub fn note(&self, message: &str) {
        if self.verbose {
            self.line(&printable(message));
        }
    }

    fn line(&self, text: &str) {
        let phase = self.phase.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match phase.as_ref().and_then(|phase| phase.bar.as_ref()) {
            Some(bar) => bar.suspend(|| tell(format_args!("{text}"))),
            None => tell(format_args!("{text}")),
        }
    }

    /// Whether the user wants all there is.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// The result: as JSON where that was asked for, else as `text`, which `--quiet` leaves out.
    pub fn result(&self, json: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            self.print_json(json);
        } else if !self.quiet {
            // A last look: what makes the text knows of names, and this of none that was forgotten.
            let text = text();
            let lines = text.split('\n').map(printable).collect::<Vec<_>>();
            Self::print(&lines.join("\n"));
        }
    }

    /// Whether results are printed as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// What the user asked to be printed.
    pub fn print(text: &str) {
        Self::print_bytes(text.as_bytes());
    }

    /// The same of what need not be text.
    pub fn print_bytes(bytes: &[u8]) {
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            // A reader that went away needs no message.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                tell(format_args!("error: cannot write to standard output\n  caused by: {e}"));
                std::process::exit(1);
            }
            _ => {}
        }
    }

    fn print_json(&self, value: &impl Serialize) {
        let text = serde_json::to_string_pretty(value).expect("reports have string keys");
        Self::print(&(text + "\n"));
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn clear(&self) {
        let mut phase = self.phase.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bar) = phase.take().and_then(|phase| phase.bar) {
            bar.finish_and_clear();
        }
    }
}

/// `2.5 s`, `3 min 20 s`.
fn took(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// Prints a line on standard error. Where nobody reads that any more, the work goes on all the same; `eprintln!` panics.
pub fn tell(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Errors in their order, each once, with the other places that have the same fault.
fn told_once(errors: &Errors) -> Vec<(&Error, Vec<&str>)> {
    let mut told: Vec<(&Error, Vec<&str>)> = Vec::new();
    let mut known = HashMap::new();
    for error in errors.iter() {
        let key = (error.path(), error.fault(), causes(error), hint(error));
        // Without a place it is another only where it says something else.
        match known.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(told.len());
                told.push((error, Vec::new()));
            }
            Entry::Occupied(entry) => {
                let (first, places) = &mut told[*entry.get()];
                let place = error.place().filter(|place| first.place() != Some(place));
                places.extend(place.filter(|place| places.last() != Some(place)));
            }
        }
    }
    told
}

fn causes(error: &Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut cause = StdError::source(error);
    while let Some(source) = cause {
        causes.push(source.to_string());
        cause = source.source();
    }
    causes
}

/// All lines of the hint.
fn hint(error: &Error) -> Option<String> {
    let lines = error.hint_lines().iter().map(String::as_str);
    let lines: Vec<&str> = error.hint_text().into_iter().chain(lines).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// An error with its causes and hint, as JSON.
pub fn error_json(error: &Error) -> serde_json::Value {
    fault_json(error, &[])
}

/// The same, with the other places that have it.
fn fault_json(error: &Error, places: &[&str]) -> serde_json::Value {
    let mut json = serde_json::json!({
        "message": error.message(),
        "path": error.path().map(|path| path.to_string_lossy()),
        "causes": causes(error),
        "hint": hint(error),
    });
    if !places.is_empty() {
        json["also"] = serde_json::json!(places);
    }
    json
}

impl Monitor for Ui {
    fn begin(&self, what: &str, bytes: u64) {
        if self.quiet {
            return;
        }
        self.done.store(0, Ordering::Relaxed);
        self.all.store(bytes, Ordering::Relaxed);
        let bar = self.terminal.then(|| {
            let style = ProgressStyle::with_template(
                "{prefix:>18} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} {wide_msg}",
            )
            .expect("the template is valid");
            ProgressBar::new(bytes).with_style(style).with_prefix(what.to_owned())
        });
        let now = Instant::now();
        let what = what.to_owned();
        let phase = Phase { bar, what, begun: now, last_line: now, at: String::new() };
        *self.phase.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(phase);
    }

    fn advance(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Whoever finds the lock taken leaves the drawing to the other.
        let Ok(mut phase) = self.phase.try_lock() else { return };
        let Some(phase) = phase.as_mut() else { return };
        match &phase.bar {
            Some(bar) => bar.set_position(done),
            None if phase.last_line.elapsed() >= LINE_EVERY => {
                phase.last_line = Instant::now();
                let all = self.all.load(Ordering::Relaxed);
                let line = phase.line(done, all, phase.begun.elapsed());
                tell(format_args!("{line}"));
            }
            None => {}
        }
    }

    fn foresee(&self, more: i64) {
        // Two's complement: adding it takes away what is negative.
        let all = self.all.fetch_add(more.cast_unsigned(), Ordering::Relaxed);
        let all = all.wrapping_add_signed(more);
        let phase = self.phase.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bar) = phase.as_ref().and_then(|phase| phase.bar.as_ref()) {
            bar.set_length(all);
        }
    }

    fn at(&self, what: &str) {
        let mut phase = self.phase.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(phase) = phase.as_mut() else { return };
        phase.at = printable(what);
        if let Some(bar) = &phase.bar {
            bar.set_message(phase.at.clone());
        }
    }

    fn end(&self) {
        self.clear();
    }

    fn detail(&self, message: &str) {
        self.note(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_seconds_or_in_minutes() {
        assert_eq!(took(Duration::from_millis(2460)), "2.5 s");
        assert_eq!(took(Duration::from_secs(200)), "3 min 20 s");
    }

    #[test]
    fn a_line_of_progress_has_bytes_rate_time_left_and_the_package() {
        let now = Instant::now();
        let phase = |at: &str| Phase {
            bar: None,
            what: "writing packages".to_owned(),
            begun: now,
            last_line: now,
            at: at.to_owned(),
        };
        let line = phase("rocblas-gfx110X").line(2 << 30, 8 << 30, Duration::from_secs(16));
        assert_eq!(
            line,
            "writing packages: 2.00 GiB of 8.00 GiB, 128.00 MiB/s, 48 seconds left (rocblas-gfx110X)"
        );
        let line = phase("").line(0, 8 << 30, Duration::from_millis(300));
        assert_eq!(line, "writing packages: 0 B of 8.00 GiB, 0 B/s");
    }
}
