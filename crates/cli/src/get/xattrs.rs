//! Copies extended attributes from the volume to files outside.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use parext4::{Error, Node, XattrRef};
use rustix::io::Errno;

use super::Shared;
use super::made::Made;

/// Sets the extended attributes of `node` on a file that has the name `path` in messages; without root, only the `user` and `system` ones. Warns
/// about each attribute that the file system outside refuses.
pub fn copy(made: &Made<'_>, path: &Path, node: &Node, shared: &Shared) -> Result<()> {
    node.visit_xattrs(|xattr| copy_one(made, path, xattr, shared))
}

fn copy_one(made: &Made<'_>, path: &Path, xattr: &XattrRef<'_>, shared: &Shared) -> Result<()> {
    let name = xattr.name();
    let for_all = name.starts_with(b"user.") || name.starts_with(b"system.");
    if !(shared.is_root || for_all) {
        return Ok(());
    }
    let name = OsStr::from_bytes(name);
    let warn = |error: &dyn Display| {
        let name = name.display();
        shared.progress.warn(&format!("{}: attribute {name} is left out: {error}", path.display()));
    };
    let value = match xattr.value() {
        Err(error @ Error::TooBig(_)) => {
            warn(&error);
            return Ok(());
        }
        value => value?,
    };
    match made.set_xattr(name, &value) {
        Err(error @ (Errno::NOTSUP | Errno::PERM | Errno::NOSPC | Errno::TOOBIG)) => warn(&error),
        set => set.with_context(|| format!("attribute {}", name.display()))?,
    }
    Ok(())
}
