//! The arguments. Those that the public tools for split, recombine and verify have keep their names.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use gfxpack::package::Format;
use gfxpack::package::compat::System;
use gfxpack::package::compress::Compression;
use gfxpack::package::elfdeps::Distro;
use gfxpack::repo::rpm::Compression as MetadataCompression;
use gfxpack::target::TargetId;
use gfxpack::tree::TreePath;

/// Turns the artifacts of a ROCm-style GPU build into packages: host code once, GPU code for each
/// architecture group apart.
#[derive(Debug, Parser)]
#[command(
    name = "gfxpack",
    version,
    max_term_width = 100,
    after_help = "One step from the shards of a build to packages:\n  \
        gfxpack build --input-shards-dir shards --config groups.json --packages packages.json \\\n    \
        --output-dir out --version 7.1.0 --release 1\n\n\
        Exit status: 0 done, 1 failed, 2 wrong usage or configuration. Ctrl-C, SIGTERM and SIGHUP end\n\
        a run within a second; unfinished output is removed."
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
    /// Memory to use, as 256MiB or 1GiB: for `package` and `build` the most that the run takes, which
    /// then works on fewer packages at once, with fewer threads; elsewhere what data in flight takes
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
    #[arg(value_name = "COMMAND", conflicts_with = "output_dir")]
    pub command: Vec<String>,
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
}

/// Show which architectures artifacts, shards or files have code for, and draft a configuration
///
/// A PATH is a file, an artifact (a directory with artifact_manifest.txt, or an archive of one, as
/// blas_lib_generic.tar.zst), a shard or another directory of artifacts, a directory of shards, or any other directory, such as an installed tree;
/// which it is, is told by looking. Split and recombined trees work as well as fat ones. Code objects
/// that are stored once count once; bytes are those before compression.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack discover shards\n  \
    gfxpack discover --verbose librocblas.so.5 librocsparse.so.1\n  \
    gfxpack discover shards --write-config groups.json --primary-shard gfx110X-build")]
pub struct Discover {
    /// What to look through
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Table of further kernel databases, as docs/databases.md describes
    #[arg(long, value_name = "FILE")]
    pub databases: Option<PathBuf>,
    /// Write a packaging configuration that groups the architectures by family
    #[arg(long, value_name = "FILE")]
    pub write_config: Option<PathBuf>,
    /// The shard whose host code the configuration takes [default: the first by name]
    #[arg(long, value_name = "NAME", requires = "write_config")]
    pub primary_shard: Option<String>,
    /// Replace a configuration that is there
    #[arg(long, requires = "write_config")]
    pub force: bool,
}

/// Show what a package, archive, binary, bundle or code object holds, or how two differ
///
/// What FILE is, is told by its content: a .kpack archive, a .kpm manifest, a program or shared library
/// (with its wrappers, bundles or marker), an offload bundle, plain or compressed, a code object (.co,
/// .hsaco), a .deb or .rpm package; an artifact_manifest.txt by its name. Long lists are cut without
/// --verbose; --json has everything.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack inspect .kpack/blas_lib_gfx1100.kpack\n  \
    gfxpack inspect --verbose lib/librocblas.so.5\n  \
    gfxpack inspect --json rocblas-gfx110x_7.1.0-1_amd64.deb\n  \
    gfxpack inspect --diff rocblas-7.0.0-1.x86_64.rpm rocblas-7.1.0-1.x86_64.rpm")]
pub struct Inspect {
    /// The file
    #[arg(value_name = "FILE", required_unless_present = "diff", conflicts_with = "diff")]
    pub file: Option<PathBuf>,
    /// Show what differs between two .deb, two .rpm or two .kpack files
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    pub diff: Option<Vec<PathBuf>>,
}

/// Take code objects out of a kpack archive, a fat binary or a bundle, into files
///
/// A code object becomes a file called by its kernel name, index and architecture, with `/` written as
/// `+`, as lib+librocblas.so.5#0.gfx1100.co. Each is checked on the way; where one is damaged, or not
/// for the architecture that it is filed under, nothing is written.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack extract blas_lib_gfx1100.kpack --output-dir kernels\n  \
    gfxpack extract librocblas.so.5 --isa gfx1100,gfx90a --output-dir kernels\n  \
    gfxpack extract blas_lib_gfx1100.kpack --kernel '*librocblas.so*#0' --output-dir kernels")]
pub struct Extract {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the code objects go
    #[arg(long, value_name = "DIR")]
    pub output_dir: PathBuf,
    /// Only code for these architectures; one without features takes its variants too
    #[arg(long, value_name = "ISA", value_delimiter = ',')]
    pub isa: Vec<TargetId>,
    /// Only kernels whose name matches, with #index or without; * takes slashes too
    #[arg(long, value_name = "GLOB")]
    pub kernel: Option<String>,
    /// Replace what is there
    #[arg(long)]
    pub force: bool,
}

