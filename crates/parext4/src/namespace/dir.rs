//! A directory as a sequence of blocks.

use parext4_format::features::{Compat, Incompat};
use parext4_format::htree::DxRoot;
use parext4_format::inode::{FileType, InodeFlags};
use parext4_format::{BlockRange, FileBlock, InodeNo, dir_entry, htree};

use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode_ref::InodeRef;
use crate::journal::Handle;
use crate::mapping::BlockState;
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Arc;

/// The most blocks that a directory can have past its end: the superblock's field
/// (`s_prealloc_dir_blocks`) has 8 bits.
const MAX_PAST_END: u32 = u8::MAX as u32;

/// The blocks of a directory. A user holds the directory's `entries` lock: shared to read,
/// exclusive to change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dir<'a> {
    pub engine: &'a EngineRef,
    pub inode: &'a Arc<Inode>,
}

impl InodeRef {
    /// Returns the node's blocks as a directory.
    ///
    /// # Errors
    /// If it is no directory, or if the volume is closed.
    pub(super) fn dir(&self) -> Result<Dir<'_>> {
        self.engine.in_flight().check_open()?;
        self.as_dir()
    }

    /// Like [`dir`](Self::dir), for an operation that has begun: one that has changed something
    /// must not fail because the volume is being closed.
    pub(super) fn as_dir(&self) -> Result<Dir<'_>> {
        if !self.inode.is_dir() {
            return Err(Error::NotDirectory(format!("inode {}", self.ino())));
        }
        Ok(Dir { engine: &self.engine, inode: &self.inode })
    }
}

impl<'a> Dir<'a> {
    /// Returns a directory that is being created.
    pub(super) fn new(engine: &'a EngineRef, inode: &'a Arc<Inode>) -> Self {
        Self { engine, inode }
    }

    /// Returns true if the directory was removed. It then has no entries, and gets none.
    pub(super) fn is_removed(&self) -> bool {
        self.inode.core().links == 0
    }

    /// Returns an error if the directory was removed.
    pub(super) fn check_alive(&self) -> Result<()> {
        if self.is_removed() {
            return Err(Error::NotFound(format!("directory inode {} was removed", self.inode.ino())));
        }
        Ok(())
    }

    /// Returns true if its blocks end in a checksum tail.
    pub(super) fn has_tail(&self) -> bool {
        self.engine.layout().has_dir_tail()
    }

    /// Returns the size of a block in bytes.
    pub(super) fn block_len(&self) -> usize {
        self.engine.layout().block_size.bytes() as usize
    }

    /// Returns the number of bytes of a block that entries may use.
    pub(super) fn usable_len(&self) -> usize {
        dir_entry::usable_len(self.block_len(), self.has_tail())
    }

    fn kind(&self) -> BlockKind {
        BlockKind::Directory(self.inode.ino(), self.inode.seed())
    }

