//! Makes an empty volume, as `mke2fs -t ext4` would: same features, same sizes, same counts.
//!
//! The volume does not exist until its last write: old signatures are wiped and flushed first, then everything
//! but the primary superblock is written and flushed, then the superblock. Nothing is written that need not be:
//! bitmaps of empty groups and all but the first inodes are left uninitialised, and say so (`BLOCK_UNINIT`,
//! `INODE_UNINIT`, `bg_itable_unused`), so a sparse image stays sparse.
//!
//! Sources: kernel documentation, "ext4 Data Structures and Algorithms"; the behaviour of mke2fs 1.47.

mod geometry;
mod groups;
mod inodes;
mod journal;
mod placement;
mod resize;
mod superblock;
mod used;
mod write;

use std::time::{SystemTime, UNIX_EPOCH};

use parext4_device::Device;
use parext4_format::InodeNo;
use parext4_format::inode::Inode;
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::superblock::Superblock;

use crate::error::Result;
use geometry::Geometry;
use groups::Groups;
use inodes::{BlockImage, Inodes};
use placement::{JournalPlace, Placement};
use write::Writer;

/// Old signatures lie within this many bytes of the start or the end of a device.
const SIGNATURE_ZONE: u64 = 64 << 10;

/// What to make. The default is what mke2fs makes.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Bytes of a block: 1024, 2048 or 4096; by the device's size if `None`.
    pub block_size: Option<u32>,
    /// The volume's name, at most 16 bytes.
    pub label: String,
    /// The volume's UUID; random if `None`.
    pub uuid: Option<[u8; 16]>,
    /// Bytes of the volume for each inode; by the device's size if `None`.
    pub inode_ratio: Option<u64>,
    /// Whether to make a journal. A volume of less than 2048 blocks gets one only if `journal_blocks` asks.
    pub journal: bool,
    /// The journal's length in blocks; by the volume's size if `None`.
    pub journal_blocks: Option<u32>,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Percent of the blocks that only root may use.
    pub reserved_percent: u8,
    /// Seconds since 1970 for all times of the volume; the clock if `None`.
    pub now: Option<u32>,
    /// The secret of the directory hash; random if `None`.
    pub hash_seed: Option<[u8; 16]>,
    /// User and group of the root directory.
    pub owner: (u32, u32),
    /// The device is known to read as zeros (a new sparse file): nothing is zeroed or wiped.
    pub device_is_zero: bool,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            block_size: None,
            label: String::new(),
            uuid: None,
            inode_ratio: None,
            journal: true,
            journal_blocks: None,
            inode_size: 256,
            reserved_percent: 5,
            now: None,
            hash_seed: None,
            owner: (0, 0),
            device_is_zero: false,
        }
    }
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the volume.
    pub blocks_count: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
    /// Blocks that only root may use.
    pub reserved_blocks: u64,
    /// Block groups.
    pub groups: u32,
    /// Inodes, the reserved ones included.
    pub inodes_count: u32,
    /// Inodes that are free.
    pub free_inodes: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Blocks of the journal; 0 without one.
    pub journal_blocks: u32,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// The volume's name.
    pub label: String,
    /// The features, as e2fsprogs names them.
    pub features: Vec<String>,
}

/// What is random, or of this moment, unless the options say.
struct Identity {
    uuid: [u8; 16],
    hash_seed: [u8; 16],
    now: u32,
}

impl Identity {
    fn new(options: &MkfsOptions) -> Self {
        let random = || uuid::Uuid::new_v4().into_bytes();
        let clock = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
            u32::try_from(now).unwrap_or(u32::MAX)
        };
        Self {
            uuid: options.uuid.unwrap_or_else(random),
            hash_seed: options.hash_seed.unwrap_or_else(random),
            now: options.now.unwrap_or_else(clock),
        }
    }
}

/// Makes an empty volume over all of `device`, but for a rest of less than 4096 bytes.
///
/// # Errors
/// [`Error::Invalid`](crate::error::Error::Invalid) if the options make no sense for the device, before anything
/// is written; a device error, after which the device holds no volume.
pub fn mkfs(device: &dyn Device, options: &MkfsOptions) -> Result<Summary> {
    let geometry = Geometry::new(device.size(), options)?;
    let journal_blocks =
        if options.journal { journal::size(&geometry, options.journal_blocks)? } else { None };
    let placement = Placement::new(&geometry, journal_blocks)?;
    let identity = Identity::new(options);
    let mut sb = superblock::build(&geometry, options, &identity)?;
    superblock::set_counters(&mut sb, &geometry, &placement);

    let maker = Maker {
        writer: Writer::new(device, geometry.block_size),
        geometry: &geometry,
        placement: &placement,
        zero: options.device_is_zero,
    };
    maker.wipe(device.size())?;
    maker.files(&mut sb, &identity, options.owner)?;
    maker.groups(&sb)?;
    maker.writer.flush()?;
    maker.superblock("the superblock", Superblock::OFFSET, &sb)?;
    maker.writer.flush()?;
    Ok(summary(&sb, journal_blocks))
}

fn summary(sb: &Superblock, journal_blocks: Option<u32>) -> Summary {
    Summary {
        block_size: sb.block_size(),
        blocks_count: sb.blocks_count(),
        free_blocks: sb.free_blocks(),
        reserved_blocks: sb.reserved_blocks(),
        groups: sb.group_count(),
        inodes_count: sb.inodes_count(),
        free_inodes: sb.free_inodes(),
        inode_size: sb.inode_size(),
        journal_blocks: journal_blocks.unwrap_or(0),
        uuid: sb.uuid(),
        label: sb.label(),
        features: sb.feature_names(),
    }
}

