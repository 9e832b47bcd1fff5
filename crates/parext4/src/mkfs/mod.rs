//! Creates an empty volume, as `mke2fs -t ext4` does: with the same features, sizes and counts.
//!
//! Responsible for all blocks of a new volume. Does not ask whether the device holds something already; that is up to the
//! caller. Opens no volume: it writes to the device directly.
//!
//! Invariant: the device holds no valid file system until the last write. The order is
//!
//! 1. overwrite old signatures at the start and the end of the device, and flush;
//! 2. write everything but the primary superblock, and flush;
//! 3. write the primary superblock, and flush.
//!
//! Bitmaps of empty groups and all but the first inodes are not written, but marked as uninitialised (`BLOCK_UNINIT`,
//! `INODE_UNINIT`, `bg_itable_unused`), so a sparse image stays sparse.
//!
//! Sources: kernel documentation, "ext4 Data Structures and Algorithms"; the behaviour of mke2fs 1.47.

mod features;
mod geometry;
mod groups;
mod inodes;
mod journal;
mod options;
mod placement;
mod pointers;
mod resize;
mod superblock;
mod used;
mod volume_writer;
mod write;

use std::time::{SystemTime, UNIX_EPOCH};

use parext4_device::Device;
use parext4_format::FsBlock;
use parext4_format::superblock::Superblock;

use crate::convert::saturating_u32;
use crate::error::Result;
use geometry::Geometry;
pub use options::{Casefold, MkfsOptions};
use placement::Placement;
use volume_writer::VolumeWriter;
use write::DeviceWriter;

/// A new volume, as returned by [`mkfs`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks_count: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
    /// Number of blocks that only root may use.
    pub reserved_blocks: u64,
    /// Number of block groups.
    pub groups: u32,
    /// Number of inodes, including the reserved ones.
    pub inodes_count: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Size of an inode in bytes.
    pub inode_size: u16,
    /// Length of the journal in blocks; 0 without a journal.
    pub journal_blocks: u32,
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Name of the volume.
    pub label: String,
    /// Names of the features, as e2fsprogs has them.
    pub features: Vec<String>,
}

/// Values that are random or depend on the clock, unless the options set them.
struct Identity {
    uuid: [u8; 16],
    hash_seed: [u8; 16],
    now: u32,
}

impl Identity {
    fn new(options: &MkfsOptions) -> Self {
        let random = || uuid::Uuid::new_v4().into_bytes();
        let clock = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
            saturating_u32(now)
        };
        Self {
            uuid: options.uuid.unwrap_or_else(random),
            hash_seed: options.hash_seed.unwrap_or_else(random),
            now: options.now.unwrap_or_else(clock),
        }
    }
}

/// Creates an empty volume on all of `device`, except for a rest of less than 4096 bytes. Overwrites what the device
/// holds. Blocks until the volume is durable.
///
/// ```
/// use parext4::{MemDevice, MkfsOptions, mkfs};
///
/// let summary = mkfs(&MemDevice::new(64 << 20), &MkfsOptions::new().block_size(4096))?;
/// assert_eq!(summary.blocks_count, 16384);
/// # Ok::<(), parext4::Error>(())
/// ```
///
/// # Errors
/// [`Error::Invalid`](crate::error::Error::Invalid), before anything is written, if the options do not fit the device. A
/// device error, after which the device holds no volume.
pub fn mkfs(device: &dyn Device, options: &MkfsOptions) -> Result<Summary> {
    let geometry = Geometry::new(device.size(), options)?;
    let has_features = options.revision > 0;
    let journal_blocks = match options.journal && has_features {
        true => journal::size(&geometry, options.journal_blocks)?,
        false => None,
    };
    let mmp = has_features && options.mmp.unwrap_or_else(|| device.sharing().is_shared());
    let placement = Placement::new(&geometry, journal_blocks, mmp)?;
    let identity = Identity::new(options);
    let mut sb = superblock::build(&geometry, options, &identity)?;
    if let Some(block) = placement.mmp {
        sb.set_mmp(FsBlock(block), options.mmp_update_interval);
    }
    superblock::set_counters(&mut sb, &geometry, &placement);

    let volume = VolumeWriter {
        writer: DeviceWriter::new(device, geometry.block_size),
        geometry: &geometry,
        placement: &placement,
        zero: options.device_is_zero,
    };
    volume.wipe_signatures(device.size())?;
    volume.write_mmp(&sb)?;
    volume.write_files(&mut sb, &identity, options.owner)?;
    volume.write_groups(&sb)?;
    volume.writer.flush()?;
    volume.write_superblock("the superblock", Superblock::OFFSET, &sb)?;
    volume.writer.flush()?;
    Ok(summary(&sb, journal_blocks))
}

fn summary(sb: &Superblock, journal_blocks: Option<u32>) -> Summary {
    Summary {
        block_size: sb.block_size(),
        blocks_count: sb.blocks_count(),
        free_blocks: sb.free_blocks(),
        reserved_blocks: sb.reserved_blocks(),
        groups: sb.group_count(),
        inodes_count: sb.inodes_count(),
        free_inodes: sb.free_inodes(),
        inode_size: sb.inode_size(),
        journal_blocks: journal_blocks.unwrap_or(0),
        uuid: sb.uuid(),
        label: sb.label(),
        features: sb.feature_names(),
    }
}
