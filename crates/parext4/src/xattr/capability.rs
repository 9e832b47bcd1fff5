//! File capabilities, which are an attribute.

use parext4_format::inode::InodeFlags;

use super::XattrName;
use crate::error::Result;
use crate::inode_ref::InodeRef;

/// The attribute that contains the capabilities.
const CAPABILITIES: &[u8] = b"security.capability";

impl InodeRef {
    /// Implements
    /// [`ServerInode::remove_capabilities`](crate::server::ServerInode::remove_capabilities).
    pub(crate) fn remove_capabilities(&self) -> Result<()> {
        self.engine.in_flight().check_open()?;
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
