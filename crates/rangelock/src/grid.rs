//! A map from distinct ranges to values that finds the ranges overlapping a given one: a
//! hierarchical hash grid.
//!
//! Level `k`, always odd, holds the ranges of more than `2^(k-2)` and at most `2^k` bytes. It is
//! divided into cells of `2^k` bytes, and a range is in the cell in which it starts. A range thus
//! ends in that cell or the next. A search for a range checks, on each level in use, the cells that
//! the range touches and the one before them. Cells are hashed to buckets.
//!
//! However many ranges there are, a search visits at most three cells of each level whose cells are
//! at least as long as the range, and never takes more steps than there are ranges. Nodes are
//! reused: the grid allocates only when it holds more ranges than ever before.
//!
//! Invariants:
//! - G1: `levels` has the bit of each range's level. Bits are cleared when the last range is
//!   removed.
//! - G2: there are as many buckets as nodes, a power of two. The list of a bucket links the nodes
//!   of its cells.
//! - G3: all other nodes are in the free list, with a default value.
//! - G4: `ids` is the exclusive or of the ids of all ranges. With one range it is that range's id.

use crate::ByteRange;

/// Identifies a range of a grid until the range is removed.
pub(crate) type Id = u32;

const NIL: Id = Id::MAX;
const FIRST_NODES: usize = 4;

struct Node<T> {
    range: ByteRange,
    /// The next node in the list of the bucket, or in the free list.
    next: Id,
    /// The first node of the bucket with this node's index; unrelated to this node.
    bucket: Id,
    value: T,
}

/// A map from distinct ranges to values. It is small, because a slot shares one cache line with its
/// grid.
pub(crate) struct Grid<T> {
    nodes: Box<[Node<T>]>,
    /// The levels in use: bit `n` stands for level `2 * n + 1`.
    levels: u32,
    free: Id,
    len: u32,
    ids: Id,
}

impl<T> Default for Grid<T> {
    fn default() -> Self {
        Self { nodes: Box::default(), levels: 0, free: NIL, len: 0, ids: 0 }
    }
}

impl<T: Default> Grid<T> {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn range(&self, id: Id) -> ByteRange {
        self.nodes[id as usize].range
    }

    pub(crate) fn value(&self, id: Id) -> &T {
        &self.nodes[id as usize].value
    }

    pub(crate) fn value_mut(&mut self, id: Id) -> &mut T {
        &mut self.nodes[id as usize].value
    }

    /// Returns the only range; `None` if there are none or several.
    pub(crate) fn sole(&self) -> Option<Id> {
        (self.len == 1).then_some(self.ids)
    }

    /// Returns all ranges, and possibly removed ones with default values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ByteRange, &T)> {
        self.nodes.iter().map(|node| (node.range, &node.value))
    }

    /// Empties the grid. Returns all ranges, and possibly removed ones with default values.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (ByteRange, T)> + use<T> {
        std::mem::take(self).nodes.into_vec().into_iter().map(|node| (node.range, node.value))
    }

    /// Calls `found` for ranges that overlap `range`, until it returns true. Returns true if it
    /// did. May call it twice for one range, and for removed ranges with default values.
    #[inline]
    pub(crate) fn any_overlapping(&self, range: ByteRange, mut found: impl FnMut(Id, &T) -> bool) -> bool {
        let mut levels = self.levels;
        while levels != 0 {
            let level = 2 * levels.trailing_zeros() + 1;
            let first = (range.start() >> level).saturating_sub(1);
            let last = (range.end() - 1) >> level;
            if last - first > self.nodes.len() as u64 {
                return (0..)
                    .zip(self.nodes.iter())
                    .any(|(id, n)| n.range.overlaps(&range) && found(id, &n.value));
            }
            for cell in first..=last {
                let mut at = self.nodes[self.bucket_of(cell)].bucket;
                while at != NIL {
                    let node = &self.nodes[at as usize];
                    if node.range.overlaps(&range) && found(at, &node.value) {
                        return true;
                    }
                    at = node.next;
                }
            }
            levels &= levels - 1;
        }
        false
    }

    /// Returns the id of exactly this range, if the grid has it.
    #[inline]
    pub(crate) fn find(&self, range: ByteRange) -> Option<Id> {
        if self.len == 0 {
            return None;
        }
        let mut at = self.nodes[self.bucket_of(cell(range))].bucket;
        while at != NIL && self.range(at) != range {
            at = self.nodes[at as usize].next;
        }
        (at != NIL).then_some(at)
    }

    /// Returns the id of exactly this range; adds the range with a default value if the grid lacks
    /// it.
    #[inline]
    pub(crate) fn find_or_add(&mut self, range: ByteRange) -> Id {
        self.find(range).unwrap_or_else(|| self.add(range))
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: Id) {
        let bucket = self.bucket_of(cell(self.range(id)));
        let next = self.nodes[id as usize].next;
        let mut at = self.nodes[bucket].bucket;
        if at == id {
            self.nodes[bucket].bucket = next;
        } else {
            while self.nodes[at as usize].next != id {
                at = self.nodes[at as usize].next;
            }
            self.nodes[at as usize].next = next;
        }
        let node = &mut self.nodes[id as usize];
        (node.value, node.next) = (T::default(), self.free);
        self.free = id;
        self.ids ^= id;
        self.len -= 1;
        if self.len == 0 {
            self.levels = 0;
        }
    }

    #[inline]
    fn add(&mut self, range: ByteRange) -> Id {
        if self.free == NIL {
            self.grow();
        }
        let id = self.free;
        let node = &mut self.nodes[id as usize];
        self.free = node.next;
        node.range = range;
        self.levels |= 1 << (level(range) / 2);
        self.ids ^= id;
        self.len += 1;
        self.link(id);
        id
    }

    #[inline]
    fn link(&mut self, id: Id) {
        let bucket = self.bucket_of(cell(self.range(id)));
        let next = std::mem::replace(&mut self.nodes[bucket].bucket, id);
        self.nodes[id as usize].next = next;
    }

    /// Doubles the number of nodes, none of which is free, and of buckets.
    #[cold]
    fn grow(&mut self) {
        let used = self.nodes.len();
        let nodes = (2 * used).max(FIRST_NODES);
        let last = u32::try_from(nodes - 1).expect("fewer requests than 2^32");
        let mut more = std::mem::take(&mut self.nodes).into_vec();
        more.reserve_exact(nodes - used);
        more.iter_mut().for_each(|node| node.bucket = NIL);
        for id in used as u32..=last {
            let next = if id < last { id + 1 } else { NIL };
            more.push(Node { range: ByteRange::ALL, next, bucket: NIL, value: T::default() });
        }
        self.nodes = more.into_boxed_slice();
        self.free = used as u32;
        (0..used as u32).for_each(|id| self.link(id));
    }

    #[inline]
    fn bucket_of(&self, cell: u64) -> usize {
        // Vigna's multiplier for congruential generators (2021). It must differ from the multiplier
        // that hashes stripes to slots: all stripes of one slot have similar products with the
        // latter.
        let hash = cell.wrapping_mul(0xd134_2543_de82_ef95);
        (hash >> 32) as usize & (self.nodes.len() - 1)
    }
}

