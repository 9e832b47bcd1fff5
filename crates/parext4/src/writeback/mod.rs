//! Write-back of dirty pages.
//!
//! Responsible for writing dirty pages to the device, and for keeping direct operations and the
//! pages in their way [coherent](coherence). Not responsible for the list of dirty files:
//! [`dirty_files`](crate::dirty_files) holds it. Invariant: a page becomes clean only after the map
//! and the size on disk include its data (H6).
//!
//! 1. A thread acquires the range of a run of pages, copies their contents, and releases the range.
//! 2. A [batch] allocates their blocks and writes them to the device.
//! 3. One transaction converts the blocks and raises the size on disk, as after a direct write.
//! 4. The pages become clean.

mod batch;
mod coherence;
mod flush;
mod page_runs;

use std::ops::Range;

use rangelock::Mode;

use self::page_runs::{Contents, PageCollector, PageRun};
use crate::admission::Transfer;
use crate::convert::saturating_u32;
use crate::dirty_files::BATCH;
use crate::error::Result;
use crate::fault::{Fault, guarded, when_planted};
use crate::inode::Cached;
use crate::inode_ref::{HeldPages, InodeRef};
use crate::operation::Operation;
use crate::page_cache::{DirtyRuns, PageIndex, PageRange, PageSize, RunLimits, WriteBack};

/// Maximum length of a run of pages, in bytes.
const RUN: u64 = 1 << 20;
/// Maximum length of the clean pages between two dirty ones that are written with them, in bytes:
/// writing them takes less time than a second request.
const GAP: u64 = 8 << 10;
/// After this number of bytes in dirty pages in one call, the flush threads help to write back the
/// file.
const HELP_FROM: u64 = 1 << 20;

/// Returns the limits of a batch.
fn limits(page_size: PageSize) -> RunLimits {
    RunLimits {
        pages: page_size.pages_in(BATCH),
        run: page_size.pages_in(RUN),
        gap: saturating_u32(GAP / page_size.bytes() as u64),
    }
}

/// How the thread that writes back acquires the range of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcquireMode<'h> {
    /// The caller holds the range of all these pages.
    Held(HeldPages<'h>),
    /// The thread blocks until the range is free.
    Wait,
    /// The thread skips a run whose range another operation holds.
    Try,
}

impl InodeRef {
    /// Writes back the pages of `pages` that are dirty now, and blocks until other threads have
    /// written back theirs. The caller holds no range.
    ///
    /// # Errors
    /// Returns the first failure. The pages that failed are dirty again.
    pub(crate) fn write_back(&self, pages: PageRange) -> Result<()> {
        self.write_back_as(AcquireMode::Wait).map_or(Ok(()), |file| file.write(pages))
    }

    /// As [`write_back`](Self::write_back), for pages whose range the caller holds.
    pub(crate) fn write_back_held(&self, pages: HeldPages<'_>) -> Result<()> {
        self.write_back_as(AcquireMode::Held(pages)).map_or(Ok(()), |file| file.write(pages.range()))
    }

    /// Writes back about `most` dirty pages whose ranges are free, in batches of the size that the
    /// dirty-page limit permits. Continues where the previous call ended. Returns the number of
    /// pages.
    pub(crate) fn write_back_turn(&self, most: u32) -> Result<u32> {
        self.write_back_as(AcquireMode::Try).map_or(Ok(0), |file| file.write_turn(most))
    }

    /// Returns the write-back of the file. `None` if the file was never opened for buffered I/O.
    fn write_back_as<'a>(&'a self, how: AcquireMode<'a>) -> Option<FileWriteBack<'a>> {
        self.inode.cached().map(|cached| FileWriteBack { node: self, cached, how })
    }
}

/// The write-back of one file by one thread.
#[derive(Clone, Copy, Debug)]
struct FileWriteBack<'a> {
    node: &'a InodeRef,
    cached: &'a Cached,
    how: AcquireMode<'a>,
}

