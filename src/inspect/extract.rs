//! Taking code objects out of a kpack archive, a fat binary or an offload bundle, into files.
//!
//! File names are made of kernel name, index and ISA so that no two are the same and none leaves the
//! output directory: `math-libs/BLAS/rocBLAS/stage/lib/librocblas.so.5#0` for gfx1100 becomes
//! `lib+librocblas.so.5#0.gfx1100.co`. What precedes `/stage/`, the prefix in the build, is left out
//! unless two names would then be one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::GlobBuilder;
use serde::Serialize;

use super::{EM_AMDGPU, Input, Magic};
use crate::elf::{self, State};
use crate::error::{Error, Result};
use crate::fatbin::bundle::{Bundle, BundleError};
use crate::fatbin::code_object::{CodeObjectHeader, IsaCheck};
use crate::fatbin::{FatBinary, read_bundles};
use crate::kpack::reader::{Archive, Entry};
use crate::read_at::OpenFile;
use crate::streams;
use crate::target::TargetId;
use crate::tree::output::OutputDir;

/// What no file system takes is longer.
const MAX_FILE_NAME: usize = 255;
/// What is kept of a name that is too long; a digest of all of it follows.
const KEPT: usize = 160;

/// What to extract, and how.
#[derive(Debug, Default, Clone)]
pub struct ExtractOptions {
    /// Only code for these ISAs (a processor stands for its feature variants too); all where empty.
    pub isas: Vec<TargetId>,
    /// Only kernels whose name matches this glob, with `#index` or without; `*` takes slashes too.
    pub kernel: Option<String>,
    /// Replace an output directory that is there.
    pub force: bool,
}

/// What was extracted.
#[derive(Debug, Clone, Serialize)]
pub struct Extraction {
    /// From which file.
    pub path: PathBuf,
    /// Into which directory.
    pub output: PathBuf,
    /// The files, by name of the kernel, index and ISA.
    pub files: Vec<Extracted>,
}

/// One code object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Extracted {
    /// Its file's name.
    pub file: String,
    /// `{name}#{index}`: of a fat binary or bundle, the name is the file's.
    pub kernel: String,
    /// What it is filed under.
    pub isa: String,
    /// Its size in bytes.
    pub size: u64,
}

/// One code object that is to be extracted.
struct Wanted<T> {
    name: String,
    index: u32,
    isa: TargetId,
    size: u64,
    place: T,
}

/// Where a code object is in a bundle: the bundle's offset, the entry's place in the order of
/// offsets that [`Bundle::for_each_entry`] has is its own offset.
type InBundle = (u64, u64);

/// Extracts code objects from `path` into the directory `output`, all of them or none. Each is checked:
/// its frame or bundle, its ELF headers, and that it is for the ISA that it is filed under.
pub fn extract(path: &Path, output: &Path, options: &ExtractOptions) -> Result<Extraction> {
    let input = Input::open(path)?;
    let files = match input.magic()? {
        Magic::Kpack => from_kpack(&input, output, options)?,
        Magic::Bundle => {
            let bundles =
                read_bundles(&input.file).map_err(|e| input.damaged("offload bundle", e))?;
            let bundles: Vec<_> = (0..).zip(bundles.into_iter().map(Arc::new)).collect();
            from_bundles(&input, &bundles, output, options)?
        }
        Magic::Elf => {
            let bundles = bundles_of_program(&input)?;
            from_bundles(&input, &bundles, output, options)?
        }
        _ => {
            return Err(Error::failed("holds no code objects that can be extracted")
                .at(path)
                .hint("expected a .kpack archive, a fat binary or an offload bundle")
                .into());
        }
    };
    Ok(Extraction { path: path.to_owned(), output: output.to_owned(), files })
}

