//! Facts about a volume.

use parext4_format::features;

use super::Volume;

/// What a volume is.
#[derive(Clone, Debug)]
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
    /// Space in use and free.
    pub space: Space,
}

/// Space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in a block, the unit of the following.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks, those included that are held until a commit; without those kept for data in memory.
    pub free_blocks: u64,
    /// Blocks that only root may use.
    pub reserved_blocks: u64,
    /// All inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
}

impl Volume {
    /// What the volume is.
    #[must_use]
    pub fn info(&self) -> Info {
        let superblock = self.inner.counts().current();
        Info {
            label: superblock.label(),
            uuid: superblock.uuid(),
            block_size: superblock.block_size(),
            inode_size: superblock.inode_size(),
            groups: superblock.group_count(),
            features: features::names(&superblock),
            journal: superblock.compat().contains(features::Compat::HAS_JOURNAL),
            read_only: self.inner.read_only.clone(),
            space: self.space(),
        }
    }

    /// Space in use and free, as `statfs`.
    #[must_use]
    pub fn space(&self) -> Space {
        let layout = &self.inner.layout;
        let counts = self.inner.counts();
        Space {
            block_size: layout.block_size,
            blocks: layout.blocks_count,
            free_blocks: counts.free_blocks().saturating_sub(self.inner.allocator.delayed_blocks()),
            reserved_blocks: self.inner.superblock.reserved_blocks(),
            inodes: layout.inodes_count,
            free_inodes: counts.free_inodes(),
        }
    }
}
