//! Finding, changing and removing an entry of a directory.

use parext4_format::InodeNo;
use parext4_format::dir_entry::{self, EntryPosition};
use parext4_format::inode::FileType;

use super::dir::Dir;
use super::htree::Walk;
use super::{check_name, printable};
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::meta::MetaBlock;
use crate::node::Node;
use crate::sync::Arc;

/// The place of an entry.
#[derive(Debug)]
pub(super) struct Found {
    pub ino: InodeNo,
    place: Place,
}

/// Where an entry is.
#[derive(Debug)]
enum Place {
    Block(Arc<MetaBlock>, EntryPosition),
    Inode,
}

impl Dir<'_> {
    /// Returns the place of the entry `name`, which is neither `.` nor `..`.
    pub(super) fn find(&self, name: &[u8]) -> Result<Option<Found>> {
        if let Some(image) = self.inline_image()? {
            let entry = self.checked(dir_entry::find(&image, false, name))?;
            return Ok(entry.map(|(entry, _)| Found { ino: entry.ino, place: Place::Inode }));
        }
        if self.is_indexed() { self.find_hashed(name) } else { self.find_linear(name) }
    }

    fn find_in(&self, block: Arc<MetaBlock>, name: &[u8]) -> Result<Option<Found>> {
        let bytes = block.snapshot();
        let entry = self.checked(dir_entry::find(&bytes, self.has_tail(), name))?;
        Ok(entry.map(|(entry, position)| Found { ino: entry.ino, place: Place::Block(block, position) }))
    }

    fn find_linear(&self, name: &[u8]) -> Result<Option<Found>> {
        for n in self.blocks()?.blocks() {
            if let Some(found) = self.find_in(self.read(n)?, name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find_hashed(&self, name: &[u8]) -> Result<Option<Found>> {
        let mut major = 0;
        let mut walk = Walk::to(*self, |hash| {
            major = hash.hash(name).0;
            major
        })?;
        loop {
            if let Some(found) = self.find_in(walk.leaf()?, name)? {
                return Ok(Some(found));
            }
            // Names of one hash may continue in the next leaf. Bit 0 of its hash is then set.
            if walk.advance()? != Some(major | 1) {
                return Ok(None);
            }
        }
    }

    /// Returns the inode that an entry names. The caller holds the directory's lock, so the entry keeps the inode.
    pub(super) fn node(&self, ino: InodeNo) -> Result<Node> {
        let superblock = &self.engine.superblock;
        let own = (ino.get() < self.engine.layout.first_inode && ino != InodeNo::ROOT)
            || ino.get() == superblock.orphan_file_inode();
        if own {
            return Err(self.corrupt(format_args!("an entry names inode {ino} of the file system itself")));
        }
        let inode = self.engine.inode(ino)?;
        if inode.core().links == 0 {
            return Err(self.corrupt(format_args!("an entry names inode {ino}, which has no links")));
        }
        Ok(Node::new(self.engine, inode))
    }

    /// Removes the entry `name`. Registers one block.
    pub(super) fn remove(&self, handle: &Handle<'_>, name: &[u8]) -> Result<()> {
        self.remove_found(handle, name, &self.expect(name)?)
    }

    /// Like [`remove`](Self::remove), for an entry found under the same lock. The entry has not moved since.
    pub(super) fn remove_found(&self, handle: &Handle<'_>, name: &[u8], found: &Found) -> Result<()> {
        let Place::Block(block, position) = &found.place else {
            return self.change_inline(handle, |entries| entries.remove(name)).map(drop);
        };
        let tail = self.has_tail();
        let remove = |bytes: &mut [u8]| dir_entry::remove_at(bytes, tail, *position, name);
        self.checked(handle.change(block, remove)).map(drop)
    }

    /// Points the entry `name` at another inode. Registers one block.
    pub(super) fn replace(
        &self,
        handle: &Handle<'_>,
        name: &[u8],
        ino: InodeNo,
        file_type: FileType,
    ) -> Result<()> {
        let (file_type, tail) = (file_type.dirent_type(), self.has_tail());
        let Place::Block(block, _) = self.expect(name)?.place else {
            return self.change_inline(handle, |entries| entries.set_inode(name, ino, file_type)).map(drop);
        };
        let set = |bytes: &mut [u8]| dir_entry::set_inode(bytes, tail, name, ino, file_type);
        self.checked(handle.change(&block, set)).map(drop)
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
        let tail = self.has_tail();
        if !self.is_indexed() {
            for n in self.blocks()?.blocks() {
                let bytes = self.read(n)?.snapshot();
                if !self.checked(dir_entry::is_empty_dir_block(&bytes, tail))? {
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

impl Node {
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
    /// [`Error::NotFound`], [`Error::NotDirectory`]; [`Error::Invalid`] or [`Error::NameTooLong`] if no entry can have that name.
    pub fn lookup(&self, name: &[u8]) -> Result<Node> {
        let dir = self.dir()?;
        let special = matches!(name, b"." | b"..");
        if !special {
            check_name(name)?;
        }
        let _entries = self.inode.entries.read();
        dir.check_alive()?;
        match name {
            b"." => Ok(self.clone()),
            b".." => dir.node(dir.parent()?),
            _ => match dir.find(name)? {
                Some(found) => dir.node(found.ino),
                None => Err(Error::NotFound(printable(name))),
            },
        }
    }
}
