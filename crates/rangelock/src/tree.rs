//! A set of distinct ranges, each with a value, that finds those overlapping a given range: an interval tree,
//! kept balanced as a treap (Seidel and Aragon, 1996), in one vector.
//!
//! Finding, adding and removing take time logarithmic in the number of ranges, and finding also linear in the
//! number found. Nothing is allocated unless there are more ranges than ever before.
//!
//! Invariants:
//! - T1: in order of the tree, ranges rise by (start, end); priorities fall from the root to the leaves.
//! - T2: a node's `furthest` is the largest end at or below it.

use crate::ByteRange;

/// Names a range of one tree for as long as it is in it.
pub(crate) type Id = u32;

const NIL: Id = Id::MAX;

struct Node<T> {
    range: ByteRange,
    furthest: u64,
    priority: u32,
    left: Id,
    /// In a free node, the next free one.
    right: Id,
    value: T,
}

pub(crate) struct Tree<T> {
    nodes: Vec<Node<T>>,
    root: Id,
    free: Id,
    len: u32,
    random: u32,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), root: NIL, free: NIL, len: 0, random: 0x9e37_79b9 }
    }
}

impl<T: Default> Tree<T> {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn range(&self, id: Id) -> ByteRange {
        self.node(id).range
    }

    pub(crate) fn value(&self, id: Id) -> &T {
        &self.node(id).value
    }

    pub(crate) fn value_mut(&mut self, id: Id) -> &mut T {
        &mut self.node_mut(id).value
    }

    /// Whether `found` is true for a range that overlaps `range`; asks until it is.
    pub(crate) fn any_overlapping(&self, range: ByteRange, mut found: impl FnMut(Id, &T) -> bool) -> bool {
        self.any_below(self.root, range, &mut found)
    }

    /// Exactly this range.
    pub(crate) fn find(&self, range: ByteRange) -> Option<Id> {
        let mut at = self.root;
        while at != NIL && self.node(at).range != range {
            let node = self.node(at);
            at = if key(range) < key(node.range) { node.left } else { node.right };
        }
        (at != NIL).then_some(at)
    }

    /// Exactly this range, added with a default value if it is missing.
    pub(crate) fn find_or_add(&mut self, range: ByteRange) -> Id {
        self.find(range).unwrap_or_else(|| {
            let id = self.new_node(range);
            self.root = self.add_below(self.root, id);
            self.len += 1;
            id
        })
    }

    pub(crate) fn remove(&mut self, id: Id) {
        self.root = self.remove_below(self.root, id);
        self.len -= 1;
        let free = self.free;
        let node = self.node_mut(id);
        // The value is dropped here, but its place is kept for the next range.
        node.value = T::default();
        node.right = free;
        self.free = id;
    }

    /// Empties the tree; may also return ranges that were removed before, with default values.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (ByteRange, T)> + use<T> {
        std::mem::take(self).nodes.into_iter().map(|node| (node.range, node.value))
    }

    fn any_below(&self, at: Id, range: ByteRange, found: &mut impl FnMut(Id, &T) -> bool) -> bool {
        if at == NIL {
            return false;
        }
        let node = self.node(at);
        if node.furthest <= range.start() {
            return false;
        }
        let starts_before_end = node.range.start() < range.end();
        (starts_before_end && node.range.end() > range.start() && found(at, &node.value))
            || self.any_below(node.left, range, found)
            || (starts_before_end && self.any_below(node.right, range, found))
    }

    fn new_node(&mut self, range: ByteRange) -> Id {
        // Marsaglia's xorshift (2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let priority = self.random;
        if self.free == NIL {
            let id = u32::try_from(self.nodes.len()).expect("fewer requests than 2^32");
            let (left, right, value) = (NIL, NIL, T::default());
            self.nodes.push(Node { range, furthest: range.end(), priority, left, right, value });
            return id;
        }
        let id = self.free;
        let node = self.node_mut(id);
        let next = node.right;
        (node.range, node.furthest, node.priority) = (range, range.end(), priority);
        (node.left, node.right) = (NIL, NIL);
        self.free = next;
        id
    }

    fn add_below(&mut self, at: Id, id: Id) -> Id {
        if at == NIL {
            return id;
        }
        let range = self.node(id).range;
        if self.node(id).priority > self.node(at).priority {
            let (left, right) = self.split(at, range);
            let node = self.node_mut(id);
            (node.left, node.right) = (left, right);
            return self.updated(id);
        }
        if key(range) < key(self.node(at).range) {
            self.node_mut(at).left = self.add_below(self.node(at).left, id);
        } else {
            self.node_mut(at).right = self.add_below(self.node(at).right, id);
        }
        self.updated(at)
    }

    fn remove_below(&mut self, at: Id, id: Id) -> Id {
        if at == id {
            return self.merge(self.node(at).left, self.node(at).right);
        }
        if key(self.node(id).range) < key(self.node(at).range) {
            self.node_mut(at).left = self.remove_below(self.node(at).left, id);
        } else {
            self.node_mut(at).right = self.remove_below(self.node(at).right, id);
        }
        self.updated(at)
    }

    /// Two trees: what comes before `range`, and the rest.
    fn split(&mut self, at: Id, range: ByteRange) -> (Id, Id) {
        if at == NIL {
            return (NIL, NIL);
        }
        if key(self.node(at).range) < key(range) {
            let (before, after) = self.split(self.node(at).right, range);
            self.node_mut(at).right = before;
            (self.updated(at), after)
        } else {
            let (before, after) = self.split(self.node(at).left, range);
            self.node_mut(at).left = after;
            (before, self.updated(at))
        }
    }

    /// One tree of two, all of `left` being before all of `right`.
    fn merge(&mut self, left: Id, right: Id) -> Id {
        if left == NIL || right == NIL {
            return if left == NIL { right } else { left };
        }
        if self.node(left).priority > self.node(right).priority {
            self.node_mut(left).right = self.merge(self.node(left).right, right);
            self.updated(left)
        } else {
            self.node_mut(right).left = self.merge(left, self.node(right).left);
            self.updated(right)
        }
    }

    /// Restores T2 for a node whose children have changed.
    fn updated(&mut self, at: Id) -> Id {
        let node = self.node(at);
        let below = [node.left, node.right].map(|child| match child {
            NIL => 0,
            child => self.node(child).furthest,
        });
        self.node_mut(at).furthest = node.range.end().max(below[0]).max(below[1]);
        at
    }

    fn node(&self, id: Id) -> &Node<T> {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: Id) -> &mut Node<T> {
        &mut self.nodes[id as usize]
    }
}

fn key(range: ByteRange) -> (u64, u64) {
    (range.start(), range.end())
}
