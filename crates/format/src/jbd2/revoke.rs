//! Revoke blocks: lists of blocks whose copies in this and earlier transactions must not be
//! replayed, because the blocks were freed and may have another use since.

use super::{BlockType, HEADER_SIZE, TagFormat, expect_type, seal_tail, start_block, verify_tail};
use crate::{FormatError, FsBlock, Result};

const STRUCTURE: &str = "journal revoke block";
/// Bytes before the records: the header and `r_count`.
const RECORDS: usize = HEADER_SIZE + 4;

impl TagFormat {
    /// Returns the number of bytes of one record.
    fn revoke_bytes(self) -> usize {
        if self.bit64 { 8 } else { 4 }
    }
}

/// Returns the number of records that fit a revoke block of `block_len` bytes.
#[must_use]
pub fn revokes_per_block(block_len: usize, format: TagFormat) -> usize {
    format.usable_len(block_len).saturating_sub(RECORDS) / format.revoke_bytes()
}

/// Returns the blocks of the volume that a revoke block lists.
///
/// # Errors
/// [`FormatError`] if the block is no revoke block, or its length is not valid.
pub fn parse_revoke(block: &[u8], format: TagFormat) -> Result<Vec<FsBlock>> {
    expect_type(STRUCTURE, block, BlockType::Revoke)?;
    let fail = |problem: std::fmt::Arguments<'_>| FormatError::new(STRUCTURE, "r_count", problem);
    let count = block
        .get(HEADER_SIZE..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map(|count| u32::from_be_bytes(*count))
        .ok_or_else(|| fail(format_args!("the block is too short")))?;
    let end = usize::try_from(count).unwrap_or(usize::MAX);
    if end > format.usable_len(block.len()) {
        return Err(fail(format_args!("{count} bytes pass the end of the block")));
    }
    let records = block.get(RECORDS..end).ok_or_else(|| fail(format_args!("{count} is below the header")))?;
    // A record has at most eight bytes.
    let number = |record: &[u8]| record.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    Ok(records.chunks_exact(format.revoke_bytes()).map(|record| FsBlock(number(record))).collect())
}

/// Writes a revoke block. With checksums seals it; `seed` is the journal's.
///
/// # Panics
/// If there are more than [`revokes_per_block`], or a block number that the format cannot hold.
pub fn encode_revoke(out: &mut [u8], format: TagFormat, sequence: u32, seed: u32, blocks: &[FsBlock]) {
    let most = revokes_per_block(out.len(), format);
    assert!(blocks.len() <= most, "{} revokes of {most}", blocks.len());
    start_block(out, BlockType::Revoke, sequence);
    let width = format.revoke_bytes();
    let end = RECORDS + blocks.len() * width;
    let count = u32::try_from(end).expect("a block is below 4 GiB");
    out[HEADER_SIZE..RECORDS].copy_from_slice(&count.to_be_bytes());
    for (record, block) in out[RECORDS..end].chunks_exact_mut(width).zip(blocks) {
        let bytes = block.get().to_be_bytes();
        let (unused, number) = bytes.split_at(bytes.len() - width);
        assert!(unused.iter().all(|&byte| byte == 0), "block {block} in a journal of 32-bit numbers");
        record.copy_from_slice(number);
    }
    if format.has_checksums() {
        seal_tail(seed, out);
    }
}

/// Checks the checksum of a revoke block; `seed` is the journal's.
///
/// # Errors
/// [`FormatError`] if the checksum is wrong.
pub fn verify_revoke(seed: u32, block: &[u8]) -> Result<()> {
    verify_tail(STRUCTURE, seed, block)
}
