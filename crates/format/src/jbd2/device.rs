//! A device that holds only a journal (an external journal): a superblock of ext4 with the feature
//! `journal_dev`, and then the superblock of the journal.

use crate::block_size::BlockSize;
use crate::checksum::crc32c;
use crate::error::{FormatError, Result};
use crate::features::{Incompat, RoCompat};

const STRUCTURE: &str = "journal device";
/// Offset of the superblock on the device, and its bytes.
const OFFSET: usize = 1024;
const SIZE: usize = 1024;
/// `EXT4_SUPER_MAGIC`
const MAGIC: u16 = 0xef53;

// Offsets in the superblock: kernel documentation, "The Super Block".
const BLOCKS_COUNT_LO: usize = 0x4;
const LOG_BLOCK_SIZE: usize = 0x18;
const S_MAGIC: usize = 0x38;
const FEATURE_INCOMPAT: usize = 0x60;
const FEATURE_RO_COMPAT: usize = 0x64;
const UUID: usize = 0x68;
const BLOCKS_COUNT_HI: usize = 0x150;
const CHECKSUM: usize = 0x3fc;

/// The superblock of a journal device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalDevice {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the device, the superblocks included.
    pub blocks: u64,
    /// The UUID, by which a volume names its journal.
    pub uuid: [u8; 16],
}

impl JournalDevice {
    /// Bytes at the start of a device that [`parse`](Self::parse) needs.
    pub const BYTES: usize = OFFSET + SIZE;

    /// Parses the first bytes of a device.
    ///
    /// # Errors
    /// If the device is not a journal device, or its checksum is wrong.
    pub fn parse(device: &[u8]) -> Result<Self> {
        let fail = |field, problem: &str| FormatError::new(STRUCTURE, field, problem);
        let bytes =
            device.get(OFFSET..OFFSET + SIZE).ok_or_else(|| fail("s_magic", "the device is too short"))?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if u16::from_le_bytes([bytes[S_MAGIC], bytes[S_MAGIC + 1]]) != MAGIC {
            return Err(fail("s_magic", "no superblock"));
        }
        if word(FEATURE_INCOMPAT) != Incompat::JOURNAL_DEV.bits() {
            return Err(fail("s_feature_incompat", "a file system, not a journal"));
        }
        if word(FEATURE_RO_COMPAT) & RoCompat::METADATA_CSUM.bits() != 0 {
            let (stored, computed) = (word(CHECKSUM), crc32c(!0, &bytes[..CHECKSUM]));
            if stored != computed {
                return Err(FormatError::checksum(STRUCTURE, stored, computed));
            }
        }
        let block_size = word(LOG_BLOCK_SIZE).checked_add(10).and_then(BlockSize::from_bits);
        let block_size = block_size.ok_or_else(|| fail("s_log_block_size", "is out of range"))?.bytes();
        let blocks = u64::from(word(BLOCKS_COUNT_HI)) << 32 | u64::from(word(BLOCKS_COUNT_LO));
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[UUID..UUID + 16]);
        Ok(Self { block_size, blocks, uuid })
    }

    /// Returns the block with the journal's superblock: the one after the device's.
    #[must_use]
    pub fn journal_superblock(&self) -> u32 {
        if self.block_size == 1024 { 2 } else { 1 }
    }
}
