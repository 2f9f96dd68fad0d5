//! What the program says of itself: `gfxpack schema`, `completions`, `man`

use std::process::ExitCode;

use clap::CommandFactory;
use gfxpack::config::{PackagesConfig, PackagingConfig};
use gfxpack::database::DatabasesConfig;
use gfxpack::error::{Error, Result};

use crate::args::{Args, Completions, Schema, SchemaOf};
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

pub fn man() -> Result<ExitCode> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Args::command())
        .render(&mut page)
        .map_err(|e| Error::failed("cannot render the manual page").because(e))?;
    Ui::print(&String::from_utf8_lossy(&page));
    Ok(ExitCode::SUCCESS)
}
