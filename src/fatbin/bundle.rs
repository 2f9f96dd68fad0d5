//! Offload bundles: one fat object with the code objects of several targets.
//!
//! ```text
//! __CLANG_OFFLOAD_BUNDLE__ (24) · u64 count · count × { u64 offset · u64 size · u64 id length · id } · contents
//! ```
//! Offsets count from the bundle's start. A bundle can be compressed ([`crate::fatbin::ccob`]): the
//! decompressed bytes are then such a bundle.
//!
//! A bundle's extent comes from its own header, never from a search for the next magic, which can
//! occur in device code. Of a plain bundle only the header is read; of a compressed one only the
//! beginning is decompressed, until code objects are asked for. What holds after [`Bundle::read`]:
//! the bundle ends before the limit, every entry lies behind the entry table and inside the bundle
//! (for a compressed bundle: inside its claimed size), no two entries overlap, and no target occurs
//! twice. Which bundle belongs to which wrapper is not known here.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Read};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::fatbin::ccob::{self, CcobHeader};
pub use crate::fatbin::error::BundleError;
use crate::fatbin::hashing::Hashing;
use crate::fatbin::names::KernelNames;
use crate::read_at::{Cursor, ReadAt};
use crate::target::TargetId;

/// The first bytes of a plain bundle.
pub const MAGIC: &[u8; 24] = b"__CLANG_OFFLOAD_BUNDLE__";

/// More entries than any bundle has.
pub(super) const MAX_ENTRIES: u64 = 4096;

/// Longer than any entry id.
pub(super) const MAX_ID_LEN: u64 = 1024;

/// What the tables of all bundles of one file may take in memory. Real ones have a few kilobytes
/// each; one of megabytes can come out of a compressed bundle of a few hundred bytes.
pub(super) const MAX_TABLES: u64 = 64 << 20;

/// How a bundle is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// As it is.
    Plain,
    /// Compressed, with that header.
    Compressed(CcobHeader),
}

/// One entry of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleEntry {
    /// The id, e.g. `hipv4-amdgcn-amd-amdhsa--gfx1100`.
    pub id: String,
    /// What the code is for; `None` for host entries only.
    pub target: Option<TargetId>,
    /// Offset from the start of the (uncompressed) bundle.
    pub offset: u64,
    /// Size in bytes; 0 for an entry without content.
    pub size: u64,
}

/// A bundle's place, form and table of entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// Where it begins in the reader.
    pub offset: u64,
    /// Length on disk. What follows is padding or the next bundle.
    pub total_size: u64,
    /// How it is stored.
    pub form: Form,
    /// The entries, in the order of the table.
    pub entries: Vec<BundleEntry>,
    /// Kept by [`Self::kernel_names`].
    #[serde(skip)]
    names: OnceLock<Option<Arc<KernelNames>>>,
}

/// Whether a file or section that begins with these bytes begins with a bundle of either form.
pub fn is_bundle(prefix: &[u8]) -> bool {
    prefix.starts_with(MAGIC) || prefix.starts_with(ccob::MAGIC)
}

impl Bundle {
    /// Reads the bundle that begins at `offset` of `r`. `limit` is the end of what holds it (the
    /// section's, the file's): all of the bundle must lie before.
    pub fn read(r: &dyn ReadAt, offset: u64, limit: u64) -> Result<Self, BundleError> {
        let limit = limit.min(r.len());
        let available = limit.saturating_sub(offset);
        let mut magic = [0; 24];
        let seen = &mut magic[..usize::try_from(available).unwrap_or(24).min(24)];
        r.read_exact_at(seen, offset).map_err(|source| BundleError::Io { offset, source })?;
        if seen.starts_with(ccob::MAGIC) {
            let header = CcobHeader::read(r, offset, limit)?;
            let fail = |source| BundleError::Decompress { offset, source };
            let mut stream = header.decoder(r, offset).map_err(fail)?;
            let table = Table::read(&mut stream, header.uncompressed_size);
            let table = table.map_err(|error| match error {
                BundleError::Io { source, .. } => fail(source),
                error => error,
            })?;
            let total_size = header.total_size;
            let form = Form::Compressed(header);
            return Ok(Self::new(offset, total_size, form, table.entries));
        }
        if seen != MAGIC {
            return Err(BundleError::Magic { offset, found: seen.to_vec() });
        }
        let mut stream = BufReader::with_capacity(4096, Cursor::new(r, offset, available));
        let table = Table::read(&mut stream, available)?;
        Ok(Self::new(offset, table.content_end, Form::Plain, table.entries))
    }

