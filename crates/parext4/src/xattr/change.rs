//! Carrying out changes of attributes: the inode's bytes, its block, and who else uses that.

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

/// What becomes of an inode's attributes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    /// The bytes behind its fields, if they change.
    pub(super) body: Option<Vec<u8>>,
    pub(super) block: BlockChange,
}

/// What becomes of the block.
#[derive(Clone, Debug, Default)]
pub(super) enum BlockChange {
    #[default]
    Keep,
    Drop,
    /// With a count of one.
    Write(Vec<u8>),
}

impl Change {
    /// Blocks that [`apply`](Self::apply) and the inode register.
    pub(crate) fn credits(&self) -> u32 {
        // The inode and the superblock's features.
        let always = 2;
        match self.block {
            BlockChange::Keep => always,
            // The new block, the old one, or in its place what revokes it.
            _ => always + ALLOCATE_CREDITS + FREE_CREDITS + 3,
        }
    }

    /// Makes the change. The inode's `xattrs` are locked, or nobody else knows it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] with nothing changed; corruption.
    pub(crate) fn apply(&self, volume: &Inner, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        if matches!((&self.body, &self.block), (None, BlockChange::Keep)) {
            return Ok(());
        }
        // First what may fail.
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
    /// A block of attributes, checked.
    pub(super) fn xattr_block(&self, number: FsBlock) -> Result<Arc<MetaBlock>> {
        self.layout.check_data_range(number, 1)?;
        self.cache.read(number, BlockKind::Xattr(self.layout.seed))
    }

    /// Writes the inode's attributes into its block, or into a new one if it has none of its own.
    fn write_xattr_block(&self, handle: &Handle<'_>, inode: &Arc<Inode>, bytes: &[u8]) -> Result<()> {
        let old = FsBlock(inode.core().file_acl);
        if old.get() != 0 {
            let block = self.xattr_block(old)?;
            // Nobody adds users, so a block that is ours alone stays so.
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

    /// Gives up the inode's share in its block of attributes, if it has one.
    pub(crate) fn release_xattr_block(&self, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        let number = FsBlock(inode.core().file_acl);
        if number.get() == 0 {
            return Ok(());
        }
        let block = self.xattr_block(number)?;
        inode.join(handle);
        inode.core().file_acl = 0;
        inode.sub_blocks(1, self.layout.block_size);
        // In one step, because others that share the block may give it up at the same time.
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
