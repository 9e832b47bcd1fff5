//! The tree of one file's pages: a radix tree of [`super::nodes`] that grows upwards with the largest index.
//!
//! Its shape changes under a mutex; readers take no lock. A page that is there all the time is always found: its
//! leaf is used, so neither that nor a node above is freed. About other pages a reader may be told anything, and looks
//! at the leaf's key where that matters.

use super::nodes::{Key, LEVEL, Nodes, SLOTS, Supply};
use super::word::CHILD;
use crate::fault::{Fault, planted};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, Word, yield_now};

/// Nodes that one index may need: five new roots and five below, or six in all.
const MOST_NEW: usize = 10;

#[derive(Debug)]
pub(super) struct Tree {
    /// From 1.
    file: u32,
    /// 0, or the root's number and, above 32 bits, its height: that of a leaf is 1.
    root: AtomicU64,
    /// Who changes the shape.
    shape: Mutex<()>,
}

/// A node of the tree and its height.
type Top = (u32, u32);

impl Tree {
    pub fn new(file: u32) -> Self {
        Self { file, root: AtomicU64::new(0), shape: Mutex::new(Rank::PageTree, ()) }
    }

    pub fn file(&self) -> u32 {
        self.file
    }

    pub fn key(&self, index: u32) -> Key {
        Key::new(self.file, index)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    fn root(&self) -> Option<Top> {
        // Acquire pairs with the Release in `set_root`: the nodes are as they were made.
        let root = self.root.load(Ordering::Acquire);
        (root != 0).then_some((root as u32, (root >> 32) as u32))
    }

    fn set_root(&self, root: Option<Top>) {
        let root = root.map_or(0, |(node, height)| u64::from(node) | u64::from(height) << 32);
        self.root.store(root, Ordering::Release);
    }

    /// The leaf of a page, if there is one.
    #[inline]
    pub fn leaf(&self, nodes: &Nodes, index: u32) -> Option<u32> {
        let (mut node, mut height) = self.root()?;
        if !covers(height, index) {
            return None;
        }
        while height > 1 {
            height -= 1;
            node = child(nodes.slot(node, index >> (LEVEL * height)).word)?;
        }
        Some(node)
    }

    /// The leaf of a page, made if there is none. `None` if there are no nodes for it.
    pub fn provide(&self, nodes: &Nodes, index: u32) -> Option<u32> {
        let _shape = self.shape.lock();
        if let Some(leaf) = self.leaf(nodes, index) {
            return Some(leaf);
        }
        let mut supply = nodes.take(MOST_NEW)?;
        let leaf = self.grow(nodes, index, &mut supply);
        nodes.give_back(supply);
        leaf
    }

    fn grow(&self, nodes: &Nodes, index: u32, supply: &mut Supply) -> Option<u32> {
        let mut root = self.root();
        while root.is_none_or(|(_, height)| !covers(height, index)) {
            let new = supply.pop()?;
            root = Some(match root {
                Some((old, height)) => {
                    nodes.slot(new, 0).word.store(CHILD | u64::from(old), Ordering::Relaxed);
                    (new, height + 1)
                }
                None => {
                    if planted(Fault::LeafNamedFirst) {
                        nodes.set_key(new, self.key(index));
                    }
                    (new, (1..).find(|&height| covers(height, index))?)
                }
            });
            self.set_root(root);
        }
        let (mut node, mut height) = root?;
        while height > 1 {
            height -= 1;
            let word = nodes.slot(node, index >> (LEVEL * height)).word;
            node = match child(word) {
                Some(node) => node,
                None => {
                    let new = supply.pop()?;
                    // Release: who comes this way finds the slots empty.
                    word.store(CHILD | u64::from(new), Ordering::Release);
                    new
                }
            };
        }
        // Only now: who comes here by an old path may fill a page, and others must find that by the tree.
        if !planted(Fault::LeafNamedFirst) {
            nodes.set_key(node, self.key(index));
        }
        Some(node)
    }

    /// The first leaf whose pages are not all before `from`, and its first page.
    pub fn next_leaf(&self, nodes: &Nodes, from: u32) -> Option<(u32, u32)> {
        let (root, height) = self.root()?;
        search(nodes, (root, height), 0, u64::from(from))
    }

    /// Frees the leaf of a page if it is empty, and what is empty above it. Returns whether it did.
    pub fn prune(&self, nodes: &Nodes, index: u32) -> bool {
        let _shape = self.shape.lock();
        let Some((root, height)) = self.root() else { return false };
        if !covers(height, index) {
            return false;
        }
        let mut freed = Supply::new();
        let empty = self.prune_below(nodes, (root, height), index, &mut freed);
        if empty {
            self.set_root(None);
            freed.push(root);
        }
        let any = !freed.is_empty();
        nodes.give_back(freed);
        any
    }

    /// Whether the node has become empty and is to be unlinked.
    fn prune_below(&self, nodes: &Nodes, (node, height): Top, index: u32, freed: &mut Supply) -> bool {
        if height == 1 {
            return nodes.retire(node, self.key(index));
        }
        let word = nodes.slot(node, index >> (LEVEL * (height - 1))).word;
        let Some(below) = child(word) else { return false };
        if !self.prune_below(nodes, (below, height - 1), index, freed) {
            return false;
        }
        word.store(0, Ordering::Release);
        freed.push(below);
        (0..SLOTS).all(|nth| nodes.slot(node, nth).word.load(Ordering::Relaxed) == 0)
    }

    /// Frees all nodes. No page is left, and nobody looks for any.
    pub fn clear(&self, nodes: &Nodes) {
        while let Some((_, first)) = self.next_leaf(nodes, 0) {
            // The eviction may be about to leave it.
            if !self.prune(nodes, first) {
                yield_now();
            }
        }
    }
}

fn covers(height: u32, index: u32) -> bool {
    u64::from(index) >> (LEVEL * height) == 0
}

fn child(word: Word<'_>) -> Option<u32> {
    let word = word.load(Ordering::Acquire);
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    (word & CHILD != 0).then_some(word as u32)
}

/// The first leaf whose pages are not all before `from`, below a node whose first page is `first`.
fn search(nodes: &Nodes, (node, height): Top, first: u64, from: u64) -> Option<(u32, u32)> {
    if height == 1 {
        let reaches = from < first + u64::from(SLOTS);
        return if reaches { Some((node, u32::try_from(first).ok()?)) } else { None };
    }
    let span = 1_u64 << (LEVEL * (height - 1));
    let skip = from.saturating_sub(first) / span;
    (skip..SLOTS.into()).find_map(|nth| {
        let below = child(nodes.slot(node, u32::try_from(nth).ok()?).word)?;
        search(nodes, (below, height - 1), first + nth * span, from)
    })
}