    /// A bundle of which this is known.
    pub(crate) fn new(offset: u64, total_size: u64, form: Form, entries: Vec<BundleEntry>) -> Self {
        Self { offset, total_size, form, entries, names: OnceLock::new() }
    }

    /// The names of the kernels of its first entry with device code, which say what source file it was made from:
    /// the others are of the same file, for other GPUs. `None` where that entry names none or cannot be read, which
    /// is for others to tell. `r` is the reader that the bundle was read from; the answer is kept.
    pub fn kernel_names(&self, r: &dyn ReadAt) -> Option<Arc<KernelNames>> {
        self.names.get_or_init(|| self.read_names(r).unwrap_or_default()).clone()
    }

    /// Reads what [`Self::kernel_names`] keeps, from a reader that may lack some of the bundle. Whether it had enough.
    pub(crate) fn learn_kernel_names(&self, r: &dyn ReadAt) -> bool {
        self.read_names(r).is_ok_and(|names| self.names.set(names).is_ok())
    }

    fn read_names(&self, r: &dyn ReadAt) -> io::Result<Option<Arc<KernelNames>>> {
        let Some((_, entry)) = self.device_entries().find(|(_, entry)| entry.size > 0) else {
            return Ok(None);
        };
        let stream = self.open_entry(r, entry).map_err(io::Error::other)?;
        let names = KernelNames::read(stream, entry.size).map_err(io::Error::other)?;
        Ok(names.map(Arc::new))
    }

    /// Whether all that holds of a bundle that was read ([`Bundle::read`]) holds of this one, in a file of
    /// `len` bytes: what a plan that was kept says is believed no more than the file itself.
    pub fn check(&self, len: u64) -> Result<(), BundleError> {
        let end = self.offset.checked_add(self.total_size).filter(|end| *end <= len);
        let (offset, size) = (self.offset, self.total_size);
        end.ok_or(BundleError::EntryRange { entry: 0, offset, size, limit: len })?;
        let limit = match &self.form {
            Form::Plain => self.total_size,
            Form::Compressed(header) => {
                header.check(self.total_size)?;
                header.uncompressed_size
            }
        };
        check(&self.entries, 0, limit).map(|_| ())
    }

    /// Adds what the table takes in memory to `held`, the sum of all bundles of a file.
    pub(super) fn count(&self, held: &mut u64) -> Result<(), BundleError> {
        for entry in &self.entries {
            let strings = entry.id.len() + entry.target.as_ref().map_or(0, |t| t.processor().len());
            *held += (size_of::<BundleEntry>() + strings) as u64;
        }
        if *held > MAX_TABLES {
            return Err(BundleError::Tables { offset: self.offset });
        }
        Ok(())
    }

    /// The entries with device code, in the order of the table; empty ones among them.
    pub fn device_entries(&self) -> impl Iterator<Item = (&TargetId, &BundleEntry)> {
        self.entries.iter().filter_map(|entry| Some((entry.target.as_ref()?, entry)))
    }

    /// The entry for exactly that target.
    pub fn entry(&self, target: &TargetId) -> Option<&BundleEntry> {
        self.entries.iter().find(|entry| entry.target.as_ref() == Some(target))
    }

