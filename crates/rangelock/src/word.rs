//! What one word can say of a slot: that it is free, or which one range is held in it, and by how many.
//!
//! | bits | of a range in bytes | of a range in blocks of 4 KiB |
//! |---|---|---|
//! | 0..4 | holders: 1 exclusive, or 1 + the number of shared ones | the same |
//! | 4 | 0 | 1 |
//! | 5.. | 16 bits: length - 1 | 27 bits: length - 1; all set: to infinity |
//! | ..64 | 43 bits: start | 32 bits: start |
//!
//! No holders and nothing else is `FREE`; no holders and bit 4 is `QUEUED`. So a request of up to 64 KiB in the
//! first 8 TiB fits, and one for whole blocks, such as a file or the rest of it, in the first 16 TiB.

use crate::queue::Claim;
use crate::sync::{AtomicU64, Ordering};
use crate::{ByteRange, Mode};

/// Nobody holds a range here or waits for one.
pub(crate) const FREE: u64 = 0;
/// Ask the queue.
pub(crate) const QUEUED: u64 = UNIT;

const HOLDERS: u64 = 0xf;
const EXCLUSIVE: u64 = 1;
const ONE_SHARED: u64 = 2;
const UNIT: u64 = 1 << 4;
const LEN_SHIFT: u32 = 5;

const BYTES_START_SHIFT: u32 = LEN_SHIFT + 16;
const BYTES_MAX_START: u64 = u64::MAX >> BYTES_START_SHIFT;
const BYTES_MAX_LEN: u64 = 1 << 16;

const BLOCK_SHIFT: u32 = 12;
const BLOCK: u64 = 1 << BLOCK_SHIFT;
const BLOCKS_START_SHIFT: u32 = 32;
const BLOCKS_MAX_START: u64 = u64::MAX >> BLOCKS_START_SHIFT;
const TO_INFINITY: u64 = (1 << (BLOCKS_START_SHIFT - LEN_SHIFT)) - 1;

/// The word that says that `claim` is held, once; `None` if it does not fit.
#[inline(always)]
pub(crate) fn of(claim: Claim) -> Option<u64> {
    let holder = match claim.mode {
        Mode::Exclusive => EXCLUSIVE,
        Mode::Shared => ONE_SHARED,
    };
    let (start, len) = (claim.range.start(), claim.range.len());
    if start <= BYTES_MAX_START && len <= BYTES_MAX_LEN {
        return Some(start << BYTES_START_SHIFT | (len - 1) << LEN_SHIFT | holder);
    }
    of_blocks(claim.range).map(|blocks| blocks | holder)
}

#[inline(never)]
fn of_blocks(range: ByteRange) -> Option<u64> {
    if !range.start().is_multiple_of(BLOCK) {
        return None;
    }
    let len = match range.end() {
        u64::MAX => TO_INFINITY,
        end if end.is_multiple_of(BLOCK) => (range.len() >> BLOCK_SHIFT) - 1,
        _ => return None,
    };
    let start = range.start() >> BLOCK_SHIFT;
    let fits = start <= BLOCKS_MAX_START && (len < TO_INFINITY || range.end() == u64::MAX);
    fits.then_some(start << BLOCKS_START_SHIFT | len << LEN_SHIFT | UNIT)
}

/// The word that says that `claim` is held by so many.
pub(crate) fn of_many(claim: Claim, count: u32) -> Option<u64> {
    let (word, more) = (of(claim)?, u64::from(count) - 1);
    let fits = more == 0 || claim.mode == Mode::Shared && more + ONE_SHARED <= HOLDERS;
    fits.then_some(word + more)
}

/// What is held, and by how many, if a word says that.
pub(crate) fn holders(word: u64) -> Option<(Claim, u32)> {
    let (mode, count) = match word & HOLDERS {
        0 => return None,
        EXCLUSIVE => (Mode::Exclusive, 1),
        shared => (Mode::Shared, shared - 1),
    };
    let range = if word & UNIT == 0 {
        let (start, len) = (word >> BYTES_START_SHIFT, (word >> LEN_SHIFT) % BYTES_MAX_LEN + 1);
        ByteRange::new(start, start + len)
    } else {
        let start = word >> BLOCKS_START_SHIFT << BLOCK_SHIFT;
        match word >> LEN_SHIFT & TO_INFINITY {
            TO_INFINITY => ByteRange::from(start),
            len => ByteRange::new(start, start + ((len + 1) << BLOCK_SHIFT)),
        }
    };
    Some((Claim { range, mode }, count as u32))
}

