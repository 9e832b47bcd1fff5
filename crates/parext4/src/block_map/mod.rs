//! The block map of a file: where its blocks are.
//!
//! Responsible for choosing the format of the block map by the inode's flags, and for answering
//! what modules above ask of any format. Not responsible for adding and removing blocks:
//! [`map_update`](crate::map_update) does that. Only these two modules use
//! [`extent_map`](crate::extent_map) and [`indirect_map`](crate::indirect_map), so a format is
//! added here, and the compiler lists each place that depends on the format.

// Its orders are visible to ThreadSanitizer, unlike those inside `std::sync::OnceLock`.
use once_cell::sync::OnceCell;
use parext4_format::inode::InodeFlags;
use parext4_format::{BlockRange, BlockSize, ChecksumSeed, FileBlock, InodeNo};

use crate::error::{Error, Result};
use crate::extent_map::{ExtentMap, Writer};
use crate::indirect_map::{self, IndirectMap};
use crate::layout::Layout;
use crate::mapping::{BlockState, Mapping};
use crate::meta::{BlockKind, MetaCache};
use crate::sync::Arc;

/// The block map of one file, in memory.
#[derive(Debug)]
pub(crate) enum BlockMap {
    /// A tree of extents.
    Extents(ExtentMap),
    /// Indirect blocks, as in ext2 and ext3.
    Indirect(Box<IndirectMap>),
    /// The contents lie in the inode, so all blocks are holes.
    Inline(InlineBlockMap),
}

/// The block map of a file whose contents lie in its inode.
#[derive(Debug)]
pub(crate) struct InlineBlockMap {
    /// The block map that replaces this one once the contents are in blocks. They never return to
    /// the inode.
    successor: OnceCell<Box<BlockMap>>,
}

/// The fields of an inode from which its block map is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockMapRoot {
    pub ino: InodeNo,
    /// Checksum seed of the inode's own blocks, with `metadata_csum`.
    pub seed: Option<ChecksumSeed>,
    pub flags: InodeFlags,
    /// `i_block`.
    pub block: [u8; 60],
}

