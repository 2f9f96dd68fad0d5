//! Findings: what a check found, and the table of all checks.
//!
//! The table is the one place that says what each check is about; `docs/verify.md` is held against
//! it by a test.

use std::fmt;

use serde::{Serialize, Serializer};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Users would be hurt: what is built from these trees must not go out.
    Error,
    /// It may be meant; somebody should look.
    Warning,
}

/// What is known of a check, whatever it finds.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The id that reports and `--allow` use.
    pub id: &'static str,
    /// Number of the invariant that it belongs to.
    pub invariant: u8,
    /// How bad its findings are, but for [`Check::NeededMissing`], whose can be warnings too.
    pub severity: Severity,
    /// What the user is spared.
    pub protects: &'static str,
    /// Where such damage comes from.
    pub cause: &'static str,
    /// What to do.
    pub mend: &'static str,
}

macro_rules! checks {
    ($($(#[doc = $doc:literal])* $name:ident = $id:literal $invariant:literal $severity:ident
        $protects:literal, $cause:literal, $mend:literal;)*) => {
        /// The checks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check { $($(#[doc = $doc])* $name,)* }

        impl Check {
            /// All checks, by invariant.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What the check is about.
            pub const fn about(self) -> About {
                match self {
                    $(Self::$name => About {
                        id: $id,
                        invariant: $invariant,
                        severity: Severity::$severity,
                        protects: $protects,
                        cause: $cause,
                        mend: $mend,
                    },)*
                }
            }
        }
    };
}

checks! {
    /// A directory beside the artifacts is called like none.
    ArtifactName = "artifact-name" 1 Error
        "files that no step picks up, so that they are in no package",
        "a directory was renamed, or something else was put beside the artifacts",
        "rename it to artifact_component_target, or move it away";
    /// The manifest is missing or cannot be read as one.
    Manifest = "manifest" 1 Error
        "an artifact that cannot be installed: nothing says what lies under which prefix",
        "the manifest was left out of a copy, edited, or cut short",
        "split or copy the artifact again, or write the manifest: one prefix a line";
    /// A file under no prefix.
    ManifestShort = "manifest-short" 1 Error
        "a file that is in no package",
        "a line of the manifest was lost, or the file was put there by hand",
        "add the prefix to the manifest, or remove the file";
    /// A prefix of a device artifact with nothing under it.
    ManifestUnused = "manifest-unused" 1 Warning
        "content that was there once, as a kpack folder that was lost",
        "the files under the prefix were deleted, or the line was left in",
        "split the artifact again, or remove the line";
    /// A file that cannot be opened or read.
    Unreadable = "unreadable" 1 Error
        "a file that cannot be packaged",
        "its mode, or a damaged disk",
        "make it readable, or copy it again";

    /// An artifact as the build made it.
    NotSplit = "not-split" 2 Error
        "a package that brings the code of all GPUs to everyone",
        "the directory is a shard as the build made it",
        "run `gfxpack split` on it, and verify what that writes";
    /// Host code with its device code still in it.
    FatBinaryLeft = "fat-binary-left" 2 Error
        "a package that brings the code of all GPUs to everyone",
        "the artifact was not split, or a file of the build was copied over the converted one",
        "split the artifact again";
    /// A converted binary that is not converted well.
    ConversionBroken = "conversion-broken" 2 Error
        "a library that cannot be loaded, or that does not find its kernels",
        "the file was edited or taken from another tool after splitting, or damaged",
        "split the artifact again";
    /// Host code that the loader would refuse.
    HostDamaged = "host-damaged" 2 Error
        "a library that cannot be loaded",
        "the file was cut short or damaged by a copy or a full disk",
        "copy or build it again";
    /// A marker that cannot be read.
    Marker = "marker" 2 Error
        "a library whose kernels are never found: the runtime cannot read the marker",
        "the marker was edited, or the file damaged",
        "split the artifact again";
    /// A marker that names another binary.
    MarkerName = "marker-name" 2 Error
        "a library that runs another one's kernels, or none",
        "the binary was moved or renamed after splitting, or its marker edited",
        "split the artifact again; move files before, not after";
    /// A marker in the text form.
    MarkerText = "marker-text" 2 Warning
        "a library whose kernels the current runtime does not find: it reads MessagePack only",
        "it was split with --kpack-ref text, or by an old tool",
        "split it again without --kpack-ref text";
    /// Host code that cannot be looked into.
    NotChecked = "not-checked" 2 Warning
        "device code that nobody has seen",
        "the section headers were stripped",
        "strip with a tool that leaves section headers, if the file should have device code";
    /// A library that host code needs is not there.
    NeededMissing = "needed-missing" 2 Error
        "a program or library that cannot be loaded",
        "a library was left out, or comes from elsewhere",
        "bring the library, or name it with --external if another package does";
    /// A library that host code needs is where the loader does not look.
    NeededUnreachable = "needed-unreachable" 2 Warning
        "a program or library that is loaded only where something else has loaded the other",
        "a library was moved, or the build left out DT_RUNPATH",
        "put the library into a lib folder of the prefix, or set DT_RUNPATH to its folder";

    /// Content for an ISA that the tree is not for.
    IsaMixed = "isa-mixed" 3 Error
        "kernels in a package where nobody looks for them, and missing in the right one",
        "a file was copied into the wrong tree, or two were swapped",
        "split again, or move the file to the tree of its ISA";
    /// A kpack whose name is not that of its content.
    KpackName = "kpack-name" 3 Error
        "kernels that are never found: the runtime puts the ISA into the file's name",
        "the archive was renamed, or swapped with another",
        "give it back its name, or split again";
    /// A code object in a kpack that is another ISA's.
    KernelIsa = "kernel-isa" 3 Error
        "a kernel that the GPU refuses",
        "the archive was put together from the wrong code objects",
        "split again; if it happens again, the input's bundles are wrong: build them again";
    /// A code object that wants more than it is filed under.
    KernelFeatures = "kernel-features" 3 Warning
        "a kernel that is refused on GPUs with the other setting of the feature",
        "the compiler was called with a feature that the bundle's id leaves out",
        "build it with the id that it is filed under";
    /// A database file whose content is another ISA's.
    DatabaseIsa = "database-isa" 3 Error
        "a library that loads code which the GPU refuses",
        "the build wrote a file under the wrong name, or two files were swapped",
        "build or copy the file again";
    /// An ISA with files in two trees of one component.
    IsaTwice = "isa-twice" 3 Error
        "an ISA whose files are half in one package and half in another",
        "a file was copied into the wrong tree",
        "move the file to the tree of its ISA";
    /// A tree of a group that the configuration does not have.
    GroupUnknown = "group-unknown" 3 Warning
        "a tree that no package takes",
        "it was recombined with another configuration, and left there",
        "recombine again into an empty directory, or verify with the configuration that was used";

    /// A kpack that does not hold what it says.
    KpackDamaged = "kpack-damaged" 4 Error
        "kernels that cannot be loaded",
        "the archive was cut short or damaged by a copy or a full disk",
        "split again, or copy the archive again";
    /// A kernel that is no code object.
    KernelDamaged = "kernel-damaged" 4 Error
        "a kernel that cannot be loaded",
        "the input's bundle was damaged already",
        "build the binary again and split it again";
    /// A database file that is not what its name says.
    DatabaseDamaged = "database-damaged" 4 Error
        "a library that fails when it loads its kernels",
        "the file was cut short or damaged by a copy or a full disk",
        "copy or build the file again";
    /// An empty database file.
    DatabaseEmpty = "database-empty" 4 Warning
        "a library that finds less than it was built with",
        "the build made it empty, or the file was cut short by a copy or a full disk",
        "build or copy the file again if it should have content; --source tells whether it had";
    /// A kpack manifest that does not fit its archives.
    KpmStale = "kpm-stale" 4 Error
        "an older loader that misses archives or reads wrong ones",
        "an archive was replaced, removed or added after the manifest was written",
        "split or recombine again";

    /// A kernel that the runtime's search does not come to.
    KernelNotFound = "kernel-not-found" 5 Error
        "a library that is installed whole and does not find its kernels",
        "an archive is missing, moved or renamed, or the marker was edited",
        "split again, or put the archive where the marker says";
    /// A wrapper without a kernel for an ISA.
    KernelMissing = "kernel-missing" 5 Warning
        "a part of a library that has no kernels on one GPU",
        "the archive is of another build, or the part was built for fewer ISAs than the others",
        "compare with the input (--source); split again if the input has the kernel";
    /// A kernel that no binary asks for.
    KernelOrphan = "kernel-orphan" 5 Error
        "kernels that nothing loads, or of another build than the libraries",
        "a library was deleted or renamed, or archive and library are of different builds",
        "take library and archive from one build: split again";
    /// An archive that stops the search too early.
    KernelHidden = "kernel-hidden" 5 Warning
        "kernels for a generic processor that are not found on the chips which have an archive of their own",
        "the archive of a chip holds other libraries' kernels, and the runtime stops there",
        "split with --kpack-scope binary: each library then has archives of its own";

    /// Host code, or a file for all GPUs, in a device tree.
    HostInDeviceTree = "host-in-device-tree" 6 Error
        "a file that is in the packages of several groups, or missing where only the generic one is installed",
        "a file was copied into the wrong tree",
        "move it to the generic tree, or split again";
    /// An archive or database file of an ISA in a generic tree.
    DeviceInGenericTree = "device-in-generic-tree" 6 Error
        "code for one GPU that everyone has to install",
        "a file was copied into the wrong tree, or the artifact was split without its database",
        "move it to the tree of its ISA, or split again";
    /// Two files that install to one path.
    PathTwice = "path-twice" 6 Error
        "packages that cannot be installed together",
        "a file was copied into a second tree, or two builds were mixed",
        "remove one of the two";
    /// One kernel in two archives.
    KernelTwice = "kernel-twice" 6 Error
        "a kernel that is in two packages, of which one is never used",
        "an archive was copied under another name or into another tree",
        "remove the archive that the marker does not lead to";
    /// Two artifacts that bring the same path.
    PathShared = "path-shared" 6 Warning
        "packages that cannot be installed together, if the two files come into different ones",
        "two components of the build install the same file",
        "leave it out of one of them";
    /// A link that leads nowhere.
    DanglingLink = "dangling-link" 6 Warning
        "a library or database that is not found under one of its names, or a link to a place of the machine that built it",
        "the file that it leads to was deleted or is in a tree that is not here",
        "split again, or verify all artifacts of the build together";
    /// A mode that users cannot work with.
    Mode = "mode" 6 Warning
        "a program that cannot be run, a file that only root can read, or one that is setuid or setgid",
        "the files were copied under a strict umask, or through a file system without modes",
        "set the mode (0755 for programs, 0644 for the rest)";

    /// Content of the input that is nowhere in the output.
    Lost = "lost" 7 Error
        "a package that lacks what the build made",
        "the file was deleted, or the output is of another build",
        "make the output again from this input";
    /// Content that is not as in the input.
    Changed = "changed" 7 Error
        "a package that holds something else than the build made",
        "the file was edited or damaged, or the output is of another build",
        "make the output again from this input";
    /// Content that the input does not have.
    Extra = "extra" 7 Error
        "a package that holds what the build did not make",
        "the file was put there by hand, or the output is of another build",
        "make the output again from this input";
    /// What the configuration or another shard leaves out.
    LeftOut = "left-out" 7 Warning
        "content that was left out without anybody knowing",
        "an ISA is in no architecture group, or only a shard that is not the primary one has the file",
        "add the ISA to a group, or set generic_union, if it should be packaged";

    /// A package file that is no whole package, or not what it states.
    PackageDamaged = "package-damaged" 8 Error
        "a package that dpkg or rpm refuses, or whose files are not those that were built",
        "the file was cut short or changed after it was made, or put together by hand",
        "copy the package again, or make it again";
    /// Names and versions.
    PackageControl = "package-control" 8 Error
        "a package that is not found under its name, or that no upgrade replaces",
        "the control data or the file's name was edited",
        "make the package again, or give the file the name that the package says";
    /// The machine that a package is for.
    PackageArchitecture = "package-architecture" 8 Error
        "programs on a machine that cannot run them, or a package that its own machine refuses",
        "the control data was edited, or a template has a fixed architecture",
        "make the package again";
    /// What a package takes on disk.
    PackageSize = "package-size" 8 Warning
        "an installation that begins without the room it needs",
        "files were added or removed without telling the control data",
        "make the package again";
    /// A relation that the set cannot meet.
    RelationUnmet = "relation-unmet" 8 Error
        "a package that cannot be installed",
        "a package of the set is missing, or of another version, or a relation was edited",
        "put the missing package into the set, make all of one version, or name it with --external";
    /// A group's package without its own generic package.
    GenericRelation = "generic-relation" 8 Error
        "kernels beside the libraries of another build, or without any",
        "a template or the control data lost the relation, or loosened it",
        "make the package again: each group's package needs exactly its generic one";
    /// The two formats of a package differ.
    FormatsDiffer = "formats-differ" 8 Error
        "users of one distribution who get something else than those of another",
        "one of the two was made from another build, or left out",
        "make both formats in one run";
    /// An index of a repository that is not there, or not what is said of it.
    RepoIndex = "repo-index" 8 Error
        "clients that cannot read the repository, or say that a hash does not match",
        "the file was changed, cut short or lost after it was published, as by a copy of half a repository",
        "copy the repository again, the indices after the packages, or publish it again";
    /// A package of a repository that is not there, or has other bytes.
    RepoFile = "repo-file" 8 Error
        "clients that find a package and cannot download it, or say that its size or hash does not match",
        "the package was changed, replaced or lost after it was published",
        "copy the package again, or remove it from the repository";
    /// An index that says something else of a package than the package.
    RepoEntry = "repo-entry" 8 Error
        "clients that decide by what the package is not, and refuse it or break when they install it",
        "the index was edited, or made from another package of that name",
        "publish the repository again from its packages";
    /// A signature that is missing or not good.
    RepoSignature = "repo-signature" 8 Error
        "clients that refuse the repository, or that take packages which somebody else put there",
        "an index was changed without being signed again, or signed with another key",
        "publish the repository again with the key that clients have";
    /// A package without a signature of its own where clients look for one.
    RepoUnsigned = "repo-unsigned" 8 Error
        "dnf and zypper with gpgcheck=1, which refuse a package that is not signed itself",
        "packages that were made without a key were added to a repository whose packages are signed, or the .repo file was edited",
        "build the package again, signed and with a higher release, and add that: `package --sign-key`, or `repo add --sign-packages`; then remove the old one";
    /// A file that tells clients of the repository and does not fit it.
    RepoClientFile = "repo-client-file" 8 Error
        "clients that copy the .sources or .repo file and find nothing, or refuse what they find",
        "the file was edited, or is one of another repository or of an older key",
        "make it again: `gfxpack repo publish`, or `gfxpack repo set --url`";
    /// A file or directory of a repository that not everybody may read.
    RepoMode = "repo-mode" 8 Warning
        "clients that are told 403 Forbidden, where the server is another user than the one who publishes",
        "it was copied or made with a umask that keeps others out",
        "`chmod a+r` the file, `chmod a+rx` the directory";
    /// A time until which an index is valid that is over.
    RepoExpired = "repo-expired" 8 Error
        "clients that refuse the repository: apt says that its Release file is not valid any more",
        "no publication was made for longer than its --valid-days, or an old copy is served",
        "publish again (`gfxpack repo publish`), and bring the copy up to date";
    /// A file in two packages that can be installed together.
    FileConflict = "file-conflict" 8 Error
        "an installation that ends in the middle, where the second package would overwrite a file of the first",
        "a file moved to another package that does not say so, or two packages install the same",
        "leave it out of one of the two, or give the new one the relations that move a file";
    /// Something older than what clients have.
    RepoDowngrade = "repo-downgrade" 8 Error
        "clients that keep what they have, or that have what is no longer there",
        "an older state was published over a newer one, or packages were lost in a merge",
        "add what is missing, or publish with a later date";
    /// A name that has other bytes than before.
    RepoChanged = "repo-changed" 8 Error
        "clients and mirrors that have the one package and are told of the other",
        "a package was built again without a higher release",
        "give it a higher release";
}

impl Check {
    /// The id that reports and `--allow` use.
    pub fn id(self) -> &'static str {
        self.about().id
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// Something that is not as it should be.
///
/// Ordered by artifact, file, check and message, which is the order of a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The artifact's name; empty where the finding is about several.
    pub artifact: String,
    /// Path in the artifact; empty where the finding is about all of it.
    pub file: String,
    /// Which check.
    pub id: Check,
    /// Number of the invariant, 1 to 8.
    pub invariant: u8,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub message: String,
    /// What was expected.
    pub expected: String,
    /// Where it probably comes from.
    pub cause: &'static str,
    /// What to do.
    pub mend: &'static str,
}

impl Finding {
    pub(super) fn new(
        id: Check,
        artifact: &str,
        file: &str,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let about = id.about();
        Self {
            artifact: artifact.to_owned(),
            file: file.to_owned(),
            id,
            invariant: about.invariant,
            severity: about.severity,
            message: message.into(),
            expected: expected.into(),
            cause: about.cause,
            mend: about.mend,
        }
    }

    /// Makes a warning of it.
    pub(super) fn warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// Says more closely than the check where it comes from, and what to do.
    pub(super) fn told(self, cause: &'static str, mend: &'static str) -> Self {
        Self { cause, mend, ..self }
    }

    /// What `--allow` matches its glob with: `artifact/file`.
    pub fn place(&self) -> String {
        match (self.artifact.is_empty(), self.file.is_empty()) {
            (true, _) => self.file.clone(),
            (false, true) => self.artifact.clone(),
            (false, false) => format!("{}/{}", self.artifact, self.file),
        }
    }
}

/// Collects the findings of one file.
pub(super) struct Findings<'a> {
    pub artifact: &'a str,
    pub file: &'a str,
    pub list: Vec<Finding>,
}

impl<'a> Findings<'a> {
    pub fn new(artifact: &'a str, file: &'a str) -> Self {
        Self { artifact, file, list: Vec::new() }
    }

    pub fn add(&mut self, id: Check, message: impl Into<String>, expected: impl Into<String>) {
        self.list.push(Finding::new(id, self.artifact, self.file, message, expected));
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_in_the_order_of_their_invariants() {
        let ids: BTreeSet<_> = Check::ALL.iter().map(|check| check.id()).collect();
        assert_eq!(ids.len(), Check::ALL.len());
        assert!(Check::ALL.is_sorted_by_key(|check| check.about().invariant));
    }
}
