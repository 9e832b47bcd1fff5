//! The state of a page: one atomic word, in the page's slot in the tree of its file.
//!
//! The module is responsible for the meaning of the word and for the changes that it permits. Its
//! functions are pure: `page`, `file_pages` and the eviction decide when to apply a change.
//!
//! | bits | name | |
//! |---|---|---|
//! | 0-27 | frame | index of the frame with the contents |
//! | 28-47 | pins | number of threads that use the contents now; held for a copy |
//! | 48-49 | accessed | number of look-ups since the eviction last saw the page, at most 3 |
//! | 50-53 | dirty | one bit for each unit that was changed since it was last written back |
//! | 54-57 | reserved | one bit for each unit that has reserved space and no block yet |
//! | 58 | present | the page has contents |
//! | 59 | filling | one thread fills the page |
//! | 60 | write-back | one thread writes the contents to the device |
//! | 61 | waiters | a thread waits until filling, write-back or the pins end |
//! | 62 | child | the slot is not a page: it holds the number of a node of the tree |
//!
//! A unit is a quarter of a page. Zero is an empty slot. Changes:
//!
//! | from | to | by | condition |
//! |---|---|---|---|
//! | empty | filling | the thread that claims the page | |
//! | filling | present, or empty again | the thread that fills it | |
//! | present | empty | eviction | no pins, not dirty, not reserved, not under write-back |
//! | present | empty | discarding | no pins, not under write-back |
//!
//! Invariant: frame, pins, accessed, dirty, reserved and write-back are zero unless the page is
//! present. The frame of a present page does not change.

use crate::fault::{Fault, guarded};

/// Number of frames that a word can refer to.
pub(super) const MAX_FRAMES: u64 = 1 << 28;
/// Number of units of a page. A block has one, two or all of them.
pub(super) const UNITS: u32 = 4;
/// Mask of all units of a page.
pub(super) const ALL_UNITS: u8 = (1 << UNITS) - 1;

pub(super) const PIN: u64 = 1 << 28;
pub(super) const WAITERS: u64 = 1 << 61;
pub(super) const CHILD: u64 = 1 << 62;

const FRAME: u64 = PIN - 1;
const PINS: u64 = ACCESS - PIN;
const ACCESS: u64 = 1 << 48;
const ACCESSES: u64 = 3 * ACCESS;
const DIRTY: u32 = 50;
const RESERVED: u32 = 54;
const PRESENT: u64 = 1 << 58;
const FILLING: u64 = 1 << 59;
const WRITE_BACK: u64 = 1 << 60;
/// Bits of a page that must be written back or whose reservation must be released before the page
/// can be evicted.
const UNCLEAN: u64 = 0xff << DIRTY;

/// A page's state, as read from its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageState(pub u64);

impl PageState {
    pub const EMPTY: Self = Self(0);
    pub const CLAIMED: Self = Self(FILLING);

    /// Returns the state of a page that has just been filled, with one pin.
    pub fn filled(frame: u32, dirty: u8, reserved: u8) -> Self {
        Self(PRESENT | PIN | u64::from(frame) | units(dirty, reserved))
    }

    pub fn frame(self) -> u32 {
        (self.0 & FRAME) as u32
    }

    pub fn pins(self) -> u64 {
        (self.0 & PINS) / PIN
    }

    pub fn accessed(self) -> u64 {
        (self.0 & ACCESSES) / ACCESS
    }

    pub fn dirty(self) -> u8 {
        self.units(DIRTY)
    }

    pub fn reserved(self) -> u8 {
        self.units(RESERVED)
    }

    fn units(self, at: u32) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "4 bits")]
        let units = (self.0 >> at) as u8 & ALL_UNITS;
        units
    }

    pub fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    pub fn is_filling(self) -> bool {
        self.0 & FILLING != 0
    }

    pub fn is_in_write_back(self) -> bool {
        self.0 & WRITE_BACK != 0
    }

    pub fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    /// Returns true if the page counts as dirty: it is dirty, or becomes dirty again if its
    /// write-back fails.
    pub fn counts_as_dirty(self) -> bool {
        self.dirty() != 0 || self.is_in_write_back()
    }

    /// Adds a pin, and an access if `counts`. Returns `None` if the page is not present or has too
    /// many pins.
    pub fn pinned(self, counts: bool) -> Option<Self> {
        let room = self.is_present() && self.0 & PINS != PINS;
        let access = if counts && self.0 & ACCESSES != ACCESSES { ACCESS } else { 0 };
        room.then(|| Self(self.0 + PIN + access))
    }

    /// Moves the dirty units into a write-back. Returns `None` if no unit is dirty, or if a
    /// write-back is under way.
    pub fn begin_write_back(self) -> Option<Self> {
        let busy = guarded!(Fault::WriteBackTwice, self.is_in_write_back());
        let may = self.is_present() && self.dirty() != 0 && !busy;
        may.then(|| Self(self.0 & !units(ALL_UNITS, 0) | WRITE_BACK))
    }

    /// Begins a write-back of a clean page, which is written again together with dirty neighbours.
    /// Returns `None` if the page is not clean. Until the write-back ends, the page may become
    /// dirty, but is neither evicted nor discarded.
    pub fn begin_rewrite(self) -> Option<Self> {
        self.is_clean().then(|| guarded!(Fault::RewriteNotMarked, Self(self.0 | WRITE_BACK), self))
    }

    /// Returns true if the page equals the contents of the device: it is present and not dirty,
    /// reserved or under write-back.
    pub fn is_clean(self) -> bool {
        self.is_present() && self.0 & (UNCLEAN | WRITE_BACK) == 0
    }

    /// Ends a write-back. The units `dirty` could not be written and are dirty again; the
    /// reservations of `allocated` are used up.
    pub fn end_write_back(self, dirty: u8, allocated: u8) -> Self {
        Self(self.0 & !(WRITE_BACK | units(0, allocated)) | units(dirty, 0))
    }

    /// Returns true if the page cannot be discarded yet.
    pub fn is_in_use(self) -> bool {
        self.0 & (PINS | FILLING | WRITE_BACK) != 0
    }

    /// Decides whether the page in `frame` is evicted. A page with more than `most` accesses is
    /// kept.
    pub fn evict_decision(self, frame: u32, most: u64) -> EvictDecision {
        let held = guarded!(Fault::EvictPinned, self.is_in_use());
        let unclean = guarded!(Fault::EvictDirty, self.0 & UNCLEAN != 0);
        if !self.is_present() || self.frame() != frame || held || unclean {
            EvictDecision::Busy
        } else if self.accessed() <= most {
            EvictDecision::Evict
        } else {
            EvictDecision::Keep
        }
    }

    /// Returns the state with its number of accesses replaced.
    pub fn with_accesses(self, accessed: u64) -> Self {
        Self((self.0 & !ACCESSES) | (accessed.min(3) * ACCESS))
    }
}

