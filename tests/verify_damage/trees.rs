//! The good trees (the example shards, split and recombined), how each is verified, and copies of them
//! to be damaged.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gfxpack::artifact::{self, ArtifactTree, Shard};
use gfxpack::config::PackagingConfig;
use gfxpack::elf::Image;
use gfxpack::jobs::Jobs;
use gfxpack::kpack::kpm::{Kpm, KpmFile};
use gfxpack::kpack::reader::Archive;
use gfxpack::progress::Silent;
use gfxpack::recombine;
use gfxpack::split::{self, MarkerForm, split};
use gfxpack::target::TargetId;
use gfxpack::tree::dir::{Copying, write};
use gfxpack::tree::output::OutputDir;
use gfxpack::verify::{self, Options, Report};

use crate::damage::{Kernel, Subject, read_kpack, write_kpack};

pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

pub fn shards() -> Vec<Shard> {
    read_shards(&examples().join("shards"))
}

pub fn read_shards(dir: &Path) -> Vec<Shard> {
    artifact::read_shards(dir, &Jobs::new(2, 64 << 20), &Silent).unwrap()
}

pub fn config() -> PackagingConfig {
    PackagingConfig::load(&examples().join("packaging-config.json")).unwrap()
}

pub fn write_artifacts(to: &Path, artifacts: &[ArtifactTree]) {
    let trees: Vec<_> = artifacts.iter().map(|a| (a.name.to_string(), a.to_tree())).collect();
    let output = OutputDir::create(to, false, &[]).unwrap();
    let jobs = Jobs::new(2, 64 << 20);
    write(output.part(), &trees, Copying::Copy, &jobs, &Silent).unwrap();
    output.finish().unwrap();
}

pub fn split_shard(shard: &Shard, options: &split::Options) -> Vec<ArtifactTree> {
    shard.artifacts.iter().flat_map(|artifact| split(artifact, options).unwrap().0).collect()
}

/// `split/` (of the first shard), `text/` (the same with text markers), `recombined/`.
pub fn good() -> &'static Path {
    static GOOD: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = GOOD.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let shards = shards();
        let options = split::Options::default();
        let mut all = Vec::new();
        for shard in &shards {
            let artifacts = split_shard(shard, &options);
            write_artifacts(&dir.path().join("all").join(&shard.name), &artifacts);
            all.push(read_shards(&dir.path().join("all")));
        }
        let first = dir.path().join("split");
        copy_tree(&dir.path().join("all").join(&shards[0].name), &first);
        let text = split::Options { marker: MarkerForm::Text, ..split::Options::default() };
        write_artifacts(&dir.path().join("text"), &split_shard(&shards[0], &text));
        let (groups, _) = recombine::recombine(all.last().unwrap(), &config()).unwrap();
        write_artifacts(&dir.path().join("recombined"), &groups);
        dir
    });
    dir.path()
}

/// Copies a tree; the files are hard links, so [`Victim::fresh`] comes before every change.
pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            symlink(fs::read_link(&path).unwrap(), target).unwrap();
        } else if kind.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::hard_link(&path, &target).unwrap();
        }
    }
}

/// What the trees need and do not have.
fn hip() -> Vec<globset::Glob> {
    vec![globset::Glob::new("libamdhip64.so.*").unwrap()]
}

/// Options for the example's trees, which do not bring HIP.
pub fn options() -> Options<'static> {
    Options { known_external: hip(), ..Options::default() }
}

/// Which good tree, and what it is verified with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Split,
    Recombined,
    /// Without the packaging configuration.
    RecombinedAlone,
    SplitWithSource,
    RecombinedWithSource,
    /// With all libraries named that come from elsewhere.
    SplitWithExternals,
    RecombinedWithExternals,
}

impl On {
    pub fn folder(self) -> &'static str {
        match self {
            Self::Split | Self::SplitWithSource | Self::SplitWithExternals => "split",
            _ => "recombined",
        }
    }

    pub fn verify(self, dir: &Path) -> Report {
        let mut shards = shards();
        let config = config();
        let source = match self {
            Self::SplitWithSource => {
                shards.truncate(1);
                Some(&shards[..])
            }
            Self::RecombinedWithSource => Some(&shards[..]),
            _ => None,
        };
        let alone = self.folder() == "split" || self == Self::RecombinedAlone;
        let config = (!alone).then_some(&config);
        // HIP comes from elsewhere: as `--external` says, which makes all else that is missing an error, or
        // as the packages file does.
        let (external, known_external) = match self {
            Self::SplitWithExternals | Self::RecombinedWithExternals => (hip(), Vec::new()),
            _ => (Vec::new(), hip()),
        };
        let options = Options { source, config, external, known_external, ..Options::default() };
        verify::directory(dir, &options, &Jobs::new(2, 64 << 20), &Silent).unwrap()
    }
}

impl Subject for On {
    type Victim = Victim;

    fn words(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Recombined => "recombined",
            Self::RecombinedAlone => "recombined, no `--config`",
            Self::SplitWithSource => "split, `--source`",
            Self::RecombinedWithSource => "recombined, `--source`",
            Self::SplitWithExternals => "split, `--external`",
            Self::RecombinedWithExternals => "recombined, `--external`",
        }
    }

    fn victim(self) -> Victim {
        Victim::of(self.folder())
    }

    fn report_on(self, victim: &Victim) -> Report {
        self.verify(victim.dir.path())
    }
}

// ---- tools of damage ----

/// A tree to be damaged.
pub struct Victim {
    pub dir: tempfile::TempDir,
}

