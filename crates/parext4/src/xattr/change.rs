//! Changes of attributes, carried out under a handle: the bytes in the inode, and the inode's block
//! of attributes.
//!
//! Which attributes change is decided by `edit`.

use parext4_format::features::Compat;
use parext4_format::inode::Inode as RawInode;
use parext4_format::xattr::Xattr;

use super::values::ValueChanges;
use crate::allocator::{ALLOCATE_CREDITS, FREE_CREDITS};
use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::sync::Arc;

/// A change of an inode's attributes, which is computed before the handle begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct XattrChange {
    /// The new attributes after the inode's fields; `None` if they do not change. They fit.
    pub(super) body: Option<Vec<Xattr>>,
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
    /// Makes `raw`, an inode that is about to be created with these attributes, one with `contents`
    /// in it. Returns false, and changes nothing, if there is no room for them.
    pub(crate) fn make_inline(&self, raw: &mut RawInode, contents: &[u8]) -> bool {
        raw.make_inline(contents, self.body.as_deref().unwrap_or_default())
    }

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

    /// Returns by how many the number of values that have inodes of their own changes.
    pub(crate) fn added_values(&self) -> i64 {
        self.values.added()
    }

    /// Carries out the change under `handle`. The caller holds the lock of the inode's attributes,
    /// or is the only thread that knows the inode.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), with nothing changed; corruption; a failed read.
    pub(crate) fn apply(&self, engine: &EngineRef, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        if matches!((&self.body, &self.block), (None, BlockChange::Keep)) {
            return Ok(());
        }
        let quota = self.values.reserve_quota(engine, inode)?;
        // The block comes first, because this may fail.
        let old_block_ended = match &self.block {
            BlockChange::Keep => false,
            BlockChange::Drop => engine.release_xattr_block(handle, inode)?,
            BlockChange::Write(bytes) => {
                engine.write_xattr_block(handle, inode, bytes, engine.credentials())?
            }
        };
        drop(quota);
        self.values.apply(engine, handle, inode, old_block_ended)?;
        if let Some(body) = &self.body {
            inode.join(handle);
            // Contents in the inode may have changed in place since the attributes were read. Their
            // length has not: that needs the lock of the attributes too.
            let stored = inode.core().set_ibody_xattrs(body).map_err(|error| error.of_inode(inode.ino()))?;
            if !stored {
                let ino = inode.ino();
                return Err(Error::corrupt(format_args!("inode {ino}: no room for its own attributes")));
            }
        }
        engine.counts().add_compat(handle, Compat::EXT_ATTR);
        Ok(())
    }
}
