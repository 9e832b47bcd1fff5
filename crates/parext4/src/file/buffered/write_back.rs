//! Writing dirty pages back: they are taken under a range that is held for the copy alone, get their blocks, go to the
//! device and are shown by the map and the size in one transaction, as by a direct write. Only then they are clean
//! (H6).

use std::ops::Range;

use parext4_device::{BufferPool, PooledBuf};
use smallvec::SmallVec;

use super::super::File;
use super::super::admission::{self, Blocks, FileState, Operation};
use super::super::prepare::Prepared;
use super::units::Units;
use crate::allocator::{Growth, Reservation};
use crate::error::{Error, Result};
use crate::extent_map::State;
use crate::fault::{Fault, planted};
use crate::inode::{Cached, Filling, Inode, Node};
use crate::lock_order::{Rank, hold};
use crate::page_cache::{PAGE, WriteBack};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::volume::Inner;

/// Pages that go to the device in one request: 1 MiB.
const MOST: u32 = 256;

/// How whoever writes pages back comes to hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HowToHold {
    /// It holds them already.
    Already,
    /// It waits for them.
    Wait,
    /// It leaves alone what others hold.
    Try,
}

/// Pages that lie together, at least one.
type Piece<'a> = SmallVec<[(u32, WriteBack<'a>); 8]>;

/// Pages that were taken to be written back, and their contents.
struct Taken<'a> {
    first: u32,
    bytes: PooledBuf,
    pages: Piece<'a>,
    /// The file's size when they were taken, which covers them until they are written.
    size: u64,
}

impl File {
    /// The file of an inode, for a thread of the volume's own. `None` if it is being deleted.
    pub(crate) fn for_own_thread(volume: &Arc<Inner>, inode: &Arc<Inode>) -> Option<Self> {
        Some(Self { node: Node::for_own_thread(volume, inode)?, dates: false })
    }

    /// Writes back what is dirty in `pages`, and waits for what others are writing back there.
    ///
    /// # Errors
    /// The first failure. What it concerns is dirty again.
    pub(crate) fn write_back(&self, pages: Range<u32>, how: HowToHold) -> Result<()> {
        let Some(cached) = self.inode().cached() else { return Ok(()) };
        loop {
            let failures = cached.failures.settled();
            self.write_back_once(cached, pages.clone(), how)?;
            if planted(Fault::SyncUnwaited) {
                return Ok(());
            }
            cached.pages.wait_write_back(pages.clone());
            // What others could not write is dirty again, and ours to try.
            let none_failed =
                failures == Some(cached.failures.begun()) && self.volume().health.check().is_ok();
            let seen = none_failed || cached.pages.next_dirty_in(pages.clone(), 1).is_none();
            if seen || planted(Fault::FailureUnseen) {
                return Ok(());
            }
        }
    }

    /// Writes back what is dirty in `pages` and nobody else writes back.
    fn write_back_once(&self, cached: &Cached, pages: Range<u32>, how: HowToHold) -> Result<()> {
        let (mut from, mut written) = (pages.start, 0);
        while let Some((count, next)) = self.write_back_next(cached, from..pages.end, how)? {
            from = next;
            // Who has little to write is done by now, and wakes nobody.
            if how == HowToHold::Wait && written < MOST && written + count >= MOST {
                self.volume().write_back_together(self.inode());
            }
            written = written.saturating_add(count);
        }
        Ok(())
    }

    /// Writes back about `most` dirty pages that nobody holds, from where the last turn ended. Returns how many.
    pub(crate) fn write_back_turn(&self, most: u32) -> Result<u32> {
        let Some(cached) = self.inode().cached() else { return Ok(0) };
        let mut written = 0;
        // Once around, in two parts.
        for part in 0..2 {
            let begin = if part == 0 { cached.cursor.load(Ordering::Relaxed) } else { 0 };
            let mut from = begin;
            while let Some((pages, next)) = self.write_back_next(cached, from..u32::MAX, HowToHold::Try)? {
                from = next;
                cached.cursor.store(next, Ordering::Relaxed);
                written += pages;
                if written >= most {
                    return Ok(written);
                }
            }
            if begin == 0 {
                break;
            }
        }
        Ok(written)
    }

