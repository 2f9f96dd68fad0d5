//! The arguments of commands that make packages: package, build, plan, make, sign.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap::builder::TypedValueParser;
use gfxpack::package::Format;
use gfxpack::package::compat::System;
use gfxpack::package::compress::Compression;

use super::target_distro::{self, TargetDistro};
use super::{Caching, Splitting, one_of, size};

#[derive(Debug, ClapArgs)]
pub struct Packaging {
    /// The packaging configuration: which architectures are packaged together
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Which files make which package [default: a package for each artifact and component]
    #[arg(long, value_name = "FILE")]
    pub packages: Option<PathBuf>,
    /// Where the packages go
    #[arg(long, value_name = "DIR")]
    pub output_dir: PathBuf,
    /// Version of what is packaged, as the build has it: 7.1.0, 7.1.0rc1, 7.1.0a20251126
    ///
    /// It is written so that dpkg and rpm put it in the same order: development builds (7.1.0.dev0+gabc123
    /// becomes 7.1.0~dev0+gabc123) before nightly ones (7.1.0a20251126 and 7.1.0~20251126 become
    /// 7.1.0~nightly20251126) before previews (7.1.0b1: 7.1.0~pre1) before release candidates (7.1.0rc1:
    /// 7.1.0~rc1) before the release (7.1.0) before its updates (7.1.0-update1 and 7.1.0.post1: 7.1.0+update1).
    /// Any other version of letters, digits, `.`, `+` and `~` is taken as it stands, with a warning. There
    /// are no epochs. docs/versions.md has the rules.
    #[arg(long, value_name = "V")]
    pub version: String,
    /// The packaging's number, which rises when the same version is packaged again
    #[arg(long, value_name = "R")]
    pub release: String,
    /// Formats to write
    #[arg(long, value_name = "FORMAT", value_delimiter = ',', default_value = "deb,rpm", value_parser = format())]
    pub format: Vec<Format>,
    /// Where everything is installed
    #[arg(
        long,
        help_heading = "What packages are like",
        value_name = "DIR",
        default_value = "/opt/rocm"
    )]
    pub install_prefix: String,
    /// The release whose packages a .deb depends on, or a file with the table of another one: a path with a `/` in
    /// it, or with `.txt` at its end
    ///
    /// What programs and libraries need of the C library and others becomes relations by the table of
    /// this release; a package for it installs on later ones too, as long as they have the same
    /// libraries. tools/deb-tables/make.sh makes a table of any release whose archive it can reach, as of
    /// Ubuntu 24.04. docs/relations.md says how relations are found and what is in a table. Without a table,
    /// give relations of your own and --no-auto-deps.
    #[arg(long, help_heading = "What packages are like", value_name = "RELEASE|FILE", default_value = "debian12", value_parser = target_distro::parser())]
    pub target_distro: TargetDistro,
    /// Do not look at what programs and libraries need: relations are those of the packages file
    #[arg(long, help_heading = "What packages are like")]
    pub no_auto_deps: bool,
    /// Only the packages of these definitions, or these packages
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub only: Vec<String>,
    /// Directory with templates instead of the built-in ones, as deb/control.hbs
    #[arg(long, help_heading = "What packages are like", value_name = "DIR")]
    pub templates: Option<PathBuf>,
    /// Compression of .deb content: zstd:LEVEL (1 to 19), zstd:LEVEL,long=LOG (a window of 2^LOG bytes, up
    /// to 27), xz:LEVEL (0 to 9) or none. docs/compression.md has sizes and times
    /// [default: zstd:3, or what --compat asks for]
    #[arg(long, help_heading = "Compression", value_name = "HOW")]
    pub deb_compression: Option<Compression>,
    /// Compression of .rpm content, said in the same way
    #[arg(long, help_heading = "Compression", value_name = "HOW")]
    pub rpm_compression: Option<Compression>,
    /// Systems whose dpkg or rpm has to be able to read the packages: xz where zstd is too new for one of them
    ///
    /// A relation or a version that is too new for one of them is an error. What the packages need of the system, as its C library, is
    /// the matter of --target-distro.
    #[arg(long, help_heading = "Compression", value_name = "SYSTEM", value_delimiter = ',', value_parser = system())]
    pub compat: Vec<System>,
    /// What may wait on disk for packages, as 20GiB, where the input is archives
    ///
    /// A package needs its files in order, and an archive is a stream: so one pass over an archive puts what packages take from
    /// it into files without a name, for as many packages at a time as have room here (kernels counted as before compression).
    /// With more room there are fewer passes. The output directory's file system has it; the bytes of packages do not change.
    /// [default: what the package takes that takes most, which is room for all packages of most archives]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub spool: Option<u64>,
    #[command(flatten)]
    pub caching: Caching,
    #[command(flatten)]
    pub signing: Signing,
    /// Also sign each .deb, in FILE.deb.asc beside it. dpkg and apt do not look at it: apt trusts the
    /// signed index of a repository
    #[arg(long, help_heading = "Signing")]
    pub deb_detached_signature: bool,
    /// Print what would be made, and make nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Replace what is there
    #[arg(long)]
    pub force: bool,
}

