//! Finds the data and the holes of a file.

use std::ops::Range;

use parext4_format::BlockRange;

use crate::error::{Error, Result};
use crate::file::DirectFile;
use crate::mapping::{BlockState, Mapping};

impl DirectFile {
    /// Returns the first range of written data at or after byte `offset`, in bytes, ending no later
    /// than the file. Returns `None` if only holes and unwritten blocks follow. In a file that
    /// fs-verity protects all is data, because reading a hole verifies it.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(4096), 8192)?;
    /// assert_eq!(file.data_range(0)?, Some(8192..12288));
    /// assert_eq!(file.data_range(12288)?, None);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a corrupt map.
    pub fn data_range(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.node.write_back_data()?;
        let (size, unit) = (self.size(), self.engine().layout().block_size);
        if offset >= size {
            return Ok(None);
        }
        if self.inode().has_verity() {
            return Ok(Some(offset..size));
        }
        if let Some(contents) = self.inline_contents()? {
            let end = contents.len() as u64;
            return Ok((offset < end).then_some(offset..end));
        }
        let block_map = self.engine().block_map(self.inode())?;
        // The lock keeps the extents in place.
        let _locked = block_map.lock();
        let mut rest = unit.blocks_touching(offset..size);
        let mut found: Option<Range<u64>> = None;
        while !rest.is_empty() {
            let run = block_map.lookup(rest.start(), rest.count())?;
            match (run.state, &mut found) {
                (BlockState::Written(_), None) => found = Some(run.logical.to_u64()..run.end()),
                (BlockState::Written(_), Some(found)) => found.end = run.end(),
                (_, Some(_)) => break,
                (_, None) => {}
            }
            rest = BlockRange::clamped(run.end(), rest.end());
        }
        let bytes = |block: u64| block << unit.bits();
        Ok(found.map(|blocks| bytes(blocks.start).max(offset)..bytes(blocks.end).min(size)))
    }

    /// Returns the first byte at or after `offset` that was written (`SEEK_DATA`). Unwritten blocks
    /// count as holes.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(4096), 8192)?;
    /// assert_eq!(file.seek_data(100)?, 8192);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NothingAfter`] if there is none; a corrupt map.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.data_range(offset)?.map(|data| data.start).ok_or(Error::NothingAfter(offset))
    }

    /// Returns the first byte at or after `offset` that is in a hole (`SEEK_HOLE`). The end of the
    /// file counts as a hole.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(4096), 8192)?;
    /// assert_eq!(file.seek_hole(0)?, 0);
    /// assert_eq!(file.seek_hole(8192)?, 12288, "the end of the file");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NothingAfter`] if the file ends at or before `offset`; a corrupt map.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        if offset >= self.size() {
            return Err(Error::NothingAfter(offset));
        }
        Ok(match self.data_range(offset)? {
            Some(data) if data.start <= offset => data.end,
            _ => offset,
        })
    }

    /// Returns the device range of the written data that starts at byte `offset`, in bytes of the
    /// device, up to where it stops being contiguous. Returns `None` if no data is written there.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(4096), 8192)?;
    /// assert_eq!(file.device_range(0)?, None, "a hole");
    /// assert!(file.device_range(8192)?.is_some());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a corrupt map.
    pub fn device_range(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.node.write_back_data()?;
        let layout = self.engine().layout();
        let unit = layout.block_size;
        let Some(block) = unit.block_at(offset) else { return Ok(None) };
        // A run is contiguous on the device, and as long as it can be.
        let run =
            self.engine().block_map(self.inode())?.runs(BlockRange::starting_at(block)).next().transpose()?;
        let Some(Mapping { state: BlockState::Written(start), len, .. }) = run else { return Ok(None) };
        let first = layout.offset(start);
        Ok(Some(first + u64::from(unit.offset_in_block(offset))..first + (u64::from(len) << unit.bits())))
    }
}
