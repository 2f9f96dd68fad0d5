//! The arguments. Those that the public tools for split, recombine and verify have keep their names.
//!
//! Here is what concerns all commands and taking shards apart; `looking` has the commands that write nothing, `packages` those that
//! make packages, `repo` those for repositories; `target_distro` is the value of one option.

mod looking;
mod packages;
mod repo;
mod target_distro;

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use gfxpack::target::TargetId;
use gfxpack::tree::TreePath;

pub use looking::{Discover, Extract, Inspect, Verify};
pub use packages::{Build, Make, Package, Packaging, Plan, Sign, Signing};
pub use repo::{Bringing, Publishing, Rehearsal, Repo, RepoAction, RepoSettings, RepoSimple};
pub use target_distro::TargetDistro;

/// Turns the artifacts of a ROCm-style GPU build into packages: host code once, GPU code for each
/// architecture group apart.
#[derive(Debug, Parser)]
#[command(
    name = "gfxpack",
    version,
    max_term_width = 100,
    after_help = "From the shards of a build to a repository:\n  \
        gfxpack discover shards --write-config groups.json    # which GPUs there is code for\n  \
        gfxpack build --input-shards-dir shards --config groups.json --packages packages.json \\\n    \
        --output-dir out --version 7.1.0 --release 1        # --dry-run prints the plan alone\n  \
        gfxpack verify --packages-dir out --config groups.json\n  \
        gfxpack repo create /srv/rocm out\n\n\
        `build` does in one pass what `split`, `recombine` and `package` do one after the other.\n\
        `gfxpack COMMAND --help` has more on each, with examples; `-h` is short.\n\n\
        Exit status:\n  \
        0  done; with `verify`, nothing is wrong\n  \
        1  failed: a file or directory that cannot be read or written, damaged input, a finding of\n     \
        `verify`, or a part of the work that could not be done\n  \
        2  wrong usage: the command line, what a configuration file says, or an output that is there\n     \
        already; nothing was made\n\
        Ctrl-C, SIGTERM and SIGHUP end a run within a second by that signal; what is unfinished is removed."
)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, ClapArgs)]
pub struct Global {
    /// Say more: every artifact, what was left alone and why
    #[arg(long, short, global = true, help_heading = "Everywhere")]
    pub verbose: bool,
    /// Say nothing but errors
    #[arg(long, short, global = true, help_heading = "Everywhere", conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print the result as one JSON document on standard output
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
    /// Threads to use [default: one for each core]
    #[arg(long, short, global = true, help_heading = "Everywhere", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Memory to use, as 256MiB or 1GiB: for `package`, `build` and `make` the most that the run takes, which
    /// then works on fewer packages at once, with fewer threads; elsewhere what data in flight takes;
    /// in `split` compressed bundles take up to 7/4 of it besides, and a large one by itself up to 128MiB
    /// [default: 64MiB in flight]
    #[arg(long, global = true, help_heading = "Everywhere", value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// When to use colours
    #[arg(
        long,
        global = true,
        help_heading = "Everywhere",
        value_name = "WHEN",
        default_value = "auto"
    )]
    pub color: Color,
}

#[derive(Debug, Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum Color {
    Auto,
    Always,
    Never,
}

/// What is not described here is described at its arguments: that says more.
#[derive(Debug, Subcommand)]
pub enum Command {
    Discover(Discover),
    Split(Split),
    Recombine(Recombine),
    Verify(Verify),
    /// Write .deb and .rpm packages from recombined artifacts
    Package(Package),
    Build(Build),
    Plan(Plan),
    Make(Make),
    Sign(Sign),
    Repo(Repo),
    Inspect(Inspect),
    Extract(Extract),
    /// Print the JSON Schema of a configuration file
    Schema(Schema),
    /// Print shell completions
    Completions(Completions),
    Man(Man),
}

/// Print a manual page, or write those of all commands
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack man repo add | man -l -\n  \
    gfxpack man --output-dir /usr/share/man/man1")]
pub struct Man {
    /// The command, as `build` or `repo add`; without one, the page of gfxpack itself
    #[arg(value_name = "COMMAND", conflicts_with = "output_dir", value_parser = CommandNames)]
    #[arg(hide_possible_values = true)]
    pub command: Vec<String>,
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
}

/// Takes any word, and offers to completion what the program's commands and those below them are called.
/// Which words go together is for those who look them up.
#[derive(Debug, Clone)]
struct CommandNames;

impl TypedValueParser for CommandNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(COMMANDS.into_iter().map(PossibleValue::new)))
    }
}