/// Which kernel databases there are.
#[derive(Debug, ClapArgs)]
pub struct Databases {
    /// Table of further kernel databases, as docs/databases.md describes; one of a known name
    /// replaces it
    #[arg(long, value_name = "FILE")]
    pub databases: Option<PathBuf>,
    /// Kernel databases whose files go with their architecture [default: all known; `none` for none]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub split_databases: Option<Vec<String>>,
}

#[derive(Debug, ClapArgs)]
pub struct Splitting {
    #[command(flatten)]
    pub databases: Databases,
    /// Which kernels share an archive [default: component for split, prefix for build]
    #[arg(long, value_name = "SCOPE")]
    pub kpack_scope: Option<Scope>,
    /// Where archives stand in an artifact
    #[arg(long, value_name = "WHERE", default_value = "stage")]
    pub kpack_layout: Layout,
    /// Folder of archives below the install prefix; its last part has to be `.kpack` [default: .kpack;
    /// for build with --install-prefix /usr lib/.kpack, since distributions keep /usr itself tidy]
    #[arg(long, value_name = "DIR", value_parser = kpack_dir)]
    pub kpack_dir: Option<TreePath>,
    /// What a binary's marker is written as: what the runtime reads, or plain text
    #[arg(long, value_name = "FORM", default_value = "msgpack")]
    pub kpack_ref: KpackRef,
    /// How archives hold their kernels
    #[arg(long, value_name = "HOW", default_value = "zstd")]
    pub compression: KpackCompression,
    /// Level of zstd in archives
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression_level: i32,
    /// Keep the code of these architectures only
    #[arg(long, value_name = "ISA", num_args = 1.., value_delimiter = ',')]
    pub gpu_targets: Option<Vec<TargetId>>,
}

/// What a run keeps for the next one.
#[derive(Debug, ClapArgs)]
pub struct Caching {
    /// Directory that keeps what takes long to make for the next run: kpack archives by the digests of
    /// their code objects, and with `build` and `package` whole packages. Everything that is taken from
    /// it is checked; the output is the same with and without. Several runs can share it. Who can write
    /// to it can change what is made: keep it to those who build. docs/cache.md has more
    #[arg(long, value_name = "DIR", help_heading = "Cache")]
    pub cache: Option<PathBuf>,
    /// What it may take on disk, as 500MiB or 20GiB: what was not used for longest is removed
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

/// Check that split or recombined artifacts hold what users need
///
/// Reads every file: manifests, host code, kpack archives, kernel databases, and looks each kernel up
/// as the runtime would from the installed place. docs/verify.md explains each check. Ends with
/// status 1 where a check failed.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack verify --artifacts-dir split/gfx110X-build --source shards/gfx110X-build\n  \
    gfxpack verify --artifacts-dir recombined --source shards --junit verify.xml\n  \
    gfxpack verify --repo-dir /srv/rocm.new --previous /srv/rocm --key release.pub")]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true)
    .args(["artifacts_dir", "packages_dir", "repo_dir"]))]