/// The decision of the eviction about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictDecision {
    /// The page is in use, dirty, reserved, or no longer in this frame. Nothing changes.
    Busy,
    /// The page is kept for another round, because it was accessed.
    Keep,
    Evict,
}

/// Returns the bits of dirty and reserved units.
pub(super) fn units(dirty: u8, reserved: u8) -> u64 {
    u64::from(dirty & ALL_UNITS) << DIRTY | u64::from(reserved & ALL_UNITS) << RESERVED
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: PageState = PageState(PRESENT | 7);

    fn with(bits: u64) -> PageState {
        PageState(CLEAN.0 | bits)
    }

    #[test]
    fn the_parts_do_not_overlap() {
        let parts = [FRAME, PINS, ACCESSES, units(ALL_UNITS, 0), units(0, ALL_UNITS)];
        let flags = [PRESENT, FILLING, WRITE_BACK, WAITERS, CHILD];
        let all = parts.into_iter().chain(flags).fold(0_u64, |all, part| {
            assert_eq!(all & part, 0, "{part:#x}");
            all | part
        });
        assert_eq!(all, (1 << 63) - 1);
    }

    #[test]
    fn a_page_is_made_of_what_it_was_filled_with() {
        let state = PageState::filled(0xfff_ffff, 0b0101, 0b0110);
        assert_eq!((state.frame(), state.pins(), state.accessed()), (0xfff_ffff, 1, 0));
        assert_eq!((state.dirty(), state.reserved(), state.is_present()), (0b0101, 0b0110, true));
        assert!(
            !PageState::CLAIMED.is_present()
                && PageState::CLAIMED.is_filling()
                && PageState::CLAIMED.is_in_use()
        );
    }

    #[test]
    fn pins_count_accesses_up_to_three() {
        let mut state = CLEAN;
        for (pins, accessed) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
            state = state.pinned(true).unwrap();
            assert_eq!((state.pins(), state.accessed(), state.frame()), (pins, accessed, 7));
        }
        assert_eq!(CLEAN.pinned(false).unwrap().accessed(), 0);
        for no in [PageState::EMPTY, PageState::CLAIMED, with(PINS), PageState(CHILD | 5)] {
            assert_eq!(no.pinned(true), None, "{no:?}");
        }
    }

    #[test]
    fn what_is_evicted() {
        for (bits, most, look) in [
            (0, 0, EvictDecision::Evict),
            (ACCESS, 0, EvictDecision::Keep),
            (ACCESS, 1, EvictDecision::Evict),
            (ACCESSES, 2, EvictDecision::Keep),
            (PIN, 3, EvictDecision::Busy),
            (WRITE_BACK, 3, EvictDecision::Busy),
            (units(0b1000, 0), 3, EvictDecision::Busy),
            (units(0, 0b0001), 3, EvictDecision::Busy),
            (WAITERS, 0, EvictDecision::Evict),
        ] {
            assert_eq!(with(bits).evict_decision(7, most), look, "{bits:#x}");
        }
        assert_eq!(CLEAN.evict_decision(8, 3), EvictDecision::Busy, "the frame is another page's");
        assert_eq!(PageState::CLAIMED.evict_decision(0, 3), EvictDecision::Busy);
        assert_eq!(with(ACCESSES).with_accesses(1), with(ACCESS));
    }

    #[test]
    fn write_backs_take_the_dirty_units_and_bring_back_what_failed() {
        let marks = units(0b0011, 0b0111);
        let begun = with(marks).begin_write_back().unwrap();
        assert_eq!(begun, with(WRITE_BACK | units(0, 0b0111)));
        assert!(begun.counts_as_dirty() && begun.is_in_use());
        for no in [CLEAN, begun, PageState(begun.0 | marks), PageState::EMPTY] {
            assert_eq!(no.begin_write_back(), None, "{no:?}");
        }
        let changed = PageState(begun.0 | units(0b1000, 0));
        assert_eq!(changed.end_write_back(0, 0b0011), with(units(0b1000, 0b0100)));
        assert_eq!(begun.end_write_back(0b0011, 0), with(marks));
        assert!(!begun.end_write_back(0, 0).counts_as_dirty());
    }

    #[test]
    fn only_clean_pages_are_rewritten() {
        assert_eq!(with(PIN | ACCESS).begin_rewrite(), Some(with(PIN | ACCESS | WRITE_BACK)));
        for no in
            [PageState::EMPTY, PageState::CLAIMED, with(units(1, 0)), with(units(0, 1)), with(WRITE_BACK)]
        {
            assert_eq!(no.begin_rewrite(), None, "{no:?}");
        }
    }
}
