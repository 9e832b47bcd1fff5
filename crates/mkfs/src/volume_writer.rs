//! Writes the structures of a new volume to the device. `mkfs` decides the order of flushes.

use parext4_device::Device;
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::mmp::Mmp;
use parext4_format::superblock::Superblock;
use parext4_format::{GroupNo, InodeNo};

use crate::error::{MkfsError, Result};
use crate::file_blocks::FileBlocks;
use crate::geometry::Geometry;
use crate::groups::GroupTables;
use crate::inodes::FirstInodes;
use crate::journal::JournalSize;
use crate::placement::{ORPHAN_FILE, Placement};
use crate::pointers::BlockImage;
use crate::write::DeviceWriter;
use crate::{Identity, MkfsOptions, resize, superblock};

/// Writes the blocks of one volume.
pub(crate) struct VolumeWriter<'a> {
    pub writer: DeviceWriter<'a>,
    pub geometry: &'a Geometry,
    pub placement: &'a Placement,
    pub options: &'a MkfsOptions,
}

impl VolumeWriter<'_> {
    /// Overwrites the superblock of an old volume, then discards the old contents if the options
    /// ask for it, and overwrites signatures of file systems, partition tables and RAID members.
    pub(crate) fn clear(&self, device: &dyn Device) -> Result<()> {
        let size = device.size();
        if !self.zero() {
            self.writer.retire_old_volume()?;
        }
        if self.options.discard {
            let failed = |error| MkfsError::device("discarding the old contents", error);
            device.discard(0, size - size % u64::from(device.sector_size())).map_err(failed)?;
        }
        if !self.zero() {
            self.writer.wipe_signatures(size)?;
        }
        self.writer.flush()
    }

    /// Writes the first files and their inodes, and sets the fields of the journal, the orphan file
    /// and the quota files in the superblock.
    pub(crate) fn write_files(
        &self,
        sb: &mut Superblock,
        identity: &Identity,
        journal_size: Option<JournalSize>,
    ) -> Result<()> {
        let (source, placement) = (sb.clone(), self.placement);
        let inodes = FirstInodes {
            sb: &source,
            seed: source.checksum_seed(),
            geometry: self.geometry,
            now: identity.now,
            options: self.options,
        };
        self.write_images("a directory block", inodes.directory_blocks(placement)?)?;
        let mut table = vec![
            (InodeNo::ROOT, inodes.root(placement)),
            (FirstInodes::lost_found_ino(), inodes.lost_found(placement)),
        ];
        if let Some(map) = placement.resize_map {
            self.write_resize_blocks(map)?;
            table.push((InodeNo::RESIZE, inodes.resize(map)));
        }
        if let Some((location, size)) = placement.journal.as_ref().zip(journal_size) {
            let (inode, map) = inodes.file(InodeNo::JOURNAL, location)?;
            self.write_images("the journal's map", map)?;
            self.write_journal(location, size, identity)?;
            superblock::set_journal(sb, &inode);
            table.push((InodeNo::JOURNAL, inode));
        }
        if let Some(location) = &placement.orphan_file {
            let (inode, map) = inodes.file(InodeNo(ORPHAN_FILE), location)?;
            self.write_images("the orphan file's map", map)?;
            self.write_images("the orphan file", inodes.orphan_blocks(location))?;
            sb.raw_mut().s_orphan_file_inum.set(ORPHAN_FILE);
            table.push((InodeNo(ORPHAN_FILE), inode));
        }
        for placed in &placement.quota_files {
            let (mut inode, map) = inodes.file(placed.ino, &placed.blocks)?;
            self.write_images("a quota file's map", map)?;
            self.write_images("a quota file", placed.images(self.geometry.block_size))?;
            placed.finish(&mut inode);
            sb.set_quota_inode(placed.file.kind, placed.ino);
            table.push((placed.ino, inode));
        }
        self.zero_inode_tables()?;
        let bytes = inodes.table(&table, placement.used_inodes);
        self.writer.blocks("the inode table", placement.groups[0].inode_table, &bytes)
    }

    /// Zeroes all inode tables, unless they are zero already or left uninitialised.
    fn zero_inode_tables(&self) -> Result<()> {
        let is_lazy = self.options.lazy_inode_tables && self.geometry.features.has_group_checksums();
        if self.zero() || is_lazy {
            return Ok(());
        }
        let len = u64::from(self.geometry.inode_table_blocks);
        let mut tables = self.placement.groups.iter().map(|group| group.inode_table);
        tables.try_for_each(|table| self.writer.zero_blocks("an inode table", table, len))
    }

    /// Returns true if the device reads as zeros.
    fn zero(&self) -> bool {
        self.options.device_is_zero
    }

    fn write_images(&self, what: &str, images: Vec<BlockImage>) -> Result<()> {
        images.iter().try_for_each(|(block, bytes)| self.writer.blocks(what, *block, bytes))
    }

    fn write_resize_blocks(&self, map: u64) -> Result<()> {
        let what = "the resize inode's map";
        self.writer.blocks(what, map, &resize::double_indirect(self.geometry))?;
        // The reserved blocks are contiguous. Each lists the backups of one descriptor block;
        // without backups it is all zeros.
        let reserved = resize::reserved_blocks(self.geometry);
        let Some((first, _)) = reserved.first() else { return Ok(()) };
        if self.zero() && self.geometry.backup_groups().next().is_none() {
            return Ok(());
        }
        let bytes: Vec<u8> = reserved.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        self.writer.blocks(what, *first, &bytes)
    }

    /// Writes an empty journal. Zeroes its blocks, because blocks of an older journal could look
    /// like transactions of the new one.
    fn write_journal(&self, location: &FileBlocks, size: JournalSize, identity: &Identity) -> Result<()> {
        if !(self.zero() || self.options.lazy_journal) {
            for run in &location.runs {
                self.writer.zero_blocks("the journal", run.start, run.end - run.start)?;
            }
        }
        let block_size = self.geometry.block_size;
        let mut superblock = JournalSuperblock::new(block_size, size.blocks, 1, &identity.uuid);
        superblock.set_fast_commit_blocks(size.fast_commits);
        let mut block = vec![0; block_size as usize];
        superblock.encode(&mut block);
        self.writer.blocks("the journal's superblock", location.runs[0].start, &block)
    }

    /// Writes the block of multi-mount protection of an unused volume, if the volume has one.
    pub(crate) fn write_mmp(&self, sb: &Superblock) -> Result<()> {
        let Some(number) = self.placement.mmp else { return Ok(()) };
        let mut block = vec![0; self.geometry.block_size as usize];
        Mmp::clean(sb.mmp_update_interval()).encode(&mut block, sb.checksum_seed());
        self.writer.blocks("the block of multi-mount protection", number, &block)
    }

    /// Writes the bitmaps of all groups, and the descriptors and superblock copies of the groups
    /// that have them.
    pub(crate) fn write_groups(&self, sb: &Superblock) -> Result<()> {
        let groups = GroupTables {
            sb,
            seed: sb.checksum_seed(),
            geometry: self.geometry,
            placement: self.placement,
            tables_are_zero: self.zero() || !self.options.lazy_inode_tables,
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

    /// Writes the descriptors of all groups: with a table in each group that has a copy of the
    /// superblock, or with a block and two copies in each meta group.
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
                    self.writer.blocks(what, geometry.super_block(group) + has_super, &block)?;
                }
            }
            return Ok(());
        }
        let table: Vec<u8> = (0..geometry.gdt_blocks).flat_map(|nr| groups.descriptor_block(nr)).collect();
        for group in std::iter::once(0).chain(geometry.backup_groups()) {
            self.writer.blocks(what, geometry.super_block(group) + 1, &table)?;
        }
        Ok(())
    }

    pub(crate) fn write_superblock(&self, what: &str, offset: u64, sb: &Superblock) -> Result<()> {
        let mut bytes = [0; Superblock::SIZE];
        sb.encode(&mut bytes);
        self.writer.bytes(what, offset, &bytes)
    }
}