/// A block map whose mapping does not change while the value lives, except that unwritten blocks
/// may become written.
#[derive(Debug)]
#[must_use]
pub(crate) enum LockedBlockMap<'a> {
    Extents(Writer<'a>),
    Indirect(#[expect(dead_code, reason = "held")] indirect_map::Writer<'a>),
    /// The contents leave the inode only under a range of the whole file, so there is nothing to
    /// lock.
    Inline,
}

impl BlockMap {
    /// Returns the empty block map of a new file whose flags contain [`InodeFlags::EXTENTS`].
    pub(crate) fn empty(block_size: BlockSize, ino: InodeNo, seed: Option<ChecksumSeed>) -> Self {
        Self::Extents(ExtentMap::empty(block_size, BlockKind::ExtentNode(ino, seed)))
    }

    /// Returns the block map of a file whose contents lie in its inode.
    pub(crate) fn inline() -> Self {
        Self::Inline(InlineBlockMap { successor: OnceCell::new() })
    }

    /// Returns the block map that is in use: this one, or the one that has replaced it. A thread
    /// that holds the range of any byte of the file sees the replacement if the contents have left
    /// the inode.
    #[inline]
    pub(crate) fn current(&self) -> &Self {
        match self {
            Self::Extents(_) | Self::Indirect(_) => self,
            Self::Inline(inline) => inline.successor.get().map_or(self, |block_map| block_map),
        }
    }

    /// Returns true if the contents lie in the inode.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.inline_map().is_some()
    }

    /// Replaces the block map of an inode whose contents are in blocks now. Returns false if this
    /// is not an inline block map, or was replaced before.
    pub(crate) fn replace(&self, block_map: Self) -> bool {
        self.inline_map().is_some_and(|inline| inline.successor.set(Box::new(block_map)).is_ok())
    }

    /// Reads the block map of an inode. With `disjoint`, a block that is used twice is reported as
    /// corruption: a write to it would change another place of the file. Indirect blocks are read
    /// later, and each is checked by itself.
    ///
    /// # Errors
    /// Returns an error for corruption and for a failed read.
    pub(crate) fn load(
        root: &BlockMapRoot,
        layout: &Arc<Layout>,
        cache: &Arc<MetaCache>,
        disjoint: bool,
    ) -> Result<Self> {
        if root.flags.contains(InodeFlags::INLINE_DATA) {
            if root.flags.contains(InodeFlags::EXTENTS) {
                let problem = "both EXTENTS and INLINE_DATA";
                return Err(Error::corrupt_field("inode", "i_flags", problem).of_inode(root.ino));
            }
            return Ok(Self::inline());
        }
        if !root.flags.contains(InodeFlags::EXTENTS) {
            if disjoint && layout.cluster_bits > 0 {
                let problem = "no EXTENTS, with bigalloc";
                return Err(Error::corrupt_field("inode", "i_flags", problem).of_inode(root.ino));
            }
            let map = IndirectMap::load(&root.block, layout, BlockKind::Indirect(root.ino), cache);
            return map.map(|map| Self::Indirect(Box::new(map))).map_err(|error| error.of_inode(root.ino));
        }
        let kind = BlockKind::ExtentNode(root.ino, root.seed);
        let map = ExtentMap::load(&root.block, layout, kind, cache, disjoint);
        map.map(Self::Extents).map_err(|error| error.of_inode(root.ino))
    }

    /// Returns the state of `block`. Acquires no lock, except the first time that a block near it
    /// is looked up.
    ///
    /// # Errors
    /// Corruption, or a failed read, of an indirect block, which is read when a block near it is
    /// first looked up.
    #[inline]
    pub(crate) fn state_of(&self, block: FileBlock) -> Result<BlockState> {
        Ok(self.lookup(block, 1)?.state)
    }

    /// Returns the mapping of `block` and of blocks after it in the same state, at most `max`
    /// blocks. The run may continue after the returned part. Locks like
    /// [`state_of`](Self::state_of).
    #[inline]
    pub(crate) fn lookup(&self, block: FileBlock, max: u32) -> Result<Mapping> {
        match self {
            Self::Extents(map) => Ok(map.lookup(block, max)),
            Self::Indirect(map) => map.lookup(block, max),
            Self::Inline(_) => Ok(hole(block, max)),
        }
    }

    /// Returns the runs that cover `blocks`, in ascending order. Locks like
    /// [`state_of`](Self::state_of).
    #[inline]
    pub(crate) fn runs(&self, blocks: BlockRange) -> impl Iterator<Item = Result<Mapping>> {
        let mut rest = blocks;
        std::iter::from_fn(move || {
            let run = (!rest.is_empty()).then(|| match self {
                Self::Extents(map) => Ok(map.run(rest.start(), rest.count())),
                Self::Indirect(map) => map.run(rest.start(), rest.count()),
                Self::Inline(_) => Ok(hole(rest.start(), rest.count())),
            })?;
            let next = run.as_ref().map_or(blocks.end(), Mapping::end);
            rest = BlockRange::clamped(next, blocks.end());
            Some(run)
        })
    }

    /// Returns the number of the file block after the last one that is mapped, 0 if none is.
    #[inline]
    pub(crate) fn end(&self) -> Result<u64> {
        match self {
            Self::Extents(map) => Ok(map.last().map_or(0, |last| last.end())),
            Self::Indirect(map) => map.end(),
            Self::Inline(_) => Ok(0),
        }
    }

    /// Returns true if blocks are claimed or reserved that the block map does not map.
    pub(crate) fn has_claims(&self) -> bool {
        self.indirect_map().is_some_and(IndirectMap::has_claims)
    }

    /// Returns the map, if it consists of indirect blocks.
    pub(crate) fn indirect_map(&self) -> Option<&IndirectMap> {
        match self {
            Self::Indirect(map) => Some(map),
            Self::Extents(_) | Self::Inline(_) => None,
        }
    }

    fn inline_map(&self) -> Option<&InlineBlockMap> {
        match self {
            Self::Inline(inline) => Some(inline),
            Self::Extents(_) | Self::Indirect(_) => None,
        }
    }

    /// Returns true if the format has unwritten blocks. Otherwise unwritten blocks exist in memory
    /// only, while a write fills them.
    pub(crate) fn has_unwritten(&self) -> bool {
        match self {
            Self::Extents(_) | Self::Inline(_) => true,
            Self::Indirect(_) => false,
        }
    }

    /// Returns true if looking up `block` reads nothing from the device.
    pub(crate) fn is_loaded(&self, block: FileBlock) -> bool {
        match self {
            Self::Extents(_) | Self::Inline(_) => true,
            Self::Indirect(map) => map.is_loaded(block),
        }
    }

    /// Returns the blocks around the unwritten `block` that a conversion may include without
    /// splitting what maps them.
    pub(crate) fn unwritten_around(&self, block: FileBlock) -> BlockRange {
        match self {
            Self::Extents(map) => map.unwritten_around(block),
            Self::Indirect(_) | Self::Inline(_) => BlockRange::of_block(block),
        }
    }

    /// Returns the maximum number of new blocks that converting one range of unwritten blocks
    /// needs. Indirect blocks are reserved when the blocks are claimed.
    #[inline]
    pub(crate) fn conversion_blocks(&self) -> u32 {
        match self {
            Self::Extents(map) => ExtentMap::worst_case(map.depth() + 1),
            Self::Indirect(_) | Self::Inline(_) => 0,
        }
    }

    /// Marks blocks of `run`, which is unwritten, from its first one on as written, under a handle
    /// of transaction `tid`. Returns the number of blocks marked.
    /// [`Engine::convert`](crate::engine::Engine::convert) must convert the others.
    ///
    /// The caller holds the range of `run`. If the result is above zero, the inode has joined the
    /// transaction.
    #[inline]
    pub(crate) fn mark_written(&self, tid: u64, run: &Mapping) -> u32 {
        match self {
            Self::Extents(map) => map.mark(tid, run),
            Self::Indirect(_) | Self::Inline(_) => 0,
        }
    }

    /// Prevents changes of the mapping, except of unwritten blocks to written ones, while the
    /// result lives. Blocks while another thread changes it.
    pub(crate) fn lock(&self) -> LockedBlockMap<'_> {
        match self {
            Self::Extents(map) => LockedBlockMap::Extents(map.lock()),
            Self::Indirect(map) => LockedBlockMap::Indirect(map.lock()),
            Self::Inline(_) => LockedBlockMap::Inline,
        }
    }

    /// Checks what was not checked when the block map was loaded of the blocks from `start` on,
    /// which are about to be freed: reads the indirect blocks from that of `start` on.
    ///
    /// # Errors
    /// Corruption, a failed read.
    pub(crate) fn check_from(&self, start: FileBlock) -> Result<()> {
        match self {
            Self::Extents(_) | Self::Inline(_) => Ok(()),
            Self::Indirect(map) => map.check_from(start),
        }
    }

    /// Encodes the block map into the inode's `i_block`, which already has contents that lie in the
    /// inode, and changed metadata blocks of the block map into their buffers. No handle is open.
    pub(crate) fn encode(&self, i_block: &mut [u8; 60]) {
        match self {
            Self::Extents(map) => map.encode(i_block),
            Self::Indirect(map) => map.encode(i_block),
            Self::Inline(_) => {}
        }
    }

    /// Estimates the memory that the block map uses, in bytes.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Extents(map) => map.memory(),
            Self::Indirect(map) => map.memory(),
            Self::Inline(_) => 0,
        }
    }
}

impl LockedBlockMap<'_> {
    /// Keeps a boundary between unwritten blocks at both ends of `run` until
    /// [`unpin`](Self::unpin), so that converting the run needs no block (H32).
    pub(crate) fn pin(&mut self, run: &Mapping) {
        match self {
            Self::Extents(map) => ends(run).for_each(|block| map.pin(block)),
            Self::Indirect(_) | Self::Inline => {}
        }
    }

    /// Reverses one [`pin`](Self::pin) of `run`.
    pub(crate) fn unpin(&mut self, run: &Mapping) {
        match self {
            Self::Extents(map) => ends(run).for_each(|block| map.unpin(block)),
            Self::Indirect(_) | Self::Inline => {}
        }
    }
}

fn hole(logical: FileBlock, len: u32) -> Mapping {
    Mapping { logical, len, state: BlockState::Hole }
}

/// Returns the first block of a run and the block after its last one.
fn ends(run: &Mapping) -> impl Iterator<Item = FileBlock> {
    std::iter::once(run.logical).chain(FileBlock::from_u64(run.end()))
}
