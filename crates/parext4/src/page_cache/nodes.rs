//! The nodes of all files' trees: a pool of nodes, whose memory stays mapped so that readers need
//! no lock.
//!
//! The module is responsible for allocating nodes and for the header of a leaf, which says to which
//! file the leaf belongs and whether it may be freed. The module `tree` decides how nodes form a
//! tree.
//!
//! A node has a header and 64 slots. The header of a leaf:
//!
//! | bits | |
//! |---|---|
//! | 0-7 | used: number of slots that are not empty, and of threads that are about to use one |
//! | 8 | listed: the leaf is on the list of leaves that became empty |
//! | 9-34 | the index of its first page, divided by 64 |
//! | 35-63 | the file; zero for a node that is free or not a leaf |
//!
//! A reader without a lock may reach a node by an old path, after the node was freed and reused by
//! another file. That is safe, because:
//!
//! 1. the memory of a node stays mapped, so the read itself is valid;
//! 2. a thread that has pinned a page checks the header again. If the header still has the file's
//!    key, it had that key while the page was pinned, because a leaf with a used slot is not freed;
//! 3. a thread that wants to use an empty slot counts itself in the header first, which fails if
//!    the header has another key.
//!
//! Invariant: a leaf is freed only while `used` is zero.

use smallvec::SmallVec;

use super::arena::Arena;
use super::page_index::PageIndex;
use crate::fault::{Fault, guarded};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, Word, yield_now};

/// Bits of an index that one level of a tree resolves.
pub(super) const LEVEL: u32 = 6;
/// Slots of a node.
pub(super) const SLOTS: u32 = 1 << LEVEL;
/// Words of a node: the header, on a cache line of its own, and the slots.
const WORDS: usize = 8 + SLOTS as usize;
/// Bytes of a node.
pub(super) const NODE: u64 = 8 * WORDS as u64;

const USED: u64 = 0xff;
const LISTED: u64 = 1 << 8;
const KEY: u32 = 9;
const BASE: u32 = 26;
/// Number of files that a header can refer to.
const MAX_FILES: u64 = 1 << (64 - KEY - BASE);

/// Number of nodes that are mapped together.
const CHUNK: u32 = 1 << 12;

/// The identity of a leaf: its file and its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafKey(u64);

impl LeafKey {
    /// Returns the key of the leaf of `file` that has page `index`.
    pub fn new(file: u32, index: PageIndex) -> Self {
        debug_assert!(
            file > 0 && u64::from(file) < MAX_FILES,
            "the number of files fits the bits of a leaf key"
        );
        Self(u64::from(file) << BASE | u64::from(index.get() >> LEVEL))
    }

    fn of(header: u64) -> Self {
        Self(header >> KEY)
    }

    #[expect(clippy::cast_possible_truncation, reason = "29 and 26 bits")]
    pub fn file(self) -> u32 {
        (self.0 >> BASE) as u32
    }

    /// Returns the index of the first page.
    #[expect(clippy::cast_possible_truncation, reason = "26 bits, shifted by 6")]
    pub fn index(self) -> PageIndex {
        PageIndex(((self.0 & ((1 << BASE) - 1)) << LEVEL) as u32)
    }

    /// Returns a number that identifies the page in slot `id` of this leaf, also after the page was
    /// evicted.
    pub fn ghost(self, id: SlotId) -> u64 {
        self.0 << LEVEL | u64::from(id.nth())
    }
}

/// The number of a slot, unique among the slots of all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotId(u64);

impl SlotId {
    fn new(node: u32, nth: u32) -> Self {
        Self(u64::from(node) << LEVEL | u64::from(nth % SLOTS))
    }

    #[expect(clippy::cast_possible_truncation, reason = "a node number has 32 bits")]
    pub fn node(self) -> u32 {
        (self.0 >> LEVEL) as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "6 bits")]
    pub fn nth(self) -> u32 {
        self.0 as u32 % SLOTS
    }

    /// Returns a hash that differs between neighbouring slots.
    #[expect(clippy::cast_possible_truncation, reason = "a hash may drop bits")]
    pub fn spread(self) -> usize {
        self.0 as usize
    }
}

/// A slot and its word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub id: SlotId,
    pub word: Word<'a>,
}

