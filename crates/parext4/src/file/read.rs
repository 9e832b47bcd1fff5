//! Direct reads.

use rangelock::ByteRange;

use super::File;
use super::admission::Operation;
use crate::error::Result;
use crate::extent_map::{Mapping, State};

/// After this many misses a read holds its whole range instead of what lies before the end of the file.
const TRIES: u32 = 3;

impl File {
    /// Reads into `buf` from byte `offset` on; returns how many bytes, fewer than asked only at the end of
    /// the file.
    ///
    /// `offset` is a multiple of the sector size, and so is the length of `buf` unless the file ends before.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a request off the sectors; what the device or a
    /// corrupt map give.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let _in_flight = self.volume().in_flight.enter()?;
        self.check_offset(offset)?;
        let wanted = self.end_of(offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(0);
        }
        for attempt in 0.. {
            let size = self.size();
            // A read does not wait for those who write behind the end, unless the end will not keep still.
            let end = if attempt < TRIES { wanted.min(size) } else { wanted };
            if end <= offset {
                return Ok(0);
            }
            let _held = self.admit(Operation::Read { offset, end })?;
            let now = self.size();
            // The end moved while we waited: a read that stops at the old one would show half of the
            // write that moved it.
            if now <= end || end == wanted {
                return self.read_held(buf, offset, wanted.min(now), now);
            }
        }
        unreachable!("the last attempts hold all they want")
    }

    /// Reads `[offset, end)`, which is held and lies within the file of `size` bytes.
    fn read_held(&self, buf: &mut [u8], offset: u64, end: u64, size: u64) -> Result<usize> {
        if end <= offset {
            return Ok(0);
        }
        self.check_len(buf.len() as u64, end < offset + buf.len() as u64 || end == size)?;
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let runs: Vec<Mapping> = self.volume().map(self.inode())?.runs(first, len).collect();
        for run in runs {
            self.read_run(buf, offset, end, run)?;
        }
        let count = usize::try_from(end - offset).unwrap_or(buf.len());
        Ok(count)
    }

    /// Reads what `[offset, end)` has in one run.
    fn read_run(&self, buf: &mut [u8], offset: u64, end: u64, run: Mapping) -> Result<()> {
        let block_size = self.volume().block_size();
        let run_start = u64::from(run.logical.get()) * block_size;
        let start = run_start.max(offset);
        let stop = (run_start + u64::from(run.len) * block_size).min(end);
        let at = |byte: u64| usize::try_from(byte - offset).unwrap_or(usize::MAX);
        let piece = &mut buf[at(start)..at(stop)];
        let State::Written(physical) = run.state else {
            piece.fill(0);
            return Ok(());
        };
        let sector = u64::from(self.sector_size());
        let from = self.device_offset(physical, start - run_start);
        // Only at the end of the file does a piece end inside a sector.
        let whole = piece.len() - piece.len() % self.sector_size() as usize;
        let (sectors, rest) = piece.split_at_mut(whole);
        if !sectors.is_empty() {
            self.read_device(from, sectors)?;
        }
        if !rest.is_empty() {
            let mut last = parext4_device::BufferPool::global().take(self.sector_size() as usize);
            debug_assert!((from + whole as u64).is_multiple_of(sector));
            self.read_device(from + whole as u64, &mut last)?;
            rest.copy_from_slice(&last[..rest.len()]);
        }
        Ok(())
    }
}