    /// A stream of the entry's bytes: it gives `entry.size` of them, or an error. `r` is the reader
    /// that the bundle was read from. In a compressed bundle everything before the entry is
    /// decompressed on the way, so that for several entries [`Self::for_each_entry`] is cheaper;
    /// and only that, or [`Self::verify`], checks the bundle's hash.
    pub fn open_entry<'r>(
        &self,
        r: &'r dyn ReadAt,
        entry: &BundleEntry,
    ) -> Result<EntryReader<'r>, BundleError> {
        let offset = self.offset;
        let inner: Box<dyn Read + Send + 'r> = match &self.form {
            Form::Plain => {
                let start = offset.saturating_add(entry.offset);
                Box::new(Cursor::new(r, start, entry.size))
            }
            Form::Compressed(header) => {
                let fail = |source| BundleError::Decompress { offset, source };
                let mut stream = header.decoder(r, offset).map_err(fail)?;
                if entry.size > 0 {
                    skip(&mut stream, entry.offset).map_err(fail)?;
                }
                stream
            }
        };
        Ok(EntryReader { inner, left: entry.size })
    }

    /// Gives each entry with content, in the order of their offsets, to `each`, which need not read
    /// all of it. A compressed bundle is decompressed once, whole, and its size and hash are checked
    /// when `each` has seen all entries: what was extracted is only good when this returns `Ok`.
    pub fn for_each_entry<E: From<BundleError>>(
        &self,
        r: &dyn ReadAt,
        mut each: impl FnMut(&BundleEntry, &mut dyn Read) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut entries: Vec<_> = self.entries.iter().filter(|e| e.size > 0).collect();
        entries.sort_by_key(|e| e.offset);
        let Form::Compressed(header) = &self.form else {
            for entry in entries {
                each(entry, &mut self.open_entry(r, entry)?)?;
            }
            return Ok(());
        };
        let fail = |source| BundleError::Decompress { offset: self.offset, source };
        let inner = header.decoder(r, self.offset).map_err(fail)?;
        let claimed = header.uncompressed_size;
        let md5 = Hashing::new(claimed);
        let mut stream = HashingReader { inner, md5, position: 0, limit: claimed };
        for entry in entries {
            let gap = entry.offset.saturating_sub(stream.position);
            skip(&mut stream, gap).map_err(fail)?;
            let mut reader = EntryReader { inner: Box::new(&mut stream), left: entry.size };
            each(entry, &mut reader)?;
            let left = reader.left;
            drop(reader);
            skip(&mut stream, left).map_err(fail)?;
        }
        // One byte past the claim is read, so that both too much and too little are seen.
        io::copy(&mut stream, &mut io::sink()).map_err(fail)?;
        if stream.position != claimed {
            return Err(BundleError::ActualSize { claimed, actual: stream.position }.into());
        }
        let mut found = [0; 8];
        found.copy_from_slice(&stream.md5.finish()[..8]);
        if found != header.hash {
            return Err(BundleError::Hash { found, expected: header.hash }.into());
        }
        Ok(())
    }

    /// Reads all of the bundle; for a compressed one that checks its stream, size and hash.
    pub fn verify(&self, r: &dyn ReadAt) -> Result<(), BundleError> {
        self.for_each_entry(r, |entry, stream| {
            let offset = self.offset.saturating_add(entry.offset);
            let fail = |source| BundleError::Io { offset, source };
            io::copy(stream, &mut io::sink()).map(|_| ()).map_err(fail)
        })
    }
}

/// Reads exactly `n` bytes away.
fn skip(stream: &mut dyn Read, n: u64) -> io::Result<()> {
    if io::copy(&mut stream.take(n), &mut io::sink())? == n {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// The bytes of one entry; made by [`Bundle::open_entry`]. Fails with `UnexpectedEof` where the
/// bundle has less than the entry's size.
pub struct EntryReader<'r> {
    inner: Box<dyn Read + Send + 'r>,
    left: u64,
}

impl Read for EntryReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        if len == 0 {
            return Ok(0);
        }
        let n = self.inner.read(&mut buf[..len])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= n as u64;
        Ok(n)
    }
}

/// Hashes what passes, up to one byte after the claimed size.
struct HashingReader<'r> {
    inner: Box<dyn Read + Send + 'r>,
    md5: Hashing,
    position: u64,
    limit: u64,
}

impl Read for HashingReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.limit.saturating_add(1).saturating_sub(self.position);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let n = self.inner.read(&mut buf[..len])?;
        self.md5.update(&buf[..n]);
        self.position += n as u64;
        Ok(n)
    }
}

