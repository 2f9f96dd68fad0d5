//! Texts with a signature around them, as apt's `InRelease`.
//!
//! ```text
//! -----BEGIN PGP SIGNED MESSAGE-----
//! Hash: SHA256
//!
//! the text; a line that begins with `-` has `- ` put before it
//! -----BEGIN PGP SIGNATURE-----
//! …
//! -----END PGP SIGNATURE-----
//! ```
//! What is signed is the text without what was put before lines, without spaces and tabs at the ends of
//! lines, with CR LF between lines, and without the end of its last line. Source: RFC 9580, section 7.

use super::MAX_SIGNATURE;
use crate::error::Error;

const MESSAGE: &[u8] = b"-----BEGIN PGP SIGNED MESSAGE-----";
const SIGNATURE: &[u8] = b"-----BEGIN PGP SIGNATURE-----";
const END: &[u8] = b"-----END PGP SIGNATURE-----";

/// More than any index of a repository has that is signed this way.
const MAX_TEXT: usize = 64 << 20;
/// gpg cuts longer lines off, and then calls the signature bad (`MAX_LINELEN`, less what it adds).
const MAX_LINE: usize = 19_000;

/// A text in the two forms it takes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// With LF at the end of each line: what a reader gets.
    pub(super) plain: Vec<u8>,
    /// What is signed.
    pub(super) canonical: Vec<u8>,
}

impl Text {
    /// The error says which line cannot be signed, and why.
    pub(super) fn new(text: &[u8]) -> Result<Self, Error> {
        let bad = |what: String| {
            Error::failed(what).hint("only a text can be signed in clear: sign it detached")
        };
        if text.len() > MAX_TEXT {
            return Err(bad(format!("the text has more than {MAX_TEXT} bytes")));
        }
        let mut lines = Vec::new();
        for (i, line) in lines_of(text).enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(byte) = line.iter().find(|byte| matches!(byte, 0 | b'\r')) {
                return Err(bad(format!("line {} of the text has a byte {byte:#04x}", i + 1)));
            }
            if line.len() > MAX_LINE {
                let (line, n) = (i + 1, line.len());
                return Err(bad(format!(
                    "line {line} of the text has {n} bytes, and gpg reads {MAX_LINE} at most"
                )));
            }
            lines.push(trimmed(line));
        }
        Ok(Self::of(&lines))
    }

    fn of(lines: &[&[u8]]) -> Self {
        let mut plain = Vec::new();
        for line in lines {
            plain.extend_from_slice(line);
            plain.push(b'\n');
        }
        Self { plain, canonical: lines.join(&b"\r\n"[..]) }
    }

    /// The text between its lines, with the signature.
    pub(super) fn with(&self, hash: &str, armored_signature: &[u8]) -> Vec<u8> {
        let mut out = [MESSAGE, b"\nHash: ", hash.as_bytes(), b"\n\n"].concat();
        for line in lines_of(&self.plain) {
            if line.starts_with(b"-") {
                out.extend_from_slice(b"- ");
            }
            out.extend_from_slice(line);
            out.push(b'\n');
        }
        if self.plain.is_empty() {
            out.push(b'\n');
        }
        out.extend_from_slice(armored_signature);
        out
    }
}

