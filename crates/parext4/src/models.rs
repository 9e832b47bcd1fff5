//! What the model tests must be able to set, and nobody else may.

use std::sync::Arc;
use std::time::Duration;

use crate::allocator::Growth;
pub use crate::dirty_files::WriterLimit;
use crate::error::Result;
use crate::file::DirectFile;
pub use crate::page_cache::{FilePages, Fill, NoFrame, PAGE, Page, PageCache, PageLookup, WriteBack};
use crate::volume::Volume;

/// Has the nodes of the file's extent tree that are blocks take so many entries, so that few writes make it grow.
///
/// # Errors
/// If the map cannot be loaded.
pub fn limit_nodes(file: &DirectFile, entries: usize) -> Result<()> {
    let node = file.node();
    node.engine.map(&node.inode)?.lock().set_capacity(entries);
    Ok(())
}

/// Uses up the volume's space for good, but for so many blocks that data can have. Less than none uses up blocks
/// that are kept for metadata, too.
pub fn leave_blocks(volume: &Volume, blocks: i32) {
    volume.engine.allocator.leave(blocks.into());
}

/// Whether no node of the file's extent tree has more entries than it takes, marks included.
///
/// # Errors
/// If the map cannot be loaded.
pub fn nodes_fit(file: &DirectFile) -> Result<bool> {
    let node = file.node();
    Ok(node.engine.map(&node.inode)?.lock().nodes_fit())
}

/// Maps blocks as one that grew the file a moment ago maps them ahead: without holding them.
///
/// # Errors
/// No space.
pub fn map_ahead(file: &DirectFile, first: u32, blocks: u32) -> Result<()> {
    file.node().fill(first, blocks, first, Growth::Append)
}

/// Writes home what is committed, as the journal's thread does.
///
/// # Errors
/// As of the device.
pub fn checkpoint(volume: &Volume) -> Result<()> {
    volume.engine.journal.checkpoint()
}

/// Does `work` while no other thread can commit.
pub fn while_no_commit(volume: &Volume, work: impl FnOnce()) {
    volume.engine.journal.while_idle(work);
}

/// Writes back at most `pages` dirty pages of one file, as the volume's own threads do.
///
/// # Errors
/// As [`Volume::sync`].
pub fn write_back_turn(volume: &Volume, pages: u32) -> Result<bool> {
    volume.engine.write_back_some(Duration::ZERO, pages)
}

/// A page cache with so many frames, and so many nodes for the trees of its files; a tree needs 10 to grow.
#[must_use]
pub fn page_cache(frames: u32, nodes: u32) -> Arc<PageCache> {
    PageCache::with_capacity(frames, nodes)
}

/// Does `work` while all memory that the volume's page cache has left for pages is about to be filled by others.
pub fn with_no_frame_left(volume: &Volume, work: impl FnOnce()) {
    let others = FilePages::new(&volume.engine.pages);
    let claim = |index| match others.claim(index) {
        Ok(PageLookup::Vacant(fill)) => Some(fill),
        _ => None,
    };
    let fills: Vec<Fill<'_>> = (0..).map_while(claim).collect();
    work();
    drop(fills);
}
