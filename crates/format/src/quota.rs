//! Quota files (features `quota` and `project`): what each user, group or project uses, and its
//! limits.
//!
//! A quota file of the format vfsv1 (`v2r1`) consists of *quota blocks* of 1 KiB, whatever the
//! block size of the volume: a header in block 0, a [tree] by id whose root is block 1, and blocks
//! of [entries](entry). Sources: `fs/quota/quotaio_v2.h` and `quota_tree.h` of the kernel.

pub mod entry;
pub mod tree;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::length;
use crate::{FormatError, Result};

/// Size of a quota block in bytes.
pub const QUOTA_BLOCK: usize = 1024;
/// The quota block that is the root of the tree.
pub const ROOT: u32 = 1;
/// The time for which a soft limit may be exceeded, unless the file says otherwise: a week, in
/// seconds.
pub const DEFAULT_GRACE: u32 = 7 * 24 * 60 * 60;

/// `V2_INITQVERSIONS` of the format `v2r1`.
const VERSION: u32 = 1;
const STRUCTURE: &str = "quota file";

/// The kind of owner whose usage a quota file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

impl QuotaKind {
    /// All kinds, in the order of their numbers in the kernel.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Returns the name: `user`, `group` or `project`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }

    const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }
}

/// A set of kinds of quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaKinds {
    /// Quotas of users.
    pub user: bool,
    /// Quotas of groups.
    pub group: bool,
    /// Quotas of projects.
    pub project: bool,
}

impl QuotaKinds {
    /// Returns true if `kind` is in the set.
    #[must_use]
    pub const fn contains(self, kind: QuotaKind) -> bool {
        match kind {
            QuotaKind::User => self.user,
            QuotaKind::Group => self.group,
            QuotaKind::Project => self.project,
        }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    dqh_magic: U32,
    dqh_version: U32,
    dqi_bgrace: U32,
    dqi_igrace: U32,
    dqi_flags: U32,
    dqi_blocks: U32,
    dqi_free_blk: U32,
    dqi_free_entry: U32,
}

/// The header of a quota file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaHeader {
    /// The time for which the soft limit of space may be exceeded, in seconds.
    pub space_grace: u32,
    /// The time for which the soft limit of inodes may be exceeded, in seconds.
    pub inode_grace: u32,
    /// `dqi_flags`.
    pub flags: u32,
    /// The number of quota blocks, including free ones.
    pub blocks: u32,
    /// The first block of the list of free blocks; 0 if there is none.
    pub free_block: u32,
    /// The first block of the list of blocks that have a free entry; 0 if there is none.
    pub free_entry: u32,
}

impl QuotaHeader {
    /// Returns the header of a file without entries: this block, and the root of the tree.
    #[must_use]
    pub const fn empty() -> Self {
        let (space_grace, inode_grace) = (DEFAULT_GRACE, DEFAULT_GRACE);
        Self { space_grace, inode_grace, flags: 0, blocks: ROOT + 1, free_block: 0, free_entry: 0 }
    }

    /// Parses the header of a file of `size` bytes from its first quota block.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn parse(bytes: &[u8], kind: QuotaKind, size: u64) -> Result<Self> {
        let wrong = |field, problem: String| Err(FormatError::new(STRUCTURE, field, problem));
        let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
            return wrong("dqh_magic", "the file is too short".to_owned());
        };
        let (magic, version) = (raw.dqh_magic.get(), raw.dqh_version.get());
        if magic != kind.magic() {
            return wrong("dqh_magic", format!("is {magic:#010x}, not that of a {} quota file", kind.name()));
        }
        if version != VERSION {
            return wrong("dqh_version", format!("version {version} is not supported"));
        }
        let header = Self {
            space_grace: raw.dqi_bgrace.get(),
            inode_grace: raw.dqi_igrace.get(),
            flags: raw.dqi_flags.get(),
            blocks: raw.dqi_blocks.get(),
            free_block: raw.dqi_free_blk.get(),
            free_entry: raw.dqi_free_entry.get(),
        };
        let blocks = header.blocks;
        if blocks <= ROOT || u64::from(blocks) * length(QUOTA_BLOCK) > size {
            return wrong("dqi_blocks", format!("{blocks} blocks in a file of {size} bytes"));
        }
        for (field, block) in [("dqi_free_blk", header.free_block), ("dqi_free_entry", header.free_entry)] {
            if block != 0 {
                tree::check_block(block, blocks).map_err(|error| FormatError { field, ..error })?;
            }
        }
        Ok(header)
    }

    /// Writes the header of a file of `kind` into its first quota block.
    pub fn encode(&self, bytes: &mut [u8], kind: QuotaKind) {
        let raw = RawHeader {
            dqh_magic: U32::new(kind.magic()),
            dqh_version: U32::new(VERSION),
            dqi_bgrace: U32::new(self.space_grace),
            dqi_igrace: U32::new(self.inode_grace),
            dqi_flags: U32::new(self.flags),
            dqi_blocks: U32::new(self.blocks),
            dqi_free_blk: U32::new(self.free_block),
            dqi_free_entry: U32::new(self.free_entry),
        };
        bytes[..size_of::<RawHeader>()].copy_from_slice(raw.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked() {
        let mut bytes = [0; QUOTA_BLOCK];
        let header = QuotaHeader { blocks: 5, free_block: 3, free_entry: 4, ..QuotaHeader::empty() };
        header.encode(&mut bytes, QuotaKind::Project);
        let parse = |bytes: &[u8], size| QuotaHeader::parse(bytes, QuotaKind::Project, size);
        assert_eq!(parse(&bytes, 5120), Ok(header));
        assert_eq!(parse(&bytes, 5119).unwrap_err().field, "dqi_blocks");
        assert_eq!(QuotaHeader::parse(&bytes, QuotaKind::User, 5120).unwrap_err().field, "dqh_magic");
        let with = |at: usize, value: u8| {
            let mut bytes = bytes;
            bytes[at] = value;
            parse(&bytes, 5120).unwrap_err().field
        };
        assert_eq!(
            [with(4, 0), with(20, 1), with(24, 5), with(24, 1), with(28, 9)],
            ["dqh_version", "dqi_blocks", "dqi_free_blk", "dqi_free_blk", "dqi_free_entry"]
        );
        assert!(parse(&bytes[..31], 5120).is_err());
    }
}
