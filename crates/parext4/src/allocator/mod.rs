//! The allocator of blocks and inodes.
//!
//! It manages the free space of all block groups, in memory and in the bitmaps and counters. It
//! does not know the files that use the blocks. Invariants: a request first claims its number of
//! blocks from one atomic counter and then finds them, so a request that has claimed blocks cannot
//! run out of space half-way; freed blocks become allocatable only after the transaction that freed
//! them is durable (I7).
//!
//! Each group has one lock for its blocks and one for its inodes. The last blocks of the volume are
//! kept for metadata that completions need (I5, H10), as ext4's reserved clusters are.
//!
//! A file that grows, or is filled in any order, gets *windows*: free blocks kept for a region of
//! the file, so that they are contiguous although other files allocate at the same time. Windows
//! exist in memory only. If a request finds no other blocks, the oldest windows are reclaimed, so
//! windows never cause a lack of space.
//!
//! With `bigalloc` the unit of allocation is the cluster. Inside this module, every number of
//! blocks of the volume or of a file then counts clusters, and [`units`] converts at the boundary:
//! callers pass and get blocks. Reservations and claims count clusters.

mod blocks;
mod claims;
mod delayed;
mod free_extents;
mod group;
mod inodes;
mod kept;
mod logged;
mod neighbours;
mod per_block_baseline;
mod placement;
mod request;
mod reserve;
mod super_counts;
mod trim;
mod units;
mod window;
mod windows;

use parext4_format::GroupNo;
use parext4_format::group_desc::GroupDesc;
use parext4_format::superblock::Superblock;
use smallvec::SmallVec;

pub(crate) use blocks::{AllocMode, Run};
pub(crate) use claims::{Failure, Waiter, forget_lacking, lacking};
pub(crate) use neighbours::Neighbours;
pub(crate) use request::{BlockRequest, BlockSource, Growth};
pub(crate) use reserve::{Reservation, SuspendedReservation};
pub(crate) use super_counts::SuperCounts;
pub(crate) use windows::FileWindows;

use crate::layout::Layout;
use crate::meta::{MetaBlock, MetaCache};
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};
use claims::Claims;
use group::Group;
use trim::Trimming;
use windows::WindowTable;

/// Maximum number of groups that one call allocates from. The caller requests the remaining blocks
/// by another call.
const MAX_GROUPS: u32 = 4;
/// Maximum number of runs that one call returns.
const MAX_RUNS: usize = 16;
/// Maximum number of blocks that one call of [`Allocator::allocate`] registers: bitmaps,
/// descriptors and the superblock. Freeing the allocated blocks under the same handle registers no
/// further block.
pub(crate) const ALLOCATE_CREDITS: u32 = MAX_GROUPS * group::GROUP_CREDITS + 1;
/// Maximum number of blocks that freeing a run registers. [`Allocator::freeable_tail`] limits the
/// run; it may cross one group boundary.
pub(crate) const FREE_CREDITS: u32 = 2 * group::GROUP_CREDITS + 1;
/// Maximum number of blocks that allocating or freeing an inode registers, including its table
/// block.
pub(crate) const INODE_CREDITS: u32 = 2 * group::GROUP_CREDITS + 2;

/// The runs that an allocation returns.
pub(crate) type Runs = SmallVec<[Run; 4]>;

/// Options for the allocations of an open volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationOptions {
    /// Requests for fewer blocks of data are allocated one block at a time. `None` applies that to
    /// all requests.
    pub serialize_from: Option<u32>,
    /// True if data may use the blocks that are otherwise for metadata only.
    pub fill_completely: bool,
}

/// The allocator of an open volume.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// The layout in blocks.
    layout: Arc<Layout>,
    /// The layout in clusters.
    units: Arc<Layout>,
    cache: Arc<MetaCache>,
    groups: Vec<Arc<Group>>,
    /// Number of blocks that may be claimed: not in use, not freed by a transaction that is not
    /// durable, and not claimed.
    unclaimed: AtomicI64,
    /// The claims that are neither used nor returned.
    claims: Claims,
    /// Number of blocks that claims for data leave for metadata.
    pool: i64,
    /// Number of further blocks that claims for data leave for root, if the caller is not root.
    reserved: i64,
    counts: Arc<SuperCounts>,
    windows: Mutex<WindowTable>,
    trimming: Trimming,
    options: AllocationOptions,
    /// The goal of the next request that is allocated one block at a time.
    shared_goal: AtomicU64,
    /// Number of data blocks with delayed allocation.
    delayed: AtomicU64,
    /// Number of clusters claimed for these data blocks, with `bigalloc`.
    delayed_clusters: AtomicU64,
    /// Number of blocks freed by transactions that are not durable.
    held: AtomicU64,
    /// The group whose bitmaps are evicted next, modulo the number of groups.
    next_evicted: AtomicU32,
}

