//! Entries of quota files: the usage and the limits of one id.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The usage and the limits of one user, group or project. A limit of 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaEntry {
    /// The user, group or project.
    pub id: u32,
    /// The limit of inodes that is never exceeded.
    pub inode_hard: u64,
    /// The limit of inodes that is exceeded only until `inode_time`.
    pub inode_soft: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// The limit of space that is never exceeded, in units of 1 KiB.
    pub space_hard: u64,
    /// The limit of space that is exceeded only until `space_time`, in units of 1 KiB.
    pub space_soft: u64,
    /// Space in use, in bytes.
    pub space: u64,
    /// End of the grace of the space, in seconds since 1970; 0 if its soft limit is not exceeded.
    pub space_time: u64,
    /// End of the grace of the inodes, in seconds since 1970; 0 if their soft limit is not
    /// exceeded.
    pub inode_time: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Default)]
#[repr(C)]
struct RawEntry {
    dqb_id: U32,
    dqb_pad: U32,
    dqb_ihardlimit: U64,
    dqb_isoftlimit: U64,
    dqb_curinodes: U64,
    dqb_bhardlimit: U64,
    dqb_bsoftlimit: U64,
    dqb_curspace: U64,
    dqb_btime: U64,
    dqb_itime: U64,
}

impl QuotaEntry {
    /// Size of an entry in bytes.
    pub const SIZE: usize = size_of::<RawEntry>();

    /// Parses an entry. `None` if the entry is free, or `bytes` is too short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (raw, _) = RawEntry::ref_from_prefix(bytes).ok()?;
        if raw.as_bytes().iter().all(|&byte| byte == 0) {
            return None;
        }
        let mut entry = Self {
            id: raw.dqb_id.get(),
            inode_hard: raw.dqb_ihardlimit.get(),
            inode_soft: raw.dqb_isoftlimit.get(),
            inodes: raw.dqb_curinodes.get(),
            space_hard: raw.dqb_bhardlimit.get(),
            space_soft: raw.dqb_bsoftlimit.get(),
            space: raw.dqb_curspace.get(),
            space_time: raw.dqb_btime.get(),
            inode_time: raw.dqb_itime.get(),
        };
        if entry == (Self { inode_time: 1, ..Self::default() }) {
            entry.inode_time = 0;
        }
        Some(entry)
    }

    /// Writes the entry. One of all zeros would be free, so the entry of id 0 without usage and
    /// limits gets a time.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`SIZE`](Self::SIZE).
    pub fn encode(&self, bytes: &mut [u8]) {
        let inode_time = if *self == Self::default() { 1 } else { self.inode_time };
        let raw = RawEntry {
            dqb_id: U32::new(self.id),
            dqb_pad: U32::ZERO,
            dqb_ihardlimit: U64::new(self.inode_hard),
            dqb_isoftlimit: U64::new(self.inode_soft),
            dqb_curinodes: U64::new(self.inodes),
            dqb_bhardlimit: U64::new(self.space_hard),
            dqb_bsoftlimit: U64::new(self.space_soft),
            dqb_curspace: U64::new(self.space),
            dqb_btime: U64::new(self.space_time),
            dqb_itime: U64::new(inode_time),
        };
        bytes[..Self::SIZE].copy_from_slice(raw.as_bytes());
    }

    /// Returns true if nothing is used and no limit is set.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        *self == Self { id: self.id, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_zeros_is_told_from_a_free_one() {
        let mut bytes = [0; QuotaEntry::SIZE];
        assert_eq!(QuotaEntry::parse(&bytes), None);
        assert_eq!(QuotaEntry::parse(&bytes[1..]), None);
        let nothing = QuotaEntry::default();
        nothing.encode(&mut bytes);
        assert_eq!(QuotaEntry::parse(&bytes), Some(nothing));
        let entry = QuotaEntry { id: 7, space: 4096, inodes: 1, space_hard: 9, ..nothing };
        entry.encode(&mut bytes);
        assert_eq!(QuotaEntry::parse(&bytes), Some(entry));
        assert!(!entry.is_unused() && QuotaEntry { id: 7, ..nothing }.is_unused());
    }
}
