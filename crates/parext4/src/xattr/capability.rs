//! File capabilities.

use parext4_format::inode::InodeFlags;

use super::{Edit, Name};
use crate::error::Result;
use crate::inode::Node;

/// The attribute that holds them.
const CAPABILITIES: &[u8] = b"security.capability";

impl Node {
    /// Removes the file capabilities, as a change of the contents does: also from an append-only file, whose attributes
    /// cannot be changed otherwise. The caller decides when this is due.
    ///
    /// # Errors
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) if the inode is immutable; corruption; if the volume may not be
    /// changed.
    pub fn remove_capabilities(&self) -> Result<()> {
        if self.get_xattr(CAPABILITIES)?.is_none() {
            return Ok(());
        }
        self.inode.check_flags(InodeFlags::IMMUTABLE)?;
        let name = Name::new(CAPABILITIES)?;
        let _xattrs = self.write_xattrs();
        let mut edit = Edit::load(&self.volume, &self.inode)?;
        // Another thread may have removed them.
        if edit.remove(name.index, name.rest) { self.carry_out(edit, None) } else { Ok(()) }
    }
}
