//! The bytes of a read that have arrived.
//!
//! Invariant: each byte counts once. So a reply that repeats bytes and omits other bytes does not
//! count as whole.

use smallvec::SmallVec;

/// Largest number of ranges with gaps between them. Servers send a read in order, or nearly so.
const MOST_RANGES: usize = 1024;

/// Ranges of bytes, in ascending order. Neighbours have a gap between them.
#[derive(Debug, Default)]
pub(crate) struct Received(SmallVec<[(usize, usize); 1]>);

impl Received {
    /// Adds the bytes from `start` to `end`. Returns false if one of these bytes has arrived
    /// before, or if there are more than [`MOST_RANGES`] ranges.
    pub(crate) fn add(&mut self, start: usize, end: usize) -> bool {
        let ranges = &mut self.0;
        let place = ranges.partition_point(|range| range.1 < start);
        let continues = ranges.get(place).is_some_and(|range| range.1 == start);
        let next = place + usize::from(continues);
        let after = ranges.get(next).copied();
        if after.is_some_and(|after| after.0 < end) {
            return false;
        }
        match (continues, after.filter(|after| after.0 == end)) {
            (true, Some(after)) => {
                ranges[place].1 = after.1;
                ranges.remove(next);
            }
            (true, None) => ranges[place].1 = end,
            (false, Some(_)) => ranges[place].0 = start,
            (false, None) if ranges.len() < MOST_RANGES => ranges.insert(place, (start, end)),
            (false, None) => return false,
        }
        true
    }

    /// Returns whether all `len` bytes have arrived.
    pub(crate) fn is_whole(&self, len: usize) -> bool {
        self.0[..] == [(0, len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_counts_once() {
        let mut received = Received::default();
        for (start, end, is_new) in [
            (50, 60, true),
            (10, 20, true),
            (15, 16, false),
            (5, 11, false),
            (0, 100, false),
            (20, 30, true),
            (59, 61, false),
            (40, 50, true),
            (29, 41, false),
            (30, 40, true),
            (0, 10, true),
            (0, 1, false),
        ] {
            assert_eq!(received.add(start, end), is_new, "{start}..{end}");
            assert!(!received.is_whole(100));
        }
        assert!(received.is_whole(60) && received.add(60, 100) && received.is_whole(100));
    }

    #[test]
    fn the_number_of_ranges_is_limited() {
        let mut received = Received::default();
        assert!((0..MOST_RANGES).all(|nth| received.add(nth * 2, nth * 2 + 1)));
        assert!(!received.add(MOST_RANGES * 2, MOST_RANGES * 2 + 1));
        assert!(received.add(1, 2), "a gap is filled");
    }
}
