//! Makes room for the extra fields of an inode, by moving attributes from the inode to its block,
//! as the kernel does before an inode changes (`ext4_expand_extra_isize_ea`). Fields for which
//! there is room at once are added when an inode is loaded.

use parext4_format::inode::InodeFlags;
use parext4_format::xattr::{self, Xattr};

use super::{XattrEdit, XattrsLock};
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;

impl InodeRef {
    /// Implements
    /// [`ServerInode::make_room_for_fields`](crate::server::ServerInode::make_room_for_fields).
    pub(crate) fn make_room_for_fields(&self) {
        if self.inode.take_lack_of_fields()
            && !self.engine.is_read_only()
            && let Err(error) = self.expand_fields()
        {
            log::debug!("inode {}: no room for more fields: {error}", self.ino());
        }
    }

    fn expand_fields(&self) -> Result<()> {
        let flags = self.inode.flags();
        if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let superblock = self.engine.superblock();
        let xattrs = self.lock_xattrs();
        let edit = xattrs.load()?;
        for size in [superblock.want_extra_isize(), superblock.min_extra_isize()] {
            let grows_by = size.saturating_sub(self.inode.core().extra_isize);
            if grows_by == 0 {
                break;
            }
            let mut edit = edit.clone();
            if !edit.move_to_block(grows_by.into()) {
                continue;
            }
            match xattrs.apply_and_expand(edit, size) {
                Err(Error::NoSpace | Error::QuotaExceeded(_)) => {}
                done => return done,
            }
        }
        Ok(())
    }
}

impl XattrEdit {
    /// Moves attributes from the inode to the block until the inode has `len` bytes to spare.
    /// Chooses as the kernel does: the smallest attribute that suffices alone, else the last one.
    /// Returns false if the block has no room.
    fn move_to_block(&mut self, len: usize) -> bool {
        let Some(left) = self.body.len.checked_sub(len) else { return false };
        let fits = |list: &[Xattr]| xattr::encode_ibody(list, left).is_some();
        while !fits(&self.body.list) {
            let without = |index: usize| {
                let mut rest = self.body.list.clone();
                let moved = rest.remove(index);
                (rest, moved)
            };
            let may_move = |index: &usize| {
                let moved = &self.body.list[*index];
                let block = [&self.block.list[..], std::slice::from_ref(moved)].concat();
                !xattr::is_inline_data(moved) && xattr::encode_block(&block, self.block.len).is_some()
            };
            let movable: Vec<usize> = (0..self.body.list.len()).filter(may_move).collect();
            let suffice = movable.iter().copied().filter(|&index| fits(&without(index).0));
            let smallest = suffice.min_by_key(|&index| self.body.list[index].stored_len());
            let Some(index) = smallest.or(movable.last().copied()) else { return false };
            let (rest, moved) = without(index);
            self.body.list = rest;
            self.block.list.push(moved);
            (self.body.changed, self.block.changed) = (true, true);
        }
        true
    }
}

impl XattrsLock<'_> {
    /// Carries out the changes of `edit`, and extends the inode's extra fields to `size` bytes in
    /// the same transaction.
    fn apply_and_expand(&self, edit: XattrEdit, size: u16) -> Result<()> {
        let (engine, inode) = self.place();
        let change = edit.finish(engine, inode)?;
        // Does not wait for space: the inode works without the fields.
        let done = engine.transact(change.credits(), |handle| {
            change.apply(engine, handle, inode)?;
            inode.join(handle);
            inode.core().expand_extra(size);
            Ok(())
        });
        change.values.into_nodes().for_each(|node| self.drop_later(node));
        done
    }
}
