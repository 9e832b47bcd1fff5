//! Link counts.
//!
//! The count of an inode that is not a directory changes only under the lock of the inode's
//! attributes (`Inode::xattrs`). So a check that depends on the count stays true until the change
//! that it was made for.

use parext4_format::features::RoCompat;
use parext4_format::inode::InodeFlags;
use parext4_format::{FileBlock, FsBlock};

use super::dir::Dir;
use crate::engine::Engine;
use crate::engine::Orphans;
use crate::error::{Error, Result};
use crate::fault::{Fault, when_planted};
use crate::inode::Inode;
use crate::inode_ref::InodeRef;
use crate::journal::Handle;
use crate::sync::Arc;
use crate::xattr::XattrsLock;

/// Maximum number of links of an inode (`EXT4_LINK_MAX`).
const MAX_LINKS: u16 = 65_000;

/// Maximum number of blocks that [`drop_link`] or [`drop_all_links`] registers, including the
/// inode's own.
pub(super) const DROP_CREDITS: u32 = 1 + Orphans::CREDITS;

/// Locks an inode's link count.
pub(super) fn lock_links(node: &InodeRef) -> XattrsLock<'_> {
    let mut locked = node.lock_xattrs();
    when_planted!(Fault::LinksUnlocked, locked.release());
    locked
}

/// Locks the link count of an inode that is about to lose a name, and checks that the inode can be
/// deleted if the name is its last. If the deletion failed after the name was removed, the inode's
/// owner could no longer reach it.
///
/// # Errors
/// Corruption, failed reads.
pub(super) fn lock_losing_link(node: &InodeRef) -> Result<XattrsLock<'_>> {
    let locked = lock_links(node);
    let links = node.inode.core().links;
    if node.inode.is_dir() || links <= 1 {
        check_deletable(node, &locked)?;
    }
    Ok(locked)
}

/// Returns an error if the inode's blocks cannot be freed.
fn check_deletable(node: &InodeRef, xattrs: &XattrsLock<'_>) -> Result<()> {
    if node.inode.has_block_map() {
        let block_map = node.engine.block_map(&node.inode)?;
        block_map
            .check_from(FileBlock::ZERO)
            .map_err(|error| node.engine.health().note(node.ino(), error))?;
    }
    xattrs.load()?;
    if has_translator(node) {
        let problem = format!("deleting inode {}, which has a translator of the Hurd", node.ino());
        return Err(Error::Unsupported(problem));
    }
    read_bitmaps(node).map_err(|error| node.engine.health().note(node.ino(), error))
}

/// Returns true if a program of the Hurd serves the inode, whose name has a block that nothing else
/// refers to (`h_i_translator`).
fn has_translator(node: &InodeRef) -> bool {
    let core = node.inode.core();
    let number = core.version & u64::from(u32::MAX);
    node.engine.superblock().is_of_hurd() && !core.flags.contains(InodeFlags::EXTENTS) && number != 0
}

/// Reads the bitmaps that the deletion changes.
fn read_bitmaps(node: &InodeRef) -> Result<()> {
    let (engine, inode) = (&node.engine, &node.inode);
    engine.allocator().inode_in_use(inode.ino())?;
    let block = FsBlock(inode.core().file_acl);
    if block.get() != 0 {
        engine.allocator().read_bitmaps(block, 1)?;
    }
    if inode.has_block_map() { engine.read_bitmaps_from(inode, FileBlock::ZERO) } else { Ok(()) }
}

/// Counts another name of a file.
///
/// Joins the inode first, and checks and increments the count atomically, because other names may
/// be removed at the same time under the locks of other directories.
pub(super) fn add_link(handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    inode.join(handle);
    let mut core = inode.core_with_times();
    match core.links {
        0 => Err(Error::NotFound(format!("inode {} was removed", inode.ino()))),
        MAX_LINKS.. => Err(Error::TooManyLinks(format!("inode {}", inode.ino()))),
        links => {
            core.links = links + 1;
            core.ctime = inode.now();
            Ok(())
        }
    }
}

/// Counts one name of a file less. If it was the last, the inode becomes an orphan, which its last
/// `InodeRef` deletes.
pub(super) fn drop_link(engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    drop_to(engine, handle, inode, |links| links.saturating_sub(1))
}

/// Removes the only name of a directory from its link count.
pub(super) fn drop_all_links(engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    drop_to(engine, handle, inode, |_| 0)
}

fn drop_to(
    engine: &Engine,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    links: impl FnOnce(u16) -> u16,
) -> Result<()> {
    inode.join(handle);
    let gone = {
        let mut core = inode.core_with_times();
        core.links = links(core.links);
        core.ctime = inode.now();
        core.links == 0
    };
    if gone { engine.orphans().add(engine, handle, inode) } else { Ok(()) }
}

impl Dir<'_> {
    /// Returns an error if the directory may not get another subdirectory (`EXT4_DIR_LINK_MAX`).
    pub(super) fn check_subdirs(&self) -> Result<()> {
        let unbounded =
            self.is_indexed() && self.engine.superblock().ro_compat().contains(RoCompat::DIR_NLINK);
        if self.inode.core().links < MAX_LINKS || unbounded {
            return Ok(());
        }
        Err(Error::TooManyLinks(format!("directory inode {}", self.inode.ino())))
    }

    /// Counts a new subdirectory. With `dir_nlink`, a count that becomes too large is 1 from then
    /// on (`ext4_inc_count`). The directory has joined the handle.
    pub(super) fn add_subdir(&self) {
        let indexed = self.is_indexed();
        let mut core = self.inode.core();
        let overflows = core.links == 1 || core.links >= MAX_LINKS;
        core.links = if indexed && overflows { 1 } else { core.links.saturating_add(1) };
    }

    /// Counts one subdirectory less (`ext4_dec_count`). The directory has joined the handle.
    pub(super) fn drop_subdir(&self) {
        let mut core = self.inode.core();
        if core.links > 2 {
            core.links -= 1;
        }
    }
}
