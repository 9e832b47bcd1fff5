//! Copies extended attributes from the volume to files outside.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use parext4::Node;
use rustix::io::Errno;

use super::Shared;
use super::made::Made;

/// Sets the extended attributes of `node` on a file that has the name `path` in messages; without root, only the `user` and `system` ones. Warns
/// about each attribute that the file system outside refuses.
pub fn copy(made: &Made<'_>, path: &Path, node: &Node, shared: &Shared) -> Result<()> {
    for name in node.list_xattr()? {
        let for_all = name.starts_with(b"user.") || name.starts_with(b"system.");
        if !(shared.is_root || for_all) {
            continue;
        }
        let Some(value) = node.get_xattr(&name)? else { continue };
        let name = OsStr::from_bytes(&name);
        match made.set_xattr(name, &value) {
            Err(error @ (Errno::NOTSUP | Errno::PERM | Errno::NOSPC | Errno::TOOBIG)) => {
                let name = name.display();
                shared.progress.warn(&format!("{}: attribute {name} is left out: {error}", path.display()));
            }
            set => set.with_context(|| format!("attribute {}", name.display()))?,
        }
    }
    Ok(())
}