/// Writes into a slot's word that `wanted` is held, once more; false if something else is.
#[inline(always)]
pub(crate) fn take(word: &AtomicU64, wanted: u64) -> bool {
    // After whoever made it free. Sequentially consistent, as the gate is looked at next.
    match word.compare_exchange(FREE, wanted, Ordering::SeqCst, Ordering::Relaxed) {
        Ok(_) => true,
        Err(found) => join(word, wanted, found),
    }
}

#[cold]
fn join(word: &AtomicU64, wanted: u64, mut found: u64) -> bool {
    while found == FREE || may_join(wanted, found) {
        let more = if found == FREE { wanted } else { found + 1 };
        match word.compare_exchange(found, more, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => found = now,
        }
    }
    false
}

/// Whether the word has room for one more that shares just this range.
fn may_join(wanted: u64, found: u64) -> bool {
    share(wanted, found) && found & HOLDERS < HOLDERS
}

/// Whether `one` is one of those who share a range in a word.
fn share(one: u64, word: u64) -> bool {
    one & HOLDERS == ONE_SHARED && word & HOLDERS >= ONE_SHARED && one & !HOLDERS == word & !HOLDERS
}

/// Takes back what [`take`] wrote; false if that stands in the queue by now.
#[inline(always)]
pub(crate) fn leave(word: &AtomicU64, held: u64) -> bool {
    // Before whoever takes it next.
    match word.compare_exchange(held, FREE, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => true,
        Err(found) => part(word, held, found),
    }
}

#[cold]
fn part(word: &AtomicU64, held: u64, mut found: u64) -> bool {
    while share(held, found) {
        let fewer = if found == held { FREE } else { found - 1 };
        match word.compare_exchange(found, fewer, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => found = now,
        }
    }
    false
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIB: u64 = 1 << 40;
    const MODES: [Mode; 2] = [Mode::Shared, Mode::Exclusive];

    #[test]
    fn ranges_that_fit_come_back() {
        let fit = [
            (0, 1),
            (4095, 4096),
            (8 * TIB - 1, 8 * TIB),
            (1, 1 + BYTES_MAX_LEN),
            (16 * TIB - BLOCK, 16 * TIB),
            (BLOCK, u64::MAX),
            (0, TIB / 2 - BLOCK),
            (0, u64::MAX),
        ];
        for (start, end) in fit {
            for mode in MODES {
                let claim = Claim { range: ByteRange::new(start, end), mode };
                assert_eq!(of(claim).and_then(holders), Some((claim, 1)));
            }
        }
    }

    #[test]
    fn others_are_refused() {
        let others = [
            (8 * TIB, 8 * TIB + 1),
            (8 * TIB + 1, 8 * TIB + BLOCK),
            (1, 2 + BYTES_MAX_LEN),
            (16 * TIB, 16 * TIB + BLOCK),
            (1, u64::MAX),
            (0, TIB / 2),
            (u64::MAX - 1, u64::MAX),
        ];
        for (start, end) in others {
            assert_eq!(of(Claim { range: ByteRange::new(start, end), mode: Mode::Shared }), None);
        }
    }

    #[test]
    fn readers_of_one_range_are_counted_and_writers_are_not() {
        let claim = |end, mode| of(Claim { range: ByteRange::new(0, end), mode }).unwrap();
        let (reader, writer) = (claim(9, Mode::Shared), claim(9, Mode::Exclusive));
        let word = AtomicU64::new(FREE);
        for _ in 0..14 {
            assert!(take(&word, reader));
        }
        assert!(!take(&word, reader) && !take(&word, writer) && !take(&word, claim(8, Mode::Shared)));
        assert_eq!(holders(word.load(Ordering::Relaxed)).unwrap().1, 14);
        for _ in 0..14 {
            assert!(!leave(&word, writer) && leave(&word, reader));
        }
        assert!(take(&word, writer) && !take(&word, writer) && !take(&word, reader) && !leave(&word, reader));
        assert!(leave(&word, writer));
        assert_eq!(word.into_inner(), FREE);
    }

    proptest! {
        #[test]
        fn no_two_claims_share_a_word(start: u64, shift in 0u32..64, len in 1u64..1 << 40, count in 1u32..20) {
            let start = (start >> shift).min(u64::MAX - 1);
            let range = ByteRange::new(start, start.saturating_add(len));
            for range in [range, range.round_out(BLOCK), ByteRange::from(range.start())] {
                for mode in MODES {
                    if let Some(word) = of_many(Claim { range, mode }, count) {
                        prop_assert_eq!(holders(word), Some((Claim { range, mode }, count)));
                        prop_assert!(word != FREE && word != QUEUED);
                    }
                }
            }
        }
    }
}
