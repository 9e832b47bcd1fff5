//! The offsets in a listing that the kernel gets.
//!
//! This module encodes cookies as offsets that a program with an `off_t` of 32 bits can use:
//! readdir(3) of such a program fails at an entry whose offset is 2^31 or more. The kernel does not
//! tell a server which programs these are, and keeps one listing for all of them. So the offsets
//! serve programs of both kinds.
//!
//! | offset | cookie |
//! |---|---|
//! | 0, 1, 2 | the same |
//! | up to [`SLOTS`] | a cookie that ends with 32 ones, and begins with the offset less 2: all entries but one in millions |
//! | up to 2^31 | another cookie, which is in the table of this module |
//! | from 2^32 on | the same, for a cookie for which the table has no room |
//!
//! Invariant: a mount decodes an offset to the cookie that it has encoded, for as long as it lasts.
//! An NFS client can keep an offset for longer; an offset of the table is then refused, or stands
//! for another cookie.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parext4_sync::Mutex;

use crate::protocol::{Failure, Outcome};

/// The lower half of cookies that are identified by their upper half.
const ALL: u64 = 0xffff_ffff;
/// Cookies up to this one are offsets.
const DOTS: u64 = 2;
/// The first offset of the table. The kernel keeps 2^31 - 1 for the end of a directory of ext4.
const SLOTS: u64 = (1 << 31) - SLOT_COUNT;
const SLOT_COUNT: u64 = 1 << 20;
/// Largest number of cookies in the table: 2 MiB or less. A directory of a million names has about
/// 800 of them. Cookies are never removed, because a program may keep its directory open.
const MAX_ENTRIES: usize = 1 << 16;
/// Limit of slots that are tried for a cookie.
const MAX_PROBES: u64 = 16;

/// The table of cookies from which the offset cannot be computed.
#[derive(Debug, Default)]
pub struct DirOffsets {
    cookies: Mutex<HashMap<u64, u64>>,
}

impl DirOffsets {
    /// Returns the offset of a cookie.
    pub fn encode(&self, cookie: u64) -> u64 {
        let short = (cookie >> 32) + DOTS;
        match cookie {
            0..=DOTS => cookie,
            _ if cookie & ALL == ALL && short < SLOTS => short,
            _ => self.slot(cookie).unwrap_or(cookie),
        }
    }

    /// Returns the cookie of an offset.
    ///
    /// # Errors
    /// `EINVAL` for an offset that [`encode`](Self::encode) has not returned.
    pub fn decode(&self, offset: u64) -> Outcome<u64> {
        match offset {
            0..=DOTS => Ok(offset),
            _ if offset < SLOTS => Ok((offset - DOTS) << 32 | ALL),
            _ if offset > ALL => Ok(offset),
            _ => self.cookies.lock().get(&offset).copied().ok_or(Failure::INVALID),
        }
    }

    /// Returns the offset of a cookie in the table; `None` if the table has no room for the cookie.
    fn slot(&self, cookie: u64) -> Option<u64> {
        let first = cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOT_COUNT.trailing_zeros());
        let mut cookies = self.cookies.lock();
        for probe in 0..MAX_PROBES {
            let offset = SLOTS + (first + probe) % SLOT_COUNT;
            let is_full = cookies.len() >= MAX_ENTRIES;
            match cookies.entry(offset) {
                Entry::Occupied(other) if *other.get() != cookie => {}
                Entry::Vacant(_) if is_full => return None,
                entry => {
                    entry.or_insert(cookie);
                    return Some(offset);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_stand_for_their_cookies() {
        let offsets = DirOffsets::default();
        let short = [0, 1, 2, 3 << 32 | ALL, 0x7fef_fff0 << 32 | ALL];
        let others =
            [1 << 32, 1 << 32 | 5, 0x7fff_ffff << 32 | ALL, 0x7fff_0000 << 32 | 7, i64::MAX as u64 - 1];
        for cookie in short.into_iter().chain(others) {
            let offset = offsets.encode(cookie);
            assert!(offset < 1 << 31, "{cookie:#x}");
            assert_eq!(offsets.decode(offset).ok(), Some(cookie));
            assert_eq!(offsets.encode(cookie), offset);
        }
        assert_eq!(offsets.cookies.lock().len(), others.len());
        assert!(offsets.decode(SLOTS + 77).is_err() && offsets.decode(1 << 31).is_err());
    }

    #[test]
    fn a_full_table_leaves_cookies_as_they_are() {
        let offsets = DirOffsets::default();
        let cookies = || (0..2 * MAX_ENTRIES as u64).map(|n| (n + 1) << 32 | n);
        let encoded: Vec<_> = cookies().map(|cookie| offsets.encode(cookie)).collect();
        assert!(cookies().zip(&encoded).all(|(cookie, &offset)| offsets.decode(offset).ok() == Some(cookie)));
        assert_eq!(encoded.iter().filter(|&&offset| offset < 1 << 31).count(), MAX_ENTRIES);
    }
}
