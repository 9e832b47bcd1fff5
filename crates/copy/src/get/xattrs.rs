//! Copies extended attributes from the volume to files outside.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Result;
use parext4::{InodeRef, XattrRef};

use super::Shared;
use super::created_entry::CreatedEntry;
use crate::access_list::ACCESS;

/// Sets the extended attributes of `node` on a file that has the name `path` in messages; without
/// root, only the `user` and `system` ones. Reports each attribute that cannot be read, or that the
/// file system outside refuses, as an error. Returns false if the access list is one of them.
pub fn copy(entry: &CreatedEntry<'_>, path: &Path, node: &InodeRef, shared: &Shared<'_>) -> Result<bool> {
    let mut has_list = true;
    node.visit_xattrs(|xattr| -> Result<()> {
        let name = xattr.name();
        let for_all = name.starts_with(b"user.") || name.starts_with(b"system.");
        if (shared.is_root || for_all)
            && let Err(error) = copy_one(entry, xattr)
        {
            has_list &= name != ACCESS;
            let name = OsStr::from_bytes(name).display();
            let what = format!("{}: attribute {name} is left out", path.display());
            shared.report.error(error.context(what));
        }
        Ok(())
    })?;
    Ok(has_list)
}

fn copy_one(entry: &CreatedEntry<'_>, xattr: &XattrRef<'_>) -> Result<()> {
    Ok(entry.set_xattr(OsStr::from_bytes(xattr.name()), &xattr.value()?)?)
}
