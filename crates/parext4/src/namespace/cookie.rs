//! Cookies: positions in the listing of a directory.
//!
//! Responsible for their encoding. Invariant: cookies grow along a listing, and bit 63 is never
//! set, so that a mount can pass them on as file positions.
//!
//! The upper half of a cookie is a *place*, the lower half an order among the names of that place.
//! The order [`ALL`] is after all names of its place. Almost all cookies end with it, and a mount
//! makes short positions of their places.
//!
//! | listed by | place | order |
//! |---|---|---|
//! | hash | 0 | 1 for `.`, 2 for `..` |
//! | | half the hash, which is even, plus 1 | [`ALL`] for the last name with that hash, otherwise a hash of the name |
//! | offset | a quarter of the offset of the end of the entry, up to [`FAR`] | [`ALL`] |
//!
//! Offsets from `FAR` quarters on are the cookie `FAR << 32` plus their quarter.

/// The cookies of `.` and `..` in hash order. The cookies of names are larger.
pub(super) const DOT: u64 = 1;
pub(super) const DOT_DOT: u64 = 2;

/// The order after all names of a place.
const ALL: u64 = 0xffff_ffff;
/// The first quarter of an offset that is no place, of almost 8 GiB. The kernel makes no directory
/// of that size that is listed by offset. The quarters of 48-bit offsets fit the rest of the 63
/// bits.
const FAR: u64 = 0x7fff_0000;

/// Returns the place of a cookie.
fn place(cookie: u64) -> u64 {
    cookie >> 32
}

/// Returns the place of the names with a major hash.
fn place_of(major: u32) -> u64 {
    u64::from(major >> 1) + 1
}

/// Returns the cookie of a name with a major hash, which has the place `order` among the names with
/// that hash.
pub(super) fn of_name(major: u32, order: u32) -> u64 {
    place_of(major) << 32 | u64::from(order).min(ALL - 1)
}

/// Returns the cookie after the names with smaller major hashes than `major`.
pub(super) fn before_names(major: u32) -> u64 {
    place_of(major) << 32
}

/// Returns the major hash at which a listing continues after a cookie.
pub(super) fn major(cookie: u64) -> u32 {
    u32::try_from(place(cookie).saturating_sub(1)).map_or(u32::MAX, |half| half.saturating_mul(2))
}

/// Returns the cookie after all names with the hash of `cookie`, which is the last one of them.
/// `None` for `.` and `..`.
pub(super) fn after_all(cookie: u64) -> Option<u64> {
    (place(cookie) > 0).then_some(cookie | ALL)
}

/// Returns true if two cookies are of names with one hash.
pub(super) fn have_one_hash(one: u64, other: u64) -> bool {
    place(one) == place(other)
}

/// Returns the cookie of an offset.
pub(super) fn of_offset(offset: u64) -> u64 {
    match offset / 4 {
        0 => 0,
        quarter if quarter < FAR => quarter << 32 | ALL,
        quarter => (FAR << 32) + quarter,
    }
}

/// Returns the offset of a cookie.
pub(super) fn offset(cookie: u64) -> u64 {
    let quarter = if place(cookie) < FAR { place(cookie) } else { cookie - (FAR << 32) };
    quarter.saturating_mul(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_survive_a_round_trip_in_order() {
        let offsets = [0, 12, 4096, 1 << 31, 4 * FAR - 4, 4 * FAR, 4 * FAR + 12, 1 << 40, (1 << 48) - 4];
        let cookies = offsets.map(of_offset);
        assert_eq!(cookies.map(offset), offsets);
        assert!(cookies.is_sorted_by(|one, next| one < next) && cookies[8] >> 63 == 0, "{cookies:x?}");
    }

    #[test]
    fn names_are_after_the_dots_in_the_order_of_their_hashes() {
        // The largest hash of a name is two less than the end marker of ext4.
        let hashes = [0, 2, 4, 1 << 31, 0xffff_fffc];
        let mut before = DOT_DOT;
        for hash in hashes {
            let [first, last] = [of_name(hash, 0), of_name(hash, u32::MAX)];
            let all = after_all(last).unwrap();
            assert!(before < first && first < last && last < all && all >> 63 == 0, "{hash:#x}");
            assert!(before_names(hash) <= first && before < before_names(hash), "{hash:#x}");
            assert!([first, last, all].iter().all(|&cookie| major(cookie) == hash), "{hash:#x}");
            before = all;
        }
        assert_eq!([0, DOT, DOT_DOT].map(major), [0; 3]);
        assert_eq!([DOT, DOT_DOT].map(after_all), [None; 2]);
    }
}