pub const ROCBLAS: &str = "math-libs/BLAS/rocBLAS/stage";
pub const LIB: &str = "blas_lib_generic/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2";
pub const TOOL: &str = "blas_run_generic/math-libs/BLAS/rocBLAS/stage/bin/rocblas-bench";
pub const SUPPORT: &str = "support_lib_generic/base/support/stage/lib/libsupport.so.1.2";
pub const DATABASE: &str = "math-libs/BLAS/rocBLAS/stage/lib/rocblas/library";

impl Victim {
    pub fn of(folder: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy_tree(&good().join(folder), dir.path());
        Self { dir }
    }

    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.at(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// Makes room for a file: what is there is shared with the good tree.
    pub fn fresh(&self, path: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        path
    }

    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let mode = fs::metadata(self.at(path)).map_or(0o644, |meta| meta.permissions().mode());
        let path = self.fresh(path);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn edit(&self, path: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(path);
        edit(&mut bytes);
        self.write(path, bytes);
    }

    pub fn remove(&self, path: &str) {
        let path = self.at(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub fn rename(&self, from: &str, to: &str) {
        fs::create_dir_all(self.at(to).parent().unwrap()).unwrap();
        fs::rename(self.at(from), self.at(to)).unwrap();
    }

    pub fn copy(&self, from: &str, to: &str) {
        fs::copy(self.at(from), self.fresh(to)).unwrap();
    }

    pub fn mode(&self, path: &str, mode: u32) {
        self.write(path, self.read(path));
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Appends to the manifest of an artifact.
    pub fn manifest(&self, artifact: &str, line: &str) {
        self.edit(&format!("{artifact}/artifact_manifest.txt"), |text| {
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        });
    }

    /// The artifact that holds an ISA of `blas_lib`, in either tree.
    pub fn tree_of(&self, isa: &str) -> String {
        let own = format!("blas_lib_{isa}");
        if self.at(&own).exists() {
            return own;
        }
        let group = if isa.starts_with("gfx110") { "gfx110X" } else { "gfx120X" };
        format!("blas_lib_{group}")
    }

    pub fn kpack(&self, isa: &str) -> String {
        format!("{}/kpack/stage/.kpack/blas_lib_{isa}.kpack", self.tree_of(isa))
    }

    pub fn kpm(&self, isa: &str) -> String {
        format!("{}/kpack/stage/.kpack/blas_lib.kpm", self.tree_of(isa))
    }

    /// A file of the rocBLAS database; the name holds `@` for the ISA.
    pub fn database(&self, isa: &str, name: &str) -> String {
        format!("{}/{DATABASE}/{}", self.tree_of(isa), name.replace('@', isa))
    }

    /// Where a section of an ELF file has its bytes, its address, and its header.
    pub fn section(&self, path: &str, name: &str) -> (usize, usize, u64, usize) {
        let bytes = self.read(path);
        let image = Image::read(&bytes).unwrap();
        let i = image.sections.iter().position(|s| s.name == name).unwrap();
        let section = &image.sections[i];
        let header = usize::try_from(image.e_shoff).unwrap() + i * 64;
        let offset = usize::try_from(section.sh_offset).unwrap();
        (offset, usize::try_from(section.sh_size).unwrap(), section.sh_addr, header)
    }

    /// Replaces bytes inside a section by others of the same length.
    pub fn replace(&self, path: &str, section: &str, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        let (offset, size, ..) = self.section(path, section);
        self.edit(path, |bytes| {
            let part = &mut bytes[offset..offset + size];
            let at = part.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            part[at..at + from.len()].copy_from_slice(to.as_bytes());
        });
    }

    /// Changes an entry of the dynamic section.
    pub fn dynamic(&self, path: &str, tag: u64, edit: impl Fn(u64) -> u64) {
        let (offset, size, ..) = self.section(path, ".dynamic");
        self.edit(path, |bytes| {
            let mut entries = bytes[offset..offset + size].chunks_exact_mut(16);
            let entry = entries.find(|entry| entry[..8] == tag.to_le_bytes()).unwrap();
            let value = u64::from_le_bytes(entry[8..].try_into().unwrap());
            entry[8..].copy_from_slice(&edit(value).to_le_bytes());
        });
    }

    /// Writes an archive anew with other kernels, and its manifest so that it fits.
    pub fn rebuild(&self, isa: &str, edit: impl FnOnce(&mut Vec<Kernel>)) {
        let path = self.kpack(isa);
        let mut kernels = read_kpack(&self.read(&path));
        edit(&mut kernels);
        self.write(&path, write_kpack(&target(isa), &kernels));
        self.fit_manifest(&self.kpm(isa));
    }

    /// Makes sizes and counts of a manifest right.
    pub fn fit_manifest(&self, path: &str) {
        let mut kpm = Kpm::read(Cursor::new(self.read(path))).unwrap();
        let folder = Path::new(path).parent().unwrap().to_str().unwrap().to_owned();
        for file in kpm.kpack_files.values_mut() {
            let bytes = self.read(&format!("{folder}/{}", file.file));
            file.size = bytes.len() as u64;
            file.kernel_count = Archive::open(&bytes).unwrap().entries().len() as u64;
        }
        self.write(path, kpm.to_bytes().unwrap());
    }

    pub fn edit_kpm(&self, isa: &str, edit: impl FnOnce(&mut KpmFile)) {
        let mut kpm = Kpm::read(Cursor::new(self.read(&self.kpm(isa)))).unwrap();
        edit(kpm.kpack_files.get_mut(&target(isa)).unwrap());
        self.write(&self.kpm(isa), kpm.to_bytes().unwrap());
    }
}

pub fn target(isa: &str) -> TargetId {
    isa.parse().unwrap()
}
