//! Descriptor blocks: a tag for each data block that follows in the journal.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockType, HEADER_SIZE, TagFormat, expect_type, seal_tail, start_block, verify_tail};
use crate::checksum::crc32c;
use crate::{FormatError, FsBlock, Result};

const STRUCTURE: &str = "journal descriptor";
/// Bytes of the UUID after a tag without [`SAME_UUID`].
const UUID: usize = 16;

// `t_flags`
const ESCAPE: u16 = 1;
const SAME_UUID: u16 = 2;
const DELETED: u16 = 4;
const LAST_TAG: u16 = 8;

/// The location of one data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The block of the volume.
    pub block: FsBlock,
    /// The first four bytes are [`super::MAGIC`] on the volume and zero in the journal.
    pub escaped: bool,
    /// The block is not to be replayed.
    pub deleted: bool,
    /// The [`data_checksum`]: with checksums v2 only its low 16 bits, without checksums 0.
    pub checksum: u32,
}

/// `journal_block_tag_t`. The high block number comes only with 64-bit numbers; with checksums v2
/// two unused bytes follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTag {
    t_blocknr: U32,
    t_checksum: U16,
    t_flags: U16,
}

/// `journal_block_tag3_t`
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTag3 {
    t_blocknr: U32,
    t_flags: U32,
    t_blocknr_high: U32,
    t_checksum: U32,
}

impl TagFormat {
    /// Returns the number of bytes of a tag (`journal_tag_bytes`).
    fn tag_bytes(self) -> usize {
        match (self.csum_v3, self.csum_v2, self.bit64) {
            (true, _, _) => size_of::<RawTag3>(),
            (_, false, false) => 8,
            (_, true, false) => 10,
            (_, false, true) => 12,
            (_, true, true) => 14,
        }
    }

    fn read_tag(self, bytes: &[u8]) -> Option<(Tag, u16)> {
        let (low, high, flags, checksum) = if self.csum_v3 {
            let (raw, _) = RawTag3::ref_from_prefix(bytes).ok()?;
            // All known flags are in the low half.
            let flags = u16::try_from(raw.t_flags.get() & 0xffff).ok()?;
            (raw.t_blocknr.get(), raw.t_blocknr_high.get(), flags, raw.t_checksum.get())
        } else {
            let (raw, rest) = RawTag::ref_from_prefix(bytes).ok()?;
            let high = if self.bit64 { U32::ref_from_prefix(rest).ok()?.0.get() } else { 0 };
            let checksum = if self.csum_v2 { raw.t_checksum.get() } else { 0 };
            (raw.t_blocknr.get(), high, raw.t_flags.get(), checksum.into())
        };
        let high = if self.bit64 { high } else { 0 };
        let tag = Tag {
            block: FsBlock(u64::from(high) << 32 | u64::from(low)),
            escaped: flags & ESCAPE != 0,
            deleted: flags & DELETED != 0,
            checksum,
        };
        Some((tag, flags))
    }

    /// Encodes a tag. `out` is [`Self::tag_bytes`] long.
    fn write_tag(self, out: &mut [u8], tag: &Tag, flags: u16) {
        let block = tag.block.get().to_be_bytes();
        let (high, low) = block.split_at(4);
        assert!(self.bit64 || high == [0; 4], "block {} in a journal of 32-bit numbers", tag.block);
        let low_half = U16::ref_from_bytes(&tag.checksum.to_be_bytes()[2..]).map_or(0, |half| half.get());
        out[..4].copy_from_slice(low);
        if self.csum_v3 {
            out[4..8].copy_from_slice(&u32::from(flags).to_be_bytes());
            out[8..12].copy_from_slice(high);
            out[12..16].copy_from_slice(&tag.checksum.to_be_bytes());
        } else {
            let checksum = if self.csum_v2 { low_half } else { 0 };
            out[4..6].copy_from_slice(&checksum.to_be_bytes());
            out[6..8].copy_from_slice(&flags.to_be_bytes());
            if self.bit64 {
                out[8..12].copy_from_slice(high);
            }
        }
    }
}

