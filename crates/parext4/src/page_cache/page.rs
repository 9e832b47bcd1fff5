//! What callers hold of a page: its use, the right to fill it, or its write-back.

use std::sync::atomic::AtomicU64;

use super::nodes::{Key, Slot};
use super::word::{ALL_UNITS, PAGE, PIN, State, WAITERS, units};
use super::{PageCache, bytes};
use crate::fault::{Fault, planted};
use crate::sync::atomic::Ordering;

/// The words of a page's contents.
type Contents = [AtomicU64; PAGE / 8];

/// A page with contents, pinned until this is dropped.
#[derive(Debug)]
pub struct Page<'a> {
    cache: &'a PageCache,
    slot: Slot<'a>,
    words: &'a Contents,
}

impl<'a> Page<'a> {
    pub(super) fn new(cache: &'a PageCache, slot: Slot<'a>, state: State) -> Self {
        Self { cache, slot, words: cache.contents(state.frame()) }
    }

    /// Copies bytes out, from byte `at` of the page on.
    ///
    /// # Panics
    /// If that goes beyond the page, here and below.
    pub fn read(&self, at: usize, buf: &mut [u8]) {
        bytes::load(self.words, at, buf);
    }

    /// Copies bytes in. Call [`Self::mark_dirty`] before the page is dropped.
    pub fn write(&self, at: usize, data: &[u8]) {
        if cfg!(shuttle) {
            // The models change threads at what is theirs, which the contents are not.
            self.slot.word.load(Ordering::Relaxed);
        }
        bytes::store(self.words, at, data);
    }

    /// Makes bytes zero.
    pub fn zero(&self, at: usize, len: usize) {
        bytes::zero(self.words, at, len);
    }

    /// Notes, by unit of a KiB, what was changed, and what has a reservation now. Returns the dirty and the reserved
    /// units as they were before.
    pub fn mark_dirty(&self, dirty: u8, reserved: u8) -> (u8, u8) {
        // Release: who writes the page back sees what was written.
        let before = State(self.slot.word.fetch_or(units(dirty, reserved), Ordering::AcqRel));
        if dirty != 0 && !before.is_unsettled() {
            self.cache.counters.dirty(1);
        }
        (before.dirty(), before.reserved())
    }

    /// The units that are dirty, and those that are reserved.
    pub fn marks(&self) -> (u8, u8) {
        let state = State(self.slot.word.load(Ordering::Acquire));
        (state.dirty(), state.reserved())
    }

    /// Takes the dirty units to write them back. `None` if there are none, or the page is being written back.
    pub fn begin_write_back(&self) -> Option<WriteBack<'a>> {
        let begin = |word| State(word).in_write_back().map(|state| state.0);
        let before = State(self.slot.word.update(Ordering::AcqRel, begin).ok()?);
        let (dirty, reserved) = (before.dirty(), before.reserved());
        let Self { cache, slot, words } = *self;
        Some(WriteBack { cache, slot, words, dirty, reserved, failed: true })
    }

    /// Takes a clean page to write it again, together with dirty ones around it. `None` if it is not clean.
    pub fn begin_rewrite(&self) -> Option<WriteBack<'a>> {
        let begin = |word| State(word).in_rewrite().map(|state| state.0);
        self.slot.word.update(Ordering::AcqRel, begin).ok()?;
        let Self { cache, slot, words } = *self;
        // It counts as dirty until then.
        cache.counters.dirty(1);
        Some(WriteBack { cache, slot, words, dirty: 0, reserved: 0, failed: true })
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        // Release: who discards or evicts the page does it after its use.
        let before = State(self.slot.word.fetch_sub(PIN, Ordering::Release));
        if before.has_waiters() && before.pins() == 1 {
            let before = self.slot.word.fetch_and(!WAITERS, Ordering::AcqRel);
            self.cache.parking.wake(self.slot, State(before));
        }
    }
}

/// The right and the duty to bring a page's contents, while others wait. Dropped without [`Self::finish`], the page is
/// not there, and one of the others may try.
#[derive(Debug)]
#[must_use]
pub struct Fill<'a> {
    cache: &'a PageCache,
    slot: Slot<'a>,
    key: Key,
    frame: u32,
    words: &'a Contents,
}

impl<'a> Fill<'a> {
    pub(super) fn new(cache: &'a PageCache, slot: Slot<'a>, key: Key, frame: u32) -> Self {
        Self { cache, slot, key, frame, words: cache.contents(frame) }
    }

    /// The page's index.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.key.index() + self.slot.place.nth()
    }

    /// Copies bytes in. What is not written holds rubbish, maybe of other files.
    ///
    /// # Panics
    /// If that goes beyond the page, here and below.
    pub fn write(&self, at: usize, data: &[u8]) {
        bytes::store(self.words, at, data);
    }

    /// Makes bytes zero.
    pub fn zero(&self, at: usize, len: usize) {
        bytes::zero(self.words, at, len);
    }

    /// Shows the page to all, with these units dirty and reserved.
    pub fn finish(self, dirty: u8, reserved: u8) -> Page<'a> {
        let Self { cache, slot, frame, .. } = self;
        std::mem::forget(self);
        if dirty & ALL_UNITS != 0 {
            cache.counters.dirty(1);
        }
        let state = State::filled(frame, dirty, reserved);
        cache.parking.end(slot, |_| state);
        Page::new(cache, slot, state)
    }
}

impl Drop for Fill<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        self.cache.parking.end(self.slot, |_| State::EMPTY);
        self.cache.release([(self.slot.place, Some(self.frame))]);
    }
}

/// A page that is being written to the device. Dropped without [`Self::finish`], its dirty units are dirty again.
#[derive(Debug)]
#[must_use]
pub struct WriteBack<'a> {
    cache: &'a PageCache,
    slot: Slot<'a>,
    words: &'a Contents,
    dirty: u8,
    reserved: u8,
    failed: bool,
}

impl WriteBack<'_> {
    /// The units that were dirty.
    #[must_use]
    pub fn dirty(&self) -> u8 {
        self.dirty
    }

    /// The units that were reserved.
    #[must_use]
    pub fn reserved(&self) -> u8 {
        self.reserved
    }

    /// Copies bytes out, from byte `at` of the page on.
    ///
    /// # Panics
    /// If that goes beyond the page.
    pub fn read(&self, at: usize, buf: &mut [u8]) {
        bytes::load(self.words, at, buf);
    }

    /// These units have blocks now: their reservations are used up, however the write ends.
    pub fn allocated(&mut self, units_with_blocks: u8) {
        self.slot.word.fetch_and(!units(0, units_with_blocks), Ordering::AcqRel);
        self.reserved &= !units_with_blocks;
    }

    /// The write is over. If `ok`, its units are clean unless they were changed meanwhile, and those that were
    /// reserved when it began are no more; else they are dirty again.
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
        let end = |state: State| {
            let after = state.written_back(dirty, allocated);
            if planted(Fault::WriteBackCleansAll) { State(after.0 & !units(ALL_UNITS, 0)) } else { after }
        };
        let before = self.cache.parking.end(self.slot, end);
        if !end(before).is_unsettled() {
            self.cache.counters.dirty(-1);
        }
    }
}