/// Takes a signed message apart: the text, and the armored signatures. As strict as apt: nothing may
/// stand before, between or after the parts, so that nobody takes for signed what is not.
pub(super) fn parse(message: &[u8]) -> Result<(Text, Vec<u8>), String> {
    if message.len() > MAX_TEXT + MAX_SIGNATURE {
        return Err(format!("it has more than {} bytes", MAX_TEXT + MAX_SIGNATURE));
    }
    let mut lines = lines_of(message).map(|line| trimmed(line.strip_suffix(b"\r").unwrap_or(line)));
    if lines.next() != Some(MESSAGE) {
        return Err("its first line does not begin a signed message".to_owned());
    }
    loop {
        match lines.next() {
            Some(b"") => break,
            Some(header) if header.starts_with(b"Hash:") => {}
            Some(_) => return Err("a header other than `Hash` stands before the text".to_owned()),
            None => return Err("it ends before the text".to_owned()),
        }
    }
    let mut text = Vec::new();
    loop {
        match lines.next() {
            Some(line) if line == SIGNATURE => break,
            // A line of `- ` and nothing has lost its space to the trimming.
            Some(b"-") => text.push(&b""[..]),
            Some(line) => match line.strip_prefix(b"- ") {
                Some(escaped) => text.push(escaped),
                None if line.starts_with(b"-") => {
                    return Err("a line of the text begins with `-`, and is not escaped".to_owned());
                }
                None => text.push(line),
            },
            None => return Err("there is no signature after the text".to_owned()),
        }
    }
    let mut armor = [SIGNATURE, b"\n"].concat();
    loop {
        let Some(line) = lines.next() else {
            return Err("the signature has no end".to_owned());
        };
        armor.extend_from_slice(line);
        armor.push(b'\n');
        if line == END {
            break;
        }
    }
    if lines.any(|line| !line.is_empty()) {
        return Err("something stands after the signature".to_owned());
    }
    Ok((Text::of(&text), armor))
}

/// The lines without their LF. An LF at the end begins no further line.
fn lines_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.iter().position(|&byte| byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        rest = end.map_or(&[], |end| &rest[end + 1..]);
        Some(line)
    })
}

fn trimmed(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |at| at + 1);
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: &str) -> (String, String) {
        let text = Text::new(of.as_bytes()).expect("a text");
        let string = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (string(text.plain), string(text.canonical))
    }

    #[test]
    fn what_is_signed_has_one_form() {
        let canonical = ("a\n\n- b\n".to_owned(), "a\r\n\r\n- b".to_owned());
        for given in
            ["a\n\n- b\n", "a\n\n- b", "a\r\n\r\n- b\r\n", "a \t\n\t\n- b  ", "a \r\n\n- b"]
        {
            assert_eq!(text(given), canonical, "{given:?}");
        }
        assert_eq!(text("a\n\n"), ("a\n\n".to_owned(), "a\r\n".to_owned()));
        assert_eq!(text(""), (String::new(), String::new()));
        assert_eq!(text("\n").1, "");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let long = "x".repeat(MAX_LINE + 1);
        for (given, what) in [
            ("a\nb\rc\n", "line 2 of the text has a byte 0x0d"),
            ("a\0", "line 1 of the text has a byte 0x00"),
            (&long, "line 1 of the text has 19001 bytes"),
        ] {
            let error = Text::new(given.as_bytes()).expect_err("no text").to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_message_is_read_back_and_nothing_is_smuggled_in() {
        let armor = b"-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n";
        for given in ["a\n-b\n- c\n-----BEGIN PGP SIGNATURE-----\n\n- \n", "", "\n", "\n\n"] {
            let text = Text::new(given.as_bytes()).expect("a text");
            let message = text.with("SHA256", armor);
            let (read, signature) = parse(&message).expect("a message");
            assert_eq!(
                (&read.canonical, &signature[..]),
                (&text.canonical, &armor[..]),
                "{given:?}"
            );
            let windows: Vec<u8> =
                message.split(|b| *b == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..]);
            assert_eq!(parse(&windows).expect("a message").0, read, "{given:?}");
            for changed in [
                [b"x\n", &message[..]].concat(),
                [&message[..], b"x\n"].concat(),
                message[..message.len() - 5].to_vec(),
                String::from_utf8_lossy(&message)
                    .replacen("SHA256", "SHA256\nVersion: 1", 1)
                    .into(),
            ] {
                parse(&changed).expect_err("something was added");
            }
        }
        let unescaped = b"-----BEGIN PGP SIGNED MESSAGE-----\n\n--x\n";
        parse(&[&unescaped[..], armor].concat()).expect_err("`--x` is not escaped");
    }
}
