//! Maps a file's bytes to device offsets, as FIEMAP does.

use std::ops::Range;

use rangelock::ByteRange;

use crate::error::Result;
use crate::file::DirectFile;
use crate::mapping::BlockState;

/// Bytes of a file that are contiguous on the device and in one state, from [`DirectFile::fiemap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Offset on the device, in bytes.
    pub device_offset: u64,
    /// Length, in bytes.
    pub len: u64,
    /// True if the blocks are allocated but not written: they read as zeros.
    pub unwritten: bool,
    /// True if the bytes lie in the inode, and are not aligned to blocks.
    pub inline: bool,
    /// True if no block after this extent is mapped.
    pub last: bool,
}

impl DirectFile {
    /// Returns the extents of the bytes in `range`, in order, including blocks past the end of the
    /// file, and without holes. The result is a snapshot: the call waits for no operation, and
    /// writes may be in flight.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(4096), 8192)?;
    /// let extents = file.fiemap(0..u64::MAX)?;
    /// assert_eq!((extents[0].offset, extents[0].len, extents[0].last), (8192, 4096, true));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a corrupt map.
    pub fn fiemap(&self, range: Range<u64>) -> Result<Vec<FileExtent>> {
        self.node.write_back_data()?;
        if let Some(contents) = self.inline_contents()? {
            return Ok(self.inline_extent(contents.len() as u64, range).into_iter().collect());
        }
        let unit = self.engine().layout().block_size;
        // The lock keeps the extents in place.
        let block_map = self.engine().block_map(self.inode())?;
        let _locked = block_map.lock();
        let mapped = block_map.end()?;
        let end = range.end.min(mapped << unit.bits());
        if range.start >= end {
            return Ok(Vec::new());
        }
        let blocks = self.node.blocks_of(ByteRange::new(range.start, end));
        let mut extents: Vec<FileExtent> = Vec::new();
        for run in block_map.runs(blocks) {
            let run = run?;
            let last = run.end() == mapped;
            let (physical, unwritten) = match run.state {
                BlockState::Written(physical) => (physical, false),
                BlockState::Unwritten(physical) if block_map.has_unwritten() => (physical, true),
                // Blocks of a write in flight are not on the device yet.
                BlockState::Hole | BlockState::Unwritten(_) => {
                    extents.iter_mut().last().into_iter().for_each(|extent| extent.last |= last);
                    continue;
                }
            };
            let bytes = unit.bytes_of(run.blocks());
            extents.push(FileExtent {
                offset: bytes.start,
                device_offset: self.node.device_offset(physical, 0),
                len: bytes.end - bytes.start,
                unwritten,
                inline: false,
                last,
            });
        }
        Ok(extents)
    }

    /// Returns the extent of `len` bytes in the inode, unless they end before `range`. As the
    /// kernel does, gives the place of the first of them for all.
    fn inline_extent(&self, len: u64, range: Range<u64>) -> Option<FileExtent> {
        let device_offset = self.inode().inline_offset(self.engine().layout().block_size);
        let extent = FileExtent { offset: 0, device_offset, len, unwritten: false, inline: true, last: true };
        (range.start < len.min(range.end)).then_some(extent)
    }
}
