//! The guards of a page: a pin ([`Page`]), the right to fill it ([`Fill`]), and its write-back
//! ([`WriteBack`]).
//!
//! When a guard is dropped, its state ends, waiting threads are woken and counters are updated. The
//! module does not check which bytes a caller may copy: the byte range that the caller holds
//! decides that.
//!
//! Invariant: dropping a guard without finishing it is safe. An unfinished fill leaves no page, and
//! an unfinished write-back leaves its units dirty.

use std::sync::atomic::AtomicU64;

use super::nodes::{LeafKey, Slot};
use super::page_index::PageIndex;
use super::state::{ALL_UNITS, PIN, PageState, WAITERS, units};
use super::{PageCache, bytes};
use crate::fault::{Fault, guarded};
use crate::sync::atomic::Ordering;

/// A page with contents, which stays pinned until this guard is dropped.
#[derive(Debug)]
pub struct Page<'a> {
    cache: &'a PageCache,
    slot: Slot<'a>,
    words: &'a [AtomicU64],
}

impl<'a> Page<'a> {
    pub(super) fn new(cache: &'a PageCache, slot: Slot<'a>, state: PageState) -> Self {
        Self { cache, slot, words: cache.contents(state.frame()) }
    }

    /// Copies bytes out of the page, from byte `at` on.
    ///
    /// # Panics
    /// If the range exceeds the page, as in all methods here that copy.
    pub fn read(&self, at: usize, buf: &mut [u8]) {
        bytes::load(self.words, at, buf);
    }

    /// Copies bytes into the page, from byte `at` on. The caller marks them dirty before it drops
    /// the page.
    pub fn write(&self, at: usize, data: &[u8]) {
        if cfg!(shuttle) {
            // The model checker does not schedule accesses to the contents. This load lets it
            // switch threads here.
            self.slot.word.load(Ordering::Relaxed);
        }
        bytes::store(self.words, at, data);
    }

    /// Overwrites `len` bytes with zeros, from byte `at` on.
    pub fn zero(&self, at: usize, len: usize) {
        bytes::zero(self.words, at, len);
    }

    /// Marks units as dirty and as reserved. Returns the previous dirty and reserved units.
    pub fn mark_dirty(&self, dirty: u8, reserved: u8) -> (u8, u8) {
        // Release: the thread that writes the page back sees the bytes.
        let before = PageState(self.slot.word.fetch_or(units(dirty, reserved), Ordering::AcqRel));
        if dirty != 0 && !before.counts_as_dirty() {
            self.cache.counters.dirty(1);
        }
        (before.dirty(), before.reserved())
    }

    /// Returns the dirty and the reserved units.
    pub fn marks(&self) -> (u8, u8) {
        let state = PageState(self.slot.word.load(Ordering::Acquire));
        (state.dirty(), state.reserved())
    }

    /// Begins a write-back of the dirty units. Returns `None` if there are none, or if a write-back
    /// is under way.
    pub fn begin_write_back(&self) -> Option<WriteBack<'a>> {
        let begin = |word| PageState(word).begin_write_back().map(|state| state.0);
        let before = PageState(self.slot.word.update(Ordering::AcqRel, begin).ok()?);
        let (dirty, reserved) = (before.dirty(), before.reserved());
        let Self { cache, slot, words } = *self;
        Some(WriteBack { cache, slot, words, dirty, reserved, failed: true })
    }

    /// Begins the write-back of [`FilePages::begin_rewrite`](super::FilePages::begin_rewrite) if
    /// this page is clean.
    pub(super) fn begin_rewrite(&self) -> Option<WriteBack<'a>> {
        let begin = |word| PageState(word).begin_rewrite().map(|state| state.0);
        self.slot.word.update(Ordering::AcqRel, begin).ok()?;
        let Self { cache, slot, words } = *self;
        // A page under write-back counts as dirty.
        cache.counters.dirty(1);
        Some(WriteBack { cache, slot, words, dirty: 0, reserved: 0, failed: true })
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        // Release: a thread that then discards or evicts the page does so after this thread's
        // copies.
        let before = PageState(self.slot.word.fetch_sub(PIN, Ordering::Release));
        if before.has_waiters() && before.pins() == 1 {
            let now = PageState(self.slot.word.fetch_and(!WAITERS, Ordering::AcqRel));
            // Between the two steps another thread may evict the page, which clears the bit and
            // wakes no thread. So the value of the bit before the first step decides.
            let marked = guarded!(Fault::WakeIfStillMarked, before, now);
            self.cache.wait_queues.wake(self.slot, marked);
        }
    }
}