/// Nodes that were allocated for a tree which is about to grow.
pub(super) type NodeSupply = SmallVec<[u32; 12]>;

#[derive(Debug)]
pub(super) struct Nodes {
    memory: Arena,
    free: Mutex<FreeList>,
    /// Number of nodes in use. It is written under the lock of `free`, and read without that lock.
    used: AtomicU32,
}

/// The free nodes.
#[derive(Debug, Default)]
struct FreeList {
    list: Vec<u32>,
    /// The first node that was never allocated.
    fresh: u32,
}

impl Nodes {
    pub fn new(most: u32) -> Self {
        let free = Mutex::new(Rank::Leaf, FreeList::default());
        Self { memory: Arena::new(most, WORDS, CHUNK), free, used: AtomicU32::new(0) }
    }

    /// Allocates `count` nodes, whose slots are all empty. Returns `None` if fewer are free.
    pub fn allocate(&self, count: usize) -> Option<NodeSupply> {
        let mut free = self.free.lock();
        let mut supply = NodeSupply::new();
        while supply.len() < count {
            let Some(node) = free.allocate(&self.memory) else {
                free.list.extend(supply);
                return None;
            };
            supply.push(node);
        }
        // The caller pops from the end, so it uses the most recently freed node first, and returns
        // unused nodes in their old order.
        supply.reverse();
        self.used.store(free.used(), Ordering::Relaxed);
        Some(supply)
    }

    /// Frees nodes whose slots are all empty.
    pub fn free(&self, nodes: NodeSupply) {
        let mut free = self.free.lock();
        free.list.extend(nodes);
        self.used.store(free.used(), Ordering::Relaxed);
    }

    /// Returns the number of nodes in use.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the limit of the number of nodes.
    pub fn capacity(&self) -> u32 {
        self.memory.items()
    }

    fn word(&self, node: u32, at: usize) -> Option<Word<'_>> {
        self.memory.get(node).map(|words| Word::new(&words[at]))
    }

    fn header(&self, node: u32) -> Word<'_> {
        self.word(node, 0).expect("a node is mapped before its number is stored")
    }

    /// Returns the slot of page `index` in its `leaf`. The node was allocated at least once.
    #[inline]
    pub fn page_slot(&self, leaf: u32, index: PageIndex) -> Slot<'_> {
        self.slot(leaf, index.get())
    }

    /// Returns slot `nth` of `node`, modulo the slots of a node. The node was allocated at least
    /// once.
    #[inline]
    pub fn slot(&self, node: u32, nth: u32) -> Slot<'_> {
        let id = SlotId::new(node, nth);
        Slot {
            id,
            word: self
                .word(node, 8 + id.nth() as usize)
                .expect("a node is mapped before its number is stored"),
        }
    }

    /// Returns the key of a leaf.
    #[inline]
    pub fn key(&self, node: u32) -> LeafKey {
        LeafKey::of(self.header(node).load(Ordering::Acquire))
    }

    /// Makes an allocated node the leaf with this key.
    pub fn set_key(&self, node: u32, key: LeafKey) {
        // Release: a thread that finds the key also finds the slots empty. The listed bit may
        // remain from the node's last use.
        let named =
            self.header(node).update(Ordering::Release, |header| Some(header & LISTED | key.0 << KEY));
        debug_assert!(named.is_ok_and(|before| before & !LISTED == 0), "the node was free");
    }

    /// Counts a thread that is about to use a slot of the leaf. Returns false if the node no longer
    /// has this key.
    pub fn enter(&self, node: u32, key: LeafKey) -> bool {
        let count = |header: u64| {
            let may = guarded!(Fault::EnterFreedLeaf, LeafKey::of(header) == key, true);
            (may && header & USED != USED).then(|| header + 1)
        };
        loop {
            match self.header(node).update(Ordering::AcqRel, count) {
                Ok(_) => return true,
                // The counter is at its maximum of 255. This thread retries until another thread
                // leaves.
                Err(header) if LeafKey::of(header) == key => yield_now(),
                Err(_) => return false,
            }
        }
    }

    /// Undoes [`Self::enter`], or ends the use of a slot that has become empty. Returns true if the
    /// leaf is empty now and the caller must add it to the list of empty leaves.
    pub fn leave(&self, node: u32) -> bool {
        let leave = |header: u64| {
            let last = header & USED == 1;
            Some((header - 1) | if last { LISTED } else { 0 })
        };
        let (Ok(before) | Err(before)) = self.header(node).update(Ordering::AcqRel, leave);
        before & USED == 1 && before & LISTED == 0
    }

    /// Clears the listed bit of a leaf that the caller has removed from the list. Returns the key
    /// if the leaf is still empty.
    pub fn unlist(&self, node: u32) -> Option<LeafKey> {
        let header = self.header(node).fetch_and(!LISTED, Ordering::AcqRel);
        (header & USED == 0 && header >> KEY != 0).then(|| LeafKey::of(header))
    }

    /// Removes the key of a leaf, so that the node can be freed. Returns false if the leaf is in
    /// use or has another key.
    pub fn retire(&self, node: u32, key: LeafKey) -> bool {
        let end = |header: u64| {
            let empty = guarded!(Fault::FreeUsedLeaf, header & USED == 0, true);
            (LeafKey::of(header) == key && empty).then_some(header & LISTED)
        };
        self.header(node).update(Ordering::AcqRel, end).is_ok()
    }
}

