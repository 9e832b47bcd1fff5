//! Writing the page runs of one batch to the device.
//!
//! Responsible for allocating, writing and completing them, with up to 32 requests in flight. Not
//! responsible for choosing the pages. Invariant: a page becomes clean only after the transaction
//! that converts its blocks.
//!
//! 1. The batch allocates each run of dirty blocks and reserves what its completion needs. It joins
//!    two runs with a short gap of clean blocks if all their blocks are written and contiguous on
//!    the device.
//! 2. The batch submits all runs and waits for the last one. On a device of objects no request
//!    crosses two objects, and runs that are contiguous within one object share a request.
//! 3. The batch completes each run as a direct write is completed (I3).
//! 4. The pages become clean (H6). The pages of a failed run become dirty again, and the file
//!    records the failure.
//!
//! A request may cover clean pages. Their write-back begins like that of dirty ones, under a held
//! range, and they count as being written back until the end. A direct write of such a page waits
//! for that, so no old data overwrites newer data.

use std::io::IoSlice;
use std::num::NonZeroU64;
use std::ops::Range;

use parext4_device::{AlignedBuf, BufferPool, Done, Op, Queue, Request, Segment};
use parext4_format::{BlockRange, FileBlock};
use smallvec::SmallVec;

use super::page_runs::{Contents, PageRun, Segments};
use super::{FileWriteBack, GAP};
use crate::allocator::{BlockSource, Growth, Reservation};
use crate::block_io::{Prepared, split_at_objects};
use crate::convert::{saturating_u32, to_usize};
use crate::dirty_files::QUEUE_DEPTH;
use crate::error::{Error, Result};
use crate::fault::{Fault, when_planted};
use crate::inode_ref::Units;
use crate::map_update::FillOptions;
use crate::mapping::BlockState;
use crate::sync::Arc;

/// The page runs of one batch, all of one file.
pub(super) struct Batch<'a, 'b> {
    file: FileWriteBack<'a>,
    page_runs: &'b mut [PageRun<'a>],
    /// The contents of all pages.
    contents: Arc<AlignedBuf>,
    /// The result of each page run so far.
    results: Vec<Result<()>>,
    writes: Vec<Write<'a>>,
}

/// A run of blocks that is ready to be written.
struct Write<'a> {
    /// The index of its pages in `page_runs`.
    of: usize,
    segment: BlockRange,
    prepared: Prepared<'a>,
}

/// A request for the device.
struct Piece {
    /// The indexes of the writes that it belongs to.
    writes: Range<usize>,
    /// Where it begins and ends on the device, in bytes.
    bytes: Range<u64>,
    data: SmallVec<[Segment; 1]>,
}

impl<'a> FileWriteBack<'a> {
    /// Writes `page_runs` to the device. Returns the number of dirty ones among them. Pages that
    /// were written are clean, the others are dirty again.
    ///
    /// # Errors
    /// The first failure. The file's record has each one.
    pub(super) fn write_batch(self, mut page_runs: Vec<PageRun<'a>>, contents: Contents) -> Result<u32> {
        let FileWriteBack { node, cached, .. } = self;
        let sectors = node.inode.sectors();
        let results = Batch::write(self, &mut page_runs, contents);
        let (mut count, mut first) = (0, Ok(()));
        for (mut pages, result) in page_runs.into_iter().zip(results) {
            count += pages.dirty_pages();
            match result {
                Ok(()) => pages.clean(),
                // Report the error that stopped the volume.
                Err(Error::Stopped(_) | Error::ShutDown) => drop(pages),
                Err(ref error) => cached.failures.add_before(error.clone(), || drop(pages)),
            }
            first = first.and(result);
        }
        if node.inode.sectors() != sectors {
            node.engine.note_changed_blocks(&node.inode);
        }
        first.map(|()| count)
    }
}