/// Who signs. Nothing secret is taken from the command line.
#[derive(Debug, ClapArgs)]
pub struct Signing {
    /// Sign .rpm packages and the indices of repositories with this OpenPGP secret key, as `gpg --armor
    /// --export-secret-keys` writes it; RSA of 4096 bits is read by every rpm. In place of a file, the
    /// armored key itself may be in GFXPACK_SIGN_KEY
    #[arg(
        long,
        help_heading = "Signing",
        value_name = "FILE",
        conflicts_with_all = ["sign_command", "sign_key_public"]
    )]
    pub sign_key: Option<PathBuf>,
    /// File with the passphrase that unlocks the key, a newline at its end or not; or the passphrase is
    /// in GFXPACK_SIGN_KEY_PASSPHRASE
    #[arg(long, help_heading = "Signing", value_name = "FILE", conflicts_with = "sign_command")]
    pub sign_key_passphrase_file: Option<PathBuf>,
    /// Sign by a command, run by /bin/sh: it has the data on standard input and the time, in seconds
    /// since 1970, in GFXPACK_SIGN_TIME, and prints a detached OpenPGP signature; of the type "text"
    /// where GFXPACK_SIGN_TEXT is set (gpg: ${GFXPACK_SIGN_TEXT:+--textmode}). For keys in devices and
    /// services
    #[arg(long, help_heading = "Signing", value_name = "COMMAND")]
    pub sign_command: Option<String>,
    /// The public key of the command's signatures, which are then checked before anything is written
    #[arg(long, help_heading = "Signing", value_name = "FILE", requires = "sign_command")]
    pub sign_key_public: Option<PathBuf>,
}