impl<'a> FileWriteBack<'a> {
    /// As [`InodeRef::write_back`].
    fn write(self, pages: PageRange) -> Result<()> {
        let cached = self.cached;
        // Pages that become dirty past these are left out. Otherwise this would not end while other
        // threads extend the file.
        let pages = cached.pages.dirty_span(pages);
        loop {
            let failures = cached.failures.all_redirtied();
            self.write_once(pages)?;
            when_planted!(Fault::SyncUnwaited, return Ok(()));
            cached.pages.wait_write_back(pages);
            // Pages that another thread failed to write are dirty again, so this thread retries
            // them.
            let none_failed =
                failures == Some(cached.failures.count()) && self.node.engine.health().check().is_ok();
            let seen = none_failed || !cached.pages.has_dirty(pages);
            if guarded!(Fault::FailureUnseen, seen, true) {
                return Ok(());
            }
        }
    }

    /// Writes back the dirty pages of `pages` that no other thread is writing back.
    fn write_once(self, pages: PageRange) -> Result<()> {
        let page_size = self.node.engine.page_size();
        let (limits, help_from) = (limits(page_size), page_size.pages_in(HELP_FROM));
        let (mut from, mut written) = (pages.start(), 0);
        loop {
            let runs = self.cached.pages.dirty_runs(PageRange::new(from, pages.end()), limits);
            if runs.is_empty() {
                return Ok(());
            }
            let (count, next) = self.write_runs(&runs)?;
            from = next;
            // A short write-back ends before this point and needs no help.
            if self.how == AcquireMode::Wait && written < help_from && written + count >= help_from {
                self.node.engine.write_back_together(&self.node.inode);
            }
            written = written.saturating_add(count);
        }
    }

    /// As [`InodeRef::write_back_turn`].
    fn write_turn(self, most: u32) -> Result<u32> {
        let engine = &self.node.engine;
        let limits = RunLimits { pages: engine.dirty().batch(), ..limits(engine.page_size()) };
        let (mut written, mut is_second_round) = (0, false);
        while written < most
            && let Some(runs) = next_runs(self.cached, limits, &mut is_second_round)
        {
            written += self.write_runs(&runs)?.0;
        }
        Ok(written)
    }

    /// Writes back runs of dirty pages, in ascending order. Returns the number of pages, and the
    /// page to continue at.
    fn write_runs(self, runs: &[PageRange]) -> Result<(u32, PageIndex)> {
        let engine = &self.node.engine;
        engine.health().check()?;
        let writing = self.cached.writing();
        let mut contents = Contents::with_room(runs, engine.page_size());
        let (page_runs, next) =
            begin_batch(runs, self.how, |run, now| self.begin_runs_held(run, now, &mut contents));
        // Runs that have begun are written also after a failure. Otherwise their pages would be
        // dirty again without a record of it, and a sync that waits for them would succeed.
        let written = self.write_batch(page_runs, contents);
        let result = written.and_then(|count| Ok((count, next?)));
        // Pages that could not be written are dirty again, so the file must be listed again.
        // `writing` is held until then, so no thread removes the file from the list meanwhile.
        if result.is_err() {
            engine.note_dirty(&self.node.inode, self.cached);
        }
        drop(writing);
        result
    }

