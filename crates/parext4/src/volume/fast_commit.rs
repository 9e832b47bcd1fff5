//! Replays fast commits: computes the blocks that they change.
//!
//! The changes are made by the operations of an engine over a device in memory, whose contents are
//! the volume's and which keeps what is written. So nothing reaches the volume before all changes
//! are known, and the caller logs them as one transaction (`journal/fast_commit.rs`). Not
//! responsible for reading the fast commits and for writing the blocks.
//!
//! The result is what the kernel's replay gives, with these differences: an inode that lost its
//! last name is deleted, also a directory, and the blocks that the kernel allocated for an inode
//! which did not survive are free.
//!
//! As in the kernel, changes of inodes and directories that do not exist are ignored, unless the
//! inode's fields follow ([`EarlyChanges`]): the kernel logs no creation of an inode that was
//! deleted again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use parext4_format::extent::Extent;
use parext4_format::fast_commit::{Change, Name};
use parext4_format::features::Incompat;
use parext4_format::inode::{FileType, Inode as RawInode, InodeFlags};
use parext4_format::{BlockRange, FsBlock, InodeNo};

use super::block_set::BlockSet;
use super::early_changes::EarlyChanges;
use crate::allocator::{ALLOCATE_CREDITS, FREE_CREDITS, INODE_CREDITS, Run};
use crate::convert::saturating_u32;
use crate::engine::{EngineRef, Orphans};
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;
use crate::journal::FastCommits;
use crate::layout::MAX_FILE_BLOCKS;
use crate::map_update::MOVE_CREDITS;
use crate::quota::QuotaIds;

/// Makes `changes` on the volume of `engine`, and makes them durable.
///
/// # Errors
/// Corruption, also if a change names blocks or inodes that no file can have; [`Error::NoSpace`];
/// [`Error::Unsupported`] if only e2fsck can replay them.
pub(super) fn replay(engine: &EngineRef, changes: &FastCommits<'_>) -> Result<()> {
    engine.load_orphans()?;
    let mut replay = Replay::new(engine);
    // Before any block is allocated: a directory must not get a block that the kernel gave to a
    // file.
    changes.each(|change| match change {
        Change::AddRange(_, extent) => replay.claim(&extent),
        _ => Ok(()),
    })?;
    changes.each(|change| {
        replay.make(&change)?;
        replay.drop_named();
        Ok(())
    })?;
    replay.free_unmapped()?;
    // Deletes the inodes without names.
    drop(replay);
    engine.journal().commit_all().map(drop)
}

struct Replay<'a> {
    engine: &'a EngineRef,
    /// The inodes of the current change.
    nodes: HashMap<InodeNo, InodeRef>,
    /// The inodes without names that were changed before. They are deleted at the end if they have
    /// no name then, because a later change may give them one.
    unnamed: HashMap<InodeNo, InodeRef>,
    early: EarlyChanges,
    /// Blocks that were free, are in use now, and are mapped by no file yet.
    claimed: BlockSet,
}

impl<'a> Replay<'a> {
    fn new(engine: &'a EngineRef) -> Self {
        let early = EarlyChanges::default();
        Self { engine, nodes: HashMap::new(), unnamed: HashMap::new(), early, claimed: BlockSet::default() }
    }

    /// Ends a change: keeps only its inodes without names. The log may name all inodes of the
    /// volume.
    fn drop_named(&mut self) {
        let without_names = self.nodes.drain().filter(|(_, node)| node.inode.core().links == 0);
        self.unnamed.extend(without_names);
    }

