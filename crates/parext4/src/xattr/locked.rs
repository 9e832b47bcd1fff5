//! The attributes of an inode under their lock.
//!
//! Responsible for the lock, and for what needs it: reading the attributes and carrying out a
//! change of them.

use std::borrow::Cow;
use std::cell::RefCell;

use parext4_format::xattr::{ACL_ACCESS, Value, Xattr};

use super::acl::{ACCESS, PERMISSIONS};
use super::{MAX_VALUE, XattrChange, XattrEdit};
use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::inode::Inode;
use crate::inode_ref::InodeRef;
use crate::sync::{Arc, ReadGuard, WriteGuard};

/// The attributes of an inode, locked against changes and, with a [`WriteGuard`], against reads by
/// other threads.
#[must_use]
pub(crate) struct LockedXattrs<'a, G> {
    node: &'a InodeRef,
    /// `None` if a planted fault has removed the lock.
    guard: Option<G>,
    /// Inodes of values, to be dropped after the lock, because the last reference to an inode
    /// without entries deletes it.
    values: RefCell<Vec<InodeRef>>,
}

/// The attributes of an inode, locked against changes and reads by other threads.
pub(crate) type XattrsLock<'a> = LockedXattrs<'a, WriteGuard<'a, ()>>;

impl InodeRef {
    /// Locks the attributes against changes.
    pub(super) fn lock_xattrs_shared(&self) -> LockedXattrs<'_, ReadGuard<'_, ()>> {
        let guard = guarded!(Fault::XattrsUnlocked, Some(self.inode.xattrs.read()));
        LockedXattrs { node: self, guard, values: RefCell::default() }
    }

    /// Locks the attributes against changes and reads by other threads.
    pub(crate) fn lock_xattrs(&self) -> XattrsLock<'_> {
        let guard = guarded!(Fault::XattrsUnlocked, Some(self.inode.xattrs.write()));
        LockedXattrs { node: self, guard, values: RefCell::default() }
    }
}

impl<G> LockedXattrs<'_, G> {
    /// Reads the attributes. May block on the device.
    ///
    /// # Errors
    /// Corruption; a failed read.
    pub(crate) fn load(&self) -> Result<XattrEdit> {
        XattrEdit::load(&self.node.engine, &self.node.inode)
    }

    /// Returns the value of an attribute in the format of the device; `None` if the inode has no
    /// such attribute. May block on the device.
    ///
    /// # Errors
    /// The errors of [`value_of`](Self::value_of).
    pub(crate) fn value<'e>(
        &self,
        edit: &'e XattrEdit,
        index: u8,
        name: &[u8],
    ) -> Result<Option<Cow<'e, [u8]>>> {
        edit.get(index, name).map(|xattr| self.value_of(xattr)).transpose()
    }

    /// Returns the value of an attribute that was read under this lock, in the format of the
    /// device. May block on the device.
    ///
    /// # Errors
    /// [`Error::TooBig`] if the value has an inode of its own and is longer than 65536 bytes, as in
    /// the kernel. Corruption; a failed read.
    pub(super) fn value_of<'e>(&self, xattr: &'e Xattr) -> Result<Cow<'e, [u8]>> {
        let (engine, inode) = (&self.node.engine, &self.node.inode);
        let value = match &xattr.value {
            Value::Bytes(bytes) => return Ok(Cow::Borrowed(bytes)),
            Value::Inode(value) => *value,
        };
        if value.size as usize > MAX_VALUE {
            let size = value.size;
            return Err(Error::TooBig(format!("attribute value of {size} bytes: at most {MAX_VALUE}")));
        }
        let read = engine.read_value(inode, &xattr.name, value);
        Ok(read.map_err(|error| engine.health().note(inode.ino(), error))?.into())
    }

    /// Releases the lock, as only a planted fault does before the end.
    pub(crate) fn release(&mut self) {
        self.guard = None;
    }
}

impl XattrsLock<'_> {
    /// Returns the engine, and the inode that is locked.
    pub(super) fn place(&self) -> (&EngineRef, &Arc<Inode>) {
        (&self.node.engine, &self.node.inode)
    }

    /// Carries out the changes of `edit`, and sets the permissions in the same transaction.
    pub(super) fn apply(&self, edit: XattrEdit, permissions: Option<u16>) -> Result<()> {
        let (engine, inode) = self.place();
        self.carry_out(edit.finish(engine, inode)?, permissions)
    }

    /// Carries out `change`, and sets the permissions in the same transaction.
    pub(super) fn carry_out(&self, change: XattrChange, permissions: Option<u16>) -> Result<()> {
        let (engine, inode) = self.place();
        let done = engine.with_space(|| {
            engine.transact(change.credits(), |handle| {
                change.apply(engine, handle, inode)?;
                inode.join(handle);
                if let Some(permissions) = permissions {
                    let mut core = inode.core();
                    core.mode = core.mode & !PERMISSIONS | permissions;
                }
                inode.touch_changed();
                Ok(())
            })
        });
        change.values.into_nodes().for_each(|node| self.drop_later(node));
        done
    }

    /// Drops a reference to the inode of a value once the lock is released.
    pub(super) fn drop_later(&self, value: InodeRef) {
        self.values.borrow_mut().push(value);
    }

    /// Returns the change of the attributes that a change of the permissions needs.
    pub(crate) fn change_for_permissions(&self, permissions: u16) -> Result<XattrChange> {
        let edit = self.load()?;
        let Some(stored) = self.value(&edit, ACL_ACCESS, b"")? else { return Ok(XattrChange::default()) };
        let mut acl = self.node.stored_acl(&stored)?;
        acl.set_permissions(permissions);
        self.node.change_of(self, edit, ACCESS, acl.to_disk())
    }
}