impl FreeList {
    fn used(&self) -> u32 {
        self.fresh - self.list.len() as u32
    }

    fn allocate(&mut self, memory: &Arena) -> Option<u32> {
        if let Some(node) = self.list.pop() {
            return Some(node);
        }
        let fresh = self.fresh < memory.items() && memory.ensure_mapped(self.fresh);
        fresh.then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Returns nodes of which one is a leaf, its number and its key.
    fn one_leaf() -> (Nodes, u32, LeafKey) {
        let nodes = Nodes::new(4);
        let leaf = nodes.allocate(1).unwrap()[0];
        let key = LeafKey::new(1, PageIndex(SLOTS));
        nodes.set_key(leaf, key);
        (nodes, leaf, key)
    }

    #[test]
    fn slots_are_told_apart() {
        let keys =
            (1..4).flat_map(|file| (0..4).map(move |leaf| LeafKey::new(file, PageIndex(leaf * SLOTS))));
        let slots = || (0..SLOTS).map(|nth| SlotId::new(7, nth));
        let ghosts: HashSet<u64> = keys.flat_map(|key| slots().map(move |id| key.ghost(id))).collect();
        assert_eq!(ghosts.len(), 3 * 4 * SLOTS as usize);
        assert_eq!(slots().map(SlotId::spread).collect::<HashSet<_>>().len(), SLOTS as usize);
    }

    #[test]
    fn an_empty_leaf_is_listed_once_until_it_is_unlisted() {
        let (nodes, leaf, key) = one_leaf();
        assert!(nodes.enter(leaf, key) && nodes.enter(leaf, key));
        assert!(!nodes.leave(leaf), "in use");
        assert!(nodes.leave(leaf), "empty");
        assert!(nodes.enter(leaf, key));
        assert!(!nodes.leave(leaf), "listed");
        assert!(nodes.enter(leaf, key));
        assert_eq!(nodes.unlist(leaf), None, "in use again");
        assert!(!nodes.retire(leaf, key));
        assert!(nodes.leave(leaf));
        assert_eq!(nodes.unlist(leaf), Some(key));
    }

    #[test]
    fn a_leaf_that_is_freed_while_it_is_listed_is_not_freed_again() {
        let (nodes, leaf, key) = one_leaf();
        assert!(nodes.enter(leaf, key) && nodes.leave(leaf));
        assert!(nodes.retire(leaf, key));
        assert!(!nodes.enter(leaf, key));
        assert_eq!(nodes.unlist(leaf), None);
    }

    #[test]
    fn more_threads_than_a_header_counts_wait() {
        let (nodes, leaf, key) = one_leaf();
        (0..USED).for_each(|_| assert!(nodes.enter(leaf, key)));
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let nodes = &nodes;
            scope.spawn(move || tell.send(nodes.enter(leaf, key)).unwrap());
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "the thread did not wait");
            assert!(!nodes.leave(leaf));
            assert_eq!(told.recv(), Ok(true));
        });
        (1..USED).for_each(|_| assert!(!nodes.leave(leaf)));
        assert!(nodes.leave(leaf));
    }
}
