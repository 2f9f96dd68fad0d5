//! A fat binary taken apart: its wrappers, and the bundle that each of them points at.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::bundle::{Bundle, BundleError};
use super::wrapper::{self, Wrapper};
use crate::elf::{self, Conversion, ConvertError, ElfError, Image};
use crate::read_at::ReadAt;

/// The section that holds the bundles.
const HIP_FATBIN: &str = ".hip_fatbin";

/// Why a fat binary cannot be taken apart.
#[derive(Debug, thiserror::Error)]
pub enum FatBinaryError {
    /// Its headers or wrappers are damaged.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// A bundle is damaged.
    #[error("the bundle of wrapper {wrapper}, at {offset:#x}, is damaged")]
    Bundle {
        /// The wrapper's index.
        wrapper: u32,
        /// Offset in the file.
        offset: u64,
        /// What is wrong with it.
        source: BundleError,
    },
}

/// A program or shared library with device code.
#[derive(Debug)]
pub struct FatBinary {
    image: Image,
    wrappers: Vec<Wrapper>,
    /// By offset in the file.
    bundles: BTreeMap<u64, Arc<Bundle>>,
}

impl FatBinary {
    /// Reads the wrappers of `image`, which was read from `r`, and the tables of the bundles that
    /// they point at. A wrapper is paired with its bundle by address: several can share one, and
    /// their order in the file says nothing.
    pub fn read(r: &dyn ReadAt, image: Image) -> Result<Self, FatBinaryError> {
        Self::read_with(r, image, &BTreeMap::new())
    }

    /// The same where some bundles of the file, by offset, have been read already: those are not read
    /// again.
    pub fn read_with(
        r: &dyn ReadAt,
        image: Image,
        known: &BTreeMap<u64, Arc<Bundle>>,
    ) -> Result<Self, FatBinaryError> {
        let wrappers = wrapper::read(r, &image)?;
        let section = image.section(HIP_FATBIN);
        let limit = section.map_or(0, |section| section.file_range().end);
        let mut bundles = BTreeMap::new();
        let mut held = 0;
        for wrapper in &wrappers {
            let offset = Self::bundle_offset(&image, wrapper)?;
            if let Entry::Vacant(vacant) = bundles.entry(offset) {
                let known = known.get(&offset);
                if let Some(bundle) = known.filter(|b| offset + b.total_size <= limit) {
                    vacant.insert(Arc::clone(bundle));
                    continue;
                }
                let fail =
                    |source| FatBinaryError::Bundle { wrapper: wrapper.index, offset, source };
                let bundle = Bundle::read(r, offset, limit).map_err(fail)?;
                bundle.count(&mut held).map_err(fail)?;
                vacant.insert(Arc::new(bundle));
            }
        }
        Ok(Self { image, wrappers, bundles })
    }

    fn bundle_offset(image: &Image, wrapper: &Wrapper) -> Result<u64, ElfError> {
        let address = wrapper.address();
        image.offset_of(address, 1).ok_or_else(|| {
            ElfError::Missing(format!(
                "byte in the file for the address {address:#x} that wrapper {} points at",
                wrapper.index
            ))
        })
    }

    /// The ELF headers.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Each wrapper with its bundle, in the order of the array.
    pub fn wrappers(&self) -> impl Iterator<Item = (&Wrapper, &Arc<Bundle>)> {
        self.wrappers.iter().map(|wrapper| {
            let offset = Self::bundle_offset(&self.image, wrapper).unwrap_or_default();
            (wrapper, self.bundles.get(&offset).expect("read for each wrapper"))
        })
    }

    /// The bundles, by their place in the file.
    pub fn bundles(&self) -> &BTreeMap<u64, Arc<Bundle>> {
        &self.bundles
    }

    /// The file without its device code and with `marker` in it; see [`elf::convert()`].
    pub fn convert(&self, r: &dyn ReadAt, marker: &[u8]) -> Result<Conversion, ConvertError> {
        elf::convert(r, &self.image, &self.wrappers, marker)
    }
}
