//! Texts in XML.

/// Makes a text fit for XML, as createrepo_c does: bytes that are not UTF-8 are read as Latin-1 without its
/// control characters (0x80 to 0x9f) and signs up to 0xbf; characters that XML has not are dropped.
pub(super) fn clean(bytes: &[u8]) -> String {
    let good = |c: &char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(|c| good(&c)) => text.to_owned(),
        Ok(text) => text.chars().filter(good).collect(),
        Err(_) => {
            let latin = bytes.iter().filter(|byte| !matches!(byte, 0x80..=0xbf));
            latin.map(|byte| char::from(*byte)).filter(good).collect()
        }
    }
}

/// Appends a text as the content of an element.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    escape(out, text, |byte| matches!(byte, b'&' | b'<' | b'>' | b'\r'));
}

/// Appends ` NAME="VALUE"`.
pub(super) fn attribute(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(b' ');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    // A reader takes tabs and ends of lines for blanks otherwise.
    escape(out, value, |byte| matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\t' | b'\n' | b'\r'));
    out.push(b'"');
}

/// Appends `<NAME>TEXT</NAME>` on a line of its own.
pub(super) fn element(out: &mut Vec<u8>, indent: usize, name: &str, content: &str) {
    out.extend(std::iter::repeat_n(b' ', indent));
    out.push(b'<');
    out.extend_from_slice(name.as_bytes());
    if content.is_empty() {
        out.extend_from_slice(b"/>\n");
        return;
    }
    out.push(b'>');
    text(out, content);
    out.extend_from_slice(b"</");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b">\n");
}

fn escape(out: &mut Vec<u8>, text: &str, is_special: impl Fn(u8) -> bool) {
    let bytes = text.as_bytes();
    // Most texts have nothing of it, which is seen faster without leaving at the first.
    if !bytes.iter().fold(false, |any, byte| any | is_special(*byte)) {
        return out.extend_from_slice(bytes);
    }
    for byte in bytes {
        match byte {
            byte if !is_special(*byte) => out.push(*byte),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            byte => out.extend_from_slice(format!("&#{byte};").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_made_fit() {
        assert_eq!(clean("zażółć \t\r\n".as_bytes()), "zażółć \t\r\n");
        assert_eq!(clean(b"a\x01\x1fb\x7f"), "ab\u{7f}");
        assert_eq!(clean("ż\u{8}ó\u{fffe}\u{ffff}".as_bytes()), "żó");
        assert_eq!(clean(b"caf\xe9 \x93x\xa9"), "café x");
    }

    #[test]
    fn nothing_ends_its_place() {
        let mut out = Vec::new();
        attribute(&mut out, "name", "a\"b<&>'\n\t\r");
        element(&mut out, 2, "e", "]]><&\"\r\n");
        element(&mut out, 0, "e", "");
        let made = String::from_utf8(out).expect("UTF-8");
        let attribute = " name=\"a&quot;b&lt;&amp;&gt;'&#10;&#9;&#13;\"";
        assert_eq!(made, format!("{attribute}  <e>]]&gt;&lt;&amp;\"&#13;\n</e>\n<e/>\n"));
    }
}