/// Sign packages that are there: .rpm within, .deb in a file beside it
///
/// For releases that one job builds and another, which has the key, signs. An .rpm is replaced by one
/// with the signature, once that is whole; only its signature header changes, and a signature that it
/// had goes. Header and payload are checked first. For FILE.deb, FILE.deb.asc is written. The time of a
/// signature is SOURCE_DATE_EPOCH or the package's own date, or the key's creation where that is later.
/// docs/signing.md has more.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack sign --sign-key release.key out/*.rpm\n  \
    gfxpack sign --sign-key-public release.pub out/*.rpm \\\n    \
        --sign-command 'gpg --faked-system-time \"$GFXPACK_SIGN_TIME!\" -u KEYID --detach-sign'")]
pub struct Sign {
    /// The packages
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub signing: Signing,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  \
    gfxpack package --artifacts-dir recombined --config groups.json --packages packages.json \\\n    \
        --output-dir out --version 7.1.0 --release 1")]
pub struct Package {
    /// The recombined artifacts
    #[arg(long, value_name = "DIR")]
    pub artifacts_dir: PathBuf,
    #[command(flatten)]
    pub packaging: Packaging,
}

/// Split, recombine and package in one pass, without trees in between
///
/// All or nothing: where one artifact is bad, all faults are told and no package is written. Packages
/// of half a build are of no use.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack build --input-shards-dir shards --config groups.json --packages packages.json \\\n    \
        --output-dir out --version 7.1.0 --release 1\n  \
    gfxpack build … --dry-run                    # what packages would hold and need\n  \
    gfxpack build … --format deb --only rocblas  # some of them\n\n\
    `gfxpack discover --write-config` drafts groups.json; `gfxpack schema` describes both files.")]
pub struct Build {
    /// Directory with a directory of artifacts, or archives of them, for each shard
    #[arg(long, value_name = "DIR")]
    pub input_shards_dir: PathBuf,
    #[command(flatten)]
    pub splitting: Splitting,
    #[command(flatten)]
    pub packaging: Packaging,
}

/// Plan a build, and write it as a graph of work for ninja or a CI service
///
/// Takes what `build` takes, plans all packages, and writes no package: a plan for each goes into
/// --plan-dir, and the graph into the file for an engine. Each node is one `gfxpack make` of one package
/// (in a matrix: of several), which reads its plan and those files of the input that it is made of, and
/// nothing else; what is written is, byte for byte, what `build` writes. Packages with a manifest of kernel
/// archives come after those with the archives, of which they need the sizes alone (in --sizes-dir).
///
/// Paths stand in plans and graphs as they are given here: relative ones start where the engine runs.
/// The same input and arguments give the same files. Packages of older runs in --output-dir that the nodes do not
/// make any more are removed, so that it ends up as `build` would leave it: those of the plans before, and with
/// --force all others. Without --force, others are refused. docs/scaling.md has times, and an example for a CI
/// service.
///
/// The text of --sign-command stands in graphs and matrices as it is given, for all who read those: have
/// it take a token or a PIN from a variable or a file.
#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("engine").required(true).multiple(true))]
#[command(mut_arg("dry_run", |arg| arg.hide(true)))]
#[command(after_help = "Examples:\n  \
    gfxpack plan --input-shards-dir shards --config groups.json --packages packages.json \\\n    \
        --output-dir out --version 7.1.0 --release 1 --ninja build.ninja && ninja\n  \
    gfxpack plan … --github-matrix matrix.json --workers 8")]
pub struct Plan {
    /// Write a file for ninja. It holds the rule that plans again where a file of the input or of the
    /// configuration changed, so that `ninja` alone brings packages up to date; FILE.d lists what that
    /// depends on. `-` is standard output: then there is no such rule
    #[arg(long, value_name = "FILE", group = "engine")]
    pub ninja: Option<PathBuf>,
    /// Write matrices of jobs, each for a machine of its own, as JSON: `first` and, for packages that need
    /// sizes, `then`. Each is what GitHub's strategy.matrix takes, a list `include` of jobs with name,
    /// command, packages, inputs (artifacts), sizes, plans, outputs and bytes. `-` is standard output
    #[arg(long, value_name = "FILE", group = "engine")]
    pub github_matrix: Option<PathBuf>,
    /// Jobs of a matrix at most; packages are shared out by the bytes that they are made of
    #[arg(long, value_name = "N", default_value_t = 8, requires = "github_matrix", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Where the plans go; others in it are removed [default: OUTPUT_DIR.plans]
    #[arg(long, value_name = "DIR")]
    pub plan_dir: Option<PathBuf>,
    /// Where nodes leave the sizes of their archives for others [default: OUTPUT_DIR.sizes]
    #[arg(long, value_name = "DIR")]
    pub sizes_dir: Option<PathBuf>,
    #[command(flatten)]
    pub build: Build,
}

/// Write the packages of plans that `gfxpack plan` made
///
/// Reads of the input what the packages are made of, and nothing else: the rest need not be there.
/// Packages go into a directory that may hold others, and be written to by other runs; files of the same
/// names are replaced once the new ones are whole, so a run that was killed can be started again.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  \
    gfxpack make --output-dir out --sizes-dir out.sizes out.plans/rocblas-gfx110X.plan")]
pub struct Make {
    /// The plans
    #[arg(required = true, value_name = "PLAN")]
    pub plans: Vec<PathBuf>,
    /// Where the packages go
    #[arg(long, value_name = "DIR")]
    pub output_dir: PathBuf,
    /// Where files with the sizes of kernel archives go and, of packages that a plan needs, are
    /// [default: OUTPUT_DIR.sizes]
    #[arg(long, value_name = "DIR")]
    pub sizes_dir: Option<PathBuf>,
    /// Take files of the input whatever their time is, as long as they have their length: on another
    /// machine, where they were copied to. Without, a file that is not of the time that it was planned with
    /// is refused
    #[arg(long)]
    pub moved: bool,
    /// What may wait on disk for packages, as 20GiB, where the input is archives: as for `gfxpack build`. With more room
    /// several plans at once pass over an archive less often; the bytes of packages do not change
    /// [default: what the package takes that takes most]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub spool: Option<u64>,
    #[command(flatten)]
    pub signing: Signing,
    /// Also sign each .deb, in FILE.deb.asc beside it
    #[arg(long, help_heading = "Signing")]
    pub deb_detached_signature: bool,
}

/// One of both formats.
pub fn format() -> impl TypedValueParser<Value = Format> {
    one_of(Format::ALL.map(Format::as_str), Format::called)
}

fn system() -> impl TypedValueParser<Value = System> {
    one_of(System::names(), |name| name.parse().ok())
}
