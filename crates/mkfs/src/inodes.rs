//! The first inodes and their contents: the root directory, `lost+found`, the resize inode, the
//! journal's inode.

use std::ops::Range;

use parext4_format::dir_entry::{clear_dot_types, init_block, init_dot_block, insert, seal_tail};
use parext4_format::extent::{Extent, encode_index, encode_leaf, seal_block};
use parext4_format::features::Incompat;
use parext4_format::inode::{FileType, Inode, InodeFlags, Timestamp};
use parext4_format::superblock::Superblock;
use parext4_format::{ChecksumSeed, FileBlock, FsBlock, InodeNo, indirect, orphan_file};

use crate::MkfsOptions;
use crate::error::Result;
use crate::file_blocks::FileBlocks;
use crate::geometry::{FIRST_INODE, Geometry};
use crate::placement::{ORPHAN_FILE, Placement};
use crate::pointers::{self, BlockImage};

const LOST_FOUND: InodeNo = InodeNo(FIRST_INODE);
/// Offset of the double-indirect pointer in `i_block`, in bytes.
const DOUBLE_INDIRECT: usize = 13 * 4;

/// Builds the inodes of one volume.
pub(crate) struct FirstInodes<'a> {
    pub sb: &'a Superblock,
    /// The seed of checksums, with `metadata_csum`.
    pub seed: Option<ChecksumSeed>,
    pub geometry: &'a Geometry,
    pub now: u32,
    pub options: &'a MkfsOptions,
}