impl<'a, 'b> Batch<'a, 'b> {
    /// Writes all pages, and returns the result of each.
    fn write(
        file: FileWriteBack<'a>,
        page_runs: &'b mut [PageRun<'a>],
        contents: Contents,
    ) -> Vec<Result<()>> {
        let results = page_runs.iter().map(|_| Ok(())).collect();
        let mut batch =
            Self { file, page_runs, contents: contents.into_shared(), results, writes: Vec::new() };
        for of in 0..batch.page_runs.len() {
            let prepared = batch.prepare(of);
            batch.record(of, prepared);
        }
        batch.flush();
        // Nothing else has the buffer: a device queue that failed has been dropped.
        if let Ok(bytes) = Arc::try_unwrap(batch.contents) {
            BufferPool::global().recycle(bytes);
        }
        batch.results
    }

    /// Records the result of the page run `of`. The first failure is kept.
    fn record(&mut self, of: usize, result: Result<()>) {
        if self.results[of].is_ok() {
            self.results[of] = result;
        }
    }

    /// Prepares the writes of the page run `of`.
    fn prepare(&mut self, of: usize) -> Result<()> {
        let segments = self.allocate(of)?;
        for segment in self.file.join(segments)? {
            let node = self.file.node;
            let prepare = || node.prepare(segment, node.runs(segment)?, Growth::Write, false);
            let prepared = self.with_room(prepare, || node.engine.with_space(prepare))?;
            self.writes.push(Write { of, segment, prepared });
        }
        Ok(())
    }

    /// Runs `attempt`. If it fails for lack of space, completes the prepared writes, which releases
    /// their reservations, and runs `again`.
    fn with_room<R>(
        &mut self,
        attempt: impl FnOnce() -> Result<R>,
        again: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        match attempt() {
            Err(Error::NoSpace) => {
                self.flush();
                again()
            }
            other => other,
        }
    }

    /// Maps the holes under the page run `of`. Returns the runs of dirty blocks.
    fn allocate(&mut self, of: usize) -> Result<Segments> {
        let file @ FileWriteBack { node, cached, .. } = self.file;
        let (units, engine) = (node.units(), &node.engine);
        let reserved = self.page_runs[of].reserved_blocks(units);
        // Before the blocks are charged, so that the quotas do not count them twice.
        let mut kept = engine.undelay(&node.inode, reserved);
        let segments = self.page_runs[of].segments(units);
        let fill = |claim: &mut Reservation<'a>| {
            let most = claim.blocks();
            let filled = file.fill_segments(&segments, claim);
            if filled.is_err() {
                claim.release_over(most);
            }
            filled
        };
        let mut filled = fill(&mut kept);
        if matches!(filled, Err(Error::NoSpace)) {
            self.flush();
            // Two threads that waited with a claim would wait for each other (H40).
            let mut blocks = kept.detach();
            filled = engine.with_space(|| {
                let mut claim = engine.allocator().attach(blocks);
                let filled = fill(&mut claim);
                blocks = claim.detach();
                filled
            });
            kept = engine.allocator().attach(blocks);
        }
        let page_run = &mut self.page_runs[of];
        if let Err(error) = filled {
            let mut allocated = Vec::new();
            // Blocks whose state cannot be read keep their reservation for the next attempt (H29).
            let _ = file.mark_allocated(page_run, units, &mut allocated);
            let count = saturating_u32(allocated.len());
            engine.delay_again(&node.inode, kept, reserved - count);
            engine.end_delay(&node.inode, cached, count, allocated);
            return Err(error);
        }
        // All pages have blocks now, so release the rest of the reservation.
        drop(kept);
        let blocks = page_run.pages.iter().flat_map(|(index, page)| units.blocks_of(*index, page.reserved()));
        engine.end_delay(&node.inode, cached, reserved, blocks);
        page_run.pages.iter_mut().for_each(|(_, page)| page.allocated(page.reserved()));
        Ok(segments)
    }

    /// Writes the prepared runs to the device, waits for them, and completes them.
    fn flush(&mut self) {
        when_planted!(Fault::CleanBeforeConversion, self.page_runs.iter_mut().for_each(PageRun::clean));
        self.transfer();
        for Write { of, segment, prepared } in std::mem::take(&mut self.writes) {
            let end = segment.end() * self.file.node.engine.block_size();
            let ended = match &self.results[of] {
                Ok(()) => {
                    let prepared = Prepared { modifies: false, ..prepared };
                    self.file.node.complete(prepared, end.min(self.page_runs[of].size))
                }
                Err(_) => {
                    self.file.node.abandon(prepared);
                    Ok(())
                }
            };
            self.record(of, ended);
        }
    }

    /// Writes the prepared runs to the device, and waits for them.
    fn transfer(&mut self) {
        let pieces = self.pieces();
        match pieces.as_slice() {
            [] => {}
            [piece] => {
                let written = self.write_piece(piece);
                self.record_all(&piece.writes, &written);
            }
            _ => {
                let queues = &self.file.node.engine.dirty().queues;
                queues.with(|queue| self.submit(pieces, queue));
            }
        }
    }

    fn write_piece(&self, piece: &Piece) -> Result<()> {
        let offset = piece.bytes.start;
        let bytes: std::io::Result<SmallVec<[_; 1]>> =
            piece.data.iter().map(|segment| segment.bytes().map(IoSlice::new)).collect();
        let bytes = bytes.map_err(|error| self.file.node.write_failed(offset, error))?;
        self.file.node.write_device(offset, &bytes)
    }

    /// Returns the requests for the prepared runs, one for each part that is contiguous on the
    /// device and in one object of it.
    fn pieces(&self) -> Vec<Piece> {
        let engine = &self.file.node.engine;
        let (unit, page_size) = (engine.layout().block_size, engine.page_size());
        let object_size = engine.device().object_size();
        let mut pieces: Vec<Piece> = Vec::new();
        for (nth, write) in self.writes.iter().enumerate().filter(|(_, write)| self.results[write.of].is_ok())
        {
            let Range { start: offset, end } = unit.bytes_of(write.segment);
            for part in self.file.node.write_segments(offset, end, &write.prepared.runs) {
                debug_assert_eq!(part.pads, (0, 0), "whole blocks");
                let at = part.at.unwrap_or(0);
                let from = offset + part.data.start as u64;
                let mut start = self.page_runs[write.of].position(from, page_size);
                for bytes in split_at_objects(object_size, at..at + part.data.len() as u64) {
                    let len = to_usize(bytes.end - bytes.start);
                    let segment = Segment { buf: Arc::clone(&self.contents), start, len };
                    start += len;
                    add_piece(&mut pieces, object_size, nth, bytes, segment);
                }
            }
        }
        pieces
    }

    /// Submits `pieces` to `queue`, and waits for all of them.
    fn submit(&mut self, pieces: Vec<Piece>, queue: &mut dyn Queue) {
        when_planted!(Fault::BatchUnawaited, self.page_runs.iter_mut().for_each(PageRun::clean));
        let owners: Vec<Range<usize>> = pieces.iter().map(|piece| piece.writes.clone()).collect();
        let mut pieces = pieces.into_iter().enumerate();
        let mut done = Vec::new();
        while pieces.len() > 0 || queue.in_flight() > 0 {
            while queue.in_flight() < QUEUE_DEPTH as usize
                && let Some((nth, piece)) = pieces.next()
            {
                // Nothing more is submitted once the volume has stopped.
                match self.file.node.engine.health().check() {
                    Ok(()) => {
                        let op = Op::Write { offset: piece.bytes.start, segments: piece.data };
                        queue.submit(Request { token: nth as u64, op });
                    }
                    stopped => self.record_all(&piece.writes, &stopped),
                }
            }
            if queue.in_flight() > 0
                && let Err(error) = queue.harvest(true, &mut done)
            {
                return self.fail_all(&error);
            }
            done.drain(..).for_each(|done| self.arrive(&owners, done));
        }
    }

    /// Notes the result of a request. `owners` has the writes of each.
    fn arrive(&mut self, owners: &[Range<usize>], done: Done) {
        let (nth, Op::Write { offset, .. }) = (to_usize(done.token), done.op) else {
            return;
        };
        let written = done.result.map_err(|error| self.file.node.write_failed(offset, error));
        self.record_all(&owners[nth], &written);
    }

    /// Records the result of a request for each write that it belongs to.
    fn record_all(&mut self, writes: &Range<usize>, result: &Result<()>) {
        for nth in writes.clone() {
            self.record(self.writes[nth].of, result.clone());
        }
    }

    /// Notes a failure for every write, because the queue itself has failed and the results are
    /// unknown.
    fn fail_all(&mut self, error: &std::io::Error) {
        let failed = self.file.node.write_failed(0, std::io::Error::new(error.kind(), error.to_string()));
        for nth in 0..self.writes.len() {
            self.record(self.writes[nth].of, Err(failed.clone()));
        }
    }
}