/// What all commands are called, sorted, with those of `repo`.
const COMMANDS: [&str; 23] = [
    "add",
    "build",
    "completions",
    "create",
    "discover",
    "extract",
    "inspect",
    "list",
    "make",
    "man",
    "merge",
    "package",
    "plan",
    "prune",
    "publish",
    "recombine",
    "remove",
    "repo",
    "schema",
    "set",
    "sign",
    "split",
    "verify",
];

/// Which kernel databases there are.
#[derive(Debug, ClapArgs)]
pub struct Databases {
    /// Table of further kernel databases, as docs/databases.md describes; one of a known name
    /// replaces it
    #[arg(long, help_heading = "Kernel databases", value_name = "FILE")]
    pub databases: Option<PathBuf>,
    /// Kernel databases whose files go with their architecture [default: all known; `none` for none]
    #[arg(long, help_heading = "Kernel databases", value_name = "NAME", num_args = 1..)]
    pub split_databases: Option<Vec<String>>,
}

#[derive(Debug, ClapArgs)]
pub struct Splitting {
    #[command(flatten)]
    pub databases: Databases,
    /// Which kernels share an archive [default: component for split, prefix for build]
    #[arg(long, help_heading = "Kernel archives", value_name = "SCOPE")]
    pub kpack_scope: Option<Scope>,
    /// Where archives stand in an artifact
    #[arg(long, help_heading = "Kernel archives", value_name = "WHERE", default_value = "stage")]
    pub kpack_layout: Layout,
    /// Folder of archives below the install prefix; its last part has to be `.kpack` [default: .kpack;
    /// for build with --install-prefix /usr lib/.kpack, since distributions keep /usr itself tidy]
    #[arg(long, help_heading = "Kernel archives", value_name = "DIR", value_parser = kpack_dir)]
    pub kpack_dir: Option<TreePath>,
    /// What a binary's marker is written as: what the runtime reads, or plain text
    #[arg(long, help_heading = "Kernel archives", value_name = "FORM", default_value = "msgpack")]
    pub kpack_ref: KpackRef,
    /// How archives hold their kernels
    #[arg(long, help_heading = "Kernel archives", value_name = "HOW", default_value = "zstd")]
    pub compression: KpackCompression,
    /// Level of zstd in archives
    #[arg(long, help_heading = "Kernel archives", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression_level: i32,
    /// Keep the code of these architectures only
    #[arg(long, value_name = "ISA", num_args = 1.., value_delimiter = ',')]
    pub gpu_targets: Option<Vec<TargetId>>,
}

