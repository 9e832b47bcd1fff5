//! Changes of attributes, carried out under a handle: the bytes in the inode, and the inode's block of attributes.
//!
//! Which attributes change is decided by `edit`.

use parext4_format::features::Compat;

use super::values::ValueChanges;
use crate::allocator::{ALLOCATE_CREDITS, FREE_CREDITS};
use crate::engine::Use;
use crate::error::Result;
use crate::inode::Inode;
use crate::journal::Handle;
use crate::sync::Arc;

/// A change of an inode's attributes, which is computed before the handle begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct XattrChange {
    /// The new bytes after the inode's fields; `None` if they do not change.
    pub(super) body: Option<Vec<u8>>,
    pub(super) block: BlockChange,
    /// References to values in inodes of their own.
    pub(super) values: ValueChanges,
}

/// What happens to the inode's block of attributes.
#[derive(Clone, Debug, Default)]
pub(super) enum BlockChange {
    #[default]
    Keep,
    Drop,
    /// Writes these bytes, which have a reference count of 1.
    Write(Vec<u8>),
}

impl XattrChange {
    /// Returns the number of blocks that [`apply`](Self::apply) registers, and the inode with it.
    pub(crate) fn credits(&self) -> u32 {
        // The inode, and the superblock with its features.
        let always = 2 + self.values.credits();
        match self.block {
            BlockChange::Keep => always,
            // The new block, and either the old one or the block of revoke records that lists it.
            _ => always + ALLOCATE_CREDITS + FREE_CREDITS + 3,
        }
    }

    /// Carries out the change under `handle`. The caller holds the lock of the inode's attributes, or is the only thread that
    /// knows the inode.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), with nothing changed; corruption; a failed read.
    pub(crate) fn apply(&self, engine: &Use, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        if matches!((&self.body, &self.block), (None, BlockChange::Keep)) {
            return Ok(());
        }
        // The block comes first, because this may fail.
        let old_block_ended = match &self.block {
            BlockChange::Keep => false,
            BlockChange::Drop => engine.release_xattr_block(handle, inode)?,
            BlockChange::Write(bytes) => {
                engine.write_xattr_block(handle, inode, bytes, engine.credentials())?
            }
        };
        self.values.apply(engine, handle, inode, old_block_ended)?;
        if let Some(body) = &self.body {
            inode.join(handle);
            inode.core().xattr_area_mut().copy_from_slice(body);
        }
        engine.counts().add_compat(handle, Compat::EXT_ATTR);
        Ok(())
    }
}
