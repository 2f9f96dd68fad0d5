//! The arguments of commands that look at things: discover, inspect, extract, verify.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use gfxpack::target::TargetId;

use super::Databases;

/// Show which architectures artifacts, shards or files have code for, and draft a configuration
///
/// A PATH is a file, an artifact (a directory with artifact_manifest.txt, or an archive of one, as
/// blas_lib_generic.tar.zst), a shard or another directory of artifacts, a directory of shards, or any other directory, such as an installed tree;
/// which it is, is told by looking. Split and recombined trees work as well as fat ones. Code objects
/// that are stored once count once; bytes are those before compression.
///
/// --write-config sets "generic_union" where the primary shard lacks host code that another shard has, and
/// says which.
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

/// Check that artifacts, packages or a repository hold what users need
///
/// Reads every file: manifests, host code, kpack archives, kernel databases, and looks each kernel up
/// as the runtime would from the installed place. docs/verify.md explains each check. Ends with
/// status 1 where a check failed. Of a repository it reads what clients read.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack verify --artifacts-dir split/gfx110X-build --source shards/gfx110X-build\n  \
    gfxpack verify --artifacts-dir recombined --source shards --junit verify.xml\n  \
    gfxpack verify --artifacts-dir release --external 'libamdhip64.so.*' --warnings-as-errors\n  \
    gfxpack verify --packages-dir out --config groups.json\n  \
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
    /// packages bring one file, no index has expired (by SOURCE_DATE_EPOCH, else by the clock)
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
    /// The packages file that they are packaged by: the libraries that its `externals` name come from elsewhere
    #[arg(long, value_name = "FILE", conflicts_with = "repo_dir")]
    pub packages: Option<PathBuf>,
    #[command(flatten)]
    pub databases: Databases,
    /// Let warnings fail as well
    #[arg(long)]
    pub warnings_as_errors: bool,
    /// SONAME of a library, or name of a package, that comes from elsewhere, as libamdhip64.so.*
    /// (repeatable). With this, everything else that is needed must be there; without, a library that is
    /// missing is a warning, and only what --source has, or what is of the set's own version, is an error.
    /// The base system's libraries (glibc's, GCC's, zlib, libelf, libdrm, …) need not be named
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
