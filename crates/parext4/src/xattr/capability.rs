//! File capabilities, which are an attribute.

use parext4_format::inode::InodeFlags;

use super::XattrName;
use crate::error::Result;
use crate::inode_ref::InodeRef;

/// The attribute that contains the capabilities.
const CAPABILITIES: &[u8] = b"security.capability";

impl InodeRef {
    /// Removes the file capabilities, as a change of the contents does. Works also on an append-only file, whose attributes
    /// cannot be changed otherwise. The caller decides when the capabilities must be removed. May block on the device.
    ///
    /// # Errors
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) if the inode is immutable; corruption; an error if the volume
    /// cannot be changed.
    pub fn remove_capabilities(&self) -> Result<()> {
        self.engine.in_flight.check_open()?;
        let name = XattrName::new(CAPABILITIES)?;
        if self.lock_xattrs_shared().load()?.get(name.index, name.rest).is_none() {
            return Ok(());
        }
        self.inode.check_flags(InodeFlags::IMMUTABLE)?;
        let xattrs = self.lock_xattrs();
        let mut edit = xattrs.load()?;
        // Another thread may have removed them before this one had the lock.
        if edit.remove(name.index, name.rest) { xattrs.apply(edit, None) } else { Ok(()) }
    }
}