    /// Makes a change, and keeps it if the inode that it changes may be another one.
    fn make(&mut self, change: &Change) -> Result<()> {
        let ino = match change {
            Change::AddRange(ino, _) | Change::DelRange { ino, .. } => Some(*ino),
            Change::Link(name) | Change::Unlink(name) => Some(name.ino),
            Change::Create(_) | Change::Inode(..) => None,
        };
        let Some(ino) = ino else { return self.apply(change) };
        let node = self.inode_ref(ino)?;
        let may_be_another =
            self.early.has(ino) || node.as_ref().is_none_or(|node| node.inode.core().links == 0);
        if may_be_another {
            self.early.add(ino, change)?;
            // Without a name, only a regular file gets names or ranges. So this is the number of
            // another inode.
            if node.is_some_and(|node| node.file_type() != FileType::Regular) {
                return Ok(());
            }
        }
        self.apply(change)
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::AddRange(ino, extent) => self.add_range(*ino, *extent),
            Change::DelRange { ino, start, len } => {
                let Some(node) = self.inode_ref(*ino)? else { return Ok(()) };
                if node.inode.is_dir() || !node.inode.has_block_map() {
                    return Err(Error::corrupt(format_args!("fast commit: inode {ino} unmaps blocks")));
                }
                if self.engine.block_map(&node.inode)?.is_inline() {
                    return Ok(());
                }
                let start = start.to_u64();
                let blocks = BlockRange::clamped(start, start + u64::from(*len));
                self.engine.unmap_logged(&node.inode, blocks)
            }
            Change::Create(name) => self.create(name),
            Change::Link(name) => self.with_both(name, |dir, node| dir.add_logged(&name.name, node, false)),
            Change::Unlink(name) => self.with_both(name, |dir, node| dir.remove_logged(&name.name, node)),
            Change::Inode(ino, logged) => self.set_inode(*ino, logged),
        }
    }

    /// Marks the free blocks of an extent in use.
    fn claim(&mut self, extent: &Extent) -> Result<()> {
        let engine = self.engine;
        for part in engine.allocator().parts(extent.physical, extent.len)? {
            let claimed =
                engine.transact(ALLOCATE_CREDITS, |handle| engine.allocator().claim_logged(handle, part))?;
            claimed.iter().for_each(|run| self.claimed.add(range(run.start, run.len)));
        }
        Ok(())
    }

    fn add_range(&mut self, ino: InodeNo, extent: Extent) -> Result<()> {
        let Some(node) = self.inode_ref(ino)? else { return Ok(()) };
        let is_possible = extent.len > 0 && extent.end() <= MAX_FILE_BLOCKS;
        if node.file_type() != FileType::Regular || !is_possible {
            return Err(Error::corrupt(format_args!("fast commit: inode {ino} maps {extent:?}")));
        }
        let place_in_cluster = self.engine.layout().cluster_blocks() - 1;
        if (extent.physical.get() ^ u64::from(extent.logical.get())) & u64::from(place_in_cluster) != 0 {
            return Err(Error::corrupt(format_args!(
                "fast commit: inode {ino} maps {extent:?} across clusters"
            )));
        }
        // A change between the two may have freed blocks that this one maps again.
        if self.engine.allocator().has_held_blocks() {
            self.engine.journal().commit_all()?;
        }
        self.claim(&extent)?;
        self.leave_inode(&node)?;
        let mapped = self.engine.map_logged(&node.inode, extent)?;
        mapped.iter().try_for_each(|part| self.note_mapped(*part))
    }

    /// Gives a file whose contents lie in its inode an empty map instead: the kernel has moved the
    /// contents to blocks, whose ranges are logged.
    fn leave_inode(&self, node: &InodeRef) -> Result<()> {
        if !self.engine.block_map(&node.inode)?.is_inline() {
            return Ok(());
        }
        self.engine.transact(MOVE_CREDITS, |handle| self.engine.move_out_of_inode(handle, &node.inode, None))
    }

    /// Checks that no other file maps blocks which were mapped now: they had been claimed, and not
    /// mapped since. A block that an earlier change freed may have been allocated for a directory
    /// meanwhile, and a hostile log may give two files one block.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    fn note_mapped(&mut self, part: Run) -> Result<()> {
        let blocks = range(part.start, part.len);
        if !self.claimed.contains(blocks.clone()) {
            return Err(Error::Unsupported(format!(
                "a fast commit that uses block {} again; run e2fsck",
                part.start
            )));
        }
        self.claimed.remove(blocks);
        Ok(())
    }

    fn create(&mut self, name: &Name) -> Result<()> {
        self.with_both(name, |dir, node| {
            if node.inode.is_dir() {
                node.init_logged_dir(dir)?;
            }
            dir.add_logged(&name.name, node, true)
        })
    }

    /// Calls `change` with the directory and the inode of a name, if both exist.
    fn with_both(
        &mut self,
        name: &Name,
        change: impl FnOnce(&InodeRef, &InodeRef) -> Result<()>,
    ) -> Result<()> {
        let (Some(dir), Some(node)) = (self.inode_ref(name.parent)?, self.inode_ref(name.ino)?) else {
            return Ok(());
        };
        if !dir.inode.is_dir() {
            return Err(Error::corrupt(format_args!("fast commit: inode {} is no directory", name.parent)));
        }
        change(&dir, &node)
    }

    /// Returns an inode, or `None` if none of this number is in use.
    ///
    /// # Errors
    /// Corruption, also if the volume has no file or directory of this number.
    fn inode_ref(&mut self, ino: InodeNo) -> Result<Option<InodeRef>> {
        if self.engine.superblock().is_own_inode(ino) || ino.get() > self.engine.layout().inodes_count {
            return Err(Error::corrupt(format_args!("fast commit: inode {ino} is no file")));
        }
        let entry = match self.nodes.entry(ino) {
            Entry::Occupied(entry) => return Ok(Some(entry.get().clone())),
            Entry::Vacant(entry) => entry,
        };
        let node = match self.unnamed.remove(&ino) {
            Some(node) => node,
            None if !self.engine.allocator().inode_in_use(ino)? => return Ok(None),
            None => self.engine.inode_ref(ino)?,
        };
        Ok(Some(entry.insert(node).clone()))
    }

    fn set_inode(&mut self, ino: InodeNo, logged: &[u8]) -> Result<()> {
        let superblock = self.engine.superblock();
        let early = self.early.take(ino);
        if let Some(node) = self.inode_ref(ino)? {
            let parse =
                || RawInode::parse_logged(logged, Some(&node.inode.core_with_times()), superblock, ino);
            let raw = parse()?;
            if !is_another(&node, &raw) {
                self.check_format(ino, &raw)?;
                return match self.change_of_format(&node, &raw)? {
                    ChangeOfFormat::None => self.update(&node, raw),
                    ChangeOfFormat::OutOfInode => {
                        self.leave_inode(&node)?;
                        // The attribute that had the contents is gone.
                        self.update(&node, parse()?)
                    }
                    ChangeOfFormat::IntoInode => self.enter_inode(node, raw),
                };
            }
            // The number was freed and is in use again.
            self.nodes.remove(&ino);
            self.delete(node)?;
        }
        let raw = RawInode::parse_logged(logged, None, superblock, ino)?;
        self.check_format(ino, &raw)?;
        match raw.file_type() {
            FileType::Regular => self.add_file(ino, raw, &early),
            _ if raw.links > 0 => self.add_inode(ino, raw),
            _ => Ok(()),
        }
    }

    /// Creates a file and makes the changes that came before its fields. A file without a name is
    /// created too, because it may get one: its ranges are not logged again then.
    fn add_file(&mut self, ino: InodeNo, raw: RawInode, early: &[Change]) -> Result<()> {
        self.add_inode(ino, raw.clone())?;
        for change in early {
            // A directory that was removed, and its number used again, does not have the name any
            // more.
            if let Change::Link(name) | Change::Unlink(name) = change
                && self.inode_ref(name.parent)?.is_none_or(|dir| !dir.inode.is_dir())
            {
                continue;
            }
            self.apply(change)?;
        }
        // The number of links counts the names that were added here.
        self.inode_ref(ino)?.map_or(Ok(()), |node| self.update(&node, raw))
    }

    /// Checks an inode whose contents are logged with it.
    fn check_format(&self, ino: InodeNo, raw: &RawInode) -> Result<()> {
        if !raw.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let suits = matches!(raw.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink)
            && self.engine.superblock().incompat().contains(Incompat::INLINE_DATA)
            && !raw.flags.contains(InodeFlags::EXTENTS);
        if !suits {
            return Err(Error::corrupt(format_args!(
                "fast commit: inode {ino} has contents, which its type, its flags or the volume's features forbid"
            )));
        }
        raw.inline_contents().map_err(|error| error.of_inode(ino))?;
        Ok(())
    }

    /// Returns how the place of the contents differs from the logged one. An inode without a name
    /// keeps its place, because it is deleted; a directory does, because it is logged only when it
    /// is created.
    fn change_of_format(&self, node: &InodeRef, raw: &RawInode) -> Result<ChangeOfFormat> {
        let is_deleted = raw.links == 0 || node.inode.core().links == 0;
        if node.file_type() != FileType::Regular || is_deleted {
            return Ok(ChangeOfFormat::None);
        }
        let is_inline = self.engine.block_map(&node.inode)?.is_inline();
        Ok(match (is_inline, raw.flags.contains(InodeFlags::INLINE_DATA)) {
            (true, false) => ChangeOfFormat::OutOfInode,
            (false, true) => ChangeOfFormat::IntoInode,
            (true, true) | (false, false) => ChangeOfFormat::None,
        })
    }

    /// Replaces an inode with a map by the logged one, whose contents lie in it: the kernel stores
    /// the first contents of an empty file there.
    fn enter_inode(&mut self, node: InodeRef, mut raw: RawInode) -> Result<()> {
        if self.engine.orphans().contains(node.ino()) {
            let ino = node.ino();
            return Err(Error::Unsupported(format!(
                "a fast commit that gives orphan inode {ino} contents; run e2fsck"
            )));
        }
        // The owner changes before the inode is replaced, because quotas count by the old one.
        self.update(&node, raw.clone())?;
        self.engine.unmap_logged(&node.inode, BlockRange::ALL)?;
        // The inode in memory must not be encoded any more.
        self.engine.journal().commit_all()?;
        let ino = node.ino();
        (raw.file_acl, raw.blocks, raw.dtime) = (node.inode.core().file_acl, node.inode.sectors(), 0);
        self.nodes.remove(&ino);
        self.engine.inodes().remove(&node.inode);
        drop(node);
        let inode = self.engine.transact(1, |handle| self.engine.replace_logged(handle, ino, raw))?;
        self.nodes.insert(ino, InodeRef::new(self.engine, inode));
        Ok(())
    }

    /// Sets the fields of an inode. Its block map, and its attributes in a block, stay as they are:
    /// ranges change the block map, and the kernel logs no changes of attributes. A directory is
    /// logged only when it is created.
    fn update(&self, node: &InodeRef, mut raw: RawInode) -> Result<()> {
        if node.inode.is_dir() {
            return Ok(());
        }
        let xattrs = node.owns_values().then(|| node.lock_xattrs());
        let ids = [raw.uid, raw.gid, raw.projid].map(Some);
        let owner = node.prepare_owner(ids, xattrs.as_ref(), 0)?;
        self.engine.transact(1 + Orphans::CREDITS, |handle| {
            let inode = &node.inode;
            inode.join(handle);
            {
                let mut core = inode.core_with_times();
                owner.apply(handle, node);
                // In the list of orphans, it is the next one.
                raw.dtime = core.dtime;
                (raw.file_acl, raw.blocks) = (core.file_acl, core.blocks);
                let format = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
                raw.flags = raw.flags.difference(format) | core.flags & format;
                if has_map(&core) {
                    raw.block = core.block;
                }
                *core = raw.clone();
                inode.set_flags(&mut core, raw.flags);
            }
            inode.set_size(raw.size);
            if raw.links == 0 { self.engine.orphans().add(self.engine, handle, inode) } else { Ok(()) }
        })
    }

    /// Deletes an inode whatever its names, which later changes remove or have removed.
    fn delete(&self, node: InodeRef) -> Result<()> {
        let has_links = node.inode.core().links > 0;
        if node.inode.is_dir() && has_links {
            return Err(Error::corrupt(format_args!(
                "fast commit: directory inode {} is replaced",
                node.ino()
            )));
        }
        self.engine.transact(1 + Orphans::CREDITS, |handle| {
            node.inode.join(handle);
            node.inode.core().links = 0;
            self.engine.orphans().add(self.engine, handle, &node.inode)
        })?;
        drop(node);
        self.engine.health().check()
    }

    /// Creates an inode without a name.
    fn add_inode(&mut self, ino: InodeNo, mut raw: RawInode) -> Result<()> {
        let is_dir = raw.file_type() == FileType::Directory;
        (raw.blocks, raw.file_acl, raw.dtime) = (0, 0, 0);
        if is_dir {
            // The blocks and entries follow, each in a change of its own.
            (raw.size, raw.links) = (0, 2);
            raw.flags.remove(InodeFlags::INDEX);
            if raw.flags.contains(InodeFlags::INLINE_DATA) {
                raw.remove_inline().map_err(|error| error.of_inode(ino))?;
            }
        }
        if is_dir && !raw.flags.contains(InodeFlags::INLINE_DATA) || has_map(&raw) {
            // The ranges follow, also of a file without extents. The kernel logs no indirect
            // blocks.
            raw.block = [0; 60];
        }
        self.engine.add_quota_entries(QuotaIds::of(&raw))?;
        let inode = self.engine.transact(INODE_CREDITS + 1, |handle| {
            let block = self.engine.allocator().allocate_logged_inode(handle, ino, is_dir)?;
            let inode = self.engine.logged_inode(ino, raw, block)?;
            inode.join(handle);
            inode.charge_inodes(handle, 1);
            Ok(inode)
        })?;
        self.nodes.insert(ino, InodeRef::new(self.engine, inode));
        Ok(())
    }

    /// Frees the claimed blocks that no change has mapped: their inode was deleted, and the kernel
    /// has logged that only by its name.
    fn free_unmapped(&self) -> Result<()> {
        for mut blocks in self.claimed.runs() {
            while !blocks.is_empty() {
                let len = saturating_u32(blocks.end - blocks.start);
                let len = self.engine.allocator().freeable_tail(FsBlock(blocks.end - u64::from(len)), len);
                blocks.end -= u64::from(len);
                self.engine.transact(FREE_CREDITS, |handle| {
                    self.engine.allocator().free_data(handle, FsBlock(blocks.end), len)
                })?;
            }
        }
        Ok(())
    }
}

/// How a logged inode differs from the one in the volume by the place of its contents.
enum ChangeOfFormat {
    None,
    /// From the inode to blocks.
    OutOfInode,
    /// From blocks, or from nowhere, to the inode.
    IntoInode,
}

/// Returns true if a logged inode is not the one of the same number that the volume has. A new
/// inode has another generation and another time of creation; a program may set the generation, but
/// not the time.
fn is_another(node: &InodeRef, raw: &RawInode) -> bool {
    let core = node.inode.core();
    let another = core.generation != raw.generation && (core.crtime != raw.crtime || raw.extra_isize == 0);
    another || raw.file_type() != node.file_type()
}

/// Returns true if the inode's block pointers are a map that the ranges change.
fn has_map(raw: &RawInode) -> bool {
    let has_blocks = match raw.file_type() {
        FileType::Regular => true,
        FileType::Symlink => !raw.is_fast_symlink(),
        _ => false,
    };
    has_blocks && !raw.flags.contains(InodeFlags::INLINE_DATA)
}

fn range(start: FsBlock, len: u32) -> Range<u64> {
    start.get()..start.get() + u64::from(len)
}

#[cfg(test)]
mod tests;