    /// Writes back the next run of dirty pages. Returns how many and where to go on; `None` if there is none.
    fn write_back_next(
        &self,
        cached: &Cached,
        pages: Range<u32>,
        how: HowToHold,
    ) -> Result<Option<(u32, u32)>> {
        let Some(run) = cached.pages.next_dirty_in(pages, MOST) else { return Ok(None) };
        let next = run.end;
        self.volume().health.check()?;
        let writing = cached.writing();
        let taken = self.take_held(cached, run, how)?;
        let (mut count, mut result) = (0, Ok(()));
        for mut taken in taken {
            count += u32::try_from(taken.pages.len()).unwrap_or(u32::MAX);
            if let Err(error) = self.write_taken(&mut taken) {
                // What has stopped the volume is known.
                if !matches!(error, Error::Stopped(_)) {
                    cached.failures.add_before(error.clone(), || drop(taken));
                }
                result = Err(error);
            }
        }
        // What could not be written is dirty again, and may have been taken off the list before. Not while it counts as
        // being written.
        if result.is_err() {
            self.volume().note_dirty(self.inode(), cached);
        }
        drop(writing);
        result.map(|()| Some((count, next)))
    }

    /// Takes the dirty pages of a run, in pieces that lie together.
    fn take_held<'a>(&self, cached: &'a Cached, run: Range<u32>, how: HowToHold) -> Result<Vec<Taken<'a>>> {
        let (offset, end) = (byte_of(run.start), byte_of(run.end));
        let operation = Operation::WriteBack { offset, end };
        match how {
            HowToHold::Already => Ok(self.take(cached, run, how)),
            HowToHold::Wait => {
                let _held = self.admit(operation)?;
                Ok(self.take(cached, run, how))
            }
            HowToHold::Try => {
                let plan = admission::plan(operation, &self.state_for_cache(), self.volume().policy);
                let _held = hold(Rank::Range);
                let guard = self.inode().ranges.try_lock(plan.range, plan.mode);
                Ok(guard.map_or_else(Vec::new, |_guard| {
                    self.record().admitted(plan.reason, plan.mode, plan.drains);
                    self.take(cached, run, how)
                }))
            }
        }
    }

    fn take<'a>(&self, cached: &'a Cached, run: Range<u32>, how: HowToHold) -> Vec<Taken<'a>> {
        let size = self.size();
        let mut pieces: Vec<Piece<'a>> = Vec::new();
        for index in run {
            let mut write_back = begin(cached, index);
            if write_back.is_none() && how != HowToHold::Try {
                // It may have become dirty again while another writes it back. Everybody takes pages in their order, so
                // none waits for one that waits for it.
                cached.pages.wait_write_back(index..index + 1);
                write_back = begin(cached, index);
            }
            let Some(write_back) = write_back else { continue };
            match pieces.last_mut().filter(|piece| piece.last().is_some_and(|last| last.0 + 1 == index)) {
                Some(piece) => piece.push((index, write_back)),
                None => pieces.push(SmallVec::from_iter([(index, write_back)])),
            }
        }
        pieces.into_iter().map(|pages| Taken::copy_of(pages, size)).collect()
    }

    /// Writes taken pages to the device. They are clean if that succeeds, else dirty again.
    fn write_taken(&self, taken: &mut Taken<'_>) -> Result<()> {
        let units = self.units();
        let reserved = taken.pages.iter().map(|(_, page)| units.blocks_in(page.reserved())).sum();
        let mut kept = self.volume().allocator.undelay(reserved);
        let segments = taken.segments(units);
        let filled = self.fill_segments(&segments, &mut kept);
        if let Err(error) = filled {
            let left = self.keep_holes(taken, units);
            self.volume().allocator.delay_again(kept, left.unwrap_or(0));
            return Err(error);
        }
        // All have blocks now; what was kept beyond them is not needed.
        drop(kept);
        taken.pages.iter_mut().for_each(|(_, page)| page.allocated(page.reserved()));
        if planted(Fault::CleanBeforeConversion) {
            taken.pages.drain(..).for_each(|(_, page)| page.finish(true));
        }
        for segment in &segments {
            self.write_segment(segment, taken)?;
        }
        taken.pages.drain(..).for_each(|(_, page)| page.finish(true));
        Ok(())
    }

    /// Maps the holes of `segments` to blocks, for which space was `kept`.
    fn fill_segments<'a>(&'a self, segments: &[Range<u32>], kept: &mut Reservation<'a>) -> Result<()> {
        let (volume, inode) = (self.volume(), self.inode());
        for segment in segments {
            let runs = self.runs(segment.start, segment.end - segment.start)?;
            let Some(hole) = runs.iter().find(|run| run.state == State::Hole) else { continue };
            let mut at = hole.logical.get();
            while at < segment.end {
                let credits = volume.map_credits(inode)?;
                at += volume.with_space(|| {
                    volume.transact(credits, |handle| {
                        let claim = Some(&mut *kept);
                        let (growth, held) = (Growth::Write, segment.end);
                        let filling = Filling { written: false, in_order: false, growth, claim, held };
                        volume.fill_holes(handle, inode, at, segment.end - at, filling)
                    })
                })?;
            }
        }
        Ok(())
    }

    /// After a failure: notes which pages have got their blocks, and counts the blocks that are still missing.
    fn keep_holes(&self, taken: &mut Taken<'_>, units: Units) -> Result<u32> {
        let map = self.volume().map(self.inode())?;
        let mut left = 0;
        for (index, page) in &mut taken.pages {
            for (block, mask) in units.of_page(*index) {
                if page.reserved() & mask != 0 {
                    if map.lookup(block, 1).state == State::Hole {
                        left += 1;
                    } else {
                        page.allocated(mask);
                    }
                }
            }
        }
        Ok(left)
    }

    /// Writes the blocks `segment`, which are mapped, and shows them.
    fn write_segment(&self, segment: &Range<u32>, taken: &Taken<'_>) -> Result<()> {
        let (volume, len) = (self.volume(), segment.end - segment.start);
        let block_size = volume.block_size();
        let prepare = || self.prepare(segment.start, len, self.runs(segment.start, len)?, Growth::Write);
        let prepared = volume.with_space(prepare)?;
        let offset = u64::from(segment.start) * block_size;
        let end = u64::from(segment.end) * block_size;
        let within = |at: u64| usize::try_from(at - byte_of(taken.first)).unwrap_or(usize::MAX);
        let data = &taken.bytes[within(offset)..within(end)];
        if let Err(error) = self.write_runs(data, offset, &prepared.runs) {
            self.abandon(prepared)?;
            return Err(error);
        }
        self.complete(Prepared { modifies: false, ..prepared }, end.min(taken.size))
    }

    /// What admission must know for operations on pages.
    pub(super) fn state_for_cache(&self) -> FileState {
        self.state(Blocks::NOT_LOOKED_AT)
    }
}

