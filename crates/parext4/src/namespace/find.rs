//! Finding, changing and removing an entry of a directory.

use parext4_format::InodeNo;
use parext4_format::dir_entry::{self, EntryPosition};
use parext4_format::inode::FileType;

use super::dir::Dir;
use super::htree::Walk;
use super::names::{NameHash, Wanted};
use super::{check_name, printable};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::inode_ref::InodeRef;
use crate::journal::Handle;
use crate::meta::MetaBlock;
use crate::sync::{Arc, yield_now};

/// The place of an entry.
#[derive(Debug)]
pub(super) struct Found {
    pub ino: InodeNo,
    place: EntryLocation,
    /// The name of the entry, if it may be spelled otherwise than the name that was looked up.
    stored: Option<Vec<u8>>,
}

/// Where an entry is.
#[derive(Debug)]
enum EntryLocation {
    Block(Arc<MetaBlock>, EntryPosition),
    Inode,
}

impl Found {
    /// Returns the name of the entry, which was found as `name`.
    fn stored_as<'a>(&'a self, name: &'a [u8]) -> &'a [u8] {
        self.stored.as_deref().unwrap_or(name)
    }
}

impl Dir<'_> {
    /// Returns the place of the entry `name`, which is neither `.` nor `..`.
    pub(super) fn find(&self, name: &[u8]) -> Result<Option<Found>> {
        let Some(wanted) = self.names()?.wanted(name)? else { return Ok(None) };
        if let Some(image) = self.inline_image()? {
            return self.search(&image, false, &wanted, |_| EntryLocation::Inode);
        }
        if self.is_searched_by_hash() { self.find_hashed(&wanted) } else { self.find_linear(&wanted) }
    }

    fn find_in(&self, block: Arc<MetaBlock>, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        self.search(&block.snapshot(), self.has_tail(), wanted, |position| {
            EntryLocation::Block(block, position)
        })
    }

    /// Searches the entries `bytes`. `place` returns where the entry at a position is.
    fn search(
        &self,
        bytes: &[u8],
        tail: bool,
        wanted: &Wanted<'_>,
        place: impl FnOnce(EntryPosition) -> EntryLocation,
    ) -> Result<Option<Found>> {
        let (entry, is_exact) = match wanted {
            Wanted::Exact(name) => (dir_entry::find(bytes, tail, name), true),
            _ => (dir_entry::find_where(bytes, tail, |stored| wanted.matches(stored)), false),
        };
        Ok(self.checked(entry)?.map(|(entry, position)| {
            let stored = (!is_exact).then(|| entry.name.to_vec());
            Found { ino: entry.ino, place: place(position), stored }
        }))
    }

    fn find_linear(&self, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        for n in self.blocks()?.blocks() {
            let Some(block) = self.read_names(n)? else { continue };
            if let Some(found) = self.find_in(block, wanted)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find_hashed(&self, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        let mut major = 0;
        let mut walk = Walk::to(*self, |hash| {
            major = wanted.major(hash);
            major
        })?;
        loop {
            if let Some(found) = self.find_in(walk.leaf()?, wanted)? {
                return Ok(Some(found));
            }
            // Names of one hash may continue in the next leaf. Bit 0 of its hash is then set.
            if walk.advance()? != Some(major | 1) {
                return self.find_misplaced(wanted);
            }
        }
    }

    /// Returns the entry of a name that its hash does not lead to.
    ///
    /// Searches all leaves. Once a search has found each name in the place of its hash, later ones
    /// are left out: the engine adds names only there.
    fn find_misplaced(&self, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        let may_be_misplaced = self.may_have_misplaced_names() && matches!(wanted, Wanted::Folded { .. });
        if !may_be_misplaced || self.inode.are_names_placed() {
            return Ok(None);
        }
        let mut walk = Walk::to(*self, |_| 0)?;
        let (mut first, mut all_placed) = (0, true);
        loop {
            let leaf = walk.leaf()?;
            let (lowest, highest) = self.hashes_of_leaf(&leaf, &walk.hash)?;
            if let Some(found) = self.find_in(leaf, wanted)? {
                return Ok(Some(found));
            }
            let next = walk.advance()?;
            all_placed &= lowest >= first & !1 && next.is_none_or(|next| highest < next);
            match next {
                Some(hash) => first = hash,
                None => break,
            }
        }
        if all_placed {
            self.inode.set_names_placed();
        }
        Ok(None)
    }

    /// Returns the lowest and the highest hash of the names in a leaf that may be misplaced. Skips
    /// ASCII names: all drivers fold them alike, so none is misplaced.
    fn hashes_of_leaf(&self, leaf: &MetaBlock, hash: &NameHash) -> Result<(u32, u32)> {
        let (mut lowest, mut highest) = (u32::MAX, 0);
        for entry in dir_entry::entries(&leaf.snapshot(), self.has_tail()) {
            let entry = self.checked(entry)?;
            if entry.ino.get() != 0 && !entry.name.is_ascii() {
                let major = hash.hash(entry.name).0;
                (lowest, highest) = (lowest.min(major), highest.max(major));
            }
        }
        Ok((lowest, highest))
    }

    /// Returns the inode that an entry names. The caller holds the directory's lock, so the entry
    /// keeps the inode.
    pub(super) fn inode_ref(&self, ino: InodeNo) -> Result<InodeRef> {
        if self.engine.superblock().is_own_inode(ino) {
            return Err(self.corrupt(format_args!("an entry names inode {ino} of the file system itself")));
        }
        let inode = self.engine.inode(ino)?;
        if inode.has_value() {
            return Err(self.corrupt(format_args!("an entry names inode {ino}, the value of an attribute")));
        }
        let core = inode.core();
        if core.links == 0 {
            drop(core);
            return Err(self.corrupt(format_args!("an entry names inode {ino}, which has no links")));
        }
        // Under the inode's lock, as in the drop of a `InodeRef`: an inode with more names than
        // links can lose its last link meanwhile.
        let core = guarded!(Fault::NamedUnlocked, Some(core), {
            drop(core);
            // Long enough for another thread to delete the inode and to create one with its number.
            (0..5000).for_each(|_| yield_now());
            None
        });
        let node = InodeRef::new(self.engine, Arc::clone(&inode));
        drop(core);
        Ok(node)
    }

    /// Removes the entry `name`. Registers one block.
    pub(super) fn remove(&self, handle: &Handle<'_>, name: &[u8]) -> Result<()> {
        self.remove_found(handle, name, &self.expect(name)?)
    }

    /// Like [`remove`](Self::remove), for an entry found under the same lock. The entry has not
    /// moved since.
    pub(super) fn remove_found(&self, handle: &Handle<'_>, name: &[u8], found: &Found) -> Result<()> {
        let (tail, name) = (self.has_tail(), found.stored_as(name));
        let EntryLocation::Block(block, position) = &found.place else {
            return self.change_inline(handle, |entries| entries.remove(name)).map(drop);
        };
        let remove = |bytes: &mut [u8]| dir_entry::remove_at(bytes, tail, *position, name);
        self.checked(handle.change(block, remove)).map(drop)
    }

    /// Points the entry `name` at another inode. The entry keeps its spelling. Registers one block.
    pub(super) fn replace(
        &self,
        handle: &Handle<'_>,
        name: &[u8],
        ino: InodeNo,
        file_type: FileType,
    ) -> Result<()> {
        let found = self.expect(name)?;
        let (tail, file_type, name) = (self.has_tail(), self.entry_type(file_type), found.stored_as(name));
        let EntryLocation::Block(block, _) = &found.place else {
            return self.change_inline(handle, |entries| entries.set_inode(name, ino, file_type)).map(drop);
        };
        let set = |bytes: &mut [u8]| dir_entry::set_inode(bytes, tail, name, ino, file_type);
        self.checked(handle.change(block, set)).map(drop)
    }

    /// Returns the place of an entry that was found before under the same lock.
    fn expect(&self, name: &[u8]) -> Result<Found> {
        self.find(name)?.ok_or_else(|| self.corrupt(format_args!("the entry {:?} is lost", printable(name))))
    }

    /// Returns true if the directory has no entries except `.` and `..`.
    pub(super) fn is_empty(&self) -> Result<bool> {
        if let Some(is_empty) = self.is_empty_inline()? {
            return Ok(is_empty);
        }
        self.check_end()?;
        let tail = self.has_tail();
        if !self.is_searched_by_hash() {
            for n in self.blocks()?.blocks() {
                let Some(block) = self.read_names(n)? else { continue };
                if !self.checked(dir_entry::is_empty_dir_block(&block.snapshot(), tail))? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let mut walk = Walk::to(*self, |_| 0)?;
        loop {
            let bytes = walk.leaf()?.snapshot();
            if !self.checked(dir_entry::is_empty_dir_block(&bytes, tail))? {
                return Ok(false);
            }
            if walk.advance()?.is_none() {
                return Ok(true);
            }
        }
    }
}

impl InodeRef {
    /// Returns the inode that `name` names in this directory. `.` and `..` are permitted.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::Error;
    ///
    /// let dir = root.lookup(b"lost+found")?;
    /// assert_eq!(dir.lookup(b"..")?.ino(), root.ino());
    /// assert!(matches!(dir.lookup(b"missing"), Err(Error::NotFound(_))));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`]; [`Error::Invalid`] or [`Error::NameTooLong`]
    /// if no entry can have that name.
    pub fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        let dir = self.dir()?;
        let special = matches!(name, b"." | b"..");
        if !special {
            check_name(name)?;
        }
        let _entries = self.inode.read_entries();
        dir.check_alive()?;
        match name {
            b"." => Ok(self.clone()),
            b".." => dir.inode_ref(dir.parent()?),
            _ => match dir.find(name)? {
                Some(found) => dir.inode_ref(found.ino),
                None => Err(Error::NotFound(printable(name))),
            },
        }
    }
}
