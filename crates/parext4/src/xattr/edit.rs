//! An edit of one inode's attributes: reads them into two lists, by where they are stored, and
//! computes the change.
//!
//! Changes nothing on the volume; that is done by `change`.

use parext4_format::inode::Inode as RawInode;
use parext4_format::xattr::{self, Xattr};
use parext4_format::{FormatError, FsBlock};

use super::XattrChange;
use super::change::BlockChange;
use super::storage::Storage;
use super::values::ValueChanges;
use crate::engine::{Engine, EngineRef};
use crate::error::{Error, Result};
use crate::inode::Inode;

/// The most bytes of the block that values leave to entries (`EXT4_XATTR_BLOCK_RESERVE`).
const MOST_RESERVED: usize = 1024;

/// The attributes of an inode, with changes that were not carried out yet.
#[derive(Clone, Debug)]
pub(crate) struct XattrEdit {
    /// The attributes in the inode, after its fields.
    pub(super) body: Storage,
    /// The attributes in the block.
    pub(super) block: Storage,
    /// Whether the inode is a symbolic link with its target. If it has blocks, but none for
    /// attributes, then e2fsck takes the target for the blocks of a longer one.
    has_target: bool,
}

impl XattrEdit {
    /// Reads the attributes of an inode, for [`XattrsLock::load`](super::XattrsLock::load).
    pub(super) fn load(engine: &Engine, inode: &Inode) -> Result<Self> {
        let block = FsBlock(inode.core().file_acl);
        Self::parse(engine, inode).map_err(|error| engine.health().note((inode.ino(), block), error))
    }

    fn parse(engine: &Engine, inode: &Inode) -> Result<Self> {
        let corrupt = |error: FormatError| error.of_inode(inode.ino());
        let (body, len, number) = {
            let core = inode.core();
            let area = core.xattr_area();
            (xattr::parse_ibody(area).map_err(corrupt)?, area.len(), FsBlock(core.file_acl))
        };
        let mut block = Vec::new();
        if number.get() != 0 {
            let bytes = engine.xattr_block(number)?.snapshot();
            block = xattr::parse_block(&bytes, number, None).map_err(corrupt)?;
        }
        Ok(Self {
            body: Storage::new(body, len),
            block: Storage::new(block, engine.layout().block_size.bytes() as usize),
            has_target: inode.core().is_fast_symlink(),
        })
    }

    /// Returns an edit of an inode that is about to be created and has no attributes.
    pub(crate) fn new(raw: &RawInode, engine: &Engine) -> Self {
        let block_len = engine.layout().block_size.bytes() as usize;
        Self {
            body: Storage::new(Vec::new(), raw.xattr_area().len()),
            block: Storage::new(Vec::new(), block_len),
            has_target: raw.is_fast_symlink(),
        }
    }

    /// Returns all attributes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Xattr> {
        self.body.list.iter().chain(&self.block.list)
    }

    /// Returns the number of values that have inodes of their own.
    pub(crate) fn value_count(&self) -> u64 {
        self.iter().filter(|xattr| xattr.value.inode().is_some()).count() as u64
    }

    /// Returns an attribute.
    pub(super) fn get(&self, index: u8, name: &[u8]) -> Option<&Xattr> {
        self.body.get(index, name).or_else(|| self.block.get(index, name))
    }

    /// Removes an attribute. Returns false if there was none of this name.
    pub(crate) fn remove(&mut self, index: u8, name: &[u8]) -> bool {
        let (in_body, in_block) = (self.body.remove(index, name), self.block.remove(index, name));
        in_body || in_block
    }

    /// Sets an attribute: in the inode if it has room, and in the block otherwise, as the kernel
    /// does. A value with an inode of its own, which counts as blocks of the owner, needs a block
    /// of attributes if the owner is a short symbolic link.
    pub(crate) fn put(&mut self, xattr: Xattr) {
        self.remove(xattr.name_index, &xattr.name);
        let needs_block = self.has_target && xattr.value.inode().is_some();
        self.body.list.push(xattr);
        if !needs_block && xattr::encode_ibody(&self.body.list, self.body.len).is_some() {
            self.body.changed = true;
        } else {
            self.block.list.extend(self.body.list.pop());
            self.block.changed = true;
        }
    }

    /// Returns false if [`put`](Self::put) has stored an attribute in the block, and the values
    /// there leave too little of the block to entries. `before` is the edit before `put`. As in the
    /// kernel, a value may replace one of the same padded length in any case.
    pub(super) fn keeps_room_for_entries(&self, before: &Self, index: u8, name: &[u8]) -> bool {
        let value_len = |edit: &Self| edit.block.get(index, name).map_or(0, |xattr| xattr.value.padded_len());
        let len = value_len(self);
        if len == 0 || len == value_len(before) {
            return true;
        }
        let values: usize = self.block.list.iter().map(|xattr| xattr.value.padded_len()).sum();
        values + (self.block.len / 8).min(MOST_RESERVED) <= self.block.len
    }

    /// Returns the change to be carried out for inode `owner`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the attributes do not fit. Corruption.
    pub(crate) fn finish(self, engine: &EngineRef, owner: &Inode) -> Result<XattrChange> {
        if self.body.changed && xattr::encode_ibody(&self.body.list, self.body.len).is_none() {
            return Err(Error::NoSpace);
        }
        let block = match (self.block.changed, self.block.list.is_empty()) {
            (false, _) => BlockChange::Keep,
            (true, true) => BlockChange::Drop,
            (true, false) => {
                let bytes = xattr::encode_block(&self.block.list, self.block.len);
                BlockChange::Write(bytes.ok_or(Error::NoSpace)?)
            }
        };
        let values = ValueChanges::new(engine, owner, &self.body, &self.block)?;
        let body = self.body.changed.then_some(self.body.list);
        Ok(XattrChange { body, block, values })
    }
}