    /// Begins the write-back of the dirty pages of a run, under its range, which is acquired as
    /// `hold_how` says. Returns `None` if another operation holds the range.
    fn begin_runs_held(
        self,
        run: PageRange,
        hold_how: AcquireMode<'_>,
        contents: &mut Contents,
    ) -> Result<Option<Vec<PageRun<'a>>>> {
        let node = self.node;
        let Range { start: offset, end } = node.engine.page_size().bytes_of(run);
        let operation = Operation::WriteBack { offset, end };
        let held = match hold_how {
            AcquireMode::Held(pages) => {
                return Ok(Some(self.begin_runs(pages.part(run), contents)));
            }
            // Only dirty pages are in the way of a write-back, so nothing needs to be written back
            // first.
            AcquireMode::Wait => node.acquire_with(&mut Transfer::new(operation), |_, _, _| Ok(false))?,
            AcquireMode::Try => node.try_acquire(operation)?,
        };
        let pages = held.as_ref().map(|held| held.hold().pages(&node.engine, &node.inode, run, Mode::Shared));
        let pages =
            guarded!(Fault::WriteBackWithoutRange, pages, pages.or(Some(HeldPages::UNHELD.part(run))));
        Ok(pages.map(|pages| self.begin_runs(pages, contents)))
    }

    /// Begins the write-back of the dirty pages of a run and of the clean pages between them.
    fn begin_runs(self, run: HeldPages<'_>, contents: &mut Contents) -> Vec<PageRun<'a>> {
        let (cached, size) = (self.cached, self.node.inode.size());
        let mut collector = PageCollector::new(run, size, contents);
        for index in run.range().pages() {
            let mut write_back = begin(cached, index);
            if write_back.is_none() && self.how != AcquireMode::Try {
                // Another thread may be writing back the page while it became dirty again. All
                // threads visit pages in ascending order, so no two wait for each other.
                cached.pages.wait_write_back(PageRange::of_page(index));
                write_back = begin(cached, index);
            }
            if write_back.is_none() && collector.reaches(index) {
                write_back = cached.pages.begin_rewrite(index);
            }
            if let Some(mut write_back) = write_back {
                self.release_past_end(index, &mut write_back, size);
                collector.add(index, write_back);
            }
        }
        collector.finish()
    }

    /// Releases the space of the units of a page past the end of the file, which a failed write has
    /// left, and cleans these units. The caller holds the range of the page: once it is free, a
    /// writer may dirty the units again, and relies on their space (H29).
    fn release_past_end(self, index: PageIndex, page: &mut WriteBack<'_>, size: u64) {
        let (node, units) = (self.node, self.node.units());
        let reserved = page.leave_out(units.past_end(index, size));
        if reserved != 0 {
            let count = units.blocks_in(reserved);
            drop(node.engine.undelay(&node.inode, count));
            node.engine.end_delay(&node.inode, self.cached, count, units.blocks_of(index, reserved));
        }
    }
}

impl InodeRef {
    /// Returns true if the file may have dirty pages. Includes every earlier write of this thread.
    pub(crate) fn may_have_dirty_pages(&self) -> bool {
        self.inode.cached().is_some_and(Cached::is_listed)
    }

    /// Writes back the pages of the file that are dirty now, so that the map has all their blocks
    /// and the next commit makes them durable. The caller holds neither a range nor a handle.
    ///
    /// # Errors
    /// Returns an error if the data cannot be written.
    pub(crate) fn write_back_data(&self) -> Result<()> {
        self.write_back(PageRange::ALL)
    }
}

/// Begins the write-back of runs in ascending order with `begin`, which acquires their ranges as
/// its argument says. Stops at the first failure, and with [`AcquireMode::Wait`] also at a range
/// that another operation holds. Returns the runs that have begun, and the page to continue at, or
/// the failure.
fn begin_batch<'h, T>(
    runs: &[PageRange],
    how: AcquireMode<'h>,
    mut begin: impl FnMut(PageRange, AcquireMode<'h>) -> Result<Option<Vec<T>>>,
) -> (Vec<T>, Result<PageIndex>) {
    let (mut begun, mut next) = (Vec::new(), PageIndex::ZERO);
    for &run in runs {
        // With pages in write-back, the thread must not block on a range: its holder may wait for
        // these pages.
        let how_now = if how == AcquireMode::Wait && !begun.is_empty() { AcquireMode::Try } else { how };
        match begin(run, how_now) {
            Ok(Some(more)) => begun.extend(more),
            Ok(None) if how == AcquireMode::Wait => break,
            Ok(None) => {}
            Err(error) => return (begun, Err(error)),
        }
        next = run.end();
    }
    (begun, Ok(next))
}

/// Claims the next runs for one of the threads that write back the file. Each claim begins where
/// the previous one ended. Returns `None` when the caller has reached the end twice, or once from
/// the start.
fn next_runs(cached: &Cached, limits: RunLimits, is_second_round: &mut bool) -> Option<DirtyRuns> {
    loop {
        let from = cached.cursor();
        let runs = cached.pages.dirty_runs(PageRange::starting_at(from), limits);
        let next = runs.last().map_or(PageIndex::ZERO, |last| last.end());
        if runs.is_empty() && (from == PageIndex::ZERO || std::mem::replace(is_second_round, true)) {
            return None;
        }
        if cached.advance_cursor(from, next) && !runs.is_empty() {
            return Some(runs);
        }
    }
}

