//! What the program says of itself: `gfxpack schema`, `completions`, `man`

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use gfxpack::config::{PackagesConfig, PackagingConfig};
use gfxpack::database::DatabasesConfig;
use gfxpack::error::{Error, Result};

use crate::args::{Args, Completions, Man, Schema, SchemaOf};
use crate::output::Ui;

pub fn schema(args: &Schema) -> Result<ExitCode> {
    let of = |file| match file {
        SchemaOf::Groups => schemars::schema_for!(PackagingConfig),
        SchemaOf::Packages => schemars::schema_for!(PackagesConfig),
        SchemaOf::Databases => schemars::schema_for!(DatabasesConfig),
    };
    let text = match args.file {
        Some(file) => serde_json::to_string_pretty(&of(file)),
        None => serde_json::to_string_pretty(&serde_json::json!({
            "groups": of(SchemaOf::Groups),
            "packages": of(SchemaOf::Packages),
            "databases": of(SchemaOf::Databases),
        })),
    };
    Ui::print(&(text.expect("a schema is JSON") + "\n"));
    Ok(ExitCode::SUCCESS)
}

pub fn completions(args: &Completions) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "gfxpack", &mut script);
    Ui::print(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

pub fn man(args: &Man) -> Result<ExitCode> {
    let mut command = Args::command();
    // The pages of subcommands are called after them: gfxpack-repo-add.
    command.build();
    if let Some(dir) = &args.output_dir {
        let cannot = |e| Error::output("cannot write manual pages into", dir, e);
        std::fs::create_dir_all(dir).map_err(cannot)?;
        write_pages(&command, dir).map_err(cannot)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut of = &command;
    for name in &args.command {
        of = of.find_subcommand(name).ok_or_else(|| {
            let known: Vec<&str> = of.get_subcommands().map(clap::Command::get_name).collect();
            let error = Error::usage(format!("`{}` has no command `{name}`", of.get_name()));
            if known.is_empty() {
                error
            } else {
                error.hint(format!("it has {}", known.join(", ")))
            }
        })?;
    }
    let mut page = Vec::new();
    page_of(of)
        .render(&mut page)
        .map_err(|e| Error::failed("cannot render the manual page").because(e))?;
    page.extend_from_slice(EXIT_STATUS.as_bytes());
    Ui::print(&String::from_utf8_lossy(&page));
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, with the program and its version at the foot: subcommands have no version.
fn page_of(command: &clap::Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command.clone()).source(concat!("gfxpack ", env!("CARGO_PKG_VERSION")))
}

/// What all pages say of the exit status, in the words of man(7).
const EXIT_STATUS: &str = r#".SH "EXIT STATUS"
.TP
0
Done; with verify, nothing is wrong.
.TP
1
Failed: a file or directory cannot be read or written, the input is damaged, verify has a finding, or a part of the work could not be done.
.TP
2
Wrong usage: the command line, what a configuration file says, or an output that is there already. Nothing was made.
.PP
Ctrl-C, SIGTERM and SIGHUP end a run by that signal.
"#;

/// Writes the pages of a command and of those below it.
fn write_pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    // What `gfxpack help build` prints is on the page of `gfxpack build`.
    let has_page = |below: &&clap::Command| !below.is_hide_set() && below.get_name() != "help";
    for below in command.get_subcommands().filter(has_page) {
        write_pages(below, dir)?;
    }
    let page = page_of(command).generate_to(dir)?;
    OpenOptions::new().append(true).open(page)?.write_all(EXIT_STATUS.as_bytes())
}
