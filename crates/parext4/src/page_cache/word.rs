//! The state of a page: one atomic word, in the slot of its file's tree.
//!
//! | bits | name | |
//! |---|---|---|
//! | 0-27 | frame | where the contents are, while present |
//! | 28-47 | pins | who uses the contents now; held for a copy |
//! | 48-49 | accessed | how often it was found since the eviction last looked, up to 3 |
//! | 50-53 | dirty | by KiB: changed since it was last written back |
//! | 54-57 | reserved | by KiB: has space reserved, no block yet |
//! | 58 | present | has contents |
//! | 59 | filling | one thread is about to bring the contents |
//! | 60 | write-back | one thread is writing the contents to the device |
//! | 61 | waiters | somebody sleeps until filling, write-back or the pins end |
//! | 62 | child | not a page: the number of a node of the tree |
//!
//! Zero is no page. From there:
//!
//! * empty -> filling: whoever needs the page; it alone goes on
//! * filling -> present, or back to empty
//! * present -> empty: eviction, if it has no pins and is not dirty, reserved or in write-back; discarding, if it has
//!   no pins and is not in write-back
//!
//! Only a present page has any of frame, pins, accessed, dirty, reserved and write-back. Its frame stays the same.

use crate::fault::{Fault, planted};

/// Bytes in a page.
pub const PAGE: usize = 4096;

/// The frames that a word can name.
pub(super) const MOST_FRAMES: u64 = 1 << 28;
/// All units of a page, of a KiB each, as a mask.
pub(super) const ALL_UNITS: u8 = 0xf;

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
/// What has to be written back, or given back, before the page may go.
const OWED: u64 = 0xff << DIRTY;

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub u64);

impl State {
    pub const EMPTY: Self = Self(0);
    pub const CLAIMED: Self = Self(FILLING);

    /// A page that comes into being, pinned once.
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

    pub fn is_written_back(self) -> bool {
        self.0 & WRITE_BACK != 0
    }

    pub fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    /// Whether it counts as dirty: it is, or it may be again if its write-back fails.
    pub fn is_unsettled(self) -> bool {
        self.dirty() != 0 || self.is_written_back()
    }

    /// One more pin, and one more access if `counts`.
    pub fn pinned(self, counts: bool) -> Option<Self> {
        let room = self.is_present() && self.0 & PINS != PINS;
        let access = if counts && self.0 & ACCESSES != ACCESSES { ACCESS } else { 0 };
        room.then(|| Self(self.0 + PIN + access))
    }

    /// Its dirty units in the hands of a write-back.
    pub fn in_write_back(self) -> Option<Self> {
        let free = !self.is_written_back() || planted(Fault::WriteBackTwice);
        let may = self.is_present() && self.dirty() != 0 && free;
        may.then(|| Self(self.0 & !units(ALL_UNITS, 0) | WRITE_BACK))
    }

    /// As a clean page between dirty ones that are written back with it. Then it may change, but not go.
    pub fn in_rewrite(self) -> Option<Self> {
        self.is_clean().then(|| if planted(Fault::RewriteUnheld) { self } else { Self(self.0 | WRITE_BACK) })
    }

    /// Whether it holds what the device does: it is present, and nothing of it is dirty, reserved or being written back.
    pub fn is_clean(self) -> bool {
        self.is_present() && self.0 & (OWED | WRITE_BACK) == 0
    }

    /// Its write-back is over; `dirty` could not be written, `allocated` needs no reservation any more.
    pub fn written_back(self, dirty: u8, allocated: u8) -> Self {
        Self(self.0 & !(WRITE_BACK | units(0, allocated)) | units(dirty, 0))
    }

    /// Whether it cannot be discarded yet.
    pub fn is_held(self) -> bool {
        self.0 & (PINS | FILLING | WRITE_BACK) != 0
    }

    /// What the eviction does with the page in `frame`, which goes if it was accessed at most `most` times.
    pub fn look(self, frame: u32, most: u64) -> Look {
        let held = self.is_held() && !planted(Fault::EvictPinned);
        let owed = self.0 & OWED != 0 && !planted(Fault::EvictDirty);
        if !self.is_present() || self.frame() != frame || held || owed {
            Look::Busy
        } else if self.accessed() <= most {
            Look::Evict
        } else {
            Look::Spare
        }
    }

