//! Converts one fat binary: `convert_elf INPUT OUTPUT [MARKER]`. The marker is plain text, for trials.

use gfxpack::elf::{self, Kind, Piece};
use gfxpack::fatbin::wrapper;
use gfxpack::read_at::{Cursor, OpenFile};
use std::fs::File;
use std::io::{self, BufWriter, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let (input, output) = match args.as_slice() {
        [_, input, output, ..] => (input, output),
        _ => return Err("usage: convert_elf INPUT OUTPUT [MARKER]".into()),
    };
    let marker = args.get(3).map_or("\u{81}", |m| m.as_str());
    let file = File::open(input)?;
    let metadata = file.metadata()?;
    let r = OpenFile::new(file, metadata.len());
    let Kind::Program(image) = elf::probe(&r)? else { return Err("not a program".into()) };
    let wrappers = wrapper::read(&r, &image)?;
    let converted = elf::convert(&r, &image, &wrappers, marker.as_bytes())?;
    let mut out = BufWriter::new(File::create(output)?);
    for piece in &converted.pieces {
        match piece {
            Piece::Bytes(bytes) => out.write_all(bytes)?,
            Piece::Input { offset, len } => {
                io::copy(&mut Cursor::new(&r, *offset, *len), &mut out)?;
            }
        }
    }
    out.flush()?;
    std::fs::set_permissions(output, metadata.permissions())?;
    println!(
        "{} wrappers, marker at {:#x}, {} -> {} bytes, {} removed",
        wrappers.len(),
        converted.marker_vaddr,
        metadata.len(),
        converted.len,
        converted.removed
    );
    let file = File::open(output)?;
    let len = file.metadata()?.len();
    let r = OpenFile::new(file, len);
    let image = elf::Image::read(&r)?;
    for problem in elf::problems(&r, &image) {
        println!("problem: {problem}");
    }
    if elf::marker(&r, &image)?.bytes != marker.as_bytes() {
        println!("problem: another marker");
    }
    Ok(())
}
