//! Direct writes: each allocates its blocks, writes the data, then makes it visible.

use std::cell::OnceCell;
use std::io::IoSlice;
use std::ops::{Deref, Range};

use parext4_device::{AlignedBuf, BufferPool, zeros};
use rangelock::{ByteRange, Mode, RangeLock};
use smallvec::SmallVec;

use crate::admission::{HeldRange, Transfer};
use crate::block_io::{IoSegment, Prepared, WriteSlice, fill_last_sector};
use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded, when_planted};
use crate::file::DirectFile;
use crate::file::inline::InlineWrite;
use crate::inode_ref::Hold;
use crate::mapping::{Mapping, Runs};
use crate::operation::Operation;

impl DirectFile {
    /// Writes all of `data` at byte `offset`, which may lie past the end of the file; the gap then
    /// reads as zeros.
    ///
    /// `offset` must be a multiple of the sector size. So must the length of `data`, unless the
    /// write reaches or passes the end of the file, which then ends with the data.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use parext4::AlignedBuf;
    ///
    /// let sector = file.sector_size();
    /// file.write_all_at(&AlignedBuf::zeroed(4096), u64::from(sector))?;
    /// assert!(file.write_all_at(&[0; 100], 1).is_err(), "neither offset nor length are whole sectors");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a request that is not aligned to sectors, [`Error::NoSpace`],
    /// [`Error::NotPermitted`] if the file is immutable or append-only, and the errors of the
    /// device. A failed device write stops the volume. After an error each sector of the range
    /// holds old or new data, never anything else.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let _in_flight = self.begin_change(self.refusing)?;
        self.node.check_offset(offset)?;
        let end = self.node.end_of(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        if self.write_inline(&[IoSlice::new(data)], InlineWrite::DirectAt(offset))?.is_some() {
            return Ok(());
        }
        let mut transfer = Transfer::extending(Operation::Write { offset, end }, end);
        loop {
            let held = self.acquire(&mut transfer)?;
            self.node.check_len(data.len() as u64, end >= self.size())?;
            match self.write_held(data, &transfer, held) {
                Err(Error::NoSpace) => transfer.widen(&self.node)?,
                other => return other,
            }
        }
    }

    /// Writes `data` under the granted range, with zeros around it if the write was widened.
    ///
    /// # Errors
    /// [`Error::NoSpace`], before any data has moved.
    pub(in crate::file) fn write_held(
        &self,
        data: &[u8],
        transfer: &Transfer,
        mut held: HeldRange<'_>,
    ) -> Result<()> {
        let (runs, zero_tail) = (std::mem::take(&mut held.runs), held.admission.zero_tail);
        let prepared = self.prepare_write(held.hold(), transfer, &runs, zero_tail)?;
        when_planted!(Fault::ReleaseAtSubmission, held.release());
        let written = match transfer.widened() {
            None => self.write_runs(data, transfer.offset(), &prepared.runs),
            Some(wide) => {
                let bytes = self.among_zeros(data, transfer.offset(), wide);
                let len = to_usize(wide.len());
                self.write_runs(&bytes[..len], wide.start(), &prepared.runs)
            }
        };
        when_planted!(Fault::ReleaseBeforeConversion, held.release());
        match written {
            Ok(()) => self.node.complete(prepared, transfer.target().end())?,
            Err(error) => {
                self.node.abandon(prepared);
                return Err(error);
            }
        }
        held.set_done();
        Ok(())
    }

    /// Allocates blocks for a write that holds its range, and reserves what its completion needs.
    /// `runs` and `zero_tail` come from its plan. Waits for space that may come back.
    ///
    /// # Errors
    /// [`Error::NoSpace`], before any data has moved.
    #[inline]
    pub(in crate::file) fn prepare_write<L: Deref<Target = RangeLock>>(
        &self,
        hold: &Hold<L>,
        transfer: &Transfer,
        runs: &Runs,
        mut zero_tail: bool,
    ) -> Result<Prepared<'_>> {
        self.engine()
            .with_space(|| self.try_prepare_write(hold, transfer, runs, std::mem::take(&mut zero_tail)))
    }

    /// Like [`prepare_write`](Self::prepare_write), but does not wait for space.
    ///
    /// # Errors
    /// [`Error::NoSpace`], before any data has moved.
    #[inline]
    pub(in crate::file) fn try_prepare_write<L: Deref<Target = RangeLock>>(
        &self,
        hold: &Hold<L>,
        transfer: &Transfer,
        runs: &Runs,
        zero_tail: bool,
    ) -> Result<Prepared<'_>> {
        if zero_tail {
            self.zero_tail(hold)?;
        }
        let target = transfer.target();
        hold.assert_covers(&self.node, target.start(), target.end(), Mode::Exclusive);
        let blocks = self.node.blocks_of(target);
        self.node.prepare(blocks, runs.clone(), transfer.growth(), self.dates)
    }

    /// Returns the contents of `wide`: `data` at file offset `offset`, and zeros around it.
    pub(in crate::file) fn among_zeros(&self, data: &[u8], offset: u64, wide: ByteRange) -> AlignedBuf {
        let (len, start) = (to_usize(wide.len()), to_usize(offset - wide.start()));
        let mut bytes = AlignedBuf::zeroed(len.next_multiple_of(self.sector_size() as usize));
        bytes[start..start + data.len()].copy_from_slice(data);
        self.node.record().zeroed_out();
        self.record_zeros(len - data.len());
        bytes
    }

    /// Zeroes the rest of the last block of the file.
    pub(in crate::file) fn zero_tail<L: Deref<Target = RangeLock>>(&self, hold: &Hold<L>) -> Result<()> {
        guarded!(Fault::TailNotZeroed, {
            self.node.wait_for_write_back_at(hold, self.size());
            self.node.zero_rest_of_block(hold, self.size())?;
        });
        self.inode().set_tail_clean();
        Ok(())
    }

    /// Writes the data piece by piece.
    fn write_runs(&self, data: &[u8], offset: u64, runs: &[Mapping]) -> Result<()> {
        for piece in self.node.write_segments(offset, offset + data.len() as u64, runs) {
            let last_sector = OnceCell::new();
            let pad = |rest: Range<usize>| {
                let mut sector = BufferPool::global().take(self.sector_size() as usize);
                fill_last_sector(&mut sector, &data[rest]);
                sector
            };
            let slice = |slice| match slice {
                WriteSlice::Zeros(len) => IoSlice::new(&zeros()[..len]),
                WriteSlice::Data(part) => IoSlice::new(&data[part]),
                WriteSlice::LastSector(rest) => IoSlice::new(last_sector.get_or_init(|| pad(rest))),
            };
            let slices: SmallVec<[IoSlice<'_>; 4]> = self.slices(&piece).map(slice).collect();
            self.node.write_device(piece.at.unwrap_or(0), &slices)?;
        }
        Ok(())
    }

    /// Returns the memory that one part of a write hands to the device, and adds its zeros to the
    /// statistics.
    pub(in crate::file) fn slices(&self, part: &IoSegment) -> impl Iterator<Item = WriteSlice> + use<> {
        self.record_zeros(part.pads.0 + part.pads.1);
        part.slices(self.sector_size() as usize)
    }

    fn record_zeros(&self, bytes: usize) {
        if bytes > 0 {
            self.node.record().zeroed(bytes as u64);
        }
    }
}