pub struct Verify {
    /// A directory of split or of recombined artifacts
    #[arg(long, value_name = "DIR")]
    pub artifacts_dir: Option<PathBuf>,
    /// A directory of .deb and .rpm files instead: one set of packages, in one format or in both
    #[arg(long, value_name = "DIR", conflicts_with_all = ["artifacts_dir", "source"])]
    pub packages_dir: Option<PathBuf>,
    /// A repository instead, as `gfxpack repo` makes it, or one of apt (with dists/) or of rpm (with repodata/)
    /// that another program made: every file that is listed is there and is what is said of it, relations are met, no two
    /// packages bring one file
    #[arg(long, value_name = "DIR", conflicts_with_all = ["artifacts_dir", "packages_dir", "source", "config"])]
    pub repo_dir: Option<PathBuf>,
    /// The repository as clients have it: nothing may have become older, or other bytes under its name
    #[arg(long, value_name = "DIR", requires = "repo_dir")]
    pub previous: Option<PathBuf>,
    /// The public keys that clients have, as `gpg --export` writes them: indices must be signed by one of them, and
    /// so must signed .rpm packages
    #[arg(long, value_name = "FILE", requires = "repo_dir")]
    pub key: Option<PathBuf>,
    /// Where the packages install everything
    #[arg(long, value_name = "DIR", default_value = "/opt/rocm", requires = "packages_dir")]
    pub install_prefix: String,
    /// Directory for unnamed temporary files, each as large as the largest archive or library of a
    /// package
    #[arg(long, value_name = "DIR", requires = "packages_dir")]
    pub tmp_dir: Option<PathBuf>,
    /// What they were made from: the shard of split artifacts, the directory of shards of recombined
    /// ones, archives among them or not; then also nothing of it may be lost or changed
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// The packaging configuration that they were recombined by
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub databases: Databases,
    /// Let warnings fail as well
    #[arg(long)]
    pub warnings_as_errors: bool,
    /// SONAME of a library, or name of a package, that comes from elsewhere, as libamdhip64.so.*
    /// (repeatable). With this, everything else that is needed must be there; without, what is missing
    /// is listed, and only what --source has, or what is of the set's own version, is an error. glibc
    /// and GCC's libraries need not be named
    #[arg(long, value_name = "GLOB")]
    pub external: Vec<String>,
    /// Accept findings of a check, with a reason that the report repeats
    #[arg(long, value_name = "ID:GLOB=REASON")]
    pub allow: Vec<String>,
    /// Write the report as a JUnit file
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Accepted for existing scripts: bundles are read without it
    #[arg(long, value_name = "FILE")]
    pub clang_offload_bundler: Option<PathBuf>,
}

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
    #[arg(long, value_name = "FORMAT", value_delimiter = ',', default_value = "deb,rpm", value_parser = format)]
    pub format: Vec<Format>,
    /// Where everything is installed
    #[arg(long, value_name = "DIR", default_value = "/opt/rocm")]
    pub install_prefix: String,
    /// The release whose packages a .deb depends on: debian12 or debian13
    ///
    /// What programs and libraries need of the C library and others becomes relations by the table of
    /// this release; a package for it installs on later ones too, as long as they have the same
    /// libraries. docs/relations.md says how relations are found.
    #[arg(long, value_name = "RELEASE", default_value = "debian12", value_parser = distro)]
    pub target_distro: Distro,
    /// Do not look at what programs and libraries need: relations are those of the packages file
    #[arg(long)]
    pub no_auto_deps: bool,
    /// Only the packages of these definitions, or these packages
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub only: Vec<String>,
    /// Directory with templates instead of the built-in ones, as deb/control.hbs
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
    /// Compression of .deb content: zstd:LEVEL (1 to 19), zstd:LEVEL,long=LOG (a window of 2^LOG bytes, up
    /// to 27), xz:LEVEL (0 to 9) or none. docs/compression.md has sizes and times
    /// [default: zstd:3, or what --compat asks for]
    #[arg(long, value_name = "HOW")]
    pub deb_compression: Option<Compression>,
    /// Compression of .rpm content, said in the same way
    #[arg(long, value_name = "HOW")]
    pub rpm_compression: Option<Compression>,
    /// Systems that have to be able to install the packages: xz where zstd is too new for one of them.
    /// debian11, debian12, debian13, ubuntu20.04, ubuntu22.04, ubuntu24.04, el7, el8, el9, el10, sle15, sle16
    #[arg(long, value_name = "SYSTEM", value_delimiter = ',')]
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

