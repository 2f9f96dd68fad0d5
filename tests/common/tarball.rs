//! Members of tar archives, byte by byte: what no tar would write.

// Each test crate uses some of this; the lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

pub fn octal(field: &mut [u8], value: u64) {
    let text = format!("{value:0width$o}", width = field.len() - 1);
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// A header with a right checksum, changed by `change` before that.
pub fn header(name: &[u8], kind: u8, size: u64, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    octal(&mut block[100..108], 0o644);
    octal(&mut block[124..136], size);
    octal(&mut block[136..148], 1_700_000_000);
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    change(&mut block);
    block[148..156].fill(b' ');
    let sum = block.iter().map(|&b| u64::from(b)).sum();
    octal(&mut block[148..155], sum);
    block[155] = b' ';
    block
}

pub fn member(name: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, content.len() as u64, |_| {});
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

pub fn link(name: &[u8], kind: u8, target: &[u8]) -> Vec<u8> {
    header(name, kind, 0, |block| block[157..157 + target.len()].copy_from_slice(target))
}

/// PAX records for the next member.
pub fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let mut len = rest.len() + 1;
        while rest.len() + len.to_string().len() != len {
            len += 1;
        }
        text.extend(format!("{len}{rest}").bytes());
    }
    member(b"pax", b'x', &text)
}