/// The bundle of each wrapper.
fn bundles_of_program(input: &Input) -> Result<Vec<(u32, Arc<Bundle>)>, Error> {
    let none = |what: &str, hint: &str| Err(Error::failed(what).at(&input.path).hint(hint));
    match elf::probe(&input.file).map_err(|e| input.damaged("ELF file", e))? {
        elf::Kind::Program(image) => match image.state() {
            State::Fat => {
                let fat = FatBinary::read(&input.file, image)
                    .map_err(|e| input.damaged("fat binary", e))?;
                Ok(fat.wrappers().map(|(w, bundle)| (w.index, Arc::clone(bundle))).collect())
            }
            State::Converted => none(
                "is converted: its code objects are in kpack archives",
                "`gfxpack inspect` shows where its marker looks for them; extract from those",
            ),
            State::Plain => none("is host code alone", "there is nothing to extract"),
            State::NoSections => none(
                "has no section headers, so device code in it cannot be found",
                "extract from the file as it was linked, before its headers were removed",
            ),
        },
        elf::Kind::Other { machine: EM_AMDGPU, .. } => {
            none("is a code object itself", "`gfxpack inspect` shows its kernels")
        }
        _ => none(
            "is no program or library",
            "expected a .kpack archive, a fat binary or an offload bundle",
        ),
    }
}

/// Leaves what the options ask for, in order; it is an error where nothing is left.
fn select<T>(
    input: &Input,
    options: &ExtractOptions,
    all: Vec<Wanted<T>>,
) -> Result<Vec<Wanted<T>>, Error> {
    let glob = options.kernel.as_ref().map(|pattern| {
        let glob = GlobBuilder::new(pattern).literal_separator(false).build();
        glob.map(|glob| glob.compile_matcher()).map_err(|e| {
            Error::usage(format!("--kernel {pattern} is not a glob"))
                .because(e)
                .hint("as `*librocblas.so*`, quoted from the shell")
        })
    });
    let glob = glob.transpose()?;
    let isas: BTreeSet<String> = all.iter().map(|wanted| wanted.isa.to_string()).collect();
    let isa_wanted = |isa: &TargetId| {
        options.isas.is_empty()
            || options.isas.iter().any(|want| want == isa || *want == isa.without_features())
    };
    let mut wanted: Vec<_> = all
        .into_iter()
        .filter(|wanted| isa_wanted(&wanted.isa))
        .filter(|Wanted { name, index, .. }| {
            glob.as_ref()
                .is_none_or(|glob| glob.is_match(name) || glob.is_match(format!("{name}#{index}")))
        })
        .collect();
    if wanted.is_empty() {
        let isas = isas.into_iter().collect::<Vec<_>>().join(", ");
        let hint = if isas.is_empty() {
            "it has no code objects at all".to_owned()
        } else {
            format!("it has code for {isas}; `gfxpack inspect --verbose` lists the kernels")
        };
        return Err(Error::failed("has no code object that was asked for")
            .at(&input.path)
            .hint(hint));
    }
    wanted.sort_by(|a, b| (&a.name, a.index, &a.isa).cmp(&(&b.name, b.index, &b.isa)));
    Ok(wanted)
}

fn from_kpack(input: &Input, output: &Path, options: &ExtractOptions) -> Result<Vec<Extracted>> {
    let archive = Archive::open(&input.file).map_err(|e| input.damaged("kpack archive", e))?;
    let all = archive.entries().iter().map(|entry: &Entry| Wanted {
        name: entry.binary.clone(),
        index: entry.co_index,
        isa: entry.isa.clone(),
        size: entry.original_size,
        place: entry,
    });
    let wanted = select(input, options, all.collect())?;
    let files = named(&wanted);
    let dir = OutputDir::create(output, options.force, &[input.path.as_path()])?;
    for (wanted, file) in wanted.iter().zip(&files) {
        let mut stream = archive.open_entry(wanted.place).map_err(|e| {
            Error::failed(format!("cannot read {} for {}", file.kernel, file.isa))
                .at(&input.path)
                .because(e)
        })?;
        write(input, &mut stream, wanted, file, dir.part())?;
    }
    dir.finish()?;
    Ok(files)
}

