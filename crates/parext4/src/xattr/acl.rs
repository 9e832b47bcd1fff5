//! Access control lists, and the permissions that correspond to them.
//!
//! Programs pass lists in version 2 of the format, and ext4 stores version 1. Responsible for the
//! conversion and for the inheritance of default lists. Invariant: the permissions of an inode and
//! its access list say the same, and a list that says no more than the permissions is not stored.

use parext4_format::inode::{FileType, Inode as RawInode};
use parext4_format::xattr::acl::Acl;
use parext4_format::xattr::{ACL_ACCESS, ACL_DEFAULT, Xattr};

use super::{XattrChange, XattrEdit, XattrName};
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;

/// The permission bits of a mode that correspond to an access control list.
pub(super) const PERMISSIONS: u16 = 0o777;

/// The attribute that contains an inode's access list.
pub(super) const ACCESS: XattrName<'_> =
    XattrName { full: b"system.posix_acl_access", index: ACL_ACCESS, rest: b"" };

/// An access control list that is about to be set.
pub(super) struct NewAcl {
    /// The list in the format of the device; `None` if it is not stored.
    pub stored: Option<Vec<u8>>,
    /// The permissions that the list sets; `None` for a default list.
    pub permissions: Option<u16>,
}

/// What a new inode inherits from its directory's default list.
pub(crate) struct InheritedAcl {
    pub permissions: u16,
    pub xattrs: XattrChange,
}

impl InodeRef {
    /// Converts and checks a list that a program sets.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if an inode of this type cannot have the list; [`Error::Invalid`] if
    /// the list is malformed.
    pub(super) fn new_acl(&self, name: XattrName<'_>, value: &[u8]) -> Result<NewAcl> {
        if !name.is_valid_for(self.file_type()) {
            let (name, file_type) = (name.full.escape_ascii(), self.file_type());
            return Err(Error::Unsupported(format!("attribute {name} of a {file_type:?}")));
        }
        let Some(acl) = Acl::from_xattr(value).map_err(Error::invalid)? else {
            return Ok(NewAcl { stored: None, permissions: None });
        };
        let is_access = name.index == ACL_ACCESS;
        let is_stored = !(is_access && acl.is_minimal());
        Ok(NewAcl {
            stored: is_stored.then(|| acl.to_disk()),
            permissions: is_access.then(|| acl.permissions()),
        })
    }

    /// Parses a list in the format of the device.
    pub(super) fn stored_acl(&self, value: &[u8]) -> Result<Acl> {
        Ok(Acl::from_disk(value).map_err(|error| error.of_inode(self.ino()))?)
    }

    /// Returns what `raw`, an inode that is about to be created in this directory, inherits. The
    /// default list becomes its access list, limited by the requested permissions. `umask` counts
    /// only if the directory has no default list. Acquires the directory's attribute lock, shared.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the lists do not fit the new inode and its block: they get no inodes
    /// of their own. Corruption; a failed read.
    pub(crate) fn inherit(&self, raw: &RawInode, umask: u16) -> Result<InheritedAcl> {
        let wanted = raw.mode & PERMISSIONS;
        if raw.file_type() == FileType::Symlink {
            return Ok(InheritedAcl { permissions: wanted, xattrs: XattrChange::default() });
        }
        let xattrs = self.lock_xattrs_shared();
        let inherited = xattrs.load()?;
        let Some(stored) = xattrs.value(&inherited, ACL_DEFAULT, b"")? else {
            return Ok(InheritedAcl { permissions: wanted & !umask, xattrs: XattrChange::default() });
        };
        let default = self.stored_acl(&stored)?;
        let permissions = wanted & default.permissions();
        let mut access = default.clone();
        access.set_permissions(permissions);
        let mut edit = XattrEdit::new(raw, &self.engine);
        if raw.file_type() == FileType::Directory {
            edit.put(stored_xattr(ACL_DEFAULT, &default));
        }
        if !access.is_minimal() {
            edit.put(stored_xattr(ACL_ACCESS, &access));
        }
        Ok(InheritedAcl { permissions, xattrs: edit.finish(&self.engine, &self.inode)? })
    }
}

fn stored_xattr(name_index: u8, acl: &Acl) -> Xattr {
    Xattr { name_index, name: Vec::new(), value: acl.to_disk().into() }
}
