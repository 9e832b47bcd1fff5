//! Releasing the memory of tables that were large.

use std::hash::Hash;

use hashlink::LinkedHashMap;

/// Capacity below which a table keeps its memory.
const SMALL: usize = 64;

/// Releases the memory of a table, after a removal, once it uses less than a quarter of it. The
/// table keeps a small allocation for each entry that was removed: thousands of them, spread over
/// the heap, would keep the memory in between from the system. Takes constant time on average.
pub(crate) fn shrink_if_sparse<K: Eq + Hash, V>(table: &mut LinkedHashMap<K, V>) {
    if table.capacity() > SMALL && table.len() < table.capacity() / 4 {
        table.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_large_releases_its_memory() {
        let mut table: LinkedHashMap<usize, usize> = (0..10_000).map(|number| (number, number)).collect();
        for number in 0..9_900 {
            table.remove(&number);
            shrink_if_sparse(&mut table);
        }
        assert!(table.capacity() < 1000, "{} places", table.capacity());
        assert!(table.keys().copied().eq(9_900..10_000), "in their order");
    }
}
