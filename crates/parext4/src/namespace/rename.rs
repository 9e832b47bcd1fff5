//! Renaming and exchanging entries.
//!
//! 1. Look up both names. A rename within one directory acquires its lock first and holds it
//!    throughout, unless more locks are needed. Any other rename looks up one name at a time,
//!    without keeping a lock.
//! 2. If a dirty file replaces another file, write it back without a lock. A rename within one
//!    directory then starts over.
//! 3. Acquire all locks, and check that the names still mean the same inodes. If not, start over.
//! 4. Change the entries, the link counts and `..` in one transaction.

mod written;

use super::create::PreparedInode;
use super::insert::Insertion;
use super::links::{DROP_CREDITS, drop_all_links, drop_link, lock_losing_link};
use super::lock::lock_all;
use super::new_inode::NewInode;
use super::{check_name, printable};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode_ref::InodeRef;
use crate::journal::Handle;
use crate::sync::{Arc, MutexGuard};
use written::{DirtyFiles, Written};

use std::collections::HashSet;

/// Maximum number of blocks that a rename registers besides the insertion's: two entries, two `..`,
/// and four inodes.
const RENAME_CREDITS: u32 = 8;

/// The effect of a rename if the new name exists.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// # let root = volume.root()?;
/// use parext4::{Error, RenameMode};
///
/// volume.write("/a", "one")?;
/// volume.write("/b", "two")?;
/// let renamed = root.rename(b"a", &root, b"b", RenameMode::NoReplace);
/// assert!(matches!(renamed, Err(Error::Exists(_))));
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenameMode {
    /// The entry is replaced. A directory only replaces an empty directory.
    #[default]
    Replace,
    /// The rename fails with [`Error::Exists`].
    NoReplace,
    /// The two entries are exchanged. The new name must exist.
    Exchange,
}

impl InodeRef {
    /// Renames the entry `name` of this directory to `new_name` in `new_dir`, atomically: a
    /// concurrent lookup, and the next open after a crash, find one name or the other. If both
    /// names mean the same inode, nothing changes; so a directory that ignores case keeps the
    /// spelling of an entry that is renamed to another spelling.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::RenameMode;
    ///
    /// volume.write("/a", "one")?;
    /// volume.write("/b", "two")?;
    /// root.rename(b"a", &root, b"b", RenameMode::Exchange)?;
    /// assert_eq!(volume.read("/a")?, b"two");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Exists`]; [`Error::Invalid`] if a directory would become its
    /// own descendant; [`Error::NotDirectory`], [`Error::IsDirectory`], [`Error::NotEmpty`] if the
    /// new name cannot be replaced; [`Error::NotPermitted`] for immutable and append-only inodes;
    /// [`Error::TooManyLinks`]; [`Error::NoSpace`]; [`Error::NoKey`] if one of the directories is
    /// encrypted.
    pub fn rename(&self, name: &[u8], new_dir: &InodeRef, new_name: &[u8], mode: RenameMode) -> Result<()> {
        self.rename_impl(name, new_dir, new_name, mode, None)?;
        self.help_to_delete();
        Ok(())
    }

    /// Implements
    /// [`ServerInode::rename_with_whiteout`](crate::server::ServerInode::rename_with_whiteout).
    pub(crate) fn rename_with_whiteout(
        &self,
        name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        mode: RenameMode,
        owner: &NewInode,
    ) -> Result<()> {
        if mode == RenameMode::Exchange {
            return Err(Error::invalid("an exchange that leaves a whiteout"));
        }
        self.rename_impl(name, new_dir, new_name, mode, Some(owner))?;
        self.help_to_delete();
        Ok(())
    }

    fn rename_impl(
        &self,
        name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        mode: RenameMode,
        whiteout: Option<&NewInode>,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        if !Arc::ptr_eq(&self.engine, &new_dir.engine) {
            return Err(Error::invalid("a rename to another volume"));
        }
        let mut written = Written::default();
        // Retries if a name changed before the locks were acquired, or if data had to be written
        // back first.
        loop {
            if self.ino() == new_dir.ino() {
                match self.rename_within(name, new_dir, new_name, mode, whiteout, &written)? {
                    SingleLockOutcome::Done => return Ok(()),
                    SingleLockOutcome::Dirty(files) => {
                        written.write_back(files)?;
                        continue;
                    }
                    SingleLockOutcome::NeedsMoreLocks => {}
                }
            }
            let old = self.lookup(name)?;
            let new = match new_dir.lookup(new_name) {
                Ok(node) => Some(node),
                Err(Error::NotFound(_)) => None,
                Err(error) => return Err(error),
            };
            let rename = Rename { old_dir: self, new_dir, name, new_name, old, new, mode, whiteout };
            written.write_back(rename.dirty(&written))?;
            if rename.run()? {
                return Ok(());
            }
        }
    }
}

