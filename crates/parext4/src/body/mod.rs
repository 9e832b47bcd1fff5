//! The body of a file: where its blocks are.
//!
//! Responsible for choosing the format of the body by the inode's flags, and for answering what modules above ask of any
//! format. Not responsible for adding and removing blocks: [`body_update`](crate::body_update) does that. Only these two
//! modules use [`extent_map`](crate::extent_map), so a format is added here, and the compiler lists each place that
//! depends on the format.

use parext4_format::inode::InodeFlags;
use parext4_format::{BlockRange, BlockSize, ChecksumSeed, FileBlock, InodeNo};

use crate::error::{Error, Result};
use crate::extent_map::{ExtentMap, Writer};
use crate::layout::Layout;
use crate::mapping::{Mapping, State};
use crate::meta::{BlockKind, MetaCache};

/// The body of one file, in memory.
#[derive(Debug)]
pub(crate) enum Body {
    /// A tree of extents.
    Extents(ExtentMap),
}

/// The fields of an inode from which its body is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyRoot {
    pub ino: InodeNo,
    /// Checksum seed of the inode's own blocks, with `metadata_csum`.
    pub seed: Option<ChecksumSeed>,
    pub flags: InodeFlags,
    /// `i_block`.
    pub block: [u8; 60],
}

/// A body whose mapping does not change while the value lives, except that unwritten blocks may become written.
#[derive(Debug)]
#[must_use]
pub(crate) enum LockedBody<'a> {
    Extents(Writer<'a>),
}

impl Body {
    /// Returns the empty body of a new file, whose flags then contain [`InodeFlags::EXTENTS`].
    pub(crate) fn empty(block_size: BlockSize, ino: InodeNo, seed: Option<ChecksumSeed>) -> Self {
        Self::Extents(ExtentMap::empty(block_size, BlockKind::ExtentNode(ino, seed)))
    }

    /// Reads the body of an inode. With `disjoint`, a block that is used twice is reported as corruption: a write to it
    /// would change another place of the file.
    ///
    /// # Errors
    /// Returns an error for corruption, for a failed read, and for a format that is not supported.
    pub(crate) fn load(root: &BodyRoot, layout: &Layout, cache: &MetaCache, disjoint: bool) -> Result<Self> {
        if !root.flags.contains(InodeFlags::EXTENTS) {
            return Err(Error::Unsupported(format!("inode {}: a file mapped by indirect blocks", root.ino)));
        }
        let kind = BlockKind::ExtentNode(root.ino, root.seed);
        let map = ExtentMap::load(&root.block, layout, kind, cache, disjoint);
        map.map(Self::Extents).map_err(|error| error.of_inode(root.ino))
    }

    /// Returns the state of `block`. Acquires no lock, except the first time that a block near it is looked up.
    #[inline]
    pub(crate) fn state_of(&self, block: FileBlock) -> State {
        self.lookup(block, 1).state
    }

    /// Returns the mapping of `block` and of blocks after it in the same state, at most `max` blocks. The run may continue
    /// after the returned part. Locks like [`state_of`](Self::state_of).
    #[inline]
    pub(crate) fn lookup(&self, block: FileBlock, max: u32) -> Mapping {
        match self {
            Self::Extents(map) => map.lookup(block, max),
        }
    }

    /// Returns the runs that cover `blocks`, in ascending order. Locks like [`state_of`](Self::state_of).
    #[inline]
    pub(crate) fn runs(&self, blocks: BlockRange) -> impl Iterator<Item = Mapping> {
        match self {
            Self::Extents(map) => map.runs(blocks),
        }
    }

    /// Returns the number of the file block after the last one that is mapped, 0 if none is.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        match self {
            Self::Extents(map) => map.last().map_or(0, |last| last.end()),
        }
    }

    /// Returns the blocks around the unwritten `block` that a conversion may include without splitting what maps them.
    pub(crate) fn unwritten_around(&self, block: FileBlock) -> BlockRange {
        match self {
            Self::Extents(map) => map.unwritten_around(block),
        }
    }

    /// Returns the maximum number of new blocks that converting one range of unwritten blocks needs.
    #[inline]
    pub(crate) fn conversion_blocks(&self) -> u32 {
        match self {
            Self::Extents(map) => ExtentMap::worst_case(map.depth() + 1),
        }
    }

    /// Marks blocks of `run`, which is unwritten, from its first one on as written, under a handle of transaction `tid`.
    /// Returns the number of blocks marked. [`Engine::convert`](crate::engine::Engine::convert) must convert the others.
    ///
    /// The caller holds the range of `run`. If the result is above zero, the inode has joined the transaction.
    #[inline]
    pub(crate) fn mark_written(&self, tid: u64, run: &Mapping) -> u32 {
        match self {
            Self::Extents(map) => map.mark(tid, run),
        }
    }

    /// Prevents changes of the mapping, except of unwritten blocks to written ones, while the result lives. Blocks while
    /// another thread changes it.
    pub(crate) fn lock(&self) -> LockedBody<'_> {
        match self {
            Self::Extents(map) => LockedBody::Extents(map.lock()),
        }
    }

    /// Encodes the body into the inode's `i_block`, and changed metadata blocks of the body into their buffers. No handle
    /// is open.
    pub(crate) fn encode(&self, i_block: &mut [u8; 60]) {
        match self {
            Self::Extents(map) => map.encode(i_block),
        }
    }

    /// Estimates the memory that the body uses, in bytes.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Extents(map) => map.memory(),
        }
    }
}

impl LockedBody<'_> {
    /// Keeps a boundary between unwritten blocks at both ends of `run` until [`unpin`](Self::unpin), so that converting the
    /// run needs no block (H32).
    pub(crate) fn pin(&mut self, run: &Mapping) {
        match self {
            Self::Extents(map) => ends(run).for_each(|block| map.pin(block)),
        }
    }

    /// Reverses one [`pin`](Self::pin) of `run`.
    pub(crate) fn unpin(&mut self, run: &Mapping) {
        match self {
            Self::Extents(map) => ends(run).for_each(|block| map.unpin(block)),
        }
    }
}

/// Returns the first block of a run and the block after its last one.
fn ends(run: &Mapping) -> impl Iterator<Item = FileBlock> {
    std::iter::once(run.logical).chain(FileBlock::from_u64(run.end()))
}
