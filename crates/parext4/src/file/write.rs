//! Direct writes: map what is missing, write the data, then make it visible.

use std::io::IoSlice;

use parext4_device::{BufferPool, PooledBuf, zeros};
use rangelock::ByteRange;

use super::File;
use super::admission::Operation;
use crate::error::{Error, Result};
use crate::extent_map::{Mapping, State};

impl File {
    /// Writes all of `data` at byte `offset`, which may lie behind the end of the file; what is then between
    /// reads as zeros.
    ///
    /// `offset` is a multiple of the sector size, and so is the length of `data` unless the write reaches
    /// or passes the end of the file, which then ends with it.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a request off the sectors,
    /// [`Error::NoSpace`](crate::Error::NoSpace), and what the device gives; a failed device write stops
    /// the volume. After an error the range holds old or new data, sector by sector, never anything else.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let _in_flight = self.begin_change()?;
        self.check_offset(offset)?;
        let end = self.end_of(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        match self.write_admitted(data, offset, end) {
            // Into blocks that were allocated before, a full volume must take a write.
            Err(Error::NoSpace) => self.write_widened(data, offset)?.ok_or(Error::NoSpace),
            other => other,
        }
    }

    fn write_admitted(&self, data: &[u8], offset: u64, end: u64) -> Result<()> {
        let (held, _announced) = self.admit_up_to(Operation::Write { offset, end }, end)?;
        self.check_len(data.len() as u64, end >= self.size())?;
        self.volume().with_space(|| self.write_held(data, offset, held.admission.zero_tail))
    }

    /// Writes `data` at `offset`; the range that admission asked for is held.
    pub(super) fn write_held(&self, data: &[u8], offset: u64, zero_tail: bool) -> Result<()> {
        let end = offset + data.len() as u64;
        if zero_tail {
            self.zero_tail()?;
        }
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let prepared = self.prepare(first, len)?;
        self.write_runs(data, offset, &prepared.runs)?;
        self.complete(prepared, end)
    }

    /// Zeroes the rest of the last block; its range is held.
    pub(super) fn zero_tail(&self) -> Result<()> {
        self.zero_rest_of_block(self.size())?;
        self.inode().tail.lock().set_clean();
        Ok(())
    }

    /// Writes the data run by run. Where a block that holds nothing yet is covered in part, its rest is
    /// written as zeros with it, so that nothing of its old contents ever shows (I1).
    fn write_runs(&self, data: &[u8], offset: u64, runs: &[Mapping]) -> Result<()> {
        let block_size = self.volume().block_size();
        let end = offset + data.len() as u64;
        for run in runs {
            let run_start = u64::from(run.logical.get()) * block_size;
            let run_end = run_start + u64::from(run.len) * block_size;
            let (start, stop) = (run_start.max(offset), run_end.min(end));
            let at = |byte: u64| usize::try_from(byte - offset).unwrap_or(usize::MAX);
            let piece = &data[at(start)..at(stop)];
            let (physical, pad) = match run.state {
                State::Written(physical) => (physical, false),
                State::Unwritten(physical) => (physical, true),
                State::Hole => unreachable!("holes were filled under the range"),
            };
            let head = if pad { start % block_size } else { 0 };
            let last = Padded::new(piece, self.sector_size());
            let sectors_end = stop.next_multiple_of(u64::from(self.sector_size()));
            let tail = if pad { sectors_end.next_multiple_of(block_size) - sectors_end } else { 0 };
            let zeros = |len: u64| IoSlice::new(&zeros()[..usize::try_from(len).unwrap_or(0)]);
            let slices = [zeros(head), IoSlice::new(last.whole), last.slice(), zeros(tail)];
            let used: Vec<IoSlice<'_>> = slices.into_iter().filter(|slice| !slice.is_empty()).collect();
            self.write_device(self.device_offset(physical, start - run_start - head), &used)?;
            if head + tail > 0 {
                self.record().zeroed(head + tail);
            }
        }
        Ok(())
    }
}

/// A piece of data whose last sector may be cut short by the end of the file.
struct Padded<'a> {
    whole: &'a [u8],
    last: Option<PooledBuf>,
}

impl<'a> Padded<'a> {
    fn new(piece: &'a [u8], sector_size: u32) -> Self {
        let sector_size = sector_size as usize;
        let (whole, rest) = piece.split_at(piece.len() - piece.len() % sector_size);
        let last = (!rest.is_empty()).then(|| {
            let mut last = BufferPool::global().take_zeroed(sector_size);
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        Self { whole, last }
    }

    fn slice(&self) -> IoSlice<'_> {
        IoSlice::new(self.last.as_deref().unwrap_or(&[]))
    }
}
