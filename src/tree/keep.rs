//! What is kept of an archive's member while it streams by, so that planning need not read it again.
//!
//! Of a file that is an offload bundle that is its entries: a kernel database has hundreds of them. Of a program or shared
//! library that is its headers, tables and data, without offload bundles (of
//! which the entries are kept) and without code. The bundles are found by their first bytes where a
//! page begins. All of this only saves memory and time: what planning needs and was not kept is read
//! from the archive again. When the member is over, planning's reads are tried, and nothing but what
//! they touched stays.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::input::{Kept, Ranges};
use crate::elf::{self, Needs, State};
use crate::fatbin::FatBinary;
use crate::fatbin::bundle::{Bundle, is_bundle};
use crate::read_at::ReadAt;

/// What is kept of a file that is no program: enough to tell what it is.
const HEAD: usize = 64;

/// Bundles begin on pages, in memory and so in the file.
const PAGE: u64 = 4096;

/// How much of a bundle is looked at for its table: a compressed one begins with a block of up to
/// 128 KiB.
const LOOK: u64 = 256 << 10;

/// How many names of kernels are kept of one member at most, 8 bytes each. What is not kept is read again.
const NAMES_MAX: usize = 4 << 20;

/// How much of it is looked at for the names of its kernels, which stand before the code, where the above has too little.
const LOOK_FOR_NAMES: u64 = 8 << 20;

/// What is held of one member at most while it streams by.
const HELD_MAX: u64 = 48 << 20;

/// Kept in any case: the beginning, and the end from a bit before the section headers on, where the
/// names of the sections are.
const FIRST: u64 = 64 << 10;
const LAST_MAX: u64 = 4 << 20;

/// What the relations of one member may take.
const NEEDS_MAX: u64 = 512 << 10;

/// A marker of common length, to try a conversion with.
const MARKER: usize = 256;

/// Goes through the `len` bytes that `read` gives (it fills as much as it can; 0 is the end).
pub(super) fn keep<E>(
    len: u64,
    read: &mut dyn FnMut(&mut [u8]) -> Result<usize, E>,
) -> Result<Kept, E> {
    let mut window = Sliding { read, bytes: Vec::new(), base: 0, len };
    window.go_to(0)?;
    let head = window.from(0);
    let mut ranges = Ranges::default();
    if !is_program(head) {
        ranges.push(0, &head[..head.len().min(HEAD)]);
        let mut bundles = BTreeMap::new();
        if is_bundle(head)
            && let Ok(bundle) = Bundle::read(&Part { base: 0, bytes: head, len }, 0, len)
        {
            bundles.insert(0, Arc::new(bundle));
        }
        window.go_to(len)?;
        return Ok(Kept { ranges: Mutex::new(ranges), bundles, needs: None });
    }
    let code = code_segments(head);
    let last = last_part(head, len);
    let mut bundles = BTreeMap::new();
    let mut names = 0;
    let mut at = 0;
    while at < len {
        window.go_to(at)?;
        let bytes = window.from(at);
        if at.is_multiple_of(PAGE) && is_bundle(bytes) {
            let part = Part { base: at, bytes, len };
            if let Ok(bundle) = Bundle::read(&part, at, len) {
                let end = at + bundle.total_size;
                if names < NAMES_MAX {
                    if !bundle.learn_kernel_names(&part) {
                        window.hold(at, LOOK_FOR_NAMES.min(bundle.total_size))?;
                    }
                    let part = Part { base: at, bytes: window.from(at), len };
                    names += bundle.kernel_names(&part).map_or(0, |names| names.hashes().len());
                }
                bundles.insert(at, Arc::new(bundle));
                if end > at {
                    at = end;
                    continue;
                }
            }
        }
        let bytes = window.from(at);
        let end = ((at / PAGE + 1) * PAGE).min(len);
        let certain = end <= FIRST || last.start < end;
        let wanted = certain
            || ranges.held() < HELD_MAX
                && !code.iter().any(|code| code.start <= at && end <= code.end);
        if wanted {
            ranges.push(at, &bytes[..usize::try_from(end - at).unwrap_or_default()]);
        }
        at = end;
    }
    Ok(trim(ranges, &bundles, len))
}

/// ELF64 x86-64, little-endian, `ET_EXEC` or `ET_DYN`.
fn is_program(head: &[u8]) -> bool {
    head.len() >= 64
        && head[..6] == *b"\x7fELF\x02\x01"
        && elf::u16_at(head, 18) == 62
        && matches!(elf::u16_at(head, 16), 2 | 3)
}

/// The executable segments that hold no headers, in the file.
fn code_segments(head: &[u8]) -> Vec<Range<u64>> {
    let (start, count) = (elf::u64_at(head, 32), usize::from(elf::u16_at(head, 56)));
    let table = usize::try_from(start).ok().and_then(|start| head.get(start..)).unwrap_or_default();
    let loads = table.chunks_exact(56).take(count.min(64)).filter(|header| {
        // PT_LOAD with PF_X, not from the file's start on.
        elf::u32_at(header, 0) == 1
            && elf::u32_at(header, 4) & 1 != 0
            && elf::u64_at(header, 8) != 0
    });
    loads
        .map(|header| {
            let offset = elf::u64_at(header, 8);
            offset..offset.saturating_add(elf::u64_at(header, 32))
        })
        .collect()
}

