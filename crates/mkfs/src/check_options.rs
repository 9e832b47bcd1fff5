//! Checks the options of a new volume, as far as that needs no device.

use parext4_format::BlockSize;
use parext4_format::features::Incompat;
use parext4_format::mmp::MAX_UPDATE_INTERVAL;
use parext4_format::superblock::MAX_CLUSTERS_PER_GROUP;

use crate::MkfsOptions;
use crate::error::{MkfsError, Result};

/// Minimum number of blocks of a group that the options may choose.
const MIN_BLOCKS_PER_GROUP: u32 = 256;

/// Checks the options by themselves.
///
/// # Errors
/// [`MkfsError::Invalid`] names an option that is out of range.
pub(crate) fn check_options(block_size: u32, options: &MkfsOptions) -> Result<()> {
    check_block_size(block_size)?;
    let inode_size = u32::from(options.inode_size);
    if options.features.incompat.contains(Incompat::INLINE_DATA) && inode_size < 256 {
        return Err(MkfsError::invalid(format_args!(
            "inode size {inode_size}: inline_data needs at least 256"
        )));
    }
    if !inode_size.is_power_of_two() || inode_size < 128 || inode_size > block_size {
        return Err(MkfsError::invalid(format_args!(
            "inode size {inode_size}: not a power of two between 128 and the block size, {block_size}"
        )));
    }
    if let Some(blocks) = options.blocks_per_group
        && !(blocks.is_multiple_of(8)
            && (MIN_BLOCKS_PER_GROUP..=max_blocks_per_group(block_size)).contains(&blocks))
    {
        return Err(MkfsError::invalid(format_args!(
            "{blocks} blocks per group: not a multiple of 8 between {MIN_BLOCKS_PER_GROUP} and {}",
            max_blocks_per_group(block_size)
        )));
    }
    if options.revision > 1 || options.revision == 0 && options.adds_features {
        let revision = options.revision;
        return Err(MkfsError::invalid(format_args!("revision {revision}: only 1, and 0 without features")));
    }
    if options.packed_metadata && !options.features.incompat.contains(Incompat::FLEX_BG) {
        return Err(MkfsError::invalid("packed metadata needs the feature flex_bg"));
    }
    if options.external_journal.is_some() && options.revision == 0 {
        return Err(MkfsError::invalid("revision 0 has no journal"));
    }
    let percent = options.reserved_percent;
    if !(0.0..=50.0).contains(&percent) {
        return Err(MkfsError::invalid(format_args!("{percent}% reserved blocks: at most 50%")));
    }
    if options.superblock_backups > 2 {
        let backups = options.superblock_backups;
        return Err(MkfsError::invalid(format_args!("{backups} backups of the superblock: at most 2")));
    }
    if options.last_mounted.len() > 63 {
        let bytes = options.last_mounted.len();
        return Err(MkfsError::invalid(format_args!("last mounted on a path of {bytes} bytes: at most 63")));
    }
    let interval = options.mmp_update_interval;
    if !(1..=MAX_UPDATE_INTERVAL).contains(&interval) {
        return Err(MkfsError::invalid(format_args!(
            "mmp update interval {interval}: not between 1 and 300 seconds"
        )));
    }
    if options.label.len() > 16 {
        let bytes = options.label.len();
        return Err(MkfsError::invalid(format_args!("label of {bytes} bytes: at most 16")));
    }
    Ok(())
}

/// Checks that blocks can have this size, in bytes.
///
/// # Errors
/// [`MkfsError::Invalid`].
pub(crate) fn check_block_size(block_size: u32) -> Result<()> {
    let (least, most) = (BlockSize::MIN.bytes(), BlockSize::MAX.bytes());
    if block_size.is_power_of_two() && (least..=most).contains(&block_size) {
        return Ok(());
    }
    Err(MkfsError::invalid(format_args!(
        "block size {block_size}: not a power of two between {least} and {most}"
    )))
}

/// Returns the maximum number of blocks of a group: as many as its bitmap has bits, and as 16 bits
/// count.
pub(crate) fn max_blocks_per_group(block_size: u32) -> u32 {
    (8 * block_size).min(MAX_CLUSTERS_PER_GROUP)
}

/// Returns the inode ratio of the options.
///
/// # Errors
/// [`MkfsError::Invalid`] if it is out of range.
pub(crate) fn checked_ratio(ratio: u64) -> Result<u64> {
    if (1024..=64 << 20).contains(&ratio) {
        return Ok(ratio);
    }
    Err(MkfsError::invalid(format_args!("inode ratio {ratio}: not between 1024 and 67108864 bytes")))
}