/// The parsed and checked head of an uncompressed bundle.
struct Table {
    entries: Vec<BundleEntry>,
    /// Where the last content ends, from the bundle's start.
    content_end: u64,
}

impl Table {
    /// Reads the table from a stream that begins at the bundle's start; `limit` is the most that the
    /// bundle can have.
    fn read(stream: &mut dyn Read, limit: u64) -> Result<Self, BundleError> {
        let mut fields = Fields { stream, position: 0, limit };
        let magic = fields.bytes("bundle magic", 24)?;
        if magic != MAGIC {
            return Err(BundleError::Magic { offset: 0, found: magic });
        }
        let count = fields.u64("entry count")?;
        if count > MAX_ENTRIES {
            return Err(BundleError::Count { found: count });
        }
        let mut entries = Vec::new();
        for entry in 0..usize::try_from(count).unwrap_or(usize::MAX) {
            let offset = fields.u64("entry offset")?;
            let size = fields.u64("entry size")?;
            let id_len = fields.u64("entry id length")?;
            if id_len > MAX_ID_LEN {
                return Err(BundleError::IdLength { entry, found: id_len });
            }
            let id = fields.bytes("entry id", id_len)?;
            let id = String::from_utf8(id).map_err(|error| BundleError::Id {
                entry,
                id: String::from_utf8_lossy(error.as_bytes()).into_owned(),
            })?;
            let target = target_of(entry, &id)?;
            entries.push(BundleEntry { id, target, offset, size });
        }
        let content_end = check(&entries, fields.position, limit)?;
        Ok(Self { entries, content_end })
    }
}

/// Checks the entries' ranges and targets; gives the end of the last one.
fn check(entries: &[BundleEntry], table_end: u64, limit: u64) -> Result<u64, BundleError> {
    let mut targets = BTreeSet::new();
    let mut content_end = table_end;
    for (i, entry) in entries.iter().enumerate() {
        if let Some(target) = &entry.target
            && !targets.insert(target)
        {
            return Err(BundleError::Duplicate { target: target.clone() });
        }
        // The offset of an entry without content is of no use, and not always sensible.
        if entry.size == 0 {
            continue;
        }
        let &BundleEntry { offset, size, .. } = entry;
        let end = offset.checked_add(size).filter(|&end| end <= limit);
        let end = end.ok_or(BundleError::EntryRange { entry: i, offset, size, limit })?;
        if offset < table_end {
            return Err(BundleError::EntryInTable { entry: i, offset, table_end });
        }
        content_end = content_end.max(end);
    }
    let mut by_offset: Vec<_> = entries.iter().filter(|e| e.size > 0).collect();
    by_offset.sort_by_key(|e| e.offset);
    for pair in by_offset.windows(2) {
        if let [a, b] = pair
            && a.offset.saturating_add(a.size) > b.offset
        {
            let (first, second) = (a.id.clone(), b.id.clone());
            return Err(BundleError::Overlap { first, second, offset: b.offset });
        }
    }
    Ok(content_end)
}

/// The target of an entry id: what follows the triple's fourth component, `None` for the host.
fn target_of(entry: usize, id: &str) -> Result<Option<TargetId>, BundleError> {
    let bad = || BundleError::Id { entry, id: id.to_owned() };
    let mut rest = id;
    let mut part = || -> Option<&str> {
        let (part, after) = rest.split_once('-')?;
        rest = after;
        Some(part)
    };
    let kind = part().ok_or_else(bad)?;
    if kind == "host" {
        return Ok(None);
    }
    if part() != Some("amdgcn") || part() != Some("amd") || part() != Some("amdhsa") {
        return Err(bad());
    }
    // Older tools write a triple of three components; no environment begins so.
    if !rest.starts_with("gfx") {
        rest = rest.split_once('-').ok_or_else(bad)?.1;
    }
    let fail = |source| BundleError::Target { entry, id: id.to_owned(), source };
    rest.parse().map(Some).map_err(fail)
}

/// Reads little-endian fields off a stream and knows where it is.
struct Fields<'a> {
    stream: &'a mut dyn Read,
    position: u64,
    limit: u64,
}

