//! Adding an entry to a directory.
//!
//! Responsible for planning and applying an insertion. Not responsible for the inode. Invariant:
//! without space, an insertion changes nothing.
//!
//! 1. The insertion is planned before the journal handle begins: the directory's blocks are read,
//!    and new blocks are counted.
//! 2. Under the handle, all new blocks are allocated at once. If that fails, nothing has changed.
//! 3. The entry is added. This can fail only because of corruption.
//!
//! As in `ext4_add_entry`: entries in the inode move to a block when it is full, a full leaf splits
//! at a median hash, a full node in the middle, a full root grows one level, and a directory that
//! outgrows one block becomes a hash tree.

use parext4_format::htree::{self, DxEntry};
use parext4_format::inode::{FileType, InodeFlags};
use parext4_format::{BlockRange, FileBlock, InodeNo, dir_entry};

use super::dir::Dir;
use super::htree::{Frame, Walk};
use super::index::{IndexInsertion, MAX_CHANGED};
use super::split::{Halves, Named, collect, halve, pack, total_size};
use crate::error::Result;
use crate::journal::Handle;
use crate::meta::MetaBlock;
use crate::sync::Arc;

/// Maximum number of directory blocks that an insertion changes: two leaves, and the index.
const INSERT_BLOCKS: u32 = 2 + MAX_CHANGED;

/// A planned insertion. Valid while the directory's lock is held and no other change is made.
#[derive(Debug)]
pub(super) struct Insertion<'a> {
    dir: Dir<'a>,
    name: &'a [u8],
    place: InsertAt,
    /// The file block after the directory's last one.
    end: FileBlock,
}

#[derive(Debug)]
enum InsertAt {
    /// The inode has room.
    Inode,
    /// The block has room after or in the entry at this offset.
    Room(Arc<MetaBlock>, usize),
    /// The leaf has room once its entries are packed.
    Repack(Arc<MetaBlock>, Vec<Named>),
    /// A linear directory gets another block.
    Append,
    /// A linear directory of one block becomes a hash tree.
    Convert { block: Arc<MetaBlock>, parent: InodeNo, leaves: Leaves },
    /// A leaf of a hash tree is split.
    Split { leaf: Arc<MetaBlock>, halves: Halves, index: IndexInsertion },
}

#[derive(Debug)]
enum Leaves {
    One(Vec<Named>),
    Two(Halves),
}