/// The right to fill a claimed page, while other threads wait for it. If it is dropped without
/// [`Self::finish`], the slot becomes empty, and one of the waiting threads may claim the page.
#[derive(Debug)]
#[must_use]
pub struct Fill<'a> {
    cache: &'a PageCache,
    slot: Slot<'a>,
    key: LeafKey,
    frame: u32,
    words: &'a [AtomicU64],
}

impl<'a> Fill<'a> {
    pub(super) fn new(cache: &'a PageCache, slot: Slot<'a>, key: LeafKey, frame: u32) -> Self {
        Self { cache, slot, key, frame, words: cache.contents(frame) }
    }

    /// Returns the page's index.
    #[must_use]
    pub fn index(&self) -> PageIndex {
        self.key.index() + self.slot.id.nth()
    }

    /// Copies bytes into the page. The caller writes all bytes: the frame may hold data of other
    /// files.
    ///
    /// # Panics
    /// If the range exceeds the page, here and below.
    pub fn write(&self, at: usize, data: &[u8]) {
        bytes::store(self.words, at, data);
    }

    /// Overwrites `len` bytes with zeros, from byte `at` on.
    pub fn zero(&self, at: usize, len: usize) {
        bytes::zero(self.words, at, len);
    }

    /// Makes the page visible to other threads, with these units dirty and reserved, and wakes the
    /// threads that wait for it.
    pub fn finish(self, dirty: u8, reserved: u8) -> Page<'a> {
        let Self { cache, slot, frame, .. } = self;
        std::mem::forget(self);
        if dirty & ALL_UNITS != 0 {
            cache.counters.dirty(1);
        }
        let state = PageState::filled(frame, dirty, reserved);
        cache.wait_queues.update_and_wake(slot, |_| state);
        Page::new(cache, slot, state)
    }
}

impl Drop for Fill<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        self.cache.wait_queues.update_and_wake(self.slot, |_| PageState::EMPTY);
        self.cache.release([(self.slot.id, Some(self.frame))]);
    }
}

/// A page under write-back. If it is dropped without [`Self::finish`], its units become dirty
/// again.
#[derive(Debug)]
#[must_use]
pub struct WriteBack<'a> {
    cache: &'a PageCache,
    slot: Slot<'a>,
    words: &'a [AtomicU64],
    dirty: u8,
    reserved: u8,
    failed: bool,
}

impl WriteBack<'_> {
    /// Returns the units that were dirty when the write-back began.
    #[must_use]
    pub fn dirty(&self) -> u8 {
        self.dirty
    }

    /// Returns the units that are reserved and not yet allocated by this write-back.
    #[must_use]
    pub fn reserved(&self) -> u8 {
        self.reserved
    }

    /// Copies bytes out of the page, from byte `at` on.
    ///
    /// # Panics
    /// If the range exceeds the page.
    pub fn read(&self, at: usize, buf: &mut [u8]) {
        bytes::load(self.words, at, buf);
    }

    /// Excludes units from this write-back and makes them clean. Returns the reserved units among
    /// them, for the caller to release. The caller makes sure that no thread dirties the units
    /// meanwhile.
    pub fn leave_out(&mut self, units: u8) -> u8 {
        let reserved = self.reserved & units;
        self.dirty &= !units;
        if reserved != 0 {
            self.allocated(reserved);
        }
        reserved
    }

    /// Records that these units have blocks now. That uses up their reservations, whether or not
    /// the write succeeds.
    pub fn allocated(&mut self, units_with_blocks: u8) {
        self.slot.word.fetch_and(!units(0, units_with_blocks), Ordering::AcqRel);
        self.reserved &= !units_with_blocks;
    }

    /// Ends the write-back. If `ok`, its units are clean unless they were changed meanwhile, and
    /// units that were reserved when it began are no longer reserved. Otherwise its units are dirty
    /// again.
    pub fn finish(mut self, ok: bool) {
        self.failed = !ok;
    }
}

impl Drop for WriteBack<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        let (dirty, allocated) = if self.failed { (self.dirty, 0) } else { (0, self.reserved) };
        let end = |state: PageState| {
            let after = state.end_write_back(dirty, allocated);
            guarded!(Fault::WriteBackCleansAll, after, PageState(after.0 & !units(ALL_UNITS, 0)))
        };
        let before = self.cache.wait_queues.update_and_wake(self.slot, end);
        if !end(before).counts_as_dirty() {
            self.cache.counters.dirty(-1);
        }
    }
}
