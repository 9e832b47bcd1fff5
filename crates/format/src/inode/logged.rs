//! Inodes in fast commits, which log only the fields and not the whole inode.

use super::{Inode, InodeFlags, read_extra_isize, seal};
use crate::error::Result;
use crate::number::InodeNo;
use crate::superblock::Superblock;

/// Bytes of the inode that hold `i_block`.
const BLOCK: std::ops::Range<usize> = 0x28..0x64;

impl Inode {
    /// Parses the bytes of inode `ino` that a fast commit logged. Bytes that were not logged come
    /// from `current`, the inode as it is, or are zeros. If the inode has a tree of extents, its
    /// root is the one of `current`, because a fast commit logs ranges instead; without `current`
    /// it is zeros.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), except that the checksum is not checked: the fast commit has one.
    pub fn parse_logged(
        logged: &[u8],
        current: Option<&Self>,
        sb: &Superblock,
        ino: InodeNo,
    ) -> Result<Self> {
        let mut image = vec![0; sb.inode_size().into()];
        if let Some(current) = current {
            current.encode(&mut image, sb, ino);
        }
        let len = logged.len().min(image.len());
        image[..len].copy_from_slice(&logged[..len]);
        let flags = u32::from_le_bytes([image[0x20], image[0x21], image[0x22], image[0x23]]);
        if InodeFlags::from_bits_retain(flags).contains(InodeFlags::EXTENTS) {
            image[BLOCK].copy_from_slice(&current.map_or([0; 60], |current| current.block));
        }
        if let Some(seed) = sb.checksum_seed() {
            let generation = u32::from_le_bytes([image[0x64], image[0x65], image[0x66], image[0x67]]);
            let extra_isize = read_extra_isize(&image, ino)?;
            seal(&mut image, seed.inode(ino, generation), extra_isize);
        }
        Self::parse(&image, sb, ino)
    }
}
