//! Files whose contents lie in the inode.
//!
//! Such a file has neither blocks nor pages: a write of its data is a change of its inode, in one
//! transaction. Responsible for reading and changing the contents there, and for moving them to a
//! block when they need one. The contents never return to the inode, as in the kernel.
//!
//! 1. An operation that changes the file checks without a lock whether the contents lie in the
//!    inode. If not, it goes on as for any file: they never will.
//! 2. It holds the whole file exclusively ([`Operation::ChangeInline`]), and checks again (H36).
//! 3. If the new contents fit the inode, it stores them there, under the lock of the attributes,
//!    which share the space.
//! 4. Otherwise it writes the contents to a free block that is [kept](crate::allocator) for it.
//!    Then one transaction allocates the block, maps it, and removes the contents from the inode.
//!    The commit flushes the device before (H8), so a crash leaves the contents in one of the two
//!    places. The operation releases the file and starts over at step 1.
//!
//! A read checks under its own range where the contents are.

use std::io::IoSlice;
use std::ops::Deref;

use parext4_device::AlignedBuf;
use rangelock::{Mode, RangeLock};

use super::DirectFile;
use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::inode_ref::Hold;
use crate::map_update::MOVE_CREDITS;
use crate::operation::Operation;

/// Where a write begins, and whether it must consist of whole sectors.
#[derive(Clone, Copy, Debug)]
pub(in crate::file) enum InlineWrite {
    /// At this byte.
    At(u64),
    /// At the end of the file.
    AtEnd,
    /// At this byte, in whole sectors or up to the end of the file.
    DirectAt(u64),
    /// At the end of the file, which is a multiple of the sector size.
    DirectAtEnd,
}

impl DirectFile {
    /// Returns true if the contents lie in the inode. May read the block map from the device.
    #[inline]
    pub(in crate::file) fn is_inline(&self) -> Result<bool> {
        Ok(self.engine().block_map(self.inode())?.is_inline())
    }

    /// Copies contents in the inode from byte `offset` on, and zeros after their end. Returns
    /// false, and copies nothing, if they are in blocks. `hold` covers the bytes.
    #[inline]
    pub(in crate::file) fn read_inline<L: Deref<Target = RangeLock>>(
        &self,
        hold: &Hold<L>,
        out: &mut [u8],
        offset: u64,
    ) -> Result<bool> {
        if !self.is_inline()? {
            return Ok(false);
        }
        hold.assert_covers(&self.node, offset, offset + out.len() as u64, Mode::Shared);
        let Some(contents) = self.inline_contents()? else { return Ok(false) };
        let rest = usize::try_from(offset).ok().and_then(|offset| contents.get(offset..)).unwrap_or_default();
        let (data, zeros) = out.split_at_mut(rest.len().min(out.len()));
        data.copy_from_slice(&rest[..data.len()]);
        zeros.fill(0);
        Ok(true)
    }

    /// Returns the contents in the inode, at most as many bytes as the file has; `None` if they are
    /// in blocks. A file that the kernel has made larger than its contents ends with a hole.
    pub(in crate::file) fn inline_contents(&self) -> Result<Option<Vec<u8>>> {
        let contents = self.engine().inline_contents(self.inode())?;
        Ok(contents.map(|mut contents| {
            contents.truncate(usize::try_from(self.size()).unwrap_or(usize::MAX));
            contents
        }))
    }