impl InodeRef {
    /// Renames within this directory. Its lock is held throughout, so the names cannot change.
    fn rename_within(
        &self,
        name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        mode: RenameMode,
        whiteout: Option<&NewInode>,
        written: &Written,
    ) -> Result<SingleLockOutcome> {
        let dir = self.dir()?;
        // Dropped after the lock, because it may be the last reference to the replaced inode.
        let rename;
        let _entries = self.inode.change_entries();
        dir.check_alive()?;
        let find = |name| dir.find(name)?.map(|found| dir.inode_ref(found.ino)).transpose();
        let Some(old) = find(name)? else { return Err(Error::NotFound(printable(name))) };
        let new = find(new_name)?;
        if new.as_ref().is_some_and(|new| new.inode.is_dir()) {
            return Ok(SingleLockOutcome::NeedsMoreLocks);
        }
        rename = Rename { old_dir: self, new_dir, name, new_name, old, new, mode, whiteout };
        let dirty = rename.dirty(written);
        if !dirty.is_empty() {
            return Ok(SingleLockOutcome::Dirty(dirty));
        }
        rename.carry_out().map(|()| SingleLockOutcome::Done)
    }
}

/// The result of a rename that holds the lock of one directory.
enum SingleLockOutcome {
    Done,
    /// These files must be written back first, without the lock.
    Dirty(DirtyFiles),
    /// The new name is a directory.
    NeedsMoreLocks,
}

/// A rename, and the inodes that the names meant when they were looked up.
struct Rename<'a> {
    old_dir: &'a InodeRef,
    new_dir: &'a InodeRef,
    name: &'a [u8],
    new_name: &'a [u8],
    old: InodeRef,
    new: Option<InodeRef>,
    mode: RenameMode,
    /// The owner of the whiteout, if the rename creates one.
    whiteout: Option<&'a NewInode>,
}