/// Adds a request for `bytes` of the device to `pieces`, or extends the last one, if that ends
/// there and in the same object.
fn add_piece(
    pieces: &mut Vec<Piece>,
    object_size: Option<NonZeroU64>,
    nth: usize,
    bytes: Range<u64>,
    segment: Segment,
) {
    let is_inside = |offset: u64| object_size.is_some_and(|size| !offset.is_multiple_of(size.get()));
    match pieces.last_mut() {
        Some(last) if last.bytes.end == bytes.start && is_inside(bytes.start) => {
            last.writes.end = nth + 1;
            last.bytes.end = bytes.end;
            last.data.push(segment);
        }
        _ => pieces.push(Piece { writes: nth..nth + 1, bytes, data: [segment].into_iter().collect() }),
    }
}

impl<'a> FileWriteBack<'a> {
    /// Allocates the holes of `segments` from the reservation `kept`.
    fn fill_segments(self, segments: &[BlockRange], kept: &mut Reservation<'a>) -> Result<()> {
        let (engine, inode) = (&self.node.engine, &self.node.inode);
        for segment in segments {
            let runs = self.node.runs(*segment)?;
            let Some(hole) = runs.iter().find(|run| run.is_hole()) else { continue };
            let (_, mut rest) = segment.split_at(hole.logical);
            while !rest.is_empty() {
                let credits = engine.map_credits(inode)?;
                rest = rest.skip(engine.transact(credits, |handle| {
                    let source = BlockSource::Claim(&mut *kept);
                    let (growth, held) = (Growth::Write, segment.end());
                    let (written, in_order, delayed) = (false, false, Some(self.cached));
                    let filling = FillOptions { written, in_order, growth, source, delayed, held };
                    engine.fill_holes(handle, inode, rest, filling)
                })?);
            }
        }
        Ok(())
    }

