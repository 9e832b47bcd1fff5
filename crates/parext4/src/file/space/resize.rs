//! Setting a file's size.

use rangelock::ByteRange;

use crate::engine::Orphans;
use crate::error::Result;
use crate::file::DirectFile;
use crate::inode::FIXED;
use crate::operation::Operation;

impl DirectFile {
    /// Sets the size in bytes: truncates the file, or extends it with a hole, which reads as zeros.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(&parext4::AlignedBuf::from_slice(&[7; 12288]))?;
    /// file.set_len(4096)?;
    /// assert_eq!(file.size(), 4096);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::FileTooLarge`](crate::Error::FileTooLarge); [`Error::NotPermitted`](crate::Error::NotPermitted) for a
    /// file that is immutable or append-only; or the errors of the device.
    pub fn set_len(&self, size: u64) -> Result<()> {
        let _in_flight = self.begin_change(FIXED)?;
        self.node.end_of(0, size)?;
        if self.set_inline_len(size)? {
            return Ok(());
        }
        if size > self.inode().disk_size() {
            // The size on the device is about to cover cached data that was never written back. Data that other
            // threads write meanwhile reads as zeros after a crash, like that of any write past a hole.
            self.node.write_back_data()?;
        }
        let held = self.node.admit(Operation::SetLen { size })?;
        let old = self.size();
        if size > old {
            if held.admission.zero_tail {
                self.zero_tail(held.hold())?;
            }
        } else {
            self.check_tail(size)?;
            // Truncated data must not reappear when the file grows again.
            self.node.zero_rest_of_block(held.hold(), size)?;
            self.inode().set_tail_clean();
        }
        let result = self.change_size(size, old);
        if result.is_ok() {
            self.node.drop_cached(held.hold(), ByteRange::starting_at(size.min(old)));
        }
        if size <= old && result.is_ok() {
            self.engine().note_nothing_past_end(self.inode());
        }
        if size == 0 && old > 0 {
            self.inode().set_emptied();
        }
        // Appends that wait for this range lose the offsets that they claimed.
        self.inode().tail.lock().set(self.size());
        result
    }

    /// Checks that the blocks past `size` can be freed, before anything is changed.
    fn check_tail(&self, size: u64) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let tail = engine.layout.block_size.blocks_from(size);
        let body = engine.body(inode)?;
        let checked =
            body.check_from(tail.start()).and_then(|()| engine.read_bitmaps_from(inode, tail.start()));
        checked.map_err(|error| engine.health.note(inode.ino(), error))
    }

    /// Sets the size in one transaction, and frees the truncated blocks in that transaction and as many more as
    /// necessary.
    fn change_size(&self, size: u64, old: u64) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let tail = engine.layout.block_size.blocks_from(size);
        engine.allow_size(size)?;
        let credits = engine.map_credits(inode)? + Orphans::CREDITS;
        let done = engine.transact(credits, |handle| {
            inode.join(handle);
            inode.set_size(size);
            inode.touch_modified();
            if size > old || engine.remove_tail(handle, inode, tail)? {
                return Ok(true);
            }
            // Freeing the rest takes more transactions. After a crash, recovery of the orphan list continues it.
            engine.orphans.add(engine, handle, inode)?;
            Ok(false)
        })?;
        if done { Ok(()) } else { engine.finish_truncation(inode) }
    }
}
