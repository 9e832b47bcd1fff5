//! The kinds of metadata blocks, which decide how a block's checksum is verified and written.

use parext4_format::superblock::Superblock;
use parext4_format::{ChecksumSeed, FsBlock, InodeNo, dir_entry, extent, htree, orphan_file, xattr};

use crate::error::Result;

/// The contents of a metadata block, and the inode to which it belongs.
///
/// If two structures refer to one block as different kinds, or as blocks of different inodes, the
/// volume is corrupt. The seeds are `Some` with `metadata_csum`; the seed of an inode's block is
/// the inode's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// The block that contains the superblock, at this byte offset in the block.
    Superblock(usize),
    /// Group descriptors. Each has a checksum of its own, which is written with the descriptor.
    GroupDescs,
    /// A block bitmap or inode bitmap. Its checksum is in the group descriptor.
    Bitmap,
    /// Inodes. Each has a checksum of its own, which is written with the inode.
    InodeTable,
    /// A directory block, linear or htree.
    Directory(InodeNo, Option<ChecksumSeed>),
    /// A block of an extent tree.
    ExtentNode(InodeNo, Option<ChecksumSeed>),
    /// A block of pointers to blocks of a file without extents. It has no checksum.
    Indirect(InodeNo),
    /// A block of the orphan file.
    OrphanFile(Option<ChecksumSeed>),
    /// A block of extended attributes.
    Xattr(Option<ChecksumSeed>),
    /// The target of a symbolic link that does not fit into its inode. It has no checksum.
    Symlink(InodeNo),
    /// A block of an attribute value that has an inode of its own. The inode records a hash of the
    /// value.
    Value(InodeNo),
    /// A block of a quota file. It has no checksum.
    Quota(InodeNo),
}

impl BlockKind {
    /// Checks a block that was read from the device. Structures with checksums of their own are
    /// checked by their parsers.
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

    /// Writes the block's checksum. The commit calls it once for each transaction, when it freezes
    /// the block.
    pub(crate) fn seal(self, number: FsBlock, bytes: &mut [u8]) {
        match self {
            Self::Superblock(offset) => {
                if let Some(raw) = bytes.get_mut(offset..offset + Superblock::SIZE) {
                    Superblock::seal(raw);
                }
            }
            Self::Directory(_, Some(seed)) if htree::is_dx_block(bytes) => {
                // The block was parsed when it was changed, so it has a field for its checksum.
                htree::seal(seed, bytes);
            }
            Self::Directory(_, Some(seed)) => dir_entry::seal_tail(seed, bytes),
            Self::ExtentNode(_, Some(seed)) => extent::seal_block(seed, bytes),
            Self::OrphanFile(Some(seed)) => orphan_file::seal_block(seed, number, bytes),
            Self::Xattr(Some(seed)) => xattr::seal_block(seed, number, bytes),
            _ => {}
        }
    }

    /// Returns the name of the kind, for error messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Superblock(_) => "superblock",
            Self::GroupDescs => "group descriptor table",
            Self::Bitmap => "bitmap",
            Self::InodeTable => "inode table",
            Self::Directory(..) => "directory block",
            Self::ExtentNode(..) => "extent tree block",
            Self::Indirect(_) => "indirect block",
            Self::OrphanFile(_) => "orphan file block",
            Self::Xattr(_) => "extended attribute block",
            Self::Symlink(_) => "symbolic link target",
            Self::Value(_) => "attribute value",
            Self::Quota(_) => "quota file block",
        }
    }
}
