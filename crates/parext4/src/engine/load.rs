//! Creating inodes in memory: from the device, and new ones.

use parext4_format::InodeNo;
use parext4_format::inode::Inode as RawInode;

use super::Engine;
use crate::error::{Error, Result};
use crate::inode::{Inode, InodeParts};
use crate::journal::Handle;
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Arc;

impl Engine {
    /// Returns the inode, from memory or the device.
    ///
    /// # Errors
    /// Returns an error for corruption, for a failed read, and for a number that is not in use.
    pub(crate) fn inode(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        let inode = self.inodes().get(ino, || self.load_inode(ino));
        inode.map_err(|error| self.health().note(ino, error))
    }

    fn load_inode(&self, ino: InodeNo) -> Result<Inode> {
        let inode = self.load_made(ino)?;
        let inode = inode
            .ok_or_else(|| Error::corrupt(format_args!("inode {ino}: its place in the table holds zeros")))?;
        self.check_in_use(ino)?;
        Ok(inode)
    }

    /// Fails if the volume is open for writing and the inode's number is offered to new inodes.
    fn check_in_use(&self, ino: InodeNo) -> Result<()> {
        if !self.is_read_only() && self.allocator().offers_inode(ino)? {
            return Err(Error::corrupt(format_args!(
                "inode {ino} has names, but its bitmap says that it is free"
            )));
        }
        Ok(())
    }

    /// Reads the inode from the device. `None` if its place in the table holds zeros, as for an
    /// inode that is being created, whose number is in use before its transaction closes.
    pub(crate) fn load_made(&self, ino: InodeNo) -> Result<Option<Inode>> {
        let place = self.allocator().inode_place(ino)?;
        let block = self.cache().read(place.block, BlockKind::InodeTable)?;
        let bytes = block.snapshot();
        let raw = bytes
            .get(place.offset..place.offset + usize::from(self.layout().inode_size))
            .ok_or_else(|| Error::corrupt(format_args!("inode {ino} lies outside its block")))?;
        if raw.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let mut raw = RawInode::parse(raw, self.superblock(), ino)?;
        // The larger inode is written with the first change of the inode.
        if !self.is_read_only() {
            raw.expand_extra(self.superblock().want_extra_isize());
        }
        Inode::build(self.inode_parts(ino, &raw, block, place.offset)?, raw, None).map(Some)
    }

    /// Creates a new inode at its zeroed place in the table. It becomes visible with a directory
    /// entry.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an inode of the number is in memory and has links.
    pub(crate) fn new_inode(
        &self,
        ino: InodeNo,
        mut raw: RawInode,
        table_block: Arc<MetaBlock>,
    ) -> Result<Arc<Inode>> {
        let place = self.allocator().inode_place(ino)?;
        raw.generation = self.next_generation();
        let parts = self.inode_parts(ino, &raw, table_block, place.offset)?;
        let inode = Arc::new(Inode::build_new(parts, raw, self.layout().block_size)?);
        // A deleted inode may still be there, but has no links.
        if self.inodes().present(ino).is_some_and(|earlier| earlier.core().links > 0) {
            return Err(Error::corrupt(format_args!("inode {ino} was free, but is in use")));
        }
        self.inodes().insert(Arc::clone(&inode));
        Ok(inode)
    }

    /// Returns the inode `ino` as a fast commit logged it, with an empty block map if its type has
    /// one. Its number was free.
    pub(crate) fn logged_inode(
        &self,
        ino: InodeNo,
        raw: RawInode,
        table_block: Arc<MetaBlock>,
    ) -> Result<Arc<Inode>> {
        let place = self.allocator().inode_place(ino)?;
        let parts = self.inode_parts(ino, &raw, table_block, place.offset)?;
        let inode = Arc::new(Inode::build_new(parts, raw, self.layout().block_size)?);
        self.inodes().insert(Arc::clone(&inode));
        Ok(inode)
    }

    /// Replaces an inode that is no longer in memory by what a fast commit logged. Joins it.
    pub(crate) fn replace_logged(
        &self,
        handle: &Handle<'_>,
        ino: InodeNo,
        raw: RawInode,
    ) -> Result<Arc<Inode>> {
        let place = self.allocator().inode_place(ino)?;
        let block = self.cache().read(place.block, BlockKind::InodeTable)?;
        let inode = self.logged_inode(ino, raw, block)?;
        inode.join(handle);
        Ok(inode)
    }

    /// Returns the parts of an inode besides its fields.
    fn inode_parts(
        &self,
        ino: InodeNo,
        raw: &RawInode,
        block: Arc<MetaBlock>,
        offset: usize,
    ) -> Result<InodeParts> {
        Ok(InodeParts {
            ino,
            seed: self.layout().seed.map(|seed| seed.inode(ino, raw.generation)),
            superblock: Arc::clone(self.superblock()),
            table_block: block,
            table_offset: offset,
            charge: self.inodes().charge(),
            clock: self.clock(),
            charges: self.charges_of(ino, raw)?,
        })
    }
}
