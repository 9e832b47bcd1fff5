//! Access control lists and the permissions that go with them.

use parext4_format::inode::{FileType, Inode as RawInode};
use parext4_format::xattr::acl::Acl;
use parext4_format::xattr::{ACL_ACCESS, ACL_DEFAULT, Xattr};

use super::{Change, Edit, Name};
use crate::error::{Error, Result};
use crate::inode::Node;

/// The permission bits of a mode that access control lists speak of.
pub(super) const PERMISSIONS: u16 = 0o777;

/// A list that is to be set.
pub(super) struct NewAcl {
    /// As it is stored; `None` if it is not.
    pub stored: Option<Vec<u8>>,
    /// The permissions that it brings.
    pub permissions: Option<u16>,
}

/// What a new inode has from its directory's default list.
pub(crate) struct Inherited {
    pub permissions: u16,
    pub xattrs: Change,
}

impl Node {
    /// The list that a program wants to set.
    pub(super) fn new_acl(&self, name: Name<'_>, value: &[u8]) -> Result<NewAcl> {
        if !name.suits(self.file_type()) {
            return Err(Error::Unsupported(format!(
                "such an access control list of a {:?}",
                self.file_type()
            )));
        }
        let Some(acl) = Acl::from_xattr(value).map_err(Error::invalid)? else {
            return Ok(NewAcl { stored: None, permissions: None });
        };
        let is_access = name.index == ACL_ACCESS;
        let says_more = !(is_access && acl.is_minimal());
        Ok(NewAcl {
            stored: says_more.then(|| acl.to_disk()),
            permissions: is_access.then(|| acl.permissions()),
        })
    }

    /// A list as it lies on the device.
    pub(super) fn stored_acl(&self, value: &[u8]) -> Result<Acl> {
        Acl::from_disk(value).map_err(|error| Error::corrupt(format_args!("inode {}: {error}", self.ino())))
    }

    /// What a change of the permissions means for the attributes. The inode's `xattrs` are locked.
    pub(crate) fn change_for_permissions(&self, permissions: u16) -> Result<Change> {
        let mut edit = Edit::load(&self.volume, &self.inode)?;
        let Some(stored) = edit.get(ACL_ACCESS, b"") else { return Ok(Change::default()) };
        let mut acl = self.stored_acl(stored)?;
        acl.set_permissions(permissions);
        edit.put(stored_as(ACL_ACCESS, &acl));
        edit.finish()
    }

    /// What `raw`, an inode about to be made in this directory, inherits: the default list becomes its own, as far
    /// as the permissions that it was to have allow. Only without such a list the `umask` counts.
    pub(crate) fn inherit(&self, raw: &RawInode, umask: u16) -> Result<Inherited> {
        let wanted = raw.mode & PERMISSIONS;
        if raw.file_type() == FileType::Symlink {
            return Ok(Inherited { permissions: wanted, xattrs: Change::default() });
        }
        let _xattrs = self.read_xattrs();
        let inherited = Edit::load(&self.volume, &self.inode)?;
        let Some(stored) = inherited.get(ACL_DEFAULT, b"") else {
            return Ok(Inherited { permissions: wanted & !umask, xattrs: Change::default() });
        };
        let default = self.stored_acl(stored)?;
        let permissions = wanted & default.permissions();
        let mut access = default.clone();
        access.set_permissions(permissions);
        let mut edit = Edit::new(raw, &self.volume);
        if raw.file_type() == FileType::Directory {
            edit.put(stored_as(ACL_DEFAULT, &default));
        }
        if !access.is_minimal() {
            edit.put(stored_as(ACL_ACCESS, &access));
        }
        Ok(Inherited { permissions, xattrs: edit.finish()? })
    }
}

fn stored_as(name_index: u8, acl: &Acl) -> Xattr {
    Xattr { name_index, name: Vec::new(), value: acl.to_disk() }
}
