//! Symbolic links: the target has exactly the size of the link, and lies in the inode or in its
//! only block.

use parext4_format::extent::{self, ExtentNode};
use parext4_format::inode::{Inode, InodeFlags};

use crate::problem::PR_2_INVALID_SYMLINK;
use crate::volume::Volume;

/// Returns what is wrong with a symbolic link whose target is not inline data.
pub(crate) fn problem(volume: &Volume<'_>, inode: &Inode) -> Option<String> {
    let size = inode.size;
    if size == 0 {
        return Some("no bytes of target".to_owned());
    }
    if inode.flags.contains(InodeFlags::INDEX) {
        return Some(format!("{size}, but the link has an index"));
    }
    if size < inode.block.len() as u64 {
        if inode.flags.contains(InodeFlags::EXTENTS) {
            return Some(format!("{size}, but the target is not in the inode"));
        }
        return problem_of_target(inode, &inode.block);
    }
    let Some(block) = only_block(inode).filter(|&block| volume.has_blocks(block, 1)) else {
        return Some(format!("{size}, but the target is not in one block"));
    };
    let mut buf = volume.buffer(1);
    let is_read = volume.read(block, &mut buf, "symbolic link", PR_2_INVALID_SYMLINK);
    is_read.then(|| problem_of_target(inode, &buf)).flatten()
}

/// Returns the block of a link that has no other blocks.
fn only_block(inode: &Inode) -> Option<u64> {
    if !inode.flags.contains(InodeFlags::EXTENTS) {
        let (first, rest) = inode.block.split_first_chunk()?;
        return rest.iter().all(|&byte| byte == 0).then_some(u32::from_le_bytes(*first).into());
    }
    match extent::parse_node(&inode.block, None) {
        Ok(ExtentNode::Leaf(extents)) => match &extents[..] {
            [extent] if extent.logical.to_u64() == 0 && extent.len == 1 => Some(extent.physical.get()),
            _ => None,
        },
        _ => None,
    }
}

/// Compares the length of the target at the start of `place` with the size. An encrypted target
/// begins with its length.
fn problem_of_target(inode: &Inode, place: &[u8]) -> Option<String> {
    let len = if inode.flags.contains(InodeFlags::ENCRYPT) {
        usize::from(u16::from_le_bytes([place[0], place[1]])) + 2
    } else {
        place.iter().position(|&byte| byte == 0).unwrap_or(place.len())
    };
    let is_right = len < place.len() && len as u64 == inode.size;
    (!is_right).then(|| format!("{}, but the target has {len} bytes", inode.size))
}
