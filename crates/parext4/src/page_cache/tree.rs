//! The tree of one file's pages: a radix tree of [`super::nodes`] that grows upwards with the
//! largest index.
//!
//! The module is responsible for the shape of the tree. The modules `state` and `page` manage the
//! states of pages in the slots of the leaves.
//!
//! The shape changes under a mutex; look-ups acquire no lock. Invariant: a look-up finds every page
//! that is present from its start to its end, because a leaf with a used slot is not freed, nor are
//! the nodes above it. A look-up of any other page may return a leaf that belongs to another file
//! by now. The caller checks the leaf's key where that matters.

use super::nodes::{LEVEL, LeafKey, NodeSupply, Nodes, SLOTS};
use super::page_index::PageIndex;
use super::state::CHILD;
use crate::fault::{Fault, guarded, when_planted};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, Word, yield_now};

/// Nodes that one index may need: five new roots and five nodes below them, or six nodes in an
/// empty tree.
const MAX_NEW: usize = 10;

#[derive(Debug)]
pub(super) struct PageTree {
    /// Number of the file, from 1.
    file: u32,
    /// The root. 0 for an empty tree; otherwise the root's number and, from bit 32 on, its height.
    /// A leaf has height 1.
    root: AtomicU64,
    /// Lock that is held while the shape changes.
    shape: Mutex<()>,
}

/// A node of the tree and its height.
type Subtree = (u32, u32);

impl PageTree {
    pub fn new(file: u32) -> Self {
        Self { file, root: AtomicU64::new(0), shape: Mutex::new(Rank::PageTree, ()) }
    }

    pub fn file(&self) -> u32 {
        self.file
    }

