//! Blocks of the orphan file (feature `orphan_file`): slots with the numbers of inodes that
//! recovery deletes or truncates, and a tail.
//!
//! Source: kernel documentation, "ext4: Orphan file".

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ChecksumSeed, FormatError, FsBlock, InodeNo, Result};

/// `EXT4_ORPHAN_BLOCK_MAGIC`
const MAGIC: u32 = 0x0b10_ca04;
const STRUCTURE: &str = "orphan file block";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTail {
    ob_magic: U32,
    ob_checksum: U32,
}

/// Returns the number of slots in a block of `block_len` bytes.
#[must_use]
pub fn slots_per_block(block_len: usize) -> usize {
    block_len.saturating_sub(size_of::<RawTail>()) / size_of::<U32>()
}

/// Parses block `physical` of the volume and returns all its slots; 0 is a free one. With a seed
/// (of the orphan file's inode), verifies the checksum, which covers the block number, too.
///
/// # Errors
/// Names the field that is wrong, and the block.
pub fn parse_block(bytes: &[u8], seed: Option<ChecksumSeed>, physical: FsBlock) -> Result<Vec<InodeNo>> {
    parse_slots(bytes, seed, physical).map_err(|error| error.in_block(physical))
}

fn parse_slots(bytes: &[u8], seed: Option<ChecksumSeed>, physical: FsBlock) -> Result<Vec<InodeNo>> {
    let Ok((slots, tail)) = RawTail::ref_from_suffix(bytes) else {
        return Err(FormatError::new(STRUCTURE, "ob_magic", "the block is too short"));
    };
    if tail.ob_magic.get() != MAGIC {
        return Err(FormatError::new(STRUCTURE, "ob_magic", format_args!("is {:#x}", tail.ob_magic.get())));
    }
    if let Some(seed) = seed {
        let (stored, computed) = (tail.ob_checksum.get(), checksum(seed, physical, slots));
        if stored != computed {
            return Err(FormatError::checksum(STRUCTURE, stored, computed));
        }
    }
    let (slots, _) = slots.as_chunks::<4>();
    Ok(slots.iter().map(|slot| InodeNo(u32::from_le_bytes(*slot))).collect())
}

/// Returns the inode number in a slot, 0 if it is free; `None` if there is no such slot.
#[must_use]
pub fn get_slot(bytes: &[u8], slot: usize) -> Option<InodeNo> {
    let (slots, _) = bytes.as_chunks::<4>();
    let slots = slots.get(..slots_per_block(bytes.len()))?;
    Some(InodeNo(u32::from_le_bytes(*slots.get(slot)?)))
}

/// Sets a slot; 0 frees it.
///
/// # Panics
/// If there is no such slot.
pub fn set_slot(bytes: &mut [u8], slot: usize, ino: InodeNo) {
    assert!(slot < slots_per_block(bytes.len()), "slot {slot} is in the tail");
    bytes[slot * 4..slot * 4 + 4].copy_from_slice(&ino.get().to_le_bytes());
}

fn checksum(seed: ChecksumSeed, physical: FsBlock, slots: &[u8]) -> u32 {
    seed.then(&physical.get().to_le_bytes()).of(slots)
}

/// Initialises a block of free slots. [`seal_block`] writes its checksum.
pub fn init_block(bytes: &mut [u8]) {
    bytes.fill(0);
    let at = bytes.len() - size_of::<RawTail>();
    let tail = RawTail { ob_magic: U32::new(MAGIC), ob_checksum: U32::ZERO };
    bytes[at..].copy_from_slice(tail.as_bytes());
}

/// Writes the checksum of a block; `seed` is that of the orphan file's inode.
pub fn seal_block(seed: ChecksumSeed, physical: FsBlock, bytes: &mut [u8]) {
    let at = bytes.len() - size_of::<RawTail>();
    let computed = checksum(seed, physical, &bytes[..at]);
    bytes[at + 4..].copy_from_slice(&computed.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_checksum() {
        let (seed, at) = (ChecksumSeed(1), FsBlock(500));
        let mut bytes = vec![0xff; 1024];
        init_block(&mut bytes);
        assert_eq!(slots_per_block(1024), 254);
        set_slot(&mut bytes, 253, InodeNo(12));
        assert_eq!(get_slot(&bytes, 253), Some(InodeNo(12)));
        assert_eq!(get_slot(&bytes, 254), None);
        assert_eq!(parse_block(&bytes, Some(seed), at).unwrap_err().field, "checksum");
        seal_block(seed, at, &mut bytes);
        let slots = parse_block(&bytes, Some(seed), at).unwrap();
        assert_eq!((slots.len(), slots[0], slots[253]), (254, InodeNo(0), InodeNo(12)));
        assert!(parse_block(&bytes, Some(seed), FsBlock(501)).is_err());
        bytes[1016] = 0;
        assert_eq!(parse_block(&bytes, None, at).unwrap_err().field, "ob_magic");
        assert!(parse_block(&[0; 7], None, at).is_err());
    }
}
