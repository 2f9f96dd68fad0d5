//! The table of damages. The one in `docs/verify.md` is made from it.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::symlink;

use gfxpack::kpack::kpm::{Kpm, KpmFile};

use crate::damage::{Damage, Kernel, damages, read_kpack, write_kpack};
use crate::trees::{DATABASE, LIB, On, ROCBLAS, SUPPORT, TOOL, Victim, examples, target};

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

const BOTH: &[On] = &[On::Split, On::Recombined];
const SPLIT: &[On] = &[On::Split];
const SOURCE: &[On] = &[On::SplitWithSource, On::RecombinedWithSource];

const EXTERNALS: &[On] = &[On::SplitWithExternals, On::RecombinedWithExternals];
const RECOMBINED: &[On] = &[On::Recombined];
const ALONE: &[On] = &[On::RecombinedAlone];
const RECOMBINED_SOURCE: &[On] = &[On::RecombinedWithSource];

#[rustfmt::skip]
pub const DAMAGES: &[Damage<On>] = damages! {
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
    "library deleted with its links that another needs: a warning" BOTH "needed-missing" |v| delete_rocblas(v);
    "library deleted with its links that another needs" SOURCE "needed-missing" |v| delete_rocblas(v);
    "library deleted with its links that another needs" EXTERNALS "needed-missing" |v| delete_rocblas(v);
    "library asks for one that nobody names: a warning" BOTH "needed-missing" |v| v.replace(SUPPORT, ".dynstr", "libc.so.6", "libd.so.6");
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
    "code of a processor hidden by an archive for a feature of it" SPLIT "kernel-hidden" |v| {
        let rocblas = |k: &Kernel| k.binary.contains("librocblas");
        foreign_tree(v, "gfx90a", 0x53f, rocblas);
        foreign_tree(v, "gfx90a:xnack+", 0x53f | 0x200, |k| !rocblas(k));
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
pub const NO_GROUP: &str = "ISA that is in no group";
