//! Finds the structures of a sound volume.

use std::collections::BTreeSet;

use parext4::MemDevice;
use parext4_format::checksum::ChecksumSeed;
use parext4_format::extent::{self, ExtentNode};
use parext4_format::group_desc::{GroupDesc, GroupFlags};
use parext4_format::inode::{FileType, Inode, InodeFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{FsBlock, GroupNo, InodeNo, bitmap, htree};

use super::finder::Finder;
use super::holder::{Bitmap, Holder};
use super::seal::Seal;
use super::structure::{Class, Structure};
use super::{fields, journal};

/// The most data blocks of a file that are listed, which includes a journal of 16 MiB.
const MOST_BLOCKS: usize = 16 << 10;

/// The structures of a volume.
pub struct Anatomy {
    /// The superblock of the sound volume.
    pub(super) superblock: Superblock,
    /// By class.
    pub(super) structures: Vec<Vec<Structure>>,
    /// The blocks of the journal, if the volume has one of its own.
    pub(super) journal: Vec<u64>,
    /// Blocks of metadata that a replay of the log does not depend on, so that every program
    /// replays the same.
    pub(super) independent: Vec<u64>,
}

/// The classes in [`Anatomy::independent`].
const INDEPENDENT: [Class; 6] =
    [Class::Bitmap, Class::Extents, Class::Pointers, Class::Directory, Class::Index, Class::Attributes];

impl Anatomy {
    /// Finds the structures of the volume on `device`.
    ///
    /// # Panics
    /// If the superblock is not sound.
    pub fn of(device: &MemDevice) -> Self {
        let image = device.snapshot();
        let superblock = Superblock::parse(&image[1024..2048]).expect("a sound superblock");
        let mut finder = Finder::new(&image, &superblock);
        finder.add(Class::Superblock, 1024, 1024, fields::SUPERBLOCK.to_vec(), Seal::Superblock);
        for group in 0..superblock.group_count() {
            finder.group(GroupNo(group));
        }
        // Last: the log has copies of the other structures.
        let journal = std::mem::take(&mut finder.journal);
        journal::add(&mut finder, &journal);
        let journal_map = std::mem::take(&mut finder.journal_map);
        let structures = finder.finish();
        let all = structures.iter().flatten();
        let independent = all.filter(|structure| INDEPENDENT.contains(&structure.class));
        let block_size = u64::from(superblock.block_size());
        let blocks = independent.map(|structure| structure.at / block_size);
        let independent = blocks.filter(|block| !journal_map.contains(block)).collect();
        Self { superblock, structures, journal, independent }
    }

    /// Returns the number of structures of each class.
    pub fn counts(&self) -> Vec<(Class, usize)> {
        self.structures.iter().map(|class| (class[0].class, class.len())).collect()
    }

    /// Returns true if the volume has a journal of its own.
    pub fn has_journal(&self) -> bool {
        !self.journal.is_empty()
    }

    /// Returns true if the log has blocks besides its superblock.
    pub fn has_log(&self) -> bool {
        self.structures.iter().any(|class| {
            class[0].class == Class::FastCommit || class[0].class == Class::Journal && class.len() > 3
        })
    }

    /// Returns the numbers of the inodes in use, as many as are kept.
    pub(super) fn inodes(&self) -> impl Iterator<Item = InodeNo> {
        self.structures.iter().flatten().filter_map(|structure| match (structure.class, structure.seal) {
            (Class::Inode, Seal::Inode(ino)) => Some(ino),
            _ => None,
        })
    }

    /// Keeps only structures of the log.
    #[must_use]
    pub fn only_journal(mut self) -> Self {
        self.structures
            .retain(|class| matches!(class[0].class, Class::Journal | Class::Logged | Class::FastCommit));
        self
    }
}

impl Finder<'_> {
    fn group(&mut self, group: GroupNo) -> Option<()> {
        let (size, per_block) = (self.superblock.desc_size().into(), self.superblock.descs_per_block());
        let (at, block) = self.block(self.superblock.gdt_block(group.get() / per_block).get())?;
        let within = (group.get() % per_block) as usize * size;
        let bytes = &block[within..within + size];
        self.add(Class::Descriptor, at + within, size, fields::descriptor(size), Seal::Descriptor(group));
        let desc = GroupDesc::parse(bytes, self.superblock, group).ok()?;
        let descriptor = ((at + within) as u64, size);
        for (bitmap, of_inodes) in [(desc.block_bitmap, false), (desc.inode_bitmap, true)] {
            let (at, block) = self.block(bitmap.get())?;
            let holder = Bitmap { at: (at as u64, block.len()), descriptor, group, of_inodes };
            self.add_held(Class::Bitmap, (at, block), fields::bitmap(block), Holder::Descriptor(holder));
        }
        if desc.flags.contains(GroupFlags::INODE_UNINIT) && self.superblock.has_group_checksums() {
            return None;
        }
        let (_, bits) = self.block(desc.inode_bitmap.get())?;
        let inodes = self.superblock.inodes_per_group();
        for index in (0..inodes).filter(|index| bitmap::test(bits, *index)) {
            let place = desc.inode_table.get() * self.block_size() as u64;
            let at =
                usize::try_from(place).ok()? + index as usize * usize::from(self.superblock.inode_size());
            self.inode(InodeNo(group.get() * inodes + index + 1), at);
        }
        Some(())
    }

    fn inode(&mut self, ino: InodeNo, at: usize) -> Option<()> {
        let bytes = self.image.get(at..at + usize::from(self.superblock.inode_size()))?;
        let inode = Inode::parse(bytes, self.superblock, ino).ok()?;
        self.add(Class::Inode, at, bytes.len(), fields::inode(bytes), Seal::Inode(ino));
        let seed = self.superblock.value_seed().inode(ino, inode.generation);
        if inode.file_acl != 0 {
            let (at, block) = self.block(inode.file_acl)?;
            let seal = Seal::Attributes(FsBlock(inode.file_acl));
            self.add(Class::Attributes, at, block.len(), fields::attributes(block), seal);
        }
        let is_mapped = match inode.file_type() {
            FileType::Regular | FileType::Directory => !inode.flags.contains(InodeFlags::INLINE_DATA),
            FileType::Symlink => !inode.is_fast_symlink() && !inode.flags.contains(InodeFlags::INLINE_DATA),
            _ => false,
        };
        let is_journal = ino.get() == self.superblock.journal_inode();
        let maps_before = if is_journal { self.map_blocks() } else { BTreeSet::new() };
        let blocks = if is_mapped { self.blocks(&inode, seed) } else { Vec::new() };
        if is_journal {
            self.journal = blocks;
            self.journal_map = &self.map_blocks() - &maps_before;
        } else if self.quotas.contains(&ino.get()) {
            self.words(Class::Quota, &blocks);
        } else if inode.flags.contains(InodeFlags::VERITY) {
            // The metadata is past the end of the file, which has no holes.
            let data = usize::try_from(inode.size.div_ceil(self.block_size() as u64)).ok()?;
            self.words(Class::Verity, blocks.get(data..)?);
        } else if ino.get() == self.superblock.orphan_file_inode() {
            for block in blocks {
                let (at, bytes) = self.block(block)?;
                let seal = Seal::Orphans(seed, FsBlock(block));
                self.add(Class::Orphans, at, bytes.len(), fields::orphans(bytes), seal);
            }
        } else if inode.file_type() == FileType::Directory {
            let is_indexed = inode.flags.contains(InodeFlags::INDEX);
            blocks.iter().for_each(|block| self.directory(*block, is_indexed, seed));
        }
        Some(())
    }

    /// Adds blocks without checksums of their own.
    fn words(&mut self, class: Class, blocks: &[u64]) {
        for (at, bytes) in blocks.iter().filter_map(|block| self.block(*block)).collect::<Vec<_>>() {
            self.add(class, at, bytes.len(), fields::words(bytes), Seal::None);
        }
    }

    fn directory(&mut self, block: u64, is_indexed: bool, seed: ChecksumSeed) {
        let Some((at, bytes)) = self.block(block) else { return };
        if is_indexed && htree::is_dx_block(bytes) {
            self.add(Class::Index, at, bytes.len(), fields::index(bytes), Seal::Index(seed));
        } else {
            self.add(Class::Directory, at, bytes.len(), fields::directory(bytes), Seal::Directory(seed));
        }
    }

    /// Returns the data blocks of a file in their order, and adds the blocks of its map.
    fn blocks(&mut self, inode: &Inode, seed: ChecksumSeed) -> Vec<u64> {
        let mut blocks = Vec::new();
        if inode.flags.contains(InodeFlags::EXTENTS) {
            self.extents(&inode.block, seed, &mut blocks);
            return blocks;
        }
        for (nth, pointer) in inode.block.chunks_exact(4).enumerate() {
            let pointer = u32::from_le_bytes([pointer[0], pointer[1], pointer[2], pointer[3]]);
            self.pointers(pointer, nth.saturating_sub(11), &mut blocks);
        }
        blocks
    }

    fn extents(&mut self, node: &[u8], seed: ChecksumSeed, blocks: &mut Vec<u64>) {
        match extent::parse_node(node, None) {
            Ok(ExtentNode::Leaf(extents)) => {
                let all = extents
                    .iter()
                    .flat_map(|extent| (0..u64::from(extent.len)).map(|nth| extent.physical.get() + nth));
                blocks.extend(all.take(MOST_BLOCKS.saturating_sub(blocks.len())));
            }
            Ok(ExtentNode::Index { entries, .. }) => {
                for entry in entries {
                    let Some((at, child)) = self.block(entry.child.get()) else { continue };
                    self.add(Class::Extents, at, child.len(), fields::extents(child), Seal::Extents(seed));
                    self.extents(child, seed, blocks);
                }
            }
            Err(_) => {}
        }
    }

    /// Adds the blocks below a pointer; `depth` is 0 for a data block.
    fn pointers(&mut self, pointer: u32, depth: usize, blocks: &mut Vec<u64>) {
        if pointer == 0 || blocks.len() >= MOST_BLOCKS {
            return;
        }
        if depth == 0 {
            blocks.push(pointer.into());
            return;
        }
        let Some((at, bytes)) = self.block(pointer.into()) else { return };
        self.add(Class::Pointers, at, bytes.len(), fields::pointers(bytes), Seal::None);
        for child in parext4_format::indirect::parse(bytes) {
            self.pointers(child, depth - 1, blocks);
        }
    }
}
