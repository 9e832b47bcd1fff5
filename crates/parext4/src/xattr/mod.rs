//! Extended attributes: in the inode behind its fields, else in a block of their own that inodes may share.
//!
//! # Locking
//! The attributes of an inode are read under its `Inode::xattrs` lock shared and changed under it exclusive, from
//! before they are read until after the handle that changes them. A block that several inodes share never changes
//! but for its count of them, which goes down in one step.

mod acl;
mod capability;
mod change;
mod edit;

use parext4_format::inode::FileType;
use parext4_format::xattr::{self, ACL_ACCESS, ACL_DEFAULT, USER, Xattr};

pub(crate) use acl::Inherited;
pub(crate) use change::Change;
pub(crate) use edit::Edit;

use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::inode::Node;
use crate::sync::{ReadGuard, WriteGuard};

/// The longest name, its first part included (`XATTR_NAME_MAX`).
const MAX_NAME: usize = 255;
/// The longest value that Linux passes (`XATTR_SIZE_MAX`); the format holds less.
const MAX_VALUE: usize = 65536;

/// What happens if an attribute is there already, or is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// It is made or replaced.
    #[default]
    Any,
    /// [`Error::Exists`] if it is there.
    Create,
    /// [`Error::NoAttribute`] unless it is there.
    Replace,
}

/// A checked name.
#[derive(Clone, Copy, Debug)]
struct Name<'a> {
    full: &'a [u8],
    index: u8,
    /// What follows the first part.
    rest: &'a [u8],
}

impl<'a> Name<'a> {
    fn new(full: &'a [u8]) -> Result<Self> {
        let shown = || full.escape_ascii();
        if full.is_empty() || full.len() > MAX_NAME {
            return Err(Error::OutOfRange(format!("an attribute's name of {} bytes", full.len())));
        }
        let Some((index, rest)) = xattr::split_name(full) else {
            return Err(Error::Unsupported(format!("attributes like {:?}", shown().to_string())));
        };
        if rest.contains(&0) || (rest.is_empty() && full.ends_with(b".")) {
            return Err(Error::invalid(format_args!("the attribute name {:?}", shown().to_string())));
        }
        Ok(Self { full, index, rest })
    }

    fn is_acl(&self) -> bool {
        matches!(self.index, ACL_ACCESS | ACL_DEFAULT)
    }

    /// Whether an inode of this type may have the attribute.
    fn suits(&self, file_type: FileType) -> bool {
        match self.index {
            USER => matches!(file_type, FileType::Regular | FileType::Directory),
            ACL_ACCESS => file_type != FileType::Symlink,
            ACL_DEFAULT => file_type == FileType::Directory,
            _ => true,
        }
    }

    fn missing(&self) -> Error {
        Error::NoAttribute(self.full.escape_ascii().to_string())
    }
}

/// Extended attributes, with the names that getxattr(2) has: `user.`, `trusted.`, `security.`, and
/// `system.posix_acl_access` and `_default`, whose values are as acl(5) programs pass them. Who may see or change
/// which is for the caller to decide.
impl Node {
    /// The value of an attribute, if there is one.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the name is empty or longer than 255 bytes, [`Error::Unsupported`] if its first part
    /// is unknown, [`Error::Invalid`] if nothing follows that; corruption.
    pub fn get_xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.volume.in_flight.check_open()?;
        let name = Name::new(name)?;
        let _xattrs = self.read_xattrs();
        let edit = Edit::load(&self.volume, &self.inode)?;
        match edit.get(name.index, name.rest) {
            Some(value) if name.is_acl() => Ok(Some(self.stored_acl(value)?.to_xattr())),
            value => Ok(value.map(<[u8]>::to_vec)),
        }
    }

    /// The names of all attributes.
    ///
    /// # Errors
    /// Corruption.
    pub fn list_xattr(&self) -> Result<Vec<Vec<u8>>> {
        self.volume.in_flight.check_open()?;
        let _xattrs = self.read_xattrs();
        let edit = Edit::load(&self.volume, &self.inode)?;
        Ok(edit.iter().filter_map(xattr::full_name).collect())
    }

    /// Sets an attribute. `system.posix_acl_access` sets the permissions too, and is stored only if they do not say
    /// it all; an empty list removes it.
    ///
    /// # Errors
    /// As [`get_xattr`](Self::get_xattr); [`Error::Exists`], [`Error::NoAttribute`] by `mode`;
    /// [`Error::NotPermitted`] if the inode is immutable or append-only, or `user.` is not for its type;
    /// [`Error::Unsupported`] or [`Error::Invalid`] for an access control list that is not for its type or is none;
    /// [`Error::TooBig`] for more than 65536 bytes; [`Error::NoSpace`] if it does not fit with the others.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let name = self.changeable(name)?;
        if value.len() > MAX_VALUE {
            return Err(Error::TooBig(format!("an attribute of {} bytes", value.len())));
        }
        let acl = if name.is_acl() { Some(self.new_acl(name, value)?) } else { None };

        let _xattrs = self.write_xattrs();
        let mut edit = Edit::load(&self.volume, &self.inode)?;
        match (edit.get(name.index, name.rest), mode) {
            (Some(_), XattrMode::Create) => {
                return Err(Error::Exists(name.full.escape_ascii().to_string()));
            }
            (None, XattrMode::Replace) => return Err(name.missing()),
            _ => {}
        }
        let (stored, permissions) = match acl {
            Some(acl) => (acl.stored, acl.permissions),
            None => (Some(value.to_vec()), None),
        };
        match stored {
            Some(value) => edit.put(Xattr { name_index: name.index, name: name.rest.to_vec(), value }),
            None => drop(edit.remove(name.index, name.rest)),
        }
        self.carry_out(edit, permissions)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As [`set_xattr`](Self::set_xattr); [`Error::NoAttribute`] if there is none.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        let name = self.changeable(name)?;
        let _xattrs = self.write_xattrs();
        let mut edit = Edit::load(&self.volume, &self.inode)?;
        if !edit.remove(name.index, name.rest) {
            return Err(name.missing());
        }
        self.carry_out(edit, None)
    }

    /// Keeps the attributes as they are.
    fn read_xattrs(&self) -> Option<ReadGuard<'_, ()>> {
        (!planted(Fault::XattrsUnheld)).then(|| self.inode.xattrs.read())
    }

    /// Keeps others away from the attributes.
    pub(crate) fn write_xattrs(&self) -> Option<WriteGuard<'_, ()>> {
        (!planted(Fault::XattrsUnheld)).then(|| self.inode.xattrs.write())
    }

    /// Checks that an attribute may be changed, in the order of Linux.
    fn changeable<'a>(&self, name: &'a [u8]) -> Result<Name<'a>> {
        let name = Name::new(name)?;
        self.inode.check_fixed()?;
        if name.index == USER && !name.suits(self.file_type()) {
            return Err(Error::NotPermitted(format!("user attributes of a {:?}", self.file_type())));
        }
        Ok(name)
    }

    /// Makes the changes, and sets the permissions with them. The inode's `xattrs` are locked.
    fn carry_out(&self, edit: Edit, permissions: Option<u16>) -> Result<()> {
        let (volume, inode) = (&self.volume, &self.inode);
        let change = edit.finish()?;
        volume.with_space(|| {
            volume.transact(change.credits(), |handle| {
                change.apply(volume, handle, inode)?;
                inode.join(handle);
                if let Some(permissions) = permissions {
                    let mut core = inode.core();
                    core.mode = core.mode & !acl::PERMISSIONS | permissions;
                }
                inode.touch_changed();
                Ok(())
            })
        })
    }
}
