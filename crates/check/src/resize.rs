//! The resize inode, which holds the blocks that are reserved for more descriptors.
//!
//! Its map is a fixed function of the geometry: a double indirect block points to the reserved blocks of group 0, and each of
//! these to its copies in the groups with a backup.

use parext4_format::features::Compat;
use parext4_format::inode::Inode;
use parext4_format::{FormatError, FsBlock, GroupNo, InodeNo};

use crate::problem::{PR_0_RESIZE_INODE_INVALID, Problem};
use crate::volume::Volume;

const PROBLEM: Problem = PR_0_RESIZE_INODE_INVALID;
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
    let double = u64::from(word(&inode.block, DOUBLE / 4));
    let is_alone = (0..15).all(|index| index == DOUBLE / 4 || word(&inode.block, index) == 0);
    if !is_alone || !volume.has_blocks(double, 1) {
        return fail("is not one double indirect block".to_owned(), double);
    }
    volume.claim_blocks(double, 1);
    let (mut table, mut copies) = (volume.buffer(1), volume.buffer(1));
    if !volume.read(double, &mut table, "resize inode", PROBLEM) {
        return;
    }
    let per_block = volume.block_size / 4;
    let first = volume.sb.first_gdt_block().get() + u64::from(volume.sb.gdt_blocks());
    for index in 0..u64::from(volume.sb.reserved_gdt_blocks()) {
        let block = first + index;
        let slot = (u64::from(volume.sb.gdt_blocks()) + index) as usize % per_block;
        if u64::from(word(&table, slot)) != block {
            return fail(format!("entry {slot} is {}, not {block}", word(&table, slot)), double);
        }
        if !volume.read(block, &mut copies, "resize inode", PROBLEM) {
            return;
        }
        let backups = (1..volume.sb.group_count()).filter(|&group| volume.sb.has_backup(GroupNo(group)));
        for (slot, group) in backups.take(per_block).enumerate() {
            let copy = block + u64::from(group) * u64::from(volume.sb.blocks_per_group());
            if u64::from(word(&copies, slot)) != copy {
                return fail(format!("entry {slot} is {}, not {copy}", word(&copies, slot)), block);
            }
        }
    }
}

fn word(bytes: &[u8], index: usize) -> u32 {
    bytes.get(index * 4..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}
