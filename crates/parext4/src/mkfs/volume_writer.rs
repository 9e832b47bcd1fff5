//! Writes the structures of a new volume to the device, apart from the order of flushes, which `mkfs` decides.

use parext4_format::inode::Inode;
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::mmp::Mmp;
use parext4_format::superblock::Superblock;
use parext4_format::{GroupNo, InodeNo};

use super::geometry::Geometry;
use super::groups::GroupTables;
use super::inodes::FirstInodes;
use super::journal::JournalLocation;
use super::placement::Placement;
use super::pointers::BlockImage;
use super::write::DeviceWriter;
use super::{Identity, resize, superblock};
use crate::error::{Error, Result};

/// Bytes at the start and at the end of a device that may contain old signatures.
const SIGNATURE_ZONE: u64 = 64 << 10;

/// Writes the blocks of one volume.
pub(super) struct VolumeWriter<'a> {
    pub writer: DeviceWriter<'a>,
    pub geometry: &'a Geometry,
    pub placement: &'a Placement,
    /// The device reads as zeros.
    pub zero: bool,
}

impl VolumeWriter<'_> {
    /// Overwrites signatures of file systems, partition tables and RAID members.
    pub(super) fn wipe_signatures(&self, size: u64) -> Result<()> {
        if !self.zero {
            let zone = SIGNATURE_ZONE.min(size);
            self.writer.zero("the start of the device", 0, zone)?;
            self.writer.zero("the end of the device", size - zone, zone)?;
        }
        self.writer.flush()
    }

    /// Writes the first files and their inodes, and sets the journal's fields in the superblock.
    pub(super) fn write_files(
        &self,
        sb: &mut Superblock,
        identity: &Identity,
        owner: (u32, u32),
    ) -> Result<()> {
        let source = sb.clone();
        let seed = source.checksum_seed();
        let inodes = FirstInodes { sb: &source, seed, geometry: self.geometry, now: identity.now, owner };
        self.write_images("a directory block", inodes.directory_blocks(self.placement)?)?;
        let root = inodes.root(self.placement);
        let lost_found = inodes.lost_found(self.placement);
        let mut table = vec![(InodeNo::ROOT, &root), (FirstInodes::lost_found_ino(), &lost_found)];
        let resize = self.placement.resize_map.map(|map| inodes.resize(map));
        if let (Some(inode), Some(map)) = (&resize, self.placement.resize_map) {
            self.write_resize_blocks(map)?;
            table.push((InodeNo::RESIZE, inode));
        }
        let journal = self.placement.journal.as_ref();
        let journal =
            journal.map(|location| Ok::<_, Error>((location, inodes.journal(location)?))).transpose()?;
        if let Some((location, (inode, leaves))) = &journal {
            self.write_images("the journal's map", leaves.clone())?;
            self.write_journal(location, inode, identity)?;
            superblock::set_journal(sb, inode);
            table.push((InodeNo::JOURNAL, inode));
        }
        self.zero_inode_tables()?;
        let bytes = inodes.table(&table);
        self.writer.blocks("the inode table", self.placement.groups[0].inode_table, &bytes)
    }

    /// Zeroes all inode tables, if descriptors have no flag that says that they are not.
    fn zero_inode_tables(&self) -> Result<()> {
        if self.zero || self.geometry.features.has_group_checksums() {
            return Ok(());
        }
        let len = u64::from(self.geometry.inode_table_blocks);
        let mut tables = self.placement.groups.iter().map(|group| group.inode_table);
        tables.try_for_each(|table| self.writer.zero_blocks("an inode table", table, len))
    }

    fn write_images(&self, what: &str, images: Vec<BlockImage>) -> Result<()> {
        images.iter().try_for_each(|(block, bytes)| self.writer.blocks(what, *block, bytes))
    }

    fn write_resize_blocks(&self, map: u64) -> Result<()> {
        let what = "the resize inode's map";
        self.writer.blocks(what, map, &resize::double_indirect(self.geometry))?;
        // The reserved blocks are contiguous. Each lists the backups of one descriptor block, and is zeros without backups.
        let reserved = resize::reserved_blocks(self.geometry);
        let Some((first, _)) = reserved.first() else { return Ok(()) };
        if self.zero && self.geometry.backup_groups().next().is_none() {
            return Ok(());
        }
        let bytes: Vec<u8> = reserved.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        self.writer.blocks(what, *first, &bytes)
    }

    /// Writes an empty journal. Zeroes its blocks, because blocks of an older journal could look like its transactions.
    fn write_journal(&self, location: &JournalLocation, inode: &Inode, identity: &Identity) -> Result<()> {
        if !self.zero {
            for run in &location.runs {
                self.writer.zero_blocks("the journal", run.start, run.end - run.start)?;
            }
        }
        let block_size = self.geometry.block_size;
        let maxlen = inode.size / u64::from(block_size);
        let maxlen = u32::try_from(maxlen).expect("the journal's length has 32 bits");
        let mut block = vec![0; block_size as usize];
        JournalSuperblock::new(block_size, maxlen, 1, &identity.uuid).encode(&mut block);
        self.writer.blocks("the journal's superblock", location.runs[0].start, &block)
    }

    /// Writes the block of multi-mount protection of an unused volume, if the volume has one.
    pub(super) fn write_mmp(&self, sb: &Superblock) -> Result<()> {
        let Some(number) = self.placement.mmp else { return Ok(()) };
        let mut block = vec![0; self.geometry.block_size as usize];
        Mmp::clean(sb.mmp_update_interval()).encode(&mut block, sb.checksum_seed());
        self.writer.blocks("the block of multi-mount protection", number, &block)
    }

    /// Writes the bitmaps of all groups, and the descriptors and superblock copies of the groups that have them.
    pub(super) fn write_groups(&self, sb: &Superblock) -> Result<()> {
        let groups = GroupTables {
            sb,
            seed: sb.checksum_seed(),
            geometry: self.geometry,
            placement: self.placement,
            tables_are_zero: self.zero,
        };
        for (group, location) in (0..).zip(&self.placement.groups) {
            if let Some(bitmap) = groups.block_bitmap(group) {
                self.writer.blocks("a block bitmap", location.block_bitmap, &bitmap)?;
            }
            if let Some(bitmap) = groups.inode_bitmap(group) {
                self.writer.blocks("an inode bitmap", location.inode_bitmap, &bitmap)?;
            }
        }
        self.write_descriptors(&groups)?;
        for group in self.geometry.backup_groups() {
            let offset = self.geometry.group(group).start * u64::from(self.geometry.block_size);
            self.write_superblock("a backup superblock", offset, &superblock::backup(sb, group))?;
        }
        Ok(())
    }

    /// Writes the descriptors of all groups: with a table in each group that has a copy of the superblock, or with a block and
    /// two copies in each meta group.
    fn write_descriptors(&self, groups: &GroupTables<'_>) -> Result<()> {
        let what = "the group descriptors";
        let (geometry, copies) = (self.geometry, &self.geometry.copies);
        if copies.has_meta_groups {
            for nr in 0..geometry.gdt_blocks {
                let block = groups.descriptor_block(nr);
                let first = nr * copies.descs_per_block;
                let end = (first + copies.descs_per_block).min(geometry.group_count);
                for group in (first..end).filter(|&group| copies.has_meta_copy(GroupNo(group))) {
                    let has_super = u64::from(copies.has_super(GroupNo(group)));
                    self.writer.blocks(what, geometry.group(group).start + has_super, &block)?;
                }
            }
            return Ok(());
        }
        let table: Vec<u8> = (0..geometry.gdt_blocks).flat_map(|nr| groups.descriptor_block(nr)).collect();
        for group in std::iter::once(0).chain(geometry.backup_groups()) {
            self.writer.blocks(what, geometry.group(group).start + 1, &table)?;
        }
        Ok(())
    }

    pub(super) fn write_superblock(&self, what: &str, offset: u64, sb: &Superblock) -> Result<()> {
        let mut bytes = [0; Superblock::SIZE];
        sb.encode(&mut bytes);
        self.writer.bytes(what, offset, &bytes)
    }
}