/// Either what the bundle says or what writing said.
enum Failure {
    Bundle(BundleError),
    Other(Error),
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Self {
        Self::Bundle(error)
    }
}

fn from_bundles(
    input: &Input,
    bundles: &[(u32, Arc<Bundle>)],
    output: &Path,
    options: &ExtractOptions,
) -> Result<Vec<Extracted>> {
    let name = input.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut all: Vec<Wanted<InBundle>> = Vec::new();
    for (index, bundle) in bundles {
        for (isa, entry) in bundle.device_entries().filter(|(_, entry)| entry.size > 0) {
            let (name, isa, size) = (name.clone(), isa.clone(), entry.size);
            let place = (bundle.offset, entry.offset);
            all.push(Wanted { name, index: *index, isa, size, place });
        }
    }
    let wanted = select(input, options, all)?;
    let files = named(&wanted);
    // Several wrappers can share a bundle: each code object is taken out once, and copied.
    let mut by_place: BTreeMap<InBundle, Vec<usize>> = BTreeMap::new();
    for (i, wanted) in wanted.iter().enumerate() {
        by_place.entry(wanted.place).or_default().push(i);
    }
    let dir = OutputDir::create(output, options.force, &[input.path.as_path()])?;
    let unique: BTreeMap<u64, &Arc<Bundle>> = bundles.iter().map(|(_, b)| (b.offset, b)).collect();
    for (offset, bundle) in unique {
        if by_place.range((offset, 0)..=(offset, u64::MAX)).next().is_none() {
            continue;
        }
        let done = bundle.for_each_entry(&input.file, |entry, stream| {
            let Some(places) = by_place.get(&(offset, entry.offset)) else { return Ok(()) };
            let Some((&first, others)) = places.split_first() else { return Ok(()) };
            write(input, stream, &wanted[first], &files[first], dir.part())
                .map_err(Failure::Other)?;
            for &other in others {
                let to = dir.part().join(&files[other].file);
                fs::copy(dir.part().join(&files[first].file), &to)
                    .map_err(|e| Failure::Other(Error::io("cannot write", to, e)))?;
            }
            Ok(())
        });
        done.map_err(|failure| match failure {
            Failure::Other(error) => error,
            Failure::Bundle(e) => Error::failed(format!("the bundle at {offset:#x} is damaged"))
                .at(&input.path)
                .because(e)
                .hint("build or copy the file again"),
        })?;
    }
    dir.finish()?;
    Ok(files)
}

/// Writes one code object and checks it.
fn write<T>(
    input: &Input,
    stream: &mut dyn Read,
    wanted: &Wanted<T>,
    file: &Extracted,
    part: &Path,
) -> Result<(), Error> {
    let to = part.join(&file.file);
    let cannot_write = |e| Error::io("cannot write", &to, e);
    let mut out =
        File::options().read(true).write(true).create_new(true).open(&to).map_err(cannot_write)?;
    let mut buffer = vec![0; 128 << 10];
    let mut left = wanted.size;
    let bad = |message: String| Error::failed(message).at(&input.path);
    loop {
        let n = streams::some(stream, &mut buffer)
            .map_err(|e| bad(format!("cannot read {} for {}", file.kernel, file.isa)).because(e))?;
        if n == 0 {
            break;
        }
        left = left.checked_sub(n as u64).ok_or_else(|| {
            bad(format!("{} for {} has more than {} bytes", file.kernel, file.isa, wanted.size))
        })?;
        io::Write::write_all(&mut out, &buffer[..n]).map_err(cannot_write)?;
    }
    if left > 0 {
        return Err(bad(format!(
            "{} for {} ends {left} bytes early, of {}",
            file.kernel, file.isa, wanted.size
        )));
    }
    let header = CodeObjectHeader::read(&OpenFile::new(out, wanted.size)).map_err(|e| {
        bad(format!("{} for {} is no code object", file.kernel, file.isa)).because(e)
    })?;
    if header.check(&wanted.isa) == IsaCheck::Other {
        let found = header.target.map_or_else(|| "another".to_owned(), |isa| isa.to_string());
        return Err(bad(format!(
            "{} is filed under {}, but its e_flags say {found}",
            file.kernel, file.isa
        ))
        .hint("whatever wrote the file mixed up its targets: build it again"));
    }
    Ok(())
}

