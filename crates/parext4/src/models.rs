//! Access for model tests to internals that no other caller may change. Only with `--cfg shuttle`.

use std::sync::Arc;
use std::time::Duration;

use parext4_device::Device;
use parext4_format::{BlockRange, FileBlock};

use crate::allocator::{Growth, Reservation};
use crate::block_map::BlockMap;
use crate::clock::Clock;
pub use crate::dirty_files::WriterLimit;
use crate::error::{Error, Result};
use crate::file::DirectFile;
pub use crate::flush_turn::FlushTurn;
use crate::inode_ref::InodeRef;
use crate::mmp::{MmpOptions, OwnerEvidence, Protection};
pub use crate::page_cache::{
    FilePages, Fill, NoFrame, Page, PageCache, PageIndex, PageLookup, PageRange, PageSize, WriteBack,
};
use crate::superblock::read_usable_superblock;
pub use crate::sync::simulated_time;
use crate::volume::Volume;

/// Limits the number of entries of the file's extent tree nodes that are blocks, so that a model's
/// writes make the tree grow.
///
/// # Errors
/// If the map cannot be loaded.
pub fn limit_nodes(file: &DirectFile, entries: usize) -> Result<()> {
    let node = file.inode_ref();
    let BlockMap::Extents(map) = node.engine.block_map(&node.inode)? else { return Err(no_tree()) };
    map.lock().set_capacity(entries);
    Ok(())
}

/// Allocates the volume's free space for good, except for `blocks` blocks for data. A negative
/// number also allocates blocks that are reserved for metadata.
pub fn leave_blocks(volume: &Volume, blocks: i32) {
    volume.engine.allocator().leave(blocks.into());
}

/// Blocks that an operation in flight has claimed. Dropping it returns them.
#[derive(Debug)]
pub struct ClaimedBlocks<'a> {
    _claim: Reservation<'a>,
}

/// Claims `blocks`, of which some may be reserved for metadata.
///
/// # Errors
/// [`Error::NoSpace`](crate::Error::NoSpace).
pub fn claim_blocks(volume: &Volume, blocks: u32) -> Result<ClaimedBlocks<'_>> {
    Ok(ClaimedBlocks { _claim: volume.engine.allocator().reserve(blocks)? })
}

/// Decrements the number of links of a file, as if the volume were damaged.
pub fn lose_link(node: &InodeRef) {
    node.inode.core().links -= 1;
}

fn no_tree() -> Error {
    Error::invalid("the file has no tree of extents")
}

/// Returns true if no node of the file's extent tree has more entries than its limit, marks
/// included.
///
/// # Errors
/// If the map cannot be loaded.
pub fn nodes_fit(file: &DirectFile) -> Result<bool> {
    let node = file.inode_ref();
    let BlockMap::Extents(map) = node.engine.block_map(&node.inode)? else { return Err(no_tree()) };
    Ok(map.lock().nodes_fit())
}

/// Maps blocks without holding their range, as the preallocation of a write that has just extended
/// the file does.
///
/// # Errors
/// [`Error::NoSpace`](crate::Error::NoSpace).
pub fn map_ahead(file: &DirectFile, first: u32, blocks: u32) -> Result<()> {
    let blocks = BlockRange::starting_at(FileBlock(first)).take(blocks);
    file.inode_ref().fill(blocks, first.into(), Growth::Append)
}

/// The owner of a protected volume, whose thread is the model's.
#[derive(Debug)]
pub struct OwnerModel {
    protection: Protection,
    device: Arc<dyn Device>,
}

impl OwnerModel {
    /// Claims the volume on `device`. Sleeps advance the clock of the model.
    ///
    /// # Errors
    /// As [`Volume::open_device`].
    pub fn claim(device: Arc<dyn Device>, evidence: OwnerEvidence) -> Result<Self> {
        let (superblock, _) = read_usable_superblock(&*device)?;
        let claimed =
            Protection::claim(&device, &superblock, &MmpOptions::new().evidence(evidence), Clock::system())?;
        let (protection, device) = claimed.ok_or_else(|| Error::invalid("a volume without protection"))?;
        Ok(Self { protection, device })
    }

    /// Returns the device whose writes need the lease.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Updates the block. Returns false if the volume is lost.
    #[must_use]
    pub fn update(&self) -> bool {
        self.protection.update()
    }
}

/// Writes all committed blocks to their home locations, as the checkpoint thread does.
///
/// # Errors
/// A device error.
pub fn checkpoint(volume: &Volume) -> Result<()> {
    volume.engine.journal().checkpoint()
}

/// Runs `work` while no other thread can commit.
pub fn while_no_commit(volume: &Volume, work: impl FnOnce()) {
    volume.engine.journal().while_idle(work);
}

/// Writes back at most `pages` dirty pages of one file, as the write-back threads do.
///
/// # Errors
/// As [`Volume::sync`].
pub fn write_back_turn(volume: &Volume, pages: u32) -> Result<bool> {
    volume.engine.write_back_some(Duration::ZERO, pages)
}

/// Takes the file off the list of dirty files if it is clean, as a write-back thread does after its
/// turn.
pub fn unlist_if_clean(file: &DirectFile) {
    let node = file.inode_ref();
    if let Some(cached) = node.inode.cached() {
        node.engine.dirty().remove_if_clean(&node.inode, cached);
    }
}

/// Returns a page cache with `frames` frames of 4 KiB and `nodes` nodes for the trees of its files.
/// A tree needs 10 free nodes to grow.
#[must_use]
pub fn page_cache(frames: u32, nodes: u32) -> Arc<PageCache> {
    PageCache::with_capacity(frames, nodes, PageSize::MIN)
}

/// Runs `work` while all free frames of the volume's page cache are claimed by pages of another
/// file.
pub fn with_no_frame_left(volume: &Volume, work: impl FnOnce()) {
    let others = FilePages::new(volume.engine.pages());
    let claim = |index| match others.claim(index) {
        Ok(PageLookup::Vacant(fill)) => Some(fill),
        _ => None,
    };
    let fills: Vec<Fill<'_>> = (0..).map(PageIndex).map_while(claim).collect();
    work();
    drop(fills);
}
