//! The arguments of `gfxpack repo`.

use std::path::PathBuf;

use clap::builder::{StyledStr, TypedValueParser};
use clap::{Arg, Args as ClapArgs, Subcommand};
use gfxpack::package::Format;
use gfxpack::repo::rpm::Compression as MetadataCompression;

use super::packages::format;
use super::{Signing, one_of};

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
        --sign-key release.key --sign-packages\n  \
    gfxpack repo add /srv/rocm out/*.deb out/*.rpm --sign-key release.key --sign-packages\n  \
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
    Set(RepoSet),
    /// Publish what there is anew: with a later date, another key, or a new time until which it is valid
    Publish(RepoPublish),
    /// List the packages of a repository, and say what it is: suite, components, date, key
    List(RepoList),
}

/// How a change to a repository is published.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = None::<&str>)]
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

/// To see before it is done.
#[derive(Debug, Clone, Copy, ClapArgs)]
#[command(next_help_heading = None::<&str>)]
pub struct Rehearsal {
    /// Say what would be done and do nothing: packages that would come and go, and what clients would stumble over. Fails
    /// where the run would. Needs no key, and only reads the repository
    #[arg(long)]
    pub dry_run: bool,
}

/// How packages are brought into a repository.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = None::<&str>)]
pub struct Bringing {
    /// Sign .rpm packages on their way in, as `gfxpack sign` does; the originals stay as they are. Where packages are
    /// not signed when they are made, pass this each time: clients that check packages (gpgcheck=1) refuse those without
    #[arg(long, help_heading = "Signing")]
    pub sign_packages: bool,
    /// Make hard links to packages instead of copies, where the file system can and all may read them. The
    /// files then must not be written to again
    #[arg(long)]
    pub link: bool,
}

/// The heading of [`RepoSettings`].
const SETTINGS: &str = "The repository";

/// What a repository is called and how it is published.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = SETTINGS)]
pub struct RepoSettings {
    /// Name of the release train: the directory below dists/, and what stands in sources [default: stable]
    #[arg(long, value_name = "NAME", value_parser = word)]
    pub suite: Option<String>,
    /// Codename, where it is another than the suite
    #[arg(long, value_name = "NAME", value_parser = word_or_nothing)]
    pub codename: Option<String>,
    /// Who publishes. Files to be copied to clients are called after it [default: gfxpack]
    #[arg(long, value_name = "TEXT", value_parser = line)]
    pub origin: Option<String>,
    /// What it is, for people and for apt's pinning; one that is the origin's text follows that [default: the origin]
    #[arg(long, value_name = "TEXT", value_parser = line)]
    pub label: Option<String>,
    /// What it is in a few words more, for people: Description of apt's Release
    #[arg(long, value_name = "TEXT", value_parser = line_or_nothing)]
    pub description: Option<String>,
    /// Put .deb packages whose names match GLOB into a component NAME of their own, so that clients read the
    /// indices of their own groups only (repeatable; the first that matches counts) [default: all in main]
    #[arg(long, value_name = "NAME=GLOB", value_parser = component)]
    pub component: Vec<(String, String)>,
    /// Architectures that have an index even without packages [default: amd64]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = word)]
    pub arch: Vec<String>,
    /// Days from the date of a publication after which apt no longer trusts it, so publish again before that; 0 for
    /// never [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=3650))]
    pub valid_days: Option<u32>,
    /// Where clients find DIR, as https://repo.example.org/rocm; then .sources and .repo files are made
    #[arg(long, value_name = "URL", value_parser = url_or_nothing)]
    pub url: Option<String>,
    /// Publications before the newest whose indices and packages stay, for clients in the middle of something
    /// [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub keep_publications: Option<u64>,
    /// Days for which they stay at least, counted between the dates of publications [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=3650))]
    pub keep_days: Option<u32>,
    /// How metadata for dnf and zypper are compressed: zstd, which systems since RHEL 8.2 read, or gzip, which all
    /// do [default: zstd]
    #[arg(long, value_name = "HOW", value_parser = metadata_compression())]
    pub rpm_compression: Option<MetadataCompression>,
}

impl RepoSettings {
    /// Whether anything was given.
    pub fn says_something(&self) -> bool {
        let texts =
            [&self.suite, &self.codename, &self.origin, &self.label, &self.description, &self.url];
        texts.iter().any(|text| text.is_some())
            || !self.component.is_empty()
            || !self.arch.is_empty()
            || self.valid_days.is_some()
            || self.keep_publications.is_some()
            || self.keep_days.is_some()
            || self.rpm_compression.is_some()
    }
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
    #[command(flatten)]
    pub settings: RepoSettings,
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
#[command(
    after_help = "Example:\n  gfxpack repo add /srv/rocm out --sign-key release.key --sign-packages"
)]
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
    pub rehearsal: Rehearsal,
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
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    pub format: Option<Format>,
    #[command(flatten)]
    pub rehearsal: Rehearsal,
    #[command(flatten)]
    pub publishing: Publishing,
}

/// Remove old versions: keep the newest of each package
///
/// What needs exactly a version that goes, goes with it: nobody could install it.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  gfxpack repo prune /srv/rocm --keep 5 --sign-key release.key")]
pub struct RepoPrune {
    /// The repository
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// How many versions of each package and architecture stay
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    #[command(flatten)]
    pub rehearsal: Rehearsal,
    #[command(flatten)]
    pub publishing: Publishing,
}

/// Add all packages of other repositories
///
/// No version is lost: all that either has is there afterwards. What is the same name with other bytes is refused.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Example:\n  gfxpack repo merge /srv/rocm /srv/nightly --sign-key release.key"
)]
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
    pub rehearsal: Rehearsal,
    #[command(flatten)]
    pub publishing: Publishing,
}

/// Change what a repository is called and how it is published, and publish it anew
///
/// Takes the options of `create`: what is not given stays. An empty text takes back --codename, --description or --url. Warns of what clients will stumble over: apt takes another
/// Origin, Label or Codename only when somebody confirms it, and finds nothing under the name of an old suite.
/// `repo list --json` shows the settings.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    gfxpack repo set /srv/rocm --valid-days 30 --keep-days 7 --sign-key release.key\n  \
    gfxpack repo set /srv/rocm --url '' --sign-key release.key\n  \
    gfxpack repo set /srv/rocm --origin 'Example Inc.' --dry-run")]
#[command(mut_args(without_default))]
pub struct RepoSet {
    /// The repository
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub settings: RepoSettings,
    #[command(flatten)]
    pub rehearsal: Rehearsal,
    #[command(flatten)]
    pub publishing: Publishing,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Example:\n  gfxpack repo publish /srv/rocm --date $(date +%s) --sign-key release.key"
)]
pub struct RepoPublish {
    /// The repository
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub publishing: Publishing,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  gfxpack repo list /srv/rocm")]
pub struct RepoList {
    /// The repository
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// The help of an option that has a default elsewhere: here what is not given stays.
fn without_default(arg: Arg) -> Arg {
    if arg.get_help_heading() != Some(SETTINGS) {
        return arg;
    }
    let cut = |text: &StyledStr| {
        let text = text.to_string();
        let (said, _) = text.split_once(" [default: ")?;
        Some(said.to_owned())
    };
    let (short, long) = (arg.get_help().and_then(cut), arg.get_long_help().and_then(cut));
    let arg = short.into_iter().fold(arg, |arg, text| arg.help(text));
    long.into_iter().fold(arg, |arg, text| arg.long_help(text))
}

/// A word, or nothing to take it back.
fn word_or_nothing(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { word(text) }
}

/// A line, or nothing to take it back.
fn line_or_nothing(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { line(text) }
}

/// An address, or nothing to take it back. Sources have a list of them, so that a blank would make it two.
fn url_or_nothing(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_address = |(scheme, rest): (&str, &str)| {
        let good = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(good)
            && !rest.is_empty()
    };
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        Err("expected one address, without blanks (%20 in place of one)".to_owned())
    } else if text.is_empty() || text.split_once("://").is_some_and(is_address) {
        Ok(text.to_owned())
    } else {
        Err("expected scheme://…, as https://repo.example.org/rocm".to_owned())
    }
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

fn metadata_compression() -> impl TypedValueParser<Value = MetadataCompression> {
    one_of(["zstd", "gzip"], |name| match name {
        "zstd" => Some(MetadataCompression::Zstd),
        "gzip" => Some(MetadataCompression::Gzip),
        _ => None,
    })
}

fn component(text: &str) -> Result<(String, String), String> {
    let (name, glob) =
        text.split_once('=').ok_or("expected NAME=GLOB, as gfx110x=*-gfx110x".to_owned())?;
    if glob.is_empty() {
        return Err("expected a glob after the `=`, as *-gfx110x".to_owned());
    }
    // Packages that come later are held against it: it is published only if it is one.
    globset::Glob::new(glob).map_err(|e| e.to_string())?;
    Ok((word(name)?, glob.to_owned()))
}