/// What a run keeps for the next one.
#[derive(Debug, ClapArgs)]
pub struct Caching {
    /// Directory that keeps what takes long to make for the next run: kpack archives by the digests of
    /// their code objects, and with `build` and `package` whole packages that are not signed. Everything that is taken from
    /// it is checked; the output is the same with and without. Several runs can share it. Who can write
    /// to it can change what is made: keep it to those who build. docs/cache.md has more
    #[arg(long, value_name = "DIR", help_heading = "Cache")]
    pub cache: Option<PathBuf>,
    /// What the cache may take on disk, as 500MiB or 20GiB. Where it takes more, entries are removed until it fits:
    /// first those whose last use, by any run, is longest ago
    #[arg(long, value_name = "SIZE", default_value = "20GiB", help_heading = "Cache", value_parser = size, requires = "cache")]
    pub cache_size: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Scope {
    /// One for each artifact and component
    Component,
    /// One for each prefix, so that packages can take prefixes apart
    Prefix,
    /// One for each binary
    Binary,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Layout {
    /// Under a prefix of their own, kpack/stage
    Stage,
    /// Under the prefix of the binaries
    InPlace,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum KpackRef {
    Msgpack,
    Text,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum KpackCompression {
    Zstd,
    None,
}

/// Split fat artifacts into host code and the GPU code of each architecture
///
/// One artifact (--artifact-dir) is split as a whole or not at all. In a batch
/// (--batch-artifact-parent-dir) each artifact is split for itself: where a file of one is damaged or
/// cannot be read, nothing of that artifact is in the output, the others are there whole, every fault
/// is told, and the status is 1. The last error then says that the output is incomplete, and which
/// artifacts failed. Where all fail, or the output itself cannot be written, as on a full disk, nothing
/// is placed. recombine and build need all artifacts: one that is bad fails the run.
#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("input").required(true))]
#[command(after_help = "Examples:\n  \
    gfxpack split --artifact-dir blas_lib_gfx110X-dgpu --artifact-prefix blas_lib --output-dir out\n  \
    gfxpack split --batch-artifact-parent-dir shards/gfx110X-build --output-dir split/gfx110X-build")]
pub struct Split {
    /// One artifact: a directory, or an archive of one (.tar.zst, .tar.xz, .tar.gz), which is read as
    /// a stream, and checked where a .sha256sum is beside it
    #[arg(long, value_name = "DIR|ARCHIVE", group = "input", requires = "artifact_prefix")]
    pub artifact_dir: Option<PathBuf>,
    /// Its name without the target, as blas_lib
    #[arg(long, value_name = "NAME", conflicts_with = "batch_artifact_parent_dir")]
    pub artifact_prefix: Option<String>,
    /// A shard: all artifacts in this directory, directories and archives, their prefixes taken from
    /// their names. One that is bad is left out, and the others are split
    #[arg(long, value_name = "DIR", group = "input")]
    pub batch_artifact_parent_dir: Option<PathBuf>,
    /// Where the split artifacts go
    #[arg(long, value_name = "DIR")]
    pub output_dir: PathBuf,
    #[command(flatten)]
    pub splitting: Splitting,
    #[command(flatten)]
    pub caching: Caching,
    /// Accepted for existing scripts: nothing temporary is needed beside the output
    #[arg(long, value_name = "DIR")]
    pub tmp_dir: Option<PathBuf>,
    /// Accepted for existing scripts: bundles are read without it
    #[arg(long, value_name = "FILE")]
    pub clang_offload_bundler: Option<PathBuf>,
    /// Replace what is there. A batch replaces the whole directory, also where some artifacts failed
    /// (what an earlier run made of them is gone), and leaves it as it is where all did
    #[arg(long)]
    pub force: bool,
}

/// Regroup the split artifacts of all shards as a packaging configuration says
///
/// All or nothing: where one artifact is bad, all faults are told and nothing is written.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  \
    gfxpack recombine --input-shards-dir split --config groups.json --output-dir recombined")]
pub struct Recombine {
    /// Directory with a directory of split artifacts for each shard
    #[arg(long, value_name = "DIR")]
    pub input_shards_dir: PathBuf,
    /// The packaging configuration: which architectures are packaged together
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Where the recombined artifacts go
    #[arg(long, value_name = "DIR")]
    pub output_dir: PathBuf,
    /// Copy files that could be hard links to the input
    #[arg(long)]
    pub copy: bool,
    /// Replace what is there
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  gfxpack schema packages > packages.schema.json")]
pub struct Schema {
    /// Which file's; all of them as one document where it is left out
    pub file: Option<SchemaOf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SchemaOf {
    /// --config
    Groups,
    /// --packages
    Packages,
    /// --databases
    Databases,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples, for one user:\n  \
    gfxpack completions bash > ~/.local/share/bash-completion/completions/gfxpack\n  \
    gfxpack completions zsh > ~/.zfunc/_gfxpack        # a directory in $fpath\n  \
    gfxpack completions fish > ~/.config/fish/completions/gfxpack.fish")]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// One of a fixed set of names, which help and completion know. `called` gives what a name of them is of.
fn one_of<T: Clone + Send + Sync + 'static>(
    names: impl IntoIterator<Item = &'static str>,
    called: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(names);
    NotEmpty(names.try_map(move |name| called(&name).ok_or("is not known")))
}

/// Refuses a value without a character, as a comma too many makes it in a list, in words that say so.
#[derive(Clone)]
struct NotEmpty<P>(P);

impl<P: TypedValueParser> TypedValueParser for NotEmpty<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<P::Value, clap::Error> {
        if !value.is_empty() {
            return self.0.parse_ref(command, arg, value);
        }
        let arg = arg.map(|arg| format!("'{arg}'")).unwrap_or_default();
        let names = self.possible_values().into_iter().flatten();
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        let what = format!(
            "an empty value for {arg}: is there a comma too many? (expected {})\n",
            names.join(", ")
        );
        Err(clap::Error::raw(ErrorKind::InvalidValue, what).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// `64MiB`, `1GiB`, `1000000`.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        _ => return Err("expected a number with KiB, MiB, GiB or TiB".into()),
    };
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|n| n.checked_mul(factor)).ok_or_else(|| "expected a size as 256MiB".into())
}

/// A folder of archives. Staging and the checks know archives by the last part of its name.
fn kpack_dir(text: &str) -> Result<TreePath, String> {
    let dir = TreePath::new(text).map_err(|e| e.to_string())?;
    if dir.file_name() == b".kpack" && dir.as_str().is_some() {
        Ok(dir)
    } else {
        Err("its last part is not `.kpack`, as in lib/.kpack".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn completion_of_man_knows_every_command() {
        fn add(command: &clap::Command, names: &mut BTreeSet<String>) {
            for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
                names.insert(below.get_name().to_owned());
                add(below, names);
            }
        }
        let mut names = BTreeSet::new();
        add(&Args::command(), &mut names);
        assert_eq!(COMMANDS.to_vec(), names.into_iter().collect::<Vec<_>>());
    }
}
