//! Which blocks of the volume a structure uses, one bit for each, and which are used twice.
//!
//! With `bigalloc` a bit stands for a cluster. The bits of a group take memory when the first block
//! of the group is claimed. Threads claim at the same time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parext4_format::superblock::Superblock;

type Bits = Box<[AtomicU64]>;

/// The number of blocks of maps that may be read although they were claimed before.
const MOST_SHARED_NODES: u32 = 1024;

/// Limits how often blocks of maps are read that were claimed before: a hostile map can lead to the
/// same block any number of times.
#[derive(Debug)]
pub(crate) struct SharedNodes {
    left: AtomicU32,
}

impl SharedNodes {
    pub(crate) fn new() -> Self {
        Self { left: AtomicU32::new(MOST_SHARED_NODES) }
    }

    /// Counts the reading of a block. Returns false if no more may be read.
    pub(crate) fn may_read(&self) -> bool {
        let take = |left: u32| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Bits for all blocks of the volume.
pub(crate) struct Claims {
    once: Vec<OnceLock<Bits>>,
    twice: Vec<OnceLock<Bits>>,
    any_twice: AtomicBool,
    first_block: u64,
    /// Binary logarithm of the blocks in a cluster.
    cluster_bits: u32,
    per_group: u64,
}

impl Claims {
    /// Returns bits for the first `groups` groups. Blocks of later groups are never claimed.
    pub(crate) fn new(sb: &Superblock, groups: usize) -> Self {
        let empty = || std::iter::repeat_with(OnceLock::new).take(groups).collect();
        Self {
            once: empty(),
            twice: empty(),
            any_twice: AtomicBool::new(false),
            first_block: sb.first_data_block().into(),
            cluster_bits: (sb.blocks_per_group() / sb.clusters_per_group()).ilog2(),
            per_group: sb.clusters_per_group().into(),
        }
    }

    /// Returns the cluster of a block.
    pub(crate) fn cluster_of(&self, block: u64) -> u64 {
        block.saturating_sub(self.first_block) >> self.cluster_bits
    }

    /// Returns the first block of a cluster.
    pub(crate) fn block_of(&self, cluster: u64) -> u64 {
        (cluster << self.cluster_bits) + self.first_block
    }

    /// Claims `len` clusters from `first`, which lie in the volume. Returns true if none of them
    /// was claimed before; the others are marked as used twice.
    pub(crate) fn claim(&self, first: u64, len: u64) -> bool {
        let mut fresh = true;
        for (group, index, mask) in self.words(first, len) {
            let before =
                bits(&self.once[group], self.per_group)[index].fetch_or(mask, Ordering::Relaxed) & mask;
            if before != 0 {
                bits(&self.twice[group], self.per_group)[index].fetch_or(before, Ordering::Relaxed);
                fresh = false;
            }
        }
        if !fresh {
            self.any_twice.store(true, Ordering::Relaxed);
        }
        fresh
    }

    /// Claims clusters that several structures may share.
    pub(crate) fn share(&self, first: u64, len: u64) {
        for (group, index, mask) in self.words(first, len) {
            bits(&self.once[group], self.per_group)[index].fetch_or(mask, Ordering::Relaxed);
        }
    }

    pub(crate) fn any_twice(&self) -> bool {
        self.any_twice.load(Ordering::Relaxed)
    }

    /// Returns the first cluster in the range that is used twice.
    pub(crate) fn first_twice(&self, first: u64, len: u64) -> Option<u64> {
        self.words(first, len).find_map(|(group, index, mask)| {
            let word = self.twice[group].get().map_or(0, |bits| bits[index].load(Ordering::Relaxed)) & mask;
            let bit = index as u64 * 64 + u64::from(word.trailing_zeros());
            (word != 0).then(|| group as u64 * self.per_group + bit)
        })
    }

    /// Returns word `index` of a group's bits.
    pub(crate) fn word(&self, group: u32, index: usize) -> u64 {
        let bits = self.once.get(group as usize).and_then(OnceLock::get);
        bits.and_then(|bits| bits.get(index)).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the number of claimed clusters of a group.
    pub(crate) fn count(&self, group: u32) -> u32 {
        let bits = self.once.get(group as usize).and_then(OnceLock::get);
        bits.map_or(0, |bits| bits.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum())
    }

    /// Returns the group, the index and the mask of each word that the range touches.
    fn words(&self, first: u64, len: u64) -> impl Iterator<Item = (usize, usize, u64)> {
        let (per_group, end) = (self.per_group, first.saturating_add(len));
        let end = end.min(per_group.saturating_mul(self.once.len() as u64));
        let mut at = first;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (group, bit) = (at / per_group, at % per_group);
            let (shift, here) = (bit % 64, (64 - bit % 64).min(per_group - bit).min(end - at));
            at += here;
            // Groups and words of a group fit the address space: each group has an entry in memory.
            Some((group as usize, (bit / 64) as usize, (u64::MAX >> (64 - here)) << shift))
        })
    }
}

fn bits(group: &OnceLock<Bits>, per_group: u64) -> &Bits {
    let words = per_group.div_ceil(64) as usize;
    group.get_or_init(|| std::iter::repeat_with(AtomicU64::default).take(words).collect())
}
