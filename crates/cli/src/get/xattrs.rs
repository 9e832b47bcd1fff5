//! Extended attributes from the volume, for files outside.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use parext4::Node;
use rustix::fs::{XattrFlags, lsetxattr};
use rustix::io::Errno;

use super::Shared;

/// Gives what was made at `path` the attributes of `node`. Only root may set all of them. Says what the file system
/// outside does not take.
pub fn copy(path: &Path, node: &Node, shared: &Shared) -> Result<()> {
    for name in node.list_xattr()? {
        let for_all = name.starts_with(b"user.") || name.starts_with(b"system.");
        if !(shared.is_root || for_all) {
            continue;
        }
        let Some(value) = node.get_xattr(&name)? else { continue };
        let name = OsStr::from_bytes(&name);
        match lsetxattr(path, name, &value, XattrFlags::empty()) {
            Err(error @ (Errno::NOTSUP | Errno::PERM | Errno::NOSPC | Errno::TOOBIG)) => {
                let name = name.display();
                shared.progress.warn(&format!("{}: attribute {name} is left out: {error}", path.display()));
            }
            set => set.with_context(|| format!("attribute {}", name.display()))?,
        }
    }
    Ok(())
}
