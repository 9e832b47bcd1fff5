//! Extended attributes: stored in the inode after its fields, or in a block that several inodes may
//! share.
//!
//! Responsible for names, access control lists, and changes of attributes. Not responsible for
//! permission to read or change them, which the caller checks, nor for their format
//! (`parext4_format::xattr`).
//!
//! # Locking
//! The attributes of an inode are read under its `Inode::xattrs` lock, shared, and changed under
//! it, exclusive, from before they are read until after the handle that changes them.
//!
//! Invariant: the attributes in a block that several inodes share do not change. Only the count of
//! its users changes, in one step under a handle.

mod acl;
mod capability;
mod change;
mod edit;
mod expand;
mod locked;
mod storage;
mod values;
mod visit;

use std::borrow::Cow;

use parext4_format::features::Incompat;
use parext4_format::inode::FileType;
use parext4_format::xattr::{self, ACL_ACCESS, ACL_DEFAULT, USER, Value, ValueInode, Xattr};

pub(crate) use acl::InheritedAcl;
pub(crate) use change::XattrChange;
pub(crate) use edit::XattrEdit;
pub(crate) use locked::XattrsLock;
pub use visit::XattrRef;

use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;

/// Limit of a name in bytes, prefix included (`XATTR_NAME_MAX`).
const MAX_NAME: usize = 255;
/// Limit of a value in bytes, as for setxattr(2) (`XATTR_SIZE_MAX`). The format holds less.
const MAX_VALUE: usize = 65536;
/// Bytes of a block that a value cannot have if its name has three bytes: the header, the entry and
/// the end of the list. A value that is longer than the rest gets an inode
/// (`EXT4_XATTR_MIN_LARGE_EA_SIZE`).
const BESIDES_LARGE: u64 = 32 + 20 + 4;

/// What [`InodeRef::set_xattr`] does if the attribute exists or does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum XattrMode {
    /// Creates or replaces it.
    #[default]
    Any,
    /// Fails with [`Error::Exists`] if it exists.
    Create,
    /// Fails with [`Error::NoAttribute`] if it does not exist.
    Replace,
}

/// A checked name of an attribute.
#[derive(Clone, Copy, Debug)]
struct XattrName<'a> {
    full: &'a [u8],
    index: u8,
    /// The name after its prefix.
    rest: &'a [u8],
}

impl<'a> XattrName<'a> {
    fn new(full: &'a [u8]) -> Result<Self> {
        let escaped = || full.escape_ascii();
        if full.is_empty() || full.len() > MAX_NAME {
            return Err(Error::OutOfRange(format!(
                "attribute name of {} bytes: 1 to {MAX_NAME}",
                full.len()
            )));
        }
        let Some((index, rest)) = xattr::split_name(full) else {
            return Err(Error::Unsupported(format!(
                "attribute {:?}: unknown prefix of its name",
                escaped().to_string()
            )));
        };
        if rest.contains(&0) || (rest.is_empty() && full.ends_with(b".")) {
            return Err(Error::invalid(format_args!(
                "the attribute name {:?} contains a NUL or has nothing after its prefix",
                escaped().to_string()
            )));
        }
        Ok(Self { full, index, rest })
    }

    fn is_acl(&self) -> bool {
        matches!(self.index, ACL_ACCESS | ACL_DEFAULT)
    }