impl<'a> Taken<'a> {
    fn copy_of(pages: Piece<'a>, size: u64) -> Self {
        let mut bytes = BufferPool::global().take(pages.len() * PAGE);
        for ((_, page), bytes) in pages.iter().zip(bytes.chunks_exact_mut(PAGE)) {
            page.read(0, bytes);
        }
        Self { first: pages.first().map_or(0, |(index, _)| *index), bytes, pages, size }
    }

    /// The runs of dirty blocks within the file.
    fn segments(&self, units: Units) -> SmallVec<[Range<u32>; 4]> {
        let mut segments: SmallVec<[Range<u32>; 4]> = SmallVec::new();
        let end = units.blocks(self.size);
        for (index, page) in &self.pages {
            for (block, mask) in units.of_page(*index) {
                if page.dirty() & mask == 0 || block >= end {
                    continue;
                }
                match segments.last_mut() {
                    Some(last) if last.end == block => last.end += 1,
                    _ => segments.push(block..block + 1),
                }
            }
        }
        segments
    }
}

fn begin(cached: &Cached, index: u32) -> Option<WriteBack<'_>> {
    cached.pages.peek(index)?.begin_write_back()
}

/// The first byte of a page.
fn byte_of(index: u32) -> u64 {
    u64::from(index) * PAGE as u64
}

impl Inner {
    /// Drops pages of a file, with what was kept for their data. The caller holds them all.
    pub(crate) fn discard_pages(&self, inode: &Inode, pages: Range<u32>) {
        if let Some(cached) = inode.cached() {
            let units = cached.pages.discard(pages);
            if planted(Fault::DelayForgotten) {
                return;
            }
            let blocks = units * 1024 / self.block_size();
            drop(self.allocator.undelay(u32::try_from(blocks).unwrap_or(u32::MAX)));
        }
    }
}
