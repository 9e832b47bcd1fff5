//! The check of the file of which threads move parts.
//!
//! Collapses, insertions and truncations race with writes, so most of the contents are not known.
//! These rules hold:
//!
//! 1. Each sector is zero or a whole sector of a write to this file.
//! 2. Sectors of one write are in their order, and none is there twice.
//! 3. If a write was the last change, overlapped no other one and was synced, it is where it was
//!    written.

use std::collections::BTreeMap;

use testkit::sector::{SECTOR, Seen, Stamp, identify};

use super::{Begun, MAX_GROWTH, MAX_SECTORS, MOVED, file_number, index, is_known};

/// A sector number after all of the file. Sectors of this file hold their number within the write.
const FAR: u64 = 1 << 32;

/// Checks the contents. `begun` has the changes that may be found; the file was synced at time
/// `durable`.
///
/// # Errors
/// What is missing, or should not be there.
pub fn check(bytes: &[u8], begun: &[&Begun], durable: u64) -> Result<(), String> {
    let longest = MAX_SECTORS + begun.len() as u64 * MAX_GROWTH;
    if !bytes.len().is_multiple_of(SECTOR) || bytes.len() as u64 > longest * SECTOR as u64 {
        return Err(format!("{} bytes, not up to {longest} sectors", bytes.len()));
    }
    let seen = |sector: &[u8]| identify(sector, file_number(MOVED), FAR);
    let seen = bytes.chunks_exact(SECTOR).map(seen).collect::<Result<Vec<_>, _>>()?;
    check_order(&seen, begun)?;
    check_last(&seen, begun, durable)
}

fn check_order(seen: &[Seen], begun: &[&Begun]) -> Result<(), String> {
    let mut latest = BTreeMap::new();
    for (sector, seen) in seen.iter().enumerate() {
        let Seen::Data(stamp) = seen else { continue };
        if !is_known(begun, stamp) {
            return Err(format!("sector {sector} is of {stamp:?}, which was not written yet"));
        }
        // The number within the write.
        let number = FAR - stamp.origin;
        if latest.insert((stamp.writer, stamp.sequence), number).is_some_and(|before| before >= number) {
            return Err(format!("sector {sector} is sector {number} of {stamp:?}, after a later one"));
        }
    }
    Ok(())
}

fn check_last(seen: &[Seen], begun: &[&Begun], durable: u64) -> Result<(), String> {
    let Some((last, earlier)) = begun.split_last() else { return Ok(()) };
    let is_alone = earlier.iter().all(|change| change.over < last.began);
    let Some(stamp) = last.stamp.filter(|_| is_alone && last.over < durable) else { return Ok(()) };
    for (number, sector) in (0..).zip(last.place.first..last.place.end) {
        let found = seen.get(index(sector)).copied();
        if found != Some(Seen::Data(Stamp { origin: FAR - number, ..stamp })) {
            return Err(format!("sector {sector} is {found:?}, and {last:?} was synced"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::SectorRange;
    use super::*;
    use testkit::sector::fill_append;

    /// Checks a file of these sectors of a write of three sectors to sector 1, zero for `None`,
    /// with a sync at `durable`.
    fn check_sectors(sectors: &[Option<usize>], durable: u64) -> Result<(), String> {
        let stamp = Stamp { file: file_number(MOVED), writer: 1, sequence: 1, origin: 0 };
        let mut written = [0; 3 * SECTOR];
        fill_append(&mut written, stamp);
        let zero = [0; SECTOR];
        let sector =
            |number: &Option<usize>| number.map_or(&zero[..], |number| &written[number * SECTOR..][..SECTOR]);
        let bytes: Vec<u8> = sectors.iter().flat_map(sector).copied().collect();
        let place = SectorRange { first: 1, end: 4 };
        let write = Begun { file: MOVED, place, stamp: Some(stamp), events: 0, began: 3, over: 4 };
        let before = Begun { stamp: None, began: 1, over: 2, ..write.clone() };
        check(&bytes, &[&before, &write], durable)
    }

    #[test]
    fn sectors_of_a_write_keep_their_order() {
        let sound: [&[_]; 4] =
            [&[], &[None, Some(0), Some(1)], &[Some(0), None, None, Some(2)], &[Some(2), None]];
        for sectors in sound {
            assert_eq!(check_sectors(sectors, 0), Ok(()));
        }
        for sectors in [[Some(1), Some(0)], [Some(1), Some(1)]] {
            assert!(check_sectors(&sectors, 0).is_err(), "{sectors:?}");
        }
    }

    #[test]
    fn a_synced_last_write_is_where_it_was_written() {
        assert!(check_sectors(&[None, Some(0), Some(1), Some(2)], 5).is_ok());
        assert!(check_sectors(&[None, Some(0), Some(1)], 5).is_err());
        assert!(check_sectors(&[Some(0), Some(1), Some(2), None], 5).is_err());
    }
}
