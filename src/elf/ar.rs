//! Static archives (`ar`): whether an object file in one has device code.
//!
//! `!<arch>\n`, then members: a header of 60 bytes (size as ten decimal digits at 48, `` `\n `` at 58),
//! content, and a byte where the content is of odd length. BSD puts a long name (`#1/LENGTH`) before
//! the content. A thin archive (`!<thin>\n`) only names files, and has no code itself.

use super::{Kind, probe};
use crate::read_at::{ReadAt, Window};

/// What a static archive has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceCode {
    /// No device code, or it is no static archive.
    None,
    /// An object file with device code.
    Found,
    /// Damaged before any was found.
    Unknown,
}

/// Looks through the headers of the object files in a static archive.
pub fn device_code(r: &dyn ReadAt) -> DeviceCode {
    let mut magic = [0; 8];
    if r.read_exact_at(&mut magic, 0).is_err() || magic != *b"!<arch>\n" {
        return DeviceCode::None;
    }
    let mut at = 8;
    while at < r.len() {
        let Some((content, end)) = member(r, at) else { return DeviceCode::Unknown };
        match probe(&content) {
            Ok(Kind::Relocatable { fat: true }) => return DeviceCode::Found,
            Ok(_) => {}
            Err(_) => return DeviceCode::Unknown,
        }
        at = end;
    }
    DeviceCode::None
}

/// The content of the member whose header is at `at`, and where the next one begins.
fn member(r: &dyn ReadAt, at: u64) -> Option<(Window<&dyn ReadAt>, u64)> {
    let mut header = [0; 60];
    r.read_exact_at(&mut header, at).ok()?;
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.trim_end().parse::<u64>().ok();
    if header[58..] != *b"`\n" {
        return None;
    }
    let size = number(&header[48..58])?;
    let name = match header[..16].strip_prefix(b"#1/") {
        Some(length) => number(length)?,
        None => 0,
    };
    let content = Window::new(r, at + 60 + name, size.checked_sub(name)?)?;
    Some((content, at + 60 + size.next_multiple_of(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = b"!<arch>\n".to_vec();
        for (name, content) in members {
            let size = content.len();
            bytes.extend(
                format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).bytes(),
            );
            bytes.extend(*content);
            bytes.resize(bytes.len().next_multiple_of(2), b'\n');
        }
        bytes
    }

    #[test]
    fn members_are_walked() {
        let text = archive(&[("a.txt/", b"odd"), ("#1/4", b"nametext")]);
        assert_eq!(device_code(&text), DeviceCode::None);
        let (first, next) = member(&text, 8).unwrap();
        assert_eq!((first.len(), next), (3, 72));
        let (second, end) = member(&text, next).unwrap();
        let mut content = [0; 4];
        second.read_exact_at(&mut content, 0).unwrap();
        assert_eq!((content, end), (*b"text", text.len() as u64));
        assert_eq!(device_code(&b"!<thin>\nwhatever".to_vec()), DeviceCode::None);
        assert_eq!(device_code(&b"!<arc".to_vec()), DeviceCode::None);
    }

    #[test]
    fn damage_is_told() {
        let good = archive(&[("a.txt/", b"text")]);
        for (at, byte) in [(58 + 8, b'x'), (48 + 8, b'9'), (48 + 8, b'-'), (49 + 8, b'9')] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(device_code(&bad), DeviceCode::Unknown, "{at}");
        }
        assert_eq!(device_code(&good[..30].to_vec()), DeviceCode::Unknown);
        let long_name = archive(&[("#1/9", b"name")]);
        assert_eq!(device_code(&long_name), DeviceCode::Unknown);
        let elf = archive(&[("a.o/", b"\x7fELF\x02\x01 cut off")]);
        assert_eq!(device_code(&elf), DeviceCode::Unknown);
    }
}
