//! Maps a byte range to slots: cuts offsets into stripes and hashes the stripes to [`SLOTS`] slots.

use crate::ByteRange;

/// The models use stripes of one byte and four slots, so that small requests reach every state.
const MODEL: bool = cfg!(shuttle);
/// Binary logarithm of the bytes in a stripe: 64 KiB. Most requests lie in one or two stripes, and
/// threads that work in different parts of a file rarely meet in one stripe.
const STRIPE_SHIFT: u32 = if MODEL { 0 } else { 16 };
const SLOTS_SHIFT: u32 = if MODEL { 2 } else { 6 };
/// Number of slots that stripes are hashed to.
pub(crate) const SLOTS: usize = 1 << SLOTS_SHIFT;
/// A range that spans more than this many stripes is wide.
const MAX_NARROW_STRIPES: u64 = SLOTS as u64 / 2;

/// A set of slots, one bit for each slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotSet(u64);

impl SlotSet {
    pub(crate) const EMPTY: Self = Self(0);
    pub(crate) const ALL: Self = Self(u64::MAX >> (u64::BITS - SLOTS as u32));

    /// Returns the slots of all stripes of `range`; [`ALL`](Self::ALL) if the range is wide.
    #[inline(always)]
    pub(crate) fn of(range: ByteRange) -> Self {
        let (first, last) = stripes(range);
        if first == last { Self(1 << slot_of(first)) } else { Self::of_several(range) }
    }

    #[inline(never)]
    fn of_several(range: ByteRange) -> Self {
        let (first, last) = stripes(range);
        if is_wide(range) {
            return Self::ALL;
        }
        Self((first..=last).fold(0, |slots, stripe| slots | 1 << slot_of(stripe)))
    }

    /// Returns the slots for which `include` is true.
    pub(crate) fn filter(include: impl Fn(usize) -> bool) -> Self {
        Self((0..SLOTS).rev().fold(0, |slots, slot| slots << 1 | u64::from(include(slot))))
    }

    /// Adds `slot` to the set.
    pub(crate) fn insert(&mut self, slot: usize) {
        self.0 |= 1 << slot;
    }

    /// Returns the slots of this set that are not in `other`.
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the set of this set's lowest slot only.
    pub(crate) fn lowest(self) -> Self {
        Self(self.0 & self.0.wrapping_neg())
    }

    /// Returns the only slot of the set, or `None` if the set has none or several.
    #[inline(always)]
    pub(crate) fn sole(self) -> Option<usize> {
        self.0.is_power_of_two().then(|| self.0.trailing_zeros() as usize % SLOTS)
    }

    /// Returns the slots in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let slot = bits.trailing_zeros() as usize;
            (bits != 0).then(|| {
                bits &= bits - 1;
                slot
            })
        })
    }
}

/// Returns true if `range` spans more stripes than a request enters one by one.
pub(crate) fn is_wide(range: ByteRange) -> bool {
    let (first, last) = stripes(range);
    last - first >= MAX_NARROW_STRIPES
}

/// Returns the first and the last stripe of `range`.
#[inline(always)]
fn stripes(range: ByteRange) -> (u64, u64) {
    (range.start() >> STRIPE_SHIFT, (range.end() - 1) >> STRIPE_SHIFT)
}

/// Hashes a stripe by Fibonacci hashing (Knuth, volume 3, section 6.4): adjacent stripes get
/// different slots, and threads that advance side by side, a power of two bytes apart, do not
/// collide at each step.
#[inline(always)]
fn slot_of(stripe: u64) -> usize {
    (stripe.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS_SHIFT)) as usize
}
