//! The indirect blocks of the journal of a volume without extents.

use std::collections::BTreeMap;

use parext4_format::FileBlock;
use parext4_format::indirect::{Holder, PointerBlock, PointerPosition, ROOT_POINTERS, Shape, encode};

use crate::error::{MkfsError, Result};

/// A block number and the contents of the block.
pub(crate) type BlockImage = (u64, Vec<u8>);

/// Maps the file blocks `data`, in order, through the pointer blocks in `blocks`, of which there
/// are [`Shape::pointer_blocks`]. Returns the inode's `i_block`, and each pointer block with its
/// contents.
///
/// # Errors
/// [`MkfsError::Invalid`] if a block number has more than 32 bits.
pub(crate) fn map(
    shape: Shape,
    data: impl Iterator<Item = u64>,
    blocks: &[u64],
) -> Result<([u8; 60], Vec<BlockImage>)> {
    let mut root = [0; ROOT_POINTERS];
    let mut made: BTreeMap<PointerBlock, (u64, Vec<u32>)> = BTreeMap::new();
    let mut free = blocks.iter().copied();
    for (logical, physical) in (0..).map(FileBlock).zip(data) {
        let (mut at, mut number) = match shape.place(logical) {
            PointerPosition::Direct(index) => {
                root[index as usize] = pointer(physical)?;
                continue;
            }
            PointerPosition::Leaf(leaf, index) => ((PointerBlock::Leaf(leaf), index as usize), physical),
        };
        // Walks up from the leaf, as far as pointer blocks are new.
        loop {
            let (block, index) = at;
            let value = pointer(number)?;
            if let Some((_, pointers)) = made.get_mut(&block) {
                pointers[index] = value;
                break;
            }
            number =
                free.next().ok_or_else(|| MkfsError::invalid("too few indirect blocks for the journal"))?;
            let mut pointers = vec![0; shape.pointers() as usize];
            pointers[index] = value;
            made.insert(block, (number, pointers));
            match shape.holder(block) {
                Holder::Block(holder, index) => at = (holder, index),
                Holder::Root(index) => {
                    root[12 + index] = pointer(number)?;
                    break;
                }
            }
        }
    }
    let mut i_block = [0; 60];
    encode(&mut i_block, root.into_iter());
    let image = |(number, pointers): (u64, Vec<u32>)| {
        let mut bytes = vec![0; pointers.len() * 4];
        encode(&mut bytes, pointers.into_iter());
        (number, bytes)
    };
    Ok((i_block, made.into_values().map(image).collect()))
}

fn pointer(block: u64) -> Result<u32> {
    u32::try_from(block)
        .map_err(|_| MkfsError::invalid("without extents the journal must lie below block 2^32"))
}
