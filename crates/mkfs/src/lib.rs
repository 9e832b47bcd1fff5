//! Creates an empty volume, as mke2fs does: with the same features, sizes and counts; or an empty
//! journal on a device of its own.
//!
//! The crate writes all blocks of a new volume, directly to the device. It does not ask whether the
//! device already holds something; the caller does.
//!
//! Invariant: the device holds the old volume as it was, or no valid file system, until the last
//! write. The order is
//!
//! 1. overwrite the old superblock, and flush;
//! 2. overwrite old signatures at the start and the end of the device, and flush;
//! 3. write everything but the primary superblock, and flush;
//! 4. write the primary superblock, and flush.
//!
//! Bitmaps of empty groups and all but the first inodes are not written, but marked as
//! uninitialised (`BLOCK_UNINIT`, `INODE_UNINIT`, `bg_itable_unused`), so a sparse image stays
//! sparse.
//!
//! The crate `parext4` contains these functions too, with its own errors.
//!
//! Sources: kernel documentation, "ext4 Data Structures and Algorithms"; the behaviour of mke2fs
//! 1.47.

#![forbid(unsafe_code)]

mod check_options;
mod error;
mod external_journal;
mod features;
mod file_blocks;
mod geometry;
mod groups;
mod inodes;
mod journal;
mod journal_device;
mod options;
mod placement;
mod pointers;
mod quota;
mod resize;
mod superblock;
mod types;
mod used;
mod volume_writer;
mod write;

use std::time::{SystemTime, UNIX_EPOCH};

use parext4_device::Device;
use parext4_format::FsBlock;
use parext4_format::features::Compat;
use parext4_format::superblock::Superblock;

pub use error::MkfsError;
use error::Result;
pub use external_journal::ExternalJournal;
use geometry::Geometry;
pub use journal_device::mkfs_journal_device;
pub use options::{Casefold, MkfsOptions, OnError};
use parext4_format::convert::saturating_u32;
use placement::{Contents, Placement};
pub use types::FsType;
use volume_writer::VolumeWriter;
use write::DeviceWriter;

/// A new volume, as returned by [`mkfs`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// `ext2`, `ext3` or `ext4`, by the features, or `jbd` for a journal on a device of its own, as
    /// blkid(8) names it.
    pub type_name: &'static str,
    /// Block size in bytes.
    pub block_size: u32,
    /// Cluster size in bytes: the block size without bigalloc.
    pub cluster_size: u32,
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

/// Creates an empty volume on all of `device`, except for less than 4096 bytes at its end.
/// Overwrites the contents of the device. Blocks until the volume is durable.
///
/// ```
/// use parext4_device::MemDevice;
/// use parext4_mkfs::{MkfsOptions, mkfs};
///
/// let summary = mkfs(&MemDevice::new(64 << 20), &MkfsOptions::new().block_size(4096))?;
/// assert_eq!(summary.blocks_count, 16384);
/// # Ok::<(), parext4_mkfs::MkfsError>(())
/// ```
///
/// # Errors
/// [`MkfsError::Invalid`], before anything is written, if the options do not fit the device. A
/// device error, after which the device holds no volume.
pub fn mkfs(device: &dyn Device, options: &MkfsOptions) -> Result<Summary> {
    let mmp = options.mmp.unwrap_or_else(|| device.sharing().is_shared());
    Plan::new(device.size(), mmp, options)?.write(device)
}

/// Returns the summary of the volume that [`mkfs`] would create on a device of `size` bytes, and
/// writes nothing.
///
/// # Errors
/// The errors of `mkfs`, except for errors of writes.
pub fn plan(size: u64, options: &MkfsOptions) -> Result<Summary> {
    Ok(Plan::new(size, options.mmp == Some(true), options)?.summary())
}

/// A volume that is not written yet.
struct Plan<'a> {
    options: &'a MkfsOptions,
    identity: Identity,
    geometry: Geometry,
    contents: Contents,
    placement: Placement,
    sb: Superblock,
}

impl<'a> Plan<'a> {
    fn new(size: u64, mmp: bool, options: &'a MkfsOptions) -> Result<Self> {
        let external = options.external_journal.as_ref().map(ExternalJournal::read).transpose()?;
        let geometry = Geometry::new(size, options.block_size_on(size)?, options)?;
        let contents = contents(mmp, &geometry, options)?;
        let placement = Placement::new(&geometry, &contents, options)?;
        let identity = Identity::new(options);
        let mut sb = superblock::build(&geometry, options, &identity)?;
        if let Some(block) = placement.mmp {
            sb.set_mmp(FsBlock(block), options.mmp_update_interval);
        }
        if let Some((journal, found)) = options.external_journal.as_ref().zip(external) {
            journal.check(&found, &sb)?;
            superblock::set_external_journal(&mut sb, &found, journal.number);
        }
        superblock::set_counters(&mut sb, &geometry, &placement);
        Ok(Self { options, identity, geometry, contents, placement, sb })
    }

    fn write(mut self, device: &dyn Device) -> Result<Summary> {
        let volume = VolumeWriter {
            writer: DeviceWriter::new(device, self.geometry.block_size),
            geometry: &self.geometry,
            placement: &self.placement,
            options: self.options,
        };
        volume.clear(device)?;
        if let Some(journal) = &self.options.external_journal {
            journal.claim(&self.identity.uuid)?;
        }
        volume.write_mmp(&self.sb)?;
        volume.write_files(&mut self.sb, &self.identity, self.contents.journal)?;
        volume.write_groups(&self.sb)?;
        volume.writer.flush()?;
        volume.write_superblock("the superblock", Superblock::OFFSET, &self.sb)?;
        volume.writer.flush()?;
        Ok(self.summary())
    }

    fn summary(&self) -> Summary {
        let sb = &self.sb;
        // The feature of a journal in the volume is set when the journal's inode is written.
        let mut sb = sb.clone();
        if self.contents.journal.is_some() {
            sb.set_compat(sb.compat() | Compat::HAS_JOURNAL);
        }
        Summary {
            type_name: sb.type_name(),
            block_size: sb.block_size(),
            cluster_size: sb.block_size() << sb.cluster_bits(),
            blocks_count: sb.blocks_count(),
            free_blocks: sb.free_blocks(),
            reserved_blocks: sb.reserved_blocks(),
            groups: sb.group_count(),
            inodes_count: sb.inodes_count(),
            free_inodes: sb.free_inodes(),
            inode_size: sb.inode_size(),
            journal_blocks: self.contents.journal.map_or(0, |size| size.blocks),
            uuid: sb.uuid(),
            label: sb.label(),
            features: sb.feature_names(),
        }
    }
}

/// Returns the parts of the volume beyond its tables and directories.
fn contents(mmp: bool, geometry: &Geometry, options: &MkfsOptions) -> Result<Contents> {
    let has_features = options.revision > 0;
    let is_internal = options.journal && options.external_journal.is_none();
    let journal = if is_internal && has_features { journal::size(geometry, options)? } else { None };
    let has_journal = journal.is_some() || options.external_journal.is_some();
    let has_orphans = geometry.features.compat.contains(Compat::ORPHAN_FILE);
    if has_orphans && !has_journal {
        return Err(MkfsError::invalid("the feature orphan_file needs a journal"));
    }
    let orphan_file =
        if has_orphans { Some(geometry.orphan_blocks(options.orphan_file_blocks)?) } else { None };
    let quota_files = quota::files(geometry, options)?;
    Ok(Contents { journal, mmp: mmp && has_features, orphan_file, quota_files })
}
