//! A leaf in memory: the volume blocks of consecutive file blocks, and which of them are claimed.
//!
//! A leaf has the state of single blocks, which readers load without a lock. It does not read or
//! write the pointer block that stores it. Invariant: a block changes only under the map's lock, by
//! a thread that holds the block's range.

use parext4_format::indirect::{PointerPosition, Shape};
use parext4_format::{BlockRange, FileBlock, FsBlock};

use crate::convert::saturating_u32;
use crate::mapping::{BlockState, Mapping};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

// These are not the types of `sync`, which the model checker schedules: a leaf has 256 pointers or
// more, and the checker would spend all its steps on them. The range lock guards each pointer.
type Pointer = std::sync::atomic::AtomicU32;
type Bits = std::sync::atomic::AtomicU64;

/// A leaf. Each block is a hole (0), claimed, or written.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The file blocks that the leaf maps.
    blocks: BlockRange,
    /// The volume block of each file block.
    pointers: Box<[Pointer]>,
    /// One bit for each file block, set while its volume block is only claimed. The bit of a hole
    /// is clear.
    claimed: Box<[Bits]>,
    /// Number of pointers that are not 0.
    used: AtomicU32,
    /// Number of pointers that are claims.
    claims: AtomicU32,
    /// The block that stores the leaf; 0 if there is none, or if the inode stores the leaf.
    block: AtomicU32,
    /// The last transaction that has registered the block.
    registered: AtomicU64,
}

/// A change of the state of blocks of a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Claim(FsBlock),
    Write(FsBlock),
    Convert,
    Unmap,
}

impl Leaf {
    /// Returns the leaf that maps `blocks` to `pointers`, all of them written.
    pub(super) fn new(blocks: BlockRange, pointers: impl Iterator<Item = u32>, block: u32) -> Self {
        let pointers: Box<[_]> = pointers.take(blocks.count() as usize).map(Pointer::new).collect();
        let used = pointers.iter().filter(|pointer| pointer.load(Ordering::Relaxed) != 0).count();
        Self {
            blocks,
            claimed: (0..pointers.len().div_ceil(64)).map(|_| Bits::new(0)).collect(),
            used: AtomicU32::new(saturating_u32(used)),
            claims: AtomicU32::new(0),
            block: AtomicU32::new(block),
            registered: AtomicU64::new(0),
            pointers,
        }
    }

    /// Estimates the memory of a leaf of `pointers` pointers, in bytes.
    pub(super) fn memory(pointers: u32) -> usize {
        size_of::<Self>() + pointers as usize * 4 + pointers as usize / 8 + 64
    }

    pub(super) fn blocks(&self) -> BlockRange {
        self.blocks
    }

    /// Returns the number of the pointer block, 0 if there is none.
    pub(super) fn block(&self) -> u32 {
        self.block.load(Ordering::Acquire)
    }

    pub(super) fn set_block(&self, block: u32) {
        self.block.store(block, Ordering::Release);
    }

    /// Returns true if transaction `tid` has registered the leaf's block.
    pub(super) fn is_registered(&self, tid: u64) -> bool {
        // Relaxed suffices: the transaction is the caller's own, so it is open, and a lock guards
        // its contents.
        self.registered.load(Ordering::Relaxed) == tid
    }

