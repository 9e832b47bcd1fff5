//! Changes of attributes, carried out under a handle: the bytes in the inode, and the inode's block of attributes.
//!
//! Which attributes change is decided by `edit`. Invariant: a block that several inodes share is not overwritten. An inode
//! whose attributes change gets a block of its own, and releases its reference to the shared one.

use parext4_format::FsBlock;
use parext4_format::features::Compat;
use parext4_format::xattr;

use crate::allocator::{ALLOCATE_CREDITS, FREE_CREDITS};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Arc;
use crate::volume::Inner;

/// A change of an inode's attributes, which is computed before the handle begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct XattrChange {
    /// The new bytes after the inode's fields; `None` if they do not change.
    pub(super) body: Option<Vec<u8>>,
    pub(super) block: BlockChange,
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
        let always = 2;
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
    /// [`Error::NoSpace`], with nothing changed; corruption; a failed read.
    pub(crate) fn apply(&self, volume: &Inner, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        if matches!((&self.body, &self.block), (None, BlockChange::Keep)) {
            return Ok(());
        }
        // The block comes first, because this may fail.
        match &self.block {
            BlockChange::Keep => {}
            BlockChange::Drop => volume.release_xattr_block(handle, inode)?,
            BlockChange::Write(bytes) => volume.write_xattr_block(handle, inode, bytes)?,
        }
        if let Some(body) = &self.body {
            inode.join(handle);
            inode.core().xattr_area_mut().copy_from_slice(body);
        }
        volume.counts().add_compat(handle, Compat::EXT_ATTR);
        Ok(())
    }
}

impl Inner {
    /// Returns a block of attributes, verified.
    pub(super) fn xattr_block(&self, number: FsBlock) -> Result<Arc<MetaBlock>> {
        self.layout.check_data_range(number, 1)?;
        self.cache.read(number, BlockKind::Xattr(self.layout.seed))
    }

    /// Writes the inode's attributes into its block. Allocates a block if the inode has none, or shares the one it has.
    fn write_xattr_block(&self, handle: &Handle<'_>, inode: &Arc<Inode>, bytes: &[u8]) -> Result<()> {
        let old = FsBlock(inode.core().file_acl);
        if old.get() != 0 {
            let block = self.xattr_block(old)?;
            // parext4 adds no users to a block, so a block with one user keeps one.
            if xattr::refcount(&block.snapshot()) == 1 {
                handle.change(&block, |block| block.copy_from_slice(bytes));
                return Ok(());
            }
        }
        let group = self.allocator.group_of_inode(inode.ino())?;
        let goal = self.allocator.goal_in_group(group, inode.ino().get());
        let number = self.allocator.allocate_block(handle, goal)?;
        let block = self.cache.create(number, BlockKind::Xattr(self.layout.seed))?;
        handle.change(&block, |block| block.copy_from_slice(bytes));
        self.release_xattr_block(handle, inode)?;
        inode.join(handle);
        inode.core().file_acl = number.get();
        inode.add_blocks(1, self.layout.block_size);
        Ok(())
    }

    /// Releases the inode's reference to its block of attributes, if it has one, and frees the block with the last one.
    pub(crate) fn release_xattr_block(&self, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        let number = FsBlock(inode.core().file_acl);
        if number.get() == 0 {
            return Ok(());
        }
        let block = self.xattr_block(number)?;
        inode.join(handle);
        inode.core().file_acl = 0;
        inode.sub_blocks(1, self.layout.block_size);
        // In one step, because other inodes may release their references to the block at the same time.
        let references = handle.change(&block, |bytes| {
            let references = xattr::refcount(bytes);
            if let Some(left) = references.checked_sub(1) {
                xattr::set_refcount(bytes, left);
            }
            references
        });
        match references {
            0 => Err(Error::corrupt(format_args!("xattr block {number}: h_refcount is 0"))),
            1 => self.allocator.free_metadata(handle, number, 1),
            _ => Ok(()),
        }
    }
}