    /// Writes `bufs` to contents in the inode if they fit there, and returns the offset at which
    /// they were written. Otherwise, and if the contents are in blocks already, returns `None` with
    /// the contents in blocks. The caller holds no range.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::QuotaExceeded`];
    /// [`Error::FileTooLarge`](crate::Error::FileTooLarge);
    /// [`Error::Invalid`](crate::Error::Invalid) for a direct write that is not aligned;
    /// corruption; the errors of the device.
    pub(in crate::file) fn write_inline(
        &self,
        bufs: &[IoSlice<'_>],
        place: InlineWrite,
    ) -> Result<Option<u64>> {
        if !self.is_inline()? {
            return Ok(None);
        }
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.engine().with_space(|| {
            let _held = self.admit(Operation::ChangeInline)?;
            let size = self.size();
            let (offset, is_direct) = match place {
                InlineWrite::At(offset) => (offset, false),
                InlineWrite::AtEnd => (size, false),
                InlineWrite::DirectAt(offset) => (offset, true),
                InlineWrite::DirectAtEnd => (size, true),
            };
            let end = self.node.end_of(offset, len)?;
            if is_direct {
                self.node.check_offset(offset)?;
                self.node.check_len(len, end >= size)?;
            }
            let stored = self.change_inline(size.max(end), self.dates, |contents| {
                let mut at = to_usize(offset);
                for buf in bufs {
                    contents[at..at + buf.len()].copy_from_slice(buf);
                    at += buf.len();
                }
            })?;
            Ok(stored.then_some(offset))
        })
    }

    /// Sets the size of a file whose contents lie in the inode, if as many bytes fit there.
    /// Otherwise, and if the contents are in blocks already, returns false with the contents in
    /// blocks. The caller holds no range.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::QuotaExceeded`]; corruption; the errors of the device.
    pub(in crate::file) fn set_inline_len(&self, size: u64) -> Result<bool> {
        if !self.is_inline()? {
            return Ok(false);
        }
        self.engine().with_space(|| {
            let _held = self.admit(Operation::ChangeInline)?;
            let old = self.size();
            let stored = self.change_inline(size, true, |_| {})?;
            if stored && size == 0 && old > 0 {
                self.inode().set_emptied();
            }
            Ok(stored)
        })
    }

    /// Moves contents in the inode to blocks, for an operation that changes blocks. The caller
    /// holds no range.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::QuotaExceeded`]; corruption; the errors of the device.
    pub(in crate::file) fn ensure_blocks(&self) -> Result<()> {
        if !self.is_inline()? {
            return Ok(());
        }
        self.engine().with_space(|| {
            let _held = self.admit(Operation::ChangeInline)?;
            let _xattrs = self.node.lock_xattrs();
            self.inline_contents()?.map_or(Ok(()), |contents| self.move_out_of_inode(&contents))
        })
    }

    /// Makes contents in the inode `size` bytes long, has `edit` change them, and stores them. If
    /// they do not fit, moves the contents to blocks instead and returns false; also if they were
    /// moved before. The caller holds the whole file exclusively.
    fn change_inline(&self, size: u64, dates: bool, edit: impl FnOnce(&mut Vec<u8>)) -> Result<bool> {
        let (engine, inode) = (self.engine(), self.inode());
        let xattrs = self.node.lock_xattrs();
        let Some(mut contents) = self.inline_contents()? else { return Ok(false) };
        let capacity = engine.inline_capacity(inode)?;
        let Some(len) = usize::try_from(size).ok().filter(|&len| len <= capacity) else {
            self.move_out_of_inode(&contents)?;
            return Ok(false);
        };
        contents.resize(len, 0);
        edit(&mut contents);
        engine.transact(1, |handle| {
            engine.store_inline(handle, inode, &contents)?;
            inode.set_size(size);
            if dates {
                inode.touch_modified();
            }
            Ok(())
        })?;
        drop(xattrs);
        // No operation claims or announces an end while the contents lie in the inode.
        inode.tail.lock().set(size);
        Ok(true)
    }

    /// Moves `contents` from the inode to a block. The caller holds the whole file exclusively, and
    /// the lock of the attributes.
    fn move_out_of_inode(&self, contents: &[u8]) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let mut kept = None;
        if !contents.is_empty() {
            let quota = inode.reserve_quota(
                engine.layout().cluster_blocks().into(),
                0,
                engine.layout().block_size,
                self.credentials(),
            )?;
            let block = engine.allocator().keep_block(engine.first_goal(inode)?, self.credentials())?;
            let mut bytes = AlignedBuf::zeroed(to_usize(engine.block_size()));
            // The contents are shorter than an inode, which is no larger than a block.
            let space = bytes.get_mut(..contents.len()).ok_or(Error::FileTooLarge)?;
            space.copy_from_slice(contents);
            let at = self.node.device_offset(block.number(), 0);
            guarded!(Fault::MovedUnwritten, self.node.write_device(at, &[IoSlice::new(&bytes)])?);
            kept = Some((block, quota));
        }
        engine.transact(MOVE_CREDITS, |handle| {
            // The reservation of the quotas ends before the block is charged.
            let block = kept.map(|(block, _quota)| block.allocate(handle)).transpose()?;
            engine.move_out_of_inode(handle, inode, block)
        })?;
        // The block ends with zeros, and other blocks are holes.
        inode.set_tail_clean();
        Ok(())
    }
}