impl<'a> Dir<'a> {
    /// Plans the insertion of `name`. The directory has no entry of that name.
    ///
    /// # Errors
    /// [`Error::NoKey`](crate::Error::NoKey) if the names are encrypted;
    /// [`Error::NoSpace`](crate::Error::NoSpace) if the index is full.
    pub(super) fn plan_insertion(self, name: &'a [u8]) -> Result<Insertion<'a>> {
        self.inode.check_key()?;
        if self.make_inline_room(name.len())? {
            return Ok(Insertion { dir: self, name, place: InsertAt::Inode, end: FileBlock::ZERO });
        }
        let place = if self.is_indexed() { self.place_hashed(name)? } else { self.place_linear(name)? };
        let insertion = Insertion { dir: self, name, place, end: self.end()? };
        if insertion.new_blocks() > 0 {
            self.check_end()?;
        }
        Ok(insertion)
    }

    fn room(&self, block: &MetaBlock, name: &[u8]) -> Result<Option<usize>> {
        self.checked(dir_entry::find_room(&block.snapshot(), self.has_tail(), name.len()))
    }

    fn place_linear(&self, name: &[u8]) -> Result<InsertAt> {
        let blocks = self.blocks()?;
        for n in blocks.blocks() {
            let block = self.read(n)?;
            if let Some(offset) = self.room(&block, name)? {
                return Ok(InsertAt::Room(block, offset));
            }
        }
        let gets_index =
            blocks.len() == 1 && self.may_index() && !self.engine.allocator().packs_directories();
        if gets_index { self.place_converted(name) } else { Ok(InsertAt::Append) }
    }

    fn place_converted(&self, name: &[u8]) -> Result<InsertAt> {
        let (block, hash) = (self.read(FileBlock::ZERO)?, self.default_hash()?);
        let bytes = block.snapshot();
        // The root contains only `.` and `..`, and they come first.
        for (at, expected) in [&b"."[..], b".."].into_iter().enumerate() {
            let entry = dir_entry::entries(&bytes, self.has_tail()).nth(at).transpose();
            if self.checked(entry)?.is_none_or(|entry| entry.ino.get() == 0 || entry.name != expected) {
                return Err(self.corrupt("the first block does not start with \".\" and \"..\""));
            }
        }
        let mut list = collect(self, &bytes, &hash)?;
        list.push(new_entry(hash.hash(name).0, name));
        let leaves = match total_size(&list) <= self.usable_len() {
            true => Leaves::One(list),
            false => Leaves::Two(halve(list)),
        };
        Ok(InsertAt::Convert { block, parent: self.parent()?, leaves })
    }

    fn place_hashed(&self, name: &[u8]) -> Result<InsertAt> {
        let mut major = 0;
        let mut walk = Walk::to(*self, |hash| {
            major = hash.hash(name).0;
            major
        })?;
        let leaf = walk.leaf()?;
        if let Some(offset) = self.room(&leaf, name)? {
            return Ok(InsertAt::Room(leaf, offset));
        }
        let mut list = collect(self, &leaf.snapshot(), &walk.leaf_hash())?;
        list.push(new_entry(major, name));
        if total_size(&list) <= self.usable_len() {
            return Ok(InsertAt::Repack(leaf, list));
        }
        let halves = halve(list);
        self.check_between(walk.bottom(), halves.hash)?;
        let index = IndexInsertion::plan(walk, self.max_levels())?;
        Ok(InsertAt::Split { leaf, halves, index })
    }

    /// Checks that a leaf's names belong to it, so that its second half starts between its
    /// neighbours.
    fn check_between(&self, frame: &Frame, hash: u32) -> Result<()> {
        let low = frame.entries.get(frame.at).map_or(0, |entry| entry.hash);
        let high = frame.entries.get(frame.at + 1).map_or(u32::MAX, |entry| entry.hash);
        if (low..=high).contains(&hash) {
            return Ok(());
        }
        Err(self.corrupt(format_args!("a leaf of hashes {low:#x} to {high:#x} has a name of {hash:#x}")))
    }
}

fn new_entry(hash: u32, name: &[u8]) -> Named {
    Named { hash, ino: InodeNo(0), file_type: 0, name: name.to_vec() }
}

impl Insertion<'_> {
    /// Returns the number of blocks by which the directory grows.
    fn new_blocks(&self) -> u32 {
        match &self.place {
            InsertAt::Inode | InsertAt::Room(..) | InsertAt::Repack(..) => 0,
            InsertAt::Append | InsertAt::Convert { leaves: Leaves::One(_), .. } => 1,
            InsertAt::Convert { leaves: Leaves::Two(_), .. } => 2,
            InsertAt::Split { index, .. } => 1 + index.new_blocks(),
        }
    }

    /// Returns the number of blocks that the insertion registers, including the directory's inode.
    pub(super) fn credits(&self) -> Result<u32> {
        let grows = self.new_blocks() > 0;
        let map = if grows { self.dir.engine.map_credits(self.dir.inode)? } else { 0 };
        Ok(INSERT_BLOCKS + 1 + map)
    }

    /// Allocates the blocks of the insertion, all or none.
    pub(super) fn allocate(&self, handle: &Handle<'_>) -> Result<()> {
        match self.new_blocks() {
            0 => Ok(()),
            count => self.dir.map_blocks(handle, BlockRange::starting_at(self.end).take(count)),
        }
    }

    /// Frees the blocks that [`allocate`](Self::allocate) allocated.
    pub(super) fn free_blocks(&self, handle: &Handle<'_>) -> Result<()> {
        match self.new_blocks() {
            0 => Ok(()),
            _ => self.dir.unmap(handle, self.end),
        }
    }

