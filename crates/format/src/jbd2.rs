//! The journal's structures (jbd2), all big endian: the superblock and the three kinds of control
//! block.
//!
//! Source: kernel documentation, "ext4: Journal (jbd2)"; checksums: `fs/jbd2/commit.c`.

mod commit;
mod descriptor;
mod device;
mod revoke;
mod superblock;

pub use commit::{commit_crc32_matches, commit_time, crc32_be, encode_commit, verify_commit};
pub use descriptor::{
    Tag, data_checksum, encode_descriptor, parse_descriptor, tag_checksum_matches, tags_per_descriptor,
    verify_descriptor,
};
pub use device::JournalDevice;
pub use revoke::{encode_revoke, parse_revoke, revokes_per_block, verify_revoke};
pub use superblock::{JournalCompat, JournalIncompat, JournalSuperblock, SUPERBLOCK_SIZE};

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::{FormatError, Result};

/// `JBD2_MAGIC_NUMBER`
pub const MAGIC: u32 = 0xc03b_3998;
/// Bytes of the header of every control block (`journal_header_t`).
pub const HEADER_SIZE: usize = 12;
/// Bytes of the checksum at the end of descriptor and revoke blocks
/// (`struct jbd2_journal_block_tail`).
const TAIL_SIZE: usize = 4;

/// The kind of a control block of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// A block with the locations of the data blocks that follow.
    Descriptor = 1,
    /// A block that ends a transaction.
    Commit = 2,
    /// The superblock of version 1, without features.
    SuperblockV1 = 3,
    /// The superblock.
    SuperblockV2 = 4,
    /// A list of blocks whose older copies in the log must not be replayed.
    Revoke = 5,
}

impl BlockType {
    /// Returns the number that a block's header has (`h_blocktype`).
    #[expect(clippy::as_conversions, reason = "the discriminants are the numbers of the format")]
    const fn number(self) -> u32 {
        self as u32
    }
}

/// The features that determine the layout of journal blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagFormat {
    /// True if block numbers have 64 bits.
    pub bit64: bool,
    /// True if blocks have checksums, and tags 16 bits of them.
    pub csum_v2: bool,
    /// True if blocks have checksums, and tags 32 bits of them.
    pub csum_v3: bool,
}

impl From<&JournalSuperblock> for TagFormat {
    fn from(superblock: &JournalSuperblock) -> Self {
        let incompat = superblock.incompat();
        Self {
            bit64: incompat.contains(JournalIncompat::BIT64),
            csum_v2: incompat.contains(JournalIncompat::CSUM_V2),
            csum_v3: incompat.contains(JournalIncompat::CSUM_V3),
        }
    }
}

impl TagFormat {
    /// Returns true if control blocks carry checksums.
    #[must_use]
    pub fn has_checksums(self) -> bool {
        self.csum_v2 || self.csum_v3
    }

    /// Returns the number of bytes of a block of `block_len` bytes that are not its checksum.
    fn usable_len(self, block_len: usize) -> usize {
        if self.has_checksums() { block_len.saturating_sub(TAIL_SIZE) } else { block_len }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawHeader {
    h_magic: U32,
    h_blocktype: U32,
    h_sequence: U32,
}

/// Returns the type and the sequence number of a control block, or `None` if `block` is not a
/// control block.
#[must_use]
pub fn header(block: &[u8]) -> Option<(BlockType, u32)> {
    let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
    if raw.h_magic.get() != MAGIC {
        return None;
    }
    let block_type = match raw.h_blocktype.get() {
        1 => BlockType::Descriptor,
        2 => BlockType::Commit,
        3 => BlockType::SuperblockV1,
        4 => BlockType::SuperblockV2,
        5 => BlockType::Revoke,
        _ => return None,
    };
    Some((block_type, raw.h_sequence.get()))
}

/// Returns true if a data block starts with the magic of control blocks. In the journal its first
/// four bytes are then zero, and its tag is marked as [`Tag::escaped`].
#[must_use]
pub fn needs_escape(block: &[u8]) -> bool {
    block.starts_with(&MAGIC.to_be_bytes())
}

fn raw_header(block_type: BlockType, sequence: u32) -> RawHeader {
    RawHeader {
        h_magic: U32::new(MAGIC),
        h_blocktype: U32::new(block_type.number()),
        h_sequence: U32::new(sequence),
    }
}

/// Clears a block and writes its header.
fn start_block(out: &mut [u8], block_type: BlockType, sequence: u32) {
    out.fill(0);
    out[..HEADER_SIZE].copy_from_slice(raw_header(block_type, sequence).as_bytes());
}

/// Checks the type of a control block.
fn expect_type(structure: &'static str, block: &[u8], expected: BlockType) -> Result<()> {
    match header(block) {
        Some((found, _)) if found == expected => Ok(()),
        Some((found, _)) => Err(FormatError::new(structure, "h_blocktype", format_args!("is {found:?}"))),
        None => Err(FormatError::new(structure, "h_magic", "not a journal control block")),
    }
}

/// Verifies the checksum of a descriptor or revoke block. It covers the whole block, with zeros for
/// the tail.
fn verify_tail(structure: &'static str, seed: u32, block: &[u8]) -> Result<()> {
    let Some((content, stored)) = block.split_last_chunk::<TAIL_SIZE>() else {
        return Err(FormatError::new(structure, "t_checksum", "the block is too short"));
    };
    let (stored, computed) = (u32::from_be_bytes(*stored), crc32c(crc32c(seed, content), &[0; TAIL_SIZE]));
    if stored != computed {
        return Err(FormatError::checksum(structure, stored, computed));
    }
    Ok(())
}

fn seal_tail(seed: u32, block: &mut [u8]) {
    let at = block.len() - TAIL_SIZE;
    block[at..].fill(0);
    let computed = crc32c(seed, block);
    block[at..].copy_from_slice(&computed.to_be_bytes());
}

#[cfg(test)]
mod tests;