    /// Joins segments that are at most [`GAP`] bytes apart, where all blocks from the first to the
    /// last are written and contiguous on the device.
    fn join(self, segments: Segments) -> Result<Segments> {
        let gap = GAP / self.node.engine.block_size();
        let mut joined = Segments::new();
        for segment in segments {
            let whole = joined.last().map(|last| BlockRange::clamped(last.start().to_u64(), segment.end()));
            match (joined.last_mut(), whole) {
                (Some(last), Some(whole))
                    if segment.start().to_u64() - last.end() <= gap && self.is_written_together(whole)? =>
                {
                    *last = whole;
                }
                _ => joined.push(segment),
            }
        }
        Ok(joined)
    }

    fn is_written_together(self, blocks: BlockRange) -> Result<bool> {
        let run = self.node.engine.block_map(&self.node.inode)?.lookup(blocks.start(), blocks.count())?;
        Ok(matches!(run.state, BlockState::Written(_)) && run.len == blocks.count())
    }

    /// Notes, after a failure, which reserved blocks have been allocated, and adds them to
    /// `allocated`. The others stay reserved.
    fn mark_allocated(
        self,
        page_run: &mut PageRun<'_>,
        units: Units,
        allocated: &mut Vec<FileBlock>,
    ) -> Result<()> {
        let block_map = self.node.engine.block_map(&self.node.inode)?;
        for (index, page) in &mut page_run.pages {
            for (block, mask) in units.of_page(*index) {
                if page.reserved() & mask != 0 && block_map.state_of(block)? != BlockState::Hole {
                    page.allocated(mask);
                    allocated.push(block);
                }
            }
        }
        Ok(())
    }
}
