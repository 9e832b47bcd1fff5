//! Finds the backups of a superblock that is damaged or gone, so that e2fsck can be told where they
//! are.

use std::io::IoSliceMut;

use parext4_device::signature::read_around;
use parext4_device::{AlignedBuf, Device};
use parext4_format::superblock::Superblock;
use parext4_format::{BlockSize, GroupNo};

use crate::convert::to_usize;

/// Bytes at the start of a device in which every block may be the first backup. The group of
/// another geometry than the default one may begin anywhere.
const SEARCHED: u64 = 64 << 20;
/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// The largest number of backups that are returned.
const MOST: usize = 8;
/// The largest number of groups that are searched for backups.
const MOST_GROUPS: u32 = 1 << 16;
/// Offset of `s_magic`.
const MAGIC_OFFSET: usize = 56;

/// Valid backups of the superblock of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backups {
    /// Size of a block of the volume, in bytes.
    pub block_size: u32,
    /// The blocks that hold a valid backup, in ascending order: at least one, and at most the first
    /// 8.
    pub blocks: Vec<u64>,
}

/// Finds the valid backups of the superblock on `device`, whatever the superblock itself holds.
/// `None` if there are none.
///
/// Reads at most the first 64 MiB of the device, and the blocks where mke2fs puts backups by
/// default. Ignores parts that cannot be read.
///
/// ```
/// use std::io::IoSlice;
/// use parext4::{AlignedBuf, Device, MemDevice, MkfsOptions, find_backups, mkfs};
///
/// let device = MemDevice::new(32 << 20);
/// mkfs(&device, &MkfsOptions::new().block_size(1024))?;
/// device.write_at(0, &[IoSlice::new(&AlignedBuf::zeroed(4096))]).unwrap();
/// let backups = find_backups(&device).expect("the backups are left");
/// assert_eq!((backups.block_size, &backups.blocks[..]), (1024, &[8193, 24577][..]));
/// # Ok::<(), parext4::Error>(())
/// ```
#[must_use]
pub fn find_backups(device: &dyn Device) -> Option<Backups> {
    let (superblock, blocks) = find(device)?;
    Some(Backups { block_size: superblock.block_size(), blocks })
}

/// Returns the block of the first valid backup, and what it says.
pub(crate) fn first_backup(device: &dyn Device) -> Option<(u64, Superblock)> {
    let (superblock, blocks) = find(device)?;
    let block = *blocks.first()?;
    Some((block, at(device, block.checked_mul(superblock.block_size().into())?)?))
}

/// Returns a valid backup, and the blocks of the valid backups of the same volume.
fn find(device: &dyn Device) -> Option<(Superblock, Vec<u64>)> {
    let superblock = first_by_search(device).or_else(|| first_by_geometry(device))?;
    let groups = 1..superblock.group_count().min(MOST_GROUPS);
    let is_valid = |block: &u64| {
        let offset = block.checked_mul(superblock.block_size().into());
        let found = offset.and_then(|offset| at(device, offset));
        found.is_some_and(|found| has_same_geometry(&found, &superblock))
    };
    let blocks = groups.filter(|&group| superblock.has_backup(GroupNo(group)));
    let blocks = blocks.map(|group| start_of(&superblock, group)).filter(is_valid).take(MOST).collect();
    Some((superblock, blocks))
}

/// Returns the first block of a group.
fn start_of(superblock: &Superblock, group: u32) -> u64 {
    u64::from(superblock.first_data_block()) + u64::from(group) * u64::from(superblock.blocks_per_group())
}

fn has_same_geometry(a: &Superblock, b: &Superblock) -> bool {
    (a.uuid(), a.block_size(), a.blocks_per_group()) == (b.uuid(), b.block_size(), b.blocks_per_group())
}

/// Searches every block of the smallest size.
fn first_by_search(device: &dyn Device) -> Option<Superblock> {
    let end = SEARCHED.min(device.size());
    let step = to_usize(u64::from(BlockSize::MIN.bytes()));
    (0..end).step_by(to_usize(PIECE)).find_map(|start| {
        let bytes = read_around(device, start, PIECE.min(end - start), &mut Vec::new());
        let places = (start..).step_by(step).zip(bytes.chunks_exact(step));
        let mut found = places.filter_map(|(offset, bytes)| parse(bytes, offset));
        found.next()
    })
}

/// Reads the blocks where mke2fs puts backups unless it is told otherwise: at the start of group 1
/// and of powers of 3, 5 and 7.
fn first_by_geometry(device: &dyn Device) -> Option<Superblock> {
    let sizes = (BlockSize::MIN.bits()..=BlockSize::MAX.bits()).map(|bits| 1_u64 << bits);
    let groups = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343];
    let mut offsets: Vec<u64> = sizes
        .flat_map(|size| groups.map(|group| (u64::from(size == 1024) + group * 8 * size) * size))
        .collect();
    offsets.sort_unstable();
    offsets.into_iter().find_map(|offset| at(device, offset))
}

/// Reads the backup at `offset`. `None` if it is none, or is not valid.
fn at(device: &dyn Device, offset: u64) -> Option<Superblock> {
    const GRAIN: u64 = 4096;
    let start = offset - offset % GRAIN;
    let bytes = read(device, start, GRAIN)?;
    parse(&bytes[to_usize(offset - start)..][..Superblock::SIZE], offset)
}

/// Parses a backup. Its group must begin at `offset` by its own geometry, so that contents of files
/// that hold volumes are no backups.
fn parse(bytes: &[u8], offset: u64) -> Option<Superblock> {
    if bytes.get(MAGIC_OFFSET..MAGIC_OFFSET + 2)? != parext4_format::superblock::MAGIC.to_le_bytes() {
        return None;
    }
    let superblock = Superblock::parse(bytes).ok()?;
    let group = u32::from(superblock.raw().s_block_group_nr.get());
    let is_backup = group > 0 && superblock.has_backup(GroupNo(group));
    let place = start_of(&superblock, group).checked_mul(superblock.block_size().into());
    (is_backup && place == Some(offset)).then_some(superblock)
}

fn read(device: &dyn Device, offset: u64, len: u64) -> Option<AlignedBuf> {
    let mut bytes = AlignedBuf::zeroed(to_usize(len));
    device.read_at(offset, &mut [IoSliceMut::new(&mut bytes)]).ok()?;
    Some(bytes)
}
