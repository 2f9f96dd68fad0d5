//! A server of files on loopback, as small as can be: what it sends is what a file held at one moment.

// Each test crate uses some of this; the lints do not see that helpers of tests are tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// Serves a directory until the tests end.
pub struct Server {
    url: String,
}

impl Server {
    pub fn new(dir: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let dir = Arc::new(dir.to_owned());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let dir = Arc::clone(&dir);
                // A client that goes away is no fault.
                thread::spawn(move || answer(&dir, &stream));
            }
        });
        Self { url }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// `%2b` as `+`.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                out.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => out.extend_from_slice(part.as_bytes()),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn answer(dir: &Path, stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut out = stream;
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut tag = String::new();
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_lowercase().strip_prefix("if-none-match:") {
                value.trim().clone_into(&mut tag);
            }
        }
        let path = request.split(' ').nth(1).unwrap_or_default().split('?').next();
        let path = decoded(path.unwrap_or_default());
        let place: PathBuf = dir.join(path.trim_start_matches('/'));
        let found = fs::File::open(&place).and_then(|mut file| {
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(io::ErrorKind::NotFound.into());
            }
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut file, &mut bytes)?;
            Ok((bytes, format!("\"{:x}-{:x}\"", metadata.ino(), metadata.len())))
        });
        let (status, bytes, etag) = match found {
            Ok((_, etag)) if etag == tag => ("304 Not Modified", Vec::new(), etag),
            Ok((bytes, etag)) => ("200 OK", bytes, etag),
            Err(_) => ("404 Not Found", Vec::new(), "\"\"".to_owned()),
        };
        let body = if request.starts_with("HEAD ") { &[] } else { bytes.as_slice() };
        write!(
            out,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: {etag}\r\n\r\n",
            bytes.len()
        )?;
        out.write_all(body)?;
        out.flush()?;
    }
}
