//! Copies extended attributes of files outside into the volume.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};
use parext4::{InodeRef, XattrMode};
use rustix::fs::{fgetxattr, flistxattr, flistxattr_query, lgetxattr, llistxattr, llistxattr_query};
use rustix::io::Errno;

use crate::access_list::ACCESS;
use crate::report::Report;

/// The longest value, and the longest list of names, that Linux passes.
const MAX: usize = 65536;

/// A file outside.
pub enum Source<'a> {
    /// A file of any type by its path; symbolic links are not followed.
    Path(&'a Path),
    /// An open file, and its path for messages.
    File(&'a File, &'a Path),
}

/// Sets the extended attributes of `source` on `node`, and removes access control lists that `node`
/// inherited. Reports each attribute that the volume cannot hold as an error. Returns false if the
/// access list is one of them.
pub fn copy(source: &Source<'_>, node: &InodeRef, report: &Report<'_>) -> Result<bool> {
    let names = list(source)?;
    for name in node.list_xattr()? {
        if name.starts_with(b"system.") && !names.iter().any(|kept| kept.to_bytes() == name) {
            node.remove_xattr(&name)?;
        }
    }
    let mut has_list = true;
    for name in &names {
        let Some(value) = get(source, name)? else { continue };
        let (Source::Path(path) | Source::File(_, path)) = source;
        let name = name.to_bytes();
        has_list &= set(node, path, name, &value, report) || name != ACCESS;
    }
    Ok(has_list)
}

/// Sets an attribute of a file that messages call `shown`. Reports an attribute that the volume
/// cannot hold as an error, and returns false.
pub fn set(node: &InodeRef, shown: &Path, name: &[u8], value: &[u8], report: &Report<'_>) -> bool {
    let set = node.set_xattr(name, value, XattrMode::Any);
    let is_set = set.is_ok();
    if let Err(error) = set {
        let (shown, name) = (shown.display(), OsStr::from_bytes(name).display());
        report.error(Error::from(error).context(format!("{shown}: attribute {name} is left out")));
    }
    is_set
}

/// Returns the names of the attributes; none if the file system outside has no attributes.
fn list(source: &Source<'_>) -> Result<Vec<CString>> {
    // Queries the length first, because most files have no attributes.
    let len = match source {
        Source::Path(path) => llistxattr_query(*path),
        Source::File(file, _) => flistxattr_query(file),
    };
    if let Ok(0) | Err(Errno::NOTSUP) = len {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; MAX];
    let len = match source {
        Source::Path(path) => llistxattr(*path, &mut bytes[..])?,
        Source::File(file, _) => flistxattr(file, &mut bytes[..])?,
    };
    let names = bytes[..len].split_inclusive(|&byte| byte == 0);
    let names = names.map(CStr::from_bytes_with_nul).map(|name| name.map(CStr::to_owned));
    let mut names: Vec<CString> = names.collect::<Result<_, _>>()?;
    // The order outside depends on how they were set.
    names.sort_unstable();
    Ok(names)
}

/// Returns a value, `None` if the attribute does not exist any more or may not be read.
fn get(source: &Source<'_>, name: &CStr) -> Result<Option<Vec<u8>>> {
    let mut value = vec![0; MAX];
    let len = match source {
        Source::Path(path) => lgetxattr(*path, name, &mut value[..]),
        Source::File(file, _) => fgetxattr(file, name, &mut value[..]),
    };
    match len {
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM) => Ok(None),
        len => {
            value.truncate(len?);
            Ok(Some(value))
        }
    }
}
