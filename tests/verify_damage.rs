//! Every way to ruin a tree that we could think of, and which check sees it.
//!
//! A good tree (the example shards, split and recombined) is copied, damaged in one way, and verified;
//! the check that should see the damage must. The undamaged trees must give no finding at all. The
//! table in `docs/verify.md` is made from the one here (`GFXPACK_UPDATE_DOCS=1` writes it).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::semicolon_if_nothing_returned, reason = "damages are expressions in a table")]

#[path = "common/damage.rs"]
mod damage;

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
use gfxpack::kpack::writer::Compression;
use gfxpack::progress::Silent;
use gfxpack::recombine;
use gfxpack::split::{self, Layout, MarkerForm, Scope, split};
use gfxpack::target::TargetId;
use gfxpack::tree::dir::{Copying, write};
use gfxpack::tree::output::OutputDir;
use gfxpack::verify::{self, Check, Options, Report, Severity};

use damage::{Kernel, read_kpack, table_is_on_the_page, write_kpack};

// ---- good trees ----

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

fn shards() -> Vec<Shard> {
    read_shards(&examples().join("shards"))
}

fn read_shards(dir: &Path) -> Vec<Shard> {
    artifact::read_shards(dir, &Jobs::new(2, 64 << 20), &Silent).unwrap()
}

fn config() -> PackagingConfig {
    PackagingConfig::load(&examples().join("packaging-config.json")).unwrap()
}

fn write_artifacts(to: &Path, artifacts: &[ArtifactTree]) {
    let trees: Vec<_> = artifacts.iter().map(|a| (a.name.to_string(), a.to_tree())).collect();
    let output = OutputDir::create(to, false, &[]).unwrap();
    let jobs = Jobs::new(2, 64 << 20);
    write(output.part(), &trees, Copying::Copy, &jobs, &Silent).unwrap();
    output.finish().unwrap();
}

fn split_shard(shard: &Shard, options: &split::Options) -> Vec<ArtifactTree> {
    shard.artifacts.iter().flat_map(|artifact| split(artifact, options).unwrap().0).collect()
}

/// `split/` (of the first shard), `text/` (the same with text markers), `recombined/`.
fn good() -> &'static Path {
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
fn copy_tree(from: &Path, to: &Path) {
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

/// Which good tree, and what it is verified with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
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
    fn folder(self) -> &'static str {
        match self {
            Self::Split | Self::SplitWithSource | Self::SplitWithExternals => "split",
            _ => "recombined",
        }
    }

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

    fn verify(self, dir: &Path) -> Report {
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
        let external = match self {
            Self::SplitWithExternals | Self::RecombinedWithExternals => vec!["libamdhip64.so.*"],
            _ => Vec::new(),
        };
        let external = external.into_iter().map(|glob| globset::Glob::new(glob).unwrap()).collect();
        let options = Options { source, config, external, ..Options::default() };
        verify::directory(dir, &options, &Jobs::new(2, 64 << 20), &Silent).unwrap()
    }
}

// ---- tools of damage ----

/// A tree to be damaged.
struct Victim {
    dir: tempfile::TempDir,
}

const ROCBLAS: &str = "math-libs/BLAS/rocBLAS/stage";
const LIB: &str = "blas_lib_generic/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2";
const TOOL: &str = "blas_run_generic/math-libs/BLAS/rocBLAS/stage/bin/rocblas-bench";
const SUPPORT: &str = "support_lib_generic/base/support/stage/lib/libsupport.so.1.2";
const DATABASE: &str = "math-libs/BLAS/rocBLAS/stage/lib/rocblas/library";

impl Victim {
    fn of(folder: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy_tree(&good().join(folder), dir.path());
        Self { dir }
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(path)
    }

    fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.at(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// Makes room for a file: what is there is shared with the good tree.
    fn fresh(&self, path: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        path
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let mode = fs::metadata(self.at(path)).map_or(0o644, |meta| meta.permissions().mode());
        let path = self.fresh(path);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn edit(&self, path: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(path);
        edit(&mut bytes);
        self.write(path, bytes);
    }

    fn remove(&self, path: &str) {
        let path = self.at(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    fn rename(&self, from: &str, to: &str) {
        fs::create_dir_all(self.at(to).parent().unwrap()).unwrap();
        fs::rename(self.at(from), self.at(to)).unwrap();
    }

    fn copy(&self, from: &str, to: &str) {
        fs::copy(self.at(from), self.fresh(to)).unwrap();
    }

    fn mode(&self, path: &str, mode: u32) {
        self.write(path, self.read(path));
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Appends to the manifest of an artifact.
    fn manifest(&self, artifact: &str, line: &str) {
        self.edit(&format!("{artifact}/artifact_manifest.txt"), |text| {
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        });
    }

    /// The artifact that holds an ISA of `blas_lib`, in either tree.
    fn tree_of(&self, isa: &str) -> String {
        let own = format!("blas_lib_{isa}");
        if self.at(&own).exists() {
            return own;
        }
        let group = if isa.starts_with("gfx110") { "gfx110X" } else { "gfx120X" };
        format!("blas_lib_{group}")
    }

    fn kpack(&self, isa: &str) -> String {
        format!("{}/kpack/stage/.kpack/blas_lib_{isa}.kpack", self.tree_of(isa))
    }

    fn kpm(&self, isa: &str) -> String {
        format!("{}/kpack/stage/.kpack/blas_lib.kpm", self.tree_of(isa))
    }

    /// A file of the rocBLAS database; the name holds `@` for the ISA.
    fn database(&self, isa: &str, name: &str) -> String {
        format!("{}/{DATABASE}/{}", self.tree_of(isa), name.replace('@', isa))
    }

    /// Where a section of an ELF file has its bytes, its address, and its header.
    fn section(&self, path: &str, name: &str) -> (usize, usize, u64, usize) {
        let bytes = self.read(path);
        let image = Image::read(&bytes).unwrap();
        let i = image.sections.iter().position(|s| s.name == name).unwrap();
        let section = &image.sections[i];
        let header = usize::try_from(image.e_shoff).unwrap() + i * 64;
        let offset = usize::try_from(section.sh_offset).unwrap();
        (offset, usize::try_from(section.sh_size).unwrap(), section.sh_addr, header)
    }

    /// Replaces bytes inside a section by others of the same length.
    fn replace(&self, path: &str, section: &str, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        let (offset, size, ..) = self.section(path, section);
        self.edit(path, |bytes| {
            let part = &mut bytes[offset..offset + size];
            let at = part.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            part[at..at + from.len()].copy_from_slice(to.as_bytes());
        });
    }

    /// Changes an entry of the dynamic section.
    fn dynamic(&self, path: &str, tag: u64, edit: impl Fn(u64) -> u64) {
        let (offset, size, ..) = self.section(path, ".dynamic");
        self.edit(path, |bytes| {
            let mut entries = bytes[offset..offset + size].chunks_exact_mut(16);
            let entry = entries.find(|entry| entry[..8] == tag.to_le_bytes()).unwrap();
            let value = u64::from_le_bytes(entry[8..].try_into().unwrap());
            entry[8..].copy_from_slice(&edit(value).to_le_bytes());
        });
    }

    /// Writes an archive anew with other kernels, and its manifest so that it fits.
    fn rebuild(&self, isa: &str, edit: impl FnOnce(&mut Vec<Kernel>)) {
        let path = self.kpack(isa);
        let mut kernels = read_kpack(&self.read(&path));
        edit(&mut kernels);
        self.write(&path, write_kpack(&target(isa), &kernels));
        self.fit_manifest(&self.kpm(isa));
    }

    /// Makes sizes and counts of a manifest right.
    fn fit_manifest(&self, path: &str) {
        let mut kpm = Kpm::read(Cursor::new(self.read(path))).unwrap();
        let folder = Path::new(path).parent().unwrap().to_str().unwrap().to_owned();
        for file in kpm.kpack_files.values_mut() {
            let bytes = self.read(&format!("{folder}/{}", file.file));
            file.size = bytes.len() as u64;
            file.kernel_count = Archive::open(&bytes).unwrap().entries().len() as u64;
        }
        self.write(path, kpm.to_bytes().unwrap());
    }

    fn edit_kpm(&self, isa: &str, edit: impl FnOnce(&mut KpmFile)) {
        let mut kpm = Kpm::read(Cursor::new(self.read(&self.kpm(isa)))).unwrap();
        edit(kpm.kpack_files.get_mut(&target(isa)).unwrap());
        self.write(&self.kpm(isa), kpm.to_bytes().unwrap());
    }
}

fn target(isa: &str) -> TargetId {
    isa.parse().unwrap()
}

fn original(path: &str) -> Vec<u8> {
    fs::read(examples().join("shards/gfx110X-build").join(path)).unwrap()
}

const FAT_LIB: &str = "blas_lib_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5.2";
const FAT_TOOL: &str = "blas_run_gfx110X-dgpu/math-libs/BLAS/rocBLAS/stage/bin/rocblas-bench";

/// Puts an archive of code that says `e_flags` under another target, in a tree of its own.
fn foreign_tree(v: &Victim, isa: &str, e_flags: u32, keep: impl Fn(&Kernel) -> bool) {
    let mut kernels = read_kpack(&v.read(&v.kpack("gfx1100")));
    kernels.retain(keep);
    for kernel in &mut kernels {
        kernel.bytes[48..52].copy_from_slice(&e_flags.to_le_bytes());
    }
    let folder = format!("blas_lib_{isa}");
    let archive = format!("blas_lib_{isa}.kpack");
    v.write(&format!("{folder}/artifact_manifest.txt"), "kpack/stage\n");
    v.write(&format!("{folder}/kpack/stage/.kpack/{archive}"), write_kpack(&target(isa), &kernels));
    let mut kpm = Kpm::new("blas_lib", "kpack/stage");
    kpm.kpack_files.insert(target(isa), KpmFile { file: archive, size: 0, kernel_count: 0 });
    let path = format!("{folder}/kpack/stage/.kpack/blas_lib.kpm");
    v.write(&path, kpm.to_bytes().unwrap());
    v.fit_manifest(&path);
}

fn delete_rocblas(v: &Victim) {
    for name in ["librocblas.so.5.2", "librocblas.so.5", "librocblas.so"] {
        v.remove(&format!("blas_lib_generic/{ROCBLAS}/lib/{name}"));
    }
}

// ---- the damages ----

struct Damage {
    what: &'static str,
    on: &'static [On],
    caught_by: &'static str,
    damage: fn(&Victim),
}

const BOTH: &[On] = &[On::Split, On::Recombined];
const SPLIT: &[On] = &[On::Split];
const SOURCE: &[On] = &[On::SplitWithSource, On::RecombinedWithSource];

macro_rules! damages {
    ($($what:literal $on:ident $id:literal |$v:ident| $damage:expr;)*) => {
        &[$(Damage { what: $what, on: $on, caught_by: $id, damage: |$v| { $damage; } },)*]
    };
}

const EXTERNALS: &[On] = &[On::SplitWithExternals, On::RecombinedWithExternals];
const RECOMBINED: &[On] = &[On::Recombined];
const ALONE: &[On] = &[On::RecombinedAlone];
const RECOMBINED_SOURCE: &[On] = &[On::RecombinedWithSource];

#[rustfmt::skip]
const DAMAGES: &[Damage] = damages! {
    "directory of an artifact renamed" BOTH "artifact-name" |v| v.rename("fft_lib_generic", "fft-lib-generic");
    "manifest deleted" BOTH "manifest" |v| v.remove("blas_lib_generic/artifact_manifest.txt");
    "manifest of a device tree deleted" BOTH "manifest" |v| v.remove(&format!("{}/artifact_manifest.txt", v.tree_of("gfx1100")));
    "manifest with a line twice" BOTH "manifest" |v| v.manifest("blas_lib_generic", ROCBLAS);
    "manifest line that leaves the tree" BOTH "manifest" |v| v.manifest("blas_lib_generic", "../other");
    "manifest line that is absolute" BOTH "manifest" |v| v.manifest("blas_lib_generic", "/usr");
    "manifest line above another" BOTH "manifest" |v| v.manifest("blas_lib_generic", "math-libs");
    "manifest line that names a file" BOTH "manifest" |v| v.manifest("support_lib_generic", "base/support/stage/lib/libsupport.so.1.2");
    "manifest emptied" BOTH "manifest-short" |v| v.write("blas_lib_generic/artifact_manifest.txt", "");
    "manifest without a line" BOTH "manifest-short" |v| v.write("blas_lib_generic/artifact_manifest.txt", ROCBLAS);
    "file outside of all prefixes" BOTH "manifest-short" |v| v.write("blas_lib_generic/math-libs/stray.txt", "x");
    "manifest line with nothing under it" BOTH "manifest-unused" |v| v.manifest(&v.tree_of("gfx1100"), "math-libs/gone/stage");
    "kpack and its manifest deleted" SPLIT "manifest-unused" |v| { v.remove(&v.kpack("gfx1100")); v.remove(&v.kpm("gfx1100")) };

    "named pipe in a tree" BOTH "unreadable" |v| assert!(std::process::Command::new("mkfifo").arg(v.at("fft_lib_generic/math-libs/rocFFT/stage/lib/pipe")).status().unwrap().success());

    "fat library left in the generic tree" BOTH "fat-binary-left" |v| v.write(LIB, original(FAT_LIB));
    "fat executable left in the generic tree" BOTH "fat-binary-left" |v| v.write(TOOL, original(FAT_TOOL));
    "wrapper reverted to HIPF" BOTH "conversion-broken" |v| {
        let (at, ..) = v.section(LIB, ".hipFatBinSegment");
        v.edit(LIB, |b| b[at..at + 4].copy_from_slice(b"FPIH"));
    };
    "last wrapper reverted to HIPF" BOTH "conversion-broken" |v| {
        let (at, size, ..) = v.section(LIB, ".hipFatBinSegment");
        v.edit(LIB, |b| b[at + size - 24..at + size - 20].copy_from_slice(b"FPIH"));
    };
    "wrapper with a version of its own" BOTH "conversion-broken" |v| {
        let (at, ..) = v.section(LIB, ".hipFatBinSegment");
        v.edit(LIB, |b| b[at + 4] = 2);
    };
    "relocation of a wrapper that leads past the marker" BOTH "conversion-broken" |v| {
        let (.., address, _) = v.section(LIB, ".hipFatBinSegment");
        let (at, size, ..) = v.section(LIB, ".rela.dyn");
        v.edit(LIB, |b| {
            let entry = b[at..at + size].chunks_exact_mut(24).find(|e| e[..8] == (address + 8).to_le_bytes());
            entry.unwrap()[16] ^= 0x40;
        });
    };
    "DT_GNU_HASH led elsewhere" BOTH "conversion-broken" |v| v.dynamic(LIB, 0x6fff_fef5, |value| value + 8);
    "DT_RELACOUNT too high" BOTH "conversion-broken" |v| v.dynamic(LIB, 0x6fff_fff9, |value| value + 1000);
    "DT_SYMTAB of a host-only library led elsewhere" BOTH "host-damaged" |v| v.dynamic(SUPPORT, 6, |value| value + 24);
    ".hip_fatbin PROGBITS again" BOTH "conversion-broken" |v| {
        let (.., header) = v.section(LIB, ".hip_fatbin");
        v.edit(LIB, |b| { b[header + 4] = 1; b[header + 32..header + 40].copy_from_slice(&64u64.to_le_bytes()) });
    };
    "marker's section renamed" BOTH "conversion-broken" |v| v.replace(LIB, ".shstrtab", ".rocm_kpack_ref", ".rocm_kpack_xyz");
    "segment at an offset that does not fit its address" BOTH "conversion-broken" |v| v.edit(LIB, |b| {
        let load = (0..).map(|i| 64 + i * 56).find(|&at| b[at] == 1 && b[at + 4] == 5).unwrap();
        b[load + 8] ^= 0x10;
    });
    "library cut in half" BOTH "host-damaged" |v| v.edit(LIB, |b| b.truncate(b.len() / 2));
    "library without its last byte" BOTH "host-damaged" |v| v.edit(LIB, |b| { b.pop(); });
    "host-only library cut in half" BOTH "host-damaged" |v| v.edit(SUPPORT, |b| b.truncate(b.len() / 2));
    "host-only library emptied" BOTH "host-damaged" |v| v.write(SUPPORT, "");
    "host-only library: segment past the end of the file" BOTH "host-damaged" |v| v.edit(SUPPORT, |b| {
        let load = (0..).map(|i| 64 + i * 56).filter(|&at| b[at] == 1).nth(1).unwrap();
        b[load + 32 + 3] = 1; b[load + 40 + 3] = 1;
    });
    "program cut short" BOTH "host-damaged" |v| v.edit(TOOL, |b| b.truncate(5000));
    "marker overwritten" BOTH "marker" |v| {
        let (at, size, ..) = v.section(LIB, ".rocm_kpack_ref");
        v.edit(LIB, |b| b[at..at + size].fill(0xff));
    };
    "marker zeroed" BOTH "marker" |v| {
        let (at, size, ..) = v.section(LIB, ".rocm_kpack_ref");
        v.edit(LIB, |b| b[at..at + size].fill(0));
    };
    "marker with a letter of a key changed" BOTH "marker" |v| v.replace(LIB, ".rocm_kpack_ref", "kernel_name", "kernel_nome");
    "marker names another library" BOTH "marker-name" |v| v.replace(LIB, ".rocm_kpack_ref", "librocblas.so.5.2", "librocblas.so.5.3");
    "converted library renamed" BOTH "marker-name" |v| v.rename(LIB, "blas_lib_generic/math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.6.0");
    "library deleted with its links that another needs" SOURCE "needed-missing" |v| delete_rocblas(v);
    "library deleted with its links that another needs" EXTERNALS "needed-missing" |v| delete_rocblas(v);
    "library asks for one that nobody names" EXTERNALS "needed-missing" |v| v.replace(SUPPORT, ".dynstr", "libc.so.6", "libd.so.6");
    "library moved to where the loader does not look" BOTH "needed-unreachable" |v| {
        for name in ["librocblas.so.5.2", "librocblas.so.5", "librocblas.so"] {
            let folder = format!("blas_lib_generic/{ROCBLAS}/lib");
            v.rename(&format!("{folder}/{name}"), &format!("{folder}/private/{name}"));
        }
    };
    "section headers cut off" BOTH "not-checked" |v| v.edit(SUPPORT, |b| { b[40..48].fill(0); b[60..64].fill(0) });

    "kpacks of two ISAs swapped" BOTH "kpack-name" |v| {
        let (a, b) = (v.read(&v.kpack("gfx1100")), v.read(&v.kpack("gfx1101")));
        v.write(&v.kpack("gfx1100"), b); v.write(&v.kpack("gfx1101"), a);
    };
    "kpacks of two trees swapped with their names" SPLIT "isa-mixed" |v| {
        let (a, b) = (v.kpack("gfx1100"), v.kpack("gfx1101"));
        v.rename(&a, &b.replace("blas_lib_gfx1101.kpack", "blas_lib_gfx1100.kpack")); v.rename(&b, &a.replace("blas_lib_gfx1100.kpack", "blas_lib_gfx1101.kpack"));
    };
    "kpack renamed to another ISA" BOTH "kpack-name" |v| v.rename(&v.kpack("gfx1100"), &v.kpack("gfx1100").replace("gfx1100.kpack", "gfx1103.kpack"));
    "kpack renamed to something else" BOTH "kpack-name" |v| v.rename(&v.kpack("gfx1100"), &v.kpack("gfx1100").replace(".kpack/blas_lib_gfx1100.kpack", ".kpack/old.bin"));
    "kpack of another component" SPLIT "kpack-name" |v| v.copy("fft_lib_gfx1100/kpack/stage/.kpack/fft_lib_gfx1100.kpack", &v.kpack("gfx1100"));
    "kpack of another ISA added" SPLIT "isa-mixed" |v| v.copy(&v.kpack("gfx1101"), &v.kpack("gfx1100").replace("gfx1100.kpack", "gfx1101.kpack"));
    "kpack of another group added" RECOMBINED "isa-mixed" |v| v.copy(&v.kpack("gfx1201"), &v.kpack("gfx1100").replace("gfx1100.kpack", "gfx1201.kpack"));
    "kpack of another group added, by its family's name" ALONE "isa-mixed" |v| v.copy(&v.kpack("gfx1201"), &v.kpack("gfx1100").replace("gfx1100.kpack", "gfx1201.kpack"));
    "kpack in two groups whose names say nothing" ALONE "isa-twice" |v| {
        v.copy(&v.kpack("gfx1201"), &v.kpack("gfx1100").replace("gfx1100.kpack", "gfx1201.kpack"));
        v.rename("blas_lib_gfx110X", "blas_lib_navi3"); v.rename("blas_lib_gfx120X", "blas_lib_navi4");
    };
    "kernel's bytes are another ISA's" BOTH "kernel-isa" |v| {
        let other = read_kpack(&v.read(&v.kpack("gfx1101")));
        v.rebuild("gfx1100", |kernels| kernels[0].bytes.clone_from(&other[0].bytes));
    };
    "kernel that wants a feature which its id leaves open" SPLIT "kernel-features" |v| foreign_tree(v, "gfx90a", 0x53f | 0x300, |_| true);
    "database file moved to another ISA's tree" SPLIT "isa-mixed" |v| v.rename(&v.database("gfx1100", "Kernels.so-000-@.hsaco"), &format!("blas_lib_gfx1101/{DATABASE}/Kernels.so-000-gfx1100.hsaco"));
    "database file moved to another group's tree" RECOMBINED "isa-mixed" |v| v.rename(&v.database("gfx1100", "Kernels.so-000-@.hsaco"), &format!("blas_lib_gfx120X/{DATABASE}/Kernels.so-000-gfx1100.hsaco"));
    "tree of a group that the configuration does not have" RECOMBINED "group-unknown" |v| v.rename("fft_lib_gfx115X", "fft_lib_strix");
    ".hsaco of another ISA under the right name" BOTH "database-isa" |v| v.copy(&v.database("gfx1101", "Kernels.so-000-@.hsaco"), &v.database("gfx1100", "Kernels.so-000-@.hsaco"));
    ".co of another ISA under the right name" BOTH "database-isa" |v| {
        let name = "TensileLibrary_Type_SS_Contraction_l_Ailk_Bjlk_Cijk_Dijk_@.co";
        v.copy(&v.database("gfx1101", name), &v.database("gfx1100", name));
    };

    "kpack deleted" BOTH "kpm-stale" |v| v.remove(&v.kpack("gfx1100"));
    "kpack cut in half" BOTH "kpack-damaged" |v| v.edit(&v.kpack("gfx1100"), |b| b.truncate(b.len() / 2));
    "kpack without its last byte" BOTH "kpack-damaged" |v| v.edit(&v.kpack("gfx1100"), |b| { b.pop(); });
    "kpack with bytes behind its end" BOTH "kpack-damaged" |v| v.edit(&v.kpack("gfx1100"), |b| b.extend([0; 16]));
    "kpack emptied" BOTH "kpack-damaged" |v| v.write(&v.kpack("gfx1100"), "");
    "kpack of zeros" BOTH "kpack-damaged" |v| v.edit(&v.kpack("gfx1100"), |b| b.fill(0));
    "bit flipped in a kernel" BOTH "kpack-damaged" |v| v.edit(&v.kpack("gfx1100"), |b| b[600] ^= 4);
    "bit flipped in a frame's size" BOTH "kpack-damaged" |v| v.edit(&v.kpack("gfx1100"), |b| b[68] ^= 1);
    "bit flipped in the table of contents" BOTH "kpack-damaged" |v| v.edit(&v.kpack("gfx1100"), |b| { let at = b.len() - 9; b[at] ^= 0x20; });
    "original_size too small by one" BOTH "kpack-damaged" |v| v.edit(&v.kpack("gfx1100"), |b| {
        let key = b"original_size";
        let at = b.windows(key.len()).position(|w| w == key).unwrap() + key.len();
        assert_eq!(b[at], 0xcd, "a 16-bit number");
        b[at + 2] = b[at + 2].wrapping_sub(1);
    });
    "entry removed from the table of contents" BOTH "kpack-damaged" |v| v.rebuild("gfx1100", |k| k[1].unnamed = true);
    "kernel that is no ELF file" BOTH "kernel-damaged" |v| v.rebuild("gfx1100", |k| k[0].bytes = vec![7; 5000]);
    "kernel cut short before it was packed" BOTH "kernel-damaged" |v| v.rebuild("gfx1100", |k| { let n = k[0].bytes.len(); k[0].bytes.truncate(n - 200) });
    "kernel of the host's machine" BOTH "kernel-damaged" |v| { let host = v.read(SUPPORT); v.rebuild("gfx1100", |k| k[0].bytes = host) };
    ".co cut in half" BOTH "database-damaged" |v| v.edit(&v.database("gfx1100", "TensileLibrary_Type_SS_Contraction_l_Ailk_Bjlk_Cijk_Dijk_@.co"), |b| b.truncate(b.len() / 2));
    ".hsaco emptied" BOTH "database-damaged" |v| v.write(&v.database("gfx1100", "Kernels.so-000-@.hsaco"), "");
    ".hsaco that is text" BOTH "database-damaged" |v| v.write(&v.database("gfx1100", "Kernels.so-000-@.hsaco"), "404 not found\n");
    ".dat emptied" BOTH "database-empty" |v| v.write(&v.database("gfx1100", "TensileLibrary_lazy_@.dat"), "");
    ".kpm with a wrong size" BOTH "kpm-stale" |v| v.edit_kpm("gfx1100", |file| file.size += 1);
    ".kpm with a wrong count" BOTH "kpm-stale" |v| v.edit_kpm("gfx1100", |file| file.kernel_count += 1);
    ".kpm that names a file which is not there" BOTH "kpm-stale" |v| v.edit_kpm("gfx1100", |file| file.file = "blas_lib_gfx1199.kpack".into());
    ".kpm that names a file elsewhere" BOTH "kpm-stale" |v| v.edit_kpm("gfx1100", |file| file.file = "../../x.kpack".into());
    ".kpm of another component" BOTH "kpm-stale" |v| {
        let mut kpm = Kpm::read(Cursor::new(v.read(&v.kpm("gfx1100")))).unwrap();
        kpm.component_name = "fft_lib".into();
        v.write(&v.kpm("gfx1100"), kpm.to_bytes().unwrap());
    };
    ".kpm overwritten" BOTH "kpm-stale" |v| v.write(&v.kpm("gfx1100"), "not MessagePack");
    "kpack that no .kpm names" RECOMBINED "kpm-stale" |v| {
        let mut kpm = Kpm::read(Cursor::new(v.read(&v.kpm("gfx1100")))).unwrap();
        kpm.kpack_files.remove(&target("gfx1100"));
        v.write(&v.kpm("gfx1100"), kpm.to_bytes().unwrap());
    };

    "marker with another search path" BOTH "kernel-not-found" |v| v.replace(LIB, ".rocm_kpack_ref", "../.kpack/", "../.xpack/");
    "kpack moved to another folder" BOTH "kernel-not-found" |v| v.rename(&v.kpack("gfx1100"), &v.kpack("gfx1100").replace(".kpack/blas", "kernels/blas"));
    "all device trees of a component deleted" SPLIT "kernel-not-found" |v| for isa in ["gfx1100", "gfx1101", "gfx1102"] { v.remove(&format!("fft_lib_{isa}")) };
    "kernel missing for one wrapper and ISA" BOTH "kernel-missing" |v| v.rebuild("gfx1100", |k| { k.remove(1); });
    "kernel with an index that no wrapper has" BOTH "kernel-orphan" |v| v.rebuild("gfx1100", |k| { let mut more = k[0].clone(); more.co_index = 99; k.push(more) });
    "kernel of a library that is not there" BOTH "kernel-orphan" |v| v.rebuild("gfx1100", |k| { let mut more = k[0].clone(); more.binary = "x/lib/libx.so".into(); k.push(more) });
    "converted library deleted" BOTH "kernel-orphan" |v| v.remove(LIB);
    "converted library emptied" BOTH "kernel-orphan" |v| v.write(LIB, "");
    "co_index of a wrapper edited" BOTH "kernel-orphan" |v| {
        let (at, ..) = v.section(LIB, ".hipFatBinSegment");
        v.edit(LIB, |b| b[at + 24 + 16] = 0);
    };
    "generic processor's code hidden by a chip's archive" SPLIT "kernel-hidden" |v| {
        let rocblas = |k: &Kernel| k.binary.contains("librocblas");
        foreign_tree(v, "gfx11-generic", 0x54 | 1 << 24, rocblas);
        for isa in ["gfx1100", "gfx1101", "gfx1102"] { v.rebuild(isa, |k| k.retain(|k| !rocblas(k))) }
    };

    "host library in a device tree" BOTH "host-in-device-tree" |v| v.copy(SUPPORT, &format!("{}/{ROCBLAS}/lib/libextra.so.1", v.tree_of("gfx1100")));
    "database file for all ISAs in a device tree" BOTH "host-in-device-tree" |v| v.rename(&format!("blas_lib_generic/{DATABASE}/TensileLibrary_Type_SS_fallback.dat"), &format!("{}/{DATABASE}/TensileLibrary_Type_SS_fallback.dat", v.tree_of("gfx1100")));
    "kpack in the generic tree" BOTH "device-in-generic-tree" |v| v.rename(&v.kpack("gfx1100"), &format!("blas_lib_generic/{ROCBLAS}/.kpack/blas_lib_gfx1100.kpack"));
    "database file of an ISA in the generic tree" BOTH "device-in-generic-tree" |v| v.rename(&v.database("gfx1100", "Kernels.so-000-@.hsaco"), &format!("blas_lib_generic/{DATABASE}/Kernels.so-000-gfx1100.hsaco"));
    "database file in two trees" SPLIT "path-twice" |v| v.copy(&v.database("gfx1100", "TensileLibrary_lazy_@.dat"), &format!("blas_lib_gfx1101/{DATABASE}/TensileLibrary_lazy_gfx1100.dat"));
    "library under two prefixes" BOTH "path-twice" |v| v.copy(LIB, "blas_lib_generic/math-libs/BLAS/hipBLASLt/stage/lib/librocblas.so.5.2");
    "library in two components" BOTH "path-shared" |v| v.copy(SUPPORT, &format!("blas_lib_generic/{ROCBLAS}/lib/libsupport.so.1.2"));
    "kpack copied under another name" BOTH "kernel-twice" |v| v.copy(&v.kpack("gfx1100"), &v.kpack("gfx1100").replace("blas_lib_gfx1100.kpack", "blas_lib+old_gfx1100.kpack"));
    "link to a library whose file was deleted" BOTH "dangling-link" |v| v.remove(SUPPORT);
    "link of a database that leads nowhere" BOTH "dangling-link" |v| symlink("Kernels.so-001-gfx1100.hsaco", v.at(v.database("gfx1100", "Kernels.so-002-@.hsaco"))).unwrap();
    "program without its x bits" BOTH "mode" |v| v.mode(TOOL, 0o644);
    "library that only its owner can read" BOTH "mode" |v| v.mode(LIB, 0o600);

    "kpack of another build with the same names" SOURCE "changed" |v| v.rebuild("gfx1100", |k| for k in k { let at = k.bytes.len() / 2; k.bytes[at] ^= 1 });
    "generic tree of another build: code" SOURCE "changed" |v| { let (at, ..) = v.section(LIB, ".text"); v.edit(LIB, |b| b[at + 40] ^= 1) };
    "generic tree of another build: a string" SOURCE "changed" |v| { let (at, ..) = v.section(LIB, ".rodata"); v.edit(LIB, |b| b[at + 8] ^= 1) };
    "relocation changed" SOURCE "changed" |v| { let (at, size, ..) = v.section(LIB, ".rela.plt"); v.edit(LIB, |b| b[at + size - 24] ^= 8) };
    "host-only library changed" SOURCE "changed" |v| v.edit(SUPPORT, |b| { let at = b.len() - 5; b[at] ^= 1 });
    "bit flipped in a .dat" SOURCE "changed" |v| v.edit(&v.database("gfx1100", "TensileLibrary_lazy_@.dat"), |b| b[3] ^= 1);
    "database files of two ISAs swapped" SOURCE "changed" |v| {
        let (a, b) = (v.database("gfx1100", "TensileLibrary_lazy_@.dat"), v.database("gfx1101", "TensileLibrary_lazy_@.dat"));
        let (x, y) = (v.read(&a), v.read(&b));
        v.write(&a, y); v.write(&b, x);
    };
    "mode of a file changed" SOURCE "changed" |v| v.mode(SUPPORT, 0o777);
    "link led elsewhere" SOURCE "changed" |v| {
        let link = "support_lib_generic/base/support/stage/lib/libsupport.so";
        v.remove(link); symlink("libsupport.so.1.2", v.at(link)).unwrap();
    };
    "library replaced by an older one" SOURCE "changed" |v| v.edit(SUPPORT, |b| b.extend([0; 8]));
    "host file deleted" SOURCE "lost" |v| v.remove("sysdeps_lib_generic/third-party/sysdeps/stage/share/sysdeps/NOTICE.txt");
    "database file deleted" SOURCE "lost" |v| v.remove(&v.database("gfx1100", "Kernels.so-000-@.hsaco"));
    "link deleted" SOURCE "lost" |v| v.remove("support_lib_generic/base/support/stage/lib/libsupport.so");
    "kernel left out of every archive" SOURCE "lost" |v| for isa in ["gfx1100", "gfx1101", "gfx1102"] { v.rebuild(isa, |k| { k.remove(1); }) };
    "library left out of an archive" SOURCE "lost" |v| v.rebuild("gfx1100", |k| k.retain(|k| !k.binary.contains("hipblaslt")));
    "whole tree deleted" SOURCE "lost" |v| v.remove(&v.tree_of("gfx1102"));
    "file put in by hand" SOURCE "extra" |v| v.write(&format!("blas_lib_generic/{ROCBLAS}/lib/notes.txt"), "x");
    "kernel put in by hand" SOURCE "extra" |v| v.rebuild("gfx1100", |k| { let mut more = k[0].clone(); more.co_index = 50; k.push(more) });
    "ISA that is in no group" RECOMBINED_SOURCE "left-out" |v| { let _ = v; };
};

/// The one damage that is done to the configuration rather than to a tree.
const NO_GROUP: &str = "ISA that is in no group";

fn ids(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|finding| finding.id.id()).collect()
}

#[test]
fn undamaged_trees_raise_nothing() {
    for on in [
        On::Split,
        On::Recombined,
        On::RecombinedAlone,
        On::SplitWithSource,
        On::RecombinedWithSource,
        On::SplitWithExternals,
        On::RecombinedWithExternals,
    ] {
        let report = on.verify(&good().join(on.folder()));
        assert_eq!(report.findings, [], "{on:?}");
        assert!(report.kernels > 0 && report.files > 50);
    }
    // Split trees of every shard, and against shards that were split already.
    for shard in shards() {
        let dir = good().join("all").join(&shard.name);
        let source = [shard];
        let options = Options { source: Some(&source), ..Options::default() };
        let report = verify::directory(&dir, &options, &Jobs::new(1, 1 << 20), &Silent).unwrap();
        assert_eq!(report.findings, []);
    }
    // Every way to split.
    let shards = shards();
    for (scope, layout, compression) in [
        (Scope::Prefix, Layout::Stage, Compression::None),
        (Scope::Binary, Layout::InPlace, Compression::Zstd { level: 1 }),
        (Scope::Component, Layout::InPlace, Compression::Zstd { level: 1 }),
    ] {
        let options = split::Options { scope, layout, compression, ..split::Options::default() };
        let dir = tempfile::tempdir().unwrap();
        write_artifacts(&dir.path().join("out"), &split_shard(&shards[0], &options));
        let options = Options { source: Some(&shards[..1]), ..Options::default() };
        let jobs = Jobs::new(2, 64 << 20);
        let report = verify::directory(&dir.path().join("out"), &options, &jobs, &Silent).unwrap();
        assert_eq!(report.findings, [], "{scope:?} {layout:?}");
    }
    let split = read_shards(&good().join("all"));
    let config = config();
    let options = Options { source: Some(&split), config: Some(&config), ..Options::default() };
    let jobs = Jobs::new(2, 64 << 20);
    let report = verify::directory(&good().join("recombined"), &options, &jobs, &Silent).unwrap();
    assert_eq!(report.findings, []);
}

/// Does every damage that is for this kind of tree.
fn damage_all(on: On) {
    let mut missed = Vec::new();
    let wanted = |damage: &&Damage| damage.on.contains(&on) && damage.what != NO_GROUP;
    for damage in DAMAGES.iter().filter(wanted) {
        let victim = Victim::of(on.folder());
        (damage.damage)(&victim);
        let report = on.verify(victim.dir.path());
        if !ids(&report).contains(&damage.caught_by) {
            let found =
                report.findings.iter().map(|f| format!("{} {} {}", f.id, f.place(), f.message));
            missed.push(format!(
                "{}: {} expected, found {:#?}",
                damage.what,
                damage.caught_by,
                found.collect::<Vec<_>>()
            ));
        }
        for finding in &report.findings {
            assert!(!finding.message.is_empty() && !finding.expected.is_empty(), "{finding:?}");
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_damage_of_a_split_tree_is_caught() {
    damage_all(On::Split);
}

#[test]
fn every_damage_of_a_recombined_tree_is_caught() {
    damage_all(On::Recombined);
    damage_all(On::RecombinedAlone);
}

#[test]
fn every_damage_is_caught_with_the_shard_at_hand() {
    damage_all(On::SplitWithSource);
}

#[test]
fn every_damage_is_caught_with_all_shards_at_hand() {
    damage_all(On::RecombinedWithSource);
}

#[test]
fn every_library_that_is_not_there_is_told_with_all_others_named() {
    damage_all(On::SplitWithExternals);
    damage_all(On::RecombinedWithExternals);
}

#[test]
fn content_of_an_isa_without_a_group_is_left_out() {
    let mut config = config();
    config
        .architecture_groups
        .get_mut("gfx110X")
        .unwrap()
        .architectures
        .retain(|isa| isa != "gfx1102");
    let split = read_shards(&good().join("all"));
    let (groups, _) = recombine::recombine(&split, &config).unwrap();
    let dir = tempfile::tempdir().unwrap();
    write_artifacts(&dir.path().join("out"), &groups);
    let shards = shards();
    let options = Options { source: Some(&shards), config: Some(&config), ..Options::default() };
    let jobs = Jobs::new(2, 64 << 20);
    let report = verify::directory(&dir.path().join("out"), &options, &jobs, &Silent).unwrap();
    assert!(ids(&report).contains(&"left-out"), "{:?}", report.findings);
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Warning));
}

#[test]
fn text_markers_are_searched_and_warned_of() {
    let options = Options::default();
    let jobs = Jobs::new(2, 64 << 20);
    let report = verify::directory(&good().join("text"), &options, &jobs, &Silent).unwrap();
    assert!(!report.findings.is_empty());
    assert!(
        report.findings.iter().all(|finding| finding.id == Check::MarkerText),
        "{:?}",
        report.findings
    );
}

#[test]
fn an_allowed_finding_is_reported_with_its_reason() {
    let victim = Victim::of("split");
    victim.mode(TOOL, 0o644);
    victim.write("blas_lib_generic/stray", "x");
    let allow = verify::Allow {
        id: "mode".into(),
        place: globset::Glob::new("blas_run_*/**").unwrap(),
        reason: "the bench is for us".into(),
    };
    let options = Options { allow: vec![allow], ..Options::default() };
    let report =
        verify::directory(victim.dir.path(), &options, &Jobs::new(1, 1 << 20), &Silent).unwrap();
    assert_eq!(ids(&report), ["manifest-short"]);
    assert_eq!(report.allowed.len(), 1);
    assert_eq!(report.allowed[0].reason, "the bench is for us");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["findings"][0]["id"], "manifest-short");
    assert_eq!(json["findings"][0]["severity"], "error");
    assert_eq!(json["allowed"][0]["id"], "mode");
}

/// Findings do not depend on the number of threads.
#[test]
fn a_report_is_the_same_for_any_number_of_threads() {
    let victim = Victim::of("split");
    victim.remove(LIB);
    victim.write(&victim.kpack("gfx1101"), "x");
    victim.write("blas_lib_generic/stray", "x");
    let report = |threads| {
        let jobs = Jobs::new(threads, 1 << 20);
        let report = verify::directory(victim.dir.path(), &Options::default(), &jobs, &Silent);
        serde_json::to_string(&report.unwrap()).unwrap()
    };
    assert_eq!(report(1), report(7));
}

// ---- the page ----

fn check_table() -> String {
    let mut text = String::from(
        "| id | invariant | severity | protects from | likely cause | mend |\n|---|---|---|---|---|---|\n",
    );
    for check in Check::ALL {
        let about = check.about();
        let severity = if about.severity == Severity::Error { "error" } else { "warning" };
        text += &format!(
            "| `{}` | {} | {severity} | {} | {} | {} |\n",
            about.id, about.invariant, about.protects, about.cause, about.mend
        );
    }
    text
}

fn damage_table() -> String {
    let mut text = String::from("| damage | tried on | caught by |\n|---|---|---|\n");
    for damage in DAMAGES {
        let on: Vec<_> = damage.on.iter().map(|on| on.words()).collect();
        text += &format!("| {} | {} | `{}` |\n", damage.what, on.join("; "), damage.caught_by);
    }
    text
}

#[test]
fn the_page_has_every_check_and_every_damage() {
    assert!(DAMAGES.len() >= 40);
    for damage in DAMAGES {
        assert!(
            Check::ALL.iter().any(|check| check.id() == damage.caught_by),
            "{}",
            damage.caught_by
        );
    }
    table_is_on_the_page("checks", &check_table());
    table_is_on_the_page("damages", &damage_table());
}