    /// Adds the entry. Joins the directory.
    pub(super) fn apply(&self, handle: &Handle<'_>, ino: InodeNo, file_type: FileType) -> Result<()> {
        self.dir.inode.join(handle);
        if !self.dir.may_index() {
            // An existing index would not include the new entry.
            self.dir.inode.core().flags.remove(InodeFlags::INDEX);
        }
        let new = (ino, self.dir.entry_type(file_type));
        match &self.place {
            InsertAt::Inode => self.insert_into_inode(handle, new),
            InsertAt::Room(block, offset) => self.insert_into(handle, block, *offset, new),
            InsertAt::Repack(leaf, list) => self.repack(handle, leaf, list, new),
            InsertAt::Append => {
                let (tail, name) = (self.dir.has_tail(), self.name);
                self.dir.init_block(handle, self.end, |bytes| {
                    dir_entry::init_block(bytes, tail);
                    dir_entry::insert(bytes, tail, new.0, new.1, name).map(drop)
                })
            }
            InsertAt::Convert { block, parent, leaves } => self.convert(handle, block, *parent, leaves, new),
            InsertAt::Split { leaf, halves, index } => {
                self.new_leaf(handle, self.end, &halves.high, new)?;
                self.repack(handle, leaf, &halves.low, new)?;
                let entry = DxEntry { hash: halves.hash, block: self.end };
                index.apply(self.dir, handle, entry, self.end + 1)
            }
        }
    }

    fn insert_into_inode(&self, handle: &Handle<'_>, (ino, file_type): (InodeNo, u8)) -> Result<()> {
        match self.dir.change_inline(handle, |entries| entries.insert(ino, file_type, self.name))? {
            true => Ok(()),
            false => Err(self.dir.corrupt("the inode lost its room")),
        }
    }

    fn insert_into(
        &self,
        handle: &Handle<'_>,
        block: &Arc<MetaBlock>,
        offset: usize,
        new: (InodeNo, u8),
    ) -> Result<()> {
        let (tail, name) = (self.dir.has_tail(), self.name);
        let insert = |bytes: &mut [u8]| dir_entry::insert_at(bytes, tail, offset, new.0, new.1, name);
        match self.dir.checked(handle.change(block, insert))? {
            true => Ok(()),
            false => Err(self.dir.corrupt("a block lost its room")),
        }
    }

    fn repack(
        &self,
        handle: &Handle<'_>,
        leaf: &Arc<MetaBlock>,
        list: &[Named],
        new: (InodeNo, u8),
    ) -> Result<()> {
        let tail = self.dir.has_tail();
        self.dir.checked(handle.change(leaf, |bytes| pack(bytes, tail, list, new.0, new.1)))
    }

    fn new_leaf(&self, handle: &Handle<'_>, n: FileBlock, list: &[Named], new: (InodeNo, u8)) -> Result<()> {
        let tail = self.dir.has_tail();
        self.dir.init_block(handle, n, |bytes| pack(bytes, tail, list, new.0, new.1))
    }

    /// Converts block 0 to the root of a hash tree (`make_indexed_dir`).
    fn convert(
        &self,
        handle: &Handle<'_>,
        block: &Arc<MetaBlock>,
        parent: InodeNo,
        leaves: &Leaves,
        new: (InodeNo, u8),
    ) -> Result<()> {
        let mut entries = vec![DxEntry { hash: 0, block: self.end }];
        match leaves {
            Leaves::One(list) => self.new_leaf(handle, self.end, list, new)?,
            Leaves::Two(Halves { low, high, hash }) => {
                self.new_leaf(handle, self.end, low, new)?;
                self.new_leaf(handle, self.end + 1, high, new)?;
                entries.push(DxEntry { hash: *hash, block: self.end + 1 });
            }
        }
        let (dir, tail, has_types) = (self.dir.inode, self.dir.has_tail(), self.dir.has_types());
        let version = self.dir.engine.superblock().default_hash_version();
        handle.change(block, |bytes| {
            htree::init_root(bytes, tail, dir.ino(), parent, version, 0, &entries);
            if !has_types {
                dir_entry::clear_dot_types(bytes);
            }
        });
        dir.core().flags.insert(InodeFlags::INDEX);
        Ok(())
    }
}
