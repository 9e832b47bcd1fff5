//! The nodes of all files' trees: a pool whose memory never goes back, so that readers need no lock.
//!
//! A node has a header and 64 slots. The header of a leaf says whose it is and how many slots are used:
//!
//! | bits | |
//! |---|---|
//! | 0-7 | used: slots that are not empty, and threads about to use one |
//! | 8 | listed among the leaves that have become empty |
//! | 9-34 | the first index of its pages, in leaves |
//! | 35-63 | the file; zero for a node that is free or no leaf |
//!
//! A reader may come to a node by an old path, when it has been freed and belongs to another file. Reading there does
//! no harm. Who has pinned a page looks at the header again: if it still names the file, it did while the page was
//! pinned, as a leaf that is used is not freed. Who wants to use an empty slot counts itself in the header first,
//! which fails if that names another.

use std::sync::atomic::AtomicU64;

use smallvec::SmallVec;

use super::memory::Memory;
use crate::fault::{Fault, planted};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, Word, yield_now};

/// The bits of an index that one level of a tree resolves.
pub(super) const LEVEL: u32 = 6;
/// Slots of a node.
pub(super) const SLOTS: u32 = 1 << LEVEL;
/// Words of a node: the header with a line of its own, and the slots.
const WORDS: usize = 8 + SLOTS as usize;
/// Bytes of a node.
pub(super) const NODE: u64 = 8 * WORDS as u64;

const USED: u64 = 0xff;
const LISTED: u64 = 1 << 8;
const KEY: u32 = 9;
const BASE: u32 = 26;
/// The files that a header can name.
const MOST_FILES: u64 = 1 << (64 - KEY - BASE);

/// Nodes are taken from the allocator by so many.
const CHUNK: u32 = 1 << 12;

/// The file and the first pages of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    /// The leaf of `file` that has page `index`.
    pub fn new(file: u32, index: u32) -> Self {
        debug_assert!(file > 0 && u64::from(file) < MOST_FILES, "memory for so many files does not exist");
        Self(u64::from(file) << BASE | u64::from(index >> LEVEL))
    }

    fn of(header: u64) -> Self {
        Self(header >> KEY)
    }

    #[expect(clippy::cast_possible_truncation, reason = "29 and 26 bits")]
    pub fn file(self) -> u32 {
        (self.0 >> BASE) as u32
    }

    /// The first page.
    #[expect(clippy::cast_possible_truncation, reason = "26 bits and 6")]
    pub fn index(self) -> u32 {
        ((self.0 & ((1 << BASE) - 1)) << LEVEL) as u32
    }

    /// A number for the page at `place` in this leaf, which it has again when it comes back.
    pub fn ghost(self, place: Place) -> u64 {
        self.0 << LEVEL | u64::from(place.nth())
    }
}

/// A slot's number among those of all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    pub fn new(node: u32, index: u32) -> Self {
        Self(u64::from(node) << LEVEL | u64::from(index % SLOTS))
    }

    #[expect(clippy::cast_possible_truncation, reason = "made of them")]
    pub fn node(self) -> u32 {
        (self.0 >> LEVEL) as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "6 bits")]
    pub fn nth(self) -> u32 {
        self.0 as u32 % SLOTS
    }

    /// A number that differs between neighbours.
    #[expect(clippy::cast_possible_truncation, reason = "any bits do")]
    pub fn spread(self) -> usize {
        self.0 as usize
    }
}

/// A slot and its word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub place: Place,
    pub word: Word<'a>,
}

/// Nodes for a tree that grows.
pub(super) type Supply = SmallVec<[u32; 12]>;

#[derive(Debug)]
pub(super) struct Nodes {
    memory: Memory<WORDS>,
    free: Mutex<Free>,
    /// Those in use, for who looks without the lock.
    used: AtomicU32,
}

#[derive(Debug, Default)]
struct Free {
    list: Vec<u32>,
    /// Nodes from here on were never used.
    fresh: u32,
}

impl Nodes {
    pub fn new(most: u32) -> Self {
        let free = Mutex::new(Rank::Leaf, Free::default());
        Self { memory: Memory::new(most, CHUNK), free, used: AtomicU32::new(0) }
    }

