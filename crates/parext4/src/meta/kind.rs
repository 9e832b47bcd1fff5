//! What a metadata block holds, which decides its checksum.

use parext4_format::superblock::Superblock;
use parext4_format::{ChecksumSeed, FsBlock, InodeNo, dir_entry, extent, htree, orphan_file, xattr};

use crate::error::Result;

/// What a metadata block holds, and of which inode. A block that two structures claim under different kinds, or two
/// inodes as theirs, is corruption.
///
/// The seeds are `Some` with `metadata_csum`; those of an inode's blocks are that inode's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// The block that contains the superblock, at this byte offset in the block.
    Superblock(usize),
    /// Group descriptors; each carries its own checksum, written with the descriptor.
    GroupDescs,
    /// A block or inode bitmap; its checksum is in the group descriptor.
    Bitmap,
    /// Inodes; each carries its own checksum, written with the inode.
    InodeTable,
    /// A directory block, linear or htree.
    Directory(InodeNo, Option<ChecksumSeed>),
    /// A block of an extent tree.
    ExtentNode(InodeNo, Option<ChecksumSeed>),
    /// A block of the orphan file.
    OrphanFile(Option<ChecksumSeed>),
    /// A block of extended attributes.
    Xattr(Option<ChecksumSeed>),
    /// The target of a symbolic link that does not fit its inode; it has no checksum.
    Symlink(InodeNo),
}

impl BlockKind {
    /// Checks the block as read from the device. Structures without a checksum of their own are checked
    /// by whoever parses them.
    pub(crate) fn verify(self, number: FsBlock, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Directory(_, Some(seed)) if htree::is_dx_block(bytes) => htree::verify(seed, bytes)?,
            Self::Directory(_, Some(seed)) => dir_entry::verify_tail(seed, bytes)?,
            Self::ExtentNode(_, Some(seed)) => extent::verify_block(seed, bytes)?,
            Self::OrphanFile(seed) => orphan_file::parse_block(bytes, seed, number).map(drop)?,
            Self::Xattr(seed) => xattr::parse_block(bytes, number, seed).map(drop)?,
            _ => {}
        }
        Ok(())
    }

    /// Writes the block's checksum, once per transaction, when it is frozen for the commit.
    pub(crate) fn seal(self, number: FsBlock, bytes: &mut [u8]) {
        match self {
            Self::Superblock(offset) => {
                if let Some(raw) = bytes.get_mut(offset..offset + Superblock::SIZE) {
                    Superblock::seal(raw);
                }
            }
            Self::Directory(_, Some(seed)) if htree::is_dx_block(bytes) => {
                // The block was parsed when it was changed, so it has a place for its checksum.
                htree::seal(seed, bytes);
            }
            Self::Directory(_, Some(seed)) => dir_entry::seal_tail(seed, bytes),
            Self::ExtentNode(_, Some(seed)) => extent::seal_block(seed, bytes),
            Self::OrphanFile(Some(seed)) => orphan_file::seal_block(seed, number, bytes),
            Self::Xattr(Some(seed)) => xattr::seal_block(seed, number, bytes),
            _ => {}
        }
    }

    /// The kind in a word, for errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Superblock(_) => "superblock",
            Self::GroupDescs => "group descriptor table",
            Self::Bitmap => "bitmap",
            Self::InodeTable => "inode table",
            Self::Directory(..) => "directory block",
            Self::ExtentNode(..) => "extent tree block",
            Self::OrphanFile(_) => "orphan file block",
            Self::Xattr(_) => "extended attribute block",
            Self::Symlink(_) => "symbolic link target",
        }
    }
}
