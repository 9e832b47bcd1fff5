//! Facts about a volume.

use parext4_format::features;

use super::{RecordedErrors, Volume};
use crate::error::Error;
use crate::findings::ErrorPlace;

/// What a volume is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The label, without the padding.
    pub label: String,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Bytes in a block.
    pub block_size: u32,
    /// Bytes of an inode in the table.
    pub inode_size: u16,
    /// Block groups.
    pub groups: u32,
    /// Features by the names that e2fsprogs uses.
    pub features: Vec<String>,
    /// Whether changes go through a journal.
    pub journal: bool,
    /// Why the volume cannot be changed, if so.
    pub read_only: Option<String>,
    /// Errors that were found in the volume and not repaired since.
    pub errors: Option<RecordedErrors>,
    /// What the superblock wants done when the volume turns out to be corrupt.
    pub on_error: OnError,
    /// The user and the group who may use the reserved blocks as root may; 0 for nobody else.
    pub reserved_for: (u32, u32),
    /// Space in use and free.
    pub space: Space,
}

/// What is to be done when a volume turns out to be corrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The operation fails, and others go on.
    #[default]
    Continue,
    /// Nothing is changed any more.
    ReadOnly,
}

/// Space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Bytes in a block, the unit of the following.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Blocks that hold neither data nor directories: tables, bitmaps, the journal.
    pub overhead_blocks: u64,
    /// Free blocks, those included that are held until a commit; without those kept for data in memory.
    pub free_blocks: u64,
    /// Blocks that only root may use, see [`without_reserved_blocks`](crate::without_reserved_blocks).
    pub reserved_blocks: u64,
    /// Free blocks that others may fill with data.
    pub available_blocks: u64,
    /// All inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
}

impl Volume {
    /// What the volume is.
    #[must_use]
    pub fn info(&self) -> Info {
        let superblock = self.engine.counts().current();
        Info {
            label: superblock.label(),
            uuid: superblock.uuid(),
            block_size: superblock.block_size(),
            inode_size: superblock.inode_size(),
            groups: superblock.group_count(),
            features: superblock.feature_names(),
            journal: superblock.compat().contains(features::Compat::HAS_JOURNAL),
            read_only: self.engine.read_only.clone(),
            errors: RecordedErrors::of(&superblock),
            on_error: if superblock.continues_on_error() { OnError::Continue } else { OnError::ReadOnly },
            reserved_for: superblock.reserved_for(),
            space: self.space(),
        }
    }

    /// Returns true if the volume was opened read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.engine.is_read_only()
    }

    /// Space in use and free, as `statfs`.
    #[must_use]
    pub fn space(&self) -> Space {
        let layout = &self.engine.layout;
        let (counts, allocator) = (self.engine.counts(), &self.engine.allocator);
        let free_blocks = counts.free_blocks().saturating_sub(allocator.delayed_blocks());
        Space {
            block_size: layout.block_size,
            blocks: layout.blocks_count,
            overhead_blocks: self.overhead_blocks(),
            free_blocks,
            reserved_blocks: self.engine.superblock.reserved_blocks(),
            available_blocks: allocator.available(free_blocks),
            inodes: layout.inodes_count,
            free_inodes: counts.free_inodes(),
        }
    }

    /// The superblock's own figure, which older versions of mke2fs do not set.
    fn overhead_blocks(&self) -> u64 {
        let (superblock, layout) = (&self.engine.superblock, &self.engine.layout);
        let cluster_blocks = u64::from(superblock.blocks_per_group() / superblock.clusters_per_group());
        match superblock.raw().s_overhead_clusters.get() {
            0 => u64::from(layout.first_data_block) + layout.system_blocks(),
            clusters => u64::from(clusters) * cluster_blocks,
        }
    }

    /// Transactions that became durable since the volume was opened.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.engine.journal.commits()
    }

    /// Lets nothing be changed any more, as a failed write does; what is not durable yet stays so. Data can still be
    /// read. Nothing happens if the volume has stopped before.
    pub fn stop(&self, why: &Error) {
        self.engine.health.stop(why.clone());
    }

    /// Logs and records an error that an operation on this volume returned, unless that has been done. Ignores errors
    /// that are not of the volume itself.
    pub fn note_error(&self, error: &Error) {
        self.engine.health.note(ErrorPlace::default(), error.clone());
    }

    /// Why nothing is changed any more, if so: an earlier error, or the volume is closed.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        match self.engine.health.check() {
            Err(Error::Stopped(why)) => Some(why.to_string()),
            _ => None,
        }
    }
}