    /// Returns the error of a failed check, with the directory's inode. The check is recorded under
    /// the caller's location.
    #[track_caller]
    pub(super) fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        let error = Error::corrupt(format_args!("directory inode {}: {what}", self.inode.ino()));
        self.engine.health().note(self.inode.ino(), error)
    }

    /// Returns the result of a parse. An error gets the directory's inode.
    #[track_caller]
    pub(super) fn checked<T>(&self, result: parext4_format::Result<T>) -> Result<T> {
        match result {
            Ok(parsed) => Ok(parsed),
            Err(error) => Err(self.corrupt(error)),
        }
    }

    /// Returns the blocks of the directory.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub(super) fn blocks(&self) -> Result<BlockRange> {
        Ok(BlockRange::clamped(0, self.end()?.to_u64()))
    }

    /// Returns the file block after the last one of the directory.
    ///
    /// # Errors
    /// Corruption, if the size is not a number of blocks that the volume can have: a directory has
    /// no holes.
    pub(super) fn end(&self) -> Result<FileBlock> {
        let (size, block_size) = (self.inode.size(), self.engine.block_size());
        let blocks = size / block_size;
        if !size.is_multiple_of(block_size) || !(1..=self.engine.layout().blocks_count).contains(&blocks) {
            return Err(self.corrupt(format_args!("i_size {size} is no number of blocks of the volume")));
        }
        FileBlock::from_u64(blocks).ok_or_else(|| self.corrupt(format_args!("i_size {size} is out of range")))
    }

    /// Checks that no block is mapped after the last one. The kernel and this engine find no names
    /// there, but e2fsck does if the superblock permits such blocks.
    ///
    /// # Errors
    /// Corruption, if a block is mapped there.
    pub(super) fn check_end(&self) -> Result<()> {
        let past = BlockRange::starting_at(self.end()?).take(MAX_PAST_END);
        for run in self.engine.block_map(self.inode)?.runs(past) {
            let run = run?;
            if !matches!(run.state, BlockState::Hole) {
                return Err(self.corrupt(format_args!("block {} past its end is mapped", run.logical)));
            }
        }
        Ok(())
    }

    /// Reads block `n` of the directory.
    pub(super) fn read(&self, n: FileBlock) -> Result<Arc<MetaBlock>> {
        match self.engine.block_map(self.inode)?.state_of(n)? {
            BlockState::Written(block) => {
                let read = self.engine.cache().read(block, self.kind());
                read.map_err(|error| self.engine.health().note((self.inode.ino(), block), error))
            }
            _ => Err(self.corrupt(format_args!("block {n} is a hole"))),
        }
    }

    /// Returns the file type that an entry of the directory stores: 0 without the feature
    /// `filetype`.
    pub(super) fn entry_type(&self, file_type: FileType) -> u8 {
        if self.has_types() { file_type.dirent_type() } else { 0 }
    }

    /// Returns true if entries store the type of their file.
    pub(super) fn has_types(&self) -> bool {
        self.engine.superblock().incompat().contains(Incompat::FILETYPE)
    }

    /// Reads block `n` of a directory that is searched block by block. `None` for an index block,
    /// which has no names.
    pub(super) fn read_names(&self, n: FileBlock) -> Result<Option<Arc<MetaBlock>>> {
        let block = self.read(n)?;
        let is_index = self.is_indexed() && (n == FileBlock::ZERO || htree::is_dx_block(&block.snapshot()));
        Ok((!is_index).then_some(block))
    }

    /// Returns true if the volume creates hash trees for large directories.
    pub(super) fn may_index(&self) -> bool {
        self.engine.superblock().compat().contains(Compat::DIR_INDEX)
    }

    /// Returns true if the volume has large directories (`large_dir`).
    fn is_large(&self) -> bool {
        self.engine.superblock().incompat().contains(Incompat::LARGEDIR)
    }

    /// Returns the maximum number of levels of nodes of a hash tree.
    pub(super) fn max_levels(&self) -> u8 {
        htree::max_indirect_levels(self.is_large())
    }

    /// Parses the root of the hash tree.
    #[track_caller]
    pub(super) fn root(&self, bytes: &[u8]) -> Result<DxRoot> {
        let root = self.checked(htree::parse_root(bytes, self.has_tail()))?;
        if root.indirect_levels > self.max_levels() {
            let levels = root.indirect_levels;
            return Err(
                self.corrupt(format_args!("dx_root: indirect_levels: {levels} levels need large_dir"))
            );
        }
        Ok(root)
    }

    /// Returns true if the directory is a hash tree.
    pub(super) fn is_indexed(&self) -> bool {
        let flags = self.inode.core().flags;
        self.may_index() && flags.contains(InodeFlags::INDEX) && !flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Returns the inode that `..` names.
    pub(super) fn parent(&self) -> Result<InodeNo> {
        if let Some(image) = self.inline_image()? {
            return self.parent_in(&image, false);
        }
        let bytes = self.read(FileBlock::ZERO)?.snapshot();
        if self.is_indexed() {
            self.root(&bytes)?;
            return Ok(htree::parent_of_root(&bytes));
        }
        self.parent_in(&bytes, self.has_tail())
    }

    fn parent_in(&self, block: &[u8], tail: bool) -> Result<InodeNo> {
        let entry = self.checked(dir_entry::find(block, tail, b".."))?;
        entry.map(|(entry, _)| entry.ino).ok_or_else(|| self.corrupt("there is no \"..\""))
    }

    /// Points `..` at another directory. Registers block 0.
    pub(super) fn set_parent(&self, handle: &Handle<'_>, parent: InodeNo) -> Result<()> {
        // Also checks that there is a `..` to change.
        self.parent()?;
        if self.engine.block_map(self.inode)?.is_inline() {
            return self.change_inline(handle, |entries| {
                entries.set_parent(parent);
                Ok(())
            });
        }
        let (block, tail) = (self.read(FileBlock::ZERO)?, self.has_tail());
        if self.is_indexed() {
            handle.change(&block, |bytes| htree::set_parent(bytes, parent));
            return Ok(());
        }
        let file_type = self.entry_type(FileType::Directory);
        let set = |bytes: &mut [u8]| dir_entry::set_inode(bytes, tail, b"..", parent, file_type);
        self.checked(handle.change(&block, set)).map(drop)
    }

    /// Maps `blocks`, all or none. They are past the directory's size until
    /// [`init_block`](Self::init_block) fills them or [`unmap`](Self::unmap) frees them.
    pub(super) fn map_blocks(&self, handle: &Handle<'_>, blocks: BlockRange) -> Result<()> {
        // Without `large_dir` the size of a directory has 32 bits.
        let max =
            if self.is_large() { htree::MAX_DIR_BLOCKS } else { (1 << 32) / self.engine.block_size() - 1 };
        if blocks.end() > max {
            return Err(Error::NoSpace);
        }
        let credentials = self.engine.credentials();
        let got = self.engine.add_blocks(handle, self.inode, blocks, true, credentials)?;
        if got < blocks.count() {
            self.unmap(handle, blocks.start())?;
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Unmaps and frees the blocks from `first` on that [`map_blocks`](Self::map_blocks) mapped.
    pub(super) fn unmap(&self, handle: &Handle<'_>, first: FileBlock) -> Result<()> {
        let tail = BlockRange::starting_at(first);
        while !self.engine.remove_tail(handle, self.inode, tail)? {}
        Ok(())
    }

    /// Fills a block mapped by [`map_blocks`](Self::map_blocks), and raises the size to cover it.
    /// Blocks are filled in ascending order. The directory has joined the handle.
    pub(super) fn init_block(
        &self,
        handle: &Handle<'_>,
        n: FileBlock,
        fill: impl FnOnce(&mut [u8]) -> parext4_format::Result<()>,
    ) -> Result<()> {
        let BlockState::Written(block) = self.engine.block_map(self.inode)?.state_of(n)? else {
            return Err(self.corrupt(format_args!("block {n} is not mapped as written")));
        };
        let block = self.engine.cache().create(block, self.kind())?;
        self.checked(handle.change(&block, fill))?;
        self.inode.set_size((n.to_u64() + 1) * self.engine.block_size());
        Ok(())
    }
}
