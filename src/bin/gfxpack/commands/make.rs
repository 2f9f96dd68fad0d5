//! `gfxpack make`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use gfxpack::error::{Error, Result};
use gfxpack::package::render::Templates;
use gfxpack::package::set::SetOptions;
use gfxpack::pipeline::graph;
use indicatif::HumanBytes;

use super::{packaging_jobs, sign};
use crate::args::{Global, Make};
use crate::output::Ui;

pub fn run(args: &Make, global: &Global, ui: &Ui) -> Result<ExitCode> {
    let signer = sign::signer(&args.signing)?;
    if args.deb_detached_signature && signer.is_none() {
        return Err(Error::usage("--deb-detached-signature has no key to sign with")
            .hint("add --sign-key FILE or --sign-command COMMAND, or set GFXPACK_SIGN_KEY")
            .into());
    }
    let sizes_dir = args.sizes_dir.clone().unwrap_or_else(|| beside(&args.output_dir, "sizes"));
    let making = graph::Make {
        plans: &args.plans,
        output_dir: &args.output_dir,
        sizes_dir: &sizes_dir,
        times: !args.moved,
    };
    // Formats and templates are the plans' own.
    let options = SetOptions {
        formats: Vec::new(),
        templates: Templates::built_in(),
        memory: global.memory,
        spool: args.spool,
        signer: signer.map(Arc::new),
        digests: ui.is_json(),
        sign_debs: args.deb_detached_signature,
    };
    let files = graph::make(&making, options, &packaging_jobs(global), ui)?;
    let output = args.output_dir.to_string_lossy();
    let json = serde_json::json!({ "status": "done", "output": output, "packages": files });
    ui.result(&json, || {
        let line =
            |size: u64, file: &str| format!("{:>11}  {file}\n", HumanBytes(size).to_string());
        files.iter().map(|file| line(file.size, &file.file)).collect()
    });
    ui.made(files.iter().map(|file| file.size), &args.output_dir);
    Ok(ExitCode::SUCCESS)
}

/// `out.sizes` of `out`.
pub fn beside(output_dir: &Path, what: &str) -> PathBuf {
    let mut clean: PathBuf = output_dir.components().collect();
    let mut name = clean.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(what);
    clean.set_file_name(name);
    clean
}