impl Rename<'_> {
    /// Acquires the locks and renames. Returns false if the names mean other inodes by then.
    fn run(&self) -> Result<bool> {
        let engine = &self.old_dir.engine;
        let tree = self.moves_directory().then(|| engine.rename().lock());
        let makes_cycle = tree.as_ref().map_or(Ok(false), |tree| self.makes_cycle(tree))?;
        let _locks = lock_all(self.directories().map(|node| &node.inode));
        if !self.is_current()? {
            return Ok(false);
        }
        if makes_cycle {
            return Err(Error::invalid(format_args!("{:?} would end up below itself", printable(self.name))));
        }
        self.carry_out()?;
        Ok(true)
    }

    /// Renames. The locks are held, and the names mean the same inodes as before.
    fn carry_out(&self) -> Result<()> {
        match (&self.new, self.mode) {
            (Some(_), RenameMode::NoReplace) => return Err(Error::Exists(printable(self.new_name))),
            (None, RenameMode::Exchange) => return Err(Error::NotFound(printable(self.new_name))),
            (Some(new), _) if new.ino() == self.old.ino() => return Ok(()),
            _ => {}
        }
        self.check_flags()?;
        self.read_parents()?;
        match &self.new {
            Some(new) if self.mode == RenameMode::Exchange => self.exchange(new),
            Some(victim) => self.replace(victim),
            None => self.move_to_free_name(),
        }
    }

    /// Returns the files that must be written back before the rename, so that a crash leaves a name
    /// with the old or the new contents: the dirty files that replace another one.
    fn dirty(&self, written: &Written) -> DirtyFiles {
        let Some(new) = &self.new else { return DirtyFiles::new() };
        let is_dirty = |node: &&InodeRef| node.may_have_dirty_pages() && !written.contains(node);
        let replaced = self.exchanged().into_iter();
        if self.mode == RenameMode::NoReplace || new.ino() == self.old.ino() {
            return DirtyFiles::new();
        }
        replaced.chain([&self.old]).filter(is_dirty).cloned().collect()
    }

    fn changes_parent(&self) -> bool {
        self.old_dir.ino() != self.new_dir.ino()
    }

    /// Returns the inode that gets the old name in an exchange.
    fn exchanged(&self) -> Option<&InodeRef> {
        self.new.as_ref().filter(|_| self.mode == RenameMode::Exchange)
    }

    /// Returns true if a directory gets another parent.
    fn moves_directory(&self) -> bool {
        self.changes_parent()
            && (self.old.inode.is_dir() || self.exchanged().is_some_and(|new| new.inode.is_dir()))
    }

    /// Returns the directories whose entries are read or changed.
    fn directories(&self) -> impl Iterator<Item = &InodeRef> {
        let moved = Some(&self.old).filter(|_| self.changes_parent());
        let others = moved.into_iter().chain(&self.new).filter(|node| node.inode.is_dir());
        [self.old_dir, self.new_dir].into_iter().chain(others)
    }

    /// Returns true if the names still mean the same inodes. The locks are held.
    fn is_current(&self) -> Result<bool> {
        let (old_dir, new_dir) = (self.old_dir.dir()?, self.new_dir.dir()?);
        old_dir.check_alive()?;
        new_dir.check_alive()?;
        let old = old_dir.find(self.name)?.map(|found| found.ino);
        let new = new_dir.find(self.new_name)?.map(|found| found.ino);
        Ok(old == Some(self.old.ino()) && new == self.new.as_ref().map(InodeRef::ino))
    }

    /// Returns true if a directory would become its own ancestor. No other thread changes ancestors
    /// while the caller holds the lock of [`Engine::rename`](crate::engine::Engine).
    fn makes_cycle(&self, _: &MutexGuard<'_, ()>) -> Result<bool> {
        if let Some(new) = self.exchanged()
            && is_below(self.old_dir, new)?
        {
            return Ok(true);
        }
        is_below(self.new_dir, &self.old)
    }

    fn check_flags(&self) -> Result<()> {
        self.new_dir.check_project(&self.old)?;
        if let Some(new) = self.exchanged() {
            self.old_dir.check_project(new)?;
        }
        // As in the kernel, no-key names are not renamed.
        self.old_dir.inode.check_key()?;
        self.new_dir.inode.check_key()?;
        self.old_dir.as_dir()?.check_changeable()?;
        match &self.new {
            Some(new) => {
                self.new_dir.as_dir()?.check_changeable()?;
                new.inode.check_fixed()?;
            }
            None => self.new_dir.as_dir()?.check_insertable()?,
        }
        self.old.inode.check_fixed()
    }

    /// Reads the `..` of the directories that get another parent, because a failed read after the
    /// first change would stop the volume.
    fn read_parents(&self) -> Result<()> {
        let moved = [Some(&self.old), self.exchanged()].into_iter().flatten();
        let mut moved = moved.filter(|node| self.changes_parent() && node.inode.is_dir());
        moved.try_for_each(|node| node.as_dir()?.parent().map(drop))
    }

    fn move_to_free_name(&self) -> Result<()> {
        let (engine, new_dir) = (&self.old_dir.engine, self.new_dir.as_dir()?);
        if self.moves_directory() {
            new_dir.check_subdirs()?;
        }
        let insertion: Insertion<'_> = new_dir.plan_insertion(self.new_name)?;
        let whiteout = self.prepare_whiteout()?;
        let credits = insertion.credits()? + RENAME_CREDITS + credits_of(whiteout.as_ref());
        engine.with_space(|| {
            engine.transact(credits, |handle| {
                insertion.allocate(handle)?;
                let whiteout = match self.make_whiteout(handle, whiteout.as_ref()) {
                    Ok(whiteout) => whiteout,
                    Err(error) => {
                        insertion.free_blocks(handle)?;
                        return Err(error);
                    }
                };
                self.join_all(handle);
                insertion.apply(handle, self.old.ino(), self.old.file_type())?;
                self.remove_old(handle, whiteout.as_deref())?;
                if self.moves_directory() {
                    self.old_dir.as_dir()?.drop_subdir();
                    new_dir.add_subdir();
                }
                self.touch_all();
                Ok(())
            })
        })
    }

    fn replace(&self, victim: &InodeRef) -> Result<()> {
        match (self.old.inode.is_dir(), victim.inode.is_dir()) {
            (true, false) => return Err(Error::NotDirectory(printable(self.new_name))),
            (false, true) => return Err(Error::IsDirectory(printable(self.new_name))),
            (true, true) if !victim.as_dir()?.is_empty()? => {
                return Err(Error::NotEmpty(printable(self.new_name)));
            }
            _ => {}
        }
        let (engine, whiteout) = (&self.old_dir.engine, self.prepare_whiteout()?);
        let credits = RENAME_CREDITS + DROP_CREDITS + credits_of(whiteout.as_ref());
        let _links = lock_losing_link(victim)?;
        engine.with_space(|| {
            engine.transact(credits, |handle| {
                let whiteout = self.make_whiteout(handle, whiteout.as_ref())?;
                self.join_all(handle);
                self.new_dir.as_dir()?.replace(
                    handle,
                    self.new_name,
                    self.old.ino(),
                    self.old.file_type(),
                )?;
                self.remove_old(handle, whiteout.as_deref())?;
                self.touch_all();
                if !victim.inode.is_dir() {
                    return drop_link(engine, handle, &victim.inode);
                }
                // The new parent loses the `..` of the replaced directory and gets the `..` of the
                // moved one.
                self.old_dir.as_dir()?.drop_subdir();
                drop_all_links(engine, handle, &victim.inode)
            })
        })
    }

    fn prepare_whiteout(&self) -> Result<Option<PreparedInode<'static>>> {
        self.whiteout.map(|owner| self.old_dir.prepare_whiteout(owner)).transpose()
    }

    fn make_whiteout(
        &self,
        handle: &Handle<'_>,
        prepared: Option<&PreparedInode<'_>>,
    ) -> Result<Option<Arc<Inode>>> {
        prepared.map(|prepared| self.old_dir.new_nameless(handle, prepared)).transpose()
    }

    /// Removes the old name, or replaces it with the whiteout, after the new one was added. Points
    /// a moved directory's `..` at its new parent.
    fn remove_old(&self, handle: &Handle<'_>, whiteout: Option<&Inode>) -> Result<()> {
        let old_dir = self.old_dir.as_dir()?;
        match whiteout {
            Some(whiteout) => old_dir.replace(handle, self.name, whiteout.ino(), whiteout.file_type())?,
            None => old_dir.remove(handle, self.name)?,
        }
        if self.moves_directory() {
            self.old.as_dir()?.set_parent(handle, self.new_dir.ino())?;
        }
        Ok(())
    }

    fn exchange(&self, new: &InodeRef) -> Result<()> {
        let (old_dir, new_dir) = (self.old_dir.as_dir()?, self.new_dir.as_dir()?);
        let (old_is_dir, new_is_dir) = (self.old.inode.is_dir(), new.inode.is_dir());
        if self.changes_parent() && old_is_dir && !new_is_dir {
            new_dir.check_subdirs()?;
        }
        if self.changes_parent() && new_is_dir && !old_is_dir {
            old_dir.check_subdirs()?;
        }
        self.old_dir.engine.transact(RENAME_CREDITS, |handle| {
            self.join_all(handle);
            new_dir.replace(handle, self.new_name, self.old.ino(), self.old.file_type())?;
            old_dir.replace(handle, self.name, new.ino(), new.file_type())?;
            if self.changes_parent() {
                if old_is_dir {
                    self.old.as_dir()?.set_parent(handle, self.new_dir.ino())?;
                }
                if new_is_dir {
                    new.as_dir()?.set_parent(handle, self.old_dir.ino())?;
                }
                match (old_is_dir, new_is_dir) {
                    (true, false) => {
                        old_dir.drop_subdir();
                        new_dir.add_subdir();
                    }
                    (false, true) => {
                        new_dir.drop_subdir();
                        old_dir.add_subdir();
                    }
                    _ => {}
                }
            }
            self.touch_all();
            Ok(())
        })
    }

    fn join_all(&self, handle: &Handle<'_>) {
        for node in [self.old_dir, self.new_dir, &self.old].into_iter().chain(&self.new) {
            node.inode.join(handle);
        }
    }

    fn touch_all(&self) {
        self.old_dir.inode.touch_modified();
        self.new_dir.inode.touch_modified();
        self.old.inode.touch_changed();
        if let Some(new) = &self.new {
            new.inode.touch_changed();
        }
    }
}

fn credits_of(whiteout: Option<&PreparedInode<'_>>) -> u32 {
    whiteout.map_or(0, PreparedInode::credits)
}

/// Returns true if `dir` is `ancestor` or below it.
fn is_below(dir: &InodeRef, ancestor: &InodeRef) -> Result<bool> {
    if !ancestor.inode.is_dir() {
        return Ok(false);
    }
    let mut seen = HashSet::new();
    let mut at = dir.clone();
    while at.ino() != ancestor.ino() {
        if !seen.insert(at.ino()) {
            return Err(at.as_dir()?.corrupt("it is its own ancestor"));
        }
        let parent = at.lookup(b"..")?;
        if parent.ino() == at.ino() {
            return Ok(false);
        }
        at = parent;
    }
    Ok(true)
}