/// Returns the number of tags that fit a descriptor of `block_len` bytes with one UUID.
#[must_use]
pub fn tags_per_descriptor(block_len: usize, format: TagFormat) -> usize {
    format.usable_len(block_len).saturating_sub(HEADER_SIZE + UUID) / format.tag_bytes()
}

/// Returns the tags of a descriptor, up to the last one or the end of the block.
///
/// # Errors
/// [`FormatError`] if the block is no descriptor, or has no room for a tag.
pub fn parse_descriptor(block: &[u8], format: TagFormat) -> Result<Vec<Tag>> {
    expect_type(STRUCTURE, block, BlockType::Descriptor)?;
    let end = format.usable_len(block.len());
    let mut tags = Vec::new();
    let mut offset = HEADER_SIZE;
    while let Some(bytes) = block[..end].get(offset..offset + format.tag_bytes()) {
        let Some((tag, flags)) = format.read_tag(bytes) else { break };
        tags.push(tag);
        if flags & LAST_TAG != 0 {
            return Ok(tags);
        }
        offset += format.tag_bytes() + if flags & SAME_UUID == 0 { UUID } else { 0 };
    }
    if tags.is_empty() {
        return Err(FormatError::new(STRUCTURE, "t_flags", "the block has no room for a tag"));
    }
    Ok(tags)
}

/// Writes a descriptor. With checksums seals it; `seed` is the journal's.
///
/// # Panics
/// If there is no tag, more than [`tags_per_descriptor`], or a block number that the format cannot
/// hold.
pub fn encode_descriptor(
    out: &mut [u8],
    format: TagFormat,
    sequence: u32,
    seed: u32,
    uuid: &[u8; 16],
    tags: &[Tag],
) {
    let most = tags_per_descriptor(out.len(), format);
    assert!((1..=most).contains(&tags.len()), "{} tags of {most}", tags.len());
    start_block(out, BlockType::Descriptor, sequence);
    let mut offset = HEADER_SIZE;
    for (index, tag) in tags.iter().enumerate() {
        let mut flags = 0;
        for (set, flag) in [
            (tag.escaped, ESCAPE),
            (tag.deleted, DELETED),
            (index > 0, SAME_UUID),
            (index + 1 == tags.len(), LAST_TAG),
        ] {
            flags |= if set { flag } else { 0 };
        }
        format.write_tag(&mut out[offset..offset + format.tag_bytes()], tag, flags);
        offset += format.tag_bytes();
        if index == 0 {
            out[offset..offset + UUID].copy_from_slice(uuid);
            offset += UUID;
        }
    }
    if format.has_checksums() {
        seal_tail(seed, out);
    }
}

/// Verifies the checksum of a descriptor; `seed` is the journal's.
///
/// # Errors
/// [`FormatError`] if the checksum is wrong.
pub fn verify_descriptor(seed: u32, block: &[u8]) -> Result<()> {
    verify_tail(STRUCTURE, seed, block)
}

/// Returns the checksum for the [`Tag`] of a data block. `block` is the content in the journal,
/// escaped if need be.
#[must_use]
pub fn data_checksum(seed: u32, sequence: u32, block: &[u8]) -> u32 {
    crc32c(crc32c(seed, &sequence.to_be_bytes()), block)
}

/// Returns true if the checksum of a tag matches the content in the journal, or if there are no
/// checksums.
#[must_use]
pub fn tag_checksum_matches(tag: &Tag, format: TagFormat, seed: u32, sequence: u32, block: &[u8]) -> bool {
    if !format.has_checksums() {
        return true;
    }
    let mask = if format.csum_v3 { !0 } else { 0xffff };
    (tag.checksum ^ data_checksum(seed, sequence, block)) & mask == 0
}