fn last_part(head: &[u8], len: u64) -> Range<u64> {
    let start = elf::u64_at(head, 40).saturating_sub(FIRST);
    if start < len && len - start <= LAST_MAX { start..len } else { len..len }
}

/// Leaves what planning reads.
fn trim(ranges: Ranges, bundles: &BTreeMap<u64, Arc<Bundle>>, len: u64) -> Kept {
    let recorder = Recorder { ranges, len, touched: Mutex::new(Vec::new()) };
    let needs = needs(&recorder);
    // Held instead of the tables that it was read from.
    recorder.touched.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let used = rehearse(&recorder, bundles);
    let mut touched = recorder.touched.into_inner().unwrap_or_else(PoisonError::into_inner);
    touched.sort_unstable();
    let mut kept = Ranges::default();
    let mut end = 0;
    for (from, to) in touched {
        let from = from.max(end);
        if from < to
            && let Ok(size) = usize::try_from(to - from)
            && let Some(bytes) = recorder.ranges.get(from, size)
        {
            kept.push(from, bytes);
            end = to;
        }
    }
    Kept { ranges: Mutex::new(kept), bundles: used, needs }
}

/// What the file asks of the loader. A file that claims to have more names than would fit into it many
/// times over is read again when somebody asks.
fn needs(recorder: &Recorder) -> Option<Arc<Needs>> {
    let elf::Kind::Program(image) = elf::probe(recorder).ok()? else { return None };
    let needs = Needs::read(recorder, &image).ok()?;
    let most = (recorder.len / 4 + 2048).min(NEEDS_MAX);
    (needs.weight() as u64 <= most).then(|| Arc::new(needs))
}

/// Reads what planning reads; returns the bundles that are in use. Where the file is damaged, or has
/// more than was held, planning will see that again.
fn rehearse(
    recorder: &Recorder,
    bundles: &BTreeMap<u64, Arc<Bundle>>,
) -> BTreeMap<u64, Arc<Bundle>> {
    if let Ok(elf::Kind::Program(image)) = elf::probe(recorder)
        && image.state() == State::Fat
        && let Ok(fat) = FatBinary::read_with(recorder, image, bundles)
    {
        let _ = fat.convert(recorder, &[0; MARKER]);
        return fat.bundles().clone();
    }
    BTreeMap::new()
}

/// A reader of what is held that notes what was read.
struct Recorder {
    ranges: Ranges,
    len: u64,
    touched: Mutex<Vec<(u64, u64)>>,
}

impl ReadAt for Recorder {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.ranges.get(offset, buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        touched.push((offset, offset + buf.len() as u64));
        Ok(())
    }
}

/// A stretch of a file in memory, at its place.
pub(super) struct Part<B> {
    /// Where it begins.
    pub base: u64,
    /// Its bytes.
    pub bytes: B,
    /// Length of the file.
    pub len: u64,
}

impl<B: ReadAt> ReadAt for Part<B> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let offset = offset.checked_sub(self.base).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.bytes.read_exact_at(buf, offset)
    }
}

/// A part of a stream in memory that moves forward.
struct Sliding<'a, E> {
    read: &'a mut dyn FnMut(&mut [u8]) -> Result<usize, E>,
    bytes: Vec<u8>,
    base: u64,
    len: u64,
}

impl<E> Sliding<'_, E> {
    /// Makes it hold at least [`LOOK`] bytes from `at` on, or all that are left.
    fn go_to(&mut self, at: u64) -> Result<(), E> {
        self.hold(at, LOOK)
    }

    /// Makes it hold at least that many bytes from `at` on, or all that are left.
    fn hold(&mut self, at: u64, least: u64) -> Result<(), E> {
        let wanted = at.saturating_add(least).min(self.len);
        if self.base + self.bytes.len() as u64 >= wanted && at >= self.base {
            return Ok(());
        }
        let gone = usize::try_from(at - self.base).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes.drain(..gone);
        self.base += gone as u64;
        let mut buffer = vec![0; 256 << 10];
        while self.base < at {
            let n = usize::try_from(at - self.base).unwrap_or(usize::MAX).min(buffer.len());
            let n = (self.read)(&mut buffer[..n])?;
            if n == 0 {
                return Ok(());
            }
            self.base += n as u64;
        }
        let most = (4 * LOOK).max(least).min(self.len - at);
        let most = usize::try_from(most).unwrap_or_default();
        let mut held = self.bytes.len();
        self.bytes.resize(most.max(held), 0);
        while held < most {
            let n = (self.read)(&mut self.bytes[held..])?;
            if n == 0 {
                break;
            }
            held += n;
        }
        self.bytes.truncate(held);
        Ok(())
    }

    fn from(&self, at: u64) -> &[u8] {
        let from = usize::try_from(at - self.base).unwrap_or_default();
        self.bytes.get(from..).unwrap_or_default()
    }
}