    /// Takes `count` nodes, whose slots are all empty. `None` if there are not so many.
    pub fn take(&self, count: usize) -> Option<Supply> {
        let mut free = self.free.lock();
        let mut supply = Supply::new();
        while supply.len() < count {
            let Some(node) = free.take(&self.memory) else {
                free.list.extend(supply);
                return None;
            };
            supply.push(node);
        }
        // What was freed last is used first, and the others lie as before when they are given back.
        supply.reverse();
        self.used.store(free.used(), Ordering::Relaxed);
        Some(supply)
    }

    /// Gives back nodes whose slots are all empty.
    pub fn give_back(&self, nodes: Supply) {
        let mut free = self.free.lock();
        free.list.extend(nodes);
        self.used.store(free.used(), Ordering::Relaxed);
    }

    /// Nodes in use.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// Nodes that there can be.
    pub fn most(&self) -> u32 {
        self.memory.items()
    }

    fn word(&self, node: u32, at: usize) -> Option<Word<'_>> {
        self.memory.get(node).map(|words: &[AtomicU64; WORDS]| Word::new(&words[at]))
    }

    fn header(&self, node: u32) -> Word<'_> {
        self.word(node, 0).expect("a node was provided before it was named")
    }

    /// The slot of `node` where `index` belongs. Nodes are only named where they were provided before.
    #[inline]
    pub fn slot(&self, node: u32, index: u32) -> Slot<'_> {
        let place = Place::new(node, index);
        Slot { place, word: self.word(node, 8 + place.nth() as usize).expect("see `header`") }
    }

    /// Whose leaf it is.
    #[inline]
    pub fn key(&self, node: u32) -> Key {
        Key::of(self.header(node).load(Ordering::Acquire))
    }

    /// Makes the node a leaf of a file.
    pub fn set_key(&self, node: u32, key: Key) {
        // Release: who finds the key finds the slots empty. It may still be listed from an earlier life.
        let named =
            self.header(node).update(Ordering::Release, |header| Some(header & LISTED | key.0 << KEY));
        debug_assert!(named.is_ok_and(|before| before & !LISTED == 0), "the node was free");
    }

    /// Counts a thread that is about to use a slot of this leaf of `key`'s. `false` if it is that no more.
    pub fn enter(&self, node: u32, key: Key) -> bool {
        let count = |header: u64| {
            let may = Key::of(header) == key || planted(Fault::EnterFreedLeaf);
            (may && header & USED != USED).then(|| header + 1)
        };
        loop {
            match self.header(node).update(Ordering::AcqRel, count) {
                Ok(_) => return true,
                // More threads than can be counted.
                Err(header) if Key::of(header) == key => yield_now(),
                Err(_) => return false,
            }
        }
    }

    /// Ends what [`Self::enter`] began, after the slot has become empty again. Returns whether the leaf is empty now and
    /// the caller has to list it.
    pub fn leave(&self, node: u32) -> bool {
        let leave = |header: u64| {
            let last = header & USED == 1;
            Some((header - 1) | if last { LISTED } else { 0 })
        };
        let (Ok(before) | Err(before)) = self.header(node).update(Ordering::AcqRel, leave);
        before & USED == 1 && before & LISTED == 0
    }

    /// Takes a leaf that was listed off the list; returns whose it is, if it is empty.
    pub fn unlist(&self, node: u32) -> Option<Key> {
        let header = self.header(node).fetch_and(!LISTED, Ordering::AcqRel);
        (header & USED == 0 && header >> KEY != 0).then(|| Key::of(header))
    }

    /// Ends the life of a leaf of `key`'s, if it is empty.
    pub fn retire(&self, node: u32, key: Key) -> bool {
        let end = |header: u64| {
            let empty = header & USED == 0 || planted(Fault::FreeUsedLeaf);
            (Key::of(header) == key && empty).then_some(header & LISTED)
        };
        self.header(node).update(Ordering::AcqRel, end).is_ok()
    }
}

impl Free {
    fn used(&self) -> u32 {
        self.fresh - self.list.len() as u32
    }

    fn take(&mut self, memory: &Memory<WORDS>) -> Option<u32> {
        if let Some(node) = self.list.pop() {
            return Some(node);
        }
        let fresh = self.fresh < memory.items() && memory.provide(self.fresh);
        fresh.then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }
}
