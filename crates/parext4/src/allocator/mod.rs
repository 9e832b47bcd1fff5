//! Blocks and inodes, one lock a group.
//!
//! A request first claims its number of blocks from one atomic counter, then finds them, so that a claim
//! that succeeded cannot run out of space half-way. The last few blocks are for metadata that completions
//! need (I5, H10), as ext4's reserved clusters are.
//!
//! A file that grows, or is filled in any order, gets *windows*: free blocks kept for a region of it, so that it
//! lies together whoever else allocates. They are kept in memory only and are taken back, oldest first, when
//! somebody finds no other blocks, so nothing runs out of space because of them.

mod blocks;
mod delayed;
mod free_extents;
mod group;
mod inodes;
mod per_block_baseline;
mod placement;
mod request;
mod reserve;
mod reserved;
mod super_counts;
mod trim;
mod window;
mod windows;

use parext4_format::GroupNo;
use parext4_format::group_desc::GroupDesc;
use parext4_format::superblock::Superblock;
use smallvec::SmallVec;

pub(crate) use blocks::Run;
pub(crate) use request::{BlockRequest, Growth, Neighbours};
pub(crate) use reserve::Reservation;
pub use reserved::without_reserved_blocks;
pub(crate) use super_counts::SuperCounts;
pub(crate) use windows::FileWindows;

use crate::layout::Layout;
use crate::meta::{MetaBlock, MetaCache};
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};
use group::Group;
use trim::Trimming;
use windows::WindowTable;

/// Groups that one call may take blocks from; what is then missing is for the next call.
const MAX_GROUPS: u32 = 4;
/// Runs that one call may return.
const MAX_RUNS: usize = 16;
/// Blocks that one call of [`Allocator::allocate`] may register: bitmaps, descriptors and the superblock.
/// Giving back in the same handle what it returned registers nothing more.
pub(crate) const ALLOCATE_CREDITS: u32 = MAX_GROUPS * group::GROUP_CREDITS + 1;
/// Blocks that freeing a run which [`Allocator::freeable_tail`] allows may register; it may cross from one
/// group to the next.
pub(crate) const FREE_CREDITS: u32 = 2 * group::GROUP_CREDITS + 1;
/// Blocks that allocating or freeing an inode may register, its own table block included.
pub(crate) const INODE_CREDITS: u32 = 2 * group::GROUP_CREDITS + 2;

/// The runs that an allocation returns.
pub(crate) type Runs = SmallVec<[Run; 4]>;

/// The allocator of an open volume.
#[derive(Debug)]
pub(crate) struct Allocator {
    layout: Arc<Layout>,
    cache: Arc<MetaCache>,
    groups: Vec<Arc<Group>>,
    /// Blocks that may be claimed now: not in use, not held for a commit, not claimed.
    unclaimed: AtomicI64,
    /// Claims for data leave this many blocks for metadata.
    pool: i64,
    /// Claims for data by others than root leave this many more.
    reserved: i64,
    counts: Arc<SuperCounts>,
    windows: Mutex<WindowTable>,
    trimming: Trimming,
    /// Requests for fewer blocks are served a block at a time; `None`: all are.
    serialize_from: Option<u32>,
    /// Where such a request looks first: behind the last.
    shared_goal: AtomicU64,
    /// Blocks of data that is in memory only.
    delayed: AtomicU64,
    /// Blocks freed by transactions that are not durable yet.
    held: AtomicU64,
    /// How often such blocks became allocatable.
    releases: AtomicU64,
    /// The group whose bitmaps are evicted next, modulo the number of groups.
    next_evicted: AtomicU32,
}

impl Allocator {
    /// An allocator over descriptors that were read and checked; `desc_blocks` holds their blocks in order.
    /// Requests for data of at least `serialize_from` blocks are served in one step.
    pub(crate) fn new(
        layout: Arc<Layout>,
        cache: Arc<MetaCache>,
        superblock: &Arc<Superblock>,
        desc_blocks: &[Arc<MetaBlock>],
        descs: Vec<GroupDesc>,
        counts: Arc<SuperCounts>,
        serialize_from: Option<u32>,
    ) -> Self {
        let per_block = layout.descs_per_block as usize;
        let desc_size = usize::from(layout.desc_size);
        let free: i64 = descs.iter().map(|desc| i64::from(desc.free_blocks)).sum();
        let groups = descs
            .into_iter()
            .enumerate()
            .map(|(index, desc)| {
                let number = GroupNo(u32::try_from(index).unwrap_or(u32::MAX));
                let block = Arc::clone(&desc_blocks[index / per_block]);
                let offset = index % per_block * desc_size;
                Arc::new(Group::new(number, &layout, superblock, block, offset, desc))
            })
            .collect();
        // ext4_reserve_clusters: 2 %, at most 4096 blocks.
        let pool = i64::try_from((layout.blocks_count / 50).min(4096)).unwrap_or(0);
        let reserved = i64::try_from(superblock.reserved_blocks()).unwrap_or(i64::MAX >> 1);
        Self {
            layout,
            cache,
            groups,
            unclaimed: AtomicI64::new(free),
            pool,
            reserved,
            counts,
            windows: WindowTable::new(),
            trimming: Trimming::new(),
            serialize_from,
            shared_goal: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            held: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            next_evicted: AtomicU32::new(0),
        }
    }

    fn group(&self, number: GroupNo) -> &Arc<Group> {
        &self.groups[number.get() as usize]
    }

    /// Whether a commit would make blocks allocatable.
    pub(crate) fn has_held_blocks(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
    }

    /// How often freed blocks became allocatable so far.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Relaxed)
    }

    /// Blocks that are free for the data of those who are not root, of `free` ones.
    pub(crate) fn available(&self, free: u64) -> u64 {
        free.saturating_sub((self.pool + self.reserved).cast_unsigned())
    }

    /// The volume's counters.
    pub(crate) fn counts(&self) -> &Arc<SuperCounts> {
        &self.counts
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod window_tests;