    /// Returns true if an inode of this type may have the attribute.
    fn is_valid_for(&self, file_type: FileType) -> bool {
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

/// Extended attributes, by the names that getxattr(2) uses: `user.`, `trusted.`, `security.`, and
/// `system.posix_acl_access` and `system.posix_acl_default`, whose values are as acl(5) programs
/// pass them. These methods do not check the caller's permissions.
impl InodeRef {
    /// Returns the value of an attribute, or `None` if the inode has no such attribute. May block
    /// on the device.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::XattrMode;
    ///
    /// root.set_xattr(b"user.origin", b"backup", XattrMode::Any)?;
    /// assert_eq!(root.get_xattr(b"user.origin")?.as_deref(), Some(&b"backup"[..]));
    /// assert_eq!(root.get_xattr(b"user.other")?, None);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the name is empty or longer than 255 bytes; [`Error::Unsupported`]
    /// if its prefix is unknown; [`Error::Invalid`] if nothing follows the prefix, or if the name
    /// contains a zero byte; [`Error::TooBig`] if the value exceeds 65536 bytes, as in the kernel;
    /// corruption; a failed read.
    pub fn get_xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.engine.in_flight().check_open()?;
        let name = XattrName::new(name)?;
        let xattrs = self.lock_xattrs_shared();
        let edit = xattrs.load()?;
        match xattrs.value(&edit, name.index, name.rest)? {
            Some(value) => self.as_program(name, value).map(Some),
            None => Ok(None),
        }
    }

    /// Converts a stored value to the one that programs pass.
    fn as_program(&self, name: XattrName<'_>, value: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        if name.is_acl() { Ok(self.stored_acl(&value)?.to_xattr()) } else { Ok(value.into_owned()) }
    }

    /// Returns the names of all attributes, with their prefixes. May block on the device.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::XattrMode;
    ///
    /// root.set_xattr(b"user.origin", b"backup", XattrMode::Any)?;
    /// assert_eq!(root.list_xattr()?, [b"user.origin"]);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// Corruption; a failed read.
    pub fn list_xattr(&self) -> Result<Vec<Vec<u8>>> {
        self.engine.in_flight().check_open()?;
        let xattrs = self.lock_xattrs_shared();
        let edit = xattrs.load()?;
        Ok(edit.iter().filter_map(xattr::full_name).collect())
    }

    /// Sets an attribute, durable with the next sync.
    ///
    /// `system.posix_acl_access` also sets the permissions, and is stored only if it says more than
    /// they do. An empty list removes it.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::{Error, XattrMode};
    ///
    /// root.set_xattr(b"user.owner", b"ann", XattrMode::Create)?;
    /// let again = root.set_xattr(b"user.owner", b"bob", XattrMode::Create);
    /// assert!(matches!(again, Err(Error::Exists(_))));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`get_xattr`](Self::get_xattr); [`Error::Exists`] or [`Error::NoAttribute`], by `mode`;
    /// [`Error::NotPermitted`] if the inode is immutable or append-only, or if its type cannot have
    /// `user.` attributes; [`Error::Unsupported`] or [`Error::Invalid`] if its type cannot have
    /// this access control list, or if the list is malformed; [`Error::TooBig`] if the value
    /// exceeds 65536 bytes; [`Error::NoSpace`] if the inode's attributes do not fit together.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let name = self.check_changeable(name)?;
        self.make_room_for_fields();
        if value.len() > MAX_VALUE {
            return Err(Error::TooBig(format!(
                "attribute value of {} bytes: at most {MAX_VALUE}",
                value.len()
            )));
        }
        let acl = if name.is_acl() { Some(self.new_acl(name, value)?) } else { None };

        let xattrs = self.lock_xattrs();
        let mut edit = xattrs.load()?;
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
        let Some(value) = stored else {
            edit.remove(name.index, name.rest);
            return xattrs.apply(edit, permissions);
        };
        let change = self.change_of(&xattrs, edit, name, value)?;
        xattrs.carry_out(change, permissions)
    }

    /// Removes an attribute, durable with the next sync.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::XattrMode;
    ///
    /// root.set_xattr(b"user.origin", b"backup", XattrMode::Any)?;
    /// root.remove_xattr(b"user.origin")?;
    /// assert!(root.list_xattr()?.is_empty());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`set_xattr`](Self::set_xattr); [`Error::NoAttribute`] if the inode has no such
    /// attribute.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        let name = self.check_changeable(name)?;
        self.make_room_for_fields();
        let xattrs = self.lock_xattrs();
        let mut edit = xattrs.load()?;
        if !edit.remove(name.index, name.rest) {
            return Err(name.missing());
        }
        xattrs.apply(edit, None)
    }

    /// Returns the change that sets an attribute. A value that is large, does not fit beside the
    /// other attributes, or would leave too little of the block to entries, gets an inode of its
    /// own if the volume has `ea_inode`, as in the kernel.
    fn change_of(
        &self,
        xattrs: &XattrsLock<'_>,
        edit: XattrEdit,
        name: XattrName<'_>,
        value: Vec<u8>,
    ) -> Result<XattrChange> {
        let put = |mut edit: XattrEdit, value: Value| {
            edit.put(Xattr { name_index: name.index, name: name.rest.to_vec(), value });
            edit
        };
        let finish = |edit: XattrEdit| edit.finish(&self.engine, &self.inode);
        let may_be_inode =
            !value.is_empty() && self.engine.superblock().incompat().contains(Incompat::EA_INODE);
        if !may_be_inode {
            return finish(put(edit, value.into()));
        }
        if value.len() as u64 <= self.engine.block_size() - BESIDES_LARGE {
            let in_place = put(edit.clone(), value.clone().into());
            if in_place.keeps_room_for_entries(&edit, name.index, name.rest) {
                match finish(in_place) {
                    Err(Error::NoSpace) => {}
                    other => return other,
                }
            }
        }
        let node = InodeRef::create_value(&self.engine, &self.inode, &value)?;
        // Lives until after the change, which refers to the inode. Otherwise it is deleted.
        xattrs.drop_later(node.clone());
        node.write_value(&value)?;
        let hash = ValueInode::hash(self.engine.superblock().value_seed(), &value);
        let len = u32::try_from(value.len()).map_err(|_| Error::NoSpace)?;
        let value = ValueInode::new(node.ino(), name.rest, len, hash);
        finish(put(edit, Value::Inode(value)))
    }

    /// Checks that an attribute may be changed. The checks are in the order of the kernel's.
    fn check_changeable<'a>(&self, name: &'a [u8]) -> Result<XattrName<'a>> {
        let name = XattrName::new(name)?;
        self.inode.check_fixed()?;
        if name.index == USER && !name.is_valid_for(self.file_type()) {
            return Err(Error::NotPermitted(format!("user attributes of a {:?}", self.file_type())));
        }
        Ok(name)
    }
}
