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
    /// [`Error::FileTooLarge`](crate::Error::FileTooLarge);
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) for a file that is immutable or
    /// append-only; or the errors of the device.
    pub fn set_len(&self, size: u64) -> Result<()> {
        let _in_flight = self.begin_change(FIXED)?;
        self.node.end_of(0, size)?;
        if self.set_inline_len(size)? {
            return Ok(());
        }
        if size > self.inode().disk_size() {
            // The size on the device is about to cover cached data that was never written back.
            // Data that other threads write meanwhile reads as zeros after a crash, like that of
            // any write past a hole.
            self.node.write_back_data()?;
        }
        let held = self.admit(Operation::SetLen { size })?;
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
        let tail = engine.layout().block_size.blocks_from(size);
        let block_map = engine.block_map(inode)?;
        let checked =
            block_map.check_from(tail.start()).and_then(|()| engine.read_bitmaps_from(inode, tail.start()));
        checked.map_err(|error| engine.health().note(inode.ino(), error))
    }

    /// Sets the size in one transaction, and frees the truncated blocks in that transaction and as
    /// many more as necessary.
    fn change_size(&self, size: u64, old: u64) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let tail = engine.layout().block_size.blocks_from(size);
        engine.allow_size(size)?;
        let credits = engine.map_credits(inode)? + Orphans::CREDITS;
        let done = engine.transact(credits, |handle| {
            inode.join(handle);
            inode.set_size(size);
            inode.touch_modified();
            if size > old || engine.remove_tail(handle, inode, tail)? {
                return Ok(true);
            }
            // Freeing the rest takes more transactions. After a crash, recovery of the orphan list
            // continues it.
            engine.orphans().add(engine, handle, inode)?;
            Ok(false)
        })?;
        if done {
            return Ok(());
        }
        // A later growth would show the blocks that are left.
        engine.finish_truncation(inode).map_err(|error| engine.health().stop(error))
    }
}

#[cfg(test)]
mod tests {
    use parext4_device::{FaultDevice, FaultKind, FaultPlan, MemDevice};

    use crate::error::Result;
    use crate::file::{DirectFile, FileSize, OpenOptions};
    use crate::journal::EmptiedLog;
    use crate::memory::Evict;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::sync::Arc;
    use crate::volume::{Volume, VolumeOptions};

    const SIZE: u64 = 84 << 20;

    /// Returns a volume with small groups, and the device below it. A file has 1100 runs in some
    /// groups, and one run in each of as many groups as several transactions free. No bitmap is in
    /// memory.
    fn volume() -> (Volume, Arc<FaultDevice>) {
        let memory = Arc::new(MemDevice::new(128 << 20));
        let options = MkfsOptions::new().block_size(1024).blocks_per_group(256).journal_blocks(1024);
        mkfs(&*memory, &options).unwrap();
        let device = Arc::new(FaultDevice::new(memory, FaultPlan::default()));
        let options = VolumeOptions::new().commit_interval(None);
        let volume = Volume::open_device(Arc::clone(&device) as _, &options).unwrap();
        let file = volume.open_direct("/file", &OpenOptions::read_write().create_new(true)).unwrap();
        (0..1100).for_each(|run| file.allocate(run * 2048..run * 2048 + 1024, FileSize::Extend).unwrap());
        file.allocate(4 << 20..SIZE, FileSize::Extend).unwrap();
        volume.empty_journal(EmptiedLog::Kept).unwrap();
        (0..2000).for_each(|_| Evict::evict(&**volume.engine.allocator()));
        (0..4096).for_each(|_| Evict::evict(&**volume.engine.cache()));
        (volume, device)
    }

    /// The truncation reads the bitmaps of the first runs before its first change, and each of the
    /// rest when it needs it: also as the first step of a transaction.
    #[test]
    fn a_growth_does_not_show_what_a_failed_truncation_left() {
        const WRITTEN: u64 = 80 << 20;
        let write = |file: &DirectFile| file.write_all_at(&[1; 1024], WRITTEN);
        let growths: [fn(&DirectFile) -> Result<()>; 2] = [write, |file| file.set_len(SIZE)];
        for grow in growths {
            for n in 1.. {
                let (volume, device) = volume();
                let file = volume.open_direct("/file", &OpenOptions::read_write()).unwrap();
                device.arm(FaultPlan::at(n).kind(FaultKind::Reads));
                let truncated = file.set_len(0);
                if device.failed().is_none() {
                    truncated.unwrap();
                    assert!(n > 100, "too few bitmaps for several transactions");
                    break;
                }
                truncated.unwrap_err();
                if file.size() == 0 && grow(&file).is_ok() {
                    assert!(file.fiemap(0..WRITTEN).unwrap().is_empty(), "read {n}");
                }
            }
        }
    }
}
