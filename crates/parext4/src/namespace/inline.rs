//! Directories whose entries lie in the inode.
//!
//! Responsible for reading and changing the entries there, and for the space that a new one needs.
//! The entries change in place under a handle; whatever changes their length holds the lock of the
//! attributes too, which share the space. The entries never return to the inode, as in the kernel.

use parext4_format::dir_entry::inline::{self, InlineEntries};
use parext4_format::dir_entry::{entry_size, usable_len};
use parext4_format::inode::INLINE_BLOCK;
use parext4_format::{FileBlock, dir_entry};

use super::dir::Dir;
use crate::error::Result;
use crate::journal::Handle;
use crate::map_update::MOVE_CREDITS;

impl Dir<'_> {
    /// Returns the directory as one block without a tail if its entries lie in the inode. Their
    /// offsets are the ones that they keep in a block.
    pub(super) fn inline_image(&self) -> Result<Option<Vec<u8>>> {
        match self.inline_contents()? {
            Some(contents) => self.checked(inline::image(self.inode.ino(), &contents)).map(Some),
            None => Ok(None),
        }
    }

    fn inline_contents(&self) -> Result<Option<Vec<u8>>> {
        if !self.engine.block_map(self.inode)?.is_inline() {
            return Ok(None);
        }
        self.engine.inline_contents(self.inode)
    }

    /// Changes entries in the inode, in place. Joins the directory.
    pub(super) fn change_inline<T>(
        &self,
        handle: &Handle<'_>,
        change: impl FnOnce(&mut InlineEntries<'_>) -> parext4_format::Result<T>,
    ) -> Result<T> {
        self.inode.join(handle);
        let changed = {
            let mut core = self.inode.core();
            let parts = core.inline_parts_mut();
            parts.and_then(|(block, value)| change(&mut InlineEntries::new(block, value)))
        };
        self.checked(changed)
    }

    /// Returns true if the entries lie in the inode and one more with a name of `name_len` bytes
    /// has room there. Otherwise the entries are in blocks when it returns. Extends or moves them
    /// in a transaction of its own, so the change is complete even if the insertion that needs it
    /// fails. The caller holds no handle.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace),
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded). Corruption.
    pub(super) fn make_inline_room(&self, name_len: usize) -> Result<bool> {
        let Some(contents) = self.inline_contents()? else { return Ok(false) };
        if self.checked(inline::has_room(&contents, name_len))? {
            return Ok(true);
        }
        // Holders of the lock of the entries acquire this lock for one inode at a time.
        let _xattrs = self.inode.xattrs.write();
        let capacity = self.engine.inline_capacity(self.inode)?;
        let has_room = capacity.saturating_sub(INLINE_BLOCK) >= entry_size(name_len);
        if let Some(extended) = inline::extended(&contents, capacity).filter(|_| has_room) {
            self.engine.transact(1, |handle| {
                self.engine.store_inline(handle, self.inode, &extended)?;
                self.inode.set_size(extended.len() as u64);
                Ok(())
            })?;
            return Ok(true);
        }
        let image = self.checked(inline::image(self.inode.ino(), &contents))?;
        self.engine.with_space(|| self.move_to_block(&image))?;
        Ok(false)
    }

    fn move_to_block(&self, image: &[u8]) -> Result<()> {
        if image.len() > usable_len(self.block_len(), self.has_tail()) {
            return Err(self.corrupt(format_args!("{} bytes of entries do not fit a block", image.len())));
        }
        let (engine, tail) = (self.engine, self.has_tail());
        engine.transact(MOVE_CREDITS, |handle| {
            let quota = self.inode.reserve_quota(
                engine.layout().cluster_blocks().into(),
                0,
                engine.layout().block_size,
                engine.credentials(),
            )?;
            let goal = engine.first_goal(self.inode)?;
            let block = engine.allocator().allocate_block(handle, goal, engine.credentials())?;
            // The reservation ends before the block is charged.
            drop(quota);
            engine.move_out_of_inode(handle, self.inode, Some(block))?;
            self.init_block(handle, FileBlock::ZERO, |bytes| {
                inline::move_to_block(image, bytes, tail)?;
                if !self.has_types() {
                    dir_entry::clear_dot_types(bytes);
                }
                Ok(())
            })
        })
    }

    /// Returns true if entries in the inode are only `.` and `..`; `None` if the entries are in
    /// blocks.
    pub(super) fn is_empty_inline(&self) -> Result<Option<bool>> {
        let Some(image) = self.inline_image()? else { return Ok(None) };
        self.checked(dir_entry::is_empty_dir_block(&image, false)).map(Some)
    }
}
