//! The word of a slot: free, one held range with its mode and number of holders, or "see the
//! queue".
//!
//! | field | range in bytes | range in blocks of 4 KiB |
//! |---|---|---|
//! | holders | bits 0 to 3: 1 exclusive, or 1 + the number of shared holders | the same |
//! | unit | bit 4: 0 | bit 4: 1 |
//! | length - 1 | bits 5 to 20 | bits 5 to 31; all set: to infinity |
//! | start | bits 21 to 63 | bits 32 to 63 |
//!
//! A word of zero is `FREE`; a word with only bit 4 set is `QUEUED`. So a word holds any range of
//! at most 64 KiB that starts in the first 8 TiB, and any range of whole blocks, also to infinity,
//! that starts in the first 16 TiB.

use crate::range::Access;
use crate::sync::{AtomicU64, Ordering};
use crate::{ByteRange, Mode};

/// No request is in the slot.
pub(crate) const FREE: u64 = 0;
/// The requests of the slot are in its queue.
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

/// Returns the word for one holder of `access`; `None` if the range does not fit.
#[inline(always)]
pub(crate) fn of(access: Access) -> Option<u64> {
    let holder = match access.mode {
        Mode::Exclusive => EXCLUSIVE,
        Mode::Shared => ONE_SHARED,
    };
    let (start, len) = (access.range.start(), access.range.len());
    if start <= BYTES_MAX_START && len <= BYTES_MAX_LEN {
        return Some(start << BYTES_START_SHIFT | (len - 1) << LEN_SHIFT | holder);
    }
    of_blocks(access.range).map(|blocks| blocks | holder)
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

/// Returns the word for `count` holders of `access`; `None` if they do not fit.
pub(crate) fn of_many(access: Access, count: u32) -> Option<u64> {
    let (word, more) = (of(access)?, u64::from(count) - 1);
    let fits = more == 0 || access.mode == Mode::Shared && more + ONE_SHARED <= HOLDERS;
    fits.then_some(word + more)
}

/// Returns the access in `word` and the number of its holders; `None` if the word is `FREE` or
/// `QUEUED`.
pub(crate) fn holders(word: u64) -> Option<(Access, u32)> {
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
            TO_INFINITY => ByteRange::starting_at(start),
            len => ByteRange::new(start, start + ((len + 1) << BLOCK_SHIFT)),
        }
    };
    Some((Access { range, mode }, count as u32))
}

/// Adds the one holder of `wanted` to a slot's word. Returns false if the word has another value
/// that excludes it, or is `QUEUED`.
#[inline(always)]
pub(crate) fn try_acquire(word: &AtomicU64, wanted: u64) -> bool {
    // This synchronizes with the release that freed the word. It is sequentially consistent,
    // because the caller reads the count of wide requests next.
    match word.compare_exchange(FREE, wanted, Ordering::SeqCst, Ordering::Relaxed) {
        Ok(_) => true,
        Err(found) => acquire_shared(word, wanted, found),
    }
}

#[cold]
fn acquire_shared(word: &AtomicU64, wanted: u64, mut found: u64) -> bool {
    while found == FREE || has_room_for(wanted, found) {
        let more = if found == FREE { wanted } else { found + 1 };
        match word.compare_exchange(found, more, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => found = now,
        }
    }
    false
}

/// Returns true if the word `found` holds shared holders of exactly the range of `wanted`, and has
/// room for one more.
fn has_room_for(wanted: u64, found: u64) -> bool {
    is_one_of(wanted, found) && found & HOLDERS < HOLDERS
}

/// Returns true if `one` is a shared holder of the range that `word` holds shared.
fn is_one_of(one: u64, word: u64) -> bool {
    one & HOLDERS == ONE_SHARED && word & HOLDERS >= ONE_SHARED && one & !HOLDERS == word & !HOLDERS
}

/// Removes the holder that [`try_acquire`] added. Returns false if it has moved to the queue.
#[inline(always)]
pub(crate) fn try_release(word: &AtomicU64, held: u64) -> bool {
    // Publishes what the holder did to the next holder.
    match word.compare_exchange(held, FREE, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => true,
        Err(found) => release_shared(word, held, found),
    }
}

#[cold]
fn release_shared(word: &AtomicU64, held: u64, mut found: u64) -> bool {
    while is_one_of(held, found) {
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
    fn ranges_that_fit_round_trip() {
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
                let access = Access { range: ByteRange::new(start, end), mode };
                assert_eq!(of(access).and_then(holders), Some((access, 1)));
            }
        }
    }

    #[test]
    fn ranges_that_do_not_fit_are_refused() {
        let too_large = [
            (8 * TIB, 8 * TIB + 1),
            (8 * TIB + 1, 8 * TIB + BLOCK),
            (1, 2 + BYTES_MAX_LEN),
            (16 * TIB, 16 * TIB + BLOCK),
            (1, u64::MAX),
            (0, TIB / 2),
            (u64::MAX - 1, u64::MAX),
        ];
        for (start, end) in too_large {
            assert_eq!(of(Access { range: ByteRange::new(start, end), mode: Mode::Shared }), None);
        }
    }

    #[test]
    fn shared_holders_of_one_range_are_counted_and_exclusive_ones_are_not() {
        let access = |end, mode| of(Access { range: ByteRange::new(0, end), mode }).unwrap();
        let (reader, writer) = (access(9, Mode::Shared), access(9, Mode::Exclusive));
        let word = AtomicU64::new(FREE);
        for _ in 0..14 {
            assert!(try_acquire(&word, reader));
        }
        assert!(
            !try_acquire(&word, reader)
                && !try_acquire(&word, writer)
                && !try_acquire(&word, access(8, Mode::Shared))
        );
        assert_eq!(holders(word.load(Ordering::Relaxed)).unwrap().1, 14);
        for _ in 0..14 {
            assert!(!try_release(&word, writer) && try_release(&word, reader));
        }
        assert!(
            try_acquire(&word, writer)
                && !try_acquire(&word, writer)
                && !try_acquire(&word, reader)
                && !try_release(&word, reader)
        );
        assert!(try_release(&word, writer));
        assert_eq!(word.into_inner(), FREE);
    }

    proptest! {
        #[test]
        fn words_are_unique_and_decode(start: u64, shift in 0u32..64, len in 1u64..1 << 40, count in 1u32..20) {
            let start = (start >> shift).min(u64::MAX - 1);
            let range = ByteRange::new(start, start.saturating_add(len));
            for range in [range, range.round_out(BLOCK), ByteRange::starting_at(range.start())] {
                for mode in MODES {
                    if let Some(word) = of_many(Access { range, mode }, count) {
                        prop_assert_eq!(holders(word), Some((Access { range, mode }, count)));
                        prop_assert!(word != FREE && word != QUEUED);
                    }
                }
            }
        }
    }
}
