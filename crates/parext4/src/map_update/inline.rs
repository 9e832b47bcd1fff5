//! Moving the contents of an inode to blocks.
//!
//! Responsible for the format of the inode: the map, the flags, and the attribute that held the
//! contents. Not responsible for the contents: the caller has written them to the block, or writes
//! them under the same handle.

use parext4_format::extent::Extent;
use parext4_format::features::Incompat;
use parext4_format::inode::InodeFlags;
use parext4_format::{FileBlock, FsBlock};

use crate::allocator::ALLOCATE_CREDITS;
use crate::block_map::{BlockMap, BlockMapRoot};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::sync::Arc;

/// Maximum number of blocks that moving the contents of an inode registers: the blocks that the
/// allocator registers, the inode, and the block of a directory.
pub(crate) const MOVE_CREDITS: u32 = ALLOCATE_CREDITS + 2;

/// Returns the error of a change of the blocks of an inode whose contents lie in it. Each operation
/// moves them to blocks first.
pub(super) fn has_no_blocks(inode: &Inode) -> Error {
    Error::corrupt(format_args!("inode {}: its contents lie in the inode, not in blocks", inode.ino()))
}

impl Engine {
    /// Returns the contents that lie in the inode, at least 60 bytes, whatever its size; `None` if
    /// they are in blocks.
    ///
    /// # Errors
    /// Corruption.
    pub(crate) fn inline_contents(&self, inode: &Inode) -> Result<Option<Vec<u8>>> {
        let contents = {
            let core = inode.core();
            if !core.flags.contains(InodeFlags::INLINE_DATA) {
                return Ok(None);
            }
            core.inline_contents()
        };
        self.noted(inode, contents).map(Some)
    }

    /// Returns the number of bytes that the inode has room for, beside its attributes. The caller
    /// holds their lock.
    ///
    /// # Errors
    /// Corruption.
    pub(crate) fn inline_capacity(&self, inode: &Inode) -> Result<usize> {
        let capacity = inode.core().inline_capacity();
        self.noted(inode, capacity)
    }

    /// Replaces the contents in the inode. Joins the inode. The caller holds the lock of its
    /// attributes, and has checked that the contents fit.
    ///
    /// # Errors
    /// Corruption.
    pub(crate) fn store_inline(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        contents: &[u8],
    ) -> Result<()> {
        inode.join(handle);
        let stored = inode.core().set_inline_contents(contents);
        if self.noted(inode, stored)? {
            return Ok(());
        }
        let (ino, len) = (inode.ino(), contents.len());
        Err(Error::corrupt(format_args!("inode {ino}: no room for {len} bytes of contents")))
    }

    /// Zeroes what the inode has of its contents past its size, for a truncation that a crash
    /// interrupted.
    ///
    /// # Errors
    /// Corruption.
    pub(crate) fn cut_inline(&self, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        let Some(mut contents) = self.inline_contents(inode)? else { return Ok(()) };
        contents.truncate(usize::try_from(inode.size()).unwrap_or(usize::MAX));
        self.store_inline(handle, inode, &contents)
    }

    fn noted<T>(&self, inode: &Inode, result: parext4_format::Result<T>) -> Result<T> {
        result.map_err(|error| self.health().note(inode.ino(), error.of_inode(inode.ino()).into()))
    }

    /// Makes an inode whose contents lie in it one with blocks. `first` is the allocated block of
    /// the contents; `None` if they are empty. Joins the inode.
    ///
    /// The caller holds the range of the whole file, or the lock of the directory's entries, and in
    /// either case the lock of the inode's attributes.
    ///
    /// # Errors
    /// An error means corruption; the volume then stops.
    pub(crate) fn move_out_of_inode(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        first: Option<FsBlock>,
    ) -> Result<()> {
        inode.join(handle);
        let (block_map, format) = self.block_map_outside(inode)?;
        if let Some(block) = first {
            let extent = Extent { logical: FileBlock::ZERO, physical: block, len: 1, unwritten: false };
            self.map_first(handle, inode, &block_map, extent)?;
        }
        // Before the contents: a query without a range that does not find them finds the block.
        if !inode.replace_block_map(block_map) {
            return Err(has_blocks(inode));
        }
        let mut core = inode.core();
        core.remove_inline().map_err(|error| error.of_inode(inode.ino()))?;
        let flags = core.flags | format;
        inode.set_flags(&mut core, flags);
        Ok(())
    }

    /// Returns an empty block map in the format that contents get outside of the inode, and the
    /// flag of the format: a tree of extents if the volume has the feature, otherwise indirect
    /// blocks.
    fn block_map_outside(&self, inode: &Inode) -> Result<(BlockMap, InodeFlags)> {
        let (ino, seed) = (inode.ino(), inode.seed());
        if self.superblock().incompat().contains(Incompat::EXTENTS) {
            return Ok((BlockMap::empty(self.layout().block_size, ino, seed), InodeFlags::EXTENTS));
        }
        let flags = InodeFlags::empty();
        let root = BlockMapRoot { ino, seed, flags, block: [0; 60] };
        Ok((BlockMap::load(&root, self.layout(), self.cache(), true)?, flags))
    }

    /// Maps the first block of an empty block map, as written.
    fn map_first(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        block_map: &BlockMap,
        extent: Extent,
    ) -> Result<()> {
        match block_map {
            BlockMap::Extents(map) => self.map_extent(handle, inode, map, extent).map(drop),
            // The inode has the pointer to it.
            BlockMap::Indirect(map) => self.map_pointers(handle, inode, map, extent).map(drop),
            BlockMap::Inline(_) => Err(has_no_blocks(inode)),
        }
    }
}

fn has_blocks(inode: &Inode) -> Error {
    Error::corrupt(format_args!("inode {}: its contents left the inode twice", inode.ino()))
}