    /// The same with so many accesses.
    pub fn with_accesses(self, accessed: u64) -> Self {
        Self((self.0 & !ACCESSES) | (accessed.min(3) * ACCESS))
    }
}

/// What the eviction does with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Leave it.
    Busy,
    /// It has been used: give it more time.
    Spare,
    Evict,
}

/// The bits of dirty and reserved units.
pub(super) fn units(dirty: u8, reserved: u8) -> u64 {
    u64::from(dirty & ALL_UNITS) << DIRTY | u64::from(reserved & ALL_UNITS) << RESERVED
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: State = State(PRESENT | 7);

    fn with(bits: u64) -> State {
        State(CLEAN.0 | bits)
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
        let state = State::filled(0xfff_ffff, 0b0101, 0b0110);
        assert_eq!((state.frame(), state.pins(), state.accessed()), (0xfff_ffff, 1, 0));
        assert_eq!((state.dirty(), state.reserved(), state.is_present()), (0b0101, 0b0110, true));
        assert!(!State::CLAIMED.is_present() && State::CLAIMED.is_filling() && State::CLAIMED.is_held());
    }

    #[test]
    fn pins_count_accesses_up_to_three() {
        let mut state = CLEAN;
        for (pins, accessed) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
            state = state.pinned(true).unwrap();
            assert_eq!((state.pins(), state.accessed(), state.frame()), (pins, accessed, 7));
        }
        assert_eq!(CLEAN.pinned(false).unwrap().accessed(), 0);
        for no in [State::EMPTY, State::CLAIMED, with(PINS), State(CHILD | 5)] {
            assert_eq!(no.pinned(true), None, "{no:?}");
        }
    }

    #[test]
    fn what_is_evicted() {
        for (bits, most, look) in [
            (0, 0, Look::Evict),
            (ACCESS, 0, Look::Spare),
            (ACCESS, 1, Look::Evict),
            (ACCESSES, 2, Look::Spare),
            (PIN, 3, Look::Busy),
            (WRITE_BACK, 3, Look::Busy),
            (units(0b1000, 0), 3, Look::Busy),
            (units(0, 0b0001), 3, Look::Busy),
            (WAITERS, 0, Look::Evict),
        ] {
            assert_eq!(with(bits).look(7, most), look, "{bits:#x}");
        }
        assert_eq!(CLEAN.look(8, 3), Look::Busy, "the frame is another page's");
        assert_eq!(State::CLAIMED.look(0, 3), Look::Busy);
        assert_eq!(with(ACCESSES).with_accesses(1), with(ACCESS));
    }

    #[test]
    fn write_backs_take_the_dirty_units_and_bring_back_what_failed() {
        let marks = units(0b0011, 0b0111);
        let begun = with(marks).in_write_back().unwrap();
        assert_eq!(begun, with(WRITE_BACK | units(0, 0b0111)));
        assert!(begun.is_unsettled() && begun.is_held());
        for no in [CLEAN, begun, State(begun.0 | marks), State::EMPTY] {
            assert_eq!(no.in_write_back(), None, "{no:?}");
        }
        let changed = State(begun.0 | units(0b1000, 0));
        assert_eq!(changed.written_back(0, 0b0011), with(units(0b1000, 0b0100)));
        assert_eq!(begun.written_back(0b0011, 0), with(marks));
        assert!(!begun.written_back(0, 0).is_unsettled());
    }

    #[test]
    fn only_clean_pages_are_rewritten() {
        assert_eq!(with(PIN | ACCESS).in_rewrite(), Some(with(PIN | ACCESS | WRITE_BACK)));
        for no in [State::EMPTY, State::CLAIMED, with(units(1, 0)), with(units(0, 1)), with(WRITE_BACK)] {
            assert_eq!(no.in_rewrite(), None, "{no:?}");
        }
    }
}
