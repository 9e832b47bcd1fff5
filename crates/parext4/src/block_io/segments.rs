//! Splits a request into parts that are contiguous on the device.

use std::ops::Range;

use parext4_format::FsBlock;

use crate::convert::to_usize;
use crate::inode_ref::InodeRef;
use crate::mapping::{BlockState, Mapping};

/// One part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IoSegment {
    /// The bytes of the request.
    pub data: Range<usize>,
    /// The device offset, in bytes; `None` if the part reads as zeros.
    pub at: Option<u64>,
    /// Numbers of bytes of the block before the data, and after its last sector, that must be
    /// zeroed with the data.
    pub pads: (usize, usize),
}

/// A stretch of memory that a write hands to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteSlice {
    /// This number of zeros.
    Zeros(usize),
    /// Whole sectors of the request's data.
    Data(Range<usize>),
    /// The end of the data, less than a sector, followed by zeros up to the end of the sector.
    LastSector(Range<usize>),
}

impl WriteSlice {
    fn is_empty(&self) -> bool {
        match self {
            Self::Zeros(len) => *len == 0,
            Self::Data(data) | Self::LastSector(data) => data.is_empty(),
        }
    }
}

impl IoSegment {
    /// Returns the memory that a write hands to the device for this part, in order, for sectors of
    /// `sector` bytes.
    pub(crate) fn slices(&self, sector: usize) -> impl Iterator<Item = WriteSlice> + use<> {
        let (Range { start, end }, (head, tail)) = (self.data.clone(), self.pads);
        let cut = end - (end - start) % sector;
        let all = [
            WriteSlice::Zeros(head),
            WriteSlice::Data(start..cut),
            WriteSlice::LastSector(cut..end),
            WriteSlice::Zeros(tail),
        ];
        all.into_iter().filter(|slice| !slice.is_empty())
    }
}

/// Fills `sector` with `data`, the last of a write, and zeros.
pub(crate) fn fill_last_sector(sector: &mut [u8], data: &[u8]) {
    let (start, rest) = sector.split_at_mut(data.len());
    start.copy_from_slice(data);
    rest.fill(0);
}

impl InodeRef {
    /// Returns the parts of a write of `[offset, end)`. An unwritten block that the write covers in
    /// part gets zeros around the data, so that its old contents never become visible (I1). The
    /// device offset is then that of the zeros.
    pub(crate) fn write_segments(
        &self,
        offset: u64,
        end: u64,
        runs: &[Mapping],
    ) -> impl Iterator<Item = IoSegment> {
        let (block_size, sector) = (self.engine.block_size(), u64::from(self.engine.device().sector_size()));
        runs.iter().map(move |run| {
            let (physical, pad) = match run.state {
                BlockState::Written(physical) => (physical, false),
                BlockState::Unwritten(physical) => (physical, true),
                BlockState::Hole => unreachable!("holes were filled under the range"),
            };
            let part = Overlap::of(run, offset, end, block_size);
            let head = if pad { part.start % block_size } else { 0 };
            let sectors_end = part.stop.next_multiple_of(sector);
            let tail = if pad { sectors_end.next_multiple_of(block_size) - sectors_end } else { 0 };
            let at = self.device_offset(physical, part.start - part.run_start - head);
            IoSegment { data: part.within(offset), at: Some(at), pads: (to_usize(head), to_usize(tail)) }
        })
    }

    /// Returns the parts of a read of `[offset, end)`.
    pub(crate) fn read_segments(
        &self,
        offset: u64,
        end: u64,
        runs: &[Mapping],
    ) -> impl Iterator<Item = IoSegment> {
        let block_size = self.engine.block_size();
        runs.iter().map(move |run| {
            let part = Overlap::of(run, offset, end, block_size);
            let place = |physical: FsBlock| self.device_offset(physical, part.start - part.run_start);
            let at = if let BlockState::Written(physical) = run.state { Some(place(physical)) } else { None };
            IoSegment { data: part.within(offset), at, pads: (0, 0) }
        })
    }
}

/// The part of a request that lies in one run, in bytes of the file.
struct Overlap {
    run_start: u64,
    start: u64,
    stop: u64,
}

impl Overlap {
    fn of(run: &Mapping, offset: u64, end: u64, block_size: u64) -> Self {
        let run_start = u64::from(run.logical.get()) * block_size;
        let run_end = run_start + u64::from(run.len) * block_size;
        Self { run_start, start: run_start.max(offset), stop: run_end.min(end) }
    }

    fn within(&self, offset: u64) -> Range<usize> {
        to_usize(self.start - offset)..to_usize(self.stop - offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stretches_of_a_write_are_zeros_whole_sectors_the_last_sector_and_zeros() {
        let slices =
            |data, pads| -> Vec<WriteSlice> { IoSegment { data, at: None, pads }.slices(512).collect() };
        assert_eq!(slices(0..1024, (0, 0)), [WriteSlice::Data(0..1024)]);
        assert_eq!(slices(512..812, (0, 0)), [WriteSlice::LastSector(512..812)]);
        assert_eq!(
            slices(1024..1636, (512, 1024)),
            [
                WriteSlice::Zeros(512),
                WriteSlice::Data(1024..1536),
                WriteSlice::LastSector(1536..1636),
                WriteSlice::Zeros(1024)
            ],
        );
    }

    #[test]
    fn a_last_sector_has_zeros_after_its_data() {
        let mut sector = [9; 512];
        fill_last_sector(&mut sector, &[1; 500]);
        assert_eq!((sector[499], &sector[500..]), (1, &[0; 12][..]));
    }
}
