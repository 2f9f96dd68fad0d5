//! Whether a database's `.co` or `.hsaco` file is for the ISA that its name says.

use std::sync::Arc;

use crate::database::Owner;
use crate::error::Error;
use crate::fatbin::bundle::{Bundle, is_bundle};
use crate::fatbin::code_object::{CodeObjectHeader, HEADER_SIZE};
use crate::read_at::ReadAt;
use crate::tree::{InputFile, TreePath};

/// Refuses code for another ISA than the file is filed under. Reads the ELF header of a code object
/// and the table of a bundle; what is neither is let through, since files of databases move whole.
pub(super) fn check(path: &TreePath, input: &InputFile, owner: &Owner) -> Result<(), Error> {
    let name = path.file_name();
    if !name.ends_with(b".co") && !name.ends_with(b".hsaco") {
        return Ok(());
    }
    let unreadable = |e| Error::io("cannot read", input.path(), e);
    let file = input.open().map_err(unreadable)?;
    let mut head = [0; HEADER_SIZE];
    let len = usize::try_from(file.len()).map_or(HEADER_SIZE, |len| len.min(HEADER_SIZE));
    let head = &mut head[..len];
    file.read_exact_at(head, 0).map_err(unreadable)?;
    let found = if is_bundle(head) {
        let read = || {
            let bundle = Bundle::read(&file, 0, file.len());
            bundle.map(Arc::new).map_err(|e| {
                Error::failed("is a damaged offload bundle")
                    .at(input.path())
                    .because(e)
                    .hint("it may have been cut off or changed: build or copy it again")
            })
        };
        // Of a member of an archive it is known.
        let known = input.bundles().get(&0).cloned();
        let bundle = known.map_or_else(read, Ok)?;
        let device = bundle.device_entries().filter(|(_, entry)| entry.size > 0);
        let targets: Vec<_> = device.map(|(target, _)| target).collect();
        if targets.is_empty() || targets.iter().any(|target| owner.runs_target(target)) {
            return Ok(());
        }
        let targets: Vec<_> = targets.iter().map(ToString::to_string).collect();
        format!("its bundle holds code for {} only", targets.join(", "))
    } else {
        let Ok(header) = CodeObjectHeader::parse(head) else { return Ok(()) };
        if owner.runs(&header) {
            return Ok(());
        }
        let target = header.target.map(|target| target.to_string()).unwrap_or_default();
        format!("its e_flags {:#x} say {target}", header.e_flags)
    };
    let owner = owner.target();
    Err(Error::failed(format!("is a database file for {owner} by its name, but {found}"))
        .at(input.path())
        .hint(format!(
            "no program would find this code for its own ISA, and on {owner} it cannot run: build the \
             file again, or call it by what it is"
        )))
}
