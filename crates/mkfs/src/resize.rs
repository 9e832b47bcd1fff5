//! The resize inode's blocks, which let a mounted volume extend its descriptor table.
//!
//! The double-indirect block lists the reserved descriptor blocks of the first group. Each of these
//! serves as an indirect block and lists the corresponding block of every backup. The index of a
//! reserved block in the double-indirect block is its index in the descriptor table, modulo the
//! number of pointers in a block.
//!
//! Source: kernel `fs/ext4/resize.c` (`verify_reserved_gdb`, `reserve_backup_gdb`), which checks
//! it.

use crate::geometry::Geometry;
use crate::pointers::BlockImage;

/// Returns the contents of the double-indirect block.
pub(crate) fn double_indirect(geometry: &Geometry) -> Vec<u8> {
    let mut block = vec![0; geometry.block_size as usize];
    let pointers = geometry.block_size / 4;
    for n in geometry.gdt_blocks..geometry.gdt_blocks + geometry.reserved_gdt_blocks {
        put(&mut block, n % pointers, descriptor_block(geometry, 0, n));
    }
    block
}

/// Returns the first group's reserved descriptor blocks and their contents.
pub(crate) fn reserved_blocks(geometry: &Geometry) -> Vec<BlockImage> {
    let reserved = geometry.gdt_blocks..geometry.gdt_blocks + geometry.reserved_gdt_blocks;
    let image = |n: u32| {
        let mut block = vec![0; geometry.block_size as usize];
        for (slot, group) in (0..).zip(geometry.backup_groups()) {
            put(&mut block, slot, descriptor_block(geometry, group, n));
        }
        (descriptor_block(geometry, 0, n), block)
    };
    reserved.map(image).collect()
}

/// Returns the number of block `n` of the descriptor table in a group's copy of the table.
fn descriptor_block(geometry: &Geometry, group: u32, n: u32) -> u64 {
    geometry.super_block(group) + 1 + u64::from(n)
}

fn put(block: &mut [u8], slot: u32, number: u64) {
    let number = u32::try_from(number).expect("no resize inode past 2^32 blocks");
    let at = slot as usize * 4;
    block[at..at + 4].copy_from_slice(&number.to_le_bytes());
}
