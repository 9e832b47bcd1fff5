//! Direct writes: map what is missing, write the data, then make it visible.

use std::io::IoSlice;

use parext4_device::{BufferPool, PooledBuf, zeros};
use rangelock::ByteRange;
use smallvec::SmallVec;

use super::zero_out::WIDEN_ATTEMPTS;
use crate::admission::HeldRange;
use crate::allocator::Growth;
use crate::body::Mapping;
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::file::DirectFile;
use crate::operation::Operation;

impl DirectFile {
    /// Writes all of `data` at byte `offset`, which may lie behind the end of the file; what is then between
    /// reads as zeros.
    ///
    /// `offset` is a multiple of the sector size, and so is the length of `data` unless the write reaches
    /// or passes the end of the file, which then ends with it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a request off the sectors, [`Error::NoSpace`], [`Error::NotPermitted`] if the file is
    /// immutable or append-only, and what the device gives; a failed device write stops the volume. After an error
    /// the range holds old or new data, sector by sector, never anything else.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let _in_flight = self.begin_change(self.refusing)?;
        self.check_offset(offset)?;
        let end = self.end_of(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        for _ in 0..WIDEN_ATTEMPTS {
            match self.write_admitted(data, offset, end) {
                // Into blocks that were allocated before, a full volume must take a write.
                Err(Error::NoSpace) if !self.write_widened(data, offset)? => {}
                Err(Error::NoSpace) => return Ok(()),
                other => return other,
            }
        }
        Err(Error::NoSpace)
    }

    fn write_admitted(&self, data: &[u8], offset: u64, end: u64) -> Result<()> {
        let mut held = self.node.admit_up_to(Operation::Write { offset, end }, end)?;
        let _announced = if planted(Fault::WithdrawLate) { held.announced.take() } else { None };
        self.check_len(data.len() as u64, end >= self.size())?;
        self.write_held(data, offset, held, Growth::Write)
    }

    /// Writes `data` at `offset`, in the range that admission asked for.
    ///
    /// # Errors
    /// [`Error::NoSpace`], before any data has moved.
    pub(in crate::file) fn write_held(
        &self,
        data: &[u8],
        offset: u64,
        held: HeldRange<'_>,
        growth: Growth,
    ) -> Result<()> {
        let end = offset + data.len() as u64;
        if held.admission.zero_tail {
            self.zero_tail()?;
        }
        let (first, len) = self.node.blocks_of(ByteRange::new(offset, end));
        let prepare = || self.node.prepare(first, len, held.runs.clone(), growth, self.dates);
        let prepared = self.engine().with_space(prepare)?;
        let held = held.unless(Fault::ReleaseAtSubmission);
        self.write_runs(data, offset, &prepared.runs)?;
        let _held = held.and_then(|held| held.unless(Fault::ReleaseBeforeConversion));
        self.node.complete(prepared, end)
    }

    /// Zeroes the rest of the last block; its range is held.
    pub(in crate::file) fn zero_tail(&self) -> Result<()> {
        if !planted(Fault::TailKept) {
            self.node.wait_for_write_back_at(self.size());
            self.node.zero_rest_of_block(self.size())?;
        }
        self.inode().set_tail_clean();
        Ok(())
    }

    /// Writes the data piece by piece.
    pub(in crate::file) fn write_runs(&self, data: &[u8], offset: u64, runs: &[Mapping]) -> Result<()> {
        for piece in self.node.write_segments(offset, offset + data.len() as u64, runs) {
            let padded = Padded::new(&data[piece.data], self.sector_size());
            let (head, tail) = piece.pads;
            let zeros = |len: usize| IoSlice::new(&zeros()[..len]);
            let slices = [zeros(head), IoSlice::new(padded.whole), padded.slice(), zeros(tail)];
            let used: SmallVec<[IoSlice<'_>; 4]> =
                slices.into_iter().filter(|slice| !slice.is_empty()).collect();
            self.record_zeros(head + tail);
            self.node.write_device(piece.at.unwrap_or(0), &used)?;
        }
        Ok(())
    }

    /// Counts zeros written around data.
    pub(in crate::file) fn record_zeros(&self, bytes: usize) {
        if bytes > 0 {
            self.node.record().zeroed(bytes as u64);
        }
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
