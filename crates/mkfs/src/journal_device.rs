//! Makes an empty journal on a device of its own.

use parext4_device::Device;
use parext4_format::jbd2::{JournalDevice, JournalSuperblock};
use parext4_format::superblock::Superblock;
use zerocopy::IntoBytes;

use crate::check_options::check_block_size;
use crate::error::{MkfsError, Result};
use crate::write::DeviceWriter;
use crate::{Identity, MkfsOptions, Summary, journal, superblock};

/// Creates an empty journal on all of `device`, for one volume with the same block size. Of the
/// options, it uses the block size, the label, the UUID, the hash seed and the time. Blocks until
/// the journal is durable.
///
/// # Errors
/// [`MkfsError::Invalid`], before anything is written, if the device is too small. A device error.
pub fn mkfs_journal_device(device: &dyn Device, options: &MkfsOptions) -> Result<Summary> {
    let block_size = options.block_size_on(device.size())?;
    check_block_size(block_size)?;
    let found = JournalDevice { block_size, blocks: device.size() / u64::from(block_size), uuid: [0; 16] };
    let at = found.journal_superblock();
    let blocks = u32::try_from(found.blocks).unwrap_or(u32::MAX);
    if blocks < at + journal::MIN_BLOCKS {
        let least = at + journal::MIN_BLOCKS;
        return Err(MkfsError::invalid(format_args!(
            "journal of {blocks} blocks of {block_size} bytes: at least {least}"
        )));
    }
    let identity = Identity::new(options);
    let writer = DeviceWriter::new(device, block_size);
    if !options.device_is_zero {
        writer.retire_old_volume()?;
        writer.wipe_signatures(device.size())?;
        writer.zero_blocks("the journal", 0, blocks.into())?;
    }
    let mut block = vec![0; block_size as usize];
    let mut log = JournalSuperblock::new(block_size, blocks, at + 1, &identity.uuid);
    log.set_users(&[]);
    log.encode(&mut block);
    writer.blocks("the journal's superblock", at.into(), &block)?;
    writer.flush()?;
    let raw = superblock::of_journal_device(block_size, blocks.into(), options, &identity);
    writer.bytes("the superblock of the journal device", Superblock::OFFSET, raw.as_bytes())?;
    writer.flush()?;
    Ok(Summary {
        type_name: "jbd",
        block_size,
        cluster_size: block_size,
        blocks_count: blocks.into(),
        free_blocks: 0,
        reserved_blocks: 0,
        groups: 0,
        inodes_count: 0,
        free_inodes: 0,
        inode_size: options.inode_size,
        journal_blocks: blocks,
        uuid: identity.uuid,
        label: options.label.clone(),
        features: vec!["journal_dev".to_owned()],
    })
}
