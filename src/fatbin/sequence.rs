//! A file of bundles: one, or several with zeros between, as a copy of `.hip_fatbin` has them.

use super::bundle::{Bundle, BundleError};
use crate::read_at::ReadAt;

/// How much is looked at in one step while zeros are passed over.
const STEP: u64 = 64 * 1024;

/// Reads the tables of all bundles in `r`, of which the first begins at its start. What stands
/// behind a bundle must be zeros or another bundle.
pub fn read_bundles(r: &dyn ReadAt) -> Result<Vec<Bundle>, BundleError> {
    let mut bundles = Vec::new();
    let mut at = 0;
    let mut held = 0;
    loop {
        let bundle = Bundle::read(r, at, r.len())?;
        bundle.count(&mut held)?;
        at = bundle.offset + bundle.total_size;
        bundles.push(bundle);
        match skip_zeros(r, at)? {
            Some(next) => at = next,
            None => return Ok(bundles),
        }
    }
}

/// Where the first byte that is not 0 stands from `at` on.
fn skip_zeros(r: &dyn ReadAt, mut at: u64) -> Result<Option<u64>, BundleError> {
    let mut block = vec![0; 512];
    while at < r.len() {
        let size = usize::try_from((r.len() - at).min(block.len() as u64)).unwrap_or(1);
        let seen = &mut block[..size];
        r.read_exact_at(seen, at).map_err(|source| BundleError::Io { offset: at, source })?;
        if let Some(first) = seen.iter().position(|&b| b != 0) {
            return Ok(Some(at + first as u64));
        }
        at += size as u64;
        block.resize(usize::try_from(STEP).unwrap_or(512), 0);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fatbin::bundle::MAGIC;

    /// A bundle with one entry of 4 bytes.
    fn bundle() -> Vec<u8> {
        let id = b"hipv4-amdgcn-amd-amdhsa--gfx1100";
        let mut bytes = MAGIC.to_vec();
        bytes.extend(1u64.to_le_bytes());
        for field in [32 + 24 + id.len() as u64, 4, id.len() as u64] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(id);
        bytes.extend([7; 4]);
        bytes
    }

    #[test]
    fn bundles_follow_each_other_with_zeros_between() {
        let one = bundle();
        assert_eq!(read_bundles(&one).unwrap().len(), 1);
        let mut three = one.clone();
        three.resize(200_000, 0);
        three.extend(&one);
        three.extend(&one);
        three.resize(300_000, 0);
        let offsets: Vec<_> = read_bundles(&three).unwrap().iter().map(|b| b.offset).collect();
        assert_eq!(offsets, [0, 200_000, 200_000 + one.len() as u64]);
        let mut bad = one;
        bad.extend(b"\0\0junk, and enough of it to hold a magic");
        assert!(matches!(read_bundles(&bad), Err(BundleError::Magic { .. })));
        assert!(read_bundles(&Vec::new()).is_err());
    }

    #[test]
    fn tables_that_come_out_of_nearly_nothing_are_refused() {
        let mut plain = MAGIC.to_vec();
        plain.extend(4096u64.to_le_bytes());
        let id = format!("host-{}", "x".repeat(1019));
        for _ in 0..4096 {
            for field in [0, 0, id.len() as u64] {
                plain.extend(field.to_le_bytes());
            }
            plain.extend(id.bytes());
        }
        let stream = zstd::bulk::compress(&plain, 19).unwrap();
        let mut packed = b"CCOB\x03\0\x01\0".to_vec();
        packed.extend((32 + stream.len() as u64).to_le_bytes());
        packed.extend((plain.len() as u64).to_le_bytes());
        packed.extend([0; 8]);
        packed.extend(stream);
        assert!(packed.len() < 4096);
        assert_eq!(read_bundles(&packed.repeat(10)).unwrap().len(), 10);
        // Ten thousand of them would take over 40 GiB.
        let error = read_bundles(&packed.repeat(10_000)).unwrap_err();
        assert!(matches!(error, BundleError::Tables { .. }), "{error}");
    }
}
