//! Describes a volume that cannot be opened, because a part of its device cannot be read.

use std::ops::Range;

use parext4_device::Device;
use parext4_device::signature::{Unreadable, read_around};
use parext4_format::group_desc::GroupDesc;
use parext4_format::superblock::Superblock;
use parext4_format::{FsBlock, InodeNo};

use super::Info;
use crate::convert::to_usize;
use crate::layout::Layout;
use crate::superblock::{check_device, first_backup};

/// The largest number of blocks of descriptors that are read. A volume of 16 TiB has 2,048.
const MOST_BLOCKS: u32 = 1 << 16;

/// The properties of a volume that may not be readable as a whole, from [`find_info`].
#[derive(Debug)]
#[non_exhaustive]
pub struct FoundInfo {
    /// The description, with the numbers of free blocks and inodes that the superblock states.
    pub info: Info,
    /// The block of the backup that was used in place of the superblock. Its numbers of free blocks
    /// and inodes may be out of date.
    pub backup: Option<u64>,
    /// The structures that opening the volume needs and that cannot be read, and where.
    pub unreadable: Vec<(&'static str, Unreadable)>,
}

/// Describes the volume on `device` as far as it can be read: by its superblock, or else by the
/// first valid backup that [`find_backups`](crate::find_backups) finds. Reads the superblock, the
/// group descriptors and the inode of the root directory, by sectors where a larger read fails.
/// `None` if there is no valid superblock, or the device is too short for the volume.
///
/// ```
/// use std::io::IoSlice;
/// use parext4::{AlignedBuf, Device, MemDevice, MkfsOptions, find_info, mkfs};
///
/// let device = MemDevice::new(32 << 20);
/// mkfs(&device, &MkfsOptions::new().block_size(1024).label("data"))?;
/// device.write_at(0, &[IoSlice::new(&AlignedBuf::zeroed(4096))]).unwrap();
/// let found = find_info(&device).expect("the backups are left");
/// assert_eq!((&found.info.label[..], found.backup), ("data", Some(8193)));
/// # Ok::<(), parext4::Error>(())
/// ```
#[must_use]
pub fn find_info(device: &dyn Device) -> Option<FoundInfo> {
    let mut search = Search { device, unreadable: Vec::new() };
    let primary = search.look("superblock", Superblock::OFFSET, Superblock::SIZE as u64)?;
    let (superblock, backup) = match Superblock::parse(&primary) {
        Ok(superblock) => (superblock, None),
        Err(_) => first_backup(device).map(|(block, superblock)| (superblock, Some(block)))?,
    };
    check_device(device, &superblock).ok()?;
    search.structures(&superblock);
    Some(FoundInfo { info: Info::of(&superblock), backup, unreadable: search.unreadable })
}

struct Search<'a> {
    device: &'a dyn Device,
    unreadable: Vec<(&'static str, Unreadable)>,
}

impl Search<'_> {
    /// Reads a structure, with zeros in place of what cannot be read, which is recorded. `None` if
    /// the structure is not on the device.
    fn look(&mut self, what: &'static str, offset: u64, len: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(len).filter(|&end| end <= self.device.size())?;
        let mut parts = Vec::new();
        let bytes = read_around(self.device, offset, len, &mut parts);
        // Whole pages were read, in which other structures may be, too.
        let is_within = |part: &Unreadable| overlaps(&(part.offset..part.offset + part.len), &(offset..end));
        self.unreadable.extend(parts.into_iter().filter(is_within).map(|part| (what, part)));
        Some(bytes)
    }

    /// Reads the structures to which the superblock leads.
    fn structures(&mut self, superblock: &Superblock) {
        let layout = Layout::new(superblock);
        let block_size = u64::from(superblock.block_size());
        let mut first = None;
        for index in 0..superblock.gdt_blocks().min(MOST_BLOCKS) {
            let Some(offset) = offset_of(superblock.gdt_block(index), block_size) else { return };
            let block = self.look("group descriptors", offset, block_size);
            first = first.or(block);
        }
        let Ok((group, index)) = layout.inode_place(InodeNo::ROOT) else { return };
        let desc_size = usize::from(superblock.desc_size());
        let raw = first
            .as_deref()
            .and_then(|block| block.chunks_exact(desc_size).nth(to_usize(group.get().into())));
        let desc = raw.and_then(|raw| GroupDesc::parse_locations(raw, superblock).ok());
        if let Some(table) = desc.and_then(|desc| offset_of(desc.inode_table, block_size)) {
            let size = u64::from(superblock.inode_size());
            self.look("root directory's inode", table + u64::from(index) * size, size);
        }
    }
}

fn offset_of(block: FsBlock, block_size: u64) -> Option<u64> {
    block.get().checked_mul(block_size)
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