/// Writes one volume.
struct Maker<'a> {
    writer: Writer<'a>,
    geometry: &'a Geometry,
    placement: &'a Placement,
    /// The device reads as zeros.
    zero: bool,
}

impl Maker<'_> {
    /// Removes what could pass for a file system, a partition table or a RAID member.
    fn wipe(&self, size: u64) -> Result<()> {
        if !self.zero {
            let zone = SIGNATURE_ZONE.min(size);
            self.writer.zero("the start of the device", 0, zone)?;
            self.writer.zero("the end of the device", size - zone, zone)?;
        }
        self.writer.flush()
    }

    /// Writes the first files and their inodes, and notes the journal in the superblock.
    fn files(&self, sb: &mut Superblock, identity: &Identity, owner: (u32, u32)) -> Result<()> {
        let seed = sb.checksum_seed().expect("the superblock was built with metadata_csum");
        let source = sb.clone();
        let inodes = Inodes { sb: &source, seed, geometry: self.geometry, now: identity.now, owner };
        self.images("a directory block", inodes.directory_blocks(self.placement)?)?;
        let root = inodes.root(self.placement);
        let lost_found = inodes.lost_found(self.placement);
        let mut table = vec![(InodeNo::ROOT, &root), (Inodes::lost_found_ino(), &lost_found)];
        let resize = self.placement.resize_map.map(|map| inodes.resize(map));
        if let (Some(inode), Some(map)) = (&resize, self.placement.resize_map) {
            self.resize_blocks(map)?;
            table.push((InodeNo::RESIZE, inode));
        }
        let journal = self.placement.journal.as_ref().map(|place| (place, inodes.journal(place)));
        if let Some((place, (inode, leaves))) = &journal {
            self.images("the journal's extent tree", leaves.clone())?;
            self.journal(place, inode, identity)?;
            superblock::set_journal(sb, inode);
            table.push((InodeNo::JOURNAL, inode));
        }
        let bytes = inodes.table(&table);
        self.writer.blocks("the inode table", self.placement.groups[0].inode_table, &bytes)
    }

    fn images(&self, what: &str, images: Vec<BlockImage>) -> Result<()> {
        images.iter().try_for_each(|(block, bytes)| self.writer.blocks(what, *block, bytes))
    }

    fn resize_blocks(&self, map: u64) -> Result<()> {
        let what = "the resize inode's map";
        self.writer.blocks(what, map, &resize::double_indirect(self.geometry))?;
        // The reserved blocks lie together, and are zeros where there is no backup to point at.
        let reserved = resize::reserved_blocks(self.geometry);
        let Some((first, _)) = reserved.first() else { return Ok(()) };
        if self.zero && self.geometry.backup_groups().next().is_none() {
            return Ok(());
        }
        let bytes: Vec<u8> = reserved.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        self.writer.blocks(what, *first, &bytes)
    }

    /// Writes an empty journal. Blocks of an older journal could pass for its transactions, so they are zeroed.
    fn journal(&self, place: &JournalPlace, inode: &Inode, identity: &Identity) -> Result<()> {
        if !self.zero {
            for run in &place.runs {
                self.writer.zero_blocks("the journal", run.start, run.end - run.start)?;
            }
        }
        let block_size = self.geometry.block_size;
        let maxlen = inode.size / u64::from(block_size);
        let maxlen = u32::try_from(maxlen).expect("the journal's length has 32 bits");
        let mut block = vec![0; block_size as usize];
        JournalSuperblock::new(block_size, maxlen, 1, &identity.uuid).encode(&mut block);
        self.writer.blocks("the journal's superblock", place.runs[0].start, &block)
    }

    /// Writes the bitmaps, and the descriptors and superblock copies of all groups that have them.
    fn groups(&self, sb: &Superblock) -> Result<()> {
        let seed = sb.checksum_seed().expect("the superblock was built with metadata_csum");
        let groups = Groups {
            sb,
            seed,
            geometry: self.geometry,
            placement: self.placement,
            tables_are_zero: self.zero,
        };
        for (group, place) in (0..).zip(&self.placement.groups) {
            if let Some(bitmap) = groups.block_bitmap(group) {
                self.writer.blocks("a block bitmap", place.block_bitmap, &bitmap)?;
            }
            if let Some(bitmap) = groups.inode_bitmap(group) {
                self.writer.blocks("an inode bitmap", place.inode_bitmap, &bitmap)?;
            }
        }
        let table = groups.table();
        for group in std::iter::once(0).chain(self.geometry.backup_groups()) {
            let start = self.geometry.group(group).start;
            self.writer.blocks("the group descriptors", start + 1, &table)?;
            if group != 0 {
                let offset = start * u64::from(self.geometry.block_size);
                self.superblock("a backup superblock", offset, &superblock::backup(sb, group))?;
            }
        }
        Ok(())
    }

    fn superblock(&self, what: &str, offset: u64, sb: &Superblock) -> Result<()> {
        let mut bytes = [0; Superblock::SIZE];
        sb.encode(&mut bytes);
        self.writer.bytes(what, offset, &bytes)
    }
}
