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
        let may = self.is_present() && self.dirty() != 0 && !self.is_written_back();
        may.then(|| Self(self.0 & !units(ALL_UNITS, 0) | WRITE_BACK))
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
        if !self.is_present() || self.frame() != frame || self.is_held() || self.0 & OWED != 0 {
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