fn begin(cached: &Cached, index: PageIndex) -> Option<WriteBack<'_>> {
    cached.pages.peek(index)?.begin_write_back()
}

#[cfg(test)]
mod tests {
    use parext4_device::MemDevice;

    use super::*;
    use crate::error::Error;
    use crate::file::OpenOptions;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::sync::Arc;
    use crate::volume::{Volume, VolumeOptions};

    /// A failed write leaves a dirty page past the end if other writers may use the rest of the
    /// page.
    #[test]
    fn a_page_past_the_end_has_no_space_once_its_write_back_has_begun() {
        let device = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::new()).unwrap();
        let options = VolumeOptions::new().commit_interval(None).write_back_interval(None);
        let volume = Volume::open_device(device, &options).unwrap();
        let direct = volume.open_direct("/f", &OpenOptions::read_write().create_new(true)).unwrap();
        let file = direct.buffered().unwrap();
        let (node, delayed) = (direct.inode_ref(), || volume.engine.allocator().delayed_blocks());
        let cached = node.inode.cached().unwrap();
        // A failed write has left zeros and the space of the block.
        file.write_all_at(&[0; 50], 0).unwrap();
        let space = delayed();
        node.inode.set_size(0);

        let run = PageRange::of_page(PageIndex::ZERO);
        let mut contents = Contents::with_room(&[run], node.engine.page_size());
        let (how, writing) = (AcquireMode::Try, cached.writing());
        let write_back = node.write_back_as(how).unwrap();
        let begun = write_back.begin_runs_held(run, how, &mut contents).unwrap();
        file.write_all_at(&[2; 50], 0).unwrap();
        write_back.write_batch(begun.unwrap(), contents).unwrap();
        drop(writing);
        let (dirty, reserved) = cached.pages.peek(PageIndex::ZERO).unwrap().marks();
        assert!(dirty != 0 && reserved == dirty, "a dirty page without space: {dirty:b} {reserved:b}");
        assert_eq!(delayed(), space);
        file.sync_data().unwrap();
        assert_eq!(delayed(), 0);
    }

    /// Returns runs of one page each, with a gap after each.
    fn runs() -> [PageRange; 3] {
        [0, 2, 4].map(|index| PageRange::of_page(PageIndex(index)))
    }

    #[test]
    fn runs_that_have_begun_are_kept_after_a_failure() {
        let [first, second, _] = runs();
        let begin = |run, _: AcquireMode<'_>| {
            if run == second { Err(Error::NoSpace) } else { Ok(Some(vec![run])) }
        };
        let (begun, next) = begin_batch(&runs(), AcquireMode::Wait, begin);
        assert_eq!(begun, [first]);
        assert!(matches!(next, Err(Error::NoSpace)));
    }

    #[test]
    fn a_thread_waits_for_the_range_of_the_first_run_only() {
        let mut modes = Vec::new();
        let (begun, next) = begin_batch(&runs(), AcquireMode::Wait, |run, now| {
            modes.push(now);
            Ok((modes.len() < 3).then(|| vec![run]))
        });
        assert_eq!(modes, [AcquireMode::Wait, AcquireMode::Try, AcquireMode::Try]);
        assert_eq!((begun.as_slice(), next.unwrap()), (&runs()[..2], runs()[1].end()));
    }

    #[test]
    fn a_range_that_is_held_is_skipped_by_a_thread_that_does_not_wait() {
        let [first, second, last] = runs();
        let begin = |run, _: AcquireMode<'_>| Ok((run != second).then(|| vec![run]));
        let (begun, next) = begin_batch(&runs(), AcquireMode::Try, begin);
        assert_eq!((begun, next.unwrap()), (vec![first, last], last.end()));
    }
}
