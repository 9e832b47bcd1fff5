//! The resize inode, which holds the blocks that are reserved for more descriptors.
//!
//! Its map is a fixed function of the geometry: a double indirect block points to the reserved
//! blocks of group 0, and each of these to its copies in the groups with a backup.

use std::collections::HashMap;

use parext4_format::features::Compat;
use parext4_format::inode::Inode;
use parext4_format::{FormatError, FsBlock, GroupNo, InodeNo};

use crate::problem::{PR_0_RESIZE_INODE_INVALID, PR_1_ILLEGAL_BLOCK_NUM, Problem};
use crate::volume::Volume;

const PROBLEM: Problem = PR_0_RESIZE_INODE_INVALID;
/// Bytes of the reserved blocks that are read at a time.
const PIECE: usize = 256 << 10;
/// Offset of the pointer to the double indirect block in `i_block`.
const DOUBLE: usize = 13 * 4;

/// Checks the inode, and claims its double indirect block.
pub(crate) fn check(volume: &Volume<'_>, inode: &Inode) {
    if !volume.sb.compat().contains(Compat::RESIZE_INODE) {
        return;
    }
    let fail = |problem: String, block: u64| {
        let error = FormatError::new("resize inode", "i_block", problem).of_inode(InodeNo::RESIZE);
        volume.report(error.in_block(FsBlock(block)), PROBLEM);
    };
    // A pointer that leads out of the volume is a problem of its own.
    let illegal = |pointer: u64, block| {
        if pointer != 0 && !volume.has_blocks(pointer, 1) {
            let error =
                FormatError::new("resize inode", "i_block", format_args!("{pointer} is out of range"));
            volume.report(error.of_inode(InodeNo::RESIZE).in_block(FsBlock(block)), PR_1_ILLEGAL_BLOCK_NUM);
        }
    };
    let wrong_entry = |entries: &[u8], slot: usize, expected: u64, block: u64| {
        let found = word(entries, slot);
        fail(format!("entry {slot} is {found}, not {expected}"), block);
        illegal(found.into(), block);
    };
    let double = u64::from(word(&inode.block, DOUBLE / 4));
    let is_alone = (0..15).all(|index| index == DOUBLE / 4 || word(&inode.block, index) == 0);
    if !is_alone || !volume.has_blocks(double, 1) {
        fail("is not one double indirect block".to_owned(), double);
        return (0..15).for_each(|index| illegal(word(&inode.block, index).into(), 0));
    }
    volume.claim_blocks(double, 1);
    let (mut table, mut copies) = (volume.buffer(1), volume.buffer(PIECE / volume.block_size));
    if !volume.read(double, &mut table, "resize inode", PROBLEM) {
        return;
    }
    let (per_block, gdt_blocks) = (volume.block_size / 4, u64::from(volume.sb.gdt_blocks()));
    let first = volume.sb.first_gdt_block().get() + gdt_blocks;
    let mut reserved = HashMap::new();
    for index in 0..u64::from(volume.sb.reserved_gdt_blocks()) {
        reserved.insert((gdt_blocks + index) as usize % per_block, first + index);
    }
    if let Err((slot, expected)) = has_entries(&table, |slot| reserved.get(&slot).copied()) {
        return wrong_entry(&table, slot, expected, double);
    }
    let backups: Vec<u32> =
        (1..volume.sb.group_count()).filter(|&group| volume.sb.has_backup(GroupNo(group))).collect();
    let (mut block, end) = (first, first + reserved.len() as u64);
    while block < end {
        let here = PIECE.min((end - block) as usize * volume.block_size);
        let pieces = &mut copies[..here];
        if !volume.read(block, pieces, "resize inode", PROBLEM) {
            return;
        }
        for copies in pieces.chunks_exact(volume.block_size) {
            let copy = |group: &u32| block + u64::from(*group) * u64::from(volume.sb.blocks_per_group());
            if let Err((slot, expected)) = has_entries(copies, |slot| backups.get(slot).map(copy)) {
                return wrong_entry(copies, slot, expected, block);
            }
            block += 1;
        }
    }
}

/// Compares all entries of a block with the expected ones, which are 0 for `None`. Returns the
/// first entry that differs.
fn has_entries(block: &[u8], expected: impl Fn(usize) -> Option<u64>) -> Result<(), (usize, u64)> {
    let differs = |slot: &usize| u64::from(word(block, *slot)) != expected(*slot).unwrap_or(0);
    match (0..block.len() / 4).find(differs) {
        Some(slot) => Err((slot, expected(slot).unwrap_or(0))),
        None => Ok(()),
    }
}

fn word(bytes: &[u8], index: usize) -> u32 {
    bytes.get(index * 4..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}