impl FirstInodes<'_> {
    fn new_inode(&self, mode: u16, blocks: u64) -> Inode {
        let now = Timestamp { seconds: i64::from(self.now), nanoseconds: 0 };
        let mut inode = Inode::new(mode, self.sb);
        for time in [&mut inode.atime, &mut inode.ctime, &mut inode.mtime, &mut inode.crtime] {
            *time = now;
        }
        inode.links = 1;
        inode.size = blocks * u64::from(self.geometry.block_size);
        inode.blocks = self.sectors(self.geometry.round_to_clusters(blocks));
        inode
    }

    /// Returns the value of `i_blocks` for a number of blocks, in units of 512 bytes.
    fn sectors(&self, blocks: u64) -> u64 {
        blocks * u64::from(self.geometry.block_size / 512)
    }

    fn directory(&self, permissions: u16, run: &Range<u64>) -> Inode {
        let len = u32::try_from(run.end - run.start).expect("at most 16 blocks");
        let mode = FileType::Directory.mode_bits() | permissions;
        let mut inode = self.new_inode(mode, len.into());
        if self.geometry.has_extents() {
            inode.flags = InodeFlags::EXTENTS;
            let extent =
                Extent { logical: FileBlock(0), physical: FsBlock(run.start), len, unwritten: false };
            encode_leaf(&mut inode.block, &[extent]);
        } else {
            let pointers = run.clone().map(|block| u32::try_from(block).expect("near the start"));
            indirect::encode(&mut inode.block, pointers);
        }
        inode
    }

    /// Returns the inode of the root directory. Its links are `.`, `..` and the `..` of
    /// `lost+found`.
    pub(crate) fn root(&self, placement: &Placement) -> Inode {
        let mut inode = self.directory(self.options.root_permissions, &(placement.root..placement.root + 1));
        inode.links = 3;
        (inode.uid, inode.gid) = self.options.owner;
        inode
    }

    /// Returns the inode of `lost+found`.
    pub(crate) fn lost_found(&self, placement: &Placement) -> Inode {
        let mut inode = self.directory(0o700, &placement.lost_found);
        inode.links = 2;
        inode
    }

    /// Returns the blocks of both directories.
    pub(crate) fn directory_blocks(&self, placement: &Placement) -> Result<Vec<BlockImage>> {
        let has_tail = self.seed.is_some();
        let mut root = self.dot_block(InodeNo::ROOT);
        let file_type = if self.has_types() { FileType::Directory.dirent_type() } else { 0 };
        insert(&mut root, has_tail, LOST_FOUND, file_type, b"lost+found")?;
        self.seal(InodeNo::ROOT, &mut root);
        let mut blocks = vec![(placement.root, root)];
        for number in placement.lost_found.clone() {
            let mut block = self.dot_block(LOST_FOUND);
            if number != placement.lost_found.start {
                init_block(&mut block, has_tail);
            }
            self.seal(LOST_FOUND, &mut block);
            blocks.push((number, block));
        }
        Ok(blocks)
    }

    /// Returns the first block of a directory in the root.
    fn dot_block(&self, dir: InodeNo) -> Vec<u8> {
        let mut block = vec![0; self.geometry.block_size as usize];
        init_dot_block(&mut block, self.seed.is_some(), dir, InodeNo::ROOT);
        if !self.has_types() {
            clear_dot_types(&mut block);
        }
        block
    }

    fn has_types(&self) -> bool {
        self.geometry.features.incompat.contains(Incompat::FILETYPE)
    }

    /// Writes the checksum of a directory block, if the volume has checksums.
    fn seal(&self, dir: InodeNo, block: &mut [u8]) {
        if let Some(seed) = self.seed {
            seal_tail(seed.inode(dir, 0), block);
        }
    }

    /// Returns the resize inode: a file without extents, of the size that a double-indirect block
    /// can map, whose blocks are the reserved descriptor blocks ([`super::resize`]).
    pub(crate) fn resize(&self, map: u64) -> Inode {
        let pointers = u64::from(self.geometry.block_size / 4);
        let copies = 1 + self.geometry.backup_groups().count() as u64;
        let mode = FileType::Regular.mode_bits() | 0o600;
        let mut inode = self.new_inode(mode, 12 + pointers + pointers * pointers);
        // For e2fsck, too, each block counts as a cluster.
        let blocks = 1 + u64::from(self.geometry.reserved_gdt_blocks) * copies;
        inode.blocks = self.sectors(blocks * u64::from(self.geometry.cluster_blocks));
        let map = u32::try_from(map).expect("no resize inode past 2^32 blocks");
        inode.block[DOUBLE_INDIRECT..DOUBLE_INDIRECT + 4].copy_from_slice(&map.to_le_bytes());
        inode
    }

    /// Returns the inode of a file that only root may read, and the blocks of its map.
    ///
    /// # Errors
    /// [`MkfsError::Invalid`](crate::MkfsError::Invalid) if the file lies too far from the start
    /// for a volume without extents.
    pub(crate) fn file(&self, ino: InodeNo, location: &FileBlocks) -> Result<(Inode, Vec<BlockImage>)> {
        let mode = FileType::Regular.mode_bits() | 0o600;
        let mut inode = self.new_inode(mode, location.len());
        let leaves = location.leaves.len() as u64;
        inode.blocks += self.sectors(leaves * u64::from(self.geometry.cluster_blocks));
        if !self.geometry.has_extents() {
            let data = location.runs.iter().cloned().flatten();
            let (i_block, images) = pointers::map(self.geometry.shape(), data, &location.leaves)?;
            inode.block = i_block;
            return Ok((inode, images));
        }
        let extents = location.extents();
        inode.flags = InodeFlags::EXTENTS;
        if location.leaves.is_empty() {
            encode_leaf(&mut inode.block, &extents);
            return Ok((inode, Vec::new()));
        }
        let leaves = location.leaves(&extents, self.geometry.block_size);
        let index: Vec<_> = leaves.iter().map(|(entry, _)| *entry).collect();
        encode_index(&mut inode.block, 1, &index);
        let encode = |(number, extents): (u64, &[Extent])| {
            let mut block = vec![0; self.geometry.block_size as usize];
            encode_leaf(&mut block, extents);
            if let Some(seed) = self.seed {
                seal_block(seed.inode(ino, 0), &mut block);
            }
            (number, block)
        };
        let images = leaves.into_iter().map(|(entry, extents)| encode((entry.child.get(), extents)));
        Ok((inode, images.collect()))
    }

    /// Returns the blocks of the orphan file: all slots are free.
    pub(crate) fn orphan_blocks(&self, location: &FileBlocks) -> Vec<BlockImage> {
        let image = |number| {
            let mut block = vec![0; self.geometry.block_size as usize];
            orphan_file::init_block(&mut block);
            if let Some(seed) = self.seed {
                orphan_file::seal_block(seed.inode(InodeNo(ORPHAN_FILE), 0), FsBlock(number), &mut block);
            }
            (number, block)
        };
        location.runs.iter().cloned().flatten().map(image).collect()
    }

    /// Returns the start of the first group's inode table, in whole blocks: `inodes`, and zeros for
    /// all other inodes.
    pub(crate) fn table(&self, inodes: &[(InodeNo, Inode)], used_inodes: u32) -> Vec<u8> {
        let size = usize::from(self.geometry.inode_size);
        let used = size * used_inodes as usize;
        let mut table = vec![0; used.next_multiple_of(self.geometry.block_size as usize)];
        for (ino, inode) in inodes {
            let at = (ino.get() as usize - 1) * size;
            inode.encode(&mut table[at..at + size], self.sb, *ino);
        }
        table
    }

    /// Returns the inode number of `lost+found`.
    pub(crate) const fn lost_found_ino() -> InodeNo {
        LOST_FOUND
    }
}