    pub fn key(&self, index: PageIndex) -> LeafKey {
        LeafKey::new(self.file, index)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    fn root(&self) -> Option<Subtree> {
        // Acquire pairs with the Release in `set_root`: this thread sees the node's words as they
        // were when the node became the root.
        let root = self.root.load(Ordering::Acquire);
        (root != 0).then_some((root as u32, (root >> 32) as u32))
    }

    fn set_root(&self, root: Option<Subtree>) {
        let root = root.map_or(0, |(node, height)| u64::from(node) | u64::from(height) << 32);
        self.root.store(root, Ordering::Release);
    }

    /// Returns the leaf of page `index`, or `None` if there is none.
    #[inline]
    pub fn leaf(&self, nodes: &Nodes, index: PageIndex) -> Option<u32> {
        let (mut node, mut height) = self.root()?;
        if !covers(height, index) {
            return None;
        }
        while height > 1 {
            height -= 1;
            node = child(nodes.slot(node, child_slot(height, index)).word)?;
        }
        Some(node)
    }

    /// Returns the leaf of page `index`, and adds it if there is none. Returns `None` if too few
    /// nodes are free.
    pub fn leaf_or_insert(&self, nodes: &Nodes, index: PageIndex) -> Option<u32> {
        let _shape = self.shape.lock();
        if let Some(leaf) = self.leaf(nodes, index) {
            return Some(leaf);
        }
        let mut supply = nodes.allocate(MAX_NEW)?;
        let leaf = self.grow(nodes, index, &mut supply);
        nodes.free(supply);
        leaf
    }

    fn grow(&self, nodes: &Nodes, index: PageIndex, supply: &mut NodeSupply) -> Option<u32> {
        let mut root = self.root();
        while root.is_none_or(|(_, height)| !covers(height, index)) {
            let new = supply.pop()?;
            root = Some(match root {
                Some((old, height)) => {
                    nodes.slot(new, 0).word.store(CHILD | u64::from(old), Ordering::Relaxed);
                    (new, height + 1)
                }
                None => {
                    when_planted!(Fault::LeafNamedFirst, nodes.set_key(new, self.key(index)));
                    (new, (1..).find(|&height| covers(height, index))?)
                }
            });
            self.set_root(root);
        }
        let (mut node, mut height) = root?;
        while height > 1 {
            height -= 1;
            let word = nodes.slot(node, child_slot(height, index)).word;
            node = match child(word) {
                Some(node) => node,
                None => {
                    let new = supply.pop()?;
                    // Release: a look-up that follows this pointer finds the node's slots empty.
                    word.store(CHILD | u64::from(new), Ordering::Release);
                    new
                }
            };
        }
        // The key is set last. A thread that reaches the leaf by an old path may fill a page as
        // soon as the leaf has its key, and other threads must then find that page through the
        // tree.
        guarded!(Fault::LeafNamedFirst, nodes.set_key(node, self.key(index)));
        Some(node)
    }

    /// Returns the first leaf that has a page at or after `from`, and the index of the leaf's first
    /// page.
    pub fn next_leaf(&self, nodes: &Nodes, from: PageIndex) -> Option<(u32, PageIndex)> {
        let (root, height) = self.root()?;
        search(nodes, (root, height), 0, u64::from(from.get()))
    }

    /// Frees the leaf of page `index` if it is empty, and the nodes above it that become empty.
    /// Returns true if any node was freed.
    pub fn prune(&self, nodes: &Nodes, index: PageIndex) -> bool {
        let _shape = self.shape.lock();
        let Some((root, height)) = self.root() else { return false };
        if !covers(height, index) {
            return false;
        }
        let mut freed = NodeSupply::new();
        let empty = self.prune_below(nodes, (root, height), index, &mut freed);
        if empty {
            self.set_root(None);
            freed.push(root);
        }
        let any = !freed.is_empty();
        nodes.free(freed);
        any
    }

    /// Prunes the path of page `index` below a node. Returns true if the node has become empty and
    /// the caller must unlink it.
    fn prune_below(
        &self,
        nodes: &Nodes,
        (node, height): Subtree,
        index: PageIndex,
        freed: &mut NodeSupply,
    ) -> bool {
        if height == 1 {
            return nodes.retire(node, self.key(index));
        }
        let word = nodes.slot(node, child_slot(height - 1, index)).word;
        let Some(below) = child(word) else { return false };
        if !self.prune_below(nodes, (below, height - 1), index, freed) {
            return false;
        }
        word.store(0, Ordering::Release);
        freed.push(below);
        (0..SLOTS).all(|nth| nodes.slot(node, nth).word.load(Ordering::Relaxed) == 0)
    }

    /// Frees all nodes. The file has no pages left, and no thread looks up pages. Spins while the
    /// eviction is about to leave a leaf.
    pub fn clear(&self, nodes: &Nodes) {
        while let Some((_, first)) = self.next_leaf(nodes, PageIndex::ZERO) {
            // The eviction may still count as a user of the leaf.
            if !self.prune(nodes, first) {
                yield_now();
            }
        }
    }
}

fn covers(height: u32, index: PageIndex) -> bool {
    u64::from(index.get()) >> (LEVEL * height) == 0
}

/// Returns the slot, modulo the slots of a node, of the child of height `height` that has page
/// `index`.
#[inline]
fn child_slot(height: u32, index: PageIndex) -> u32 {
    index.get() >> (LEVEL * height)
}

fn child(word: Word<'_>) -> Option<u32> {
    let word = word.load(Ordering::Acquire);
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    (word & CHILD != 0).then_some(word as u32)
}

/// Returns the first leaf at or after `from` below a node whose first page is `first`, and the
/// leaf's first page.
fn search(nodes: &Nodes, (node, height): Subtree, first: u64, from: u64) -> Option<(u32, PageIndex)> {
    if height == 1 {
        let reaches = from < first + u64::from(SLOTS);
        return if reaches { Some((node, PageIndex(u32::try_from(first).ok()?))) } else { None };
    }
    let span = 1_u64 << (LEVEL * (height - 1));
    let skip = from.saturating_sub(first) / span;
    (skip..SLOTS.into()).find_map(|nth| {
        let below = child(nodes.slot(node, u32::try_from(nth).ok()?).word)?;
        search(nodes, (below, height - 1), first + nth * span, from)
    })
}