    pub(super) fn set_registered(&self, tid: u64) {
        self.registered.store(tid, Ordering::Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used.load(Ordering::Acquire) == 0
    }

    pub(super) fn has_claims(&self) -> bool {
        self.claims.load(Ordering::Acquire) > 0
    }

    fn state(&self, at: usize) -> BlockState {
        // The pointer is loaded first, because a thread that maps a hole sets the bit before the
        // pointer.
        let Some(pointer) = self.pointers.get(at) else { return BlockState::Hole };
        match pointer.load(Ordering::Acquire) {
            0 => BlockState::Hole,
            block if self.is_claimed(at) => BlockState::Unwritten(FsBlock(block.into())),
            block => BlockState::Written(FsBlock(block.into())),
        }
    }

    /// Returns the number of the leaf, or `None` if it is stored in the inode.
    pub(super) fn number(&self, shape: Shape) -> Option<u32> {
        match shape.place(self.blocks.start()) {
            PointerPosition::Leaf(number, _) => Some(number),
            PointerPosition::Direct(_) => None,
        }
    }

    fn is_claimed(&self, at: usize) -> bool {
        self.claimed[at / 64].load(Ordering::Acquire) & 1 << (at % 64) != 0
    }

    /// Returns the mapping of `block`, which lies in the leaf, and of blocks after it in the same
    /// state, at most `max`.
    #[inline]
    pub(super) fn lookup(&self, block: FileBlock, max: u32) -> Mapping {
        let at = (block - self.blocks.start()) as usize;
        let state = self.state(at);
        let most = max.min(self.blocks.split_at(block).1.count());
        let mut run = Mapping { logical: block, len: 1, state };
        for next in at + 1..at + most as usize {
            if !run.join(&Mapping { logical: block, len: 1, state: self.state(next) }) {
                break;
            }
        }
        run
    }

    /// Returns the last run of mapped blocks that ends at or before file block `end`, and begins at
    /// or after `start`.
    pub(super) fn last_run(&self, start: FileBlock, end: u64) -> Option<Mapping> {
        let part = self.blocks.intersection(BlockRange::clamped(start.to_u64(), end));
        let first = (part.start() - self.blocks.start()) as usize;
        let after = first + part.count() as usize;
        let last = (first..after).rev().find(|&at| self.state(at) != BlockState::Hole)?;
        let mapping = |at: usize| {
            let offset = saturating_u32(at);
            Mapping { logical: self.blocks.start() + offset, len: 1, state: self.state(at) }
        };
        let mut run = mapping(last);
        for at in (first..last).rev() {
            let mut before = mapping(at);
            if !before.join(&run) {
                break;
            }
            run = before;
        }
        Some(run)
    }

    /// Returns the volume block with which `block` would continue the blocks before it in the leaf.
    pub(super) fn goal(&self, block: FileBlock) -> Option<FsBlock> {
        let at = (block.to_u64().min(self.blocks.end()) - self.blocks.start().to_u64()) as usize;
        let before = (0..at).rev().find(|&before| self.pointers[before].load(Ordering::Acquire) != 0)?;
        let pointer = u64::from(self.pointers[before].load(Ordering::Acquire));
        let distance = block.to_u64() - self.blocks.start().to_u64() - before as u64;
        Some(FsBlock(pointer + distance))
    }

    /// Changes `blocks`, which lie in the leaf and are all in the state from which `change` starts.
    pub(super) fn change(&self, blocks: BlockRange, change: Change) {
        let first = (blocks.start() - self.blocks.start()) as usize;
        let count = blocks.count();
        for at in first..first + count as usize {
            let bit = 1 << (at % 64);
            let (word, pointer) = (&self.claimed[at / 64], &self.pointers[at]);
            let pointer_to = |start: FsBlock| saturating_u32(start.get().saturating_add((at - first) as u64));
            match change {
                Change::Claim(start) => {
                    word.fetch_or(bit, Ordering::Release);
                    pointer.store(pointer_to(start), Ordering::Release);
                }
                Change::Write(start) => pointer.store(pointer_to(start), Ordering::Release),
                Change::Convert => drop(word.fetch_and(!bit, Ordering::Release)),
                Change::Unmap => {
                    pointer.store(0, Ordering::Release);
                    if word.load(Ordering::Relaxed) & bit != 0 {
                        word.fetch_and(!bit, Ordering::Release);
                        self.claims.fetch_sub(1, Ordering::AcqRel);
                    }
                }
            }
        }
        match change {
            Change::Claim(_) => {
                self.claims.fetch_add(count, Ordering::AcqRel);
                self.used.fetch_add(count, Ordering::AcqRel);
            }
            Change::Write(_) => drop(self.used.fetch_add(count, Ordering::AcqRel)),
            Change::Convert => drop(self.claims.fetch_sub(count, Ordering::AcqRel)),
            Change::Unmap => drop(self.used.fetch_sub(count, Ordering::AcqRel)),
        }
    }

    /// Returns the pointers, claims included.
    pub(super) fn pointers(&self) -> Vec<u32> {
        self.pointers.iter().map(|pointer| pointer.load(Ordering::Acquire)).collect()
    }

    /// Returns the pointers as the device stores them: claimed blocks are stored as holes.
    pub(super) fn stored(&self) -> impl Iterator<Item = u32> {
        (0..self.pointers.len()).map(|at| match self.state(at) {
            BlockState::Written(block) => saturating_u32(block.get()),
            _ => 0,
        })
    }
}
