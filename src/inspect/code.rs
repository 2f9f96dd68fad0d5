//! Reports of what holds device code: kpack archives, offload bundles, code objects.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Input;
use crate::error::Error;
use crate::fatbin::bundle::{Bundle, Form};
use crate::fatbin::ccob::Method;
use crate::fatbin::code_object::{CodeObjectHeader, Kernel, Metadata};
use crate::fatbin::read_bundles;
use crate::kpack::reader::Archive;

/// A kpack archive.
#[derive(Debug, Clone, Serialize)]
pub struct KpackReport {
    /// The artifact prefix that it was made for.
    pub group_name: String,
    /// What it calls its family.
    pub gfx_arch_family: String,
    /// The ISAs that it lists.
    pub gfx_arches: Vec<String>,
    /// `zstd-per-kernel` or `none`.
    pub compression: &'static str,
    /// Names in it, of each ISA.
    pub entries: usize,
    /// Code objects that are stored: entries can share one.
    pub unique_code_objects: usize,
    /// Bytes of the stored code objects before compression.
    pub original_bytes: u64,
    /// Bytes that they take in the archive.
    pub stored_bytes: u64,
    /// `original_bytes / stored_bytes`; nothing for an archive without code.
    pub ratio: Option<f64>,
    /// The entries, the largest first.
    pub kernels: Vec<KernelReport>,
}

/// An entry of a kpack archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelReport {
    /// `{prefix}/{path}#{index}`.
    pub name: String,
    /// The ISA that it is filed under.
    pub isa: String,
    /// Number of its code object in the archive.
    pub ordinal: u32,
    /// Bytes before compression.
    pub original_size: u64,
    /// Bytes in the archive.
    pub stored_size: u64,
}

pub(super) fn kpack(input: &Input) -> Result<KpackReport, Error> {
    let archive = Archive::open(&input.file).map_err(|e| input.damaged("kpack archive", e))?;
    let mut kernels = Vec::new();
    let mut unique = BTreeMap::new();
    for entry in archive.entries() {
        let stored_size = archive.stored_size(entry.ordinal).unwrap_or(0);
        unique.insert(entry.ordinal, entry.original_size);
        kernels.push(KernelReport {
            name: entry.name(),
            isa: entry.isa.to_string(),
            ordinal: entry.ordinal,
            original_size: entry.original_size,
            stored_size,
        });
    }
    kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.original_size));
    let ordinals = 0..u32::try_from(archive.unique_count()).unwrap_or(u32::MAX);
    let stored_bytes = sum(ordinals.filter_map(|ordinal| archive.stored_size(ordinal)));
    let original_bytes = sum(unique.into_values());
    Ok(KpackReport {
        group_name: archive.group_name().to_owned(),
        gfx_arch_family: archive.gfx_arch_family().to_owned(),
        gfx_arches: archive.gfx_arches().iter().map(ToString::to_string).collect(),
        compression: if archive.is_compressed() { "zstd-per-kernel" } else { "none" },
        entries: kernels.len(),
        unique_code_objects: archive.unique_count(),
        original_bytes,
        stored_bytes,
        ratio: ratio(original_bytes, stored_bytes),
        kernels,
    })
}

fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

#[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratio(original: u64, stored: u64) -> Option<f64> {
    // Two decimals, so that the same archive gives the same text everywhere.
    (stored > 0).then(|| (original as f64 / stored as f64 * 100.0).round() / 100.0)
}

/// A file of bundles.
#[derive(Debug, Clone, Serialize)]
pub struct BundlesReport {
    /// In the order of the file.
    pub bundles: Vec<BundleReport>,
}

/// An offload bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BundleReport {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub stored_size: u64,
    /// `plain`, or `CCOB v2 zstd`.
    pub form: String,
    /// Bytes of a compressed bundle once decompressed, as its header states them.
    pub uncompressed_size: Option<u64>,
    /// In the order of its table.
    pub entries: Vec<EntryReport>,
}

/// An entry of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryReport {
    /// As it stands in the bundle.
    pub id: String,
    /// The target in it; nothing for the host's entry.
    pub isa: Option<String>,
    /// Where it begins in the (decompressed) bundle.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

pub(super) fn bundle(bundle: &Bundle) -> BundleReport {
    let (form, uncompressed_size) = match &bundle.form {
        Form::Plain => ("plain".to_owned(), None),
        Form::Compressed(header) => {
            let method = match header.method {
                Method::Zlib => "zlib",
                Method::Zstd => "zstd",
            };
            (format!("CCOB v{} {method}", header.version), Some(header.uncompressed_size))
        }
    };
    let entries = bundle.entries.iter().map(|entry| EntryReport {
        id: entry.id.clone(),
        isa: entry.target.as_ref().map(ToString::to_string),
        offset: entry.offset,
        size: entry.size,
    });
    BundleReport {
        offset: bundle.offset,
        stored_size: bundle.total_size,
        form,
        uncompressed_size,
        entries: entries.collect(),
    }
}

pub(super) fn bundles(input: &Input) -> Result<BundlesReport, Error> {
    let bundles = read_bundles(&input.file).map_err(|e| input.damaged("offload bundle", e))?;
    Ok(BundlesReport { bundles: bundles.iter().map(bundle).collect() })
}

/// A code object.
#[derive(Debug, Clone, Serialize)]
pub struct CodeObjectReport {
    /// What its flags say it is for; nothing for an unknown processor.
    pub isa: Option<String>,
    /// The flags, as `0x…`.
    pub e_flags: String,
    /// Code object version: 3 to 6.
    pub version: u8,
    /// Version of a generic processor's code.
    pub generic_version: Option<u8>,
    /// The target as its metadata names it.
    pub metadata_target: Option<String>,
    /// The kernels in the order of the metadata; nothing where there is no metadata.
    pub kernels: Option<Vec<Kernel>>,
}

pub(super) fn code_object(
    input: &Input,
    header: &CodeObjectHeader,
) -> Result<CodeObjectReport, Error> {
    let metadata =
        Metadata::read(&input.file, header).map_err(|e| input.damaged("code object", e))?;
    let generic = header.target.as_ref().is_some_and(crate::target::TargetId::is_generic);
    Ok(CodeObjectReport {
        isa: header.target.as_ref().map(ToString::to_string),
        e_flags: format!("{:#x}", header.e_flags),
        version: header.version(),
        generic_version: generic.then_some(header.generic_version),
        metadata_target: metadata.as_ref().and_then(|metadata| metadata.target.clone()),
        kernels: metadata.map(|metadata| metadata.kernels),
    })
}