fn level(range: ByteRange) -> u32 {
    // Only odd levels exist, so that 32 bits suffice for `levels`. The last one is 63.
    (u64::BITS - (range.len() - 1).leading_zeros()).min(u64::BITS - 1) | 1
}

fn cell(range: ByteRange) -> u64 {
    range.start() >> level(range)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::Grid;
    use crate::ByteRange;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn range() -> impl Strategy<Value = ByteRange> {
        let bytes = |start: u64, len: u64| ByteRange::new(start, start.saturating_add(len));
        prop_oneof![
            (0u64..100, 1u64..20).prop_map(move |(start, len)| bytes(start, len)),
            (any::<u64>(), 0u32..63, 1u64..3)
                .prop_map(move |(start, shift, len)| bytes((start >> shift).min(u64::MAX - 1), len << shift)),
            Just(ByteRange::ALL),
        ]
    }

    #[test]
    fn a_range_is_the_sole_one_only_while_it_is_alone() {
        let mut grid = Grid::<()>::default();
        assert_eq!(grid.sole(), None);
        let [first, second, third, last, fifth] =
            [0, 1, 2, 3, 4].map(|at| grid.find_or_add(ByteRange::new(at, at + 1)));
        for id in [first, second, third, fifth] {
            assert_eq!(grid.sole(), None);
            grid.remove(id);
        }
        assert_eq!(grid.sole(), Some(last));
        grid.remove(last);
        assert_eq!(grid.sole(), None);
    }

    proptest! {
        #[test]
        fn finds_exactly_the_overlapping_ranges(ranges in prop::collection::vec(range(), 1..60), probe in range()) {
            let (mut grid, mut naive) = (Grid::<()>::default(), BTreeSet::new());
            for range in ranges {
                let key = (range.start(), range.end());
                match grid.find(range) {
                    Some(id) => grid.remove(id),
                    None => { grid.find_or_add(range); }
                }
                if !naive.remove(&key) {
                    naive.insert(key);
                }
                prop_assert_eq!(grid.len(), naive.len());
                for probe in [probe, range] {
                    let mut found = BTreeSet::new();
                    grid.any_overlapping(probe, |id, ()| {
                        let range = grid.range(id);
                        // The grid may also report removed ranges.
                        if grid.find(range) == Some(id) {
                            found.insert((range.start(), range.end()));
                        }
                        false
                    });
                    let overlaps = |&(start, end): &(u64, u64)| ByteRange::new(start, end).overlaps(&probe);
                    prop_assert_eq!(found, naive.iter().copied().filter(overlaps).collect::<BTreeSet<_>>());
                }
            }
        }
    }
}