/// Gives each code object its file name.
fn named<T>(wanted: &[Wanted<T>]) -> Vec<Extracted> {
    let names: BTreeSet<&str> = wanted.iter().map(|w| w.name.as_str()).collect();
    let short: BTreeSet<&str> = names.iter().map(|name| below_stage(name)).collect();
    let unambiguous = short.len() == names.len();
    wanted
        .iter()
        .map(|Wanted { name, index, isa, size, .. }| {
            let shown = if unambiguous { below_stage(name) } else { name };
            Extracted {
                file: file_name(shown, *index, isa),
                kernel: format!("{name}#{index}"),
                isa: isa.to_string(),
                size: *size,
            }
        })
        .collect()
}

/// A kernel name without the prefix in the build, where it is seen to have one.
fn below_stage(name: &str) -> &str {
    name.split_once("/stage/").map_or(name, |(_, below)| below)
}

/// The same name for the same three, and another for others; never a path.
fn file_name(name: &str, index: u32, isa: &TargetId) -> String {
    let mut file = String::new();
    for (i, byte) in name.bytes().enumerate() {
        match byte {
            b'/' => file.push('+'),
            b'.' if i > 0 => file.push('.'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => file.push(char::from(byte)),
            other => file.push_str(&format!("%{other:02X}")),
        }
    }
    let end = format!("#{index}.{isa}.co");
    if file.len() + end.len() > MAX_FILE_NAME {
        let digest = blake3::hash(name.as_bytes()).to_hex();
        // `~` is escaped above: no other name has it.
        file.truncate(KEPT);
        file.push('~');
        file.push_str(&digest[..32]);
    }
    file + &end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isa(id: &str) -> TargetId {
        id.parse().unwrap()
    }

    #[test]
    fn names_are_safe_and_tell_all_apart() {
        let of = |name: &str| file_name(name, 0, &isa("gfx1100"));
        assert_eq!(of("lib/librocblas.so.5.2"), "lib+librocblas.so.5.2#0.gfx1100.co");
        assert_eq!(of("../../etc/passwd"), "%2E.+..+etc+passwd#0.gfx1100.co");
        assert_eq!(of("/etc/passwd"), "+etc+passwd#0.gfx1100.co");
        assert_eq!(of("a\n\0#b+é"), "a%0A%00%23b%2B%C3%A9#0.gfx1100.co");
        assert_eq!(of(""), "#0.gfx1100.co");
        assert_eq!(file_name("x", 3, &isa("gfx90a:xnack+")), "x#3.gfx90a:xnack+.co");
        let (long, other) = ("x/".repeat(4000), "x/".repeat(4001));
        assert!(of(&long).len() <= MAX_FILE_NAME && of(&long) != of(&other));
    }

    #[test]
    fn the_prefix_is_left_out_unless_two_names_would_be_one() {
        let wanted = |names: &[&str]| -> Vec<String> {
            let all: Vec<_> = names
                .iter()
                .map(|name| Wanted {
                    name: (*name).to_owned(),
                    index: 1,
                    isa: isa("gfx942"),
                    size: 1,
                    place: (),
                })
                .collect();
            named(&all).into_iter().map(|file| file.file).collect()
        };
        assert_eq!(
            wanted(&["a/stage/lib/x.so", "b/stage/lib/y.so"]),
            ["lib+x.so#1.gfx942.co", "lib+y.so#1.gfx942.co"]
        );
        assert_eq!(
            wanted(&["a/stage/lib/x.so", "b/stage/lib/x.so"]),
            ["a+stage+lib+x.so#1.gfx942.co", "b+stage+lib+x.so#1.gfx942.co"]
        );
    }
}