/// Make and keep repositories that apt, dnf and zypper install from
///
/// A repository is a directory to be served as it is: deb/ for apt, rpm/ for dnf and zypper, and .gfxpack, which
/// clients need not see. Each command below changes it in one step: clients see what was there before or what
/// is there after, and go on with what they have begun, since older indices and packages stay for a while. A run
/// that is killed changes nothing, or is finished by the next one. docs/repositories.md has the layout, what
/// clients see at each moment, and a nightly job.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack repo create /srv/rocm out --origin Example --url https://repo.example.org/rocm \\\n    \
        --sign-key release.key\n  \
    gfxpack repo add /srv/rocm out/*.deb out/*.rpm --sign-key release.key\n  \
    gfxpack repo prune /srv/rocm --keep 5 --sign-key release.key")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Repo {
    #[command(subcommand)]
    pub action: Option<RepoAction>,
    #[command(flatten)]
    pub simple: RepoSimple,
}

/// Makes a repository with the defaults, or adds to it.
#[derive(Debug, ClapArgs)]
pub struct RepoSimple {
    /// Packages to publish in --output-dir, in one step: as `create` with its defaults where there is no repository yet,
    /// else as `add`
    #[arg(long, value_name = "DIR", required = true)]
    pub packages_dir: Option<PathBuf>,
    /// The repository
    #[arg(long, value_name = "DIR", required = true)]
    pub output_dir: Option<PathBuf>,
    #[command(flatten)]
    pub bringing: Bringing,
    #[command(flatten)]
    pub publishing: Publishing,
}

#[derive(Debug, Subcommand)]
pub enum RepoAction {
    Create(RepoCreate),
    Add(RepoAdd),
    Remove(RepoRemove),
    Prune(RepoPrune),
    Merge(RepoMerge),
    /// Publish what there is anew: with a later date, another key, or a new time until which it is valid
    Publish(RepoPublish),
    /// List the packages of a repository
    List(RepoList),
}

/// How a change to a repository is published.
#[derive(Debug, ClapArgs)]
pub struct Publishing {
    /// Date of the publication, in seconds since 1970 [default: SOURCE_DATE_EPOCH, else that of the newest
    /// package]
    ///
    /// It is the Date of apt's Release, which clients do not take if it is older than the one they have: where it
    /// would not be later than that of the publication before, it becomes one second later. The clock is not
    /// looked at. A package that is dated later than the date that is given is refused.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..=i64::from(u32::MAX)))]
    pub date: Option<i64>,
    /// Publish though clients could not install or upgrade to what is newest
    ///
    /// A group's package needs exactly one version of its generic package. A repository with the generic packages
    /// of a new release and the groups' of an old one is refused without this: apt would refuse to install a
    /// group's package, and hold back the others.
    #[arg(long)]
    pub allow_partial: bool,
    /// Sign with another key than the repository was signed with before. Clients refuse it until they have
    /// the new key
    #[arg(long, help_heading = "Signing")]
    pub new_key: bool,
    #[command(flatten)]
    pub signing: Signing,
}

/// How packages are brought into a repository.
#[derive(Debug, ClapArgs)]
pub struct Bringing {
    /// Sign .rpm packages on their way in, as `gfxpack sign` does; the originals stay as they are
    #[arg(long, help_heading = "Signing")]
    pub sign_packages: bool,
    /// Make hard links to packages instead of copies, where the file system can and all may read them. The
    /// files then must not be written to again
    #[arg(long)]
    pub link: bool,
}

/// Make a repository, with packages or without
///
/// Packages in both formats go into one directory: deb/ and rpm/ are published together, so that a release is
/// there for all systems at once. A repository has one suite: make one for each train of releases (nightly,
/// stable), so that none can break another.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack repo create /srv/rocm out --origin Example --suite stable --valid-days 14 \\\n    \
        --url https://repo.example.org/rocm --sign-key release.key\n  \
    gfxpack repo create /srv/rocm --component 'gfx110x=*-gfx110x' --component 'gfx120x=*-gfx120x'")]
pub struct RepoCreate {
    /// The directory: new, or empty
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Packages, and directories in which to look for them
    #[arg(value_name = "PACKAGE|DIR")]
    pub packages: Vec<PathBuf>,
    /// Name of the release train: the directory below dists/, and what stands in sources
    #[arg(long, value_name = "NAME", default_value = "stable", value_parser = word)]
    pub suite: String,
    /// Codename, where it is another than the suite
    #[arg(long, value_name = "NAME", value_parser = word)]
    pub codename: Option<String>,
    /// Who publishes. Files to be copied to clients are called after it
    #[arg(long, value_name = "TEXT", default_value = "gfxpack", value_parser = line)]
    pub origin: String,
    /// What it is, for people and for apt's pinning [default: the origin]
    #[arg(long, value_name = "TEXT", value_parser = line)]
    pub label: Option<String>,
    /// Put .deb packages whose names match GLOB into a component NAME of their own, so that clients read the
    /// indices of their own groups only (repeatable; the first that matches counts) [default: all in main]
    #[arg(long, value_name = "NAME=GLOB", value_parser = component)]
    pub component: Vec<(String, String)>,
    /// Architectures that have an index even without packages
    #[arg(long, value_name = "ARCH", value_delimiter = ',', default_value = "amd64", value_parser = word)]
    pub arch: Vec<String>,
    /// Days from the date of a publication after which apt no longer trusts it; publish again before that
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub valid_days: Option<u32>,
    /// Where clients find DIR, as https://repo.example.org/rocm; then .sources and .repo files are made
    #[arg(long, value_name = "URL", value_parser = line)]
    pub url: Option<String>,
    /// Publications before the newest whose indices and packages stay, for clients in the middle of something
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub keep_publications: u64,
    /// Days for which they stay at least, counted between the dates of publications
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=3650))]
    pub keep_days: u32,
    /// How metadata for dnf and zypper are compressed: zstd, which systems since RHEL 8.2 read, or gzip, which all
    /// do
    #[arg(long, value_name = "HOW", default_value = "zstd", value_parser = metadata_compression)]
    pub rpm_compression: MetadataCompression,
    #[command(flatten)]
    pub bringing: Bringing,
    #[command(flatten)]
    pub publishing: Publishing,
}

/// Add packages to a repository
///
/// Only the new packages are read. One that is there already is passed over; the same name, version and architecture
/// with other bytes is refused, since clients and mirrors keep what they have. Which version is newest, clients
/// decide by the format's own order, so older ones can be added later.
#[derive(Debug, ClapArgs)]
pub struct RepoAdd {
    /// The repository
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Packages, and directories in which to look for them
    #[arg(value_name = "PACKAGE|DIR", required = true)]
    pub packages: Vec<PathBuf>,
    #[command(flatten)]
    pub bringing: Bringing,
    #[command(flatten)]
    pub publishing: Publishing,
}

/// Remove packages from a repository
///
/// They are in no index any more; their files stay as long as an older index is kept that has them.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack repo remove /srv/rocm 'rocblas-*=7.1.0-1' --sign-key release.key\n  \
    gfxpack repo remove /srv/rocm --format deb rocblas-gfx90a --sign-key release.key")]
pub struct RepoRemove {
    /// The repository
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Which: a name, all of its versions; or one version, with its release. `*` in a name is anything
    #[arg(value_name = "NAME[=VERSION]", required = true)]
    pub packages: Vec<String>,
    /// Only those of this format
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub publishing: Publishing,
}

/// Remove old versions: keep the newest of each package
#[derive(Debug, ClapArgs)]
pub struct RepoPrune {
    /// The repository
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// How many versions of each package and architecture stay
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    #[command(flatten)]
    pub publishing: Publishing,
}

/// Add all packages of other repositories
///
/// No version is lost: all that either has is there afterwards. What is the same name with other bytes is refused.
#[derive(Debug, ClapArgs)]
pub struct RepoMerge {
    /// The repository that they are added to
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The others, which are only read
    #[arg(value_name = "OTHER", required = true)]
    pub others: Vec<PathBuf>,
    #[command(flatten)]
    pub bringing: Bringing,
    #[command(flatten)]
    pub publishing: Publishing,
}

#[derive(Debug, ClapArgs)]
pub struct RepoPublish {
    /// The repository
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub publishing: Publishing,
}

#[derive(Debug, ClapArgs)]
pub struct RepoList {
    /// The repository
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

#[derive(Debug, ClapArgs)]
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
/// The same input and arguments give the same files. docs/scaling.md has times, and an example for a CI
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
    /// depends on
    #[arg(long, value_name = "FILE", group = "engine")]
    pub ninja: Option<PathBuf>,
    /// Write matrices of jobs, each for a machine of its own, as JSON: `first` and, for packages that need
    /// sizes, `then`. Each is what GitHub's strategy.matrix takes, a list `include` of jobs with name,
    /// command, packages, inputs (artifacts), sizes, plans, outputs and bytes
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
    #[command(flatten)]
    pub signing: Signing,
    /// Also sign each .deb, in FILE.deb.asc beside it
    #[arg(long, help_heading = "Signing")]
    pub deb_detached_signature: bool,
}

#[derive(Debug, ClapArgs)]
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
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

fn format(text: &str) -> Result<Format, String> {
    Format::called(text).ok_or_else(|| "expected deb or rpm".to_owned())
}

/// A word that can be a directory and stand in a list.
fn word(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "+.-_".contains(c);
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(good) {
        Ok(text.to_owned())
    } else {
        Err("expected letters, digits and `+.-_`, a letter or digit first".to_owned())
    }
}

/// The value of a field.
fn line(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.contains(char::is_control) {
        Err("expected a text of one line".to_owned())
    } else {
        Ok(text.trim().to_owned())
    }
}

fn metadata_compression(text: &str) -> Result<MetadataCompression, String> {
    match text {
        "zstd" => Ok(MetadataCompression::Zstd),
        "gzip" => Ok(MetadataCompression::Gzip),
        _ => Err("expected zstd or gzip".to_owned()),
    }
}

fn component(text: &str) -> Result<(String, String), String> {
    let (name, glob) =
        text.split_once('=').ok_or("expected NAME=GLOB, as gfx110x=*-gfx110x".to_owned())?;
    Ok((word(name)?, glob.to_owned()))
}

fn distro(text: &str) -> Result<Distro, String> {
    let known = Distro::ALL.map(Distro::as_str).join(" or ");
    let found = Distro::ALL.into_iter().find(|distro| distro.as_str() == text);
    found.ok_or_else(|| {
        format!("expected {known}; for another release, --no-auto-deps and relations of your own")
    })
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