impl Fields<'_> {
    /// `len` bytes; the caller has checked that it is small.
    fn bytes(&mut self, field: &'static str, len: u64) -> Result<Vec<u8>, BundleError> {
        let offset = self.position;
        let available = self.limit.saturating_sub(offset);
        let truncated = BundleError::Truncated { offset, field, available };
        if available < len {
            return Err(truncated);
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
        self.stream.read_exact(&mut bytes).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => truncated,
            _ => BundleError::Io { offset, source },
        })?;
        self.position += len;
        Ok(bytes)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, BundleError> {
        let mut value = [0; 8];
        value.copy_from_slice(&self.bytes(field, 8)?);
        Ok(u64::from_le_bytes(value))
    }
}

#[cfg(test)]
mod tests {
    use md5::{Digest, Md5};

    use super::*;

    /// A bundle with those entries: id, offset, size.
    fn table(entries: &[(&str, u64, u64)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((entries.len() as u64).to_le_bytes());
        for (id, offset, size) in entries {
            for field in [*offset, *size, id.len() as u64] {
                bytes.extend(field.to_le_bytes());
            }
            bytes.extend(id.as_bytes());
        }
        bytes
    }

    const HOST: &str = "host-x86_64-unknown-linux-gnu-";
    const A: &str = "hipv4-amdgcn-amd-amdhsa--gfx1100";
    const B: &str = "hipv4-amdgcn-amd-amdhsa--gfx1101";

    /// Host, `gfx1100` with 100 bytes, `gfx1101` with 50: the second first.
    fn plain() -> Vec<u8> {
        let mut bytes = table(&[(HOST, 0, 0), (A, 400, 100), (B, 300, 50)]);
        bytes.resize(300, 0);
        bytes.extend([0xbb; 50]);
        bytes.resize(400, 0);
        bytes.extend([0xaa; 100]);
        bytes
    }

    fn compress(version: u16, method: u16, bundle: &[u8]) -> Vec<u8> {
        let payload = if method == 1 {
            zstd::encode_all(bundle, 3).unwrap()
        } else {
            let mut encoder = flate2::read::ZlibEncoder::new(bundle, flate2::Compression::new(6));
            let mut payload = Vec::new();
            encoder.read_to_end(&mut payload).unwrap();
            payload
        };
        header(version, method, payload, bundle.len() as u64, &Md5::digest(bundle)[..8])
    }

    fn header(version: u16, method: u16, payload: Vec<u8>, size: u64, hash: &[u8]) -> Vec<u8> {
        let mut bytes = ccob::MAGIC.to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(method.to_le_bytes());
        let small = |n: u64| u32::try_from(n).unwrap().to_le_bytes();
        let len = payload.len() as u64;
        match version {
            1 => bytes.extend(small(size)),
            2 => {
                bytes.extend(small(24 + len));
                bytes.extend(small(size));
            }
            _ => {
                bytes.extend((32 + len).to_le_bytes());
                bytes.extend(size.to_le_bytes());
            }
        }
        bytes.extend(hash);
        bytes.extend(payload);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Bundle, BundleError> {
        Bundle::read(&bytes, 0, bytes.len() as u64)
    }

    fn all(bundle: &Bundle, r: &dyn ReadAt) -> Result<Vec<(String, Vec<u8>)>, BundleError> {
        let mut found = Vec::new();
        bundle.for_each_entry::<BundleError>(r, |entry, stream| {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            found.push((entry.id.clone(), bytes));
            Ok(())
        })?;
        Ok(found)
    }

    /// Every form of `bundle`.
    fn forms(bundle: &[u8]) -> Vec<Vec<u8>> {
        let mut forms = vec![bundle.to_vec()];
        for version in 1..=3 {
            for method in 0..=1 {
                forms.push(compress(version, method, bundle));
            }
        }
        forms
    }

    #[test]
    fn every_form_gives_the_same_entries_wherever_it_begins() {
        for form in forms(&plain()) {
            let mut r = vec![0x55; 77];
            r.extend(&form);
            // What follows is another bundle, or padding, or garbage: none of it is ours.
            r.extend(MAGIC);
            r.extend([0; 100]);
            let bundle = Bundle::read(&r, 77, r.len() as u64).unwrap();
            assert_eq!(bundle.total_size, form.len() as u64, "{:?}", bundle.form);
            let targets: Vec<_> = bundle.device_entries().map(|(t, _)| t.to_string()).collect();
            assert_eq!(targets, ["gfx1100", "gfx1101"]);
            let in_order = [(B.to_owned(), vec![0xbb; 50]), (A.to_owned(), vec![0xaa; 100])];
            assert_eq!(all(&bundle, &r).unwrap(), in_order);
            for (id, content) in in_order {
                let entry = bundle.entries.iter().find(|e| e.id == id).unwrap();
                let mut bytes = Vec::new();
                bundle.open_entry(&r, entry).unwrap().read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes, content);
            }
            bundle.verify(&r).unwrap();
        }
    }

    #[test]
    fn a_bundle_must_end_before_the_limit() {
        for form in forms(&plain()) {
            for cut in 0..form.len() {
                // Both by the file's end and by the limit.
                assert!(read(&form[..cut]).is_err(), "{cut}");
                assert!(Bundle::read(&form, 0, cut as u64).is_err(), "{cut}");
            }
        }
        assert!(Bundle::read(&plain(), u64::MAX, u64::MAX).is_err());
    }

    #[test]
    fn no_flipped_bit_panics_or_changes_what_comes_out_of_a_compressed_bundle() {
        for form in forms(&plain()) {
            for at in 0..form.len() * 8 {
                let mut bad = form.clone();
                bad[at / 8] ^= 1 << (at % 8);
                let Ok(bundle) = read(&bad) else { continue };
                let Ok(()) = bundle.verify(&bad) else { continue };
                // Some bits of a stream do not matter: hints, an unused one, a match that can be
                // found at two places.
                let good = read(&form).unwrap();
                let same = || all(&bundle, &bad).unwrap() == all(&good, &form).unwrap();
                assert!(form.starts_with(MAGIC) || same(), "{:?} {}", &form[..8], at / 8);
            }
        }
    }

    #[test]
    fn ids_give_targets() {
        for (id, target) in [
            (HOST, None),
            ("host-x86_64-unknown-linux-", None),
            ("host-x86_64-unknown-linux--", None),
            (A, Some("gfx1100")),
            ("hip-amdgcn-amd-amdhsa--gfx90a:xnack+", Some("gfx90a:xnack+")),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", Some("gfx90a:sramecc+:xnack-")),
            ("hipv4-amdgcn-amd-amdhsa-unknown-gfx11-generic", Some("gfx11-generic")),
            ("hipv4-amdgcn-amd-amdhsa--gfx9-4-generic:xnack-", Some("gfx9-4-generic:xnack-")),
            ("hip-amdgcn-amd-amdhsa-gfx906", Some("gfx906")),
            ("hip-amdgcn-amd-amdhsa-gfx11-generic", Some("gfx11-generic")),
        ] {
            let found = target_of(0, id).unwrap();
            assert_eq!(found.map(|t| t.to_string()).as_deref(), target, "{id}");
        }
        for id in [
            "",
            "hipv4",
            "hipv4-amdgcn-amd-amdhsa-",
            "hip-spirv64-amd-amdhsa--amdgcnspirv",
            "hipv4-amdgcn-amd-amdhsa--",
            "hipv4-amdgcn-amd-amdhsa--sm_70",
        ] {
            assert!(target_of(0, id).is_err(), "{id}");
        }
    }

    #[test]
    fn lies_in_the_table_are_told() {
        let lie = |at: usize, value: u64| {
            let mut bytes = plain();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            read(&bytes).unwrap_err()
        };
        let entry = 32 + 24 + HOST.len();
        assert!(matches!(lie(24, 1 << 60), BundleError::Count { .. }));
        // The first content is taken for more entries.
        assert!(matches!(lie(24, 4000), BundleError::Id { entry: 3, .. }));
        assert!(matches!(lie(entry + 16, 1 << 60), BundleError::IdLength { entry: 1, .. }));
        assert!(matches!(lie(entry, 0x5000), BundleError::EntryRange { entry: 1, .. }));
        assert!(matches!(lie(entry, u64::MAX), BundleError::EntryRange { .. }));
        assert!(matches!(lie(entry + 8, u64::MAX), BundleError::EntryRange { .. }));
        assert!(matches!(lie(entry, 24), BundleError::EntryInTable { .. }));
        assert!(matches!(lie(entry, 310), BundleError::Overlap { .. }));
        let twice = table(&[(A, 0, 0), ("hip-amdgcn-amd-amdhsa--gfx1100", 0, 0)]);
        assert!(matches!(read(&twice), Err(BundleError::Duplicate { .. })));
        let text = lie(entry, 0x5000).to_string();
        assert_eq!(text, "bundle entry 1 has 0x64 bytes at 0x5000, but the bundle has 0x1f4 bytes");
    }

    #[test]
    fn an_entry_can_be_empty() {
        let bytes = table(&[(HOST, 4096, 0), (A, 4096, 0)]);
        let bundle = read(&bytes).unwrap();
        assert_eq!(bundle.total_size, bytes.len() as u64);
        assert_eq!(all(&bundle, &bytes).unwrap(), []);
        let mut nothing = Vec::new();
        let entry = bundle.entry(&"gfx1100".parse().unwrap()).unwrap();
        bundle.open_entry(&bytes, entry).unwrap().read_to_end(&mut nothing).unwrap();
        assert!(nothing.is_empty());
    }

    #[test]
    fn a_kilobyte_does_not_become_a_terabyte() {
        let form = compress(3, 1, &plain());
        let lie = header(3, 1, form[32..].to_vec(), 1 << 40, &form[24..32]);
        assert!(matches!(read(&lie), Err(BundleError::ClaimedSize { .. })));
        // A bomb: the claim is possible, but more comes out than it says.
        let mut bomb = plain();
        bomb.resize(50 << 20, 0);
        let payload = zstd::encode_all(bomb.as_slice(), 3).unwrap();
        let lie = header(2, 1, payload, 500, &[0; 8]);
        let bundle = read(&lie).unwrap();
        let error = bundle.verify(&lie).unwrap_err();
        assert!(matches!(error, BundleError::ActualSize { claimed: 500, actual: 501 }), "{error}");
        let payload = compress(1, 0, &bomb)[20..].to_vec();
        let error = read(&header(1, 0, payload, 500, &[0; 8])).unwrap_err();
        assert!(matches!(error, BundleError::ActualSize { claimed: 500, .. }), "{error}");
    }

    #[test]
    fn claims_of_a_compressed_bundle_are_checked() {
        let form = compress(2, 1, &plain());
        let with = |size: u64, hash: &[u8]| {
            let bytes = header(2, 1, form[24..].to_vec(), size, hash);
            read(&bytes).and_then(|bundle| bundle.verify(&bytes))
        };
        with(500, &form[16..24]).unwrap();
        assert!(matches!(with(500, &[0; 8]), Err(BundleError::Hash { .. })));
        assert!(matches!(with(501, &form[16..24]), Err(BundleError::ActualSize { .. })));
        assert!(matches!(with(499, &form[16..24]), Err(BundleError::EntryRange { .. })));
        let mut bytes = form.clone();
        bytes[4] = 4;
        assert!(matches!(read(&bytes), Err(BundleError::Version { found: 4, .. })));
        bytes[4] = 2;
        bytes[6] = 2;
        assert!(matches!(read(&bytes), Err(BundleError::Method { found: 2, .. })));
    }

    #[test]
    fn an_entry_of_a_stream_that_ends_early_is_an_error_not_less() {
        // The stream holds the table and half of the first content.
        let payload = zstd::encode_all(&plain()[..325], 3).unwrap();
        let bytes = header(2, 1, payload, 500, &[0; 8]);
        let bundle = read(&bytes).unwrap();
        let entry = bundle.entry(&"gfx1101".parse().unwrap()).unwrap();
        let mut out = Vec::new();
        let error = bundle.open_entry(&bytes, entry).unwrap().read_to_end(&mut out).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(bundle.verify(&bytes).is_err());
    }
}
