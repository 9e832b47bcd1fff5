//! Tests of the memory that the map of a file uses.

use parext4_format::BlockSize;
use parext4_format::indirect::Shape;

use super::{Leaf, MAX_LEAF_BYTES, max_leaves};
use crate::sync::Arc;
use crate::{Device, InodeRef, MemDevice, MkfsOptions, NewInode, OpenOptions, Volume, VolumeOptions, mkfs};

const BLOCK: u32 = 65536;
const POINTERS: u64 = BLOCK as u64 / 4;
/// More leaves than may stay in memory.
const LEAVES: u64 = 330;

/// Returns the offset of the first byte below the nth leaf of the test. The first leaf is below the
/// double indirect block, and the others are below the triple one, far from each other.
fn offset(nth: u64) -> u64 {
    let leaf = if nth == 0 { 1 } else { POINTERS + 700 * nth };
    (12 + leaf * POINTERS) * u64::from(BLOCK)
}

fn memory(node: &InodeRef) -> usize {
    node.engine.block_map(&node.inode).unwrap().memory()
}

#[test]
fn the_limit_of_leaves_in_memory_is_the_same_in_bytes_for_all_block_sizes() {
    for shape in (10..=16).filter_map(BlockSize::from_bits).map(Shape::new) {
        let bytes = max_leaves(shape) * Leaf::memory(shape.pointers());
        assert!((MAX_LEAF_BYTES * 99 / 100..=MAX_LEAF_BYTES).contains(&bytes), "{bytes} bytes");
    }
}

#[test]
fn leaves_of_large_blocks_below_the_triple_indirect_block_take_no_more_memory_than_small_ones() {
    let device = Arc::new(MemDevice::new(96 << 20));
    let options = MkfsOptions::new().features("^extent").unwrap().block_size(BLOCK).device_is_zero(true);
    mkfs(&*device, &options).unwrap();
    let options = VolumeOptions::new().commit_interval(None);
    let open = || Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
    let volume = open();
    volume.root().unwrap().create(b"file", &NewInode::new()).unwrap();
    let file = volume.open_direct("/file", &OpenOptions::read_write()).unwrap();
    for nth in 0..LEAVES {
        file.write_all_at(&[7; 4096], offset(nth)).unwrap();
    }
    drop(file);
    volume.close().unwrap();
    let volume = open();
    let node = volume.resolve("/file").unwrap();
    let file = volume.open_direct("/file", &OpenOptions::read_write()).unwrap();
    let mut bytes = [0; 4096];
    for nth in 0..LEAVES {
        file.read_at(&mut bytes, offset(nth)).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7), "leaf {nth}");
        if nth == 1 {
            let used = memory(&node);
            assert!(used < 1 << 20, "{used} bytes after the first leaf below the triple indirect block");
        }
    }
    let used = memory(&node);
    assert!(used < MAX_LEAF_BYTES + (2 << 20), "{used} bytes");
}
