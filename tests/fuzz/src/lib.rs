//! What the targets share: a bound on the memory of one run, and a file to put an input into.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what Rust code holds. What the compressors in C hold is bounded by `-rss_limit_mb` alone.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(by: usize) {
    let live = LIVE.fetch_add(by, Ordering::Relaxed) + by;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `f`, which may not hold more than `fixed` bytes and `times` as many as the input has. serde
/// gives a MessagePack array that claims to be long a mebibyte in advance.
pub fn bounded<T>(input: &[u8], fixed: usize, times: usize, f: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = f();
    let held = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let most = fixed + times * input.len();
    assert!(
        held <= most,
        "{held} bytes were held for an input of {}, at most {most} may",
        input.len()
    );
    result
}

/// A file with these bytes, in the temporary directory, which `run.sh` makes one in memory; the next
/// call overwrites it.
pub fn file(bytes: &[u8]) -> PathBuf {
    named_file("", bytes)
}

/// The same, with a name that ends so.
pub fn named_file(ending: &str, bytes: &[u8]) -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        std::env::temp_dir().join(format!("gfxpack-fuzz-{}{ending}", std::process::id()))
    });
    File::create(path).and_then(|mut file| file.write_all(bytes)).expect("the file can be written");
    path.clone()
}

/// Goes from header to header of a tar as a reader does, and writes the checksum of each, which no
/// mutation could put right.
pub fn fix_sums(tar: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = tar.get_mut(at..at + 512) {
        if header.iter().all(|&b| b == 0) {
            return;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = &header[124..136];
        let size = if size[0] & 0x80 != 0 {
            size[4..].iter().fold(0u64, |n, &b| n << 8 | u64::from(b))
        } else {
            let text = String::from_utf8_lossy(size);
            u64::from_str_radix(text.trim_matches([' ', '\0']), 8).unwrap_or(0)
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(tar.len());
        at += 512 + size.next_multiple_of(512);
    }
}

/// A tar of one file.
pub fn one_file(name: &str, content: &[u8]) -> Vec<u8> {
    let mut tar = vec![0; 512];
    tar[..name.len()].copy_from_slice(name.as_bytes());
    tar[100..108].copy_from_slice(b"0000644\0");
    tar[108..116].copy_from_slice(b"0000000\0");
    tar[116..124].copy_from_slice(b"0000000\0");
    tar[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    tar[136..148].copy_from_slice(b"00000000000\0");
    tar[156] = b'0';
    tar[257..265].copy_from_slice(b"ustar\x0000");
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    fix_sums(&mut tar);
    tar
}