impl Allocator {
    /// Returns an allocator. `descs` are the checked descriptors, and `desc_blocks` their blocks,
    /// in order.
    pub(crate) fn new(
        layout: Arc<Layout>,
        cache: Arc<MetaCache>,
        superblock: &Arc<Superblock>,
        desc_blocks: &[Arc<MetaBlock>],
        descs: Vec<GroupDesc>,
        counts: Arc<SuperCounts>,
        options: AllocationOptions,
    ) -> Self {
        let units =
            if layout.cluster_bits == 0 { Arc::clone(&layout) } else { Arc::new(layout.in_clusters()) };
        let per_block = layout.descs_per_block as usize;
        let desc_size = usize::from(layout.desc_size);
        let free: i64 = descs.iter().map(|desc| i64::from(desc.free_blocks)).sum();
        let groups = descs
            .into_iter()
            .enumerate()
            .zip((0..).map(GroupNo))
            .map(|((index, desc), number)| {
                let block = Arc::clone(&desc_blocks[index / per_block]);
                let offset = index % per_block * desc_size;
                Arc::new(Group::new(number, &units, superblock, block, offset, desc))
            })
            .collect();
        // The pool is that of `ext4_reserve_clusters`: 2 % of the volume, at most 4096 clusters.
        let most = if options.fill_completely { 0 } else { 4096 };
        let pool = i64::try_from((units.blocks_count / 50).min(most)).unwrap_or(0);
        let reserved = superblock.reserved_blocks() >> layout.cluster_bits;
        let reserved = i64::try_from(reserved).unwrap_or(i64::MAX >> 1);
        Self {
            layout,
            units,
            cache,
            groups,
            unclaimed: AtomicI64::new(free),
            claims: Claims::new(),
            pool,
            reserved,
            counts,
            windows: WindowTable::new(),
            trimming: Trimming::new(),
            options,
            shared_goal: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            delayed_clusters: AtomicU64::new(0),
            held: AtomicU64::new(0),
            next_evicted: AtomicU32::new(0),
        }
    }

    fn group(&self, number: GroupNo) -> &Arc<Group> {
        &self.groups[number.get() as usize]
    }

    /// Returns true if a commit would make blocks allocatable.
    pub(crate) fn has_held_blocks(&self) -> bool {
        self.held_clusters() > 0
    }

    /// Returns the number of freed clusters that wait for a commit.
    pub(crate) fn held_clusters(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// Returns true if directories should use as few blocks as possible, because the volume is to
    /// be filled and has little space.
    pub(crate) fn packs_directories(&self) -> bool {
        // In this space, a directory cannot grow so large that a search without an index takes
        // long.
        const FEW: i64 = 4096;
        self.options.fill_completely && self.unclaimed.load(Ordering::Relaxed) < FEW
    }

    /// Returns the number of `free` blocks that are available for data of users other than root.
    /// `reserved` blocks are kept for root.
    pub(crate) fn available(&self, free: u64, reserved: u64) -> u64 {
        free.saturating_sub(self.blocks_in(self.pool.cast_unsigned()) + reserved)
    }

    /// Returns the number of blocks that are reserved, except for delayed blocks. The number is
    /// exact only while no thread reserves or frees blocks.
    pub(crate) fn reserved_blocks(&self) -> i64 {
        let free = self.counts.free_blocks() >> self.layout.cluster_bits;
        let unclaimed = self.unclaimed.load(Ordering::Relaxed);
        let clusters = free.cast_signed() - self.held.load(Ordering::Relaxed).cast_signed() - unclaimed;
        (clusters << self.layout.cluster_bits) - self.delayed_blocks().cast_signed()
    }

    /// Returns the volume's counters.
    pub(crate) fn counts(&self) -> &Arc<SuperCounts> {
        &self.counts
    }
}

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod window_tests;
