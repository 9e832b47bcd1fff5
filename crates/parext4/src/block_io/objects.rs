//! Where the objects of a device meet: the pieces that a device on a network stores apart.
//!
//! A request within one object is one message; a request across two objects is two, one of which
//! may be small.

use std::num::NonZeroU64;
use std::ops::Range;

/// Splits a range of bytes of the device where two objects meet.
pub(crate) fn split_at_objects(
    object_size: Option<NonZeroU64>,
    mut range: Range<u64>,
) -> impl Iterator<Item = Range<u64>> {
    std::iter::from_fn(move || {
        let start = range.start;
        range.start = range.end.min(object_end(object_size, start));
        (start < range.start).then_some(start..range.start)
    })
}

/// Returns the end of the object that holds the byte at `offset` of the device.
pub(crate) fn object_end(object_size: Option<NonZeroU64>, offset: u64) -> u64 {
    let end = object_size.and_then(|size| (offset / size).checked_add(1)?.checked_mul(size.get()));
    end.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_objects_end() {
        let split = |size, range| -> Vec<(u64, u64)> {
            let ranges = split_at_objects(NonZeroU64::new(size), range);
            ranges.map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(split(0, 5..100), [(5, 100)], "a device without objects");
        assert_eq!(split(10, 5..32), [(5, 10), (10, 20), (20, 30), (30, 32)]);
        assert_eq!(split(10, 10..20), [(10, 20)]);
        assert_eq!(split(10, 7..7), []);
        assert_eq!(split(1 << 63, u64::MAX - 5..u64::MAX), [(u64::MAX - 5, u64::MAX)]);
    }
}
