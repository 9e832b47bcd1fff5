//! Names that a fast commit added and removed, for its replay.
//!
//! Not checked: permissions and flags, which the kernel checked when it made the change. No other
//! operation uses the volume, and a name may have been added or removed already, by a replay that
//! was interrupted.

use parext4_format::inode::InodeFlags;
use parext4_format::{BlockRange, FileBlock, dir_entry};

use super::check_name;
use super::dir::Dir;
use super::links::{DROP_CREDITS, drop_all_links, drop_link};
use super::lock::lock_all;
use crate::allocator::ALLOCATE_CREDITS;
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;

/// Credits for an entry: the directory's block and inode, and the inode that it names.
const ENTRY_CREDITS: u32 = 3;

impl InodeRef {
    /// Adds the entry `name` of `target` to this directory, unless it has an entry of that name.
    /// `created` is true if it is the first name of a new inode; otherwise the link count
    /// increases.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; corruption, also if the name is not a valid one.
    pub(crate) fn add_logged(&self, name: &[u8], target: &InodeRef, created: bool) -> Result<()> {
        check_name(name).map_err(|error| self.bad_log(&error))?;
        let dir = self.dir()?;
        let _entries = self.inode.change_entries();
        if dir.is_removed() || dir.find(name)?.is_some() {
            return Ok(());
        }
        let is_dir = target.inode.is_dir();
        if is_dir && !created {
            return Err(self.bad_log(&"a second name of a directory"));
        }
        self.check_logged_names()?;
        let insertion = dir.plan_insertion(name)?;
        self.engine.transact(insertion.credits()? + ENTRY_CREDITS, |handle| {
            insertion.allocate(handle)?;
            insertion.apply(handle, target.ino(), target.file_type())?;
            if is_dir {
                dir.add_subdir();
            } else {
                target.inode.join(handle);
                let mut core = target.inode.core();
                core.links = if created { 1 } else { core.links.saturating_add(1) };
            }
            self.inode.touch_modified();
            Ok(())
        })
    }

    /// Removes the entry `name` of this directory if it names `victim`, and decrements the link
    /// count of `victim` if there was an entry, as the kernel's replay does. A directory loses its
    /// only name.
    ///
    /// # Errors
    /// Corruption, also for a directory with entries.
    pub(crate) fn remove_logged(&self, name: &[u8], victim: &InodeRef) -> Result<()> {
        check_name(name).map_err(|error| self.bad_log(&error))?;
        let dir = self.dir()?;
        if self.ino() == victim.ino() {
            return Err(self.bad_log(&"a directory removed from itself"));
        }
        let _locks = lock_all([&self.inode, &victim.inode]);
        self.check_logged_names()?;
        let Some(found) = dir.find(name)? else { return Ok(()) };
        let is_entry = found.ino == victim.ino();
        let is_dir = victim.inode.is_dir();
        if is_dir && !victim.dir()?.is_empty()? {
            return Err(self.bad_log(&"a directory removed with its entries"));
        }
        self.engine.transact(ENTRY_CREDITS + DROP_CREDITS, |handle| {
            if is_entry {
                self.inode.join(handle);
                dir.remove_found(handle, name, &found)?;
                self.inode.touch_modified();
            }
            if !is_dir {
                return drop_link(&self.engine, handle, &victim.inode);
            }
            if is_entry {
                dir.drop_subdir();
            }
            drop_all_links(&self.engine, handle, &victim.inode)
        })
    }

    /// Gives a new directory its first block, unless it has one.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; corruption.
    pub(crate) fn init_logged_dir(&self, parent: &InodeRef) -> Result<()> {
        let dir = self.dir()?;
        let _entries = self.inode.change_entries();
        let block_map = self.engine.block_map(&self.inode)?;
        if block_map.is_inline() || block_map.end()? > 0 {
            return Ok(());
        }
        let (tail, ino, parent) = (dir.has_tail(), self.ino(), parent.ino());
        let credits = self.engine.map_credits(&self.inode)? + ALLOCATE_CREDITS + 2;
        self.engine.transact(credits, |handle| {
            self.inode.join(handle);
            {
                let mut core = self.inode.core();
                core.links = 2;
                core.flags.remove(InodeFlags::INDEX);
            }
            dir.map_blocks(handle, BlockRange::of_block(FileBlock::ZERO))?;
            dir.init_block(handle, FileBlock::ZERO, |bytes| {
                dir_entry::init_dot_block(bytes, tail, ino, parent);
                if !dir.has_types() {
                    dir_entry::clear_dot_types(bytes);
                }
                Ok(())
            })
        })
    }

    /// Checks that the names of this directory are not encrypted: the kernel logs no names of such
    /// a directory.
    fn check_logged_names(&self) -> Result<()> {
        if self.inode.is_encrypted() {
            Err(self.bad_log(&"a name in an encrypted directory"))
        } else {
            Ok(())
        }
    }

    #[track_caller]
    fn bad_log(&self, what: &dyn std::fmt::Display) -> Error {
        Dir::corrupt(&Dir::new(&self.engine, &self.inode), format_args!("fast commit: {what}"))
    }
}
