//! The block of extended attributes that an inode may have.
//!
//! Inodes may share a block, which counts them. Invariant: a block that several inodes share is not
//! overwritten. An inode whose attributes change gets a block of its own, and releases its
//! reference to the shared one.

use parext4_format::FsBlock;
use parext4_format::xattr;

use super::Engine;
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Arc;

impl Engine {
    /// Returns a block of attributes, verified.
    pub(crate) fn xattr_block(&self, number: FsBlock) -> Result<Arc<MetaBlock>> {
        self.layout().check_data_range(number, 1)?;
        self.cache().read(number, BlockKind::Xattr(self.layout().seed))
    }

    /// Returns the inode's block of attributes, if it has one.
    pub(crate) fn xattr_block_of(&self, inode: &Inode) -> Result<Option<Arc<MetaBlock>>> {
        let number = FsBlock(inode.core().file_acl);
        if number.get() == 0 { Ok(None) } else { self.xattr_block(number).map(Some) }
    }

    /// Writes the inode's attributes into its block. Returns true if the old contents of the block
    /// exist no more. Allocates a block, on behalf of a caller with `credentials`, if the inode has
    /// none or shares the one it has.
    pub(crate) fn write_xattr_block(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        bytes: &[u8],
        credentials: Credentials,
    ) -> Result<bool> {
        let old = FsBlock(inode.core().file_acl);
        if old.get() != 0 {
            let block = self.xattr_block(old)?;
            // parext4 adds no users to a block, so a block with one user keeps one.
            if xattr::refcount(&block.snapshot()) == 1 {
                handle.change(&block, |block| block.copy_from_slice(bytes));
                return Ok(true);
            }
        }
        let reserved = inode.reserve_quota(
            self.layout().cluster_blocks().into(),
            0,
            self.layout().block_size,
            credentials,
        )?;
        let group = self.allocator().group_of_inode(inode.ino())?;
        let goal = self.allocator().goal_in_group(group, inode.ino().get());
        let number = self.allocator().allocate_block(handle, goal, credentials)?;
        let block = self.cache().create(number, BlockKind::Xattr(self.layout().seed))?;
        handle.change(&block, |block| block.copy_from_slice(bytes));
        let is_last = self.release_xattr_block(handle, inode)?;
        inode.join(handle);
        inode.core().file_acl = number.get();
        drop(reserved);
        inode.add_blocks(handle, self.layout().cluster_blocks().into(), self.layout().block_size);
        Ok(is_last)
    }

    /// Releases the inode's reference to its block of attributes, if it has one, and frees the
    /// block with the last one. Returns true if this was the last one.
    pub(crate) fn release_xattr_block(&self, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<bool> {
        self.release_xattr_block_if(handle, inode, |_| true)
    }

    /// Like [`release_xattr_block`](Self::release_xattr_block), but leaves the block to its last
    /// user if `may_free` is false for its contents. Returns false only then.
    pub(crate) fn try_release_xattr_block(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        may_free: impl Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.release_xattr_block_if(handle, inode, may_free)?;
        Ok(inode.core().file_acl == 0)
    }

    fn release_xattr_block_if(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        may_free: impl Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        let number = FsBlock(inode.core().file_acl);
        if number.get() == 0 {
            return Ok(true);
        }
        let block = self.xattr_block(number)?;
        // In one step, because other inodes may release their references to the block at the same
        // time.
        let references = handle.change(&block, |bytes| match xattr::refcount(bytes) {
            1 if !may_free(bytes) => None,
            references => {
                if let Some(left) = references.checked_sub(1) {
                    xattr::set_refcount(bytes, left);
                }
                Some(references)
            }
        });
        let Some(references) = references else { return Ok(false) };
        inode.join(handle);
        inode.core().file_acl = 0;
        inode.sub_blocks(handle, self.layout().cluster_blocks().into(), self.layout().block_size);
        match references {
            0 => Err(Error::corrupt_field("xattr block", "h_refcount", 0).in_block(number)),
            1 => self.allocator().free_metadata(handle, number, 1).map(|()| true),
            _ => Ok(false),
        }
    }
}
